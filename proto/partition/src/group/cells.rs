//! The components of a group's cells: one number per cell and lane that touched it, 12 bytes each, and their changes.
//!
//! A cell that one lane touched (a cold one: its key hashes to a lane) needs no more than its slot. A cell that several lanes
//! touched has a row with a place for every lane.

use crate::group::blocks::Blocks;
use tidemark_types::ids::CellId;
use tidemark_types::limits::{COMPONENT_MAX, LANES_MAX};
use tidemark_types::ring::ChangeRing;
use tidemark_types::table::{CellTable, TableFull};

/// No component yet.
const NONE: u32 = u32::MAX;
/// The cell's components are in a row; the other bits are its number.
const ROW: u32 = 1 << 31;
/// Bits of the lane beside a component's value.
const LANE_BITS: u32 = 6;
/// Components in one row of a checkpoint.
pub(super) const COMPONENTS_PER_BLOCK: u32 = 256;

const _: () = assert!(1 << LANE_BITS >= LANES_MAX as u32 && COMPONENT_MAX.leading_zeros() >= LANE_BITS);

/// Cells by slot, components by number in order of first touch.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    lanes: u8,
    pub table: CellTable,
    /// By slot: `NONE`, the number of its only component, or `ROW` and the number of its row.
    cells: Vec<u32>,
    /// Rows of `lanes` component numbers.
    rows: Vec<u32>,
    /// By component: value and lane.
    values: Vec<u64>,
    /// By component: slot.
    owners: Vec<u32>,
    pub ring: ChangeRing,
    pub dirty: Blocks,
}

/// A component of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Component {
    pub slot: u32,
    pub lane: u8,
    pub value: u64,
}

impl Cells {
    /// Of one lane.
    pub fn new(table: CellTable, ring: ChangeRing) -> Cells {
        let cells = vec![NONE; table.len() as usize];
        let rows = Vec::new();
        let values = Vec::new();
        let owners = Vec::new();
        Cells { lanes: 1, table, cells, rows, values, owners, ring, dirty: Blocks::default() }
    }

    pub fn lanes(&self) -> u8 {
        self.lanes
    }

    /// Makes room for this number of lanes, at most [`LANES_MAX`]. There are never fewer than before.
    pub fn widen(&mut self, lanes: u8) {
        let before = usize::from(self.lanes);
        let lanes = lanes.min(LANES_MAX).max(self.lanes);
        if usize::from(lanes) == before {
            return;
        }
        let mut rows = Vec::with_capacity(self.rows.len() / before * usize::from(lanes));
        for row in self.rows.chunks_exact(before) {
            rows.extend_from_slice(row);
            rows.resize(rows.len() + usize::from(lanes) - before, NONE);
        }
        (self.lanes, self.rows) = (lanes, rows);
    }

    pub fn intern(&mut self, cell: &CellId) -> Result<u32, TableFull> {
        let slot = self.table.intern(cell)?;
        if slot as usize == self.cells.len() {
            self.cells.push(NONE);
        }
        Ok(slot)
    }

    /// Adds to a component. Error: its value, unchanged, when the sum would pass [`COMPONENT_MAX`].
    #[inline]
    pub fn add(&mut self, slot: u32, lane: u8, delta: u64, version: u64) -> Result<(), u64> {
        let number = self.component_or_new(slot, lane);
        let word = &mut self.values[number as usize];
        let value = *word >> LANE_BITS;
        if delta > COMPONENT_MAX - value {
            return Err(value);
        }
        *word += delta << LANE_BITS;
        self.ring.touch(number, version);
        self.dirty.set(number / COMPONENTS_PER_BLOCK);
        Ok(())
    }

    /// Prefetches the memory of a slot that [`Cells::add`] will read.
    pub fn warm(&self, slot: u32) -> u64 {
        let number = self.cells.get(slot as usize).copied().unwrap_or(NONE);
        self.values.get(number as usize).copied().unwrap_or_default().wrapping_add(self.ring.warm(number))
    }

    /// Takes back the last addition of [`Cells::add`].
    pub fn take_back(&mut self, slot: u32, lane: u8, delta: u64) {
        let number = self.component_or_new(slot, lane);
        self.values[number as usize] -= delta << LANE_BITS;
    }

