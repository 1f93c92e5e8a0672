//! Turns that are lost: under `timely` a block whose group does not say who stands at the milestone goes behind what others offered.
//! See docs/internals/protocol.md, B6, C13 and I10.
//!
//! So what stands behind such a block is not surely behind the milestone: its least ordinal is reckoned without the block. What the
//! group had offered behind the block goes with it, in order, so that of each group the placed increments are the first of its queue.
//! It takes a turn again, behind everything that is in the window then, as soon as anything is heard of the group. Until then it is
//! as if it had not been offered: the group's own, durable and without a place.

use super::counter::{CounterLedger, Touched};
use super::window::{Body, Slot};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidemark_types::ids::{AggregatorId, GroupId, LogIndex};
use tidemark_types::limits::{UNDECIDED_ITEMS_MAX, WINDOW_WEIGHT_MAX};
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::Policy;

/// What stands before an increment in the window.
pub(super) struct Ahead {
    /// All of it: what its greatest ordinal is reckoned with.
    pub weight: u64,
    /// Without what may lose its turn: what its least ordinal is reckoned with.
    pub sure: u64,
    timely: bool,
    unnamed: BTreeSet<GroupId>,
}

impl Ahead {
    pub fn of(counter: &CounterLedger) -> Ahead {
        let timely = counter.policy() == Policy::Timely && !bites(Bug::DecidedBehindBlock);
        Ahead { weight: 0, sure: 0, timely, unnamed: BTreeSet::new() }
    }

    pub fn add(&mut self, weight: u64) {
        (self.weight, self.sure) = (self.weight + weight, self.sure + weight);
    }

    /// Whether a run that stays open surely keeps its turn.
    pub fn keeps_turn(&mut self, slot: &Slot) -> bool {
        let Slot::Open { group, body, .. } = slot else { return true };
        if self.timely && matches!(body, Body::Block { .. }) {
            self.unnamed.insert(*group);
        }
        !self.may_be_deferred(*group)
    }

    /// Whether what the group offered from here on goes with a block of its own.
    pub fn may_be_deferred(&self, group: GroupId) -> bool {
        self.unnamed.contains(&group)
    }
}

/// What lost its turn, by group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferred {
    groups: BTreeMap<GroupId, Waiting>,
    weight: u64,
}

/// Runs of increments in the order of their positions, with the first of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Waiting {
    /// The group was heard of since: what is left waits for room in the window.
    heard: bool,
    runs: VecDeque<(u64, Body)>,
}

impl Waiting {
    fn weight(&self) -> u64 {
        self.runs.iter().map(|(_, body)| body.weight()).sum()
    }
}

impl Deferred {
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub fn weight_of(&self, group: GroupId) -> u64 {
        self.groups.get(&group).map_or(0, Waiting::weight)
    }

    /// Weight of all of it.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// Before what the group has there already, which was offered later.
    fn put(&mut self, group: GroupId, mut runs: VecDeque<(u64, Body)>) {
        self.weight += runs.iter().map(|(_, body)| body.weight()).sum::<u64>();
        let waiting = self.groups.entry(group).or_default();
        runs.append(&mut waiting.runs);
        *waiting = Waiting { heard: false, runs };
    }

    fn take(&mut self, group: GroupId) -> VecDeque<(u64, Body)> {
        let runs = self.groups.remove(&group).unwrap_or_default().runs;
        self.weight -= runs.iter().map(|(_, body)| body.weight()).sum::<u64>();
        runs
    }

    /// Panics when the sum does not agree.
    pub(super) fn check_invariants(&self) {
        let weight: u64 = self.groups.values().map(Waiting::weight).sum();
        assert_eq!(weight, self.weight, "weight of what is deferred");
        assert!(!self.groups.values().any(|waiting| waiting.runs.is_empty()), "nothing is deferred of a group");
    }
}

impl CounterLedger {
    /// What lost its turn.
    pub fn deferred(&self) -> &Deferred {
        &self.deferred
    }

    /// For a state that was read without it.
    pub(super) fn set_deferred(&mut self, deferred: Deferred) {
        self.deferred = deferred;
    }

