//! Tokens that are signed with Ed25519. A process with the public key can check them, and cannot make them.
//!
//! A token is `signed.ROLE.TENANT.END.SIGNATURE`: the role by its name, the tenant in hexadecimal (empty but for the role `tenant`), the end
//! in seconds since 1970 or `never`, and the signature of all that stands before it, in hexadecimal.

use crate::secret::{Role, hex, unhex};
use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use std::io::{self, Read};
use std::path::Path;
use tidemark_tls::private_file::{self, PrivateFileError};

/// Public keys of a file, at most: that of today, and those of tokens that are still valid.
pub const PUBLIC_KEYS_MAX: usize = 16;
/// Bytes of the file of a private key, at most: the key has some 120, and text may stand beside it.
const KEY_BYTES_MAX: u64 = 64 << 10;
/// Signatures of other texts than tokens begin otherwise.
const CONTEXT: &[u8] = b"tidemark-streams token\0";
const PREFIX: &str = "signed.";
const NEVER: &str = "never";
/// What stands before the 32 bytes of an Ed25519 key in its DER (RFC 8410).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Why a file has no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error(transparent)]
    File(#[from] PrivateFileError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it has more than {KEY_BYTES_MAX} bytes: one private key in PEM is expected")]
    Long,
    #[error(
        "no {what} in PEM can be read: {reason}; `openssl genpkey -algorithm ed25519` makes a key, and `openssl pkey -pubout` its public key"
    )]
    Pem { what: &'static str, reason: String },
    #[error("key {number} of the file is no Ed25519 key: `openssl genpkey -algorithm ed25519` makes one")]
    Kind { number: usize },
    #[error("the file has {found} public keys: at most {PUBLIC_KEYS_MAX}; remove those whose tokens have expired")]
    Many { found: usize },
}

/// Makes tokens.
pub struct SigningKey(Ed25519KeyPair);

/// Checks tokens.
#[derive(Clone, Debug)]
pub struct PublicKeys(Vec<[u8; 32]>);

/// The verdict on a signed token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signed {
    Valid(Holder),
    /// It names an end that has passed. Its signature was not verified.
    Expired,
    /// It is no token, or no known key made it.
    Wrong,
}

/// The role of a token's holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    Producer,
    Tenant(String),
    Operator,
    Follower,
}

impl Holder {
    pub fn role(&self) -> Role<'_> {
        match self {
            Holder::Producer => Role::Producer,
            Holder::Tenant(tenant) => Role::Tenant(tenant),
            Holder::Operator => Role::Operator,
            Holder::Follower => Role::Follower,
        }
    }
}

impl SigningKey {
    /// # Errors
    /// [`KeyError`].
    pub fn read(path: &Path) -> Result<SigningKey, KeyError> {
        let mut bytes = Vec::new();
        private_file::open(path)?.take(KEY_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > KEY_BYTES_MAX {
            return Err(KeyError::Long);
        }
        let read = PrivatePkcs8KeyDer::from_pem_slice(&bytes);
        let key = read.map_err(|error| KeyError::Pem { what: "private key", reason: error.to_string() })?;
        SigningKey::of(key.secret_pkcs8_der())
    }

    fn of(pkcs8: &[u8]) -> Result<SigningKey, KeyError> {
        // OpenSSL writes no public key beside the private one.
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8).map(SigningKey).map_err(|_| KeyError::Kind { number: 1 })
    }

    /// The token of a role until a time, in seconds since 1970; `None`: for ever.
    pub fn token(&self, role: Role<'_>, ends_at_s: Option<u64>) -> String {
        let (name, tenant) = match role {
            Role::Producer => ("producer", ""),
            Role::Tenant(tenant) => ("tenant", tenant),
            Role::Operator => ("operator", ""),
            Role::Follower => ("follower", ""),
        };
        let end = ends_at_s.map_or_else(|| NEVER.to_owned(), |end| end.to_string());
        let text = format!("{PREFIX}{name}.{}.{end}", hex(tenant.as_bytes()));
        let signature = self.0.sign(&[CONTEXT, text.as_bytes()].concat());
        format!("{text}.{}", hex(signature.as_ref()))
    }
}

