//! Reading: all rows, or those of a tenant, of which only some pages are decoded.

use super::{
    CHECKSUM_KEY, COLUMNS, Checksum, FORMAT, FORMAT_KEY, Footer, HOUR, HOUR_US, LISTING, QUARTERS, RowsError, SCHEMA,
    SUM, TENANT, TYPE,
};
use bytes::Bytes;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::{ReadOptionsBuilder, SerializedFileReader};
use parquet::schema::parser::parse_message_type;
use std::ops::Range;
use tidemark_streams_core::rollup::{RollupRow, Rollups};
use tidemark_streams_core::time::Hour;

/// Which rows are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// All. The checksum of the footer is compared.
    All,
    Tenant(&'a str),
}

/// Columns of some rows.
struct Columns {
    tenants: Vec<ByteArray>,
    listings: Vec<ByteArray>,
    hours: Vec<i64>,
    types: Vec<ByteArray>,
    quarters: [Vec<i32>; 4],
    sums: Vec<i64>,
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
    let options = ReadOptionsBuilder::new().with_page_index().build();
    let reader = SerializedFileReader::new_with_options(bytes, options)?;
    let footer = checked_footer(reader.metadata())?;
    let mut rows = Rollups::new();
    for number in 0..reader.num_row_groups() {
        let group = reader.get_row_group(number)?;
        let range = match wanted {
            Wanted::All => 0..count(reader.metadata(), number)?,
            Wanted::Tenant(tenant) => rows_of(reader.metadata(), number, tenant)?,
        };
        if !range.is_empty() {
            push_rows(&Columns::read(group.as_ref(), &range)?, wanted, &mut rows)?;
        }
    }
    if wanted == Wanted::All {
        let mut checksum = Checksum::default();
        rows.iter().for_each(|row| checksum.add(&row));
        let found = checksum.value();
        let expected = footer.get(CHECKSUM_KEY).unwrap_or_default();
        if format!("{found:016x}") != expected {
            return Err(RowsError::Checksum { found, expected: expected.to_owned() });
        }
    }
    Ok((rows, footer))
}

fn checked_footer(metadata: &ParquetMetaData) -> Result<Footer, RowsError> {
    let file = metadata.file_metadata();
    let pairs = file.key_value_metadata().into_iter().flatten();
    let footer = Footer(pairs.filter_map(|pair| Some((pair.key.clone(), pair.value.clone()?))).collect());
    let found = footer.get(FORMAT_KEY).unwrap_or_default();
    if found != FORMAT {
        return Err(RowsError::Format { found: found.to_owned() });
    }
    match *file.schema() == parse_message_type(SCHEMA)? {
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

fn push_rows(columns: &Columns, wanted: Wanted<'_>, rows: &mut Rollups) -> Result<(), RowsError> {
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
        let row = RollupRow {
            tenant,
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

fn text(bytes: &ByteArray) -> Result<&str, RowsError> {
    std::str::from_utf8(bytes.data()).map_err(|_| RowsError::Damaged("a text is no UTF-8"))
}

fn hour(at_us: i64) -> Result<Hour, RowsError> {
    let is_whole = at_us % HOUR_US == 0;
    let hour = u32::try_from(at_us / HOUR_US).ok().filter(|_| is_whole);
    hour.map(Hour).ok_or(RowsError::Damaged("a time is no whole hour"))
}

impl Columns {
    fn read(group: &dyn RowGroupReader, range: &Range<usize>) -> Result<Columns, RowsError> {
        if group.num_columns() != COLUMNS {
            return Err(RowsError::Schema);
        }
        let [q0, q1, q2, q3] = QUARTERS;
        let quarter = |column| values::<Int32Type>(group.get_column_reader(column)?, range);
        Ok(Columns {
            tenants: values::<ByteArrayType>(group.get_column_reader(TENANT)?, range)?,
            listings: values::<ByteArrayType>(group.get_column_reader(LISTING)?, range)?,
            hours: values::<Int64Type>(group.get_column_reader(HOUR)?, range)?,
            types: values::<ByteArrayType>(group.get_column_reader(TYPE)?, range)?,
            quarters: [quarter(q0)?, quarter(q1)?, quarter(q2)?, quarter(q3)?],
            sums: values::<Int64Type>(group.get_column_reader(SUM)?, range)?,
        })
    }
}

fn values<T: DataType>(reader: ColumnReader, range: &Range<usize>) -> Result<Vec<T::T>, RowsError> {
    let mut reader: ColumnReaderImpl<T> = get_typed_column_reader(reader);
    let mut values = Vec::new();
    let skipped = reader.skip_records(range.start)?;
    let (read, _, _) = reader.read_records(range.len(), None, None, &mut values)?;
    match skipped == range.start && read == range.len() && values.len() == range.len() {
        true => Ok(values),
        false => Err(RowsError::Damaged("a column has fewer values than there are rows")),
    }
}
