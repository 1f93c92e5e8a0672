//! Checkpoints: when one is due, giving out its parts one at a time, cutting the log behind it.

use crate::group::{AGAIN_AFTER, Row};
use crate::node::{NodeConfig, NodeCore, Output};
use tidemark_types::ids::LogIndex;
use tidemark_types::time::Time;

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
    /// The applied entry that the present checkpoint stands for.
    applied: LogIndex,
    /// The part given out and not yet persisted: its index, and whether it is the last.
    out: Option<(LogIndex, bool)>,
    log_bytes: u64,
    /// When the next one is due by time.
    due: Option<Time>,
    /// It is due soon once anything is applied: more is to leave memory than the last one took.
    hurries: bool,
}

impl Checkpointer {
    /// `log_bytes` of log are already behind the last checkpoint.
    pub fn new(log_bytes: u64) -> Checkpointer {
        Checkpointer { applied: LogIndex(0), out: None, log_bytes, due: None, hurries: false }
    }

    /// An entry was applied.
    pub fn applied(&mut self, now: Time, config: &NodeConfig, bytes: usize) {
        self.log_bytes += bytes as u64;
        let interval = config.checkpoint_interval;
        let by_time = now + if self.hurries { interval.min(AGAIN_AFTER) } else { interval };
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
        self.checkpoint.applied = self.group.applied();
        self.checkpoint.due = None;
        self.checkpoint.log_bytes = 0;
        self.group.begin_checkpoint();
        self.give_part();
    }

    fn give_part(&mut self) {
        let applied = self.checkpoint.applied;
        let rows = self.group.next_rows(self.config.checkpoint_part_bytes);
        let last = !self.group.is_making_checkpoint();
        self.checkpoint.out = Some((applied, last));
        self.outputs.push_back(Output::Persist(CheckpointPart { applied, rows, last }));
    }

    pub(super) fn on_persisted(&mut self) {
        match self.checkpoint.out.take() {
            Some((applied, true)) => {
                self.checkpoint.hurries = self.group.checkpoint_persisted();
                self.outputs.push_back(Output::CutLog { before: applied.next() });
            }
            Some((_, false)) => self.give_part(),
            None => {}
        }
    }
}
