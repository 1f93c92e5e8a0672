//! A new era: the ledger of a cluster that was restored as a whole from images of its data centres (A7 in
//! docs/internals/protocol.md).
//!
//! No outstanding rights come back: every earlier group is lost, and its known increments are counted, once. Awards stay awarded.
//! A milestone without an award may have been awarded after the newest image was taken. The images cannot show that, so the
//! operator of the restore decides whether it is armed anew or withheld.

use super::lost::Loss;
use super::{AccountState, CounterLedger, Ledger, Registered};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidemark_types::ids::{CounterName, GroupId, LogIndex, Start};
use tidemark_types::teeth::{Bug, bites};

/// The log of an era begins this far behind the newest image's. Later decisions of the era before have lesser indices, so a
/// consumer that follows awards by their position misses none of the new era.
pub const ERA_INDEX_GAP: u64 = 1 << 32;

/// The fate of milestones that were not awarded when the newest image was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMilestones {
    /// They are armed anew: the operator knows that none was awarded since.
    Rearm,
    /// They count as passed, and rules end: each may have been awarded since.
    Withhold,
}

/// Why there is no ledger for a new era.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EraError {
    #[error("no image holds a state of the ledger")]
    NoLedger,
    #[error("the ledger's log stands at {0}: no further era is possible")]
    Index(u64),
}

/// Counts that are known beside the ledger: those of a view.
pub trait KnownCounts {
    /// Groups that counted anything.
    fn groups(&self) -> BTreeSet<GroupId>;

    /// The count of a group in a generation of a counter; 0 if nothing is known.
    fn count_of(&self, counter: &CounterName, generation: u32, group: GroupId) -> u64;
}

impl Ledger {
    /// Milestones that are neither awarded nor passed, and rules: [`OpenMilestones`] decides about them.
    pub fn open_milestones(&self) -> Vec<(CounterName, Vec<u64>, Option<u64>)> {
        let open = |(name, state): (&CounterName, &CounterLedger)| {
            let at: Vec<u64> = state.milestones().singles().iter().copied().collect();
            let every = state.milestones().every();
            (!at.is_empty() || every.is_some()).then(|| (name.clone(), at, every))
        };
        self.counters.iter().filter_map(open).collect()
    }

    /// The ledger that a cluster begins a new era with, from all copies that there are of the old one and everything that is known of
    /// components.
    pub fn in_new_era(copies: Vec<Ledger>, view: &impl KnownCounts, open: OpenMilestones) -> Result<Ledger, EraError> {
        let by_age =
            |copy: &&Ledger| if bites(Bug::EraForgetsAwards) { u64::MAX - copy.applied.0 } else { copy.applied.0 };
        let newest = copies.iter().max_by_key(by_age).cloned().ok_or(EraError::NoLedger)?;
        let index = newest.applied.0.checked_add(ERA_INDEX_GAP).ok_or(EraError::Index(newest.applied.0))?;
        let births = newest.births.clone().ended(newest.applied);
        let mut next = Ledger { applied: LogIndex(index), births, ..newest };
        next.views.clear();
        // None has started in the new era.
        next.view_starts.clear();
        next.resets_heard.clear();
        // All voters begin it with the same log.
        next.returning.clear();
        // Images have all parts, and each aggregator begins with the parts that the layout gives it.
        next.shard_map = super::ShardMap::default();
        next.changes = super::ChangeSets::default();
        for copy in copies.iter().filter(|_| !bites(Bug::EraForgetsAwards)) {
            next.take_over_awards(copy);
        }
        // Groups that a view knows and no ledger does were registered in between.
        let unregistered = || Registered { lanes: 1, start: Start::default(), fenced: true, earlier: VecDeque::new() };
        for group in view.groups() {
            next.groups.entry(group).or_insert_with(unregistered);
        }
        next.groups.values_mut().for_each(|group| group.fenced = true);
        next.lost = next.groups.keys().copied().collect();
        for (name, state) in std::mem::take(&mut next.counters) {
            let mut known = known_of_all(&state, view, &next.lost);
            if bites(Bug::EraForgetsCounts) {
                known.values_mut().for_each(|known| *known = 0);
            }
            next.counters.insert(name, state.in_new_era(&known, open));
        }
        Ok(next)
    }

    /// Copies are beginnings of one log, so the newest knows every award; of signatures another may have more.
    fn take_over_awards(&mut self, copy: &Ledger) {
        for (name, state) in &copy.counters {
            let Some(known) = self.counters.get_mut(name) else { continue };
            for (&at, awarded) in &state.awards {
                let kept = known.awards.entry(at).or_insert_with(|| awarded.clone());
                for signature in &awarded.signatures {
                    if kept.award == awarded.award && kept.signatures.iter().all(|known| known.dc != signature.dc) {
                        kept.signatures.push(signature.clone());
                    }
                }
            }
        }
    }
}

/// The known count of each group in a counter's present generation: by components, by the old ledger, and by the increments
/// before an award.
fn known_of_all(state: &CounterLedger, view: &impl KnownCounts, groups: &BTreeSet<GroupId>) -> BTreeMap<GroupId, u64> {
    let generation = state.epoch() - 1;
    let known = |&group: &GroupId| (group, view.count_of(state.name(), generation, group).max(state.known_of(group)));
    let mut known: BTreeMap<GroupId, u64> = groups.iter().map(known).collect();
    for award in state.awards.values().map(|awarded| &awarded.award).filter(|award| award.epoch == state.epoch()) {
        for &(group, weight) in &award.before {
            let least = weight + if group == award.group { award.delta } else { 0 };
            known.entry(group).and_modify(|known| *known = least.max(*known)).or_insert(least);
        }
    }
    known
}

impl CounterLedger {
    /// The same counter in a new era, with the known counts of each earlier group.
    fn in_new_era(self, known: &BTreeMap<GroupId, u64>, open: OpenMilestones) -> CounterLedger {
        let mut next = CounterLedger::new(self.name.clone(), self.epoch, std::iter::empty());
        for (&group, &surplus) in known {
            let outstanding = self.accounts.get(&group).map_or(0, AccountState::out);
            let before = self.losses.loss_of(group).written_off;
            next.add_lost_group(group);
            next.losses.set(group, Loss { written_off: before.saturating_add(outstanding), surplus });
        }
        next.losses.keep_awards_of(&self.losses);
        next.awards = self.awards;
        (next.sequence_from, next.terms) = (self.sequence_from, self.terms.begun_again());
        // Nothing is armed yet, so that all of it is counted at once.
        next.place_remains();
        next.milestones = self.milestones;
        match open {
            OpenMilestones::Rearm => {
                let awarded = next.awards.values().map(|awarded| awarded.award.last()).max().unwrap_or(0);
                next.milestones.forget_singles(|at| next.awards.contains_key(&at));
                next.milestones.begin_again(next.certain().max(awarded), &BTreeSet::new());
            }
            OpenMilestones::Withhold if bites(Bug::WithheldIsArmed) => {
                next.milestones.begin_again(next.certain(), &BTreeSet::new());
            }
            OpenMilestones::Withhold => next.milestones.withhold(),
        }
        next.settle_arming(&BTreeSet::new());
        next
    }
}

#[cfg(test)]
mod tests;
