//! Rows of a group equal a recount of the admitted increments, whatever is retried, refused, cut off or told in pieces.

#![allow(clippy::disallowed_types, reason = "a disk beside the group, which a test writes")]

mod compaction;

use super::*;
use crate::group::{Budget, Effect, Group, GroupConfig, Row as Saved, Shelf, is_shelved};
use crate::node::{NodeConfig, NodeCore};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tidemark_types::ids::{ClientId, CounterName, DcId, GroupId, LogIndex, Start};
use tidemark_types::ring::ChangeRing;
use tidemark_types::series::{BucketId, Granularity, Kept, NotAdmitted, OutOfRange, Retention, SeriesPolicy};
use tidemark_types::time::WallMs;
use tidemark_wire::msg::{FeedChunk, FeedPull, FeedWalk, GroupCmd, GroupEntry, Item, KeySpan, ToGroup};
use tidemark_wire::scope::Scope;

const BEGIN_S: u64 = 1_800_000_000;
const LANES: u8 = 2;
const HOUR_S: u64 = 3_600;
/// Buckets that ended this many seconds ago may leave memory.
const AFTER_S: u64 = 120;

fn id() -> GroupId {
    GroupId { dc: DcId(0), group: 0, incarnation: 3 }
}

fn config() -> GroupConfig {
    GroupConfig { ring_capacity: 40, ring_per_component: 0, ..GroupConfig::new(id(), LANES) }
}

fn time(ago_s: u64) -> UnixTime {
    UnixTime::try_from(BEGIN_S - ago_s).unwrap()
}

/// Minutes for two hours, hours for two days, days for ten.
fn policy(late_max_s: u64, out_of_range: OutOfRange) -> SeriesPolicy {
    let kept = |granularity, ttl_s| Kept { granularity, ttl_s };
    let all = vec![
        kept(Granularity::MINUTE, 2 * HOUR_S),
        kept(Granularity::HOUR, 48 * HOUR_S),
        kept(Granularity::DAY, 240 * HOUR_S),
    ];
    SeriesPolicy::new(Retention::new(all).unwrap(), late_max_s, 60, out_of_range).unwrap()
}

fn terms(revision: u64, policy: SeriesPolicy) -> GroupCmd {
    let terms = SeriesTerms { revision, policy, since: time(0) };
    GroupCmd::Ledger(ToGroup::Series(vec![("test".to_owned(), terms)]))
}

fn name(key: u32) -> CounterName {
    // The last ones are of a namespace that keeps no series.
    let namespace = if key >= 6 { "plain" } else { "test" };
    CounterName::new(namespace, format!("counter-{key}").as_bytes()).unwrap()
}

fn entry(now_s: u64, cmds: Vec<GroupCmd>) -> GroupEntry {
    GroupEntry { now: WallMs(now_s * 1_000), first_new_slot: 0, new_cells: Vec::new(), cmds }
}

fn started(policy: SeriesPolicy) -> Group {
    let mut group = Group::new(config());
    let start = Start { number: 1, nonce: 7 };
    let confirmed = ToGroup::Confirmed { group: id(), start, accounts: Vec::new(), resets: 0 };
    let cmds = vec![GroupCmd::Boot { nonce: 7, lanes: LANES }, GroupCmd::Ledger(confirmed), terms(1, policy)];
    group.apply(LogIndex(1), &entry(BEGIN_S, cmds));
    while group.poll_effect().is_some() {}
    group
}

fn batch(lane: u8, seq: u64, items: &[(u32, u64)], times: Vec<UnixTime>) -> GroupCmd {
    let items = items.iter().map(|&(slot, delta)| Item { slot, delta, session: None }).collect();
    GroupCmd::Batch(Batch { client: ClientId(1), lane, seq, since: 0, items, times })
}

fn apply(group: &mut Group, entry: &GroupEntry) -> Vec<Effect> {
    group.apply(group.applied().next(), entry);
    group.check_invariants();
    std::iter::from_fn(|| group.poll_effect()).collect()
}

