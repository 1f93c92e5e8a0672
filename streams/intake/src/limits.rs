//! Every limit of the intake, by name. The behaviour at a limit stands beside it.

/// Bytes of a request's body as it is sent. More: the request is refused.
pub const BODY_BYTES_MAX: usize = 8 << 20;
/// Bytes of a body once it is unpacked. More: the request is refused, however small it was when it was packed.
pub const UNPACKED_BYTES_MAX: usize = 16 << 20;
/// Events of a request. More: the request is refused.
pub const EVENTS_MAX: usize = 10_000;
/// Bytes of one event in JSON. A longer one becomes a dead letter.
pub const EVENT_BYTES_MAX: usize = 1 << 20;
/// Listings of a page, which is one event. A page with more becomes a dead letter.
pub const LISTINGS_MAX: usize = 1_000;
/// Rows of a request: a page has a row for each listing. More: the request is refused.
pub const ROWS_MAX: usize = 100_000;
/// Bytes of an event's id. A longer one makes the event a dead letter.
pub const EVENT_ID_BYTES_MAX: usize = 128;
/// Listings that a request adds to the catalogue, in one transaction. More: the request is refused.
pub const LISTINGS_ADDED_MAX: usize = EVENTS_MAX;
/// Bytes of a producer's name. A longer one is refused with its request.
pub const PRODUCER_BYTES_MAX: usize = 128;
/// Producers that are known at a time. A further one is refused until another was silent for [`PRODUCER_KEPT_MS`].
pub const PRODUCERS_MAX: usize = 100_000;
/// A producer is known for so long after its last batch: 24 hours.
pub const PRODUCER_KEPT_MS: u64 = 24 * 3_600 * 1_000;
/// Tenants with late counts that are told apart. Late counts of further tenants are in the sum over all tenants only.
pub const LATE_TENANTS_MAX: usize = 100_000;
/// Tenants with refused events that are told apart. Those of further tenants are counted together.
pub const REFUSED_TENANTS_MAX: usize = 10_000;
/// Codes of refused events of a tenant that are told apart. There are fewer codes; a damaged reason could name others.
pub const REFUSED_CODES_MAX: usize = 64;
/// Tenants with quotas that are known at a time. A further one replaces tenants that are below their quota.
pub const QUOTA_TENANTS_MAX: usize = 100_000;
/// Bytes of an entry of the log: a batch of all limits fits.
pub const ENTRY_BYTES_MAX: usize = 32 << 20;
/// Ids in a row of a checkpoint.
pub const IDS_PER_ROW_MAX: usize = 32_768;
/// Base-2 logarithm of the longest window of a zstd body, which is held in memory: 8 MiB, as RFC 8878 asks of receivers.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// Bytes of entries that a file of the archive takes, before they are packed. The entry that reaches it is the last one.
pub const RAW_FILE_BYTES_MAX: u64 = 64 << 20;
/// Bytes of the id of a directory in a file of the archive.
pub const RAW_DIRECTORY_BYTES_MAX: usize = 64;
/// Bytes of files of the archive that are merged into one. A file of more than half of it stays as it is.
pub const RAW_MERGED_BYTES_MAX: u64 = 16 << 20;
/// Files of the archive that one merge takes.
pub const RAW_MERGED_FILES_MAX: usize = 128;
/// Files of the archive that are removed before events are archived again.
pub const RAW_REMOVED_FILES_MAX: usize = 64;
