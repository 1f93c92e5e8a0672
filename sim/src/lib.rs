//! The deterministic simulator of Tidemark's core. A run is a function of one `u64`: topology, faults and workload on virtual
//! time, over the very state machines that the shells drive; checkers, one file each, watch every step.
//!
//! This crate never does IO, reads no clock (the runner alone measures its own speed) and spawns no thread (the runner alone
//! sweeps on two).

pub mod checkers;
pub mod coverage;
pub mod disk;
pub mod engine;
pub mod net;
pub mod oracle;
pub mod party;
pub mod plan;
pub mod queue;
pub mod raft;
pub mod rng;
pub mod rtt;
pub mod runner;
pub mod script;
pub mod shrink;
pub mod teeth;
pub mod trace;
pub mod world;
