//! Cells with their components and rows, merged by maximum: all data of a stream of gossip, with the sums by which it is
//! compared.
//!
//! Raised components are gathered, and the [`View`](super::View) carries them into its totals before anything reads a count for
//! totals. A cell that is new to the totals is taken in with its count by then.

use super::components::Components;
use super::reuse::Reuse;
use super::series::Series;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::hash::{bytes_hash, hash_of_name};
use tidemark_types::ids::{Bucket, CellId, CounterName, DcId, GroupId, Half, ValveId};
use tidemark_types::limits::{GROUPS_MAX, VALVES_MAX};
use tidemark_types::numbers::Numbers;
use tidemark_types::series::BucketId;
use tidemark_types::table::{BadNames, CellTable, TableFull};

/// Cells that stand together; components of further ones are refused.
pub const CELLS_MAX: u32 = 1 << 26;

/// The effect of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    Unchanged,
    Raised,
}

/// Components of cells, by slot, and their rows of buckets.
#[derive(Clone, Debug)]
pub struct Cells {
    pub(super) table: CellTable,
    pub(super) components: Components,
    /// Hashes of the cells' names, equal in every data centre.
    pub(super) cell_hashes: Vec<u64>,
    pub(super) valves: Vec<ValveId>,
    pub(super) valve_hashes: Vec<u64>,
    pub(super) valve_numbers: BTreeMap<ValveId, u16>,
    groups: BTreeSet<GroupId>,
    /// Valves with a component that was raised since [`Cells::take_raised`].
    raised: Vec<bool>,
    /// Sum over hashes of all components of a data centre.
    pub(super) sums: Vec<u64>,
    pub(super) series: Series,
    pub(super) gathered: Gathered,
    /// By how much components were raised.
    weight: u64,
    /// Counts how often all cells were forgotten or slots were freed.
    life: u32,
    /// Cells of ended generations that hold nothing any more ([`over`](super::over)). Cells below `judged` are known to be over
    /// or not. Data that resets up to the number `ended` ended is dropped; and the cells with dropped data since.
    pub(super) over: Numbers,
    pub(super) judged: u32,
    pub(super) ended: u64,
    pub(super) dropped: Vec<u32>,
    pub(super) reuse: Reuse,
}

/// Raised components that are not carried into totals yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathered {
    /// Slots, each with by how much.
    pub counts: Vec<(u32, u64)>,
    pub buckets: Vec<(u32, Vec<(BucketId, u64)>)>,
}

impl Gathered {
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.buckets.is_empty()
    }
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

impl Cells {
    /// None; `seed` hashes names in memory.
    pub fn new(seed: u64) -> Cells {
        Cells::load(CellTable::new(seed), &[])
    }

    /// Cells without components, but with valves and the names of the table: the first step of loading.
    pub fn load(table: CellTable, valves: &[ValveId]) -> Cells {
        let mut cells = Cells {
            table,
            components: Components::default(),
            cell_hashes: Vec::new(),
            valves: Vec::new(),
            valve_hashes: Vec::new(),
            valve_numbers: BTreeMap::new(),
            groups: BTreeSet::new(),
            raised: Vec::new(),
            sums: Vec::new(),
            series: Series::default(),
            gathered: Gathered::default(),
            weight: 0,
            life: 0,
            over: Numbers::default(),
            judged: 0,
            ended: 0,
            dropped: Vec::new(),
            reuse: Reuse::default(),
        };
        valves.iter().take(VALVES_MAX).for_each(|&valve| cells.push_valve(valve));
        cells
    }

    /// Appends names as given by [`CellTable::records`], which are not found before [`Cells::names_loaded`].
    pub fn load_names(&mut self, records: &[u8]) -> Result<(), BadNames> {
        let loaded = self.table.load_records(records);
        self.components.grow(self.table.len());
        let new = self.cell_hashes.len() as u32..self.table.len();
        self.cell_hashes.extend(new.map(|slot| cell_hash(&self.table, slot)));
        loaded
    }

