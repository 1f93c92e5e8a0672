//! Commands of the manifest.

use crate::blob::{BlobKey, BlobMeta, Epoch, PartitionId, Seq};
use crate::erasure::ErasureKey;
use crate::layout::Layout;
use crate::pause::PauseTarget;
use crate::retention::Retention;
use crate::schema::TypeChange;
use crate::scope::TenantHash;
use crate::source::{ReadingId, SourceId};
use crate::time::{Day, Days, Hour};
use serde::{Deserialize, Serialize};

/// The number of a claim, given out by the process that assigns partitions: a consumer group, or the one process of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Generation(pub u64);

/// A process that owns partitions, told apart from all others by a random number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MemberId(pub u64);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    Claim(Claim),
    Commit(Commit),
    Fence(Fence),
    Layout(SetLayout),
    Pause(SetPause),
    Retention(SetRetention),
    ExpireUnnumbered(ExpireUnnumbered),
    Erase(Erase),
    TestTenant(SetTestTenant),
    Types(SetTypes),
    Replace(Replace),
    Expire(Expire),
}

/// Makes a member the owner of a partition, under a new epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub partition: PartitionId,
    pub generation: Generation,
    pub member: MemberId,
    /// The names of event types that the member counts. `None`: it is of an earlier version, which does not list them.
    pub types: Option<Vec<String>>,
}

/// Replaces blobs by others, and moves the position of a source with the blobs that hold its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    pub partition: PartitionId,
    pub epoch: Epoch,
    pub seq: Seq,
    /// `None`: a merge.
    pub progress: Option<Progress>,
    pub add: Vec<BlobMeta>,
    pub remove: Vec<BlobKey>,
    /// Dead letters that leave the blobs which are removed.
    pub settled: Option<Settled>,
    /// The number of erasures and changes of event types that the owner knew. The commit is refused if the manifest has another number.
    pub revision: u64,
    /// The sum of the counts of erased rows and of deleted types, which the blobs that are removed held.
    pub erased: u64,
}

/// Dead letters of a source that are dead letters no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    pub source: SourceId,
    /// Letters that count now.
    pub replayed: u64,
    /// Letters that are given up.
    pub dropped: u64,
    /// The sum of the counts of the replayed letters.
    pub total: u64,
}

impl Settled {
    /// How many letters it takes away.
    pub fn letters(&self) -> u64 {
        self.replayed.saturating_add(self.dropped)
    }
}

/// Which rows of a source a commit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub source: SourceId,
    pub reading: ReadingId,
    /// The position that the commit begins at, and the next row to read behind it.
    pub from: u64,
    pub to: u64,
    /// Rows of these that became dead letters. All others were accepted.
    pub dead_letters: u64,
    /// The sum of the counts that were accepted.
    pub total: u64,
    /// Whether the source ends at `to`.
    pub is_end: bool,
}

/// Raises the epoch of a partition that has no owner, or a silent owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    pub partition: PartitionId,
    /// The epoch that the proposer knows. The command is void once another one holds.
    pub epoch: Epoch,
}

/// Replaces the layout by one that adds to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetLayout {
    /// How many layouts were set before, as the proposer knows it. The command is void once another one was set.
    pub version: u64,
    pub layout: Layout,
}

/// Pauses the partition or an event type, or resumes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetPause {
    pub target: PauseTarget,
    /// Milliseconds since 1970 by the proposer's clock; `None`: it is resumed.
    pub paused_at_ms: Option<u64>,
}

/// Sets how long rows are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRetention {
    pub retention: Retention,
}

/// Raises the horizons of a partition, and removes the blobs behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expire {
    pub partition: PartitionId,
    /// Of the owner that proposes it.
    pub epoch: Epoch,
    /// Commits, replacements and expiries of an epoch are numbered together. A late copy of an expiry has an old number, and removes nothing.
    pub seq: Seq,
    /// By the clock of the owner. The manifest bounds it by the newest live row.
    pub today: Day,
}

/// An expiry in the log of an earlier version. A late copy of it may remove further blobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpireUnnumbered {
    pub partition: PartitionId,
    pub epoch: Epoch,
    pub today: Day,
}

/// Erases rows of a tenant or listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erase {
    pub partition: PartitionId,
    pub key: ErasureKey,
    /// Rows of earlier hours are erased.
    pub before: Hour,
    /// When it was asked for, in milliseconds since 1970.
    pub asked_at_ms: u64,
}

/// Marks a tenant as a test, or takes the mark away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetTestTenant {
    pub tenant: TenantHash,
    pub is_test: bool,
}

/// Changes event types, or lists them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetTypes {
    pub set: TypesSet,
    /// The time of the request, in milliseconds since 1970.
    pub asked_at_ms: u64,
    /// The first row of the intake's log after all acknowledged events. The names before the change decide about earlier rows.
    pub log_row: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TypesSet {
    Change(TypeChange),
    /// The names of all live blobs, of a directory with blobs of an earlier version.
    List(Vec<String>),
}

/// Replaces the rows of past days by a recount of their sources. The sum of all counts changes by the difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replace {
    pub partition: PartitionId,
    pub epoch: Epoch,
    pub seq: Seq,
    pub days: Days,
    /// Blobs with the recounted rows, and with rows of other days and types that the removed blobs held.
    pub add: Vec<BlobMeta>,
    /// The blobs that were recounted: all live blobs with hours of these days. The command is refused if others are live.
    pub remove: Vec<BlobKey>,
    /// As of a commit.
    pub revision: u64,
    /// As of a commit.
    pub erased: u64,
    /// The sum of the counts that are replaced.
    pub before: u64,
    /// The sum of the recounted counts.
    pub after: u64,
    /// The sources that were recounted by other columns or another zone than before.
    pub readings: Vec<SourceReading>,
}

/// How a source is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceReading {
    pub source: SourceId,
    pub reading: ReadingId,
}
