//! The node's disk: opens the group's log, brings the core back to where it was, and persists what the core says.

mod recovery;

use bytes::Bytes;
use recovery::Disk;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tidemark_consensus::local::{
    Identity, LocalLog, LocalLogOptions, LogEvent, OpenError, PersistError, Recovered, Row, RowStore, RowsReader,
    SubmitError,
};
use tidemark_consensus::replica;
use tidemark_proto::group::{Budget, Row as GroupRow, Shelf, is_shelved};
use tidemark_proto::ids::{DcId, GroupId, LogIndex};
use tidemark_proto::node::{NodeConfig, NodeCore, RecoverError};
use tidemark_proto::shelf::SHELVED_AFTER_S;
use tokio::sync::Notify;

/// The table of the core's checkpoint rows.
pub(crate) const ROWS: &str = "rows";
/// The table of what the shell itself keeps.
const META: &str = "meta";
const INCARNATION: &[u8] = b"incarnation";
/// The log's file inside a data directory.
pub const LOG_FILE: &str = "group.redb";

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("data directory {path}: {source}")]
    Directory { path: String, source: std::io::Error },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Persist(#[from] PersistError),
    #[error(transparent)]
    Submit(#[from] SubmitError),
    #[error("{path}: {source}")]
    Recover { path: String, source: RecoverError },
    #[error("{path}: the group's incarnation is missing or malformed")]
    Incarnation { path: String },
    #[error("{path}: {source}")]
    Replica { path: String, source: Box<tidemark_consensus::raft::StartError> },
    #[error("{path} is there: this directory was founded with other `replicas` in the layout: change them back")]
    OtherReplicas { path: String },
    #[error(
        "node {node} of {dc} was taken away (`gone` in the layout) and holds nothing: it is not to be started again"
    )]
    TakenAway { node: u16, dc: String },
    #[error(
        "node {node} of {dc} is taken away by the layout, and no group's log is in {path}, though no group has let it go there: look \
         whether its disk is mounted; if it is and is empty, the node is not to be started again"
    )]
    HoldsNothing { node: u16, dc: String, path: String },
    #[error("{path} cannot be set aside: {max} files of its name are there already")]
    SetAside { path: String, max: u32 },
}

/// The reports of the log's writer thread; read by the host's task.
#[derive(Default)]
pub struct Progress {
    durable: AtomicU64,
    checkpointed: AtomicU64,
    failed: Mutex<Option<PersistError>>,
    pub changed: Notify,
    seen_failure: AtomicBool,
}

impl Progress {
    fn on_event(&self, event: LogEvent) {
        match event {
            LogEvent::Durable { upto } => self.durable.store(upto, Ordering::Release),
            LogEvent::Checkpointed { applied } => self.checkpointed.store(applied, Ordering::Release),
            LogEvent::Kept => {}
            LogEvent::Failed(error) => {
                *self.failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(error);
                self.seen_failure.store(true, Ordering::Release);
            }
        }
        self.changed.notify_one();
    }

    /// Everything up to here is durable.
    pub fn durable(&self) -> LogIndex {
        LogIndex(self.durable.load(Ordering::Acquire))
    }

    /// The applied index of the last checkpoint that is durable as a whole.
    pub fn checkpointed(&self) -> u64 {
        self.checkpointed.load(Ordering::Acquire)
    }

    /// Why the log has stopped, if it has.
    pub fn failure(&self) -> Option<String> {
        if !self.seen_failure.load(Ordering::Acquire) {
            return None;
        }
        let failed = self.failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        failed.as_ref().map(ToString::to_string)
    }
}

/// An opened data directory.
pub struct Storage {
    pub log: LocalLog,
    pub progress: Arc<Progress>,
}

impl Storage {
    /// How much memory the buckets of its group may take; the others are read here.
    pub fn budget(&self, bytes_max: usize) -> Budget {
        GroupShelf::Alone(self.log.reader()).budget(bytes_max)
    }
}

/// Reads buckets that left memory. While it is there, the files stay open.
enum GroupShelf {
    Alone(RowsReader),
    Shared(replica::RowsReader),
}

impl GroupShelf {
    fn budget(self, bytes_max: usize) -> Budget {
        Budget { bytes_max, after_s: SHELVED_AFTER_S, shelf: Arc::new(self) }
    }
}

impl std::fmt::Debug for GroupShelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupShelf").finish_non_exhaustive()
    }
}

impl Shelf for GroupShelf {
    fn read(&self, key: &[u8]) -> Option<Vec<u8>> {
        let value = match self {
            GroupShelf::Alone(rows) => rows.now().and_then(|rows| rows.get(ROWS, key)),
            GroupShelf::Shared(rows) => rows.get(ROWS, key),
        };
        match value {
            Ok(value) => value,
            Err(error) => {
                // Answers without these rows would be wrong, and a start finds all acknowledged increments.
                tracing::error!(%error, "rows of the group cannot be read: this process ends");
                std::process::abort()
            }
        }
    }

