//! The host of a group: one task that owns the core and feeds it what happens.

use crate::events::{Event, EventReceiver, Peer};
use crate::log::{GroupLog, News, PartRefused};
use crate::places::{self, Judged};
use bytes::Bytes;
use std::collections::HashMap;
use std::time::Duration;
use tidemark_consensus::replica;
use tidemark_proto::group::GroupConfig;
use tidemark_proto::ids::{GroupId, LogIndex, OwnerId};
use tidemark_proto::limits::AGGREGATORS_MAX;
use tidemark_proto::msg::{Admission, ForGroup, FromGroup, KnownGroup, Proposed};
use tidemark_proto::node::{CheckpointPart, ConnId, Input, NodeConfig, NodeCore, Output};
use tidemark_proto::time::{Span, Time};
use tidemark_proto::wire;
use tidemark_transport::Clock;
use tokio::sync::{oneshot, watch};

/// Events handled before entries are appended.
const EVENTS_BATCH: usize = 64;
/// The status of a group on several nodes is looked at so often at least.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// A part of a checkpoint for which a log has no room is handed in again after so long.
const PART_AGAIN: Span = Span::from_millis(50);
/// Why a connection with a full writer's queue ends.
const READS_TOO_SLOWLY: &str = "reads too slowly";
/// Why clients' connections end when the node no longer speaks for the group.
const LED_ELSEWHERE: &str = "another node may lead the group";

/// The role of a node in a group's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The log is on this node only.
    #[default]
    Alone,
    Leads,
    Follows,
}

/// A group's state on this node, as others may see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStatus {
    /// Its incarnation is 0 until its log has one.
    pub group: Option<GroupId>,
    pub role: Role,
    /// The node that leads the group, if known; none if the log is on this node only.
    pub leader: Option<u16>,
    /// The nodes that hold the log, as far as is known; none if it is on this node only.
    pub holders: Vec<u16>,
    /// Valves.
    pub valves: u8,
    /// Whether increments are taken, here or, as far as is known, where the group is led.
    pub serving: bool,
    /// All of the log that is known to be committed was applied here since the start, and a leader is known.
    pub caught_up: bool,
    /// Why the log stopped, if it did.
    pub failed: Option<String>,
    /// A fault that keeps the group from working until an operator acts.
    pub trouble: Option<String>,
    /// The group has gone on without this node, which holds nothing of it any more.
    pub left: bool,
    pub connections: usize,
    pub applied: u64,
    /// Durable commits since the start.
    pub commits: u64,
    /// Bytes that buckets take of memory, and may take; the limit is none before the log is open.
    pub buckets_bytes: usize,
    pub buckets_bytes_max: Option<usize>,
    /// Rows, one of each counter and valve, of which old buckets are on disk only.
    pub rows_shelved: usize,
    /// Increments with ids that the group remembers, and their maximum.
    pub ids: u32,
    pub ids_max: u32,
    /// For how long, since the start, batches waited for views to come nearer.
    pub held_ms: u64,
}

impl GroupStatus {
    /// Whether this node knows of members of the group, or is the only one.
    pub fn is_founded(&self) -> bool {
        self.role == Role::Alone || !self.holders.is_empty()
    }
}

/// How a host's run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was stopped, or its log has failed.
    Over,
    /// The incarnation was declared lost.
    Lost(GroupId),
    /// The group has gone on without this node, where it is not placed any more.
    Left,
}

/// The connection of an aggregator.
struct Aggregator {
    conn: u64,
    peer: Peer,
    /// The core was told of it: it is only while it leads.
    told: bool,
}

pub struct Host {
    core: NodeCore,
    log: GroupLog,
    failed: Option<String>,
    trouble: Option<String>,
    /// An empty data directory is meant.
    fresh: bool,
    /// Why this node must not serve the group, if it must not.
    refused: Option<String>,
    /// The incarnation was declared lost: everything of it is to be set aside.
    abandoned: Option<GroupId>,
    /// The group has gone on without this node.
    left: bool,
    /// The node that leads the group, if known.
    leader: Option<u16>,
    /// The log was applied once as far as it is committed.
    caught_up: bool,
    dc_name: String,
    clients: HashMap<u64, Peer>,
    /// The present connections of this data centre's aggregators, by seat.
    aggregators: [Option<Aggregator>; AGGREGATORS_MAX as usize],
    clock: Clock,
    durable: LogIndex,
    checkpointed: u64,
    appended: Vec<Bytes>,
    parts_taken: u64,
    /// When a part that was not is handed in again.
    part_again: Option<Time>,
    /// Connections found dead while outputs were carried out; the core hears of them after.
    lost: Vec<Input>,
    publish: watch::Sender<GroupStatus>,
    stopping: Option<oneshot::Sender<()>>,
}