/// Rows as they may be read: without expired buckets.
fn rows(group: &Group) -> BTreeMap<(u32, u8, BucketId), u64> {
    let mut all = BTreeMap::new();
    for number in 0..group.series.len() {
        let component = group.cells.component(number);
        let Some(row) = group.series.whole(number) else { continue };
        let horizon = group.series.horizon_of(component.slot, &group.cells.table).unwrap();
        let kept = row.buckets().filter(|&(bucket, _)| horizon.keeps(bucket));
        all.extend(kept.map(|(bucket, value)| ((component.slot, component.lane, bucket), value)));
    }
    all
}

/// The expected rows.
#[derive(Default)]
struct Recount {
    events: Vec<(u32, u8, UnixTime, u64)>,
}

impl Recount {
    fn rows(&self, group: &Group) -> BTreeMap<(u32, u8, BucketId), u64> {
        let horizon = group.series_of("test").unwrap().horizon();
        let mut all: BTreeMap<_, u64> = BTreeMap::new();
        for &(slot, lane, event, delta) in &self.events {
            for &(granularity, _) in horizon.first() {
                let bucket = BucketId { granularity, index: granularity.index_at(event) };
                if horizon.keeps(bucket) {
                    *all.entry((slot, lane, bucket)).or_default() += delta;
                }
            }
        }
        all
    }
}

/// A consumer that follows the feed, as an aggregator does.
#[derive(Default)]
struct Consumer {
    /// The counters that it wants, if not all.
    scope: Option<Scope>,
    cursor: LogIndex,
    walk: Option<FeedWalk>,
    rows_told: u32,
    /// Slots below are named, or not wanted.
    names: usize,
    rows: BTreeMap<(u32, u8), Row>,
}

impl Consumer {
    fn pull(&self, bytes_max: u32) -> FeedPull {
        let slots_known = self.names as u32;
        let cursor = self.cursor;
        let walk = self.walk;
        let rows_told = self.rows_told;
        FeedPull { group: id(), cursor, walk, slots_known, bytes_max, rows_told, compactions: 0, heard: 0 }
    }

    fn take(&mut self, chunk: FeedChunk) {
        assert_eq!((chunk.base, chunk.first_slot as usize), (self.cursor, self.names));
        assert!(
            tidemark_wire::wire::encode(&tidemark_wire::msg::FromGroup::Feed(chunk.clone())).len()
                <= tidemark_types::limits::MESSAGE_BYTES_MAX
        );
        self.names += chunk.cells.len();
        (self.cursor, self.walk, self.rows_told) = (chunk.upto, chunk.walk, chunk.rows_told);
        for (slot, lane, row) in chunk.rows {
            assert!((slot as usize) < self.names, "a row before its name");
            self.rows.entry((slot, lane)).or_default().merge(&row, &Horizon::everything());
        }
    }

    fn follow(&mut self, group: &mut Group, bytes_max: u32) {
        for pulls in 0.. {
            if !group.has_feed(&self.pull(bytes_max)) {
                return;
            }
            self.go_on(group, bytes_max);
            assert!(pulls < 20_000, "the feed makes no progress");
        }
    }

    fn go_on(&mut self, group: &mut Group, bytes_max: u32) {
        let pull = self.pull(bytes_max);
        let Some(scope) = &mut self.scope else { return self.take(group.tell(&pull)) };
        let told = group.tell_in(&pull, scope);
        let rows = &told.chunk.rows;
        assert!(rows.iter().all(|&(slot, ..)| scope.has(slot, group.table())), "told, and not wanted");
        assert!(rows.iter().all(|&(slot, ..)| slot < told.named), "a row before its name");
        let message = tidemark_wire::msg::FromGroup::FedIn(told.clone());
        assert!(tidemark_wire::wire::encode(&message).len() <= tidemark_types::limits::MESSAGE_BYTES_MAX);
        let named = told.named as usize;
        let all = vec![name(0).total(); named - self.names];
        self.take(FeedChunk { cells: all, ..told.chunk });
    }

