//! Processes are reached by host names: which may be where they do not listen themselves, may change, and may be known only later.

use crate::cluster::{Cluster, PLAIN, Role, free_address, ready, until_views_show};
use crate::http;
use crate::process::{Process, WAIT_MAX, command, complaint, run, until, until_true};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidemark_aggregator::{Aggregator, AggregatorOptions, DataCentre, GraphClients};
use tidemark_client::{Client, HostPort, Site};
use tidemark_consensus::local::RowStore;
use tidemark_consensus::raft::Config;
use tidemark_node::{Node, NodeOptions};
use tidemark_proto::aggregator::AggregatorConfig;
use tidemark_proto::ids::{AggregatorId, DcId, GroupId};
use tidemark_proto::node::NodeConfig;
use tidemark_proto::placement::Placement;
use tidemark_server::names::parse_counter;
use tidemark_testkit::relay::Relay;
use tidemark_transport::certs::ClusterCa;
use tidemark_transport::resolve::Resolving;
use tidemark_transport::{Credentials, Endpoint, EndpointOptions, Identity, Resolver};

const DCS: [&str; 3] = ["usa-0", "europe-0", "asia-0"];

/// The layout with a host name in the place of each address.
fn write_names(cluster: &Cluster) {
    let layout = cluster.layout_text(&cluster.aggregators).replace("127.0.0.1:", "localhost:");
    std::fs::write(cluster.path("layout.toml"), layout).unwrap();
}

fn named(address: SocketAddr) -> HostPort {
    format!("localhost:{}", address.port()).parse().unwrap()
}

async fn add(at: SocketAddr) {
    let path = format!("/v1/counters/{PLAIN}/add");
    until("an increment", async || http::send(at, "POST", &path, "").await.filter(|(code, _)| *code == 200)).await;
}

