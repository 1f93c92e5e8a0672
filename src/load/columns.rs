//! The meanings of a file's columns. CSV, JSON lines and Parquet share these rules; each format only says what stands in a [`Cell`].
//!
//! * `counter` is a text or a whole number. A missing value is an error.
//! * `delta` is a whole number: `5`, `5.0` and `5e0` are the same. A file or a JSON object without the column counts 1. A missing value in
//!   a column that is there is an error. 0 counts nothing.
//! * `at` is a number of seconds since 1970, a time with its offset, or a date or time by the clock of `--zone`. A row without a value
//!   happens when it is logged.
//! * `--event-id` names a column of ids: a text of visible ASCII characters or a whole number. A missing value is an error.
//! * Names of columns are compared without regard to the case of ASCII letters. Two columns of one name are an error. Other columns are
//!   ignored.

use super::fault::{A_TEXT, A_WHOLE_NUMBER, ColumnFault, RowFault};
use std::borrow::Cow;
use tidemark_proto::ids::{CounterName, Half};
use tidemark_proto::limits::DELTA_MAX;
use tidemark_proto::load::Row;
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::{UnknownZone, Zone};
use tidemark_server::http::IDEMPOTENCY_BYTES_MAX;
use tidemark_server::names::{is_id, key_bytes};

/// Whole numbers up to here are exact in a float of 64 bits. Larger ones are refused: the file may have meant a neighbour.
pub const DOUBLE_EXACT_MAX: f64 = 9_007_199_254_740_992.0;
/// Whole numbers up to here are exact in a float of 32 bits. Larger ones are refused.
pub const FLOAT_EXACT_MAX: f64 = 16_777_216.0;
/// Characters of a number as text. A longer one is refused.
const NUMBER_CHARS_MAX: usize = 64;
/// Digits that an exponent may add to a number or take from it. No whole number in range needs more.
const EXPONENT_MAX: usize = 64;
/// Characters of a value, or of a list of names, that an error shows.
const SHOWN_CHARS_MAX: usize = 80;
const NAMES_SHOWN_CHARS_MAX: usize = 200;

/// The names of columns, the reading of values, and the text in front of counters. A journal keeps it: a file goes on under the same choice
/// only.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Naming {
    pub counter: String,
    pub delta: String,
    pub at: String,
    /// Of ids, each of which counts once; `None`: rows have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// Stands in front of every counter.
    pub prefix: String,
    /// Takes the place of every counter's namespace.
    pub namespace: Option<String>,
    /// Zone of dates and times that do not say their offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Separates the fields of CSV; a comma, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delimiter: Option<char>,
}

impl Default for Naming {
    fn default() -> Naming {
        Naming {
            counter: USUAL.counter.to_owned(),
            delta: USUAL.delta.to_owned(),
            at: USUAL.at.to_owned(),
            event_id: None,
            prefix: String::new(),
            namespace: None,
            zone: None,
            delimiter: None,
        }
    }
}

/// A value for each column that is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns<T> {
    pub counter: T,
    pub delta: T,
    pub at: T,
    pub event_id: T,
}

/// Names of columns, unless others are given. Ids have none.
const USUAL: Columns<&str> = Columns { counter: "counter", delta: "delta", at: "at", event_id: "" };

/// The event of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub row: Row,
    /// Where [`Naming::event_id`] names a column: with the same id it counts once.
    pub id: Option<String>,
}

/// The content of a column in a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell<'a> {
    /// The file, or this JSON object, has no such column.
    NoColumn,
    /// An empty field or a null.
    Missing,
    Text(Cow<'a, str>),
    Whole(i128),
    /// A float, and the largest whole number of which its type is exact.
    Float {
        value: f64,
        exact_max: f64,
    },
    /// Seconds since 1970.
    Instant(i128),
    /// Seconds since 1970-01-01 by a clock of a zone that the file does not name.
    Clock(i128),
    /// Something that no column takes, such as a list.
    Other(&'static str),
}

/// Why a row is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRow {
    /// The row is broken.
    Broken(RowFault),
    /// A time without a zone, and `--zone` was not given.
    NoZone(String),
}

impl From<RowFault> for NoRow {
    fn from(fault: RowFault) -> NoRow {
        NoRow::Broken(fault)
    }
}

/// Makes rows of cells.
#[derive(Clone, Debug)]
pub struct Rule {
    pub naming: Naming,
    zone: Option<Zone>,
}

