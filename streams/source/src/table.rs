//! Rows of Parquet, a few at a time. The guard of `tidemark-files` stands before the library.

use crate::file::SourceError;
use crate::mapping::{Columns, Mapping};
use crate::value::{Reading, Row, Value};
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::ChunkReader;
use parquet::schema::types::ColumnDescriptor;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use tidemark_files::parquet::guard::{Bounded, Pages, caught};

/// Rows that are read at a time.
const BATCH_ROWS: usize = 1_024;
const DAY_S: i64 = 86_400;

pub struct Table<R: ChunkReader> {
    file: Arc<Bounded<R>>,
    metadata: Arc<ParquetMetaData>,
    columns: Columns<Option<Column>>,
    begun: usize,
    open: Option<Group>,
    ready: VecDeque<Columns<Cell>>,
    failed: Option<String>,
}

/// Where a column is, and what its values mean.
#[derive(Clone, Copy)]
struct Column {
    leaf: usize,
    kind: Kind,
    is_optional: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Signed,
    Unsigned,
    Float,
    /// So many to a second, since 1970 in UTC.
    Instant(i64),
    /// So many to a second, by a clock whose zone the file does not say.
    Clock(i64),
    Date,
    /// Days of the Julian calendar and nanoseconds, by a clock whose zone the file does not say.
    JulianTime,
}

/// A value that was read.
enum Cell {
    NoColumn,
    Missing,
    Bytes(ByteArray),
    Whole(i64),
    Float(f64),
    Instant(i64),
    Clock(i64),
    TooLarge,
}

/// A row group, and how many of its rows are left.
struct Group {
    left: usize,
    readers: Columns<Option<Reader>>,
}

struct Reader {
    values: ColumnReader,
    column: Column,
}

fn damaged(why: &str) -> ParquetError {
    ParquetError::General(format!("it is damaged: {why}"))
}

impl<R: ChunkReader + 'static> Table<R> {
    pub fn open(file: R, mapping: &Mapping) -> Result<Table<R>, SourceError> {
        let opened = caught(|| {
            let file = Bounded::new(file)?;
            let metadata = ParquetMetaDataReader::new().parse_and_finish(&file)?;
            Ok((Arc::new(file), Arc::new(metadata)))
        });
        let (file, metadata) = opened.map_err(SourceError::Parquet)?;
        let schema = metadata.file_metadata().schema_descr_ptr();
        let roots = schema.root_schema().get_fields();
        let names: Vec<&str> = roots.iter().map(|field| field.name()).collect();
        let columns = mapping.find(&names)?.try_map(|root| {
            let Some(root) = root else { return Ok(None) };
            let leaf = (0..schema.num_columns()).find(|leaf| schema.get_column_root_idx(*leaf) == root);
            let leaf = leaf.filter(|_| roots[root].is_primitive());
            let leaf = leaf.ok_or_else(|| unfit(names[root], "a list, a map or a structure".to_owned()))?;
            Column::new(leaf, &schema.columns()[leaf]).map(Some)
        })?;
        let (begun, open, ready, failed) = Default::default();
        Ok(Table { file, metadata, columns, begun, open, ready, failed })
    }

    /// Whether times have no zone.
    pub fn has_clock(&self) -> bool {
        let kind = self.columns.at.map(|column| column.kind);
        matches!(kind, Some(Kind::Clock(_) | Kind::Date | Kind::JulianTime))
    }

    /// The next row; `None` at the end. An error is the last that it says.
    pub fn next(&mut self, reading: &Reading) -> Result<Option<Row>, SourceError> {
        while self.ready.is_empty() && self.failed.is_none() {
            match caught(|| self.fill()) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(why) => self.failed = Some(why),
            }
        }
        match (self.ready.pop_front(), &self.failed) {
            (Some(cells), _) => Ok(Some(reading.row(&cells.as_ref().map(Cell::value)))),
            (None, why) => Err(SourceError::Parquet(why.clone().unwrap_or_default())),
        }
    }

    /// Makes a few more rows ready, or begins the next row group. `false`: there is none.
    fn fill(&mut self) -> Result<bool, ParquetError> {
        let Some(group) = &mut self.open else {
            let Some(metadata) = self.metadata.row_groups().get(self.begun) else { return Ok(false) };
            let rows = usize::try_from(metadata.num_rows())?;
            let file = &self.file;
            let readers = self.columns.as_ref().try_map(|column| {
                let Some(column) = *column else { return Ok(None) };
                let chunk = metadata.columns().get(column.leaf).ok_or_else(|| damaged("a group lacks a column"))?;
                if chunk.num_values() != metadata.num_rows() {
                    return Err(damaged("a column has more values or fewer than there are rows"));
                }
                let pages = Pages::new(Arc::clone(file), chunk, rows)?;
                Ok(Some(Reader { values: get_column_reader(chunk.column_descr_ptr(), Box::new(pages)), column }))
            })?;
            self.open = Some(Group { left: rows, readers });
            self.begun += 1;
            return Ok(true);
        };
        let rows = group.left.min(BATCH_ROWS);
        if rows == 0 {
            self.open = None;
            return Ok(true);
        }
        let Columns { tenant, listing, at, count, event_type } = &mut group.readers;
        let mut tenant = cells(tenant, rows)?.into_iter();
        let mut listing = cells(listing, rows)?.into_iter();
        let mut at = cells(at, rows)?.into_iter();
        let mut count = cells(count, rows)?.into_iter();
        let mut event_type = cells(event_type, rows)?.into_iter();
        for _ in 0..rows {
            self.ready.push_back(Columns {
                tenant: next(&mut tenant),
                listing: next(&mut listing),
                at: next(&mut at),
                count: next(&mut count),
                event_type: next(&mut event_type),
            });
        }
        group.left -= rows;
        Ok(true)
    }
}

