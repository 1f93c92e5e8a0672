//! The host of a group: one task that owns the core and feeds it what happens.

use crate::connections::{Peer, accept_all};
use crate::storage::{self, Progress, StartError, Storage, StorageOptions};
use bytes::Bytes;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidemark_consensus::local::{CheckpointPart, LocalLog};
use tidemark_proto::group::GroupConfig;
use tidemark_proto::ids::{DcId, GroupId, LogIndex, OwnerId};
use tidemark_proto::msg::{ForGroup, FromClient};
use tidemark_proto::node::{ConnId, Input, NodeConfig, NodeCore, Output};
use tidemark_proto::time::{Time, WallMs};
use tidemark_proto::wire;
use tidemark_transport::Endpoint;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// Events that may wait for the core; past it readers wait, and with them their connections.
const EVENTS_MAX: usize = 4_096;
/// Events handled before outputs are drained.
const EVENTS_BATCH: usize = 512;
/// Why a connection ends whose writer's queue is full.
const READS_TOO_SLOWLY: &str = "reads too slowly";

/// How a node is started.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    pub data_dir: PathBuf,
    pub cluster: String,
    pub dc_name: String,
    pub dc: DcId,
    /// Number of the group inside the data centre.
    pub group: u16,
    /// Settings of the core; the group's identity in it is replaced by the data directory's.
    pub core: NodeConfig,
    /// Added to every flush, to model slower disks.
    pub flush_delay: Duration,
}

/// What happens to a node.
pub enum Event {
    ClientUp { conn: u64, owner: OwnerId, peer: Peer },
    Client { conn: u64, msg: FromClient },
    ClientGone { conn: u64 },
    AggregatorUp { conn: u64, dc: String, peer: Peer },
    Aggregator { conn: u64, msg: ForGroup },
    AggregatorGone { conn: u64 },
    Stop { done: oneshot::Sender<()> },
}

/// A node's state as others may see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStatus {
    /// Whether increments are taken.
    pub serving: bool,
    /// Why the node stopped, if it did.
    pub failed: Option<String>,
    pub connections: usize,
    pub applied: u64,
    /// Durable commits since the start.
    pub commits: u64,
}

/// A running node. Dropping it stops it without a checkpoint; nothing durable is lost.
pub struct Node {
    pub group: GroupId,
    events: mpsc::Sender<Event>,
    status: watch::Receiver<NodeStatus>,
    host: tokio::task::JoinHandle<()>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Node {
    /// Recovers from the data directory and serves on the endpoint. To be called within a tokio runtime.
    pub fn start(endpoint: Endpoint, options: NodeOptions) -> Result<Node, StartError> {
        let disk = StorageOptions {
            dir: &options.data_dir,
            cluster: &options.cluster,
            dc_name: &options.dc_name,
            dc: options.dc,
            group: options.group,
            flush_delay: options.flush_delay,
        };
        let core_config = options.core;
        let (storage, core) = storage::open(
            &disk,
            |group| NodeConfig {
                group: GroupConfig { id: group, ..core_config.group },
                wall_origin: wall_now(),
                ..core_config
            },
            rand::random(),
        )?;
        let group = storage.group;
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        let (publish, status) = watch::channel(NodeStatus::default());
        let host = Host::new(core, storage, options.dc_name, publish);
        let host = tokio::spawn(host.run(receiver));
        let accepting = tokio::spawn(accept_all(endpoint, events.clone()));
        Ok(Node { group, events, status, host, accepting })
    }

    /// Follows the node's state.
    pub fn status(&self) -> watch::Receiver<NodeStatus> {
        self.status.clone()
    }

    /// Stops after everything accepted is durable. Connections end.
    pub async fn stop(self) {
        self.accepting.abort();
        let (done, stopped) = oneshot::channel();
        if self.events.send(Event::Stop { done }).await.is_ok() {
            let _ = stopped.await;
        }
        let _ = self.host.await;
    }
}

struct Host {
    core: NodeCore,
    log: LocalLog,
    progress: Arc<Progress>,
    dc_name: String,
    clients: HashMap<u64, Peer>,
    /// The present connection of this data centre's aggregator.
    aggregator: Option<(u64, Peer)>,
    origin: Instant,
    durable: LogIndex,
    checkpointed: u64,
    appended: Vec<Bytes>,
    parts_taken: u64,
    /// Connections found dead while outputs were carried out; the core hears of them after.
    lost: Vec<Input>,
    publish: watch::Sender<NodeStatus>,
    stopping: Option<oneshot::Sender<()>>,
}

impl Host {
    fn new(core: NodeCore, storage: Storage, dc_name: String, publish: watch::Sender<NodeStatus>) -> Host {
        let durable = storage.progress.durable();
        Host {
            core,
            log: storage.log,
            progress: storage.progress,
            dc_name,
            clients: HashMap::new(),
            aggregator: None,
            origin: Instant::now(),
            durable,
            checkpointed: 0,
            appended: Vec::new(),
            parts_taken: 0,
            lost: Vec::new(),
            publish,
            stopping: None,
        }
    }

