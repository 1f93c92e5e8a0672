//! The deterministic simulator of event streams. A run is a function of one `u64`.
//!
//! A consumer group assigns one partition to several workers in turn, and sometimes two believe that they own it. The store loses unsynced
//! writes, the manifest's log delays and repeats proposals, and workers are killed and paused. A compaction worker proposes merges from an
//! old copy of the manifest, and the collector deletes files. All of it drives the shipped machines of `tidemark-streams-core`.
//!
//! [`archive`] runs the archive of raw events by itself, beside a log that is cut.
//!
//! [`checkers`] watch every applied command and every query.

pub mod archive;
pub mod checkers;
pub mod group;
pub mod helpers;
pub mod oracle;
pub mod rng;
pub mod spread;
pub mod store;
pub mod type_names;
pub mod worker;
pub mod world;

pub use world::{Outcome, run};
