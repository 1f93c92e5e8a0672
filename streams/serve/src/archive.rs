//! The archive of raw events on disk: the folder `raw`, with a file for each range of the intake's log that was counted.
//!
//! Entries go into the archive before the log forgets them. A file is written under another name, synced, renamed, and the folder is
//! synced. So it is there as a whole or not at all, and only then the log is cut.

mod read;

pub use read::{Damaged, DamagedFile, RawError, RawRead, read_raw};
pub use tidemark_streams_intake::archive::coverage::{Coverage, Missing};

use crate::log::IntakeLog;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tidemark_consensus::local::PersistError;
use tidemark_streams_core::erasure::Erasures;
use tidemark_streams_intake::archive::erased::{Kept, kept, without_ids};
use tidemark_streams_intake::archive::file::{FileError, FileName, FileWriter, RawFile};
use tidemark_streams_intake::archive::index::{Found, Index};
use tidemark_streams_intake::archive::keeper::{self, Append, Keeper, Step};
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
    keeper: Keeper,
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
    /// What the rules of the archive go by.
    fn rules(&self, counted: Option<u64>) -> keeper::Turn {
        let erasures = self.erasures.map(Erasures::count);
        keeper::Turn { counted, now_ms: self.now_ms, keep_ms: self.keep_ms, erasures }
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
        let found = list(&folder)?;
        let replaced = found.superseded.clone();
        let mut archive = Archive { folder, directory: directory.to_owned(), keeper: Keeper::new(found) };
        // The files that are there replace others, and the log is cut because of them.
        if !archive.keeper.index().is_empty() {
            archive.sync()?;
        }
        archive.delete(&replaced)?;
        archive.remove_new()?;
        Ok(archive)
    }

    /// Checks that the archive is of the same rows as the log.
    ///
    /// # Errors
    /// [`ArchiveError::Ahead`].
    pub fn check(&self, next_row: u64) -> Result<(), ArchiveError> {
        let archived = self.keeper.index().end();
        match archived <= next_row {
            true => Ok(()),
            false => Err(ArchiveError::Ahead { folder: self.folder.clone(), archived, next_row }),
        }
    }

    pub fn view(&self, erasures: Option<&Erasures>) -> ArchiveView {
        let erasures = erasures.map(Erasures::count);
        let index = self.keeper.index();
        ArchiveView {
            files: index.len() as u64,
            bytes: index.bytes(),
            first_row: index.first().map(|name| name.from),
            first_ms: index.first().map(|name| name.first_ms),
            end: self.keeper.end(),
            damaged: self.keeper.damaged().len() as u64,
            unclean: self.keeper.unclean(erasures),
            erasures,
            problem: None,
        }
    }

    /// The first file that could not be read.
    pub fn first_damaged(&self) -> Option<PathBuf> {
        self.keeper.damaged().first().map(|name| self.path(name))
    }

    /// Archives rows that are counted, at most a file of them, or does other work for a moment. `true`: more is to be done.
    ///
    /// # Errors
    /// [`ArchiveError`]. The files are as they were before, or as they should be.
    pub fn turn(&mut self, log: &IntakeLog, turn: &Turn<'_>) -> Result<bool, ArchiveError> {
        let begun = Instant::now();
        self.forget_missing();
        self.keeper.begin();
        let rules = turn.rules(log.counted(turn.committed));
        while let Some(step) = self.keeper.next(&rules) {
            match &step {
                Step::Remove(old) => match self.delete(old) {
                    Ok(()) => {}
                    // Rows do not wait for files that cannot be removed.
                    Err(_) if self.keeper.removal_failed(&rules) => {}
                    Err(error) => return Err(error),
                },
                Step::Append { from } => {
                    self.append(log, turn, *from)?;
                    return Ok(true);
                }
                Step::Sync => self.sync()?,
                Step::Rewrite { old, new } => self.rewrite(old, *new, turn)?,
            }
            if begun.elapsed() >= TURN && !self.keeper.has_rows(&rules) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether counted rows wait to be archived.
    pub fn has_rows(&self, log: &IntakeLog, turn: &Turn<'_>) -> bool {
        self.keeper.has_rows(&turn.rules(log.counted(turn.committed)))
    }

    /// Forgets damaged files that an operator has deleted.
    fn forget_missing(&mut self) {
        let damaged = self.keeper.damaged().iter();
        let missing: Vec<FileName> = damaged.filter(|name| !self.path(name).exists()).copied().collect();
        missing.iter().for_each(|name| self.keeper.removed(name));
    }

    /// Takes erased rows out of all files that can be read.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub fn clean(&mut self, erasures: &Erasures) -> Result<(), ArchiveError> {
        self.tidy(&Turn { committed: 0, now_ms: 0, keep_ms: Some(u64::MAX), erasures: Some(erasures) })
    }

    /// Does all work on files.
    fn tidy(&mut self, turn: &Turn<'_>) -> Result<(), ArchiveError> {
        self.keeper.begin();
        while let Some(step) = self.keeper.next(&turn.rules(None)) {
            match &step {
                Step::Sync => self.sync()?,
                Step::Remove(old) => self.delete(old)?,
                Step::Rewrite { old, new } => self.rewrite(old, *new, turn)?,
                // No rows wait without a log.
                Step::Append { .. } => return Ok(()),
            }
        }
        Ok(())
    }

    /// Writes a file of the next entries.
    fn append(&mut self, log: &IntakeLog, turn: &Turn<'_>, from: u64) -> Result<(), ArchiveError> {
        let none = Erasures::default();
        let erasures = turn.erasures.unwrap_or(&none);
        let mut packed = FileWriter::new().map_err(|error| self.io(&self.folder, error))?;
        let mut append = Append::new(from, erasures.count());
        for entry in log.counted_entries(from, turn.committed)? {
            let (index, bytes) = entry?;
            let of_entry = |error| ArchiveError::Entry { index, error };
            if !append.add(&Head::decode(&bytes).map_err(of_entry)?) {
                continue;
            }
            let bytes = without_ids(&bytes).map_err(of_entry)?;
            let kept = kept(&bytes, erasures).map_err(of_entry)?;
            push(&mut packed, &bytes, kept).map_err(|error| self.io(&self.folder, error))?;
            if packed.bytes() >= RAW_FILE_BYTES_MAX {
                break;
            }
        }
        let bytes = append.name().map_or(Ok(0), |name| self.write(&name, packed))?;
        self.keeper.appended(&append, bytes);
        Ok(())
    }

    /// Writes files again, as one without erased rows. The next steps remove the old ones.
    fn rewrite(&mut self, old: &[FileName], new: FileName, turn: &Turn<'_>) -> Result<(), ArchiveError> {
        let none = Erasures::default();
        match (self.rest(old, turn.erasures.unwrap_or(&none))?, old) {
            (None, _) => Ok(()),
            (Some(rest), [name]) if !rest.has_erased => self.rename(*name, new),
            (Some(rest), _) => {
                let bytes = self.write(&new, rest.packed)?;
                self.keeper.rewritten(old, new, bytes);
                Ok(())
            }
        }
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
                    self.keeper.cannot_read(name);
                    return Ok(None);
                }
            }
        }
        Ok(Some(rest))
    }

    /// Writes a file, and returns its bytes. It is durable then.
    fn write(&self, name: &FileName, packed: FileWriter) -> Result<u64, ArchiveError> {
        let path = self.path(name);
        let written = (|| {
            let bytes = packed.finish(&self.directory, name)?;
            if !self.folder.exists() {
                fs::create_dir_all(&self.folder)?;
                // The name of the folder has to be durable as well.
                self.folder.parent().map_or(Ok(()), sync_folder)?;
            }
            replace(&self.folder, NEW, &name.to_string(), &bytes)?;
            Ok(bytes.len() as u64)
        })();
        written.map_err(|error| {
            // Half a file takes space that others need. A whole one that may not be durable is written again.
            let _ = fs::remove_file(self.folder.join(NEW));
            let _ = fs::remove_file(&path);
            self.io(&path, error)
        })
    }

    fn rename(&mut self, from: FileName, to: FileName) -> Result<(), ArchiveError> {
        let path = self.path(&from);
        fs::rename(&path, self.path(&to)).map_err(|error| self.io(&path, error))?;
        self.keeper.renamed(&from, to);
        // Until the name is durable, a power cut brings the old one back, and the next start cleans that.
        sync_folder(&self.folder).map_err(|error| self.io(&path, error))
    }

    fn sync(&mut self) -> Result<(), ArchiveError> {
        sync_folder(&self.folder).map_err(|error| self.io(&self.folder, error))?;
        self.keeper.synced();
        Ok(())
    }

    fn delete(&mut self, names: &[FileName]) -> Result<(), ArchiveError> {
        for name in names {
            let path = self.path(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.io(&path, error)),
                Ok(()) | Err(_) => {}
            }
            self.keeper.removed(name);
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
