//! Changes of edges that clients request: client ↔ aggregator, each on a channel of its own of kind
//! [`tidemark_wire::wire::channel::EDGES`], in frames ([`tidemark_wire::framed`]). [`crate::ledger`] defines the requests and the
//! reasons of refusals.

use crate::ledger::{EdgeFault, EdgesAsked, EdgesCount, EdgesError};
use serde::{Deserialize, Serialize};
use tidemark_types::graph::EdgeChange;
use tidemark_types::ids::CounterName;
use tidemark_types::limits::{
    EDGE_CHANGES_PER_COMMAND_MAX, EDGE_COMMANDS_REMEMBERED, EDGE_PATH_NAMES_MAX, NAME_BYTES_MAX,
};
use tidemark_wire::framed::{Framed, at_most, few};
use tidemark_wire::wire::{Message, Tail, WireError, bounds::text};

/// Bytes of changes that are asked for: 1,024 edges between counters of the longest names. More: refused when they come.
pub const EDGES_ASKED_BYTES_MAX: usize = 1 << 20;
/// Bytes of an answer: 1,024 refused edges, each with a path of 64 of the longest names. More: refused when they come.
pub const EDGES_ANSWER_BYTES_MAX: usize = 24 << 20;

const HEAD_BYTES: usize = 1_024;
const _: () = assert!(HEAD_BYTES + EDGE_CHANGES_PER_COMMAND_MAX * (1 + 2 * NAME_BYTES_MAX) <= EDGES_ASKED_BYTES_MAX);
const _: () = assert!(
    HEAD_BYTES + EDGE_CHANGES_PER_COMMAND_MAX * (3 + 3 + 10 + EDGE_PATH_NAMES_MAX * NAME_BYTES_MAX)
        <= EDGES_ANSWER_BYTES_MAX
);

/// The outcome of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EdgesAnswer {
    Made(EdgesMade),
    Refused(EdgesRefusal),
}

/// The state of the graph after a change, as the aggregator that made it knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgesMade {
    /// Commands on changes of the graph that were decided so far.
    pub revision: u64,
    /// The number of single changes so far, as in `query::Basis::graph_known` of a total.
    pub index: u64,
    /// Edges that this change added, and took away.
    pub inserted: u64,
    pub removed: u64,
    /// An earlier request carried it out as it was decided then, and its answer was lost. The changes refused then are not
    /// reported any more.
    pub again: bool,
    /// If each change was for itself: positions of the changes that were left out, counted from 0, and why.
    #[serde(deserialize_with = "few::<EDGE_CHANGES_PER_COMMAND_MAX, _, _, _>")]
    pub refused: Vec<(u32, EdgeFault)>,
}

/// Why nothing was changed, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum EdgesRefusal {
    /// It cannot be carried out as it was asked for, as the graph and counters are known there. Nothing was changed.
    #[error(transparent)]
    Edges(#[from] EdgesError),
    /// The layout does not say that this client may. Nothing was changed.
    #[error("the layout does not name {client} among `graph_clients`: it may not change edges")]
    NotPermitted { client: String },
    /// Nothing was changed.
    #[error("other changes of the graph came first at each attempt: nothing was changed; send it again")]
    Contended,
    /// It may have been carried out, or may yet be: a retry with its id reports the outcome.
    #[error("the ledger did not answer in time: read the graph, and send the same change again")]
    InDoubt,
    /// It may have been carried out. Too many other changes came since for the outcome to be remembered.
    #[error(
        "{EDGE_COMMANDS_REMEMBERED} other changes came meanwhile: it is not known whether this one was carried out; read the graph"
    )]
    Outdated,
    /// Another aggregator may do it. Nothing was changed.
    #[error("not serving: {0}")]
    NotServing(String),
}

impl EdgesMade {
    /// After a change was carried out.
    pub fn new(revision: u64, index: u64, made: EdgesCount, refused: &[(usize, EdgeFault)]) -> EdgesMade {
        let refused = refused.iter().map(|(position, fault)| (*position as u32, fault.clone())).collect();
        let EdgesCount { inserted, removed } = made;
        EdgesMade { revision, index, inserted: inserted.into(), removed: removed.into(), again: false, refused }
    }
}

fn ends_valid(change: &EdgeChange<CounterName>) -> Result<(), WireError> {
    let edge = change.edge();
    edge.from.validate()?;
    Ok(edge.to.validate()?)
}

fn fault_valid(fault: &EdgeFault) -> Result<(), WireError> {
    match fault {
        EdgeFault::Cycle { path, .. } => {
            at_most("counters of a path", path.len(), EDGE_PATH_NAMES_MAX)?;
            Ok(path.iter().try_for_each(CounterName::validate)?)
        }
        EdgeFault::UnknownCounter(counter) => Ok(counter.validate()?),
        EdgeFault::UnknownNamespace(namespace) => Ok(CounterName::check(namespace, b"-")?),
        EdgeFault::NotAllowed { from, to } => {
            CounterName::check(from, b"-")?;
            Ok(CounterName::check(to, b"-")?)
        }
        EdgeFault::ToItself | EdgeFault::Duplicate | EdgeFault::Absent | EdgeFault::Full | EdgeFault::Names => Ok(()),
    }
}

impl Message for EdgesAsked {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        at_most("changes of edges at once", self.changes.len(), EDGE_CHANGES_PER_COMMAND_MAX)?;
        self.changes.iter().try_for_each(ends_valid)
    }
}

impl Message for EdgesAnswer {
    const TAIL: Tail = Tail::Skipped;

    fn validate(&self) -> Result<(), WireError> {
        match self {
            EdgesAnswer::Made(made) => {
                at_most("refused changes of an answer", made.refused.len(), EDGE_CHANGES_PER_COMMAND_MAX)?;
                made.refused.iter().try_for_each(|(_, fault)| fault_valid(fault))
            }
            EdgesAnswer::Refused(EdgesRefusal::Edges(EdgesError::Change { change, fault, .. })) => {
                ends_valid(change)?;
                fault_valid(fault)
            }
            EdgesAnswer::Refused(EdgesRefusal::NotPermitted { client: shown } | EdgesRefusal::NotServing(shown)) => {
                text(shown)
            }
            EdgesAnswer::Refused(
                EdgesRefusal::Edges(EdgesError::Count(_) | EdgesError::Author(_))
                | EdgesRefusal::Contended
                | EdgesRefusal::InDoubt
                | EdgesRefusal::Outdated,
            ) => Ok(()),
        }
    }
}

impl Framed for EdgesAsked {
    const BYTES_MAX: usize = EDGES_ASKED_BYTES_MAX;
}

impl Framed for EdgesAnswer {
    const BYTES_MAX: usize = EDGES_ANSWER_BYTES_MAX;
}

#[cfg(test)]
mod tests;
