//! One data centre of real processes, as a user would start them: certificates, configuration files, `tidemark node`, once or more, and
//! `tidemark aggregator`. They run on this machine's loopback, in a folder that goes with the data centre.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use tidemark_transport::certs::{ClusterCa, FURTHER_AGGREGATORS};
use tidemark_transport::{Identity, Role};

use super::BenchError;
use super::child::{PATIENCE, Process};
use super::task::Place;
use tidemark_demo::cost;
use tidemark_server::secret;
use tidemark_server::token::Token;
use tidemark_tls::Trust;

/// Its one data centre.
pub const DC: &str = "bench-0";
/// Its one namespace.
pub const NAMESPACE: &str = "bench";
/// Where it is reached over HTTP, also in the certificate.
pub const HTTP_HOST: &str = "127.0.0.1";
const HTTP_CERTIFICATE_FILE: &str = "http-certificate.pem";
const HTTP_KEY_FILE: &str = "http-key.pem";
const CLUSTER: &str = "bench";
const POLL: Duration = Duration::from_millis(10);
const HTTP_TIMEOUT: Duration = Duration::from_secs(30);
const CERTIFICATE_DAYS: u32 = 30;
/// A cluster rests that takes less than this of one core. It is looked at so often.
const REST_SHARE_MAX: f64 = 0.05;
const REST_LOOK: Duration = Duration::from_secs(2);
const REST_PATIENCE: Duration = Duration::from_secs(300);

