//! Makes files durable: `object_store` writes files of a local folder, and never syncs them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Makes the files of one folder durable. A test puts a power cut in its place.
pub trait Durability {
    /// Makes the bytes of a file durable.
    fn sync_file(&mut self, name: &str) -> io::Result<()>;
    /// Makes names durable: those that were given, and those that were removed.
    fn sync_names(&mut self) -> io::Result<()>;
}

/// A folder of the file system.
#[derive(Debug)]
pub struct LocalDisk {
    path: PathBuf,
}

impl LocalDisk {
    pub fn new(path: impl Into<PathBuf>) -> LocalDisk {
        LocalDisk { path: path.into() }
    }
}

impl Durability for LocalDisk {
    fn sync_file(&mut self, name: &str) -> io::Result<()> {
        File::open(self.path.join(name))?.sync_all()
    }

    fn sync_names(&mut self) -> io::Result<()> {
        sync_folder(&self.path)
    }
}

/// Makes the names in a folder durable.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Creates a file that is durable as a whole or is not there. `temporary` is a name beside it, which is replaced.
///
/// # Errors
/// A file of that name is there: [`io::ErrorKind::AlreadyExists`]. Or it cannot be written.
pub fn write_new(folder: &Path, temporary: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let written = folder.join(temporary);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&written)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    // A rename would replace a file of that name; a link does not.
    fs::hard_link(&written, folder.join(name))?;
    fs::remove_file(written)?;
    sync_folder(folder)
}

/// Replaces a file, or creates it. It is the old one or the new one, as a whole.
///
/// # Errors
/// It cannot be written.
pub fn replace(folder: &Path, temporary: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let written = folder.join(temporary);
    let mut file = File::create(&written)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&written, folder.join(name))?;
    sync_folder(folder)
}
