//! The limit of each guarded counter in a view. It lies below the least milestone that is armed, or that this view has promised
//! not to reach while it is being armed.
//!
//! A promise must outlive the process that made it: the limit is persisted before the ledger hears of it. After a restart a
//! persisted limit holds until the replica here has applied at least as much as when the limit was noted.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_ledger::ledger::{Ledger, Pending};
use tidemark_types::ids::{AggregatorId, CounterName};
use tidemark_types::teeth::{Bug, bites};

/// A persisted limit: show less than `at` until the ledger's entry `index` is applied here. Show less than each of `promised`
/// until the ledger shows that it is no longer being armed (the answer about it may still be on its way).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedLimit {
    pub at: u64,
    pub index: u64,
    pub promised: Vec<Promised>,
    /// The counter's generation there.
    pub generation: u32,
}

/// A milestone that is being armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Promised {
    pub at: u64,
    /// Tells this arming of the milestone from others.
    pub arming: u64,
}

/// Limits of one view.
#[derive(Clone, Debug, Default)]
pub struct ReadLimits {
    /// Milestones (being armed) below which this view has promised to stay.
    promised: BTreeMap<CounterName, BTreeSet<Promised>>,
    noted: BTreeMap<CounterName, NotedLimit>,
    /// Counters with a noted limit that is not persisted in its present form.
    dirty: BTreeSet<CounterName>,
}

impl ReadLimits {
    /// The least milestone that this view must not reach.
    pub fn limit(&self, counter: &CounterName, ledger: &Ledger) -> Option<u64> {
        let noted = self.noted.get(counter).filter(|_| self.is_ahead(counter, ledger));
        let promised = self.promised.get(counter).into_iter().flatten().copied();
        let promised =
            promised.filter(|&promised| self.holds(counter, promised, ledger)).map(|promised| promised.at).min();
        // A milestone that was armed before the note was made, and not when it was, is awarded or gone: readers have seen counts
        // above it.
        let same = noted.is_some_and(|noted| noted.generation == ledger.resets().generation(counter));
        let armed = ledger.next_milestone(counter).filter(|_| !same || bites(Bug::NoteForgotten));
        [armed, promised, noted.map(|noted| noted.at)].into_iter().flatten().min()
    }

