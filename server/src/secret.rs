//! Secrets in files that only their owner may read.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rand::TryRng;

/// The user id of root.
const ROOT: u32 = 0;

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("cannot {verb} {}: {source}", path.display())]
    File { verb: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{} may be read by others (mode {mode:o}); 600 is expected, or 640 of a file that root owns", path.display())]
    Readable { path: PathBuf, mode: u32 },
    #[error("the system gives no random numbers: {0}")]
    Random(String),
}

/// Random bytes of the operating system.
pub fn random<const N: usize>() -> Result<[u8; N], SecretError> {
    let mut bytes = [0; N];
    rand::rngs::SysRng.try_fill_bytes(&mut bytes).map_err(|error| SecretError::Random(error.to_string()))?;
    Ok(bytes)
}

/// Writes a line for the owner's eyes; whole or not at all: a crash leaves no empty secret behind.
pub fn write(path: &Path, line: &str) -> Result<(), SecretError> {
    let new = path.with_extension("new");
    // A file that a crash left may have another mode.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed("remove", &new)(error)),
        _ => {}
    }
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&new).map_err(failed("create", &new))?;
    file.write_all(format!("{line}\n").as_bytes()).map_err(failed("write", &new))?;
    file.sync_all().map_err(failed("write", &new))?;
    std::fs::rename(&new, path).map_err(failed("create", path))
}

/// Reads a file; refuses one that others may read.
///
/// The group may read a file that root owns: so Kubernetes and systemd hand secrets to a process that is not their owner. The owner of
/// any other file could have kept it to itself.
pub fn read(path: &Path) -> Result<String, SecretError> {
    let file = std::fs::metadata(path).map_err(failed("read", path))?;
    let mode = file.mode() & 0o777;
    if mode & others(file.uid()) != 0 {
        return Err(SecretError::Readable { path: path.to_owned(), mode });
    }
    std::fs::read_to_string(path).map_err(failed("read", path))
}

/// The permissions that a secret's mode must not have.
fn others(owner: u32) -> u32 {
    if owner == ROOT { 0o037 } else { 0o077 }
}

fn failed<'a>(verb: &'static str, path: &'a Path) -> impl Fn(std::io::Error) -> SecretError + 'a {
    move |source| SecretError::File { verb, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn group_may_read_what_root_owns_only() {
        assert_eq!([0o600_u32, 0o400, 0o640, 0o440].map(|mode| mode & others(ROOT)), [0; 4]);
        assert!([0o660_u32, 0o644, 0o604, 0o650].iter().all(|mode| mode & others(ROOT) != 0));
        assert_eq!([0o600_u32, 0o400].map(|mode| mode & others(1_000)), [0; 2]);
        assert!([0o640_u32, 0o440, 0o604].iter().all(|mode| mode & others(1_000) != 0));
    }

    #[test]
    fn secret_of_everybody_is_refused_with_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        write(&path, "line").unwrap();
        assert_eq!(read(&path).unwrap(), "line\n");
        for mode in [0o644, 0o660] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let refused = read(&path).unwrap_err().to_string();
            assert!(refused.contains(&format!("(mode {mode:o}); 600 is expected")), "{refused}");
        }
    }
}
