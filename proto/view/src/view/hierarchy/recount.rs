//! All totals from nothing: the recount of a process when it starts.
//!
//! Going through the graph in topological order, and handing on collected counts, would count a counter twice where two paths
//! meet. But if all of a counter flows to only one next counter, its descendants are that one and its descendants. Then the
//! collected counts are handed on as if they were counted there, and added to its total when all have come. Only counters that
//! flow to several next ones walk to their descendants, once for themselves and for all counts that were handed to them.

use super::follow::Following;
use super::parting::Parting;
use super::shares::Shares;
use super::sums::HALVES;
use super::{DirectCounts, Hierarchy, NONE, Node, Sums, gather, heir};
use tidemark_ledger::ledger::{Graph, Ledger};
use tidemark_types::graph::{Flow, Progress, Vertex};
use tidemark_types::warm::AHEAD;
use tidemark_wire::shards::{ShardId, ShardMask};

/// The edges as arrays.
struct Edges {
    /// By vertex: where its edges begin.
    starts: Vec<u32>,
    ends: Vec<u32>,
    /// By vertex: how many edges to it are left.
    open: Vec<u32>,
}

/// The counts that were handed to counters that are not done yet.
struct Handed {
    /// By vertex: the place of the first of its parts.
    at: Vec<u32>,
    parts: Vec<Part>,
    free: Vec<u32>,
}

/// The counts from the counters of one shard.
#[derive(Clone, Default)]
struct Part {
    shard: u16,
    /// The place of another one of the same counter.
    next: u32,
    sums: Sums,
}

/// Walks to descendants.
struct Walk {
    /// By vertex: in which walk it was last seen.
    seen: Vec<u32>,
    number: u32,
    found: Vec<u32>,
}

impl Edges {
    fn of(graph: &Graph) -> Edges {
        let vertices = graph.vertices() as usize;
        let mut edges = Edges {
            starts: Vec::with_capacity(vertices + 1),
            ends: Vec::with_capacity(graph.dag().len()),
            open: vec![0; vertices],
        };
        for edge in graph.dag().edges() {
            let from = edge.from.0 as usize;
            edges.starts.resize(edges.starts.len().max(from + 1), edges.ends.len() as u32);
            edges.ends.push(edge.to.0);
            edges.open[edge.to.0 as usize] += 1;
        }
        edges.starts.resize(vertices + 1, edges.ends.len() as u32);
        edges
    }

    fn children(&self, of: u32) -> &[u32] {
        &self.ends[self.starts[of as usize] as usize..self.starts[of as usize + 1] as usize]
    }
}

impl Handed {
    fn to(&mut self, to: u32, shard: u16) -> &mut Sums {
        let first = self.at[to as usize];
        let mut at = first;
        while at != NONE && self.parts[at as usize].shard != shard {
            at = self.parts[at as usize].next;
        }
        if at == NONE {
            at = self.free.pop().unwrap_or(self.parts.len() as u32);
            self.parts.resize(self.parts.len().max(at as usize + 1), Part::default());
            let part = &mut self.parts[at as usize];
            (part.shard, part.next) = (shard, first);
            self.at[to as usize] = at;
        }
        &mut self.parts[at as usize].sums
    }

    /// Takes one part of the counts that were handed to a counter, while there is any.
    fn take(&mut self, of: u32) -> Option<(u16, Sums)> {
        let at = self.at[of as usize];
        let part = std::mem::take(self.parts.get_mut(at as usize)?);
        self.free.push(at);
        self.at[of as usize] = part.next;
        Some((part.shard, part.sums))
    }
}

impl Walk {
    fn descendants(&mut self, of: u32, edges: &Edges) -> &[u32] {
        self.number += 1;
        self.found.clear();
        // In a tree there are no walks.
        self.seen.resize(edges.open.len(), 0);
        let mut at = 0;
        let mut next = Some(of);
        while let Some(vertex) = next {
            for &child in edges.children(vertex) {
                if std::mem::replace(&mut self.seen[child as usize], self.number) != self.number {
                    self.found.push(child);
                }
            }
            next = self.found.get(at).copied();
            at += 1;
        }
        &self.found
    }
}

