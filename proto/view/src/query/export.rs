//! The shown counts of counters, cut so that they can be counted again elsewhere: for each half the finest kept buckets, and the
//! rest that is in no bucket.
//!
//! Buckets nest, and the finer ones expire first. So each written bucket leaves out the counts of its finer ones: the rest stands
//! at its beginning, where no finer bucket is kept any more. Counted at those times under the same policy, each bucket gets its
//! count again.

use super::read::{Buckets, Source};
use std::collections::BTreeMap;
use tidemark_types::ids::{CounterName, Half};
use tidemark_types::series::{BucketId, Granularity, UnixTime};

/// One half of a counter; all of it adds up to the shown value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportedHalf {
    /// Ascending times, each with its count.
    pub parts: Vec<(UnixTime, u64)>,
    /// The shown count that is in no bucket.
    pub rest: u64,
}

/// A counter's own counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    pub counter: CounterName,
    pub up: ExportedHalf,
    pub down: ExportedHalf,
}

impl Exported {
    /// The number of its times.
    pub fn len(&self) -> usize {
        self.up.parts.len() + self.down.parts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads a counter.
pub fn export(source: &impl Source, counter: &CounterName) -> Exported {
    let reading = source.reading(counter);
    let half = |half, shown| {
        let mut sums: BTreeMap<BucketId, u64> = BTreeMap::new();
        if let Some(horizon) = source.horizon(counter.namespace()).filter(|_| shown > 0) {
            for rows in source.rows(counter, half, reading.generation) {
                let mut add = |(bucket, value)| {
                    let sum = sums.entry(bucket).or_default();
                    *sum = sum.saturating_add(value);
                };
                match rows {
                    Buckets::Row(row) => {
                        row.whole().buckets().filter(|(bucket, _)| horizon.keeps(*bucket)).for_each(&mut add)
                    }
                    Buckets::Sums(own) => own.buckets().filter(|(bucket, _)| horizon.keeps(*bucket)).for_each(&mut add),
                    // Counts that flow to a counter are counted elsewhere.
                    Buckets::Shares(_) => {}
                }
            }
        }
        cut(&sums, shown)
    };
    Exported { counter: counter.clone(), up: half(Half::Up, reading.up), down: half(Half::Down, reading.down) }
}

/// Turns buckets into parts with no more than `shown` in all, the earliest first.
fn cut(sums: &BTreeMap<BucketId, u64>, shown: u64) -> ExportedHalf {
    let mut kept: Vec<Granularity> = sums.keys().map(|bucket| bucket.granularity).collect();
    kept.dedup();
    let mut own = sums.clone();
    for pair in kept.windows(2) {
        let [finer, coarser] = [pair[0], pair[1]];
        for (bucket, value) in sums.iter().filter(|(bucket, _)| bucket.granularity == finer) {
            let around = BucketId { granularity: coarser, index: coarser.index_at(bucket.start()) };
            if let Some(left) = own.get_mut(&around) {
                *left = left.saturating_sub(*value);
            }
        }
    }
    let mut parts: BTreeMap<UnixTime, u64> = BTreeMap::new();
    for (bucket, value) in own.into_iter().filter(|(_, value)| *value > 0) {
        let part = parts.entry(bucket.start()).or_default();
        *part = part.saturating_add(value);
    }
    let mut left = shown;
    let mut said = Vec::with_capacity(parts.len());
    for (at, value) in parts {
        let value = value.min(left);
        left -= value;
        if value > 0 {
            said.push((at, value));
        }
    }
    ExportedHalf { parts: said, rest: left }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidemark_types::series::{Horizon, Kept, OutOfRange, Retention, Row, SeriesPolicy};

    fn policy() -> SeriesPolicy {
        let kept = |text: &str, ttl_s| Kept { granularity: text.parse().unwrap(), ttl_s };
        let kept = vec![kept("1m", 7_200), kept("1h", 200_000), kept("1d", 900_000)];
        SeriesPolicy::new(Retention::new(kept).unwrap(), 900_000, 300, OutOfRange::Refused).unwrap()
    }

    proptest! {
        #[test]
        fn what_is_counted_again_is_in_the_same_buckets(
            events in prop::collection::vec((0_u64..1_200_000, 1_u64..9), 0..60),
            begun in 0_u64..1_000_000,
        ) {
            let policy = policy();
            let end = UnixTime::default().plus(1_200_000);
            let mut horizon = Horizon::begin(&policy, UnixTime::default().plus(begun));
            let mut row = Row::default();
            let mut events = events;
            events.sort_unstable();
            for (at, delta) in events {
                let at = UnixTime::default().plus(at);
                horizon.advance(&policy, at);
                row.add(&horizon, at, delta).unwrap();
            }
            horizon.advance(&policy, end);
            row.expire(&horizon);
            let sums: BTreeMap<BucketId, u64> = row.buckets().collect();
            let total = row.buckets().filter(|(bucket, _)| bucket.granularity == "1d".parse().unwrap()).map(|(_, n)| n).sum::<u64>();
            let half = cut(&sums, total + 5);
            prop_assert_eq!(half.rest, 5);
            let mut again = Row::default();
            let fresh = Horizon::begin(&policy, end);
            for (at, delta) in &half.parts {
                again.add(&fresh, *at, *delta).unwrap();
            }
            prop_assert_eq!(again, row);
            let less = cut(&sums, total / 2);
            let said: u64 = less.parts.iter().map(|(_, value)| value).sum();
            prop_assert_eq!((said, less.rest), (total / 2, 0), "no more than is shown");
        }
    }
}
