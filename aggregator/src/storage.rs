//! The view's disk: rows and cursors of each shard, in a redb file of its own or in a directory beside it, each set of them written in
//! one transaction; and in the first one's the number of starts, and the map that says which shards are here. The file of a shard is made
//! before the map on disk names it, and deleted after that names it no more; a start deletes what a crash between the two has left.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidemark_consensus::local::{
    CheckpointError, CheckpointPart, Identity, LocalLog, LocalLogOptions, LogEvent, LsmOptions, OpenError,
    PersistError, Row, RowStore, RowsNow, Scratch, SubmitError, remove,
};
use tidemark_proto::aggregator::{is_of_image, shelf_key, shelf_number, shelf_prefix};
use tidemark_proto::ledger::ShardMap;
use tidemark_proto::limits::SHARDS_MAX;
use tidemark_proto::shards::{HOLDERS, ShardId};
use tidemark_proto::view::Shelf;
use tokio::sync::{Notify, watch};

const ROWS: &str = "rows";
/// Starts of this aggregator, counted: the epoch of its versions.
const META: &str = "meta";
const EPOCH: &[u8] = b"epoch";
/// Among how many aggregators the view is split, of one that is.
const SEATS: &[u8] = b"seats";
/// The holders of each shard, as the view goes by them.
const MAP: &[u8] = b"map";
/// The file of the first shard inside a data directory, or of all where a view is not cut.
const VIEW_FILE: &str = "view.redb";
/// Old buckets of totals, which are counted anew at every start.
const TOTALS_DIR: &str = "totals";
/// Memory of their tree: 8 MiB of cache, and memtables of 8 MiB of which up to five may wait.
const TOTALS: LsmOptions =
    LsmOptions { cache_bytes: 8 << 20, memtable_bytes: 8 << 20, journal_bytes: 64 << 20, steps_back: true };
/// Bytes of pages that were read, for all files of one process; each at least the second, so 16 of them are within it.
const CACHE_BYTES: usize = 64 << 20;
const CACHE_BYTES_MIN: usize = 4 << 20;

/// A file that cannot be deleted yet is tried so often again, after so long each time.
const REMOVALS_MAX: u32 = 20;
const REMOVED_AGAIN: Duration = Duration::from_millis(250);

/// Why the view's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ViewStoreError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Persist(#[from] PersistError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Submit(#[from] SubmitError),
    #[error("the number of this start could not be written: {0}")]
    Start(KeptError),
    #[error("the list of the slots here could not be written: {0}")]
    Kept(KeptError),
    #[error("the list of the slots here cannot be read: {0}")]
    Map(postcard::Error),
    #[error("{file} is of a slot that is not here any more, and could not be deleted: {source}")]
    Stray { file: String, source: std::io::Error },
    #[error(
        "{dir} has {beside} and no {VIEW_FILE}, which limits the reads of counters with milestones: put it back, or move all of \
         these files away, and the view is received anew"
    )]
    FirstMissing { dir: String, beside: String },
    #[error(
        "the view on disk is of a data centre with {disk} aggregators, and the layout has {asked}: the slots of this disk \
         follow from that number. Change it back, or take a backup and restore it with the new layout"
    )]
    Split { disk: String, asked: String },
}

/// Why the kept rows of the first file are not written.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    #[error(transparent)]
    Persist(#[from] PersistError),
    #[error("the log of the first file has ended: {0}")]
    Ended(#[from] RecvError),
}

/// Bytes of rows that one transaction of a new file takes.
const FOUNDING_BYTES: usize = 4 << 20;

/// Rows as they were persisted: key and value.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Follows whether a view's file has failed.
#[derive(Clone)]
pub struct StoreFailure(watch::Receiver<Option<String>>);

impl StoreFailure {
    /// Resolves when the file has failed, with the reason; never, if it is closed in order.
    pub async fn failed(mut self) -> String {
        match self.0.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }
}

/// A view's durable rows as they are at one moment, by shard.
pub struct ViewRows(BTreeMap<ShardId, RowsNow>);

impl ViewRows {
    /// The shards that have rows on disk here, ascending, the first one always.
    pub fn shards(&self) -> impl ExactSizeIterator<Item = ShardId> + '_ {
        self.0.keys().copied()
    }

    /// Calls `visit(key, value)` for each row of a shard that belongs into an image, in the order of keys, until it wants no more.
    pub fn scan(&self, shard: ShardId, mut visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<(), PersistError> {
        let mut rows = self.0.get(&shard).into_iter();
        rows.try_for_each(|rows| rows.scan(ROWS, |key, value| !is_of_image(key) || visit(key, value)))
    }
}

/// The file of a shard inside a data directory. A view that is not cut has the first only.
fn file_of(shard: ShardId) -> String {
    match shard {
        ShardId::FIRST => VIEW_FILE.to_owned(),
        ShardId(number) => format!("shard-{number}.redb"),
    }
}

/// Shards beside the first that have a file.
fn further(dir: &Path) -> impl Iterator<Item = ShardId> + '_ {
    (1..SHARDS_MAX as u16).map(ShardId).filter(|shard| dir.join(file_of(*shard)).exists())
}

