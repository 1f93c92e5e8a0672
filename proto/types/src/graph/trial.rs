//! Changes that are tried on a graph, one after the other, without touching it: all of them are carried out or none.

use super::dag::{Dag, Edge, EdgeChange, EdgeRefused, Edges, Vertex, Way, check_insert};
use std::collections::BTreeSet;

/// A graph as it would be after the changes that were accepted so far.
#[derive(Clone, Debug)]
pub struct Trial<'d> {
    dag: &'d Dag,
    /// (from, to), not in the graph.
    added: BTreeSet<(Vertex, Vertex)>,
    /// The same, (to, from).
    added_backward: BTreeSet<(Vertex, Vertex)>,
    /// (from, to), in the graph.
    removed: BTreeSet<(Vertex, Vertex)>,
}

impl<'d> Trial<'d> {
    pub fn new(dag: &'d Dag) -> Trial<'d> {
        Trial { dag, added: BTreeSet::new(), added_backward: BTreeSet::new(), removed: BTreeSet::new() }
    }

    /// Tries one change more. A refused one is as if it had not been tried.
    pub fn change(&mut self, change: EdgeChange) -> Result<(), EdgeRefused> {
        match change {
            EdgeChange::Insert(edge) => self.insert(edge),
            EdgeChange::Remove(edge) => self.remove(edge),
        }
    }

    fn insert(&mut self, edge: Edge) -> Result<(), EdgeRefused> {
        check_insert(self, edge)?;
        if !self.removed.remove(&(edge.from, edge.to)) {
            self.added.insert((edge.from, edge.to));
            self.added_backward.insert((edge.to, edge.from));
        }
        Ok(())
    }

    fn remove(&mut self, edge: Edge) -> Result<(), EdgeRefused> {
        if !self.has(edge) {
            return Err(EdgeRefused::Absent);
        }
        if self.added.remove(&(edge.from, edge.to)) {
            self.added_backward.remove(&(edge.to, edge.from));
        } else {
            self.removed.insert((edge.from, edge.to));
        }
        Ok(())
    }
}

impl Edges for Trial<'_> {
    fn count(&self) -> usize {
        self.dag.len() + self.added.len() - self.removed.len()
    }

    fn has(&self, edge: Edge) -> bool {
        let key = (edge.from, edge.to);
        self.added.contains(&key) || (self.dag.contains(edge) && !self.removed.contains(&key))
    }

    fn next_to(&self, way: Way, of: Vertex) -> impl Iterator<Item = Vertex> + '_ {
        let added = match way {
            Way::Down => &self.added,
            Way::Up => &self.added_backward,
        };
        let added = added.range((of, Vertex(0))..=(of, Vertex(u32::MAX))).map(|&(_, neighbour)| neighbour);
        let is_there = move |&neighbour: &Vertex| {
            !self.removed.contains(&if way == Way::Down { (of, neighbour) } else { (neighbour, of) })
        };
        self.dag.neighbours(way, of, None).filter(is_there).chain(added)
    }
}
