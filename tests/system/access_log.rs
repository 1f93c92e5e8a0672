//! A real access log in a real data centre, by hour and by day of zones with odd clocks, beside the counts of DuckDB from the same log. The
//! log is moved so that each zone's last change of the clock is in it.

use crate::cluster::Cluster;
use crate::http;
use crate::process::until;
use crate::python::{environment, must};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};
use tidemark_proto::series::calendar::Zone;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/access-log");
/// A zone of :45 without summer time, one that moves by half an hour, and one of :30 that moves by an hour.
const ZONES: [&str; 3] = ["Asia/Kathmandu", "Australia/Lord_Howe", "America/St_Johns"];
const KEEP: &str = r#"{"keep": {"15m": "300d", "1d": "730d"}, "late": "290d"}"#;
const DAY_S: u64 = 86_400;
const QUARTER_S: u64 = 900;
/// As many lines as one request may have.
const LINES: usize = 10_000;

/// The counts, by the beginning of the label of each hour or day.
type Counts = BTreeMap<String, i64>;

/// The counts of DuckDB, by zone.
fn by_duckdb(now_s: u64) -> Value {
    let script = format!("{FOLDER}/by_zone.py");
    let log = format!("{FOLDER}/log.csv");
    let python = environment("duckdb", &Path::new(FOLDER).join("requirements.txt")).join("python");
    let said = must(Command::new(python).args([script, log, now_s.to_string()]).args(ZONES));
    serde_json::from_str(&said).unwrap()
}

/// When each request came, and its status.
fn requests() -> Vec<(u64, u16)> {
    let log = std::fs::read_to_string(format!("{FOLDER}/log.csv")).unwrap();
    let request = |line: &str| {
        let (time, status) = line.split_once(',').unwrap();
        (Zone::UTC.time(time).unwrap().s(), status.parse().unwrap())
    };
    log.lines().skip(1).map(request).collect()
}

async fn load(at: SocketAddr, counter: &str, events: impl Iterator<Item = u64>) {
    let lines: Vec<String> = events.map(|at| json!({ "counter": counter, "at": at }).to_string()).collect();
    for lines in lines.chunks(LINES) {
        let (code, body) = http::send(at, "POST", "/v1/add", &lines.join("\n")).await.expect("the aggregator answers");
        assert_eq!((code, &body["added"]), (200, &lines.len().into()), "{body}");
    }
}

/// The series by the first `chars` characters of each step's beginning: the hour that a clock shows twice is one.
async fn by_label(at: SocketAddr, path: &str, chars: usize) -> Option<Counts> {
    let (code, body) = http::get(at, path).await?;
    assert_eq!(code, 200, "{path}: {body}");
    let mut counts = Counts::new();
    for step in body["steps"].as_array()? {
        assert_eq!((&step["value"], &step["error_s"]), (&step["at_most"], &json!([0, 0])), "{path}: {step}");
        *counts.entry(step["from"].as_str()?.chars().take(chars).collect()).or_default() += step["value"].as_i64()?;
    }
    counts.retain(|_, count| *count > 0);
    Some(counts)
}

/// Until groups keep series: from then on what is too late is refused.
async fn keeps_series(at: SocketAddr) {
    let (code, body) = http::send(at, "PUT", "/v1/namespaces/search/series", KEEP).await.unwrap();
    assert_eq!(code, 200, "{body}");
    until("a refused event", async || {
        let (_, body) = http::send(at, "POST", "/v1/add", r#"{"counter": "search/probe", "at": 9}"#).await?;
        (body["errors"][0]["code"] == "event_time").then_some(())
    })
    .await;
}

/// Whether hours and days of a counter are as DuckDB has them, from a day before the first event to a day behind the last.
async fn compare(at: SocketAddr, counter: &str, zone: &str, first: u64, last: u64, answer: &Value) {
    let from = (first - DAY_S) / QUARTER_S * QUARTER_S;
    let to = (last + DAY_S) / QUARTER_S * QUARTER_S;
    for (unit, every, chars) in [("hours", "1h", 13), ("days", "1d", 10)] {
        let expected: Counts = serde_json::from_value(answer[unit].clone()).unwrap();
        let path = format!("/v1/counters/{counter}/series?from={from}&to={to}&every={every}&zone={zone}");
        let sum = expected.values().sum::<i64>();
        let read = until(&format!("all of {counter}"), async || {
            let read = by_label(at, &path, chars).await?;
            (read.values().sum::<i64>() >= sum).then_some(read)
        })
        .await;
        assert_eq!(read, expected, "{unit} of {counter}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_access_log_by_hour_and_day_of_odd_zones_is_what_duckdb_counts() {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let answers = by_duckdb(now_s);
    let requests = requests();
    assert_eq!(requests.len(), 10_000);
    let cluster = Cluster::new(&["usa-0"]);
    let centre = cluster.centres().await.remove(0);
    keeps_series(centre.http).await;
    for zone in ZONES {
        let answer = &answers[zone];
        let shift_s = answers[zone]["shift_s"].as_i64().unwrap();
        let by_s = &answer["by_s"];
        assert_eq!(by_s == 0, zone == "Asia/Kathmandu", "the clock of {zone} changes meanwhile by {by_s} s");
        let moved = |time: u64| (time as i64 + shift_s) as u64;
        let first = moved(requests.iter().min().unwrap().0);
        let last = moved(requests.iter().max().unwrap().0);
        for (name, wanted) in [("all", None), ("404", Some(404))] {
            let counter = format!("search/{}%2F{name}", zone.replace('/', "%2F"));
            let events = requests.iter().filter(|(_, status)| wanted.is_none_or(|wanted| *status == wanted));
            load(centre.http, &counter, events.map(|(time, _)| moved(*time))).await;
            compare(centre.http, &counter, zone, first, last, &answer["of"][name]).await;
        }
    }
}
