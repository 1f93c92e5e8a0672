//! Aggregators over a network that loses, doubles and reorders: views become equal, in any topology and after any restarts.

use super::*;
use crate::view::{Cells, Merged};
use proptest::prelude::*;
use std::collections::BTreeSet;
use tidemark_ledger::ledger::Ledger;
use tidemark_types::ids::{CounterName, GroupId, LogIndex, ValveId};
use tidemark_types::series::{BucketId, Granularity, Kept, OutOfRange, Retention, Row, SeriesPolicy, UnixTime};
use tidemark_types::table::CellTable;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::{Delta, DeltaWalk, LedgerCmd, SeriesTerms};
use tidemark_wire::wire;

/// A seeded generator for the tests.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        bytes_hash(17, &self.0.to_le_bytes()) % n
    }
}

struct Site {
    cells: Cells,
    gossip: Gossip,
    /// The counts of its groups: their truth, fed again after a restart.
    own: BTreeMap<(u32, u8), u64>,
    own_rows: BTreeMap<(u32, u8), Row>,
    starts: u64,
}

/// Sites, links and messages on their way.
struct Net {
    sites: Vec<Site>,
    up: Vec<(usize, usize)>,
    flying: Vec<(Time, usize, usize, Vec<u8>)>,
    now: Time,
    dice: Dice,
    loss_per_100: u64,
    bytes: u64,
    /// The times, senders and recipients of messages: messages of one moment go together.
    told: BTreeSet<(Time, usize, AggregatorId)>,
    config: GossipConfig,
    /// Counted cells have rows of buckets, too.
    rows: bool,
    /// Keys of counters that have ended everywhere, in order. Each site knows the first of them; its cells say how many.
    over: Vec<u32>,
}

/// Minutes for a day, hours for ten, days for ninety.
fn ledger() -> Ledger {
    let kept = |granularity, ttl_d: u64| Kept { granularity, ttl_s: ttl_d * 86_400 };
    let all = vec![kept(Granularity::MINUTE, 1), kept(Granularity::HOUR, 10), kept(Granularity::DAY, 90)];
    let policy = SeriesPolicy::new(Retention::new(all).unwrap(), 86_400, 60, OutOfRange::Refused).unwrap();
    let terms = SeriesTerms { revision: 1, policy, since: began() };
    let mut ledger = Ledger::default();
    ledger.apply(LogIndex(1), &LedgerCmd::Series { namespace: "t".into(), terms });
    ledger
}

fn began() -> UnixTime {
    UnixTime::try_from(1_800_000_000).unwrap()
}

fn cells_of(seed: u64) -> Cells {
    let mut cells = Cells::new(seed);
    cells.on_time(began());
    cells.take_series(&ledger());
    cells
}

fn cell(key: u32) -> tidemark_types::ids::CellId {
    CounterName::new("t", format!("key-of-24-bytes-{key:08}").as_bytes()).unwrap().total()
}

fn group(dc: usize) -> GroupId {
    GroupId { dc: DcId(dc as u16), group: 0, incarnation: 1 }
}

impl Site {
    fn new(dc: usize, config: &GossipConfig) -> Site {
        let gossip = Gossip::new(DcId(dc as u16), 1, config.clone(), 7);
        Site { cells: cells_of(dc as u64), gossip, own: BTreeMap::new(), own_rows: BTreeMap::new(), starts: 1 }
    }

    /// Its component, and of its row the buckets that hold some time, or all.
    fn feed(&mut self, now: Time, dc: usize, key: u32, lane: u8, event: Option<UnixTime>) {
        let value = self.own[&(key, lane)];
        if self.cells.table().find(&cell(key)).is_some_and(|slot| self.cells.is_over(slot)) {
            return;
        }
        let slot = self.cells.slot(&cell(key)).unwrap();
        let valve = self.cells.valve(ValveId { group: group(dc), lane }).unwrap();
        let raised = self.cells.merge(slot, valve, value) == Merged::Raised;
        let row = self.own_rows.get(&(key, lane)).cloned().unwrap_or_default();
        let horizon = self.cells.series_of("t").unwrap().horizon.clone();
        let part = event.map_or(row.clone(), |event| row.holding(&horizon, [event]));
        let raised_row = self.cells.merge_row(slot, valve, &part);
        if raised || raised_row.is_some() {
            let rows = raised_row.into_iter().flat_map(|by| by.parts.into_iter().map(move |part| (by.number, part)));
            self.gossip.on_own_changes(now, [OwnChange { slot, rows: rows.collect() }]);
        }
    }

    fn rows(&self) -> BTreeMap<(tidemark_types::ids::CellId, ValveId, BucketId), u64> {
        let mut all = BTreeMap::new();
        for number in 0..self.cells.rows_len() {
            let ((slot, valve), row) = (self.cells.row_place(number), self.cells.row(number));
            let name = self.cells.name(slot);
            let valve = self.cells.valves()[usize::from(valve)];
            all.extend(row.buckets().map(|(bucket, value)| ((name.clone(), valve, bucket), value)));
        }
        all
    }