    /// Counters that are shown below the ledger's own limit, and the limit of each.
    pub fn beyond_ledger<'a>(&'a self, ledger: &'a Ledger) -> impl Iterator<Item = (&'a CounterName, u64)> + 'a {
        let noted = self.noted.keys().filter(|counter| self.is_ahead(counter, ledger));
        let counters: BTreeSet<&CounterName> = self.promised.keys().chain(noted).collect();
        let limited = move |counter: &'a CounterName| {
            let limit = self.limit(counter, ledger)?;
            (ledger.next_milestone(counter).is_none_or(|armed| limit < armed)).then_some((counter, limit))
        };
        counters.into_iter().filter_map(limited)
    }

    /// A promise holds until its milestone is seen armed (the ledger's state limits then) or gone, by a replica that knows of it.
    fn holds(&self, counter: &CounterName, promised: Promised, ledger: &Ledger) -> bool {
        let pending = ledger.counter(counter).and_then(|state| state.milestones().get(promised.at));
        let waits = matches!(pending, Some(Pending::Arming { arming, .. }) if *arming == promised.arming);
        waits || self.is_ahead(counter, ledger)
    }

    /// Promises to show less than its milestone from now on.
    pub fn promise(&mut self, counter: &CounterName, promised: Promised, ledger: &Ledger) {
        self.promised.entry(counter.clone()).or_default().insert(promised);
        self.note(counter, ledger);
    }

    pub fn has_promised(&self, counter: &CounterName, promised: Promised) -> bool {
        self.promised.get(counter).is_some_and(|all| all.contains(&promised))
    }

    /// Takes over the ledger's state of a counter that this view shows as `shown`. Promises about milestones that are armed by
    /// now (the ledger's state limits) or gone are dropped, unless the replica here is still before the entry at which they were
    /// made. A milestone that is being armed may have been answered by this view in an earlier life, with its disk lost: it
    /// counts as promised.
    pub fn update(&mut self, counter: &CounterName, ledger: &Ledger, view: AggregatorId, shown: u64) {
        let (Some(state), false) = (ledger.counter(counter), self.is_ahead(counter, ledger)) else { return };
        let promised = self.promised.remove(counter).unwrap_or_default();
        let still = |(at, pending): (u64, &Pending)| match pending {
            Pending::Arming { arming, awaits, refused } => {
                let answered = !awaits.contains(&view) && !refused && shown < at;
                let promise = Promised { at, arming: *arming };
                (promised.contains(&promise) || answered).then_some(promise)
            }
            Pending::Armed => None,
        };
        let promised: BTreeSet<Promised> = state.milestones().pending().filter_map(still).collect();
        if !promised.is_empty() {
            self.promised.insert(counter.clone(), promised);
        }
        self.note(counter, ledger);
    }

    /// Whether the replica is still before the entry at which the limit was noted.
    fn is_ahead(&self, counter: &CounterName, ledger: &Ledger) -> bool {
        self.noted.get(counter).is_some_and(|noted| ledger.applied().0 < noted.index)
    }

    fn note(&mut self, counter: &CounterName, ledger: &Ledger) {
        let old = self.noted.get(counter);
        // That a limit or promise is gone must be noted too, or it would come back with the disk.
        let Some(at) = self.limit(counter, ledger).or(old.map(|_| u64::MAX)) else { return };
        let promised: Vec<Promised> = self.promised.get(counter).into_iter().flatten().copied().collect();
        let index = ledger.applied().0.max(old.map_or(0, |noted| noted.index));
        let generation = ledger.resets().generation(counter).max(old.map_or(0, |noted| noted.generation));
        let changed =
            |noted: &NotedLimit| noted.at != at || noted.promised != promised || noted.generation != generation;
        if old.is_none_or(changed) {
            self.noted.insert(counter.clone(), NotedLimit { at, index, promised, generation });
            self.dirty.insert(counter.clone());
        }
    }

    /// Limits to persist; drained.
    pub fn take_dirty(&mut self) -> Vec<(CounterName, NotedLimit)> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty.into_iter().filter_map(|counter| Some((counter.clone(), self.noted.get(&counter)?.clone()))).collect()
    }

    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Whether the counter's limit has changed since it was last given out to be persisted.
    pub fn has_changed(&self, counter: &CounterName) -> bool {
        self.dirty.contains(counter)
    }

    /// Takes over a persisted limit.
    pub fn restore(&mut self, counter: CounterName, limit: NotedLimit) {
        if !limit.promised.is_empty() {
            self.promised.insert(counter.clone(), limit.promised.iter().copied().collect());
        }
        self.noted.insert(counter, limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_types::ids::LogIndex;
    use tidemark_wire::msg::{LedgerCmd, MilestoneSpec};

    #[test]
    fn what_a_note_says_outweighs_what_a_replica_that_is_behind_shows_armed() {
        let counter = CounterName::new("t", b"c").unwrap();
        let spec = MilestoneSpec { at: vec![100], ..MilestoneSpec::default() };
        let cmds =
            [LedgerCmd::Namespace("t".into()), LedgerCmd::Define { counter: counter.clone(), revision: 0, spec }];
        let mut ledger = Ledger::default();
        cmds.iter().zip(1..).for_each(|(cmd, index)| ledger.apply(LogIndex(index), cmd));
        let limit = |noted_at_index, generation, ledger: &Ledger| {
            let mut limits = ReadLimits::default();
            let noted = NotedLimit { at: 200, index: noted_at_index, promised: Vec::new(), generation };
            limits.restore(counter.clone(), noted);
            limits.limit(&counter, ledger)
        };
        assert_eq!(ReadLimits::default().limit(&counter, &ledger), Some(100), "it is armed");
        assert_eq!(limit(9, 0, &ledger), Some(200), "it was awarded before the note, and readers have seen more");
        assert_eq!(limit(9, 1, &ledger), Some(100), "the note is of another generation");
        ledger.skip(LogIndex(9));
        assert_eq!(limit(9, 0, &ledger), Some(100), "the replica is as far as the note");
    }
}
