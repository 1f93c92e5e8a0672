//! A member of a Raft group: its handle, its membership and its metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use openraft::alias::WatchReceiverOf;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, InitializeError, LinearizableReadError, RaftError};
use openraft::metrics::RaftServerMetrics;
use openraft::storage::RaftStateMachine;
use openraft::{ChangeMembers, EmptyNode, Membership, Raft, RaftMetrics, ReadPolicy};
use tokio::task::JoinHandle;

use super::config::Config;
use super::log_store::LogStore;
use super::network::Network;
use super::propose::{ProposeError, Proposer};
use super::serve::Server;
use super::snapshot::MemoryInbox;
use super::state_machine::{App, OnApplied, Sizes, StateMachine};
use super::transport::{CallKind, RaftService, RaftTransport};
use super::types::{LeaderId, LogId, SnapshotMeta, StoredMembership, TypeConfig};
use super::{tables, wire};
use crate::storage::{CommitStats, OpenError, PersistError, Source};

/// A preferred leader may lack this many entries when leadership is handed to it: under load it always lacks some.
const TRANSFER_LAG_ENTRIES_MAX: u64 = 64;

/// Why a member did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its file could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its settings contradict each other.
    #[error("invalid configuration: {0}")]
    Config(String),
    /// Its log or snapshot could not be replayed.
    #[error("the log cannot be replayed: {0}")]
    Replay(String),
}

/// Why members did not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// This member does not lead; nothing was changed.
    #[error("this member is not the leader; the leader is {leader:?}")]
    NotLeader {
        /// The leader, if known.
        leader: Option<u64>,
    },
    /// The change is not possible now: another one is under way, a learner is unknown, no voter would remain, or the
    /// group exists already. Nothing was changed.
    #[error("members cannot be changed: {0}")]
    Refused(String),
    /// Leadership was lost on the way; look at the metrics to see what became of it.
    #[error("leadership was lost while members were changed; the leader is {leader:?}")]
    Unknown {
        /// The present leader, if known.
        leader: Option<u64>,
    },
    /// This member has stopped.
    #[error("the member has stopped")]
    Stopped,
}

/// Why a read would not have been linearizable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// This member does not lead, as far as it knows.
    #[error("this member is not the leader; the leader is {leader:?}")]
    NotLeader {
        /// The leader, if known.
        leader: Option<u64>,
    },
    /// No majority of voters confirmed that this member leads.
    #[error("no majority of voters answers: {0}")]
    NoQuorum(String),
    /// This member has stopped.
    #[error("the member has stopped")]
    Stopped,
}

/// The state of a group, as a member knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Term of Raft.
    pub term: u64,
    /// The leader, if known.
    pub leader: Option<u64>,
    /// Whether this member leads.
    pub is_leader: bool,
    /// Last index in the log; it may not be committed.
    pub last_log: Option<u64>,
    /// Last index known to be committed.
    pub committed: Option<u64>,
    /// Last applied index.
    pub applied: Option<u64>,
    /// Last index contained in the snapshot.
    pub snapshot: Option<u64>,
    /// Last index removed from the log.
    pub purged: Option<u64>,
    /// Members that vote; during a change of the voters, those of before and after.
    pub voters: BTreeSet<u64>,
    /// During a change of the voters: those after it. The next leader, if its leader is lost, has to carry it on.
    pub changes_to: Option<BTreeSet<u64>>,
    /// Members that do not vote.
    pub learners: BTreeSet<u64>,
    /// On the leader: last index that each member is known to have, itself included.
    pub matched: BTreeMap<u64, Option<u64>>,
    /// Why the member stopped, if it did.
    pub stopped: Option<String>,
}

