//! Events: what a row of a source says, and why a row is refused.

use crate::limits::{
    EVENT_COUNT_MAX, EVENT_TYPE_BYTES_MAX, EVENT_TYPES_MAX, FUTURE_MAX_S, LISTING_BYTES_MAX, TENANT_BYTES_MAX,
};
use crate::teeth::{Bug, bites};
use crate::time::{DAY_S, Day, Now, Quarter};
use crate::values::{DimensionError, DimensionNames, DimensionNumber, Values, cut};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A row as a source says it, before it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEvent<'a> {
    pub tenant: &'a str,
    pub listing: &'a str,
    /// Seconds since 1970.
    pub at_s: i64,
    /// The name of its type; the [`EventTypes`] contain it.
    pub event_type: &'a str,
    /// How many times the event happened.
    pub count: i64,
    /// The values of dimensions.
    pub values: Values<'a>,
}

/// A row that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    pub tenant: &'a str,
    pub listing: &'a str,
    pub quarter: Quarter,
    pub event_type: EventType,
    pub count: u32,
    pub values: Values<'a>,
}

/// An event type: its place among the [`EventTypes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventType(pub(crate) u8);

/// The event types that are accepted, in the order in which they were configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventTypes {
    names: Vec<String>,
    /// The meanings of changed names, from the earliest rows of the intake's log to the present.
    eras: Arc<[Meanings]>,
    /// The identity of each name whose identity is another text.
    identities: Arc<BTreeMap<String, String>>,
    dimensions: Arc<TypeDimensions>,
}

/// The dimensions of event types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TypeDimensions {
    pub names: DimensionNames,
    /// For each type, by its place.
    pub of_types: Vec<ValuesMax>,
}

/// The dimensions of a type, and how many values each may have for a tenant in a flush.
pub(crate) type ValuesMax = BTreeMap<DimensionNumber, u32>;

/// The meanings of names in rows of the intake's log before a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meanings {
    pub before_row: u64,
    /// `None`: the name is not configured.
    pub meanings: BTreeMap<String, Option<Meaning>>,
}

/// The point in time whose names of event types decide about a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// The present names: for rows of files, replayed dead letters, and events that arrive over HTTP.
    AsNow,
    /// The names at the time when the intake's log took this row.
    AsOfLogRow(u64),
}

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Type(EventType),
    Deleted,
}

/// Why event types are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventTypesError {
    #[error("no event type is configured: name at least one, such as impression")]
    None,
    #[error("{0} event types are configured: at most {EVENT_TYPES_MAX}")]
    TooMany(usize),
    #[error(
        "event type {0:?}: 1 to {EVENT_TYPE_BYTES_MAX} lower-case letters, digits, `_` or `-`, beginning with a letter"
    )]
    Name(String),
    #[error("event type {0:?} is configured twice")]
    Twice(String),
}

