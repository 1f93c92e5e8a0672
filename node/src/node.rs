//! A node's process: the groups that it holds, and the connections to them.

use crate::connections::{Doors, RaftDoor, accept_all};
use crate::events::{self, Event, EventReceiver, EventSender};
use crate::host::{Ended, GroupStatus, Host};
use crate::log::{GroupLog, SharedLog};
use crate::neighbours::{BoxFuture, GroupTransport, Neighbours};
use crate::storage::{self, RowsError, StartError, StorageOptions};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidemark_consensus::local::RowStore;
use tidemark_consensus::replica::{Absent, Replica, ReplicaOptions};
use tidemark_proto::group::GroupConfig;
use tidemark_proto::ids::{DcId, GroupId};
use tidemark_proto::node::{NodeConfig, NodeCore};
use tidemark_proto::placement::Placement;
use tidemark_proto::time::WallMs;
use tidemark_transport::{Endpoint, HostPort};
use tokio::sync::{oneshot, watch};
use tracing::Instrument;

/// Events that may wait for a group's core; past it readers wait, and with them their connections.
const EVENTS_MAX: usize = 4_096;

/// Entries kept behind a checkpoint: a holder that lacks no more of them is sent these and no rows. At most some 80 a second are made.
const KEEP_ENTRIES: u64 = 1_000;
/// Beside an entry of the group, in an entry of its log.
const COMMAND_HEAD_BYTES: usize = 16;

/// How a node is started.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    pub data_dir: PathBuf,
    /// The cluster's name, with its era.
    pub cluster: String,
    pub dc_name: String,
    pub dc: DcId,
    /// Number of the node in its data centre.
    pub node: u16,
    /// Where the data centre's nodes are reached, this one included, in the order of their numbers. There is a group for each.
    pub nodes: Vec<HostPort>,
    /// Which of them hold which group's log.
    pub placement: Placement,
    /// Settings of the cores; the group's identity in them is replaced.
    pub core: NodeConfig,
    /// Added to every flush, to model slower disks.
    pub flush_delay: Duration,
    /// Where the rows of checkpoints are, of groups that are on this node alone.
    pub rows: RowStore,
    /// Bytes of memory that the buckets of each group may take.
    pub buckets_bytes_max: usize,
    /// An empty data directory is meant, though the ledger knows the groups of this node.
    pub fresh: bool,
}

/// A running node. Dropping it stops it without a checkpoint; nothing durable is lost.
pub struct Node {
    groups: Vec<Running>,
    accepting: tokio::task::JoinHandle<()>,
}

/// The host of one group.
struct Running {
    events: EventSender,
    status: watch::Receiver<GroupStatus>,
    host: tokio::task::JoinHandle<()>,
    raft: RaftDoor,
    number: u16,
}

/// Why increments are not taken for every group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    #[error("this node was taken away and holds nothing any more: it may be stopped for good")]
    TakenAway,
    #[error("{group} has failed: {reason}")]
    Failed { group: String, reason: String },
    #[error("{group}: {trouble}")]
    Trouble { group: String, trouble: String },
    #[error("{group} does not take increments yet")]
    NotServing { group: String },
    #[error("{group} has not applied its log yet")]
    NotCaughtUp { group: String },
}

/// The state of all groups of a node, as others may see it.
#[derive(Clone, Debug)]
pub struct Statuses(Vec<watch::Receiver<GroupStatus>>);

impl Statuses {
    /// By group, the one that this node leads whenever it can first; groups that it has left are not listed.
    pub fn get(&self) -> Vec<GroupStatus> {
        self.0.iter().map(|status| status.borrow().clone()).filter(|status| !status.left).collect()
    }

    /// Whether increments of every group are taken, here or, as far as is known, where the group is led; else what is missing. Where
    /// another group is, one that is not founded is not waited for: it may need nodes that have not read the layout yet that has it.
    pub fn ready(&self) -> Result<(), NotReady> {
        let statuses = self.get();
        if statuses.is_empty() {
            return Err(NotReady::TakenAway);
        }
        let any = statuses.iter().any(|status| status.serving);
        let matters = |status: &GroupStatus| status.is_founded() || status.failed.is_some() || status.trouble.is_some();
        for status in statuses.into_iter().filter(|status| !any || matters(status)) {
            let GroupStatus { group, failed, trouble, serving, caught_up, .. } = status;
            let group = group.map_or_else(|| "a group".to_owned(), |group| format!("group {group}"));
            match (failed, trouble, serving, caught_up) {
                (Some(reason), ..) => return Err(NotReady::Failed { group, reason }),
                (None, Some(trouble), ..) => return Err(NotReady::Trouble { group, trouble }),
                (None, None, false, _) => return Err(NotReady::NotServing { group }),
                (None, None, true, false) => return Err(NotReady::NotCaughtUp { group }),
                (None, None, true, true) => {}
            }
        }
        Ok(())
    }

