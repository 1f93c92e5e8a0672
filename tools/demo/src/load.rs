//! `tidemark demo-load`: the demo's load generator, in a process of its own so that it cannot lend the cluster its time, nor
//! the cluster its. It is told what to do by lines on its standard input and reports by lines on its standard output.

pub mod front_end;
pub mod site;
pub mod tally;

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use thiserror::Error;
use tidemark_proto::client::{AddError, ClientConfig};
use tidemark_proto::ids::{CounterName, NameError, OwnerId};
use tidemark_proto::limits::DELTA_MAX;
use tidemark_proto::time::Span;
use tidemark_transport::certs::FileError;
use tidemark_transport::{BindError, Credentials, Endpoint, EndpointOptions, PeerName, Role};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use self::front_end::FrontEnd;
use self::site::{ColdCells, Phase, SharedTally, Site, Targets, lock};
use self::tally::{Latencies, SiteTally};
use super::arrivals::{Arrivals, Pattern};
use super::messages::{FromLoad, Load, LoadReport, LoadSite, Tally, ToLoad};
use super::query_log::{Replay, mix};
use tidemark::local::GROUP;
use tidemark_client::GroupSite;

const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How often a condition is looked at that no event tells of.
const POLL: Duration = Duration::from_millis(5);
/// All front ends are connected within this, or the load fails.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// A baseline is durable within this.
const BASELINE_TIMEOUT: Duration = Duration::from_secs(30);
/// Buffer of one front end: a million hits, ten minutes of one of 150 at 70,000/s with a node that is gone for as long.
const BUFFER_BYTES_MAX: usize = 96 << 20;
/// Lines of commands that may wait.
const COMMANDS_MAX: usize = 16;

