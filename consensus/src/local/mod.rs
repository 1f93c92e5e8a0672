//! The log of a data centre with one node: durable means on this node's disk.
//!
//! One redb file holds the log, and the values kept beside it ([`LocalLog::keep`]). The rows of checkpoints are in the same file, or in a
//! directory of their own ([`RowStore`]); in either, a checkpoint and the log index it stands for change together. A writer thread merges
//! all waiting requests into one transaction (the group commit); rows in a directory have a writer of their own, which never runs ahead of
//! the log, as the log is never cut ahead of it. Indices start at 1 and have no gaps. The log never waits on its own account: pacing is the
//! caller's business.

mod apart;
mod store;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fs, io};

use bytes::Bytes;
use redb::{Database, ReadTransaction, ReadableDatabase};

use crate::storage::lsm::LsmNow;
pub use crate::storage::lsm::{CACHE_BYTES_MIN, JOURNAL_BYTES_MIN, LsmOptions, MEMTABLE_BYTES_MIN};
pub use crate::storage::scratch::Scratch;
pub use crate::storage::{CommitStats, Execution, Identity, OpenError, PersistError, Row, Source, SubmitError};
use crate::storage::{Committer, CommitterOptions, Schema, open, rows};
use apart::{Apart, ApartWriter};
use store::{LOG, LocalStore, Op, Positions, ROWS, Reached, Sink};

const FORMAT: &str = "tidemark-local-2";

/// Where the rows of checkpoints are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowStore {
    /// In the log's file: for rows that are few, and on any [`Source`].
    #[default]
    Beside,
    /// In a directory of its own beside the log's file, which names it. Rows that are in the file are moved there when it is opened; they
    /// do not come back.
    Apart(LsmOptions),
}

/// Settings of a [`LocalLog`].
#[derive(Clone, Debug)]
pub struct LocalLogOptions {
    /// The owner of this log; a file of another cluster or owner is refused.
    pub identity: Identity,
    /// Slept after every sync of the file, to model slower disks.
    pub flush_delay: Duration,
    /// Requests that may wait for the writer; past it they are refused as `Overloaded`.
    pub requests_max: usize,
    /// A transaction takes no further request once it carries this many bytes.
    pub commit_bytes_max: usize,
    /// Memory that redb may use as page cache.
    pub cache_bytes: usize,
    /// The executor of transactions.
    pub execution: Execution,
    /// Where the rows of checkpoints are.
    pub rows: RowStore,
    /// Tables that are written by [`LocalLog::keep`] only: they stay in the log's file wherever the rows are.
    pub kept: &'static [&'static str],
}

impl LocalLogOptions {
    /// Defaults: no delay, 1,024 requests, 8 MiB per transaction, 64 MiB of cache, a thread, rows in the file.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            flush_delay: Duration::ZERO,
            requests_max: 1024,
            commit_bytes_max: 8 << 20,
            cache_bytes: 64 << 20,
            execution: Execution::Thread,
            rows: RowStore::Beside,
            kept: &[],
        }
    }
}

/// The reports of the writers, each in the order of its requests, one at a time. The receiver must not block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// All entries up to and including this index are durable.
    Durable {
        /// Index of the last durable entry.
        upto: u64,
    },
    /// The checkpoint of this applied index is durable as a whole; the log may be cut behind it.
    Checkpointed {
        /// The applied index that rows now stand for.
        applied: u64,
    },
    /// Rows that were handed in to be kept are durable.
    Kept,
    /// A transaction failed: nothing of it is durable and the log has stopped. Nothing is reported after it.
    Failed(PersistError),
}

/// Rows to persist in one transaction.
///
/// A checkpoint too big for one transaction goes in several parts; only the last one moves the applied index. After a crash between parts,
/// entries from the old applied index on are replayed over newer rows. Split a checkpoint only if that is idempotent (as with rows of
/// cumulative values that are merged by maximum).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointPart {
    /// Index of the last entry with effects in the whole checkpoint.
    pub applied: u64,
    /// Whether this part completes the checkpoint.
    pub last: bool,
    /// Rows in any order; within one part the later of two equal keys wins.
    pub rows: Vec<Row>,
}

