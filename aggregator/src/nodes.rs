//! Connections to the nodes of this data centre: dialled by the aggregator, again and again.

use crate::cluster::DataCentre;
use crate::host::Event;
use crate::mesh::write_all;
use futures_util::future::join_all;
use std::time::Duration;
use tidemark_proto::msg::{FromGroup, Within};
use tidemark_proto::wire::{self, channel};
use tidemark_transport::{Channel, Connection, ConnectionLost, Endpoint, FrameReader, PeerName, ReceiveError, Role};
use tokio::sync::mpsc;

const WRITER_QUEUE_MAX: usize = 4_096;
/// Pause before dialling again: a node is close, and clients wait for it.
const REDIAL: Duration = Duration::from_millis(100);
/// Pause before a node is dialled again that was taken away: it speaks for groups until they have gone on without it.
const REDIAL_GONE: Duration = Duration::from_secs(2);
/// Pause before a node is asked again for a group that is placed on it and that it did not hold: it has yet to read the layout.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// And for one that is not placed on it: it speaks for what it held before, until others have its place.
const ASK_AGAIN_UNPLACED: Duration = Duration::from_secs(3);

/// What a node has to do with one group: there is a channel for each. The node says nothing by it until it speaks for the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeGroup {
    pub node: u16,
    pub group: u16,
}

/// Keeps a connection to a node of the data centre with a channel for each group that it holds, for ever. Where logs move, a node may
/// lead any group for a while, whatever the layout says.
pub async fn keep_dialling(
    endpoint: Endpoint,
    cluster: String,
    dc: DataCentre,
    node: u16,
    events: mpsc::Sender<Event>,
) {
    let addr = dc.nodes[usize::from(node)];
    let placed: Vec<u16> = dc.placement.groups_of(node).collect();
    let groups: Vec<u16> =
        if dc.placement.replicas() > 1 { (0..dc.placement.nodes()).collect() } else { placed.clone() };
    let pause = if dc.placement.is_gone(node) { REDIAL_GONE } else { REDIAL };
    let again = |group: &u16| if placed.contains(group) { ASK_AGAIN } else { ASK_AGAIN_UNPLACED };
    let Ok(expected) = PeerName::any(&dc.name, Role::Node) else { return };
    loop {
        match endpoint.connect(addr, &expected).await {
            Ok(connection) => {
                let of_groups = groups.iter().map(|group| (NodeGroup { node, group: *group }, again(group)));
                join_all(of_groups.map(|(group, again)| run(&connection, &cluster, group, again, &events))).await;
            }
            Err(error) => tracing::debug!(%addr, %error, "node not reached"),
        }
        tokio::time::sleep(pause).await;
    }
}

/// Until the connection has ended.
async fn run(connection: &Connection, cluster: &str, node: NodeGroup, again: Duration, events: &mpsc::Sender<Event>) {
    while let Ended::NotHeld = run_channel(connection, cluster, node, events).await {
        tracing::debug!(?node, "the node does not hold the group");
        tokio::time::sleep(again).await;
    }
}

/// How a channel to a node ended.
enum Ended {
    /// With the connection.
    Gone,
    /// The node ended the channel: by its layout it has nothing to do with the group.
    NotHeld,
}

async fn run_channel(connection: &Connection, cluster: &str, node: NodeGroup, events: &mpsc::Sender<Event>) -> Ended {
    let Ok(Channel { mut reader, mut writer }) = connection.open_channel(channel::GROUP).await else {
        return Ended::Gone;
    };
    let head = Within { cluster: cluster.to_owned(), group: node.group };
    if writer.send_bytes(wire::encode(&head).into()).await.is_err() {
        return Ended::Gone;
    }
    let (sender, receiver) = mpsc::channel(WRITER_QUEUE_MAX);
    let writing = tokio::spawn(write_all(writer, receiver));
    let up = Event::NodeUp { node, sender, connection: connection.clone() };
    let reason = match events.send(up).await {
        Ok(()) => read_all(node, &mut reader, events).await,
        Err(_) => Some("the aggregator stops".to_owned()),
    };
    writing.abort();
    if let Some(reason) = &reason {
        connection.close(reason);
    }
    match (reason, events.send(Event::NodeGone { node }).await) {
        (None, Ok(())) => Ended::NotHeld,
        _ => Ended::Gone,
    }
}

/// Why a node does not want to be connected is for people.
fn note_refusal(node: NodeGroup, error: &ReceiveError) {
    match error {
        ReceiveError::Lost(ConnectionLost::ClosedByPeer { reason }) if reason.starts_with("refused: ") => {
            tracing::error!(?node, %reason, "a node refuses this aggregator");
        }
        _ => tracing::debug!(?node, %error, "connection to a node ended"),
    }
}

/// Why reading ended; `None`: the node ended the channel.
async fn read_all(node: NodeGroup, reader: &mut FrameReader, events: &mpsc::Sender<Event>) -> Option<String> {
    loop {
        let frame = match reader.next().await {
            Ok(Some(frame)) => frame,
            Ok(None) => return None,
            Err(error) => {
                note_refusal(node, &error);
                return Some(error.to_string());
            }
        };
        let msg = match wire::decode::<FromGroup>(&frame) {
            Ok(msg) => msg,
            Err(error) => {
                tracing::warn!(?node, %error, "malformed message of a node");
                return Some(format!("malformed message: {error}"));
            }
        };
        if events.send(Event::Node { node, msg }).await.is_err() {
            return Some("the aggregator stops".to_owned());
        }
    }
}
