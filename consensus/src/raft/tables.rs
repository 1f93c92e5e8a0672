//! The redb tables of a Raft member, and how requests change them.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use openraft::entry::RaftEntry;
use openraft::storage::IOFlushed;
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::log_store::{Tail, next_index};
use super::types::{Entry, LogId, SnapshotMeta, TypeConfig};
use crate::storage::{Cost, Persist, PersistError};

pub(super) const FORMAT: &str = "tidemark-raft-1";

const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
/// Single values: `vote`, `committed`, `purged`.
const STATE: TableDefinition<&str, &[u8]> = TableDefinition::new("state");
/// The current snapshot: `meta`, `data`.
const SNAPSHOT: TableDefinition<&str, &[u8]> = TableDefinition::new("snapshot");

pub(crate) type Done = oneshot::Sender<Result<(), PersistError>>;

/// Other tables that a member keeps in its file, changed in one order with its log.
pub(crate) trait Other: Send + 'static {
    fn bytes(&self) -> usize;

    fn persist(&self, write: &WriteTransaction) -> Result<(), PersistError>;

    /// Called when it is durable, or has failed.
    fn complete(self: Box<Self>, outcome: Result<(), PersistError>);
}

pub(super) enum Op {
    Append { rows: Vec<(u64, Vec<u8>)>, callback: IOFlushed<TypeConfig> },
    Vote { vote: Vec<u8>, done: Done },
    Truncate { from: u64, done: Done },
    Purge { upto: LogId },
    Snapshot { meta: Vec<u8>, data: Bytes, done: Done },
    Other(Box<dyn Other>),
}

pub(crate) fn create_tables(write: &WriteTransaction) -> Result<(), PersistError> {
    write.open_table(LOG)?;
    write.open_table(STATE)?;
    write.open_table(SNAPSHOT)?;
    Ok(())
}

/// Our own types always encode; only a size beyond memory could fail.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, PersistError> {
    postcard::to_allocvec(value).map_err(|error| PersistError::Io(error.to_string()))
}

pub(crate) fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, PersistError> {
    postcard::from_bytes(bytes).map_err(|error| PersistError::corrupt(format!("{what}: {error}")))
}

pub(super) fn read_tail(db: &Database) -> Result<Tail, PersistError> {
    let read = db.begin_read()?;
    let purged: Option<LogId> = get_state(&read, "purged")?;
    let last = match read.open_table(LOG)?.last()? {
        Some((_, value)) => Some(decode::<Entry>("entry", value.value())?.log_id()),
        None => None,
    };
    let last = last.max(purged);
    // `committed` is written with whatever transaction comes next and may be ahead of the entries it speaks of.
    let committed: Option<LogId> = get_state::<Option<LogId>>(&read, "committed")?.flatten();
    let committed = if next_index(&committed) > next_index(&last) { last } else { committed };
    let durable = last.map_or(0, |last| last.index());
    Ok(Tail { vote: get_state(&read, "vote")?, committed, purged, last, durable, ..Tail::default() })
}

pub(crate) fn get_state<T: DeserializeOwned>(read: &ReadTransaction, name: &str) -> Result<Option<T>, PersistError> {
    let value = read.open_table(STATE)?.get(name)?;
    value.map(|value| decode(name, value.value())).transpose()
}

/// The first entry on the disk, which may be one that was cut already.
pub(super) fn first_on_disk(db: &Database) -> Result<u64, PersistError> {
    let log = db.begin_read()?.open_table(LOG)?;
    let first = log.first()?;
    Ok(first.map_or(u64::MAX, |(index, _)| index.value()))
}

/// Entries of `start..end` up to and including the one that reaches `bytes_max`.
pub(super) fn read_entries(db: &Database, start: u64, end: u64, bytes_max: usize) -> Result<Vec<Entry>, PersistError> {
    let table = db.begin_read()?.open_table(LOG)?;
    let mut entries = Vec::new();
    let mut bytes = 0;
    for row in table.range(start..end)? {
        let (_, value) = row?;
        bytes += value.value().len();
        entries.push(decode("entry", value.value())?);
        if bytes >= bytes_max {
            break;
        }
    }
    Ok(entries)
}

pub(super) fn read_snapshot_meta(db: &Database) -> Result<Option<SnapshotMeta>, PersistError> {
    let meta = db.begin_read()?.open_table(SNAPSHOT)?.get("meta")?;
    meta.map(|meta| decode("snapshot", meta.value())).transpose()
}

pub(super) fn read_snapshot(db: &Database) -> Result<Option<(SnapshotMeta, Bytes)>, PersistError> {
    let table = db.begin_read()?.open_table(SNAPSHOT)?;
    let Some(meta) = table.get("meta")? else {
        return Ok(None);
    };
    let data = table.get("data")?.ok_or_else(|| PersistError::corrupt("a snapshot without data"))?;
    Ok(Some((decode("snapshot", meta.value())?, Bytes::copy_from_slice(data.value()))))
}

