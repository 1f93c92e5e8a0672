//! The answers to a client about many counters, their series and the graph.

use crate::error::AskError;
use std::collections::BTreeMap;
use tidemark_proto::ids::CounterName;
use tidemark_proto::msg::Reading;
use tidemark_proto::queries::{AsOfTold, Interval, PlanTold, RelativesTold, SeriesTold, StepTold};
use tidemark_proto::query::{Basis, Counted, CounterAsOf, Windowed};
use tidemark_proto::series::Window;
use tidemark_proto::time::WallMs;

/// Of when an answer is, and of totals what it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsOf {
    /// The time of the reading, by the clock of the aggregator that answered.
    pub at: WallMs,
    /// Of how many instants it is: 1, unless several aggregators hold a part each.
    pub instants: u64,
    /// Of totals: how far counting and the graph had come in them, where it is known.
    pub basis: Option<Basis>,
}

/// The counts of a counter in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowRead {
    pub as_of: AsOf,
    /// All that it has counted.
    pub reading: Reading,
    /// The asked interval, the interval that `counted` covers exactly, and the error.
    pub window: Interval,
    pub counted: Counted,
    /// The interval of the same kind before, where that was asked for and anything of it is kept.
    pub previous: Option<(Interval, Counted)>,
}

/// The counts of a counter in steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesRead {
    pub as_of: AsOf,
    pub reading: Reading,
    pub asked: Window,
    /// Ascending; each begins where the one before ends.
    pub steps: Vec<StepRead>,
}

/// One step of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRead {
    pub step: StepTold,
    /// `None`: nothing is kept of this step, or only buckets that are longer.
    pub counted: Option<Counted>,
}

/// Counters at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsOfRead {
    pub as_of: AsOf,
    /// Of each namespace that was asked for, the windows in the order asked.
    pub windows: BTreeMap<String, Vec<PlanTold>>,
    /// In the order asked; of a range, in that of their keys; of a ranking, in that of their places.
    pub counters: Vec<CounterRead>,
    /// Of a range: the last key of this page, for [`Range::after`](crate::Range::after); `None`: there is nothing more.
    pub next: Option<Vec<u8>>,
}

/// The reading of one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterRead {
    pub counter: CounterName,
    pub reading: Reading,
    /// In the order of its namespace's windows.
    pub windows: Vec<Windowed>,
}

/// Counters in the same steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeSeriesRead {
    pub as_of: AsOf,
    pub asked: Window,
    pub steps: Vec<StepTold>,
    /// In the order of their keys.
    pub counters: Vec<CounterSteps>,
    /// As in [`AsOfRead`].
    pub next: Option<Vec<u8>>,
}

/// The steps of one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterSteps {
    pub counter: CounterName,
    pub reading: Reading,
    /// In each step; `None` where it covers nothing.
    pub values: Vec<Option<Counted>>,
}

/// A ranking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopRead {
    /// Counters among which these are the first.
    pub looked_at: u64,
    pub ranked: AsOfRead,
}

/// Neighbours of a counter in the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighboursRead {
    /// In the order of their first edges.
    pub counters: Vec<CounterName>,
    /// There are others behind the last.
    pub has_more: bool,
}

impl AsOfRead {
    /// Of counters that the question named, or else of those that the answer names.
    pub(crate) fn new(named: Option<Vec<CounterName>>, told: AsOfTold) -> Result<AsOfRead, AskError> {
        let AsOfTold { at, instants, basis, plans, names, counters, next } = told;
        let names = named.unwrap_or(names);
        let namespaces = |name: &CounterName| plans.get(name.namespace()).map_or(0, Vec::len);
        if names.len() != counters.len() {
            return Err(AskError::Strange(format!("{} counters of {}", counters.len(), names.len())));
        }
        let read = |(counter, read): (CounterName, CounterAsOf)| match read.windows.len() == namespaces(&counter) {
            true => Ok(CounterRead { counter, reading: read.reading, windows: read.windows }),
            false => Err(AskError::Strange(format!("{} windows of {counter}", read.windows.len()))),
        };
        let counters = names.into_iter().zip(counters).map(read).collect::<Result<_, _>>()?;
        Ok(AsOfRead { as_of: AsOf { at, instants, basis }, windows: plans, counters, next })
    }

    /// The one window of the one counter.
    pub(crate) fn into_window(mut self) -> Result<WindowRead, AskError> {
        let none = || AskError::Strange("no window".to_owned());
        let CounterRead { counter, reading, windows } = self.counters.pop().ok_or_else(none)?;
        let plan = self.windows.get(counter.namespace()).and_then(|plans| plans.first()).ok_or_else(none)?;
        let Windowed { counted, previous } = *windows.first().ok_or_else(none)?;
        let previous = plan.previous.zip(previous);
        Ok(WindowRead { as_of: self.as_of, reading, window: plan.window, counted, previous })
    }
}

impl SeriesRead {
    pub(crate) fn new(told: SeriesTold) -> Result<SeriesRead, AskError> {
        let SeriesTold { at, instants, basis, asked, steps, readings, values, .. } = told;
        let &[reading] = readings.as_slice() else {
            return Err(AskError::Strange(format!("{} counters of 1", readings.len())));
        };
        let steps = steps.into_iter().zip(values).map(|(step, counted)| StepRead { step, counted }).collect();
        Ok(SeriesRead { as_of: AsOf { at, instants, basis }, reading, asked, steps })
    }
}

impl RangeSeriesRead {
    pub(crate) fn new(told: SeriesTold) -> Result<RangeSeriesRead, AskError> {
        let SeriesTold { at, instants, basis, asked, steps, names, readings, values, next } = told;
        if names.len() != readings.len() {
            return Err(AskError::Strange(format!("{} counters of {}", readings.len(), names.len())));
        }
        let mut values = values.into_iter();
        let of_each = |(counter, reading)| {
            let values = values.by_ref().take(steps.len()).collect();
            CounterSteps { counter, reading, values }
        };
        let counters = names.into_iter().zip(readings).map(of_each).collect();
        Ok(RangeSeriesRead { as_of: AsOf { at, instants, basis }, asked, steps, counters, next })
    }
}

impl From<RelativesTold> for NeighboursRead {
    fn from(RelativesTold { counters, has_more }: RelativesTold) -> NeighboursRead {
        NeighboursRead { counters, has_more }
    }
}
