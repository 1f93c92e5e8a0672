//! Each operation of the store takes 20 ms of a virtual clock, so the time counts round trips in sequence.

use super::*;
use futures_util::future::join_all;
use std::path::{Path, PathBuf};
use tidemark_streams_core::blob::{BlobKey, Epoch, Level, LiveDigest, PartitionId, Seq};
use tidemark_streams_core::owner::{After, Content, Origin, Put};
use tidemark_streams_core::rollup::RollupRow;
use tidemark_streams_core::scope::Scope;
use tidemark_streams_core::source::SourceId;
use tidemark_streams_core::time::Hour;
use tidemark_streams_core::values::{DimensionNames, Values};
use tidemark_streams_store::directory::{Directory, IfMissing};
use tidemark_streams_store::faulty::{Faults, Latency, Rates};
use tidemark_streams_store::folder::{ReadError, StoreLayer, file_name};
use tidemark_streams_store::parquet_rows::RowsError;
use tokio::time::Instant as VirtualInstant;

const LATENCY: Latency = Latency::LogNormal { median_ms: 20.0, p99_ms: 20.0 };

/// A directory with blobs, and a fetcher that reads them.
struct Place {
    folder: tempfile::TempDir,
    directory: Directory,
    faults: Faults,
    stores: Arc<QueryStores>,
    fetcher: Arc<Fetcher>,
}

impl Place {
    fn new() -> Place {
        Place::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Fetcher)) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let faults = Faults::new(1, Rates::default());
        let layer = faults.clone();
        let layer = StoreLayer::new(move |store| layer.before(store));
        let directory = Directory::open_through(folder.path(), IfMissing::Create, layer).unwrap();
        let stores = Arc::new(QueryStores::default());
        let mut fetcher = Fetcher::new(directory.reader().unwrap(), Arc::clone(&stores));
        change(&mut fetcher);
        Place { folder, directory, faults, stores, fetcher: Arc::new(fetcher) }
    }

    /// A blob with this number of rows of each of the tenants `t000`, `t001` and so on.
    fn blob(&mut self, seq: u64, tenants: u32, rows_each: u32) -> BlobMeta {
        let mut rows = Rollups::new();
        for tenant in 0..tenants {
            for at in 0..rows_each {
                let mixed = (u64::from(tenant) << 32 | u64::from(at)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                let row = RollupRow {
                    tenant: &format!("t{tenant:03}"),
                    values: Values::NONE,
                    listing: &format!("{:04}", at / 100),
                    hour: Hour(480_000 + at % 100),
                    event_type: "click",
                    quarters: [0, 10, 20, 30].map(|shift| (mixed >> shift) as u32 % 1_000),
                };
                rows.push(row).unwrap();
            }
        }
        let key = BlobKey { partition: PartitionId(0), epoch: Epoch(1), seq: Seq(seq), part: 0 };
        let hours = rows.hours().unwrap();
        let count = rows.len() as u64;
        let total = rows.total();
        let put = Put {
            key,
            level: Level::Delta,
            scope: Scope::ALL,
            origin: Origin::Source { source: SourceId([1; 32]), from: 0, to: 1 },
            after: After { parts: 1, live: LiveDigest::default(), revision: 0, sources: [].into() },
            dimensions: DimensionNames::default(),
            content: Content::Rows(Arc::new(rows)),
        };
        let stored = self.directory.put(&put).unwrap();
        BlobMeta { key, level: Level::Delta, scope: Scope::ALL, hours, rows: count, total, stored }
    }

    fn large(&mut self, seq: u64) -> BlobMeta {
        let meta = self.blob(seq, 150, 1_000);
        assert!(!is_small(&meta), "{} bytes", meta.stored.bytes);
        meta
    }

    fn small(&mut self, seq: u64) -> BlobMeta {
        let meta = self.blob(seq, 10, 10);
        assert!(is_small(&meta));
        meta
    }

    fn file(&self, meta: &BlobMeta) -> PathBuf {
        self.folder.path().join("blobs").join(file_name(&meta.key, meta.level))
    }

    fn slow_down(&self) {
        self.faults.set(Rates { latency: LATENCY, ..Rates::default() });
    }

    /// The number of rows of each blob, and the time that reading them took.
    async fn counted(&self, tenant: &str, blobs: &[BlobMeta]) -> (Vec<usize>, Duration) {
        let begun = VirtualInstant::now();
        let fetched = self.fetcher.fetch(tenant, blobs).await.unwrap();
        let took = begun.elapsed();
        ((0..blobs.len()).map(|at| fetched.rows(at).unwrap().len()).collect(), took)
    }
}

