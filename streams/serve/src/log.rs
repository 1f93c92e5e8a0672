//! The log of the intake: what was acknowledged and is in no blob yet.
//!
//! It is a log of `consensus::local`: one redb file with a writer that puts all waiting batches into one transaction. A batch is judged and
//! handed in under one lock; its request is answered once the entry is durable. Entries with committed rows are cut off, and their state
//! goes into rows of the same file.

use crate::settings::{LOG_ENTRIES_MAX, RECENT_BYTES_MAX};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemark_consensus::local::{
    CheckpointError, CheckpointPart, Identity, LocalLog, LocalLogOptions, LogEvent, OpenError, PersistError, Recovered,
    Row, RowsNow, SubmitError, TruncateError,
};
use tidemark_proto::hash::bytes_hash;
use tidemark_streams_core::owner::RowBatch;
use tidemark_streams_core::rebuild::SourceRows;
use tidemark_streams_core::source::ReadingId;
use tidemark_streams_core::time::Now;
use tidemark_streams_intake::body::Decoded;
use tidemark_streams_intake::entry::{Answer, Batch, BatchOf, DecodeError, Head};
use tidemark_streams_intake::event_ids::{IdBounds, IdSettings};
use tidemark_streams_intake::limits::ENTRY_BYTES_MAX;
use tidemark_streams_intake::producers::{ProducerError, Turn};
use tidemark_streams_intake::quota::{OverQuota, QuotaConfig, Quotas, Wanted};
use tidemark_streams_intake::refused::{ByCode, OfTenant};
use tidemark_streams_intake::state::{
    IDS, LATE, META, OutOfOrder, PRODUCERS, REFUSED, State, StateConfig, StateRow, Totals,
};
use tokio::sync::watch;

/// The file of the log.
pub const LOG_FILE: &str = "intake.redb";

/// Bytes of a part of a checkpoint.
const PART_BYTES_MAX: usize = 4 << 20;

/// Makes the seed of a directory's event ids of its random id.
const SEED: u64 = 0x6964_7320_6f66_2065;

/// Entries are read in one way only.
pub const READING: ReadingId = ReadingId(1);

/// Settings of the log.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// The id of its directory.
    pub directory: String,
    pub state: StateConfig,
    pub bytes_max: u64,
    pub quotas: QuotaConfig,
}

/// How far the log is on disk.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    pub durable: u64,
    pub failed: Option<PersistError>,
}

/// An open log.
pub struct IntakeLog {
    inner: Mutex<Inner>,
    log: LocalLog,
    progress: watch::Receiver<Progress>,
    bytes_max: u64,
    seed: u64,
}

struct Inner {
    state: State,
    quotas: Quotas,
    /// Entries that are not cut off.
    entries: VecDeque<Kept>,
    bytes: u64,
    recent: VecDeque<Entry>,
    recent_bytes: usize,
    /// The last entry with committed rows.
    applied: u64,
    /// Rows of a checkpoint that the log did not take yet.
    pending: Vec<Row>,
}

#[derive(Clone, Copy)]
struct Kept {
    index: u64,
    first_row: u64,
    end_row: u64,
    bytes: u64,
    accepted_at_ms: u64,
}

/// An entry as it is in the log.
#[derive(Clone, Debug)]
pub struct Entry {
    pub index: u64,
    pub bytes: Bytes,
}

/// A batch that is offered.
pub struct Submission<'a> {
    pub producer: Option<BatchOf<'a>>,
    pub decoded: Decoded<'a>,
    pub now_ms: u64,
}

/// A batch that is in the log, once the log is durable up to an entry.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    pub index: u64,
    pub answer: Answer,
    /// The batch was accepted before.
    pub is_known: bool,
}

/// The size of the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogSize {
    pub entries: usize,
    pub bytes: u64,
    pub producers: usize,
    pub event_ids: usize,
    pub ids_forgotten_early: u64,
    pub next_row: u64,
    pub totals: Totals,
    /// The time when the oldest batch with uncommitted rows was accepted.
    pub oldest_at_ms: Option<u64>,
}

