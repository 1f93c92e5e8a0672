//! The data that leaves a view once a reset is passed, on disk and in memory, and late data.

use super::*;
use crate::query::KeyOrder;
use crate::view::NotCounted;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tidemark_types::graph::{Edge, EdgeChange};
use tidemark_types::ids::{CellId, DcId, GroupId, ValveId};
use tidemark_types::series::{Kept, OutOfRange, Retention, Row, SeriesPolicy, UnixTime};
use tidemark_types::time::WallMs;
use tidemark_wire::msg::{LedgerCmd, SeriesTerms};
use tidemark_wire::shards::Split;

const BEGIN: u64 = 1_790_000_000;
const KEYS: u8 = 5;
const DCS: u16 = 2;

fn name(key: u8) -> CounterName {
    CounterName::new("t", &[key]).unwrap()
}

fn valve(number: u16) -> ValveId {
    ValveId { group: GroupId { dc: DcId(number % DCS), group: 0, incarnation: 1 }, lane: (number / DCS) as u8 }
}

/// Everything that was ever merged, and the ended generations.
struct World {
    view: View,
    ledger: Ledger,
    splits: u16,
    counts: BTreeMap<CellId, BTreeMap<ValveId, u64>>,
    buckets: BTreeMap<CellId, BTreeMap<ValveId, Row>>,
    /// Cells without any data left: they were over when resets were passed.
    over: BTreeSet<CellId>,
    orders: Vec<KeyOrder>,
}

impl World {
    fn new() -> World {
        let mut ledger = Ledger::default();
        let view = View::new(DcId(0), 7);
        let retention = Retention::new(vec![Kept { granularity: "1m".parse().unwrap(), ttl_s: 7 * 86_400 }]).unwrap();
        let policy = SeriesPolicy::new(retention, 3_600, 300, OutOfRange::Refused).unwrap();
        let terms = SeriesTerms { revision: 1, policy, since: UnixTime::default() };
        for cmd in [LedgerCmd::Namespace("t".into()), LedgerCmd::View(DcId(0).into())] {
            ledger.apply(ledger.applied().next(), &cmd);
        }
        ledger.apply(ledger.applied().next(), &LedgerCmd::Series { namespace: "t".into(), terms });
        let (counts, buckets, over, orders) = Default::default();
        let mut world = World { view, ledger, splits: 0, counts, buckets, over, orders };
        world.view.on_time(UnixTime::try_from(BEGIN).unwrap());
        world.view.on_start(&world.ledger);
        drop(world.ledger.take_changes());
        world
    }

    fn apply(&mut self, cmd: LedgerCmd) {
        self.ledger.apply(self.ledger.applied().next(), &cmd);
        let changes = self.ledger.take_changes();
        self.view.on_ledger(&changes, &self.ledger);
    }

    fn reset(&mut self, key: u8) {
        let cmd = self.ledger.reset(&name(key), false, true).unwrap();
        self.apply(cmd);
    }

    fn pass(&mut self, upto: u64) {
        let upto = upto.min(self.ledger.resets().last());
        self.apply(LedgerCmd::ResetsHeard { view: DcId(0).into(), upto });
    }

    /// The generation of a counter, or an earlier one, or the next one, which the ledger here has not heard of.
    fn cell(&self, key: u8, earlier: u32) -> CellId {
        let generation = self.ledger.resets().generation(&name(key)) + 1;
        name(key).half_of(if key == 0 { Half::Down } else { Half::Up }, generation.saturating_sub(earlier))
    }

    fn merge(&mut self, cell: CellId, at: u16, value: u64) {
        self.view.merge(&cell, valve(at), value).unwrap();
        let horizon = self.view.series_of("t").unwrap().horizon.clone();
        let mut row = Row::default();
        row.add(&horizon, UnixTime::try_from(BEGIN - 60 * (value % 7)).unwrap(), value).unwrap();
        self.view.merge_row(&cell, valve(at), &row).unwrap();
        if !self.over.contains(&cell) {
            let known = self.counts.entry(cell.clone()).or_default().entry(valve(at)).or_default();
            *known = value.max(*known);
            self.buckets.entry(cell).or_default().entry(valve(at)).or_default().merge(&row, &horizon);
        }
    }

