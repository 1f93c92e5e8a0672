//! The view's disk: rows and cursors of each shard, in a redb file of its own or in a directory beside it, each set of them written in
//! one transaction; and the number of starts, in the first one's.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};
use tidemark_consensus::local::{
    CheckpointError, CheckpointPart, Identity, LocalLog, LocalLogOptions, LogEvent, LsmOptions, OpenError,
    PersistError, Row, RowStore, RowsNow, SubmitError,
};
use tidemark_proto::aggregator::is_of_image;
use tidemark_proto::limits::SHARDS_MAX;
use tidemark_proto::shards::{HOLDERS, ShardId};
use tokio::sync::{Notify, watch};

const ROWS: &str = "rows";
/// Starts of this aggregator, counted: the epoch of its versions.
const META: &str = "meta";
const EPOCH: &[u8] = b"epoch";
/// Among how many aggregators the view is split, of one that is.
const SEATS: &[u8] = b"seats";
/// The file of the first shard inside a data directory, or of all where a view is not cut.
const VIEW_FILE: &str = "view.redb";
/// What the files of one process may take together of pages that were read; each at least the second, so 16 of them are within it.
const CACHE_BYTES: usize = 64 << 20;
const CACHE_BYTES_MIN: usize = 4 << 20;

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
    Start(String),
    #[error(
        "{dir} has {beside} and no {VIEW_FILE}, which says what reads may show of counters with milestones: put it back, or move all of \
         these files away, and the view is told anew"
    )]
    FirstMissing { dir: String, beside: String },
    #[error(
        "the view on disk is of a data centre with {disk} aggregators, and is to be of one with {asked}: which slots are here follows from \
         their number. Change it back, or take a backup and restore it with the new layout"
    )]
    Split { disk: String, asked: String },
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

/// A file of a further shard, where there is none of the first.
fn without_first(dir: &Path) -> Option<String> {
    let further = (1..SHARDS_MAX as u16).map(|number| file_of(ShardId(number)));
    let mut beside = further.filter(|file| dir.join(file).exists());
    (!dir.join(VIEW_FILE).exists()).then(|| beside.next()).flatten()
}

/// None is taken for another's, nor for another shard's.
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
    let (path, identity) = (dir.join(file_of(shard)), identity(cluster, dc_name, shard));
    let (done, written) = std::sync::mpsc::sync_channel(1);
    let on_event = move |event| drop(done.send(event));
    let (log, _) = LocalLog::open(path.as_path(), LocalLogOptions::new(identity), on_event)?;
    let (mut part, mut bytes) = (Vec::new(), 0);
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

/// The files of a view.
pub struct ViewStore {
    failure: StoreFailure,
    files: BTreeMap<ShardId, File>,
    changed: Arc<Notify>,
}

/// The file of one shard.
struct File {
    log: LocalLog,
    persisted: Arc<AtomicU64>,
}

/// Who hears what becomes of writes.
#[derive(Clone)]
struct Listeners {
    changed: Arc<Notify>,
    fail: Arc<watch::Sender<Option<String>>>,
    /// The number of this start is written, or why it is not.
    started: SyncSender<Result<(), String>>,
}

impl Listeners {
    fn on_event(&self, event: LogEvent, persisted: &AtomicU64) {
        match event {
            LogEvent::Checkpointed { .. } => {
                persisted.fetch_add(1, Ordering::Release);
                self.changed.notify_one();
            }
            LogEvent::Kept => drop(self.started.try_send(Ok(()))),
            LogEvent::Durable { .. } => {}
            LogEvent::Failed(error) => {
                drop(self.started.try_send(Err(error.to_string())));
                drop(self.fail.send_replace(Some(error.to_string())));
            }
        }
    }
}

