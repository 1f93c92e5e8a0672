//! The receiving side: messages of other members, decoded, checked and handed to openraft.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt, pin_mut, stream};
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::Fatal;
use openraft::raft::TransferLeaderRequest;
use openraft::raft::{AppendEntriesRequest, VoteRequest};
use openraft::storage::RaftStateMachine;
use openraft::vote::RaftLeaderId;
use openraft::{Raft, ReadPolicy};

use super::snapshot::{SnapshotInbox, malformed};
use super::transport::{CallKind, Duplex, RaftService, ServeError};
use super::types::{SnapshotOf, TypeConfig, Vote};
use super::wire::{self, SnapshotInstall};

/// Of the first entry, which names the voters.
const FOUNDING_INDEX: u64 = 0;

/// Serves other members of one group.
pub(crate) struct Server<M: RaftStateMachine<TypeConfig>, I> {
    raft: Raft<TypeConfig, M>,
    message_bytes_max: usize,
    inbox: I,
    keeps_number: bool,
}

impl<M: RaftStateMachine<TypeConfig>, I: SnapshotInbox<Body = M::SnapshotData>> Server<M, I> {
    pub fn new(raft: Raft<TypeConfig, M>, message_bytes_max: usize, inbox: I) -> Self {
        Self { raft, message_bytes_max, inbox, keeps_number: false }
    }

    /// A member of this group has the same number on another disk. So a member without a log, which may have voted and acknowledged on an
    /// earlier disk, votes for no candidate but the founder of the group.
    pub fn keeping_numbers(self) -> Self {
        Self { keeps_number: true, ..self }
    }

    async fn answer(&self, from: u64, kind: CallKind, request: &[u8]) -> Result<Bytes, ServeError> {
        match kind {
            CallKind::Append => self.on_append(from, request).await,
            CallKind::Vote => self.on_vote(from, request).await,
            CallKind::PreVote => self.on_pre_vote(from, request).await,
            CallKind::SnapshotChunk => self.on_chunk(from, request).await,
            CallKind::SnapshotInstall => self.on_install(from, request).await,
            CallKind::TransferLeader => self.on_transfer(from, request).await,
            CallKind::Knows => Ok(wire::encode(&self.raft.is_initialized().await.map_err(stopped)?)),
            CallKind::ReadIndex => Ok(wire::encode(&self.read_index().await)),
            CallKind::Greet => Err(ServeError::NotServed { kind }),
        }
    }

    /// The committed index of the log, confirmed by a majority; none from a member that does not lead.
    async fn read_index(&self) -> Option<u64> {
        let linearizer = self.raft.get_read_linearizer(ReadPolicy::ReadIndex).await;
        linearizer.ok().map(|linearizer| linearizer.read_log_id().index())
    }

    async fn on_append(&self, from: u64, request: &[u8]) -> Result<Bytes, ServeError> {
        let request = decode_append(from, request, self.message_bytes_max)?;
        let answer = self.raft.append_entries(request).await;
        Ok(wire::encode(&answer.map_err(stopped)?))
    }

    async fn on_vote(&self, from: u64, request: &[u8]) -> Result<Bytes, ServeError> {
        let request = self.decode_vote(from, request)?;
        Ok(wire::encode(&self.raft.vote(request).await.map_err(stopped)?))
    }

    async fn on_pre_vote(&self, from: u64, request: &[u8]) -> Result<Bytes, ServeError> {
        let request = self.decode_vote(from, request)?;
        Ok(wire::encode(&self.raft.pre_vote(request).await.map_err(stopped)?))
    }

    fn decode_vote(&self, from: u64, request: &[u8]) -> Result<VoteRequest<TypeConfig>, ServeError> {
        let request: VoteRequest<TypeConfig> = wire::decode(request, self.message_bytes_max)?;
        check_sender(from, &request.vote)?;
        let founds = request.last_log_id.is_none_or(|last| last.index() == FOUNDING_INDEX);
        if self.keeps_number && !founds && self.raft.metrics().borrow_watched().last_log_index.is_none() {
            return Err(ServeError::Blank);
        }
        Ok(request)
    }

