//! The questions of the HTTP interface to its process.

use super::dcs::{DcBody, DcsBody};
use super::groups::{GroupBody, GroupName, GroupsBody};
use super::ledger::{ChangeVotersBody, MembersBody};
use super::position::{AwardPosition, History};
use super::series::Of;
use super::slots::{MoveSlotBody, SlotBody, SlotsBody, SplitBody};
use super::status::StatusBody;
use super::{ClusterBody, Failure, Mode, NamespaceBody, ReadVersion};
use crate::audit::AuditBody;
use crate::backup::serve::ImageStream;
use crate::claims::Claims;
use crate::edges::{AuditBody as EdgesAuditBody, ChangeBody, ChangedBody, GraphBody};
use crate::hops::Hops;
use crate::lives::Lives;
use crate::series::TermsBody;
use schemars::JsonSchema;
use std::future::Future;
use tidemark_proto::ids::{CounterName, DcId, Half, SessionId};
use tidemark_proto::ledger::{Awarded, Turn};
use tidemark_proto::msg::{Award, MilestoneSpec, Place, Reading};
use tidemark_proto::query::{AsOf, Exported, KeyRange, Page, Ranking, SeriesQuery, SeriesRead, TopAsOf, WindowQuery};
use tidemark_proto::series::{SeriesPolicy, UnixTime};
use tidemark_proto::time::WallMs;
use tokio::sync::broadcast;

/// One part of a process, and the fault in it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, JsonSchema)]
pub struct HealthCheck {
    pub name: &'static str,
    pub state: HealthState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How a part of a process works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HealthState {
    Ok,
    /// Something is wrong, and requests are served all the same.
    Degraded,
    /// Requests should go elsewhere: `/readyz` answers 503.
    Fails,
}

/// An increment or a decrement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Add {
    pub counter: CounterName,
    pub half: Half,
    /// Weight; the backend checks its limits.
    pub delta: u64,
    /// The digest of the session's token, where the caller gave one.
    pub session: Option<SessionId>,
    /// When it happened; when it is logged, if nothing is said.
    pub event: Option<UnixTime>,
    /// It counts once for this.
    pub id: Option<AddId>,
}

/// The id of an increment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddId {
    /// Of the id in the counter's namespace.
    pub digest: [u8; 16],
    /// The data centre that owns the id, if the caller chose one.
    pub home: Option<String>,
    /// When the caller first sent it.
    pub first_sent: Option<UnixTime>,
}

/// When an increment was counted that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Now,
    /// Its id had counted before, be it by an earlier copy of the same request.
    Before,
}

/// A durable increment's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    Placed(Place),
    /// Durable; its place was not known in time.
    Pending,
}

/// How far a milestone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MilestoneState {
    /// Baselines are being collected: nothing is promised yet.
    Arming,
    /// It cannot happen unseen.
    Armed,
    /// It had happened before it was armed: there will be no award.
    Passed,
    Awarded,
}

/// The state of a milestone.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, JsonSchema)]
pub struct MilestoneStatus {
    pub at: u64,
    pub state: MilestoneState,
    /// Of one that is to come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<super::body::PolicyBody>,
    /// While arming: data centres that it waits for. Once armed: groups with rights that it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
}

/// A counter's milestones, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, JsonSchema)]
pub struct MilestoneList {
    pub milestones: Vec<MilestoneStatus>,
    /// The rule: every multiple of this.
    pub every: Option<u64>,
    /// From this count on every increment is sequenced.
    pub sequence_from: Option<u64>,
}

/// The known state of a milestone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AwardState {
    Awarded(Box<Award>),
    /// Arming or armed.
    Coming(MilestoneState),
    /// It had happened before it was armed.
    Passed,
    /// Never defined, or removed.
    Unknown,
}

/// How far a counter is from its next milestone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub reading: Reading,
    /// The least armed milestone, or else the least that is arming.
    pub next: Option<(u64, MilestoneState)>,
    /// The rates that the groups have reported; of guarded counters only.
    pub rate_per_s: Option<u64>,
    /// Of the whole cluster; data centres that are cut off are not reported.
    pub mode: Mode,
}

/// Something that the ledger has decided about awards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    Award(Award),
    Claim(ClaimTurn),
}

