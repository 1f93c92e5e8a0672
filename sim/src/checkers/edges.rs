//! Edges: changes are carried out together and once, or not at all; no edge closes a cycle; the caller is told the first wrong change, or
//! each.

use super::Findings;
use crate::plan::edges::COUNTERS_MAX;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_proto::graph::{Edge, EdgeChange};
use tidemark_proto::ledger::{EdgesCount, EdgesFate, Ledger};

const NAME: &str = "edges";

/// Counters by number, one bit each.
pub type Set = u64;

/// A graph of few counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Small {
    edges: BTreeSet<(usize, usize)>,
    /// By counter.
    ancestors: Vec<Set>,
}

/// Changes that a caller asks for, and how.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub changes: &'a [EdgeChange<usize>],
    pub lenient: bool,
    /// Each change is for itself.
    pub each: bool,
}

/// A batch of changes in the log.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The revision of the graph that it was decided on.
    pub revision: u64,
    pub id: u64,
    pub lenient: bool,
    pub changes: &'a [EdgeChange<usize>],
}

/// The fate of a batch in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    CarriedOut,
    /// It was decided before whether it is.
    Copy,
    Wrong,
}

/// Every graph that the ledger had.
#[derive(Clone, Debug)]
pub struct Edges {
    /// Numbers of commands of which it was decided whether they are carried out, in order, and of those that are.
    decided: Vec<u64>,
    carried_out: BTreeMap<u64, EdgesCount>,
    changes: Vec<EdgeChange<usize>>,
    /// The graph after each number of changes.
    graphs: Vec<Small>,
}

impl Small {
    fn new() -> Small {
        Small { edges: BTreeSet::new(), ancestors: vec![0; COUNTERS_MAX] }
    }

    /// From which counters one can be reached.
    pub fn ancestors(&self, of: usize) -> Set {
        self.ancestors[of]
    }

    /// Whether it may be made; it is, then.
    fn change(&mut self, change: EdgeChange<usize>) -> bool {
        let Edge { from, to } = *change.edge();
        let done = match change {
            EdgeChange::Insert(_) => from != to && self.ancestors[from] >> to & 1 == 0 && self.edges.insert((from, to)),
            EdgeChange::Remove(_) => self.edges.remove(&(from, to)),
        };
        if done {
            self.reach();
        }
        done
    }

    /// By brute force.
    fn reach(&mut self) {
        self.ancestors.fill(0);
        loop {
            let before = self.ancestors.clone();
            for &(from, to) in &self.edges {
                self.ancestors[to] |= self.ancestors[from] | 1 << from;
            }
            if before == self.ancestors {
                return;
            }
        }
    }

    /// Whether a change that must not be made would only do what is done.
    fn is_needless(&self, change: EdgeChange<usize>) -> bool {
        let edge = change.edge();
        self.edges.contains(&(edge.from, edge.to)) == matches!(change, EdgeChange::Insert(_))
    }
}

impl Default for Edges {
    fn default() -> Edges {
        Edges { decided: Vec::new(), carried_out: BTreeMap::new(), changes: Vec::new(), graphs: vec![Small::new()] }
    }
}

impl Edges {
    /// The graph after this number of changes.
    pub fn graph(&self, index: u64) -> Option<&Small> {
        self.graphs.get(index as usize)
    }

    /// The number of commands that were decided, carried out or not.
    pub fn revision(&self) -> u64 {
        self.decided.len() as u64
    }

    /// The answer of a replica about a number that was asked for again.
    pub fn again(&self, findings: &mut Findings, id: u64, told: Option<EdgesCount>) {
        let known = self.carried_out.get(&id).copied();
        let is_so = told.is_none_or(|told| known == Some(told));
        findings.check(NAME, is_so, || format!("of number {id} {told:?} is told, and {known:?} was changed"));
    }

    /// The newest one.
    pub fn last(&self) -> &Small {
        self.graphs.last().expect("one without edges at least")
    }

    /// The change behind this number of changes.
    pub fn change(&self, index: u64) -> Option<EdgeChange<usize>> {
        self.changes.get(index as usize).copied()
    }

    pub fn changes(&self) -> &[EdgeChange<usize>] {
        &self.changes
    }

    /// Each change that must not be made on the graph after `index` changes and those before it that may.
    fn wrong(&self, index: u64, changes: &[EdgeChange<usize>], lenient: bool) -> Vec<usize> {
        let Some(mut graph) = self.graph(index).cloned() else { return Vec::new() };
        let mut may = |change| graph.change(change) || lenient && graph.is_needless(change);
        (0..changes.len()).filter(|&position| !may(changes[position])).collect()
    }

    /// A caller asked a replica that is at `index`, was told the refused changes, and the others were proposed to the ledger. If each
    /// change is for itself, all wrong changes are refused and the others pass; else the first, and all or none.
    pub fn decided(
        &self,
        findings: &mut Findings,
        index: u64,
        asked: &Asked<'_>,
        told: &[usize],
        said: &[EdgeChange<usize>],
    ) {
        let Asked { changes, lenient, each } = *asked;
        let mut wrong = self.wrong(index, changes, lenient);
        let right = (0..changes.len()).filter(|position| !wrong.contains(position)).map(|position| changes[position]);
        let right: Vec<_> = right.filter(|_| each || wrong.is_empty()).collect();
        wrong.truncate(if each { wrong.len() } else { 1 });
        findings.check(NAME, wrong == told && said == right, || {
            format!("of {changes:?} after {index} changes {wrong:?} are wrong; told were {told:?}, and said {said:?}")
        });
    }

    /// The ledger has read a batch, and is in this state; `number` tells counters.
    pub fn applied(
        &mut self,
        findings: &mut Findings,
        batch: &Batch<'_>,
        ledger: &Ledger,
        number: impl Fn(&[u8]) -> usize,
    ) -> Fate {
        let Batch { revision, id, lenient, changes } = *batch;
        let before = self.changes.len();
        let wrong = self.wrong(before as u64, changes, lenient);
        let is_copy = self.decided[revision as usize..].contains(&id);
        let fate = match wrong[..] {
            _ if is_copy => Fate::Copy,
            [] => Fate::CarriedOut,
            _ => Fate::Wrong,
        };
        if !is_copy {
            self.decided.push(id);
        }
        if fate == Fate::CarriedOut {
            for &change in changes {
                let mut graph = self.last().clone();
                if graph.change(change) {
                    self.changes.push(change);
                    self.graphs.push(graph);
                }
            }
        }
        let graph = ledger.graph();
        let told = graph.fate(revision, id);
        let is_told = match fate {
            Fate::CarriedOut => {
                let made = EdgesCount::of(&self.changes[before..]);
                told == EdgesFate::CarriedOut(made) && self.carried_out.insert(id, made).is_none()
            }
            Fate::Wrong => told == EdgesFate::Refused,
            Fate::Copy => told != EdgesFate::Open,
        };
        findings.check(NAME, is_told, || format!("{changes:?}, number {id}, are {fate:?}; {told:?} is told, or twice"));
        let of = |vertex| number(graph.name(vertex).key());
        let held: BTreeSet<(usize, usize)> = graph.dag().edges().map(|edge| (of(edge.from), of(edge.to))).collect();
        let revision = self.revision();
        let index = self.changes.len() as u64;
        let same = held == self.last().edges && (graph.revision(), graph.index()) == (revision, index);
        findings.check(NAME, same, || {
            format!("{changes:?} are {fate:?}; the ledger is at revision {} with {held:?}", graph.revision())
        });
        fate
    }
}
