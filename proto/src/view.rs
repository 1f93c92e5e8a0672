//! The view of one data centre's aggregator: components of all cells, merged by maximum, and readings of them.
//!
//! A reading never goes back, never exceeds what happened, and never reaches an armed milestone before it is awarded: below
//! the least such milestone M, `up = max(certain, min(sum of components, M - 1))`. Where a counter may go down that is its up half,
//! and the same holds, without any milestone, of its down half.

mod audit;
mod components;
pub mod hierarchy;
mod limits;
mod loads;
mod series;
mod totals;

pub use audit::{ANCESTORS_AUDITED_MAX, NotCounted, TotalAudit};
pub use limits::{NotedLimit, ReadLimits};
pub use loads::Load;
pub use series::{RowRaised, SeriesView, parts_of};
pub use totals::Total;

use crate::hash::{bytes_hash, hash_of_name};
use crate::ids::{AggregatorId, Bucket, CellId, CounterName, DcId, GroupId, Half, ValveId};
use crate::ledger::{Changes, Ledger};
use crate::limits::{GROUPS_MAX, VALVES_MAX};
use crate::msg::Reading;
use crate::table::{CellTable, TableFull};
use crate::teeth::{Bug, bites};
use components::Components;
use hierarchy::Hierarchy;
use std::collections::{BTreeMap, BTreeSet};

/// Cells of one view; components of further ones are refused.
pub const CELLS_MAX: u32 = 1 << 26;

/// Whether a merge changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    Unchanged,
    Raised,
}

/// Components of all cells, by slot.
#[derive(Clone, Debug)]
pub struct View {
    own: AggregatorId,
    /// Of one of a pair: the start under which the ledger has to know it.
    start: Option<u64>,
    cells: CellTable,
    components: Components,
    /// Hashes of the cells' names, equal in every data centre.
    cell_hashes: Vec<u64>,
    valves: Vec<ValveId>,
    valve_hashes: Vec<u64>,
    valve_numbers: BTreeMap<ValveId, u16>,
    groups: BTreeSet<GroupId>,
    /// Valves of which a component was raised since [`View::take_raised`].
    raised: Vec<bool>,
    /// Sum over hashes of all components of a data centre.
    sums: Vec<u64>,
    series: series::Series,
    hierarchy: Hierarchy,
    loads: loads::Loads,
    limits: ReadLimits,
}

/// Why a component was not merged. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    #[error(transparent)]
    Table(#[from] TableFull),
    #[error("valves of a view: at most {VALVES_MAX}, of at most {GROUPS_MAX} groups")]
    Valves,
    #[error("cells of a view: at most {CELLS_MAX}")]
    Cells,
}

impl View {
    /// The empty view of an aggregator; `seed` hashes names in memory.
    pub fn new(own: impl Into<AggregatorId>, seed: u64) -> View {
        View::load(own, CellTable::new(seed), &[])
    }

    /// A view with valves but no cells yet: the first step of loading.
    pub fn load(own: impl Into<AggregatorId>, cells: CellTable, valves: &[ValveId]) -> View {
        let mut view = View {
            own: own.into(),
            start: None,
            cells,
            components: Components::default(),
            cell_hashes: Vec::new(),
            valves: Vec::new(),
            valve_hashes: Vec::new(),
            valve_numbers: BTreeMap::new(),
            groups: BTreeSet::new(),
            raised: Vec::new(),
            sums: Vec::new(),
            series: series::Series::default(),
            hierarchy: Hierarchy::default(),
            loads: loads::Loads::default(),
            limits: ReadLimits::default(),
        };
        valves.iter().take(VALVES_MAX).for_each(|&valve| view.push_valve(valve));
        view
    }

    /// Appends names as given by [`CellTable::records`].
    pub fn load_names(&mut self, records: &[u8]) -> Result<(), crate::table::BadNames> {
        let loaded = self.cells.load_records(records);
        self.take_in_new_cells();
        loaded
    }

    /// All names are loaded; they are found from here on. Error: one is there twice.
    pub fn names_loaded(&mut self) -> Result<(), crate::table::BadNames> {
        self.cells.index_loaded()
    }

    /// Number of cells; slots are below it.
    pub fn cells(&self) -> u32 {
        self.cells.len()
    }

    pub fn name(&self, slot: u32) -> CellId {
        self.cells.name(slot)
    }

    /// An upper bound of the encoded size of a slot's name, bytes.
    pub fn name_bytes(&self, slot: u32) -> usize {
        self.cells.name_bytes(slot)
    }