    /// The wanted part of the expected rows.
    fn wanted<V>(&self, group: &Group, all: BTreeMap<(u32, u8, BucketId), V>) -> BTreeMap<(u32, u8, BucketId), V> {
        let mut scope = self.scope.clone();
        let mut is_wanted = |slot| scope.as_mut().is_none_or(|scope| scope.has(slot, group.table()));
        all.into_iter().filter(|((slot, ..), _)| is_wanted(*slot)).collect()
    }

    fn holds(&self, group: &Group) -> BTreeMap<(u32, u8, BucketId), u64> {
        let horizon = group.series_of("test").unwrap().horizon();
        let of_row = |(&(slot, lane), row): (&(u32, u8), &Row)| {
            let kept: Vec<_> = row.buckets().filter(|&(bucket, _)| horizon.keeps(bucket)).collect();
            kept.into_iter().map(move |(bucket, value)| ((slot, lane, bucket), value))
        };
        self.rows.iter().flat_map(of_row).collect()
    }
}

/// The counters from one on before another one.
fn scope(from: u32, before: u32) -> Scope {
    Scope::new(vec![KeySpan { from: Some(name(from)), before: Some(name(before)) }])
}

/// A store of checkpoint rows that may be cut off at any row.
#[derive(Debug, Default)]
struct Disk(Mutex<BTreeMap<Vec<u8>, Vec<u8>>>);

impl Shelf for Disk {
    fn read(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.lock().unwrap().get(key).cloned()
    }
}

/// The same, and the memory limit of buckets with rows, if there is one.
#[derive(Default)]
struct Store {
    disk: Arc<Disk>,
    bytes_max: Option<usize>,
}

impl Store {
    fn put(&mut self, rows: impl IntoIterator<Item = Saved>) {
        let mut all = self.disk.0.lock().unwrap();
        for (key, value) in rows {
            match value.is_empty() {
                true => drop(all.remove(&key)),
                false => drop(all.insert(key, value)),
            }
        }
    }

    fn rows(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.disk.0.lock().unwrap().clone()
    }

    fn load(&self) -> Option<Group> {
        let mut group = Group::load(config(), self.rows()).unwrap()?;
        self.limit(&mut group);
        Some(group)
    }

    fn limit(&self, group: &mut Group) {
        self.budget().into_iter().for_each(|budget| group.keep_within(budget));
    }

    fn budget(&self) -> Option<Budget> {
        Some(Budget { bytes_max: self.bytes_max?, after_s: AFTER_S, shelf: self.disk.clone() })
    }

    /// Old buckets on disk.
    fn shelved(&self) -> usize {
        self.disk.0.lock().unwrap().keys().filter(|key| is_shelved(key)).count()
    }
}

/// Goes on with a checkpoint, or begins one, while counting goes on. `covered`: so much of the log it stands for.
fn save_some(group: &mut Group, store: &mut Store, log: &mut Vec<GroupEntry>, covered: &mut usize, bytes: usize) {
    if !group.is_making_checkpoint() {
        group.begin_checkpoint();
        *covered = log.len();
    }
    store.put(group.next_rows(bytes));
    if !group.is_making_checkpoint() {
        log.drain(..*covered);
        group.checkpoint_persisted();
    }
}

/// The group after a crash amid its checkpoint, with this number of rows on disk.
fn restarted(mut group: Group, store: &mut Store, log: &[GroupEntry], cut: u8) -> Group {
    let before_log = group.applied().0 - log.len() as u64;
    let saved = if group.is_making_checkpoint() { group.next_rows(usize::MAX) } else { group.checkpoint() };
    let kept = usize::from(cut) % saved.len();
    store.put(saved.into_iter().take(kept));
    let mut group = store.load().expect("one is complete");
    let covered = (group.applied().0 - before_log) as usize;
    log[covered..].iter().for_each(|entry| drop(apply(&mut group, entry)));
    group.tells_from_here();
    group
}

