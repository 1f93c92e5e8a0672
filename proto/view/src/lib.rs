//! Totals of all data centres: views, gossip between them, queries, audits, and the machine of the aggregator that joins them.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod aggregator;
pub mod asking;
pub mod gossip;
pub mod queries;
pub mod query;
mod stand;
pub mod view;
