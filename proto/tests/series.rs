//! Time series against brute force: every answer is the sum of the events in the interval that it names. Events may be late, told
//! twice, out of order, written away or expired meanwhile.

use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeMap;
use tidemark_proto::limits::COMPONENT_MAX;
use tidemark_proto::series::codec::{decode, encode};
use tidemark_proto::series::*;

const DAY_S: u64 = 86_400;
const START_S: u64 = 1_790_000_000;
const WRITERS: usize = 3;

fn at(seconds: u64) -> UnixTime {
    UnixTime::try_from(seconds).unwrap()
}

fn merged<'a>(rows: impl IntoIterator<Item = &'a Row>, horizon: &Horizon) -> Row {
    let mut all = Row::default();
    for row in rows {
        all.merge(row, horizon);
    }
    all
}

/// Some of a chain of granularities, each kept for a number of its buckets, at least as long as the one before.
fn policies() -> impl Strategy<Value = SeriesPolicy> {
    let chain = vec!["1m", "5m", "15m", "1h", "6h", "1d", "1mo", "3mo"];
    let chosen = proptest::sample::subsequence(chain, 1..=4);
    (chosen, proptest::collection::vec(1u64..30, 4), 0u64..100, 0u64..=300, any::<bool>()).prop_map(
        |(chosen, lives, late, ahead_max_s, refuses)| {
            let mut kept = Vec::new();
            let mut least_s = 0;
            for (text, life) in chosen.into_iter().zip(lives) {
                let granularity: Granularity = text.parse().unwrap();
                least_s = least_s.max(granularity.longest_s() * life);
                kept.push(Kept { granularity, ttl_s: least_s });
            }
            let out_of_range = if refuses { OutOfRange::Refused } else { OutOfRange::TotalOnly };
            SeriesPolicy::new(Retention::new(kept).unwrap(), least_s * late / 100, ahead_max_s, out_of_range).unwrap()
        },
    )
}

/// One valve's log and its row: the part in memory and the pieces that were written away.
struct Writer {
    state: SeriesState,
    row: Row,
    pieces: Vec<Row>,
    events: Vec<(u64, u64)>,
    total: u64,
}

#[derive(Clone, Debug)]
enum Step {
    /// Time moves on, and an increment comes: late by this percentage of the allowed lateness (above 100: too late), or ahead.
    Add {
        writer: Index,
        ahead_s: u64,
        late_percent: u64,
        delta: u64,
    },
    Pass {
        seconds: u64,
    },
    /// The view is told: the buckets of an increment, the open buckets, or all; perhaps as they were earlier.
    Tell {
        writer: Index,
        what: u8,
        delayed: bool,
    },
    WriteAway {
        writer: Index,
        least: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let add = (any::<Index>(), 0u64..400, 0u64..120, 1u64..1_000)
        .prop_map(|(writer, ahead_s, late_percent, delta)| Step::Add { writer, ahead_s, late_percent, delta });
    let pass = prop_oneof![3 => 1u64..120, 2 => 1u64..20_000, 1 => 1u64..10 * DAY_S];
    let tell = (any::<Index>(), 0u8..3, any::<bool>()).prop_map(|(writer, what, delayed)| Step::Tell {
        writer,
        what,
        delayed,
    });
    let write_away = (any::<Index>(), 1usize..5).prop_map(|(writer, least)| Step::WriteAway { writer, least });
    let pass = pass.prop_map(|seconds| Step::Pass { seconds });
    proptest::collection::vec(prop_oneof![6 => add, 2 => pass, 3 => tell, 1 => write_away], 1..120)
}

struct World {
    now_s: u64,
    writers: Vec<Writer>,
    view: Vec<Row>,
    horizon: Horizon,
    delayed: Vec<(usize, Row)>,
}

impl World {
    fn new(policy: &SeriesPolicy) -> World {
        let state = SeriesState::new(policy.clone(), at(START_S));
        let writer =
            || Writer { state: state.clone(), row: Row::default(), pieces: Vec::new(), events: Vec::new(), total: 0 };
        World {
            now_s: START_S,
            writers: (0..WRITERS).map(|_| writer()).collect(),
            view: vec![Row::default(); WRITERS],
            horizon: state.horizon().clone(),
            delayed: Vec::new(),
        }
    }

