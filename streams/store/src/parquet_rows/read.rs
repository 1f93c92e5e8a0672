//! Reading: all rows, or those of a tenant, of which only some pages are decoded.

use super::pages::RowGroup;
use super::{
    CHECKSUM_KEY, COLUMNS, Checksum, DIMENSIONS_KEY, FORMAT, FORMAT_KEY, FORMAT_WITH_VALUES, Footer, GROUP_ROWS, HOUR,
    HOUR_US, LISTING, PAGE_ROWS, QUARTERS, RowsError, SUM, TENANT, TYPE, dimensions, schema,
};
use bytes::Bytes;
use parquet::column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader};
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::reader::ChunkReader;
use std::ops::Range;
use std::sync::Arc;
use tidemark_files::parquet::coded::{CodedReader, CodedTexts, Text};
use tidemark_files::parquet::prefixed::{PrefixedReader, PrefixedTexts};
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
const NO_UTF8: RowsError = RowsError::Damaged("a text is no UTF-8");

/// Columns of some rows.
struct Columns {
    rows: usize,
    /// `None`: the names were read before.
    tenants: Option<CodedTexts>,
    listings: PrefixedTexts,
    hours: Vec<i64>,
    types: CodedTexts,
    quarters: [Vec<i32>; 4],
    sums: Vec<i64>,
    /// Of each dimension with a column.
    values: Vec<CodedTexts>,
}

/// The columns of a row group, read up to one row.
struct Readers {
    /// `None`: the names were read before.
    tenants: Option<CodedReader>,
    listings: PrefixedReader,
    hours: ColumnReaderImpl<Int64Type>,
    types: CodedReader,
    quarters: [ColumnReaderImpl<Int32Type>; 4],
    sums: ColumnReaderImpl<Int64Type>,
    values: Vec<CodedReader>,
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
        push_group(&RowGroup::new(&file, &metadata, number), range, wanted, &mut rows)?;
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
    let rows = usize::try_from(metadata.row_group(group).num_rows()).ok().filter(|rows| *rows <= GROUP_ROWS);
    rows.ok_or(RowsError::Damaged("a row group has a number of rows that no writer gives it"))
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
pub(super) fn push_group<R: ChunkReader + 'static>(
    group: &RowGroup<'_, R>,
    range: Range<usize>,
    wanted: Wanted<'_>,
    rows: &mut Rollups,
) -> Result<(), RowsError> {
    let (range, names) = match wanted {
        Wanted::All => (range, None),
        Wanted::Tenant(tenant) => {
            let (rows, names) = rows_of_tenant(group, range.clone(), tenant)?;
            (rows, Some((range.start, names)))
        }
    };
    if range.is_empty() {
        return Ok(());
    }
    let mut readers = Readers::open(group, range.start, wanted)?;
    for start in range.clone().step_by(PAGE_ROWS) {
        let columns = readers.read(range.end.min(start + PAGE_ROWS) - start)?;
        let tenant = |at: usize| match &names {
            Some((first, names)) => names.get(start - first + at),
            None => columns.tenants.as_ref()?.get(at),
        };
        push_rows(&columns, tenant, rows)?;
    }
    Ok(())
}

/// Narrows a range to the rows of a tenant, which are consecutive, and reads the names of all tenants in it. Readers of other columns then
/// skip all other rows.
fn rows_of_tenant<R: ChunkReader + 'static>(
    group: &RowGroup<'_, R>,
    range: Range<usize>,
    tenant: &str,
) -> Result<(Range<usize>, CodedTexts), RowsError> {
    let names = texts(&mut text_column(group, TENANT, range.start)?, range.len())?;
    let rows = names.run(tenant).ok_or(RowsError::Damaged("the rows of a tenant are not consecutive"))?;
    Ok((range.start + rows.start..range.start + rows.end, names))
}

/// Adds rows, whose tenants are those of the file.
fn push_rows<'c>(
    columns: &'c Columns,
    tenant: impl Fn(usize) -> Option<Text<'c>>,
    rows: &mut Rollups,
) -> Result<(), RowsError> {
    let mut values = String::new();
    for at in 0..columns.rows {
        let tenant = required(tenant(at))?;
        let mut quarters = [0; 4];
        for (quarter, counts) in quarters.iter_mut().zip(&columns.quarters) {
            *quarter = u32::try_from(counts[at]).map_err(|_| RowsError::Damaged("a count is negative"))?;
        }
        columns.values(at, &mut values)?;
        let row = RollupRow {
            tenant,
            values: Values::parse(&values).map_err(|_| RowsError::Damaged("a value of a dimension is none"))?,
            listing: columns.listings.get(at).ok_or(FEWER_VALUES)?,
            hour: hour(columns.hours[at])?,
            event_type: required(columns.types.get(at))?,
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
            match values.get(at).ok_or(FEWER_VALUES)? {
                Text::Missing => {}
                Text::Utf8(value) => push(text, number, value),
                Text::NoUtf8 => return Err(NO_UTF8),
            }
        }
        Ok(())
    }
}

