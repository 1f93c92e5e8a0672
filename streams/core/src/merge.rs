//! Merging: which blobs an owner replaces by fewer or by day blobs, and how their rows are cut by day.
//!
//! Two merges exist. Deltas become day blobs. Several blobs of one day become one. Either one is bounded by
//! [`MERGE_ROWS_MAX`], so a late row rewrites nothing but what its own merge reads.

use crate::blob::{BlobKey, BlobMeta, Level};
use crate::limits::{MERGE_BLOBS_MAX, MERGE_ROWS_MAX};
use crate::rollup::{Rollups, RowError};
use crate::time::Day;
use std::collections::{BTreeMap, BTreeSet};

/// When blobs are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergePolicy {
    /// Deltas that are merged together, at least.
    pub deltas_min: usize,
    /// Blobs of one day that are merged together, at least.
    pub day_blobs_min: usize,
    /// Rows that one merge reads, at most.
    pub rows_max: u64,
}

impl Default for MergePolicy {
    fn default() -> MergePolicy {
        MergePolicy { deltas_min: 16, day_blobs_min: 4, rows_max: MERGE_ROWS_MAX }
    }
}

impl MergePolicy {
    /// Merges whatever can be merged, as at the end of a source.
    pub fn sealing(self) -> MergePolicy {
        MergePolicy { deltas_min: 1, day_blobs_min: 2, rows_max: self.rows_max }
    }
}

/// The blobs that are merged next; nothing where none need it.
pub fn plan(live: &BTreeMap<BlobKey, BlobMeta>, policy: &MergePolicy) -> Vec<BlobMeta> {
    let deltas: Vec<BlobMeta> = live.values().filter(|meta| meta.level == Level::Delta).copied().collect();
    if deltas.len() >= policy.deltas_min.max(1) {
        return within(deltas, policy.rows_max, 1);
    }
    let mut by_day: BTreeMap<Day, Vec<BlobMeta>> = BTreeMap::new();
    for meta in live.values().filter(|meta| meta.level == Level::Day) {
        if let Some(day) = meta.hours.single_day() {
            by_day.entry(day).or_default().push(*meta);
        }
    }
    let many = by_day.into_values().filter(|blobs| blobs.len() >= policy.day_blobs_min.max(2));
    let mut plans = many.map(|blobs| within(blobs, policy.rows_max, 2)).filter(|blobs| blobs.len() > 1);
    plans.next().unwrap_or_default()
}

/// The smallest blobs, as many as their rows allow and at least `least`, unless two alone are too many.
fn within(mut blobs: Vec<BlobMeta>, rows_max: u64, least: usize) -> Vec<BlobMeta> {
    blobs.sort_by_key(|meta| (meta.rows, meta.key));
    let mut rows = 0_u64;
    let mut fits = |meta: &BlobMeta| {
        rows = rows.saturating_add(meta.rows);
        rows <= rows_max
    };
    let count = blobs.iter().position(|meta| !fits(meta)).unwrap_or(blobs.len());
    let count = if least == 1 { count.max(1) } else { count };
    blobs.truncate(count.min(MERGE_BLOBS_MAX));
    blobs
}

/// Cuts sorted rows by days, into at most [`MERGE_BLOBS_MAX`] sets. A set has one day unless there are more days than that.
///
/// # Errors
/// [`RowError::TooMuchText`] cannot happen for rows that came from one set.
pub fn cut_by_day(rows: &Rollups) -> Result<Vec<Rollups>, RowError> {
    let days: BTreeSet<Day> = rows.iter().map(|row| row.hour.day()).collect();
    let days_per_set = days.len().div_ceil(MERGE_BLOBS_MAX).max(1);
    let set_of: BTreeMap<Day, usize> = days.iter().enumerate().map(|(at, day)| (*day, at / days_per_set)).collect();
    let mut sets: Vec<Rollups> = (0..days.len().div_ceil(days_per_set)).map(|_| Rollups::new()).collect();
    for row in rows.iter() {
        sets[set_of[&row.hour.day()]].push(row)?;
    }
    Ok(sets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::{Epoch, PartitionId, Seq, StoredBlob};
    use crate::rollup::RollupRow;
    use crate::time::{Hour, HourRange};

    fn live(blobs: &[(Level, u32, u64)]) -> BTreeMap<BlobKey, BlobMeta> {
        let meta = |(at, (level, hour, rows)): (usize, &(Level, u32, u64))| BlobMeta {
            key: BlobKey { partition: PartitionId(0), epoch: Epoch(1), seq: Seq(at as u64), part: 0 },
            level: *level,
            hours: HourRange::of(Hour(*hour)),
            rows: *rows,
            total: *rows,
            stored: StoredBlob { bytes: 1, checksum: 0 },
        };
        blobs.iter().enumerate().map(meta).map(|meta| (meta.key, meta)).collect()
    }

    fn planned(blobs: &[(Level, u32, u64)], policy: MergePolicy) -> Vec<u64> {
        plan(&live(blobs), &policy).iter().map(|meta| meta.key.seq.0).collect()
    }

    #[test]
    fn merge_takes_deltas_first_then_a_day_with_many_blobs() {
        use Level::{Day, DeadLetters, Delta};
        let policy = MergePolicy { deltas_min: 3, day_blobs_min: 2, rows_max: 100 };
        assert_eq!(planned(&[(Delta, 1, 10), (Delta, 30, 10)], policy), []);
        assert_eq!(planned(&[(Delta, 1, 60), (Delta, 30, 10), (Delta, 1, 50)], policy), [1, 2]);
        assert_eq!(planned(&[(Delta, 1, 10), (Day, 1, 10), (Day, 30, 10), (Day, 2, 9)], policy), [3, 1]);
        assert_eq!(planned(&[(Day, 1, 99), (Day, 1, 99), (DeadLetters, 0, 1), (DeadLetters, 0, 1)], policy), []);
        assert_eq!(planned(&[(Delta, 1, 1_000)], policy.sealing()), [0]);
    }

    #[test]
    fn rows_are_cut_by_day_into_a_bounded_number_of_sets() {
        let mut rows = Rollups::new();
        for day in 0..3_000_u32 {
            let hour = Hour(day * 24 + 23);
            let row = RollupRow { tenant: "a", listing: "b", hour, event_type: "click", quarters: [1, 0, 0, 0] };
            rows.push(row).unwrap();
        }
        let sets = cut_by_day(&rows).unwrap();
        assert_eq!((sets.len(), sets.iter().map(Rollups::len).sum::<usize>()), (1_000, 3_000));
        assert!(sets.iter().all(|set| set.len() == 3));
        assert!(cut_by_day(&Rollups::new()).unwrap().is_empty());
    }
}