    fn holds(&self) -> BTreeMap<(tidemark_types::ids::CellId, ValveId), u64> {
        let of = |slot| self.cells.components(slot).map(move |(valve, value)| ((slot, valve), value));
        let named = |((slot, valve), value)| ((self.cells.name(slot), self.cells.valves()[usize::from(valve)]), value);
        (0..self.cells.len()).flat_map(of).map(named).collect()
    }
}

impl Net {
    fn new(sites: usize, links: impl IntoIterator<Item = (usize, usize)>, seed: u64, config: GossipConfig) -> Net {
        let mut net = Net {
            sites: (0..sites).map(|dc| Site::new(dc, &config)).collect(),
            up: Vec::new(),
            flying: Vec::new(),
            now: Time(1_000),
            dice: Dice(seed),
            loss_per_100: 0,
            bytes: 0,
            told: BTreeSet::new(),
            config,
            rows: false,
            over: Vec::new(),
        };
        links.into_iter().for_each(|(a, b)| net.link(a, b));
        net
    }

    fn mesh(sites: usize, seed: u64, config: GossipConfig) -> Net {
        Net::new(sites, (0..sites).flat_map(|a| (0..a).map(move |b| (b, a))), seed, config)
    }

    fn link(&mut self, a: usize, b: usize) {
        self.up.push((a, b));
        for (dc, peer) in [(a, b), (b, a)] {
            self.sites[dc].gossip.on_peer_up(self.now, DcId(peer as u16).into(), Span::from_millis(80));
            self.drain(dc);
        }
    }

    fn cut(&mut self, a: usize, b: usize) {
        self.up.retain(|link| *link != (a, b));
        self.sites[a].gossip.on_peer_gone(self.now, DcId(b as u16).into());
        self.sites[b].gossip.on_peer_gone(self.now, DcId(a as u16).into());
    }

    /// Counts at a site; the groups know it even if the aggregator fails.
    fn count(&mut self, dc: usize, key: u32, lane: u8, n: u64) {
        *self.sites[dc].own.entry((key, lane)).or_default() += n;
        let ago_s = if self.rows { self.dice.below(20) * self.dice.below(20) * 240 } else { 0 };
        let event = began().minus(ago_s);
        let site = &mut self.sites[dc];
        if self.rows {
            let horizon = &site.cells.series_of("t").unwrap().horizon;
            site.own_rows.entry((key, lane)).or_default().add(horizon, event, n).unwrap();
        }
        self.sites[dc].feed(self.now, dc, key, lane, Some(event));
        self.drain(dc);
    }

    /// The aggregator starts anew; with `disk`, from the state of its last checkpoint.
    fn restart(&mut self, dc: usize, disk: Option<(Cells, StreamState, ForeignState)>) {
        for (a, b) in self.up.clone().into_iter().filter(|&(a, b)| a == dc || b == dc) {
            self.cut(a, b);
            let other = if a == dc { b } else { a };
            self.sites[other].gossip.on_peer_gone(self.now, DcId(dc as u16).into());
        }
        let starts = self.sites[dc].starts + 1;
        let own = self.sites[dc].own.clone();
        let own_rows = self.sites[dc].own_rows.clone();
        let mut gossip = Gossip::new(DcId(dc as u16), starts, self.config.clone(), 7);
        let cells = match disk {
            Some((cells, stream, foreign)) => {
                gossip.resume(stream, foreign, &cells);
                cells
            }
            None => cells_of(99 + starts),
        };
        self.sites[dc] = Site { cells, gossip, own, own_rows, starts };
        for (key, lane) in self.sites[dc].own.keys().copied().collect::<Vec<_>>() {
            if !self.known_over(dc).contains(&key) {
                self.sites[dc].feed(self.now, dc, key, lane, None);
            }
        }
    }

    fn checkpoint(&self, dc: usize) -> (Cells, StreamState, ForeignState) {
        let site = &self.sites[dc];
        (self.loaded(dc), site.gossip.stream_state(), site.gossip.foreign_state())
    }

    /// The cells of a site as a start finds them on its disk.
    fn loaded(&self, dc: usize) -> Cells {
        let cells = &self.sites[dc].cells;
        let table = CellTable::with_namespaces(5, cells.table().namespaces().to_vec());
        let mut loaded = Cells::load(table, cells.valves());
        loaded.load_names(&cells.table().records(0, cells.len())).unwrap();
        loaded.names_loaded().unwrap();
        for slot in 0..cells.len() {
            cells.components(slot).for_each(|(valve, value)| loaded.load_component(slot, valve, value));
        }
        for number in 0..cells.rows_len() {
            let (slot, valve) = cells.row_place(number);
            assert!(loaded.load_row(number, slot, valve, cells.row(number).into_owned()));
        }
        loaded.on_time(began());
        loaded.take_series(&ledger());
        let over = self.known_over(dc).iter().filter_map(|&key| loaded.table().find(&cell(key)));
        over.collect::<Vec<_>>().into_iter().for_each(|slot| loaded.end(slot));
        loaded.ended_upto(cells.ended());
        loaded
    }

