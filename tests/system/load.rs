//! A front end under load: hits with sessions on one counter and plain adds on another, each accounted for.

use crate::cluster::{PLAIN, QUERIES};
use crate::process::{WAIT_MAX, until_true};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tidemark_client::{Client, HitError};
use tidemark_proto::ids::SessionId;
use tidemark_proto::msg::Place;
use tidemark_server::names::parse_counter;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;

const TICK: Duration = Duration::from_millis(10);
/// Added to the plain counter at every tick.
const PLAIN_WEIGHT: u64 = 3;

/// The results of the hits.
#[derive(Debug, Default)]
pub struct Tally {
    /// Acknowledged: in a valve's committed log, whether or not its place is known.
    pub durable: AtomicU64,
    pub placed: AtomicU64,
    /// Counted, its place not learnt.
    pub place_unknown: AtomicU64,
    /// Unknown: counted zero times or once.
    pub unknown: AtomicU64,
    pub failed: AtomicU64,
    /// Why the first of these was not counted.
    pub first_failure: OnceLock<HitError>,
    pub plain: AtomicU64,
    /// Milestone and the winner's number.
    pub milestones: Mutex<Vec<(u64, u64)>>,
    /// How often each number was given out.
    pub numbers: Mutex<BTreeMap<u64, u64>>,
}

impl Tally {
    fn record(&self, outcome: Result<Place, HitError>) {
        let count = match outcome {
            Ok(place) => {
                self.record_place(place);
                &self.placed
            }
            Err(HitError::PlaceUnknown) => &self.place_unknown,
            Err(HitError::Unknown) => &self.unknown,
            Err(error) => {
                self.first_failure.get_or_init(|| error);
                &self.failed
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn record_place(&self, place: Place) {
        let number = match place {
            Place::Counted => return,
            Place::Number(number) => number,
            Place::Milestone { at, first } => {
                self.milestones.lock().unwrap().push((at, first));
                first
            }
        };
        *self.numbers.lock().unwrap().entry(number).or_default() += 1;
    }

    /// Acknowledged hits so far.
    pub fn acknowledged(&self) -> u64 {
        self.durable.load(Ordering::Relaxed)
    }
}

pub struct Load {
    pub tally: Arc<Tally>,
    client: Client,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Load {
    /// Counts at a steady rate until it is finished, whatever becomes of the answers.
    pub fn start(client: Client, hits_per_tick: usize) -> Load {
        let tally = Arc::new(Tally::default());
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(count(client.clone(), hits_per_tick, tally.clone(), stopped));
        Load { tally, client, stop, task }
    }

    /// Waits until this number of further hits was acknowledged.
    pub async fn until_further(&self, hits: u64) {
        let wanted = self.tally.acknowledged() + hits;
        until_true("further acknowledged hits", || self.tally.acknowledged() >= wanted).await;
    }

    /// Counts no more, and waits until everything is answered, perhaps as unknown; returns the number of acknowledged and of unknown hits.
    pub async fn finish_in_doubt(self) -> (u64, u64) {
        self.stop.send_replace(true);
        tokio::time::timeout(WAIT_MAX, self.task).await.expect("every hit is answered").unwrap();
        let _ = tokio::time::timeout(WAIT_MAX, self.client.flush()).await.expect("every add is answered");
        (self.tally.acknowledged(), self.tally.unknown.load(Ordering::Relaxed))
    }

    /// Counts no more, and waits until everything is answered. Nothing may be refused, and all of it known.
    pub async fn finish(self) -> Counted {
        self.stop.send_replace(true);
        tokio::time::timeout(WAIT_MAX, self.task).await.expect("every hit is answered").unwrap();
        tokio::time::timeout(WAIT_MAX, self.client.flush()).await.expect("every add is answered").unwrap();
        let tally = self.tally;
        let [unknown, failed] = [&tally.unknown, &tally.failed].map(|count| count.load(Ordering::Relaxed));
        assert_eq!((unknown, failed), (0, 0), "every hit is counted: {tally:?}");
        let placed = tally.placed.load(Ordering::Relaxed) + tally.place_unknown.load(Ordering::Relaxed);
        assert_eq!(placed, tally.acknowledged(), "what is acknowledged is placed: {tally:?}");
        let numbers = tally.numbers.lock().unwrap().clone();
        let milestones = tally.milestones.lock().unwrap().clone();
        Counted { queries: tally.acknowledged(), plain: tally.plain.load(Ordering::Relaxed), numbers, milestones }
    }
}

/// The acknowledged increments.
#[derive(Debug, Default)]
pub struct Counted {
    pub queries: u64,
    pub plain: u64,
    pub numbers: BTreeMap<u64, u64>,
    pub milestones: Vec<(u64, u64)>,
}

impl Counted {
    /// Of several front ends together.
    pub fn sum(all: impl IntoIterator<Item = Counted>) -> Counted {
        let mut sum = Counted::default();
        for counted in all {
            sum.queries += counted.queries;
            sum.plain += counted.plain;
            sum.milestones.extend(counted.milestones);
            for (number, times) in counted.numbers {
                *sum.numbers.entry(number).or_default() += times;
            }
        }
        sum.milestones.sort_unstable();
        sum
    }

    /// Waits until every view shows exactly what was acknowledged.
    pub async fn until_shown(&self, views: &[std::net::SocketAddr]) {
        crate::cluster::until_views_show(views, QUERIES, self.queries).await;
        crate::cluster::until_views_show(views, PLAIN, self.plain).await;
    }
}

async fn count(client: Client, hits_per_tick: usize, tally: Arc<Tally>, stopped: watch::Receiver<bool>) {
    let queries = parse_counter(QUERIES).unwrap();
    let plain = parse_counter(PLAIN).unwrap();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut answers = JoinSet::new();
    while !*stopped.borrow() {
        ticks.tick().await;
        client.add(&plain, PLAIN_WEIGHT).unwrap();
        tally.plain.fetch_add(PLAIN_WEIGHT, Ordering::Relaxed);
        for _ in 0..hits_per_tick {
            let hit = client.hit(&queries, SessionId(rand::random())).await.unwrap();
            let tally = tally.clone();
            answers.spawn(async move {
                let durable = u64::from(hit.durable().await.is_ok());
                tally.durable.fetch_add(durable, Ordering::Relaxed);
                tally.record(hit.await);
            });
        }
    }
    while let Some(answered) = answers.join_next().await {
        answered.unwrap();
    }
}
