//! The catalogue of a directory: the tenant of each listing, for events that name listings only.
//!
//! It is one redb file, `catalogue.redb`, which is created by the first entry. A listing belongs to one tenant for ever. Each transaction
//! that adds entries is a new version, and an entry keeps the version that added it.
//!
//! A file without tenants is counted by the catalogue of its load. So each source has the versions of its rows: rows from a row on were
//! resolved as of a version. A later reader of the file, such as a rebuild, gets the same tenants and the same unknown listings.
//!
//! Entries stay on disk. Lookups read pages through the cache of redb, which takes at most [`CACHE_BYTES`].

use redb::{
    Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemark_consensus::storage::{Identity, OpenError, PersistError, Schema, Source, open};
use tidemark_streams_core::event::{EventError, check_listing, check_tenant};
use tidemark_streams_core::source::SourceId;

/// The file in its directory.
pub const CATALOGUE: &str = "catalogue.redb";
/// Memory for pages of the file.
pub const CACHE_BYTES: usize = 64 << 20;
/// Versions that a source remembers. A load that goes on more often keeps its last version, although the catalogue has grown.
pub const SOURCE_VERSIONS_MAX: usize = 1_024;

const FORMAT: &str = "streams catalogue 1";
const LISTINGS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("listings");
const SOURCES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("sources");
const META: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("meta");
const VERSION_KEY: &[u8] = b"version";
const COUNT_KEY: &[u8] = b"listings";
/// Bytes of the id of a source.
const SOURCE_BYTES: usize = 32;

type BytesTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// A state of the catalogue: the number of transactions that have added entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

/// The tenant of a listing, and the version that added it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub tenant: String,
    pub since: Version,
}

/// The numbers of an addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    pub added: u64,
    /// Entries that were known before.
    pub known: u64,
    /// The version behind the addition.
    pub version: Version,
}

/// An open catalogue. The process that has its directory open has it too.
pub struct Catalogue {
    path: PathBuf,
    identity: Identity,
    /// `None` until the first entry.
    db: Mutex<Option<Arc<Database>>>,
}

/// An addition that is not committed yet. Without a commit, nothing of it is kept.
pub struct Addition {
    path: PathBuf,
    write: WriteTransaction,
    version: Version,
    added: u64,
    known: u64,
}

/// How many listings there are, and the version that added the last.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    version: Version,
    count: u64,
}

/// The catalogue at one moment.
pub struct View {
    path: PathBuf,
    state: State,
    open: Option<OpenView>,
}

/// A table of an open file. The file closes after its table.
struct OpenView {
    listings: BytesTable,
    _db: Arc<Database>,
}

/// The versions by which the rows of a source are resolved, by the first row of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceVersions(Vec<(u64, Version)>);

/// Bytes of the file that are no entry or no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("{bytes} bytes, {expected} are expected")]
    Length { bytes: usize, expected: usize },
    #[error("the tenant of a listing is no UTF-8")]
    Utf8,
    #[error("the tenant of a listing: {0}")]
    Tenant(#[from] EventError),
}

/// Why a catalogue is not opened, read or changed. A refused addition changes nothing.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{}: {error}", path.display())]
    Persist { path: PathBuf, error: PersistError },
    #[error("{} is damaged: {error}; restore it from a copy of the directory", path.display())]
    Damaged { path: PathBuf, error: DecodeError },
    #[error("{0}")]
    Entry(#[from] EventError),
    #[error(
        "listing {listing:?} belongs to tenant {known:?}, and tenant {named:?} is named: a listing keeps its tenant for ever"
    )]
    Conflict { listing: String, known: String, named: String },
    #[error(
        "{}: it has no version for row {row} of source {source_id}, whose rows name no tenants: restore the catalogue of this directory",
        path.display()
    )]
    NoVersion { path: PathBuf, source_id: SourceId, row: u64 },
}

impl Catalogue {
    /// Opens the catalogue of a directory, if there is one. `directory_id` is the directory's id.
    ///
    /// # Errors
    /// [`CatalogueError::Open`]: the file is damaged, or of another directory.
    pub fn open(directory: &Path, directory_id: &str) -> Result<Catalogue, CatalogueError> {
        let path = directory.join(CATALOGUE);
        let identity = Identity { cluster: format!("streams {directory_id}"), owner: "catalogue".to_owned() };
        let catalogue = Catalogue { path, identity, db: Mutex::new(None) };
        if catalogue.path.exists() {
            catalogue.database()?;
        }
        Ok(catalogue)
    }

