//! Edges between counters as the ledger has accepted them: the graph along which counts flow to totals.
//!
//! A batch of changes is carried out as a whole or not at all, on whatever graph it meets. Batches of many data centres come
//! together, and most touch different edges. The outcomes of the last batches are remembered, so that a late copy or a retry has
//! no effect. Counters get numbers in the order in which they are first named, the same in every replica, and keep them. Nothing
//! here concerns milestones: they are about the direct count of a counter, which the ledger knows, and never about a total.

mod asked;
mod stored;

pub use asked::{EdgeAuthor, EdgesAsked, EdgesDecided};

use super::Ledger;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use tidemark_types::graph::{Dag, Edge, EdgeChange, EdgeRefused, Relation, Trial, Vertex};
use tidemark_types::ids::{CounterName, LogIndex};
use tidemark_types::limits::{
    EDGE_AUDIT_CHANGES_MAX, EDGE_AUDIT_MAX, EDGE_AUTHOR_BYTES_MAX, EDGE_CHANGES_PER_COMMAND_MAX, EDGE_CHANGES_TOLD_MAX,
    EDGE_COMMANDS_REMEMBERED, EDGE_PATH_NAMES_MAX, EDGE_PERMISSIONS_MAX, EDGES_MAX,
};
use tidemark_types::table::CellTable;
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::WallMs;
use tidemark_types::warm;
use tidemark_wire::framed::few;
use tidemark_wire::msg::LedgerCmd;

/// The accepted edges, and the history of their changes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "Option<stored::Stored>")]
pub struct Graph {
    dag: Dag,
    /// The all-time totals of counters in generation 0 stand for their names; their slots are the numbers of vertices.
    names: CellTable,
    /// Number of commands that were decided, carried out or not.
    revision: u64,
    /// The outcomes of the last commands, oldest first.
    remembered: VecDeque<Remembered>,
    /// Single changes that were carried out.
    index: u64,
    /// By namespace: to which others its counts may flow.
    allowed: BTreeMap<String, BTreeSet<String>>,
    /// The last batches, oldest first.
    audit: VecDeque<EdgeBatch>,
}

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Remembered {
    id: u64,
    /// When it was decided: tells apart two commands that were requested under one number.
    at: WallMs,
    /// `None`: it did not fit.
    made: Option<EdgesCount>,
}

/// The numbers of edges that a command inserted and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgesCount {
    pub inserted: u16,
    pub removed: u16,
}

impl EdgesCount {
    /// The count of these changes, at most as many as a command has.
    pub fn of<N>(changes: &[EdgeChange<N>]) -> EdgesCount {
        let inserted = changes.iter().filter(|change| matches!(change, EdgeChange::Insert(_))).count();
        EdgesCount { inserted: inserted as u16, removed: (changes.len() - inserted) as u16 }
    }
}

/// The fate of a command that changes edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgesFate {
    /// It has not come yet.
    Open,
    CarriedOut(EdgesCount),
    /// It did not fit the graph that it met, and changed nothing.
    Refused,
    /// Too many commands were decided since: it is not carried out any more, unless it was before.
    Outdated,
}

/// A batch of changes that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeBatch {
    /// The revision of the graph before it.
    pub revision: u64,
    /// The ledger's entry that held it.
    pub entry: LogIndex,
    pub at: WallMs,
    pub by: String,
    pub changes: Vec<EdgeChange>,
}

/// Changes of the graph since the ledger was asked last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgesChanged {
    /// These, in order; before them there were `since` ([`Graph::index`]).
    Each { since: u64, changes: Vec<EdgeChange> },
    /// Too many to be listed, or another replica's state was taken over: the graph after `index` changes replaces the earlier
    /// one.
    Replaced { index: u64 },
}

