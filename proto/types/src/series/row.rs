//! The packed row of one component: all buckets, of all granularities, of one counter's generation and half that one valve
//! incarnation has counted.
//!
//! The writer adds, every other holder merges by maximum per bucket, and both drop buckets that the horizon does not keep. So
//! rows form a semilattice, expiry commutes with merging, and parts of rows (in gossip) and pieces of rows (in a store) are rows
//! too.

use super::{BucketId, Granularity, Horizon, UnixTime, codec};
use crate::limits::COMPONENT_MAX;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};
use std::fmt;
use std::ops::Range;

/// A longer incoming row is merged in one pass instead of bucket by bucket.
const INSERTS_MAX: usize = 16;
/// The least number of further buckets that a full row makes room for.
const ROOM_MIN: usize = 4;

/// Buckets by granularity and index, each with a value above 0. An absent bucket is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Ascending keys.
    buckets: Vec<(Key, u64)>,
}

/// As bytes, in the encoding of rows at rest ([`codec`](super::codec)); only rows that fit one can be sent.
impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&codec::encode(self).map_err(ser::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Row, D::Error> {
        deserializer.deserialize_bytes(Encoded)
    }
}

struct Encoded;

impl Visitor<'_> for Encoded {
    type Value = Row;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an encoded row")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Row, E> {
        codec::decode(bytes).map_err(E::custom)
    }
}

/// Granularity and index, ordered as [`BucketId`]s are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u64);

/// The buckets that hold a time, as far as they are kept. Where many rows are added to at one time, they are looked up once.
#[derive(Clone, Debug, Default)]
pub struct Places(Vec<Key>);

impl Places {
    pub fn of(horizon: &Horizon, event: UnixTime) -> Places {
        Places(kept_buckets(horizon, event).map(Key::from).collect())
    }
}

/// A bucket would hold more than [`COMPONENT_MAX`]. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bucket {} of {} holds {value}: {delta} more would pass {COMPONENT_MAX}", bucket.index, bucket.granularity)]
pub struct BucketFull {
    pub bucket: BucketId,
    pub value: u64,
    pub delta: u64,
}

impl From<BucketId> for Key {
    fn from(bucket: BucketId) -> Key {
        Key(u64::from(bucket.granularity.code()) << 32 | u64::from(bucket.index))
    }
}

impl Key {
    pub(super) fn bucket(self) -> BucketId {
        BucketId { granularity: self.granularity(), index: self.index() }
    }

    pub(super) fn granularity(self) -> Granularity {
        Granularity::ALL[(self.0 >> 32) as usize]
    }

    pub(super) fn index(self) -> u32 {
        self.0 as u32
    }
}

impl Row {
    /// A row of these buckets; those of value 0 are left out, and the larger value of a duplicate stays.
    pub fn from_buckets(buckets: impl IntoIterator<Item = (BucketId, u64)>) -> Row {
        let held = buckets.into_iter().filter(|&(_, value)| value > 0);
        let mut buckets: Vec<(Key, u64)> = held.map(|(bucket, value)| (bucket.into(), value)).collect();
        buckets.sort_unstable_by_key(|&(key, value)| (key, std::cmp::Reverse(value)));
        buckets.dedup_by_key(|&mut (key, _)| key);
        Row { buckets }
    }

    /// The row of these pieces, merged.
    pub fn of_pieces(pieces: impl IntoIterator<Item = Row>) -> Row {
        let mut pieces = pieces.into_iter();
        let first = pieces.next().unwrap_or_default();
        match pieces.next() {
            None => first,
            Some(second) => {
                let all = [first, second].into_iter().chain(pieces).flat_map(|piece| piece.buckets);
                Row::from_buckets(all.map(|(key, value)| (key.bucket(), value)))
            }
        }
    }

    /// A row of buckets in order, each with a value above 0.
    pub(super) fn of_ascending(buckets: Vec<(Key, u64)>) -> Row {
        debug_assert!(buckets.is_sorted_by(|a, b| a.0 < b.0) && buckets.iter().all(|&(_, value)| value > 0));
        Row { buckets }
    }

    pub(super) fn ascending(&self) -> &[(Key, u64)] {
        &self.buckets
    }

    /// The number of buckets.
    pub fn len(&self) -> usize {
        self.buckets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// The buckets in order of granularity, then time.
    pub fn buckets(&self) -> impl ExactSizeIterator<Item = (BucketId, u64)> + '_ {
        self.buckets.iter().map(|&(key, value)| (key.bucket(), value))
    }

    /// The largest value.
    pub fn most(&self) -> u64 {
        self.buckets.iter().map(|&(_, value)| value).max().unwrap_or_default()
    }

    pub fn get(&self, bucket: BucketId) -> u64 {
        self.find(bucket.into()).map_or(0, |at| self.buckets[at].1)
    }

