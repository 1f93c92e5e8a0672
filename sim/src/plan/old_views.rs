//! Old copies of the disks of views that take their places while a run goes on: of their own dice, so that the other runs stay what they
//! are.

use super::{Fault, Plan};
use crate::rng::Rng;
use tidemark_proto::time::{Span, Time};

/// Number of 10,000 runs in which a view's disk is replaced by an old copy of it.
const WITH_OLD_VIEWS_PER_10K: u32 = 2_500;
/// Most copies of a run.
const COPIES_MAX: u64 = 4;

/// The faults of views' disks.
pub fn faults(rng: &mut Rng, plan: &Plan) -> Vec<(Time, Fault)> {
    let copies = if rng.per_10k(WITH_OLD_VIEWS_PER_10K) { rng.between(1, COPIES_MAX) } else { 0 };
    (0..copies).flat_map(|_| copy(rng, plan)).collect()
}

fn copy(rng: &mut Rng, plan: &Plan) -> Vec<(Time, Fault)> {
    let end = plan.safety_end.0;
    let at = rng.below(plan.places().len() as u64) as usize;
    let longest = *rng.pick(&[1_000_000, 8_000_000, 40_000_000]);
    let after = rng.between(50_000, longest);
    let copied = rng.between(end / 30, end.saturating_sub(after).max(end / 30 + 1));
    let mut again: Vec<Span> = vec![Span(after)];
    if rng.per_10k(3_000) {
        again.push(Span(after + rng.between(200_000, 10_000_000)));
    }
    let mut faults = Vec::new();
    // Lives in between: what they gave out, the copy knows nothing of.
    for _ in 0..rng.below(3) {
        let crash = Fault::CrashAggregator { dc: at, outputs: rng.below(12), span: Span(rng.between(20_000, 900_000)) };
        faults.push((Time(copied + rng.below(after)), crash));
    }
    // News of the ledger comes late after that.
    if rng.per_10k(3_000) {
        let dc = if at < plan.sites.len() { at } else { plan.pairs[at - plan.sites.len()] };
        let cut = Fault::CutDc { dc, span: Span(rng.exponential(4e6) as u64 + 20_000) };
        faults.push((Time(copied + after - rng.below(after.min(1_000_000))), cut));
    }
    faults.push((Time(copied), Fault::OldView { at, after: again }));
    faults
}
