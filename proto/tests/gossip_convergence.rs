//! Gossip between aggregators over a network that loses, doubles, delays and reorders messages, cuts links and restarts peers:
//! once it works again, all views are equal to the fed counts. It also measures the cost in bytes.

use proptest::prelude::*;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use tidemark_proto::aggregator::{AggregatorConfig, AggregatorCore, Input, Output, RowError};
use tidemark_proto::counter_order::{CounterOrder, ShardBy};
use tidemark_proto::gossip::GossipConfig;
use tidemark_proto::ids::{CounterName, DcId, GroupId, LogIndex, Start};
use tidemark_proto::ledger::{Ledger, MoveError};
use tidemark_proto::msg::{FeedChunk, FromGroup, PeerMsg};
use tidemark_proto::shards::{Ranges, ShardId};
use tidemark_proto::time::{Span, Time};
use tidemark_proto::wire;

/// The kind of the row that says in which order counters lie.
const ORDER_ROW: u8 = 11;
const STEP: Span = Span::from_millis(50);

struct Dc {
    core: AggregatorCore,
    epoch: u64,
    /// Where its view is cut.
    ranges: Ranges,
    rows: BTreeMap<ShardId, BTreeMap<Vec<u8>, Vec<u8>>>,
    /// The group's components by (slot, lane), and the log index of each slot's last change.
    fed: BTreeMap<(u32, u8), u64>,
    index: u64,
}

struct Net {
    dcs: Vec<Dc>,
    links: Vec<Vec<bool>>,
    flying: Vec<(Time, usize, usize, PeerMsg)>,
    now: Time,
    rng: ChaCha8Rng,
    config: GossipConfig,
    faults: bool,
    delta_bytes: usize,
    digests: usize,
}

fn name(slot: u32) -> CounterName {
    CounterName::new("t", format!("counter/{slot:016}").as_bytes()).unwrap()
}

fn group(dc: usize) -> GroupId {
    GroupId { dc: DcId(dc as u16), group: 0, incarnation: 1 }
}

fn config(dc: usize, epoch: u64, gossip: &GossipConfig, ranges: &Ranges) -> AggregatorConfig {
    let gossip = gossip.clone();
    let ranges = ranges.clone();
    AggregatorConfig { gossip, ranges, ..AggregatorConfig::new(DcId(dc as u16), epoch) }
}

/// Cut at some of the counters.
fn cut_at(slots: impl IntoIterator<Item = u32>) -> Ranges {
    Ranges::of_cuts(slots.into_iter().map(name).collect()).unwrap()
}

/// The same, and whether counters lie by a piece of their keys.
fn laid_at(slots: &[u32], is_laid: bool) -> Ranges {
    let laid = ShardBy { namespace: "t".to_owned(), space: "t".to_owned(), piece: 2 };
    let order = CounterOrder::new(if is_laid { vec![laid] } else { Vec::new() }).unwrap();
    Ranges::of_ordered(slots.iter().copied().map(name).collect(), order).unwrap()
}

impl Net {
    fn new(dcs: usize, seed: u64, config: GossipConfig, linked: impl Fn(usize, usize) -> bool) -> Net {
        Net::cut(dcs, seed, config, |_| Ranges::whole(), linked)
    }

    fn cut(
        dcs: usize,
        seed: u64,
        config: GossipConfig,
        ranges: impl Fn(usize) -> Ranges,
        linked: impl Fn(usize, usize) -> bool,
    ) -> Net {
        let dc = |i| Dc {
            core: AggregatorCore::new(self::config(i, 1, &config, &ranges(i))),
            epoch: 1,
            ranges: ranges(i),
            rows: BTreeMap::new(),
            fed: BTreeMap::new(),
            index: 0,
        };
        let links = (0..dcs).map(|a| (0..dcs).map(|b| a != b && linked(a, b)).collect()).collect();
        let all = (0..dcs).map(dc).collect();
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let mut net = Net {
            dcs: all,
            links,
            flying: vec![],
            now: Time(1),
            rng,
            config,
            faults: false,
            delta_bytes: 0,
            digests: 0,
        };
        (0..dcs).for_each(|dc| net.start(dc));
        net
    }

    fn start(&mut self, dc: usize) {
        self.input(dc, Input::GroupUp { group: group(dc) });
        for other in 0..self.dcs.len() {
            if self.links[dc][other] {
                self.connect(dc, other);
            }
        }
    }

