//! The view of one data centre's aggregator: components of all cells, merged by maximum, and readings of them.
//!
//! A reading never goes back, never exceeds the true count, and never reaches an armed milestone before it is awarded. Below the
//! least such milestone M, `up = max(certain, min(sum of components, M - 1))`. If a counter may go down that is its up half, and
//! the same holds, without any milestone, for its down half.

mod audit;
mod cells;
mod components;
pub mod hierarchy;
mod limits;
mod loads;
mod over;
mod parting;
mod reuse;
mod series;
mod shelved;
mod totals;

pub use audit::{ANCESTORS_AUDITED_MAX, NotCounted, TotalAudit};
pub use cells::{CELLS_MAX, Cells, MergeError, Merged};
pub use limits::{NotedLimit, Promised, ReadLimits};
pub use loads::Load;
pub use parting::{Parted, Place};
pub(crate) use reuse::{is_earlier, slot_and_tag};
pub use series::{RowRaised, SeriesView, parts_of};
pub(crate) use shelved::Left;
pub use shelved::{Budget, HeldRow, Shelf};
pub use totals::Total;

use hierarchy::Hierarchy;
use parting::Parting;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_ledger::ledger::{Changes, KnownCounts, Ledger};
use tidemark_types::ids::{AggregatorId, CellId, CounterName, DcId, GroupId, Half, ValveId};
use tidemark_types::series::{Row, UnixTime};
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::warm;
use tidemark_wire::msg::Reading;
use tidemark_wire::shards::{Ranges, ShardId};

/// Cells by shard, the limits of their readings, and their totals along edges.
#[derive(Clone, Debug)]
pub struct View {
    own: AggregatorId,
    /// For a view of a pair: the start under which the ledger has to know it.
    start: Option<u64>,
    /// By shard: the cells of one range of counters.
    shards: Vec<Cells>,
    hierarchy: Hierarchy,
    limits: ReadLimits,
    /// A range that is being split.
    parting: Option<Parting>,
    /// The memory budget of buckets.
    budget: Option<Budget>,
    /// Data that resets up to this number ended is dropped; and the cells that are to be dropped.
    ended: u64,
    ending: over::Ending,
}

impl View {
    /// The empty view of an aggregator, with one shard for all counters; `seed` hashes names in memory.
    pub fn new(own: impl Into<AggregatorId>, seed: u64) -> View {
        View::cut(own, seed, Ranges::whole())
    }

    /// The same with a shard for each of these ranges.
    pub fn cut(own: impl Into<AggregatorId>, seed: u64, ranges: Ranges) -> View {
        View::of_shards(own, (0..ranges.numbers()).map(|_| Cells::new(seed)).collect(), ranges)
    }

    /// A view of these cells, without counted totals yet. Panics unless there are cells for each range.
    pub fn of_shards(own: impl Into<AggregatorId>, shards: Vec<Cells>, ranges: Ranges) -> View {
        assert_eq!(shards.len(), ranges.numbers(), "each range has its cells");
        let own = own.into();
        let hierarchy = Hierarchy::with_ranges(ranges);
        let limits = ReadLimits::default();
        View {
            own,
            start: None,
            shards,
            hierarchy,
            limits,
            parting: None,
            budget: None,
            ended: 0,
            ending: Default::default(),
        }
    }

    /// The cells of a shard. Panics if there is none of that number.
    pub fn cells(&self, shard: ShardId) -> &Cells {
        &self.shards[usize::from(shard.0)]
    }

    /// The cells of all shards, in the order of their numbers; of ranges that were split there are none.
    pub fn shards(&self) -> impl ExactSizeIterator<Item = (ShardId, &Cells)> {
        self.shards.iter().enumerate().map(|(at, cells)| (ShardId(at as u16), cells))
    }

    /// The shard of a counter.
    pub fn shard_of(&self, counter: &CounterName) -> ShardId {
        self.ranges().find(counter)
    }

    /// The cells among which a counter's are.
    pub fn cells_of(&self, counter: &CounterName) -> &Cells {
        self.cells(self.shard_of(counter))
    }

