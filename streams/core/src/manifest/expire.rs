//! Blobs that are too old leave the manifest. The collector deletes their files then.

use super::{Expire, Manifest, Partition};
use crate::blob::{BlobMeta, Epoch, Level, PartitionId};
use crate::limits::EXPIRED_BLOBS_MAX;
use crate::retention::Horizons;
use crate::time::Day;

/// What has expired.
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
    #[error("the horizons {0:?} keep a lower level longer than a higher one")]
    Order(Horizons),
}

impl Manifest {
    pub(super) fn expire(&mut self, expire: &Expire) -> Result<Expired, ExpireRefused> {
        let Expire { partition: id, epoch, horizons } = *expire;
        let partition = self.partitions.get_mut(&id).ok_or(ExpireRefused::NoSuchPartition(id))?;
        if epoch != partition.epoch {
            return Err(ExpireRefused::OtherEpoch { epoch, known: partition.epoch });
        }
        if !horizons.is_ordered() {
            return Err(ExpireRefused::Order(horizons));
        }
        self.changed.insert(id);
        Ok(partition.expire(&horizons))
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
            if meta.level != Level::Period {
                self.lost_before = self.lost_before.max(Day(meta.hours.last.day().0 + 1));
            }
        }
        self.erasures.settle(&self.live);
        Expired { blobs, has_more }
    }

    /// The live blobs behind the horizons.
    fn passed(&self) -> impl Iterator<Item = BlobMeta> {
        let levels = Level::OF_ROWS.into_iter().filter(|level| self.horizons.of_level(*level) > Day(0));
        levels.flat_map(|level| self.live.of_level(level)).filter(|meta| self.horizons.has_passed(meta))
    }
}