/// Why a row is refused. It becomes a dead letter with this reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    #[error("tenant is empty")]
    NoTenant,
    #[error("listing is empty")]
    NoListing,
    #[error("tenant has {bytes} bytes: at most {TENANT_BYTES_MAX}")]
    LongTenant { bytes: usize },
    #[error("listing has {bytes} bytes: at most {LISTING_BYTES_MAX}")]
    LongListing { bytes: usize },
    #[error("{field} {shown:?} has a control character")]
    ControlCharacter { field: &'static str, shown: String },
    #[error("event type {shown:?} is not configured; configured are: {known}")]
    UnknownType { shown: String, known: String },
    #[error("event type {shown:?} was deleted")]
    DeletedType { shown: String },
    #[error("count {count} is negative: at least 0")]
    NegativeCount { count: i64 },
    #[error("count {count} is too large: at most {EVENT_COUNT_MAX}")]
    LargeCount { count: i64 },
    #[error("time {at_s} s is before 1970")]
    BeforeEpoch { at_s: i64 },
    #[error("time {at_s} s is {ahead_s} s ahead of now: at most {FUTURE_MAX_S} s; are these milliseconds?")]
    Future { at_s: i64, ahead_s: u64 },
    #[error("time {at_s} s is before the kept range, which begins at {kept_from_s} s")]
    NotKept { at_s: i64, kept_from_s: u64 },
    #[error("time {at_s} s is behind the last time that a row may have")]
    TooLate { at_s: i64 },
    #[error(transparent)]
    Dimension(#[from] DimensionError),
    #[error(transparent)]
    OtherDimension(#[from] Box<OtherDimension>),
}

/// An event has a value for a dimension that its type does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event type {event_type} has no dimension {dimension} (value {value:?}); its dimensions: {known}")]
pub struct OtherDimension {
    pub event_type: String,
    pub dimension: String,
    pub value: String,
    pub known: String,
}

impl EventTypes {
    /// # Errors
    /// [`EventTypesError`].
    pub fn new<S: AsRef<str>>(names: &[S]) -> Result<EventTypes, EventTypesError> {
        if names.is_empty() {
            return Err(EventTypesError::None);
        }
        if names.len() > EVENT_TYPES_MAX {
            return Err(EventTypesError::TooMany(names.len()));
        }
        let mut types: Vec<String> = Vec::with_capacity(names.len());
        for name in names.iter().map(AsRef::as_ref) {
            if !is_event_type_name(name) {
                return Err(EventTypesError::Name(cut(name)));
            }
            if types.iter().any(|known| known == name) {
                return Err(EventTypesError::Twice(name.to_owned()));
            }
            types.push(name.to_owned());
        }
        Ok(EventTypes { names: types, ..EventTypes::none() })
    }

    /// No types, for an owner that counts no events.
    pub fn none() -> EventTypes {
        EventTypes { names: Vec::new(), eras: Arc::default(), identities: Arc::default(), dimensions: Arc::default() }
    }

    /// Types whose names were changed.
    pub(crate) fn renamed(
        names: Vec<String>,
        eras: Vec<Meanings>,
        identities: BTreeMap<String, String>,
        dimensions: TypeDimensions,
    ) -> EventTypes {
        EventTypes { names, eras: eras.into(), identities: Arc::new(identities), dimensions: Arc::new(dimensions) }
    }

    /// The names of all dimensions of the directory.
    pub fn dimensions(&self) -> &DimensionNames {
        &self.dimensions.names
    }

    /// How many values of a dimension a tenant may have in a flush. `None`: the type has no such dimension.
    pub(crate) fn values_max(&self, event_type: EventType, dimension: DimensionNumber) -> Option<u32> {
        self.dimensions.of_types.get(usize::from(event_type.0))?.get(&dimension).copied()
    }

    fn check_values(&self, event_type: EventType, values: Values<'_>) -> Result<(), EventError> {
        let names = self.dimensions();
        let is_other = |(dimension, _): &(DimensionNumber, &str)| self.values_max(event_type, *dimension).is_none();
        let Some((dimension, value)) = values.iter().find(is_other) else { return Ok(()) };
        Err(EventError::from(Box::new(OtherDimension {
            event_type: self.name(event_type).to_owned(),
            dimension: names.name(dimension).to_owned(),
            value: cut(value),
            known: self.dimensions_of(event_type).shown(),
        })))
    }

    /// The names of the dimensions of a type.
    pub fn dimensions_of(&self, event_type: EventType) -> DimensionNames {
        let of_type = self.dimensions.of_types.get(usize::from(event_type.0));
        let mut names = DimensionNames::default();
        for dimension in of_type.into_iter().flat_map(BTreeMap::keys) {
            names.push(self.dimensions().name(*dimension).to_owned());
        }
        names
    }

    /// The meaning of an event's name. In a row of the log, a name keeps the meaning from the time when the log took the row.
    fn meaning(&self, name: &str, judged: Judged) -> Option<Meaning> {
        let era = match judged {
            Judged::AsNow => None,
            Judged::AsOfLogRow(_) if bites(Bug::LogRowsJudgedAsNow) => None,
            Judged::AsOfLogRow(row) => self.eras.iter().find(|era| row < era.before_row),
        };
        let era = era.or(self.eras.last());
        if let Some(meaning) = era.and_then(|era| era.meanings.get(name)) {
            return *meaning;
        }
        self.names.iter().position(|known| known == name).map(Meaning::of_position)
    }

    /// The type that a name stands for now.
    pub fn find(&self, name: &str) -> Option<EventType> {
        match self.meaning(name, Judged::AsNow)? {
            Meaning::Type(event_type) => Some(event_type),
            Meaning::Deleted => None,
        }
    }

    pub fn name(&self, event_type: EventType) -> &str {
        self.names.get(usize::from(event_type.0)).map_or("", String::as_str)
    }

    /// The present name of a type that is given by its present or an earlier name.
    pub fn present<'a>(&'a self, name: &'a str) -> &'a str {
        self.find(name).map_or(name, |event_type| self.name(event_type))
    }

    /// The identity of a type. Ids of events derive from it, so a rename does not change them.
    pub fn identity<'a>(&'a self, name: &'a str) -> &'a str {
        self.identities.get(name).map_or(name, String::as_str)
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }
}

impl Meaning {
    pub(crate) fn of_position(at: usize) -> Meaning {
        Meaning::Type(EventType(at as u8))
    }
}

/// Whether a text may name an event type.
pub fn is_event_type_name(name: &str) -> bool {
    let is_short = (1..=EVENT_TYPE_BYTES_MAX).contains(&name.len());
    let is_sign = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    is_short && name.bytes().all(is_sign) && name.as_bytes()[0].is_ascii_lowercase()
}

impl Event<'_> {
    /// Refuses an event of a day that is not kept.
    ///
    /// # Errors
    /// [`EventError::NotKept`].
    pub fn check_kept(&self, kept_from: Day) -> Result<(), EventError> {
        if self.quarter.hour().day() >= kept_from || bites(Bug::ExpiredRowsComeBack) {
            return Ok(());
        }
        let kept_from_s = u64::from(kept_from.0) * DAY_S;
        Err(EventError::NotKept { at_s: self.quarter.start_s() as i64, kept_from_s })
    }
}

impl<'a> RawEvent<'a> {
    /// # Errors
    /// [`EventError`]: the row becomes a dead letter.
    pub fn check(&self, now: Now, types: &EventTypes) -> Result<Event<'a>, EventError> {
        self.check_judged(now, Judged::AsNow, types)
    }

    /// The same, by the names that `judged` selects.
    ///
    /// # Errors
    /// As of [`RawEvent::check`].
    pub fn check_judged(&self, now: Now, judged: Judged, types: &EventTypes) -> Result<Event<'a>, EventError> {
        check_tenant(self.tenant)?;
        check_listing(self.listing)?;
        let event_type = match types.meaning(self.event_type, judged) {
            Some(Meaning::Type(event_type)) => event_type,
            Some(Meaning::Deleted) => return Err(EventError::DeletedType { shown: cut(self.event_type) }),
            None => {
                let known = types.names.join(", ");
                return Err(EventError::UnknownType { shown: cut(self.event_type), known });
            }
        };
        if !self.values.is_empty() {
            types.check_values(event_type, self.values)?;
        }
        let at_s = self.at_s;
        let count = self.count;
        if count < 0 {
            return Err(EventError::NegativeCount { count });
        }
        let small = u32::try_from(count).ok().filter(|count| *count <= EVENT_COUNT_MAX);
        let count = small.ok_or(EventError::LargeCount { count })?;
        let seconds = u64::try_from(at_s).map_err(|_| EventError::BeforeEpoch { at_s })?;
        let ahead_s = seconds.saturating_sub(now.seconds());
        if ahead_s > FUTURE_MAX_S {
            return Err(EventError::Future { at_s, ahead_s });
        }
        let quarter = Quarter::of_s(seconds).ok_or(EventError::TooLate { at_s })?;
        Ok(Event { tenant: self.tenant, listing: self.listing, quarter, event_type, count, values: self.values })
    }
}

