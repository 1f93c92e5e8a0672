//! Blobs as files of a folder, through `object_store`. A blob that [`Folder::put`] has stored outlives a power cut, whole.
//!
//! `object_store` writes a blob under a temporary name and links it to its own name, which no file may have. Then the file is synced,
//! then the folder. A crash before that leaves a file that no commit names: the collector deletes it. Names are used once.

use crate::disk::{Durability, LocalDisk};
use futures_util::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{Error as StoreError, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode};
use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use tidemark_streams_core::blob::{BlobKey, BlobMeta, Level, StoredBlob};
use tokio::runtime::{Builder, Runtime};
use xxhash_rust::xxh3::xxh3_64;

const ROWS_ENDING: &str = ".parquet";
const DEAD_LETTERS_ENDING: &str = ".ndjson";

/// A folder of blobs. No other process writes to it.
#[derive(Debug)]
pub struct Folder<D> {
    store: Arc<dyn ObjectStore>,
    disk: D,
    runtime: Runtime,
}

/// What is put in front of the store of a folder: nothing, or the faults of a test.
#[derive(Clone, Default)]
pub struct StoreLayer(Option<Arc<Layer>>);

type Layer = dyn Fn(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> + Send + Sync;

impl StoreLayer {
    pub fn new(layer: impl Fn(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> + Send + Sync + 'static) -> StoreLayer {
        StoreLayer(Some(Arc::new(layer)))
    }

    fn store(&self, path: &Path) -> Result<Arc<dyn ObjectStore>, FolderError> {
        let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(path)?);
        Ok(self.0.as_ref().map_or_else(|| Arc::clone(&store), |layer| layer(Arc::clone(&store))))
    }
}

impl fmt::Debug for StoreLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "StoreLayer" } else { "no StoreLayer" })
    }
}

/// A file of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub key: BlobKey,
    pub name: String,
    pub bytes: u64,
}

/// The content of the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    pub blobs: Vec<Found>,
    /// Files that are no blobs. They stay.
    pub others: Vec<String>,
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Why a blob is not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("blob {name} is missing; `tidemark-streams rebuild` builds it again from its inputs")]
    Missing { name: String },
    #[error(
        "blob {name} is damaged: it has {bytes} bytes, and the manifest says {expected}; `tidemark-streams rebuild` builds it again from \
         its inputs"
    )]
    Length { name: String, bytes: u64, expected: u64 },
    #[error(
        "blob {name} is damaged: its checksum is {found:016x}, and the manifest says {expected:016x}; `tidemark-streams rebuild` builds it \
         again from its inputs"
    )]
    Checksum { name: String, found: u64, expected: u64 },
    #[error(
        "blob {name} is damaged: it has {bytes} of {expected} bytes from byte {from} on; `tidemark-streams rebuild` builds it again from \
             its inputs"
    )]
    Range { name: String, from: u64, bytes: u64, expected: u64 },
    #[error("blob {name}: {error}")]
    Store { name: String, error: StoreError },
}

/// The name of a blob's file.
pub fn file_name(key: &BlobKey, level: Level) -> String {
    match level.is_of_rows() {
        true => format!("{key}{ROWS_ENDING}"),
        false => format!("{key}{DEAD_LETTERS_ENDING}"),
    }
}

impl Folder<LocalDisk> {
    /// Opens a folder that is there.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn open(path: &Path) -> Result<Folder<LocalDisk>, FolderError> {
        Folder::on(path, LocalDisk::new(path))
    }
}

impl<D: Durability> Folder<D> {
    /// Opens a folder that is there, and removes what a crash left half written.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn on(path: &Path, disk: D) -> Result<Folder<D>, FolderError> {
        Folder::through(path, disk, &StoreLayer::default())
    }

    /// The same through a layer.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn through(path: &Path, mut disk: D, layer: &StoreLayer) -> Result<Folder<D>, FolderError> {
        let mut has_removed = false;
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(is_half_written) {
                fs::remove_file(entry.path())?;
                has_removed = true;
            }
        }
        if has_removed {
            disk.sync_names()?;
        }
        let store = layer.store(path)?;
        Ok(Folder { store, disk, runtime: Builder::new_current_thread().enable_time().build()? })
    }

    /// Stores a blob. When this returns, the blob outlives a power cut.
    ///
    /// # Errors
    /// A file of its name is there, or it cannot be written.
    pub fn put(&mut self, key: &BlobKey, level: Level, bytes: Vec<u8>) -> Result<StoredBlob, FolderError> {
        let name = file_name(key, level);
        let stored = StoredBlob { bytes: bytes.len() as u64, checksum: xxh3_64(&bytes) };
        let path = ObjectPath::from(name.as_str());
        self.runtime.block_on(self.store.put_opts(&path, bytes.into(), PutMode::Create.into()))?;
        self.disk.sync_file(&name)?;
        self.disk.sync_names()?;
        Ok(stored)
    }

    /// The bytes of a live blob, which are those that were stored.
    ///
    /// # Errors
    /// [`ReadError`] names the blob and what is wrong with it.
    pub fn read(&self, meta: &BlobMeta) -> Result<bytes::Bytes, ReadError> {
        self.runtime.block_on(read_blob(self.store.as_ref(), meta))
    }

    /// The bytes of a file, whatever they are.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_file(&self, name: &str) -> Result<bytes::Bytes, FolderError> {
        let path = ObjectPath::from(name);
        Ok(self.runtime.block_on(async { self.store.get(&path).await?.bytes().await })?)
    }

    /// Whether a file is there. A list may be old, this is not.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn has(&self, name: &str) -> Result<bool, FolderError> {
        match self.runtime.block_on(self.store.head(&ObjectPath::from(name))) {
            Ok(_) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// All files, in the order of their names.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn list(&self) -> Result<Listing, FolderError> {
        let mut found: Vec<ObjectMeta> = self.runtime.block_on(self.store.list(None).try_collect())?;
        found.sort_by(|a, b| a.location.cmp(&b.location));
        let mut listing = Listing::default();
        for ObjectMeta { location, size, .. } in found {
            let name = location.to_string();
            match key_of(&name) {
                Some(key) => listing.blobs.push(Found { key, name, bytes: size }),
                None => listing.others.push(name),
            }
        }
        Ok(listing)
    }

    /// Removes files, those of earlier commits first: so what is left says which blobs were replaced. A file that comes back after a power
    /// cut is removed again by the next collection.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove(&mut self, found: &[Found]) -> Result<(), FolderError> {
        let mut found: Vec<&Found> = found.iter().collect();
        found.sort_by_key(|found| found.key);
        for Found { name, .. } in found {
            match self.runtime.block_on(self.store.delete(&ObjectPath::from(name.as_str()))) {
                // It was removed before.
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.disk.sync_names()?)
    }
}