/// Why a checkpoint was not taken. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// It claims entries that were never appended.
    #[error("checkpoint of index {applied} is beyond the last entry {last}")]
    BeyondLog {
        /// The claimed index.
        applied: u64,
        /// Last appended index.
        last: u64,
    },
    /// It is older than the previous one.
    #[error("checkpoint of index {applied} is older than that of {previous}")]
    Backwards {
        /// The claimed index.
        applied: u64,
        /// Applied index of the previous checkpoint.
        previous: u64,
    },
    /// The log refused the request.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

/// Why the log was not cut. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TruncateError {
    /// Entries would go that no checkpoint contains.
    #[error("cannot cut the log before {before}: the last checkpoint stands at {applied}")]
    Unprotected {
        /// First index to keep.
        before: u64,
        /// Applied index of the last checkpoint handed in.
        applied: u64,
    },
    /// The log refused the request.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

/// The content of a log when it was opened.
pub struct Recovered {
    /// Index that the rows stand for; 0 before the first checkpoint.
    pub applied: u64,
    /// First index that is still there, or the next to be given out.
    pub first: u64,
    /// Last index, or `first - 1` when the log is empty.
    pub last: u64,
    db: Arc<Database>,
}

impl Recovered {
    /// Entries after `index`, in order, without gaps.
    pub fn entries_after(&self, index: u64) -> Result<Entries, PersistError> {
        Entries::open(&self.db, index.saturating_add(1), self.last)
    }
}

/// An iterator over entries as (index, command); it keeps its snapshot of the file while it lives.
pub struct Entries(redb::Range<'static, u64, &'static [u8]>);

impl Entries {
    fn open(db: &Database, first: u64, last: u64) -> Result<Self, PersistError> {
        let table = db.begin_read()?.open_table(LOG)?;
        let end = last.max(first.saturating_sub(1));
        Ok(Self(table.range(first..end.saturating_add(1))?))
    }
}

impl Iterator for Entries {
    type Item = Result<(u64, Bytes), PersistError>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.0.next()?;
        Some(row.map_err(PersistError::from).map(|(key, value)| (key.value(), Bytes::copy_from_slice(value.value()))))
    }
}

/// The rows of one moment; see [`LocalLog::rows`]. It may be read on any thread.
pub struct RowsNow(Now);

enum Now {
    Beside(ReadTransaction),
    Apart(LsmNow),
}

