//! From disk to a running node: the last complete checkpoint, then the log behind it.
//!
//! Another thread may read and decode ([`RowReader`](crate::group::RowReader), [`ReadEntry`]), ahead of the thread that puts the
//! node together here, in order.

use crate::group::{Group, LoadError, Loading, Row, RowReader, Stored};
use crate::node::{NodeConfig, NodeCore};
use tidemark_types::ids::LogIndex;
use tidemark_wire::msg::GroupEntry;
use tidemark_wire::wire::{WireError, decode};

/// Why a node cannot start from its disk. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    #[error(transparent)]
    Checkpoint(#[from] LoadError),
    #[error("log entry {index}: {error}")]
    Entry { index: u64, error: WireError },
    #[error("the log continues with entry {found}: {expected} expected")]
    Gap { expected: u64, found: u64 },
}

/// A node that takes the rows of its checkpoint that count; then comes [`Replay`].
#[derive(Debug)]
pub struct Recovery {
    config: NodeConfig,
    loading: Loading,
}

/// A node that takes the entries of its log behind the checkpoint.
#[derive(Debug)]
pub struct Replay {
    config: NodeConfig,
    group: Group,
    log_bytes: u64,
}

/// An entry of the log, decoded.
#[derive(Debug)]
pub struct ReadEntry {
    index: LogIndex,
    bytes: usize,
    entry: Result<GroupEntry, WireError>,
}

impl ReadEntry {
    pub fn read(index: LogIndex, bytes: &[u8]) -> ReadEntry {
        ReadEntry { index, bytes: bytes.len(), entry: decode(bytes) }
    }
}

impl Recovery {
    pub fn new(config: NodeConfig) -> Recovery {
        Recovery { config, loading: Loading::new(config.group) }
    }

    /// Takes the content of the next row, in the order of the keys.
    pub fn row(&mut self, stored: Stored) -> Result<(), RecoverError> {
        Ok(self.loading.take(stored)?)
    }

    /// There are no more rows. Without any, the group is new.
    pub fn replay(self) -> Result<Replay, RecoverError> {
        let group = self.loading.finish()?.unwrap_or_else(|| Group::new(self.config.group));
        Ok(Replay { config: self.config, group, log_bytes: 0 })
    }
}

impl Replay {
    /// Applies the next entry, unless the checkpoint covers it.
    pub fn entry(&mut self, read: ReadEntry) -> Result<(), RecoverError> {
        let ReadEntry { index, bytes, entry } = read;
        if index <= self.group.applied() {
            return Ok(());
        }
        let expected = self.group.applied().next();
        if index != expected {
            return Err(RecoverError::Gap { expected: expected.0, found: index.0 });
        }
        let entry = entry.map_err(|error| RecoverError::Entry { index: index.0, error })?;
        self.log_bytes += bytes as u64;
        self.group.apply(index, &entry);
        while self.group.poll_effect().is_some() {}
        Ok(())
    }

    /// There are no more entries. The node starts by logging its process start, `nonce`, drawn at random by the caller.
    pub fn node(self, nonce: u64) -> NodeCore {
        NodeCore::with_group(self.config, nonce, self.group, self.log_bytes)
    }
}

impl NodeCore {
    /// A node from its disk: the rows of its checkpoints (in the order of their keys; empty if there are none), and the entries
    /// of its log. Entries come in order, and those that the checkpoint covers are skipped. It starts by logging its process
    /// start, `nonce`, drawn at random by the caller. Errors: [`RecoverError`]; never panics.
    pub fn recover(
        config: NodeConfig,
        nonce: u64,
        rows: impl IntoIterator<Item = Row>,
        entries: impl IntoIterator<Item = (LogIndex, Vec<u8>)>,
    ) -> Result<NodeCore, RecoverError> {
        let mut reader = RowReader::default();
        let mut recovery = Recovery::new(config);
        let mut counts = Vec::new();
        for (key, value) in rows {
            reader.row(&key, &value, &mut counts)?;
            counts.drain(..).try_for_each(|stored| recovery.row(stored))?;
        }
        reader.end(&mut counts)?;
        counts.drain(..).try_for_each(|stored| recovery.row(stored))?;
        let mut replay = recovery.replay()?;
        for (index, bytes) in entries {
            replay.entry(ReadEntry::read(index, &bytes))?;
        }
        Ok(replay.node(nonce))
    }
}