/// Runs on a clock that passes when nothing else is to do.
fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(test)
}

fn flip(file: &Path, at: usize) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[at] ^= 4;
    std::fs::write(file, bytes).unwrap();
}

/// Whether a time is this number of round trips.
fn is_trips(took: Duration, trips: u32) -> bool {
    let latency = Duration::from_millis(20);
    (latency * trips..latency * (trips + 1)).contains(&took)
}

#[test]
fn many_blobs_of_a_slow_store_take_two_round_trips() {
    let mut place = Place::new();
    let mut blobs: Vec<BlobMeta> = (0..4).map(|seq| place.large(seq)).collect();
    blobs.extend((4..44).map(|seq| place.small(seq)));
    place.slow_down();
    let rows = |of_large, of_small| [[of_large; 4].to_vec(), [of_small; 40].to_vec()].concat();
    run(async {
        let (found, took) = place.counted("t003", &blobs).await;
        assert_eq!(found, rows(1_000, 10));
        assert!(is_trips(took, 2), "cold: {took:?}");
        let (found, took) = place.counted("t140", &blobs).await;
        assert_eq!(found, rows(1_000, 0));
        assert!(is_trips(took, 1), "another tenant: {took:?}");
        let (found, took) = place.counted("t003", &blobs).await;
        assert_eq!(found, rows(1_000, 10));
        assert!(is_trips(took, 0), "the same tenant: {took:?}");
        assert_eq!(place.counted("nobody", &blobs).await, (rows(0, 0), Duration::ZERO));
    });
    let counters = &place.stores.counters;
    assert_eq!((place.faults.counts().gets, counters.reads.get()), (4 + 4 + 40 + 4, 4 + 4 + 40 + 4));
    let whole: u64 = blobs.iter().map(|meta| meta.stored.bytes).sum();
    assert!((whole..3 * whole).contains(&counters.read_bytes.get()));
}

#[test]
fn queries_at_the_same_time_share_their_reads() {
    let mut place = Place::new();
    let blobs = [place.large(1), place.small(2)];
    let wanted = [place.large(3)];
    place.slow_down();
    run(async {
        let found = join_all((0..30).map(|_| place.counted("t007", &blobs))).await;
        assert!(found.iter().all(|(rows, took)| *rows == [1_000, 10] && is_trips(*took, 2)), "{found:?}");
        assert_eq!(place.faults.counts().gets, 3, "the large blob, its part, and the small blob");
        assert_eq!(place.stores.counters.reads_shared.get(), 3 * 29);
        // The first leaves, and the second has the result.
        let leaves = tokio::time::timeout(Duration::from_millis(10), place.fetcher.fetch("t008", &wanted));
        let (left, (rows, _)) = tokio::join!(leaves, place.counted("t008", &wanted));
        assert!(left.is_err() && rows == [1_000]);
        assert_eq!(place.faults.counts().gets, 3 + 2);
    });
}

#[test]
fn damage_of_a_part_or_a_whole_blob_is_found() {
    use tidemark_streams_store::blob::BlobError;
    let mut place = Place::new();
    let meta = place.large(1);
    let file = place.file(&meta);
    let middle = meta.stored.bytes as usize / 2;
    run(async {
        let read = place.fetcher.fetch("t000", &[meta]).await.unwrap();
        flip(&file, middle);
        assert_eq!(read.rows(0).unwrap().len(), 1_000, "the part was read before");
        // One of the two row groups is damaged.
        let tenants = ["t001", "t149"];
        let damaged: Vec<SharedError> = {
            let first = place.fetcher.fetch(tenants[0], &[meta]).await.unwrap();
            let last = place.fetcher.fetch(tenants[1], &[meta]).await.unwrap();
            [first.rows(0), last.rows(0)].into_iter().filter_map(Result::err).collect()
        };
        let is_changed = |error: &BlobError| matches!(error, BlobError::Rows(RowsError::Changed { .. }));
        let [damaged] = damaged.as_slice() else { panic!("{damaged:?}") };
        assert!(matches!(&**damaged, DirectoryError::Content { error, .. } if is_changed(error)), "{damaged}");
        // The next query compares the whole file with the manifest.
        let Err(FetchError::Directory(error)) = place.fetcher.fetch("t002", &[meta]).await else { panic!() };
        assert!(matches!(&*error, DirectoryError::Read(ReadError::Checksum { .. })), "{error}");
        flip(&file, middle);
        assert_eq!(place.counted("t002", &[meta]).await.0, [1_000], "the file is whole again");
    });
}