impl<T> Columns<T> {
    pub fn map<U>(self, mut change: impl FnMut(T) -> U) -> Columns<U> {
        let Columns { counter, delta, at, event_id } = self;
        Columns { counter: change(counter), delta: change(delta), at: change(at), event_id: change(event_id) }
    }

    /// As [`map`](Columns::map), up to the first error.
    pub fn try_map<U, E>(self, mut change: impl FnMut(T) -> Result<U, E>) -> Result<Columns<U>, E> {
        let Columns { counter, delta, at, event_id } = self;
        Ok(Columns { counter: change(counter)?, delta: change(delta)?, at: change(at)?, event_id: change(event_id)? })
    }

    pub fn as_ref(&self) -> Columns<&T> {
        Columns { counter: &self.counter, delta: &self.delta, at: &self.at, event_id: &self.event_id }
    }

    pub fn as_mut(&mut self) -> Columns<&mut T> {
        let Columns { counter, delta, at, event_id } = self;
        Columns { counter, delta, at, event_id }
    }

    pub fn into_array(self) -> [T; 4] {
        [self.counter, self.delta, self.at, self.event_id]
    }
}

impl Naming {
    /// The name of each column; `None` for a column that is not read.
    pub fn columns(&self) -> Columns<Option<&str>> {
        let event_id = self.event_id.as_deref();
        Columns { counter: Some(&self.counter), delta: Some(&self.delta), at: Some(&self.at), event_id }
    }

    /// Finds the columns among the names that a file has.
    ///
    /// # Errors
    /// A column that is needed, or that has been given a name of its own, is missing; or there are two of it.
    pub fn find<S: AsRef<str>>(&self, names: &[S]) -> Result<Columns<Option<usize>>, ColumnFault> {
        let usual = USUAL;
        let needed = |name: &str| match position(names, name)? {
            Some(at) => Ok(Some(at)),
            None => Err(ColumnFault::Missing { wanted: name.to_owned(), there: shown_names(names) }),
        };
        let optional = |name: &str, usual: &str| if name == usual { position(names, name) } else { needed(name) };
        Ok(Columns {
            counter: needed(&self.counter)?,
            delta: optional(&self.delta, usual.delta)?,
            at: optional(&self.at, usual.at)?,
            event_id: self.event_id.as_deref().map_or(Ok(None), needed)?,
        })
    }
}

fn position<S: AsRef<str>>(names: &[S], wanted: &str) -> Result<Option<usize>, ColumnFault> {
    let mut found = (0..names.len()).filter(|at| names[*at].as_ref().eq_ignore_ascii_case(wanted));
    match (found.next(), found.next()) {
        (first, None) => Ok(first),
        (_, Some(_)) => Err(ColumnFault::Twice { wanted: wanted.to_owned(), there: shown_names(names) }),
    }
}

fn shown_names<S: AsRef<str>>(names: &[S]) -> String {
    let shown = names.iter().map(|name| format!("{:?}", name.as_ref())).collect::<Vec<_>>().join(", ");
    cut(&shown, NAMES_SHOWN_CHARS_MAX).into_owned()
}

fn cut(text: &str, chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

fn shown(text: &str) -> Cow<'_, str> {
    cut(text, SHOWN_CHARS_MAX)
}

impl<'a> Cell<'a> {
    /// A text, which is a missing value where nothing but blanks is in it.
    pub fn text(text: impl Into<Cow<'a, str>>) -> Cell<'a> {
        let text = text.into();
        if text.trim().is_empty() { Cell::Missing } else { Cell::Text(text) }
    }

    pub fn double(value: f64) -> Cell<'a> {
        Cell::Float { value, exact_max: DOUBLE_EXACT_MAX }
    }

