//! A directory of event streams: its identity, its blobs, and its manifest.
//!
//! ```text
//! streams.json     which directory this is, and the version of its layout
//! manifest.redb    the manifest's log; held by one process at a time
//! manifest.head    all of the manifest but its blobs: a lost manifest is built again from it and the blobs
//! blobs/           blobs, by name
//! ```
//!
//! Parts that do not fit together are refused by name: a manifest of another directory, a manifest without its blobs, blobs without their
//! manifest. Nothing is changed then.

mod blobs;
mod opened;

pub use blobs::{BlobReader, Blobs};
pub use opened::{Keep, OpenBlob};

use crate::blob::BlobError;
use crate::disk::{sync_folder, write_new};
use crate::folder::{FolderError, Found, ReadError, StoreLayer, file_name};
use crate::head::HEAD;
use crate::host::{ManifestError, ManifestHost};
use crate::parquet_rows::Wanted;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use tidemark_consensus::local::OpenError;
use tidemark_streams_core::blob::{BlobKey, BlobMeta, StoredBlob};
use tidemark_streams_core::collector::{Verdict, judge};
use tidemark_streams_core::manifest::{Command, Manifest, Outcome};
use tidemark_streams_core::owner::{DeadLetter, Put};
use tidemark_streams_core::rebuild::Lineages;
use tidemark_streams_core::rollup::Rollups;

const MARKER: &str = "streams.json";
pub const MANIFEST: &str = "manifest.redb";
const BLOBS: &str = "blobs";
const VERSION: u32 = 1;

/// An open directory. No other process has it open.
pub struct Directory {
    path: PathBuf,
    host: ManifestHost,
    blobs: Blobs,
}

/// A directory with its manifest and its blobs for different threads.
pub struct Parts {
    pub host: ManifestHost,
    pub blobs: Blobs,
}

/// The blobs of a directory, to read. Another process may have the directory open, and nothing is written or locked.
pub struct ReadOnly {
    /// Which directory it is.
    pub id: String,
    pub reader: BlobReader,
}

/// Whether a directory is created where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMissing {
    Create,
    Refuse,
}

/// What a collection did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collected {
    Done,
    /// A live blob is damaged, so no file was deleted.
    Held {
        damaged: String,
    },
}

/// The content of `streams.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Marker {
    version: u32,
    id: String,
}

/// Why a directory is not opened, or what failed in it.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("{}: there are no event streams here; `tidemark-streams load` creates them", path.display())]
    NoStreams { path: PathBuf },
    #[error("{}: the directory has files of something else ({name}): name an empty one", path.display())]
    NotEmpty { path: PathBuf, name: String },
    #[error("{}: the file that names the directory is damaged: {why}", path.display())]
    Marker { path: PathBuf, why: String },
    #[error("{}: version {found} of the layout; this program knows version {VERSION}", path.display())]
    Version { path: PathBuf, found: u32 },
    #[error(
        "{}: {MARKER} is missing, and files of event streams are there: restore {MARKER}; nothing else says whose they are",
        path.display()
    )]
    NoMarker { path: PathBuf },
    #[error(
        "{}: the manifest is missing, and {blobs} blobs are there: `tidemark-streams manifest rebuild` builds it again from them; or restore \
         {MANIFEST}",
        path.display()
    )]
    NoManifest { path: PathBuf, blobs: usize },
    #[error(
        "{}: the manifest is of another directory ({found}), and this one is {expected}: restore the manifest of this directory",
        path.display()
    )]
    OtherManifest { path: PathBuf, found: String, expected: String },
    #[error(
        "{}: another process has it open: two processes cannot share one directory; wait for it, or end it",
        path.display()
    )]
    Locked { path: PathBuf },
    #[error(
        "{}: {missing} of {live} live blobs are missing, the first is {first}: `tidemark-streams rebuild` builds them again from their \
         inputs; or restore them from a copy of the directory",
        path.display()
    )]
    MissingBlobs { path: PathBuf, missing: usize, live: usize, first: String },
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("blob {name}: {error}")]
    Content { name: String, error: BlobError },
    #[error("{}: {error}", path.display())]
    Folder { path: PathBuf, error: FolderError },
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

impl Directory {
    /// Opens a directory, which no other process may have open.
    ///
    /// # Errors
    /// [`DirectoryError`] names what is wrong.
    pub fn open(path: &Path, if_missing: IfMissing) -> Result<Directory, DirectoryError> {
        Directory::open_through(path, if_missing, StoreLayer::default())
    }

    /// The same with a layer in front of the store of blobs.
    ///
    /// # Errors
    /// As of [`Directory::open`].
    pub fn open_through(path: &Path, if_missing: IfMissing, layer: StoreLayer) -> Result<Directory, DirectoryError> {
        let directory = Directory::open_unchecked(path, if_missing, layer)?;
        directory.check_blobs()?;
        Ok(directory)
    }

    /// Opens a directory that may lack live blobs, to rebuild them.
    ///
    /// # Errors
    /// As of [`Directory::open`].
    pub fn open_damaged(path: &Path) -> Result<Directory, DirectoryError> {
        Directory::open_unchecked(path, IfMissing::Refuse, StoreLayer::default())
    }