impl PublicKeys {
    /// Reads one or more keys.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(path: &Path) -> Result<PublicKeys, KeyError> {
        let failed = |reason: String| KeyError::Pem { what: "public key", reason };
        let found = SubjectPublicKeyInfoDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
        let mut keys = Vec::new();
        for (at, key) in found.enumerate() {
            let key = key.map_err(|error| failed(error.to_string()))?;
            let bytes = key.as_ref().strip_prefix(&SPKI_PREFIX[..]).and_then(|bytes| bytes.try_into().ok());
            keys.push(bytes.ok_or(KeyError::Kind { number: at + 1 })?);
        }
        match keys.len() {
            0 => Err(failed("there is none in it".to_owned())),
            1..=PUBLIC_KEYS_MAX => Ok(PublicKeys(keys)),
            found => Err(KeyError::Many { found }),
        }
    }

    /// Judges a token. Signatures are verified last: they cost most, and anyone may send a text.
    pub fn judge(&self, token: &str, now_s: u64) -> Signed {
        let Some((text, signature)) = token.rsplit_once('.') else { return Signed::Wrong };
        let Some((holder, end)) = parsed(text) else { return Signed::Wrong };
        if end.is_some_and(|end| end <= now_s) {
            return Signed::Expired;
        }
        let Some(signature) = unhex(signature) else { return Signed::Wrong };
        let signed = [CONTEXT, text.as_bytes()].concat();
        let is_made_by = |key: &[u8; 32]| UnparsedPublicKey::new(&ED25519, key).verify(&signed, &signature).is_ok();
        if self.0.iter().any(is_made_by) { Signed::Valid(holder) } else { Signed::Wrong }
    }
}

/// Whether a token is of this kind.
pub fn is_signed(token: &str) -> bool {
    token.starts_with(PREFIX)
}

