//! Rollup rows as Parquet: sorted by tenant, listing, hour and type, with page indexes, so that a tenant is a few pages.
//!
//! Columns: `tenant`, `listing`, `hour` (microseconds, UTC), `type`, `q0` to `q3` (the quarters of the hour) and `n`, their sum.
//! The footer says where the rows come from ([`Footer`]) and has a checksum over them.

mod read;
mod write;

pub use read::{Wanted, decode};
pub use write::encode;

use parquet::errors::ParquetError;
use std::collections::BTreeMap;
use tidemark_streams_core::blob::BlobKey;
use tidemark_streams_core::owner::{Origin, Put};
use tidemark_streams_core::rollup::{RollupRow, RowError};
use xxhash_rust::xxh3::Xxh3Default;

/// The version of the layout.
const FORMAT: &str = "tidemark-rollups-1";
const SCHEMA: &str = "message rollups {
    required binary tenant (STRING) = 1;
    required binary listing (STRING) = 2;
    required int64 hour (TIMESTAMP(MICROS,true)) = 3;
    required binary type (STRING) = 4;
    required int32 q0 = 5;
    required int32 q1 = 6;
    required int32 q2 = 7;
    required int32 q3 = 8;
    required int64 n = 9;
}";
/// Columns, in the order of the schema.
const TENANT: usize = 0;
const LISTING: usize = 1;
const HOUR: usize = 2;
const TYPE: usize = 3;
const QUARTERS: [usize; 4] = [4, 5, 6, 7];
const SUM: usize = 8;
const COLUMNS: usize = 9;
const HOUR_US: i64 = 3_600_000_000;

/// Rows of a group, and of a page.
const GROUP_ROWS: usize = 128 << 10;
const PAGE_ROWS: usize = 8 << 10;

const FORMAT_KEY: &str = "tidemark.format";
const CHECKSUM_KEY: &str = "tidemark.checksum";

/// Why rows cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    #[error("Parquet: {0}")]
    Parquet(#[from] ParquetError),
    #[error("its format is {found:?}, and this program reads {FORMAT:?}")]
    Format { found: String },
    #[error("its columns are not those of rollups")]
    Schema,
    #[error("its rows are damaged: {0}")]
    Damaged(&'static str),
    #[error("its rows are damaged: {0}")]
    Row(#[from] RowError),
    #[error("its rows have the checksum {found:016x}, and its footer says {expected:?}")]
    Checksum { found: u64, expected: String },
}

/// The description of a blob in its footer, as keys and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer(BTreeMap<String, String>);

impl Footer {
    pub fn of(put: &Put, directory: &str) -> Footer {
        let BlobKey { partition, epoch, seq, part } = put.key;
        let mut values = vec![
            (FORMAT_KEY, FORMAT.to_owned()),
            ("tidemark.directory", directory.to_owned()),
            ("tidemark.level", put.level.to_string()),
            ("tidemark.scope", put.scope.to_string()),
            ("tidemark.p", partition.0.to_string()),
            ("tidemark.epoch", epoch.0.to_string()),
            ("tidemark.seq", seq.0.to_string()),
            ("tidemark.part", part.to_string()),
        ];
        match &put.origin {
            Origin::Source { source, from, to } => {
                values.push(("tidemark.source", source.0.iter().map(|byte| format!("{byte:02x}")).collect()));
                values.push(("tidemark.from", from.to_string()));
                values.push(("tidemark.to", to.to_string()));
            }
            Origin::Blobs(blobs) => {
                let names: Vec<String> = blobs.iter().map(BlobKey::to_string).collect();
                values.push(("tidemark.removed", names.join(" ")));
            }
        }
        Footer(values.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }
}

/// A checksum over rows, in their order.
#[derive(Default)]
struct Checksum(Xxh3Default);

impl Checksum {
    fn add(&mut self, row: &RollupRow<'_>) {
        for text in [row.tenant, row.listing, row.event_type] {
            self.0.update(&(text.len() as u32).to_le_bytes());
            self.0.update(text.as_bytes());
        }
        self.0.update(&row.hour.0.to_le_bytes());
        row.quarters.iter().for_each(|count| self.0.update(&count.to_le_bytes()));
    }

    fn value(&self) -> u64 {
        self.0.digest()
    }
}

#[cfg(test)]
mod tests;
