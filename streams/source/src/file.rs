//! The rows of a file, from the first on.

pub use crate::error::SourceError;
use crate::lines::Lines;
use crate::mapping::{Mapping, MappingError};
use crate::rows::{NoTenant, Rows};
use crate::table::Table;
use crate::value::Reading;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use tidemark_files::unpack::{BUFFER_BYTES, PARQUET_MAGIC, Text};
use tidemark_streams_core::event::check_listing;
use tidemark_streams_core::values::DimensionNames;
use tidemark_streams_intake::listings::{ListingUnknown, LookupFailed, Tenants, text_without_tenant};

/// Bytes of texts of a batch, beside those of its last row.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// A file that is read.
pub struct FileRows {
    format: Format,
    reading: Reading,
    has_clock: bool,
    page: Page,
}

/// The rows of a page, and how many of them were handed out.
#[derive(Default)]
struct Page {
    rows: Rows,
    next: usize,
}

enum Format {
    Lines(Box<Lines>),
    Table(Box<Table<File>>),
}

impl Format {
    /// Adds the rows of the next record. `false`: there is none.
    fn next(&mut self, reading: &Reading, rows: &mut Rows) -> Result<bool, SourceError> {
        match self {
            Format::Lines(lines) => lines.next(reading, rows),
            Format::Table(table) => table.next(reading, rows),
        }
    }
}

impl FileRows {
    /// From the beginning of a file.
    ///
    /// # Errors
    /// [`SourceError`]: nothing of it can be read.
    pub fn open(file: &File, reading: Reading) -> Result<FileRows, SourceError> {
        let mut file = file.try_clone()?;
        file.rewind()?;
        let mut buffered = BufReader::with_capacity(BUFFER_BYTES, file);
        let format = match buffered.fill_buf()?.starts_with(PARQUET_MAGIC) {
            true => Format::Table(Box::new(Table::open(buffered.into_inner(), &reading.mapping)?)),
            false => Format::Lines(Box::new(Lines::open(Text::open(buffered)?, &reading.mapping)?)),
        };
        let has_clock = match &format {
            Format::Table(table) => table.has_clock(),
            Format::Lines(_) => false,
        };
        Ok(FileRows { format, reading, has_clock, page: Page::default() })
    }

    /// Whether its type says that times stand without a zone: they are read by the clock of the zone that was named.
    pub fn has_clock(&self) -> bool {
        self.has_clock
    }

    pub fn mapping(&self) -> &Mapping {
        &self.reading.mapping
    }

    /// Says the dimensions of the directory.
    ///
    /// # Errors
    /// The mapping names another dimension.
    pub fn name_dimensions(&mut self, names: DimensionNames) -> Result<(), MappingError> {
        self.reading.mapping.check_dimensions(&names)?;
        self.reading.dimensions = names;
        Ok(())
    }

    /// Adds the next rows to a batch: at most `most`, and fewer if their texts are long. If it adds none, the file has ended.
    ///
    /// # Errors
    /// [`SourceError`]: the file is damaged from there on.
    pub fn read(&mut self, rows: &mut Rows, most: usize) -> Result<(), SourceError> {
        for _ in 0..most {
            let is_read = match self.reading.mapping.pages {
                None => self.format.next(&self.reading, rows)?,
                Some(_) => self.next_of_page(rows)?,
            };
            if !is_read || rows.text_bytes() > BATCH_BYTES_MAX {
                break;
            }
        }
        Ok(())
    }

    /// Adds the next row of a page. `false`: there is none.
    fn next_of_page(&mut self, rows: &mut Rows) -> Result<bool, SourceError> {
        if self.page.next == self.page.rows.len() {
            self.page.rows.clear();
            self.page.next = 0;
            if !self.format.next(&self.reading, &mut self.page.rows)? {
                return Ok(false);
            }
        }
        rows.push_of(&self.page.rows, self.page.next);
        self.page.next += 1;
        Ok(true)
    }

    /// Gives the rows of a batch the tenants that a catalogue knows, if the mapping names no tenant. `catalogue_of` is the catalogue for a
    /// row, by its number in the batch. A row with an unknown listing becomes a dead letter.
    ///
    /// # Errors
    /// The catalogue cannot be read.
    pub fn resolve<T: Tenants>(
        &self,
        batch: &mut Rows,
        event_type: &str,
        catalogue_of: impl Fn(usize) -> T,
    ) -> Result<(), LookupFailed> {
        if self.reading.mapping.tenant.is_some() {
            return Ok(());
        }
        batch.resolve(event_type, |number, event| {
            let listing = event.listing;
            let reason = match check_listing(listing) {
                Err(error) => error.to_string(),
                Ok(()) => match catalogue_of(number).tenant_of(listing)? {
                    Some(tenant) => return Ok(Ok(tenant)),
                    None => ListingUnknown::new(listing).to_string(),
                },
            };
            Ok(Err(NoTenant { reason, text: text_without_tenant(&event, &self.reading.dimensions) }))
        })
    }

    /// Passes over rows that were counted before. Returns how many there were.
    ///
    /// # Errors
    /// As of [`FileRows::read`].
    pub fn skip(&mut self, count: u64) -> Result<u64, SourceError> {
        let mut rows = Rows::default();
        for skipped in 0..count {
            rows.clear();
            self.read(&mut rows, 1)?;
            if rows.is_empty() {
                return Ok(skipped);
            }
        }
        Ok(count)
    }
}
