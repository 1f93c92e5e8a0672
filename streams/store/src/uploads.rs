//! Tables that tenants have uploaded: a folder for each tenant, and a file for each table.
//!
//! A file is one line of JSON, its head, and behind it the bytes as they were sent. The head has the columns, and a checksum of the
//! bytes. A file is replaced as a whole: a reader gets the old table or the new one. Processes that only read need no lock.

use crate::disk::{replace, sync_folder};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tidemark_streams_core::event::check_tenant;
use tidemark_streams_core::scope::TenantHash;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// The folder of all tenants.
pub const TABLES: &str = "tables";
const ENDING: &str = ".table";
/// The name of a file while it is written. No table has it, as names have no dot.
const TEMPORARY: &str = "table.new";
const VERSION: u32 = 1;
/// Bytes of a head. A longer one is damage.
const HEAD_BYTES_MAX: u64 = 64 << 10;
/// Tables that a folder is read for. Files that others put there are not.
const LISTED_MAX: usize = 1_024;

/// The tables of all tenants in one directory.
#[derive(Debug)]
pub struct Uploads {
    folder: PathBuf,
    /// Held while files change: the limits of a tenant are those of all its tables. It has the last erasure of each tenant since the
    /// start: an upload that began before it is not kept.
    erased: Mutex<BTreeMap<TenantHash, u64>>,
}

/// The tables of a tenant, in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables<T> {
    pub whole: Vec<Upload<T>>,
    pub damaged: Vec<DamagedTable>,
}

/// A table with its file, as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFile<T> {
    pub table: Upload<T>,
    pub file: Bytes,
}

/// A file that cannot be read. Its table may be uploaded again, or dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedTable {
    pub name: String,
    /// The size of the file.
    pub bytes: u64,
}

/// The limits of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadLimits {
    pub tables: usize,
    pub bytes: u64,
}

/// A table, without its rows. `T` describes its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload<T> {
    pub name: String,
    pub content: T,
    pub rows: u64,
    pub bytes: u64,
    /// When the upload began.
    pub uploaded_at_ms: u64,
}

/// The first line of a file.
#[derive(Serialize, Deserialize)]
struct Head<T> {
    version: u32,
    /// The folder's name is a hash of it.
    tenant: String,
    name: String,
    columns: T,
    rows: u64,
    bytes: u64,
    checksum: String,
    uploaded_at_ms: u64,
}

/// Why a table is not read or changed.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: the file is damaged: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error("{}: version {found} of the file; this program knows version {VERSION}", path.display())]
    Version { path: PathBuf, found: u32 },
    #[error("the tenant has {found} tables: at most {max}; drop a table first")]
    TooMany { found: usize, max: usize },
    #[error("the tables of the tenant would have {bytes} bytes: at most {max}; drop a table first")]
    TooLarge { bytes: u64, max: u64 },
    #[error("no table {0:?}")]
    Missing(String),
    #[error("the tenant was erased during the upload: nothing was kept; send the table again")]
    Erased,
}

impl Uploads {
    /// The tables in a directory of event streams. Nothing is created before the first upload.
    pub fn of(dir: &Path) -> Uploads {
        Uploads { folder: dir.join(TABLES), erased: Mutex::default() }
    }

