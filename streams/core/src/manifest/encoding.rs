//! The encoding of commands. Every bound is checked when bytes are read.

use super::{
    Claim, Command, Commit, Erase, Expire, Fence, SetLayout, SetTypes, TypesSet, version_1, version_2, version_3,
};
use crate::codec::{CommandTooLong, DecodeError, check_meta, check_partition, decode_versioned, encode_versioned};
use crate::limits::{COMMAND_BYTES_MAX, COMMIT_BLOBS_MAX};
use crate::schema::TypeChange;

/// The version of encoded commands that add no dimension. Earlier versions are read too.
const COMMAND_VERSION: u8 = 4;
/// The version of a command that adds a dimension. Otherwise it is version 4, so the log of other directories stays as it is.
const DIMENSION_VERSION: u8 = 5;

impl Command {
    /// # Errors
    /// [`CommandTooLong`]: it is longer than readers accept.
    pub fn encode(&self) -> Result<Vec<u8>, CommandTooLong> {
        let version = if self.adds_dimension() { DIMENSION_VERSION } else { COMMAND_VERSION };
        let bytes = encode_versioned(version, self);
        if bytes.len() > COMMAND_BYTES_MAX { Err(CommandTooLong { bytes: bytes.len() }) } else { Ok(bytes) }
    }

    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Command, DecodeError> {
        if bytes.len() > COMMAND_BYTES_MAX {
            return Err(DecodeError::TooLong { bytes: bytes.len() });
        }
        let command: Command = match bytes.first() {
            Some(&version_1::VERSION) => version_1::decode_command(bytes)?,
            Some(&version_2::VERSION) => version_2::decode_command(bytes)?,
            Some(&version_3::VERSION) => version_3::decode_command(bytes)?,
            Some(&COMMAND_VERSION) => decode_versioned(COMMAND_VERSION, bytes)?,
            _ => decode_versioned(DIMENSION_VERSION, bytes)?,
        };
        match &command {
            Command::Claim(Claim { partition, .. }) | Command::Fence(Fence { partition, .. }) => {
                check_partition(partition.0)?;
            }
            Command::Commit(commit) => check_commit(commit)?,
            Command::Layout(SetLayout { layout, .. }) => layout.check()?,
            // The machine judges what may be paused, how long blobs may be kept, and what event types are called.
            Command::Pause(_) | Command::Retention(_) | Command::TestTenant(_) | Command::Types(_) => {}
            Command::Expire(Expire { partition, .. }) | Command::Erase(Erase { partition, .. }) => {
                check_partition(partition.0)?;
            }
        }
        Ok(command)
    }

    fn adds_dimension(&self) -> bool {
        let Command::Types(SetTypes { set: TypesSet::Change(change), .. }) = self else { return false };
        matches!(change, TypeChange::AddDimension { .. })
    }
}

fn check_commit(commit: &Commit) -> Result<(), DecodeError> {
    check_partition(commit.partition.0)?;
    let blobs = commit.add.len().max(commit.remove.len());
    if blobs > COMMIT_BLOBS_MAX {
        return Err(DecodeError::Blobs(blobs));
    }
    commit.remove.iter().try_for_each(|key| check_partition(key.partition.0))?;
    commit.add.iter().try_for_each(check_meta)
}
