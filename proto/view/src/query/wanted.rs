//! The buckets that plans read: the data of a counter that a holder has to send.

use super::{Buckets, SeriesPlan, WindowPlan};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use tidemark_types::series::{BucketId, Cover, Granularity, Run};

/// Runs of buckets of one question. Where plans have more, all buckets between the first and the last of a granularity are told.
pub const WANTED_RUNS_MAX: usize = 4_096;
const _: () = assert!(Granularity::ALL.len() <= WANTED_RUNS_MAX);

/// Buckets of any valve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// In order of granularity, then time; none is empty, and no bucket is in two of them.
    runs: Vec<(Granularity, Range<u32>)>,
}

impl Wanted {
    /// No bucket: values are asked for.
    pub fn nothing() -> Wanted {
        Wanted::default()
    }

    /// All kept buckets.
    pub fn everything() -> Wanted {
        Wanted { runs: Granularity::ALL.map(|granularity| (granularity, 0..u32::MAX)).to_vec() }
    }

    /// All that plans of windows read.
    pub fn of_windows<'a>(plans: impl IntoIterator<Item = &'a WindowPlan>) -> Wanted {
        let covers = plans.into_iter().flat_map(|plan| [&plan.cover].into_iter().chain(&plan.previous));
        Wanted::of_parts(covers.flat_map(Cover::parts))
    }

    /// All that the plan of a series reads.
    pub fn of_series(plan: &SeriesPlan) -> Wanted {
        Wanted::of_parts(plan.steps.iter().flat_map(|step| step.cover.parts()))
    }

    fn of_parts<'a>(runs: impl Iterator<Item = &'a Run>) -> Wanted {
        Wanted::of_runs(runs.map(|run| (run.granularity, run.indexes.clone())).collect())
    }

    fn of_runs(mut runs: Vec<(Granularity, Range<u32>)>) -> Wanted {
        runs.retain(|(_, indexes)| !indexes.is_empty());
        runs.sort_unstable_by_key(|(granularity, indexes)| (*granularity, indexes.start));
        runs.dedup_by(|run, before| joined(before, run, |before, run| run.start <= before.end));
        if runs.len() > WANTED_RUNS_MAX {
            runs.dedup_by(|run, before| joined(before, run, |_, _| true));
        }
        Wanted { runs }
    }

    pub fn is_nothing(&self) -> bool {
        self.runs.is_empty()
    }

    /// The number of runs, and whether they are in order, not empty, and have no bucket in common.
    pub(super) fn shape(&self) -> (usize, bool) {
        let ends_before = |one: &(Granularity, Range<u32>), other: &(Granularity, Range<u32>)| {
            one.0 < other.0 || one.0 == other.0 && one.1.end <= other.1.start
        };
        let are_in_order = self.runs.windows(2).all(|pair| ends_before(&pair[0], &pair[1]));
        (self.runs.len(), are_in_order && self.runs.iter().all(|(_, indexes)| !indexes.is_empty()))
    }

    /// Appends those of the buckets that are wanted, in order.
    pub(super) fn pick(&self, buckets: &Buckets<'_>, picked: &mut Vec<(BucketId, u64)>) {
        for (granularity, indexes) in &self.runs {
            match buckets {
                Buckets::Row(row) => picked.extend(row.within(*granularity, indexes.clone())),
                Buckets::Sums(totals) => picked.extend(totals.within(*granularity, indexes.clone())),
                Buckets::Shares(totals) => picked.extend(totals.within(*granularity, indexes.clone())),
            }
        }
    }
}

/// Makes one run of two where they are of one granularity and `meet`.
fn joined(
    before: &mut (Granularity, Range<u32>),
    run: &(Granularity, Range<u32>),
    meet: impl Fn(&Range<u32>, &Range<u32>) -> bool,
) -> bool {
    let is_one = before.0 == run.0 && meet(&before.1, &run.1);
    if is_one {
        before.1.end = before.1.end.max(run.1.end);
    }
    is_one
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidemark_types::series::Totals;

    fn runs(most: usize) -> impl Strategy<Value = Vec<(Granularity, Range<u32>)>> {
        let run = (0..3usize, 0..40u32, 0..6u32);
        let run = run.prop_map(|(code, start, length)| (Granularity::ALL[code], start..start + length));
        proptest::collection::vec(run, 0..most)
    }

    proptest! {
        #[test]
        fn the_buckets_of_all_runs_are_picked_once(runs in runs(30)) {
            let all = (0..3).flat_map(|code| (0..60).map(move |index| (code, index)));
            let all = all.map(|(code, index): (usize, u32)| BucketId { granularity: Granularity::ALL[code], index });
            let totals = Totals::from_buckets(all.clone().map(|bucket| (bucket, 1)));
            let is_in = |bucket: &BucketId| {
                runs.iter().any(|(granularity, indexes)| *granularity == bucket.granularity && indexes.contains(&bucket.index))
            };
            let expected: Vec<(BucketId, u64)> = all.filter(is_in).map(|bucket| (bucket, 1)).collect();
            let wanted = Wanted::of_runs(runs.clone());
            prop_assert!(wanted.shape().1);
            let mut picked = Vec::new();
            wanted.pick(&Buckets::Sums(&totals), &mut picked);
            prop_assert_eq!(picked, expected);
        }
    }

    #[test]
    fn of_too_many_runs_what_lies_between_is_wanted_too() {
        let granularity = Granularity::MINUTE;
        let apart = |most: u32| (0..most).map(move |at| (granularity, 2 * at..2 * at + 1)).collect();
        assert_eq!(Wanted::of_runs(apart(WANTED_RUNS_MAX as u32)).runs.len(), WANTED_RUNS_MAX);
        let more = WANTED_RUNS_MAX as u32 + 1;
        assert_eq!(Wanted::of_runs(apart(more)).runs, [(granularity, 0..2 * more - 1)]);
    }
}
