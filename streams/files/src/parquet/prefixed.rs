//! Texts that are stored without the bytes that they share with the text before (`DELTA_BYTE_ARRAY`).
//!
//! The library allocates memory twice for each such text, even for a text that is skipped. Here the library decodes only the lengths.

use super::guard::{LENGTHS_MAX, PAGE_BYTES_MAX, damaged};
use super::walk::delta_lengths;
use bytes::Bytes;
use parquet::basic::{Encoding, Repetition, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::Int32Type;
use parquet::errors::ParquetError;
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor, ColumnPath, Type};
use std::iter::Zip;
use std::sync::Arc;
use std::vec::IntoIter;

/// A column of such texts, none of which is missing.
pub struct PrefixedReader {
    pages: Box<dyn PageReader>,
    /// For each remaining text of the page: the number of bytes that it shares with the text before, and the number of its other bytes.
    lengths: Zip<IntoIter<i32>, IntoIter<i32>>,
    /// The bytes of the page's remaining texts that are not shared.
    rest: Bytes,
    /// The last text that was read or skipped.
    last: Vec<u8>,
    length_column: ColumnDescPtr,
}

/// Texts of consecutive rows, one behind the other.
#[derive(Debug, Default)]
pub struct PrefixedTexts {
    text: String,
    ends: Vec<usize>,
}

impl PrefixedReader {
    /// Opens a column at its first row. `pages` must return decompressed pages.
    ///
    /// # Errors
    /// The library refuses the column of lengths.
    pub fn open(pages: Box<dyn PageReader>) -> Result<PrefixedReader, ParquetError> {
        let none = Vec::new().into_iter().zip(Vec::new());
        let length_column = length_column()?;
        Ok(PrefixedReader { pages, lengths: none, rest: Bytes::new(), last: Vec::new(), length_column })
    }

    /// Skips rows.
    ///
    /// # Errors
    /// The column has fewer rows, or the file is damaged.
    pub fn skip(&mut self, mut rows: usize) -> Result<(), ParquetError> {
        while rows > 0 {
            if self.lengths.len() == 0 {
                let next = self.pages.peek_next_page()?.and_then(|page| page.num_rows);
                if let Some(left) = next.and_then(|next| rows.checked_sub(next)) {
                    self.pages.skip_next_page()?;
                    rows = left;
                    continue;
                }
            }
            self.advance()?;
            rows -= 1;
        }
        Ok(())
    }

    /// The texts of the next rows.
    ///
    /// # Errors
    /// The column has fewer rows, a text is not UTF-8, or the file is damaged.
    pub fn read(&mut self, rows: usize) -> Result<PrefixedTexts, ParquetError> {
        let mut texts = PrefixedTexts { text: String::new(), ends: Vec::new() };
        for _ in 0..rows {
            self.advance()?;
            let text = std::str::from_utf8(&self.last).map_err(|_| damaged("a text is no UTF-8"))?;
            if texts.text.len() + text.len() > PAGE_BYTES_MAX {
                return Err(damaged(&format!("the texts of {rows} rows have more than {PAGE_BYTES_MAX} bytes")));
            }
            texts.text.push_str(text);
            texts.ends.push(texts.text.len());
        }
        Ok(texts)
    }

    /// Takes the next text.
    fn advance(&mut self) -> Result<(), ParquetError> {
        if self.lengths.len() == 0 {
            self.next_page()?;
        }
        let (shared, own) = self.lengths.next().ok_or_else(|| damaged("a page has no values"))?;
        // A length below zero is longer than any page.
        let [shared, own] = [shared, own].map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if shared > self.last.len() {
            return Err(damaged("a text shares more bytes than the text before it has"));
        }
        if own > self.rest.len() {
            return Err(damaged("a text is longer than the rest of its page"));
        }
        self.last.truncate(shared);
        self.last.extend_from_slice(&self.rest.split_to(own));
        Ok(())
    }

