//! Totals of one view: the counts that each counter inherits from its ancestors, updated with every increment and every change of
//! the graph.
//!
//! The total of a counter is its own direct count and its inherited count: the direct counts of its ancestors, each once, in the
//! present generation of each. So a read never walks the graph. Inherited counts are derived from direct counts and the ledger's
//! graph. They are never gossiped and never persisted: a process counts them anew when it starts ([`Hierarchy::recount`]). Totals
//! say nothing of milestones, and lack the counts of lost groups that only the ledger knows.
//!
//! How to use it. The view calls
//!
//! * [`on_raised`](Hierarchy::on_raised) and [`on_row_raised`](Hierarchy::on_row_raised) for each component and row that it has raised;
//! * [`on_ledger`](Hierarchy::on_ledger) for all changes of the ledger, [`on_horizon`](Hierarchy::on_horizon) when buckets expire;
//! * [`step`](Hierarchy::step) between its other work, as long as it says that there is more to do.
//!
//! Cells that the view has named since one of the last two calls are taken in by the next: their counts by then are inherited
//! from then on.
//!
//! A total is kept as shares, one for each range of counters ([`Ranges`]) that has ancestors of it. The count of an ancestor
//! stands in the share of the ancestor's range, wherever the descendant is. A total is the sum of its shares, and each is right
//! by itself.
//!
//! Buckets of a total are kept as long as the namespaces of all counters that may flow to it keep theirs, since a sum with
//! expired parts is wrong. The horizon of a namespace is merged with those of all namespaces from which edges to it are
//! permitted.

mod follow;
mod horizons;
mod parting;
mod recount;
mod shares;
mod shelved;
mod sums;

pub(super) use parting::part_of;
pub use shares::SharesHeld;
pub use shelved::{HeldSums, HeldTotals};

use follow::Following;
use horizons::Horizons;
use parting::Parting;
use shares::{Share, Shares};
use shelved::Shelving;
use std::borrow::Cow;
use sums::{HALVES, Sums};
use tidemark_ledger::ledger::{Changes, Ledger};
use tidemark_types::graph::{Batch, EdgeChange, Flow, Scratch, Vertex};
use tidemark_types::ids::{Bucket, CellId, CounterName, Half};
use tidemark_types::numbers::Numbers;
use tidemark_types::series::{BucketId, Horizon, Row, UnixTime};
use tidemark_types::table::CellTable;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::shards::{Ranges, ShardId, ShardMask};

/// No vertex, slot, or sums.
const NONE: u32 = u32::MAX;
/// Pairs that one batch looks at at least, however many buckets each may have.
const BATCH_MIN: usize = 16;

/// The queries of a hierarchy to its view. The view's cells stand by shard: the cells of a range's counters, in slots of its own.
pub trait DirectCounts {
    /// The names of a shard's cells.
    fn table(&self, shard: ShardId) -> &CellTable;
    /// The sum of a slot's components.
    fn sum(&self, shard: ShardId, slot: u32) -> u64;
    /// The rows of a slot's components.
    fn rows(&self, shard: ShardId, slot: u32) -> impl Iterator<Item = Cow<'_, Row>> + '_;
    /// Slots of a shard that new cells got since slots were last freed.
    fn reused_slots(&self, _shard: ShardId) -> &[u32] {
        &[]
    }
    /// Reads the memory of a slot that its sum and its rows will need.
    fn warm(&self, _shard: ShardId, _slot: u32) -> u64 {
        0
    }
    /// The host's clock, if known, and the bytes of memory of the buckets of rows.
    fn now_and_bytes(&self) -> (UnixTime, usize) {
        Default::default()
    }
}

