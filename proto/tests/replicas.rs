//! A group's log on several nodes: the proposals of leaders that count, under any leader at the time of their commit.

use std::collections::VecDeque;
use tidemark_proto::ids::{ClientId, CounterName, DcId, GroupId, LogIndex, OwnerId};
use tidemark_proto::ledger::Ledger;
use tidemark_proto::msg::{ForGroup, FromClient, FromGroup, LedgerCmd, Proposed, ToClient, ToGroup, WireItem};
use tidemark_proto::node::{ConnId, Input, NodeConfig, NodeCore, Output};
use tidemark_proto::time::Time;
use tidemark_proto::wire::{WireError, decode, encode, encode_with_tail};

const NAMESPACE: &str = "test";
/// The wall clock in seconds: the incarnation of a log that is founded now.
const NOW_S: u64 = 1_700_000_000;

/// A replica, its proposals, and its answers.
struct Replica {
    core: NodeCore,
    proposed: VecDeque<Vec<u8>>,
    told: Vec<ToClient>,
    said: Vec<FromGroup>,
    clients_ended: usize,
    abandoned: usize,
    stopped: Option<WireError>,
    now: Time,
}

impl Replica {
    fn new() -> Replica {
        let mut config = NodeConfig::new(GroupId { dc: DcId(0), group: 2, incarnation: 0 }, 4);
        config.wall_origin.0 = NOW_S * 1_000;
        let core = NodeCore::replica(config, []).unwrap();
        let (proposed, told, said) = Default::default();
        Replica { core, proposed, told, said, clients_ended: 0, abandoned: 0, stopped: None, now: Time(0) }
    }

    fn handle(&mut self, input: Input) {
        // Far enough for everything that waits for a time.
        self.now = Time(self.now.0 + 1_000_000);
        self.core.handle(self.now, input);
        self.core.check_invariants();
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Append { entry, .. } => self.proposed.push_back(entry),
                Output::Client { msg, .. } => self.told.push(msg),
                Output::Aggregator { msg, .. } => self.said.push(msg),
                Output::EndClients => self.clients_ended += 1,
                Output::Abandon => self.abandoned += 1,
                Output::Stop { error } => self.stopped = Some(error),
                Output::Persist(_) | Output::CutLog { .. } => {}
            }
        }
    }

    fn commit(&mut self, command: &[u8]) {
        self.handle(Input::Committed { command: command.to_vec() });
    }

    fn sum(&self) -> u64 {
        self.core.group().table().find(&counter().total()).map_or(0, |slot| self.core.group().sum(slot))
    }
}

fn counter() -> CounterName {
    CounterName::new(NAMESPACE, b"hits").unwrap()
}

/// Commits everything that `leader` has proposed, on all replicas.
fn commit_all(replicas: &mut [Replica], leader: usize) {
    while let Some(command) = replicas[leader].proposed.pop_front() {
        replicas.iter_mut().for_each(|replica| replica.commit(&command));
    }
}

/// Replicas of one group with a first leader that is registered in the ledger.
fn registered(replicas: usize) -> (Vec<Replica>, Ledger) {
    let mut all: Vec<Replica> = (0..replicas).map(|_| Replica::new()).collect();
    let mut ledger = Ledger::default();
    ledger.apply(LogIndex(1), &LedgerCmd::Namespace(NAMESPACE.into()));
    all[0].handle(Input::Lead { nonce: 11 });
    assert!(!all[0].core.leads(), "before its log has an incarnation nobody may connect");
    commit_all(&mut all, 0);
    assert!(all[0].core.leads());
    confirm(&mut all, 0, &mut ledger, 2);
    (all, ledger)
}