/// Why a log is not opened, or cannot be cut.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the intake's log cannot be read: {0}")]
    Read(#[from] PersistError),
    #[error("entry {index} of the intake's log: {error}")]
    Entry { index: u64, error: DecodeError },
    #[error("the intake's log: {0}")]
    Order(#[from] OutOfOrder),
    #[error("the intake's log, table {table}: {error}")]
    State { table: &'static str, error: DecodeError },
    #[error("the intake's log ends at entry {last}, and its checkpoint stands for entry {index}")]
    Behind { index: u64, last: u64 },
    #[error("the intake's log was not checkpointed: {0}")]
    Checkpoint(#[from] CheckpointError),
    #[error("the intake's log was not cut: {0}")]
    Truncate(#[from] TruncateError),
    #[error(
        "the intake's log has rows {first} to {next}, and the manifest has counted up to row {position}: \
         restore the log that belongs to this manifest"
    )]
    OtherPosition { first: u64, next: u64, position: u64 },
}

/// Why a batch is not taken. Nothing of it is in the log.
#[derive(Debug, thiserror::Error)]
pub enum SubmitRefused {
    #[error(transparent)]
    Producer(#[from] ProducerError),
    #[error(transparent)]
    Quota(#[from] OverQuota),
    #[error(
        "the log has {entries} batches of {bytes} bytes that wait to be written to blobs: at most {LOG_ENTRIES_MAX} of {max} bytes"
    )]
    Full { entries: usize, bytes: u64, max: u64 },
    #[error("the batch takes {bytes} bytes of the log: at most {ENTRY_BYTES_MAX}; send fewer events at a time")]
    Long { bytes: usize },
    #[error("{limit} batches wait for the disk: at most {limit}")]
    Busy { limit: usize },
    #[error("the log cannot be written: {0}")]
    Failed(PersistError),
}

impl IntakeLog {
    /// Opens or creates the log. `on_progress` is called whenever more of it is durable, and must not block.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn open(
        path: &Path,
        config: &LogConfig,
        on_progress: impl Fn() + Send + 'static,
    ) -> Result<IntakeLog, LogError> {
        let identity = Identity { cluster: format!("streams {}", config.directory), owner: "intake".to_owned() };
        let (sender, progress) = watch::channel(Progress::default());
        let sender = Arc::new(sender);
        let reported = Arc::clone(&sender);
        let on_event = move |event| {
            reported.send_modify(|progress| match event {
                LogEvent::Durable { upto } => progress.durable = upto,
                LogEvent::Failed(error) => progress.failed = Some(error),
                LogEvent::Checkpointed { .. } | LogEvent::Kept => {}
            });
            on_progress();
        };
        let (log, recovered) = LocalLog::open(path, LocalLogOptions::new(identity), on_event)?;
        sender.send_modify(|progress| progress.durable = recovered.last);
        let mut state = restored(&log.rows()?, config.state.clone())?;
        let (entries, bytes) = replay(&recovered, &mut state)?;
        let inner = Inner {
            state,
            quotas: Quotas::new(config.quotas),
            entries,
            bytes,
            recent: VecDeque::new(),
            recent_bytes: 0,
            applied: recovered.applied,
            pending: Vec::new(),
        };
        let seed = bytes_hash(SEED, config.directory.as_bytes());
        Ok(IntakeLog { inner: Mutex::new(inner), log, progress, bytes_max: config.bytes_max, seed })
    }

    /// Checks that the log goes on where the manifest has counted up to.
    ///
    /// # Errors
    /// [`LogError::OtherPosition`].
    pub fn check_position(&self, position: u64) -> Result<(), LogError> {
        let inner = self.lock();
        let next = inner.state.next_row();
        let first = inner.entries.front().map_or(next, |kept| kept.first_row);
        match (first..=next).contains(&position) {
            true => Ok(()),
            false => Err(LogError::OtherPosition { first, next, position }),
        }
    }

    /// Of the hashes of event ids.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The entry to read first.
    pub fn first_index(&self) -> u64 {
        let inner = self.lock();
        inner.entries.front().map_or_else(|| inner.state.index() + 1, |kept| kept.index)
    }

    /// The number of the row behind all that were accepted.
    pub fn next_row(&self) -> u64 {
        self.lock().state.next_row()
    }

    /// The first row after all durable rows. Acknowledged events come before it. A kill may lose later rows, and the next start reuses
    /// their numbers.
    pub fn durable_row(&self) -> u64 {
        let durable = self.progress.borrow().durable;
        self.row_behind(durable)
    }

    /// The first row after an entry.
    pub(crate) fn row_behind(&self, index: u64) -> u64 {
        let inner = self.lock();
        let later = inner.entries.partition_point(|kept| kept.index <= index);
        inner.entries.get(later).map_or_else(|| inner.state.next_row(), |kept| kept.first_row)
    }

    /// When the last batch was accepted, if no entry is left to fold; else 0.
    pub fn folded_before(&self) -> u64 {
        let inner = self.lock();
        if inner.entries.is_empty() { inner.state.accepted_at_ms() } else { 0 }
    }

    pub fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// Counts of a tenant that came late; `None` where they are not told apart.
    pub fn late_of(&self, tenant: &str) -> Option<u64> {
        self.lock().state.late_of(tenant)
    }

    /// Refused events of a tenant, by code.
    pub fn refused_of(&self, tenant: &str) -> ByCode {
        self.lock().state.refused().of(tenant)
    }

    /// Refused events of all tenants, by code.
    pub fn refused_by_code(&self) -> ByCode {
        self.lock().state.refused().by_code().clone()
    }

    /// The tenants with the most refused events, the largest number first.
    pub fn most_refused(&self, limit: usize) -> Vec<OfTenant> {
        self.lock().state.refused().most(limit)
    }

    /// Requests that were refused since the start because this tenant was over a quota.
    pub fn over_quota_of(&self, tenant: &str) -> u64 {
        self.lock().quotas.over(tenant)
    }

    /// Event ids that were forgotten before their time, of each type with bounds of its own.
    pub fn ids_forgotten_of_types(&self) -> Vec<(String, u64)> {
        let inner = self.lock();
        inner.state.ids().forgotten_early_of_types().map(|(name, ids)| (name.to_owned(), ids)).collect()
    }

    pub fn size(&self) -> LogSize {
        let inner = self.lock();
        LogSize {
            entries: inner.entries.len(),
            bytes: inner.bytes,
            producers: inner.state.producers(),
            event_ids: inner.state.ids().len(),
            ids_forgotten_early: inner.state.ids().forgotten_early(),
            next_row: inner.state.next_row(),
            totals: inner.state.totals(),
            oldest_at_ms: inner.entries.front().map(|kept| kept.accepted_at_ms),
        }
    }

    /// Judges a batch and hands it to the writer. It counts once [`IntakeLog::durable`] says so.
    ///
    /// # Errors
    /// [`SubmitRefused`].
    pub fn submit(&self, submission: Submission<'_>) -> Result<Ticket, SubmitRefused> {
        let Submission { producer, decoded, now_ms } = submission;
        // Texts are read before the log is locked.
        let refused = if decoded.dead_letters > 0 { Wanted::refused(&decoded.events) } else { Wanted::default() };
        let mut inner = self.lock();
        let now_ms = now_ms.max(inner.state.accepted_at_ms());
        if let Some(of) = &producer
            && let Turn::Again(answer) = inner.state.turn(now_ms, of)?
        {
            return Ok(Ticket { index: self.log.last_index(), answer, is_known: true });
        }
        inner.check_room(self.bytes_max)?;
        let Decoded { mut events, dead_letters, .. } = decoded;
        let duplicates = inner.state.drop_known(now_ms, &mut events);
        let accepted = events.len() as u32 - dead_letters;
        let answer = Answer { accepted, dead_letters, duplicates };
        let batch = Batch { producer, answer, events };
        let wanted = if inner.quotas.counts_events() { refused.and_valid(&batch.events) } else { refused };
        inner.quotas.check(now_ms, &wanted)?;
        if batch.events.is_empty() && batch.producer.is_none() {
            return Ok(Ticket { index: self.log.last_index(), answer, is_known: false });
        }
        let first_row = inner.state.next_row();
        let bytes: Bytes = batch.encode(first_row, now_ms).into();
        // A batch of all limits fits, so this does not happen. A longer entry would not be read again.
        if bytes.len() > ENTRY_BYTES_MAX {
            return Err(SubmitRefused::Long { bytes: bytes.len() });
        }
        let index = self.log.append(vec![bytes.clone()]).map_err(|error| match error {
            SubmitError::Overloaded { limit } => SubmitRefused::Busy { limit },
            SubmitError::Poisoned(error) => SubmitRefused::Failed(error),
        })?;
        inner.quotas.charge(now_ms, &wanted);
        let head = Head { first_row, rows: batch.rows() as u32, accepted_at_ms: now_ms };
        // It begins at the next row, which was asked under this lock.
        let _ = inner.state.apply(index, &head, &batch);
        inner.keep(index, &head, bytes);
        Ok(Ticket { index, answer, is_known: false })
    }

    /// Waits until an entry is durable.
    ///
    /// # Errors
    /// The log has failed before.
    pub async fn durable(&self, index: u64) -> Result<(), PersistError> {
        let mut progress = self.progress.clone();
        let reached = |progress: &Progress| progress.durable >= index || progress.failed.is_some();
        match progress.wait_for(reached).await {
            Ok(progress) if progress.durable >= index => Ok(()),
            Ok(progress) => Err(progress.failed.clone().unwrap_or(PersistError::Io("the log has stopped".to_owned()))),
            Err(_) => Err(PersistError::Io("the log is closed".to_owned())),
        }
    }

    /// The next durable entries from an index on, at most `most`.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn read(&self, from: u64, most: usize) -> Result<Vec<Entry>, PersistError> {
        let last = self.progress.borrow().durable.min(from.saturating_add(most as u64).saturating_sub(1));
        if last < from {
            return Ok(Vec::new());
        }
        if let Some(entries) = self.lock().recent_from(from, last) {
            return Ok(entries);
        }
        let entries = self.log.entries(from, last)?;
        entries.map(|entry| entry.map(|(index, bytes)| Entry { index, bytes })).collect()
    }

    /// The row behind the entries in the log with counted rows only. `None`: there is no such entry.
    pub fn counted(&self, committed: u64) -> Option<u64> {
        let inner = self.lock();
        let counted = inner.entries.partition_point(|kept| kept.end_row <= committed);
        inner.entries.get(counted.checked_sub(1)?).map(|kept| kept.end_row)
    }

    /// The entries with counted rows only that begin at a row or behind it.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn counted_entries(
        &self,
        from: u64,
        committed: u64,
    ) -> Result<impl Iterator<Item = Result<(u64, Bytes), PersistError>>, PersistError> {
        let inner = self.lock();
        let begin = inner.entries.partition_point(|kept| kept.first_row < from);
        let end = inner.entries.partition_point(|kept| kept.end_row <= committed);
        let index = |at: usize| inner.entries.get(at).map(|kept| kept.index);
        let range = if begin < end { index(begin).zip(index(end - 1)) } else { None };
        drop(inner);
        let entries = range.map(|(first, last)| self.log.entries(first, last)).transpose()?;
        Ok(entries.into_iter().flatten())
    }

    /// Cuts off the entries with rows that are committed up to a row, and writes their state. `false`: the log is busy, and it is done with
    /// the next call.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn checkpoint(&self, committed: u64, now_ms: u64) -> Result<bool, LogError> {
        let mut inner = self.lock();
        let now_ms = now_ms.max(inner.state.accepted_at_ms());
        inner.pass(committed);
        let changes = inner.state.take_changes(now_ms);
        inner.pending.extend(changes.into_iter().map(row));
        let applied = inner.applied;
        for part in parts(&inner.pending, applied) {
            match self.log.checkpoint(part) {
                Ok(()) => {}
                Err(CheckpointError::Submit(SubmitError::Overloaded { .. })) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        inner.pending.clear();
        match self.log.truncate_before(applied + 1) {
            Ok(()) => Ok(true),
            Err(TruncateError::Submit(SubmitError::Overloaded { .. })) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn check_room(&self, max: u64) -> Result<(), SubmitRefused> {
        let entries = self.entries.len();
        let bytes = self.bytes;
        if entries >= LOG_ENTRIES_MAX || bytes >= max {
            return Err(SubmitRefused::Full { entries, bytes, max });
        }
        Ok(())
    }

    fn keep(&mut self, index: u64, head: &Head, bytes: Bytes) {
        let len = bytes.len();
        self.entries.push_back(kept(index, head, len));
        self.bytes += len as u64;
        self.recent.push_back(Entry { index, bytes });
        self.recent_bytes += len;
        while self.recent_bytes > RECENT_BYTES_MAX {
            self.forget_recent();
        }
    }

    fn forget_recent(&mut self) {
        self.recent_bytes -= self.recent.pop_front().map_or(self.recent_bytes, |entry| entry.bytes.len());
    }

    /// Entries in memory, if the first one is. Earlier entries were read.
    fn recent_from(&mut self, from: u64, last: u64) -> Option<Vec<Entry>> {
        while self.recent.front().is_some_and(|entry| entry.index < from) {
            self.forget_recent();
        }
        if self.recent.front().is_none_or(|entry| entry.index != from) {
            return None;
        }
        Some(self.recent.iter().take_while(|entry| entry.index <= last).cloned().collect())
    }

    /// Rows up to this one are committed.
    fn pass(&mut self, committed: u64) {
        while let Some(kept) = self.entries.front().filter(|kept| kept.end_row <= committed) {
            self.applied = kept.index;
            self.bytes -= kept.bytes;
            self.entries.pop_front();
        }
    }
}

/// Gives rows of the log of a directory that no server has open, batch by batch, as far as the log still has them.
///
/// # Errors
/// [`LogError`]: it is the log of another directory, or cannot be read.
pub fn read_log(
    path: &Path,
    directory: &str,
    rows: &SourceRows,
    mut visit: impl FnMut(Now, &RowBatch<'_>),
) -> Result<(), LogError> {
    let identity = Identity { cluster: format!("streams {directory}"), owner: "intake".to_owned() };
    let (log, recovered) = LocalLog::open(path, LocalLogOptions::new(identity), |_| {})?;
    let mut next = rows.from;
    for entry in log.entries(1, recovered.last)? {
        let (index, bytes) = entry?;
        let of_entry = |error| LogError::Entry { index, error };
        let head = Head::decode(&bytes).map_err(of_entry)?;
        let from = next.max(head.first_row);
        let to = rows.to.min(head.end_row());
        if from >= to {
            continue;
        }
        let (head, batch) = Batch::decode(&bytes).map_err(of_entry)?;
        let records = batch.records();
        let records = &records[(from - head.first_row) as usize..(to - head.first_row) as usize];
        let batch = RowBatch { source: rows.source, reading: READING, from, is_logged: true, records };
        visit(Now(head.accepted_at_ms), &batch);
        next = to;
    }
    Ok(())
}

/// Checks that a log that no process has open goes on where a manifest has counted up to.
///
/// # Errors
/// [`LogError`].
pub fn check_log(path: &Path, directory: &str, position: u64) -> Result<(), LogError> {
    open_idle(path, directory)?.check_position(position)
}

/// The first row after all rows of a log that no process has open.
///
/// # Errors
/// [`LogError`].
pub fn next_row(path: &Path, directory: &str) -> Result<u64, LogError> {
    Ok(open_idle(path, directory)?.next_row())
}

fn open_idle(path: &Path, directory: &str) -> Result<IntakeLog, LogError> {
    let others = IdBounds { kept_ms: u64::MAX, ids_max: usize::MAX };
    let ids = IdSettings { others, of_types: BTreeMap::new() };
    let config = LogConfig {
        directory: directory.to_owned(),
        state: StateConfig { ids, lateness_s: 0 },
        bytes_max: 0,
        quotas: QuotaConfig::default(),
    };
    IntakeLog::open(path, &config, || {})
}

fn kept(index: u64, head: &Head, bytes: usize) -> Kept {
    let Head { first_row, accepted_at_ms, .. } = *head;
    Kept { index, first_row, end_row: head.end_row(), bytes: bytes as u64, accepted_at_ms }
}

fn row(row: StateRow) -> Row {
    let StateRow { table, key, value } = row;
    Row { table, key: key.into(), value: value.map(Into::into) }
}

/// The parts of a checkpoint. The sums go into the last part together with the entry that they stand for.
fn parts(rows: &[Row], applied: u64) -> Vec<CheckpointPart> {
    let behind = rows.iter().position(|row| [LATE, REFUSED, META].contains(&row.table)).unwrap_or(rows.len());
    let mut parts = Vec::new();
    let mut part: Vec<Row> = Vec::new();
    let mut bytes = 0;
    for row in &rows[..behind] {
        bytes += row.key.len() + row.value.as_ref().map_or(0, |value| value.len());
        part.push(row.clone());
        if bytes > PART_BYTES_MAX {
            parts.push(CheckpointPart { applied, last: false, rows: std::mem::take(&mut part) });
            bytes = 0;
        }
    }
    part.extend_from_slice(&rows[behind..]);
    parts.push(CheckpointPart { applied, last: true, rows: part });
    parts
}

fn restored(rows: &RowsNow, config: StateConfig) -> Result<State, LogError> {
    let mut state = State::new(config);
    for table in [META, PRODUCERS, IDS, LATE, REFUSED] {
        let mut failed = None;
        rows.scan(table, |key, value| match state.restore(table, key, value) {
            Ok(()) => true,
            Err(error) => {
                failed = Some(error);
                false
            }
        })?;
        if let Some(error) = failed {
            return Err(LogError::State { table, error });
        }
    }
    Ok(state)
}

/// Applies the entries behind the checkpoint, and says which are there.
fn replay(recovered: &Recovered, state: &mut State) -> Result<(VecDeque<Kept>, u64), LogError> {
    let mut entries = VecDeque::new();
    let mut bytes = 0;
    if state.index() > recovered.last {
        return Err(LogError::Behind { index: state.index(), last: recovered.last });
    }
    for entry in recovered.entries_after(recovered.applied)? {
        let (index, entry) = entry?;
        let (head, batch) = Batch::decode(&entry).map_err(|error| LogError::Entry { index, error })?;
        if index > state.index() {
            state.apply(index, &head, &batch)?;
        }
        entries.push_back(kept(index, &head, entry.len()));
        bytes += entry.len() as u64;
    }
    Ok((entries, bytes))
}
