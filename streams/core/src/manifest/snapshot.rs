//! The state as rows of a store: one for the head, one for each partition, and one for each chunk of live blobs.
//!
//! Only rows that changed since the last snapshot are written again. All rows of a snapshot belong to one index, so the store writes
//! them in one transaction.

use super::version_1::{self, Manifest1, Partition1};
use super::version_2::{self, Head2, Partition2};
use super::version_3::{self, Head3, Partition3};
use super::{
    AppliedCommit, BlobSet, ChunkId, Generation, Manifest, MemberId, Partition, RestoreError, TooManyTestTenants,
};
use crate::blob::{BlobKey, Epoch, PartitionId};
use crate::codec::{DecodeError, decode_versioned, encode_versioned};
use crate::erasure::{Erasure, ErasureKey, Erasures, TooManyErasures};
use crate::layout::{Layout, LayoutError};
use crate::limits::{PARTITIONS_MAX, SOURCES_MAX, TEST_TENANTS_MAX};
use crate::live::ChangedChunk;
use crate::pause::{PauseRefused, Pauses};
use crate::retention::{Horizons, Retention, RetentionError};
use crate::schema::{Changed, Position, Schema, SchemaRefused};
use crate::scope::TenantHash;
use crate::source::{SourceId, SourceState};
use crate::time::Hour;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the encoding of the head and of partitions. Rows of versions 2 and 3 are read, and written again when they change.
const VERSION: u8 = 4;
/// The version of a head with dimensions. Otherwise it is version 4, so snapshots of other directories stay as they are.
const DIMENSION_VERSION: u8 = 5;
/// The version of chunks.
const CHUNK_VERSION: u8 = 2;
const HEAD: u8 = b'h';
const PARTITION: u8 = b'p';
const CHUNK: u8 = b'c';

/// A row of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub key: Vec<u8>,
    /// `None`: the row is deleted.
    pub value: Option<Vec<u8>>,
}

