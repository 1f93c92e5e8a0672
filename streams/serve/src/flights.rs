//! Reads that several queries want at the same time: one of them reads, and all have the result.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

type Running<V> = WeakShared<BoxFuture<'static, V>>;

/// Reads that run now, by what they read. A read goes on while one of its queries waits.
pub struct Flights<K: Ord, V: Clone> {
    running: Mutex<BTreeMap<K, Running<V>>>,
}

/// Whether a query began a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Reads,
    Waits,
}

/// Forgets a read when its last query leaves it.
struct Leaves<'f, K: Ord + Copy, V: Clone> {
    flights: &'f Flights<K, V>,
    key: K,
}

impl<K: Ord, V: Clone> Default for Flights<K, V> {
    fn default() -> Flights<K, V> {
        Flights { running: Mutex::default() }
    }
}

impl<K: Ord + Copy, V: Clone + Send + Sync + 'static> Flights<K, V> {
    /// The result of a read, which begins unless it runs already.
    pub async fn join(&self, key: K, read: impl FnOnce() -> BoxFuture<'static, V>) -> (V, Role) {
        let leaves = Leaves { flights: self, key };
        let Joined { shared, role } = self.begin(key, read);
        let read = shared.await;
        drop(leaves);
        (read, role)
    }

    fn begin(&self, key: K, read: impl FnOnce() -> BoxFuture<'static, V>) -> Joined<V> {
        let mut running = self.running();
        if let Some(shared) = running.get(&key).and_then(WeakShared::upgrade) {
            return Joined { shared, role: Role::Waits };
        }
        let shared = read().shared();
        if let Some(weak) = shared.downgrade() {
            running.insert(key, weak);
        }
        Joined { shared, role: Role::Reads }
    }
}

struct Joined<V: Clone> {
    shared: Shared<BoxFuture<'static, V>>,
    role: Role,
}

impl<K: Ord, V: Clone> Flights<K, V> {
    fn running(&self) -> MutexGuard<'_, BTreeMap<K, Running<V>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Copy, V: Clone> Drop for Leaves<'_, K, V> {
    fn drop(&mut self) {
        let mut running = self.flights.running();
        if running.get(&self.key).is_some_and(|read| read.upgrade().is_none()) {
            running.remove(&self.key);
        }
    }
}
