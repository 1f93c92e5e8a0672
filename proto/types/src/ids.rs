//! Names and numbers of things: each its own type, one meaning each.

use crate::limits::{AGGREGATORS_MAX, DCS_MAX, KEY_BYTES_MAX, NAMESPACE_BYTES_MAX};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU64;

/// A data centre, as its index in the cluster's table of data centres.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DcId(pub u16);

/// An aggregator of a data centre. Each has a disk, a view of some or all ranges of counters, streams of gossip and a member of
/// the ledger of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u16", try_from = "u16")]
pub struct AggregatorId {
    pub dc: DcId,
    /// 0 is the first, 1 the second, and so on; below [`AGGREGATORS_MAX`].
    pub seat: u8,
}

/// One incarnation of a group: a replicated log inside a data centre with the valves that it hosts. The holder of rights
/// (the `v` of the protocol). A group that may have lost anything comes back under a new incarnation, never as the old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId {
    pub dc: DcId,
    /// Number of the group inside its data centre.
    pub group: u16,
    pub incarnation: u32,
}

/// One incarnation of a valve: a lane of a group's counting, the one writer of one component of every cell it touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ValveId {
    pub group: GroupId,
    pub lane: u8,
}

/// The owner of a client's streams: the first 8 bytes of the SHA-256 of the identity in its certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OwnerId(pub u64);

/// A front end process, new after every restart and every fence. The upper half names its owner ([`OwnerId`]); a node takes the
/// id from no other client. The lower half is drawn at random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ClientId(pub u128);

/// The digest of a browser session's token (the first 16 bytes of its SHA-256). Only the digest of a session is stored and sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct SessionId(pub [u8; 16]);

/// One process start of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Start {
    /// How many starts the group's log holds up to and with it; 0 before the first.
    pub number: u64,
    /// Drawn at random by the starting process: a copy of the disk draws another.
    pub nonce: u64,
}

/// A birth of the cluster: its founding, or its restore as a whole from images. Drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Birth(pub NonZeroU64);

/// Position of an entry in a replicated log; the first is 1, 0 means "nothing yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LogIndex(pub u64);

/// A namespace and a key: the name of a counter. Keys are ordered bytes such as `search/queries`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CounterName {
    namespace: String,
    #[serde(with = "serde_bytes_vec")]
    key: Vec<u8>,
}

/// Up or down: an up/down counter is two grow-only halves, and its value is their difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Half {
    #[default]
    Up,
    Down,
}

/// The all-time total or one time bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Bucket {
    #[default]
    Total,
    /// `[start_s, start_s + length_s)`, seconds since 1970 UTC.
    Span { length_s: u32, start_s: u64 },
}

/// The id of a cell: one number of a counter. Fixed for ever: logs, feeds and gossip name cells by it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CellId {
    pub counter: CounterName,
    /// Changes on reset.
    pub generation: u32,
    pub half: Half,
    pub bucket: Bucket,
}

/// Why a name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("namespace of {bytes} bytes: 1 to {NAMESPACE_BYTES_MAX} allowed")]
    NamespaceLength { bytes: usize },
    #[error("namespace {0:?}: only a-z, 0-9, '-', '_' and '.' allowed")]
    NamespaceCharacter(String),
    #[error("key of {bytes} bytes: 1 to {KEY_BYTES_MAX} allowed")]
    KeyLength { bytes: usize },
}

/// A number that names no aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("aggregator {0}: below {limit} allowed", limit = DCS_MAX * AGGREGATORS_MAX as u16)]
pub struct NoAggregator(u16);

/// The first aggregators of all data centres come first, so that a layout without pairs has the numbers of its data centres.
impl From<AggregatorId> for u16 {
    fn from(aggregator: AggregatorId) -> u16 {
        aggregator.dc.0.saturating_add(u16::from(aggregator.seat) * DCS_MAX)
    }
}

impl TryFrom<u16> for AggregatorId {
    type Error = NoAggregator;

    fn try_from(number: u16) -> Result<AggregatorId, NoAggregator> {
        let seat = u8::try_from(number / DCS_MAX).ok().filter(|seat| *seat < AGGREGATORS_MAX);
        seat.map(|seat| AggregatorId { dc: DcId(number % DCS_MAX), seat }).ok_or(NoAggregator(number))
    }
}

