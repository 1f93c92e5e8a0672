//! Rows of Parquet, a few at a time. The guard of `tidemark-files` stands before the library.

use crate::error::SourceError;
use crate::mapping::{Columns, Mapping, TypeOf};
use crate::rows::{Id, Row, Rows};
use crate::value::{Reading, Value};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::ChunkReader;
use parquet::schema::types::SchemaDescriptor;
use std::borrow::Cow;
use std::sync::Arc;
use tidemark_files::parquet::coded::Text;
use tidemark_files::parquet::columns::{Column, Kind, Numbers, Reader, Texts, Value as Stored, metadata};
use tidemark_files::parquet::guard::{Bounded, caught};
use tidemark_files::parquet::lists::{ListColumn, ListReader, Lists};
use tidemark_streams_core::limits::LISTING_BYTES_MAX;

/// What a column of pages has to have.
const PAGE_EXPECTED: &str = "lists of texts or whole numbers are expected, or texts with --listings-separator";
/// What another column has to have.
const EXPECTED: &str = "texts, whole numbers or times are expected";
/// What a column has to have that has lists and should not.
const ONE_EXPECTED: &str = "texts, whole numbers or times are expected; --map listings=COLUMN reads lists of listings";
/// Said of an element that is longer than a listing.
const LONG_TEXT: &str = "a text of more than 255 bytes";
const _: () = assert!(LISTING_BYTES_MAX == 255);
/// Rows that are read at a time.
const BATCH_ROWS: usize = 1_024;

pub struct Table<R: ChunkReader> {
    file: Arc<Bounded<R>>,
    metadata: Arc<ParquetMetaData>,
    columns: Columns<Option<Read>>,
    begun: usize,
    open: Option<Group>,
    ready: Ready,
    failed: Option<String>,
}

/// A column that is read.
#[derive(Clone, Copy, Debug)]
enum Read {
    Flat(Column),
    Lists(ListColumn),
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
    Lists(Lists),
}

impl Read {
    /// The column of a field of the schema. `is_page`: it may be of lists.
    fn find(schema: &SchemaDescriptor, root: usize, is_page: bool) -> Result<Read, SourceError> {
        let field = &schema.root_schema().get_fields()[root];
        let leaf = (0..schema.num_columns()).find(|leaf| schema.get_column_root_idx(*leaf) == root);
        let is_list = leaf.is_some_and(|leaf| ListColumn::is_list(&schema.columns()[leaf], field));
        let unfit = |found: String| SourceError::Column {
            name: field.name().to_owned(),
            found,
            expected: match (is_page, is_list) {
                (true, _) => PAGE_EXPECTED,
                (false, true) => ONE_EXPECTED,
                (false, false) => EXPECTED,
            },
        };
        let Some(leaf) = leaf.filter(|_| is_list || field.is_primitive()) else {
            return Err(unfit("a map, a structure, or a list of these or of lists".to_owned()));
        };
        let column = &schema.columns()[leaf];
        let read = match is_list {
            true => ListColumn::of(leaf, column, field).filter(|lists| is_page && is_read(lists.kind)).map(Read::Lists),
            false => Column::of(leaf, column).filter(|column| is_read(column.kind)).map(Read::Flat),
        };
        read.ok_or_else(|| unfit(Column::type_of(column)))
    }
}

/// A column of the open row group.
enum Open {
    Flat(Reader),
    Lists(ListReader),
}