impl Metrics {
    pub(crate) fn new(raft: &RaftMetrics<TypeConfig>) -> Self {
        let membership = raft.membership_config.membership();
        let joint = membership.get_joint_config();
        let matched = raft.replication.iter().flatten();
        Self {
            term: raft.current_term,
            leader: raft.current_leader,
            is_leader: raft.current_leader == Some(raft.id) && raft.replication.is_some(),
            last_log: raft.last_log_index,
            committed: raft.local_committed.map(|log_id| log_id.index()),
            applied: raft.last_applied.map(|log_id| log_id.index()),
            snapshot: raft.snapshot.map(|log_id| log_id.index()),
            purged: raft.purged.map(|log_id| log_id.index()),
            voters: membership.voter_ids().collect(),
            changes_to: joint.last().filter(|_| joint.len() > 1).cloned(),
            learners: membership.learner_ids().collect(),
            matched: matched.map(|(id, log_id)| (*id, log_id.map(|log_id| log_id.index()))).collect(),
            stopped: raft.running_state.as_ref().err().map(ToString::to_string),
        }
    }
}

/// Follows a member's metrics. Values in between may be skipped.
#[derive(Clone)]
pub struct MetricsWatch(pub(crate) WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>);

impl MetricsWatch {
    /// The newest metrics.
    pub fn get(&self) -> Metrics {
        Metrics::new(&self.0.borrow_watched())
    }

    /// Whether a member votes.
    pub fn is_voter(&self, id: u64) -> bool {
        self.0.borrow_watched().membership_config.membership().voter_ids().any(|voter| voter == id)
    }

    /// Waits for a change; `false` when the member has gone and there will be none.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }

    /// Waits until `condition` holds; `None` when the member has gone before. It may wait for ever.
    pub async fn until(&mut self, mut condition: impl FnMut(&Metrics) -> bool) -> Option<Metrics> {
        loop {
            let metrics = Metrics::new(&self.0.borrow_and_update());
            if condition(&metrics) {
                return Some(metrics);
            }
            if !self.changed().await {
                return None;
            }
        }
    }
}

/// Follows the leadership of the group, as far as a member knows.
pub struct LeaderWatch(pub(crate) WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>);

impl LeaderWatch {
    /// The present leader.
    pub fn get(&self) -> Option<u64> {
        self.0.borrow_watched().current_leader
    }

    /// The present leader and its term: a leader in another term may have missed decisions between them.
    pub fn reign(&self) -> Option<(u64, u64)> {
        let metrics = self.0.borrow_watched();
        metrics.current_leader.map(|leader| (leader, metrics.vote.leader_id().term))
    }

    /// Waits until it may be another one; for ever when the member has gone. May be cancelled.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// A running member of a Raft group. Cloning gives another handle on the same member.
///
/// It runs on the tokio runtime it was started on, plus one thread for the disk. Call [`shutdown`](Self::shutdown)
/// and drop every handle before its file is opened again.
#[derive(Clone)]
pub struct RaftNode {
    id: u64,
    raft: Raft<TypeConfig, StateMachine>,
    proposer: Proposer,
    server: Arc<Server<StateMachine, MemoryInbox>>,
    store: LogStore,
    transport: Arc<dyn RaftTransport>,
    sizes: Arc<Sizes>,
    snapshot_every_bytes: u64,
    _ticking: Arc<Ticking>,
}

/// The task that looks after a member's clock; it ends with the last handle, since it holds openraft's.
pub(crate) struct Ticking(pub JoinHandle<()>);

impl Drop for Ticking {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A member that does not vote stands for no election and sends no heartbeats: it needs no clock, which would wake it twelve times
/// a second.
pub(crate) async fn tick_while_voting<M: RaftStateMachine<TypeConfig>>(id: u64, raft: Raft<TypeConfig, M>) {
    let mut server = raft.server_metrics();
    loop {
        let votes = {
            let known = server.borrow_and_update();
            let memberships = [known.membership_config.membership(), known.committed_membership_config.membership()];
            memberships.iter().any(|membership| membership.voter_ids().any(|voter| voter == id))
        };
        raft.runtime_config().tick(votes);
        if server.changed().await.is_err() {
            return;
        }
    }
}

/// Bytes of the answer.
const KNOWS_BYTES_MAX: usize = 16;
const READ_INDEX_BYTES_MAX: usize = 16;
/// How long a member may take to say whether it knows a group.
const KNOWS_PATIENCE: Duration = Duration::from_secs(5);

impl RaftNode {
    /// Starts member `id` from its file, or as a blank one that waits for [`initialize`](Self::initialize) or for a
    /// leader that adds it. Returns when snapshot and committed entries are replayed into `app`.
    pub fn start(
        id: u64,
        source: Source,
        config: Config,
        transport: Arc<dyn RaftTransport>,
        app: Box<dyn App>,
        on_applied: OnApplied,
    ) -> BoxFuture<'static, Result<Self, StartError>> {
        // A box, so that only this crate compiles the library's member.
        Box::pin(Self::start_app(id, source, config, transport, app, on_applied))
    }