static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// A temporary folder; removed when dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// A new one.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn new() -> Result<Folder, BenchError> {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tidemark-bench-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(BenchError::io(path.display().to_string()))?;
        Ok(Folder(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// It stays.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The processes to start.
#[derive(Clone, Debug)]
pub struct Options {
    pub nodes: usize,
    /// Added to every flush of a node's disk.
    pub flush_delay: Duration,
    /// Of each node, and of the aggregator: `KEY=VALUE`.
    pub node: Vec<String>,
    pub aggregator: Vec<String>,
    /// The aggregator's HTTP over TLS.
    pub tls: bool,
    /// Counters, as `NAMESPACE/KEY`, at which the view is cut.
    pub slots: Vec<String>,
    /// Aggregators beside the first.
    pub further: usize,
    /// Behind the layout.
    pub layout: String,
}

impl Default for Options {
    fn default() -> Options {
        let node = Vec::new();
        let aggregator = Vec::new();
        let slots = Vec::new();
        let flush_delay = Duration::ZERO;
        let layout = String::new();
        Options { nodes: 1, flush_delay, node, aggregator, tls: false, slots, further: 0, layout }
    }
}

/// Nodes and an aggregator. Dropping it kills them.
pub struct Cluster {
    nodes: Vec<Process>,
    aggregator: Process,
    /// Aggregators beside it.
    further: Vec<Process>,
    sockets: Sockets,
    options: Options,
    /// The authorities to trust for the aggregator, if its HTTP is over TLS.
    trust: Option<Trust>,
    ca: ClusterCa,
    folder: Folder,
}

/// Where the processes listen.
#[derive(Clone)]
struct Sockets {
    nodes: Vec<SocketAddr>,
    aggregator: SocketAddr,
    further: Vec<SocketAddr>,
    nodes_http: Vec<SocketAddr>,
    aggregator_http: SocketAddr,
    further_http: Vec<SocketAddr>,
}

impl Cluster {
    /// Starts a node and an aggregator and waits until both are ready.
    ///
    /// # Errors
    /// A [`BenchError`] with the log of what failed.
    pub fn start(flush_delay: Duration) -> Result<Cluster, BenchError> {
        Cluster::start_as(Options { flush_delay, ..Options::default() })
    }

    /// Starts nodes and an aggregator and waits until all are ready.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_as(mut options: Options) -> Result<Cluster, BenchError> {
        let folder = Folder::new()?;
        let sockets = Sockets::free(options.nodes, options.further).map_err(BenchError::io("a free port"))?;
        let ca = ClusterCa::generate(CLUSTER).map_err(BenchError::setup)?;
        issue(&ca, Role::Aggregator, "0", &folder.0.join("aggregator-credentials"))?;
        issue(&ca, Role::Client, "0", &folder.0.join("client-credentials"))?;
        write(&folder.0.join("cluster.toml"), &(layout(&sockets, &options.slots) + &options.layout))?;
        write(&folder.0.join("aggregator.toml"), &process_file("aggregator", sockets.aggregator_http))?;
        for (number, &http) in sockets.nodes_http.iter().enumerate() {
            let who = node_name(number);
            issue(&ca, Role::Node, &number.to_string(), &folder.0.join(format!("{who}-credentials")))?;
            write(&folder.0.join(format!("{who}.toml")), &format!("node = {number}\n{}", process_file(&who, http)))?;
        }
        for (at, &http) in sockets.further_http.iter().enumerate() {
            let who = FURTHER_AGGREGATORS[at];
            issue(&ca, Role::Aggregator, who, &folder.0.join(format!("{who}-credentials")))?;
            write(&folder.0.join(format!("{who}.toml")), &process_file(who, http))?;
        }
        options.node.push(format!("log.flush_delay_ms={}", options.flush_delay.as_millis()));
        let trust = options.tls.then(|| make_certificate(&folder.0, &mut options.aggregator)).transpose()?;
        let aggregator = start_aggregator(&folder.0, &options.aggregator)?;
        let further = FURTHER_AGGREGATORS[..options.further].iter();
        let further = further.map(|who| start(&folder.0, who, "aggregator", &options.aggregator));
        let further = further.collect::<Result<_, _>>()?;
        let started = (0..options.nodes).map(|number| start_node(&folder.0, number, &options.node));
        let nodes = started.collect::<Result<_, _>>()?;
        let mut cluster = Cluster { nodes, aggregator, further, sockets, options, trust, ca, folder };
        cluster.wait_ready()?;
        Ok(cluster)
    }

    /// For a child of this bench.
    pub fn place(&self) -> Place {
        let Sockets { nodes, aggregator, .. } = self.sockets.clone();
        let nodes = nodes.into_iter().map(Into::into).collect();
        let aggregator = aggregator.into();
        Place { dc: DC.to_owned(), nodes, aggregator, credentials: self.folder.0.join("client-credentials") }
    }

    /// The file of the authorities to trust for the aggregator, if its HTTP is over TLS.
    pub fn http_ca_file(&self) -> Option<PathBuf> {
        self.trust.as_ref().map(|_| self.folder.0.join(HTTP_CERTIFICATE_FILE))
    }

    pub fn folder(&self) -> &Path {
        &self.folder.0
    }

    /// The cluster's name and CA.
    pub fn ca(&self) -> &ClusterCa {
        &self.ca
    }

    pub fn kill_node(&mut self, number: usize) {
        self.nodes[number].kill();
    }

    pub fn kill_aggregator(&mut self) {
        self.aggregator.kill();
    }

    /// Starts a node again on its data.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_node(&mut self, number: usize) -> Result<(), BenchError> {
        self.nodes[number] = start_node(&self.folder.0, number, &self.options.node)?;
        Ok(())
    }

    /// Starts the aggregator again on its data.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_aggregator(&mut self) -> Result<(), BenchError> {
        self.aggregator = start_aggregator(&self.folder.0, &self.options.aggregator)?;
        Ok(())
    }

    /// The log of a node so far, of all its starts.
    ///
    /// # Errors
    /// Its log cannot be read.
    pub fn node_log(&self, number: usize) -> Result<String, BenchError> {
        let path = self.folder.0.join(format!("{}.log", node_name(number)));
        std::fs::read_to_string(&path).map_err(BenchError::io(path.display().to_string()))
    }

    /// An error if a process has ended by itself.
    ///
    /// # Errors
    /// With the end of its log.
    pub fn check(&mut self) -> Result<(), BenchError> {
        self.nodes.iter_mut().chain(&mut self.further).try_for_each(Process::check)?;
        self.aggregator.check()
    }

    /// CPU seconds so far of the nodes together, and of the aggregators; `None` where there is no `/proc`.
    pub fn cpu_s(&self) -> Option<(f64, f64)> {
        let of = |process: &Process| Some(cost::of_tree(process.id())?.cpu_s);
        let aggregators = self.further.iter().chain([&self.aggregator]);
        Some((self.nodes.iter().map(of).sum::<Option<f64>>()?, aggregators.map(of).sum::<Option<f64>>()?))
    }

    /// The most memory that one of the aggregators has; `None` where there is no `/proc`.
    pub fn largest_aggregator_mib(&self) -> Option<f64> {
        let all = self.further.iter().chain([&self.aggregator]);
        all.filter_map(|process| Some(cost::of_tree(process.id())?.memory_mib)).max_by(f64::total_cmp)
    }

    /// Waits until its processes have needed next to no processor time for so long. How long it was until then, without that; `None` where
    /// there is no `/proc`.
    ///
    /// # Errors
    /// A process has ended, or they go on for too long.
    pub fn rest(&mut self, lasting: Duration) -> Result<Option<Duration>, BenchError> {
        let begun = Instant::now();
        let spent = |cluster: &Cluster| cluster.cpu_s().map(|(nodes, aggregator)| nodes + aggregator);
        let Some(now) = spent(self) else { return Ok(None) };
        // The first of them is the last one that is so long ago.
        let mut looks = VecDeque::from([(begun, now)]);
        loop {
            std::thread::sleep(REST_LOOK);
            self.check()?;
            let Some(now) = spent(self) else { return Ok(None) };
            looks.push_back((Instant::now(), now));
            while looks.get(1).is_some_and(|(at, _)| at.elapsed() >= lasting) {
                looks.pop_front();
            }
            let (since, before) = looks[0];
            let lasted = since.elapsed();
            if lasted >= lasting && now - before < REST_SHARE_MAX * lasted.as_secs_f64() {
                return Ok(Some(since - begun));
            }
            if since - begun > REST_PATIENCE {
                let what = "the cluster being at rest".to_owned();
                return Err(BenchError::Patience { what, waited_s: REST_PATIENCE.as_secs() });
            }
        }
    }

    /// Waits until all processes say that they are ready.
    ///
    /// # Errors
    /// A process has ended, or takes too long.
    pub fn wait_ready(&mut self) -> Result<(), BenchError> {
        let deadline = Instant::now() + PATIENCE;
        let Sockets { nodes_http, aggregator_http, further_http, .. } = self.sockets.clone();
        for address in nodes_http.into_iter().chain([aggregator_http]).chain(further_http) {
            let trust = self.trust.clone().filter(|_| address == aggregator_http);
            let remote = Remote { address, token: None, trust };
            while !remote.http("GET", "/readyz", "").is_ok_and(|answer| answer.contains(" 200 ")) {
                self.check()?;
                if Instant::now() > deadline {
                    let what = format!("{address} being ready");
                    return Err(BenchError::Patience { what, waited_s: PATIENCE.as_secs() });
                }
                std::thread::sleep(POLL);
            }
        }
        Ok(())
    }

    /// Counts 1 over the aggregator's HTTP.
    ///
    /// # Errors
    /// It was refused.
    pub fn add(&mut self, key: &str) -> Result<(), BenchError> {
        let path = format!("/v1/counters/{NAMESPACE}/{key}/add");
        self.json("POST", &path, "{}").map(drop)
    }

    /// The aggregator's answer to one request.
    ///
    /// # Errors
    /// It refuses, or says no JSON.
    pub fn json(&self, method: &str, path: &str, body: &str) -> Result<serde_json::Value, BenchError> {
        self.remote()?.json(method, path, body)
    }

    /// The aggregator's HTTP, for another thread.
    ///
    /// # Errors
    /// There is no token.
    pub fn remote(&self) -> Result<Remote, BenchError> {
        Ok(Remote { address: self.sockets.aggregator_http, token: Some(self.token()?), trust: self.trust.clone() })
    }

    /// The status of a node.
    ///
    /// # Errors
    /// It refuses, or there is no token.
    pub fn node_status(&self, number: usize) -> Result<serde_json::Value, BenchError> {
        let token =
            Token::read(&self.folder.0.join(format!("node-{number}")).join("token")).map_err(BenchError::setup)?;
        let remote = Remote { address: self.sockets.nodes_http[number], token: Some(token), trust: None };
        remote.json("GET", "/v1/status", "")
    }

    /// The bearer token of the aggregator's HTTP.
    ///
    /// # Errors
    /// There is none.
    pub fn token(&self) -> Result<Token, BenchError> {
        Token::read(&self.folder.0.join("aggregator").join("token")).map_err(BenchError::setup)
    }

    pub fn aggregator_http(&self) -> SocketAddr {
        self.sockets.aggregator_http
    }

    /// The aggregator's process.
    pub fn aggregator_id(&self) -> u32 {
        self.aggregator.id()
    }

    /// Has a counter guarded by a milestone, and waits until that is armed.
    ///
    /// # Errors
    /// It was refused, or takes too long.
    pub fn arm(&mut self, key: &str, at: u64) -> Result<(), BenchError> {
        let path = format!("/v1/counters/{NAMESPACE}/{key}/milestones");
        let deadline = Instant::now() + PATIENCE;
        let mut method = "PUT";
        let mut body = format!("{{\"at\":[{at}]}}");
        loop {
            let answer = self.remote()?.http(method, &path, &body)?;
            if answer.contains("\"armed\"") {
                return Ok(());
            }
            if !answer.contains("\"arming\"") || Instant::now() > deadline {
                return Err(BenchError::Failed { who: "the aggregator".to_owned(), reason: answer });
            }
            (method, body) = ("GET", String::new());
            std::thread::sleep(POLL);
        }
    }
}