impl Host {
    pub fn new(
        core: NodeCore,
        log: GroupLog,
        dc_name: String,
        fresh: bool,
        publish: watch::Sender<GroupStatus>,
    ) -> Host {
        let durable = match &log {
            GroupLog::Alone(_, progress) => progress.durable(),
            GroupLog::Shared(_) => LogIndex(0),
        };
        Host {
            core,
            log,
            failed: None,
            trouble: None,
            fresh,
            refused: None,
            abandoned: None,
            left: false,
            leader: None,
            caught_up: false,
            dc_name,
            clients: HashMap::new(),
            aggregators: Default::default(),
            clock: Clock::start(),
            durable,
            checkpointed: 0,
            appended: Vec::new(),
            parts_taken: 0,
            part_again: None,
            lost: Vec::new(),
            publish,
            stopping: None,
        }
    }

    pub async fn run(mut self, events: &mut EventReceiver) -> Ended {
        let mut batch = Vec::with_capacity(EVENTS_BATCH);
        self.handle(Input::Tick);
        self.append();
        while self.failed.is_none()
            && self.refused.is_none()
            && self.stopping.is_none()
            && self.abandoned.is_none()
            && !self.left
        {
            let deadline = [self.core.poll_timeout(), self.part_again].into_iter().flatten().min();
            tokio::select! {
                taken = events.recv_many(&mut batch, EVENTS_BATCH) => {
                    if taken == 0 {
                        break;
                    }
                    for event in batch.drain(..) {
                        self.on_event(event);
                        // A batch of a client may take milliseconds, and there may be many.
                        if let Some(event) = events.next_of_aggregators() {
                            self.on_event(event);
                        }
                    }
                }
                news = self.log.news() => self.on_news(news),
                () = sleep_until(self.clock, deadline), if deadline.is_some() => self.handle(Input::Tick),
                // A part of a checkpoint may read the disk: whatever else there is to do goes on between two of them.
                () = std::future::ready(()), if self.parts_taken > 0 => self.take_part(),
                // The holders of a log change without news of it.
                () = tokio::time::sleep(STATUS_INTERVAL), if self.log.is_shared() => {}
            }
            if self.part_again.is_some_and(|again| again <= self.now()) {
                let taken = self.log.checkpoint_again();
                self.on_part(taken);
            }
            self.attend_aggregators();
            self.append();
            self.publish_status();
        }
        self.finish()
    }

    fn now(&self) -> Time {
        Time(self.clock.elapsed().as_micros() as u64)
    }

    /// Feeds the core and carries out what it wants, in its order; entries are appended together by [`Host::append`].
    fn handle(&mut self, input: Input) {
        let mut next = Some(input);
        while let Some(input) = next {
            self.core.handle(self.now(), input);
            while let Some(output) = self.core.poll_output() {
                self.carry_out(output);
            }
            next = self.lost.pop();
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::ClientUp { conn, owner, peer } => self.on_client_up(conn, owner, peer),
            Event::Client { conn, msg } => {
                if self.clients.contains_key(&conn) {
                    self.handle(Input::Client { conn: ConnId(conn), msg });
                }
            }
            Event::ClientGone { conn } => self.lose_client(conn),
            Event::AggregatorUp { conn, dc, seat, known, peer } => self.on_aggregator(conn, &dc, seat, known, peer),
            Event::Aggregator { conn, msg } => {
                let Some(seat) = self.seat_of(conn) else { return };
                if let ForGroup::Lost { group } = msg {
                    self.on_lost(group);
                }
                let told = self.aggregators[usize::from(seat)].as_ref().is_some_and(|present| present.told);
                if told || matches!(msg, ForGroup::Lost { .. }) {
                    self.handle(Input::Aggregator { seat, msg });
                }
            }
            Event::AggregatorGone { conn } => {
                if let Some(seat) = self.seat_of(conn) {
                    tracing::warn!(group = %self.core.config().group.id, seat, "aggregator lost");
                    self.lose_aggregator(seat);
                }
            }
            Event::Stop { done } => self.stopping = Some(done),
        }
    }

