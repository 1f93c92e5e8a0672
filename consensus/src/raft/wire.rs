//! Encoding of Raft's messages (postcard) and the refusal of what is too long or malformed.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::transport::ServeError;
use super::types::{SnapshotMeta, Vote};

/// A piece of a snapshot. Pieces of one transfer may arrive in any order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SnapshotChunk {
    /// Drawn by the sender, never twice; a new one replaces its unfinished predecessor.
    pub transfer: u64,
    pub total_bytes: u64,
    pub offset: u64,
    pub data: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SnapshotInstall {
    pub transfer: u64,
    pub vote: Vote,
    pub meta: SnapshotMeta,
}

/// Our own messages always encode.
pub(crate) fn encode<T: Serialize>(message: &T) -> Bytes {
    postcard::to_allocvec(message).expect("memory for a message").into()
}

pub(crate) fn decode<T: DeserializeOwned>(message: &[u8], limit: usize) -> Result<T, ServeError> {
    if message.len() > limit {
        return Err(ServeError::TooLong { bytes: message.len(), limit });
    }
    let (value, rest) = postcard::take_from_bytes(message).map_err(|error| malformed(error.to_string()))?;
    if !rest.is_empty() {
        return Err(malformed(format!("{} bytes too many", rest.len())));
    }
    Ok(value)
}

fn malformed(reason: String) -> ServeError {
    ServeError::Malformed { reason }
}
