//! The processes of a soak: nodes and aggregators as a user would start them. A relay stands on each way on which one dials another:
//! between the nodes of a data centre, from its aggregators to its nodes, and from one data centre's aggregators to another's.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tidemark_client::Site;
use tidemark_transport::certs::{ClusterCa, FURTHER_AGGREGATORS, TrustAnchor};
use tidemark_transport::{Credentials, Identity, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::SoakOptions;
use tidemark_server::token::Token;
use tidemark_testkit::relay::Relay;

pub const NAMESPACE: &str = "soak";
const CLUSTER: &str = "soak";
const DAYS: u32 = 30;
const READY_MAX: Duration = Duration::from_secs(120);
const HTTP_MAX: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(100);
/// The largest file of a process on a full disk, in blocks of 512 bytes.
const FULL_DISK_BLOCKS: u64 = 16 * 1_024;

/// A process, running or not.
pub struct Member {
    pub name: String,
    kind: &'static str,
    config: PathBuf,
    pub data: PathBuf,
    log: PathBuf,
    pub http: SocketAddr,
    child: Option<Child>,
}

/// A data centre.
pub struct Dc {
    pub name: String,
    pub nodes: Vec<Member>,
    /// One aggregator, or a pair.
    pub aggregators: Vec<Member>,
    node_addresses: Vec<SocketAddr>,
    aggregator_addresses: Vec<SocketAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Node,
    Aggregator,
}

/// Which process: its number among those of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat {
    pub dc: usize,
    pub kind: Kind,
    pub number: usize,
}

impl Seat {
    /// Whether the way to another process has a relay: nodes are dialled in their data centre, aggregators from other ones.
    fn has_relay_to(self, to: Seat) -> bool {
        match (self.kind, to.kind) {
            (Kind::Node, Kind::Node) => self.dc == to.dc && self != to,
            (Kind::Aggregator, Kind::Node) => self.dc == to.dc,
            (Kind::Aggregator, Kind::Aggregator) => self.dc != to.dc,
            (Kind::Node, Kind::Aggregator) => false,
        }
    }
}

/// By the dialler and the dialled process.
type Relays = BTreeMap<(Seat, Seat), Relay>;

/// An aggregator of the soak.
#[derive(Clone, Copy, Debug)]
pub struct AggregatorAt {
    /// Its data centre.
    pub dc: usize,
    /// Which of a pair.
    pub which: usize,
}

/// All of it. Dropping it kills every process.
pub struct SoakCluster {
    pub all: Vec<Dc>,
    relays: Relays,
    ca: ClusterCa,
    token: Token,
}

/// Where processes listen. Below the ports that systems give to programs without a choice: a port of a process that is down must not go to
/// a relay or a request.
const PORTS: Range<u16> = 15_000..32_000;
/// Ports that are tried before it is said that none is free.
const PORT_TRIES_MAX: u32 = 1_000;

/// Two ports that are free, one of each kind, and held until all are known.
struct Held(UdpSocket, TcpListener);

impl Held {
    fn new() -> std::io::Result<Held> {
        Ok(Held(on_free_port(UdpSocket::bind)?, on_free_port(TcpListener::bind)?))
    }

    fn addresses(&self) -> std::io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.0.local_addr()?, self.1.local_addr()?))
    }
}

fn on_free_port<T>(bind: impl Fn(SocketAddr) -> std::io::Result<T>) -> std::io::Result<T> {
    let mut tried = (0..PORT_TRIES_MAX).map(|_| bind(SocketAddr::from(([127, 0, 0, 1], rand::random_range(PORTS)))));
    tried.find_map(Result::ok).ok_or_else(|| std::io::Error::other(format!("no port of {PORTS:?} is free")))
}

