//! Texts of a column as numbers.
//!
//! The library makes a value with a reference count for each row of a column of texts, even if all rows share a small dictionary. This
//! module reads such a column as a column of numbers. It keeps the texts of each dictionary and page. It puts numbers in their place before
//! the library decodes the page.

use super::guard::{Levels, PAGE_BYTES_MAX, damaged, level_bytes};
use bytes::Bytes;
use parquet::basic::{Encoding, Repetition, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::Int32Type;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::types::{ColumnDescriptor, Type};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// In place of the number of a missing text.
const MISSING: i32 = -1;

/// Bytes of the texts of a dictionary and of the pages of a batch of rows. More: the file is refused. Rows of an ordinary file need three
/// pages at most.
const KEPT_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 4 * PAGE_BYTES_MAX };

/// Rows for which memory is taken before they are read. A damaged file may say that it has any number.
const ROWS_EXPECTED_MAX: usize = 1 << 17;

/// A text of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text<'a> {
    Missing,
    Utf8(&'a str),
    NoUtf8,
}

/// A column of texts that is read as numbers.
pub struct CodedReader {
    numbers: ColumnReaderImpl<Int32Type>,
    known: Arc<Mutex<Known>>,
    is_optional: bool,
}

/// Texts of consecutive rows, by number.
#[derive(Debug)]
pub struct CodedTexts {
    numbers: Vec<i32>,
    known: Known,
}

/// The texts that have numbers.
#[derive(Clone, Debug, Default)]
struct Known {
    /// In the order of their numbers.
    sets: Vec<Numbered>,
    /// The number of the next text.
    next: i32,
}

/// The texts of a dictionary or a page. They have numbers from `first` on.
#[derive(Clone, Debug)]
struct Numbered {
    first: i32,
    is_dictionary: bool,
    texts: Arc<Set>,
}

/// Texts one behind the other. They take little memory beside their bytes, because rows read them in no order.
#[derive(Debug, Default)]
struct Set {
    text: String,
    /// The end of each text. A page, and so all its texts, is shorter than 4 GiB.
    ends: Vec<u32>,
    /// The texts that are not UTF-8, in their order. In `text` they are empty.
    no_utf8: Vec<usize>,
}

/// Pages of texts in which numbers stand for texts.
struct CodedPages<P> {
    inner: P,
    is_optional: bool,
    known: Arc<Mutex<Known>>,
}

fn locked(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CodedReader {
    /// Whether all texts of a column have encodings that this module understands.
    pub fn reads(chunk: &ColumnChunkMetaData) -> bool {
        // Levels have the last two encodings.
        #[expect(deprecated)]
        let is_understood = |encoding| {
            use Encoding::{BIT_PACKED, PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY};
            matches!(encoding, PLAIN | PLAIN_DICTIONARY | RLE_DICTIONARY | RLE | BIT_PACKED)
        };
        let mut encodings = chunk.encodings();
        let is_first_understood = encodings.next().is_some_and(is_understood);
        chunk.column_descr().physical_type() == Physical::BYTE_ARRAY
            && is_first_understood
            && encodings.all(is_understood)
    }

    /// Opens a column at its first row. `pages` must return decompressed pages.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn open(pages: impl PageReader + 'static, chunk: &ColumnChunkMetaData) -> Result<CodedReader, ParquetError> {
        let texts = chunk.column_descr();
        let is_optional = texts.max_def_level() > 0;
        let repetition = if is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let numbers = Type::primitive_type_builder("numbers", Physical::INT32).with_repetition(repetition).build()?;
        let path = texts.path().clone();
        let numbers = ColumnDescriptor::new(Arc::new(numbers), texts.max_def_level(), texts.max_rep_level(), path);
        let known = Arc::new(Mutex::new(Known::default()));
        let pages = CodedPages { inner: pages, is_optional, known: Arc::clone(&known) };
        let numbers = ColumnReaderImpl::new(Arc::new(numbers), Box::new(pages));
        Ok(CodedReader { numbers, known, is_optional })
    }

    /// Skips at most `rows` rows, and returns the number of skipped rows.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn skip(&mut self, rows: usize) -> Result<usize, ParquetError> {
        self.numbers.skip_records(rows)
    }

    /// The texts of the next rows. There are fewer at the end of the column.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn read(&mut self, rows: usize) -> Result<CodedTexts, ParquetError> {
        locked(&self.known).forget_read_pages();
        let mut levels = Vec::new();
        let mut present = Vec::with_capacity(rows.min(ROWS_EXPECTED_MAX));
        self.numbers.read_records(rows, self.is_optional.then_some(&mut levels), None, &mut present)?;
        let known = locked(&self.known).clone();
        if !known.has_all(&present) {
            return Err(damaged("a column has numbers without texts"));
        }
        if levels.len() <= present.len() {
            return Ok(CodedTexts { numbers: present, known });
        }
        let mut present = present.into_iter();
        let number = |level| if level > 0 { present.next() } else { Some(MISSING) };
        let numbers: Option<Vec<i32>> = levels.into_iter().map(number).collect();
        Ok(CodedTexts { numbers: numbers.ok_or_else(|| damaged("a column lacks values"))?, known })
    }
}

