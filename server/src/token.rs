//! The bearer token that a process's HTTP interface asks for: 128 random bits in a file that only its owner may read.

use std::path::Path;

use subtle::ConstantTimeEq;

use crate::secret::{self, SecretError};

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
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("token of {bytes} bytes: {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} visible ASCII characters allowed")]
    Shape { bytes: usize },
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
        Ok(Token(crate::names::hex(&secret::random::<RANDOM_BYTES>()?)))
    }

    /// The token of a data directory; made at the first call. A file that others may read is refused.
    pub fn of_dir(dir: &Path) -> Result<Token, TokenError> {
        let path = dir.join(TOKEN_FILE);
        if !path.exists() {
            secret::write(&path, &Token::random()?.0)?;
        }
        Token::read(&path)
    }

    /// Reads a token file; refuses one that others may read.
    pub fn read(path: &Path) -> Result<Token, TokenError> {
        Token::new(&secret::read(path)?)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_keeps_its_token_to_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let token = Token::of_dir(dir.path()).unwrap();
        assert_eq!(token.as_str().len(), 2 * RANDOM_BYTES);
        assert!(Token::of_dir(dir.path()).unwrap().is(token.as_str()));
        let path = dir.path().join(TOKEN_FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(
            Token::of_dir(dir.path()),
            Err(TokenError::Secret(SecretError::Readable { mode: 0o644, .. }))
        ));
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
