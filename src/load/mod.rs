//! Loading history from files: reading rows, the journal, and moving what the loader of the core says.
//!
//! Nothing here decides what is counted: [`tidemark_proto::load`] does.

pub mod drive;
pub mod journal;
pub mod meter;
pub mod outage;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod rows;

pub use journal::{Journal, JournalError};
pub use rows::{Naming, RowError, Source};
