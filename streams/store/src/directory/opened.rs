//! Blobs of rows that were read whole and checked once. Later reads of a tenant take a part of the file, and compare it.

use super::{BlobReader, DirectoryError};
use crate::blob::BlobError;
use crate::folder::{ReadError, check, file_name};
use crate::parquet_rows::{Index, Part, RowsError};
use bytes::Bytes;
use object_store::Error as StoreError;
use std::ops::Range;
use tidemark_streams_core::blob::BlobMeta;
use tidemark_streams_core::rollup::Rollups;

/// A blob that was read whole and checked.
#[derive(Debug)]
pub struct OpenBlob {
    meta: BlobMeta,
    index: Index,
    whole: Option<Bytes>,
}

/// What is kept of a blob that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All of it: rows of any tenant are at hand.
    Whole,
    /// Its index: rows of a tenant need a part of the file.
    Index,
}

impl BlobReader {
    /// Reads a blob whole, and checks it.
    ///
    /// # Errors
    /// The blob is missing or damaged.
    pub async fn open_blob(&self, meta: &BlobMeta, keep: Keep) -> Result<OpenBlob, DirectoryError> {
        let bytes = self.folder.get(meta).await?;
        let meta = *meta;
        let checked = tokio::task::spawn_blocking(move || OpenBlob::checked(meta, bytes, keep)).await;
        let name = || file_name(&meta.key, meta.level);
        checked.map_err(|error| ReadError::Store { name: name(), error: StoreError::from(error) })?
    }

    /// Reads a part of a blob again. [`OpenBlob::rows`] compares it.
    ///
    /// # Errors
    /// The blob is missing, or shorter than it was.
    pub async fn part(&self, blob: &OpenBlob, range: Range<u64>) -> Result<Part, DirectoryError> {
        let start = range.start;
        Ok(Part { start, bytes: self.folder.get_range(&blob.meta, range).await? })
    }
}

impl OpenBlob {
    fn checked(meta: BlobMeta, bytes: Bytes, keep: Keep) -> Result<OpenBlob, DirectoryError> {
        check(&meta, &bytes)?;
        let index = Index::of(&bytes).map_err(|error| failed(&meta, error))?;
        let whole = match keep {
            Keep::Whole => Some(bytes),
            Keep::Index => None,
        };
        Ok(OpenBlob { meta, index, whole })
    }

    pub fn meta(&self) -> &BlobMeta {
        &self.meta
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        self.index.bytes() + self.whole.as_ref().map_or(0, Bytes::len)
    }

    /// The part of the file that the rows of a tenant need. `None`: they need none.
    ///
    /// # Errors
    /// The blob is damaged.
    pub fn part_of(&self, tenant: &str) -> Result<Option<Range<u64>>, DirectoryError> {
        match self.whole {
            Some(_) => Ok(None),
            None => self.index.range_of(tenant).map_err(|error| failed(&self.meta, error)),
        }
    }

    /// The rows of a tenant, of the part that they need.
    ///
    /// # Errors
    /// The blob is damaged, or its file was changed.
    pub fn rows(&self, tenant: &str, part: Option<&Part>) -> Result<Rollups, DirectoryError> {
        let rows = match (&self.whole, part) {
            (Some(bytes), _) => self.index.rows_of_whole(bytes, tenant),
            (None, Some(part)) => self.index.rows(part, tenant),
            (None, None) => Ok(Rollups::new()),
        };
        rows.map_err(|error| failed(&self.meta, error))
    }
}

fn failed(meta: &BlobMeta, error: RowsError) -> DirectoryError {
    DirectoryError::Content { name: file_name(&meta.key, meta.level), error: BlobError::Rows(error) }
}
