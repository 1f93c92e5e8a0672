//! The bearer token that a process's HTTP interface asks for: 128 random bits in a file that only its owner may read.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rand::TryRng;
use subtle::ConstantTimeEq;

/// The file's name in a data directory.
pub const TOKEN_FILE: &str = "token";
/// A token shorter than this could be guessed.
pub const TOKEN_BYTES_MIN: usize = 16;
/// Longest token.
pub const TOKEN_BYTES_MAX: usize = 256;
/// Random bits of a token that we make, in bytes.
const RANDOM_BYTES: usize = 16;

/// A bearer token. Its `Debug` does not show it.
#[derive(Clone)]
pub struct Token(String);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("cannot {verb} {}: {source}", path.display())]
    File { verb: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{} may be read by others (mode {mode:o}); 600 is expected", path.display())]
    Readable { path: PathBuf, mode: u32 },
    #[error("token of {bytes} bytes: {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} visible ASCII characters allowed")]
    Shape { bytes: usize },
    #[error("the system gives no random numbers: {0}")]
    Random(String),
}

impl Token {
    /// A given token; surrounding blanks are dropped.
    pub fn new(text: &str) -> Result<Token, TokenError> {
        let text = text.trim();
        let allowed = (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&text.len());
        if !allowed || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Shape { bytes: text.len() });
        }
        Ok(Token(text.to_owned()))
    }

    /// A new random token.
    pub fn random() -> Result<Token, TokenError> {
        let mut bytes = [0; RANDOM_BYTES];
        rand::rngs::SysRng.try_fill_bytes(&mut bytes).map_err(|error| TokenError::Random(error.to_string()))?;
        Ok(Token(crate::names::hex(&bytes)))
    }

    /// The token of a data directory; made at the first call. A file that others may read is refused.
    pub fn of_dir(dir: &Path) -> Result<Token, TokenError> {
        let path = dir.join(TOKEN_FILE);
        if !path.exists() {
            Token::random()?.write(&path)?;
        }
        Token::read(&path)
    }

    /// Whole or not at all: a crash leaves no empty token behind.
    fn write(&self, path: &Path) -> Result<(), TokenError> {
        let new = path.with_extension("new");
        let mut options = std::fs::OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(0o600).open(&new).map_err(failed("create", &new))?;
        file.write_all(format!("{}\n", self.0).as_bytes()).map_err(failed("write", &new))?;
        file.sync_all().map_err(failed("write", &new))?;
        std::fs::rename(&new, path).map_err(failed("create", path))
    }

    /// Reads a token file; refuses one that others may read.
    pub fn read(path: &Path) -> Result<Token, TokenError> {
        let mode = std::fs::metadata(path).map_err(failed("read", path))?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(TokenError::Readable { path: path.to_owned(), mode });
        }
        Token::new(&std::fs::read_to_string(path).map_err(failed("read", path))?)
    }

    /// Whether `presented` is this token, in a time that does not depend on where they differ.
    pub fn is(&self, presented: &str) -> bool {
        self.0.as_bytes().ct_eq(presented.as_bytes()).into()
    }

    /// The text, for an `Authorization` header.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

fn failed<'a>(verb: &'static str, path: &'a Path) -> impl Fn(std::io::Error) -> TokenError + 'a {
    move |source| TokenError::File { verb, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_token_to_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let token = Token::of_dir(dir.path()).unwrap();
        assert_eq!(token.as_str().len(), 2 * RANDOM_BYTES);
        assert!(Token::of_dir(dir.path()).unwrap().is(token.as_str()));
        let path = dir.path().join(TOKEN_FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Token::of_dir(dir.path()), Err(TokenError::Readable { mode: 0o640, .. })));
    }

    #[test]
    fn tokens_that_could_be_guessed_or_not_be_sent_are_refused() {
        assert!(matches!(Token::new("short"), Err(TokenError::Shape { bytes: 5 })));
        assert!(matches!(Token::new(&"x".repeat(257)), Err(TokenError::Shape { bytes: 257 })));
        assert!(Token::new("with a blank in its middle").is_err());
        let token = Token::random().unwrap();
        assert!(!token.is(&token.as_str()[1..]) && !token.is(Token::random().unwrap().as_str()));
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
