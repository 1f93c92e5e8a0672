//! Increments with ids in a run: through which processes they come, how often they are sent again, and how long groups remember them.

use super::{Fault, Plan};
use crate::rng::Rng;
use tidemark_proto::limits::{IDS_KEPT_AGES, IDS_MAX};
use tidemark_proto::msg::IdTerms;
use tidemark_proto::time::Span;

/// Of 10,000 runs so many have increments with ids.
const WITH_IDS_PER_10K: u32 = 1_700;

/// Increments with ids.
#[derive(Clone, Debug)]
pub struct OncePlan {
    /// Processes that send them, each to all owners.
    pub doors: usize,
    /// Mean time between two that are sent.
    pub every: Span,
    /// Of 10,000 that are sent, so many are sent again.
    pub again_per_10k: u32,
    /// And so many come with their process's crash.
    pub crash_per_10k: u32,
    /// Data centres' groups that own ids.
    pub owners: Vec<usize>,
    pub terms: IdTerms,
    /// For how long an id is sent again.
    pub repeated_for: Span,
}

impl OncePlan {
    /// `plan` is complete but for this.
    pub fn drawn(rng: &mut Rng, plan: &Plan) -> Option<OncePlan> {
        let is_drawn = rng.per_10k(WITH_IDS_PER_10K);
        // A group that comes back without what it counted, or as a copy, remembers nothing of it: doors ask the ledger first.
        let forgets = |fault: &Fault| matches!(fault, Fault::LoseGroup { .. } | Fault::OldDisk { .. });
        if !is_drawn || plan.faults.iter().any(|(_, fault)| forgets(fault)) || plan.days.is_some() {
            return None;
        }
        let owners = (0..plan.nodes.len()).filter(|group| !plan.joins.contains(group)).collect();
        let is_forgetful = plan.forgetting.kept < IDS_KEPT_AGES;
        let kept = if is_forgetful { rng.between(3, 8) as u32 } else { IDS_KEPT_AGES };
        let max = if rng.per_10k(2_000) { rng.between(20, 200) as u32 } else { IDS_MAX };
        Some(OncePlan {
            doors: rng.between(2, 4) as usize,
            every: Span::from_millis(rng.between(20, 200)),
            again_per_10k: rng.between(3_000, 8_000) as u32,
            crash_per_10k: rng.between(0, 200) as u32,
            owners,
            terms: IdTerms { kept, max },
            repeated_for: Span(plan.forgetting.age_unit.0 * u64::from(kept)),
        })
    }
}