    /// A log that was never checkpointed says on disk which incarnation it is of, before a leader does.
    fn on_lost(&mut self, group: GroupId) {
        let own = self.core.config().group.id;
        if own.incarnation == 0 && (own.dc, own.group) == (group.dc, group.group) {
            let found = wire::encode(&Proposed::Found { incarnation: group.incarnation });
            let is_it = self.log.first_command().is_some_and(|first| first[..] == found[..]);
            self.abandoned = self.abandoned.or(is_it.then_some(group));
        }
    }

    fn seat_of(&self, conn: u64) -> Option<u8> {
        let is_it = |present: &Option<Aggregator>| present.as_ref().is_some_and(|present| present.conn == conn);
        self.aggregators.iter().position(is_it).map(|seat| seat as u8)
    }

    /// The newest connection of each of this data centre's aggregators counts; another data centre's is refused.
    fn on_aggregator(&mut self, conn: u64, dc: &str, seat: u8, known: Option<KnownGroup>, peer: Peer) {
        if dc != self.dc_name {
            tracing::warn!(dc, own = %self.dc_name, "aggregator of another data centre refused");
            return peer.end(&format!("this is a node of {}: it does not serve the aggregator of {dc}", self.dc_name));
        }
        if let Some(known) = known {
            let disk =
                places::Disk { group: self.core.group().config().id, registered: self.core.group().is_registered() };
            match places::judge(&disk, &known, self.fresh) {
                Judged::Same => {}
                Judged::Fresh { before } => {
                    tracing::warn!(group = %disk.group, before, "begins empty, as --fresh says")
                }
                Judged::NodeEmpty { before } => {
                    self.refused = Some(places::node_is_empty(&self.dc_name, &disk, before));
                    return peer.end("refused: this node has an empty data directory, and ends");
                }
                Judged::AggregatorEmpty => return peer.end(&places::aggregator_is_empty(&self.dc_name, &disk)),
            }
        }
        if let Some(before) = self.lose_aggregator(seat) {
            before.end("replaced by a newer connection");
        }
        tracing::info!(group = %self.core.config().group.id, seat, "aggregator connected");
        self.aggregators[usize::from(seat)] = Some(Aggregator { conn, peer, told: false });
        self.attend_aggregators();
    }

    /// The leader of the group tells aggregators of it: elsewhere their channels wait.
    fn attend_aggregators(&mut self) {
        let leads = self.core.leads();
        let group = self.core.config().group.id;
        for seat in 0..AGGREGATORS_MAX {
            let Some(present) = &mut self.aggregators[usize::from(seat)] else { continue };
            if present.told == leads {
                continue;
            }
            present.told = leads;
            if leads {
                self.handle(Input::AggregatorUp { seat });
            } else {
                // The aggregator must not take a group without a leader for alive.
                present.peer.send(wire::encode(&FromGroup::Resigned { group }).into());
                self.handle(Input::AggregatorGone { seat });
            }
        }
    }

    fn lose_aggregator(&mut self, seat: u8) -> Option<Peer> {
        let lost = self.aggregators[usize::from(seat)].take()?;
        if lost.told {
            self.handle(Input::AggregatorGone { seat });
        }
        Some(lost.peer)
    }

    /// A client is served where the group is led, and told where that is.
    fn on_client_up(&mut self, conn: u64, owner: OwnerId, peer: Peer) {
        let admission = match self.core.leads() {
            true => Admission::Serves,
            false => Admission::Elsewhere { node: self.leader },
        };
        let told = peer.send(wire::encode(&admission).into());
        if told && self.core.leads() {
            self.clients.insert(conn, peer);
            self.handle(Input::ClientUp { conn: ConnId(conn), owner });
        }
    }

    fn lose_client(&mut self, conn: u64) {
        if self.clients.remove(&conn).is_some() {
            self.handle(Input::ClientGone { conn: ConnId(conn) });
        }
    }

    fn on_news(&mut self, news: Option<News>) {
        match news {
            Some(News::Progress) => self.on_progress(),
            Some(News::Replica(event)) => self.on_replica(event),
            None => self.failed = Some("the group's log has ended".to_owned()),
        }
    }

