//! The demo: the reference layout on this machine, with real sockets, measured distances and a real query log. Its program is
//! `tidemark-demo`; `tidemark-lab` has it as a command, and builds its benches on it.

pub mod arrivals;
pub mod closing;
pub mod converge;
pub mod cost;
pub mod figures;
pub mod generator;
pub mod load;
pub mod messages;
pub mod options;
pub mod query_log;
pub mod run;
pub mod subscribers;
pub mod table;

/// The key of a cold cell, as long as a key of the reference counters: 24 bytes.
pub fn cold_key(cell: usize) -> String {
    format!("search/cold/{cell:012}")
}
