//! Rows of blobs that queries have read: a page that asks every few seconds reads new blobs only.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemark_streams_core::blob::BlobKey;
use tidemark_streams_core::rollup::Rollups;

/// Memory of an entry without rows, and of a row. Ids are shared by neighbours, and count as a part of the row.
const ENTRY_BYTES: usize = 256;
const ROW_BYTES: usize = 64;

/// Rows by blob and tenant. The oldest entries are evicted first.
pub struct RowCache {
    inner: Mutex<Inner>,
    bytes_max: usize,
}

#[derive(Default)]
struct Inner {
    entries: BTreeMap<(BlobKey, String), Arc<Rollups>>,
    order: VecDeque<(BlobKey, String)>,
    bytes: usize,
}

impl RowCache {
    pub fn new(bytes_max: usize) -> RowCache {
        RowCache { inner: Mutex::default(), bytes_max }
    }

    pub fn get(&self, key: &BlobKey, tenant: &str) -> Option<Arc<Rollups>> {
        self.inner().entries.get(&(*key, tenant.to_owned())).cloned()
    }

    pub fn put(&self, key: BlobKey, tenant: &str, rows: &Arc<Rollups>) {
        let bytes = bytes_of(rows);
        if bytes > self.bytes_max / 4 {
            return;
        }
        let mut inner = self.inner();
        let place = (key, tenant.to_owned());
        if inner.entries.insert(place.clone(), Arc::clone(rows)).is_some() {
            return;
        }
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
        *self.inner() = Inner::default();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes_of(rows: &Rollups) -> usize {
    ENTRY_BYTES + rows.len() * ROW_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_streams_core::blob::{Epoch, PartitionId, Seq};

    fn key(seq: u64) -> BlobKey {
        BlobKey { partition: PartitionId(0), epoch: Epoch(1), seq: Seq(seq), part: 0 }
    }

    #[test]
    fn oldest_entries_are_evicted_and_tenants_are_apart() {
        let cache = RowCache::new(4 * ENTRY_BYTES);
        let rows = Arc::new(Rollups::new());
        (0..5).for_each(|seq| cache.put(key(seq), "a", &rows));
        assert!(cache.get(&key(0), "a").is_none() && cache.get(&key(4), "a").is_some());
        assert!(cache.get(&key(4), "b").is_none());
        cache.put(key(4), "a", &rows);
        assert!(cache.get(&key(1), "a").is_some(), "the same entry again takes no more room");
        cache.clear();
        assert!(cache.get(&key(4), "a").is_none());
    }
}
