//! Plans a series: which kept buckets answer for each of several steps that lie one after the other.
//!
//! No bucket belongs to two steps, so the values of a series add up. A step has a value whenever some kept bucket reaches into
//! it, as a window of the same interval has. If no whole bucket can be the step's own, its value is 0. Its upper bound is then
//! the count of the buckets that reach into it.
//!
//! Each boundary between steps moves to the nearest boundary of kept buckets, independently of the others. That fails where a
//! finer granularity begins to be kept in the middle of a coarser bucket. There either one step takes the coarser bucket whole,
//! or the steps behind take the finer ones. [`Planner`] compares the choices. It prefers the fewest steps without buckets of
//! their own, then the smallest errors beyond the accepted error, the fewest buckets, and the smallest errors.

use super::window::{holding, kept_at, walk};
use super::{Answer, Cover, Granularity, Horizon, Run, UnixTime, Window};
use std::ops::Range;

/// The kept buckets that answer for one step of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepCover {
    /// Whole buckets that belong to this step alone.
    Own(Cover),
    /// The step has no buckets of its own: the buckets that reach into it are longer, or belong to a step beside it. They are
    /// listed here; `None`: a part of the step is kept nowhere.
    Shared(Option<Vec<Run>>),
    /// Nothing of it is kept.
    NotKept,
}

impl StepCover {
    /// Plans the steps between boundaries, such as those of [`Zone::steps`](super::calendar::Zone::steps). A boundary moves by at most the
    /// accepted error to where the coarsest buckets end, or to the nearest end of a bucket where none is that near.
    pub fn plan(horizon: &Horizon, boundaries: &[UnixTime], accepted_s: u64) -> Vec<StepCover> {
        let planner = Planner::new(horizon, accepted_s);
        let steps: Vec<Step> = boundaries.windows(2).map(|pair| planner.step(pair[0], pair[1])).collect();
        let chosen = planner.choose(&steps);
        steps.iter().zip(chosen).map(|(step, ends)| planner.cover(step.asked, ends)).collect()
    }

    /// The buckets that are its own.
    pub fn own(&self) -> Option<&Cover> {
        match self {
            StepCover::Own(cover) => Some(cover),
            StepCover::Shared(_) | StepCover::NotKept => None,
        }
    }

    /// All buckets that are read.
    pub fn parts(&self) -> impl Iterator<Item = &Run> {
        let shared = match self {
            StepCover::Shared(Some(runs)) => &runs[..],
            StepCover::Own(_) | StepCover::Shared(None) | StepCover::NotKept => &[],
        };
        self.own().into_iter().flat_map(Cover::parts).chain(shared)
    }

    /// Reads the step; `None`: nothing of it is kept.
    pub fn read_with(&self, sum: impl FnMut(Granularity, Range<u32>) -> u64) -> Option<Answer> {
        match self {
            StepCover::Own(cover) => Some(cover.read_with(sum)),
            StepCover::Shared(runs) => {
                let at_most = runs.as_ref().map(|runs| Run::total(runs, sum));
                Some(Answer { value: 0, at_least: 0, at_most })
            }
            StepCover::NotKept => None,
        }
    }
}

/// Where the buckets of a step begin and end.
type Ends = (UnixTime, UnixTime);

/// A step, and between which boundaries its buckets may lie.
struct Step {
    asked: Window,
    starts: Vec<UnixTime>,
    stops: Vec<UnixTime>,
}

/// A bucket with a middle at which a finer granularity begins to be kept.
struct Seam {
    bucket: Ends,
    /// There the finer one begins.
    finer_from: UnixTime,
    /// Steps are planned together that lie so near to it, seconds.
    margin_s: u64,
}

struct Planner<'a> {
    horizon: &'a Horizon,
    accepted_s: u64,
    seams: Vec<Seam>,
    /// The beginning of the kept buckets.
    begin: Option<UnixTime>,
}

/// How good a choice is; less is better.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// Steps without buckets of their own.
    shared: u64,
    excess_s: u64,
    buckets: u64,
    error_s: u64,
}

/// The best choice for the first steps that leaves all buckets from `end` on to the others.
struct Choice {
    end: UnixTime,
    cost: Cost,
    /// The end that the last step of the choice takes.
    ends: Option<Ends>,
    /// The choice for those before it, by its place.
    before: usize,
}

impl Cost {
    fn plus(self, other: Cost) -> Cost {
        Cost {
            shared: self.shared + other.shared,
            excess_s: self.excess_s.saturating_add(other.excess_s),
            buckets: self.buckets.saturating_add(other.buckets),
            error_s: self.error_s.saturating_add(other.error_s),
        }
    }
}

