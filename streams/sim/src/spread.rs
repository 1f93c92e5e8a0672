//! The rate at which many partitions write blobs, by the shipped scheduler: no midnight has a stampede.
//!
//! Blobs are names without rows. Each partition is one virtual partition, and flushes in its phase of each interval, as its owner does.

use crate::checkers::{SPREAD, Violation};
use std::ops::Range;
use tidemark_streams_core::blob::{BlobKey, BlobMeta, Epoch, Level, PartitionId, Seq, StoredBlob};
use tidemark_streams_core::layout::{BucketsFrom, Layout};
use tidemark_streams_core::manifest::BlobSet;
use tidemark_streams_core::merge::{Merge, MergePolicy, Next, Phase, Scheduler, Target};
use tidemark_streams_core::scope::{Scope, Slice};
use tidemark_streams_core::time::{DAY_S, Day, Hour, HourRange, Now};

/// As many flushes are in it as a thousand partitions make in four seconds.
const WINDOW_S: usize = 100;
/// The 1st of a month, at midnight.
const BEGIN_S: u64 = 1_698_796_800;
/// Days until all levels are filled.
const FILLING_DAYS: u64 = 3;

/// The writes of partitions.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub partitions: u32,
    /// Of each partition.
    pub buckets: u32,
    pub flush_s: u64,
    /// Pairs of tenant and listing of a partition. Each has a row in every hour.
    pub pairs: u64,
    /// Rows of a flush.
    pub delta_rows: u64,
}

struct Partition {
    id: PartitionId,
    live: BlobSet,
    scheduler: Scheduler,
    seq: u64,
    plan_at: Now,
    deltas: usize,
    /// Plans at each flush, as an owner does. A flush changes nothing else than that there is one delta more, so others plan when the
    /// scheduler said, and when the deltas are the first ones or too many.
    plans_often: bool,
}

/// A blob that a merge would write.
struct Written {
    level: Level,
    scope: Scope,
    hours: HourRange,
    rows: u64,
}

/// Blobs written in each second of the day that is measured.
struct Puts(Vec<u32>);

impl Puts {
    fn add(&mut self, at_s: u64) {
        let second = at_s.checked_sub(BEGIN_S + FILLING_DAYS * DAY_S);
        if let Some(count) = second.and_then(|second| self.0.get_mut(second as usize)) {
            *count += 1;
        }
    }
}

/// Few partitions, of a thousand: a second with all of them is 100 s with these. No such time of a day has more than twice the
/// mean.
///
/// # Errors
/// [`SPREAD`].
pub fn check() -> Result<(), Violation> {
    let spread = Spread { partitions: 40, buckets: 25, flush_s: 60, pairs: 1_000, delta_rows: 100 };
    let seconds = spread.puts_per_second();
    let windows: Vec<u32> = seconds.chunks(WINDOW_S).map(|window| window.iter().sum()).collect();
    let total: u32 = windows.iter().sum();
    let mean = f64::from(total) / windows.len() as f64;
    let worst = windows.iter().max().copied().unwrap_or(0);
    if f64::from(worst) <= 2.0 * mean {
        return Ok(());
    }
    Err(Violation { checker: SPREAD, what: format!("{worst} blobs in {WINDOW_S} s, and the mean is {mean:.1}") })
}

impl Spread {
    /// Blobs that are written in each second of a day, by all partitions together, once all levels are filled.
    pub fn puts_per_second(&self) -> Vec<u32> {
        self.puts_of(0..self.partitions)
    }

    /// The same by some of the partitions.
    pub fn puts_of(&self, partitions: Range<u32>) -> Vec<u32> {
        self.planned(partitions, false)
    }

    fn planned(&self, partitions: Range<u32>, plans_often: bool) -> Vec<u32> {
        let policy = MergePolicy::default();
        let buckets = vec![BucketsFrom { from: Day(0), buckets: self.buckets }];
        let layout = Layout { virtual_partitions: self.partitions, buckets, ..Layout::default() };
        let mut puts = Puts(vec![0; DAY_S as usize]);
        for id in partitions.map(PartitionId) {
            let scheduler = Scheduler::new(Now(BEGIN_S * 1_000), id, policy);
            let mut partition =
                Partition { id, live: BlobSet::new(), scheduler, seq: 0, plan_at: Now(0), deltas: 0, plans_often };
            let end_s = BEGIN_S + (FILLING_DAYS + 1) * DAY_S;
            let phase_s = Phase::Flush.of(u64::from(id.0), self.flush_s);
            for at_s in (BEGIN_S + phase_s..end_s).step_by(self.flush_s as usize) {
                partition.flush(at_s, self, &layout, &mut puts);
            }
        }
        puts.0
    }

    /// The rows of blobs that become one for a share of the pairs.
    fn rows(&self, merge: &Merge, share: u64, hours: u64) -> u64 {
        let read: u64 = merge.inputs.iter().map(|meta| meta.rows).sum();
        (read / share).min(self.pairs / share * hours).max(1)
    }
}

