//! The requests that other parts of this process (HTTP, the demo, tests) may make of a running aggregator.

mod audit;
mod edges;
mod gather;
mod health;
mod image;
mod queries;
mod reads;
mod silence;
mod waits;

pub use audit::{AUDIT_PATIENCE, AUDITS_MAX, AuditError, CounterAudit, FRESH_PATIENCE, FRESH_READS_MAX, FreshError};
pub use edges::{ClientNames, ClientNamesError, EDGES_ASKED_MAX, GraphClients};
pub use health::{
    BarrierError, CatchUpError, Check, CheckState, FEED_PATIENCE, Health, LEARN_PATIENCE, LedgerStanding, NotReady,
};
pub use image::{IMAGES_MAX, Image, ImageError};

use crate::calls::{CallError, Calling, Calls, PeerService};
use crate::catch_up::CatchUp;
use crate::cluster::Cluster;
use crate::directory::Directory;
use crate::events::{Event, LiveEvent, SharedCore};
use crate::held::Held;
use crate::host::{EVENTS_MAX, Host, HostParts};
use crate::ledger::{LedgerApp, SharedLedger};
use crate::membership::{LEARNER_FLUSH_GATHER, Membership, Voters};
use crate::mesh::Mesh;
use crate::nodes::{self, Dialling};
use crate::raft_transport::MeshTransport;
use crate::reach::{Reach, ReachService};
use crate::services::Services;
use crate::storage::{Opened, StoreFailure, ViewRows, ViewShelf, ViewStore, ViewStoreError};
use futures_util::future::BoxFuture;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidemark_consensus::local::{PersistError, RowStore};
use tidemark_consensus::raft::{Config, Metrics, RaftNode, StartError as RaftStartError};
use tidemark_proto::aggregator::{AggregatorConfig, AggregatorCore, Recovery};
use tidemark_proto::ids::{AggregatorId, CounterName, DcId, GroupId, LogIndex};
use tidemark_proto::ledger::{
    Awarded, CounterLedger, DeclareError, DefineError, DisarmError, MoveError, Pending, SetAsideError, ShardMap, Stake,
};
use tidemark_proto::ledger::{ForgetError as LedgerForgetError, Ledger};
use tidemark_proto::limits::LOST_AFTER;
use tidemark_proto::msg::{ClaimRule, LedgerCmd, MilestoneSpec, Policy, Reading, SeriesTerms};
use tidemark_proto::shards::{Seats, ShardId};
use tidemark_proto::shelf::SHELVED_AFTER_S;
use tidemark_proto::time::Time;
use tidemark_proto::view::Budget;
use tidemark_transport::{Clock, Connection, Credentials, Endpoint, Refusals, Role};
use tokio::sync::{Notify, Semaphore, broadcast, mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::Instrument;

/// Live events that a subscriber may be behind; past it it is told how many it missed and asks for the present state.
pub const LIVE_EVENTS_MAX: usize = 1_024;
/// The ledger's file inside a data directory.
pub const LEDGER_FILE: &str = "ledger.redb";

/// A node of which nothing is heard for so long is lost, in milliseconds.
const NODE_SILENCE_MS: u64 = 3_000;

/// How an aggregator is started.
#[derive(Clone, Debug)]
pub struct AggregatorOptions {
    pub data_dir: PathBuf,
    pub cluster: Cluster,
    pub id: AggregatorId,
    /// Settings of the core; identity and epoch are filled in.
    pub core: AggregatorConfig,
    /// Settings of the ledger's Raft.
    pub raft: Config,
    /// Where the rows of the view are.
    pub rows: RowStore,
    /// Bytes that buckets may take of memory; ended buckets beyond that go to disk.
    pub buckets_bytes_max: usize,
    /// Which clients may change edges.
    pub graph_clients: GraphClients,
    /// An empty data directory is meant, though others know this aggregator.
    pub fresh: bool,
}

/// Why an aggregator did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("data directory {path}: {source}")]
    Directory { path: String, source: std::io::Error },
    #[error(transparent)]
    View(#[from] ViewStoreError),
    #[error("the ledger: {0}")]
    Ledger(#[from] RaftStartError),
    #[error(transparent)]
    Cluster(#[from] crate::cluster::ClusterError),
    #[error("the view's rows: {0}")]
    Rows(String),
}

/// A handle that keeps nothing alive.
#[derive(Clone)]
pub struct WeakAggregator(Weak<Inner>);

impl WeakAggregator {
    /// The aggregator, unless all its handles are dropped.
    pub fn upgrade(&self) -> Option<Aggregator> {
        self.0.upgrade().map(|inner| Aggregator { inner })
    }
}

/// State of one milestone, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MilestoneState {
    /// Waits for groups that have not answered, views that have not answered, or rights to come back.
    Arming {
        groups: Vec<String>,
        views: Vec<String>,
    },
    /// With what keeps it waiting: groups that hold rights that are wanted back, and are not heard of.
    Armed {
        rights: Vec<String>,
    },
    Passed,
    Awarded,
}

/// A registered incarnation of a group, as this data centre knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStanding {
    pub group: GroupId,
    pub fenced: bool,
    /// It was declared lost.
    pub lost: bool,
    /// It cannot be reached for so long: by its own data centre's aggregator, as that one says, or with that one. Not having counted
    /// anything is no silence.
    pub silent: Duration,
    /// The stake that would be given up with it.
    pub stake: Stake,
}

/// Why a data centre is not forgotten. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForgetError {
    #[error(transparent)]
    Ledger(#[from] LedgerForgetError),
    #[error(
        "{reached} of {all} voters of the ledger can be reached, before or after: without a majority the ledger decides nothing, and not this either"
    )]
    Majority { all: usize, reached: usize },
}

