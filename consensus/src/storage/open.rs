//! Opening a redb file: its owner, its use by another process, its integrity.

use std::fmt;
use std::fs;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use redb::backends::FileBackend;
use redb::{BackendError, Builder, Database, DatabaseError, ReadableDatabase, StorageBackend, StorageError};
use redb::{TableDefinition, WriteTransaction};

use super::{PersistError, is_full};

const IDENTITY: TableDefinition<&str, &str> = TableDefinition::new("identity");

/// Where a log lives.
#[derive(Debug)]
pub enum Source {
    /// A file, created if missing. Its directory must exist.
    Path(PathBuf),
    /// Any storage; tests and the simulator bring their own.
    Backend(Box<dyn StorageBackend>),
}

impl From<PathBuf> for Source {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Self {
        Self::Path(path.to_owned())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Backend(_) => f.write_str("storage backend"),
        }
    }
}

/// The owner of a file; written when it is created and compared whenever it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of the cluster; behind a comma its era, where it is not in its first.
    pub cluster: String,
    /// Name of the member within the cluster, such as `europe-0/group-2` or `ledger/7`.
    pub owner: String,
}

/// Why a log could not be opened. Nothing that it holds was changed; a file that was not closed in order may have been repaired.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the file open.
    #[error("{source_name} is in use by another process: two processes cannot share one data directory")]
    Locked {
        /// Path of the file.
        source_name: String,
    },
    /// The file is another cluster's, another member's, or of another format.
    #[error("{source_name} belongs to {field} `{found}`, expected `{expected}`")]
    Foreign {
        /// Path of the file.
        source_name: String,
        /// `format`, `cluster` or `owner`.
        field: &'static str,
        /// The expected value of this process.
        expected: String,
        /// The value in the file.
        found: String,
    },
    /// The file was left by another era of this cluster.
    #[error(
        "{source_name} is of `{found}`, and this is `{expected}`: the cluster was restored in between, or the layout's era is wrong; \
         a disk of another era is never used: set it aside"
    )]
    OtherEra {
        /// Path of the file.
        source_name: String,
        /// The expected value of this process.
        expected: String,
        /// The value in the file.
        found: String,
    },
    /// The file is no database of ours, or damaged.
    #[error("{source_name} is corrupt or not a database: {reason}")]
    Corrupt {
        /// Path of the file.
        source_name: String,
        /// The fault in it.
        reason: String,
    },
    /// Rows and log do not belong together.
    #[error("{source_name}: {reason}")]
    Rows {
        /// Path of the file.
        source_name: String,
        /// The fault in its rows.
        reason: String,
    },
    /// No space is left on the device.
    #[error("{source_name} cannot be opened: no space is left on the device")]
    Full {
        /// Path of the file.
        source_name: String,
    },
    /// The operating system refused.
    #[error("{source_name} cannot be opened: {reason}")]
    Io {
        /// Path of the file.
        source_name: String,
        /// The operating system's words.
        reason: String,
    },
}

impl OpenError {
    #[allow(clippy::wildcard_enum_match_arm, reason = "DatabaseError is of another crate and grows")]
    fn from_redb(source_name: &str, error: DatabaseError) -> Self {
        let source_name = source_name.to_owned();
        match error {
            DatabaseError::DatabaseAlreadyOpen => Self::Locked { source_name },
            DatabaseError::Storage(StorageError::Io(error)) => Self::from_io(source_name, &error),
            other => Self::Corrupt { source_name, reason: other.to_string() },
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "io::ErrorKind is of another crate and grows")]
    fn from_io(source_name: String, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                Self::Corrupt { source_name, reason: error.to_string() }
            }
            _ if is_full(error) => Self::Full { source_name },
            _ => Self::Io { source_name, reason: error.to_string() },
        }
    }

    fn broken(source_name: &str) -> Self {
        Self::Corrupt { source_name: source_name.to_owned(), reason: "its structure is broken".to_owned() }
    }

    pub(crate) fn from_persist(source_name: &str, error: PersistError) -> Self {
        let source_name = source_name.to_owned();
        match error {
            PersistError::Full(_) => Self::Full { source_name },
            PersistError::Corrupt(reason) => Self::Corrupt { source_name, reason },
            PersistError::Io(reason) => Self::Io { source_name, reason },
        }
    }
}

/// The signs of a file that is ours.
pub struct Schema<'a> {
    /// Name and version of the format.
    pub format: &'a str,
    /// Its owner.
    pub identity: &'a Identity,
    /// Memory that redb may use as page cache.
    pub cache_bytes: usize,
    /// Slept after every sync of the file, to model slower disks.
    pub flush_delay: Duration,
    /// Creates the tables of a new file.
    pub create_tables: fn(&WriteTransaction) -> Result<(), PersistError>,
}

/// Opens or creates the database and checks or writes its identity; `create_tables` runs in the same transaction.
///
/// # Errors
/// [`OpenError`] names what is wrong with the file.
pub fn open(source: Source, schema: &Schema) -> Result<Database, OpenError> {
    if let Source::Path(path) = &source {
        if path.exists() {
            check_unchanged(path, schema)?;
        } else {
            create_whole(path, schema)?;
        }
    }
    open_or_fill(source, schema)
}