    async fn run(mut self, mut events: mpsc::Receiver<Event>) {
        let progress = self.progress.clone();
        let mut batch = Vec::with_capacity(EVENTS_BATCH);
        self.handle(Input::Tick);
        self.append();
        while self.progress.failure().is_none() && self.stopping.is_none() {
            let deadline = self.core.poll_timeout();
            tokio::select! {
                taken = events.recv_many(&mut batch, EVENTS_BATCH) => {
                    if taken == 0 {
                        break;
                    }
                    batch.drain(..).for_each(|event| self.on_event(event));
                }
                () = progress.changed.notified() => self.on_progress(),
                () = sleep_until(self.origin, deadline), if deadline.is_some() => self.handle(Input::Tick),
            }
            self.take_parts();
            self.append();
            self.publish_status();
        }
        self.finish();
    }

    fn now(&self) -> Time {
        Time(self.origin.elapsed().as_micros() as u64)
    }

    /// Feeds the core and carries out what it wants, in its order; entries are appended together by [`Host::append`].
    fn handle(&mut self, input: Input) {
        let mut next = Some(input);
        while let Some(input) = next {
            self.core.handle(self.now(), input);
            while let Some(output) = self.core.poll_output() {
                self.carry_out(output);
            }
            next = self.lost.pop();
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::ClientUp { conn, owner, peer } => {
                self.clients.insert(conn, peer);
                self.handle(Input::ClientUp { conn: ConnId(conn), owner });
            }
            Event::Client { conn, msg } => {
                if self.clients.contains_key(&conn) {
                    self.handle(Input::Client { conn: ConnId(conn), msg });
                }
            }
            Event::ClientGone { conn } => self.lose_client(conn),
            Event::AggregatorUp { conn, dc, peer } => self.on_aggregator(conn, &dc, peer),
            Event::Aggregator { conn, msg } => {
                if self.is_aggregator(conn) {
                    self.handle(Input::Aggregator(msg));
                }
            }
            Event::AggregatorGone { conn } => {
                if self.is_aggregator(conn) {
                    self.aggregator = None;
                    self.handle(Input::AggregatorGone);
                }
            }
            Event::Stop { done } => self.stopping = Some(done),
        }
    }

    fn is_aggregator(&self, conn: u64) -> bool {
        self.aggregator.as_ref().is_some_and(|(present, _)| *present == conn)
    }

    /// The newest connection of this data centre's aggregator counts; another data centre's is refused.
    fn on_aggregator(&mut self, conn: u64, dc: &str, peer: Peer) {
        if dc != self.dc_name {
            tracing::warn!(dc, own = %self.dc_name, "aggregator of another data centre refused");
            return peer.end(&format!("this is a node of {}: it does not serve the aggregator of {dc}", self.dc_name));
        }
        if let Some((_, before)) = self.aggregator.replace((conn, peer)) {
            before.end("replaced by a newer connection");
            self.handle(Input::AggregatorGone);
        }
        self.handle(Input::AggregatorUp);
    }

