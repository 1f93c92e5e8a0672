//! Answers about series in JSON.

use super::asked::{AnchorBody, WindowAsk};
use crate::api::Of;
use crate::api::body::{CounterBody, Signed, is_known, is_known_by_default};
use crate::http::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemark_proto::ids::{AggregatorId, CounterName, GroupId, LogIndex};
use tidemark_proto::msg::Version;
use tidemark_proto::query::{AsOf, Basis, Counted, CounterSeries, QueryError, SeriesRead, Step, WindowPlan, Windowed};
use tidemark_proto::series::calendar::Zone;
use tidemark_proto::series::{Cover, Window};
use tidemark_proto::shards::ShardId;

/// An interval that was asked for and the one that is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IntervalBody {
    /// By the clock of the zone that was asked for, with its offset.
    pub from: String,
    pub to: String,
    /// Seconds since 1970.
    pub from_s: u64,
    pub to_s: u64,
    /// The interval that `value` covers, exactly.
    pub covered_from_s: u64,
    pub covered_to_s: u64,
    /// By how much the covered interval differs at the beginning and at the end, seconds. The time after now is no error.
    pub error_s: [u64; 2],
}

/// The counts of an interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CountedBody {
    /// Exact for the covered interval.
    pub value: Signed,
    /// Bounds of the count in the requested interval.
    pub at_least: Signed,
    pub at_most: Signed,
}

/// The least state that totals are made of, as views move while they answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BasisBody {
    /// The ledger's last entry as applied by the answering process.
    pub ledger_index: u64,
    /// Totals are those of the graph after this number of changes of edges, and of this number of pairs of counters of the next change;
    /// `waiting` that the ledger knows are to be carried out.
    pub graph_index: u64,
    pub pairs: u64,
    pub waiting: u64,
    /// The version vector. Of each group of the data centre that answers, up to which entry of its log all of it is in.
    pub groups: Vec<GroupVersionBody>,
    /// Of each aggregator of other data centres and slot, up to which version of its stream all of it is in.
    pub aggregators: Vec<StreamVersionBody>,
}

/// The log of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupVersionBody {
    pub dc: u16,
    pub group: u16,
    pub incarnation: u32,
    pub entry: u64,
}

/// The stream of one aggregator of another data centre.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamVersionBody {
    pub dc: u16,
    pub seat: u8,
    pub slot: u16,
    /// Of its process's start, and within that.
    pub epoch: u64,
    pub version: u64,
}

impl From<&Basis> for BasisBody {
    fn from(basis: &Basis) -> BasisBody {
        let group = |(group, entry): (&GroupId, &LogIndex)| {
            let GroupId { dc, group, incarnation } = *group;
            GroupVersionBody { dc: dc.0, group, incarnation, entry: entry.0 }
        };
        let stream = |(&(slot, AggregatorId { dc, seat }), version): (&(ShardId, AggregatorId), &Version)| {
            let Version { epoch, version } = *version;
            StreamVersionBody { dc: dc.0, seat, slot: slot.0, epoch, version }
        };
        BasisBody {
            ledger_index: basis.ledger.0,
            graph_index: basis.graph.0,
            pairs: basis.graph.1,
            waiting: basis.waiting(),
            groups: basis.groups.iter().map(group).collect(),
            aggregators: basis.versions.iter().map(stream).collect(),
        }
    }
}

/// `GET …/window`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WindowBody {
    pub counter: CounterBody,
    /// As of [`CounterAsOfBody`].
    #[serde(default = "is_known_by_default")]
    pub known: bool,
    /// When it was read, milliseconds since 1970.
    pub at_unix_ms: u64,
    pub window: IntervalBody,
    pub counted: CountedBody,
    /// The period before, with `compare=previous`; `null` also where it has no answer.
    pub previous: Option<PreviousBody>,
    /// Why the period before has no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_previous: Option<NoPreviousBody>,
    /// As of [`AsOfBody`].
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub instants: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<BasisBody>,
}

