//! The view's disk: rows and cursors, in one redb file or in a directory beside it, each set of them written in one transaction; and
//! the number of starts, in the file.

use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{SystemTime, UNIX_EPOCH};
use tidemark_consensus::local::{
    CheckpointError, CheckpointPart, Identity, LocalLog, LocalLogOptions, LogEvent, LsmOptions, OpenError,
    PersistError, Row, RowStore, RowsNow, SubmitError,
};
use tidemark_proto::aggregator::is_of_image;
use tokio::sync::{Notify, watch};

const ROWS: &str = "rows";
/// Starts of this aggregator, counted: the epoch of its versions.
const META: &str = "meta";
const EPOCH: &[u8] = b"epoch";
/// The file inside a data directory.
pub const VIEW_FILE: &str = "view.redb";

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

/// A view's durable rows as they are at one moment.
pub struct ViewRows(RowsNow);

impl ViewRows {
    /// Calls `visit(key, value)` for each row that belongs into an image, in the order of keys, until it wants no more.
    pub fn scan(&self, mut visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<(), PersistError> {
        self.0.scan(ROWS, |key, value| !is_of_image(key) || visit(key, value))
    }
}

/// Founds the file of a view that begins with these rows. There must be none.
pub fn found(
    path: &Path,
    cluster: &str,
    dc_name: &str,
    rows: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
) -> Result<(), ViewStoreError> {
    let identity = Identity { cluster: cluster.to_owned(), owner: format!("{dc_name}/view") };
    let (done, written) = std::sync::mpsc::sync_channel(1);
    let on_event = move |event| drop(done.send(event));
    let (log, _) = LocalLog::open(path, LocalLogOptions::new(identity), on_event)?;
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

/// The file of a view.
pub struct ViewStore {
    failure: StoreFailure,
    log: LocalLog,
    persisted: Arc<AtomicU64>,
    changed: Arc<Notify>,
}

impl ViewStore {
    /// Opens the file, counts this start and returns its epoch. The epoch is durable then, so that nothing is said under a number that
    /// another start may have as well.
    pub fn open(dir: &Path, cluster: &str, dc_name: &str, rows: RowStore) -> Result<(ViewStore, u64), ViewStoreError> {
        let identity = Identity { cluster: cluster.to_owned(), owner: format!("{dc_name}/view") };
        let (persisted, changed) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let (fail, failure) = watch::channel(None);
        let (count, notify) = (persisted.clone(), changed.clone());
        let (written, first) = sync_channel(1);
        let on_event = move |event| match event {
            LogEvent::Checkpointed { .. } => {
                count.fetch_add(1, Ordering::Release);
                notify.notify_one();
            }
            LogEvent::Kept => drop(written.try_send(Ok(()))),
            LogEvent::Durable { .. } => {}
            LogEvent::Failed(error) => {
                drop(written.try_send(Err(error.to_string())));
                drop(fail.send_replace(Some(error.to_string())));
            }
        };
        // Nobody waits for a view's checkpoint, but many for what it shows.
        let rows = match rows {
            RowStore::Apart(options) => RowStore::Apart(LsmOptions { steps_back: true, ..options }),
            RowStore::Beside => RowStore::Beside,
        };
        let options = LocalLogOptions { rows, kept: &[META], ..LocalLogOptions::new(identity) };
        let (log, _) = LocalLog::open(dir.join(VIEW_FILE).as_path(), options, on_event)?;
        let store = ViewStore { failure: StoreFailure(failure), log, persisted, changed };
        let epoch = store.next_epoch()?;
        first.recv().unwrap_or_else(|gone| Err(gone.to_string())).map_err(ViewStoreError::Start)?;
        Ok((store, epoch))
    }

    /// Calls `visit(key, value)` for each durable row, in the order of keys, until it wants no more.
    pub fn scan(&self, visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<(), PersistError> {
        self.log.rows()?.scan(ROWS, visit)
    }

    fn next_epoch(&self) -> Result<u64, ViewStoreError> {
        let mut last = 0u64;
        self.log.scan_kept(META, |key, value| {
            if key == EPOCH {
                last = value.try_into().map_or(0, u64::from_be_bytes);
            }
        })?;
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // Larger than in every earlier life, also when the disk of that life is lost.
        let epoch = seconds.max(last + 1);
        let value = Bytes::copy_from_slice(&epoch.to_be_bytes());
        let row = Row { table: META, key: Bytes::from_static(EPOCH), value: Some(value) };
        self.log.keep(vec![row])?;
        Ok(epoch)
    }

    /// Writes rows in one transaction; [`ViewStore::persisted`] counts when they are durable.
    pub fn persist(&self, rows: Rows) {
        let row = |(key, value): (Vec<u8>, Vec<u8>)| Row { table: ROWS, key: key.into(), value: Some(value.into()) };
        self.write(rows.into_iter().map(row).collect());
    }

    fn write(&self, rows: Vec<Row>) {
        if let Err(error) = self.log.checkpoint(CheckpointPart { applied: 0, last: true, rows }) {
            tracing::error!(%error, "the view is not persisted");
        }
    }

    /// Sets of rows that are durable since the start.
    pub fn persisted(&self) -> u64 {
        self.persisted.load(Ordering::Acquire)
    }

    /// The durable rows as they are now.
    pub fn rows_now(&self) -> Result<ViewRows, PersistError> {
        Ok(ViewRows(self.log.rows()?))
    }

    /// Follows whether the file has failed.
    pub fn failure(&self) -> StoreFailure {
        self.failure.clone()
    }

    /// Notified when [`ViewStore::persisted`] grows.
    pub fn changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }
}