impl Hierarchy {
    /// Counts all totals anew from direct counts and the ledger's present graph, and drops all work under way. Takes as long as
    /// there is to count; horizons should have been told before.
    pub fn recount(&mut self, ledger: &Ledger, view: &impl DirectCounts) {
        let graph = ledger.graph();
        let progress = Progress { settled: graph.index(), done: None };
        let flow = Flow::load(graph.dag().clone(), progress, []).expect("a graph without changes");
        let horizons = std::mem::take(&mut self.horizons);
        let ranges = std::mem::take(&mut self.ranges);
        let parting = self.parting.take().map(Parting::again);
        let numbers = parting.as_ref().map_or(ranges.numbers(), Parting::numbers);
        let shares = Shares::new(numbers);
        let following = Following::begun(graph.index());
        self.shelving.forget_all(self.shares.all().iter());
        let shelving = std::mem::take(&mut self.shelving);
        *self = Hierarchy { flow, horizons, ranges, shares, shelving, following, parting, ..Hierarchy::default() };
        self.horizons.on_permissions(ledger);
        self.take_in_all(ledger, view);
        let mut edges = Edges::of(graph);
        let vertices = graph.vertices();
        let mut handed = Handed { at: vec![NONE; vertices as usize], parts: Vec::new(), free: Vec::new() };
        let mut walk = Walk { seen: Vec::new(), number: 0, found: Vec::new() };
        let mut ready = Vec::new();
        let mut leaves_beyond = 0;
        for first in 0..vertices {
            if (first as usize).is_multiple_of(AHEAD) {
                self.warm(first as usize, view);
                self.leave_beyond(&mut leaves_beyond, view);
            }
            if edges.open[first as usize] == 0 && !edges.children(first).is_empty() {
                ready.push(first);
            }
            while let Some(vertex) = ready.pop() {
                // Done: it is not come by again.
                edges.open[vertex as usize] = NONE;
                self.hand_on(vertex, &edges, &mut handed, &mut walk, view);
                for at in edges.starts[vertex as usize]..edges.starts[vertex as usize + 1] {
                    let child = edges.ends[at as usize];
                    let above = self.sources.get(vertex as usize).copied().unwrap_or_default();
                    self.note_source(vertex, child, above);
                    edges.open[child as usize] -= 1;
                    if edges.open[child as usize] == 0 {
                        ready.push(child);
                    }
                }
            }
        }
    }

    /// Takes in all counters, none of which was taken in, by a walk over the view's cells: most counters have one, and each is
    /// looked up once.
    fn take_in_all(&mut self, ledger: &Ledger, view: &impl DirectCounts) {
        let graph = ledger.graph();
        let names = ledger.graph().names();
        let numbers: Vec<u16> = names.namespaces().iter().map(|namespace| self.horizons.number(namespace)).collect();
        let shard_of =
            |vertex| if self.ranges.is_whole() { 0 } else { self.ranges.find(&graph.name(Vertex(vertex))).0 };
        let node = |vertex| {
            let namespace = numbers[names.namespace_of(vertex)];
            Node { slots: [NONE; 2], heir: NONE, namespace, shard: shard_of(vertex) }
        };
        self.nodes = (0..graph.vertices()).map(node).collect();
        self.sources = vec![ShardMask::NONE; if self.notes_sources() { self.nodes.len() } else { 0 }];
        let resets = ledger.resets();
        let nodes = &mut self.nodes;
        let mut of_shard = |shard: ShardId| {
            let table = view.table(shard);
            let mut vertex_of = vec![NONE; table.len() as usize];
            names.find_totals_of(table, 0..table.len(), |slot, half, generation, vertex| {
                let present = if resets.is_empty() { 0 } else { resets.generation(&graph.name(Vertex(vertex))) };
                if generation == present {
                    nodes[vertex as usize].slots[half as usize] = slot;
                    vertex_of[slot as usize] = vertex;
                }
            });
            vertex_of
        };
        let shards = || (0..self.ranges.numbers() as u16).map(ShardId);
        self.vertex_of = shards().map(&mut of_shard).collect();
        self.taken_again = shards().map(|shard| view.reused_slots(shard).len()).collect();
    }

    /// Reads the memory that the next counters from this one on will need.
    fn warm(&self, first: usize, view: &impl DirectCounts) {
        let of_node = |node: &Node| node.slots.map(|slot| (ShardId(node.shard), slot));
        let slots = self.nodes[first..].iter().take(AHEAD).flat_map(of_node).filter(|&(_, slot)| slot != NONE);
        std::hint::black_box(slots.fold(0u64, |sum, (shard, slot)| sum.wrapping_add(view.warm(shard, slot))));
    }

    /// All counts that flow to a counter have come together: adds to all totals below it its direct count and the counts handed
    /// to it.
    fn hand_on(&mut self, vertex: u32, edges: &Edges, handed: &mut Handed, walk: &mut Walk, view: &impl DirectCounts) {
        let node = self.nodes[vertex as usize];
        let children = edges.children(vertex);
        let count = |sums: &mut Sums| {
            HALVES.into_iter().for_each(|half| gather(node, half, view, &self.horizons, sums));
        };
        let mut own = Sums::default();
        match children {
            [child] if node.slots != [NONE; 2] => count(handed.to(*child, node.shard)),
            [] | [_] => {}
            _ => count(&mut own),
        }
        let walks = children.len() > 1 && !(own.is_empty() && handed.at[vertex as usize] == NONE);
        let below = if walks { walk.descendants(vertex, edges) } else { &[] };
        if !own.is_empty() {
            below.iter().for_each(|&to| self.add_inherited(to, node.shard, &own));
        }
        while let Some((shard, sums)) = handed.take(vertex) {
            if sums.is_empty() {
                continue;
            }
            self.add_inherited(vertex, shard, &sums);
            below.iter().for_each(|&to| self.add_inherited(to, shard, &sums));
            // Added to its total when all has come together there.
            if let [child] = children {
                handed.to(*child, shard).add_all(&sums);
            }
        }
    }

    fn add_inherited(&mut self, to: u32, shard: u16, sums: &Sums) {
        let (heir, namespace) = heir(&mut self.nodes, &mut self.shares, Vertex(to));
        let horizon = self.horizons.of_totals(namespace);
        self.shares.change(heir, namespace, shard, |share| share.sums.add(sums, horizon));
    }
}
