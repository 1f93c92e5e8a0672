//! An aggregator's promises: readings below milestones after any restart, its rows, and the commands that it lets others propose.

use super::*;
use proptest::prelude::*;
use tidemark_types::ids::{CellId, ClientId, Half, LogIndex, Start};
use tidemark_types::series::{Kept, OutOfRange, Retention, Row, SeriesPolicy, UnixTime};
use tidemark_wire::msg::SeriesTerms;

mod reuse;
mod shelved;

const DC: DcId = DcId(0);
const AT: u64 = 100;

fn counter() -> CounterName {
    CounterName::new("t", b"k").unwrap()
}

fn group(dc: u16) -> GroupId {
    GroupId { dc: DcId(dc), group: 0, incarnation: 1 }
}

/// An aggregator that leads the ledger, its disk, and the ledger.
struct World {
    core: AggregatorCore,
    ledger: Ledger,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    proposed: Vec<LedgerCmd>,
    now: Time,
    fed: u64,
    /// Groups that were asked to repeat messages that may be lost.
    asked_again: Vec<GroupId>,
    /// Messages to groups about the ledger.
    told: Vec<ToGroup>,
    /// Rows are not written before [`World::persist_part`].
    slow_disk: bool,
    out: Option<Rows>,
}

impl World {
    fn new() -> World {
        let core = AggregatorCore::new(AggregatorConfig::new(DC, 1));
        let ledger = Ledger::default();
        let rows = BTreeMap::new();
        let now = Time(1_000);
        let mut world = World {
            core,
            ledger,
            rows,
            proposed: Vec::new(),
            now,
            fed: 0,
            asked_again: Vec::new(),
            told: Vec::new(),
            slow_disk: false,
            out: None,
        };
        let hello = Hello { group: group(0), lanes: 1, nonces: vec![1], number: 1, accounts: Vec::new() };
        world.apply([LedgerCmd::Namespace("t".into()), LedgerCmd::View(DC.into()), LedgerCmd::Hello(hello)]);
        world.say(Input::Leader(Some((DC.into(), 1))));
        world.say(Input::GroupUp { group: group(0) });
        world
    }

    fn say(&mut self, input: Input) {
        self.core.handle(self.now, input, &self.ledger);
        self.core.check_invariants();
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Propose(cmds) => self.proposed.extend(cmds),
                Output::Group { group, msg: ForGroup::Again } => self.asked_again.push(group),
                Output::Group { msg: ForGroup::Ledger(message), .. } => self.told.push(message),
                Output::Persist { rows, .. } if self.slow_disk => self.out = Some(rows),
                Output::Persist { rows, .. } => {
                    self.write(rows);
                    self.core.handle(self.now, Input::Persisted { shard: ShardId::FIRST }, &self.ledger);
                }
                _ => {}
            }
        }
    }

    /// Rows are on the disk.
    fn write(&mut self, rows: Rows) {
        self.rows.extend(rows);
        self.rows.retain(|_, value| !value.is_empty());
    }

    fn apply(&mut self, cmds: impl IntoIterator<Item = LedgerCmd>) {
        for cmd in cmds {
            let index = self.ledger.applied().next();
            self.ledger.apply(index, &cmd);
        }
        let changes = self.ledger.take_changes();
        self.say(Input::Ledger(changes));
    }

    fn wait(&mut self) {
        for _ in 0..40 {
            self.now = self.now + Span::from_millis(50);
            self.say(Input::Tick);
        }
    }

    /// The group's component is `value` now.
    fn count(&mut self, value: u64) {
        let base = LogIndex(self.fed);
        let upto = LogIndex(self.fed + 1);
        self.fed += 1;
        let msg = FromGroup::Feed(FeedChunk {
            group: group(0),
            start: Start { number: 1, nonce: 1 },
            base,
            upto,
            walk: None,
            applied: upto,
            first_slot: 0,
            cells: vec![counter().total()],
            components: vec![(0, 0, value)],
            ..FeedChunk::default()
        });
        self.say(Input::Group { group: group(0), msg });
    }

    fn define(&mut self) {
        self.apply([LedgerCmd::Define {
            counter: counter(),
            revision: self.ledger.revision(&counter()),
            spec: MilestoneSpec { at: vec![AT], ..MilestoneSpec::default() },
        }]);
    }

    fn acks(&self) -> Vec<bool> {
        let ack = |cmd: &LedgerCmd| match cmd {
            LedgerCmd::ViewAck { shown_below, at: AT, .. } => Some(*shown_below),
            _ => None,
        };
        self.proposed.iter().filter_map(ack).collect()
    }

    fn restart(&mut self, ledger: Ledger) {
        let config = AggregatorConfig::new(DC, 2);
        self.core = AggregatorCore::recover(config, self.rows.clone()).unwrap();
        (self.ledger, self.proposed) = (ledger, Vec::new());
        self.say(Input::Tick);
    }

    fn persist_part(&mut self) {
        if let Some(rows) = self.out.take() {
            self.write(rows);
            self.say(Input::Persisted { shard: ShardId::FIRST });
        }
    }

    fn shown(&self) -> (u64, u64) {
        let reading = self.core.read(&counter(), &self.ledger);
        (reading.up, reading.pending)
    }
}

/// The view of one of a pair that has started so often.
fn paired_view(starts: u64) -> View {
    let own = AggregatorId { dc: DC, seat: 1 };
    let mut view = View::new(own, 7);
    view.show_from(starts);
    let valve = tidemark_types::ids::ValveId { group: group(0), lane: 0 };
    view.merge(&counter().total(), valve, AT + 5).unwrap();
    view
}