    /// Waits until a group has failed; the reason.
    pub async fn failed(&self) -> String {
        let mut waiting = tokio::task::JoinSet::new();
        for mut status in self.0.iter().cloned() {
            waiting.spawn(async move {
                let failed =
                    status.wait_for(|status| status.failed.is_some()).await.map(|status| status.failed.clone());
                if failed.is_err() && status.borrow().left {
                    return std::future::pending().await;
                }
                failed.ok().flatten().unwrap_or_else(|| "the group's task has ended".to_owned())
            });
        }
        match waiting.join_next().await {
            Some(Ok(reason)) => reason,
            _ => "the node holds no group".to_owned(),
        }
    }
}

impl Node {
    /// Recovers from the data directory and serves on the endpoint. To be called within a tokio runtime.
    pub fn start(endpoint: Endpoint, options: NodeOptions) -> BoxFuture<'static, Result<Node, StartError>> {
        // A box, so that only this crate compiles a running node.
        Box::pin(Node::recover(endpoint, options))
    }

    async fn recover(endpoint: Endpoint, options: NodeOptions) -> Result<Node, StartError> {
        let numbers = groups_of(&options)?;
        let neighbours = Arc::new(Neighbours::new(
            endpoint.clone(),
            options.cluster.clone(),
            options.dc_name.clone(),
            options.nodes.clone(),
        ));
        let mut groups = Vec::new();
        for group in numbers {
            groups.push(start_group(&options, &neighbours, group).await?);
        }
        let doors = groups.iter().map(|group| (group.number, group.events.clone())).collect::<BTreeMap<_, _>>();
        let rafts = groups.iter().map(|group| (group.number, group.raft.clone())).collect();
        let cluster = options.cluster.clone();
        let placement = options.placement.clone();
        let absent = Arc::new(absent(&options));
        let doors = Doors { groups: doors, rafts, absent, neighbours, cluster, placement };
        let accepting = tokio::spawn(accept_all(endpoint, Arc::new(doors)));
        Ok(Node { groups, accepting })
    }

    /// Follows the state of the node's groups.
    pub fn statuses(&self) -> Statuses {
        Statuses(self.groups.iter().map(|group| group.status.clone()).collect())
    }

    /// Stops after everything accepted is durable. Connections end.
    pub async fn stop(self) {
        self.accepting.abort();
        for group in self.groups {
            let (done, stopped) = oneshot::channel();
            if group.events.send(Event::Stop { done }).await {
                let _ = stopped.await;
            }
            let _ = group.host.await;
        }
    }
}

/// The groups that are placed on this node, and those that were: it is a member of these until others have taken its place.
fn groups_of(options: &NodeOptions) -> Result<Vec<u16>, StartError> {
    let mut groups: Vec<u16> = options.placement.groups_of(options.node).collect();
    if options.placement.replicas() > 1 {
        let held = storage::shared_groups(&options.data_dir, options.placement.nodes())?;
        let leaving: Vec<u16> = held.into_iter().filter(|group| !groups.contains(group)).collect();
        if !leaving.is_empty() {
            tracing::info!(node = options.node, ?leaving, "holds groups until others have taken its place");
        }
        groups.extend(leaving);
    }
    if groups.is_empty() {
        let node = options.node;
        let dc = options.dc_name.clone();
        let path = options.data_dir.display().to_string();
        return Err(match storage::has_left(&options.data_dir)? {
            true => StartError::TakenAway { node, dc },
            false => StartError::HoldsNothing { node, dc, path },
        });
    }
    Ok(groups)
}

async fn start_group(options: &NodeOptions, neighbours: &Arc<Neighbours>, group: u16) -> Result<Running, StartError> {
    let opened = open(options, neighbours, group).await?;
    let (events, receiver) = events::channel(EVENTS_MAX);
    let (publish, status) = watch::channel(GroupStatus::default());
    let raft = RaftDoor::default();
    let keeping =
        Keeping { options: options.clone(), neighbours: neighbours.clone(), group, publish, raft: raft.clone() };
    raft.lead_to(opened.replica.as_ref().map(Replica::service));
    let span = tracing::info_span!("group", dc = options.dc_name, number = group);
    let host = tokio::spawn(keeping.run(opened, receiver).instrument(span));
    Ok(Running { events, status, host, raft, number: group })
}

/// A group's state and log, ready to be hosted.
struct Opened {
    core: NodeCore,
    log: GroupLog,
    replica: Option<Replica>,
}

async fn open(options: &NodeOptions, neighbours: &Arc<Neighbours>, group: u16) -> Result<Opened, StartError> {
    match options.placement.replicas() {
        1 => open_alone(options, group).map(|(core, log)| Opened { core, log, replica: None }),
        _ => open_shared(options, neighbours, group).await,
    }
}

/// Keeps a group hosted, whatever becomes of its incarnations.
struct Keeping {
    options: NodeOptions,
    neighbours: Arc<Neighbours>,
    group: u16,
    publish: watch::Sender<GroupStatus>,
    raft: RaftDoor,
}

