//! The guard between the library and an untrusted or damaged file. It checks each size against a named limit before memory is
//! taken. A panic of the library becomes an error of the file.

use super::prefixed::{length_column, lengths};
use super::walk::{ListLengths, Malformed, PageHeader, check_schema, delta_lengths, page_header};
use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use parquet::basic::{CompressionCodec, Encoding, Type};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, FooterTail};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};

/// Bytes of a file's metadata. More: the file is refused.
pub const METADATA_BYTES_MAX: usize = 16 << 20;
/// Bytes of a page, compressed and not; writers make pages of 1 MiB. More: the file is refused.
pub const PAGE_BYTES_MAX: usize = 64 << 20;
/// Bytes of the header of a page, with the smallest and the largest of its values. More: the file is refused.
pub const PAGE_HEADER_BYTES_MAX: u64 = 64 << 10;
const _: () = assert!(PAGE_BYTES_MAX <= u32::MAX as usize);
/// Values of a dictionary, each of which takes up to 40 bytes of memory beside its text. More: the file is refused.
pub const DICTIONARY_VALUES_MAX: usize = 4 << 20;
/// Bytes of a page of texts that say what they have in common with the one before: each may become as long as the page. More: the file is
/// refused.
pub const PREFIXED_PAGE_BYTES_MAX: usize = 4 << 20;
/// Bytes of all texts of such a page, with what they share. More: the file is refused.
pub const PREFIXED_TEXT_BYTES_MAX: u64 = 4 * PAGE_BYTES_MAX as u64;
/// Lengths in a page of texts, which may be written in almost no bytes. More: the file is refused.
pub const LENGTHS_MAX: u64 = 4 << 20;
/// Elements of a list in a row, which may be written in almost no bytes; the reader takes up to 80 bytes of memory for each. More: the file
/// is refused.
pub const LIST_ELEMENTS_MAX: u64 = 2 << 20;
/// Bytes of the pages of a batch of lists, which stay in memory with it. More: the file is refused.
pub const LIST_PAGES_BYTES_MAX: u64 = if cfg!(test) { 4 << 10 } else { 4 * PAGE_BYTES_MAX as u64 };

/// Of a page that only says where values are.
const INDEX_PAGE: i64 = 1;
/// At either end of a file.
const FOOTER_BYTES: u64 = 8;
const MAGIC_BYTES: u64 = 4;
/// Bytes of a value in a dictionary: a number, or the length of a text. Values of a fixed length may be shorter.
const VALUE_BYTES_MIN: usize = 4;
/// Behind the magic: no page begins before.
const PAGE_OFFSET_MIN: i64 = MAGIC_BYTES as i64;

#[cfg(not(panic = "unwind"))]
compile_error!("the feature `parquet` needs panics that can be caught");

/// The error of a file that is over a limit.
pub fn refused(why: impl Into<String>) -> ParquetError {
    ParquetError::General(why.into())
}

/// The error of a file that does not agree with itself.
pub fn damaged(why: &str) -> ParquetError {
    refused(format!("it is damaged: {why}"))
}

impl From<Malformed> for ParquetError {
    fn from(why: Malformed) -> ParquetError {
        refused(why.0)
    }
}

/// Why the library has not read a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("{reason}")]
    Refused {
        /// Without what the library writes in front.
        reason: String,
    },
    /// The library panicked.
    #[error("it is damaged: {panic}")]
    Damaged { panic: String },
}

/// The result of `work`, or why the library gave up. The values that `work` used must not be used afterwards.
pub fn caught<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, Unreadable> {
    thread_local!(static IS_QUIET: Cell<bool> = const { Cell::new(false) });
    static HOOK: Once = Once::new();
    // The user of the command gets the error, and not the panic.
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                before(panic);
            }
        }));
    });
    let was_quiet = IS_QUIET.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_QUIET.set(was_quiet);
    match done {
        Ok(done) => done.map_err(|error| Unreadable::Refused { reason: shown(&error) }),
        Err(panic) => Err(Unreadable::Damaged { panic: message(&*panic).to_owned() }),
    }
}