    /// Begins an addition. A second one waits for the first.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn addition(&self) -> Result<Addition, CatalogueError> {
        let path = self.path.clone();
        let write = self.database()?.begin_write().map_err(|error| self.failed(error))?;
        let version = Version(self.in_file(number_of(&write, VERSION_KEY))?);
        Ok(Addition { path, write, version, added: 0, known: 0 })
    }

    /// Adds entries in one transaction.
    ///
    /// # Errors
    /// [`CatalogueError`]: nothing was added.
    pub fn add<'a>(&self, mut entries: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Added, CatalogueError> {
        let mut addition = self.addition()?;
        let refused = entries.find_map(|(listing, tenant)| addition.add(listing, tenant).err());
        let added = refused.map_or_else(|| addition.commit(), Err);
        added.inspect_err(|error| self.close_after(error))
    }

    /// redb refuses an open file for ever after one failed read or write. So the file is closed, and the next use opens it again.
    pub fn close_after(&self, error: &CatalogueError) {
        if let CatalogueError::Persist { .. } = error {
            *self.lock() = None;
        }
    }

    /// The catalogue as it is now.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn view(&self) -> Result<View, CatalogueError> {
        let path = self.path.clone();
        let Some(db) = self.known()? else { return Ok(View { path, state: State::default(), open: None }) };
        let read = db.begin_read().map_err(|error| self.failed(error))?;
        let state = self.in_file(state_in(&read))?;
        let listings = read.open_table(LISTINGS).map_err(|error| self.failed(error))?;
        Ok(View { path, state, open: Some(OpenView { listings, _db: db }) })
    }

    /// Resolves the rows of a source from a row on as of the present version. Earlier rows keep their versions.
    ///
    /// # Errors
    /// [`CatalogueError::NoVersion`]: rows before it have none, so the catalogue was lost.
    pub fn begin_source(&self, source: SourceId, row: u64) -> Result<SourceVersions, CatalogueError> {
        let write = self.database()?.begin_write().map_err(|error| self.failed(error))?;
        let now = Version(self.in_file(number_of(&write, VERSION_KEY))?);
        let SourceVersions(mut versions) = self.in_file(versions_of(&write, source))?;
        // Rows from this one on are in no commit, whatever an earlier load began with.
        versions.retain(|(first, _)| *first < row);
        let last = versions.last().map(|(_, version)| *version);
        if row > 0 && last.is_none() {
            return Err(self.no_version(source, row - 1));
        }
        if last != Some(now) && versions.len() < SOURCE_VERSIONS_MAX {
            versions.push((row, now));
        }
        self.in_file(write_versions(&write, source, &versions))?;
        write.commit().map_err(|error| self.failed(error))?;
        Ok(SourceVersions(versions))
    }

    /// The versions of the rows of a source whose load has begun.
    ///
    /// # Errors
    /// [`CatalogueError::NoVersion`]: the source is unknown, so the catalogue was lost.
    pub fn source(&self, source: SourceId) -> Result<SourceVersions, CatalogueError> {
        let Some(db) = self.known()? else { return Err(self.no_version(source, 0)) };
        let read = || -> Result<SourceVersions, InFile> {
            let read: ReadTransaction = db.begin_read()?;
            versions_in(&read.open_table(SOURCES)?, source)
        };
        let found = self.in_file(read())?;
        if found.0.is_empty() { Err(self.no_version(source, 0)) } else { Ok(found) }
    }

    fn no_version(&self, source_id: SourceId, row: u64) -> CatalogueError {
        CatalogueError::NoVersion { path: self.path.clone(), source_id, row: row + 1 }
    }

    /// The open file, if there is one. It may have been closed after an error.
    fn known(&self) -> Result<Option<Arc<Database>>, CatalogueError> {
        let open = self.lock().clone();
        match open {
            None if self.path.exists() => self.database().map(Some),
            open => Ok(open),
        }
    }

    /// The open file, which is created if there is none.
    fn database(&self) -> Result<Arc<Database>, CatalogueError> {
        let mut db = self.lock();
        if let Some(db) = &*db {
            return Ok(Arc::clone(db));
        }
        let schema = Schema {
            format: FORMAT,
            identity: &self.identity,
            cache_bytes: CACHE_BYTES,
            flush_delay: Duration::ZERO,
            create_tables,
        };
        let opened = Arc::new(open(Source::from(self.path.as_path()), &schema)?);
        *db = Some(Arc::clone(&opened));
        Ok(opened)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Database>>> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: impl Into<PersistError>) -> CatalogueError {
        let error = CatalogueError::Persist { path: self.path.clone(), error: error.into() };
        self.close_after(&error);
        error
    }

    fn in_file<T>(&self, result: Result<T, InFile>) -> Result<T, CatalogueError> {
        result.map_err(|error| error.of(&self.path)).inspect_err(|error| self.close_after(error))
    }
}

