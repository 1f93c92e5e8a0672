//! What queries keep of blobs, and count.

use crate::blob_cache::BlobCache;
use crate::commit_times::CommitTimes;
use crate::counters::Counters;
use crate::row_cache::RowCache;
use crate::settings::{CACHED_BLOBS_BYTES_MAX, CACHED_BYTES_MAX, CACHED_INDEX_BYTES_MAX};

/// What queries keep of blobs, and count.
pub struct QueryStores {
    pub rows: RowCache,
    /// Small blobs, as a whole.
    pub small: BlobCache,
    /// Indexes of other blobs.
    pub indexes: BlobCache,
    pub commits: CommitTimes,
    pub counters: Counters,
}

impl Default for QueryStores {
    fn default() -> QueryStores {
        QueryStores {
            rows: RowCache::new(CACHED_BYTES_MAX),
            small: BlobCache::new(CACHED_BLOBS_BYTES_MAX),
            indexes: BlobCache::new(CACHED_INDEX_BYTES_MAX),
            commits: CommitTimes::default(),
            counters: Counters::default(),
        }
    }
}

impl QueryStores {
    /// Forgets all that was read of blobs: rows of some were erased.
    pub fn forget_blobs(&self) {
        self.rows.clear();
        self.small.clear();
        self.indexes.clear();
    }
}
