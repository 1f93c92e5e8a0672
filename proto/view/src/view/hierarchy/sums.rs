//! The counts of both halves, all-time and in buckets: of one counter directly, or of all that flows to it.

use tidemark_types::ids::Half;
use tidemark_types::series::{Horizon, Totals};

/// Sums of both halves, modulo 2^64: right as long as the true ones are below that, after any order of additions and
/// subtractions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub(super) counts: [u64; 2],
    pub(super) buckets: [Totals; 2],
}

pub(super) const HALVES: [Half; 2] = [Half::Up, Half::Down];

impl Sums {
    /// All-time.
    pub fn count(&self, half: Half) -> u64 {
        self.counts[half as usize]
    }

    pub fn is_empty(&self) -> bool {
        self.counts == [0; 2] && self.buckets.iter().all(Totals::is_empty)
    }

    /// The number of buckets.
    pub(super) fn len(&self) -> usize {
        self.buckets.iter().map(Totals::len).sum()
    }

    /// Adds all-time counts, and the kept buckets.
    pub(super) fn add(&mut self, other: &Sums, horizon: Option<&Horizon>) {
        for half in 0..2 {
            self.counts[half] = self.counts[half].wrapping_add(other.counts[half]);
            if let Some(horizon) = horizon {
                self.buckets[half].add_totals(&other.buckets[half], Some(horizon));
            }
        }
    }

    /// Adds all buckets, kept or not.
    pub(super) fn add_all(&mut self, other: &Sums) {
        for half in 0..2 {
            self.counts[half] = self.counts[half].wrapping_add(other.counts[half]);
            self.buckets[half].add_totals(&other.buckets[half], None);
        }
    }

    pub(super) fn take_off(&mut self, other: &Sums, horizon: Option<&Horizon>) {
        for half in 0..2 {
            self.counts[half] = self.counts[half].wrapping_sub(other.counts[half]);
            if let Some(horizon) = horizon {
                self.buckets[half].take_off_totals(&other.buckets[half], horizon);
            }
        }
    }

    /// Drops buckets that are not kept.
    pub(super) fn expire(&mut self, horizon: Option<&Horizon>) {
        for buckets in &mut self.buckets {
            match horizon {
                Some(horizon) => drop(buckets.expire(horizon)),
                None => *buckets = Totals::default(),
            }
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.buckets.iter().map(Totals::heap_bytes).sum()
    }
}
