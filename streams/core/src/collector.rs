//! The collector: which files of the store may be deleted.
//!
//! It decides by fence and never by age. A blob that is not live may still be named by a commit that is on its way, however old the
//! blob is. Only when its (epoch, seq) can no longer be committed may it go.

use crate::blob::{BlobKey, Epoch, PartitionId};
use crate::manifest::{Command, Fence, Manifest};
use crate::teeth::{Bug, bites};

/// The judgement of a file of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is live.
    Live,
    /// A commit may still name it. A fence of its partition, or a later commit or expiry, settles that.
    Pending,
    /// No commit will ever name it: it may be deleted.
    Unreachable,
    /// Its partition or its epoch is unknown: it is of another directory, and stays.
    Foreign,
}

/// Judges a file by its name, at the manifest's index. The verdict [`Verdict::Unreachable`] stays right at every later index, so the
/// manifest may be an older copy.
pub fn judge(manifest: &Manifest, key: &BlobKey) -> Verdict {
    let Some(partition) = manifest.partition(key.partition) else { return Verdict::Foreign };
    if partition.live.contains_key(key) {
        return Verdict::Live;
    }
    if key.epoch > partition.epoch || key.epoch == Epoch(0) {
        return Verdict::Foreign;
    }
    let is_fenced = key.epoch < partition.epoch || key.seq < partition.last_seq();
    match is_fenced || bites(Bug::OrphansCollectedByAge) {
        true => Verdict::Unreachable,
        false => Verdict::Pending,
    }
}

/// The command that settles the pending blobs of a partition with a silent owner.
pub fn fence(manifest: &Manifest, partition: PartitionId) -> Option<Command> {
    let epoch = manifest.partition(partition)?.epoch;
    Some(Command::Fence(Fence { partition, epoch }))
}