/// The HTTP of a process.
pub struct Remote {
    address: SocketAddr,
    token: Option<Token>,
    /// The authorities to trust for it, if it is over TLS.
    trust: Option<Trust>,
}

impl Remote {
    /// Of a process that speaks plainly.
    pub fn new(address: SocketAddr, token: Token) -> Remote {
        Remote { address, token: Some(token), trust: None }
    }

    /// Its answer to one request.
    ///
    /// # Errors
    /// It refuses, or says no JSON.
    pub fn json(&self, method: &str, path: &str, body: &str) -> Result<serde_json::Value, BenchError> {
        let answer = self.http(method, path, body)?;
        let said = answer.split_once("\r\n\r\n").filter(|(head, _)| head.starts_with("HTTP/1.1 20"));
        let read = said.and_then(|(_, body)| serde_json::from_str(body).ok());
        read.ok_or_else(|| BenchError::Failed { who: self.address.to_string(), reason: answer })
    }

    /// Sends one request; the whole answer as text.
    fn http(&self, method: &str, path: &str, body: &str) -> Result<String, BenchError> {
        self.ask(method, path, body).map_err(BenchError::io(self.address.to_string()))
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address, HTTP_TIMEOUT)?;
        stream.set_read_timeout(Some(HTTP_TIMEOUT))?;
        let token = self.token.as_ref();
        let token = token.map_or(String::new(), |token| format!("authorization: Bearer {}\r\n", token.as_str()));
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n{token}content-length: {length}");
        let request = format!("{head}\r\n\r\n{body}");
        match &self.trust {
            None => exchange(&mut stream, &request),
            Some(Trust(config)) => {
                let name = ServerName::try_from(HTTP_HOST).map_err(std::io::Error::other)?;
                let session = rustls::ClientConnection::new(config.clone(), name).map_err(std::io::Error::other)?;
                exchange(&mut rustls::StreamOwned::new(session, stream), &request)
            }
        }
    }
}