/// A file of a further shard, where there is none of the first.
fn without_first(dir: &Path) -> Option<String> {
    (!dir.join(VIEW_FILE).exists()).then(|| further(dir).next().map(file_of)).flatten()
}

/// No file is taken for another view's or another shard's.
fn identity(cluster: &str, dc_name: &str, shard: ShardId) -> Identity {
    let owner = match shard {
        ShardId::FIRST => format!("{dc_name}/view"),
        ShardId(number) => format!("{dc_name}/view/shard-{number}"),
    };
    Identity { cluster: cluster.to_owned(), owner }
}

/// Founds the file of a view's shard, in this directory, that begins with these rows. There must be none.
pub fn found(
    dir: &Path,
    cluster: &str,
    dc_name: &str,
    shard: ShardId,
    rows: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
) -> Result<(), ViewStoreError> {
    let path = dir.join(file_of(shard));
    let identity = identity(cluster, dc_name, shard);
    let (done, written) = std::sync::mpsc::sync_channel(1);
    let on_event = move |event| drop(done.send(event));
    let (log, _) = LocalLog::open(path.as_path(), LocalLogOptions::new(identity), on_event)?;
    let mut part = Vec::new();
    let mut bytes = 0;
    let write = |rows: Vec<Row>| -> Result<(), ViewStoreError> {
        log.checkpoint(CheckpointPart { applied: 0, last: true, rows })?;
        match written.recv() {
            Ok(LogEvent::Failed(error)) => Err(error.into()),
            _ => Ok(()),
        }
    };
    for (key, value) in rows {
        bytes += key.len() + value.len();
        part.push(Row { table: ROWS, key: key.into(), value: Some(value.into()) });
        if bytes >= FOUNDING_BYTES {
            write(std::mem::take(&mut part))?;
            bytes = 0;
        }
    }
    write(part)
}

/// Reads buckets that left memory from the files of a view. While it is open it keeps them open too.
pub struct ViewShelf {
    logs: RwLock<BTreeMap<ShardId, Arc<LocalLog>>>,
    /// Nothing once it is closed.
    totals: RwLock<Option<Scratch>>,
}

impl std::fmt::Debug for ViewShelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ViewShelf").finish_non_exhaustive()
    }
}

impl ViewShelf {
    /// The files are closed; nothing may be read from here any more.
    pub fn close(&self) {
        self.logs.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.totals.write().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn put(&self, shard: ShardId, log: &Arc<LocalLog>) {
        self.logs.write().unwrap_or_else(PoisonError::into_inner).insert(shard, log.clone());
    }

    fn remove(&self, shard: ShardId) {
        self.logs.write().unwrap_or_else(PoisonError::into_inner).remove(&shard);
    }

    fn with<R>(&self, shard: ShardId, read: impl FnOnce(&RowsNow) -> Result<R, PersistError>) -> R {
        let logs = self.logs.read().unwrap_or_else(PoisonError::into_inner);
        let Some(log) = logs.get(&shard) else { panic!("slot {} is read after its file was closed", shard.0) };
        log.rows().and_then(|rows| read(&rows)).unwrap_or_else(|error| unreadable(&error))
    }
}

/// Answers without these rows would be wrong, and a start finds all acknowledged rows.
fn unreadable(error: &PersistError) -> ! {
    tracing::error!(%error, "old buckets of the view cannot be read: this process ends");
    std::process::abort()
}

impl Shelf for ViewShelf {
    fn read(&self, shard: ShardId, number: u32) -> Option<Vec<u8>> {
        self.with(shard, |rows| rows.get(ROWS, &shelf_key(number)))
    }

    fn is_damaged(&self, shard: ShardId, number: u32, why: &str) -> ! {
        tracing::error!(slot = shard.0, row = number, why, "old buckets of the view cannot be read: this process ends");
        std::process::abort()
    }

