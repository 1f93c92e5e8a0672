//! Subscribers while the demo runs: thousands of WebSockets that all watch the main total. Measured are their cost for the data centres,
//! the interval of messages to the slowest, and missing awards. They are spread over all data centres, as browsers are, and live in a
//! process of their own.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::child::{Process, TaskChild};
use super::cluster::Folder;
use super::line::{Asked, Sample};
use super::live::{Frames, open_all, upgrade};
use super::task::{Said, Task, say, wait_for_start};
use super::{BenchError, Plan};
use tidemark::remote::Remote;
use tidemark_demo::cost;
use tidemark_server::token::Token;

const SUBSCRIBERS: usize = 5_000;
const RATE_PER_S: f64 = 70_000.0;
/// Each of the two times that are compared: without subscribers, and with them.
const SPAN_S: f64 = 20.0;
/// From the first answer of the page until the load has found its pace.
const SETTLE: Duration = Duration::from_secs(10);
/// The main counter.
const COUNTER: &str = "search/queries";
/// An award every few seconds.
const EVERY: &str = "200000";
/// Sockets that are opened at a time; the data centres have something else to do as well.
const OPENING_MAX: usize = 50;
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);
/// An award that one subscriber received in time is with all subscribers after this.
const LAST_AWARDS: Duration = Duration::from_secs(3);
/// Between two looks at a socket: some updates.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
const BUFFER_BYTES: usize = 16 * 1_024;
/// How a message about an award begins.
const AWARD: &[u8] = br#"{"type":"award""#;
const TOTAL: &[u8] = br#"{"type":"total""#;

/// Subscribes so often and listens for so long.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WatchTask {
    /// Of the data centres.
    pub addresses: Vec<SocketAddr>,
    pub token: String,
    pub subscribers: usize,
    pub query: String,
    pub seconds: f64,
}

/// The messages to the subscribers in that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchReport {
    pub updates_per_s: f64,
    /// Of the subscriber that was told least often.
    pub updates_per_s_min: f64,
    pub awards: u64,
    /// Awards that a subscriber was not told, over all of them.
    pub missed: u64,
}

/// `live-demo`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let subscribers = plan.size_or(SUBSCRIBERS);
    let span_s = plan.seconds_or(SPAN_S);
    let folder = Folder::new()?;
    let data_dir = folder.path().join("demo");
    let port = free_port()?;
    let rate = plan.rate_or(RATE_PER_S).to_string();
    let dir = data_dir.display().to_string();
    let port_text = port.to_string();
    // It is ended when all is measured.
    let arguments = ["demo", "--headless", "--rate", &rate, "--milestone", EVERY, "--every", EVERY, "--for", "600"];
    let arguments = [&arguments[..], &["--port", &port_text, "--data-dir", &dir]].concat();
    let mut demo = Process::start("demo", &arguments, &folder.path().join("demo.log"))?;
    let addresses = addresses(&mut demo, port)?;
    std::thread::sleep(SETTLE);
    let alone = cores(&mut demo, || {
        std::thread::sleep(Duration::from_secs_f64(span_s));
        Ok(())
    })?;
    let token = Token::of_dir(&data_dir).map_err(BenchError::setup)?.as_str().to_owned();
    let query = format!("counter={COUNTER}&awards=all");
    let task = WatchTask { addresses, token, subscribers, query, seconds: span_s };
    let mut child = TaskChild::start("watchers", &Task::Watch(task), folder.path())?;
    child.wait_for(PATIENCE, |said| matches!(said, Said::Ready).then_some(()))?;
    let with = cores(&mut demo, || {
        child.go()?;
        child.wait_for(PATIENCE, |said| matches!(said, Said::Measured).then_some(()))
    })?;
    let report = child.wait_for(PATIENCE, |said| match said {
        Said::Watched(report) => Some(report),
        _ => None,
    })?;
    demo.check()?;
    let name = |what: &str| format!("{subscribers} subscribers of the demo's total: {what}");
    Ok(vec![
        Asked::cost(name("cores, more than without them"), "").must(0.5).is(with - alone),
        Asked::cost("cores of the demo without them", "").is(alone),
        Asked::rate(name("updates for each"), "/s").is(report.updates_per_s),
        Asked::rate(name("updates for the slowest"), "/s").is(report.updates_per_s_min),
        Asked::rate(name("awards in that time"), "").is(report.awards as f64),
        Asked::cost(name("awards that one of them was not told"), "").must(0.0).is(report.missed as f64),
    ])
}

/// Cores of the demo and its load while something goes on.
fn cores(demo: &mut Process, during: impl FnOnce() -> Result<(), BenchError>) -> Result<f64, BenchError> {
    let cost_of = |demo: &Process| cost::of_tree(demo.id()).ok_or_else(super::no_proc);
    let before = cost_of(demo)?;
    let begun = Instant::now();
    during()?;
    demo.check()?;
    Ok(cost_of(demo)?.cpu_s_since(&before) / begun.elapsed().as_secs_f64())
}

fn free_port() -> Result<u16, BenchError> {
    let address = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    Ok(address.map_err(BenchError::io("a free port"))?.port())
}

