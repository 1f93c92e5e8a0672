//! Answers against a recount of the very events: whatever was kept, asked and accepted.

use super::*;
use crate::ids::{CounterName, Half};
use crate::msg::Reading;
use crate::series::calendar::{Anchor, CalendarUnit, Zone};
use crate::series::{Horizon, Kept, OutOfRange, Retention, Row, SeriesPolicy, SeriesState, UnixTime, Window};
use crate::time::WallMs;
use proptest::prelude::*;
use std::collections::BTreeMap;

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

/// What a counter truly counted in an interval.
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

/// Without an accepted error only that is refused of which nothing is kept, or nothing so fine.
fn may_be(refused: &QueryError, error_s: Option<u64>) -> Result<(), TestCaseError> {
    let is_kept_otherwise = matches!(refused, QueryError::NotKept(_) | QueryError::FinerThanKept { .. });
    let is_wrong = matches!(refused, QueryError::Error(error) if Some(error.accepted_s) == error_s && error.least_s > error.accepted_s);
    prop_assert!(is_kept_otherwise || is_wrong || matches!(refused, QueryError::Calendar(_)), "{refused}");
    Ok(())
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
        let read = match read_series(&source, WallMs(NOW_S * 1_000), (name(0).namespace(), &[name(1), name(0)]), &query) {
            Ok(read) => read,
            Err(refused) => return may_be(&refused, error_s),
        };
        let values = &read.counters[1].values;
        prop_assert_eq!(values.len(), read.plan.steps.len());
        let mut end = UnixTime::default();
        for (step, value) in read.plan.steps.iter().zip(values) {
            let (Some(cover), Some(counted)) = (&step.cover, value) else {
                prop_assert!(step.cover.is_none() && value.is_none());
                continue;
            };
            prop_assert!(end <= cover.covered.from());
            end = cover.covered.to();
            prop_assert!(error_s.is_none_or(|error_s| cover.within(error_s).is_ok()));
            prop_assert_eq!(counted.value, recount(&events, 0, cover.covered));
            prop_assert!(counted.at_least <= counted.value && counted.value <= counted.at_most);
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
        let read = read_series(&source, at, (name(0).namespace(), &[name(0)]), &query).unwrap();
        let steps = &read.counters[0].values;
        let sum: i128 = steps.iter().flatten().map(|counted| counted.value).sum();
        let kept: i128 = recount(&events, 0, Window::new(time(NOW_S - 700 * DAY_S), UnixTime::MAX).unwrap());
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
    // Today in Kathmandu is in no hours; what of it lies beyond now costs nothing.
    let hours = fake(horizon(&[("1h", 30 * DAY_S)]), &[at(NOW_S)]);
    let zone = Zone::named("Asia/Kathmandu").unwrap();
    let today = WindowQuery { zone, ..window(Asked::Unit { unit: CalendarUnit::Day, back: 0 }) };
    let plan = today.plan(&hours.horizon, time(NOW_S)).unwrap();
    assert_eq!(plan.cover.error_s(), (900, 0));
    assert_eq!(plan.asked.length_s(), DAY_S);
}

#[test]
fn what_cannot_be_answered_is_refused_with_value_and_limit() {
    let (source, at) = (fake(usual(), &[]), WallMs(NOW_S * 1_000));
    let refused = |query: WindowQuery| read_at(&source, at, &[name(0)], &[query]).unwrap_err().to_string();
    let exact = |asked| WindowQuery { error_s: Some(10), ..window(asked) };
    let week = Asked::Last("7d".parse().unwrap());
    assert_eq!(
        refused(exact(week)),
        "an error of 10 s is asked for: with the buckets that are kept it is 923 s",
        "seven days ago only hours are kept"
    );
    assert!(refused(window(between(5, 10))).starts_with("nothing is kept of the window from 5 s to 10 s"));
    assert!(refused(window(between(NOW_S + 2 * DAY_S, NOW_S + 3 * DAY_S))).contains("far ahead of now"));
    let compared = WindowQuery { compare: true, ..window(between(5, NOW_S)) };
    assert!(refused(compared).starts_with("time -"));
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
    let (source, at) = (fake(usual(), &[]), WallMs(NOW_S * 1_000));
    let query = |last: &str, every: &str, error_s| SeriesQuery {
        asked: Asked::Last(last.parse().unwrap()),
        every: every.parse().unwrap(),
        anchor: Anchor::End,
        zone: Zone::UTC,
        error_s,
    };
    let refused = |query: SeriesQuery| {
        read_series(&source, at, (name(0).namespace(), &[name(0)]), &query).unwrap_err().to_string()
    };
    assert_eq!(refused(query("1h", "30s", None)), "steps of 30s: the finest buckets that are kept are of 1m");
    assert_eq!(refused(query("30d", "1m", None)), "more than 8192 boundaries of steps of 1m");
    assert!(refused(query("7d", "1d", Some(60))).starts_with("an error of 60 s is asked for: with"));
    // Minutes are kept for two days: what is older has no minutes, and says so step by step.
    let read = read_series(&source, at, (name(0).namespace(), &[name(0)]), &query("3d", "1m", None)).unwrap();
    let values = &read.counters[0].values;
    let known = values.iter().filter(|value| value.is_some()).count();
    assert!((2_880..2_960).contains(&known) && values.len() == 4_320, "{known}");
    let many = vec![name(0); SERIES_VALUES_MAX / 4_320 + 1];
    let refused = read_series(&source, at, (name(0).namespace(), &many), &query("3d", "1m", None)).unwrap_err();
    assert_eq!(refused.to_string(), "47 counters in 4320 steps: at most 200000 values allowed in one answer");
}