#[test]
fn arming_waits_for_both_views_of_a_pair_until_one_is_set_aside_and_that_one_shows_nothing_when_it_is_back() {
    let mut ledger = Ledger::default();
    let apply = |ledger: &mut Ledger, cmd: &LedgerCmd| {
        let index = ledger.applied().next();
        ledger.apply(index, cmd);
        ledger.check_invariants();
    };
    let [first, second] = [0, 1].map(|seat| AggregatorId { dc: DC, seat });
    apply(&mut ledger, &LedgerCmd::Namespace("t".into()));
    for view in [first, second] {
        apply(&mut ledger, &LedgerCmd::ViewStart { view, start: 1 });
    }
    let spec = MilestoneSpec { at: vec![AT], ..MilestoneSpec::default() };
    apply(&mut ledger, &LedgerCmd::Define { counter: counter(), revision: 0, spec });
    let answer = ledger.awaiting_view(first).remove(0).answer(first, true);
    apply(&mut ledger, &answer);
    assert_eq!((ledger.next_milestone(&counter()), ledger.awaiting_view(second).len()), (None, 1));
    let aside = ledger.setting_aside(second).unwrap();
    let before = ledger.clone();
    apply(&mut ledger, &aside);
    assert_eq!(ledger.next_milestone(&counter()), Some(AT), "nobody else is waited for");
    assert_eq!(ledger.setting_aside(second), Err(tidemark_ledger::ledger::SetAsideError::Unknown));
    assert_eq!(ledger.setting_aside(first), Err(tidemark_ledger::ledger::SetAsideError::Alone));
    // It comes back with a replica that has heard nothing of this.
    let returned = paired_view(2);
    assert_eq!((returned.read(&counter(), &before).up, returned.read(&counter(), &ledger).up), (0, 0));
    apply(&mut ledger, &LedgerCmd::ViewStart { view: second, start: 2 });
    assert_eq!(returned.read(&counter(), &ledger).up, AT - 1);
    apply(&mut ledger, &aside);
    assert!(ledger.views().contains(&second), "a late copy changes nothing");
    assert_eq!(paired_view(1).read(&counter(), &ledger).up, 0, "an earlier start of it shows no more");
}

#[test]
fn who_is_connected_is_not_set_aside() {
    let mut world = World::new();
    let second = AggregatorId { dc: DC, seat: 1 };
    world.apply([LedgerCmd::ViewStart { view: second, start: 3 }]);
    let aside = LedgerCmd::SetAside { view: second, start: 3 };
    world.say(Input::PeerUp { peer: second, rtt: Span(500) });
    let refused = world.core.setting_aside(second, &world.ledger);
    assert_eq!(refused, Err(tidemark_ledger::ledger::SetAsideError::Connected));
    let other: AggregatorId = DcId(3).into();
    world.say(Input::PeerUp { peer: other, rtt: Span(500) });
    world.say(Input::Peer { peer: other, msg: PeerMsg::Propose(vec![aside.clone()]) });
    world.wait();
    assert!(!world.proposed.contains(&aside), "where the ledger is led it is connected");
    world.say(Input::PeerGone { peer: second });
    assert_eq!(world.core.setting_aside(second, &world.ledger), Ok(aside.clone()));
    world.say(Input::Peer { peer: other, msg: PeerMsg::Propose(vec![aside.clone()]) });
    world.wait();
    assert!(world.proposed.contains(&aside));
}

#[test]
fn an_answer_about_a_milestone_leaves_only_when_its_promise_is_on_disk() {
    let mut world = World::new();
    world.count(90);
    world.wait();
    world.slow_disk = true;
    world.count(91);
    world.wait();
    world.define();
    world.wait();
    assert_eq!(world.acks(), [], "nothing is promised before it is durable");
    world.count(150);
    assert_eq!(world.shown(), (99, 51), "and yet it is kept from the first moment");
    world.persist_part();
    world.wait();
    assert_eq!(world.acks(), [], "the rows that were on their way did not hold it");
    world.persist_part();
    world.wait();
    assert!(world.acks().first() == Some(&true), "{:?}", world.proposed);
}

#[test]
fn a_view_that_has_shown_the_milestone_says_so() {
    let mut world = World::new();
    world.count(AT);
    world.define();
    world.wait();
    assert_eq!(world.acks().first(), Some(&false));
    assert_eq!(world.shown(), (AT, 0));
}

#[test]
fn a_promise_outlives_the_process_however_far_its_ledger_is() {
    let mut world = World::new();
    world.count(90);
    world.wait();
    let before = world.ledger.clone();
    world.define();
    world.wait();
    let answer = world.proposed.iter().find(|cmd| matches!(cmd, LedgerCmd::ViewAck { .. })).cloned().unwrap();
    world.count(150);
    world.wait();
    let rows = world.rows.clone();
    let fed = world.fed;
    let defined = world.ledger.clone();
    let mut answered = defined.clone();
    answered.apply(answered.applied().next(), &answer);

    for (ledger, what) in [(&before, "behind the definition"), (&defined, "before the answer"), (&answered, "after it")]
    {
        (world.rows, world.fed) = (rows.clone(), fed);
        world.restart(ledger.clone());
        assert_eq!(world.shown(), (99, 51), "{what}");
        world.wait();
        assert!(world.acks().iter().all(|below| *below), "{what}: it never takes its promise back");
        world.say(Input::GroupUp { group: group(0) });
        world.count(160);
        assert_eq!(world.shown(), (99, 61), "{what}");
        // The replica catches up.
        world.ledger = answered.clone();
        world.say(Input::Ledger(Changes { counters: vec![counter()], ..Changes::default() }));
        assert_eq!(world.shown(), (99, 61), "{what}, caught up");
    }
}

