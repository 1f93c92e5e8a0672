//! Old buckets leave memory and are read, raised, expired and added to totals as if they had stayed, with late parts and with
//! crashes at any point.

#![allow(clippy::disallowed_types, reason = "a disk beside the machine, which a test writes")]

use super::*;
use crate::view::{Budget, HeldRow, Shelf};
use std::sync::{Arc, Mutex};
use tidemark_types::graph::{Edge, EdgeChange};
use tidemark_types::ids::ValveId;
use tidemark_types::row_changes::{Part, part_of};
use tidemark_types::series::Horizon;
use tidemark_types::time::WallMs;

const BEGIN_S: u64 = 1_790_000_000;
const MINUTE_S: u64 = 60;
const COUNTERS: u32 = 6;
/// The bytes of a bucket in memory.
const BUCKET: usize = 16;

/// The rows on disk of the one shard, as of the last durable part, and of its totals.
#[derive(Debug, Default)]
pub(super) struct OnDisk(Mutex<BTreeMap<u32, Vec<u8>>>, Mutex<BTreeMap<u32, Vec<u8>>>);

impl OnDisk {
    /// These are the rows on disk now.
    pub(super) fn hold(&self, rows: &BTreeMap<Vec<u8>, Vec<u8>>) {
        let shelved = rows.iter().filter_map(|(key, value)| Some((shelf_number(key)?, value.clone())));
        *self.0.lock().unwrap() = shelved.collect();
    }

    /// A process begins: totals of the last one are of no use to it.
    pub(super) fn begin(&self) {
        self.1.lock().unwrap().clear();
    }
}

impl Shelf for OnDisk {
    fn read(&self, _: ShardId, number: u32) -> Option<Vec<u8>> {
        self.0.lock().unwrap().get(&number).cloned()
    }

    fn scan(&self, _: ShardId, visit: &mut dyn FnMut(u32, &[u8])) {
        self.0.lock().unwrap().iter().for_each(|(&number, value)| visit(number, value));
    }

    fn read_total(&self, number: u32) -> Option<Vec<u8>> {
        self.1.lock().unwrap().get(&number).cloned()
    }

    fn write_total(&self, number: u32, value: Option<&[u8]>) -> bool {
        let mut totals = self.1.lock().unwrap();
        match value {
            Some(value) => drop(totals.insert(number, value.to_vec())),
            None => drop(totals.remove(&number)),
        }
        true
    }
}

struct Shelved {
    world: World,
    shelf: Arc<OnDisk>,
    bytes_max: usize,
    terms: SeriesTerms,
    now_s: u64,
    /// By cell and lane: component and row, as counted.
    counted: BTreeMap<(u32, u8), (u64, Row)>,
    log: Vec<(u32, u8, u64, Row)>,
}

/// Minutes, or hours and days as well.
fn terms(revision: u64, granularities: usize, minutes_s: u64) -> SeriesTerms {
    let kept = [("1m", minutes_s), ("1h", 86_400), ("1d", 10 * 86_400)];
    let kept = kept[..granularities]
        .iter()
        .map(|&(granularity, ttl_s)| Kept { granularity: granularity.parse().unwrap(), ttl_s });
    let retention = Retention::new(kept.collect()).unwrap();
    let policy = SeriesPolicy::new(retention, 7_000, 300, OutOfRange::Refused).unwrap();
    SeriesTerms { revision, policy, since: UnixTime::default() }
}

