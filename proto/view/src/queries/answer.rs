//! Answers to clients' questions.

use super::{ANSWER_BYTES_MAX, HEAD_BYTES, names_valid};
use crate::query::{
    AsOf, Basis, Counted, CounterAsOf, CounterSeries, Page, QueryError, SeriesRead, Step, TopAsOf, WindowPlan,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tidemark_types::ids::CounterName;
use tidemark_types::limits::{
    GROUPS_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX, NAMESPACE_BYTES_MAX, NAMESPACES_MAX, QUERY_COUNTERS_MAX,
    QUERY_WINDOWS_MAX, RANGE_MAX, SERIES_VALUES_MAX, STEPS_MAX,
};
use tidemark_types::series::calendar::{CalendarError, UnknownZone};
use tidemark_types::series::{Cover, Window};
use tidemark_types::time::WallMs;
use tidemark_wire::framed::{at_most, few};
use tidemark_wire::msg::Reading;
use tidemark_wire::wire::{Message, Tail, WireError, bounds::text};

/// Streams of other data centres in the basis of an answer's totals. With more, the answer has no basis.
pub const BASIS_STREAMS_MAX: usize = 1 << 16;

const COUNTED_BYTES_MAX: usize = 1 + 3 * 19;
const READING_BYTES_MAX: usize = 3 * 10 + 11 + 5 + 10;
const INTERVAL_BYTES_MAX: usize = 4 * 6 + 2 * 6;
const BASIS_BYTES_MAX: usize = 64 + GROUPS_MAX * (11 + 10) + BASIS_STREAMS_MAX * (3 + 3 + 20);
const PLANS_BYTES_MAX: usize =
    NAMESPACES_MAX * (2 + NAMESPACE_BYTES_MAX + QUERY_WINDOWS_MAX * (2 * INTERVAL_BYTES_MAX + 1));
const _: () = assert!(
    HEAD_BYTES
        + BASIS_BYTES_MAX
        + PLANS_BYTES_MAX
        + 2 * RANGE_MAX * NAME_BYTES_MAX
        + QUERY_COUNTERS_MAX * (READING_BYTES_MAX + 1 + QUERY_WINDOWS_MAX * (2 * COUNTED_BYTES_MAX + 1))
        <= ANSWER_BYTES_MAX
);
const _: () = assert!(
    HEAD_BYTES
        + BASIS_BYTES_MAX
        + STEPS_MAX * (4 * 6 + 1)
        + 2 * RANGE_MAX * (NAME_BYTES_MAX + READING_BYTES_MAX)
        + SERIES_VALUES_MAX * (1 + COUNTED_BYTES_MAX)
        <= ANSWER_BYTES_MAX
);

/// An answer, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueryAnswer {
    AsOf(AsOfTold),
    Series(SeriesTold),
    Top(TopTold),
    Relatives(RelativesTold),
    Refused(QueryRefusal),
}

/// A requested interval, and the interval that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    pub asked: Window,
    /// The exact interval in which values were counted.
    pub covered: Window,
    /// The difference at the beginning and at the end, seconds. The part that lies beyond now is no error.
    pub error_s: (u64, u64),
}

/// A window as it was planned for a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanTold {
    pub window: Interval,
    /// The interval before, where it was asked for and has an answer.
    pub previous: Option<Interval>,
}

/// Counters at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsOfTold {
    pub at: WallMs,
    /// The number of instants that the answer combines: one for each aggregator's answer in it.
    pub instants: u64,
    /// The basis of totals, in an answer about totals.
    pub basis: Option<Basis>,
    /// For each namespace that was asked for, each window.
    #[serde(deserialize_with = "few::<NAMESPACES_MAX, _, _, _>")]
    pub plans: BTreeMap<String, Vec<PlanTold>>,
    /// The name of each counter, if the question does not name them.
    #[serde(deserialize_with = "few::<{ 2 * RANGE_MAX }, _, _, _>")]
    pub names: Vec<CounterName>,
    /// In the order asked, or that of the answer.
    #[serde(deserialize_with = "few::<QUERY_COUNTERS_MAX, _, _, _>")]
    pub counters: Vec<CounterAsOf>,
    /// For a range: the beginning of the next page; `None`: there is nothing more.
    pub next: Option<Vec<u8>>,
}