/// One entry: how far time moves, which lane counts, what and when, and what happens afterwards.
type Step = (u64, u8, Vec<(u32, u64, Option<u64>)>, u8, u8);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ago = prop_oneof![3 => Just(None), 2 => (0..2 * HOUR_S).prop_map(Some), 1 => (0..100 * HOUR_S).prop_map(Some)];
    let item = (0u32..8, 1u64..50, ago);
    let ahead = prop_oneof![4 => 0u64..90, 1 => 0..5 * HOUR_S, 1 => 0..60 * HOUR_S];
    proptest::collection::vec((ahead, 0..LANES, proptest::collection::vec(item, 1..12), 0u8..12, any::<u8>()), 1..40)
}

fn out_of_range(refuses: bool) -> OutOfRange {
    if refuses { OutOfRange::Refused } else { OutOfRange::TotalOnly }
}

/// The times of a batch; none if no item names one.
fn times_of(items: &[(u32, u64, Option<u64>)], event: impl Fn(Option<u64>) -> UnixTime) -> Vec<UnixTime> {
    if items.iter().all(|item| item.2.is_none()) {
        return Vec::new();
    }
    items.iter().map(|item| event(item.2)).collect()
}

fn sums(group: &Group) -> Vec<u64> {
    (0..8).map(|slot| group.sum(slot)).collect()
}

proptest! {
    #[test]
    fn rows_equal_a_recount_and_outlive_crashes_and_whoever_follows_the_feed_has_them(
        steps in steps(), late_h in 1u64..60, refuses: bool, wanted in prop::option::of((0u32..8, 0u32..8)),
        bytes_max in prop_oneof![Just(1u32), 100..3_000u32, Just(1 << 20)],
        memory in prop_oneof![Just(None), Just(Some(0)), (0..4_000usize).prop_map(Some)],
    ) {
        let mut group = started(policy(late_h * HOUR_S, out_of_range(refuses)));
        let mut consumer = Consumer { scope: wanted.map(|(from, before)| scope(from, before)), ..Consumer::default() };
        let mut log = Vec::new();
        let mut recount = Recount::default();
        let mut store = Store { bytes_max: memory, ..Store::default() };
        store.limit(&mut group);
        if late_h % 2 == 0 {
            group.tells_from_here();
        }
        store.put(group.checkpoint());
        let mut now_s = BEGIN_S;
        let mut seqs = [0u64; LANES as usize];
        let mut covered = 0;
        for (ahead_s, lane, items, then, cut) in steps {
            now_s += ahead_s;
            let first_new_slot = group.table().len();
            let last = items.iter().map(|item| item.0).max().unwrap();
            let new_cells = (first_new_slot..=last).map(|key| name(key).total()).collect();
            let event = |ago: Option<u64>| UnixTime::try_from(now_s - ago.unwrap_or(0)).unwrap();
            let times = times_of(&items, event);
            let pairs: Vec<(u32, u64)> = items.iter().map(|&(slot, delta, _)| (slot, delta)).collect();
            let next = batch(lane, seqs[usize::from(lane)] + 1, &pairs, times);
            // A retry in the same entry counts nothing.
            let entry = GroupEntry { first_new_slot, new_cells, ..entry(now_s, vec![next.clone(), next]) };
            let mut state = group.series_of("test").unwrap().clone();
            let sums = sums(&group);
            let effects = apply(&mut group, &entry);
            log.push(entry);
            if let Some(Effect::Refused { error, .. }) = effects.first() {
                prop_assert!(refuses && matches!(error, BatchError::Event { why: NotAdmitted::TooLate { .. }, .. }), "{error}");
                prop_assert_eq!(self::sums(&group), sums, "refused whole");
            } else {
                seqs[usize::from(lane)] += 1;
                state.advance(UnixTime::try_from(now_s).unwrap());
                for (slot, delta, ago) in items.into_iter().filter(|item| item.0 < 6) {
                    if state.admit(event(ago)) == Ok(Admission::Bucketed) {
                        recount.events.push((slot, lane, event(ago), delta));
                    }
                }
            }
            prop_assert_eq!(rows(&group), recount.rows(&group));
            match then {
                0 if !group.is_making_checkpoint() => {
                    store.put(group.checkpoint());
                    log.clear();
                    (cut % 2 == 0).then(|| group.checkpoint_persisted());
                }
                1 => {
                    group = restarted(group, &mut store, &log, cut);
                    prop_assert_eq!(rows(&group), recount.rows(&group));
                    // The consumer comes back, too: chunks that it was told in part are void.
                    (consumer.walk, consumer.rows_told, consumer.names) = (None, 0, 0);
                }
                2..5 => consumer.follow(&mut group, bytes_max),
                5 => consumer.go_on(&mut group, bytes_max),
                _ => save_some(&mut group, &mut store, &mut log, &mut covered, cut.into()),
            }
        }
        // A consumer that has heard nothing walks over all of it.
        let fresh = Consumer { scope: consumer.scope.clone(), ..Consumer::default() };
        for mut consumer in [consumer, fresh] {
            consumer.follow(&mut group, bytes_max);
            prop_assert_eq!(consumer.holds(&group), consumer.wanted(&group, recount.rows(&group)));
        }
    }
}

