//! Data gathered from processes that each hold some shards, against a view that holds them all: for any question, and with
//! answers cut at any place.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_proto::graph::{Edge, EdgeChange};
use tidemark_proto::ids::{CounterName, DcId, GroupId, Half, LogIndex, ValveId};
use tidemark_proto::ledger::{EdgeAuthor, Ledger};
use tidemark_proto::limits::MESSAGE_BYTES_MAX;
use tidemark_proto::msg::{LedgerCmd, Reading, SeriesTerms};
use tidemark_proto::query::*;
use tidemark_proto::series::calendar::{Anchor, CalendarUnit, Zone};
use tidemark_proto::series::{BucketId, Kept, OutOfRange, Retention, Row, SeriesPolicy, Totals, UnixTime};
use tidemark_proto::shards::{Ranges, ShardId};
use tidemark_proto::time::WallMs;
use tidemark_proto::view::View;
use tidemark_proto::wire::{decode, encode};

const COUNTERS: u8 = 7;
const NOW_S: u64 = 1_790_000_123;
const DAY_S: u64 = 86_400;
const AT: WallMs = WallMs(NOW_S * 1_000);

fn time(s: u64) -> UnixTime {
    UnixTime::try_from(s).unwrap()
}

/// A counter of two namespaces; the second keeps fewer buckets.
fn counter(number: u8) -> CounterName {
    CounterName::new(if number < 5 { "qa" } else { "shop" }, &[b'0' + number]).unwrap()
}

