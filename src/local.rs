//! A whole cluster inside this process, on this machine's loopback: one node and one aggregator per data centre. Sockets and certificates
//! are real; the distances of a [`Layout`] are injected per datagram between aggregators.
//!
//! Everything that lasts stands in one data directory: the CA, and a folder per data centre. Addresses do not: a restart may
//! use other ports. Clients of a data centre are not delayed, as they stand in it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use thiserror::Error;
use tidemark_aggregator::{Aggregator, AggregatorOptions, Cluster, DataCentre, GraphClients};
use tidemark_consensus::local::RowStore;
use tidemark_consensus::raft::Config;
use tidemark_node::{Node, NodeOptions};
use tidemark_proto::aggregator::AggregatorConfig;
use tidemark_proto::ids::{DcId, GroupId};
use tidemark_proto::node::NodeConfig;
use tidemark_proto::placement::Placement;
use tidemark_proto::series::SeriesPolicy;
use tidemark_transport::certs::{ClusterCa, FileError, IssueError, NameError};
use tidemark_transport::link::LinkError;
use tidemark_transport::{BindError, Credentials, Endpoint, EndpointOptions, Identity, Link, LinkPlan, Role};
use tokio::time::{Instant, sleep};

use crate::config::{NodeKeys, ViewKeys};
use crate::layout::Layout;
use tidemark_server::idempotency;
use tidemark_server::series::next_terms;

/// Certificates are issued at every start.
const CERTIFICATE_DAYS: u32 = 90;
/// Lanes of a node: as many as a data centre has front ends in the reference layout.
pub const LANES: u8 = 10;
/// The one group of a data centre.
pub const GROUP: u16 = 0;
/// The ledger's group, as its files name it.
const LEDGER: &str = "ledger";
/// How often it is looked at whether everything is ready.
const READY_POLL: Duration = Duration::from_millis(20);
/// A cluster is ready within this: an election over the longest distances, and as many learners as there are.
pub const READY_TIMEOUT: Duration = Duration::from_secs(60);
const US_PER_MS: f64 = 1_000.0;
const PPM: f64 = 1e6;

/// The cluster that is started.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    pub layout: Layout,
    pub data_dir: PathBuf,
    /// Name of the cluster, in its certificates and data.
    pub cluster: String,
    pub namespaces: Vec<String>,
    /// Namespaces, of those or others, with counters that may go down.
    pub updown: Vec<String>,
    /// How namespaces, of those or others, keep series until that is changed.
    pub series: Vec<(String, SeriesPolicy)>,
    /// The first of two UDP ports per data centre; `None`: whichever are free.
    pub base_port: Option<u16>,
    pub jitter_ms: f64,
    /// Share of datagrams between data centres that are lost, 0 to 1.
    pub loss: f64,
    pub flush_delay: Duration,
    /// Where nodes and aggregators have their rows.
    pub rows: RowStore,
    /// Of the links' chance.
    pub seed: u64,
}

/// Why a cluster was not brought up. The parts that had been started are stopped.
#[derive(Debug, Error)]
pub enum LocalError {
    #[error(transparent)]
    Certificates(#[from] FileError),
    #[error(transparent)]
    Issue(#[from] IssueError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("{dir} belongs to the cluster {found}, not to {wanted}")]
    OtherCluster { dir: PathBuf, found: String, wanted: String },
    #[error("{dir} has a CA for other data centres: {found}, not {wanted}")]
    OtherLayout { dir: PathBuf, found: String, wanted: String },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("--base-port {base}: {ports} ports from there on do not fit below 65536")]
    Ports { base: u16, ports: usize },
    #[error("node of {dc}: {source}")]
    Node { dc: String, source: tidemark_node::StartError },
    #[error("aggregator of {dc}: {source}")]
    Aggregator { dc: String, source: tidemark_aggregator::StartError },
    #[error("{dc} was not ready after {waited_s} s: {reason}")]
    NotReady { dc: String, waited_s: u64, reason: String },
}

/// A data centre of a running cluster.
pub struct LocalDc {
    pub name: String,
    pub node: Node,
    pub node_addr: SocketAddr,
    pub aggregator: Aggregator,
    pub aggregator_addr: SocketAddr,
    /// Its aggregator's links.
    links: LinkPlan,
    node_endpoint: Endpoint,
    aggregator_endpoint: Endpoint,
}

/// A running cluster. Dropping it ends it without a farewell; nothing durable is lost.
pub struct LocalCluster {
    pub dcs: Vec<LocalDc>,
    pub layout: Layout,
    data_dir: PathBuf,
    ca: ClusterCa,
}

/// Sockets of one data centre, before anything runs on them.
struct Sockets {
    node: Endpoint,
    aggregator: Endpoint,
    links: LinkPlan,
    credentials: Credentials,
}

impl LocalCluster {
    /// Brings a cluster up and waits until all of it is ready. To be called within a tokio runtime.
    ///
    /// # Errors
    /// [`LocalError`]; the data directory is as before, but for what has been founded in it.
    pub async fn start(options: LocalOptions) -> Result<LocalCluster, LocalError> {
        let ca = open_ca(&options)?;
        let sockets = bind_all(&options, &ca)?;
        let cluster = describe(&options, &sockets);
        connect_links(&options, &sockets)?;
        let mut dcs = Vec::with_capacity(sockets.len());
        for (at, sockets) in sockets.into_iter().enumerate() {
            dcs.push(start_dc(&options, &cluster, DcId(at as u16), sockets).await?);
        }
        let LocalOptions { layout, data_dir, namespaces, updown, series, .. } = options;
        let local = LocalCluster { dcs, layout, data_dir, ca };
        local.wait_ready(&namespaces, &updown, &series).await?;
        Ok(local)
    }