impl Partition {
    /// A flush, and the merges that are due.
    fn flush(&mut self, at_s: u64, spread: &Spread, layout: &Layout, puts: &mut Puts) {
        let now = Now(at_s * 1_000);
        let hours = HourRange::of(Hour((at_s / 3_600) as u32));
        self.add(&Written { level: Level::Delta, scope: Scope::ALL, hours, rows: spread.delta_rows });
        puts.add(at_s);
        self.deltas += 1;
        if self.plans_often || self.deltas == 1 || self.deltas >= MergePolicy::default().deltas_max {
            self.plan_at = self.plan_at.min(now);
        }
        let put_every_ms = MergePolicy::default().put_every_ms;
        while self.plan_at <= now {
            match self.scheduler.next(now, &self.live, layout) {
                Next::Merge(merge) => {
                    let written = self.written(&merge, spread, layout);
                    for meta in &merge.inputs {
                        self.live.remove(&meta.key);
                    }
                    self.deltas -= merge.inputs.iter().filter(|meta| meta.level == Level::Delta).count();
                    written.iter().for_each(|blob| self.add(blob));
                    (0..written.len() as u64).for_each(|put| puts.add(at_s + put * put_every_ms / 1_000));
                }
                Next::At(at) => self.plan_at = at.max(Now(now.0 + 1)),
                Next::Never => self.plan_at = Now(u64::MAX),
            }
        }
    }

    /// The writes of a merge, if each bucket has rows.
    fn written(&self, merge: &Merge, spread: &Spread, layout: &Layout) -> Vec<Written> {
        let mut days: Vec<Day> = merge.inputs.iter().map(|meta| meta.hours.first.day()).collect();
        days.sort_unstable();
        days.dedup();
        let first = merge.inputs.iter().map(|meta| meta.hours.first).min().unwrap_or_default();
        let last = merge.inputs.iter().map(|meta| meta.hours.last).max().unwrap_or_default();
        let of_day = |day: Day| HourRange { first: Hour(day.0 * 24), last: Hour(day.0 * 24 + 23) };
        let scope = merge.inputs.first().map_or(Scope::ALL, |meta| meta.scope);
        let count = |hours: HourRange| u64::from(hours.last.0 - hours.first.0 + 1);
        let buckets = u64::from(spread.buckets);
        match merge.target {
            Target::Hour => {
                let slice = Slice { modulus: layout.virtual_partitions, remainder: self.id.0 };
                let hours =
                    |day: Day| HourRange { first: first.max(of_day(day).first), last: last.min(of_day(day).last) };
                let blob = |hours| Written {
                    level: Level::Hour,
                    scope: Scope::Slice(slice),
                    hours,
                    rows: spread.rows(merge, 1, count(hours)),
                };
                days.into_iter().map(|day| blob(hours(day))).collect()
            }
            Target::Day if merge.inputs.iter().all(|meta| meta.level == Level::Day) => {
                let rows = (spread.rows(merge, 1, 24)).min(spread.pairs / buckets * 24);
                days.into_iter().map(|day| Written { level: Level::Day, scope, hours: of_day(day), rows }).collect()
            }
            Target::Day => {
                let blob = |day: Day, bucket: u32| Written {
                    level: Level::Day,
                    scope: Scope::Slice(Slice {
                        modulus: layout.slices(day),
                        remainder: self.id.0 + layout.virtual_partitions * bucket,
                    }),
                    hours: of_day(day),
                    rows: spread.rows(merge, buckets, 24),
                };
                days.iter()
                    .flat_map(|day| (0..spread.buckets).map(move |bucket| (*day, bucket)))
                    .map(|(day, bucket)| blob(day, bucket))
                    .collect()
            }
            Target::Period => {
                let rows = merge.inputs.iter().map(|meta| meta.rows).sum();
                vec![Written { level: Level::Period, scope, hours: HourRange { first, last }, rows }]
            }
        }
    }

    fn add(&mut self, blob: &Written) {
        self.seq += 1;
        let Written { level, scope, hours, rows } = *blob;
        let key = BlobKey { partition: self.id, epoch: Epoch(1), seq: Seq(self.seq), part: 0 };
        let stored = StoredBlob { bytes: 1, checksum: 1 };
        self.live.insert(&BlobMeta { key, level, scope, hours, rows, total: rows, stored });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planning_when_due_writes_what_planning_at_each_flush_does() {
        for (partitions, buckets, flush_s) in [(3, 7, 60), (2, 20, 17), (1, 3, 300)] {
            let spread = Spread { partitions, buckets, flush_s, pairs: 1_000, delta_rows: 100 };
            let all = 0..partitions;
            assert!(spread.planned(all.clone(), false) == spread.planned(all, true), "{spread:?}");
        }
    }
}
