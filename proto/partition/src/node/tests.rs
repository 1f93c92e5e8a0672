//! A node with a disk that loses unflushed data, clients that retry, and the real ledger. Wherever it is cut off between two
//! outputs, every increment is counted once and one of them is the milestone.

mod compaction;
mod holds;
mod leases;
mod pace;
mod parts;

use super::commit::ITEM_BYTES;
use super::*;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_ledger::ledger::Ledger;
use tidemark_types::ids::{ClientId, CounterName, DcId, OwnerId, SessionId};
use tidemark_types::limits::DELTA_MAX;
use tidemark_types::series::UnixTime;
use tidemark_wire::msg::{IdAnswer, ItemId, OfferBody};
use tidemark_wire::wire::decode;

const LANES: u8 = 2;
const MILESTONE: u64 = 60;
const GUARDED: usize = 0;

fn id() -> GroupId {
    GroupId { dc: DcId(1), group: 0, incarnation: 1 }
}

fn config() -> NodeConfig {
    NodeConfig {
        entry_bytes_max: 4_096,
        checkpoint_log_bytes: 2_000,
        checkpoint_part_bytes: 200,
        ..NodeConfig::new(id(), LANES)
    }
}

fn name(key: usize) -> CounterName {
    CounterName::new("test", format!("counter-{key}").as_bytes()).unwrap()
}

fn batch(lane: u8, seq: u64, items: &[(usize, u64)]) -> FromClient {
    let defs: BTreeMap<u32, CounterName> = items.iter().map(|&(key, _)| (key as u32, name(key))).collect();
    let session = |key: usize| (key == GUARDED).then_some(SessionId([seq as u8; 16]));
    let items = items.iter().map(|&(key, delta)| WireItem { number: key as u32, delta, session: session(key) });
    FromClient::Batch { lane, seq, defs: defs.into_iter().collect(), items: items.collect(), times: Vec::new() }
}

/// The state that survives a crash.
#[derive(Clone, Default)]
struct Disk {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    log: BTreeMap<LogIndex, Vec<u8>>,
    /// Appended, not flushed.
    unflushed: Vec<(LogIndex, Vec<u8>)>,
}

/// One client: a stream of batches per lane, the present connection, the answers.
#[derive(Default)]
struct Stream {
    batches: Vec<Vec<(usize, u64)>>,
    acked: BTreeSet<u64>,
    sent: u64,
}

struct World {
    core: NodeCore,
    config: NodeConfig,
    now: Time,
    disk: Disk,
    ledger: Ledger,
    ledger_index: u64,
    inbox: VecDeque<Input>,
    streams: BTreeMap<(ClientId, u8), Stream>,
    conns: BTreeMap<ConnId, ClientId>,
    next_conn: u64,
    nonce: u64,
    /// Outputs until the crash.
    fuse: Option<usize>,
    outputs: usize,
    commits: usize,
    crashes: usize,
    milestones: BTreeSet<(ClientId, u8, u64, u32)>,
    pending: BTreeSet<(ClientId, u8, u64, u32)>,
    consumer: BTreeMap<(u32, u8), u64>,
    /// Audits that were answered.
    audited: u64,
    pull: FeedPull,
    /// Increments offered with their identities, and as blocks.
    offered: (usize, u64),
    /// Messages that told clients of places.
    told_placed: usize,
    /// The ledger's leader cannot be reached: messages to it are lost.
    leader_away: bool,
    policy: Policy,
    /// The round of the workload in which the group's generation is revoked; its messages shortly before that are lost.
    revoked_in: Option<u64>,
    /// Late increments that were queued.
    late: u64,
    /// The ids that connections were told of.
    ids_told: Vec<(ConnId, Vec<(u32, IdAnswer)>)>,
}

impl World {
    fn new(config: NodeConfig) -> World {
        let pull = FeedPull { group: id(), bytes_max: 300, ..FeedPull::default() };
        let mut world = World {
            core: NodeCore::new(config, 1),
            config,
            now: Time(0),
            disk: Disk::default(),
            ledger: Ledger::default(),
            ledger_index: 0,
            inbox: VecDeque::new(),
            streams: BTreeMap::new(),
            conns: BTreeMap::new(),
            next_conn: 1,
            nonce: 1,
            fuse: None,
            outputs: 0,
            commits: 0,
            crashes: 0,
            milestones: BTreeSet::new(),
            pending: BTreeSet::new(),
            consumer: BTreeMap::new(),
            audited: 0,
            pull,
            offered: (0, 0),
            told_placed: 0,
            leader_away: false,
            policy: Policy::Strict,
            revoked_in: None,
            late: 0,
            ids_told: Vec::new(),
        };
        world.propose(LedgerCmd::Namespace("test".into()));
        world.connect_aggregator();
        world
    }

    /// With the settings of a real node, and a milestone ahead.
    fn before(at: u64) -> World {
        let mut world = World::new(NodeConfig::new(id(), LANES));
        world.pass(Span::from_millis(50));
        world.define(at);
        world.pass(Span::from_millis(50));
        world
    }

    fn define(&mut self, at: u64) {
        let spec = MilestoneSpec { at: vec![at], policy: self.policy, ..MilestoneSpec::default() };
        self.propose(LedgerCmd::Define { counter: name(GUARDED), revision: 0, spec });
    }