    fn read_total(&self, number: u32) -> Option<Vec<u8>> {
        let totals = self.totals.read().unwrap_or_else(PoisonError::into_inner);
        let Some(totals) = &*totals else { panic!("totals are read after their files were closed") };
        totals.get(&number.to_be_bytes()).unwrap_or_else(|error| unreadable(&error))
    }

    fn write_total(&self, number: u32, value: Option<&[u8]>) -> bool {
        let totals = self.totals.read().unwrap_or_else(PoisonError::into_inner);
        let written = totals.as_ref().map_or(Ok(false), |totals| totals.put(&number.to_be_bytes(), value));
        written.unwrap_or_else(|error| {
            tracing::warn!(%error, "old buckets of totals stay in memory");
            false
        })
    }

    fn is_damaged_total(&self, number: u32, why: &str) -> ! {
        tracing::error!(number, why, "old buckets of a total cannot be read: this process ends");
        std::process::abort()
    }

    fn scan(&self, shard: ShardId, visit: &mut dyn FnMut(u32, &[u8])) {
        self.with(shard, |rows| {
            rows.scan_prefix(ROWS, &shelf_prefix(), |key, value| {
                if let Some(number) = shelf_number(key) {
                    visit(number, value);
                }
            })
        });
    }
}

/// The files of a view.
pub struct ViewStore {
    home: Home,
    failure: StoreFailure,
    files: BTreeMap<ShardId, File>,
    shelf: Arc<ViewShelf>,
    changed: Arc<Notify>,
    listeners: Listeners,
    /// Says when rows are written that are kept in the first file.
    kept: Mutex<Receiver<Result<(), PersistError>>>,
    /// Files of shards that are not here any more, while they are being deleted.
    leaving: BTreeMap<ShardId, thread::JoinHandle<()>>,
}

/// The content of a view's disk at a start.
pub struct Opened {
    pub store: ViewStore,
    /// Number of this start.
    pub epoch: u64,
    /// The holders of each shard, as the view went by them before.
    pub map: ShardMap,
}

/// The place of a view's files, and their owner.
struct Home {
    dir: PathBuf,
    cluster: String,
    dc_name: String,
    rows: RowStore,
    /// Number of files among which their memory is divided. A later file takes as much each, until the next start.
    parts: usize,
}

impl Home {
    fn path(&self, shard: ShardId) -> PathBuf {
        self.dir.join(file_of(shard))
    }

    fn open(&self, shard: ShardId, listeners: &Listeners) -> Result<File, ViewStoreError> {
        let persisted = Arc::new(AtomicU64::new(0));
        let listeners = listeners.clone();
        let count = persisted.clone();
        let on_event = move |event| listeners.on_event(event, &count);
        let options = LocalLogOptions {
            rows: shared_by(self.rows, self.parts),
            kept: &[META],
            cache_bytes: (CACHE_BYTES / self.parts).max(CACHE_BYTES_MIN),
            ..LocalLogOptions::new(identity(&self.cluster, &self.dc_name, shard))
        };
        let (log, _) = LocalLog::open(self.path(shard).as_path(), options, on_event)?;
        Ok(File { log: Arc::new(log), persisted })
    }