    fn drain(&mut self, dc: usize) {
        let site = &mut self.sites[dc];
        site.gossip.tick(self.now, &site.cells);
        site.gossip.check_invariants();
        while let Some((to, msg)) = self.sites[dc].gossip.poll_output() {
            let bytes = wire::encode(&msg);
            assert!(bytes.len() <= tidemark_types::limits::MESSAGE_BYTES_MAX);
            self.bytes += bytes.len() as u64;
            self.told.insert((self.now, dc, to));
            let copies = if self.loss_per_100 == 0 { 1 } else { 1 + u64::from(self.dice.below(10) == 0) };
            for _ in 0..copies {
                if self.dice.below(100) < self.loss_per_100 {
                    continue;
                }
                let jitter = if self.loss_per_100 == 0 { 0 } else { self.dice.below(120_000) };
                self.flying.push((self.now + Span(40_000 + jitter), dc, usize::from(to.dc.0), bytes.clone()));
            }
        }
    }

    /// Runs until nothing happens before `until`.
    fn run(&mut self, until: Time) {
        loop {
            let arrival = self.flying.iter().map(|m| m.0).min();
            let timeouts = self.sites.iter().filter_map(|site| site.gossip.poll_timeout()).min();
            let Some(next) = arrival.into_iter().chain(timeouts).min().filter(|&at| at <= until) else { break };
            self.now = self.now.max(next);
            let mut arrived = Vec::new();
            self.flying.retain(|m| {
                if m.0 <= self.now {
                    arrived.push(m.clone());
                    false
                } else {
                    true
                }
            });
            arrived.sort_by_key(|m| m.0);
            for (_, from, to, bytes) in arrived {
                if self.up.iter().any(|&(a, b)| (a, b) == (from, to) || (a, b) == (to, from)) {
                    self.deliver(from, to, &bytes);
                }
            }
            (0..self.sites.len()).for_each(|dc| self.drain(dc));
        }
        self.now = self.now.max(until);
    }

    fn deliver(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let over: BTreeSet<_> = self.known_over(to).iter().map(|&key| cell(key)).collect();
        let site = &mut self.sites[to];
        match wire::decode::<PeerMsg>(bytes).unwrap() {
            PeerMsg::Digest(digest) => site.gossip.on_digest(self.now, &site.cells, DcId(from as u16).into(), &digest),
            PeerMsg::Delta(delta) => {
                site.gossip
                    .on_delta(self.now, &mut site.cells, DcId(from as u16).into(), &delta, &|cell| over.contains(cell));
            }
            _ => unreachable!("gossip says digests and deltas"),
        }
        self.drain(to);
    }

    /// Keys of the counters that a site knows to be over.
    fn known_over(&self, dc: usize) -> &[u32] {
        &self.over[..self.sites[dc].cells.ended() as usize]
    }

    /// A site hears that further counters have ended.
    fn hear_over(&mut self, dc: usize, upto: usize) {
        let cells = &mut self.sites[dc].cells;
        for &key in &self.over[cells.ended() as usize..upto] {
            if let Some(slot) = cells.table().find(&cell(key)) {
                cells.end(slot);
            }
        }
        cells.ended_upto(upto as u64);
    }

    /// New cells of a site may get the slots of all that it knows to be over.
    fn free(&mut self, dc: usize) {
        let Site { cells, gossip, .. } = &mut self.sites[dc];
        let slots = cells.to_free();
        if !bites(Bug::ReferencesKept) {
            let mut swept = gossip.begin_sweep();
            while gossip.sweep_numbers(&mut swept, &slots) {}
        }
        gossip.free_slots(&slots);
        cells.free(&slots);
        if !bites(Bug::ReferencesKept) {
            gossip.check_freed(&slots);
        }
    }

    fn run_for(&mut self, span: Span) {
        self.run(self.now + span);
    }

    fn is_converged(&self) -> bool {
        let first = self.sites[0].holds();
        let rows = self.sites[0].rows();
        let is_equal = self.sites.iter().all(|site| site.holds() == first && site.rows() == rows);
        is_equal && self.holds_all_counted() && self.holds_all_rows()
    }