#[test]
fn a_view_without_its_disk_keeps_what_the_ledger_knows_it_promised() {
    let mut world = World::new();
    world.define();
    world.wait();
    let answer = world.proposed.iter().find(|cmd| matches!(cmd, LedgerCmd::ViewAck { .. })).cloned().unwrap();
    world.apply([answer]);
    world.rows.clear();
    world.restart(world.ledger.clone());
    world.fed = 0;
    world.say(Input::GroupUp { group: group(0) });
    world.count(150);
    assert_eq!(world.shown(), (99, 51));
}

#[test]
fn rows_bring_back_the_view() {
    let mut world = World::new();
    world.count(42);
    world.define();
    world.count(43);
    world.wait();
    world.restart(world.ledger.clone());
    assert_eq!(world.shown(), (43, 0));
    world.core.view().check_all();
    let mut config = AggregatorConfig::new(DC, 3);
    config.seed = 77;
    let other = AggregatorCore::recover(config, world.rows.clone()).unwrap();
    assert_eq!(other.read(&counter(), &world.ledger).up, 43, "whatever the seed of its tables");
}

/// The counts of a group: (cell, valve, component, the value in the bucket of an hour) by entry of its log.
type Told = Vec<(u32, u8, u64, u64)>;

fn cell(number: u32) -> CellId {
    CounterName::new("t", &number.to_be_bytes()).unwrap().total()
}

/// One bucket of an hour of the year 2026.
fn hour(count: u64) -> Row {
    let hour = tidemark_types::series::BucketId { granularity: "1h".parse().unwrap(), index: 496_502 };
    Row::from_buckets([(hour, count)])
}

/// The entries that an aggregator has not heard, in one chunk.
fn tell_rest(world: &mut World, log: &[Told]) {
    let cursor = world.core.feeds[&group(0)].cursor;
    let upto = LogIndex(log.len() as u64);
    let rest = log[cursor.0 as usize..].concat();
    let cells = log.concat().iter().map(|told| told.0).max().map_or(0, |last| last + 1);
    let msg = FromGroup::Feed(FeedChunk {
        group: group(0),
        start: Start { number: 1, nonce: 1 },
        base: cursor,
        upto,
        applied: upto,
        cells: (0..cells).map(cell).collect(),
        components: rest.iter().map(|&(slot, lane, value, _)| (slot, lane, value)).collect(),
        rows: rest.iter().map(|&(slot, lane, _, count)| (slot, lane, hour(count))).collect(),
        ..FeedChunk::default()
    });
    world.say(Input::Group { group: group(0), msg });
}

proptest! {
    #[test]
    fn a_checkpoint_in_parts_while_counting_goes_on_brings_back_all_that_its_cursor_says(
        steps in proptest::collection::vec((0u8..8, 0u32..600, 0u8..4, 1u64..9), 1..120),
        part_bytes in prop_oneof![Just(1usize), 20..3_000usize],
        rows_at_once in prop_oneof![1usize..30, Just(1_024)],
    ) {
        let mut world = World::new();
        let kept = vec![Kept { granularity: "1h".parse().unwrap(), ttl_s: 365 * 24 * 3_600 }];
        let policy = SeriesPolicy::new(Retention::new(kept).unwrap(), 3_600, 300, OutOfRange::Refused).unwrap();
        let terms = SeriesTerms { revision: 1, policy, since: UnixTime::default() };
        world.apply([LedgerCmd::Series { namespace: "t".into(), terms }]);
        let of_parts = |config| AggregatorConfig {
            checkpoint_part_bytes: part_bytes,
            checkpoint_rows_at_once: rows_at_once,
            ..config
        };
        world.core.config = of_parts(world.core.config.clone());
        world.slow_disk = true;
        let mut log: Vec<Told> = Vec::new();
        let mut values: BTreeMap<(u32, u8), u64> = BTreeMap::new();
        for (what, number, lane, delta) in steps {
            match what {
                0..4 => {
                    // Cells come in order.
                    let known = values.keys().last().map_or(0, |last| last.0 + 1);
                    let value = values.entry((number.min(known), lane)).or_default();
                    *value += delta;
                    log.push(vec![(number.min(known), lane, *value, *value)]);
                    tell_rest(&mut world, &log);
                }
                4 => world.wait(),
                5..7 => world.persist_part(),
                _ => {
                    let config = of_parts(AggregatorConfig::new(DC, 2));
                    world.core = AggregatorCore::recover(config, world.rows.clone()).unwrap();
                    world.out = None;
                    world.say(Input::GroupUp { group: group(0) });
                    tell_rest(&mut world, &log);
                }
            }
            world.core.view().check_all();
            for (&(slot, lane), &value) in &values {
                let view = world.core.view();
                let cell = cell(slot);
                let valve = view.cells(ShardId::FIRST).valves().iter().position(|valve| valve.lane == lane).unwrap() as u16;
                let mut components = view.cells(ShardId::FIRST).components(view.cells(ShardId::FIRST).table().find(&cell).unwrap());
                prop_assert_eq!(components.find(|part| part.0 == valve), Some((valve, value)));
                let mut rows = view.rows(&cell.counter, Half::Up, 0);
                prop_assert_eq!(rows.find(|row| row.0.lane == lane).map(|row| row.1.into_owned()), Some(hour(value)));
            }
        }
    }
}

/// A view of `cells` counters with checkpoints a minute apart, of one row in each part, with the first part of one on its way.
fn begun_checkpoint(cells: u32) -> (World, Vec<Told>) {
    let mut world = World::new();
    world.core.config.checkpoint_interval = Span::from_secs(60);
    world.core.config.checkpoint_part_bytes = 1;
    world.slow_disk = true;
    let log: Vec<Told> = vec![(0..cells).map(|number| (number, 0, 1, 1)).collect()];
    tell_rest(&mut world, &log);
    while world.out.is_none() {
        world.wait();
    }
    (world, log)
}

