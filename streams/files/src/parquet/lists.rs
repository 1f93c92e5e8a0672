//! Columns of lists. A list has texts, numbers or times: lists of lists, of structures and maps are not read.
//!
//! Source: the sections "Nested Types" of LogicalTypes.md and "Nested Encoding" of README.md in the format's repository.

use super::columns::{Kind, Value};
use super::guard::{Bounded, LIST_PAGES_BYTES_MAX, Pages, damaged};
use parquet::basic::{ConvertedType, LogicalType, Repetition};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::ChunkReader;
use parquet::schema::types::{ColumnDescriptor, Type};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Elements after which no further row is read at a time.
const BATCH_ELEMENTS: usize = 1 << 16;

/// Bytes of pages after which no further row is read at a time.
const BATCH_BYTES: u64 = LIST_PAGES_BYTES_MAX / 4;

/// Where a column of lists is, and what its elements mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListColumn {
    leaf: usize,
    pub kind: Kind,
    levels: Levels,
}

/// The meaning of the definition levels of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Levels {
    /// The list is missing; `None`: it never is.
    missing: Option<i16>,
    /// From here on there is an element.
    element: i16,
    /// There is an element, and it is not missing.
    present: i16,
}

/// A column of lists of a row group.
pub struct ListReader {
    values: ColumnReader,
    column: ListColumn,
    bytes_read: Arc<AtomicU64>,
}

/// Lists of consecutive rows.
#[derive(Debug, Default)]
pub struct Lists {
    elements: Vec<Value>,
    /// `None`: the list is missing.
    lists: Vec<Option<Range<usize>>>,
}

impl ListColumn {
    /// Whether a column is a list of single values.
    pub fn is_list(column: &ColumnDescriptor, root: &Type) -> bool {
        column.max_rep_level() == 1 && is_list(root)
    }

    /// A column with the leaf `leaf`. `None`: it is no list, or its elements are not understood.
    pub fn of(leaf: usize, column: &ColumnDescriptor, root: &Type) -> Option<ListColumn> {
        let kind = Kind::of(column).filter(|_| Self::is_list(column, root))?;
        let element = column.repeated_ancestor_def_level();
        // A list that is never missing has no level for it.
        let missing = (element > 1).then_some(0);
        Some(ListColumn { leaf, kind, levels: Levels { missing, element, present: column.max_def_level() } })
    }
}

/// Whether a column with one leaf is a list, and the leaf is its element.
fn is_list(root: &Type) -> bool {
    let is_repeated = |part: &Type| part.get_basic_info().repetition() == Repetition::REPEATED;
    if root.is_primitive() {
        return is_repeated(root);
    }
    let info = root.get_basic_info();
    let is_annotated =
        matches!(info.logical_type_ref(), Some(LogicalType::List)) || info.converted_type() == ConvertedType::LIST;
    let [repeated] = root.get_fields() else { return false };
    if !is_annotated || is_repeated(root) || !is_repeated(repeated) {
        return false;
    }
    if repeated.is_primitive() {
        return true;
    }
    // Older writers give these names to an element that is a structure.
    let is_structure = repeated.name() == "array" || repeated.name() == format!("{}_tuple", root.name());
    matches!(repeated.get_fields(), [element] if element.is_primitive() && !is_repeated(element) && !is_structure)
}

