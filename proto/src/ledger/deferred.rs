//! Turns that are lost: under `timely` a block whose group does not say who stands at the milestone goes behind what others offered.
//! Source: the rights protocol, holes C13 and B, and its invariant I10.
//!
//! So what stands behind such a block is not surely behind the milestone: its least ordinal is reckoned without the block. What the
//! group had offered behind the block goes with it, in order, so that of each group the placed increments are the first of its queue.
//! It takes a turn again, behind everything that is in the window then, as soon as anything is heard of the group. Until then it is
//! as if it had not been offered: the group's own, durable and without a place.

use super::counter::{CounterLedger, Touched};
use super::window::{Body, Slot};
use crate::ids::{AggregatorId, GroupId, LogIndex};
use crate::limits::{UNDECIDED_ITEMS_MAX, WINDOW_WEIGHT_MAX};
use crate::msg::Policy;
use crate::teeth::{Bug, bites};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What stands before an increment in the window.
pub(super) struct Ahead {
    /// All of it: what its greatest ordinal is reckoned with.
    pub weight: u64,
    /// Without what may lose its turn: what its least ordinal is reckoned with.
    pub sure: u64,
    timely: bool,
    unnamed: BTreeSet<GroupId>,
}

/// Whether an open run of increments keeps its turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Sure,
    Unsure,
}

impl Ahead {
    pub fn of(counter: &CounterLedger) -> Ahead {
        let timely = counter.policy() == Policy::Timely && !bites(Bug::DecidedBehindBlock);
        Ahead { weight: 0, sure: 0, timely, unnamed: BTreeSet::new() }
    }

    pub fn add(&mut self, weight: u64) {
        (self.weight, self.sure) = (self.weight + weight, self.sure + weight);
    }

    /// Of a run that stays open.
    pub fn standing(&mut self, slot: &Slot) -> Standing {
        let Slot::Open { group, body, .. } = slot else { return Standing::Sure };
        if self.timely && matches!(body, Body::Block { .. }) {
            self.unnamed.insert(*group);
        }
        if self.may_be_deferred(*group) { Standing::Unsure } else { Standing::Sure }
    }

    /// Whether what the group offered from here on goes with a block of its own.
    pub fn may_be_deferred(&self, group: GroupId) -> bool {
        self.unnamed.contains(&group)
    }
}

/// What lost its turn, by group: runs of increments in the order of their positions, with the first of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferred(BTreeMap<GroupId, VecDeque<(u64, Body)>>);

impl Deferred {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn weight_of(&self, group: GroupId) -> u64 {
        self.0.get(&group).into_iter().flatten().map(|(_, body)| body.weight()).sum()
    }

    pub fn weight(&self) -> u64 {
        self.0.values().flatten().map(|(_, body)| body.weight()).sum()
    }

    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.0.keys().copied()
    }
}

impl CounterLedger {
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

    /// Whether an increment of another group was decided to be on a side of a milestone on which it would not be without this
    /// group's. That may only be where a strict milestone stood before this one.
    fn is_decided_behind(&self, of: GroupId) -> bool {
        let (mut with, mut without) = (self.certain(), self.certain());
        self.window.slots.iter().any(|slot| {
            let weight = slot.weight();
            let first = without + 1;
            match slot {
                Slot::Open { group, .. } if *group == of => with += weight,
                _ => (with, without) = (with + weight, without + weight),
            }
            matches!(slot, Slot::Decided { .. }) && self.milestones.any_within(first, with)
        })
    }

    /// Everything of the group goes out of the window, if it may.
    pub(super) fn defer(&mut self, group: GroupId) {
        if self.may_defer(group) {
            let taken = self.window.take_open(group);
            self.terms.deferred.0.entry(group).or_default().extend(taken);
        }
    }

    /// The group was heard of: what it had in the window is put behind what is there, as far as there is room. True when all is.
    pub(super) fn resume(&mut self, group: GroupId) -> bool {
        let Some(mut waiting) = self.terms.deferred.0.remove(&group) else { return true };
        while let Some((_, body)) = waiting.front()
            && self.window.undecided() < UNDECIDED_ITEMS_MAX
            && body.weight() <= WINDOW_WEIGHT_MAX - self.window.weight()
            && let Some((first_pos, body)) = waiting.pop_front()
        {
            self.window.push(group, first_pos, body);
        }
        if let Some(account) = self.accounts.get_mut(&group) {
            account.need_items = None;
        }
        let all = waiting.is_empty();
        if !all {
            self.terms.deferred.0.insert(group, waiting);
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
        if self.terms.deferred.0.contains_key(&group) {
            self.resume(group);
            touched.groups.insert(group);
            self.settle(index, views, touched);
        }
    }

    /// A lost group's: those that have names stand in the window again; the weight of the others.
    pub(super) fn drop_deferred(&mut self, group: GroupId) -> u64 {
        let waiting = self.terms.deferred.0.remove(&group).unwrap_or_default();
        let mut unnamed = 0;
        for (first_pos, body) in waiting {
            match body {
                Body::Block { .. } => unnamed += body.weight(),
                Body::Items { .. } => self.window.push(group, first_pos, body),
            }
        }
        unnamed
    }
}

#[cfg(test)]
mod tests;
