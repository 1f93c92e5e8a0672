//! Messages between parent and child: a length of four bytes, and a postcard encoding.
//!
//! Parent and child are of one release: the first message of a child names the version, and a parent refuses any other version.

mod packed;

use crate::limits::{
    DIMENSIONS_MAX, FRAME_BYTES_MAX, FRAME_ROWS_MAX, PARAM_BYTES_MAX, PARAMS_MAX, SQL_BYTES_MAX, UPLOAD_BYTES_MAX,
    UPLOAD_COLUMNS_MAX, UPLOAD_NAME_BYTES_MAX, UPLOADS_MAX,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// The version of the messages.
pub const VERSION: u32 = 7;
/// Bytes of the length in front of a message.
pub const HEAD_BYTES: usize = 4;
/// The largest count of a quarter of an hour in one row.
const QUARTER_COUNT_MAX: u32 = i32::MAX as u32;
/// The first hour that no row has, since 1970: in the year 2448.
const HOURS_MAX: u32 = 1 << 22;
/// The first sum that no row has: above four quarters of at most `QUARTER_COUNT_MAX`.
const SUM_END: u64 = 1 << 33;
const _: () = assert!(SUM_END.is_power_of_two() && SUM_END > 4 * QUARTER_COUNT_MAX as u64);
const _: () = assert!(HOURS_MAX.is_power_of_two() && (QUARTER_COUNT_MAX + 1).is_power_of_two());

/// From the parent to a child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    Query(Query),
    Rows(Rows),
    /// All rows were sent.
    RowsEnd,
    /// The planned query is cancelled. The child does not reply, and waits for the next query.
    GiveUp,
    /// A file follows in parts, and then `RowsEnd`. The child replies with its columns.
    Inspect(Inspect),
    /// A part of an uploaded file. Parts of a file arrive in their order.
    Upload(UploadPart),
}

/// The limits of a file that is inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspect {
    /// Memory for its columns.
    pub memory_bytes: u64,
}

/// A part of an uploaded file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadPart {
    /// The table, as an index into `Query::uploads`. It is 0 for a file that is inspected.
    pub table: u32,
    pub bytes: Bytes,
}

/// From a child to the parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The child runs.
    Hello { version: u32 },
    /// The text is a query that may run. The child waits for rows.
    Planned(Planned),
    /// The inspected file is a table.
    Inspected(Inspected),
    /// The query has no result. The child waits for the next query.
    Refused { refusal: Refusal, message: String },
    /// The columns of the result.
    Columns(Vec<Column>),
    /// Bytes of the result in the format of the query.
    Output(Bytes),
    /// The result is complete.
    Done { rows: u64 },
}

/// A query of a tenant. The child never learns the tenant's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Query {
    pub sql: String,
    pub params: Vec<Param>,
    /// The zone of `impressions_local()`.
    pub zone: String,
    /// Event types with a table of their own.
    pub types: Vec<String>,
    /// Dimensions of events. Each table has a column for each.
    pub dimensions: Vec<String>,
    /// Tables that the tenant has uploaded.
    pub uploads: Vec<UploadedTable>,
    pub format: Format,
    /// Rows of the result.
    pub rows_max: u64,
    /// Bytes of the result.
    pub bytes_max: u64,
    /// Memory of the query, with the rows that it reads.
    pub memory_bytes: u64,
}

/// A value for `$1`, `$2`, and so on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Param {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
}

/// The format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// Objects, separated by commas.
    Json,
    Csv,
    /// Arrow's stream of record batches.
    ArrowStream,
    /// Arrow's file: the record batches, and where each of them begins.
    ArrowFile,
}

/// The input of a planned query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// The columns of rows that it reads. `None`: it names no table of events.
    pub reads: Option<ReadColumns>,
    /// The uploaded tables that it names, as indexes into `Query::uploads`.
    pub uploads: Vec<u32>,
}

/// The columns of rows that a query reads. The parent sends no others. A query may read none, and count the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadColumns {
    pub listing: bool,
    pub event_type: bool,
    pub hour: bool,
    pub counts: ReadCounts,
    /// By the dimensions of the query.
    pub values: [bool; DIMENSIONS_MAX],
}

