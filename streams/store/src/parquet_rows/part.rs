//! Parts of a file: the rows of a tenant from the row groups that hold them.
//!
//! A file as a whole is checked by the checksum in the manifest. Its pages have no checksums, so a part of it cannot be checked alone.
//! An [`Index`] of a file that was checked keeps what its footer says, and a checksum of each row group.

use super::pages::RowGroup;
use super::read::{checked_footer, metadata, push_group, rows_of};
use super::{RowsError, Wanted};
use bytes::{Buf, Bytes, buf::Reader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};
use std::ops::Range;
use std::sync::Arc;
use tidemark_streams_core::rollup::Rollups;
use xxhash_rust::xxh3::xxh3_64;

/// Of a file that was read whole and checked.
#[derive(Debug)]
pub struct Index {
    metadata: ParquetMetaData,
    groups: Vec<Group>,
}

/// The bytes of a row group.
#[derive(Debug)]
struct Group {
    range: Range<u64>,
    checksum: u64,
}

/// Bytes of a file from a place on.
#[derive(Clone, Debug)]
pub struct Part {
    pub start: u64,
    pub bytes: Bytes,
}

impl Index {
    /// The index of a file.
    ///
    /// # Errors
    /// [`RowsError`]: it is no blob of rows, or damaged.
    pub fn of(bytes: &Bytes) -> Result<Index, RowsError> {
        let metadata = metadata(bytes)?;
        checked_footer(&metadata)?;
        let groups = metadata.row_groups().iter().map(|group| Group::of(group, bytes)).collect::<Result<_, _>>()?;
        Ok(Index { metadata, groups })
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        self.metadata.memory_size() + self.groups.capacity() * size_of::<Group>()
    }

    /// The bytes of the row groups that may hold a tenant. `None`: none does.
    ///
    /// # Errors
    /// [`RowsError`]: the file is damaged.
    pub fn range_of(&self, tenant: &str) -> Result<Option<Range<u64>>, RowsError> {
        let mut found: Option<Range<u64>> = None;
        for (number, Group { range, .. }) in self.groups.iter().enumerate() {
            if rows_of(&self.metadata, number, tenant)?.is_empty() {
                continue;
            }
            let before = found.unwrap_or_else(|| range.clone());
            found = Some(before.start.min(range.start)..before.end.max(range.end));
        }
        Ok(found)
    }

    /// The rows of a tenant from a part that was read later. It holds the bytes of [`Index::range_of`].
    ///
    /// # Errors
    /// [`RowsError::Changed`]: the bytes are others than those of the index.
    pub fn rows(&self, part: &Part, tenant: &str) -> Result<Rollups, RowsError> {
        self.read(part, tenant, |group| group.check(part))
    }

    /// The rows of a tenant from the bytes that the index was made of.
    ///
    /// # Errors
    /// [`RowsError`]: the file is damaged.
    pub fn rows_of_whole(&self, bytes: &Bytes, tenant: &str) -> Result<Rollups, RowsError> {
        self.read(&Part { start: 0, bytes: bytes.clone() }, tenant, |_| Ok(()))
    }

    fn read(
        &self,
        part: &Part,
        tenant: &str,
        check: impl Fn(&Group) -> Result<(), RowsError>,
    ) -> Result<Rollups, RowsError> {
        let file = Arc::new(part.clone());
        let mut rows = Rollups::new();
        for (number, bytes) in self.groups.iter().enumerate() {
            let range = rows_of(&self.metadata, number, tenant)?;
            if !range.is_empty() {
                check(bytes)?;
                push_group(&RowGroup::new(&file, &self.metadata, number), range, Wanted::Tenant(tenant), &mut rows)?;
            }
        }
        Ok(rows)
    }
}

impl Group {
    fn of(group: &RowGroupMetaData, bytes: &Bytes) -> Result<Group, RowsError> {
        const OUTSIDE: RowsError = RowsError::Damaged("a row group lies outside of its file");
        let mut range = bytes.len() as u64..0;
        for column in group.columns() {
            // The library panics where one of these is negative.
            let sizes =
                [column.compressed_size(), column.dictionary_page_offset().unwrap_or(column.data_page_offset())];
            if sizes.into_iter().any(|size| size < 0) {
                return Err(OUTSIDE);
            }
            let (start, length) = column.byte_range();
            let end = start.checked_add(length).filter(|end| *end <= bytes.len() as u64).ok_or(OUTSIDE)?;
            range = range.start.min(start)..range.end.max(end);
        }
        let within = range.start as usize..range.end as usize;
        let checksum = xxh3_64(bytes.get(within).ok_or(OUTSIDE)?);
        Ok(Group { range, checksum })
    }

    /// Compares its bytes in a part with those that were read before.
    fn check(&self, part: &Part) -> Result<(), RowsError> {
        let Range { start, end } = self.range;
        let changed = RowsError::Changed { from: start, to: end };
        match part.get_bytes(start, (end - start) as usize) {
            Ok(bytes) if xxh3_64(&bytes) == self.checksum => Ok(()),
            Ok(_) | Err(_) => Err(changed),
        }
    }
}

impl Part {
    /// Where a place of the file is among the bytes.
    fn at(&self, start: u64) -> Result<usize, ParquetError> {
        let at = start.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        let outside = || ParquetError::EOF(format!("byte {start} was not read"));
        at.filter(|at| *at <= self.bytes.len()).ok_or_else(outside)
    }
}

impl Length for Part {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for Part {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Reader<Bytes>, ParquetError> {
        Ok(self.bytes.slice(self.at(start)?..).reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let at = self.at(start)?;
        let end = at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let outside = || ParquetError::EOF(format!("{length} bytes from byte {start} on were not read"));
        Ok(self.bytes.slice(at..end.ok_or_else(outside)?))
    }
}
