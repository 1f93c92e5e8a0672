//! The front ends of a soak: each counts at its data centre as long as it can, and writes down what it asked for and what it was told.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tidemark_client::{AddLoss, Client, CounterName, FlushError, Hit, HitError, Place};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::account::session;
use super::cluster::{NAMESPACE, SoakCluster};
use super::edges::Changer;
use super::log::{Entry, LOGS_BYTES_MAX, Log, LogFile, Told};

/// The counter of hits, with milestones; all front ends count it.
pub const HITS: &str = "hits";
/// Counters of adds of each front end. No other front end counts them, so a loss of one front end is not hidden by a double count of
/// another; and there are many, so that losses and double counts seldom meet on one.
pub const KEYS: usize = 500;
/// Of this number of increments one is a hit.
pub const INCREMENTS_PER_HIT: u64 = 5;
const TICK: Duration = Duration::from_millis(10);
/// Adds are flushed so often, as the one before has come back.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// A data centre that cannot be reached for so long is left.
const SITE_TIMEOUT: Duration = Duration::from_secs(3);

/// The front ends at work.
pub struct Load {
    longest_us: Arc<AtomicU64>,
    stop: watch::Sender<bool>,
    front_ends: Vec<(JoinHandle<Result<(), String>>, LogFile)>,
}

/// The result of the load, besides its logs.
#[derive(Debug, Default)]
pub struct Finished {
    /// Longest time from a hit to its durable answer.
    pub longest_ms: f64,
    pub logs_bytes: u64,
    /// Tasks that front ends could not finish or write down.
    pub unfinished: Vec<String>,
}

/// A counter of adds of a front end.
pub fn key(front_end: usize, number: usize) -> CounterName {
    CounterName::new(NAMESPACE, format!("key-{front_end}-{number}").as_bytes()).expect("a name that may be")
}

pub fn hits() -> CounterName {
    CounterName::new(NAMESPACE, HITS.as_bytes()).expect("a name that may be")
}

impl Load {
    /// A front end for each data centre, which go on until [`Load::finish`], and write their logs into a folder.
    pub async fn start(cluster: &SoakCluster, logs: &Path, rate: u64, seed: u64) -> Result<Load, Box<dyn Error>> {
        let (longest_us, (stop, stopped)) = (Arc::<AtomicU64>::default(), watch::channel(false));
        let mut front_ends = Vec::new();
        let dcs = cluster.dcs();
        for dc in 0..dcs {
            let mut rng = ChaCha8Rng::seed_from_u64(seed ^ dc as u64);
            let sessions = rng.random();
            let file = LogFile::create(logs, dc, sessions, LOGS_BYTES_MAX / dcs as u64)?;
            let log = file.log();
            let losses = file.log();
            let keys: Vec<CounterName> = (0..KEYS).map(|number| key(dc, number)).collect();
            let numbers = keys.iter().cloned().zip(0..).collect();
            let builder = Client::builder().credentials(cluster.client_credentials()?).site_timeout(SITE_TIMEOUT);
            let sites = cluster.sites_from(dc).into_iter();
            let builder = sites.fold(builder, |builder, site| builder.site(site));
            let client = builder.on_loss(move |loss| _ = losses.write(lost(&numbers, &loss))).connect().await?;
            let hits = hits();
            let longest_us = longest_us.clone();
            let added = BTreeMap::new();
            let edge_rng = ChaCha8Rng::seed_from_u64(rng.random());
            let client_of_edges = client.clone();
            let changer =
                Changer { client: client_of_edges, log: log.clone(), rng: edge_rng, front_end: dc, front_ends: dcs };
            let front_end =
                FrontEnd { client, log, rng, sessions, hits, keys, longest_us, asked: 0, added, interval: 0 };
            let counts = front_end.run(rate as f64 / dcs as f64, stopped.clone());
            let counts = async { counts.await.map_err(|error| format!("a flush at the end: {error}")) };
            let changes = changer.run(stopped.clone());
            // If one of them ends early, the other one is still accounted for.
            let work = async {
                let (counted, changed) = tokio::join!(counts, changes);
                let changed = changed.map_err(|error| format!("changes of edges: {error}"));
                let errors: Vec<String> = [counted, changed].into_iter().filter_map(Result::err).collect();
                if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
            };
            front_ends.push((tokio::spawn(work), file));
        }
        Ok(Load { longest_us, stop, front_ends })
    }

    /// Counts no more, waits until everything is answered, for so long at most, and ends the logs.
    pub async fn finish(self, within: Duration) -> Finished {
        self.stop.send_replace(true);
        let mut finished = Finished::default();
        for (dc, (mut front_end, file)) in self.front_ends.into_iter().enumerate() {
            let told = match timeout(within, &mut front_end).await {
                Ok(Ok(told)) => told,
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("not answered within {} s", within.as_secs())),
            };
            front_end.abort();
            let written = file.finish().map_err(|error| format!("its log: {error}"));
            finished.logs_bytes += written.as_ref().copied().unwrap_or_default();
            let why = [told.err(), written.err()].into_iter().flatten();
            finished.unfinished.extend(why.map(|why| format!("the front end of data centre {dc}: {why}")));
        }
        finished.longest_ms = self.longest_us.load(Ordering::Relaxed) as f64 / 1_000.0;
        finished
    }
}

