//! Connections between the aggregators of all data centres: one per pair, dialled by the one with the lower number, dialled
//! again for ever. Everything between the two (gossip, proposals, the ledger's Raft) travels in channels of it.

use crate::cluster::Cluster;
use crate::dial::{DialError, until_answered, write_all};
use crate::directory::Directory;
use crate::events::Event;
use crate::ledger::SharedLedger;
use crate::link_log::{LinkLog, UNANSWERED, patiently};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tidemark_consensus::raft::MetricsWatch;
use tidemark_proto::ids::{AggregatorId, DcId};
use tidemark_proto::msg::{Meeting, PeerMsg};
use tidemark_proto::wire::{self, WireError, channel};
use tidemark_transport::{Channel, ChannelError, Connection, ConnectionLost, Endpoint, FrameReader, ReceiveError};
use tidemark_transport::{PeerName, Role};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Messages that may wait for one peer's writer; a slower peer loses its connection and is told again from its digest.
const WRITER_QUEUE_MAX: usize = 1_024;
/// Pause before dialling again: doubles from the first to the second while the peer, or this side, refuses.
const REDIAL_MIN: Duration = Duration::from_millis(100);
const REDIAL_MAX: Duration = Duration::from_secs(3);
/// Serves channels that other aggregators open, beside those of the mesh itself.
pub trait Doors: Send + Sync {
    /// Serves a channel in a task of its own. False: nothing here serves channels of this kind.
    fn serve(&self, peer: AggregatorId, kind: u8, channel: Channel) -> bool;
}

/// The connections of this aggregator to the others.
#[derive(Clone)]
pub struct Mesh {
    inner: Arc<Inner>,
}

struct Inner {
    endpoint: Endpoint,
    cluster: Cluster,
    own: AggregatorId,
    directory: Directory,
    /// Logs of the links to the others.
    links: BTreeMap<AggregatorId, Mutex<LinkLog>>,
    /// By aggregator: the present connection and its number.
    connections: BTreeMap<AggregatorId, watch::Sender<Option<(u64, Connection)>>>,
    next_id: AtomicU64,
    doors: Arc<dyn Doors>,
    events: mpsc::Sender<Event>,
    ledger: SharedLedger,
    /// Since when each registered aggregator has been known here as such.
    views_seen: Mutex<BTreeMap<AggregatorId, Instant>>,
    /// Why another aggregator refuses this one, since one of another data centre last did not.
    refusal: Mutex<Option<String>>,
    /// The metrics of this aggregator's member of the ledger. Not the member: its file is closed when its last handle is dropped, and the
    /// mesh lives as long as connections do.
    member: OnceLock<MetricsWatch>,
    /// Aggregators with members that have lost their logs, as far as this leader knows.
    emptied: Mutex<BTreeSet<AggregatorId>>,
}

/// The pause before a refused aggregator is dialled again, beside the usual pause.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// How long the other side may take to say of which era it is.
const MEETING_MAX: Duration = Duration::from_secs(5);
/// An aggregator that has been registered for so long and comes with an empty data directory has lost it.
const REGISTERED_FOR: Duration = Duration::from_secs(10);
/// Why an aggregator is refused that began with nothing, though others know it.
const EMPTY_DIRECTORY: &str = "the data directory of this aggregator is empty,";
/// The reason that a forgotten data centre gets when it comes back.
const FORGOTTEN: &str = "refused: this data centre was given up with `tidemark dc forget`; stop its processes; to count there again, \
                         add a data centre of another name at the end of the layout, with empty disks";

/// Why it is not known of which era a peer is.
#[derive(Debug, thiserror::Error)]
enum NotMet {
    #[error(transparent)]
    Malformed(#[from] WireError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error("the other side does not say of which era it is")]
    Silent,
}

impl Mesh {
    pub fn new(
        endpoint: Endpoint,
        cluster: Cluster,
        own: AggregatorId,
        directory: Directory,
        events: mpsc::Sender<Event>,
        doors: Arc<dyn Doors>,
        ledger: SharedLedger,
    ) -> Mesh {
        let link = |peer| (peer, Mutex::new(LinkLog::new(format!("aggregator {}", cluster.aggregator_name(peer)))));
        let links = cluster.aggregators().filter(|&peer| peer != own).map(link).collect();
        let connections = cluster.aggregators().map(|peer| (peer, watch::channel(None).0)).collect();
        Mesh {
            inner: Arc::new(Inner {
                endpoint,
                cluster,
                own,
                directory,
                links,
                connections,
                next_id: AtomicU64::new(1),
                doors,
                events,
                ledger,
                views_seen: Mutex::default(),
                refusal: Mutex::default(),
                member: OnceLock::new(),
                emptied: Mutex::default(),
            }),
        }
    }

