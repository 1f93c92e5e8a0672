//! The edges in both directions, and the checks that keep them free of cycles.

use super::walk::{Marks, Scratch};
use crate::limits::EDGES_MAX;
use crate::teeth::{Bug, bites};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

/// A counter by its dense number in the table of the process that holds the graph.
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
    #[error("an edge cannot lead from a counter to itself")]
    ToItself,
    #[error("the edge exists already")]
    Duplicate,
    #[error("the edge does not exist")]
    Absent,
    /// A path from the new edge's end to its beginning, both included: the edge would close it.
    #[error("the edge would close a cycle over {} counters", path.len())]
    Cycle { path: Vec<N> },
    #[error("{EDGES_MAX} edges: no more allowed")]
    Full,
}

/// Edges that are no graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoGraph {
    /// Counted from 0.
    #[error("edge {0} is of no counter, to itself, or out of order")]
    Edge(usize),
    #[error("the edges close a cycle")]
    Cycle,
}

/// A directed acyclic graph, some 40 bytes an edge.
#[derive(Clone, Debug, Default)]
pub struct Dag {
    /// By vertex: its only child, so that a walk down a tree, which every increment is, looks up nothing.
    only: Vec<u32>,
    /// (from, to).
    forward: BTreeSet<(Vertex, Vertex)>,
    /// (to, from).
    backward: BTreeSet<(Vertex, Vertex)>,
}

/// The queries that a graph answers: a [`Dag`], or one with changes that are tried.
pub(super) trait Edges {
    /// The number of edges.
    fn count(&self) -> usize;
    fn has(&self, edge: Edge) -> bool;
    fn next_to(&self, way: Way, of: Vertex) -> impl Iterator<Item = Vertex> + '_;
}

/// A direction in which a counter has neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Relation {
    /// Counters with counts that flow straight to this counter.
    Parents,
    /// Counters to which this counter's counts flow straight.
    Children,
}

/// The direction of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Down,
    Up,
}

/// No child.
const NONE: u32 = u32::MAX;
/// Several.
const MANY: u32 = u32::MAX - 1;

impl PartialEq for Dag {
    fn eq(&self, other: &Dag) -> bool {
        self.forward == other.forward
    }
}