impl CodedTexts {
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The text of a row; `None` after the last row.
    #[inline]
    pub fn get(&self, at: usize) -> Option<Text<'_>> {
        let number = *self.numbers.get(at)?;
        Some(if number == MISSING { Text::Missing } else { self.known.text(number) })
    }

    /// The rows that have this text. `None`: they are not consecutive.
    pub fn run(&self, text: &str) -> Option<Range<usize>> {
        // Adjacent rows with one text mostly share its number, so most rows need no comparison of texts.
        let mut last = None;
        let mut is_text = |number: i32| match last {
            Some((known, is_text)) if known == number => is_text,
            Some(_) | None => {
                let is_text = number != MISSING && self.known.text(number) == Text::Utf8(text);
                last = Some((number, is_text));
                is_text
            }
        };
        let mut run = 0..0;
        for (at, _) in self.numbers.iter().enumerate().filter(|(_, number)| is_text(**number)) {
            run = match run.is_empty() {
                true => at..at + 1,
                false if run.end == at => run.start..at + 1,
                false => return None,
            };
        }
        Some(run)
    }
}

impl Known {
    /// Forgets pages of which all texts were read. The last page may have more.
    fn forget_read_pages(&mut self) {
        let last = self.sets.len().saturating_sub(1);
        let mut at = 0;
        self.sets.retain(|set| {
            at += 1;
            set.is_dictionary || at > last
        });
    }

    /// Whether each number stands for a text that is kept.
    fn has_all(&self, numbers: &[i32]) -> bool {
        let dictionary = self.sets.iter().find(|set| set.is_dictionary).map_or(0..0, Numbered::range);
        let first = self.sets.iter().find(|set| !set.is_dictionary).map_or(self.next, |set| set.first);
        let pages = first..self.next;
        numbers.iter().all(|number| dictionary.contains(number) || pages.contains(number))
    }

    fn add(&mut self, texts: Set, is_dictionary: bool) -> Result<Range<i32>, ParquetError> {
        let kept: usize = self.sets.iter().map(|set| set.texts.text.capacity()).sum();
        if kept > KEPT_BYTES_MAX {
            return Err(damaged("pages have more bytes of texts than their rows may take"));
        }
        let first = self.next;
        let end = i32::try_from(texts.ends.len()).ok().and_then(|count| first.checked_add(count));
        self.next = end.ok_or_else(|| damaged("a column has too many texts"))?;
        self.sets.push(Numbered { first, is_dictionary, texts: Arc::new(texts) });
        Ok(first..self.next)
    }

    #[inline]
    fn text(&self, number: i32) -> Text<'_> {
        // There is one dictionary, and a page or two.
        let set = self.sets.iter().rev().find(|set| set.first <= number);
        let text = set.and_then(|set| set.texts.get(usize::try_from(number - set.first).ok()?));
        text.map_or(Text::NoUtf8, Text::Utf8)
    }
}

impl Numbered {
    fn range(&self) -> Range<i32> {
        self.first..self.first + self.texts.ends.len() as i32
    }
}

impl Set {
    /// Reads texts that stand one behind the other, each behind its length. Bytes behind the last whole text are passed over.
    fn of_plain(mut bytes: &[u8], most: usize) -> Set {
        let mut set = Set { text: String::with_capacity(bytes.len()), ..Set::default() };
        while set.ends.len() < most
            && let Some((length, rest)) = bytes.split_first_chunk()
            && let Some((text, rest)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)
        {
            match std::str::from_utf8(text) {
                Ok(text) => set.text.push_str(text),
                Err(_) => set.no_utf8.push(set.ends.len()),
            }
            set.ends.push(set.text.len() as u32);
            bytes = rest;
        }
        set
    }

