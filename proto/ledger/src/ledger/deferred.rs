//! Lost turns: under `timely` a block goes behind later offers if its group does not name the increment at the milestone. See
//! docs/internals/protocol.md, B6, C13 and I10.
//!
//! So increments behind such a block are not surely behind the milestone: their least ordinal is computed without the block. The
//! increments that the group had offered behind the block go with it, in order. So the placed increments of each group are the
//! first of its queue. The block takes a turn again, behind everything that is in the window then, as soon as the group is heard
//! of. Until then it counts as not offered: the group's own, durable and without a place.

use super::counter::{CounterLedger, Touched};
use super::window::{Body, Slot};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidemark_types::ids::{AggregatorId, GroupId, LogIndex};
use tidemark_types::limits::{UNDECIDED_ITEMS_MAX, WINDOW_WEIGHT_MAX};
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::Policy;

/// The weight before an increment in the window.
pub(super) struct Ahead {
    /// All of it: the greatest ordinal is computed with it.
    pub weight: u64,
    /// Without increments that may lose their turn: the least ordinal is computed with it.
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

    /// Whether the group's offers from here on go with a block of its own.
    pub fn may_be_deferred(&self, group: GroupId) -> bool {
        self.unnamed.contains(&group)
    }
}

/// Increments that lost their turn, by group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferred {
    groups: BTreeMap<GroupId, Waiting>,
    weight: u64,
}

/// Runs of increments in the order of their positions, with the first of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Waiting {
    /// The group was heard of since: the rest waits for room in the window.
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

    /// Puts runs before the group's deferred runs, which were offered later.
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
    /// The increments that lost their turn.
    pub fn deferred(&self) -> &Deferred {
        &self.deferred
    }

    /// For a state that was read without it.
    pub(super) fn set_deferred(&mut self, deferred: Deferred) {
        self.deferred = deferred;
    }

    /// The group of the block at the head, if the block is at a milestone with nothing outstanding: everything waits for its
    /// identities.
    pub fn waits_for_identity_of(&self) -> Option<GroupId> {
        match self.window.slots.front() {
            Some(Slot::Open { group, body: Body::Block { .. }, .. }) if self.out() == 0 => Some(*group),
            _ => None,
        }
    }

    /// Whether the group may lose its turn: no group was told of a place that this would change.
    pub fn may_defer(&self, group: GroupId) -> bool {
        self.policy() == Policy::Timely
            && self.waits_for_identity_of() == Some(group)
            && !self.is_decided_behind(group)
            && !bites(Bug::NeverDeferred)
    }

    /// Whether increments were decided behind the group's block at the head. They may be the group's own: then they would not be
    /// the first of its queue any more. Or they are so near behind that without the block they are on another side of a
    /// milestone. That happens only if a strict milestone was to come meanwhile.
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

    /// The group was heard of: its deferred increments are put behind the window's, as far as there is room, and the rest when
    /// there is room. True when none are left.
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

    /// The rest of groups that were heard of takes its turn as soon as there is room. True when some did.
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

    /// Drops a lost group's: increments with names stand in the window again. Returns the weight of the others.
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

    /// Weight that may still be offered. Deferred weight had room in the window, and keeps it for its return.
    pub(super) fn room_in_window(&self) -> u64 {
        WINDOW_WEIGHT_MAX - self.window.weight() - self.deferred.weight
    }
}

#[cfg(test)]
mod tests;
