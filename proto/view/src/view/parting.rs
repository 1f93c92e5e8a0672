//! A range of a view that is split: its cells are copied into those of the two new ranges, in steps, while it is read and
//! counted.
//!
//! Cells that are raised meanwhile are copied again, so that in the end both parts have all of it. Merging by maximum makes the
//! order of copies irrelevant. The part of the range's counters in totals is handed over beside that ([`super::hierarchy`]).

use super::View;
use super::cells::{Cells, Gathered};
use super::hierarchy::part_of;
use tidemark_ledger::ledger::Ledger;
use tidemark_types::numbers::Numbers;
use tidemark_types::series::UnixTime;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::counter_order::CounterOrder;
use tidemark_wire::shards::{ShardId, Split};

/// Cells that were raised since they were copied, at most, that are left to the last step. Readers wait for that step.
const LAST_CELLS_MAX: usize = 256;
/// Copying a cell costs as much as looking at this number of pairs or buckets, without its own.
const COPY: usize = 10;
/// Flag of a slot's number: it is in the second part.
const SECOND: u32 = 1 << 31;
const _: () = assert!(super::CELLS_MAX <= SECOND);

/// The progress of copying a range.
#[derive(Clone, Debug)]
pub(super) struct Parting {
    split: Split,
    order: CounterOrder,
    parts: [Part; 2],
    /// By slot of the range, as far as it is copied.
    places: Vec<u32>,
    /// Slots that were raised since.
    again: Numbers,
    /// The number of them that were raised since the last step.
    raised: usize,
}

/// One of the two parts of a range.
#[derive(Clone, Debug)]
struct Part {
    cells: Cells,
    /// By valve of the range.
    valves: Vec<Option<u16>>,
}

/// Where a slot of a range is that was split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// In the first part or in the second.
    pub part: usize,
    pub slot: u32,
}

impl Place {
    fn of(packed: u32) -> Place {
        Place { part: usize::from(packed & SECOND != 0), slot: packed & !SECOND }
    }
}

/// A range that was split: its cells, which are the view's no more, and where they are now.
#[derive(Debug)]
pub struct Parted {
    pub split: Split,
    pub cells: Cells,
    places: Vec<u32>,
}

impl Parted {
    /// Where a slot is now.
    pub fn place(&self, slot: u32) -> Option<Place> {
        self.places.get(slot as usize).copied().map(Place::of)
    }
}

impl Part {
    fn of(range: &Cells, seed: u64) -> Part {
        Part { cells: range.none_like(seed), valves: Vec::new() }
    }

    fn valve(&mut self, range: &Cells, valve: u16) -> u16 {
        let at = usize::from(valve);
        self.valves.resize(self.valves.len().max(at + 1), None);
        let new = || self.cells.valve(range.valves()[at]).expect("a part has no more valves than the whole");
        *self.valves[at].get_or_insert_with(new)
    }

    /// Copies a cell; returns its place, and about its cost. Totals do not follow: counters add as they did.
    fn copy(&mut self, range: &Cells, slot: u32, known: Option<u32>) -> (u32, usize) {
        let mut cost = COPY;
        let new = || self.cells.slot(&range.name(slot)).expect("a part has no more cells than the whole");
        let own = known.unwrap_or_else(new);
        for (valve, value) in range.components(slot) {
            let valve = self.valve(range, valve);
            self.cells.load_component(own, valve, value);
        }
        // The whole row each time: buckets that were raised since the first copy may have left memory.
        for (_, valve, row) in range.rows_of(slot) {
            let valve = self.valve(range, valve);
            self.cells.merge_row(own, valve, &row);
            cost += row.len();
        }
        self.cells.gathered.buckets.clear();
        if range.is_over(slot) {
            self.cells.end(own);
        }
        // It is known of the range's.
        self.cells.all_judged();
        (own, cost)
    }
}

impl Parting {
    pub fn shard(&self) -> ShardId {
        self.split.shard
    }

    /// Cells of the range were raised.
    pub fn on_raised(&mut self, gathered: &Gathered) {
        let slots = gathered.counts.iter().map(|of| of.0).chain(gathered.buckets.iter().map(|of| of.0));
        let copied = self.places.len();
        let before = self.again.len();
        for slot in slots.filter(|&slot| (slot as usize) < copied && !bites(Bug::RaisedUncopied)) {
            self.again.insert(slot);
        }
        self.raised += self.again.len() - before;
    }

    /// A cell of the range is over.
    pub fn end(&mut self, slot: u32) {
        if let Some(&place) = self.places.get(slot as usize) {
            let Place { part, slot } = Place::of(place);
            self.parts[part].cells.end(slot);
        }
    }

    pub fn ended_upto(&mut self, upto: u64) {
        self.parts.iter_mut().for_each(|part| part.cells.ended = upto);
    }

    pub fn on_time(&mut self, now: UnixTime) {
        self.parts.iter_mut().for_each(|part| part.cells.on_time(now));
    }

    pub fn take_series(&mut self, ledger: &Ledger) {
        self.parts.iter_mut().for_each(|part| part.cells.take_series(ledger));
    }

