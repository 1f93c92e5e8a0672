//! The other nodes of the data centre: what the logs of groups that stand on several nodes have to say to one another.
//!
//! Each node dials its peers when it has a message for them; messages to it come by connections that they dialled. The sender is known from
//! the certificate, which has the node's number as its name.

use bytes::{BufMut, Bytes, BytesMut};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tidemark_consensus::raft::{CallKind, Duplex, RaftService, RaftTransport, Unreachable};
use tidemark_proto::msg::Within;
use tidemark_proto::wire::{self, channel};
use tidemark_transport::certs::NameError;
use tidemark_transport::exchange::{ExchangeError, carry, next_only, send_only};
use tidemark_transport::{Channel, ConnectError, Connection, Endpoint, HostPort, Identity, PeerName, Role};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Largest frame of a group's Raft: an append request with its entries, or a piece of a snapshot.
const RAFT_FRAME_BYTES_MAX: usize = 5 << 20;
/// A node that could not be reached is not dialled again for so long: all its groups ask for it.
const REDIAL: Duration = Duration::from_millis(100);
/// A node is dialled for so long: it is close.
const DIAL_MAX: Duration = Duration::from_secs(1);

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Connections to the nodes of the data centre.
pub struct Neighbours {
    endpoint: Endpoint,
    /// The cluster and its era.
    cluster: String,
    dc: String,
    nodes: Vec<HostPort>,
    /// By node: the present connection, or when it was last not reached.
    slots: Vec<Mutex<Slot>>,
}

/// Why no channel to another node is opened.
#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error("the data centre has {nodes} nodes and no node {node}")]
    NoNode { node: usize, nodes: usize },
    #[error("not reached within the last {REDIAL:?}")]
    NotReached,
    #[error("no answer within {DIAL_MAX:?}")]
    Late,
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
}

#[derive(Default)]
struct Slot {
    connection: Option<Connection>,
    missed: Option<Instant>,
}

impl Neighbours {
    pub fn new(endpoint: Endpoint, cluster: String, dc: String, nodes: Vec<HostPort>) -> Neighbours {
        let slots = nodes.iter().map(|_| Mutex::default()).collect();
        Neighbours { endpoint, cluster, dc, nodes, slots }
    }

    /// The number of the node that a certificate is of, if it is one of this data centre's.
    pub fn number_of(&self, peer: &Identity) -> Option<u16> {
        let own = peer.role() == Role::Node && peer.dc() == self.dc;
        let number = own.then(|| peer.name().parse::<u16>().ok()).flatten()?;
        (usize::from(number) < self.nodes.len()).then_some(number)
    }

    async fn open(&self, node: usize, kind: u8, group: u16) -> Result<Channel, OpenError> {
        let mut slot = self.slots.get(node).ok_or(OpenError::NoNode { node, nodes: self.nodes.len() })?.lock().await;
        let connection = match &slot.connection {
            Some(connection) => connection.clone(),
            None => {
                let dialled = self.dial(node, &mut slot.missed).await?;
                slot.connection.insert(dialled).clone()
            }
        };
        drop(slot);
        match open_channel(&connection, kind, Within { cluster: self.cluster.clone(), group, known: None }).await {
            Ok(channel) => Ok(channel),
            Err(error) => {
                self.slots[node].lock().await.connection = None;
                Err(error.into())
            }
        }
    }

    async fn dial(&self, node: usize, missed: &mut Option<Instant>) -> Result<Connection, OpenError> {
        if missed.is_some_and(|at| at.elapsed() < REDIAL) {
            return Err(OpenError::NotReached);
        }
        let expected = PeerName::one(&self.dc, Role::Node, &node.to_string())?;
        let dialled = tokio::time::timeout(DIAL_MAX, self.endpoint.connect(&self.nodes[node], &expected)).await;
        let connected = match dialled {
            Ok(connected) => connected.map_err(OpenError::from),
            Err(_) => Err(OpenError::Late),
        };
        *missed = connected.is_err().then(Instant::now);
        connected
    }
}

async fn open_channel(connection: &Connection, kind: u8, head: Within) -> Result<Channel, ExchangeError> {
    let mut channel = connection.open_channel(kind).await?;
    channel.writer.feed_bytes(wire::encode(&head).into()).await?;
    Ok(with_large_frames(channel))
}

pub fn with_large_frames(mut channel: Channel) -> Channel {
    channel.reader.set_frame_bytes_max(RAFT_FRAME_BYTES_MAX);
    channel.writer.set_frame_bytes_max(RAFT_FRAME_BYTES_MAX);
    channel
}

/// Carries one group's Raft; targets are numbers of nodes.
pub struct GroupTransport {
    pub neighbours: Arc<Neighbours>,
    pub group: u16,
}

impl GroupTransport {
    async fn channel(&self, target: u64, kind: u8) -> Result<Channel, Unreachable> {
        let node = usize::try_from(target).unwrap_or(usize::MAX);
        let opened = self.neighbours.open(node, kind, self.group).await;
        opened.map_err(|error| Unreachable { target, reason: error.to_string() })
    }
}

impl RaftTransport for GroupTransport {
    fn call(&self, target: u64, kind: CallKind, request: Bytes) -> BoxFuture<'_, Result<Bytes, Unreachable>> {
        Box::pin(async move {
            let unreachable = |reason: String| Unreachable { target, reason };
            let Channel { mut reader, mut writer } = self.channel(target, channel::GROUP_RAFT_CALL).await?;
            let mut frame = BytesMut::with_capacity(request.len() + 1);
            frame.put_u8(kind as u8);
            frame.put(request);
            send_only(&mut writer, frame.freeze()).await.map_err(|error| unreachable(error.to_string()))?;
            match next_only(&mut reader).await {
                Ok(Some(answer)) => Ok(answer),
                Ok(None) => Err(unreachable("the call was refused".into())),
                Err(error) => Err(unreachable(error.to_string())),
            }
        })
    }

    fn open(&self, target: u64) -> BoxFuture<'_, Result<Duplex, Unreachable>> {
        Box::pin(async move {
            let channel = self.channel(target, channel::GROUP_RAFT_STREAM).await?;
            let (ours, theirs) = Duplex::pair();
            tokio::spawn(carry(theirs.sender, theirs.receiver, channel));
            Ok(ours)
        })
    }
}

/// Answers one call; a refused one ends the channel without an answer.
pub async fn serve_call(raft: Arc<dyn RaftService>, from: u16, channel: Channel) {
    let Channel { mut reader, mut writer } = with_large_frames(channel);
    let Ok(Some(mut request)) = next_only(&mut reader).await else { return };
    if request.is_empty() {
        return tracing::warn!(from, "empty call of a group's Raft");
    }
    let kind = request.split_to(1)[0];
    let answer = match CallKind::try_from(kind) {
        Ok(kind) => raft.on_call(from.into(), kind, request).await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(answer) => {
            let _ = send_only(&mut writer, answer).await;
        }
        Err(error) => tracing::debug!(from, %error, "call of a group's Raft refused"),
    }
}

/// Serves one stream until it ends.
pub async fn serve_stream(raft: Arc<dyn RaftService>, from: u16, channel: Channel) {
    let (ours, theirs) = Duplex::pair();
    let carrying = tokio::spawn(carry(theirs.sender, theirs.receiver, with_large_frames(channel)));
    if let Err(error) = raft.on_stream(from.into(), ours).await {
        tracing::debug!(from, %error, "stream of a group's Raft ended");
    }
    carrying.abort();
}
