//! The second aggregator of a pair is silent abroad while the first tells: the changes from its groups' feeds are held back until
//! the first has told them. Changes that the first has not told in time it tells by itself. From then on it tells everything at
//! once, until the first tells again. So no change is told late by more than a patience, even if the first fails, and no process
//! has to judge whether it lives.
//!
//! Held-back changes are in no version. To peers that conclude a view's shown state from versions, they are told before any other
//! change of the data centre, since they would be told with it.

use super::{Gossip, OwnChange};
use crate::view::Cells;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::ids::AggregatorId;
use tidemark_types::numbers::Numbers;
use tidemark_types::row_changes::Part;
use tidemark_types::time::{Span, Time};

/// Components of the own data centre that are in the view and that the partner has not told.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// By slot and valve: changes that the partner has not told, and since when.
    pub(super) components: BTreeMap<(u32, u16), HeldBack>,
    /// Not after the first of those times.
    pub(super) oldest: Option<Time>,
    /// The partner was too late: changes are told at once.
    pub(super) speaks: bool,
}

/// A component that is held back, with parts of its row.
#[derive(Clone, Debug)]
pub(super) struct HeldBack {
    pub(super) since: Time,
    pub(super) parts: BTreeSet<(u32, Part)>,
}

/// A feed's changes of one component: that it was raised, and parts of its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fed {
    pub slot: u32,
    pub valve: u16,
    /// Parts of the row, by its number in the view.
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

    /// Drops deferred changes of these slots, whose cells have ended.
    pub(super) fn forget(&mut self, slots: &Numbers) {
        self.components.retain(|&(slot, _), _| !slots.contains(slot));
        self.oldest = self.oldest.filter(|_| !self.components.is_empty());
    }

    /// The partner has told a component; `all` that is known here, or an earlier value: the rest is under way.
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

    /// Whether this is the second of a pair and tells in place of the first.
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
        // No peer relies on a joining aggregator: it does not tell changes that both holders did not tell, before it is a holder.
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

    pub(super) fn tell_held(&mut self, now: Time) {
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
    use crate::gossip::ForeignState;
    use crate::gossip::GossipConfig;
    use proptest::prelude::*;
    use tidemark_types::ids::{CounterName, DcId, GroupId, ValveId};
    use tidemark_wire::msg::PeerMsg;
    use tidemark_wire::shards::{Seats, ShardId};

    const DELAY: Span = Span::from_millis(40);
    const FIRST: usize = 0;
    const SECOND: usize = 1;
    const ABROAD: usize = 2;
    const ABROAD_SECOND: usize = 3;
    const KEYS: [u8; 3] = [b'k', b'l', b'm'];
    const LINKS: [(usize, usize); 6] = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)];

    /// Two pairs of aggregators, all connected; messages to a stopped one are lost.
    struct Net {
        ids: Vec<AggregatorId>,
        cells: Vec<Cells>,
        gossip: Vec<Gossip>,
        down: Vec<bool>,
        flying: Vec<(Time, usize, usize, PeerMsg)>,
        now: Time,
        /// Components told from one data centre to the other, by sender.
        told_abroad: Vec<usize>,
        /// Links that are cut.
        cut: BTreeSet<(usize, usize)>,
        starts: [u64; 4],
    }

    impl Net {
        fn new() -> Net {
            let ids: Vec<AggregatorId> =
                [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(dc, seat)| AggregatorId { dc: DcId(dc), seat }).to_vec();
            let gossip = ids.iter().map(|&id| Net::gossip_of(id, 1)).collect();
            let cells = ids.iter().map(|&id| Cells::new(u64::from(id.seat))).collect();
            let down = vec![false; ids.len()];
            let told_abroad = vec![0; ids.len()];
            let cut = BTreeSet::new();
            let flying = Vec::new();
            let mut net = Net { ids, cells, gossip, down, flying, now: Time(1), told_abroad, cut, starts: [1; 4] };
            for (a, b) in (0..4).flat_map(|a| (0..4).map(move |b| (a, b))).filter(|(a, b)| a != b) {
                net.gossip[a].on_peer_up(net.now, net.ids[b], DELAY);
            }
            net
        }

        /// The holders of one shard of many, in data centres with four aggregators each.
        fn gossip_of(id: AggregatorId, start: u64) -> Gossip {
            let seats = Seats::new(vec![4, 4]);
            Gossip::of_shard(id, ShardId::FIRST, seats, start, GossipConfig::default(), 7)
        }

        /// Starts one anew, on a disk that has the versions of others as they were at `old`, and all components.
        fn restart(&mut self, at: usize, old: ForeignState) {
            self.starts[at] += 1;
            let stream = self.gossip[at].stream_state();
            self.gossip[at] = Net::gossip_of(self.ids[at], self.starts[at]);
            self.gossip[at].resume(stream, old, &self.cells[at]);
            self.flying.retain(|&(_, from, to, _)| from != at && to != at);
            for other in (0..4).filter(|&other| other != at && !self.cut.contains(&(at.min(other), at.max(other)))) {
                self.gossip[other].on_peer_gone(self.now, self.ids[at]);
                self.gossip[other].on_peer_up(self.now, self.ids[at], DELAY);
                self.gossip[at].on_peer_up(self.now, self.ids[other], DELAY);
            }
        }

        /// The group of the first data centre has counted this much; the running aggregators are fed it.
        fn count(&mut self, value: u64) {
            for at in [FIRST, SECOND].into_iter().filter(|&at| !self.down[at]).collect::<Vec<_>>() {
                self.feed(at, b'k', value);
            }
        }

        fn feed(&mut self, at: usize, key: u8, value: u64) {
            let cells = &mut self.cells[at];
            let slot = cells.slot(&CounterName::new("t", &[key]).unwrap().total()).unwrap();
            let group = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
            let valve = cells.valve(ValveId { group, lane: 0 }).unwrap();
            if cells.merge(slot, valve, value) == crate::view::Merged::Raised {
                self.gossip[at].on_fed(self.now, vec![Fed { slot, valve, rows: Vec::new() }]);
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
            while let Some((to, mut msg)) = self.gossip[at].poll_output() {
                if let PeerMsg::Delta(delta) = &mut msg
                    && delta.origin.dc != to.dc
                {
                    delta.partly = self.gossip[at].partly(delta).collect();
                }
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
            if self.down[from] || self.down[to] || self.cut.contains(&(from.min(to), from.max(to))) {
                return;
            }
            let from = self.ids[from];
            match msg {
                PeerMsg::Digest(digest) => self.gossip[to].on_digest(self.now, &self.cells[to], from, &digest),
                PeerMsg::Delta(delta) => {
                    drop(self.gossip[to].on_delta(self.now, &mut self.cells[to], from, &delta, &|_| false))
                }
                _ => unreachable!("gossip says digests and deltas"),
            }
        }

        fn shows(&self, at: usize) -> u64 {
            self.shows_of(at, b'k')
        }

        /// Cuts a link, or restores it; both sides notice.
        fn toggle(&mut self, a: usize, b: usize) {
            let is_up = self.cut.remove(&(a, b));
            for (at, other) in [(a, b), (b, a)] {
                match is_up {
                    true => self.gossip[at].on_peer_up(self.now, self.ids[other], DELAY),
                    false => self.gossip[at].on_peer_gone(self.now, self.ids[other]),
                }
            }
            if !is_up {
                self.cut.insert((a, b));
            }
        }

        /// Panics if one abroad says that it has all that another one may have shown, and shows less.
        fn check_stands(&self) {
            for (shown, asked) in [(ABROAD, ABROAD_SECOND), (ABROAD_SECOND, ABROAD)] {
                let all: BTreeMap<_, _> = self.gossip[asked].whole_of_others().map(|(of, all, _)| (of, all)).collect();
                let has = |(of, _, some)| all.get(&of).copied().unwrap_or_default() >= some;
                let of_first = |(of, ..): &(AggregatorId, _, _)| of.dc == DcId(0);
                let shown_by = &self.gossip[shown];
                if shown_by.is_settled(self.now) && shown_by.whole_of_others().filter(of_first).all(has) {
                    let shown = KEYS.map(|key| self.shows_of(shown, key));
                    let asked = KEYS.map(|key| self.shows_of(asked, key));
                    assert!(shown.iter().zip(&asked).all(|(shown, asked)| shown <= asked), "{shown:?}, then {asked:?}");
                }
            }
        }

        fn shows_of(&self, at: usize, key: u8) -> u64 {
            let slot = self.cells[at].table().find_total(&CounterName::new("t", &[key]).unwrap(), 0);
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        /// Links are cut and restored, and each of the first pair is fed the group's counts when it is its turn.
        #[test]
        fn who_has_all_that_was_shown_shows_no_less(
            steps in prop::collection::vec((0usize..14, 0usize..12, 1u64..40), 10..80)
        ) {
            let mut net = Net::new();
            let mut counted = [0; 3];
            let mut disks: Vec<ForeignState> = net.gossip.iter().map(Gossip::foreign_state).collect();
            for (what, which, long) in steps {
                let key = which % 3;
                match what {
                    0..6 => {
                        let (a, b) = LINKS[what];
                        net.toggle(a, b);
                    }
                    12 => disks[which % 4] = net.gossip[which % 4].foreign_state(),
                    13 => net.restart(which % 4, disks[which % 4].clone()),
                    6..8 => net.feed(what - 6, KEYS[key], counted[key]),
                    _ => {
                        counted[key] += 1;
                        net.feed(what % 2, KEYS[key], counted[key]);
                    }
                }
                for _ in 0..long {
                    net.run(Span::from_millis(10));
                    net.check_stands();
                }
            }
        }
    }

    #[test]
    fn who_has_just_started_relays_nothing_that_no_version_stands_for() {
        let mut net = Net::new();
        [0, 1, 2].into_iter().for_each(|other| net.toggle(other, 3));
        net.feed(FIRST, b'k', 1);
        net.run(Span::from_secs(2));
        let disk = net.gossip[SECOND].foreign_state();
        [0, 1].into_iter().for_each(|other| net.toggle(other, 2));
        net.feed(FIRST, b'k', 2);
        net.run(Span::from_secs(2));
        assert_eq!([0, 1, 2, 3].map(|at| net.shows(at)), [2, 2, 1, 0]);
        net.toggle(0, 1);
        net.restart(SECOND, disk);
        [2, 3].into_iter().for_each(|other| net.toggle(1, other));
        for _ in 0..100 {
            net.run(Span::from_millis(100));
            net.check_stands();
        }
        net.toggle(0, 1);
        net.run(Span::from_secs(10));
        assert_eq!(net.shows(ABROAD_SECOND), 2);
    }

    #[test]
    fn the_second_is_silent_again_under_load_after_it_has_told_something() {
        let mut net = Net::new();
        let mut value = 0;
        let mut load = |net: &mut Net, seconds: u64| {
            for _ in 0..seconds * 20 {
                value += 1;
                net.count(value);
                net.run(Span::from_millis(50));
            }
        };
        load(&mut net, 2);
        net.down[FIRST] = true;
        load(&mut net, 3);
        net.down[FIRST] = false;
        load(&mut net, 6);
        let told = net.told_abroad[SECOND];
        assert!(told > 0, "it told what the first did not");
        load(&mut net, 10);
        assert_eq!(net.told_abroad[SECOND], told);
        let disk = net.gossip[SECOND].foreign_state();
        net.restart(SECOND, disk);
        load(&mut net, 6);
        let told = net.told_abroad[SECOND];
        load(&mut net, 10);
        assert_eq!(net.told_abroad[SECOND], told, "nor after a start");
    }

    #[test]
    fn what_is_held_back_at_a_checkpoint_is_told_after_it() {
        let mut net = Net::new();
        net.run(Span::from_secs(2));
        net.down[FIRST] = true;
        net.count(5);
        assert_eq!(net.gossip[SECOND].held(), 1);
        let stream = net.gossip[SECOND].stream_state();
        let foreign = net.gossip[SECOND].foreign_state();
        let mut next = Gossip::new(net.ids[SECOND], 2, GossipConfig::default(), 7);
        next.resume(stream, foreign, &net.cells[SECOND]);
        net.gossip[SECOND] = next;
        net.gossip[SECOND].on_peer_up(net.now, net.ids[ABROAD], DELAY);
        net.gossip[ABROAD].on_peer_up(net.now, net.ids[SECOND], DELAY);
        net.run(Span::from_secs(2));
        assert_eq!(net.shows(ABROAD), 5);
    }
}
