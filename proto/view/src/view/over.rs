//! Cells of ended generations: once all views and groups have passed a reset, earlier components and buckets are dropped here
//! (decision 0074).
//!
//! Not sooner: a view that has not applied the reset still shows them, and is told of them by others. Late data for such a cell
//! is not taken. Its slot may be given to a new cell later ([`reuse`](super::reuse)).

use super::View;
use super::cells::{Cells, component_hash};
use super::parting::Parted;
use super::series::{bucket_hash, expires_on};
use std::collections::BTreeSet;
use tidemark_ledger::ledger::{Ledger, Resets};
use tidemark_types::ids::{CounterName, Half};
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::shards::ShardId;

/// Cells of generations that are over everywhere that may hold data: their shards and slots.
#[derive(Clone, Debug, Default)]
pub(super) struct Ending(BTreeSet<(ShardId, u32)>);

impl Ending {
    /// The cells of a shard are gone.
    pub fn forget(&mut self, shard: ShardId) {
        self.0.retain(|(of, _)| *of != shard);
    }

    /// A range is split: its cells are in its parts now.
    pub fn on_split(&mut self, parted: &Parted) {
        let parts = parted.split.parts();
        let of_range: Vec<_> = self.0.extract_if(.., |(of, _)| *of == parted.split.shard).collect();
        let moved = of_range.into_iter().filter_map(|(_, slot)| {
            let place = parted.place(slot)?;
            Some((parts[place.part], place.slot))
        });
        self.0.extend(moved);
    }
}

impl Cells {
    /// Data that resets up to this number ended is dropped.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Data that resets up to this number ended is dropped from here on.
    pub(crate) fn ended_upto(&mut self, upto: u64) {
        self.ended = upto;
    }

    /// Whether a cell belongs to an ended generation, so that nothing is taken for it.
    pub fn is_over(&self, slot: u32) -> bool {
        self.over.contains(slot)
    }

    /// Whether some cells are not known to be over or not.
    pub(super) fn has_unjudged(&self) -> bool {
        self.judged < self.len() || !self.reuse.unjudged().is_empty()
    }

    /// All cells there are now are judged.
    pub(super) fn all_judged(&mut self) {
        self.judged = self.len();
        self.reuse.all_judged();
    }

    /// The cells that are over everywhere, of those that were named since all were judged.
    fn over_of_new(&self, resets: &Resets) -> Vec<u32> {
        let is_over = |&slot: &u32| resets.is_over(&self.name(slot));
        let new = (self.judged..self.len()).chain(self.reuse.unjudged().iter().copied());
        if resets.last() == 0 { Vec::new() } else { new.filter(is_over).collect() }
    }

    /// A cell is over: all that it holds goes.
    pub(crate) fn end(&mut self, slot: u32) {
        if bites(Bug::OverKept) || bites(Bug::ResetNotShown) || self.over.contains(slot) {
            return;
        }
        self.over.insert(slot);
        let held = self.components.take(slot);
        for &(valve, value) in &held {
            let key = self.cell_hashes[slot as usize] ^ self.valve_hashes[usize::from(valve)];
            let sum = &mut self.sums[usize::from(self.valves[usize::from(valve)].group.dc.0)];
            *sum = sum.wrapping_sub(component_hash(key, value));
        }
        let numbers: Vec<u32> = self.row_numbers(slot).map(|(number, _)| number).collect();
        numbers.iter().for_each(|&number| self.drop_row(slot, number));
        if !(held.is_empty() && numbers.is_empty()) {
            self.dropped.push(slot);
        }
    }

    /// Drops a row, and its part on the shelf.
    fn drop_row(&mut self, slot: u32, number: u32) {
        let valve = usize::from(self.row_place(number).1);
        let key = self.cell_hashes[slot as usize] ^ self.valve_hashes[valve];
        let dc = self.valves[valve].group.dc;
        let whole = self.series.whole(number).into_owned();
        if let Some(space) = self.series.space_of(slot, &self.table) {
            let view = &self.series.spaces[space].view;
            let sums = &mut self.series.sums;
            for (bucket, value) in whole.buckets().filter(|&(bucket, _)| view.horizon.keeps(bucket)) {
                let day = expires_on(&view.policy, bucket);
                if let Some(sum) = day.and_then(|day| sums.get_mut(&(dc, day))) {
                    *sum = sum.wrapping_sub(bucket_hash(key, bucket, value));
                }
            }
        }
        self.series.clear(number);
    }
}

