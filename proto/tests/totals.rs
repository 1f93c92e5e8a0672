//! Totals as a view shows them, against brute force over its own components and rows. After any merges, changes, resets and
//! expiry, in any order, they equal a recount, the share of each range of counters by itself. (`hierarchy.rs` shows that the sums
//! themselves are right under all orders.)

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_proto::counter_order::{CounterOrder, ShardBy};
use tidemark_proto::graph::{Edge, EdgeChange};
use tidemark_proto::ids::{CounterName, DcId, GroupId, Half, LogIndex, ValveId};
use tidemark_proto::ledger::{EdgeAuthor, Ledger};
use tidemark_proto::msg::{LedgerCmd, SeriesTerms};
use tidemark_proto::series::{BucketId, Granularity, Kept, OutOfRange, Retention, Row, SeriesPolicy, UnixTime};
use tidemark_proto::shards::{Ranges, ShardId, Split};
use tidemark_proto::view::View;

const COUNTERS: u8 = 6;
const VALVES: u8 = 2;
const BEGIN_S: i64 = 1_700_000_000;
const HALVES: [Half; 2] = [Half::Up, Half::Down];

fn at(seconds: u64) -> UnixTime {
    UnixTime::from_s(BEGIN_S).unwrap().plus(seconds)
}

/// By the second piece of its key it lies with one other, and those in the other order.
fn counter(number: u8) -> CounterName {
    CounterName::new("qa", &[b'0' + number, b'/', b'0' + (COUNTERS - 1 - number) / 2]).unwrap()
}

/// Cut at these counters, which lie by their names or by the second piece of their keys.
fn ranges(cuts: &BTreeSet<u8>, is_laid: bool) -> Ranges {
    let laid = ShardBy { namespace: "qa".to_owned(), space: "qa".to_owned(), piece: 2 };
    let order = CounterOrder::new(if is_laid { vec![laid] } else { Vec::new() }).unwrap();
    let mut cuts: Vec<CounterName> = cuts.iter().copied().map(counter).collect();
    cuts.sort_by(|one, other| order.begin(one).cmp(&order.begin(other)));
    cuts.dedup_by(|one, other| order.begin(one) == order.begin(other));
    Ranges::of_ordered(cuts, order).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Count {
        counter: u8,
        is_down: bool,
        valve: u8,
        back_s: u64,
        delta: u64,
    },
    Edges(Vec<(bool, u8, u8)>),
    Reset(u8),
    Work(usize),
    Advance(u64),
    /// The range of a counter is split there.
    Split(u8),
    /// Works on that, and ends it when little is left.
    Part(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let changes = proptest::collection::vec((prop::bool::weighted(0.75), 0..COUNTERS, 0..COUNTERS), 1..4);
    let count = (0..COUNTERS, prop::bool::weighted(0.3), 0..VALVES, 0u64..9_000, 1u64..100);
    let step = prop_oneof![
        8 => count.prop_map(|(counter, is_down, valve, back_s, delta)| Step::Count { counter, is_down, valve, back_s, delta }),
        4 => changes.prop_map(Step::Edges),
        1 => (0..COUNTERS).prop_map(Step::Reset),
        5 => (1usize..8).prop_map(Step::Work),
        1 => (0u64..4_000).prop_map(Step::Advance),
        1 => (0..COUNTERS).prop_map(Step::Split),
        3 => (1usize..30).prop_map(Step::Part),
    ];
    proptest::collection::vec(step, 1..80)
}

fn cuts() -> impl Strategy<Value = BTreeSet<u8>> {
    proptest::collection::btree_set(0..COUNTERS, 0..4)
}

/// Increments and decrements, and their kept buckets.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plain {
    up: u64,
    down: u64,
    buckets: BTreeMap<(bool, BucketId), u64>,
}

/// A total as it is read, all its buckets, and the part of each range by itself.
type Parts = (Plain, BTreeMap<ShardId, Plain>);

struct World {
    ledger: Ledger,
    view: View,
    now: UnixTime,
    /// The counts of valves, by counter, half, generation and valve.
    counted: BTreeMap<(u8, bool, u32, u8), (u64, Row)>,
}