/// A text of a column without missing texts.
fn required(text: Option<Text<'_>>) -> Result<&str, RowsError> {
    match text {
        Some(Text::Utf8(text)) => Ok(text),
        Some(Text::NoUtf8) => Err(NO_UTF8),
        Some(Text::Missing) | None => Err(FEWER_VALUES),
    }
}

fn hour(at_us: i64) -> Result<Hour, RowsError> {
    let is_whole = at_us % HOUR_US == 0;
    let hour = u32::try_from(at_us / HOUR_US).ok().filter(|_| is_whole);
    hour.map(Hour).ok_or(RowsError::Damaged("a time is no whole hour"))
}

impl Readers {
    /// The columns from a row on.
    fn open<R: ChunkReader + 'static>(
        group: &RowGroup<'_, R>,
        start: usize,
        wanted: Wanted<'_>,
    ) -> Result<Readers, RowsError> {
        let dimensions = group.columns().checked_sub(COLUMNS).ok_or(RowsError::Schema)?;
        let mut listings = PrefixedReader::open(Box::new(group.pages(LISTING)?))?;
        listings.skip(start)?;
        let [q0, q1, q2, q3] = QUARTERS;
        Ok(Readers {
            tenants: (wanted == Wanted::All).then(|| text_column(group, TENANT, start)).transpose()?,
            listings,
            hours: number_column(group, HOUR, start)?,
            types: text_column(group, TYPE, start)?,
            quarters: [
                number_column(group, q0, start)?,
                number_column(group, q1, start)?,
                number_column(group, q2, start)?,
                number_column(group, q3, start)?,
            ],
            sums: number_column(group, SUM, start)?,
            values: (0..dimensions).map(|at| text_column(group, COLUMNS + at, start)).collect::<Result<_, _>>()?,
        })
    }

    /// The next rows.
    fn read(&mut self, rows: usize) -> Result<Columns, RowsError> {
        let [q0, q1, q2, q3] = &mut self.quarters;
        Ok(Columns {
            rows,
            tenants: self.tenants.as_mut().map(|reader| texts(reader, rows)).transpose()?,
            listings: self.listings.read(rows)?,
            hours: values(&mut self.hours, rows)?,
            types: texts(&mut self.types, rows)?,
            quarters: [values(q0, rows)?, values(q1, rows)?, values(q2, rows)?, values(q3, rows)?],
            sums: values(&mut self.sums, rows)?,
            values: self.values.iter_mut().map(|reader| texts(reader, rows)).collect::<Result<_, _>>()?,
        })
    }
}

/// A column of numbers from a row on.
fn number_column<T: DataType, R: ChunkReader + 'static>(
    group: &RowGroup<'_, R>,
    column: usize,
    start: usize,
) -> Result<ColumnReaderImpl<T>, RowsError> {
    let pages = Box::new(group.pages(column)?);
    let mut reader: ColumnReaderImpl<T> =
        get_typed_column_reader(get_column_reader(group.chunk(column)?.column_descr_ptr(), pages));
    match reader.skip_records(start)? == start {
        true => Ok(reader),
        false => Err(FEWER_VALUES),
    }
}

/// A column of texts from a row on.
fn text_column<R: ChunkReader + 'static>(
    group: &RowGroup<'_, R>,
    column: usize,
    start: usize,
) -> Result<CodedReader, RowsError> {
    let mut reader = CodedReader::open(group.pages(column)?, group.chunk(column)?)?;
    match reader.skip(start)? == start {
        true => Ok(reader),
        false => Err(FEWER_VALUES),
    }
}

fn values<T: DataType>(reader: &mut ColumnReaderImpl<T>, rows: usize) -> Result<Vec<T::T>, RowsError> {
    let mut values = Vec::with_capacity(rows);
    let (read, _, _) = reader.read_records(rows, None, None, &mut values)?;
    match read == rows && values.len() == rows {
        true => Ok(values),
        false => Err(FEWER_VALUES),
    }
}

fn texts(reader: &mut CodedReader, rows: usize) -> Result<CodedTexts, RowsError> {
    let texts = reader.read(rows)?;
    if texts.len() == rows { Ok(texts) } else { Err(FEWER_VALUES) }
}
