//! Raft's log and vote on redb: entries are readable at once, durable by group commit.
//!
//! All changes pass through one committer in order. A tail of recent entries stays in memory, at least every entry
//! that is not yet durable, so that replication never waits for the disk nor reads it.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{EntryPayload, RaftLogReader};
use redb::{Database, WriteTransaction};
use tokio::sync::oneshot;

use super::types::{Entry, LogId, SnapshotMeta, TypeConfig, Vote};
use super::{Config, tables};
use crate::storage::{Committer, CommitterOptions, OpenError, PersistError, Schema, Source, SubmitError};
use tables::{Op, Other, RaftTables};

/// Cloneable handle on the storage of one member; log, vote and snapshot share one file.
#[derive(Clone)]
pub struct LogStore(Arc<Inner>);

struct Inner {
    tail: Arc<Mutex<Tail>>,
    committer: Committer<RaftTables>,
    db: Arc<Database>,
    append_bytes_max: usize,
    recent_bytes_max: usize,
    replays: bool,
}

/// The owner of a file, and its other tables.
pub(crate) struct Layout {
    pub format: &'static str,
    /// Name of the member within the cluster.
    pub owner: String,
    pub create_tables: fn(&WriteTransaction) -> Result<(), PersistError>,
    /// Whether what is known to be committed is applied before the member starts.
    pub replays: bool,
}

/// The end of the log, known without the disk. `recent` ends at `last` and holds every entry above `durable`.
#[derive(Default)]
pub(super) struct Tail {
    pub vote: Option<Vote>,
    pub committed: Option<LogId>,
    pub purged: Option<LogId>,
    pub last: Option<LogId>,
    pub durable: u64,
    pub recent: VecDeque<Entry>,
    pub recent_bytes: usize,
}

impl LogStore {
    /// Opens or creates the storage of member `id`.
    pub fn open(source: impl Into<Source>, id: u64, config: &Config) -> Result<Self, OpenError> {
        let owner = format!("{}/{id}", config.group);
        let format = tables::FORMAT;
        let create_tables = tables::create_tables;
        Self::open_as(source.into(), &Layout { format, owner, create_tables, replays: true }, config)
    }

    /// Opens or creates a storage that holds more than a log.
    pub(crate) fn open_as(source: Source, layout: &Layout, config: &Config) -> Result<Self, OpenError> {
        let name = source.to_string();
        let identity = crate::storage::Identity { cluster: config.cluster.clone(), owner: layout.owner.clone() };
        let db = Arc::new(crate::storage::open(source, &schema(&identity, layout, config))?);
        let fail = |error| OpenError::from_persist(&name, error);
        let tail = Arc::new(Mutex::new(tables::read_tail(&db).map_err(fail)?));
        let first = tables::first_on_disk(&db).map_err(fail)?;
        let committer = Committer::new(RaftTables::new(db.clone(), tail.clone(), first), committer_options(config));
        let append_bytes_max = config.append_bytes_max;
        let recent_bytes_max = config.recent_bytes_max;
        let replays = layout.replays;
        Ok(Self(Arc::new(Inner { tail, committer, db, append_bytes_max, recent_bytes_max, replays })))
    }

    /// The file, to be read.
    pub(crate) fn db(&self) -> &Arc<Database> {
        &self.0.db
    }

    /// The vote as it is now.
    pub(crate) fn vote(&self) -> Option<Vote> {
        self.tail().vote
    }

    /// Why the writer has stopped, if it has.
    pub(crate) fn failure(&self) -> Option<PersistError> {
        self.0.committer.failure()
    }

    /// Hands over what else the file holds; refuses when the queue is full.
    pub(crate) fn try_put(&self, other: impl Other) -> Result<(), SubmitError> {
        self.0.committer.try_submit(Op::Other(Box::new(other)))
    }

    /// As [`LogStore::try_put`], and waits for room.
    pub(crate) async fn put(&self, other: impl Other) -> Result<(), io::Error> {
        self.submit(Op::Other(Box::new(other))).await
    }

    /// Counters of the writer.
    pub fn stats(&self) -> &crate::storage::CommitStats {
        self.0.committer.stats()
    }

    /// See [`Config::flush_gather`]; from the next write on.
    pub fn set_flush_gather(&self, gather: std::time::Duration) {
        self.0.committer.set_gather(gather);
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.0.tail.lock().expect("a writer panicked")
    }

    pub(super) async fn save_snapshot(&self, meta: &SnapshotMeta, data: Bytes) -> Result<(), io::Error> {
        let meta = tables::encode(meta)?;
        self.submit_and_wait(|done| Op::Snapshot { meta, data, done }).await
    }

    pub(super) fn read_snapshot_meta(&self) -> Result<Option<SnapshotMeta>, io::Error> {
        Ok(tables::read_snapshot_meta(&self.0.db)?)
    }

    pub(super) fn read_snapshot(&self) -> Result<Option<(SnapshotMeta, Bytes)>, io::Error> {
        Ok(tables::read_snapshot(&self.0.db)?)
    }

    async fn submit(&self, op: Op) -> Result<(), io::Error> {
        self.0.committer.submit(op).await.map_err(refused)
    }

    async fn submit_and_wait(&self, op: impl FnOnce(tables::Done) -> Op) -> Result<(), io::Error> {
        let (done, outcome) = oneshot::channel();
        self.submit(op(done)).await?;
        let outcome = outcome.await.map_err(|_| io::Error::other("the log has stopped"))?;
        Ok(outcome?)
    }