impl AggregatorId {
    /// All that a data centre may have.
    pub fn all(dc: DcId) -> impl Iterator<Item = AggregatorId> {
        (0..AGGREGATORS_MAX).map(move |seat| AggregatorId { dc, seat })
    }

    /// Whether it is the first aggregator of its data centre: at first, only its member of the ledger votes.
    pub fn is_first(self) -> bool {
        self.seat == 0
    }
}

/// The first aggregator of a data centre: the only one, where it has no others.
impl From<DcId> for AggregatorId {
    fn from(dc: DcId) -> AggregatorId {
        AggregatorId { dc, seat: 0 }
    }
}

impl fmt::Display for AggregatorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.dc.0, self.seat)
    }
}

impl CounterName {
    /// A counter's name. Errors: [`NameError`], with the value and the limit.
    pub fn new(namespace: &str, key: &[u8]) -> Result<CounterName, NameError> {
        Self::check(namespace, key)?;
        Ok(CounterName { namespace: namespace.to_owned(), key: key.to_vec() })
    }

    /// Checked again on everything decoded, because derived decoding does not go through `new`.
    pub fn validate(&self) -> Result<(), NameError> {
        Self::check(&self.namespace, &self.key)
    }

    /// Checks whether [`CounterName::new`] takes them.
    pub fn check(namespace: &str, key: &[u8]) -> Result<(), NameError> {
        let bytes = namespace.len();
        if bytes == 0 || bytes > NAMESPACE_BYTES_MAX {
            return Err(NameError::NamespaceLength { bytes });
        }
        if !namespace.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b)) {
            return Err(NameError::NamespaceCharacter(namespace.to_owned()));
        }
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(NameError::KeyLength { bytes: key.len() });
        }
        Ok(())
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The cell of this counter's all-time total, first generation, up half.
    pub fn total(&self) -> CellId {
        self.total_of(0)
    }

    /// The cell of its all-time total since it began again for the `generation`-th time, up half.
    pub fn total_of(&self, generation: u32) -> CellId {
        self.half_of(Half::Up, generation)
    }

    /// The cell of one half of its all-time total in a generation.
    pub fn half_of(&self, half: Half, generation: u32) -> CellId {
        CellId { counter: self.clone(), generation, half, bucket: Bucket::Total }
    }
}

/// A key as text: itself where it is UTF-8, with `%` as `%25` and every other byte as `%XX`. Percent-decoding gives the key back.
pub fn key_text(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    for chunk in key.utf8_chunks() {
        text.push_str(&chunk.valid().replace('%', "%25"));
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("%{byte:02X}")));
    }
    text
}

/// `NAMESPACE/KEY`, the one spelling of a counter's name: in messages, logs, JSON and on the command line.
impl fmt::Display for CounterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, key_text(&self.key))
    }
}

impl fmt::Debug for CounterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}#{}", self.dc.0, self.group, self.incarnation)
    }
}

impl ClientId {
    /// An id of the owner.
    pub fn new(owner: OwnerId, random: u64) -> ClientId {
        ClientId(u128::from(owner.0) << 64 | u128::from(random))
    }

    /// The client that may use the id.
    pub fn owner(self) -> OwnerId {
        OwnerId((self.0 >> 64) as u64)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client-{:x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session-{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl LogIndex {
    pub fn next(self) -> LogIndex {
        LogIndex(self.0 + 1)
    }
}

/// Byte strings as byte strings, not as sequences of numbers.
pub mod serde_bytes_vec {
    use serde::{Deserializer, Serializer, de::Visitor};

    pub fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(bytes)
    }

    struct Bytes;

    impl Visitor<'_> for Bytes {
        type Value = Vec<u8>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a byte string")
        }
        fn visit_bytes<E>(self, v: &[u8]) -> Result<Vec<u8>, E> {
            Ok(v.to_vec())
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        d.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outside_the_limits_are_refused_with_value_and_limit() {
        let long = "x".repeat(NAMESPACE_BYTES_MAX + 1);
        assert_eq!(CounterName::new(&long, b"k"), Err(NameError::NamespaceLength { bytes: NAMESPACE_BYTES_MAX + 1 }));
        assert_eq!(CounterName::new("Search", b"k"), Err(NameError::NamespaceCharacter("Search".into())));
        let err = CounterName::new("search", &[0; KEY_BYTES_MAX + 1]).unwrap_err();
        assert_eq!(err.to_string(), "key of 256 bytes: 1 to 255 allowed");
        assert!(CounterName::new("search", b"queries").is_ok());
    }
}
