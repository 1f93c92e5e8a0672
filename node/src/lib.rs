//! A node: the process in a data centre that holds valves. It moves bytes between connections, the group's log and
//! [`NodeCore`](tidemark_proto::node::NodeCore), which decides everything.
//!
//! This crate never looks into an increment, never counts, and never answers anything that the core did not say.

mod connections;
mod host;
mod storage;

pub use host::{Node, NodeOptions, NodeStatus};
pub use storage::StartError;
