//! The state of a replica in its file beside the log: its identity, the known starts of others, and the rows.
//!
//! Rows live in tables of a generation. A snapshot of another member is written into the next generation, and a single transaction then
//! makes that the valid one. A crash before that transaction leaves the rows as they were. The earlier tables stay until the owner, which
//! may read them meanwhile, has left them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use openraft::EntryPayload;
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::identity::Start;
use crate::raft::log_store::LogStore;
use crate::raft::tables::{self, Done, Other, decode, encode, get_state, put};
use crate::raft::types::{LogId, StoredMembership};
use crate::storage::{PersistError, Row, rows};

pub(super) const FORMAT: &str = "tidemark-replica-2";

/// By member: the highest start that it has told of.
const STARTS: TableDefinition<u64, &[u8]> = TableDefinition::new("starts");
const DISK: &str = "disk";
const GENERATION: &str = "rows";
const POSITION: &str = "position";
/// The prefix of the names of tables of rows, before their generation.
const ROWS: &str = "rows/";

pub(super) fn create_tables(write: &WriteTransaction) -> Result<(), PersistError> {
    write.open_table(STARTS)?;
    tables::create_tables(write)
}

/// The identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Disk {
    /// Tells it from every other disk of this node.
    pub mint: u32,
    /// How often it was opened, and how often it was counted on since.
    pub starts: u64,
}

/// The position of the rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    pub log_id: LogId,
    pub membership: StoredMembership,
    /// Commands committed up to there.
    pub commands: u64,
    /// The group: see [`founder_of`].
    pub founder: Option<u64>,
}

/// A group is told from every other of its name by the lowest of the voters that it was founded with: a disk founds once.
pub(super) fn founder_of(voters: impl Iterator<Item = u64>) -> Option<u64> {
    voters.min()
}

pub(super) fn prefix(generation: u64) -> String {
    format!("{ROWS}{generation}/")
}

/// Of a table of rows.
fn generation_of(table: &str) -> Option<u64> {
    table.strip_prefix(ROWS)?.split('/').next()?.parse().ok()
}

pub(super) fn read_disk(db: &Database) -> Result<Option<Disk>, PersistError> {
    get_state(&db.begin_read()?, DISK)
}

/// The group that the file is of, if it knows one: from its checkpoint, and before there is one from the first entry, which is kept
/// until then.
pub(super) fn read_founder(store: &LogStore) -> io::Result<Option<u64>> {
    let read = store.db().begin_read().map_err(io::Error::other)?;
    let (_, checkpoint) = read_rows(&read)?;
    if let Some(founder) = checkpoint.and_then(|checkpoint| checkpoint.founder) {
        return Ok(Some(founder));
    }
    let first = store.read(0, 1, 1)?.into_iter().next().map(|entry| entry.payload);
    Ok(first.and_then(|first| match first {
        EntryPayload::Membership(founded) => founder_of(founded.voter_ids()),
        EntryPayload::Blank | EntryPayload::Normal(_) => None,
    }))
}

/// The valid generation and what its rows stand for.
pub(super) fn read_rows(read: &ReadTransaction) -> Result<(u64, Option<Checkpoint>), PersistError> {
    Ok((get_state(read, GENERATION)?.unwrap_or(0), get_state(read, POSITION)?))
}

/// Sends the result of a transaction to the caller that waits for it.
fn tell(done: Option<Done>, outcome: Result<(), PersistError>) {
    if let Some(done) = done {
        let _ = done.send(outcome);
    }
}

pub(super) struct PutDisk {
    pub disk: Disk,
    pub done: Option<Done>,
}

impl Other for PutDisk {
    fn bytes(&self) -> usize {
        size_of::<Disk>()
    }

    fn persist(&self, write: &WriteTransaction) -> Result<(), PersistError> {
        put(write, DISK, &encode(&self.disk)?)
    }

    fn complete(self: Box<Self>, outcome: Result<(), PersistError>) {
        tell(self.done, outcome);
    }
}

/// Part of a checkpoint; of no effect once another generation is valid.
pub(super) struct Part {
    pub generation: u64,
    pub valid: Arc<AtomicU64>,
    pub rows: Vec<Row>,
    /// With the last part.
    pub completes: Option<Checkpoint>,
    pub done: Option<Done>,
}

impl Other for Part {
    fn bytes(&self) -> usize {
        self.rows.iter().map(Row::bytes).sum()
    }

