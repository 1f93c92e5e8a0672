//! The manifest: which blobs are live, and up to which row of each source they count.
//!
//! It is a replicated machine: commands come in one order, and [`Manifest::apply`] is a function of the state and the command. The
//! rules keep two laws at every log index:
//!
//! 1. Every row of a source below its position is in exactly one live blob, or is a dead letter.
//! 2. A proposal of an owner of an earlier epoch changes nothing.

mod apply;
mod command;
mod encoding;
mod expire;
mod head;
mod replace;
mod snapshot;
#[cfg(test)]
mod tests;
mod version_1;
mod version_2;
mod version_3;

pub use crate::live::{BlobSet, ChunkId, RestoreError};
pub use apply::{
    ClaimRefused, CommitRefused, Committed, EraseRefused, FenceRefused, LayoutRefused, Outcome, TooManyTestTenants,
};
pub use command::{
    Claim, Command, Commit, Erase, Expire, ExpireUnnumbered, Fence, Generation, MemberId, Progress, Replace, SetLayout,
    SetPause, SetRetention, SetTestTenant, SetTypes, Settled, SourceReading, TypesSet,
};
pub use expire::{ExpireRefused, Expired};
pub use head::{Gone, Head, LiveOf, Recovered, replaces_head};
pub use replace::ReplaceRefused;
pub use snapshot::{Restore, Row, SnapshotError};

use crate::blob::{BlobMeta, Epoch, PartitionId, Seq};
use crate::erasure::Erasures;
use crate::layout::Layout;
use crate::pause::Pauses;
use crate::retention::{Horizons, Retention};
use crate::schema::{Position, Schema, TypesOf};
use crate::scope::TenantHash;
use crate::source::{SourceId, SourceState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The replicated state.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    index: u64,
    layout: Layout,
    /// How many layouts were set.
    layout_version: u64,
    pauses: Pauses,
    retention: Retention,
    /// Tenants with test rows: merges keep them in blobs of their own.
    test_tenants: BTreeSet<TenantHash>,
    schema: Arc<Schema>,
    partitions: BTreeMap<PartitionId, Partition>,
    /// Partitions that changed since the last snapshot, apart from their blobs.
    changed: BTreeSet<PartitionId>,
}

/// The state of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    pub epoch: Epoch,
    /// Of the last claim.
    pub generation: Generation,
    /// The member that claimed it last; none after a fence.
    pub owner: Option<MemberId>,
    /// Of the last commit or expiry that was applied, in whatever epoch.
    pub last_commit: Option<AppliedCommit>,
    pub sources: BTreeMap<SourceId, SourceState>,
    pub live: BlobSet,
    /// The sum of all counts that were accepted and are kept. It equals the sum over all live blobs.
    pub total: u128,
    /// The first days that are kept.
    pub horizons: Horizons,
    /// The sum of all counts that have expired.
    pub expired_total: u128,
    pub erasures: Erasures,
    /// The sum of all counts that were erased from blobs, or were of types that were deleted.
    pub erased_total: u128,
    /// The position of each change of event types among its commits.
    pub type_changes: Vec<Position>,
}

/// Which commit or expiry was applied last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct AppliedCommit {
    pub epoch: Epoch,
    pub seq: Seq,
}

impl Manifest {
    pub fn new() -> Manifest {
        Manifest::default()
    }

    /// How many commands were applied.
    pub fn index(&self) -> u64 {
        self.index
    }

    pub fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.partitions.get(&id)
    }

    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Partition)> {
        self.partitions.iter().map(|(id, partition)| (*id, partition))
    }

    /// All live blobs, by partition, level, scope, first hour and name.
    pub fn live(&self) -> impl Iterator<Item = BlobMeta> {
        self.partitions.values().flat_map(|partition| partition.live.values())
    }

    /// Where new rows go.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How long rows are kept.
    pub fn retention(&self) -> &Retention {
        &self.retention
    }

    /// Tenants that are marked as tests.
    pub fn test_tenants(&self) -> &BTreeSet<TenantHash> {
        &self.test_tenants
    }

    /// The names of event types.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The event types as the blobs of a partition have them.
    pub fn types_of(&self, id: PartitionId) -> TypesOf {
        let positions = self.partitions.get(&id).map_or_else(Vec::new, |partition| partition.type_changes.clone());
        TypesOf { schema: Arc::clone(&self.schema), positions }
    }

    /// The pauses.
    pub fn pauses(&self) -> &Pauses {
        &self.pauses
    }

    /// How many layouts were set.
    pub fn layout_version(&self) -> u64 {
        self.layout_version
    }
}

/// The changes since the last snapshot are no part of the state.
impl PartialEq for Manifest {
    fn eq(&self, other: &Manifest) -> bool {
        let Manifest { index, layout, layout_version, pauses, retention, test_tenants, schema, partitions, changed: _ } =
            self;
        let others = (&other.index, &other.layout, &other.layout_version, &other.pauses, &other.retention);
        (index, layout, layout_version, pauses, retention) == others
            && *test_tenants == other.test_tenants
            && *schema == other.schema
            && *partitions == other.partitions
    }
}

impl Eq for Manifest {}

impl Partition {
    /// How far a source is counted.
    pub fn source(&self, id: SourceId) -> SourceState {
        self.sources.get(&id).copied().unwrap_or_default()
    }

    /// The number of erasures and changes of event types. A commit states it.
    pub fn revision(&self) -> u64 {
        self.erasures.count() + self.type_changes.len() as u64
    }

    /// The number of the last commit or expiry; 0 before the first.
    pub fn last_seq(&self) -> Seq {
        self.last_commit.map_or(Seq(0), |last| last.seq)
    }
}
