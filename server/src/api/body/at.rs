//! When something happened, in JSON.

use crate::api::Failure;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use tidemark_proto::series::UnixTime;

/// Whole seconds since 1970, or a time as RFC 3339 writes it. Read as given: what is no time is refused as one, and not as a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventAt {
    Seconds(i128),
    Text(String),
}

crate::schemas::described_by!(EventAt, "EventAt", crate::schemas::time);

impl From<UnixTime> for EventAt {
    fn from(time: UnixTime) -> EventAt {
        EventAt::Seconds(time.s().into())
    }
}

impl EventAt {
    /// Error: a text or number that is no time, or not between 1970 and 3000.
    pub fn time(&self) -> Result<UnixTime, Failure> {
        let time = match self {
            EventAt::Seconds(seconds) => UnixTime::of_number(*seconds),
            EventAt::Text(text) => text.parse(),
        };
        time.map_err(|error| Failure::invalid("event_time", error))
    }
}

impl Serialize for EventAt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            EventAt::Seconds(seconds) => super::Signed(*seconds).serialize(serializer),
            EventAt::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for EventAt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<EventAt, D::Error> {
        deserializer.deserialize_any(SecondsOrText)
    }
}

struct SecondsOrText;

impl Visitor<'_> for SecondsOrText {
    type Value = EventAt;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("whole seconds since 1970, or a time such as \"2026-11-24T08:00:00Z\"")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<EventAt, E> {
        Ok(EventAt::Seconds(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<EventAt, E> {
        Ok(EventAt::Seconds(value.into()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<EventAt, E> {
        Ok(EventAt::Text(text.to_owned()))
    }
}
