//! Values of dimensions: more than the listing and the type, such as the country of an impression.
//!
//! A directory has at most [`DIMENSIONS_MAX`] dimensions. Each has a number, by the order in which they were added. An event or a row
//! has its values as one text: for each value the sign of the dimension, which is a control character, and then the value. No value and
//! no tenant has such a character. So the fold and sets of rows store these values behind the name of the tenant.

use crate::limits::{DIMENSION_BYTES_MAX, DIMENSIONS_MAX, VALUE_BYTES_MAX, VALUES_BYTES_MAX};

/// The value in place of further values beyond the bound of a dimension.
pub const OTHER: &str = "other";
/// The sign of dimension 0. The signs of the others follow.
const FIRST_SIGN: u8 = 1;
/// Bytes of a value that an error shows.
const SHOWN_BYTES_MAX: usize = 40;

const _: () = assert!(VALUES_BYTES_MAX <= u8::MAX as usize, "a packed row has the length in one byte");

/// Names that fields of events, columns of blobs and columns of answers have already.
const RESERVED: [&str; 30] = [
    "tenant",
    "listing",
    "listings",
    "at",
    "at_s",
    "type",
    "types",
    "n",
    "event_id",
    "q0",
    "q1",
    "q2",
    "q3",
    "quarter",
    "hour",
    "day",
    "week",
    "month",
    "year",
    "counted_at",
    "previous",
    "local_hour",
    "local_day",
    "local",
    "zone",
    "from",
    "to",
    "limit",
    "count",
    "total",
];

/// The number of a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DimensionNumber(u8);

/// The values of an event or of a row, by rising numbers of dimensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Values<'a>(&'a str);

/// A text that is not the values of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a text of {bytes} bytes is not the values of at most {DIMENSIONS_MAX} dimensions")]
pub struct NoValues {
    bytes: usize,
}

/// Why values are refused. The row becomes a dead letter with this reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DimensionError {
    #[error("dimension {shown:?} is unknown (value {value:?}); known dimensions: {known}")]
    Unknown { shown: String, value: String, known: String },
    #[error("{dimension} has {bytes} bytes: at most {VALUE_BYTES_MAX}")]
    Long { dimension: String, bytes: usize },
    #[error("{dimension} {shown:?} has a control character")]
    ControlCharacter { dimension: String, shown: String },
    #[error("{dimension} is given twice")]
    Twice { dimension: String },
}

/// Checks a value of a dimension. An empty value is none.
///
/// # Errors
/// It is too long, or has a control character.
pub fn check_value(dimension: &str, value: &str) -> Result<(), DimensionError> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(DimensionError::Long { dimension: dimension.to_owned(), bytes: value.len() });
    }
    match value.chars().any(char::is_control) {
        true => Err(DimensionError::ControlCharacter { dimension: dimension.to_owned(), shown: cut(value) }),
        false => Ok(()),
    }
}

impl DimensionNumber {
    pub const ALL: [DimensionNumber; DIMENSIONS_MAX] =
        [DimensionNumber(0), DimensionNumber(1), DimensionNumber(2), DimensionNumber(3)];

    /// The dimension at a position among the names of a directory.
    pub fn of_position(at: usize) -> Option<DimensionNumber> {
        DimensionNumber::ALL.get(at).copied()
    }

    pub fn position(self) -> usize {
        usize::from(self.0)
    }

    fn sign(self) -> u8 {
        FIRST_SIGN + self.0
    }

    fn of_sign(sign: u8) -> Option<DimensionNumber> {
        DimensionNumber::of_position(usize::from(sign.checked_sub(FIRST_SIGN)?))
    }
}

impl<'a> Values<'a> {
    pub const NONE: Values<'static> = Values("");

    /// Reads the text that [`Values::as_str`] gives.
    ///
    /// # Errors
    /// [`NoValues`].
    pub fn parse(text: &'a str) -> Result<Values<'a>, NoValues> {
        let values = Values(text);
        let mut least = 0;
        let mut bytes = 0;
        for (number, value) in values.iter() {
            let is_value = (1..=VALUE_BYTES_MAX).contains(&value.len()) && !value.chars().any(char::is_control);
            if number.0 < least || !is_value {
                return Err(NoValues { bytes: text.len() });
            }
            least = number.0 + 1;
            bytes += 1 + value.len();
        }
        if bytes == text.len() { Ok(values) } else { Err(NoValues { bytes: text.len() }) }
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// The dimensions with a value, and the value.
    pub fn iter(self) -> impl Iterator<Item = (DimensionNumber, &'a str)> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let number = DimensionNumber::of_sign(*rest.as_bytes().first()?)?;
            let value = &rest[1..];
            let end = value.bytes().position(|byte| DimensionNumber::of_sign(byte).is_some()).unwrap_or(value.len());
            rest = &value[end..];
            Some((number, &value[..end]))
        })
    }

