//! Errors for a caller, per operation: how to react, and whether anything was counted.

use crate::limits::CHANGES_AT_ONCE_MAX;
use tidemark_proto::client as core;
use tidemark_proto::edge_changes::EdgesRefusal;
use tidemark_proto::ids::{CounterName, Half, NameError};
use tidemark_proto::ledger::EdgesError;
use tidemark_proto::queries::QueryRefusal;
use tidemark_proto::query::QueryError;
use tidemark_proto::read::ReadError;
use tidemark_proto::series::calendar::{CalendarError, Period, UnknownZone};
use tidemark_proto::series::{TimeOutOfRange, UnixTime, WindowEmpty};
use tidemark_proto::wire::WireError;
use tidemark_transport::BindError;

/// An add that was not taken. Nothing was counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    #[error(transparent)]
    Name(#[from] NameError),
    /// Wait for the next flush interval, or use handles.
    #[error("this thread has named {} counters since the last flush", crate::limits::KEYS_PER_THREAD_MAX)]
    TooManyKeys,
    #[error("the thread is ending; use a handle in destructors of a thread")]
    ThreadEnding,
    #[error(transparent)]
    Time(#[from] TimeOutOfRange),
    /// Wait for the next flush interval. While the cluster cannot be reached and the buffer is full, that takes longer.
    #[error("{limit} counters and minutes wait to be sent")]
    Overloaded { limit: usize },
    #[error("the client is closed")]
    Closed,
}

/// A handle was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("{limit} handles are held: drop some, or add by key")]
    TooManyHandles { limit: usize },
}

/// A hit without a place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HitError {
    #[error(transparent)]
    Name(#[from] NameError),
    /// Not counted.
    #[error(transparent)]
    Time(#[from] TimeOutOfRange),
    /// Not counted. Wait, or use the form that waits.
    #[error("overloaded: {limit} hits wait for an answer")]
    Overloaded { limit: usize },
    /// Not counted.
    #[error("not counted: {0}")]
    Failed(core::AddError),
    /// Durable, counted once. If it was a milestone, the award names its session.
    #[error("counted once, but its place can no longer be learnt")]
    PlaceUnknown,
    /// Its data centre is lost. It is not sent again.
    #[error("it is not known whether it was counted: once, or not at all")]
    Unknown,
    /// Not counted, or, if the client was dropped before its answer, unknown.
    #[error("the client is closed")]
    Closed,
}

/// A flush that cannot say that everything before it is durable. The weights include a little that came after it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlushError {
    #[error("weight {refused} was refused and not counted, weight {unknown} is in doubt and will not be sent again")]
    Losses { refused: u64, unknown: u64 },
    #[error("the client is closed")]
    Closed,
}

/// A read without an answer. Reads change nothing: ask again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GetError {
    #[error(transparent)]
    Refused(#[from] ReadError),
    #[error("no answer within {millis} ms")]
    Timeout { millis: u64 },
    #[error("no site of this client has an aggregator to read from")]
    NoAggregator,
    #[error("this client has read {limit} different counters")]
    TooManyCounters { limit: u32 },
    #[error("the client is closed")]
    Closed,
}

