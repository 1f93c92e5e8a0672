//! Anonymous sessions of browsers: signed tokens, issued to front ends in bulk, by which an award finds its winner.
//!
//! A token is `v1.KEY.EXPIRES.RANDOM.MAC.NAMESPACE`. KEY is the key that signed it, EXPIRES the end of its life (seconds since
//! 1970), RANDOM 128 random bits. MAC is the first 128 bits of HMAC-SHA-256 (RFC 2104) over all the rest, and NAMESPACE its
//! namespace. It says nothing about a person. All data centres have the same keys, so that any of them knows a token that another
//! issued. Logs and awards hold only the digest of a token (`names::session_id`), so a reader of them cannot speak for the
//! session.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::hmac;
use subtle::ConstantTimeEq;
use tidemark_proto::ids::{CounterName, NameError, SessionId};

use crate::names::{from_hex, hex, session_id, sha256_prefix};
use crate::secret::{self, SecretError};

/// The file's name in a data directory.
pub const SESSION_KEYS_FILE: &str = "session-keys";
/// Keys of one file: the signing key, and the keys of tokens that may not have ended.
pub const SESSION_KEYS_MAX: usize = 16;
/// Tokens issued at a time.
pub const SESSIONS_AT_ONCE_MAX: usize = 10_000;
/// Longest life of a token.
pub const SESSION_LIFE_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);
/// How a token begins that is signed; others are the front end's own, and no browser can show them.
pub const SESSION_VERSION: &str = "v1";
/// The prefix of a session's signature, which no other kind of token has.
const KIND: &str = "session v1";

const KEY_BYTES: usize = 32;
const KEY_ID_BYTES: usize = 4;
const RANDOM_BYTES: usize = 16;
const MAC_BYTES: usize = 16;
/// `v1`, key, expiry, random bits, MAC, and a namespace, which may hold dots.
const PARTS: usize = 6;

// With the longest namespace, a token is one that can be counted with.
const _: () = assert!(
    SESSION_VERSION.len()
        + 20
        + 2 * (KEY_ID_BYTES + RANDOM_BYTES + MAC_BYTES)
        + tidemark_proto::limits::NAMESPACE_BYTES_MAX
        + PARTS
        <= crate::names::SESSION_BYTES_MAX
);

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum SessionKeysError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("session keys, line {line}: {KEY_BYTES} bytes as lower-case hexadecimal expected")]
    Line { line: usize },
    #[error("{keys} session keys: 1 to {SESSION_KEYS_MAX} allowed")]
    Count { keys: usize },
}

/// Why no tokens are issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("count is {0}: 1 to {SESSIONS_AT_ONCE_MAX} allowed")]
    Count(usize),
    #[error("expires_s is {0}: 1 to {max} allowed", max = SESSION_LIFE_MAX.as_secs())]
    Life(u64),
    #[error(transparent)]
    Random(#[from] SecretError),
}

/// Why a token is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionRefusal {
    #[error("the session token has no such form")]
    Malformed,
    #[error("the session token is signed by no key of this cluster")]
    UnknownKey,
    #[error("the session token's signature is wrong")]
    Forged,
    #[error("the session token ended at {at} (seconds since 1970)")]
    Expired { at: u64 },
    #[error("the session token is for the namespace {namespace}")]
    OtherNamespace { namespace: String },
}

/// A believed token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The stored form of the session.
    pub id: SessionId,
    pub namespace: String,
    /// Seconds since 1970.
    pub expires: u64,
}

/// The keys that sign and verify; the first signs. `Debug` does not show them.
#[derive(Clone)]
pub struct SessionKeys(Vec<Key>);

#[derive(Clone)]
struct Key {
    id: String,
    mac: hmac::Key,
}

impl SessionKeys {
    /// A new random key.
    pub fn random() -> Result<SessionKeys, SessionKeysError> {
        Ok(SessionKeys(vec![Key::new(&secret::random::<KEY_BYTES>()?)]))
    }

    /// The keys of a data directory; a key is made at the first call.
    pub fn of_dir(dir: &Path) -> Result<SessionKeys, SessionKeysError> {
        let path = dir.join(SESSION_KEYS_FILE);
        if !path.exists() {
            secret::write(&path, &hex(&secret::random::<KEY_BYTES>()?))?;
        }
        SessionKeys::read(&path)
    }

