//! Totals of views against brute force: equal to a recount under any order of increments, edge changes, steps, restarts and
//! resets. They are so for any ranges of counters, and for the share of each range by itself.

#![allow(clippy::disallowed_types, reason = "a disk beside the machine, which it writes itself")]

use proptest::prelude::*;
use proptest::sample::Index;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use tidemark_proto::graph::{Edge, EdgeChange};
use tidemark_proto::ids::{CellId, CounterName, Half, LogIndex};
use tidemark_proto::ledger::{EdgeAuthor, Ledger};
use tidemark_proto::limits::{EDGE_CHANGES_PER_COMMAND_MAX, EDGE_CHANGES_QUEUED_MAX};
use tidemark_proto::msg::LedgerCmd;
use tidemark_proto::series::{
    BucketId, Granularity, Horizon, Kept, OutOfRange, Retention, Row, SeriesPolicy, SeriesState, UnixTime,
};
use tidemark_proto::shards::{Ranges, ShardId};
use tidemark_proto::table::CellTable;
use tidemark_proto::view::hierarchy::{DirectCounts, HeldSums, Hierarchy};
use tidemark_proto::view::{Budget, Shelf};

/// Counters of namespaces "a" and "b"; counts of "a" may flow to "b".
const COUNTERS: usize = 9;
const OF_A: usize = 6;
const VALVES: u8 = 2;
const BEGIN_S: i64 = 1_700_000_000;
const HALVES: [Half; 2] = [Half::Up, Half::Down];

fn counter(number: usize) -> CounterName {
    let namespace = if number < OF_A { "a" } else { "b" };
    CounterName::new(namespace, &[b'0' + number as u8]).unwrap()
}

fn edge(from: usize, to: usize) -> Edge<CounterName> {
    Edge { from: counter(from), to: counter(to) }
}

fn at(seconds: u64) -> UnixTime {
    UnixTime::from_s(BEGIN_S).unwrap().plus(seconds)
}

/// Where counters are cut into ranges: at some of them.
fn cuts() -> impl Strategy<Value = Vec<CounterName>> {
    proptest::collection::btree_set(0..COUNTERS, 0..6).prop_map(|cuts| cuts.into_iter().map(counter).collect())
}

fn policy(kept: &[(Granularity, u64)]) -> SeriesPolicy {
    let kept = kept.iter().map(|&(granularity, ttl_s)| Kept { granularity, ttl_s }).collect();
    SeriesPolicy::new(Retention::new(kept).unwrap(), 0, 3_600, OutOfRange::TotalOnly).unwrap()
}

/// Two policies of "a", the second with fewer granularities. "b" keeps days, and hours longer than "a".
fn policies() -> [SeriesPolicy; 3] {
    let minute = Granularity::MINUTE;
    let hour = Granularity::HOUR;
    let day = Granularity::DAY;
    [policy(&[(minute, 600), (hour, 7_200)]), policy(&[(hour, 7_200)]), policy(&[(hour, 36_000), (day, 864_000)])]
}

/// Direct counts of a view: a sum and the rows of each cell, by shard.
#[derive(Clone)]
struct Direct {
    ranges: Ranges,
    cells: Vec<CellTable>,
    components: BTreeMap<(ShardId, u32, u8), (u64, Row)>,
    now: UnixTime,
}

impl Direct {
    fn new(ranges: Ranges) -> Direct {
        let cells = ranges.iter().map(|_| CellTable::default()).collect();
        Direct { ranges, cells, components: BTreeMap::new(), now: at(0) }
    }

    fn find_half(&self, counter: &CounterName, half: Half, generation: u32) -> Option<(ShardId, u32)> {
        let shard = self.ranges.find(counter);
        Some((shard, self.table(shard).find_half(counter, half, generation)?))
    }
}

impl DirectCounts for Direct {
    fn table(&self, shard: ShardId) -> &CellTable {
        &self.cells[usize::from(shard.0)]
    }

    fn sum(&self, shard: ShardId, slot: u32) -> u64 {
        let of_slot = self.components.range((shard, slot, 0)..=(shard, slot, u8::MAX));
        of_slot.map(|(_, (count, _))| count).sum()
    }

