//! The counters of a load: their names, their clients, and each client's next counter.

use std::error::Error;
use std::ops::Range;

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand_distr::{Distribution, Zipf};
use tidemark_proto::ids::{CounterName, NameError};

use super::Draw;
use crate::bench::cluster::NAMESPACE;

/// Spreads what is frequent over all keys: a prime, so that no two fall together.
const SPREAD: usize = 2_654_435_761;

/// Which of a client's counters comes next.
pub enum Keys {
    InTurn { next: usize, of: usize },
    Zipf { law: Zipf<f64>, of: usize, rng: Box<ChaCha8Rng> },
}

impl Keys {
    /// `first` of `of` keys is the first one in turn.
    ///
    /// # Errors
    /// There are none.
    pub fn new(draw: Draw, first: usize, of: usize, seed: u64) -> Result<Keys, Box<dyn Error>> {
        Ok(match draw {
            Draw::Zipf => {
                Keys::Zipf { law: Zipf::new(of as f64, 1.0)?, of, rng: Box::new(ChaCha8Rng::seed_from_u64(seed)) }
            }
            Draw::InTurn => Keys::InTurn { next: first, of },
        })
    }

    pub fn next(&mut self) -> usize {
        match self {
            Keys::InTurn { next, of } => {
                let this = *next;
                *next = (this + 1) % *of;
                this
            }
            Keys::Zipf { law, of, rng } => (law.sample(rng) as usize - 1).wrapping_mul(SPREAD) % *of,
        }
    }
}

/// Where a client's chance begins.
pub fn seed(of_task: u64, at: usize) -> u64 {
    of_task.wrapping_mul(1_000).wrapping_add(at as u64)
}

/// The share of a client.
pub fn part(keys: usize, clients: usize, at: usize) -> Range<usize> {
    keys * at / clients..keys * (at + 1) / clients
}

/// Names of keys begin with one of this number of tenants.
pub const TENANTS: usize = 100;

/// The name of a key, 24 bytes.
///
/// # Errors
/// None: it is short.
pub fn name(key: usize) -> Result<CounterName, NameError> {
    CounterName::new(NAMESPACE, format!("tenant-{:05}/page-{key:06}", key % TENANTS).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_24_bytes_and_are_shared_out_whole() {
        assert!([0, 99, 999_999].iter().all(|&key| name(key).unwrap().key().len() == 24));
        let parts: Vec<usize> = (0..3).flat_map(|at| part(10, 3, at)).collect();
        assert_eq!(parts, (0..10).collect::<Vec<_>>());
    }
}