/// Counters in the same steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesTold {
    pub at: WallMs,
    pub instants: u64,
    pub basis: Option<Basis>,
    pub asked: Window,
    /// Ascending; each begins where the one before ends.
    #[serde(deserialize_with = "few::<STEPS_MAX, _, _, _>")]
    pub steps: Vec<StepTold>,
    /// As in [`AsOfTold`].
    #[serde(deserialize_with = "few::<{ 2 * RANGE_MAX }, _, _, _>")]
    pub names: Vec<CounterName>,
    #[serde(deserialize_with = "few::<{ 2 * RANGE_MAX }, _, _, _>")]
    pub readings: Vec<Reading>,
    /// All steps of the first counter, then of the next.
    #[serde(deserialize_with = "few::<SERIES_VALUES_MAX, _, _, _>")]
    pub values: Vec<Option<Counted>>,
    pub next: Option<Vec<u8>>,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTold {
    pub asked: Window,
    /// The exact interval in which its values were counted. `None`: it has no whole bucket of its own. Then its values are 0,
    /// with the count of the buckets that reach into it as the upper bound, or `None` if nothing of it is kept.
    pub covered: Option<Window>,
}

/// A ranking.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopTold {
    /// Counters among which these are the first.
    pub looked_at: u64,
    pub ranked: AsOfTold,
}

/// Some of a counter's neighbours in the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelativesTold {
    /// In the order of their first edges.
    #[serde(deserialize_with = "few::<RANGE_MAX, _, _, _>")]
    pub counters: Vec<CounterName>,
    /// There are others behind the last.
    pub has_more: bool,
}

/// Why a question is not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum QueryRefusal {
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error(transparent)]
    Zone(#[from] UnknownZone),
    #[error("unknown namespace {0:?}")]
    UnknownNamespace(String),
    /// Another aggregator may answer.
    #[error("not serving: {0}")]
    NotServing(String),
}

impl Interval {
    fn new(asked: Window, cover: &Cover) -> Interval {
        Interval { asked, covered: cover.covered, error_s: cover.error_s() }
    }
}

impl From<&WindowPlan> for PlanTold {
    fn from(plan: &WindowPlan) -> PlanTold {
        let window = Interval::new(plan.asked, &plan.cover);
        PlanTold { window, previous: plan.previous.as_ref().map(|cover| Interval::new(cover.asked, cover)) }
    }
}

impl StepTold {
    /// By how much the covered interval differs at the beginning and at the end, seconds.
    pub fn error_s(&self) -> Option<(u64, u64)> {
        let differ = |one: Window, other: Window| {
            (one.from().s().abs_diff(other.from().s()), one.to().s().abs_diff(other.to().s()))
        };
        self.covered.map(|covered| differ(self.asked, covered))
    }
}

impl From<Step> for StepTold {
    fn from(step: Step) -> StepTold {
        StepTold { asked: step.asked, covered: step.cover.own().map(|cover| cover.covered) }
    }
}

/// The basis, if it fits an answer.
fn basis_told(basis: Option<Basis>) -> Option<Basis> {
    basis.filter(|basis| basis.versions.len() <= BASIS_STREAMS_MAX && basis.groups.len() <= GROUPS_MAX)
}

impl From<AsOf> for AsOfTold {
    fn from(AsOf { at, plans, counters, instants, basis }: AsOf) -> AsOfTold {
        let told = |plans: Vec<WindowPlan>| plans.iter().map(PlanTold::from).collect();
        let plans = plans.into_iter().map(|(namespace, plans)| (namespace, told(plans))).collect();
        let names = Vec::new();
        let next = None;
        let instants = instants as u64;
        let basis = basis_told(basis);
        AsOfTold { at, instants, basis, plans, names, counters, next }
    }
}

impl AsOfTold {
    /// The same of the counters of a page.
    pub fn of_page(self, page: Page) -> AsOfTold {
        AsOfTold { names: page.counters, next: page.next, ..self }
    }
}

impl From<SeriesRead> for SeriesTold {
    fn from(SeriesRead { at, plan, counters, instants, basis }: SeriesRead) -> SeriesTold {
        let steps = plan.steps.into_iter().map(StepTold::from).collect();
        let mut readings = Vec::new();
        let mut values = Vec::new();
        for CounterSeries { reading, values: of_counter } in counters {
            readings.push(reading);
            values.extend(of_counter);
        }
        let names = Vec::new();
        let next = None;
        let instants = instants as u64;
        let basis = basis_told(basis);
        SeriesTold { at, instants, basis, asked: plan.asked, steps, names, readings, values, next }
    }
}

impl SeriesTold {
    /// The same of the counters of a page.
    pub fn of_page(self, page: Page) -> SeriesTold {
        SeriesTold { names: page.counters, next: page.next, ..self }
    }
}

