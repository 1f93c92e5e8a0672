//! A group's log, replicated over the nodes of a data centre, for a state machine that persists its own rows.
//!
//! The owner is one task. It receives committed entries in order ([`Event`]) and keeps the state in memory. It hands back the changed rows
//! as a checkpoint, in as many transactions as it likes; the last one moves the position that the rows stand for. Log and rows share a
//! file. After a restart the owner scans the rows, and receives the entries that were committed behind them. The snapshot for a member that
//! lacks too much of the log *is* the last complete checkpoint. Rows are read from the file as they are sent, and nothing is built on a
//! schedule.
//!
//! A member is a node and a disk ([`member_id`]): a node that has lost its disk is another member.

mod absent;
mod envelope;
mod identity;
mod keeper;
mod leadership;
mod machine;
mod placement;
mod rows;
mod serve;
mod tables;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use openraft::async_runtime::watch::WatchReceiver as _;
use openraft::{EntryPayload, Raft, SnapshotPolicy};
use tokio::sync::{mpsc, oneshot, watch};

use crate::raft::log_store::{Layout, LogStore};
use crate::raft::network::Network;
use crate::raft::node::{Ticking, is_ready_to_lead, tick_while_voting, to_change_error};
use crate::raft::propose::Proposer;
use crate::raft::types::{LogId, StoredMembership, TypeConfig};
use crate::raft::{Batch, ChangeError, CommitStats, Config, MetricsWatch, ProposeError, RaftService};
use crate::raft::{RaftTransport, StartError};
pub use crate::storage::{PersistError, Row, Source, SubmitError};
pub use absent::Absent;
use envelope::Post;
pub use identity::{member_id, node_of};
use keeper::{Bearing, Edition, Keeper};
use leadership::Voice;
use machine::Machine;
pub use rows::RowsReader;
use rows::{Image, Rows};
use serve::Service;
use tables::{Checkpoint, Disk};

/// Settings of a [`Replica`].
#[derive(Clone, Debug)]
pub struct ReplicaOptions {
    /// Log, limits, clocks, and the names of cluster and group. Entries are purged once they are behind a checkpoint and more
    /// than `keep_entries` old; how often checkpoints are made is the owner's business.
    pub raft: Config,
    /// Number of the node in its data centre.
    pub node: u32,
    /// Tells a disk from every other disk of this node if the file is founded now: the wall clock in seconds.
    pub mint: u32,
    /// Nodes that should have a member, the one that should lead first. The same on all of them. A node that has a member and is
    /// not among them takes part until the group has others in its place; then it says [`Event::Left`].
    pub placement: Vec<u32>,
    /// All nodes that the data centre ever had, or none where all are of the placement: one that is not may hold the log from an
    /// earlier placement. They are asked before a group is founded, and all that answer have to go by the same layout.
    pub nodes: Vec<u32>,
    /// Those of them that were taken away. A group is founded without their word when they have been silent for some seconds, and not
    /// without that of any other.
    pub gone: Vec<u32>,
    /// Drawn at random for this process.
    pub nonce: u64,
    /// A disk is counted on so often, so that older copies of it are known as such.
    pub count_every: Duration,
    /// A leader that has had no answer from a majority for so long says that it follows.
    pub quorum_patience: Duration,
    /// Events that may wait for the owner, each with an entry at most; past it applying waits, and with it the proposals in flight.
    pub events_max: usize,
}

impl ReplicaOptions {
    /// Defaults for a group inside a data centre, such as `europe-0/group-2`.
    pub fn new(
        cluster: impl Into<String>,
        group: impl Into<String>,
        placement: Vec<u32>,
        node: u32,
        mint: u32,
        nonce: u64,
    ) -> Self {
        let timing = crate::raft::Timing::LAN;
        let raft = Config { timing, stall_ms: 500, ..Config::new(cluster, group) };
        let quorum_patience = Duration::from_millis(3 * timing.election_max_ms);
        let count_every = Duration::from_secs(60);
        let nodes = Vec::new();
        let gone = Vec::new();
        let events_max = 64;
        Self { raft, node, mint, placement, nodes, gone, nonce, count_every, quorum_patience, events_max }
    }
}

/// How far a log is committed. A checkpoint of the state after it says it, and so do the rows then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    log_id: LogId,
    membership: Arc<StoredMembership>,
    commands: u64,
    /// The group: see `tables`.
    founder: Option<u64>,
    /// Of the rows that belong to it.
    generation: u64,
}

