//! The accounts across data centres: replicated state ([`ledger`]), the rules of its leader ([`leader`]), claims of awards and
//! changes of edges.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod claiming;
pub mod edge_changes;
mod identities;
pub mod leader;
pub mod ledger;
