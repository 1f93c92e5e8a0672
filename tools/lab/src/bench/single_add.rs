//! Single increments, each answered when it is durable: HTTP in front of `tidemark serve`, the client library in front of a node, and
//! beside them, in the same run, a Redis that syncs its file before it answers (`appendfsync always`), if Redis is installed.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tidemark::errln;

use super::child::{PATIENCE, Process, TaskChild};
use super::cluster::{Cluster, Folder, Remote};
use super::line::{Asked, Sample};
use super::load::LoadReport;
use super::load::requests::{RequestTask, Server};
use super::task::{Said, Task};
use super::{BenchError, Meter, Plan};
use tidemark::running::Running;
use tidemark_server::token::Token;

const CONNECTIONS: usize = 50;
/// Of an increment on an idle system: longer than anything that is still going on after the one before.
const PAUSE_MS: u64 = 20;
const LOAD_S: f64 = 10.0;
const WARM_S: f64 = 1.0;
const KEY: &str = "bench-single-add";
const POLL: Duration = Duration::from_millis(20);
/// Where Debian's package has it.
const REDIS: (&str, &str) = ("redis-server", "/usr/bin/redis-server");

/// A load, and how its figures are called.
struct Load {
    name: &'static str,
    connections: usize,
    pause_ms: u64,
}

const IDLE: Load = Load { name: "one connection, idle", connections: 1, pause_ms: PAUSE_MS };
const IN_TURN: Load = Load { name: "one connection, one after the other", connections: 1, pause_ms: 0 };
const MANY: Load = Load { name: "50 connections", connections: CONNECTIONS, pause_ms: 0 };

/// `single-add`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let mut samples = http(plan)?;
    samples.extend(library(plan)?);
    samples.extend(redis(plan)?);
    Ok(samples)
}

fn http(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let folder = Folder::new()?;
    let mut serve = Serve::start(folder.path())?;
    let server = serve.server()?;
    let mut counted = 0;
    let mut load = |load: &Load| -> Result<Measured, BenchError> {
        let measured = measure(plan, load, server.clone(), folder.path())?;
        counted += measured.report.acknowledged;
        Ok(measured)
    };
    let idle = load(&IDLE)?;
    let in_turn = load(&IN_TURN)?;
    let many = load(&MANY)?;
    serve.holds(counted)?;
    let promised =
        |asked: Asked, must: f64, aim: f64| if plan.seconds.is_some() { asked } else { asked.must(must).aim(aim) };
    let mut samples = idle.latencies("HTTP", &IDLE);
    samples[0].figure = promised(samples[0].figure.clone(), 2.0, 0.7);
    samples[1].figure = promised(samples[1].figure.clone(), 5.0, 2.0);
    samples.extend(in_turn.latencies("HTTP", &IN_TURN));
    samples.push(many.rate(|asked| promised(asked, 20_000.0, 50_000.0), "HTTP", &MANY));
    samples.extend(many.latencies("HTTP", &MANY));
    Ok(samples)
}

fn library(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let mut cluster = Cluster::start(plan.flush_delay)?;
    let server = Server::Library { place: cluster.place(), key: KEY.to_owned() };
    let idle = measure(plan, &IDLE, server.clone(), cluster.folder())?;
    let in_turn = measure(plan, &IN_TURN, server, cluster.folder())?;
    cluster.check()?;
    let mut samples = idle.latencies("Rust client", &IDLE);
    if plan.seconds.is_none() {
        samples[0].figure = samples[0].figure.clone().must(1.5).aim(0.5);
    }
    samples.extend(in_turn.latencies("Rust client", &IN_TURN));
    Ok(samples)
}

/// Redis's own figures; none if it is not installed.
fn redis(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let Some(program) = redis_program() else {
        errln!("no Redis beside it: install Debian's package {}", REDIS.0);
        return Ok(Vec::new());
    };
    let folder = Folder::new()?;
    let mut peer = Redis::start(&program, folder.path())?;
    let server = Server::Redis { address: peer.address, key: KEY.to_owned() };
    let mut samples = Vec::new();
    for load in [&IDLE, &IN_TURN, &MANY] {
        let measured = measure(plan, load, server.clone(), folder.path())?;
        if load.connections > 1 {
            samples.push(measured.rate(|asked| asked, "peer: Redis", load));
        }
        samples.extend(measured.latencies("peer: Redis", load));
    }
    peer.process.check()?;
    let version = Command::new(&program).arg("--version").output().map_err(BenchError::io("redis-server"))?;
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    let first = samples.remove(0).with(format!("{version}; appendonly yes, appendfsync always, save \"\""));
    samples.insert(0, first);
    Ok(samples)
}

/// The observations of a load, and its cost.
struct Measured {
    report: LoadReport,
    cpu_s: Option<f64>,
    seconds: f64,
}

