//! Components of cells, compactly: blocks of 64 cells, each with one run of packed (valve number, value) and the cells' sums.
//!
//! About 10 bytes per component and 13 per cell; no allocation of its own per cell, no lists of freed pieces.

use std::ops::Range;

/// Cells per block: a block moves in memory when a cell gets a new component.
const BLOCK_CELLS: usize = 64;
/// Spare room of a growing block: this fraction of its length.
const SLACK_DIVISOR: usize = 8;

/// Components by cell (dense slot) and valve (number in a registry).
#[derive(Clone, Debug, Default)]
pub struct Components {
    blocks: Vec<Block>,
    cells: u32,
}

#[derive(Clone, Debug)]
struct Block {
    /// End of each cell's run.
    ends: [u32; BLOCK_CELLS],
    /// Sum of each cell's components, saturating.
    sums: [u64; BLOCK_CELLS],
    /// Ascending within a cell.
    valves: Vec<u16>,
    values: Vec<u64>,
}

impl Components {
    /// Makes room for slots below `cells`; they begin without components.
    pub fn grow(&mut self, cells: u32) {
        self.cells = self.cells.max(cells);
        while self.blocks.len() * BLOCK_CELLS < self.cells as usize {
            self.blocks.push(Block::new());
        }
    }

    /// The sum of a cell's components; 0 for a slot that does not exist.
    #[inline]
    pub fn sum(&self, slot: u32) -> u64 {
        self.blocks.get(slot as usize / BLOCK_CELLS).map_or(0, |block| block.sums[slot as usize % BLOCK_CELLS])
    }

    /// The components of a cell: (valve number, value), ascending by valve number.
    #[inline]
    pub fn of(&self, slot: u32) -> impl Iterator<Item = (u16, u64)> + '_ {
        let block = self.blocks.get(slot as usize / BLOCK_CELLS);
        block.into_iter().flat_map(move |block| {
            let run = block.run(slot as usize % BLOCK_CELLS);
            block.valves[run.clone()].iter().copied().zip(block.values[run].iter().copied())
        })
    }

    /// Prefetches the memory of a cell that [`Components::merge`] will read.
    pub fn warm(&self, slot: u32) -> u64 {
        let Some(block) = self.blocks.get(slot as usize / BLOCK_CELLS) else { return 0 };
        let cell = slot as usize % BLOCK_CELLS;
        let at = block.run(cell).start;
        let valve = block.valves.get(at).copied();
        let value = block.values.get(at).copied();
        block.sums[cell].wrapping_add(valve.unwrap_or_default().into()).wrapping_add(value.unwrap_or_default())
    }

    /// Raises a component to at least `value` and returns the old value, if it changed. Panics if the slot does not exist.
    #[inline]
    pub fn merge(&mut self, slot: u32, valve: u16, value: u64) -> Option<u64> {
        assert!(slot < self.cells, "slot {slot} of {}", self.cells);
        let block = &mut self.blocks[slot as usize / BLOCK_CELLS];
        block.merge(slot as usize % BLOCK_CELLS, valve, value)
    }

    /// Takes all components of a cell out: (valve number, value), ascending by valve number.
    pub fn take(&mut self, slot: u32) -> Vec<(u16, u64)> {
        let block = self.blocks.get_mut(slot as usize / BLOCK_CELLS);
        block.map(|block| block.take(slot as usize % BLOCK_CELLS)).unwrap_or_default()
    }

    /// Bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        let inner = |block: &Block| 2 * block.valves.capacity() + 8 * block.values.capacity();
        self.blocks.capacity() * size_of::<Block>() + self.blocks.iter().map(inner).sum::<usize>()
    }

    /// Panics when a block is out of order or a sum is wrong. Walks everything.
    pub fn check_invariants(&self) {
        self.blocks.iter().for_each(Block::check_invariants);
    }
}

impl Block {
    fn new() -> Block {
        Block { ends: [0; BLOCK_CELLS], sums: [0; BLOCK_CELLS], valves: Vec::new(), values: Vec::new() }
    }

    fn run(&self, cell: usize) -> Range<usize> {
        let start = if cell == 0 { 0 } else { self.ends[cell - 1] as usize };
        start..self.ends[cell] as usize
    }

    fn merge(&mut self, cell: usize, valve: u16, value: u64) -> Option<u64> {
        let run = self.run(cell);
        let before = match self.valves[run.clone()].binary_search(&valve) {
            Ok(at) => {
                let held = &mut self.values[run.start + at];
                let before = *held;
                *held = before.max(value);
                before
            }
            Err(_) if value == 0 => 0,
            Err(at) => {
                self.insert(cell, run.start + at, valve, value);
                0
            }
        };
        if value <= before {
            return None;
        }
        self.sums[cell] = self.sums[cell].saturating_add(value - before);
        Some(before)
    }

    fn insert(&mut self, cell: usize, at: usize, valve: u16, value: u64) {
        if self.values.len() == self.values.capacity() {
            let more = self.values.len() / SLACK_DIVISOR + 4;
            self.values.reserve_exact(more);
            self.valves.reserve_exact(more);
        }
        self.valves.insert(at, valve);
        self.values.insert(at, value);
        self.ends[cell..].iter_mut().for_each(|end| *end += 1);
    }

    fn take(&mut self, cell: usize) -> Vec<(u16, u64)> {
        let run = self.run(cell);
        let taken: Vec<(u16, u64)> = self.valves.drain(run.clone()).zip(self.values.drain(run)).collect();
        self.ends[cell..].iter_mut().for_each(|end| *end -= taken.len() as u32);
        self.sums[cell] = 0;
        let room = self.values.len() + self.values.len() / SLACK_DIVISOR + 4;
        if self.values.capacity() > 2 * room {
            self.values.shrink_to(room);
            self.valves.shrink_to(room);
        }
        taken
    }

    fn check_invariants(&self) {
        assert_eq!(self.valves.len(), self.values.len());
        assert_eq!(self.ends[BLOCK_CELLS - 1] as usize, self.values.len(), "runs cover the block");
        for cell in 0..BLOCK_CELLS {
            let run = self.run(cell);
            assert!(self.valves[run.clone()].is_sorted_by(|a, b| a < b), "valves ascend within a cell");
            let sum = self.values[run].iter().map(|&value| u128::from(value)).sum::<u128>();
            assert_eq!(u128::from(self.sums[cell]), sum.min(u64::MAX.into()), "sum of a cell");
        }
    }
}
