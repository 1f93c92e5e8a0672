//! A version, then postcard. The reader checks every bound.

use serde::{Deserialize, Serialize};

/// Why bytes of the intake's log are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("no bytes")]
    Empty,
    #[error("version {found}: this program reads version {known}; a later program wrote it")]
    Version { found: u8, known: u8 },
    #[error("damaged: {0}")]
    Damaged(String),
    #[error("{0} bytes stand behind the end")]
    Tail(usize),
    #[error("{what} {value}: at most {max}")]
    Limit { what: &'static str, value: u64, max: u64 },
    #[error("it has {found} rows, and says {said}")]
    Rows { found: u64, said: u64 },
}

pub fn encode(version: u8, value: &impl Serialize) -> Vec<u8> {
    // Writing to a vector fails only for types of unknown length, which none of these has.
    postcard::to_extend(value, vec![version]).unwrap_or_default()
}

pub fn decode<'a, T: Deserialize<'a>>(known: u8, bytes: &'a [u8]) -> Result<T, DecodeError> {
    let (&found, body) = bytes.split_first().ok_or(DecodeError::Empty)?;
    if found != known {
        return Err(DecodeError::Version { found, known });
    }
    let (value, tail) = postcard::take_from_bytes(body).map_err(|error| DecodeError::Damaged(error.to_string()))?;
    if tail.is_empty() { Ok(value) } else { Err(DecodeError::Tail(tail.len())) }
}

pub fn at_most(what: &'static str, value: usize, max: usize) -> Result<(), DecodeError> {
    if value <= max { Ok(()) } else { Err(DecodeError::Limit { what, value: value as u64, max: max as u64 }) }
}
