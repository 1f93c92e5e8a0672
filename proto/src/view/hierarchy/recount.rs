//! All totals from nothing: what a process does when it starts.
//!
//! Going through the graph in topological order, and handing on what has come together, would count a counter twice where two paths meet.
//! But where all of a counter flows to one next counter only, its descendants are that one and those of that one: then what has come
//! together is handed on as if it were counted there. Only counters that flow to several next ones walk to their descendants, once for
//! themselves and for all that was handed to them.

use super::follow::Following;
use super::shares::Shares;
use super::{DirectCounts, Hierarchy, NONE, Sums, heir};
use crate::graph::{Flow, Progress, Vertex};
use crate::ledger::Ledger;

/// The edges as arrays.
struct Edges {
    /// By vertex: where its edges begin.
    starts: Vec<u32>,
    ends: Vec<u32>,
    /// By vertex: how many edges to it are left.
    open: Vec<u32>,
}

/// What was handed to counters that are not done yet.
struct Handed {
    /// By vertex: the place of the first of its parts.
    at: Vec<u32>,
    parts: Vec<Part>,
    free: Vec<u32>,
}

/// What came from the counters of one shard.
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
    fn of(ledger: &Ledger) -> Edges {
        let (graph, vertices) = (ledger.graph(), ledger.graph().vertices() as usize);
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
    fn add(&mut self, to: u32, shard: u16, sums: &Sums) {
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
        self.parts[at as usize].sums.add_all(sums);
    }

    /// Takes one part of what was handed to a counter, while there is any.
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
        let (mut at, mut next) = (0, Some(of));
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
    /// Counts all totals anew from direct counts and the ledger's graph as it is, whatever was under way. Takes as long as there is to
    /// count; horizons should have been told before.
    pub fn recount(&mut self, ledger: &Ledger, view: &impl DirectCounts) {
        let graph = ledger.graph();
        let progress = Progress { settled: graph.index(), done: None };
        let flow = Flow::load(graph.dag().clone(), progress, []).expect("a graph without changes");
        let (horizons, ranges) = (std::mem::take(&mut self.horizons), std::mem::take(&mut self.ranges));
        let (shares, following) = (Shares::new(ranges.count()), Following::begun(graph.index()));
        *self = Hierarchy { flow, horizons, ranges, shares, following, ..Hierarchy::default() };
        self.horizons.on_permissions(ledger);
        self.vertex_of = vec![NONE; view.cells() as usize];
        self.take_in(ledger, view);
        let mut edges = Edges::of(ledger);
        let vertices = graph.vertices();
        let mut handed = Handed { at: vec![NONE; vertices as usize], parts: Vec::new(), free: Vec::new() };
        let mut walk = Walk { seen: vec![0; vertices as usize], number: 0, found: Vec::new() };
        for first in 0..vertices {
            let mut ready = if edges.open[first as usize] == 0 && !edges.children(first).is_empty() {
                vec![first]
            } else {
                continue;
            };
            while let Some(vertex) = ready.pop() {
                // Done: it is not come by again.
                edges.open[vertex as usize] = NONE;
                self.hand_on(vertex, &edges, &mut handed, &mut walk, view);
                for at in edges.starts[vertex as usize]..edges.starts[vertex as usize + 1] {
                    let child = edges.ends[at as usize];
                    edges.open[child as usize] -= 1;
                    if edges.open[child as usize] == 0 {
                        ready.push(child);
                    }
                }
            }
        }
    }

    /// Adds to all totals below a counter what is counted there, directly or as if it were.
    fn hand_on(&mut self, vertex: u32, edges: &Edges, handed: &mut Handed, walk: &mut Walk, view: &impl DirectCounts) {
        let children = edges.children(vertex);
        if children.is_empty() {
            while handed.take(vertex).is_some() {}
            return;
        }
        let (shard, own) = (self.nodes[vertex as usize].shard, self.gather(Vertex(vertex), view));
        let mut next = if own.is_empty() {
            handed.take(vertex)
        } else if handed.at[vertex as usize] == NONE {
            Some((shard, own))
        } else {
            handed.add(vertex, shard, &own);
            handed.take(vertex)
        };
        let to = match children {
            [_] => children,
            _ => walk.descendants(vertex, edges),
        };
        while let Some((shard, sums)) = next {
            if let [child] = children
                && !edges.children(*child).is_empty()
            {
                handed.add(*child, shard, &sums);
            }
            for &to in to {
                let (heir, namespace) = heir(&mut self.nodes, &mut self.shares, Vertex(to));
                let horizon = self.horizons.of_totals(namespace);
                self.shares.change(heir, namespace, shard, |share| share.sums.add(&sums, horizon));
            }
            next = handed.take(vertex);
        }
    }
}
