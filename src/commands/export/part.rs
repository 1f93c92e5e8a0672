//! The file of an export while it is written, `OUT.part`, and the journal beside it: up to where the file is whole, and what comes behind.
//!
//! The journal's claims are synced before they are written, so the file is cut off there and gone on with. It is locked while an export has
//! it.

use super::out::Out;
use super::{Compress, FormatArg, Written};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Of the journal; another one is another program's.
const VERSION: u32 = 1;
/// Bytes of rows, before they are compressed, between two writings of the journal: what is written again at most after a crash.
const CHECKPOINT_BYTES: u64 = 16 << 20;
/// An export that began earlier is not gone on with: an operator with a daily export wants this day's.
const GO_ON_WITHIN: Duration = Duration::from_secs(24 * 3_600);

/// The request of an export. An export goes on with one of the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    version: u32,
    /// Its name.
    cluster: String,
    prefix: String,
    format: FormatArg,
    compress: Compress,
}

/// The journal: how far an export has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    request: Request,
    /// Of the file, that are whole.
    bytes: u64,
    /// The last key in them.
    pub after: String,
    pub written: Written,
}

/// A file that is not whole yet.
#[derive(Debug)]
pub struct Part {
    /// The file's final name.
    target: PathBuf,
    path: PathBuf,
    journal: PathBuf,
    file: File,
    request: Request,
    /// `None`: nothing of it is whole.
    mark: Option<Mark>,
    /// [`CHECKPOINT_BYTES`]; fewer in tests.
    pub checkpoint_bytes: u64,
}

/// Why an export stopped or did not begin. The part that its journal calls complete stays complete.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{} is in use: another export to the same file runs", .0.display())]
    InUse(PathBuf),
    #[error("journal {}: {why}; remove it, or begin anew with --restart", path.display())]
    Refused { path: PathBuf, why: String },
}

impl Request {
    pub fn new(cluster: &str, prefix: &str, format: FormatArg, compress: Compress) -> Request {
        Request { version: VERSION, cluster: cluster.to_owned(), prefix: prefix.to_owned(), format, compress }
    }

    /// Properties of the earlier request that differ from this one.
    fn differs(&self, before: &Request) -> Option<String> {
        let name = |choice: &dyn std::fmt::Debug| format!("{choice:?}").to_lowercase();
        let pairs = [
            ("version", before.version.to_string(), self.version.to_string()),
            ("cluster", format!("{:?}", before.cluster), format!("{:?}", self.cluster)),
            ("prefix", format!("{:?}", before.prefix), format!("{:?}", self.prefix)),
            ("format", name(&before.format), name(&self.format)),
            ("compression", name(&before.compress), name(&self.compress)),
        ];
        let (what, before, now) = pairs.into_iter().find(|(_, before, now)| before != now)?;
        Some(format!("the export was begun with another {what}: {before} before, {now} now"))
    }
}

impl Mark {
    /// The progress of a file of this number of bytes; `None` without a journal.
    fn read(journal: &Path, request: &Request, bytes: u64) -> Result<Option<Mark>, PartError> {
        let text = match fs::read(journal) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(failed(journal))?,
        };
        let refused = |why: String| PartError::Refused { path: journal.to_owned(), why };
        let mark: Mark = serde_json::from_slice(&text).map_err(|error| refused(format!("it is damaged: {error}")))?;
        let short = || format!("it says that {} bytes are whole, and the file has {bytes}", mark.bytes);
        let old = || {
            let age = mark.age(SystemTime::now()).filter(|age| *age > GO_ON_WITHIN)?;
            let hours = |age: Duration| age.as_secs() / 3_600;
            Some(format!("the export was begun {} h ago: at most {} h allowed", hours(age), hours(GO_ON_WITHIN)))
        };
        let differs = request.differs(&mark.request).or_else(|| (bytes < mark.bytes).then(short));
        match differs.or_else(old) {
            Some(why) => Err(refused(why)),
            None => Ok(Some(mark)),
        }
    }

    /// Since its first page was read; `None` if none was.
    fn age(&self, now: SystemTime) -> Option<Duration> {
        let begun = Duration::from_millis(self.written.from_unix_ms);
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        (!begun.is_zero()).then(|| now.saturating_sub(begun))
    }

    /// Takes the place of the one before, whole or not at all.
    fn write(&self, journal: &Path) -> io::Result<()> {
        let new = with_ending(journal, ".new");
        let text = serde_json::to_vec(self)?;
        let mut file = File::create(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, journal)?;
        sync_folder_of(journal)
    }
}

