//! Totals for subscribers: each watched counter is read and written once per interval, for any number of subscribers.

use super::body::{LiveBody, ReadingBody};
use super::feed::Frame;
use super::{AggregatorProcess, Failure, LIVE_INTERVAL, READ_COUNTERS_MAX, WATCHED_COUNTERS_MAX};
use axum::extract::ws::Utf8Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tidemark_proto::ids::CounterName;
use tidemark_proto::msg::Reading;
use tokio::sync::{Notify, watch};
use tokio::time::MissedTickBehavior;

/// The latest totals of everything watched.
pub(super) type Latest = Arc<BTreeMap<CounterName, Total>>;

/// The shown part of a reading.
pub(super) type Shown = (u32, u64, u64, u64);

/// A total as it is told.
#[derive(Clone)]
pub(super) struct Total {
    /// Generation, both halves and pending: a total depends on no ledger index that moved without it.
    shown: Shown,
    text: Utf8Bytes,
}

/// The watched counters, and their latest totals.
pub(super) struct Totals {
    /// How many watch each counter.
    watched: Mutex<BTreeMap<CounterName, usize>>,
    more: Notify,
    latest: watch::Sender<Latest>,
}

/// Some watched counters; until it is dropped.
pub(super) struct Watching {
    totals: Arc<Totals>,
    pub counters: Vec<CounterName>,
    pub latest: watch::Receiver<Latest>,
}

impl Totals {
    pub fn new() -> Arc<Totals> {
        Arc::new(Totals {
            watched: Mutex::default(),
            more: Notify::new(),
            latest: watch::Sender::new(Latest::default()),
        })
    }

    /// Watches the counters, distinct ones.
    pub fn watch(self: &Arc<Totals>, counters: Vec<CounterName>) -> Result<Watching, Failure> {
        let mut watched = self.lock();
        let new = counters.iter().filter(|counter| !watched.contains_key(counter)).count();
        if watched.len() + new > WATCHED_COUNTERS_MAX {
            return Err(Failure::Overloaded { what: "watched counters".into(), limit: WATCHED_COUNTERS_MAX as u64 });
        }
        counters.iter().for_each(|counter| *watched.entry(counter.clone()).or_default() += 1);
        self.more.notify_one();
        Ok(Watching { totals: self.clone(), counters, latest: self.latest.subscribe() })
    }

    /// Reads what is watched, for ever; asleep while nothing is.
    pub async fn run<B: AggregatorProcess>(&self, backend: &B) {
        // The time of reading is part of the interval; a late read is not made up for.
        let mut interval = tokio::time::interval(LIVE_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let counters: Vec<CounterName> = self.lock().keys().cloned().collect();
            if counters.is_empty() {
                self.more.notified().await;
                continue;
            }
            interval.tick().await;
            match read_all(backend, counters).await {
                Ok(read) => self.publish(read),
                Err(error) => tracing::debug!(%error, "no totals for subscribers"),
            }
        }
    }

    fn publish(&self, read: BTreeMap<CounterName, Reading>) {
        self.latest.send_if_modified(|latest| {
            let same = |(counter, reading): (&CounterName, &Reading)| {
                latest.get(counter).is_some_and(|total| total.shown == shown(reading))
            };
            let changed = latest.len() != read.len() || !read.iter().all(same);
            if changed {
                let total = |(counter, reading): (CounterName, Reading)| {
                    let known = latest.get(&counter).filter(|total| total.shown == shown(&reading));
                    let total = known.cloned().unwrap_or_else(|| Total::new(&counter, &reading));
                    (counter, total)
                };
                *latest = Arc::new(read.into_iter().map(total).collect());
            }
            changed
        });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<CounterName, usize>> {
        self.watched.lock().expect("nothing panics while it holds this")
    }
}

impl Total {
    pub fn new(counter: &CounterName, reading: &Reading) -> Total {
        Total { shown: shown(reading), text: LiveBody::Total(ReadingBody::new(counter, reading)).text().into() }
    }

    /// The message for a subscriber that was last told `told`.
    pub fn news(&self, told: &mut Option<Shown>) -> Option<Frame> {
        // A reading from before the last message is none.
        let (generation, up, down, _) = self.shown;
        let later = |told: Shown| told.0 < generation || (told.0 == generation && told.1 <= up && told.2 <= down);
        let is_new = told.is_none_or(|told| told != self.shown && later(told));
        if is_new {
            *told = Some(self.shown);
        }
        is_new.then(|| Frame { text: self.text.clone(), position: None })
    }
}

fn shown(reading: &Reading) -> Shown {
    (reading.generation, reading.up, reading.down, reading.pending)
}

async fn read_all<B: AggregatorProcess>(
    backend: &B,
    counters: Vec<CounterName>,
) -> Result<BTreeMap<CounterName, Reading>, Failure> {
    let mut readings = Vec::with_capacity(counters.len());
    for some in counters.chunks(READ_COUNTERS_MAX) {
        readings.extend(backend.read(some).await?);
    }
    Ok(counters.into_iter().zip(readings).collect())
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut watched = self.totals.lock();
        for counter in &self.counters {
            if let Some(watchers) = watched.get_mut(counter) {
                *watchers -= 1;
                if *watchers == 0 {
                    watched.remove(counter);
                }
            }
        }
    }
}