    fn holds_all_rows(&self) -> bool {
        let held = self.sites[0].rows();
        let own = self.sites.iter().enumerate().flat_map(|(dc, site)| site.own_rows.iter().map(move |row| (dc, row)));
        let mut all = own.flat_map(|(dc, (&(key, lane), row))| {
            let valve = ValveId { group: group(dc), lane };
            let kept = row.buckets().filter(move |_| !self.over.contains(&key));
            kept.map(move |(bucket, value)| ((cell(key), valve, bucket), value)).collect::<Vec<_>>()
        });
        all.all(|(key, value)| held.get(&key) == Some(&value))
    }

    fn holds_all_counted(&self) -> bool {
        let all = self.sites.iter().enumerate().flat_map(|(dc, site)| site.own.iter().map(move |(k, v)| (dc, k, v)));
        let first = self.sites[0].holds();
        let has = |(dc, &(key, lane), &value): (usize, &(u32, u8), &u64)| {
            let held = first.get(&(cell(key), ValveId { group: group(dc), lane }));
            self.over.contains(&key) || held.is_some_and(|&held| held >= value)
        };
        all.into_iter().all(has)
    }

    /// The time until all views are equal, in steps of 50 ms; panics after `limit`.
    fn converge(&mut self, limit: Span) -> Span {
        let start = self.now;
        while !self.is_converged() {
            assert!(self.now - start < limit, "not equal after {:?}: {:?}", limit, self.summary());
            self.run_for(Span::from_millis(50));
        }
        self.sites.iter().for_each(|site| site.cells.check_all());
        self.now - start
    }

    fn summary(&self) -> Vec<String> {
        let of = |s: &Site| format!("{} {:?} {:?}", s.holds().len(), s.gossip.foreign_state(), s.gossip.counts());
        self.sites.iter().map(of).collect()
    }

    fn count_some(&mut self, steps: u64, keys: u64) {
        for _ in 0..steps {
            let dc = self.dice.below(self.sites.len() as u64) as usize;
            let key = self.dice.below(keys) as u32;
            let lane = self.dice.below(3) as u8;
            self.count(dc, key, lane, 1);
            if self.dice.below(4) == 0 {
                self.run_for(Span(30_000));
            }
        }
    }
}

/// Small limits, so that small tests cut deltas, overrun rings and walk.
fn small() -> GossipConfig {
    GossipConfig {
        delta_bytes_max: 300,
        own_ring_events: 12,
        relay_ring_events: 8,
        window_deltas: 4,
        ..Default::default()
    }
}

/// An acknowledgement is no reason to tell a peer new changes before their time, and acknowledgements go with told changes.
#[test]
fn who_counts_all_the_time_tells_a_peer_something_once_in_an_interval() {
    let mut net = Net::mesh(3, 5, GossipConfig::default());
    net.run_for(Span::from_secs(1));
    net.told.clear();
    let before = net.sites[0].gossip.counts().deltas_sent;
    for step in 0..2_000 {
        (0..3).for_each(|dc| net.count(dc, step % 3, 0, 1));
        net.run_for(Span::from_millis(5));
    }
    let intervals = 10_000_000 / net.config.gossip_interval.0;
    let deltas = net.sites[0].gossip.counts().deltas_sent - before;
    assert!(deltas <= 2 * (intervals + 1), "{deltas} deltas to two peers in {intervals} intervals");
    // Beside them a digest a second and the answer to another.
    let moments = net.told.iter().filter(|(_, from, _)| *from == 0).count() as u64;
    assert!(moments <= 2 * (intervals + 1 + 2 * 10), "{moments} messages to two peers in {intervals} intervals");
    net.converge(Span::from_secs(1));
}

fn restart_and_converge(seed: u64, with_disk: bool, loss_per_100: u64, config: GossipConfig) {
    let mut net = Net::mesh(3, seed, config);
    (net.loss_per_100, net.rows) = (loss_per_100, !seed.is_multiple_of(3));
    for round in 0..4 {
        net.count_some(25, 25);
        let disk = net.checkpoint(1);
        net.count_some(15, 25);
        net.restart(1, with_disk.then_some(disk));
        net.count_some(10, 25);
        net.link(0, 1);
        if round % 2 == 0 {
            net.run_for(Span::from_secs(1));
        }
        net.link(1, 2);
    }
    net.converge(Span::from_secs(120));
}