    /// The leader's data centre.
    pub fn leader(&self) -> &LocalDc {
        &self.dcs[self.layout.leader]
    }

    /// Credentials of a client of a data centre.
    ///
    /// # Errors
    /// A name that no certificate can carry.
    pub fn client_credentials(&self, dc: usize, name: &str) -> Result<Credentials, LocalError> {
        let identity = Identity::new(self.ca.cluster(), &self.dcs[dc].name, Role::Client, name)?;
        Ok(self.ca.issue(&identity, CERTIFICATE_DAYS)?)
    }

    /// The same, written to a folder of its own for another process.
    ///
    /// # Errors
    /// As [`LocalCluster::client_credentials`], and what the file system says.
    pub fn save_client_credentials(&self, dc: usize, name: &str) -> Result<PathBuf, LocalError> {
        let dir = self.data_dir.join("certs").join(&self.dcs[dc].name).join(name);
        self.client_credentials(dc, name)?.save(&dir)?;
        Ok(dir)
    }

    /// Other data centres, nearest first.
    pub fn neighbours(&self, dc: usize) -> Vec<usize> {
        let mut others: Vec<usize> = (0..self.dcs.len()).filter(|&other| other != dc).collect();
        others.sort_by(|&a, &b| self.layout.rtt_ms[dc][a].total_cmp(&self.layout.rtt_ms[dc][b]));
        others
    }

    /// Cuts a data centre off from all others. Its own clients still reach it.
    ///
    /// # Errors
    /// The table of links is full.
    pub fn cut(&self, dc: usize) -> Result<(), LocalError> {
        self.for_links_of(dc, LinkPlan::cut)
    }

    /// Ends a cut.
    ///
    /// # Errors
    /// As [`LocalCluster::cut`].
    pub fn heal(&self, dc: usize) -> Result<(), LocalError> {
        self.for_links_of(dc, LinkPlan::heal)
    }

    fn for_links_of(
        &self,
        dc: usize,
        change: fn(&LinkPlan, SocketAddr) -> Result<(), LinkError>,
    ) -> Result<(), LocalError> {
        for other in (0..self.dcs.len()).filter(|&other| other != dc) {
            change(&self.dcs[dc].links, self.dcs[other].aggregator_addr)?;
            change(&self.dcs[other].links, self.dcs[dc].aggregator_addr)?;
        }
        Ok(())
    }

    /// Bytes that aggregators have sent to one another since the start.
    pub fn wan_bytes(&self) -> u64 {
        let sent = |dc: &LocalDc| dc.links.all_counters().0.iter().map(|(_, counters)| counters.bytes).sum::<u64>();
        self.dcs.iter().map(sent).sum()
    }

    /// Stops everything; accepted increments are durable, and the next start goes on from there.
    pub async fn stop(self) {
        join_all(self.dcs.into_iter().map(LocalDc::stop)).await;
    }

