//! Answers against a recount of the very events: for any policy, question and accepted error.

use proptest::prelude::*;
use std::collections::BTreeMap;
use tidemark_proto::ids::{CounterName, Half};
use tidemark_proto::limits::SERIES_VALUES_MAX;
use tidemark_proto::msg::Reading;
use tidemark_proto::query::*;
use tidemark_proto::series::calendar::{Anchor, CalendarUnit, Zone};
use tidemark_proto::series::{
    Cover, Horizon, Kept, OutOfRange, Retention, Row, SeriesPolicy, SeriesState, StepCover, UnixTime, Window,
};
use tidemark_proto::time::WallMs;

const NOW_S: u64 = 1_790_000_123;
const DAY_S: u64 = 86_400;

#[derive(Clone, Debug)]
struct Event {
    at: UnixTime,
    key: u8,
    half: Half,
    valve: usize,
    delta: u64,
}

/// Counters of one namespace, each with two valves.
struct Fake {
    horizon: Horizon,
    rows: BTreeMap<(CounterName, Half), [Row; 2]>,
    readings: BTreeMap<CounterName, Reading>,
}

impl Source for Fake {
    fn horizon(&self, namespace: &str) -> Option<&Horizon> {
        (namespace == "qa").then_some(&self.horizon)
    }

    fn reading(&self, counter: &CounterName) -> Reading {
        self.readings.get(counter).copied().unwrap_or_default()
    }

    fn rows(&self, counter: &CounterName, half: Half, generation: u32) -> Vec<Buckets<'_>> {
        assert_eq!(generation, self.reading(counter).generation);
        self.rows.get(&(counter.clone(), half)).into_iter().flatten().map(|row| Buckets::Row(row.into())).collect()
    }
}

fn name(key: u8) -> CounterName {
    CounterName::new("qa", &[b'a' + key]).unwrap()
}

fn time(s: u64) -> UnixTime {
    UnixTime::try_from(s).unwrap()
}

fn horizon(kept: &[(&str, u64)]) -> Horizon {
    let kept = kept.iter().map(|&(text, ttl_s)| Kept { granularity: text.parse().unwrap(), ttl_s }).collect();
    let policy = SeriesPolicy::new(Retention::new(kept).unwrap(), 3_600, 300, OutOfRange::Refused).unwrap();
    SeriesState::new(policy, time(NOW_S)).horizon().clone()
}

fn usual() -> Horizon {
    horizon(&[("1m", 2 * DAY_S), ("1h", 30 * DAY_S), ("1d", 730 * DAY_S)])
}

fn fake(horizon: Horizon, events: &[Event]) -> Fake {
    let mut fake = Fake { horizon, rows: BTreeMap::new(), readings: BTreeMap::new() };
    for event in events {
        let rows = fake.rows.entry((name(event.key), event.half)).or_default();
        rows[event.valve].add(&fake.horizon, event.at, event.delta).unwrap();
        let reading = fake.readings.entry(name(event.key)).or_default();
        match event.half {
            Half::Up => reading.up += event.delta,
            Half::Down => reading.down += event.delta,
        }
    }
    fake
}

/// The true count of a counter in an interval.
fn recount(events: &[Event], key: u8, window: Window) -> i128 {
    let inside = |event: &&Event| event.key == key && window.from() <= event.at && event.at < window.to();
    let signed = |event: &Event| if event.half == Half::Up { 1 } else { -1 } * i128::from(event.delta);
    events.iter().filter(inside).map(signed).sum()
}

fn event() -> impl Strategy<Value = Event> {
    let age = prop_oneof![0..2u64, 0..3_600u64, 0..2 * DAY_S, 0..40 * DAY_S, 0..800 * DAY_S];
    (age, 0u8..3, any::<bool>(), 0usize..2, 1u64..100).prop_map(|(age, key, down, valve, delta)| Event {
        at: time(NOW_S - age),
        key,
        half: if down { Half::Down } else { Half::Up },
        valve,
        delta,
    })
}

fn kept() -> impl Strategy<Value = Horizon> {
    let minutes = horizon(&[("1m", 2 * DAY_S), ("15m", 10 * DAY_S), ("1h", 30 * DAY_S), ("1mo", 730 * DAY_S)]);
    let kinds = [usual(), horizon(&[("1h", 30 * DAY_S)]), horizon(&[("5m", 3 * DAY_S), ("1d", 90 * DAY_S)]), minutes];
    prop::sample::select(kinds.to_vec())
}