/// A running aggregator. Clones are handles on the same one.
#[derive(Clone)]
pub struct Aggregator {
    inner: Arc<Inner>,
}

struct Inner {
    cluster: Cluster,
    own: AggregatorId,
    core: SharedCore,
    ledger: SharedLedger,
    /// The core's time.
    clock: Clock,
    raft: RaftNode,
    changing: Arc<tokio::sync::Mutex<()>>,
    mesh: Mesh,
    services: Arc<Services>,
    calling: Calling,
    held: Held,
    edges: edges::Edges,
    events: mpsc::Sender<Event>,
    live: broadcast::Sender<LiveEvent>,
    store_failure: StoreFailure,
    /// Keeps the view's files open.
    shelf: Arc<ViewShelf>,
    images: Arc<Semaphore>,
    audits: Semaphore,
    starting: Starting,
    reach: Reach,
    fresh_reads: Semaphore,
    /// Number of the last question of an audit.
    audit: AtomicU64,
    /// Waited for by [`Aggregator::stop`]: it holds the view's file.
    host: std::sync::Mutex<Option<JoinHandle<()>>>,
    tasks: std::sync::Mutex<Vec<JoinHandle<()>>>,
}

impl Inner {
    /// What the host needs of it.
    fn host_parts(&self, credentials: Credentials, store: ViewStore, ledger_changed: Arc<Notify>) -> HostParts {
        HostParts {
            own: self.own,
            core: self.core.clone(),
            ledger: self.ledger.clone(),
            ledger_changed,
            raft: self.raft.clone(),
            mesh: self.mesh.clone(),
            credentials,
            store,
            live: self.live.clone(),
            clock: self.clock,
        }
    }
}

/// The findings of a start.
struct Starting {
    /// How far it has caught up.
    catching_up: CatchUp,
    /// Whether its data directory is that of its place.
    directory: Directory,
}

impl Starting {
    fn new(options: &AggregatorOptions) -> Result<Starting, StartError> {
        let refused = |source| StartError::Directory { path: options.data_dir.display().to_string(), source };
        let directory = Directory::open(&options.data_dir, options.fresh).map_err(refused)?;
        Ok(Starting { catching_up: CatchUp::default(), directory })
    }
}