/// Opening for writing changes a file, so its identity is compared before. A file that was not closed in order cannot be read without a
/// repair, and an empty file has no identity yet: those are compared after.
fn check_unchanged(path: &Path, schema: &Schema) -> Result<(), OpenError> {
    let name = path.display().to_string();
    let is_empty = fs::metadata(path).is_ok_and(|metadata| metadata.len() == 0);
    if is_empty {
        return Ok(());
    }
    let db = match guarded(|| Builder::new().set_cache_size(schema.cache_bytes).open_read_only(path)) {
        Some(Ok(db)) => db,
        Some(Err(DatabaseError::RepairAborted)) => return Ok(()),
        Some(Err(error)) => return Err(OpenError::from_redb(&name, error)),
        None => return Err(OpenError::broken(&name)),
    };
    let found = read_identity(&db).map_err(|error| OpenError::from_persist(&name, error))?;
    found.map_or(Ok(()), |found| check_identity(&name, schema, &found))
}

/// redb cannot open what it had half created, so a file gets its name only once it is complete.
fn create_whole(path: &Path, schema: &Schema) -> Result<(), OpenError> {
    let fail = |error: io::Error| OpenError::from_io(path.display().to_string(), &error);
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".creating-{}", std::process::id()));
    let draft = PathBuf::from(draft);
    fs::File::create(&draft).map_err(fail)?;
    let filled = open_or_fill(Source::Path(draft.clone()), schema).map(drop);
    let named = filled.and_then(|()| name_file(&draft, path).map_err(fail));
    let _ = fs::remove_file(&draft);
    named
}

/// Linking refuses to replace a file that another process has created meanwhile; that one is then opened instead.
fn name_file(draft: &Path, path: &Path) -> Result<(), io::Error> {
    match fs::hard_link(draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        linked => linked?,
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    fs::File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

fn open_or_fill(source: Source, schema: &Schema) -> Result<Database, OpenError> {
    let name = source.to_string();
    let db = open_database(source, &name, schema)?;
    let fail = |error| OpenError::from_persist(&name, error);
    if let Some(found) = read_identity(&db).map_err(fail)? {
        check_identity(&name, schema, &found)?;
    } else {
        fill(&db, schema).map_err(fail)?;
    }
    Ok(db)
}

fn open_database(source: Source, name: &str, schema: &Schema) -> Result<Database, OpenError> {
    let opened = guarded(|| {
        let mut builder = Builder::new();
        builder.set_cache_size(schema.cache_bytes);
        builder.create_with_backend(Disk { storage: storage(source)?, flush_delay: schema.flush_delay })
    });
    opened.ok_or_else(|| OpenError::broken(name))?.map_err(|error| OpenError::from_redb(name, error))
}

/// redb asserts on some damaged headers; a damaged file is an input, so that panic becomes `None`.
fn guarded<T>(open: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(open)).ok()
}

fn storage(source: Source) -> Result<Box<dyn StorageBackend>, DatabaseError> {
    match source {
        Source::Path(path) => {
            let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
            Ok(Box::new(FileBackend::new(file)?))
        }
        Source::Backend(backend) => Ok(backend),
    }
}

struct Found {
    format: String,
    cluster: String,
    owner: String,
}

fn read_identity(db: &impl ReadableDatabase) -> Result<Option<Found>, PersistError> {
    let read = db.begin_read()?;
    if read.list_tables()?.next().is_none() {
        return Ok(None);
    }
    let table = match read.open_table(IDENTITY) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Some(Found::stranger())),
        Err(error) => return Err(error.into()),
    };
    let field = |name| -> Result<String, PersistError> {
        Ok(table.get(name)?.map(|value| value.value().to_owned()).unwrap_or_default())
    };
    Ok(Some(Found { format: field("format")?, cluster: field("cluster")?, owner: field("owner")? }))
}

impl Found {
    fn stranger() -> Self {
        Self { format: "unknown".into(), cluster: "unknown".into(), owner: "unknown".into() }
    }
}

fn check_identity(name: &str, schema: &Schema, found: &Found) -> Result<(), OpenError> {
    let fields = [
        ("format", schema.format, &found.format),
        ("cluster", &schema.identity.cluster, &found.cluster),
        ("owner", &schema.identity.owner, &found.owner),
    ];
    let without_era = |cluster: &str| cluster.split(',').next().unwrap_or_default().to_owned();
    for (field, expected, found) in fields {
        if field == "cluster" && expected != found && without_era(expected) == without_era(found) {
            let source_name = name.to_owned();
            return Err(OpenError::OtherEra { source_name, expected: expected.to_owned(), found: found.clone() });
        }
        if expected != found {
            return Err(OpenError::Foreign {
                source_name: name.to_owned(),
                field,
                expected: expected.to_owned(),
                found: found.clone(),
            });
        }
    }
    Ok(())
}

fn fill(db: &Database, schema: &Schema) -> Result<(), PersistError> {
    let write = db.begin_write()?;
    {
        let mut table = write.open_table(IDENTITY)?;
        table.insert("format", schema.format)?;
        table.insert("cluster", schema.identity.cluster.as_str())?;
        table.insert("owner", schema.identity.owner.as_str())?;
    }
    (schema.create_tables)(&write)?;
    write.commit()?;
    Ok(())
}

/// The storage that redb reads and writes; its syncs may be made as slow as those of other disks. The delay stands in the sync itself. So
/// every task that waits for durability pays it, as often as redb asks for it.
#[derive(Debug)]
struct Disk {
    storage: Box<dyn StorageBackend>,
    flush_delay: Duration,
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, io::Error> {
        self.storage.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.storage.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.storage.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.storage.sync_data()?;
        if !self.flush_delay.is_zero() {
            thread::sleep(self.flush_delay);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.storage.write(offset, data)
    }

    fn close(&self) -> Result<(), io::Error> {
        self.storage.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.storage.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.storage.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.storage.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.storage.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.storage.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.storage.query_lock_range(start, end)
    }
}
