//! One receiver's file: the rows of its queue, each set written in one transaction. It is there so that a restart neither loses nor repeats
//! acknowledged deliveries.

use super::queue::{RowChange, Rows};
use bytes::Bytes;
use std::path::{Path, PathBuf};
use tidemark_consensus::local::{
    CheckpointError, CheckpointPart, Identity, LocalLog, LocalLogOptions, LogEvent, OpenError, PersistError, Row,
    Source,
};
use tokio::sync::watch;

/// The folder of these files in a data directory.
pub const WEBHOOKS_DIR: &str = "webhooks";
const ROWS: &str = "deliveries";
/// Memory for pages of the file; there are at most some thousand rows, and they are read once.
const CACHE_BYTES: usize = 1 << 20;

/// Why a receiver's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot make {}: {source}", path.display())]
    Directory { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Persist(#[from] PersistError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("the file is closed")]
    Closed,
}

/// The result of the written sets.
#[derive(Clone, Debug, Default)]
struct Written {
    sets: u64,
    failed: Option<PersistError>,
}

/// A receiver's file.
pub struct Store {
    log: LocalLog,
    written: watch::Receiver<Written>,
}

impl Store {
    /// Opens or makes the file of a webhook of this data centre.
    pub fn open(dir: &Path, cluster: &str, dc: &str, webhook: &str) -> Result<Store, StoreError> {
        let dir = dir.join(WEBHOOKS_DIR);
        std::fs::create_dir_all(&dir).map_err(|source| StoreError::Directory { path: dir.clone(), source })?;
        Store::on(dir.join(format!("{webhook}.redb")).as_path(), cluster, dc, webhook)
    }

    /// [`Store::open`] on any disk.
    pub fn on(disk: impl Into<Source>, cluster: &str, dc: &str, webhook: &str) -> Result<Store, StoreError> {
        let identity = Identity { cluster: cluster.to_owned(), owner: format!("{dc}/webhook/{webhook}") };
        let (tell, written) = watch::channel(Written::default());
        let on_event = move |event| {
            tell.send_modify(|written| match event {
                LogEvent::Checkpointed { .. } => written.sets += 1,
                LogEvent::Kept => {}
                LogEvent::Durable { .. } => {}
                LogEvent::Failed(error) => written.failed = Some(error),
            });
        };
        let options = LocalLogOptions { cache_bytes: CACHE_BYTES, ..LocalLogOptions::new(identity) };
        let (log, _) = LocalLog::open(disk, options, on_event)?;
        Ok(Store { log, written })
    }

    /// All rows.
    pub fn rows(&self) -> Result<Rows, StoreError> {
        let mut rows = Vec::new();
        self.log.scan(ROWS, |key, value| rows.push((key.to_vec(), value.to_vec())))?;
        Ok(rows)
    }

    /// Returns once the rows are durable, all of them. The error is for good.
    pub async fn persist(&mut self, rows: Vec<RowChange>) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let row = |(key, value): RowChange| Row { table: ROWS, key: key.into(), value: value.map(Bytes::from) };
        // Sets are written one at a time, so the next event is about this one.
        let before = self.written.borrow_and_update().sets;
        let part = CheckpointPart { applied: 0, last: true, rows: rows.into_iter().map(row).collect() };
        self.log.checkpoint(part)?;
        let done = self.written.wait_for(|written| written.sets > before || written.failed.is_some()).await;
        let written = done.map_err(|_| StoreError::Closed)?;
        written.failed.clone().map_or(Ok(()), |failed| Err(failed.into()))
    }
}
