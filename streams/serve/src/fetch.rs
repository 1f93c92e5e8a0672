//! What queries read of blobs before they count: all blobs of a query at the same time, while the query holds no turn.
//!
//! A query makes at most two round trips in sequence. First it reads blobs as a whole that no query has read before, and checks them;
//! their indexes are kept ([`OpenBlob`]). Then it reads the parts with its tenant, and small blobs. Queries that want the same bytes at
//! the same time share one read.

use crate::blob_cache::{BlobCache, BlobId};
use crate::flights::{Flights, Role};
use crate::query_stores::QueryStores;
use crate::row_cache::Generation;
use crate::settings::{
    EARLY_BYTES_MAX, HELD_BYTES_MAX, OPENING_BYTES_MAX, QUERY_HELD_BYTES_MAX, QUERY_READS_MAX, QUERY_WAIT_S, READS_MAX,
    SMALL_BLOB_BYTES_MAX,
};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemark_streams_core::blob::BlobMeta;
use tidemark_streams_core::rollup::Rollups;
use tidemark_streams_store::directory::{BlobReader, DirectoryError, Keep, OpenBlob};
use tidemark_streams_store::parquet_rows::Part;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of a permit for memory.
const PERMIT_BYTES: u64 = 1 << 10;

/// Queries that want the same blob share this error.
pub type SharedError = Arc<DirectoryError>;

/// Reads blobs for queries.
pub struct Fetcher {
    pub reader: Arc<BlobReader>,
    stores: Arc<QueryStores>,
    opening: Flights<BlobId, Result<Arc<OpenBlob>, SharedError>>,
    parts: Flights<PartId, Result<Part, SharedError>>,
    reads: Arc<Semaphore>,
    /// Memory for blobs that are read to make their indexes. Such a read waits for nothing else.
    opening_bytes: Arc<Semaphore>,
    /// Memory for what queries hold. A query takes all that it needs at once.
    held_bytes: Arc<Semaphore>,
    /// The part of it for queries that wait for a turn which others may have while they wait for memory.
    early_bytes: Arc<Semaphore>,
    query_held_bytes: u64,
}

/// The memory that a query may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    All,
    /// The query has no turn, and may wait for those that have one.
    Early,
}

/// Memory that a query has.
struct Held {
    _all: OwnedSemaphorePermit,
    _early: Option<OwnedSemaphorePermit>,
}

/// A part of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PartId {
    blob: BlobId,
    start: u64,
    end: u64,
}

/// Why a query has not read its blobs.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Directory(#[from] SharedError),
    #[error("the query has waited {QUERY_WAIT_S} s for memory that other queries hold")]
    Waited,
}

/// What a query has read.
pub struct Fetched {
    fetcher: Arc<Fetcher>,
    tenant: String,
    blobs: Vec<Blob>,
    /// Erased rows that were read before are not kept.
    read_in: Generation,
    _held: Option<Held>,
}

/// A blob of a query.
enum Blob {
    Read(ReadBlob),
    /// It is read in the query's turn.
    Later(BlobMeta),
}

/// A blob whose rows are in memory.
enum ReadBlob {
    /// A query has decoded these rows before.
    Rows(Arc<Rollups>),
    Bytes {
        blob: Arc<OpenBlob>,
        part: Option<Part>,
    },
}

/// What a blob of a query needs.
enum Need {
    Nothing(ReadBlob),
    Small(BlobMeta),
    Part { blob: Arc<OpenBlob>, range: Range<u64> },
}

/// When a blob is read.
enum When {
    Now(Need),
    Later(BlobMeta),
}

/// What is known of a blob of a query before anything is read.
enum Known {
    Rows(Arc<Rollups>),
    Open(Arc<OpenBlob>),
    Small(BlobMeta),
    Large(BlobMeta),
}

impl Fetcher {
    pub fn new(reader: BlobReader, stores: Arc<QueryStores>) -> Fetcher {
        let permits = |bytes: usize| Arc::new(Semaphore::new(bytes / PERMIT_BYTES as usize));
        Fetcher {
            reader: Arc::new(reader),
            stores,
            opening: Flights::default(),
            parts: Flights::default(),
            reads: Arc::new(Semaphore::new(READS_MAX)),
            opening_bytes: permits(OPENING_BYTES_MAX),
            held_bytes: permits(HELD_BYTES_MAX),
            early_bytes: permits(EARLY_BYTES_MAX),
            query_held_bytes: QUERY_HELD_BYTES_MAX,
        }
    }

