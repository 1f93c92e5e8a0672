//! The slots of ended cells, which new cells get (decision 0091).
//!
//! An ended cell is empty, and the view accepts nothing for it. Its slot becomes *free* once this is on disk and nothing refers to the
//! slot any more; the aggregator checks both. The cell keeps its name until the slot is reused. So each slot has a name at any time,
//! and the format of names on disk stays.
//!
//! A reused slot has another number for peers: its *tag* tells the cells of one slot apart in late messages.

use super::View;
use super::cells::{CELLS_MAX, Cells, MergeError};
use tidemark_ledger::ledger::Ledger;
use tidemark_types::ids::CellId;
use tidemark_types::numbers::Numbers;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::shards::ShardId;

/// Number of tags of a slot. After the last tag, the first tag comes again.
const TAGS: u32 = 1 << (u32::BITS - CELLS_MAX.trailing_zeros());
const _: () = assert!(CELLS_MAX.is_power_of_two() && TAGS > 2);

/// The free and the reused slots of a shard.
#[derive(Clone, Debug, Default)]
pub(super) struct Reuse {
    free: Numbers,
    /// Slots that new cells got since slots were last freed, in order.
    again: Vec<u32>,
    /// Number of leading entries of `again` whose cells are known to have ended or not.
    judged: usize,
    /// Slots that new cells got since a checkpoint began: their names are not on disk.
    unsaved: Numbers,
    /// Tags by slot; shorter while the last slots have tag 0.
    tags: Vec<u8>,
}

/// The number by which peers know a slot with a tag.
const fn number_of(slot: u32, tag: u8) -> u32 {
    slot + tag as u32 * CELLS_MAX
}

/// The slot and the tag of a peer's number.
pub(crate) const fn slot_and_tag(number: u32) -> (u32, u8) {
    (number % CELLS_MAX, (number / CELLS_MAX) as u8)
}

/// Whether a tag of a slot is earlier than another tag. Tags repeat, so half of the other tags count as earlier.
pub(crate) const fn is_earlier(tag: u8, than: u8) -> bool {
    (tag as u32 + TAGS - than as u32) % TAGS >= TAGS / 2
}

impl Reuse {
    /// The reused slots whose cells are not yet known to have ended or not.
    pub fn unjudged(&self) -> &[u32] {
        &self.again[self.judged..]
    }

    pub fn all_judged(&mut self) {
        self.judged = self.again.len();
    }

    /// The state after all cells are forgotten. Slots keep their tags, because peers may remember earlier numbers.
    pub fn of_none(&self) -> Reuse {
        Reuse { tags: self.tags.clone(), ..Reuse::default() }
    }

    pub fn heap_bytes(&self) -> usize {
        4 * self.again.capacity() + self.tags.capacity() + 8 * (self.free.words().len() + self.unsaved.words().len())
    }
}

impl Cells {
    /// The number by which peers know a slot. A reused slot has a new number.
    pub fn number(&self, slot: u32) -> u32 {
        number_of(slot, self.reuse.tags.get(slot as usize).copied().unwrap_or_default())
    }

    /// Slots that new cells got since slots were last freed. Freeing slots begins another [life](Cells::life).
    pub fn reused_slots(&self) -> &[u32] {
        &self.reuse.again
    }

    /// The number of ended cells.
    pub fn over_len(&self) -> u32 {
        self.over.len() as u32
    }

    /// The number of free slots.
    pub fn free_len(&self) -> u32 {
        self.reuse.free.len() as u32
    }

    /// The free slots, which the next new cells get.
    pub fn free_slots(&self) -> &Numbers {
        &self.reuse.free
    }

    /// Slots of ended cells that are not free yet.
    pub(crate) fn to_free(&self) -> Numbers {
        self.over.without(&self.reuse.free)
    }

    /// Makes slots free. Nothing refers to them, and their cells are empty on disk.
    pub(crate) fn free(&mut self, slots: &Numbers) {
        debug_assert!(slots.without(&self.over).is_empty(), "only slots of ended cells are freed");
        self.reuse.free.extend(slots);
        self.reuse.again.clear();
        self.reuse.judged = 0;
        self.begin_life();
    }

    /// Stops the reuse of slots: a range that is being split keeps its names.
    pub(super) fn clear_free_slots(&mut self) {
        self.reuse.free = Numbers::default();
    }

    /// Gives the lowest free slot to a new cell; `None`: no slot is free.
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

    /// Whether a slot got its name after the last checkpoint began.
    pub(crate) fn is_unsaved(&self, slot: u32) -> bool {
        self.reuse.unsaved.contains(slot)
    }

