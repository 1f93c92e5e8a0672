//! The whole state as bytes. A manifest may be replaced by its snapshot at any time.

use super::{AppliedCommit, Generation, Manifest, MemberId, Partition};
use crate::blob::{BlobKey, BlobMeta, Epoch, PartitionId};
use crate::codec::{DecodeError, check_meta, decode_versioned, encode_versioned};
use crate::limits::{PARTITIONS_MAX, SOURCES_MAX};
use crate::source::{SourceId, SourceState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the encoding.
const VERSION: u8 = 1;

/// Why bytes are no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    #[error("the snapshot of the manifest: {0}")]
    Decode(#[from] DecodeError),
    #[error("the snapshot of the manifest: partition {0} is too high, stands twice, or is out of order")]
    Partition(u32),
    #[error("the snapshot of the manifest: partition {partition} has {sources} sources: at most {SOURCES_MAX}")]
    Sources { partition: u32, sources: usize },
    #[error("the snapshot of the manifest: blob {0} stands twice, or is of another partition or a later epoch")]
    Blob(BlobKey),
    #[error("the snapshot of the manifest: partition {partition} counts {total}, and its live blobs {live}")]
    Sum { partition: u32, total: u128, live: u128 },
}

#[derive(Serialize, Deserialize)]
struct StoredManifest {
    index: u64,
    partitions: Vec<StoredPartition>,
}

#[derive(Serialize, Deserialize)]
struct StoredPartition {
    id: PartitionId,
    epoch: Epoch,
    generation: Generation,
    owner: Option<MemberId>,
    last_commit: Option<AppliedCommit>,
    total: u128,
    sources: Vec<StoredSource>,
    live: Vec<BlobMeta>,
}

#[derive(Serialize, Deserialize)]
struct StoredSource {
    id: SourceId,
    state: SourceState,
}

impl Manifest {
    pub fn snapshot(&self) -> Vec<u8> {
        let partitions = self.partitions.iter().map(|(id, partition)| StoredPartition {
            id: *id,
            epoch: partition.epoch,
            generation: partition.generation,
            owner: partition.owner,
            last_commit: partition.last_commit,
            total: partition.total,
            sources: partition.sources.iter().map(|(id, state)| StoredSource { id: *id, state: *state }).collect(),
            live: partition.live.values().copied().collect(),
        });
        encode_versioned(VERSION, &StoredManifest { index: self.index, partitions: partitions.collect() })
    }

    /// # Errors
    /// [`SnapshotError`]: the bytes are none that [`Manifest::snapshot`] gives.
    pub fn from_snapshot(bytes: &[u8]) -> Result<Manifest, SnapshotError> {
        let stored: StoredManifest = decode_versioned(VERSION, bytes)?;
        let mut partitions = BTreeMap::new();
        for partition in stored.partitions {
            let id = partition.id;
            let is_in_order = partitions.last_key_value().is_none_or(|(last, _)| *last < id);
            if id.0 >= PARTITIONS_MAX || !is_in_order {
                return Err(SnapshotError::Partition(id.0));
            }
            partitions.insert(id, partition.checked()?);
        }
        Ok(Manifest { index: stored.index, partitions })
    }
}

impl StoredPartition {
    fn checked(self) -> Result<Partition, SnapshotError> {
        let partition = self.id.0;
        if self.sources.len() > SOURCES_MAX {
            return Err(SnapshotError::Sources { partition, sources: self.sources.len() });
        }
        let mut live = BTreeMap::new();
        for meta in self.live {
            check_meta(&meta)?;
            let is_foreign = meta.key.partition != self.id || meta.key.epoch > self.epoch;
            if is_foreign || live.insert(meta.key, meta).is_some() {
                return Err(SnapshotError::Blob(meta.key));
            }
        }
        let sum: u128 = live.values().map(|meta| u128::from(meta.total)).sum();
        if sum != self.total {
            return Err(SnapshotError::Sum { partition, total: self.total, live: sum });
        }
        Ok(Partition {
            epoch: self.epoch,
            generation: self.generation,
            owner: self.owner,
            last_commit: self.last_commit,
            sources: self.sources.into_iter().map(|source| (source.id, source.state)).collect(),
            live,
            total: self.total,
        })
    }
}
