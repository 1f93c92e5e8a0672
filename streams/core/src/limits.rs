//! Every limit of event streams, by name. The behaviour at a limit stands beside it.

/// Bytes of a tenant's id. A longer one makes the row a dead letter.
pub const TENANT_BYTES_MAX: usize = 128;
/// Bytes of a listing's id. A longer one makes the row a dead letter.
pub const LISTING_BYTES_MAX: usize = 255;
/// Bytes of the name of an event type. A longer one is refused where it is configured.
pub const EVENT_TYPE_BYTES_MAX: usize = 32;
/// Event types that may be configured. A further type is refused.
pub const EVENT_TYPES_MAX: usize = 64;
/// Renames, deletions and reuses of event types that a manifest keeps, for ever. A further change is refused.
pub const TYPE_CHANGES_MAX: usize = 256;
/// Dimensions of a directory, over all event types and for ever. A further one is refused.
pub const DIMENSIONS_MAX: usize = 4;
/// Bytes of the name of a dimension. A longer one is refused.
pub const DIMENSION_BYTES_MAX: usize = 32;
/// Bytes of a value of a dimension. A longer one makes the row a dead letter.
pub const VALUE_BYTES_MAX: usize = 60;
/// Bytes of all values of an event, each behind a sign.
pub const VALUES_BYTES_MAX: usize = DIMENSIONS_MAX * (1 + VALUE_BYTES_MAX);
/// The largest bound on the values of a dimension that a flush keeps for a tenant. A larger bound is refused.
pub const VALUES_MAX: u32 = 10_000;
/// The bound of a dimension for which none is given.
pub const VALUES_MAX_DEFAULT: u32 = 200;
/// The largest count of one event: 2^31 - 1. A larger one makes the row a dead letter.
pub const EVENT_COUNT_MAX: u32 = i32::MAX as u32;
/// The largest count of a quarter of an hour in one row. A larger sum is split over several rows.
pub const QUARTER_COUNT_MAX: u32 = i32::MAX as u32;
/// Seconds that an event may lie ahead of now. An event further ahead makes the row a dead letter.
pub const FUTURE_MAX_S: u64 = 300;
/// Quarters of an hour since 1970 that a row may name: up to the year 2448, as 24 bits hold them. A later event is a dead letter.
pub const QUARTERS_MAX: u32 = 1 << 24;
/// Bytes of the reason that a dead letter keeps. A longer reason is cut.
pub const DEAD_LETTER_REASON_BYTES_MAX: usize = 512;
/// Bytes of the record that a dead letter keeps. A longer record is cut, and is replayed only with a text in its place.
pub const DEAD_LETTER_TEXT_BYTES_MAX: usize = 2_048;

/// Partitions of a manifest. A claim of a further one is refused.
pub const PARTITIONS_MAX: u32 = 1 << 16;
/// Sources with a position that a partition keeps. A commit of a further one is refused.
pub const SOURCES_MAX: usize = 100_000;
/// Blobs that one commit adds, and those that it removes. A commit with more is refused.
pub const COMMIT_BLOBS_MAX: usize = 4_096;
/// Bytes of an encoded command of the manifest. A longer one is refused.
pub const COMMAND_BYTES_MAX: usize = 1 << 20;
/// Blobs that one merge writes. The rest goes into one more delta, which the next merge takes.
pub const MERGE_BLOBS_MAX: usize = 1_024;
/// Recounted rows of one delta. A replacement of more rows writes several.
pub const REPLACED_ROWS_MAX: usize = 1 << 20;
/// Rows that one merge reads. A merge takes fewer blobs rather than more rows.
pub const MERGE_ROWS_MAX: u64 = 8 << 20;

/// Inputs that are read to rebuild a blob. A blob that needs more is not rebuilt.
pub const REBUILD_READS_MAX: usize = 65_536;

/// Commits of which a lost manifest is built again both with and without them, because nothing else says whether they were applied.
pub const RECOVER_DOUBTS_MAX: usize = 16;

/// Blobs that `manifest.head` remembers, which have expired or were removed without a replacement. The earliest are forgotten.
pub const GONE_BLOBS_MAX: usize = 16_384;

/// Commands that the feed of a server keeps for its followers. A follower that is further behind takes a snapshot.
pub const FEED_COMMANDS_MAX: usize = 4_096;
/// Bytes of these commands. The earliest are forgotten.
pub const FEED_BYTES_MAX: usize = 64 << 20;
/// Bytes of the commands of one page of the feed. The next page has the rest.
pub const FEED_PAGE_BYTES_MAX: usize = 4 << 20;

/// Days that blobs may be kept, at least and at most. Fewer would end before days are merged into periods. Others are refused.
pub const RETENTION_DAYS_MIN: u32 = 3;
pub const RETENTION_DAYS_MAX: u32 = 36_500;
/// Blobs that expire by one command. The owner proposes another one for the rest.
pub const EXPIRED_BLOBS_MAX: usize = 4_096;

/// Tenants and listings with an erasure that a partition remembers. A further one is refused.
pub const ERASURES_MAX: usize = 100_000;

/// Tenants that may be marked as tests. A further one is refused: each has blobs of its own, and a merge writes few.
pub const TEST_TENANTS_MAX: usize = 256;

/// Slices of all buckets together: virtual partitions times buckets. A layout of more is refused.
pub const SLICES_MAX: u32 = 1 << 24;
/// Times that a layout may change the number of buckets. A layout of more is refused.
pub const BUCKET_CHANGES_MAX: usize = 1_000;
/// Tenants that a layout splits by listing. A layout of more is refused.
pub const LARGE_TENANTS_MAX: usize = 10_000;
/// Parts of a large tenant. A layout of more is refused.
pub const PARTS_MAX: u32 = 1_024;

/// Bytes of the texts of a row: its tenant, its listing, and a sign and a text for each of its values.
pub const ROW_TEXT_BYTES_MAX: usize = TENANT_BYTES_MAX + LISTING_BYTES_MAX + VALUES_BYTES_MAX;
/// Bytes of text that one set of rows may hold. An owner flushes before, and merges fewer rows at once.
pub const ROWS_TEXT_BYTES_MAX: usize = 1 << 30;
