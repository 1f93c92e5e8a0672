//! Hostile surroundings for tests and the simulator: a disk that keeps only what was synced, a network in memory.

mod crash;
mod network;

pub use crash::{CrashDisk, CrashPoint};
pub use network::{Link, MemoryNetwork};
