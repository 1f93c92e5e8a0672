//! Checkpoints: when one is due, giving out its parts one at a time, cutting the log behind it.

use crate::group::Row;
use crate::ids::LogIndex;
use crate::node::{NodeConfig, NodeCore, Output};
use crate::time::Time;
use std::collections::VecDeque;

/// A part of a checkpoint: rows to be stored (an empty value deletes). Parts may be persisted one by one, in order; the store shows
/// the state as of `applied` only from the last part on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointPart {
    pub applied: LogIndex,
    pub rows: Vec<Row>,
    pub last: bool,
}

/// Progress of checkpoints.
#[derive(Debug)]
pub(super) struct Checkpointer {
    parts: VecDeque<CheckpointPart>,
    /// The part given out and not yet persisted: its index, and whether it is the last.
    out: Option<(LogIndex, bool)>,
    log_bytes: u64,
    /// When the next one is due by time.
    due: Option<Time>,
}

impl Checkpointer {
    /// `log_bytes` of log are already behind the last checkpoint.
    pub fn new(log_bytes: u64) -> Checkpointer {
        Checkpointer { parts: VecDeque::new(), out: None, log_bytes, due: None }
    }

    /// An entry was applied.
    pub fn applied(&mut self, now: Time, config: &NodeConfig, bytes: usize) {
        self.log_bytes += bytes as u64;
        let by_time = now + config.checkpoint_interval;
        let due = if self.log_bytes >= config.checkpoint_log_bytes { now } else { by_time };
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }
}

impl NodeCore {
    pub(super) fn checkpoint_due(&self) -> Option<Time> {
        self.checkpoint.due.filter(|_| self.checkpoint.out.is_none())
    }

    pub(super) fn start_checkpoint(&mut self, now: Time) {
        if self.checkpoint_due().is_none_or(|due| due > now) {
            return;
        }
        let applied = self.group.applied();
        self.checkpoint.due = None;
        self.checkpoint.log_bytes = 0;
        self.checkpoint.parts = split(applied, self.group.checkpoint(), self.config.checkpoint_part_bytes);
        self.give_part();
    }

    fn give_part(&mut self) {
        if let Some(part) = self.checkpoint.parts.pop_front() {
            self.checkpoint.out = Some((part.applied, part.last));
            self.outputs.push_back(Output::Persist(part));
        }
    }

    pub(super) fn on_persisted(&mut self) {
        match self.checkpoint.out.take() {
            Some((applied, true)) => self.outputs.push_back(Output::CutLog { before: applied.next() }),
            Some((_, false)) => self.give_part(),
            None => {}
        }
    }
}

/// Rows in parts of about `bytes`.
fn split(applied: LogIndex, rows: Vec<Row>, bytes: usize) -> VecDeque<CheckpointPart> {
    let mut parts = VecDeque::new();
    let mut part = CheckpointPart { applied, rows: Vec::new(), last: false };
    let mut size = 0;
    for row in rows {
        if size >= bytes {
            parts.push_back(std::mem::replace(&mut part, CheckpointPart { applied, rows: Vec::new(), last: false }));
            size = 0;
        }
        size += row.0.len() + row.1.len();
        part.rows.push(row);
    }
    part.last = true;
    parts.push_back(part);
    parts
}