    /// Handles inputs until none is left.
    fn settle(&mut self) {
        while let Some(input) = self.inbox.pop_front() {
            self.core.handle(self.now, input);
            self.core.check_invariants();
            let late = self.core.group().guards().first().map_or((0, 0), |guard| guard.late());
            self.late = self.late.max(late.1 - late.0);
            let mut appended = None;
            while let Some(output) = self.core.poll_output() {
                if self.fuse == Some(0) {
                    self.crash();
                    break;
                }
                self.fuse = self.fuse.map(|left| left - 1);
                self.outputs += 1;
                appended = self.on_output(output).or(appended);
            }
            if let Some(upto) = appended.filter(|_| !self.disk.unflushed.is_empty()) {
                self.commits += 1;
                self.disk.log.extend(self.disk.unflushed.drain(..));
                self.inbox.push_back(Input::Durable { upto });
            }
        }
    }

    fn on_output(&mut self, output: Output) -> Option<LogIndex> {
        match output {
            Output::Append { index, entry } => {
                assert!(decode::<GroupEntry>(&entry).is_ok() && entry.len() <= self.config.entry_bytes_max);
                self.disk.unflushed.push((index, entry));
                return Some(index);
            }
            Output::Persist(part) => {
                for (key, value) in part.rows {
                    if value.is_empty() {
                        self.disk.rows.remove(&key)
                    } else {
                        self.disk.rows.insert(key, value)
                    };
                }
                self.inbox.push_back(Input::Persisted);
            }
            Output::CutLog { before } => self.disk.log.retain(|&index, _| index >= before),
            Output::Client { conn, msg } => self.on_answer(conn, msg),
            Output::Aggregator { msg, .. } => self.on_group(msg),
            Output::EndClients => unreachable!("who is alone leads always"),
            Output::Abandon => unreachable!("nobody is declared lost here"),
            Output::Stop { error } => unreachable!("the log is its own: {error}"),
        }
        None
    }

    /// Loses unflushed data (or, every other time, keeps the first entry of it) and starts again.
    fn crash(&mut self) {
        let kept = self.fuse.take().is_some() && self.crashes % 2 == 1;
        self.crashes += 1;
        self.disk.log.extend(self.disk.unflushed.drain(..).take(usize::from(kept)));
        self.nonce += 1;
        self.core = self.recovered(self.nonce);
        self.inbox.clear();
        self.conns.clear();
        self.connect_aggregator();
        self.streams.values_mut().for_each(|stream| stream.sent = 0);
        let clients: BTreeSet<_> = self.streams.keys().map(|&(client, _)| client).collect();
        clients.into_iter().for_each(|client| self.connect(client));
    }

    fn recovered(&self, nonce: u64) -> NodeCore {
        NodeCore::recover(self.config, nonce, self.disk.rows.clone(), self.disk.log.clone()).unwrap()
    }

    // ---- clients ----

    fn connect(&mut self, client: ClientId) {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        self.conns.insert(conn, client);
        self.inbox.push_back(Input::ClientUp { conn, owner: client.owner() });
        self.inbox.push_back(Input::Client { conn, msg: FromClient::Open { client, since: None, asks_known: false } });
        self.send(client);
    }

    fn add(&mut self, client: ClientId, lane: u8, items: &[(usize, u64)]) {
        self.streams.entry((client, lane)).or_default().batches.push(items.to_vec());
        if !self.conns.values().any(|&known| known == client) {
            self.connect(client);
        }
        self.send(client);
    }

    /// Sends every batch that is not acknowledged or still has pending items, in order, once per connection.
    fn send(&mut self, client: ClientId) {
        let Some((&conn, _)) = self.conns.iter().find(|&(_, &known)| known == client) else { return };
        for (&(_, lane), stream) in self.streams.iter_mut().filter(|((of, _), _)| *of == client) {
            for (items, seq) in stream.batches.iter().zip(1..) {
                let open = self.pending.range((client, lane, seq, 0)..=(client, lane, seq, u32::MAX)).next().is_some();
                if seq > stream.sent && (!stream.acked.contains(&seq) || open) {
                    self.inbox.push_back(Input::Client { conn, msg: batch(lane, seq, items) });
                }
            }
            stream.sent = stream.batches.len() as u64;
        }
    }

    fn on_answer(&mut self, conn: ConnId, msg: ToClient) {
        if let ToClient::Ids { answers, .. } = &msg {
            self.ids_told.push((conn, answers.clone()));
        }
        let Some(&client) = self.conns.get(&conn) else { return };
        match msg {
            ToClient::Durable { lane, seq, pending, .. } => {
                let key = |idx| (client, lane, seq, idx);
                let items = self.streams[&(client, lane)].batches[seq as usize - 1].len() as u32;
                self.pending.retain(|&(of, on, at, idx)| (of, on, at) != (client, lane, seq) || idx >= items);
                self.pending.extend(pending.into_iter().map(key));
                self.streams.get_mut(&(client, lane)).unwrap().acked.insert(seq);
            }
            ToClient::Placed { lane, seq, idx, count, place } => {
                for idx in idx..idx + count {
                    self.pending.remove(&(client, lane, seq, idx));
                    if matches!(place, Place::Milestone { .. }) {
                        self.milestones.insert((client, lane, seq, idx));
                    }
                }
                self.told_placed += 1;
            }
            ToClient::Refused { lane, seq, error } => match error {
                BatchError::NotServing(_) | BatchError::UnknownNamespace(_) | BatchError::Gap { .. } => {
                    let stream = self.streams.get_mut(&(client, lane)).unwrap();
                    stream.sent = stream.sent.min(seq - 1);
                }
                error => panic!("{error}"),
            },
            ToClient::Ids { .. }
            | ToClient::Welcome { .. }
            | ToClient::Spread { .. }
            | ToClient::Fenced { .. }
            | ToClient::Forgotten { .. }
            | ToClient::Lifted { .. }
            | ToClient::NotYours { .. } => {}
        }
    }