    fn open_unchecked(path: &Path, if_missing: IfMissing, layer: StoreLayer) -> Result<Directory, DirectoryError> {
        let io = |error| DirectoryError::Io { path: path.to_owned(), error };
        let marker = match read_marker(path)? {
            Some(marker) => marker,
            None => create(path, if_missing)?,
        };
        let id = marker.id;
        let lock = lock(path)?;
        let blobs = path.join(BLOBS);
        fs::create_dir_all(&blobs).map_err(io)?;
        let is_new = !path.join(MANIFEST).exists();
        let files = fs::read_dir(&blobs).map_err(io)?.count();
        if is_new && files > 0 {
            return Err(DirectoryError::NoManifest { path: path.to_owned(), blobs: files });
        }
        let mut host = ManifestHost::open(&path.join(MANIFEST), &id).map_err(|error| refused(path, error))?;
        host.hold(lock);
        sync_folder(path).map_err(io)?;
        Ok(Directory { path: path.to_owned(), host, blobs: Blobs::open(blobs, id, layer)? })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn manifest(&self) -> &Manifest {
        self.host.manifest()
    }

    /// # Errors
    /// [`ManifestError`].
    pub fn propose(&mut self, command: &Command) -> Result<Outcome, DirectoryError> {
        Ok(self.host.propose(command)?)
    }

    /// Where the rows of blobs come from, as far as the manifest's log reaches back.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn lineages(&self) -> Result<Lineages, DirectoryError> {
        Ok(self.host.lineages()?)
    }

    /// Which directory it is: a random number that `streams.json` keeps.
    pub fn id(&self) -> &str {
        self.blobs.directory()
    }

    /// Reads blobs beside the writer.
    ///
    /// # Errors
    /// The folder cannot be opened.
    pub fn reader(&self) -> Result<BlobReader, DirectoryError> {
        self.blobs.reader()
    }

    /// The manifest and the blobs, for two threads.
    pub fn split(self) -> Parts {
        Parts { host: self.host, blobs: self.blobs }
    }

    /// Stores a blob durably.
    ///
    /// # Errors
    /// It cannot be written, or a file of its name is there.
    pub fn put(&mut self, put: &Put) -> Result<StoredBlob, DirectoryError> {
        self.blobs.put(put)
    }

    /// The bytes of a live blob, checked against the manifest.
    ///
    /// # Errors
    /// [`ReadError`] names the blob.
    pub fn read(&self, meta: &BlobMeta) -> Result<Bytes, DirectoryError> {
        self.blobs.read(meta)
    }

    /// The rows of a live blob.
    ///
    /// # Errors
    /// The blob is missing or damaged.
    pub fn rows(&self, meta: &BlobMeta, wanted: Wanted<'_>) -> Result<Rollups, DirectoryError> {
        self.blobs.rows(meta, wanted)
    }

    /// The letters of a live blob of dead letters.
    ///
    /// # Errors
    /// The blob is missing or damaged.
    pub fn letters(&self, meta: &BlobMeta) -> Result<Vec<DeadLetter>, DirectoryError> {
        self.blobs.letters(meta)
    }

    /// Deletes the files that no commit will name any more. Files of other directories, and what is no blob, stay. All files stay while a
    /// live blob is damaged, because they may be its inputs.
    ///
    /// # Errors
    /// The folder cannot be read or changed.
    pub fn collect(&mut self) -> Result<Collected, DirectoryError> {
        let listing = self.blobs.list()?;
        if let Some(damaged) = damaged_blob(self.host.manifest(), &listing.blobs) {
            return Ok(Collected::Held { damaged });
        }
        let is_unreachable = |found: &Found| self.is_unreachable(found);
        let (unreachable, left): (Vec<Found>, Vec<Found>) = listing.blobs.into_iter().partition(is_unreachable);
        self.blobs.remove(&unreachable)?;
        self.host.forget_gone(|key| left.iter().any(|found| found.key == *key));
        Ok(Collected::Done)
    }

    /// The files that [`Directory::collect`] would delete.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn unreachable(&self) -> Result<Vec<Found>, DirectoryError> {
        let listing = self.blobs.list()?;
        match damaged_blob(self.host.manifest(), &listing.blobs) {
            Some(_) => Ok(Vec::new()),
            None => Ok(listing.blobs.into_iter().filter(|found| self.is_unreachable(found)).collect()),
        }
    }

    fn is_unreachable(&self, found: &Found) -> bool {
        match judge(self.host.manifest(), &found.key) {
            Verdict::Unreachable => true,
            Verdict::Live | Verdict::Pending | Verdict::Foreign => false,
        }
    }

    /// Names of live blobs are all there.
    fn check_blobs(&self) -> Result<(), DirectoryError> {
        let listing = self.blobs.list()?;
        let names: BTreeSet<&str> = listing.blobs.iter().map(|found| found.name.as_str()).collect();
        let live = self.host.manifest().live().map(|meta| file_name(&meta.key, meta.level));
        let live: Vec<String> = live.collect();
        let mut missing = Vec::new();
        for name in live.iter().filter(|name| !names.contains(name.as_str())) {
            // The list may be old.
            if !self.blobs.has(name)? {
                missing.push(name);
            }
        }
        match missing.first() {
            None => Ok(()),
            Some(first) => Err(DirectoryError::MissingBlobs {
                path: self.path.clone(),
                missing: missing.len(),
                live: live.len(),
                first: (*first).clone(),
            }),
        }
    }
}