impl Part {
    /// Goes on with what is there of an export to a file, or begins it: also where it is said to begin anew.
    pub fn open(target: &Path, request: Request, is_anew: bool) -> Result<Part, PartError> {
        let path = with_ending(target, ".part");
        let journal = with_ending(&path, ".journal");
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(failed(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(PartError::InUse(path)),
            Err(fs::TryLockError::Error(error)) => return Err(failed(&path)(error)),
        }
        let held = file.metadata().map_err(failed(&path))?;
        // The other one may have ended, and given the file its name, before this one had it.
        let id = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
        if !fs::metadata(&path).is_ok_and(|there| id(&there) == id(&held)) {
            return Err(PartError::InUse(path));
        }
        let bytes = held.len();
        // In an empty one nothing is lost. A journal beside it is of an export that has ended: a crash has left it.
        let mark = if is_anew || bytes == 0 { None } else { Mark::read(&journal, &request, bytes)? };
        let checkpoint_bytes = CHECKPOINT_BYTES;
        let part = Part { target: target.to_owned(), path, journal, file, request, mark, checkpoint_bytes };
        part.cut()?;
        Ok(part)
    }

    /// Only what is whole stays.
    fn cut(&self) -> Result<(), PartError> {
        let whole = match &self.mark {
            Some(mark) => mark.bytes,
            None => {
                // It must not come back after a crash, beside another file.
                remove(&self.journal)?;
                0
            }
        };
        let cut = self.file.set_len(whole).and_then(|()| (&self.file).seek(SeekFrom::Start(whole)));
        cut.map(drop).map_err(failed(&self.path))
    }

    /// The mark that was found at the opening, or the last checkpoint.
    pub fn mark(&self) -> Option<&Mark> {
        self.mark.as_ref()
    }

    /// Where rows are written on.
    pub fn out(&self) -> Result<Out, PartError> {
        let Request { format, compress, .. } = self.request;
        let out = self.file.try_clone().and_then(|file| Out::new(file, format, compress));
        out.map_err(failed(&self.path))
    }

    /// All rows up to a key are written. Now and then that is a checkpoint: what is there is made whole, and an export goes on behind it.
    /// Parquet has none, as its end says where all of it is.
    pub fn reached(&mut self, out: Out, after: &str, written: &Written) -> Result<Out, PartError> {
        let before = self.mark.as_ref().map_or(0, |mark| mark.written.bytes);
        if self.request.format == FormatArg::Parquet || written.bytes.saturating_sub(before) < self.checkpoint_bytes {
            return Ok(out);
        }
        let bytes = out.finish().and_then(|file| {
            file.sync_data()?;
            Ok(file.metadata()?.len())
        });
        let bytes = bytes.map_err(failed(&self.path))?;
        let mark = Mark { request: self.request.clone(), bytes, after: after.to_owned(), written: *written };
        mark.write(&self.journal).map_err(failed(&self.journal))?;
        self.mark = Some(mark);
        self.out()
    }

    /// It is whole, and gets its name.
    pub fn finish(&self, out: Out) -> Result<(), PartError> {
        out.finish().and_then(|file| file.sync_all()).map_err(failed(&self.path))?;
        fs::rename(&self.path, &self.target).map_err(failed(&self.path))?;
        remove(&self.journal)?;
        sync_folder_of(&self.target).map_err(failed(&self.target))
    }

    /// The file could not be written.
    pub fn failed(&self, error: io::Error) -> PartError {
        failed(&self.path)(error)
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> PartError {
    move |error| PartError::Io { path: path.to_owned(), error }
}

/// `rows.csv` and `.part` are `rows.csv.part`.
fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Removes a journal for good, if there is one, and what was to take its place.
fn remove(journal: &Path) -> Result<(), PartError> {
    for path in [journal, with_ending(journal, ".new").as_path()] {
        match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.and_then(|()| sync_folder_of(path)).map_err(failed(path))?,
        }
    }
    Ok(())
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    // A bare name's is the empty path, which nothing can open.
    File::open(path.parent().unwrap_or(Path::new("")).join("."))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request::new("demo", "qa/", FormatArg::Csv, Compress::Gzip)
    }

    /// Up to a checkpoint, without a row.
    fn begin(target: &Path) {
        let mut part = Part::open(target, request(), false).unwrap();
        part.checkpoint_bytes = 0;
        let out = part.out().unwrap();
        let out = part.reached(out, "a", &Written::default()).unwrap();
        let in_use = Part::open(target, request(), true).unwrap_err().to_string();
        assert!(in_use.ends_with("rows.part is in use: another export to the same file runs"), "{in_use}");
        drop(out);
    }

    #[test]
    fn what_is_not_of_the_same_export_or_damaged_is_refused_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let [target, path, journal] = ["rows", "rows.part", "rows.part.journal"].map(|name| dir.path().join(name));
        begin(&target);
        let before = [&path, &journal].map(|path| fs::read(path).unwrap());
        let refused = |request: Request, why: &str| {
            let refused = Part::open(&target, request, false).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("journal {}: ", journal.display())), "{refused}");
            assert!(refused.contains(why), "{refused}");
            assert!(refused.ends_with("; remove it, or begin anew with --restart"), "{refused}");
        };
        refused(Request { version: 2, ..request() }, "begun with another version: 1 before, 2 now");
        refused(Request { cluster: "other".into(), ..request() }, "another cluster: \"demo\" before, \"other\" now");
        refused(Request { prefix: "qa/b".into(), ..request() }, "another prefix: \"qa/\" before, \"qa/b\" now");
        refused(Request { format: FormatArg::Ndjson, ..request() }, "another format: csv before, ndjson now");
        refused(Request { format: FormatArg::Parquet, ..request() }, "another format: csv before, parquet now");
        refused(Request { compress: Compress::Zstd, ..request() }, "another compression: gzip before, zstd now");
        assert_eq!([&path, &journal].map(|path| fs::read(path).unwrap()), before);
        let mark: Mark = serde_json::from_slice(&before[1]).unwrap();
        let old = Mark { written: Written { from_unix_ms: 1_000, ..mark.written }, ..mark };
        old.write(&journal).unwrap();
        refused(request(), " h ago: at most 24 h allowed");
        let cut_off = &before[1][..before[1].len() - 1];
        let parquet = String::from_utf8(before[1].clone()).unwrap().replace("\"csv\"", "\"parquet\"");
        let damaged: [&[u8]; 7] = [b"", b"garbage", b"{}", b"[\xff\x00", &[b'['; 10_000], cut_off, parquet.as_bytes()];
        for garbage in damaged {
            fs::write(&journal, garbage).unwrap();
            refused(request(), "it is damaged: ");
        }
        fs::write(&journal, &before[1]).unwrap();
        let whole = serde_json::from_slice::<Mark>(&before[1]).unwrap().bytes;
        fs::write(&path, &before[0][..whole as usize - 1]).unwrap();
        refused(request(), &format!("it says that {whole} bytes are whole, and the file has {}", whole - 1));
    }

    #[test]
    fn a_journal_is_of_no_use_where_the_file_is_gone_or_an_export_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let [target, path, journal] = ["rows", "rows.part", "rows.part.journal"].map(|name| dir.path().join(name));
        let other = || Request::new("demo", "other/", FormatArg::Ndjson, Compress::None);
        for is_anew in [false, true] {
            begin(&target);
            assert_eq!(Part::open(&target, request(), false).unwrap().mark().unwrap().after, "a");
            if !is_anew {
                fs::remove_file(&path).unwrap();
            }
            let part = Part::open(&target, other(), is_anew).unwrap();
            assert_eq!((part.mark(), fs::metadata(&path).unwrap().len(), journal.exists()), (None, 0, false));
        }
    }
}