    // ---- the aggregator and the ledger ----

    fn connect_aggregator(&mut self) {
        self.inbox.push_back(Input::AggregatorUp { seat: 0 });
        let namespaces = self.ledger.namespaces().map(str::to_owned).collect();
        self.say(ToGroup::Namespaces(namespaces));
        self.inbox.push_back(Input::Aggregator { seat: 0, msg: ForGroup::Feed(self.pull) });
    }

    fn say(&mut self, message: ToGroup) {
        self.inbox.push_back(Input::Aggregator { seat: 0, msg: ForGroup::Ledger(message) });
    }

    fn on_group(&mut self, msg: FromGroup) {
        match msg {
            FromGroup::Hello(hello) => self.propose(LedgerCmd::Hello(hello)),
            FromGroup::Report(report) => self.propose(LedgerCmd::Report(report)),
            FromGroup::Returned(report) => self.propose(LedgerCmd::Returned(report)),
            FromGroup::Offer(offer) => {
                match &offer.body {
                    OfferBody::Items(items) => self.offered.0 += items.len(),
                    OfferBody::Block { count, .. } => self.offered.1 += count,
                }
                self.propose(LedgerCmd::Offer(offer));
            }
            FromGroup::Detail(detail) => self.propose(LedgerCmd::Detail(detail)),
            FromGroup::Feed(chunk) => self.on_feed(chunk),
            FromGroup::FedIn(_) => unreachable!("it wants all counters"),
            FromGroup::Resigned { .. } => unreachable!("who is alone leads always"),
            FromGroup::Audited(audited) => self.on_audited(&audited),
        }
    }

    fn propose(&mut self, cmd: LedgerCmd) {
        if self.leader_away {
            return;
        }
        self.ledger_index += 1;
        self.ledger.apply(LogIndex(self.ledger_index), &cmd);
        let changes = self.ledger.take_changes();
        for group in changes.groups {
            if self.ledger.is_fenced(group) {
                self.say(ToGroup::FencedOut { group });
            } else if let Some(confirmation) = self.ledger.confirmation(group) {
                self.say(confirmation);
            }
        }
        changes.accounts.into_iter().for_each(|(counter, _)| self.say_account(&counter));
    }

    fn say_account(&mut self, counter: &CounterName) {
        if let Some(account) = self.ledger.tells(counter, id(), None) {
            self.say(account);
        }
        if let Some(placed) = self.ledger.placed(counter, id()) {
            self.say(ToGroup::Placed(placed));
        }
    }

    /// The actions of the ledger's leader: grants while it may, recalls when it must.
    fn lead(&mut self, amount: u64) {
        let Some(state) = self.ledger.counter(&name(GUARDED)) else { return };
        if state.recall_wanted() {
            let granted = self.ledger.account(&name(GUARDED), id()).unwrap().granted;
            let recall = self.ledger.tells(&name(GUARDED), id(), Some(granted)).unwrap();
            return self.say(recall);
        }
        let counter = name(GUARDED);
        let group = id();
        self.propose(LedgerCmd::Grant { counter, epoch: 1, group, amount, if_awarded: None });
    }

    fn on_feed(&mut self, chunk: FeedChunk) {
        assert_eq!((chunk.base, chunk.first_slot), (self.pull.cursor, self.pull.slots_known));
        self.pull.cursor = chunk.upto;
        self.pull.walk = chunk.walk;
        self.pull.slots_known += chunk.cells.len() as u32;
        for (slot, lane, value) in chunk.components {
            let known = self.consumer.entry((slot, lane)).or_default();
            *known = value.max(*known);
        }
        self.inbox.push_back(Input::Aggregator { seat: 0, msg: ForGroup::Feed(self.pull) });
        // A change of any cell, before or behind the pull.
        let slot = (chunk.upto.0 as u32).checked_rem(self.pull.slots_known);
        if let Some(slot) = slot {
            let group = chunk.group;
            let cell = self.core.group().table().name(slot);
            let msg = ForGroup::Audit(AuditAsk { id: slot.into(), group, cell, from_lane: 0 });
            let ask = Input::Aggregator { seat: 0, msg };
            match chunk.upto.0.is_multiple_of(2) {
                true => self.inbox.push_back(ask),
                false => self.inbox.push_front(ask),
            }
        }
    }

