//! Blocks that changed since they were last saved, and the side, of two, on which each block is saved.
//!
//! A checkpoint is written in several parts, and a crash may come between two of them. So each block has two rows (sides): a
//! checkpoint writes the side that the last complete one does not use.

use tidemark_types::numbers::Numbers;

/// A set of block numbers and a side for each block.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    dirty: Numbers,
    sides: Vec<u64>,
}

/// A block that is to be saved, or its row to be deleted.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChangedBlock {
    pub number: u32,
    /// The side to write now.
    pub side: u8,
    /// Whether the block exists.
    pub is_there: bool,
}

impl Blocks {
    /// Numbers a block as changed.
    #[inline]
    pub fn set(&mut self, block: u32) {
        self.dirty.insert(block);
    }

    /// The changed blocks, to be saved each on the side that [`Blocks::side`] says from now on.
    pub fn begin(&mut self) -> Numbers {
        let changed = self.dirty.take();
        self.sides.resize(self.sides.len().max(changed.words().len()), 0);
        for (side, changed) in self.sides.iter_mut().zip(changed.words()) {
            *side ^= changed;
        }
        changed
    }

    /// The side on which a block was saved last, or is to be.
    pub fn side(&self, block: u32) -> u8 {
        self.sides.get(block as usize / 64).map_or(0, |sides| (sides >> (block % 64) & 1) as u8)
    }

    /// The other side of a block is from now on the side that was saved last, or is to be.
    pub fn flip(&mut self, block: u32) {
        self.loaded(block, 1 - self.side(block));
    }

    /// Drains the changed blocks. A block that does not exist was left by an unfinished checkpoint: its row is to be deleted.
    /// The first checkpoint that writes the block writes that side, in any process.
    pub fn take(&mut self, there: u32) -> Vec<ChangedBlock> {
        let mut changed = self.begin();
        let numbers = std::iter::from_fn(|| changed.pop());
        let changed = |number| ChangedBlock { number, side: self.side(number), is_there: number < there };
        let blocks: Vec<ChangedBlock> = numbers.map(changed).collect();
        blocks.iter().filter(|block| !block.is_there).for_each(|block| self.flip(block.number));
        blocks
    }

    /// Notes that `block` is saved on `side`.
    pub fn loaded(&mut self, block: u32, side: u8) {
        let word = block as usize / 64;
        let bit = block % 64;
        self.sides.resize(self.sides.len().max(word + 1), 0);
        self.sides[word] = self.sides[word] & !(1 << bit) | u64::from(side & 1) << bit;
    }
}
