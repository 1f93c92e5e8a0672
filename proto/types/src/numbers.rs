//! A set of numbers that lie close together, such as those of rows that changed: a bit for each.

/// See the module. Numbers are taken out in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    words: Vec<u64>,
    len: usize,
    /// All words before it are empty.
    first: usize,
}

impl Numbers {
    #[inline]
    pub fn insert(&mut self, number: u32) {
        let word = number as usize / 64;
        let bit = 1 << (number % 64);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.len += usize::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
        self.first = self.first.min(word);
    }

    /// Takes a number out; false if it is not in.
    #[inline]
    pub fn remove(&mut self, number: u32) -> bool {
        let Some(word) = self.words.get_mut(number as usize / 64) else { return false };
        let is_in = *word >> (number % 64) & 1 == 1;
        *word &= !(1 << (number % 64));
        self.len -= usize::from(is_in);
        is_in
    }

    #[inline]
    pub fn contains(&self, number: u32) -> bool {
        self.words.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Takes out the first.
    pub fn pop(&mut self) -> Option<u32> {
        while let Some(word) = self.words.get_mut(self.first) {
            if *word != 0 {
                let bit = word.trailing_zeros();
                *word &= *word - 1;
                self.len -= 1;
                return Some(self.first as u32 * 64 + bit);
            }
            self.first += 1;
        }
        None
    }

    /// The numbers of this set that are not in another set.
    pub fn without(&self, others: &Numbers) -> Numbers {
        let others = others.words.iter().copied().chain(std::iter::repeat(0));
        Numbers::of_words(self.words.iter().zip(others).map(|(word, other)| word & !other).collect())
    }

    /// Inserts all numbers of another set.
    pub fn extend(&mut self, others: &Numbers) {
        let mut words = std::mem::take(&mut self.words);
        words.resize(words.len().max(others.words.len()), 0);
        words.iter_mut().zip(&others.words).for_each(|(word, other)| *word |= other);
        *self = Numbers::of_words(words);
    }

    fn of_words(words: Vec<u64>) -> Numbers {
        let len = words.iter().map(|word| word.count_ones() as usize).sum();
        Numbers { words, len, first: 0 }
    }

    /// The numbers of the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let of_word = |(at, &word): (usize, &u64)| {
            let bits = std::iter::successors(Some(word).filter(|&word| word != 0), |&word| {
                Some(word & (word - 1)).filter(|&word| word != 0)
            });
            bits.map(move |word| at as u32 * 64 + word.trailing_zeros())
        };
        self.words.iter().enumerate().flat_map(of_word)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes all of them; none is left, and the room for as many stays.
    pub fn take(&mut self) -> Numbers {
        let empty = Numbers { words: vec![0; self.words.len()], len: 0, first: self.words.len() };
        std::mem::replace(self, empty)
    }

    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn equals_an_ordered_set(steps in proptest::collection::vec((0u8..8, 0u32..300), 0..200)) {
            let mut numbers = Numbers::default();
            let mut set = BTreeSet::new();
            for (what, number) in steps {
                match what {
                    0 => prop_assert_eq!(numbers.pop(), set.pop_first()),
                    1 => prop_assert_eq!(numbers.remove(number), set.remove(&number)),
                    2 => {
                        let mut taken = numbers.take();
                        let all = std::iter::from_fn(|| taken.pop()).collect::<Vec<_>>();
                        prop_assert_eq!(all, std::mem::take(&mut set).into_iter().collect::<Vec<_>>());
                    }
                    _ => {
                        numbers.insert(number);
                        set.insert(number);
                    }
                }
                prop_assert_eq!(numbers.is_empty(), set.is_empty());
            }
        }

        #[test]
        fn sets_are_joined_and_taken_apart_as_ordered_sets_are(
            ours in proptest::collection::btree_set(0u32..300, 0..60),
            theirs in proptest::collection::btree_set(0u32..300, 0..60),
        ) {
            let of = |set: &BTreeSet<u32>| {
                let mut numbers = Numbers::default();
                set.iter().for_each(|&number| numbers.insert(number));
                numbers
            };
            let mut joined = of(&ours);
            joined.extend(&of(&theirs));
            for (numbers, set) in [(joined, &ours | &theirs), (of(&ours).without(&of(&theirs)), &ours - &theirs)] {
                prop_assert_eq!(numbers.iter().collect::<BTreeSet<_>>(), set.clone());
                prop_assert_eq!(numbers.len(), set.len());
            }
        }
    }
}