impl SoakCluster {
    /// Writes all files into a folder, starts all processes, and waits until all are ready.
    pub async fn start(options: &SoakOptions, dir: &Path) -> Result<SoakCluster, Box<dyn Error>> {
        let dcs = options.dcs as usize;
        let of_each = options.nodes + options.aggregators;
        let held = (0..dcs * of_each).map(|_| Held::new()).collect::<Result<Vec<_>, _>>()?;
        let addresses = held.iter().map(Held::addresses).collect::<Result<Vec<_>, _>>()?;
        drop(held);
        let ca = ClusterCa::generate(CLUSTER)?;
        let token = Token::of_dir(dir)?;
        let mut all = Vec::new();
        for (dc, addresses) in addresses.chunks(of_each).enumerate() {
            let (nodes, aggregators) = addresses.split_at(options.nodes);
            all.push(describe(dir, &ca, dc, nodes, aggregators)?);
        }
        let relays = start_relays(&all).await?;
        for seat in seats(&all) {
            write(&dir.join(layout_name(seat)), &layout(&all, &relays, seat))?;
        }
        let mut cluster = SoakCluster { all, relays, ca, token };
        cluster.members().try_for_each(Member::start)?;
        cluster.until_ready(READY_MAX).await?;
        Ok(cluster)
    }

    pub fn dcs(&self) -> usize {
        self.all.len()
    }

    fn members(&mut self) -> impl Iterator<Item = &mut Member> {
        self.all.iter_mut().flat_map(|dc| dc.nodes.iter_mut().chain(&mut dc.aggregators))
    }

    /// Waits until all processes say that they are ready.
    pub async fn until_ready(&mut self, within: Duration) -> Result<(), String> {
        let deadline = Instant::now() + within;
        for member in self.members() {
            while member.is_ready().await.is_none() {
                if Instant::now() > deadline {
                    let name = &member.name;
                    let log = member.log.display();
                    return Err(format!("{name} is not ready within {} s; see {log}", within.as_secs()));
                }
                sleep(POLL).await;
            }
        }
        Ok(())
    }

    pub fn client_credentials(&self) -> Result<Credentials, Box<dyn Error>> {
        Ok(self.ca.issue(&Identity::new(CLUSTER, "web", Role::Client, "0")?, DAYS)?)
    }

    /// The data centres as a front end of one prefers them.
    pub fn sites_from(&self, dc: usize) -> Vec<Site> {
        let order = (dc..self.all.len()).chain(0..dc);
        order.map(|dc| self.site(AggregatorAt { dc, which: 0 })).collect()
    }

    /// Every aggregator.
    pub fn aggregators(&self) -> Vec<AggregatorAt> {
        let of = |(dc, Dc { aggregators, .. }): (usize, &Dc)| {
            (0..aggregators.len()).map(move |which| AggregatorAt { dc, which })
        };
        self.all.iter().enumerate().flat_map(of).collect()
    }

    pub fn name_of(&self, at: AggregatorAt) -> &str {
        &self.all[at.dc].aggregators[at.which].name
    }

    /// A data centre that is read at this aggregator of it.
    pub fn site(&self, AggregatorAt { dc, which }: AggregatorAt) -> Site {
        let Dc { name, node_addresses, aggregator_addresses, .. } = &self.all[dc];
        Site {
            dc: name.clone(),
            nodes: node_addresses.iter().copied().map(Into::into).collect(),
            aggregator: Some(aggregator_addresses[which].into()),
        }
    }

    /// Does something to all ways between a data centre and the others.
    pub fn links_of(&self, dc: usize, change: impl Fn(&Relay)) {
        let is_one = |(from, to): &(Seat, Seat)| from.dc != to.dc && (from.dc == dc || to.dc == dc);
        self.relays.iter().filter(|(ends, _)| is_one(ends)).for_each(|(_, relay)| change(relay));
    }

    /// Does something to all ways between a node and its data centre's other nodes, or its aggregators.
    pub fn links_of_node(&self, dc: usize, node: usize, with: Kind, change: impl Fn(&Relay)) {
        let seat = Seat { dc, kind: Kind::Node, number: node };
        let is_one =
            |&(from, to): &(Seat, Seat)| (from == seat && to.kind == with) || (to == seat && from.kind == with);
        self.relays.iter().filter(|(ends, _)| is_one(ends)).for_each(|(_, relay)| change(relay));
    }

    pub fn heal_all(&self) {
        for relay in self.relays.values() {
            relay.heal();
            relay.delay(Duration::ZERO);
        }
    }

