//! Experiments with Tidemark: the demo, benches, soaks and the simulator.
//!
//! The program `tidemark-lab` has every command of `tidemark` besides. An experiment starts its nodes and aggregators from the very
//! program that it is itself, so what it measures was built with it.

pub mod bench;
pub mod cli;
pub mod cost;
pub mod demo;
pub mod figures;
pub mod sim;
pub mod soak;