    /// Reads what a tenant's rows of some blobs need.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn fetch(self: &Arc<Fetcher>, tenant: &str, blobs: &[BlobMeta]) -> Result<Fetched, FetchError> {
        self.fetch_within(tenant, blobs, Share::All).await
    }

    /// The same within a share of the memory.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn fetch_within(
        self: &Arc<Fetcher>,
        tenant: &str,
        blobs: &[BlobMeta],
        share: Share,
    ) -> Result<Fetched, FetchError> {
        let read_in = self.stores.rows.generation();
        let opened: Vec<_> = blobs.iter().map(|meta| self.opened(tenant, *meta)).collect();
        let needs: Vec<Need> = stream::iter(opened).buffered(QUERY_READS_MAX).try_collect().await?;
        let mut bytes = 0;
        let needs: Vec<When> = needs.into_iter().map(|need| need.within(&mut bytes, self.query_held_bytes)).collect();
        let held = match bytes {
            0 => None,
            bytes => Some(self.held(bytes, share).await?),
        };
        let reads: Vec<_> = needs.into_iter().map(|when| self.carried_out(when)).collect();
        let blobs = stream::iter(reads).buffered(QUERY_READS_MAX).try_collect().await?;
        Ok(Fetched { fetcher: Arc::clone(self), tenant: tenant.to_owned(), blobs, read_in, _held: held })
    }

    /// Memory for bytes of a query.
    async fn held(&self, bytes: u64, share: Share) -> Result<Held, FetchError> {
        let taken = async {
            let early = match share {
                Share::All => None,
                Share::Early => {
                    let permits = permits(bytes, EARLY_BYTES_MAX);
                    Some(Arc::clone(&self.early_bytes).acquire_many_owned(permits).await.ok()?)
                }
            };
            let permits = permits(bytes, HELD_BYTES_MAX);
            Some(Held { _all: Arc::clone(&self.held_bytes).acquire_many_owned(permits).await.ok()?, _early: early })
        };
        let held = tokio::time::timeout(Duration::from_secs(QUERY_WAIT_S), taken).await;
        held.ok().flatten().ok_or(FetchError::Waited)
    }

    fn known(&self, tenant: &str, meta: BlobMeta) -> Known {
        let QueryStores { rows, small, indexes, .. } = &*self.stores;
        if let Some(rows) = rows.get(&meta, tenant) {
            return Known::Rows(rows);
        }
        let id = BlobId::of(&meta);
        match is_small(&meta) {
            true => small.get(&id).map_or(Known::Small(meta), Known::Open),
            false => indexes.get(&id).map_or(Known::Large(meta), Known::Open),
        }
    }

    /// Opens a large blob that no query has opened before. What the tenant needs of it is known then.
    async fn opened(self: &Arc<Fetcher>, tenant: &str, meta: BlobMeta) -> Result<Need, SharedError> {
        let counters = &self.stores.counters;
        let blob = match self.known(tenant, meta) {
            Known::Rows(rows) => {
                counters.blobs_cached.add(1);
                return Ok(Need::Nothing(ReadBlob::Rows(rows)));
            }
            Known::Small(meta) => {
                counters.blobs_read.add(1);
                return Ok(Need::Small(meta));
            }
            Known::Open(blob) => blob,
            Known::Large(meta) => self.open(meta).await?,
        };
        match blob.part_of(tenant).map_err(Arc::new)? {
            Some(range) => {
                counters.blobs_read.add(1);
                Ok(Need::Part { blob, range })
            }
            None => {
                counters.blobs_cached.add(1);
                Ok(Need::Nothing(ReadBlob::Bytes { blob, part: None }))
            }
        }
    }

    async fn carried_out(self: &Arc<Fetcher>, when: When) -> Result<Blob, SharedError> {
        match when {
            When::Now(need) => Ok(Blob::Read(self.carry_out(need).await?)),
            When::Later(meta) => Ok(Blob::Later(meta)),
        }
    }

    async fn carry_out(self: &Arc<Fetcher>, need: Need) -> Result<ReadBlob, SharedError> {
        match need {
            Need::Nothing(read) => Ok(read),
            Need::Small(meta) => Ok(ReadBlob::Bytes { blob: self.open(meta).await?, part: None }),
            Need::Part { blob, range } => {
                let part = Some(self.part(&blob, range).await?);
                Ok(ReadBlob::Bytes { blob, part })
            }
        }
    }

    /// Reads a blob whole, and keeps it or its index.
    async fn open(self: &Arc<Fetcher>, meta: BlobMeta) -> Result<Arc<OpenBlob>, SharedError> {
        let fetcher = Arc::clone(self);
        let id = BlobId::of(&meta);
        let (opened, role) = self.opening.join(id, || fetcher.reads_blob(meta).boxed()).await;
        self.count_role(role);
        opened
    }

    fn reads_blob(self: Arc<Fetcher>, meta: BlobMeta) -> BoxFuture<'static, Result<Arc<OpenBlob>, SharedError>> {
        let read = async move {
            let cache = self.cache_of(&meta);
            let read_in = cache.generation();
            let _held = match is_small(&meta) {
                // The query holds memory for it.
                true => None,
                false => {
                    let permits = permits(meta.stored.bytes, OPENING_BYTES_MAX);
                    Arc::clone(&self.opening_bytes).acquire_many_owned(permits).await.ok()
                }
            };
            let keep = if is_small(&meta) { Keep::Whole } else { Keep::Index };
            let read = self.counted(meta.stored.bytes, self.reader.open_blob(&meta, keep));
            let blob = Arc::new(read.await.map_err(Arc::new)?);
            cache.put(BlobId::of(&meta), &blob, read_in);
            Ok(blob)
        };
        read.boxed()
    }

    async fn part(self: &Arc<Fetcher>, blob: &Arc<OpenBlob>, range: Range<u64>) -> Result<Part, SharedError> {
        let id = PartId { blob: BlobId::of(blob.meta()), start: range.start, end: range.end };
        let fetcher = Arc::clone(self);
        let blob = Arc::clone(blob);
        let read = || {
            let read = async move {
                let bytes = range.end - range.start;
                let read = fetcher.counted(bytes, fetcher.reader.part(&blob, range));
                read.await.map_err(Arc::new)
            };
            read.boxed()
        };
        let (part, role) = self.parts.join(id, read).await;
        self.count_role(role);
        part
    }

    /// Carries out a read of the store when few others are carried out.
    async fn counted<T>(&self, bytes: u64, read: impl Future<Output = T>) -> T {
        let _permit = self.reads.acquire().await.ok();
        let begun = Instant::now();
        let read = read.await;
        let counters = &self.stores.counters;
        counters.reads.add(1);
        counters.read_bytes.add(bytes);
        counters.read_us.add(begun.elapsed().as_micros() as u64);
        read
    }

    fn count_role(&self, role: Role) {
        match role {
            Role::Reads => {}
            Role::Waits => self.stores.counters.reads_shared.add(1),
        }
    }

    fn cache_of(&self, meta: &BlobMeta) -> &BlobCache {
        if is_small(meta) { &self.stores.small } else { &self.stores.indexes }
    }
}