    /// An audit's answer equals the consumer's state at that time.
    fn on_audited(&mut self, audited: &Audited) {
        self.audited += 1;
        assert_eq!((audited.told, audited.upto_lane), (self.pull.cursor, tidemark_types::limits::LANES_MAX));
        assert!(self.pull.walk.is_none(), "a walk has not told all");
        let slot = audited.id as u32;
        let told = self.consumer.range((slot, 0)..=(slot, u8::MAX));
        let told: Vec<(u8, u64)> = told.map(|(&(_, lane), &value)| (lane, value)).filter(|told| told.1 > 0).collect();
        let held: Vec<(u8, u64)> = audited.components.iter().copied().filter(|held| held.1 > 0).collect();
        assert_eq!(held, told, "slot {slot} as of {}", audited.index.0);
    }

    // ---- time ----

    /// Goes on by `span`, ticking whenever the node asks for it.
    fn pass(&mut self, span: Span) {
        let end = self.now + span;
        self.settle();
        while let Some(due) = self.core.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.inbox.push_back(Input::Tick);
            self.settle();
        }
        self.now = end;
    }

    fn clients(&self) -> BTreeSet<ClientId> {
        self.streams.keys().map(|&(client, _)| client).collect()
    }

    /// Goes on until everything is answered and placed.
    fn finish(&mut self) {
        for _ in 0..400 {
            self.lead(7);
            self.pass(Span::from_millis(100));
            self.clients().into_iter().for_each(|client| self.send(client));
        }
        for stream in self.streams.values() {
            assert_eq!(stream.acked.len(), stream.batches.len(), "every batch is answered in the end");
        }
        assert!(self.pending.is_empty(), "every increment is placed in the end: {:?}", self.pending);
        assert_eq!(self.core.group().queued(), 0);
        assert!(self.audited > 0, "no audit was answered");
    }

    /// Every increment is counted once, in its lane, and the feed has told of it.
    fn check_counts(&self) {
        let mut expected: BTreeMap<(CounterName, u8), u64> = BTreeMap::new();
        for (&(_, lane), stream) in &self.streams {
            for &(key, delta) in stream.batches.iter().flatten() {
                *expected.entry((name(key), lane)).or_default() += delta;
            }
        }
        let group = self.core.group();
        for slot in 0..group.table().len() {
            for lane in 0..LANES {
                let counted = group.component(slot, lane);
                let counter = group.table().name(slot).counter;
                assert_eq!(counted, expected.remove(&(counter.clone(), lane)).unwrap_or(0), "{counter} in lane {lane}");
                assert_eq!(counted, self.consumer.get(&(slot, lane)).copied().unwrap_or(0), "feed of {counter}");
            }
        }
        assert!(expected.is_empty(), "cells are missing: {expected:?}");
    }
}

/// A workload of some 120 increments around a milestone.
fn workload(world: &mut World) {
    world.pass(Span::from_millis(50));
    for round in 0..20_u64 {
        if round == 4 {
            world.define(MILESTONE);
        }
        if let Some(at) = world.revoked_in {
            world.leader_away = (at - 3..at).contains(&round);
            if round == at {
                leases::revoke(world);
            }
        }
        let client = ClientId(u128::from(round % 3));
        let cold = 1 + round as usize % 7;
        world.add(client, (round % 2) as u8, &[(GUARDED, 1), (cold, 3), (GUARDED, 1 + round % 4), (GUARDED, 1)]);
        world.lead(9);
        world.pass(Span::from_millis(3 + round % 5));
    }
}

#[test]
fn whatever_is_cut_off_between_two_outputs_every_increment_counts_once_and_one_is_the_milestone() {
    let mut whole = World::new(config());
    workload(&mut whole);
    whole.finish();
    whole.check_counts();
    assert_eq!(whole.milestones.len(), 1);
    assert!(whole.outputs > 200 && whole.commits > 20, "{} outputs", whole.outputs);
    for fuse in 0..whole.outputs {
        let mut world = World::new(config());
        world.fuse = Some(fuse);
        world.crashes = fuse;
        workload(&mut world);
        world.finish();
        world.check_counts();
        assert_eq!(world.milestones.len(), 1, "crash after {fuse} outputs");
        let award = &world.ledger.counter(&name(GUARDED)).unwrap().awards()[&MILESTONE].award;
        assert!(world.milestones.contains(&(award.client, award.lane, award.seq, award.idx)));
        assert_eq!(world.ledger.certain(&name(GUARDED)), world.core.group().sum(0), "all is placed");
    }
}

#[test]
fn recovery_at_every_entry_gives_the_state_that_was() {
    let mut world = World::new(config());
    world.config.checkpoint_log_bytes = u64::MAX;
    world.core = NodeCore::new(world.config, 1);
    workload(&mut world);
    let mut live = Group::new(world.config.group);
    for (&index, bytes) in &world.disk.log {
        live.apply(index, &decode::<GroupEntry>(bytes).unwrap());
        let log = world.disk.log.range(..=index).map(|(&index, bytes)| (index, bytes.clone()));
        let recovered = NodeCore::recover(world.config, 9, [], log).unwrap();
        assert_eq!(recovered.group().applied(), index);
        assert_eq!(recovered.group().clone().checkpoint(), live.clone().checkpoint());
    }
    assert_eq!(world.core.group().clone().checkpoint(), live.checkpoint());
    let mut torn = world.disk.log.clone();
    torn.remove(&LogIndex(3));
    let gap = NodeCore::recover(world.config, 9, [], torn).unwrap_err();
    assert_eq!(gap, RecoverError::Gap { expected: 3, found: 4 });
    let bad = NodeCore::recover(world.config, 9, [], [(LogIndex(1), vec![1, 2, 3])]).unwrap_err();
    assert!(matches!(bad, RecoverError::Entry { index: 1, .. }), "{bad}");
}

