//! The host of an aggregator: one task that owns the event loop around the core; readers share the core under a lock.

use crate::awards;
use crate::cluster::Cluster;
use crate::events::{AwardEvent, Event, LiveEvent, NodeGroup, SharedCore};
use crate::ledger::SharedLedger;
use crate::mesh::Mesh;
use crate::storage::{ViewRows, ViewStore};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidemark_consensus::local::PersistError;
use tidemark_consensus::raft::RaftNode;
use tidemark_proto::aggregator::{CLOCK_INTERVAL, CellAudit, Event as CoreEvent, Input, Output};
use tidemark_proto::ids::{AggregatorId, GroupId};
use tidemark_proto::ledger::{Ledger, ShardMap};
use tidemark_proto::msg::{ForGroup, FromGroup, LedgerCmd, PeerMsg, ScopedChunk};
use tidemark_proto::shards::ShardId;
use tidemark_proto::time::{Span, Time, WallMs};
use tidemark_proto::wire::{self, Message};
use tidemark_transport::{Clock, Connection, Credentials};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, broadcast, mpsc, oneshot};

/// Events that may wait for the core; past it readers wait, and with them their connections.
pub const EVENTS_MAX: usize = 4_096;
const EVENTS_BATCH: usize = 256;
/// Why a connection with a full writer's queue ends.
const READS_TOO_SLOWLY: &str = "reads too slowly";
/// How often round trips are looked at, and the clock.
const SURVEY_INTERVAL: Duration = Duration::from_micros(CLOCK_INTERVAL.0);

struct Peer {
    id: u64,
    sender: mpsc::Sender<Bytes>,
    connection: Connection,
}

/// A node of this data centre, as one of the holders of a group.
struct NodePeer {
    sender: mpsc::Sender<Bytes>,
    connection: Connection,
}

/// The node that greeted last for a group: a leader that was deposed, and does not know it yet, is heard no longer.
struct Speaker {
    node: NodeGroup,
    /// Number of the start that it greeted with.
    start: u64,
}

/// Everything the event loop needs.
pub struct Host {
    pub own: AggregatorId,
    pub core: SharedCore,
    pub ledger: SharedLedger,
    pub ledger_changed: Arc<Notify>,
    pub raft: RaftNode,
    pub mesh: Mesh,
    pub credentials: Credentials,
    pub store: ViewStore,
    pub live: broadcast::Sender<LiveEvent>,
    pub clock: Clock,
    peers: HashMap<AggregatorId, Peer>,
    nodes: HashMap<NodeGroup, NodePeer>,
    /// The node that speaks for each group.
    speakers: HashMap<GroupId, Speaker>,
    reign: Option<(AggregatorId, u64)>,
    /// Sets of rows that are durable, by shard.
    persisted: BTreeMap<ShardId, u64>,
    /// Number of requests for durable rows so far, and the callers that wait for each.
    flushes: u64,
    flushing: Vec<(u64, oneshot::Sender<Result<ViewRows, PersistError>>)>,
    /// The callers that wait for each audit.
    audits: HashMap<u64, mpsc::Sender<CellAudit>>,
}

/// The parts that a host is made of.
pub struct HostParts {
    pub own: AggregatorId,
    pub core: SharedCore,
    pub ledger: SharedLedger,
    pub ledger_changed: Arc<Notify>,
    pub raft: RaftNode,
    pub mesh: Mesh,
    pub credentials: Credentials,
    pub store: ViewStore,
    pub live: broadcast::Sender<LiveEvent>,
    pub clock: Clock,
}

impl Host {
    pub fn new(parts: HostParts) -> Host {
        let HostParts { own, core, ledger, ledger_changed, raft, mesh, credentials, store, live, clock } = parts;
        let (peers, nodes, speakers) = Default::default();
        Host {
            own,
            core,
            ledger,
            ledger_changed,
            raft,
            mesh,
            credentials,
            store,
            live,
            clock,
            peers,
            nodes,
            speakers,
            reign: None,
            persisted: BTreeMap::new(),
            flushes: 0,
            flushing: Vec::new(),
            audits: HashMap::new(),
        }
    }

    pub async fn run(mut self, mut events: mpsc::Receiver<Event>) {
        let changed = self.ledger_changed.clone();
        let persisted = self.store.changed();
        let mut batch = Vec::with_capacity(EVENTS_BATCH);
        let mut survey = tokio::time::interval(SURVEY_INTERVAL);
        let mut leaders = self.raft.leaders();
        // At first, so that what ended long ago need not stay in memory.
        self.tell_time();
        self.on_ledger();
        self.on_leader(leaders.reign());
        loop {
            let deadline = self.core.lock().poll_timeout();
            tokio::select! {
                taken = events.recv_many(&mut batch, EVENTS_BATCH) => {
                    if taken == 0 || self.on_events(&mut batch) {
                        break;
                    }
                }
                () = changed.notified() => self.on_ledger(),
                () = persisted.notified() => self.on_persisted(),
                () = sleep_until(self.clock, deadline), if deadline.is_some() => self.handle(Input::Tick),
                () = leaders.changed() => self.on_leader(leaders.reign()),
                _ = survey.tick() => self.survey(),
            }
            self.drain();
        }
    }

