//! The input of a plan: named numbers, each with a default and limits.

use crate::error::InputError;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// A number of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Users,
    ListingsPerUser,
    EventsPerDay,
    WriteIntervalS,
    VirtualPartitions,
    UsersPerDayBlob,
    EventBytes,
    DeltaRowBytes,
    DayRowBytes,
    PairBytes,
    EventsPerCoreSecond,
    RowsPerCoreSecond,
    MonthsKept,
    UsdPerMillionWrites,
    UsdPerGbMonth,
    UsdPerCoreMonth,
    UsdPerMemoryGbMonth,
}

/// The description of a key.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub key: Key,
    pub name: &'static str,
    pub default: f64,
    pub min: f64,
    pub max: f64,
    pub is_whole: bool,
    pub meaning: &'static str,
}

const fn whole(key: Key, name: &'static str, default: u64, max: u64, meaning: &'static str) -> Field {
    Field { key, name, default: default as f64, min: 1.0, max: max as f64, is_whole: true, meaning }
}

const fn real(key: Key, name: &'static str, default: f64, min: f64, max: f64, meaning: &'static str) -> Field {
    Field { key, name, default, min, max, is_whole: false, meaning }
}

const TRILLION: u64 = 1_000_000_000_000;

/// All keys, in the order in which they are printed.
pub const FIELDS: [Field; 17] = [
    whole(Key::Users, "users", 100_000_000, TRILLION, "users (tenants), each with listings of its own"),
    whole(Key::ListingsPerUser, "listings_per_user", 10, 1_000_000_000, "listings of a user"),
    whole(Key::EventsPerDay, "events_per_day", TRILLION, 1_000 * TRILLION, "events of all users in a day"),
    whole(Key::WriteIntervalS, "write_interval_s", 60, 3_600, "seconds that events are folded before they are written"),
    whole(Key::VirtualPartitions, "virtual_partitions", 1_000, 65_536, "parts of the users, by a hash of the user"),
    whole(Key::UsersPerDayBlob, "users_per_day_blob", 1_000, 1_000_000_000, "users that share a blob of a day"),
    whole(Key::EventBytes, "event_bytes", 100, 1_000_000, "bytes of an event on its way in"),
    real(Key::DeltaRowBytes, "delta_row_bytes", 2.2, 0.1, 10_000.0, "bytes of a row in a blob of one minute"),
    real(
        Key::DayRowBytes,
        "day_row_bytes",
        3.1,
        0.1,
        10_000.0,
        "bytes of a row in a blob of an hour, a day or a month",
    ),
    real(Key::PairBytes, "pair_bytes", 64.0, 1.0, 100_000.0, "memory of a user's listing while its minute is folded"),
    whole(Key::EventsPerCoreSecond, "events_per_core_second", 250_000, 1_000_000_000, "events that a core takes in"),
    whole(
        Key::RowsPerCoreSecond,
        "rows_per_core_second",
        1_000_000,
        1_000_000_000,
        "rows that a core writes or merges",
    ),
    whole(Key::MonthsKept, "months_kept", 60, 1_200, "months that blobs are kept"),
    real(Key::UsdPerMillionWrites, "usd_per_million_writes", 5.0, 0.0, 1_000_000.0, "price of a million writes"),
    real(Key::UsdPerGbMonth, "usd_per_gb_month", 0.023, 0.0, 1_000_000.0, "price of 10^9 bytes stored for a month"),
    real(Key::UsdPerCoreMonth, "usd_per_core_month", 25.0, 0.0, 1_000_000.0, "price of a core for a month"),
    real(
        Key::UsdPerMemoryGbMonth,
        "usd_per_memory_gb_month",
        3.0,
        0.0,
        1_000_000.0,
        "price of 10^9 bytes of memory for a month",
    ),
];

/// The numbers of one plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Input([f64; FIELDS.len()]);

impl Default for Input {
    fn default() -> Input {
        Input(FIELDS.map(|field| field.default))
    }
}

/// A value as a file says it.
enum Given {
    Number(f64),
    Other(&'static str),
}

impl Input {
    pub fn get(&self, key: Key) -> f64 {
        self.0[key as usize]
    }

    /// # Errors
    /// [`InputError`] names the key, the value and the limit.
    pub fn from_toml(text: &str) -> Result<Input, InputError> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| InputError::Toml(error.to_string()))?;
        Input::of(table.iter().map(|(key, value)| (key.as_str(), of_toml(value))))
    }

    /// # Errors
    /// As of [`Input::from_toml`].
    pub fn from_json(text: &str) -> Result<Input, InputError> {
        let Fields(fields) = serde_json::from_str(text).map_err(|error| InputError::Json(error.to_string()))?;
        Input::of(fields.iter().map(|(key, value)| (key.as_str(), of_json(value))))
    }

    fn of<'a>(given: impl Iterator<Item = (&'a str, Given)>) -> Result<Input, InputError> {
        let mut input = Input::default();
        for (name, value) in given {
            let Some(field) = FIELDS.iter().find(|field| field.name == name) else {
                let known = FIELDS.map(|field| field.name).join(", ");
                return Err(InputError::Unknown { key: name.chars().take(80).collect(), known });
            };
            input.0[field.key as usize] = field.checked(value)?;
        }
        Ok(input)
    }
}

