//! Opens directories that a process may create.

use std::io::{self, Write};
use std::path::Path;
use tidemark_streams_store::directory::{Directory, DirectoryError, IfMissing};
use tidemark_streams_store::folder::StoreLayer;

/// Opens a directory, or creates one and says so on standard error: a mistyped path would go unnoticed otherwise.
///
/// # Errors
/// As of [`Directory::open`].
pub fn open_or_create(path: &Path) -> Result<Directory, DirectoryError> {
    open_or_create_through(path, StoreLayer::default())
}

/// The same with a layer in front of the store of blobs.
///
/// # Errors
/// As of [`Directory::open_through`].
pub fn open_or_create_through(path: &Path, layer: StoreLayer) -> Result<Directory, DirectoryError> {
    match Directory::open_through(path, IfMissing::Refuse, layer.clone()) {
        Err(DirectoryError::NoStreams { .. }) => {
            let created = Directory::open_through(path, IfMissing::Create, layer)?;
            let _ = writeln!(io::stderr(), "note: {} is a new directory of event streams", path.display());
            Ok(created)
        }
        opened => opened,
    }
}