    pub fn float(value: f32) -> Cell<'a> {
        Cell::Float { value: value.into(), exact_max: FLOAT_EXACT_MAX }
    }

    /// The text that names something, or the digits of a whole number. `expected` says what is missing.
    fn name(&self, column: &str, expected: &str) -> Result<Cow<'_, str>, RowFault> {
        let column = || column.to_owned();
        match self {
            Cell::NoColumn => Err(RowFault::NoColumn { column: column() }),
            Cell::Missing => Err(RowFault::Empty { column: column(), expected: expected.to_owned() }),
            Cell::Text(text) => Ok(Cow::Borrowed(text)),
            Cell::Whole(whole) => Ok(Cow::Owned(whole.to_string())),
            Cell::Float { value, .. } => Err(RowFault::Float { column: column(), value: value.to_string() }),
            Cell::Instant(_) | Cell::Clock(_) => {
                Err(RowFault::Kind { column: column(), what: "a time", expected: A_TEXT })
            }
            Cell::Other(what) => Err(RowFault::Kind { column: column(), what, expected: A_TEXT }),
        }
    }

    /// The whole number that a cell is; of a text, if it is one.
    fn whole(&self, column: &str) -> Result<i128, RowFault> {
        let column = || column.to_owned();
        let not_whole = |value: String| RowFault::NotWhole { column: column(), value };
        match self {
            Cell::Text(text) => whole_of_text(text.trim()).ok_or_else(|| not_whole(format!("{:?}", shown(text)))),
            Cell::Whole(number) => Ok(*number),
            Cell::Float { value, exact_max } => {
                if !value.is_finite() || value.fract() != 0.0 {
                    return Err(not_whole(value.to_string()));
                }
                if value.abs() > *exact_max {
                    let value = value.to_string();
                    let exact_max = exact_max.to_string();
                    return Err(RowFault::Inexact { column: column(), value, exact_max });
                }
                Ok(*value as i128)
            }
            Cell::NoColumn | Cell::Missing => Err(RowFault::NoValue { column: column() }),
            Cell::Instant(_) | Cell::Clock(_) => {
                Err(RowFault::Kind { column: column(), what: "a time", expected: A_WHOLE_NUMBER })
            }
            Cell::Other(what) => Err(RowFault::Kind { column: column(), what, expected: A_WHOLE_NUMBER }),
        }
    }
}

/// A whole number, also with a fraction of zeros or an exponent, as pandas and DuckDB write it: `5`, `-3`, `5.0`, `1.5e3`.
fn whole_of_text(text: &str) -> Option<i128> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    if text.len() > NUMBER_CHARS_MAX {
        return None;
    }
    let (is_negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i16>().ok()?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa
        .split_once('.')
        .map_or(Some((mantissa, "")), |(whole, fraction)| (!fraction.is_empty()).then_some((whole, fraction)))?;
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let shift = usize::from(exponent.unsigned_abs());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) || shift > EXPONENT_MAX {
        return None;
    }
    let point = whole.len();
    let digits = format!("{whole}{fraction}");
    let (kept, rest) = match exponent >= 0 {
        true => {
            let zeros = "0".repeat((point + shift).saturating_sub(digits.len()));
            let all = digits + &zeros;
            let (kept, rest) = all.split_at(point + shift);
            (kept.to_owned(), rest.to_owned())
        }
        false => {
            let (kept, rest) = digits.split_at(point.saturating_sub(shift));
            (format!("0{kept}"), rest.to_owned())
        }
    };
    let number: i128 = rest.bytes().all(|byte| byte == b'0').then(|| kept.parse().ok()).flatten()?;
    Some(if is_negative { -number } else { number })
}

impl Rule {
    pub fn new(naming: &Naming) -> Result<Rule, UnknownZone> {
        Ok(Rule { zone: naming.zone.as_deref().map(Zone::named).transpose()?, naming: naming.clone() })
    }

    pub fn has_zone(&self) -> bool {
        self.zone.is_some()
    }

    /// The row that cells say; `None` where its delta is 0, of which nothing is counted.
    ///
    /// # Errors
    /// [`NoRow`].
    pub fn row(&self, cells: &Columns<Cell<'_>>) -> Result<Option<Event>, NoRow> {
        let counter = self.counter(&cells.counter.name(&self.naming.counter, "NAMESPACE/KEY")?)?;
        let delta = match &cells.delta {
            Cell::NoColumn => 1,
            delta @ (Cell::Missing
            | Cell::Text(_)
            | Cell::Whole(_)
            | Cell::Float { .. }
            | Cell::Instant(_)
            | Cell::Clock(_)
            | Cell::Other(_)) => delta.whole(&self.naming.delta)?,
        };
        let at = self.time(&cells.at)?;
        let id = self.naming.event_id.as_deref().map(|name| id_of(name, &cells.event_id)).transpose()?;
        if delta == 0 {
            return Ok(None);
        }
        let half = if delta < 0 { Half::Down } else { Half::Up };
        let weight = u64::try_from(delta.unsigned_abs()).ok().filter(|weight| *weight <= DELTA_MAX);
        let delta = weight.ok_or_else(|| RowFault::Delta { column: self.naming.delta.clone(), delta })?;
        Ok(Some(Event { row: Row { counter, half, delta, at }, id }))
    }