    /// Deletes the file of a shard that is not here any more, if there is one.
    fn delete(&self, shard: ShardId) -> Result<(), ViewStoreError> {
        remove(&self.path(shard)).map_err(|source| ViewStoreError::Stray { file: file_of(shard), source })
    }
}

/// The file of one shard.
struct File {
    log: Arc<LocalLog>,
    persisted: Arc<AtomicU64>,
}

/// The listeners to the results of writes.
#[derive(Clone)]
struct Listeners {
    changed: Arc<Notify>,
    fail: Arc<watch::Sender<Option<String>>>,
    /// The result of writing the kept rows of the first file.
    kept: SyncSender<Result<(), PersistError>>,
}

impl Listeners {
    fn on_event(&self, event: LogEvent, persisted: &AtomicU64) {
        match event {
            LogEvent::Checkpointed { .. } => {
                persisted.fetch_add(1, Ordering::Release);
                self.changed.notify_one();
            }
            LogEvent::Kept => drop(self.kept.try_send(Ok(()))),
            LogEvent::Durable { .. } => {}
            LogEvent::Failed(error) => {
                drop(self.kept.try_send(Err(error.clone())));
                drop(self.fail.send_replace(Some(error.to_string())));
            }
        }
    }
}

impl ViewStore {
    /// Opens the files of a view, counts this start and returns its epoch. The epoch is durable then, so that nothing is said under a
    /// number that another start may have as well. `seats` aggregators have its shards among them; the shards that are kept here, the first
    /// always, follow from the holders in the map on disk.
    pub fn open(
        dir: &Path,
        cluster: &str,
        dc_name: &str,
        rows: RowStore,
        seats: u8,
        kept: impl Fn(&ShardMap) -> BTreeSet<ShardId>,
    ) -> Result<Opened, ViewStoreError> {
        if let Some(beside) = without_first(dir) {
            return Err(ViewStoreError::FirstMissing { dir: dir.display().to_string(), beside });
        }
        let (changed, (written, kept_rows)) = (Arc::new(Notify::new()), sync_channel(1));
        let (fail, failure) = watch::channel(None);
        let listeners = Listeners { changed: changed.clone(), fail: Arc::new(fail), kept: written };
        // As many as there were, or as there are to be at first.
        let parts = (1 + further(dir).count()).max(kept(&ShardMap::default()).len());
        let cluster = cluster.to_owned();
        let dc_name = dc_name.to_owned();
        let home = Home { dir: dir.to_owned(), cluster, dc_name, rows, parts };
        let first = home.open(ShardId::FIRST, &listeners)?;
        // The first file is open here, and so nowhere else.
        let totals = RwLock::new(Some(Scratch::new(&dir.join(TOTALS_DIR), TOTALS)?));
        let (epoch, map) = begin(&first.log, seats)?;
        let kept = kept(&map);
        let mut files = BTreeMap::from([(ShardId::FIRST, first)]);
        for &shard in kept.iter().filter(|shard| **shard != ShardId::FIRST) {
            files.insert(shard, home.open(shard, &listeners)?);
        }
        let failure = StoreFailure(failure);
        let logs = files.iter().map(|(&shard, file)| (shard, file.log.clone())).collect();
        let store = ViewStore {
            home,
            failure,
            files,
            shelf: Arc::new(ViewShelf { logs: RwLock::new(logs), totals }),
            changed,
            listeners,
            kept: Mutex::new(kept_rows),
            leaving: BTreeMap::new(),
        };
        store.wait_kept().map_err(ViewStoreError::Start)?;
        Ok(Opened { store, epoch, map })
    }

    fn wait_kept(&self) -> Result<(), KeptError> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(kept.recv()??)
    }

    /// Deletes files of shards that are not here: a crash came between the map that says so and their deletion. To be called when it is known
    /// that the files that are here are of this layout: by another one all of them would be strays.
    pub fn delete_strays(&self, map: &ShardMap) -> Result<(), ViewStoreError> {
        // Where nothing was moved there are none.
        if map.revision() == 0 {
            return Ok(());
        }
        further(&self.home.dir)
            .filter(|shard| !self.files.contains_key(shard))
            .try_for_each(|shard| self.home.delete(shard))
    }

    /// From here on these shards have files, and no others; the map says so on disk. Waits for one write.
    pub fn keep(&mut self, map: &ShardMap, kept: &BTreeSet<ShardId>) -> Result<(), ViewStoreError> {
        for &shard in kept {
            if self.files.contains_key(&shard) {
                continue;
            }
            if let Some(leaving) = self.leaving.remove(&shard) {
                let _ = leaving.join();
            }
            // A file that could not be deleted is from an earlier life of the shard.
            self.home.delete(shard)?;
            let file = self.home.open(shard, &self.listeners)?;
            self.shelf.put(shard, &file.log);
            self.files.insert(shard, file);
        }
        self.of(ShardId::FIRST).log.keep(vec![meta(MAP, map.to_bytes().into())])?;
        self.wait_kept().map_err(ViewStoreError::Kept)?;
        for (shard, file) in self.files.extract_if(.., |shard, _| *shard != ShardId::FIRST && !kept.contains(shard)) {
            self.shelf.remove(shard);
            let path = self.home.path(shard);
            let delete = move || {
                drop(file);
                // A reader of an image of it may still have it open.
                let mut removed = remove(&path);
                for _ in 0..REMOVALS_MAX {
                    if removed.is_ok() {
                        break;
                    }
                    thread::sleep(REMOVED_AGAIN);
                    removed = remove(&path);
                }
                if let Err(error) = removed {
                    tracing::error!(%error, file = %path.display(), "a slot that is not here any more is deleted at the next start");
                }
            };
            self.leaving.insert(shard, thread::spawn(delete));
        }
        self.leaving.retain(|_, leaving| !leaving.is_finished());
        Ok(())
    }