#[test]
fn what_ended_leaves_memory_is_told_with_what_comes_late_and_goes_from_disk_when_it_is_over() {
    let mut group = started(policy(48 * HOUR_S, OutOfRange::Refused));
    let mut store = Store { bytes_max: Some(0), ..Store::default() };
    store.limit(&mut group);
    store.put(group.checkpoint());
    let mut recount = Recount::default();
    let mut consumer = Consumer::default();
    let mut count = |group: &mut Group, seq: u64, now_s: u64, event_s: u64| {
        let event = UnixTime::try_from(event_s).unwrap();
        let first_new_slot = group.table().len();
        let new_cells = vec![name(0).total()];
        let new_cells = if first_new_slot == 0 { new_cells } else { Vec::new() };
        let counted = batch(0, seq, &[(0, 2)], vec![event]);
        apply(group, &GroupEntry { first_new_slot, new_cells, ..entry(now_s, vec![counted]) });
        recount.events.push((0, 0, event, 2));
        assert_eq!(rows(group), recount.rows(group));
    };
    (0..90).for_each(|minute| count(&mut group, minute + 1, BEGIN_S + 60 * minute, BEGIN_S + 60 * minute));
    consumer.follow(&mut group, 1 << 20);
    let in_memory = group.row_bytes().0;
    let now_s = BEGIN_S + 89 * 60;
    let saved = group.checkpoint();
    assert_eq!((group.row_bytes().0, group.rows_shelved()), (in_memory, 0), "until it is durable");
    store.put(saved);
    assert!(group.checkpoint_persisted(), "the next one comes soon: there is no room for what is left");
    assert!(group.row_bytes().0 < in_memory / 10, "{} of {in_memory}", group.row_bytes().0);
    assert_eq!((group.rows_shelved(), store.shelved()), (1, 1));
    // Late, on either side of a start, and of a further checkpoint.
    count(&mut group, 91, now_s, BEGIN_S + 600);
    consumer.follow(&mut group, 1 << 20);
    assert_eq!(consumer.holds(&group), rows(&group));
    store.put(group.checkpoint());
    group.checkpoint_persisted();
    assert_eq!(store.shelved(), 2, "on either side");
    store.put(group.checkpoint());
    assert!(!group.checkpoint_persisted(), "nothing more can leave");
    let several = NodeConfig::new(GroupId { incarnation: 0, ..id() }, LANES);
    let mut replica = NodeCore::replica(several, store.rows()).unwrap();
    replica.keep_within(store.budget().unwrap());
    assert_eq!(rows(replica.group()), rows(&group), "so it is where a group is on several nodes");
    let mut group = store.load().unwrap();
    assert_eq!(group.rows_shelved(), 1);
    count(&mut group, 92, now_s, BEGIN_S + 600);
    // None of it is kept any more.
    let over_s = now_s + 400 * HOUR_S;
    count(&mut group, 93, over_s, over_s);
    assert_eq!(group.rows_shelved(), 0);
    store.put(group.checkpoint());
    group.checkpoint_persisted();
    assert_eq!(store.shelved(), 0);
    assert_eq!(rows(&store.load().unwrap()), rows(&group));
}

