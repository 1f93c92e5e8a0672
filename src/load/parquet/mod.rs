//! Rows of Parquet: up to four columns of a file, read in step, a few rows at a time.
//!
//! A file that is damaged is an error of the file, and never a panic nor more memory than [`tidemark_files::parquet::guard`] names. It gives
//! the same rows each time that it is read, so that rows keep their numbers.

#[cfg(test)]
mod tests;

use super::columns::{Cell, Columns, Naming, NoRow, Rule};
use super::rows::{Found, Read, RowError, read as read_row};
use crate::lines::too_long;
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy, RowGroupMetaData,
};
use parquet::file::reader::ChunkReader;
use parquet::schema::types::{ColumnDescriptor, Type as SchemaType};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use tidemark_files::parquet::guard::{Bounded, Pages, caught};

/// Rows that are read at a time.
const BATCH_ROWS: u64 = 128;
const DAY_S: i128 = 86_400;
/// Digits of a decimal number, and those behind its point. Others are refused.
const DECIMAL_DIGITS_MAX: i32 = 38;

/// The rows of a file, from the first on.
pub struct Rows<R: ChunkReader> {
    file: Arc<Bounded<R>>,
    metadata: Arc<ParquetMetaData>,
    rule: Rule,
    found: Found,
    columns: Columns<Option<Column>>,
    /// Row groups that were begun.
    begun: usize,
    open: Option<Group>,
    ready: VecDeque<Columns<Value>>,
    /// Of the last row that was given, from 1 on.
    row: u64,
    failed: Option<String>,
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
    /// Of 16 bytes; read as its text of 36 characters.
    Uuid,
    Signed,
    Unsigned,
    Float,
    /// With so many digits behind the point.
    Decimal(u32),
    /// So many to a second, since 1970 in UTC.
    Instant(i128),
    /// So many to a second, by a clock whose zone the file does not say.
    Clock(i128),
    /// By a calendar whose zone the file does not say.
    Date,
    /// Days of the Julian calendar and nanoseconds, by a clock whose zone the file does not say.
    JulianTime,
}

/// What stands in a column of a row.
enum Value {
    Text(ByteArray),
    Cell(Cell<'static>),
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
        let rule = Rule::new(naming)?;
        let (columns, found) = find(&metadata, &rule)?;
        let (begun, open, ready, row, failed) = Default::default();
        Ok(Rows { file, metadata, rule, found, columns, begun, open, ready, row, failed })
    }

    pub fn found(&self) -> Found {
        self.found.clone()
    }

