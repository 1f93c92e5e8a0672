//! Connections of a node: clients, the data centre's aggregator, other nodes. Each channel of the first two has a reader that
//! decodes and a writer that batches.

use crate::events::{Event, EventSender, Peer};
use crate::neighbours::{Neighbours, serve_call, serve_stream};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tidemark_consensus::raft::RaftService;
use tidemark_proto::ids::OwnerId;
use tidemark_proto::msg::{Admission, ForWhom, KnownGroup, Within};
use tidemark_proto::placement::Placement;
use tidemark_proto::wire::{self, Message, channel};
use tidemark_transport::exchange::{ExchangeError, next_message};
use tidemark_transport::{Channel, Connection, Endpoint, FrameReader, FrameWriter, Refusals, Role};
use tokio::sync::mpsc;
use tracing::field::Empty;
use tracing::{Instrument, Span};

/// Messages that may wait for one connection's writer; a peer that reads slower is disconnected and will ask again.
pub const WRITER_QUEUE_MAX: usize = 4_096;
/// Channels of one connection over its life: those of a group's Raft are opened for each call. They are numbered, each once.
const CHANNELS_PER_CONNECTION_MAX: u64 = 1 << 32;
/// Messages a writer takes at once.
const WRITER_BATCH: usize = 256;

/// Which groups are behind which door.
pub struct Doors {
    pub groups: BTreeMap<u16, EventSender>,
    /// The Raft doors of groups with logs on several nodes.
    pub rafts: BTreeMap<u16, RaftDoor>,
    /// Answers for the groups that this node does not hold.
    pub absent: Arc<dyn RaftService>,
    pub neighbours: Arc<Neighbours>,
    /// The cluster and its era.
    pub cluster: String,
    /// Where the groups are.
    pub placement: Placement,
}

/// Where the Raft of a group is reached, which is another one after the group was founded anew.
#[derive(Clone, Default)]
pub struct RaftDoor(Arc<Mutex<Option<Arc<dyn RaftService>>>>);

impl RaftDoor {
    /// Leads to this one from now on, or nowhere.
    pub fn lead_to(&self, raft: Option<Arc<dyn RaftService>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = raft;
    }

