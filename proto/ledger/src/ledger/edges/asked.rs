//! Changes of edges that somebody asks for, decided on the graph as it is.

use super::{EdgeFault, EdgesCount, EdgesError, Ledger};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::graph::{Edge, EdgeChange};
use tidemark_types::ids::CounterName;
use tidemark_types::limits::{EDGE_AUTHOR_BYTES_MAX, EDGE_CHANGES_PER_COMMAND_MAX};
use tidemark_types::time::WallMs;
use tidemark_wire::framed::few;
use tidemark_wire::msg::LedgerCmd;

/// Changes of edges that somebody asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgesAsked {
    /// Drawn by who asks: two with one number are one, wherever they are asked for.
    pub id: u64,
    /// In the order in which they are to be carried out.
    #[serde(deserialize_with = "few::<EDGE_CHANGES_PER_COMMAND_MAX, _, _, _>")]
    pub changes: Vec<EdgeChange<CounterName>>,
    /// What is there already is not inserted again, and what is not there not removed; else both are refused.
    pub lenient: bool,
    /// What is refused is left out and told, and the others are carried out; else one that is refused keeps all from it.
    pub each: bool,
    /// Edges may be inserted of counters of which nothing was counted; else they are refused, as a slip of the pen would be.
    pub allow_unknown: bool,
}

/// Who asks, when, and the number of what is asked for.
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
    /// Positions of those that were left out, counted from 0, and why.
    pub refused: Vec<(usize, EdgeFault)>,
    /// What it has changed, where one of its number was carried out.
    pub before: Option<EdgesCount>,
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
        self.changes.iter().filter(|_| !self.allow_unknown).flat_map(inserted)
    }

    /// Whether it may be asked for.
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
    /// The command that carries out what somebody asks for, decided on this state and on what is known of counters.
    ///
    /// # Errors
    /// Apply would refuse it: as of [`EdgesAsked::check`], or, where not each is for itself, which change, and why.
    pub fn edges_asked(
        &self,
        asked: &EdgesAsked,
        (at, by): (WallMs, &str),
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

    /// The command that changes edges, all of these or none, whether or not anything was counted of their counters. With `lenient`, edges to
    /// be inserted that are there and edges to be removed that are not are no fault: they are left out when it is applied, as the graph is then.
    ///
    /// # Errors
    /// As of [`Ledger::edges_asked`].
    pub fn edges(
        &self,
        changes: Vec<EdgeChange<CounterName>>,
        EdgeAuthor { at, by, id }: EdgeAuthor<'_>,
        lenient: bool,
    ) -> Result<Option<LedgerCmd>, EdgesError> {
        let asked = EdgesAsked { id, changes, lenient, each: false, allow_unknown: true };
        Ok(self.edges_asked(&asked, (at, by), |_| true)?.cmd)
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
