//! Bodies of requests as events: a JSON object in each line, or a JSON array of objects.
//!
//! A body that is no JSON is refused as a whole. An event that is none becomes a dead letter with its reason, and the others count.

pub mod entries;
mod json;
mod resolve;

use crate::entry::{Event, EventKey, Listings, ValidEvent, parsed};
use crate::event_ids::event_key;
use crate::limits::{EVENT_BYTES_MAX, EVENT_ID_BYTES_MAX, EVENTS_MAX, LISTINGS_MAX, ROWS_MAX};
use crate::listings::{ListingUnknown, LookupFailed, Tenants};
use json::{At, Elements, EventWithValues, Id};
pub use json::{is_event_field, tenant_named};
use std::borrow::Cow;
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::NoTime;
use tidemark_streams_core::event::{EventError, EventTypes, RawEvent};
use tidemark_streams_core::limits::{DEAD_LETTER_REASON_BYTES_MAX, DEAD_LETTER_TEXT_BYTES_MAX};
use tidemark_streams_core::names::CUT;
use tidemark_streams_core::time::{Day, Now};
use tidemark_streams_core::values::DimensionError;

/// The type of events that name none, as of rows of files.
pub const TYPE_DEFAULT: &str = "impression";
/// Refused events that an answer names.
const NAMED_MAX: usize = 20;

/// By which rules events are read.
#[derive(Clone, Copy)]
pub struct Rules<'r> {
    /// When the request was received: the time of events that name none.
    pub now: Now,
    pub types: &'r EventTypes,
    /// The first day that is kept. An event of an earlier one becomes a dead letter.
    pub kept_from: Day,
    /// Of the hashes of event ids.
    pub seed: u64,
    /// The tenants of events that name none.
    pub tenants: &'r dyn Tenants,
}

/// A body that was read.
#[derive(Debug, Default)]
pub struct Decoded<'a> {
    pub events: Vec<Event<'a>>,
    pub dead_letters: u32,
    /// The first refused events.
    pub named: Vec<Named>,
    rows: usize,
}

/// A refused event of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its number among the events of the request, from 1 on.
    pub event: usize,
    pub code: &'static str,
    pub reason: String,
}

/// Why a body is refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("the body has no events: send a JSON object in each line, or a JSON array")]
    Empty,
    #[error("the body is no JSON: it begins with {0:?}; send a JSON object in each line, or a JSON array")]
    NoJson(String),
    #[error("the body is no JSON array: {0}")]
    Array(String),
    #[error("{events} events: at most {EVENTS_MAX} in a request")]
    TooManyEvents { events: usize },
    #[error("the pages have {rows} listings together, or more: at most {ROWS_MAX} in a request")]
    TooManyRows { rows: usize },
    #[error("the tenants of listings split the pages into {events} events, or more: at most {EVENTS_MAX} in a request")]
    TooManyParts { events: usize },
    #[error(transparent)]
    Lookup(#[from] LookupFailed),
}

/// Why an event is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventRefused {
    #[error("no JSON object: {0}")]
    Json(String),
    #[error("the event has {bytes} bytes: at most {EVENT_BYTES_MAX}")]
    Long { bytes: usize },
    #[error("unknown field {name:?}; known fields: {known}")]
    UnknownField { name: String, known: String },
    #[error("{field} is {found}: {expected} is expected")]
    Kind { field: String, found: String, expected: &'static str },
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("listing and listings are both given: leave one out")]
    TwoListings,
    #[error("{listings} listings: 1 to {LISTINGS_MAX} in a page")]
    Listings { listings: usize },
    #[error("event_id has {bytes} bytes: 1 to {EVENT_ID_BYTES_MAX}")]
    EventId { bytes: usize },
    #[error("at: {0}")]
    Time(NoTime),
    #[error(transparent)]
    Event(#[from] EventError),
    #[error(transparent)]
    ListingUnknown(#[from] ListingUnknown),
    #[error(
        "listing_tenants: the listings of the page belong to several tenants, and an event_id names one event of one tenant: leave event_id \
         out, or send a page for each tenant"
    )]
    ListingTenants { listings: usize },
}