    /// The tables of a tenant.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn list<T: for<'de> Deserialize<'de>>(&self, tenant: &str) -> Result<Tables<T>, UploadError> {
        let folder = self.folder_of(tenant);
        let mut tables = Tables { whole: Vec::new(), damaged: Vec::new() };
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(tables),
            Err(error) => return Err(UploadError::Io { path: folder, error }),
        };
        for entry in entries.take(LISTED_MAX) {
            let io = |error| UploadError::Io { path: folder.clone(), error };
            let path = entry.map_err(io)?.path();
            let is_table = path.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(ENDING.as_bytes()));
            if !is_table {
                continue;
            }
            match Opened::of(&path, tenant) {
                Ok(opened) => tables.whole.push(opened.upload()),
                // It was dropped meanwhile.
                Err(UploadError::Missing(_)) => {}
                Err(UploadError::Damaged { .. } | UploadError::Version { .. }) => {
                    let bytes = fs::metadata(&path).map_or(0, |file| file.len());
                    tables.damaged.push(DamagedTable { name: named(&path), bytes });
                }
                Err(error) => return Err(error),
            }
        }
        tables.whole.sort_by(|a: &Upload<T>, b| a.name.cmp(&b.name));
        tables.damaged.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(tables)
    }

    /// The bytes of a table, as they were sent.
    ///
    /// # Errors
    /// [`UploadError`].
    pub fn read<T: for<'de> Deserialize<'de>>(&self, tenant: &str, name: &str) -> Result<TableFile<T>, UploadError> {
        let path = self.path_of(tenant, name);
        let opened = Opened::<T>::of(&path, tenant)?;
        let expected = opened.head.bytes;
        let mut bytes = Vec::new();
        let mut file = opened.file;
        let io = |error| UploadError::Io { path: path.clone(), error };
        file.by_ref().take(expected + 1).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() as u64 != expected {
            let why = format!("{expected} bytes are expected behind its head, and {} are there", bytes.len());
            return Err(UploadError::Damaged { path, why });
        }
        if checksum(&bytes) != opened.head.checksum {
            return Err(UploadError::Damaged { path, why: "its checksum is another".to_owned() });
        }
        Ok(TableFile { table: upload(opened.head), file: bytes.into() })
    }

    /// Puts a table in place of one with its name, if there is one. Returns whether there was one. The table is durable then.
    ///
    /// # Errors
    /// The tenant has too many tables or bytes, or the file cannot be written. Nothing has changed.
    pub fn put<T>(&self, tenant: &str, table: Upload<T>, file: &[u8], limits: UploadLimits) -> Result<bool, UploadError>
    where
        T: Serialize + for<'de> Deserialize<'de>,
    {
        let erased = self.erased.lock().unwrap_or_else(PoisonError::into_inner);
        if erased.get(&TenantHash::of(tenant)).is_some_and(|asked_at_ms| table.uploaded_at_ms <= *asked_at_ms) {
            return Err(UploadError::Erased);
        }
        let Tables { whole, damaged } = self.list::<T>(tenant)?;
        let whole = whole.iter().map(|known| (known.name.as_str(), known.bytes));
        let known: BTreeMap<&str, u64> =
            whole.chain(damaged.iter().map(|known| (known.name.as_str(), known.bytes))).collect();
        let is_known = known.contains_key(table.name.as_str());
        let others = known.len() - usize::from(is_known);
        let of_others: u64 = known.iter().filter(|(name, _)| **name != table.name).map(|(_, bytes)| bytes).sum();
        let bytes = of_others + file.len() as u64;
        if others >= limits.tables {
            return Err(UploadError::TooMany { found: others, max: limits.tables });
        }
        if bytes > limits.bytes {
            return Err(UploadError::TooLarge { bytes, max: limits.bytes });
        }
        let folder = self.folder_of(tenant);
        let io = |error| UploadError::Io { path: folder.clone(), error };
        self.create(&folder).map_err(io)?;
        let name = format!("{}{ENDING}", table.name);
        let head = Head {
            version: VERSION,
            tenant: tenant.to_owned(),
            name: table.name,
            columns: table.content,
            rows: table.rows,
            bytes: file.len() as u64,
            checksum: checksum(file),
            uploaded_at_ms: table.uploaded_at_ms,
        };
        let mut content = serde_json::to_vec(&head).map_err(|error| io(error.into()))?;
        content.push(b'\n');
        content.extend_from_slice(file);
        replace(&folder, TEMPORARY, &name, &content).map_err(io)?;
        Ok(is_known)
    }

    /// Drops a table for good.
    ///
    /// # Errors
    /// There is none with this name, or the file cannot be removed.
    pub fn drop_table(&self, tenant: &str, name: &str) -> Result<(), UploadError> {
        let _erased = self.erased.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path_of(tenant, name);
        let removed = fs::remove_file(&path).and_then(|()| sync_folder(&self.folder_of(tenant)));
        removed.map_err(|error| missing_or(error, &path))
    }

    /// Drops the tables of erased tenants: those whose upload began until the erasure was asked for. An upload under way is not kept either.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn erase(&self, hash: TenantHash, asked_at_ms: u64) -> Result<(), UploadError> {
        let mut erased = self.erased.lock().unwrap_or_else(PoisonError::into_inner);
        let last = erased.entry(hash).or_default();
        *last = asked_at_ms.max(*last);
        let io = |error| UploadError::Io { path: self.folder.clone(), error };
        let prefix = prefix_of(hash);
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(io(error)),
        };
        for entry in entries {
            let entry = entry.map_err(io)?;
            if entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
                erase_folder(&entry.path(), asked_at_ms).map_err(io)?;
            }
        }
        Ok(())
    }

    fn create(&self, folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(folder)?;
        sync_folder(&self.folder)?;
        self.folder.parent().map_or(Ok(()), sync_folder)
    }

    /// Names of tenants may hold any sign, so the folder's name has hashes. The first is that of erasures.
    fn folder_of(&self, tenant: &str) -> PathBuf {
        let prefix = prefix_of(TenantHash::of(tenant));
        self.folder.join(format!("{prefix}{:032x}", xxh3_128(tenant.as_bytes())))
    }

    fn path_of(&self, tenant: &str, name: &str) -> PathBuf {
        self.folder_of(tenant).join(format!("{name}{ENDING}"))
    }
}