fn asked() -> impl Strategy<Value = Asked> {
    let period = prop::sample::select(vec!["1h", "90m", "1d", "7d", "30d", "2mo", "1y"]);
    let unit =
        prop::sample::select(vec![CalendarUnit::Hour, CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month]);
    prop_oneof![
        period.prop_map(|text| Asked::Last(text.parse().unwrap())),
        (unit, 0u32..5).prop_map(|(unit, back)| Asked::Unit { unit, back }),
        (0..60 * DAY_S, 1..20 * DAY_S).prop_map(|(age, length)| {
            let from = time(NOW_S - age);
            Asked::Between(Window::new(from, from.plus(length)).unwrap())
        }),
        (1..20 * DAY_S).prop_map(|length| Asked::Between(Window::new(time(NOW_S - length), time(NOW_S)).unwrap())),
        (1..20 * DAY_S).prop_map(|length| Asked::Since(time(NOW_S - length))),
    ]
}

fn zone() -> impl Strategy<Value = Zone> {
    let names = vec!["UTC", "Asia/Kathmandu", "America/New_York", "Australia/Lord_Howe"];
    prop::sample::select(names).prop_map(|name| Zone::named(name).unwrap())
}

/// "Up to now" holds all of the second that now is in.
fn up_to_now(asked: Asked, window: Window) -> Window {
    match asked {
        Asked::Last(_) | Asked::Between(_) | Asked::Since(_) if window.to() == time(NOW_S) => {
            Window::new(window.from(), window.to().plus(1)).unwrap()
        }
        _ => window,
    }
}

fn lies(counted: Counted, truth: i128) -> Result<(), TestCaseError> {
    prop_assert!(counted.at_least <= truth && truth <= counted.at_most, "{truth} outside {counted:?}");
    prop_assert!(counted.at_least <= counted.value && counted.value <= counted.at_most, "{counted:?}");
    Ok(())
}

/// Without an accepted error, only an interval without kept buckets, or without ones so fine, is refused.
fn may_be(refused: &QueryError, error_s: Option<u64>) -> Result<(), TestCaseError> {
    let is_kept_otherwise = matches!(refused, QueryError::NotKept(_) | QueryError::FinerThanKept { .. });
    let is_wrong = matches!(refused, QueryError::Error(error) if Some(error.accepted_s) == error_s && error.least_s > error.accepted_s);
    prop_assert!(is_kept_otherwise || is_wrong || matches!(refused, QueryError::Calendar(_)), "{refused}");
    Ok(())
}

/// Some of a chain of granularities, each kept for a number of its buckets and at least as long as the one before.
fn any_policy() -> impl Strategy<Value = SeriesPolicy> {
    let chain = vec!["1m", "5m", "15m", "1h", "6h", "1d", "1mo", "12mo"];
    (prop::sample::subsequence(chain, 1..=5), prop::collection::vec(1u64..60, 5)).prop_map(|(chosen, lives)| {
        let mut least_s = 0;
        let kept = chosen.into_iter().zip(lives).map(|(text, life)| {
            let granularity: tidemark_proto::series::Granularity = text.parse().unwrap();
            least_s = (granularity.longest_s() * life).max(least_s);
            Kept { granularity, ttl_s: least_s }
        });
        SeriesPolicy::new(Retention::new(kept.collect()).unwrap(), 0, 300, OutOfRange::Refused).unwrap()
    })
}

