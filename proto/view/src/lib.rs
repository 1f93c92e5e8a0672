//! Totals of all data centres: views, gossip between them, queries, audits, and the machine of the aggregator that joins them.

pub mod aggregator;
pub mod asking;
pub mod audit;
pub mod gossip;
pub mod queries;
pub mod query;
mod stand;
pub mod view;
