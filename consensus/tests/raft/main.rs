//! Raft over networks in memory and real files: members of a log of bytes, and of logs with owners that keep the rows of the state.
//!
//! All in one program, since each program that drives openraft compiles it anew.

mod common;
mod crash;
mod garbage;
mod members;
mod replica;
mod replica_common;
mod replica_crash;
mod replica_members;
mod suite;