fn any_zone() -> impl Strategy<Value = Zone> {
    let database = jiff::tz::TimeZoneDatabase::bundled();
    let zones: Vec<Zone> = database.available().filter_map(|name| Zone::named(name.as_str()).ok()).collect();
    prop::sample::select(zones)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// For any policy, with granularities that begin anywhere, in every zone: against a recount of the events, and against
    /// windows of the steps.
    #[test]
    fn a_step_has_an_answer_whenever_a_window_of_it_has(
        (policy, changed) in (any_policy(), prop::option::of(any_policy())),
        zone in any_zone(),
        now_s in 1_262_304_000u64..1_900_000_000,
        ages in prop::collection::vec((0.0f64..1.0, 1u64..50), 0..150),
        (span_buckets, end_buckets) in (1u64..90, 0u64..40),
        every in prop::sample::select(vec!["5m", "15m", "1h", "2h", "6h", "1d", "1w", "1mo", "3mo", "1y"]),
        calendar: bool,
        error_s in prop::option::of(0..100_000u64),
    ) {
        let every: tidemark_proto::series::calendar::Period = every.parse().unwrap();
        let step_s = every.fixed_s().unwrap_or(31 * DAY_S);
        let mut state = SeriesState::new(policy, time(now_s - 20 * DAY_S));
        if let Some(changed) = changed {
            state.change(changed, time(now_s - 3 * DAY_S));
        }
        state.advance(time(now_s));
        let to_s = now_s.saturating_sub(end_buckets * step_s / 2).max(step_s);
        let from_s = to_s.saturating_sub(span_buckets * step_s / 2 + 1);
        let within_s = now_s - from_s.saturating_sub(step_s);
        let event = |(age, delta): &(f64, u64)| Event {
            at: time(now_s - (age * within_s as f64) as u64), key: 0, half: Half::Up, valve: 0, delta: *delta,
        };
        let events: Vec<Event> = ages.iter().map(event).collect();
        let source = fake(state.horizon().clone(), &events);
        let asked = Asked::Between(Window::new(time(from_s), time(to_s)).unwrap());
        let anchor = if calendar { Anchor::Calendar } else { Anchor::End };
        let query = SeriesQuery { asked, every, anchor, zone: zone.clone(), error_s };
        let counters = [name(0)];
        let read = match read_series(&source, WallMs(now_s * 1_000), counters[0].namespace(), &counters, &query) {
            Ok(read) => read,
            Err(refused) => return may_be(&refused, error_s),
        };
        let mut end = UnixTime::default();
        let mut sum = 0;
        for (step, value) in read.plan.steps.iter().zip(&read.counters[0].values) {
            let window = WindowQuery { asked: Asked::Between(step.asked), zone: zone.clone(), error_s: None, compare: false };
            let answer = window.plan(&source.horizon, time(now_s));
            let Some(counted) = value else {
                prop_assert!(answer.is_err(), "a window has an answer: {step:?}");
                continue;
            };
            prop_assert!(answer.is_ok(), "a window has no answer: {step:?}");
            lies(*counted, recount(&events, 0, step.asked))?;
            sum += counted.value;
            if let Some(cover) = step.cover.own() {
                prop_assert!(end <= cover.covered.from(), "a bucket is in two steps: {step:?}");
                end = cover.covered.to();
                prop_assert_eq!(counted.value, recount(&events, 0, cover.covered));
            } else {
                prop_assert_eq!(counted.value, 0);
            }
            let longest_s = source.horizon.first().last().map_or(0, |(coarsest, _)| coarsest.longest_s());
            let begins = source.horizon.first().iter().map(|(granularity, first)| granularity.start(*first));
            let kept_s = begins.min().map_or(0, |begin| step.asked.to().s().saturating_sub(begin.max(step.asked.from()).s()));
            prop_assert!(
                step.cover.own().is_some() || kept_s < 2 * longest_s,
                "a step of which twice as much is kept as any bucket holds has buckets of its own: {step:?}"
            );
        }
        prop_assert!(sum <= events.iter().map(|event| i128::from(event.delta)).sum::<i128>());
    }
}