    pub fn table(&self) -> &CellTable {
        &self.cells
    }

    pub fn slot(&mut self, cell: &CellId) -> Result<u32, MergeError> {
        if let Some(slot) = self.cells.find(cell) {
            return Ok(slot);
        }
        if self.cells.len() >= CELLS_MAX {
            return Err(MergeError::Cells);
        }
        let slot = self.cells.intern(cell)?;
        self.components.grow(slot + 1);
        self.cell_hashes.push(cell_hash(&self.cells, slot));
        self.loads.take_in(self.hierarchy.ranges(), &self.cells);
        Ok(slot)
    }

    fn take_in_new_cells(&mut self) {
        self.components.grow(self.cells.len());
        let new = self.cell_hashes.len() as u32..self.cells.len();
        self.cell_hashes.extend(new.map(|slot| cell_hash(&self.cells, slot)));
        self.loads.take_in(self.hierarchy.ranges(), &self.cells);
    }

    /// The dense number of a valve.
    pub fn valve(&mut self, valve: ValveId) -> Result<u16, MergeError> {
        if let Some(&number) = self.valve_numbers.get(&valve) {
            return Ok(number);
        }
        let new_group = !self.groups.contains(&valve.group);
        if self.valves.len() >= VALVES_MAX || (new_group && self.groups.len() >= GROUPS_MAX) {
            return Err(MergeError::Valves);
        }
        let number = self.valves.len() as u16;
        self.push_valve(valve);
        Ok(number)
    }

    fn push_valve(&mut self, valve: ValveId) {
        self.groups.insert(valve.group);
        self.valve_numbers.insert(valve, self.valves.len() as u16);
        self.valves.push(valve);
        self.raised.push(false);
        self.valve_hashes.push(valve_hash(valve));
        let dcs = usize::from(valve.group.dc.0) + 1;
        self.sums.resize(self.sums.len().max(dcs), 0);
    }

    pub fn valves(&self) -> &[ValveId] {
        &self.valves
    }

    /// Reads of a slot what [`View::merge`] will.
    pub(crate) fn warm(&self, slot: u32) -> u64 {
        let hash = self.cell_hashes.get(slot as usize).copied().unwrap_or_default();
        self.components.warm(slot).wrapping_add(hash).wrapping_add(self.loads.warm(slot))
    }

    /// Merges one component: the maximum of both. Says whether that changed anything. Panics on a slot or a valve that was
    /// never given.
    #[inline]
    pub fn merge(&mut self, slot: u32, valve: u16, value: u64) -> Merged {
        let Some(before) = self.components.merge(slot, valve, value) else { return Merged::Unchanged };
        let key = self.cell_hashes[slot as usize] ^ self.valve_hashes[usize::from(valve)];
        let sum = &mut self.sums[usize::from(self.valves[usize::from(valve)].group.dc.0)];
        let was = if before == 0 { 0 } else { component_hash(key, before) };
        *sum = sum.wrapping_add(component_hash(key, value)).wrapping_sub(was);
        self.raised[usize::from(valve)] = true;
        self.loads.on_raised(slot, value - before);
        self.hierarchy.on_raised(slot, value - before);
        Merged::Raised
    }

    /// Groups of which a component was raised since the last call.
    pub fn take_raised(&mut self) -> BTreeSet<GroupId> {
        let raised = self.raised.iter_mut().zip(&self.valves).filter(|(raised, _)| **raised);
        raised.map(|(raised, valve)| (std::mem::take(raised), valve.group).1).collect()
    }

    /// The component of a group (the sum over its lanes) of a counter's total in a generation.
    pub fn component_of(&self, counter: &CounterName, generation: u32, group: GroupId) -> u64 {
        let of_group = |(valve, _): &(u16, u64)| self.valves[usize::from(*valve)].group == group;
        let all = self.cells.find_total(counter, generation).into_iter().flat_map(|slot| self.components(slot));
        all.filter(of_group).fold(0, |sum, (_, value)| sum.saturating_add(value))
    }

    /// What the ledger knows of groups that are lost and this view does not: counted, and in nobody's feed any more.
    fn unseen(&self, counter: &CounterName, ledger: &Ledger) -> u64 {
        let Some(state) = ledger.counter(counter) else { return 0 };
        let generation = ledger.resets().generation(counter);
        let unseen = |group| state.known_of(group).saturating_sub(self.component_of(counter, generation, group));
        state.losses().lost().fold(0, |sum, (group, _)| sum.saturating_add(unseen(group)))
    }

