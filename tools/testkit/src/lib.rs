//! The tools that tests and experiments put around Tidemark's processes.

pub mod relay;
