//! Blobs that queries have read and checked: small ones as a whole, and the indexes of others. Blobs that were not used for longest are
//! evicted first.

use crate::row_cache::Generation;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemark_streams_core::blob::{BlobKey, BlobMeta};
use tidemark_streams_store::directory::OpenBlob;

/// A blob. The checksum tells blobs of one name apart, which copies of a directory may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlobId {
    pub key: BlobKey,
    pub checksum: u64,
}

impl BlobId {
    pub fn of(meta: &BlobMeta) -> BlobId {
        BlobId { key: meta.key, checksum: meta.stored.checksum }
    }
}

/// Blobs by their use.
pub struct BlobCache {
    inner: Mutex<Inner>,
    bytes_max: usize,
}

#[derive(Default)]
struct Inner {
    entries: BTreeMap<BlobId, Entry>,
    /// By their last use.
    order: BTreeMap<u64, BlobId>,
    uses: u64,
    bytes: usize,
    generation: Generation,
}

struct Entry {
    blob: Arc<OpenBlob>,
    used: u64,
}

impl BlobCache {
    pub fn new(bytes_max: usize) -> BlobCache {
        BlobCache { inner: Mutex::default(), bytes_max }
    }

    /// How often it was cleared. A read that began before the last time puts nothing.
    pub fn generation(&self) -> Generation {
        self.inner().generation
    }

    pub fn get(&self, id: &BlobId) -> Option<Arc<OpenBlob>> {
        let mut inner = self.inner();
        let used = inner.next_use();
        let entry = inner.entries.get_mut(id)?;
        let before = std::mem::replace(&mut entry.used, used);
        let blob = Arc::clone(&entry.blob);
        inner.order.remove(&before);
        inner.order.insert(used, *id);
        Some(blob)
    }

    pub fn put(&self, id: BlobId, blob: &Arc<OpenBlob>, read_in: Generation) {
        let mut inner = self.inner();
        if blob.bytes() > self.bytes_max / 4 || inner.generation != read_in || inner.entries.contains_key(&id) {
            return;
        }
        let used = inner.next_use();
        inner.entries.insert(id, Entry { blob: Arc::clone(blob), used });
        inner.order.insert(used, id);
        inner.bytes += blob.bytes();
        while inner.bytes > self.bytes_max {
            let Some((_, oldest)) = inner.order.pop_first() else { return };
            inner.forget(&oldest);
        }
    }

    /// Forgets a blob with a changed file.
    pub fn remove(&self, id: &BlobId) {
        self.inner().forget(id);
    }

    /// Forgets all blobs: rows of some were erased.
    pub fn clear(&self) {
        let mut inner = self.inner();
        *inner = Inner { generation: inner.generation.next(), ..Inner::default() };
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    fn forget(&mut self, id: &BlobId) {
        if let Some(Entry { blob, used }) = self.entries.remove(id) {
            self.order.remove(&used);
            self.bytes -= blob.bytes();
        }
    }
}