    async fn start_app(
        id: u64,
        source: Source,
        config: Config,
        transport: Arc<dyn RaftTransport>,
        app: Box<dyn App>,
        on_applied: OnApplied,
    ) -> Result<Self, StartError> {
        let raft_config = config.to_openraft()?;
        let store = LogStore::open(source, id, &config)?;
        let mut machine = StateMachine::new(app, on_applied, store.clone());
        let sizes = machine.sizes();
        let snapshot_every_bytes = config.snapshot_every_bytes;
        let metrics = Arc::new(OnceLock::new());
        let network = Network::<Bytes>::new(id, transport.clone(), &config, metrics.clone());
        let raft = Raft::new(id, raft_config, network, store.clone(), machine).await;
        let raft = raft.map_err(|error| StartError::Replay(error.to_string()))?;
        let _ = metrics.set(MetricsWatch(raft.metrics()));
        let ticking = Arc::new(Ticking(tokio::spawn(tick_while_voting(id, raft.clone()))));
        let proposer = Proposer::start(raft.clone(), &config);
        let inbox = MemoryInbox::new(config.message_bytes_max, config.snapshot_bytes_max);
        let server = Arc::new(Server::new(raft.clone(), config.message_bytes_max, inbox).keeping_numbers());
        Ok(Self { id, raft, proposer, server, store, transport, sizes, snapshot_every_bytes, _ticking: ticking })
    }

    /// This member's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Where the transport delivers messages for this member.
    #[inline(never)] // Callers would compile the service.
    pub fn service(&self) -> Arc<dyn RaftService> {
        self.server.clone()
    }

    /// Proposes commands, all in one entry, and waits until they are committed and applied here. Returns the entry's
    /// index; other proposals may share it.
    pub async fn propose(&self, commands: Vec<Bytes>) -> Result<u64, ProposeError> {
        self.proposer.propose(commands).await
    }

    /// Proposes commands, all in one entry, and waits for nothing. The commands that one caller submits stand in the log in the order of
    /// the calls, as far as they get there.
    ///
    /// # Errors
    /// Errors of [`RaftNode::propose`] that are known at once; a later loss of the leader is not reported.
    pub fn submit(&self, commands: Vec<Bytes>) -> Result<(), ProposeError> {
        self.proposer.submit(commands).map(drop)
    }

    /// Founds the group; on one member, once. Waits for nothing but its own disk, and asks no member: see [`RaftNode::found`].
    pub async fn initialize(&self, voters: BTreeSet<u64>) -> Result<(), ChangeError> {
        initialize(&self.raft, voters).await
    }