impl<'a> Planner<'a> {
    fn new(horizon: &'a Horizon, accepted_s: u64) -> Planner<'a> {
        let begin = horizon.first().iter().map(|&(granularity, first)| granularity.start(first)).min();
        let begins = horizon.first().iter().map(|&(granularity, first)| granularity.start(first));
        let seam = |finer_from: UnixTime| {
            let before = UnixTime::default().plus(finer_from.s().checked_sub(1)?);
            let (granularity, index) = kept_at(horizon, before).next()?;
            let bucket = (granularity.start(index), granularity.end(index));
            let margin_s = (bucket.1.s() - bucket.0.s()).saturating_add(accepted_s.saturating_mul(2));
            (finer_from < bucket.1).then_some(Seam { bucket, finer_from, margin_s })
        };
        Planner { horizon, accepted_s, seams: begins.filter_map(seam).collect(), begin }
    }

    fn step(&self, from: UnixTime, to: UnixTime) -> Step {
        let asked = Window::between(from, to);
        let mut starts = vec![self.snapped(from)];
        let mut stops = vec![self.snapped(to)];
        if self.seams.iter().any(|seam| seam.is_near(asked)) {
            starts.extend(self.around(from));
            stops.extend(self.around(to));
            for seam in &self.seams {
                let is_within = |at: UnixTime| seam.bucket.0 < at && at < seam.bucket.1;
                starts.extend([seam.finer_from, seam.bucket.1].into_iter().filter(|_| is_within(from)));
                starts.extend([seam.finer_from].into_iter().filter(|&begin| from < begin && begin < to));
                stops.extend([seam.bucket.0, seam.bucket.1].into_iter().filter(|_| is_within(to)));
                stops.extend([seam.bucket.0].into_iter().filter(|&end| from < end && end < to));
            }
        }
        for times in [&mut starts, &mut stops] {
            times.sort_unstable();
            times.dedup();
        }
        Step { asked, starts, stops }
    }

    /// The ends of the finest bucket that holds a time.
    fn around(&self, at: UnixTime) -> impl Iterator<Item = UnixTime> + use<> {
        let finest = kept_at(self.horizon, at).next();
        finest.into_iter().flat_map(|(granularity, index)| [granularity.start(index), granularity.end(index)])
    }

    /// The boundary that stands for a time: at most the accepted error away and the coarsest, or else the nearest. Before all that is
    /// kept it is where that begins.
    fn snapped(&self, at: UnixTime) -> UnixTime {
        let nearest = |(granularity, index): (Granularity, u32)| {
            let ends = [granularity.start(index), granularity.end(index)];
            ends.into_iter().min_by_key(|end| end.s().abs_diff(at.s()))
        };
        let candidates: Vec<UnixTime> = kept_at(self.horizon, at).filter_map(nearest).collect();
        let accepted = candidates.iter().rev().find(|time| time.s().abs_diff(at.s()) <= self.accepted_s);
        accepted.or(candidates.first()).copied().or(self.begin).unwrap_or(at)
    }

    /// For each step where its buckets begin and end; `None`: it has none of its own.
    fn choose(&self, steps: &[Step]) -> Vec<Option<Ends>> {
        // No step from here on begins before that.
        let mut floors = vec![UnixTime::MAX; steps.len() + 1];
        for (at, step) in steps.iter().enumerate().rev() {
            floors[at] = step.starts.first().map_or(floors[at + 1], |&start| start.min(floors[at + 1]));
        }
        let begin = Choice { end: UnixTime::default(), cost: Cost::default(), ends: None, before: 0 };
        let mut layers = vec![vec![begin]];
        for (step, floor) in steps.iter().zip(&floors[1..]) {
            let next = self.choices(step, layers.last().map_or(&[], Vec::as_slice), *floor);
            layers.push(next);
        }
        let last = layers.last().map_or(&[][..], Vec::as_slice);
        let mut place = (0..last.len()).min_by_key(|&place| last[place].cost).unwrap_or(0);
        let mut chosen = Vec::with_capacity(steps.len());
        for layer in layers[1..].iter().rev() {
            chosen.push(layer[place].ends);
            place = layer[place].before;
        }
        chosen.reverse();
        chosen
    }

    /// The choices of the steps up to this one, for each choice of the steps before. The later a choice ends, the less it must
    /// cost.
    fn choices(&self, step: &Step, before: &[Choice], floor: UnixTime) -> Vec<Choice> {
        let mut choices = Vec::with_capacity(before.len() * 2);
        for (place, held) in before.iter().enumerate() {
            let shared = held.cost.plus(Cost { shared: 1, ..Cost::default() });
            choices.push(Choice { end: held.end, cost: shared, ends: None, before: place });
            for &start in step.starts.iter().chain([&held.end]).filter(|&&start| start >= held.end) {
                for &stop in &step.stops {
                    let Some(cost) = self.cost(step.asked, start, stop) else { continue };
                    let ends = Some((start, stop));
                    choices.push(Choice { end: stop, cost: held.cost.plus(cost), ends, before: place });
                }
            }
        }
        for choice in &mut choices {
            choice.end = choice.end.max(floor);
        }
        choices.sort_by_key(|choice| (choice.end, choice.cost));
        let mut best: Option<Cost> = None;
        choices.retain(|choice| {
            let is_better = best.is_none_or(|best| choice.cost < best);
            best = if is_better { Some(choice.cost) } else { best };
            is_better
        });
        choices
    }

    /// The cost to read a step from there; `None`: that is outside the step, or no row of kept buckets leads there.
    fn cost(&self, asked: Window, from: UnixTime, to: UnixTime) -> Option<Cost> {
        if from >= to || from >= asked.to() || asked.from() >= to {
            return None;
        }
        let buckets = walk(self.horizon, from, to, |_| {})?;
        let errors_s = [asked.from().s().abs_diff(from.s()), asked.to().s().abs_diff(to.s())];
        let excess_s = errors_s.iter().map(|error_s| error_s.saturating_sub(self.accepted_s)).sum();
        Some(Cost { shared: 0, excess_s, buckets, error_s: errors_s[0] + errors_s[1] })
    }

    fn cover(&self, asked: Window, ends: Option<Ends>) -> StepCover {
        let own = ends.and_then(|(from, to)| Cover::between(self.horizon, asked, from, to).ok());
        match own {
            Some(cover) => StepCover::Own(cover),
            None if self.begin.is_some_and(|begin| begin < asked.to()) => {
                StepCover::Shared(holding(self.horizon, asked.from(), asked.to()))
            }
            None => StepCover::NotKept,
        }
    }
}

impl Seam {
    fn is_near(&self, asked: Window) -> bool {
        let (from, to) = self.bucket;
        asked.from() < to.plus(self.margin_s) && from.minus(self.margin_s) < asked.to()
    }
}