#[test]
fn missing_and_short_blobs_are_named() {
    let mut place = Place::new();
    let blobs = [place.large(1), place.small(2)];
    run(async {
        assert_eq!(place.counted("t005", &blobs[..1]).await.0, [1_000]);
        std::fs::remove_file(place.file(&blobs[0])).unwrap();
        let Err(FetchError::Directory(error)) = place.fetcher.fetch("t006", &blobs).await else { panic!() };
        assert!(matches!(&*error, DirectoryError::Read(ReadError::Missing { .. })), "{error}");
        std::fs::write(place.file(&blobs[0]), b"short").unwrap();
        let Err(FetchError::Directory(error)) = place.fetcher.fetch("t140", &blobs[..1]).await else { panic!() };
        assert!(matches!(&*error, DirectoryError::Read(ReadError::Range { .. } | ReadError::Store { .. })), "{error}");
    });
    let mut place = Place::new();
    let blobs = [place.small(1)];
    std::fs::write(place.file(&blobs[0]), b"short").unwrap();
    let Err(FetchError::Directory(error)) = run(place.fetcher.fetch("t005", &blobs)) else { panic!() };
    assert!(matches!(&*error, DirectoryError::Read(ReadError::Length { bytes: 5, .. })), "{error}");
}

#[test]
fn blobs_beyond_the_bytes_of_a_query_are_read_in_its_turn() {
    let mut place = Place::with(|fetcher| fetcher.query_held_bytes = 0);
    let blobs = [place.large(1), place.small(2)];
    run(async {
        let fetched = place.fetcher.fetch("t009", &blobs).await.unwrap();
        assert_eq!(place.faults.counts().gets, 1, "the index of the large blob");
        let rows = tokio::task::spawn_blocking(move || [0, 1].map(|at| fetched.rows(at).unwrap().len()));
        assert_eq!(rows.await.unwrap(), [1_000, 10]);
        assert_eq!(place.faults.counts().gets, 3);
    });
}

#[test]
fn erased_rows_are_not_kept_by_a_read_that_began_before() {
    let mut place = Place::new();
    let blobs = [place.large(1), place.small(2)];
    run(async {
        let fetched = place.fetcher.fetch("t001", &blobs).await.unwrap();
        place.stores.forget_blobs();
        assert_eq!(fetched.rows(1).unwrap().len(), 10);
    });
    assert!(blobs.iter().all(|meta| place.stores.rows.get(meta, "t001").is_none()));
    let ids = blobs.map(|meta| BlobId::of(&meta));
    assert!(place.stores.indexes.get(&ids[0]).is_none() && place.stores.small.get(&ids[1]).is_none());
}

#[test]
fn query_waits_until_others_release_their_memory() {
    let mut place = Place::new();
    let blobs = [place.small(1)];
    run(async {
        let held = Arc::clone(&place.fetcher.held_bytes).acquire_many_owned(permits(u64::MAX, HELD_BYTES_MAX)).await;
        let mut waits = std::pin::pin!(place.fetcher.fetch("t001", &blobs));
        assert!(tokio::time::timeout(Duration::from_secs(1), waits.as_mut()).await.is_err());
        drop(held);
        assert_eq!(waits.await.unwrap().rows(0).unwrap().len(), 10);
        let held = Arc::clone(&place.fetcher.held_bytes).acquire_many_owned(permits(u64::MAX, HELD_BYTES_MAX)).await;
        place.stores.forget_blobs();
        let waited = place.fetcher.fetch("t001", &blobs).await;
        assert!(matches!(waited, Err(FetchError::Waited)));
        drop(held);
    });
}

#[test]
fn queries_without_a_turn_leave_memory_to_others() {
    let mut place = Place::new();
    let blobs = [place.small(1)];
    run(async {
        let early = Arc::clone(&place.fetcher.early_bytes).acquire_many_owned(permits(u64::MAX, EARLY_BYTES_MAX)).await;
        let waited = place.fetcher.fetch_within("t001", &blobs, Share::Early).await;
        assert!(matches!(waited, Err(FetchError::Waited)));
        assert_eq!(place.fetcher.fetch("t001", &blobs).await.unwrap().rows(0).unwrap().len(), 10);
        drop(early);
        place.stores.forget_blobs();
        let before = place.fetcher.held_bytes.available_permits();
        let read = place.fetcher.fetch_within("t001", &blobs, Share::Early).await.unwrap();
        let all = place.fetcher.held_bytes.available_permits();
        assert_eq!(before - all, early_max() - place.fetcher.early_bytes.available_permits());
        assert!(all < before && read.rows(0).unwrap().len() == 10);
    });
}

fn early_max() -> usize {
    EARLY_BYTES_MAX / PERMIT_BYTES as usize
}
