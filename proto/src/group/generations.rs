//! Counters that began again, as one group has heard of it: which cell an increment of theirs is added to.
//!
//! A batch may name a cell of an earlier generation: its client knew of no other, or it was proposed before the group heard. It
//! counts in the present one all the same.

use super::Group;
use crate::ids::{CellId, CounterName};
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

/// The present cell of a counter that began again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Present {
    pub generation: u32,
    pub slot: u32,
}

/// Counters that began again.
#[derive(Clone, Debug, Default)]
pub(super) struct Generations {
    present: BTreeMap<CounterName, Present>,
    /// Slots of what is over, and the slot that counts instead.
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
            let over = (0..present.generation).filter_map(|generation| table.find_total(counter, generation));
            for slot in over {
                loaded.past.insert(slot, present.slot);
                loaded.is_past.insert(slot);
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

    /// The slot in which an increment counts that names `slot`.
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

    /// The cell in which a counter's increments count.
    pub fn cell_of(&self, counter: &CounterName) -> CellId {
        counter.total_of(self.generations.of(counter))
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
        let over = self.cells.table.find_total(counter, before).filter(|_| !bites(Bug::ResetIgnored));
        over.into_iter().for_each(|over| self.generations.redirect(over, slot));
        self.generations.present.insert(counter.clone(), Present { generation, slot });
        Some(slot)
    }

    /// A batch that was proposed before the group heard of a reset may be the first to name a cell of what is over.
    pub(super) fn on_named(&mut self, cell: &CellId, slot: u32) {
        let present = self.generations.present.get(&cell.counter).copied();
        if let Some(present) = present.filter(|present| cell.generation < present.generation) {
            self.generations.redirect(slot, present.slot);
        }
    }

    /// Whether a message about resets holds any that this group has not heard of.
    pub(super) fn is_behind(&self, generations: &[(CounterName, u32)]) -> bool {
        let news = |(counter, generation): &(CounterName, u32)| *generation > self.generations.of(counter);
        generations.iter().any(|begun| news(begun) && self.guard_of(&begun.0).is_none())
    }
}