    /// From now on it is known whether the member of the ledger here leads.
    pub fn set_member(&self, member: MetricsWatch) {
        let _ = self.inner.member.set(member);
    }

    fn is_blank(&self) -> bool {
        self.inner.member.get().is_none_or(|member| member.get().last_log.is_none())
    }

    /// A leader takes what a member once had for there: it must not speak to one that has lost it under the same name.
    fn is_known_to_have_a_log(&self, peer: AggregatorId) -> bool {
        let Some(metrics) = self.inner.member.get().map(MetricsWatch::get) else { return false };
        metrics.is_leader && metrics.matched.get(&Cluster::member(peer)).copied().flatten().is_some()
    }

    /// Aggregators with members that have lost their logs.
    pub fn emptied(&self) -> MutexGuard<'_, BTreeSet<AggregatorId>> {
        self.inner.emptied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An aggregator, for people.
    pub fn name_of(&self, aggregator: AggregatorId) -> String {
        self.inner.cluster.aggregator_name(aggregator)
    }

    /// The present connection to an aggregator.
    pub fn connection(&self, peer: AggregatorId) -> Option<Connection> {
        let current = self.inner.connections.get(&peer)?.borrow();
        current.as_ref().map(|(_, connection)| connection.clone())
    }

    /// The present connection to a data centre: to the first of its aggregators that is connected.
    pub fn connection_to(&self, dc: DcId) -> Option<Connection> {
        AggregatorId::all(dc).find_map(|id| self.connection(id))
    }

    /// Dials every aggregator that it is on this one to dial. Returns at once.
    pub fn dial_all(&self) -> Vec<tokio::task::JoinHandle<()>> {
        let higher = self.inner.cluster.aggregators().filter(|&peer| self.dials(peer));
        higher.map(|peer| tokio::spawn(self.clone().keep_dialling(peer))).collect()
    }

    fn dials(&self, peer: AggregatorId) -> bool {
        u16::from(peer) > u16::from(self.inner.own)
    }