/// Why an event is not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Refused(#[from] EventRefused),
    #[error(transparent)]
    Lookup(#[from] LookupFailed),
}

/// An event that was read.
enum Read<'a> {
    Whole(ValidEvent<'a>),
    /// A page without a tenant, split by the tenants of its listings.
    Split(Split<'a>),
}

#[derive(Default)]
struct Split<'a> {
    /// An event for each tenant.
    events: Vec<ValidEvent<'a>>,
    unknown: Vec<Unknown>,
}

/// Listings that the catalogue does not know, as a dead letter of their own.
struct Unknown {
    refused: ListingUnknown,
    text: String,
    /// The number of listings that were looked up.
    listings: usize,
}

impl EventRefused {
    /// A code that stays the same when texts change.
    pub fn code(&self) -> &'static str {
        match self {
            EventRefused::Json(_) => "event_json",
            EventRefused::Long { .. } => "event_too_long",
            EventRefused::UnknownField { .. } => "event_field",
            EventRefused::Kind { .. } => "event_value",
            EventRefused::Missing(_) => "event_incomplete",
            EventRefused::TwoListings | EventRefused::Listings { .. } => "event_listings",
            EventRefused::EventId { .. } => "event_id",
            EventRefused::Time(_) => "event_time",
            EventRefused::ListingUnknown(_) => "listing_unknown",
            EventRefused::ListingTenants { .. } => "listing_tenants",
            EventRefused::Event(error) => match error {
                EventError::NoTenant | EventError::LongTenant { .. } => "event_tenant",
                EventError::NoListing | EventError::LongListing { .. } => "event_listing",
                EventError::ControlCharacter { .. } => "event_characters",
                EventError::UnknownType { .. } => "event_type",
                EventError::DeletedType { .. } => "event_type_deleted",
                EventError::NegativeCount { .. } | EventError::LargeCount { .. } => "event_count",
                EventError::BeforeEpoch { .. } | EventError::Future { .. } | EventError::TooLate { .. } => "event_time",
                EventError::NotKept { .. } => "event_not_kept",
                EventError::OtherDimension(_) => "event_dimension",
                EventError::Dimension(error) => match error {
                    DimensionError::ControlCharacter { .. } => "event_characters",
                    DimensionError::Unknown { .. } | DimensionError::Long { .. } => "event_dimension",
                    DimensionError::Twice { .. } => "event_dimension",
                },
            },
        }
    }
}

impl EventRefused {
    /// The reason of a dead letter: it begins with the code.
    pub fn reason(&self) -> String {
        let code = self.code();
        let text = self.to_string();
        let is_named = text.strip_prefix(code).is_some_and(|rest| rest.starts_with(": "));
        if is_named { text } else { format!("{code}: {text}") }
    }
}

/// Reads a body.
///
/// # Errors
/// [`BodyError`]: nothing of it counts.
pub fn decode<'a>(body: &'a [u8], rules: &Rules<'_>) -> Result<Decoded<'a>, BodyError> {
    match body.trim_ascii_start().first() {
        None => Err(BodyError::Empty),
        Some(b'[') => array(body, rules),
        Some(b'{') => lines(body, rules),
        Some(_) => {
            let begin = body.trim_ascii_start();
            Err(BodyError::NoJson(String::from_utf8_lossy(&begin[..begin.len().min(20)]).into_owned()))
        }
    }
}

fn lines<'a>(body: &'a [u8], rules: &Rules<'_>) -> Result<Decoded<'a>, BodyError> {
    let lines = || body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let mut decoded = Decoded::default();
    for (at, line) in lines().enumerate() {
        if at == EVENTS_MAX {
            return Err(BodyError::TooManyEvents { events: lines().count() });
        }
        decoded.push(at + 1, line, rules)?;
    }
    Ok(decoded)
}