/// The pieces of a walk have other bounds when they are sent again, since names that are known take no room.
#[test]
fn a_walk_goes_on_from_where_the_peer_is_though_it_was_sent_in_other_pieces() {
    let config = GossipConfig { digest_interval: Span::from_secs(2), ..small() };
    restart_and_converge(5_154_875_213_857_193_044, true, 13, config);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn views_become_equal_over_a_network_that_loses_doubles_and_reorders(
        seed in any::<u64>(), sites in 2usize..6, loss in 0u64..40, cut_small in any::<bool>(),
    ) {
        let config = if cut_small { small() } else { GossipConfig::default() };
        let mut net = Net::mesh(sites, seed, config);
        (net.loss_per_100, net.rows) = (loss, !seed.is_multiple_of(3));
        net.count_some(120, 40);
        net.converge(Span::from_secs(if loss > 20 { 240 } else { 120 }));
        net.loss_per_100 = 0;
        net.run_for(Span::from_secs(15));
        prop_assert!(net.is_converged());
    }

    #[test]
    fn a_chain_relays(seed in any::<u64>(), sites in 3usize..6, cut_small in any::<bool>()) {
        let config = if cut_small { small() } else { GossipConfig::default() };
        let mut net = Net::new(sites, (1..sites).map(|b| (b - 1, b)), seed, config);
        net.rows = !seed.is_multiple_of(3);
        net.count_some(80, 30);
        net.converge(Span::from_secs(30));
        net.count(0, 3, 0, 1);
        // Once asked for, changes are relayed as they come.
        prop_assert!(net.converge(Span::from_secs(5)) <= Span::from_millis(150 * sites as u64));
    }

    /// Repairs heal lost changes: without losses there is nothing to heal.
    #[test]
    fn with_a_version_comes_all_that_it_stands_for(
        seed in any::<u64>(), sites in 2usize..5, is_chain in any::<bool>(), cut_small in any::<bool>(),
    ) {
        let config = if cut_small { small() } else { GossipConfig::default() };
        let links = (0..sites).flat_map(|a| (0..a).map(move |b| (b, a))).filter(|(b, a)| !is_chain || b + 1 == *a);
        let mut net = Net::new(sites, links, seed, config);
        net.rows = true;
        for _ in 0..4 {
            net.count_some(60, 6);
            net.run_for(Span::from_millis(700));
        }
        net.converge(Span::from_secs(30));
        net.run_for(Span::from_secs(60));
        let repairs: u64 = net.sites.iter().map(|site| site.gossip.counts().repairs).sum();
        prop_assert_eq!(repairs, 0);
    }

    #[test]
    fn partitions_heal(seed in any::<u64>(), cut_small in any::<bool>()) {
        let config = if cut_small { small() } else { GossipConfig::default() };
        let mut net = Net::mesh(4, seed, config);
        net.rows = !seed.is_multiple_of(3);
        net.count_some(60, 20);
        net.cut(0, 1);
        net.cut(0, 2);
        net.count_some(60, 20);
        // 3 still connects all.
        net.converge(Span::from_secs(30));
        net.cut(0, 3);
        net.count_some(60, 20);
        net.run_for(Span::from_secs(30));
        prop_assert!(!net.is_converged());
        net.link(0, 2);
        net.converge(Span::from_secs(30));
        net.link(0, 1);
        net.link(0, 3);
        net.count_some(30, 20);
        net.converge(Span::from_secs(30));
    }

    #[test]
    fn restarts_with_and_without_disk_lose_nothing(
        seed in any::<u64>(), with_disk in any::<bool>(), cut_small in any::<bool>(), loss in 0u64..15, digest_s in 1u64..4,
    ) {
        let config = if cut_small { small() } else { GossipConfig::default() };
        let config = GossipConfig { digest_interval: Span::from_secs(digest_s), ..config };
        restart_and_converge(seed, with_disk, loss, config);
    }

    #[test]
    fn hostile_deltas_and_digests_change_nothing_that_is_true(
        seed in any::<u64>(),
        deltas in proptest::collection::vec(hostile_delta(), 1..20),
        digests in proptest::collection::vec(hostile_digest(), 0..6),
    ) {
        let mut net = Net::mesh(3, seed, GossipConfig::default());
        net.count_some(30, 10);
        for delta in deltas {
            if is_valid(&delta) {
                let site = &mut net.sites[0];
                site.gossip.on_delta(net.now, &mut site.cells, DcId(1).into(), &delta, &|_| false);
                net.drain(0);
            }
        }
        for digest in digests {
            let site = &mut net.sites[0];
            site.gossip.on_digest(net.now, &site.cells, DcId(1).into(), &digest);
            net.drain(0);
        }
        net.sites[0].cells.check_all();
        prop_assert!(net.holds_all_counted_at(0));
    }
}

/// A component that changed before a cut and again behind it comes behind it.
#[test]
fn of_what_is_told_in_part_all_is_there_once_its_teller_has_no_more() {
    let at = |version| Version { epoch: 1, version };
    let mut origin = Origin::new(at(3), Recent::Relay(RelayRing::new(8, 3)), 8);
    let advance = |origin: &mut Origin, to, known, is_all| {
        origin.advance(at(to), known, is_all);
        (origin.whole(), origin.some(), origin.known())
    };
    assert_eq!(advance(&mut origin, 5, 9, false), (at(3), at(5), 9));
    assert_eq!(advance(&mut origin, 7, 0, false), (at(3), at(7), 9), "by one that knows less");
    assert_eq!(advance(&mut origin, 9, 0, false), (at(9), at(9), 9));
    assert_eq!(advance(&mut origin, 10, 20, false), (at(9), at(10), 20));
    assert_eq!(advance(&mut origin, 12, 0, true), (at(12), at(12), 12), "a walk tells all");
}