    fn connect(&mut self, a: usize, b: usize) {
        self.flying.retain(|(_, from, to, _)| (*from, *to) != (a, b) && (*from, *to) != (b, a));
        for (here, there) in [(a, b), (b, a)] {
            self.input(here, Input::PeerGone { peer: DcId(there as u16).into() });
            self.input(here, Input::PeerUp { peer: DcId(there as u16).into(), rtt: Span(0) });
        }
    }

    fn input(&mut self, dc: usize, input: Input) {
        self.dcs[dc].core.handle(self.now, input, &Ledger::default());
        while let Some(output) = self.dcs[dc].core.poll_output() {
            match output {
                Output::Peer { peer: to, msg } => self.send(dc, usize::from(to.dc.0), msg),
                Output::Persist { shard, rows } => {
                    let held = self.dcs[dc].rows.entry(shard).or_default();
                    held.extend(rows);
                    held.retain(|_, value| !value.is_empty());
                    self.dcs[dc].core.handle(self.now, Input::Persisted { shard }, &Ledger::default());
                }
                _ => {}
            }
        }
        self.dcs[dc].core.check_invariants();
    }

    fn send(&mut self, from: usize, to: usize, msg: PeerMsg) {
        match &msg {
            PeerMsg::Delta(_) => self.delta_bytes += wire::encode(&msg).len(),
            PeerMsg::Digest(_) => self.digests += 1,
            _ => {}
        }
        let copies = if self.faults { [0, 1, 1, 1, 2][self.rng.random_range(0..5)] } else { 1 };
        for _ in 0..copies {
            let delay = if self.faults { self.rng.random_range(1_000..400_000) } else { 20_000 };
            self.flying.push((self.now + Span(delay), from, to, msg.clone()));
        }
    }

    fn step(&mut self) {
        self.now = self.now + STEP;
        let (due, later) = std::mem::take(&mut self.flying).into_iter().partition(|(at, ..)| *at <= self.now);
        self.flying = later;
        let mut due: Vec<_> = due;
        due.sort_by_key(|(at, ..)| *at);
        for (_, from, to, msg) in due {
            if self.links[from][to] {
                let decoded = wire::decode(&wire::encode(&msg)).expect("what is sent can be read");
                self.input(to, Input::Peer { peer: DcId(from as u16).into(), msg: decoded });
            }
        }
        (0..self.dcs.len()).for_each(|dc| self.input(dc, Input::Tick));
    }

    /// The group of a data centre counted `value` more in a slot.
    fn feed(&mut self, dc: usize, slot: u32, lane: u8, more: u64) {
        let state = &mut self.dcs[dc];
        *state.fed.entry((slot, lane)).or_default() += more;
        let base = LogIndex(state.index);
        state.index += 1;
        let components = vec![(slot, lane, state.fed[&(slot, lane)])];
        self.chunk(dc, base, components);
    }

    /// All slots are named in every chunk: this is no test of the group.
    fn chunk(&mut self, dc: usize, base: LogIndex, components: Vec<(u32, u8, u64)>) {
        let slots = self.dcs[dc].fed.keys().map(|(slot, _)| slot + 1).max().unwrap_or(0);
        let index = LogIndex(self.dcs[dc].index);
        let cells = (0..slots).map(|slot| name(slot).total()).collect();
        let chunk = FeedChunk {
            group: group(dc),
            start: Start { number: 1, nonce: 1 },
            base,
            upto: index,
            walk: None,
            applied: index,
            first_slot: 0,
            cells,
            components,
            ..FeedChunk::default()
        };
        self.input(dc, Input::Group { group: group(dc), msg: FromGroup::Feed(chunk) });
    }

    /// The aggregator starts again, from its rows or from nothing.
    fn restart(&mut self, dc: usize, with_disk: bool) {
        let state = &mut self.dcs[dc];
        state.epoch += 1;
        if !with_disk {
            state.rows.clear();
        }
        let config = config(dc, state.epoch, &self.config, &state.ranges);
        let shards: Vec<ShardId> = state.ranges.iter().map(|range| range.shard).collect();
        let rows = shards.iter().map(|shard| state.rows.get(shard).cloned().unwrap_or_default());
        state.core = AggregatorCore::recover_shards(config, rows).expect("its own rows");
        self.start(dc);
        self.refeed(dc);
    }

    /// The feed from the persisted cursor on; told in full, since merging is maximum.
    fn refeed(&mut self, dc: usize) {
        let components: Vec<_> = self.dcs[dc].fed.iter().map(|(&(slot, lane), &value)| (slot, lane, value)).collect();
        for base in 0..=self.dcs[dc].index {
            self.chunk(dc, LogIndex(base), components.clone());
        }
    }

