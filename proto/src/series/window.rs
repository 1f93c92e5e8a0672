//! Windows: which kept buckets answer for an interval, what interval that really is, and how far the answer may be off.
//!
//! A [`Cover`] is planned once for a query and then read from any number of counters. It is the cheapest one, counted in buckets, whose
//! ends lie at most the accepted error away from the asked ones: coarse buckets in the middle, fine ones at the ends. Where nothing
//! kept is fine enough, or the window begins before what is kept, it is the nearest one, and says so.

use super::{BucketId, Granularity, Horizon, Row, UnixTime};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// `[from, to)`, not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(UnixTime, UnixTime)", into = "(UnixTime, UnixTime)")]
pub struct Window {
    from: UnixTime,
    to: UnixTime,
}

/// A window of zero or negative length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("window from {} s to {} s: it must end after it begins", from.s(), to.s())]
pub struct WindowEmpty {
    pub from: UnixTime,
    pub to: UnixTime,
}

/// No kept bucket lies in the window or around its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("nothing is kept of the window from {} s to {} s", from.s(), to.s())]
pub struct NoCover {
    pub from: UnixTime,
    pub to: UnixTime,
}

/// The accepted error is below what the kept buckets can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("an error of {accepted_s} s is asked for: with the buckets that are kept it is {least_s} s")]
pub struct ErrorNotAttainable {
    pub accepted_s: u64,
    pub least_s: u64,
}

/// Buckets of one granularity, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub granularity: Granularity,
    pub indexes: Range<u32>,
}

/// Which buckets answer for a window. They are disjoint, and together they are `covered`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cover {
    pub asked: Window,
    pub covered: Window,
    /// Ascending in time.
    pub runs: Vec<Run>,
    /// Those of the cover that reach beyond the asked window.
    pub beyond: Vec<Run>,
    /// Buckets that hold what of the asked window is not covered, and more. `None`: what is missing is kept nowhere.
    pub missing: Option<Vec<BucketId>>,
}

/// What a counter counted in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Exactly what was counted in the covered interval, as far as the rows know.
    pub value: u64,
    /// What was counted in the asked window is at least this.
    pub at_least: u64,
    /// And at most this, where what is missing is kept in some bucket.
    pub at_most: Option<u64>,
}

impl Window {
    /// Error: zero or negative length.
    pub fn new(from: UnixTime, to: UnixTime) -> Result<Window, WindowEmpty> {
        if from < to { Ok(Window { from, to }) } else { Err(WindowEmpty { from, to }) }
    }

    pub fn from(self) -> UnixTime {
        self.from
    }

    /// The first second after it.
    pub fn to(self) -> UnixTime {
        self.to
    }

    pub fn length_s(self) -> u64 {
        self.to.s() - self.from.s()
    }
}

impl TryFrom<(UnixTime, UnixTime)> for Window {
    type Error = WindowEmpty;

    fn try_from((from, to): (UnixTime, UnixTime)) -> Result<Window, WindowEmpty> {
        Window::new(from, to)
    }
}

impl From<Window> for (UnixTime, UnixTime) {
    fn from(window: Window) -> (UnixTime, UnixTime) {
        (window.from, window.to)
    }
}

impl Cover {
    /// The cheapest cover with an error of at most `accepted_s` at either end, or the nearest one where there is none:
    /// [`Cover::within`] tells them apart. A query "until now" asks for a window that ends with [`Horizon::end_of_finest`]: what lies
    /// beyond now has not happened yet, so that is no error.
    pub fn plan(horizon: &Horizon, asked: Window, accepted_s: u64) -> Result<Cover, NoCover> {
        let ends = Ends { horizon, asked };
        let (starts, stops) = (ends.starts(), ends.stops());
        let pairs = starts.iter().flat_map(|&from| stops.iter().map(move |&to| (from, to)));
        let overlaps = |&(from, to): &(UnixTime, UnixTime)| from < to && from < asked.to && asked.from < to;
        let ranked = pairs.filter(overlaps).filter_map(|(from, to)| {
            let errors_s = [asked.from.s().abs_diff(from.s()), asked.to.s().abs_diff(to.s())];
            let excess_s: u64 = errors_s.iter().map(|error_s| error_s.saturating_sub(accepted_s)).sum();
            let buckets = walk(horizon, from, to, |_| {})?;
            Some(((excess_s, buckets, errors_s[0] + errors_s[1]), (from, to)))
        });
        let best = ranked.min_by_key(|&(rank, _)| rank);
        let (_, (from, to)) = best.ok_or(NoCover { from: asked.from, to: asked.to })?;
        Cover::between(horizon, asked, from, to)
    }

