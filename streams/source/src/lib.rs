//! Files as sources: Parquet, CSV and JSON lines, plain or packed with gzip or zstd.
//!
//! * [`mapping`]: which column is what.
//! * [`value`]: what stands in a column, and what it means.
//! * [`rows`]: rows that were read.
//! * [`mod@file`]: the rows of a file, from the first on, in the same order each time.
//! * [`digest`]: which source a file is.

pub mod digest;
mod error;
pub mod file;
mod lines;
pub mod mapping;
pub mod rows;
mod table;
pub mod value;
