//! Builds the manifest of a directory again when its file is lost or damaged.

use crate::dead_letters::{self, DeadLettersError};
use crate::directory::{DirectoryError, MANIFEST, blobs_of, identity, lock, refused};
use crate::disk::sync_folder;
use crate::folder::{Folder, Found as FileFound, file_name};
use crate::footer::{FooterError, Said};
use crate::head::{self, HeadError, HeadOf};
use crate::host::{ManifestError, ManifestHost};
use crate::parquet_rows::{self, RowsError};
use bytes::Bytes;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemark_consensus::local::{OpenError, PersistError, remove};
use tidemark_streams_core::blob::{Level, StoredBlob};
use tidemark_streams_core::codec::DecodeError;
use tidemark_streams_core::manifest::{Gone, Manifest, SnapshotError};
use tidemark_streams_core::owner::{Content, Origin};
use tidemark_streams_core::recover::{CannotRecover, Files, Found, Report, recover};
use tidemark_streams_core::scope::Scope;
use xxhash_rust::xxh3::xxh3_64;

const NEW_MANIFEST: &str = "manifest.redb.new";
/// The lost files of a directory that are kept.
const LOST_MAX: u32 = 1_000;

/// A manifest as it would be.
pub struct Recovery {
    path: PathBuf,
    directory: String,
    manifest: Manifest,
    gone: Gone,
    /// Held from the first look at the files until the manifest is written.
    _lock: File,
    pub reports: Vec<Report>,
    /// Files that do not count, and why.
    pub passed_over: Vec<PassedOver>,
}

/// A file that is no blob of this directory, or is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    pub name: String,
    pub why: String,
}

