//! Tokens. A secret gives the token of producers, and a token for each tenant, which reads that tenant's rows only.
//!
//! A token is an HMAC of its owner under the secret, so no table of tenants is needed.

use ring::hmac;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use subtle::ConstantTimeEq;

/// Bytes of a secret, at least and at most.
const BYTES_MIN: usize = 16;
const BYTES_MAX: usize = 4_096;

/// The key that tokens are made of.
#[derive(Clone)]
pub struct Secret(hmac::Key);

/// Why a file is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the secret has {bytes} bytes: {BYTES_MIN} to {BYTES_MAX}; `openssl rand -hex 32` makes one")]
    Length { bytes: usize },
}

/// The role of a token's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role<'a> {
    /// Sends events, and reads all tenants.
    Producer,
    /// Reads the rows of one tenant.
    Tenant(&'a str),
    /// Pauses and resumes.
    Operator,
}

impl Secret {
    pub fn new(bytes: &[u8]) -> Result<Secret, SecretError> {
        let bytes = bytes.trim_ascii();
        match bytes.len() {
            BYTES_MIN..=BYTES_MAX => Ok(Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes))),
            bytes => Err(SecretError::Length { bytes }),
        }
    }

    /// # Errors
    /// [`SecretError`].
    pub fn read(path: &Path) -> Result<Secret, SecretError> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(BYTES_MAX as u64 + 2).read_to_end(&mut bytes)?;
        Secret::new(&bytes)
    }

    /// The token of a role, in hexadecimal.
    pub fn token(&self, role: Role<'_>) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        match role {
            Role::Producer => context.update(b"producer\0"),
            Role::Operator => context.update(b"operator\0"),
            Role::Tenant(tenant) => {
                context.update(b"tenant\0");
                context.update(tenant.as_bytes());
            }
        }
        context.sign().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn is_token(&self, role: Role<'_>, token: &str) -> bool {
        self.token(role).as_bytes().ct_eq(token.as_bytes()).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_of_one_role() {
        let secret = Secret::new(b"0123456789abcdef\n").unwrap();
        let token = secret.token(Role::Tenant("a"));
        assert_eq!(token.len(), 64);
        assert!(secret.is_token(Role::Tenant("a"), &token));
        for other in [Role::Tenant("b"), Role::Tenant(""), Role::Producer, Role::Operator] {
            assert!(!secret.is_token(other, &token), "{other:?}");
        }
        assert!(!secret.is_token(Role::Tenant("a"), &token[1..]));
        assert!(matches!(Secret::new(b"short"), Err(SecretError::Length { bytes: 5 })));
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }
}
