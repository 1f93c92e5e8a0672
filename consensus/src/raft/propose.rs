//! From many concurrent proposals to few log entries.
//!
//! One task gathers waiting proposals into an entry and sends it on without waiting for the previous entry. While few entries are in flight
//! a proposal leaves at once; when `entries_in_flight_max` are, proposals gather into bigger entries.

use std::sync::Arc;

use bytes::Bytes;
use openraft::Raft;
use openraft::errors::ClientWriteError;
use openraft::impls::ProgressResponder;
use openraft::raft::ClientWriteResult;
use openraft::storage::RaftStateMachine;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::Config;
use super::types::{Batch, LeaderId, TypeConfig};

/// Why a proposal has no index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// This member does not lead; nothing was appended. Try the leader.
    #[error("this member is not the leader; the leader is {leader:?}")]
    NotLeader {
        /// The leader, if known.
        leader: Option<u64>,
    },
    /// Too many proposals wait or are in flight; nothing was appended. Try again later.
    #[error("{limit} proposals are waiting already")]
    Overloaded {
        /// `proposals_max`.
        limit: usize,
    },
    /// The proposal does not fit into an entry; nothing was appended.
    #[error("a proposal of {bytes} bytes exceeds the limit of {limit}")]
    TooLong {
        /// Its packed size.
        bytes: usize,
        /// `entry_bytes_max`.
        limit: usize,
    },
    /// There is no command in it.
    #[error("a proposal needs a command")]
    Empty,
    /// Leadership was lost on the way: it may or may not be committed later, so the caller must be able to retry
    /// without counting twice.
    #[error("leadership was lost while the proposal was in flight; its outcome is unknown")]
    Unknown {
        /// The present leader, if known.
        leader: Option<u64>,
    },
    /// This member has stopped; as with `Unknown`, a proposal in flight may be committed.
    #[error("the member has stopped")]
    Stopped,
}

/// The result of a proposal; may be dropped.
type Outcome = oneshot::Receiver<Result<u64, ProposeError>>;

/// A time in which a member leads. Commands that were submitted under it never enter the log after it has ended.
#[derive(Debug)]
pub(crate) struct Reign {
    /// The leader and its term.
    pub leader: LeaderId,
    /// Taken while something enters the log.
    lasts: Mutex<bool>,
}

impl Reign {
    pub fn new(leader: LeaderId) -> Reign {
        Reign { leader, lasts: Mutex::new(true) }
    }

    /// From here on nothing more enters the log under it. It ends with the first proposal that openraft refuses. That happens when no
    /// majority has answered for as long as a lease, which is shorter than its leader's patience: later proposals would leave a gap.
    pub async fn end(&self) {
        *self.lasts.lock().await = false;
    }

    pub async fn is_over(&self) -> bool {
        !*self.lasts.lock().await
    }
}

struct Waiting {
    commands: Vec<Bytes>,
    /// Proposals that share an entry share this.
    reign: Option<Arc<Reign>>,
    answer: oneshot::Sender<Result<u64, ProposeError>>,
    _permit: OwnedSemaphorePermit,
}

/// The entrance for proposals.
#[derive(Clone)]
pub(crate) struct Proposer {
    queue: mpsc::Sender<Waiting>,
    permits: Arc<Semaphore>,
    proposals_max: usize,
    entry_bytes_max: usize,
}

impl Proposer {
    pub fn start<M: RaftStateMachine<TypeConfig>>(raft: Raft<TypeConfig, M>, config: &Config) -> Self {
        let (queue, waiting) = mpsc::channel(config.proposals_max);
        let in_flight = Arc::new(Semaphore::new(config.entries_in_flight_max));
        let gatherer = Gatherer { raft, waiting, held: None, in_flight, entry_bytes_max: config.entry_bytes_max };
        tokio::spawn(gatherer.run());
        Self {
            queue,
            permits: Arc::new(Semaphore::new(config.proposals_max)),
            proposals_max: config.proposals_max,
            entry_bytes_max: config.entry_bytes_max,
        }
    }

    /// Puts a proposal into the queue; its result comes with the answer.
    pub fn submit(&self, commands: Vec<Bytes>) -> Result<Outcome, ProposeError> {
        self.submit_under(None, commands)
    }

    /// As [`Proposer::submit`], unless the reign has ended.
    pub fn submit_under(&self, reign: Option<Arc<Reign>>, commands: Vec<Bytes>) -> Result<Outcome, ProposeError> {
        self.check(&commands)?;
        let limit = self.proposals_max;
        let permit = self.permits.clone().try_acquire_owned().map_err(|_| ProposeError::Overloaded { limit })?;
        let (answer, outcome) = oneshot::channel();
        let waiting = Waiting { commands, reign, answer, _permit: permit };
        self.queue.try_send(waiting).map_err(|error| match error {
            TrySendError::Full(_) => ProposeError::Overloaded { limit },
            TrySendError::Closed(_) => ProposeError::Stopped,
        })?;
        Ok(outcome)
    }

