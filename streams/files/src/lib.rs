//! Reads files that anybody may have written: what a file is and its text ([`unpack`]), records of CSV ([`csv`]), and a guard around the
//! library that reads Parquet ([`parquet`]).
//!
//! Nothing here knows what the columns of a file mean.

pub mod csv;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod unpack;