    async fn wait_ready(
        &self,
        namespaces: &[String],
        updown: &[String],
        series: &[(String, SeriesPolicy)],
    ) -> Result<(), LocalError> {
        let deadline = Instant::now() + READY_TIMEOUT;
        for dc in &self.dcs {
            while let Err(reason) = dc.ready(namespaces, updown, series).await {
                if Instant::now() >= deadline {
                    let waited_s = READY_TIMEOUT.as_secs();
                    return Err(LocalError::NotReady { dc: dc.name.clone(), waited_s, reason: reason.to_string() });
                }
                sleep(READY_POLL).await;
            }
        }
        Ok(())
    }
}

/// Why a data centre does not serve everything yet.
#[derive(Debug, thiserror::Error)]
enum DcNotReady {
    #[error(transparent)]
    Aggregator(#[from] tidemark_aggregator::NotReady),
    #[error("its node: {0}")]
    Node(#[from] tidemark_node::NotReady),
    #[error("namespace {name} is not known yet")]
    Namespace { name: String },
    #[error("counters of the namespace {name} do not go down yet")]
    GrowOnly { name: String },
    #[error("the namespace {name} does not keep series yet")]
    NoSeries { name: String },
    #[error("no data centre owns ids of increments yet")]
    NoIdOwner,
    #[error("{reason}")]
    Fails { reason: String },
}

impl LocalDc {
    /// The durable commits of its node since the start.
    pub fn commits(&self) -> u64 {
        self.node.statuses().get().iter().map(|group| group.commits).sum()
    }

    async fn ready(
        &self,
        namespaces: &[String],
        updown: &[String],
        series: &[(String, SeriesPolicy)],
    ) -> Result<(), DcNotReady> {
        self.aggregator.ready()?;
        let health = self.aggregator.health();
        let known = self.aggregator.with_ledger(|ledger| ledger.namespaces().map(str::to_owned).collect::<Vec<_>>());
        if let Some(missing) = namespaces.iter().find(|name| !known.contains(name)) {
            self.aggregator.add_namespace(missing).await;
            return Err(DcNotReady::Namespace { name: missing.clone() });
        }
        let goes_down =
            |name: &&String| self.aggregator.with_ledger(|ledger| ledger.updown().any(|known| known == *name));
        if let Some(missing) = updown.iter().find(|name| !goes_down(name)) {
            self.aggregator.add_updown(missing).await;
            return Err(DcNotReady::GrowOnly { name: missing.clone() });
        }
        let unsaid = self.aggregator.with_ledger(|ledger| {
            let (name, policy) = series.iter().find(|(name, _)| ledger.series_of(name).is_none())?;
            Some((name, next_terms(ledger, name, policy.clone())))
        });
        if let Some((name, terms)) = unsaid {
            self.aggregator.set_series(name, terms).await;
            return Err(DcNotReady::NoSeries { name: name.clone() });
        }
        if !idempotency::say_owners(&self.aggregator).await {
            return Err(DcNotReady::NoIdOwner);
        }
        self.node.statuses().ready()?;
        health.failure().map_or(Ok(()), |reason| Err(DcNotReady::Fails { reason: reason.to_owned() }))
    }

    async fn stop(self) {
        self.node.stop().await;
        self.aggregator.stop().await;
        let reason = "the process ends";
        tokio::join!(self.node_endpoint.close(reason), self.aggregator_endpoint.close(reason));
    }
}

/// The CA of the data directory, made at the first start.
fn open_ca(options: &LocalOptions) -> Result<ClusterCa, LocalError> {
    let dir = options.data_dir.join("certs").join("ca");
    if !dir.join("ca.pem").exists() {
        let ca = ClusterCa::generate(&options.cluster)?;
        ca.save(&dir)?;
        remember_layout(options)?;
        return Ok(ca);
    }
    let ca = ClusterCa::load(&dir)?;
    if ca.cluster() != options.cluster {
        let found = ca.cluster().to_owned();
        let wanted = options.cluster.clone();
        return Err(LocalError::OtherCluster { dir: options.data_dir.clone(), found, wanted });
    }
    check_layout(options)?;
    Ok(ca)
}

fn layout_file(data_dir: &Path) -> PathBuf {
    data_dir.join("layout")
}

fn layout_text(options: &LocalOptions) -> String {
    options.layout.dcs.iter().map(|dc| dc.name.as_str()).collect::<Vec<_>>().join(" ")
}

/// A data centre's number is its place in the layout for ever, so a directory belongs to one layout.
fn remember_layout(options: &LocalOptions) -> Result<(), LocalError> {
    let path = layout_file(&options.data_dir);
    std::fs::write(&path, layout_text(options)).map_err(|source| LocalError::Io { path, source })
}

fn check_layout(options: &LocalOptions) -> Result<(), LocalError> {
    let path = layout_file(&options.data_dir);
    let found = std::fs::read_to_string(&path).map_err(|source| LocalError::Io { path, source })?;
    let wanted = layout_text(options);
    if found == wanted {
        return Ok(());
    }
    Err(LocalError::OtherLayout { dir: options.data_dir.clone(), found, wanted })
}

fn bind_all(options: &LocalOptions, ca: &ClusterCa) -> Result<Vec<Sockets>, LocalError> {
    let ports = 2 * options.layout.dcs.len();
    if let Some(base) = options.base_port.filter(|&base| usize::from(base) + ports > usize::from(u16::MAX) + 1) {
        return Err(LocalError::Ports { base, ports });
    }
    (0..options.layout.dcs.len()).map(|dc| bind(options, ca, dc)).collect()
}

fn bind(options: &LocalOptions, ca: &ClusterCa, dc: usize) -> Result<Sockets, LocalError> {
    let issue = |role, name| -> Result<Credentials, LocalError> {
        let identity = Identity::new(&options.cluster, &options.layout.dcs[dc].name, role, name)?;
        Ok(ca.issue(&identity, CERTIFICATE_DAYS)?)
    };
    let addr = |offset: u16| {
        let port = options.base_port.map_or(0, |base| base + 2 * dc as u16 + offset);
        SocketAddr::from(([127, 0, 0, 1], port))
    };
    let links = LinkPlan::new(options.seed.wrapping_add(dc as u64));
    let credentials = issue(Role::Aggregator, "aggregator-0")?;
    let node = Endpoint::bind(addr(0), issue(Role::Node, "0")?, EndpointOptions::of(Role::Node))?;
    let delayed = EndpointOptions { link_plan: Some(links.clone()), ..EndpointOptions::default() };
    let aggregator = Endpoint::bind(addr(1), credentials.clone(), delayed)?;
    Ok(Sockets { node, aggregator, links, credentials })
}

fn describe(options: &LocalOptions, sockets: &[Sockets]) -> Cluster {
    let Layout { dcs, voters, leader, .. } = &options.layout;
    let dc = |(name, sockets): (&str, &Sockets)| DataCentre {
        name: name.to_owned(),
        aggregators: vec![sockets.aggregator.local_addr().into()],
        nodes: vec![sockets.node.local_addr().into()],
        placement: alone(),
    };
    Cluster {
        name: options.cluster.clone(),
        era: 0,
        dcs: dcs.iter().map(|dc| dc.name.as_str()).zip(sockets).map(dc).collect(),
        voters: voters.iter().map(|&voter| DcId(voter as u16)).collect(),
        leader: DcId(*leader as u16),
    }
}

/// A placement of one node with one log.
fn alone() -> Placement {
    Placement::new(1, &[], 1).expect("nobody is gone")
}

/// Delay stands where datagrams leave, so each way is half of the round trip.
fn connect_links(options: &LocalOptions, sockets: &[Sockets]) -> Result<(), LocalError> {
    for (from, own) in sockets.iter().enumerate() {
        for (to, peer) in sockets.iter().enumerate().filter(|(to, _)| *to != from) {
            own.links.set(peer.aggregator.local_addr(), link(options, from, to))?;
        }
    }
    Ok(())
}

fn link(options: &LocalOptions, from: usize, to: usize) -> Link {
    Link {
        one_way_us: (options.layout.rtt_ms[from][to] / 2.0 * US_PER_MS) as u64,
        jitter_us: (options.jitter_ms * US_PER_MS) as u64,
        loss_ppm: (options.loss * PPM) as u32,
        ..Link::default()
    }
}

async fn start_dc(
    options: &LocalOptions,
    cluster: &Cluster,
    dc: DcId,
    sockets: Sockets,
) -> Result<LocalDc, LocalError> {
    let Sockets { node: node_endpoint, aggregator: aggregator_endpoint, links, credentials } = sockets;
    let name = cluster.dcs[usize::from(dc.0)].name.clone();
    let dir = options.data_dir.join(&name);
    let node_options = NodeOptions {
        data_dir: dir.join("node-0"),
        cluster: cluster.with_era(),
        dc_name: name.clone(),
        dc,
        node: GROUP,
        nodes: cluster.dcs[usize::from(dc.0)].nodes.clone(),
        placement: alone(),
        core: NodeConfig::new(GroupId { dc, group: GROUP, incarnation: 0 }, LANES),
        flush_delay: options.flush_delay,
        rows: options.rows,
        buckets_bytes_max: NodeKeys::default().buckets_bytes_max(),
        fresh: false,
    };
    let node = Node::start(node_endpoint.clone(), node_options)
        .await
        .map_err(|source| LocalError::Node { dc: name.clone(), source })?;
    let aggregator_options = AggregatorOptions {
        data_dir: dir.join("aggregator"),
        cluster: cluster.clone(),
        id: dc.into(),
        core: AggregatorConfig::new(dc, 0),
        raft: Config::new(cluster.with_era(), LEDGER),
        rows: options.rows,
        buckets_bytes_max: ViewKeys::default().buckets_bytes_max(),
        // The operator of this process has issued all of its certificates.
        graph_clients: GraphClients::all(),
        fresh: false,
    };
    let aggregator = Aggregator::start(aggregator_endpoint.clone(), credentials, aggregator_options)
        .await
        .map_err(|source| LocalError::Aggregator { dc: name.clone(), source })?;
    let node_addr = node_endpoint.local_addr();
    let aggregator_addr = aggregator_endpoint.local_addr();
    Ok(LocalDc { name, node, node_addr, aggregator, aggregator_addr, links, node_endpoint, aggregator_endpoint })
}
