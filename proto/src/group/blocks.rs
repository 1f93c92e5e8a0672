//! Which blocks of something changed since they were last saved, and on which of its two sides each block is saved.
//!
//! A checkpoint is written in several parts, and a crash may come between two of them. So each block has two rows (sides): a
//! checkpoint writes the side that the last complete one does not use.

/// A set of block numbers and a side for each block.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    dirty: Vec<u64>,
    sides: Vec<u64>,
}

impl Blocks {
    /// Marks a block as changed.
    #[inline]
    pub fn set(&mut self, block: u32) {
        let word = block as usize / 64;
        if word >= self.dirty.len() {
            self.dirty.resize(word + 1, 0);
            self.sides.resize(word + 1, 0);
        }
        self.dirty[word] |= 1 << (block % 64);
    }

    /// Drains the changed blocks, each with the side to write now.
    pub fn take(&mut self) -> Vec<(u32, u8)> {
        let dirty = std::mem::take(&mut self.dirty);
        self.dirty.resize(dirty.len(), 0);
        let changed = (0..dirty.len() as u32 * 64).filter(|&b| dirty[b as usize / 64] >> (b % 64) & 1 == 1);
        changed.map(|block| (block, self.flip(block))).collect()
    }

    /// Notes while loading that `block` is saved on `side`.
    pub fn loaded(&mut self, block: u32, side: u8) {
        let (word, bit) = (block as usize / 64, block % 64);
        if word >= self.sides.len() {
            self.dirty.resize(word + 1, 0);
            self.sides.resize(word + 1, 0);
        }
        self.sides[word] = self.sides[word] & !(1 << bit) | u64::from(side & 1) << bit;
    }

    fn flip(&mut self, block: u32) -> u8 {
        let (word, bit) = (block as usize / 64, block % 64);
        self.sides[word] ^= 1 << bit;
        (self.sides[word] >> bit & 1) as u8
    }
}