proptest! {
    #[test]
    fn a_window_is_exact_where_it_says_and_bounds_the_truth_where_it_was_asked(
        events in proptest::collection::vec(event(), 0..80),
        (horizon, asked, zone) in (kept(), asked(), zone()),
        error_s in prop::option::of(0..5_000u64),
        compare: bool,
    ) {
        let source = fake(horizon, &events);
        let query = WindowQuery { asked, zone, error_s, compare };
        let counters = [0, 1, 2].map(name);
        let read = match read_at(&source, WallMs(NOW_S * 1_000), &counters, std::slice::from_ref(&query)) {
            Ok(read) => read,
            Err(refused) => return may_be(&refused, error_s),
        };
        let plan = &read.plans["qa"][0];
        prop_assert!(error_s.is_none_or(|error_s| plan.cover.within(error_s).is_ok()));
        prop_assert!(compare || plan.previous.is_none());
        for (key, counter) in (0..3).zip(&read.counters) {
            let window = &counter.windows[0];
            prop_assert_eq!(window.counted.value, recount(&events, key, plan.cover.covered));
            lies(window.counted, recount(&events, key, up_to_now(asked, plan.asked)))?;
            prop_assert_eq!(window.previous.is_some(), plan.previous.is_some());
            if let (Some(counted), Some(cover)) = (window.previous, &plan.previous) {
                prop_assert_eq!(counted.value, recount(&events, key, cover.covered));
                lies(counted, recount(&events, key, cover.asked))?;
                // A zone may leave out a whole unit, never more.
                prop_assert!(cover.asked.to() <= plan.asked.from());
            }
        }
    }

    #[test]
    fn steps_count_each_event_once_and_only_what_is_not_kept_is_missing(
        events in proptest::collection::vec(event(), 0..80),
        (horizon, asked, zone) in (kept(), asked(), zone()),
        every in prop::sample::select(vec!["15m", "1h", "6h", "1d", "1w", "1mo"]),
        calendar: bool,
        error_s in prop::option::of(0..5_000u64),
    ) {
        let source = fake(horizon, &events);
        let anchor = if calendar { Anchor::Calendar } else { Anchor::End };
        let query = SeriesQuery { asked, every: every.parse().unwrap(), anchor, zone, error_s };
        let read = match read_series(&source, WallMs(NOW_S * 1_000), name(0).namespace(), &[name(1), name(0)], &query) {
            Ok(read) => read,
            Err(refused) => return may_be(&refused, error_s),
        };
        let values = &read.counters[1].values;
        prop_assert_eq!(values.len(), read.plan.steps.len());
        let mut end = UnixTime::default();
        for (step, value) in read.plan.steps.iter().zip(values) {
            let Some(counted) = value else {
                prop_assert_eq!(&step.cover, &StepCover::NotKept);
                prop_assert!(Cover::plan(&source.horizon, step.asked, 0).is_err(), "{:?}", step.asked);
                continue;
            };
            lies(*counted, recount(&events, 0, step.asked))?;
            let Some(cover) = step.cover.own() else {
                prop_assert!(counted.value == 0 && error_s.is_none_or(|error_s| step.asked.length_s() <= error_s));
                continue;
            };
            prop_assert!(end <= cover.covered.from());
            end = cover.covered.to();
            prop_assert!(error_s.is_none_or(|error_s| cover.within(error_s).is_ok()));
            prop_assert_eq!(counted.value, recount(&events, 0, cover.covered));
        }
    }

    #[test]
    fn no_window_and_no_series_shows_more_than_the_reading(
        events in proptest::collection::vec(event(), 1..60),
        below in 0u64..500,
    ) {
        let events: Vec<Event> = events.into_iter().map(|event| Event { half: Half::Up, key: 0, ..event }).collect();
        let mut source = fake(usual(), &events);
        let reading = source.readings.get_mut(&name(0)).unwrap();
        reading.pending = reading.up.saturating_sub(below);
        reading.up = reading.up.min(below);
        let shown = i128::from(reading.up);
        let at = WallMs(NOW_S * 1_000);
        let query = WindowQuery { asked: Asked::Last("700d".parse().unwrap()), zone: Zone::UTC, error_s: None, compare: true };
        let read = read_at(&source, at, &[name(0)], &[query]).unwrap();
        let window = &read.counters[0].windows[0];
        prop_assert!(window.counted.value <= shown && window.counted.at_most <= shown);
        prop_assert!(window.previous.is_none_or(|counted| counted.at_most <= shown));
        let query = SeriesQuery {
            asked: Asked::Last("700d".parse().unwrap()),
            every: "1d".parse().unwrap(),
            anchor: Anchor::Calendar,
            zone: Zone::UTC,
            error_s: None,
        };
        let read = read_series(&source, at, name(0).namespace(), &[name(0)], &query).unwrap();
        let steps = &read.counters[0].values;
        let sum: i128 = steps.iter().flatten().map(|counted| counted.value).sum();
        // Only whole days are kept so long ago, and the first step is a part of one.
        let first_day = (NOW_S - 700 * DAY_S).next_multiple_of(DAY_S);
        let kept: i128 = recount(&events, 0, Window::new(time(first_day), UnixTime::MAX).unwrap());
        prop_assert!(sum <= shown);
        prop_assert!(sum >= kept.min(shown), "what may be shown is shown: {sum} of {kept}, {shown}");
    }

    #[test]
    fn a_ranking_is_the_head_of_all_sorted_by_value_then_name(
        values in proptest::collection::vec(-3i128..6, 0..40),
        k in 1usize..8,
    ) {
        let mut top = Top::new(k).unwrap();
        let names = (0..).map(|nth: u32| CounterName::new("qa", format!("{:02}", (nth * 7) % 40).as_bytes()).unwrap());
        let mut all: Vec<(i128, CounterName)> = values.iter().copied().zip(names).collect();
        for (value, name) in &all {
            top.offer(name, Counted { value: *value, ..Counted::default() }).unwrap();
        }
        prop_assert_eq!(top.seen(), all.len());
        all.retain(|(value, _)| *value != 0);
        all.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let ranked: Vec<_> = top.ranked().into_iter().map(|ranked| (ranked.counted.value, ranked.counter)).collect();
        prop_assert_eq!(ranked, all.into_iter().take(k).collect::<Vec<_>>());
    }
}

