//! What happened to queries and children since the start.

use std::collections::BTreeMap;

/// Why a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ended {
    /// It has answered as many queries as a child answers.
    Queries,
    /// It held more memory after a query than at its start.
    Growth,
    /// Another tenant needed its place.
    Tenant,
    /// A query needed more memory than it may have.
    Memory,
    /// A query took longer than it may.
    Time,
    /// The query was given up, or its reader went away.
    Abandoned,
    /// It ended by itself or was killed by others.
    Crashed,
    /// It found an error in itself.
    Failed,
    /// It sent what is no answer.
    Protocol,
}

/// Numbers since the start.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Queries with a result.
    pub answered: u64,
    /// Queries without one, by code.
    pub refused: BTreeMap<&'static str, u64>,
    /// Time of children.
    pub seconds: f64,
    /// Rows that were sent to children.
    pub rows: u64,
    pub started: u64,
    pub ended: BTreeMap<Ended, u64>,
}

impl Ended {
    pub const ALL: [(Ended, &'static str); 9] = [
        (Ended::Queries, "queries"),
        (Ended::Growth, "growth"),
        (Ended::Tenant, "tenant"),
        (Ended::Memory, "memory"),
        (Ended::Time, "time"),
        (Ended::Abandoned, "abandoned"),
        (Ended::Crashed, "crashed"),
        (Ended::Failed, "failed"),
        (Ended::Protocol, "protocol"),
    ];
}

impl Stats {
    /// Children that run.
    pub fn alive(&self) -> u64 {
        self.started.saturating_sub(self.ended.values().sum())
    }

    pub(super) fn count_refusal(&mut self, code: &'static str) {
        *self.refused.entry(code).or_default() += 1;
    }

    pub(super) fn count_end(&mut self, ended: Ended) {
        *self.ended.entry(ended).or_default() += 1;
    }
}