impl Measured {
    fn rate(&self, promised: impl Fn(Asked) -> Asked, who: &str, load: &Load) -> Sample {
        let asked = promised(Asked::rate(format!("{who}: increments, {}", load.name), "/s"));
        asked.is(self.report.acknowledged_per_s).costing(self.cpu_s, self.seconds)
    }

    fn latencies(&self, who: &str, load: &Load) -> Vec<Sample> {
        let asked = |what: &str| Asked::cost(format!("{who}: durable answer, {}, {what}", load.name), "ms");
        let p50 = asked("p50").is(self.report.ack.p50_ms).costing(self.cpu_s, self.seconds);
        vec![p50, asked("p99").is(self.report.ack.p99_ms)]
    }
}

fn measure(plan: &Plan, load: &Load, server: Server, folder: &Path) -> Result<Measured, BenchError> {
    let seconds = plan.seconds_or(LOAD_S);
    let Load { connections, pause_ms, .. } = *load;
    let warm_s = WARM_S.min(seconds);
    let connections = connections.min(plan.size_or(CONNECTIONS));
    let task = RequestTask { server, connections, pause_ms, warm_s, seconds };
    let mut child = TaskChild::start("requests", &Task::Requests(task), folder)?;
    child.wait_ready()?;
    child.go()?;
    child.wait_for(Duration::from_secs_f64(warm_s), |said| matches!(said, Said::Measuring).then_some(()))?;
    let meter = Meter::start();
    let within = Duration::from_secs_f64(seconds);
    child.wait_for(within, |said| matches!(said, Said::Measured).then_some(()))?;
    let cpu_s = meter.cpu_s();
    let report = child.wait_loaded(within)?;
    if report.acknowledged == 0 || report.acknowledged != report.sent {
        let reason = format!("not every increment was acknowledged: {report:?}");
        return Err(BenchError::Failed { who: "the load".to_owned(), reason });
    }
    Ok(Measured { report, cpu_s, seconds })
}

/// A running `tidemark serve`.
struct Serve {
    process: Process,
    address: SocketAddr,
    token: Token,
}

impl Serve {
    fn start(folder: &Path) -> Result<Serve, BenchError> {
        let data = folder.join("data");
        let dir = data.display().to_string();
        let arguments = ["serve", "--port", "0", "--data-dir", &dir];
        let mut process = Process::start("serve", &arguments, &folder.join("serve.log"))?;
        let begun = Instant::now();
        loop {
            // It describes itself when everything of it is there.
            if let Some(running) = Running::find(&data).map_err(BenchError::setup)? {
                let address = running.server.trim_start_matches("http://").parse().map_err(BenchError::setup)?;
                let token = Token::read(&running.token).map_err(BenchError::setup)?;
                return Ok(Serve { process, address, token });
            }
            process.check()?;
            late(begun, "serve being ready")?;
            std::thread::sleep(POLL);
        }
    }

    fn path() -> String {
        format!("/v1/counters/default/{KEY}")
    }

    fn server(&mut self) -> Result<Server, BenchError> {
        self.process.check()?;
        let path = format!("{}/add", Serve::path());
        let token = self.token.as_str().to_owned();
        Ok(Server::Http { address: self.address, path, token })
    }

    /// Fails unless exactly this number is counted, as soon as the view is up to date.
    fn holds(&mut self, counted: u64) -> Result<(), BenchError> {
        let remote = Remote::new(self.address, self.token.clone());
        let begun = Instant::now();
        loop {
            let value = remote.json("GET", &Serve::path(), "")?["value"].as_u64();
            if value == Some(counted) {
                return Ok(());
            }
            self.process.check()?;
            late(begun, &format!("{KEY} reading {counted}, after {value:?}"))?;
            std::thread::sleep(POLL);
        }
    }
}

/// A Redis with a folder of its own.
struct Redis {
    process: Process,
    address: SocketAddr,
}

impl Redis {
    fn start(program: &Path, folder: &Path) -> Result<Redis, BenchError> {
        let address = free_address()?;
        let mut command = Command::new(program);
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--daemonize", "no"]);
        command.args(["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--dir"]).arg(folder);
        let mut process = Process::run("Redis", command, &folder.join("redis.log"), false)?;
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            process.check()?;
            late(begun, "Redis being ready")?;
            std::thread::sleep(POLL);
        }
        Ok(Redis { process, address })
    }
}

/// Redis's program, of `PATH` or where Debian's package has it.
fn redis_program() -> Option<PathBuf> {
    let of_path = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let anywhere = of_path.into_iter().flatten().map(|folder| folder.join(REDIS.0)).chain([PathBuf::from(REDIS.1)]);
    anywhere.into_iter().find(|path| path.is_file())
}

fn free_address() -> Result<SocketAddr, BenchError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    listener.map_err(BenchError::io("a free port"))
}

fn late(begun: Instant, what: &str) -> Result<(), BenchError> {
    match begun.elapsed() > PATIENCE {
        true => Err(BenchError::Patience { what: what.to_owned(), waited_s: PATIENCE.as_secs() }),
        false => Ok(()),
    }
}
