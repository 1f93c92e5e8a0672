//! Strict JSON for request bodies and for lines of files.
//!
//! serde reads a struct from an array by position, and keeps the last of two equal names of a map. Both hide mistakes: an empty batch that
//! is sent to the wrong path would count 1. Here an object is an object at every depth, and a name stands once in it. A byte order mark
//! in front is skipped, as RFC 8259 (section 8.1) allows. JSON has one kind of number: `5.0` is the whole number 5, as in JSON Schema.

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor, value,
};
use serde::{Deserialize, forward_to_deserialize_any};
use std::collections::BTreeSet;
use std::fmt;

/// U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Up to here, 2^53, each whole number has a floating point number of its own.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Reads one value, and nothing behind it.
///
/// # Errors
/// Text that is no JSON, or JSON that is no `T`: an array in the place of an object, a name that stands twice, an unknown field.
pub fn from_slice<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(without_mark(bytes));
    let value = T::deserialize(Strict(&mut json))?;
    json.end()?;
    Ok(value)
}

/// The bytes behind a byte order mark.
pub fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes)
}

/// The names of the fields of the object that a `T` is read from; none if it is read from another form.
pub fn fields<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // It ends with an error as soon as it has said its fields.
    let _ = T::deserialize(Fields(&mut fields));
    fields
}