    fn step(&mut self, policy: &SeriesPolicy, step: &Step) {
        match *step {
            Step::Pass { seconds } => self.now_s += seconds,
            Step::Add { writer, ahead_s, late_percent, delta } => {
                let late_s = policy.late_max_s() * late_percent / 100;
                let event_s = (self.now_s + if late_s == 0 { ahead_s } else { 0 }).saturating_sub(late_s);
                self.writers[writer.index(WRITERS)].add(at(self.now_s), at(event_s), delta);
            }
            Step::Tell { writer, what, delayed } => {
                let number = writer.index(WRITERS);
                let part = self.writers[number].part(what);
                self.horizon.advance(policy, at(self.now_s));
                if delayed {
                    self.delayed.push((number, part));
                } else {
                    self.hear(number, &part);
                }
            }
            Step::WriteAway { writer, least } => {
                let writer = &mut self.writers[writer.index(WRITERS)];
                writer.pieces.extend(writer.row.take_closed(writer.state.closed_before(), least, 3));
            }
        }
    }

    fn hear(&mut self, writer: usize, part: &Row) {
        let told = decode(&encode(part).unwrap()).unwrap();
        let before = self.view[writer].clone();
        let raised = self.view[writer].merge(&told, &self.horizon);
        assert_eq!(raised, self.view[writer] != before, "whether a merge changed anything");
        self.view[writer].check_invariants();
    }

    /// Everything arrives, including held-back parts, which by now may have expired.
    fn converge(&mut self, policy: &SeriesPolicy) {
        self.horizon.advance(policy, at(self.now_s));
        for number in 0..WRITERS {
            self.horizon.merge(self.writers[number].state.horizon());
            self.hear(number, &self.writers[number].part(2));
        }
        for (number, part) in std::mem::take(&mut self.delayed) {
            self.hear(number, &part);
        }
        for row in &mut self.view {
            row.expire(&self.horizon);
        }
    }

    /// The count in a window, event by event.
    fn counted(&self, window: Window) -> u64 {
        let inside = |event_s: u64| window.from().s() <= event_s && event_s < window.to().s();
        let events = self.writers.iter().flat_map(|writer| &writer.events);
        events.filter(|&&(event_s, _)| inside(event_s)).map(|&(_, delta)| delta).sum()
    }
}

impl Writer {
    fn add(&mut self, now: UnixTime, event: UnixTime, delta: u64) {
        self.state.advance(now);
        match self.state.admit(event) {
            Ok(Admission::Bucketed) => {
                self.row.add(self.state.horizon(), event, delta).unwrap();
                self.row.check_invariants();
                self.events.push((event.s(), delta));
                self.total += delta;
            }
            Ok(Admission::TotalOnly) => self.total += delta,
            Err(_) => {}
        }
    }

