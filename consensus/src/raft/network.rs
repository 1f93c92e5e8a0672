//! openraft's network on a [`RaftTransport`]: calls for single messages, one ordered stream per follower for entries.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, Stream, StreamExt, TryStreamExt, stream};
use openraft::errors::{
    NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable as RaftUnreachable,
};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, VoteRequest, VoteResponse,
};
use openraft::raft::{TransferLeaderRequest, TransferLeaderResponse};
use openraft::{AsyncRuntime, EmptyNode, RPCTypes};
use rand::RngExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::Config;
use super::node::MetricsWatch;
use super::runtime::Runtime;
use super::snapshot::SnapshotBody;
use super::transport::{CallKind, DUPLEX_MESSAGES_MAX, Duplex, RaftTransport, ServeError, Unreachable};
use super::types::{LogId, SnapshotOf, TypeConfig, Vote};
use super::wire::{self, SnapshotInstall};

type RpcError = RPCError<TypeConfig>;
type AppendRequest = AppendEntriesRequest<TypeConfig>;
type AppendResult = StreamAppendResult<TypeConfig>;

/// Pieces of a snapshot that travel at the same time.
const SNAPSHOT_CHUNKS_IN_FLIGHT: usize = 8;

/// Makes a [`Peer`] for each member that openraft talks to; `B` is what a snapshot is.
pub struct Network<B> {
    id: u64,
    transport: Arc<dyn RaftTransport>,
    limits: Limits,
    /// Set when the member has started.
    metrics: Arc<OnceLock<MetricsWatch>>,
    body: PhantomData<fn() -> B>,
}

impl<B> Network<B> {
    /// The network of a member; the member's metrics are put in when it has started.
    pub(crate) fn new(
        id: u64,
        transport: Arc<dyn RaftTransport>,
        config: &Config,
        metrics: Arc<OnceLock<MetricsWatch>>,
    ) -> Self {
        Self { id, transport, limits: Limits::new(config), metrics, body: PhantomData }
    }
}

#[derive(Clone, Copy)]
struct Limits {
    message_bytes_max: usize,
    window_bytes_max: usize,
    snapshot_chunk_bytes: usize,
    stall: Duration,
    learner_heartbeats: u32,
}

impl Limits {
    fn new(config: &Config) -> Self {
        Self {
            message_bytes_max: config.message_bytes_max,
            window_bytes_max: config.window_bytes_max,
            snapshot_chunk_bytes: config.snapshot_chunk_bytes,
            stall: Duration::from_millis(config.stall_ms),
            learner_heartbeats: config.learner_heartbeats,
        }
    }
}

impl<B: SnapshotBody> RaftNetworkFactory<TypeConfig> for Network<B> {
    type Network = Peer<B>;

    async fn new_client(&mut self, target: u64, _node: &EmptyNode) -> Peer<B> {
        Peer {
            id: self.id,
            target,
            transport: self.transport.clone(),
            limits: self.limits,
            metrics: self.metrics.clone(),
            quiet: None,
            body: PhantomData,
        }
    }
}

/// The way to one other member.
pub struct Peer<B> {
    id: u64,
    target: u64,
    transport: Arc<dyn RaftTransport>,
    limits: Limits,
    metrics: Arc<OnceLock<MetricsWatch>>,
    /// The last heartbeat, if it was agreed to, and how many like it were not sent since.
    quiet: Option<(AppendRequest, u32)>,
    body: PhantomData<fn() -> B>,
}

impl<B: SnapshotBody> Peer<B> {
    async fn call<Q: Serialize, A: DeserializeOwned>(&self, kind: CallKind, request: &Q) -> Result<A, RpcError> {
        let answer = self.transport.call(self.target, kind, wire::encode(request)).await.map_err(unreachable)?;
        wire::decode(&answer, self.limits.message_bytes_max).map_err(garbled)
    }