impl Keeping {
    async fn run(self, mut opened: Opened, mut events: EventReceiver) {
        loop {
            let Opened { core, log, replica } = opened;
            let dc_name = self.options.dc_name.clone();
            let host = Host::new(core, log, dc_name, self.options.fresh, self.publish.clone());
            let ended = host.run(&mut events).await;
            let member = replica.as_ref().map_or(0, Replica::member);
            if let Some(replica) = replica {
                replica.shutdown().await;
            }
            self.raft.lead_to(None);
            let lost = match ended {
                Ended::Over => return,
                Ended::Left => return self.leave(member),
                Ended::Lost(lost) => lost,
            };
            opened = match self.found_anew(lost).await {
                Ok(opened) => opened,
                Err(error) => return self.fail(&error, "was not founded anew"),
            };
        }
    }

    /// The group has gone on without this member: what it held is kept under another name.
    fn leave(&self, member: u64) {
        match storage::set_left_aside(&disk_of(&self.options, self.group), member) {
            Ok(aside) => {
                self.raft.lead_to(Some(Arc::new(absent(&self.options))));
                tracing::info!(group = self.group, kept = %aside.display(), "the group is on other nodes now");
                self.publish.send_modify(|status| status.left = true);
            }
            Err(error) => self.fail(&error, "was left"),
        }
    }

    /// The files of the lost incarnation are kept under another name, and the group begins from nothing.
    async fn found_anew(&self, lost: GroupId) -> Result<Opened, StartError> {
        let aside = storage::set_aside(&disk_of(&self.options, self.group), lost.incarnation)?;
        tracing::warn!(%lost, kept = %aside.display(), "declared lost: the group is founded anew");
        let opened = open(&self.options, &self.neighbours, self.group).await?;
        self.raft.lead_to(opened.replica.as_ref().map(Replica::service));
        Ok(opened)
    }

    fn fail(&self, error: &StartError, what: &str) {
        tracing::error!(%error, group = self.group, "the group {what}");
        self.publish.send_modify(|status| status.failed = Some(error.to_string()));
    }
}

/// Speaks for groups that this node does not hold.
fn absent(options: &NodeOptions) -> Absent {
    let nodes = options.placement.nodes();
    let gone = nodes - options.placement.present().count() as u16;
    Absent { node: options.node.into(), nodes: nodes.into(), gone: gone.into() }
}

fn open_alone(options: &NodeOptions, group: u16) -> Result<(NodeCore, GroupLog), StartError> {
    let config = |group| config_of(options.core, group);
    let (storage, mut core) = storage::open(&disk_of(options, group), config, rand::random())?;
    core.keep_within(storage.budget(options.buckets_bytes_max));
    Ok((core, GroupLog::Alone(Box::new(storage.log), storage.progress)))
}

async fn open_shared(options: &NodeOptions, neighbours: &Arc<Neighbours>, group: u16) -> Result<Opened, StartError> {
    let path = storage::shared_path(&disk_of(options, group))?;
    let name = format!("{}/group-{group}", options.dc_name);
    let mint = u32::try_from(wall_now().0 / 1_000).unwrap_or(u32::MAX);
    let placement = options.placement.holders(group).map(u32::from).collect();
    let cluster = options.cluster.clone();
    let own = options.node.into();
    let mut replica = ReplicaOptions::new(cluster, name, placement, own, mint, rand::random());
    let everyone = 0..options.placement.nodes();
    replica.gone = everyone.clone().filter(|node| options.placement.is_gone(*node)).map(u32::from).collect();
    replica.nodes = everyone.map(u32::from).collect();
    replica.raft.flush_delay = options.flush_delay;
    replica.raft.keep_entries = KEEP_ENTRIES;
    replica.raft.entry_bytes_max = options.core.entry_bytes_max + COMMAND_HEAD_BYTES;
    let transport = GroupTransport { neighbours: neighbours.clone(), group };
    let opened = Replica::open(path.as_path().into(), replica, Arc::new(transport)).await;
    let refused = |source| StartError::Replica { path: path.display().to_string(), source: Box::new(source) };
    let opened = opened.map_err(refused)?;
    let log = SharedLog::new(opened, options.buckets_bytes_max);
    let id = GroupId { dc: options.dc, group, incarnation: 0 };
    let core = log.core(config_of(options.core, id)).map_err(|error| match error {
        RowsError::Persist(error) => error.into(),
        RowsError::Recover(source) => StartError::Recover { path: path.display().to_string(), source },
    })?;
    let replica = Some(log.replica.clone());
    Ok(Opened { core, log: GroupLog::Shared(Box::new(log)), replica })
}

fn disk_of(options: &NodeOptions, group: u16) -> StorageOptions<'_> {
    StorageOptions {
        dir: &options.data_dir,
        cluster: &options.cluster,
        dc_name: &options.dc_name,
        dc: options.dc,
        group,
        flush_delay: options.flush_delay,
        rows: options.rows,
    }
}

fn config_of(core: NodeConfig, group: GroupId) -> NodeConfig {
    NodeConfig { group: GroupConfig { id: group, ..core.group }, wall_origin: wall_now(), ..core }
}

fn wall_now() -> WallMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    WallMs(since.map_or(0, |since| since.as_millis() as u64))
}
