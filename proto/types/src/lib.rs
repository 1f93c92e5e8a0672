//! The types that all rules share: names and numbers of counters, limits, time, calendars and series, tables of cells, graphs.
//!
//! Nothing here knows a message.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod alloc;
pub mod audit;
pub mod graph;
pub mod hash;
pub mod ids;
pub mod limits;
pub mod number_table;
pub mod numbers;
pub mod owners;
pub mod placement;
pub mod ring;
pub mod row_changes;
pub mod series;
pub mod shelf;
pub mod table;
pub mod teeth;
pub mod time;
pub mod warm;
