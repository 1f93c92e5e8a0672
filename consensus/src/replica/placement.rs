//! From the members a group has to those it should have: one step at a time, each safe on its own.

use std::collections::{BTreeMap, BTreeSet};

use super::identity::node_of;
use crate::raft::Metrics;

/// A learner may lack this many entries when it is made a voter: under load it always lacks some.
const CATCH_UP_ENTRIES_MAX: u64 = 64;

/// A leader's knowledge of its group.
pub(super) struct Known<'a> {
    pub own: u64,
    /// Nodes that should have a voter each.
    pub placement: &'a [u32],
    pub metrics: &'a Metrics,
    /// The voters of a change that an earlier leader began.
    pub changes_to: Option<BTreeSet<u64>>,
    /// The member that answers on each node, as far as it was asked, among members that are placed by their own layout.
    pub present: &'a BTreeMap<u32, u64>,
    /// Nodes that answer that they are not placed.
    pub leaving: &'a BTreeSet<u32>,
    /// Nodes with a voter that has answered the leader lately.
    pub heard: &'a BTreeSet<u32>,
}

/// A change of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    AddLearner(u64),
    ChangeVoters(BTreeSet<u64>),
    RemoveLearners(BTreeSet<u64>),
    /// This member is to go: another must lead first.
    Transfer(u64),
}

/// The next step; `None` when nothing is to be changed or nothing can be now.
///
/// The next change of the members, if any. A voter goes only when another disk of its node answers and has caught up. It also goes when its
/// node is not placed any more, all placed nodes have a voter, and none of them has another disk that is to be one; never because it is
/// down. A voter that is not placed and runs goes only when all placed members are heard, and by its own layout too: while layouts differ,
/// no member is taken out that the next leader takes in again.
pub(super) fn next_step(known: &Known) -> Option<Step> {
    if let Some(voters) = &known.changes_to {
        return Some(Step::ChangeVoters(voters.clone()));
    }
    let joins = known.placement.iter().find_map(|node| known.join(*node));
    joins.or_else(|| known.forget_learners()).or_else(|| known.remove_unplaced())
}

