//! The tables of a local log, and how requests change them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use bytes::Bytes;
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition, WriteTransaction};

use super::{CheckpointPart, LogEvent, Row};
use crate::storage::{Cost, Persist, PersistError, rows};

pub(super) const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
pub(super) const POSITIONS: TableDefinition<&str, u64> = TableDefinition::new("positions");

/// Row tables are kept apart from our own by a prefix.
pub(super) const ROWS: &str = "rows/";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Positions {
    pub applied: u64,
    pub first: u64,
    pub last: u64,
}

#[derive(Debug)]
pub(super) enum Op {
    Append { first: u64, commands: Vec<Bytes> },
    Checkpoint(CheckpointPart),
    Truncate { before: u64 },
    Keep(Vec<Row>),
}

/// Takes what the writers report, from whichever of them.
#[derive(Clone)]
pub(super) struct Sink(Arc<Mutex<Option<OnEvent>>>);

pub(super) type OnEvent = Box<dyn FnMut(LogEvent) + Send>;

impl Sink {
    pub fn new(on_event: OnEvent) -> Self {
        Self(Arc::new(Mutex::new(Some(on_event))))
    }

    /// A failure is the last that is said.
    pub fn say(&self, event: LogEvent) {
        let mut on_event = self.0.lock().expect("a receiver of events panicked");
        let is_last = matches!(event, LogEvent::Failed(_));
        if let Some(on_event) = on_event.as_mut() {
            on_event(event);
        }
        if is_last {
            *on_event = None;
        }
    }
}

/// The progress that the two writers of a log with rows apart share.
pub(super) struct Reached {
    state: Mutex<ReachedState>,
    changed: Condvar,
}

struct ReachedState {
    durable: u64,
    checkpointed: u64,
    failed: Option<PersistError>,
}

