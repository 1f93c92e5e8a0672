//! Settings of a Raft member, and how they become openraft's.

use std::sync::Arc;
use std::time::Duration;

use openraft::SnapshotPolicy;

use super::StartError;
use crate::storage::Execution;

/// Clocks of the election. All members of a group should use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Interval of heartbeats. openraft also gives up a heartbeat's answer after this time. So it must exceed the longest round trip
    /// between voters, or the leader's lease is kept up by proposals alone.
    pub heartbeat_ms: u64,
    /// A follower that hears nothing this long may stand for election; its own value is drawn between both.
    pub election_min_ms: u64,
    /// Upper end of the draw, and the length of the leader's lease.
    pub election_max_ms: u64,
}

impl Timing {
    /// Members in one data centre: a new leader about half a second after the old one died.
    pub const LAN: Self = Self { heartbeat_ms: 50, election_min_ms: 250, election_max_ms: 500 };

    /// Voters on several continents, round trips up to 380 ms: a new leader after about 2 s.
    pub const WAN: Self = Self { heartbeat_ms: 400, election_min_ms: 1200, election_max_ms: 2000 };
}

/// Settings of a Raft member. `Config::new` gives defaults; limits are per member.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the cluster; a file of another cluster is refused.
    pub cluster: String,
    /// Name of the group within the cluster, such as `ledger` or `europe-0/group-2`.
    pub group: String,
    /// Clocks of the election.
    pub timing: Timing,
    /// A snapshot is taken after this many entries.
    pub snapshot_every_entries: u64,
    /// Also after this number of bytes of them, or half of the last snapshot's size if that is more ([`RaftNode::wants_snapshot`]): every
    /// start applies all later entries anew.
    ///
    /// [`RaftNode::wants_snapshot`]: super::RaftNode::wants_snapshot
    pub snapshot_every_bytes: u64,
    /// Entries kept behind a snapshot, so that members slightly behind need none.
    pub keep_entries: u64,
    /// Proposals that may wait or be in flight; past it they are refused as `Overloaded`.
    pub proposals_max: usize,
    /// Size of one log entry, and thereby of one proposal, packed.
    pub entry_bytes_max: usize,
    /// Entries that may be in flight; past it proposals gather into bigger entries.
    pub entries_in_flight_max: usize,
    /// An append request takes no further entry once it carries this many bytes.
    pub append_bytes_max: usize,
    /// An append stream sends nothing more while this much is unanswered.
    pub window_bytes_max: usize,
    /// Messages longer than this are refused unread.
    pub message_bytes_max: usize,
    /// A snapshot travels in pieces of this size.
    pub snapshot_chunk_bytes: usize,
    /// A snapshot from another member is refused past this size.
    pub snapshot_bytes_max: usize,
    /// An append stream without an answer for this long is given up and opened anew.
    pub stall_ms: u64,
    /// While nothing is new, a learner gets one of this number of heartbeats; voters get all.
    pub learner_heartbeats: u32,
    /// Memory for recent entries, so that replication does not read the disk.
    pub recent_bytes_max: usize,
    /// Memory that redb may use as page cache.
    pub cache_bytes: usize,
    /// Slept after every sync of the file, to model slower disks.
    pub flush_delay: Duration,
    /// Entries wait this long for others before they are made durable together. Zero for a voter, because others wait for its answer; a
    /// learner applies committed entries without its own disk, so for it a flush is only a cost.
    pub flush_gather: Duration,
    /// The executor of storage transactions.
    pub execution: Execution,
}

impl Config {
    /// Defaults for a group across continents.
    pub fn new(cluster: impl Into<String>, group: impl Into<String>) -> Self {
        Self {
            cluster: cluster.into(),
            group: group.into(),
            timing: Timing::WAN,
            snapshot_every_entries: 20_000,
            snapshot_every_bytes: 32 << 20,
            keep_entries: 5_000,
            proposals_max: 4096,
            entry_bytes_max: 1 << 20,
            entries_in_flight_max: 64,
            append_bytes_max: 1 << 20,
            window_bytes_max: 8 << 20,
            message_bytes_max: 4 << 20,
            snapshot_chunk_bytes: 256 << 10,
            snapshot_bytes_max: 1 << 30,
            stall_ms: 2_000,
            learner_heartbeats: 5,
            recent_bytes_max: 32 << 20,
            cache_bytes: 64 << 20,
            flush_delay: Duration::ZERO,
            flush_gather: Duration::ZERO,
            execution: Execution::Thread,
        }
    }

    /// An append request holds at most `append_bytes_max` and one more entry, and a snapshot piece with its header
    /// must fit into a message as well.
    const HEADER_BYTES_MAX: usize = 64 << 10;

    pub(crate) fn to_openraft(&self) -> Result<Arc<openraft::Config>, StartError> {
        let message_min = (self.append_bytes_max + self.entry_bytes_max).max(self.snapshot_chunk_bytes);
        if self.message_bytes_max < message_min + Self::HEADER_BYTES_MAX {
            let reason = format!("message_bytes_max {} is below {}", self.message_bytes_max, message_min);
            return Err(StartError::Config(reason));
        }
        let config = openraft::Config {
            cluster_name: format!("{}/{}", self.cluster, self.group),
            heartbeat_interval: self.timing.heartbeat_ms,
            election_timeout_min: self.timing.election_min_ms,
            election_timeout_max: self.timing.election_max_ms,
            install_snapshot_timeout: 60_000,
            max_payload_entries: 1024,
            replication_lag_threshold: self.snapshot_every_entries + self.keep_entries,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(self.snapshot_every_entries),
            max_in_snapshot_log_to_keep: self.keep_entries,
            purge_batch_size: 256.min(self.keep_entries.max(1)),
            api_channel_size: Some(4096),
            notification_channel_size: Some(4096),
            // Entries leave for the followers while the leader's own disk still works on them.
            broadcast_submitted_on_append: Some(true),
            enable_pre_vote: Some(true),
            // The applied state is in memory: a restarted leader must not lead before it has replayed.
            enable_leader_restore: Some(false),
            ..openraft::Config::default()
        };
        Ok(Arc::new(config.validate().map_err(|error| StartError::Config(error.to_string()))?))
    }
}