/// The result of an award's claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimTurn {
    pub counter: CounterName,
    /// The award's (first) milestone.
    pub at: u64,
    /// The ledger entry.
    pub index: u64,
    pub turn: Turn,
    /// The session of the turn's holder, if it has one.
    pub session: Option<SessionId>,
    /// The data centre that counted the award.
    pub dc: DcId,
}

impl News {
    pub fn position(&self) -> AwardPosition {
        match self {
            News::Award(award) => AwardPosition::of(award),
            News::Claim(turn) => turn.position(),
        }
    }

    pub fn counter(&self) -> &CounterName {
        match self {
            News::Award(award) => &award.counter,
            News::Claim(turn) => &turn.counter,
        }
    }

    /// The session that it concerns.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            News::Award(award) => award.session,
            News::Claim(turn) => turn.session,
        }
    }

    /// The data centre that counted the award.
    pub fn dc(&self) -> DcId {
        match self {
            News::Award(award) => award.group.dc,
            News::Claim(turn) => turn.dc,
        }
    }
}

impl ClaimTurn {
    pub fn position(&self) -> AwardPosition {
        AwardPosition::new(self.index, self.at, "claim ", &self.counter)
    }
}

/// Which awards: ascending by position, the first `limit` of those that match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwardFilter {
    pub namespace: Option<String>,
    pub counter: Option<CounterName>,
    /// Only those behind this one.
    pub after: AwardPosition,
    pub limit: usize,
}

impl AwardFilter {
    /// Whether a counter is one of those wanted.
    pub fn wants(&self, name: &CounterName) -> bool {
        let namespace = self.namespace.as_deref().is_none_or(|namespace| name.namespace() == namespace);
        namespace && self.counter.as_ref().is_none_or(|counter| name == counter)
    }
}

