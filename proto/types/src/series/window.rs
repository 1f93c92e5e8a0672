//! Windows: the kept buckets that answer for an interval, the interval that they cover, and the error of the answer.
//!
//! A [`Cover`] is planned once for a query and then read from any number of counters. It is the cheapest one, counted in buckets,
//! with ends within the accepted error of the requested ends: coarse buckets in the middle, fine ones at the ends. If no kept
//! bucket is fine enough, or the window begins before the kept buckets, the cover is the nearest one, and says so.

use super::{Granularity, Horizon, Row, UnixTime};
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
#[error("no buckets are kept for the window from {} s to {} s", from.s(), to.s())]
pub struct NoCover {
    pub from: UnixTime,
    pub to: UnixTime,
}

/// The accepted error is smaller than the kept buckets allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the accepted error is {accepted_s} s: the kept buckets need at least {least_s} s")]
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

/// The buckets that answer for a window. They are disjoint, and together they are `covered`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cover {
    pub asked: Window,
    pub covered: Window,
    /// Ascending in time.
    pub runs: Vec<Run>,
    /// The runs of the cover that reach beyond the requested window.
    pub beyond: Vec<Run>,
    /// Buckets that hold the parts of the asked window that are not covered, and more. `None`: some part is kept nowhere.
    pub missing: Option<Vec<Run>>,
}

/// The count of a counter in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The exact count in the covered interval, as far as the rows know.
    pub value: u64,
    /// The least count in the requested window.
    pub at_least: u64,
    /// The largest count in the requested window, if the missing part is kept in some bucket.
    pub at_most: Option<u64>,
}

impl Window {
    /// Error: zero or negative length.
    pub fn new(from: UnixTime, to: UnixTime) -> Result<Window, WindowEmpty> {
        if from < to { Ok(Window { from, to }) } else { Err(WindowEmpty { from, to }) }
    }

    /// A window of ascending boundaries.
    pub(super) fn between(from: UnixTime, to: UnixTime) -> Window {
        debug_assert!(from < to, "boundaries ascend");
        Window { from, to }
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
    /// [`Cover::within`] tells them apart. A query "until now" asks for a window that ends with [`Horizon::end_of_finest`]: the
    /// part that lies beyond now has not happened yet, so that is no error.
    pub fn plan(horizon: &Horizon, asked: Window, accepted_s: u64) -> Result<Cover, NoCover> {
        let ends = Ends { horizon, asked };
        let starts = ends.starts();
        let stops = ends.stops();
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

    /// The cover of exactly `[from, to)`.
    pub(super) fn between(horizon: &Horizon, asked: Window, from: UnixTime, to: UnixTime) -> Result<Cover, NoCover> {
        let mut runs: Vec<Run> = Vec::new();
        let walked = walk(horizon, from, to, |run| match runs.last_mut() {
            Some(last) if last.granularity == run.granularity => last.indexes.end = run.indexes.end,
            _ => runs.push(run),
        });
        walked.filter(|&buckets| buckets > 0).ok_or(NoCover { from: asked.from, to: asked.to })?;
        let beyond = runs.iter().flat_map(|run| run.beyond(asked)).collect();
        let parts = [(asked.from, from.min(asked.to)), (to.max(asked.from), asked.to)];
        let parts = parts.into_iter().filter(|(from, to)| from < to);
        let missing: Option<Vec<Vec<Run>>> = parts.map(|(from, to)| holding(horizon, from, to)).collect();
        let missing = missing.map(|parts| parts.concat());
        Ok(Cover { asked, covered: Window { from, to }, runs, beyond, missing })
    }

    /// The error at the beginning and at the end, seconds.
    pub fn error_s(&self) -> (u64, u64) {
        (self.asked.from.s().abs_diff(self.covered.from.s()), self.asked.to.s().abs_diff(self.covered.to.s()))
    }

    /// Refuses an error larger than the query accepts.
    pub fn within(&self, accepted_s: u64) -> Result<(), ErrorNotAttainable> {
        let (from_s, to_s) = self.error_s();
        let least_s = from_s.max(to_s);
        if least_s > accepted_s { Err(ErrorNotAttainable { accepted_s, least_s }) } else { Ok(()) }
    }

    /// The number of buckets that are read of a complete row.
    pub fn buckets(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.indexes.end - run.indexes.start)).sum()
    }

    /// All runs that are read. Those that reach beyond the requested window are among them.
    pub fn parts(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().chain(self.missing.iter().flatten())
    }

    /// Reads it from the rows of one counter: one for each valve, of one generation and half. Pieces of one row must have been merged.
    pub fn read(&self, rows: &[Row]) -> Answer {
        self.read_with(|granularity, indexes| {
            rows.iter().fold(0, |sum: u64, row| sum.saturating_add(row.sum(granularity, indexes.clone())))
        })
    }