impl Sockets {
    /// Ports that were free a moment ago: others must find them in a file, so the system cannot choose.
    fn free(nodes: usize, further: usize) -> std::io::Result<Sockets> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        // All are held until all are known.
        let held = (0..=nodes + further)
            .map(|_| Ok((UdpSocket::bind(any)?, TcpListener::bind(any)?)))
            .collect::<std::io::Result<Vec<_>>>()?;
        let mut addresses = held
            .iter()
            .map(|(quic, http)| Ok((quic.local_addr()?, http.local_addr()?)))
            .collect::<std::io::Result<Vec<_>>>()?;
        let (further, further_http) = addresses.split_off(nodes + 1).into_iter().unzip();
        let (aggregator, aggregator_http) = addresses.pop().expect("one more than nodes");
        let (nodes, nodes_http) = addresses.into_iter().unzip();
        Ok(Sockets { nodes, aggregator, further, nodes_http, aggregator_http, further_http })
    }
}

fn layout(sockets: &Sockets, slots: &[String]) -> String {
    let Sockets { nodes, aggregator, further, .. } = sockets;
    let nodes: Vec<String> = nodes.iter().map(|node| format!("\"{node}\"")).collect();
    let nodes = nodes.join(", ");
    format!(
        "name = \"{CLUSTER}\"\nnamespaces = [\"{NAMESPACE}\"]\nvoters = [\"{DC}\"]\nleader = \"{DC}\"\nslots = {slots:?}\n\n\
         [[dc]]\nname = \"{DC}\"\n\
         aggregator = \"{aggregator}\"\nnodes = [{nodes}]\n{}",
        further_text(further)
    )
}