impl From<TopAsOf> for TopTold {
    fn from(TopAsOf { looked_at, counters, read }: TopAsOf) -> TopTold {
        let page = Page { counters, next: None };
        TopTold { looked_at: looked_at as u64, ranked: AsOfTold::from(read).of_page(page) }
    }
}

fn malformed(what: String) -> Result<(), WireError> {
    Err(WireError::Malformed(what))
}

/// Names of a page, and where the next one begins.
fn page_valid(names: &[CounterName], counters: usize, next: Option<&Vec<u8>>) -> Result<(), WireError> {
    if !names.is_empty() && names.len() != counters {
        return malformed(format!("{} names of {counters} counters", names.len()));
    }
    names_valid(names.iter())?;
    at_most("bytes of a key", next.map_or(0, Vec::len), KEY_BYTES_MAX)
}

fn basis_valid(basis: Option<&Basis>) -> Result<(), WireError> {
    at_most("groups of a basis", basis.map_or(0, |basis| basis.groups.len()), GROUPS_MAX)?;
    at_most("streams of a basis", basis.map_or(0, |basis| basis.versions.len()), BASIS_STREAMS_MAX)
}

impl AsOfTold {
    fn validate(&self) -> Result<(), WireError> {
        basis_valid(self.basis.as_ref())?;
        page_valid(&self.names, self.counters.len(), self.next.as_ref())?;
        at_most("namespaces of an answer", self.plans.len(), NAMESPACES_MAX)?;
        at_most("counters of an answer", self.counters.len(), QUERY_COUNTERS_MAX)?;
        for (namespace, plans) in &self.plans {
            CounterName::check(namespace, b"-")?;
            at_most("windows of a namespace", plans.len(), QUERY_WINDOWS_MAX)?;
        }
        let windows = self.counters.iter().map(|counter| counter.windows.len());
        at_most("windows of a counter", windows.max().unwrap_or(0), QUERY_WINDOWS_MAX)
    }
}

impl SeriesTold {
    fn validate(&self) -> Result<(), WireError> {
        basis_valid(self.basis.as_ref())?;
        page_valid(&self.names, self.readings.len(), self.next.as_ref())?;
        at_most("counters of an answer", self.readings.len(), 2 * RANGE_MAX)?;
        at_most("steps of an answer", self.steps.len(), STEPS_MAX)?;
        at_most("values of an answer", self.values.len(), SERIES_VALUES_MAX)?;
        let counters = self.readings.len();
        let steps = self.steps.len();
        let values = self.values.len();
        if values == counters * steps {
            Ok(())
        } else {
            malformed(format!("{values} values of {counters} counters in {steps} steps"))
        }
    }
}

impl QueryRefusal {
    fn validate(&self) -> Result<(), WireError> {
        match self {
            QueryRefusal::Query(error) => error_valid(error),
            QueryRefusal::Zone(unknown) => text(unknown.name()),
            QueryRefusal::UnknownNamespace(shown) | QueryRefusal::NotServing(shown) => text(shown),
        }
    }
}

fn error_valid(error: &QueryError) -> Result<(), WireError> {
    match error {
        QueryError::NoSeries(shown)
        | QueryError::Calendar(
            CalendarError::Period(shown) | CalendarError::Unit(shown) | CalendarError::Time(shown),
        ) => text(shown),
        QueryError::Calendar(
            CalendarError::Uneven { .. }
            | CalendarError::TooManySteps(_)
            | CalendarError::OutOfRange { .. }
            | CalendarError::Empty(_),
        )
        | QueryError::Time(_)
        | QueryError::Empty(_)
        | QueryError::Ahead { .. }
        | QueryError::NotKept(_)
        | QueryError::Error(_)
        | QueryError::FinerThanKept { .. }
        | QueryError::TooManyCounters(_)
        | QueryError::TooManyValues { .. }
        | QueryError::TooManyWindows(_)
        | QueryError::TooManyToRank
        | QueryError::Ranks(_) => Ok(()),
    }
}

impl Message for QueryAnswer {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        match self {
            QueryAnswer::AsOf(told) => told.validate(),
            QueryAnswer::Series(told) => told.validate(),
            QueryAnswer::Top(told) => told.ranked.validate(),
            QueryAnswer::Relatives(told) => {
                at_most("counters of a page", told.counters.len(), RANGE_MAX)?;
                names_valid(told.counters.iter())
            }
            QueryAnswer::Refused(refusal) => refusal.validate(),
        }
    }
}
