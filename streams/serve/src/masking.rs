//! Values that lists of dead letters hide.
//!
//! A refused event may hold anything, such as the address of a person in a field that no event has. A list shows the fields of events and
//! the dimensions of the directory; it masks all other values, values with fields of their own, and the fields of a setting. What is stored
//! stays as it came, so a letter is replayed as it is.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use tidemark_streams_core::values::DimensionNames;
use tidemark_streams_intake::body::is_event_field;

/// Stands in place of a value.
pub const MASKED: &str = "[masked]";

/// What lists hide.
#[derive(Clone, Copy, Debug)]
pub struct Masking<'a> {
    /// Fields of events and dimensions that are masked too.
    pub fields: &'a BTreeSet<String>,
    /// Of the directory.
    pub dimensions: &'a DimensionNames,
}

/// A repaired text has a masked value, and the stored text has no value of that field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "event_value: {field} is {MASKED}, and the letter has no such field: list it with its values, and send the value"
)]
pub struct StillMasked {
    pub field: String,
}

impl Masking<'_> {
    /// The text of a letter as a list shows it.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Ok(mut fields) = serde_json::from_str::<Map<String, Value>>(text) else {
            // It may be cut, or no JSON at all.
            return Cow::Owned(format!("{MASKED} {} bytes that are no JSON object", text.len()));
        };
        // Of a field that stands twice only the last value is judged, so only that one is shown.
        let mut is_masked = serde_json::from_str::<Entries>(text).is_ok_and(|Entries(count)| count > fields.len());
        for (name, value) in &mut fields {
            if !self.shows(name, value) {
                *value = Value::from(MASKED);
                is_masked = true;
            }
        }
        if is_masked { Cow::Owned(Value::Object(fields).to_string()) } else { Cow::Borrowed(text) }
    }

    fn shows(&self, name: &str, value: &Value) -> bool {
        let is_known = is_event_field(name) || self.dimensions.find(name).is_some();
        is_known && !self.fields.contains(name) && is_plain(value)
    }
}

/// How many fields a text has, repeated ones included.
struct Entries(usize);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Entries, D::Error> {
        struct Count;
        impl<'de> Visitor<'de> for Count {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Entries, A::Error> {
                let mut count = 0;
                while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Entries(count))
            }
        }
        deserializer.deserialize_map(Count)
    }
}

/// Whether a value is a text or a number, or a list of these.
fn is_plain(value: &Value) -> bool {
    let is_scalar = |value: &Value| match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        Value::Array(_) | Value::Object(_) => false,
    };
    match value {
        Value::Array(values) => values.iter().all(is_scalar),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => is_scalar(value),
    }
}

/// A repaired text with the stored values in place of masks.
///
/// # Errors
/// [`StillMasked`]: a mask stands in a field that the stored text does not have.
pub fn unmasked<'t>(repaired: &'t str, stored: &str) -> Result<Cow<'t, str>, StillMasked> {
    let is_mask = |value: &Value| value.as_str() == Some(MASKED);
    let fields = || serde_json::from_str::<Map<String, Value>>(repaired).ok();
    let Some(mut fields) = fields().filter(|fields| fields.values().any(is_mask)) else {
        return Ok(Cow::Borrowed(repaired));
    };
    let stored: Map<String, Value> = serde_json::from_str(stored).unwrap_or_default();
    for (name, value) in fields.iter_mut().filter(|(_, value)| is_mask(value)) {
        let known = stored.get(name).ok_or_else(|| StillMasked { field: name.chars().take(40).collect() })?;
        *value = known.clone();
    }
    Ok(Cow::Owned(Value::Object(fields).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str, fields: &[&str]) -> String {
        let fields = fields.iter().map(|name| (*name).to_owned()).collect();
        Masking { fields: &fields, dimensions: &DimensionNames::default() }.text(text).into_owned()
    }

    #[test]
    fn values_of_unknown_and_named_fields_are_masked() {
        let plain = r#"{"tenant":"a","listings":["x",7],"at":5,"type":"click","n":-1}"#;
        assert_eq!(masked(plain, &["event_id"]), plain);
        let text = r#"{"email":"p@example.com","event_id":"p-7","listing":{"name":"P"},"tenant":"a"}"#;
        let shown = r#"{"email":"[masked]","event_id":"[masked]","listing":"[masked]","tenant":"a"}"#;
        assert_eq!(masked(text, &["event_id"]), shown);
        assert!(masked(text, &[]).contains("p-7"));
        assert_eq!(masked("p@example.com,5", &[]), "[masked] 15 bytes that are no JSON object");
        assert!(!masked(r#"{"email":"p@example.com","tenant":"a…"#, &[]).contains("example"));
        assert!(!masked(r#"["p@example.com"]"#, &[]).contains("example"));
    }

    #[test]
    fn field_that_stands_twice_shows_its_last_value_only() {
        let shown = masked(r#"{"listing":{"email":"p@x.example"},"listing":"y","tenant":"a"}"#, &[]);
        assert_eq!(shown, r#"{"listing":"y","tenant":"a"}"#);
    }

    #[test]
    fn stored_values_come_back_in_place_of_masks() {
        let stored = r#"{"event_id":"p-7","lsiting":"x","tenant":"a"}"#;
        let repaired = r#"{"event_id":"[masked]","listing":"x","tenant":"a"}"#;
        assert_eq!(unmasked(repaired, stored).unwrap(), r#"{"event_id":"p-7","listing":"x","tenant":"a"}"#);
        let wrong = r#"{"listing":"[masked]","tenant":"a"}"#;
        assert_eq!(unmasked(wrong, stored), Err(StillMasked { field: "listing".to_owned() }));
        assert!(unmasked(repaired, "no JSON").is_err());
        for plain in [stored, "{", r#"{"tenant":"[masked] a"}"#] {
            assert_eq!(unmasked(plain, stored).unwrap(), plain);
        }
    }
}