#[test]
fn what_an_unfinished_checkpoint_left_of_a_component_that_is_not_there_again_is_no_hindrance() {
    let mut group = started(policy(HOUR_S, OutOfRange::Refused));
    let mut store = Store::default();
    store.put(group.checkpoint());
    let new_cells = vec![name(0).total()];
    let entry = GroupEntry { new_cells, ..entry(BEGIN_S, vec![batch(0, 1, &[(0, 5)], Vec::new())]) };
    apply(&mut group, &entry);
    let mut unfinished = group.checkpoint();
    unfinished.pop();
    store.put(unfinished);
    let mut group = store.load().expect("the first is complete");
    store.put(group.checkpoint());
    apply(&mut group, &entry);
    store.put(group.checkpoint());
    assert_eq!(rows(&store.load().expect("the last is complete")), rows(&group));
    assert_eq!(rows(&group).values().sum::<u64>(), 15, "in a minute, an hour and a day");
}

#[test]
fn an_entry_of_very_many_rows_is_told_in_pieces() {
    let mut group = started(policy(HOUR_S, OutOfRange::Refused));
    let first_new_slot = 0;
    let new_cells = (0..6).map(|key| name(key).total()).collect();
    apply(&mut group, &GroupEntry { first_new_slot, new_cells, ..entry(BEGIN_S, Vec::new()) });
    let mut consumer = Consumer::default();
    consumer.follow(&mut group, 1 << 20);
    let minutes: Vec<UnixTime> = (0..30_000).map(|n| time(n % 3_600)).collect();
    let items: Vec<(u32, u64)> = (0..30_000).map(|n| (n % 6, 1)).collect();
    let wide = Series::new(&GroupConfig::new(id(), LANES), group.applied().0);
    group.series.changes = wide.changes;
    apply(&mut group, &entry(BEGIN_S, vec![batch(0, 1, &items, minutes)]));
    let mut chunks = 0;
    while group.has_feed(&consumer.pull(1_000)) {
        consumer.take(group.tell(&consumer.pull(1_000)));
        chunks += 1;
    }
    assert!(chunks > 10, "{chunks} chunks");
    assert_eq!(consumer.holds(&group), rows(&group));
    assert_eq!(consumer.walk, None);
}

#[test]
fn terms_that_come_twice_or_late_change_nothing_and_new_ones_change_what_is_kept() {
    let mut group = started(policy(HOUR_S, OutOfRange::Refused));
    let new_cells = vec![name(0).total()];
    let count = batch(0, 1, &[(0, 5)], vec![time(600)]);
    apply(&mut group, &GroupEntry { new_cells, ..entry(BEGIN_S, vec![count]) });
    assert_eq!(rows(&group).len(), 3);
    let kept = vec![Kept { granularity: Granularity::HOUR, ttl_s: 48 * HOUR_S }];
    let hours = SeriesPolicy::new(Retention::new(kept).unwrap(), HOUR_S, 60, OutOfRange::Refused).unwrap();
    assert!(group.would_change(&match terms(2, hours.clone()) {
        GroupCmd::Ledger(message) => message,
        _ => unreachable!("made above"),
    }));
    apply(&mut group, &entry(BEGIN_S + 1, vec![terms(2, hours), terms(1, policy(0, OutOfRange::Refused))]));
    assert_eq!(rows(&group).keys().map(|key| key.2.granularity).collect::<Vec<_>>(), [Granularity::HOUR]);
    let again = batch(0, 2, &[(0, 1)], vec![time(700)]);
    apply(&mut group, &entry(BEGIN_S + 1, vec![again]));
    assert_eq!(rows(&group).values().sum::<u64>(), 6, "the hour that was open goes on");
}