/// Why a manifest is not built again. Nothing changes then.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("{}: the manifest is whole: there is nothing to build again", path.display())]
    Whole { path: PathBuf },
    #[error(
        "{error}; this does not say that the manifest is damaged: mend the cause, or move {MANIFEST} away to have it built again"
    )]
    NotLost { error: ManifestError },
    #[error(transparent)]
    Head(#[from] HeadError),
    #[error(
        "{}: {} is missing: nothing else says what was erased, how long rows are kept, and which blobs were live; restore it from a copy \
         of the directory",
        path.display(), head::HEAD
    )]
    NoHead { path: PathBuf },
    #[error("the manifest is not built again: {0}")]
    Undecided(#[from] CannotRecover),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

/// Why a file is no blob.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error(transparent)]
    Rows(#[from] RowsError),
    #[error("the bounds of its pages are damaged")]
    Pages,
    #[error(transparent)]
    Letters(#[from] DeadLettersError),
    #[error(transparent)]
    Footer(#[from] FooterError),
}

/// What a file is.
enum Judged {
    Whole(Box<Found>),
    Damaged(String),
    Foreign(String),
}

/// Looks at all files of a directory whose manifest is lost or damaged.
///
/// # Errors
/// [`RecoverError`]: the manifest is whole, or what is there does not decide what counts.
pub fn examine(path: &Path) -> Result<Recovery, RecoverError> {
    let directory = identity(path)?;
    let lock = lock(path)?;
    check_lost(path, &directory)?;
    let HeadOf { head, .. } =
        head::read(path, &directory)?.ok_or_else(|| RecoverError::NoHead { path: path.to_owned() })?;
    let blobs = blobs_of(path);
    let of_folder = |error| DirectoryError::Folder { path: blobs.clone(), error };
    let folder = Folder::open(&blobs).map_err(of_folder)?;
    let listing = folder.list().map_err(of_folder)?;
    let mut files = Files::default();
    let mut passed_over = Vec::new();
    for file in &listing.blobs {
        let name = file.name.clone();
        let bytes = folder.read_file(&file.name).map_err(of_folder)?;
        match judged(bytes, file, &directory) {
            Judged::Whole(found) => files.whole.push(*found),
            Judged::Damaged(why) => {
                files.damaged.push(file.key);
                passed_over.push(PassedOver { name, why });
            }
            Judged::Foreign(why) => passed_over.push(PassedOver { name, why }),
        }
    }
    let gone = head.gone().clone();
    let (manifest, reports) = recover(head, &files)?;
    Ok(Recovery { path: path.to_owned(), directory, manifest, gone, _lock: lock, reports, passed_over })
}

/// Whether the manifest cannot be opened, and no other process has it open.
fn check_lost(path: &Path, directory: &str) -> Result<(), RecoverError> {
    let file = path.join(MANIFEST);
    if !file.exists() {
        return Ok(());
    }
    match ManifestHost::open(&file, directory) {
        Ok(_) => Err(RecoverError::Whole { path: path.to_owned() }),
        Err(error @ ManifestError::Open(OpenError::Locked { .. } | OpenError::Foreign { .. })) => {
            Err(refused(path, error).into())
        }
        Err(ManifestError::Head(error @ HeadError::OtherDirectory { .. })) => Err(error.into()),
        Err(error) if is_lost(&error) => Ok(()),
        Err(error) => Err(RecoverError::NotLost { error }),
    }
}

/// Whether an error says that a manifest is damaged, was emptied, or is not that of its head. A device that fails or a later version does
/// not say so.
fn is_lost(error: &ManifestError) -> bool {
    match error {
        ManifestError::Open(error) => match error {
            OpenError::Corrupt { .. } | OpenError::Rows { .. } => true,
            OpenError::Locked { .. }
            | OpenError::Foreign { .. }
            | OpenError::OtherEra { .. }
            | OpenError::Full { .. }
            | OpenError::Io { .. } => false,
        },
        ManifestError::Read(error) => match error {
            PersistError::Corrupt(_) => true,
            PersistError::Full(_) | PersistError::Io(_) => false,
        },
        ManifestError::Entry { error, .. } | ManifestError::Snapshot(SnapshotError::Decode(error)) => {
            !matches!(error, DecodeError::Version { .. })
        }
        ManifestError::Snapshot(_)
        | ManifestError::Missing { .. }
        | ManifestError::BehindHead { .. }
        | ManifestError::OtherGeneration { .. }
        | ManifestError::Generation { .. } => true,
        ManifestError::Submit(_)
        | ManifestError::Write(_)
        | ManifestError::Checkpoint(_)
        | ManifestError::Truncate(_)
        | ManifestError::TooLong(_)
        | ManifestError::Command(_)
        | ManifestError::Head(_) => false,
    }
}

fn judged(bytes: Bytes, file: &FileFound, directory: &str) -> Judged {
    let stored = StoredBlob { bytes: bytes.len() as u64, checksum: xxh3_64(&bytes) };
    let (said, content) = match read(bytes, file) {
        Ok(read) => read,
        Err(why) => return Judged::Damaged(why.to_string()),
    };
    let Some(said) = said else {
        let meta = content.meta(file.key, Level::DeadLetters, Scope::ALL, stored);
        return Judged::Whole(Box::new(Found { meta, origin: Origin::Blobs([].into()), after: None }));
    };
    let Said { directory: found, key, level, scope, origin, after } = said;
    if found != directory {
        return Judged::Foreign(format!("it is of directory {found}"));
    }
    if key != file.key || file_name(&key, level) != file.name {
        return Judged::Foreign(format!("it says that it is blob {key}"));
    }
    Judged::Whole(Box::new(Found { meta: content.meta(key, level, scope, stored), origin, after }))
}

/// What a file says of itself, and its content.
fn read(bytes: Bytes, file: &FileFound) -> Result<(Option<Said>, Content), Unreadable> {
    if file.name != file_name(&file.key, Level::DeadLetters) {
        let (rows, footer) = parquet_rows::decode_with_footer(bytes.clone())?;
        if !parquet_rows::is_as_written(&bytes, &rows, &footer)? {
            return Err(Unreadable::Pages);
        }
        return Ok((Some(footer.said()?), Content::Rows(Arc::new(rows))));
    }
    let (letters, footer) = dead_letters::decode_with_footer(&bytes)?;
    let said = footer.map(|footer| footer.said()).transpose()?;
    Ok((said, Content::DeadLetters(Arc::new(letters))))
}

impl Recovery {
    /// The manifest as it would be.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The id of the directory.
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// Writes the manifest. The old file, if there is one, gets the name that is returned.
    ///
    /// # Errors
    /// It cannot be written. A manifest that was cut off is built again.
    pub fn write(mut self) -> Result<Option<PathBuf>, RecoverError> {
        let io = |error| RecoverError::Io { path: self.path.clone(), error };
        let new = self.path.join(NEW_MANIFEST);
        remove(&new).map_err(io)?;
        let host = ManifestHost::create(&new, &self.directory, &mut self.manifest, self.gone.clone())?;
        // From here on the head is of the new generation, and no older manifest is opened. If the rest is cut off, the manifest is built
        // again from this head.
        host.write_head()?;
        drop(host);
        let file = self.path.join(MANIFEST);
        let lost = file.exists().then(|| lost_name(&self.path)).transpose().map_err(io)?;
        if let Some(lost) = &lost {
            fs::rename(&file, lost).map_err(io)?;
        }
        fs::rename(&new, &file).map_err(io)?;
        sync_folder(&self.path).map_err(io)?;
        Ok(lost)
    }
}

/// A name for the old manifest that no file has.
fn lost_name(path: &Path) -> io::Result<PathBuf> {
    let names = (1..=LOST_MAX).map(|number| path.join(format!("{MANIFEST}.lost-{number}")));
    let free = names.into_iter().find(|name| !name.exists());
    free.ok_or_else(|| io::Error::other(format!("{LOST_MAX} lost manifests are kept: delete some")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_that_fails_or_later_version_is_no_lost_manifest() {
        let name = || "manifest.redb".to_owned();
        let entry = |error| ManifestError::Entry { index: 7, error };
        let kept = [
            ManifestError::Open(OpenError::Io { source_name: name(), reason: "permission denied".to_owned() }),
            ManifestError::Open(OpenError::Full { source_name: name() }),
            ManifestError::Read(PersistError::Io("too many open files".to_owned())),
            ManifestError::Write(PersistError::Full("no space is left".to_owned())),
            entry(DecodeError::Version { found: 9, known: 3 }),
            ManifestError::Snapshot(SnapshotError::Decode(DecodeError::Version { found: 9, known: 3 })),
            ManifestError::Head(HeadError::Version { found: 9 }),
        ];
        kept.iter().for_each(|error| assert!(!is_lost(error), "{error}"));
        let lost = [
            ManifestError::Open(OpenError::Corrupt { source_name: name(), reason: "no database".to_owned() }),
            ManifestError::Read(PersistError::Corrupt("a page".to_owned())),
            entry(DecodeError::Empty),
            ManifestError::BehindHead { index: 1, head: 7 },
            ManifestError::OtherGeneration { found: 0, head: 7 },
        ];
        lost.iter().for_each(|error| assert!(is_lost(error), "{error}"));
    }
}
