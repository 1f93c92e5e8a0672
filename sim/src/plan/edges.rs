//! Edges between counters that change while it counts: of their own dice, so that the other runs stay what they are.

use super::Admin;
use crate::rng::Rng;
use std::collections::BTreeSet;
use tidemark_proto::graph::{Edge, EdgeChange};
use tidemark_proto::time::{Span, Time};

/// Counters of a run that may have edges.
pub const COUNTERS_MAX: usize = u64::BITS as usize;
/// Of 10,000 runs with series this number has edges, and of the others.
const AMONG_SERIES_PER_10K: u32 = 5_000;
const OTHERWISE_PER_10K: u32 = 2_500;
/// Most changes that are asked for together, beside the first ones.
const TOGETHER_MAX: u64 = 4;
/// Number of 10,000 batches that come just behind the batch before.
const SOON_PER_10K: u32 = 3_000;

/// How views follow the graph: a change takes several steps, so that something happens between them.
#[derive(Clone, Copy, Debug)]
pub struct EdgesPlan {
    /// Edges, pairs and buckets of a step, about.
    pub step: usize,
    pub interval: Span,
}

/// How changes are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Strict,
    /// Edges that exist already, or do not exist, are left out.
    Lenient,
    /// Refused changes are left out, and the others are carried out.
    Each {
        lenient: bool,
    },
    /// Proposed to the ledger without a check whether it would be refused.
    Careless,
}

/// As often as they stand here.
const MANNERS: [Manner; 6] = [
    Manner::Strict,
    Manner::Lenient,
    Manner::Lenient,
    Manner::Careless,
    Manner::Each { lenient: true },
    Manner::Each { lenient: false },
];

/// Changes that a caller asks for together.
#[derive(Clone, Debug)]
pub struct EdgesAsked {
    /// At the aggregator of this data centre.
    pub dc: usize,
    pub changes: Vec<EdgeChange<usize>>,
    pub manner: Manner,
}

/// Counters in an order in which most edges lead onwards, and edges that are probably there.
struct Drawing<'r> {
    rng: &'r mut Rng,
    order: Vec<usize>,
    likely: BTreeSet<(usize, usize)>,
}

impl EdgesPlan {
    /// A graph with chains and diamonds first, then insertions and removals; now and then of an edge that closes a cycle, is there
    /// already, is not there, or leads from a counter to itself.
    pub fn drawn(
        rng: &mut Rng,
        dcs: usize,
        counters: usize,
        end: Time,
        keeps_series: bool,
    ) -> Option<(EdgesPlan, Vec<(Time, Admin)>)> {
        let counters = counters.min(COUNTERS_MAX);
        let is_one = rng.per_10k(if keeps_series { AMONG_SERIES_PER_10K } else { OTHERWISE_PER_10K });
        let step = *rng.pick(&[1, 1, 64, 1 << 15]);
        let interval = Span::from_millis(*rng.pick(&[1, 20, 200]));
        let mut order: Vec<usize> = (0..counters).collect();
        (1..counters).for_each(|at| order.swap(at, rng.below(at as u64 + 1) as usize));
        let mut drawing = Drawing { rng, order, likely: BTreeSet::new() };
        let mut asked = vec![(Time(drawing.rng.between(1, end.0 / 4)), drawing.first())];
        let mut at = asked[0].0.0;
        let mean_us = *drawing.rng.pick(&[500_000.0, 2_000_000.0]);
        loop {
            let soon = drawing.rng.per_10k(SOON_PER_10K);
            at += if soon { drawing.rng.between(1_000, 50_000) } else { drawing.rng.exponential(mean_us) as u64 };
            if at >= end.0 {
                break;
            }
            let changes = (0..drawing.rng.between(1, TOGETHER_MAX)).map(|_| drawing.change()).collect();
            asked.push((Time(at), changes));
        }
        let mut batch = |changes| {
            let manner = *drawing.rng.pick(&MANNERS);
            EdgesAsked { dc: drawing.rng.below(dcs as u64) as usize, changes, manner }
        };
        let admin = asked.into_iter().map(|(at, changes)| (at, Admin::Edges(batch(changes)))).collect();
        is_one.then_some((EdgesPlan { step, interval }, admin))
    }
}

impl Drawing<'_> {
    /// Every counter but the first inherits from one or two of those before it.
    fn first(&mut self) -> Vec<EdgeChange<usize>> {
        let mut changes = Vec::new();
        for at in 1..self.order.len() {
            let near = at - 1;
            let far = self.rng.below(at as u64) as usize;
            let from = if self.rng.per_10k(5_000) { vec![near, far] } else { vec![far] };
            for from in BTreeSet::from_iter(from) {
                changes.push(self.insert(from, at));
            }
        }
        changes
    }

    fn change(&mut self) -> EdgeChange<usize> {
        let count = self.order.len() as u64;
        let a = self.rng.below(count) as usize;
        let b = self.rng.below(count) as usize;
        match self.rng.below(20) {
            // Against the order, or to itself: it may close a cycle.
            0 | 1 => EdgeChange::Insert(self.edge(a.max(b), a.min(b))),
            // It may not be there.
            2 => self.remove(self.order[a.min(b)], self.order[a.max(b)]),
            // It is there already.
            3 if !self.likely.is_empty() => {
                let (from, to) = self.any_likely();
                EdgeChange::Insert(Edge { from, to })
            }
            4..=10 if !self.likely.is_empty() => {
                let (from, to) = self.any_likely();
                self.remove(from, to)
            }
            _ if a == b => EdgeChange::Insert(self.edge(a, a)),
            _ => self.insert(a.min(b), a.max(b)),
        }
    }

    fn any_likely(&mut self) -> (usize, usize) {
        let at = self.rng.below(self.likely.len() as u64) as usize;
        *self.likely.iter().nth(at).expect("below the number of them")
    }

    fn edge(&self, from: usize, to: usize) -> Edge<usize> {
        Edge { from: self.order[from], to: self.order[to] }
    }

    fn insert(&mut self, from: usize, to: usize) -> EdgeChange<usize> {
        let edge = self.edge(from, to);
        self.likely.insert((edge.from, edge.to));
        EdgeChange::Insert(edge)
    }

    fn remove(&mut self, from: usize, to: usize) -> EdgeChange<usize> {
        self.likely.remove(&(from, to));
        EdgeChange::Remove(Edge { from, to })
    }
}