fn window(asked: Asked) -> WindowQuery {
    WindowQuery { asked, zone: Zone::UTC, error_s: None, compare: false }
}

fn between(from: u64, to: u64) -> Asked {
    Asked::Between(Window::new(time(from), time(to)).unwrap())
}

#[test]
fn what_is_open_now_is_in_windows_up_to_now_and_no_error() {
    let at = |s: u64| Event { at: time(s), key: 0, half: Half::Up, valve: 0, delta: 1 };
    let source = fake(usual(), &[at(NOW_S), at(NOW_S - 3_600), at(NOW_S - 7_300)]);
    for (asked, value) in [
        (Asked::Last("90m".parse().unwrap()), 2),
        (between(NOW_S - 4_000, NOW_S), 2),
        (between(NOW_S - 4_000, NOW_S + 40_000), 2),
        (Asked::Unit { unit: CalendarUnit::Year, back: 0 }, 3),
    ] {
        let read = read_at(&source, WallMs(NOW_S * 1_000), &[name(0), name(1)], &[window(asked)]).unwrap();
        assert_eq!(read.counters[0].windows[0].counted.value, value, "{asked:?}");
        assert_eq!(read.counters[1].windows[0].counted, Counted::default());
        assert_eq!(read.plans["qa"][0].cover.error_s().1, 0, "{asked:?}");
    }
    // Yesterday is over as soon as today begins.
    let midnight = NOW_S - NOW_S % DAY_S;
    let source = fake(usual(), &[at(midnight), at(midnight - 1)]);
    let yesterday = window(Asked::Unit { unit: CalendarUnit::Day, back: 1 });
    let read = read_at(&source, WallMs(midnight * 1_000), &[name(0)], &[yesterday]).unwrap();
    assert_eq!(read.counters[0].windows[0].counted, Counted { value: 1, at_least: 1, at_most: 1 });
    // Today in Kathmandu is in no hours; its part beyond now costs nothing.
    let hours = fake(horizon(&[("1h", 30 * DAY_S)]), &[at(NOW_S)]);
    let zone = Zone::named("Asia/Kathmandu").unwrap();
    let today = WindowQuery { zone, ..window(Asked::Unit { unit: CalendarUnit::Day, back: 0 }) };
    let plan = today.plan(&hours.horizon, time(NOW_S)).unwrap();
    assert_eq!(plan.cover.error_s(), (900, 0));
    assert_eq!(plan.asked.length_s(), DAY_S);
}

#[test]
fn what_cannot_be_answered_is_refused_with_value_and_limit() {
    let source = fake(usual(), &[]);
    let at = WallMs(NOW_S * 1_000);
    let refused = |query: WindowQuery| read_at(&source, at, &[name(0)], &[query]).unwrap_err().to_string();
    let exact = |asked| WindowQuery { error_s: Some(10), ..window(asked) };
    let week = Asked::Last("7d".parse().unwrap());
    assert_eq!(
        refused(exact(week)),
        "the accepted error is 10 s: the kept buckets need at least 923 s",
        "seven days ago only hours are kept"
    );
    assert!(refused(window(between(5, 10))).starts_with("no buckets are kept for the window from 5 s to 10 s"));
    assert!(refused(window(between(NOW_S + 2 * DAY_S, NOW_S + 3 * DAY_S))).contains("far ahead of now"));
    let early = refused(window(Asked::Last("100y".parse().unwrap())));
    assert!(early.contains("not between 1970 and 3000"), "{early}");
    let other = CounterName::new("other", b"x").unwrap();
    let none = read_at(&source, at, std::slice::from_ref(&other), &[window(week)]).unwrap_err();
    assert_eq!(none.to_string(), "the namespace \"other\" keeps no series");
    assert!(read_at(&source, at, &[other], &[]).is_ok(), "a value needs none");
    let many = read_at(&source, at, &vec![name(0); 10_001], &[]).unwrap_err();
    assert_eq!(many.to_string(), "10001 counters in one read: at most 10000 allowed");
    let windows = read_at(&source, at, &[name(0)], &vec![window(week); 9]).unwrap_err();
    assert_eq!(windows.to_string(), "9 windows of each counter: at most 8 allowed");
    assert_eq!(Top::new(0).unwrap_err().to_string(), "0 places of a ranking: 1 to 1000 allowed");
}

