//! Counters that began again, as one group has heard of it: which cell an increment of theirs is added to.
//!
//! A batch may name a cell of an earlier generation: its client knew of no other, or it was proposed before the group heard. It
//! counts in the present one all the same.

use super::Group;
use crate::ids::{CellId, CounterName, Half};
use crate::limits::RESET_COUNTERS_MAX;
use crate::table::CellTable;
use crate::teeth::{Bug, bites};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Resets of all counters together that a checkpoint may speak of: each is looked up when it is loaded.
const RESETS_MAX: u64 = 1 << 26;

/// Slots as bits.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotSet(Vec<u64>);

impl SlotSet {
    pub fn insert(&mut self, slot: u32) {
        let word = slot as usize / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (slot % 64);
    }

    #[inline]
    pub fn contains(&self, slot: u32) -> bool {
        self.0.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }
}

/// In place of a slot: what is over is to count in a cell that nobody has named yet. Only a down half is ever so: few counters have
/// one, so it is not named when its counter begins again, but by the next decrement.
pub(super) const NOWHERE: u32 = u32::MAX;

/// The present cell of a counter that began again, up half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Present {
    pub generation: u32,
    pub slot: u32,
}

/// Counters that began again.
#[derive(Clone, Debug, Default)]
pub(super) struct Generations {
    present: BTreeMap<CounterName, Present>,
    /// Slots of what is over, and the slot that counts instead; or [`NOWHERE`].
    past: BTreeMap<u32, u32>,
    is_past: SlotSet,
}

impl Generations {
    /// From a checkpoint; `None` if it is none of a table with so many slots.
    pub fn load(present: Vec<(CounterName, Present)>, table: &CellTable) -> Option<Generations> {
        let mut loaded = Generations { present: present.into_iter().collect(), ..Generations::default() };
        let sound = |(counter, present): (&CounterName, &Present)| {
            present.generation > 0 && table.find_total(counter, present.generation) == Some(present.slot)
        };
        if loaded.total() > RESETS_MAX || !loaded.present.iter().all(sound) {
            return None;
        }
        for (counter, present) in &loaded.present {
            for half in [Half::Up, Half::Down] {
                let slot_of = |generation| table.find_half(counter, half, generation);
                let now = slot_of(present.generation).unwrap_or(NOWHERE);
                for slot in (0..present.generation).filter_map(slot_of) {
                    loaded.past.insert(slot, now);
                    loaded.is_past.insert(slot);
                }
            }
        }
        Some(loaded)
    }

    /// Of a checkpoint: the present cells.
    pub fn save_present(&self) -> Vec<(CounterName, Present)> {
        self.present.iter().map(|(counter, &present)| (counter.clone(), present)).collect()
    }

    #[cfg(test)]
    pub fn past(&self) -> &BTreeMap<u32, u32> {
        &self.past
    }

    /// The generation of a counter.
    pub fn of(&self, counter: &CounterName) -> u32 {
        if self.present.is_empty() { 0 } else { self.present.get(counter).map_or(0, |present| present.generation) }
    }

    /// Generations begun, of all counters together.
    pub fn total(&self) -> u64 {
        self.present.values().map(|present| u64::from(present.generation)).sum()
    }

    /// The slot in which an increment counts that names `slot`, or [`NOWHERE`].
    #[inline]
    pub fn slot_now(&self, slot: u32) -> u32 {
        if self.is_past.contains(slot) { self.past.get(&slot).copied().unwrap_or(slot) } else { slot }
    }

    fn redirect(&mut self, from: u32, to: u32) {
        self.past.values_mut().filter(|present| **present == from).for_each(|present| *present = to);
        self.past.insert(from, to);
        self.is_past.insert(from);
    }
}

impl Group {
    /// How often a counter began again, as far as this group has heard.
    pub fn generation(&self, counter: &CounterName) -> u32 {
        self.generations.of(counter)
    }

    /// The cell in which a counter's increments (or, of the down half, decrements) count.
    pub fn cell_of(&self, counter: &CounterName, half: Half) -> CellId {
        counter.half_of(half, self.generations.of(counter))
    }

    /// The cell to be named before anything can count that names `slot`, if there is such a cell.
    #[inline]
    pub fn unnamed_cell_of(&self, slot: u32) -> Option<CellId> {
        (self.generations.slot_now(slot) == NOWHERE).then(|| {
            let CellId { counter, half, .. } = self.cells.table.name(slot);
            self.cell_of(&counter, half)
        })
    }

    /// A counter that is not guarded began again.
    pub(super) fn on_generation(&mut self, counter: &CounterName, generation: u32) {
        if self.guard_of(counter).is_none() {
            self.begin(counter, generation);
        }
    }

    /// Begins a generation of a counter, if it is a later one; the slot of the present one. None: the table is full, or too many
    /// counters began again.
    pub(super) fn begin(&mut self, counter: &CounterName, generation: u32) -> Option<u32> {
        let before = self.generations.of(counter);
        if generation <= before {
            return self.intern(&counter.total_of(before)).ok();
        }
        let known = self.generations.present.contains_key(counter);
        if !known && self.generations.present.len() >= RESET_COUNTERS_MAX {
            return None;
        }
        let slot = self.intern(&counter.total_of(generation)).ok()?;
        let table = &self.cells.table;
        let over = table.find_total(counter, before).filter(|_| !bites(Bug::ResetIgnored));
        let over_down = table.find_half(counter, Half::Down, before).filter(|_| !bites(Bug::ResetIgnoredByDown));
        let down = table.find_half(counter, Half::Down, generation).unwrap_or(NOWHERE);
        over.into_iter().for_each(|over| self.generations.redirect(over, slot));
        over_down.into_iter().for_each(|over| self.generations.redirect(over, down));
        self.generations.present.insert(counter.clone(), Present { generation, slot });
        Some(slot)
    }

    /// A batch that was proposed before the group heard of a reset may be the first to name a cell of what is over.
    /// A decrement may be the first to name the down half's present cell: what names an earlier one counts there.
    pub(super) fn on_named(&mut self, cell: &CellId, slot: u32) {
        let Some(present) = self.generations.present.get(&cell.counter).copied() else { return };
        let table = &self.cells.table;
        if cell.generation < present.generation {
            let now = match cell.half {
                Half::Up => present.slot,
                Half::Down => table.find_half(&cell.counter, Half::Down, present.generation).unwrap_or(NOWHERE),
            };
            self.generations.redirect(slot, now);
        } else if cell.half == Half::Down && cell.generation == present.generation {
            let slot_of = |generation| table.find_half(&cell.counter, Half::Down, generation);
            let over: Vec<u32> = (0..cell.generation).filter_map(slot_of).collect();
            over.into_iter().for_each(|over| self.generations.redirect(over, slot));
        }
    }

    /// Whether a message about resets holds any that this group has not heard of.
    pub(super) fn is_behind(&self, generations: &[(CounterName, u32)]) -> bool {
        let news = |(counter, generation): &(CounterName, u32)| *generation > self.generations.of(counter);
        generations.iter().any(|begun| news(begun) && self.guard_of(&begun.0).is_none())
    }
}