impl RowsNow {
    /// Calls `visit(key, value)` for each row of `table`, in key order, until it says that it wants no more; a missing table has no
    /// rows.
    pub fn scan(&self, table: &str, visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<(), PersistError> {
        match &self.0 {
            Now::Beside(read) => rows::scan_while(read, &format!("{ROWS}{table}"), visit),
            Now::Apart(now) => now.scan(table, visit),
        }
    }

    /// The value of one row; a missing table has none.
    pub fn get(&self, table: &str, key: &[u8]) -> Result<Option<Vec<u8>>, PersistError> {
        match &self.0 {
            Now::Beside(read) => rows::get(read, &format!("{ROWS}{table}"), key),
            Now::Apart(now) => now.get(table, key),
        }
    }

    /// As [`RowsNow::scan`], of all rows with keys that begin with these bytes.
    pub fn scan_prefix(&self, table: &str, prefix: &[u8], visit: impl FnMut(&[u8], &[u8])) -> Result<(), PersistError> {
        match &self.0 {
            Now::Beside(read) => rows::scan_prefix(read, &format!("{ROWS}{table}"), prefix, visit),
            Now::Apart(now) => now.scan_prefix(table, prefix, visit),
        }
    }
}

/// Reads durable rows, wherever it is held; while it is there, the files stay open.
#[derive(Clone)]
pub struct RowsReader {
    apart: Option<Arc<Apart>>,
    db: Arc<Database>,
}

impl RowsReader {
    /// All durable rows as they are now, as [`LocalLog::rows`] says.
    pub fn now(&self) -> Result<RowsNow, PersistError> {
        Ok(RowsNow(match &self.apart {
            Some(apart) => Now::Apart(apart.now()),
            None => Now::Beside(self.db.begin_read()?),
        }))
    }
}

/// A single-member log. See the [module](self) for its contract.
///
/// Dropping it persists what was accepted and joins the writer; the file is released once its [`Recovered`] and
/// every [`Entries`] are gone too.
pub struct LocalLog {
    positions: Mutex<Positions>,
    // Dropped before `apart`, because the writer of `apart` waits for it.
    committer: Committer<LocalStore>,
    apart: Option<(Committer<ApartWriter>, Arc<Apart>)>,
    db: Arc<Database>,
}

/// Deletes a log that is closed: the directory of its rows, if they are in one, and its file. Nothing is done where there is none.
pub fn remove(path: &Path) -> io::Result<()> {
    let directories = apart::directories_of(path)?;
    directories.iter().try_for_each(fs::remove_dir_all)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

impl LocalLog {
    /// Opens or creates the log. `on_event` is called on the writer's thread (on the caller's with
    /// [`Execution::Inline`], while the log is locked: it must not call back into it).
    pub fn open(
        source: impl Into<Source>,
        options: LocalLogOptions,
        on_event: impl FnMut(LogEvent) + Send + 'static,
    ) -> Result<(Self, Recovered), OpenError> {
        let source = source.into();
        let name = source.to_string();
        let schema = Schema {
            format: FORMAT,
            identity: &options.identity,
            cache_bytes: options.cache_bytes,
            flush_delay: options.flush_delay,
            create_tables: store::create_tables,
        };
        let file = apart::file_of(&source);
        let db = Arc::new(open(source, &schema)?);
        let apart = apart::open_or_move(&db, &file, &options)?.map(Arc::new);
        let applied = apart.as_ref().map(|apart| apart.applied()).transpose();
        let positions = applied.and_then(|applied| store::read_positions(&db, applied));
        let positions = positions.map_err(|error| OpenError::from_persist(&name, error))?;
        let recovered =
            Recovered { applied: positions.applied, first: positions.first, last: positions.last, db: db.clone() };
        let sink = Sink::new(Box::new(on_event));
        let reached = apart.is_some().then(|| Arc::new(Reached::new(&positions)));
        let store = LocalStore::new(db.clone(), positions.first, sink.clone(), reached.clone());
        let committer = Committer::new(store, committer_options(&options));
        let apart = apart.zip(reached).map(|(apart, reached)| {
            let writer = ApartWriter::new(apart.clone(), sink, reached);
            (Committer::new(writer, committer_options(&options)), apart)
        });
        Ok((Self { positions: Mutex::new(positions), committer, apart, db }, recovered))
    }

    /// Appends commands and returns the index of the last one. They are durable when `Durable` says so.
    ///
    /// Never waits. With nothing to append it returns the last index.
    pub fn append(&self, commands: Vec<Bytes>) -> Result<u64, SubmitError> {
        let mut positions = self.lock();
        if commands.is_empty() {
            return Ok(positions.last);
        }
        self.check_rows()?;
        let first = positions.last + 1;
        let last = positions.last + commands.len() as u64;
        self.committer.try_submit(Op::Append { first, commands })?;
        positions.last = last;
        Ok(last)
    }

    /// Hands in one part of a checkpoint; `Checkpointed` says when the whole of it is durable. Never waits.
    pub fn checkpoint(&self, part: CheckpointPart) -> Result<(), CheckpointError> {
        let mut positions = self.lock();
        let applied = part.applied;
        let last = part.last;
        if applied > positions.last {
            return Err(CheckpointError::BeyondLog { applied, last: positions.last });
        }
        if applied < positions.applied {
            return Err(CheckpointError::Backwards { applied, previous: positions.applied });
        }
        match &self.apart {
            Some((writer, _)) => writer.try_submit(part)?,
            None => self.committer.try_submit(Op::Checkpoint(part))?,
        }
        if last {
            positions.applied = applied;
        }
        Ok(())
    }

    /// Hands in rows that belong to the log rather than to a checkpoint: they are durable before every entry that is appended after.
    /// Never waits; `Kept` says when they are.
    pub fn keep(&self, rows: Vec<Row>) -> Result<(), SubmitError> {
        let _in_order = self.lock();
        self.committer.try_submit(Op::Keep(rows))
    }

    /// Calls `visit(key, value)` for each row of a table that is [kept](Self::keep), in key order.
    pub fn scan_kept(&self, table: &str, visit: impl FnMut(&[u8], &[u8])) -> Result<(), PersistError> {
        rows::scan(&self.db.begin_read()?, &format!("{ROWS}{table}"), visit)
    }

    /// Removes entries below `before`, little by little with the transactions that follow. It may follow its checkpoint at once: entries
    /// are removed only once the checkpoint is durable. Entries that are not removed when the log is closed go with the next cut.
    pub fn truncate_before(&self, before: u64) -> Result<(), TruncateError> {
        let mut positions = self.lock();
        if before > positions.applied + 1 {
            return Err(TruncateError::Unprotected { before, applied: positions.applied });
        }
        if before > positions.first {
            self.committer.try_submit(Op::Truncate { before })?;
            positions.first = before;
        }
        Ok(())
    }

    /// Calls `visit(key, value)` for each durable row of `table`, in key order; a missing table has no rows.
    pub fn scan(&self, table: &str, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), PersistError> {
        self.rows()?.scan(table, |key, value| {
            visit(key, value);
            true
        })
    }

    /// All durable rows as they are now. Rows that are persisted later do not change them; while they are held, the file keeps replaced
    /// rows.
    pub fn rows(&self) -> Result<RowsNow, PersistError> {
        self.reader().now()
    }

    /// A reader of rows for other places than that of the log.
    pub fn reader(&self) -> RowsReader {
        RowsReader { apart: self.apart.as_ref().map(|(_, apart)| apart.clone()), db: self.db.clone() }
    }

    /// Bytes on the disk of rows that are in a directory of their own, holes in files included.
    pub fn row_bytes(&self) -> Result<Option<u64>, PersistError> {
        self.apart.as_ref().map(|(_, apart)| apart.disk_bytes()).transpose()
    }

    /// Merges all files of rows that are in a directory of their own, which is done little by little without being asked; takes long. For
    /// measurements.
    pub fn compact_rows(&self) -> Result<(), PersistError> {
        self.apart.as_ref().map_or(Ok(()), |(_, apart)| apart.compact())
    }

    /// Durable entries from `first` to `last` that are still in the log, in order.
    pub fn entries(&self, first: u64, last: u64) -> Result<Entries, PersistError> {
        Entries::open(&self.db, first, last)
    }

    /// Index of the last entry handed in; it may not be durable yet.
    pub fn last_index(&self) -> u64 {
        self.lock().last
    }

    /// Counters of the writer.
    pub fn stats(&self) -> &CommitStats {
        self.committer.stats()
    }

    /// Entries without rows that could follow them are of no use.
    fn check_rows(&self) -> Result<(), SubmitError> {
        let failure = self.apart.as_ref().and_then(|(writer, _)| writer.failure());
        failure.map_or(Ok(()), |error| Err(SubmitError::Poisoned(error)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Positions> {
        self.positions.lock().expect("a writer panicked")
    }
}

fn committer_options(options: &LocalLogOptions) -> CommitterOptions {
    CommitterOptions {
        execution: options.execution,
        requests_max: options.requests_max,
        commit_bytes_max: options.commit_bytes_max,
        gather: Duration::ZERO,
    }
}
