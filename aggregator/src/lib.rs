//! An aggregator: the process in a data centre that merges its valves and the other data centres' components into the view for readers. It
//! is also a member of the ledger. It moves bytes between connections, the ledger's Raft, the disk and
//! [`AggregatorCore`](tidemark_proto::aggregator::AggregatorCore), which decides everything.
//!
//! This crate never counts, never merges, never decides a grant or an award, and never answers what the core did not say.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod asked;
mod awards;
mod calls;
mod catch_up;
mod cluster;
mod dial;
mod directory;
mod events;
mod handle;
mod held;
mod host;
mod ledger;
mod link_log;
mod membership;
mod mesh;
mod nodes;
mod raft_transport;
mod reach;
mod series;
mod services;
mod shown;
mod storage;
mod voters;

pub use asked::ASKED_MAX;
pub use calls::{CALL_BYTES_MAX, CALLS_MAX, CALLS_PER_PEER_MAX, CallError, PeerService};
pub use cluster::{Cluster, ClusterError, DataCentre, with_era};
pub use directory::NEW_FILE;
pub use events::{AwardEvent, LiveEvent};
pub use handle::{
    AUDIT_PATIENCE, AUDITS_MAX, Aggregator, AggregatorOptions, AuditError, BarrierError, CatchUpError, Check,
    CheckState, ClientNames, ClientNamesError, CounterAudit, EDGES_ASKED_MAX, FEED_PATIENCE, FRESH_PATIENCE,
    FRESH_READS_MAX, ForgetError, FreshError, GraphClients, GroupStanding, Health, IMAGES_MAX, Image, ImageError,
    LEARN_PATIENCE, LEDGER_FILE, LedgerStanding, MilestoneState, NotReady, StartError, WeakAggregator,
};
pub use held::{ANSWERS_MAX, AboutError, GatheringError, HELD_PATIENCE, HeldError, HeldService, QUERIES_MAX, Together};
pub use ledger::{LedgerStateError, read_ledger};
pub use shown::{LEDGER_PATIENCE, LEDGER_POLL, shown};
pub use storage::{KeptError, ViewRows, ViewStoreError, found as found_view};
pub use voters::{MemberStanding, VOTER_LAG_ENTRIES_MAX, VOTERS_MAX, VoterChange, VoterError};
