//! A node: the process in a data centre that holds valves. It moves bytes between connections, the logs of its groups and
//! [`NodeCore`](tidemark_proto::node::NodeCore), which decides everything.
//!
//! This crate never looks into an increment, never counts, and never answers anything that the core did not say.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod connections;
mod events;
mod host;
mod log;
mod neighbours;
mod node;
mod places;
mod storage;

pub use host::{GroupStatus, Role};
pub use node::{Node, NodeOptions, NotReady, Statuses};
pub use storage::StartError;