/// Blobs of a folder that another thread writes.
#[derive(Debug)]
pub struct FolderReader {
    store: Arc<dyn ObjectStore>,
    /// Of threads without a runtime. `None`: it has ended.
    runtime: Option<Runtime>,
}

impl FolderReader {
    /// # Errors
    /// The folder is missing.
    pub fn open(path: &Path, layer: &StoreLayer) -> Result<FolderReader, FolderError> {
        let store = layer.store(path)?;
        Ok(FolderReader { store, runtime: Some(Builder::new_current_thread().enable_time().build()?) })
    }

    /// As [`Folder::read`], on a thread that may block.
    ///
    /// # Errors
    /// [`ReadError`] names the blob and what is wrong with it.
    pub fn read(&self, meta: &BlobMeta) -> Result<bytes::Bytes, ReadError> {
        let read = read_blob(self.store.as_ref(), meta);
        match &self.runtime {
            Some(runtime) => runtime.block_on(read),
            None => Err(ReadError::Missing { name: file_name(&meta.key, meta.level) }),
        }
    }

    /// The bytes of a blob, which are to be compared by [`check`].
    ///
    /// # Errors
    /// [`ReadError`] names the blob and what is wrong with it.
    pub async fn get(&self, meta: &BlobMeta) -> Result<bytes::Bytes, ReadError> {
        get_blob(self.store.as_ref(), meta).await
    }

    /// Some bytes of a blob. Nothing says whether they are those that were stored.
    ///
    /// # Errors
    /// [`ReadError`] names the blob and what is wrong with it.
    pub async fn get_range(&self, meta: &BlobMeta, range: Range<u64>) -> Result<bytes::Bytes, ReadError> {
        let name = file_name(&meta.key, meta.level);
        let got = self.store.get_range(&ObjectPath::from(name.as_str()), range.clone()).await;
        let bytes = got.map_err(|error| failed(name.clone(), error))?;
        let Range { start: from, end } = range;
        let expected = end.saturating_sub(from);
        match bytes.len() as u64 {
            bytes if bytes != expected => Err(ReadError::Range { name, from, bytes, expected }),
            _ => Ok(bytes),
        }
    }
}

impl Drop for FolderReader {
    fn drop(&mut self) {
        // The last query that has it may end on a thread of another runtime, which may not wait for this one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn read_blob(store: &dyn ObjectStore, meta: &BlobMeta) -> Result<bytes::Bytes, ReadError> {
    let bytes = get_blob(store, meta).await?;
    check(meta, &bytes)?;
    Ok(bytes)
}

async fn get_blob(store: &dyn ObjectStore, meta: &BlobMeta) -> Result<bytes::Bytes, ReadError> {
    let name = file_name(&meta.key, meta.level);
    let path = ObjectPath::from(name.as_str());
    let got = async { store.get(&path).await?.bytes().await };
    got.await.map_err(|error| failed(name, error))
}

fn failed(name: String, error: StoreError) -> ReadError {
    match error {
        StoreError::NotFound { .. } => ReadError::Missing { name },
        error => ReadError::Store { name, error },
    }
}

/// Whether bytes are those of a blob, by its entry in the manifest.
///
/// # Errors
/// [`ReadError`] names the blob and what is wrong with it.
pub fn check(meta: &BlobMeta, bytes: &bytes::Bytes) -> Result<(), ReadError> {
    let name = || file_name(&meta.key, meta.level);
    let StoredBlob { bytes: expected, checksum } = meta.stored;
    let len = bytes.len() as u64;
    if len != expected {
        return Err(ReadError::Length { name: name(), bytes: len, expected });
    }
    match xxh3_64(bytes) {
        found if found != checksum => Err(ReadError::Checksum { name: name(), found, expected: checksum }),
        _ => Ok(()),
    }
}

/// Whether `object_store` gives this name to a file that it is still writing: `NAME#1`. It does not list such files.
fn is_half_written(name: &str) -> bool {
    let number = name.rsplit_once('#').map(|(_, number)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn key_of(name: &str) -> Option<BlobKey> {
    let stem = name.strip_suffix(ROWS_ENDING).or_else(|| name.strip_suffix(DEAD_LETTERS_ENDING))?;
    stem.parse().ok()
}