    fn next_page(&mut self) -> Result<(), ParquetError> {
        let page = self.pages.get_next_page()?;
        let page = page.ok_or_else(|| damaged("a column has fewer values than there are rows"))?;
        let Page::DataPage { buf, num_values, encoding: Encoding::DELTA_BYTE_ARRAY, .. } = page else {
            return Err(damaged("a page of texts is not a version 1 data page in DELTA_BYTE_ARRAY"));
        };
        let (shared, end) = self.all_lengths(&buf, num_values)?;
        let rest = buf.slice(end..);
        let (own, end) = self.all_lengths(&rest, num_values)?;
        self.lengths = shared.into_iter().zip(own);
        self.rest = rest.slice(end..);
        self.last.clear();
        Ok(())
    }

    /// The lengths at the beginning of bytes, and the position of their end.
    fn all_lengths(&self, bytes: &Bytes, values: u32) -> Result<(Vec<i32>, usize), ParquetError> {
        let (lengths, end) = lengths(&self.length_column, bytes, values)?;
        if lengths.len() == values as usize { Ok((lengths, end)) } else { Err(fewer()) }
    }
}

/// The column of lengths, for [`lengths`].
pub(super) fn length_column() -> Result<ColumnDescPtr, ParquetError> {
    let lengths = Type::primitive_type_builder("lengths", Physical::INT32).with_repetition(Repetition::REQUIRED);
    Ok(Arc::new(ColumnDescriptor::new(Arc::new(lengths.build()?), 0, 0, ColumnPath::from("lengths"))))
}

/// The lengths at the beginning of bytes, at most as many as a page has values, and the position of their end.
pub(super) fn lengths(column: &ColumnDescPtr, bytes: &Bytes, values: u32) -> Result<(Vec<i32>, usize), ParquetError> {
    let (found, end) = delta_lengths(bytes, u64::from(values).min(LENGTHS_MAX))?;
    let found = u32::try_from(found).map_err(|_| fewer())?;
    let page = Page::DataPage {
        buf: bytes.slice(..end),
        num_values: found,
        encoding: Encoding::DELTA_BINARY_PACKED,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    };
    let mut reader = ColumnReaderImpl::<Int32Type>::new(Arc::clone(column), Box::new(OnePage(Some(page))));
    let mut lengths = Vec::with_capacity(found as usize);
    reader.read_records(found as usize, None, None, &mut lengths)?;
    if lengths.len() == found as usize { Ok((lengths, end)) } else { Err(fewer()) }
}

fn fewer() -> ParquetError {
    damaged("a page has fewer lengths than values")
}

impl PrefixedTexts {
    /// The text of a row; `None` after the last row.
    pub fn get(&self, at: usize) -> Option<&str> {
        let end = *self.ends.get(at)?;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(start..end)
    }
}

/// A column of one page.
pub struct OnePage(pub Option<Page>);

impl Iterator for OnePage {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for OnePage {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        Ok(self.0.take())
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        Err(ParquetError::NYI("a page is read from its beginning".to_owned()))
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.0 = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::data_type::{ByteArray, ByteArrayType};
    use parquet::file::properties::{EnabledStatistics, WriterProperties};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::file::serialized_reader::ReadOptionsBuilder;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use proptest::prelude::*;

    fn texts(count: usize) -> Vec<String> {
        (0..count).map(|at| format!("listing-{:05}é{}", at / 3, "x".repeat(at % 7))).collect()
    }

    fn file(texts: &[String]) -> Bytes {
        let schema = Arc::new(parse_message_type("message m { required binary t (UTF8); }").unwrap());
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::DELTA_BYTE_ARRAY)
            .set_data_page_row_count_limit(100)
            .set_write_batch_size(50)
            .set_statistics_enabled(EnabledStatistics::Page);
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<ByteArray> = texts.iter().map(|text| ByteArray::from(text.as_str())).collect();
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.into_inner().unwrap().into()
    }

