//! Values numbered in order of first sight, and memories of what was computed once. Nothing is ever iterated but in that order.

use std::hash::{Hash, Hasher};

/// A free place.
const FREE: u32 = u32::MAX;

/// Distinct values by number.
#[derive(Clone, Debug)]
pub struct Table<K> {
    keys: Vec<K>,
    /// Open addressing: the number of the key that hashes here, or `FREE`. A power of two, at most two thirds full.
    places: Vec<u32>,
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Table { keys: Vec::new(), places: vec![FREE; 16] }
    }
}

impl<K: Hash + Eq> Table<K> {
    pub fn len(&self) -> u32 {
        self.keys.len() as u32
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub fn get(&self, number: u32) -> &K {
        &self.keys[number as usize]
    }

    pub fn find(&self, key: &K) -> Option<u32> {
        let number = self.places[self.place_of(key)];
        (number != FREE).then_some(number)
    }

    /// The number of a value, and whether it is new.
    pub fn number(&mut self, key: K) -> (u32, bool) {
        let place = self.place_of(&key);
        if self.places[place] != FREE {
            return (self.places[place], false);
        }
        let number = self.keys.len() as u32;
        assert!(number < FREE, "values of a table");
        self.keys.push(key);
        self.places[place] = number;
        if self.keys.len() * 3 > self.places.len() * 2 {
            self.grow();
        }
        (number, true)
    }

    fn place_of(&self, key: &K) -> usize {
        let mask = self.places.len() - 1;
        let mut place = hash(key) as usize & mask;
        while self.places[place] != FREE && self.keys[self.places[place] as usize] != *key {
            place = (place + 1) & mask;
        }
        place
    }

    fn grow(&mut self) {
        self.places = vec![FREE; self.places.len() * 2];
        let mask = self.places.len() - 1;
        for (number, key) in self.keys.iter().enumerate() {
            let mut place = hash(key) as usize & mask;
            while self.places[place] != FREE {
                place = (place + 1) & mask;
            }
            self.places[place] = number as u32;
        }
    }
}

/// A cache of results.
#[derive(Clone, Debug)]
pub struct Memory<K, V> {
    keys: Table<K>,
    values: Vec<V>,
}

impl<K, V> Default for Memory<K, V> {
    fn default() -> Self {
        Memory { keys: Table::default(), values: Vec::new() }
    }
}

impl<K: Hash + Eq, V: Copy> Memory<K, V> {
    pub fn recall(&self, key: &K) -> Option<V> {
        self.keys.find(key).map(|number| self.values[number as usize])
    }

    /// Remembers a value for a key that has none.
    pub fn keep(&mut self, key: K, value: V) -> V {
        let (_, new) = self.keys.number(key);
        debug_assert!(new, "computed twice");
        self.values.push(value);
        value
    }
}

fn hash<K: Hash>(key: &K) -> u64 {
    let mut mix = Mix(0);
    key.hash(&mut mix);
    mix.finish()
}

/// A multiplicative hash, the same in every process.
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        (self.0 ^ self.0 >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_numbers_while_the_table_grows() {
        let mut table = Table::default();
        for n in 0..10_000_u32 {
            assert_eq!(table.number([n % 5_000, 7]), (n % 5_000, n < 5_000));
        }
        assert_eq!((table.len(), table.find(&[4_999, 7]), table.find(&[5_000, 7])), (5_000, Some(4_999), None));
        assert_eq!(table.get(17), &[17, 7]);
    }

    #[test]
    fn what_was_computed_is_recalled() {
        let mut memory = Memory::default();
        assert_eq!((memory.recall(&3_u32), memory.keep(3, 'c'), memory.recall(&3)), (None, 'c', Some('c')));
    }
}
