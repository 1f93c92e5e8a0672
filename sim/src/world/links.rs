//! Connections between nodes and their aggregator and between aggregators. They come up when both ends live and the network lets them, they
//! break, and each message belongs to one incarnation of its link. Elections of the ledger's leader live here too, because they follow from
//! connectivity.

use super::aggregators::SEATS;
use super::{Event, World};
use crate::engine::{Line, Party};
use crate::raft::{Cmds, ELECTION_TIMEOUT, RaftMsg};
use tidemark_proto::aggregator;
use tidemark_proto::node;
use tidemark_proto::time::{Span, Time};

/// How often connectivity is looked at.
const SCAN_INTERVAL: Span = Span::from_millis(100);
/// A heartbeat of the ledger's log each time after this number of scans.
const HEARTBEAT_SCANS: u64 = 2;

/// A member this number of entries behind may get a snapshot instead of them.
const SNAPSHOT_WHEN_BEHIND: usize = 100;

/// The state of a link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Link {
    pub up: bool,
    /// Of a group: the process that speaks for it.
    pub node: usize,
    /// Counts incarnations: a message of an earlier one is dropped.
    pub number: u32,
    /// Since when the ends cannot reach each other, while the link is still up.
    broken_since: Option<Time>,
    /// Not before this.
    up_at: Time,
    /// Messages keep order within an incarnation: earliest next arrival at either end.
    pub arrivals: [Time; 2],
}

#[derive(Clone, Debug)]
pub struct Links {
    dcs: usize,
    /// By group and seat of the aggregator.
    pub groups: Vec<[Link; SEATS]>,
    /// By pair `a < b`, at `a · dcs + b`.
    peers: Vec<Link>,
    scans: u64,
}

impl Links {
    pub fn new(dcs: usize, groups: usize) -> Links {
        Links { dcs, groups: vec![Default::default(); groups], peers: vec![Link::default(); dcs * dcs], scans: 0 }
    }

    pub fn peer(&mut self, a: usize, b: usize) -> &mut Link {
        &mut self.peers[a.min(b) * self.dcs + a.max(b)]
    }
}

impl World {
    pub(super) fn on_scan(&mut self) {
        self.links.scans += 1;
        self.scan_logs();
        (0..self.groups.len()).for_each(|group| self.scan_group(group));
        for a in self.members() {
            (a + 1..self.members().end).for_each(|b| self.scan_peer(a, b));
        }
        self.scan_raft();
        let interval = self.plan.days.map_or(SCAN_INTERVAL, |days| days.look_interval);
        self.on_clocks(self.links.scans, interval);
        self.after(interval, Event::Scan);
    }

    // ---- node ↔ aggregator ----

    fn scan_group(&mut self, group: usize) {
        for seat in 0..SEATS {
            if let Some(at) = self.at_seat(self.plan.nodes[group], seat) {
                self.scan_group_link(group, seat, at);
            }
        }
    }

    fn scan_group_link(&mut self, group: usize, seat: usize, at: usize) {
        let known = self.aggregators[at].is_up() && self.joins.is_known(group, at);
        let Some(node) = self.serving(group).filter(|_| known) else { return };
        self.learn_incarnation(group, node);
        let link = &mut self.links.groups[group][seat];
        if !link.up && self.now >= link.up_at {
            (link.up, link.node) = (true, node);
            link.number += 1;
            link.arrivals = [self.now; 2];
            let id = self.groups[group];
            self.note(20, [group as u64, seat as u64, 0], || format!("link {id} – aggregator {seat} up"));
            self.node_input(node, node::Input::AggregatorUp { seat: seat as u8 });
            self.aggregator_input(at, aggregator::Input::GroupUp { group: id });
            self.on_linked(group, at);
        }
    }

    /// A group's links break; the ends that live are told.
    pub(super) fn break_group(&mut self, group: usize) {
        (0..SEATS).for_each(|seat| self.break_group_link(group, seat));
    }

    pub(super) fn break_group_link(&mut self, group: usize, seat: usize) {
        let Some(at) = self.at_seat(self.plan.nodes[group], seat) else { return };
        let link = &mut self.links.groups[group][seat];
        let node = link.node;
        let was_up = std::mem::replace(&mut link.up, false);
        let number = link.number;
        link.up_at = self.now + Span::from_millis(50);
        if was_up {
            self.hang_up(Line { from: Party::Node(node), to: Party::Aggregator(at), number: number.into() });
            let id = self.groups[group];
            self.note(21, [group as u64, seat as u64, 0], || format!("link {id} – aggregator {seat} down"));
            self.node_input(node, node::Input::AggregatorGone { seat: seat as u8 });
            self.aggregator_input(at, aggregator::Input::GroupGone { group: id });
        }
    }

    // ---- aggregator ↔ aggregator ----

