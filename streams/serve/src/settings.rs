//! Settings of a server, with their defaults and limits.

use crate::token::Token;
use crate::token_keys::TokenKeys;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tidemark_streams_core::event::EventTypes;
use tidemark_streams_core::time::DAY_S;
use tidemark_streams_intake::event_ids::IdSettings;
use tidemark_streams_intake::quota::QuotaConfig;
use tidemark_streams_sql::budget::TenantLimits;
use tidemark_streams_sql::limits::QUICK_CPU_MS;
pub use tidemark_streams_sql::limits::{CHILDREN_MAX as SQL_CHILDREN_MAX, CHILDREN_MIN as SQL_CHILDREN_MIN};
use tidemark_streams_sql::pool::PoolSettings;
use tidemark_streams_store::folder::StoreLayer;

/// Connections at a time. A further one waits until another is closed.
pub const CONNECTIONS_MAX: usize = 1_024;
/// Bodies that are read and decoded at a time. A further request is answered 503.
pub const BODIES_MAX: usize = 32;
/// Requests at a time that add listings. A further one is answered 503.
pub const ADDITIONS_MAX: usize = 16;
/// Requests at a time that list, replay or drop dead letters. A further one is answered 503.
pub const LETTER_REQUESTS_MAX: usize = 4;
/// Dead letters of an answer, unless a request names another number, and at most.
pub const LETTERS_DEFAULT: usize = 1_000;
pub const LETTERS_MAX: usize = 10_000;
/// Bytes of texts and reasons, behind which an answer ends. The next request has the rest.
pub const LETTERS_BYTES_MAX: usize = 4 << 20;
/// Letters that were tried and stay, which an answer names with their reasons.
pub const REFUSED_LETTERS_MAX: usize = 20;
/// A request begins no further blob of dead letters after this.
pub const LETTERS_TIME_S: u64 = 20;
/// Tenants of an answer about refused events, unless a request names another number, and at most.
pub const REFUSED_DEFAULT: usize = 100;
pub const REFUSED_MAX: usize = 1_000;
/// Requests of query processes at a time for commands of the manifest. A further one is answered 503.
pub const FEED_REQUESTS_MAX: usize = 64;
/// The same for the manifest as a whole.
pub const SNAPSHOTS_MAX: usize = 2;
/// The same for rows in memory. A further request waits for half a second.
pub const HELD_REQUESTS_MAX: usize = 16;
/// Queries that count at a time. A further one waits.
pub const QUERIES_MAX: usize = 4;
/// Queries that read blobs, or wait. A further one is answered 503.
pub const QUERIES_WAITING_MAX: usize = 256;
/// Seconds that a query waits for memory, and then for its turn to count. Then it is answered 503.
pub const QUERY_WAIT_S: u64 = 5;
/// Queries at a time that ask the owner for its rows. A further one waits.
pub const PINS_MAX: usize = 8;
/// Reads of queries from the store at a time. A further one waits.
pub const READS_MAX: usize = 256;
/// The same of one query.
pub const QUERY_READS_MAX: usize = 64;
/// Bytes of a blob that is read as a whole for each query. Of a larger blob an index is kept, and queries read parts.
pub const SMALL_BLOB_BYTES_MAX: u64 = 256 << 10;
/// Bytes of larger blobs that are read as a whole at a time, to make their indexes. A further read waits.
pub const OPENING_BYTES_MAX: usize = 256 << 20;
/// Bytes of blobs that all queries hold at a time. A further query waits.
pub const HELD_BYTES_MAX: usize = 256 << 20;
/// The part of these for queries in SQL that read before their turn. They wait for those that have one, which may wait for the rest.
pub const EARLY_BYTES_MAX: usize = HELD_BYTES_MAX / 2;
/// Bytes of blobs that a query reads before its turn to count. It reads the rest one blob after the other, in its turn.
pub const QUERY_HELD_BYTES_MAX: u64 = 64 << 20;
/// Rows of an answer, unless a query names another number, and at most.
pub const ROWS_DEFAULT: usize = 1_000;
pub const ROWS_MAX: usize = 100_000;
/// Listings that a query may name. A query with more is refused.
pub const QUERY_LISTINGS_MAX: usize = 100;
/// Memory for rows of blobs that queries have read. The oldest are evicted, and read again.
pub const CACHED_BYTES_MAX: usize = 64 << 20;
/// Memory for small blobs that queries have read. Those that were not used for longest are evicted, and read again.
pub const CACHED_BLOBS_BYTES_MAX: usize = 64 << 20;
/// The same for indexes of larger blobs. An index has the footer of its blob and a checksum of each row group.
pub const CACHED_INDEX_BYTES_MAX: usize = 64 << 20;
/// Bytes of the body of a query. More: the request is refused.
pub const QUERY_BYTES_MAX: usize = 64 << 10;
/// Bytes of the body of a query in SQL, with its values. More: the request is refused.
pub const SQL_BODY_BYTES_MAX: usize = 1 << 20;
/// Bodies of queries in SQL that are read beyond their first [`QUERY_BYTES_MAX`] bytes at a time. A further request is answered 503.
pub const SQL_BODIES_MAX: usize = 32;
/// The same for callers whose tokens name no tenant, which are judged once the body names it.
pub const SQL_BODIES_UNNAMED_MAX: usize = 8;
/// Tables that are taken at a time. A further request is answered 503.
pub const UPLOADS_AT_A_TIME_MAX: usize = 4;
/// Rows of the result of a query in SQL. More: the query is refused.
pub const SQL_RESULT_ROWS_MAX: u64 = 100_000;
/// Bytes of the result of a query in SQL. More: the query is refused.
pub const SQL_RESULT_BYTES_MAX: u64 = 16 << 20;
/// Bytes of results of queries in SQL that clients have not read. A further query is answered 503.
pub const SQL_UNSENT_BYTES_MAX: usize = 256 << 20;
/// Bytes of answers to other queries that clients have not read. A further large answer is a 503.
pub const UNSENT_BYTES_MAX: usize = 256 << 20;
/// The same of one tenant.
pub const UNSENT_TENANT_BYTES_MAX: usize = UNSENT_BYTES_MAX / 4;
/// Bytes of an answer that do not count there: connections bound such answers.
pub const UNSENT_FREE_BYTES: usize = 64 << 10;
/// Seconds that a query in SQL waits for a turn. Then it is answered 503.
pub const SQL_WAIT_S: u64 = 5;
/// Bytes of a request's head. More: the connection is closed with 431.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// Seconds that a client may read nothing of its answer. Then its connection is closed.
pub const WRITE_TIMEOUT_S: u64 = 30;
/// Entries of the intake's log that wait for their commit. More: requests are answered 503.
pub const LOG_ENTRIES_MAX: usize = 1_000_000;
/// Memory for entries that were just accepted. Older ones are read from the log.
pub const RECENT_BYTES_MAX: usize = 64 << 20;
/// The longest time that raw events are kept, in days.
pub const KEEP_RAW_DAYS_MAX: u64 = 36_500;
/// The type whose ids are known for longer unless a setting says otherwise, and the seconds for which.
pub const PURCHASE: &str = "purchase";
pub const PURCHASE_IDS_S: u64 = 86_400;
/// Seconds that a stop takes at most. Events that are not written by then are in the log.
pub const STOP_S: u64 = 20;