fn array<'a>(body: &'a [u8], rules: &Rules<'_>) -> Result<Decoded<'a>, BodyError> {
    let elements: Elements<'a> = serde_json::from_slice(body).map_err(|error| BodyError::Array(error.to_string()))?;
    if elements.count > EVENTS_MAX {
        return Err(BodyError::TooManyEvents { events: elements.count });
    }
    if elements.count == 0 {
        return Err(BodyError::Empty);
    }
    let mut decoded = Decoded::default();
    for (at, element) in elements.first.iter().enumerate() {
        decoded.push(at + 1, element.get().as_bytes(), rules)?;
    }
    Ok(decoded)
}

impl<'a> Decoded<'a> {
    /// Adds the event of a number in the request.
    fn push(&mut self, number: usize, text: &'a [u8], rules: &Rules<'_>) -> Result<(), BodyError> {
        match event(text, rules) {
            Ok(Read::Whole(event)) => self.accept(event),
            Ok(Read::Split(Split { events, unknown })) => {
                events.into_iter().for_each(|event| self.accept(event));
                for Unknown { refused, mut text, listings } in unknown {
                    text.truncate(text.ceil_char_boundary(DEAD_LETTER_TEXT_BYTES_MAX + 1));
                    self.refuse(number, &refused.into(), text);
                    self.rows += listings;
                }
            }
            Err(ReadError::Refused(refused)) => {
                // A byte more than is kept: the core sees that it is cut.
                self.refuse(number, &refused, shown(&text[..text.len().min(DEAD_LETTER_TEXT_BYTES_MAX + 1)]));
                self.rows += if let EventRefused::ListingTenants { listings } = refused { listings } else { 1 };
            }
            Err(ReadError::Lookup(failed)) => return Err(failed.into()),
        }
        // Each listing of the rest may have to be looked up, and makes an event of its own.
        if self.rows > ROWS_MAX {
            return Err(BodyError::TooManyRows { rows: self.rows });
        }
        match self.events.len() {
            events if events > EVENTS_MAX => Err(BodyError::TooManyParts { events }),
            _ => Ok(()),
        }
    }

    fn accept(&mut self, event: ValidEvent<'a>) {
        let event = Event::Valid(event);
        self.rows += event.rows();
        self.events.push(event);
    }

    fn refuse(&mut self, event: usize, refused: &EventRefused, text: String) {
        self.dead_letters += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(Named { event, code: refused.code(), reason: cut(&refused.to_string()) });
        }
        self.events.push(Event::Broken { reason: cut(&refused.reason()).into(), text: text.into() });
    }
}

/// Bytes as a text. Where bytes had to be replaced it is not the record, so it is marked as cut: a replay needs another text.
fn shown(bytes: &[u8]) -> String {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => text.to_owned(),
        Cow::Owned(replaced) => format!("{replaced}{CUT}"),
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(DEAD_LETTER_REASON_BYTES_MAX)].to_owned()
}

/// Reads the text of a dead letter as an event; a page without a tenant gives one for each tenant. When it arrived is not known any more,
/// so it has to say its time.
///
/// # Errors
/// [`ReadError::Refused`]: it stays a dead letter.
pub fn replayed<'a>(text: &'a [u8], rules: &Rules<'_>) -> Result<Vec<ValidEvent<'a>>, ReadError> {
    match read(text, rules, None)? {
        Read::Whole(event) => Ok(vec![event]),
        Read::Split(Split { events, unknown }) => match unknown.into_iter().next() {
            Some(Unknown { refused, .. }) => Err(EventRefused::from(refused).into()),
            None => Ok(events),
        },
    }
}

fn event<'a>(text: &'a [u8], rules: &Rules<'_>) -> Result<Read<'a>, ReadError> {
    read(text, rules, Some(rules.now.seconds() as i64))
}

/// The tenant by which the fields of an event without a tenant are checked before its listings are looked up.
const NO_TENANT: &str = "-";