    /// Founds the group unless some member knows one already: this one may have lost its disk. `members` are all that there may be. Every
    /// voter and a majority of all members must say that they know none; a member that does not answer is asked again with the next call.
    /// Errors change nothing.
    pub async fn found(&self, voters: BTreeSet<u64>, members: &BTreeSet<u64>) -> Result<(), ChangeError> {
        let others = members.union(&voters).copied().filter(|&member| member != self.id);
        let answers = join_all(others.map(|member| async move { (member, self.knows(member).await) })).await;
        if let Some((member, _)) = answers.iter().find(|(_, knows)| *knows == Some(true)) {
            return Err(ChangeError::Refused(format!(
                "member {member} knows a group already: this one must be added to it"
            )));
        }
        let silent =
            |&(member, knows): &(u64, Option<bool>)| (knows.is_none() && voters.contains(&member)).then_some(member);
        if let Some(member) = answers.iter().find_map(silent) {
            return Err(ChangeError::Refused(format!("voter {member} has not said that it knows no group")));
        }
        let blank = 1 + answers.iter().filter(|(_, knows)| knows.is_some()).count();
        let all = 1 + answers.len();
        if blank * 2 <= all {
            return Err(ChangeError::Refused(format!("{blank} of {all} members have said that they know no group")));
        }
        self.initialize(voters).await
    }

    /// `None`: no answer.
    async fn knows(&self, member: u64) -> Option<bool> {
        let answer = self.transport.call(member, CallKind::Knows, Bytes::new());
        let answer = tokio::time::timeout(KNOWS_PATIENCE, answer).await.ok()?.ok()?;
        wire::decode(&answer, KNOWS_BYTES_MAX).ok()
    }

    /// Adds a learner; returns when that is committed, not when the learner has caught up.
    pub async fn add_learner(&self, id: u64) -> Result<(), ChangeError> {
        self.raft.add_learner(id, EmptyNode {}, false).await.map(drop).map_err(to_change_error)
    }

    /// Replaces the set of voters, each a member already; removed voters stay as learners if `keep_learners`.
    /// Returns when the last of its two steps is committed.
    pub async fn change_voters(&self, voters: BTreeSet<u64>, keep_learners: bool) -> Result<(), ChangeError> {
        self.raft.change_membership(voters, keep_learners).await.map(drop).map_err(to_change_error)
    }

    /// Removes a member, voter or learner, so that it is counted and sent to no more; a voter becomes a learner first. Nothing is done
    /// about one that is none. If it fails half-way it is carried on by the next call, on whichever member leads then.
    pub async fn remove_member(&self, id: u64) -> Result<(), ChangeError> {
        let Metrics { voters, learners, .. } = self.metrics().get();
        if voters.contains(&id) {
            let left: BTreeSet<u64> = voters.into_iter().filter(|&voter| voter != id).collect();
            if left.is_empty() {
                return Err(ChangeError::Refused(format!("member {id} is the only voter")));
            }
            self.change_voters(left, true).await?;
        } else if !learners.contains(&id) {
            return Ok(());
        }
        let change = ChangeMembers::RemoveNodes([id].into());
        self.raft.change_membership(change, true).await.map(drop).map_err(to_change_error)
    }

    /// Asks voter `to` to lead. Returns at once; watch the metrics for the outcome. Nothing happens if it is this member: it would
    /// wait for itself to take over, and propose nothing meanwhile.
    pub async fn transfer_leader(&self, to: u64) -> Result<(), ChangeError> {
        if to == self.id {
            return Ok(());
        }
        self.raft.trigger().transfer_leader(to).await.map_err(|_| ChangeError::Stopped)
    }

    /// Hands leadership to `preferred` if this member leads and that one votes and has nearly all entries. Returns
    /// whether it was asked to lead. Meant to be called every few election timeouts.
    pub async fn prefer_leader(&self, preferred: u64) -> Result<bool, ChangeError> {
        let ready = is_ready_to_lead(&self.metrics().get(), self.id, preferred);
        if ready {
            self.transfer_leader(preferred).await?;
        }
        Ok(ready)
    }

    /// How long the log's writer waits for further entries, from the next on: a member that votes does not wait.
    pub fn set_flush_gather(&self, gather: Duration) {
        self.store.set_flush_gather(gather);
    }