    /// Has every `every`-th increment of a counter named.
    pub async fn define(&self, key: &str, every: u64) -> Result<(), Box<dyn Error>> {
        let path = format!("/v1/counters/{NAMESPACE}/{key}/milestones");
        let http = self.all[0].aggregators[0].http;
        let deadline = Instant::now() + READY_MAX;
        loop {
            let answer = request(http, "PUT", &path, Some(&self.token), &format!("{{\"every\":{every}}}")).await;
            match answer {
                Ok((200, _)) => return Ok(()),
                Ok((status, body)) if Instant::now() > deadline => {
                    return Err(format!("{path}: {status} {body}").into());
                }
                Err(error) if Instant::now() > deadline => return Err(format!("{path}: {error}").into()),
                _ => sleep(POLL).await,
            }
        }
    }

    /// The answer of an aggregator to a question, if it has any.
    pub async fn ask(&self, AggregatorAt { dc, which }: AggregatorAt, path: &str) -> Option<String> {
        let http = self.all[dc].aggregators[which].http;
        let (status, body) = request(http, "GET", path, Some(&self.token), "").await.ok()?;
        (status == 200).then_some(body)
    }

    /// Data centres with an aggregator that votes in the ledger.
    pub fn voters(&self) -> impl Iterator<Item = &str> {
        voters(&self.all).iter().map(|dc| dc.name.as_str())
    }

    /// The anchor with which awards are verified.
    pub fn anchor(&self) -> &TrustAnchor {
        self.ca.anchor()
    }
}

impl Member {
    /// Starts the process, if it does not run.
    pub fn start(&mut self) -> Result<(), std::io::Error> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([self.kind, "--config"]).arg(&self.config);
        self.spawn(command)
    }

    /// Starts it on a disk that is soon full: its files cannot grow past a limit.
    pub fn start_without_room(&mut self) -> Result<(), std::io::Error> {
        let mut command = Command::new("sh");
        let limit = format!("trap '' XFSZ; ulimit -f {FULL_DISK_BLOCKS}; exec \"$@\"");
        command
            .args(["-c", &limit, "sh"])
            .arg(std::env::current_exe()?)
            .args([self.kind, "--config"])
            .arg(&self.config);
        self.spawn(command)
    }

    fn spawn(&mut self, mut command: Command) -> Result<(), std::io::Error> {
        if self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
            return Ok(());
        }
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log)?;
        self.child = Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?);
        Ok(())
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        if let Some(child) = &self.child {
            let _ = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
        }
    }

    /// Asks it to end, and waits for that; kills it if it does not.
    pub async fn terminate(&mut self, within: Duration) {
        self.signal("TERM");
        let deadline = Instant::now() + within;
        while Instant::now() < deadline && self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
        {
            sleep(POLL).await;
        }
        self.kill();
    }

    pub async fn is_ready(&self) -> Option<()> {
        let answer = request(self.http, "GET", "/readyz", None, "").await;
        answer.ok().filter(|(status, _)| *status == 200).map(drop)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

type Addresses = [(SocketAddr, SocketAddr)];

fn describe(
    dir: &Path,
    ca: &ClusterCa,
    dc: usize,
    nodes: &Addresses,
    aggregators: &Addresses,
) -> Result<Dc, Box<dyn Error>> {
    let members = |kind, addresses: &Addresses| {
        let described = |(number, (_, http)): (usize, &_)| member(dir, ca, Seat { dc, kind, number }, *http);
        addresses.iter().enumerate().map(described).collect::<Result<Vec<_>, _>>()
    };
    let quic = |addresses: &Addresses| addresses.iter().map(|(quic, _)| *quic).collect();
    Ok(Dc {
        name: format!("dc-{dc}"),
        nodes: members(Kind::Node, nodes)?,
        aggregators: members(Kind::Aggregator, aggregators)?,
        node_addresses: quic(nodes),
        aggregator_addresses: quic(aggregators),
    })
}

/// Certificate and configuration of a process.
fn member(dir: &Path, ca: &ClusterCa, seat: Seat, http: SocketAddr) -> Result<Member, Box<dyn Error>> {
    let Seat { dc, kind, number } = seat;
    let name = name(seat);
    let (role, command) = match kind {
        Kind::Node => (Role::Node, "node"),
        Kind::Aggregator => (Role::Aggregator, "aggregator"),
    };
    let certified = match (kind, number) {
        (Kind::Aggregator, 1..) => FURTHER_AGGREGATORS[number - 1].to_owned(),
        _ => number.to_string(),
    };
    ca.issue(&Identity::new(CLUSTER, &format!("dc-{dc}"), role, &certified)?, DAYS)?
        .save(&dir.join("credentials").join(&name))?;
    let node = if kind == Kind::Node { format!("node = {number}\n") } else { String::new() };
    let layout = layout_name(seat);
    let text = format!(
        "cluster = {layout:?}\ndc = \"dc-{dc}\"\n{node}credentials = \"credentials/{name}\"\ndata_dir = \"data/{name}\"\n[http]\n\
         listen = \"{http}\"\ntoken_file = \"token\"\n"
    );
    let config = dir.join(format!("{name}.toml"));
    write(&config, &text)?;
    let data = dir.join("data").join(&name);
    let log = dir.join(format!("{name}.log"));
    Ok(Member { name, kind: command, config, data, log, http, child: None })
}

fn name(Seat { dc, kind, number }: Seat) -> String {
    match kind {
        Kind::Node => format!("dc-{dc}-node-{number}"),
        Kind::Aggregator => format!("dc-{dc}-aggregator-{number}"),
    }
}

/// Each process sees the others behind relays of its own.
fn layout_name(seat: Seat) -> String {
    format!("layout-{}.toml", name(seat))
}

fn seats(all: &[Dc]) -> Vec<Seat> {
    let of = |dc: usize, kind, number: usize| (0..number).map(move |number| Seat { dc, kind, number });
    let each = all.iter().enumerate().flat_map(|(dc, Dc { nodes, aggregators, .. })| {
        of(dc, Kind::Node, nodes.len()).chain(of(dc, Kind::Aggregator, aggregators.len()))
    });
    each.collect()
}

async fn start_relays(all: &[Dc]) -> std::io::Result<Relays> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut relays = BTreeMap::new();
    let seats = seats(all);
    for &from in &seats {
        for &to in seats.iter().filter(|&&to| from.has_relay_to(to)) {
            let Dc { node_addresses, aggregator_addresses, .. } = &all[to.dc];
            let target = match to.kind {
                Kind::Node => node_addresses[to.number],
                Kind::Aggregator => aggregator_addresses[to.number],
            };
            relays.insert((from, to), Relay::start(any, target).await?);
        }
    }
    Ok(relays)
}

