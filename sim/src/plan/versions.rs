//! Which processes of a run are of the next version: of their own dice, so that the runs stay what they are.

use crate::party::Party;
use crate::rng::Rng;

/// Number of 10,000 runs with processes of two versions.
const MIXED_PER_10K: u32 = 3_333;

/// Each start of a process draws its version anew. So a process that crashes may come back upgraded, or in the version from before an
/// upgrade.
#[derive(Clone, Debug)]
pub struct VersionPlan {
    /// Number of 10,000 starts in the next version.
    next_per_10k: u32,
    rng: Rng,
}

impl VersionPlan {
    pub(super) fn drawn(mut rng: Rng) -> VersionPlan {
        let mixed = rng.per_10k(MIXED_PER_10K);
        let next = *rng.pick(&[1_000, 5_000, 9_000]);
        VersionPlan { next_per_10k: if mixed { next } else { 0 }, rng }
    }

    /// Whether there are any.
    pub fn is_mixed(&self) -> bool {
        self.next_per_10k > 0
    }

    /// Whether a process is of the next version since that start. A client's process starts once.
    pub fn is_next(&self, process: Party, start: u32) -> bool {
        let (kind, number) = match process {
            Party::Aggregator(at) => (1, at),
            Party::Node(node) => (2, node),
            Party::Client { client, .. } => (3, client),
        };
        let concern = kind << 56 | (number as u64) << 24 | u64::from(start);
        self.is_mixed() && self.rng.fork(concern).per_10k(self.next_per_10k)
    }

    /// Draws what stands in tails.
    pub fn tails(&self) -> Rng {
        self.rng.fork(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_runs_has_both_versions_and_a_process_may_change_its_own() {
        let plans: Vec<VersionPlan> = (0..3_000).map(|seed| VersionPlan::drawn(Rng::new(seed))).collect();
        let mixed: Vec<&VersionPlan> = plans.iter().filter(|plan| plan.is_mixed()).collect();
        assert!((900..1_100).contains(&mixed.len()), "{}", mixed.len());
        fn next(plan: &VersionPlan, start: u32) -> bool {
            plan.is_next(Party::Node(3), start)
        }
        let [upgraded, taken_back] = [(false, true), (true, false)]
            .map(|both| mixed.iter().filter(|plan| (next(plan, 1), next(plan, 2)) == both).count());
        assert!(upgraded > 100 && taken_back > 100, "{upgraded} {taken_back}");
        assert!(plans.iter().filter(|plan| !plan.is_mixed()).all(|plan| (0..99).all(|start| !next(plan, start))));
    }
}