impl Shelved {
    fn new(bytes_max: usize, granularities: usize) -> Shelved {
        let shelf = Arc::new(OnDisk::default());
        let world = World::new();
        let (counted, log) = Default::default();
        let terms = terms(1, granularities, 7_200);
        let mut own = Shelved { world, shelf, bytes_max, terms, now_s: BEGIN_S, counted, log };
        own.world.slow_disk = true;
        own.world.core = AggregatorCore::new(own.config(1));
        own.clock(0);
        own.world.apply([LedgerCmd::Series { namespace: "t".into(), terms: own.terms.clone() }]);
        own.world.say(Input::GroupUp { group: group(0) });
        // Counters 1 and 2 flow to 0, and 3 through 1.
        let edge = |from, to| EdgeChange::Insert(Edge { from: cell(from).counter, to: cell(to).counter });
        let changes = vec![edge(1, 0), edge(2, 0), edge(3, 1)];
        let revision = own.world.ledger.graph().index();
        own.world.apply([LedgerCmd::Edges {
            revision,
            id: 1,
            lenient: false,
            changes,
            at: WallMs(0),
            by: "test".into(),
        }]);
        own
    }

    fn config(&self, epoch: u64) -> AggregatorConfig {
        let budget = Budget { bytes_max: self.bytes_max, after_s: 600, shelf: self.shelf.clone() };
        let checkpoint_rows_at_once = 3;
        let checkpoint_part_bytes = 60;
        let config = AggregatorConfig::new(DC, epoch);
        AggregatorConfig { budget: Some(budget), checkpoint_rows_at_once, checkpoint_part_bytes, ..config }
    }

    fn clock(&mut self, seconds: u64) {
        self.now_s += seconds;
        self.world.say(Input::Clock(WallMs(self.now_s * 1_000)));
    }

    fn horizon(&self) -> Horizon {
        Horizon::begin(&self.terms.policy, UnixTime::try_from(self.now_s).unwrap())
    }

    fn count(&mut self, number: u32, lane: u8, ago_s: u64, delta: u64) {
        let horizon = self.horizon();
        let event = UnixTime::try_from(self.now_s - ago_s).unwrap();
        let (component, row) = self.counted.entry((number, lane)).or_default();
        *component += delta;
        row.add(&horizon, event, delta).unwrap();
        self.log.push((number, lane, *component, row.holding(&horizon, [event])));
        self.tell(self.world.core.feeds[&group(0)].cursor);
    }

    /// Tells an aggregator the changes since an entry, and the whole of rows from the first one on.
    fn tell(&mut self, base: LogIndex) {
        let upto = LogIndex(self.log.len() as u64);
        let whole = |&(slot, lane, component, _): &(u32, u8, u64, Row)| {
            (slot, lane, component, self.counted[&(slot, lane)].1.clone())
        };
        let rest = &self.log[base.0 as usize..];
        let rest: Vec<_> = if base.0 == 0 { rest.iter().map(whole).collect() } else { rest.to_vec() };
        let msg = FromGroup::Feed(FeedChunk {
            group: group(0),
            start: Start { number: 1, nonce: 1 },
            base,
            upto,
            applied: upto,
            cells: (0..COUNTERS).map(cell).collect(),
            components: rest.iter().map(|&(slot, lane, value, _)| (slot, lane, value)).collect(),
            rows: rest.into_iter().map(|(slot, lane, _, row)| (slot, lane, row)).collect(),
            ..FeedChunk::default()
        });
        self.world.say(Input::Group { group: group(0), msg });
    }

    fn persist(&mut self) {
        let Some(rows) = self.world.out.take() else { return };
        self.world.write(rows);
        self.shelf.hold(&self.world.rows);
        self.world.say(Input::Persisted { shard: ShardId::FIRST });
    }

    fn crash(&mut self, epoch: u64) {
        self.shelf.begin();
        self.world.core = AggregatorCore::recover(self.config(epoch), self.world.rows.clone()).unwrap();
        self.world.out = None;
        self.clock(0);
        self.world.say(Input::GroupUp { group: group(0) });
        self.tell(self.world.core.feeds[&group(0)].cursor);
    }

