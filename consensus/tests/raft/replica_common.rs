//! Replicas in one process, each with an owner that keeps what it is told and checkpoints it.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;
use tidemark_consensus::raft::{Metrics, RaftService, Source, StartError};
use tidemark_consensus::replica::{
    CheckpointError, CheckpointPart, Event, Failure, Opened, Position, Replica, ReplicaOptions, Row,
};
use tidemark_consensus::testing::{Link, MemoryNetwork};
use tokio::sync::watch;

pub const WAIT: Duration = Duration::from_secs(30);

/// Fails loudly instead of hanging.
pub async fn within<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(WAIT, future).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

/// The state of an owner: by number of the command, what it said. A row per command, so that replaying over newer rows is
/// harmless and any loss, repetition or swap shows.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub commands: BTreeMap<u64, String>,
    pub position: Option<Position>,
    /// Number of the last command that a checkpoint contains.
    pub checkpointed: u64,
    pub leadership: Option<u64>,
    pub leads: Vec<(u64, Instant)>,
    /// Reported: that this member does not lead, with the leader.
    pub follows: Option<Option<u32>>,
    pub restored: usize,
    /// Where other disks are than those of the group, if they are a majority.
    pub bereft: std::collections::BTreeSet<u32>,
    pub failed: Option<Failure>,
    /// The group has gone on without it.
    pub left: bool,
    /// Commands that were said by events, since the process started.
    pub told: usize,
}

impl State {
    pub fn texts(&self) -> Vec<String> {
        self.commands.values().cloned().collect()
    }

    fn take(&mut self, replica: &Replica, event: Event) {
        match event {
            Event::Committed { position, batch } => {
                let commands: Vec<_> = batch.commands().map(|text| String::from_utf8(text.to_vec()).unwrap()).collect();
                let first = position.commands() + 1 - commands.len() as u64;
                let behind = self.position.as_ref().map_or(0, Position::commands);
                assert_eq!(first, behind + 1, "commands follow each other");
                self.told += commands.len();
                self.commands.extend((first..).zip(commands));
                self.position = Some(position);
            }
            Event::Leads { leadership } => {
                self.leadership = Some(leadership);
                self.leads.push((leadership, Instant::now()));
            }
            Event::Follows { leader } => {
                self.leadership = None;
                self.follows = Some(leader);
            }
            Event::Restored { position } => {
                self.commands = load(replica, Some(&position));
                self.restored += 1;
                self.position = Some(position);
            }
            Event::Checkpointed { position } => self.checkpointed = position.commands(),
            Event::Bereft { nodes } => self.bereft = nodes,
            Event::Left => self.left = true,
            Event::Failed(failure) => self.failed = Some(failure),
        }
    }
}

pub fn load(replica: &Replica, position: Option<&Position>) -> BTreeMap<u64, String> {
    let mut rows = BTreeMap::new();
    let take = |key: &[u8], value: &[u8]| {
        rows.insert(u64::from_be_bytes(key.try_into().unwrap()), String::from_utf8(value.to_vec()).unwrap());
        true
    };
    replica.reader(position).scan("commands", take).unwrap();
    rows
}

pub fn rows(commands: impl IntoIterator<Item = (u64, String)>) -> Vec<Row> {
    let key = |number: u64| Bytes::copy_from_slice(&number.to_be_bytes());
    let row = |(number, text): (u64, String)| Row { table: "commands", key: key(number), value: Some(text.into()) };
    commands.into_iter().map(row).collect()
}

pub struct Member {
    pub replica: Replica,
    pub state: watch::Receiver<State>,
    /// While held, the owner takes nothing.
    pub pause: Arc<tokio::sync::Mutex<()>>,
    owner: tokio::task::JoinHandle<()>,
    _service: Arc<dyn RaftService>,
}

impl Member {
    pub async fn start(network: &MemoryNetwork, source: Source, options: ReplicaOptions) -> Result<Self, StartError> {
        let node = options.node;
        let transport = network.transport(node.into());
        let Opened { replica, mut events, position } = Replica::open(source, options, transport).await?;
        let service = replica.service();
        network.attach(node.into(), &service);
        let state = State { commands: load(&replica, position.as_ref()), position, ..State::default() };
        let (publish, state) = watch::channel(state);
        let pause = Arc::new(tokio::sync::Mutex::new(()));
        let handle = replica.clone();
        let gate = pause.clone();
        let owner = tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                drop(gate.lock().await);
                publish.send_modify(|state| state.take(&handle, event));
            }
        });
        Ok(Self { replica, state, pause, owner, _service: service })
    }

    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Persists what is behind the last checkpoint, in parts of `part` rows, without waiting.
    pub fn checkpoint(&self, part: usize) {
        self.try_checkpoint(part).unwrap();
    }

    pub fn try_checkpoint(&self, part: usize) -> Result<(), CheckpointError> {
        let state = self.state();
        let Some(position) = state.position else { return Ok(()) };
        let new: Vec<_> = state.commands.range(state.checkpointed + 1..).map(|(n, text)| (*n, text.clone())).collect();
        let parts: Vec<_> = new.chunks(part).collect();
        for (n, rows_of) in parts.iter().enumerate() {
            let rows = rows(rows_of.to_vec());
            let last = n + 1 == parts.len();
            self.replica.checkpoint(CheckpointPart { position: position.clone(), last, rows })?;
        }
        Ok(())
    }

    pub async fn until(&self, what: &str, condition: impl FnMut(&State) -> bool) -> State {
        let mut state = self.state.clone();
        let reached = tokio::time::timeout(WAIT, state.wait_for(condition)).await;
        let state = reached.unwrap_or_else(|_| panic!("not in time: {what}; {:?}", brief(&self.state())));
        state.unwrap_or_else(|_| panic!("the owner has gone: {what}")).clone()
    }

    pub async fn metrics(&self, what: &str, condition: impl FnMut(&Metrics) -> bool) -> Metrics {
        let mut metrics = self.replica.metrics();
        let reached = tokio::time::timeout(WAIT, metrics.until(condition)).await;
        reached.unwrap_or_else(|_| panic!("not in time: {what}; {:?}", metrics.get())).expect("member runs")
    }
}

