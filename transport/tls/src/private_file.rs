//! Files that only their owner may read: secrets, tokens and keys that sign, of the counters and of event streams.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The user id of root.
const ROOT: u32 = 0;

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("others may read it (mode {mode:o}): 600 is expected, or 640 of a file that root owns; `chmod 600` it")]
    Readable { mode: u32 },
}

/// Opens a file; refuses one that others may read.
///
/// The group may read a file that root owns: so Kubernetes and systemd hand secrets to a process that is not their owner. The owner of
/// any other file could have kept it to itself.
///
/// # Errors
/// [`PrivateFileError`].
pub fn open(path: &Path) -> Result<File, PrivateFileError> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let mode = metadata.mode() & 0o777;
    if mode & others(metadata.uid()) == 0 { Ok(file) } else { Err(PrivateFileError::Readable { mode }) }
}

/// The permissions that a mode must not have.
fn others(owner: u32) -> u32 {
    if owner == ROOT { 0o037 } else { 0o077 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn group_may_read_what_root_owns_only() {
        assert_eq!([0o600_u32, 0o400, 0o640, 0o440].map(|mode| mode & others(ROOT)), [0; 4]);
        assert!([0o660_u32, 0o644, 0o604, 0o650].iter().all(|mode| mode & others(ROOT) != 0));
        assert_eq!([0o600_u32, 0o400].map(|mode| mode & others(1_000)), [0; 2]);
        assert!([0o640_u32, 0o440, 0o604].iter().all(|mode| mode & others(1_000) != 0));
    }

    #[test]
    fn file_of_everybody_is_refused_with_its_mode() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let opened = |mode| {
            std::fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            open(file.path())
        };
        for mode in [0o644, 0o660, 0o604] {
            let said = opened(mode).unwrap_err().to_string();
            assert!(said.contains(&format!("(mode {mode:o}): 600 is expected")), "{said}");
        }
        assert!(opened(0o600).is_ok());
    }
}
