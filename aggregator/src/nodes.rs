//! Connections to the nodes of this data centre: dialled by the aggregator, again and again.

use crate::host::Event;
use crate::mesh::write_all;
use std::net::SocketAddr;
use std::time::Duration;
use tidemark_proto::msg::FromGroup;
use tidemark_proto::wire::{self, channel};
use tidemark_transport::{Channel, Connection, Endpoint, FrameReader, PeerName, Role};
use tokio::sync::mpsc;

const WRITER_QUEUE_MAX: usize = 4_096;
/// Pause before dialling again: a node is close, and clients wait for it.
const REDIAL: Duration = Duration::from_millis(100);

/// Keeps a connection to the node at `addr`, for ever.
pub async fn keep_dialling(
    endpoint: Endpoint,
    addr: SocketAddr,
    dc_name: String,
    node: u64,
    events: mpsc::Sender<Event>,
) {
    let Ok(expected) = PeerName::any(&dc_name, Role::Node) else { return };
    loop {
        match endpoint.connect(addr, &expected).await {
            Ok(connection) => run(connection, node, &events).await,
            Err(error) => tracing::debug!(%addr, %error, "node not reached"),
        }
        tokio::time::sleep(REDIAL).await;
    }
}

async fn run(connection: Connection, node: u64, events: &mpsc::Sender<Event>) {
    let Ok(Channel { mut reader, writer }) = connection.open_channel(channel::GROUP).await else { return };
    let (sender, receiver) = mpsc::channel(WRITER_QUEUE_MAX);
    let writing = tokio::spawn(write_all(writer, receiver));
    let up = Event::NodeUp { node, sender, connection: connection.clone() };
    if events.send(up).await.is_ok() {
        let reason = read_all(node, &mut reader, events).await;
        connection.close(&reason);
        let _ = events.send(Event::NodeGone { node }).await;
    }
    writing.abort();
    connection.close("the aggregator stops");
}

/// Why reading ended.
async fn read_all(node: u64, reader: &mut FrameReader, events: &mpsc::Sender<Event>) -> String {
    loop {
        let frame = match reader.next().await {
            Ok(Some(frame)) => frame,
            Ok(None) => return "the channel has ended".to_owned(),
            Err(error) => {
                tracing::debug!(node, %error, "connection to a node ended");
                return error.to_string();
            }
        };
        let msg = match wire::decode::<FromGroup>(&frame) {
            Ok(msg) => msg,
            Err(error) => {
                tracing::warn!(node, %error, "malformed message of a node");
                return format!("malformed message: {error}");
            }
        };
        if events.send(Event::Node { node, msg }).await.is_err() {
            return "the aggregator stops".to_owned();
        }
    }
}