/// Removes the files whose uploads began until a time. A file that cannot be read may be one.
fn erase_folder(folder: &Path, asked_at_ms: u64) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let mut line = Vec::new();
        BufReader::new(fs::File::open(&path)?).take(HEAD_BYTES_MAX).read_until(b'\n', &mut line)?;
        let stamp = serde_json::from_slice::<Stamp>(&line);
        if stamp.is_ok_and(|stamp| stamp.uploaded_at_ms > asked_at_ms) {
            continue;
        }
        fs::remove_file(path)?;
    }
    sync_folder(folder)
}

/// The part of a head that an erasure needs.
#[derive(Deserialize)]
struct Stamp {
    uploaded_at_ms: u64,
}

/// A file whose head was read.
struct Opened<T> {
    file: BufReader<fs::File>,
    head: Head<T>,
}

impl<T: for<'de> Deserialize<'de>> Opened<T> {
    fn of(path: &Path, tenant: &str) -> Result<Opened<T>, UploadError> {
        let io = |error: io::Error| missing_or(error, path);
        let damaged = |why: String| UploadError::Damaged { path: path.to_owned(), why };
        let mut file = BufReader::new(fs::File::open(path).map_err(io)?);
        let mut line = Vec::new();
        file.by_ref().take(HEAD_BYTES_MAX).read_until(b'\n', &mut line).map_err(io)?;
        let head: Head<T> =
            serde_json::from_slice(&line).map_err(|error| damaged(format!("its head cannot be read: {error}")))?;
        if head.version != VERSION {
            return Err(UploadError::Version { path: path.to_owned(), found: head.version });
        }
        if head.tenant != tenant || check_tenant(&head.tenant).is_err() || head.name != named(path) {
            return Err(damaged("it is the table of another tenant, or has another name".to_owned()));
        }
        Ok(Opened { file, head })
    }

    fn upload(self) -> Upload<T> {
        upload(self.head)
    }
}

fn missing_or(error: io::Error, path: &Path) -> UploadError {
    if error.kind() == ErrorKind::NotFound {
        return UploadError::Missing(named(path));
    }
    UploadError::Io { path: path.to_owned(), error }
}

fn upload<T>(head: Head<T>) -> Upload<T> {
    let Head { name, columns, rows, bytes, uploaded_at_ms, .. } = head;
    Upload { name, content: columns, rows, bytes, uploaded_at_ms }
}

