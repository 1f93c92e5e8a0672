//! The flow of counts in one view: the totals that each increment is added to, and edge changes that move earlier counts, in
//! bounded batches.
//!
//! A change of the edge (u, v) concerns the *pairs* (a, d) of an ancestor a of u (or u) and a descendant d of v (or v) where a does not
//! reach d without the edge. Inserting it, a's direct count is added to d's total, for each such pair; removing it, taken off again.
//! Pairs have an order, and all up to a cursor are done. An increment of a meanwhile is added to d if the pair is done (insert)
//! or is not done (remove). When the cursor passes the pair later, it takes the direct count as it is then, this increment
//! included.
//!
//! Changes are worked off one after the other, so at most two graphs, one change apart, are in use at a time.

use super::dag::{Dag, Edge, EdgeChange, Vertex, Way};
use super::walk::{Found, Probe, Reach, Scratch};
use crate::limits::EDGE_CHANGES_QUEUED_MAX;
use crate::teeth::{Bug, bites};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The direct count of `from` is to be moved into, or out of, the total of `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Pair {
    pub from: Vertex,
    pub to: Vertex,
}

/// The moves that a step found. Empty and not settled: the search used up the budget; continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The change that this is a part of. Inserting, direct counts are added; removing, taken off.
    pub change: EdgeChange,
    /// Ascending, each once in all batches of the change.
    pub pairs: Vec<Pair>,
    /// The change is done: its edge is in the graph now, or is no more.
    pub settled: bool,
}

/// The progress of a view; persisted with the totals that belong to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The number of settled changes: the index of the graph that totals are of.
    pub settled: u64,
    /// All pairs of the next change up to this one are done.
    pub done: Option<Pair>,
}

/// Why a flow takes no change, or cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// Push this one again when some are settled.
    #[error("{EDGE_CHANGES_QUEUED_MAX} changes of the graph wait: no more are taken")]
    QueueFull,
    #[error("change {0} of the graph is under way and not among those that are known")]
    ChangeMissing(u64),
}

/// The flow of one view.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// After `settled` changes, without the edge of the change that is under way.
    dag: Dag,
    progress: Progress,
    moving: Option<Moving>,
    queue: VecDeque<EdgeChange>,
}

/// A change that is under way.
#[derive(Clone, Debug)]
struct Moving {
    change: EdgeChange,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    Gathering(Gathering),
    Pairing(Pairing),
}

/// Finds u and its ancestors, v and its descendants, and those descendants that u reaches without the edge.
#[derive(Clone, Debug)]
struct Gathering {
    above: Reach,
    below: Reach,
    /// The vertices that u reaches without the edge.
    beside: Reach,
    /// The vertices that reach v or a descendant of it without the edge; begun when the descendants are known.
    against: Option<Reach>,
}

/// Goes through the pairs.
#[derive(Clone, Debug)]
struct Pairing {
    /// u and its ancestors, ascending.
    above: Vec<Vertex>,
    /// The vertices that v reaches (v included) and u does not reach without the edge, ascending.
    below: Vec<Vertex>,
    probe: Probe,
    /// Vertices that reach any of `below` without the edge, and maybe more. A vertex that is not in it when it is complete need
    /// not be probed.
    against: Reach,
    /// The pair that comes next: positions in `above` and `below`.
    next: (usize, usize),
    /// Whether the probe of this `above` has been started.
    is_probing: bool,
}

impl Flow {
    /// Resumes from persisted progress: the edges after `progress.settled` changes, and the known accepted changes behind those;
    /// further changes may be pushed later. Errors: a cursor without its change, or more changes than the limit.
    pub fn load(
        dag: Dag,
        progress: Progress,
        changes: impl IntoIterator<Item = EdgeChange>,
    ) -> Result<Flow, FlowError> {
        let mut flow = Flow { dag, progress, moving: None, queue: VecDeque::new() };
        changes.into_iter().try_for_each(|change| flow.push(change))?;
        let is_whole = progress.done.is_none() || flow.moving.is_some();
        if is_whole { Ok(flow) } else { Err(FlowError::ChangeMissing(progress.settled)) }
    }

    /// The next accepted change. A change without effect (a duplicate, an edge that is not there) settles without pairs; whether
    /// an edge closes a cycle was decided when it was accepted.
    pub fn push(&mut self, change: EdgeChange) -> Result<(), FlowError> {
        if self.queue.len() >= EDGE_CHANGES_QUEUED_MAX {
            return Err(FlowError::QueueFull);
        }
        self.queue.push_back(change);
        self.begin();
        Ok(())
    }

    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Changes that are not settled.
    pub fn unsettled(&self) -> usize {
        self.queue.len() + usize::from(self.moving.is_some())
    }

    /// The edges after `progress().settled` changes, ascending: the argument of [`Flow::load`].
    pub fn settled_edges(&self) -> impl Iterator<Item = Edge> + '_ {
        let removed = self.moving.as_ref().and_then(|moving| match moving.change {
            EdgeChange::Remove(edge) => Some(edge).filter(|_| moving.is_real()),
            EdgeChange::Insert(_) => None,
        });
        let mut removed = removed.into_iter().peekable();
        let mut edges = self.dag.edges().peekable();
        std::iter::from_fn(move || match (edges.peek(), removed.peek()) {
            (Some(edge), Some(other)) if other < edge => removed.next(),
            (None, _) => removed.next(),
            _ => edges.next(),
        })
    }

    /// The edges after `progress().settled` changes, without that of the change under way.
    pub fn dag(&self) -> &Dag {
        &self.dag
    }

    /// All counters, without this one, that have its direct count in their totals, each once: an increment of it is added to
    /// each.
    pub fn descendants<'s>(&self, of: Vertex, scratch: &'s mut Scratch) -> &'s [Vertex] {
        scratch.gather(&self.dag, Way::Down, of);
        let Some(moving) = self.moving.as_ref().filter(|moving| moving.is_real()) else { return &scratch.found };
        let Edge { from, to } = *moving.change.edge();
        let flows = of == from || scratch.seen.has(from);
        if !flows || !self.any_flows(moving.change, of) || bites(Bug::CountAmidMoveLost) {
            return &scratch.found;
        }
        let without = scratch.found.len();
        if scratch.seen.set(to) {
            scratch.found.push(to);
            scratch.spread(&self.dag, Way::Down, to);
        }
        let mut kept = without;
        for at in without..scratch.found.len() {
            let vertex = scratch.found[at];
            if self.flows(moving.change, Pair { from: of, to: vertex }) {
                scratch.found.swap(kept, at);
                kept += 1;
            }
        }
        scratch.keep(kept);
        &scratch.found
    }

    /// Whether a pair of the change that is under way flows at present.
    fn flows(&self, change: EdgeChange, pair: Pair) -> bool {
        let is_done = self.progress.done.is_some_and(|done| pair <= done);
        match change {
            EdgeChange::Insert(_) => is_done,
            EdgeChange::Remove(_) => !is_done,
        }
    }

    /// Whether any pair of this ancestor may flow at present.
    fn any_flows(&self, change: EdgeChange, of: Vertex) -> bool {
        let reached = self.progress.done.map(|done| done.from);
        match change {
            EdgeChange::Insert(_) => reached.is_some_and(|reached| of <= reached),
            EdgeChange::Remove(_) => reached.is_none_or(|reached| of >= reached),
        }
    }

    /// Continues the work: looks at no more than `budget` edges and pairs, at least one. `None` when no work is left. Carry out
    /// the returned batch before the next step and before the next increment.
    pub fn step(&mut self, budget: usize) -> Option<Batch> {
        self.step_within(&mut budget.max(1))
    }

    /// The same; leaves the unused part in the budget.
    pub fn step_within(&mut self, budget: &mut usize) -> Option<Batch> {
        let moving = self.moving.as_mut()?;
        let change = moving.change;
        let mut pairs = Vec::new();
        let settled = moving.run(&self.dag, self.progress.done, budget, &mut pairs);
        if let Some(&last) = pairs.last() {
            self.progress.done = Some(last);
        }
        if settled {
            self.settle(change);
        }
        Some(Batch { change, pairs, settled })
    }

    fn settle(&mut self, change: EdgeChange) {
        if let EdgeChange::Insert(edge) = change {
            self.dag.insert_checked(edge);
        }
        self.moving = None;
        self.progress = Progress { settled: self.progress.settled + 1, done: None };
        self.begin();
    }

    fn begin(&mut self) {
        if self.moving.is_some() {
            return;
        }
        let Some(change) = self.queue.pop_front() else { return };
        let is_real = match change {
            EdgeChange::Insert(edge) => {
                debug_assert!(self.dag.path(edge.to, edge.from).is_none(), "an accepted edge closes a cycle");
                !self.dag.contains(edge)
            }
            EdgeChange::Remove(edge) => self.dag.remove(edge).is_ok(),
        };
        self.moving = Some(Moving::new(change, is_real));
    }

    /// Bytes allocated for the change that is under way.
    pub fn moving_bytes(&self) -> usize {
        self.moving.as_ref().map_or(0, Moving::heap_bytes)
    }

    /// Panics when a cursor or a queue belongs to nothing, or the graph is none. Walks everything.
    pub fn check_invariants(&self) {
        self.dag.check_invariants();
        assert!(self.moving.is_some() || self.queue.is_empty(), "what waits is begun");
        assert!(self.moving.is_some() || self.progress.done.is_none(), "a cursor belongs to a change");
    }
}

impl Moving {
    /// A change that changes nothing has no pairs.
    fn new(change: EdgeChange, is_real: bool) -> Moving {
        let Edge { from, to } = *change.edge();
        let stage = if is_real {
            Stage::Gathering(Gathering {
                above: Reach::new(Way::Up, [from]),
                below: Reach::new(Way::Down, [to]),
                beside: Reach::new(Way::Down, [from]),
                against: None,
            })
        } else {
            Stage::Pairing(Pairing::new(Vec::new(), Found::default(), Reach::new(Way::Up, []), from, None))
        };
        Moving { change, stage }
    }

    fn is_real(&self) -> bool {
        match &self.stage {
            Stage::Gathering(_) => true,
            Stage::Pairing(pairing) => !pairing.above.is_empty(),
        }
    }

    /// Works on within the budget; whether the change is done.
    fn run(&mut self, dag: &Dag, done: Option<Pair>, budget: &mut usize, pairs: &mut Vec<Pair>) -> bool {
        if let Stage::Gathering(gathering) = &mut self.stage {
            if !gathering.run(dag, self.change.edge().from, budget) {
                return false;
            }
            let Gathering { above, below, beside, against } = gathering;
            let ignores_paths = match self.change {
                EdgeChange::Insert(_) => bites(Bug::DiamondCountedTwice),
                EdgeChange::Remove(_) => bites(Bug::RemovedThoughReached),
            };
            let below = std::mem::take(&mut below.seen);
            let below = if ignores_paths { below } else { below.without(&beside.seen) };
            let above = above.seen.ascending();
            let against = against.take().expect("it was begun");
            self.stage = Stage::Pairing(Pairing::new(above, below, against, self.change.edge().from, done));
        }
        let Stage::Pairing(pairing) = &mut self.stage else { return false };
        pairing.run(dag, budget, pairs)
    }

    fn heap_bytes(&self) -> usize {
        let of_reach = |reach: &Reach| reach.seen.heap_bytes() + 4 * reach.found.capacity();
        match &self.stage {
            Stage::Gathering(Gathering { above, below, beside, against }) => {
                of_reach(above) + of_reach(below) + of_reach(beside) + against.as_ref().map_or(0, of_reach)
            }
            Stage::Pairing(pairing) => {
                let of_lists = 4 * (pairing.above.capacity() + pairing.below.capacity());
                of_lists + pairing.probe.heap_bytes() + of_reach(&pairing.against)
            }
        }
    }
}

/// Edges that are looked at from one end before the other end has its turn; never more than half of the remaining budget.
const PORTION: usize = 64;

/// A portion of a search; whether it is over.
fn portion(budget: &mut usize, search: impl FnOnce(&mut usize) -> bool) -> bool {
    let given = PORTION.min(budget.div_ceil(2));
    let mut left = given;
    let is_over = search(&mut left);
    *budget -= given - left;
    is_over
}

impl Gathering {
    /// Whether the search is complete. The vertices that u reaches among v and its descendants are sought from both ends in turn,
    /// as either may have very many neighbours. The result is known when u has been followed to the ends, or when no walk against
    /// the edges comes from u.
    fn run(&mut self, dag: &Dag, from: Vertex, budget: &mut usize) -> bool {
        let Gathering { above, below, beside, against } = self;
        if !(above.run(dag, budget) && below.run(dag, budget)) {
            return false;
        }
        let against = against.get_or_insert_with(|| Reach::new(Way::Up, below.found.iter().copied()));
        loop {
            if portion(budget, |left| beside.run(dag, left)) {
                return true;
            }
            if portion(budget, |left| against.run(dag, left)) && !against.seen.has(from) {
                // The vertices found in `beside` are none of those, as far as the search went.
                return true;
            }
            if *budget == 0 {
                return false;
            }
        }
    }
}

impl Pairing {
    /// Begins behind the last pair that is done.
    fn new(above: Vec<Vertex>, wanted: Found, against: Reach, from: Vertex, done: Option<Pair>) -> Pairing {
        let below = wanted.ascending();
        let next = done.map_or((0, 0), |done| {
            let at = above.partition_point(|&vertex| vertex < done.from);
            (at, below.partition_point(|&vertex| vertex <= done.to))
        });
        // The edge's beginning reaches nothing of `below` without the edge: such vertices were left out.
        let probe = Probe::new(wanted, from);
        Pairing { above, below, probe, against, next, is_probing: false }
    }

    /// Whether it is known which vertices of `below` a vertex reaches. Searches from both ends in turn, as in [`Gathering::run`].
    fn search(&mut self, dag: &Dag, from: Vertex, budget: &mut usize) -> bool {
        loop {
            if portion(budget, |left| self.probe.run(dag, left)) {
                return true;
            }
            if portion(budget, |left| self.against.run(dag, left)) && !self.against.seen.has(from) {
                self.probe.reaches_nothing(from);
                return true;
            }
            if *budget == 0 {
                return false;
            }
        }
    }

    fn run(&mut self, dag: &Dag, budget: &mut usize, pairs: &mut Vec<Pair>) -> bool {
        if self.below.is_empty() {
            return true;
        }
        while let Some(&from) = self.above.get(self.next.0) {
            if !self.is_probing {
                self.probe.start(from);
                self.is_probing = true;
            }
            if !self.search(dag, from, budget) {
                return false;
            }
            while let Some(&to) = self.below.get(self.next.1) {
                if *budget == 0 {
                    return false;
                }
                *budget -= 1;
                self.next.1 += 1;
                if !self.probe.reaches(to) {
                    pairs.push(Pair { from, to });
                }
            }
            self.next = (self.next.0 + 1, 0);
            self.is_probing = false;
        }
        true
    }
}