impl Reached {
    pub fn new(positions: &Positions) -> Self {
        let state = ReachedState { durable: positions.last, checkpointed: positions.applied, failed: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, ReachedState> {
        self.state.lock().expect("a writer panicked")
    }

    fn set_durable(&self, upto: u64) {
        self.lock().durable = upto;
        self.changed.notify_all();
    }

    fn fail(&self, error: PersistError) {
        self.lock().failed = Some(error);
        self.changed.notify_all();
    }

    pub fn set_checkpointed(&self, applied: u64) {
        self.lock().checkpointed = applied;
    }

    fn checkpointed(&self) -> u64 {
        self.lock().checkpointed
    }

    /// Waits until all entries up to this one are durable.
    pub fn wait_durable(&self, upto: u64) -> Result<(), PersistError> {
        let mut state = self.lock();
        while state.durable < upto {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            state = self.changed.wait(state).expect("a writer panicked");
        }
        Ok(())
    }
}

pub(super) fn create_tables(write: &WriteTransaction) -> Result<(), PersistError> {
    write.open_table(LOG)?;
    let mut positions = write.open_table(POSITIONS)?;
    positions.insert("first", 1)?;
    positions.insert("applied", 0)?;
    Ok(())
}

/// Reads where the log stands and checks that it has no gaps. `applied` is said by rows that are not in the file.
pub(super) fn read_positions(db: &Database, applied: Option<u64>) -> Result<Positions, PersistError> {
    let read = db.begin_read()?;
    let table = read.open_table(POSITIONS)?;
    let get = |name| -> Result<u64, PersistError> {
        let value = table.get(name)?.ok_or_else(|| PersistError::corrupt(format!("`{name}` is missing")))?;
        Ok(value.value())
    };
    let first = get("first")?;
    let applied = applied.map_or_else(|| get("applied"), Ok)?;
    let log = read.open_table(LOG)?;
    let last = log.last()?.map_or(first.wrapping_sub(1), |(key, _)| key.value());
    let start = log.first()?.map_or(first, |(key, _)| key.value());
    let contiguous = first >= 1 && start == first && log.len()? == last.wrapping_add(1).wrapping_sub(first);
    if !contiguous || applied > last || first > applied + 1 {
        let reason = format!("log of {} rows from {start} to {last}, first {first}, applied {applied}", log.len()?);
        return Err(PersistError::corrupt(reason));
    }
    Ok(Positions { applied, first, last })
}

/// Entries that one transaction removes, at least; it removes twice as many as it appends, so that a cut always ends. Removing
/// 64 MiB at once takes longer than an answer may.
const CUT_ENTRIES: u64 = 8;

pub(super) struct LocalStore {
    db: Arc<Database>,
    sink: Sink,
    /// Where rows are apart.
    reached: Option<Arc<Reached>>,
    /// The first entry on the disk.
    first: u64,
    /// The first entry to keep: those before go little by little, with whatever else is persisted.
    keep: u64,
}

impl LocalStore {
    pub fn new(db: Arc<Database>, first: u64, sink: Sink, reached: Option<Arc<Reached>>) -> Self {
        Self { db, sink, reached, first, keep: first }
    }

    /// The first entry that a transaction with these requests leaves on the disk.
    fn first_after(&self, ops: &[Op]) -> u64 {
        let appended: usize = ops.iter().map(|op| Self::cost(op).entries).sum();
        let keep = match &self.reached {
            Some(reached) => self.keep.min(reached.checkpointed() + 1),
            None => self.keep,
        };
        keep.min(self.first + CUT_ENTRIES.max(2 * appended as u64))
    }
}

impl Persist for LocalStore {
    type Op = Op;

    fn cost(op: &Op) -> Cost {
        match op {
            Op::Append { commands, .. } => {
                Cost { entries: commands.len(), bytes: commands.iter().map(Bytes::len).sum() }
            }
            Op::Checkpoint(part) => Cost { entries: 0, bytes: part.rows.iter().map(Row::bytes).sum() },
            Op::Keep(rows) => Cost { entries: 0, bytes: rows.iter().map(Row::bytes).sum() },
            Op::Truncate { .. } => Cost::default(),
        }
    }

    fn persist(&mut self, ops: &[Op]) -> Result<(), PersistError> {
        let write = self.db.begin_write()?;
        for op in ops {
            match op {
                Op::Append { first, commands } => append(&write, *first, commands)?,
                Op::Checkpoint(part) => checkpoint(&write, part)?,
                Op::Keep(kept) => rows::apply(&write, ROWS, kept)?,
                Op::Truncate { before } => self.keep = self.keep.max(*before),
            }
        }
        let first = self.first_after(ops);
        if first > self.first {
            truncate(&write, first)?;
        }
        write.commit()?;
        self.first = first;
        Ok(())
    }

    fn complete(&mut self, ops: Vec<Op>, outcome: Result<(), PersistError>) {
        if let Err(error) = outcome {
            if let Some(reached) = &self.reached {
                reached.fail(error.clone());
            }
            return self.sink.say(LogEvent::Failed(error));
        }
        let kept = ops.iter().filter(|op| matches!(op, Op::Keep(_)));
        kept.for_each(|_| self.sink.say(LogEvent::Kept));
        let durable = ops.iter().filter_map(Op::last_index).max();
        if let Some(upto) = durable {
            self.sink.say(LogEvent::Durable { upto });
            if let Some(reached) = &self.reached {
                reached.set_durable(upto);
            }
        }
        let checkpointed = ops.iter().filter_map(Op::completed_checkpoint).max();
        if let Some(applied) = checkpointed {
            self.sink.say(LogEvent::Checkpointed { applied });
        }
    }
}

impl Op {
    fn last_index(&self) -> Option<u64> {
        match self {
            Self::Append { first, commands } => Some(first + commands.len() as u64 - 1),
            Self::Checkpoint(_) | Self::Keep(_) | Self::Truncate { .. } => None,
        }
    }

    fn completed_checkpoint(&self) -> Option<u64> {
        match self {
            Self::Checkpoint(part) if part.last => Some(part.applied),
            Self::Checkpoint(_) | Self::Keep(_) | Self::Append { .. } | Self::Truncate { .. } => None,
        }
    }
}

fn append(write: &WriteTransaction, first: u64, commands: &[Bytes]) -> Result<(), PersistError> {
    let mut log = write.open_table(LOG)?;
    for (index, command) in (first..).zip(commands) {
        log.insert(index, command.as_ref())?;
    }
    Ok(())
}

fn checkpoint(write: &WriteTransaction, part: &CheckpointPart) -> Result<(), PersistError> {
    rows::apply(write, ROWS, &part.rows)?;
    if part.last {
        write.open_table(POSITIONS)?.insert("applied", part.applied)?;
    }
    Ok(())
}

fn truncate(write: &WriteTransaction, before: u64) -> Result<(), PersistError> {
    write.open_table(LOG)?.retain_in(..before, |_, _| false)?;
    write.open_table(POSITIONS)?.insert("first", before)?;
    Ok(())
}