/// A row group, and how many of its rows are left.
struct Group {
    left: usize,
    readers: Columns<Option<Open>>,
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
        let mut found = mapping.find(&names)?;
        let listing = found.listing.take();
        let mut columns = found.try_map(|root| root.map(|root| Read::find(&schema, root, false)).transpose())?;
        columns.listing = listing.map(|root| Read::find(&schema, root, mapping.pages.is_some())).transpose()?;
        let (begun, open, ready, failed) = Default::default();
        Ok(Table { file, metadata, columns, begun, open, ready, failed })
    }

    /// Whether times have no zone.
    pub fn has_clock(&self) -> bool {
        match self.columns.at {
            Some(Read::Flat(at)) => at.kind.has_no_zone(),
            Some(Read::Lists(_)) | None => false,
        }
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
        let columns = &self.ready.columns;
        let values = || columns.as_ref().map(|cells| value_at(cells, at));
        match usual(reading, columns, at) {
            Some(row) => {
                debug_assert!(reading.is_row(&values(), &row), "{row:?}");
                rows.push(&row);
            }
            None => reading.push(values(), rows),
        }
        Ok(true)
    }

    /// Makes a few more rows ready, or begins the next row group. `false`: there is none.
    fn fill(&mut self) -> Result<bool, ParquetError> {
        let Some(group) = &mut self.open else {
            let Some(metadata) = self.metadata.row_groups().get(self.begun) else { return Ok(false) };
            let rows = usize::try_from(metadata.num_rows())?;
            let open = |column: &Option<Read>| {
                let open = |column| match column {
                    Read::Flat(column) => Reader::open_batches(&self.file, metadata, column).map(Open::Flat),
                    Read::Lists(column) => ListReader::open(&self.file, metadata, column).map(Open::Lists),
                };
                column.map(open).transpose()
            };
            let readers = self.columns.as_ref().try_map(open)?;
            self.open = Some(Group { left: rows, readers });
            self.begun += 1;
            return Ok(true);
        };
        if group.left == 0 {
            group.end()?;
            self.open = None;
            return Ok(true);
        }
        // Rows with long lists are fewer at a time.
        let lists = match &mut group.readers.listing {
            Some(Open::Lists(reader)) => Some(reader.read(group.left.min(BATCH_ROWS))?),
            Some(Open::Flat(_)) | None => None,
        };
        let rows = lists.as_ref().map_or(group.left.min(BATCH_ROWS), Lists::len);
        let read = |reader: &mut Option<Open>| match reader {
            Some(Open::Flat(reader)) => Cells::read(reader, rows).map(Some),
            Some(Open::Lists(_)) | None => Ok(None),
        };
        let mut columns = group.readers.as_mut().try_map(read)?;
        columns.listing = columns.listing.or(lists.map(Cells::Lists));
        self.ready = Ready { columns, next: 0, rows };
        group.left -= rows;
        Ok(true)
    }
}

/// A row whose columns have values of the usual types. It equals the row that [`Reading::push`] makes. `None`: only that function can
/// read it. Usual rows need no [`Value`] for each cell.
#[inline]
fn usual<'a>(reading: &Reading, columns: &'a Columns<Option<Cells>>, at: usize) -> Option<Row<'a>> {
    let mapping = &reading.mapping;
    if mapping.pages.is_some() || !mapping.values.is_empty() {
        return None;
    }
    // Files of other types have counts or times in them, so these come first.
    let at_s = if mapping.at.is_some() { columns.at.as_ref()?.seconds(at, reading)? } else { 0 };
    let count = if mapping.count.is_some() { columns.count.as_ref()?.whole(at)? } else { 1 };
    let id = |cells: &'a Option<Cells>| cells.as_ref()?.id(at);
    Some(Row::Event {
        tenant: if mapping.tenant.is_some() { Some(id(&columns.tenant)?) } else { None },
        listing: id(&columns.listing)?,
        at_s,
        event_type: match mapping.event_type {
            TypeOf::All(_) => None,
            TypeOf::Column(_) => Some(id(&columns.event_type)?),
        },
        count,
        values: String::new(),
    })
}

#[inline]
fn value_at(cells: &Option<Cells>, at: usize) -> Value<'_> {
    cells.as_ref().and_then(|cells| cells.get(at)).unwrap_or(Value::NoColumn)
}

fn is_read(kind: Kind) -> bool {
    match kind {
        Kind::Uuid | Kind::Decimal(_) => false,
        Kind::Text
        | Kind::Signed
        | Kind::Unsigned
        | Kind::Float
        | Kind::Instant(_)
        | Kind::Clock(_)
        | Kind::Date
        | Kind::JulianTime => true,
    }
}

