//! What a client may ask to be changed of the graph.

use crate::client::Target;
use tidemark_proto::graph::{Edge, EdgeChange};
use tidemark_proto::ids::CounterName;
use tidemark_proto::ledger::EdgesAsked;

/// Changes of edges, up to 1,024, in the order in which they are said. What is there already is not inserted again, and what is not there not
/// removed, so that to ask again is to do nothing.
#[derive(Clone, Debug)]
pub struct EdgeChanges(EdgesAsked);

impl Default for EdgeChanges {
    fn default() -> EdgeChanges {
        EdgeChanges(EdgesAsked { lenient: true, ..EdgesAsked::default() })
    }
}

impl EdgeChanges {
    /// None yet.
    pub fn new() -> EdgeChanges {
        EdgeChanges::default()
    }

    /// Counts of the first are to flow to the second, what it has counted too.
    pub fn insert(mut self, from: impl Into<Target>, to: impl Into<Target>) -> EdgeChanges {
        self.0.changes.push(EdgeChange::Insert(edge(from.into(), to.into())));
        self
    }

    /// Counts of the first are no longer to flow to the second; what has is taken back, unless there is another path.
    pub fn remove(mut self, from: impl Into<Target>, to: impl Into<Target>) -> EdgeChanges {
        self.0.changes.push(EdgeChange::Remove(edge(from.into(), to.into())));
        self
    }

    /// What is refused is left out and [told](tidemark_proto::edge_changes::EdgesMade::refused), and the others are carried out; else one that is refused keeps all
    /// from it.
    pub fn each(mut self) -> EdgeChanges {
        self.0.each = true;
        self
    }

    /// Edges may be inserted of counters of which nothing was counted yet; else they are refused, as a slip of the pen would be.
    pub fn allow_unknown(mut self) -> EdgeChanges {
        self.0.unknown = true;
        self
    }

    /// What is there already and is to be inserted is refused, and what is not there and is to be removed. Such changes are not asked for again
    /// when an answer is lost, since the second one could not be believed: [`ChangeError::Unknown`](crate::ChangeError::Unknown).
    pub fn strict(mut self) -> EdgeChanges {
        self.0.lenient = false;
        self
    }

    pub(crate) fn into_asked(self) -> EdgesAsked {
        self.0
    }
}

fn edge(from: Target, to: Target) -> Edge<CounterName> {
    Edge { from: from.into_name(), to: to.into_name() }
}