    fn counter(&self, text: &str) -> Result<CounterName, RowFault> {
        let prefixed;
        let text = match self.naming.prefix.as_str() {
            "" => text,
            prefix => {
                prefixed = format!("{prefix}{text}");
                &prefixed
            }
        };
        let no_counter = || RowFault::NoCounter { text: shown(text).into_owned() };
        let (namespace, key) = text.split_once('/').ok_or_else(no_counter)?;
        let namespace = self.naming.namespace.as_deref().unwrap_or(namespace);
        Ok(match key.contains('%') {
            true => CounterName::new(namespace, &key_bytes(key))?,
            false => CounterName::new(namespace, key.as_bytes())?,
        })
    }

    fn time(&self, cell: &Cell<'_>) -> Result<Option<UnixTime>, NoRow> {
        match cell {
            Cell::NoColumn | Cell::Missing => Ok(None),
            Cell::Text(text) => self.time_of_text(text.trim()).map(Some),
            Cell::Clock(seconds) => match &self.zone {
                Some(zone) => {
                    let time = i64::try_from(*seconds).ok().and_then(|seconds| zone.at_clock(seconds));
                    let out = || RowFault::Clock { column: self.naming.at.clone(), seconds: *seconds };
                    Ok(Some(time.ok_or_else(out)?))
                }
                None => Err(NoRow::NoZone(format!("column {:?}", self.naming.at))),
            },
            Cell::Instant(seconds) => seconds_since_1970(*seconds).map(Some),
            Cell::Whole(_) | Cell::Float { .. } | Cell::Other(_) => {
                number_of_seconds(cell.whole(&self.naming.at)?).map(Some)
            }
        }
    }

    fn time_of_text(&self, text: &str) -> Result<UnixTime, NoRow> {
        let error = match with_minutes_of_offset(text).parse::<UnixTime>() {
            Ok(at) => return Ok(at),
            Err(error) => RowFault::Time(error),
        };
        if let Some(seconds) = whole_of_text(text) {
            return number_of_seconds(seconds);
        }
        // BigQuery writes UTC so.
        let by_clock = |zone: &Zone, text: &str| zone.time(without_fraction(text)).ok();
        if let Some(at) = text.strip_suffix(" UTC").and_then(|text| by_clock(&Zone::UTC, text)) {
            return Ok(at);
        }
        match &self.zone {
            Some(zone) => by_clock(zone, text).ok_or_else(|| error.into()),
            None if by_clock(&Zone::UTC, text).is_some() => Err(NoRow::NoZone(format!("time {:?}", shown(text)))),
            None => Err(error.into()),
        }
    }
}

/// The id of a row, as HTTP takes it.
fn id_of(column: &str, cell: &Cell<'_>) -> Result<String, RowFault> {
    let allowed = format!("1 to {IDEMPOTENCY_BYTES_MAX} visible ASCII characters");
    let id = cell.name(column, &allowed)?;
    if is_id(&id, IDEMPOTENCY_BYTES_MAX) {
        return Ok(id.into_owned());
    }
    let column = column.to_owned();
    let shown = shown(&id).into_owned();
    match id.len() > IDEMPOTENCY_BYTES_MAX {
        true => Err(RowFault::IdTooLong { column, shown, bytes: id.len() }),
        false => Err(RowFault::Id { column, shown }),
    }
}

/// PostgreSQL and DuckDB write the offset of a time in whole hours without its minutes: `+00`.
fn with_minutes_of_offset(text: &str) -> Cow<'_, str> {
    match text.as_bytes() {
        [time @ .., b'+' | b'-', tens, ones]
            if time.contains(&b':') && tens.is_ascii_digit() && ones.is_ascii_digit() =>
        {
            Cow::Owned(format!("{text}:00"))
        }
        _ => Cow::Borrowed(text),
    }
}

/// A number that a person wrote. A number that reads as a date is refused.
fn number_of_seconds(seconds: i128) -> Result<UnixTime, NoRow> {
    Ok(UnixTime::of_number(seconds).map_err(RowFault::Time)?)
}

fn seconds_since_1970(seconds: i128) -> Result<UnixTime, NoRow> {
    let seconds = i64::try_from(seconds).map_err(|_| RowFault::Seconds { seconds })?;
    Ok(UnixTime::from_s(seconds).map_err(RowFault::Range)?)
}

/// A date and a time, without the digits of its second's fraction, which are cut off as those of every time.
fn without_fraction(text: &str) -> &str {
    match text.split_once('.') {
        Some((begin, fraction))
            if begin.contains(':') && !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            begin
        }
        _ => text,
    }
}