    fn part(&self, what: u8) -> Row {
        let last = self.events.last().map(|&(event_s, _)| at(event_s));
        match what {
            0 => self.row.holding(self.state.horizon(), last),
            1 => self.row.since(self.state.closed_before()),
            _ => merged(self.pieces.iter().chain([&self.row]), self.state.horizon()),
        }
    }
}

fn windows() -> impl Strategy<Value = Vec<(i64, u64, u64)>> {
    proptest::collection::vec(window(), 1..20)
}

/// The time before now at which it begins, its length, and the accepted error, seconds.
fn window() -> impl Strategy<Value = (i64, u64, u64)> {
    let before = prop_oneof![-1_000i64..5_000, -1_000i64..200_000, 0i64..100 * DAY_S as i64];
    let length = prop_oneof![1u64..200, 1u64..10_000, 1u64..100 * DAY_S];
    let accepted = prop_oneof![Just(0u64), 1u64..100, 1u64..10_000, 1u64..5 * DAY_S];
    (before, length, accepted)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_answer_is_the_sum_over_exactly_the_interval_that_it_states(
        policy in policies(), steps in steps(), asked in windows()
    ) {
        let mut world = World::new(&policy);
        steps.iter().for_each(|step| world.step(&policy, step));
        world.converge(&policy);
        for (before, length_s, accepted_s) in asked {
            let from = at((world.now_s as i64 - before) as u64);
            let window = Window::new(from, from.plus(length_s)).unwrap();
            let Ok(cover) = Cover::plan(&world.horizon, window, accepted_s) else { continue };
            let answer = cover.read(&world.view);
            prop_assert_eq!(answer.value, world.counted(cover.covered), "{:?}", cover);
            let truth = world.counted(window);
            prop_assert!(answer.at_least <= truth, "{truth} is below {answer:?} of {cover:?}");
            prop_assert!(answer.at_most.is_none_or(|most| truth <= most), "{truth} is above {answer:?} of {cover:?}");
            let error_s = (from.s().abs_diff(cover.covered.from().s()), window.to().s().abs_diff(cover.covered.to().s()));
            prop_assert_eq!(cover.error_s(), error_s);
            prop_assert_eq!(cover.within(accepted_s).is_ok(), error_s.0.max(error_s.1) <= accepted_s);
        }
    }

    /// Steps share no increment, and each states its own interval.
    #[test]
    fn steps_lie_one_after_the_other(
        policy in policies(), steps in steps(), (before, length_s, accepted_s) in window(), count in 1u64..12
    ) {
        let mut world = World::new(&policy);
        steps.iter().for_each(|step| world.step(&policy, step));
        world.converge(&policy);
        let from = at((world.now_s as i64 - before) as u64);
        let boundaries: Vec<UnixTime> = (0..=count).map(|step| from.plus(step * length_s)).collect();
        let mut end: Option<UnixTime> = None;
        for (step, asked) in StepCover::plan(&world.horizon, &boundaries, accepted_s).into_iter().zip(boundaries.windows(2)) {
            let asked = Window::new(asked[0], asked[1]).unwrap();
            let sum = |granularity, indexes: std::ops::Range<u32>| {
                world.view.iter().map(|row| row.sum(granularity, indexes.clone())).sum()
            };
            let Some(answer) = step.read_with(sum) else {
                prop_assert!(Cover::plan(&world.horizon, asked, accepted_s).is_err(), "a window has an answer: {asked:?}");
                continue;
            };
            let truth = world.counted(asked);
            let mut counted = 0;
            if let Some(cover) = step.own() {
                prop_assert_eq!(cover.asked, asked);
                prop_assert!(end.is_none_or(|end| end <= cover.covered.from()), "{end:?} and then {cover:?}");
                end = Some(cover.covered.to());
                counted = world.counted(cover.covered);
            }
            prop_assert_eq!(answer.value, counted, "{:?}", step);
            prop_assert!(answer.at_least <= truth, "{truth} is below {answer:?} of {step:?}");
            prop_assert!(answer.at_most.is_none_or(|most| truth <= most), "{truth} is above {answer:?} of {step:?}");
        }
    }

    /// Against a search over all boundaries: a cover is said not to be attainable only where there is none, and no cover of the same
    /// interval takes fewer buckets.
    #[test]
    fn covers_are_cheapest_and_as_near_as_can_be(policy in policies(), asked in windows(), pass_s in 0u64..40 * DAY_S) {
        let mut state = SeriesState::new(policy, at(START_S));
        let shorter = state.policy().clone();
        state.advance(at(START_S + pass_s));
        state.change(shorter, at(START_S + pass_s));
        for (before, length_s, accepted_s) in asked {
            let from = at((state.horizon().now().s() as i64 - before) as u64);
            let length_s = length_s % 40_000 + 1;
            let accepted_s = accepted_s % 4_000;
            let window = Window::new(from, from.plus(length_s)).unwrap();
            let search = Search::new(state.horizon(), window, accepted_s);
            match Cover::plan(state.horizon(), window, accepted_s) {
                Ok(cover) => {
                    let fewest = search.fewest(cover.covered.from(), cover.covered.to());
                    prop_assert_eq!(Some(cover.buckets()), fewest, "{:?}", cover);
                    prop_assert!(cover.within(accepted_s).is_ok() || !search.any_within(), "{cover:?} of {search:?}");
                }
                Err(_) => prop_assert!(!search.any_within(), "{window:?} of {search:?}"),
            }
        }
    }

    #[test]
    fn rows_merge_as_a_semilattice_and_expiry_commutes(
        rows in proptest::collection::vec(row(), 3), policy in policies(), early in 0u64..40 * DAY_S, late in 0u64..40 * DAY_S
    ) {
        let horizon = |s: u64| SeriesState::new(policy.clone(), at(START_S + s)).horizon().clone();
        let first = horizon(early.min(late));
        let second = horizon(early.max(late));
        let all = merged(&rows, &first);
        prop_assert_eq!(&all, &merged([2, 0, 1, 0, 2].map(|next: usize| &rows[next]), &first));
        let mut one_by_one = BTreeMap::new();
        for (bucket, value) in rows.iter().flat_map(Row::buckets).filter(|&(bucket, _)| first.keeps(bucket)) {
            let held: &mut u64 = one_by_one.entry(bucket).or_default();
            *held = value.max(*held);
        }
        prop_assert!(all.buckets().eq(one_by_one));
        // Expired here sooner and there later, told in any order: the same in the end, and nothing comes back.
        let mut early = all.clone();
        let dropped = early.expire(&second);
        prop_assert_eq!(early.len() + dropped, all.len());
        let sooner = merged([&early].into_iter().chain(&rows), &second);
        let mut later = merged([&all].into_iter().chain(&rows), &first);
        later.expire(&second);
        prop_assert_eq!(&sooner, &later);
        prop_assert!(sooner.buckets().all(|(bucket, _)| second.keeps(bucket)));
    }

    /// Added in one order and subtracted in another, with expiry in between: the sums of the rest.
    #[test]
    fn totals_are_the_sums_of_the_rows_that_are_in_them(
        rows in proptest::collection::vec(row(), 4), policy in policies(), early in 0u64..40 * DAY_S, late in 0u64..40 * DAY_S
    ) {
        let horizon = |s: u64| SeriesState::new(policy.clone(), at(START_S + s)).horizon().clone();
        let first = horizon(early.min(late));
        let second = horizon(early.max(late));
        let mut totals = Totals::default();
        rows.iter().for_each(|row| totals.add(row, &first));
        totals.take_off(&rows[0], &first);
        totals.take_off(&rows[1], &second);
        totals.expire(&second);
        let mut sums: BTreeMap<BucketId, u64> = BTreeMap::new();
        for (bucket, value) in rows[2..].iter().flat_map(Row::buckets).filter(|&(bucket, _)| second.keeps(bucket)) {
            *sums.entry(bucket).or_default() += value;
        }
        prop_assert!(totals.buckets().eq(sums.clone()), "{totals:?} and {sums:?}");
        // Totals follow a merge by its raised buckets.
        let mut followed = Totals::default();
        let mut merged_row = Row::default();
        for row in &rows {
            merged_row.merge_with(row, &second, |bucket, delta| followed.raise(bucket, delta, &second));
        }
        prop_assert!(followed.buckets().eq(merged_row.buckets()));
        let hours = Granularity::HOUR;
        let all = 0..u32::MAX;
        prop_assert_eq!(followed.sum(hours, all.clone()), merged_row.sum(hours, all));
    }

    #[test]
    fn pieces_and_closed_parts_merge_to_the_row(row in row(), closed in 0u64..40 * DAY_S, least in 0usize..6, most in 0usize..6) {
        let horizon = everything();
        prop_assert_eq!(&merged(&row.pieces(most).collect::<Vec<_>>(), &horizon), &row);
        let closed_before = at(START_S + closed);
        let mut open = row.clone();
        let mut parts = open.take_closed(closed_before, least, most);
        prop_assert!(parts.iter().all(|part| part.len() <= most.max(1)));
        prop_assert!(parts.iter().flat_map(Row::buckets).all(|(bucket, _)| bucket.end() <= closed_before));
        let since = row.since(closed_before);
        prop_assert!(since.buckets().all(|(bucket, value)| open.get(bucket) == value));
        parts.push(open);
        prop_assert_eq!(&merged(&parts, &horizon), &row);
    }
}

#[test]
fn a_bucket_takes_no_more_than_a_component_and_then_nothing_is_changed() {
    let mut row = Row::default();
    let horizon = everything();
    assert_eq!(row.add(&horizon, at(START_S), COMPONENT_MAX - 1), Ok(4));
    let later = at(START_S + 3_600);
    assert_eq!(row.add(&horizon, later, 1), Ok(4), "another minute and hour, the same day and month");
    let before = row.clone();
    let refused = row.add(&horizon, later, 1).unwrap_err();
    assert_eq!((refused.bucket.granularity, refused.value), (Granularity::DAY, COMPONENT_MAX));
    assert_eq!(row, before);
}

#[test]
fn what_is_late_for_the_minutes_counts_in_the_hours() {
    let kept = |text: &str, ttl_s| Kept { granularity: text.parse().unwrap(), ttl_s };
    let retention = Retention::new(vec![kept("1m", 600), kept("1h", 10 * 3_600)]).unwrap();
    let policy = SeriesPolicy::new(retention, 7_200, 0, OutOfRange::Refused).unwrap();
    let state = SeriesState::new(policy, at(START_S));
    let mut row = Row::default();
    assert_eq!(row.add(state.horizon(), at(START_S - 5_000), 3), Ok(1));
    assert_eq!(row.add(state.horizon(), at(START_S - 100), 3), Ok(2));
}

#[test]
fn windows_that_are_none_are_refused() {
    let refused = Window::new(at(7), at(7)).unwrap_err();
    assert_eq!(refused.to_string(), "window from 7 s to 7 s: it must end after it begins");
    let horizon = everything();
    let long_ago = Window::new(at(0), at(1)).unwrap();
    let refused = Cover::plan(&horizon, long_ago, 0).unwrap_err();
    assert_eq!(refused.to_string(), "no buckets are kept for the window from 0 s to 1 s");
}

/// Twelve steps of five minutes that begin in the middle of one: whole buckets, moved by half of one and none missing.
#[test]
fn steps_between_boundaries_move_together() {
    let kept = vec![Kept { granularity: "5m".parse().unwrap(), ttl_s: DAY_S }];
    let policy = SeriesPolicy::new(Retention::new(kept).unwrap(), 0, 0, OutOfRange::Refused).unwrap();
    let state = SeriesState::new(policy, at(START_S));
    let begin = START_S / 300 * 300 - 3_600 + 140;
    let boundaries: Vec<UnixTime> = (0..=12).map(|step| at(begin + step * 300)).collect();
    let steps = StepCover::plan(state.horizon(), &boundaries, 0);
    let covers: Vec<&Cover> = steps.iter().map(|step| step.own().unwrap()).collect();
    assert!(covers.iter().all(|cover| cover.buckets() == 1 && cover.error_s() == (140, 140)));
    assert!(covers.windows(2).all(|pair| pair[0].covered.to() == pair[1].covered.from()));
    let finer: Vec<UnixTime> = (0..=5).map(|step| at(begin + step * 60)).collect();
    let steps = StepCover::plan(state.horizon(), &finer, 0);
    assert_eq!(
        steps.iter().filter(|step| step.own().is_some()).count(),
        1,
        "steps of a minute are finer than what is kept"
    );
    assert!(steps.iter().all(|step| step.parts().count() > 0), "the others say what the bucket holds at most");
}

/// For each step the value, its bounds, and whether buckets are its own, if a minute counts 1 each.
fn of_steps(horizon: &Horizon, boundaries: &[UnixTime]) -> Vec<(u64, u64, Option<u64>, bool)> {
    let minutes = |granularity: Granularity, indexes: std::ops::Range<u32>| {
        (granularity.start(indexes.end).s() - granularity.start(indexes.start).s()) / 60
    };
    let read = |step: StepCover| {
        let Answer { value, at_least, at_most } = step.read_with(minutes).unwrap();
        (value, at_least, at_most, step.own().is_some())
    };
    StepCover::plan(horizon, boundaries, 0).into_iter().map(read).collect()
}

fn horizon_of(kept: &[(&str, u64)], now_s: u64) -> Horizon {
    let kept = kept.iter().map(|&(text, ttl_s)| Kept { granularity: text.parse().unwrap(), ttl_s }).collect();
    let policy = SeriesPolicy::new(Retention::new(kept).unwrap(), 0, 0, OutOfRange::Refused).unwrap();
    SeriesState::new(policy, at(now_s)).horizon().clone()
}

/// Minutes are kept from 10:50 on, hours before. The hour would leave nothing to the steps behind it, so they take their minutes.
#[test]
fn steps_share_no_bucket_where_finer_ones_begin_to_be_kept() {
    let eleven = START_S / 3_600 * 3_600;
    let horizon = horizon_of(&[("1m", 600), ("1h", 7_200)], eleven);
    let boundaries = [40, 11, 8, 5, 0].map(|minutes: u64| at(eleven - minutes * 60));
    let first = (0, 0, Some(60), false);
    assert_eq!(
        of_steps(&horizon, &boundaries),
        [first, (2, 2, Some(62), true), (3, 3, Some(3), true), (5, 5, Some(5), true)]
    );
}

/// Days are kept up to a day with hours that begin in its afternoon; the steps are days of a zone two hours ahead of UTC.
#[test]
fn the_day_in_which_hours_begin_has_a_value() {
    let midnight = START_S / DAY_S * DAY_S;
    for hour in 0..24 {
        let now_s = midnight + 30 * DAY_S + hour * 3_600;
        let horizon = horizon_of(&[("1h", 30 * DAY_S), ("1d", 730 * DAY_S)], now_s);
        for offset_h in 0..24 {
            let begin = midnight - 5 * DAY_S + offset_h * 3_600;
            let boundaries: Vec<UnixTime> = (0..10).map(|day| at(begin + day * DAY_S)).collect();
            for (value, at_least, at_most, is_own) in of_steps(&horizon, &boundaries) {
                assert!(is_own && value > 0, "hours from {hour}:00, days from {offset_h}:00");
                assert!(at_least <= 1_440 && at_most.is_some_and(|most| most >= 1_440));
            }
        }
    }
}

/// A day in Kathmandu, at three quarters of an hour: hours cannot cut it, quarters can.
#[test]
fn hours_answer_for_a_day_in_kathmandu_with_an_error_and_quarters_without() {
    use tidemark_proto::series::calendar::{CalendarUnit, Zone};
    let kept = |text: &str, ttl_s| Kept { granularity: text.parse().unwrap(), ttl_s };
    let horizon = |kept: Vec<Kept>| {
        let policy = SeriesPolicy::new(Retention::new(kept).unwrap(), 0, 0, OutOfRange::Refused).unwrap();
        SeriesState::new(policy, at(START_S)).horizon().clone()
    };
    let day = Zone::named("Asia/Kathmandu").unwrap().unit(CalendarUnit::Day, at(START_S), 2).unwrap();
    let hours = horizon(vec![kept("1h", 9 * DAY_S), kept("1d", 90 * DAY_S)]);
    let cover = Cover::plan(&hours, day, 0).unwrap();
    assert_eq!((cover.error_s(), cover.buckets()), ((900, 900), 24));
    assert_eq!(
        cover.within(0).unwrap_err().to_string(),
        "the accepted error is 0 s: the kept buckets need at least 900 s"
    );
    let quarters = horizon(vec![kept("15m", 9 * DAY_S), kept("1h", 9 * DAY_S), kept("1d", 90 * DAY_S)]);
    let cover = Cover::plan(&quarters, day, 0).unwrap();
    assert_eq!((cover.error_s(), cover.buckets()), ((0, 0), 3 + 23 + 1));
    let cheap = Cover::plan(&quarters, day, 900).unwrap();
    assert_eq!((cheap.error_s(), cheap.buckets()), ((900, 900), 24));
    let cheapest = Cover::plan(&quarters, day, 7 * 3_600).unwrap();
    assert_eq!((cheapest.error_s(), cheapest.buckets()), ((20_700, 20_700), 1));
}

/// Minutes, hours, days and months, all of which are kept around the times of these tests.
fn everything() -> Horizon {
    let kept = |text: &str, ttl_s| Kept { granularity: text.parse().unwrap(), ttl_s };
    let retention =
        vec![kept("1m", 40 * DAY_S), kept("1h", 80 * DAY_S), kept("1d", 80 * DAY_S), kept("1mo", 400 * DAY_S)];
    let policy = SeriesPolicy::new(Retention::new(retention).unwrap(), 0, 0, OutOfRange::Refused).unwrap();
    SeriesState::new(policy, at(START_S)).horizon().clone()
}

fn row() -> impl Strategy<Value = Row> {
    let codes = vec!["1m", "1h", "1d", "1mo"];
    let bucket = (proptest::sample::select(codes), 0u64..40 * DAY_S, 1u64..100).prop_map(|(text, after_s, value)| {
        let granularity: Granularity = text.parse().unwrap();
        (BucketId { granularity, index: granularity.index_at(at(START_S + after_s)) }, value)
    });
    proptest::collection::vec(bucket, 0..50).prop_map(Row::from_buckets)
}

/// All covers of all intervals near a window, by dynamic programming over the boundaries of the finest granularity.
#[derive(Debug)]
struct Search {
    /// Boundaries, and for each the buckets that begin there: where they end.
    edges: BTreeMap<u64, Vec<u64>>,
    window: Window,
    accepted_s: u64,
}

impl Search {
    fn new(horizon: &Horizon, window: Window, accepted_s: u64) -> Search {
        let margin_s = accepted_s + 2 * DAY_S * 93;
        let mut edges: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for &(granularity, first) in horizon.first() {
            let near_s = if granularity.longest_s() > 7_200 { margin_s } else { accepted_s + 7_200 };
            let from = granularity.index_at(window.from().minus(near_s)).max(first);
            let to = granularity.index_at(window.to().plus(near_s));
            for index in from..=to {
                edges.entry(granularity.start(index).s()).or_default().push(granularity.end(index).s());
            }
        }
        Search { edges, window, accepted_s }
    }