    #[inline]
    fn get(&self, at: usize) -> Option<&str> {
        let end = *self.ends.get(at)? as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        let is_utf8 = self.no_utf8.is_empty() || self.no_utf8.binary_search(&at).is_err();
        is_utf8.then(|| &self.text[start..end])
    }
}

impl<P: PageReader> CodedPages<P> {
    /// Puts numbers in the place of texts. A page of numbers of a dictionary stays as it is.
    fn coded(&self, page: Page) -> Result<Page, ParquetError> {
        let (start, values) = match &page {
            Page::DictionaryPage { num_values, .. } => (0, *num_values),
            Page::DataPage { num_values, encoding: Encoding::PLAIN, .. }
            | Page::DataPageV2 { num_values, encoding: Encoding::PLAIN, .. } => {
                (level_bytes(&page, Levels { are_repeated: false, are_optional: self.is_optional })?, *num_values)
            }
            Page::DataPage { encoding: Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY, .. }
            | Page::DataPageV2 { encoding: Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY, .. } => {
                return Ok(page);
            }
            Page::DataPage { .. } | Page::DataPageV2 { .. } => {
                return Err(damaged("a column has an encoding that its metadata does not name"));
            }
        };
        let is_dictionary = page.is_dictionary_page();
        let cut_off = || damaged("a page is cut off");
        let bytes = page.buffer().get(start..).ok_or_else(cut_off)?;
        let set = Set::of_plain(bytes, values as usize);
        if is_dictionary && set.ends.len() != values as usize {
            return Err(cut_off());
        }
        let numbers = locked(&self.known).add(set, is_dictionary)?;
        let mut coded = Vec::with_capacity(start + numbers.len() * size_of::<i32>());
        coded.extend_from_slice(&page.buffer()[..start]);
        numbers.for_each(|number| coded.extend_from_slice(&number.to_le_bytes()));
        Ok(with_buffer(page, coded.into()))
    }
}

fn with_buffer(mut page: Page, bytes: Bytes) -> Page {
    match &mut page {
        Page::DictionaryPage { buf, .. } | Page::DataPage { buf, .. } | Page::DataPageV2 { buf, .. } => *buf = bytes,
    }
    page
}

impl<P: PageReader> Iterator for CodedPages<P> {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl<P: PageReader> PageReader for CodedPages<P> {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        let page = self.inner.get_next_page()?;
        page.map(|page| self.coded(page)).transpose()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.inner.skip_next_page()
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::{Column, Reader, Texts, metadata};
    use super::super::guard::Bounded;
    use super::*;
    use parquet::basic::Compression;
    use parquet::data_type::{ByteArray, ByteArrayType};
    use parquet::file::properties::{WriterProperties, WriterVersion};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    type Row = Option<Vec<u8>>;

    /// Some texts are equal, some are not UTF-8, and some are missing.
    fn rows(count: usize, distinct: usize) -> Vec<Row> {
        let row = |at: usize| match at * 7 % 11 {
            0 => None,
            1 => Some(vec![0xff, b'a']),
            2 => Some(Vec::new()),
            _ => Some(format!("é-{}", at * 31 % distinct).into_bytes()),
        };
        (0..count).map(row).collect()
    }

