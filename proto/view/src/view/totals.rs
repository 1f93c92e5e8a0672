//! Totals in a view: a counter's own count and the counts that flow to it along edges.

use super::View;
use super::hierarchy::{DirectCounts, HeldSums, HeldTotals, Hierarchy, HierarchyProgress};
use std::borrow::Cow;
use tidemark_ledger::ledger::{Changes, Ledger};
use tidemark_types::ids::{CounterName, Half};
use tidemark_types::series::{Horizon, Row, UnixTime};
use tidemark_types::table::CellTable;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::Reading;
use tidemark_wire::shards::{ShardId, ShardMask};

/// A counter's own count, and its count with inflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total {
    /// As it is read: never shows a milestone before its award.
    pub direct: Reading,
    /// The increments of the counter and of its ancestors, each once.
    pub up: u64,
    /// The decrements.
    pub down: u64,
}

impl Total {
    /// `up - down`.
    pub fn value(&self) -> i128 {
        i128::from(self.up) - i128::from(self.down)
    }
}

impl DirectCounts for View {
    fn table(&self, shard: ShardId) -> &CellTable {
        self.cells(shard).table()
    }

    fn sum(&self, shard: ShardId, slot: u32) -> u64 {
        self.cells(shard).sum(slot)
    }

    fn rows(&self, shard: ShardId, slot: u32) -> impl Iterator<Item = Cow<'_, Row>> + '_ {
        self.cells(shard).rows_of(slot).map(|(_, _, row)| row)
    }

    fn reused_slots(&self, shard: ShardId) -> &[u32] {
        self.cells(shard).reused_slots()
    }

    fn warm(&self, shard: ShardId, slot: u32) -> u64 {
        let cells = self.cells(shard);
        cells.warm_components(slot).wrapping_add(cells.warm_row(slot))
    }

    fn now_and_bytes(&self) -> (UnixTime, usize) {
        (self.shards[0].time(), self.row_bytes())
    }
}

impl View {
    /// A counter's own count and its total.
    pub fn total(&self, counter: &CounterName, ledger: &Ledger) -> Total {
        let direct = self.read(counter, ledger);
        let mut up = 0_u64;
        let mut down = 0_u64;
        if self.is_registered(ledger) {
            for (_, share) in self.hierarchy.inherited(counter, ledger) {
                (up, down) = (up.wrapping_add(share.count(Half::Up)), down.wrapping_add(share.count(Half::Down)));
            }
        }
        Total { direct, up: direct.up.saturating_add(up), down: direct.down.saturating_add(down) }
    }

    /// Whether anything was ever counted of a counter here, or edges name it. Else its name may be a slip of the pen.
    pub fn knows(&self, counter: &CounterName, ledger: &Ledger) -> bool {
        let is_counted = |half| self.cells_of(counter).table().find_half(counter, half, 0).is_some();
        is_counted(Half::Up) || is_counted(Half::Down) || ledger.graph().vertex(counter).is_some()
    }

    /// The buckets that flow to a counter along edges, without its own, from each range of counters; nothing where none do.
    pub fn inherited_buckets(
        &self,
        counter: &CounterName,
        half: Half,
        ledger: &Ledger,
    ) -> impl Iterator<Item = (ShardId, HeldTotals<'_>)> + '_ {
        self.hierarchy.inherited(counter, ledger).map(move |(shard, share)| (shard, share.buckets(half)))
    }

    /// The counts that flow to a counter from the counters of each range: the parts of its total beside its own count.
    pub fn shares(&self, counter: &CounterName, ledger: &Ledger) -> impl Iterator<Item = (ShardId, HeldSums<'_>)> + '_ {
        self.hierarchy.inherited(counter, ledger)
    }

    /// The ranges with counters that may flow to a counter, at any holders.
    pub fn sources(&self, counter: &CounterName, ledger: &Ledger) -> ShardMask {
        self.hierarchy.sources(counter, ledger)
    }

    /// The buckets of totals that a namespace keeps: those that all namespaces with edges to it keep.
    pub fn total_horizon(&self, namespace: &str) -> Option<&Horizon> {
        self.hierarchy.horizon(namespace)
    }

    /// Whether totals have taken a cell in: its counts flow on.
    pub fn has_taken_in(&self, shard: ShardId, slot: u32) -> bool {
        self.hierarchy.has_taken_in(shard, slot) && !self.not_taken_in(shard).contains(&slot)
    }

    /// Slots that new cells got and that totals have not taken in since.
    pub(super) fn not_taken_in(&self, shard: ShardId) -> &[u32] {
        let again = self.cells(shard).reused_slots();
        &again[self.hierarchy.taken_in_again(shard).min(again.len())..]
    }

    /// The progress of totals in following the graph.
    pub fn graph_progress(&self) -> HierarchyProgress {
        self.hierarchy.progress()
    }

    /// Works off changes of the graph, looking at no more than about `budget` edges, pairs and buckets. Returns whether there is
    /// more to do.
    pub fn step_graph(&mut self, budget: usize, ledger: &Ledger) -> bool {
        self.with_hierarchy(|hierarchy, view| hierarchy.step(budget, ledger, view))
    }

    /// Counts all totals anew: nothing of them is on disk.
    pub(super) fn count_totals_anew(&mut self, ledger: &Ledger) {
        self.expire_totals(ledger);
        self.with_hierarchy(|hierarchy, view| hierarchy.recount(ledger, view));
    }

    pub(super) fn follow_graph(&mut self, changes: &Changes, ledger: &Ledger) {
        self.with_hierarchy(|hierarchy, view| hierarchy.on_ledger(changes, ledger, view));
        if changes.settings {
            self.expire_totals(ledger);
        }
    }

    /// Time went on, or namespaces keep other buckets: totals follow.
    pub fn expire_totals(&mut self, ledger: &Ledger) {
        let horizons: Vec<(String, Horizon)> = self.shards[0].horizons().collect();
        for (namespace, horizon) in horizons {
            self.hierarchy.on_horizon(&namespace, &horizon, ledger);
        }
    }

    pub(super) fn with_hierarchy<R>(&mut self, work: impl FnOnce(&mut Hierarchy, &View) -> R) -> R {
        let mut hierarchy = std::mem::take(&mut self.hierarchy);
        let result = work(&mut hierarchy, self);
        self.hierarchy = hierarchy;
        if bites(Bug::RaisedLate) {
            self.carry();
        }
        result
    }
}
