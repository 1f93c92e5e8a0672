//! Reads untrusted files: their kind and text ([`unpack`]), records of CSV ([`csv`]), and the columns of Parquet behind a guard
//! ([`parquet`]).
//!
//! Nothing here knows what a column is for.

pub mod csv;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod unpack;