/// Checks a tenant's id, as an event or a stored row has it.
///
/// # Errors
/// [`EventError`].
pub fn check_tenant(id: &str) -> Result<(), EventError> {
    match id.len() {
        0 => Err(EventError::NoTenant),
        bytes if bytes > TENANT_BYTES_MAX => Err(EventError::LongTenant { bytes }),
        _ => check_characters("tenant", id),
    }
}

/// Checks a listing's id.
///
/// # Errors
/// [`EventError`].
pub fn check_listing(id: &str) -> Result<(), EventError> {
    match id.len() {
        0 => Err(EventError::NoListing),
        bytes if bytes > LISTING_BYTES_MAX => Err(EventError::LongListing { bytes }),
        _ => check_characters("listing", id),
    }
}

fn check_characters(field: &'static str, id: &str) -> Result<(), EventError> {
    match is_suspect(id.as_bytes()) && id.chars().any(char::is_control) {
        true => Err(EventError::ControlCharacter { field, shown: cut(id) }),
        false => Ok(()),
    }
}

/// Whether a text may have a control character: it has a byte below a space, a DEL, or a byte that is not ASCII. The function checks
/// eight bytes together.
fn is_suspect(text: &[u8]) -> bool {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = EACH * 0x80;
    let (words, rest) = text.as_chunks::<8>();
    let found = words.iter().fold(0, |found, word| {
        let word = u64::from_le_bytes(*word);
        // The highest bit of a byte: it was set, or the byte is below a space, or it is a DEL.
        found | word | (word.wrapping_sub(EACH * 0x20) & !word) | ((word & !HIGH) + EACH)
    });
    found & HIGH != 0 || rest.iter().any(|byte| *byte < b' ' || *byte >= 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now(1_800_000_000_000);

    fn raw() -> RawEvent<'static> {
        RawEvent {
            tenant: "330",
            listing: "1095275",
            at_s: 1_483_271_606,
            event_type: "impression",
            count: 1,
            values: Values::NONE,
        }
    }

    fn refused(event: RawEvent<'_>) -> String {
        let types = EventTypes::new(&["impression", "click"]).unwrap();
        event.check(NOW, &types).unwrap_err().to_string()
    }

    #[test]
    fn valid_event_lands_in_its_quarter() {
        let types = EventTypes::new(&["impression"]).unwrap();
        let event = raw().check(NOW, &types).unwrap();
        assert_eq!((event.quarter.start_s(), event.quarter.index(), event.count), (1_483_271_100, 3, 1));
    }

    #[test]
    fn bad_events_are_refused_with_value_and_limit() {
        let long = "x".repeat(1 << 20);
        assert_eq!(refused(RawEvent { tenant: "", ..raw() }), "tenant is empty");
        assert_eq!(refused(RawEvent { tenant: &long, ..raw() }), "tenant has 1048576 bytes: at most 128");
        assert_eq!(refused(RawEvent { listing: &long, ..raw() }), "listing has 1048576 bytes: at most 255");
        assert_eq!(refused(RawEvent { tenant: "a\nb", ..raw() }), "tenant \"a\\nb\" has a control character");
        assert!(refused(RawEvent { event_type: "view", ..raw() }).ends_with("configured are: impression, click"));
        assert_eq!(refused(RawEvent { count: -1, ..raw() }), "count -1 is negative: at least 0");
        assert_eq!(refused(RawEvent { count: 1 << 31, ..raw() }), "count 2147483648 is too large: at most 2147483647");
        assert_eq!(refused(RawEvent { at_s: -62_135_596_800, ..raw() }), "time -62135596800 s is before 1970");
        // The year 9999, and milliseconds in place of seconds.
        for at_s in [253_402_300_799, 1_483_271_606_000] {
            assert!(refused(RawEvent { at_s, ..raw() }).ends_with("at most 300 s; are these milliseconds?"));
        }
        let at_s = NOW.seconds() as i64;
        let types = EventTypes::new(&["impression"]).unwrap();
        assert!(RawEvent { at_s: at_s + 300, ..raw() }.check(NOW, &types).is_ok());
        assert!(refused(RawEvent { at_s: at_s + 301, ..raw() }).contains("301 s ahead of now"));
    }

    #[test]
    fn each_control_character_is_found_in_each_place() {
        let controls = (0..0x100).filter_map(char::from_u32).filter(|sign| sign.is_control());
        let plains = ["~ !zABCDEFGHIJKLMNOP", "aéß~ !zABCDEFGH"];
        assert!(plains.iter().all(|plain| check_listing(plain).is_ok()));
        // Nothing but the control character itself is suspect in the first.
        assert!(!is_suspect(plains[0].as_bytes()));
        for sign in controls {
            for plain in plains {
                for at in (0..=plain.len()).filter(|at| plain.is_char_boundary(*at)) {
                    let id = format!("{}{sign}{}", &plain[..at], &plain[at..]);
                    assert!(check_listing(&id).is_err(), "{id:?}");
                }
            }
        }
    }

    #[test]
    fn event_types_are_few_short_and_distinct() {
        let many: Vec<String> = (0..65).map(|number| format!("t{number}")).collect();
        assert_eq!(EventTypes::new::<&str>(&[]), Err(EventTypesError::None));
        assert_eq!(EventTypes::new(&many), Err(EventTypesError::TooMany(65)));
        assert!(EventTypes::new(&many[..64]).is_ok());
        assert_eq!(EventTypes::new(&["a", "a"]), Err(EventTypesError::Twice("a".into())));
        for name in ["", "A", "1a", "a b", &"a".repeat(33)] {
            assert!(matches!(EventTypes::new(&[name]), Err(EventTypesError::Name(_))), "{name:?}");
        }
    }
}