impl Known<'_> {
    fn voters(&self) -> impl Iterator<Item = u64> {
        self.metrics.voters.iter().copied()
    }

    fn has_caught_up(&self, member: u64) -> bool {
        let has = self.metrics.matched.get(&member).copied().flatten();
        has.is_some_and(|has| self.metrics.last_log.unwrap_or(0).saturating_sub(has) <= CATCH_UP_ENTRIES_MAX)
    }

    /// Makes the present disk of a node a voter, in the place of an earlier one.
    fn join(&self, node: u32) -> Option<Step> {
        let present = *self.present.get(&node)?;
        match () {
            () if self.metrics.voters.contains(&present) => None,
            () if !self.metrics.learners.contains(&present) => Some(Step::AddLearner(present)),
            () if !self.has_caught_up(present) => None,
            () => {
                let stay = self.voters().filter(|voter| node_of(*voter) != node);
                Some(Step::ChangeVoters(stay.chain([present]).collect()))
            }
        }
    }

    /// Learners on a node that is not placed, or that has another disk now.
    fn forget_learners(&self) -> Option<Step> {
        let is_gone = |learner: u64| {
            let node = node_of(learner);
            match self.present.get(&node) {
                Some(present) => *present != learner,
                None => !self.placement.contains(&node),
            }
        };
        let gone: BTreeSet<u64> = self.metrics.learners.iter().copied().filter(|learner| is_gone(*learner)).collect();
        (!gone.is_empty()).then_some(Step::RemoveLearners(gone))
    }

    fn remove_unplaced(&self) -> Option<Step> {
        let is_joining = |node: &u32| self.present.get(node).is_some_and(|disk| !self.metrics.voters.contains(disk));
        let has_voter = |node: &u32| self.voters().any(|voter| node_of(voter) == *node) && !is_joining(node);
        if self.placement.is_empty() || !self.placement.iter().all(has_voter) {
            return None;
        }
        let is_placed = |voter: &u64| self.placement.contains(&node_of(*voter));
        let is_heard = |node: u32| node == node_of(self.own) || self.heard.contains(&node);
        let all_heard = self.placement.iter().all(|node| is_heard(*node));
        let may_go = |voter: &u64| {
            let node = node_of(*voter);
            *voter == self.own || !is_heard(node) || all_heard && self.leaving.contains(&node)
        };
        let mut unplaced: Vec<u64> = self.voters().filter(|voter| !is_placed(voter)).filter(may_go).collect();
        unplaced.sort_by_key(|voter| *voter == self.own);
        match *unplaced.first()? {
            own if own == self.own => {
                let is_willing = |voter: &u64| self.present.get(&node_of(*voter)) == Some(voter);
                let willing = self.voters().filter(is_placed).filter(is_willing);
                let mut may_lead = willing.filter(|voter| is_heard(node_of(*voter)));
                may_lead.find(|voter| self.has_caught_up(*voter)).map(Step::Transfer)
            }
            other => Some(Step::ChangeVoters(self.voters().filter(|voter| *voter != other).collect())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::member_id;
    use super::*;

    /// Disk `a` of nodes 1 to 3, led by node 1.
    fn three() -> Metrics {
        let voters: BTreeSet<u64> = (1..=3).map(a).collect();
        let matched = voters.iter().map(|voter| (*voter, Some(500))).collect();
        Metrics { is_leader: true, last_log: Some(500), voters, matched, ..Metrics::default() }
    }

    /// Nothing is heard of it.
    const DOWN: u32 = 5;

    fn a(node: u32) -> u64 {
        member_id(node, 10)
    }

    fn b(node: u32) -> u64 {
        member_id(node, 20)
    }

    fn step(metrics: &Metrics, placement: &[u32], present: &[u64]) -> Option<Step> {
        let leaving = metrics.voters.iter().map(|voter| node_of(*voter)).filter(|node| !placement.contains(node));
        step_where(metrics, placement, present, &leaving.collect::<Vec<_>>())
    }

    fn step_where(metrics: &Metrics, placement: &[u32], present: &[u64], leaving: &[u32]) -> Option<Step> {
        let present = &present.iter().map(|member| (node_of(*member), *member)).collect();
        let nodes = metrics.voters.iter().map(|voter| node_of(*voter));
        let heard = &nodes.filter(|node| *node != DOWN).collect();
        let leaving = &leaving.iter().copied().collect();
        next_step(&Known { own: a(1), placement, metrics, changes_to: None, present, leaving, heard })
    }

    #[test]
    fn a_voter_that_is_down_stays() {
        assert_eq!(step(&three(), &[1, 2, 3], &[]), None);
        assert_eq!(step(&three(), &[1, 2, 3], &[a(2), a(3)]), None);
    }

    #[test]
    fn another_disk_of_a_node_takes_the_place_of_the_first_once_it_has_caught_up() {
        let mut metrics = three();
        assert_eq!(step(&metrics, &[1, 2, 3], &[b(3)]), Some(Step::AddLearner(b(3))));
        metrics.learners.insert(b(3));
        metrics.matched.insert(b(3), Some(500 - CATCH_UP_ENTRIES_MAX - 1));
        assert_eq!(step(&metrics, &[1, 2, 3], &[b(3)]), None, "it lacks too much");
        metrics.matched.insert(b(3), Some(500 - CATCH_UP_ENTRIES_MAX));
        assert_eq!(step(&metrics, &[1, 2, 3], &[b(3)]), Some(Step::ChangeVoters([a(1), a(2), b(3)].into())));
    }

    #[test]
    fn a_node_is_removed_once_all_that_are_placed_have_a_voter() {
        let mut metrics = three();
        assert_eq!(step(&metrics, &[1, 2, 4], &[]), None, "nobody answers on node 4");
        assert_eq!(step(&metrics, &[1, 2, 4], &[b(4)]), Some(Step::AddLearner(b(4))));
        metrics.voters.insert(b(4));
        assert_eq!(step(&metrics, &[1, 2, 4], &[b(4)]), Some(Step::ChangeVoters([a(1), a(2), b(4)].into())));
        assert_eq!(
            step(&metrics, &[2, 3, 4], &[a(2), b(4)]),
            Some(Step::Transfer(a(2))),
            "the leader goes last, led by another"
        );
        let moved = Metrics { voters: [a(1), a(DOWN), a(6), a(7)].into(), ..metrics.clone() };
        let moved = Metrics { matched: moved.voters.iter().map(|voter| (*voter, Some(500))).collect(), ..moved };
        let present = [a(DOWN), a(6), a(7)];
        assert_eq!(step(&moved, &[DOWN, 6, 7], &present), Some(Step::Transfer(a(6))), "by one that is heard");
        assert_eq!(step(&moved, &[DOWN, 6, 7], &present[2..]), Some(Step::Transfer(a(7))), "by one of the same layout");
    }

    #[test]
    fn who_runs_goes_only_when_all_that_are_placed_are_heard_and_by_its_own_layout_too() {
        let mut metrics = three();
        metrics.voters.insert(b(4));
        let gone = Some(Step::ChangeVoters([a(1), a(3), b(4)].into()));
        assert_eq!(step_where(&metrics, &[1, 3, 4], &[], &[2]), gone);
        assert_eq!(step_where(&metrics, &[1, 3, 4], &[], &[]), None, "it has not said that it goes");
        assert_eq!(step_where(&metrics, &[1, 3, 4], &[a(2)], &[]), None, "by its layout it stays");
        let down = Metrics { voters: [a(1), a(2), a(3), a(DOWN)].into(), ..metrics.clone() };
        assert_eq!(step_where(&down, &[1, 3, DOWN], &[], &[2]), None, "its copy may be needed: another is not heard");
        let without = Some(Step::ChangeVoters([a(1), a(2), a(3)].into()));
        assert_eq!(step_where(&down, &[1, 2, 3], &[], &[]), without, "who is down copies nothing");
    }

    #[test]
    fn a_learner_that_another_layout_wants_is_not_forgotten() {
        let mut metrics = three();
        metrics.learners = [b(4)].into();
        assert_eq!(step(&metrics, &[1, 2, 3], &[b(4)]), None);
        assert_eq!(step(&metrics, &[1, 2, 3], &[]), Some(Step::RemoveLearners([b(4)].into())));
    }

    #[test]
    fn nobody_goes_while_another_disk_of_a_placed_node_is_to_be_a_voter() {
        let mut metrics = three();
        metrics.voters.insert(b(4));
        metrics.learners.insert(b(2));
        metrics.matched.insert(b(2), None);
        assert_eq!(step(&metrics, &[1, 2, 4], &[b(2), b(4)]), None, "without node 3 two would be left with everything");
        metrics.matched.insert(b(2), Some(500));
        let joined = [a(1), a(3), b(2), b(4)].into();
        assert_eq!(step(&metrics, &[1, 2, 4], &[b(2), b(4)]), Some(Step::ChangeVoters(joined)));
    }

    #[test]
    fn learners_of_disks_that_are_gone_are_forgotten_and_a_change_that_was_begun_is_ended() {
        let mut metrics = three();
        metrics.learners = [b(2), b(5)].into();
        assert_eq!(step(&metrics, &[1, 2, 3], &[a(2)]), Some(Step::RemoveLearners([b(2), b(5)].into())));
        let placement = [1, 2, 3];
        let present = BTreeMap::new();
        let changes_to = Some(BTreeSet::from([a(1), a(2)]));
        let present = &present;
        let leaving = &BTreeSet::new();
        let heard = &BTreeSet::new();
        let metrics = &metrics;
        let placement = &placement;
        let known = Known { own: a(1), placement, metrics, changes_to, present, leaving, heard };
        assert_eq!(next_step(&known), Some(Step::ChangeVoters([a(1), a(2)].into())));
    }
}