    /// Handles a batch; true when the host is to stop.
    fn on_events(&mut self, batch: &mut Vec<Event>) -> bool {
        for event in batch.drain(..) {
            if let Event::Stop { done } = event {
                let _ = done.send(());
                return true;
            }
            self.on_event(event);
        }
        false
    }

    fn now(&self) -> Time {
        Time(self.clock.elapsed().as_micros() as u64)
    }

    fn handle(&mut self, input: Input) {
        let now = self.now();
        let ledger = self.ledger.lock();
        self.core.lock().handle(now, input, &ledger);
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::PeerUp { peer, id, sender, connection } => self.on_peer_up(peer, id, sender, connection),
            Event::Peer { peer, id, msg } => {
                if self.peers.get(&peer).is_some_and(|known| known.id == id) {
                    self.handle(Input::Peer { peer, msg });
                }
            }
            Event::PeerGone { peer, id } => {
                if self.peers.get(&peer).is_some_and(|known| known.id == id) {
                    self.peers.remove(&peer);
                    self.handle(Input::PeerGone { peer });
                }
            }
            Event::NodeUp { node, sender, connection } => {
                self.nodes.insert(node, NodePeer { sender, connection });
                let lost = self.ledger.lock().lost().collect();
                self.tell_lost(lost);
            }
            Event::Node { node, msg } => self.on_node(node, msg),
            Event::NodeGone { node } => drop(self.forget_node(node)),
            Event::Submit { cmds } => self.handle(Input::Submit(cmds)),
            Event::Audit { group, id, cell, answers } => {
                self.audits.retain(|_, waiting| !waiting.is_closed());
                self.audits.insert(id, answers);
                self.handle(Input::Audit { group, id, cell });
            }
            Event::Flush { done } => self.flush(done),
            Event::Stop { .. } => {}
        }
    }

    fn on_peer_up(&mut self, peer: AggregatorId, id: u64, sender: mpsc::Sender<Bytes>, connection: Connection) {
        if self.peers.remove(&peer).is_some() {
            self.handle(Input::PeerGone { peer });
        }
        let rtt = Span(connection.rtt().as_micros() as u64);
        self.peers.insert(peer, Peer { id, sender, connection });
        self.handle(Input::PeerUp { peer, rtt });
    }

    /// The first message by a node's channel is a greeting, which says of which incarnation the group is.
    fn on_node(&mut self, node: NodeGroup, msg: FromGroup) {
        let group = group_of(&msg);
        if group.dc != self.own.dc || group.group != node.group {
            tracing::warn!(%group, ?node, "a node of this data centre speaks for another group than it was asked about");
            return self.lose_node(node, "the group is not the one that the channel is for");
        }
        match &msg {
            FromGroup::Hello(hello) => self.on_greeting(node, group, hello.number),
            FromGroup::Resigned { .. } => return self.on_resigned(node, group),
            FromGroup::Report(_)
            | FromGroup::Offer(_)
            | FromGroup::Detail(_)
            | FromGroup::Feed(_)
            | FromGroup::Returned(_)
            | FromGroup::Audited(_)
            | FromGroup::FedIn(_) => {}
        }
        if self.speakers.get(&group).is_some_and(|speaker| speaker.node == node) {
            self.handle(Input::Group { group, msg });
        }
    }

    fn on_resigned(&mut self, node: NodeGroup, group: GroupId) {
        if self.speakers.get(&group).is_some_and(|speaker| speaker.node == node) {
            self.speakers.remove(&group);
            self.handle(Input::GroupGone { group });
        }
    }

    /// A node that greets with a later start than the present speaker's speaks from here on.
    fn on_greeting(&mut self, node: NodeGroup, group: GroupId, start: u64) {
        let present = self.speakers.get(&group).map(|speaker| speaker.start);
        if present.is_some_and(|number| number >= start) {
            return;
        }
        if present.is_some() {
            self.handle(Input::GroupGone { group });
        }
        self.speakers.insert(group, Speaker { node, start });
        self.handle(Input::GroupUp { group });
    }

    /// Ends the connection to a node, if it has not ended, so that it is made again.
    fn lose_node(&mut self, node: NodeGroup, reason: &str) {
        if let Some(peer) = self.forget_node(node) {
            peer.connection.close(reason);
        }
    }

    /// The channel of one group has ended; the connection may serve others.
    fn forget_node(&mut self, node: NodeGroup) -> Option<NodePeer> {
        let peer = self.nodes.remove(&node)?;
        let lost: Vec<GroupId> =
            self.speakers.iter().filter(|(_, speaker)| speaker.node == node).map(|(&group, _)| group).collect();
        for group in lost {
            self.speakers.remove(&group);
            self.handle(Input::GroupGone { group });
        }
        Some(peer)
    }

    /// The ledger's replica applied something.
    fn on_ledger(&mut self) {
        let now = self.now();
        let mut ledger = self.ledger.lock();
        let changes = ledger.take_changes();
        let lost = changes.groups.iter().copied().filter(|&group| ledger.is_lost(group)).collect();
        for (counter, at) in &changes.awards {
            self.sign(&ledger, counter, *at);
        }
        let forgotten = changes.forgotten;
        self.core.lock().handle(now, Input::Ledger(changes), &ledger);
        drop(ledger);
        self.tell_lost(lost);
        if forgotten {
            self.mesh.forget();
        }
    }

    /// Every node that holds a group hears that an incarnation of it is lost, also one that does not speak for it.
    fn tell_lost(&mut self, lost: Vec<GroupId>) {
        let own = self.own.dc;
        for group in lost.into_iter().filter(|group| group.dc == own) {
            let frame = Bytes::from(wire::encode(&ForGroup::Lost { group }));
            let holders = self.nodes.iter().filter(|(node, _)| node.group == group.group);
            let full = holders.filter(|(_, peer)| peer.sender.try_send(frame.clone()).is_err());
            let full: Vec<NodeGroup> = full.map(|(&node, _)| node).collect();
            full.into_iter().for_each(|node| self.lose_node(node, READS_TOO_SLOWLY));
        }
    }

    /// A voter puts its signature under each award that it applied.
    fn sign(&self, ledger: &Ledger, counter: &tidemark_proto::ids::CounterName, at: u64) {
        let is_voter = self.raft.metrics().get().voters.contains(&Cluster::member(self.own));
        let awarded = ledger.counter(counter).and_then(|state| state.awards().get(&at));
        if let Some(awarded) = awarded.filter(|_| is_voter) {
            let cmd = awards::signature(&self.credentials, self.own.dc, awarded);
            self.core.lock().keep_proposing(cmd);
        }
    }

    fn on_persisted(&mut self) {
        let before = std::mem::replace(&mut self.persisted, self.store.persisted().collect());
        for (shard, persisted) in self.persisted.clone() {
            if persisted > before.get(&shard).copied().unwrap_or(0) {
                self.handle(Input::Persisted { shard });
            }
        }
        let done = self.core.lock().flushes_done();
        let is_done = |(number, _): &mut (u64, _)| *number <= done;
        for (_, done) in self.flushing.extract_if(.., is_done) {
            let _ = done.send(self.store.rows_now());
        }
    }

    /// Everything that is known now is to be among the rows.
    fn flush(&mut self, done: oneshot::Sender<Result<ViewRows, PersistError>>) {
        self.drain();
        self.flushes += 1;
        self.flushing.push((self.flushes, done));
        self.handle(Input::Flush);
    }

    fn on_leader(&mut self, reign: Option<(u64, u64)>) {
        let reign = reign.and_then(|(member, term)| Some((Cluster::of_member(member)?, term)));
        if reign != self.reign {
            self.reign = reign;
            self.handle(Input::Leader(reign));
        }
    }

    /// How far the others are away, and what the clock shows.
    fn survey(&mut self) {
        let rtt_of = |(&id, peer): (&AggregatorId, &Peer)| (id, Span(peer.connection.rtt().as_micros() as u64));
        let rtts: Vec<(AggregatorId, Span)> = self.peers.iter().map(rtt_of).collect();
        for (peer, rtt) in rtts {
            self.handle(Input::PeerRtt { peer, rtt });
        }
        self.mesh.note_views();
        self.tell_time();
    }

    fn tell_time(&mut self) {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.handle(Input::Clock(WallMs(since_1970.as_millis() as u64)));
    }

    /// Carries out everything the core wants, in its order.
    fn drain(&mut self) {
        loop {
            let Some(output) = self.core.lock().poll_output() else { break };
            match output {
                Output::Group { group, msg } => self.send_group(group, wire::encode(&msg).into()),
                Output::Peer { peer, msg } => {
                    let may_be_lost = matches!(msg, PeerMsg::Shard { .. });
                    self.send_peer(peer, wire::encode(&msg).into(), may_be_lost);
                }
                Output::Propose(cmds) => self.propose(&cmds),
                Output::Persist { shard, rows } => self.store.persist(shard, rows),
                Output::Notify(event) => self.notify(event),
                Output::Audited(audit) => self.on_audited(audit),
                Output::Kept { map, kept } => self.on_kept(&map, &kept),
            }
        }
    }

    /// The set of shards with files has changed. A shard that comes back begins to count its writes anew.
    fn on_kept(&mut self, map: &ShardMap, kept: &BTreeSet<ShardId>) {
        tracing::info!(revision = map.revision(), ?kept, "which slots are here has changed");
        self.persisted.retain(|shard, _| kept.contains(shard));
        if let Err(error) = self.store.keep(map, kept) {
            self.store.fail(&error);
        }
    }

    /// A caller that takes no more answers is not told: it asks again if it wants to.
    fn on_audited(&mut self, audit: CellAudit) {
        let id = audit.id;
        let last = audit.last;
        let told = self.audits.get(&id).is_some_and(|answers| answers.try_send(audit).is_ok());
        if last || !told {
            self.audits.remove(&id);
        }
    }

    fn send_group(&mut self, group: GroupId, frame: Bytes) {
        let Some(node) = self.speakers.get(&group).map(|speaker| speaker.node) else { return };
        if self.nodes.get(&node).is_some_and(|peer| peer.sender.try_send(frame).is_err()) {
            self.lose_node(node, READS_TOO_SLOWLY);
        }
    }

    /// A peer that does not read loses its connection; it is told again from its digest. The frames of many shards may not fit together:
    /// beyond the limit they are lost, as on any network, and sent again.
    fn send_peer(&mut self, peer: AggregatorId, frame: Bytes, may_be_lost: bool) {
        metrics::counter!("tidemark_peer_bytes_total").increment(frame.len() as u64);
        let sent = self.peers.get(&peer).map_or(Ok(()), |known| known.sender.try_send(frame));
        if matches!(sent, Err(TrySendError::Full(_))) && may_be_lost {
            return;
        }
        if sent.is_err()
            && let Some(slow) = self.peers.remove(&peer)
        {
            slow.connection.close(READS_TOO_SLOWLY);
            self.handle(Input::PeerGone { peer });
        }
    }

    /// Sends proposals in order: an offer that overtakes the one before it would be refused, and the queue behind it would wait to be
    /// offered again. Lost proposals are made again from state, so no caller waits for their results.
    fn propose(&self, cmds: &[LedgerCmd]) {
        let commands: Vec<Bytes> =
            cmds.iter().filter(|cmd| is_applicable(cmd)).map(|cmd| wire::encode(cmd).into()).collect();
        if let Err(error) = self.raft.submit(commands) {
            tracing::debug!(%error, "proposal lost");
        }
    }

    fn notify(&self, event: CoreEvent) {
        let event = match event {
            CoreEvent::Award { counter, at } => self.award_event(&counter, at, false),
            CoreEvent::Signature { counter, at } => self.award_event(&counter, at, true),
            CoreEvent::Claims => Some(LiveEvent::Claims),
            CoreEvent::Total { counter, reading } => Some(LiveEvent::Total { counter, reading }),
            CoreEvent::CutElsewhere { peer } => {
                tracing::warn!(%peer, "its view is cut into other slots: nothing is exchanged with it until both layouts are alike");
                None
            }
        };
        if let Some(event) = event {
            let _ = self.live.send(event);
        }
    }

    fn award_event(&self, counter: &tidemark_proto::ids::CounterName, at: u64, signature: bool) -> Option<LiveEvent> {
        let ledger = self.ledger.lock();
        let awarded = ledger.counter(counter)?.awards().get(&at)?.clone();
        Some(LiveEvent::Award(Arc::new(AwardEvent { awarded, signature })))
    }
}

fn group_of(msg: &FromGroup) -> GroupId {
    match msg {
        FromGroup::Hello(hello) => hello.group,
        FromGroup::Report(report) | FromGroup::Returned(report) => report.group,
        FromGroup::Offer(offer) | FromGroup::Detail(offer) => offer.group,
        FromGroup::Feed(chunk) | FromGroup::FedIn(ScopedChunk { chunk, .. }) => chunk.group,
        FromGroup::Resigned { group } => *group,
        FromGroup::Audited(audited) => audited.group,
    }
}

/// A command that members could not apply would stop every one of them.
fn is_applicable(cmd: &LedgerCmd) -> bool {
    let valid = cmd.validate();
    if let Err(error) = &valid {
        tracing::error!(%error, ?cmd, "not proposed: no member could apply it");
    }
    valid.is_ok()
}

async fn sleep_until(clock: Clock, deadline: Option<Time>) {
    if let Some(deadline) = deadline {
        clock.sleep_until(Duration::from_micros(deadline.0)).await;
    }
}