    /// Whether this member leads, as far as it knows.
    pub fn is_leader(&self) -> bool {
        self.raft.is_leader()
    }

    /// The leader, as far as this member knows.
    pub fn leader(&self) -> Option<u64> {
        self.raft.metrics().borrow_watched().current_leader
    }

    /// Follows the leadership.
    pub fn leaders(&self) -> LeaderWatch {
        LeaderWatch(self.raft.server_metrics())
    }

    /// Follows the metrics.
    pub fn metrics(&self) -> MetricsWatch {
        MetricsWatch(self.raft.metrics())
    }

    /// Counters of the disk.
    pub fn disk_stats(&self) -> &CommitStats {
        self.store.stats()
    }

    /// Waits until everything that was committed before this call is applied here; costs one quorum round trip.
    /// Returns the index up to which that is so. Only the leader can tell.
    pub async fn read_index(&self) -> Result<u64, ReadError> {
        let linearizer = self.raft.get_read_linearizer(ReadPolicy::ReadIndex).await.map_err(|error| match error {
            RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)) => {
                ReadError::NotLeader { leader: forward.leader_id }
            }
            RaftError::APIError(LinearizableReadError::QuorumNotEnough(error)) => {
                ReadError::NoQuorum(error.to_string())
            }
            RaftError::Fatal(_) => ReadError::Stopped,
        })?;
        let index = linearizer.read_log_id().index();
        linearizer.await_ready(&self.raft).await.map_err(|_| ReadError::Stopped)?;
        Ok(index)
    }

    /// The committed index of the log, as its leader says, here or elsewhere, after a majority has confirmed. The index that is known here
    /// before may be less. Nothing is waited for beside the answer.
    pub async fn committed_index(&self) -> Result<u64, ReadError> {
        let leader = self.leader();
        let target = match leader {
            None => return Err(ReadError::NotLeader { leader }),
            Some(target) => target,
        };
        let answer = match target == self.id {
            true => {
                self.server.on_call(self.id, CallKind::ReadIndex, Bytes::new()).await.map_err(|error| error.to_string())
            }
            false => {
                self.transport.call(target, CallKind::ReadIndex, Bytes::new()).await.map_err(|error| error.to_string())
            }
        };
        let answer = answer.map_err(ReadError::NoQuorum)?;
        let index: Option<u64> =
            wire::decode(&answer, READ_INDEX_BYTES_MAX).map_err(|error| ReadError::NoQuorum(error.to_string()))?;
        index.ok_or(ReadError::NotLeader { leader })
    }

    /// Whether the next start would take long, because of the commands applied since the last snapshot ([`Config::snapshot_every_bytes`]):
    /// [`trigger_snapshot`](Self::trigger_snapshot) should be called.
    pub fn wants_snapshot(&self) -> bool {
        self.sizes.wants_snapshot(self.snapshot_every_bytes)
    }

    /// Takes a snapshot soon, whatever the log's length.
    pub async fn trigger_snapshot(&self) -> Result<(), ChangeError> {
        self.raft.trigger().snapshot().await.map_err(|_| ChangeError::Stopped)
    }

    /// Stops the member: nothing is proposed, answered or applied after this returns.
    pub async fn shutdown(&self) {
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(member = self.id, %error, "the member did not stop in order");
        }
    }
}

/// Why no member's file was founded. Nothing is there that was not before.
#[derive(Debug, thiserror::Error)]
pub enum FoundError {
    /// Something stands where the file would.
    #[error("{0} is there already")]
    Exists(String),
    /// No voter was named.
    #[error("a group needs a voter")]
    NoVoter,
    /// The file could not be created.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It could not be written.
    #[error("{path}: {reason}")]
    Write {
        /// The file.
        path: String,
        /// The error of the disk.
        reason: PersistError,
    },
}

