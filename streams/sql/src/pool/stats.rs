//! Counts of queries and children since the start of the pool.

use std::collections::BTreeMap;

/// Why a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ended {
    /// It has answered `CHILD_QUERIES_MAX` queries.
    Queries,
    /// It held more memory after a query than `CHILD_GROWTH_BYTES_MAX` beyond its start.
    Growth,
    /// Another tenant needed its place.
    Tenant,
    /// A quick query needed the turn of its slow query.
    Displaced,
    /// It worked further behind others than the next query of its tenant has to.
    Priority,
    /// A query exceeded its memory.
    Memory,
    /// A query exceeded its time.
    Time,
    /// The server cancelled the query, or its client disconnected.
    Abandoned,
    /// It ended by itself, or another process killed it.
    Crashed,
    /// It found an error in itself.
    Failed,
    /// It sent an invalid message.
    Protocol,
}

/// Counts since the start.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Queries with a result.
    pub answered: u64,
    /// Queries without a result, by code.
    pub refused: BTreeMap<&'static str, u64>,
    /// Time of children.
    pub seconds: f64,
    /// Rows that were sent to children.
    pub rows: u64,
    pub started: u64,
    pub ended: BTreeMap<Ended, u64>,
}

impl Ended {
    pub const ALL: [(Ended, &'static str); 11] = [
        (Ended::Queries, "queries"),
        (Ended::Growth, "growth"),
        (Ended::Tenant, "tenant"),
        (Ended::Displaced, "displaced"),
        (Ended::Priority, "priority"),
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
