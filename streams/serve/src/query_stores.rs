//! What queries read besides blobs, and count.

use crate::commit_times::CommitTimes;
use crate::counters::Counters;
use crate::row_cache::RowCache;
use crate::settings::CACHED_BYTES_MAX;

/// What queries read besides blobs, and count.
pub struct QueryStores {
    pub cache: RowCache,
    pub commits: CommitTimes,
    pub counters: Counters,
}

impl Default for QueryStores {
    fn default() -> QueryStores {
        QueryStores {
            cache: RowCache::new(CACHED_BYTES_MAX),
            commits: CommitTimes::default(),
            counters: Counters::default(),
        }
    }
}
