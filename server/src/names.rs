//! Counter names as text: on the command line, in URLs and in JSON.
//!
//! A key is bytes. [`key_text`] writes it as text, and percent-decoding the text gives the key back.

use percent_encoding::percent_decode_str;
pub use tidemark_proto::ids::key_text;
use tidemark_proto::ids::{CounterName, NameError, SessionId};

/// Longest session token, in bytes. Longer: [`SessionError`].
pub const SESSION_BYTES_MAX: usize = 256;

/// Why a text names no counter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CounterTextError {
    #[error("{0:?} names no counter: NAMESPACE/KEY expected")]
    Shape(String),
    #[error(transparent)]
    Name(#[from] NameError),
}

/// Why a session token was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("session token of {bytes} bytes: 1 to {SESSION_BYTES_MAX} allowed")]
pub struct SessionError {
    pub bytes: usize,
}

/// Reads `NAMESPACE/KEY`; the key may contain further slashes and `%XX`.
pub fn parse_counter(text: &str) -> Result<CounterName, CounterTextError> {
    let (namespace, key) = text.split_once('/').ok_or_else(|| CounterTextError::Shape(text.to_owned()))?;
    Ok(CounterName::new(namespace, &key_bytes(key))?)
}

/// A counter as `NAMESPACE/KEY`, which [`parse_counter`] reads.
pub fn counter_text(counter: &CounterName) -> String {
    counter.to_string()
}

/// Bytes as text that [`parse_counter`] and [`key_bytes`] read as they are: what is no UTF-8 is written `%XX`.
pub fn text_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("%{byte:02X}")));
    }
    text
}

/// The key that [`key_text`] wrote.
pub fn key_bytes(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
}

/// The stored form of a session: the first 16 bytes of its token's SHA-256.
pub fn session_id(token: &str) -> Result<SessionId, SessionError> {
    if token.is_empty() || token.len() > SESSION_BYTES_MAX {
        return Err(SessionError { bytes: token.len() });
    }
    Ok(SessionId(sha256_prefix(&[token.as_bytes()])))
}

/// Whether a text that a user chose may be an identifier: 1 to `most` visible ASCII characters.
pub fn is_id(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The first bytes of the SHA-256 of all parts together; 32 at most.
pub fn sha256_prefix<const BYTES: usize>(parts: &[&[u8]]) -> [u8; BYTES] {
    const { assert!(BYTES <= ring::digest::SHA256_OUTPUT_LEN) }
    let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
    parts.iter().for_each(|part| digest.update(part));
    *digest.finish().as_ref().first_chunk().expect("SHA-256 has 32 bytes")
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes of lower-case hexadecimal; `None` for anything else.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counter_has_one_spelling() {
        let queries = CounterName::new("search", b"queries/all").unwrap();
        assert_eq!(parse_counter("search/queries/all"), Ok(queries.clone()));
        assert_eq!(parse_counter("search/queries%2Fall"), Ok(queries.clone()));
        assert_eq!(queries.to_string(), "search/queries/all");
        assert_eq!(format!("{:?}", CounterName::new("search", b"100%\xff")), "Ok(search/100%25%FF)");
        assert_eq!(parse_counter("search:queries"), Err(CounterTextError::Shape("search:queries".into())));
        assert_eq!(parse_counter("search"), Err(CounterTextError::Shape("search".into())));
        assert_eq!(parse_counter("search/"), Err(NameError::KeyLength { bytes: 0 }.into()));
        assert_eq!(key_text(b"100%\xff"), "100%25%FF");
    }

    #[test]
    fn a_session_is_kept_as_a_digest_only() {
        assert_eq!(session_id("").unwrap_err().to_string(), "session token of 0 bytes: 1 to 256 allowed");
        assert!(session_id(&"x".repeat(SESSION_BYTES_MAX + 1)).is_err());
        // SHA-256("abc"), FIPS 180-2, appendix B.1.
        assert_eq!(session_id("abc").unwrap().to_string(), "ba7816bf8f01cfea414140de5dae2223");
    }

    proptest! {
        #[test]
        fn every_key_survives_being_text(key in prop::collection::vec(any::<u8>(), 1..255)) {
            prop_assert_eq!(key_bytes(&key_text(&key)), key.clone());
            let counter = CounterName::new("search", &key).unwrap();
            prop_assert_eq!(parse_counter(&counter_text(&counter)), Ok(counter));
            prop_assert_eq!(from_hex(&hex(&key)), Some(key));
        }
    }

    #[test]
    fn hexadecimal_has_one_spelling() {
        assert_eq!([from_hex("0g"), from_hex("A0"), from_hex("abc")], [None, None, None]);
    }
}
