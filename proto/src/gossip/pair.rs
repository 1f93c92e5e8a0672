//! The second aggregator of a pair is silent abroad while the first tells: what its groups' feeds bring is held back until the first
//! has told it. What the first has not told in time it tells by itself, and from then on everything at once, until the first tells
//! again. So nothing is told late by more than a patience, whatever becomes of the first, and nobody has to judge whether it lives.

use super::{Gossip, OwnChange};
use crate::ids::AggregatorId;
use crate::row_changes::Part;
use crate::time::{Span, Time};
use crate::view::Cells;
use std::collections::{BTreeMap, BTreeSet};

/// Components of the own data centre that are in the view and that the partner has not told.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// By slot and valve: what the partner has told nothing of, and since when.
    components: BTreeMap<(u32, u16), HeldBack>,
    /// Not after the first of those times.
    oldest: Option<Time>,
    /// The partner was too late: what comes is told at once.
    speaks: bool,
}

/// A component that is held back, with parts of its row.
#[derive(Clone, Debug)]
struct HeldBack {
    since: Time,
    parts: BTreeSet<(u32, Part)>,
}

/// What a feed brought of one component: that it was raised, and parts of its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fed {
    pub slot: u32,
    pub valve: u16,
    /// Of the row, by its number in the view.
    pub rows: Vec<(u32, Part)>,
}

impl Held {
    pub fn is_empty(&self) -> bool {
        self.components.is_empty()
    }

    pub fn slots(&self) -> BTreeSet<u32> {
        self.components.keys().map(|&(slot, _)| slot).collect()
    }

    /// When something has been held back for too long.
    pub fn due(&self, patience: Span) -> Option<Time> {
        self.oldest.map(|oldest| oldest + patience)
    }

    fn keep(&mut self, now: Time, fed: &Fed) {
        let new = || HeldBack { since: now, parts: BTreeSet::new() };
        self.components.entry((fed.slot, fed.valve)).or_insert_with(new).parts.extend(&fed.rows);
        self.oldest.get_or_insert(now);
    }

    /// The partner has told a component; `all` of what is known here, or an earlier value: the rest is under way.
    fn on_told(&mut self, now: Time, component: (u32, u16), all: bool) {
        if all {
            self.components.remove(&component);
        } else if let Some(held) = self.components.get_mut(&component) {
            held.since = now;
        }
        if self.components.is_empty() {
            self.oldest = None;
        }
    }
}

impl Gossip {
    /// The groups' feeds brought this.
    pub fn on_fed(&mut self, now: Time, fed: Vec<Fed>) {
        if !self.is_second() || self.held.speaks {
            let changes = fed.into_iter().map(|fed| OwnChange { slot: fed.slot, rows: fed.rows });
            return self.on_own_changes(now, changes);
        }
        fed.iter().for_each(|fed| self.held.keep(now, fed));
        if self.held.components.len() > self.config.held_max && self.joins() {
            self.held = Held::default();
        } else if self.held.components.len() > self.config.held_max {
            self.tell_held(now);
        }
    }

    /// Whether this is the second of a pair and tells what the first would.
    pub fn speaks_for_its_partner(&self) -> bool {
        self.held.speaks
    }

    /// Components that are held back.
    pub fn held(&self) -> usize {
        self.held.components.len()
    }

    pub(super) fn run_held(&mut self, now: Time) {
        let patience = self.config.partner_patience;
        if self.held.due(patience).is_none_or(|due| due > now) {
            return;
        }
        // Nobody relies on who joins: what both holders did not tell is not told by it either, before it is one of them.
        if self.joins() {
            self.held.components.retain(|_, held| held.since + patience > now);
        }
        self.held.oldest = self.held.components.values().map(|held| held.since).min();
        if self.held.due(patience).is_some_and(|due| due <= now) {
            self.held.speaks = true;
            self.tell_held(now);
        }
    }