fn further_text(further: &[SocketAddr]) -> String {
    let Some((second, behind)) = further.split_first() else { return String::new() };
    let behind: Vec<String> = behind.iter().map(SocketAddr::to_string).collect();
    let listed = if behind.is_empty() { String::new() } else { format!("further_aggregators = {behind:?}\n") };
    format!("second_aggregator = \"{second}\"\n{listed}")
}

fn process_file(who: &str, http: SocketAddr) -> String {
    format!(
        "cluster = \"cluster.toml\"\ndc = \"{DC}\"\ncredentials = \"{who}-credentials\"\ndata_dir = \"{who}\"\n\n[http]\n\
         listen = \"{http}\"\n"
    )
}

/// Of its files.
fn node_name(number: usize) -> String {
    format!("node-{number}")
}

fn start_node(folder: &Path, number: usize, settings: &[String]) -> Result<Process, BenchError> {
    let who = node_name(number);
    start(folder, &who, "node", settings)
}

fn start_aggregator(folder: &Path, settings: &[String]) -> Result<Process, BenchError> {
    start(folder, "aggregator", "aggregator", settings)
}

fn start(folder: &Path, who: &str, command: &str, settings: &[String]) -> Result<Process, BenchError> {
    let config = folder.join(format!("{who}.toml")).display().to_string();
    let mut arguments = vec![command, "--config", &config];
    settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
    Process::start(who, &arguments, &folder.join(format!("{who}.log")))
}

fn issue(ca: &ClusterCa, role: Role, name: &str, folder: &Path) -> Result<(), BenchError> {
    let identity = Identity::new(CLUSTER, DC, role, name).map_err(BenchError::setup)?;
    let credentials = ca.issue(&identity, CERTIFICATE_DAYS).map_err(BenchError::setup)?;
    credentials.save(folder).map_err(BenchError::setup)
}

fn write(path: &Path, text: &str) -> Result<(), BenchError> {
    std::fs::write(path, text).map_err(BenchError::io(path.display().to_string()))
}

/// A certificate for the aggregator's HTTP, which is its own authority.
fn make_certificate(folder: &Path, settings: &mut Vec<String>) -> Result<Trust, BenchError> {
    let made = rcgen::generate_simple_self_signed([HTTP_HOST.to_owned()]).map_err(BenchError::setup)?;
    let [certificate, key] = [HTTP_CERTIFICATE_FILE, HTTP_KEY_FILE].map(|name| folder.join(name));
    write(&certificate, &made.cert.pem())?;
    secret::write(&key, &made.signing_key.serialize_pem()).map_err(BenchError::setup)?;
    for (name, path) in [("http.tls_certificate_file", &certificate), ("http.tls_key_file", &key)] {
        settings.push(format!("{name}={}", path.display()));
    }
    Trust::new(Some(&certificate)).map_err(BenchError::setup)
}

/// Writes a request and reads the whole answer as text.
fn exchange(stream: &mut (impl Read + Write), request: &str) -> std::io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
