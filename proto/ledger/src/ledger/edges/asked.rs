//! Requested changes of edges, decided on the present graph.

use super::{EdgeFault, EdgesCount, EdgesError, Ledger};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::graph::{Edge, EdgeChange};
use tidemark_types::ids::CounterName;
use tidemark_types::limits::{EDGE_AUTHOR_BYTES_MAX, EDGE_CHANGES_PER_COMMAND_MAX};
use tidemark_types::time::WallMs;
use tidemark_wire::framed::few;
use tidemark_wire::msg::LedgerCmd;

/// Requested changes of edges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgesAsked {
    /// Drawn by the requester: two requests with one number are one, at any aggregator.
    pub id: u64,
    /// In the order in which they are to be carried out.
    #[serde(deserialize_with = "few::<EDGE_CHANGES_PER_COMMAND_MAX, _, _, _>")]
    pub changes: Vec<EdgeChange<CounterName>>,
    /// Edges that exist are not inserted again, and missing edges are not removed. Without it, both are refused.
    pub lenient: bool,
    /// Refused changes are left out and reported, and the others are carried out. Without it, one refused change prevents all.
    pub each: bool,
    /// Edges may be inserted of counters without increments. Without it they are refused, as a slip of the pen would be.
    pub allow_unknown: bool,
}

/// The author, the time, and the number of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeAuthor<'a> {
    pub at: WallMs,
    pub by: &'a str,
    pub id: u64,
}

/// Changes decided on the present graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdgesDecided {
    /// To be carried out whole; none where no change is left, or where it was carried out before.
    pub cmd: Option<LedgerCmd>,
    /// Positions of the changes that were left out, counted from 0, and why.
    pub refused: Vec<(usize, EdgeFault)>,
    /// The effect of an earlier command of this number, if one was carried out.
    pub before: Option<EdgesCount>,
}

impl<'a> EdgeAuthor<'a> {
    /// For the only writer of a ledger's edges, at no time: the revision is a number that was not given before.
    pub fn alone(by: &'a str, ledger: &Ledger) -> EdgeAuthor<'a> {
        EdgeAuthor { at: WallMs(0), by, id: ledger.graph.revision }
    }
}

impl EdgesAsked {
    /// Counters that must have increments.
    pub fn to_be_known(&self) -> impl Iterator<Item = &CounterName> {
        self.changes.iter().filter(|_| !self.allow_unknown).flat_map(inserted)
    }

    /// Checks the request's size and author.
    ///
    /// # Errors
    /// There are too many changes, or none, or the author is too long.
    pub fn check(&self, by: &str) -> Result<(), EdgesError> {
        match self.changes.len() {
            0 if !self.lenient && !self.each => Err(EdgesError::Count(0)),
            changes => check_asked(changes, by),
        }
    }

    /// Positions of edges to be inserted of counters that are not known.
    fn strange(&self, is_known: impl Fn(&CounterName) -> bool) -> BTreeMap<usize, CounterName> {
        let unknown = |change| inserted(change).find(|counter| !is_known(counter)).cloned();
        let all = self.changes.iter().enumerate().filter(|_| !self.allow_unknown);
        all.filter_map(|(position, change)| Some((position, unknown(change)?))).collect()
    }
}

/// The ends of an edge that is to be inserted.
fn inserted(change: &EdgeChange<CounterName>) -> impl Iterator<Item = &CounterName> {
    let ends = match change {
        EdgeChange::Insert(Edge { from, to }) => Some([from, to]),
        EdgeChange::Remove(_) => None,
    };
    ends.into_iter().flatten()
}

impl Ledger {
    /// The command that carries out a request, decided on this state and on the known counters.
    ///
    /// # Errors
    /// Apply would refuse it: like [`EdgesAsked::check`], or, if the changes are not each for itself, which change, and why.
    pub fn edges_asked(
        &self,
        asked: &EdgesAsked,
        at: WallMs,
        by: &str,
        is_known: impl Fn(&CounterName) -> bool,
    ) -> Result<EdgesDecided, EdgesError> {
        asked.check(by)?;
        let EdgesAsked { id, changes, lenient, each, .. } = asked;
        if let Some((before, _)) = self.graph.carried_out(*id) {
            return Ok(EdgesDecided { before: Some(before), ..EdgesDecided::default() });
        }
        let strange = asked.strange(is_known);
        let places: Vec<usize> = (0..changes.len()).filter(|position| !strange.contains_key(position)).collect();
        let rest: Vec<_> = places.iter().map(|&position| changes[position].clone()).collect();
        let EdgesDecided { cmd, refused, .. } = self.edges_each(&rest, EdgeAuthor { at, by, id: *id }, *lenient)?;
        let refused = refused.into_iter().map(|(position, fault)| (places[position], fault));
        let strange = strange.into_iter().map(|(position, counter)| (position, EdgeFault::UnknownCounter(counter)));
        let mut refused: Vec<_> = refused.chain(strange).collect();
        refused.sort_by_key(|&(position, _)| position);
        match refused.first() {
            Some((position, fault)) if !each => {
                let (position, change) = (*position, Box::new(changes[*position].clone()));
                Err(EdgesError::Change { position, change, fault: Box::new(fault.clone()) })
            }
            _ => Ok(EdgesDecided { cmd, refused, before: None }),
        }
    }

    /// The command that changes edges, all of these or none, even if nothing was counted of their counters. With `lenient`, edges
    /// to insert that exist and edges to remove that do not are no fault. They are left out when the command is applied, by the
    /// graph at that time.
    ///
    /// # Errors
    /// Like [`Ledger::edges_asked`].
    pub fn edges(
        &self,
        changes: Vec<EdgeChange<CounterName>>,
        EdgeAuthor { at, by, id }: EdgeAuthor<'_>,
        lenient: bool,
    ) -> Result<Option<LedgerCmd>, EdgesError> {
        let asked = EdgesAsked { id, changes, lenient, each: false, allow_unknown: true };
        Ok(self.edges_asked(&asked, at, by, |_| true)?.cmd)
    }

    /// The same, with those left out that are refused.
    ///
    /// # Errors
    /// There are too many of them, or the author is too long.
    pub fn edges_each(
        &self,
        changes: &[EdgeChange<CounterName>],
        EdgeAuthor { at, by, id }: EdgeAuthor<'_>,
        lenient: bool,
    ) -> Result<EdgesDecided, EdgesError> {
        check_asked(changes.len(), by)?;
        let refused = self.graph.tried(&self.namespaces, changes, lenient).refused;
        let faulty: BTreeSet<usize> = refused.iter().map(|&(position, _)| position).collect();
        let rest = changes.iter().enumerate().filter(|(position, _)| !faulty.contains(position));
        let changes: Vec<_> = rest.map(|(_, change)| change.clone()).collect();
        let revision = self.graph.revision;
        let by = by.to_owned();
        let cmd = (!changes.is_empty()).then_some(LedgerCmd::Edges { revision, id, lenient, changes, at, by });
        Ok(EdgesDecided { cmd, refused, before: None })
    }
}

fn check_asked(changes: usize, by: &str) -> Result<(), EdgesError> {
    if changes > EDGE_CHANGES_PER_COMMAND_MAX {
        return Err(EdgesError::Count(changes));
    }
    if by.len() > EDGE_AUTHOR_BYTES_MAX {
        return Err(EdgesError::Author(by.len()));
    }
    Ok(())
}
