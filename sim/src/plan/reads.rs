//! Reads that ask for what was durable when they began, and for what an earlier answer had: of their own dice, so that the other runs stay
//! what they are.

use super::{Fault, Plan};
use crate::rng::Rng;
use tidemark_proto::time::Span;

/// Number of 10,000 runs with such reads, except runs in which a group loses its counts.
const WITH_READS_PER_10K: u32 = 1_200;

/// Reads that wait for the groups of their data centre.
#[derive(Clone, Debug)]
pub struct ReadPlan {
    /// Mean time between two that begin.
    pub every: Span,
    /// Number of 10,000 reads that ask for at least the version of an earlier answer.
    pub at_least_per_10k: u32,
}

impl ReadPlan {
    /// `plan` is complete but for this.
    pub fn drawn(rng: &mut Rng, plan: &Plan) -> Option<ReadPlan> {
        let is_drawn = rng.per_10k(WITH_READS_PER_10K);
        let forgets = |fault: &Fault| matches!(fault, Fault::LoseGroup { .. } | Fault::OldDisk { .. });
        let reads = ReadPlan {
            every: Span::from_millis(*rng.pick(&[20, 60, 200])),
            at_least_per_10k: *rng.pick(&[3_000, 7_000]),
        };
        (is_drawn && !plan.faults.iter().any(|(_, fault)| forgets(fault))).then_some(reads)
    }
}