    fn on_progress(&mut self) {
        let GroupLog::Alone(_, progress) = &self.log else { return };
        let durable = progress.durable();
        let checkpointed = progress.checkpointed();
        self.failed = progress.failure();
        if self.failed.is_none() && durable > self.durable {
            self.durable = durable;
            self.handle(Input::Durable { upto: durable });
        }
        if self.failed.is_none() && checkpointed > self.checkpointed {
            self.checkpointed = checkpointed;
            self.handle(Input::Persisted);
        }
    }

    fn on_replica(&mut self, event: replica::Event) {
        match event {
            replica::Event::Committed { position, batch } => {
                for command in batch.commands() {
                    self.handle(Input::Committed { command: command.to_vec() });
                }
                self.at(Some(position));
            }
            replica::Event::Leads { leadership } => {
                self.lead_under(Some(leadership));
                self.handle(Input::Lead { nonce: rand::random() });
            }
            replica::Event::Follows { leader } => {
                self.leader = leader.and_then(|node| u16::try_from(node).ok());
                if self.lead_under(None).is_some() {
                    self.handle(Input::Follow);
                }
            }
            replica::Event::Restored { position } => self.restore(position),
            replica::Event::Checkpointed { .. } => self.handle(Input::Persisted),
            replica::Event::Bereft { nodes } => self.on_bereft(&nodes),
            replica::Event::Left => self.left = true,
            replica::Event::Failed(failure) => self.failed = Some(failure.to_string()),
        }
    }

    /// Without a majority of its disks the group waits for ever, unless an operator gives up what only they held.
    fn on_bereft(&mut self, nodes: &std::collections::BTreeSet<u32>) {
        self.trouble = (!nodes.is_empty()).then(|| {
            let names: Vec<String> = nodes.iter().map(u32::to_string).collect();
            format!(
                "a majority of the group's disks is gone: nodes {} have other disks. If the old disks do not come back: \
                 tidemark declare-lost {}/{}",
                names.join(", "),
                self.dc_name,
                self.core.config().group.id.group
            )
        });
        if let Some(trouble) = &self.trouble {
            tracing::error!(group = %self.core.config().group.id, "{trouble}");
        }
    }

    fn at(&mut self, position: Option<replica::Position>) {
        if let GroupLog::Shared(shared) = &mut self.log {
            shared.position = position;
        }
    }

    /// The leadership before.
    fn lead_under(&mut self, leadership: Option<u64>) -> Option<u64> {
        match &mut self.log {
            GroupLog::Shared(shared) => std::mem::replace(&mut shared.leadership, leadership),
            GroupLog::Alone(..) => None,
        }
    }

