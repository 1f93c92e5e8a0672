//! The archive of raw events on disk: the folder `raw`, with a file for each range of the intake's log that was counted.
//!
//! Entries go into the archive before the log forgets them. A file is written under another name, synced, renamed, and the folder is
//! synced. So it is there as a whole or not at all, and only then the log is cut.

mod read;

pub use read::{Coverage, Damaged, DamagedFile, Missing, RawError, read_raw};

use crate::log::IntakeLog;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tidemark_consensus::local::PersistError;
use tidemark_streams_core::erasure::Erasures;
use tidemark_streams_intake::archive::erased::{Kept, kept, without_ids};
use tidemark_streams_intake::archive::file::{FileError, FileName, FileWriter, RawFile};
use tidemark_streams_intake::archive::index::{Found, Index, Rules, Work};
use tidemark_streams_intake::entry::{DecodeError, Head};
use tidemark_streams_intake::limits::RAW_FILE_BYTES_MAX;
use tidemark_streams_store::disk::{replace, sync_folder};

/// The folder of the archive.
pub const RAW_FOLDER: &str = "raw";
/// The file that is being written.
const NEW: &str = "new";
/// A turn begins no further work on files after this.
const TURN: Duration = Duration::from_millis(100);

/// An open archive. No other process has its directory open.
pub struct Archive {
    folder: PathBuf,
    directory: String,
    index: Index,
    damaged: BTreeSet<FileName>,
    /// Rows before this one are archived, or were never to be.
    end: u64,
}

/// What a turn is about.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// Rows before this one are counted.
    pub committed: u64,
    pub now_ms: u64,
    /// How long an event is kept. `None`: none is.
    pub keep_ms: Option<u64>,
    /// The erasures, if all of them are done in blobs.
    pub erasures: Option<&'a Erasures>,
}

impl Turn<'_> {
    fn rules<'d>(&self, damaged: &'d BTreeSet<FileName>) -> Rules<'d> {
        Rules {
            now_ms: self.now_ms,
            keep_ms: self.keep_ms.unwrap_or(0),
            erasures: self.erasures.map(Erasures::count),
            damaged,
        }
    }
}

/// How far the archive is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveView {
    pub files: u64,
    pub bytes: u64,
    /// The first row, and when it was accepted. `None`: the archive is empty.
    pub first_row: Option<u64>,
    pub first_ms: Option<u64>,
    /// The row behind all that are archived.
    pub end: u64,
    /// Files that could not be read.
    pub damaged: u64,
    /// Files that may hold rows of the latest erasures.
    pub unclean: u64,
    /// The erasures that `unclean` is about. `None`: one of them is not done in blobs.
    pub erasures: Option<u64>,
    /// Why rows that wait were not archived. The log keeps them.
    pub problem: Option<String>,
}

/// Why the archive is not opened or not written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("the archive of raw events: {}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("the archive of raw events: the intake's log cannot be read: {0}")]
    Log(#[from] PersistError),
    #[error("the archive of raw events: entry {index} of the intake's log: {error}")]
    Entry { index: u64, error: DecodeError },
    #[error(
        "{}: the archive has rows up to {archived}, and the intake's log ends at row {next_row}: the log or the archive is an old copy. \
         Restore both from one copy of the directory, or move files with later rows elsewhere",
        folder.display()
    )]
    Ahead { folder: PathBuf, archived: u64, next_row: u64 },
}

/// A fault while a file is read.
enum Fault {
    File(FileError),
    Entry { row: u64, error: DecodeError },
    Io(io::Error),
}

impl From<FileError> for Fault {
    fn from(error: FileError) -> Fault {
        Fault::File(error)
    }
}

/// What is left of files without erased rows.
struct Rest {
    packed: FileWriter,
    has_erased: bool,
}

impl Archive {
    /// Opens the archive of a directory, and removes what a kill left.
    ///
    /// # Errors
    /// [`ArchiveError::Io`].
    pub fn open(dir: &Path, directory: &str) -> Result<Archive, ArchiveError> {
        let folder = dir.join(RAW_FOLDER);
        let Found { index, superseded } = list(&folder)?;
        let end = index.end();
        let mut archive = Archive { folder, directory: directory.to_owned(), index, damaged: BTreeSet::new(), end };
        archive.delete(&superseded)?;
        archive.remove_new()?;
        Ok(archive)
    }

    /// Checks that the archive is of the same rows as the log.
    ///
    /// # Errors
    /// [`ArchiveError::Ahead`].
    pub fn check(&self, next_row: u64) -> Result<(), ArchiveError> {
        let archived = self.index.end();
        match archived <= next_row {
            true => Ok(()),
            false => Err(ArchiveError::Ahead { folder: self.folder.clone(), archived, next_row }),
        }
    }