/// The ledger hears of the leader's start.
fn confirm(all: &mut [Replica], leader: usize, ledger: &mut Ledger, index: u64) {
    all[leader].handle(Input::AggregatorUp { seat: 0 });
    let hello = all[leader].said.iter().rev().find_map(|said| match said {
        FromGroup::Hello(hello) => Some(hello.clone()),
        _ => None,
    });
    ledger.apply(LogIndex(index), &LedgerCmd::Hello(hello.expect("a leader greets")));
    let group = all[leader].core.config().group.id;
    let namespaces = ToGroup::Namespaces(vec![NAMESPACE.into()]);
    let start = ledger.confirmed(group).expect("greeted");
    let accounts = ledger.accounts_of(group);
    for message in [namespaces, ToGroup::Confirmed { group, start, accounts, resets: 0 }] {
        all[leader].handle(Input::Aggregator { seat: 0, msg: ForGroup::Ledger(message) });
    }
    commit_all(all, leader);
    assert!(all[leader].core.group().rights_usable());
}

fn connect(replica: &mut Replica, client: ClientId) {
    let conn = ConnId(1);
    replica.handle(Input::ClientUp { conn, owner: client.owner() });
    replica.handle(Input::Client { conn, msg: FromClient::Open { client, since: None, asks_known: false } });
}

fn add(replica: &mut Replica, seq: u64, delta: u64) {
    let items = vec![WireItem { number: 0, delta, session: None }];
    let msg = FromClient::Batch { lane: 0, seq, defs: vec![(0, counter())], items, times: Vec::new() };
    replica.handle(Input::Client { conn: ConnId(1), msg });
}

fn client() -> ClientId {
    ClientId::new(OwnerId(7), 1)
}

#[test]
fn a_new_log_gets_its_incarnation_from_its_first_leader_and_keeps_it() {
    let (mut all, _) = registered(3);
    let id = |replica: &Replica| replica.core.config().group.id;
    let founded = id(&all[0]);
    assert!((NOW_S..NOW_S + 60).contains(&founded.incarnation.into()), "{founded}");
    all[1].now = Time(3_600_000_000);
    all[1].handle(Input::Lead { nonce: 12 });
    commit_all(&mut all, 1);
    assert!(all.iter().all(|replica| id(replica) == founded));
}

#[test]
fn every_replica_counts_what_is_committed_and_only_the_leader_answers() {
    let (mut all, _) = registered(3);
    connect(&mut all[0], client());
    add(&mut all[0], 1, 5);
    assert!(all.iter().all(|replica| replica.sum() == 0), "nothing counts before it is committed");
    commit_all(&mut all, 0);
    assert!(all.iter().all(|replica| replica.sum() == 5));
    let is_durable =
        |told: &ToClient| matches!(told, ToClient::Durable { lane: 0, seq: 1, pending, .. } if pending.is_empty());
    assert!(all[0].told.iter().any(is_durable));
    assert!(all[1..].iter().all(|replica| replica.told.is_empty() && replica.said.is_empty()));
}

#[test]
fn what_a_deposed_leader_proposed_counts_for_nothing_when_it_comes_late() {
    let (mut all, mut ledger) = registered(3);
    connect(&mut all[0], client());
    add(&mut all[0], 1, 5);
    let late = all[0].proposed.pop_front().unwrap();
    all[0].handle(Input::Follow);
    assert!(!all[0].core.leads());
    all[1].handle(Input::Lead { nonce: 12 });
    commit_all(&mut all, 1);
    confirm(&mut all, 1, &mut ledger, 3);
    connect(&mut all[1], client());
    add(&mut all[1], 1, 5);
    commit_all(&mut all, 1);
    all.iter_mut().for_each(|replica| replica.commit(&late));
    assert!(all.iter().all(|replica| replica.sum() == 5));
    let applied = |replica: &Replica| replica.core.group().applied();
    assert!(all.iter().all(|replica| applied(replica) == applied(&all[0])));
}

#[test]
fn of_a_leadership_the_first_entries_count_without_a_gap() {
    let (mut all, _) = registered(2);
    connect(&mut all[0], client());
    for seq in 1..=3 {
        add(&mut all[0], seq, 1);
    }
    let entries: Vec<Vec<u8>> = all[0].proposed.drain(..).collect();
    assert_eq!(entries.len(), 2, "as many commits as may be under way");
    // The first was lost on its way, as it may when leadership is lost for a moment.
    all.iter_mut().for_each(|replica| replica.commit(&entries[1]));
    assert!(all.iter().all(|replica| replica.sum() == 0));
}

