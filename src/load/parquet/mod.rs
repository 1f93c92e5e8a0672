//! Rows of Parquet: up to three columns of a file, read in step, a few rows at a time.
//!
//! A file that is damaged is an error of the file, and never a panic nor more memory than [`guard`] names. It gives the same rows each time
//! that it is read, so that rows keep their numbers.

pub mod guard;
#[cfg(test)]
mod tests;
mod walk;

use super::rows::{Naming, Read, RowError, delta_of_text, row_of, time_of_text};
use crate::lines::too_long;
use guard::{Bounded, Pages, caught};
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy, RowGroupMetaData,
};
use parquet::file::reader::ChunkReader;
use parquet::schema::types::ColumnDescriptor;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use tidemark_proto::load::Row;
use tidemark_proto::series::UnixTime;

/// Rows that are read at a time.
const BATCH_ROWS: u64 = 128;
/// Letters of the names of columns that are shown of a file that lacks one.
const NAMES_SHOWN_MAX: usize = 200;
const DAY_S: i128 = 86_400;

/// The rows of a file, from the first on.
pub struct Rows<R: ChunkReader> {
    file: Arc<Bounded<R>>,
    metadata: Arc<ParquetMetaData>,
    naming: Naming,
    columns: Columns<Option<Column>>,
    /// Row groups that were begun.
    begun: usize,
    open: Option<Group>,
    ready: VecDeque<Columns<Value>>,
    /// Of the last row that was given, from 1 on.
    row: u64,
    failed: Option<String>,
}

/// Something for each column of a row.
struct Columns<T> {
    counter: T,
    delta: T,
    at: T,
}

/// Where a column is, and what its values mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Column {
    leaf: usize,
    kind: Kind,
    is_optional: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Signed,
    Unsigned,
    /// So many to a second.
    Time(i128),
    Date,
    /// Days of the Julian calendar and nanoseconds.
    JulianTime,
}

/// What stands in a column of a row.
enum Value {
    Nothing,
    Text(ByteArray),
    Number(i128),
    /// Seconds since 1970.
    Time(i128),
}

/// A row group, and how many of its rows are left.
struct Group {
    left: u64,
    readers: Columns<Option<Reader>>,
}

/// A column of a row group.
struct Reader {
    values: ColumnReader,
    column: Column,
}

fn damaged(why: &str) -> ParquetError {
    ParquetError::General(format!("it is damaged: {why}"))
}

impl<R: ChunkReader + 'static> Rows<R> {
    /// From the beginning of a file.
    pub fn open(file: R, naming: &Naming) -> Result<Rows<R>, RowError> {
        let opened = caught(|| {
            let file = Bounded::new(file)?;
            let metadata = metadata(&file)?;
            Ok((Arc::new(file), Arc::new(metadata)))
        });
        let (file, metadata) = opened.map_err(RowError::Parquet)?;
        let columns = Columns::find(&metadata, naming)?;
        let (begun, open, ready, row, failed) = Default::default();
        Ok(Rows { file, metadata, naming: naming.clone(), columns, begun, open, ready, row, failed })
    }

    /// The next row; `None` at the end. An error is the last that it says.
    pub fn next_row(&mut self) -> io::Result<Option<Read>> {
        while self.ready.is_empty() && self.failed.is_none() {
            match caught(|| self.fill()) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(why) => self.failed = Some(why),
            }
        }
        match (self.ready.pop_front(), &self.failed) {
            (Some(values), _) => {
                self.row += 1;
                Ok(Some(Read { line: self.row, row: values.row(&self.naming) }))
            }
            (None, why) => {
                let why = why.as_deref().unwrap_or_default();
                Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    RowError::Parquet(format!("{why} (behind row {})", self.row)),
                ))
            }
        }
    }

    /// Makes a few more rows ready, or begins the next row group. `false`: there is none.
    fn fill(&mut self) -> Result<bool, ParquetError> {
        let Some(group) = &mut self.open else {
            let Some(metadata) = self.metadata.row_groups().get(self.begun) else { return Ok(false) };
            self.open = Some(Group::open(&self.file, metadata, &self.columns)?);
            self.begun += 1;
            return Ok(true);
        };
        let rows = group.left.min(BATCH_ROWS) as usize;
        if rows == 0 {
            group.end()?;
            self.open = None;
            return Ok(true);
        }
        let Columns { counter, delta, at } = &mut group.readers;
        let read = |reader: &mut Option<Reader>| match reader {
            Some(reader) => reader.read(rows),
            None => Ok((0..rows).map(|_| Value::Nothing).collect()),
        };
        let (counter, delta, at) = (read(counter)?, read(delta)?, read(at)?);
        let rest = counter.into_iter().zip(delta).zip(at);
        self.ready.extend(rest.map(|((counter, delta), at)| Columns { counter, delta, at }));
        group.left -= rows as u64;
        Ok(true)
    }
}

