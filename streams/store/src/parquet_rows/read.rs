//! Reading: all rows, or those of a tenant, of which only some pages are decoded.

use super::{
    CHECKSUM_KEY, COLUMNS, Checksum, DIMENSIONS_KEY, FORMAT, FORMAT_KEY, FORMAT_WITH_VALUES, Footer, HOUR, HOUR_US,
    LISTING, PAGE_ROWS, QUARTERS, RowsError, SUM, TENANT, TYPE, dimensions, schema,
};
use bytes::Bytes;
use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::properties::ReaderProperties;
use parquet::file::reader::{ChunkReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedRowGroupReader;
use std::ops::Range;
use std::sync::Arc;
use tidemark_streams_core::rollup::{RollupRow, Rollups};
use tidemark_streams_core::time::Hour;
use tidemark_streams_core::values::{DimensionNumber, Values, push};

/// Which rows are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// All. The checksum of the footer is compared.
    All,
    Tenant(&'a str),
}

const FEWER_VALUES: RowsError = RowsError::Damaged("a column has fewer values than there are rows");

/// Columns of some rows.
#[derive(Default)]
struct Columns {
    tenants: Vec<ByteArray>,
    listings: Vec<ByteArray>,
    hours: Vec<i64>,
    types: Vec<ByteArray>,
    quarters: [Vec<i32>; 4],
    sums: Vec<i64>,
    /// Of each dimension with a column; `None`: the row has no value.
    values: Vec<Vec<Option<ByteArray>>>,
}

/// The columns of a row group, read up to one row.
struct Readers {
    tenants: ColumnReaderImpl<ByteArrayType>,
    listings: ColumnReaderImpl<ByteArrayType>,
    hours: ColumnReaderImpl<Int64Type>,
    types: ColumnReaderImpl<ByteArrayType>,
    quarters: [ColumnReaderImpl<Int32Type>; 4],
    sums: ColumnReaderImpl<Int64Type>,
    values: Vec<ColumnReaderImpl<ByteArrayType>>,
}

/// The rows of a blob. Its bytes are those that were stored: the checksum in the manifest was compared before.
///
/// # Errors
/// [`RowsError`]: it is no blob of rows, or damaged.
pub fn decode(bytes: Bytes, wanted: Wanted<'_>) -> Result<Rollups, RowsError> {
    read(bytes, wanted).map(|(rows, _)| rows)
}

/// All rows of a file, with what it says of itself. The checksum of the footer is compared.
///
/// # Errors
/// As of [`decode`].
pub fn decode_with_footer(bytes: Bytes) -> Result<(Rollups, Footer), RowsError> {
    read(bytes, Wanted::All)
}

fn read(bytes: Bytes, wanted: Wanted<'_>) -> Result<(Rollups, Footer), RowsError> {
    let metadata = metadata(&bytes)?;
    let footer = checked_footer(&metadata)?;
    let file = Arc::new(bytes);
    let mut rows = Rollups::new();
    for number in 0..metadata.num_row_groups() {
        let range = match wanted {
            Wanted::All => 0..count(&metadata, number)?,
            Wanted::Tenant(tenant) => rows_of(&metadata, number, tenant)?,
        };
        push_group(&group(&file, &metadata, number)?, range, wanted, &mut rows)?;
    }
    if wanted == Wanted::All {
        let found = Checksum::of(&rows);
        let expected = footer.get(CHECKSUM_KEY).unwrap_or_default();
        if format!("{found:016x}") != expected {
            return Err(RowsError::Checksum { found, expected: expected.to_owned() });
        }
    }
    Ok((rows, footer))
}

/// What a file says of its groups, columns and pages.
pub(super) fn metadata(bytes: &Bytes) -> Result<ParquetMetaData, RowsError> {
    let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
    Ok(reader.parse_and_finish(bytes)?)
}

/// A group of a file, or of the bytes of a file that hold it.
pub(super) fn group<'m, R: ChunkReader + 'static>(
    file: &Arc<R>,
    metadata: &'m ParquetMetaData,
    number: usize,
) -> Result<SerializedRowGroupReader<'m, R>, RowsError> {
    let properties = Arc::new(ReaderProperties::builder().build());
    let pages = metadata.page_index_for_row_group(number);
    Ok(SerializedRowGroupReader::new(Arc::clone(file), metadata.row_group(number), pages, properties)?)
}