    /// The sum over buckets of one granularity. Saturates, as sums of components do.
    pub fn sum(&self, granularity: Granularity, indexes: Range<u32>) -> u64 {
        range(&self.buckets, granularity, indexes).fold(0, |sum: u64, (_, value)| sum.saturating_add(value))
    }

    /// The buckets of one granularity in a range, ascending.
    pub fn within(&self, granularity: Granularity, indexes: Range<u32>) -> impl Iterator<Item = (BucketId, u64)> + '_ {
        range(&self.buckets, granularity, indexes).map(|(key, value)| (key.bucket(), value))
    }

    /// Adds to the bucket of each granularity that holds the time and is kept, and returns the number of those buckets. Only the
    /// writer calls it, for events that [`SeriesState::admit`](super::SeriesState::admit) admitted to buckets. The values of
    /// those buckets must be here, not in a piece elsewhere. Error: one of them would be too large; nothing was changed.
    pub fn add(&mut self, horizon: &Horizon, event: UnixTime, delta: u64) -> Result<usize, BucketFull> {
        self.add_to(&Places::of(horizon, event), delta)
    }

    /// The same to the buckets of a time that were looked up before.
    pub fn add_to(&mut self, Places(places): &Places, delta: u64) -> Result<usize, BucketFull> {
        if delta == 0 {
            return Ok(0);
        }
        for &key in places {
            let value = self.find(key).map_or(0, |at| self.buckets[at].1);
            if delta > COMPONENT_MAX.saturating_sub(value) {
                return Err(BucketFull { bucket: key.bucket(), value, delta });
            }
        }
        for &key in places {
            match self.find(key) {
                Ok(at) => self.buckets[at].1 += delta,
                Err(at) => self.insert(at, key, delta),
            }
        }
        Ok(places.len())
    }

    /// Raises each bucket that is kept to at least the other row's value, and says whether anything changed.
    pub fn merge(&mut self, other: &Row, horizon: &Horizon) -> bool {
        self.merge_with(other, horizon, |_, _| {})
    }

    /// The same; reports how much each raised bucket gained. The caller adds as much to the totals that contain this row.
    pub fn merge_with(&mut self, other: &Row, horizon: &Horizon, mut raised: impl FnMut(BucketId, u64)) -> bool {
        if other.len() > INSERTS_MAX {
            return self.merge_in_one_pass(other, horizon, raised);
        }
        let mut any = false;
        for &(key, value) in other.buckets.iter().filter(|(key, _)| horizon.keeps(key.bucket())) {
            let found = self.find(key);
            let held = found.map_or(0, |at| self.buckets[at].1);
            if held >= value {
                continue;
            }
            match found {
                Ok(at) => self.buckets[at].1 = value,
                Err(at) => self.insert(at, key, value),
            }
            raised(key.bucket(), value - held);
            any = true;
        }
        any
    }

    fn merge_in_one_pass(&mut self, other: &Row, horizon: &Horizon, mut raised: impl FnMut(BucketId, u64)) -> bool {
        let mut any = false;
        let own = std::mem::take(&mut self.buckets);
        self.buckets.reserve_exact(own.len() + other.len());
        let mut own = own.into_iter().peekable();
        for &(key, value) in other.buckets.iter().filter(|(key, _)| horizon.keeps(key.bucket())) {
            while let Some(before) = own.next_if(|held| held.0 < key) {
                self.buckets.push(before);
            }
            let held = own.next_if(|held| held.0 == key).map_or(0, |held| held.1);
            if value > held {
                raised(key.bucket(), value - held);
                any = true;
            }
            self.buckets.push((key, value.max(held)));
        }
        self.buckets.extend(own);
        self.buckets.shrink_to_fit();
        any
    }

    /// Adds each bucket of another row, of the same component, which counted other increments: none is too large then.
    pub fn add_row(&mut self, other: &Row) {
        let own = std::mem::take(&mut self.buckets);
        self.buckets.reserve_exact(own.len() + other.len());
        let mut own = own.into_iter().peekable();
        for &(key, value) in &other.buckets {
            while let Some(before) = own.next_if(|held| held.0 < key) {
                self.buckets.push(before);
            }
            let held = own.next_if(|held| held.0 == key).map_or(0, |held| held.1);
            self.buckets.push((key, held.saturating_add(value)));
        }
        self.buckets.extend(own);
    }

    /// Drops buckets that are not kept, and returns their number.
    pub fn expire(&mut self, horizon: &Horizon) -> usize {
        let before = self.buckets.len();
        self.buckets.retain(|&(key, _)| horizon.keeps(key.bucket()));
        before - self.buckets.len()
    }

    /// The part that holds these times: the part to send after increments of those times.
    pub fn holding(&self, horizon: &Horizon, events: impl IntoIterator<Item = UnixTime>) -> Row {
        let touched = events.into_iter().flat_map(|event| kept_buckets(horizon, event));
        Row::from_buckets(touched.map(|bucket| (bucket, self.get(bucket))))
    }

    /// The part that ends after a time. With [`SeriesState::closed_before`](super::SeriesState::closed_before) of some moment
    /// this has at least all changes since that moment: the part to send to a peer with unknown progress.
    pub fn since(&self, closed_before: UnixTime) -> Row {
        let open = self.buckets.iter().filter(|(key, _)| key.bucket().end() > closed_before);
        Row { buckets: open.copied().collect() }
    }

    /// Splits off the buckets that ended by `closed_before`, one row for each granularity that has at least `least` such buckets,
    /// to be written once and read together with this row ([`Row::merge`]). Each is cut into pieces of at most `most` buckets.
    pub fn take_closed(&mut self, closed_before: UnixTime, least: usize, most: usize) -> Vec<Row> {
        let mut taken = Vec::new();
        let mut left = Vec::with_capacity(self.buckets.len());
        for level in self.buckets.chunk_by(|a, b| a.0.bucket().granularity == b.0.bucket().granularity) {
            let closed = level.partition_point(|(key, _)| key.bucket().end() <= closed_before);
            let closed = if closed < least { 0 } else { closed };
            taken.extend(level[..closed].chunks(most.max(1)).map(|piece| Row { buckets: piece.to_vec() }));
            left.extend_from_slice(&level[closed..]);
        }
        if !taken.is_empty() {
            left.shrink_to_fit();
            self.buckets = left;
        }
        taken
    }

    /// The number of buckets that [`Row::take_closed`] would split off, at least one of a granularity.
    pub fn count_closed(&self, closed_before: UnixTime) -> usize {
        count_closed(&self.buckets, closed_before)
    }

    /// The row in pieces of at most `most` buckets, in order: they merge to the row.
    pub fn pieces(&self, most: usize) -> impl Iterator<Item = Row> + '_ {
        self.buckets.chunks(most.max(1)).map(|piece| Row { buckets: piece.to_vec() })
    }

    /// Reads the memory that an increment of now will read.
    pub fn warm(&self) -> u64 {
        self.buckets.last().map_or(0, |&(_, value)| value)
    }

    /// Bytes of its buckets. About as many are allocated ([`Row::heap_bytes`]).
    pub fn bucket_bytes(&self) -> usize {
        self.buckets.len() * size_of::<(Key, u64)>()
    }

    /// Puts a bucket in order. Room grows by an eighth: rows are most of the memory of series, and mostly longer than they grow.
    fn insert(&mut self, at: usize, key: Key, value: u64) {
        if self.buckets.len() == self.buckets.capacity() {
            self.buckets.reserve_exact(ROOM_MIN.max(self.buckets.len() / 8));
        }
        self.buckets.insert(at, (key, value));
    }

    /// Bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<(Key, u64)>()
    }

    /// Panics when buckets are out of order, empty or too large.
    pub fn check_invariants(&self) {
        assert!(self.buckets.is_sorted_by(|a, b| a.0 < b.0), "buckets ascend");
        assert!(self.buckets.iter().all(|&(_, value)| value > 0 && value <= COMPONENT_MAX), "values of buckets");
        assert!(self.buckets().all(|(id, _)| id.index <= id.granularity.index_max()), "indexes of buckets");
    }

    fn find(&self, key: Key) -> Result<usize, usize> {
        self.buckets.binary_search_by_key(&key, |&(held, _)| held)
    }
}

