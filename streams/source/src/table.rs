//! Rows of Parquet, a few at a time. The guard of `tidemark-files` stands before the library.

use crate::error::SourceError;
use crate::mapping::{Columns, Mapping};
use crate::rows::Rows;
use crate::value::{Reading, Value};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::ChunkReader;
use parquet::schema::types::ColumnDescriptor;
use std::borrow::Cow;
use std::sync::Arc;
use tidemark_files::parquet::coded::Text;
use tidemark_files::parquet::columns::{Column, Kind, Numbers, Reader, Texts, Value as Stored, metadata};
use tidemark_files::parquet::guard::{Bounded, caught};

/// What a column of pages has to have.
const PAGE_EXPECTED: &str = "texts with --listings-separator are expected; lists are read from JSON lines";
/// Rows that are read at a time.
const BATCH_ROWS: usize = 1_024;

pub struct Table<R: ChunkReader> {
    file: Arc<Bounded<R>>,
    metadata: Arc<ParquetMetaData>,
    columns: Columns<Option<Column>>,
    begun: usize,
    open: Option<Group>,
    ready: Ready,
    failed: Option<String>,
}

/// Rows that were read and not handed out yet.
#[derive(Default)]
struct Ready {
    /// `None` of columns that are not read.
    columns: Columns<Option<Cells>>,
    next: usize,
    rows: usize,
}

/// Some values of a column.
enum Cells {
    Texts(Texts),
    Whole(Numbers),
    Instants(Numbers),
    Clocks(Numbers),
    Values(Vec<Stored>),
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
        let (file, metadata) = opened.map_err(|error| SourceError::Parquet(error.to_string()))?;
        let schema = metadata.file_metadata().schema_descr_ptr();
        let roots = schema.root_schema().get_fields();
        let names: Vec<&str> = roots.iter().map(|field| field.name()).collect();
        let columns = mapping.find(&names)?.try_map(|root| {
            let Some(root) = root else { return Ok(None) };
            let leaf = (0..schema.num_columns()).find(|leaf| schema.get_column_root_idx(*leaf) == root);
            let leaf = leaf.filter(|_| roots[root].is_primitive());
            let name = names[root];
            let unfit =
                |found: String| SourceError::Column { name: name.to_owned(), found, expected: expected(name, mapping) };
            let leaf = leaf.ok_or_else(|| unfit("a list, a map or a structure".to_owned()))?;
            let column = &schema.columns()[leaf];
            column_of(leaf, column).map(Some).ok_or_else(|| unfit(Column::type_of(column)))
        })?;
        let (begun, open, ready, failed) = Default::default();
        Ok(Table { file, metadata, columns, begun, open, ready, failed })
    }

    /// Whether times have no zone.
    pub fn has_clock(&self) -> bool {
        self.columns.at.is_some_and(|at| at.kind.has_no_zone())
    }

    /// Adds the next row. `false`: there is none. An error is the last that it says.
    pub fn next(&mut self, reading: &Reading, rows: &mut Rows) -> Result<bool, SourceError> {
        while self.ready.next == self.ready.rows && self.failed.is_none() {
            match caught(|| self.fill()) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(why) => {
                    self.ready = Ready::default();
                    self.failed = Some(why.to_string());
                }
            }
        }
        if let Some(why) = &self.failed {
            return Err(SourceError::Parquet(why.clone()));
        }
        let at = self.ready.next;
        self.ready.next += 1;
        reading.push(self.ready.columns.as_ref().map(|cells| value_at(cells, at)), rows);
        Ok(true)
    }

    /// Makes a few more rows ready, or begins the next row group. `false`: there is none.
    fn fill(&mut self) -> Result<bool, ParquetError> {
        let Some(group) = &mut self.open else {
            let Some(metadata) = self.metadata.row_groups().get(self.begun) else { return Ok(false) };
            let rows = usize::try_from(metadata.num_rows())?;
            let open = |column: &Option<Column>| {
                column.map(|column| Reader::open_batches(&self.file, metadata, column)).transpose()
            };
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
        let read = |reader: &mut Option<Reader>| reader.as_mut().map(|reader| Cells::read(reader, rows)).transpose();
        let columns = group.readers.as_mut().try_map(read)?;
        self.ready = Ready { columns, next: 0, rows };
        group.left -= rows;
        Ok(true)
    }
}

