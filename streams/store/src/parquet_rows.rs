//! Rollup rows as Parquet: sorted by tenant, listing, hour and type, with page indexes, so that a tenant is a few pages.
//!
//! Columns: `tenant`, `listing`, `hour` (microseconds, UTC), `type`, `q0` to `q3` (the quarters of the hour) and `n`, their sum. A blob
//! with values of dimensions has format 2: an optional column for each dimension follows, and rows are sorted by tenant, values,
//! listing, hour and type.
//! The footer says where the rows come from ([`Footer`]) and has a checksum over them.

mod pages;
mod part;
mod read;
mod write;

pub use part::{Index, Part};
pub use read::{Wanted, decode, decode_with_footer};
pub use write::encode;

use crate::footer::{self, Footer};
use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::Type;
use tidemark_streams_core::limits::DIMENSIONS_MAX;
use tidemark_streams_core::owner::Put;
use tidemark_streams_core::rollup::{RollupRow, Rollups, RowError};
use tidemark_streams_core::values::is_dimension_name;
use xxhash_rust::xxh3::Xxh3Default;

/// The format of blobs without values of dimensions.
const FORMAT: &str = "tidemark-rollups-1";
/// The format of blobs with such values.
const FORMAT_WITH_VALUES: &str = "tidemark-rollups-2";
const COLUMNS_OF_ALL: &str = "
    required binary tenant (STRING) = 1;
    required binary listing (STRING) = 2;
    required int64 hour (TIMESTAMP(MICROS,true)) = 3;
    required binary type (STRING) = 4;
    required int32 q0 = 5;
    required int32 q1 = 6;
    required int32 q2 = 7;
    required int32 q3 = 8;
    required int64 n = 9;";
/// The field id of the column of dimension 0.
const FIRST_VALUE_ID: usize = 10;
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

const FORMAT_KEY: &str = footer::FORMAT;
const DIMENSIONS_KEY: &str = footer::DIMENSIONS;
const CHECKSUM_KEY: &str = footer::CHECKSUM;

/// Why rows cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    #[error("Parquet: {0}")]
    Parquet(#[from] ParquetError),
    #[error("its format is {found:?}, and this program reads {FORMAT:?} and {FORMAT_WITH_VALUES:?}")]
    Format { found: String },
    #[error("its footer names the dimensions {found:?}")]
    Dimensions { found: String },
    #[error("its columns are not those of rollups")]
    Schema,
    #[error("its rows are damaged: {0}")]
    Damaged(&'static str),
    #[error("its rows are damaged: {0}")]
    Row(#[from] RowError),
    #[error("its rows have the checksum {found:016x}, and its footer says {expected:?}")]
    Checksum { found: u64, expected: String },
    #[error("its bytes {from} to {to} are damaged: they differ from those that were read before")]
    Changed { from: u64, to: u64 },
}

/// Whether a file is as a writer writes it, so that a query of a tenant finds all rows of it by the bounds of pages.
///
/// # Errors
/// [`RowsError`]: the file cannot be read.
pub fn is_as_written(bytes: &Bytes, rows: &Rollups, footer: &Footer) -> Result<bool, RowsError> {
    let mut tenants: Vec<&str> = rows.iter().map(|row| row.tenant).collect();
    tenants.dedup();
    if !tenants.is_sorted() {
        return Ok(false);
    }
    if encode(rows, &footer.clone().without(CHECKSUM_KEY))? == *bytes {
        return Ok(true);
    }
    // Another version of the library may have written it.
    for tenant in tenants {
        let found = decode(bytes.clone(), Wanted::Tenant(tenant))?;
        if !found.iter().eq(rows.iter().filter(|row| row.tenant == tenant)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What a blob of rows says of itself.
pub fn footer_of(put: &Put, directory: &str) -> Footer {
    let footer = Footer::of(put, directory);
    let format = if footer.get(DIMENSIONS_KEY).is_some() { FORMAT_WITH_VALUES } else { FORMAT };
    footer.with(FORMAT_KEY, format.to_owned())
}

/// The schema of a file with columns for these dimensions.
fn schema(dimensions: &[&str]) -> Result<Type, ParquetError> {
    let column = |(at, name)| format!("optional binary {name} (STRING) = {};\n", FIRST_VALUE_ID + at);
    let of_values: String = dimensions.iter().enumerate().map(column).collect();
    parse_message_type(&format!("message rollups {{{COLUMNS_OF_ALL}\n{of_values}}}"))
}

/// The names of the dimensions with columns, by their numbers.
fn dimensions(footer: &Footer) -> Result<Vec<&str>, RowsError> {
    let Some(text) = footer.get(DIMENSIONS_KEY) else { return Ok(Vec::new()) };
    let names: Vec<&str> = text.split(',').collect();
    let is_twice = (1..names.len()).any(|at| names[..at].contains(&names[at]));
    match names.len() > DIMENSIONS_MAX || is_twice || !names.iter().all(|name| is_dimension_name(name)) {
        true => Err(RowsError::Dimensions { found: text.chars().take(80).collect() }),
        false => Ok(names),
    }
}

/// A checksum over rows, in their order.
#[derive(Default)]
struct Checksum {
    hasher: Xxh3Default,
    has_values: bool,
    /// Rows that are hashed together: a call for each value takes longer than hashing it.
    waiting: Vec<u8>,
}

/// Bytes that are hashed at once.
const HASHED_BYTES: usize = 8 << 10;

impl Checksum {
    fn of(rows: &Rollups) -> u64 {
        let mut checksum = Checksum { has_values: rows.has_values(), ..Checksum::default() };
        rows.iter().for_each(|row| checksum.add(&row));
        checksum.hasher.update(&checksum.waiting);
        checksum.hasher.digest()
    }

    fn add(&mut self, row: &RollupRow<'_>) {
        for text in [row.tenant, row.listing, row.event_type] {
            self.waiting.extend_from_slice(&(text.len() as u32).to_le_bytes());
            self.waiting.extend_from_slice(text.as_bytes());
        }
        if self.has_values {
            self.waiting.extend_from_slice(&(row.values.as_str().len() as u32).to_le_bytes());
            self.waiting.extend_from_slice(row.values.as_str().as_bytes());
        }
        self.waiting.extend_from_slice(&row.hour.0.to_le_bytes());
        row.quarters.iter().for_each(|count| self.waiting.extend_from_slice(&count.to_le_bytes()));
        if self.waiting.len() >= HASHED_BYTES {
            self.hasher.update(&self.waiting);
            self.waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests;
