//! Changes of edges that somebody asks for, decided on the graph as it is.

use super::{EdgeFault, EdgesError, Ledger};
use crate::framed::few;
use crate::graph::{Edge, EdgeChange};
use crate::ids::CounterName;
use crate::limits::{EDGE_AUTHOR_BYTES_MAX, EDGE_CHANGES_PER_COMMAND_MAX};
use crate::msg::LedgerCmd;
use crate::time::WallMs;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Changes of edges that somebody asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgesAsked {
    /// In the order in which they are to be carried out.
    #[serde(deserialize_with = "few::<EDGE_CHANGES_PER_COMMAND_MAX, _, _, _>")]
    pub changes: Vec<EdgeChange<CounterName>>,
    /// What is there already is not inserted again, and what is not there not removed, so that to ask again is to do nothing; else both are
    /// refused.
    pub lenient: bool,
    /// What is refused is left out and told, and the others are carried out; else one that is refused keeps all from it.
    pub each: bool,
    /// Edges may be inserted of counters of which nothing was counted; else they are refused, as a slip of the pen would be.
    pub unknown: bool,
}

/// Who asks, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeAuthor<'a> {
    pub at: WallMs,
    pub by: &'a str,
    /// Drawn for each command anew: two of one number, decided on one graph, are one.
    pub id: u64,
}

/// Changes decided on the present graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdgesDecided {
    /// What is left of them, to be carried out whole; none when nothing is.
    pub cmd: Option<LedgerCmd>,
    /// Positions of those that were left out, counted from 0, and why.
    pub refused: Vec<(usize, EdgeFault)>,
}

impl<'a> EdgeAuthor<'a> {
    /// Of who alone changes edges of a ledger, at no time: the revision is a number that was not given before.
    pub fn alone(by: &'a str, ledger: &Ledger) -> EdgeAuthor<'a> {
        EdgeAuthor { at: WallMs(0), by, id: ledger.graph.revision }
    }
}

impl EdgesAsked {
    /// Counters of which something has to have been counted.
    pub fn to_be_known(&self) -> impl Iterator<Item = &CounterName> {
        self.changes.iter().filter(|_| !self.unknown).flat_map(inserted)
    }

    /// Positions of edges to be inserted of counters that are not known.
    fn strange(&self, is_known: impl Fn(&CounterName) -> bool) -> BTreeMap<usize, CounterName> {
        let unknown = |change| inserted(change).find(|counter| !is_known(counter)).cloned();
        let all = self.changes.iter().enumerate().filter(|_| !self.unknown);
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
    /// The command that carries out what somebody asks for, decided on this state and on what is known of counters.
    ///
    /// # Errors
    /// Apply would refuse it: there are too many, or none, the author is too long, or, where not each is for itself, which change, and why.
    pub fn edges_asked(
        &self,
        asked: &EdgesAsked,
        author: EdgeAuthor<'_>,
        is_known: impl Fn(&CounterName) -> bool,
    ) -> Result<EdgesDecided, EdgesError> {
        let EdgesAsked { changes, lenient, each, .. } = asked;
        check_asked(changes.len(), author.by)?;
        if changes.is_empty() && !lenient && !each {
            return Err(EdgesError::Count(0));
        }
        let strange = asked.strange(is_known);
        let places: Vec<usize> = (0..changes.len()).filter(|position| !strange.contains_key(position)).collect();
        let rest: Vec<_> = places.iter().map(|&position| changes[position].clone()).collect();
        let EdgesDecided { cmd, refused } = self.edges_each(&rest, author, *lenient)?;
        let refused = refused.into_iter().map(|(position, fault)| (places[position], fault));
        let strange = strange.into_iter().map(|(position, counter)| (position, EdgeFault::UnknownCounter(counter)));
        let mut refused: Vec<_> = refused.chain(strange).collect();
        refused.sort_by_key(|&(position, _)| position);
        match refused.first() {
            Some((position, fault)) if !each => {
                let (position, change) = (*position, Box::new(changes[*position].clone()));
                Err(EdgesError::Change { position, change, fault: Box::new(fault.clone()) })
            }
            _ => Ok(EdgesDecided { cmd, refused }),
        }
    }

    /// The command that changes edges, all of these or none, whether or not anything was counted of their counters. With `lenient`, edges to
    /// be inserted that are there and edges to be removed that are not are left out; `None` when nothing is left.
    ///
    /// # Errors
    /// As of [`Ledger::edges_asked`].
    pub fn edges(
        &self,
        changes: Vec<EdgeChange<CounterName>>,
        author: EdgeAuthor<'_>,
        lenient: bool,
    ) -> Result<Option<LedgerCmd>, EdgesError> {
        let asked = EdgesAsked { changes, lenient, each: false, unknown: true };
        Ok(self.edges_asked(&asked, author, |_| true)?.cmd)
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
        let tried = self.graph.tried(&self.namespaces, changes, lenient);
        let changes: Vec<_> = tried.changes.iter().map(|&(position, _)| changes[position].clone()).collect();
        let (revision, by) = (self.graph.revision, by.to_owned());
        let cmd = (!changes.is_empty()).then_some(LedgerCmd::Edges { revision, id, changes, at, by });
        Ok(EdgesDecided { cmd, refused: tried.refused })
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