#[test]
fn who_reads_a_view_waits_for_a_few_rows_of_a_checkpoint_and_not_for_a_part() {
    let mut world = World::new();
    (world.slow_disk, world.core.config.checkpoint_rows_at_once) = (true, 100);
    let log: Vec<Told> = vec![(0..1_000).map(|number| (number, 0, 1, 1)).collect()];
    tell_rest(&mut world, &log);
    let mut encoded = 0;
    let mut steps = 0;
    while world.out.is_none() {
        let next = world.core.poll_timeout().expect("it wakes itself");
        world.now = world.now.max(next);
        world.say(Input::Tick);
        let now = world.core.shards[0].checkpoint.encoded();
        assert!(now <= encoded + 100 + 3, "{encoded}, then {now}");
        steps += u32::from(now > encoded);
        encoded = now;
    }
    let rows = world.out.as_ref().map_or(0, Vec::len);
    assert!(rows > 1_000 && steps >= 10, "{rows} rows in {steps} steps");
}

#[test]
fn parts_of_a_checkpoint_are_spread_over_most_of_the_interval() {
    const CELLS: u32 = 1_000;
    const STEP: Span = Span::from_millis(20);
    let (mut world, _) = begun_checkpoint(CELLS);
    let begun = world.now;
    let mut parts = Vec::new();
    while world.core.shards[0].checkpoint.is_being_made() || world.out.is_some() {
        assert!(world.out.is_some() || world.core.poll_timeout().is_some(), "nothing wakes it");
        if world.out.is_some() {
            parts.push(world.now - begun);
            world.persist_part();
        }
        world.now = world.now + STEP;
        world.say(Input::Tick);
    }
    let last = *parts.last().unwrap();
    assert!((Span::from_secs(40)..Span::from_secs(49)).contains(&last), "the last after {last:?}");
    assert!(parts.len() > CELLS as usize, "{} parts", parts.len());
    let longest = parts.windows(2).map(|pair| Span(pair[1].0 - pair[0].0)).max().unwrap();
    assert!(longest < Span::from_secs(3), "nothing for {longest:?}");
    let due = world.core.shards[0].checkpoint.due();
    assert!(
        due.is_none_or(|due| due >= begun + Span::from_secs(60)),
        "the next is due at {due:?}, this began at {begun:?}"
    );
}

#[test]
fn a_flush_does_not_wait_for_the_pace_and_is_done_when_all_that_was_known_is_durable() {
    let (mut world, mut log) = begun_checkpoint(400);
    // Counted behind the beginning of the checkpoint with parts on their way.
    log.push(vec![(0, 0, 7, 7)]);
    tell_rest(&mut world, &log);
    world.say(Input::Flush);
    let at = world.now;
    let mut parts = 0;
    while world.core.flushes_done() == 0 {
        assert!(world.out.is_some(), "nothing is written for a flush after {parts} parts");
        world.persist_part();
        parts += 1;
    }
    assert!(parts > 2 && world.now == at, "{parts} parts");
    assert_eq!(world.core.flushes_done(), 1);
    world.restart(world.ledger.clone());
    assert_eq!(world.core.read(&cell(0).counter, &world.ledger).up, 7);
}

#[test]
fn a_limit_is_durable_with_the_next_part_whatever_the_pace() {
    let (mut world, _) = begun_checkpoint(400);
    world.persist_part();
    assert!(world.out.is_none(), "the next part has time");
    let at = world.now;
    world.define();
    assert!(world.out.is_some() && world.now == at);
    assert_eq!(world.acks(), []);
    world.persist_part();
    world.say(Input::Tick);
    assert_eq!(world.acks(), [true]);
    assert!(world.core.shards[0].checkpoint.is_being_made(), "the checkpoint goes on in its pace");
}

#[test]
fn a_stream_without_versions_left_is_refused() {
    let mut world = World::new();
    world.count(42);
    world.wait();
    const STREAM: [u8; 1] = [7];
    let recovered = |floor: u64, reserved: u64| {
        let stream = postcard::to_allocvec(&(1u64, floor, reserved, vec![0u32])).unwrap();
        let mut rows = world.rows.clone();
        assert!(rows.insert(STREAM.to_vec(), stream).is_some(), "the row is the stream's");
        AggregatorCore::recover(AggregatorConfig::new(DC, 2), rows).map(|core| core.check_invariants())
    };
    assert!(recovered(1, 1 << 40).is_ok());
    for (floor, reserved) in [(u64::MAX, 1 << 40), (1, u64::MAX), (1, u64::MAX - 1), (1, u64::MAX - (1 << 40))] {
        assert!(recovered(floor, reserved).unwrap_err().to_string().contains("no versions are left"));
    }
}

#[test]
fn a_group_hears_of_namespaces_before_it_is_confirmed_and_so_ready() {
    let mut world = World::new();
    world.told.clear();
    let hello = Hello { group: group(0), lanes: 1, nonces: vec![1, 2], number: 2, accounts: Vec::new() };
    world.apply([LedgerCmd::Hello(hello), LedgerCmd::Namespace("u".into())]);
    let at = |wanted: fn(&ToGroup) -> bool| world.told.iter().position(wanted).expect("told");
    let named = at(|message| matches!(message, ToGroup::Namespaces(names) if names.contains(&"u".to_owned())));
    let confirmed = at(|message| matches!(message, ToGroup::Confirmed { start, .. } if start.nonce == 2));
    assert!(named < confirmed, "{:?}", world.told);
}

fn life(key: u32) -> CounterName {
    CounterName::new("t", &key.to_be_bytes()).unwrap()
}

impl World {
    /// Messages about counters that began again since the last call: behind which number, up to which, and how many.
    fn generations_told(&mut self) -> Vec<(u64, u64, usize)> {
        let told = std::mem::take(&mut self.told).into_iter().filter_map(|message| match message {
            ToGroup::Resets { after, upto, begun } => Some((after, upto, begun.len())),
            _ => None,
        });
        told.collect()
    }