impl Position {
    /// Index of the entry in the log; grows, with gaps.
    pub fn index(&self) -> u64 {
        self.log_id.index()
    }

    /// Commands committed up to there, the entry's own included: the index of its last command in a log without gaps, which
    /// starts at 1. The same on every member.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    fn checkpoint(&self) -> Checkpoint {
        let membership = StoredMembership::clone(&self.membership);
        Checkpoint { log_id: self.log_id, membership, commands: self.commands, founder: self.founder }
    }
}

/// An event for the owner, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An entry is committed.
    Committed {
        /// Where the log stands with it.
        position: Position,
        /// Its commands, in order.
        batch: Batch,
    },
    /// This member leads, and everything committed before was reported before. Entries that are committed from here until `Follows` were
    /// submitted here, under this number, in the order of the calls.
    Leads {
        /// Goes with [`Replica::submit`]; greater than any before.
        leadership: u64,
    },
    /// This member does not lead, or cannot know it: no majority has answered for `quorum_patience`. Submitted commands may still be
    /// committed. Said again when another leader is known.
    Follows {
        /// The node that leads, if known.
        leader: Option<u32>,
    },
    /// A majority of the group's disks is gone: other ones answer on these nodes. Nothing can be decided any more, unless the old
    /// ones come back. No nodes: that is over. Said when it changes.
    Bereft {
        /// Where other disks are.
        nodes: BTreeSet<u32>,
    },
    /// Another member's snapshot has replaced all rows, which are in the file: the owner drops its state and reads them
    /// ([`Replica::reader`]). Until then it may read those of before.
    Restored {
        /// Their position.
        position: Position,
    },
    /// A checkpoint is durable as a whole. Not reported for a checkpoint with rows that were replaced meanwhile, nor after `Restored` for
    /// an earlier one.
    Checkpointed {
        /// The least position of the rows.
        position: Position,
    },
    /// The node is not placed any more, and the group has gone on without this member: its file is needed no more. The member has stopped;
    /// nothing follows.
    Left,
    /// The member has stopped; nothing follows.
    Failed(Failure),
}

/// Why a member has stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A transaction failed.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// The disk is an older copy of one that is known: it may have promised what it has forgotten. Remove the file and start
    /// again: the group takes the node in as a new member.
    #[error(
        "the disk of member {member} is an old copy: this is its start {start}, and node {by} has heard of start {known}"
    )]
    OldCopy {
        /// The member.
        member: u64,
        /// The start of its disk.
        start: u64,
        /// A start of it that was told before.
        known: u64,
        /// The node that heard of it.
        by: u32,
    },
    /// The log cannot go on.
    #[error("the member has stopped: {0}")]
    Stopped(String),
}

/// Rows to persist in one transaction.
///
/// A checkpoint too big for one transaction goes in several parts; only the last one moves the position. After a crash between
/// parts, entries from the old position on are replayed over newer rows: split a checkpoint only if that is idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointPart {
    /// The position of the last event with effects in the whole checkpoint.
    pub position: Position,
    /// Whether this part completes the checkpoint.
    pub last: bool,
    /// Rows in any order; within one part the later of two equal keys wins.
    pub rows: Vec<Row>,
}

/// Why a checkpoint was not taken. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// Its state was replaced by another member's meanwhile: `Restored` says so.
    #[error("the rows were replaced by a snapshot after this checkpoint was made")]
    Replaced,
    /// A row would not fit into a message when the rows are sent to another member.
    #[error("a row of {bytes} bytes exceeds the limit of {limit}")]
    RowTooLong {
        /// Its key and value.
        bytes: usize,
        /// Half of `message_bytes_max`.
        limit: usize,
    },
    /// The log refused the request.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

/// A replica, and what it tells its owner.
pub struct Opened {
    /// The handle.
    pub replica: Replica,
    /// To be taken by the owner: past `events_max` the member waits for it.
    pub events: mpsc::Receiver<Event>,
    /// The position of the rows; none before the first checkpoint.
    pub position: Option<Position>,
}

/// A running member of a replicated group. Cloning gives another handle on the same member.
///
/// It runs on the tokio runtime it was opened on, plus one thread for the disk. Call [`shutdown`](Self::shutdown) and drop
/// every handle before its file is opened again.
#[derive(Clone)]
pub struct Replica(Arc<Inner>);

