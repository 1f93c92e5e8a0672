//! Rows of time series, measured: bytes per bucket, and the time of an increment, of encoding and of a window:
//! `cargo run --release -p tidemark-proto --example series_rows`.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a measurement, not the core")]

use std::time::Instant;
use tidemark_proto::series::calendar::{Anchor, CalendarUnit, Zone};
use tidemark_proto::series::codec::{decode, encode};
use tidemark_proto::series::*;

const DAY_S: u64 = 86_400;
const NOW_S: u64 = 1_790_000_000;

fn at(seconds: u64) -> UnixTime {
    UnixTime::try_from(seconds).expect("a time of this century")
}

/// Minutes for two days, hours for a month, days for two years; an hour late.
fn state() -> SeriesState {
    let kept = |text: &str, days| Kept { granularity: text.parse().expect("a granularity"), ttl_s: days * DAY_S };
    let retention = Retention::new(vec![kept("1m", 2), kept("1h", 30), kept("1d", 730)]).expect("a retention");
    let policy = SeriesPolicy::new(retention, 3_600, 60, OutOfRange::Refused).expect("a policy");
    SeriesState::new(policy, at(NOW_S))
}

/// A generator of numbers that needs no crate.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// A counter with `hits` hits in the last `over_s` seconds, each of 1 to 3.
fn counter(hits: u64, over_s: u64, seed: &mut u64) -> Row {
    let mut row = Row::default();
    let mut state = state();
    let mut times: Vec<u64> = (0..hits).map(|_| NOW_S - next(seed) % over_s).collect();
    times.sort_unstable();
    for time in times {
        row.add(state.horizon(), at(time), 1 + next(seed) % 3).expect("room in a bucket");
    }
    state.advance(at(NOW_S));
    row.expire(state.horizon());
    row
}

fn shape(what: &str, hits: u64, over_s: u64) {
    let mut seed = 7;
    let rows: Vec<Row> = (0..200).map(|_| counter(hits, over_s, &mut seed)).collect();
    let since = Instant::now();
    let encoded: Vec<Vec<u8>> = rows.iter().map(|row| encode(row).expect("a short row")).collect();
    let encode_ns = since.elapsed().as_nanos() as usize;
    let since = Instant::now();
    let decoded: Vec<Row> = encoded.iter().map(|bytes| decode(bytes).expect("its own encoding")).collect();
    let decode_ns = since.elapsed().as_nanos() as usize;
    assert_eq!(decoded, rows);
    let buckets: usize = rows.iter().map(Row::len).sum();
    let bytes: usize = encoded.iter().map(Vec::len).sum();
    println!(
        "{what}: {:.0} buckets, {:.0} B, {:.2} B per bucket; {:.0} B in memory; encode {} ns, decode {} ns per bucket",
        buckets as f64 / 200.0,
        bytes as f64 / 200.0,
        bytes as f64 / buckets as f64,
        rows.iter().map(Row::heap_bytes).sum::<usize>() as f64 / 200.0,
        encode_ns / buckets,
        decode_ns / buckets
    );
}

/// Increments of now, over this number of counters with the buckets of an hour.
fn adding(counters: u64) {
    let state = state();
    let mut seed = 11;
    let mut rows: Vec<Row> = (0..counters).map(|_| counter(20, 3_600, &mut seed)).collect();
    let before: usize = rows.iter().map(Row::len).sum();
    let since = Instant::now();
    let adds = 2_000_000;
    for _ in 0..adds {
        let row = &mut rows[(next(&mut seed) % counters) as usize];
        row.add(state.horizon(), at(NOW_S - next(&mut seed) % 60), 1).expect("room in a bucket");
    }
    let ns = since.elapsed().as_nanos() / adds;
    println!("an increment in 3 granularities, {counters} rows of {} buckets: {ns} ns", before as u64 / counters);
}

/// The head of a row is written again with each increment; its closed part was written away.
fn heads() {
    let state = state();
    let mut seed = 13;
    let mut bytes = [0, 0];
    for _ in 0..200 {
        let mut row = counter(600, 2 * DAY_S, &mut seed);
        let closed = row.take_closed(state.closed_before(), 16, 256);
        bytes[0] += encode(&row).expect("a short row").len();
        bytes[1] += closed.iter().map(|piece| encode(piece).expect("a piece").len()).sum::<usize>();
    }
    println!("hit every 5 minutes for two days: {} B in the head, {} B written away", bytes[0] / 200, bytes[1] / 200);
}

fn windows() {
    let state = state();
    let mut seed = 17;
    let rows: Vec<Row> = (0..1_000).map(|_| counter(600, 2 * DAY_S, &mut seed)).collect();
    let zone = Zone::named("Asia/Kathmandu").expect("a zone");
    let today = zone.unit(CalendarUnit::Day, at(NOW_S), 0).expect("a day");
    let since = Instant::now();
    for _ in 0..1_000 {
        assert!(Cover::plan(state.horizon(), today, 300).is_ok());
    }
    let plan_ns = since.elapsed().as_nanos() / 1_000;
    let cover = Cover::plan(state.horizon(), today, 300).expect("what is kept");
    let since = Instant::now();
    let sum: u64 = rows.iter().map(|row| cover.read(std::slice::from_ref(row)).value).sum();
    let read_ns = since.elapsed().as_nanos() / 1_000;
    println!("a day in Kathmandu: {} buckets; planned in {plan_ns} ns, read in {read_ns} ns of a row", cover.buckets());
    assert!(sum > 0);
    let year = zone.unit(CalendarUnit::Year, at(NOW_S), 0).expect("a year");
    let since = Instant::now();
    let steps = zone.steps(year, "1d".parse().expect("a period"), Anchor::Calendar).expect("steps");
    println!("the days of a year there: {} ns each", since.elapsed().as_nanos() / steps.len() as u128);
}

fn main() {
    shape("hit once", 1, 60);
    shape("hit 10 times in an hour", 10, 3_600);
    shape("hit 1,000 times in two days", 1_000, 2 * DAY_S);
    shape("hit 100,000 times in two days", 100_000, 2 * DAY_S);
    shape("hit 1,000 times in a year", 1_000, 365 * DAY_S);
    heads();
    adding(1_000);
    adding(1_000_000);
    windows();
}