/// Inherited sums of all counters of a view.
#[derive(Clone, Debug, Default)]
pub struct Hierarchy {
    flow: Flow,
    scratch: Scratch,
    /// By shard and slot: the vertex of the counter, if it is a half of the total of its present generation.
    vertex_of: Vec<Vec<u32>>,
    /// By shard: the number of reused slots that are added already.
    taken_again: Vec<usize>,
    /// By vertex.
    nodes: Vec<Node>,
    /// By vertex, where there are several ranges: in which there is an ancestor of it, or was one since the last recount,
    /// wherever that is held.
    sources: Vec<ShardMask>,
    ranges: Ranges,
    /// A range that is being split.
    parting: Option<Parting>,
    /// The shares of counters that have or had ancestors.
    shares: Shares,
    shelving: Shelving,
    horizons: Horizons,
    following: Following,
    /// Pairs of the change under way that are done.
    pairs_done: u64,
    /// Buckets that a pair of the last batch had.
    buckets_per_pair: usize,
    /// The share that is looked at next for expired buckets.
    sweeping: Option<usize>,
    /// More has expired since that began.
    sweeps_again: bool,
    /// The kept buckets have changed in a way that only a recount can follow.
    must_recount: bool,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// By half: the slot of the present generation.
    slots: [u32; 2],
    heir: u32,
    namespace: u16,
    /// The range that the counter is in.
    shard: u16,
}

/// The progress of a view in following the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HierarchyProgress {
    /// Totals are those of the ledger's graph after this number of changes
    /// ([`Graph::index`](tidemark_ledger::ledger::Graph::index)), and of a part of the next one.
    pub index: u64,
    /// Pairs of counters done of the change under way.
    pub pairs: u64,
    /// Changes that wait, the one under way included.
    pub waiting: usize,
    /// The graph is on its way to a graph of the ledger that is many changes away, by a comparison of both: totals are of
    /// neither.
    pub compares: bool,
    /// The number of the view's cells that are taken in, the first ones of each shard: the counts of other cells are inherited
    /// after the next step. So are cells that got the slots of ended cells since.
    pub cells: u64,
    /// Namespaces keep other granularities than before: buckets of totals are counted anew by the next step.
    pub recounts: bool,
}

impl Hierarchy {
    /// Totals with a share for each of these ranges.
    pub fn with_ranges(ranges: Ranges) -> Hierarchy {
        Hierarchy { shares: Shares::new(ranges.numbers()), ranges, ..Hierarchy::default() }
    }

    // ---- reading ----