    /// By boundary that can be reached from one: how many buckets it takes.
    fn reached(&self, from_s: u64, upto_s: u64) -> BTreeMap<u64, u64> {
        let mut reached = BTreeMap::from([(from_s, 0)]);
        let mut at = Some(from_s);
        while let Some(here) = at {
            let buckets = reached[&here];
            for &end in self.edges.get(&here).into_iter().flatten().filter(|&&end| end <= upto_s) {
                let held = reached.entry(end).or_insert(u64::MAX);
                *held = (buckets + 1).min(*held);
            }
            at = reached.range(here + 1..).next().map(|(&next, _)| next);
        }
        reached
    }

    fn fewest(&self, from: UnixTime, to: UnixTime) -> Option<u64> {
        self.reached(from.s(), to.s()).get(&to.s()).copied()
    }

    /// Whether any cover has at most the accepted error.
    fn any_within(&self) -> bool {
        let from_s = self.window.from().s();
        let to_s = self.window.to().s();
        let accepted_s = self.accepted_s;
        let mut starts =
            self.edges.range(from_s.saturating_sub(accepted_s)..=from_s + accepted_s).map(|(&start, _)| start);
        starts.any(|start| {
            let ends = self.reached(start, to_s + accepted_s);
            let mut near = ends.range((start + 1).max(to_s.saturating_sub(accepted_s))..=to_s + accepted_s);
            start < to_s && near.any(|(&end, _)| end > from_s)
        })
    }
}
