//! What tests and experiments put around Tidemark's processes.

pub mod relay;