impl Aggregator {
    /// Recovers from the data directory and serves on the endpoint. To be called within a tokio runtime.
    pub fn start(
        endpoint: Endpoint,
        credentials: Credentials,
        options: AggregatorOptions,
    ) -> BoxFuture<'static, Result<Aggregator, StartError>> {
        // A box, so that only this crate compiles a running aggregator.
        Box::pin(Aggregator::recover(endpoint, credentials, options))
    }

    async fn recover(
        endpoint: Endpoint,
        credentials: Credentials,
        options: AggregatorOptions,
    ) -> Result<Aggregator, StartError> {
        options.cluster.check()?;
        let starting = Starting::new(&options)?;
        let AggregatorOptions {
            data_dir, cluster, id: own, core, raft, rows, buckets_bytes_max, graph_clients, ..
        } = options;
        let calling = Calling::new(cluster.dcs.len());
        let config = seated(core, own, &cluster);
        let Opened { store, epoch, map } = open_view(&data_dir, &cluster, &config, rows)?;
        let config = AggregatorConfig { epoch, budget: Some(budget(&store, buckets_bytes_max)), ..config }.by_map(&map);
        // Both the view and the ledger may be large: they are read side by side.
        let recovering = tokio::task::spawn_blocking(move || (recover(&store, config), store));
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        let (ledger, ledger_changed) = <(SharedLedger, Arc<Notify>)>::default();
        let services = Services::new(own.dc);
        let mesh = Mesh::new(
            endpoint.clone(),
            cluster.clone(),
            own,
            starting.directory.clone(),
            events.clone(),
            services.clone(),
            ledger.clone(),
        );
        let raft = gathering(raft, own, &cluster);
        let raft = start_raft(&data_dir, own, raft, &mesh, &services, &ledger, &ledger_changed).await;
        let (core, store, raft) = both(recovering, raft).await?;
        store.delete_strays(&map)?;
        let core = SharedCore::new(core);
        let clock = Clock::start();
        let held = serve_others(&services, own, &core, &ledger, clock);
        let inner = Inner {
            cluster,
            own,
            core,
            ledger,
            clock,
            raft,
            changing: Arc::default(),
            mesh: mesh.clone(),
            services,
            calling,
            held,
            edges: edges::Edges::new(graph_clients),
            events,
            live: broadcast::Sender::new(LIVE_EVENTS_MAX),
            store_failure: store.failure(),
            shelf: store.shelf(),
            images: Arc::new(Semaphore::new(IMAGES_MAX)),
            audits: Semaphore::new(AUDITS_MAX),
            starting,
            reach: Reach::default(),
            fresh_reads: Semaphore::new(FRESH_READS_MAX),
            audit: AtomicU64::new(0),
            host: Default::default(),
            tasks: Default::default(),
        };
        let parts = inner.host_parts(credentials, store, ledger_changed);
        let aggregator = Aggregator { inner: Arc::new(inner) };
        aggregator.spawn_all(endpoint, mesh, Host::new(parts), receiver);
        Ok(aggregator)
    }

    fn spawn_all(&self, endpoint: Endpoint, mesh: Mesh, host: Host, receiver: mpsc::Receiver<Event>) {
        let dc = self.inner.cluster.dcs[usize::from(self.inner.own.dc.0)].clone();
        let mut tasks = mesh.dial_all();
        let host = tokio::spawn(host.run(receiver));
        self.inner.host.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).replace(host);
        tasks.push(tokio::spawn(self.membership().look_after()));
        tasks.push(tokio::spawn(health::catch_up(self.clone())));
        tasks.push(tokio::spawn(health::say_birth(self.clone())));
        tasks.push(tokio::spawn(silence::keep_asking(self.clone())));
        let dialling = Dialling {
            // A node of this data centre is near: that it is gone is known soon.
            endpoint: endpoint.noticing_within(NODE_SILENCE_MS).unwrap_or_else(|_| endpoint.clone()),
            cluster: self.inner.cluster.with_era(),
            own: self.inner.own.dc,
            ledger: self.inner.ledger.clone(),
            catching_up: self.catching_up(),
            directory: self.inner.starting.directory.clone(),
            events: self.inner.events.clone(),
        };
        for node in 0..dc.nodes.len() as u16 {
            tasks.push(tokio::spawn(nodes::keep_dialling(dialling.clone(), dc.clone(), node)));
        }
        tasks.push(tokio::spawn(accept_all(endpoint, mesh, self.clone())));
        self.tasks().extend(tasks);
    }

    pub(crate) fn membership(&self) -> Membership {
        let Inner { raft, changing, cluster, own, ledger, mesh, .. } = &*self.inner;
        let raft = raft.clone();
        let changing = changing.clone();
        let cluster = cluster.clone();
        Membership { raft, changing, cluster, own: *own, ledger: ledger.clone(), mesh: mesh.clone() }
    }

    fn tasks(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.inner.tasks.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Stops: persists what is waiting, leaves the ledger, ends all connections.
    pub async fn stop(&self) {
        let (done, stopped) = oneshot::channel();
        if self.inner.events.send(Event::Stop { done }).await.is_ok() {
            let _ = stopped.await;
        }
        let host = self.inner.host.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(host) = host {
            let _ = host.await;
        }
        self.inner.raft.shutdown().await;
        self.tasks().drain(..).for_each(|task| task.abort());
        self.inner.shelf.close();
    }

    /// A handle that does not keep it alive.
    pub fn downgrade(&self) -> WeakAggregator {
        WeakAggregator(Arc::downgrade(&self.inner))
    }

    pub fn cluster(&self) -> &Cluster {
        &self.inner.cluster
    }

    pub fn dc(&self) -> DcId {
        self.inner.own.dc
    }

    /// Which of its data centre's aggregators it is.
    pub fn id(&self) -> AggregatorId {
        self.inner.own
    }

    /// Whether this view shows anything. An aggregator of a pair may have been set aside while it was down: it shows nothing before the
    /// ledger, as applied here, knows of its start.
    pub fn shows(&self) -> bool {
        let ledger = self.inner.ledger.lock();
        !self.inner.cluster.is_paired(self.dc()) || self.inner.core.lock().view().is_registered(&ledger)
    }

    /// The command of an operator that arming shall wait no longer for the view of an aggregator that does not run. It is on its way to
    /// the ledger when this returns; [`Aggregator::is_set_aside`] shows that it was carried out.
    pub async fn set_aside(&self, view: AggregatorId) -> Result<(), SetAsideError> {
        self.order(|core, ledger| core.setting_aside(view, ledger)).await
    }

    /// Submits what is decided on the present state.
    async fn order<E>(&self, decide: impl FnOnce(&AggregatorCore, &Ledger) -> Result<LedgerCmd, E>) -> Result<(), E> {
        let cmd = {
            let ledger = self.inner.ledger.lock();
            decide(&self.inner.core.lock(), &ledger)?
        };
        self.submit(vec![cmd]).await;
        Ok(())
    }

    /// Whether arming does not wait for the view of an aggregator, as far as is known here.
    pub fn is_set_aside(&self, view: AggregatorId) -> bool {
        !self.inner.ledger.lock().views().contains(&view)
    }

    /// The command of an operator that an aggregator of this data centre shall hold a slot in the place of another. It is on its way to the
    /// ledger when this returns.
    pub async fn move_slot(&self, shard: ShardId, leaves: AggregatorId, to: AggregatorId) -> Result<(), MoveError> {
        self.order(|core, ledger| core.moving(shard, leaves, to, ledger)).await
    }

    /// The command of an operator that a slot shall stay that is being moved; as above.
    pub async fn let_stay(&self, shard: ShardId) -> Result<(), MoveError> {
        self.order(|core, ledger| core.staying(shard, ledger)).await
    }

    /// The command of an operator that a slot shall be split, decided on the ledger as it is here; the revision of the map that it was decided
    /// on. As above.
    pub async fn split_slot(&self, shard: ShardId, at: &CounterName) -> Result<u64, MoveError> {
        let (cmd, revision) = {
            let ledger = self.inner.ledger.lock();
            (self.inner.core.lock().splitting(shard, at, &ledger)?, ledger.shard_map().revision())
        };
        self.submit(vec![cmd]).await;
        Ok(revision)
    }

    /// The value of one counter as this view shows it.
    pub fn get(&self, counter: &CounterName) -> Reading {
        let ledger = self.inner.ledger.lock();
        self.inner.core.lock().read(counter, &ledger)
    }

    /// Values of many counters, at one instant.
    pub fn get_many<'a>(&self, counters: impl Iterator<Item = &'a CounterName>) -> Vec<Reading> {
        let ledger = self.inner.ledger.lock();
        let core = self.inner.core.lock();
        counters.map(|counter| core.read(counter, &ledger)).collect()
    }

    /// Waits until this replica has applied everything that was committed before the call, anywhere, and says what the last command of it was. Only the ledger's leader
    /// can say what that is; elsewhere the error names it.
    pub async fn read_barrier(&self) -> Result<LogIndex, BarrierError> {
        let raft = &self.inner.raft;
        let index = raft.read_index().await.map_err(|error| match raft.leader().and_then(Cluster::of_member) {
            Some(leader) if leader != self.inner.own => {
                BarrierError::Elsewhere { aggregator: self.inner.cluster.aggregator_name(leader) }
            }
            _ => BarrierError::Ledger(error),
        })?;
        let applied = raft.metrics().until(|metrics| metrics.applied >= Some(index)).await;
        // The last command by then: other entries change nothing, and no replica counts them.
        applied.map(|_| self.inner.ledger.lock().applied()).ok_or(BarrierError::Stopped)
    }

    /// Runs `look` on the applied ledger state.
    pub fn with_ledger<R>(&self, look: impl FnOnce(&tidemark_proto::ledger::Ledger) -> R) -> R {
        look(&self.inner.ledger.lock())
    }

    /// The time of the core's clock.
    pub fn now(&self) -> Time {
        Time(self.inner.clock.elapsed().as_micros() as u64)
    }

    /// Runs `look` on the core; inside [`Aggregator::with_ledger`] both are looked at at one instant.
    pub fn with_core<R>(&self, look: impl FnOnce(&AggregatorCore) -> R) -> R {
        look(&self.inner.core.lock())
    }

    pub(crate) fn catching_up(&self) -> CatchUp {
        self.inner.starting.catching_up.clone()
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.inner.starting.directory
    }

    pub(crate) fn reach(&self) -> &Reach {
        &self.inner.reach
    }

    pub(crate) fn held(&self) -> &Held {
        &self.inner.held
    }

    pub(crate) fn edges(&self) -> &edges::Edges {
        &self.inner.edges
    }

    pub(crate) fn mesh(&self) -> &Mesh {
        &self.inner.mesh
    }

    pub(crate) fn fresh_reads(&self) -> &Semaphore {
        &self.inner.fresh_reads
    }

    pub(crate) fn audits(&self) -> &Semaphore {
        &self.inner.audits
    }

    /// A number for a further question of an audit.
    pub(crate) fn next_audit(&self) -> u64 {
        self.inner.audit.fetch_add(1, Ordering::Relaxed)
    }

    /// Error: the event loop has ended.
    pub(crate) async fn say(&self, event: Event) -> Result<(), ()> {
        self.inner.events.send(event).await.map_err(drop)
    }

    /// Asks for milestones. The definition is on its way to the ledger when this returns; [`Aggregator::milestones`] shows
    /// how far it is. Returns the revision it was decided on: when [`Aggregator::revision`] is larger and the milestones are not
    /// there, another change came first and this one changed nothing.
    pub async fn define(&self, counter: &CounterName, spec: MilestoneSpec) -> Result<u64, DefineError> {
        // If no holder tells the value, this view's serves: the holder answers the arming all the same.
        let shown = self.read_many(std::slice::from_ref(counter)).await;
        let shown = shown.map_or(self.get(counter).up, |readings| readings.first().map_or(0, |reading| reading.up));
        let (revision, cmd) = {
            let ledger = self.inner.ledger.lock();
            (ledger.revision(counter), ledger.definition(counter, spec, shown)?)
        };
        self.submit(cmd.into_iter().collect()).await;
        Ok(revision)
    }

    /// Removes a milestone that is not awarded, or the rule. Returns what [`Aggregator::define`] does.
    pub async fn disarm(&self, counter: &CounterName, at: Option<u64>) -> Result<u64, DisarmError> {
        let (revision, cmd) = {
            let ledger = self.inner.ledger.lock();
            (ledger.revision(counter), ledger.removal(counter, at)?)
        };
        self.submit(cmd.into_iter().collect()).await;
        Ok(revision)
    }

    /// Asks for a rule for a counter's awards to come, decided on the revision that stands. It is on its way to the ledger when
    /// this returns.
    pub async fn set_claim_rule(&self, counter: &CounterName, revision: u64, rule: Option<ClaimRule>) {
        self.submit(vec![LedgerCmd::ClaimRule { counter: counter.clone(), revision, rule }]).await;
    }

    /// Proposes a claim ([`Claiming`](tidemark_proto::claiming::Claiming)) of a session after a check of its token. It is on its way to the
    /// ledger when this returns.
    pub async fn claim(&self, claim: LedgerCmd) {
        self.submit(vec![claim]).await;
    }

    /// Says a reset or an expiry that [`Ledger::reset`](tidemark_proto::ledger::Ledger::reset) or
    /// [`Ledger::expiry`](tidemark_proto::ledger::Ledger::expiry) has decided. It is on its way to the ledger when this returns.
    pub async fn submit_reset(&self, cmd: LedgerCmd) {
        self.submit(vec![cmd]).await;
    }

    /// Says a change of edges, or a permission, that [`Ledger::edges`](tidemark_proto::ledger::Ledger::edges) or
    /// [`Ledger::allowing_edges`](tidemark_proto::ledger::Ledger::allowing_edges) has decided. It is on its way to the ledger when this
    /// returns.
    pub async fn submit_edges(&self, cmd: LedgerCmd) {
        self.submit(vec![cmd]).await;
    }

    fn declaration(&self, group: GroupId, forced: bool) -> Result<LedgerCmd, DeclareError> {
        let ledger = self.inner.ledger.lock();
        self.inner.core.lock().declaration(self.now(), group, forced, &ledger)
    }

    /// Whether [`Aggregator::declare_lost`] would be on its way now.
    pub fn may_declare_lost(&self, group: GroupId, forced: bool) -> Result<(), DeclareError> {
        self.declaration(group, forced).map(drop)
    }

    /// Whether [`Aggregator::forget`] would be on its way now.
    pub fn may_forget(&self, dc: DcId, forced: bool) -> Result<(), ForgetError> {
        self.forgetting(dc, forced).map(drop)
    }

    fn forgetting(&self, dc: DcId, forced: bool) -> Result<LedgerCmd, ForgetError> {
        let cmd = {
            let ledger = self.inner.ledger.lock();
            self.inner.core.lock().forgetting(self.now(), dc, forced, &ledger)?
        };
        let membership = self.membership();
        for gone in [None, Some(dc)] {
            let Voters { all, reached } = membership.left_without(|id| Some(id.dc) == gone);
            if reached * 2 <= all {
                return Err(ForgetError::Majority { all, reached });
            }
        }
        Ok(cmd)
    }

    /// Declares a group lost for good. It is on its way to the ledger when this returns; [`Aggregator::is_lost`] shows that it was
    /// carried out. Unless it is `forced`, a group that was heard of lately is not declared lost, here or where the ledger is led.
    pub async fn declare_lost(&self, group: GroupId, forced: bool) -> Result<(), DeclareError> {
        let cmd = self.declaration(group, forced)?;
        self.submit(vec![cmd]).await;
        Ok(())
    }

    /// Whether the ledger, as applied here, shows that a group was declared lost.
    pub fn is_lost(&self, group: GroupId) -> bool {
        self.inner.ledger.lock().is_lost(group)
    }

    /// Forgets a data centre that never returns: all of its groups are lost, and it is no member of the ledger any more. It is on its way
    /// to the ledger when this returns; [`Aggregator::is_forgotten`] shows that it was carried out. Unless it is `forced`, one that
    /// was heard of lately is not forgotten, here or where the ledger is led.
    pub async fn forget(&self, dc: DcId, forced: bool) -> Result<(), ForgetError> {
        let cmd = self.forgetting(dc, forced)?;
        self.submit(vec![cmd]).await;
        Ok(())
    }

    /// Whether the ledger, as applied here, shows that a data centre was forgotten, and no member of its Raft is of it any more.
    pub fn is_forgotten(&self, dc: DcId) -> bool {
        let Metrics { voters, learners, .. } = self.raft();
        let is_of = |&member: &u64| Cluster::of_member(member).is_some_and(|id| id.dc == dc);
        self.inner.ledger.lock().is_forgotten(dc) && !voters.iter().chain(&learners).any(is_of)
    }

    /// All registered groups.
    pub fn groups(&self) -> Vec<GroupStanding> {
        let (ledger, now) = (self.inner.ledger.lock(), self.now());
        let core = self.inner.core.lock();
        let standing = |(&group, registered): (&GroupId, &tidemark_proto::ledger::Registered)| GroupStanding {
            group,
            fenced: registered.fenced,
            lost: ledger.is_lost(group),
            silent: self.silence(&core, now, group),
            stake: ledger.stake(group),
        };
        ledger.groups().iter().map(standing).collect()
    }

    /// Groups that hold rights of a counter which are wanted back, and of which nothing was heard for so long that they may be
    /// declared lost.
    fn holders_not_heard_of(&self, state: &CounterLedger) -> Vec<String> {
        if !state.recall_wanted() {
            return Vec::new();
        }
        let (core, now) = (self.inner.core.lock(), self.now());
        let holders = state.accounts().iter().filter(|(_, account)| account.out() > 0);
        let silent = holders.map(|(&group, account)| (group, account.out(), self.silence(&core, now, group)));
        let silent = silent.filter(|(.., silent)| silent.as_micros() >= u128::from(LOST_AFTER.0));
        let text = |(group, out, silent): (GroupId, u64, Duration)| {
            let name = self.incarnation_name(group);
            let ago_s = silent.as_secs();
            format!(
                "{name}, which holds {out} rights and was not heard of for {ago_s} s; if its disks are gone: \
                 tidemark declare-lost {name}"
            )
        };
        silent.map(text).collect()
    }

    /// `DC/GROUP#INCARNATION`.
    pub fn incarnation_name(&self, group: GroupId) -> String {
        format!("{}#{}", self.group_name(group), group.incarnation)
    }

    /// How many changes of a counter's milestones are applied here.
    pub fn revision(&self, counter: &CounterName) -> u64 {
        self.inner.ledger.lock().revision(counter)
    }

    /// Makes a namespace known to the whole cluster.
    pub async fn add_namespace(&self, name: &str) {
        self.submit(vec![LedgerCmd::Namespace(name.to_owned())]).await;
    }

    /// Lets the counters of a namespace go down, in the whole cluster and for ever. The namespace becomes known with that.
    pub async fn add_updown(&self, name: &str) {
        self.submit(vec![LedgerCmd::UpDown(name.to_owned())]).await;
    }

    /// Asks for another way in which a namespace keeps series, decided on the revision before that of `terms`. It is on its way to the
    /// ledger when this returns.
    pub async fn set_series(&self, namespace: &str, terms: SeriesTerms) {
        self.submit(vec![LedgerCmd::Series { namespace: namespace.to_owned(), terms }]).await;
    }

    /// Sets the data centres that own ids of increments, with their numbers of groups, unless they are set.
    pub async fn set_id_owners(&self, owners: Vec<(DcId, u16)>) {
        self.submit(vec![LedgerCmd::IdOwners(owners)]).await;
    }

    /// Spreads a counter over all valves, in the whole cluster.
    pub async fn spread(&self, counter: CounterName) {
        self.submit(vec![LedgerCmd::Spread(counter)]).await;
    }

    /// Resolves when the aggregator can no longer work, with the reason. A stopped one has not failed.
    pub async fn failed(&self) -> String {
        let mut raft = self.inner.raft.metrics();
        tokio::select! {
            () = self.inner.events.closed() => "the aggregator's task has ended".to_owned(),
            reason = self.inner.starting.directory.refused() => reason,
            reason = self.inner.store_failure.clone().failed() => format!("the view's file: {reason}"),
            stopped = raft.until(|metrics| metrics.stopped.is_some()) => {
                let reason = stopped.and_then(|metrics| metrics.stopped);
                format!("the ledger: {}", reason.as_deref().unwrap_or("it has stopped"))
            }
        }
    }

    /// Serves the calls of other data centres' processes; the first service that is given stays.
    pub fn serve_calls(&self, service: Arc<dyn PeerService>) {
        let _ = self.inner.services.calls.set(Calls::new(service));
    }

    /// Asks the process of another data centre's aggregator.
    ///
    /// # Errors
    /// [`CallError`]; only some of them say that nothing was carried out.
    pub async fn call(&self, dc: DcId, question: bytes::Bytes, within: Duration) -> Result<bytes::Bytes, CallError> {
        self.inner.calling.call(&self.inner.mesh, dc, question, within).await
    }

    /// Whether another data centre can be reached from here at present.
    pub fn reaches(&self, dc: DcId) -> bool {
        dc == self.inner.own.dc || self.inner.mesh.connection_to(dc).is_some()
    }

    /// Whether another aggregator can be reached from here at present; this one can.
    pub fn reaches_aggregator(&self, id: AggregatorId) -> bool {
        id == self.inner.own || self.inner.mesh.connection(id).is_some()
    }

    pub(crate) fn raft_node(&self) -> &RaftNode {
        &self.inner.raft
    }

    /// Held by a task that changes the ledger's members from here.
    pub(crate) fn changing(&self) -> &tokio::sync::Mutex<()> {
        &self.inner.changing
    }

    pub(crate) fn images(&self) -> &Arc<Semaphore> {
        &self.inner.images
    }

    /// The view's rows once everything that is known now is among them; `None` when the aggregator stops.
    pub(crate) async fn flushed_rows(&self) -> Option<Result<ViewRows, PersistError>> {
        let (done, rows) = oneshot::channel();
        self.inner.events.send(Event::Flush { done }).await.ok()?;
        rows.await.ok()
    }

    pub(crate) async fn submit(&self, cmds: Vec<LedgerCmd>) {
        let _ = self.inner.events.send(Event::Submit { cmds }).await;
    }

    /// Groups that may not know yet that a counter began again: any group of this data centre, and groups of other data centres with
    /// counters that have milestones. Until then, their increments belong to the previous generation.
    pub fn unheard(&self, counter: &CounterName) -> Vec<String> {
        let ledger = self.inner.ledger.lock();
        let generation = ledger.resets().generation(counter);
        let elsewhere = |group: &GroupId| group.dc != self.inner.own.dc && generation > 0;
        let guarded = ledger.counter(counter).into_iter().flat_map(|state| state.bases_missing()).filter(elsewhere);
        let here = self.inner.core.lock().unheard(counter, generation, &ledger);
        here.into_iter().chain(guarded).map(|group| self.group_name(group)).collect()
    }

    /// Registered groups of this data centre that are not connected now, by name; fenced groups count nothing.
    pub fn silent_groups(&self) -> Vec<String> {
        let ledger = self.inner.ledger.lock();
        let core = self.inner.core.lock();
        let heard: BTreeSet<GroupId> = core.groups_heard().collect();
        let here = ledger.groups().iter().filter(|(group, of)| group.dc == self.inner.own.dc && !of.fenced);
        here.map(|(&group, _)| group)
            .filter(|group| !heard.contains(group))
            .map(|group| self.group_name(group))
            .collect()
    }

    /// The milestones of a counter and how far each is; at most the newest awards.
    pub fn milestones(&self, counter: &CounterName) -> Vec<(u64, MilestoneState)> {
        let ledger = self.inner.ledger.lock();
        let Some(state) = ledger.counter(counter) else { return Vec::new() };
        let waiting: Vec<String> = state.bases_missing().map(|group| self.group_name(group)).collect();
        let late: Vec<String> = state.terms().late().map(|group| self.group_name(group)).collect();
        let next = state.next_armed();
        let pending = state.milestones().pending().map(|(at, pending)| {
            let late = if state.policy_of(at) == Policy::Strict { &late[..] } else { &[] };
            let shown = match pending {
                Pending::Armed if Some(at) == next => {
                    MilestoneState::Armed { rights: self.holders_not_heard_of(state) }
                }
                Pending::Armed => MilestoneState::Armed { rights: Vec::new() },
                Pending::Arming { awaits, .. } => MilestoneState::Arming {
                    groups: waiting.iter().chain(late).cloned().collect(),
                    views: awaits.iter().map(|&view| self.inner.cluster.aggregator_name(view)).collect(),
                },
            };
            (at, shown)
        });
        let passed = state.milestones().passed().map(|at| (at, MilestoneState::Passed));
        let awarded = state.awards().keys().map(|&at| (at, MilestoneState::Awarded));
        let mut all: Vec<_> = pending.chain(passed).chain(awarded).collect();
        all.sort_by_key(|(at, _)| *at);
        all
    }

    fn dc_name(&self, dc: DcId) -> String {
        self.inner.cluster.name_of(dc).unwrap_or("?").to_owned()
    }

    fn group_name(&self, group: GroupId) -> String {
        format!("{}/{}", self.dc_name(group.dc), group.group)
    }

    /// Awards of one counter, or of all.
    pub fn awards(&self, counter: Option<&CounterName>) -> Vec<Awarded> {
        let ledger = self.inner.ledger.lock();
        let wanted = |name: &&CounterName| counter.is_none_or(|counter| counter == *name);
        let counters = ledger.guarded().filter(wanted).filter_map(|name| ledger.counter(name));
        counters.flat_map(|state| state.awards().values().cloned()).collect()
    }

    /// Awards and totals as they happen.
    pub fn subscribe(&self) -> broadcast::Receiver<LiveEvent> {
        self.inner.live.subscribe()
    }

    /// This member's view of the ledger's Raft group.
    pub fn raft(&self) -> Metrics {
        self.inner.raft.metrics().get()
    }

    /// Whether reads and definitions work here, and if not, why.
    pub fn ready(&self) -> Result<(), NotReady> {
        let ledger = self.inner.ledger.lock();
        if ledger.is_forgotten(self.inner.own.dc) {
            return Err(NotReady::Forgotten);
        }
        if let Some(reason) = self.inner.mesh.refused() {
            return Err(NotReady::RefusedByAnother { reason });
        }
        match (self.raft().leader, self.inner.core.lock().view().is_registered(&ledger)) {
            (_, false) => Err(NotReady::ViewNotRegistered),
            (None, true) => Err(NotReady::NoLeader),
            (Some(_), true) => Ok(()),
        }
    }
}