/// Why the load could not be brought.
#[derive(Debug, Error)]
pub enum LoadError {
    #[error("standard output: {0}")]
    Io(#[from] std::io::Error),
    #[error("a message cannot be encoded: {0}")]
    Encode(#[from] serde_json::Error),
    #[error("the first message must be the load")]
    NoLoad,
    #[error(transparent)]
    Credentials(#[from] FileError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Dc(#[from] tidemark_transport::certs::NameError),
    #[error("a front end refused: {0}")]
    Add(#[from] AddError),
    #[error("{connected} of {wanted} front ends were connected after {waited_s} s")]
    NotConnected { connected: usize, wanted: usize, waited_s: u64 },
    #[error("the baseline was not durable after {waited_s} s")]
    Baseline { waited_s: u64 },
}

/// Runs the load generator until it is told to stop.
///
/// # Errors
/// A [`LoadError`], which has also been said on standard output.
pub fn run() -> Result<(), LoadError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(serve(read_commands()));
    if let Err(error) = &result {
        say(&FromLoad::Failed { reason: error.to_string() })?;
    }
    result
}

fn say(message: &FromLoad) -> Result<(), LoadError> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, message)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

async fn serve(mut commands: mpsc::Receiver<ToLoad>) -> Result<(), LoadError> {
    let Some(ToLoad::Load(load)) = commands.recv().await else { return Err(LoadError::NoLoad) };
    let mut generator = Generator::new(load)?;
    generator.connect().await?;
    say(&FromLoad::Ready)?;
    let drain = generator.obey(commands).await?;
    generator.finish(drain).await
}

/// Commands as they come, read by a thread that ends with the process; the end of input, or a line that is none, ends them.
fn read_commands() -> mpsc::Receiver<ToLoad> {
    let (sender, receiver) = mpsc::channel(COMMANDS_MAX);
    std::thread::spawn(move || {
        let lines = std::io::stdin().lock().lines().map_while(Result::ok);
        let commands = lines.map_while(|line| serde_json::from_str(&line).ok());
        for command in commands {
            if sender.blocking_send(command).is_err() {
                return;
            }
        }
    });
    receiver
}

struct Generator {
    load: Load,
    origin: Instant,
    origin_unix_us: u64,
    started_us: Option<u64>,
    phase: watch::Sender<Phase>,
    tallies: Vec<SharedTally>,
    /// Told of every milestone.
    found: Arc<Notify>,
    endpoints: Vec<Endpoint>,
    sites: JoinSet<()>,
}

impl Generator {
    fn new(load: Load) -> Result<Generator, LoadError> {
        let origin = Instant::now();
        let origin_unix_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let (phase, _) = watch::channel(Phase::Connecting);
        let tallies = Vec::new();
        let found = Arc::default();
        let endpoints = Vec::new();
        let sites = JoinSet::new();
        let mut generator =
            Generator { load, origin, origin_unix_us, started_us: None, phase, tallies, found, endpoints, sites };
        (0..generator.load.sites.len()).try_for_each(|at| generator.add_site(at))?;
        Ok(generator)
    }

    fn add_site(&mut self, at: usize) -> Result<(), LoadError> {
        let endpoint = bind(&self.load.sites[at])?;
        let tally = SharedTally::default();
        lock(&tally).found = self.found.clone();
        let site = Site {
            front_ends: self.front_ends(at, &endpoint)?,
            arrivals: self.arrivals(at),
            cold: self.cold_cells(at)?,
            endpoint: endpoint.clone(),
            targets: Arc::new(targets(&self.load, at)?),
            tally: tally.clone(),
            origin: self.origin,
        };
        self.tallies.push(tally);
        self.endpoints.push(endpoint);
        self.sites.spawn(site::run(site, self.phase.subscribe()));
        Ok(())
    }

    fn front_ends(&self, at: usize, endpoint: &Endpoint) -> Result<Vec<FrontEnd>, LoadError> {
        let counter = CounterName::new(&self.load.namespace, self.load.key.as_bytes())?;
        let per_dc = self.load.clients_per_dc;
        let config = client_config(&self.load, at, endpoint);
        let front_end = |number: usize| {
            let replay = Replay::new(number, per_dc * self.load.sites.len(), self.load.seed);
            FrontEnd::new(config.clone(), rand::random(), &counter, replay)
        };
        Ok((at * per_dc..(at + 1) * per_dc).map(front_end).collect::<Result<_, _>>()?)
    }

    /// Rates of different data centres swing in different phases.
    fn arrivals(&self, at: usize) -> Arrivals {
        let Load { sites, pattern, swing, seed, .. } = &self.load;
        let phase = swing.then_some(at as f64 / sites.len() as f64);
        Arrivals::new(sites[at].rate_per_s, *pattern, phase, mix(seed ^ mix(at as u64)))
    }

    fn cold_cells(&self, at: usize) -> Result<Option<ColdCells>, LoadError> {
        let Load { sites, cold_cells, cold_period_s, namespace, .. } = &self.load;
        let own = (at..*cold_cells).step_by(sites.len());
        let names = own.map(|cell| CounterName::new(namespace, super::cold_key(cell).as_bytes()));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        if names.is_empty() {
            return Ok(None);
        }
        let rate_per_s = names.len() as f64 / (*cold_period_s).max(1) as f64;
        Ok(Some(ColdCells::new(names, Arrivals::new(rate_per_s, Pattern::Even, None, 0))))
    }

    async fn connect(&self) -> Result<(), LoadError> {
        let wanted = self.load.clients_per_dc * self.load.sites.len();
        let connected = || self.tallies.iter().map(|tally| lock(tally).connected).sum::<usize>();
        let waited = timeout(CONNECT_TIMEOUT, async {
            while connected() < wanted {
                tokio::time::sleep(POLL).await;
            }
        });
        let late = |_| LoadError::NotConnected { connected: connected(), wanted, waited_s: CONNECT_TIMEOUT.as_secs() };
        waited.await.map_err(late)
    }

    /// Carries out commands and reports until it is told to stop; how long it may then wait for answers.
    async fn obey(&mut self, mut commands: mpsc::Receiver<ToLoad>) -> Result<Duration, LoadError> {
        let mut reports = interval(REPORT_INTERVAL);
        reports.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let found = self.found.clone();
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(ToLoad::Start) => self.start(),
                    Some(ToLoad::Baseline { amount }) => self.baseline(amount).await?,
                    Some(ToLoad::Load(_)) => {}
                    Some(ToLoad::Stop { drain_ms }) => return Ok(Duration::from_millis(drain_ms)),
                    None => return Ok(Duration::ZERO),
                },
                _ = reports.tick() => say(&FromLoad::Tick(self.tally()))?,
                () = found.notified() => self.say_milestones()?,
            }
        }
    }

    fn now_us(&self) -> u64 {
        self.origin.elapsed().as_micros() as u64
    }

    fn start(&mut self) {
        let since_us = self.now_us();
        self.started_us = Some(since_us);
        self.phase.send_replace(Phase::Running { since_us });
    }

    /// A further front end, named `baseline`, adds it at the first site, in increments as large as allowed.
    async fn baseline(&self, amount: u64) -> Result<(), LoadError> {
        let first = Load { clients_per_dc: 1, ..self.load.clone() };
        let counter = CounterName::new(&first.namespace, first.key.as_bytes())?;
        let endpoint =
            bind(&LoadSite { credentials: baseline_credentials(&first.sites[0]), ..first.sites[0].clone() })?;
        let config = ClientConfig { batch_items_max: 1, ..client_config(&first, 0, &endpoint) };
        let mut front_end = FrontEnd::new(config, rand::random(), &counter, Replay::new(0, 1, 0))?;
        let mut left = amount;
        while left > 0 {
            let delta = left.min(DELTA_MAX);
            front_end.add(self.now_us(), &counter, delta)?;
            left -= delta;
        }
        let tally = SharedTally::default();
        let site = Site {
            front_ends: vec![front_end],
            arrivals: Arrivals::new(f64::MIN_POSITIVE, Pattern::Even, None, 0),
            cold: None,
            endpoint,
            targets: Arc::new(targets(&first, 0)?),
            tally: tally.clone(),
            origin: self.origin,
        };
        let (_alive, phases) = watch::channel(Phase::Connecting);
        tokio::select! {
            () = site::run(site, phases) => {}
            () = until(|| lock(&tally).counts.cold_acknowledged >= amount) => return say(&FromLoad::BaselineDone),
            () = tokio::time::sleep(BASELINE_TIMEOUT) => {}
        }
        Err(LoadError::Baseline { waited_s: BASELINE_TIMEOUT.as_secs() })
    }

    fn tally(&self) -> Tally {
        let mut ack = Latencies::default();
        let sites = self.tallies.iter().map(|tally| {
            let tally = lock(tally);
            ack.merge(&tally.ack);
            tally.counts.clone()
        });
        let sites = sites.collect();
        let elapsed_us = self.started_us.map_or(0, |started_us| self.now_us() - started_us);
        Tally { elapsed_ms: elapsed_us / 1_000, sites, ack: ack.summary() }
    }

    fn say_milestones(&self) -> Result<(), LoadError> {
        let found: Vec<_> = self.tallies.iter().map(|tally| std::mem::take(&mut lock(tally).milestones)).collect();
        if found.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let sequenced = self.tallies.iter().map(|tally| lock(tally).counts.sequenced).sum();
        for (site, milestones) in found.into_iter().enumerate() {
            for mut hit in milestones {
                hit.site = site;
                hit.sequenced = sequenced;
                hit.sent_unix_us += self.origin_unix_us;
                hit.durable_unix_us += self.origin_unix_us;
                hit.placed_unix_us += self.origin_unix_us;
                say(&FromLoad::Milestone(hit))?;
            }
        }
        Ok(())
    }

    fn sum(&self, of: impl Fn(&SiteTally) -> u64) -> u64 {
        self.tallies.iter().map(|tally| of(&lock(tally))).sum()
    }

    async fn finish(mut self, drain: Duration) -> Result<(), LoadError> {
        self.phase.send_replace(Phase::Draining);
        // One tick of every site: the counts here are those that it says after its last sending.
        tokio::time::sleep(2 * POLL).await;
        let deadline = tokio::time::Instant::now() + drain;
        let _ = tokio::time::timeout_at(deadline, until(|| self.sum(|tally| tally.unacknowledged) == 0)).await;
        let last_ack_us = self.tallies.iter().map(|tally| lock(tally).last_ack_us).max().unwrap_or(0);
        say(&FromLoad::Acknowledged {
            last_ack_unix_us: self.origin_unix_us + last_ack_us,
            hits: self.sum(|tally| tally.counts.acknowledged),
            cold: self.sum(|tally| tally.counts.cold_acknowledged),
        })?;
        let answered = || self.sum(|tally| tally.unanswered) == 0;
        let _ = tokio::time::timeout_at(deadline, until(answered)).await;
        self.say_milestones()?;
        say(&FromLoad::Done(Box::new(self.report())))?;
        self.sites.abort_all();
        Ok(())
    }

    fn report(&self) -> LoadReport {
        let mut placement = Latencies::default();
        let mut lateness = Latencies::default();
        for tally in &self.tallies {
            let tally = lock(tally);
            placement.merge(&tally.placement);
            lateness.merge(&tally.lateness);
        }
        LoadReport {
            tally: self.tally(),
            placement: placement.summary(),
            lateness: lateness.summary(),
            unanswered: self.sum(|tally| tally.unanswered),
        }
    }
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(POLL).await;
    }
}