    /// Reads a file with one key a line; refuses one that others may read.
    pub fn read(path: &Path) -> Result<SessionKeys, SessionKeysError> {
        SessionKeys::parse(&secret::read(path)?)
    }

    fn parse(text: &str) -> Result<SessionKeys, SessionKeysError> {
        let key = |(at, line): (usize, &str)| {
            let bytes = from_hex(line.trim()).filter(|bytes| bytes.len() == KEY_BYTES);
            bytes.map(|bytes| Key::new(&bytes)).ok_or(SessionKeysError::Line { line: at + 1 })
        };
        let keys = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(key);
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        match keys.len() {
            1..=SESSION_KEYS_MAX => Ok(SessionKeys(keys)),
            keys => Err(SessionKeysError::Count { keys }),
        }
    }

    /// New tokens for a namespace, and when they end.
    pub fn issue(&self, namespace: &str, count: usize, life_s: u64) -> Result<(Vec<String>, u64), IssueError> {
        CounterName::new(namespace, b"x")?;
        if count == 0 || count > SESSIONS_AT_ONCE_MAX {
            return Err(IssueError::Count(count));
        }
        if life_s == 0 || life_s > SESSION_LIFE_MAX.as_secs() {
            return Err(IssueError::Life(life_s));
        }
        let expires = now_s() + life_s;
        let tokens = (0..count).map(|_| Ok(self.0[0].token(&secret::random()?, expires, namespace)));
        Ok((tokens.collect::<Result<_, SecretError>>()?, expires))
    }

    /// Believes a token that one of the keys signed and that has not ended.
    pub fn verify(&self, token: &str) -> Result<Session, SessionRefusal> {
        self.verify_at(token, now_s())
    }

    /// [`SessionKeys::verify`], for a namespace only.
    pub fn verify_for(&self, token: &str, namespace: &str) -> Result<Session, SessionRefusal> {
        let session = self.verify(token)?;
        if session.namespace == namespace {
            Ok(session)
        } else {
            Err(SessionRefusal::OtherNamespace { namespace: session.namespace })
        }
    }

    /// The signing key's name, and its MAC over a text of another kind of token; `kind` keeps the kinds apart.
    pub(crate) fn sign(&self, kind: &str, text: &str) -> (&str, String) {
        let key = &self.0[0];
        (&key.id, key.mac_over(kind, text))
    }

    /// Believes what [`SessionKeys::sign`] signed, by the key of that name.
    pub(crate) fn check(&self, key: &str, kind: &str, text: &str, mac: &str) -> Result<(), SessionRefusal> {
        let key = self.0.iter().find(|known| known.id == key).ok_or(SessionRefusal::UnknownKey)?;
        match bool::from(key.mac_over(kind, text).as_bytes().ct_eq(mac.as_bytes())) {
            true => Ok(()),
            false => Err(SessionRefusal::Forged),
        }
    }

    fn verify_at(&self, token: &str, now_s: u64) -> Result<Session, SessionRefusal> {
        let id = session_id(token).map_err(|_| SessionRefusal::Malformed)?;
        let parts: Vec<&str> = token.splitn(PARTS, '.').collect();
        let [SESSION_VERSION, key, expires, random, mac, namespace] = parts[..] else {
            return Err(SessionRefusal::Malformed);
        };
        // One spelling per token: the signature covers the text.
        self.check(key, KIND, &format!("{expires}.{random}.{namespace}"), mac)?;
        let expires: u64 = expires.parse().map_err(|_| SessionRefusal::Malformed)?;
        if expires <= now_s {
            return Err(SessionRefusal::Expired { at: expires });
        }
        Ok(Session { id, namespace: namespace.to_owned(), expires })
    }
}

impl Key {
    fn new(bytes: &[u8]) -> Key {
        let id = hex(&sha256_prefix::<KEY_ID_BYTES>(&[bytes]));
        Key { id, mac: hmac::Key::new(hmac::HMAC_SHA256, bytes) }
    }