fn counters() -> Vec<CounterName> {
    (0..COUNTERS).map(counter).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Count { counter: u8, half: Half, valve: u8, ago_s: u64, delta: u64 },
    Edge { inserts: bool, from: u8, to: u8 },
    Reset(u8),
    Work(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ago_s = prop_oneof![0..200u64, 0..7_200u64, 0..3 * DAY_S, 0..30 * DAY_S];
    let half = prop::sample::select(vec![Half::Up, Half::Up, Half::Down]);
    let count = (0..COUNTERS, half, 0u8..2, ago_s, 1u64..100);
    let edge = (prop::bool::weighted(0.8), 0..COUNTERS, 0..COUNTERS);
    let step = prop_oneof![
        8 => count.prop_map(|(counter, half, valve, ago_s, delta)| Step::Count { counter, half, valve, ago_s, delta }),
        4 => edge.prop_map(|(inserts, from, to)| Step::Edge { inserts, from, to }),
        1 => (0..COUNTERS).prop_map(Step::Reset),
        4 => (1usize..20).prop_map(Step::Work),
    ];
    proptest::collection::vec(step, 1..60)
}

fn windows() -> impl Strategy<Value = Vec<WindowQuery>> {
    let period = prop::sample::select(vec!["10m", "90m", "1d", "3d", "20d"]);
    let unit = prop::sample::select(vec![CalendarUnit::Hour, CalendarUnit::Day, CalendarUnit::Week]);
    let asked = prop_oneof![
        period.prop_map(|text| Asked::Last(text.parse().unwrap())),
        (unit, 0u32..3).prop_map(|(unit, back)| Asked::Unit { unit, back }),
    ];
    let zone = prop::sample::select(vec!["UTC", "Asia/Kathmandu"]);
    let query = (asked, zone, prop::option::of(0..100_000u64), any::<bool>());
    let query = query.prop_map(|(asked, zone, error_s, compare)| {
        let zone = Zone::named(zone).unwrap();
        WindowQuery { asked, zone, error_s, compare }
    });
    proptest::collection::vec(query, 0..4)
}

fn series() -> impl Strategy<Value = SeriesQuery> {
    let last = prop::sample::select(vec!["2h", "1d", "3d", "20d"]);
    let every = prop::sample::select(vec!["5m", "90m", "6h", "1d"]);
    (last, every, any::<bool>()).prop_map(|(last, every, calendar)| SeriesQuery {
        asked: Asked::Last(last.parse().unwrap()),
        every: every.parse().unwrap(),
        anchor: if calendar { Anchor::Calendar } else { Anchor::End },
        zone: Zone::UTC,
        error_s: None,
    })
}

/// A view cut into shards, and which process is said to hold each.
struct World {
    ledger: Ledger,
    view: View,
    counted: BTreeMap<(u8, Half, u32, u8), (u64, Row)>,
    holders: Vec<usize>,
}

impl World {
    fn new(cuts: &BTreeSet<u8>, holders: Vec<usize>) -> World {
        let ranges = Ranges::of_cuts(cuts.iter().copied().map(counter).collect()).unwrap();
        let view = View::cut(DcId(0), 1, ranges);
        let mut world = World { ledger: Ledger::default(), view, counted: BTreeMap::new(), holders };
        world.view.on_time(time(NOW_S));
        let kept =
            [("qa", vec![("1m", 7_200), ("1h", 3 * DAY_S), ("1d", 25 * DAY_S)]), ("shop", vec![("1h", 2 * DAY_S)])];
        for (namespace, kept) in kept {
            let kept = kept.into_iter().map(|(text, ttl_s)| Kept { granularity: text.parse().unwrap(), ttl_s });
            let policy = SeriesPolicy::new(Retention::new(kept.collect()).unwrap(), 0, 300, OutOfRange::TotalOnly);
            let terms = SeriesTerms { revision: 1, policy: policy.unwrap(), since: time(NOW_S - 30 * DAY_S) };
            world.say(LedgerCmd::UpDown(namespace.to_owned()));
            world.say(LedgerCmd::Series { namespace: namespace.to_owned(), terms });
        }
        for (from, to) in [("qa", "shop"), ("shop", "qa")] {
            world.say(LedgerCmd::AllowEdges { from: from.to_owned(), to: to.to_owned() });
        }
        world
    }

    fn say(&mut self, cmd: LedgerCmd) {
        self.ledger.apply(LogIndex(self.ledger.applied().0 + 1), &cmd);
        let changes = self.ledger.take_changes();
        self.view.on_ledger(&changes, &self.ledger);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Count { counter: number, half, valve, ago_s, delta } => {
                let name = counter(number);
                let generation = self.ledger.resets().generation(&name);
                let horizon = self.view.series_of(name.namespace()).unwrap().horizon.clone();
                let (count, row) = self.counted.entry((number, half, generation, valve)).or_default();
                *count += delta;
                row.add(&horizon, time(NOW_S - ago_s), delta).unwrap();
                let valve = ValveId { group: GroupId { dc: DcId(0), group: 0, incarnation: 1 }, lane: valve };
                let cell = name.half_of(half, generation);
                self.view.merge(&cell, valve, *count).unwrap();
                self.view.merge_row(&cell, valve, row).unwrap();
            }
            Step::Edge { inserts, from, to } => {
                let edge = Edge { from: counter(from), to: counter(to) };
                let change = if inserts { EdgeChange::Insert(edge) } else { EdgeChange::Remove(edge) };
                let decided = self.ledger.edges_each(&[change], EdgeAuthor::alone("who", &self.ledger), true).unwrap();
                decided.cmd.into_iter().for_each(|cmd| self.say(cmd));
            }
            Step::Reset(number) => {
                let cmd = self.ledger.reset(&counter(number), true, true).unwrap();
                self.say(cmd);
            }
            Step::Work(budget) => drop(self.view.step_graph(budget, &self.ledger)),
        }
    }

    fn settle(&mut self) {
        while self.view.step_graph(1_000, &self.ledger) {}
    }

    /// The shards of each process that holds any.
    fn held(&self) -> BTreeMap<usize, BTreeSet<ShardId>> {
        let mut held: BTreeMap<usize, BTreeSet<ShardId>> = BTreeMap::new();
        for (shard, _) in self.view.shards() {
            held.entry(self.holders[usize::from(shard.0) % self.holders.len()]).or_default().insert(shard);
        }
        held
    }

    /// All data of some shards, in messages of at most `buckets_max` buckets.
    fn told(&self, gathering: &Gathering, shards: BTreeSet<ShardId>, wanted: &Wanted, buckets_max: usize) -> Inquiry {
        let mut inquiry = gathering.inquiry(shards, wanted);
        while let Some(ask) = inquiry.ask() {
            let ask = ShardAsk::Counts(ask);
            let ShardAsk::Counts(ask) = again(&ask) else { panic!("another question") };
            let answer = gather_some(&self.view, &self.ledger, &ask, buckets_max);
            assert!(answer.counts.iter().map(Counts::len).sum::<usize>() <= buckets_max);
            let ShardAnswer::Counts(answer) = again(&ShardAnswer::Counts(answer)) else { panic!("another answer") };
            inquiry.take(answer).unwrap();
        }
        inquiry
    }

    fn gathered(&self, gathering: &Gathering, wanted: &Wanted, buckets_max: usize) -> Gathered {
        let mut gathering = gathering.clone();
        for shards in self.held().into_values() {
            let inquiry = self.told(&gathering, shards, wanted, buckets_max);
            gathering.add(inquiry).unwrap();
        }
        gathering.complete().unwrap()
    }
}