    fn is_damaged(&self, key: &[u8], why: &str) -> ! {
        tracing::error!(?key, why, "rows of the group are damaged: this process ends");
        std::process::abort()
    }
}

/// The owner of the data directory, and the behaviour of its disk.
pub struct StorageOptions<'a> {
    pub dir: &'a Path,
    pub cluster: &'a str,
    pub dc_name: &'a str,
    pub dc: DcId,
    pub group: u16,
    pub flush_delay: Duration,
    /// Of a group on this node alone.
    pub rows: RowStore,
}

/// The file of a group's log on several nodes.
pub fn shared_path(options: &StorageOptions<'_>) -> Result<PathBuf, StartError> {
    make_dir(options.dir)?;
    must_not_be_there(options.dir.join(LOG_FILE))?;
    Ok(shared_name(options))
}

fn shared_name(options: &StorageOptions<'_>) -> PathBuf {
    options.dir.join(format!("group-{}.redb", options.group))
}

/// The groups below `groups` that have a log on several nodes with a file in the directory.
pub fn shared_groups(dir: &Path, groups: u16) -> Result<Vec<u16>, StartError> {
    let mut held = Vec::new();
    for group in 0..groups {
        if is_there(&dir.join(format!("group-{group}.redb")))? {
            held.push(group);
        }
    }
    Ok(held)
}

/// Whether a path is there; that it cannot be told is no answer.
fn is_there(path: &Path) -> Result<bool, StartError> {
    path.try_exists().map_err(|source| StartError::Directory { path: path.display().to_string(), source })
}

/// In a directory from which a group was let go: an empty directory says nothing, as that of a disk that is not mounted.
const LEFT_FILE: &str = "left";

/// Whether a group was let go from the directory.
pub fn has_left(dir: &Path) -> Result<bool, StartError> {
    is_there(&dir.join(LEFT_FILE))
}

/// Gives the file of a group that has gone on without this member another name, with the member's number; which.
pub fn set_left_aside(options: &StorageOptions<'_>, member: u64) -> Result<PathBuf, StartError> {
    let path = shared_name(options);
    let marker = options.dir.join(LEFT_FILE);
    let marked = std::fs::write(&marker, b"").and_then(|()| std::fs::File::open(&marker)?.sync_all());
    marked.map_err(|source| StartError::Directory { path: marker.display().to_string(), source })?;
    let aside = free_name(&path, &format!("redb.left-{member}"))?;
    rename(options.dir, &path, &aside)?;
    Ok(aside)
}

fn rename(dir: &Path, path: &Path, aside: &Path) -> Result<(), StartError> {
    let renamed = std::fs::rename(path, aside).and_then(|()| std::fs::File::open(dir)?.sync_all());
    renamed.map_err(|source| StartError::Directory { path: path.display().to_string(), source })
}

/// Files of one lost incarnation, or of one member, that are kept; a further one stays in its place, and the node does not start.
const SET_ASIDE_MAX: u32 = 8;

/// Gives the file of an incarnation that was declared lost another name; which.
pub fn set_aside(options: &StorageOptions<'_>, incarnation: u32) -> Result<PathBuf, StartError> {
    let shared = shared_name(options);
    let path = if shared.exists() { shared } else { options.dir.join(LOG_FILE) };
    let aside = free_name(&path, &format!("redb.lost-{incarnation}"))?;
    rename(options.dir, &path, &aside)?;
    Ok(aside)
}

/// A name with this extension that is free: a copy that an operator put back is kept beside the first.
fn free_name(path: &Path, extension: &str) -> Result<PathBuf, StartError> {
    for copy in 0..SET_ASIDE_MAX {
        let aside = path.with_extension(format!("{extension}{}", ".again".repeat(copy as usize)));
        if !is_there(&aside)? {
            return Ok(aside);
        }
    }
    Err(StartError::SetAside { path: path.display().to_string(), max: SET_ASIDE_MAX })
}