/// Why the period before has no answer: what the error would be if only that period had been asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoPreviousBody {
    pub code: String,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PreviousBody {
    pub window: IntervalBody,
    pub counted: CountedBody,
}

/// `GET …/series`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesBody {
    pub counter: CounterBody,
    /// As of [`CounterAsOfBody`].
    #[serde(default = "is_known_by_default")]
    pub known: bool,
    pub at_unix_ms: u64,
    pub zone: String,
    pub every: String,
    pub from_s: u64,
    pub to_s: u64,
    /// Ascending; each begins where the one before ends.
    pub steps: Vec<StepBody>,
    /// As of [`AsOfBody`].
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub instants: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<BasisBody>,
}

/// `GET /v1/range` with `every`: many counters over the same steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RangeSeriesBody {
    pub at_unix_ms: u64,
    /// As of [`AsOfBody`].
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub instants: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<BasisBody>,
    pub zone: String,
    pub every: String,
    pub from_s: u64,
    pub to_s: u64,
    /// Ascending; each begins where the one before ends.
    pub steps: Vec<StepOfManyBody>,
    /// In the order of their keys.
    pub counters: Vec<CounterSeriesBody>,
    /// The last key of this page, to be given as `after`; left out where there is nothing more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A step of all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepOfManyBody {
    pub from: String,
    pub from_s: u64,
    pub to_s: u64,
    /// As of [`StepBody`].
    pub error_s: Option<[u64; 2]>,
}

/// The series of one counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CounterSeriesBody {
    pub counter: CounterBody,
    /// All that it has counted.
    pub value: Signed,
    /// As of [`CounterAsOfBody`].
    #[serde(default = "is_known_by_default")]
    pub known: bool,
    /// In each step; `null` where nothing of it is kept.
    pub values: Vec<Option<Signed>>,
    /// Bounds of what was counted in the steps as they were asked for; left out where `values` are exact for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_least: Vec<Option<Signed>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_most: Vec<Option<Signed>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepBody {
    pub from: String,
    pub from_s: u64,
    pub to_s: u64,
    /// `null`: nothing of the step is kept.
    pub value: Option<Signed>,
    pub at_least: Option<Signed>,
    pub at_most: Option<Signed>,
    /// By how much the interval of `value` differs at the beginning and at the end. `null`: no whole bucket belongs to this step alone.
    /// Then `value` is 0, and `at_most` is what the buckets hold that reach into the step.
    pub error_s: Option<[u64; 2]>,
}

/// `POST /v1/read`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadBody {
    /// `NAMESPACE/KEY`, each.
    #[schemars(schema_with = "crate::schemas::counters")]
    pub counters: Vec<String>,
    /// Of all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schemas::windows::<WindowAsk>")]
    pub windows: Vec<WindowAsk>,
    /// Which counts of theirs; direct ones when left out.
    #[serde(default)]
    pub of: Of,
}

/// Many counters at one instant; where a view is split over more than two aggregators, those of each answer of theirs at one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AsOfBody {
    pub at_unix_ms: u64,
    /// The number of instants that the answer combines: one for each aggregator's answer in it.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub instants: usize,
    /// Of totals: what they are made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<BasisBody>,
    /// The windows of each namespace that was asked for, in the order asked.
    pub namespaces: Vec<PlansBody>,
    /// In the order asked.
    pub counters: Vec<CounterAsOfBody>,
    /// Of a range: the last key of this page, to be given as `after`; left out where there is nothing more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

fn one() -> usize {
    1
}