#[inline]
fn value_at(cells: &Option<Cells>, at: usize) -> Value<'_> {
    cells.as_ref().and_then(|cells| cells.get(at)).unwrap_or(Value::NoColumn)
}

/// What a column has to have.
fn expected(name: &str, mapping: &Mapping) -> &'static str {
    let is_page = mapping.pages.is_some() && mapping.listing.eq_ignore_ascii_case(name);
    if is_page { PAGE_EXPECTED } else { "texts, whole numbers or times are expected" }
}

/// `None`: the column is not understood.
fn column_of(leaf: usize, column: &ColumnDescriptor) -> Option<Column> {
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
    Column::of(leaf, column).filter(is_read)
}

impl Group {
    /// Checks that nothing is left of any column.
    fn end(&mut self) -> Result<(), ParquetError> {
        let Columns { tenant, listing, at, count, event_type, values } = self.readers.as_mut();
        let all = [tenant, listing, at, count, event_type].into_iter().chain(values);
        all.flatten().try_for_each(Reader::end)
    }
}

impl Cells {
    /// The next values of a column.
    fn read(reader: &mut Reader, rows: usize) -> Result<Cells, ParquetError> {
        match reader.kind() {
            Kind::Text => reader.read_texts(rows).map(Cells::Texts),
            Kind::Signed => reader.read_numbers(rows).map(Cells::Whole),
            Kind::Instant(_) => reader.read_numbers(rows).map(Cells::Instants),
            Kind::Clock(_) | Kind::Date | Kind::JulianTime => reader.read_numbers(rows).map(Cells::Clocks),
            Kind::Uuid | Kind::Unsigned | Kind::Float | Kind::Decimal(_) => reader.read(rows).map(Cells::Values),
        }
    }

    #[inline]
    fn get(&self, at: usize) -> Option<Value<'_>> {
        match self {
            Cells::Texts(texts) => Some(match texts.get(at)? {
                Text::Utf8(text) if is_blank(text) => Value::Missing,
                Text::Utf8(text) => Value::Text(Cow::Borrowed(text)),
                Text::Missing => Value::Missing,
                Text::NoUtf8 => Value::Other("a text that is no UTF-8"),
            }),
            Cells::Whole(numbers) => Some(numbers.get(at)?.map_or(Value::Missing, Value::Whole)),
            Cells::Instants(numbers) => Some(numbers.get(at)?.map_or(Value::Missing, Value::Instant)),
            Cells::Clocks(numbers) => Some(numbers.get(at)?.map_or(Value::Missing, Value::Clock)),
            Cells::Values(values) => values.get(at).map(value),
        }
    }
}

/// Whether a text is nothing but white space.
fn is_blank(text: &str) -> bool {
    let begins_visibly = text.as_bytes().first().is_some_and(u8::is_ascii_graphic);
    !begins_visibly && text.trim().is_empty()
}

#[inline]
fn value(stored: &Stored) -> Value<'_> {
    match stored {
        Stored::Missing => Value::Missing,
        Stored::Text(_) => Value::Other("a text in a column of other values"),
        Stored::Signed(number) => Value::Whole(*number),
        Stored::Unsigned(number) => {
            i64::try_from(*number).map_or(Value::Other("a number that is too large"), Value::Whole)
        }
        Stored::Single(value) => Value::Float((*value).into()),
        Stored::Double(value) => Value::Float(*value),
        Stored::Instant(seconds) => Value::Instant(*seconds),
        Stored::Clock(seconds) => Value::Clock(*seconds),
        Stored::Uuid(_) => Value::Other("a UUID"),
        Stored::Decimal(..) | Stored::DecimalBytes(..) => Value::Other("a decimal number"),
    }
}
