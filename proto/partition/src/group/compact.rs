//! Frees the cells of ended generations, and their names (decision 0065).
//!
//! Slots never change between two compactions. A compaction is an entry of the log. At it every replica makes a table of the
//! cells that stay, in their order. It renumbers everything that refers to slots or components. Consumers of the feed are told of
//! the new numbers, by names, and of nothing else again. If a checkpoint is being made then, its rest is put together before.

use super::Group;
use super::cells::Cells;
use super::generations::SlotSet;
use super::rows::Extent;
use std::collections::BTreeMap;
use tidemark_types::table::GONE;
use tidemark_types::teeth::{Bug, bites};

impl Group {
    /// The number of compactions, which give slots new numbers.
    pub fn compactions(&self) -> u32 {
        self.compactions
    }

    /// Cells of ended generations that have slots.
    pub fn cells_over(&self) -> u32 {
        self.generations.past()
    }

    /// Whether ended generations have at least `least` slots, and one in `part` of all.
    pub fn is_to_compact(&self, least: u32, part: u32) -> bool {
        let over = self.generations.past();
        over >= least.max(1) && over >= self.cells.table.len() / part.max(1)
    }

    /// Frees the cells of ended generations. The start that comes with it makes void all proposals with old slots.
    pub(super) fn on_compact(&mut self, nonce: u64) {
        self.compact();
        self.on_boot(nonce, self.lanes());
        self.effects.push_back(super::Effect::Compacted);
    }

    fn compact(&mut self) {
        self.finish_rows();
        let before = Extent::of(self);
        let over = |slot| self.generations.is_over(slot);
        let (table, slots) = self.cells.table.compacted(|slot| !over(slot));
        let mut cells = Cells::new(table, self.config.ring(0));
        cells.widen(self.cells.lanes());
        let mut components = vec![GONE; self.cells.len() as usize];
        for number in 0..self.cells.len() {
            let component = self.cells.component(number);
            let slot = slots[component.slot as usize];
            if slot != GONE {
                components[number as usize] = cells.push(super::cells::Component { slot, ..component });
            }
        }
        let place = |number: u32| Some(components[number as usize]).filter(|&place| place != GONE);
        cells.ring = self.cells.ring.renumbered(self.config.ring_capacity, place);
        cells.dirty = std::mem::take(&mut self.cells.dirty);
        self.cells = cells;
        self.series.compact(&components, &self.config);
        for guard in &mut self.guards {
            guard.slot = slots[guard.slot as usize];
        }
        (self.guarded, self.guard_of_slot) = (SlotSet::default(), BTreeMap::new());
        let guarded: Vec<u32> = self.guards.iter().map(|guard| guard.slot).collect();
        (0..).zip(guarded).for_each(|(number, slot)| self.index_guard(slot, number));
        if !bites(Bug::PresentForgotten) {
            self.generations = self.generations.compacted(&slots);
        } else {
            self.generations = Default::default();
        }
        self.compactions += 1;
        self.write_all(before);
    }
}