    /// The group's feed says that it has heard of resets up to this number.
    fn hear(&mut self, heard: u64) {
        let base = LogIndex(self.fed);
        let upto = LogIndex(self.fed + 1);
        self.fed += 1;
        let start = Start { number: 1, nonce: 1 };
        let chunk = FeedChunk { group: group(0), start, base, upto, applied: upto, heard, ..Default::default() };
        self.say(Input::Group { group: group(0), msg: FromGroup::Feed(chunk) });
    }
}

/// The group gave back the first of two cells: the other one has its number.
#[test]
fn a_feed_whose_slots_have_other_numbers_goes_on_by_the_names_of_now() {
    let mut world = World::new();
    let told = |world: &mut World, compactions, first_slot, cells: Vec<CellId>, components: Vec<(u32, u8, u64)>| {
        let base = LogIndex(world.fed);
        let upto = LogIndex(world.fed + 1);
        let start = Start { number: 1, nonce: 1 };
        let of_group = FeedChunk { group: group(0), start, base, upto, applied: upto, ..FeedChunk::default() };
        let chunk = FeedChunk { first_slot, cells, components, compactions, ..of_group };
        world.say(Input::Group { group: group(0), msg: FromGroup::Feed(chunk) });
        world.core.view().sum_of(&life(1), 0) + 1_000 * world.core.view().sum_of(&life(2), 0)
    };
    let both = vec![life(1).total(), life(2).total()];
    assert_eq!(told(&mut world, 0, 0, both, vec![(0, 0, 5), (1, 0, 6)]), 6_005);
    world.fed += 1;
    assert_eq!(told(&mut world, 1, 1, vec![], vec![(0, 0, 7)]), 6_005, "names begin anew");
    assert_eq!(told(&mut world, 1, 0, vec![life(2).total()], vec![(0, 0, 7)]), 7_005);
    world.fed += 1;
    assert_eq!(told(&mut world, 0, 2, vec![], vec![(0, 0, 9)]), 7_005, "a deposed leader is behind");
    assert_eq!(told(&mut world, 1, 1, vec![], vec![(0, 0, 8)]), 8_005);
}

#[test]
#[cfg(feature = "teeth")]
fn slots_kept_over_a_compaction_are_noticed() {
    use tidemark_types::teeth::{Bug, is_shown_by};
    assert!(is_shown_by(Bug::NumbersKept, a_feed_whose_slots_have_other_numbers_goes_on_by_the_names_of_now));
}

#[test]
fn a_view_says_how_far_resets_were_heard_of_and_drops_what_is_over_when_all_have_passed_them() {
    let mut world = World::new();
    let chunk = |world: &mut World, heard, components: Vec<(u32, u8, u64)>| {
        let base = LogIndex(world.fed);
        let upto = LogIndex(world.fed + 1);
        let start = Start { number: 1, nonce: 1 };
        let cells = if base == LogIndex(0) { vec![life(1).total(), life(1).total_of(1)] } else { Vec::new() };
        let first_slot = if cells.is_empty() { 2 } else { 0 };
        let of_group = FeedChunk { group: group(0), start, base, upto, applied: upto, ..FeedChunk::default() };
        world.fed += 1;
        let chunk = FeedChunk { first_slot, cells, components, heard, ..of_group };
        world.say(Input::Group { group: group(0), msg: FromGroup::Feed(chunk) });
        (world.core.view().sum_of(&life(1), 0), world.core.view().sum_of(&life(1), 1))
    };
    let said = |world: &mut World| {
        world.wait();
        let said = std::mem::take(&mut world.proposed).into_iter();
        said.filter(|cmd| matches!(cmd, LedgerCmd::ResetsHeard { .. })).collect::<Vec<_>>()
    };
    assert_eq!(chunk(&mut world, 0, vec![(0, 0, 5), (1, 0, 7)]), (5, 7));
    world.apply([LedgerCmd::Reset { counter: life(1), revision: 0, keeps_milestones: false }]);
    assert_eq!(said(&mut world), [], "its group has not heard");
    assert_eq!(chunk(&mut world, 1, vec![(0, 0, 6)]), (6, 7));
    let heard = LedgerCmd::ResetsHeard { view: DC.into(), upto: 1 };
    let told = said(&mut world);
    assert!(!told.is_empty() && told.iter().all(|cmd| *cmd == heard), "until the ledger shows it: {told:?}");
    world.apply([heard]);
    assert_eq!(said(&mut world), []);
    assert_eq!(chunk(&mut world, 1, vec![(0, 0, 9), (1, 0, 8)]), (0, 8), "what is late is not taken");
    world.core.view().check_all();
    said(&mut world);
    let core = AggregatorCore::recover(AggregatorConfig::new(DC, 2), world.rows.clone()).unwrap();
    assert_eq!((core.view().sum_of(&life(1), 0), core.view().sum_of(&life(1), 1)), (0, 8), "nor is it on disk");
}

