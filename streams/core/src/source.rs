//! Sources of rows, and positions in them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Which source: the digest of a file's content and of how its columns are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SourceId(pub [u8; 32]);

/// A number that stands for how the rows of a source are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadingId(pub u64);

/// How far a partition has counted a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceState {
    /// How its rows are read: which column is what. Rows that are read in another way are refused.
    pub reading: ReadingId,
    /// The next row to read. Every row below it is in exactly one live blob, or is a dead letter.
    pub next_row: u64,
    /// Whether the source has no further row.
    pub is_complete: bool,
    /// Rows that were accepted, and dead letters that were replayed.
    pub accepted: u64,
    /// Rows that are dead letters.
    pub dead_letters: u64,
    /// Rows with dropped dead letters.
    pub dropped: u64,
}

/// The first eight bytes, in hexadecimal: enough to tell sources apart in a message.
impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