impl Addition {
    /// Adds an entry. The same entry again changes nothing.
    ///
    /// # Errors
    /// The names are no ids, or the listing belongs to another tenant.
    pub fn add(&mut self, listing: &str, tenant: &str) -> Result<(), CatalogueError> {
        check_tenant(tenant)?;
        check_listing(listing)?;
        let since = Version(self.version.0 + 1);
        let known = insert(&self.write, listing, &Entry { tenant: tenant.to_owned(), since });
        match known.map_err(|error| error.of(&self.path))? {
            None => self.added += 1,
            Some(known) if known.tenant == tenant => self.known += 1,
            Some(known) => {
                let listing = listing.to_owned();
                let named = tenant.to_owned();
                return Err(CatalogueError::Conflict { listing, known: known.tenant, named });
            }
        }
        Ok(())
    }

    /// Makes the entries durable. Nothing new makes no new version.
    ///
    /// # Errors
    /// Nothing was added.
    pub fn commit(self) -> Result<Added, CatalogueError> {
        let Addition { path, write, version, added, known } = self;
        if added == 0 {
            return Ok(Added { added, known, version });
        }
        let version = Version(version.0 + 1);
        let finish = || -> Result<(), InFile> {
            let count = number_of(&write, COUNT_KEY)? + added;
            let mut meta = write.open_table(META)?;
            meta.insert(VERSION_KEY, &version.0.to_le_bytes()[..])?;
            meta.insert(COUNT_KEY, &count.to_le_bytes()[..])?;
            Ok(())
        };
        finish().map_err(|error| error.of(&path))?;
        write.commit().map_err(|error| InFile::Persist(error.into()).of(&path))?;
        Ok(Added { added, known, version })
    }
}

impl View {
    /// The number of transactions that have added entries.
    pub fn version(&self) -> Version {
        self.state.version
    }

    /// The number of listings.
    pub fn listings(&self) -> u64 {
        self.state.count
    }

    /// # Errors
    /// The file is damaged.
    pub fn entry(&self, listing: &str) -> Result<Option<Entry>, CatalogueError> {
        let read = |open: &OpenView| -> Result<Option<Entry>, InFile> {
            let found = open.listings.get(listing.as_bytes())?;
            Ok(found.map(|value| decode_entry(value.value())).transpose()?)
        };
        let found = self.open.as_ref().map_or(Ok(None), read);
        found.map_err(|error| error.of(&self.path))
    }

    /// The tenant of a listing as of a version. Entries that came later are unknown to it.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn tenant(&self, listing: &str, as_of: Version) -> Result<Option<String>, CatalogueError> {
        let entry = self.entry(listing)?;
        Ok(entry.filter(|entry| entry.since <= as_of).map(|entry| entry.tenant))
    }
}

impl SourceVersions {
    /// The version by which a row is resolved.
    pub fn of_row(&self, row: u64) -> Version {
        let behind = self.0.partition_point(|(first, _)| *first <= row);
        behind.checked_sub(1).and_then(|at| self.0.get(at)).map_or(Version(0), |(_, version)| *version)
    }
}

/// A fault, before the file is named.
enum InFile {
    Persist(PersistError),
    Damaged(DecodeError),
}

impl InFile {
    fn of(self, path: &Path) -> CatalogueError {
        let path = path.to_owned();
        match self {
            InFile::Persist(error) => CatalogueError::Persist { path, error },
            InFile::Damaged(error) => CatalogueError::Damaged { path, error },
        }
    }
}

impl From<redb::StorageError> for InFile {
    fn from(error: redb::StorageError) -> InFile {
        InFile::Persist(error.into())
    }
}

impl From<redb::TableError> for InFile {
    fn from(error: redb::TableError) -> InFile {
        InFile::Persist(error.into())
    }
}