#[test]
fn an_aggregator_tells_a_group_only_what_it_has_not_heard() {
    const LIVES: u32 = 20_000;
    let mut world = World::new();
    world.say(Input::GroupGone { group: group(0) });
    for key in 0..LIVES {
        let index = world.ledger.applied().next();
        world.ledger.apply(index, &LedgerCmd::Reset { counter: life(key), revision: 0, keeps_milestones: false });
    }
    drop(world.ledger.take_changes());
    world.told.clear();
    world.say(Input::GroupUp { group: group(0) });
    let page = |first: u64| (first, first + 1_024, 1_024);
    let first = [0, 1, 2, 3].map(|at| page(at * 1_024));
    assert_eq!(world.generations_told(), first, "no more at once");
    world.wait();
    assert_eq!(world.generations_told(), first, "again, since nothing was heard");
    world.hear(1_500);
    assert_eq!(world.generations_told(), [page(4_096)], "as many as there is room for");
    // It has heard of all but the last ones before, by another aggregator.
    world.hear(19_990);
    assert_eq!(world.generations_told(), [(19_990, 20_000, 10)]);
    // Lost: it is told again.
    (0..20).for_each(|_| world.wait());
    let again = world.generations_told();
    assert!(!again.is_empty() && again.iter().all(|told| *told == (19_990, 20_000, 10)), "{again:?}");
    world.apply([LedgerCmd::Reset { counter: life(7), revision: 1, keeps_milestones: false }]);
    assert_eq!(world.generations_told(), [(20_000, 20_001, 1)], "one more is told at once");
    world.hear(20_001);
    (0..20).for_each(|_| world.wait());
    assert_eq!(world.generations_told(), []);
    // After it was away it is told the changes that it missed.
    world.say(Input::GroupGone { group: group(0) });
    world.apply([LedgerCmd::Reset { counter: life(8), revision: 1, keeps_milestones: false }]);
    assert_eq!(world.generations_told(), []);
    world.say(Input::GroupUp { group: group(0) });
    assert_eq!(world.generations_told(), [(20_001, 20_002, 1)]);
}

/// A group reports the number of a reset with its feed. It begins a guarded counter again by another message.
fn tell_a_reset_and_not_its_account() {
    let mut world = World::new();
    world.define();
    let report = |epoch, base| {
        let first = tidemark_wire::msg::Report::first(counter(), epoch, group(0), 1);
        LedgerCmd::Report(tidemark_wire::msg::Report { base, report_no: 1, ..first })
    };
    world.apply([report(1, 0)]);
    let reset = world.ledger.reset(&counter(), true, true).unwrap();
    world.apply([reset]);
    let unheard = |world: &World| world.core.unheard(&counter(), 1, &world.ledger);
    assert_eq!(unheard(&world), [group(0)]);
    world.hear(1);
    assert_eq!(unheard(&world), [group(0)], "it counts in the ended generation");
    world.apply([report(2, 3)]);
    assert_eq!(unheard(&world), []);
}

#[test]
fn a_guarded_counter_began_again_where_its_group_says_so() {
    tell_a_reset_and_not_its_account();
}

#[cfg(feature = "teeth")]
#[test]
fn a_guarded_counter_that_is_taken_for_begun_is_noticed() {
    assert!(tidemark_types::teeth::is_shown_by(Bug::BegunUnseen, tell_a_reset_and_not_its_account));
}

#[test]
fn groups_say_again_what_is_lost_as_soon_as_the_leader_can_be_reached() {
    let mut world = World::new();
    world.wait();
    world.asked_again.clear();
    world.say(Input::Leader(Some((DcId(3).into(), 2))));
    world.say(Input::PeerUp { peer: DcId(4).into(), rtt: Span::from_millis(50) });
    world.wait();
    assert_eq!(world.asked_again, [], "the leader is not connected");
    world.say(Input::PeerUp { peer: DcId(3).into(), rtt: Span::from_millis(50) });
    world.say(Input::PeerGone { peer: DcId(3).into() });
    world.say(Input::PeerUp { peer: DcId(3).into(), rtt: Span::from_millis(50) });
    assert_eq!(world.asked_again, [group(0)], "once, however often the link comes and goes");
    world.wait();
    world.say(Input::Leader(Some((DcId(4).into(), 3))));
    assert_eq!(world.asked_again, [group(0); 2], "another leader, which is connected");
    world.wait();
    world.say(Input::Leader(None));
    world.say(Input::Leader(Some((DC.into(), 4))));
    assert_eq!(world.asked_again, [group(0); 3], "this data centre leads");
}

#[test]
fn another_data_centre_speaks_only_for_itself() {
    let mut world = World::new();
    world.define();
    let report = |dc| LedgerCmd::Report(Report::first(counter(), 1, group(dc), 1));
    let grant = LedgerCmd::Grant { counter: counter(), epoch: 1, group: group(3), amount: 9, if_awarded: None };
    let said =
        vec![report(3), report(0), LedgerCmd::View(DcId(4).into()), LedgerCmd::View(DcId(3).into()), grant.clone()];
    world.proposed.clear();
    world.say(Input::PeerUp { peer: DcId(3).into(), rtt: Span::from_millis(50) });
    world.say(Input::Peer { peer: DcId(3).into(), msg: PeerMsg::Propose(said) });
    world.wait();
    assert!(world.proposed.contains(&report(3)) && world.proposed.contains(&LedgerCmd::View(DcId(3).into())));
    let foreign = [report(0), LedgerCmd::View(DcId(4).into()), grant];
    assert!(!foreign.iter().any(|cmd| world.proposed.contains(cmd)), "{:?}", world.proposed);
}

