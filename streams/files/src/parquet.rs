//! What stands between a file of Parquet and the library that reads it.

pub mod guard;
mod walk;