    /// This is the first one now, or alone.
    pub(super) fn speak_first(&mut self, now: Time) {
        self.held.speaks = false;
        self.tell_held(now);
    }

    fn tell_held(&mut self, now: Time) {
        let held = std::mem::take(&mut self.held.components);
        self.held.oldest = None;
        let change =
            |((slot, _), held): ((u32, u16), HeldBack)| OwnChange { slot, rows: held.parts.into_iter().collect() };
        self.on_own_changes(now, held.into_iter().map(change));
    }

    /// The partner told of components of this data centre.
    pub(super) fn on_partner_told(&mut self, now: Time, cells: &Cells, origin: AggregatorId, told: &[(u32, u16, u64)]) {
        if Some(origin) != self.partner() {
            return;
        }
        self.held.speaks = false;
        for &(slot, valve, value) in told {
            let all = cells.component(slot, valve) <= value;
            self.held.on_told(now, (slot, valve), all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gossip::GossipConfig;
    use crate::ids::{CounterName, DcId, GroupId, ValveId};
    use crate::msg::PeerMsg;

    const DELAY: Span = Span::from_millis(40);
    const FIRST: usize = 0;
    const SECOND: usize = 1;
    const ABROAD: usize = 2;
    const ABROAD_SECOND: usize = 3;

    /// Two pairs of aggregators, all connected; what one of them is told is lost while it is down.
    struct Net {
        ids: Vec<AggregatorId>,
        cells: Vec<Cells>,
        gossip: Vec<Gossip>,
        down: Vec<bool>,
        flying: Vec<(Time, usize, usize, PeerMsg)>,
        now: Time,
        /// Components told from one data centre to the other, by who said them.
        told_abroad: Vec<usize>,
    }

    impl Net {
        fn new() -> Net {
            let ids: Vec<AggregatorId> =
                [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(dc, seat)| AggregatorId { dc: DcId(dc), seat }).to_vec();
            let gossip = ids.iter().map(|&id| Gossip::new(id, 1, GossipConfig::default(), 7)).collect();
            let cells = ids.iter().map(|&id| Cells::new(u64::from(id.seat))).collect();
            let (down, told_abroad) = (vec![false; ids.len()], vec![0; ids.len()]);
            let mut net = Net { ids, cells, gossip, down, flying: Vec::new(), now: Time(1), told_abroad };
            for (a, b) in (0..4).flat_map(|a| (0..4).map(move |b| (a, b))).filter(|(a, b)| a != b) {
                net.gossip[a].on_peer_up(net.now, net.ids[b], DELAY);
            }
            net
        }

        /// The group of the first data centre has counted this much; who runs is fed it.
        fn count(&mut self, value: u64) {
            for at in [FIRST, SECOND].into_iter().filter(|&at| !self.down[at]).collect::<Vec<_>>() {
                let cells = &mut self.cells[at];
                let slot = cells.slot(&CounterName::new("t", b"k").unwrap().total()).unwrap();
                let group = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
                let valve = cells.valve(ValveId { group, lane: 0 }).unwrap();
                if cells.merge(slot, valve, value) == crate::view::Merged::Raised {
                    self.gossip[at].on_fed(self.now, vec![Fed { slot, valve, rows: Vec::new() }]);
                }
            }
        }

        fn run(&mut self, span: Span) {
            let end = self.now + span;
            while self.now < end {
                self.now = self.now + Span::from_millis(10);
                let (due, later) = self.flying.drain(..).partition(|(at, ..)| *at <= self.now);
                self.flying = later;
                let due: Vec<_> = due;
                due.into_iter().for_each(|(_, from, to, msg)| self.deliver(from, to, msg));
                (0..4).for_each(|at| self.drain(at));
            }
        }

        fn drain(&mut self, at: usize) {
            self.gossip[at].tick(self.now, &self.cells[at]);
            self.gossip[at].check_invariants();
            while let Some((to, msg)) = self.gossip[at].poll_output() {
                let to = self.ids.iter().position(|id| *id == to).unwrap();
                if let PeerMsg::Delta(delta) = &msg
                    && self.ids[to].dc != self.ids[at].dc
                {
                    self.told_abroad[at] += delta.components.len();
                }
                self.flying.push((self.now + DELAY, at, to, msg));
            }
        }

        fn deliver(&mut self, from: usize, to: usize, msg: PeerMsg) {
            if self.down[from] || self.down[to] {
                return;
            }
            let from = self.ids[from];
            match msg {
                PeerMsg::Digest(digest) => self.gossip[to].on_digest(self.now, &self.cells[to], from, &digest),
                PeerMsg::Delta(delta) => drop(self.gossip[to].on_delta(self.now, &mut self.cells[to], from, &delta)),
                _ => unreachable!("gossip says digests and deltas"),
            }
        }

        fn shows(&self, at: usize) -> u64 {
            let slot = self.cells[at].table().find_total(&CounterName::new("t", b"k").unwrap(), 0);
            slot.map_or(0, |slot| self.cells[at].components(slot).map(|(_, value)| value).sum())
        }
    }

    #[test]
    fn the_second_says_nothing_abroad_while_the_first_tells_and_each_pair_is_told_once() {
        let mut net = Net::new();
        for n in 1..=100 {
            net.count(n);
            net.run(Span::from_millis(50));
        }
        net.run(Span::from_secs(3));
        assert_eq!([0, 1, 2, 3].map(|at| net.shows(at)), [100; 4]);
        assert_eq!(net.told_abroad[SECOND], 0);
        // 5 s of changes in intervals of 200 ms, to one of the two abroad.
        assert!(net.told_abroad[FIRST] <= 30, "{:?}", net.told_abroad);
        assert_eq!((net.gossip[SECOND].held(), net.gossip[SECOND].speaks_for_its_partner()), (0, false));
    }

    #[test]
    fn what_the_first_does_not_tell_the_second_tells_in_time_until_the_first_tells_again() {
        let mut net = Net::new();
        net.count(1);
        net.run(Span::from_secs(5));
        net.down[FIRST] = true;
        net.count(2);
        net.run(Span::from_millis(2_000));
        assert_eq!(net.shows(ABROAD), 2, "nobody has noticed that the connection to the first is gone");
        net.count(3);
        net.run(Span::from_millis(300));
        assert_eq!(net.shows(ABROAD), 3, "nothing is held back any more");
        net.down[FIRST] = false;
        net.count(4);
        net.run(Span::from_secs(6));
        assert_eq!([0, 1, 2, 3].map(|at| net.shows(at)), [4; 4]);
        assert!(!net.gossip[SECOND].speaks_for_its_partner());
    }

    #[test]
    fn who_hears_of_the_others_through_a_partner_that_is_down_asks_another() {
        let mut net = Net::new();
        net.count(1);
        net.run(Span::from_secs(5));
        net.down[ABROAD] = true;
        net.count(2);
        net.run(Span::from_millis(4_000));
        assert_eq!(net.shows(ABROAD_SECOND), 2);
    }

    #[test]
    fn what_is_held_back_at_a_checkpoint_is_told_after_it() {
        let mut net = Net::new();
        net.run(Span::from_secs(2));
        net.down[FIRST] = true;
        net.count(5);
        assert_eq!(net.gossip[SECOND].held(), 1);
        let (stream, foreign) = (net.gossip[SECOND].stream_state(), net.gossip[SECOND].foreign_state());
        let mut next = Gossip::new(net.ids[SECOND], 2, GossipConfig::default(), 7);
        next.resume(stream, foreign, &net.cells[SECOND]);
        net.gossip[SECOND] = next;
        net.gossip[SECOND].on_peer_up(net.now, net.ids[ABROAD], DELAY);
        net.gossip[ABROAD].on_peer_up(net.now, net.ids[SECOND], DELAY);
        net.run(Span::from_secs(2));
        assert_eq!(net.shows(ABROAD), 5);
    }
}
