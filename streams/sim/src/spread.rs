//! The rate at which many partitions write blobs, by the shipped scheduler: no midnight has a stampede.
//!
//! Blobs are names without rows. Each partition is one virtual partition, as with a thousand of them, and flushes once a minute.

use crate::checkers::{SPREAD, Violation};
use tidemark_streams_core::blob::{BlobKey, BlobMeta, Epoch, Level, PartitionId, Seq, StoredBlob};
use tidemark_streams_core::layout::{BucketsFrom, Layout};
use tidemark_streams_core::manifest::BlobSet;
use tidemark_streams_core::merge::{Merge, MergePolicy, Next, Scheduler, Target};
use tidemark_streams_core::scope::{Scope, Slice};
use tidemark_streams_core::time::{DAY_S, Day, Hour, HourRange, Now};

/// Partitions, of a thousand: a second with all of them is a [`WINDOW_S`] with these.
const PARTITIONS: u32 = 40;
const BUCKETS: u32 = 25;
const FLUSH_S: u64 = 60;
/// As many flushes are in it as a thousand partitions make in four seconds.
const WINDOW_S: u64 = 100;
/// The 1st of a month, at midnight.
const BEGIN_S: u64 = 1_698_796_800;
/// Days until all levels are filled, and days that are measured.
const FILLING_DAYS: u64 = 3;
const MEASURED_DAYS: u64 = 1;

struct Partition {
    id: PartitionId,
    live: BlobSet,
    scheduler: Scheduler,
    seq: u64,
    plan_at: Now,
}

/// Blobs written in windows of time.
struct Puts {
    windows: Vec<u64>,
}

impl Puts {
    fn add(&mut self, at_s: u64) {
        let begin = BEGIN_S + FILLING_DAYS * DAY_S;
        let window = at_s.checked_sub(begin).map(|passed_s| (passed_s / WINDOW_S) as usize);
        if let Some(count) = window.and_then(|window| self.windows.get_mut(window)) {
            *count += 1;
        }
    }
}

/// The windows of a day: none has more than twice the mean.
///
/// # Errors
/// [`SPREAD`].
pub fn check() -> Result<(), Violation> {
    let policy = MergePolicy::default();
    let buckets = vec![BucketsFrom { from: Day(0), buckets: BUCKETS }];
    let layout = Layout { virtual_partitions: PARTITIONS, buckets, ..Layout::default() };
    let mut puts = Puts { windows: vec![0; (MEASURED_DAYS * DAY_S / WINDOW_S) as usize] };
    for id in (0..PARTITIONS).map(PartitionId) {
        let scheduler = Scheduler::new(Now(BEGIN_S * 1_000), id, policy);
        let mut partition = Partition { id, live: BlobSet::new(), scheduler, seq: 0, plan_at: Now(0) };
        let end_s = BEGIN_S + (FILLING_DAYS + MEASURED_DAYS) * DAY_S;
        let phase_s = FLUSH_S * u64::from(id.0) / u64::from(PARTITIONS);
        for at_s in (BEGIN_S + phase_s..end_s).step_by(FLUSH_S as usize) {
            partition.minute(at_s, &policy, &layout, &mut puts);
        }
    }
    let total: u64 = puts.windows.iter().sum();
    let mean = total as f64 / puts.windows.len() as f64;
    let worst = puts.windows.iter().max().copied().unwrap_or(0);
    if worst as f64 <= 2.0 * mean {
        return Ok(());
    }
    Err(Violation { checker: SPREAD, what: format!("{worst} blobs in {WINDOW_S} s, and the mean is {mean:.1}") })
}

impl Partition {
    /// A flush, and the merges that are due.
    fn minute(&mut self, at_s: u64, policy: &MergePolicy, layout: &Layout, puts: &mut Puts) {
        let now = Now(at_s * 1_000);
        self.add(Level::Delta, Scope::ALL, HourRange::of(Hour((at_s / 3_600) as u32)));
        puts.add(at_s);
        while self.plan_at <= now {
            match self.scheduler.next(now, &self.live, layout) {
                Next::Merge(merge) => {
                    let written = self.merge(&merge, layout);
                    (0..written).for_each(|put| puts.add(at_s + put * policy.put_every_ms / 1_000));
                }
                Next::At(at) => self.plan_at = at.max(Now(now.0 + 1)),
                Next::Never => self.plan_at = Now(u64::MAX),
            }
        }
    }

    /// Replaces blobs as their merge would, each bucket with rows. Returns how many blobs are written.
    fn merge(&mut self, merge: &Merge, layout: &Layout) -> u64 {
        let mut days: Vec<Day> = merge.inputs.iter().map(|meta| meta.hours.first.day()).collect();
        days.sort_unstable();
        days.dedup();
        let first = merge.inputs.iter().map(|meta| meta.hours.first).min().unwrap_or_default();
        let last = merge.inputs.iter().map(|meta| meta.hours.last).max().unwrap_or_default();
        for meta in &merge.inputs {
            self.live.remove(&meta.key);
        }
        let slice = Slice { modulus: layout.virtual_partitions, remainder: self.id.0 };
        let before = self.live.len();
        match merge.target {
            Target::Hour => {
                for day in days {
                    let hours = HourRange { first: first.max(Hour(day.0 * 24)), last: last.min(Hour(day.0 * 24 + 23)) };
                    self.add(Level::Hour, Scope::Slice(slice), hours);
                }
            }
            Target::Day => {
                for day in days {
                    let modulus = layout.slices(day);
                    for bucket in 0..BUCKETS {
                        let remainder = self.id.0 + layout.virtual_partitions * bucket;
                        let hours = HourRange { first: Hour(day.0 * 24), last: Hour(day.0 * 24 + 23) };
                        self.add(Level::Day, Scope::Slice(Slice { modulus, remainder }), hours);
                    }
                }
            }
            Target::Period => {
                let scope = merge.inputs.first().map_or(Scope::ALL, |meta| meta.scope);
                self.add(Level::Period, scope, HourRange { first, last });
            }
        }
        self.live.len() - before
    }

    fn add(&mut self, level: Level, scope: Scope, hours: HourRange) {
        self.seq += 1;
        let key = BlobKey { partition: self.id, epoch: Epoch(1), seq: Seq(self.seq), part: 0 };
        let stored = StoredBlob { bytes: 1, checksum: 1 };
        self.live.insert(&BlobMeta { key, level, scope, hours, rows: 1, total: 1, stored });
    }
}
