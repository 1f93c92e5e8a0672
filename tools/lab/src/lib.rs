//! Experiments with Tidemark: benches, soaks and the simulator, and the demo of `tidemark-demo`.
//!
//! The program `tidemark-lab` has every command of `tidemark` besides. An experiment starts its nodes and aggregators from the very
//! program that it is itself, so what it measures was built with it.

pub mod bench;
pub mod cli;
pub mod sim;
pub mod soak;