    fn file(rows: &[Row], properties: WriterProperties) -> Bytes {
        let schema = Arc::new(parse_message_type("message m { optional binary t (UTF8); }").unwrap());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.is_some())).collect();
        let values: Vec<ByteArray> = rows.iter().flatten().map(|row| ByteArray::from(row.clone())).collect();
        column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.into_inner().unwrap().into()
    }

    /// Reads all texts, `step` rows at a time, and compares each with the text that was written.
    fn check(file: &Bytes, rows: &[Row], step: usize) {
        let file = Arc::new(Bounded::new(file.clone()).unwrap());
        let metadata = metadata(&file).unwrap();
        let group = metadata.row_group(0);
        let column = Column::of(0, &metadata.file_metadata().schema_descr().columns()[0]).unwrap();
        let mut reader = Reader::open_batches(&file, group, column).unwrap();
        for rows in rows.chunks(step) {
            let texts = reader.read_texts(rows.len()).unwrap();
            assert!(matches!(texts, Texts::Coded(_)));
            for (at, row) in rows.iter().enumerate() {
                let expected = match row {
                    None => Text::Missing,
                    Some(bytes) => std::str::from_utf8(bytes).map_or(Text::NoUtf8, Text::Utf8),
                };
                assert_eq!(texts.get(at), Some(expected));
            }
            assert_eq!(texts.get(rows.len()), None);
        }
        reader.end().unwrap();
    }

    #[test]
    fn pages_with_too_much_text_for_their_rows_are_refused() {
        let rows: Vec<Row> = (0..40).map(|at| Some(vec![b'a' + at % 26; 40_000])).collect();
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_data_page_size_limit(1)
            .set_write_batch_size(1);
        let file = Arc::new(Bounded::new(file(&rows, properties.build())).unwrap());
        let metadata = metadata(&file).unwrap();
        let column = Column::of(0, &metadata.file_metadata().schema_descr().columns()[0]).unwrap();
        let mut reader = Reader::open_batches(&file, metadata.row_group(0), column).unwrap();
        assert_eq!(reader.read_texts(10).unwrap().get(9), Some(Text::Utf8(&"j".repeat(40_000))));
        let error = reader.read_texts(30).unwrap_err().to_string();
        assert!(error.contains("more bytes of texts"), "{error}");
    }

    #[test]
    fn coded_texts_are_those_that_were_written() {
        let rows = rows(3_000, 400);
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for (has_dictionary, dictionary_bytes) in [(true, 1 << 20), (true, 2_000), (false, 1)] {
                let properties = WriterProperties::builder()
                    .set_writer_version(version)
                    .set_dictionary_enabled(has_dictionary)
                    .set_dictionary_page_size_limit(dictionary_bytes)
                    .set_encoding(Encoding::PLAIN)
                    .set_data_page_row_count_limit(100)
                    .set_write_batch_size(50)
                    .build();
                let file = file(&rows, properties);
                [1, 64, 350, 3_000].into_iter().for_each(|step| check(&file, &rows, step));
            }
        }
    }

    #[test]
    fn run_of_a_text_has_all_its_rows_or_is_refused() {
        let texts = |numbers: &[i32]| {
            let mut known = Known::default();
            let set = |text: &str| Set::of_plain(&[&[text.len() as u8, 0, 0, 0], text.as_bytes()].concat(), 9);
            // Number 2 has the text of number 0.
            ["a", "b", "a"].into_iter().for_each(|text| drop(known.add(set(text), false)));
            CodedTexts { numbers: numbers.to_vec(), known }
        };
        assert_eq!(texts(&[1, 0, 2, 0, 1]).run("a"), Some(1..4));
        assert_eq!(texts(&[0, 0]).run("a"), Some(0..2));
        assert_eq!(texts(&[1, MISSING]).run("a"), Some(0..0));
        assert_eq!(texts(&[0, 1, 0]).run("a"), None);
        assert_eq!(texts(&[0, MISSING, 2]).run("a"), None);
    }

    #[test]
    fn page_of_texts_that_share_too_many_bytes_is_refused() {
        let builder = WriterProperties::builder().set_dictionary_enabled(false);
        let properties = builder.set_encoding(Encoding::DELTA_BYTE_ARRAY).set_compression(Compression::SNAPPY).build();
        let read = |texts: usize| {
            let file = file(&vec![Some(vec![b'x'; 1 << 20]); texts], properties.clone());
            let file = Arc::new(Bounded::new(file).unwrap());
            let metadata = metadata(&file).unwrap();
            let column = Column::of(0, &metadata.file_metadata().schema_descr().columns()[0]).unwrap();
            Reader::open_batches(&file, metadata.row_group(0), column).unwrap().read_texts(1)
        };
        assert!(read(2).is_ok());
        let refused = read(257).unwrap_err().to_string();
        assert!(refused.ends_with("the texts of a page have 269484032 bytes, and 268435456 are allowed"), "{refused}");
    }

    #[test]
    fn pages_are_forgotten_once_they_are_read() {
        let mut known = Known::default();
        let set = |text: &str| Set::of_plain(&[&[text.len() as u8, 0, 0, 0], text.as_bytes()].concat(), 9);
        assert_eq!(known.add(set("a"), true).unwrap(), 0..1);
        assert_eq!(known.add(set("b"), false).unwrap(), 1..2);
        assert_eq!(known.add(set("c"), false).unwrap(), 2..3);
        known.forget_read_pages();
        assert_eq!([0, 2].map(|number| known.text(number)), [Text::Utf8("a"), Text::Utf8("c")]);
        assert_eq!(known.sets.len(), 2);
    }
}