#[test]
fn a_leader_between_whose_entries_an_earlier_one_came_begins_again() {
    let (mut all, mut ledger) = registered(2);
    let mut old = Vec::new();
    let mut new = Vec::new();
    all[0].handle(Input::Lead { nonce: 21 });
    old.extend(all[0].proposed.drain(..));
    all[0].handle(Input::Lead { nonce: 22 });
    new.extend(all[0].proposed.drain(..));
    let ended = all[0].clients_ended;
    for command in old.iter().chain(&new) {
        all.iter_mut().for_each(|replica| replica.commit(command));
    }
    assert!(all[0].clients_ended > ended, "what clients were told of numbers no longer holds");
    commit_all(&mut all, 0);
    confirm(&mut all, 0, &mut ledger, 3);
    connect(&mut all[0], client());
    add(&mut all[0], 1, 9);
    commit_all(&mut all, 0);
    assert!(all.iter().all(|replica| replica.sum() == 9));
}

#[test]
fn a_replica_that_cannot_read_an_entry_stops_before_it_and_takes_nothing_more() {
    let (mut all, _) = registered(2);
    connect(&mut all[0], client());
    add(&mut all[0], 1, 3);
    commit_all(&mut all, 0);
    add(&mut all[0], 2, 4);
    let next = all[0].proposed.pop_front().expect("a leader proposes");
    let proposed = decode::<Proposed>(&next).expect("of this version");
    let with_tail = encode_with_tail(&proposed, b"a field");
    let of_later = [&b""[..], b"\x01", b"\x02\x00", b"\x01\x01\xff\xff\xff", &with_tail];
    for entry in of_later {
        let mut replica = Replica::new();
        replica.handle(Input::Committed { command: encode(&Proposed::Found { incarnation: 7 }) });
        assert_eq!((replica.core.config().group.id.incarnation, &replica.stopped), (7, &None));
        replica.commit(entry);
        assert_eq!(replica.stopped.take(), decode::<Proposed>(entry).err(), "{entry:?}");
        assert_eq!(replica.core.poll_timeout(), None);
        replica.handle(Input::Lead { nonce: 5 });
        replica.commit(entry);
        assert!(replica.stopped.is_none() && replica.proposed.is_empty(), "it said so once, and does nothing more");
    }
    // The others go on.
    all.iter_mut().for_each(|replica| replica.commit(&next));
    commit_all(&mut all, 0);
    assert!(all.iter().all(|replica| replica.sum() == 7 && replica.stopped.is_none()));
}

#[test]
fn a_group_that_was_declared_lost_is_set_aside_by_whoever_has_its_log_and_by_nobody_else() {
    let (mut all, mut ledger) = registered(2);
    let group = all[0].core.config().group.id;
    ledger.apply(LogIndex(3), &ledger.declaration(group, false).unwrap());
    assert!(ledger.is_fenced(group));
    let other = GroupId { incarnation: group.incarnation - 1, ..group };
    let mut blank = Replica::new();
    for lost in [other, GroupId { incarnation: 0, ..group }, group] {
        for replica in all.iter_mut().chain([&mut blank]) {
            replica.handle(Input::Aggregator { seat: 0, msg: ForGroup::Lost { group: lost } });
        }
    }
    // The leader, the follower; not the replica that was founded after.
    assert_eq!([&all[0], &all[1], &blank].map(|replica| replica.abandoned), [1, 1, 0]);
    // The old leader's greeting gets the answer that it must stop.
    all[0].handle(Input::Aggregator { seat: 0, msg: ForGroup::Ledger(ToGroup::FencedOut { group }) });
    commit_all(&mut all, 0);
    assert!(!all[0].core.group().is_serving());
}
