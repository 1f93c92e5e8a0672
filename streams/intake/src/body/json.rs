//! The JSON of an event.

use super::EventRefused;
use crate::limits::EVENTS_MAX;
use serde::de::value::{MapAccessDeserializer, MapDeserializer};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use tidemark_streams_core::event::EventError;
use tidemark_streams_core::values::DimensionNames;

/// Whole numbers up to here are exact in a float of 64 bits. Larger ones are refused: the sender may have meant a neighbour.
const FLOAT_EXACT_MAX: f64 = 9_007_199_254_740_992.0;
/// Letters of a value that a reason shows.
const SHOWN_MAX: usize = 40;

const ID: &str = "a text or a whole number";
const TIME: &str = "seconds since 1970 or a time with its offset";
const WHOLE: &str = "a whole number";
const TEXT: &str = "a text";
const LIST: &str = "a list of texts or whole numbers";

const FIELDS: [(&str, &str); 7] =
    [("tenant", ID), ("listing", ID), ("listings", LIST), ("at", TIME), ("type", TEXT), ("n", WHOLE), ("event_id", ID)];

/// Whether events have a field of this name. Dimensions are fields too.
pub fn is_event_field(name: &str) -> bool {
    FIELDS.iter().any(|(field, _)| *field == name)
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventBody<'a> {
    #[serde(borrow)]
    pub tenant: Option<Id<'a>>,
    #[serde(borrow)]
    pub listing: Option<Id<'a>>,
    #[serde(borrow)]
    pub listings: Option<Vec<Id<'a>>>,
    #[serde(borrow)]
    pub at: Option<At<'a>>,
    #[serde(borrow, rename = "type")]
    pub event_type: Option<Cow<'a, str>>,
    #[serde(rename = "n")]
    pub count: Option<Count>,
    #[serde(borrow)]
    pub event_id: Option<Id<'a>>,
}

/// An event, and the text of its values of dimensions.
pub struct EventWithValues<'a> {
    pub body: EventBody<'a>,
    pub values: String,
}

/// An event as an object. [`EventBody`] alone is read from an array too, because its code is derived.
struct ObjectBody<'a>(EventBody<'a>);

/// The fields of an object in their order. Their values are not read yet.
struct Fields<'a>(Vec<Field<'a>>);

struct Field<'a> {
    name: Cow<'a, str>,
    value: &'a RawValue,
}

#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// A text or a whole number.
pub struct Id<'a>(pub Cow<'a, str>);

pub enum At<'a> {
    Number(i64),
    Text(Cow<'a, str>),
}

/// A whole number, also as `5.0`.
pub struct Count(pub i64);

/// The elements of an array, as many as a request may have; beyond that they are only counted.
pub struct Elements<'a> {
    pub first: Vec<&'a RawValue>,
    pub count: usize,
}

/// The possible values of an event's field; each field takes some.
enum Scalar<'a> {
    Text(Cow<'a, str>),
    Whole(i64),
    /// A whole number that is too large.
    Huge(u64),
}