impl ListReader {
    /// A column of a row group, from its first row on.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn open<R: ChunkReader + 'static>(
        file: &Arc<Bounded<R>>,
        group: &RowGroupMetaData,
        column: ListColumn,
    ) -> Result<ListReader, ParquetError> {
        let chunk = group.columns().get(column.leaf).ok_or_else(|| damaged("a row group lacks a column"))?;
        if chunk.num_values() < group.num_rows() {
            return Err(damaged("a column has fewer values than there are rows"));
        }
        let pages = Pages::new(Arc::clone(file), chunk, usize::try_from(group.num_rows())?)?;
        let bytes_read = pages.bytes_read();
        Ok(ListReader { values: get_column_reader(chunk.column_descr_ptr(), Box::new(pages)), column, bytes_read })
    }

    /// The lists of the next rows: at most `rows_max` rows, and at least one. It stops early where lists are long.
    ///
    /// # Errors
    /// There is no further row, or the file is damaged otherwise.
    pub fn read(&mut self, rows_max: usize) -> Result<Lists, ParquetError> {
        let mut lists = Lists::default();
        self.bytes_read.store(0, Ordering::Relaxed);
        let bytes_read = Arc::clone(&self.bytes_read);
        let is_small = || bytes_read.load(Ordering::Relaxed) < BATCH_BYTES;
        while lists.len() < rows_max && (lists.is_empty() || lists.elements.len() < BATCH_ELEMENTS && is_small()) {
            if !self.read_row(&mut lists)? {
                return Err(damaged("a column has fewer values than there are rows"));
            }
        }
        Ok(lists)
    }

    /// Checks behind the last row that nothing is left.
    ///
    /// # Errors
    /// There are more values.
    pub fn end(&mut self) -> Result<(), ParquetError> {
        match self.read_row(&mut Lists::default())? {
            false => Ok(()),
            true => Err(damaged("a column has more values than there are rows")),
        }
    }

    /// Adds the list of the next row. `false`: there is none.
    fn read_row(&mut self, lists: &mut Lists) -> Result<bool, ParquetError> {
        let ListColumn { kind, levels, .. } = self.column;
        match &mut self.values {
            ColumnReader::Int32ColumnReader(reader) => {
                lists.read(reader, levels, |number| kind.number(number.into(), (number as u32).into()))
            }
            ColumnReader::Int64ColumnReader(reader) => {
                lists.read(reader, levels, |number| kind.number(number, number as u64))
            }
            ColumnReader::Int96ColumnReader(reader) => {
                lists.read(reader, levels, |time| Value::Clock(time.to_seconds()))
            }
            ColumnReader::FloatColumnReader(reader) => lists.read(reader, levels, Value::Single),
            ColumnReader::DoubleColumnReader(reader) => lists.read(reader, levels, Value::Double),
            ColumnReader::ByteArrayColumnReader(reader) => lists.read(reader, levels, |bytes| kind.bytes(bytes)),
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                lists.read(reader, levels, |bytes| kind.bytes(bytes.into()))
            }
            ColumnReader::BoolColumnReader(_) => Err(damaged("a column is of another type than it says")),
        }
    }
}

impl Lists {
    pub fn len(&self) -> usize {
        self.lists.len()
    }

    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// The list of a row, and `None` inside if it is missing; `None` after the last row.
    pub fn get(&self, at: usize) -> Option<Option<&[Value]>> {
        self.lists.get(at).map(|list| list.as_ref().map(|list| &self.elements[list.clone()]))
    }

