//! How a view's flow follows the ledger's graph: change by change, or by comparing both graphs. A comparison is needed if changes
//! were too many or another replica's state was taken over.
//!
//! A comparison takes the graph that the view's flow will have when its queue is worked off. First it becomes a part of the
//! ledger's graph, by removals, and then all of it, by insertions, both in the order of edges. So it never has a cycle. Changes
//! of the ledger meanwhile are carried out as well, as far as the comparison has passed them.

use super::Hierarchy;
use std::collections::{BTreeMap, VecDeque};
use tidemark_ledger::ledger::{EdgesChanged, Graph};
use tidemark_types::graph::{Edge, EdgeChange, FlowError, Vertex};
use tidemark_types::limits::EDGE_CHANGES_QUEUED_MAX;

/// With this number of changes waiting, a comparison waits as well: the rest of the queue is for changes of the ledger meanwhile.
const COMPARED_QUEUED_MAX: usize = EDGE_CHANGES_QUEUED_MAX / 2;

/// The progress of taking over the ledger's graph.
#[derive(Clone, Debug, Default)]
pub(super) struct Following {
    stage: Stage,
    /// Changes of the ledger that were told.
    heard: u64,
    /// Edges with changes that wait in the flow: whether the last one inserts it, and the number of waiting changes.
    waiting: BTreeMap<(Vertex, Vertex), (bool, u32)>,
    /// The number of changes that were given to the flow.
    pushed: u64,
    /// The ledger's changes that those of the flow stand for.
    marks: VecDeque<Mark>,
    /// The last mark that was reached.
    reached: Mark,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// Each change is handed on.
    #[default]
    Abreast,
    /// Edges that are only in the view are removed. Edges up to this one are done.
    Removing(Option<Edge>),
    /// Edges that are only in the ledger are inserted. Edges up to this one are done.
    Inserting(Option<Edge>),
}

/// When the flow has settled this number of changes, its graph is the ledger's after `index`.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    settled: u64,
    index: u64,
    /// Since the mark before, each is one of the ledger's.
    is_each: bool,
}

impl Following {
    pub fn is_abreast(&self) -> bool {
        matches!(self.stage, Stage::Abreast)
    }

    /// Whether the changes that a comparison has found are carried out.
    pub fn is_catching_up(&self) -> bool {
        self.marks.front().is_some_and(|next| !next.is_each)
    }

    /// The index of the graph that totals are of.
    pub fn index(&self, settled: u64) -> u64 {
        match self.marks.front() {
            Some(next) if next.is_each => self.reached.index + (settled - self.reached.settled),
            _ => self.reached.index,
        }
    }

    /// Begins with the ledger's graph.
    pub fn begun(index: u64) -> Following {
        let reached = Mark { settled: index, index, is_each: true };
        Following { heard: index, pushed: index, reached, ..Following::default() }
    }

    pub fn on_settled(&mut self, change: EdgeChange, settled: u64) {
        let edge = change.edge();
        if let Some((_, count)) = self.waiting.get_mut(&(edge.from, edge.to)) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(&(edge.from, edge.to));
            }
        }
        self.reach(settled);
    }

    fn reach(&mut self, settled: u64) {
        while let Some(&mark) = self.marks.front().filter(|mark| mark.settled <= settled) {
            self.reached = mark;
            self.marks.pop_front();
        }
    }

    fn mark(&mut self, index: u64, is_each: bool) {
        let settled = self.pushed;
        match self.marks.back_mut() {
            Some(last) if last.is_each && is_each => (last.settled, last.index) = (settled, index),
            _ => self.marks.push_back(Mark { settled, index, is_each }),
        }
    }

    /// Whether the comparison has passed an edge.
    fn has_passed(&self, edge: Edge) -> bool {
        match self.stage {
            Stage::Abreast => true,
            Stage::Removing(_) => false,
            Stage::Inserting(behind) => behind.is_some_and(|behind| edge <= behind),
        }
    }
}

impl Hierarchy {
    /// Takes over changes of the ledger's graph.
    pub(super) fn follow(&mut self, changes: &EdgesChanged, graph: &Graph) {
        match changes {
            // The graph after `index` changes is the same in every replica: the graph that a start has begun with is not compared
            // again.
            EdgesChanged::Replaced { index } if *index <= self.following.heard => {}
            EdgesChanged::Replaced { index } => {
                self.following.heard = *index;
                self.compare_all();
            }
            EdgesChanged::Each { since, changes } if !changes.is_empty() => self.follow_each(*since, changes),
            EdgesChanged::Each { .. } => {}
        }
        debug_assert!(self.following.heard <= graph.index(), "what is told was applied");
    }