    /// Takes the slots whose names the checkpoint that begins has to rewrite.
    pub(crate) fn take_unsaved(&mut self) -> Numbers {
        self.reuse.unsaved.take()
    }
}

impl View {
    /// Frees slots of a shard. Only totals still refer to them, and forget them here.
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
    use tidemark_types::ids::{CounterName, DcId, GroupId, ValveId};
    use tidemark_types::series::{Horizon, Row, UnixTime};
    use tidemark_types::table::CellTable;

    #[test]
    fn numbers_tell_all_tags_of_all_slots_apart() {
        for (slot, tag) in [(0, 0), (5, 0), (5, 1), (CELLS_MAX - 1, 0), (CELLS_MAX - 1, (TAGS - 1) as u8)] {
            assert_eq!(slot_and_tag(number_of(slot, tag)), (slot, tag));
        }
        assert_eq!(number_of(CELLS_MAX - 1, (TAGS - 1) as u8), u32::MAX);
    }

    const LANES: u8 = 8;

    /// Cells that have one slot after each other. Each is counted in by another lane, in one of two data centres.
    fn rows_of_cells_in_one_slot() {
        let minute = UnixTime::try_from(1_790_000_000).unwrap();
        let mut cells = Cells::new(1);
        for round in 0..40_u8 {
            let cell = CounterName::new("t", &[round]).unwrap().total();
            let slot = cells.slot(&cell).unwrap();
            assert_eq!(slot, 0);
            for dc in [0, 1] {
                let group = GroupId { dc: DcId(dc), group: 0, incarnation: 1 };
                let valve = cells.valve(ValveId { group, lane: round % LANES }).unwrap();
                let mut row = Row::default();
                row.add(&Horizon::everything(), minute, 5).unwrap();
                let raised = cells.merge_row(slot, valve, &row).unwrap();
                assert_eq!(cells.row_place(raised.number), (slot, valve));
                let number = cells.row_numbers(slot).find(|&(_, of)| of == valve);
                assert_eq!(number, Some((raised.number, valve)));
            }
            assert_eq!((cells.row_numbers(slot).count(), cells.rows_of(slot).count()), (2, 2), "of the present cell");
            cells.check_all();
            cells.end(slot);
            assert_eq!(cells.row_numbers(slot).count(), 0);
            let over = cells.to_free();
            cells.free(&over);
        }
        assert_eq!(cells.rows_len(), 2, "one for each data centre");
    }

    #[test]
    fn a_new_cell_takes_the_rows_of_the_ended_one() {
        rows_of_cells_in_one_slot();
    }

    #[cfg(feature = "teeth")]
    #[test]
    fn rows_that_no_new_cell_takes_are_noticed() {
        assert!(tidemark_types::teeth::is_shown_by(Bug::RowsKept, rows_of_cells_in_one_slot));
    }

    /// A crash came when the row of a later cell was on disk, and the emptied row of an earlier cell with the same valve was not.
    #[test]
    fn an_empty_row_beside_that_of_a_component_is_loaded() {
        let group = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
        let valves = [0, 1].map(|lane| ValveId { group, lane });
        let mut cells = Cells::load(CellTable::new(1), &valves);
        let slot = cells.slot(&CounterName::new("t", b"k").unwrap().total()).unwrap();
        let mut row = Row::default();
        row.add(&Horizon::everything(), UnixTime::try_from(1_790_000_000).unwrap(), 5).unwrap();
        for (number, valve, row, is_taken) in [
            (0, 1, row.clone(), true),
            (1, 1, Row::default(), true),
            (2, 1, row.clone(), false),
            (2, 0, Row::default(), true),
        ] {
            assert_eq!(cells.load_row(number, slot, valve, row), is_taken, "row {number} of valve {valve}");
        }
        cells.check_all();
        assert_eq!(cells.row_numbers(slot).collect::<Vec<_>>(), [(0, 1)]);
        assert!(!cells.load_shelved(1, 9, &row), "the component has a row");
    }

    #[test]
    fn slots_keep_their_tags_when_all_cells_are_forgotten() {
        let mut cells = Cells::new(1);
        let cell = |key: u8| CounterName::new("t", &[key]).unwrap().total();
        let slot = cells.slot(&cell(0)).unwrap();
        let first = cells.number(slot);
        cells.end(slot);
        let over = cells.to_free();
        cells.free(&over);
        assert_eq!(cells.slot(&cell(1)), Ok(slot));
        let second = cells.number(slot);
        let mut anew = cells.forgotten(2);
        assert_eq!(anew.slot(&cell(2)), Ok(slot));
        assert!(first != second && anew.number(slot) == second);
    }
}