/// Where the data centres' pages are, once the first of them answers.
fn addresses(demo: &mut Process, port: u16) -> Result<Vec<SocketAddr>, BenchError> {
    #[derive(Deserialize)]
    struct Setup {
        sites: Vec<SiteBody>,
    }
    #[derive(Deserialize)]
    struct SiteBody {
        url: String,
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(BenchError::setup)?;
    let remote = Remote::at(format!("http://127.0.0.1:{port}"));
    let deadline = Instant::now() + PATIENCE;
    loop {
        demo.check()?;
        if let Ok(setup) = runtime.block_on(remote.get::<Setup>("/front/setup")) {
            let address = |site: SiteBody| site.url.trim_start_matches("http://").trim_end_matches('/').parse();
            return setup.sites.into_iter().map(address).collect::<Result<_, _>>().map_err(BenchError::setup);
        }
        if Instant::now() > deadline {
            return Err(BenchError::Patience { what: "the demo's page".to_owned(), waited_s: PATIENCE.as_secs() });
        }
        std::thread::sleep(POLL);
    }
}

// ---- the other process ----

/// A subscriber.
struct Watcher {
    stream: TcpStream,
    frames: Frames,
    updates: u64,
    /// An award is known by all that is said of it.
    awards: BTreeSet<Vec<u8>>,
}

/// All subscribers. They are looked at now and then, all in a row: the kernel keeps the bytes that come in between, and waking for each
/// message would cost the machine more than sending it.
#[derive(Clone, Default)]
struct Watchers(Arc<Mutex<Vec<Watcher>>>);

/// Opens all sockets, says `Ready`, waits for `start`, listens, says `Measured`, and what was told.
///
/// # Errors
/// A socket that was refused or ended; the first of them.
pub async fn watch(task: WatchTask) -> Result<WatchReport, Box<dyn Error>> {
    let watchers = Watchers::default();
    let looking = tokio::spawn(watchers.clone().keep_looking());
    let one = |subscriber: usize| {
        let address = task.addresses[subscriber % task.addresses.len()];
        let token = task.token.clone();
        let query = task.query.clone();
        async move {
            let mut stream = tokio::net::TcpStream::connect(address).await?;
            upgrade(&mut stream, address, &token, &query).await?;
            // The stream stays non-blocking.
            stream.into_std()
        }
    };
    open_all(task.subscribers, OPENING_MAX, one, |stream| watchers.add(stream)).await?;
    if !wait_for_start().await? {
        return Ok(WatchReport::default());
    }
    let updates_before = watchers.look()?;
    let awards_before = watchers.awards();
    let begun = Instant::now();
    sleep(Duration::from_secs_f64(task.seconds)).await;
    let updates = watchers.look()?;
    let awards = watchers.awards();
    let seconds = begun.elapsed().as_secs_f64();
    say(&Said::Measured)?;
    sleep(LAST_AWARDS).await;
    watchers.look()?;
    looking.abort();
    let known = &awards - &awards_before;
    let updates: Vec<u64> = updates.iter().zip(updates_before).map(|(after, before)| after - before).collect();
    Ok(WatchReport {
        updates_per_s: updates.iter().sum::<u64>() as f64 / task.subscribers as f64 / seconds,
        updates_per_s_min: updates.iter().min().copied().unwrap_or(0) as f64 / seconds,
        awards: known.len() as u64,
        missed: watchers.missed(&known) as u64,
    })
}

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, Vec<Watcher>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, stream: TcpStream) {
        let (frames, awards) = Default::default();
        self.lock().push(Watcher { stream, frames, updates: 0, awards });
    }

    /// Looks for ever. The end of a subscription is seen at the next look by the caller.
    async fn keep_looking(self) {
        while self.look().is_ok() {
            sleep(LOOK_INTERVAL).await;
        }
    }

    /// Reads all that has come; how many updates each was told so far.
    fn look(&self) -> io::Result<Vec<u64>> {
        let mut buffer = [0; BUFFER_BYTES];
        self.lock().iter_mut().map(|watcher| watcher.look(&mut buffer)).collect()
    }

    /// All awards that any subscriber received.
    fn awards(&self) -> BTreeSet<Vec<u8>> {
        self.lock().iter().flat_map(|watcher| watcher.awards.iter().cloned()).collect()
    }

    /// How many of these were not told to one of them, over all.
    fn missed(&self, known: &BTreeSet<Vec<u8>>) -> usize {
        self.lock().iter().map(|watcher| known.difference(&watcher.awards).count()).sum()
    }
}

impl Watcher {
    fn look(&mut self, buffer: &mut [u8]) -> io::Result<u64> {
        let Watcher { stream, frames, updates, awards } = self;
        loop {
            let bytes = match stream.read(buffer) {
                Ok(0) => return Err(io::Error::other("a subscriber has lost its connection")),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(*updates),
                Err(error) => return Err(error),
            };
            frames.take(&buffer[..bytes], |text| {
                *updates += u64::from(text.starts_with(TOTAL));
                if text.starts_with(AWARD) {
                    awards.insert(text.to_owned());
                }
            });
            // There was no more.
            if bytes < buffer.len() {
                return Ok(*updates);
            }
        }
    }
}
