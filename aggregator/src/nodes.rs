//! Connections to the nodes of this data centre: dialled by the aggregator, again and again.

use crate::catch_up::CatchUp;
use crate::cluster::DataCentre;
use crate::dial::{DialError, until_answered, write_all};
use crate::directory::Directory;
use crate::events::{Event, NodeGroup};
use crate::ledger::SharedLedger;
use crate::link_log::{LinkLog, UNANSWERED, patiently};
use futures_util::future::join_all;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tidemark_proto::ids::DcId;
use tidemark_proto::limits::INCARNATIONS_SAID_MAX;
use tidemark_proto::msg::{EMPTY_DIRECTORY_REFUSAL, FromGroup, KnownGroup, Within};
use tidemark_proto::wire::{self, channel};
use tidemark_transport::{
    Channel, Connection, ConnectionLost, Endpoint, FrameReader, HostPort, PeerName, ReceiveError, Role,
};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

const WRITER_QUEUE_MAX: usize = 4_096;
/// Pause before dialling again: a node is close, and clients wait for it.
const REDIAL: Duration = Duration::from_millis(100);
/// Pause before a node is dialled again that was taken away: it speaks for groups until they have gone on without it.
const REDIAL_GONE: Duration = Duration::from_secs(2);
/// Pause before a node is asked again for a group that is placed on it and that it did not hold: it has yet to read the layout.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// And for one that is not placed on it: it speaks for what it held before, until others have its place.
const ASK_AGAIN_UNPLACED: Duration = Duration::from_secs(3);
/// How long the ledger here may take to learn of a group that has just been registered. Two aggregators of a data centre may start for
/// the first time together: one of them registers the group while the other's ledger is on its way.
const LEARN_MAX: Duration = Duration::from_secs(10);
const LEARN_INTERVAL: Duration = Duration::from_millis(50);

/// Keeps a connection to a node of the data centre with a channel for each group that it holds, for ever. Where logs move, a node may
/// lead any group for a while, whatever the layout says.
pub(crate) async fn keep_dialling(dialling: Dialling, dc: DataCentre, node: u16) {
    let address = &dc.nodes[usize::from(node)];
    let placed: Vec<u16> = dc.placement.groups_of(node).collect();
    let groups: Vec<u16> =
        if dc.placement.replicas() > 1 { (0..dc.placement.nodes()).collect() } else { placed.clone() };
    let pause = if dc.placement.is_gone(node) { REDIAL_GONE } else { REDIAL };
    let again = |group: &u16| if placed.contains(group) { ASK_AGAIN } else { ASK_AGAIN_UNPLACED };
    let Ok(expected) = PeerName::any(&dc.name, Role::Node) else { return };
    let link = Mutex::new(LinkLog::new(format!("node {node} of {}", dc.name)));
    let link = |note: &dyn Fn(&mut LinkLog)| note(&mut link.lock().unwrap_or_else(PoisonError::into_inner));
    loop {
        let late = || link(&|link| link.refused(UNANSWERED));
        match patiently(until_answered(|| dial(&dialling.endpoint, address, &expected, node)), late).await {
            Ok(connection) => {
                link(&LinkLog::up);
                let of_groups = groups.iter().map(|group| (NodeGroup { node, group: *group }, again(group)));
                join_all(of_groups.map(|(group, again)| run(&connection, &dialling, group, again))).await;
                let reason = connection.closed().await.to_string();
                link(&|link| link.down(&reason));
            }
            // The resolver logs once that a name does not resolve.
            Err(error) if error.is_unresolved() => {}
            Err(error) => link(&|link| link.refused(&error.to_string())),
        }
        sleep(pause).await;
    }
}

/// Connects to a node. Where its name is resolved to an address that by now is another one's, that one is refused.
async fn dial(
    endpoint: &Endpoint,
    address: &HostPort,
    expected: &PeerName,
    node: u16,
) -> Result<Connection, DialError> {
    let connection = endpoint.connect(address, expected).await?;
    let is_other = connection.peer().name().parse::<u16>().is_ok_and(|number| number != node);
    if is_other {
        let found = connection.peer().to_string();
        let address = address.clone();
        connection.close("the layout has another node of the data centre at this address");
        return Err(DialError::Another { found, address, expected: format!("node {node}") });
    }
    Ok(connection)
}

/// The context of connections to nodes.
#[derive(Clone)]
pub(crate) struct Dialling {
    pub endpoint: Endpoint,
    /// The cluster and its era.
    pub cluster: String,
    pub own: DcId,
    pub ledger: SharedLedger,
    /// Nodes are told what the ledger knows, so that it must be applied first.
    pub catching_up: CatchUp,
    /// Whether this aggregator's data directory was empty when it started.
    pub directory: Directory,
    pub events: mpsc::Sender<Event>,
}

impl Dialling {
    /// The ledger's state of a group, only the newest incarnations.
    fn known(&self, group: u16) -> KnownGroup {
        let ledger = self.ledger.lock();
        let mut known = KnownGroup { empty: self.directory.is_empty(), ..KnownGroup::default() };
        let of_group = ledger.groups().iter().filter(|(id, _)| (id.dc, id.group) == (self.own, group));
        for (id, registered) in of_group.rev().take(INCARNATIONS_SAID_MAX) {
            if registered.fenced { &mut known.fenced } else { &mut known.serving }.push(id.incarnation);
        }
        known
    }