    /// Sum over all components of a data centre of a hash of (cell, valve, value): equal in two views that hold the same.
    pub fn hash_of(&self, dc: DcId) -> u64 {
        self.sums.get(usize::from(dc.0)).copied().unwrap_or(0)
    }

    /// The components of a slot: (valve, value), ascending by valve.
    pub fn components(&self, slot: u32) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.components.of(slot)
    }

    /// The component of one valve; 0 if there is none.
    pub fn component(&self, slot: u32, valve: u16) -> u64 {
        self.components(slot).find(|(of, _)| *of == valve).map_or(0, |(_, value)| value)
    }

    /// The components of a slot that belong to valves of one data centre.
    pub fn components_of(&self, slot: u32, dc: DcId) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.components.of(slot).filter(move |(valve, _)| self.valves[usize::from(*valve)].group.dc == dc)
    }

    /// Sum of a slot's components.
    pub fn sum(&self, slot: u32) -> u64 {
        self.components.sum(slot)
    }

    /// Sum of the components of a counter's total in a generation, up half, unclamped.
    pub fn sum_of(&self, counter: &CounterName, generation: u32) -> u64 {
        self.cells.find_total(counter, generation).map_or(0, |slot| self.sum(slot))
    }

    /// Sum of the components of what was counted down of a counter in a generation.
    pub fn down_of(&self, counter: &CounterName, generation: u32) -> u64 {
        self.cells.find_half(counter, Half::Down, generation).map_or(0, |slot| self.sum(slot))
    }

    /// What each data centre contributes to one half of a counter's total in a generation, unclamped: those that have counted it, as
    /// far as is known here.
    pub fn parts_of(&self, counter: &CounterName, half: Half, generation: u32) -> BTreeMap<DcId, u64> {
        let mut parts = BTreeMap::new();
        let slot = self.cells.find_half(counter, half, generation);
        for (valve, value) in slot.into_iter().flat_map(|slot| self.components(slot)) {
            let part: &mut u64 = parts.entry(self.valves[usize::from(valve)].group.dc).or_default();
            *part = part.saturating_add(value);
        }
        parts
    }

    /// Takes over the ledger after a start, when nobody has read anything yet.
    pub fn on_start(&mut self, ledger: &Ledger) {
        self.take_series(ledger);
        self.count_totals_anew(ledger);
        ledger.guarded().for_each(|counter| self.limits.update(counter, ledger, self.own, 0));
    }

    /// Takes over what changed in the ledger applied here: what limits the readings of the counters named.
    pub fn on_ledger(&mut self, changes: &Changes, ledger: &Ledger) {
        if changes.settings {
            self.take_series(ledger);
        }
        self.follow_graph(changes, ledger);
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

    /// This is the view of one of a pair, started for the `start`th time: it may have been set aside before, and what is armed since
    /// then did not wait for it. So it shows nothing before the ledger as applied here knows of this very start.
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

    /// What it shows, or would if the ledger knew of it: an earlier start of it has shown this.
    pub fn would_show(&self, counter: &CounterName, ledger: &Ledger) -> Reading {
        let generation = ledger.resets().generation(counter);
        let before = if bites(Bug::ResetNotShown) { self.sum_of(counter, 0) * u64::from(generation > 0) } else { 0 };
        let sum = self.sum_of(counter, generation) + before;
        let ledger_index = ledger.applied().0;
        let sum = sum.saturating_add(self.unseen(counter, ledger));
        let below = self.limits.limit(counter, ledger).map_or(u64::MAX, |limit| limit - 1);
        // No milestone is about the down half: nothing limits what is shown of it.
        let down = if ledger.goes_down(counter) { self.down_of(counter, generation) } else { 0 };
        match ledger.counter(counter) {
            None => {
                let pending = sum.saturating_sub(below);
                Reading { up: sum.min(below), pending, at_most: None, ledger_index, generation, down }
            }
            Some(state) => {
                let up = state.certain().max(sum.min(below));
                // What is late has happened, and nobody here knows how much it is.
                let known = state.bases_missing().next().is_none() && !state.terms().any_late();
                let losses = state.losses().surplus().saturating_add(state.losses().written_off());
                let beyond = losses.saturating_add(state.deferred().weight());
                let at_most = known.then(|| state.upper().saturating_add(beyond).max(up));
                let pending = sum.saturating_sub(up);
                Reading { up, pending, at_most, ledger_index, generation, down }
            }
        }
    }

    /// Bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        let rows = self.series_heap_bytes();
        self.cells.heap_bytes()
            + self.components.heap_bytes()
            + 8 * self.cell_hashes.capacity()
            + rows
            + self.loads.heap_bytes()
    }

    /// Panics when components or sums are out of order. Walks every cell.
    pub fn check_all(&self) {
        self.check_invariants();
        self.check_series();
        self.hierarchy.check_invariants();
        self.components.check_invariants();
        let hash = |(slot, valve, value): (u32, u16, u64)| {
            let key = self.cell_hashes[slot as usize] ^ self.valve_hashes[usize::from(valve)];
            (self.valves[usize::from(valve)].group.dc, component_hash(key, value))
        };
        let all =
            (0..self.cells()).flat_map(|slot| self.components(slot).map(move |(valve, value)| (slot, valve, value)));
        let mut sums = vec![0u64; self.sums.len()];
        for (dc, hash) in all.map(hash) {
            sums[usize::from(dc.0)] = sums[usize::from(dc.0)].wrapping_add(hash);
        }
        assert_eq!(sums, self.sums, "sums of hashes");
    }

    /// Panics when names and table disagree.
    pub fn check_invariants(&self) {
        assert_eq!(self.cell_hashes.len(), self.cells.len() as usize, "every cell has a hash");
        assert_eq!(self.valves.len(), self.valve_numbers.len(), "valves are numbered once");
    }
}