struct Inner {
    member: u64,
    raft: Raft<TypeConfig, Machine>,
    proposer: Proposer,
    service: Arc<Service>,
    store: LogStore,
    rows: Rows,
    voice: Arc<Voice>,
    row_bytes_max: usize,
    placement: watch::Sender<Vec<u32>>,
    _tasks: [Ticking; 3],
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.voice.silence();
    }
}

impl Replica {
    /// Opens the file, or founds it as that of a blank member. The members of the placement found a group with it, or the group's leader
    /// adds it. The transport is addressed by node number, and hands over incoming messages with the sender's node number. Nothing is
    /// applied before this returns.
    pub fn open(
        source: Source,
        options: ReplicaOptions,
        transport: Arc<dyn RaftTransport>,
    ) -> BoxFuture<'static, Result<Opened, StartError>> {
        // A box, so that only this crate compiles the library's member.
        Box::pin(Self::open_source(source, options, transport))
    }

    async fn open_source(
        source: Source,
        options: ReplicaOptions,
        transport: Arc<dyn RaftTransport>,
    ) -> Result<Opened, StartError> {
        let raft_config = openraft_config(&options)?;
        let (store, disk) = open_store(source, &options).await?;
        let member = member_id(options.node, disk.mint);
        let (rows, checkpoint) = Rows::open(store.clone()).map_err(replay)?;
        let (sender, events) = mpsc::channel(options.events_max);
        let voice = Arc::new(Voice::new(member, sender, store.vote().map(|vote| vote.leader_id)));
        let machine = machine(&rows, &voice, checkpoint.as_ref());
        let post: Arc<dyn RaftTransport> = Arc::new(Post { member, nodes: transport.clone() });
        let metrics = machine.metrics.clone();
        let network = Network::<Image>::new(member, post, &options.raft, metrics.clone());
        let raft = Raft::build(member, raft_config, network, store.clone(), machine).await;
        let raft = raft.map_err(|error| StartError::Replay(error.to_string()))?;
        let _ = metrics.set(MetricsWatch(raft.metrics()));
        raft.runtime_config().elect(false);
        raft.run();
        let is_sure = Arc::<AtomicBool>::default();
        let placement = watch::Sender::new(options.placement.clone());
        let layout = Edition { nodes: options.nodes.len() as u32, gone: options.gone.len() as u32 };
        let bearing = Bearing { placement: placement.subscribe(), layout, is_bereft: AtomicBool::default() };
        let bearing = Arc::new(bearing);
        let keeper = Keeper {
            member,
            raft: raft.clone(),
            store: store.clone(),
            voice: voice.clone(),
            nodes: transport,
            placement: placement.subscribe(),
            everyone: options.nodes.into_iter().collect(),
            gone: options.gone.into_iter().collect(),
            bearing: bearing.clone(),
            is_sure: is_sure.clone(),
            disk,
            nonce: options.nonce,
            count_every: options.count_every,
            prefer_every: Duration::from_millis(PREFER_ELECTIONS * options.raft.timing.election_max_ms),
        };
        let watching = leadership::watch(voice.clone(), raft.clone(), store.clone(), options.quorum_patience);
        let ticking = tick_while_voting(member, raft.clone());
        let tasks = [tokio::spawn(ticking), tokio::spawn(watching), tokio::spawn(keeper.run())];
        let position = checkpoint.map(|checkpoint| position(checkpoint, rows.generation()));
        let inner = Inner {
            member,
            proposer: Proposer::start(raft.clone(), &options.raft),
            service: Arc::new(Service::new(voice.clone(), raft.clone(), rows.clone(), is_sure, bearing, &options.raft)),
            raft,
            store,
            rows,
            voice,
            row_bytes_max: options.raft.message_bytes_max / 2,
            placement,
            _tasks: tasks.map(Ticking),
        };
        Ok(Opened { replica: Self(Arc::new(inner)), events, position })
    }

    /// This member's number.
    pub fn member(&self) -> u64 {
        self.0.member
    }

    /// Where the transport delivers messages for this node.
    #[inline(never)] // Callers would compile the service.
    pub fn service(&self) -> Arc<dyn RaftService> {
        self.0.service.clone()
    }

    /// Reads the rows that the owner stands on: those of [`Opened::position`], or of the last [`Event::Restored`] that it took. They stay
    /// until the next reader is made; rows of earlier positions are removed.
    pub fn reader(&self, position: Option<&Position>) -> RowsReader {
        self.0.rows.reader(position.map_or(0, |position| position.generation))
    }

    /// The first command of the log on disk, committed or not: that of the group, as nothing is purged before the first checkpoint.
    pub fn first_command(&self) -> Option<Bytes> {
        let entries = self.0.store.read(0, FIRST_ENTRIES, FIRST_BYTES_MAX).ok()?;
        entries.iter().find_map(|entry| match &entry.payload {
            EntryPayload::Normal(batch) => batch.commands().next().map(Bytes::copy_from_slice),
            EntryPayload::Blank | EntryPayload::Membership(_) => None,
        })
    }

    /// Hands commands to the log, all in one entry, and waits for nothing. Submitted commands stand in the log in the order of the calls,
    /// as far as they get there.
    ///
    /// # Errors
    /// Errors that are known at once: the leadership has ended (the leader named is a member: see [`node_of`]), or too much waits.
    pub fn submit(&self, leadership: u64, commands: Vec<Bytes>) -> Result<(), ProposeError> {
        let reign = self.0.voice.reign(leadership);
        let reign = reign.ok_or_else(|| ProposeError::NotLeader { leader: self.metrics().get().leader })?;
        self.0.proposer.submit_under(Some(reign), commands).map(drop)
    }

    /// Hands in one part of a checkpoint; `Checkpointed` says when the whole of it is durable. Never waits.
    pub fn checkpoint(&self, part: CheckpointPart) -> Result<(), CheckpointError> {
        let CheckpointPart { position, last, rows } = part;
        let longest = rows.iter().map(Row::bytes).max();
        let limit = self.0.row_bytes_max;
        if let Some(bytes) = longest.filter(|bytes| *bytes > limit) {
            return Err(CheckpointError::RowTooLong { bytes, limit });
        }
        if position.generation != self.0.rows.generation() {
            return Err(CheckpointError::Replaced);
        }
        let completes = last.then(|| position.checkpoint());
        let outcome = self.0.rows.checkpoint(position.generation, rows, completes)?;
        if last {
            tokio::spawn(conclude(self.0.voice.clone(), self.0.raft.clone(), self.0.rows.clone(), outcome, position));
        }
        Ok(())
    }

    /// Says which nodes should have a member from now on, the one that should lead first; on every member. The leader adds and
    /// removes them one by one.
    pub fn place(&self, placement: Vec<u32>) {
        self.0.placement.send_if_modified(|old| {
            let changed = *old != placement;
            *old = placement;
            changed
        });
    }

    /// Founds the group with these members; on one of them, once, if there is none. Asks no member.
    pub async fn initialize(&self, voters: BTreeSet<u64>) -> Result<(), ChangeError> {
        crate::raft::node::initialize(&self.0.raft, voters).await
    }

    /// Adds a member without a vote, or does nothing if it is one.
    pub async fn add_learner(&self, member: u64) -> Result<(), ChangeError> {
        let added = self.0.raft.add_learner(member, openraft::EmptyNode {}, false).await;
        added.map(drop).map_err(to_change_error)
    }

    /// Makes exactly these members voters; a member that no longer votes leaves.
    pub async fn change_voters(&self, voters: BTreeSet<u64>) -> Result<(), ChangeError> {
        self.0.raft.change_membership(voters, false).await.map(drop).map_err(to_change_error)
    }

    /// Asks voter `to` to lead. Returns at once; watch the metrics for the outcome. Nothing happens if it is this member: it would
    /// wait for itself to take over, and propose nothing meanwhile.
    pub async fn transfer_leader(&self, to: u64) -> Result<(), ChangeError> {
        if to == self.0.member {
            return Ok(());
        }
        self.0.raft.trigger().transfer_leader(to).await.map_err(|_| ChangeError::Stopped)
    }

    /// Hands leadership to a member if this one leads and that one votes and has nearly all entries. Returns whether it was
    /// asked to lead. Meant to be called every few election timeouts.
    pub async fn prefer_leader(&self, preferred: u64) -> Result<bool, ChangeError> {
        let ready = is_ready_to_lead(&self.metrics().get(), self.0.member, preferred);
        if ready {
            self.transfer_leader(preferred).await?;
        }
        Ok(ready)
    }

    /// The node that leads, as far as this member knows.
    pub fn leader(&self) -> Option<u32> {
        self.metrics().get().leader.map(node_of)
    }

    /// The nodes that hold the log and vote, as far as this member knows; while they change, those of before and after.
    pub fn holders(&self) -> Vec<u32> {
        let metrics = self.0.raft.metrics();
        let metrics = metrics.borrow_watched();
        let mut holders: Vec<u32> = metrics.membership_config.membership().voter_ids().map(node_of).collect();
        holders.sort_unstable();
        holders.dedup();
        holders
    }

    /// Follows the metrics, which speak of members.
    pub fn metrics(&self) -> MetricsWatch {
        MetricsWatch(self.0.raft.metrics())
    }

    /// Counters of the disk.
    pub fn disk_stats(&self) -> &CommitStats {
        self.0.store.stats()
    }

    /// Nothing more is said: the owner need not listen until it has called [`shutdown`](Self::shutdown). An owner that stops
    /// listening without having said so has failed, and its member with it.
    pub fn silence(&self) {
        self.0.voice.silence();
    }

    /// Stops the member: nothing is submitted, answered or said after this returns. The owner need not listen meanwhile.
    pub async fn shutdown(&self) {
        self.silence();
        if let Err(error) = self.0.raft.shutdown().await {
            tracing::warn!(member = self.0.member, %error, "the member did not stop in order");
        }
    }
}

