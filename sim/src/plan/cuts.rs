//! Where views are cut into shards: of their own dice, so that the other runs stay what they are.

use crate::rng::Rng;
use std::collections::BTreeSet;

/// Of 10,000 runs in so many views are cut.
const CUT_PER_10K: u32 = 2_500;
/// The most cuts of one.
const CUTS_MAX: u64 = 3;

/// Counters, by their numbers, that begin a range each.
pub fn drawn(rng: &mut Rng, counters: usize) -> BTreeSet<usize> {
    if !rng.per_10k(CUT_PER_10K) {
        return BTreeSet::new();
    }
    (0..rng.between(1, CUTS_MAX)).map(|_| rng.below(counters as u64) as usize).collect()
}