    async fn on_chunk(&self, from: u64, request: &[u8]) -> Result<Bytes, ServeError> {
        self.inbox.take(from, request).await?;
        Ok(wire::encode(&()))
    }

    async fn on_install(&self, from: u64, request: &[u8]) -> Result<Bytes, ServeError> {
        let install: SnapshotInstall = wire::decode(request, self.message_bytes_max)?;
        check_sender(from, &install.vote)?;
        let snapshot = SnapshotOf { meta: install.meta, snapshot: self.inbox.finish(from, install.transfer)? };
        let answer = self.raft.install_full_snapshot(install.vote, snapshot).await;
        Ok(wire::encode(&answer.map_err(stopped)?))
    }

    async fn on_transfer(&self, from: u64, request: &[u8]) -> Result<Bytes, ServeError> {
        let request: TransferLeaderRequest<TypeConfig> = wire::decode(request, self.message_bytes_max)?;
        check_sender(from, request.from_leader())?;
        Ok(wire::encode(&self.raft.handle_transfer_leader(request).await.map_err(stopped)?))
    }

    async fn serve_stream(&self, from: u64, duplex: Duplex) -> Result<(), ServeError> {
        let Duplex { sender, receiver } = duplex;
        let refused = Arc::default();
        let answers = self.raft.stream_append(requests(self.message_bytes_max, from, receiver, Arc::clone(&refused)));
        pin_mut!(answers);
        while let Some(answer) = answers.next().await {
            let answer = answer.map_err(|error: Fatal<TypeConfig>| stopped(error))?;
            if sender.send(wire::encode(&answer)).await.is_err() {
                break;
            }
        }
        let refused = refused.lock().expect("a handler panicked").take();
        refused.map_or(Ok(()), Err)
    }
}

impl<M: RaftStateMachine<TypeConfig>, I: SnapshotInbox<Body = M::SnapshotData>> RaftService for Server<M, I> {
    fn on_call(&self, from: u64, kind: CallKind, request: Bytes) -> BoxFuture<'_, Result<Bytes, ServeError>> {
        async move { self.answer(from, kind, &request).await }.boxed()
    }

    fn on_stream(&self, from: u64, duplex: Duplex) -> BoxFuture<'_, Result<(), ServeError>> {
        self.serve_stream(from, duplex).boxed()
    }
}

/// Requests of a stream; ends at the first malformed one, which is put into `refused`.
fn requests(
    limit: usize,
    from: u64,
    receiver: tokio::sync::mpsc::Receiver<Bytes>,
    refused: Arc<Mutex<Option<ServeError>>>,
) -> impl Stream<Item = AppendEntriesRequest<TypeConfig>> + Send {
    stream::unfold((receiver, refused), move |(mut receiver, refused)| async move {
        let message = receiver.recv().await?;
        match decode_append(from, &message, limit) {
            Ok(request) => Some((request, (receiver, refused))),
            Err(error) => {
                *refused.lock().expect("a handler panicked") = Some(error);
                None
            }
        }
    })
}

fn decode_append(from: u64, request: &[u8], limit: usize) -> Result<AppendEntriesRequest<TypeConfig>, ServeError> {
    let request: AppendEntriesRequest<TypeConfig> = wire::decode(request, limit)?;
    check_sender(from, &request.vote)?;
    check_entries(&request)?;
    Ok(request)
}

/// A member may speak in its own name only: the transport has authenticated `from`.
fn check_sender(from: u64, vote: &Vote) -> Result<(), ServeError> {
    let claimed = *vote.leader_id().node_id();
    if claimed == from { Ok(()) } else { Err(ServeError::Impostor { from, claimed }) }
}

/// openraft relies on entries that follow each other.
fn check_entries(request: &AppendEntriesRequest<TypeConfig>) -> Result<(), ServeError> {
    let mut next = request.prev_log_id.map_or(0, |log_id| log_id.index().saturating_add(1));
    for entry in &request.entries {
        if entry.log_id.index() != next {
            return Err(malformed("entries do not follow each other"));
        }
        next = next.saturating_add(1);
    }
    Ok(())
}

pub(crate) fn stopped(error: impl std::fmt::Display) -> ServeError {
    ServeError::Stopped { reason: error.to_string() }
}
