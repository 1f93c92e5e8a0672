//! A worker: a process that may own the partition, and what it has on its way.

use crate::group::Assignment;
use crate::oracle::types;
use crate::rng::Rng;
use tidemark_streams_core::blob::PartitionId;
use tidemark_streams_core::event::EventTypesError;
use tidemark_streams_core::manifest::MemberId;
use tidemark_streams_core::merge::MergePolicy;
use tidemark_streams_core::owner::{Owner, OwnerConfig};
use tidemark_streams_core::retention::Horizons;
use tidemark_streams_core::time::Now;

pub const PARTITION: PartitionId = PartitionId(0);

pub struct Worker {
    /// `None`: it is down, or has no partition.
    pub owner: Option<Owner>,
    /// Of the process; `None`: it is down.
    member: Option<MemberId>,
    /// What the group assigned to the process last.
    pub assignment: Option<Assignment>,
    /// How often it was started: what was on its way to an earlier life is lost.
    pub life: u64,
    /// It does nothing until then, and does not know it.
    pub paused_until: Now,
    /// Commands reach it in the order of the log.
    pub last_delivery: Now,
    /// Whether the manifest says, as far as it has reached it, that the partition is paused.
    pub is_told_to_pause: bool,
    /// The horizons that it was told.
    pub told_horizons: Horizons,
    /// How many changes of event types it was told.
    pub told_types: usize,
}

impl Worker {
    pub fn down() -> Worker {
        Worker {
            owner: None,
            member: None,
            assignment: None,
            life: 0,
            paused_until: Now(0),
            last_delivery: Now(0),
            is_told_to_pause: false,
            told_horizons: Horizons::default(),
            told_types: 0,
        }
    }

    /// The member of its process, which starts if it is down.
    pub fn member(&mut self, rng: &mut Rng) -> MemberId {
        *self.member.get_or_insert_with(|| MemberId(rng.draw()))
    }

    /// # Errors
    /// Never: the types of the run are valid.
    pub fn start(
        &mut self,
        now: Now,
        assignment: Assignment,
        rows_max: u64,
        rng: &mut Rng,
    ) -> Result<(), EventTypesError> {
        let config = OwnerConfig {
            partition: PARTITION,
            member: assignment.member,
            generation: assignment.generation,
            types: types()?,
            seed: rng.draw(),
            flush_after_ms: rng.between(200, 2_000),
            cells_max: rng.between(2, 12) as usize,
            fold_bytes_max: 1 << 30,
            dead_letters_max: 3,
            merge: MergePolicy {
                lateness_s: rng.between(60, 7_200),
                deltas_max: if rng.percent(50) { rng.between(2, 5) as usize } else { 1_000 },
                rows_max,
                merge_every_ms: 50,
                put_every_ms: rng.below(20),
                ..MergePolicy::default()
            },
            retry_after_ms: rng.between(300, 1_500),
            keep_flushed_ms: 1_000,
        };
        self.life += 1;
        self.owner = Some(Owner::new(now, config));
        self.assignment = Some(assignment);
        Ok(())
    }

    pub fn kill(&mut self) {
        self.drop_partition();
        self.member = None;
        self.assignment = None;
    }

    /// The process goes on without the partition.
    pub fn drop_partition(&mut self) {
        self.owner = None;
        self.life += 1;
    }
}
