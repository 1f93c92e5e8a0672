//! Blobs: immutable files of rollup rows or dead letters, and what the manifest keeps of each.

use crate::rollup::Rollups;
use crate::scope::Scope;
use crate::time::HourRange;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use xxhash_rust::xxh3::xxh3_128;

/// A partition of the stream: the unit of ownership, position and commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PartitionId(pub u32);

/// Which claim of a partition. A later claim has a higher epoch, and fences the owners of all earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// The number of a commit of a partition. It rises, also from one epoch to the next, and may leave numbers out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Seq(pub u64);

/// The unique name of a blob: the commit that names it, and its place in that commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlobKey {
    pub partition: PartitionId,
    pub epoch: Epoch,
    pub seq: Seq,
    pub part: u32,
}

/// The content of a blob. Rows rise from deltas to hours, days and periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// Rows of one flush, of any hour and tenant.
    Delta,
    /// Rows of one bucket and one day of UTC, or of late rows of several days of one period.
    Day,
    /// Rows of a source that were refused.
    DeadLetters,
    /// Rows of one virtual partition and one day, as one merge of deltas found them.
    Hour,
    /// Rows of one bucket and one period: a week, a month or a quarter of a year.
    Period,
}

/// The manifest's entry of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobMeta {
    pub key: BlobKey,
    pub level: Level,
    /// Which tenants it may hold.
    pub scope: Scope,
    /// The first and the last hour of its rows; of dead letters, hour 0.
    pub hours: HourRange,
    pub rows: u64,
    /// The sum of all counts; of dead letters, 0.
    pub total: u64,
    pub stored: StoredBlob,
}

/// How many blobs are live, what they count, and which they are. Two sets of blobs have one digest only if they are the same: names
/// are added up as hashes of 128 bits, so blobs may come and go in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveDigest {
    pub blobs: u64,
    pub total: u128,
    pub names: u128,
}

/// A blob as the store wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBlob {
    pub bytes: u64,
    /// XXH3 with 64 bits of all bytes.
    pub checksum: u64,
}

/// A text that names no blob.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no blob: PARTITION-EPOCH-SEQ-PART is expected, such as 0-1-7-0")]
pub struct BlobKeyError(String);

impl fmt::Display for BlobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}-{}", self.partition.0, self.epoch.0, self.seq.0, self.part)
    }
}

impl FromStr for BlobKey {
    type Err = BlobKeyError;

    /// The text that `Display` gives, and no other.
    fn from_str(text: &str) -> Result<BlobKey, BlobKeyError> {
        let error = || BlobKeyError(text.chars().take(80).collect());
        let mut numbers = text.split('-').map(|number| number.parse::<u64>().ok());
        let mut next = || numbers.next().flatten().ok_or_else(error);
        let partition = next()?;
        let epoch = next()?;
        let seq = next()?;
        let part = next()?;
        let short = |number: u64| u32::try_from(number).map_err(|_| error());
        let key = BlobKey {
            partition: PartitionId(short(partition)?),
            epoch: Epoch(epoch),
            seq: Seq(seq),
            part: short(part)?,
        };
        if key.to_string() == text { Ok(key) } else { Err(error()) }
    }
}

impl LiveDigest {
    #[must_use]
    pub fn with(self, meta: &BlobMeta) -> LiveDigest {
        LiveDigest {
            blobs: self.blobs.wrapping_add(1),
            total: self.total.wrapping_add(meta.total.into()),
            names: self.names.wrapping_add(meta.key.hash()),
        }
    }

    #[must_use]
    pub fn without(self, meta: &BlobMeta) -> LiveDigest {
        LiveDigest {
            blobs: self.blobs.wrapping_sub(1),
            total: self.total.wrapping_sub(meta.total.into()),
            names: self.names.wrapping_sub(meta.key.hash()),
        }
    }
}

impl BlobMeta {
    /// Whether rows are as many, count as much, and are of the same hours, as it says of its blob.
    pub fn holds(&self, rows: &Rollups) -> bool {
        let is_of_hours = rows.hours().is_none_or(|hours| hours == self.hours);
        (rows.len() as u64, rows.total()) == (self.rows, self.total) && is_of_hours
    }
}

impl BlobKey {
    /// The first name in the order of names, and the last.
    pub const FIRST: BlobKey = BlobKey { partition: PartitionId(0), epoch: Epoch(0), seq: Seq(0), part: 0 };
    pub const LAST: BlobKey =
        BlobKey { partition: PartitionId(u32::MAX), epoch: Epoch(u64::MAX), seq: Seq(u64::MAX), part: u32::MAX };
}

impl BlobKey {
    /// XXH3 with 128 bits of the name. It is part of what blobs keep.
    pub(crate) fn hash(&self) -> u128 {
        let BlobKey { partition, epoch, seq, part } = *self;
        let mut bytes = [0; 24];
        bytes[..4].copy_from_slice(&partition.0.to_le_bytes());
        bytes[4..12].copy_from_slice(&epoch.0.to_le_bytes());
        bytes[12..20].copy_from_slice(&seq.0.to_le_bytes());
        bytes[20..].copy_from_slice(&part.to_le_bytes());
        xxh3_128(&bytes)
    }
}

impl Level {
    /// Levels of rows, from the lowest to the highest.
    pub const OF_ROWS: [Level; 4] = [Level::Delta, Level::Hour, Level::Day, Level::Period];

    /// Whether it holds rows that count.
    pub fn is_of_rows(self) -> bool {
        match self {
            Level::Delta | Level::Hour | Level::Day | Level::Period => true,
            Level::DeadLetters => false,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Delta => "delta",
            Level::Day => "day",
            Level::DeadLetters => "dead-letters",
            Level::Hour => "hour",
            Level::Period => "period",
        })
    }
}

/// A text that names no level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no level of a blob")]
pub struct LevelError(String);

impl FromStr for Level {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Level, LevelError> {
        let levels = Level::OF_ROWS.into_iter().chain([Level::DeadLetters]);
        let found = levels.into_iter().find(|level| level.to_string() == text);
        found.ok_or_else(|| LevelError(text.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored blobs and `manifest.head` depend on these values.
    #[test]
    fn hashes_of_names_are_what_they_were() {
        let key = BlobKey { partition: PartitionId(3), epoch: Epoch(2), seq: Seq(258), part: 7 };
        assert_eq!(key.hash(), 0xd78f_33ae_78e6_d2bf_9bed_d927_70fd_664d);
    }

    #[test]
    fn blob_names_are_read_as_they_are_written() {
        let key = BlobKey { partition: PartitionId(3), epoch: Epoch(2), seq: Seq(u64::MAX), part: 7 };
        assert_eq!(key.to_string().parse(), Ok(key));
        for text in ["", "1-2-3", "1-2-3-4-5", "1-2-3-+4", "01-2-3-4", "a-b-c-d", "1-2-3-4294967296", "1--2-3"] {
            assert!(text.parse::<BlobKey>().is_err(), "{text}");
        }
    }
}