    async fn call_within<Q: Serialize, A: DeserializeOwned>(
        &self,
        kind: CallKind,
        request: &Q,
        limit: Duration,
    ) -> Result<A, RpcError> {
        let answer = tokio::time::timeout(limit, self.call(kind, request)).await;
        answer.unwrap_or_else(|_| Err(self.timed_out(rpc_type(kind), limit)))
    }

    fn timed_out(&self, action: RPCTypes, timeout: Duration) -> RpcError {
        RPCError::Timeout(Timeout { action, id: self.id, target: self.target, timeout })
    }

    async fn send_snapshot(
        &self,
        vote: Vote,
        snapshot: SnapshotOf<B>,
    ) -> Result<SnapshotResponse<TypeConfig>, RpcError> {
        // Not counted: pieces of an earlier life of this process may be all that the other side has, and belong to another snapshot.
        let transfer = Runtime::thread_rng().random();
        let pieces = snapshot.snapshot.pieces(transfer, self.limits.snapshot_chunk_bytes);
        let sending = stream::iter(pieces).map(|piece| async move { self.send_piece(piece).await });
        sending.buffer_unordered(SNAPSHOT_CHUNKS_IN_FLIGHT).try_collect::<()>().await?;
        self.call(CallKind::SnapshotInstall, &SnapshotInstall { transfer, vote, meta: snapshot.meta }).await
    }

    async fn send_piece(&self, piece: io::Result<Bytes>) -> Result<(), RpcError> {
        let piece = piece.map_err(|error| RPCError::Network(NetworkError::new(&error)))?;
        let limit = self.limits.stall * 4;
        let sent = tokio::time::timeout(limit, self.transport.call(self.target, CallKind::SnapshotChunk, piece)).await;
        let answer = sent.map_err(|_| self.timed_out(RPCTypes::InstallSnapshot, limit))?.map_err(unreachable)?;
        wire::decode(&answer, self.limits.message_bytes_max).map_err(garbled)
    }
}

impl<B: SnapshotBody> RaftNetworkV2<TypeConfig> for Peer<B> {
    type SnapshotData = B;