/// A question about many counters, their series or the graph without an answer. Asking changes nothing: ask again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// It cannot be answered as it was asked, by any aggregator.
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error(transparent)]
    UnknownZone(UnknownZone),
    #[error("unknown namespace {0:?}")]
    UnknownNamespace(String),
    /// A length of time or an accepted error that is none. No aggregator was asked; as of the next ones.
    #[error(transparent)]
    Period(#[from] CalendarError),
    #[error(transparent)]
    Time(#[from] TimeOutOfRange),
    #[error(transparent)]
    Empty(#[from] WindowEmpty),
    #[error("an error of {0}: months and years have no fixed length; say it in days")]
    NotFixed(Period),
    #[error("steps are compared with none: ask for those before")]
    StepsCompared,
    #[error("windows and steps of one range: ask for one of both")]
    WindowsAndSteps,
    /// The question is beyond a limit.
    #[error(transparent)]
    Limit(#[from] WireError),
    /// No aggregator that can be reached serves; of the last one, why.
    #[error("not serving: {0}")]
    NotServing(String),
    /// The last one that was asked in vain is said, with the reason.
    #[error("no answer within {millis} ms; asked in vain: {last}")]
    Timeout { millis: u64, last: String },
    #[error("an answer to another question came: {0}")]
    Strange(String),
    #[error("no site of this client has an aggregator to ask")]
    NoAggregator,
    #[error("a fake cluster answers no questions about windows, steps, ranges, rankings or the graph")]
    Fake,
}

impl From<QueryRefusal> for AskError {
    fn from(refusal: QueryRefusal) -> AskError {
        match refusal {
            QueryRefusal::Query(error) => AskError::Query(error),
            QueryRefusal::Zone(zone) => AskError::UnknownZone(zone),
            QueryRefusal::UnknownNamespace(namespace) => AskError::UnknownNamespace(namespace),
            QueryRefusal::NotServing(reason) => AskError::NotServing(reason),
        }
    }
}

/// Edges that were not changed, or that may or may not have been changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// It cannot be carried out, as the graph and counters are known at the aggregator that was asked: which change, and why. Nothing was
    /// changed; as of the next ones.
    #[error(transparent)]
    Refused(#[from] EdgesError),
    #[error("the layout does not name {client} among `graph_clients`: it may not change edges")]
    NotPermitted { client: String },
    /// Ask again.
    #[error("other changes of the graph came first at each attempt: nothing was changed; send it again")]
    Contended,
    /// It is beyond a limit.
    #[error(transparent)]
    Limit(#[from] WireError),
    /// No aggregator could be reached that serves; of the last one, why.
    #[error("no aggregator took it within {millis} ms{}", in_vain(last))]
    Timeout { millis: u64, last: String },
    /// Ask again.
    #[error("{CHANGES_AT_ONCE_MAX} changes of this client are under way, and none ended in time")]
    Busy,
    #[error("no site of this client has an aggregator to ask")]
    NoAggregator,
    #[error("a fake cluster has no graph")]
    Fake,
    /// It was carried out, or will be soon, or not. To send the same [`EdgeChanges`](crate::EdgeChanges) again does no harm, and tells that
    /// they were carried out; changes that are refused then stay in doubt until the graph is looked at.
    #[error("it is not known whether edges were changed: {0}; the same EdgeChanges may be sent again")]
    Unknown(String),
}

pub(crate) fn in_vain(last: &str) -> String {
    if last.is_empty() { String::new() } else { format!("; asked in vain: {last}") }
}

impl ChangeError {
    /// The error of a refusal. Another aggregator that was asked before may do changes that this one refuses.
    pub(crate) fn refused(refusal: EdgesRefusal, others_may_do_it: bool) -> ChangeError {
        match refusal {
            refusal if others_may_do_it => ChangeError::Unknown(format!("an answer was lost; then: {refusal}")),
            EdgesRefusal::Edges(error) => ChangeError::Refused(error),
            EdgesRefusal::NotPermitted { client } => ChangeError::NotPermitted { client },
            EdgesRefusal::Contended => ChangeError::Contended,
            EdgesRefusal::NotServing(_) | EdgesRefusal::InDoubt | EdgesRefusal::Outdated => {
                ChangeError::Unknown(refusal.to_string())
            }
        }
    }
}

/// There is no award to wait for. Waiting changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AwardError {
    /// As far as the aggregator knows that was asked: one that was just defined elsewhere may be there a moment later.
    #[error("the counter has no such milestone: it was never defined, or was removed")]
    NoMilestone,
    #[error("the count had passed the milestone before it was armed: it has no winner")]
    Passed,
    #[error("milestone {at}: 1 to {max} allowed")]
    Range { at: u64, max: u64 },
    #[error("{limit} awards are waited for: no more are allowed")]
    TooManyWaits { limit: usize },
    #[error("no site of this client has an aggregator to wait at")]
    NoAggregator,
    #[error("the client is closed")]
    Closed,
}

/// A client was not made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("no site: name at least one, or use a fake cluster")]
    NoSites,
    #[error("site {dc:?} has no nodes: name all nodes of the data centre")]
    NoNodes { dc: String },
    #[error("{sites} sites: at most {max} allowed")]
    TooManySites { sites: usize, max: usize },
    #[error("no credentials: the certificate of this front end, its key and the cluster's CA")]
    NoCredentials,
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("data centre: {0}")]
    Dc(String),
    #[error("{name} is {value}: {min} to {max} allowed")]
    Option { name: &'static str, value: u64, min: u64, max: u64 },
    #[error("the operating system gives no random numbers: {0}")]
    Random(String),
}

/// Weight, added or (of the down half) subtracted, that will not be counted, or that may or may not be counted. Told to the callback given
/// to the builder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddLoss {
    /// Surely not counted.
    Failed {
        counter: CounterName,
        half: Half,
        weight: u64,
        /// Of what was added with an event time, the latest of those of its minute.
        event: Option<UnixTime>,
        error: core::AddError,
    },
    /// Counted once or not at all: its data centre is lost.
    Unknown { counter: CounterName, half: Half, weight: u64, event: Option<UnixTime> },
}