impl From<redb::TransactionError> for InFile {
    fn from(error: redb::TransactionError) -> InFile {
        InFile::Persist(error.into())
    }
}

impl From<DecodeError> for InFile {
    fn from(error: DecodeError) -> InFile {
        InFile::Damaged(error)
    }
}

fn create_tables(write: &WriteTransaction) -> Result<(), PersistError> {
    write.open_table(LISTINGS)?;
    write.open_table(SOURCES)?;
    write.open_table(META)?;
    Ok(())
}

fn state_in(read: &ReadTransaction) -> Result<State, InFile> {
    let meta = read.open_table(META)?;
    let number = |key: &[u8]| -> Result<u64, InFile> {
        let found = meta.get(key)?;
        Ok(found.map_or(Ok(0), |value| decode_number(value.value()))?)
    };
    Ok(State { version: Version(number(VERSION_KEY)?), count: number(COUNT_KEY)? })
}

fn number_of(write: &WriteTransaction, key: &[u8]) -> Result<u64, InFile> {
    let meta = write.open_table(META)?;
    let found = meta.get(key)?;
    Ok(found.map_or(Ok(0), |value| decode_number(value.value()))?)
}

/// Inserts an entry, unless the listing has one.
fn insert(write: &WriteTransaction, listing: &str, entry: &Entry) -> Result<Option<Entry>, InFile> {
    let mut listings = write.open_table(LISTINGS)?;
    let known = listings.get(listing.as_bytes())?.map(|value| decode_entry(value.value())).transpose()?;
    if known.is_none() {
        listings.insert(listing.as_bytes(), encode_entry(entry).as_slice())?;
    }
    Ok(known)
}

fn versions_of(write: &WriteTransaction, source: SourceId) -> Result<SourceVersions, InFile> {
    versions_in(&write.open_table(SOURCES)?, source)
}

fn versions_in(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    source: SourceId,
) -> Result<SourceVersions, InFile> {
    let mut versions = Vec::new();
    let first = source_key(source, 0);
    let last = source_key(source, u64::MAX);
    for row in table.range(&first[..]..=&last[..])? {
        let (key, value) = row?;
        versions.push((decode_row(key.value())?, Version(decode_number(value.value())?)));
    }
    Ok(SourceVersions(versions))
}

fn write_versions(write: &WriteTransaction, source: SourceId, versions: &[(u64, Version)]) -> Result<(), InFile> {
    let mut table = write.open_table(SOURCES)?;
    let first = source_key(source, 0);
    let last = source_key(source, u64::MAX);
    table.retain_in(&first[..]..=&last[..], |_, _| false)?;
    for (row, version) in versions {
        table.insert(&source_key(source, *row)[..], &version.0.to_le_bytes()[..])?;
    }
    Ok(())
}

/// Sorted by source, then by row.
fn source_key(source: SourceId, row: u64) -> Vec<u8> {
    [&source.0[..], &row.to_be_bytes()].concat()
}

/// An entry as it is stored: its version, and the tenant.
pub fn encode_entry(entry: &Entry) -> Vec<u8> {
    [&entry.since.0.to_le_bytes()[..], entry.tenant.as_bytes()].concat()
}

/// # Errors
/// [`DecodeError`].
pub fn decode_entry(bytes: &[u8]) -> Result<Entry, DecodeError> {
    let (since, tenant) =
        bytes.split_first_chunk().ok_or(DecodeError::Length { bytes: bytes.len(), expected: size_of::<u64>() })?;
    let tenant = std::str::from_utf8(tenant).map_err(|_| DecodeError::Utf8)?;
    check_tenant(tenant)?;
    Ok(Entry { tenant: tenant.to_owned(), since: Version(u64::from_le_bytes(*since)) })
}

fn decode_number(bytes: &[u8]) -> Result<u64, DecodeError> {
    let number = bytes.try_into().map(u64::from_le_bytes);
    number.map_err(|_| DecodeError::Length { bytes: bytes.len(), expected: size_of::<u64>() })
}

fn decode_row(key: &[u8]) -> Result<u64, DecodeError> {
    let row = key.get(SOURCE_BYTES..).unwrap_or_default().try_into().map(u64::from_be_bytes);
    row.map_err(|_| DecodeError::Length { bytes: key.len(), expected: SOURCE_BYTES + size_of::<u64>() })
}