/// All that is needed of a file's metadata, where it agrees with itself.
fn metadata<R: ChunkReader>(file: &Bounded<R>) -> Result<ParquetMetaData, ParquetError> {
    let skipped = || ParquetStatisticsPolicy::SkipAll;
    let options = ParquetMetaDataOptions::new().with_encoding_stats_policy(skipped());
    let options = options.with_column_stats_policy(skipped()).with_size_stats_policy(skipped());
    let metadata = ParquetMetaDataReader::new().with_metadata_options(Some(options)).parse_and_finish(file)?;
    let rows = metadata.row_groups().iter().map(|group| u64::try_from(group.num_rows()).ok());
    let sum = rows.into_iter().try_fold(0, |sum: u64, rows| sum.checked_add(rows?));
    match sum.is_some() && sum == u64::try_from(metadata.file_metadata().num_rows()).ok() {
        true => Ok(metadata),
        false => Err(damaged("its row groups have more rows or fewer than it says")),
    }
}

impl Columns<Option<Column>> {
    fn find(metadata: &ParquetMetaData, naming: &Naming) -> Result<Columns<Option<Column>>, RowError> {
        let schema = metadata.file_metadata().schema_descr();
        let find = |name: &str| {
            let leaf = schema.columns().iter().position(|column| column.path().parts() == [name]);
            leaf.map(|leaf| Column::new(leaf, &schema.columns()[leaf])).transpose()
        };
        let needed = |name: &str| match find(name)? {
            Some(column) => Ok(column),
            None => {
                let names = schema.root_schema().get_fields().iter().map(|field| format!("{:?}", field.name()));
                let names = names.collect::<Vec<_>>().join(", ").chars().take(NAMES_SHOWN_MAX).collect::<String>();
                Err(RowError::Parquet(format!("there is no column {name:?}: there are {names}")))
            }
        };
        // What is named on purpose has to be there.
        let usual = Naming::default();
        let optional = |name: &String, usual: &String| if name == usual { find(name) } else { needed(name).map(Some) };
        let counter = Some(needed(&naming.counter)?.no_time(&naming.counter)?);
        let delta = optional(&naming.delta, &usual.delta)?;
        let delta = delta.map(|delta| delta.no_time(&naming.delta)).transpose()?;
        let at = optional(&naming.at, &usual.at)?;
        Ok(Columns { counter, delta, at })
    }
}

impl Column {
    fn new(leaf: usize, column: &ColumnDescriptor) -> Result<Column, RowError> {
        let is_flat = column.max_rep_level() == 0 && column.max_def_level() <= 1;
        match Kind::of(column).filter(|_| is_flat) {
            Some(kind) => Ok(Column { leaf, kind, is_optional: column.max_def_level() > 0 }),
            None => Err(RowError::Parquet(format!(
                "column {:?} is {}{}: texts, whole numbers or times expected",
                column.name(),
                column.physical_type(),
                column.logical_type_ref().map_or(String::new(), |logical| format!(" ({logical:?})")),
            ))),
        }
    }

    /// Refused where it has times.
    fn no_time(self, name: &str) -> Result<Column, RowError> {
        match self.kind {
            Kind::Text | Kind::Signed | Kind::Unsigned => Ok(self),
            Kind::Time(_) | Kind::Date | Kind::JulianTime => {
                Err(RowError::Parquet(format!("column {name:?} has times: texts or whole numbers expected")))
            }
        }
    }
}

