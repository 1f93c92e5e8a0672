//! Walks over a graph: whole ones for increments, and ones in bounded portions for changes that move much.

use super::dag::{Dag, Vertex, Way};

/// A set of vertices, one bit each.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks(Vec<u64>);

impl Marks {
    pub fn has(&self, vertex: Vertex) -> bool {
        self.0.get(vertex.0 as usize / 64).is_some_and(|word| word >> (vertex.0 % 64) & 1 == 1)
    }

    /// Adds a vertex; returns whether it is new.
    pub fn set(&mut self, vertex: Vertex) -> bool {
        let at = vertex.0 as usize / 64;
        if at >= self.0.len() {
            self.0.resize(at + 1, 0);
        }
        let is_new = !self.has(vertex);
        self.0[at] |= 1 << (vertex.0 % 64);
        is_new
    }

    pub fn clear(&mut self, vertex: Vertex) {
        if let Some(word) = self.0.get_mut(vertex.0 as usize / 64) {
            *word &= !(1 << (vertex.0 % 64));
        }
    }

    /// All of them, ascending.
    fn ascending(&self) -> Vec<Vertex> {
        let count = self.0.iter().map(|word| word.count_ones() as usize).sum();
        let mut all = Vec::with_capacity(count);
        for (at, &word) in (0..).zip(&self.0) {
            let mut left = word;
            while left != 0 {
                all.push(Vertex(at * 64 + left.trailing_zeros()));
                left &= left - 1;
            }
        }
        all
    }

    pub fn heap_bytes(&self) -> usize {
        8 * self.0.capacity()
    }
}

/// A set of vertices that is small as a rule: a change of an edge concerns few of many. Bits when it is not.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// Ascending.
    Few(Vec<Vertex>),
    Many(Marks),
}

/// The number of vertices that are kept as a list.
const FEW_MAX: usize = 128;

impl Default for Found {
    fn default() -> Found {
        Found::Few(Vec::new())
    }
}

impl Found {
    pub fn has(&self, vertex: Vertex) -> bool {
        match self {
            Found::Few(all) => all.binary_search(&vertex).is_ok(),
            Found::Many(marks) => marks.has(vertex),
        }
    }

    /// Adds a vertex; returns whether it is new.
    pub fn set(&mut self, vertex: Vertex) -> bool {
        match self {
            Found::Few(all) => {
                let Err(at) = all.binary_search(&vertex) else { return false };
                if all.len() < FEW_MAX {
                    all.insert(at, vertex);
                    return true;
                }
                let mut marks = Marks::default();
                all.iter().for_each(|&vertex| _ = marks.set(vertex));
                marks.set(vertex);
                *self = Found::Many(marks);
                true
            }
            Found::Many(marks) => marks.set(vertex),
        }
    }

    pub fn clear(&mut self, vertex: Vertex) {
        match self {
            Found::Few(all) => {
                if let Ok(at) = all.binary_search(&vertex) {
                    all.remove(at);
                }
            }
            Found::Many(marks) => marks.clear(vertex),
        }
    }

    /// The vertices that are not in another set.
    pub fn without(mut self, other: &Found) -> Found {
        match (&mut self, other) {
            (Found::Few(all), _) => all.retain(|&vertex| !other.has(vertex)),
            (Found::Many(marks), Found::Few(few)) => few.iter().for_each(|&vertex| marks.clear(vertex)),
            (Found::Many(marks), Found::Many(others)) => {
                marks.0.iter_mut().zip(&others.0).for_each(|(word, other)| *word &= !other);
            }
        }
        self
    }

    /// All of them, ascending.
    pub fn ascending(&self) -> Vec<Vertex> {
        match self {
            Found::Few(all) => all.clone(),
            Found::Many(marks) => marks.ascending(),
        }
    }

    pub fn heap_bytes(&self) -> usize {
        match self {
            Found::Few(all) => size_of::<Vertex>() * all.capacity(),
            Found::Many(marks) => marks.heap_bytes(),
        }
    }
}

/// Memory that walks need, kept from one to the next: a bit for each vertex, and the vertices found.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    pub(super) seen: Marks,
    pub(super) found: Vec<Vertex>,
}

impl Scratch {
    pub(super) fn gather(&mut self, dag: &Dag, way: Way, start: Vertex) -> &[Vertex] {
        self.keep(0);
        self.seen.set(start);
        self.spread(dag, way, start);
        self.seen.clear(start);
        &self.found
    }

    /// Finds the vertices that can be reached from a vertex and were not found yet.
    pub(super) fn spread(&mut self, dag: &Dag, way: Way, start: Vertex) {
        let mut at = self.found.len();
        let mut next = Some(start);
        while let Some(vertex) = next {
            for neighbour in dag.neighbours(way, vertex, None) {
                if self.seen.set(neighbour) {
                    self.found.push(neighbour);
                }
            }
            next = self.found.get(at).copied();
            at += 1;
        }
    }

    /// Forgets all found vertices but the first ones.
    pub(super) fn keep(&mut self, first: usize) {
        for vertex in self.found.drain(first..) {
            self.seen.clear(vertex);
        }
    }
}

