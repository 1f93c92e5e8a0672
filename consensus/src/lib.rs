//! Replicated logs of opaque commands.
//!
//! Logs with one contract: commands go in as bytes, come out in one order, and are never reported before they are durable. [`local`] is the
//! log of a data centre with one node; [`raft`] replicates over several, for a state machine in memory; [`replica`] does so for a state
//! machine that persists its own rows.
//!
//! This crate never looks into a command, knows nothing about counters, and opens no socket: messages leave through
//! [`raft::RaftTransport`], which a shell implements.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod local;
pub mod raft;
pub mod replica;

pub mod storage;
pub mod testing;
