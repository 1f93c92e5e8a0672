//! Rows of an export as Parquet: the columns of CSV, with times as timestamps.

use super::Compress;
use super::out::{Row, ZSTD_LEVEL};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Rows of a row group, which is in memory until it is written. With the next one it is written.
const ROW_GROUP_ROWS_MAX: usize = 64 << 10;
/// Bytes of its counters' names. With the next row it is written.
const ROW_GROUP_BYTES_MAX: usize = 8 << 20;
const SCHEMA: &str = "message rows { required binary counter (STRING); required int64 delta; \
                      required int64 at (TIMESTAMP(MILLIS,true)); }";

/// A file, and the rows of its next row group.
pub struct Rows {
    file: SerializedFileWriter<File>,
    counters: Vec<ByteArray>,
    deltas: Vec<i64>,
    times: Vec<i64>,
    /// Of the names of counters.
    bytes: usize,
}

impl Rows {
    pub fn new(file: File, compress: Compress) -> io::Result<Rows> {
        let compression = match compress {
            Compress::None => Compression::UNCOMPRESSED,
            Compress::Gzip => Compression::GZIP(Default::default()),
            Compress::Zstd => Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).map_err(failed)?),
        };
        let created_by = format!("{} version {}", env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        let properties = WriterProperties::builder().set_compression(compression).set_created_by(created_by).build();
        let schema = Arc::new(parse_message_type(SCHEMA).map_err(failed)?);
        let file = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(failed)?;
        let (counters, deltas, times, bytes) = Default::default();
        Ok(Rows { file, counters, deltas, times, bytes })
    }

    pub fn row(&mut self, row: &Row<'_>) -> io::Result<()> {
        if self.counters.len() >= ROW_GROUP_ROWS_MAX || self.bytes >= ROW_GROUP_BYTES_MAX {
            self.write().map_err(failed)?;
        }
        let number = |number: Option<i64>, what: &str| {
            let shown = || format!("{} of {}: more than Parquet's column has room for", what, row.counter);
            number.ok_or_else(|| io::Error::other(shown()))
        };
        let delta = i64::try_from(row.delta).ok().map(|delta| if row.is_down { -delta } else { delta });
        let time = i64::try_from(row.at.unwrap_or(0)).ok().and_then(|at| at.checked_mul(1_000));
        let delta = number(delta, "a weight")?;
        let time = number(time, "a time")?;
        // A counter's rows share its name.
        let counter = match self.counters.last() {
            Some(last) if last.data() == row.counter.as_bytes() => last.clone(),
            _ => {
                self.bytes += row.counter.len();
                ByteArray::from(row.counter)
            }
        };
        self.counters.push(counter);
        self.deltas.push(delta);
        self.times.push(time);
        Ok(())
    }

    /// Writes a row group.
    fn write(&mut self) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        column::<ByteArrayType>(&mut group, &self.counters)?;
        column::<Int64Type>(&mut group, &self.deltas)?;
        column::<Int64Type>(&mut group, &self.times)?;
        group.close()?;
        self.counters.clear();
        self.deltas.clear();
        self.times.clear();
        self.bytes = 0;
        Ok(())
    }

    pub fn finish(mut self) -> io::Result<File> {
        if !self.counters.is_empty() {
            self.write().map_err(failed)?;
        }
        self.file.into_inner().map_err(failed)
    }
}

fn column<T: DataType>(group: &mut SerializedRowGroupWriter<'_, File>, values: &[T::T]) -> Result<(), ParquetError> {
    let column = group.next_column()?;
    let mut column = column.ok_or_else(|| ParquetError::General("a column is missing".to_owned()))?;
    column.typed::<T>().write_batch(values, None, None)?;
    column.close()
}

fn failed(error: ParquetError) -> io::Error {
    if let ParquetError::External(error) = error { io::Error::other(error) } else { io::Error::other(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::metadata::ParquetMetaDataReader;

    #[test]
    fn what_is_in_memory_is_bounded_by_rows_and_by_names() {
        let groups = |rows: usize, counter: &str| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("rows");
            let mut file = Rows::new(File::create_new(&path).unwrap(), Compress::Zstd).unwrap();
            for row in 0..rows {
                let counter = format!("{counter}/{row}");
                file.row(&Row { counter: &counter, is_down: false, delta: 1, at: None }).unwrap();
                assert!(file.counters.len() <= ROW_GROUP_ROWS_MAX && file.bytes <= ROW_GROUP_BYTES_MAX + counter.len());
            }
            file.finish().unwrap();
            let metadata = ParquetMetaDataReader::new().parse_and_finish(&File::open(&path).unwrap()).unwrap();
            metadata.row_groups().iter().map(|group| group.num_rows() as usize).collect::<Vec<_>>()
        };
        assert_eq!(groups(ROW_GROUP_ROWS_MAX * 2 + 1, "qa"), [ROW_GROUP_ROWS_MAX, ROW_GROUP_ROWS_MAX, 1]);
        let long = "q".repeat(1 << 20);
        assert_eq!(groups(10, &long), [8, 2]);
        assert!(groups(0, "qa").is_empty());
    }
}
