//! Where a view is cut: ranges of counters, each of one shard (users read "slot"; decision 0048).
//!
//! The order is that of names: of namespaces, and in one of its keys, by bytes. A cut is the first counter of the range that it begins.

use crate::hash::bytes_hash;
use crate::ids::CounterName;
use crate::limits::SHARDS_MAX;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// A range of counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardId(pub u16);

impl ShardId {
    /// What is before the first cut: all, where there is none.
    pub const FIRST: ShardId = ShardId(0);
}

/// All counters, cut into ranges: each counter is in exactly one. By default there is one for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// Ascending, each once. What is before the first is shard 0, what the k-th begins is shard k.
    cuts: Vec<CounterName>,
}

/// One of [`Ranges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<'a> {
    pub shard: ShardId,
    /// Its first counter; `None`: it begins before all.
    pub from: Option<&'a CounterName>,
    /// The first counter behind it; `None`: it ends behind all.
    pub before: Option<&'a CounterName>,
}

/// Why counters are no cuts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCuts {
    #[error("{0} cuts: at most {CUTS_MAX} are allowed")]
    TooMany(usize),
    #[error("{0} is there twice: each cut begins a range of its own")]
    Twice(CounterName),
    #[error("{later} stands behind {earlier}: cuts ascend, by namespace, then by the bytes of the key")]
    Unsorted { earlier: CounterName, later: CounterName },
}

/// Each cut makes one range more.
const CUTS_MAX: usize = SHARDS_MAX - 1;
const _: () = assert!(SHARDS_MAX <= 1 << 16, "a shard's number has 16 bits");

impl Ranges {
    /// One range of all counters.
    pub fn whole() -> Ranges {
        Ranges::default()
    }

    /// Ranges that begin with these counters, and one before the first of them.
    ///
    /// # Errors
    /// [`BadCuts`]: too many, one twice, or not in ascending order.
    pub fn of_cuts(cuts: Vec<CounterName>) -> Result<Ranges, BadCuts> {
        if cuts.len() > CUTS_MAX {
            return Err(BadCuts::TooMany(cuts.len()));
        }
        for pair in cuts.windows(2) {
            match pair[0].cmp(&pair[1]) {
                Ordering::Less => {}
                Ordering::Equal => return Err(BadCuts::Twice(pair[0].clone())),
                Ordering::Greater => {
                    return Err(BadCuts::Unsorted { earlier: pair[0].clone(), later: pair[1].clone() });
                }
            }
        }
        Ok(Ranges { cuts })
    }

    /// The number of ranges, at least one.
    pub fn count(&self) -> usize {
        self.cuts.len() + 1
    }

    /// Whether there is one range for all counters.
    pub fn is_whole(&self) -> bool {
        self.cuts.is_empty()
    }

    /// Which range a counter is in.
    pub fn find(&self, counter: &CounterName) -> ShardId {
        self.find_key(counter.namespace(), counter.key())
    }

    /// The same by namespace and key.
    pub fn find_key(&self, namespace: &str, key: &[u8]) -> ShardId {
        let begins_before = |cut: &CounterName| (cut.namespace(), cut.key()) <= (namespace, key);
        ShardId(self.cuts.partition_point(begins_before) as u16)
    }

    /// Where they are cut, ascending.
    pub fn cuts(&self) -> &[CounterName] {
        &self.cuts
    }

    /// A number that says where they are cut: equal for equal cuts, and 0 where there is none.
    pub fn fingerprint(&self) -> u64 {
        let of_cut = |hash, cut: &CounterName| bytes_hash(bytes_hash(hash, cut.namespace().as_bytes()), cut.key());
        let hash = self.cuts.iter().fold(0, of_cut);
        if self.is_whole() { 0 } else { hash.max(1) }
    }

    /// All ranges in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Range<'_>> {
        (0..self.count()).map(|at| Range {
            shard: ShardId(at as u16),
            from: at.checked_sub(1).map(|before| &self.cuts[before]),
            before: self.cuts.get(at),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name((namespace, key): &(usize, Vec<u8>)) -> CounterName {
        CounterName::new(["a", "a.b", "b"][*namespace], key).unwrap()
    }

    /// Few namespaces and short keys: cuts and counters meet.
    fn names(most: usize) -> impl Strategy<Value = Vec<CounterName>> {
        let key = proptest::collection::vec(prop::sample::select(vec![0u8, b'a', b'b', 255]), 1..4);
        proptest::collection::vec((0..3usize, key), 0..most).prop_map(|names| names.iter().map(name).collect())
    }

    fn holds(range: &Range<'_>, counter: &CounterName) -> bool {
        range.from.is_none_or(|from| from <= counter) && range.before.is_none_or(|before| counter < before)
    }

    proptest! {
        #[test]
        fn a_counter_is_in_the_one_range_that_a_linear_search_finds(cuts in names(40), counters in names(40)) {
            let mut cuts = cuts;
            cuts.sort();
            cuts.dedup();
            let ranges = Ranges::of_cuts(cuts.clone()).unwrap();
            prop_assert_eq!((ranges.count(), ranges.is_whole()), (cuts.len() + 1, cuts.is_empty()));
            for counter in counters.iter().chain(&cuts) {
                let holders: Vec<ShardId> =
                    ranges.iter().filter(|range| holds(range, counter)).map(|range| range.shard).collect();
                prop_assert_eq!(holders, vec![ranges.find(counter)]);
            }
        }

        #[test]
        fn what_is_no_ascending_list_is_refused_with_the_cut(cuts in names(6)) {
            let refused = Ranges::of_cuts(cuts.clone()).err();
            let wrong = cuts.windows(2).find(|pair| pair[0] >= pair[1]);
            prop_assert_eq!(refused.is_some(), wrong.is_some());
            if let (Some(refused), Some(pair)) = (refused, wrong) {
                prop_assert!(refused.to_string().contains(&pair[1].to_string()), "{}", refused);
            }
        }
    }

    #[test]
    fn without_cuts_there_is_one_range() {
        let ranges = Ranges::whole();
        assert_eq!(ranges, Ranges::of_cuts(Vec::new()).unwrap());
        assert_eq!(ranges.find(&name(&(2, vec![255; 4]))), ShardId(0));
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [Range { shard: ShardId(0), from: None, before: None }]);
    }

    #[test]
    fn too_many_cuts_are_refused_with_their_number_and_the_limit() {
        let cut = |number: usize| CounterName::new("a", format!("{number:04}").as_bytes()).unwrap();
        let most = Ranges::of_cuts((1..SHARDS_MAX).map(cut).collect()).unwrap();
        assert_eq!((most.count(), most.find(&cut(SHARDS_MAX))), (SHARDS_MAX, ShardId(SHARDS_MAX as u16 - 1)));
        let refused = Ranges::of_cuts((0..SHARDS_MAX).map(cut).collect()).unwrap_err();
        assert_eq!(refused.to_string(), "1024 cuts: at most 1023 are allowed");
    }
}
