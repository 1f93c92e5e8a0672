//! Rows of Parquet, a few at a time. The guard of `tidemark-files` stands before the library.

use crate::error::SourceError;
use crate::mapping::{Columns, Mapping};
use crate::value::{Reading, Row, Value};
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::ChunkReader;
use parquet::schema::types::ColumnDescriptor;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use tidemark_files::parquet::columns::{Column, Kind, Reader, Value as Stored, metadata};
use tidemark_files::parquet::guard::{Bounded, caught};

/// Rows that are read at a time.
const BATCH_ROWS: usize = 1_024;

pub struct Table<R: ChunkReader> {
    file: Arc<Bounded<R>>,
    metadata: Arc<ParquetMetaData>,
    columns: Columns<Option<Column>>,
    begun: usize,
    open: Option<Group>,
    ready: VecDeque<Columns<Cell>>,
    failed: Option<String>,
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
    Other(&'static str),
}

/// A row group, and how many of its rows are left.
struct Group {
    left: usize,
    readers: Columns<Option<Reader>>,
}

impl<R: ChunkReader + 'static> Table<R> {
    pub fn open(file: R, mapping: &Mapping) -> Result<Table<R>, SourceError> {
        let opened = caught(|| {
            let file = Bounded::new(file)?;
            let metadata = metadata(&file)?;
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
            column_of(leaf, &schema.columns()[leaf]).map(Some)
        })?;
        let (begun, open, ready, failed) = Default::default();
        Ok(Table { file, metadata, columns, begun, open, ready, failed })
    }

    /// Whether times have no zone.
    pub fn has_clock(&self) -> bool {
        self.columns.at.is_some_and(|at| at.kind.has_no_zone())
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
            let open =
                |column: &Option<Column>| column.map(|column| Reader::open(&self.file, metadata, column)).transpose();
            let readers = self.columns.as_ref().try_map(open)?;
            self.open = Some(Group { left: rows, readers });
            self.begun += 1;
            return Ok(true);
        };
        let rows = group.left.min(BATCH_ROWS);
        if rows == 0 {
            group.end()?;
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
    Ok(reader.read(rows)?.into_iter().map(Cell::of).collect())
}

fn unfit(name: &str, found: String) -> SourceError {
    SourceError::Column { name: name.to_owned(), found, expected: "texts, whole numbers or times are expected" }
}

/// A column that is understood, or why it is not.
fn column_of(leaf: usize, column: &ColumnDescriptor) -> Result<Column, SourceError> {
    let is_read = |found: &Column| match found.kind {
        Kind::Uuid | Kind::Decimal(_) => false,
        Kind::Text
        | Kind::Signed
        | Kind::Unsigned
        | Kind::Float
        | Kind::Instant(_)
        | Kind::Clock(_)
        | Kind::Date
        | Kind::JulianTime => true,
    };
    let found = Column::of(leaf, column).filter(is_read);
    found.ok_or_else(|| unfit(column.name(), Column::type_of(column)))
}

impl Group {
    /// Checks that nothing is left of any column.
    fn end(&mut self) -> Result<(), ParquetError> {
        let Columns { tenant, listing, at, count, event_type } = &mut self.readers;
        [tenant, listing, at, count, event_type].into_iter().flatten().try_for_each(Reader::end)
    }
}

impl Cell {
    fn of(stored: Stored) -> Cell {
        match stored {
            Stored::Missing => Cell::Missing,
            Stored::Text(bytes) => Cell::Bytes(bytes),
            Stored::Signed(number) => Cell::Whole(number),
            Stored::Unsigned(number) => {
                i64::try_from(number).map_or(Cell::Other("a number that is too large"), Cell::Whole)
            }
            Stored::Single(value) => Cell::Float(value.into()),
            Stored::Double(value) => Cell::Float(value),
            Stored::Instant(seconds) => Cell::Instant(seconds),
            Stored::Clock(seconds) => Cell::Clock(seconds),
            Stored::Uuid(_) => Cell::Other("a UUID"),
            Stored::Decimal(..) | Stored::DecimalBytes(..) => Cell::Other("a decimal number"),
        }
    }

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
            Cell::Other(what) => Value::Other(what),
        }
    }
}
