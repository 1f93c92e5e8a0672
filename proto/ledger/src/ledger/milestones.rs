//! The milestones of a counter: a list, a rule "every k", and the state of each that is not yet awarded.
//!
//! All of it is about the direct count of a counter. A total, to which others flow, has no milestones. It is each view's own sum
//! of the counts that have reached it: the ledger does not know it and could promise nothing.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::ids::AggregatorId;
use tidemark_types::limits::MILESTONES_PER_COUNTER_MAX;
use tidemark_types::teeth::{Bug, bites};

/// State of a milestone that is neither awarded nor passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pending {
    /// Not promised yet: waits for every base, for the views in `awaits`, and for rights below it.
    Arming {
        /// The number of the arming of this counter: a view's answer to an earlier one does not count.
        arming: u64,
        awaits: BTreeSet<AggregatorId>,
        refused: bool,
    },
    /// Promised: it cannot happen unseen.
    Armed,
}

/// The milestones of one counter. A rule stands for all its multiples from `next` on; only `next` has a state of its own. A
/// single milestone keeps its own state under any rule; a single milestone that a rule covers too is one milestone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Milestones {
    /// Counts the definitions and removals that were carried out.
    revision: u64,
    /// The number of the last arming.
    armings: u64,
    pending: BTreeMap<u64, Pending>,
    /// The `pending` milestones that were defined as single ones.
    single: BTreeSet<u64>,
    /// The rule's next milestone (always pending) and its step.
    rule: Option<(u64, u64)>,
    /// Milestones that had happened before they could be armed; the newest [`PASSED_KEPT_MAX`].
    passed: BTreeSet<u64>,
}

/// Passed milestones remembered per counter; older ones are forgotten.
pub const PASSED_KEPT_MAX: usize = 1_024;

impl Milestones {
    /// The number of definitions and removals that were carried out: a further one has to name it.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// A definition or removal is carried out.
    pub fn revise(&mut self) {
        self.revision += 1;
    }

    /// Whether `at` is pending: by itself, or as a multiple of the rule.
    pub fn is_covered(&self, at: u64) -> bool {
        self.pending.contains_key(&at) || self.is_of_rule(at)
    }

    /// Whether the rule stands for `at`.
    pub fn is_of_rule(&self, at: u64) -> bool {
        self.rule.is_some_and(|(next, every)| at >= next && at.is_multiple_of(every))
    }

    /// Single milestones that are not awarded.
    pub fn singles(&self) -> &BTreeSet<u64> {
        &self.single
    }

    /// Adds a single milestone: armed, if an armed rule covers it, else arming. A pending milestone keeps its state. Past the
    /// limit of single milestones nothing is added.
    pub fn add(&mut self, at: u64, awaits: &BTreeSet<AggregatorId>) {
        if self.single.len() >= MILESTONES_PER_COUNTER_MAX || !self.single.insert(at) {
            return;
        }
        if self.armed_rule().is_some() && self.is_of_rule(at) {
            self.pending.insert(at, Pending::Armed);
        } else {
            self.begin_arming(at, awaits);
        }
    }

    /// Sets the rule; its first milestone is the least multiple above `certain`. Milestones that are pending already keep their
    /// state. Setting the rule that holds already changes nothing.
    pub fn set_rule(&mut self, every: u64, certain: u64, awaits: &BTreeSet<AggregatorId>) {
        if self.every() == Some(every) {
            return;
        }
        self.clear_rule();
        let next = multiple_above(every, certain);
        self.rule = Some((next, every));
        self.begin_arming(next, awaits);
    }

    /// Milestones without an award are armed anew, the rule from its first multiple above everything awarded (`above`) on: an
    /// awarded number is not awarded again.
    pub fn begin_again(&mut self, above: u64, awaits: &BTreeSet<AggregatorId>) {
        self.revise();
        self.pending.clear();
        self.passed.clear();
        for at in self.single.clone() {
            self.begin_arming(at, awaits);
        }
        if let Some((_, every)) = self.rule {
            let next = multiple_above(every, above);
            self.rule = Some((next, every));
            self.begin_arming(next, awaits);
        }
    }

    /// Removes all that are not awarded.
    pub fn clear(&mut self) {
        self.revise();
        (self.rule, self.single, self.pending, self.passed) = Default::default();
    }

    /// Forgets that these were asked for by themselves.
    pub(super) fn forget_singles(&mut self, which: impl Fn(u64) -> bool) {
        self.single.retain(|&at| !which(at));
    }

    /// All that are not awarded count as passed, and the rule ends.
    pub(super) fn withhold(&mut self) {
        self.revise();
        self.passed.extend(std::mem::take(&mut self.pending).into_keys());
        while self.passed.len() > PASSED_KEPT_MAX {
            self.passed.pop_first();
        }
        (self.rule, self.single) = Default::default();
    }

    fn begin_arming(&mut self, at: u64, awaits: &BTreeSet<AggregatorId>) {
        self.armings += 1;
        let arming = self.armings;
        let new = || Pending::Arming { arming, awaits: awaits.clone(), refused: false };
        self.pending.entry(at).or_insert_with(new);
    }

    pub fn clear_rule(&mut self) {
        if let Some((next, _)) = self.rule.take()
            && !self.single.contains(&next)
        {
            self.pending.remove(&next);
        }
    }

    /// Removes a single milestone. A rule that covers it goes on covering it.
    pub fn disarm(&mut self, at: u64) {
        self.single.remove(&at);
        if self.rule.is_none_or(|(next, _)| at != next) {
            self.pending.remove(&at);
        }
    }