/// The counts of rows that a query reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ReadCounts {
    #[default]
    None,
    /// The sum of the quarters of each row.
    Sums,
    Quarters,
}

/// A table that a tenant has uploaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadedTable {
    pub name: String,
    pub columns: Vec<UploadColumn>,
}

/// A column of an uploaded table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadColumn {
    pub name: String,
    pub kind: UploadKind,
}

/// The type of a column of an uploaded table. All of its values have it, or are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UploadKind {
    Bool,
    Int,
    Float,
    Date,
    Time,
    Text,
}

/// The columns and the number of rows of an inspected file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspected {
    pub columns: Vec<UploadColumn>,
    pub rows: u64,
}

/// Rows of the tenant, by columns. A column that the query does not read may be empty. A message without columns has any number of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rows {
    /// Listings, and the number of rows of each in turn. Where the query reads no listing, one run without a text has all rows.
    pub listings: Vec<ListingRun>,
    /// Names of event types.
    pub types: Vec<String>,
    /// The type of each row, as an index into `types`.
    pub type_of: Bytes,
    /// Hours since 1970.
    #[serde(with = "packed::hours")]
    pub hours: Vec<u32>,
    /// Counts of the quarters of the hour.
    #[serde(with = "packed::quarters")]
    pub quarters: Vec<[u32; 4]>,
    /// The sum of the quarters of each row, for a query that reads no quarters.
    #[serde(with = "packed::sums")]
    pub sums: Vec<u64>,
    /// The values of the dimensions of the query, in their order.
    pub values: Vec<ValueColumn>,
}

/// The values of a dimension.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueColumn {
    pub texts: Vec<String>,
    /// The value of each row, as an index into `texts`. `None`: the row has no value.
    pub value_of: Vec<Option<u32>>,
}

/// Consecutive rows of one listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingRun {
    pub listing: String,
    pub rows: u32,
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    /// The type, as SQL and Arrow name it.
    pub kind: String,
}

/// Why a child refuses a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Refusal {
    /// It is not SQL.
    Syntax,
    /// It is SQL that no tenant may run.
    NotAllowed,
    /// It is nested too deeply, or has too many parts.
    Complex,
    /// It names an unknown table, column or function, or types do not match.
    Plan,
    /// Values for `$1` and so on are missing or wrong.
    Params,
    /// A value could not be computed, such as a division by zero.
    Execution,
    Memory,
    ResultRows,
    ResultBytes,
    /// An uploaded file is not a table.
    Upload,
    /// The child found an error in itself, and ends.
    Internal,
}