    fn rows(&self, shard: ShardId, slot: u32) -> impl Iterator<Item = Cow<'_, Row>> + '_ {
        let of_slot = self.components.range((shard, slot, 0)..=(shard, slot, u8::MAX));
        of_slot.map(|(_, (_, row))| Cow::Borrowed(row))
    }

    fn now_and_bytes(&self) -> (UnixTime, usize) {
        (self.now, 0)
    }
}

/// Old buckets of totals.
#[derive(Debug, Default)]
struct Totals(Mutex<BTreeMap<u32, Vec<u8>>>);

impl Shelf for Totals {
    fn read(&self, _: ShardId, _: u32) -> Option<Vec<u8>> {
        unreachable!("rows are in memory")
    }

    fn scan(&self, _: ShardId, _: &mut dyn FnMut(u32, &[u8])) {
        unreachable!("rows are in memory")
    }

    fn read_total(&self, number: u32) -> Option<Vec<u8>> {
        self.0.lock().unwrap().get(&number).cloned()
    }

    fn write_total(&self, number: u32, value: Option<&[u8]>) -> bool {
        let mut totals = self.0.lock().unwrap();
        match value {
            Some(value) => drop(totals.insert(number, value.to_vec())),
            None => drop(totals.remove(&number)),
        }
        true
    }
}

struct OneView {
    /// As far as it was applied here.
    ledger: Ledger,
    applied: usize,
    now: UnixTime,
    horizons: BTreeMap<&'static str, (SeriesPolicy, Horizon)>,
    direct: Direct,
    cuts: Vec<CounterName>,
    shelf: Arc<Totals>,
    hierarchy: Hierarchy,
}

fn cut(cuts: &[CounterName], shelf: &Arc<Totals>) -> Hierarchy {
    let mut hierarchy = Hierarchy::with_ranges(Ranges::of_cuts(cuts.to_vec()).unwrap());
    hierarchy.keep_within(&Budget { bytes_max: 0, after_s: 60, shelf: shelf.clone() });
    hierarchy
}

fn fresh(policy: &SeriesPolicy) -> Horizon {
    SeriesState::new(policy.clone(), at(0)).horizon().clone()
}

impl OneView {
    fn new(cuts: Vec<CounterName>) -> OneView {
        let [a, _, b] = policies();
        let horizons = BTreeMap::from([("a", (a.clone(), fresh(&a))), ("b", (b.clone(), fresh(&b)))]);
        let direct = Direct::new(Ranges::of_cuts(cuts.clone()).unwrap());
        let ledger = Ledger::default();
        let shelf = Arc::new(Totals::default());
        let hierarchy = cut(&cuts, &shelf);
        let mut view = OneView { ledger, applied: 0, now: at(0), horizons, direct, cuts, shelf, hierarchy };
        view.tell_horizons();
        view
    }

    fn tell_horizons(&mut self) {
        for (namespace, (_, horizon)) in &self.horizons {
            self.hierarchy.on_horizon(namespace, horizon, &self.ledger);
        }
    }

    fn advance(&mut self, now: UnixTime) {
        self.now = self.now.max(now);
        self.direct.now = self.now;
        for (policy, horizon) in self.horizons.values_mut() {
            horizon.advance(policy, self.now);
        }
        self.tell_horizons();
    }

    fn change_policy(&mut self, policy: &SeriesPolicy) {
        let (of_a, horizon) = self.horizons.get_mut("a").unwrap();
        *of_a = policy.clone();
        horizon.change(policy, self.now);
        self.tell_horizons();
    }

    /// A component and its row as a valve told them.
    fn hear(&mut self, cell: &CellId, valve: u8, count: u64, row: &Row) {
        let shard = self.direct.ranges.find(&cell.counter);
        let slot = self.direct.cells[usize::from(shard.0)].intern(cell).unwrap();
        let (held, held_row) = self.direct.components.entry((shard, slot, valve)).or_default();
        if count > *held {
            let by = count - *held;
            *held = count;
            self.hierarchy.on_raised(shard, slot, by);
        }
        let mut raised: Vec<(BucketId, u64)> = Vec::new();
        let horizon = &self.horizons[cell.counter.namespace()].1;
        held_row.merge_with(row, horizon, |bucket, by| raised.push((bucket, by)));
        self.hierarchy.on_row_raised(shard, slot, &raised);
    }