    /// Number of cells in all shards.
    pub fn len(&self) -> u64 {
        self.shards.iter().map(|cells| u64::from(cells.len())).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of cells of ended generations in all shards.
    pub fn over_len(&self) -> u64 {
        self.shards.iter().map(|cells| u64::from(cells.over_len())).sum()
    }

    /// Changes cells, by shard. Raised components are carried into totals before anything else is done.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut [Cells]) -> R) -> R {
        let result = change(&mut self.shards);
        if !bites(Bug::RaisedLate) {
            self.carry();
        }
        result
    }

    /// Carries raised components into totals.
    fn carry(&mut self) {
        for (at, cells) in self.shards.iter_mut().enumerate() {
            let shard = ShardId(at as u16);
            let gathered = &mut cells.gathered;
            if let Some(parting) = self.parting.as_mut().filter(|parting| parting.shard() == shard) {
                parting.on_raised(gathered);
            }
            for (at, &(slot, by)) in gathered.counts.iter().enumerate() {
                warm::ahead(&gathered.counts, at, |&(slot, _)| self.hierarchy.warm_source(shard, slot));
                self.hierarchy.on_raised(shard, slot, by);
            }
            gathered.counts.clear();
            for (slot, raised) in gathered.buckets.drain(..) {
                self.hierarchy.on_row_raised(shard, slot, &raised);
            }
        }
    }

    /// Merges the component of a valve: the maximum of both.
    pub fn merge(&mut self, cell: &CellId, valve: ValveId, value: u64) -> Result<Merged, MergeError> {
        let shard = usize::from(self.shard_of(&cell.counter).0);
        self.change(|shards| {
            let cells = &mut shards[shard];
            let slot = cells.slot(cell)?;
            let valve = cells.valve(valve)?;
            Ok(cells.merge(slot, valve, value))
        })
    }

    /// Merges a part of the row of a valve's component: of each bucket that is kept the maximum of both.
    pub fn merge_row(&mut self, cell: &CellId, valve: ValveId, part: &Row) -> Result<Option<RowRaised>, MergeError> {
        let shard = usize::from(self.shard_of(&cell.counter).0);
        self.change(|shards| {
            let cells = &mut shards[shard];
            let slot = cells.slot(cell)?;
            let valve = cells.valve(valve)?;
            Ok(cells.merge_row(slot, valve, part))
        })
    }

    /// Groups with a component that was raised since the last call.
    pub fn take_raised(&mut self) -> BTreeSet<GroupId> {
        self.shards.iter_mut().flat_map(Cells::take_raised).collect()
    }

    /// The component of a group (the sum over its lanes) of a counter's total in a generation.
    pub fn component_of(&self, counter: &CounterName, generation: u32, group: GroupId) -> u64 {
        self.cells_of(counter).component_of(counter, generation, group)
    }

    /// Sum of the components of a counter's total in a generation, up half, unclamped.
    pub fn sum_of(&self, counter: &CounterName, generation: u32) -> u64 {
        self.cells_of(counter).sum_of_half(counter, Half::Up, generation)
    }

    /// Sum of the components of a counter's decrements in a generation.
    pub fn down_of(&self, counter: &CounterName, generation: u32) -> u64 {
        self.cells_of(counter).sum_of_half(counter, Half::Down, generation)
    }

    /// The part of each data centre in one half of a counter's total in a generation, unclamped: the data centres that have
    /// counted it, as far as is known here.
    pub fn parts_of(&self, counter: &CounterName, half: Half, generation: u32) -> BTreeMap<DcId, u64> {
        self.cells_of(counter).parts_of(counter, half, generation)
    }

    /// Sum over all components of a data centre of a hash of (cell, valve, value): equal in two views that hold the same.
    pub fn hash_of(&self, dc: DcId) -> u64 {
        self.shards.iter().fold(0, |sum, cells| sum.wrapping_add(cells.hash_of(dc)))
    }

    /// How a namespace keeps series here; `None` if it keeps none.
    pub fn series_of(&self, namespace: &str) -> Option<&SeriesView> {
        // All shards know the same terms and the same time.
        self.shards[0].series_of(namespace)
    }

