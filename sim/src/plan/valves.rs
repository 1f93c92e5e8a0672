//! Valves that are added while it counts: of their own dice, so that the other runs stay what they are.

use super::{Fault, Plan};
use crate::rng::Rng;
use tidemark_proto::time::{Span, Time};

/// Number of 10,000 runs with groups that get more valves.
const WITH_MORE_PER_10K: u32 = 2_500;
/// Most changes in a run, and most valves that one adds.
const CHANGES_MAX: u64 = 3;
const ADDED_MAX: u64 = 3;
/// Between the restarts of two processes of a group, in microseconds: long enough for leaders to come and go between them.
const GAP_US: (u64, u64) = (50_000, 6_000_000);

/// Operators write larger numbers of valves into the configurations of groups and restart their processes, one after the other.
pub fn faults(rng: &mut Rng, plan: &Plan) -> Vec<(Time, Fault)> {
    if !rng.per_10k(WITH_MORE_PER_10K) {
        return Vec::new();
    }
    let end = plan.safety_end.0;
    let change = |rng: &mut Rng| {
        let group = rng.below(plan.nodes.len() as u64) as usize;
        let lanes = plan.lanes + rng.between(1, ADDED_MAX) as u8;
        let gap = Span(rng.between(GAP_US.0, GAP_US.1));
        (Time(rng.between(end / 20, end * 8 / 10)), Fault::AddValves { group, lanes, gap })
    };
    (0..rng.between(1, CHANGES_MAX)).map(|_| change(rng)).collect()
}
