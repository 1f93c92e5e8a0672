//! Connections of a node: clients and the data centre's aggregator. Each has a reader that decodes and a writer that batches.

use crate::host::Event;
use bytes::Bytes;
use tidemark_proto::msg::{ForGroup, FromClient};
use tidemark_proto::wire::{self, channel};
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

/// Serves one connection by the role in its certificate.
async fn serve(connection: Connection, conn: u64, events: mpsc::Sender<Event>) {
    let peer = connection.peer().clone();
    match (peer.role(), connection.accept_channel().await) {
        // An aggregator counts for callers of its HTTP interface.
        (Role::Client | Role::Aggregator, Ok((channel::INCREMENTS, channel))) => {
            let Channel { reader, writer } = channel;
            serve_client(conn, reader, writer, events).await;
        }
        (Role::Aggregator, Ok((channel::GROUP, channel))) => {
            let Channel { reader, writer } = channel;
            serve_aggregator(conn, peer.dc().to_owned(), reader, writer, events).await;
        }
        (role, Ok((kind, _))) => {
            tracing::warn!(?role, kind, peer = %peer, "channel refused");
            connection.close("this process does not serve that channel to that role");
        }
        (_, Err(error)) => tracing::debug!(%error, peer = %peer, "connection ended before its channel was opened"),
    }
}

async fn serve_client(conn: u64, mut reader: FrameReader, writer: FrameWriter, events: mpsc::Sender<Event>) {
    let (sender, receiver) = mpsc::channel(WRITER_QUEUE_MAX);
    let writing = tokio::spawn(write_all(writer, receiver));
    if events.send(Event::ClientUp { conn, sender }).await.is_err() {
        return;
    }
    while let Some(frame) = next_frame(&mut reader).await {
        match wire::decode::<FromClient>(&frame) {
            Ok(msg) => {
                if events.send(Event::Client { conn, msg }).await.is_err() {
                    break;
                }
            }
            Err(error) => {
                tracing::warn!(conn, %error, "malformed message of a client");
                break;
            }
        }
    }
    let _ = events.send(Event::ClientGone { conn }).await;
    writing.abort();
}

async fn serve_aggregator(
    conn: u64,
    dc: String,
    mut reader: FrameReader,
    writer: FrameWriter,
    events: mpsc::Sender<Event>,
) {
    let (sender, receiver) = mpsc::channel(WRITER_QUEUE_MAX);
    let writing = tokio::spawn(write_all(writer, receiver));
    if events.send(Event::AggregatorUp { conn, dc, sender }).await.is_err() {
        return;
    }
    while let Some(frame) = next_frame(&mut reader).await {
        match wire::decode::<ForGroup>(&frame) {
            Ok(msg) => {
                if events.send(Event::Aggregator { conn, msg }).await.is_err() {
                    break;
                }
            }
            Err(error) => {
                tracing::warn!(conn, %error, "malformed message of an aggregator");
                break;
            }
        }
    }
    let _ = events.send(Event::AggregatorGone { conn }).await;
    writing.abort();
}

async fn next_frame(reader: &mut FrameReader) -> Option<Bytes> {
    match reader.next().await {
        Ok(frame) => frame,
        Err(error) => {
            tracing::debug!(%error, "connection ended");
            None
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