/// The messages of the node to the aggregator on a new connection, before any request.
fn first_words(world: &mut World) -> Vec<FromGroup> {
    world.core.handle(world.now, Input::AggregatorUp { seat: 0 });
    let said = std::iter::from_fn(|| world.core.poll_output()).filter_map(|output| match output {
        Output::Aggregator { msg, .. } => Some(msg),
        _ => None,
    });
    said.collect()
}

#[test]
fn a_group_greets_first_on_every_connection_of_its_aggregator() {
    let mut world = World::new(config());
    world.pass(Span::from_secs(1));
    world.add(ClientId(1), 0, &[(1, 1)]);
    world.pass(Span::from_secs(1));
    assert!(world.core.group().rights_usable() && world.core.group().guards().is_empty(), "nothing else is to be said");
    for _ in 0..2 {
        world.core.handle(world.now, Input::AggregatorGone { seat: 0 });
        let said = first_words(&mut world);
        assert!(matches!(&said[..], [FromGroup::Hello(hello)] if hello.group == id()), "{said:?}");
    }
    world.pass(Span::from_secs(200));
    assert!(only_ages(&world), "a start that is confirmed is not announced again and again");
}

#[test]
fn with_rights_to_report_the_greeting_still_comes_first_and_also_from_a_group_that_is_fenced_out() {
    let mut world = World::new(config());
    workload(&mut world);
    let said = first_words(&mut world);
    assert!(matches!(&said[..], [FromGroup::Hello(_), FromGroup::Report(_), ..]), "{said:?}");
    world.say(ToGroup::FencedOut { group: id() });
    world.pass(Span::from_secs(1));
    assert!(world.core.group().is_fenced_out());
    let said = first_words(&mut world);
    assert!(matches!(&said[..], [FromGroup::Hello(_)]), "its counts are true and are read on: {said:?}");
}

#[test]
fn a_disk_that_holds_less_than_its_aggregator_was_told_of_is_an_old_copy_and_serves_no_more() {
    let mut world = World::new(config());
    workload(&mut world);
    let old = world.disk.clone();
    // The ledger hears nothing of these.
    world.add(ClientId(1), 0, &[(1, 5)]);
    world.pass(Span::from_secs(1));
    let pull = world.pull;
    let began = world.now;
    let is_fenced = |disk: &Disk, pull: FeedPull| {
        let mut core = NodeCore::recover(config(), 9, disk.rows.clone(), disk.log.clone()).unwrap();
        let mut inputs = VecDeque::from([
            Input::AggregatorUp { seat: 0 },
            Input::Aggregator { seat: 0, msg: ForGroup::Feed(pull) },
            Input::Tick,
        ]);
        let mut now = began;
        while let Some(input) = inputs.pop_front() {
            now = now + Span::from_secs(1);
            core.handle(now, input);
            while let Some(output) = core.poll_output() {
                if let Output::Append { index, .. } = output {
                    inputs.extend([Input::Durable { upto: index }, Input::Tick]);
                }
            }
        }
        core.group().is_fenced_out()
    };
    assert!(is_fenced(&old, pull));
    assert!(!is_fenced(&world.disk, pull), "its own disk holds all that it has told");
    assert!(!is_fenced(&old, FeedPull { cursor: LogIndex(1), ..pull }), "an aggregator that knows less");
}

/// The messages of the node to an aggregator, by its seat.
fn said_by(outputs: Vec<Output>) -> Vec<(u8, FromGroup)> {
    let said = |output| match output {
        Output::Aggregator { seat, msg } => Some((seat, msg)),
        _ => None,
    };
    outputs.into_iter().filter_map(said).collect()
}

#[test]
fn either_aggregator_of_a_pair_may_know_that_a_disk_is_an_old_copy() {
    let mut world = World::new(config());
    workload(&mut world);
    let old = world.disk.clone();
    world.add(ClientId(1), 0, &[(1, 5)]);
    world.pass(Span::from_secs(1));
    let ahead = world.pull;
    let behind = FeedPull { cursor: LogIndex(1), slots_known: 0, ..ahead };
    let mut core = NodeCore::recover(config(), 9, old.rows.clone(), old.log.clone()).unwrap();
    let mut inputs = VecDeque::from([Input::Tick]);
    for (seat, pull) in [(0, behind), (1, ahead)] {
        inputs.push_back(Input::AggregatorUp { seat });
        inputs.push_back(Input::Aggregator { seat, msg: ForGroup::Feed(pull) });
        inputs.extend([Input::Tick, Input::Tick]);
    }
    let mut now = world.now;
    let mut fed = Vec::new();
    while let Some(input) = inputs.pop_front() {
        now = now + Span::from_secs(1);
        core.handle(now, input);
        for output in std::iter::from_fn(|| core.poll_output()).collect::<Vec<_>>() {
            match output {
                Output::Append { index, .. } => inputs.push_front(Input::Durable { upto: index }),
                Output::Aggregator { seat, msg: FromGroup::Feed(_) } => fed.push(seat),
                _ => {}
            }
        }
    }
    assert_eq!(fed.first(), Some(&0), "the first was told something before the second asked");
    assert!(core.group().is_fenced_out());
}

