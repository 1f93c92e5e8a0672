//! Connections of a node: clients and the data centre's aggregator. Each has a reader that decodes and a writer that batches.

use crate::host::Event;
use bytes::Bytes;
use tidemark_proto::ids::OwnerId;
use tidemark_proto::wire::{self, Message, channel};
use tidemark_transport::{Channel, Connection, Endpoint, FrameReader, FrameWriter, Role};
use tokio::sync::mpsc;

/// Messages that may wait for one connection's writer; a peer that reads slower is disconnected and will ask again.
pub const WRITER_QUEUE_MAX: usize = 4_096;
/// Messages a writer takes at once.
const WRITER_BATCH: usize = 256;

/// Accepts connections until the endpoint closes.
pub async fn accept_all(endpoint: Endpoint, events: mpsc::Sender<Event>) {
    let mut conn = 0;
    while let Some(accepted) = endpoint.accept().await {
        match accepted {
            Ok(connection) => {
                conn += 1;
                tokio::spawn(serve(connection, conn, events.clone()));
            }
            Err(error) => tracing::warn!(%error, "connection refused"),
        }
    }
}

/// A connection as the host has it: its writer's queue, and the means to end it.
pub struct Peer {
    sender: mpsc::Sender<Bytes>,
    connection: Connection,
}

impl Peer {
    /// Queues a frame; false when the peer reads too slowly, or not at all any more.
    pub fn send(&self, frame: Bytes) -> bool {
        self.sender.try_send(frame).is_ok()
    }

    /// Ends the connection, so that the peer connects again instead of waiting for ever.
    pub fn end(self, reason: &str) {
        self.connection.close(reason);
    }
}

/// Serves one connection by the role in its certificate, and ends it.
async fn serve(connection: Connection, conn: u64, events: mpsc::Sender<Event>) {
    let peer = connection.peer().clone();
    match (peer.role(), connection.accept_channel().await) {
        // An aggregator counts for callers of its HTTP interface.
        (Role::Client | Role::Aggregator, Ok((channel::INCREMENTS, channel))) => {
            let owner = OwnerId(peer.digest());
            let up = |peer| Event::ClientUp { conn, owner, peer };
            let message = |msg| Event::Client { conn, msg };
            serve_channel(&connection, channel, &events, up, message, Event::ClientGone { conn }).await;
        }
        (Role::Aggregator, Ok((channel::GROUP, channel))) => {
            let up = |to| Event::AggregatorUp { conn, dc: peer.dc().to_owned(), peer: to };
            let message = |msg| Event::Aggregator { conn, msg };
            serve_channel(&connection, channel, &events, up, message, Event::AggregatorGone { conn }).await;
        }
        (role, Ok((kind, _))) => {
            tracing::warn!(?role, kind, peer = %peer, "channel refused");
            connection.close("this process does not serve that channel to that role");
        }
        (_, Err(error)) => tracing::debug!(%error, peer = %peer, "connection ended before its channel was opened"),
    }
}

/// Hands what the peer says to the host until the peer ends or says what cannot be.
async fn serve_channel<M: Message>(
    connection: &Connection,
    channel: Channel,
    events: &mpsc::Sender<Event>,
    up: impl FnOnce(Peer) -> Event,
    message: impl Fn(M) -> Event,
    gone: Event,
) {
    let Channel { mut reader, writer } = channel;
    let (sender, receiver) = mpsc::channel(WRITER_QUEUE_MAX);
    let writing = tokio::spawn(write_all(writer, receiver));
    if events.send(up(Peer { sender, connection: connection.clone() })).await.is_ok() {
        let reason = read_all(connection, &mut reader, events, message).await;
        connection.close(&reason);
        let _ = events.send(gone).await;
    }
    writing.abort();
    connection.close("the node stops");
}

/// Why reading ended.
async fn read_all<M: Message>(
    connection: &Connection,
    reader: &mut FrameReader,
    events: &mpsc::Sender<Event>,
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
        if events.send(message(msg)).await.is_err() {
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