/// The reason for which bytes are not a valid message.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("a message of {bytes} bytes: at most {FRAME_BYTES_MAX}")]
    TooLong { bytes: usize },
    #[error("no message: {0}")]
    Malformed(#[from] postcard::Error),
    #[error("no message: bytes after its end")]
    Rest,
    #[error("a message with {0}")]
    Invalid(&'static str),
}

impl Rows {
    /// Rows of which a query reads no column, but counts them.
    pub fn counted(rows: u32) -> Rows {
        Rows { listings: vec![ListingRun { listing: String::new(), rows }], ..Rows::default() }
    }

    /// Whether no column is there.
    fn are_counted(&self) -> bool {
        let Rows { listings, types, type_of, hours, quarters, sums, values } = self;
        let has_texts = listings.iter().any(|run| !run.listing.is_empty()) || !types.is_empty();
        !has_texts
            && type_of.is_empty()
            && [hours.len(), quarters.len(), sums.len()] == [0; 3]
            && values.iter().all(|column| column.value_of.is_empty())
    }

    pub fn len(&self) -> usize {
        self.listings.iter().map(|run| run.rows as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether each column is there that a query reads.
    pub fn has(&self, columns: &ReadColumns) -> bool {
        let len = self.len();
        let ReadColumns { listing, event_type, hour, counts, values } = *columns;
        let has_value = |(at, reads): (usize, bool)| {
            !reads || self.values.get(at).is_some_and(|column| column.value_of.len() == len)
        };
        (!listing || self.listings.iter().all(|run| !run.listing.is_empty()))
            && (!event_type || self.type_of.len() == len)
            && (!hour || self.hours.len() == len)
            && match counts {
                ReadCounts::None => true,
                ReadCounts::Sums => self.sums.len() == len,
                ReadCounts::Quarters => self.quarters.len() == len,
            }
            && values.into_iter().enumerate().all(has_value)
    }

    /// The same rows with the columns that a query reads.
    #[must_use]
    pub fn only(&self, columns: &ReadColumns) -> Rows {
        let ReadColumns { listing, event_type, hour, counts, values } = *columns;
        let all = ListingRun { listing: String::new(), rows: self.len() as u32 };
        let (quarters, sums) = match counts {
            ReadCounts::None => (Vec::new(), Vec::new()),
            ReadCounts::Sums => (Vec::new(), self.quarters.iter().map(sum).collect()),
            ReadCounts::Quarters => (self.quarters.clone(), Vec::new()),
        };
        let value = |(at, column): (usize, &ValueColumn)| match values.get(at) {
            Some(true) => column.clone(),
            Some(false) | None => ValueColumn::default(),
        };
        Rows {
            listings: if listing { self.listings.clone() } else { vec![all] },
            types: if event_type { self.types.clone() } else { Vec::new() },
            type_of: if event_type { self.type_of.clone() } else { Bytes::new() },
            hours: if hour { self.hours.clone() } else { Vec::new() },
            quarters,
            sums,
            values: self.values.iter().enumerate().map(value).collect(),
        }
    }

    /// # Errors
    /// Columns of different lengths, or a value outside its limit.
    pub fn check(&self) -> Result<(), FrameError> {
        let of_listings = self.listings.iter().try_fold(0_u32, |sum, run| sum.checked_add(run.rows));
        let len = of_listings.ok_or(FrameError::Invalid("too many rows"))? as usize;
        if len > FRAME_ROWS_MAX && !self.are_counted() {
            return Err(FrameError::Invalid("too many rows"));
        }
        let is_other = |column: usize| column != 0 && column != len;
        if [self.type_of.len(), self.hours.len(), self.quarters.len(), self.sums.len()].into_iter().any(is_other) {
            return Err(FrameError::Invalid("columns of different lengths"));
        }
        if self.type_of.iter().copied().max().is_some_and(|at| usize::from(at) >= self.types.len()) {
            return Err(FrameError::Invalid("an event type that it does not name"));
        }
        if self.values.len() > DIMENSIONS_MAX || self.values.iter().any(|column| is_other(column.value_of.len())) {
            return Err(FrameError::Invalid("columns of different lengths"));
        }
        let is_unnamed =
            |column: &ValueColumn| column.value_of.iter().flatten().any(|&at| at as usize >= column.texts.len());
        if self.values.iter().any(is_unnamed) {
            return Err(FrameError::Invalid("a value that it does not name"));
        }
        // The bitwise OR of numbers reaches a power of 2 only if one of the numbers does. The loops need no branches.
        let bit_or = |numbers: &[u32]| numbers.iter().fold(0, |all, number| all | number);
        if bit_or(&self.hours) >= HOURS_MAX {
            return Err(FrameError::Invalid("an hour after the last one"));
        }
        if bit_or(self.quarters.as_flattened()) > QUARTER_COUNT_MAX {
            return Err(FrameError::Invalid("a count above the limit of a quarter of an hour"));
        }
        if self.sums.iter().fold(0, |all, sum| all | sum) >= SUM_END {
            return Err(FrameError::Invalid("a sum above the limit of an hour"));
        }
        Ok(())
    }
}

/// The sum of the quarters of a row.
pub fn sum(quarters: &[u32; 4]) -> u64 {
    quarters.iter().map(|&count| u64::from(count)).sum()
}

impl Query {
    /// # Errors
    /// A part exceeds its limit. The parent refuses such a query earlier.
    pub fn check(&self) -> Result<(), FrameError> {
        let is_long = |param: &Param| matches!(param, Param::Text(text) if text.len() > PARAM_BYTES_MAX);
        if self.sql.len() > SQL_BYTES_MAX {
            return Err(FrameError::Invalid("a query that is too long"));
        }
        if self.params.len() > PARAMS_MAX || self.params.iter().any(is_long) {
            return Err(FrameError::Invalid("too many values, or a value that is too long"));
        }
        if self.dimensions.len() > DIMENSIONS_MAX {
            return Err(FrameError::Invalid("too many dimensions"));
        }
        if self.uploads.len() > UPLOADS_MAX || !self.uploads.iter().all(UploadedTable::is_within_limits) {
            return Err(FrameError::Invalid("too many uploaded tables, or an uploaded table outside its limits"));
        }
        Ok(())
    }
}

impl UploadedTable {
    fn is_within_limits(&self) -> bool {
        is_upload_name(&self.name) && are_upload_columns(&self.columns)
    }
}

impl Inspected {
    /// # Errors
    /// Too many columns, or the name of one is too long. A child refuses such a file.
    pub fn check(&self) -> Result<(), FrameError> {
        match are_upload_columns(&self.columns) {
            true => Ok(()),
            false => Err(FrameError::Invalid("columns of a file outside their limits")),
        }
    }
}

fn are_upload_columns(columns: &[UploadColumn]) -> bool {
    (1..=UPLOAD_COLUMNS_MAX).contains(&columns.len()) && columns.iter().all(|column| is_upload_name(&column.name))
}

fn is_upload_name(name: &str) -> bool {
    (1..=UPLOAD_NAME_BYTES_MAX).contains(&name.len())
}

impl UploadPart {
    /// # Errors
    /// A table beyond the limit, or no bytes.
    pub fn check(&self) -> Result<(), FrameError> {
        match self.table as usize >= UPLOADS_MAX || self.bytes.is_empty() || self.bytes.len() > UPLOAD_BYTES_MAX {
            true => Err(FrameError::Invalid("a part of an uploaded file outside its limits")),
            false => Ok(()),
        }
    }
}

impl Request {
    /// # Errors
    /// The bytes are no message.
    pub fn decode(bytes: &[u8]) -> Result<Request, FrameError> {
        let request: Request = decode(bytes)?;
        match &request {
            Request::Query(query) => query.check()?,
            Request::Rows(rows) => rows.check()?,
            Request::Upload(part) => part.check()?,
            Request::RowsEnd | Request::GiveUp | Request::Inspect(_) => {}
        }
        Ok(request)
    }
}

impl Reply {
    /// # Errors
    /// The bytes are no message.
    pub fn decode(bytes: &[u8]) -> Result<Reply, FrameError> {
        decode(bytes)
    }
}

fn decode<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(bytes)? {
        (message, []) => Ok(message),
        (_, _) => Err(FrameError::Rest),
    }
}

/// A message with its length in front.
///
/// # Errors
/// It is too long.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    let mut bytes = postcard::to_extend(message, vec![0; HEAD_BYTES])?;
    let length = body_length((bytes.len() - HEAD_BYTES) as u32)?;
    bytes[..HEAD_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(bytes)
}

/// The length of a message, by the number in front of it.
///
/// # Errors
/// It is too long.
pub fn body_length(number: u32) -> Result<usize, FrameError> {
    match number as usize {
        bytes if bytes > FRAME_BYTES_MAX => Err(FrameError::TooLong { bytes }),
        bytes => Ok(bytes),
    }
}

/// Writes a message.
///
/// # Errors
/// [`FrameError`].
pub fn write(to: &mut impl Write, message: &impl Serialize) -> Result<(), FrameError> {
    Ok(to.write_all(&encode(message)?)?)
}

/// Reads the bytes of a message; `None` at the end.
///
/// # Errors
/// [`FrameError`].
pub fn read(from: &mut impl Read) -> Result<Option<Vec<u8>>, FrameError> {
    let mut head = [0; HEAD_BYTES];
    match from.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let length = body_length(u32::from_le_bytes(head))?;
    // `read_exact` would need a buffer of zeros first.
    let mut body = Vec::with_capacity(length);
    from.take(length as u64).read_to_end(&mut body)?;
    match body.len() == length {
        true => Ok(Some(body)),
        false => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
}

#[cfg(test)]
mod tests;