fn lost(numbers: &BTreeMap<CounterName, usize>, loss: &AddLoss) -> Entry {
    match loss {
        AddLoss::Failed { counter, weight, .. } => Entry::RefusedAdd { counter: numbers[counter], weight: *weight },
        AddLoss::Unknown { counter, weight, .. } => Entry::UnknownAdd { counter: numbers[counter], weight: *weight },
    }
}

struct FrontEnd {
    client: Client,
    log: Log,
    rng: ChaCha8Rng,
    sessions: u64,
    hits: CounterName,
    keys: Vec<CounterName>,
    longest_us: Arc<AtomicU64>,
    /// Hits, so far.
    asked: u64,
    /// Since the last flush was asked for: weight by number of the counter.
    added: BTreeMap<usize, u64>,
    /// Flushes, so far.
    interval: u64,
}

impl FrontEnd {
    /// Counts until it is told to stop or its log takes no more, and until everything is answered.
    async fn run(mut self, per_s: f64, stopped: watch::Receiver<bool>) -> Result<(), FlushError> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let start = Instant::now();
        let mut done = 0_u64;
        let mut answers = JoinSet::new();
        let mut flushed = start;
        let mut flush = self.flush();
        let mut is_written = true;
        while is_written && !*stopped.borrow() {
            ticks.tick().await;
            let due = (start.elapsed().as_secs_f64() * per_s) as u64;
            while done < due && is_written {
                done += 1;
                match done.is_multiple_of(INCREMENTS_PER_HIT) {
                    true => is_written = self.hit(&mut answers).await,
                    false => self.add(),
                }
            }
            if flushed.elapsed() >= FLUSH_EVERY && flush.is_finished() {
                flush.await.expect("nobody panics")?;
                (flushed, flush) = (Instant::now(), self.flush());
            }
            while answers.try_join_next().is_some() {}
        }
        for flush in [flush, self.flush()] {
            flush.await.expect("nobody panics")?;
        }
        while answers.join_next().await.is_some() {}
        Ok(())
    }

    /// Writes a hit down, and counts it; whether it could be written.
    async fn hit(&mut self, answers: &mut JoinSet<()>) -> bool {
        let number = self.asked + 1;
        if !self.log.write(Entry::Asked(number)) {
            return false;
        }
        self.asked = number;
        match self.client.hit(&self.hits, session(self.sessions, number)).await {
            Ok(hit) => drop(answers.spawn(follow(hit, number, self.log.clone(), self.longest_us.clone()))),
            Err(_) => _ = self.log.write(Entry::Told(number, Told::Refused)),
        }
        true
    }

    fn add(&mut self) {
        let number = self.rng.random_range(0..KEYS);
        *self.added.entry(number).or_default() += 1;
        if self.client.add(&self.keys[number], 1).is_err() {
            self.log.write(Entry::RefusedAdd { counter: number, weight: 1 });
        }
    }

    /// Writes down what was added since the last time, and that it is settled once it is.
    fn flush(&mut self) -> JoinHandle<Result<(), FlushError>> {
        self.interval += 1;
        let interval = self.interval;
        let weights = std::mem::take(&mut self.added);
        self.log.write(Entry::Added { interval, weights });
        let client = self.client.clone();
        let log = self.log.clone();
        tokio::spawn(async move {
            match client.flush().await {
                // Losses are reported by counter.
                Ok(()) | Err(FlushError::Losses { .. }) => _ = log.write(Entry::Settled { interval }),
                Err(error @ FlushError::Closed) => return Err(error),
            }
            Ok(())
        })
    }
}

async fn follow(hit: Hit, number: u64, log: Log, longest_us: Arc<AtomicU64>) {
    let begun = Instant::now();
    if hit.durable().await.is_ok() {
        longest_us.fetch_max(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
        log.write(Entry::Told(number, Told::Durable));
    }
    log.write(Entry::Told(number, told(hit.await)));
}

fn told(outcome: Result<Place, HitError>) -> Told {
    match outcome {
        Ok(Place::Counted) => Told::Counted,
        Ok(Place::Number(number)) => Told::Number(number),
        Ok(Place::Milestone { at, first }) => Told::Milestone { at, first },
        Err(HitError::PlaceUnknown) => Told::Placeless,
        Err(HitError::Unknown | HitError::Closed) => Told::Unknown,
        Err(HitError::Name(_) | HitError::Time(_) | HitError::Overloaded { .. } | HitError::Failed(_)) => Told::Refused,
    }
}
