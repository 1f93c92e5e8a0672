//! A hash table of numbers, such as the places of records. The meaning of a number is kept elsewhere.
//!
//! A slot has 32 bits of the hash beside the number, so a search reads one line of memory, and growing reads no record. The table is cut
//! into parts by the first bits of the hash. Parts grow one by one and by half, so little memory is free, and nothing waits for long.

const PARTS: usize = 256;
/// Slots of a part at first.
const FEWEST: usize = 8;
const EMPTY: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Slot {
    tag: u32,
    number: u32,
}

#[derive(Default)]
struct Part {
    slots: Vec<Slot>,
    len: usize,
}

/// Numbers below 2^32 - 1 by hash.
pub struct Index {
    parts: Vec<Part>,
    slots: usize,
}

impl Default for Index {
    fn default() -> Index {
        Index { parts: (0..PARTS).map(|_| Part::default()).collect(), slots: 0 }
    }
}

impl Index {
    /// The first number of this hash that `is_same` accepts.
    #[inline]
    pub fn find(&self, hash: u64, is_same: impl Fn(u32) -> bool) -> Option<u32> {
        self.part(hash).find(tag(hash), is_same)
    }

    /// A number that is not there yet.
    pub fn insert(&mut self, hash: u64, number: u32) {
        debug_assert!(number != EMPTY, "this number means that a slot is empty");
        let part = &mut self.parts[part(hash)];
        let before = part.slots.len();
        part.insert(tag(hash), number);
        self.slots += part.slots.len() - before;
    }

    /// Memory that is allocated.
    pub fn bytes(&self) -> usize {
        PARTS * size_of::<Part>() + self.slots * size_of::<Slot>()
    }

    #[inline]
    fn part(&self, hash: u64) -> &Part {
        &self.parts[part(hash)]
    }
}

impl Part {
    #[inline]
    fn find(&self, tag: u32, is_same: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(tag);
        // It ends at an empty slot: an eighth of them is.
        loop {
            let slot = self.slots.get(at)?;
            if slot.number == EMPTY {
                return None;
            }
            if slot.tag == tag && is_same(slot.number) {
                return Some(slot.number);
            }
            at = self.after(at);
        }
    }

    fn insert(&mut self, tag: u32, number: u32) {
        if (self.len + 1) * 8 > self.slots.len() * 7 {
            self.grow();
        }
        self.len += 1;
        self.put(Slot { tag, number });
    }

    fn put(&mut self, slot: Slot) {
        let mut at = self.home(slot.tag);
        while self.slots[at].number != EMPTY {
            at = self.after(at);
        }
        self.slots[at] = slot;
    }

    fn grow(&mut self) {
        let len = (self.slots.len() + self.slots.len() / 2).max(FEWEST);
        let old = std::mem::replace(&mut self.slots, vec![Slot { tag: 0, number: EMPTY }; len]);
        old.into_iter().filter(|slot| slot.number != EMPTY).for_each(|slot| self.put(slot));
    }

    /// Where a tag is looked for first. Larger tags come later, so growing moves slots in their order.
    #[inline]
    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.slots.len() as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }
}

fn part(hash: u64) -> usize {
    (hash >> 56) as usize
}

fn tag(hash: u64) -> u32 {
    hash as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_found_by_its_hash_and_no_other() {
        let mut index = Index::default();
        // Few different hashes, so that many numbers share one.
        let hash = |number: u32| (u64::from(number) / 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for number in 0..100_000 {
            assert_eq!(index.find(hash(number), |found| found == number), None);
            index.insert(hash(number), number);
        }
        for number in 0..100_000 {
            assert_eq!(index.find(hash(number), |found| found == number), Some(number));
        }
        assert_eq!(index.find(hash(7), |found| found == 90_000), None);
        assert!(index.bytes() < 100_000 * 16, "{} bytes", index.bytes());
    }

    #[test]
    fn an_empty_index_finds_nothing() {
        assert_eq!(Index::default().find(0, |_| true), None);
    }
}
