//! Raft over networks in memory and real files: members of a log of bytes, and of logs whose owners keep the rows of the state.
//!
//! One program, since each that drives openraft compiles it anew.

mod common;
mod crash;
mod garbage;
mod members;
mod replica;
mod replica_common;
mod replica_crash;
mod replica_members;
mod suite;
