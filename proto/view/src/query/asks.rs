//! Questions between aggregators of one data centre: the answering aggregator asks the holders of the shards that it does not
//! hold.

use super::gathered::{COUNTS_BUCKETS_MAX, Counts, SHARD_ASK_COUNTERS_MAX};
use super::inquiry::{CountsAnswer, CountsAsk, Cut};
use super::wanted::WANTED_RUNS_MAX;
use super::{KeyRange, Of, Page};
use crate::view::View;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use tidemark_ledger::ledger::Ledger;
use tidemark_types::ids::CounterName;
use tidemark_types::limits::{
    GRANULARITIES_MAX, KEY_BYTES_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, NAMESPACES_MAX, SHARDS_MAX,
};
use tidemark_wire::read::{READ_COUNTERS_MAX, ReadValues};
use tidemark_wire::shards::{Lineage, Ranges, ShardId, ShardMask};
use tidemark_wire::wire::{Message, Tail, WireError};

/// Counters that one question about a range of keys looks at; of totals as many again.
pub const SHARD_SCAN_MAX: u32 = 1_024;
const PAGE_COUNTERS_MAX: usize = 2 * SHARD_SCAN_MAX as usize;

const HEAD_BYTES: usize = 1_024;
const MASK_BYTES_MAX: usize = 10;
const _: () = assert!(
    HEAD_BYTES + SHARD_ASK_COUNTERS_MAX * (NAME_BYTES_MAX + MASK_BYTES_MAX) + SHARDS_MAX * 3 + WANTED_RUNS_MAX * 11
        <= MESSAGE_BYTES_MAX
);
const _: () = assert!(HEAD_BYTES + PAGE_COUNTERS_MAX * NAME_BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(SHARD_ASK_COUNTERS_MAX <= READ_COUNTERS_MAX);

/// A question of one aggregator to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShardAsk {
    /// The own counts of counters, which are in shards that it holds.
    Readings { counters: Vec<CounterName> },
    /// The counts that shards add to counters.
    Counts(CountsAsk),
    /// The next counters of a range of keys that are in these shards: at most `most` are looked at, and for totals as many again.
    Scan { of: Of, shards: BTreeSet<ShardId>, keys: KeyRange, most: u32 },
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShardAnswer {
    /// All of them, in the order asked.
    Readings(ReadValues),
    Counts(CountsAnswer),
    Page(Page),
    /// A shard that was asked for is not held, so another one has to be asked.
    NotHeld,
    /// The view shows nothing yet.
    NotShown,
}

impl ShardAsk {
    /// The shards that the answering aggregator has to hold.
    pub fn shards(&self, ranges: &Ranges) -> BTreeSet<ShardId> {
        match self {
            ShardAsk::Readings { counters } => counters.iter().map(|counter| ranges.find(counter)).collect(),
            ShardAsk::Counts(CountsAsk { shards, .. }) | ShardAsk::Scan { shards, .. } => shards.clone(),
        }
    }
}

impl CountsAsk {
    /// The same with each split shard replaced by its parts: the asking aggregator does not know of the split yet.
    pub fn of_parts(mut self, lineage: &Lineage) -> CountsAsk {
        for shard in std::mem::take(&mut self.shards) {
            let now = lineage.finest(shard);
            let parts = now.iter().fold(ShardMask::NONE, |mask, &part| mask.with(ShardMask::of(part)));
            self.masks.iter_mut().filter(|mask| mask.has(shard)).for_each(|mask| *mask = mask.with(parts));
            self.shards.extend(now);
        }
        self
    }
}

/// Own counts from a view that holds the counters' shards.
pub fn readings(view: &View, ledger: &Ledger, counters: &[CounterName]) -> ReadValues {
    let values = counters.iter().map(|counter| view.read(counter, ledger).into()).collect();
    ReadValues { ledger_index: ledger.applied().0, values }
}

fn at_most(what: &'static str, value: u64, max: u64) -> Result<(), WireError> {
    if value > max { Err(WireError::Limit { what, value, max }) } else { Ok(()) }
}

fn counters_valid(counters: &[CounterName], max: usize) -> Result<(), WireError> {
    at_most("counters of a question or an answer", counters.len() as u64, max as u64)?;
    counters.iter().try_for_each(|counter| Ok(counter.validate()?))
}

fn namespace_valid(namespace: &str) -> Result<(), WireError> {
    Ok(CounterName::check(namespace, b"-")?)
}

fn shards_valid(shards: &BTreeSet<ShardId>) -> Result<(), WireError> {
    at_most("shard", shards.last().map_or(0, |shard| shard.0.into()), SHARDS_MAX as u64 - 1)
}

fn cut_valid(cut: Option<Cut>) -> Result<(), WireError> {
    cut.map_or(Ok(()), |cut| at_most("bucket", cut.index.into(), cut.granularity.index_max().into()))
}

pub(crate) fn keys_valid(keys: &KeyRange) -> Result<(), WireError> {
    namespace_valid(&keys.namespace)?;
    let KeyRange { prefix, after, before, .. } = keys;
    let all = [prefix].into_iter().chain(after).chain(before);
    all.map(Vec::len).try_for_each(|bytes| at_most("bytes of a key", bytes as u64, KEY_BYTES_MAX as u64))
}

impl Message for ShardAsk {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        match self {
            ShardAsk::Readings { counters } => counters_valid(counters, SHARD_ASK_COUNTERS_MAX),
            ShardAsk::Counts(CountsAsk { of, shards, counters, wanted, from, masks }) => {
                counters_valid(counters, SHARD_ASK_COUNTERS_MAX)?;
                if masks.len() != if *of == Of::Total { counters.len() } else { 0 } {
                    return Err(WireError::Malformed(format!("{} masks of {} counters", masks.len(), counters.len())));
                }
                shards_valid(shards)?;
                cut_valid(*from)?;
                let (runs, are_in_order) = wanted.shape();
                at_most("runs of buckets", runs as u64, WANTED_RUNS_MAX as u64)?;
                if are_in_order { Ok(()) } else { Err(WireError::Malformed("runs of buckets out of order".to_owned())) }
            }
            ShardAsk::Scan { shards, keys, most, .. } => {
                at_most("counters of a page", u64::from(*most), SHARD_SCAN_MAX.into())?;
                shards_valid(shards)?;
                keys_valid(keys)
            }
        }
    }
}