/// Settings of SQL.
#[derive(Clone, Debug)]
pub struct SqlSettings {
    /// The program of a child. If it is missing, queries in SQL are answered 501.
    pub program: PathBuf,
    /// Largest number of children. Each answers one query at a time.
    pub children: usize,
    /// Memory of a query, with the rows that it reads.
    pub memory_bytes: u64,
    pub timeout_s: u64,
    /// Largest number of rows that a query reads.
    pub rows_max: u64,
    /// Limits of each tenant: queries at a time, and seconds and rows of a minute.
    pub tenant_queries: usize,
    pub tenant_s: u64,
    pub tenant_rows: u64,
    /// The log of queries.
    pub log: Option<PathBuf>,
}

impl SqlSettings {
    /// The settings of a pool of children.
    pub fn pool(&self) -> PoolSettings {
        PoolSettings {
            program: self.program.clone(),
            children: self.children,
            memory_bytes: self.memory_bytes,
            timeout: Duration::from_secs(self.timeout_s),
            wait: Duration::from_secs(SQL_WAIT_S),
            scan_rows_max: self.rows_max,
            rows_max: SQL_RESULT_ROWS_MAX,
            bytes_max: SQL_RESULT_BYTES_MAX,
            tenant: TenantLimits {
                queries: self.tenant_queries,
                time: Duration::from_secs(self.tenant_s),
                rows: self.tenant_rows,
                quick_ms: QUICK_CPU_MS,
            },
        }
    }
}

/// The identity of a server with TLS, in PEM files.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Settings of a process that answers queries only.
#[derive(Clone, Debug)]
pub struct QuerySettings {
    /// The directory. Its blobs are only read.
    pub dir: PathBuf,
    pub listen: SocketAddr,
    /// The address of each server that may have the directory open: HOST:PORT, http://HOST:PORT, or https://HOST:PORT with TLS.
    pub servers: Vec<String>,
    /// Authorities of the servers' certificates. `None`: those of the operating system.
    pub ca: Option<PathBuf>,
    /// Queries are refused once the manifest was not heard of for so long.
    pub feed_age_max_s: u64,
    /// Requests need a token that these keys know.
    pub keys: Option<TokenKeys>,
    /// The token for the servers.
    pub token: Option<Token>,
    pub tls: Option<TlsFiles>,
    /// Whether other machines may be talked to without TLS.
    pub may_be_plain: bool,
    pub sql: SqlSettings,
    /// As of [`Settings`].
    pub store_layer: StoreLayer,
}

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
    /// For how long and how many ids of events are known, by the names of types that the settings use.
    pub event_ids: IdSettings,
    /// An hour is settled so long after its end.
    pub lateness_s: u64,
    /// The file of a blob that is not live any more is kept for so long, for queries that have begun.
    pub reader_grace_s: u64,
    /// Bytes of the intake's log that wait for their commit.
    pub log_bytes_max: u64,
    pub quotas: QuotaConfig,
    /// Days that raw events are kept after they were accepted; 0: none is.
    pub keep_raw_days: u64,
    /// Dead letters in blobs, beyond which batches with refused events are not taken.
    pub dead_letters_max: u64,
    /// Fields that lists of dead letters mask, beside those that no event has.
    pub mask_fields: BTreeSet<String>,
    /// Requests need a token that these keys know.
    pub keys: Option<TokenKeys>,
    /// `None`: connections are not encrypted.
    pub tls: Option<TlsFiles>,
    /// Whether other machines may be talked to without TLS.
    pub may_be_plain: bool,
    pub sql: SqlSettings,
    /// Bytes of the uploaded tables of a tenant; 0: no table is taken.
    pub tenant_tables_bytes: u64,
    /// What is in front of the store of blobs: nothing, but in tests.
    pub store_layer: StoreLayer,
}

impl Settings {
    /// How long a raw event is kept. `None`: none is.
    pub fn keep_raw_ms(&self) -> Option<u64> {
        (self.keep_raw_days > 0).then(|| self.keep_raw_days.saturating_mul(DAY_S * 1_000))
    }
}