/// A message after encoding and decoding.
fn again<M: tidemark_proto::wire::Message + PartialEq + std::fmt::Debug>(message: &M) -> M {
    let arrived = decode(&encode(message)).unwrap();
    assert_eq!(&arrived, message);
    arrived
}

/// Answers of a source to all questions, and which buckets are told for them.
struct Questions<'a> {
    windows: &'a [WindowQuery],
    series: &'a SeriesQuery,
}

impl Questions<'_> {
    fn series_of(&self, source: &impl Source, counter: &CounterName) -> Result<SeriesRead, QueryError> {
        read_series(source, AT, counter.namespace(), std::slice::from_ref(counter), self.series)
    }

    /// Asks the processes for the buckets of the plans, and for everything, and compares with one that holds all.
    fn compare(&self, world: &World, of: Of, whole: &impl Source, buckets_max: usize) -> Result<(), TestCaseError> {
        let all = counters();
        let begun = Gathering::begin(of, &world.view, &world.ledger, &counters());
        let everything = world.gathered(&begun, &Wanted::everything(), buckets_max);
        for namespace in ["qa", "shop"] {
            prop_assert_eq!(everything.horizon(namespace), whole.horizon(namespace));
        }
        let expected = read_at(whole, AT, &all, self.windows);
        prop_assert_eq!(&read_at(&everything, AT, &all, self.windows), &expected);
        match begun.wanted_at(AT, &all, self.windows) {
            Err(refused) => prop_assert_eq!(Err(refused), expected),
            Ok(wanted) => {
                let gathered = world.gathered(&begun, &wanted, buckets_max);
                prop_assert_eq!(read_at(&gathered, AT, &all, self.windows), expected);
            }
        }
        for counter in &all {
            let expected = self.series_of(whole, counter);
            prop_assert_eq!(&self.series_of(&everything, counter), &expected);
            match begun.wanted_series(AT, counter.namespace(), self.series) {
                Err(refused) => prop_assert_eq!(Err(refused), expected),
                Ok(wanted) => {
                    let gathered = world.gathered(&begun, &wanted, buckets_max);
                    prop_assert_eq!(self.series_of(&gathered, counter), expected);
                }
            }
        }
        if of == Of::Direct {
            let exported =
                |source: &Gathered| all.iter().map(|counter| export(source, counter)).collect::<Vec<Exported>>();
            let expected: Vec<Exported> = all.iter().map(|counter| export(whole, counter)).collect();
            prop_assert_eq!(exported(&everything), expected);
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn what_is_gathered_is_what_one_process_with_all_shards_shows(
        cuts in proptest::collection::btree_set(1..COUNTERS, 0..5),
        holders in proptest::collection::vec(0usize..4, 6),
        steps in steps(),
        (is_registered, settles) in any::<(bool, bool)>(),
        (windows, series) in (windows(), series()),
        buckets_max in prop_oneof![1..4usize, Just(COUNTS_BUCKETS_MAX)],
    ) {
        let mut world = World::new(&cuts, holders);
        if is_registered {
            world.say(LedgerCmd::View(DcId(0).into()));
        }
        steps.iter().for_each(|step| world.step(step));
        if settles {
            world.settle();
        }
        let view = &world.view;
        let ledger = &world.ledger;
        let questions = Questions { windows: &windows, series: &series };
        questions.compare(&world, Of::Direct, &Shown { view, ledger }, buckets_max)?;
        questions.compare(&world, Of::Total, &ShownTotals { view, ledger }, buckets_max)?;
        let gathered = world.gathered(&Gathering::begin(Of::Total, view, ledger, &counters()), &Wanted::nothing(), buckets_max);
        for counter in counters() {
            prop_assert_eq!(gathered.total(&counter), view.total(&counter, ledger));
        }
    }
}

/// Two shards at two processes; 0 flows to 6, and both have counted.
fn small() -> World {
    let mut world = World::new(&BTreeSet::from([3]), vec![0, 1]);
    world.say(LedgerCmd::View(DcId(0).into()));
    world.step(&Step::Edge { inserts: true, from: 0, to: 6 });
    for (number, delta) in [(0, 5), (6, 7)] {
        world.step(&Step::Count { counter: number, half: Half::Up, valve: 0, ago_s: 4_000, delta });
        world.step(&Step::Count { counter: number, half: Half::Up, valve: 1, ago_s: 10, delta });
    }
    world.settle();
    world
}

fn shard(number: u16) -> BTreeSet<ShardId> {
    BTreeSet::from([ShardId(number)])
}

#[test]
fn what_is_told_twice_or_not_at_all_is_never_shown() {
    let world = small();
    let mut gathering = Gathering::begin(Of::Total, &world.view, &world.ledger, &[counter(6), counter(0), counter(6)]);
    assert_eq!(gathering.needs(), BTreeSet::from([ShardId(0), ShardId(1)]));
    let missing = |counter, number| GatherError::Missing { counter, shard: ShardId(number) };
    assert_eq!(gathering.complete().unwrap_err(), missing(counter(0), 0));
    let told = |number| world.told(&gathering, shard(number), &Wanted::everything(), COUNTS_BUCKETS_MAX);
    let first = told(0);
    let second = told(1);
    let both = gathering.inquiry(gathering.needs(), &Wanted::nothing());
    gathering.add(first.clone()).unwrap();
    // Nothing flows to 0, so no other process is asked about it.
    assert_eq!(gathering.inquiry(shard(1), &Wanted::nothing()).ask().unwrap().counters, [counter(6)]);
    assert_eq!(gathering.complete().unwrap_err(), missing(counter(6), 1));
    let twice = GatherError::Twice { counter: counter(0), shard: ShardId(0) };
    assert_eq!(gathering.add(first).unwrap_err(), twice);
    let mut again = both.clone();
    again.answer(&world.view, &world.ledger);
    assert_eq!(gathering.add(again).unwrap_err(), twice);
    assert_eq!(gathering.add(both).unwrap_err(), GatherError::Unfinished(2));
    gathering.add(second).unwrap();
    let gathered = gathering.complete().unwrap();
    let total = gathered.total(&counter(6));
    assert_eq!((total.direct.up, total.up), (14, 24));
    assert_eq!(total, world.view.total(&counter(6), &world.ledger));
}

#[test]
fn who_is_asked_for_own_counts_is_asked_about_the_counters_of_its_shards() {
    let world = small();
    let mut gathering = Gathering::begin(Of::Direct, &world.view, &world.ledger, &counters());
    let first = gathering.inquiry(shard(0), &Wanted::nothing()).ask().unwrap();
    assert_eq!(first.counters, (0..3).map(counter).collect::<Vec<_>>());
    let mut inquiry = gathering.inquiry(shard(0), &Wanted::nothing());
    // A process that is cut otherwise has none of them in its shard 0.
    let elsewhere = View::cut(DcId(0), 1, Ranges::of_cuts(vec![CounterName::new("a", b"a").unwrap()]).unwrap());
    inquiry.answer(&elsewhere, &world.ledger);
    assert_eq!(gathering.add(inquiry).unwrap_err(), GatherError::OtherShard(counter(0)));
    let strange = gathering.inquiry(shard(2), &Wanted::nothing());
    assert_eq!(gathering.add(strange).unwrap_err(), GatherError::NoShard(ShardId(2)));
}

#[test]
fn an_answer_that_does_not_go_on_is_refused() {
    let world = small();
    let gathering = Gathering::begin(Of::Direct, &world.view, &world.ledger, &[counter(0)]);
    let mut inquiry = gathering.inquiry(shard(0), &Wanted::everything());
    assert_eq!(inquiry.take(CountsAnswer::default()), Err(GatherError::Length { asked: 1, counters: 0 }));
    let first = gather_some(&world.view, &world.ledger, &inquiry.ask().unwrap(), 1);
    let two = CountsAnswer { counts: vec![Counts::default(); 2], ..CountsAnswer::default() };
    assert_eq!(inquiry.take(two), Err(GatherError::Length { asked: 1, counters: 2 }));
    inquiry.take(first.clone()).unwrap();
    assert_eq!(inquiry.take(first.clone()), Err(GatherError::GoesBack));
    // If the asked process has begun the counter again meanwhile, its next answer is for another generation.
    let mut rest = CountsAnswer { cut: None, ..first };
    rest.counts[0].reading.as_mut().unwrap().generation += 1;
    assert_eq!(inquiry.take(rest), Err(GatherError::BeganAgain));
    inquiry.answer(&world.view, &world.ledger);
    assert_eq!(inquiry.ask(), None);
}

#[test]
fn what_has_expired_elsewhere_is_asked_for_again_without_it() {
    let mut world = small();
    let gathering = Gathering::begin(Of::Direct, &world.view, &world.ledger, &[counter(0)]);
    let hours =
        WindowQuery { asked: Asked::Last("2h".parse().unwrap()), zone: Zone::UTC, error_s: None, compare: false };
    let wanted = |gathering: &Gathering| gathering.wanted_at(AT, &[counter(0)], std::slice::from_ref(&hours)).unwrap();
    // The clock of the other one is an hour ahead.
    world.view.on_time(time(NOW_S + 3_600));
    let ask = |gathering: &Gathering| {
        let mut asked = gathering.clone();
        asked.add(world.told(gathering, shard(0), &wanted(gathering), COUNTS_BUCKETS_MAX)).unwrap();
        asked
    };
    let asked = ask(&gathering);
    assert_eq!(asked.complete().unwrap_err(), GatherError::Expired("qa".to_owned()));
    let again = ask(&asked.again());
    let view = &world.view;
    let ledger = &world.ledger;
    let counters = [counter(0)];
    let read = read_at(&again.complete().unwrap(), AT, &counters, std::slice::from_ref(&hours)).unwrap();
    assert_eq!(read, read_at(&Shown { view, ledger }, AT, &counters, &[hours]).unwrap());
    assert_eq!(read.counters[0].windows[0].counted.value, 10);
}

/// A counter with more buckets than one message holds, each as large as possible.
#[test]
fn the_largest_answer_fits_a_message_and_the_rest_follows() {
    let mut world = small();
    let minutes =
        |from: u32| (from..from + 40_000).map(|at| (BucketId { granularity: "1m".parse().unwrap(), index: at }, 3));
    let wide = |at: u64| (BucketId { granularity: "1m".parse().unwrap(), index: at as u32 * 700 }, u64::MAX - at * at);
    let valve = ValveId { group: GroupId { dc: DcId(0), group: 0, incarnation: 1 }, lane: 0 };
    let cell = counter(1).total();
    world.view.merge(&cell, valve, 1_000_000).unwrap();
    let first = (NOW_S / 60) as u32 - 100;
    world.view.merge_row(&cell, valve, &Row::from_buckets(minutes(first))).unwrap();
    let gathering = Gathering::begin(Of::Direct, &world.view, &world.ledger, &[counter(1)]);
    let mut inquiry = gathering.inquiry(shard(0), &Wanted::everything());
    let mut answers = 0;
    while let Some(ask) = inquiry.ask() {
        let ask = gather(&world.view, &world.ledger, &ask);
        inquiry.take(counts(again(&ShardAnswer::Counts(ask)))).unwrap();
        answers += 1;
    }
    assert_eq!(answers, 40_000_usize.div_ceil(COUNTS_BUCKETS_MAX));
    let mut whole = gathering;
    whole.add(inquiry).unwrap();
    let gathered = whole.complete().unwrap();
    let view = &world.view;
    let ledger = &world.ledger;
    assert_eq!(export(&gathered, &counter(1)), export(&Shown { view, ledger }, &counter(1)));
    let up_buckets = Totals::from_buckets((0..COUNTS_BUCKETS_MAX as u64).map(wide));
    let up = u64::MAX;
    let pending = u64::MAX;
    let at_most = Some(u64::MAX);
    let ledger_index = u64::MAX;
    let reading = Some(Reading { up, pending, at_most, ledger_index, generation: u32::MAX, down: u64::MAX });
    let mut counts = vec![Counts { reading, up, down: up, ..Counts::default() }; SHARD_ASK_COUNTERS_MAX];
    counts[0].up_buckets = up_buckets;
    let largest = ShardAnswer::Counts(CountsAnswer { counts, ..CountsAnswer::default() });
    assert_eq!(again(&largest), largest);
    assert!(encode(&largest).len() <= MESSAGE_BYTES_MAX);
}

fn counts(answer: ShardAnswer) -> CountsAnswer {
    match answer {
        ShardAnswer::Counts(answer) => answer,
        other => panic!("{other:?}"),
    }
}