/// The number of these buckets, in order, that ended by a time.
pub(super) fn count_closed(buckets: &[(Key, u64)], closed_before: UnixTime) -> usize {
    let mut rest = buckets;
    let mut count = 0;
    while let Some((first, _)) = rest.first() {
        let (level, behind) = rest.split_at(rest.partition_point(|(key, _)| key.granularity() == first.granularity()));
        count += level.partition_point(|(key, _)| key.bucket().end() <= closed_before);
        rest = behind;
    }
    count
}

/// A granularity's buckets in a range, of buckets in order.
pub(super) fn range(
    buckets: &[(Key, u64)],
    granularity: Granularity,
    indexes: Range<u32>,
) -> impl Iterator<Item = (Key, u64)> + '_ {
    let key = move |index| Key::from(BucketId { granularity, index });
    let from = buckets.partition_point(|&(held, _)| held < key(indexes.start));
    let end = key(indexes.end);
    buckets[from..].iter().copied().take_while(move |&(held, _)| held < end)
}

/// The buckets that hold a time, as far as they are kept.
fn kept_buckets(horizon: &Horizon, event: UnixTime) -> impl Iterator<Item = BucketId> + '_ {
    let at = move |&(granularity, first): &(Granularity, u32)| {
        let index = granularity.index_at(event);
        (index >= first).then_some(BucketId { granularity, index })
    };
    horizon.first().iter().filter_map(at)
}
