//! The log of a group as its host sees it: on this node alone, or on several.

use crate::storage::{self, Progress, RowsError};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemark_consensus::local::{self, LocalLog};
use tidemark_consensus::replica::{self, Event, Position, Replica, SubmitError};
use tidemark_proto::ids::LogIndex;
use tidemark_proto::node::{CheckpointPart, NodeConfig, NodeCore};
use tokio::sync::mpsc;

/// A group's log.
pub enum GroupLog {
    Alone(Box<LocalLog>, Arc<Progress>),
    Shared(Box<SharedLog>),
}

/// Why a log refuses a part of a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum PartRefused {
    #[error("nothing is committed that it could stand for")]
    NothingCommitted,
    #[error(transparent)]
    Alone(#[from] local::CheckpointError),
    #[error(transparent)]
    Shared(#[from] replica::CheckpointError),
}

/// The news of a log.
pub enum News {
    /// More is durable, or the log has failed: see its [`Progress`].
    Progress,
    Replica(Event),
}

/// A log on several nodes.
pub struct SharedLog {
    pub replica: Replica,
    pub events: mpsc::Receiver<Event>,
    /// Of the last event taken.
    pub position: Option<Position>,
    /// Under which this node leads.
    pub leadership: Option<u64>,
    /// Bytes of memory that buckets may take.
    buckets_bytes_max: usize,
    /// The checkpoint that is being persisted: what it has applied, and the position that it stands for.
    checkpoint: Option<(LogIndex, Position)>,
    /// A part of it for which the log had no room.
    waiting: Option<replica::CheckpointPart>,
}

impl SharedLog {
    pub fn new(opened: replica::Opened, buckets_bytes_max: usize) -> SharedLog {
        let replica::Opened { replica, events, position } = opened;
        SharedLog { replica, events, position, leadership: None, buckets_bytes_max, checkpoint: None, waiting: None }
    }

    /// The core of the rows that the log was opened with.
    pub fn core(&self, config: NodeConfig) -> Result<NodeCore, RowsError> {
        storage::replica_core(config, self.replica.reader(self.position.as_ref()), self.buckets_bytes_max)
    }

    /// The core of rows that took the place of those before, of which nothing is read any more.
    pub fn restore(&mut self, position: Position, config: NodeConfig) -> Result<NodeCore, RowsError> {
        (self.position, self.checkpoint, self.waiting) = (Some(position), None, None);
        self.core(config)
    }

    /// A checkpoint stands for all that was taken when its first part was made; the others come later.
    fn position_of(&mut self, applied: LogIndex) -> Option<Position> {
        if self.checkpoint.as_ref().is_none_or(|(begun, _)| *begun != applied) {
            self.checkpoint = self.position.clone().map(|position| (applied, position));
        }
        self.checkpoint.as_ref().map(|(_, position)| position.clone())
    }

    fn checkpoint(&mut self, part: CheckpointPart) -> Result<bool, PartRefused> {
        let position = self.position_of(part.applied).ok_or(PartRefused::NothingCommitted)?;
        if part.last {
            self.checkpoint = None;
        }
        self.hand_in(replica::CheckpointPart { position, last: part.last, rows: storage::rows(part.rows) })
    }

    fn hand_in(&mut self, part: replica::CheckpointPart) -> Result<bool, PartRefused> {
        match self.replica.checkpoint(part.clone()) {
            // The rows that replaced them are about to be told of.
            Ok(()) | Err(replica::CheckpointError::Replaced) => Ok(true),
            Err(replica::CheckpointError::Submit(SubmitError::Overloaded { .. })) => {
                self.waiting = Some(part);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl GroupLog {
    /// Waits for news. May be cancelled. `None`: the log has ended.
    pub async fn news(&mut self) -> Option<News> {
        match self {
            GroupLog::Alone(_, progress) => {
                progress.changed.notified().await;
                Some(News::Progress)
            }
            GroupLog::Shared(shared) => shared.events.recv().await.map(News::Replica),
        }
    }

    /// Whether it is on several nodes.
    pub fn is_shared(&self) -> bool {
        matches!(self, GroupLog::Shared(_))
    }

    /// The nodes that hold it; none if that is this node only.
    pub fn holders(&self) -> Vec<u16> {
        match self {
            GroupLog::Alone(..) => Vec::new(),
            GroupLog::Shared(shared) => shared.replica.holders().into_iter().map(|node| node as u16).collect(),
        }
    }

    /// Whether a leader is known, and all that is known to be committed was handed to the host. A log on this node alone is read before
    /// anything is served.
    pub fn is_caught_up(&self) -> bool {
        let GroupLog::Shared(shared) = self else { return true };
        let metrics = shared.replica.metrics().get();
        let is_applied = metrics.committed.is_some() && metrics.applied >= metrics.committed;
        metrics.leader.is_some() && is_applied && shared.events.is_empty()
    }

    /// Hands entries to the log. Entries that are lost on the way in a log on several nodes are made good by its next leader.
    pub fn append(&self, entries: Vec<Bytes>) {
        match self {
            GroupLog::Alone(log, _) => log_failure("append", log.append(entries).err()),
            GroupLog::Shared(shared) => {
                let Some(leadership) = shared.leadership else { return };
                let mut submitted = entries.into_iter().map(|entry| shared.replica.submit(leadership, vec![entry]));
                // Behind one that is lost, none counts.
                if let Err(error) = submitted.try_for_each(|submitted| submitted) {
                    tracing::debug!(%error, "entries not taken by the group's log");
                }
            }
        }
    }

    /// Hands in one part of a checkpoint. Whether it was taken: else it is to be tried again ([`GroupLog::checkpoint_again`]) before the next one.
    /// An error says why it was refused.
    pub fn checkpoint(&mut self, part: CheckpointPart) -> Result<bool, PartRefused> {
        match self {
            GroupLog::Alone(log, _) => {
                let rows = storage::rows(part.rows);
                let part = local::CheckpointPart { applied: part.applied.0, last: part.last, rows };
                log.checkpoint(part)?;
                Ok(true)
            }
            GroupLog::Shared(shared) => shared.checkpoint(part),
        }
    }

    /// Hands in the part that waits once more; whether it is the last one, if it was taken. Where none waits, as if the last one was.
    pub fn checkpoint_again(&mut self) -> Result<Option<bool>, PartRefused> {
        let GroupLog::Shared(shared) = self else { return Ok(Some(true)) };
        let Some(part) = shared.waiting.take() else { return Ok(Some(true)) };
        let last = part.last;
        Ok(shared.hand_in(part)?.then_some(last))
    }

    /// Entries below are no longer needed; a log on several nodes knows that from its checkpoints.
    pub fn cut(&self, before: LogIndex) {
        if let GroupLog::Alone(log, _) = self {
            log_failure("cut", log.truncate_before(before.0).err());
        }
    }

    /// No news is taken any more. Its member, which others still talk to, is about to be shut down.
    pub fn end(self) {
        if let GroupLog::Shared(shared) = &self {
            shared.replica.silence();
        }
    }

    /// The first command of a log on several nodes, as it is on disk.
    pub fn first_command(&self) -> Option<Bytes> {
        let GroupLog::Shared(shared) = self else { return None };
        shared.replica.first_command()
    }

    /// Durable commits since the start.
    pub fn commits(&self) -> u64 {
        let stats = match self {
            GroupLog::Alone(log, _) => log.stats(),
            GroupLog::Shared(shared) => shared.replica.disk_stats(),
        };
        stats.commits.load(Ordering::Relaxed)
    }
}

fn log_failure<E: std::fmt::Display>(what: &str, error: Option<E>) {
    if let Some(error) = error {
        tracing::error!(%error, "{what} refused by the log");
    }
}