    /// The inherited count of a counter, from the counters of each range; empty if it never had an ancestor. A range that is
    /// being split may have several sums.
    pub fn inherited(
        &self,
        counter: &CounterName,
        ledger: &Ledger,
    ) -> impl Iterator<Item = (ShardId, HeldSums<'_>)> + '_ {
        let vertex = ledger.graph().vertex(counter);
        let node = vertex.and_then(|vertex| self.nodes.get(vertex.0 as usize));
        let shares = node.into_iter().flat_map(|node| self.shares.of(node.heir));
        shares.map(|(shard, share)| (self.shown_as(shard), self.held_sums(share)))
    }

    /// The ranges with counters that may flow to this one, at any holders.
    pub fn sources(&self, counter: &CounterName, ledger: &Ledger) -> ShardMask {
        if self.ranges.is_whole() {
            return ShardMask::EVERY;
        }
        let vertex = ledger.graph().vertex(counter);
        vertex.and_then(|vertex| self.sources.get(vertex.0 as usize)).copied().unwrap_or_default()
    }

    /// The part of the counters of a range in totals, and its memory.
    pub fn held(&self, shard: ShardId) -> SharesHeld {
        self.shares.held(shard)
    }

    pub fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    /// Whether a cell is taken in.
    pub fn has_taken_in(&self, shard: ShardId, slot: u32) -> bool {
        self.vertex_of.get(usize::from(shard.0)).is_some_and(|of_shard| (slot as usize) < of_shard.len())
    }

    /// How many of the slots that new cells got are taken in.
    pub fn taken_in_again(&self, shard: ShardId) -> usize {
        self.taken_again.get(usize::from(shard.0)).copied().unwrap_or_default()
    }

    /// The buckets of totals that are kept in a namespace; `None` if it keeps no series.
    pub fn horizon(&self, namespace: &str) -> Option<&Horizon> {
        self.horizons.of_totals(self.horizons.number_of(namespace)?)
    }

    pub fn progress(&self) -> HierarchyProgress {
        HierarchyProgress {
            index: self.following.index(self.flow.progress().settled),
            pairs: self.pairs_done,
            waiting: self.flow.unsettled(),
            compares: !self.following.is_abreast() || self.following.is_catching_up(),
            cells: self.vertex_of.iter().map(|of_shard| of_shard.len() as u64).sum(),
            recounts: self.must_recount,
        }
    }

    /// Bytes allocated, without the graph.
    pub fn heap_bytes(&self) -> usize {
        self.vertex_of.iter().map(|of_shard| 4 * of_shard.capacity()).sum::<usize>()
            + size_of::<Node>() * self.nodes.capacity()
            + size_of::<ShardMask>() * self.sources.capacity()
            + self.shares.heap_bytes()
            + self.flow.moving_bytes()
    }

    // ---- increments ----

    /// A component of a slot was raised by so much.
    #[inline]
    pub fn on_raised(&mut self, shard: ShardId, slot: u32, by: u64) {
        let Some((vertex, half)) = self.source(shard, slot) else { return };
        let owner = self.owner(vertex.0, shard.0);
        for &to in self.flow.descendants(vertex, &mut self.scratch) {
            let (heir, namespace) = heir(&mut self.nodes, &mut self.shares, to);
            let count = &mut self.shares.share(heir, namespace, owner).sums.counts[half as usize];
            *count = count.wrapping_add(by);
        }
    }

    /// Buckets of a row of a slot were raised by so much, as far as its namespace keeps them.
    pub fn on_row_raised(&mut self, shard: ShardId, slot: u32, raised: &[(BucketId, u64)]) {
        let Some((vertex, half)) = self.source(shard, slot) else { return };
        let owner = self.owner(vertex.0, shard.0);
        for &to in self.flow.descendants(vertex, &mut self.scratch) {
            let (heir, namespace) = heir(&mut self.nodes, &mut self.shares, to);
            let Some(horizon) = self.horizons.of_totals(namespace) else { continue };
            self.shares.change(heir, namespace, owner, |share| {
                let buckets = &mut share.sums.buckets[half as usize];
                raised.iter().for_each(|&(bucket, by)| buckets.raise(bucket, by, horizon));
            });
        }
    }

    fn source(&self, shard: ShardId, slot: u32) -> Option<(Vertex, Half)> {
        let vertex = *self.vertex_of.get(usize::from(shard.0))?.get(slot as usize)?;
        let node = self.nodes.get(vertex as usize)?;
        let half = if node.slots[0] == slot { Half::Up } else { Half::Down };
        Some((Vertex(vertex), half))
    }

    /// Prefetches the memory of a slot that [`Hierarchy::on_raised`] reads first.
    pub(super) fn warm_source(&self, shard: ShardId, slot: u32) -> u64 {
        let of_shard = self.vertex_of.get(usize::from(shard.0));
        of_shard.and_then(|of_shard| of_shard.get(slot as usize)).copied().unwrap_or(NONE).into()
    }

    // ---- the ledger, and time ----

    /// Takes over the changes in the ledger applied here. All changes have to be told, in their order.
    pub fn on_ledger(&mut self, changes: &Changes, ledger: &Ledger, view: &impl DirectCounts) {
        self.take_in(ledger, view);
        for counter in &changes.resets {
            let vertex = ledger.graph().vertex(counter).filter(|vertex| (vertex.0 as usize) < self.nodes.len());
            if let Some(vertex) = vertex {
                self.begin_again(vertex, ledger, view);
            }
        }
        if changes.settings && self.horizons.on_permissions(ledger) {
            self.sweep_again();
        }
        self.follow(&changes.edges, ledger.graph());
    }

    /// A namespace keeps other buckets than before: time went on, or its policy is another one.
    pub fn on_horizon(&mut self, namespace: &str, horizon: &Horizon, ledger: &Ledger) {
        let effect = self.horizons.set(namespace, horizon, ledger);
        self.must_recount |= effect.regranulated && !self.shares.is_empty();
        if effect.expired {
            self.sweep_again();
        }
    }

    /// Continues the work: looks at no more than about `budget` edges, pairs and buckets. Returns whether there is more to do.
    pub fn step(&mut self, budget: usize, ledger: &Ledger, view: &impl DirectCounts) -> bool {
        self.take_in(ledger, view);
        if self.must_recount {
            self.recount(ledger, view);
            return false;
        }
        let mut budget = budget.max(1);
        self.compare(&mut budget, ledger.graph());
        self.carry(&mut budget, view);
        self.sweep(&mut budget);
        self.leave(&mut budget);
        self.flow.unsettled() > 0 || self.sweeping.is_some() || self.is_shelving() || self.can_compare(ledger.graph())
    }

    /// The cells of a shard are gone from the view.
    pub fn forget_shard(&mut self, shard: ShardId) {
        self.forget_shares(shard);
        if let Some(of_shard) = self.vertex_of.get_mut(usize::from(shard.0)) {
            *of_shard = Vec::new();
        }
        self.forget_again(shard);
        for node in self.nodes.iter_mut().filter(|node| node.shard == shard.0) {
            node.slots = [NONE; 2];
        }
        // It began at one of the shares, which are fewer now.
        if self.sweeping.is_some() {
            self.sweep_again();
        }
    }

    /// Takes in cells and counters that are new.
    pub(super) fn take_in(&mut self, ledger: &Ledger, view: &impl DirectCounts) {
        self.vertex_of.resize_with(self.ranges.numbers(), Vec::new);
        self.taken_again.resize(self.ranges.numbers(), 0);
        for shard in self.ranges.iter().map(|range| range.shard).collect::<Vec<_>>() {
            for slot in self.taken_in(shard)..view.table(shard).len() {
                self.vertex_of[usize::from(shard.0)].push(NONE);
                if !self.nodes.is_empty() {
                    self.adopt(shard, slot, ledger, view);
                }
            }
            let again = view.reused_slots(shard);
            for &slot in again.iter().skip(self.taken_in_again(shard)) {
                if !self.nodes.is_empty() {
                    self.adopt(shard, slot, ledger, view);
                }
            }
            self.taken_again[usize::from(shard.0)] = again.len();
        }
        // A counter that is new here has no flow yet.
        for vertex in self.nodes.len() as u32..ledger.graph().vertices() {
            let name = ledger.graph().name(Vertex(vertex));
            let namespace = self.horizons.number(name.namespace());
            let shard = self.ranges.find(&name).0;
            self.nodes.push(Node { slots: [NONE; 2], heir: NONE, namespace, shard });
            if self.notes_sources() {
                self.sources.push(ShardMask::NONE);
            }
            self.map(Vertex(vertex), &name, ledger, view);
        }
    }

    /// Forgets the list of reused slots of a shard, because its slots are being freed. No node refers to these slots: their cells have
    /// ended, and their counters began again. All cells were added before.
    pub(super) fn free_slots(&mut self, shard: ShardId, slots: &Numbers) {
        self.forget_again(shard);
        let of_shard = &self.vertex_of[usize::from(shard.0)];
        let is_held = |slot: u32| of_shard.get(slot as usize).is_some_and(|&vertex| vertex != NONE);
        debug_assert!(!slots.iter().any(is_held), "totals hold no ended cell");
    }

    /// Sets the number of added reused slots to 0, after slots were freed or the shard was forgotten.
    fn forget_again(&mut self, shard: ShardId) {
        if let Some(taken) = self.taken_again.get_mut(usize::from(shard.0)) {
            *taken = 0;
        }
    }

    fn taken_in(&self, shard: ShardId) -> u32 {
        self.vertex_of[usize::from(shard.0)].len() as u32
    }

    /// A new cell, in which something may have been counted already.
    fn adopt(&mut self, shard: ShardId, slot: u32, ledger: &Ledger, view: &impl DirectCounts) {
        let CellId { counter, generation, half, bucket } = view.table(shard).name(slot);
        let vertex = ledger.graph().vertex(&counter).filter(|vertex| (vertex.0 as usize) < self.nodes.len());
        let Some(vertex) = vertex.filter(|_| bucket == Bucket::Total) else { return };
        let held = &mut self.nodes[vertex.0 as usize].slots[half as usize];
        // Where one of another generation is held, the counter's reset is still to be told here.
        if *held != NONE || generation != ledger.resets().generation(&counter) {
            return;
        }
        *held = slot;
        self.vertex_of[usize::from(shard.0)][slot as usize] = vertex.0;
        let mut counted = Sums::default();
        self.gather_half(vertex, half, view, &mut counted);
        self.spread(vertex, &counted, true);
    }

    /// Finds the cells of a counter's present generation.
    fn map(&mut self, vertex: Vertex, name: &CounterName, ledger: &Ledger, view: &impl DirectCounts) {
        let generation = ledger.resets().generation(name);
        let shard = ShardId(self.nodes[vertex.0 as usize].shard);
        for half in HALVES {
            let slot = view.table(shard).find_half(name, half, generation);
            // Cells that are not taken in yet come by themselves.
            let slot = slot.filter(|&slot| slot < self.taken_in(shard));
            self.nodes[vertex.0 as usize].slots[half as usize] = slot.unwrap_or(NONE);
            if let Some(slot) = slot {
                self.vertex_of[usize::from(shard.0)][slot as usize] = vertex.0;
            }
        }
    }

    /// A counter began again: the part of its earlier generation is subtracted, and the count of the present one is added.
    fn begin_again(&mut self, vertex: Vertex, ledger: &Ledger, view: &impl DirectCounts) {
        let before = self.gather(vertex, view);
        if !bites(Bug::ResetStaysInTotals) {
            self.spread(vertex, &before, false);
        }
        let Node { slots, shard, .. } = self.nodes[vertex.0 as usize];
        for slot in slots.into_iter().filter(|&slot| slot != NONE) {
            self.vertex_of[usize::from(shard)][slot as usize] = NONE;
        }
        self.map(vertex, &ledger.graph().name(vertex), ledger, view);
        let present = self.gather(vertex, view);
        self.spread(vertex, &present, true);
    }

    /// Adds to all descendants, or takes off.
    fn spread(&mut self, from: Vertex, sums: &Sums, adds: bool) {
        if sums.is_empty() {
            return;
        }
        let shard = self.owner(from.0, self.nodes[from.0 as usize].shard);
        for &to in self.flow.descendants(from, &mut self.scratch) {
            let (heir, namespace) = heir(&mut self.nodes, &mut self.shares, to);
            let horizon = self.horizons.of_totals(namespace);
            self.shares.change(heir, namespace, shard, |Share { sums: held, .. }| {
                if adds { held.add(sums, horizon) } else { held.take_off(sums, horizon) }
            });
        }
    }

    /// The kept direct count of a counter.
    fn gather(&self, vertex: Vertex, view: &impl DirectCounts) -> Sums {
        let mut sums = Sums::default();
        HALVES.into_iter().for_each(|half| self.gather_half(vertex, half, view, &mut sums));
        sums
    }

    fn gather_half(&self, vertex: Vertex, half: Half, view: &impl DirectCounts, sums: &mut Sums) {
        gather(self.nodes[vertex.0 as usize], half, view, &self.horizons, sums);
    }

    // ---- steps ----

    /// Works off changes of the graph.
    fn carry(&mut self, budget: &mut usize, view: &impl DirectCounts) {
        while *budget > 0 {
            let given = (*budget / (1 + self.buckets_per_pair)).max(BATCH_MIN);
            let mut left = given;
            let Some(batch) = self.flow.step_within(&mut left) else { return };
            let moved = self.move_pairs(&batch, view);
            *budget = budget.saturating_sub((given - left).max(1) + moved);
            if let Some(pairs) = std::num::NonZero::new(batch.pairs.len()) {
                self.buckets_per_pair = moved / pairs;
            }
            self.pairs_done += batch.pairs.len() as u64;
            if batch.settled {
                self.pairs_done = 0;
                self.following.on_settled(batch.change, self.flow.progress().settled);
            }
        }
    }

    /// Adds direct counts to totals by a batch, or subtracts them. Returns the number of buckets.
    fn move_pairs(&mut self, batch: &Batch, view: &impl DirectCounts) -> usize {
        let mut moved = 0;
        if matches!(batch.change, EdgeChange::Insert(_)) && !bites(Bug::SourceUnnoted) {
            batch.pairs.iter().for_each(|pair| self.note_source(pair.from.0, pair.to.0, ShardMask::NONE));
        }
        for pairs in batch.pairs.chunk_by(|a, b| a.from == b.from) {
            let sums = self.gather(pairs[0].from, view);
            moved += sums.len() * pairs.len();
            if sums.is_empty() {
                continue;
            }
            for pair in pairs {
                let owner = if bites(Bug::ShareOfHome) { pair.to } else { pair.from };
                let shard = self.owner(owner.0, self.nodes[owner.0 as usize].shard);
                let (heir, namespace) = heir(&mut self.nodes, &mut self.shares, pair.to);
                let horizon = self.horizons.of_totals(namespace).filter(|_| !bites(Bug::BucketsStay));
                self.shares.change(heir, namespace, shard, |Share { sums: held, .. }| match batch.change {
                    EdgeChange::Insert(_) => held.add(&sums, horizon),
                    EdgeChange::Remove(_) => held.take_off(&sums, horizon),
                });
            }
        }
        moved
    }

    /// A counter flows to another one, with the counts that flow to it from these ranges.
    fn note_source(&mut self, from: u32, to: u32, above: ShardMask) {
        let mask = self.mask_of(ShardId(self.nodes[from as usize].shard));
        if let Some(sources) = self.sources.get_mut(to as usize) {
            *sources = sources.with(above).with(mask);
        }
    }

    fn sweep_again(&mut self) {
        self.sweeps_again = self.sweeping.is_some();
        self.sweeping = self.sweeping.or(Some(0));
    }

    /// Drops buckets that have expired.
    fn sweep(&mut self, budget: &mut usize) {
        while let Some(at) = self.sweeping.filter(|_| *budget > 0) {
            let expired = self.shares.change_next(at, |share| {
                let buckets = share.sums.len();
                let horizon = self.horizons.of_totals(share.namespace);
                share.sums.expire(horizon);
                self.shelving.expire(share, horizon);
                buckets
            });
            let Some(buckets) = expired else {
                self.sweeping = std::mem::take(&mut self.sweeps_again).then_some(0);
                continue;
            };
            *budget = budget.saturating_sub(1 + buckets / 16);
            self.sweeping = Some(at + 1);
        }
    }

    /// Panics when slots and counters disagree. Walks everything.
    pub fn check_invariants(&self) {
        self.flow.check_invariants();
        for (vertex, node) in (0..).zip(&self.nodes) {
            let of = |&slot: &u32| self.vertex_of[usize::from(node.shard)][slot as usize];
            assert!(
                node.slots.iter().filter(|&&slot| slot != NONE).all(|slot| of(slot) == vertex),
                "slots of a counter"
            );
            if node.heir != NONE {
                self.shares.check_heir(node.heir, node.namespace);
            }
        }
        self.shares.check_held();
        assert_eq!(self.sources.len(), if self.notes_sources() { self.nodes.len() } else { 0 }, "sources of counters");
        for (node, sources) in self.nodes.iter().zip(&self.sources) {
            assert!(
                self.shares.of(node.heir).all(|(shard, _)| sources.has(shard)),
                "a share of a range that is a source"
            );
        }
        for (shard, of_shard) in (0..).zip(&self.vertex_of) {
            let is_held = |(slot, &vertex): (u32, &u32)| {
                let node = self.nodes.get(vertex as usize);
                vertex == NONE || node.is_some_and(|node| node.shard == shard && node.slots.contains(&slot))
            };
            assert!((0..).zip(of_shard).all(is_held), "the counter of a slot");
        }
    }
}

/// Adds the kept direct count of one half of a counter.
#[inline]
fn gather(node: Node, half: Half, view: &impl DirectCounts, horizons: &Horizons, sums: &mut Sums) {
    let slot = node.slots[half as usize];
    if slot == NONE {
        return;
    }
    let count = &mut sums.counts[half as usize];
    let shard = ShardId(node.shard);
    *count = count.wrapping_add(view.sum(shard, slot));
    if let Some(horizon) = horizons.own(node.namespace) {
        view.rows(shard, slot).for_each(|row| sums.buckets[half as usize].add(&row, horizon));
    }
}

/// The number of a counter that inherits, and its namespace.
#[inline]
fn heir(nodes: &mut [Node], shares: &mut Shares, vertex: Vertex) -> (u32, u16) {
    let node = &mut nodes[vertex.0 as usize];
    if node.heir == NONE {
        node.heir = shares.heir(node.namespace);
    }
    (node.heir, node.namespace)
}