    fn expected(&self, slot: u32) -> u64 {
        let of = |dc: &Dc| dc.fed.iter().filter(|((at, _), _)| *at == slot).map(|(_, value)| *value).sum::<u64>();
        self.dcs.iter().map(of).sum()
    }

    fn assert_equal(&self, slots: u32) {
        for slot in 0..slots {
            for (i, dc) in self.dcs.iter().enumerate() {
                assert_eq!(dc.core.view().sum_of(&name(slot), 0), self.expected(slot), "slot {slot} at dc {i}");
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Feed(usize, u32, u8, u64),
    Steps(u8),
    Cut(usize, usize),
    Heal(usize, usize),
    Restart(usize, bool),
}

fn act() -> impl Strategy<Value = Act> {
    let dc = 0usize..4;
    prop_oneof![
        10 => (dc.clone(), 0u32..12, 0u8..3, 1u64..1000).prop_map(|(d, s, l, n)| Act::Feed(d, s, l, n)),
        6 => (1u8..20).prop_map(Act::Steps),
        2 => (dc.clone(), dc.clone()).prop_map(|(a, b)| Act::Cut(a, b)),
        2 => (dc.clone(), dc.clone()).prop_map(|(a, b)| Act::Heal(a, b)),
        1 => (dc, any::<bool>()).prop_map(|(d, disk)| Act::Restart(d, disk)),
    ]
}

fn small() -> GossipConfig {
    GossipConfig { delta_bytes_max: 200, window_deltas: 3, ..GossipConfig::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn views_are_equal_once_gossip_has_run(
        seed in any::<u64>(),
        cuts in proptest::collection::btree_set(0u32..12, 0..5),
        acts in proptest::collection::vec(act(), 1..60),
    ) {
        let mut net = Net::cut(4, seed, small(), |_| cut_at(cuts.clone()), |_, _| true);
        net.faults = true;
        for act in acts {
            match act {
                Act::Feed(dc, slot, lane, more) => net.feed(dc, slot, lane, more),
                Act::Steps(steps) => (0..steps).for_each(|_| net.step()),
                Act::Cut(a, b) => (net.links[a][b], net.links[b][a]) = (false, false),
                Act::Heal(a, b) if a != b => {
                    (net.links[a][b], net.links[b][a]) = (true, true);
                    net.connect(a, b);
                }
                Act::Heal(..) => {}
                Act::Restart(dc, disk) => net.restart(dc, disk),
            }
        }
        net.faults = false;
        for (a, b) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
            if !net.links[a][b] {
                (net.links[a][b], net.links[b][a]) = (true, true);
                net.connect(a, b);
            }
        }
        (0..1_000).for_each(|_| net.step());
        net.assert_equal(12);
        net.dcs.iter().for_each(|dc| dc.core.view().check_all());
    }

    /// A chain: the first one's counts reach the last only by being relayed.
    #[test]
    fn components_are_relayed_where_there_is_no_link(seed in any::<u64>(), feeds in proptest::collection::vec((0usize..4, 0u32..9, 1u64..9), 1..40)) {
        let mut net = Net::new(4, seed, small(), |a, b| a.abs_diff(b) == 1);
        for (dc, slot, more) in feeds {
            net.feed(dc, slot, 0, more);
            net.step();
        }
        (0..2_000).for_each(|_| net.step());
        net.assert_equal(9);
    }
}

/// A delta that is lost is told again, also while there is always something newer to tell.
#[test]
fn what_was_lost_is_told_again_however_busy_the_link_is() {
    let mut net = Net::new(2, 1, GossipConfig::default(), |_, _| true);
    (0..40).for_each(|_| net.step());
    net.feed(0, 1, 0, 5);
    for _ in 0..6 {
        net.flying.retain(|(.., msg)| !matches!(msg, PeerMsg::Delta(_)));
        net.step();
    }
    assert_eq!(net.dcs[1].core.view().sum_of(&name(1), 0), 0);
    for _ in 0..600 {
        net.feed(0, 0, 0, 1);
        net.step();
    }
    assert_eq!(net.dcs[1].core.view().sum_of(&name(1), 0), 5);
}

/// A shard of a view with other cuts is a mixture here: nothing is taken from it, and views that are cut alike are not disturbed.
#[test]
fn who_cuts_its_view_elsewhere_is_told_nothing_and_believed_nothing() {
    let ranges = |dc| if dc == 2 { cut_at([2, 7]) } else { cut_at([5]) };
    let mut net =
        Net::cut(4, 1, GossipConfig::default(), |dc| if dc == 3 { Ranges::whole() } else { ranges(dc) }, |_, _| true);
    (0..4).for_each(|dc| (0..10).for_each(|slot| net.feed(dc, slot, 0, 1)));
    for _ in 0..400 {
        net.step();
        // From the first message on.
        let is_told = |(_, from, to, msg): &(Time, usize, usize, PeerMsg)| {
            *from < 3 && (*from == 2 || *to > 1) && !matches!(msg, PeerMsg::Digest(_))
        };
        assert!(!net.flying.iter().any(is_told), "a cut view tells who is cut elsewhere, or has not said where");
    }
    let elsewhere: [Vec<u16>; 4] =
        [0, 1, 2, 3].map(|dc: usize| net.dcs[dc].core.cut_elsewhere().iter().map(|peer| peer.dc.0).collect());
    assert_eq!(elsewhere, [vec![2, 3], vec![2, 3], vec![0, 1, 3], vec![0, 1, 2]]);
    for slot in 0..10 {
        let shown = [0, 1, 2, 3].map(|dc: usize| net.dcs[dc].core.view().sum_of(&name(slot), 0));
        assert_eq!(shown, [2, 2, 1, 1], "slot {slot}");
    }
    assert!(
        net.flying.iter().all(|(_, from, to, msg)| { *from < 2 && *to < 2 || !matches!(msg, PeerMsg::Shard { .. }) })
    );
}

/// Views with one range each, which lie in different orders: nothing is exchanged, since either may be split.
#[test]
fn who_lays_its_counters_otherwise_is_told_nothing_though_nothing_is_cut() {
    let mut net = Net::cut(3, 1, GossipConfig::default(), |dc| laid_at(&[], dc == 2), |_, _| true);
    (0..3).for_each(|dc| (0..10).for_each(|slot| net.feed(dc, slot, 0, 1)));
    (0..400).for_each(|_| net.step());
    let elsewhere: [Vec<u16>; 3] =
        [0, 1, 2].map(|dc: usize| net.dcs[dc].core.cut_elsewhere().iter().map(|peer| peer.dc.0).collect());
    assert_eq!(elsewhere, [vec![2], vec![2], vec![0, 1]]);
    let split = net.dcs[0].core.splitting(ShardId(0), &name(5), &Ledger::default());
    assert_eq!(split, Err(MoveError::CutElsewhere(1)));
    for slot in 0..10 {
        let shown = [0, 1, 2].map(|dc: usize| net.dcs[dc].core.view().sum_of(&name(slot), 0));
        assert_eq!(shown, [2, 2, 1], "slot {slot}");
    }
}

/// Files are made for one order once they are cut; before that the order may change, and back.
#[test]
fn rows_of_a_view_that_is_cut_are_refused_where_counters_lie_otherwise() {
    let net = |cuts: &[u32], is_laid| {
        let mut net = Net::cut(2, 1, GossipConfig::default(), |_| laid_at(cuts, is_laid), |_, _| true);
        (0..2).for_each(|dc| (0..9).for_each(|slot| net.feed(dc, slot, 0, 1)));
        (0..400).for_each(|_| net.step());
        net
    };
    let text = |is_laid| laid_at(&[], is_laid).order().to_string();
    for is_laid in [false, true] {
        let rows = net(&[3, 6], is_laid).dcs[0].rows.clone();
        let read = |is_laid| {
            let config = config(0, 9, &GossipConfig::default(), &laid_at(&[3, 6], is_laid));
            AggregatorCore::recover_shards(config, rows.values().cloned()).map(|core| core.view().shards().len())
        };
        assert_eq!(read(is_laid), Ok(3));
        assert_eq!(read(!is_laid), Err(RowError::Order { disk: text(is_laid), asked: text(!is_laid) }));
    }
    let mut net = net(&[], false);
    for is_laid in [true, false, true] {
        net.dcs[0].ranges = laid_at(&[], is_laid);
        net.restart(0, true);
        (0..400).for_each(|_| net.step());
        let rows = &net.dcs[0].rows[&ShardId(0)];
        assert_eq!(rows.contains_key(&vec![ORDER_ROW]), is_laid);
    }
}

/// A file of one shard that is lost is filled again, by the groups and by others; one of a view that is cut elsewhere is refused.
#[test]
fn a_shard_comes_back_by_itself_and_rows_of_another_cut_are_refused() {
    let mut net = Net::cut(2, 1, GossipConfig::default(), |_| cut_at([3, 6]), |_, _| true);
    (0..2).for_each(|dc| (0..9).for_each(|slot| net.feed(dc, slot, 0, 1)));
    (0..400).for_each(|_| net.step());
    net.assert_equal(9);
    let rows = net.dcs[0].rows.clone();
    assert_eq!(rows.keys().map(|shard| shard.0).collect::<Vec<_>>(), [0, 1, 2]);
    net.dcs[0].rows.remove(&ShardId(1));
    net.restart(0, true);
    assert_eq!(net.dcs[0].core.feed_lags(net.now).count(), 1);
    (0..400).for_each(|_| net.step());
    net.assert_equal(9);
    let read = |ranges: Ranges| {
        let config = config(0, 9, &GossipConfig::default(), &ranges);
        AggregatorCore::recover_shards(config, rows.values().cloned()).map(|core| core.view().shards().len())
    };
    assert_eq!(read(cut_at([3, 6])), Ok(3));
    let cut = |disk: &str, asked: &str| RowError::Cut { disk: disk.to_owned(), asked: asked.to_owned() };
    let at = |slot| name(slot).to_string();
    let here = [at(3), at(6)].join(", ");
    for other in [[3, 7], [2, 6], [1, 2]] {
        assert_eq!(read(cut_at(other)), Err(cut(&here, &other.map(at).join(", "))));
    }
    assert_eq!(read(Ranges::whole()), Err(cut(&here, "no counter")));
    let uncut = AggregatorCore::recover(config(1, 9, &GossipConfig::default(), &Ranges::whole()), BTreeMap::new());
    assert!(uncut.is_ok());
}

/// A machine is lost with the group's disk and the aggregator's: others still know the counts that the group had told.
#[test]
fn a_data_centre_that_lost_everything_learns_its_own_past() {
    let mut net = Net::new(3, 1, GossipConfig::default(), |_, _| true);
    net.feed(0, 1, 0, 5);
    (0..100).for_each(|_| net.step());
    assert_eq!(net.dcs[1].core.view().sum_of(&name(1), 0), 5);
    net.dcs[0].fed.clear();
    net.restart(0, false);
    (0..1_000).for_each(|_| net.step());
    assert_eq!(net.dcs[0].core.view().sum_of(&name(1), 0), 5);
}

/// A round in which 10,000 cells changed costs at most 12 bytes per cell and receiving peer, once the names are known.
#[test]
fn a_changed_cell_costs_few_bytes() {
    const CELLS: u32 = 10_000;
    let mut net = Net::new(2, 1, GossipConfig::default(), |_, _| true);
    let mut bytes = 0;
    for round in 0..2u64 {
        net.dcs[0].fed = (0..CELLS).map(|slot| ((slot, (slot % 10) as u8), 1 + round * 50)).collect();
        let base = LogIndex(net.dcs[0].index);
        net.dcs[0].index += 1;
        let components = net.dcs[0].fed.iter().map(|(&(slot, lane), &value)| (slot, lane, value)).collect();
        net.delta_bytes = 0;
        net.chunk(0, base, components);
        (0..40).for_each(|_| net.step());
        bytes = net.delta_bytes;
    }
    net.assert_equal(100);
    let per_cell = bytes as f64 / f64::from(CELLS);
    assert!(per_cell <= 6.0, "{per_cell} bytes per changed cell");
}

/// With nothing to tell, peers exchange digests ever more rarely and nothing else.
#[test]
fn silence_is_cheap() {
    let mut net = Net::new(3, 1, GossipConfig::default(), |_, _| true);
    net.feed(0, 0, 0, 1);
    (0..1_200).for_each(|_| net.step());
    net.delta_bytes = 0;
    let before = net.now;
    let mut messages = 0;
    while net.now < before + Span::from_secs(60) {
        net.step();
        messages += net.flying.len();
    }
    assert_eq!(net.delta_bytes, 0);
    assert!(messages <= 3 * 2 * 7 * 2, "{messages} messages in a silent minute between three peers");
}

#[test]
fn where_nothing_is_new_little_is_said() {
    let mut net = Net::new(15, 1, GossipConfig::default(), |_, _| true);
    (0..15).for_each(|dc| net.feed(dc, 0, 0, 1));
    (0..600).for_each(|_| net.step());
    let before = net.digests;
    (0..1_200).for_each(|_| net.step());
    let pairs = 15 * 14 / 2;
    let intervals = 60 / 20;
    let said = net.digests - before;
    assert!(said <= pairs * (intervals + 1) * 2, "a digest and its answer per pair and interval: {said}");
}
