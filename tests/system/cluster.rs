//! A cluster of real processes: one node, or several, and one aggregator per data centre, with the files that the command's users
//! write.

use crate::http::{self, TOKEN};
use crate::process::{Process, command, run, until};
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tidemark_client::{Client, Site};
use tidemark_transport::Credentials;
use tidemark_transport::certs::FURTHER_AGGREGATORS;

/// Guarded by some tests, and spread over all valves.
pub const QUERIES: &str = "search/queries";
/// Its namespace has counters that go down.
pub const SHOES: &str = "stock/shoes";
/// Never guarded.
pub const PLAIN: &str = "search/plain";
/// A client leaves a data centre that is gone for this long.
const SITE_TIMEOUT: Duration = Duration::from_millis(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Node,
    Aggregator,
}

impl Role {
    fn subcommand(self) -> &'static str {
        match self {
            Role::Node => "node",
            Role::Aggregator => "aggregator",
        }
    }

    fn credentials(self) -> &'static str {
        match self {
            Role::Node => "node-0",
            Role::Aggregator => "aggregator",
        }
    }
}

pub struct Cluster {
    dir: tempfile::TempDir,
    names: Vec<String>,
    voters: Vec<String>,
    /// The first node of each data centre, and all of them.
    pub nodes: Vec<SocketAddr>,
    all_nodes: Vec<Vec<SocketAddr>>,
    /// By data centre, the nodes that were taken away.
    gone: Vec<Vec<usize>>,
    pub aggregators: Vec<SocketAddr>,
    /// By data centre, where its aggregators but the first listen.
    further: Vec<Vec<SocketAddr>>,
    /// At which views are cut.
    slots: Vec<String>,
    starts: AtomicU32,
}

/// A data centre that runs.
pub struct Centre {
    pub node: Process,
    pub aggregator: Process,
    pub http: SocketAddr,
}

/// An address on loopback that is free for UDP and TCP, outside the range that the kernel gives to sockets without a port. A process that
/// was killed must find its own port free.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let offset = std::process::id().wrapping_mul(64).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, (12_000 + offset % 20_000) as u16));
        if UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// The keys of a layout that say where a data centre's aggregators but the first listen.
fn further_text(further: &[SocketAddr]) -> String {
    let Some((second, behind)) = further.split_first() else { return String::new() };
    let behind: Vec<String> = behind.iter().map(SocketAddr::to_string).collect();
    let listed = if behind.is_empty() { String::new() } else { format!("further_aggregators = {behind:?}\n") };
    format!("second_aggregator = \"{second}\"\n{listed}")
}

impl Cluster {
    /// Files of a cluster of these data centres, all of them voters; nothing runs yet.
    pub fn new(names: &[&str]) -> Cluster {
        Cluster::with_nodes(names, 1)
    }

    /// The same with this number of nodes in each data centre.
    pub fn with_nodes(names: &[&str], nodes: usize) -> Cluster {
        Cluster::with_nodes_each(&names.iter().map(|&name| (name, nodes)).collect::<Vec<_>>())
    }

    /// The same with these numbers of nodes in the data centres.
    pub fn with_nodes_each(dcs: &[(&str, usize)]) -> Cluster {
        let names: Vec<&str> = dcs.iter().map(|(name, _)| *name).collect();
        Cluster::of(dcs, &names, &vec![1; dcs.len()], &[])
    }

    /// One node in each of the data centres, some of which vote, and in one of them a second aggregator.
    pub fn with_pair(names: &[&str], voters: &[&str], pair: usize) -> Cluster {
        let aggregators: Vec<usize> = (0..names.len()).map(|dc| if dc == pair { 2 } else { 1 }).collect();
        Cluster::with_aggregators(names, voters, &aggregators, &[])
    }

    /// One node and these numbers of aggregators in the data centres, some of which vote, and views with shards that begin at these
    /// counters. More than two need a range for each.
    pub fn with_aggregators(names: &[&str], voters: &[&str], aggregators: &[usize], slots: &[&str]) -> Cluster {
        let dcs: Vec<(&str, usize)> = names.iter().map(|&name| (name, 1)).collect();
        Cluster::of(&dcs, voters, aggregators, slots)
    }