    fn expire(&mut self) {
        for ((shard, slot, _), (_, row)) in &mut self.direct.components {
            let name = self.direct.cells[usize::from(shard.0)].name(*slot);
            row.expire(&self.horizons[name.counter.namespace()].1);
        }
    }

    fn tell(&mut self) {
        let changes = self.ledger.take_changes();
        self.hierarchy.on_ledger(&changes, &self.ledger, &self.direct);
    }

    fn settle(&mut self, budget: usize) {
        self.tell();
        while self.hierarchy.step(budget, &self.ledger, &self.direct) {
            self.hierarchy.check_invariants();
        }
        let progress = self.hierarchy.progress();
        assert_eq!((progress.index, progress.waiting), (self.ledger.graph().index(), 0));
        assert!(!progress.compares && progress.pairs == 0);
    }

    fn restart(&mut self) {
        self.shelf = Arc::default();
        self.hierarchy = cut(&self.cuts, &self.shelf);
        self.tell_horizons();
        self.hierarchy.recount(&self.ledger, &self.direct);
    }

    /// The kept buckets of totals: "b" keeps no more than "a", because counts of "a" flow there.
    fn kept(&self, namespace: &str) -> Horizon {
        let mut horizon = self.horizons[namespace].1.clone();
        if namespace == "b" {
            horizon.merge(&self.horizons["a"].1);
        }
        horizon
    }

    /// The range of a counter.
    fn shard_of(&self, name: &CounterName) -> ShardId {
        ShardId(self.cuts.iter().filter(|&cut| cut <= name).count() as u16)
    }

    /// The inherited counts of counters from each range.
    fn shown(&self) -> BTreeMap<(CounterName, ShardId), Plain> {
        let mut all = BTreeMap::new();
        for name in (0..COUNTERS).map(counter) {
            let kept = self.kept(name.namespace());
            assert_eq!(self.hierarchy.horizon(name.namespace()).map(Horizon::first), Some(kept.first()));
            for (shard, sums) in self.hierarchy.inherited(&name, &self.ledger) {
                let plain = Plain::of(sums);
                assert!(plain.buckets.keys().all(|&(_, bucket)| kept.keeps(bucket)), "what has expired is gone");
                assert!(all.insert((name.clone(), shard), plain).is_none(), "a share of {name} twice");
            }
        }
        all.retain(|_, plain| *plain != Plain::default());
        all
    }

