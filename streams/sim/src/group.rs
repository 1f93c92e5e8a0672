//! The consumer group: it assigns the partition to one member after the other.
//!
//! The manifest knows nothing of the group but the generations of claims. An assignment may reach its member late, after the group has
//! assigned the partition to another member. No command resets the generation of a partition. So the manifest refuses the claims of a
//! group that was made again until its generation has grown past the last claim.

use tidemark_streams_core::manifest::{Generation, MemberId};

/// The partition, given to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub generation: Generation,
    pub member: MemberId,
}

#[derive(Debug, Default)]
pub struct Group {
    generation: Generation,
}

impl Group {
    /// Assigns the partition under the next generation.
    pub fn assign(&mut self, member: MemberId) -> Assignment {
        self.generation = Generation(self.generation.0 + 1);
        Assignment { generation: self.generation, member }
    }

    /// The group is deleted, and made again: its generations begin at 1.
    pub fn make_again(&mut self) {
        *self = Group::default();
    }

    /// Whether the partition was assigned again since.
    pub fn is_stale(&self, assignment: &Assignment) -> bool {
        assignment.generation < self.generation
    }

    /// Whether it was made again, and has not come to this generation, which a member has claimed.
    pub fn is_behind(&self, claimed: Generation) -> bool {
        self.generation < claimed
    }
}
