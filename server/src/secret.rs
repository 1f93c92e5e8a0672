//! Secrets in files that only their owner may read.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rand::TryRng;
use tidemark_tls::private_file::{self, PrivateFileError};

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
pub fn read(path: &Path) -> Result<String, SecretError> {
    let file = private_file::open(path).map_err(|error| match error {
        PrivateFileError::Io(source) => failed("read", path)(source),
        PrivateFileError::Readable { mode } => SecretError::Readable { path: path.to_owned(), mode },
    })?;
    io::read_to_string(file).map_err(failed("read", path))
}

fn failed<'a>(verb: &'static str, path: &'a Path) -> impl Fn(std::io::Error) -> SecretError + 'a {
    move |source| SecretError::File { verb, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

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