struct ScalarVisitor(&'static str);

impl<'a> Visitor<'a> for ScalarVisitor {
    type Value = Scalar<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'a str) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Whole(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar<'a>, E> {
        Ok(i64::try_from(number).map_or(Scalar::Huge(number), Scalar::Whole))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Scalar<'a>, E> {
        let is_whole = number.fract() == 0.0 && number.abs() <= FLOAT_EXACT_MAX;
        if is_whole { Ok(Scalar::Whole(number as i64)) } else { Err(E::custom(self.0)) }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Id<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Id<'a>, D::Error> {
        Ok(Id(match deserializer.deserialize_any(ScalarVisitor(ID))? {
            Scalar::Text(text) => text,
            Scalar::Whole(number) => Cow::Owned(number.to_string()),
            Scalar::Huge(number) => Cow::Owned(number.to_string()),
        }))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for At<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<At<'a>, D::Error> {
        Ok(match deserializer.deserialize_any(ScalarVisitor(TIME))? {
            Scalar::Text(text) => At::Text(text),
            Scalar::Whole(seconds) => At::Number(seconds),
            Scalar::Huge(_) => At::Number(i64::MAX),
        })
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Count, D::Error> {
        match deserializer.deserialize_any(ScalarVisitor(WHOLE))? {
            Scalar::Text(_) => Err(D::Error::custom(WHOLE)),
            Scalar::Whole(number) => Ok(Count(number)),
            Scalar::Huge(_) => Ok(Count(i64::MAX)),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Elements<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Elements<'a>, D::Error> {
        deserializer.deserialize_seq(ElementsVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ObjectBody<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ObjectBody<'a>, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'a> Visitor<'a> for ObjectVisitor {
    type Value = ObjectBody<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_map<A: MapAccess<'a>>(self, object: A) -> Result<ObjectBody<'a>, A::Error> {
        EventBody::deserialize(MapAccessDeserializer::new(object)).map(ObjectBody)
    }
}

/// The tenant that the text of an event names, if it stands before the end or the first fault of the text.
pub fn tenant_named(text: &str) -> Option<String> {
    let mut tenant = None;
    // A text that is cut off ends with an error, behind what was found.
    let _ = serde_json::Deserializer::from_str(text).deserialize_map(TenantVisitor(&mut tenant));
    tenant
}

struct TenantVisitor<'t>(&'t mut Option<String>);

impl<'de> Visitor<'de> for TenantVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = object.next_key()? {
            match name.as_ref() {
                "tenant" => *self.0 = Some(object.next_value::<Id<'_>>()?.0.into_owned()),
                _ => drop(object.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields<'a>, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'a> Visitor<'a> for FieldsVisitor {
    type Value = Fields<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut object: A) -> Result<Fields<'a>, A::Error> {
        let mut fields = Vec::new();
        while let Some((Name(name), value)) = object.next_entry()? {
            fields.push(Field { name, value });
        }
        Ok(Fields(fields))
    }
}

/// Reads an event. A field with the name of a dimension is a value of the dimension.
///
/// # Errors
/// [`EventRefused`] names the field.
pub fn read<'a>(text: &'a [u8], dimensions: &DimensionNames) -> Result<EventWithValues<'a>, EventRefused> {
    let explained = |error: serde_json::Error| explained(text, &error, dimensions);
    if dimensions.is_empty() {
        let ObjectBody(body) = serde_json::from_slice(text).map_err(explained)?;
        return Ok(EventWithValues { body, values: String::new() });
    }
    let Fields(fields) = serde_json::from_slice(text).map_err(explained)?;
    let (of_values, others): (Vec<Field<'a>>, Vec<Field<'a>>) =
        fields.into_iter().partition(|field| dimensions.find(&field.name).is_some());
    let others = others.iter().map(|field| (field.name.as_ref(), field.value));
    let body = EventBody::deserialize(MapDeserializer::new(others)).map_err(explained)?;
    let mut values = Vec::with_capacity(of_values.len());
    for Field { name, value } in &of_values {
        let value: Option<Id<'a>> = serde_json::from_str(value.get()).map_err(explained)?;
        // A field with `null` stays in the list, as an empty value, so that a second one of its name is found.
        values.push((name, value.map_or(Cow::Borrowed(""), |Id(value)| value)));
    }
    let values = dimensions.text(values.iter().map(|(name, value)| (name.as_ref(), value.as_ref())));
    let values = values.map_err(EventError::from)?;
    Ok(EventWithValues { body, values })
}

struct ElementsVisitor;

impl<'a> Visitor<'a> for ElementsVisitor {
    type Value = Elements<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut array: A) -> Result<Elements<'a>, A::Error> {
        let mut elements = Elements { first: Vec::new(), count: 0 };
        while elements.count < EVENTS_MAX {
            let Some(element) = array.next_element::<&'a RawValue>()? else { return Ok(elements) };
            elements.first.push(element);
            elements.count += 1;
        }
        while array.next_element::<IgnoredAny>()?.is_some() {
            elements.count += 1;
        }
        Ok(elements)
    }
}

/// Names the field of an event that could not be read.
fn explained(text: &[u8], error: &serde_json::Error, dimensions: &DimensionNames) -> EventRefused {
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(text) else {
        return EventRefused::Json(error.to_string());
    };
    let serde_json::Value::Object(object) = json else {
        return EventRefused::Json(format!("it is {}", shown(&json)));
    };
    for (name, value) in &object {
        let known = || FIELDS.iter().find(|(field, _)| field == name);
        let expected = match dimensions.find(name) {
            Some(_) => ID,
            None => match known() {
                Some((_, expected)) => expected,
                None => {
                    let fields = FIELDS.iter().map(|(field, _)| *field);
                    let known: Vec<&str> = fields.chain(dimensions.all().iter().map(String::as_str)).collect();
                    let name = name.chars().take(SHOWN_MAX).collect();
                    return EventRefused::UnknownField { name, known: known.join(", ") };
                }
            },
        };
        if !is_of_kind(value, expected) {
            return EventRefused::Kind { field: name.clone(), found: shown(value), expected };
        }
    }
    // Such as a field that stands twice.
    EventRefused::Json(error.to_string())
}

fn is_of_kind(value: &serde_json::Value, expected: &str) -> bool {
    let is_whole = |number: &serde_json::Number| {
        number.is_i64()
            || number.is_u64()
            || number.as_f64().is_some_and(|float| float.fract() == 0.0 && float.abs() <= FLOAT_EXACT_MAX)
    };
    match value {
        serde_json::Value::Null => true,
        serde_json::Value::String(_) => expected != WHOLE && expected != LIST,
        serde_json::Value::Number(number) => expected != TEXT && expected != LIST && is_whole(number),
        serde_json::Value::Array(values) => {
            expected == LIST && values.iter().all(|value| !value.is_null() && is_of_kind(value, ID))
        }
        serde_json::Value::Bool(_) | serde_json::Value::Object(_) => false,
    }
}

fn shown(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => "null".to_owned(),
        serde_json::Value::Array(_) => "a list".to_owned(),
        serde_json::Value::Object(_) => "an object".to_owned(),
        serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {
            value.to_string().chars().take(SHOWN_MAX).collect()
        }
        serde_json::Value::String(text) => format!("{:?}", text.chars().take(SHOWN_MAX).collect::<String>()),
    }
}