    fn token(&self, random: &[u8; RANDOM_BYTES], expires: u64, namespace: &str) -> String {
        let random = hex(random);
        let expires = expires.to_string();
        let mac = self.mac_over(KIND, &format!("{expires}.{random}.{namespace}"));
        format!("{SESSION_VERSION}.{}.{expires}.{random}.{mac}.{namespace}", self.id)
    }

    fn mac_over(&self, kind: &str, text: &str) -> String {
        let text = format!("tidemark {kind}.{}.{text}", self.id);
        hex(&hmac::sign(&self.mac, text.as_bytes()).as_ref()[..MAC_BYTES])
    }
}

impl std::fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SessionKeys({})", self.0.len())
    }
}

/// Seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys() -> SessionKeys {
        SessionKeys::parse(&format!("{}\n{}\n", "ab".repeat(32), "cd".repeat(32))).unwrap()
    }

    fn one(keys: &SessionKeys) -> String {
        keys.issue("search", 1, 60).unwrap().0.remove(0)
    }

    #[test]
    fn a_token_is_believed_until_it_ends_and_where_it_is_for() {
        let keys = keys();
        let now = now_s();
        let (tokens, expires) = keys.issue("search.web", 1_000, 60).unwrap();
        assert!(tokens.iter().collect::<std::collections::BTreeSet<_>>().len() == 1_000 && expires >= now + 60);
        let session = keys.verify(&tokens[0]).unwrap();
        assert_eq!((session.namespace.as_str(), session.id), ("search.web", session_id(&tokens[0]).unwrap()));
        assert!(keys.verify_at(&tokens[0], expires - 1).is_ok());
        assert_eq!(keys.verify_at(&tokens[0], expires), Err(SessionRefusal::Expired { at: expires }));
        let namespace = "search.web".to_owned();
        assert_eq!(keys.verify_for(&tokens[0], "search"), Err(SessionRefusal::OtherNamespace { namespace }));
    }

    #[test]
    fn a_key_that_signs_no_more_still_verifies_and_a_foreign_one_does_not() {
        let token = one(&keys());
        let rotated = SessionKeys::parse(&format!("{}\n{}", "ef".repeat(32), "ab".repeat(32))).unwrap();
        assert!(rotated.verify(&token).is_ok());
        assert_eq!(SessionKeys::random().unwrap().verify(&token), Err(SessionRefusal::UnknownKey));
        assert_eq!(SessionKeys::random().unwrap().verify("incognito-7"), Err(SessionRefusal::Malformed));
    }

    #[test]
    fn keys_come_from_a_file_of_the_owner() {
        let dir = tempfile::tempdir().unwrap();
        let token = one(&SessionKeys::of_dir(dir.path()).unwrap());
        assert!(SessionKeys::of_dir(dir.path()).unwrap().verify(&token).is_ok());
        assert!(matches!(SessionKeys::parse("abcd"), Err(SessionKeysError::Line { line: 1 })));
        assert!(matches!(SessionKeys::parse("\n"), Err(SessionKeysError::Count { keys: 0 })));
        assert!(SessionKeys::parse(&format!("{}\n", "ab".repeat(32)).repeat(17)).is_err());
        assert_eq!(format!("{:?}", keys()), "SessionKeys(2)");
    }

    #[test]
    fn what_is_asked_has_limits() {
        let refused = |namespace, count, life| keys().issue(namespace, count, life).unwrap_err().to_string();
        assert_eq!(refused("search", 0, 60), "count is 0: 1 to 10000 allowed");
        assert_eq!(refused("search", 10_001, 60), "count is 10001: 1 to 10000 allowed");
        assert_eq!(refused("search", 1, 2_592_001), "expires_s is 2592001: 1 to 2592000 allowed");
        assert!(refused("Search", 1, 60).contains("Search") && refused("search", 1, 0).starts_with("expires_s is 0"));
    }

    proptest! {
        #[test]
        fn a_changed_token_is_refused(at in any::<prop::sample::Index>(), to in "[ -~]") {
            let token = one(&keys());
            let at = at.index(token.len());
            let changed = format!("{}{to}{}", &token[..at], &token[at + 1..]);
            prop_assert!(changed == token || keys().verify(&changed).is_err(), "{}", changed);
        }

        #[test]
        fn any_text_is_refused_without_a_panic(text in ".{0,300}") {
            prop_assert!(keys().verify(&text).is_err());
        }
    }
}