    fn follow_each(&mut self, since: u64, changes: &[EdgeChange]) {
        if since > self.following.heard {
            // Some were told to another consumer.
            self.following.heard = since + changes.len() as u64;
            return self.compare_all();
        }
        let known = (self.following.heard - since).min(changes.len() as u64);
        for &change in &changes[known as usize..] {
            self.following.heard += 1;
            let is_abreast = self.following.is_abreast();
            let wanted = match change {
                _ if is_abreast => true,
                EdgeChange::Remove(edge) => self.will_have(edge),
                EdgeChange::Insert(edge) => self.following.has_passed(edge) && !self.will_have(edge),
            };
            if wanted && self.push(change).is_err() {
                self.compare_all();
            } else if is_abreast {
                self.following.mark(self.following.heard, true);
            }
        }
    }

    fn compare_all(&mut self) {
        self.following.stage = Stage::Removing(None);
    }

    /// Whether the flow has an edge when its queue is worked off.
    fn will_have(&self, edge: Edge) -> bool {
        let waiting = self.following.waiting.get(&(edge.from, edge.to));
        waiting.map_or_else(|| self.flow.dag().contains(edge), |&(inserts, _)| inserts)
    }

    fn push(&mut self, change: EdgeChange) -> Result<(), FlowError> {
        self.flow.push(change)?;
        let edge = change.edge();
        let waiting = self.following.waiting.entry((edge.from, edge.to)).or_default();
        *waiting = (matches!(change, EdgeChange::Insert(_)), waiting.1 + 1);
        self.following.pushed += 1;
        Ok(())
    }

    /// Whether graphs can be compared now: all changes of the ledger have to be told first.
    pub(super) fn can_compare(&self, graph: &Graph) -> bool {
        !self.following.is_abreast() && self.following.heard == graph.index() && self.has_room()
    }

    fn has_room(&self) -> bool {
        self.flow.unsettled() < COMPARED_QUEUED_MAX
    }

    /// Compares on, within the budget.
    pub(super) fn compare(&mut self, budget: &mut usize, graph: &Graph) {
        while *budget > 0 && self.can_compare(graph) {
            match self.following.stage {
                Stage::Abreast => return,
                Stage::Removing(behind) => self.compare_removing(behind, budget, graph),
                Stage::Inserting(behind) => self.compare_inserting(behind, budget, graph),
            }
        }
    }

    fn compare_removing(&mut self, behind: Option<Edge>, budget: &mut usize, graph: &Graph) {
        // Edges that wait to be inserted may lie anywhere.
        let waiting = if behind.is_none() { self.only_waiting(graph) } else { Vec::new() };
        let settled = self.flow.dag().edges_behind(behind).take(*budget);
        let part: Vec<Edge> = settled.collect();
        *budget -= part.len();
        let stage = part
            .last()
            .copied()
            .filter(|_| *budget == 0)
            .map_or(Stage::Inserting(None), |last| Stage::Removing(Some(last)));
        for edge in waiting.into_iter().chain(part) {
            if self.will_have(edge) && !graph.dag().contains(edge) && self.push(EdgeChange::Remove(edge)).is_err() {
                return;
            }
        }
        self.following.stage = stage;
    }

    fn only_waiting(&self, graph: &Graph) -> Vec<Edge> {
        let waiting = self.following.waiting.iter().filter(|(_, (inserts, _))| *inserts);
        let edges = waiting.map(|(&(from, to), _)| Edge { from, to });
        edges.filter(|&edge| !graph.dag().contains(edge)).collect()
    }

    fn compare_inserting(&mut self, behind: Option<Edge>, budget: &mut usize, graph: &Graph) {
        for edge in graph.dag().edges_behind(behind) {
            if *budget == 0 || !self.has_room() {
                return;
            }
            *budget -= 1;
            if !self.will_have(edge) && self.push(EdgeChange::Insert(edge)).is_err() {
                return;
            }
            self.following.stage = Stage::Inserting(Some(edge));
        }
        self.following.stage = Stage::Abreast;
        self.following.mark(self.following.heard, false);
        // There may have been no difference.
        self.following.reach(self.flow.progress().settled);
    }
}
