//! Shapes of JSON that types cannot say themselves: names of counters, ids, times, numbers with a limit.
//!
//! Each is as wide as what is read, so that a description made from them refuses nothing that the program takes.

use crate::log_level::LOG_LEVEL_BYTES_MAX;
use crate::names::SESSION_BYTES_MAX;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use tidemark_proto::ledger::TurnKind;
use tidemark_proto::limits::{
    CLAIM_PERIOD_S_MAX, DELTA_MAX, MILESTONE_MAX, NAMESPACE_BYTES_MAX, QUERY_COUNTERS_MAX, QUERY_WINDOWS_MAX,
    UNIX_TIME_MAX_S,
};
use tidemark_proto::msg::Fallback;
use tidemark_proto::named::NAMED_ITEMS_MAX;

/// The longest time until a counter expires, in seconds: 100 years.
pub const EXPIRES_S_MAX: u64 = 100 * 366 * 24 * 3_600;

/// A namespace.
pub const NAMESPACE_PATTERN: &str = "^[a-z0-9._-]{1,64}$";
/// `NAMESPACE/KEY`. A key is 1 to 255 bytes, of which those that are no text are written `%XX`.
pub const COUNTER_PATTERN: &str = r"^[a-z0-9._-]{1,64}/[\s\S]+$";
/// `NAMESPACE/PREFIX`. The prefix may be empty.
pub const PREFIX_PATTERN: &str = r"^[a-z0-9._-]{1,64}/[\s\S]*$";
/// Visible ASCII characters.
pub const ID_PATTERN: &str = "^[!-~]{1,128}$";
/// A length of time, such as `90m`, `7d`, `1mo`.
pub const PERIOD_PATTERN: &str = "^[0-9]+(s|m|h|d|w|mo|y)$";
/// The same, or 0.
pub const ERROR_PATTERN: &str = "^(0|[0-9]+(s|m|h|d|w|mo|y))$";
/// A time: seconds since 1970, or as RFC 3339 writes it.
pub const TIME_PATTERN: &str =
    r"^([0-9]+|[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9:]{2,5}))$";
/// The same, or a date or time by a zone's clock.
pub const CLOCK_PATTERN: &str =
    r"^([0-9]+|[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?([Zz]|[+-][0-9:]{2,5})?)?)$";
/// A name of the IANA database.
pub const ZONE_PATTERN: &str = "^[A-Za-z0-9_+/-]{1,64}$";
/// `BIRTH.INDEX.AT.DIGEST`, and shorter forms.
pub const POSITION_PATTERN: &str = r"^([0-9A-Fa-f]{16}\.)?[0-9]+\.[0-9]+(\.[0-9A-Fa-f]+)?$";
/// A level of a log, or levels of modules, separated by commas.
pub const LOG_LEVEL_PATTERN: &str =
    "^([A-Za-z0-9_:]+=)?(off|error|warn|info|debug|trace)(,([A-Za-z0-9_:]+=)?(off|error|warn|info|debug|trace))*$";
/// `DC`, and `GROUP~INCARNATION~ENTRY` of each group.
pub const VERSION_PATTERN: &str = "^[^~]+(~[0-9]+~[0-9]+~[0-9]+)+$";

const _: () = assert!(NAMESPACE_BYTES_MAX == 64, "the patterns say it");

/// Of a text with a pattern.
macro_rules! texts {
    ($($name:ident $pattern:expr;)*) => {
        $(pub fn $name(_: &mut SchemaGenerator) -> Schema {
            json_schema!({ "type": "string", "pattern": $pattern })
        })*
    };
}

/// The same of one that may be left out.
macro_rules! texts_or_null {
    ($($name:ident $pattern:expr;)*) => {
        $(pub fn $name(_: &mut SchemaGenerator) -> Schema {
            json_schema!({ "type": ["string", "null"], "pattern": $pattern })
        })*
    };
}

texts! {
    namespace NAMESPACE_PATTERN;
    counter COUNTER_PATTERN;
    id ID_PATTERN;
}

texts_or_null! {
    counter_or_null COUNTER_PATTERN;
    id_or_null ID_PATTERN;
    period_or_null PERIOD_PATTERN;
    error_or_null ERROR_PATTERN;
    clock_or_null CLOCK_PATTERN;
    zone_or_null ZONE_PATTERN;
}