    fn check(&mut self) {
        self.world.core.view().check_all();
        let view = self.world.core.view();
        let horizon = self.horizon();
        for (&(number, lane), (_, row)) in &self.counted {
            let valve = ValveId { group: group(0), lane };
            let held = view.rows(&cell(number).counter, Half::Up, 0).find(|(of, _)| *of == valve);
            let mut held = held.map(|(_, row)| row.into_owned()).unwrap_or_default();
            let mut counted = row.clone();
            held.expire(&horizon);
            counted.expire(&horizon);
            assert_eq!(held, counted, "cell {number}, lane {lane}");
        }
        let cells = view.cells(ShardId::FIRST);
        for number in 0..cells.rows_len() {
            let row = cells.row(number);
            let at = |ago_s: u64| Part::at(UnixTime::try_from(self.now_s - ago_s).unwrap());
            for parts in [vec![at(0)], vec![at(5_000), at(60)], vec![at(600)], vec![Part::WHOLE]] {
                assert_eq!(cells.row_part(number, &parts), part_of(&row, &horizon, &parts));
            }
            let mut kept = row.into_owned();
            kept.expire(&horizon);
            assert!(cells.row_size_max(number) >= tidemark_types::series::codec::size_max(&kept).min(6 * kept.len()));
        }
        let recent = UnixTime::try_from(self.now_s - 1_800).unwrap();
        for counter in (0..COUNTERS).map(|number| cell(number).counter) {
            let rows = || view.held_rows(&counter, Half::Up, 0);
            for &(granularity, first) in horizon.first() {
                for from in [granularity.index_at(recent), first] {
                    let whole = |row: &HeldRow<'_>| row.whole().sum(granularity, from..u32::MAX);
                    assert!(rows().zip(rows()).all(|(row, same)| row.sum(granularity, from..u32::MAX) == whole(&same)));
                    assert!(
                        rows()
                            .all(|row| row.within(granularity, from..u32::MAX).map(|of| of.1).sum::<u64>()
                                == whole(&row))
                    );
                }
            }
        }
        while self.world.core.view.step_graph(1_000, &self.world.ledger) {}
        for counter in [0, 1].map(|number| cell(number).counter) {
            if let Some(audit) = self.world.core.view().audit_total(&counter, &self.world.ledger).unwrap() {
                assert!(audit.agrees(), "{counter}: {audit:?}");
            }
        }
    }

    /// Everything that may leave has left, if there is no room for any.
    fn let_all_go(&mut self) {
        for _ in 0..40 {
            self.world.wait();
            self.persist();
        }
    }

    fn shelved(&self) -> usize {
        self.world.core.view().cells(ShardId::FIRST).rows_shelved()
    }
}

proptest! {
    #[test]
    fn old_buckets_leave_memory_and_nothing_else_changes(
        steps in proptest::collection::vec((0u8..14, 0..COUNTERS, 0u8..2, 0u64..7_000, 1u64..9), 1..150),
        bytes_max in prop_oneof![Just(0usize), 0..20 * BUCKET],
        granularities in prop_oneof![Just(1usize), Just(3)],
    ) {
        let mut own = Shelved::new(bytes_max, granularities);
        for (at, (what, number, lane, ago_s, delta)) in steps.into_iter().enumerate() {
            match what {
                0..4 => own.count(number, lane, 0, delta),
                4..6 => own.count(number, lane, ago_s, delta),
                6 => own.clock(ago_s * delta),
                7..9 => own.clock(MINUTE_S * delta),
                9 => own.world.wait(),
                10..12 => { own.world.wait(); own.persist() },
                12 => own.crash(at as u64 + 2),
                _ => own.tell(LogIndex(0)),
            }
            own.check();
        }
        own.let_all_go();
        own.check();
    }
}

