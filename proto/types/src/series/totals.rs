//! The buckets of a total: sums over rows of many counters and valves, with additions and subtractions.
//!
//! A view keeps one for each counter that others flow to (see [`graph`](crate::graph)). A raise of a bucket of a direct count
//! raises the totals by as much ([`Row::merge_with`] reports it). A pair of an edge change adds or subtracts whole rows. No total
//! is merged with another, and a total is sent only to an aggregator that answers a read with it.
//!
//! Sums are taken modulo 2^64. So the order of additions and subtractions does not matter, and the result is exact as long as the
//! true sum is below that.

use super::row::{Key, count_closed, range};
use super::{BucketId, Granularity, Horizon, Row, UnixTime};
use std::ops::Range;

/// Buckets with sums other than 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Ascending keys.
    buckets: Vec<(Key, u64)>,
}

impl Totals {
    /// Totals of these buckets; the values of duplicates are added up.
    pub fn from_buckets(buckets: impl IntoIterator<Item = (BucketId, u64)>) -> Totals {
        let mut buckets: Vec<(Key, u64)> = buckets.into_iter().map(|(bucket, value)| (bucket.into(), value)).collect();
        buckets.sort_unstable_by_key(|&(key, _)| key);
        let mut totals = Totals::default();
        totals.combine(buckets.into_iter(), u64::wrapping_add);
        totals
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

    /// The sum over buckets of one granularity, saturating, for [`Cover::read_with`](super::Cover::read_with).
    pub fn sum(&self, granularity: Granularity, indexes: Range<u32>) -> u64 {
        range(&self.buckets, granularity, indexes).fold(0, |sum: u64, (_, value)| sum.saturating_add(value))
    }

    /// The buckets of one granularity in a range, ascending.
    pub fn within(&self, granularity: Granularity, indexes: Range<u32>) -> impl Iterator<Item = (BucketId, u64)> + '_ {
        range(&self.buckets, granularity, indexes).map(|(key, value)| (key.bucket(), value))
    }

    /// Adds to one bucket, if it is kept.
    pub fn raise(&mut self, bucket: BucketId, delta: u64, horizon: &Horizon) {
        let raised = horizon.keeps(bucket).then(|| (Key::from(bucket), delta));
        self.combine(raised.into_iter(), u64::wrapping_add);
    }

    /// Adds the kept part of a row.
    pub fn add(&mut self, row: &Row, horizon: &Horizon) {
        self.combine(kept(row, horizon), u64::wrapping_add);
    }

    /// Subtracts the kept part of a row: the part that was added before and has not expired since.
    pub fn take_off(&mut self, row: &Row, horizon: &Horizon) {
        self.combine(kept(row, horizon), u64::wrapping_sub);
    }

    /// Drops buckets that are not kept, and returns their number.
    pub fn expire(&mut self, horizon: &Horizon) -> usize {
        let before = self.buckets.len();
        self.buckets.retain(|&(key, _)| horizon.keeps(key.bucket()));
        before - self.buckets.len()
    }

    /// The number of buckets that ended by a time.
    pub fn count_closed(&self, closed_before: UnixTime) -> usize {
        count_closed(&self.buckets, closed_before)
    }

    /// Splits off the buckets that ended by a time.
    pub fn take_closed(&mut self, closed_before: UnixTime) -> Totals {
        let count = self.count_closed(closed_before);
        let mut closed = Vec::with_capacity(count);
        let mut left = Vec::with_capacity(self.buckets.len() - count);
        for &(key, value) in &self.buckets {
            let into = if key.bucket().end() <= closed_before { &mut closed } else { &mut left };
            into.push((key, value));
        }
        self.buckets = left;
        Totals { buckets: closed }
    }

    /// In pieces of at most `most` buckets, in order.
    pub fn pieces(&self, most: usize) -> impl Iterator<Item = Totals> + '_ {
        self.buckets.chunks(most.max(1)).map(|piece| Totals { buckets: piece.to_vec() })
    }

    /// Bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<(Key, u64)>()
    }

    /// Adds the kept part of other totals, or all.
    pub fn add_totals(&mut self, other: &Totals, horizon: Option<&Horizon>) {
        self.combine(other.kept(horizon), u64::wrapping_add);
    }

    /// Subtracts the kept part of other totals.
    pub fn take_off_totals(&mut self, other: &Totals, horizon: &Horizon) {
        self.combine(other.kept(Some(horizon)), u64::wrapping_sub);
    }

    fn kept<'a>(&'a self, horizon: Option<&'a Horizon>) -> impl Iterator<Item = (Key, u64)> + Clone + 'a {
        self.buckets.iter().copied().filter(move |(key, _)| horizon.is_none_or(|horizon| horizon.keeps(key.bucket())))
    }

    /// Combines with buckets in order; of a key that comes twice with both.
    fn combine(&mut self, others: impl Iterator<Item = (Key, u64)>, with: impl Fn(u64, u64) -> u64) {
        let mut at = 0;
        let mut any_zero = false;
        let mut missing: Vec<(Key, u64)> = Vec::new();
        for (key, value) in others {
            at += self.buckets[at..].partition_point(|&(held, _)| held < key);
            let found = self.buckets.get_mut(at).filter(|(held, _)| *held == key);
            let held = match found.or_else(|| missing.last_mut().filter(|(last, _)| *last == key)) {
                Some((_, held)) => held,
                None => {
                    missing.push((key, 0));
                    &mut missing.last_mut().expect("what was pushed").1
                }
            };
            *held = with(*held, value);
            any_zero |= *held == 0;
        }
        self.insert_all(&missing);
        if any_zero {
            self.buckets.retain(|&(_, value)| value != 0);
        }
    }

    /// Inserts buckets with none at their places yet, in order; from the back, so that each one moves once.
    fn insert_all(&mut self, missing: &[(Key, u64)]) {
        let mut held = self.buckets.len();
        self.buckets.reserve_exact(missing.len());
        self.buckets.extend_from_slice(missing);
        for (below, &bucket) in missing.iter().enumerate().rev() {
            let keep = self.buckets[..held].partition_point(|&(key, _)| key < bucket.0);
            self.buckets.copy_within(keep..held, keep + below + 1);
            self.buckets[keep + below] = bucket;
            held = keep;
        }
    }
}

fn kept<'a>(row: &'a Row, horizon: &'a Horizon) -> impl Iterator<Item = (Key, u64)> + 'a {
    row.buckets().filter(|&(bucket, _)| horizon.keeps(bucket)).map(|(bucket, value)| (Key::from(bucket), value))
}