/// Founds the file of member `id` of a group that begins with a state instead of with nothing. It is as if the group's entry `index` had
/// been applied, with `state` as the content of a snapshot. Every voter needs a file with the same; no other member does, because a member
/// with nothing gets a snapshot. The group has no leader and no vote yet. To be called where no member runs.
pub fn found_with_state(
    path: &Path,
    id: u64,
    config: &Config,
    voters: BTreeSet<u64>,
    index: u64,
    state: &[u8],
) -> Result<(), FoundError> {
    if voters.is_empty() {
        return Err(FoundError::NoVoter);
    }
    if path.exists() {
        return Err(FoundError::Exists(path.display().to_string()));
    }
    let store = LogStore::open(path, id, config)?;
    let at = LogId::new(LeaderId { term: 0, node_id: 0 }, index);
    let membership = Membership::new_with_defaults(vec![voters], []);
    let meta = SnapshotMeta { last_log_id: Some(at), last_membership: StoredMembership::new(Some(at), membership) };
    let failed = |reason: PersistError| FoundError::Write { path: path.display().to_string(), reason };
    tables::found_with_state(store.db(), &meta, state, at).map_err(failed)
}

pub(crate) async fn initialize<M: RaftStateMachine<TypeConfig>>(
    raft: &Raft<TypeConfig, M>,
    voters: BTreeSet<u64>,
) -> Result<(), ChangeError> {
    raft.initialize(voters).await.map_err(|error| match error {
        RaftError::APIError(InitializeError::NotAllowed(error)) => ChangeError::Refused(error.to_string()),
        RaftError::APIError(InitializeError::NotInMembers(error)) => ChangeError::Refused(error.to_string()),
        RaftError::Fatal(_) => ChangeError::Stopped,
    })
}

pub(crate) fn is_ready_to_lead(metrics: &Metrics, me: u64, preferred: u64) -> bool {
    let candidate = metrics.is_leader && preferred != me && metrics.voters.contains(&preferred);
    let has = metrics.matched.get(&preferred).copied().flatten();
    let lag = |has: u64| metrics.last_log.unwrap_or(0).saturating_sub(has);
    candidate && has.is_some_and(|has| lag(has) <= TRANSFER_LAG_ENTRIES_MAX)
}

pub(crate) fn to_change_error(error: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> ChangeError {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
            ChangeError::NotLeader { leader: forward.leader_id }
        }
        RaftError::APIError(ClientWriteError::LogEntryDiscarded(forward)) => {
            ChangeError::Unknown { leader: forward.leader_id }
        }
        RaftError::APIError(ClientWriteError::ChangeMembershipError(error)) => ChangeError::Refused(error.to_string()),
        RaftError::APIError(ClientWriteError::PreconditionFailed(error)) => ChangeError::Refused(error.to_string()),
        RaftError::Fatal(_) => ChangeError::Stopped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leading(matched: Option<u64>) -> Metrics {
        Metrics {
            is_leader: true,
            voters: [1, 2].into(),
            last_log: Some(1000),
            matched: [(1, Some(1000)), (2, matched), (3, Some(1000))].into(),
            ..Metrics::default()
        }
    }

    #[test]
    fn only_a_leader_hands_over_and_only_to_a_voter_that_caught_up() {
        assert!(is_ready_to_lead(&leading(Some(1000)), 1, 2));
        assert!(is_ready_to_lead(&leading(Some(1000 - TRANSFER_LAG_ENTRIES_MAX)), 1, 2));
        assert!(!is_ready_to_lead(&leading(Some(1000 - TRANSFER_LAG_ENTRIES_MAX - 1)), 1, 2));
        assert!(!is_ready_to_lead(&leading(None), 1, 2), "never heard of");
        assert!(!is_ready_to_lead(&leading(Some(1000)), 1, 1), "leads already");
        assert!(!is_ready_to_lead(&leading(Some(1000)), 1, 3), "a learner");
        assert!(!is_ready_to_lead(&Metrics { is_leader: false, ..leading(Some(1000)) }, 1, 2));
    }
}
