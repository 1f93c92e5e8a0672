//! Reads: client ↔ aggregator, on a channel of kind [`crate::wire::channel::READS`]. Pipelined: any number of requests may be
//! outstanding, answers come in any order and name their request. One request reads many counters: a library puts the single
//! reads of all its callers that wait at one moment into one request.
//!
//! Counters are named once per channel and numbered from then on, as increments are. Some 2 to 4 bytes per counter asked, 3 to
//! 13 per value answered.

use crate::msg::Reading;
use crate::wire::{Message, Tail, WireError, bounds::text};
use serde::{Deserialize, Serialize};
use tidemark_types::ids::CounterName;

/// Counters of one request. More: refused at decode. (With the longest names it still fits a message.)
pub const READ_COUNTERS_MAX: usize = 2_048;
/// Requests of one channel without an answer. More: [`ReadError::Overloaded`].
pub const READS_OUTSTANDING_MAX: usize = 1_024;
/// Largest number that a channel may give a counter; numbers are dense, so this is also how many it may name.
pub const READ_NUMBERS_MAX: u32 = 1 << 20;

/// Asks for the values of counters, in the order of `numbers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadRequest {
    /// Chosen by the client; distinct among its outstanding requests.
    pub id: u64,
    /// At least as new as every increment placed anywhere before the request (a ledger read index is taken first). Without it:
    /// the view's present state.
    pub strong: bool,
    /// Names of numbers first used on this channel. They stay, whatever the outcome of the request.
    pub defs: Vec<(u32, CounterName)>,
    pub numbers: Vec<u32>,
}

/// The answer to the request `id`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadResponse {
    pub id: u64,
    pub result: Result<ReadValues, ReadError>,
}

/// Values in the order asked. A counter without increments reads 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadValues {
    /// The ledger index that the view had applied; bounds are as of it.
    pub ledger_index: u64,
    pub values: Vec<ReadValue>,
}

/// One value: a [`Reading`] without the fields that are the same for a whole answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Encoded", into = "Encoded")]
pub struct ReadValue {
    pub up: u64,
    pub pending: u64,
    pub at_most: Option<u64>,
    /// The number of resets of the counter.
    pub generation: u32,
    pub down: u64,
}

/// A value on the wire: the tag of its bound also says whether anything was counted down, so that a counter which only grows takes no
/// byte for that.
#[derive(Clone, Serialize, Deserialize)]
struct Encoded {
    up: u64,
    pending: u64,
    rest: Rest,
    generation: u32,
}

#[derive(Clone, Serialize, Deserialize)]
enum Rest {
    Unbounded,
    AtMost(u64),
    Down { down: u64 },
    DownAtMost { down: u64, at_most: u64 },
}

impl From<ReadValue> for Encoded {
    fn from(value: ReadValue) -> Encoded {
        let ReadValue { up, pending, at_most, generation, down } = value;
        let rest = match (down, at_most) {
            (0, None) => Rest::Unbounded,
            (0, Some(at_most)) => Rest::AtMost(at_most),
            (down, None) => Rest::Down { down },
            (down, Some(at_most)) => Rest::DownAtMost { down, at_most },
        };
        Encoded { up, pending, rest, generation }
    }
}

impl From<Encoded> for ReadValue {
    fn from(encoded: Encoded) -> ReadValue {
        let Encoded { up, pending, rest, generation } = encoded;
        let (down, at_most) = match rest {
            Rest::Unbounded => (0, None),
            Rest::AtMost(at_most) => (0, Some(at_most)),
            Rest::Down { down } => (down, None),
            Rest::DownAtMost { down, at_most } => (down, Some(at_most)),
        };
        ReadValue { up, pending, at_most, generation, down }
    }
}

/// Why a request was not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ReadError {
    #[error("counter number {0} was not defined on this channel")]
    UnknownNumber(u32),
    #[error("unknown namespace {0:?}")]
    UnknownNamespace(String),
    #[error("overloaded: {what} is at its limit of {limit}")]
    Overloaded { what: String, limit: u64 },
    #[error("not serving: {0}")]
    NotServing(String),
}

impl ReadValues {
    /// The readings, in the order asked.
    pub fn readings(&self) -> impl ExactSizeIterator<Item = Reading> + '_ {
        let ledger_index = self.ledger_index;
        self.values.iter().map(move |&value| {
            let ReadValue { up, pending, at_most, generation, down } = value;
            Reading { up, pending, at_most, ledger_index, generation, down }
        })
    }
}