fn next(cells: &mut std::vec::IntoIter<Cell>) -> Cell {
    cells.next().unwrap_or(Cell::NoColumn)
}

/// The next values of a column: as many as there are rows, or none where the column is not read.
fn cells(reader: &mut Option<Reader>, rows: usize) -> Result<Vec<Cell>, ParquetError> {
    let Some(reader) = reader else { return Ok(Vec::new()) };
    let cells = reader.read(rows)?;
    if cells.len() == rows { Ok(cells) } else { Err(damaged("a column has fewer values than there are rows")) }
}

fn unfit(name: &str, found: String) -> SourceError {
    SourceError::Column { name: name.to_owned(), found, expected: "texts, whole numbers or times are expected" }
}

impl Column {
    fn new(leaf: usize, column: &ColumnDescriptor) -> Result<Column, SourceError> {
        let is_flat = column.max_rep_level() == 0 && column.max_def_level() <= 1;
        match Kind::of(column).filter(|_| is_flat) {
            Some(kind) => Ok(Column { leaf, kind, is_optional: column.max_def_level() > 0 }),
            None => {
                let logical = column.logical_type_ref().map_or(String::new(), |logical| format!(" ({logical:?})"));
                Err(unfit(column.name(), format!("{}{logical}", column.physical_type())))
            }
        }
    }
}