proptest! {
    #[test]
    fn what_is_damaged_on_the_shelf_is_refused_at_the_start(at: usize, byte: u8, cut: usize) {
        let mut own = Shelved::new(0, 3);
        for minute in 0..30 {
            own.count(0, 0, 0, 1 + minute);
            own.clock(MINUTE_S);
        }
        own.let_all_go();
        let key = shelf_key(0);
        let value = own.world.rows[&key].clone();
        let mut damaged = value.clone();
        damaged[at % value.len()] = byte;
        // A time, how many pieces, and pieces.
        for bytes in [damaged, value[..cut % value.len()].to_vec(), [&value[..], &[byte]].concat()] {
            own.world.rows.insert(key.clone(), bytes);
            if let Ok(core) = AggregatorCore::recover(own.config(2), own.world.rows.clone()) {
                prop_assert_eq!(core.view().rows_shelved(), 1);
            }
        }
        own.world.rows.insert(shelf_key(9), value);
        prop_assert!(AggregatorCore::recover(own.config(2), own.world.rows.clone()).is_err(), "of no row");
    }
}

#[test]
fn memory_falls_to_what_is_counted_in_now_and_what_comes_late_is_read_from_the_shelf() {
    let mut own = Shelved::new(0, 3);
    for minute in 0..60 {
        (0..COUNTERS).for_each(|number| own.count(number, 0, 0, 1 + minute));
        own.clock(MINUTE_S);
    }
    let in_memory = |own: &Shelved| {
        let cells = own.world.core.view().cells(ShardId::FIRST);
        (0..cells.rows_len()).map(|number| cells.row_in_memory(number).len()).sum::<usize>()
    };
    let before = in_memory(&own);
    let bytes = own.world.core.view().bucket_bytes().0;
    own.let_all_go();
    own.check();
    let after = in_memory(&own);
    assert!(own.world.core.view().bucket_bytes().0 < bytes / 3);
    assert_eq!((own.world.core.view().totals_shelved(), own.shelf.1.lock().unwrap().len()), (2, 2));
    assert_eq!(own.shelved(), COUNTERS as usize);
    // Ten minutes, and perhaps one bucket each of the hour and the day.
    assert!(after <= COUNTERS as usize * 13 && before >= COUNTERS as usize * 60, "{before} to {after}");
    own.count(3, 0, 3_000, 1_000);
    own.check();
    let raised = in_memory(&own);
    assert!(raised - after <= 2, "only what was raised is in memory again");
    own.tell(LogIndex(0));
    own.check();
    assert_eq!(in_memory(&own), raised, "what is told again is not");
    own.crash(7);
    own.check();
    assert_eq!(own.shelved(), COUNTERS as usize, "it stays on the shelf at a start");
    // When all of it has expired it is gone from the disk.
    own.clock(12 * 86_400);
    own.let_all_go();
    own.count(3, 0, 0, 1);
    own.let_all_go();
    own.check();
    assert_eq!((own.shelved(), own.shelf.0.lock().unwrap().len()), (0, 0));
    assert_eq!((own.world.core.view().totals_shelved(), own.shelf.1.lock().unwrap().len()), (0, 0));
}

/// Buckets that a policy gave up stay given up, though a later one keeps them longer, also after a start.
#[test]
fn what_has_expired_on_the_shelf_does_not_come_back_under_a_longer_policy() {
    let mut own = Shelved::new(0, 3);
    for minute in 0..60 {
        own.count(0, 0, 0, 1 + minute);
        own.clock(MINUTE_S);
    }
    own.let_all_go();
    // From here on nothing has to leave, so that nothing else writes the row.
    own.bytes_max = usize::MAX;
    own.crash(2);
    own.clock(9_000);
    let before = own.world.core.view().held_rows(&cell(0).counter, Half::Up, 0).next().unwrap().whole().clone();
    let minutes = |row: &Row| row.within("1m".parse().unwrap(), 0..u32::MAX).count();
    assert_eq!(minutes(&before), 50, "they are on the disk still");
    let longer = terms(2, 3, 80_000);
    own.world.apply([LedgerCmd::Series { namespace: "t".into(), terms: longer.clone() }]);
    own.count(0, 0, 0, 1);
    own.let_all_go();
    own.crash(3);
    let view = own.world.core.view();
    assert_eq!(view.series_of("t").unwrap().policy, longer.policy);
    let after = view.held_rows(&cell(0).counter, Half::Up, 0).next().unwrap().whole().clone();
    assert_eq!((minutes(&after), view.rows_shelved()), (1, 1));
    view.check_all();
}

