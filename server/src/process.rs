//! The questions of the HTTP interface to its process.

mod positions;
mod versions;

pub(crate) use positions::{birth_in_time, find, found, found_in_time};
pub(crate) use versions::at_least;

use crate::api::cluster::ClusterBody;
use crate::api::dcs::{DcBody, DcsBody};
use crate::api::groups::{GroupBody, GroupName, GroupsBody};
use crate::api::ledger::{ChangeVotersBody, MembersBody};
use crate::api::namespaces::NamespaceBody;
use crate::api::series::Of;
use crate::api::slots::{MoveSlotBody, SlotBody, SlotsBody, SplitBody};
use crate::api::status::StatusBody;
use crate::api::{
    Add, Added, AwardFilter, AwardPosition, AwardState, Counted, Failure, HealthCheck, HealthState, History,
    MilestoneList, News, Progress, ReadVersion,
};
use crate::audit::AuditBody;
use crate::backup::serve::ImageStream;
use crate::claims::Claims;
use crate::edges::{AuditBody as EdgesAuditBody, ChangeBody, ChangedBody, GraphBody};
use crate::hops::Hops;
use crate::lives::Lives;
use crate::series::TermsBody;
use std::future::Future;
use tidemark_proto::ids::{CounterName, SessionId};
use tidemark_proto::ledger::Awarded;
use tidemark_proto::msg::{Award, MilestoneSpec, Reading};
use tidemark_proto::query::{AsOf, Exported, KeyRange, Page, Ranking, SeriesQuery, SeriesRead, TopAsOf, WindowQuery};
use tidemark_proto::series::SeriesPolicy;
use tidemark_proto::time::WallMs;
use tokio::sync::broadcast;

/// Why requests should be sent elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", reasons.join("; "))]
pub struct Unready {
    /// What everything else may follow from first.
    pub reasons: Vec<String>,
}

impl From<Unready> for Failure {
    fn from(unready: Unready) -> Failure {
        Failure::NotServing(unready.to_string())
    }
}

/// What every process tells of itself.
pub trait Process: Send + Sync + 'static {
    /// The process's state, for people.
    fn status(&self) -> impl Future<Output = StatusBody> + Send;

    /// Sets the gauges that `/metrics` is about to show.
    fn measure(&self);

    /// The healthy and the faulty parts of this process, with reasons.
    fn health(&self) -> Vec<HealthCheck>;

    /// Whether requests should be sent here; else why not, what everything else may follow from first.
    fn ready(&self) -> Result<(), Unready> {
        let health = self.health();
        let failed = health.iter().rev().filter(|check| check.state == HealthState::Fails);
        let reason = |check: &HealthCheck| check.reason.clone().unwrap_or_else(|| format!("{} fail", check.name));
        let reasons: Vec<String> = failed.map(reason).collect();
        if reasons.is_empty() { Ok(()) } else { Err(Unready { reasons }) }
    }
}

/// A node: it serves its data centre's groups to programs, and over HTTP only tells of itself.
pub trait NodeProcess: Process {
    /// The name of its data centre.
    fn dc(&self) -> &str;
}

/// An aggregator: it counts, reads and awards. Every call is answered from durable state. No call waits for another data centre, with two
/// exceptions: `define` and `disarm`, and an `add` at a milestone up to the process's own patience.
pub trait AggregatorProcess: Process {
    /// Counts. An error other than [`Failure::InDoubt`] means that nothing was counted.
    fn add(&self, add: Add) -> impl Future<Output = Result<Added, Failure>> + Send;

    /// Counts each durably, or says why not, in their order. Places are not waited for.
    fn add_all(&self, adds: Vec<Add>) -> impl Future<Output = Vec<Result<Counted, Failure>>> + Send;

    /// Whether a namespace exists.
    fn has_namespace(&self, name: &str) -> bool;

    /// The namespaces that exist, in the order of their names.
    fn namespaces(&self) -> Result<Vec<NamespaceBody>, Failure>;

    /// Reads some counters, in their order. A counter that never counted reads 0.
    fn read(&self, counters: &[CounterName]) -> impl Future<Output = Result<Vec<Reading>, Failure>> + Send;

