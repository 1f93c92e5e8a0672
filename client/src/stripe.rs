//! Counting without waiting: every thread has its own slot of a counter, which it alone writes.
//!
//! A slot is cumulative and belongs to the counter, not to the thread. A thread that ends leaves its counts, and the next thread with its
//! stripe goes on from there. The flusher only reads, and takes differences.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Threads that count without sharing a slot. Further ones share the last slot of each counter, with atomic additions.
pub(crate) const STRIPES: usize = 32;
/// The stripe of a thread that has none of its own.
const SHARED: usize = STRIPES;
const UNSET: usize = usize::MAX;

thread_local! {
    /// This thread's stripe. Without a destructor, so that reading it costs one load.
    static STRIPE: Cell<usize> = const { Cell::new(UNSET) };
    static LEASE: Lease = Lease::take();
}

/// Stripes in use, as bits, and the highest ever used.
static TAKEN: Mutex<u64> = Mutex::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);

const _: () = assert!(STRIPES < 64);

/// A stripe held by a thread until it ends.
struct Lease(usize);

impl Lease {
    fn take() -> Lease {
        let mut taken = TAKEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let stripe = (!*taken).trailing_zeros() as usize;
        if stripe >= STRIPES {
            return Lease(SHARED);
        }
        *taken |= 1 << stripe;
        USED.fetch_max(stripe + 1, Relaxed);
        Lease(stripe)
    }
}

impl Drop for Lease {
    /// The lock orders this thread's last store before the next owner's first load.
    fn drop(&mut self) {
        STRIPE.set(SHARED);
        if self.0 < STRIPES {
            *TAKEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) &= !(1 << self.0);
        }
    }
}

#[cold]
fn find_stripe() -> usize {
    let stripe = LEASE.try_with(|lease| lease.0).unwrap_or(SHARED);
    STRIPE.set(stripe);
    stripe
}

/// A cache line of its own for each slot, so that writers do not disturb each other.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Slot(AtomicU64);

/// The slots of one counter.
#[derive(Debug)]
pub(crate) struct Striped {
    own: [Slot; STRIPES],
    shared: Slot,
}

impl Striped {
    pub fn new() -> Striped {
        Striped { own: std::array::from_fn(|_| Slot::default()), shared: Slot::default() }
    }

    /// Adds. Wraps at 2^64, as does the difference that the flusher takes.
    #[inline]
    pub fn add(&self, n: u64) {
        let mut stripe = STRIPE.get();
        if stripe == UNSET {
            stripe = find_stripe();
        }
        match self.own.get(stripe) {
            Some(Slot(slot)) => slot.store(slot.load(Relaxed).wrapping_add(n), Relaxed),
            None => {
                self.shared.0.fetch_add(n, Relaxed);
            }
        }
    }

    /// All that was ever added, modulo 2^64. The adds of a thread are seen here at the latest when that thread asks, or another thread that
    /// it has synchronized with.
    pub fn sum(&self) -> u64 {
        let used = &self.own[..USED.load(Relaxed).min(STRIPES)];
        used.iter().fold(self.shared.0.load(Relaxed), |sum, Slot(slot)| sum.wrapping_add(slot.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn threads_that_end_lose_nothing_and_more_threads_than_stripes_do_not_either() {
        let striped = Striped::new();
        for _ in 0..3 {
            thread::scope(|scope| {
                for _ in 0..STRIPES + 10 {
                    scope.spawn(|| (0..1_000).for_each(|_| striped.add(3)));
                }
            });
        }
        assert_eq!(striped.sum(), 3 * (STRIPES as u64 + 10) * 1_000 * 3);
    }

    #[test]
    fn counting_in_a_destructor_of_a_thread_is_counted() {
        struct AddsLast(&'static Striped);
        impl Drop for AddsLast {
            fn drop(&mut self) {
                self.0.add(1);
            }
        }
        thread_local! { static LAST: Cell<Option<AddsLast>> = const { Cell::new(None) }; }
        let striped: &'static Striped = Box::leak(Box::new(Striped::new()));
        for _ in 0..20 {
            thread::spawn(move || {
                LAST.set(Some(AddsLast(striped)));
                striped.add(1);
            })
            .join()
            .unwrap();
        }
        assert_eq!(striped.sum(), 40);
    }
}
