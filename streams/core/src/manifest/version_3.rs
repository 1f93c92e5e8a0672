//! Version 3 of commands and snapshots: owners did not list the event types that they count, and no type was renamed or deleted.

use super::snapshot::{StoredErasure, StoredSource};
use super::{
    AppliedCommit, Claim, Command, Commit, Erase, ExpireUnnumbered, Fence, Generation, MemberId, SetLayout, SetPause,
    SetRetention, SetTestTenant,
};
use crate::blob::{Epoch, PartitionId};
use crate::codec::{DecodeError, decode_versioned};
use crate::layout::Layout;
use crate::pause::Pauses;
use crate::retention::{Horizons, Retention};
use crate::scope::TenantHash;
use serde::Deserialize;

pub(crate) const VERSION: u8 = 3;

#[derive(Deserialize)]
enum Command3 {
    Claim(Claim3),
    Commit(Commit),
    Fence(Fence),
    Layout(SetLayout),
    Pause(SetPause),
    Retention(SetRetention),
    Expire(ExpireUnnumbered),
    Erase(Erase),
    TestTenant(SetTestTenant),
}

/// Of versions 1 and 2 too.
#[derive(Deserialize)]
pub(super) struct Claim3 {
    partition: PartitionId,
    generation: Generation,
    member: MemberId,
}

impl From<Claim3> for Claim {
    fn from(claim: Claim3) -> Claim {
        let Claim3 { partition, generation, member } = claim;
        Claim { partition, generation, member, types: None }
    }
}

#[derive(Deserialize)]
pub(crate) struct Head3 {
    pub index: u64,
    pub layout: Layout,
    pub layout_version: u64,
    pub partitions: u32,
    pub pauses: Pauses,
    pub retention: Retention,
    pub test_tenants: Vec<TenantHash>,
}

#[derive(Deserialize)]
pub(crate) struct Partition3 {
    pub epoch: Epoch,
    pub generation: Generation,
    pub owner: Option<MemberId>,
    pub last_commit: Option<AppliedCommit>,
    pub total: u128,
    pub blobs: u64,
    pub sources: Vec<StoredSource>,
    pub horizons: Horizons,
    pub expired_total: u128,
    pub erasures: Vec<StoredErasure>,
    pub erasure_count: u64,
    pub erased_total: u128,
}

pub(super) fn decode_command(bytes: &[u8]) -> Result<Command, DecodeError> {
    Ok(match decode_versioned(VERSION, bytes)? {
        Command3::Claim(claim) => Command::Claim(claim.into()),
        Command3::Commit(commit) => Command::Commit(commit),
        Command3::Fence(fence) => Command::Fence(fence),
        Command3::Layout(set) => Command::Layout(set),
        Command3::Pause(set) => Command::Pause(set),
        Command3::Retention(set) => Command::Retention(set),
        Command3::Expire(expire) => Command::ExpireUnnumbered(expire),
        Command3::Erase(erase) => Command::Erase(erase),
        Command3::TestTenant(set) => Command::TestTenant(set),
    })
}
