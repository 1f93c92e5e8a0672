//! The edges, both directions, and what keeps them free of cycles.

use super::walk::{Marks, Scratch};
use crate::limits::EDGES_MAX;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A counter by its dense number in the table of whoever holds the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Vertex(pub u32);

/// Counts of `from` flow to `to`. Counters are named as the place needs: by [`Vertex`] inside, by name in commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Edge<N = Vertex> {
    pub from: N,
    pub to: N,
}

/// A change of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EdgeChange<N = Vertex> {
    Insert(Edge<N>),
    Remove(Edge<N>),
}

/// Why a change was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EdgeRefused<N = Vertex> {
    #[error("an edge from a counter to itself")]
    ToItself,
    #[error("the edge is there already")]
    Duplicate,
    #[error("no such edge")]
    Absent,
    /// A path from the new edge's end to its beginning, both included: the edge would close it.
    #[error("the edge would close a cycle over {} counters", path.len())]
    Cycle { path: Vec<N> },
    #[error("{EDGES_MAX} edges: no more allowed")]
    Full,
}

/// A directed acyclic graph, some 40 bytes an edge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dag {
    /// (from, to).
    forward: BTreeSet<(Vertex, Vertex)>,
    /// (to, from).
    backward: BTreeSet<(Vertex, Vertex)>,
}

/// Which way a walk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Down,
    Up,
}

impl<N> EdgeChange<N> {
    pub fn edge(&self) -> &Edge<N> {
        match self {
            EdgeChange::Insert(edge) | EdgeChange::Remove(edge) => edge,
        }
    }
}

impl Dag {
    /// The number of edges.
    pub fn len(&self) -> usize {
        self.forward.len()
    }

    pub fn is_empty(&self) -> bool {
        self.forward.is_empty()
    }

    pub fn contains(&self, edge: Edge) -> bool {
        self.forward.contains(&(edge.from, edge.to))
    }