/// A process that counts. Every call is answered from what is durable; no call waits for another data centre except `define` and `disarm`,
/// and an `add` at a milestone up to the backend's own patience.
pub trait Backend: Send + Sync + 'static {
    /// Counts. An error other than [`Failure::InDoubt`] means that nothing was counted.
    fn add(&self, add: Add) -> impl Future<Output = Result<Added, Failure>> + Send;

    /// Counts each durably, or says why not, in their order. Places are not waited for.
    fn add_all(&self, adds: Vec<Add>) -> impl Future<Output = Vec<Result<Counted, Failure>>> + Send {
        async move {
            let mut outcomes = Vec::with_capacity(adds.len());
            for add in adds {
                outcomes.push(self.add(add).await.map(|_| Counted::Now));
            }
            outcomes
        }
    }

    /// Whether a namespace exists; of a process that does not know, each may.
    fn has_namespace(&self, _: &str) -> bool {
        true
    }

    /// The namespaces that exist, in the order of their names.
    fn namespaces(&self) -> Result<Vec<NamespaceBody>, Failure> {
        Err(Failure::NotFound("namespaces are known to aggregators only".to_owned()))
    }

    /// Reads some counters, in their order. A counter that never counted reads 0.
    fn read(&self, counters: &[CounterName]) -> impl Future<Output = Result<Vec<Reading>, Failure>> + Send;

    /// A counter with all that was durable in this data centre when it was asked for, and up to where that is.
    fn read_fresh(&self, _: &CounterName) -> impl Future<Output = Result<(Reading, ReadVersion), Failure>> + Send {
        async { Err(Failure::NotFound("values are read at aggregators only".to_owned())) }
    }

    /// Adds milestones; returns the counter's milestones once the ledger has applied it.
    fn define(
        &self,
        counter: CounterName,
        spec: MilestoneSpec,
    ) -> impl Future<Output = Result<MilestoneList, Failure>> + Send;

    /// Removes the milestone `at`, or with `None` the rule.
    fn disarm(
        &self,
        counter: CounterName,
        at: Option<u64>,
    ) -> impl Future<Output = Result<MilestoneList, Failure>> + Send;

    fn milestones(&self, counter: &CounterName) -> impl Future<Output = Result<MilestoneList, Failure>> + Send;

    fn awards(&self, filter: AwardFilter) -> impl Future<Output = Result<Vec<Award>, Failure>> + Send;

    /// Awards, and what became of their claims; else as `awards`.
    fn news(&self, filter: AwardFilter) -> impl Future<Output = Result<Vec<News>, Failure>> + Send;

    /// News about a session behind a position, as far as they are known here: the first `limit`, ascending.
    fn news_of(
        &self,
        session: SessionId,
        after: AwardPosition,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<News>, Failure>> + Send;

    /// The award that covers the milestone `at`, with the signatures known here.
    fn certificate(
        &self,
        counter: &CounterName,
        at: u64,
    ) -> impl Future<Output = Result<Option<Awarded>, Failure>> + Send;

    /// How far the milestone `at` is, as far as is known here.
    fn award_state(&self, counter: &CounterName, at: u64) -> impl Future<Output = Result<AwardState, Failure>> + Send;

    /// How far the next milestone is.
    fn progress(&self, counter: &CounterName) -> impl Future<Output = Result<Progress, Failure>> + Send;

    /// A counter in all data centres. A counter that never counted reads 0.
    fn cluster(&self, counter: &CounterName) -> impl Future<Output = Result<ClusterBody, Failure>> + Send;

    /// Values and windows of counters, in their order, at one instant.
    fn read_at(
        &self,
        _: Of,
        _: &[CounterName],
        _: &[WindowQuery],
    ) -> impl Future<Output = Result<AsOf, Failure>> + Send {
        async { Err(no_view()) }
    }

    /// The counts of some counters of a namespace in each step, at one instant.
    fn read_series(
        &self,
        _: Of,
        _many: (&str, &[CounterName]),
        _: &SeriesQuery,
    ) -> impl Future<Output = Result<SeriesRead, Failure>> + Send {
        async { Err(no_view()) }
    }

    /// All that is shown of counters at one instant; of the first of them, where that is much.
    fn export(&self, _: &[CounterName]) -> impl Future<Output = Result<(WallMs, Vec<Exported>), Failure>> + Send {
        async { Err(no_view()) }
    }

    /// The shown value of a counter beside the values in its groups; with all buckets, or only those that differ.
    fn audit(&self, _: &CounterName, _with_rows: bool) -> impl Future<Output = Result<AuditBody, Failure>> + Send {
        async { Err(no_view()) }
    }

    /// The next counters of a range; at most this number of counters is looked at.
    fn scan(&self, _: Of, _: &KeyRange, _: usize) -> impl Future<Output = Result<Page, Failure>> + Send {
        async { Err(no_view()) }
    }

    /// How a namespace keeps series.
    fn series_terms(&self, _: &str) -> impl Future<Output = Result<TermsBody, Failure>> + Send {
        async { Err(no_view()) }
    }

    /// Changes it, or that it does; returns how it stands once the ledger has applied it.
    fn set_series_terms(&self, _: &str, _: SeriesPolicy) -> impl Future<Output = Result<TermsBody, Failure>> + Send {
        async { Err(no_view()) }
    }

    /// Changes edges between counters, all of these or none; returns once the ledger has applied it.
    fn change_edges(&self, _: ChangeBody) -> impl Future<Output = Result<ChangedBody, Failure>> + Send {
        async { Err(no_graph()) }
    }

    /// Permits edges from one namespace to another.
    fn allow_edges(&self, _: &str, _: &str) -> impl Future<Output = Result<(), Failure>> + Send {
        async { Err(no_graph()) }
    }

    /// The edges and totals of one counter.
    fn graph_of(&self, _: &CounterName) -> impl Future<Output = Result<GraphBody, Failure>> + Send {
        async { Err(no_graph()) }
    }

    /// The counters with the largest counts in a window.
    fn top(&self, _: Of, _: Ranking) -> impl Future<Output = Result<TopAsOf, Failure>> + Send {
        async { Err(no_view()) }
    }

    /// The ranges into which this view is cut.
    fn slots(&self) -> impl Future<Output = Result<SlotsBody, Failure>> + Send {
        async { Err(Failure::NotFound("only aggregators have a view that is cut into slots".to_owned())) }
    }

    /// Moves a shard to another aggregator; returns the holders once the ledger has applied the move.
    fn move_slot(&self, _: MoveSlotBody) -> impl Future<Output = Result<SlotBody, Failure>> + Send {
        async { Err(Failure::NotFound("only aggregators have a view that is cut into slots".to_owned())) }
    }

    /// Cancels the move of a shard; returns the holders once the ledger has applied it.
    fn stay_slot(&self, _: u16) -> impl Future<Output = Result<SlotBody, Failure>> + Send {
        async { Err(Failure::NotFound("only aggregators have a view that is cut into slots".to_owned())) }
    }

    /// Cuts a slot in two, of which the second begins with a counter, or with its middle one; returns once the ledger has applied it.
    fn split_slot(&self, _: u16, _at: Option<CounterName>) -> impl Future<Output = Result<SplitBody, Failure>> + Send {
        async { Err(Failure::NotFound("only aggregators have a view that is cut into slots".to_owned())) }
    }

    /// The last changes of edges; of one entry of the ledger's log also which.
    fn edges_audit(&self, _entry: Option<u64>) -> impl Future<Output = Result<EdgesAuditBody, Failure>> + Send {
        async { Err(no_graph()) }
    }

    /// Every incarnation of a group that ever registered; only members of the ledger know them.
    fn groups(&self) -> impl Future<Output = Result<GroupsBody, Failure>> + Send {
        async { Err(Failure::NotFound("this process is no member of the ledger".to_owned())) }
    }

    /// Declares an incarnation of a group lost for good; returns how it stands once the ledger has applied it.
    fn declare_lost(&self, _: GroupName, _: bool) -> impl Future<Output = Result<GroupBody, Failure>> + Send {
        async { Err(Failure::NotFound("this process is no member of the ledger".to_owned())) }
    }

    /// All data centres of the layout; only members of the ledger know them.
    fn dcs(&self) -> impl Future<Output = Result<DcsBody, Failure>> + Send {
        async { Err(Failure::NotFound("this process is no member of the ledger".to_owned())) }
    }

    /// Gives a data centre up for good; returns how it stands once that is carried out.
    fn forget(&self, _: &str, _: bool) -> impl Future<Output = Result<DcBody, Failure>> + Send {
        async { Err(Failure::NotFound("this process is no member of the ledger".to_owned())) }
    }

    /// An image of this data centre; only an aggregator has one.
    fn image(&self) -> impl Future<Output = Result<ImageStream, Failure>> + Send {
        async { Err(Failure::NotFound("this process is no member of the ledger".to_owned())) }
    }

    /// The ledger's members.
    fn members(&self) -> impl Future<Output = Result<MembersBody, Failure>> + Send {
        async { Err(Failure::NotFound("this process is no member of the ledger".to_owned())) }
    }

    /// Changes the voters of the ledger; returns the members after that.
    fn change_voters(&self, _: ChangeVotersBody) -> impl Future<Output = Result<MembersBody, Failure>> + Send {
        self.members()
    }

    /// Arming waits no longer for the view of an aggregator; returns how the members stand once the ledger has applied it.
    fn set_aside(&self, _: String) -> impl Future<Output = Result<MembersBody, Failure>> + Send {
        self.members()
    }

    /// The process's state, for people.
    fn status(&self) -> impl Future<Output = StatusBody> + Send;

    /// Sets the gauges that `/metrics` is about to show.
    fn measure(&self) {}

    /// The healthy and the faulty parts of this process, with reasons.
    fn health(&self) -> Vec<HealthCheck>;

    /// Whether requests should be sent here; else why not, what everything else may follow from first.
    fn ready(&self) -> Result<(), String> {
        let health = self.health();
        let failed = health.iter().rev().filter(|check| check.state == HealthState::Fails);
        let reason = |check: &HealthCheck| check.reason.clone().unwrap_or_else(|| format!("{} fail", check.name));
        let reasons: Vec<String> = failed.map(reason).collect();
        if reasons.is_empty() { Ok(()) } else { Err(reasons.join("; ")) }
    }

    /// The part that counts redirected queries of other data centres; a node has none.
    fn hops(&self) -> Option<&Hops> {
        None
    }

    /// The part that manages claims of awards; a node has none.
    fn claims(&self) -> Option<&Claims> {
        None
    }

    /// The part that resets counters; a node does not.
    fn lives(&self) -> Option<&Lives> {
        None
    }

    /// News from now on, in the order of their positions, each once, and the position of the last one before. A receiver
    /// that falls behind asks `news`, or `awards`.
    fn subscribe(&self) -> (AwardPosition, broadcast::Receiver<News>);

    /// How far this process knows the history of awards.
    fn history(&self) -> History;

    /// Waits until all is known here that the ledger had decided before the call.
    fn catch_up_with_ledger(&self) -> impl Future<Output = Result<(), Failure>> + Send;
}

fn no_view() -> Failure {
    Failure::NotFound("series are read and set at aggregators only".to_owned())
}

fn no_graph() -> Failure {
    Failure::NotFound("edges are read and changed at aggregators only".to_owned())
}
