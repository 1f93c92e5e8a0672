//! The blobs of a directory, apart from its manifest: one thread writes them while another commits, and others read.

use super::DirectoryError;
use crate::blob::{BlobError, encode};
use crate::dead_letters;
use crate::disk::LocalDisk;
use crate::folder::{Folder, FolderError, FolderReader, Found, Listing, ReadError, StoreLayer, file_name};
use crate::parquet_rows::{self, Wanted};
use bytes::Bytes;
use std::path::{Path, PathBuf};
use tidemark_streams_core::blob::{BlobMeta, StoredBlob};
use tidemark_streams_core::owner::{DeadLetter, Put};
use tidemark_streams_core::rollup::Rollups;

/// Blobs that are written and read.
pub struct Blobs {
    path: PathBuf,
    directory: String,
    folder: Folder<LocalDisk>,
    layer: StoreLayer,
}

/// Blobs that are only read, on any thread.
pub struct BlobReader {
    pub(super) folder: FolderReader,
}

impl Blobs {
    pub(super) fn open(path: PathBuf, directory: String, layer: StoreLayer) -> Result<Blobs, DirectoryError> {
        let folder = Folder::through(&path, LocalDisk::new(&path), &layer);
        let folder = folder.map_err(|error| DirectoryError::Folder { path: path.clone(), error })?;
        Ok(Blobs { path, directory, folder, layer })
    }

    pub(super) fn has(&self, name: &str) -> Result<bool, DirectoryError> {
        self.folder.has(name).map_err(|error| self.failed(error))
    }

    /// The id of their directory.
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// # Errors
    /// The folder cannot be opened.
    pub fn reader(&self) -> Result<BlobReader, DirectoryError> {
        BlobReader::open(&self.path, &self.layer)
    }

    /// Stores a blob durably.
    ///
    /// # Errors
    /// It cannot be written, or a file of its name is there.
    pub fn put(&mut self, put: &Put) -> Result<StoredBlob, DirectoryError> {
        let name = file_name(&put.key, put.level);
        let path = self.path.join(&name);
        let bytes = encode(put, &self.directory).map_err(|error| DirectoryError::Content { name, error })?;
        self.folder.put(&put.key, put.level, bytes).map_err(|error| DirectoryError::Folder { path, error })
    }

    /// The bytes of a live blob, checked against the manifest.
    ///
    /// # Errors
    /// [`ReadError`] names the blob.
    pub fn read(&self, meta: &BlobMeta) -> Result<Bytes, DirectoryError> {
        Ok(self.folder.read(meta)?)
    }

    /// The rows of a live blob.
    ///
    /// # Errors
    /// The blob is missing or damaged.
    pub fn rows(&self, meta: &BlobMeta, wanted: Wanted<'_>) -> Result<Rollups, DirectoryError> {
        decode(meta, self.folder.read(meta), wanted)
    }

    /// The letters of a live blob of dead letters.
    ///
    /// # Errors
    /// The blob is missing or damaged.
    pub fn letters(&self, meta: &BlobMeta) -> Result<Vec<DeadLetter>, DirectoryError> {
        decode_letters(meta, self.folder.read(meta))
    }

    /// # Errors
    /// The folder cannot be read.
    pub fn list(&self) -> Result<Listing, DirectoryError> {
        self.folder.list().map_err(|error| self.failed(error))
    }

    /// Removes files, which no reader needs any more.
    ///
    /// # Errors
    /// The folder cannot be changed.
    pub fn remove(&mut self, found: &[Found]) -> Result<(), DirectoryError> {
        self.folder.remove(found).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: FolderError) -> DirectoryError {
        DirectoryError::Folder { path: self.path.clone(), error }
    }
}

impl BlobReader {
    pub(super) fn open(path: &Path, layer: &StoreLayer) -> Result<BlobReader, DirectoryError> {
        let failed = |error| DirectoryError::Folder { path: path.to_owned(), error };
        Ok(BlobReader { folder: FolderReader::open(path, layer).map_err(failed)? })
    }

    /// The letters of a live blob of dead letters.
    ///
    /// # Errors
    /// The blob is missing or damaged.
    pub fn letters(&self, meta: &BlobMeta) -> Result<Vec<DeadLetter>, DirectoryError> {
        decode_letters(meta, self.folder.read(meta))
    }
}

fn decode_letters(meta: &BlobMeta, bytes: Result<Bytes, ReadError>) -> Result<Vec<DeadLetter>, DirectoryError> {
    let name = || file_name(&meta.key, meta.level);
    dead_letters::decode(&bytes?)
        .map_err(|error| DirectoryError::Content { name: name(), error: BlobError::DeadLetters(error) })
}

fn decode(meta: &BlobMeta, bytes: Result<Bytes, ReadError>, wanted: Wanted<'_>) -> Result<Rollups, DirectoryError> {
    let name = || file_name(&meta.key, meta.level);
    parquet_rows::decode(bytes?, wanted)
        .map_err(|error| DirectoryError::Content { name: name(), error: BlobError::Rows(error) })
}