pub(super) fn checked_footer(metadata: &ParquetMetaData) -> Result<Footer, RowsError> {
    let file = metadata.file_metadata();
    let pairs = file.key_value_metadata().into_iter().flatten();
    let footer = Footer(pairs.filter_map(|pair| Some((pair.key.clone(), pair.value.clone()?))).collect());
    let found = footer.get(FORMAT_KEY).unwrap_or_default();
    let expected = if footer.get(DIMENSIONS_KEY).is_some() { FORMAT_WITH_VALUES } else { FORMAT };
    if found != expected {
        return Err(RowsError::Format { found: found.to_owned() });
    }
    match *file.schema() == schema(&dimensions(&footer)?)? {
        true => Ok(footer),
        false => Err(RowsError::Schema),
    }
}

fn count(metadata: &ParquetMetaData, group: usize) -> Result<usize, RowsError> {
    usize::try_from(metadata.row_group(group).num_rows())
        .map_err(|_| RowsError::Damaged("a group has less than no row"))
}

/// The rows of the pages that may hold a tenant. Pages are sorted, so they follow each other.
pub(super) fn rows_of(metadata: &ParquetMetaData, group: usize, tenant: &str) -> Result<Range<usize>, RowsError> {
    let all = count(metadata, group)?;
    let index = metadata.page_index_for_row_group(group);
    let (Some(ColumnIndexMetaData::BYTE_ARRAY(bounds)), Some(pages)) =
        (index.column_index(TENANT), index.page_locations(TENANT))
    else {
        return Ok(0..all);
    };
    let may_hold = |page: &usize| {
        let least = bounds.min_value(*page).is_none_or(|least| least <= tenant.as_bytes());
        least && bounds.max_value(*page).is_none_or(|most| tenant.as_bytes() <= most)
    };
    let start = |page: usize| pages.get(page).and_then(|page| usize::try_from(page.first_row_index).ok());
    let holding: Vec<usize> = (0..pages.len()).filter(may_hold).collect();
    let (Some(first), Some(last)) = (holding.first(), holding.last()) else { return Ok(0..0) };
    Ok(start(*first).unwrap_or(0).min(all)..start(last + 1).unwrap_or(all).min(all))
}

/// Adds the rows of a group, some at a time: their values stay in the processor's caches.
pub(super) fn push_group(
    group: &dyn RowGroupReader,
    range: Range<usize>,
    wanted: Wanted<'_>,
    rows: &mut Rollups,
) -> Result<(), RowsError> {
    let range = match wanted {
        Wanted::All => range,
        Wanted::Tenant(tenant) => narrowed(group, range, tenant)?,
    };
    if range.is_empty() {
        return Ok(());
    }
    let mut readers = Readers::open(group, range.start)?;
    let mut columns = Columns::default();
    for start in range.clone().step_by(PAGE_ROWS) {
        readers.read(range.end.min(start + PAGE_ROWS) - start, &mut columns)?;
        push_rows(&columns, wanted, rows)?;
    }
    Ok(())
}

/// The rows from the first to the last of a tenant. The other columns of other rows are skipped.
fn narrowed(group: &dyn RowGroupReader, range: Range<usize>, tenant: &str) -> Result<Range<usize>, RowsError> {
    if range.is_empty() {
        return Ok(range);
    }
    let mut reader: ColumnReaderImpl<ByteArrayType> = column(group, TENANT, range.start)?;
    let mut tenants = Vec::new();
    values(&mut reader, range.len(), &mut tenants)?;
    let is_wanted = |found: &ByteArray| found.data() == tenant.as_bytes();
    let first = tenants.iter().position(is_wanted).unwrap_or(tenants.len());
    let end = tenants.iter().rposition(is_wanted).map_or(first, |last| last + 1);
    Ok(range.start + first..range.start + end)
}

fn push_rows(columns: &Columns, wanted: Wanted<'_>, rows: &mut Rollups) -> Result<(), RowsError> {
    let mut values = String::new();
    for at in 0..columns.tenants.len() {
        let tenant = text(&columns.tenants[at])?;
        match wanted {
            Wanted::Tenant(wanted) if wanted != tenant => continue,
            Wanted::Tenant(_) | Wanted::All => {}
        }
        let mut quarters = [0; 4];
        for (quarter, counts) in quarters.iter_mut().zip(&columns.quarters) {
            *quarter = u32::try_from(counts[at]).map_err(|_| RowsError::Damaged("a count is negative"))?;
        }
        columns.values(at, &mut values)?;
        let row = RollupRow {
            tenant,
            values: Values::parse(&values).map_err(|_| RowsError::Damaged("a value of a dimension is none"))?,
            listing: text(&columns.listings[at])?,
            hour: hour(columns.hours[at])?,
            event_type: text(&columns.types[at])?,
            quarters,
        };
        if i64::try_from(row.count()) != Ok(columns.sums[at]) {
            return Err(RowsError::Damaged("n is not the sum of the quarters"));
        }
        rows.push(row)?;
    }
    Ok(())
}