    async fn append_entries(
        &mut self,
        request: AppendRequest,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RpcError> {
        self.call_within(CallKind::Append, &request, option.hard_ttl()).await
    }

    /// A lone message (a heartbeat, a probe) goes as a call; as soon as a second one may follow, a stream is opened.
    fn stream_append<'s, S>(
        &'s mut self,
        mut input: S,
        _option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Result<AppendResult, RpcError>>, RpcError>>
    where
        S: Stream<Item = AppendRequest> + Send + Unpin + 'static,
    {
        async move {
            let Some(first) = input.next().await else {
                return Ok(stream::empty().boxed());
            };
            match input.next().now_or_never() {
                Some(None) => Ok(stream::once(async move { self.append_alone(first).await }).boxed()),
                Some(Some(second)) => self.append_stream(vec![first, second], input).await,
                None => self.append_stream(vec![first], input).await,
            }
        }
        .boxed()
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        self.call_within(CallKind::Vote, &request, option.soft_ttl()).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        self.call_within(CallKind::PreVote, &request, option.soft_ttl()).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<B>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        tokio::select! {
            biased;
            closed = cancel => Err(closed.into()),
            sent = tokio::time::timeout(option.soft_ttl(), self.send_snapshot(vote, snapshot)) => {
                let late = || Err(self.timed_out(RPCTypes::InstallSnapshot, option.soft_ttl()));
                sent.unwrap_or_else(|_| late()).map_err(to_streaming)
            }
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RpcError> {
        self.call_within(CallKind::TransferLeader, &request, option.soft_ttl()).await
    }
}

impl<B: SnapshotBody> Peer<B> {
    async fn append_alone(&mut self, request: AppendRequest) -> Result<AppendResult, RpcError> {
        let previous = request.prev_log_id;
        let last = last_log_id(&request);
        let answer = match self.need_not_send(&request) {
            true => AppendEntriesResponse::Success,
            false => {
                self.quiet = None;
                let sent = self.call_within(CallKind::Append, &request, self.limits.stall).await?;
                let agreed = request.entries.is_empty() && matches!(sent, AppendEntriesResponse::Success);
                self.quiet = agreed.then_some((request, 0));
                sent
            }
        };
        Ok(answer.into_stream_result(previous, last))
    }

    /// A heartbeat to a learner that says nothing new: it counts for no majority and never stands for election, so that most of
    /// these can be left out.
    fn need_not_send(&mut self, request: &AppendRequest) -> bool {
        let Some((said, left_out)) = &mut self.quiet else { return false };
        let is_voter = self.metrics.get().is_none_or(|metrics| metrics.is_voter(self.target));
        let says = |request: &AppendRequest| (request.vote, request.prev_log_id, request.leader_commit);
        let says_nothing_new = request.entries.is_empty() && says(request) == says(said);
        let leave_out = says_nothing_new && !is_voter && *left_out + 1 < self.limits.learner_heartbeats;
        *left_out += u32::from(leave_out);
        leave_out
    }

    async fn append_stream<'s, S>(
        &'s mut self,
        first: Vec<AppendRequest>,
        input: S,
    ) -> Result<BoxStream<'s, Result<AppendResult, RpcError>>, RpcError>
    where
        S: Stream<Item = AppendRequest> + Send + Unpin + 'static,
    {
        let duplex = self.transport.open(self.target).await.map_err(unreachable)?;
        let input = stream::iter(first).chain(input).fuse();
        let pipeline = Pipeline { peer: self, duplex, input, unanswered: VecDeque::new(), unanswered_bytes: 0 };
        Ok(stream::unfold(Some(pipeline), |pipeline| async move { pipeline?.next().await }).boxed())
    }
}

/// Entries on their way to one follower. Answers come in the order of the requests.
struct Pipeline<'s, S, B> {
    peer: &'s Peer<B>,
    duplex: Duplex,
    input: S,
    unanswered: VecDeque<Unanswered>,
    unanswered_bytes: usize,
}

struct Unanswered {
    sent_at: Instant,
    bytes: usize,
}

impl<S, B> Pipeline<'_, S, B>
where
    S: Stream<Item = AppendRequest> + futures_util::stream::FusedStream + Send + Unpin,
    B: SnapshotBody,
{
    /// Sends what there is until the next answer. An error or the end of both directions ends the stream.
    async fn next(mut self) -> Option<(Result<AppendResult, RpcError>, Option<Self>)> {
        match self.drive().await {
            Ok(Some(answer)) => Some((Ok(answer), Some(self))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    }

    async fn drive(&mut self) -> Result<Option<AppendResult>, RpcError> {
        loop {
            let waiting = !self.unanswered.is_empty();
            if !waiting && self.input.is_terminated() {
                return Ok(None);
            }
            let oldest = self.unanswered.front().map_or_else(Instant::now, |unanswered| unanswered.sent_at);
            let deadline = oldest + self.peer.limits.stall;
            tokio::select! {
                biased;
                answer = self.duplex.receiver.recv(), if waiting => return self.on_answer(answer).map(Some),
                request = self.input.next(), if self.may_send() => {
                    if let Some(request) = request {
                        self.send(&request).await?;
                    }
                }
                () = tokio::time::sleep_until(deadline), if waiting => {
                    return Err(self.peer.timed_out(RPCTypes::AppendEntries, self.peer.limits.stall));
                }
            }
        }
    }

    fn may_send(&self) -> bool {
        let room = self.unanswered.len() < DUPLEX_MESSAGES_MAX;
        room && self.unanswered_bytes < self.peer.limits.window_bytes_max && !self.input.is_terminated()
    }

    fn on_answer(&mut self, answer: Option<Bytes>) -> Result<AppendResult, RpcError> {
        let answer = answer.ok_or_else(|| self.broken())?;
        self.unanswered_bytes -= self.unanswered.pop_front().map_or(0, |unanswered| unanswered.bytes);
        wire::decode(&answer, self.peer.limits.message_bytes_max).map_err(garbled)
    }

    async fn send(&mut self, request: &AppendRequest) -> Result<(), RpcError> {
        let message = wire::encode(request);
        let bytes = message.len();
        let sending = self.duplex.sender.send(message);
        let stalled = || self.peer.timed_out(RPCTypes::AppendEntries, self.peer.limits.stall);
        let sent = tokio::time::timeout(self.peer.limits.stall, sending).await.map_err(|_| stalled())?;
        sent.map_err(|_| self.broken())?;
        self.unanswered.push_back(Unanswered { sent_at: Instant::now(), bytes });
        self.unanswered_bytes += bytes;
        Ok(())
    }

    fn broken(&self) -> RpcError {
        unreachable(Unreachable { target: self.peer.target, reason: "the append stream broke".into() })
    }
}

fn last_log_id(request: &AppendRequest) -> Option<LogId> {
    request.entries.last().map(|entry| entry.log_id).or(request.prev_log_id)
}

fn unreachable(error: Unreachable) -> RpcError {
    RPCError::Unreachable(RaftUnreachable::new(&error))
}

fn garbled(error: ServeError) -> RpcError {
    RPCError::Network(NetworkError::new(&error))
}

fn to_streaming(error: RpcError) -> StreamingError<TypeConfig> {
    match error {
        RPCError::Timeout(error) => error.into(),
        RPCError::Unreachable(error) => error.into(),
        RPCError::Network(error) => error.into(),
        RPCError::RemoteError(error) => match error.source {},
    }
}

fn rpc_type(kind: CallKind) -> RPCTypes {
    match kind {
        CallKind::Append => RPCTypes::AppendEntries,
        CallKind::Vote | CallKind::PreVote | CallKind::Knows | CallKind::Greet | CallKind::ReadIndex => RPCTypes::Vote,
        CallKind::SnapshotChunk | CallKind::SnapshotInstall => RPCTypes::InstallSnapshot,
        CallKind::TransferLeader => RPCTypes::TransferLeader,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use openraft::Vote as RaftVote;

    use super::super::wire::SnapshotChunk;
    use super::*;

    /// Takes the first piece of each snapshot and then nothing.
    #[derive(Default)]
    struct FirstPieces(Mutex<Vec<SnapshotChunk>>);

    impl RaftTransport for FirstPieces {
        fn call(&self, target: u64, _: CallKind, request: Bytes) -> BoxFuture<'_, Result<Bytes, Unreachable>> {
            let piece = wire::decode(&request, request.len()).expect("a piece");
            self.0.lock().expect("a test panicked").push(piece);
            async move { Err(Unreachable { target, reason: "cut".to_owned() }) }.boxed()
        }

        fn open(&self, target: u64) -> BoxFuture<'_, Result<Duplex, Unreachable>> {
            async move { Err(Unreachable { target, reason: "cut".to_owned() }) }.boxed()
        }
    }

    #[tokio::test]
    async fn a_snapshot_does_not_go_on_where_one_of_an_earlier_life_was_cut() {
        let transport = Arc::new(FirstPieces::default());
        for life in [b"first", b"after"] {
            let network =
                &mut Network::<Bytes>::new(1, transport.clone(), &Config::new("demo", "ledger"), Arc::default());
            let peer = network.new_client(2, &EmptyNode {}).await;
            let snapshot = SnapshotOf { meta: Default::default(), snapshot: Bytes::from_static(life) };
            let vote = RaftVote::new(1, 1);
            peer.send_snapshot(vote, snapshot).await.expect_err("it is cut");
        }
        let pieces = transport.0.lock().expect("a test panicked");
        let [first, after] = &pieces[..] else { panic!("{pieces:?}") };
        assert_eq!((first.data.as_ref(), after.data.as_ref()), (&b"first"[..], &b"after"[..]));
        assert_ne!(first.transfer, after.transfer, "the other side would take them for parts of one");
    }
}
