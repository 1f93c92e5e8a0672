//! Reads pages of a column. The library finds pages and decodes values. This module decompresses pages, with one zstd context per thread.
//!
//! The library creates a zstd context for each column of each row group. A query reads a page or two per column of many files. Contexts took
//! a quarter of its processor time.

use super::RowsError;
use bytes::Bytes;
use parquet::basic::{Compression, CompressionCodec};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::properties::{ReaderProperties, ReaderPropertiesPtr};
use parquet::file::reader::ChunkReader;
use parquet::file::serialized_reader::SerializedPageReader;
use std::cell::RefCell;
use std::sync::Arc;
use tidemark_files::parquet::guard::{PAGE_BYTES_MAX, damaged, refused};
use zstd::bulk::Decompressor;
use zstd::zstd_safe::get_frame_content_size;

/// A row group of a file, or of the bytes of a file that hold it.
pub struct RowGroup<'m, R> {
    file: Arc<R>,
    metadata: &'m ParquetMetaData,
    number: usize,
    properties: ReaderPropertiesPtr,
}

impl<'m, R: ChunkReader + 'static> RowGroup<'m, R> {
    pub fn new(file: &Arc<R>, metadata: &'m ParquetMetaData, number: usize) -> RowGroup<'m, R> {
        let properties = Arc::new(ReaderProperties::builder().build());
        RowGroup { file: Arc::clone(file), metadata, number, properties }
    }

    pub fn columns(&self) -> usize {
        self.metadata.row_group(self.number).num_columns()
    }

    /// The metadata of a column.
    ///
    /// # Errors
    /// [`RowsError::Schema`]: there is no such column.
    pub fn chunk(&self, column: usize) -> Result<&'m ColumnChunkMetaData, RowsError> {
        self.metadata.row_group(self.number).columns().get(column).ok_or(RowsError::Schema)
    }

    /// The decompressed pages of a column.
    ///
    /// # Errors
    /// [`RowsError::Damaged`]: the column is not compressed with zstd.
    pub fn pages(&self, column: usize) -> Result<Pages<R>, RowsError> {
        let chunk = self.chunk(column)?;
        if chunk.compression_codec() != CompressionCodec::ZSTD {
            return Err(RowsError::Damaged("a column is not compressed with zstd"));
        }
        // The library does not decompress pages of a column that is marked uncompressed.
        let stored = chunk.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
        let locations = self.metadata.page_index_for_row_group(self.number).page_locations(column).cloned();
        let rows = usize::try_from(self.metadata.row_group(self.number).num_rows());
        let rows = rows.map_err(|_| RowsError::Damaged("a row group has a negative number of rows"))?;
        let file = Arc::clone(&self.file);
        let properties = Arc::clone(&self.properties);
        Ok(Pages(SerializedPageReader::new_with_properties(file, &stored, rows, locations, properties)?))
    }
}

/// The pages of a column, decompressed.
pub struct Pages<R: ChunkReader>(SerializedPageReader<R>);

impl<R: ChunkReader> Iterator for Pages<R> {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl<R: ChunkReader> PageReader for Pages<R> {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        self.0.get_next_page()?.map(decompressed).transpose()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.0.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.0.skip_next_page()
    }

    fn supports_deferred_dictionary(&self) -> bool {
        self.0.supports_deferred_dictionary()
    }

    fn take_deferred_dictionary(&mut self) -> Result<Option<Page>, ParquetError> {
        self.0.take_deferred_dictionary()?.map(decompressed).transpose()
    }
}

fn decompressed(mut page: Page) -> Result<Page, ParquetError> {
    match &mut page {
        Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => *buf = decompress(buf)?,
        Page::DataPageV2 { .. } => return Err(refused("a data page has version 2; blobs have version 1")),
    }
    Ok(page)
}

/// Decompresses a zstd frame whose header has the size of its content.
fn decompress(frame: &[u8]) -> Result<Bytes, ParquetError> {
    thread_local!(static CONTEXT: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) });
    let size = get_frame_content_size(frame).ok().flatten();
    let size = size.ok_or_else(|| damaged("a page is not a zstd frame with the size of its content"))?;
    let fits = usize::try_from(size).ok().filter(|size| *size <= PAGE_BYTES_MAX);
    let size = fits.ok_or_else(|| refused(format!("a page has {size} bytes, and {PAGE_BYTES_MAX} are allowed")))?;
    CONTEXT.with_borrow_mut(|context| {
        let context = match context {
            Some(context) => context,
            None => context.insert(Decompressor::new()?),
        };
        Ok(Bytes::from(context.decompress(frame, size)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::basic::Encoding;
    use std::io::Write;

    #[test]
    fn pages_other_than_those_of_blobs_are_refused() {
        let content = b"three three three";
        assert_eq!(decompress(&zstd::bulk::compress(content, 3).unwrap()).unwrap(), content[..]);
        let error = |frame: &[u8]| decompress(frame).unwrap_err().to_string();
        assert!(error(content).contains("not a zstd frame"), "{}", error(content));
        // A stream does not say the size of its content.
        let mut stream = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        stream.write_all(content).unwrap();
        stream.flush().unwrap();
        let stream = stream.finish().unwrap();
        assert!(error(&stream).contains("not a zstd frame with the size"), "{}", error(&stream));
        // Magic number, a size of 8 bytes in a single segment, and the size.
        let size = (PAGE_BYTES_MAX as u64 + 1).to_le_bytes();
        let large = [&[0x28, 0xb5, 0x2f, 0xfd, 0xe0][..], &size].concat();
        assert!(error(&large).contains("67108864 are allowed"), "{}", error(&large));
        let mut cut = zstd::bulk::compress(content, 3).unwrap();
        cut.pop();
        assert!(decompress(&cut).is_err());
    }

    #[test]
    fn data_page_of_version_2_is_refused() {
        let page = Page::DataPageV2 {
            buf: Bytes::new(),
            num_values: 0,
            encoding: Encoding::PLAIN,
            num_nulls: 0,
            num_rows: 0,
            def_levels_byte_len: 0,
            rep_levels_byte_len: 0,
            is_compressed: true,
            statistics: None,
        };
        assert!(decompressed(page).unwrap_err().to_string().contains("version 2"));
    }
}