fn is_valid(delta: &Delta) -> bool {
    wire::decode::<PeerMsg>(&wire::encode(&PeerMsg::Delta(delta.clone()))).is_ok()
}

impl Net {
    fn holds_all_counted_at(&self, dc: usize) -> bool {
        let held = self.sites[dc].holds();
        self.sites[dc].own.iter().all(|(&(key, lane), value)| {
            held.get(&(cell(key), ValveId { group: group(dc), lane })).is_some_and(|held| held >= value)
        })
    }
}

prop_compose! {
    fn hostile_delta()(
        sender in 0u64..4, origin in 0u16..4, epoch in 0u64..3, base in 0u64..20, upto in any::<u64>(),
        walk in proptest::option::of((0u64..9, 0u32..9, any::<u32>(), any::<bool>())),
        names in proptest::collection::vec((any::<u32>(), 0u32..12), 0..4),
        groups in proptest::collection::vec((0u16..4, 0u16..3), 0..4),
        components in proptest::collection::vec((any::<u32>(), 0u16..300, any::<u64>()), 0..6),
        rows in proptest::collection::vec((any::<u32>(), 0u16..300, 0u32..9), 0..4),
        small in any::<bool>(),
    ) -> Delta {
        Delta {
            sender, origin: DcId(origin).into(), epoch, base, upto: if small { upto % 30 } else { upto },
            walk: walk.map(|(started, from_slot, next_slot, last)| DeltaWalk { started, from_slot, next_slot, last }),
            cells: names.into_iter().map(|(number, key)| (if small { number % 20 } else { number }, cell(key))).collect(),
            groups: groups.into_iter().map(|(dc, group)| GroupId { dc: DcId(dc), group, incarnation: 1 }).collect(),
            components: components.into_iter().map(|(n, v, c)| (if small { n % 5 } else { n }, u32::from(v), c >> 9)).collect(),
            rows: rows.into_iter().map(|(n, v, index)| {
                let bucket = BucketId { granularity: Granularity::DAY, index: 20_830 + index };
                (if small { n % 5 } else { n }, u32::from(v), Row::from_buckets([(bucket, 7)]))
            }).collect(),
            known: if small { 0 } else { upto },
            fed: Vec::new(),
            partly: vec![(AggregatorId { dc: DcId(origin), seat: 1 }, Version { epoch, version: base })],
        }
    }
}

prop_compose! {
    fn hostile_digest()(
        sender in 0u64..4, reply in any::<bool>(),
        have in proptest::collection::btree_map(0u16..5, (any::<u64>(), any::<u64>()), 0..4),
        walks in proptest::collection::vec((0u16..4, 0u64..9, any::<u32>()), 0..3),
        want in proptest::collection::vec(0u16..6, 0..5),
    ) -> Digest {
        let version = |(epoch, version)| Version { epoch, version };
        let walk = |started, next_slot| DeltaWalk { started, from_slot: 0, next_slot, last: false };
        Digest {
            sender, reply,
            have: have.into_iter().map(|(dc, v)| (DcId(dc).into(), version(v))).collect(),
            walks: walks.into_iter().map(|(dc, started, next)| (DcId(dc).into(), walk(started, next))).collect(),
            want: want.into_iter().map(|dc| DcId(dc).into()).collect(),
            sums: vec![(DcId(0), 1), (DcId(1), 2)],
            ..Digest::default()
        }
    }
}

#[test]
fn a_change_is_everywhere_after_one_flight_and_at_most_one_interval() {
    let mut net = Net::mesh(15, 1, GossipConfig::default());
    net.run_for(Span::from_secs(1));
    net.count(4, 1, 0, 5);
    assert!(net.converge(Span::from_secs(1)) <= Span::from_millis(50));
    net.count(4, 1, 0, 5);
    assert!(net.converge(Span::from_secs(1)) <= Span::from_millis(250));
}

#[test]
fn with_nothing_to_tell_only_rare_digests_are_sent() {
    let mut net = Net::mesh(3, 1, GossipConfig::default());
    net.count_some(30, 10);
    net.run_for(Span::from_secs(60));
    let before = net.bytes;
    net.run_for(Span::from_secs(100));
    // Three pairs, both ways, a digest and its answer every ten seconds.
    assert!(net.bytes - before <= 3 * 2 * 2 * 11 * 100, "{} bytes", net.bytes - before);
}