impl From<Reading> for ReadValue {
    fn from(reading: Reading) -> ReadValue {
        let Reading { up, pending, at_most, generation, down, .. } = reading;
        ReadValue { up, pending, at_most, generation, down }
    }
}

fn at_most(what: &'static str, value: u64, max: u64) -> Result<(), WireError> {
    if value > max { Err(WireError::Limit { what, value, max }) } else { Ok(()) }
}

impl Message for ReadRequest {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        at_most("counters of a read", self.numbers.len() as u64, READ_COUNTERS_MAX as u64)?;
        at_most("names of a read", self.defs.len() as u64, READ_COUNTERS_MAX as u64)?;
        self.defs.iter().try_for_each(|(number, name)| {
            at_most("number of a counter", u64::from(*number), u64::from(READ_NUMBERS_MAX - 1))?;
            Ok(name.validate()?)
        })
    }
}

impl Message for ReadResponse {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        match &self.result {
            Ok(values) => at_most("values of a read", values.values.len() as u64, READ_COUNTERS_MAX as u64),
            Err(ReadError::UnknownNumber(_)) => Ok(()),
            Err(ReadError::UnknownNamespace(namespace)) => Ok(CounterName::check(namespace, b"-")?),
            Err(ReadError::Overloaded { what, .. }) => text(what),
            Err(ReadError::NotServing(reason)) => text(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{WIRE_VERSION, decode, encode};
    use proptest::prelude::*;
    use tidemark_types::limits::{KEY_BYTES_MAX, MESSAGE_BYTES_MAX, NAMESPACE_BYTES_MAX};

    #[test]
    fn the_largest_request_and_answer_fit_a_message() {
        let name = CounterName::new(&"n".repeat(NAMESPACE_BYTES_MAX), &[b'k'; KEY_BYTES_MAX]).unwrap();
        let numbers: Vec<u32> = (READ_NUMBERS_MAX - READ_COUNTERS_MAX as u32..READ_NUMBERS_MAX).collect();
        let defs = numbers.iter().map(|number| (*number, name.clone())).collect();
        let request = ReadRequest { id: u64::MAX, strong: true, defs, numbers };
        let bytes = encode(&request);
        assert!(bytes.len() <= MESSAGE_BYTES_MAX);
        assert_eq!(decode(&bytes), Ok(request));
        let up = u64::MAX;
        let pending = u64::MAX;
        let at_most = Some(u64::MAX);
        let down = u64::MAX;
        let value = ReadValue { up, pending, at_most, generation: u32::MAX, down };
        let values = ReadValues { ledger_index: u64::MAX, values: vec![value; READ_COUNTERS_MAX] };
        assert!(encode(&ReadResponse { id: u64::MAX, result: Ok(values) }).len() <= MESSAGE_BYTES_MAX);
    }

    /// The encoding before there were up/down counters; no reader can tell the difference.
    #[derive(Serialize)]
    struct GrowOnlyValue {
        value: u64,
        pending: u64,
        at_most: Option<u64>,
        generation: u32,
    }

    proptest! {
        #[test]
        fn values_survive_and_those_that_only_grow_take_no_more_bytes(
            (up, pending, at_most, generation, down) in any::<(u64, u64, Option<u64>, u32, u64)>()
        ) {
            let value = ReadValue { up, pending, at_most, generation, down };
            let bytes = postcard::to_allocvec(&value).unwrap();
            prop_assert_eq!(postcard::from_bytes::<ReadValue>(&bytes).unwrap(), value);
            let grown = postcard::to_allocvec(&ReadValue { down: 0, ..value }).unwrap();
            let before = GrowOnlyValue { value: up, pending, at_most, generation };
            prop_assert_eq!(grown, postcard::to_allocvec(&before).unwrap());
        }
    }

    #[test]
    fn more_than_the_limit_is_refused_with_value_and_limit() {
        let request = ReadRequest { numbers: vec![0; READ_COUNTERS_MAX + 1], ..ReadRequest::default() };
        let expected = WireError::Limit {
            what: "counters of a read",
            value: READ_COUNTERS_MAX as u64 + 1,
            max: READ_COUNTERS_MAX as u64,
        };
        assert_eq!(decode::<ReadRequest>(&encode(&request)), Err(expected));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            bytes.insert(0, WIRE_VERSION);
            let _ = decode::<ReadRequest>(&bytes);
            let _ = decode::<ReadResponse>(&bytes);
        }
    }
}