/// An odd number of them.
fn voters(all: &[Dc]) -> &[Dc] {
    &all[..all.len() - (all.len() + 1) % 2]
}

fn layout(all: &[Dc], relays: &Relays, seen_from: Seat) -> String {
    let quoted = |names: Vec<String>| names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let names = quoted(voters(all).iter().map(|dc| dc.name.clone()).collect());
    let mut text = format!(
        "name = \"{CLUSTER}\"\nnamespaces = [\"{NAMESPACE}\"]\nvoters = [{names}]\nleader = \"dc-0\"\ngraph_clients = [\"web/0\"]\n"
    );
    for (dc, Dc { name, node_addresses, aggregator_addresses, .. }) in all.iter().enumerate() {
        let seen = |kind, number, own: &SocketAddr| {
            relays.get(&(seen_from, Seat { dc, kind, number })).map_or(*own, |relay| relay.address)
        };
        let seen_nodes = node_addresses.iter().enumerate();
        let nodes = quoted(seen_nodes.map(|(number, own)| seen(Kind::Node, number, own).to_string()).collect());
        text += &format!("\n[[dc]]\nname = {name:?}\nnodes = [{nodes}]\n");
        for (which, (key, own)) in ["aggregator", "second_aggregator"].iter().zip(aggregator_addresses).enumerate() {
            let address = seen(Kind::Aggregator, which, own);
            text += &format!("{key} = \"{address}\"\n");
        }
    }
    text
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Sends one request: status and body.
async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    token: Option<&Token>,
    body: &str,
) -> std::io::Result<(u16, String)> {
    let token = token.map_or(String::new(), |token| format!("authorization: Bearer {}\r\n", token.as_str()));
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: soak\r\nconnection: close\r\n{token}content-length: {length}");
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = timeout(HTTP_MAX, asked).await.map_err(std::io::Error::other)??;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    status.zip(body).ok_or_else(|| std::io::Error::other("no answer of HTTP"))
}