    /// Adds the next row of a column. A row is read at a time: its list may be as long as the guard lets it be.
    fn read<T: DataType>(
        &mut self,
        reader: &mut ColumnReaderImpl<T>,
        levels: Levels,
        value: impl Fn(T::T) -> Value,
    ) -> Result<bool, ParquetError> {
        let mut of_row = Vec::new();
        let mut repeated: Vec<i16> = Vec::new();
        let mut values = Vec::new();
        let (rows, ..) = reader.read_records(1, Some(&mut of_row), Some(&mut repeated), &mut values)?;
        match (rows, repeated.first()) {
            (_, Some(1..)) => return Err(damaged("a list has no beginning")),
            (0, Some(_)) => return Err(damaged("a list has no end")),
            (0, None) => return Ok(false),
            (_, Some(_) | None) => {}
        }
        let start = self.elements.len();
        if let [level] = of_row[..]
            && level < levels.element
        {
            self.lists.push((Some(level) != levels.missing).then_some(start..start));
            return Ok(true);
        }
        let mut values = values.into_iter().map(value);
        for level in of_row {
            if level < levels.element {
                return Err(damaged("an empty list has elements"));
            }
            let element = if level < levels.present { Some(Value::Missing) } else { values.next() };
            self.elements.push(element.ok_or_else(|| damaged("a column lacks values"))?);
        }
        self.lists.push(Some(start..self.elements.len()));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::metadata;
    use super::*;
    use bytes::Bytes;
    use parquet::basic::{Encoding, PageType};
    use parquet::column::page::{CompressedPage, Page, PageWriter};
    use parquet::column::writer::ColumnCloseResult;
    use parquet::file::metadata::ColumnChunkMetaData;
    use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
    use parquet::schema::parser::parse_message_type;

    /// A page of numbers. `begins` says of each whether it begins a list.
    fn page(numbers: &[i32], begins: &[bool]) -> CompressedPage {
        let repeated = begins.iter().enumerate().fold(0_u8, |bits, (at, begins)| bits | u8::from(!begins) << at);
        let mut bytes = match numbers.len() as u8 {
            0 => vec![0; 8],
            count => vec![2, 0, 0, 0, 3, repeated, 2, 0, 0, 0, count << 1, 1],
        };
        numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        let length = bytes.len();
        let page = Page::DataPage {
            buf: bytes.into(),
            num_values: numbers.len() as u32,
            encoding: Encoding::PLAIN,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        CompressedPage::new(page, length)
    }

    /// A file of one row group with these pages, by which it has `rows` rows.
    fn file(pages: Vec<CompressedPage>, rows: u64) -> Bytes {
        let schema = "message m { required group items (LIST) { repeated group list { required int32 element; } } }";
        let mut writer =
            SerializedFileWriter::new(Vec::new(), Arc::new(parse_message_type(schema).unwrap()), Arc::default())
                .unwrap();
        let column = writer.schema_descr().column(0);
        let mut sink = TrackedWrite::new(Vec::new());
        let values: u32 = pages.iter().map(CompressedPage::num_values).sum();
        for page in pages {
            let written = SerializedPageWriter::new(&mut sink).write_page(page).unwrap();
            assert_eq!(written.page_type, PageType::DATA_PAGE);
        }
        let bytes: Bytes = sink.into_inner().unwrap().into();
        let length = bytes.len() as i64;
        let chunk = ColumnChunkMetaData::builder(column)
            .set_num_values(values.into())
            .set_total_compressed_size(length)
            .set_total_uncompressed_size(length)
            .set_data_page_offset(0)
            .build()
            .unwrap();
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows,
            metadata: chunk,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        let mut group = writer.next_row_group().unwrap();
        group.append_column(&bytes, close).unwrap();
        group.close().unwrap();
        writer.into_inner().unwrap().into()
    }

    /// The lists of a file, some rows at a time.
    fn read(bytes: &Bytes, step: usize) -> Result<Vec<Vec<Value>>, ParquetError> {
        let file = Arc::new(Bounded::new(bytes.clone())?);
        let metadata = metadata(&file)?;
        let schema = metadata.file_metadata().schema_descr();
        let column = ListColumn::of(0, &schema.columns()[0], schema.get_column_root(0)).unwrap();
        let group = metadata.row_group(0);
        let mut reader = ListReader::open(&file, group, column)?;
        let mut found = Vec::new();
        while found.len() < group.num_rows() as usize {
            let lists = reader.read(step.min(group.num_rows() as usize - found.len()))?;
            found.extend((0..lists.len()).map(|at| lists.get(at).unwrap().unwrap().to_vec()));
        }
        reader.end()?;
        Ok(found)
    }

    #[test]
    fn list_without_a_beginning_is_damage() {
        let read = |pages, rows| read(&file(pages, rows), 2).unwrap_err().to_string();
        let none = "a list has no beginning";
        assert!(read(vec![page(&[1, 2], &[false, true])], 1).contains(none));
    }

    #[test]
    fn empty_pages_are_passed_over() {
        let empty = || page(&[], &[]);
        let pages = vec![empty(), page(&[1], &[true]), empty(), page(&[2], &[false]), empty(), empty()];
        assert_eq!(read(&file(pages, 1), 2).unwrap(), [[Value::Signed(1), Value::Signed(2)]]);
    }

    #[test]
    fn pages_of_a_batch_are_bounded() {
        let lists = |count: i32| (0..count).map(|number| page(&[number], &[true])).collect::<Vec<_>>();
        let one = lists(1).into_iter().chain((1..300).map(|number| page(&[number], &[false]))).collect();
        let refused = read(&file(one, 1), 1).unwrap_err().to_string();
        assert!(refused.ends_with("bytes, and 4096 are allowed"), "{refused}");
        // Of as many lists, a batch has those of a quarter of the bytes.
        assert_eq!(read(&file(lists(300), 300), 300).unwrap().len(), 300);
    }

    #[test]
    fn list_goes_on_in_the_next_page() {
        let pages = || {
            let first = page(&[1, 2, 3], &[true, true, false]);
            vec![first, page(&[4, 5], &[false, false]), page(&[6, 7, 8], &[false, true, true])]
        };
        let numbers = |numbers: &[i64]| numbers.iter().map(|number| Value::Signed(*number)).collect::<Vec<_>>();
        let expected = [numbers(&[1]), numbers(&[2, 3, 4, 5, 6]), numbers(&[7]), numbers(&[8])];
        for step in 1..5 {
            assert_eq!(read(&file(pages(), 4), step).unwrap(), expected, "{step} rows at a time");
        }
        for (rows, why) in [(3, "a column has more values"), (5, "a column has fewer values")] {
            let error = read(&file(pages(), rows), 2).unwrap_err().to_string();
            assert!(error.contains(why), "{rows} rows: {error}");
        }
    }
}
