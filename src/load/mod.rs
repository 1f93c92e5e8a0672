//! Loading history from files: reading rows, the journal, and moving what the loader of the core says.
//!
//! Nothing here decides what is counted: [`tidemark_proto::load`] does, and of rows with ids the groups that own these.

pub mod columns;
pub mod drive;
mod fault;
pub mod ids;
pub mod journal;
mod json;
pub mod keyed;
pub mod meter;
pub mod outage;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod rows;
#[cfg(test)]
pub mod tests;

pub use columns::Naming;
pub use journal::{Journal, JournalError};
pub use rows::{RowError, Source};