/// The results of two reads side by side. If one of them fails, the other is dropped.
async fn both(
    recovering: JoinHandle<(Result<AggregatorCore, StartError>, ViewStore)>,
    raft: Result<RaftNode, StartError>,
) -> Result<(AggregatorCore, ViewStore, RaftNode), StartError> {
    let recovered = recovering.await;
    let (core, store) = recovered.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
    let raft = raft?;
    match core {
        Ok(core) => Ok((core, store, raft)),
        Err(error) => {
            raft.shutdown().await;
            Err(error)
        }
    }
}

/// The memory that buckets may take, and their place beyond that.
fn budget(store: &ViewStore, bytes_max: usize) -> Budget {
    Budget { bytes_max, after_s: SHELVED_AFTER_S, shelf: store.shelf() }
}

/// The core as the disk has it. Shards are read side by side, one by each core of the machine.
fn recover(store: &ViewStore, config: AggregatorConfig) -> Result<AggregatorCore, StartError> {
    let mut recoveries = Recovery::all(&config);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let at_once = recoveries.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let read_all = |part: &mut [Recovery]| part.iter_mut().try_for_each(|recovery| read(store, recovery));
        let parts = recoveries.chunks_mut(at_once);
        let readers: Vec<_> = parts.map(|part| scope.spawn(move || read_all(part))).collect();
        let read = readers.into_iter().map(|reader| reader.join().expect("it does not panic"));
        read.collect::<Result<Vec<()>, StartError>>()
    })?;
    Recovery::finish(config, recoveries).map_err(|error| StartError::Rows(error.to_string()))
}