#[test]
fn what_one_aggregator_does_not_get_acknowledged_is_said_by_the_other() {
    let mut world = World::before(50);
    world.add(ClientId(1), 0, &[(GUARDED, 1)]);
    world.pass(Span::from_secs(10));
    let mut now = world.now;
    let mut say = |core: &mut NodeCore, input, after: Span| {
        now = now + after;
        core.handle(now, input);
        said_by(std::iter::from_fn(|| core.poll_output()).collect())
    };
    let core = &mut world.core;
    let reports = |said: &[(u8, FromGroup)]| -> Vec<u8> {
        said.iter().filter(|(_, msg)| matches!(msg, FromGroup::Report(_))).map(|(seat, _)| *seat).collect()
    };
    let greets = say(core, Input::AggregatorUp { seat: 1 }, Span(1));
    assert!(matches!(&greets[..], [(1, FromGroup::Hello(_))]), "the first is connected and speaks on: {greets:?}");
    // A late account makes the group report; the report is never acknowledged.
    say(core, Input::Aggregator { seat: 0, msg: ForGroup::Again }, Span(1));
    let alive = || Input::Aggregator { seat: 1, msg: ForGroup::Again };
    let mut by = Vec::new();
    for _ in 0..20 {
        by.extend(reports(&say(core, alive(), Span::from_millis(100))));
    }
    assert_eq!(by.first(), Some(&1), "after half a second without an answer");
    let gone = say(core, Input::AggregatorGone { seat: 1 }, Span(1));
    assert_eq!(reports(&gone), [0], "at once when the connection is lost");
}

#[test]
fn a_process_says_nothing_before_its_own_start_is_in_the_log() {
    let mut world = World::new(config());
    workload(&mut world);
    world.core = world.recovered(9);
    assert_eq!(first_words(&mut world), []);
    let boot = LogIndex(world.core.group().applied().0 + 1);
    world.core.handle(world.now, Input::Durable { upto: boot });
    let outputs: Vec<_> = std::iter::from_fn(|| world.core.poll_output()).collect();
    let words = outputs.into_iter().filter_map(|output| match output {
        Output::Aggregator { msg: said, .. } => Some(said),
        _ => None,
    });
    let said: Vec<_> = words.collect();
    assert!(matches!(&said[..], [FromGroup::Hello(hello)] if hello.nonces.contains(&9)), "{said:?}");
}

#[test]
fn an_idle_node_asks_for_no_ticks() {
    let mut world = World::new(config());
    workload(&mut world);
    world.finish();
    world.pass(Span::from_secs(200));
    assert!(only_ages(&world), "{:?}", world.core.poll_timeout());
}

/// Whether nothing is waited for but the group's next age.
fn only_ages(world: &World) -> bool {
    world.core.poll_timeout().is_none_or(|at| at >= Time(0) + AGE_UNIT)
}

#[test]
fn a_group_that_is_led_ages_and_a_change_of_the_leader_makes_it_no_older() {
    let mut world = World::new(config());
    workload(&mut world);
    world.finish();
    let age = |world: &World| world.core.group().age();
    world.pass(Span(AGE_UNIT.0 * 5 / 2));
    assert_eq!((age(&world), world.core.group().streams() > 0), (2, true));
    world.crash();
    world.pass(Span(AGE_UNIT.0 - 1_000_000));
    assert_eq!(age(&world), 2, "who begins to lead waits for as long as an age takes");
    world.pass(Span::from_secs(2));
    assert_eq!(age(&world), 3);
}

#[test]
fn a_long_queue_is_offered_as_blocks_and_the_ledger_asks_for_the_items_it_needs() {
    let mut world = World::before(6_000);
    world.inbox.push_back(Input::AggregatorGone { seat: 0 });
    for _ in 0..20 {
        world.add(ClientId(1), 0, &[(GUARDED, 1); 500]);
        world.pass(Span::from_millis(6));
    }
    assert_eq!((world.core.group().queued(), world.pending.len()), (10_000, 10_000));
    world.connect_aggregator();
    world.finish();
    world.check_counts();
    let award = &world.ledger.counter(&name(GUARDED)).unwrap().awards()[&6_000].award;
    assert_eq!((award.seq, award.idx), (12, 499), "the 6,000th");
    assert!(world.milestones.contains(&(award.client, award.lane, award.seq, award.idx)));
}

#[test]
fn what_the_leader_could_not_hear_is_said_again_at_once_when_it_can() {
    let mut world = World::before(50);
    world.leader_away = true;
    for _ in 0..60 {
        world.add(ClientId(1), 0, &[(GUARDED, 1)]);
        world.pass(Span::from_secs(1));
    }
    assert_eq!(world.core.group().queued(), 60);
    world.leader_away = false;
    world.inbox.push_back(Input::Aggregator { seat: 0, msg: ForGroup::Again });
    world.pass(Span::from_millis(50));
    assert_eq!(world.core.group().queued(), 0, "and not when the patience of some seconds ends");
    world.finish();
    world.check_counts();
    assert_eq!(world.milestones.len(), 1);
}