fn openraft_config(options: &ReplicaOptions) -> Result<Arc<openraft::Config>, StartError> {
    let config = openraft::Config::clone(&*options.raft.to_openraft()?);
    Ok(Arc::new(openraft::Config {
        // The owner's checkpoints are the snapshots.
        snapshot_policy: SnapshotPolicy::Never,
        // A disk that was put back to an earlier state must not stop the leader.
        allow_log_reversion: Some(true),
        install_snapshot_timeout: SNAPSHOT_PATIENCE_MS,
        ..config
    }))
}

/// The first command is looked for in this number of entries, blank entries and those of earlier members, and this number of bytes of them.
const FIRST_ENTRIES: u64 = 64;
const FIRST_BYTES_MAX: usize = 1 << 20;

/// Leadership is not handed to the preferred node more often than once in this number of election timeouts.
const PREFER_ELECTIONS: u64 = 5;

/// A snapshot that is not there after so long is sent anew.
const SNAPSHOT_PATIENCE_MS: u64 = 600_000;

async fn open_store(source: Source, options: &ReplicaOptions) -> Result<(LogStore, Disk), StartError> {
    let owner = format!("{}/{}", options.raft.group, options.node);
    let create_tables = tables::create_tables;
    // Committed entries are learnt from the leader: the owner is not there yet when the log is opened.
    let layout = Layout { format: tables::FORMAT, owner, create_tables, replays: false };
    let store = LogStore::open_as(source, &layout, &options.raft)?;
    let found = tables::read_disk(store.db()).map_err(replay)?;
    let disk = found.unwrap_or(Disk { mint: options.mint, starts: 0 });
    let disk = Disk { starts: disk.starts + 1, ..disk };
    let (done, outcome) = oneshot::channel();
    let put = store.put(tables::PutDisk { disk, done: Some(done) }).await;
    put.map_err(|error| StartError::Replay(error.to_string()))?;
    let persisted = outcome.await.map_err(|error| StartError::Replay(error.to_string()))?;
    persisted.map_err(replay)?;
    Ok((store, disk))
}

