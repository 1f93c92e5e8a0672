//! Reading plans from the rows of counters.

use super::{Basis, QueryError, SeriesPlan, SeriesQuery, WindowPlan, WindowQuery};
use crate::view::hierarchy::HeldTotals;
use crate::view::{HeldRow, Total, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use tidemark_ledger::ledger::Ledger;
use tidemark_types::ids::{CounterName, Half};
use tidemark_types::limits::{QUERY_COUNTERS_MAX, QUERY_WINDOWS_MAX, SERIES_VALUES_MAX};
use tidemark_types::series::{Answer, Cover, Granularity, Horizon, StepCover, Totals, UnixTime};
use tidemark_types::time::WallMs;
use tidemark_wire::msg::Reading;

/// Where counts come from, at one instant.
pub trait Source {
    /// How far the series of a namespace have expired; `None` where it keeps none.
    fn horizon(&self, namespace: &str) -> Option<&Horizon>;

    /// The value of a counter as it is shown.
    fn reading(&self, counter: &CounterName) -> Reading;

    /// The rows of one half of a counter in a generation, one of each valve, and the counts that flow to it if requested.
    fn rows(&self, counter: &CounterName, half: Half, generation: u32) -> Vec<Buckets<'_>>;
}

/// Buckets to be summed up.
#[derive(Clone, Debug)]
pub enum Buckets<'a> {
    /// The row of one valve.
    Row(HeldRow<'a>),
    /// Sums of all valves of a counter, and of the counts that flow to it if requested.
    Sums(&'a Totals),
    /// The counts that flow to a counter along edges from the counters of one range.
    Shares(HeldTotals<'a>),
}

impl Buckets<'_> {
    /// The sum over buckets of one granularity, saturating.
    pub fn sum(&self, granularity: Granularity, indexes: Range<u32>) -> u64 {
        match self {
            Buckets::Row(row) => row.sum(granularity, indexes),
            Buckets::Sums(totals) => totals.sum(granularity, indexes),
            Buckets::Shares(totals) => totals.sum(granularity, indexes),
        }
    }
}

/// The counts of counters that are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Of {
    /// Their own.
    Direct,
    /// Own counts, and the counts that flow to them along edges.
    Total,
}

impl Of {
    /// How far the series of a namespace have expired in a view; `None` if it keeps none. If edges come from namespaces that keep
    /// less, a total keeps no more than they do.
    pub fn horizon<'a>(self, view: &'a View, namespace: &str) -> Option<&'a Horizon> {
        let direct = || view.series_of(namespace).map(|series| &series.horizon);
        match self {
            Of::Direct => direct(),
            Of::Total => view.total_horizon(namespace).or_else(direct),
        }
    }
}

/// The own counts of counters in a view, with the ledger applied beside it.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    pub view: &'a View,
    pub ledger: &'a Ledger,
}

impl Source for Shown<'_> {
    fn horizon(&self, namespace: &str) -> Option<&Horizon> {
        Of::Direct.horizon(self.view, namespace)
    }

    fn reading(&self, counter: &CounterName) -> Reading {
        self.view.read(counter, self.ledger)
    }

    fn rows(&self, counter: &CounterName, half: Half, generation: u32) -> Vec<Buckets<'_>> {
        self.view.held_rows(counter, half, generation).map(Buckets::Row).collect()
    }
}

/// Totals likewise: counters' own counts, and the counts that flow to them along edges.
#[derive(Clone, Copy, Debug)]
pub struct ShownTotals<'a> {
    pub view: &'a View,
    pub ledger: &'a Ledger,
}

impl Source for ShownTotals<'_> {
    fn horizon(&self, namespace: &str) -> Option<&Horizon> {
        Of::Total.horizon(self.view, namespace)
    }

    /// The fields beside the halves concern the counter itself only.
    fn reading(&self, counter: &CounterName) -> Reading {
        let Total { direct, up, down } = self.view.total(counter, self.ledger);
        Reading { up, down, ..direct }
    }

    fn rows(&self, counter: &CounterName, half: Half, generation: u32) -> Vec<Buckets<'_>> {
        let own = self.view.held_rows(counter, half, generation).map(Buckets::Row);
        let shares = self.view.inherited_buckets(counter, half, self.ledger);
        own.chain(shares.map(|(_, totals)| Buckets::Shares(totals))).collect()
    }
}

/// The count in an interval: up less down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "EncodedCounted", into = "EncodedCounted")]
pub struct Counted {
    /// Exact for the covered interval.
    pub value: i128,
    /// Bounds of the count in the requested interval.
    pub at_least: i128,
    pub at_most: i128,
}

