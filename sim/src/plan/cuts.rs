//! Where views are cut into shards: of their own dice, so that the other runs stay what they are.

use super::{Fault, Plan};
use crate::rng::Rng;
use std::collections::BTreeSet;
use tidemark_proto::time::Time;

/// Number of 10,000 runs with several shards.
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

/// Number of 10,000 runs in which shards are split while they run, with several shards at first and without; and the most splits of a run.
const WITH_SPLITS_PER_10K: [u32; 2] = [6_000, 600];
const SPLITS_MAX: u64 = 4;

/// Splits of shards, in all data centres.
pub fn splits(rng: &mut Rng, plan: &Plan) -> Vec<(Time, Fault)> {
    let with = rng.per_10k(WITH_SPLITS_PER_10K[usize::from(plan.cuts.is_empty())]);
    let count = if with { rng.between(1, SPLITS_MAX) } else { 0 };
    let end = plan.safety_end.0;
    let mut order = || {
        let fault = Fault::SplitShard { dc: rng.below(plan.sites.len() as u64) as usize, dice: rng.next() };
        (Time(rng.between(end / 20, end)), fault)
    };
    (0..count).map(|_| order()).collect()
}

/// Of 10,000 runs with several shards, or splits, this number orders counters by a piece of their keys.
const LAID_PER_10K: u32 = 3_500;

/// By which piece of their keys counters lie: by the one that tells those with milestones from the others, or by their numbers, of which
/// both have the same ones.
pub fn laid(rng: &mut Rng, plan: &Plan) -> Option<u8> {
    let is_cut = !plan.cuts.is_empty() || plan.splits_shards();
    (rng.per_10k(LAID_PER_10K) && is_cut).then(|| *rng.pick(&[1, 2, 2, 2]))
}