impl Columns {
    /// Replaces a text by the values of a row.
    fn values(&self, at: usize, text: &mut String) -> Result<(), RowsError> {
        text.clear();
        for (number, values) in DimensionNumber::ALL.into_iter().zip(&self.values) {
            if let Some(value) = &values[at] {
                push(text, number, self::text(value)?);
            }
        }
        Ok(())
    }
}

fn text(bytes: &ByteArray) -> Result<&str, RowsError> {
    std::str::from_utf8(bytes.data()).map_err(|_| RowsError::Damaged("a text is no UTF-8"))
}

fn hour(at_us: i64) -> Result<Hour, RowsError> {
    let is_whole = at_us % HOUR_US == 0;
    let hour = u32::try_from(at_us / HOUR_US).ok().filter(|_| is_whole);
    hour.map(Hour).ok_or(RowsError::Damaged("a time is no whole hour"))
}

impl Readers {
    /// The columns from a row on.
    fn open(group: &dyn RowGroupReader, start: usize) -> Result<Readers, RowsError> {
        let dimensions = group.num_columns().checked_sub(COLUMNS).ok_or(RowsError::Schema)?;
        let [q0, q1, q2, q3] = QUARTERS;
        Ok(Readers {
            tenants: column(group, TENANT, start)?,
            listings: column(group, LISTING, start)?,
            hours: column(group, HOUR, start)?,
            types: column(group, TYPE, start)?,
            quarters: [
                column(group, q0, start)?,
                column(group, q1, start)?,
                column(group, q2, start)?,
                column(group, q3, start)?,
            ],
            sums: column(group, SUM, start)?,
            values: (0..dimensions).map(|at| column(group, COLUMNS + at, start)).collect::<Result<_, _>>()?,
        })
    }

    /// Replaces the values of columns by those of the next rows.
    fn read(&mut self, rows: usize, columns: &mut Columns) -> Result<(), RowsError> {
        values(&mut self.tenants, rows, &mut columns.tenants)?;
        values(&mut self.listings, rows, &mut columns.listings)?;
        values(&mut self.hours, rows, &mut columns.hours)?;
        values(&mut self.types, rows, &mut columns.types)?;
        for (reader, found) in self.quarters.iter_mut().zip(&mut columns.quarters) {
            values(reader, rows, found)?;
        }
        values(&mut self.sums, rows, &mut columns.sums)?;
        columns.values.resize(self.values.len(), Vec::new());
        for (reader, found) in self.values.iter_mut().zip(&mut columns.values) {
            optional(reader, rows, found)?;
        }
        Ok(())
    }
}

fn column<T: DataType>(
    group: &dyn RowGroupReader,
    column: usize,
    start: usize,
) -> Result<ColumnReaderImpl<T>, RowsError> {
    let mut reader: ColumnReaderImpl<T> = get_typed_column_reader(group.get_column_reader(column)?);
    match reader.skip_records(start)? == start {
        true => Ok(reader),
        false => Err(FEWER_VALUES),
    }
}

fn values<T: DataType>(reader: &mut ColumnReaderImpl<T>, rows: usize, values: &mut Vec<T::T>) -> Result<(), RowsError> {
    values.clear();
    let (read, _, _) = reader.read_records(rows, None, None, values)?;
    match read == rows && values.len() == rows {
        true => Ok(()),
        false => Err(FEWER_VALUES),
    }
}

/// The values of an optional column.
fn optional(
    reader: &mut ColumnReaderImpl<ByteArrayType>,
    rows: usize,
    found: &mut Vec<Option<ByteArray>>,
) -> Result<(), RowsError> {
    let mut levels: Vec<i16> = Vec::with_capacity(rows);
    let mut values: Vec<ByteArray> = Vec::new();
    let (read, _, _) = reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    let has_value = levels.iter().filter(|level| **level > 0).count();
    if read != rows || levels.len() != rows || values.len() != has_value {
        return Err(FEWER_VALUES);
    }
    let mut values = values.into_iter();
    found.clear();
    found.extend(levels.iter().map(|level| if *level > 0 { values.next() } else { None }));
    Ok(())
}