    fn recounted(&self) -> BTreeMap<(CounterName, ShardId), Plain> {
        let graph = self.ledger.graph();
        let mut all: BTreeMap<(CounterName, ShardId), Plain> = BTreeMap::new();
        for to in (0..COUNTERS).map(counter) {
            let mut ancestors = BTreeSet::new();
            let mut open = vec![to.clone()];
            while let Some(name) = open.pop() {
                open.extend(graph.parents(&name).filter(|parent| ancestors.insert(parent.clone())));
            }
            for from in ancestors {
                let share = all.entry((to.clone(), self.shard_of(&from))).or_default();
                share.add(self, &from, &self.kept(to.namespace()));
            }
        }
        all.retain(|_, plain| *plain != Plain::default());
        all
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Plain {
    counts: BTreeMap<bool, u64>,
    buckets: BTreeMap<(bool, BucketId), u64>,
}

impl Plain {
    fn of(sums: HeldSums<'_>) -> Plain {
        let mut plain = Plain::default();
        for half in HALVES {
            let is_down = half == Half::Down;
            plain.counts.insert(is_down, sums.count(half));
            let buckets = sums.buckets(half);
            plain.buckets.extend(buckets.whole().buckets().map(|(bucket, sum)| ((is_down, bucket), sum)));
        }
        plain.counts.retain(|_, count| *count > 0);
        plain
    }

    fn add(&mut self, view: &OneView, from: &CounterName, kept: &Horizon) {
        let own = &view.horizons[from.namespace()].1;
        for half in HALVES {
            let is_down = half == Half::Down;
            let generation = view.ledger.resets().generation(from);
            let Some((shard, slot)) = view.direct.find_half(from, half, generation) else { continue };
            if view.direct.sum(shard, slot) > 0 {
                *self.counts.entry(is_down).or_default() += view.direct.sum(shard, slot);
            }
            for row in view.direct.rows(shard, slot) {
                for (bucket, value) in row.buckets().filter(|&(bucket, _)| own.keeps(bucket) && kept.keeps(bucket)) {
                    *self.buckets.entry((is_down, bucket)).or_default() += value;
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Edges(Vec<(bool, usize, usize)>),
    Reset(usize),
    Count {
        counter: usize,
        half: usize,
        valve: u8,
        back_s: u64,
        delta: u64,
        old: bool,
    },
    Hear {
        view: usize,
        which: Index,
    },
    Apply {
        view: usize,
    },
    Tell {
        view: usize,
    },
    Snapshot {
        view: usize,
    },
    Work {
        view: usize,
        budget: usize,
    },
    Settle {
        view: usize,
        budget: usize,
    },
    Restart {
        view: usize,
    },
    Advance {
        view: usize,
        seconds: u64,
    },
    Expire {
        view: usize,
    },
    Policy {
        which: usize,
    },
    /// Old buckets are to leave memory.
    Leave {
        view: usize,
        bytes: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let view = || 0..2usize;
    let changes = proptest::collection::vec((prop::bool::weighted(0.75), 0..COUNTERS, 0..COUNTERS), 1..4);
    let count = (0..COUNTERS, 0..2usize, 0..VALVES, 0u64..9_000, 1u64..100, prop::bool::weighted(0.2));
    let step = prop_oneof![
        8 => changes.prop_map(Step::Edges),
        1 => (0..COUNTERS).prop_map(Step::Reset),
        9 => count.prop_map(|(counter, half, valve, back_s, delta, old)| Step::Count { counter, half, valve, back_s, delta, old }),
        12 => (view(), any::<Index>()).prop_map(|(view, which)| Step::Hear { view, which }),
        8 => view().prop_map(|view| Step::Apply { view }),
        4 => view().prop_map(|view| Step::Tell { view }),
        1 => view().prop_map(|view| Step::Snapshot { view }),
        9 => (view(), 1usize..8).prop_map(|(view, budget)| Step::Work { view, budget }),
        2 => (view(), 1usize..40).prop_map(|(view, budget)| Step::Settle { view, budget }),
        1 => view().prop_map(|view| Step::Restart { view }),
        1 => (view(), 0u64..4_000).prop_map(|(view, seconds)| Step::Advance { view, seconds }),
        1 => view().prop_map(|view| Step::Expire { view }),
        1 => (0..2usize).prop_map(|which| Step::Policy { which }),
        4 => (view(), prop_oneof![1usize..100, Just(usize::MAX)]).prop_map(|(view, bytes)| Step::Leave { view, bytes }),
    ];
    proptest::collection::vec(step, 1..160)
}

struct World {
    ledger: Ledger,
    log: Vec<LedgerCmd>,
    /// The counts of valves.
    counted: BTreeMap<(CellId, u8), (u64, Row)>,
    views: [OneView; 2],
    now: UnixTime,
}

impl World {
    fn new(cuts: &[CounterName]) -> World {
        let views = [OneView::new(cuts.to_vec()), OneView::new(cuts.to_vec())];
        let mut world =
            World { ledger: Ledger::default(), log: Vec::new(), counted: BTreeMap::new(), views, now: at(0) };
        for name in ["a", "b"] {
            world.append(LedgerCmd::Namespace(name.into()));
        }
        let allowing = world.ledger.allowing_edges("a", "b").unwrap().unwrap();
        world.append(allowing);
        for view in 0..2 {
            while world.apply(view) {}
            world.views[view].tell();
        }
        world
    }

    fn append(&mut self, cmd: LedgerCmd) {
        self.ledger.apply(LogIndex(self.log.len() as u64 + 1), &cmd);
        self.ledger.take_changes();
        self.log.push(cmd);
    }

    fn apply(&mut self, view: usize) -> bool {
        let view = &mut self.views[view];
        let Some(cmd) = self.log.get(view.applied) else { return false };
        view.applied += 1;
        view.ledger.apply(LogIndex(view.applied as u64), cmd);
        true
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Edges(ref changes) => self.change(changes),
            Step::Reset(number) => {
                let cmd = self.ledger.reset(&counter(number), true, true).unwrap();
                self.append(cmd);
            }
            Step::Count { counter: number, half, valve, back_s, delta, old } => {
                let name = counter(number);
                let generation = self.ledger.resets().generation(&name).saturating_sub(u32::from(old));
                let cell = name.half_of(HALVES[half], generation);
                let [a, _, b] = policies();
                let policy = if number < OF_A { a } else { b };
                let mut horizon = fresh(&policy);
                horizon.advance(&policy, self.now);
                let (count, row) = self.counted.entry((cell, valve)).or_default();
                *count += delta;
                row.add(&horizon, self.now.minus(back_s), delta).unwrap();
            }
            Step::Hear { view, which } if !self.counted.is_empty() => {
                let ((cell, valve), (count, row)) = self.counted.iter().nth(which.index(self.counted.len())).unwrap();
                self.views[view].hear(cell, *valve, *count, row);
            }
            Step::Hear { .. } => {}
            Step::Apply { view } => drop(self.apply(view)),
            Step::Snapshot { view } => {
                let replica = &mut self.views[view];
                replica.ledger.replace(self.ledger.clone());
                replica.applied = self.log.len();
            }
            Step::Advance { view, seconds } => {
                self.now = self.now.plus(seconds);
                self.views[view].advance(self.now);
            }
            Step::Policy { which } => self.views.iter_mut().for_each(|view| view.change_policy(&policies()[which])),
            Step::Tell { view }
            | Step::Work { view, .. }
            | Step::Settle { view, .. }
            | Step::Restart { view }
            | Step::Expire { view }
            | Step::Leave { view, .. } => self.views[view].step(step),
        }
    }

    fn change(&mut self, changes: &[(bool, usize, usize)]) {
        let change = |&(inserts, from, to): &(bool, usize, usize)| {
            if inserts { EdgeChange::Insert(edge(from, to)) } else { EdgeChange::Remove(edge(from, to)) }
        };
        let changes = changes.iter().map(change).collect();
        if let Ok(Some(cmd)) = self.ledger.edges(changes, EdgeAuthor::alone("who", &self.ledger), true) {
            self.append(cmd);
        }
    }
}

impl OneView {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Tell { .. } => self.tell(),
            Step::Work { budget, .. } => drop(self.hierarchy.step(budget, &self.ledger, &self.direct)),
            Step::Settle { budget, .. } => {
                self.settle(budget);
                assert_eq!(self.shown(), self.recounted());
            }
            Step::Restart { .. } => {
                self.restart();
                assert_eq!(self.shown(), self.recounted());
            }
            Step::Expire { .. } => self.expire(),
            Step::Leave { bytes, .. } => drop(self.hierarchy.begin_leaving(bytes, self.now)),
            _ => {}
        }
        self.hierarchy.check_invariants();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn totals_of_views_equal_a_recount_whatever_is_interleaved(cuts in cuts(), steps in steps()) {
        let mut world = World::new(&cuts);
        steps.iter().for_each(|step| world.step(step));
        for view in 0..2 {
            while world.apply(view) {}
            let now = world.now;
            world.views[view].advance(now);
            for ((cell, valve), (count, row)) in world.counted.iter().rev() {
                world.views[view].hear(cell, *valve, *count, row);
            }
            world.views[view].step(&Step::Settle { view, budget: 5 });
            world.views[view].step(&Step::Leave { view, bytes: usize::MAX });
            world.views[view].step(&Step::Settle { view, budget: 5 });
            let hierarchy = &world.views[view].hierarchy;
            let shelf = &world.views[view].shelf;
            prop_assert_eq!(hierarchy.shelved(), shelf.0.lock().unwrap().len());
        }
        let [first, second] = &world.views;
        let kept_alike = first.horizons == second.horizons;
        prop_assert!(!kept_alike || first.shown() == second.shown(), "two views that have heard the same show the same");
    }
}

/// A view with its ledger, all told at once.
struct Small(OneView, u64);

impl Small {
    fn new() -> Small {
        Small::cut(&[])
    }

    fn cut(cuts: &[usize]) -> Small {
        let mut small = Small(OneView::new(cuts.iter().copied().map(counter).collect()), 0);
        small.apply(&LedgerCmd::Namespace("a".into()));
        small
    }

    fn apply(&mut self, cmd: &LedgerCmd) {
        self.1 += 1;
        self.0.ledger.apply(LogIndex(self.1), cmd);
    }

    fn change(&mut self, changes: Vec<EdgeChange<CounterName>>) {
        let cmd = self.0.ledger.edges(changes, EdgeAuthor::alone("who", &self.0.ledger), false).unwrap().unwrap();
        self.apply(&cmd);
        self.0.settle(100);
    }

    fn insert(&mut self, edges: &[(usize, usize)]) {
        self.change(edges.iter().map(|&(from, to)| EdgeChange::Insert(edge(from, to))).collect());
    }

    fn remove(&mut self, from: usize, to: usize) {
        self.change(vec![EdgeChange::Remove(edge(from, to))]);
    }

    fn count(&mut self, number: usize, count: u64) {
        let mut row = Row::default();
        row.add(&self.0.horizons["a"].1, at(60), count).unwrap();
        self.0.hear(&counter(number).total(), 0, count, &row);
        self.0.settle(100);
    }

    /// The inherited counts of counters, in all and in the one hour.
    fn inherited(&self, numbers: &[usize]) -> Vec<(u64, u64)> {
        let one = |number: &usize| {
            let shares = self.0.hierarchy.inherited(&counter(*number), &self.0.ledger);
            shares.fold((0, 0), |(count, minutes), (_, share)| {
                let of_minutes = share.buckets(Half::Up).sum(Granularity::MINUTE, 0..u32::MAX);
                (count + share.count(Half::Up), minutes + of_minutes)
            })
        };
        numbers.iter().map(one).collect()
    }
}

/// 0 → 1, and 2 → 3: joined in the middle, the count of 0 reaches 3 as well.
#[test]
fn a_chain_carries_counts_to_its_end() {
    let mut small = Small::new();
    small.insert(&[(0, 1), (2, 3)]);
    (0..4).for_each(|number| small.count(number, 10u64.pow(number as u32)));
    assert_eq!(small.inherited(&[0, 1, 2, 3]), [(0, 0), (1, 1), (0, 0), (100, 100)]);
    small.insert(&[(1, 2)]);
    assert_eq!(small.inherited(&[1, 2, 3]), [(1, 1), (11, 11), (111, 111)]);
    small.count(0, 5);
    assert_eq!(small.inherited(&[1, 2, 3]), [(5, 5), (15, 15), (115, 115)]);
    small.remove(1, 2);
    assert_eq!(small.inherited(&[1, 2, 3]), [(5, 5), (0, 0), (100, 100)]);
}

/// 0 → 1 → 3, and 0 → 2: with 2 → 3 the count of 0 reaches 3 a second time, and is not added again.
#[test]
fn a_diamond_that_is_reached_twice_counts_once() {
    let mut small = Small::new();
    small.insert(&[(0, 1), (1, 3), (0, 2)]);
    (0..3).for_each(|number| small.count(number, 10u64.pow(number as u32)));
    assert_eq!(small.inherited(&[3]), [(11, 11)]);
    small.insert(&[(2, 3)]);
    assert_eq!(small.inherited(&[3]), [(111, 111)]);
    small.count(0, 4);
    assert_eq!(small.inherited(&[1, 2, 3]), [(4, 4), (4, 4), (114, 114)]);
    small.0.restart();
    assert_eq!(small.inherited(&[1, 2, 3]), [(4, 4), (4, 4), (114, 114)]);
}

/// One side of the diamond is taken away: the count of 0 still flows over the other one, and stays.
#[test]
fn a_removed_edge_takes_nothing_that_another_path_carries() {
    let mut small = Small::new();
    small.insert(&[(0, 1), (1, 3), (0, 2), (2, 3)]);
    (0..3).for_each(|number| small.count(number, 10u64.pow(number as u32)));
    small.remove(2, 3);
    assert_eq!(small.inherited(&[3]), [(11, 11)]);
    small.remove(1, 3);
    assert_eq!(small.inherited(&[3]), [(0, 0)]);
}

#[test]
fn a_counter_that_begins_again_takes_back_what_it_gave() {
    let mut small = Small::new();
    small.insert(&[(0, 1), (1, 2)]);
    (0..2).for_each(|number| small.count(number, 7));
    // Its group heard of the reset earlier than this view.
    let cell = counter(0).total_of(1);
    small.0.hear(&cell, 0, 3, &Row::default());
    small.0.settle(10);
    assert_eq!(small.inherited(&[1, 2]), [(7, 7), (14, 14)]);
    let reset = small.0.ledger.reset(&counter(0), false, true).unwrap();
    small.apply(&reset);
    small.0.settle(10);
    assert_eq!(small.inherited(&[1, 2]), [(3, 0), (10, 7)]);
    small.count(0, 50);
    assert_eq!(small.inherited(&[1, 2]), [(3, 0), (10, 7)], "what comes late of what is over is nobody's");
    small.0.hear(&cell, 1, 4, &Row::default());
    assert_eq!(small.inherited(&[1, 2]), [(7, 0), (14, 7)]);
}

/// 0, 1 and 2 are three ranges; 0 → 2, 1 → 2 and 2 → 3.
#[test]
fn a_total_has_a_share_of_each_range_that_flows_to_it() {
    let mut small = Small::cut(&[1, 2]);
    (0..3).for_each(|number| small.count(number, 10u64.pow(number as u32)));
    small.insert(&[(0, 2), (1, 2), (2, 3)]);
    let shares = |small: &Small, number| -> Vec<(u16, u64)> {
        let all = small.0.hierarchy.inherited(&counter(number), &small.0.ledger);
        all.map(|(shard, share)| (shard.0, share.count(Half::Up))).collect()
    };
    assert_eq!(shares(&small, 2), [(0, 1), (1, 10)]);
    assert_eq!(shares(&small, 3), [(0, 1), (1, 10), (2, 100)]);
    let held = |small: &Small| [0, 1, 2, 3].map(|shard| small.0.hierarchy.held(ShardId(shard)).totals);
    assert_eq!(held(&small), [2, 2, 1, 0]);
    small.count(1, 15);
    small.remove(0, 2);
    assert_eq!(shares(&small, 3), [(0, 0), (1, 15), (2, 100)]);
    small.0.restart();
    assert_eq!(shares(&small, 3), [(1, 15), (2, 100)]);
    assert_eq!(held(&small), [0, 2, 1, 0]);
}

/// The sum is right, and only the comparison by ranges shows that a share is in the wrong one.
#[test]
#[cfg(feature = "teeth")]
fn a_share_that_is_filed_where_it_arrives_is_found() {
    use tidemark_proto::teeth::{Bug, leave_out};
    let mut world = World::new(&[counter(1)]);
    world.views[0].hear(&counter(0).total(), 0, 7, &Row::default());
    world.change(&[(true, 0, 1)]);
    while world.apply(0) {}
    leave_out(Some(Bug::ShareOfHome));
    world.views[0].settle(100);
    leave_out(None);
    let view = &mut world.views[0];
    let by_counter = |all: BTreeMap<(CounterName, ShardId), Plain>| -> BTreeMap<CounterName, Plain> {
        all.into_iter().map(|((name, _), share)| (name, share)).collect()
    };
    assert_eq!(by_counter(view.shown()), by_counter(view.recounted()));
    assert_ne!(view.shown(), view.recounted());
    view.restart();
    assert_eq!(view.shown(), view.recounted());
}

/// More changes than a view takes at a time, told one by one and not at all: it compares its graph with the ledger's.
#[test]
fn a_load_beyond_all_queues_is_caught_up_with() {
    for told in [true, false] {
        let mut small = Small::new();
        let name = |number: usize| CounterName::new("a", format!("{number}").as_bytes()).unwrap();
        let count = EDGE_CHANGES_QUEUED_MAX + 5_000;
        let top = counter(0);
        small.0.hear(&name(77).total(), 0, 5, &Row::default());
        // Another way round at first: an edge that is loaded later would close a cycle with it.
        small.change(vec![EdgeChange::Insert(Edge { from: top.clone(), to: name(77) })]);
        small.change(vec![EdgeChange::Remove(Edge { from: top.clone(), to: name(77) })]);
        let edges: Vec<_> = (1..=count).map(|number| Edge { from: name(number), to: top.clone() }).collect();
        for part in edges.chunks(EDGE_CHANGES_PER_COMMAND_MAX) {
            let changes = part.iter().cloned().map(EdgeChange::Insert).collect();
            let cmd =
                small.0.ledger.edges(changes, EdgeAuthor::alone("loader", &small.0.ledger), true).unwrap().unwrap();
            small.apply(&cmd);
            if told {
                small.0.tell();
            }
        }
        if !told {
            small.0.tell();
        }
        assert!(small.0.hierarchy.progress().compares);
        for _ in 0..3 {
            small.0.hierarchy.step(1_000, &small.0.ledger, &small.0.direct);
        }
        // Meanwhile an edge goes and another one comes.
        let gone = edges[88].clone();
        let new = Edge { from: name(1), to: name(2) };
        let cmd = small.0.ledger.edges(
            vec![EdgeChange::Remove(gone), EdgeChange::Insert(new)],
            EdgeAuthor::alone("", &small.0.ledger),
            false,
        );
        small.apply(&cmd.unwrap().unwrap());
        small.0.hear(&name(89).total(), 0, 1_000, &Row::default());
        small.0.hear(&name(90).total(), 0, 20, &Row::default());
        small.0.tell();
        while small.0.hierarchy.step(10_000, &small.0.ledger, &small.0.direct) {
            let progress = small.0.hierarchy.progress();
            // Changes that were told one by one are done first, in their order.
            assert!(told || progress.compares || progress.waiting == 0, "of no graph of the ledger yet: {progress:?}");
        }
        small.0.settle(10_000);
        assert_eq!(small.inherited(&[0]), [(25, 0)]);
        small.0.restart();
        assert_eq!(small.inherited(&[0]), [(25, 0)]);
    }
}

/// The graph that a start has begun with is not compared again when the ledger tells of it; later changes are followed.
#[test]
fn a_start_with_a_large_graph_compares_nothing() {
    let mut small = Small::new();
    let name = |number: usize| CounterName::new("a", format!("{number}").as_bytes()).unwrap();
    let into_top = |number: usize| EdgeChange::Insert(Edge { from: name(number), to: counter(0) });
    for part in (1..EDGE_CHANGES_QUEUED_MAX + 2_000).collect::<Vec<_>>().chunks(EDGE_CHANGES_PER_COMMAND_MAX) {
        let changes = part.iter().map(|&number| into_top(number)).collect();
        let cmd = small.0.ledger.edges(changes, EdgeAuthor::alone("loader", &small.0.ledger), true).unwrap().unwrap();
        small.apply(&cmd);
    }
    small.0.hear(&name(77).total(), 0, 5, &Row::default());
    small.0.restart();
    small.0.tell();
    let progress = small.0.hierarchy.progress();
    assert_eq!((progress.index, progress.waiting, progress.compares), (small.0.ledger.graph().index(), 0, false));
    assert_eq!(small.inherited(&[0]), [(5, 0)]);
    small.change(vec![EdgeChange::Remove(Edge { from: name(77), to: counter(0) })]);
    assert_eq!(small.inherited(&[0]), [(0, 0)]);
}