    /// A counter with all that was durable in this data centre when it was asked for, and up to where that is.
    fn read_fresh(&self, _: &CounterName) -> impl Future<Output = Result<(Reading, ReadVersion), Failure>> + Send;

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
    ) -> impl Future<Output = Result<AsOf, Failure>> + Send;

    /// The counts of some counters of a namespace in each step, at one instant.
    fn read_series(
        &self,
        _: Of,
        _namespace: &str,
        _counters: &[CounterName],
        _: &SeriesQuery,
    ) -> impl Future<Output = Result<SeriesRead, Failure>> + Send;

    /// All that is shown of counters at one instant; of the first of them, where that is much.
    fn export(&self, _: &[CounterName]) -> impl Future<Output = Result<(WallMs, Vec<Exported>), Failure>> + Send;

    /// The shown value of a counter beside the values in its groups; with all buckets, or only those that differ.
    fn audit(&self, _: &CounterName, _with_rows: bool) -> impl Future<Output = Result<AuditBody, Failure>> + Send;

    /// The next counters of a range; at most this number of counters is looked at.
    fn scan(&self, _: Of, _: &KeyRange, _: usize) -> impl Future<Output = Result<Page, Failure>> + Send;

    /// How a namespace keeps series.
    fn series_terms(&self, _: &str) -> impl Future<Output = Result<TermsBody, Failure>> + Send;

    /// Changes it, or that it does; returns how it stands once the ledger has applied it.
    fn set_series_terms(&self, _: &str, _: SeriesPolicy) -> impl Future<Output = Result<TermsBody, Failure>> + Send;

    /// Changes edges between counters, all of these or none; returns once the ledger has applied it.
    fn change_edges(&self, _: ChangeBody) -> impl Future<Output = Result<ChangedBody, Failure>> + Send;

    /// Permits edges from one namespace to another.
    fn allow_edges(&self, _: &str, _: &str) -> impl Future<Output = Result<(), Failure>> + Send;

    /// The edges and totals of one counter.
    fn graph_of(&self, _: &CounterName) -> impl Future<Output = Result<GraphBody, Failure>> + Send;

    /// The counters with the largest counts in a window.
    fn top(&self, _: Of, _: Ranking) -> impl Future<Output = Result<TopAsOf, Failure>> + Send;

    /// The ranges into which this view is cut.
    fn slots(&self) -> impl Future<Output = Result<SlotsBody, Failure>> + Send;

    /// Moves a shard to another aggregator; returns the holders once the ledger has applied the move.
    fn move_slot(&self, _: MoveSlotBody) -> impl Future<Output = Result<SlotBody, Failure>> + Send;

    /// Cancels the move of a shard; returns the holders once the ledger has applied it.
    fn stay_slot(&self, _: u16) -> impl Future<Output = Result<SlotBody, Failure>> + Send;

    /// Cuts a slot in two, of which the second begins with a counter, or with its middle one; returns once the ledger has applied it.
    fn split_slot(&self, _: u16, _at: Option<CounterName>) -> impl Future<Output = Result<SplitBody, Failure>> + Send;

    /// The last changes of edges; of one entry of the ledger's log also which.
    fn edges_audit(&self, _entry: Option<u64>) -> impl Future<Output = Result<EdgesAuditBody, Failure>> + Send;

    /// Every incarnation of a group that ever registered.
    fn groups(&self) -> impl Future<Output = Result<GroupsBody, Failure>> + Send;

    /// Declares an incarnation of a group lost for good; returns how it stands once the ledger has applied it.
    fn declare_lost(&self, _: GroupName, _: bool) -> impl Future<Output = Result<GroupBody, Failure>> + Send;

    /// All data centres of the layout.
    fn dcs(&self) -> impl Future<Output = Result<DcsBody, Failure>> + Send;

    /// Gives a data centre up for good; returns how it stands once that is carried out.
    fn forget(&self, _: &str, _: bool) -> impl Future<Output = Result<DcBody, Failure>> + Send;

    /// An image of this data centre.
    fn image(&self) -> impl Future<Output = Result<ImageStream, Failure>> + Send;

    /// The ledger's members.
    fn members(&self) -> impl Future<Output = Result<MembersBody, Failure>> + Send;

    /// Changes the voters of the ledger; returns the members after that.
    fn change_voters(&self, _: ChangeVotersBody) -> impl Future<Output = Result<MembersBody, Failure>> + Send;

    /// Arming waits no longer for the view of an aggregator; returns how the members stand once the ledger has applied it.
    fn set_aside(&self, _: String) -> impl Future<Output = Result<MembersBody, Failure>> + Send;

    /// The part that counts redirected queries of other data centres; none without keys of sessions.
    fn hops(&self) -> Option<&Hops>;

    /// The part that manages claims of awards; none where nothing is claimed, as in tests.
    fn claims(&self) -> Option<&Claims>;

    /// The part that resets counters; none where nothing is reset, as in tests.
    fn lives(&self) -> Option<&Lives>;

    /// News from now on, in the order of their positions, each once, and the position of the last one before. A receiver
    /// that falls behind asks `news`, or `awards`.
    fn subscribe(&self) -> (AwardPosition, broadcast::Receiver<News>);

    /// How far this process knows the history of awards.
    fn history(&self) -> History;

    /// Waits until all is known here that the ledger had decided before the call.
    fn catch_up_with_ledger(&self) -> impl Future<Output = Result<(), Failure>> + Send;
}
