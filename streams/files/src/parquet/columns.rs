//! Columns of Parquet: which are understood, what their values mean, and their values, some rows at a time.
//!
//! A file that does not agree with itself about its rows is damaged: no row of it is left out.

use super::coded::{CodedReader, CodedTexts, Text};
use super::guard::{Bounded, Pages, damaged};
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy,
    RowGroupMetaData,
};
use parquet::file::reader::ChunkReader;
use parquet::schema::types::ColumnDescriptor;
use std::ops::Range;
use std::sync::Arc;

const DAY_S: i64 = 86_400;
/// Digits of a decimal number, and those behind its point. Others are refused.
const DECIMAL_DIGITS_MAX: i32 = 38;

/// Bytes of texts that are copied together. A dictionary may give a few kilobytes of a file as many long texts.
const TOGETHER_BYTES_MAX: usize = 4 << 20;

/// Where a column is, and what its values mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    leaf: usize,
    pub kind: Kind,
    is_optional: bool,
}

/// The meaning of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Uuid,
    Signed,
    Unsigned,
    Float,
    /// With this many digits behind the point.
    Decimal(u32),
    /// Since 1970 in UTC, this many to a second.
    Instant(i64),
    /// This many to a second, by a clock. The file does not name its zone.
    Clock(i64),
    /// Days of a calendar. The file does not name its zone.
    Date,
    /// Days of the Julian calendar and nanoseconds, by a clock. The file does not name its zone.
    JulianTime,
}

/// The content of a column in a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Missing,
    Text(ByteArray),
    /// 16 bytes, unless the file is damaged.
    Uuid(ByteArray),
    Signed(i64),
    Unsigned(u64),
    Single(f32),
    Double(f64),
    /// A number without its point, and the digits behind the point.
    Decimal(i64, u32),
    /// The same in bytes, the highest first.
    DecimalBytes(ByteArray, u32),
    /// Seconds since 1970.
    Instant(i64),
    /// Seconds since 1970-01-01 by a clock. The file does not name its zone.
    Clock(i64),
}

/// Texts of consecutive rows.
#[derive(Debug)]
pub enum Texts {
    /// A number for each text. Texts of a dictionary are kept once.
    Coded(CodedTexts),
    /// All texts in one buffer, with the range of each; `None`: the text is missing.
    Together { text: String, ranges: Vec<Option<Range<usize>>> },
    /// Each text on its own, because some are not UTF-8, or all together are too long to copy.
    Apart(Vec<Option<ByteArray>>),
}

/// Whole numbers or times of consecutive rows.
#[derive(Debug)]
pub struct Numbers {
    numbers: Vec<i64>,
    /// Whether the number of a row is missing. It is empty if no number is.
    are_missing: Vec<bool>,
}

/// A column of a row group.
pub struct Reader {
    values: Values,
    column: Column,
}

enum Values {
    OfLibrary(ColumnReader),
    Coded(CodedReader),
}