impl Group {
    /// Checks that nothing is left of any column.
    fn end(&mut self) -> Result<(), ParquetError> {
        let Columns { tenant, listing, at, count, event_type, values } = self.readers.as_mut();
        let all = [tenant, listing, at, count, event_type].into_iter().chain(values);
        all.flatten().try_for_each(|column| match column {
            Open::Flat(reader) => reader.end(),
            Open::Lists(reader) => reader.end(),
        })
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

    /// A text or a number that is the name of something.
    #[inline]
    fn id(&self, at: usize) -> Option<Id<'_>> {
        match self {
            Cells::Texts(texts) => match texts.get(at)? {
                Text::Utf8(text) if !is_blank(text) => Some(Id::Text(text)),
                Text::Utf8(_) | Text::Missing | Text::NoUtf8 => None,
            },
            Cells::Whole(numbers) => numbers.get(at)?.map(Id::Number),
            Cells::Instants(_) | Cells::Clocks(_) | Cells::Values(_) | Cells::Lists(_) => None,
        }
    }

    /// A whole number.
    #[inline]
    fn whole(&self, at: usize) -> Option<i64> {
        match self {
            Cells::Whole(numbers) => numbers.get(at)?,
            Cells::Texts(_) | Cells::Instants(_) | Cells::Clocks(_) | Cells::Values(_) | Cells::Lists(_) => None,
        }
    }

    /// Seconds since 1970, of a column of times.
    #[inline]
    fn seconds(&self, at: usize, reading: &Reading) -> Option<i64> {
        match self {
            Cells::Instants(numbers) => numbers.get(at)?,
            Cells::Clocks(numbers) => reading.clock(numbers.get(at)??),
            Cells::Texts(_) | Cells::Whole(_) | Cells::Values(_) | Cells::Lists(_) => None,
        }
    }

    #[inline]
    fn get(&self, at: usize) -> Option<Value<'_>> {
        match self {
            Cells::Texts(texts) => texts.get(at).map(text),
            Cells::Whole(numbers) => Some(numbers.get(at)?.map_or(Value::Missing, Value::Whole)),
            Cells::Instants(numbers) => Some(numbers.get(at)?.map_or(Value::Missing, Value::Instant)),
            Cells::Clocks(numbers) => Some(numbers.get(at)?.map_or(Value::Missing, Value::Clock)),
            Cells::Values(values) => values.get(at).map(value),
            Cells::Lists(lists) => Some(match lists.get(at)? {
                Some(elements) => Value::List(elements.iter().map(element).collect()),
                None => Value::Missing,
            }),
        }
    }
}

/// Whether a text is nothing but white space.
fn is_blank(text: &str) -> bool {
    let begins_visibly = text.as_bytes().first().is_some_and(u8::is_ascii_graphic);
    !begins_visibly && text.trim().is_empty()
}

/// An element of a list.
fn element(stored: &Stored) -> Value<'_> {
    match stored {
        // A file may have a long text once, and name it in each element.
        Stored::Text(bytes) if bytes.len() > LISTING_BYTES_MAX => Value::Other(LONG_TEXT),
        Stored::Text(bytes) => text(std::str::from_utf8(bytes.data()).map_or(Text::NoUtf8, Text::Utf8)),
        other => value(other),
    }
}

#[inline]
fn text(text: Text<'_>) -> Value<'_> {
    match text {
        Text::Utf8(text) if is_blank(text) => Value::Missing,
        Text::Utf8(text) => Value::Text(Cow::Borrowed(text)),
        Text::Missing => Value::Missing,
        Text::NoUtf8 => Value::Other("a text that is no UTF-8"),
    }
}

#[inline]
fn value(stored: &Stored) -> Value<'_> {
    match stored {
        Stored::Missing => Value::Missing,
        Stored::Text(_) => Value::Other("a text in a column of other values"),
        Stored::Signed(number) => Value::Whole(*number),
        // Ids of 64 bits without a sign are hashes. Their digits are the id, as in a text.
        Stored::Unsigned(number) => {
            i64::try_from(*number).map_or_else(|_| Value::Text(number.to_string().into()), Value::Whole)
        }
        Stored::Single(value) => Value::Float((*value).into()),
        Stored::Double(value) => Value::Float(*value),
        Stored::Instant(seconds) => Value::Instant(*seconds),
        Stored::Clock(seconds) => Value::Clock(*seconds),
        Stored::Uuid(_) => Value::Other("a UUID"),
        Stored::Decimal(..) | Stored::DecimalBytes(..) => Value::Other("a decimal number"),
    }
}