proptest! {
    #[test]
    fn changed_rows_are_refused_or_read_but_never_panic(
        at in any::<usize>(), byte in any::<usize>(), xor in 1u8.., cut in any::<bool>(), drop_row in any::<bool>()
    ) {
        let mut world = World::new();
        world.count(42);
        world.define();
        world.wait();
        let mut rows: Vec<_> = world.rows.clone().into_iter().collect();
        let at = at % rows.len();
        if drop_row {
            rows.remove(at);
        } else if cut {
            let bytes = rows[at].1.len();
            rows[at].1.truncate(byte % (bytes + 1));
        } else if byte % 3 == 0 {
            let bytes = rows[at].0.len();
            rows[at].0[byte % bytes] ^= xor;
        } else if !rows[at].1.is_empty() {
            let bytes = rows[at].1.len();
            rows[at].1[byte % bytes] ^= xor;
        }
        if let Ok(core) = AggregatorCore::recover(AggregatorConfig::new(DC, 2), rows) {
            (world.core, world.fed) = (core, 0);
            world.say(Input::GroupUp { group: group(0) });
            world.count(50);
            world.wait();
            world.core.view().check_all();
        }
    }

    #[test]
    fn hostile_chunks_never_panic(
        base in 0u64..3, upto in any::<u64>(), first_slot in 0u32..4, names in 0usize..3,
        components in proptest::collection::vec((0u32..5, any::<u8>(), any::<u64>()), 0..6),
    ) {
        let mut world = World::new();
        let cells = (0..names).map(|i| CounterName::new("t", &[i as u8 + 1]).unwrap().total()).collect();
        let chunk = FeedChunk {
            group: group(0),
            start: Start { number: 1, nonce: 1 }, base: LogIndex(base), upto: LogIndex(upto), walk: None, applied: LogIndex(upto), first_slot,
            cells, components,
            ..FeedChunk::default()
        };
        world.say(Input::Group { group: group(0), msg: FromGroup::Feed(chunk) });
        world.wait();
        world.core.view().check_all();
    }
}

#[test]
fn a_group_is_told_again_of_places_that_it_has_not_acknowledged_and_then_no_more() {
    let mut world = World::new();
    world.define();
    let item = OfferItem { delta: 1, session: None, client: ClientId(1), lane: 0, seq: 1, idx: 0 };
    let body = OfferBody::Items(vec![item]);
    let offer = Offer { counter: counter(), epoch: 1, group: group(0), start: 1, first_pos: 0, body };
    world.apply([LedgerCmd::Report(Report::first(counter(), 1, group(0), 1)), LedgerCmd::Offer(offer)]);
    let places = |told: &[ToGroup]| told.iter().filter(|told| matches!(told, ToGroup::Placed(_))).count();
    assert_eq!(places(&world.told), 1, "and that message is lost");
    world.told.clear();
    world.wait();
    assert!(places(&world.told) > 0, "{:?}", world.told);
    let report = Report { report_no: 2, placed_upto: 1, ..Report::first(counter(), 1, group(0), 1) };
    world.apply([LedgerCmd::Report(report)]);
    world.told.clear();
    world.wait();
    assert_eq!(places(&world.told), 0);
}

/// Number 1 is awarded, and may be claimed for a second.
fn ledger_with_a_claim() -> Ledger {
    let spec = MilestoneSpec { every: Some(1), ..MilestoneSpec::default() };
    let rule = Some(ClaimRule { period_s: 1, fallback: Fallback::Nobody });
    let item = OfferItem { delta: 1, session: None, client: ClientId(1), lane: 0, seq: 1, idx: 0 };
    let body = OfferBody::Items(vec![item]);
    let cmds = [
        LedgerCmd::Namespace("t".into()),
        LedgerCmd::Define { counter: counter(), revision: 0, spec },
        LedgerCmd::ClaimRule { counter: counter(), revision: 0, rule },
        LedgerCmd::Hello(Hello { group: group(0), lanes: 1, nonces: vec![1], number: 1, accounts: Vec::new() }),
        LedgerCmd::Offer(Offer { counter: counter(), epoch: 1, group: group(0), start: 1, first_pos: 0, body }),
    ];
    let mut ledger = Ledger::default();
    cmds.iter().zip(1..).for_each(|(cmd, index)| ledger.apply(LogIndex(index), cmd));
    ledger
}

#[test]
fn who_leads_says_the_time_of_claims_and_ends_none_at_first() {
    let mut world = World::new();
    world.ledger = ledger_with_a_claim();
    let said = |world: &mut World, wall: u64| -> Vec<LedgerCmd> {
        world.proposed.clear();
        world.say(Input::Clock(WallMs(wall)));
        let timed = |cmd: &LedgerCmd| matches!(cmd, LedgerCmd::ClaimUntil { .. } | LedgerCmd::ClaimOver { .. });
        world.proposed.iter().filter(|cmd| timed(cmd)).cloned().collect()
    };
    let until = said(&mut world, 5_000);
    assert!(matches!(until[..], [LedgerCmd::ClaimUntil { at: 1, until: WallMs(6_000), .. }]), "{until:?}");
    world.apply(until);
    assert_eq!(said(&mut world, 9_000), [], "it has just begun to lead");
    world.now = world.now + LEADS_BEFORE_IT_ENDS;
    assert!(matches!(said(&mut world, 9_000)[..], [LedgerCmd::ClaimOver { at: 1, .. }]));
    world.say(Input::Leader(None));
    world.say(Input::Leader(Some((DC.into(), 5))));
    assert_eq!(said(&mut world, 9_000), [], "it has begun again");
    world.now = world.now + LEADS_BEFORE_IT_ENDS;
    world.say(Input::Leader(Some((DC.into(), 6))));
    assert_eq!(said(&mut world, 9_000), [], "it leads in a new term, and what was between nobody told it");
    world.say(Input::Leader(Some((DcId(3).into(), 7))));
    world.now = world.now + LEADS_BEFORE_IT_ENDS;
    assert_eq!(said(&mut world, 9_000), [], "another one leads");
}