    fn of(&self, shard: ShardId) -> &File {
        &self.files[&shard]
    }

    /// Calls `visit(key, value)` for each durable row of a shard, in the order of keys, until it wants no more.
    pub fn scan(&self, shard: ShardId, visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<(), PersistError> {
        self.of(shard).log.rows()?.scan(ROWS, visit)
    }

    /// Writes rows of a shard that is here in one transaction; [`ViewStore::persisted`] counts when they are durable.
    pub fn persist(&self, shard: ShardId, rows: Rows) {
        let value = |value: Vec<u8>| (!value.is_empty()).then(|| value.into());
        let row = |(key, of): (Vec<u8>, Vec<u8>)| Row { table: ROWS, key: key.into(), value: value(of) };
        let rows = rows.into_iter().map(row).collect();
        let Some(file) = self.files.get(&shard) else {
            return tracing::error!(shard = shard.0, "rows of a slot that is not here are not persisted");
        };
        if let Err(error) = file.log.checkpoint(CheckpointPart { applied: 0, last: true, rows }) {
            tracing::error!(%error, "the view is not persisted");
        }
    }

    /// Sets of rows that are durable since the start, by shard.
    pub fn persisted(&self) -> impl Iterator<Item = (ShardId, u64)> + '_ {
        self.files.iter().map(|(&shard, file)| (shard, file.persisted.load(Ordering::Acquire)))
    }

    /// The durable rows as they are now.
    pub fn rows_now(&self) -> Result<ViewRows, PersistError> {
        let rows = self.files.iter().map(|(&shard, file)| Ok((shard, file.log.rows()?)));
        Ok(ViewRows(rows.collect::<Result<_, PersistError>>()?))
    }

    /// Where buckets are read that left memory.
    pub fn shelf(&self) -> Arc<ViewShelf> {
        self.shelf.clone()
    }

    /// Follows whether a file has failed.
    pub fn failure(&self) -> StoreFailure {
        self.failure.clone()
    }

    /// Nothing more can be written.
    pub fn fail(&self, error: &ViewStoreError) {
        drop(self.listeners.fail.send_replace(Some(error.to_string())));
    }

    /// Notified when one of [`ViewStore::persisted`] grows.
    pub fn changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }
}

fn meta(key: &'static [u8], value: Bytes) -> Row {
    Row { table: META, key: Bytes::from_static(key), value: Some(value) }
}

/// Counts the start, notes the number of aggregators that share the view, if it is split, and reads the holders of each shard.
fn begin(first: &LocalLog, seats: u8) -> Result<(u64, ShardMap), ViewStoreError> {
    let mut last = 0u64;
    let mut split = None;
    let mut map = Ok(ShardMap::default());
    first.scan_kept(META, |key, value| match key {
        EPOCH => last = value.try_into().map_or(0, u64::from_be_bytes),
        SEATS => split = value.first().copied(),
        MAP => map = ShardMap::from_bytes(value),
        _ => {}
    })?;
    let now = (seats > HOLDERS).then_some(seats);
    if last > 0 && split != now {
        let all = |seats: Option<u8>| seats.map_or_else(|| "one or two".to_owned(), |seats| seats.to_string());
        return Err(ViewStoreError::Split { disk: all(split), asked: all(now) });
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    // Larger than in every earlier life, also when the disk of that life is lost.
    let epoch = seconds.max(last + 1);
    let split = now.map(|seats| meta(SEATS, Bytes::copy_from_slice(&[seats])));
    let epoch_row = meta(EPOCH, Bytes::copy_from_slice(&epoch.to_be_bytes()));
    first.keep(split.into_iter().chain([epoch_row]).collect())?;
    Ok((epoch, map.map_err(ViewStoreError::Map)?))
}

impl Drop for ViewStore {
    fn drop(&mut self) {
        std::mem::take(&mut self.leaving).into_values().for_each(|leaving| drop(leaving.join()));
    }
}

/// The place of the rows of each of this number of shards: together they take as much as one would.
fn shared_by(rows: RowStore, shards: usize) -> RowStore {
    let part = |whole: u64| whole / shards as u64;
    match rows {
        // No task waits for a view's checkpoint, but many wait for its answers.
        RowStore::Apart(options) => RowStore::Apart(LsmOptions {
            steps_back: true,
            cache_bytes: part(options.cache_bytes),
            memtable_bytes: part(options.memtable_bytes),
            journal_bytes: part(options.journal_bytes),
        }),
        RowStore::Beside => RowStore::Beside,
    }
}
