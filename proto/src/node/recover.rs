//! From disk to a running node: the last complete checkpoint, then the log behind it.

use crate::group::{Group, LoadError, Row};
use crate::ids::LogIndex;
use crate::msg::GroupEntry;
use crate::node::{NodeConfig, NodeCore};
use crate::wire::{WireError, decode};

/// Why a node cannot start from what is on its disk. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    #[error(transparent)]
    Checkpoint(#[from] LoadError),
    #[error("log entry {index}: {error}")]
    Entry { index: u64, error: WireError },
    #[error("the log continues with entry {found}: {expected} expected")]
    Gap { expected: u64, found: u64 },
}

impl NodeCore {
    /// A node from the rows of its checkpoints (in the order of their keys; empty if there are none) and the entries of its log
    /// (in order; those that the checkpoint covers are skipped). It starts by logging its process start, `nonce`, drawn at
    /// random by the caller. Errors: [`RecoverError`]; never panics.
    pub fn recover(
        config: NodeConfig,
        nonce: u64,
        rows: impl IntoIterator<Item = Row>,
        entries: impl IntoIterator<Item = (LogIndex, Vec<u8>)>,
    ) -> Result<NodeCore, RecoverError> {
        let mut group = Group::load(config.group, rows)?.unwrap_or_else(|| Group::new(config.group));
        let mut log_bytes = 0;
        for (index, bytes) in entries {
            if index <= group.applied() {
                continue;
            }
            let expected = group.applied().next();
            if index != expected {
                return Err(RecoverError::Gap { expected: expected.0, found: index.0 });
            }
            let entry = decode::<GroupEntry>(&bytes).map_err(|error| RecoverError::Entry { index: index.0, error })?;
            log_bytes += bytes.len() as u64;
            group.apply(index, &entry);
            while group.poll_effect().is_some() {}
        }
        Ok(NodeCore::with_group(config, nonce, group, log_bytes))
    }
}