    /// All edges, ascending.
    pub fn edges(&self) -> impl ExactSizeIterator<Item = Edge> + '_ {
        self.forward.iter().map(|&(from, to)| Edge { from, to })
    }

    /// Where counts of a vertex flow next, ascending.
    pub fn children(&self, of: Vertex) -> impl Iterator<Item = Vertex> + '_ {
        self.neighbours(Way::Down, of, None)
    }

    /// From where counts flow to a vertex next, ascending.
    pub fn parents(&self, of: Vertex) -> impl Iterator<Item = Vertex> + '_ {
        self.neighbours(Way::Up, of, None)
    }

    /// Neighbours behind one of them, or all.
    pub(super) fn neighbours(&self, way: Way, of: Vertex, behind: Option<Vertex>) -> impl Iterator<Item = Vertex> + '_ {
        let edges = match way {
            Way::Down => &self.forward,
            Way::Up => &self.backward,
        };
        let first = behind.map_or(Some(0), |behind| behind.0.checked_add(1));
        let range = first.map(|first| edges.range((of, Vertex(first))..=(of, Vertex(u32::MAX))));
        range.into_iter().flatten().map(|&(_, neighbour)| neighbour)
    }

    /// Adds an edge. Errors: to itself, a duplicate, one that would close a cycle (with the path), too many.
    pub fn insert(&mut self, edge: Edge) -> Result<(), EdgeRefused> {
        if edge.from == edge.to {
            return Err(EdgeRefused::ToItself);
        }
        if self.contains(edge) {
            return Err(EdgeRefused::Duplicate);
        }
        if self.len() >= EDGES_MAX {
            return Err(EdgeRefused::Full);
        }
        if let Some(path) = self.path(edge.to, edge.from) {
            return Err(EdgeRefused::Cycle { path });
        }
        self.insert_checked(edge);
        Ok(())
    }

    /// Adds an edge that is known to close no cycle.
    pub(super) fn insert_checked(&mut self, edge: Edge) {
        self.forward.insert((edge.from, edge.to));
        self.backward.insert((edge.to, edge.from));
    }

    /// Takes an edge away. Error: there is none.
    pub fn remove(&mut self, edge: Edge) -> Result<(), EdgeRefused> {
        if !self.forward.remove(&(edge.from, edge.to)) {
            return Err(EdgeRefused::Absent);
        }
        self.backward.remove(&(edge.to, edge.from));
        Ok(())
    }

    /// A path from one vertex to another, both included. Searches from both ends in turn, so it costs about twice what lies on the
    /// side with less: to ask whether a leaf closes a cycle is cheap, however much flows to where it is attached.
    pub fn path(&self, from: Vertex, to: Vertex) -> Option<Vec<Vertex>> {
        if from == to {
            return Some(vec![from]);
        }
        let (mut down, mut up) = (Side::new(Way::Down, from), Side::new(Way::Up, to));
        loop {
            let met = match down.expand(self, &up)? {
                Some(met) => met,
                None => match up.expand(self, &down)? {
                    Some(met) => met,
                    None => continue,
                },
            };
            let mut path = down.back(met);
            path.reverse();
            path.extend(up.back(met).into_iter().skip(1));
            return Some(path);
        }
    }

    /// All vertices that can be reached from one, without it, each once. A function of the graph; in no meaningful order.
    pub fn descendants<'s>(&self, of: Vertex, scratch: &'s mut Scratch) -> &'s [Vertex] {
        scratch.gather(self, Way::Down, of)
    }

    /// All vertices from which one can be reached, without it, each once.
    pub fn ancestors<'s>(&self, of: Vertex, scratch: &'s mut Scratch) -> &'s [Vertex] {
        scratch.gather(self, Way::Up, of)
    }

    /// Panics when the directions differ or there is a cycle. Walks everything.
    pub fn check_invariants(&self) {
        assert_eq!(self.forward.len(), self.backward.len(), "both directions");
        assert!(self.forward.iter().all(|&(from, to)| self.backward.contains(&(to, from))), "both directions");
        let mut open: BTreeMap<Vertex, usize> = BTreeMap::new();
        for &(from, to) in &self.forward {
            open.entry(from).or_default();
            *open.entry(to).or_default() += 1;
        }
        let mut free: Vec<Vertex> = open.iter().filter(|&(_, &count)| count == 0).map(|(&vertex, _)| vertex).collect();
        let mut done = Marks::default();
        while let Some(vertex) = free.pop() {
            done.set(vertex);
            for child in self.children(vertex) {
                let count = open.get_mut(&child).expect("a vertex of an edge");
                *count -= 1;
                if *count == 0 {
                    free.push(child);
                }
            }
        }
        assert!(open.keys().all(|&vertex| done.has(vertex)), "no cycle");
    }
}

/// One side of a search for a path.
struct Side {
    way: Way,
    frontier: VecDeque<Vertex>,
    /// By vertex that was seen: from where.
    came: BTreeMap<Vertex, Option<Vertex>>,
}

impl Side {
    fn new(way: Way, start: Vertex) -> Side {
        Side { way, frontier: VecDeque::from([start]), came: BTreeMap::from([(start, None)]) }
    }

    /// Looks at the neighbours of one vertex more. `None`: there is nothing more on this side; else the vertex where the sides meet.
    fn expand(&mut self, dag: &Dag, other: &Side) -> Option<Option<Vertex>> {
        let at = self.frontier.pop_front()?;
        for next in dag.neighbours(self.way, at, None) {
            if self.came.contains_key(&next) {
                continue;
            }
            self.came.insert(next, Some(at));
            if other.came.contains_key(&next) {
                return Some(Some(next));
            }
            self.frontier.push_back(next);
        }
        Some(None)
    }

    /// From a vertex back to the start of this side.
    fn back(&self, from: Vertex) -> Vec<Vertex> {
        std::iter::successors(Some(from), |at| self.came.get(at).copied().flatten()).collect()
    }
}
