//! The tenant, listings and time that a dead letter names. Erasures find letters by these.

use crate::event::RawEvent;
use crate::limits::FUTURE_MAX_S;
use crate::scope::TenantHash;
use crate::time::{Hour, Now, Quarter};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemark_proto::series::UnixTime;
use xxhash_rust::xxh3::xxh3_64;

/// The stable hash of a listing's id: XXH3 with 64 bits. It is part of what the manifest keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ListingHash(pub u64);

impl ListingHash {
    pub fn of(listing: &str) -> ListingHash {
        ListingHash(xxh3_64(listing.as_bytes()))
    }
}

/// The last character of a text that is not the whole record. No JSON ends with it, so replay refuses such a text.
pub const CUT: char = '…';

/// Names of a dead letter, as far as a program can read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub tenant: Option<TenantHash>,
    pub listings: Vec<ListingHash>,
    /// `None`: the record has no time, or one that no row may have.
    pub hour: Option<Hour>,
}

#[derive(Deserialize)]
struct Fields {
    tenant: Option<Value>,
    listing: Option<Value>,
    listings: Option<Value>,
    at: Option<Value>,
}

impl Names {
    pub fn of_event(raw: &RawEvent<'_>, now: Now) -> Names {
        Names {
            tenant: Some(TenantHash::of(raw.tenant)),
            listings: vec![ListingHash::of(raw.listing)],
            hour: hour(raw.at_s, now),
        }
    }

    /// Reads the JSON of an event. A mark behind it, of a text with replaced bytes, is passed over.
    pub fn of_text(text: &str, now: Now) -> Names {
        let text = text.strip_suffix(CUT).unwrap_or(text);
        let Ok(fields) = serde_json::from_str::<Fields>(text) else { return Names::default() };
        let of_page = match fields.listings {
            Some(Value::Array(listings)) => listings,
            Some(_) | None => Vec::new(),
        };
        let listings = fields.listing.into_iter().chain(of_page);
        Names {
            tenant: fields.tenant.and_then(id).map(|tenant| TenantHash::of(&tenant)),
            listings: listings.filter_map(id).map(|listing| ListingHash::of(&listing)).collect(),
            hour: fields.at.and_then(seconds).and_then(|at_s| hour(at_s, now)),
        }
    }
}

/// The text of an id, as the intake reads it.
fn id(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 => Some((float as i64).to_string()),
            Some(_) | None => Some(number.to_string()),
        },
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn seconds(value: Value) -> Option<i64> {
    match value {
        Value::String(text) => text.parse::<UnixTime>().ok().map(|at| at.s() as i64),
        Value::Number(number) => number.as_i64(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn hour(at_s: i64, now: Now) -> Option<Hour> {
    let at_s = u64::try_from(at_s).ok().filter(|at_s| *at_s <= now.seconds().saturating_add(FUTURE_MAX_S))?;
    Quarter::of_s(at_s).map(Quarter::hour)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now(1_800_000_000_000);

    #[test]
    fn names_of_events_and_pages_are_read() {
        let names = Names::of_text(r#"{"tenant":330,"listings":["a",7],"at":7200,"n":-1}"#, NOW);
        let listings = vec![ListingHash::of("a"), ListingHash::of("7")];
        assert_eq!(names, Names { tenant: Some(TenantHash::of("330")), listings, hour: Some(Hour(2)) });
        let names = Names::of_text("{\"tenant\":\"\u{fffd}\",\"listing\":\"a\",\"at\":\"1970-01-01T02:00:00Z\"}…", NOW);
        let listings = vec![ListingHash::of("a")];
        assert_eq!(names, Names { tenant: Some(TenantHash::of("\u{fffd}")), listings, hour: Some(Hour(2)) });
    }

    #[test]
    fn times_that_no_row_may_have_are_none() {
        for at in ["-1", "1800000301", "1483271606000", "\"soon\"", "null", "[]"] {
            let text = format!(r#"{{"tenant":"a","at":{at}}}"#);
            assert_eq!(Names::of_text(&text, NOW).hour, None, "{at}");
        }
        assert_eq!(Names::of_text("{\"tenant\":\"a\"", NOW), Names::default());
    }
}
