//! The increments of one counter that this process received. Experiments compare them with the counter's value.

use crate::sync::lock;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemark_proto::ids::CounterName;

/// The durable increments that came here to one counter.
pub struct Tally {
    counter: CounterName,
    sum: AtomicU64,
    /// An increment under a name is counted once, but may be answered often.
    names: Mutex<BTreeSet<[u8; 16]>>,
}

impl Tally {
    pub fn new(counter: CounterName) -> Tally {
        Tally { counter, sum: AtomicU64::new(0), names: Mutex::default() }
    }

    /// The durable sum so far.
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    /// Notes an increment.
    pub fn note(&self, counter: &CounterName, delta: u64) {
        if *counter == self.counter {
            self.sum.fetch_add(delta, Ordering::Relaxed);
        }
    }

    /// Notes increments of 1 that were counted under a name.
    pub fn note_named(&self, name: [u8; 16], counters: &[CounterName]) {
        if counters.contains(&self.counter) && lock(&self.names).insert(name) {
            self.sum.fetch_add(1, Ordering::Relaxed);
        }
    }
}