    /// Entries of `start..end`, as many as fit into `bytes_max`, but at least one if there is one.
    pub(crate) fn read(&self, start: u64, end: u64, bytes_max: usize) -> Result<Vec<Entry>, io::Error> {
        let (recent, end) = {
            let tail = self.tail();
            let start = start.max(next_index(&tail.purged));
            let recent_start = tail.recent_start();
            let recent = tail.recent_range(start.max(recent_start), end, bytes_max);
            if start >= recent_start || start >= end {
                return Ok(recent);
            }
            (recent, end.min(recent_start))
        };
        let mut entries = tables::read_entries(&self.0.db, start, end, bytes_max)?;
        let whole = entries.last().is_none_or(|entry| entry.index() + 1 == end);
        let used: usize = entries.iter().map(entry_bytes).sum();
        if whole && used < bytes_max {
            entries.extend(recent);
        }
        Ok(entries)
    }
}

impl Tail {
    fn next(&self) -> u64 {
        next_index(&self.last)
    }

    fn recent_start(&self) -> u64 {
        self.next() - self.recent.len() as u64
    }

    fn recent_range(&self, start: u64, end: u64, bytes_max: usize) -> Vec<Entry> {
        let first = self.recent_start();
        let mut bytes = 0;
        let from = start.saturating_sub(first) as usize;
        let until = end.saturating_sub(first).min(self.recent.len() as u64) as usize;
        let fits = |entry: &&Entry| {
            let fits = bytes < bytes_max;
            bytes += entry_bytes(entry);
            fits
        };
        self.recent.range(from.min(until)..until).take_while(fits).cloned().collect()
    }

    fn push(&mut self, entry: Entry) {
        self.last = Some(entry.log_id());
        self.recent_bytes += entry_bytes(&entry);
        self.recent.push_back(entry);
    }

    fn evict(&mut self, bytes_max: usize) {
        while self.recent_bytes > bytes_max {
            let Some(first) = self.recent.front().filter(|entry| entry.index() <= self.durable) else {
                break;
            };
            self.recent_bytes -= entry_bytes(first);
            self.recent.pop_front();
        }
    }

    fn truncate_after(&mut self, last: Option<LogId>) {
        if next_index(&last) >= self.next() {
            return;
        }
        let keep = next_index(&last).saturating_sub(self.recent_start()) as usize;
        self.recent.truncate(keep);
        self.recent_bytes = self.recent.iter().map(entry_bytes).sum();
        self.last = last;
        self.durable = self.durable.min(next_index(&last).saturating_sub(1));
    }

    fn purge(&mut self, upto: LogId) {
        while self.recent.front().is_some_and(|entry| entry.index() <= upto.index()) {
            let entry = self.recent.pop_front().expect("just seen");
            self.recent_bytes -= entry_bytes(&entry);
        }
        self.purged = self.purged.max(Some(upto));
        self.last = self.last.max(Some(upto));
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<Entry>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + Send,
    {
        let (start, end) = half_open(&range);
        self.read(start, end, usize::MAX)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.tail().vote)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        self.read(start, end, self.0.append_bytes_max)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let tail = self.tail();
        Ok(LogState { last_purged_log_id: tail.purged, last_log_id: tail.last })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let encoded = tables::encode(vote)?;
        self.submit_and_wait(|done| Op::Vote { vote: encoded, done }).await?;
        self.tail().vote = Some(*vote);
        Ok(())
    }

    /// Kept in memory and written along with the next transaction: it only shortens replay.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.tail().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.tail().committed.filter(|_| self.0.replays))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let mut rows = Vec::new();
        {
            let mut tail = self.tail();
            for entry in entries {
                rows.push((entry.index(), tables::encode(&entry)?));
                tail.push(entry);
            }
            tail.evict(self.0.recent_bytes_max);
        }
        self.submit(Op::Append { rows, callback }).await
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        self.tail().truncate_after(last);
        let from = next_index(&last);
        self.submit_and_wait(|done| Op::Truncate { from, done }).await
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        self.tail().purge(upto);
        self.submit(Op::Purge { upto }).await
    }
}

fn schema<'a>(identity: &'a crate::storage::Identity, layout: &Layout, config: &Config) -> Schema<'a> {
    Schema {
        format: layout.format,
        identity,
        cache_bytes: config.cache_bytes,
        flush_delay: config.flush_delay,
        create_tables: layout.create_tables,
    }
}

fn committer_options(config: &Config) -> CommitterOptions {
    CommitterOptions {
        execution: config.execution,
        requests_max: 1024,
        commit_bytes_max: 8 << 20,
        gather: config.flush_gather,
    }
}

fn refused(error: SubmitError) -> io::Error {
    match error {
        SubmitError::Poisoned(error) => error.into(),
        overloaded @ SubmitError::Overloaded { .. } => io::Error::other(overloaded),
    }
}

pub(crate) fn next_index(log_id: &Option<LogId>) -> u64 {
    log_id.map_or(0, |log_id| log_id.index() + 1)
}

fn entry_bytes(entry: &Entry) -> usize {
    const OVERHEAD_BYTES: usize = 64;
    match &entry.payload {
        EntryPayload::Normal(batch) => OVERHEAD_BYTES + batch.bytes(),
        EntryPayload::Blank | EntryPayload::Membership(_) => OVERHEAD_BYTES,
    }
}

fn half_open(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(index) => *index,
        Bound::Excluded(index) => index.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(index) => index.saturating_add(1),
        Bound::Excluded(index) => *index,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}