impl Need {
    /// Reads later what is beyond the bytes of a query.
    fn within(self, bytes: &mut u64, max: u64) -> When {
        let (meta, needed) = match &self {
            Need::Nothing(_) => return When::Now(self),
            Need::Small(meta) => (*meta, meta.stored.bytes),
            Need::Part { blob, range } => (*blob.meta(), range.end - range.start),
        };
        if *bytes + needed > max {
            return When::Later(meta);
        }
        *bytes += needed;
        When::Now(self)
    }
}

impl Fetched {
    /// The rows of a blob, by its place among those that were fetched. It is called on a thread that may block.
    ///
    /// # Errors
    /// The blob is missing or damaged.
    ///
    /// # Panics
    /// Fewer blobs were fetched.
    pub fn rows(&self, at: usize) -> Result<Arc<Rollups>, SharedError> {
        match &self.blobs[at] {
            Blob::Read(read) => self.decoded(read),
            Blob::Later(meta) => {
                let fetcher = &self.fetcher;
                let read = async { fetcher.carry_out(fetcher.opened(&self.tenant, *meta).await?).await };
                self.decoded(&Handle::current().block_on(read)?)
            }
        }
    }

    fn decoded(&self, read: &ReadBlob) -> Result<Arc<Rollups>, SharedError> {
        let (blob, part) = match read {
            ReadBlob::Rows(rows) => return Ok(Arc::clone(rows)),
            ReadBlob::Bytes { blob, part } => (blob, part.as_ref()),
        };
        let stores = &self.fetcher.stores;
        match blob.rows(&self.tenant, part) {
            Ok(rows) => {
                let rows = Arc::new(rows);
                stores.rows.put(blob.meta(), &self.tenant, &rows, self.read_in);
                Ok(rows)
            }
            Err(error) => {
                // The next query reads the whole file, and compares it with the manifest.
                self.fetcher.cache_of(blob.meta()).remove(&BlobId::of(blob.meta()));
                Err(Arc::new(error))
            }
        }
    }
}

fn is_small(meta: &BlobMeta) -> bool {
    meta.stored.bytes <= SMALL_BLOB_BYTES_MAX
}

/// Permits for bytes: all of them, if the bytes are more.
fn permits(bytes: u64, max: usize) -> u32 {
    bytes.div_ceil(PERMIT_BYTES).clamp(1, max as u64 / PERMIT_BYTES) as u32
}

#[cfg(test)]
mod tests;