    /// The rows of one half of a counter in a generation, each of one valve. Expired buckets may still be in them: read them by a
    /// cover that was planned with the namespace's horizon.
    pub fn rows(
        &self,
        counter: &CounterName,
        half: Half,
        generation: u32,
    ) -> impl Iterator<Item = (ValveId, Cow<'_, Row>)> + '_ {
        self.cells_of(counter).rows(counter, half, generation)
    }

    /// The same for a reader of only some of their buckets.
    pub fn held_rows(
        &self,
        counter: &CounterName,
        half: Half,
        generation: u32,
    ) -> impl Iterator<Item = HeldRow<'_>> + '_ {
        self.cells_of(counter).held_rows(counter, half, generation)
    }

    /// Takes the host's clock. If it goes back, the latest time stays.
    pub fn on_time(&mut self, now: UnixTime) {
        self.shards.iter_mut().for_each(|cells| cells.on_time(now));
        self.parting.iter_mut().for_each(|parting| parting.on_time(now));
    }

    /// The counts of lost groups that the ledger knows and this view does not: they are in no feed any more.
    fn unseen(&self, counter: &CounterName, ledger: &Ledger) -> u64 {
        let Some(state) = ledger.counter(counter) else { return 0 };
        let generation = ledger.resets().generation(counter);
        let unseen = |group| state.known_of(group).saturating_sub(self.component_of(counter, generation, group));
        state.losses().lost().fold(0, |sum, (group, _)| sum.saturating_add(unseen(group)))
    }

    /// Takes over the ledger after a start, before the first read.
    pub fn on_start(&mut self, ledger: &Ledger) {
        self.shards.iter_mut().for_each(|cells| cells.take_series(ledger));
        self.drop_all_over(ledger);
        self.count_totals_anew(ledger);
        ledger.guarded().for_each(|counter| self.limits.update(counter, ledger, self.own, 0));
    }

    /// Takes over the changes in the ledger applied here: the limits of the readings of the named counters.
    pub fn on_ledger(&mut self, changes: &Changes, ledger: &Ledger) {
        if changes.settings {
            self.shards.iter_mut().for_each(|cells| cells.take_series(ledger));
            self.parting.iter_mut().for_each(|parting| parting.take_series(ledger));
        }
        self.follow_graph(changes, ledger);
        for (counter, before) in &changes.over {
            self.on_over(counter, *before, ledger);
        }
        for counter in &changes.counters {
            let shown = self.read(counter, ledger).up;
            self.limits.update(counter, ledger, self.own, shown);
        }
    }

    pub fn limits(&self) -> &ReadLimits {
        &self.limits
    }

    pub fn limits_mut(&mut self) -> &mut ReadLimits {
        &mut self.limits
    }

    /// This is the view of one of a pair, started for the `start`th time. It may have been set aside before, and milestones armed
    /// since then did not wait for it. So it shows nothing before the ledger as applied here knows of this very start.
    pub fn show_from(&mut self, start: u64) {
        self.start = Some(start);
    }

    /// Whether milestones that are being armed wait for this view's answer.
    pub fn is_registered(&self, ledger: &Ledger) -> bool {
        match self.start {
            Some(start) if !bites(Bug::ReturnUnseen) => ledger.view_start(self.own) == Some(start),
            _ => ledger.views().contains(&self.own),
        }
    }

    /// The value of a counter as this view shows it; `ledger` is the state applied here. While that does not know of this
    /// view, milestones are armed without asking it, so it shows nothing (all is `pending`).
    pub fn read(&self, counter: &CounterName, ledger: &Ledger) -> Reading {
        let reading = self.would_show(counter, ledger);
        if self.is_registered(ledger) {
            return reading;
        }
        let pending = reading.pending.saturating_add(reading.up);
        Reading { up: 0, pending, at_most: None, down: 0, ..reading }
    }

    /// The shown reading, or the one that would be shown if the ledger knew of this view: an earlier start of it has shown this.
    pub fn would_show(&self, counter: &CounterName, ledger: &Ledger) -> Reading {
        let generation = ledger.resets().generation(counter);
        let before = if bites(Bug::ResetNotShown) { self.sum_of(counter, 0) * u64::from(generation > 0) } else { 0 };
        let sum = self.sum_of(counter, generation) + before;
        let ledger_index = ledger.applied().0;
        let sum = sum.saturating_add(self.unseen(counter, ledger));
        let below = self.limits.limit(counter, ledger).map_or(u64::MAX, |limit| limit - 1);
        // No milestone is about the down half: nothing limits its reading.
        let down = if ledger.goes_down(counter) { self.down_of(counter, generation) } else { 0 };
        match ledger.counter(counter) {
            None => {
                let pending = sum.saturating_sub(below);
                Reading { up: sum.min(below), pending, at_most: None, ledger_index, generation, down }
            }
            Some(state) => {
                let up = state.certain().max(sum.min(below));
                // Late increments have happened, and their weight is not known here.
                let known = state.bases_missing().next().is_none() && !state.terms().any_late();
                let losses = state.losses().surplus().saturating_add(state.losses().written_off());
                let beyond = losses.saturating_add(state.deferred().weight());
                let at_most = known.then(|| state.upper().saturating_add(beyond).max(up));
                let pending = sum.saturating_sub(up);
                Reading { up, pending, at_most, ledger_index, generation, down }
            }
        }
    }

    /// Forgets the cells of a shard, and their part of totals, as if none had ever been named; `seed` hashes the names of later
    /// cells.
    pub fn forget_shard(&mut self, shard: ShardId, seed: u64) {
        drop(self.take_cells(shard, seed));
        self.ending.forget(shard);
        self.hierarchy.forget_shard(shard);
    }

    /// Takes the cells of a shard, and leaves none in their place.
    fn take_cells(&mut self, shard: ShardId, seed: u64) -> Cells {
        let cells = &mut self.shards[usize::from(shard.0)];
        let next = cells.forgotten(seed);
        std::mem::replace(cells, next)
    }

    /// Whether all cells of a shard add to totals.
    pub fn has_taken_in_all(&self, shard: ShardId) -> bool {
        let cells = self.cells(shard);
        let last = cells.len().checked_sub(1);
        last.is_none_or(|last| self.hierarchy.has_taken_in(shard, last)) && self.not_taken_in(shard).is_empty()
    }

    /// Bytes allocated, without totals.
    pub fn heap_bytes(&self) -> usize {
        let parting = self.parting.as_ref().map_or(0, Parting::heap_bytes);
        self.shards.iter().map(Cells::heap_bytes).sum::<usize>() + parting
    }

    /// Panics when components, sums or totals are out of order. Walks every cell.
    pub fn check_all(&self) {
        self.shards.iter().for_each(Cells::check_all);
        self.hierarchy.check_invariants();
        for (shard, cells) in self.shards() {
            let is_here = |slot| self.shard_of(&cells.name(slot).counter) == shard;
            assert!((0..cells.len()).all(is_here), "cells are of their shard's range");
        }
    }

    /// Panics when names and table disagree, or something raised is not carried.
    pub fn check_invariants(&self) {
        for cells in &self.shards {
            cells.check_invariants();
            assert!(cells.gathered.is_empty() || bites(Bug::RaisedLate), "what was raised is carried");
        }
    }
}

impl KnownCounts for View {
    fn groups(&self) -> BTreeSet<GroupId> {
        self.shards().flat_map(|(_, cells)| cells.valves()).map(|valve| valve.group).collect()
    }