impl ViewStore {
    /// Opens the files of some shards, the first among them, counts this start and returns its epoch. The epoch is durable then, so that
    /// nothing is said under a number that another start may have as well. `seats` aggregators have these shards and the others among them.
    pub fn open(
        dir: &Path,
        cluster: &str,
        dc_name: &str,
        rows: RowStore,
        (shards, seats): (&[ShardId], u8),
    ) -> Result<(ViewStore, u64), ViewStoreError> {
        if let Some(beside) = without_first(dir) {
            return Err(ViewStoreError::FirstMissing { dir: dir.display().to_string(), beside });
        }
        let (changed, (started, first)) = (Arc::new(Notify::new()), sync_channel(1));
        let (fail, failure) = watch::channel(None);
        let listeners = Listeners { changed: changed.clone(), fail: Arc::new(fail), started };
        let files = shards.iter().map(|&shard| {
            let (persisted, listeners) = (Arc::new(AtomicU64::new(0)), listeners.clone());
            let count = persisted.clone();
            let on_event = move |event| listeners.on_event(event, &count);
            let options = LocalLogOptions {
                rows: shared_by(rows, shards.len()),
                kept: &[META],
                cache_bytes: (CACHE_BYTES / shards.len()).max(CACHE_BYTES_MIN),
                ..LocalLogOptions::new(identity(cluster, dc_name, shard))
            };
            let (log, _) = LocalLog::open(dir.join(file_of(shard)).as_path(), options, on_event)?;
            Ok::<_, ViewStoreError>((shard, File { log, persisted }))
        });
        let files = files.collect::<Result<BTreeMap<ShardId, File>, _>>()?;
        let store = ViewStore { failure: StoreFailure(failure), files, changed };
        let epoch = store.begin(seats)?;
        first.recv().unwrap_or_else(|gone| Err(gone.to_string())).map_err(ViewStoreError::Start)?;
        Ok((store, epoch))
    }

    fn of(&self, shard: ShardId) -> &File {
        &self.files[&shard]
    }

    /// Calls `visit(key, value)` for each durable row of a shard, in the order of keys, until it wants no more.
    pub fn scan(&self, shard: ShardId, visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<(), PersistError> {
        self.of(shard).log.rows()?.scan(ROWS, visit)
    }

    /// Counts the start, and notes among how many aggregators the view is split, if it is: which shards are here follows from that.
    fn begin(&self, seats: u8) -> Result<u64, ViewStoreError> {
        let (mut last, mut split, log) = (0u64, None, &self.of(ShardId::FIRST).log);
        log.scan_kept(META, |key, value| match key {
            EPOCH => last = value.try_into().map_or(0, u64::from_be_bytes),
            SEATS => split = value.first().copied(),
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
        let value = Bytes::copy_from_slice(&epoch.to_be_bytes());
        let row = |key, value| Row { table: META, key: Bytes::from_static(key), value: Some(value) };
        let split = now.map(|seats| row(SEATS, Bytes::copy_from_slice(&[seats])));
        log.keep(split.into_iter().chain([row(EPOCH, value)]).collect())?;
        Ok(epoch)
    }

    /// Writes rows of a shard in one transaction; [`ViewStore::persisted`] counts when they are durable.
    pub fn persist(&self, shard: ShardId, rows: Rows) {
        let row = |(key, value): (Vec<u8>, Vec<u8>)| Row { table: ROWS, key: key.into(), value: Some(value.into()) };
        let rows = rows.into_iter().map(row).collect();
        if let Err(error) = self.of(shard).log.checkpoint(CheckpointPart { applied: 0, last: true, rows }) {
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

    /// Follows whether a file has failed.
    pub fn failure(&self) -> StoreFailure {
        self.failure.clone()
    }

    /// Notified when one of [`ViewStore::persisted`] grows.
    pub fn changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }
}

/// Where the rows of each of so many shards are: together they take what those of one would.
fn shared_by(rows: RowStore, shards: usize) -> RowStore {
    let part = |whole: u64| whole / shards as u64;
    match rows {
        // Nobody waits for a view's checkpoint, but many for what it shows.
        RowStore::Apart(options) => RowStore::Apart(LsmOptions {
            steps_back: true,
            cache_bytes: part(options.cache_bytes),
            memtable_bytes: part(options.memtable_bytes),
            journal_bytes: part(options.journal_bytes),
        }),
        RowStore::Beside => RowStore::Beside,
    }
}
