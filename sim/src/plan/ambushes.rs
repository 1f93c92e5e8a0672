//! Leaders of the ledger that are lost while a milestone is armed or a generation is revoked: of their own dice, so that the other runs
//! stay what they are.

use super::{Fault, Moment, Plan};
use crate::rng::Rng;
use tidemark_proto::time::{Span, Time};

/// Number of 10,000 runs that lie in wait for these moments.
const WITH_AMBUSHES_PER_10K: u32 = 4_000;
/// Most of a run.
const AMBUSHES_MAX: u64 = 4;
/// How long a leader is away, in microseconds: most of them not for long.
const AWAY_US: (u64, f64) = (20_000, 4e6);

/// Faults that wait for what they are named after.
pub fn faults(rng: &mut Rng, plan: &Plan) -> Vec<(Time, Fault)> {
    let count = if rng.per_10k(WITH_AMBUSHES_PER_10K) { rng.between(1, AMBUSHES_MAX) } else { 0 };
    let end = plan.safety_end.0;
    let fault = |rng: &mut Rng| {
        let at = *rng.pick(&[Moment::Arming, Moment::Revocation]);
        let span = Span(rng.exponential(AWAY_US.1) as u64 + AWAY_US.0);
        (Time(rng.between(end / 100, end * 9 / 10)), Fault::LoseLeader { at, cut: rng.per_10k(4_000), span })
    };
    (0..count).map(|_| fault(rng)).collect()
}
