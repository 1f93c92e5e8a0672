//! The content of a column in a row, and its meaning. All formats share these rules.
//!
//! * A tenant and a listing are a text or a whole number.
//! * A page is a list of listings, or a text with a separator between them. Each of its listings becomes a row.
//! * A time is a number of seconds since 1970, a time with its offset, or a time by the clock of the file's zone.
//! * A value of a dimension is a text or a whole number, or there is none.
//! * A count is a whole number. `5` and `5.0` are the same.

use crate::mapping::{Columns, Mapping, Pages, TypeOf};
use crate::rows::{Id, Row, Rows};
use serde_json::Value as Json;
use std::borrow::Cow;
use std::mem;
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::{CalendarError, NoTime, Zone};
use tidemark_streams_core::values::{DimensionError, DimensionNames};
use tidemark_streams_intake::limits::LISTINGS_MAX;

/// Whole numbers up to here are exact in a float of 64 bits. Larger ones are refused: the file may have meant a neighbour.
const FLOAT_EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Bytes of a text beside a page. No field takes a text of half that length.
const PAGE_FIELD_BYTES_MAX: usize = 2_048;

const AT: &str = "at";
const LISTINGS: &str = "listings";
const A_LIST: &str = "a list";

/// The content of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// The mapping has no such column, or this row has not.
    NoColumn,
    Missing,
    Text(Cow<'a, str>),
    Whole(i64),
    Float(f64),
    /// Seconds since 1970.
    Instant(i64),
    /// Seconds since 1970-01-01 by a clock of a zone that the file does not name.
    Clock(i64),
    List(Vec<Value<'a>>),
    /// Something that no column takes.
    Other(&'static str),
}

/// Why values are no event. It becomes the reason of a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("{0} is missing")]
    Missing(String),
    #[error("{field} {shown}: {expected} is expected")]
    Value { field: String, shown: String, expected: &'static str },
    #[error("{field} is {found}: {expected} is expected")]
    Kind { field: String, found: &'static str, expected: &'static str },
    #[error("{field} has {bytes} bytes: a row with a page has at most {PAGE_FIELD_BYTES_MAX} in other fields")]
    PageField { field: &'static str, bytes: usize },
    #[error("{listings} listings: 1 to {LISTINGS_MAX} in a page")]
    PageLength { listings: usize },
    #[error("listings is a text: a list is expected; --listings-separator splits texts")]
    NoSeparator,
    #[error("at: {0}")]
    Time(NoTime),
    #[error("at: {0}")]
    ClockText(CalendarError),
    #[error("at {seconds} s from 1970 on: not between 1970 and 3000")]
    Clock { seconds: i64 },
    #[error("the line has fields {first:?} and {second:?}: a column is expected once, in upper or lower case")]
    TwoFields { first: String, second: String },
    #[error(transparent)]
    Dimension(#[from] DimensionError),
}

impl<'a> Value<'a> {
    /// A text of white space is missing.
    pub fn of_text(text: &'a str) -> Value<'a> {
        if text.trim().is_empty() { Value::Missing } else { Value::Text(Cow::Borrowed(text)) }
    }
}

/// How rows are made of values.
#[derive(Clone, Debug)]
pub struct Reading {
    pub mapping: Mapping,
    /// Of times that do not say their offset.
    pub zone: Zone,
    /// Of the directory.
    pub dimensions: DimensionNames,
}

impl Reading {
    /// Adds the rows of a record: one, or one for each listing of its page.
    #[inline]
    pub fn push(&self, values: Columns<Value<'_>>, rows: &mut Rows) {
        match &self.mapping.pages {
            None => rows.push(&self.row(&values)),
            Some(pages) => self.push_page(values, pages, rows),
        }
    }

    /// Whether these values make this row.
    pub(crate) fn is_row(&self, values: &Columns<Value<'_>>, row: &Row<'_>) -> bool {
        self.row(values) == *row
    }

    fn push_page(&self, mut values: Columns<Value<'_>>, pages: &Pages, rows: &mut Rows) {
        let page = mem::replace(&mut values.listing, Value::NoColumn);
        match short_fields(&values).and_then(|()| listings(&page, pages)) {
            Ok(listings) => {
                let mut of_listing = values;
                for listing in listings {
                    of_listing.listing = listing;
                    rows.push(&self.row(&of_listing));
                }
            }
            Err(error) => {
                let text = self.shown(&values, Some(&page));
                rows.push(&Row::Broken { reason: error.to_string(), text });
            }
        }
    }

    #[inline]
    fn row<'a>(&self, values: &'a Columns<Value<'_>>) -> Row<'a> {
        self.event(values)
            .unwrap_or_else(|error| Row::Broken { reason: error.to_string(), text: self.shown(values, None) })
    }

    #[inline]
    fn event<'a>(&self, values: &'a Columns<Value<'_>>) -> Result<Row<'a>, ValueError> {
        let event_type = match self.mapping.event_type {
            TypeOf::All(_) => None,
            TypeOf::Column(_) => Some(id("type", &values.event_type)?),
        };
        let count = match (&self.mapping.count, &values.count) {
            (None, _) => 1,
            (Some(_), value) => whole("n", value)?,
        };
        Ok(Row::Event {
            tenant: self.mapping.tenant.as_ref().map(|_| id("tenant", &values.tenant)).transpose()?,
            listing: id("listing", &values.listing)?,
            at_s: self.mapping.at.as_ref().map_or(Ok(0), |_| self.time(&values.at))?,
            event_type,
            count,
            values: if self.mapping.values.is_empty() { String::new() } else { self.values(&values.values)? },
        })
    }

    /// The text of the values of dimensions.
    fn values(&self, values: &[Value<'_>]) -> Result<String, ValueError> {
        let mut found: Vec<(&str, Cow<'_, str>)> = Vec::with_capacity(values.len());
        for (of, value) in self.mapping.values.iter().zip(values) {
            let value = match value {
                Value::NoColumn | Value::Missing => continue,
                Value::Text(_) | Value::Whole(_) | Value::Float(_) => id(&of.dimension, value)?,
                Value::Instant(_) | Value::Clock(_) | Value::List(_) | Value::Other(_) => id(&of.dimension, value)?,
            };
            found.push((&of.dimension, value.text()));
        }
        Ok(self.dimensions.text(found.iter().map(|(name, value)| (*name, value.as_ref())))?)
    }

    /// A row as a dead letter shows it: the JSON of an event, as it may be sent over HTTP. A column that has no value is an empty text,
    /// which no event has: a reader takes a field that is absent or null for its default. `page` is what has no listings.
    fn shown(&self, values: &Columns<Value<'_>>, page: Option<&Value<'_>>) -> String {
        let json = |value: &Value<'_>| match value {
            Value::Text(text) => Json::from(text.as_ref()),
            Value::Whole(number) => Json::from(*number),
            Value::Float(value) if value.is_finite() => Json::from(*value),
            Value::Float(_) | Value::NoColumn | Value::Missing => Json::from(""),
            Value::Instant(_) | Value::Clock(_) | Value::List(_) | Value::Other(_) => Json::from(""),
        };
        // The reader of events takes 5.0 as the id 5, the reader of files does not.
        let id = |value: &Value<'_>| match value {
            Value::Float(_) => Json::from(""),
            Value::NoColumn | Value::Missing | Value::Text(_) | Value::Whole(_) => json(value),
            Value::Instant(_) | Value::Clock(_) | Value::List(_) | Value::Other(_) => json(value),
        };
        let listing = match page {
            None => ("listing", id(&values.listing)),
            Some(Value::List(listings)) => (LISTINGS, listings.iter().take(LISTINGS_MAX + 1).map(id).collect()),
            Some(no_list) => (LISTINGS, json(no_list)),
        };
        let event_type = match &self.mapping.event_type {
            TypeOf::All(name) => Json::from(name.as_str()),
            TypeOf::Column(_) => id(&values.event_type),
        };
        let at = match (self.time(&values.at), &values.at) {
            (Ok(seconds), _) => Json::from(seconds),
            // The reader of events has other rules for numbers and texts that are no time by the rules of files.
            (Err(_), Value::Whole(_) | Value::Float(_)) => Json::from(format!("{} is no time", json(&values.at))),
            (Err(_), Value::Text(text)) if text.parse::<UnixTime>().is_ok() => Json::from(format!("{text} is no time")),
            (Err(_), value) => json(value),
        };
        // The reader of events takes numbers only, and a file of texts has its numbers as texts.
        let number = |value: &Value<'_>| whole("n", value).map_or_else(|_| json(value), Json::from);
        let count = self.mapping.count.as_ref().map(|_| number(&values.count));
        let named = [
            ("tenant", self.mapping.tenant.as_ref().map(|_| id(&values.tenant))),
            (listing.0, Some(listing.1)),
            ("at", self.mapping.at.as_ref().map(|_| at)),
            ("type", Some(event_type)),
            ("n", count),
        ];
        let fields = named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        // An empty text is no value. So something that is not a value is shown as a list, which no reader takes.
        let value = |value: &Value<'_>| match value {
            Value::NoColumn | Value::Missing | Value::Text(_) | Value::Whole(_) => json(value),
            Value::Float(number) => Json::from(vec![number.to_string()]),
            Value::Instant(_) | Value::Clock(_) | Value::List(_) | Value::Other(_) => Json::from(vec!["no value"]),
        };
        let of_values = self.mapping.values.iter().zip(&values.values);
        let of_values = of_values.map(|(of, found)| (of.dimension.clone(), value(found)));
        Json::Object(fields.chain(of_values).collect()).to_string()
    }

    #[inline]
    fn time(&self, value: &Value<'_>) -> Result<i64, ValueError> {
        match value {
            Value::NoColumn | Value::Missing => Err(ValueError::Missing(AT.to_owned())),
            Value::Instant(seconds) => Ok(*seconds),
            Value::Clock(seconds) => self.clock(*seconds).ok_or(ValueError::Clock { seconds: *seconds }),
            Value::Whole(seconds) => number_of_seconds(*seconds),
            Value::Float(_) => number_of_seconds(whole(AT, value)?),
            Value::Text(text) => self.time_of_text(text.trim()),
            Value::List(_) => Err(ValueError::Kind { field: AT.to_owned(), found: A_LIST, expected: "a time" }),
            Value::Other(found) => Err(ValueError::Kind { field: AT.to_owned(), found, expected: "a time" }),
        }
    }

    /// The time at which a clock of the zone shows these seconds. `None`: no time is so early or late.
    #[inline]
    pub fn clock(&self, seconds: i64) -> Option<i64> {
        let at = match self.zone == Zone::UTC {
            // The calendar would only give the number back.
            true => UnixTime::from_s(seconds).ok(),
            false => self.zone.at_clock(seconds),
        };
        at.map(|at| at.s() as i64)
    }

    fn time_of_text(&self, text: &str) -> Result<i64, ValueError> {
        if let Ok(seconds) = text.parse::<i64>() {
            return number_of_seconds(seconds);
        }
        match text.parse::<UnixTime>() {
            Ok(at) => return Ok(at.s() as i64),
            // It may be a time by the clock of the zone.
            Err(NoTime::Text(_)) => {}
            Err(error @ (NoTime::Ambiguous { .. } | NoTime::Range(_))) => return Err(ValueError::Time(error)),
        }
        let is_fraction = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
        let whole = text.split_once('.').filter(|(_, rest)| is_fraction(rest)).map_or(text, |(whole, _)| whole);
        self.zone.time(whole).map(|at| at.s() as i64).map_err(ValueError::ClockText)
    }
}

/// Checks that no field is long beside a page: each listing of the page copies it.
fn short_fields(values: &Columns<Value<'_>>) -> Result<(), ValueError> {
    let Columns { tenant, listing: _, at, count, event_type, values } = values;
    let fields = [(tenant, "tenant"), (at, AT), (count, "n"), (event_type, "type")];
    let fields = fields.into_iter().chain(values.iter().map(|value| (value, "a dimension")));
    for (value, field) in fields {
        match value {
            Value::Text(text) if text.len() > PAGE_FIELD_BYTES_MAX => {
                return Err(ValueError::PageField { field, bytes: text.len() });
            }
            Value::Text(_) | Value::NoColumn | Value::Missing | Value::Whole(_) | Value::Float(_) => {}
            Value::Instant(_) | Value::Clock(_) | Value::List(_) | Value::Other(_) => {}
        }
    }
    Ok(())
}

/// The listings of a page.
fn listings<'a>(page: &'a Value<'_>, pages: &Pages) -> Result<Vec<Value<'a>>, ValueError> {
    let kind = |found| ValueError::Kind { field: LISTINGS.to_owned(), found, expected: "a list" };
    let listings: Vec<Value<'a>> = match page {
        Value::List(listings) if listings.len() > LISTINGS_MAX => {
            return Err(ValueError::PageLength { listings: listings.len() });
        }
        Value::List(listings) => listings.clone(),
        Value::Text(text) => {
            let separator = pages.separator.as_deref().ok_or(ValueError::NoSeparator)?;
            text.split(separator).take(LISTINGS_MAX + 1).map(Value::of_text).collect()
        }
        Value::NoColumn | Value::Missing => return Err(ValueError::Missing(LISTINGS.to_owned())),
        Value::Whole(_) | Value::Float(_) => return Err(kind("a number")),
        Value::Instant(_) | Value::Clock(_) => return Err(kind("a time")),
        Value::Other(found) => return Err(kind(found)),
    };
    match listings.len() {
        1..=LISTINGS_MAX => Ok(listings),
        listings => Err(ValueError::PageLength { listings }),
    }
}

/// Seconds since 1970. A number that reads as a date is refused: its writer means the date.
fn number_of_seconds(seconds: i64) -> Result<i64, ValueError> {
    match UnixTime::of_number(seconds.into()) {
        Err(error @ NoTime::Ambiguous { .. }) => Err(ValueError::Time(error)),
        // The core names what is out of range.
        Err(NoTime::Range(_) | NoTime::Text(_)) | Ok(_) => Ok(seconds),
    }
}

#[inline]
fn id<'a>(field: &str, value: &'a Value<'_>) -> Result<Id<'a>, ValueError> {
    let expected = "a text or a whole number";
    match value {
        Value::Text(text) => Ok(Id::Text(text)),
        Value::Whole(number) => Ok(Id::Number(*number)),
        Value::NoColumn | Value::Missing => Err(ValueError::Missing(field.to_owned())),
        Value::Float(value) => Err(ValueError::Value { field: field.to_owned(), shown: value.to_string(), expected }),
        Value::Instant(_) | Value::Clock(_) => {
            Err(ValueError::Kind { field: field.to_owned(), found: "a time", expected })
        }
        Value::List(_) => Err(ValueError::Kind { field: field.to_owned(), found: A_LIST, expected }),
        Value::Other(found) => Err(ValueError::Kind { field: field.to_owned(), found, expected }),
    }
}

#[inline]
fn whole(field: &str, value: &Value<'_>) -> Result<i64, ValueError> {
    let expected = "a whole number";
    let no = |shown: String| ValueError::Value { field: field.to_owned(), shown, expected };
    match value {
        Value::Whole(number) => Ok(*number),
        Value::Float(value) => whole_of_float(*value).ok_or_else(|| no(value.to_string())),
        Value::Text(text) => {
            let text = text.trim();
            let float = || text.parse().ok().and_then(whole_of_float);
            text.parse().ok().or_else(float).ok_or_else(|| no(format!("{:?}", cut(text))))
        }
        Value::NoColumn | Value::Missing => Err(ValueError::Missing(field.to_owned())),
        Value::Instant(_) | Value::Clock(_) => {
            Err(ValueError::Kind { field: field.to_owned(), found: "a time", expected })
        }
        Value::List(_) => Err(ValueError::Kind { field: field.to_owned(), found: A_LIST, expected }),
        Value::Other(found) => Err(ValueError::Kind { field: field.to_owned(), found, expected }),
    }
}

fn whole_of_float(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() <= FLOAT_EXACT_MAX).then_some(value as i64)
}

fn cut(text: &str) -> &str {
    text.char_indices().nth(40).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidemark_streams_core::event::{EventTypes, RawEvent};
    use tidemark_streams_core::manifest::{Command, Manifest, SetTypes, TypesSet};
    use tidemark_streams_core::owner::Record;
    use tidemark_streams_core::schema::{Schema, TypeChange};
    use tidemark_streams_core::time::{Day, Now};
    use tidemark_streams_intake::body::{Rules, replayed};
    use tidemark_streams_intake::listings::NoTenants;

    fn reading(zone: &str) -> Reading {
        let mapping = Mapping::parse("tenant=t,listing=l,at=a,n=n", None).unwrap();
        Reading { mapping, zone: Zone::named(zone).unwrap(), dimensions: DimensionNames::default() }
    }

    fn values(at: Value<'static>, count: Value<'static>) -> Columns<Value<'static>> {
        let tenant = Value::Whole(330);
        let listing = Value::Text("x".into());
        Columns { tenant, listing, at, count, event_type: Value::NoColumn, values: Vec::new() }
    }

    fn at_s(zone: &str, at: Value<'static>) -> Result<i64, String> {
        match reading(zone).row(&values(at, Value::Whole(1))) {
            Row::Event { at_s, .. } => Ok(at_s),
            Row::Broken { reason, .. } => Err(reason),
        }
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        let text = |text: &'static str| Value::Text(text.into());
        for at in ["1483271606", "2017-01-01T11:53:26Z", "2017-01-01 11:53:26", "2017-01-01 11:53:26.75"] {
            assert_eq!(at_s("UTC", text(at)), Ok(1_483_271_606), "{at}");
        }
        assert_eq!(at_s("Asia/Kathmandu", text("2017-01-01 17:38:26")), Ok(1_483_271_606));
        assert_eq!(at_s("Asia/Kathmandu", Value::Clock(1_483_271_606 + 20_700)), Ok(1_483_271_606));
        assert_eq!(at_s("UTC", Value::Float(1_483_271_606.0)), Ok(1_483_271_606));
        assert!(at_s("UTC", text("20170101")).unwrap_err().contains("ambiguous"));
        assert!(at_s("UTC", text("yesterday")).is_err());
        assert!(at_s("UTC", Value::Float(0.5)).unwrap_err().contains("a whole number is expected"));
    }

    #[test]
    fn broken_rows_say_why_and_what_they_were() {
        let values = values(Value::Missing, Value::Text("many".into()));
        let row = reading("UTC").row(&values);
        let Row::Broken { reason, text } = row else { panic!("{row:?}") };
        assert_eq!(reason, "n \"many\": a whole number is expected");
        assert_eq!(text, r#"{"at":"","listing":"x","n":"many","tenant":330,"type":"impression"}"#);
    }

    #[test]
    fn count_of_a_broken_row_is_a_number_if_it_is_one() {
        for (count, shown) in [("7", "7"), (" 5.0 ", "5"), ("many", "\"many\""), ("", "\"\"")] {
            let values = values(Value::Missing, Value::Text(count.into()));
            let row = reading("UTC").row(&values);
            let Row::Broken { text, .. } = row else { panic!("{row:?}") };
            assert!(text.contains(&format!("\"n\":{shown},")), "{text}");
        }
    }

    /// Both types have a country.
    fn with_country() -> Schema {
        let mut manifest = Manifest::new();
        let set = |set| Command::Types(SetTypes { set, asked_at_ms: 0, log_row: 0 });
        manifest.apply(&set(TypesSet::List(vec!["impression".to_owned(), "click".to_owned()])));
        for name in ["impression", "click"] {
            let dimension = "country".to_owned();
            let change = TypeChange::AddDimension { name: name.to_owned(), dimension, values_max: 9 };
            manifest.apply(&set(TypesSet::Change(change)));
        }
        Schema::clone(manifest.schema())
    }

    #[test]
    fn values_of_dimensions_are_texts_or_whole_numbers_or_missing() {
        let mapping = Mapping::parse("tenant=t,listing=l,at=a,country=c", None).unwrap();
        let reading = Reading { mapping, zone: Zone::UTC, dimensions: with_country().dimensions().names };
        let read = |value: Value<'static>| {
            let columns = Columns { values: vec![value], ..values(Value::Whole(7), Value::NoColumn) };
            match reading.row(&columns) {
                Row::Event { values, .. } => Ok(values),
                Row::Broken { reason, text } => Err((reason, text)),
            }
        };
        let text = |value: &'static str| Value::Text(value.into());
        assert_eq!((read(text("NP")), read(Value::Whole(7))), (Ok("\u{1}NP".to_owned()), Ok("\u{1}7".to_owned())));
        assert_eq!((read(Value::Missing), read(Value::NoColumn)), (Ok(String::new()), Ok(String::new())));
        let (reason, shown) = read(Value::Float(5.0)).unwrap_err();
        assert_eq!(reason, "country 5: a text or a whole number is expected");
        assert_eq!(shown, r#"{"at":7,"country":["5"],"listing":"x","tenant":330,"type":"impression"}"#);
        assert!(read(Value::Text("x".repeat(61).into())).unwrap_err().0.ends_with("61 bytes: at most 60"));
    }

    #[test]
    fn each_listing_of_a_page_is_a_row() {
        let read = |separator: Option<&str>, listing: Value<'static>| {
            let mapping = Mapping::parse("tenant=t,listings=l,at=a,n=n", None).unwrap();
            let mapping = mapping.separated(separator).unwrap();
            let reading = Reading { mapping, zone: Zone::UTC, dimensions: DimensionNames::default() };
            let mut rows = Rows::default();
            reading.push(Columns { listing, ..values(Value::Whole(60), Value::Whole(2)) }, &mut rows);
            let shown = |record| match record {
                Record::Event(RawEvent { tenant, listing, at_s, count, .. }) => {
                    format!("{tenant} {listing} {at_s} {count}")
                }
                Record::Broken { reason, text } => format!("{reason}: {text}"),
            };
            rows.records("click").map(shown).collect::<Vec<_>>()
        };
        let text = |text: &'static str| Value::Text(text.into());
        let list = vec![Value::Whole(7), text("x"), Value::Float(1.5), Value::Missing];
        let rest = r#""n":2,"tenant":330,"type":"impression"}"#;
        let found = read(None, Value::List(list));
        assert_eq!(found[..2], ["330 7 60 2", "330 x 60 2"]);
        assert_eq!(
            found[2],
            format!(r#"listing 1.5: a text or a whole number is expected: {{"at":60,"listing":"",{rest}"#)
        );
        assert_eq!(found[3], format!(r#"listing is missing: {{"at":60,"listing":"",{rest}"#));
        assert_eq!(read(Some("|"), text("7|x")), ["330 7 60 2", "330 x 60 2"]);
        assert_eq!(read(Some("|"), text("7;x")), ["330 7;x 60 2"]);
        assert!(read(Some("|"), text("7|"))[1].starts_with("listing is missing"));
        let refused = |page: Value<'static>| read(None, page).join("\n");
        assert!(
            refused(text("7|x")).starts_with("listings is a text: a list is expected; --listings-separator splits")
        );
        assert!(refused(text("7|x")).ends_with(&format!(r#"{{"at":60,"listings":"7|x",{rest}"#)));
        assert!(refused(Value::Whole(7)).starts_with("listings is a number: a list is expected"));
        assert!(refused(Value::Missing).starts_with("listings is missing"));
        assert!(refused(Value::List(Vec::new())).starts_with("0 listings: 1 to 1000 in a page: "));
        assert_eq!(read(None, Value::List(vec![text("x"); 1_000])).len(), 1_000);
        assert!(refused(Value::List(vec![text("x"); 1_001])).starts_with("1001 listings: 1 to 1000 in a page: "));
    }

    #[test]
    fn long_fields_are_not_copied_for_each_listing() {
        let mapping = Mapping::parse("tenant=t,listings=l,at=a,n=n", None).unwrap();
        let reading = Reading { mapping, zone: Zone::UTC, dimensions: DimensionNames::default() };
        let said = |tenant: String| {
            let listing = Value::List(vec![Value::Whole(7); 1_000]);
            let values = values(Value::Whole(60), Value::Whole(2));
            let mut rows = Rows::default();
            reading.push(Columns { tenant: Value::Text(tenant.into()), listing, ..values }, &mut rows);
            let said = match rows.records("click").next() {
                Some(Record::Broken { reason, .. }) => reason.to_owned(),
                Some(Record::Event(_)) | None => String::new(),
            };
            (rows.len(), said)
        };
        let refused = "tenant has 2049 bytes: a row with a page has at most 2048 in other fields".to_owned();
        assert_eq!(said("x".repeat(2_049)), (1, refused));
        assert_eq!(said("x".repeat(2_048)), (1_000, String::new()), "the core says that it is too long");
    }

    fn value() -> impl Strategy<Value = Value<'static>> {
        let texts = ["", "a", "click", "view", "7", "-3", "5.0", "1e400", "NaN", "20170101", "1483271606", "1.5"];
        let times = ["2017-01-01T11:53:26Z", "2017-01-01 11:53:26", "2017-03-26 02:30:00", "yesterday", "9999-01-01"];
        let text = proptest::sample::select([&texts[..], &times].concat());
        let float = proptest::sample::select(vec![0.5, 5.0, -3.0, 1e17, 20_170_101.0, f64::NAN, f64::INFINITY]);
        let whole = proptest::sample::select(vec![0, 1, -1, 20_170_101, 1_483_271_606, i64::MIN, i64::MAX]);
        prop_oneof![
            Just(Value::NoColumn),
            Just(Value::Missing),
            Just(Value::Other("an object")),
            Just(Value::List(Vec::new())),
            Just(Value::List(vec![Value::Float(5.0), Value::Whole(7), Value::Missing])),
            Just(Value::Instant(5)),
            Just(Value::Clock(i64::MAX)),
            Just(Value::Clock(1_490_495_400)),
            text.prop_map(|text| Value::Text(text.into())),
            float.prop_map(Value::Float),
            whole.prop_map(Value::Whole),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

        #[test]
        fn broken_row_is_refused_by_a_replay_of_its_own_text(
            good in 0..7_usize,
            drawn in [value(), value(), value(), value(), value(), value()],
            is_page in proptest::bool::ANY,
            map in proptest::sample::select(vec!["", ",n=n", ",type=k", ",n=n,type=k", ",country=c", ",type=k,country=c"]),
        ) {
            let [mut tenant, mut listing, mut at, mut count, mut event_type, mut country] = drawn;
            // All values but one are good, or none is.
            let goods = [
                (&mut tenant, Value::Whole(330)),
                (&mut listing, if is_page { Value::List(vec![Value::Text("x".into())]) } else { Value::Text("x".into()) }),
                (&mut at, Value::Whole(1_483_271_606)),
                (&mut count, Value::Whole(2)),
                (&mut event_type, Value::Text("click".into())),
                (&mut country, Value::Text("NP".into())),
            ];
            for (number, (value, usual)) in goods.into_iter().enumerate() {
                if good < 6 && number != good {
                    *value = usual;
                }
            }
            let field = if is_page { "listings" } else { "listing" };
            let mapping = Mapping::parse(&format!("tenant=t,{field}=l,at=a{map}"), None).unwrap();
            let schema = with_country();
            let dimensions = schema.dimensions().names;
            let zone = Zone::named("Europe/Berlin").unwrap();
            let values = if mapping.values.is_empty() { Vec::new() } else { vec![country] };
            let reading = Reading { mapping, zone, dimensions };
            let values = Columns { tenant, listing, at, count, event_type, values };
            let mut rows = Rows::default();
            reading.push(values, &mut rows);
            prop_assert!(!rows.is_empty());
            for record in rows.records("") {
                let Record::Broken { reason, text } = record else { continue };
                let types = schema.effective(&EventTypes::new(&["impression", "click"]).unwrap());
                let rules = Rules { now: Now(1_800_000_000_000), types: &types, kept_from: Day(0), seed: 0, tenants: &NoTenants };
                let replayed = replayed(text.as_bytes(), &rules);
                prop_assert!(replayed.is_err(), "{} is replayed from {} as {:?}", reason, text, replayed);
            }
        }
    }

    #[test]
    fn counts_are_whole_numbers_that_the_file_means_exactly() {
        for (count, expected) in
            [(Value::Text("5.0".into()), Some(5)), (Value::Float(1e17), None), (Value::Missing, None)]
        {
            let found = match reading("UTC").row(&values(Value::Whole(0), count)) {
                Row::Event { count, .. } => Some(count),
                Row::Broken { .. } => None,
            };
            assert_eq!(found, expected);
        }
    }
}