/// All that is needed of a file's metadata.
///
/// # Errors
/// The file is damaged, or it is no Parquet.
pub fn metadata<R: ChunkReader>(file: &Bounded<R>) -> Result<ParquetMetaData, ParquetError> {
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

impl Column {
    /// `None`: it is a list or a part of something, or its type is not understood.
    pub fn of(leaf: usize, column: &ColumnDescriptor) -> Option<Column> {
        let is_flat = column.max_rep_level() == 0 && column.max_def_level() <= 1;
        let kind = Kind::of(column).filter(|_| is_flat)?;
        Some(Column { leaf, kind, is_optional: column.max_def_level() > 0 })
    }

    /// The type of a column, for errors.
    pub fn type_of(column: &ColumnDescriptor) -> String {
        let logical = column.logical_type_ref().map_or(String::new(), |logical| format!(" ({logical:?})"));
        let repeated = if column.max_rep_level() > 0 { "a list of " } else { "" };
        format!("{repeated}{}{logical}", column.physical_type())
    }
}

impl Kind {
    /// Whether these are times by a clock of a zone that the file does not name.
    pub fn has_no_zone(self) -> bool {
        matches!(self, Kind::Clock(_) | Kind::Date | Kind::JulianTime)
    }

    /// `None` of what is not understood.
    pub(super) fn of(column: &ColumnDescriptor) -> Option<Kind> {
        let logical = column.logical_type_ref();
        let converted = column.converted_type();
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

    /// A number as it is stored, read with and without a sign.
    pub(super) fn number(self, signed: i64, unsigned: u64) -> Value {
        match self {
            Kind::Unsigned => Value::Unsigned(unsigned),
            Kind::Instant(per_s) => Value::Instant(signed.div_euclid(per_s)),
            Kind::Clock(per_s) => Value::Clock(signed.div_euclid(per_s)),
            // Dates have 32 bits.
            Kind::Date => Value::Clock(signed.saturating_mul(DAY_S)),
            Kind::Decimal(scale) => Value::Decimal(signed, scale),
            Kind::Text | Kind::Uuid | Kind::Signed | Kind::Float | Kind::JulianTime => Value::Signed(signed),
        }
    }

    pub(super) fn bytes(self, bytes: ByteArray) -> Value {
        match self {
            Kind::Decimal(scale) => Value::DecimalBytes(bytes, scale),
            Kind::Uuid => Value::Uuid(bytes),
            Kind::Text
            | Kind::Signed
            | Kind::Unsigned
            | Kind::Float
            | Kind::Instant(_)
            | Kind::Clock(_)
            | Kind::Date
            | Kind::JulianTime => Value::Text(bytes),
        }
    }
}

impl Reader {
    /// A column of a row group, from its first row on.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn open<R: ChunkReader + 'static>(
        file: &Arc<Bounded<R>>,
        group: &RowGroupMetaData,
        column: Column,
    ) -> Result<Reader, ParquetError> {
        let (chunk, pages) = chunk_of(file, group, column)?;
        let values = get_column_reader(chunk.column_descr_ptr(), Box::new(pages));
        Ok(Reader { values: Values::OfLibrary(values), column })
    }

    /// The same for [`Reader::read_texts`] if the column has texts, and for the other readers otherwise.
    ///
    /// # Errors
    /// As of [`Reader::open`].
    pub fn open_batches<R: ChunkReader + 'static>(
        file: &Arc<Bounded<R>>,
        group: &RowGroupMetaData,
        column: Column,
    ) -> Result<Reader, ParquetError> {
        let (chunk, pages) = chunk_of(file, group, column)?;
        if column.kind != Kind::Text || !CodedReader::reads(chunk) {
            return Reader::open(file, group, column);
        }
        Ok(Reader { values: Values::Coded(CodedReader::open(pages, chunk)?), column })
    }

    /// The meaning of its values.
    pub fn kind(&self) -> Kind {
        self.column.kind
    }

    /// The values of the next rows.
    ///
    /// # Errors
    /// There are fewer, or the file is damaged otherwise.
    pub fn read(&mut self, rows: usize) -> Result<Vec<Value>, ParquetError> {
        let values = self.read_up_to(rows)?;
        match values.len() == rows {
            true => Ok(values),
            false => Err(damaged("a column has fewer values than there are rows")),
        }
    }

    /// The texts of the next rows, of a column of texts. It is faster than a value for each row.
    ///
    /// # Errors
    /// As of [`Reader::read`], and the column is none of texts.
    pub fn read_texts(&mut self, rows: usize) -> Result<Texts, ParquetError> {
        let reader = match &mut self.values {
            Values::OfLibrary(ColumnReader::ByteArrayColumnReader(reader)) => reader,
            Values::OfLibrary(_) => return Err(damaged("a column is of another type than it says")),
            Values::Coded(reader) => {
                let texts = reader.read(rows)?;
                return match texts.len() == rows {
                    true => Ok(Texts::Coded(texts)),
                    false => Err(damaged("a column has fewer values than there are rows")),
                };
            }
        };
        let mut levels = Vec::new();
        let mut values = Vec::with_capacity(rows);
        reader.read_records(rows, self.column.is_optional.then_some(&mut levels), None, &mut values)?;
        let is_there = |at: usize| levels.get(at).is_none_or(|level| *level > 0);
        let missing = levels.iter().filter(|level| **level == 0).count();
        if values.len() + missing != rows {
            return Err(damaged("a column has fewer values than there are rows"));
        }
        let present = (0..rows).map(is_there);
        Ok(Texts::together(&values, present.clone()).unwrap_or_else(|| Texts::apart(values, present)))
    }

    /// The numbers of the next rows, of a column of signed numbers or times. Times are in seconds. It is faster than a value for each row.
    ///
    /// # Errors
    /// As of [`Reader::read`], and the column is of another kind.
    pub fn read_numbers(&mut self, rows: usize) -> Result<Numbers, ParquetError> {
        let Column { kind, is_optional, .. } = self.column;
        let mut read = match &mut self.values {
            Values::OfLibrary(ColumnReader::Int32ColumnReader(reader)) => numbers(reader, is_optional, rows, i64::from),
            Values::OfLibrary(ColumnReader::Int64ColumnReader(reader)) => {
                numbers(reader, is_optional, rows, |number| number)
            }
            Values::OfLibrary(ColumnReader::Int96ColumnReader(reader)) => {
                numbers(reader, is_optional, rows, |time| time.to_seconds())
            }
            Values::OfLibrary(_) | Values::Coded(_) => Err(damaged("a column is of another type than it says")),
        }?;
        match kind {
            Kind::Instant(per_s) | Kind::Clock(per_s) => to_seconds(&mut read.numbers, per_s),
            // Dates have 32 bits.
            Kind::Date => read.numbers.iter_mut().for_each(|days| *days = days.saturating_mul(DAY_S)),
            Kind::Signed | Kind::JulianTime => {}
            Kind::Text | Kind::Uuid | Kind::Unsigned | Kind::Float | Kind::Decimal(_) => {
                return Err(damaged("a column is of another type than it says"));
            }
        }
        match read.numbers.len() == rows {
            true => Ok(read),
            false => Err(damaged("a column has fewer values than there are rows")),
        }
    }

    /// Checks behind the last row that nothing is left.
    ///
    /// # Errors
    /// There are more values.
    pub fn end(&mut self) -> Result<(), ParquetError> {
        let is_empty = match &mut self.values {
            Values::Coded(reader) => reader.read(1)?.is_empty(),
            Values::OfLibrary(_) => self.read_up_to(1)?.is_empty(),
        };
        match is_empty {
            true => Ok(()),
            false => Err(damaged("a column has more values than there are rows")),
        }
    }

    /// Fewer at the end of the column.
    fn read_up_to(&mut self, rows: usize) -> Result<Vec<Value>, ParquetError> {
        let Column { kind, is_optional, .. } = self.column;
        let values_of_library = match &mut self.values {
            Values::OfLibrary(values) => values,
            Values::Coded(_) => return Err(damaged("a column of texts is read as texts")),
        };
        match values_of_library {
            ColumnReader::Int32ColumnReader(reader) => {
                values(reader, is_optional, rows, |number| kind.number(number.into(), (number as u32).into()))
            }
            ColumnReader::Int64ColumnReader(reader) => {
                values(reader, is_optional, rows, |number| kind.number(number, number as u64))
            }
            ColumnReader::Int96ColumnReader(reader) => {
                values(reader, is_optional, rows, |time| Value::Clock(time.to_seconds()))
            }
            ColumnReader::FloatColumnReader(reader) => values(reader, is_optional, rows, Value::Single),
            ColumnReader::DoubleColumnReader(reader) => values(reader, is_optional, rows, Value::Double),
            ColumnReader::ByteArrayColumnReader(reader) => values(reader, is_optional, rows, |bytes| kind.bytes(bytes)),
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                values(reader, is_optional, rows, |bytes| kind.bytes(bytes.into()))
            }
            ColumnReader::BoolColumnReader(_) => Err(damaged("a column is of another type than it says")),
        }
    }
}

