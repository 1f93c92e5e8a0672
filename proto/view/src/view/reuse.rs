//! The slots of ended cells, which new cells get (decision 0089).
//!
//! A cell that is over holds nothing, and nothing is taken for it. Its slot becomes *free* once that is on disk and nothing refers
//! to the slot any more; the aggregator sees to both. The cell keeps its name until the slot is given away. So each slot has a name
//! at any time, and the names on disk need no other format.
//!
//! A slot that was given away has another number for peers: its *tag* tells the cells of one slot apart in late messages.

use super::View;
use super::cells::{CELLS_MAX, Cells, MergeError};
use tidemark_ledger::ledger::Ledger;
use tidemark_types::ids::CellId;
use tidemark_types::numbers::Numbers;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::shards::ShardId;

/// The tags of a slot that have different numbers; after these the first one comes again.
const TAGS: u32 = 1 << (u32::BITS - CELLS_MAX.trailing_zeros());
const _: () = assert!(CELLS_MAX.is_power_of_two() && TAGS > 2);

/// The free slots of a shard, and those that were given away.
#[derive(Clone, Debug, Default)]
pub(super) struct Reuse {
    free: Numbers,
    /// Slots that new cells got since slots were last freed, in order.
    again: Vec<u32>,
    /// Of these, the first ones are known to be over or not.
    judged: usize,
    /// Slots that new cells got since a checkpoint began: their names are not on disk.
    unsaved: Numbers,
    /// By slot, if any has another tag than the first.
    tags: Vec<u8>,
}

/// The number by which peers know a slot, in a tag.
const fn number_of(slot: u32, tag: u8) -> u32 {
    slot + tag as u32 * CELLS_MAX
}

/// The slot and the tag of a peer's number.
pub(crate) const fn slot_and_tag(number: u32) -> (u32, u8) {
    (number % CELLS_MAX, (number / CELLS_MAX) as u8)
}

impl Reuse {
    /// The slots that were given away and are not known to be over or not.
    pub fn unjudged(&self) -> &[u32] {
        &self.again[self.judged..]
    }

    pub fn all_judged(&mut self) {
        self.judged = self.again.len();
    }

    pub fn heap_bytes(&self) -> usize {
        4 * self.again.capacity() + self.tags.capacity() + 8 * (self.free.words().len() + self.unsaved.words().len())
    }
}

impl Cells {
    /// The number by which peers know a slot. A slot that a new cell got has another one than before.
    pub fn number(&self, slot: u32) -> u32 {
        number_of(slot, self.reuse.tags.get(slot as usize).copied().unwrap_or_default())
    }

    /// Slots that new cells got since slots were last freed. That begins another [life](Cells::life).
    pub fn reused_slots(&self) -> &[u32] {
        &self.reuse.again
    }

    /// The number of cells that are over.
    pub fn over_len(&self) -> u32 {
        self.over.len() as u32
    }

    /// The number of slots that new cells get.
    pub fn free_len(&self) -> u32 {
        self.reuse.free.len() as u32
    }

    /// The slots that the next new cells get.
    pub fn free_slots(&self) -> &Numbers {
        &self.reuse.free
    }

    /// Slots of cells that are over, and that are not free.
    pub(crate) fn to_free(&self) -> Numbers {
        self.over.without(&self.reuse.free)
    }

    /// Nothing refers to these slots, and their cells hold nothing on disk.
    pub(crate) fn free(&mut self, slots: &Numbers) {
        debug_assert!(slots.without(&self.over).is_empty(), "only what is over is freed");
        self.reuse.free.extend(slots);
        self.reuse.again.clear();
        self.reuse.judged = 0;
        self.begin_life();
    }

    /// No slot is given away any more: a range that is split keeps its names.
    pub(super) fn clear_free_slots(&mut self) {
        self.reuse.free = Numbers::default();
    }

    /// A free slot for a new cell.
    pub(super) fn take_free(&mut self, cell: &CellId) -> Result<Option<u32>, MergeError> {
        let Some(slot) = self.reuse.free.pop() else { return Ok(None) };
        if let Err(full) = self.table.rename(slot, cell) {
            self.reuse.free.insert(slot);
            return Err(full.into());
        }
        self.over.remove(slot);
        self.reuse.again.push(slot);
        self.reuse.unsaved.insert(slot);
        if !bites(Bug::TagKept) {
            let tags = &mut self.reuse.tags;
            tags.resize(tags.len().max(slot as usize + 1), 0);
            let tag = &mut tags[slot as usize];
            *tag = ((u32::from(*tag) + 1) % TAGS) as u8;
        }
        Ok(Some(slot))
    }

    /// Whether the name of a slot came after the last checkpoint began.
    pub(crate) fn is_unsaved(&self, slot: u32) -> bool {
        self.reuse.unsaved.contains(slot)
    }

    /// A checkpoint begins, which writes the names of these slots anew.
    pub(crate) fn take_unsaved(&mut self) -> Numbers {
        self.reuse.unsaved.take()
    }
}

impl View {
    /// Frees slots of a shard. Nothing refers to them but totals, which forget them here.
    pub(crate) fn free_slots(&mut self, shard: ShardId, slots: &Numbers, ledger: &Ledger) {
        self.judge_new(ledger);
        self.with_hierarchy(|hierarchy, view| {
            hierarchy.take_in(ledger, view);
            hierarchy.free_slots(shard, slots);
        });
        self.shards[usize::from(shard.0)].free(slots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_all_tags_of_all_slots_apart() {
        for (slot, tag) in [(0, 0), (5, 0), (5, 1), (CELLS_MAX - 1, 0), (CELLS_MAX - 1, (TAGS - 1) as u8)] {
            assert_eq!(slot_and_tag(number_of(slot, tag)), (slot, tag));
        }
        assert_eq!(number_of(CELLS_MAX - 1, (TAGS - 1) as u8), u32::MAX);
    }
}
