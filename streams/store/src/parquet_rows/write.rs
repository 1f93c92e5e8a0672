//! Writing.

use super::{
    CHECKSUM_KEY, Checksum, Footer, GROUP_ROWS, HOUR, HOUR_US, LISTING, PAGE_ROWS, QUARTERS, RowsError, SCHEMA, SUM,
    TENANT, TYPE,
};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use std::sync::Arc;
use tidemark_streams_core::rollup::{RollupRow, Rollups};

/// zstd at this level: higher ones take twice the time for a few parts in a thousand.
const ZSTD_LEVEL: i32 = 3;

/// The bytes of a file of rows.
///
/// # Errors
/// [`RowsError`].
pub fn encode(rows: &Rollups, footer: &Footer) -> Result<Vec<u8>, RowsError> {
    let mut checksum = Checksum::default();
    rows.iter().for_each(|row| checksum.add(&row));
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = Arc::new(properties(footer, checksum.value())?);
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    let rows: Vec<RollupRow<'_>> = rows.iter().collect();
    for group in rows.chunks(GROUP_ROWS) {
        let mut columns = writer.next_row_group()?;
        write_group(&mut columns, group)?;
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

fn write_group(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, rows: &[RollupRow<'_>]) -> Result<(), RowsError> {
    let text = |text: &str| ByteArray::from(text.as_bytes().to_vec());
    let mut column = 0;
    while let Some(mut writer) = group.next_column()? {
        match column {
            TENANT => write::<ByteArrayType>(&mut writer, rows, |row| text(row.tenant))?,
            LISTING => write::<ByteArrayType>(&mut writer, rows, |row| text(row.listing))?,
            HOUR => write::<Int64Type>(&mut writer, rows, |row| i64::from(row.hour.0) * HOUR_US)?,
            TYPE => write::<ByteArrayType>(&mut writer, rows, |row| text(row.event_type))?,
            SUM => write::<Int64Type>(&mut writer, rows, |row| row.count() as i64)?,
            quarter => {
                let at = quarter - QUARTERS[0];
                write::<Int32Type>(&mut writer, rows, |row| row.quarters[at] as i32)?;
            }
        }
        writer.close()?;
        column += 1;
    }
    Ok(())
}

fn write<T: DataType>(
    writer: &mut parquet::file::writer::SerializedColumnWriter<'_>,
    rows: &[RollupRow<'_>],
    value: impl Fn(&RollupRow<'_>) -> T::T,
) -> Result<(), RowsError> {
    let values: Vec<T::T> = rows.iter().map(value).collect();
    writer.typed::<T>().write_batch(&values, None, None)?;
    Ok(())
}