fn parsed(text: &str) -> Option<(Holder, Option<u64>)> {
    let mut parts = text.strip_prefix(PREFIX)?.split('.');
    let [role, tenant, end] = [parts.next()?, parts.next()?, parts.next()?];
    let end = if end == NEVER { None } else { Some(end.parse().ok()?) };
    let tenant = String::from_utf8(unhex(tenant)?).ok()?;
    let holder = match (role, tenant.is_empty()) {
        ("producer", true) => Holder::Producer,
        ("operator", true) => Holder::Operator,
        ("follower", true) => Holder::Follower,
        ("tenant", false) => Holder::Tenant(tenant),
        _ => return None,
    };
    parts.next().is_none().then_some((holder, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::rand::SystemRandom;
    use ring::signature::KeyPair;

    /// Of RFC 8410, as OpenSSL writes it.
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
    const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\n\
        MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";

    /// `openssl pkeyutl -sign -rawin` signs the same text with this key so.
    const GOLDEN: &str = "signed.tenant.61.1000.\
        0c4216465c50231d6f914c9eac82ca6c5c21325d1abeb17210db599ad03dd384\
        0777562b1816b8476f87917e40d21fbbafe1fd43931d0a435fb6412556dfd103";

    fn key() -> SigningKey {
        SigningKey::of(PrivatePkcs8KeyDer::from_pem_slice(KEY.as_bytes()).unwrap().secret_pkcs8_der()).unwrap()
    }

    fn public(text: &str) -> Result<PublicKeys, KeyError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        PublicKeys::read(file.path())
    }

    #[test]
    fn token_of_a_known_key_stays_as_it_is() {
        assert_eq!(key().token(Role::Tenant("a"), Some(1_000)), GOLDEN);
        let keys = public(PUBLIC).unwrap();
        assert_eq!(keys.judge(GOLDEN, 999), Signed::Valid(Holder::Tenant("a".to_owned())));
    }

    #[test]
    fn signed_tokens_are_of_one_role_until_their_end() {
        let key = key();
        let keys = public(PUBLIC).unwrap();
        let holders = [Holder::Producer, Holder::Operator, Holder::Follower, Holder::Tenant("shop ä.b".to_owned())];
        for holder in holders {
            let token = key.token(holder.role(), Some(1_000));
            assert_eq!(keys.judge(&token, 1_000), Signed::Expired);
            assert_eq!(keys.judge(&token, 999), Signed::Valid(holder.clone()));
            assert_eq!(keys.judge(&key.token(holder.role(), None), u64::MAX), Signed::Valid(holder));
        }
        let token = key.token(Role::Tenant("a"), None);
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'1' { b'2' } else { b'1' };
            assert_eq!(keys.judge(&String::from_utf8(changed).unwrap(), 0), Signed::Wrong, "{at}");
        }
        for text in
            ["", ".", "signed.", "signed.producer..never", "signed.producer..never.", "signed.producer..never.zz"]
        {
            assert_eq!(keys.judge(text, 0), Signed::Wrong, "{text}");
        }
    }

    #[test]
    fn texts_that_no_token_has_are_wrong_even_if_signed() {
        let key = key();
        let keys = public(PUBLIC).unwrap();
        for text in ["signed.tenant..never", "signed.producer.61.never", "signed.x..never", "signed.producer..-1", "x"]
        {
            let signature = key.0.sign(&[CONTEXT, text.as_bytes()].concat());
            assert_eq!(keys.judge(&format!("{text}.{}", hex(signature.as_ref())), 0), Signed::Wrong, "{text}");
        }
        let signature = key.0.sign(b"signed.producer..never");
        let of_another_text = format!("signed.producer..never.{}", hex(signature.as_ref()));
        assert_eq!(keys.judge(&of_another_text, 0), Signed::Wrong);
    }

    #[test]
    fn token_of_another_key_is_wrong() {
        let other = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let other = SigningKey::of(other.as_ref()).unwrap();
        let token = other.token(Role::Producer, None);
        assert_eq!(public(PUBLIC).unwrap().judge(&token, 0), Signed::Wrong);
        let of_other = PublicKeys(vec![other.0.public_key().as_ref().try_into().unwrap()]);
        assert_eq!(of_other.judge(&token, 0), Signed::Valid(Holder::Producer));
    }

    #[test]
    fn token_that_has_ended_costs_no_verification() {
        let keys = public(PUBLIC).unwrap();
        for signature in ["", "00", "zz"] {
            let token = format!("signed.producer..1000.{signature}");
            assert_eq!(
                [999, 1_000].map(|now_s| keys.judge(&token, now_s)),
                [Signed::Wrong, Signed::Expired],
                "{token}"
            );
        }
    }

    #[test]
    fn files_of_public_keys_hold_some_ed25519_keys() {
        assert_eq!(public(&PUBLIC.repeat(PUBLIC_KEYS_MAX)).unwrap().0.len(), PUBLIC_KEYS_MAX);
        assert!(matches!(public(&PUBLIC.repeat(PUBLIC_KEYS_MAX + 1)), Err(KeyError::Many { found: 17 })));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![b'\n'; KEY_BYTES_MAX as usize + 1]).unwrap();
        assert!(matches!(SigningKey::read(file.path()), Err(KeyError::Long)));
        assert!(matches!(public(""), Err(KeyError::Pem { .. })));
        assert!(matches!(public(KEY), Err(KeyError::Pem { .. })));
        let of_another_kind = PUBLIC.replace("MCowBQYDK2Vw", "MCowBQYDK2Vu");
        assert!(matches!(public(&of_another_kind), Err(KeyError::Kind { number: 1 })));
    }
}