    /// All names are loaded; they are found from here on. Error: one is there twice.
    pub fn names_loaded(&mut self) -> Result<(), BadNames> {
        self.table.index_loaded()
    }

    /// Number of cells; slots are below it.
    pub fn len(&self) -> u32 {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn name(&self, slot: u32) -> CellId {
        self.table.name(slot)
    }

    /// An upper bound of the encoded size of a slot's name, bytes.
    pub fn name_bytes(&self, slot: u32) -> usize {
        self.table.name_bytes(slot)
    }

    pub fn table(&self) -> &CellTable {
        &self.table
    }

    pub fn slot(&mut self, cell: &CellId) -> Result<u32, MergeError> {
        if let Some(slot) = self.table.find(cell) {
            return Ok(slot);
        }
        if let Some(slot) = self.take_free(cell)? {
            self.cell_hashes[slot as usize] = cell_hash(&self.table, slot);
            return Ok(slot);
        }
        if self.table.len() >= CELLS_MAX {
            return Err(MergeError::Cells);
        }
        let slot = self.table.intern(cell)?;
        self.components.grow(slot + 1);
        self.cell_hashes.push(cell_hash(&self.table, slot));
        Ok(slot)
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

    /// The number of a valve that has one.
    pub fn valve_number(&self, valve: ValveId) -> Option<u16> {
        self.valve_numbers.get(&valve).copied()
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

    /// Prefetches the memory of a slot that [`Cells::merge`] will read.
    pub(crate) fn warm(&self, slot: u32) -> u64 {
        let hash = self.cell_hashes.get(slot as usize).copied().unwrap_or_default();
        self.components.warm(slot).wrapping_add(hash)
    }

    /// Reads the memory of a slot that its sum will need.
    pub(super) fn warm_components(&self, slot: u32) -> u64 {
        self.components.warm(slot)
    }

    /// Merges one component: the maximum of both. Says whether that changed anything. Panics on a slot or a valve that was
    /// never given.
    #[inline]
    pub fn merge(&mut self, slot: u32, valve: u16, value: u64) -> Merged {
        let Some(before) = self.raise(slot, valve, value) else { return Merged::Unchanged };
        self.weight = self.weight.saturating_add(value - before);
        self.gathered.counts.push((slot, value - before));
        Merged::Raised
    }

    /// The same for a component that was merged in an earlier life: totals do not follow, since all are counted anew.
    pub(crate) fn load_component(&mut self, slot: u32, valve: u16, value: u64) {
        self.raise(slot, valve, value);
    }

    /// Returns its earlier value, if it changed.
    #[inline]
    fn raise(&mut self, slot: u32, valve: u16, value: u64) -> Option<u64> {
        if self.over.contains(slot) {
            return None;
        }
        let before = self.components.merge(slot, valve, value)?;
        let key = self.cell_hashes[slot as usize] ^ self.valve_hashes[usize::from(valve)];
        let sum = &mut self.sums[usize::from(self.valves[usize::from(valve)].group.dc.0)];
        let was = if before == 0 { 0 } else { component_hash(key, before) };
        *sum = sum.wrapping_add(component_hash(key, value)).wrapping_sub(was);
        self.raised[usize::from(valve)] = true;
        Some(before)
    }

    /// Groups with a component that was raised since the last call.
    pub fn take_raised(&mut self) -> BTreeSet<GroupId> {
        let raised = self.raised.iter_mut().zip(&self.valves).filter(|(raised, _)| **raised);
        raised.map(|(raised, valve)| (std::mem::take(raised), valve.group).1).collect()
    }

    /// The component of a group (the sum over its lanes) of a counter's total in a generation.
    pub fn component_of(&self, counter: &CounterName, generation: u32, group: GroupId) -> u64 {
        let of_group = |(valve, _): &(u16, u64)| self.valves[usize::from(*valve)].group == group;
        let all = self.table.find_total(counter, generation).into_iter().flat_map(|slot| self.components(slot));
        all.filter(of_group).fold(0, |sum, (_, value)| sum.saturating_add(value))
    }

    /// Sum over all components of a data centre of a hash of (cell, valve, value): equal in two that hold the same.
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

    /// Sum of the components of one half of a counter's total in a generation, unclamped.
    pub fn sum_of_half(&self, counter: &CounterName, half: Half, generation: u32) -> u64 {
        self.table.find_half(counter, half, generation).map_or(0, |slot| self.sum(slot))
    }

    /// The part of each data centre in one half of a counter's total in a generation, unclamped: the data centres that have
    /// counted it, as far as is known here.
    pub fn parts_of(&self, counter: &CounterName, half: Half, generation: u32) -> BTreeMap<DcId, u64> {
        let mut parts = BTreeMap::new();
        let slot = self.table.find_half(counter, half, generation);
        for (valve, value) in slot.into_iter().flat_map(|slot| self.components(slot)) {
            let part: &mut u64 = parts.entry(self.valves[usize::from(valve)].group.dc).or_default();
            *part = part.saturating_add(value);
        }
        parts
    }

    /// By how much components were raised since the process started.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// Counts how often all cells were forgotten or slots were freed. Slots from an earlier life may be invalid.
    pub fn life(&self) -> u32 {
        self.life
    }

    pub(super) fn begin_life(&mut self) {
        self.life += 1;
    }

    /// None, of counters that are kept as those of these are.
    pub(super) fn none_like(&self, seed: u64) -> Cells {
        Cells { series: self.series.emptied(), ended: self.ended, ..Cells::new(seed) }
    }

    /// The cells of the same shard after all of these are forgotten.
    pub(super) fn forgotten(&self, seed: u64) -> Cells {
        Cells { life: self.life + 1, reuse: self.reuse.of_none(), ..self.none_like(seed) }
    }

    /// Bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        self.table.heap_bytes()
            + self.components.heap_bytes()
            + 8 * self.cell_hashes.capacity()
            + self.reuse.heap_bytes()
            + self.series_heap_bytes()
            + size_of::<(u32, u64)>() * self.gathered.counts.capacity()
    }

    /// Panics when components or sums are out of order. Walks every cell.
    pub fn check_all(&self) {
        self.check_invariants();
        self.check_series();
        let holds =
            |slot| self.components(slot).next().is_some() || self.rows_of(slot).any(|(.., row)| !row.is_empty());
        assert!(!(0..self.len()).any(|slot| self.over.contains(slot) && holds(slot)), "what is over holds nothing");
        self.components.check_invariants();
        let hash = |(slot, valve, value): (u32, u16, u64)| {
            let key = self.cell_hashes[slot as usize] ^ self.valve_hashes[usize::from(valve)];
            (self.valves[usize::from(valve)].group.dc, component_hash(key, value))
        };
        let all =
            (0..self.len()).flat_map(|slot| self.components(slot).map(move |(valve, value)| (slot, valve, value)));
        let mut sums = vec![0u64; self.sums.len()];
        for (dc, hash) in all.map(hash) {
            sums[usize::from(dc.0)] = sums[usize::from(dc.0)].wrapping_add(hash);
        }
        assert_eq!(sums, self.sums, "sums of hashes");
    }

    /// Panics when names and table disagree.
    pub fn check_invariants(&self) {
        assert_eq!(self.cell_hashes.len(), self.table.len() as usize, "every cell has a hash");
        assert_eq!(self.valves.len(), self.valve_numbers.len(), "valves are numbered once");
    }
}

/// A hash of a cell's name, equal on every machine.
fn cell_hash(table: &CellTable, slot: u32) -> u64 {
    let (namespace, key, generation, half, bucket) = table.parts(slot);
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
pub(super) fn component_hash(key: u64, value: u64) -> u64 {
    let product = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * u128::from(value.wrapping_mul(0xd6e8_feb8_6659_fd93) | 1);
    ((product >> 64) as u64) ^ (product as u64)
}