fn shown(error: &ParquetError) -> String {
    match error {
        ParquetError::General(why) | ParquetError::EOF(why) | ParquetError::NYI(why) => why.clone(),
        other => other.to_string(),
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("the reader gave up")
}

/// A file of which nothing is read that is not there, and nothing at once that is longer than it may be.
pub struct Bounded<R> {
    inner: R,
    bytes: u64,
}

impl<R: ChunkReader> Bounded<R> {
    /// Once its metadata can be read.
    pub fn new(inner: R) -> Result<Bounded<R>, ParquetError> {
        let file = Bounded { bytes: inner.len(), inner };
        let tail = file.bytes.checked_sub(FOOTER_BYTES).filter(|tail| *tail >= MAGIC_BYTES);
        let tail = tail.ok_or_else(|| refused("it is cut off"))?;
        let footer = FooterTail::try_from(&file.get_bytes(tail, FOOTER_BYTES as usize)?[..])
            .map_err(|_| refused("it is cut off, or damaged: it does not end as Parquet does"))?;
        let length = footer.metadata_length();
        if footer.is_encrypted_footer() {
            return Err(refused("it is encrypted"));
        }
        if length > METADATA_BYTES_MAX {
            return Err(refused(format!("its metadata has {length} bytes, and {METADATA_BYTES_MAX} are allowed")));
        }
        let start = tail.checked_sub(length as u64).filter(|start| *start >= MAGIC_BYTES);
        let start = start.ok_or_else(|| refused("its metadata is longer than the file"))?;
        check_schema(&file.get_bytes(start, length)?)?;
        Ok(file)
    }
}

impl<R: ChunkReader> Length for Bounded<R> {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl<R: ChunkReader> ChunkReader for Bounded<R> {
    type T = R::T;

    fn get_read(&self, start: u64) -> Result<R::T, ParquetError> {
        match start <= self.bytes {
            true => self.inner.get_read(start),
            false => Err(refused("something of it lies behind its end")),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.bytes) {
            return Err(refused("something of it lies behind its end"));
        }
        if length > PAGE_BYTES_MAX.max(METADATA_BYTES_MAX) {
            return Err(refused(format!("a page has {length} bytes, and {PAGE_BYTES_MAX} are allowed")));
        }
        self.inner.get_bytes(start, length)
    }
}

/// A column with a dictionary has its offset only if it has a dictionary. Some writers give the offset 0 to a dictionary that does not
/// exist.
fn with_dictionary_where_it_is(column: &ColumnChunkMetaData) -> Cow<'_, ColumnChunkMetaData> {
    match column.dictionary_page_offset() {
        Some(offset) if offset < PAGE_OFFSET_MIN => {
            match column.clone().into_builder().set_dictionary_page_offset(None).build() {
                Ok(column) => Cow::Owned(column),
                Err(_) => Cow::Borrowed(column),
            }
        }
        _ => Cow::Borrowed(column),
    }
}

/// The levels that a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Levels {
    /// A value says whether it goes on with a list.
    pub are_repeated: bool,
    /// A value says whether it is there.
    pub are_optional: bool,
}

/// The number of bytes that levels take before the values of a page.
pub(super) fn level_bytes(page: &Page, levels: Levels) -> Result<usize, ParquetError> {
    match page {
        Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
            Ok((*def_levels_byte_len as usize).saturating_add(*rep_levels_byte_len as usize))
        }
        Page::DataPage { num_values, buf, def_level_encoding, rep_level_encoding, .. } => {
            let repeated = match levels.are_repeated {
                true => bytes_with_length(*rep_level_encoding, buf)?,
                false => 0,
            };
            let rest = buf.get(repeated..).ok_or_else(cut_off)?;
            match def_level_encoding {
                _ if !levels.are_optional => Ok(repeated),
                // Old writers pack them without a length. In a flat column a level is one bit.
                #[expect(deprecated)]
                Encoding::BIT_PACKED if !levels.are_repeated => Ok((*num_values as usize).div_ceil(8)),
                encoding => Ok(repeated.saturating_add(bytes_with_length(*encoding, rest)?)),
            }
        }
        Page::DictionaryPage { .. } => Ok(0),
    }
}

/// The bytes of levels that begin with their length.
fn bytes_with_length(encoding: Encoding, bytes: &[u8]) -> Result<usize, ParquetError> {
    if encoding != Encoding::RLE {
        return Err(refused("a page has levels in an unknown encoding"));
    }
    let length = bytes.first_chunk().ok_or_else(cut_off)?;
    Ok((u32::from_le_bytes(*length) as usize).saturating_add(size_of::<u32>()))
}

