//! Rows of blobs that queries have read: a page that asks every few seconds reads new blobs only.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemark_streams_core::blob::{BlobKey, BlobMeta};
use tidemark_streams_core::rollup::Rollups;

/// How often a cache was cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation(u64);

impl Generation {
    #[must_use]
    pub fn next(self) -> Generation {
        Generation(self.0 + 1)
    }
}

/// Memory of an entry without rows.
const ENTRY_BYTES: usize = 256;

/// The rows of a tenant in a blob. The checksum tells blobs of one name apart, which copies of a directory may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    key: BlobKey,
    checksum: u64,
    tenant: String,
}

/// Rows by blob and tenant. The oldest entries are evicted first.
pub struct RowCache {
    inner: Mutex<Inner>,
    bytes_max: usize,
}

#[derive(Default)]
struct Inner {
    entries: BTreeMap<Place, Arc<Rollups>>,
    order: VecDeque<Place>,
    bytes: usize,
    generation: Generation,
}

impl Place {
    fn of(meta: &BlobMeta, tenant: &str) -> Place {
        Place { key: meta.key, checksum: meta.stored.checksum, tenant: tenant.to_owned() }
    }
}

impl RowCache {
    pub fn new(bytes_max: usize) -> RowCache {
        RowCache { inner: Mutex::default(), bytes_max }
    }

    /// How often it was cleared. A read that began before the last time puts nothing.
    pub fn generation(&self) -> Generation {
        self.inner().generation
    }

    pub fn get(&self, meta: &BlobMeta, tenant: &str) -> Option<Arc<Rollups>> {
        self.inner().entries.get(&Place::of(meta, tenant)).cloned()
    }

    pub fn put(&self, meta: &BlobMeta, tenant: &str, rows: &Arc<Rollups>, read_in: Generation) {
        let bytes = bytes_of(rows);
        if bytes > self.bytes_max / 4 {
            return;
        }
        let mut inner = self.inner();
        let place = Place::of(meta, tenant);
        // Other rows of the same blob may have another memory than was counted.
        if inner.generation != read_in || inner.entries.contains_key(&place) {
            return;
        }
        inner.entries.insert(place.clone(), Arc::clone(rows));
        inner.order.push_back(place);
        inner.bytes += bytes;
        while inner.bytes > self.bytes_max {
            let Some(oldest) = inner.order.pop_front() else { return };
            let evicted = inner.entries.remove(&oldest);
            inner.bytes -= evicted.map_or(0, |rows| bytes_of(&rows));
        }
    }

    /// Forgets all rows: some of them were erased.
    pub fn clear(&self) {
        let mut inner = self.inner();
        *inner = Inner { generation: inner.generation.next(), ..Inner::default() };
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes_of(rows: &Rollups) -> usize {
    ENTRY_BYTES + rows.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_streams_core::blob::{Epoch, Level, PartitionId, Seq, StoredBlob};
    use tidemark_streams_core::rollup::RollupRow;
    use tidemark_streams_core::scope::Scope;
    use tidemark_streams_core::time::{Hour, HourRange};
    use tidemark_streams_core::values::Values;

    fn blob(seq: u64) -> BlobMeta {
        BlobMeta {
            key: BlobKey { partition: PartitionId(0), epoch: Epoch(1), seq: Seq(seq), part: 0 },
            level: Level::Delta,
            scope: Scope::ALL,
            hours: HourRange::ALL,
            rows: 0,
            total: 0,
            stored: StoredBlob { bytes: 1, checksum: 2 },
        }
    }

    #[test]
    fn oldest_entries_are_evicted_and_tenants_are_apart() {
        let cache = RowCache::new(4 * ENTRY_BYTES);
        let rows = Arc::new(Rollups::new());
        (0..5).for_each(|seq| cache.put(&blob(seq), "a", &rows, Generation(0)));
        assert!(cache.get(&blob(0), "a").is_none() && cache.get(&blob(4), "a").is_some());
        assert!(cache.get(&blob(4), "b").is_none());
        let other = BlobMeta { stored: StoredBlob { bytes: 1, checksum: 3 }, ..blob(4) };
        assert!(cache.get(&other, "a").is_none(), "a blob of the same name in a copy of the directory");
        cache.put(&blob(4), "a", &rows, Generation(0));
        assert!(cache.get(&blob(1), "a").is_some(), "the same entry again takes no more room");
        cache.clear();
        cache.put(&blob(4), "a", &rows, Generation(0));
        assert!(cache.get(&blob(4), "a").is_none(), "rows that were read before the cache was cleared");
    }

    /// Rows with the longest listings and values.
    fn long_rows() -> Rollups {
        let mut rows = Rollups::new();
        for at in 0..100 {
            let values = ["\u{1}", "\u{2}", "\u{3}", "\u{4}"].map(|sign| format!("{sign}{at:060}")).concat();
            let values = Values::parse(&values).unwrap();
            let listing = format!("{at:0255}");
            let row = RollupRow {
                tenant: "a",
                values,
                listing: &listing,
                hour: Hour(1),
                event_type: "click",
                quarters: [1; 4],
            };
            rows.push(row).unwrap();
        }
        rows
    }

    #[test]
    fn texts_of_rows_count_as_memory() {
        let rows = Arc::new(long_rows());
        let bytes = rows.bytes();
        assert!(bytes > 100 * (255 + 4 * 61), "{bytes}");
        let cache = RowCache::new(4 * (ENTRY_BYTES + bytes));
        (0..5).for_each(|seq| cache.put(&blob(seq), "a", &rows, Generation(0)));
        assert!(cache.get(&blob(0), "a").is_none() && cache.get(&blob(1), "a").is_some());
        assert_eq!(cache.inner().bytes, 4 * (ENTRY_BYTES + bytes));
    }

    #[test]
    fn same_entry_with_other_memory_keeps_the_sum() {
        let cache = RowCache::new(1 << 20);
        cache.put(&blob(0), "a", &Arc::new(long_rows()), Generation(0));
        let before = cache.inner().bytes;
        cache.put(&blob(0), "a", &Arc::new(Rollups::new()), Generation(0));
        let inner = cache.inner();
        let counted: usize = inner.entries.values().map(|rows| bytes_of(rows)).sum();
        assert_eq!((inner.bytes, counted), (before, before));
    }
}