/// Why rows of a log on several nodes make no core.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    #[error(transparent)]
    Persist(#[from] PersistError),
    #[error(transparent)]
    Recover(#[from] RecoverError),
}

/// The core of a group on several nodes, as the rows of a checkpoint say. `buckets_bytes_max`: memory that its buckets may take.
pub fn replica_core(
    config: NodeConfig,
    reader: replica::RowsReader,
    buckets_bytes_max: usize,
) -> Result<NodeCore, RowsError> {
    let mut rows: Vec<GroupRow> = Vec::new();
    reader.scan(ROWS, |key, value| {
        // Those are read by their keys when a caller wants them, and stand behind all others.
        let wanted = !is_shelved(key);
        if wanted {
            rows.push((key.to_vec(), value.to_vec()));
        }
        wanted
    })?;
    let mut core = NodeCore::replica(config, rows)?;
    core.keep_within(GroupShelf::Shared(reader).budget(buckets_bytes_max));
    Ok(core)
}

fn make_dir(dir: &Path) -> Result<(), StartError> {
    std::fs::create_dir_all(dir).map_err(|source| StartError::Directory { path: dir.display().to_string(), source })
}

fn must_not_be_there(path: PathBuf) -> Result<(), StartError> {
    if path.exists() { Err(StartError::OtherReplicas { path: path.display().to_string() }) } else { Ok(()) }
}

/// Opens the directory (or founds it, with a new incarnation) and recovers the core from it.
pub fn open(
    options: &StorageOptions<'_>,
    config: impl FnOnce(GroupId) -> NodeConfig,
    nonce: u64,
) -> Result<(Storage, NodeCore), StartError> {
    let begun = Instant::now();
    make_dir(options.dir)?;
    must_not_be_there(shared_name(options))?;
    let path = options.dir.join(LOG_FILE);
    let progress = Arc::new(Progress::default());
    let reporter = progress.clone();
    let owner = format!("{}/{}", options.dc_name, options.group);
    let identity = Identity { cluster: options.cluster.to_owned(), owner };
    let StorageOptions { flush_delay, rows, .. } = *options;
    let log_options = LocalLogOptions { flush_delay, rows, kept: &[META], ..LocalLogOptions::new(identity) };
    let (log, recovered) = LocalLog::open(path.as_path(), log_options, move |event| reporter.on_event(event))?;
    let group = GroupId { dc: options.dc, group: options.group, incarnation: incarnation(&log, &recovered, &path)? };
    let opened_ms = begun.elapsed().as_millis() as u64;
    let disk = Disk { log: &log, recovered: &recovered, path: &path, opened_ms };
    let core = disk.recover(config(group), nonce)?;
    progress.durable.store(recovered.last, Ordering::Release);
    Ok((Storage { log, progress }, core))
}

/// The incarnation that this directory was founded with; minted from the wall clock for an empty one, so that a directory
/// that replaces a lost one is never taken for it.
fn incarnation(log: &LocalLog, recovered: &Recovered, path: &Path) -> Result<u32, StartError> {
    let mut found = None;
    log.scan_kept(META, |key, value| {
        if key == INCARNATION {
            found = value.try_into().ok().map(u32::from_be_bytes);
        }
    })?;
    match found {
        Some(incarnation) => Ok(incarnation),
        None if recovered.last == 0 && recovered.applied == 0 => Ok(found_directory(log)?),
        None => Err(StartError::Incarnation { path: path.display().to_string() }),
    }
}

fn found_directory(log: &LocalLog) -> Result<u32, SubmitError> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    let incarnation = u32::try_from(seconds).unwrap_or(u32::MAX);
    let value = Bytes::copy_from_slice(&incarnation.to_be_bytes());
    let row = Row { table: META, key: Bytes::from_static(INCARNATION), value: Some(value) };
    // The first log entry is behind it in the writer's order, so nothing can be durable without it.
    log.keep(vec![row])?;
    Ok(incarnation)
}

/// The core's checkpoint rows as the log's: an empty value deletes.
pub fn rows(rows: Vec<GroupRow>) -> Vec<Row> {
    let value = |value: Vec<u8>| (!value.is_empty()).then(|| value.into());
    let row = |(key, content): (Vec<u8>, Vec<u8>)| Row { table: ROWS, key: key.into(), value: value(content) };
    rows.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_left_takes_the_place_of_no_other_and_the_directory_says_that_one_was() {
        let dir = tempfile::tempdir().unwrap();
        let cluster = "demo";
        let dc_name = "europe";
        let flush_delay = Duration::ZERO;
        let options = StorageOptions {
            dir: dir.path(),
            cluster,
            dc_name,
            dc: DcId(0),
            group: 2,
            flush_delay,
            rows: RowStore::Beside,
        };
        assert!(!has_left(dir.path()).unwrap(), "a disk that is not mounted");
        let mut kept = Vec::new();
        for (content, member) in [("first", 7), ("put back", 7), ("another disk", 8)] {
            std::fs::write(shared_name(&options), content).unwrap();
            assert_eq!(shared_groups(dir.path(), 4).unwrap(), [2]);
            kept.push((set_left_aside(&options, member).unwrap(), content));
        }
        for (path, content) in &kept {
            assert_eq!(&std::fs::read_to_string(path).unwrap(), content);
        }
        assert!(shared_groups(dir.path(), 4).unwrap().is_empty() && has_left(dir.path()).unwrap());
    }

    #[test]
    fn an_empty_value_deletes_its_row() {
        let rows = rows(vec![(vec![1], vec![2]), (vec![3], Vec::new())]);
        let values: Vec<_> = rows.into_iter().map(|row| row.value).collect();
        assert_eq!(values, [Some(vec![2].into()), None]);
    }
}
