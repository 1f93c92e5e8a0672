//! Writing.

use super::{
    CHECKSUM_KEY, COLUMNS, Checksum, Footer, GROUP_ROWS, HOUR, HOUR_US, LISTING, PAGE_ROWS, QUARTERS, RowsError, SUM,
    TENANT, TYPE, dimensions, schema,
};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::ColumnPath;
use std::ops::Range;
use std::sync::Arc;
use tidemark_streams_core::rollup::{RollupRow, Rollups};
use tidemark_streams_core::values::DimensionNumber;

/// zstd at this level: higher ones take twice the time for a few parts in a thousand.
const ZSTD_LEVEL: i32 = 3;

/// The bytes of a file of rows.
///
/// # Errors
/// [`RowsError`].
pub fn encode(rows: &Rollups, footer: &Footer) -> Result<Vec<u8>, RowsError> {
    let checksum = Checksum::of(rows);
    let dimensions = dimensions(footer)?;
    let is_left_out = |(number, _): (DimensionNumber, &str)| number.position() >= dimensions.len();
    if rows.iter().any(|row| row.values.iter().any(is_left_out)) {
        return Err(RowsError::Dimensions { found: dimensions.join(",") });
    }
    let schema = Arc::new(schema(&dimensions)?);
    let properties = Arc::new(properties(footer, checksum)?);
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    for start in (0..rows.len()).step_by(GROUP_ROWS) {
        let end = rows.len().min(start + GROUP_ROWS);
        let group: Vec<RollupRow<'_>> = (start..end).map(|at| rows.get(at)).collect();
        let mut columns = writer.next_row_group()?;
        write_group(&mut columns, &group, &Numbers::of(&group))?;
        columns.close()?;
    }
    Ok(writer.into_inner()?)
}

fn properties(footer: &Footer, checksum: u64) -> Result<WriterProperties, ParquetError> {
    let pair = |(key, value): (&String, &String)| KeyValue::new(key.clone(), value.clone());
    let mut pairs: Vec<KeyValue> = footer.0.iter().map(pair).collect();
    pairs.push(KeyValue::new(CHECKSUM_KEY.to_owned(), format!("{checksum:016x}")));
    let builder = WriterProperties::builder()
        // Equal rows give equal bytes, whatever the library's version calls itself.
        .set_created_by("tidemark-streams".to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS / 8)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_key_value_metadata(Some(pairs));
    let by_page = |builder: parquet::file::properties::WriterPropertiesBuilder, column: &str| {
        builder.set_column_statistics_enabled(ColumnPath::from(column), EnabledStatistics::Page)
    };
    let builder = by_page(by_page(builder, "tenant"), "listing");
    let builder = builder
        .set_column_dictionary_enabled(ColumnPath::from("listing"), false)
        .set_column_encoding(ColumnPath::from("listing"), Encoding::DELTA_BYTE_ARRAY);
    Ok(builder.build())
}

/// The numbers of a row group by column. One pass over its rows gathers them, because the rows do not fit in the processor's caches.
struct Numbers {
    hours: Vec<i64>,
    quarters: [Vec<i32>; 4],
    sums: Vec<i64>,
}

impl Numbers {
    fn of(rows: &[RollupRow<'_>]) -> Numbers {
        let mut numbers = Numbers {
            hours: Vec::with_capacity(rows.len()),
            quarters: [(); 4].map(|()| Vec::with_capacity(rows.len())),
            sums: Vec::with_capacity(rows.len()),
        };
        for row in rows {
            numbers.hours.push(i64::from(row.hour.0) * HOUR_US);
            for (counts, count) in numbers.quarters.iter_mut().zip(row.quarters) {
                counts.push(count as i32);
            }
            numbers.sums.push(row.count() as i64);
        }
        numbers
    }
}

fn write_group(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    rows: &[RollupRow<'_>],
    numbers: &Numbers,
) -> Result<(), RowsError> {
    let mut column = 0;
    while let Some(mut writer) = group.next_column()? {
        match column {
            TENANT => write_texts(&mut writer, rows, |row| row.tenant)?,
            LISTING => write_texts(&mut writer, rows, |row| row.listing)?,
            HOUR => write::<Int64Type>(&mut writer, &numbers.hours)?,
            TYPE => write_texts(&mut writer, rows, |row| row.event_type)?,
            SUM => write::<Int64Type>(&mut writer, &numbers.sums)?,
            COLUMNS.. => write_values(&mut writer, rows, column - COLUMNS)?,
            quarter => write::<Int32Type>(&mut writer, &numbers.quarters[quarter - QUARTERS[0]])?,
        }
        writer.close()?;
        column += 1;
    }
    Ok(())
}

/// The texts of a page share one piece of memory, and equal neighbours their bytes of it.
fn write_texts<'a>(
    writer: &mut SerializedColumnWriter<'_>,
    rows: &[RollupRow<'a>],
    text: impl Fn(&RollupRow<'a>) -> &'a str,
) -> Result<(), RowsError> {
    let writer = writer.typed::<ByteArrayType>();
    let mut values: Vec<ByteArray> = Vec::with_capacity(PAGE_ROWS);
    let mut ranges: Vec<Range<usize>> = Vec::with_capacity(PAGE_ROWS);
    for page in rows.chunks(PAGE_ROWS) {
        let mut all = String::new();
        let mut last = "";
        ranges.clear();
        for text in page.iter().map(&text) {
            match ranges.last() {
                Some(range) if is_same(last, text) => ranges.push(range.clone()),
                Some(_) | None => {
                    ranges.push(all.len()..all.len() + text.len());
                    all.push_str(text);
                }
            }
            last = text;
        }
        let all = Bytes::from(all);
        values.clear();
        values.extend(ranges.iter().map(|range| ByteArray::from(all.slice(range.clone()))));
        writer.write_batch(&values, None, None)?;
    }
    Ok(())
}

/// The values of a dimension. A row without a value has none in the column.
fn write_values(
    writer: &mut SerializedColumnWriter<'_>,
    rows: &[RollupRow<'_>],
    dimension: usize,
) -> Result<(), RowsError> {
    let Some(dimension) = DimensionNumber::of_position(dimension) else { return Err(RowsError::Schema) };
    let writer = writer.typed::<ByteArrayType>();
    for page in rows.chunks(PAGE_ROWS) {
        let found: Vec<Option<&str>> = page.iter().map(|row| row.values.get(dimension)).collect();
        let levels: Vec<i16> = found.iter().map(|value| i16::from(value.is_some())).collect();
        let values: Vec<ByteArray> = found.into_iter().flatten().map(ByteArray::from).collect();
        writer.write_batch(&values, Some(&levels), None)?;
    }
    Ok(())
}

/// Whether two texts are equal. Neighbours that are equal lie in one place mostly.
fn is_same(a: &str, b: &str) -> bool {
    std::ptr::eq(a, b) || a == b
}

fn write<T: DataType>(writer: &mut SerializedColumnWriter<'_>, values: &[T::T]) -> Result<(), RowsError> {
    writer.typed::<T>().write_batch(values, None, None)?;
    Ok(())
}