fn replay(error: PersistError) -> StartError {
    StartError::Replay(error.to_string())
}

fn machine(rows: &Rows, voice: &Arc<Voice>, checkpoint: Option<&Checkpoint>) -> Machine {
    Machine {
        rows: rows.clone(),
        voice: voice.clone(),
        metrics: Arc::default(),
        applied: checkpoint.map(|checkpoint| checkpoint.log_id),
        membership: Arc::new(checkpoint.map(|checkpoint| checkpoint.membership.clone()).unwrap_or_default()),
        commands: checkpoint.map_or(0, |checkpoint| checkpoint.commands),
        founder: checkpoint.and_then(|checkpoint| checkpoint.founder),
    }
}

fn position(checkpoint: Checkpoint, generation: u64) -> Position {
    let Checkpoint { log_id, membership, commands, founder } = checkpoint;
    Position { log_id, membership: Arc::new(membership), commands, founder, generation }
}

/// When a checkpoint is durable: openraft purges the log behind it.
async fn conclude(
    voice: Arc<Voice>,
    raft: Raft<TypeConfig, Machine>,
    rows: Rows,
    outcome: oneshot::Receiver<Result<(), PersistError>>,
    position: Position,
) {
    match outcome.await {
        Ok(Ok(())) => {
            let _ = raft.trigger().snapshot().await;
            voice.checkpointed(position, || rows.generation()).await;
        }
        Ok(Err(error)) => voice.failed(Failure::Persist(error)).await,
        Err(_) => {}
    }
}