    pub fn heap_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.cells.heap_bytes()).sum::<usize>() + 4 * self.places.capacity()
    }

    /// Copies further cells as long as the budget lasts. Once each was copied, it copies at least twice as many as were raised
    /// since the last step. Otherwise counting that is faster than the budget would never let it end.
    fn step(&mut self, range: &Cells, budget: usize) {
        let mut left = budget;
        let raised = std::mem::take(&mut self.raised);
        self.copy_some(range, &mut left);
        if self.places.len() == range.len() as usize {
            for _ in 0..2 * raised {
                self.copy_again(range);
            }
        }
    }

    fn copy_again(&mut self, range: &Cells) -> Option<usize> {
        let slot = self.again.pop()?;
        let Place { part, slot: own } = Place::of(self.places[slot as usize]);
        Some(self.parts[part].copy(range, slot, Some(own)).1)
    }

    fn copy_next(&mut self, range: &Cells) -> usize {
        let slot = self.places.len() as u32;
        let part = part_of(&self.split, &range.name(slot).counter, &self.order);
        let (own, cost) = self.parts[part].copy(range, slot, None);
        self.places.push(own | if part == 0 { 0 } else { SECOND });
        cost
    }

    /// Copies further cells, as long as the budget lasts.
    fn copy_some(&mut self, range: &Cells, budget: &mut usize) {
        while *budget > 0 {
            let is_new = self.places.len() < range.len() as usize;
            let cost = if is_new { Some(self.copy_next(range)) } else { self.copy_again(range) };
            let Some(cost) = cost else { return };
            *budget = budget.saturating_sub(cost);
        }
    }

    /// The number of cells that are yet to be copied.
    fn left(&self, range: &Cells) -> usize {
        range.len() as usize - self.places.len() + self.again.len()
    }
}

impl View {
    /// Begins to split a range; `seed` hashes the names of its parts.
    pub fn begin_split(&mut self, split: &Split, seed: u64) {
        let part = |shard| {
            let mut part = Part::of(self.cells(split.shard), seed);
            self.budget.iter().for_each(|budget| part.cells.keep_within(budget, shard));
            part
        };
        let parts = split.parts().map(part);
        let places = Vec::new();
        let again = Numbers::default();
        let order = self.ranges().order().clone();
        self.shards[usize::from(split.shard.0)].clear_free_slots();
        self.parting = Some(Parting { split: split.clone(), order, parts, places, again, raised: 0 });
        self.hierarchy.begin_parting(split);
    }

    /// The split that is under way.
    pub fn splits(&self) -> Option<&Split> {
        self.parting.as_ref().map(|parting| &parting.split)
    }

    /// The number of cells of the splitting range that are in its parts in their present state, and the number of all.
    pub fn split_progress(&self) -> Option<(u64, u64)> {
        let parting = self.parting.as_ref()?;
        let cells = self.cells(parting.shard());
        let left = parting.left(cells) as u64;
        Some((u64::from(cells.len()) - left, cells.len().into()))
    }

    /// Continues, looking at about `budget` cells, pairs and buckets, and more if it would never end otherwise. Returns whether
    /// the rest is so small that it may be done at once.
    pub fn step_split(&mut self, budget: usize, ledger: &Ledger) -> bool {
        let Some(mut parting) = self.parting.take() else { return false };
        // Half for each: cells that are raised all the time would leave nothing for the other.
        let half = budget.div_ceil(2).max(1);
        self.with_hierarchy(|hierarchy, view| {
            parting.step(view.cells(parting.shard()), half);
            hierarchy.hand(half, ledger, view);
        });
        let is_near = parting.left(self.cells(parting.shard())) <= LAST_CELLS_MAX && self.hierarchy.is_handed();
        self.parting = Some(parting);
        is_near
    }

    /// Does the rest, and has two ranges in the place of the one from here on.
    pub fn finish_split(&mut self, seed: u64, ledger: &Ledger) -> Option<Parted> {
        let mut parting = self.parting.take()?;
        let ranges = self.ranges().split(&parting.split)?;
        self.with_hierarchy(|hierarchy, view| {
            hierarchy.take_in(ledger, view);
            parting.step(view.cells(parting.shard()), usize::MAX);
            hierarchy.hand(usize::MAX, ledger, view);
        });
        let Parting { split, parts, places, .. } = parting;
        let lens = parts.each_ref().map(|part| part.cells.len());
        self.hierarchy.finish_parting(ranges, lens, |slot| Place::of(places[slot as usize]).slot);
        let cells = self.take_cells(split.shard, seed);
        for part in parts {
            self.shards.push(part.cells);
        }
        let parted = Parted { split, cells, places };
        self.ending.on_split(&parted);
        Some(parted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_types::ids::{CounterName, DcId, GroupId, ValveId};

    fn counter(number: u16) -> CounterName {
        CounterName::new("t", &number.to_be_bytes()).unwrap()
    }

    /// Fewer cells are looked at in a step than are counted between two.
    #[test]
    fn a_range_is_split_however_fast_it_is_counted() {
        const COUNTERS: u16 = 4_000;
        const COUNTED_AT_ONCE: usize = 300;
        let mut view = View::new(DcId(0), 1);
        let ledger = Ledger::default();
        let valve = ValveId { group: GroupId { dc: DcId(0), group: 0, incarnation: 1 }, lane: 0 };
        let mut sums = vec![0_u64; usize::from(COUNTERS)];
        let mut count = |view: &mut View, number: u16| {
            let sum = &mut sums[usize::from(number)];
            *sum += 1;
            view.merge(&counter(number).total(), valve, *sum).unwrap();
        };
        (0..COUNTERS).for_each(|number| count(&mut view, number));
        view.begin_split(&Split { shard: ShardId(0), at: counter(COUNTERS / 2), first: ShardId(1) }, 1);
        let mut next = (0..COUNTERS).cycle();
        let steps = (1..1_000).find(|_| {
            next.by_ref().take(COUNTED_AT_ONCE).for_each(|number| count(&mut view, number));
            view.step_split(16 * COPY, &ledger)
        });
        assert!(steps.is_some(), "{:?}", view.split_progress());
        view.finish_split(1, &ledger).unwrap();
        view.check_all();
        for (number, sum) in (0..).zip(sums) {
            assert_eq!(view.sum_of(&counter(number), 0), sum);
        }
    }
}