impl Message for ShardAnswer {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        match self {
            ShardAnswer::Readings(values) => {
                at_most("values of an answer", values.values.len() as u64, SHARD_ASK_COUNTERS_MAX as u64)
            }
            ShardAnswer::Counts(CountsAnswer { counts, cut, horizons }) => {
                at_most("counters of an answer", counts.len() as u64, SHARD_ASK_COUNTERS_MAX as u64)?;
                let buckets: usize = counts.iter().map(Counts::len).sum();
                at_most("buckets of an answer", buckets as u64, COUNTS_BUCKETS_MAX as u64)?;
                cut_valid(*cut)?;
                at_most("namespaces of an answer", horizons.len() as u64, NAMESPACES_MAX as u64)?;
                horizons.iter().try_for_each(|(namespace, horizon)| {
                    at_most("granularities of a namespace", horizon.first().len() as u64, GRANULARITIES_MAX as u64)?;
                    namespace_valid(namespace)
                })
            }
            ShardAnswer::Page(Page { counters, next }) => {
                counters_valid(counters, PAGE_COUNTERS_MAX)?;
                at_most("bytes of a key", next.as_ref().map_or(0, Vec::len) as u64, KEY_BYTES_MAX as u64)
            }
            ShardAnswer::NotHeld | ShardAnswer::NotShown => Ok(()),
        }
    }
}

/// A reading as reads have it, and the ledger index beside it.
pub(super) mod reading {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use tidemark_wire::msg::Reading;
    use tidemark_wire::read::ReadValue;

    pub fn serialize<S: Serializer>(reading: &Option<Reading>, serializer: S) -> Result<S::Ok, S::Error> {
        reading.map(|reading| (ReadValue::from(reading), reading.ledger_index)).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Reading>, D::Error> {
        let read = Option::<(ReadValue, u64)>::deserialize(deserializer)?;
        Ok(read.map(|(ReadValue { up, pending, at_most, generation, down }, ledger_index)| Reading {
            up,
            pending,
            at_most,
            ledger_index,
            generation,
            down,
        }))
    }
}

/// Totals as pieces, each in the encoding of rows: full ones but for the last, which is not empty.
pub(super) mod pieces {
    use super::COUNTS_BUCKETS_MAX;
    use serde::de::{Deserializer, Error, SeqAccess, Visitor};
    use serde::ser::{Error as _, SerializeSeq, Serializer};
    use serde::{Deserialize, Serialize};
    use std::fmt;
    use tidemark_types::limits::ROW_BUCKETS_MAX;
    use tidemark_types::series::{BucketId, Totals, codec};

    struct Piece(Totals);

    impl Serialize for Piece {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(&codec::encode_totals(&self.0).map_err(S::Error::custom)?)
        }
    }

    impl<'de> Deserialize<'de> for Piece {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Piece, D::Error> {
            deserializer.deserialize_bytes(Encoded)
        }
    }

    struct Encoded;

    impl Visitor<'_> for Encoded {
        type Value = Piece;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("encoded totals")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Piece, E> {
            codec::decode_totals(bytes).map(Piece).map_err(E::custom)
        }
    }

    struct Pieces;

    impl<'de> Visitor<'de> for Pieces {
        type Value = Totals;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("pieces of totals, ascending")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut pieces: A) -> Result<Totals, A::Error> {
            let mut all: Vec<(BucketId, u64)> = Vec::new();
            while let Some(Piece(piece)) = pieces.next_element()? {
                let first = piece.buckets().next().map(|(bucket, _)| bucket);
                let goes_on = first > all.last().map(|&(bucket, _)| bucket);
                if !goes_on || !all.len().is_multiple_of(ROW_BUCKETS_MAX) || all.len() >= COUNTS_BUCKETS_MAX {
                    return Err(A::Error::custom("a piece of totals that does not go on where the one before ends"));
                }
                all.extend(piece.buckets());
            }
            Ok(Totals::from_buckets(all))
        }
    }

    pub fn serialize<S: Serializer>(totals: &Totals, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pieces = serializer.serialize_seq(Some(totals.len().div_ceil(ROW_BUCKETS_MAX)))?;
        let mut buckets = totals.buckets().peekable();
        while buckets.peek().is_some() {
            pieces.serialize_element(&Piece(Totals::from_buckets(buckets.by_ref().take(ROW_BUCKETS_MAX))))?;
        }
        pieces.end()
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Totals, D::Error> {
        deserializer.deserialize_seq(Pieces)
    }
}