fn bind(site: &LoadSite) -> Result<Endpoint, LoadError> {
    let credentials = Credentials::load(&site.credentials)?;
    Ok(Endpoint::bind(([127, 0, 0, 1], 0).into(), credentials, EndpointOptions::of(Role::Client))?)
}

/// Beside the front ends' own.
pub fn baseline_credentials(site: &LoadSite) -> std::path::PathBuf {
    site.credentials.with_file_name("baseline")
}

fn client_config(load: &Load, at: usize, endpoint: &Endpoint) -> ClientConfig {
    ClientConfig {
        owner: OwnerId(endpoint.identity().digest()),
        sites: 1 + load.sites[at].neighbours.len() as u16,
        flush_interval: Span::from_millis(load.flush_ms),
        gather_max: Some(Span::from_millis(load.flush_ms)),
        buffer_bytes_max: BUFFER_BYTES_MAX,
        ..ClientConfig::default()
    }
}

/// The node of the own data centre first, then the neighbours'.
fn targets(load: &Load, at: usize) -> Result<Targets, LoadError> {
    let order = std::iter::once(&at).chain(&load.sites[at].neighbours);
    let target = |&site: &usize| {
        let site = &load.sites[site];
        Ok(GroupSite::new([site.node.into()].into(), PeerName::any(&site.name, Role::Node)?, GROUP.into()))
    };
    order.map(target).collect()
}