    pub fn view(&self, erasures: Option<&Erasures>) -> ArchiveView {
        let erasures = erasures.map(Erasures::count);
        ArchiveView {
            files: self.index.len() as u64,
            bytes: self.index.bytes(),
            first_row: self.index.first().map(|name| name.from),
            first_ms: self.index.first().map(|name| name.first_ms),
            end: self.end,
            damaged: self.damaged.len() as u64,
            unclean: erasures.map_or(self.index.len(), |count| self.index.unclean(count).count()) as u64,
            erasures,
            problem: None,
        }
    }

    /// The first file that could not be read.
    pub fn first_damaged(&self) -> Option<PathBuf> {
        self.damaged.first().map(|name| self.path(name))
    }

    /// Archives rows that are counted, at most a file of them, or does other work for a moment. `true`: more is to be done.
    ///
    /// # Errors
    /// [`ArchiveError`]. The files are as they were before, or as they should be.
    pub fn turn(&mut self, log: &IntakeLog, turn: &Turn<'_>) -> Result<bool, ArchiveError> {
        let begun = Instant::now();
        self.forget_missing();
        // On a full disk they give back the space that the next rows need.
        let removed = self.remove_old(turn);
        if self.has_rows(log, turn) {
            self.append(log, turn)?;
            return Ok(true);
        }
        removed?;
        while self.step(turn)? {
            if begun.elapsed() >= TURN {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes files that are too old, and those that others replace.
    fn remove_old(&mut self, turn: &Turn<'_>) -> Result<(), ArchiveError> {
        while let Some(Work::Remove(old)) = self.index.work(&turn.rules(&self.damaged)) {
            self.delete(&old)?;
        }
        Ok(())
    }

    /// Whether counted rows wait to be archived.
    pub fn has_rows(&self, log: &IntakeLog, turn: &Turn<'_>) -> bool {
        turn.keep_ms.is_some() && log.counted(turn.committed).is_some_and(|end| end > self.end)
    }

    /// Forgets damaged files that an operator has deleted.
    fn forget_missing(&mut self) {
        let missing: Vec<FileName> = self.damaged.iter().filter(|name| !self.path(name).exists()).copied().collect();
        for name in &missing {
            self.damaged.remove(name);
            self.index.remove(name);
        }
    }

    /// Takes erased rows out of all files that can be read.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub fn clean(&mut self, erasures: &Erasures) -> Result<(), ArchiveError> {
        let turn = Turn { committed: 0, now_ms: 0, keep_ms: Some(u64::MAX), erasures: Some(erasures) };
        while self.step(&turn)? {}
        Ok(())
    }

    /// Writes a file of the next entries.
    fn append(&mut self, log: &IntakeLog, turn: &Turn<'_>) -> Result<(), ArchiveError> {
        let none = Erasures::default();
        let erasures = turn.erasures.unwrap_or(&none);
        let mut packed = FileWriter::new().map_err(|error| self.io(&self.folder, error))?;
        let mut name: Option<FileName> = None;
        let mut end = self.end;
        for entry in log.counted_entries(self.end, turn.committed)? {
            let (index, bytes) = entry?;
            let of_entry = |error| ArchiveError::Entry { index, error };
            let head = Head::decode(&bytes).map_err(of_entry)?;
            end = end.max(head.end_row());
            if head.rows == 0 {
                continue;
            }
            let Head { first_row: from, accepted_at_ms: first_ms, .. } = head;
            let first = FileName { from, to: from, first_ms, last_ms: first_ms, erasures: erasures.count() };
            let name = name.get_or_insert(first);
            name.to = head.end_row();
            name.last_ms = head.accepted_at_ms.max(name.last_ms);
            let bytes = without_ids(&bytes).map_err(of_entry)?;
            let kept = kept(&bytes, erasures).map_err(of_entry)?;
            push(&mut packed, &bytes, kept).map_err(|error| self.io(&self.folder, error))?;
            if packed.bytes() >= RAW_FILE_BYTES_MAX {
                break;
            }
        }
        if let Some(name) = name {
            self.write(name, packed)?;
        }
        self.end = end;
        Ok(())
    }

    /// Does the next work on files. `false`: there is none.
    fn step(&mut self, turn: &Turn<'_>) -> Result<bool, ArchiveError> {
        let Some(work) = self.index.work(&turn.rules(&self.damaged)) else { return Ok(false) };
        let none = Erasures::default();
        let erasures = turn.erasures.unwrap_or(&none);
        match work {
            Work::Remove(old) => self.delete(&old)?,
            Work::Clean(name) => {
                let cleaned = FileName { erasures: erasures.count(), ..name };
                match self.rest(&[name], erasures)? {
                    None => {}
                    Some(rest) if rest.has_erased => {
                        self.write(cleaned, rest.packed)?;
                        self.delete(&[name])?;
                    }
                    Some(_) => self.rename(name, cleaned)?,
                }
            }
            Work::Merge(group) => {
                if let Some(name) = FileName::joined(&group, erasures.count())
                    && let Some(rest) = self.rest(&group, erasures)?
                {
                    self.write(name, rest.packed)?;
                    self.delete(&group)?;
                }
            }
        }
        Ok(true)
    }

    /// The entries of neighbours, packed again without erased rows. `None`: a file is damaged, and noted as such.
    fn rest(&mut self, names: &[FileName], erasures: &Erasures) -> Result<Option<Rest>, ArchiveError> {
        let packed = FileWriter::new().map_err(|error| self.io(&self.folder, error))?;
        let mut rest = Rest { packed, has_erased: false };
        for name in names {
            let path = self.path(name);
            match read_file(&path, &self.directory, name, |head, entry| rest.push(head, entry, erasures)) {
                Ok(()) => {}
                // A start reads it again.
                Err(Fault::Io(_) | Fault::File(_) | Fault::Entry { .. }) => {
                    self.damaged.insert(*name);
                    return Ok(None);
                }
            }
        }
        Ok(Some(rest))
    }

    fn write(&mut self, name: FileName, packed: FileWriter) -> Result<(), ArchiveError> {
        let path = self.path(&name);
        let written = (|| {
            let bytes = packed.finish(&self.directory, &name)?;
            if !self.folder.exists() {
                fs::create_dir_all(&self.folder)?;
                // The name of the folder has to be durable as well.
                self.folder.parent().map_or(Ok(()), sync_folder)?;
            }
            replace(&self.folder, NEW, &name.to_string(), &bytes)?;
            Ok(bytes.len() as u64)
        })();
        match written {
            Ok(bytes) => self.index.add(name, bytes),
            Err(error) => {
                // Half a file takes space that others need. A whole one that may not be durable is written again.
                let _ = fs::remove_file(self.folder.join(NEW));
                let _ = fs::remove_file(&path);
                return Err(self.io(&path, error));
            }
        }
        Ok(())
    }

    fn rename(&mut self, from: FileName, to: FileName) -> Result<(), ArchiveError> {
        let path = self.path(&from);
        fs::rename(&path, self.path(&to)).map_err(|error| self.io(&path, error))?;
        let bytes = self.index.remove(&from);
        self.index.add(to, bytes);
        // Until the name is durable, a power cut brings the old one back, and the next start cleans that.
        sync_folder(&self.folder).map_err(|error| self.io(&path, error))
    }

    fn delete(&mut self, names: &[FileName]) -> Result<(), ArchiveError> {
        for name in names {
            let path = self.path(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.io(&path, error)),
                Ok(()) | Err(_) => {}
            }
            self.index.remove(name);
            self.damaged.remove(name);
        }
        match names.is_empty() {
            true => Ok(()),
            false => sync_folder(&self.folder).map_err(|error| self.io(&self.folder, error)),
        }
    }

    fn remove_new(&self) -> Result<(), ArchiveError> {
        let path = self.folder.join(NEW);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.io(&path, error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn path(&self, name: &FileName) -> PathBuf {
        self.folder.join(name.to_string())
    }

    fn io(&self, path: &Path, error: io::Error) -> ArchiveError {
        ArchiveError::Io { path: path.to_owned(), error }
    }
}

impl Rest {
    fn push(&mut self, head: &Head, entry: &[u8], erasures: &Erasures) -> Result<(), Fault> {
        let kept = kept(entry, erasures).map_err(|error| Fault::Entry { row: head.first_row, error })?;
        self.has_erased |= kept != Kept::Whole;
        push(&mut self.packed, entry, kept).map_err(Fault::Io)
    }
}

fn push(packed: &mut FileWriter, entry: &[u8], kept: Kept) -> io::Result<()> {
    match kept {
        Kept::Whole => packed.push(entry),
        Kept::Rest(parts) => parts.iter().try_for_each(|part| packed.push(part)),
    }
}

/// Gives the entries of a file that is whole.
fn read_file(
    path: &Path,
    directory: &str,
    name: &FileName,
    visit: impl FnMut(&Head, &[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let bytes = fs::read(path).map_err(Fault::Io)?;
    RawFile::open(&bytes, directory, name)?.entries(visit)
}

/// The files of a folder. What has another name is not of the archive.
fn list(folder: &Path) -> Result<Found, ArchiveError> {
    let io = |error| ArchiveError::Io { path: folder.to_owned(), error };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::default()),
        Err(error) => return Err(io(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io)?;
        let name = entry.file_name();
        if let Some(name) = name.to_str().and_then(|name| name.parse::<FileName>().ok()) {
            found.push((name, entry.metadata().map_err(io)?.len()));
        }
    }
    Ok(Index::of(found))
}

#[cfg(test)]
mod tests;
