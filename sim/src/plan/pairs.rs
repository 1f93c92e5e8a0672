//! Data centres with two aggregators, and what happens to them: of their own dice, so that the other runs stay what they are.

use super::{Fault, Plan};
use crate::rng::Rng;
use tidemark_proto::time::{Span, Time};

/// Number of 10,000 runs with data centres of two aggregators.
const WITH_PAIRS_PER_10K: u32 = 3_000;
/// Number of 10,000 data centres of such a run with two, beside the one that has two in any case.
const PAIRED_PER_10K: u32 = 3_000;

/// Of 10,000 data centres with two aggregators in a run with several shards, this number has more, up to the given maximum.
const SPLIT_PER_10K: u32 = 7_000;
const FURTHER_MAX: u64 = 3;

/// Data centres with a second aggregator, ascending.
pub fn drawn(rng: &mut Rng, dcs: usize) -> Vec<usize> {
    let with = rng.per_10k(WITH_PAIRS_PER_10K);
    let one = rng.below(dcs as u64) as usize;
    let paired: Vec<usize> = (0..dcs).filter(|&dc| rng.per_10k(PAIRED_PER_10K) || dc == one).collect();
    if with { paired } else { Vec::new() }
}

/// Further aggregators of data centres with two, where views are cut: each holds some of the shards then.
pub fn further(rng: &mut Rng, paired: &[usize]) -> Vec<usize> {
    let mut further = Vec::new();
    for &dc in paired {
        if !rng.per_10k(SPLIT_PER_10K) {
            continue;
        }
        let count = rng.between(1, FURTHER_MAX) as usize;
        further.extend(std::iter::repeat_n(dc, count));
    }
    further
}

/// The faults of paired aggregators, beside those of all.
pub fn faults(rng: &mut Rng, plan: &Plan) -> Vec<(Time, Fault)> {
    let count = if plan.pairs.is_empty() { 0 } else { *rng.pick(&[0, 6, 15]) };
    let end = plan.safety_end.0;
    let mut fault = || {
        let at = Time(rng.between(end / 20, end));
        let pair = rng.below(plan.pairs.len() as u64) as usize;
        let first = plan.pairs[pair];
        let second = plan.sites.len() + pair;
        let either = *rng.pick(&[first, second]);
        let span = Span(rng.exponential(5e6) as u64 + 20_000);
        let fault = match rng.below(11) {
            0..=2 => Fault::CrashAggregator { dc: either, outputs: rng.below(12), span },
            3 => Fault::CutAggregator { at: either, span },
            4 => Fault::BreakPeers { a: first, b: second },
            5 => Fault::WipeView { at: either, span },
            6 => Fault::BreakFeeds { at: either },
            7 | 8 => Fault::CutFromLeader { at: either, span },
            _ => Fault::SetAside {
                at: either,
                span: Span(span.0 + 3_000_000),
                after: Span(rng.between(100_000, 3_000_000)),
            },
        };
        (at, fault)
    };
    (0..count).map(|_| fault()).collect()
}

/// Number of 10,000 runs with split views in which shards are moved, and their maximum.
const WITH_MOVES_PER_10K: u32 = 8_000;
const MOVES_MAX: u64 = 8;
/// Number of 10,000 moves that are cancelled, and the longest time until then.
const STAYS_PER_10K: u32 = 1_500;
const STAYS_AFTER_MAX: Span = Span::from_secs(4);

/// Moves of shards between the aggregators of a data centre.
pub fn shard_moves(rng: &mut Rng, plan: &Plan) -> Vec<(Time, Fault)> {
    let of = |dc: usize| plan.pairs.iter().filter(|&&other| other == dc).count();
    let split: Vec<usize> = (0..plan.sites.len()).filter(|&dc| of(dc) > 1).collect();
    let with = rng.per_10k(WITH_MOVES_PER_10K);
    let count = if split.is_empty() || !with { 0 } else { rng.between(1, MOVES_MAX) };
    let end = plan.safety_end.0;
    let mut order = || {
        let stays = Span(rng.between(1, STAYS_AFTER_MAX.0));
        let stays = rng.per_10k(STAYS_PER_10K).then_some(stays);
        let fault = Fault::MoveShard { dc: *rng.pick(&split), dice: rng.next(), stays };
        (Time(rng.between(end / 20, end)), fault)
    };
    (0..count).map(|_| order()).collect()
}