    /// The next row; `None` at the end. An error is the last that it says.
    pub fn next_row(&mut self) -> Result<Option<Read>, RowError> {
        while self.ready.is_empty() && self.failed.is_none() {
            match caught(|| self.fill()) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(why) => self.failed = Some(why),
            }
        }
        match (self.ready.pop_front(), &self.failed) {
            (Some(values), _) => {
                let values = values.as_ref();
                self.row += 1;
                let row = values.try_map(|value| value.cell()).map_err(NoRow::Broken);
                read_row("row", self.row, row.and_then(|cells| self.rule.row(&cells))).map(Some)
            }
            (None, why) => {
                let why = why.as_deref().unwrap_or_default();
                Err(RowError::Parquet(format!("{why} (behind row {})", self.row)))
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
        let Columns { counter, delta, at, event_id } = &mut group.readers;
        let read = |reader: &mut Option<Reader>| match reader {
            Some(reader) => reader.read(rows),
            None => Ok((0..rows).map(|_| Value::Cell(Cell::NoColumn)).collect()),
        };
        let (counter, delta, at, event_id) = (read(counter)?, read(delta)?, read(at)?, read(event_id)?);
        let rest = counter.into_iter().zip(delta).zip(at).zip(event_id);
        let columns = |(((counter, delta), at), event_id)| Columns { counter, delta, at, event_id };
        self.ready.extend(rest.map(columns));
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

fn find(metadata: &ParquetMetaData, rule: &Rule) -> Result<(Columns<Option<Column>>, Found), RowError> {
    let schema = metadata.file_metadata().schema_descr();
    let names: Vec<String> = schema.root_schema().get_fields().iter().map(|field| field.name().to_owned()).collect();
    let columns = rule.naming.find(&names).map_err(RowError::Parquet)?;
    let found = Found::new(&columns, &rule.naming, &names);
    let columns = columns.try_map(|root| {
        let Some(root) = root else { return Ok(None) };
        let leaf = (0..schema.num_columns()).find(|leaf| schema.get_column_root_idx(*leaf) == root);
        let leaf = leaf.ok_or_else(|| RowError::Parquet(format!("column {:?} has no values", names[root])))?;
        Column::new(leaf, &schema.columns()[leaf], &schema.root_schema().get_fields()[root]).map(Some)
    })?;
    let Columns { counter, delta, at, event_id } = &columns;
    let unfit = |column: &Option<Column>, name: &str, is_delta: bool| {
        let what = match column.as_ref()?.kind {
            Kind::Text | Kind::Uuid if !is_delta => return None,
            Kind::Uuid => "UUIDs",
            Kind::Text | Kind::Signed | Kind::Unsigned | Kind::Decimal(_) => return None,
            Kind::Float if is_delta => return None,
            Kind::Float => "floating-point numbers",
            Kind::Instant(_) | Kind::Clock(_) | Kind::Date | Kind::JulianTime => "times",
        };
        Some(RowError::Parquet(format!("column {name:?} has {what}: texts or whole numbers expected")))
    };
    let naming = &rule.naming;
    let id_name = naming.event_id.as_deref().unwrap_or_default();
    let named = [(counter, naming.counter.as_str(), false), (delta, &naming.delta, true), (event_id, id_name, false)];
    if let Some(error) = named.into_iter().find_map(|(column, name, is_delta)| unfit(column, name, is_delta)) {
        return Err(error);
    }
    if at.as_ref().is_some_and(|at| at.kind == Kind::Uuid) {
        return Err(RowError::Parquet(format!(
            "column {:?} has UUIDs: times, texts or whole numbers expected",
            naming.at
        )));
    }
    let has_no_zone = |column: &Column| matches!(column.kind, Kind::Clock(_) | Kind::Date | Kind::JulianTime);
    if at.as_ref().is_some_and(has_no_zone) && !rule.has_zone() {
        let what = format!("column {:?}", naming.at);
        return Err(RowError::NoZone { place: "Parquet".to_owned(), what });
    }
    Ok((columns, found))
}

impl Column {
    fn new(leaf: usize, column: &ColumnDescriptor, root: &SchemaType) -> Result<Column, RowError> {
        let name = root.name();
        let expected = "texts, numbers or times expected";
        if column.max_rep_level() > 0 {
            let is_map = root.get_basic_info().logical_type_ref() == Some(&LogicalType::Map)
                || matches!(root.get_basic_info().converted_type(), ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE);
            let what = if is_map { "maps" } else { "lists" };
            return Err(RowError::Parquet(format!("column {name:?} has {what}: {expected}")));
        }
        if root.is_group() || column.max_def_level() > 1 {
            return Err(RowError::Parquet(format!("column {name:?} has fields of its own: {expected}")));
        }
        match Kind::of(column) {
            Some(kind) => Ok(Column { leaf, kind, is_optional: column.max_def_level() > 0 }),
            None => Err(RowError::Parquet(format!(
                "column {name:?} is {}{}: {expected}",
                column.physical_type(),
                column.logical_type_ref().map_or(String::new(), |logical| format!(" ({logical:?})")),
            ))),
        }
    }
}

impl Kind {
    /// `None` of what is not understood.
    fn of(column: &ColumnDescriptor) -> Option<Kind> {
        let (logical, converted) = (column.logical_type_ref(), column.converted_type());
        if matches!(logical, Some(LogicalType::Decimal(_))) || logical.is_none() && converted == ConvertedType::DECIMAL
        {
            let is_number = !matches!(column.physical_type(), Type::BOOLEAN | Type::INT96 | Type::FLOAT | Type::DOUBLE);
            let scale = (0..=DECIMAL_DIGITS_MAX).contains(&column.type_scale());
            return (is_number && scale).then_some(Kind::Decimal(column.type_scale().unsigned_abs()));
        }
        match (column.physical_type(), logical, converted) {
            (Type::BYTE_ARRAY, None | Some(LogicalType::String | LogicalType::Enum | LogicalType::Json), converted) => {
                use ConvertedType::{ENUM, JSON, NONE, UTF8};
                matches!(converted, NONE | UTF8 | ENUM | JSON).then_some(Kind::Text)
            }
            (Type::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Uuid), _) => Some(Kind::Uuid),
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

    /// A number as it is written.
    fn value(self, number: i64, unsigned: u64) -> Value {
        let number = i128::from(number);
        Value::Cell(match self {
            Kind::Unsigned => Cell::Whole(unsigned.into()),
            Kind::Instant(per_s) => Cell::Instant(number.div_euclid(per_s)),
            Kind::Clock(per_s) => Cell::Clock(number.div_euclid(per_s)),
            Kind::Date => Cell::Clock(number * DAY_S),
            Kind::Decimal(scale) => decimal(number, scale),
            Kind::Text | Kind::Uuid | Kind::Signed | Kind::Float | Kind::JulianTime => Cell::Whole(number),
        })
    }

    fn bytes(self, bytes: ByteArray) -> Value {
        match self {
            Kind::Decimal(scale) => Value::Cell(match signed(bytes.data()) {
                Some(number) => decimal(number, scale),
                None => Cell::Other("a decimal number of more than 16 bytes"),
            }),
            Kind::Uuid => Value::Cell(uuid(bytes.data())),
            _ => Value::Text(bytes),
        }
    }
}

/// A UUID as it is written elsewhere, in lower case.
fn uuid(bytes: &[u8]) -> Cell<'static> {
    let Ok(bytes) = <[u8; 16]>::try_from(bytes) else { return Cell::Other("a UUID of other than 16 bytes") };
    let digits = crate::names::hex(&bytes);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    Cell::Text(Cow::Owned(parts.join("-")))
}

/// A number of bytes with the highest first, negative where the first bit is set. `None`: it has more than 128 bits.
fn signed(bytes: &[u8]) -> Option<i128> {
    let fill = if bytes.first().is_some_and(|first| first & 0x80 != 0) { 0xff } else { 0 };
    let kept = &bytes[bytes.len().saturating_sub(size_of::<i128>())..];
    let mut whole = [fill; size_of::<i128>()];
    whole[size_of::<i128>() - kept.len()..].copy_from_slice(kept);
    let is_extended = bytes[..bytes.len() - kept.len()].iter().all(|byte| *byte == fill);
    (is_extended && (whole[0] ^ fill) & 0x80 == 0).then(|| i128::from_be_bytes(whole))
}

/// A decimal number; with a point, where it is no whole number.
fn decimal(number: i128, scale: u32) -> Cell<'static> {
    let Some(one) = 10i128.checked_pow(scale) else { return Cell::Other("a decimal number of more than 38 digits") };
    if number % one == 0 {
        return Cell::Whole(number / one);
    }
    let (sign, size) = (if number < 0 { "-" } else { "" }, number.unsigned_abs());
    let (whole, rest) = (size / one.unsigned_abs(), size % one.unsigned_abs());
    Cell::Text(Cow::Owned(format!("{sign}{whole}.{rest:0width$}", width = scale as usize)))
}

impl Group {
    fn open<R: ChunkReader + 'static>(
        file: &Arc<Bounded<R>>,
        metadata: &RowGroupMetaData,
        columns: &Columns<Option<Column>>,
    ) -> Result<Group, ParquetError> {
        let rows = metadata.num_rows();
        let readers = columns.try_map(|column| {
            let Some(column) = column else { return Ok(None) };
            let chunk = metadata.columns().get(column.leaf).ok_or_else(|| damaged("a row group lacks a column"))?;
            if chunk.num_values() != rows {
                return Err(damaged("a column has more values or fewer than there are rows"));
            }
            let pages = Pages::new(Arc::clone(file), chunk, usize::try_from(rows)?)?;
            let values = get_column_reader(chunk.column_descr_ptr(), Box::new(pages));
            Ok(Some(Reader { values, column }))
        })?;
        Ok(Group { left: u64::try_from(rows)?, readers })
    }

    /// Whether nothing is left of any column.
    fn end(&mut self) -> Result<(), ParquetError> {
        for reader in self.readers.as_mut().into_array().into_iter().flatten() {
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
                read(reader, is_optional, rows, |time| Value::Cell(Cell::Clock(time.to_seconds().into())))
            }
            ColumnReader::FloatColumnReader(reader) => {
                read(reader, is_optional, rows, |value| Value::Cell(Cell::float(value)))
            }
            ColumnReader::DoubleColumnReader(reader) => {
                read(reader, is_optional, rows, |value| Value::Cell(Cell::double(value)))
            }
            ColumnReader::ByteArrayColumnReader(reader) => read(reader, is_optional, rows, |bytes| kind.bytes(bytes)),
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                read(reader, is_optional, rows, |bytes| kind.bytes(bytes.into()))
            }
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
    let value = |level| if level > 0 { values.next() } else { Some(Value::Cell(Cell::Missing)) };
    levels.into_iter().map(value).collect::<Option<_>>().ok_or_else(|| damaged("a column lacks values"))
}

impl Value {
    fn cell(&self) -> Result<Cell<'_>, String> {
        match self {
            Value::Cell(cell) => Ok(cell.clone()),
            Value::Text(bytes) => text(bytes).map(Cell::text),
        }
    }
}

/// A text, as long as a field may be.
fn text(bytes: &ByteArray) -> Result<&str, String> {
    let bytes = bytes.data();
    match too_long(bytes) {
        Some(why) => Err(format!("a text has {why}")),
        None => std::str::from_utf8(bytes).map_err(|_| "a text is no UTF-8".to_owned()),
    }
}