#[test]
fn a_changed_cell_costs_few_bytes() {
    let mut net = Net::mesh(2, 1, GossipConfig::default());
    (0..10_000).for_each(|key| net.count(0, key, (key % 10) as u8, 100 + u64::from(key)));
    net.converge(Span::from_secs(10));
    net.run_for(Span::from_secs(60));
    let before = net.bytes;
    for key in 0..10_000 {
        *net.sites[0].own.entry((key, (key % 10) as u8)).or_default() += 1;
        net.sites[0].feed(net.now, 0, key, (key % 10) as u8, None);
    }
    net.drain(0);
    net.converge(Span::from_secs(10));
    let per_cell = (net.bytes - before) as f64 / 10_000.0;
    assert!(per_cell <= 6.0, "{per_cell} bytes per changed cell and peer");
    println!("{per_cell:.2} bytes per changed cell and receiving peer, digests included");
}

#[test]
fn the_full_state_of_a_hot_counter_is_small() {
    let mut net = Net::mesh(15, 1, GossipConfig::default());
    net.run_for(Span::from_secs(30));
    for dc in 0..15 {
        net.sites[dc].own.extend((0..10).map(|lane| ((0, lane), 1_000_000_000 / 150)));
        (0..10).for_each(|lane| net.sites[dc].feed(net.now, dc, 0, lane, None));
    }
    net.converge(Span::from_secs(5));
    // A sixteenth site hears of it all from one peer: everything it is sent.
    let mut state = 0;
    for origin in 0..15u16 {
        let cells = &net.sites[0].cells;
        let slot = cells.slot_of_total(0);
        let mut delta = build::empty(1, DcId(origin).into(), 1);
        delta.upto = 1;
        let mut named = peer::Bits::default();
        if origin > 0 {
            named.insert(slot);
        }
        let content = build::Content { slots: vec![slot], ..Default::default() };
        build::fill(cells, &mut delta, content, &named);
        state += wire::encode(&PeerMsg::Delta(delta)).len();
    }
    assert!(state <= 1_500, "{state} bytes");
    println!("{state} bytes of full state");
}

impl Cells {
    fn slot_of_total(&self, key: u32) -> u32 {
        self.table().find(&cell(key)).unwrap()
    }
}

#[test]
fn what_only_one_far_site_remembers_is_told_to_all() {
    let mut net = Net::mesh(3, 5, GossipConfig::default());
    net.count_some(20, 5);
    net.converge(Span::from_secs(10));
    net.cut(1, 2);
    net.cut(0, 2);
    net.link(0, 2);
    // Site 0 counts something that only site 2 hears of, then loses its disk and its group's last words.
    net.cut(0, 1);
    net.count(0, 77, 0, 9);
    net.run_for(Span::from_secs(2));
    net.sites[0].own.remove(&(77, 0));
    net.restart(0, None);
    net.link(0, 1);
    net.run_for(Span::from_secs(5));
    net.link(1, 2);
    net.link(0, 2);
    let all_hold = |net: &Net| {
        let key = (cell(77), ValveId { group: group(0), lane: 0 });
        net.sites.iter().all(|site| site.holds().get(&key) == Some(&9))
    };
    let start = net.now;
    while !all_hold(&net) {
        assert!(net.now - start < Span::from_secs(120), "{:?}", net.summary());
        net.run_for(Span::from_millis(500));
    }
    net.converge(Span::from_secs(60));
}

#[test]
fn a_restart_with_its_disk_tells_only_what_peers_may_lack() {
    let mut net = Net::mesh(2, 5, GossipConfig::default());
    (0..3_000).for_each(|key| net.count(0, key, 0, 1));
    net.converge(Span::from_secs(10));
    net.run_for(Span::from_secs(5));
    let disk = net.checkpoint(0);
    net.count(0, 5, 0, 1);
    net.restart(0, Some(disk));
    let before = net.bytes;
    net.link(0, 1);
    net.converge(Span::from_secs(10));
    net.run_for(Span::from_secs(5));
    assert!(net.bytes - before < 2_000, "{} bytes", net.bytes - before);
}

#[test]
fn a_disk_that_is_an_old_copy_begins_a_new_stream() {
    let mut net = Net::mesh(2, 5, GossipConfig::default());
    net.count_some(20, 5);
    let old = net.checkpoint(0);
    net.count_some(20, 5);
    net.run_for(Span::from_secs(5));
    net.restart(0, Some(old.clone()));
    net.link(0, 1);
    net.count_some(20, 5);
    net.run_for(Span::from_secs(5));
    net.restart(0, Some(old));
    net.link(0, 1);
    net.count_some(20, 5);
    net.converge(Span::from_secs(60));
}