fn brief(state: &State) -> String {
    let State { leadership, follows, restored, failed, checkpointed, .. } = state;
    let commands = state.commands.len();
    format!("{commands} commands, {leadership:?}, {follows:?}, {restored} restored, {failed:?}, {checkpointed}")
}

pub struct Group {
    pub network: MemoryNetwork,
    pub members: BTreeMap<u32, Member>,
    pub adjust: fn(ReplicaOptions) -> ReplicaOptions,
    pub placement: Vec<u32>,
    /// Nodes that the data centre ever had, if others than those of the placement.
    pub everyone: Vec<u32>,
    /// Those that were taken away.
    pub gone: Vec<u32>,
    /// The next disk to be founded gets this number.
    pub mint: u32,
    dir: TempDir,
}

impl Group {
    pub fn new(adjust: fn(ReplicaOptions) -> ReplicaOptions) -> Self {
        let network = MemoryNetwork::new(7, Link { delay: Duration::from_millis(1), ..Link::default() });
        Self {
            network,
            members: BTreeMap::new(),
            adjust,
            placement: vec![1, 2, 3],
            everyone: Vec::new(),
            gone: Vec::new(),
            mint: 1000,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// Starts nodes 1 to `count`, which found the group, and waits for a leader.
    pub async fn of_voters(count: u32, adjust: fn(ReplicaOptions) -> ReplicaOptions) -> Self {
        let mut group = Self::new(adjust);
        group.placement = (1..=count).collect();
        for node in 1..=count {
            group.start(node).await;
        }
        group.leader().await;
        group
    }

    pub fn path(&self, node: u32) -> PathBuf {
        self.dir.path().join(format!("{node}.redb"))
    }

    pub fn options(&self, node: u32) -> ReplicaOptions {
        let placement = self.placement.clone();
        let nonce = u64::from(self.mint) << 7;
        let options = ReplicaOptions::new("demo", "europe-0/group-2", placement, node, self.mint, nonce);
        (self.adjust)(ReplicaOptions { nodes: self.everyone.clone(), gone: self.gone.clone(), ..options })
    }

    pub async fn start(&mut self, node: u32) {
        let path = self.path(node);
        self.start_from(node, path.as_path().into()).await;
    }

    pub async fn start_from(&mut self, node: u32, source: Source) {
        self.try_start_from(node, source).await.unwrap();
    }

    pub async fn try_start_from(&mut self, node: u32, source: Source) -> Result<(), StartError> {
        self.mint += 1;
        let member = Member::start(&self.network, source, self.options(node)).await?;
        self.members.insert(node, member);
        Ok(())
    }

    /// The process is gone: nothing is sent or received any more, its file is closed.
    pub async fn kill(&mut self, node: u32) -> State {
        self.network.detach(node.into());
        let member = self.members.remove(&node).unwrap();
        member.replica.shutdown().await;
        self.release(node, member).await
    }

    /// Every handle is dropped, and the member was not told to stop.
    pub async fn forget(&mut self, node: u32) -> State {
        self.network.detach(node.into());
        let member = self.members.remove(&node).unwrap();
        self.release(node, member).await
    }

    /// The owner of a member listens no more.
    pub async fn end_owner(&mut self, node: u32) {
        let owner = &mut self.members.get_mut(&node).unwrap().owner;
        owner.abort();
        within("the owner has ended", async { assert!(owner.await.unwrap_err().is_cancelled()) }).await;
    }

    async fn release(&self, node: u32, member: Member) -> State {
        member.owner.abort();
        let state = member.state();
        drop(member);
        let path = self.path(node);
        within("file closed", async {
            while matches!(redb::Database::open(&path), Err(redb::DatabaseError::DatabaseAlreadyOpen)) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        state
    }

    pub fn wipe(&self, node: u32) {
        std::fs::remove_file(self.path(node)).unwrap();
    }

    /// Waits until `more` further messages went from one node to another: heartbeats are a clock.
    pub async fn messages(&self, from: u32, to: u32, more: u64) {
        let sent = || self.network.messages_between(from.into(), to.into());
        let enough = sent() + more;
        within("messages", async {
            while sent() < enough {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// Waits until a member was told that it leads; returns its node and the leadership.
    pub async fn leader(&self) -> (u32, u64) {
        within("a leader", async {
            loop {
                let leading = |(node, member): (&u32, &Member)| Some((*node, member.state.borrow().leadership?));
                if let Some(found) = self.members.iter().find_map(leading) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await
    }

    pub async fn all_have(&self, texts: &[String]) {
        for (node, member) in &self.members {
            let what = format!("{} commands on node {node}", texts.len());
            let state = member.until(&what, |state| state.commands.len() >= texts.len()).await;
            assert_eq!(state.texts(), texts, "node {node}");
        }
    }

    /// Submits commands one by one where the group is led, and waits until they are applied there.
    pub async fn submit(&self, texts: &[String]) {
        let (node, leadership) = self.leader().await;
        let member = &self.members[&node];
        let before = member.state().commands.len();
        for text in texts {
            member.replica.submit(leadership, vec![Bytes::from(text.clone())]).unwrap();
        }
        member.until("what was submitted", |state| state.commands.len() >= before + texts.len()).await;
    }
}

pub fn texts(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("command {n}")).collect()
}
