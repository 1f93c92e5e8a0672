//! Blobs that are too old leave the manifest. The collector deletes their files then.

use super::{AppliedCommit, BlobSet, ExpireUnnumbered, Manifest, Partition};
use crate::blob::{BlobMeta, Epoch, Level, PartitionId, Seq};
use crate::limits::EXPIRED_BLOBS_MAX;
use crate::retention::Horizons;
use crate::teeth::{Bug, bites};
use crate::time::Day;

/// The expired blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    pub blobs: Vec<BlobMeta>,
    /// Whether further blobs lie behind the horizons.
    pub has_more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpireRefused {
    #[error("partition {} was never claimed", .0.0)]
    NoSuchPartition(PartitionId),
    #[error("epoch {} was named, and {} holds", epoch.0, known.0)]
    OtherEpoch { epoch: Epoch, known: Epoch },
    #[error("number {} is not above {}, the last one that was applied", seq.0, last.0)]
    OldSeq { seq: Seq, last: Seq },
}

impl Manifest {
    /// The owner writes no blob while it expires some, so its next commit knows what is live. A late copy must not change that. `seq` is
    /// `None` for an expiry of an earlier version.
    pub(super) fn expire(&mut self, expire: &ExpireUnnumbered, seq: Option<Seq>) -> Result<Expired, ExpireRefused> {
        let ExpireUnnumbered { partition: id, epoch, today } = *expire;
        let retention = self.retention;
        let partition = self.partitions.get_mut(&id).ok_or(ExpireRefused::NoSuchPartition(id))?;
        if epoch != partition.epoch {
            return Err(ExpireRefused::OtherEpoch { epoch, known: partition.epoch });
        }
        let last = partition.last_seq();
        if let Some(seq) = seq.filter(|seq| *seq <= last && !bites(Bug::LateExpiries)) {
            return Err(ExpireRefused::OldSeq { seq, last });
        }
        self.changed.insert(id);
        let today = partition.live.plausible(today).unwrap_or(Day(0));
        let expired = partition.expire(&retention.horizons(today));
        let applied = seq.map(|seq| AppliedCommit { epoch, seq });
        partition.last_commit = partition.last_commit.max(applied);
        Ok(expired)
    }
}

impl BlobSet {
    /// The day by a clock, and at most the day behind the newest live row. `None`: no row is live, so nothing is known.
    pub fn plausible(&self, today: Day) -> Option<Day> {
        let metas = Level::OF_ROWS.into_iter().flat_map(|level| self.of_level(level));
        let newest = metas.map(|meta| meta.hours.last.day()).max()?;
        Some(if bites(Bug::ExpiryByClock) { today } else { today.min(Day(newest.0.saturating_add(1))) })
    }
}

impl Partition {
    fn expire(&mut self, horizons: &Horizons) -> Expired {
        self.horizons = self.horizons.raised_to(horizons);
        let mut blobs: Vec<BlobMeta> = self.passed().take(EXPIRED_BLOBS_MAX + 1).collect();
        let has_more = blobs.len() > EXPIRED_BLOBS_MAX;
        blobs.truncate(EXPIRED_BLOBS_MAX);
        for meta in &blobs {
            self.live.remove(&meta.key);
            self.total -= u128::from(meta.total);
            self.expired_total += u128::from(meta.total);
        }
        self.erasures.settle(&self.live);
        Expired { blobs, has_more }
    }

    /// The live blobs behind the horizon.
    fn passed(&self) -> impl Iterator<Item = BlobMeta> {
        let levels = Level::OF_ROWS.into_iter().filter(|_| self.horizons.kept > Day(0));
        levels.flat_map(|level| self.live.of_level(level)).filter(|meta| self.horizons.has_passed(meta))
    }
}