#[test]
fn a_series_is_refused_where_its_steps_cannot_be() {
    let source = fake(usual(), &[]);
    let at = WallMs(NOW_S * 1_000);
    let query = |last: &str, every: &str, error_s| SeriesQuery {
        asked: Asked::Last(last.parse().unwrap()),
        every: every.parse().unwrap(),
        anchor: Anchor::End,
        zone: Zone::UTC,
        error_s,
    };
    let refused =
        |query: SeriesQuery| read_series(&source, at, name(0).namespace(), &[name(0)], &query).unwrap_err().to_string();
    assert_eq!(refused(query("1h", "30s", None)), "steps of 30s: the finest buckets that are kept are of 1m");
    assert_eq!(refused(query("30d", "1m", None)), "more than 8192 boundaries of steps of 1m");
    assert!(refused(query("7d", "1d", Some(60))).starts_with("the accepted error is 60 s: the kept buckets need"));
    // Minutes are kept for two days: older steps have no minutes, and the answer names those steps.
    let read = read_series(&source, at, name(0).namespace(), &[name(0)], &query("3d", "1m", None)).unwrap();
    let values = &read.counters[0].values;
    let known = read.plan.steps.iter().filter(|step| step.cover.own().is_some()).count();
    assert!((2_880..2_960).contains(&known) && values.len() == 4_320, "{known}");
    assert!(values.iter().all(Option::is_some), "the others are in hours");
    let many = vec![name(0); SERIES_VALUES_MAX / 4_320 + 1];
    let refused = read_series(&source, at, name(0).namespace(), &many, &query("3d", "1m", None)).unwrap_err();
    assert_eq!(refused.to_string(), "47 counters in 4320 steps: at most 200000 values allowed in one answer");
}