fn is_one(instants: &usize) -> bool {
    *instants == 1
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlansBody {
    pub namespace: String,
    pub windows: Vec<PlanBody>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanBody {
    pub window: IntervalBody,
    pub previous: Option<IntervalBody>,
    /// Why the period before has no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_previous: Option<NoPreviousBody>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CounterAsOfBody {
    pub counter: CounterBody,
    /// All that it has counted.
    pub value: Signed,
    /// Something was counted once, as far as is known here.
    #[serde(default = "is_known_by_default")]
    pub known: bool,
    /// In the order of its namespace's windows.
    pub windows: Vec<WindowedBody>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WindowedBody {
    pub counted: CountedBody,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<CountedBody>,
}

/// `GET /v1/top`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopBody {
    /// Counters among which these are the first.
    pub looked_at: usize,
    /// In the order of their places.
    pub ranked: AsOfBody,
}

impl IntervalBody {
    fn new(asked: Window, cover: &Cover, zone: &Zone) -> IntervalBody {
        let (from_s, to_s) = cover.error_s();
        IntervalBody {
            from: zone.text(asked.from()),
            to: zone.text(asked.to()),
            from_s: asked.from().s(),
            to_s: asked.to().s(),
            covered_from_s: cover.covered.from().s(),
            covered_to_s: cover.covered.to().s(),
            error_s: [from_s, to_s],
        }
    }
}

impl From<&QueryError> for NoPreviousBody {
    fn from(error: &QueryError) -> NoPreviousBody {
        let failure = Failure::from(error.clone());
        NoPreviousBody { code: failure.code().to_owned(), message: failure.to_string() }
    }
}

impl From<Counted> for CountedBody {
    fn from(counted: Counted) -> CountedBody {
        let Counted { value, at_least, at_most } = counted;
        CountedBody { value: Signed(value), at_least: Signed(at_least), at_most: Signed(at_most) }
    }
}

impl From<Windowed> for WindowedBody {
    fn from(windowed: Windowed) -> WindowedBody {
        WindowedBody { counted: windowed.counted.into(), previous: windowed.previous.map(Into::into) }
    }
}

impl PlanBody {
    fn new(plan: &WindowPlan, zone: &Zone) -> PlanBody {
        let previous = plan.previous.as_ref().map(|cover| IntervalBody::new(cover.asked, cover, zone));
        let no_previous = plan.no_previous.as_ref().map(NoPreviousBody::from);
        PlanBody { window: IntervalBody::new(plan.asked, &plan.cover, zone), previous, no_previous }
    }
}

impl AsOfBody {
    /// `zones`: those of the windows, in their order.
    pub(super) fn new(counters: &[CounterName], as_of: AsOf, zones: &[Zone]) -> AsOfBody {
        let plans = |(namespace, plans): (&String, &Vec<WindowPlan>)| PlansBody {
            namespace: namespace.clone(),
            windows: plans.iter().zip(zones).map(|(plan, zone)| PlanBody::new(plan, zone)).collect(),
        };
        let read = counters.iter().zip(&as_of.counters).map(|(counter, read)| CounterAsOfBody {
            counter: counter.into(),
            value: Signed(read.reading.value()),
            known: is_known(&read.reading),
            windows: read.windows.iter().copied().map(Into::into).collect(),
        });
        AsOfBody {
            at_unix_ms: as_of.at.0,
            namespaces: as_of.plans.iter().map(plans).collect(),
            counters: read.collect(),
            next: None,
            instants: as_of.instants,
            basis: as_of.basis.as_ref().map(BasisBody::from),
        }
    }

    /// The one window of the one counter.
    pub(super) fn single(self) -> Option<WindowBody> {
        let plan = self.namespaces.into_iter().next()?.windows.into_iter().next()?;
        let CounterAsOfBody { counter, known, windows, .. } = self.counters.into_iter().next()?;
        let WindowedBody { counted, previous } = windows.into_iter().next()?;
        let previous = plan.previous.zip(previous).map(|(window, counted)| PreviousBody { window, counted });
        let at_unix_ms = self.at_unix_ms;
        let instants = self.instants;
        let basis = self.basis;
        let window = plan.window;
        let no_previous = plan.no_previous;
        Some(WindowBody { counter, known, at_unix_ms, window, counted, previous, no_previous, instants, basis })
    }
}

impl SeriesBody {
    /// Of the one counter that was read.
    pub(super) fn new(counter: &CounterName, read: &SeriesRead, zone: &Zone, every: &str) -> SeriesBody {
        let steps = read.plan.steps.iter().zip(read.counters.iter().flat_map(|counter| &counter.values));
        SeriesBody {
            counter: counter.into(),
            known: read.counters.iter().all(|series| is_known(&series.reading)),
            at_unix_ms: read.at.0,
            zone: zone.name().to_owned(),
            every: every.to_owned(),
            from_s: read.plan.asked.from().s(),
            to_s: read.plan.asked.to().s(),
            steps: steps.map(|(step, counted)| StepBody::new(step, *counted, zone)).collect(),
            instants: read.instants,
            basis: read.basis.as_ref().map(BasisBody::from),
        }
    }
}

impl RangeSeriesBody {
    /// Of these counters, in their order.
    pub(super) fn new(counters: &[CounterName], read: &SeriesRead, zone: &Zone, every: &str) -> RangeSeriesBody {
        let SeriesRead { at, plan, instants, basis, .. } = read;
        let of_each =
            counters.iter().zip(&read.counters).map(|(counter, series)| CounterSeriesBody::new(counter, series));
        RangeSeriesBody {
            at_unix_ms: at.0,
            instants: *instants,
            basis: basis.as_ref().map(BasisBody::from),
            zone: zone.name().to_owned(),
            every: every.to_owned(),
            from_s: plan.asked.from().s(),
            to_s: plan.asked.to().s(),
            steps: plan.steps.iter().map(|step| StepOfManyBody::new(step, zone)).collect(),
            counters: of_each.collect(),
            next: None,
        }
    }
}

impl StepOfManyBody {
    fn new(step: &Step, zone: &Zone) -> StepOfManyBody {
        StepOfManyBody {
            from: zone.text(step.asked.from()),
            from_s: step.asked.from().s(),
            to_s: step.asked.to().s(),
            error_s: step.cover.own().map(|cover| cover.error_s().into()),
        }
    }
}

impl CounterSeriesBody {
    fn new(counter: &CounterName, series: &CounterSeries) -> CounterSeriesBody {
        let all = |of: fn(&Counted) -> i128| -> Vec<Option<Signed>> {
            series.values.iter().map(|counted| counted.as_ref().map(|counted| Signed(of(counted)))).collect()
        };
        let is_exact = series.values.iter().flatten().all(|counted| counted.at_least == counted.at_most);
        let bounds = |of| if is_exact { Vec::new() } else { all(of) };
        CounterSeriesBody {
            counter: counter.into(),
            value: Signed(series.reading.value()),
            known: is_known(&series.reading),
            values: all(|counted| counted.value),
            at_least: bounds(|counted| counted.at_least),
            at_most: bounds(|counted| counted.at_most),
        }
    }
}

impl StepBody {
    fn new(step: &Step, counted: Option<Counted>, zone: &Zone) -> StepBody {
        let counted = counted.map(CountedBody::from);
        StepBody {
            from: zone.text(step.asked.from()),
            from_s: step.asked.from().s(),
            to_s: step.asked.to().s(),
            value: counted.as_ref().map(|counted| counted.value),
            at_least: counted.as_ref().map(|counted| counted.at_least),
            at_most: counted.as_ref().map(|counted| counted.at_most),
            error_s: step.cover.own().map(|cover| cover.error_s().into()),
        }
    }
}

/// The anchor that a parameter names.
pub(super) fn anchor_of(text: Option<&str>) -> Option<AnchorBody> {
    match text {
        None => Some(AnchorBody::default()),
        Some("calendar") => Some(AnchorBody::Calendar),
        Some("end") => Some(AnchorBody::End),
        Some(_) => None,
    }
}