/// Why one change was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum EdgeFault {
    #[error("unknown namespace {0:?}")]
    UnknownNamespace(String),
    #[error("counts of namespace {from:?} may not flow to namespace {to:?}: permit it first")]
    NotAllowed { from: String, to: String },
    #[error("counter {0} has no increments: check its name")]
    UnknownCounter(CounterName),
    #[error("an edge cannot lead from a counter to itself")]
    ToItself,
    #[error("the edge exists already")]
    Duplicate,
    #[error("the edge does not exist")]
    Absent,
    /// From the edge's end to its beginning. The middle of a long path is left out.
    #[error("the edge would close a cycle: {}", PathText(path, *left_out))]
    Cycle {
        #[serde(deserialize_with = "few::<EDGE_PATH_NAMES_MAX, _, _, _>")]
        path: Vec<CounterName>,
        left_out: usize,
    },
    #[error("{EDGES_MAX} edges: no more allowed")]
    Full,
    #[error("no room for the names of more counters")]
    Names,
}

/// Why changes of the graph would not be carried out; checked by their proposer, since apply only ignores them. None was carried
/// out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum EdgesError {
    #[error("{0} changes of edges at once: 1 to {EDGE_CHANGES_PER_COMMAND_MAX} allowed")]
    Count(usize),
    #[error("author of {0} bytes: at most {EDGE_AUTHOR_BYTES_MAX} allowed")]
    Author(usize),
    /// `position` counts from 0.
    #[error("change {position}, {}: {fault}", ChangeText(change))]
    Change { position: usize, change: Box<EdgeChange<CounterName>>, fault: Box<EdgeFault> },
}

/// Why edges between two namespaces would not be permitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllowError {
    #[error("unknown namespace {0:?}")]
    UnknownNamespace(String),
    #[error("edges are permitted between {EDGE_PERMISSIONS_MAX} pairs of namespaces, and no more are allowed")]
    TooMany,
}

struct ChangeText<'c>(&'c EdgeChange<CounterName>);

impl fmt::Display for ChangeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Edge { from, to } = self.0.edge();
        let what = if matches!(self.0, EdgeChange::Insert(_)) { "insert" } else { "remove" };
        write!(f, "{what} {from} → {to}")
    }
}

struct PathText<'p>(&'p [CounterName], usize);

impl fmt::Display for PathText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PathText(path, left_out) = *self;
        for (at, name) in path.iter().enumerate() {
            if at > 0 {
                f.write_str(" → ")?;
            }
            if left_out > 0 && at == path.len() / 2 {
                write!(f, "… {left_out} more … → ")?;
            }
            write!(f, "{name}")?;
        }
        Ok(())
    }
}

/// The effect of a batch on the present graph.
struct Tried {
    /// The changes that change something.
    changes: Vec<EdgeChange>,
    /// Changes that would not be carried out after those before them; they are treated as not requested.
    refused: Vec<(usize, EdgeFault)>,
    /// Counters that get the next numbers, in order, where nothing was refused.
    new: CellTable,
}

/// Numbers of counters, those included that a batch names first.
struct Numbering<'g> {
    names: &'g CellTable,
    /// Their numbers follow.
    new: CellTable,
}

impl Numbering<'_> {
    fn known(&self, counter: &CounterName) -> Option<Vertex> {
        let new = || self.new.find_total(counter, 0).map(|slot| self.names.len() + slot);
        self.names.find_total(counter, 0).or_else(new).map(Vertex)
    }

    fn number(&mut self, counter: &CounterName) -> Vertex {
        let known = self.names.find_total(counter, 0);
        let new = || self.names.len() + self.new.intern_total(counter).expect("room that was looked for");
        Vertex(known.unwrap_or_else(new))
    }

    fn name(&self, vertex: Vertex) -> CounterName {
        match vertex.0.checked_sub(self.names.len()) {
            Some(new) => self.new.name(new).counter,
            None => self.names.name(vertex.0).counter,
        }
    }

    /// The refusal with names of counters.
    fn fault(&self, refused: EdgeRefused) -> EdgeFault {
        match refused {
            EdgeRefused::Cycle { path } => {
                let left_out = path.len().saturating_sub(EDGE_PATH_NAMES_MAX);
                let half = (path.len() - left_out) / 2;
                let shown = path[..half].iter().chain(&path[half + left_out..]);
                EdgeFault::Cycle { path: shown.map(|&vertex| self.name(vertex)).collect(), left_out }
            }
            EdgeRefused::ToItself => EdgeFault::ToItself,
            EdgeRefused::Duplicate => EdgeFault::Duplicate,
            EdgeRefused::Absent => EdgeFault::Absent,
            EdgeRefused::Full => EdgeFault::Full,
        }
    }
}

