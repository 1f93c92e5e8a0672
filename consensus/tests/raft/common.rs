//! A group of members in one process, with applications that remember every applied command.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tidemark_consensus::raft::{App, ApplyError, Config, Metrics, RaftNode, RaftService, RestoreError, Source, Timing};
use tidemark_consensus::testing::{Link, MemoryNetwork};

pub const WAIT: Duration = Duration::from_secs(30);

/// Fails loudly instead of hanging.
pub async fn within<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(WAIT, future).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

/// The commands that a member's application has applied since its process started.
#[derive(Clone, Debug, Default)]
pub struct Seen(pub Arc<Mutex<Vec<String>>>);

impl Seen {
    pub fn commands(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Keeps all commands, so that a snapshot is the whole history and any loss, repetition or swap shows.
pub struct History(pub Seen);

impl App for History {
    /// A command that is no text is of a later version.
    fn apply(&mut self, index: u64, command: &[u8]) -> Result<(), ApplyError> {
        let text = String::from_utf8(command.to_vec());
        let text = text.map_err(|error| ApplyError { index, reason: error.to_string() })?;
        self.0.0.lock().unwrap().push(text);
        Ok(())
    }

    fn snapshot(&self) -> Bytes {
        self.0.commands().join("\n").into()
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError> {
        let text = std::str::from_utf8(snapshot).map_err(|error| RestoreError(error.to_string()))?;
        *self.0.0.lock().unwrap() = text.lines().map(str::to_owned).collect();
        Ok(())
    }
}

pub fn config() -> Config {
    Config { timing: Timing::LAN, stall_ms: 300, ..Config::new("demo", "test") }
}

pub struct Member {
    pub node: RaftNode,
    pub seen: Seen,
    _service: Arc<dyn RaftService>,
}

pub struct Group {
    pub network: MemoryNetwork,
    pub members: BTreeMap<u64, Member>,
    pub config: Config,
    dir: TempDir,
}

impl Group {
    pub fn new(config: Config) -> Self {
        let network = MemoryNetwork::new(7, Link { delay: Duration::from_millis(1), ..Link::default() });
        Self { network, members: BTreeMap::new(), config, dir: tempfile::tempdir().unwrap() }
    }

    /// Starts voters 1 to `count` and waits for a leader.
    pub async fn of_voters(count: u64, config: Config) -> Self {
        let mut group = Self::new(config);
        for id in 1..=count {
            group.start(id).await;
        }
        group.node(1).found((1..=count).collect(), &(1..=count).collect()).await.unwrap();
        group.leader().await;
        group
    }

    pub fn path(&self, id: u64) -> PathBuf {
        self.dir.path().join(format!("{id}.redb"))
    }

    pub async fn start(&mut self, id: u64) {
        let path = self.path(id);
        self.start_from(id, path.as_path().into()).await;
    }

    pub async fn start_from(&mut self, id: u64, source: Source) {
        let member = start(&self.network, id, source, self.config.clone()).await;
        self.members.insert(id, member);
    }

    /// The process is gone: nothing is sent or received any more, its file is closed.
    pub async fn kill(&mut self, id: u64) -> Seen {
        self.network.detach(id);
        let member = self.members.remove(&id).unwrap();
        member.node.shutdown().await;
        let path = self.path(id);
        let seen = member.seen.clone();
        drop(member);
        within("file closed", closed(&path)).await;
        seen
    }

    /// Every handle is dropped, and the member was not told to stop.
    pub async fn forget(&mut self, id: u64) {
        self.network.detach(id);
        drop(self.members.remove(&id).unwrap());
        within("file closed", closed(&self.path(id))).await;
    }

    pub fn node(&self, id: u64) -> &RaftNode {
        &self.members[&id].node
    }

    pub async fn wait(&self, id: u64, what: &str, condition: impl FnMut(&Metrics) -> bool) -> Metrics {
        let mut metrics = self.node(id).metrics();
        let reached = tokio::time::timeout(WAIT, metrics.until(condition)).await;
        reached.unwrap_or_else(|_| panic!("not in time: {what}; {:?}", metrics.get())).expect("member runs")
    }

    /// Waits until some live member leads and has committed something in its term; returns it.
    pub async fn leader(&self) -> u64 {
        self.leader_among(&self.members.keys().copied().collect()).await
    }

    pub async fn leader_among(&self, ids: &BTreeSet<u64>) -> u64 {
        within("a leader", async {
            loop {
                for id in ids {
                    if self.node(*id).is_leader() && self.node(*id).read_index().await.is_ok() {
                        return *id;
                    }
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }

    pub async fn wait_seen(&self, id: u64, commands: &[String]) {
        within("commands applied", async {
            while self.members[&id].seen.commands().len() < commands.len() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        assert_eq!(self.members[&id].seen.commands(), commands, "member {id}");
    }
}

pub async fn start(network: &MemoryNetwork, id: u64, source: Source, config: Config) -> Member {
    let seen = Seen::default();
    let app = Box::new(History(seen.clone()));
    let node = RaftNode::start(id, source, config, network.transport(id), app, Box::new(|_| ())).await.unwrap();
    let service = node.service();
    network.attach(id, &service);
    Member { node, seen, _service: service }
}

async fn closed(path: &Path) {
    while matches!(redb::Database::open(path), Err(redb::DatabaseError::DatabaseAlreadyOpen)) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub fn texts(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("command {n}")).collect()
}

/// Proposes one after the other on `node`.
pub async fn propose_all(node: &RaftNode, commands: &[String]) {
    for command in commands {
        within("a proposal", node.propose(vec![Bytes::from(command.clone())])).await.unwrap();
    }
}
