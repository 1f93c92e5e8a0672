//! Version 1 of commands and snapshots, which directories of that time have: blobs had no scope.

use super::version_2::Source2;
use super::version_3::Claim3;
use super::{AppliedCommit, Command, Commit, Fence, Generation, MemberId, Progress};
use crate::blob::{BlobKey, BlobMeta, Epoch, Level, PartitionId, Seq, StoredBlob};
use crate::codec::{DecodeError, decode_versioned};
use crate::scope::Scope;
use crate::time::HourRange;
use serde::Deserialize;

pub(crate) const VERSION: u8 = 1;

#[derive(Deserialize)]
enum Command1 {
    Claim(Claim3),
    Commit(Commit1),
    Fence(Fence),
}

#[derive(Deserialize)]
struct Commit1 {
    partition: PartitionId,
    epoch: Epoch,
    seq: Seq,
    progress: Option<Progress>,
    add: Vec<BlobMeta1>,
    remove: Vec<BlobKey>,
}

#[derive(Deserialize)]
pub(crate) struct BlobMeta1 {
    key: BlobKey,
    level: Level,
    hours: HourRange,
    rows: u64,
    total: u64,
    stored: StoredBlob,
}

#[derive(Deserialize)]
pub(crate) struct Manifest1 {
    pub index: u64,
    pub partitions: Vec<Partition1>,
}

#[derive(Deserialize)]
pub(crate) struct Partition1 {
    pub id: PartitionId,
    pub epoch: Epoch,
    pub generation: Generation,
    pub owner: Option<MemberId>,
    pub last_commit: Option<AppliedCommit>,
    pub total: u128,
    pub sources: Vec<Source2>,
    pub live: Vec<BlobMeta1>,
}

impl From<BlobMeta1> for BlobMeta {
    fn from(meta: BlobMeta1) -> BlobMeta {
        let BlobMeta1 { key, level, hours, rows, total, stored } = meta;
        BlobMeta { key, level, scope: Scope::ALL, hours, rows, total, stored }
    }
}

pub(super) fn decode_command(bytes: &[u8]) -> Result<Command, DecodeError> {
    Ok(match decode_versioned(VERSION, bytes)? {
        Command1::Claim(claim) => Command::Claim(claim.into()),
        Command1::Fence(fence) => Command::Fence(fence),
        Command1::Commit(Commit1 { partition, epoch, seq, progress, add, remove }) => {
            let add = add.into_iter().map(BlobMeta::from).collect();
            Command::Commit(Commit { partition, epoch, seq, progress, add, remove, ..Commit::default() })
        }
    })
}
