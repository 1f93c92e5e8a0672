//! Changes of the graph that a client may ask for.

use crate::target::Target;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidemark_proto::graph::{Edge, EdgeChange};
use tidemark_proto::ids::CounterName;
use tidemark_proto::ledger::EdgesAsked;

/// Changes of edges, up to 1,024, in the order in which they are said. An edge that exists is not inserted again, and an edge that does not
/// exist is not removed. They have a number of their own, by which the cluster knows them. If these changes or their clones are sent
/// several times, to any aggregator, they are carried out once, as long as fewer than 65,536 other changes of the cluster came between.
#[derive(Clone, Debug)]
pub struct EdgeChanges {
    asked: EdgesAsked,
    /// They were sent, and may have been carried out without an answer. Of clones, too.
    doubt: Arc<AtomicBool>,
}

impl Default for EdgeChanges {
    fn default() -> EdgeChanges {
        EdgeChanges { asked: EdgesAsked { lenient: true, ..EdgesAsked::default() }, doubt: Arc::default() }
    }
}

impl EdgeChanges {
    /// An empty list of changes.
    pub fn new() -> EdgeChanges {
        EdgeChanges::default()
    }

    /// Others than before, which have a number of their own.
    fn anew(mut self, change: impl FnOnce(&mut EdgesAsked)) -> EdgeChanges {
        (self.asked.id, self.doubt) = (rand::random(), Arc::default());
        change(&mut self.asked);
        self
    }

    /// Counts of the first are to flow to the second, what it has counted too.
    pub fn insert(self, from: impl Into<Target>, to: impl Into<Target>) -> EdgeChanges {
        self.anew(|asked| asked.changes.push(EdgeChange::Insert(edge(from.into(), to.into()))))
    }

    /// Counts of the first are no longer to flow to the second; counts that have flowed are taken back, unless there is another path.
    pub fn remove(self, from: impl Into<Target>, to: impl Into<Target>) -> EdgeChanges {
        self.anew(|asked| asked.changes.push(EdgeChange::Remove(edge(from.into(), to.into()))))
    }

    /// Refused changes are left out and [listed](tidemark_proto::edge_changes::EdgesMade::refused), and the others are carried out; else
    /// one refused change keeps all others from being carried out.
    pub fn each(self) -> EdgeChanges {
        self.anew(|asked| asked.each = true)
    }

    /// Edges may be inserted of counters of which nothing is known yet where this is asked for; else they are refused, as a slip of the pen
    /// would be. A new increment makes its counter known some moments after it is durable.
    pub fn allow_unknown(self) -> EdgeChanges {
        self.anew(|asked| asked.allow_unknown = true)
    }

    /// Refuses to insert an edge that exists, and to remove an edge that does not exist.
    pub fn strict(self) -> EdgeChanges {
        self.anew(|asked| asked.lenient = false)
    }

    pub(crate) fn asked(&self) -> &EdgesAsked {
        &self.asked
    }

    /// They are said now; whether they were in doubt before.
    pub(crate) fn doubt(&self) -> bool {
        self.doubt.swap(true, Ordering::AcqRel)
    }

    /// The result of the changes is known, unless they are in doubt from before.
    pub(crate) fn settle(&self, was_in_doubt: bool) {
        self.doubt.store(was_in_doubt, Ordering::Release);
    }
}

fn edge(from: Target, to: Target) -> Edge<CounterName> {
    Edge { from: from.into_name(), to: to.into_name() }
}