#[test]
fn only_near_a_milestone_increments_are_offered_by_name() {
    let mut world = World::before(20_000);
    for _ in 0..40 {
        world.add(ClientId(1), 0, &[(GUARDED, 1); 500]);
        world.pass(Span::from_millis(500));
    }
    world.finish();
    world.check_counts();
    // At 1,000/s identities are wanted some 2,000 before the milestone, and while the rate is not known yet.
    let (by_name, in_blocks) = world.offered;
    assert!((500..6_000).contains(&by_name) && in_blocks > 14_000, "{by_name} {in_blocks}");
    // Neighbours are told together: a batch of 500 takes one message, two or three around the milestone.
    assert!((40..60).contains(&world.told_placed), "{}", world.told_placed);
    assert!(world.ledger.counter(&name(GUARDED)).unwrap().awards().contains_key(&20_000));
}

#[test]
fn a_fence_answers_the_connection_that_asked_and_ends_the_stream() {
    let mut world = World::new(config());
    world.pass(Span::from_secs(1));
    world.add(ClientId(1), 0, &[(1, 1)]);
    world.pass(Span::from_secs(1));
    let conn = ConnId(500);
    let mut answers = Vec::new();
    let ask = |msg| Input::Client { conn, msg };
    let batch = |seq| batch(0, seq, &[(1, 1)]);
    let inputs = [
        Input::ClientUp { conn, owner: OwnerId(0) },
        ask(FromClient::Open { client: ClientId(2), since: None, asks_known: false }),
        ask(FromClient::Fence { of: ClientId(1), lane: 0 }),
        ask(FromClient::Open { client: ClientId(1), since: None, asks_known: false }),
        ask(batch(2)),
    ];
    for input in inputs {
        world.inbox.push_back(input);
        while let Some(input) = world.inbox.pop_front() {
            world.now = world.now + Span::from_millis(10);
            world.core.handle(world.now, input);
            while let Some(output) = world.core.poll_output() {
                match output {
                    Output::Client { conn: to, msg } if to == conn => answers.push(msg),
                    Output::Append { index, .. } => world.inbox.push_back(Input::Durable { upto: index }),
                    _ => {}
                }
            }
        }
    }
    assert!(answers.contains(&ToClient::Fenced { of: ClientId(1), lane: 0, last_seq: 1 }));
    let refused = ToClient::Refused { lane: 0, seq: 2, error: BatchError::Fenced { last: 1 } };
    assert_eq!(answers.last(), Some(&refused));
}

/// Named increments are fenced over links that never open: nothing of them stays.
#[test]
fn a_connection_that_only_fences_leaves_nothing_behind() {
    let mut world = World::new(config());
    world.pass(Span::from_secs(1));
    for conn in (500..510).map(ConnId) {
        let fence = FromClient::Fence { of: ClientId(u128::from(conn.0)), lane: 0 };
        let up = Input::ClientUp { conn, owner: OwnerId(0) };
        for input in [up, Input::Client { conn, msg: fence }, Input::ClientGone { conn }] {
            world.core.handle(world.now, input);
            while world.core.poll_output().is_some() {}
        }
    }
    assert_eq!(world.core.clients.fences_waiting(), 0);
}

#[test]
fn a_stream_is_its_certificates_and_nobody_elses() {
    let mut world = World::new(config());
    world.pass(Span::from_secs(1));
    let mine = OwnerId(7);
    let client = ClientId::new(OwnerId(7), 1);
    world.add(client, 0, &[(1, 1)]);
    world.pass(Span::from_secs(1));
    let mut says = |conn: u64, owner: Option<OwnerId>, msg: FromClient| {
        let conn = ConnId(conn);
        owner.into_iter().for_each(|owner| world.core.handle(world.now, Input::ClientUp { conn, owner }));
        world.core.handle(world.now, Input::Client { conn, msg });
        let outputs = std::iter::from_fn(|| world.core.poll_output());
        outputs
            .filter_map(|output| if let Output::Client { conn, msg } = output { Some((conn, msg)) } else { None })
            .collect::<Vec<_>>()
    };
    let refused = |conn| vec![(ConnId(conn), ToClient::NotYours { of: client })];
    assert_eq!(says(900, Some(OwnerId(8)), FromClient::Fence { of: client, lane: 0 }), refused(900));
    assert_eq!(says(900, None, FromClient::Open { client, since: None, asks_known: false }), refused(900));
    assert_eq!(
        says(901, None, FromClient::Open { client, since: None, asks_known: false }),
        refused(901),
        "of whom nothing is known"
    );
    let batch = says(900, None, batch(0, 2, &[(1, 1)]));
    assert!(matches!(&batch[..], [(_, ToClient::Refused { error: BatchError::NotServing(_), .. })]));
    let opened = says(902, Some(mine), FromClient::Open { client, since: None, asks_known: false });
    assert!(matches!(&opened[..], [(ConnId(902), ToClient::Welcome { .. }), ..]), "{opened:?}");
    assert_eq!(world.core.group().stream(client, 0), Some((1, false)), "not ended by others");
}