    /// Another node's rows took the place of this one's.
    fn restore(&mut self, position: replica::Position) {
        let GroupLog::Shared(shared) = &mut self.log else { return };
        let group = GroupId { incarnation: 0, ..self.core.config().group.id };
        let config = *self.core.config();
        let config = NodeConfig { group: GroupConfig { id: group, ..config.group }, ..config };
        match shared.restore(position, config) {
            Ok(core) => {
                (self.core, self.parts_taken, self.part_again) = (core, 0, None);
                self.aggregators.iter_mut().flatten().for_each(|present| present.told = false);
            }
            Err(error) => self.failed = Some(error.to_string()),
        }
        self.end_clients();
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Append { entry, .. } => self.appended.push(entry.into()),
            Output::Client { conn, msg } => self.send_client(conn.0, wire::encode(&msg).into()),
            Output::Aggregator { seat, msg } => self.send_aggregator(seat, wire::encode(&msg).into()),
            Output::Persist(part) => self.persist(part),
            Output::CutLog { before } => self.log.cut(before),
            Output::EndClients => self.end_clients(),
            Output::Abandon => self.abandoned = Some(self.core.config().group.id),
            Output::Stop { error } => {
                self.failed = Some(format!("an entry of the group's log cannot be applied: {error}"))
            }
        }
    }

    /// The log keeps its requests in order, so all but the last part count as taken at once.
    fn persist(&mut self, part: CheckpointPart) {
        self.append();
        let last = part.last;
        let taken = self.log.checkpoint(part);
        self.on_part(taken.map(|taken| taken.then_some(last)));
    }

    /// A part was taken, the last one or not; or the log had no room for it.
    fn on_part(&mut self, taken: Result<Option<bool>, PartRefused>) {
        match taken {
            Ok(last) => {
                self.parts_taken += u64::from(last == Some(false));
                self.part_again = last.is_none().then(|| self.now() + PART_AGAIN);
            }
            // The rest would complete a checkpoint without its refused rows.
            Err(error) => self.failed = Some(format!("a part of a checkpoint was refused: {error}")),
        }
    }

    /// Tells the core of a part of a checkpoint that was taken; it may bring the next.
    fn take_part(&mut self) {
        self.parts_taken -= 1;
        self.handle(Input::Persisted);
    }

    fn append(&mut self) {
        if !self.appended.is_empty() {
            let entries = std::mem::take(&mut self.appended);
            metrics::counter!("tidemark_node_entries_total").increment(entries.len() as u64);
            self.log.append(entries);
        }
    }

    /// A client that does not read loses its connection, never what was counted: it asks again.
    fn send_client(&mut self, conn: u64, frame: Bytes) {
        if self.clients.get(&conn).is_some_and(|peer| !peer.send(frame))
            && let Some(peer) = self.clients.remove(&conn)
        {
            metrics::counter!("tidemark_node_slow_clients_total").increment(1);
            peer.end(READS_TOO_SLOWLY);
            self.lost.push(Input::ClientGone { conn: ConnId(conn) });
        }
    }

    fn send_aggregator(&mut self, seat: u8, frame: Bytes) {
        let slot = &mut self.aggregators[usize::from(seat)];
        if let Some(slow) = slot.take_if(|present| !present.peer.send(frame)) {
            slow.peer.end(READS_TOO_SLOWLY);
            self.lost.push(Input::AggregatorGone { seat });
        }
    }

    /// The numbers and lanes that a client has no longer hold: it connects again, to the leader of the group.
    fn end_clients(&mut self) {
        self.clients.drain().for_each(|(_, peer)| peer.end(LED_ELSEWHERE));
    }

    fn publish_status(&mut self) {
        self.caught_up = self.caught_up || self.log.is_caught_up();
        let role = match (&self.log, self.core.leads()) {
            (GroupLog::Alone(..), _) => Role::Alone,
            (_, true) => Role::Leads,
            (_, false) => Role::Follows,
        };
        let (buckets_bytes, buckets_bytes_max) = self.core.group().row_bytes();
        let status = GroupStatus {
            group: Some(self.core.group().config().id),
            role,
            leader: self.leader,
            holders: self.log.holders(),
            valves: self.core.group().lanes(),
            serving: self.core.group().is_serving() && (role != Role::Follows || self.leader.is_some()),
            caught_up: self.caught_up,
            failed: self.failed.clone().or_else(|| self.refused.clone()),
            trouble: self.trouble.clone(),
            left: false,
            connections: self.clients.len(),
            applied: self.core.group().applied().0,
            commits: self.log.commits(),
            buckets_bytes,
            buckets_bytes_max,
            rows_shelved: self.core.group().rows_shelved(),
            ids: self.core.group().ids(),
            ids_max: self.core.group().id_terms().max,
            held_ms: self.core.held(self.now()).0 / 1_000,
        };
        self.publish.send_if_modified(|old| {
            let changed = *old != status;
            *old = status;
            changed
        });
    }

    /// Appended entries become durable as the log is dropped.
    fn finish(mut self) -> Ended {
        self.publish_status();
        if let Some(error) = &self.failed {
            tracing::error!(%error, "the log has failed; the node stops");
        }
        if let Some(reason) = &self.refused {
            tracing::error!(%reason, "the node stops and changes nothing");
        }
        let done = self.stopping.take();
        let lost = self.abandoned;
        let left = self.left;
        if lost.is_some() || left {
            self.end_clients();
            self.aggregators.iter_mut().filter_map(Option::take).for_each(|present| present.peer.end(LED_ELSEWHERE));
        }
        self.log.end();
        // It may read the files of the log, which are free when this is done.
        drop(self.core);
        if let Some(done) = done {
            let _ = done.send(());
        }
        match lost {
            Some(lost) => Ended::Lost(lost),
            None if left => Ended::Left,
            None => Ended::Over,
        }
    }
}

/// Sleeps until `deadline` of the core's clock.
async fn sleep_until(clock: Clock, deadline: Option<Time>) {
    if let Some(deadline) = deadline {
        clock.sleep_until(Duration::from_micros(deadline.0)).await;
    }
}
