//! A counter's value in JSON.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use tidemark_proto::ids::Half;

/// A whole number, written as JSON's: the difference of two numbers of 64 bits, which fits neither them nor, by itself, a message that
/// says its type. Read are -2^63 to 2^64 - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signed(pub i128);

crate::schemas::described_by!(Signed, "Signed", crate::schemas::whole);

impl From<u64> for Signed {
    fn from(value: u64) -> Signed {
        Signed(value.into())
    }
}

impl Signed {
    /// As an increment, or a decrement, and its weight; a number that is too large for a weight becomes the largest weight.
    pub fn weight(self) -> (Half, u64) {
        let half = if self.0 < 0 { Half::Down } else { Half::Up };
        (half, u64::try_from(self.0.unsigned_abs()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Signed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (u64::try_from(self.0), i64::try_from(self.0)) {
            (Ok(value), _) => serializer.serialize_u64(value),
            (_, Ok(value)) => serializer.serialize_i64(value),
            _ => serializer.serialize_i128(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Signed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Signed, D::Error> {
        deserializer.deserialize_any(WholeNumber)
    }
}

struct WholeNumber;

impl Visitor<'_> for WholeNumber {
    type Value = Signed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Signed, E> {
        Ok(Signed(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Signed, E> {
        Ok(Signed(value.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::body::{LiveBody, ReadingBody};
    use tidemark_proto::ids::CounterName;
    use tidemark_proto::msg::Reading;

    #[test]
    fn numbers_of_either_sign_are_what_they_were_and_fractions_are_refused() {
        for value in [0, 7, -7, i128::from(u64::MAX), i128::from(i64::MIN)] {
            let text = serde_json::to_string(&Signed(value)).unwrap();
            assert_eq!(
                (text.as_str(), serde_json::from_str::<Signed>(&text).unwrap()),
                (value.to_string().as_str(), Signed(value))
            );
        }
        assert_eq!(serde_json::to_string(&Signed(-i128::from(u64::MAX))).unwrap(), "-18446744073709551615");
        assert!(serde_json::from_str::<Signed>("1.5").is_err() && serde_json::from_str::<Signed>("\"1\"").is_err());
    }

    #[test]
    fn a_counter_that_only_grows_is_written_as_ever_and_another_with_both_halves() {
        let name = CounterName::new("stock", b"shoes").unwrap();
        let body = |up, down| ReadingBody::new(&name, &Reading { up, down, at_most: Some(9), ..Reading::default() });
        let counter = r#""counter":{"namespace":"stock","key":"shoes"}"#;
        let grown = LiveBody::Total(body(5, 0)).text();
        assert_eq!(
            grown,
            format!(r#"{{"type":"total",{counter},"value":5,"known":true,"pending":0,"at_most":9,"ledger_index":0}}"#)
        );
        let both = LiveBody::Total(body(5, 12)).text();
        let rest = r#""value":-7,"known":true,"pending":0,"at_most":-3,"ledger_index":0,"up":5,"down":12}"#;
        assert_eq!(both, format!(r#"{{"type":"total",{counter},{rest}"#));
        for (text, told) in [(grown, body(5, 0)), (both, body(5, 12))] {
            assert_eq!(serde_json::from_str::<LiveBody>(&text).unwrap(), LiveBody::Total(told));
        }
    }
}