#[test]
fn a_client_that_asks_is_told_which_ids_counted_before() {
    let mut world = World::new(config());
    world.pass(Span::from_secs(1));
    let id = ItemId { digest: [1; 16], content: [2; 8], items: 1 };
    for (n, asks_known) in [(1, true), (2, false), (3, true)] {
        let conn = ConnId(700 + n);
        let client = ClientId(n.into());
        let FromClient::Batch { lane, seq, defs, items, times } = batch(0, 1, &[(1, 1)]) else { unreachable!() };
        let keyed = FromClient::Keyed { lane, seq, defs, items, times, asked: u32::MAX, ids: vec![id] };
        let said = [FromClient::Open { client, since: None, asks_known }, keyed];
        world.inbox.push_back(Input::ClientUp { conn, owner: client.owner() });
        world.inbox.extend(said.map(|msg| Input::Client { conn, msg }));
        world.pass(Span::from_secs(1));
    }
    assert_eq!(world.ids_told, [(ConnId(703), vec![(0, IdAnswer::Known)])]);
    assert_eq!(world.core.group().ids(), 1);
}

#[test]
fn a_client_is_told_its_lane_again_and_lanes_are_shared_out() {
    let mut world = World::new(config());
    world.pass(Span::from_secs(1));
    let mut lane = |client: u128, conn: u64| {
        world.core.handle(world.now, Input::ClientUp { conn: ConnId(conn), owner: OwnerId(0) });
        let msg = FromClient::Open { client: ClientId(client), since: None, asks_known: false };
        world.core.handle(world.now, Input::Client { conn: ConnId(conn), msg });
        let outputs: Vec<_> = std::iter::from_fn(|| world.core.poll_output()).collect();
        match &outputs[..] {
            [Output::Client { msg: ToClient::Welcome { own_lane, .. }, .. }, ..] => *own_lane,
            other => panic!("no welcome: {other:?}"),
        }
    };
    let first: Vec<u8> = (0..4).map(|client| lane(client, client as u64)).collect();
    assert_eq!(first, [0, 1, 0, 1]);
    assert_eq!((lane(1, 50), lane(2, 51)), (1, 0));
}

fn refusal(world: &mut World, msg: FromClient) -> BatchError {
    let conn = ConnId(1_000);
    world.core.handle(world.now, Input::ClientUp { conn, owner: OwnerId(0) });
    while world.core.poll_output().is_some() {}
    world.core.handle(
        world.now,
        Input::Client { conn, msg: FromClient::Open { client: ClientId(77), since: None, asks_known: false } },
    );
    while world.core.poll_output().is_some() {}
    world.core.handle(world.now, Input::Client { conn, msg });
    match std::iter::from_fn(|| world.core.poll_output()).next() {
        Some(Output::Client { msg: ToClient::Refused { error, .. }, .. }) => error,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn bad_batches_are_refused_before_the_log() {
    let mut world = World::new(config());
    assert!(matches!(refusal(&mut world, batch(0, 1, &[(1, 1)])), BatchError::NotServing(_)), "not registered");
    world.pass(Span::from_secs(1));
    let commits = world.commits;
    let delta = BatchError::Delta { idx: 1, delta: DELTA_MAX + 1, max: DELTA_MAX };
    assert_eq!(refusal(&mut world, batch(0, 1, &[(1, 1), (2, DELTA_MAX + 1)])), delta);
    assert_eq!(refusal(&mut world, batch(0, 1, &[])), BatchError::Empty);
    assert_eq!(refusal(&mut world, batch(9, 1, &[(1, 1)])), BatchError::UnknownLane { lane: 9, lanes: LANES });
    let items = vec![WireItem { number: 3, delta: 1, session: None }];
    let undefined = FromClient::Batch { lane: 0, seq: 1, defs: Vec::new(), items, times: Vec::new() };
    assert_eq!(refusal(&mut world, undefined), BatchError::UnknownNumber(3));
    let defs = vec![(u32::MAX, name(1))];
    let far = FromClient::Batch {
        lane: 0,
        seq: 1,
        defs,
        items: vec![WireItem { number: 3, delta: 1, session: None }],
        times: Vec::new(),
    };
    assert!(matches!(refusal(&mut world, far), BatchError::Overloaded { .. }));
    let other = CounterName::new("other", b"x").unwrap();
    let items = vec![WireItem { number: 3, delta: 1, session: None }];
    let unknown = FromClient::Batch { lane: 0, seq: 1, defs: vec![(3, other)], items, times: Vec::new() };
    assert_eq!(refusal(&mut world, unknown), BatchError::UnknownNamespace("other".into()));
    let mut timed = batch(0, 1, &[(1, 1), (2, 1)]);
    if let FromClient::Batch { times, .. } = &mut timed {
        times.push(UnixTime::MAX);
    }
    assert_eq!(refusal(&mut world, timed), BatchError::Times { times: 1, items: 2 });
    let many = vec![(1, 1); 1_000];
    assert!(matches!(refusal(&mut world, batch(0, 1, &many)), BatchError::TooManyItems { items: 1_000, max: 1..200 }));
    world.pass(Span::from_secs(1));
    assert_eq!(world.commits, commits, "nothing was logged");
    world.core.config.waiting_bytes_max = 0;
    assert!(matches!(refusal(&mut world, batch(0, 1, &[(1, 1)])), BatchError::Overloaded { .. }));
}
