//! Merging: which blobs are merged next, when, and where their rows go.
//!
//! Rows rise. The deltas of an hour become one blob for each virtual partition ([`Target::Hour`]). The hours of a day become one blob
//! for each bucket ([`Target::Day`]). Each day, the days of a period become part of the blob of their bucket and period, which is
//! replaced ([`Target::Period`]). Late rows take the same way: they replace the blob of a past day or period.
//!
//! Nothing happens at midnight. Each partition, virtual partition and bucket has a phase of its own within the time that its merges
//! are spread over. Phases lie evenly.

mod cut;
mod schedule;
#[cfg(test)]
mod tests;

pub use cut::{CutSet, cut, scope_of};
pub use schedule::{Next, Phase, Scheduler};

use crate::blob::BlobMeta;
use crate::limits::MERGE_ROWS_MAX;
use crate::time::Day;

/// When blobs are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergePolicy {
    /// An hour and a day are closed so long after their end. Rows that come later rewrite what was merged.
    pub lateness_s: u64,
    /// Deltas are merged at once when there are this many, although their hour is not closed.
    pub deltas_max: usize,
    /// The merges of an hour's deltas are spread over this time.
    pub hour_spread_s: u64,
    /// The merges of a day's hours are spread over this time, behind `lateness_s`.
    pub day_spread_s: u64,
    /// The merges of a day into periods are spread over this time, behind `day_spread_s`.
    pub period_spread_s: u64,
    /// Rows that one merge reads, at most.
    pub rows_max: u64,
    /// Between the begins of two merges, at least, unless there are `deltas_max` deltas.
    pub merge_every_ms: u64,
    /// Between two blobs that a merge writes, at least.
    pub put_every_ms: u64,
}

/// The form that a merge gives its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Hour,
    Day,
    Period,
}

/// Blobs to be replaced by others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merge {
    pub target: Target,
    pub inputs: Vec<BlobMeta>,
    /// Days before this one are closed. Rows of other days go no higher than [`Target::Hour`].
    pub closed_before: Day,
    /// Late rows of days before this one share a blob for each bucket and period on their way to it.
    pub old_before: Day,
}

impl Default for MergePolicy {
    fn default() -> MergePolicy {
        MergePolicy {
            lateness_s: 900,
            deltas_max: 128,
            hour_spread_s: 1_800,
            day_spread_s: 18 * 3_600,
            period_spread_s: 24 * 3_600,
            rows_max: MERGE_ROWS_MAX,
            merge_every_ms: 10_000,
            put_every_ms: 250,
        }
    }
}
