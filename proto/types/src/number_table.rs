//! Values by numbers that another process chooses. Numbers should be dense, and mostly are. The room that a table takes
//! follows from how many numbers have a value, not from how large they are: a peer that uses number 1,000,000 alone costs one entry.

use std::collections::BTreeMap;

/// Numbers below this are always near.
const NEAR_MIN: usize = 64;

/// See the module.
#[derive(Clone, Debug)]
pub struct NumberTable<T> {
    /// By number; at most twice as long as there are values.
    near: Vec<T>,
    /// Numbers that are not near.
    far: BTreeMap<u32, T>,
    held: usize,
    vacant: T,
}

impl<T: Clone + PartialEq> NumberTable<T> {
    /// An empty one. `vacant` is the value of all other numbers.
    pub fn new(vacant: T) -> NumberTable<T> {
        NumberTable { near: Vec::new(), far: BTreeMap::new(), held: 0, vacant }
    }

    /// The value of a number.
    #[inline]
    pub fn get(&self, number: u32) -> &T {
        match self.near.get(number as usize) {
            Some(value) => value,
            None => self.far.get(&number).unwrap_or(&self.vacant),
        }
    }

    /// Gives a number a value. Returns its earlier value.
    pub fn set(&mut self, number: u32, value: T) -> T {
        let at = number as usize;
        if at >= self.near.len() && at < NEAR_MIN.max(2 * self.held) {
            self.near.resize(at + 1, self.vacant.clone());
            let further = self.far.split_off(&(number.saturating_add(1)));
            let now_near = std::mem::replace(&mut self.far, further);
            now_near.into_iter().for_each(|(number, value)| self.near[number as usize] = value);
        }
        let before = match self.near.get_mut(at) {
            Some(place) => std::mem::replace(place, value),
            None => self.far.insert(number, value).unwrap_or_else(|| self.vacant.clone()),
        };
        self.held += usize::from(before == self.vacant);
        before
    }

    /// Entries for which it has room.
    pub fn room(&self) -> usize {
        self.near.len() + self.far.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_table_is_a_map_and_its_room_follows_from_its_values(
            sets in prop::collection::vec((prop_oneof![0u32..40, 0u32..400, any::<u32>()], 1u32..1_000), 0..400)
        ) {
            let mut table = NumberTable::new(0);
            let mut map = BTreeMap::new();
            for (number, value) in sets {
                prop_assert_eq!(table.set(number, value), map.insert(number, value).unwrap_or(0));
                prop_assert!(table.room() <= NEAR_MIN + 3 * map.len(), "{} entries for {} values", table.room(), map.len());
                prop_assert!(table.far.keys().all(|&number| number as usize >= table.near.len()));
            }
            for (&number, value) in &map {
                prop_assert_eq!(table.get(number), value);
            }
            prop_assert_eq!(*table.get(500), map.get(&500).copied().unwrap_or(0));
        }
    }

    #[test]
    fn dense_numbers_are_near_and_a_large_one_costs_one_entry() {
        let mut table = NumberTable::new(0);
        table.set(u32::MAX, 7);
        assert_eq!((table.room(), *table.get(u32::MAX), *table.get(1 << 20)), (1, 7, 0));
        for number in 0..100_000 {
            table.set(number, 1);
        }
        assert_eq!((table.near.len(), table.far.len()), (100_000, 1));
    }
}
