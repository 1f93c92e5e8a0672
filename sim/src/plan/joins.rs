//! Nodes that are added while a run counts, each with a group and its valves: of their own dice, so that the other runs stay what they are.

use super::leases::drift;
use super::{Fault, Moment, Plan};
use crate::rng::Rng;
use tidemark_proto::limits::AGGREGATORS_MAX;
use tidemark_proto::time::{Span, Time};

/// Number of 10,000 runs with nodes that are added.
const WITH_JOINS_PER_10K: u32 = 2_500;
/// Most nodes that are added in a run.
const JOINS_MAX: u64 = 3;
/// The processes of the data centre read the new layout after this at most, in microseconds: long before the faults are over.
const READ_AFTER_MAX_US: u64 = 4_000_000;
/// Clients that are moved to a group that joins, at most.
const MOVERS_MAX: u64 = 3;

/// The event when a group that joins greets the ledger for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeted {
    Quietly,
    /// An operator defines a milestone that the count is about to reach.
    WhileArming,
    /// Its data centre is cut off.
    CutOff(Span),
}

/// A group that joins.
#[derive(Clone, Debug)]
pub struct Join {
    pub group: usize,
    /// By seat: its data centre's aggregators read the new layout so long after the group was founded, by a restart.
    pub read_after: [Span; AGGREGATORS_MAX as usize],
    pub greeted: Greeted,
    /// Clients that are started anew with this group as their home, and how long after it was founded.
    pub movers: Vec<(usize, Span)>,
}

/// Adds the groups behind those of the plan, which so keep their numbers, and says what happens to them.
pub fn add(rng: &mut Rng, plan: &mut Plan) {
    if !rng.per_10k(WITH_JOINS_PER_10K) {
        return;
    }
    for _ in 0..rng.between(1, JOINS_MAX) {
        let neighbour = rng.below(plan.nodes.len() as u64) as usize;
        let group = plan.nodes.len();
        let replicas = plan.replicas[neighbour];
        plan.nodes.push(plan.nodes[neighbour]);
        plan.replicas.push(replicas);
        plan.leases.nodes_ppm.push(drift(rng));
        plan.joins.push(group);
        let faults = faults(rng, plan, group);
        plan.faults.extend(faults);
    }
}

fn faults(rng: &mut Rng, plan: &Plan, group: usize) -> Vec<(Time, Fault)> {
    let end = plan.safety_end.0;
    let at = Time(rng.between(end / 20, end * 7 / 10));
    let span = |rng: &mut Rng| Span(rng.exponential(4e6) as u64 + 20_000);
    let read_after = [(); AGGREGATORS_MAX as usize].map(|()| Span(rng.between(1_000, READ_AFTER_MAX_US)));
    let greeted = match rng.below(5) {
        0 => Greeted::Quietly,
        1 => Greeted::CutOff(span(rng)),
        _ => Greeted::WhileArming,
    };
    let mover = |rng: &mut Rng| (rng.below(plan.clients.len() as u64) as usize, Span(rng.below(6_000_000)));
    let movers: Vec<(usize, Span)> = (0..rng.between(1, MOVERS_MAX)).map(|_| mover(rng)).collect();
    let mut faults = Vec::new();
    if rng.per_10k(4_000) {
        // The leader at the time when the group's greeting is proposed.
        faults.push((at, Fault::LoseLeader { at: Moment::Join, cut: rng.per_10k(5_000), span: span(rng) }));
    }
    for &(client, after) in &movers {
        // Away for a while, and back.
        for _ in 0..rng.below(3) {
            let away = at + after + Span(rng.between(500_000, 15_000_000));
            faults.push((away, Fault::MoveClient { client, node: group }));
        }
    }
    for _ in 0..rng.below(3) {
        let crash = Fault::CrashNode { node: group, outputs: rng.below(12), span: Span(span(rng).0 / 4) };
        faults.push((at + Span(rng.between(100_000, 15_000_000)), crash));
    }
    faults.push((at, Fault::Join(Join { group, read_after, greeted, movers })));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_runs_has_groups_that_join_and_they_do_so_before_the_faults_end() {
        let plans: Vec<Plan> = (0..400).map(Plan::new).filter(|plan| !plan.joins.is_empty()).collect();
        assert!((70..130).contains(&plans.len()), "{}", plans.len());
        for plan in &plans {
            let joins: Vec<(Time, &Join)> =
                plan.faults.iter().filter_map(|(at, fault)| Some((*at, fault.join()?))).collect();
            assert_eq!(joins.iter().map(|(_, join)| join.group).collect::<Vec<_>>(), plan.joins);
            let first = plan.nodes.len() - plan.joins.len();
            assert_eq!(plan.joins, (first..plan.nodes.len()).collect::<Vec<_>>());
            assert!(plan.clients.iter().all(|&home| home < first), "nobody counts where nothing is yet");
            assert!(joins.iter().all(|(at, join)| join.read_after.iter().all(|&after| *at + after < plan.safety_end)));
            assert_eq!((plan.replicas.len(), plan.leases.nodes_ppm.len()), (plan.nodes.len(), plan.nodes.len()));
        }
    }
}