impl Texts {
    /// `None`: the texts are too long, or not all of them are UTF-8.
    fn together(values: &[ByteArray], present: impl Iterator<Item = bool>) -> Option<Texts> {
        let length: usize = values.iter().map(ByteArray::len).sum();
        if length > TOGETHER_BYTES_MAX {
            return None;
        }
        let mut bytes = Vec::with_capacity(length);
        let mut values = values.iter();
        let mut next = || {
            let start = bytes.len();
            bytes.extend_from_slice(values.next()?.data());
            Some(start..bytes.len())
        };
        let ranges: Vec<Option<Range<usize>>> = present.map(|is_there| if is_there { next() } else { None }).collect();
        let text = String::from_utf8(bytes).ok()?;
        // Two texts may be UTF-8 together, and neither by itself.
        let are_whole = ranges.iter().flatten().all(|range| text.is_char_boundary(range.end));
        are_whole.then_some(Texts::Together { text, ranges })
    }

    fn apart(values: Vec<ByteArray>, present: impl Iterator<Item = bool>) -> Texts {
        let mut values = values.into_iter();
        Texts::Apart(present.map(|is_there| if is_there { values.next() } else { None }).collect())
    }

    /// The text of a row; `None` after the last row.
    #[inline]
    pub fn get(&self, at: usize) -> Option<Text<'_>> {
        let text = match self {
            Texts::Coded(texts) => return texts.get(at),
            Texts::Together { text, ranges } => match ranges.get(at)? {
                Some(range) => Some(&text[range.clone()]),
                None => return Some(Text::Missing),
            },
            Texts::Apart(values) => match values.get(at)? {
                Some(bytes) => std::str::from_utf8(bytes.data()).ok(),
                None => return Some(Text::Missing),
            },
        };
        Some(text.map_or(Text::NoUtf8, Text::Utf8))
    }
}

impl Numbers {
    /// The number of a row, and `None` inside if it is missing; `None` after the last row.
    #[inline]
    pub fn get(&self, at: usize) -> Option<Option<i64>> {
        let number = *self.numbers.get(at)?;
        let is_missing = self.are_missing.get(at).is_some_and(|is_missing| *is_missing);
        Some((!is_missing).then_some(number))
    }
}

