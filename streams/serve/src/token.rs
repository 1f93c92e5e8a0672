//! The token of a query process, which it sends to the servers.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use tidemark_tls::private_file::{self, PrivateFileError};

/// Bytes of a file with a token, at most.
const BYTES_MAX: u64 = 4_096;

/// It is not shown.
#[derive(Clone)]
pub struct Token(String);

/// Why a file has no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error(transparent)]
    File(#[from] PrivateFileError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it has {bytes} bytes: at most {BYTES_MAX}")]
    Long { bytes: u64 },
    #[error("it is empty")]
    Empty,
    #[error("it has {words} words in {bytes} bytes: one token is expected")]
    Words { words: usize, bytes: usize },
    #[error("byte {number} of its {bytes} bytes is no letter, digit or sign of ASCII")]
    Sign { number: usize, bytes: usize },
}

impl Token {
    /// # Errors
    /// [`TokenError`].
    pub fn read(path: &Path) -> Result<Token, TokenError> {
        let file = private_file::open(path)?;
        let of_file = file.metadata()?.len();
        let mut bytes = Vec::new();
        file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 {
            0..=BYTES_MAX => Token::of(&bytes),
            read => Err(TokenError::Long { bytes: of_file.max(read) }),
        }
    }

    fn of(file: &[u8]) -> Result<Token, TokenError> {
        let bytes = file.len();
        let is_no_sign = |byte: &u8| !byte.is_ascii_graphic() && !byte.is_ascii_whitespace();
        if let Some(at) = file.iter().position(is_no_sign) {
            return Err(TokenError::Sign { number: at + 1, bytes });
        }
        // All of it is ASCII.
        let text = String::from_utf8_lossy(file);
        let mut words = text.split_ascii_whitespace();
        match (words.next(), words.count()) {
            (None, _) => Err(TokenError::Empty),
            (Some(token), 0) => Ok(Token(token.to_owned())),
            (Some(_), further) => Err(TokenError::Words { words: 1 + further, bytes }),
        }
    }

    pub fn text(&self) -> &str {
        &self.0
    }
}

impl From<String> for Token {
    fn from(text: String) -> Token {
        Token(text)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::{Secret, SecretError};
    use crate::signed::{KeyError, SigningKey};
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn token_is_one_word_and_is_not_shown() {
        let token = Token::of(b" signed.follower..never.00\n").unwrap();
        assert_eq!(token.text(), "signed.follower..never.00");
        assert_eq!(format!("{token:?}"), "Token(…)");
        let said = |file: &[u8]| Token::of(file).unwrap_err().to_string();
        assert_eq!([said(b""), said(b" \n")], ["it is empty"; 2]);
        assert_eq!(said(b"two words\n"), "it has 2 words in 10 bytes: one token is expected");
        assert_eq!(said("aä".as_bytes()), "byte 2 of its 3 bytes is no letter, digit or sign of ASCII");
        assert_eq!(said(b"a\0"), "byte 2 of its 2 bytes is no letter, digit or sign of ASCII");
    }

    #[test]
    fn files_of_tokens_are_bounded() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (bytes, said) in [
            (4_096, None),
            (4_097, Some("it has 4097 bytes: at most 4096")),
            (5_000, Some("it has 5000 bytes: at most 4096")),
        ] {
            std::fs::write(file.path(), "a".repeat(bytes)).unwrap();
            assert_eq!(Token::read(file.path()).err().map(|error| error.to_string()).as_deref(), said);
        }
    }

    #[test]
    fn secrets_tokens_and_keys_of_everybody_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        std::fs::write(path, "0123456789abcdef\n").unwrap();
        for mode in [0o644, 0o660, 0o604] {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            assert!(matches!(Secret::read(path), Err(SecretError::File(PrivateFileError::Readable { .. }))));
            assert!(matches!(Token::read(path), Err(TokenError::File(PrivateFileError::Readable { .. }))));
            assert!(matches!(SigningKey::read(path), Err(KeyError::File(PrivateFileError::Readable { .. }))));
        }
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        assert!(Secret::read(path).is_ok() && Token::read(path).is_ok());
        assert!(matches!(SigningKey::read(path), Err(KeyError::Pem { .. })));
    }
}