impl Graph {
    /// The edges, by numbers of counters.
    pub fn dag(&self) -> &Dag {
        &self.dag
    }

    /// The number of commands that were decided, carried out or not.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The number of single changes that were carried out.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The number of counters with a number: all numbers are below it.
    pub fn vertices(&self) -> u32 {
        self.names.len()
    }

    /// The number of a counter that has or had an edge.
    pub fn vertex(&self, counter: &CounterName) -> Option<Vertex> {
        self.names.find_total(counter, 0).map(Vertex)
    }

    /// The counter of a number. Panics if it was never given.
    pub fn name(&self, vertex: Vertex) -> CounterName {
        self.names.name(vertex.0).counter
    }

    /// The counters to which the counts of this counter flow next.
    pub fn children(&self, counter: &CounterName) -> impl Iterator<Item = CounterName> + '_ {
        self.vertex(counter).into_iter().flat_map(|vertex| self.dag.children(vertex)).map(|child| self.name(child))
    }

    /// The counters with counts that flow to this counter next.
    pub fn parents(&self, counter: &CounterName) -> impl Iterator<Item = CounterName> + '_ {
        self.vertex(counter).into_iter().flat_map(|vertex| self.dag.parents(vertex)).map(|parent| self.name(parent))
    }

    /// Parents or children of a counter behind one of them, in the order of their first edges. None behind a counter that never
    /// had an edge.
    pub fn relatives(
        &self,
        counter: &CounterName,
        which: Relation,
        behind: Option<&CounterName>,
    ) -> impl Iterator<Item = CounterName> + '_ {
        let from = match behind {
            None => self.vertex(counter).map(|of| (of, None)),
            Some(behind) => self.vertex(counter).zip(self.vertex(behind)).map(|(of, behind)| (of, Some(behind))),
        };
        let relatives = from.into_iter().flat_map(move |(of, behind)| self.dag.relatives(of, which, behind));
        relatives.map(|relative| self.name(relative))
    }

    /// Whether counts of one namespace may flow to another; within one they may.
    pub fn is_allowed(&self, from: &str, to: &str) -> bool {
        from == to || self.allowed.get(from).is_some_and(|sinks| sinks.contains(to))
    }

    /// Pairs of namespaces: counts of the first may flow to the second.
    pub fn allowed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.allowed.iter().flat_map(|(from, sinks)| sinks.iter().map(move |to| (from.as_str(), to.as_str())))
    }

    /// The last batches, oldest first: [`EDGE_AUDIT_MAX`] of them, or fewer with [`EDGE_AUDIT_CHANGES_MAX`] changes.
    pub fn audit(&self) -> impl DoubleEndedIterator<Item = &EdgeBatch> + ExactSizeIterator {
        self.audit.iter()
    }

    /// The names of counters that have or had an edge; their slots are the numbers.
    pub fn names(&self) -> &CellTable {
        &self.names
    }

    /// The fate of the command of this number that was decided on the graph of a revision.
    pub fn fate(&self, revision: u64, id: u64) -> EdgesFate {
        let since = self.revision.saturating_sub(revision);
        let most = EDGE_COMMANDS_REMEMBERED as u64;
        if since > most {
            return EdgesFate::Outdated;
        }
        match self.remembered.iter().rev().take(since as usize).find(|remembered| remembered.id == id) {
            None if since == most => EdgesFate::Outdated,
            None => EdgesFate::Open,
            Some(Remembered { made: Some(made), .. }) => EdgesFate::CarriedOut(*made),
            Some(Remembered { made: None, .. }) => EdgesFate::Refused,
        }
    }

    /// The changes of a command of this number, if a remembered one was carried out; and the time of its decision.
    pub fn carried_out(&self, id: u64) -> Option<(EdgesCount, WallMs)> {
        let of_id = self.remembered.iter().rev().filter(|remembered| remembered.id == id);
        of_id.filter_map(|remembered| Some((remembered.made?, remembered.at))).next()
    }

    /// Bytes of a snapshot of it, about: edges that are new mostly lie close to the one before.
    pub fn stored_bytes_about(&self) -> usize {
        self.names.records(0, self.names.len()).len() + 7 * self.dag.len() + (1 << 20)
    }

    /// Bytes allocated for names of counters.
    pub fn names_bytes(&self) -> usize {
        self.names.heap_bytes()
    }

    /// Tries a batch. With `lenient`, edges to insert that exist and edges to remove that do not are left out.
    fn tried(&self, namespaces: &BTreeSet<String>, changes: &[EdgeChange<CounterName>], lenient: bool) -> Tried {
        let mut trial = Trial::new(&self.dag);
        let mut numbering = Numbering { names: &self.names, new: CellTable::default() };
        numbering.new.reserve(2 * changes.len(), 0);
        let has_room = self.names.has_room(2 * changes.len());
        let mut accepted = Vec::with_capacity(changes.len());
        let mut refused = Vec::new();
        for (position, change) in changes.iter().enumerate() {
            warm::ahead(changes, position, |change| {
                let Edge { from, to } = change.edge();
                self.names.warm_total(from).wrapping_add(self.names.warm_total(to))
            });
            if let Err(fault) = self.check_namespaces(namespaces, change) {
                refused.push((position, fault));
                continue;
            }
            if !has_room {
                refused.push((position, EdgeFault::Names));
                continue;
            }
            let numbered = match change {
                EdgeChange::Insert(Edge { from, to }) => {
                    Some(EdgeChange::Insert(Edge { from: numbering.number(from), to: numbering.number(to) }))
                }
                EdgeChange::Remove(Edge { from, to }) => {
                    let ends = numbering.known(from).zip(numbering.known(to));
                    ends.map(|(from, to)| EdgeChange::Remove(Edge { from, to }))
                }
            };
            match numbered.ok_or(EdgeRefused::Absent).and_then(|change| trial.change(change).map(|()| change)) {
                Ok(change) => accepted.push(change),
                Err(EdgeRefused::Duplicate | EdgeRefused::Absent) if lenient => {}
                Err(why) => refused.push((position, numbering.fault(why))),
            }
        }
        Tried { changes: accepted, refused, new: numbering.new }
    }

    fn check_namespaces(
        &self,
        namespaces: &BTreeSet<String>,
        change: &EdgeChange<CounterName>,
    ) -> Result<(), EdgeFault> {
        let edge = change.edge();
        let from = edge.from.namespace();
        let to = edge.to.namespace();
        if let Some(&unknown) = [from, to].iter().find(|&&namespace| !namespaces.contains(namespace)) {
            return Err(EdgeFault::UnknownNamespace(unknown.to_owned()));
        }
        if matches!(change, EdgeChange::Insert(_)) && !self.is_allowed(from, to) {
            return Err(EdgeFault::NotAllowed { from: from.to_owned(), to: to.to_owned() });
        }
        Ok(())
    }

    fn remember(&mut self, id: u64, at: WallMs, made: Option<EdgesCount>) {
        if self.remembered.len() == EDGE_COMMANDS_REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back(Remembered { id, at, made });
        self.revision += 1;
    }

    fn carry_out(&mut self, tried: Tried, entry: LogIndex, at: WallMs, by: &str) -> Vec<EdgeChange> {
        self.names.append(&tried.new).expect("room that was looked for");
        let changes = tried.changes;
        for &change in &changes {
            match change {
                EdgeChange::Insert(edge) => self.dag.insert_checked(edge),
                EdgeChange::Remove(edge) => self.dag.remove(edge).expect("an edge that was tried"),
            }
        }
        if !changes.is_empty() {
            let revision = self.revision;
            let by = by.to_owned();
            self.audit.push_back(EdgeBatch { revision, entry, at, by, changes: changes.clone() });
            self.trim_audit();
        }
        self.index += changes.len() as u64;
        changes
    }

    fn trim_audit(&mut self) {
        let mut listed: usize = self.audit.iter().map(|batch| batch.changes.len()).sum();
        while self.audit.len() > EDGE_AUDIT_MAX || listed > EDGE_AUDIT_CHANGES_MAX {
            listed -= self.audit.pop_front().map_or(0, |batch| batch.changes.len());
        }
    }

    /// Panics when the edges are no graph, or have unknown ends. Walks everything.
    pub fn check_invariants(&self) {
        self.dag.check_invariants();
        let known = |edge: Edge| edge.from.0 < self.names.len() && edge.to.0 < self.names.len();
        assert!(self.dag.edges().all(known), "ends of edges have names");
        assert_eq!(self.remembered.len(), remembered(self.revision), "the last commands");
        assert!(self.audit.len() <= EDGE_AUDIT_MAX && self.allowed().count() <= EDGE_PERMISSIONS_MAX);
    }
}