/// All that can be reached from some vertices, themselves included, in portions.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    way: Way,
    pub seen: Found,
    pub found: Vec<Vertex>,
    /// The vertex of `found` with the neighbours that come next, and behind which of them.
    at: usize,
    behind: Option<Vertex>,
}

impl Reach {
    pub fn new(way: Way, starts: impl IntoIterator<Item = Vertex>) -> Reach {
        let mut seen = Found::default();
        let found = starts.into_iter().filter(|&start| seen.set(start)).collect();
        Reach { way, seen, found, at: 0, behind: None }
    }

    /// Goes on for as many neighbours as the budget has; whether all is found.
    pub fn run(&mut self, dag: &Dag, budget: &mut usize) -> bool {
        while let Some(&vertex) = self.found.get(self.at) {
            for neighbour in dag.neighbours(self.way, vertex, self.behind) {
                if *budget == 0 {
                    return false;
                }
                *budget -= 1;
                self.behind = Some(neighbour);
                if self.seen.set(neighbour) {
                    self.found.push(neighbour);
                }
            }
            self.at += 1;
            self.behind = None;
        }
        true
    }
}

/// Finds which wanted vertices are reached from one start after the other, in portions. Vertices that reach none of them are
/// remembered and not entered again, whatever the start.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    wanted: Found,
    /// Reach none of the wanted.
    dead: Found,
    seen: Found,
    /// The vertices marked in `seen`, to unmark them.
    found: Vec<Vertex>,
    stack: Vec<Frame>,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    vertex: Vertex,
    behind: Option<Vertex>,
    /// It is wanted, or reaches a wanted vertex.
    is_live: bool,
}

impl Probe {
    /// `dead` is known to reach none of the wanted.
    pub fn new(wanted: Found, dead: Vertex) -> Probe {
        let mut marks = Found::default();
        marks.set(dead);
        Probe { wanted, dead: marks, seen: Found::default(), found: Vec::new(), stack: Vec::new() }
    }

    pub fn start(&mut self, from: Vertex) {
        self.forget();
        if !self.dead.has(from) {
            self.stack.push(Frame { vertex: from, behind: None, is_live: false });
        }
    }

    fn forget(&mut self) {
        for vertex in self.found.drain(..) {
            self.seen.clear(vertex);
        }
        self.stack.clear();
    }

    /// It is known of the present start that it reaches none of the wanted, however far the search has come.
    pub fn reaches_nothing(&mut self, start: Vertex) {
        self.forget();
        self.dead.set(start);
    }

    /// Goes on for as many edges as the budget has; whether all is found.
    pub fn run(&mut self, dag: &Dag, budget: &mut usize) -> bool {
        while let Some(top) = self.stack.last_mut() {
            let Some(next) = dag.neighbours(Way::Down, top.vertex, top.behind).next() else {
                self.leave();
                continue;
            };
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            top.behind = Some(next);
            if self.dead.has(next) {
                continue;
            }
            if self.seen.has(next) {
                // It was left before and is not dead: there are no cycles.
                top.is_live = true;
                continue;
            }
            self.seen.set(next);
            self.found.push(next);
            self.stack.push(Frame { vertex: next, behind: None, is_live: self.wanted.has(next) });
        }
        true
    }

    fn leave(&mut self) {
        let Some(left) = self.stack.pop() else { return };
        if !left.is_live {
            self.dead.set(left.vertex);
        } else if let Some(above) = self.stack.last_mut() {
            above.is_live = true;
        }
    }

    /// Whether the present start reaches a wanted vertex.
    pub fn reaches(&self, wanted: Vertex) -> bool {
        self.seen.has(wanted)
    }

    pub fn heap_bytes(&self) -> usize {
        let marks = [&self.wanted, &self.dead, &self.seen];
        marks.into_iter().map(Found::heap_bytes).sum::<usize>()
            + self.found.capacity() * size_of::<Vertex>()
            + self.stack.capacity() * size_of::<Frame>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set_of(vertices: &BTreeSet<u32>) -> Found {
        let mut found = Found::default();
        assert!(vertices.iter().all(|&vertex| found.set(Vertex(vertex))));
        found
    }

    proptest! {
        /// Few vertices or many, and either set larger.
        #[test]
        fn equals_a_set(
            one in proptest::collection::btree_set(0u32..1_000, 0..300),
            other in proptest::collection::btree_set(0u32..1_000, 0..300),
        ) {
            let mut found = set_of(&one);
            let others = set_of(&other);
            prop_assert!((0..1_000).all(|vertex| found.has(Vertex(vertex)) == one.contains(&vertex)));
            prop_assert!(one.iter().all(|&vertex| !found.set(Vertex(vertex))), "it is there");
            let ascending = |set: &BTreeSet<u32>| set.iter().map(|&vertex| Vertex(vertex)).collect::<Vec<_>>();
            prop_assert_eq!(found.ascending(), ascending(&one));
            let left = one.difference(&other).copied().collect();
            prop_assert_eq!(found.clone().without(&others).ascending(), ascending(&left));
            other.iter().for_each(|&vertex| found.clear(Vertex(vertex)));
            prop_assert_eq!(found.ascending(), ascending(&left));
        }
    }
}
