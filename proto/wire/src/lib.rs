//! Messages between processes and log entries: their encoding and their bounds.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod counter_order;
pub mod framed;
pub mod msg;
pub mod named;
pub mod read;
pub mod scope;
pub mod shards;
pub mod wait;
pub mod wire;