#[test]
fn a_stamp_that_goes_back_is_taken_for_the_latest_one() {
    let mut group = started(policy(HOUR_S, OutOfRange::Refused));
    let new_cells = vec![name(0).total()];
    apply(&mut group, &GroupEntry { new_cells, ..entry(BEGIN_S + 7_200, vec![batch(0, 1, &[(0, 1)], Vec::new())]) });
    apply(&mut group, &entry(BEGIN_S - 7_200, vec![batch(0, 2, &[(0, 1)], Vec::new())]));
    let minute = Granularity::MINUTE.index_at(UnixTime::try_from(BEGIN_S + 7_200).unwrap());
    let bucket = BucketId { granularity: Granularity::MINUTE, index: minute };
    assert_eq!(rows(&group).get(&(0, 0, bucket)), Some(&2));
}

/// Records of changes with room for all; nothing behind the applied state was told.
fn remember_all(group: &mut Group) {
    let config = GroupConfig::new(id(), LANES);
    let version = group.applied().0;
    group.series.changes = Series::new(&config, version).changes;
    group.cells.ring = ChangeRing::new(config.ring_capacity, version);
    group.tells_from_here();
}

#[test]
fn a_row_of_more_buckets_than_an_encoding_takes_is_told_in_pieces() {
    let minutes = Kept { granularity: Granularity::MINUTE, ttl_s: 100 * HOUR_S };
    let of_minutes = SeriesPolicy::new(Retention::new(vec![minutes]).unwrap(), 90 * HOUR_S, 60, OutOfRange::Refused);
    let mut group = started(of_minutes.unwrap());
    apply(&mut group, &GroupEntry { new_cells: vec![name(0).total()], ..entry(BEGIN_S, Vec::new()) });
    let mut consumer = Consumer::default();
    consumer.follow(&mut group, 1 << 20);
    remember_all(&mut group);
    let count = ROW_BUCKETS_MAX + 900;
    let times = (0..count as u64).rev().map(|minute| time(60 * minute)).collect();
    apply(&mut group, &entry(BEGIN_S, vec![batch(0, 1, &vec![(0, 1); count], times)]));
    let chunk = group.tell(&consumer.pull(1 << 20));
    assert_eq!(chunk.rows.iter().map(|(_, _, row)| row.len()).collect::<Vec<_>>(), [ROW_BUCKETS_MAX, 900]);
    consumer.take(chunk);
    assert_eq!(consumer.holds(&group), rows(&group));
}

#[test]
fn what_joined_in_a_row_is_reckoned_so_that_a_message_holds_it() {
    const ROWS: u32 = 40_000;
    let mut group = started(policy(HOUR_S, OutOfRange::Refused));
    let new_cells = (0..ROWS).map(|key| CounterName::new("test", &key.to_be_bytes()).unwrap().total()).collect();
    apply(&mut group, &GroupEntry { new_cells, ..entry(BEGIN_S, Vec::new()) });
    let mut consumer = Consumer::default();
    consumer.follow(&mut group, 1 << 20);
    remember_all(&mut group);
    for minute in 0..8 {
        // Neighbours differ by much, so that each bucket takes many bytes.
        let delta = |slot: u32| 1 + (u64::from(slot) * 8 + minute).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 40);
        let items: Vec<(u32, u64)> = (0..ROWS).map(|slot| (slot, delta(slot))).collect();
        let times = vec![time(60 * (8 - minute)); items.len()];
        group.apply(group.applied().next(), &entry(BEGIN_S, vec![batch(0, minute + 1, &items, times)]));
        while group.poll_effect().is_some() {}
    }
    assert_eq!(group.series.changes().events_since(consumer.cursor.0), u64::from(ROWS), "one change of each");
    let mut chunks = 0;
    while group.has_feed(&consumer.pull(u32::MAX)) {
        consumer.go_on(&mut group, u32::MAX);
        assert_eq!(consumer.walk, None);
        chunks += 1;
    }
    assert!((2..40).contains(&chunks), "{chunks} chunks");
    assert_eq!(consumer.holds(&group), rows(&group));
}
