//! The identity of a member: its node, its disk, and the number of the disk's start.

use serde::{Deserialize, Serialize};

/// The number of a member: its node and the number that its disk was founded with.
pub const fn member_id(node: u32, mint: u32) -> u64 {
    (node as u64) << 32 | mint as u64
}

/// The node of a member.
pub const fn node_of(member: u64) -> u32 {
    (member >> 32) as u32
}

/// A start of a member's process, or a later count of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Start {
    /// Kept in the member's file, and greater each time.
    pub count: u64,
    /// Drawn at random by the process, so that two on copies of one disk are not taken for one that repeats itself.
    pub nonce: u64,
}

impl Start {
    /// Whether a process with this start runs on an older copy of a disk, given what is known of that disk.
    pub fn is_behind(&self, known: Option<Start>) -> bool {
        known.is_some_and(|known| known.count >= self.count && known.nonce != self.nonce)
    }
}