/// The fields of an object in JSON. A map of `serde_json` keeps the last of two fields with one name, and these refuse them.
struct Fields(BTreeMap<String, serde_json::Value>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields, D::Error> {
        struct OfObject;

        impl<'de> Visitor<'de> for OfObject {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Fields, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, value)) = object.next_entry::<String, _>()? {
                    if fields.insert(name.clone(), value).is_some() {
                        return Err(A::Error::custom(format_args!("{name:?} is given twice")));
                    }
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(OfObject)
    }
}

impl Field {
    fn checked(&self, given: Given) -> Result<f64, InputError> {
        let Field { name: key, min, max, .. } = *self;
        let value = match given {
            Given::Number(value) => value,
            Given::Other(found) => return Err(InputError::Kind { key, found }),
        };
        if value.is_nan() {
            return Err(InputError::Kind { key, found: "not a number" });
        }
        if value < min {
            return Err(InputError::Low { key, value, min });
        }
        if value > max {
            return Err(InputError::High { key, value, max });
        }
        if self.is_whole && value.fract() != 0.0 {
            return Err(InputError::Fraction { key, value });
        }
        Ok(value)
    }
}

fn of_toml(value: &toml::Value) -> Given {
    match value {
        toml::Value::Integer(number) => Given::Number(*number as f64),
        toml::Value::Float(number) => Given::Number(*number),
        toml::Value::String(_) => Given::Other("a text"),
        toml::Value::Boolean(_) => Given::Other("true or false"),
        toml::Value::Datetime(_) => Given::Other("a time"),
        toml::Value::Array(_) => Given::Other("a list"),
        toml::Value::Table(_) => Given::Other("a table"),
    }
}

fn of_json(value: &serde_json::Value) -> Given {
    match value {
        serde_json::Value::Number(number) => Given::Number(number.as_f64().unwrap_or(f64::INFINITY)),
        serde_json::Value::String(_) => Given::Other("a text"),
        serde_json::Value::Bool(_) => Given::Other("true or false"),
        serde_json::Value::Null => Given::Other("null"),
        serde_json::Value::Array(_) => Given::Other("a list"),
        serde_json::Value::Object(_) => Given::Other("an object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_at_the_places_of_their_keys() {
        for (at, field) in FIELDS.iter().enumerate() {
            assert_eq!(field.key as usize, at, "{}", field.name);
            assert!(field.checked(Given::Number(field.default)).is_ok(), "{}", field.name);
        }
    }

    #[test]
    fn toml_and_json_give_the_same_plan() {
        let toml = Input::from_toml("users = 5_000\nusd_per_gb_month = 0.02\n").unwrap();
        let json = Input::from_json(r#"{"users": 5000, "usd_per_gb_month": 0.02}"#).unwrap();
        assert_eq!(toml, json);
        assert_eq!((toml.get(Key::Users), toml.get(Key::ListingsPerUser)), (5_000.0, 10.0));
        assert_eq!(Input::from_toml("").unwrap(), Input::default());
    }

    #[test]
    fn bad_inputs_are_named_with_value_and_limit() {
        let refused = |toml: &str| Input::from_toml(toml).unwrap_err().to_string();
        assert_eq!(refused("users = 0"), "users 0: at least 1");
        assert_eq!(refused("write_interval_s = -60"), "write_interval_s -60: at least 1");
        assert_eq!(refused("write_interval_s = 3601"), "write_interval_s 3601: at most 3600");
        assert_eq!(refused("events_per_day = 9e300"), format!("events_per_day {}: at most 1000000000000000", 9e300));
        assert_eq!(refused("users = inf"), "users inf: at most 1000000000000");
        assert_eq!(refused("users = nan"), "users is not a number: a number is expected");
        assert_eq!(refused("users = 1.5"), "users 1.5: a whole number is expected");
        assert_eq!(refused("users = \"many\""), "users is a text: a number is expected");
        assert_eq!(refused("usd_per_gb_month = -0.1"), "usd_per_gb_month -0.1: at least 0");
        assert!(refused("user = 1").starts_with("unknown key \"user\"; known keys: users, listings_per_user, "));
        assert!(refused("users = 99999999999999999999").starts_with("no TOML: "));
        assert!(refused("users = 1\nusers = 2").starts_with("no TOML: "));
        let refused = |json: &str| Input::from_json(json).unwrap_err().to_string();
        assert_eq!(refused(r#"{"users": 99999999999999999999}"#), "users 100000000000000000000: at most 1000000000000");
        assert_eq!(refused(r#"{"users": null}"#), "users is null: a number is expected");
        assert!(refused("[]").starts_with("no JSON object: "));
        assert!(refused(r#"{"users": 1, "users": 2}"#).starts_with("no JSON object: \"users\" is given twice"));
    }
}