/// `arrived_s` is the time of an event that says none.
fn read<'a>(text: &'a [u8], rules: &Rules<'_>, arrived_s: Option<i64>) -> Result<Read<'a>, ReadError> {
    let Checked { tenant, event_id, event } = checked(text, rules, arrived_s)?;
    let Some(tenant) = tenant else { return resolve::by_tenant(event, event_id, rules) };
    let id = event_id.map(|id| key(rules, &tenant, &event.event_type, &id));
    Ok(Read::Whole(ValidEvent { tenant, id, ..event }))
}

/// An event with valid fields. It has no tenant and no id yet.
struct Checked<'a> {
    tenant: Option<Cow<'a, str>>,
    event_id: Option<Cow<'a, str>>,
    event: ValidEvent<'a>,
}

fn checked<'a>(text: &'a [u8], rules: &Rules<'_>, arrived_s: Option<i64>) -> Result<Checked<'a>, EventRefused> {
    if text.len() > EVENT_BYTES_MAX {
        return Err(EventRefused::Long { bytes: text.len() });
    }
    let EventWithValues { body, values } = json::read(text, rules.types.dimensions())?;
    let listings = listings(body.listing, body.listings)?;
    let tenant = body.tenant.map(|tenant| tenant.0);
    let event_type = body.event_type.unwrap_or(Cow::Borrowed(TYPE_DEFAULT));
    let at_s = match body.at {
        None => arrived_s.ok_or(EventRefused::Missing("at"))?,
        Some(At::Number(seconds)) => number_of_seconds(seconds)?,
        Some(At::Text(text)) => text.parse::<UnixTime>().map_err(EventRefused::Time)?.s() as i64,
    };
    let count = body.count.map_or(1, |count| count.0);
    let mut checked_count = 0;
    let named = tenant.as_deref().unwrap_or(NO_TENANT);
    for listing in listings.as_slice() {
        let values = parsed(&values);
        let raw = RawEvent { tenant: named, listing, at_s, event_type: &event_type, count, values };
        let event = raw.check(rules.now, rules.types)?;
        event.check_kept(rules.kept_from)?;
        checked_count = event.count;
    }
    let event_id = body.event_id.map(|id| id.0);
    if let Some(id) = &event_id
        && !(1..=EVENT_ID_BYTES_MAX).contains(&id.len())
    {
        return Err(EventRefused::EventId { bytes: id.len() });
    }
    let values = values.into();
    let tenant_later = Cow::Borrowed("");
    let event = ValidEvent { tenant: tenant_later, listings, at_s, event_type, count: checked_count, id: None, values };
    Ok(Checked { tenant, event_id, event })
}

fn listings<'a>(one: Option<Id<'a>>, page: Option<Vec<Id<'a>>>) -> Result<Listings<'a>, EventRefused> {
    match (one, page) {
        (Some(listing), None) => Ok(Listings::One(listing.0)),
        (None, Some(page)) if (1..=LISTINGS_MAX).contains(&page.len()) => {
            Ok(Listings::Page(page.into_iter().map(|listing| listing.0).collect()))
        }
        (None, Some(page)) => Err(EventRefused::Listings { listings: page.len() }),
        (Some(_), Some(_)) => Err(EventRefused::TwoListings),
        (None, None) => Err(EventRefused::Missing("listing")),
    }
}

/// Seconds since 1970. A number that reads as a date is refused: its writer means the date.
fn number_of_seconds(seconds: i64) -> Result<i64, EventRefused> {
    match UnixTime::of_number(seconds.into()) {
        Err(error @ NoTime::Ambiguous { .. }) => Err(EventRefused::Time(error)),
        // The core names what is out of range.
        Err(NoTime::Range(_) | NoTime::Text(_)) | Ok(_) => Ok(seconds),
    }
}

fn key(rules: &Rules<'_>, tenant: &str, event_type: &str, id: &str) -> EventKey {
    // A rename of the type does not change the key.
    event_key(rules.seed, tenant, rules.types.identity(event_type), id)
}

#[cfg(test)]
mod tests;