fn read(store: &ViewStore, recovery: &mut Recovery) -> Result<(), StartError> {
    let mut refused = Ok(());
    let scanned = store.scan(recovery.shard(), |key, value| {
        refused = recovery.take(key, value);
        refused.is_ok()
    });
    scanned.map_err(ViewStoreError::from)?;
    refused.map_err(|error| StartError::Rows(error.to_string()))
}

/// The core's configuration for one place of the cluster.
fn seated(core: AggregatorConfig, own: AggregatorId, cluster: &Cluster) -> AggregatorConfig {
    let paired = cluster.is_paired(own.dc);
    let seats = Seats::new(cluster.seats_by_dc());
    AggregatorConfig { own, paired, seats, seed: rand::random(), ..core }
}

/// The file of the view of one place.
fn open_view(
    dir: &Path,
    cluster: &Cluster,
    config: &AggregatorConfig,
    rows: RowStore,
) -> Result<Opened, ViewStoreError> {
    let own = config.own;
    let kept = |map: &ShardMap| config.clone().by_map(map).kept();
    let name = cluster.aggregator_name(own);
    ViewStore::open(dir, &cluster.with_era(), &name, rows, cluster.seats(own.dc), kept)
}

/// A member that does not vote lets entries gather before it writes them.
fn gathering(mut raft: Config, own: AggregatorId, cluster: &Cluster) -> Config {
    if !own.is_first() || !cluster.voters.contains(&own.dc) {
        raft.flush_gather = LEARNER_FLUSH_GATHER;
    }
    raft
}