    fn persist(&self, write: &WriteTransaction) -> Result<(), PersistError> {
        if self.valid.load(Ordering::Acquire) != self.generation {
            return Ok(());
        }
        rows::apply(write, &prefix(self.generation), &self.rows)?;
        match &self.completes {
            Some(checkpoint) => put(write, POSITION, &encode(checkpoint)?),
            None => Ok(()),
        }
    }

    fn complete(self: Box<Self>, outcome: Result<(), PersistError>) {
        tell(self.done, outcome);
    }
}

/// Rows of one table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    pub table: String,
    pub rows: Vec<(Bytes, Bytes)>,
}

impl Run {
    pub fn bytes(&self) -> usize {
        self.table.len() + self.rows.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
    }
}

/// Rows of another member's snapshot, for a generation that is not valid yet.
pub(super) struct Stage {
    pub generation: u64,
    pub runs: Vec<Run>,
    pub done: Option<Done>,
}

impl Other for Stage {
    fn bytes(&self) -> usize {
        self.runs.iter().map(Run::bytes).sum()
    }

    fn persist(&self, write: &WriteTransaction) -> Result<(), PersistError> {
        for run in &self.runs {
            let name = format!("{}{}", prefix(self.generation), run.table);
            let mut table = write.open_table(rows::definition(&name))?;
            for (key, value) in &run.rows {
                table.insert(key.as_ref(), value.as_ref())?;
            }
        }
        Ok(())
    }

    fn complete(self: Box<Self>, outcome: Result<(), PersistError>) {
        tell(self.done, outcome);
    }
}

/// Removes the rows of generations.
#[derive(Clone, Copy, Debug)]
pub(super) enum Discard {
    /// It was staged and will not become valid.
    Only(u64),
    /// The owner has left those before.
    Before(u64),
    /// The file was opened: no task has read the others, or stages them.
    AllBut(u64),
}

impl Discard {
    fn wants(self, generation: u64) -> bool {
        match self {
            Self::Only(one) => generation == one,
            Self::Before(first) => generation < first,
            Self::AllBut(valid) => generation != valid,
        }
    }
}

impl Other for Discard {
    fn bytes(&self) -> usize {
        0
    }

    fn persist(&self, write: &WriteTransaction) -> Result<(), PersistError> {
        rows::delete(write, |name| generation_of(name).is_some_and(|generation| self.wants(generation)))
    }

    fn complete(self: Box<Self>, _outcome: Result<(), PersistError>) {}
}

/// Makes a staged generation the valid one.
pub(super) struct Install {
    pub generation: u64,
    pub valid: Arc<AtomicU64>,
    pub checkpoint: Checkpoint,
    pub done: Option<Done>,
}

impl Other for Install {
    fn bytes(&self) -> usize {
        0
    }

    fn persist(&self, write: &WriteTransaction) -> Result<(), PersistError> {
        self.valid.store(self.generation, Ordering::Release);
        put(write, GENERATION, &encode(&self.generation)?)?;
        put(write, POSITION, &encode(&self.checkpoint)?)
    }

    fn complete(self: Box<Self>, outcome: Result<(), PersistError>) {
        tell(self.done, outcome);
    }
}

/// Keeps a start that a member tells of, and answers with the highest that it told of before.
pub(super) struct Hear {
    pub member: u64,
    pub start: Start,
    pub before: std::sync::Mutex<Option<Start>>,
    pub answer: oneshot::Sender<Result<Option<Start>, PersistError>>,
}

impl Other for Hear {
    fn bytes(&self) -> usize {
        size_of::<Start>()
    }

    fn persist(&self, write: &WriteTransaction) -> Result<(), PersistError> {
        let mut table = write.open_table(STARTS)?;
        let before: Option<Start> = match table.get(self.member)? {
            Some(known) => Some(decode("start", known.value())?),
            None => None,
        };
        if before.is_none_or(|before| before.count < self.start.count) {
            table.insert(self.member, encode(&self.start)?.as_slice())?;
        }
        *self.before.lock().expect("a writer panicked") = before;
        Ok(())
    }

    fn complete(self: Box<Self>, outcome: Result<(), PersistError>) {
        let before = self.before.into_inner().expect("a writer panicked");
        let _ = self.answer.send(outcome.map(|()| before));
    }
}