    fn count_of(&self, counter: &CounterName, generation: u32, group: GroupId) -> u64 {
        self.component_of(counter, generation, group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crdts::{CmRDT, CvRDT, GCounter};
    use proptest::prelude::*;
    use tidemark_types::ids::{GroupId, LogIndex};
    use tidemark_wire::msg::LedgerCmd;

    fn valve(i: u16) -> ValveId {
        ValveId { group: GroupId { dc: DcId(i % 5), group: 0, incarnation: 1 }, lane: (i / 5) as u8 }
    }

    fn counter() -> CounterName {
        CounterName::new("t", b"k").unwrap()
    }

    fn merged(components: &[(u16, u64)]) -> View {
        let mut view = View::new(DcId(0), 7);
        for &(i, value) in components {
            view.merge(&counter().total(), valve(i), value).unwrap();
        }
        view
    }

    #[test]
    fn known_counts_of_a_group_are_the_sum_of_its_valves() {
        let view = merged(&[(0, 3), (5, 4), (1, 10)]);
        let group = |i| valve(i).group;
        assert_eq!(view.groups(), [group(0), group(1)].into());
        let known =
            [(0, 0), (0, 1), (1, 0), (1, 2)].map(|(generation, i)| view.count_of(&counter(), generation, group(i)));
        assert_eq!(known, [7, 10, 0, 0]);
        assert_eq!(view.count_of(&CounterName::new("t", b"other").unwrap(), 0, group(0)), 0);
    }

    fn shown(view: &View) -> Vec<(ValveId, u64)> {
        let mut all: Vec<_> = view.shards[0]
            .components(0)
            .map(|(number, value)| (view.shards[0].valves()[usize::from(number)], value))
            .collect();
        all.sort();
        all
    }

    proptest! {
        #[test]
        fn merging_is_commutative_associative_and_idempotent(
            mut components in proptest::collection::vec((0u16..12, 1u64..1_000), 0..40), seed in any::<u64>()
        ) {
            let view = merged(&components);
            let doubled: Vec<_> = components.iter().chain(&components).copied().collect();
            prop_assert_eq!(shown(&merged(&doubled)), shown(&view));
            components.sort_by_key(|(i, value)| (u64::from(*i) ^ value).wrapping_mul(seed | 1));
            prop_assert_eq!(shown(&merged(&components)), shown(&view));
        }

        /// The rows equal the G-counter of the `crdts` crate with a valve as the actor.
        #[test]
        fn rows_equal_the_grow_only_counter(steps in proptest::collection::vec((0u16..12, 1u64..50), 0..60)) {
            let mut left: GCounter<u16> = GCounter::new();
            let mut right: GCounter<u16> = GCounter::new();
            let mut views = [View::new(DcId(0), 1), View::new(DcId(1), 2)];
            let mut values: BTreeMap<u16, u64> = BTreeMap::new();
            for (step, &(i, n)) in steps.iter().enumerate() {
                *values.entry(i).or_default() += n;
                let side = step % 2;
                let oracle = if side == 0 { &mut left } else { &mut right };
                let op = oracle.inc_many(i, values[&i] - oracle_component(oracle, i));
                oracle.apply(op);
                views[side].merge(&counter().total(), valve(i), values[&i]).unwrap();
            }
            left.merge(right);
            for (id, value) in shown(&views[1]) {
                views[0].merge(&counter().total(), id, value).unwrap();
            }
            prop_assert_eq!(left.read().to_string(), views[0].sum_of(&counter(), 0).to_string());
        }
    }

    fn oracle_component(oracle: &GCounter<u16>, actor: u16) -> u64 {
        oracle.inc(actor).counter - 1
    }

    #[test]
    fn the_parts_of_data_centres_add_up_to_the_sum() {
        let view = merged(&[(0, 5), (5, 7), (2, 6)]);
        let parts = view.parts_of(&counter(), Half::Up, 0);
        assert_eq!(parts, BTreeMap::from([(DcId(0), 12), (DcId(2), 6)]));
        assert_eq!(parts.values().sum::<u64>(), view.sum_of(&counter(), 0));
        assert!(view.parts_of(&CounterName::new("t", b"other").unwrap(), Half::Up, 0).is_empty());
    }

    #[test]
    fn a_reading_of_an_unguarded_counter_is_the_sum() {
        let view = merged(&[(0, 5), (1, 7), (0, 6)]);
        let mut ledger = Ledger::default();
        let reading = view.read(&counter(), &ledger);
        assert_eq!((reading.up, reading.pending), (0, 13), "nothing is shown before the ledger knows of the view");
        ledger.apply(LogIndex(1), &LedgerCmd::View(DcId(0).into()));
        let reading = view.read(&counter(), &ledger);
        assert_eq!((reading.up, reading.pending, reading.at_most), (13, 0, None));
    }
}
