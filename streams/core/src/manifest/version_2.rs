//! Version 2 of commands and snapshots: a dead letter stayed one for ever.

use super::version_3::Claim3;
use super::{AppliedCommit, Command, Commit, Fence, Generation, MemberId, Progress, SetLayout};
use crate::blob::{BlobKey, BlobMeta, Epoch, PartitionId, Seq};
use crate::codec::{DecodeError, decode_versioned};
use crate::layout::Layout;
use crate::source::{ReadingId, SourceId, SourceState};
use serde::Deserialize;

pub(crate) const VERSION: u8 = 2;

#[derive(Deserialize)]
enum Command2 {
    Claim(Claim3),
    Commit(Commit2),
    Fence(Fence),
    Layout(SetLayout),
}

#[derive(Deserialize)]
struct Commit2 {
    partition: PartitionId,
    epoch: Epoch,
    seq: Seq,
    progress: Option<Progress>,
    add: Vec<BlobMeta>,
    remove: Vec<BlobKey>,
}

#[derive(Deserialize)]
pub(crate) struct Head2 {
    pub index: u64,
    pub layout: Layout,
    pub layout_version: u64,
    pub partitions: u32,
}

#[derive(Deserialize)]
pub(crate) struct Partition2 {
    pub epoch: Epoch,
    pub generation: Generation,
    pub owner: Option<MemberId>,
    pub last_commit: Option<AppliedCommit>,
    pub total: u128,
    pub blobs: u64,
    pub sources: Vec<Source2>,
}

/// Of version 1 too.
#[derive(Deserialize)]
pub(crate) struct Source2 {
    pub id: SourceId,
    pub state: SourceState2,
}

#[derive(Deserialize)]
pub(crate) struct SourceState2 {
    reading: ReadingId,
    next_row: u64,
    is_complete: bool,
    accepted: u64,
    dead_letters: u64,
}

impl From<SourceState2> for SourceState {
    fn from(state: SourceState2) -> SourceState {
        let SourceState2 { reading, next_row, is_complete, accepted, dead_letters } = state;
        SourceState { reading, next_row, is_complete, accepted, dead_letters, dropped: 0 }
    }
}

pub(super) fn decode_command(bytes: &[u8]) -> Result<Command, DecodeError> {
    Ok(match decode_versioned(VERSION, bytes)? {
        Command2::Claim(claim) => Command::Claim(claim.into()),
        Command2::Fence(fence) => Command::Fence(fence),
        Command2::Layout(set) => Command::Layout(set),
        Command2::Commit(Commit2 { partition, epoch, seq, progress, add, remove }) => {
            Command::Commit(Commit { partition, epoch, seq, progress, add, remove, ..Commit::default() })
        }
    })
}