    async fn keep_dialling(self, peer: AggregatorId) {
        let mut pause = REDIAL_MIN;
        loop {
            let late = || self.link(peer, |link| link.refused(UNANSWERED));
            match patiently(until_answered(|| self.dial(peer)), late).await {
                Ok(connection) => {
                    pause = REDIAL_MIN;
                    self.run_dialled(peer, connection).await;
                }
                Err(error) => {
                    // The resolver logs once that a name does not resolve.
                    if !error.is_unresolved() {
                        self.link(peer, |link| link.refused(&error.to_string()));
                    }
                    pause = (pause * 2).min(REDIAL_MAX);
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn dial(&self, peer: AggregatorId) -> Result<Connection, DialError> {
        let cluster = &self.inner.cluster;
        let (Some(name), Some(address)) = (cluster.name_of(peer.dc), cluster.address_of(peer)) else {
            return Err(DialError::Missing);
        };
        let expected = PeerName::any(name, Role::Aggregator)?;
        let connection = self.inner.endpoint.connect(address, &expected).await?;
        if connection.peer().seat() != peer.seat {
            let found = connection.peer().to_string();
            connection.close("the layout has another aggregator of the data centre at this address");
            let address = address.clone();
            let expected = cluster.aggregator_name(peer);
            return Err(DialError::Another { found, address, expected });
        }
        Ok(connection)
    }

    /// Serves a connection that another aggregator dialled.
    pub async fn accept(&self, connection: Connection) {
        let seat = connection.peer().seat();
        let peer = self.inner.cluster.dc(connection.peer().dc()).map(|dc| AggregatorId { dc, seat });
        match peer {
            Ok(peer) if self.refuses(peer.dc, &connection) => {}
            Ok(peer) if !self.inner.connections.contains_key(&peer) => {
                tracing::warn!(peer = %connection.peer(), "refused: the layout has no such aggregator there");
                connection.close("the layout has no such aggregator there");
            }
            Ok(peer) if !self.dials(peer) && peer != self.inner.own => self.run_if_used(peer, connection).await,
            Ok(peer) => {
                tracing::warn!(%peer, "refused: this aggregator dials that one");
                connection.close("this aggregator dials that one: the layouts differ");
            }
            Err(error) => {
                tracing::warn!(%error, "refused: peer of no known data centre");
                connection.close("the layout has no such data centre");
            }
        }
    }

    /// Ends a connection to an aggregator of a data centre that was forgotten, and says why; it may not know.
    fn refuses(&self, dc: DcId, connection: &Connection) -> bool {
        let refused = self.inner.ledger.lock().is_forgotten(dc);
        if refused {
            connection.close(FORGOTTEN);
        }
        refused
    }

    /// Has no connection any more to data centres that were forgotten. Nothing of theirs is heard from here on.
    pub fn forget(&self) {
        for &peer in self.inner.connections.keys() {
            if let Some(connection) = self.connection(peer) {
                self.refuses(peer.dc, &connection);
            }
        }
    }

    async fn run_dialled(&self, peer: AggregatorId, connection: Connection) {
        if self.refuses(peer.dc, &connection) || !self.meet(peer, &connection).await {
            return tokio::time::sleep(REFUSED_PAUSE).await;
        }
        let id = self.put_in_slot(peer, &connection);
        let mesh = self.clone();
        let opened = connection.clone();
        tokio::spawn(async move { mesh.open_peer_channel(peer, id, opened).await });
        self.run_connection(peer, id, &connection).await;
    }

    /// Of attempts that overlap, the dialler uses one. Another one must not replace it here, and never gets a channel.
    async fn run_if_used(&self, peer: AggregatorId, connection: Connection) {
        match connection.accept_channel().await {
            Ok((channel::MEETING, channel)) => {
                if self.is_met(peer, &connection, channel).await {
                    let id = self.put_in_slot(peer, &connection);
                    self.run_connection(peer, id, &connection).await;
                }
            }
            Ok(_) => connection.close("refused: the dialling side must name its era first"),
            Err(error) => self.note_refusal(peer, &error),
        }
    }

    /// Why another aggregator refuses this one, if one does.
    pub fn refused(&self) -> Option<String> {
        self.refusal().clone()
    }

    fn refusal(&self) -> MutexGuard<'_, Option<String>> {
        self.inner.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why another aggregator does not want to be connected is for people.
    fn note_refusal(&self, peer: AggregatorId, error: &ChannelError) {
        if let ChannelError::Lost(ConnectionLost::ClosedByPeer { reason }) = error
            && reason.starts_with("refused: ")
        {
            self.inner.directory.refuse(reason);
            let before = self.refusal().replace(reason.clone());
            if before.as_ref() != Some(reason) {
                tracing::error!(peer = %self.name_of(peer), %reason, "another aggregator refuses this one");
            }
        }
    }

    /// Whether an aggregator has been registered in the ledger for some time, as applied here. An aggregator that has just registered may
    /// be about to learn of it.
    fn knows_view(&self, peer: AggregatorId) -> bool {
        self.views_seen().get(&peer).is_some_and(|seen| seen.elapsed() >= REGISTERED_FOR)
    }

    /// Looks which aggregators are registered; to be called again and again.
    pub fn note_views(&self) {
        let views = self.inner.ledger.lock().views().clone();
        let mut seen = self.views_seen();
        seen.retain(|view, _| views.contains(view));
        for view in views {
            seen.entry(view).or_insert_with(Instant::now);
        }
    }

    fn views_seen(&self) -> MutexGuard<'_, BTreeMap<AggregatorId, Instant>> {
        self.inner.views_seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this aggregator began with nothing, the operator did not say that this is meant, and it has not registered since.
    fn is_empty(&self) -> bool {
        self.inner.directory.is_empty() && !self.inner.ledger.lock().views().contains(&self.inner.own)
    }

    fn link(&self, peer: AggregatorId, note: impl FnOnce(&mut LinkLog)) {
        if let Some(link) = self.inner.links.get(&peer) {
            note(&mut link.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Before anything else both sides say of which era they are: a process of another one is no peer.
    async fn meet(&self, peer: AggregatorId, connection: &Connection) -> bool {
        match connection.open_channel(channel::MEETING).await {
            Ok(channel) => self.is_met(peer, connection, channel).await,
            Err(error) => {
                self.note_refusal(peer, &error);
                false
            }
        }
    }

    async fn is_met(&self, peer: AggregatorId, connection: &Connection, mut channel: Channel) -> bool {
        let own = self.inner.cluster.with_era();
        let said = wire::encode(&Meeting { cluster: own.clone(), blank: self.is_blank(), empty: self.is_empty() });
        let _ = channel.writer.send_bytes(said.into()).await;
        let met = match tokio::time::timeout(MEETING_MAX, channel.reader.next()).await {
            Ok(Ok(Some(frame))) => wire::decode::<Meeting>(&frame).map_err(NotMet::from),
            Ok(Err(ReceiveError::Lost(error))) => {
                self.note_refusal(peer, &error.into());
                return false;
            }
            Ok(Ok(None)) | Err(_) => Err(NotMet::Silent),
            Ok(Err(error)) => Err(error.into()),
        };
        let reason = match met {
            Ok(Meeting { cluster, empty: true, .. }) if cluster == own && self.knows_view(peer) => {
                let name = self.name_of(peer);
                format!(
                    "{EMPTY_DIRECTORY} and the ledger knows {name} as registered: look whether its disk is mounted. If the disk is \
                     lost: `tidemark restore dc`, or start with --fresh, which begins empty"
                )
            }
            Ok(Meeting { cluster, blank, .. }) if cluster == own => {
                // Another one of the same data centre knows no better.
                if peer.dc != self.inner.own.dc {
                    *self.refusal() = None;
                }
                if !(blank && self.is_known_to_have_a_log(peer)) {
                    // An earlier leader has taken it off and on again: a later leader must not do so once more.
                    self.emptied().remove(&peer);
                    return true;
                }
                tracing::warn!(
                    %peer,
                    "a member of the ledger has lost its log: it leaves, and comes back as a new one"
                );
                self.emptied().insert(peer);
                connection.close("the ledger takes this member off its list first: it has lost its log");
                return false;
            }
            Ok(Meeting { cluster, .. }) => {
                format!("this aggregator is of `{own}`, and the other side is of `{cluster}`")
            }
            Err(why) => why.to_string(),
        };
        self.link(peer, |link| link.refused(&format!("refused here: {reason}")));
        connection.close(&format!("refused: {reason}"));
        false
    }

    /// From now on this is the connection to that data centre.
    fn put_in_slot(&self, peer: AggregatorId, connection: &Connection) -> u64 {
        let id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
        let slot = &self.inner.connections[&peer];
        if let Some((_, old)) = slot.send_replace(Some((id, connection.clone()))) {
            old.close("replaced by a newer connection");
        }
        self.link(peer, LinkLog::up);
        id
    }

    async fn run_connection(&self, peer: AggregatorId, id: u64, connection: &Connection) {
        let reason = loop {
            match connection.accept_channel().await {
                Ok((kind, channel)) => self.serve_channel(peer, id, connection, kind, channel),
                Err(error) => {
                    self.note_refusal(peer, &error);
                    break error.to_string();
                }
            }
        };
        let is_lost = self.inner.connections[&peer].send_if_modified(|current| {
            let ours = current.as_ref().is_some_and(|(current, _)| *current == id);
            if ours {
                *current = None;
            }
            ours
        });
        if is_lost {
            self.link(peer, |link| link.down(&reason));
        }
    }

    async fn open_peer_channel(&self, peer: AggregatorId, id: u64, connection: Connection) {
        match connection.open_channel(channel::PEER).await {
            Ok(channel) => self.run_peer(peer, id, connection, channel).await,
            Err(error) => tracing::debug!(%peer, %error, "peer lost"),
        }
    }

    fn serve_channel(&self, peer: AggregatorId, id: u64, connection: &Connection, kind: u8, channel: Channel) {
        if kind == channel::PEER {
            let mesh = self.clone();
            let connection = connection.clone();
            return drop(tokio::spawn(async move { mesh.run_peer(peer, id, connection, channel).await }));
        }
        if !self.inner.doors.serve(peer, kind, channel) {
            tracing::debug!(%peer, kind, "channel refused");
        }
    }

    async fn run_peer(&self, peer: AggregatorId, id: u64, connection: Connection, channel: Channel) {
        let Channel { mut reader, writer } = channel;
        let (sender, receiver) = mpsc::channel(WRITER_QUEUE_MAX);
        let writing = tokio::spawn(write_all(writer, receiver));
        let up = Event::PeerUp { peer, id, sender, connection: connection.clone() };
        if self.inner.events.send(up).await.is_ok() {
            self.read_peer(peer, id, &mut reader).await;
            let _ = self.inner.events.send(Event::PeerGone { peer, id }).await;
        }
        writing.abort();
        connection.close("the peer channel has ended");
    }

    async fn read_peer(&self, peer: AggregatorId, id: u64, reader: &mut FrameReader) {
        while let Ok(Some(frame)) = reader.next().await {
            match wire::decode::<PeerMsg>(&frame) {
                Ok(msg) => {
                    if self.inner.events.send(Event::Peer { peer, id, msg }).await.is_err() {
                        break;
                    }
                }
                Err(error) => {
                    tracing::warn!(%peer, %error, "malformed message of a peer");
                    break;
                }
            }
        }
    }
}
