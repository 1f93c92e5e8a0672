//! Where the load of a view lies: what the counters of each range have counted since its process started, and what they add to totals.

use super::View;
use super::hierarchy::{Hierarchy, SharesHeld};
use crate::shards::{Range, Ranges, ShardId};
use crate::table::CellTable;

/// What was counted, by range.
#[derive(Clone, Debug)]
pub(super) struct Loads {
    /// By slot the range of its counter, where there are several ranges.
    shard_of: Vec<u16>,
    weights: Vec<u64>,
}

/// One range of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load<'v> {
    pub range: Range<'v>,
    /// What was counted up and down of its counters, as far as this view has heard of it since it was cut.
    pub weight: u64,
    /// The totals to which they add, and what that takes.
    pub shares: SharesHeld,
}

impl Default for Loads {
    fn default() -> Loads {
        Loads { shard_of: Vec::new(), weights: vec![0] }
    }
}

impl Loads {
    fn new(ranges: &Ranges, cells: &CellTable) -> Loads {
        let mut loads = Loads { weights: vec![0; ranges.count()], ..Loads::default() };
        loads.take_in(ranges, cells);
        loads
    }

    /// Finds the ranges of cells that are new.
    pub fn take_in(&mut self, ranges: &Ranges, cells: &CellTable) {
        if ranges.is_whole() {
            return;
        }
        for slot in self.shard_of.len() as u32..cells.len() {
            let shard = match cells.counter_of_total(slot) {
                Some((namespace, key)) => ranges.find_key(namespace, key),
                None => ranges.find(&cells.name(slot).counter),
            };
            self.shard_of.push(shard.0);
        }
    }

    /// A component of a slot was raised by so much.
    #[inline]
    pub fn on_raised(&mut self, slot: u32, by: u64) {
        let shard = self.shard_of.get(slot as usize).copied().unwrap_or(0);
        let weight = &mut self.weights[usize::from(shard)];
        *weight = weight.saturating_add(by);
    }

    pub fn heap_bytes(&self) -> usize {
        2 * self.shard_of.capacity() + 8 * self.weights.capacity()
    }
}

impl View {
    /// Cuts the view: totals are kept as shares for each of these ranges. For a start, before totals are counted.
    pub fn cut(&mut self, ranges: Ranges) {
        self.loads = Loads::new(&ranges, self.cells.table());
        self.hierarchy = Hierarchy::with_ranges(ranges);
    }

    /// The ranges that it is cut into.
    pub fn ranges(&self) -> &Ranges {
        self.hierarchy.ranges()
    }

    /// How much there is to do and to keep for the counters of each range.
    pub fn loads(&self) -> impl ExactSizeIterator<Item = Load<'_>> {
        self.ranges().iter().map(|range| {
            let ShardId(at) = range.shard;
            let weight = self.loads.weights[usize::from(at)];
            Load { range, weight, shares: self.hierarchy.held(range.shard) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{CounterName, DcId, GroupId, ValveId};

    fn counter(key: &str) -> CounterName {
        CounterName::new("t", key.as_bytes()).unwrap()
    }

    #[test]
    fn weight_is_counted_in_the_range_of_its_counter_since_the_view_was_cut() {
        let mut view = View::new(DcId(0), 7);
        let group = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
        let valve = ValveId { group, lane: 0 };
        let weights = |view: &View| view.loads().map(|load| load.weight).collect::<Vec<_>>();
        view.merge(&counter("a").total(), valve, 5).unwrap();
        assert_eq!(weights(&view), [5]);
        view.cut(Ranges::of_cuts(vec![counter("b"), counter("c")]).unwrap());
        assert_eq!(weights(&view), [0, 0, 0]);
        for (key, count) in [("a", 7), ("b", 10), ("bb", 20), ("c", 100)] {
            view.merge(&counter(key).total(), valve, count).unwrap();
            view.merge(&counter(key).total(), valve, count).unwrap();
        }
        assert_eq!(weights(&view), [2, 30, 100]);
        let ends: Vec<_> = view.loads().map(|load| (load.range.from.cloned(), load.range.before.cloned())).collect();
        let (b, c) = (counter("b"), counter("c"));
        assert_eq!(ends, [(None, Some(b.clone())), (Some(b), Some(c.clone())), (Some(c), None)]);
    }
}
