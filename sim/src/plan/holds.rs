//! Views that take little at a time, beside nodes that hold batches for them: of their own dice, so that the other runs stay what they
//! are.

use crate::rng::Rng;
use tidemark_proto::time::Span;

/// Number of 10,000 runs in which batches are held.
const HELD_PER_10K: u32 = 1_500;

/// Settings of all nodes and aggregators of a run.
#[derive(Clone, Copy, Debug)]
pub struct HoldPlan {
    /// How far a view may be behind.
    pub behind_max: Span,
    /// The bytes that it takes at a time, if no entry is larger.
    pub chunk_bytes: u32,
    /// Changes that a node keeps: as many as make lag where other runs walk.
    pub ring_capacity: usize,
}

impl HoldPlan {
    pub fn drawn(rng: &mut Rng) -> Option<HoldPlan> {
        let behind_max = Span(*rng.pick(&[1_000, 5_000, 20_000, 100_000]));
        let chunk_bytes = *rng.pick(&[1, 60, 300]);
        let plan = HoldPlan { behind_max, chunk_bytes, ring_capacity: 1 << 12 };
        rng.per_10k(HELD_PER_10K).then_some(plan)
    }
}