/// On the wire: most values are exact for the requested interval, and take no bytes for bounds.
#[derive(Clone, Serialize, Deserialize)]
enum EncodedCounted {
    Exact(i128),
    Between { value: i128, at_least: i128, at_most: i128 },
}

impl From<Counted> for EncodedCounted {
    fn from(counted: Counted) -> EncodedCounted {
        let Counted { value, at_least, at_most } = counted;
        match at_least == value && at_most == value {
            true => EncodedCounted::Exact(value),
            false => EncodedCounted::Between { value, at_least, at_most },
        }
    }
}

impl From<EncodedCounted> for Counted {
    fn from(encoded: EncodedCounted) -> Counted {
        match encoded {
            EncodedCounted::Exact(value) => Counted { value, at_least: value, at_most: value },
            EncodedCounted::Between { value, at_least, at_most } => Counted { value, at_least, at_most },
        }
    }
}

/// A window of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Windowed {
    pub counted: Counted,
    /// As the plan has one.
    pub previous: Option<Counted>,
}

/// Many counters at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsOf {
    pub at: WallMs,
    /// For each namespace that was asked for, a plan of each window.
    pub plans: BTreeMap<String, Vec<WindowPlan>>,
    /// In the order asked.
    pub counters: Vec<CounterAsOf>,
    /// The number of instants that it combines: one for each answer in it.
    pub instants: usize,
    /// The basis of totals, if known.
    pub basis: Option<Basis>,
}

/// A counter of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterAsOf {
    pub reading: Reading,
    /// In the order of its namespace's plans.
    pub windows: Vec<Windowed>,
}

/// Series of counters of one namespace over the same steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesRead {
    pub at: WallMs,
    pub plan: SeriesPlan,
    /// In the order asked.
    pub counters: Vec<CounterSeries>,
    /// As in [`AsOf`].
    pub instants: usize,
    pub basis: Option<Basis>,
}

/// A counter of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterSeries {
    pub reading: Reading,
    /// A value for each step; `None` if nothing of it is kept.
    pub values: Vec<Option<Counted>>,
}

/// Values of counters, and windows of each. Errors: too many of either, a namespace without series though windows are asked for, or a
/// window that cannot be planned.
pub fn read_at(
    source: &impl Source,
    at: WallMs,
    counters: &[CounterName],
    windows: &[WindowQuery],
) -> Result<AsOf, QueryError> {
    let plans = plan_at(|namespace| source.horizon(namespace), at, counters, windows)?;
    let read = |counter: &CounterName| {
        let plans = plans.get(counter.namespace()).map_or(&[][..], Vec::as_slice);
        let halves = Halves::of(source, counter, !plans.is_empty());
        CounterAsOf { reading: halves.reading, windows: plans.iter().map(|plan| halves.windowed(plan)).collect() }
    };
    let counters = counters.iter().map(read).collect();
    Ok(AsOf { at, plans, counters, instants: 1, basis: None })
}

/// For each namespace that is asked for, a plan of each window. Errors: as of [`read_at`].
pub(super) fn plan_at<'a>(
    horizon: impl Fn(&str) -> Option<&'a Horizon>,
    at: WallMs,
    counters: &[CounterName],
    windows: &[WindowQuery],
) -> Result<BTreeMap<String, Vec<WindowPlan>>, QueryError> {
    if counters.len() > QUERY_COUNTERS_MAX {
        return Err(QueryError::TooManyCounters(counters.len()));
    }
    if windows.len() > QUERY_WINDOWS_MAX {
        return Err(QueryError::TooManyWindows(windows.len()));
    }
    let now = UnixTime::from_wall(at);
    let mut plans = BTreeMap::new();
    for namespace in counters.iter().map(CounterName::namespace).filter(|_| !windows.is_empty()) {
        if !plans.contains_key(namespace) {
            let horizon = kept(horizon(namespace), namespace)?;
            let planned = windows.iter().map(|window| window.plan(horizon, now)).collect::<Result<Vec<_>, _>>()?;
            plans.insert(namespace.to_owned(), planned);
        }
    }
    Ok(plans)
}