    /// The step of the rule "every k".
    pub fn every(&self) -> Option<u64> {
        self.rule.map(|(_, every)| every)
    }

    /// The rule's next milestone.
    pub fn rule_next(&self) -> Option<u64> {
        self.rule.map(|(next, _)| next)
    }

    pub fn pending(&self) -> impl Iterator<Item = (u64, &Pending)> {
        self.pending.iter().map(|(&at, state)| (at, state))
    }

    /// The state of a milestone that is neither awarded nor passed.
    pub fn get(&self, at: u64) -> Option<&Pending> {
        self.pending.get(&at)
    }

    pub fn passed(&self) -> impl Iterator<Item = u64> + '_ {
        self.passed.iter().copied()
    }

    /// The least armed milestone that is at least `from`, multiples of an armed rule included.
    pub fn armed_from(&self, from: u64) -> Option<u64> {
        let listed = self.pending.range(from..).find(|(_, state)| **state == Pending::Armed).map(|(&at, _)| at);
        let by_rule =
            self.armed_rule().map(|(next, every)| if from <= next { next } else { multiple_above(every, from - 1) });
        listed.into_iter().chain(by_rule).min()
    }

    /// Whether a milestone that is not awarded lies in `lo..=hi`, armed or not.
    pub fn any_within(&self, lo: u64, hi: u64) -> bool {
        lo <= hi && (self.pending.range(lo..=hi).next().is_some() || self.armed_from(lo).is_some_and(|at| at <= hi))
    }

    fn armed_rule(&self) -> Option<(u64, u64)> {
        self.rule.filter(|(next, _)| self.pending.get(next) == Some(&Pending::Armed))
    }

    /// The least milestone that is not awarded, in any state.
    pub fn least(&self) -> Option<u64> {
        self.pending.keys().next().copied()
    }

    pub fn least_arming(&self) -> Option<u64> {
        self.pending.iter().find(|(_, state)| matches!(state, Pending::Arming { .. })).map(|(&at, _)| at)
    }

    /// Takes every armed milestone in `lo..=hi` out for an award: (first, step, count) of the rule's, and the single ones.
    pub fn take_armed(&mut self, lo: u64, hi: u64) -> (Option<(u64, u64, u64)>, Vec<u64>) {
        let by_rule = self.armed_rule().filter(|(next, _)| *next <= hi).map(|(next, every)| {
            let count = (hi - next) / every + 1;
            let after = next.saturating_add(count.saturating_mul(every));
            self.pending.retain(|&at, _| at < next || at > hi || !at.is_multiple_of(every));
            self.pending.insert(after, Pending::Armed);
            self.rule = Some((after, every));
            (next, if count > 1 { every } else { 0 }, count)
        });
        let rule_next = self.rule.map(|(next, _)| next);
        let is_single =
            |(at, state): (&u64, &Pending)| (*state == Pending::Armed && Some(*at) != rule_next).then_some(*at);
        let single: Vec<u64> = self.pending.range(lo..=hi).filter_map(is_single).collect();
        single.iter().for_each(|at| drop(self.pending.remove(at)));
        self.single.retain(|at| self.pending.contains_key(at));
        (by_rule, single)
    }

    pub fn arm(&mut self, at: u64) {
        self.pending.insert(at, Pending::Armed);
    }

    /// A milestone that happened before it was armed. The rule's goes on at the least multiple above `certain`, arming anew.
    pub fn pass(&mut self, at: u64, certain: u64, views: &BTreeSet<AggregatorId>) {
        let rule = self.rule.filter(|(next, _)| *next == at);
        self.pending.remove(&at);
        self.single.remove(&at);
        self.passed.insert(at);
        if self.passed.len() > PASSED_KEPT_MAX {
            self.passed.pop_first();
        }
        if let Some((_, every)) = rule {
            let next = multiple_above(every, certain.max(at));
            self.rule = Some((next, every));
            self.begin_arming(next, views);
        }
    }

    /// A view's answer to an arming.
    pub fn on_view_ack(&mut self, at: u64, of: u64, view: AggregatorId, shown_below: bool) {
        if let Some(Pending::Arming { arming, awaits, refused }) = self.pending.get_mut(&at)
            && (*arming == of || bites(Bug::StaleAckTaken))
            && awaits.remove(&view)
        {
            if bites(Bug::PairAnswersAsOne) {
                awaits.retain(|other| other.dc != view.dc);
            }
            *refused |= !shown_below;
        }
    }

    /// Every view has to answer again for the milestones that are being armed: its counts of a group that is lost were not known
    /// here.
    pub fn await_anew(&mut self, views: &BTreeSet<AggregatorId>) {
        for state in self.pending.values_mut() {
            if let Pending::Arming { arming, awaits, .. } = state {
                self.armings += 1;
                (*arming, *awaits) = (self.armings, views.clone());
            }
        }
    }

    /// Views that were set aside, or are no more, are not waited for.
    pub fn forget_views(&mut self, gone: impl Fn(AggregatorId) -> bool) {
        for state in self.pending.values_mut() {
            if let Pending::Arming { awaits, .. } = state {
                awaits.retain(|view| !gone(*view));
            }
        }
    }

    /// A view that registers while milestones are arming must answer for them too.
    pub fn await_view(&mut self, view: AggregatorId) {
        for state in self.pending.values_mut() {
            if let Pending::Arming { awaits, .. } = state {
                awaits.insert(view);
            }
        }
    }
}

/// The least multiple of `every` above `count`.
fn multiple_above(every: u64, count: u64) -> u64 {
    (count / every + 1).saturating_mul(every)
}
