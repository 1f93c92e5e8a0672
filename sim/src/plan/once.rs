//! Increments with ids in a run: through which processes they come, how often they are sent again, and how long groups remember them.

use super::{Fault, Forgetting, Plan};
use crate::rng::Rng;
use tidemark_proto::limits::{IDS_KEPT_AGES, IDS_MAX};
use tidemark_proto::msg::IdTerms;
use tidemark_proto::time::Span;

/// Number of 10,000 runs with ids, except runs in which a group loses its memory.
const WITH_IDS_PER_10K: u32 = 1_200;
/// Number of 10,000 such runs with ids that are forgotten within seconds, and number with room for a few ids only.
const SHORT_LIVED_PER_10K: u32 = 5_000;
const LITTLE_ROOM_PER_10K: u32 = 2_000;

/// Increments with ids.
#[derive(Clone, Debug)]
pub struct OncePlan {
    /// The aggregators with processes that send them, each to all owners: by number of their places.
    pub doors: Vec<usize>,
    /// Mean time between two that are sent.
    pub every: Span,
    /// Number of 10,000 sends that are repeated without need.
    pub again_per_10k: u32,
    /// Number of 10,000 sends that come with the crash of a door.
    pub crash_per_10k: u32,
    /// A caller without an answer sends again after this, through another door if there is one.
    pub patience: Span,
    /// Groups that own ids.
    pub owners: Vec<usize>,
    pub terms: IdTerms,
    /// For how long after the first time an id is sent again.
    pub repeated_for: Span,
}

impl OncePlan {
    /// A run's increments with ids, and how soon its groups forget then. `plan` is complete but for this.
    pub fn drawn(rng: &mut Rng, plan: &Plan) -> Option<(OncePlan, Forgetting)> {
        let is_drawn = rng.per_10k(WITH_IDS_PER_10K);
        // A group that comes back without what it counted, or as a copy, remembers nothing of it: processes ask the ledger first.
        let forgets = |fault: &Fault| matches!(fault, Fault::LoseGroup { .. } | Fault::OldDisk { .. });
        if !is_drawn || plan.faults.iter().any(|(_, fault)| forgets(fault)) {
            return None;
        }
        let short_lived = rng.per_10k(SHORT_LIVED_PER_10K);
        let age_unit = rng.between(300, 800);
        let streams = rng.between(30, 60);
        let ids = rng.between(3, 8);
        let age_unit = Span::from_millis(age_unit);
        let streams = streams as u32;
        let ids = ids as u32;
        // Streams are remembered for longer than ids, as they are outside of runs.
        let compacts = plan.forgetting.compacts;
        let renew_after = Span(age_unit.0 * u64::from(streams) / 4);
        let soon = Forgetting { age_unit, kept: streams, renew_after, compacts };
        let forgetting = if short_lived { soon } else { Forgetting { compacts, ..Forgetting::late() } };
        let kept = if short_lived { ids } else { IDS_KEPT_AGES };
        let max = if rng.per_10k(LITTLE_ROOM_PER_10K) { rng.between(20, 200) as u32 } else { IDS_MAX };
        let once = OncePlan {
            doors: doors(rng, plan),
            every: Span::from_millis(*rng.pick(&[3, 20, 100])),
            again_per_10k: rng.between(1_000, 6_000) as u32,
            crash_per_10k: rng.between(0, 200) as u32,
            patience: Span::from_millis(rng.between(100, 1_200)),
            owners: (0..plan.nodes.len()).filter(|group| !plan.joins.contains(group)).collect(),
            terms: IdTerms { kept, max },
            repeated_for: Span(forgetting.age_unit.0 * u64::from(kept)),
        };
        Some((once, forgetting))
    }
}

/// Two to four aggregators: some of one data centre, where it has several, and some of others.
fn doors(rng: &mut Rng, plan: &Plan) -> Vec<usize> {
    let places = plan.places().len();
    let mut doors = Vec::new();
    if !plan.pairs.is_empty() && rng.per_10k(7_000) {
        let second = rng.below(plan.pairs.len() as u64) as usize;
        doors = vec![plan.pairs[second], plan.sites.len() + second];
    }
    let count = rng.between(2, 4).min(places as u64) as usize;
    while doors.len() < count {
        let door = rng.below(places as u64) as usize;
        if !doors.contains(&door) {
            doors.push(door);
        }
    }
    doors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_eleventh_run_or_so_has_ids_through_several_aggregators() {
        let plans: Vec<Plan> = (10_000..13_000).map(Plan::new).collect();
        let once: Vec<(&Plan, &OncePlan)> = plans.iter().filter_map(|plan| Some((plan, plan.once.as_ref()?))).collect();
        assert!((230..340).contains(&once.len()), "{}", once.len());
        let home = |plan: &Plan, at: usize| if at < plan.sites.len() { at } else { plan.pairs[at - plan.sites.len()] };
        let is_pair = |plan: &Plan, doors: &[usize]| {
            let homes: Vec<usize> = doors.iter().map(|&at| home(plan, at)).collect();
            (1..homes.len()).any(|at| homes[..at].contains(&homes[at]))
        };
        let pairs = once.iter().filter(|(plan, once)| is_pair(plan, &once.doors)).count();
        let far =
            once.iter().filter(|(plan, once)| once.doors.iter().any(|&at| home(plan, at) != home(plan, once.doors[0])));
        let far = far.count();
        let short = once.iter().filter(|(_, once)| once.terms.kept < IDS_KEPT_AGES).count();
        assert!(pairs > 20 && far > 150 && short > 100, "{pairs} {far} {short}");
        assert!(once.iter().all(|(plan, once)| once.doors.len() > 1 || plan.places().len() == 1));
    }
}