    fn lose_client(&mut self, conn: u64) {
        if self.clients.remove(&conn).is_some() {
            self.handle(Input::ClientGone { conn: ConnId(conn) });
        }
    }

    fn on_progress(&mut self) {
        let (durable, checkpointed) = (self.progress.durable(), self.progress.checkpointed());
        if durable > self.durable {
            self.durable = durable;
            self.handle(Input::Durable { upto: durable });
        }
        if checkpointed > self.checkpointed {
            self.checkpointed = checkpointed;
            self.handle(Input::Persisted);
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Append { entry, .. } => self.appended.push(entry.into()),
            Output::Client { conn, msg } => self.send_client(conn.0, wire::encode(&msg).into()),
            Output::Aggregator(msg) => self.send_aggregator(wire::encode(&msg).into()),
            Output::Persist(part) => self.persist(part),
            Output::CutLog { before } => log_failure("cut", self.log.truncate_before(before.0).err()),
        }
    }

    /// The writer keeps its requests in order, so all but the last part count as taken at once.
    fn persist(&mut self, part: tidemark_proto::node::CheckpointPart) {
        self.append();
        let last = part.last;
        let part = CheckpointPart { applied: part.applied.0, last, rows: storage::rows(part.rows) };
        log_failure("checkpoint", self.log.checkpoint(part).err());
        self.parts_taken += u64::from(!last);
    }

    /// Tells the core of parts of a checkpoint that were taken; each may bring the next.
    fn take_parts(&mut self) {
        while self.parts_taken > 0 {
            self.parts_taken -= 1;
            self.handle(Input::Persisted);
        }
    }

    fn append(&mut self) {
        if !self.appended.is_empty() {
            let entries = std::mem::take(&mut self.appended);
            metrics::counter!("tidemark_node_entries_total").increment(entries.len() as u64);
            log_failure("append", self.log.append(entries).err());
        }
    }

    /// A client that does not read loses its connection, never what was counted: it asks again.
    fn send_client(&mut self, conn: u64, frame: Bytes) {
        if self.clients.get(&conn).is_some_and(|peer| !peer.send(frame))
            && let Some(peer) = self.clients.remove(&conn)
        {
            metrics::counter!("tidemark_node_slow_clients_total").increment(1);
            peer.end(READS_TOO_SLOWLY);
            self.lost.push(Input::ClientGone { conn: ConnId(conn) });
        }
    }

    fn send_aggregator(&mut self, frame: Bytes) {
        if self.aggregator.as_ref().is_some_and(|(_, peer)| !peer.send(frame))
            && let Some((_, peer)) = self.aggregator.take()
        {
            peer.end(READS_TOO_SLOWLY);
            self.lost.push(Input::AggregatorGone);
        }
    }

    fn publish_status(&self) {
        let status = NodeStatus {
            serving: self.core.group().is_serving(),
            failed: self.progress.failure(),
            connections: self.clients.len(),
            applied: self.core.group().applied().0,
            commits: self.log.stats().commits.load(Ordering::Relaxed),
        };
        self.publish.send_if_modified(|old| {
            let changed = *old != status;
            *old = status;
            changed
        });
    }

    /// What was appended becomes durable as the log is dropped.
    fn finish(mut self) {
        self.publish_status();
        if let Some(error) = self.progress.failure() {
            tracing::error!(%error, "the log has failed; the node stops");
        }
        let done = self.stopping.take();
        drop(self.log);
        if let Some(done) = done {
            let _ = done.send(());
        }
    }
}

fn wall_now() -> WallMs {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    WallMs(since.map_or(0, |since| since.as_millis() as u64))
}

fn log_failure<E: std::fmt::Display>(what: &str, error: Option<E>) {
    if let Some(error) = error {
        tracing::error!(%error, "{what} refused by the log");
    }
}

/// Sleeps until `deadline` of the core's clock.
async fn sleep_until(origin: Instant, deadline: Option<Time>) {
    if let Some(deadline) = deadline {
        tokio::time::sleep_until(origin + Duration::from_micros(deadline.0)).await;
    }
}
