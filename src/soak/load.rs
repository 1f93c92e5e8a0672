//! The front ends of a soak, and what they know: how much they have counted, and what they were told of it.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tidemark_client::{AddLoss, Client, CounterName, Hit, HitError, Place, SessionId};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::cluster::{NAMESPACE, SoakCluster};

/// The counter of hits, with milestones.
pub const HITS: &str = "hits";
/// Counters of adds, without.
const KEYS: usize = 200;
/// Of so many increments one is a hit.
pub const INCREMENTS_PER_HIT: u64 = 5;
const TICK: Duration = Duration::from_millis(10);
/// A data centre that cannot be reached for so long is left.
const SITE_TIMEOUT: Duration = Duration::from_secs(3);

/// What the front ends know.
#[derive(Debug, Default)]
pub struct Counted {
    pub hits: AtomicU64,
    pub durable: AtomicU64,
    pub unknown: AtomicU64,
    /// Surely not counted.
    pub failed: AtomicU64,
    pub longest_us: AtomicU64,
    /// By key: added, and of that surely not counted, and of unknown fate.
    pub adds: Mutex<Vec<Added>>,
    /// How often a hit was told to be this milestone.
    pub won: Mutex<BTreeMap<u64, u64>>,
    /// What front ends could not finish.
    pub unfinished: Mutex<Vec<String>>,
}

/// Of one key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Added {
    pub added: u64,
    pub failed: u64,
    pub unknown: u64,
}

/// The front ends at work.
pub struct Load {
    counted: Arc<Counted>,
    stop: watch::Sender<bool>,
    front_ends: Vec<JoinHandle<()>>,
}

/// The counter of a key.
pub fn key(number: usize) -> CounterName {
    CounterName::new(NAMESPACE, format!("key-{number}").as_bytes()).expect("a name that may be")
}

pub fn hits() -> CounterName {
    CounterName::new(NAMESPACE, HITS.as_bytes()).expect("a name that may be")
}

impl Load {
    /// A front end for each data centre, which go on until [`Load::finish`].
    pub async fn start(cluster: &SoakCluster, rate: u64, seed: u64) -> Result<Load, Box<dyn Error>> {
        let counted = Arc::new(Counted { adds: Mutex::new(vec![Added::default(); KEYS]), ..Counted::default() });
        let (stop, stopped) = watch::channel(false);
        let mut front_ends = Vec::new();
        for dc in 0..cluster.dcs() {
            let told = counted.clone();
            let builder = Client::builder().credentials(cluster.client_credentials()?).site_timeout(SITE_TIMEOUT);
            let sites = cluster.sites_from(dc).into_iter();
            let builder = sites.fold(builder, |builder, site| builder.site(site));
            let client = builder.on_loss(move |loss| told.lose(&loss)).connect().await?;
            let per_s = rate as f64 / cluster.dcs() as f64;
            let work =
                count(client, per_s, ChaCha8Rng::seed_from_u64(seed ^ dc as u64), counted.clone(), stopped.clone());
            front_ends.push(tokio::spawn(work));
        }
        Ok(Load { counted, stop, front_ends })
    }

    /// Counts no more, and waits until everything is answered, for so long at most.
    pub async fn finish(self, within: Duration) -> Arc<Counted> {
        self.stop.send_replace(true);
        for (dc, front_end) in self.front_ends.into_iter().enumerate() {
            if timeout(within, front_end).await.is_err() {
                self.counted
                    .unfinished
                    .lock()
                    .expect("nobody panics")
                    .push(format!("the front end of data centre {dc} was not answered within {} s", within.as_secs()));
            }
        }
        self.counted
    }
}

impl Counted {
    fn lose(&self, loss: &AddLoss) {
        let (AddLoss::Failed { counter, weight, .. } | AddLoss::Unknown { counter, weight, .. }) = loss;
        let number = (0..KEYS).find(|&number| key(number) == *counter);
        let mut adds = self.adds.lock().expect("nobody panics");
        if let Some(added) = number.and_then(|number| adds.get_mut(number)) {
            match loss {
                AddLoss::Failed { .. } => added.failed += weight,
                AddLoss::Unknown { .. } => added.unknown += weight,
            }
        }
    }

    fn durable_after(&self, after: Duration) {
        self.durable.fetch_add(1, Ordering::Relaxed);
        self.longest_us.fetch_max(after.as_micros() as u64, Ordering::Relaxed);
    }

    fn placed(&self, outcome: Result<Place, HitError>) {
        match outcome {
            Ok(Place::Milestone { at, .. }) => {
                *self.won.lock().expect("nobody panics").entry(at).or_default() += 1;
            }
            Ok(_) | Err(HitError::PlaceUnknown) => {}
            Err(HitError::Unknown) => drop(self.unknown.fetch_add(1, Ordering::Relaxed)),
            Err(_) => drop(self.failed.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

async fn count(client: Client, per_s: f64, mut rng: ChaCha8Rng, counted: Arc<Counted>, stopped: watch::Receiver<bool>) {
    let (hits, keys): (_, Vec<CounterName>) = (hits(), (0..KEYS).map(key).collect());
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (start, mut done, mut answers) = (Instant::now(), 0_u64, JoinSet::new());
    while !*stopped.borrow() {
        ticks.tick().await;
        let due = (start.elapsed().as_secs_f64() * per_s) as u64;
        while done < due {
            done += 1;
            if done.is_multiple_of(INCREMENTS_PER_HIT) {
                let Ok(hit) = client.hit(&hits, SessionId(rng.random())).await else { continue };
                counted.hits.fetch_add(1, Ordering::Relaxed);
                answers.spawn(follow(hit, counted.clone()));
            } else {
                let number = rng.random_range(0..KEYS);
                if client.add(&keys[number], 1).is_ok() {
                    counted.adds.lock().expect("nobody panics")[number].added += 1;
                }
            }
        }
        while answers.try_join_next().is_some() {}
    }
    while answers.join_next().await.is_some() {}
    if let Err(error) = client.flush().await {
        counted.unfinished.lock().expect("nobody panics").push(format!("a flush at the end: {error}"));
    }
}

async fn follow(hit: Hit, counted: Arc<Counted>) {
    let begun = Instant::now();
    if hit.durable().await.is_ok() {
        counted.durable_after(begun.elapsed());
    }
    counted.placed(hit.await);
}