impl Kind {
    /// `None` of what is not understood.
    fn of(column: &ColumnDescriptor) -> Option<Kind> {
        let (logical, converted) = (column.logical_type_ref(), column.converted_type());
        match (column.physical_type(), logical, converted) {
            (Type::BYTE_ARRAY, None | Some(LogicalType::String | LogicalType::Enum | LogicalType::Json), converted) => {
                use ConvertedType::{ENUM, JSON, NONE, UTF8};
                matches!(converted, NONE | UTF8 | ENUM | JSON).then_some(Kind::Text)
            }
            (Type::INT96, ..) => Some(Kind::JulianTime),
            (Type::INT32, Some(LogicalType::Date), _) | (Type::INT32, None, ConvertedType::DATE) => Some(Kind::Date),
            (Type::INT64, Some(LogicalType::Timestamp(time)), _) => Some(Kind::Time(match time.unit {
                TimeUnit::MILLIS => 1_000,
                TimeUnit::MICROS => 1_000_000,
                TimeUnit::NANOS => 1_000_000_000,
            })),
            (Type::INT64, None, ConvertedType::TIMESTAMP_MILLIS) => Some(Kind::Time(1_000)),
            (Type::INT64, None, ConvertedType::TIMESTAMP_MICROS) => Some(Kind::Time(1_000_000)),
            (Type::INT32 | Type::INT64, Some(LogicalType::Integer(number)), _) => {
                Some(if number.is_signed { Kind::Signed } else { Kind::Unsigned })
            }
            (Type::INT32 | Type::INT64, None, converted) => {
                use ConvertedType::{INT_8, INT_16, INT_32, INT_64, NONE, UINT_8, UINT_16, UINT_32, UINT_64};
                match converted {
                    NONE | INT_8 | INT_16 | INT_32 | INT_64 => Some(Kind::Signed),
                    UINT_8 | UINT_16 | UINT_32 | UINT_64 => Some(Kind::Unsigned),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// A number as it is written.
    fn value(self, number: i64, unsigned: u64) -> Value {
        match self {
            Kind::Unsigned => Value::Number(unsigned.into()),
            Kind::Time(per_s) => Value::Time(i128::from(number).div_euclid(per_s)),
            Kind::Date => Value::Time(i128::from(number) * DAY_S),
            Kind::Text | Kind::Signed | Kind::JulianTime => Value::Number(number.into()),
        }
    }
}

impl Group {
    fn open<R: ChunkReader + 'static>(
        file: &Arc<Bounded<R>>,
        metadata: &RowGroupMetaData,
        columns: &Columns<Option<Column>>,
    ) -> Result<Group, ParquetError> {
        let rows = metadata.num_rows();
        let open = |column: Option<Column>| {
            let Some(column) = column else { return Ok(None) };
            let chunk = metadata.columns().get(column.leaf).ok_or_else(|| damaged("a row group lacks a column"))?;
            if chunk.num_values() != rows {
                return Err(damaged("a column has more values or fewer than there are rows"));
            }
            let pages = Pages::new(Arc::clone(file), chunk, usize::try_from(rows)?)?;
            let values = get_column_reader(chunk.column_descr_ptr(), Box::new(pages));
            Ok(Some(Reader { values, column }))
        };
        let Columns { counter, delta, at } = *columns;
        let readers = Columns { counter: open(counter)?, delta: open(delta)?, at: open(at)? };
        Ok(Group { left: u64::try_from(rows)?, readers })
    }

    /// Whether nothing is left of any column.
    fn end(&mut self) -> Result<(), ParquetError> {
        let Columns { counter, delta, at } = &mut self.readers;
        for reader in [counter, delta, at].into_iter().flatten() {
            if !reader.read_up_to(1)?.is_empty() {
                return Err(damaged("a column has more values than there are rows"));
            }
        }
        Ok(())
    }
}

impl Reader {
    fn read(&mut self, rows: usize) -> Result<Vec<Value>, ParquetError> {
        let values = self.read_up_to(rows)?;
        match values.len() == rows {
            true => Ok(values),
            false => Err(damaged("a column has fewer values than there are rows")),
        }
    }

    /// Fewer at the end of the column.
    fn read_up_to(&mut self, rows: usize) -> Result<Vec<Value>, ParquetError> {
        let Column { kind, is_optional, .. } = self.column;
        match &mut self.values {
            ColumnReader::Int32ColumnReader(reader) => {
                read(reader, is_optional, rows, |number| kind.value(number.into(), (number as u32).into()))
            }
            ColumnReader::Int64ColumnReader(reader) => {
                read(reader, is_optional, rows, |number| kind.value(number, number as u64))
            }
            ColumnReader::Int96ColumnReader(reader) => {
                read(reader, is_optional, rows, |time| Value::Time(time.to_seconds().into()))
            }
            ColumnReader::ByteArrayColumnReader(reader) => read(reader, is_optional, rows, Value::Text),
            _ => Err(damaged("a column is of another type than it says")),
        }
    }
}

fn read<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    is_optional: bool,
    rows: usize,
    value: impl Fn(T::T) -> Value,
) -> Result<Vec<Value>, ParquetError> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    reader.read_records(rows, is_optional.then_some(&mut levels), None, &mut values)?;
    let mut values = values.into_iter().map(value);
    if !is_optional {
        return Ok(values.collect());
    }
    let value = |level| if level > 0 { values.next() } else { Some(Value::Nothing) };
    levels.into_iter().map(value).collect::<Option<_>>().ok_or_else(|| damaged("a column lacks values"))
}

impl Columns<Value> {
    /// The row, or why it is none.
    fn row(&self, naming: &Naming) -> Result<Row, String> {
        let number;
        let counter = match &self.counter {
            Value::Nothing => return Err(format!("column {:?} is null", naming.counter)),
            Value::Text(counter) => text(counter, &naming.counter)?,
            Value::Number(counter) | Value::Time(counter) => {
                number = counter.to_string();
                &number
            }
        };
        let delta = match &self.delta {
            Value::Nothing => 1,
            Value::Text(delta) => delta_of_text(text(delta, &naming.delta)?)?,
            Value::Number(delta) | Value::Time(delta) => *delta,
        };
        let at = match &self.at {
            Value::Nothing => None,
            Value::Text(at) => time_of_text(text(at, &naming.at)?)?,
            Value::Number(at) => Some(UnixTime::of_number(*at).map_err(|error| error.to_string())?),
            Value::Time(at) => {
                let seconds = i64::try_from(*at).map_err(|_| format!("{at} s since 1970 is no time"))?;
                Some(UnixTime::from_s(seconds).map_err(|error| error.to_string())?)
            }
        };
        row_of(counter, delta, at, naming)
    }
}

/// As long as a field of a line may be.
fn text<'a>(bytes: &'a ByteArray, column: &str) -> Result<&'a str, String> {
    let bytes = bytes.data();
    match too_long(bytes) {
        Some(why) => Err(format!("column {column:?} has {why}")),
        None => std::str::from_utf8(bytes).map_err(|_| format!("column {column:?} is no UTF-8")),
    }
}