/// A token of a session.
pub fn session(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": SESSION_BYTES_MAX })
}

pub fn session_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "minLength": 1, "maxLength": SESSION_BYTES_MAX })
}

/// A level of a log.
pub fn log_level(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": LOG_LEVEL_PATTERN, "maxLength": LOG_LEVEL_BYTES_MAX })
}

/// A unit of the calendar, by its name or as in a period.
pub fn unit_or_null(_: &mut SchemaGenerator) -> Schema {
    let names: Vec<Option<&str>> = UNITS.iter().map(|name| Some(*name)).chain([None]).collect();
    json_schema!({ "enum": names })
}

/// Units of the calendar.
pub const UNITS: &[&str] =
    &["second", "minute", "hour", "day", "week", "month", "year", "s", "m", "h", "d", "w", "mo", "y"];

/// The weight of an increment or decrement.
pub fn delta(_: &mut SchemaGenerator) -> Schema {
    let most = DELTA_MAX as i64;
    json_schema!({ "type": "integer", "minimum": -most, "maximum": most, "not": { "const": 0 } })
}

/// A milestone.
pub fn milestone_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["integer", "null"], "minimum": 1, "maximum": MILESTONE_MAX })
}

pub fn milestones(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": "integer", "minimum": 1, "maximum": MILESTONE_MAX } })
}

/// For how long an award may be claimed.
pub fn claim_period(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "minimum": 0, "maximum": CLAIM_PERIOD_S_MAX })
}

/// Counters of one read.
pub fn counters(_: &mut SchemaGenerator) -> Schema {
    let items = json_schema!({ "type": "string", "pattern": COUNTER_PATTERN });
    json_schema!({ "type": "array", "items": items, "maxItems": QUERY_COUNTERS_MAX })
}

/// Counters of one query that is sent on.
pub fn hop_counters(_: &mut SchemaGenerator) -> Schema {
    let items = json_schema!({ "type": "string", "pattern": COUNTER_PATTERN });
    json_schema!({ "type": "array", "items": items, "minItems": 1, "maxItems": NAMED_ITEMS_MAX, "uniqueItems": true })
}

/// Seconds until a counter expires.
pub fn expires_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["integer", "null"], "minimum": 1, "maximum": EXPIRES_S_MAX })
}

/// Windows of one read.
pub fn windows<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": generator.subschema_for::<T>(), "maxItems": QUERY_WINDOWS_MAX })
}

/// Edges, each from a counter to a counter.
pub fn edges(_: &mut SchemaGenerator) -> Schema {
    let counter = json_schema!({ "type": "string", "pattern": COUNTER_PATTERN });
    let edge = json_schema!({ "type": "array", "items": counter, "minItems": 2, "maxItems": 2 });
    json_schema!({ "type": "array", "items": edge })
}

/// When something happened.
pub fn time(_: &mut SchemaGenerator) -> Schema {
    let seconds = json_schema!({ "type": "integer", "minimum": 0, "maximum": UNIX_TIME_MAX_S });
    json_schema!({ "oneOf": [seconds, { "type": "string", "pattern": TIME_PATTERN }] })
}

/// The texts that values are written as.
fn one_of<T: Serialize>(values: impl IntoIterator<Item = T>) -> Schema {
    let values: Vec<_> = values.into_iter().map(|value| serde_json::json!(value)).collect();
    json_schema!({ "type": "string", "enum": values })
}

/// The fate of awards that are not claimed.
pub fn fallback(_: &mut SchemaGenerator) -> Schema {
    one_of([Fallback::Nobody, Fallback::NextAward])
}

/// The result of a claim.
pub fn turn(_: &mut SchemaGenerator) -> Schema {
    one_of([TurnKind::Claimed, TurnKind::Passed, TurnKind::Waiting, TurnKind::Lapsed])
}

/// A whole number of more than 64 bits.
pub fn whole(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer" })
}

/// Implements [`JsonSchema`] by a function here.
macro_rules! described_by {
    ($type:ty, $name:literal, $shape:path) => {
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $shape(generator)
            }
        }
    };
}
pub(crate) use described_by;
