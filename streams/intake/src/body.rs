//! Bodies of requests as events: a JSON object in each line, or a JSON array of objects.
//!
//! A body that is no JSON is refused as a whole. An event that is none becomes a dead letter with its reason, and the others count.

mod json;

use crate::entry::{Event, EventKey, Listings, ValidEvent, parsed};
use crate::event_ids::event_key;
use crate::limits::{EVENT_BYTES_MAX, EVENT_ID_BYTES_MAX, EVENTS_MAX, LISTINGS_MAX, ROWS_MAX};
use json::{At, Elements, EventWithValues, Id};
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
}

/// A body that was read.
#[derive(Debug, Default)]
pub struct Decoded<'a> {
    pub events: Vec<Event<'a>>,
    pub dead_letters: u32,
    /// The first refused events.
    pub named: Vec<Named>,
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
    #[error("the pages have {rows} listings together: at most {ROWS_MAX} in a request")]
    TooManyRows { rows: usize },
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
        decoded.push(line, rules);
    }
    decoded.checked()
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
    elements.first.iter().for_each(|element| decoded.push(element.get().as_bytes(), rules));
    decoded.checked()
}

impl<'a> Decoded<'a> {
    fn push(&mut self, text: &'a [u8], rules: &Rules<'_>) {
        match event(text, rules) {
            Ok(event) => self.events.push(Event::Valid(event)),
            Err(refused) => {
                let reason = refused.to_string();
                self.dead_letters += 1;
                if self.named.len() < NAMED_MAX {
                    let named = Named { event: self.events.len() + 1, code: refused.code(), reason: cut(&reason) };
                    self.named.push(named);
                }
                // A byte more than is kept: the core sees that it is cut.
                let shown = shown(&text[..text.len().min(DEAD_LETTER_TEXT_BYTES_MAX + 1)]);
                self.events.push(Event::Broken { reason: cut(&reason).into(), text: shown.into() });
            }
        }
    }

    fn checked(self) -> Result<Decoded<'a>, BodyError> {
        let rows: usize = self.events.iter().map(Event::rows).sum();
        if rows > ROWS_MAX { Err(BodyError::TooManyRows { rows }) } else { Ok(self) }
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

/// Reads the text of a dead letter as an event. When it arrived is not known any more, so it has to say its time.
///
/// # Errors
/// [`EventRefused`]: it stays a dead letter.
pub fn replayed<'a>(text: &'a [u8], rules: &Rules<'_>) -> Result<ValidEvent<'a>, EventRefused> {
    read(text, rules, None)
}

fn event<'a>(text: &'a [u8], rules: &Rules<'_>) -> Result<ValidEvent<'a>, EventRefused> {
    read(text, rules, Some(rules.now.seconds() as i64))
}

/// `arrived_s` is the time of an event that says none.
fn read<'a>(text: &'a [u8], rules: &Rules<'_>, arrived_s: Option<i64>) -> Result<ValidEvent<'a>, EventRefused> {
    if text.len() > EVENT_BYTES_MAX {
        return Err(EventRefused::Long { bytes: text.len() });
    }
    let EventWithValues { body, values } = json::read(text, rules.types.dimensions())?;
    let listings = listings(body.listing, body.listings)?;
    let tenant = body.tenant.ok_or(EventRefused::Missing("tenant"))?.0;
    let event_type = body.event_type.unwrap_or(Cow::Borrowed(TYPE_DEFAULT));
    let at_s = match body.at {
        None => arrived_s.ok_or(EventRefused::Missing("at"))?,
        Some(At::Number(seconds)) => number_of_seconds(seconds)?,
        Some(At::Text(text)) => text.parse::<UnixTime>().map_err(EventRefused::Time)?.s() as i64,
    };
    let count = body.count.map_or(1, |count| count.0);
    let mut checked_count = 0;
    for listing in listings.as_slice() {
        let raw = RawEvent { tenant: &tenant, listing, at_s, event_type: &event_type, count, values: parsed(&values) };
        let event = raw.check(rules.now, rules.types)?;
        event.check_kept(rules.kept_from)?;
        checked_count = event.count;
    }
    let id = body.event_id.map(|id| key(rules, &tenant, &event_type, &id.0)).transpose()?;
    Ok(ValidEvent { tenant, listings, at_s, event_type, count: checked_count, id, values: values.into() })
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

fn key(rules: &Rules<'_>, tenant: &str, event_type: &str, id: &str) -> Result<EventKey, EventRefused> {
    match id.len() {
        // A rename of the type does not change the key.
        1..=EVENT_ID_BYTES_MAX => Ok(event_key(rules.seed, tenant, rules.types.identity(event_type), id)),
        bytes => Err(EventRefused::EventId { bytes }),
    }
}

#[cfg(test)]
mod tests;
