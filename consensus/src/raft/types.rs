//! The types that openraft is instantiated with, and the batch of commands that one log entry carries.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use openraft::EmptyNode;
use serde::{Deserialize, Serialize};

openraft::declare_raft_types!(
    /// openraft's type parameters: members are `u64`, an entry is a [`Batch`], applying answers nothing.
    pub TypeConfig:
        D = Batch,
        R = (),
        NodeId = u64,
        Node = EmptyNode,
        AsyncRuntime = super::Runtime,
);

pub(crate) type Entry = openraft::alias::EntryOf<TypeConfig>;
pub(crate) type LogId = openraft::alias::LogIdOf<TypeConfig>;
pub(crate) type LeaderId = openraft::alias::LeaderIdOf<TypeConfig>;
pub(crate) type Vote = openraft::alias::VoteOf<TypeConfig>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;
pub(crate) type SnapshotOf<B> = openraft::alias::SnapshotOf<TypeConfig, B>;
pub(crate) type Snapshot = SnapshotOf<Bytes>;

const LENGTH_BYTES: usize = 4;

/// Commands of one log entry, packed so that a copy costs one reference count: for each its length (u32, little
/// endian) and its bytes. A value of this type is well-formed; decoding refuses what is not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Bytes", into = "Bytes")]
pub struct Batch(Bytes);

/// A packed batch ends within a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a batch of {bytes} bytes ends within a command")]
pub struct TornBatch {
    /// Length of the batch.
    pub bytes: usize,
}

impl Batch {
    /// Packs commands in order.
    ///
    /// # Panics
    /// If a command exceeds `u32::MAX` bytes; proposals are limited far below.
    pub fn pack<'a>(commands: impl Iterator<Item = &'a Bytes> + Clone) -> Self {
        let size = commands.clone().map(|command| Self::packed_bytes(command)).sum();
        let mut packed = BytesMut::with_capacity(size);
        for command in commands {
            packed.put_u32_le(u32::try_from(command.len()).expect("limited by entry_bytes_max"));
            packed.put_slice(command);
        }
        Self(packed.freeze())
    }

    /// Bytes of a command in a batch.
    pub(crate) fn packed_bytes(command: &[u8]) -> usize {
        LENGTH_BYTES + command.len()
    }

    /// Its commands, in order.
    pub fn commands(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.0.as_ref();
        std::iter::from_fn(move || {
            let (command, tail) = split_command(rest)?;
            rest = tail;
            Some(command)
        })
    }

    /// Packed size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }
}

fn split_command(packed: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = packed.split_first_chunk::<LENGTH_BYTES>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

impl TryFrom<Bytes> for Batch {
    type Error = TornBatch;

    fn try_from(packed: Bytes) -> Result<Self, TornBatch> {
        let mut rest = packed.as_ref();
        while !rest.is_empty() {
            (_, rest) = split_command(rest).ok_or(TornBatch { bytes: packed.len() })?;
        }
        Ok(Self(packed))
    }
}

impl From<Batch> for Bytes {
    fn from(batch: Batch) -> Self {
        batch.0
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of commands", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn commands_come_out_as_they_went_in(commands in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20)) {
            let bytes: Vec<Bytes> = commands.iter().cloned().map(Bytes::from).collect();
            let batch = Batch::pack(bytes.iter());
            prop_assert_eq!(batch.commands().map(<[u8]>::to_vec).collect::<Vec<_>>(), commands);
            let decoded: Batch = postcard::from_bytes(&postcard::to_allocvec(&batch).unwrap()).unwrap();
            prop_assert_eq!(decoded, batch);
        }

        #[test]
        fn a_torn_batch_is_refused(command in prop::collection::vec(any::<u8>(), 0..50), cut in 1usize..54) {
            let packed: Bytes = Batch::pack([Bytes::from(command)].iter()).into();
            let torn = packed.slice(..packed.len().saturating_sub(cut));
            prop_assert!(torn.is_empty() || Batch::try_from(torn).is_err());
        }
    }
}