    fn scan_peer(&mut self, a: usize, b: usize) {
        let reachable = self.net.connected(a, b);
        let both = self.aggregators[a].is_up() && self.aggregators[b].is_up();
        let now = self.now;
        let rtt = self.net.rtt(a, b);
        let patience = Span::from_millis(500);
        let link = self.links.peer(a, b);
        if link.up {
            let since = if reachable { None } else { Some(*link.broken_since.get_or_insert(now)) };
            link.broken_since = since;
            if since.is_some_and(|since| now - since >= patience) {
                self.break_peers(a, b);
            }
        } else if both && reachable && now >= link.up_at {
            *link = super::links::Link { up: true, number: link.number + 1, arrivals: [now; 2], ..Default::default() };
            self.note(22, [a as u64, b as u64, 0], || format!("link {a} – {b} up"));
            for (dc, peer) in [(a, b), (b, a)] {
                let peer = self.id_of(peer);
                self.aggregator_input(dc, aggregator::Input::PeerUp { peer, rtt });
            }
        }
    }

    pub(super) fn break_peers(&mut self, a: usize, b: usize) {
        let now = self.now;
        let link = self.links.peer(a, b);
        let was_up = std::mem::replace(&mut link.up, false);
        let number = link.number;
        (link.broken_since, link.up_at) = (None, now + Span::from_millis(100));
        if was_up {
            self.hang_up(Line { from: Party::Aggregator(a), to: Party::Aggregator(b), number: number.into() });
            self.note(23, [a as u64, b as u64, 0], || format!("link {a} – {b} down"));
            for (dc, peer) in [(a, b), (b, a)] {
                let peer = self.id_of(peer);
                self.aggregator_input(dc, aggregator::Input::PeerGone { peer });
            }
        }
    }

    // ---- the ledger's log ----

    fn scan_raft(&mut self) {
        if self.engine.is_some() {
            return;
        }
        let beat = self.links.scans.is_multiple_of(HEARTBEAT_SCANS);
        for dc in self.members() {
            if self.raft.is_leader(dc) && beat {
                self.raft.heartbeat(dc);
            }
            let behind = self.reference_index.saturating_sub(self.aggregators[dc].applied);
            if self.aggregators[dc].is_up() && behind > SNAPSHOT_WHEN_BEHIND && self.rng.per_10k(1_000) {
                self.send_snapshot(dc);
            }
        }
        let net = &self.net;
        let leader = self.raft.leader();
        let works = leader.is_some_and(|dc| self.raft.reaches_majority(dc, |a, b| net.connected(a, b)));
        if works {
            self.raft_alone_since = None;
        } else {
            let since = *self.raft_alone_since.get_or_insert(self.now);
            let first = leader.is_none() && self.reference_index == 0;
            if first || self.now - since >= ELECTION_TIMEOUT {
                self.elect_somebody();
            }
        }
    }

    fn elect_somebody(&mut self) {
        let start = self.rng.below(self.plan.voters.len() as u64) as usize;
        for n in 0..self.plan.voters.len() {
            let candidate = self.plan.voters[(start + n) % self.plan.voters.len()];
            if self.elect(candidate) {
                break;
            }
        }
    }

    /// True when `candidate` now leads.
    pub(super) fn elect(&mut self, candidate: usize) -> bool {
        if let Some(engine) = &mut self.engine {
            engine.elect(candidate);
            return false;
        }
        let net = &self.net;
        let elected = self.raft.elect(candidate, |a, b| net.connected(a, b));
        if elected {
            self.raft_alone_since = None;
            self.on_elected(candidate);
        }
        elected
    }

    pub(super) fn on_elected(&mut self, candidate: usize) {
        self.elections += 1;
        self.elected[candidate] = Some(self.now);
        self.note(24, [candidate as u64, 0, 0], || format!("data centre {candidate} leads the ledger"));
        self.coverage.saw("ledger leader elected");
        let believers = self.members().filter(|&dc| self.raft.is_leader(dc)).count();
        self.coverage.saw_times("old ledger leader still believes", u64::from(believers > 1));
    }

    /// Sends what the log's members want to send, and tells their aggregators what they learnt.
    pub(super) fn flush_raft(&mut self) {
        while let Some((from, to, after_sync, msg)) = self.raft.outbox.pop_front() {
            let boot = self.aggregators[from].boot;
            if after_sync {
                let sync = self.span(self.plan.sync.0.0, self.plan.sync.1.0);
                self.after(sync, Event::RaftLeaves { from, boot, to, msg });
            } else {
                self.send_raft(from, to, msg);
            }
        }
        self.members().for_each(|at| self.catch_up(at));
    }

    pub(super) fn on_raft_leaves(&mut self, from: usize, boot: u32, to: usize, msg: RaftMsg<Cmds>) {
        if self.aggregators[from].boot != boot || !self.aggregators[from].is_up() {
            return;
        }
        if let RaftMsg::Ack { matched, term, .. } = &msg
            && self.raft.members[from].term == *term
        {
            self.raft.synced(from, *matched);
        }
        if from == to {
            self.raft.handle(to, from, msg);
        } else {
            self.send_raft(from, to, msg);
        }
    }

    fn send_raft(&mut self, from: usize, to: usize, msg: RaftMsg<Cmds>) {
        let boot = self.aggregators[to].boot;
        for delay in self.net.datagram(from, to).into_iter().flatten() {
            self.after(delay, Event::RaftArrives { from, to, boot, msg: msg.clone() });
        }
    }

    pub(super) fn on_raft_arrives(&mut self, from: usize, to: usize, boot: u32, msg: RaftMsg<Cmds>) {
        if self.aggregators[to].boot == boot && self.aggregators[to].is_up() {
            self.raft.handle(to, from, msg);
        }
    }
}