impl View {
    /// Data that resets up to this number ended is dropped.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Whether there is data to drop, or a cell that is not judged yet.
    pub fn may_drop(&self, ledger: &Ledger) -> bool {
        !self.ending.0.is_empty() || self.ended < ledger.resets_passed() || self.shards.iter().any(Cells::has_unjudged)
    }

    /// Drops ended cells, no more than `most`. Returns whether there is more to drop.
    pub fn drop_over(&mut self, ledger: &Ledger, most: usize) -> bool {
        self.judge_new(ledger);
        for _ in 0..most {
            let Some((shard, slot)) = self.ending.0.pop_first() else { break };
            self.end(shard, slot);
        }
        let more = !self.ending.0.is_empty();
        if !more {
            self.ended_upto(ledger.resets_passed());
        }
        more
    }

    /// By shard: cells with data that was dropped since the last call.
    pub(crate) fn take_dropped(&mut self) -> Vec<(ShardId, Vec<u32>)> {
        let of_shards = (0..).map(ShardId).zip(&mut self.shards).filter(|(_, cells)| !cells.dropped.is_empty());
        of_shards.map(|(shard, cells)| (shard, std::mem::take(&mut cells.dropped))).collect()
    }

    /// After a start: drops all that is over by now. Nothing is counted of totals yet.
    pub(super) fn drop_all_over(&mut self, ledger: &Ledger) {
        // A cell of the first generation has no number in its name.
        let first = ledger.resets().after(0).filter(|(_, counter, _)| ledger.resets().life(counter).over > 0);
        first.for_each(|(_, counter, _)| self.note_over(counter, 0..1));
        if ledger.resets().last() > 0 {
            for (shard, cells) in (0..).map(ShardId).zip(&self.shards) {
                let is_over = |&slot: &u32| ledger.resets().is_over(&cells.name(slot));
                self.ending.0.extend(cells.table().later_totals().filter(is_over).map(|slot| (shard, slot)));
            }
        }
        self.shards.iter_mut().for_each(Cells::all_judged);
        self.drop_over(ledger, usize::MAX);
    }

    /// More generations of a counter are over everywhere. Totals dropped their part of them when the counter began again.
    pub(super) fn on_over(&mut self, counter: &CounterName, before: u32, ledger: &Ledger) {
        self.note_over(counter, before..ledger.resets().life(counter).over);
    }

    fn note_over(&mut self, counter: &CounterName, generations: std::ops::Range<u32>) {
        let shard = self.shard_of(counter);
        let cells = &self.shards[usize::from(shard.0)];
        for generation in generations {
            let slots = [Half::Up, Half::Down].map(|half| cells.table().find_half(counter, half, generation));
            let slots = slots.into_iter().flatten().filter(|&slot| !cells.is_over(slot));
            self.ending.0.extend(slots.map(|slot| (shard, slot)));
        }
    }

    pub(super) fn judge_new(&mut self, ledger: &Ledger) {
        for (shard, cells) in (0..).map(ShardId).zip(&mut self.shards).filter(|(_, cells)| cells.has_unjudged()) {
            self.ending.0.extend(cells.over_of_new(ledger.resets()).into_iter().map(|slot| (shard, slot)));
            cells.all_judged();
        }
    }

    fn end(&mut self, shard: ShardId, slot: u32) {
        self.shards[usize::from(shard.0)].end(slot);
        if let Some(parting) = self.parting.as_mut().filter(|parting| parting.shard() == shard) {
            parting.end(slot);
        }
    }

    fn ended_upto(&mut self, upto: u64) {
        self.ended = upto;
        self.shards.iter_mut().for_each(|cells| cells.ended_upto(upto));
        self.parting.iter_mut().for_each(|parting| parting.ended_upto(upto));
    }
}

#[cfg(test)]
mod tests;