/// The counts of some counters of a namespace in each step. Errors: a namespace without series, steps that cannot be planned, or
/// more values than [`SERIES_VALUES_MAX`].
pub fn read_series(
    source: &impl Source,
    at: WallMs,
    namespace: &str,
    counters: &[CounterName],
    query: &SeriesQuery,
) -> Result<SeriesRead, QueryError> {
    let plan = plan_series(source.horizon(namespace), at, namespace, query)?;
    let steps = plan.steps.len();
    if counters.len() * steps > SERIES_VALUES_MAX {
        return Err(QueryError::TooManyValues { counters: counters.len(), steps });
    }
    let counters = counters.iter().map(|counter| series_of(source, counter, &plan)).collect();
    Ok(SeriesRead { at, plan, counters, instants: 1, basis: None })
}

fn series_of(source: &impl Source, counter: &CounterName, plan: &SeriesPlan) -> CounterSeries {
    let mut halves = Halves::of(source, counter, true);
    let values = plan.steps.iter().map(|step| halves.take(&step.cover)).collect();
    CounterSeries { reading: halves.reading, values }
}

/// Errors: as of [`read_series`].
pub(super) fn plan_series(
    horizon: Option<&Horizon>,
    at: WallMs,
    namespace: &str,
    query: &SeriesQuery,
) -> Result<SeriesPlan, QueryError> {
    query.plan(kept(horizon, namespace)?, UnixTime::from_wall(at))
}

fn kept<'a>(horizon: Option<&'a Horizon>, namespace: &str) -> Result<&'a Horizon, QueryError> {
    horizon.ok_or_else(|| QueryError::NoSeries(namespace.to_owned()))
}

/// The rows of both halves of a counter.
struct Halves<'a> {
    reading: Reading,
    up: Shared<'a>,
    down: Shared<'a>,
}

/// The buckets of one half, and the part of it that is shown.
struct Shared<'a> {
    rows: Vec<Buckets<'a>>,
    shown: u64,
    /// Not yet in a step of a series.
    left: u64,
}

impl<'a> Halves<'a> {
    /// Without rows where only the reading is wanted.
    fn of(source: &'a impl Source, counter: &CounterName, with_rows: bool) -> Halves<'a> {
        let reading = source.reading(counter);
        let half = |half, shown| {
            // Where nothing is shown, no row is looked for.
            let rows = if with_rows && shown > 0 { source.rows(counter, half, reading.generation) } else { Vec::new() };
            Shared { rows, shown, left: shown }
        };
        Halves { reading, up: half(Half::Up, reading.up), down: half(Half::Down, reading.down) }
    }

    fn windowed(&self, plan: &WindowPlan) -> Windowed {
        let counted = |cover: &Cover| counted(self.up.read(cover), self.down.read(cover));
        Windowed { counted: counted(&plan.cover), previous: plan.previous.as_ref().map(counted) }
    }

    /// Reads one of several steps that have no bucket in common: their values together are at most the reading.
    fn take(&mut self, step: &StepCover) -> Option<Counted> {
        Some(counted(self.up.take(step)?, self.down.take(step)?))
    }
}

impl Shared<'_> {
    /// All of the answer is at most `shown`; in one generation nothing is in a window that is not in the total.
    fn read(&self, cover: &Cover) -> Answer {
        self.cut(cover.read_with(|granularity, indexes| self.sum(granularity, indexes)))
    }

    /// The value of a step is at most the rest of the reading. A true count of the step may be in the value of the step beside
    /// it, so the rest does not cut the upper bound.
    fn take(&mut self, step: &StepCover) -> Option<Answer> {
        let answer = self.cut(step.read_with(|granularity, indexes| self.sum(granularity, indexes))?);
        let value = answer.value.min(self.left);
        self.left -= value;
        Some(Answer { value, at_least: answer.at_least.min(value), ..answer })
    }

    fn sum(&self, granularity: Granularity, indexes: Range<u32>) -> u64 {
        self.rows.iter().fold(0, |sum: u64, row| sum.saturating_add(row.sum(granularity, indexes.clone())))
    }

    fn cut(&self, Answer { value, at_least, at_most }: Answer) -> Answer {
        let at_most = Some(at_most.map_or(self.shown, |at_most| at_most.min(self.shown)));
        Answer { value: value.min(self.shown), at_least: at_least.min(self.shown), at_most }
    }
}

fn counted(up: Answer, down: Answer) -> Counted {
    let most = |answer: Answer| answer.at_most.unwrap_or(answer.value);
    let less = |up: u64, down: u64| i128::from(up) - i128::from(down);
    Counted {
        value: less(up.value, down.value),
        at_least: less(up.at_least, most(down)),
        at_most: less(most(up), down.at_least),
    }
}
