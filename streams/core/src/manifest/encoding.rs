//! The encoding of commands. Every bound is checked when bytes are read.

use super::{
    Claim, Command, Erase, Expire, ExpireUnnumbered, Fence, Replace, SetTypes, TypesSet, version_1, version_2,
    version_3,
};
use crate::blob::{BlobKey, BlobMeta};
use crate::codec::{CommandTooLong, DecodeError, check_meta, check_partition, decode_versioned, encode_versioned};
use crate::limits::{COMMAND_BYTES_MAX, COMMIT_BLOBS_MAX};
use crate::schema::TypeChange;

/// The version of encoded commands that have no version of their own. Earlier versions are read too.
const COMMAND_VERSION: u8 = 4;
/// The version of a command that adds a dimension. Earlier programs refuse this version and the next ones.
const DIMENSION_VERSION: u8 = 5;
/// The version of a command that replaces the rows of past days.
const REPLACE_VERSION: u8 = 6;
/// The version of an expiry that has a number.
const EXPIRE_VERSION: u8 = 7;

impl Command {
    /// # Errors
    /// [`CommandTooLong`]: it is longer than readers accept.
    pub fn encode(&self) -> Result<Vec<u8>, CommandTooLong> {
        let bytes = encode_versioned(self.version(), self);
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
            Some(&DIMENSION_VERSION) => decode_versioned(DIMENSION_VERSION, bytes)?,
            Some(&REPLACE_VERSION) => decode_versioned(REPLACE_VERSION, bytes)?,
            _ => decode_versioned(EXPIRE_VERSION, bytes)?,
        };
        match &command {
            Command::Claim(Claim { partition, .. }) | Command::Fence(Fence { partition, .. }) => {
                check_partition(partition.0)?;
            }
            Command::Commit(commit) => check_blobs(commit.partition.0, &commit.add, &commit.remove)?,
            Command::Replace(Replace { partition, add, remove, .. }) => check_blobs(partition.0, add, remove)?,
            // The machine judges layouts, what may be paused, how long blobs may be kept, and what event types are called. A command
            // that it refuses stands in the log, so it has to be read again.
            Command::Layout(_)
            | Command::Pause(_)
            | Command::Retention(_)
            | Command::TestTenant(_)
            | Command::Types(_) => {}
            Command::Expire(Expire { partition, .. })
            | Command::ExpireUnnumbered(ExpireUnnumbered { partition, .. })
            | Command::Erase(Erase { partition, .. }) => check_partition(partition.0)?,
        }
        Ok(command)
    }

    fn version(&self) -> u8 {
        match self {
            Command::Expire(_) => EXPIRE_VERSION,
            Command::Replace(_) => REPLACE_VERSION,
            Command::Types(SetTypes { set: TypesSet::Change(TypeChange::AddDimension { .. }), .. }) => {
                DIMENSION_VERSION
            }
            Command::Claim(_)
            | Command::Commit(_)
            | Command::Fence(_)
            | Command::Layout(_)
            | Command::Pause(_)
            | Command::Retention(_)
            | Command::ExpireUnnumbered(_)
            | Command::Erase(_)
            | Command::TestTenant(_)
            | Command::Types(_) => COMMAND_VERSION,
        }
    }
}

fn check_blobs(partition: u32, add: &[BlobMeta], remove: &[BlobKey]) -> Result<(), DecodeError> {
    check_partition(partition)?;
    let blobs = add.len().max(remove.len());
    if blobs > COMMIT_BLOBS_MAX {
        return Err(DecodeError::Blobs(blobs));
    }
    remove.iter().try_for_each(|key| check_partition(key.partition.0))?;
    add.iter().try_for_each(check_meta)
}
