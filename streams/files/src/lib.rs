//! Reads files that anybody may have written: what a file is and its text ([`unpack`]), records of CSV ([`csv`]), and the
//! columns of Parquet behind a guard ([`parquet`]).
//!
//! Nothing here knows what a column is for.

pub mod csv;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod unpack;