    pub async fn propose(&self, commands: Vec<Bytes>) -> Result<u64, ProposeError> {
        self.submit(commands)?.await.unwrap_or(Err(ProposeError::Stopped))
    }

    fn check(&self, commands: &[Bytes]) -> Result<(), ProposeError> {
        let bytes = packed_bytes(commands);
        let limit = self.entry_bytes_max;
        if bytes > limit {
            return Err(ProposeError::TooLong { bytes, limit });
        }
        if commands.is_empty() { Err(ProposeError::Empty) } else { Ok(()) }
    }
}

struct Gatherer<M: RaftStateMachine<TypeConfig>> {
    raft: Raft<TypeConfig, M>,
    waiting: mpsc::Receiver<Waiting>,
    /// Taken from the queue, but did not fit into the last entry.
    held: Option<Waiting>,
    in_flight: Arc<Semaphore>,
    entry_bytes_max: usize,
}

impl<M: RaftStateMachine<TypeConfig>> Gatherer<M> {
    async fn run(mut self) {
        while let Some(first) = self.first().await {
            let permit = self.in_flight.clone().acquire_owned().await.expect("never closed");
            let proposals = self.gather(first);
            if self.send(proposals, permit).await.is_err() {
                return;
            }
        }
    }

    async fn first(&mut self) -> Option<Waiting> {
        match self.held.take() {
            Some(held) => Some(held),
            None => self.waiting.recv().await,
        }
    }

    fn gather(&mut self, first: Waiting) -> Vec<Waiting> {
        let mut bytes = packed_bytes(&first.commands);
        let mut proposals = vec![first];
        while let Ok(next) = self.waiting.try_recv() {
            bytes += packed_bytes(&next.commands);
            if bytes > self.entry_bytes_max || !next.is_under(&proposals[0].reign) {
                self.held = Some(next);
                break;
            }
            proposals.push(next);
        }
        proposals
    }

    async fn send(&self, proposals: Vec<Waiting>, permit: OwnedSemaphorePermit) -> Result<(), ProposeError> {
        let batch = Batch::pack(proposals.iter().flat_map(|waiting| &waiting.commands));
        let (responder, outcome) = ProgressResponder::complete_only();
        match proposals[0].reign.clone() {
            None => self.raft.client_write_ff(batch, Some(responder)).await.map_err(|_| ProposeError::Stopped)?,
            Some(reign) => {
                let lasts = reign.lasts.lock().await;
                if !*lasts {
                    answer(proposals, &Err(ProposeError::NotLeader { leader: None }));
                    return Ok(());
                }
                let write = self.raft.write(batch).with_leader(reign.leader).responder(responder);
                write.await.map_err(|_| ProposeError::Stopped)?;
            }
        }
        tokio::spawn(async move {
            let outcome = outcome.await.map_or(Err(ProposeError::Stopped), to_index);
            if let (Err(_), Some(reign)) = (&outcome, &proposals[0].reign) {
                reign.end().await;
            }
            drop(permit);
            answer(proposals, &outcome);
        });
        Ok(())
    }
}

impl Waiting {
    fn is_under(&self, reign: &Option<Arc<Reign>>) -> bool {
        self.reign.as_ref().map(Arc::as_ptr) == reign.as_ref().map(Arc::as_ptr)
    }
}

fn answer(proposals: Vec<Waiting>, outcome: &Result<u64, ProposeError>) {
    for waiting in proposals {
        let _ = waiting.answer.send(outcome.clone());
    }
}

fn to_index(result: ClientWriteResult<TypeConfig>) -> Result<u64, ProposeError> {
    match result {
        Ok(response) => Ok(response.log_id.index()),
        Err(ClientWriteError::ForwardToLeader(forward)) => Err(ProposeError::NotLeader { leader: forward.leader_id }),
        Err(ClientWriteError::LogEntryDiscarded(forward)) => Err(ProposeError::Unknown { leader: forward.leader_id }),
        Err(ClientWriteError::ChangeMembershipError(_) | ClientWriteError::PreconditionFailed(_)) => {
            unreachable!("a plain write changes no membership and has no precondition")
        }
    }
}

fn packed_bytes(commands: &[Bytes]) -> usize {
    commands.iter().map(|command| Batch::packed_bytes(command)).sum()
}