/// The table of a file.
fn named(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn prefix_of(hash: TenantHash) -> String {
    format!("{:016x}-", hash.0)
}

fn checksum(bytes: &[u8]) -> String {
    format!("{:016x}", xxh3_64(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: UploadLimits = UploadLimits { tables: 2, bytes: 20 };

    fn table(name: &str) -> Upload<Vec<String>> {
        Upload { name: name.to_owned(), content: vec!["a".to_owned()], rows: 1, bytes: 0, uploaded_at_ms: 7 }
    }

    fn names(uploads: &Uploads, tenant: &str) -> Vec<String> {
        uploads.list::<Vec<String>>(tenant).unwrap().whole.into_iter().map(|table| table.name).collect()
    }

    #[test]
    fn tables_of_a_tenant_are_kept_replaced_and_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let uploads = Uploads::of(dir.path());
        assert!(names(&uploads, "a").is_empty());
        assert!(!uploads.put("a", table("two"), b"a\n1\n", LIMITS).unwrap());
        assert!(!uploads.put("a", table("one"), b"a\n2\n", LIMITS).unwrap());
        assert!(uploads.put("a", table("two"), b"a\n3\n", LIMITS).unwrap());
        assert_eq!(names(&uploads, "a"), ["one", "two"]);
        assert!(names(&uploads, "b").is_empty());
        let found = Uploads::of(dir.path()).read::<Vec<String>>("a", "two").unwrap();
        assert_eq!((found.table, &found.file[..]), (Upload { bytes: 4, ..table("two") }, &b"a\n3\n"[..]));
        uploads.drop_table("a", "one").unwrap();
        assert!(matches!(uploads.drop_table("a", "one"), Err(UploadError::Missing(_))));
        assert!(matches!(uploads.read::<Vec<String>>("a", "one"), Err(UploadError::Missing(_))));
        uploads.put("b", table("two"), b"a\n1\n", LIMITS).unwrap();
    }

    #[test]
    fn erasure_drops_tables_of_uploads_that_began_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let uploads = Uploads::of(dir.path());
        let at = |uploaded_at_ms: u64| Upload { uploaded_at_ms, ..table("one") };
        uploads.erase(TenantHash::of("a"), 5).unwrap();
        assert!(matches!(uploads.put("a", at(5), b"a\n1\n", LIMITS), Err(UploadError::Erased)));
        uploads.put("a", at(6), b"a\n1\n", LIMITS).unwrap();
        uploads.put("b", at(6), b"a\n1\n", LIMITS).unwrap();
        uploads.erase(TenantHash::of("a"), 5).unwrap();
        assert_eq!(names(&uploads, "a"), ["one"], "it is of a later life");
        uploads.erase(TenantHash::of("a"), 6).unwrap();
        assert!(names(&uploads, "a").is_empty());
        assert_eq!(names(&uploads, "b"), ["one"]);
    }

    #[test]
    fn table_beyond_the_limits_of_its_tenant_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let uploads = Uploads::of(dir.path());
        uploads.put("a", table("one"), b"a\n1\n", LIMITS).unwrap();
        let large = uploads.put("a", table("two"), &[b'x'; 17], LIMITS);
        assert!(matches!(large, Err(UploadError::TooLarge { bytes: 21, max: 20 })));
        uploads.put("a", table("two"), &[b'x'; 16], LIMITS).unwrap();
        let third = uploads.put("a", table("three"), b"", LIMITS);
        assert!(matches!(third, Err(UploadError::TooMany { found: 2, max: 2 })));
        assert_eq!(names(&uploads, "a"), ["one", "two"]);
    }

    #[test]
    fn damaged_table_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let uploads = Uploads::of(dir.path());
        uploads.put("a", table("one"), b"a\n1\n", LIMITS).unwrap();
        let path = uploads.path_of("a", "one");
        let whole = fs::read(&path).unwrap();
        let read = || uploads.read::<Vec<String>>("a", "one").map(|_| ()).unwrap_err().to_string();
        let mut other = whole.clone();
        *other.last_mut().unwrap() = b'x';
        fs::write(&path, other).unwrap();
        assert!(read().contains("checksum"));
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert!(read().contains("4 bytes are expected behind its head, and 3 are there"));
        fs::write(&path, b"{").unwrap();
        assert!(read().contains("its head cannot be read"));
        fs::write(&path, &whole).unwrap();
        fs::copy(&path, uploads.path_of("a", "two")).unwrap();
        assert!(uploads.read::<Vec<String>>("a", "two").unwrap_err().to_string().contains("another name"));
        let listed = uploads.list::<Vec<String>>("a").unwrap();
        let bytes = whole.len() as u64;
        assert_eq!(listed.damaged, [DamagedTable { name: "two".to_owned(), bytes }], "the others are read");
        assert_eq!(listed.whole.len(), 1);
        let limits = UploadLimits { tables: 2, bytes: bytes + 8 };
        assert!(uploads.put("a", table("two"), b"a\n1\n", limits).unwrap(), "it is replaced");
        assert_eq!(names(&uploads, "a"), ["one", "two"]);
    }
}