/// A hash of a cell's name, equal on every machine.
fn cell_hash(cells: &CellTable, slot: u32) -> u64 {
    let (namespace, key, generation, half, bucket) = cells.parts(slot);
    let mut rest = [0; 17];
    rest[..4].copy_from_slice(&generation.to_le_bytes());
    rest[4] = u8::from(half == Half::Down);
    if let Bucket::Span { length_s, start_s } = bucket {
        rest[5..9].copy_from_slice(&length_s.to_le_bytes());
        rest[9..].copy_from_slice(&start_s.to_le_bytes());
    }
    bytes_hash(hash_of_name(namespace, key), &rest)
}

fn valve_hash(id: ValveId) -> u64 {
    let mut bytes = [0; 9];
    bytes[..2].copy_from_slice(&id.group.dc.0.to_le_bytes());
    bytes[2..4].copy_from_slice(&id.group.group.to_le_bytes());
    bytes[4..8].copy_from_slice(&id.group.incarnation.to_le_bytes());
    bytes[8] = id.lane;
    bytes_hash(0, &bytes)
}

/// `key` names cell and valve.
#[inline]
fn component_hash(key: u64, value: u64) -> u64 {
    let product = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * u128::from(value.wrapping_mul(0xd6e8_feb8_6659_fd93) | 1);
    ((product >> 64) as u64) ^ (product as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{GroupId, LogIndex};
    use crate::msg::LedgerCmd;
    use crdts::{CmRDT, CvRDT, GCounter};
    use proptest::prelude::*;

    fn valve(i: u16) -> ValveId {
        ValveId { group: GroupId { dc: DcId(i % 5), group: 0, incarnation: 1 }, lane: (i / 5) as u8 }
    }

    fn counter() -> CounterName {
        CounterName::new("t", b"k").unwrap()
    }

    fn merged(components: &[(u16, u64)]) -> View {
        let mut view = View::new(DcId(0), 7);
        let slot = view.slot(&counter().total()).unwrap();
        for &(i, value) in components {
            let number = view.valve(valve(i)).unwrap();
            view.merge(slot, number, value);
        }
        view
    }

    fn shown(view: &View) -> Vec<(ValveId, u64)> {
        let mut all: Vec<_> =
            view.components(0).map(|(number, value)| (view.valves()[usize::from(number)], value)).collect();
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
            let slots: Vec<u32> = views.iter_mut().map(|view| view.slot(&counter().total()).unwrap()).collect();
            let mut values: BTreeMap<u16, u64> = BTreeMap::new();
            for (step, &(i, n)) in steps.iter().enumerate() {
                *values.entry(i).or_default() += n;
                let side = step % 2;
                let oracle = if side == 0 { &mut left } else { &mut right };
                let op = oracle.inc_many(i, values[&i] - oracle_component(oracle, i));
                oracle.apply(op);
                let number = views[side].valve(valve(i)).unwrap();
                views[side].merge(slots[side], number, values[&i]);
            }
            left.merge(right);
            let components: Vec<_> = views[1].components(slots[1]).map(|(n, v)| (views[1].valves()[usize::from(n)], v)).collect();
            for (id, value) in components {
                let number = views[0].valve(id).unwrap();
                views[0].merge(slots[0], number, value);
            }
            prop_assert_eq!(left.read().to_string(), views[0].sum(slots[0]).to_string());
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