struct Fields<'f>(&'f mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, value::Error> {
        Err(value::Error::custom("there is no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, value::Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// A type with the rules above.
struct Strict<T>(T);

macro_rules! forward {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(Reading::plain(visitor))
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    forward! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8
        deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char
        deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option deserialize_unit
        deserialize_seq deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(Reading::map(visitor))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Reading::map(visitor))
    }

    /// As a map: an array is none. The struct itself refuses a field that stands twice.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Reading::plain(visitor))
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_unit_struct(name, Reading::plain(visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, Reading::plain(visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple(len, Reading::plain(visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple_struct(name, len, Reading::plain(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, Reading::plain(visitor))
    }
}

/// Hands everything on to a visitor, with what is nested in it wrapped.
struct Reading<V> {
    visitor: V,
    /// Names of a map must differ.
    is_map: bool,
}

impl<V> Reading<V> {
    fn plain(visitor: V) -> Reading<V> {
        Reading { visitor, is_map: false }
    }

    fn map(visitor: V) -> Reading<V> {
        Reading { visitor, is_map: true }
    }
}

macro_rules! visit {
    ($($method:ident $value:ty)*) => {
        $(fn $method<E: Error>(self, value: $value) -> Result<V::Value, E> {
            self.visitor.$method(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Reading<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    visit! {
        visit_bool bool visit_i8 i8 visit_i16 i16 visit_i32 i32 visit_i64 i64 visit_i128 i128 visit_u8 u8 visit_u16 u16
        visit_u32 u32 visit_u64 u64 visit_u128 u128 visit_f32 f32 visit_char char visit_str &str
        visit_borrowed_str &'de str visit_string String visit_bytes &[u8] visit_borrowed_bytes &'de [u8]
        visit_byte_buf Vec<u8>
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<V::Value, E> {
        match value.fract() == 0.0 && value.abs() <= WHOLE_MAX {
            true if value < 0.0 => self.visitor.visit_i64(value as i64),
            true => self.visitor.visit_u64(value as u64),
            false => self.visitor.visit_f64(value),
        }
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Strict(inner))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(Strict(inner))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_seq(Strict(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        let seen = self.is_map.then(BTreeSet::new);
        self.visitor.visit_map(Entries { entries, seen })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(Strict(variant))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Strict(deserializer))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Strict<A> {
    type Error = A::Error;
    type Variant = Strict<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Strict<A::Variant>), A::Error> {
        self.0.variant_seed(Strict(seed)).map(|(value, variant)| (value, Strict(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(Strict(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(len, Reading::plain(visitor))
    }

    /// By its content, which an array is not.
    fn struct_variant<V: Visitor<'de>>(self, name: &'static [&'static str], visitor: V) -> Result<V::Value, A::Error> {
        self.0.struct_variant(name, NoSeq(Reading::plain(visitor)))
    }
}

/// Refuses an array.
struct NoSeq<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for NoSeq<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(entries)
    }
}

/// The entries of an object.
struct Entries<A> {
    entries: A,
    /// Names of a map up to here; a struct looks at its own.
    seen: Option<BTreeSet<String>>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entries<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        match &mut self.seen {
            Some(seen) => self.entries.next_key_seed(Name { inner: seed, seen }),
            None => self.entries.next_key_seed(seed),
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.entries.next_value_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.entries.size_hint()
    }
}

/// A name of a map: its seed, its deserializer and its visitor in turn.
struct Name<'s, T> {
    inner: T,
    seen: &'s mut BTreeSet<String>,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Name<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Name { inner: deserializer, seen: self.seen })
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Name<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_str(Name { inner: visitor, seen: self.seen })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Name<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<V::Value, E> {
        if !self.seen.insert(name.to_owned()) {
            return Err(E::custom(format_args!("duplicate field `{name}`")));
        }
        self.inner.visit_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Outer {
        delta: i64,
        inner: Option<Inner>,
        all: Vec<Inner>,
        map: BTreeMap<String, u64>,
        pair: (u8, u8),
        kind: Kind,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[serde(default)]
        x: i64,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        #[default]
        Plain,
        Full {
            x: i64,
        },
    }

    fn refused(text: &str) -> String {
        from_slice::<Outer>(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn objects_at_every_depth_are_read() {
        let text = r#"{"delta":-2,"inner":{"x":1},"all":[{},{"x":2}],"map":{"a":1,"b":2},"pair":[1,2],"kind":{"full":{"x":3}}}"#;
        let read: Outer = from_slice(text.as_bytes()).unwrap();
        assert_eq!(
            (read.delta, read.inner, read.all),
            (-2, Some(Inner { x: 1 }), vec![Inner { x: 0 }, Inner { x: 2 }])
        );
        assert_eq!((read.map.len(), read.pair, read.kind), (2, (1, 2), Kind::Full { x: 3 }));
        assert_eq!(from_slice::<Outer>(b"\xef\xbb\xbf {} ").unwrap(), Outer::default(), "a byte order mark is skipped");
    }

    #[test]
    fn an_array_is_no_object_at_any_depth() {
        for text in ["[]", "[1]", r#"{"inner":[1]}"#, r#"{"all":[[1]]}"#, r#"{"kind":{"full":[3]}}"#] {
            assert!(refused(text).contains("invalid type: sequence"), "{text}: {}", refused(text));
        }
    }

    #[test]
    fn a_name_stands_once_in_an_object() {
        for text in [
            r#"{"delta":1,"delta":1}"#,
            r#"{"inner":{"x":1,"x":2}}"#,
            r#"{"all":[{"x":1,"x":2}]}"#,
            r#"{"map":{"a":1,"a":2}}"#,
            r#"{"map":{"a":1,"\u0061":2}}"#,
        ] {
            assert!(refused(text).contains("duplicate field `"), "{text}: {}", refused(text));
        }
        assert!(refused("{}{}").contains("trailing characters"));
        assert!(refused("\u{feff}\u{feff}{}").contains("expected"), "one mark");
    }

    #[test]
    fn fields_are_those_of_the_object() {
        assert_eq!(fields::<Outer>(), ["delta", "inner", "all", "map", "pair", "kind"]);
        assert!(fields::<Vec<Outer>>().is_empty());
    }

    #[test]
    fn whole_numbers_may_have_a_fraction_of_zero() {
        let delta = |text: &str| from_slice::<Outer>(format!("{{\"delta\":{text}}}").as_bytes()).map(|read| read.delta);
        for (text, value) in [("5.0", 5), ("-5.0", -5), ("5e2", 500), ("-0.0", 0), ("9007199254740992.0", 1 << 53)] {
            assert_eq!(delta(text).unwrap(), value, "{text}");
        }
        for text in ["5.5", "9007199254740994.0", "1e300"] {
            assert!(delta(text).unwrap_err().to_string().contains("floating point"), "{text}");
        }
    }
}
