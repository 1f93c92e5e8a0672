//! Opens directories that a command may create.

use std::io::{self, Write};
use std::path::Path;
use tidemark_streams_store::directory::{Directory, DirectoryError, IfMissing};

/// Opens a directory, or creates one and says so on standard error: a mistyped path would go unnoticed otherwise.
///
/// # Errors
/// As of [`Directory::open`].
pub fn open_or_create(path: &Path) -> Result<Directory, DirectoryError> {
    match Directory::open(path, IfMissing::Refuse) {
        Err(DirectoryError::NoStreams { .. }) => {
            let created = Directory::open(path, IfMissing::Create)?;
            let _ = writeln!(io::stderr(), "note: {} is a new directory of event streams", path.display());
            Ok(created)
        }
        opened => opened,
    }
}