#[test]
fn leader_says_its_clock_in_entries_that_may_award() {
    let mut world = World::new();
    let peer = AggregatorId::from(DcId(1));
    let body = OfferBody::Block { count: 1, delta: 1 };
    let offer = LedgerCmd::Offer(Offer { counter: counter(), epoch: 1, group: group(1), start: 1, first_pos: 0, body });
    let proposed = |world: &mut World, cmds: Vec<LedgerCmd>| -> Vec<LedgerCmd> {
        world.proposed.clear();
        world.say(Input::Peer { peer, msg: PeerMsg::Propose(cmds) });
        world.wait();
        world.proposed.clone()
    };
    let is_clock = |cmd: &LedgerCmd| matches!(cmd, LedgerCmd::Clock(_));
    let before = proposed(&mut world, vec![offer.clone()]);
    assert!(before.contains(&offer) && !before.iter().any(is_clock), "it was not told what its clock shows");
    world.say(Input::Clock(WallMs(5_000)));
    world.now = world.now + Span::from_millis(700);
    let said = proposed(&mut world, vec![LedgerCmd::Clock(WallMs(1)), offer.clone()]);
    let at = said.iter().position(|cmd| *cmd == offer).unwrap();
    assert!(matches!(said[at - 1], LedgerCmd::Clock(WallMs(5_700..=5_800))), "{said:?}");
    assert_eq!(said.iter().filter(|cmd| is_clock(cmd)).count(), 1, "a peer does not say the leader's clock: {said:?}");
    let said = proposed(&mut world, vec![LedgerCmd::Namespace("other".into())]);
    assert!(!said.iter().any(is_clock), "nothing is awarded by it: {said:?}");
}

#[test]
fn a_view_says_what_it_shows_of_a_lost_group_before_it_answers_for_a_milestone() {
    let mut world = World::new();
    world.count(60);
    world.say(Input::GroupGone { group: group(0) });
    let cmd = world.ledger.declaration(group(0), true).unwrap();
    world.apply([cmd]);
    world.define();
    world.wait();
    let remains = LedgerCmd::Remains { counter: counter(), epoch: 1, group: group(0), component: 60 };
    assert!(world.proposed.contains(&remains) && world.acks().is_empty(), "{:?}", world.proposed);
    world.apply([remains]);
    world.wait();
    assert!(world.acks().contains(&true));
    let ack = world.ledger.awaiting_view(DC.into()).remove(0).answer(DC.into(), true);
    world.apply([ack]);
    assert_eq!((world.ledger.next_milestone(&counter()), world.ledger.certain(&counter())), (Some(AT), 60));
    assert_eq!(world.shown(), (60, 0));
    // A view that has heard of none of it shows the ledger's count.
    world.rows.clear();
    world.restart(world.ledger.clone());
    assert_eq!(world.shown(), (60, 0));
}

#[test]
fn a_group_that_was_heard_of_is_not_declared_lost_unless_that_is_forced() {
    let mut world = World::new();
    let declared =
        |world: &World, forced: bool| world.core.declaration(world.now, group(0), forced, &world.ledger).is_ok();
    let proposes = |world: &World| world.proposed.iter().any(|cmd| matches!(cmd, LedgerCmd::DeclareLost { .. }));
    (0..6).for_each(|_| world.wait());
    assert!(!declared(&world, false) && declared(&world, true), "it is connected");
    world.say(Input::GroupGone { group: group(0) });
    world.count(1);
    assert!(!declared(&world, false), "it has just said something");
    (0..6).for_each(|_| world.wait());
    assert!(declared(&world, false));
    // The ledger's leader judges again: it may have heard of the group meanwhile.
    let cmd = world.core.declaration(world.now, group(0), false, &world.ledger).unwrap();
    world.count(2);
    world.say(Input::Submit(vec![cmd]));
    world.wait();
    assert!(!proposes(&world));
    (0..6).for_each(|_| world.wait());
    assert!(proposes(&world));
}

/// The holders of a guarded counter send its readings to the other aggregators.
#[test]
fn a_reading_of_another_is_shown_where_its_view_is_cut_as_here_and_it_holds_the_counter() {
    let name = |key: &&[u8]| CounterName::new("t", key).unwrap();
    let cuts = |at: [&[u8]; 3]| Ranges::of_cuts(at.iter().map(name).collect()).unwrap();
    let aggregator = |seat| AggregatorId { dc: DC, seat };
    // The counter is in the second range, of seats 1 and 2; seats 2 and 3 have the third.
    let here = cuts([b"g", b"n", b"t"]);
    let elsewhere = cuts([b"g", b"n", b"u"]);
    let both = ShardId(2);
    let reading = Reading { up: 7, ..Reading::default() };
    let shown = |from: AggregatorId, of: &Ranges| {
        let own = aggregator(3);
        let seats = Seats::new(vec![4]);
        let ranges = here.clone();
        let mut world = World::new();
        world.core = AggregatorCore::new(AggregatorConfig { own, seats, ranges, ..AggregatorConfig::new(DC, 1) });
        world.apply([LedgerCmd::ViewStart { view: from, start: 1 }]);
        world.define();
        world.say(Input::PeerUp { peer: from, rtt: Span::from_millis(1) });
        let digest = ShardMsg::Digest(Digest { cuts: of.fingerprint(), ..Digest::default() });
        world.say(Input::Peer { peer: from, msg: PeerMsg::Shard { shard: both, msg: digest } });
        let msg = PeerMsg::Reading { counter: counter(), reading };
        world.core.handle(world.now, Input::Peer { peer: from, msg }, &world.ledger);
        world.now = world.now + Span::from_secs(1);
        world.core.handle(world.now, Input::Tick, &world.ledger);
        let total = Event::Total { counter: counter(), reading };
        let is_shown = std::iter::from_fn(|| world.core.poll_output())
            .any(|output| matches!(output, Output::Notify(event) if event == total));
        (world.core.is_cut_alike(from), is_shown)
    };
    assert_eq!(shown(aggregator(1), &here), (true, true));
    assert_eq!(shown(aggregator(2), &here), (true, true));
    assert_eq!(shown(aggregator(2), &elsewhere), (false, false));
    assert_eq!(shown(aggregator(0), &here), (true, false), "it does not hold the counter");
    assert_eq!(shown(AggregatorId { dc: DcId(1), seat: 1 }, &here), (true, false), "of another data centre");
}