    /// The value of a dimension.
    pub fn get(self, dimension: DimensionNumber) -> Option<&'a str> {
        self.iter().find(|(number, _)| *number == dimension).map(|(_, value)| value)
    }

    /// Splits a text into what stands before the values, and the values.
    pub(crate) fn split(text: &'a str) -> (&'a str, Values<'a>) {
        let end = text.bytes().position(|byte| DimensionNumber::of_sign(byte).is_some()).unwrap_or(text.len());
        (&text[..end], Values(&text[end..]))
    }

    /// Values from a text that this program has made.
    pub(crate) fn trusted(text: &'a str) -> Values<'a> {
        Values(text)
    }
}

/// Adds a value behind those of lower numbers. [`Values::parse`] checks the text.
pub fn push(text: &mut String, dimension: DimensionNumber, value: &str) {
    text.push(char::from(dimension.sign()));
    text.push_str(value);
}

/// The names of the dimensions of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DimensionNames(Vec<String>);

impl DimensionNames {
    pub(crate) fn push(&mut self, name: String) {
        self.0.push(name);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn all(&self) -> &[String] {
        &self.0
    }

    pub fn find(&self, name: &str) -> Option<DimensionNumber> {
        self.0.iter().position(|known| known == name).and_then(DimensionNumber::of_position)
    }

    pub fn name(&self, dimension: DimensionNumber) -> &str {
        self.0.get(dimension.position()).map_or("", String::as_str)
    }

    /// The names as an error shows them.
    pub fn shown(&self) -> String {
        if self.0.is_empty() { "none".to_owned() } else { self.0.join(", ") }
    }

    /// The text of values, in any order. An empty value is none.
    ///
    /// # Errors
    /// [`DimensionError`]: a dimension is unknown or stands twice, or a value is too long or has a control character.
    pub fn text<'v>(&self, values: impl IntoIterator<Item = (&'v str, &'v str)>) -> Result<String, DimensionError> {
        let mut found: [Option<&str>; DIMENSIONS_MAX] = [None; DIMENSIONS_MAX];
        for (name, value) in values {
            let Some(number) = self.find(name) else {
                let shown = cut(name);
                return Err(DimensionError::Unknown { shown, value: cut(value), known: self.shown() });
            };
            check_value(name, value)?;
            if found[number.position()].replace(value).is_some() {
                return Err(DimensionError::Twice { dimension: name.to_owned() });
            }
        }
        let mut text = String::new();
        for (number, value) in DimensionNumber::ALL.into_iter().zip(found) {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                push(&mut text, number, value);
            }
        }
        Ok(text)
    }
}

/// The beginning of a text, as an error shows it.
pub(crate) fn cut(text: &str) -> String {
    let mut end = text.len().min(SHOWN_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// Whether a text may name a dimension.
pub fn is_dimension_name(name: &str) -> bool {
    let is_short = (1..=DIMENSION_BYTES_MAX).contains(&name.len());
    let is_sign = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    is_short && name.bytes().all(is_sign) && name.as_bytes()[0].is_ascii_lowercase() && !RESERVED.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names() -> DimensionNames {
        DimensionNames(["country", "surface", "device", "campaign"].map(str::to_owned).into())
    }

    #[test]
    fn bad_values_are_refused_with_value_and_known_names() {
        let refused = |name: &str, value: &str| names().text([(name, value)]).unwrap_err().to_string();
        assert_eq!(
            refused("city", "Pokhara"),
            "dimension \"city\" is unknown (value \"Pokhara\"); known dimensions: country, surface, device, campaign"
        );
        assert_eq!(refused("country", &"x".repeat(61)), "country has 61 bytes: at most 60");
        assert_eq!(refused("country", "a\u{1}b"), "country \"a\\u{1}b\" has a control character");
        let twice = names().text([("country", "NP"), ("country", "IN")]).unwrap_err().to_string();
        assert_eq!(twice, "country is given twice");
        let none = DimensionNames::default().text([("country", "NP")]).unwrap_err().to_string();
        assert!(none.ends_with("known dimensions: none"), "{none}");
    }

    #[test]
    fn names_of_fields_and_columns_are_not_free() {
        assert!(is_dimension_name("country") && is_dimension_name("ab_test_2"));
        for name in ["", "n", "tenant", "Country", "2nd", "a-b", "a b", &"a".repeat(33)] {
            assert!(!is_dimension_name(name), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn values_are_read_as_they_were_written(drawn in proptest::array::uniform4("[a-zé ,=\"]{0,20}")) {
            let known = names();
            let pairs = || known.all().iter().map(String::as_str).zip(drawn.iter().map(String::as_str));
            let text = known.text(pairs().collect::<Vec<_>>().into_iter().rev()).unwrap();
            let values = Values::parse(&text).unwrap();
            for (number, value) in DimensionNumber::ALL.into_iter().zip(&drawn) {
                prop_assert_eq!(values.get(number).unwrap_or_default(), value.as_str());
            }
            let behind = format!("tenant{text}");
            prop_assert_eq!(Values::split(&behind), ("tenant", values));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC{0,8}[\u{0}-\u{6}a-c]{0,12}") {
            if let Ok(values) = Values::parse(&text) {
                prop_assert_eq!(values.iter().map(|(_, value)| value.len() + 1).sum::<usize>(), text.len());
            }
        }
    }
}
