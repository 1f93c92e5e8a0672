//! The common parts of both logs over redb: opening a file that is provably ours, typed failures, and group commit.

mod committer;
pub mod lsm;
mod merging;
mod open;
pub(crate) mod rows;
pub mod scratch;

pub use committer::{CommitStats, Execution, SubmitError};
pub(crate) use committer::{Committer, CommitterOptions, Cost, Persist};
pub use open::{Identity, OpenError, Schema, Source, open};
pub use rows::Row;

use std::fmt;
use std::io;

/// Why a transaction failed. The file is unchanged by it, and the log that met it has stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PersistError {
    /// No space is left on the device; free some and start the process again.
    #[error("no space is left on the device: {0}")]
    Full(String),
    /// The file contradicts itself; restore it or join as a new member.
    #[error("the database is corrupt: {0}")]
    Corrupt(String),
    /// The device failed, or refused the operation.
    #[error("storage failed: {0}")]
    Io(String),
}

impl PersistError {
    #[allow(clippy::wildcard_enum_match_arm, reason = "redb is of another crate and grows")]
    pub(crate) fn new(error: impl Into<redb::Error>) -> Self {
        match error.into() {
            redb::Error::Io(error) if is_full(&error) => Self::Full(error.to_string()),
            redb::Error::Corrupted(reason) => Self::Corrupt(reason),
            other => Self::Io(other.to_string()),
        }
    }

    pub(crate) fn corrupt(reason: impl fmt::Display) -> Self {
        Self::Corrupt(reason.to_string())
    }
}

impl From<PersistError> for io::Error {
    fn from(error: PersistError) -> Self {
        let kind = match &error {
            PersistError::Full(_) => io::ErrorKind::StorageFull,
            PersistError::Corrupt(_) => io::ErrorKind::InvalidData,
            PersistError::Io(_) => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

macro_rules! from_redb {
    ($($error:ty),*) => {$(
        impl From<$error> for PersistError {
            fn from(error: $error) -> Self {
                Self::new(error)
            }
        }
    )*};
}

from_redb!(redb::StorageError, redb::TableError, redb::CommitError, redb::TransactionError);

pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    // To a writer, a limit on the size of files is a full disk.
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