    /// The group whose block stands at the head, at a milestone, with nothing outstanding: everything waits for its identities.
    pub fn waits_for_identity_of(&self) -> Option<GroupId> {
        match self.window.slots.front() {
            Some(Slot::Open { group, body: Body::Block { .. }, .. }) if self.out() == 0 => Some(*group),
            _ => None,
        }
    }

    /// Whether the group may lose its turn: nobody was told of a place that this would change.
    pub fn may_defer(&self, group: GroupId) -> bool {
        self.policy() == Policy::Timely
            && self.waits_for_identity_of() == Some(group)
            && !self.is_decided_behind(group)
            && !bites(Bug::NeverDeferred)
    }

    /// Whether something was decided behind what the group has at the head: of its own, which then would not be the first of its queue
    /// any more, or so near behind that without this it is on another side of a milestone. That may only be where a strict milestone
    /// was to come meanwhile.
    fn is_decided_behind(&self, of: GroupId) -> bool {
        let mut with = self.certain();
        let mut without = self.certain();
        self.window.slots.iter().any(|slot| {
            let weight = slot.weight();
            let first = without + 1;
            match slot {
                Slot::Open { group, .. } if *group == of => with += weight,
                Slot::Open { .. } | Slot::Decided { .. } => {
                    (with, without) = (with + weight, without + weight);
                }
            }
            match slot {
                Slot::Decided { weights } => weights.contains_key(&of) || self.milestones.any_within(first, with),
                Slot::Open { .. } => false,
            }
        })
    }

    /// Everything of a group that may lose its turn goes out of the window.
    pub(super) fn defer(&mut self, group: GroupId) {
        let taken = self.window.take_open(group, |_| true);
        self.deferred.put(group, taken);
    }

    /// The group was heard of: what it had in the window is put behind what is there, as far as there is room, and the rest when there
    /// is. True when nothing of it is left.
    pub(super) fn resume(&mut self, group: GroupId) -> bool {
        if !self.deferred.groups.contains_key(&group) {
            return true;
        }
        let mut runs = self.deferred.take(group);
        while self.window.load() < UNDECIDED_ITEMS_MAX
            && let Some((first_pos, body)) = runs.pop_front()
        {
            self.window.push(group, first_pos, body);
        }
        if let Some(account) = self.accounts.get_mut(&group) {
            account.need_items = None;
        }
        let all = runs.is_empty();
        if !all {
            self.deferred.put(group, runs);
            self.deferred.groups.entry(group).or_default().heard = true;
        }
        all
    }

    /// Something was heard of the group that changes nothing else.
    pub(super) fn resume_heard(
        &mut self,
        group: GroupId,
        index: LogIndex,
        views: &BTreeSet<AggregatorId>,
        touched: &mut Touched,
    ) {
        if self.deferred.groups.contains_key(&group) {
            self.resume(group);
            touched.groups.insert(group);
            self.settle(index, views, touched);
        }
    }

    /// What is left of groups that were heard of takes its turn as soon as there is room. True when something did.
    pub(super) fn resume_rest(&mut self) -> bool {
        if self.deferred.is_empty() || self.window.load() >= UNDECIDED_ITEMS_MAX {
            return false;
        }
        let heard = self.deferred.groups.iter().find(|(_, waiting)| waiting.heard).map(|(&group, _)| group);
        heard.is_some_and(|group| {
            self.resume(group);
            true
        })
    }

    /// A lost group's: those that have names stand in the window again; the weight of the others.
    pub(super) fn drop_deferred(&mut self, group: GroupId) -> u64 {
        let mut nameless = 0;
        for (first_pos, body) in self.deferred.take(group) {
            match body {
                Body::Block { .. } => nameless += body.weight(),
                Body::Items { .. } => self.window.push(group, first_pos, body),
            }
        }
        nameless
    }

    /// Weight that may still be offered. What is deferred had room in the window, and has it when it comes back.
    pub(super) fn room_in_window(&self) -> u64 {
        WINDOW_WEIGHT_MAX - self.window.weight() - self.deferred.weight
    }
}

#[cfg(test)]
mod tests;
