//! An aggregator: the process in a data centre that merges its valves and the other data centres' components into the view for readers. It
//! is also a member of the ledger. It moves bytes between connections, the ledger's Raft, the disk and
//! [`AggregatorCore`](tidemark_proto::aggregator::AggregatorCore), which decides everything.
//!
//! This crate never counts, never merges, never decides a grant or an award, and never answers what the core did not say.

mod asked;
mod audit;
mod awards;
mod calls;
mod cluster;
mod directory;
mod edges;
mod handle;
mod health;
mod held;
mod host;
mod image;
mod ledger;
mod link_log;
mod membership;
mod mesh;
mod nodes;
mod orders;
mod queries;
mod raft_transport;
mod reach;
mod reads;
mod series;
mod shown;
mod storage;
mod voters;
mod waits;

pub use asked::ASKED_MAX;
pub use audit::{AUDIT_PATIENCE, AUDITS_MAX, AuditError, CounterAudit, FRESH_PATIENCE, FRESH_READS_MAX, FreshError};
pub use calls::{CALL_BYTES_MAX, CALLS_MAX, CALLS_PER_PEER_MAX, CallError, PeerService};
pub use cluster::{Cluster, ClusterError, DataCentre, with_era};
pub use directory::NEW_FILE;
pub use edges::{ClientNames, ClientNamesError, EDGES_ASKED_MAX, GraphClients};
pub use handle::{
    Aggregator, AggregatorOptions, AwardEvent, ForgetError, GroupStanding, LEDGER_FILE, LiveEvent, MilestoneState,
    StartError, WeakAggregator,
};
pub use health::{Check, CheckState, FEED_PATIENCE, Health, LEARN_PATIENCE, LedgerStanding};
pub use held::{ANSWERS_MAX, GatheringError, HELD_PATIENCE, HeldError, HeldService, Together};
pub use image::{IMAGES_MAX, Image, ImageError};
pub use ledger::read_ledger;
pub use queries::QUERIES_MAX;
pub use shown::{LEDGER_PATIENCE, LEDGER_POLL, shown};
pub use storage::{ViewRows, ViewStoreError, found as found_view};
pub use voters::{MemberStanding, VOTER_LAG_ENTRIES_MAX, VOTERS_MAX, VoterChange, VoterError};