    fn enter(&self) -> Option<Arc<dyn RaftService>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Accepts connections until the endpoint closes.
pub async fn accept_all(endpoint: Endpoint, doors: Arc<Doors>) {
    let mut conn = 0;
    let mut refusals = Refusals::default();
    while let Some(accepted) = endpoint.accept().await {
        match accepted {
            Ok(connection) => {
                conn += CHANNELS_PER_CONNECTION_MAX;
                tokio::spawn(serve(connection, conn, doors.clone()));
            }
            Err(error) => refusals.note(&error),
        }
    }
}

/// Serves the channels of one connection, by the role in its certificate.
async fn serve(connection: Connection, first: u64, doors: Arc<Doors>) {
    for conn in first..first + CHANNELS_PER_CONNECTION_MAX {
        match connection.accept_channel().await {
            Ok((kind, channel)) => {
                let span =
                    tracing::info_span!("channel", number = conn, peer = %connection.peer(), kind, group = Empty);
                let serving = serve_kind(connection.clone(), kind, channel, conn, doors.clone());
                drop(tokio::spawn(serving.instrument(span)));
            }
            Err(error) => return tracing::debug!(%error, peer = %connection.peer(), "connection ended"),
        }
    }
    connection.close("too many channels on one connection");
}

async fn serve_kind(connection: Connection, kind: u8, mut channel: Channel, conn: u64, doors: Arc<Doors>) {
    let peer = connection.peer().clone();
    let neighbour = doors.neighbours.number_of(&peer);
    match (peer.role(), kind, neighbour) {
        // An aggregator counts for callers of its HTTP interface.
        (Role::Client | Role::Aggregator, channel::INCREMENTS, _) | (Role::Aggregator, channel::GROUP, _) => {}
        (Role::Node, channel::GROUP_RAFT_CALL | channel::GROUP_RAFT_STREAM, Some(_)) => {}
        (role, kind, _) => {
            tracing::warn!(?role, kind, peer = %peer, "channel refused");
            return connection.close("this process does not serve that channel to that role");
        }
    }
    let (group, known) = match read_group(&mut channel, kind, &doors.cluster).await {
        Ok(head) => head,
        Err(reason) => {
            tracing::warn!(peer = %peer, %reason, "channel refused");
            return connection.close(&reason.to_string());
        }
    };
    Span::current().record("group", group);
    let raft = doors.rafts.get(&group).map_or_else(|| Some(doors.absent.clone()), RaftDoor::enter);
    match (kind, raft, neighbour) {
        (channel::GROUP_RAFT_CALL, Some(raft), Some(from)) => serve_call(raft, from, channel).await,
        (channel::GROUP_RAFT_STREAM, Some(raft), Some(from)) => serve_stream(raft, from, channel).await,
        (channel::INCREMENTS, ..) => serve_clients(connection, channel, conn, group, &doors).await,
        (channel::GROUP, ..) => serve_aggregator(connection, channel, conn, group, known, &doors).await,
        _ => tracing::debug!(peer = %peer, group, "this node does not hold the group"),
    }
}

/// Why a channel is for no group of this node.
#[derive(Debug, thiserror::Error)]
enum HeadError {
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    #[error("refused: this node is of `{own}`, and the other side is of `{other}`")]
    OtherCluster { own: String, other: String },
}

/// The group that a channel is for: its first frame. Processes of the cluster say there of which era they are: what one of another
/// era says means nothing here.
async fn read_group(channel: &mut Channel, kind: u8, own: &str) -> Result<(u16, Option<KnownGroup>), HeadError> {
    let frame = next_message(&mut channel.reader).await?;
    if kind == channel::INCREMENTS {
        let ForWhom { group } = wire::decode(&frame).map_err(ExchangeError::malformed)?;
        return Ok((group, None));
    }
    let Within { cluster, group, known } = wire::decode(&frame).map_err(ExchangeError::malformed)?;
    match cluster == own {
        true => Ok((group, known)),
        false => Err(HeadError::OtherCluster { own: own.to_owned(), other: cluster }),
    }
}

/// The host of a group that this node holds. A group that it has left takes no events any more.
fn held(doors: &Doors, group: u16) -> Option<&EventSender> {
    doors.groups.get(&group).filter(|events| !events.is_closed())
}

async fn serve_clients(connection: Connection, mut channel: Channel, conn: u64, group: u16, doors: &Doors) {
    let Some(events) = held(doors, group) else {
        // A client looks elsewhere.
        let node = (group < doors.placement.nodes()).then(|| doors.placement.holders(group).next()).flatten();
        let elsewhere = wire::encode(&Admission::Elsewhere { node });
        let _ = channel.writer.send_bytes(elsewhere.into()).await;
        let _ = channel.writer.finish().await;
        return tracing::debug!(peer = %connection.peer(), group, "this node does not hold the group");
    };
    let owner = OwnerId(connection.peer().digest());
    let up = |peer| Event::ClientUp { conn, owner, peer };
    let message = |msg| Event::Client { conn, msg };
    serve_channel(&connection, channel, events, up, message, Event::ClientGone { conn }).await;
}

async fn serve_aggregator(
    connection: Connection,
    mut channel: Channel,
    conn: u64,
    group: u16,
    known: Option<KnownGroup>,
    doors: &Doors,
) {
    let peer = connection.peer().clone();
    let Some(events) = held(doors, group) else {
        // An aggregator with an older or newer layout gets no answer, and asks again later.
        let _ = channel.writer.finish().await;
        return tracing::debug!(peer = %peer, group, "this node does not hold the group");
    };
    let dc = peer.dc().to_owned();
    let seat = peer.seat();
    let up = |to| Event::AggregatorUp { conn, dc, seat, known, peer: to };
    let message = |msg| Event::Aggregator { conn, msg };
    serve_channel(&connection, channel, events, up, message, Event::AggregatorGone { conn }).await;
}

/// Hands what the peer says to the host until the peer ends or says what cannot be.
async fn serve_channel<M: Message>(
    connection: &Connection,
    channel: Channel,
    events: &EventSender,
    up: impl FnOnce(Peer) -> Event,
    message: impl Fn(M) -> Event,
    gone: Event,
) {
    let Channel { mut reader, writer } = channel;
    let (sender, receiver) = mpsc::channel(WRITER_QUEUE_MAX);
    let writing = tokio::spawn(write_all(writer, receiver));
    if events.send(up(Peer::new(sender, connection.clone()))).await {
        let reason = read_all(connection, &mut reader, events, message).await;
        connection.close(&reason);
        events.send(gone).await;
    }
    writing.abort();
    connection.close("the node stops");
}

/// Why reading ended.
async fn read_all<M: Message>(
    connection: &Connection,
    reader: &mut FrameReader,
    events: &EventSender,
    message: impl Fn(M) -> Event,
) -> String {
    loop {
        let frame = match reader.next().await {
            Ok(Some(frame)) => frame,
            Ok(None) => return "the channel has ended".to_owned(),
            Err(error) => {
                tracing::debug!(peer = %connection.peer(), %error, "connection ended");
                return error.to_string();
            }
        };
        let msg = match wire::decode::<M>(&frame) {
            Ok(msg) => msg,
            Err(error) => {
                tracing::warn!(peer = %connection.peer(), %error, "malformed message");
                return format!("malformed message: {error}");
            }
        };
        if !events.send(message(msg)).await {
            return "the node stops".to_owned();
        }
    }
}

/// Writes what is queued, as many frames per flush as there are.
async fn write_all(mut writer: FrameWriter, mut frames: mpsc::Receiver<Bytes>) {
    let mut batch = Vec::with_capacity(WRITER_BATCH);
    while frames.recv_many(&mut batch, WRITER_BATCH).await > 0 {
        for frame in batch.drain(..) {
            if writer.feed_bytes(frame).await.is_err() {
                return;
            }
        }
        if writer.flush().await.is_err() {
            return;
        }
    }
}
