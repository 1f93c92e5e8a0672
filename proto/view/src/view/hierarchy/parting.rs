//! A range that is split: the part of its counters in totals is handed to the two new ranges, counter by counter.
//!
//! Until all is handed, a counter adds to the share of the range or, once it is handed, to that of its part. Each share is right
//! by itself, and a request for the range's share gets all three. Then the range no longer exists.

use super::{DirectCounts, HALVES, Hierarchy, NONE, Share, heir};
use tidemark_ledger::ledger::Ledger;
use tidemark_types::graph::Vertex;
use tidemark_types::ids::CounterName;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::counter_order::CounterOrder;
use tidemark_wire::shards::{Ranges, ShardId, ShardMask, Split};

/// The progress of handing over the counters of a range.
#[derive(Clone, Debug)]
pub(super) struct Parting {
    split: Split,
    /// By vertex, as far as it was looked at: in which part it is, if it is of the range.
    handed: Vec<Option<ShardId>>,
}

impl Parting {
    /// Nothing is handed.
    pub fn new(split: Split) -> Parting {
        Parting { split, handed: Vec::new() }
    }

    /// The same after all was counted anew.
    pub fn again(self) -> Parting {
        Parting::new(self.split)
    }

    /// The numbers given to ranges, beyond the present ranges.
    pub fn numbers(&self) -> usize {
        usize::from(self.split.parts()[1].0) + 1
    }
}

/// The part of a range in which a counter is.
pub(in crate::view) fn part_of(split: &Split, counter: &CounterName, order: &CounterOrder) -> usize {
    usize::from(order.is_from(counter.namespace(), counter.key(), &split.at))
}

impl Hierarchy {
    /// Begins to hand over the part of a range's counters.
    pub(in crate::view) fn begin_parting(&mut self, split: &Split) {
        let parting = Parting::new(split.clone());
        self.shares.grow(parting.numbers());
        if !self.notes_sources() {
            // For a counter with inflow it was not noted from which ranges it comes; a change under way may concern any range.
            let is_under_way = self.flow.unsettled() > 0;
            let inherits = |vertex: usize| {
                let mut parents = self.flow.dag().parents(Vertex(vertex as u32));
                is_under_way || self.nodes[vertex].heir != NONE || parents.next().is_some()
            };
            let mask = |vertex| if inherits(vertex) { ShardMask::EVERY } else { ShardMask::NONE };
            self.sources = (0..self.nodes.len()).map(mask).collect();
        }
        self.parting = Some(parting);
        self.note_parts();
    }

    /// Counts that flow from a range flow from its parts.
    fn note_parts(&mut self) {
        let Some(Parting { split, .. }) = &self.parting else { return };
        let parts = split.parts().into_iter().fold(ShardMask::NONE, |mask, part| mask.with(ShardMask::of(part)));
        for sources in self.sources.iter_mut().filter(|sources| sources.has(split.shard)) {
            *sources = sources.with(parts);
        }
    }

    /// Whether the ranges from which counts flow to a counter are noted.
    pub(super) fn notes_sources(&self) -> bool {
        !self.ranges.is_whole() || self.parting.is_some()
    }

    /// The mask of a range among sources.
    pub(super) fn mask_of(&self, shard: ShardId) -> ShardMask {
        let parts = self.parting.iter().filter(|parting| parting.split.shard == shard);
        let parts = parts.flat_map(|parting| parting.split.parts());
        parts.fold(ShardMask::of(shard), |mask, part| mask.with(ShardMask::of(part)))
    }

    /// The range by which other processes name a share.
    pub(super) fn shown_as(&self, shard: ShardId) -> ShardId {
        let parting = self.parting.as_ref().filter(|parting| parting.split.parts().contains(&shard));
        parting.map_or(shard, |parting| parting.split.shard)
    }

    /// The share to which a counter of a range adds.
    #[inline]
    pub(super) fn owner(&self, vertex: u32, shard: u16) -> u16 {
        match &self.parting {
            Some(parting) if parting.split.shard.0 == shard => {
                parting.handed.get(vertex as usize).copied().flatten().map_or(shard, |part| part.0)
            }
            _ => shard,
        }
    }

    /// Whether all known counters add to the shares of parts.
    pub(in crate::view) fn is_handed(&self) -> bool {
        self.parting.as_ref().is_none_or(|parting| parting.handed.len() >= self.nodes.len())
    }

    /// Hands over further counters, looking at no more than about `budget` buckets and pairs.
    pub(in crate::view) fn hand(&mut self, mut budget: usize, ledger: &Ledger, view: &impl DirectCounts) {
        while budget > 0 && !self.is_handed() {
            let Some(Parting { split, handed }) = &self.parting else { return };
            let vertex = Vertex(handed.len() as u32);
            let mut cost = 1;
            let is_of_range = self.nodes[vertex.0 as usize].shard == split.shard.0;
            let part =
                is_of_range.then(|| split.parts()[part_of(split, &ledger.graph().name(vertex), self.ranges.order())]);
            if let Some(part) = part {
                let sums = self.gather(vertex, view);
                let from = split.shard.0;
                if !sums.is_empty() {
                    for &to in self.flow.descendants(vertex, &mut self.scratch) {
                        cost += 1 + sums.len() / 16;
                        let (heir, namespace) = heir(&mut self.nodes, &mut self.shares, to);
                        let horizon = self.horizons.of_totals(namespace);
                        if !bites(Bug::RangeStays) {
                            self.shares.change(heir, namespace, from, |Share { sums: held, .. }| {
                                held.take_off(&sums, horizon)
                            });
                        }
                        self.shares
                            .change(heir, namespace, part.0, |Share { sums: held, .. }| held.add(&sums, horizon));
                    }
                }
            }
            self.parting.iter_mut().for_each(|parting| parting.handed.push(part));
            budget = budget.saturating_sub(cost);
        }
    }

    /// All is handed and copied: the range no longer exists. `place` gives the places of its slots in the parts, which have
    /// `cells` cells.
    pub(in crate::view) fn finish_parting(&mut self, ranges: Ranges, cells: [u32; 2], place: impl Fn(u32) -> u32) {
        let Some(Parting { split, handed }) = self.parting.take() else { return };
        self.vertex_of.resize_with(ranges.numbers(), Vec::new);
        for (part, cells) in split.parts().into_iter().zip(cells) {
            self.vertex_of[usize::from(part.0)] = vec![NONE; cells as usize];
        }
        self.vertex_of[usize::from(split.shard.0)] = Vec::new();
        self.forget_again(split.shard);
        for (vertex, part) in (0..).zip(handed) {
            let Some(part) = part else { continue };
            let node = &mut self.nodes[vertex as usize];
            node.shard = part.0;
            for half in HALVES {
                let slot = &mut node.slots[half as usize];
                if *slot != NONE {
                    *slot = place(*slot);
                    self.vertex_of[usize::from(part.0)][*slot as usize] = vertex;
                }
            }
        }
        if !bites(Bug::RangeStays) {
            self.forget_shares(split.shard);
        }
        self.ranges = ranges;
        // It began at one of the shares, which are fewer now.
        if self.sweeping.is_some() {
            self.sweep_again();
        }
    }
}