/// All that is on the shelf of a row expires while more of it is on its way there, and a crash comes between any two parts of checkpoints.
#[test]
fn what_is_on_its_way_to_the_shelf_stays_though_all_that_was_there_expires_meanwhile() {
    for (before, after) in (0..5).flat_map(|before| (0..9).map(move |after| (before, after))) {
        let mut own = Shelved::new(0, 1);
        let count = |own: &mut Shelved, minutes| {
            for _ in 0..minutes {
                (0..COUNTERS).for_each(|number| own.count(number, 0, 0, 1));
                own.clock(MINUTE_S);
            }
        };
        count(&mut own, 30);
        own.let_all_go();
        count(&mut own, 15);
        for _ in 0..before {
            own.world.wait();
            own.persist();
        }
        own.world.wait();
        // Of the first 30 minutes 20 had left, and go now; the next 15 are kept.
        own.clock(7_200 - 20 * MINUTE_S);
        for _ in 0..after {
            own.persist();
            own.world.wait();
        }
        own.crash(2);
        own.check();
    }
}

/// A late part raises buckets after a checkpoint has read them, at any part of the checkpoint.
fn raise_buckets_on_their_way() {
    for parts in 0..9 {
        let mut own = Shelved::new(0, 1);
        for _ in 0..30 {
            (0..COUNTERS).for_each(|number| own.count(number, 0, 0, 1));
            own.clock(MINUTE_S);
        }
        for _ in 0..parts {
            own.persist();
            own.world.wait();
        }
        (0..COUNTERS).for_each(|number| own.count(number, 0, 25 * MINUTE_S, 5));
        own.persist();
        own.check();
    }
}

#[test]
fn buckets_raised_on_their_way_to_the_shelf_keep_the_raise() {
    raise_buckets_on_their_way();
}

#[test]
#[cfg(feature = "teeth")]
fn raised_buckets_that_are_let_go_are_noticed() {
    use tidemark_types::teeth::{Bug, is_shown_by};
    assert!(is_shown_by(Bug::LetGoRaised, raise_buckets_on_their_way));
}

#[test]
fn old_buckets_of_what_is_over_leave_the_disk() {
    let mut own = Shelved::new(0, 3);
    for minute in 0..60 {
        (0..COUNTERS).for_each(|number| own.count(number, 0, 0, 1 + minute));
        own.clock(MINUTE_S);
    }
    own.let_all_go();
    let shelved = own.shelved();
    assert_eq!(shelved, COUNTERS as usize);
    let removed = cell(3).counter;
    let sums = own.world.core.view().hash_of(DC);
    own.world.apply([
        LedgerCmd::Reset { counter: removed.clone(), revision: 0, keeps_milestones: false },
        LedgerCmd::ResetsHeard { view: DC.into(), upto: 1 },
    ]);
    // Part of a checkpoint may be on its way.
    own.counted.retain(|&(number, _), _| number != 3);
    own.check();
    let rows = |own: &Shelved| {
        let view = own.world.core.view();
        let held = view.rows(&removed, Half::Up, 0).filter(|(_, row)| !row.is_empty()).count();
        (held, view.sum_of(&removed, 0))
    };
    assert_eq!(rows(&own), (0, 0));
    assert_ne!(own.world.core.view().hash_of(DC), sums);
    own.let_all_go();
    let on_disk = own.shelf.0.lock().unwrap().len();
    assert!(own.shelved() < shelved && on_disk == own.shelved(), "{on_disk} values for {} rows", own.shelved());
    // A process that starts has nothing of it.
    own.crash(2);
    own.check();
    assert_eq!(rows(&own), (0, 0));
}
