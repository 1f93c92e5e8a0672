//! Giving back the cells of what is over, and their names (decision 0065).
//!
//! Slots never change between two compactions. A compaction is an entry of the log: at it every replica makes a table of the cells that stay,
//! in their order, and gives all that goes by slots or components the new numbers. Consumers of the feed are told of the new numbers, by
//! names, and of nothing else again. Of a checkpoint that is being made then, the rest is put together before.

use super::Group;
use super::cells::Cells;
use super::generations::SlotSet;
use super::rows::Extent;
use std::collections::BTreeMap;
use tidemark_types::table::GONE;
use tidemark_types::teeth::{Bug, bites};

impl Group {
    /// How often slots got numbers anew.
    pub fn compactions(&self) -> u32 {
        self.compactions
    }

    /// Cells of what is over that have slots.
    pub fn cells_over(&self) -> u32 {
        self.generations.past()
    }

    /// Whether so many slots at least, and one in `part` of all, are of what is over.
    pub fn is_to_compact(&self, least: u32, part: u32) -> bool {
        let over = self.generations.past();
        over >= least.max(1) && over >= self.cells.table.len() / part.max(1)
    }

    /// Gives back what is over. A start that comes with it makes void what was proposed by slots of before.
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
