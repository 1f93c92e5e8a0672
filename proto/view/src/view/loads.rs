//! The load of a view's ranges: the counts of each range's counters since its process started, and their part in totals.

use super::View;
use super::hierarchy::SharesHeld;
use tidemark_wire::shards::{Range, Ranges};

/// The load of a view's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load<'v> {
    pub range: Range<'v>,
    /// Increments and decrements of its counters, as far as this view has heard of them since its process started.
    pub weight: u64,
    /// The totals to which they add, and their memory.
    pub shares: SharesHeld,
}

impl View {
    /// The ranges that it is cut into.
    pub fn ranges(&self) -> &Ranges {
        self.hierarchy.ranges()
    }

    /// The load of each range: the work and the memory of its counters.
    pub fn loads(&self) -> impl ExactSizeIterator<Item = Load<'_>> {
        self.ranges().iter().map(|range| {
            let weight = self.cells(range.shard).weight();
            Load { range, weight, shares: self.hierarchy.held(range.shard) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Cells;
    use tidemark_types::ids::{CounterName, DcId, GroupId, ValveId};

    fn counter(key: &str) -> CounterName {
        CounterName::new("t", key.as_bytes()).unwrap()
    }

    #[test]
    fn weight_is_counted_in_the_range_of_its_counter_and_what_an_earlier_life_counted_is_not() {
        let ranges = Ranges::of_cuts(vec![counter("b"), counter("c")]).unwrap();
        let group = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
        let valve = ValveId { group, lane: 0 };
        let mut shards: Vec<Cells> = (0..3).map(Cells::new).collect();
        let slot = shards[0].slot(&counter("a").total()).unwrap();
        let number = shards[0].valve(valve).unwrap();
        shards[0].load_component(slot, number, 5);
        let mut view = View::of_shards(DcId(0), shards, ranges);
        let weights = |view: &View| view.loads().map(|load| load.weight).collect::<Vec<_>>();
        assert_eq!(weights(&view), [0, 0, 0]);
        for (key, count) in [("a", 7), ("b", 10), ("bb", 20), ("c", 100)] {
            view.merge(&counter(key).total(), valve, count).unwrap();
            view.merge(&counter(key).total(), valve, count).unwrap();
        }
        assert_eq!(weights(&view), [2, 30, 100]);
        let ends: Vec<_> = view.loads().map(|load| (load.range.from.cloned(), load.range.before.cloned())).collect();
        let b = counter("b");
        let c = counter("c");
        assert_eq!(ends, [(None, Some(b.clone())), (Some(b), Some(c.clone())), (Some(c), None)]);
    }
}
