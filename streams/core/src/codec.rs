//! Encodings of what the manifest's log keeps: a version, then postcard. Every bound is checked when bytes are read.

use crate::blob::{BlobKey, BlobMeta, Level};
use crate::layout::LayoutError;
use crate::limits::{COMMAND_BYTES_MAX, COMMIT_BLOBS_MAX, PARTITIONS_MAX};
use crate::scope::Scope;
use crate::time::{Hour, HourRange};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("no bytes")]
    Empty,
    #[error("{bytes} bytes: at most {COMMAND_BYTES_MAX}")]
    TooLong { bytes: usize },
    #[error("version {found}: this program reads version {known}; a later program wrote it")]
    Version { found: u8, known: u8 },
    #[error("damaged: {0}")]
    Damaged(String),
    #[error("{0} bytes stand behind the end")]
    Tail(usize),
    #[error("partition {0}: at most {max}", max = PARTITIONS_MAX - 1)]
    Partition(u32),
    #[error("{0} blobs: at most {COMMIT_BLOBS_MAX}")]
    Blobs(usize),
    #[error("blob {key}: hours {first} to {last} are none", first = hours.first.0, last = hours.last.0)]
    Hours { key: BlobKey, hours: HourRange },
    #[error("blob {0} of dead letters counts events")]
    DeadLetters(BlobKey),
    #[error("blob {key}: scope {scope:?} is none, or none of its level")]
    Scope { key: BlobKey, scope: Scope },
    #[error("the layout: {0}")]
    Layout(#[from] LayoutError),
}

/// A command is too long to be proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a command of the manifest has {bytes} bytes: at most {COMMAND_BYTES_MAX}")]
pub struct CommandTooLong {
    pub bytes: usize,
}

pub(crate) fn check_partition(partition: u32) -> Result<(), DecodeError> {
    if partition < PARTITIONS_MAX { Ok(()) } else { Err(DecodeError::Partition(partition)) }
}

pub(crate) fn check_meta(meta: &BlobMeta) -> Result<(), DecodeError> {
    check_partition(meta.key.partition.0)?;
    let hours = meta.hours;
    if hours.first > hours.last || hours.last > Hour::MAX {
        return Err(DecodeError::Hours { key: meta.key, hours });
    }
    let is_split = meta.scope != Scope::ALL;
    match meta.level {
        Level::DeadLetters if meta.total != 0 => Err(DecodeError::DeadLetters(meta.key)),
        Level::DeadLetters | Level::Delta if is_split => Err(DecodeError::Scope { key: meta.key, scope: meta.scope }),
        Level::Delta | Level::Day | Level::DeadLetters | Level::Hour | Level::Period if meta.scope.is_valid() => Ok(()),
        Level::Delta | Level::Day | Level::DeadLetters | Level::Hour | Level::Period => {
            Err(DecodeError::Scope { key: meta.key, scope: meta.scope })
        }
    }
}

pub(crate) fn encode_versioned(version: u8, value: &impl Serialize) -> Vec<u8> {
    // Writing to a vector fails only for types of unknown length, which none of these has.
    postcard::to_extend(value, vec![version]).unwrap_or_default()
}

pub(crate) fn decode_versioned<T: DeserializeOwned>(known: u8, bytes: &[u8]) -> Result<T, DecodeError> {
    let (&found, body) = bytes.split_first().ok_or(DecodeError::Empty)?;
    if found != known {
        return Err(DecodeError::Version { found, known });
    }
    let taken = postcard::take_from_bytes(body).map_err(|error| DecodeError::Damaged(error.to_string()));
    let (value, tail) = taken?;
    if tail.is_empty() { Ok(value) } else { Err(DecodeError::Tail(tail.len())) }
}