impl Kind {
    /// `None` of what is not read.
    fn of(column: &ColumnDescriptor) -> Option<Kind> {
        let logical = column.logical_type_ref();
        let converted = column.converted_type();
        match (column.physical_type(), logical, converted) {
            (Type::BYTE_ARRAY, None | Some(LogicalType::String | LogicalType::Enum | LogicalType::Json), converted) => {
                use ConvertedType::{ENUM, JSON, NONE, UTF8};
                matches!(converted, NONE | UTF8 | ENUM | JSON).then_some(Kind::Text)
            }
            (Type::INT96, ..) => Some(Kind::JulianTime),
            (Type::FLOAT | Type::DOUBLE, None, ConvertedType::NONE) => Some(Kind::Float),
            (Type::INT32, Some(LogicalType::Date), _) | (Type::INT32, None, ConvertedType::DATE) => Some(Kind::Date),
            (Type::INT64, Some(LogicalType::Timestamp(time)), _) => {
                let per_s = match time.unit {
                    TimeUnit::MILLIS => 1_000,
                    TimeUnit::MICROS => 1_000_000,
                    TimeUnit::NANOS => 1_000_000_000,
                };
                Some(if time.is_adjusted_to_u_t_c { Kind::Instant(per_s) } else { Kind::Clock(per_s) })
            }
            // The format says of these older types that they are in UTC.
            (Type::INT64, None, ConvertedType::TIMESTAMP_MILLIS) => Some(Kind::Instant(1_000)),
            (Type::INT64, None, ConvertedType::TIMESTAMP_MICROS) => Some(Kind::Instant(1_000_000)),
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

    fn cell(self, number: i64, unsigned: u64) -> Cell {
        match self {
            Kind::Unsigned => i64::try_from(unsigned).map_or(Cell::TooLarge, Cell::Whole),
            Kind::Instant(per_s) => Cell::Instant(number.div_euclid(per_s)),
            Kind::Clock(per_s) => Cell::Clock(number.div_euclid(per_s)),
            Kind::Date => Cell::Clock(number * DAY_S),
            Kind::Text | Kind::Signed | Kind::Float | Kind::JulianTime => Cell::Whole(number),
        }
    }
}

impl Reader {
    fn read(&mut self, rows: usize) -> Result<Vec<Cell>, ParquetError> {
        let Column { kind, is_optional, .. } = self.column;
        match &mut self.values {
            ColumnReader::Int32ColumnReader(reader) => {
                values(reader, is_optional, rows, |number| kind.cell(number.into(), u64::from(number as u32)))
            }
            ColumnReader::Int64ColumnReader(reader) => {
                values(reader, is_optional, rows, |number| kind.cell(number, number as u64))
            }
            ColumnReader::Int96ColumnReader(reader) => {
                values(reader, is_optional, rows, |time| Cell::Clock(time.to_seconds()))
            }
            ColumnReader::FloatColumnReader(reader) => {
                values(reader, is_optional, rows, |value| Cell::Float(value.into()))
            }
            ColumnReader::DoubleColumnReader(reader) => values(reader, is_optional, rows, Cell::Float),
            ColumnReader::ByteArrayColumnReader(reader) => values(reader, is_optional, rows, Cell::Bytes),
            ColumnReader::BoolColumnReader(_) | ColumnReader::FixedLenByteArrayColumnReader(_) => {
                Err(damaged("a column is of another type than it says"))
            }
        }
    }
}

fn values<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    is_optional: bool,
    rows: usize,
    cell: impl Fn(T::T) -> Cell,
) -> Result<Vec<Cell>, ParquetError> {
    let mut levels = Vec::new();
    let mut values = Vec::new();
    reader.read_records(rows, is_optional.then_some(&mut levels), None, &mut values)?;
    let mut values = values.into_iter().map(cell);
    if !is_optional {
        return Ok(values.collect());
    }
    let value = |level| if level > 0 { values.next() } else { Some(Cell::Missing) };
    levels.into_iter().map(value).collect::<Option<_>>().ok_or_else(|| damaged("a column lacks values"))
}

impl Cell {
    fn value(&self) -> Value<'_> {
        match self {
            Cell::NoColumn => Value::NoColumn,
            Cell::Missing => Value::Missing,
            Cell::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
                Ok(text) if text.trim().is_empty() => Value::Missing,
                Ok(text) => Value::Text(Cow::Borrowed(text)),
                Err(_) => Value::Other("a text that is no UTF-8"),
            },
            Cell::Whole(number) => Value::Whole(*number),
            Cell::Float(value) => Value::Float(*value),
            Cell::Instant(seconds) => Value::Instant(*seconds),
            Cell::Clock(seconds) => Value::Clock(*seconds),
            Cell::TooLarge => Value::Other("a number that is too large"),
        }
    }
}