/// The number of remembered commands, at this revision.
fn remembered(revision: u64) -> usize {
    revision.min(EDGE_COMMANDS_REMEMBERED as u64) as usize
}

impl Default for EdgesChanged {
    fn default() -> EdgesChanged {
        EdgesChanged::Each { since: 0, changes: Vec::new() }
    }
}

impl EdgesChanged {
    pub fn is_empty(&self) -> bool {
        matches!(self, EdgesChanged::Each { changes, .. } if changes.is_empty())
    }

    fn add(&mut self, before: u64, new: Vec<EdgeChange>) {
        let index = before + new.len() as u64;
        match self {
            EdgesChanged::Each { changes, .. } if changes.len() + new.len() > EDGE_CHANGES_TOLD_MAX => {
                *self = EdgesChanged::Replaced { index };
            }
            EdgesChanged::Each { since, changes } => {
                if changes.is_empty() {
                    *since = before;
                }
                changes.extend(new);
            }
            EdgesChanged::Replaced { index: last } => *last = index,
        }
    }
}

impl Ledger {
    /// Edges between counters.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The command that permits edges from one namespace to another; `None` when they are permitted.
    ///
    /// # Errors
    /// Apply would refuse it.
    pub fn allowing_edges(&self, from: &str, to: &str) -> Result<Option<LedgerCmd>, AllowError> {
        if let Some(&unknown) = [from, to].iter().find(|&&namespace| !self.namespaces.contains(namespace)) {
            return Err(AllowError::UnknownNamespace(unknown.to_owned()));
        }
        if self.graph.is_allowed(from, to) {
            return Ok(None);
        }
        if self.graph.allowed().count() >= EDGE_PERMISSIONS_MAX {
            return Err(AllowError::TooMany);
        }
        Ok(Some(LedgerCmd::AllowEdges { from: from.to_owned(), to: to.to_owned() }))
    }

    // ---- commands ----

    pub(super) fn on_edges(&mut self, entry: LogIndex, cmd: &LedgerCmd) {
        let LedgerCmd::Edges { revision, id, lenient, changes, at, by } = cmd else { return };
        let is_new = self.graph.fate(*revision, *id) == EdgesFate::Open || bites(Bug::EdgesTwice);
        // No command can be decided on a graph that is yet to come.
        if !is_new || *revision > self.graph.revision || changes.is_empty() {
            return;
        }
        let before = self.graph.index;
        let tried = self.graph.tried(&self.namespaces, changes, *lenient);
        let made = tried.refused.is_empty().then(|| {
            let changes = self.graph.carry_out(tried, entry, *at, by);
            let made = EdgesCount::of(&changes);
            if !changes.is_empty() {
                self.changes.edges.add(before, changes);
            }
            made
        });
        self.graph.remember(*id, *at, made);
    }

    pub(super) fn on_allow_edges(&mut self, from: &str, to: &str) {
        if self.allowing_edges(from, to).is_ok_and(|cmd| cmd.is_some()) {
            self.graph.allowed.entry(from.to_owned()).or_default().insert(to.to_owned());
            self.changes.settings = true;
        }
    }
}

#[cfg(test)]
mod tests;
