//! Totals for WebSockets: what anybody watches is read once per interval, whoever and however many watch it.

use super::{Backend, Failure, LIVE_INTERVAL, READ_COUNTERS_MAX, WATCHED_COUNTERS_MAX};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tidemark_proto::ids::CounterName;
use tidemark_proto::msg::Reading;
use tokio::sync::{Notify, watch};

/// The latest totals of everything watched.
pub(super) type Latest = Arc<BTreeMap<CounterName, Reading>>;

/// What is watched, and its latest totals.
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
    pub async fn run<B: Backend>(&self, backend: &B) {
        loop {
            let counters: Vec<CounterName> = self.lock().keys().cloned().collect();
            if counters.is_empty() {
                self.more.notified().await;
                continue;
            }
            match read_all(backend, counters).await {
                Ok(read) => self.publish(read),
                Err(error) => tracing::debug!(%error, "no totals for WebSockets"),
            }
            tokio::time::sleep(LIVE_INTERVAL).await;
        }
    }

    fn publish(&self, read: BTreeMap<CounterName, Reading>) {
        self.latest.send_if_modified(|latest| {
            let changed = **latest != read;
            if changed {
                *latest = Arc::new(read);
            }
            changed
        });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<CounterName, usize>> {
        self.watched.lock().expect("nothing panics while it holds this")
    }
}

async fn read_all<B: Backend>(
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