/// Divides by a number that the compiler knows, which is several times faster.
fn to_seconds(times: &mut [i64], per_s: i64) {
    match per_s {
        1_000 => times.iter_mut().for_each(|time| *time = time.div_euclid(1_000)),
        1_000_000 => times.iter_mut().for_each(|time| *time = time.div_euclid(1_000_000)),
        per_s => times.iter_mut().for_each(|time| *time = time.div_euclid(per_s)),
    }
}

fn numbers<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    is_optional: bool,
    rows: usize,
    number: impl Fn(T::T) -> i64,
) -> Result<Numbers, ParquetError> {
    let mut levels = Vec::new();
    let mut values = Vec::with_capacity(rows);
    reader.read_records(rows, is_optional.then_some(&mut levels), None, &mut values)?;
    let mut numbers = values.into_iter().map(number);
    if levels.len() <= numbers.len() {
        return Ok(Numbers { numbers: numbers.collect(), are_missing: Vec::new() });
    }
    let are_missing: Vec<bool> = levels.iter().map(|level| *level == 0).collect();
    let number = |is_missing: &bool| if *is_missing { Some(0) } else { numbers.next() };
    let numbers: Option<Vec<i64>> = are_missing.iter().map(number).collect();
    Ok(Numbers { numbers: numbers.ok_or_else(|| damaged("a column lacks values"))?, are_missing })
}

/// A column of a row group, and its pages.
fn chunk_of<'a, R: ChunkReader + 'static>(
    file: &Arc<Bounded<R>>,
    group: &'a RowGroupMetaData,
    column: Column,
) -> Result<(&'a ColumnChunkMetaData, Pages<R>), ParquetError> {
    let rows = group.num_rows();
    let chunk = group.columns().get(column.leaf).ok_or_else(|| damaged("a row group lacks a column"))?;
    if chunk.num_values() != rows {
        return Err(damaged("a column has more values or fewer than there are rows"));
    }
    Ok((chunk, Pages::new(Arc::clone(file), chunk, usize::try_from(rows)?)?))
}

fn values<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    is_optional: bool,
    rows: usize,
    value: impl Fn(T::T) -> Value,
) -> Result<Vec<Value>, ParquetError> {
    let mut levels = Vec::new();
    let mut values = Vec::with_capacity(rows);
    reader.read_records(rows, is_optional.then_some(&mut levels), None, &mut values)?;
    if levels.len() <= values.len() {
        return Ok(values.into_iter().map(value).collect());
    }
    let mut values = values.into_iter().map(value);
    let value = |level| if level > 0 { values.next() } else { Some(Value::Missing) };
    levels.into_iter().map(value).collect::<Option<_>>().ok_or_else(|| damaged("a column lacks values"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(all: &[Option<&[u8]>]) -> Texts {
        let values: Vec<ByteArray> = all.iter().flatten().map(|bytes| ByteArray::from(bytes.to_vec())).collect();
        let present = all.iter().map(Option::is_some);
        Texts::together(&values, present.clone()).unwrap_or_else(|| Texts::apart(values, present))
    }

    /// Each text is checked on its own, whatever its neighbours are.
    fn check(all: &[Option<&[u8]>]) {
        let texts = texts(all);
        for (at, bytes) in all.iter().enumerate() {
            let expected = match bytes {
                None => Text::Missing,
                Some(bytes) => std::str::from_utf8(bytes).map_or(Text::NoUtf8, Text::Utf8),
            };
            assert_eq!(texts.get(at), Some(expected), "{at} of {all:?}");
        }
        assert_eq!(texts.get(all.len()), None);
    }

    #[test]
    fn each_text_of_a_batch_is_read_by_itself() {
        let euro = "€".as_bytes();
        check(&[]);
        check(&[None, Some(b"a"), None, Some(b""), Some(euro)]);
        // A character in two texts, with nothing, an empty text or a missing one between them.
        check(&[Some(&euro[..1]), Some(&euro[1..])]);
        check(&[Some(&euro[..1]), Some(b""), Some(&euro[1..]), Some(b"a")]);
        check(&[Some(&euro[..2]), None, Some(&euro[2..])]);
        check(&[Some(b"a"), Some(b"\xff"), None, Some(euro)]);
    }

    #[test]
    fn long_texts_are_not_copied() {
        let long = vec![b'x'; TOGETHER_BYTES_MAX / 2 + 1];
        let texts = texts(&[Some(&long), None, Some(&long)]);
        assert!(matches!(texts, Texts::Apart(_)));
        assert_eq!(texts.get(2), Some(Text::Utf8(std::str::from_utf8(&long).unwrap())));
    }
}