/// The repetition levels of a page of lists.
fn repetition_levels(page: &Page) -> Result<&[u8], ParquetError> {
    let range = match page {
        Page::DataPageV2 { rep_levels_byte_len, .. } => 0..*rep_levels_byte_len as usize,
        Page::DataPage { buf, rep_level_encoding, .. } => {
            size_of::<u32>()..bytes_with_length(*rep_level_encoding, buf)?
        }
        Page::DictionaryPage { .. } => 0..0,
    };
    page.buffer().get(range).ok_or_else(cut_off)
}

/// The bytes of texts with what they share with the text before.
fn text_bytes(bytes: &Bytes, values: u32) -> Result<u64, ParquetError> {
    let column = length_column()?;
    let (shared, end) = lengths(&column, bytes, values)?;
    let (own, _) = lengths(&column, &bytes.slice(end..), values)?;
    // A length below zero is longer than any page.
    Ok(shared.into_iter().chain(own).map(|length| u64::from(length as u32)).sum())
}

fn cut_off() -> ParquetError {
    refused("a page is cut off")
}

/// The pages of a column of a row group, of which each is looked at before it is unpacked and before its values are.
pub struct Pages<R: ChunkReader> {
    inner: SerializedPageReader<Bounded<R>>,
    file: Arc<Bounded<R>>,
    is_gzip: bool,
    levels: Levels,
    lists: ListLengths,
    read: Arc<AtomicU64>,
    value_bytes_min: usize,
    /// Where the next page begins, and how much there is from there on.
    offset: u64,
    left: u64,
}

impl<R: ChunkReader> Pages<R> {
    pub fn new(file: Arc<Bounded<R>>, column: &ColumnChunkMetaData, rows: usize) -> Result<Pages<R>, ParquetError> {
        let column = &with_dictionary_where_it_is(column);
        let (offset, left) = column.byte_range();
        let is_gzip = match column.compression_codec() {
            CompressionCodec::GZIP => true,
            CompressionCodec::UNCOMPRESSED | CompressionCodec::SNAPPY | CompressionCodec::ZSTD => false,
            other => {
                return Err(refused(format!(
                    "its pages are compressed with {other:?}, which is not read: write it with snappy, gzip or zstd"
                )));
            }
        };
        let descriptor = column.column_descr();
        let levels =
            Levels { are_repeated: descriptor.max_rep_level() > 0, are_optional: descriptor.max_def_level() > 0 };
        let value_bytes_min = match descriptor.physical_type() {
            Type::FIXED_LEN_BYTE_ARRAY => usize::try_from(descriptor.type_length()).unwrap_or(0).max(1),
            _ => VALUE_BYTES_MIN,
        };
        let inner = SerializedPageReader::new(Arc::clone(&file), column, rows, None)?;
        let lists = ListLengths::default();
        let read = Arc::default();
        Ok(Pages { inner, file, is_gzip, levels, lists, read, value_bytes_min, offset, left })
    }