    #[inline]
    fn component_or_new(&mut self, slot: u32, lane: u8) -> u32 {
        let cell = self.cells[slot as usize];
        if cell < ROW && self.lane(cell) == lane {
            return cell;
        }
        if cell >= ROW && cell != NONE {
            let known = self.rows[self.row_at(cell, lane)];
            if known != NONE {
                return known;
            }
        }
        self.push(Component { slot, lane, value: 0 })
    }

    /// Appends a component that the cell does not have yet.
    pub fn push(&mut self, component: Component) -> u32 {
        let number = self.values.len() as u32;
        assert!(number < ROW, "components of a group");
        self.values.push(component.value << LANE_BITS | u64::from(component.lane));
        self.owners.push(component.slot);
        let cell = self.cells[component.slot as usize];
        if cell == NONE {
            self.cells[component.slot as usize] = number;
            return number;
        }
        let row = if cell < ROW { self.make_row(component.slot, cell) } else { cell };
        let at = self.row_at(row, component.lane);
        self.rows[at] = number;
        number
    }

    fn make_row(&mut self, slot: u32, only: u32) -> u32 {
        let row = ROW | (self.rows.len() / usize::from(self.lanes)) as u32;
        self.rows.resize(self.rows.len() + usize::from(self.lanes), NONE);
        let at = self.row_at(row, self.lane(only));
        self.rows[at] = only;
        self.cells[slot as usize] = row;
        row
    }

    fn row_at(&self, row: u32, lane: u8) -> usize {
        (row & !ROW) as usize * usize::from(self.lanes) + usize::from(lane)
    }

    fn lane(&self, number: u32) -> u8 {
        (self.values[number as usize] & ((1 << LANE_BITS) - 1)) as u8
    }

    /// The number of a component, if there is one.
    #[inline]
    pub fn number(&self, slot: u32, lane: u8) -> Option<u32> {
        let cell = self.cells[slot as usize];
        let known = if cell < ROW {
            cell
        } else if cell == NONE {
            NONE
        } else {
            self.rows[self.row_at(cell, lane)]
        };
        (known != NONE && self.lane(known) == lane).then_some(known)
    }

    /// The number of components.
    pub fn len(&self) -> u32 {
        self.values.len() as u32
    }

    /// A component by its number.
    pub fn component(&self, number: u32) -> Component {
        let value = self.values[number as usize] >> LANE_BITS;
        Component { slot: self.owners[number as usize], lane: self.lane(number), value }
    }

    /// Whether the cell has a component of this lane.
    pub fn has(&self, slot: u32, lane: u8) -> bool {
        self.of(slot).any(|component| component.lane == lane)
    }

    /// The components of a cell, by lane. The slot must be known.
    pub fn of(&self, slot: u32) -> impl Iterator<Item = Component> + '_ {
        let cell = self.cells[slot as usize];
        let (only, row) = match cell {
            NONE => (None, &[][..]),
            only if only < ROW => (Some(only), &[][..]),
            row => (None, &self.rows[self.row_at(row, 0)..][..usize::from(self.lanes)]),
        };
        let of_row = row.iter().copied().filter(|&number| number != NONE);
        only.into_iter().chain(of_row).map(|number| self.component(number))
    }

    /// The sum over the lanes.
    pub fn sum(&self, slot: u32) -> u64 {
        self.of(slot).map(|component| component.value).sum()
    }

    pub fn heap_bytes(&self) -> usize {
        let arrays = 4 * (self.cells.capacity() + self.rows.capacity() + self.owners.capacity());
        arrays + 8 * self.values.capacity() + self.table.heap_bytes() + self.ring.heap_bytes()
    }

    /// Makes room for the components of names that were loaded into the table.
    pub fn names_loaded(&mut self) {
        self.cells.resize(self.table.len() as usize, NONE);
    }

    /// Makes room for this number of further components.
    pub fn reserve(&mut self, components: usize) {
        self.values.reserve_exact(components);
        self.owners.reserve_exact(components);
    }
}