/// The command's JSON with an aggregator named by a host name.
fn ask(cluster: &Cluster, at: SocketAddr, arguments: &[&str]) -> String {
    let server = format!("http://{}", named(at));
    let token = cluster.path("token");
    let remote = ["--server", &server, "--token-file", token.to_str().unwrap(), "--json"];
    let output = run(&[arguments, &remote].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Starts a process that listens elsewhere than it is reached.
async fn start_at(cluster: &Cluster, role: Role, listen: SocketAddr) -> (Process, SocketAddr) {
    let arguments = cluster.arguments(0, role);
    let listen = listen.to_string();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(["--listen", &listen]).collect();
    let mut process = Process::start(command(&arguments), cluster.next_log());
    let http = process.until_serves().await;
    (process, http)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_of_names_counts_where_processes_listen_elsewhere() {
    let cluster = Cluster::new(&DCS);
    write_names(&cluster);
    // The first data centre's processes are behind something that passes on what comes for them.
    let own_node = free_address();
    let own_aggregator = free_address();
    let _relays = [
        Relay::start(cluster.nodes[0], own_node).await.unwrap(),
        Relay::start(cluster.aggregators[0], own_aggregator).await.unwrap(),
    ];
    let (mut node, _) = start_at(&cluster, Role::Node, own_node).await;
    let (aggregator, first) = start_at(&cluster, Role::Aggregator, own_aggregator).await;
    let others = [cluster.centre(1).await, cluster.centre(2).await];
    let views = [first, others[0].http, others[1].http];
    for at in views {
        ready(at).await;
        add(at).await;
    }
    until_views_show(&views, PLAIN, 3).await;
    let said = aggregator.said();
    let advertised = named(cluster.aggregators[0]);
    let listen = own_aggregator;
    assert!(said.contains(&format!("advertised={advertised} listen={listen} ")), "{said}");

    node.kill();
    let (_node, _) = start_at(&cluster, Role::Node, own_node).await;
    let sites = [0, 1].map(|dc: usize| Site {
        dc: DCS[dc].to_owned(),
        nodes: vec![named(cluster.nodes[dc])],
        aggregator: Some(named(cluster.aggregators[dc])),
    });
    let builder = Client::builder().credentials(cluster.client_credentials());
    let client = sites.into_iter().fold(builder, |builder, site| builder.site(site)).connect().await.unwrap();
    let plain = parse_counter(PLAIN).unwrap();
    client.add(&plain, 10).unwrap();
    tokio::time::timeout(WAIT_MAX, client.flush()).await.unwrap().unwrap();
    let read = async || client.get(&plain).await.ok().filter(|reading| reading.up == 13);
    until("what the client counted", read).await;
    client.close().await.unwrap();

    let file = cluster.path("rows.csv");
    let layout = cluster.path("layout.toml");
    let credentials = cluster.path("credentials/web");
    std::fs::write(&file, format!("counter,delta\n{PLAIN},20\n{PLAIN},7\n")).unwrap();
    let [file, layout, credentials] = [&file, &layout, &credentials].map(|path| path.to_str().unwrap());
    let of_cluster = ["--cluster", layout, "--dc", DCS[0], "--credentials", credentials];
    ask(&cluster, first, &[&["load", file], &of_cluster[..]].concat());
    until_views_show(&views, PLAIN, 40).await;
    let got = ask(&cluster, views[2], &["get", PLAIN]);
    assert!(got.contains("40"), "{got}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_names_elect_another_leader_and_clients_follow() {
    let cluster = Cluster::with_nodes(&DCS[..1], 3);
    write_names(&cluster);
    let mut nodes = Vec::new();
    for node in 0..3 {
        nodes.push(cluster.start_node(0, node).await.0);
    }
    let (_aggregator, at) = cluster.start(0, Role::Aggregator).await;
    ready(at).await;
    add(at).await;
    nodes[0].kill();
    add(at).await;
    nodes[0] = cluster.start_node(0, 0).await.0;
    nodes[1].kill();
    add(at).await;
    until_views_show(&[at], PLAIN, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_counts_while_the_name_of_another_does_not_resolve() {
    let cluster = Cluster::with_aggregators(&DCS[..2], &DCS[..1], &[1, 1], &[]);
    // A ledger is founded when all its members are there.
    drop(cluster.centres().await);
    let layout = cluster.layout_text(&cluster.aggregators);
    // RFC 6761: it resolves nowhere.
    let nowhere = format!("europe.invalid:{}", cluster.aggregators[1].port());
    std::fs::write(cluster.path("layout.toml"), layout.replace(&cluster.aggregators[1].to_string(), &nowhere)).unwrap();
    let centre = cluster.centre(0).await;
    ready(centre.http).await;
    let said = || centre.aggregator.said();
    until_true("a line about the name", || said().contains("a host name does not resolve")).await;
    for _ in 0..20 {
        add(centre.http).await;
    }
    until_views_show(&[centre.http], PLAIN, 20).await;
    assert_eq!(said().matches("a host name does not resolve").count(), 1, "{}", said());
    assert_eq!(said().matches("europe.invalid").count(), 1, "nor is it said otherwise: {}", said());
}

#[test]
fn addresses_that_are_none_are_refused_at_start() {
    let cluster = Cluster::new(&DCS[..1]);
    let good = cluster.layout_text(&cluster.aggregators);
    let own = format!("\"{}\"", cluster.nodes[0]);
    let label = "x".repeat(64);
    for (wrong, expected) in [
        ("node-0.example".to_owned(), "has no port"),
        ("node-0.example:0".to_owned(), "1 to 65535 is expected"),
        (format!("{label}.example:7300"), "a label of 64 bytes"),
        ("10.0.0.999:7300".to_owned(), "four numbers of 0 to 255"),
        ("::1:7300".to_owned(), "without brackets"),
    ] {
        std::fs::write(cluster.path("layout.toml"), good.replace(&own, &format!("{wrong:?}"))).unwrap();
        for role in [Role::Node, Role::Aggregator] {
            let output = run(&cluster.arguments(0, role).iter().map(String::as_str).collect::<Vec<_>>());
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && said.contains(&wrong) && said.contains(expected), "{said}");
        }
    }
    std::fs::write(cluster.path("layout.toml"), good).unwrap();
    let said = cluster.refusal(0, Role::Node, &["listen=192.0.2.1"]);
    assert!(said.starts_with("cannot open 192.0.2.1:"), "{said}");
    let arguments = cluster.arguments(0, Role::Node);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(["--listen", "node-0:7300"]).collect();
    let output = run(&arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("\"node-0:7300\" is nothing to listen at") && said.contains("--listen"), "{said}");
    let elsewhere = good_elsewhere(&cluster);
    std::fs::write(cluster.path("layout.toml"), elsewhere).unwrap();
    let said = complaint(&run(&cluster.arguments(0, Role::Node).iter().map(String::as_str).collect::<Vec<_>>()));
    assert!(said.contains("cannot open 192.0.2.1:") && said.contains("say with --listen"), "{said}");
}

/// The layout with a node at an address that is not this machine's.
fn good_elsewhere(cluster: &Cluster) -> String {
    let own = format!("\"{}\"", cluster.nodes[0]);
    cluster.layout_text(&cluster.aggregators).replace(&own, &format!("\"192.0.2.1:{}\"", cluster.nodes[0].port()))
}

/// Names that a test may change, and how often each was asked for.
#[derive(Debug, Default)]
struct Table(Mutex<BTreeMap<String, (Option<IpAddr>, u32)>>);

impl Resolver for Table {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        let mut names = self.0.lock().unwrap();
        let (found, asked) = names.entry(name.to_owned()).or_default();
        *asked += 1;
        let found = *found;
        Box::pin(async move { found.map(|ip| vec![ip]).ok_or_else(|| std::io::Error::other("no such name")) })
    }
}

/// Two data centres in this process, with names that only the table knows.
struct Named {
    ca: ClusterCa,
    table: Arc<Table>,
    dir: tempfile::TempDir,
    cluster: tidemark_aggregator::Cluster,
}

/// A data centre that runs.
struct Running {
    node: Node,
    aggregator: Aggregator,
    endpoints: [Endpoint; 2],
}

impl Named {
    fn new() -> Named {
        let address = |role: &str, dc: &str| format!("{role}.{dc}.test:{}", free_address().port()).parse().unwrap();
        let dc = |name: &&str| DataCentre {
            name: (*name).to_owned(),
            aggregators: vec![address("aggregator", name)],
            nodes: vec![address("node", name)],
            placement: Placement::new(1, &[], 1).unwrap(),
        };
        let name = "test".to_owned();
        let dcs = DCS[..2].iter().map(dc).collect();
        let cluster = tidemark_aggregator::Cluster { name, era: 0, dcs, voters: vec![DcId(0)], leader: DcId(0) };
        let ca = ClusterCa::generate("test").unwrap();
        let dir = tempfile::tempdir().unwrap();
        Named { ca, table: Arc::default(), dir, cluster }
    }

    /// From now on a name is this address's.
    fn set(&self, name: &str, ip: IpAddr) {
        self.table.0.lock().unwrap().entry(name.to_owned()).or_default().0 = Some(ip);
    }

    fn asked(&self, name: &str) -> u32 {
        self.table.0.lock().unwrap().get(name).map_or(0, |(_, asked)| *asked)
    }

    fn credentials(&self, dc: usize, role: tidemark_transport::Role) -> Credentials {
        self.ca.issue(&Identity::new("test", DCS[dc], role, "0").unwrap(), 1).unwrap()
    }

    fn bind(&self, addr: SocketAddr, dc: usize, role: tidemark_transport::Role) -> Endpoint {
        let options = EndpointOptions { resolver: self.table.clone(), ..EndpointOptions::of(role) };
        Endpoint::bind(addr, self.credentials(dc, role), options).unwrap()
    }

    async fn start(&self, dc: usize, ip: IpAddr) -> Running {
        use tidemark_transport::Role::{Aggregator as AggregatorRole, Node as NodeRole};
        let centre = &self.cluster.dcs[dc];
        let node_endpoint = self.bind((ip, centre.nodes[0].port()).into(), dc, NodeRole);
        let aggregator_endpoint = self.bind((ip, centre.aggregators[0].port()).into(), dc, AggregatorRole);
        let node = Node::start(node_endpoint.clone(), self.node(dc)).await.unwrap();
        let credentials = self.credentials(dc, AggregatorRole);
        let options = self.aggregator(dc);
        let aggregator = Aggregator::start(aggregator_endpoint.clone(), credentials, options).await.unwrap();
        Running { node, aggregator, endpoints: [node_endpoint, aggregator_endpoint] }
    }

    fn node(&self, dc: usize) -> NodeOptions {
        let group = GroupId { dc: DcId(dc as u16), group: 0, incarnation: 0 };
        NodeOptions {
            data_dir: self.data(dc, "node"),
            cluster: self.cluster.with_era(),
            dc_name: DCS[dc].to_owned(),
            dc: group.dc,
            node: 0,
            nodes: self.cluster.dcs[dc].nodes.clone(),
            placement: self.cluster.dcs[dc].placement.clone(),
            core: NodeConfig::new(group, 2),
            flush_delay: Duration::ZERO,
            rows: RowStore::Beside,
            buckets_bytes_max: usize::MAX,
            fresh: false,
        }
    }

    fn aggregator(&self, dc: usize) -> AggregatorOptions {
        let id = AggregatorId::from(DcId(dc as u16));
        AggregatorOptions {
            data_dir: self.data(dc, "aggregator"),
            cluster: self.cluster.clone(),
            id,
            core: AggregatorConfig::new(id, 0),
            raft: Config::new(self.cluster.with_era(), "ledger"),
            rows: RowStore::Beside,
            buckets_bytes_max: usize::MAX,
            graph_clients: GraphClients::all(),
            fresh: false,
        }
    }

    fn data(&self, dc: usize, kind: &str) -> PathBuf {
        self.dir.path().join(format!("{}-{kind}", DCS[dc]))
    }

    /// A client of one data centre, which reads there.
    async fn client(&self, dc: usize) -> Client {
        let endpoint = self.bind((Ipv4Addr::UNSPECIFIED, 0).into(), dc, tidemark_transport::Role::Client);
        let DataCentre { name, aggregators, nodes, .. } = self.cluster.dcs[dc].clone();
        let site = Site { dc: name, nodes, aggregator: aggregators.into_iter().next() };
        Client::builder().endpoint(endpoint).site(site).connect().await.unwrap()
    }
}

impl Running {
    async fn until_works(&self) {
        until("a data centre that works", async || {
            let known = self.aggregator.with_ledger(|ledger| ledger.namespaces().any(|name| name == "search"));
            if !known {
                self.aggregator.add_namespace("search").await;
            }
            (known && self.aggregator.ready().is_ok() && self.aggregator.health().failure().is_none()).then_some(())
        })
        .await;
    }

    async fn stop(self) {
        self.node.stop().await;
        self.aggregator.stop().await;
        for endpoint in self.endpoints {
            endpoint.close("it moves").await;
        }
    }
}

/// Adds, and waits until both read it.
async fn count(clients: &[Client; 2], at: usize, total: u64) {
    let plain = parse_counter(PLAIN).unwrap();
    clients[at].add(&plain, 1).unwrap();
    tokio::time::timeout(WAIT_MAX, clients[at].flush()).await.unwrap().unwrap();
    for client in clients {
        until("the total", async || client.get(&plain).await.ok().filter(|reading| reading.up == total)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_resolve_later_and_names_that_move_are_followed() {
    let named = Named::new();
    let ip = |last: u8| IpAddr::from([127, 0, 0, last]);
    named.set("aggregator.usa-0.test", ip(1));
    let usa = named.start(0, ip(1)).await;
    let europe = named.start(1, ip(1)).await;
    let clients = [named.client(0).await, named.client(1).await];
    let later = ["node.usa-0.test", "node.europe-0.test", "aggregator.europe-0.test"];
    until_true("that all names are tried again", || later.iter().all(|name| named.asked(name) >= 3)).await;
    assert!(usa.aggregator.ready().is_err() && europe.aggregator.ready().is_err());
    later.iter().for_each(|name| named.set(name, ip(1)));
    usa.until_works().await;
    europe.until_works().await;
    count(&clients, 0, 1).await;
    count(&clients, 1, 2).await;
    europe.stop().await;
    let europe = named.start(1, ip(2)).await;
    for name in ["node.europe-0.test", "aggregator.europe-0.test"] {
        named.set(name, ip(2));
    }
    europe.until_works().await;
    count(&clients, 1, 3).await;
    count(&clients, 0, 4).await;
    for client in clients {
        client.close().await.unwrap();
    }
    usa.stop().await;
    europe.stop().await;
}
