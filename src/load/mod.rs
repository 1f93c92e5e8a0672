//! Loading history from files: reading rows, the journal, and moving what the loader of the core says.
//!
//! Nothing here decides what is counted: [`tidemark_proto::load`] does.

pub mod columns;
pub mod csv;
pub mod drive;
pub mod journal;
mod json;
pub mod meter;
pub mod outage;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod rows;
#[cfg(test)]
pub mod tests;
pub mod unpack;

pub use columns::Naming;
pub use journal::{Journal, JournalError};
pub use rows::{RowError, Source};