    /// The same where the sums over buckets come from somewhere else.
    pub fn read_with(&self, mut sum: impl FnMut(Granularity, Range<u32>) -> u64) -> Answer {
        let value = Run::total(&self.runs, &mut sum);
        let at_least = value.saturating_sub(Run::total(&self.beyond, &mut sum));
        let missing = self.missing.as_ref().map(|missing| Run::total(missing, &mut sum));
        Answer { value, at_least, at_most: missing.map(|missing| value.saturating_add(missing)) }
    }
}

impl Run {
    /// The sum over the buckets of all runs, saturating.
    pub(super) fn total(runs: &[Run], mut sum: impl FnMut(Granularity, Range<u32>) -> u64) -> u64 {
        runs.iter().fold(0, |total: u64, run| total.saturating_add(sum(run.granularity, run.indexes.clone())))
    }

    /// The runs with buckets that are not wholly in a window.
    fn beyond(&self, window: Window) -> impl Iterator<Item = Run> + use<> {
        let (granularity, Range { start, end }) = (self.granularity, self.indexes.clone());
        let inside = granularity.index_from(window.from).clamp(start, end);
        let after = granularity.index_at(window.to).clamp(inside, end);
        let parts = [start..inside, after..end];
        parts.into_iter().filter(|indexes| !indexes.is_empty()).map(move |indexes| Run { granularity, indexes })
    }
}

/// Kept buckets that together hold all of `[from, to)`. That is the shortest one, or else as few as reach from the bucket at the
/// beginning to the bucket at the end. `None`: some part is not kept.
pub(super) fn holding(horizon: &Horizon, from: UnixTime, to: UnixTime) -> Option<Vec<Run>> {
    let holds_all = |&&(granularity, index): &&(Granularity, u32)| granularity.end(index) >= to;
    let around: Vec<(Granularity, u32)> = kept_at(horizon, from).collect();
    if let Some(&(granularity, index)) = around.iter().find(holds_all) {
        return Some(vec![Run { granularity, indexes: index..index + 1 }]);
    }
    let (first, index) = *around.first()?;
    let (last, index_of_last) = kept_at(horizon, UnixTime::default().plus(to.s().saturating_sub(1))).next()?;
    let mut runs = Vec::new();
    match walk(horizon, first.start(index), last.end(index_of_last), |run| runs.push(run)) {
        Some(_) => Some(runs),
        None => holding_finest(horizon, from, to),
    }
}

/// The same of the finest buckets that are kept at each time.
fn holding_finest(horizon: &Horizon, from: UnixTime, to: UnixTime) -> Option<Vec<Run>> {
    let mut at = from;
    let mut runs = Vec::new();
    while at < to {
        let (granularity, index) = kept_at(horizon, at).next()?;
        let begins =
            horizon.first().iter().filter(|level| level.0 < granularity).map(|&(finer, first)| finer.start(first));
        // From there on, finer buckets are kept.
        let stop = begins.filter(|&begin| begin > at).fold(to, UnixTime::min);
        let end = granularity.index_from(stop).max(index + 1);
        runs.push(Run { granularity, indexes: index..end });
        at = granularity.end(end - 1);
    }
    Some(runs)
}

/// The kept buckets that hold a time, fine to coarse.
pub(super) fn kept_at(horizon: &Horizon, at: UnixTime) -> impl Iterator<Item = (Granularity, u32)> + '_ {
    let levels =
        horizon.first().iter().map(move |&(granularity, first)| (granularity, granularity.index_at(at), first));
    levels.filter(|&(_, index, first)| index >= first).map(|(granularity, index, _)| (granularity, index))
}

/// Where a cover of the asked window may begin and end.
struct Ends<'a> {
    horizon: &'a Horizon,
    asked: Window,
}

impl Ends<'_> {
    /// By granularity, the boundaries around the requested beginning at which a kept bucket begins, and the beginning of the kept
    /// buckets.
    fn starts(&self) -> Vec<UnixTime> {
        let at = self.asked.from;
        let of = |&(granularity, first): &(Granularity, u32)| {
            let indexes = [granularity.index_at(at), granularity.index_from(at)];
            indexes.map(|index| granularity.start(index.max(first)))
        };
        ascending(self.horizon.first().iter().flat_map(of))
    }

    /// By granularity, the boundaries around the requested end at which a kept bucket ends.
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

fn ascending(times: impl Iterator<Item = UnixTime>) -> Vec<UnixTime> {
    let mut times: Vec<UnixTime> = times.collect();
    times.sort_unstable();
    times.dedup();
    times
}

/// Goes from one boundary to another over the largest kept buckets that lie between them, and says how many those are. `None` where
/// some part is kept too coarsely. Buckets nest, so there is no cover of fewer.
pub(super) fn walk(horizon: &Horizon, from: UnixTime, to: UnixTime, mut visit: impl FnMut(Run)) -> Option<u64> {
    let mut at = from;
    let mut buckets = 0;
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

/// The number of buckets from `start` on that end by `stop`, at least one.
fn count_until(granularity: Granularity, start: u32, stop: UnixTime) -> u32 {
    let at_stop = granularity.index_at(stop);
    let end = if granularity.end(at_stop) <= stop { at_stop + 1 } else { at_stop };
    end.saturating_sub(start).max(1)
}
