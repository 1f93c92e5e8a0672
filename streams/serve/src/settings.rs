//! Settings of a server, with their defaults and limits.

use crate::secret::Secret;
use std::net::SocketAddr;
use std::path::PathBuf;
use tidemark_streams_core::event::EventTypes;
use tidemark_streams_store::folder::StoreLayer;

/// Connections at a time. A further one waits until another is closed.
pub const CONNECTIONS_MAX: usize = 1_024;
/// Bodies that are read and decoded at a time. A further request is answered 503.
pub const BODIES_MAX: usize = 32;
/// Queries at a time. A further one waits.
pub const QUERIES_MAX: usize = 4;
/// Queries that wait. A further one is answered 503.
pub const QUERIES_WAITING_MAX: usize = 256;
/// Seconds that a query waits. Then it is answered 503.
pub const QUERY_WAIT_S: u64 = 5;
/// Rows of an answer, unless a query names another number, and at most.
pub const ROWS_DEFAULT: usize = 1_000;
pub const ROWS_MAX: usize = 100_000;
/// Listings that a query may name. A query with more is refused.
pub const QUERY_LISTINGS_MAX: usize = 100;
/// Memory for rows of blobs that queries have read. The oldest are evicted, and read again.
pub const CACHED_BYTES_MAX: usize = 64 << 20;
/// Bytes of the body of a query. More: the request is refused.
pub const QUERY_BYTES_MAX: usize = 64 << 10;
/// Bytes of a request's head. More: the connection is closed with 431.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// Entries of the intake's log that wait for their commit. More: requests are answered 503.
pub const LOG_ENTRIES_MAX: usize = 1_000_000;
/// Memory for entries that were just accepted. Older ones are read from the log.
pub const RECENT_BYTES_MAX: usize = 64 << 20;
/// Seconds that a stop takes at most. Events that are not written by then are in the log.
pub const STOP_S: u64 = 20;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    pub dir: PathBuf,
    pub listen: SocketAddr,
    pub types: EventTypes,
    /// An event waits so long in memory before it is written to a blob.
    pub flush_s: u64,
    /// Distinct (tenant, listing, quarter of an hour, type) that are held in memory before they are written.
    pub flush_counts: usize,
    /// An `event_id` is known for so long.
    pub event_id_s: u64,
    /// Maximum number of ids that are known at a time.
    pub event_ids_max: usize,
    /// An hour is settled so long after its end.
    pub lateness_s: u64,
    /// The file of a blob that is not live any more is kept for so long, for queries that have begun.
    pub reader_grace_s: u64,
    /// Bytes of the intake's log that wait for their commit.
    pub log_bytes_max: u64,
    /// Events a second of a tenant; 0: no quota.
    pub tenant_events_per_s: u64,
    /// Dead letters in blobs, beyond which batches with refused events are not taken.
    pub dead_letters_max: u64,
    /// Requests need a token that is made of this.
    pub secret: Option<Secret>,
    /// What is in front of the store of blobs: nothing, but in tests.
    pub store_layer: StoreLayer,
}