/// In Berlin a week over the change of the clocks begins at midnight, as the week before does.
#[test]
fn the_interval_before_is_that_of_the_calendar() {
    let text = |zone: &str, asked: Asked, now: &str| {
        let zone = Zone::named(zone).unwrap();
        let now = zone.time(now).unwrap();
        let window = asked.window(&zone, now).unwrap();
        let before = asked.previous(window, &zone).unwrap();
        assert_eq!(before.to(), window.from());
        zone.text(before.from())
    };
    let dates = |zone: &str, from: &str, to: &str| {
        let named = Zone::named(zone).unwrap();
        let window = Window::new(named.time(from).unwrap(), named.time(to).unwrap()).unwrap();
        text(zone, Asked::Between(window), to)
    };
    let since = |zone: &str, from: &str, now: &str| {
        text(zone, Asked::Since(Zone::named(zone).unwrap().time(from).unwrap()), now)
    };
    for (zone, from, to, before) in [
        ("Europe/Berlin", "2026-03-23", "2026-03-30", "2026-03-16T00:00:00+01:00"),
        ("Europe/Berlin", "2026-03-30", "2026-04-06", "2026-03-23T00:00:00+01:00"),
        ("Europe/Berlin", "2026-10-25", "2026-10-26", "2026-10-24T00:00:00+02:00"),
        ("Europe/Berlin", "2026-03-23T10:00", "2026-03-30T10:00", "2026-03-16T10:00:00+01:00"),
        ("Europe/Berlin", "2026-03-23T10:00", "2026-03-30T16:00", "2026-03-16T04:00:00+01:00"),
        ("Europe/Berlin", "2026-03-29T04:00", "2026-03-29T07:00", "2026-03-29T00:00:00+01:00"),
        ("America/New_York", "2026-03-01", "2026-04-01", "2026-01-29T00:00:00-05:00"),
        ("Asia/Beirut", "2022-03-27", "2022-03-28", "2022-03-26T00:00:00+02:00"),
        ("Asia/Beirut", "2022-03-28", "2022-03-29", "2022-03-27T01:00:00+03:00"),
        ("Pacific/Apia", "2011-12-31", "2012-01-01", "2011-12-29T00:00:00-10:00"),
        ("Pacific/Apia", "2011-12-29", "2011-12-31", "2011-12-27T00:00:00-10:00"),
        ("UTC", "2026-01-01", "2026-01-08", "2025-12-25T00:00:00+00:00"),
    ] {
        assert_eq!(dates(zone, from, to), before, "{zone}: {from} to {to}");
    }
    assert_eq!(since("Europe/Berlin", "2026-03-23", "2026-03-30T06:00"), "2026-03-15T18:00:00+01:00");
    let unit = |unit| Asked::Unit { unit, back: 0 };
    let last = |period: &str| Asked::Last(period.parse().unwrap());
    for (zone, asked, now, before) in [
        ("Pacific/Apia", unit(CalendarUnit::Day), "2011-12-31T10:00", "2011-12-29T00:00:00-10:00"),
        ("Pacific/Apia", unit(CalendarUnit::Week), "2011-12-31T10:00", "2011-12-19T00:00:00-10:00"),
        ("Europe/Berlin", unit(CalendarUnit::Day), "2026-03-30T10:00", "2026-03-29T00:00:00+01:00"),
        ("Europe/Berlin", unit(CalendarUnit::Week), "2026-04-01T10:00", "2026-03-23T00:00:00+01:00"),
        ("Europe/Berlin", unit(CalendarUnit::Month), "2026-04-01T10:00", "2026-03-01T00:00:00+01:00"),
        ("Europe/Berlin", unit(CalendarUnit::Year), "2026-04-01T10:00", "2025-01-01T00:00:00+01:00"),
        ("Europe/Berlin", last("1w"), "2026-04-01T10:00", "2026-03-18T10:00:00+01:00"),
        ("Pacific/Apia", last("1d"), "2011-12-31T10:00", "2011-12-28T10:00:00-10:00"),
    ] {
        assert_eq!(text(zone, asked, now), before, "{zone}: {asked:?} at {now}");
    }
    // The day that was left out stands for the one before it.
    let apia = Zone::named("Pacific/Apia").unwrap();
    let now = apia.time("2011-12-31T10:00").unwrap();
    let yesterday = Asked::Unit { unit: CalendarUnit::Day, back: 1 }.window(&apia, now).unwrap();
    assert_eq!(apia.text(yesterday.from()), "2011-12-29T00:00:00-10:00");
    assert_eq!(yesterday.length_s(), DAY_S);
}

#[test]
fn what_cannot_be_said_of_the_time_before_leaves_the_window_its_answer() {
    let source = fake(usual(), &[]);
    let at = WallMs(NOW_S * 1_000);
    let plan = |query: WindowQuery| {
        let read = read_at(&source, at, &[name(0)], &[query]).unwrap();
        let windowed = read.counters[0].windows[0];
        assert_eq!(windowed.previous.is_some(), read.plans["qa"][0].previous.is_some());
        read.plans["qa"][0].clone()
    };
    let compared = |asked| WindowQuery { compare: true, ..window(asked) };
    for (asked, why) in [
        (between(5, NOW_S), "not between 1970 and 3000"),
        (Asked::Since(time(631_152_000)), "not between 1970 and 3000"),
        (Asked::Last("50y".parse().unwrap()), "not between 1970 and 3000"),
        (Asked::Unit { unit: CalendarUnit::Year, back: 2 }, "no buckets are kept for the window"),
    ] {
        let plan = plan(compared(asked));
        let said = plan.no_previous.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(plan.previous.is_none() && said.contains(why), "{asked:?}: {said}");
    }
    let exact = WindowQuery { error_s: Some(60), ..compared(Asked::Last("36h".parse().unwrap())) };
    assert!(
        plan(exact).no_previous.is_some_and(|why| matches!(why, QueryError::Error(_))),
        "only hours are kept of it"
    );
    let kept = plan(compared(Asked::Last("7d".parse().unwrap())));
    assert!(kept.previous.is_some() && kept.no_previous.is_none());
    assert_eq!(plan(window(Asked::Last("7d".parse().unwrap()))).no_previous, None, "not asked for");
}