    /// A node refuses this aggregator because of its empty directory. Where the ledger does not learn of the group in time, this process
    /// ends.
    async fn on_empty_refusal(&self, group: u16, reason: &str) {
        if learns_in_time(|| self.knows_group(group)).await {
            tracing::debug!(group, "the group was registered while this aggregator's ledger was on its way");
        } else {
            self.directory.refuse(reason);
        }
    }

    fn knows_group(&self, group: u16) -> bool {
        let known = self.known(group);
        !known.serving.is_empty() || !known.fenced.is_empty()
    }
}

/// Waits until the ledger knows of a group; false: it does not learn of it in time.
async fn learns_in_time(knows: impl Fn() -> bool) -> bool {
    let learned = async {
        while !knows() {
            sleep(LEARN_INTERVAL).await;
        }
    };
    timeout(LEARN_MAX, learned).await.is_ok()
}

/// Until the connection has ended.
async fn run(connection: &Connection, dialling: &Dialling, node: NodeGroup, again: Duration) {
    dialling.catching_up.until_ledger().await;
    while let Ended::NotHeld = run_channel(connection, dialling, node).await {
        tracing::debug!(?node, "the node does not hold the group");
        sleep(again).await;
    }
}

/// How a channel to a node ended.
enum Ended {
    /// With the connection.
    Gone,
    /// The node ended the channel: by its layout it has nothing to do with the group.
    NotHeld,
}

async fn run_channel(connection: &Connection, dialling: &Dialling, node: NodeGroup) -> Ended {
    let events = &dialling.events;
    let Ok(Channel { mut reader, mut writer }) = connection.open_channel(channel::GROUP).await else {
        return Ended::Gone;
    };
    let cluster = dialling.cluster.clone();
    let group = node.group;
    let head = Within { cluster, group, known: Some(dialling.known(group)) };
    if writer.send_bytes(wire::encode(&head).into()).await.is_err() {
        return Ended::Gone;
    }
    let (sender, receiver) = mpsc::channel(WRITER_QUEUE_MAX);
    let writing = tokio::spawn(write_all(writer, receiver));
    let up = Event::NodeUp { node, sender, connection: connection.clone() };
    let read = match events.send(up).await {
        Ok(()) => read_all(node, &mut reader, events).await,
        Err(_) => ReadEnd::Stopped,
    };
    writing.abort();
    if let Some(reason) = read.reason() {
        connection.close(&reason);
    }
    let gone = events.send(Event::NodeGone { node }).await;
    match (read, gone) {
        (ReadEnd::Channel, Ok(())) => return Ended::NotHeld,
        (ReadEnd::Lost(ReceiveError::Lost(ConnectionLost::ClosedByPeer { reason })), _)
            if reason.starts_with(EMPTY_DIRECTORY_REFUSAL) =>
        {
            dialling.on_empty_refusal(group, &reason).await;
        }
        // Other refusals are logged with the link.
        (ReadEnd::Lost(error), _) => tracing::debug!(?node, %error, "connection to a node ended"),
        (ReadEnd::Channel | ReadEnd::Malformed(_) | ReadEnd::Stopped, _) => {}
    }
    Ended::Gone
}

/// Why reading from a node ended.
enum ReadEnd {
    /// The node ended the channel.
    Channel,
    Lost(ReceiveError),
    Malformed(String),
    /// The aggregator stops.
    Stopped,
}

impl ReadEnd {
    /// The reason to close the connection with, if it is to be closed.
    fn reason(&self) -> Option<String> {
        match self {
            ReadEnd::Channel => None,
            ReadEnd::Lost(error) => Some(error.to_string()),
            ReadEnd::Malformed(error) => Some(format!("malformed message: {error}")),
            ReadEnd::Stopped => Some("the aggregator stops".to_owned()),
        }
    }
}

async fn read_all(node: NodeGroup, reader: &mut FrameReader, events: &mpsc::Sender<Event>) -> ReadEnd {
    loop {
        let frame = match reader.next().await {
            Ok(Some(frame)) => frame,
            Ok(None) => return ReadEnd::Channel,
            Err(error) => return ReadEnd::Lost(error),
        };
        let msg = match wire::decode::<FromGroup>(&frame) {
            Ok(msg) => msg,
            Err(error) => {
                tracing::warn!(?node, %error, "malformed message of a node");
                return ReadEnd::Malformed(error.to_string());
            }
        };
        if events.send(Event::Node { node, msg }).await.is_err() {
            return ReadEnd::Stopped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn group_that_the_ledger_learns_late_is_no_lost_ledger() {
        let start = Instant::now();
        assert!(learns_in_time(|| start.elapsed() >= Duration::from_secs(9)).await);
        let start = Instant::now();
        assert!(!learns_in_time(|| false).await);
        assert!(start.elapsed() >= LEARN_MAX && start.elapsed() < LEARN_MAX * 2);
    }
}