/// A file begins with a state, behind a log of which nothing is kept: in one transaction, so that it is there whole or not at all.
pub(super) fn found_with_state(db: &Database, meta: &SnapshotMeta, data: &[u8], at: LogId) -> Result<(), PersistError> {
    let write = db.begin_write()?;
    save_snapshot(&write, &encode(meta)?, data)?;
    put(&write, "purged", &encode(&at)?)?;
    write.commit()?;
    Ok(())
}

/// Entries that one transaction removes, at least; it removes twice as many as it appends, so that a cut always ends. Removing
/// 64 MiB at once takes longer than an answer may.
const CUT_ENTRIES: u64 = 8;

pub(super) struct RaftTables {
    db: Arc<Database>,
    tail: Arc<Mutex<Tail>>,
    /// No entry below it is on the disk.
    first: u64,
    /// The first entry to keep: those before go little by little, with whatever else is persisted.
    keep: u64,
}

impl RaftTables {
    pub fn new(db: Arc<Database>, tail: Arc<Mutex<Tail>>, first: u64) -> Self {
        let keep = next_index(&tail.lock().expect("a reader panicked").purged);
        Self { db, tail, first: first.min(keep), keep }
    }

    /// No entry below it is on the disk after a transaction with these requests.
    fn first_after(&self, ops: &[Op]) -> u64 {
        let appended: usize = ops.iter().map(|op| Self::cost(op).entries).sum();
        self.keep.min(self.first + CUT_ENTRIES.max(2 * appended as u64))
    }

    fn persist_committed(&self, write: &WriteTransaction) -> Result<(), PersistError> {
        let committed = self.tail.lock().expect("a reader panicked").committed;
        write.open_table(STATE)?.insert("committed", encode(&committed)?.as_slice())?;
        Ok(())
    }
}

impl Persist for RaftTables {
    type Op = Op;

    fn cost(op: &Op) -> Cost {
        match op {
            Op::Append { rows, .. } => {
                Cost { entries: rows.len(), bytes: rows.iter().map(|(_, value)| value.len()).sum() }
            }
            Op::Snapshot { data, .. } => Cost { entries: 0, bytes: data.len() },
            Op::Other(other) => Cost { entries: 0, bytes: other.bytes() },
            Op::Vote { .. } | Op::Truncate { .. } | Op::Purge { .. } => Cost::default(),
        }
    }

    fn persist(&mut self, ops: &[Op]) -> Result<(), PersistError> {
        let write = self.db.begin_write()?;
        for op in ops {
            match op {
                Op::Append { rows, .. } => append(&write, rows)?,
                Op::Vote { vote, .. } => put(&write, "vote", vote)?,
                Op::Truncate { from, .. } => write.open_table(LOG)?.retain_in(*from.., |_, _| false)?,
                Op::Purge { upto } => {
                    put(&write, "purged", &encode(upto)?)?;
                    self.keep = self.keep.max(upto.index() + 1);
                }
                Op::Snapshot { meta, data, .. } => save_snapshot(&write, meta, data)?,
                Op::Other(other) => other.persist(&write)?,
            }
        }
        let first = self.first_after(ops);
        if first > self.first {
            write.open_table(LOG)?.retain_in(..first, |_, _| false)?;
        }
        self.persist_committed(&write)?;
        write.commit()?;
        self.first = first;
        Ok(())
    }

    fn complete(&mut self, ops: Vec<Op>, outcome: Result<(), PersistError>) {
        if outcome.is_ok() {
            self.note_durable(&ops);
        }
        for op in ops {
            match op {
                Op::Append { callback, .. } => callback.io_completed(outcome.clone().map_err(Into::into)),
                Op::Vote { done, .. } | Op::Truncate { done, .. } | Op::Snapshot { done, .. } => {
                    let _ = done.send(outcome.clone());
                }
                Op::Other(other) => other.complete(outcome.clone()),
                Op::Purge { .. } => {}
            }
        }
    }
}

impl RaftTables {
    fn note_durable(&self, ops: &[Op]) {
        let mut tail = self.tail.lock().expect("a reader panicked");
        for op in ops {
            match op {
                Op::Append { rows, .. } => tail.durable = rows.last().map_or(tail.durable, |(index, _)| *index),
                Op::Truncate { from, .. } => tail.durable = tail.durable.min(from.saturating_sub(1)),
                Op::Vote { .. } | Op::Purge { .. } | Op::Snapshot { .. } | Op::Other(_) => {}
            }
        }
    }
}

fn append(write: &WriteTransaction, rows: &[(u64, Vec<u8>)]) -> Result<(), PersistError> {
    let mut log = write.open_table(LOG)?;
    for (index, entry) in rows {
        log.insert(index, entry.as_slice())?;
    }
    Ok(())
}

pub(crate) fn put(write: &WriteTransaction, name: &str, value: &[u8]) -> Result<(), PersistError> {
    write.open_table(STATE)?.insert(name, value)?;
    Ok(())
}

fn save_snapshot(write: &WriteTransaction, meta: &[u8], data: &[u8]) -> Result<(), PersistError> {
    let mut table = write.open_table(SNAPSHOT)?;
    table.insert("meta", meta)?;
    table.insert("data", data)?;
    Ok(())
}