    fn reader(file: &Bytes) -> PrefixedReader {
        let options = ReadOptionsBuilder::new().with_page_index().build();
        let file = SerializedFileReader::new_with_options(file.clone(), options).unwrap();
        PrefixedReader::open(file.get_row_group(0).unwrap().get_column_page_reader(0).unwrap()).unwrap()
    }

    #[test]
    fn texts_behind_skipped_rows_are_those_that_were_written() {
        let texts = texts(450);
        let file = file(&texts);
        for start in [0, 1, 99, 100, 101, 250, 399, 449, 450] {
            for step in [1, 70, 100, 450] {
                let mut reader = reader(&file);
                reader.skip(start).unwrap();
                for rows in texts[start..].chunks(step) {
                    let found = reader.read(rows.len()).unwrap();
                    assert!((0..rows.len()).all(|at| found.get(at) == Some(&rows[at])), "from {start} by {step}");
                    assert_eq!(found.get(rows.len()), None);
                }
                assert!(reader.read(1).is_err(), "from {start} by {step}");
            }
        }
        assert!(reader(&file).skip(451).is_err());
    }

    fn reader_of(page: Page) -> PrefixedReader {
        PrefixedReader::open(Box::new(OnePage(Some(page)))).unwrap()
    }

    fn page(bytes: &[u8], values: u32, encoding: Encoding) -> Page {
        Page::DataPage {
            buf: Bytes::copy_from_slice(bytes),
            num_values: values,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_texts_or_an_error(
            values in 0..300_u32,
            // The beginning of lengths: blocks of 128 in 4 parts.
            mut bytes in prop_oneof![Just(vec![]), Just(vec![128, 1, 4])],
            rest in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            bytes.extend(rest);
            let mut reader = reader_of(page(&bytes, values, Encoding::DELTA_BYTE_ARRAY));
            if let Ok(texts) = reader.read(values as usize) {
                prop_assert_eq!(texts.get(values as usize), None);
            }
        }
    }

    #[test]
    fn damaged_pages_are_refused() {
        let read = |page: Page| {
            let texts = reader_of(page).read(1);
            texts.map(|texts| texts.get(0).unwrap().to_owned()).map_err(|error| error.to_string())
        };
        // Blocks of 128 lengths in 4 parts, one length; twice its value.
        let delta = Encoding::DELTA_BYTE_ARRAY;
        assert_eq!(read(page(&[128, 1, 4, 1, 0, 128, 1, 4, 1, 4, b'a', b'b'], 1, delta)), Ok("ab".to_owned()));
        let refused = |page: Page, expected: &str| {
            let error = read(page).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        refused(page(&[128, 1, 4, 1, 0, 128, 1, 4, 1, 6, b'a', b'b'], 1, delta), "longer than the rest of its page");
        refused(page(&[128, 1, 4, 1, 2, 128, 1, 4, 1, 4, b'a', b'b'], 1, delta), "shares more bytes");
        // Twice and one less: -2.
        refused(page(&[128, 1, 4, 1, 0, 128, 1, 4, 1, 3, b'a', b'b'], 1, delta), "longer than the rest of its page");
        refused(page(&[128, 1, 4, 1, 0, 128, 1, 4, 1, 2, 0xff], 1, delta), "no UTF-8");
        refused(page(&[128, 1, 4, 1, 0, 128, 1, 4, 1, 4, b'a', b'b'], 2, delta), "fewer lengths");
        refused(page(&[128, 1, 4, 1], 1, delta), "ends too early");
        let most = u32::try_from(LENGTHS_MAX).unwrap() + 1;
        refused(page(&[128, 1, 4, 129, 128, 128, 2, 0], most, delta), "more lengths than values");
        refused(page(&[2, 0, 0, 0, b'a', b'b'], 1, Encoding::PLAIN), "not a version 1 data page in DELTA_BYTE_ARRAY");
    }
}