    /// As after each input of an aggregator.
    fn settle(&mut self, most: usize) {
        while self.view.drop_over(&self.ledger, most) {}
        let is_over = |cell: &CellId| cell.generation < self.ledger.resets().life(&cell.counter).over;
        self.over.extend(self.counts.keys().filter(|cell| is_over(cell)).cloned());
        for cell in &self.over {
            self.counts.remove(cell);
            self.buckets.remove(cell);
        }
        drop(self.view.take_dropped());
    }

    /// New cells may get the slots of all that is over.
    fn free(&mut self) {
        let split = self.view.splits().map(|split| split.shard);
        let shards: Vec<ShardId> = self.view.shards().map(|(shard, _)| shard).collect();
        for shard in shards.into_iter().filter(|&shard| Some(shard) != split) {
            let slots = self.view.cells(shard).to_free();
            self.view.free_slots(shard, &slots, &self.ledger);
        }
    }

    /// The order of keys has the counters of all cells that are not over, each once. Whether all orders have all cells.
    fn check_order(&mut self, step: u32) -> bool {
        let mut has_all = true;
        self.orders.resize_with(self.view.shards().len(), KeyOrder::default);
        for (order, (_, cells)) in self.orders.iter_mut().zip(self.view.shards()) {
            if !order.follow(cells, step) {
                has_all = false;
                continue;
            }
            let counter = |slot| cells.name(slot).counter;
            let present: BTreeSet<CounterName> =
                (0..cells.len()).filter(|&slot| !cells.is_over(slot)).map(counter).collect();
            let listed = order.spread(cells.table(), usize::MAX);
            let is_once = listed.is_sorted_by(|one, next| one < next);
            assert!(is_once && present.iter().all(|counter| listed.contains(counter)), "{listed:?}");
        }
        has_all
    }

    fn check(&self) {
        self.view.check_all();
        for cell in self.over.iter().chain(self.counts.keys()) {
            let counted: u64 = self.counts.get(cell).into_iter().flat_map(BTreeMap::values).sum();
            let cells = self.view.cells_of(&cell.counter);
            assert_eq!(cells.sum_of_half(&cell.counter, cell.half, cell.generation), counted, "{cell:?}");
            let rows = self.view.rows(&cell.counter, cell.half, cell.generation);
            let held: BTreeMap<ValveId, Row> =
                rows.map(|(of, row)| (of, row.into_owned())).filter(|(_, row)| !row.is_empty()).collect();
            assert_eq!(held, self.buckets.get(cell).cloned().unwrap_or_default(), "{cell:?}");
        }
    }

    /// A view that was told everything, ended generations included, and starts now.
    fn other(&self, told: &[(CellId, u16, u64)]) -> World {
        let mut other = World::new();
        told.iter().for_each(|(cell, at, value)| other.merge(cell.clone(), *at, *value));
        other.ledger = self.ledger.clone();
        other.view.shards.iter_mut().for_each(|cells| cells.judged = 0);
        other.view.on_start(&other.ledger);
        other
    }
}

proptest! {
    #[test]
    fn what_is_over_leaves_a_view_and_nothing_late_brings_it_back(
        steps in proptest::collection::vec((0u8..14, 0..KEYS, 0u32..4, 0u16..6, 1u64..99, 1usize..4), 1..120),
    ) {
        let mut world = World::new();
        let mut told = Vec::new();
        for (what, key, earlier, at, value, most) in steps {
            match what {
                0..7 => {
                    let cell = world.cell(key, earlier);
                    told.push((cell.clone(), at, value));
                    world.merge(cell, at, value);
                }
                7 => world.reset(key),
                8 | 9 => world.pass(world.ledger.resets_passed() + value % 4),
                10 if world.view.splits().is_none() && world.splits < 2 => {
                    let whole = world.view.ranges().iter().map(|range| range.shard).max().unwrap();
                    let at = if world.splits == 0 { 2 } else { 4 };
                    let split = Split { shard: whole, at: name(at), first: ShardId(whole.0 + 1) };
                    world.view.begin_split(&split, 3);
                    world.splits += 1;
                }
                10 => drop(world.view.step_split(1 + value as usize, &world.ledger)),
                11 => drop(world.view.finish_split(5, &world.ledger)),
                12 => world.free(),
                _ => drop(world.check_order(value as u32)),
            }
            world.settle(most);
            world.check();
        }
        prop_assert!((0..9).any(|_| world.check_order(99)), "orders that do not catch up");
        world.pass(u64::MAX);
        world.settle(usize::MAX);
        world.check();
        // A view that was told of all of it and has passed as many resets has the same sums.
        let other = world.other(&told);
        other.view.check_all();
        let sums = |view: &View| {
            let of_dc = |dc: u16| {
                let rows = view.shards().fold(0u64, |sum, (_, cells)| sum.wrapping_add(cells.row_hash_of(DcId(dc), 0)));
                (view.hash_of(DcId(dc)), rows)
            };
            (0..DCS).map(of_dc).collect::<Vec<_>>()
        };
        prop_assert_eq!(sums(&world.view), sums(&other.view));
    }
}

