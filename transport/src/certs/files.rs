//! PEM files: private keys are readable by their owner only, and a file is either old or new, never half.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Mode of files with a private key.
const MODE_PRIVATE: u32 = 0o600;
/// Mode of files with certificates.
const MODE_PUBLIC: u32 = 0o644;
/// Longest PEM file that is read, in bytes: a certificate of ours takes under 2 KiB.
const PEM_BYTES_MAX: u64 = 64 * 1024;

/// A PEM file could not be used.
#[derive(Debug, Error)]
pub enum FileError {
    /// The operating system refused.
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// The failed action.
        verb: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file would replace a CA, and with it every certificate of a cluster.
    #[error("{} exists already; a cluster's CA is not overwritten", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file is no PEM file of ours.
    #[error("{} has {bytes} bytes, the limit of a PEM file is {limit}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The longest that is read.
        limit: u64,
    },
    /// The content is not what the file's name promises.
    #[error("{} is not usable: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
}

impl FileError {
    fn io(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { verb, path: path.to_owned(), source }
    }

    pub(super) fn content<E: ToString>(path: &Path) -> impl FnOnce(E) -> Self {
        move |error| Self::Content { path: path.to_owned(), reason: error.to_string() }
    }
}

/// Makes the folder and what leads to it.
pub(super) fn make_dir(dir: &Path) -> Result<(), FileError> {
    fs::create_dir_all(dir).map_err(FileError::io("create", dir))
}

/// Refuses if the file is there.
pub(super) fn must_not_exist(path: &Path) -> Result<(), FileError> {
    match path.try_exists().map_err(FileError::io("look at", path))? {
        true => Err(FileError::Exists { path: path.to_owned() }),
        false => Ok(()),
    }
}

/// Writes a private key.
pub(super) fn write_private(path: &Path, pem: &str) -> Result<(), FileError> {
    replace(path, pem, MODE_PRIVATE)
}

/// Writes a certificate.
pub(super) fn write_public(path: &Path, pem: &str) -> Result<(), FileError> {
    replace(path, pem, MODE_PUBLIC)
}

/// Reads a PEM file of at most [`PEM_BYTES_MAX`].
pub(super) fn read(path: &Path) -> Result<String, FileError> {
    let bytes = fs::metadata(path).map_err(FileError::io("read", path))?.len();
    if bytes > PEM_BYTES_MAX {
        return Err(FileError::TooLarge { path: path.to_owned(), bytes, limit: PEM_BYTES_MAX });
    }
    fs::read_to_string(path).map_err(FileError::io("read", path))
}

fn replace(path: &Path, text: &str, mode: u32) -> Result<(), FileError> {
    let draft = path.with_extension("draft");
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(FileError::io("remove", &draft)(error));
        }
        _ => {}
    }
    write_new(&draft, text, mode).map_err(FileError::io("write", &draft))?;
    fs::rename(&draft, path).map_err(FileError::io("write", path))
}

fn write_new(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