/// No later life gives out versions that an earlier life gave out, even if the disk knows nothing of that life. Peers are told
/// the changes that they lack at once, without a repair that tells them everything.
#[test]
fn a_life_on_an_old_copy_gives_out_versions_above_those_of_every_earlier_life() {
    let mut net = Net::mesh(3, 5, GossipConfig::default());
    (0..3_000).for_each(|key| net.count(0, key, 0, 1));
    net.converge(Span::from_secs(10));
    net.run_for(Span::from_secs(5));
    let old = net.checkpoint(0);
    let count_below = |net: &mut Net, key: u32| (key - 20..key).for_each(|key| net.count(0, key, 0, 1));
    for life in 0..4 {
        // The smallest changes are fed first: changes that peers lack get the versions that the life before gave to changes that
        // they have.
        net.restart(0, Some(old.clone()));
        let before = net.bytes;
        (1..3).for_each(|peer| net.link(0, peer));
        net.converge(Span::from_secs(3));
        net.run_for(Span::from_secs(1));
        count_below(&mut net, 2_000 - 100 * life);
        net.converge(Span::from_secs(3));
        net.run_for(Span::from_secs(60));
        assert!(net.bytes - before < 20_000, "{} bytes in life {life}: {:?}", net.bytes - before, net.summary());
        (1..3).for_each(|peer| net.cut(0, peer));
        count_below(&mut net, 1_950 - 100 * life);
    }
}

/// Counters end and others come, on links that lose, double and reorder; slots are given to new cells at once.
fn run_with_ends(seed: u64) -> usize {
    const ALIVE: u32 = 12;
    let mut net = Net::mesh(3, seed, small());
    net.rows = seed.is_multiple_of(2);
    net.loss_per_100 = 15;
    let mut first = 0;
    for _ in 0..60 {
        for _ in 0..6 {
            let dc = net.dice.below(3) as usize;
            let key = first + net.dice.below(ALIVE.into()) as u32;
            let lane = net.dice.below(3) as u8;
            net.count(dc, key, lane, 1);
        }
        let span = Span(net.dice.below(300_000));
        net.run_for(span);
        if net.dice.below(2) == 0 {
            net.over.push(first);
            first += 1;
        }
        let dc = net.dice.below(3) as usize;
        let upto = net.over.len();
        match net.dice.below(8) {
            0 => {
                let disk = net.checkpoint(dc);
                net.restart(dc, Some(disk));
                let others = (0..3).filter(|&other| other != dc).collect::<Vec<_>>();
                others.into_iter().for_each(|other| net.link(dc.min(other), dc.max(other)));
            }
            1..5 => net.hear_over(dc, upto),
            _ => net.free(dc),
        }
    }
    net.loss_per_100 = 0;
    (0..3).for_each(|dc| net.hear_over(dc, net.over.len()));
    net.converge(Span::from_secs(120));
    let valve = |dc, lane| ValveId { group: group(dc), lane };
    let own = net.sites.iter().enumerate().flat_map(|(dc, site)| site.own.iter().map(move |of| (dc, of)));
    let present = own.filter(|(_, ((key, _), _))| !net.over.contains(key));
    let counted = present.map(|(dc, (&(key, lane), &value))| ((cell(key), valve(dc, lane)), value)).collect();
    assert_eq!(net.sites[0].holds(), counted, "nothing more, and nothing of another counter");
    net.sites.iter().map(|site| site.cells.reused_slots().len()).sum()
}

#[test]
fn late_messages_about_an_ended_cell_do_not_count_in_the_next() {
    let taken: Vec<usize> = (0..40).map(run_with_ends).collect();
    assert!(taken.iter().filter(|&&taken| taken > 0).count() > 20, "{taken:?}");
}

/// A copy of a delta comes when its slot has another cell, which the peer knows by name.
fn run_with_late_copy() {
    let mut net = Net::mesh(2, 1, GossipConfig::default());
    net.run_for(Span::from_secs(1));
    net.count(0, 1, 0, 5);
    net.run_for(Span(1));
    let copies: Vec<_> = net.flying.iter().filter(|(_, from, ..)| *from == 0).cloned().collect();
    assert!(!copies.is_empty(), "the first cell is named in one of them");
    net.run_for(Span::from_secs(2));
    net.over.push(1);
    (0..2).for_each(|dc| net.hear_over(dc, 1));
    net.free(0);
    net.count(0, 2, 0, 3);
    assert_eq!(net.sites[0].cells.reused_slots(), [0]);
    net.converge(Span::from_secs(2));
    for (_, from, to, bytes) in copies {
        net.deliver(from, to, &bytes);
    }
    net.count(0, 2, 0, 4);
    net.converge(Span::from_secs(30));
}

#[test]
fn a_late_copy_with_the_name_of_an_ended_cell_does_no_harm() {
    run_with_late_copy();
}

/// The deliberate bugs: peers' numbers go on to mean ended cells, and slots keep their numbers.
#[cfg(feature = "teeth")]
#[test]
fn numbers_of_peers_that_mean_ended_cells_are_noticed() {
    use tidemark_types::teeth::is_shown_by;
    let shown = (0..200).find(|&seed| is_shown_by(Bug::ReferencesKept, || _ = run_with_ends(seed)));
    assert!(shown.is_some());
    assert!(is_shown_by(Bug::TagKept, run_with_late_copy));
}
