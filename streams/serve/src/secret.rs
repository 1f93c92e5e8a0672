//! Tokens. A secret gives the token of producers, and a token for each tenant, which reads that tenant's rows only.
//!
//! A token is an HMAC of its owner under the secret, so no table of tenants is needed. A token with an expiry contains its tenant and
//! its end: `TENANT.SECONDS.HMAC`, the tenant and the HMAC in hexadecimal.

use ring::hmac;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use subtle::ConstantTimeEq;
use tidemark_tls::private_file::{self, PrivateFileError};

/// Bytes of a secret, at least and at most.
const BYTES_MIN: usize = 16;
const BYTES_MAX: usize = 4_096;
/// Bytes of a file with a secret, at most: blanks may stand around the secret.
const FILE_BYTES_MAX: u64 = BYTES_MAX as u64 + 64;

/// Bytes of an HMAC.
const HMAC_BYTES: usize = 32;

/// The key that tokens are made of.
#[derive(Clone)]
pub struct Secret(hmac::Key);

/// Why a file is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error(transparent)]
    File(#[from] PrivateFileError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the secret has {bytes} bytes: {BYTES_MIN} to {BYTES_MAX}; `openssl rand -hex 32` makes one")]
    Length { bytes: usize },
    #[error("the file has {bytes} bytes: a secret has at most {BYTES_MAX}")]
    LongFile { bytes: u64 },
}

/// The role of a token's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role<'a> {
    /// Sends events, and reads all tenants.
    Producer,
    /// Reads the rows of one tenant.
    Tenant(&'a str),
    /// Pauses, resumes, erases, and changes event types.
    Operator,
    /// A query process: follows the manifest, and reads the rows of all tenants that are in memory.
    Follower,
}

/// The verdict on a token with an expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is the token of this tenant.
    Valid { tenant: String },
    /// It was valid, and has expired.
    Expired,
    /// It was not made from this secret.
    Wrong,
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
        let file = private_file::open(path)?;
        let of_file = file.metadata()?.len();
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 {
            0..=FILE_BYTES_MAX => Secret::new(&bytes),
            read => Err(SecretError::LongFile { bytes: of_file.max(read) }),
        }
    }

    /// The token of a role, in hexadecimal.
    pub fn token(&self, role: Role<'_>) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        match role {
            Role::Producer => context.update(b"producer\0"),
            Role::Operator => context.update(b"operator\0"),
            Role::Follower => context.update(b"follower\0"),
            Role::Tenant(tenant) => {
                context.update(b"tenant\0");
                context.update(tenant.as_bytes());
            }
        }
        hex(context.sign().as_ref())
    }

    /// The token of a tenant until a time, in seconds since 1970.
    pub fn ending_token(&self, tenant: &str, ends_at_s: u64) -> String {
        let tag = self.ending_tag(tenant, ends_at_s);
        format!("{}.{ends_at_s}.{}", hex(tenant.as_bytes()), hex(tag.as_ref()))
    }

    /// Judges a token; `None`: the token has no expiry.
    pub fn judge_ending(&self, token: &str, now_s: u64) -> Option<Ending> {
        let (named, rest) = token.split_once('.')?;
        let (ends_at, _) = rest.split_once('.')?;
        let tenant = unhex(named).and_then(|bytes| String::from_utf8(bytes).ok());
        let Some((tenant, ends_at_s)) = tenant.zip(ends_at.parse().ok()) else { return Some(Ending::Wrong) };
        let expected = self.ending_token(&tenant, ends_at_s);
        let is_ours: bool = expected.as_bytes().ct_eq(token.as_bytes()).into();
        Some(match is_ours {
            false => Ending::Wrong,
            true if ends_at_s <= now_s => Ending::Expired,
            true => Ending::Valid { tenant },
        })
    }

    fn ending_tag(&self, tenant: &str, ends_at_s: u64) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(b"tenant-until\0");
        context.update(ends_at_s.to_string().as_bytes());
        context.update(b"\0");
        context.update(tenant.as_bytes());
        context.sign()
    }

    /// Whether a text may be the token of a producer or a tenant. Operators and query processes send no queries, so their tokens are
    /// refused.
    pub fn has_form_of_a_token(&self, token: &str) -> bool {
        let digits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let asks_nothing = [Role::Operator, Role::Follower].iter().any(|role| self.is_token(*role, token));
        token.len() == 2 * HMAC_BYTES && token.bytes().all(digits) && !asks_nothing
    }

    pub fn is_token(&self, role: Role<'_>, token: &str) -> bool {
        self.token(role).as_bytes().ct_eq(token.as_bytes()).into()
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |sign: u8| char::from(sign).to_digit(16);
    let byte = |pair: &[u8]| Some((digit(pair[0])? * 16 + digit(*pair.get(1)?)?) as u8);
    text.as_bytes().chunks(2).map(byte).collect()
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
        for other in [Role::Tenant("b"), Role::Tenant(""), Role::Producer, Role::Operator, Role::Follower] {
            assert!(!secret.is_token(other, &token), "{other:?}");
        }
        assert!(!secret.is_token(Role::Tenant("a"), &token[1..]));
        assert!(matches!(Secret::new(b"short"), Err(SecretError::Length { bytes: 5 })));
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }

    #[test]
    fn bytes_behind_the_longest_secret_are_refused() {
        let read = |text: String| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            Secret::read(file.path()).map(|secret| secret.token(Role::Producer))
        };
        let longest = "x".repeat(BYTES_MAX);
        assert!(read(format!("\n{longest}\r\n")).is_ok());
        for (text, said) in [
            (format!("{longest}\n\nother"), "the secret has 4103 bytes: 16 to 4096"),
            ("x".repeat(5_000), "the file has 5000 bytes: a secret has at most 4096"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.to_string().contains(said), "{refused}");
        }
    }

    #[test]
    fn texts_of_another_form_are_no_tokens() {
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        for role in [Role::Producer, Role::Tenant("a")] {
            assert!(secret.has_form_of_a_token(&secret.token(role)));
        }
        for wrong in ["", "x", &"g".repeat(64), &"a".repeat(63), &secret.token(Role::Operator)] {
            assert!(!secret.has_form_of_a_token(wrong), "{wrong}");
        }
    }

    #[test]
    fn ending_tokens_are_of_one_tenant_until_their_end() {
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        let token = secret.ending_token("shop ä", 1_000);
        let valid = Ending::Valid { tenant: "shop ä".to_owned() };
        assert_eq!(secret.judge_ending(&token, 999), Some(valid));
        assert_eq!(secret.judge_ending(&token, 1_000), Some(Ending::Expired));
        assert_eq!(secret.judge_ending(&secret.token(Role::Tenant("shop ä")), 0), None, "a token without an end");
        let other = Secret::new(b"0123456789abcdeX").unwrap();
        assert_eq!(other.judge_ending(&token, 999), Some(Ending::Wrong));
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'1' { b'2' } else { b'1' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(matches!(secret.judge_ending(&changed, 0), Some(Ending::Wrong) | None), "{changed}");
        }
        for text in ["..", "zz.1.ab", "61.99999999999999999999.ab", "6.1.ab", ".1.", "61.+1.ab"] {
            assert_eq!(secret.judge_ending(text, 0), Some(Ending::Wrong), "{text}");
        }
        assert_eq!(secret.judge_ending(&token.replace(".1000.", ".01000."), 0), Some(Ending::Wrong));
        assert!(!secret.is_token(Role::Tenant("shop ä"), &token));
    }
}