    fn of(dcs: &[(&str, usize)], voters: &[&str], aggregators: &[usize], slots: &[&str]) -> Cluster {
        let names: Vec<&str> = dcs.iter().map(|(name, _)| *name).collect();
        let of_dc = |(_, nodes): &(&str, usize)| (0..*nodes).map(|_| free_address()).collect::<Vec<_>>();
        let all_nodes: Vec<Vec<SocketAddr>> = dcs.iter().map(of_dc).collect();
        let cluster = Cluster {
            dir: tempfile::tempdir().unwrap(),
            names: names.iter().map(|&name| name.to_owned()).collect(),
            voters: voters.iter().map(|&name| name.to_owned()).collect(),
            further: aggregators.iter().map(|count| (1..*count).map(|_| free_address()).collect()).collect(),
            slots: slots.iter().map(|&slot| slot.to_owned()).collect(),
            nodes: all_nodes.iter().map(|nodes| nodes[0]).collect(),
            gone: vec![Vec::new(); all_nodes.len()],
            all_nodes,
            aggregators: names.iter().map(|_| free_address()).collect(),
            starts: AtomicU32::new(0),
        };
        let layout = cluster.layout_text(&cluster.aggregators);
        std::fs::write(cluster.path("layout.toml"), layout).unwrap();
        cluster.write_token();
        cluster.make_certificates();
        for (dc, (_, nodes)) in dcs.iter().enumerate() {
            for role in [Role::Node, Role::Aggregator] {
                cluster.write_config(dc, role, "layout.toml");
            }
            (1..*nodes).for_each(|node| cluster.write_node_config(dc, node));
            (1..aggregators[dc]).for_each(|seat| cluster.write_further_config(dc, seat));
        }
        cluster
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The layout with the aggregators at these addresses.
    pub fn layout_text(&self, aggregators: &[SocketAddr]) -> String {
        let voters: Vec<String> = self.voters.iter().map(|name| format!("{name:?}")).collect();
        let mut text = format!(
            "name = \"test\"\nnamespaces = [\"search\",\"stock\"]\nupdown = [\"stock\"]\nspread = [{QUERIES:?}]\nvoters = [{}]\nleader = {:?}\n",
            voters.join(","),
            self.names[0]
        );
        if !self.slots.is_empty() {
            text += &format!("slots = {:?}\n", self.slots);
        }
        for (dc, name) in self.names.iter().enumerate() {
            let aggregator = aggregators[dc];
            let nodes: Vec<String> = self.all_nodes[dc].iter().map(|node| format!("\"{node}\"")).collect();
            let nodes = nodes.join(",");
            text += &format!("[[dc]]\nname = {name:?}\naggregator = \"{aggregator}\"\nnodes = [{nodes}]\n");
            if !self.gone[dc].is_empty() {
                text += &format!("gone = {:?}\n", self.gone[dc]);
            }
            text += &further_text(&self.further[dc]);
        }
        text
    }

    fn write_token(&self) {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(self.path("token")).unwrap();
        std::io::Write::write_all(&mut file, TOKEN.as_bytes()).unwrap();
    }

    fn make_certificates(&self) {
        let ca = self.text("ca");
        let layout = self.text("layout.toml");
        let out = self.text("credentials");
        let web = self.text("credentials/web");
        for arguments in [
            vec!["certs", "init", "--cluster", "test", "--out", &ca],
            vec!["certs", "issue", "--ca", &ca, "--cluster", &layout, "--out", &out],
            vec!["certs", "issue", "--ca", &ca, "--dc", "web", "--role", "client", "--out", &web],
        ] {
            let output = run(&arguments);
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }

    /// Writes the configuration of a process, which reads the layout of that name.
    pub fn write_config(&self, dc: usize, role: Role, layout: &str) {
        let name = &self.names[dc];
        let kind = role.subcommand();
        let credentials = role.credentials();
        let text = format!(
            "cluster = {layout:?}\ndc = {name:?}\ncredentials = \"credentials/{name}/{credentials}\"\n\
             data_dir = \"data/{name}-{kind}\"\n[http]\nlisten = \"127.0.0.1:0\"\ntoken_file = \"token\"\n"
        );
        std::fs::write(self.config(dc, role), text).unwrap();
    }

    fn write_further_config(&self, dc: usize, seat: usize) {
        let name = &self.names[dc];
        let own = FURTHER_AGGREGATORS[seat - 1];
        let text = format!(
            "cluster = \"layout.toml\"\ndc = {name:?}\ncredentials = \"credentials/{name}/aggregator-{own}\"\n\
             data_dir = \"data/{name}-{own}\"\n[http]\nlisten = \"127.0.0.1:0\"\ntoken_file = \"token\"\n"
        );
        std::fs::write(self.path(&format!("{name}-{own}.toml")), text).unwrap();
    }

    fn write_node_config(&self, dc: usize, node: usize) {
        let name = &self.names[dc];
        let text = format!(
            "cluster = \"layout.toml\"\ndc = {name:?}\nnode = {node}\ncredentials = \"credentials/{name}/node-{node}\"\n\
             data_dir = \"data/{name}-node-{node}\"\n[http]\nlisten = \"127.0.0.1:0\"\ntoken_file = \"token\"\n"
        );
        std::fs::write(self.path(&format!("{name}-node-{node}.toml")), text).unwrap();
    }

    /// A node's configuration asks for this number of valves from its next start on.
    pub fn ask_for_valves(&self, dc: usize, node: usize, valves: u8) {
        self.configure_node(dc, node, &format!("[group]\nlanes = {valves}\n"));
    }

    /// A node's configuration ends with this from its next start on.
    pub fn configure_node(&self, dc: usize, node: usize, more: &str) {
        let path = match node {
            0 => self.config(dc, Role::Node),
            _ => self.path(&format!("{}-node-{node}.toml", self.names[dc])),
        };
        let before = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, before + more).unwrap();
    }

    /// Files of one more node of a data centre. Processes that start from now on read the layout that has it.
    pub fn add_node(&mut self, dc: usize) -> usize {
        let node = self.all_nodes[dc].len();
        self.all_nodes[dc].push(free_address());
        std::fs::write(self.path("layout.toml"), self.layout_text(&self.aggregators)).unwrap();
        let out = self.text(&format!("credentials/{}/node-{node}", self.names[dc]));
        let ca = self.text("ca");
        let number = node.to_string();
        let of_node = ["--dc", &self.names[dc], "--role", "node", "--name", &number];
        let output = run(&[&["certs", "issue", "--ca", &ca, "--out", &out], &of_node[..]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.write_node_config(dc, node);
        node
    }

    /// Takes one of a data centre's nodes away. Processes that start from now on read the layout that says so.
    pub fn take_node_away(&mut self, dc: usize, node: usize) {
        self.gone[dc].push(node);
        std::fs::write(self.path("layout.toml"), self.layout_text(&self.aggregators)).unwrap();
    }

    /// The refusal of a node that does not start.
    pub fn node_refusal(&self, dc: usize, node: usize) -> String {
        if node == 0 {
            return self.refusal(dc, Role::Node, &[]);
        }
        let config = self.path(&format!("{}-node-{node}.toml", self.names[dc]));
        crate::process::complaint(&run(&["node", "--config", config.to_str().unwrap()]))
    }

    /// Starts one of a data centre's nodes, and waits until its HTTP interface answers.
    pub async fn start_node(&self, dc: usize, node: usize) -> (Process, SocketAddr) {
        if node == 0 {
            return self.start(dc, Role::Node).await;
        }
        let config = self.path(&format!("{}-node-{node}.toml", self.names[dc]));
        let mut process = Process::start(command(&["node", "--config", config.to_str().unwrap()]), self.next_log());
        let http = process.until_serves().await;
        (process, http)
    }

    /// The data directory of one of a data centre's nodes.
    pub fn node_data(&self, dc: usize, node: usize) -> PathBuf {
        match node {
            0 => self.data(dc, Role::Node),
            _ => self.path(&format!("data/{}-node-{node}", self.names[dc])),
        }
    }

    pub fn config(&self, dc: usize, role: Role) -> PathBuf {
        self.path(&format!("{}-{}.toml", self.names[dc], role.subcommand()))
    }

    pub fn data(&self, dc: usize, role: Role) -> PathBuf {
        self.path(&format!("data/{}-{}", self.names[dc], role.subcommand()))
    }

    /// The arguments that start a process.
    pub fn arguments(&self, dc: usize, role: Role) -> Vec<String> {
        let config = self.config(dc, role).to_str().unwrap().to_owned();
        vec![role.subcommand().to_owned(), "--config".to_owned(), config]
    }

    /// Runs a process that is expected to refuse, with overrides.
    pub fn refusal(&self, dc: usize, role: Role, sets: &[&str]) -> String {
        let mut arguments = self.arguments(dc, role);
        arguments.extend(sets.iter().flat_map(|set| ["--set".to_owned(), (*set).to_owned()]));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        crate::process::complaint(&run(&arguments))
    }

    pub fn next_log(&self) -> PathBuf {
        self.path(&format!("log-{}", self.starts.fetch_add(1, Ordering::Relaxed)))
    }

    /// Starts a process; it does not serve yet.
    pub fn spawn(&self, dc: usize, role: Role) -> Process {
        let arguments = self.arguments(dc, role);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Process::start(command(&arguments), self.next_log())
    }

    pub async fn start(&self, dc: usize, role: Role) -> (Process, SocketAddr) {
        let mut process = self.spawn(dc, role);
        let http = process.until_serves().await;
        (process, http)
    }

    /// Starts a process on an empty data directory, though the cluster knows its place.
    pub async fn start_fresh(&self, dc: usize, role: Role) -> (Process, SocketAddr) {
        let mut arguments = self.arguments(dc, role);
        arguments.push("--fresh".to_owned());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut process = Process::start(command(&arguments), self.next_log());
        let http = process.until_serves().await;
        (process, http)
    }

    /// Where the second aggregator of the data centre listens.
    pub fn second(&self, dc: usize) -> SocketAddr {
        self.further[dc][0]
    }

    /// The data directory of the second aggregator of the data centre.
    pub fn second_data(&self, dc: usize) -> PathBuf {
        self.path(&format!("data/{}-second", self.names[dc]))
    }

    /// Starts the second aggregator of the data centre, and waits until its HTTP interface answers.
    pub async fn start_second(&self, dc: usize) -> (Process, SocketAddr) {
        self.start_further(dc, 1).await
    }

    /// Starts the aggregator at a seat behind the first, and waits until its HTTP interface answers.
    pub async fn start_further(&self, dc: usize, seat: usize) -> (Process, SocketAddr) {
        self.start_further_with(dc, seat, &[]).await
    }

    /// The same with further arguments.
    pub async fn start_further_with(&self, dc: usize, seat: usize, more: &[&str]) -> (Process, SocketAddr) {
        let config = self.path(&format!("{}-{}.toml", self.names[dc], FURTHER_AGGREGATORS[seat - 1]));
        let mut process = Process::start(
            command(&[&["aggregator", "--config", config.to_str().unwrap()], more].concat()),
            self.next_log(),
        );
        let http = process.until_serves().await;
        (process, http)
    }

    pub async fn node(&self, dc: usize) -> Process {
        self.start(dc, Role::Node).await.0
    }

    pub async fn centre(&self, dc: usize) -> Centre {
        let ((node, _), (aggregator, http)) =
            tokio::join!(self.start(dc, Role::Node), self.start(dc, Role::Aggregator));
        Centre { node, aggregator, http }
    }

    /// Starts all data centres and waits until they take increments.
    pub async fn centres(&self) -> Vec<Centre> {
        let mut centres = Vec::new();
        for dc in 0..self.names.len() {
            centres.push(self.centre(dc).await);
        }
        for centre in &centres {
            ready(centre.http).await;
        }
        centres
    }

    pub fn client_credentials(&self) -> Credentials {
        Credentials::load(&self.path("credentials/web")).unwrap()
    }

    /// A front end that prefers the data centres in this order.
    pub async fn client(&self, dcs: &[usize]) -> Client {
        self.client_as(self.client_credentials(), dcs).await
    }

    /// The same with other credentials.
    pub async fn client_as(&self, credentials: Credentials, dcs: &[usize]) -> Client {
        let builder = Client::builder().credentials(credentials).site_timeout(SITE_TIMEOUT);
        let site = |&dc: &usize| Site {
            dc: self.names[dc].clone(),
            nodes: self.all_nodes[dc].iter().copied().map(Into::into).collect(),
            aggregator: Some(self.aggregators[dc].into()),
        };
        dcs.iter().map(site).fold(builder, |builder, site| builder.site(site)).connect().await.unwrap()
    }

    pub fn name(&self, dc: usize) -> &str {
        &self.names[dc]
    }
}

/// Runs an operator's command against a process; whether it succeeded, and all that it said.
pub fn operate(cluster: &Cluster, at: SocketAddr, arguments: &[&str]) -> (bool, String) {
    let server = format!("http://{at}");
    let token = cluster.path("token");
    let output = run(&[arguments, &["--server", &server, "--token-file", token.to_str().unwrap()]].concat());
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

/// Waits until an aggregator's view and ledger work.
pub async fn ready(http: SocketAddr) {
    until("a working view and ledger", async || http::get(http, "/readyz").await.filter(|(code, _)| *code == 200))
        .await;
}

/// Waits until every view shows exactly this, with nothing pending. A view that shows more has counted something twice.
pub async fn until_views_show(views: &[SocketAddr], counter: &str, total: u64) {
    for &http in views {
        let mut last = None;
        let start = std::time::Instant::now();
        loop {
            last = http::reading(http, counter).await.or(last);
            match last {
                Some((value, pending)) if value + pending > total => {
                    panic!("{counter}: {value} shown and {pending} pending of {total}: something was counted twice")
                }
                Some((value, 0)) if value == total => break,
                _ => {}
            }
            let waited = start.elapsed();
            assert!(waited < crate::process::WAIT_MAX, "{counter}: {last:?} shown after {waited:?}, {total} expected");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Defines milestones and waits until they are armed.
pub async fn arm(http: SocketAddr, counter: &str, at: &[u64]) {
    arm_under(http, counter, at, "strict").await;
}

/// The same under a policy.
pub async fn arm_under(http: SocketAddr, counter: &str, at: &[u64], policy: &str) {
    let body = serde_json::json!({ "at": at, "policy": policy }).to_string();
    let path = format!("/v1/counters/{counter}/milestones");
    until("a definition", async || http::send(http, "PUT", &path, &body).await.filter(|(code, _)| *code == 200)).await;
    until("armed milestones", async || {
        let (_, list) = http::get(http, &path).await?;
        let armed = |status: &Value| status["state"] == "armed" && status["policy"] == policy;
        let list = list["milestones"].as_array()?.clone();
        (list.len() == at.len() && list.iter().all(armed)).then_some(())
    })
    .await;
}

/// The awards as a data centre knows them.
pub async fn awards(http: SocketAddr, counter: &str) -> Option<Vec<Value>> {
    let (_, list) = http::get(http, &format!("/v1/awards?counter={counter}")).await?;
    list["awards"].as_array().cloned()
}

/// The data centre that leads the ledger, as one of them knows.
pub async fn leader(http: SocketAddr) -> Option<String> {
    let (_, status) = http::get(http, "/v1/status").await?;
    status["ledger"]["leader"].as_str().map(str::to_owned)
}