/// From now on other aggregators are answered about what is held and reached here.
fn serve_others(
    services: &Services,
    own: AggregatorId,
    core: &SharedCore,
    ledger: &SharedLedger,
    clock: Clock,
) -> Held {
    let held = Held::new(own, core.clone(), ledger.clone(), clock);
    let _ = services.held.set(held.clone());
    let _ = services.reach.set(ReachService { own, core: core.clone(), ledger: ledger.clone(), clock });
    held
}

async fn start_raft(
    dir: &Path,
    own: AggregatorId,
    config: Config,
    mesh: &Mesh,
    services: &Services,
    ledger: &SharedLedger,
    changed: &Arc<Notify>,
) -> Result<RaftNode, StartError> {
    let notify = changed.clone();
    let on_applied = Box::new(move |_| notify.notify_one());
    let transport = Arc::new(MeshTransport(mesh.clone()));
    let path = dir.join(LEDGER_FILE);
    let app = LedgerApp(ledger.clone());
    let raft =
        RaftNode::start(Cluster::member(own), path.as_path().into(), config, transport, Box::new(app), on_applied)
            .await?;
    mesh.set_member(raft.metrics());
    let _ = services.raft.set(raft.service());
    Ok(raft)
}

/// Accepts peers and readers until the endpoint closes.
async fn accept_all(endpoint: Endpoint, mesh: Mesh, aggregator: Aggregator) {
    let mut refusals = Refusals::default();
    while let Some(accepted) = endpoint.accept().await {
        match accepted {
            Ok(connection) => {
                let span = tracing::info_span!("connection", peer = %connection.peer());
                drop(tokio::spawn(serve(connection, mesh.clone(), aggregator.clone()).instrument(span)));
            }
            Err(error) => refusals.note(&error),
        }
    }
}

async fn serve(connection: Connection, mesh: Mesh, aggregator: Aggregator) {
    match connection.peer().role() {
        Role::Aggregator => mesh.accept(connection).await,
        Role::Client | Role::Operator => reads::serve(connection, aggregator).await,
        Role::Node => connection.close("nodes are dialled by their aggregator"),
    }
}