    /// Covers for steps that lie one after the other, such as those of [`Zone::steps`](super::calendar::Zone::steps): each begins where
    /// the one before ends, so that no increment is in two of them. A boundary moves by at most the accepted error, to where the
    /// coarsest buckets end, or to the nearest one where none is that near. A step that is shorter than the buckets around it, or of
    /// which nothing is kept, has none.
    pub fn steps(horizon: &Horizon, boundaries: &[UnixTime], accepted_s: u64) -> Vec<Result<Cover, NoCover>> {
        // Where finer buckets begin to be kept, a later boundary may snap to before an earlier one.
        let mut last = UnixTime::default();
        let mut ends = Vec::with_capacity(boundaries.len());
        for &at in boundaries {
            last = last.max(snapped(horizon, at, accepted_s));
            ends.push(last);
        }
        let steps = boundaries.windows(2).zip(ends.windows(2));
        let cover = |(asked, ends): (&[UnixTime], &[UnixTime])| {
            Cover::between(horizon, Window { from: asked[0], to: asked[1] }, ends[0], ends[1])
        };
        steps.map(cover).collect()
    }

    /// The cover of exactly `[from, to)`.
    fn between(horizon: &Horizon, asked: Window, from: UnixTime, to: UnixTime) -> Result<Cover, NoCover> {
        let mut runs: Vec<Run> = Vec::new();
        let walked = walk(horizon, from, to, |run| match runs.last_mut() {
            Some(last) if last.granularity == run.granularity => last.indexes.end = run.indexes.end,
            _ => runs.push(run),
        });
        walked.filter(|&buckets| buckets > 0).ok_or(NoCover { from: asked.from, to: asked.to })?;
        let beyond = runs.iter().flat_map(|run| run.beyond(asked)).collect();
        let parts = [(asked.from, from.min(asked.to)), (to.max(asked.from), asked.to)];
        let parts = parts.into_iter().filter(|(from, to)| from < to);
        let missing = parts.map(|(from, to)| holding(horizon, from, to)).collect();
        Ok(Cover { asked, covered: Window { from, to }, runs, beyond, missing })
    }

    /// The error at the beginning and at the end, seconds.
    pub fn error_s(&self) -> (u64, u64) {
        (self.asked.from.s().abs_diff(self.covered.from.s()), self.asked.to.s().abs_diff(self.covered.to.s()))
    }

    /// Refuses an error beyond what the query accepts.
    pub fn within(&self, accepted_s: u64) -> Result<(), ErrorNotAttainable> {
        let (from_s, to_s) = self.error_s();
        let least_s = from_s.max(to_s);
        if least_s > accepted_s { Err(ErrorNotAttainable { accepted_s, least_s }) } else { Ok(()) }
    }

    /// How many buckets are read of a row that has them all.
    pub fn buckets(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.indexes.end - run.indexes.start)).sum()
    }

    /// Reads it from the rows of one counter: one for each valve, of one generation and half. Pieces of one row must have been merged.
    pub fn read(&self, rows: &[Row]) -> Answer {
        self.read_with(|granularity, indexes| {
            rows.iter().fold(0, |sum: u64, row| sum.saturating_add(row.sum(granularity, indexes.clone())))
        })
    }

    /// The same where the sums over buckets come from somewhere else.
    pub fn read_with(&self, mut sum: impl FnMut(Granularity, Range<u32>) -> u64) -> Answer {
        let mut total = |runs: &[Run]| {
            let sums = runs.iter().map(|run| sum(run.granularity, run.indexes.clone()));
            sums.fold(0, u64::saturating_add)
        };
        let value = total(&self.runs);
        let at_least = value.saturating_sub(total(&self.beyond));
        let missing = self.missing.as_ref().map(|missing| missing.iter().map(Run::of).collect::<Vec<_>>());
        Answer { value, at_least, at_most: missing.map(|missing| value.saturating_add(total(&missing))) }
    }
}

impl Run {
    fn of(bucket: &BucketId) -> Run {
        Run { granularity: bucket.granularity, indexes: bucket.index..bucket.index + 1 }
    }

    /// The parts whose buckets are not wholly in a window.
    fn beyond(&self, window: Window) -> impl Iterator<Item = Run> + use<> {
        let (granularity, Range { start, end }) = (self.granularity, self.indexes.clone());
        let inside = granularity.index_from(window.from).clamp(start, end);
        let after = granularity.index_at(window.to).clamp(inside, end);
        let parts = [start..inside, after..end];
        parts.into_iter().filter(|indexes| !indexes.is_empty()).map(move |indexes| Run { granularity, indexes })
    }
}