/// Why rows are no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    #[error("the snapshot of the manifest: {0}")]
    Decode(#[from] DecodeError),
    #[error("the snapshot of the manifest: {0:02x?} is the key of no row")]
    Key(Vec<u8>),
    #[error("the snapshot of the manifest: it has no head, or {found} partitions where the head says {expected}")]
    Partitions { found: usize, expected: usize },
    #[error("the snapshot of the manifest: partition {0} is too high, stands twice, or is missing")]
    Partition(u32),
    #[error("the snapshot of the manifest: partition {partition} has {sources} sources: at most {SOURCES_MAX}")]
    Sources { partition: u32, sources: usize },
    #[error("the snapshot of the manifest: blob {0} stands twice, or is of another partition or a later epoch")]
    Blob(BlobKey),
    #[error("the snapshot of the manifest: partition {partition}: {error}")]
    Chunk { partition: u32, error: RestoreError },
    #[error("the snapshot of the manifest: partition {partition} counts {total}, and its live blobs {live}")]
    Sum { partition: u32, total: u128, live: u128 },
    #[error("the snapshot of the manifest: partition {partition} has {found} live blobs, and {expected} are named")]
    Blobs { partition: u32, found: u64, expected: u64 },
    #[error("the snapshot of the manifest: a pause: {0}")]
    Pause(#[from] PauseRefused),
    #[error("the snapshot of the manifest: the retention: {0}")]
    Retention(#[from] RetentionError),
    #[error("the snapshot of the manifest: {0}")]
    Erasures(#[from] TooManyErasures),
    #[error("the snapshot of the manifest: {0}")]
    Types(#[from] SchemaRefused),
    #[error("the snapshot of the manifest: partition {partition} follows {found} changes of event types, of {known}")]
    TypeChanges { partition: u32, found: usize, known: usize },
    #[error("the snapshot of the manifest: {0}")]
    TestTenants(#[from] TooManyTestTenants),
    #[error("the snapshot of the manifest: partition {0} keeps no rows of days that it accepts rows for")]
    Horizons(u32),
    #[error("the snapshot of the manifest: partition {partition} has {known} erasures, of {count} commands")]
    ErasureCount { partition: u32, known: usize, count: u64 },
    #[error("the snapshot of the manifest: an erasure reaches to hour {0}: at most {max}", max = Hour::MAX.0)]
    ErasureHour(u32),
    #[error("the snapshot of the manifest: the layout: {0}")]
    Layout(#[from] LayoutError),
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredHead {
    index: u64,
    layout: Layout,
    layout_version: u64,
    partitions: u32,
    pauses: Pauses,
    retention: Retention,
    test_tenants: Vec<TenantHash>,
    types: StoredTypes,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredTypes {
    listed: Vec<String>,
    is_whole: bool,
    changes: Vec<Changed>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredPartition {
    epoch: Epoch,
    generation: Generation,
    owner: Option<MemberId>,
    last_commit: Option<AppliedCommit>,
    total: u128,
    blobs: u64,
    sources: Vec<StoredSource>,
    horizons: Horizons,
    expired_total: u128,
    erasures: Vec<StoredErasure>,
    erasure_count: u64,
    erased_total: u128,
    type_changes: Vec<Position>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredErasure {
    key: ErasureKey,
    erasure: Erasure,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredSource {
    id: SourceId,
    state: SourceState,
}

/// A manifest that is read from its rows, which come in any order.
#[derive(Debug, Default)]
pub struct Restore {
    head: Option<StoredHead>,
    partitions: BTreeMap<PartitionId, StoredPartition>,
    live: BTreeMap<PartitionId, BlobSet>,
}

impl Manifest {
    /// The rows that changed since the last call. A caller that takes them writes them all, or ends.
    pub fn take_changes(&mut self) -> Vec<Row> {
        let mut rows = vec![self.head_row()];
        for id in std::mem::take(&mut self.changed) {
            let Some(partition) = self.partitions.get_mut(&id) else { continue };
            rows.push(partition.row(id));
            rows.extend(partition.live.take_changes().into_iter().map(|chunk| chunk_row(id, chunk)));
        }
        rows
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        let of_partition = |(id, partition): (&PartitionId, &Partition)| {
            let id = *id;
            let head = partition.row(id);
            let chunks: Vec<Row> = partition.live.chunks().map(|chunk| chunk_row(id, chunk)).collect();
            [head].into_iter().chain(chunks)
        };
        [self.head_row()].into_iter().chain(self.partitions.iter().flat_map(of_partition))
    }

    pub(super) fn head_row(&self) -> Row {
        let head = StoredHead {
            index: self.index,
            layout: self.layout.clone(),
            layout_version: self.layout_version,
            partitions: self.partitions.len() as u32,
            pauses: self.pauses.clone(),
            retention: self.retention,
            test_tenants: self.test_tenants.iter().copied().collect(),
            types: StoredTypes {
                listed: self.schema.listed().iter().cloned().collect(),
                is_whole: self.schema.is_whole(),
                changes: self.schema.changes().to_vec(),
            },
        };
        let version = if self.schema.has_dimensions() { DIMENSION_VERSION } else { VERSION };
        Row { key: vec![HEAD], value: Some(encode_versioned(version, &head)) }
    }

    /// Reads the one row that version 1 kept.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn from_version_1(bytes: &[u8]) -> Result<Manifest, SnapshotError> {
        let stored: Manifest1 = decode_versioned(version_1::VERSION, bytes)?;
        let mut manifest = Manifest { index: stored.index, ..Manifest::new() };
        manifest.schema = StoredTypes::unsaid(stored.partitions.len()).checked()?.into();
        for partition in stored.partitions {
            let id = partition.id;
            let is_in_order = manifest.partitions.last_key_value().is_none_or(|(last, _)| *last < id);
            if id.0 >= PARTITIONS_MAX || !is_in_order {
                return Err(SnapshotError::Partition(id.0));
            }
            manifest.partitions.insert(id, of_version_1(partition)?);
            manifest.changed.insert(id);
        }
        Ok(manifest)
    }
}

impl Partition {
    pub(super) fn row(&self, id: PartitionId) -> Row {
        let stored = StoredPartition {
            epoch: self.epoch,
            generation: self.generation,
            owner: self.owner,
            last_commit: self.last_commit,
            total: self.total,
            blobs: self.live.len(),
            sources: self.sources.iter().map(|(id, state)| StoredSource { id: *id, state: *state }).collect(),
            horizons: self.horizons,
            expired_total: self.expired_total,
            erasures: self.erasures.iter().map(|(key, erasure)| StoredErasure { key, erasure }).collect(),
            erasure_count: self.erasures.count(),
            erased_total: self.erased_total,
            type_changes: self.type_changes.clone(),
        };
        let key = [&[PARTITION][..], &id.0.to_be_bytes()].concat();
        Row { key, value: Some(encode_versioned(VERSION, &stored)) }
    }
}

fn chunk_row(partition: PartitionId, chunk: ChangedChunk) -> Row {
    let key = [&[CHUNK][..], &partition.0.to_be_bytes(), &chunk.id.0.to_be_bytes()].concat();
    Row { key, value: chunk.bytes.map(|bytes| [&[CHUNK_VERSION], &bytes[..]].concat()) }
}

impl Restore {
    pub fn new() -> Restore {
        Restore::default()
    }

    /// Takes a row.
    ///
    /// # Errors
    /// [`SnapshotError`]: it is none of a snapshot.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), SnapshotError> {
        let number = |bytes: &[u8]| bytes.try_into().map(u32::from_be_bytes).ok();
        match key {
            [HEAD] => {
                let head = match value.first() {
                    Some(&version_2::VERSION) => decode_versioned::<Head2>(version_2::VERSION, value)?.into(),
                    Some(&version_3::VERSION) => decode_versioned::<Head3>(version_3::VERSION, value)?.into(),
                    Some(&VERSION) => decode_versioned::<StoredHead>(VERSION, value)?,
                    _ => decode_versioned::<StoredHead>(DIMENSION_VERSION, value)?,
                };
                head.layout.check()?;
                head.pauses.check_all()?;
                head.retention.check()?;
                if head.test_tenants.len() > TEST_TENANTS_MAX {
                    return Err(SnapshotError::TestTenants(TooManyTestTenants));
                }
                self.head = Some(head);
                Ok(())
            }
            [PARTITION, id @ ..] if id.len() == 4 => {
                let id = PartitionId(number(id).unwrap_or(u32::MAX));
                let stored = match value.first() {
                    Some(&version_2::VERSION) => decode_versioned::<Partition2>(version_2::VERSION, value)?.into(),
                    Some(&version_3::VERSION) => decode_versioned::<Partition3>(version_3::VERSION, value)?.into(),
                    _ => decode_versioned::<StoredPartition>(VERSION, value)?,
                };
                if id.0 >= PARTITIONS_MAX || self.partitions.insert(id, stored).is_some() {
                    return Err(SnapshotError::Partition(id.0));
                }
                Ok(())
            }
            [CHUNK, ids @ ..] if ids.len() == 8 => {
                let id = PartitionId(number(&ids[..4]).unwrap_or(u32::MAX));
                let chunk = ChunkId(number(&ids[4..]).unwrap_or(u32::MAX));
                let (&found, bytes) = value.split_first().ok_or(DecodeError::Empty)?;
                if found != CHUNK_VERSION {
                    return Err(DecodeError::Version { found, known: CHUNK_VERSION }.into());
                }
                let live = self.live.entry(id).or_default();
                live.restore(chunk, bytes).map_err(|error| SnapshotError::Chunk { partition: id.0, error })
            }
            other => Err(SnapshotError::Key(other.iter().copied().take(16).collect())),
        }
    }

    /// The manifest of all rows; an empty one where there was none.
    ///
    /// # Errors
    /// [`SnapshotError`]: rows are missing, or do not fit together.
    pub fn finish(self) -> Result<Manifest, SnapshotError> {
        self.finish_with(StoredPartition::checked)
    }

    /// The manifest without its blobs, whose rows were left out.
    ///
    /// # Errors
    /// [`SnapshotError`]: rows are missing, or do not fit together.
    pub(super) fn finish_head(self) -> Result<Manifest, SnapshotError> {
        self.finish_with(|stored, id, _| stored.without_blobs(id))
    }

    fn finish_with(
        mut self,
        partition: impl Fn(StoredPartition, PartitionId, BlobSet) -> Result<Partition, SnapshotError>,
    ) -> Result<Manifest, SnapshotError> {
        let found = self.partitions.len();
        let head = match self.head.take() {
            Some(head) => head,
            None if found == 0 && self.live.is_empty() => return Ok(Manifest::new()),
            None => return Err(SnapshotError::Partitions { found, expected: 0 }),
        };
        if found != head.partitions as usize {
            return Err(SnapshotError::Partitions { found, expected: head.partitions as usize });
        }
        let StoredHead { index, layout, layout_version, pauses, retention, test_tenants, types, partitions: _ } = head;
        let test_tenants = test_tenants.into_iter().collect();
        let schema = types.checked()?.into();
        let mut manifest =
            Manifest { index, layout, layout_version, pauses, retention, test_tenants, schema, ..Manifest::new() };
        for (id, stored) in std::mem::take(&mut self.partitions) {
            let live = self.live.remove(&id).unwrap_or_default();
            let found = stored.type_changes.len();
            let known = manifest.schema.changes().len();
            if found != known {
                return Err(SnapshotError::TypeChanges { partition: id.0, found, known });
            }
            manifest.partitions.insert(id, partition(stored, id, live)?);
        }
        match self.live.first_key_value() {
            Some((id, _)) => Err(SnapshotError::Partition(id.0)),
            None => Ok(manifest),
        }
    }
}

impl From<Head2> for StoredHead {
    fn from(head: Head2) -> StoredHead {
        let Head2 { index, layout, layout_version, partitions } = head;
        let pauses = Pauses::default();
        let retention = Retention::default();
        Head3 { index, layout, layout_version, partitions, pauses, retention, test_tenants: Vec::new() }.into()
    }
}

impl From<Head3> for StoredHead {
    fn from(head: Head3) -> StoredHead {
        let Head3 { index, layout, layout_version, partitions, pauses, retention, test_tenants } = head;
        let types = StoredTypes::unsaid(partitions as usize);
        StoredHead { index, layout, layout_version, partitions, pauses, retention, test_tenants, types }
    }
}

impl StoredTypes {
    /// Of an earlier version, which did not say the event types of its partitions.
    fn unsaid(partitions: usize) -> StoredTypes {
        StoredTypes { listed: Vec::new(), is_whole: partitions == 0, changes: Vec::new() }
    }

    fn checked(self) -> Result<Schema, SchemaRefused> {
        let StoredTypes { listed, is_whole, changes } = self;
        Schema::restored(listed, is_whole, changes)
    }
}

impl From<Partition3> for StoredPartition {
    fn from(stored: Partition3) -> StoredPartition {
        StoredPartition {
            epoch: stored.epoch,
            generation: stored.generation,
            owner: stored.owner,
            last_commit: stored.last_commit,
            total: stored.total,
            blobs: stored.blobs,
            sources: stored.sources,
            horizons: stored.horizons,
            expired_total: stored.expired_total,
            erasures: stored.erasures,
            erasure_count: stored.erasure_count,
            erased_total: stored.erased_total,
            type_changes: Vec::new(),
        }
    }
}

impl From<Partition2> for StoredPartition {
    fn from(stored: Partition2) -> StoredPartition {
        let Partition2 { epoch, generation, owner, last_commit, total, blobs, sources } = stored;
        let sources = sources.into_iter().map(|source| StoredSource { id: source.id, state: source.state.into() });
        StoredPartition {
            epoch,
            generation,
            owner,
            last_commit,
            total,
            blobs,
            sources: sources.collect(),
            horizons: Horizons::default(),
            expired_total: 0,
            erasures: Vec::new(),
            erasure_count: 0,
            erased_total: 0,
            type_changes: Vec::new(),
        }
    }
}

impl StoredPartition {
    fn checked(self, id: PartitionId, mut live: BlobSet) -> Result<Partition, SnapshotError> {
        live.finish();
        if live.len() != self.blobs {
            return Err(SnapshotError::Blobs { partition: id.0, found: live.len(), expected: self.blobs });
        }
        let partition = Partition { live, ..self.without_blobs(id)? };
        partition.check_restored(id)?;
        Ok(partition)
    }

    fn without_blobs(self, id: PartitionId) -> Result<Partition, SnapshotError> {
        if !self.horizons.is_ordered() {
            return Err(SnapshotError::Horizons(id.0));
        }
        let known = self.erasures.len();
        if known as u64 > self.erasure_count {
            return Err(SnapshotError::ErasureCount { partition: id.0, known, count: self.erasure_count });
        }
        if let Some(far) = self.erasures.iter().find(|stored| stored.erasure.before > Hour::MAX) {
            return Err(SnapshotError::ErasureHour(far.erasure.before.0));
        }
        let erasures = self.erasures.into_iter().map(|stored| (stored.key, stored.erasure));
        Ok(Partition {
            epoch: self.epoch,
            generation: self.generation,
            owner: self.owner,
            last_commit: self.last_commit,
            sources: self.sources.into_iter().map(|source| (source.id, source.state)).collect(),
            live: BlobSet::new(),
            total: self.total,
            horizons: self.horizons,
            expired_total: self.expired_total,
            erasures: Erasures::restored(erasures.collect(), self.erasure_count)?,
            erased_total: self.erased_total,
            type_changes: self.type_changes,
        })
    }
}

impl Partition {
    pub(super) fn check_restored(&self, id: PartitionId) -> Result<(), SnapshotError> {
        let partition = id.0;
        if self.sources.len() > SOURCES_MAX {
            return Err(SnapshotError::Sources { partition, sources: self.sources.len() });
        }
        let is_foreign = |key: &BlobKey| key.partition != id || key.epoch > self.epoch;
        if let Some(key) = self.live.values().map(|meta| meta.key).find(is_foreign) {
            return Err(SnapshotError::Blob(key));
        }
        let live = self.live.total();
        if live == self.total { Ok(()) } else { Err(SnapshotError::Sum { partition, total: self.total, live }) }
    }
}

fn of_version_1(stored: Partition1) -> Result<Partition, SnapshotError> {
    let id = stored.id;
    let mut live = BlobSet::new();
    for meta in stored.live.into_iter().map(crate::blob::BlobMeta::from) {
        crate::codec::check_meta(&meta)?;
        if !live.insert(&meta) {
            return Err(SnapshotError::Blob(meta.key));
        }
    }
    let partition = Partition {
        epoch: stored.epoch,
        generation: stored.generation,
        owner: stored.owner,
        last_commit: stored.last_commit,
        sources: stored.sources.into_iter().map(|source| (source.id, source.state.into())).collect(),
        live,
        total: stored.total,
        ..Partition::default()
    };
    partition.check_restored(id)?;
    Ok(partition)
}
