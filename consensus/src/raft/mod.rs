//! A replicated log: openraft on redb, over a transport that a shell provides.
//!
//! Proposals are batched into entries, entries are pipelined to the followers, and every member applies the same
//! commands in the same order. Committed means: durable on a majority of voters. Learners receive and apply the log
//! without a vote. See [`RaftNode`].

mod config;
pub(crate) mod log_store;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod propose;
mod runtime;
pub(crate) mod serve;
pub(crate) mod snapshot;
mod state_machine;
pub(crate) mod tables;
mod transport;
pub(crate) mod types;
pub(crate) mod wire;

pub use crate::storage::{CommitStats, Execution, OpenError, Source};
pub use config::{Config, Timing};
pub use log_store::LogStore;
pub use node::{
    ChangeError, FoundError, LeaderWatch, Metrics, MetricsWatch, RaftNode, ReadError, StartError, found_with_state,
};
pub use propose::ProposeError;
pub use runtime::{Runtime, seed_thread};
pub use state_machine::{App, ApplyError, Builder, OnApplied, RestoreError, StateMachine};
pub use transport::{CallKind, DUPLEX_MESSAGES_MAX, Duplex, RaftService, RaftTransport, ServeError, Unreachable};
pub use types::{Batch, TornBatch, TypeConfig};
