//! Counters since the start.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Counters {
    pub requests: Counter,
    pub refused: Counter,
    pub body_bytes: Counter,
    pub accepted: Counter,
    pub dead_letters: Counter,
    pub duplicates: Counter,
    pub repeated: Counter,
    pub over_quota: Counter,
    /// Dead letters that were listed without masks.
    pub letters_raw: Counter,
    pub queries: Counter,
    /// Of queries: reads from the store, their bytes and their time, and blobs that needed none.
    pub reads: Counter,
    pub read_bytes: Counter,
    pub read_us: Counter,
    pub reads_shared: Counter,
    pub blobs_cached: Counter,
    pub blobs_read: Counter,
    pub commits: Counter,
    pub store_errors: Counter,
    pub archive_errors: Counter,
    pub sessions_failed: Counter,
    /// Changed certificates or keys that could not be used.
    pub certificates_refused: Counter,
    /// Of a query process.
    pub pins_again: Counter,
    pub answers_of_blobs: Counter,
    pub blobs_gone: Counter,
    pub snapshots: Counter,
    pub feeds_broken: Counter,
}