/// The shortest kept bucket that holds all of `[from, to)`.
fn holding(horizon: &Horizon, from: UnixTime, to: UnixTime) -> Option<BucketId> {
    let at = |&(granularity, _): &(Granularity, u32)| BucketId { granularity, index: granularity.index_at(from) };
    let mut buckets = horizon.first().iter().map(at);
    buckets.find(|&bucket| horizon.keeps(bucket) && bucket.end() >= to)
}

/// Where a cover of the asked window may begin and end.
struct Ends<'a> {
    horizon: &'a Horizon,
    asked: Window,
}

impl Ends<'_> {
    /// Of each granularity the boundaries around the asked beginning from which a kept bucket begins, and where what is kept begins.
    fn starts(&self) -> Vec<UnixTime> {
        let at = self.asked.from;
        let of = |&(granularity, first): &(Granularity, u32)| {
            let indexes = [granularity.index_at(at), granularity.index_from(at)];
            indexes.map(|index| granularity.start(index.max(first)))
        };
        ascending(self.horizon.first().iter().flat_map(of))
    }

    /// Of each granularity the boundaries around the asked end at which a kept bucket ends.
    fn stops(&self) -> Vec<UnixTime> {
        let at = self.asked.to;
        let of = |&(granularity, first): &(Granularity, u32)| {
            let after = [granularity.index_at(at), granularity.index_from(at)];
            let kept = after.into_iter().filter(move |&after| after > first);
            kept.map(move |after| granularity.end(after - 1))
        };
        ascending(self.horizon.first().iter().flat_map(of))
    }
}

/// The boundary that stands for a time: at most the accepted error away and the coarsest, or else the nearest. Before all that is kept
/// it is where that begins.
fn snapped(horizon: &Horizon, at: UnixTime, accepted_s: u64) -> UnixTime {
    let kept = |&&(granularity, first): &&(Granularity, u32)| granularity.index_at(at) >= first;
    let around = |&(granularity, _): &(Granularity, u32)| {
        let index = granularity.index_at(at);
        [granularity.start(index), granularity.end(index)]
    };
    let nearest = |times: [UnixTime; 2]| times.into_iter().min_by_key(|time| time.s().abs_diff(at.s()));
    let levels = horizon.first().iter().filter(kept);
    let candidates: Vec<UnixTime> = levels.filter_map(|level| nearest(around(level))).collect();
    let accepted = candidates.iter().rev().find(|time| time.s().abs_diff(at.s()) <= accepted_s);
    let begin = horizon.first().iter().map(|&(granularity, first)| granularity.start(first)).min();
    accepted.or(candidates.first()).copied().or(begin).unwrap_or(at)
}

fn ascending(times: impl Iterator<Item = UnixTime>) -> Vec<UnixTime> {
    let mut times: Vec<UnixTime> = times.collect();
    times.sort_unstable();
    times.dedup();
    times
}

/// Goes from one boundary to another over the largest kept buckets that lie between them, and says how many those are. `None` where
/// some part is kept too coarsely. Buckets nest, so there is no cover of fewer.
fn walk(horizon: &Horizon, from: UnixTime, to: UnixTime, mut visit: impl FnMut(Run)) -> Option<u64> {
    let (mut at, mut buckets) = (from, 0);
    while at < to {
        let fits = |&(granularity, first): &(Granularity, u32)| {
            let index = granularity.index_at(at);
            index >= first && granularity.start(index) == at && granularity.end(index) <= to
        };
        let level = horizon.first().iter().rposition(fits)?;
        let (granularity, _) = horizon.first()[level];
        // A coarser bucket may begin at the next boundary of its kind.
        let coarser = horizon.first()[level + 1..].iter();
        let next = coarser.map(|&(coarser, first)| coarser.start(coarser.index_from(at.plus(1)).max(first)));
        let stop = next.fold(to, UnixTime::min);
        let start = granularity.index_at(at);
        let end = start + count_until(granularity, start, stop);
        visit(Run { granularity, indexes: start..end });
        buckets += u64::from(end - start);
        at = granularity.end(end - 1);
    }
    Some(buckets)
}

/// How many buckets from `start` on end by `stop`, at least one.
fn count_until(granularity: Granularity, start: u32, stop: UnixTime) -> u32 {
    let at_stop = granularity.index_at(stop);
    let end = if granularity.end(at_stop) <= stop { at_stop + 1 } else { at_stop };
    end.saturating_sub(start).max(1)
}
