//! Secrets in files that only their owner may read.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rand::TryRng;

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("cannot {verb} {}: {source}", path.display())]
    File { verb: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{} may be read by others (mode {mode:o}); 600 is expected", path.display())]
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
    // What a crash left may have another mode.
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
    let mode = std::fs::metadata(path).map_err(failed("read", path))?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(SecretError::Readable { path: path.to_owned(), mode });
    }
    std::fs::read_to_string(path).map_err(failed("read", path))
}

fn failed<'a>(verb: &'static str, path: &'a Path) -> impl Fn(std::io::Error) -> SecretError + 'a {
    move |source| SecretError::File { verb, path: path.to_owned(), source }
}