/// The first live blob whose file is missing or has another length. Only a read finds other damage.
pub fn damaged_blob(manifest: &Manifest, files: &[Found]) -> Option<String> {
    let lengths: BTreeMap<&str, u64> = files.iter().map(|found| (found.name.as_str(), found.bytes)).collect();
    let of_blob = |meta: BlobMeta| {
        let name = file_name(&meta.key, meta.level);
        (lengths.get(name.as_str()) != Some(&meta.stored.bytes)).then_some(name)
    };
    manifest.live().find_map(of_blob)
}

/// A live blob of a name.
pub fn live_blob(manifest: &Manifest, key: &BlobKey) -> Option<BlobMeta> {
    manifest.partition(key.partition)?.live.get(key)
}

/// Opens the blobs of a directory to read them, with a layer in front of their store.
///
/// # Errors
/// [`DirectoryError`]: there is none, or its folder cannot be opened.
pub fn open_to_read(path: &Path, layer: &StoreLayer) -> Result<ReadOnly, DirectoryError> {
    let id = identity(path)?;
    Ok(ReadOnly { id, reader: BlobReader::open(&blobs_of(path), layer)? })
}

fn read_marker(path: &Path) -> Result<Option<Marker>, DirectoryError> {
    let text = match fs::read(path.join(MARKER)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DirectoryError::Io { path: path.to_owned(), error }),
    };
    let marker: Marker = serde_json::from_slice(&text)
        .map_err(|error| DirectoryError::Marker { path: path.join(MARKER), why: error.to_string() })?;
    match marker.version {
        VERSION => Ok(Some(marker)),
        found => Err(DirectoryError::Version { path: path.to_owned(), found }),
    }
}

/// Makes a directory that has nothing in it one of event streams.
fn create(path: &Path, if_missing: IfMissing) -> Result<Marker, DirectoryError> {
    let io = |error| DirectoryError::Io { path: path.to_owned(), error };
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries.collect::<io::Result<Vec<_>>>().map_err(io)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(io(error)),
    };
    if has_files_of_streams(path) {
        return Err(DirectoryError::NoMarker { path: path.to_owned() });
    }
    if if_missing == IfMissing::Refuse {
        return Err(DirectoryError::NoStreams { path: path.to_owned() });
    }
    // Files that an interrupted start may have left.
    let is_own = |name: &str| name == NEW_MARKER;
    let names = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned());
    if let Some(name) = names.into_iter().find(|name| !is_own(name)) {
        return Err(DirectoryError::NotEmpty { path: path.to_owned(), name });
    }
    fs::create_dir_all(path).map_err(io)?;
    let marker = Marker { version: VERSION, id: format!("{:016x}", rand::random::<u64>()) };
    let text = serde_json::to_vec(&marker).map_err(|error| io(io::Error::other(error)))?;
    match write_new(path, NEW_MARKER, MARKER, &text) {
        Ok(()) => Ok(marker),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(DirectoryError::Locked { path: path.to_owned() })
        }
        Err(error) => Err(DirectoryError::Io { path: path.join(MARKER), error }),
    }
}

const NEW_MARKER: &str = "streams.json.new";

/// Keeps other processes out of a directory, also while it has no manifest.
pub(crate) fn lock(path: &Path) -> Result<File, DirectoryError> {
    let io = |error| DirectoryError::Io { path: path.to_owned(), error };
    let marker = File::open(path.join(MARKER)).map_err(io)?;
    match marker.try_lock() {
        Ok(()) => Ok(marker),
        Err(TryLockError::WouldBlock) => Err(DirectoryError::Locked { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(io(error)),
    }
}

/// The id of a directory that is there.
pub(crate) fn identity(path: &Path) -> Result<String, DirectoryError> {
    match read_marker(path)? {
        Some(marker) => Ok(marker.id),
        None if has_files_of_streams(path) => Err(DirectoryError::NoMarker { path: path.to_owned() }),
        None => Err(DirectoryError::NoStreams { path: path.to_owned() }),
    }
}

/// Whether a directory has files that only one with a name has.
fn has_files_of_streams(path: &Path) -> bool {
    [MANIFEST, HEAD, BLOBS].iter().any(|name| path.join(name).exists())
}

pub(crate) fn blobs_of(path: &Path) -> PathBuf {
    path.join(BLOBS)
}

pub(crate) fn refused(path: &Path, error: ManifestError) -> DirectoryError {
    match error {
        ManifestError::Open(OpenError::Locked { .. }) => DirectoryError::Locked { path: path.to_owned() },
        ManifestError::Open(OpenError::Foreign { field: "cluster", expected, found, .. }) => {
            DirectoryError::OtherManifest { path: path.to_owned(), found, expected }
        }
        other => DirectoryError::Manifest(other),
    }
}
