//! Rows of Parquet: up to four columns of a file, read in step, a few rows at a time.
//!
//! A file that is damaged is an error of the file, and never a panic nor more memory than [`tidemark_files::parquet::guard`] names. It gives
//! the same rows each time that it is read, so that rows keep their numbers.

#[cfg(test)]
mod tests;

use super::columns::{Cell, Columns, Naming, NoRow, Rule};
use super::fault::RowFault;
use super::rows::{Found, Read, RowError, read as read_row};
use crate::lines::check_length;
use parquet::basic::{ConvertedType, LogicalType};
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::ChunkReader;
use parquet::schema::types::{ColumnDescriptor, Type as SchemaType};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use tidemark_files::parquet::columns::{Column, Kind, Reader, Value as Stored, metadata};
use tidemark_files::parquet::guard::{Bounded, Unreadable, caught};

/// Rows that are read at a time.
const BATCH_ROWS: u64 = 128;

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
    failed: Option<Unreadable>,
}

/// The content of a column in a row.
enum Value {
    Text(ByteArray),
    Cell(Cell<'static>),
}

/// A row group, and how many of its rows are left.
struct Group {
    left: u64,
    readers: Columns<Option<Reader>>,
}

impl<R: ChunkReader + 'static> Rows<R> {
    /// From the beginning of a file.
    pub fn open(file: R, naming: &Naming) -> Result<Rows<R>, RowError> {
        let opened = caught(|| {
            let file = Bounded::new(file)?;
            let metadata = metadata(&file)?;
            Ok((Arc::new(file), Arc::new(metadata)))
        });
        let (file, metadata) = opened.map_err(|error| RowError::Parquet(error.to_string()))?;
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
            (None, Some(why)) => Err(RowError::Parquet(format!("{why} (behind row {})", self.row))),
            (None, None) => Ok(None),
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
        let read = |reader: &mut Option<Reader>| -> Result<Vec<Value>, ParquetError> {
            match reader {
                Some(reader) => Ok(reader.read(rows)?.into_iter().map(Value::of).collect()),
                None => Ok((0..rows).map(|_| Value::Cell(Cell::NoColumn)).collect()),
            }
        };
        let counter = read(counter)?;
        let delta = read(delta)?;
        let at = read(at)?;
        let event_id = read(event_id)?;
        let rest = counter.into_iter().zip(delta).zip(at).zip(event_id);
        let columns = |(((counter, delta), at), event_id)| Columns { counter, delta, at, event_id };
        self.ready.extend(rest.map(columns));
        group.left -= rows as u64;
        Ok(true)
    }
}

fn find(metadata: &ParquetMetaData, rule: &Rule) -> Result<(Columns<Option<Column>>, Found), RowError> {
    let schema = metadata.file_metadata().schema_descr();
    let names: Vec<String> = schema.root_schema().get_fields().iter().map(|field| field.name().to_owned()).collect();
    let columns = rule.naming.find(&names).map_err(|fault| RowError::Parquet(fault.to_string()))?;
    let found = Found::new(&columns, &rule.naming, &names);
    let columns = columns.try_map(|root| {
        let Some(root) = root else { return Ok(None) };
        let leaf = (0..schema.num_columns()).find(|leaf| schema.get_column_root_idx(*leaf) == root);
        let leaf = leaf.ok_or_else(|| RowError::Parquet(format!("column {:?} has no values", names[root])))?;
        column_of(leaf, &schema.columns()[leaf], &schema.root_schema().get_fields()[root]).map(Some)
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
    if at.is_some_and(|at| at.kind.has_no_zone()) && !rule.has_zone() {
        let what = format!("column {:?}", naming.at);
        return Err(RowError::NoZone { place: "Parquet".to_owned(), what });
    }
    Ok((columns, found))
}

/// A column that is understood, or why it is not.
fn column_of(leaf: usize, column: &ColumnDescriptor, root: &SchemaType) -> Result<Column, RowError> {
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
    let found = Column::of(leaf, column);
    found.ok_or_else(|| RowError::Parquet(format!("column {name:?} is {}: {expected}", Column::type_of(column))))
}

impl Value {
    fn of(stored: Stored) -> Value {
        Value::Cell(match stored {
            Stored::Text(bytes) => return Value::Text(bytes),
            Stored::Missing => Cell::Missing,
            Stored::Uuid(bytes) => uuid(bytes.data()),
            Stored::Signed(number) => Cell::Whole(number.into()),
            Stored::Unsigned(number) => Cell::Whole(number.into()),
            Stored::Single(value) => Cell::float(value),
            Stored::Double(value) => Cell::double(value),
            Stored::Decimal(number, scale) => decimal(number.into(), scale),
            Stored::DecimalBytes(bytes, scale) => match signed(bytes.data()) {
                Some(number) => decimal(number, scale),
                None => Cell::Other("a decimal number of more than 16 bytes"),
            },
            Stored::Instant(seconds) => Cell::Instant(seconds.into()),
            Stored::Clock(seconds) => Cell::Clock(seconds.into()),
        })
    }
}

/// A UUID as it is written elsewhere, in lower case.
fn uuid(bytes: &[u8]) -> Cell<'static> {
    let Ok(bytes) = <[u8; 16]>::try_from(bytes) else { return Cell::Other("a UUID of other than 16 bytes") };
    let digits = tidemark_server::names::hex(&bytes);
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
    let sign = if number < 0 { "-" } else { "" };
    let size = number.unsigned_abs();
    let whole = size / one.unsigned_abs();
    let rest = size % one.unsigned_abs();
    Cell::Text(Cow::Owned(format!("{sign}{whole}.{rest:0width$}", width = scale as usize)))
}

impl Group {
    fn open<R: ChunkReader + 'static>(
        file: &Arc<Bounded<R>>,
        metadata: &RowGroupMetaData,
        columns: &Columns<Option<Column>>,
    ) -> Result<Group, ParquetError> {
        let open = |column: Option<Column>| column.map(|column| Reader::open(file, metadata, column)).transpose();
        Ok(Group { left: u64::try_from(metadata.num_rows())?, readers: columns.try_map(open)? })
    }

    /// Whether nothing is left of any column.
    fn end(&mut self) -> Result<(), ParquetError> {
        self.readers.as_mut().into_array().into_iter().flatten().try_for_each(Reader::end)
    }
}

impl Value {
    fn cell(&self) -> Result<Cell<'_>, RowFault> {
        match self {
            Value::Cell(cell) => Ok(cell.clone()),
            Value::Text(bytes) => text(bytes).map(Cell::text),
        }
    }
}

/// A text, as long as a field may be.
fn text(bytes: &ByteArray) -> Result<&str, RowFault> {
    let bytes = bytes.data();
    check_length(bytes).map_err(RowFault::TextTooLong)?;
    std::str::from_utf8(bytes).map_err(|_| RowFault::TextNotUtf8)
}