impl World {
    fn new(cuts: &BTreeSet<u8>, is_laid: bool) -> World {
        let ranges = ranges(cuts, is_laid);
        let kept = [(Granularity::MINUTE, 600), (Granularity::HOUR, 7_200)];
        let kept = kept.map(|(granularity, ttl_s)| Kept { granularity, ttl_s }).to_vec();
        let policy = SeriesPolicy::new(Retention::new(kept).unwrap(), 0, 3_600, OutOfRange::TotalOnly).unwrap();
        let view = View::cut(DcId(0), 1, ranges);
        let mut world = World { ledger: Ledger::default(), view, now: at(0), counted: BTreeMap::new() };
        world.view.on_time(world.now);
        world.say(LedgerCmd::UpDown("qa".to_owned()));
        world.say(LedgerCmd::View(DcId(0).into()));
        let terms = SeriesTerms { revision: 1, policy, since: at(0) };
        world.say(LedgerCmd::Series { namespace: "qa".to_owned(), terms });
        world
    }

    fn say(&mut self, cmd: LedgerCmd) {
        self.ledger.apply(LogIndex(self.ledger.applied().0 + 1), &cmd);
        let changes = self.ledger.take_changes();
        self.view.on_ledger(&changes, &self.ledger);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Count { counter: number, is_down, valve, back_s, delta } => {
                let half = if is_down { Half::Down } else { Half::Up };
                let generation = self.ledger.resets().generation(&counter(number));
                let horizon = self.view.series_of("qa").unwrap().horizon.clone();
                let (count, row) = self.counted.entry((number, is_down, generation, valve)).or_default();
                *count += delta;
                row.add(&horizon, self.now.minus(back_s), delta).unwrap();
                let count = *count;
                let row = row.clone();
                let cell = counter(number).half_of(half, generation);
                let group = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
                let valve = ValveId { group, lane: valve };
                self.view.merge(&cell, valve, count).unwrap();
                self.view.merge_row(&cell, valve, &row).unwrap();
            }
            Step::Edges(ref changes) => {
                let change = |&(inserts, from, to): &(bool, u8, u8)| {
                    let edge = Edge { from: counter(from), to: counter(to) };
                    if inserts { EdgeChange::Insert(edge) } else { EdgeChange::Remove(edge) }
                };
                let changes: Vec<_> = changes.iter().map(change).collect();
                let decided = self.ledger.edges_each(&changes, EdgeAuthor::alone("who", &self.ledger), true).unwrap();
                decided.cmd.into_iter().for_each(|cmd| self.say(cmd));
            }
            Step::Reset(number) => {
                let cmd = self.ledger.reset(&counter(number), true, true).unwrap();
                self.say(cmd);
            }
            Step::Work(budget) => drop(self.view.step_graph(budget, &self.ledger)),
            Step::Advance(seconds) => {
                self.now = self.now.plus(seconds);
                self.view.on_time(self.now);
                self.view.expire_totals(&self.ledger);
            }
            Step::Split(number) => {
                let ranges = self.view.ranges();
                let shard = ranges.find(&counter(number));
                let first = ShardId(ranges.numbers() as u16);
                let split = Split { shard, at: counter(number), first };
                if ranges.split(&split).is_some() && self.view.splits().is_none() {
                    self.view.begin_split(&split, 1);
                }
            }
            Step::Part(budget) => {
                if self.view.step_split(budget, &self.ledger) {
                    self.end_split();
                }
            }
        }
        self.view.check_all();
    }

    /// Says where the cells are that the range had.
    fn end_split(&mut self) {
        let Some(parted) = self.view.finish_split(1, &self.ledger) else { return };
        for slot in 0..parted.cells.len() {
            let place = parted.place(slot).unwrap();
            let part = self.view.cells(parted.split.parts()[place.part]);
            assert_eq!(part.name(place.slot), parted.cells.name(slot));
        }
        assert!(self.view.cells(parted.split.shard).is_empty());
    }

    /// After any splits: the components here are the counts.
    fn check_counts(&self) {
        for (&(number, is_down, generation, valve), (count, row)) in &self.counted {
            let half = if is_down { Half::Down } else { Half::Up };
            let valve = ValveId { group: GroupId { dc: DcId(0), group: 0, incarnation: 1 }, lane: valve };
            let cells = self.view.cells_of(&counter(number));
            let slot = cells.table().find_half(&counter(number), half, generation).unwrap();
            let own = cells.valves().iter().position(|known| *known == valve).unwrap() as u16;
            assert_eq!(cells.component(slot, own), *count);
            let kept = &self.view.series_of("qa").unwrap().horizon;
            let expected: Vec<_> = row.buckets().filter(|&(bucket, _)| kept.keeps(bucket)).collect();
            let rows = self.view.rows(&counter(number), half, generation).filter(|(of, _)| *of == valve);
            let held = rows.flat_map(|(_, row)| row.buckets().collect::<Vec<_>>());
            let held: Vec<_> = held.filter(|&(bucket, _)| kept.keeps(bucket)).collect();
            assert_eq!(held, expected);
        }
    }

    fn settle(&mut self) {
        while self.view.step_graph(3, &self.ledger) {}
        let progress = self.view.graph_progress();
        assert_eq!((progress.cells, progress.recounts), (self.view.len(), false));
        self.view.check_all();
    }

    fn shown(&self, number: u8) -> Parts {
        let total = self.view.total(&counter(number), &self.ledger);
        let mut plain = Plain { up: total.up, down: total.down, ..Plain::default() };
        for half in HALVES {
            let inherited = self.view.inherited_buckets(&counter(number), half, &self.ledger);
            for (_, totals) in inherited {
                for (bucket, sum) in totals.whole().buckets() {
                    *plain.buckets.entry((half == Half::Down, bucket)).or_default() += sum;
                }
            }
        }
        let mut shares: BTreeMap<ShardId, Plain> = BTreeMap::new();
        for (shard, share) in self.view.shares(&counter(number), &self.ledger) {
            let up = share.count(Half::Up);
            let down = share.count(Half::Down);
            // A range that is being split has several.
            let known = shares.entry(shard).or_default();
            (known.up, known.down) = (known.up.wrapping_add(up), known.down.wrapping_add(down));
            for half in HALVES {
                for (bucket, sum) in share.buckets(half).whole().buckets() {
                    *known.buckets.entry((half == Half::Down, bucket)).or_default() += sum;
                }
            }
        }
        shares.retain(|_, share| *share != Plain::default());
        (plain, shares)
    }

    /// From the components and rows of all its ancestors.
    fn recounted(&self, number: u8) -> Parts {
        let graph = self.ledger.graph();
        let mut ancestors = BTreeSet::new();
        let mut open = vec![counter(number)];
        while let Some(name) = open.pop() {
            open.extend(graph.parents(&name).filter(|parent| ancestors.insert(parent.clone())));
        }
        let kept = self.view.total_horizon("qa").unwrap();
        let generation = self.ledger.resets().generation(&counter(number));
        let up = self.view.sum_of(&counter(number), generation);
        let mut plain = Plain { up, down: self.view.down_of(&counter(number), generation), ..Plain::default() };
        let mut shares: BTreeMap<ShardId, Plain> = BTreeMap::new();
        for name in &ancestors {
            let shard = self.view.shard_of(name);
            let share = shares.entry(shard).or_default();
            let generation = self.ledger.resets().generation(name);
            let up = self.view.sum_of(name, generation);
            let down = self.view.down_of(name, generation);
            (share.up, share.down) = (share.up + up, share.down + down);
            (plain.up, plain.down) = (plain.up + up, plain.down + down);
            for half in HALVES {
                let rows = self.view.rows(name, half, generation);
                let buckets = rows.flat_map(|(_, row)| row.buckets().collect::<Vec<_>>());
                for (bucket, value) in buckets.filter(|&(bucket, _)| kept.keeps(bucket)) {
                    *plain.buckets.entry((half == Half::Down, bucket)).or_default() += value;
                    *share.buckets.entry((half == Half::Down, bucket)).or_default() += value;
                }
            }
        }
        shares.retain(|_, share| *share != Plain::default());
        (plain, shares)
    }

    fn check(&self, what: &str) {
        self.check_counts();
        for number in 0..COUNTERS {
            assert_eq!(self.shown(number), self.recounted(number), "{what}: {}", counter(number));
        }
    }
}

proptest! {
    #[test]
    fn totals_of_a_view_are_what_a_recount_gives(cuts in cuts(), is_laid: bool, steps in steps()) {
        let mut world = World::new(&cuts, is_laid);
        for step in &steps {
            world.step(step);
        }
        world.settle();
        world.check("settled");
        while world.view.splits().is_some() {
            world.step(&Step::Part(7));
            world.check("being split");
        }
        // Once more counted, without a step: increments flow at once.
        for number in 0..COUNTERS {
            for is_down in [false, true] {
                world.step(&Step::Count { counter: number, is_down, valve: 0, back_s: 60, delta: 1 });
            }
        }
        world.settle();
        world.check("counted again");
        world.view.on_start(&world.ledger);
        world.check("started again");
    }
}