impl Eq for Dag {}

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

    /// The edges behind one of them, or all, ascending.
    pub fn edges_behind(&self, behind: Option<Edge>) -> impl Iterator<Item = Edge> + '_ {
        let from = behind.map_or(Bound::Unbounded, |edge| Bound::Excluded((edge.from, edge.to)));
        self.forward.range((from, Bound::Unbounded)).map(|&(from, to)| Edge { from, to })
    }

    /// A graph of these edges (from, to), each once and ascending, between vertices below `vertices`. It is made at once, in a
    /// fraction of the time that inserting them one by one takes.
    pub fn from_ascending(vertices: u32, edges: Vec<(Vertex, Vertex)>) -> Result<Dag, NoGraph> {
        let known = |&(from, to): &(Vertex, Vertex)| from.0 < vertices && to.0 < vertices && from != to;
        let is_good = |at: usize| known(&edges[at]) && (at == 0 || edges[at - 1] < edges[at]);
        if let Some(bad) = (0..edges.len()).find(|&at| !is_good(at)) {
            return Err(NoGraph::Edge(bad));
        }
        if !bites(Bug::CycleTaken) && !is_free_of_cycles(vertices, &edges) {
            return Err(NoGraph::Cycle);
        }
        let mut only = Vec::with_capacity(edges.last().map_or(0, |&(from, _)| from.0 as usize + 1));
        edges.iter().for_each(|&(from, to)| gain(&mut only, from, to));
        // Both are in their order already.
        let backward = turned_round(vertices, &edges).into_iter().collect();
        Ok(Dag { only, forward: edges.into_iter().collect(), backward })
    }

    /// Where counts of a vertex flow next, ascending.
    pub fn children(&self, of: Vertex) -> impl Iterator<Item = Vertex> + '_ {
        self.neighbours(Way::Down, of, None)
    }

    /// From where counts flow to a vertex next, ascending.
    pub fn parents(&self, of: Vertex) -> impl Iterator<Item = Vertex> + '_ {
        self.neighbours(Way::Up, of, None)
    }

    /// Either, ascending, behind one of them or all.
    pub fn relatives(&self, of: Vertex, which: Relation, behind: Option<Vertex>) -> impl Iterator<Item = Vertex> + '_ {
        let way = match which {
            Relation::Parents => Way::Up,
            Relation::Children => Way::Down,
        };
        self.neighbours(way, of, behind)
    }

    /// Neighbours behind one of them, or all.
    pub(super) fn neighbours(&self, way: Way, of: Vertex, behind: Option<Vertex>) -> impl Iterator<Item = Vertex> + '_ {
        let (edges, only) = match way {
            Way::Down => (&self.forward, self.only.get(of.0 as usize).copied().unwrap_or(NONE)),
            Way::Up => (&self.backward, MANY),
        };
        let first = behind.map_or(Some(0), |behind| behind.0.checked_add(1));
        let range =
            first.filter(|_| only == MANY).map(|first| edges.range((of, Vertex(first))..=(of, Vertex(u32::MAX))));
        let is_one = only < MANY && behind.is_none_or(|behind| behind.0 < only);
        let one = is_one.then_some(Vertex(only));
        one.into_iter().chain(range.into_iter().flatten().map(|&(_, neighbour)| neighbour))
    }

    /// Adds an edge. Errors: to itself, a duplicate, an edge that would close a cycle (with the path), too many edges.
    pub fn insert(&mut self, edge: Edge) -> Result<(), EdgeRefused> {
        check_insert(self, edge)?;
        self.insert_checked(edge);
        Ok(())
    }

    /// Adds an edge that is known to close no cycle.
    pub fn insert_checked(&mut self, edge: Edge) {
        if self.forward.insert((edge.from, edge.to)) {
            gain(&mut self.only, edge.from, edge.to);
        }
        self.backward.insert((edge.to, edge.from));
    }

    /// Takes an edge away. Error: there is none.
    pub fn remove(&mut self, edge: Edge) -> Result<(), EdgeRefused> {
        if !self.forward.remove(&(edge.from, edge.to)) {
            return Err(EdgeRefused::Absent);
        }
        self.backward.remove(&(edge.to, edge.from));
        let mut left = self.forward.range((edge.from, Vertex(0))..=(edge.from, Vertex(u32::MAX)));
        self.only[edge.from.0 as usize] = match (left.next(), left.next()) {
            (None, _) => NONE,
            (Some(&(_, one)), None) => one.0,
            _ => MANY,
        };
        Ok(())
    }

    /// A path from one vertex to another, both included. Searches from both ends in turn, so it costs about twice the size of the
    /// smaller side. To check whether a leaf closes a cycle is cheap, however much flows to the vertex that it is attached to.
    pub fn path(&self, from: Vertex, to: Vertex) -> Option<Vec<Vertex>> {
        path(self, from, to)
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
        let mut only = Vec::new();
        self.forward.iter().for_each(|&(from, to)| gain(&mut only, from, to));
        only.resize(self.only.len().max(only.len()), NONE);
        assert_eq!(self.only, only, "only children");
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

/// By vertex: where its part of a shared list begins; `counts` has the length of each part. The last is the end of the list.
fn starts_of(counts: &[u32]) -> Vec<u32> {
    let mut starts = Vec::with_capacity(counts.len() + 1);
    starts.push(0);
    starts.extend(counts.iter().scan(0, |end, count| {
        *end += count;
        Some(*end)
    }));
    starts
}

fn counts_of(vertices: u32, of: impl Iterator<Item = Vertex>) -> Vec<u32> {
    let mut counts = vec![0; vertices as usize];
    of.for_each(|vertex| counts[vertex.0 as usize] += 1);
    counts
}

/// Ascending edges as (to, from), ascending.
fn turned_round(vertices: u32, edges: &[(Vertex, Vertex)]) -> Vec<(Vertex, Vertex)> {
    let mut next = starts_of(&counts_of(vertices, edges.iter().map(|&(_, to)| to)));
    let mut turned = vec![(Vertex(0), Vertex(0)); edges.len()];
    for &(from, to) in edges {
        let at = &mut next[to.0 as usize];
        turned[*at as usize] = (to, from);
        *at += 1;
    }
    turned
}

/// Whether every vertex is taken away, if vertices without open parents are taken away one after the other. Edges ascend.
fn is_free_of_cycles(vertices: u32, edges: &[(Vertex, Vertex)]) -> bool {
    let starts = starts_of(&counts_of(vertices, edges.iter().map(|&(from, _)| from)));
    let mut open = counts_of(vertices, edges.iter().map(|&(_, to)| to));
    let mut done = 0;
    let mut free = Vec::new();
    for first in 0..vertices {
        // Vertices that become free later are taken from there.
        if open[first as usize] == 0 {
            free.push(first);
        }
        while let Some(vertex) = free.pop() {
            done += 1;
            open[vertex as usize] = NONE;
            let own = starts[vertex as usize] as usize..starts[vertex as usize + 1] as usize;
            for &(_, child) in &edges[own] {
                let left = &mut open[child.0 as usize];
                *left -= 1;
                if *left == 0 {
                    free.push(child.0);
                }
            }
        }
    }
    done == vertices
}

/// A vertex has a child more.
fn gain(only: &mut Vec<u32>, from: Vertex, to: Vertex) {
    let at = from.0 as usize;
    if at >= only.len() {
        only.resize(at + 1, NONE);
    }
    only[at] = if only[at] == NONE { to.0 } else { MANY };
}

impl Edges for Dag {
    fn count(&self) -> usize {
        self.len()
    }

    fn has(&self, edge: Edge) -> bool {
        self.contains(edge)
    }

    fn next_to(&self, way: Way, of: Vertex) -> impl Iterator<Item = Vertex> + '_ {
        self.neighbours(way, of, None)
    }
}

/// Whether an edge may be added to the graph.
pub(super) fn check_insert(graph: &impl Edges, edge: Edge) -> Result<(), EdgeRefused> {
    if edge.from == edge.to {
        return Err(EdgeRefused::ToItself);
    }
    if graph.has(edge) {
        return Err(EdgeRefused::Duplicate);
    }
    if graph.count() >= EDGES_MAX {
        return Err(EdgeRefused::Full);
    }
    let closed = path(graph, edge.to, edge.from).filter(|_| !bites(Bug::CycleTaken));
    closed.map_or(Ok(()), |path| Err(EdgeRefused::Cycle { path }))
}

fn path(graph: &impl Edges, from: Vertex, to: Vertex) -> Option<Vec<Vertex>> {
    if from == to {
        return Some(vec![from]);
    }
    // Most new edges touch a vertex without edges: then there is nothing to search.
    if graph.next_to(Way::Down, from).next().is_none() || graph.next_to(Way::Up, to).next().is_none() {
        return None;
    }
    let mut down = Side::new(Way::Down, from);
    let mut up = Side::new(Way::Up, to);
    loop {
        let met = match down.expand(graph, &up)? {
            Some(met) => met,
            None => match up.expand(graph, &down)? {
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
    fn expand(&mut self, graph: &impl Edges, other: &Side) -> Option<Option<Vertex>> {
        let at = self.frontier.pop_front()?;
        for next in graph.next_to(self.way, at) {
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