    /// Counts the bytes of the values that are read from now on. A reader of lists sets it to 0 when it has let go of them.
    pub fn bytes_read(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read)
    }

    /// The header of the page at a position, and where the page begins behind it.
    fn header_at(&self, offset: u64, left: u64) -> Result<(PageHeader, u64), ParquetError> {
        let mut begin = Vec::new();
        self.file.get_read(offset)?.take(left.min(PAGE_HEADER_BYTES_MAX)).read_to_end(&mut begin)?;
        let header = page_header(&begin)?;
        Ok((header, offset + header.bytes as u64))
    }

    /// Whether no page with values is left.
    fn is_at_end(&self) -> Result<bool, ParquetError> {
        let mut offset = self.offset;
        let mut left = self.left;
        while left > 0 {
            let (header, body) = self.header_at(offset, left)?;
            let whole = (body - offset).saturating_add(u64::try_from(header.compressed).unwrap_or(u64::MAX));
            if header.kind != INDEX_PAGE && header.values != 0 || whole > left {
                return Ok(false);
            }
            offset += whole;
            left -= whole;
        }
        Ok(true)
    }

    /// Looks at the header of the next page that the library will unpack.
    fn look(&mut self) -> Result<(), ParquetError> {
        while self.left > 0 {
            let (header, body) = self.header_at(self.offset, self.left)?;
            let size = |bytes: i64| {
                let size = usize::try_from(bytes).ok().filter(|size| *size <= PAGE_BYTES_MAX);
                size.ok_or_else(|| refused(format!("a page has {bytes} bytes, and {PAGE_BYTES_MAX} are allowed")))
            };
            let compressed = size(header.compressed)?;
            let uncompressed = size(header.uncompressed)?;
            let whole = header.bytes as u64 + compressed as u64;
            self.left = self.left.checked_sub(whole).ok_or_else(|| refused("a page is longer than its column"))?;
            self.offset += whole;
            if header.kind != INDEX_PAGE {
                return if self.is_gzip {
                    self.unpack(body, compressed, uncompressed, size(header.levels)?)
                } else {
                    Ok(())
                };
            }
        }
        Ok(())
    }

    /// The library unpacks gzip to its end, however long that is. Content that cannot be unpacked is left to it.
    fn unpack(&self, at: u64, compressed: usize, uncompressed: usize, levels: usize) -> Result<(), ParquetError> {
        let page = self.file.get_bytes(at, compressed)?;
        let packed = page.get(levels..).unwrap_or_default();
        let unpacked = io::copy(&mut MultiGzDecoder::new(packed).take(uncompressed as u64 + 1), &mut io::sink());
        match unpacked {
            Ok(bytes) if bytes > uncompressed as u64 => Err(refused("a page unpacks to more than it says")),
            _ => Ok(()),
        }
    }

    /// Looks at what is unpacked, before room is made for its values.
    fn check(&mut self, page: &Page) -> Result<(), ParquetError> {
        let buffer = page.buffer();
        let values = page.num_values();
        if self.levels.are_repeated && page.is_data_page() {
            self.lists.add(repetition_levels(page)?, values.into())?;
            let elements = self.lists.longest;
            if elements > LIST_ELEMENTS_MAX {
                return Err(refused(format!(
                    "a list has {elements} elements or more, and {LIST_ELEMENTS_MAX} are allowed"
                )));
            }
        }
        if page.is_data_page() {
            self.keep(buffer.len() as u64)?;
        }
        let parts = match (page, page.encoding()) {
            (Page::DictionaryPage { .. }, _) => {
                let values = values as usize;
                let fits = values <= DICTIONARY_VALUES_MAX && values <= buffer.len() / self.value_bytes_min;
                return if fits { Ok(()) } else { Err(refused(format!("a dictionary has {values} values"))) };
            }
            (_, Encoding::DELTA_BYTE_ARRAY) => 2,
            (_, Encoding::DELTA_LENGTH_BYTE_ARRAY) => 1,
            _ => return Ok(()),
        };
        if parts == 2 && buffer.len() > PREFIXED_PAGE_BYTES_MAX {
            let bytes = buffer.len();
            return Err(refused(format!("a page has {bytes} bytes, and {PREFIXED_PAGE_BYTES_MAX} are allowed")));
        }
        let start = level_bytes(page, self.levels)?;
        if start > buffer.len() {
            return Err(cut_off());
        }
        if parts == 1 {
            delta_lengths(&buffer[start..], u64::from(values).min(LENGTHS_MAX))?;
            return Ok(());
        }
        let bytes = text_bytes(&buffer.slice(start..), values)?;
        match bytes <= PREFIXED_TEXT_BYTES_MAX {
            true => self.keep(bytes),
            false => Err(refused(format!(
                "the texts of a page have {bytes} bytes, and {PREFIXED_TEXT_BYTES_MAX} are allowed"
            ))),
        }
    }

    /// Counts bytes of values that the reader keeps until it has handed out their rows.
    fn keep(&self, bytes: u64) -> Result<(), ParquetError> {
        let read = self.read.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        match self.levels.are_repeated && read > LIST_PAGES_BYTES_MAX {
            false => Ok(()),
            true => Err(refused(format!("lists are in pages of {read} bytes, and {LIST_PAGES_BYTES_MAX} are allowed"))),
        }
    }
}

impl<R: ChunkReader> Iterator for Pages<R> {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl<R: ChunkReader> PageReader for Pages<R> {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        loop {
            self.look()?;
            let Some(page) = self.inner.get_next_page()? else { return Ok(None) };
            // Some writers make pages without values. The library takes such a page for the end of the column.
            if page.is_data_page() && page.num_values() == 0 {
                continue;
            }
            self.check(&page)?;
            return Ok(Some(page));
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        Err(ParquetError::NYI("pages are read one after the other".to_owned()))
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        Err(ParquetError::NYI("pages are read one after the other".to_owned()))
    }

    fn at_record_boundary(&mut self) -> Result<bool, ParquetError> {
        // A list may go on in the next page.
        self.is_at_end()
    }
}