#[test]
fn what_not_all_have_passed_stays() {
    let mut world = World::new();
    world.merge(world.cell(1, 1), 0, 5);
    world.reset(1);
    world.merge(world.cell(1, 1), 0, 3);
    world.settle(9);
    let held = |world: &World, generation| world.view.sum_of(&name(1), generation);
    assert_eq!((held(&world, 0), held(&world, 1), world.view.shards[0].ended()), (5, 3, 0));
    assert!(!world.view.may_drop(&world.ledger));
    world.pass(1);
    assert!(world.view.may_drop(&world.ledger));
    world.settle(9);
    assert_eq!((held(&world, 0), held(&world, 1), world.view.shards[0].ended()), (0, 3, 1));
    assert!(!world.view.may_drop(&world.ledger));
    // It is late, and named for the first time.
    world.merge(name(1).half_of(Half::Down, 0), 1, 9);
    world.settle(9);
    assert_eq!(world.view.down_of(&name(1), 0), 0);
}

#[test]
fn an_audit_lists_no_valve_of_the_cell_that_had_the_slot_before() {
    let mut world = World::new();
    world.merge(name(1).total(), 0, 5);
    world.reset(1);
    world.pass(1);
    world.settle(9);
    world.free();
    world.merge(name(2).total(), 1, 3);
    assert_eq!(world.view.shards[0].reused_slots(), [0]);
    let valves: Vec<ValveId> = world.view.components_held(&name(2).total()).map(|(of, _)| of).collect();
    assert_eq!(valves, [valve(1)]);
}

#[test]
fn totals_are_compared_once_reused_slots_are_taken_in() {
    let mut world = World::new();
    let changes = vec![EdgeChange::Insert(Edge { from: name(2), to: name(3) })];
    world.apply(LedgerCmd::Edges { revision: 0, id: 1, lenient: false, changes, at: WallMs(0), by: "test".into() });
    world.merge(name(1).total(), 0, 5);
    while world.view.step_graph(1_000, &world.ledger) {}
    world.reset(1);
    world.pass(1);
    world.settle(9);
    world.free();
    world.merge(name(2).total(), 0, 7);
    assert_eq!(world.view.shards[0].reused_slots(), [0]);
    let audit = |world: &World| world.view.audit_total(&name(3), &world.ledger);
    assert_eq!(audit(&world), Err(NotCounted::Changing), "the count flows on with the next step");
    while world.view.step_graph(1_000, &world.ledger) {}
    let audit = audit(&world).unwrap().unwrap();
    assert!(audit.agrees() && audit.halves[0] == (7, 7), "{audit:?}");
}

/// The deliberate bug: data from before a passed reset stays.
#[cfg(feature = "teeth")]
#[test]
fn what_is_over_and_kept_is_noticed() {
    use tidemark_types::teeth::leave_out;
    let mut world = World::new();
    world.merge(world.cell(1, 1), 0, 5);
    world.reset(1);
    world.pass(1);
    leave_out(Some(Bug::OverKept));
    while world.view.drop_over(&world.ledger, 9) {}
    leave_out(None);
    assert_eq!((world.view.sum_of(&name(1), 0), world.view.ended()), (5, 1));
}
