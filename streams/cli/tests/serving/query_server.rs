//! `query-server` as a process: answers of processes without state are true numbers, whatever is killed, late or missing.

use crate::serving::{Answer, PROGRAM, Place, Server, event, request, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidemark_proto::series::calendar::Zone;

const QUERY: &str = "/v1/impressions/query";

/// An address that nobody listens on.
pub fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A server at an address that stays the same when it is started again.
pub fn serve(place: &Place, address: &str, arguments: &[&str]) -> Server {
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--listen", address, "--dir"]).arg(place.dir()).args(arguments);
    Server::of(command).unwrap_or_else(|said| panic!("{said}"))
}

pub fn query_server(place: &Place, address: &str, arguments: &[&str]) -> Server {
    let mut command = Command::new(PROGRAM);
    command.args(["query-server", "--listen", "127.0.0.1:0", "--server", address, "--dir"]).arg(place.dir());
    command.args(arguments);
    Server::of(command).unwrap_or_else(|said| panic!("{said}"))
}

pub fn is_ready(server: &Server) -> bool {
    server.get("/readyz").status == 200
}

fn body(tenant: &str) -> Vec<u8> {
    json!({ "tenant": tenant, "from": "2026-01-01", "to": "2026-01-03", "dimensions": [] }).to_string().into_bytes()
}

/// A number, and which state it is of.
#[derive(Clone, Copy, Debug)]
struct Counted {
    total: u64,
    index: u64,
    blobs: u64,
    has_held_rows: bool,
    complete_to_s: u64,
}

impl Counted {
    fn of(answer: &Value) -> Counted {
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{answer}"));
        Counted {
            total: number(&answer["total"]),
            index: number(&answer["as_of"]["index"]),
            blobs: number(&answer["as_of"]["blobs"]),
            has_held_rows: answer["as_of"]["held_rows"].as_bool().unwrap(),
            complete_to_s: answer["complete_to"].as_str().map_or(0, |text| Zone::UTC.time(text).unwrap().s()),
        }
    }
}

/// A line between two processes that can be held up.
struct Proxy {
    address: String,
    is_held: Arc<AtomicBool>,
}

impl Proxy {
    fn before(server: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let is_held = Arc::new(AtomicBool::new(false));
        let holds = Arc::clone(&is_held);
        let server = server.to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let Ok(there) = TcpStream::connect(&server) else { continue };
                for (from, to) in [
                    (stream.try_clone().unwrap(), there.try_clone().unwrap()),
                    (there.try_clone().unwrap(), stream.try_clone().unwrap()),
                ] {
                    let holds = Arc::clone(&holds);
                    std::thread::spawn(move || copy(from, to, &holds));
                }
            }
        });
        Proxy { address, is_held }
    }

    fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::SeqCst);
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, is_held: &AtomicBool) {
    let mut bytes = [0; 65_536];
    while let Ok(read) = from.read(&mut bytes) {
        while is_held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if read == 0 || to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

#[test]
fn query_processes_count_what_the_server_counts() {
    let place = Place::new();
    let address = free_address();
    let server = serve(&place, &address, &["--flush-s", "1"]);
    server.send(event("a", "x", "00:10:00"));
    let mut first = query_server(&place, &address, &[]);
    let second = query_server(&place, &address, &[]);
    until("the manifest", || is_ready(&first) && is_ready(&second));
    let mut whole = 0;
    for batch in 2..=40_u64 {
        server.send(event("a", "x", "00:10:00"));
        if batch % 13 == 0 {
            first.kill();
            first = query_server(&place, &address, &[]);
            until("the manifest", || is_ready(&first));
        }
        for process in [&first, &second] {
            let counted = Counted::of(&process.ask("a", json!({ "dimensions": [] })));
            match counted.has_held_rows {
                true => assert_eq!(counted.total, batch, "{counted:?}"),
                false => assert!(counted.total <= batch, "{counted:?}"),
            }
            whole += u64::from(counted.has_held_rows);
        }
        std::thread::sleep(Duration::from_millis(70));
    }
    assert!(whole > 40, "only {whole} of 78 answers had the rows in memory");
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    // All of an answer but its age is that of the server, as CSV too.
    let asked =
        json!({ "tenant": "a", "from": "2026-01-01", "to": "2026-01-03", "zone": "Asia/Kathmandu" }).to_string();
    let answers: Vec<Value> = [&server, &first, &second].map(|process| process.post(QUERY, &asked).json()).into();
    for name in ["rows", "version", "settled_at", "settled_to", "state", "late_total", "last_updated_at"] {
        assert!(answers.iter().all(|answer| answer[name] == answers[0][name]), "{name}: {answers:?}");
    }
    let csv = |process: &Server| process.request("POST", QUERY, &["accept: text/csv"], asked.as_bytes()).unwrap();
    assert_eq!(
        (csv(&second).text, csv(&second).header("tidemark-held-rows")),
        (csv(&server).text, Some("true".into()))
    );
    assert_eq!(second.get("/impressions").status, 200);
    for (path, method) in
        [("/v1/events", "POST"), ("/v1/erase", "POST"), ("/v1/types", "GET"), ("/v1/feed/rows", "GET")]
    {
        let answer = second.request(method, path, &[], b"").unwrap();
        assert_eq!((answer.status, answer.code().as_str()), (404, "not_here"), "{path}");
        assert!(answer.text.contains(&address), "{answer:?}");
    }
    assert_eq!(second.get(QUERY).code(), "method");
    second.stop();
}

/// What a stream of queries to one process has seen.
fn ask_until(is_over: &AtomicBool, process: &Mutex<String>, acknowledged: &AtomicU64) -> Vec<Counted> {
    let mut seen: Vec<Counted> = Vec::new();
    let mut last_whole = 0;
    // Events that were acknowledged at times, in milliseconds since 1970.
    let mut known = vec![(0, 0)];
    while !is_over.load(Ordering::SeqCst) {
        let now_ms = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
        known.push((now_ms, 10 * acknowledged.load(Ordering::SeqCst)));
        let to = process.lock().unwrap().clone();
        let answer = request(&to, "POST", QUERY, &[], &body("t"));
        // A batch may be counted that is not acknowledged.
        let after = 10 * (acknowledged.load(Ordering::SeqCst) + 1);
        match answer {
            Ok(answer) if answer.status == 200 => {
                let counted = Counted::of(&answer.json());
                assert!(counted.total <= after, "{counted:?}: {after} were sent");
                // An answer has all that was acknowledged up to the time that it says.
                let is_before = |(at_ms, _): &&(u64, u64)| *at_ms <= counted.complete_to_s * 1_000;
                let before = known.iter().rev().find(is_before).unwrap().1;
                assert!(counted.total >= before, "{counted:?}: {before} were acknowledged");
                if counted.has_held_rows {
                    assert!(counted.total >= last_whole, "{counted:?}: {last_whole} was answered before");
                    last_whole = counted.total;
                }
                seen.push(counted);
            }
            Ok(answer) => assert!(["feed_stale", "blob_gone"].contains(&answer.code().as_str()), "{answer:?}"),
            // The process was killed.
            Err(_) => {}
        }
    }
    seen
}

#[test]
fn answers_are_true_while_processes_are_killed_and_blobs_merged() {
    const SERVE: [&str; 4] = ["--flush-s", "1", "--flush-counts", "4"];
    let place = Place::new();
    let address = free_address();
    let mut server = serve(&place, &address, &SERVE);
    let is_over = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let mut processes = [query_server(&place, &address, &[]), query_server(&place, &address, &[])];
    until("the manifest", || processes.iter().all(is_ready));
    let addresses = [0, 1].map(|at: usize| Arc::new(Mutex::new(processes[at].address.clone())));
    let askers: Vec<_> = addresses
        .iter()
        .map(|process| {
            let process = Arc::clone(process);
            let is_over = Arc::clone(&is_over);
            let acknowledged = Arc::clone(&acknowledged);
            std::thread::spawn(move || ask_until(&is_over, &process, &acknowledged))
        })
        .collect();
    let producer = {
        let address = Mutex::new(address.clone());
        let is_over = Arc::clone(&is_over);
        let acknowledged = Arc::clone(&acknowledged);
        std::thread::spawn(move || produce(&address, &is_over, &acknowledged))
    };
    for kill in 0..8_u64 {
        let before = acknowledged.load(Ordering::SeqCst);
        until("batches", || acknowledged.load(Ordering::SeqCst) > before + 60);
        std::thread::sleep(Duration::from_millis(50 * kill));
        match kill % 4 {
            0 | 2 => {
                let at = usize::from(kill % 4 == 2);
                let started = query_server(&place, &address, &[]);
                addresses[at].lock().unwrap().clone_from(&started.address);
                std::mem::replace(&mut processes[at], started).kill();
            }
            _ => {
                server.kill();
                // Answers are of blobs only meanwhile.
                std::thread::sleep(Duration::from_millis(300));
                server = serve(&place, &address, &SERVE);
            }
        }
    }
    is_over.store(true, Ordering::SeqCst);
    let sent = 10 * producer.join().unwrap();
    let seen: Vec<Vec<Counted>> = askers.into_iter().map(|asker| asker.join().unwrap()).collect();
    until("the replay", || server.metric("tidemark_streams_lag_rows") == 0.0);
    for process in &processes {
        until("the whole answer", || {
            let counted = Counted::of(&request(&process.address, "POST", QUERY, &[], &body("t")).unwrap().json());
            assert!(counted.total <= sent, "{counted:?}");
            counted.has_held_rows && counted.total == sent
        });
    }
    let mut all: Vec<Counted> = seen.into_iter().flatten().collect();
    all.sort_by_key(|counted| counted.index);
    let of_blobs: Vec<Counted> = all.iter().copied().filter(|counted| !counted.has_held_rows).collect();
    assert!(!of_blobs.is_empty() && of_blobs.len() < all.len(), "{} of {}", of_blobs.len(), all.len());
    // One index has one number, and a later index no smaller one.
    for pair in of_blobs.windows(2) {
        assert!(pair[0].total <= pair[1].total, "{pair:?}");
        assert!(pair[0].index < pair[1].index || pair[0].total == pair[1].total, "{pair:?}");
    }
    let merged = all.windows(2).filter(|pair| pair[1].blobs + 50 < pair[0].blobs).count();
    assert!(merged > 0, "nothing was merged under the queries");
    server.stop();
    assert!(place.said(&["audit"]).ends_with(&format!(" count {sent}\n")));
}

/// Sends numbered batches of 10 events, each again until it is acknowledged. Returns how many there were.
fn produce(address: &Mutex<String>, is_over: &AtomicBool, acknowledged: &AtomicU64) -> u64 {
    for seq in 1_u64.. {
        let time = format!("{:02}:{:02}:00", seq % 24, seq % 4 * 15);
        let body = event("t", &(seq % 7).to_string(), &time).repeat(10);
        let path = format!("/v1/events?producer=p&seq={seq}");
        loop {
            let to = address.lock().unwrap().clone();
            match request(&to, "POST", &path, &[], body.as_bytes()) {
                Ok(answer) if answer.status == 200 => break,
                Ok(answer) => assert_eq!(answer.status, 503, "{answer:?}"),
                Err(_) => {}
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        acknowledged.fetch_add(1, Ordering::SeqCst);
        // The owner keeps up.
        std::thread::sleep(Duration::from_millis(15));
        if is_over.load(Ordering::SeqCst) {
            return seq;
        }
    }
    0
}

#[test]
fn answers_without_the_server_are_of_blobs_and_end_with_its_age() {
    let place = Place::new();
    let address = free_address();
    let server = serve(&place, &address, &["--flush-s", "1"]);
    server.send(event("a", "x", "00:10:00").repeat(3));
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    let process = query_server(&place, &address, &["--feed-age-max-s", "4"]);
    until("the manifest", || is_ready(&process));
    server.kill();
    let server = serve(&place, &address, &["--flush-s", "3600"]);
    // Blobs are complete up to the present while the log has no other event, once the new owner says so.
    until("the new owner", || Counted::of(&process.ask("a", json!({}))).complete_to_s > 0);
    let sent_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    server.send(event("a", "x", "00:10:00"));
    until("the new owner", || process.ask("a", json!({}))["as_of"]["held_rows"] == json!(true));
    assert_eq!(process.total("a"), 4);
    // The feed goes on, and says the same of the blobs.
    std::thread::sleep(Duration::from_millis(2_200));
    let before = Instant::now();
    server.kill();
    let answer = process.ask("a", json!({}));
    let as_of = &answer["as_of"];
    assert_eq!((&answer["total"], &as_of["held_rows"]), (&json!(3), &json!(false)), "the fourth is in memory only");
    assert!(as_of["feed_age_ms"].as_u64().unwrap() < 4_000, "{answer}");
    let complete_to_s = Counted::of(&process.ask("a", json!({}))).complete_to_s;
    assert!((1..=sent_s).contains(&complete_to_s), "{sent_s}: {answer}");
    assert!(process.metric("tidemark_streams_answers_of_blobs_total") >= 1.0);
    until("the end of its age", || process.post(QUERY, body("a")).status == 503);
    assert!(before.elapsed() >= Duration::from_secs(3), "{:?}", before.elapsed());
    let refused = process.post(QUERY, body("a"));
    assert_eq!((refused.status, refused.code().as_str()), (503, "feed_stale"), "{refused:?}");
    assert_eq!(refused.header("retry-after").as_deref(), Some("1"));
    assert!(!is_ready(&process) && process.get("/readyz").text.contains("feed: "));
    assert!(process.metric("tidemark_streams_feed_age_seconds") > 4.0);
    assert_eq!(process.get("/healthz").status, 200);
    // It goes on by itself.
    let server = serve(&place, &address, &["--flush-s", "3600"]);
    until("the server", || process.post(QUERY, body("a")).status == 200);
    until("the rows in memory", || process.total("a") == 4);
    assert!(process.metric("tidemark_streams_feed_snapshots_total") >= 3.0);
    server.stop();
}

#[test]
fn server_at_another_address_and_a_rebuilt_manifest_are_followed() {
    let place = Place::new();
    let addresses = [free_address(), free_address()];
    let server = serve(&place, &addresses[0], &["--flush-s", "1"]);
    let process = query_server(&place, &addresses[0], &["--server", &addresses[1]]);
    server.send(event("a", "x", "00:10:00").repeat(5));
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    server.send(event("a", "x", "00:20:00"));
    let is_whole = |total: u64| {
        let answer = process.post(QUERY, body("a"));
        answer.status == 200 && {
            let counted = Counted::of(&answer.json());
            assert!(counted.total <= total, "{counted:?}");
            counted.has_held_rows && counted.total == total
        }
    };
    until("the server", || is_whole(6));
    server.kill();
    let server = serve(&place, &addresses[1], &["--flush-s", "1"]);
    until("the other address", || is_whole(6));
    server.send(event("a", "x", "00:30:00"));
    until("its events", || is_whole(7));
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    server.kill();
    // The manifest that is built again has other indexes.
    std::fs::remove_file(place.dir().join("manifest.redb")).unwrap();
    assert!(place.said(&["manifest", "rebuild", "--yes"]).contains("manifest"));
    let server = serve(&place, &addresses[0], &["--flush-s", "1"]);
    server.send(event("a", "x", "00:40:00"));
    until("the rebuilt manifest", || is_whole(8));
    assert!(process.metric("tidemark_streams_feed_snapshots_total") >= 3.0);
}

/// A folder that a backup has restored: another history, with blobs of the same names.
#[test]
fn restored_directory_with_blobs_of_the_same_names_is_followed() {
    let place = Place::new();
    let address = free_address();
    let start = || serve(&place, &address, &["--flush-s", "1"]);
    let copy = place.path().join("copy");
    let copied = |from: &std::path::Path, to: &std::path::Path| {
        let done = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
        assert!(done.success());
    };
    let server = start();
    server.send(event("a", "x", "00:10:00"));
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    server.stop();
    copied(&place.dir(), &copy);
    let history = |events: usize| {
        let server = start();
        server.send(event("a", "x", "00:20:00").repeat(events));
        until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
        server
    };
    let server = history(10);
    let process = query_server(&place, &address, &[]);
    until("the first history", || is_ready(&process) && process.total("a") == 11);
    server.stop();
    let names = || {
        let entries = std::fs::read_dir(place.dir().join("blobs")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<BTreeSet<_>>()
    };
    let first = names();
    std::fs::remove_dir_all(place.dir()).unwrap();
    copied(&copy, &place.dir());
    let _server = history(3);
    assert_eq!(names(), first, "the blob of the second flush has the name of the other one, and other rows");
    until("the second history", || process.post(QUERY, body("a")).json()["total"] == json!(4));
}

#[test]
fn process_without_any_server_answers_503() {
    let place = Place::new();
    let missing = Command::new(PROGRAM)
        .args(["query-server", "--server", "127.0.0.1:1", "--dir"])
        .arg(place.dir())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&missing.stderr).contains("there are no event streams here"), "{missing:?}");
    Server::start(&place.dir(), &[]).stop();
    let process = query_server(&place, "127.0.0.1:1", &[]);
    let refused = process.post(QUERY, body("a"));
    assert_eq!((refused.status, refused.code().as_str()), (503, "feed_stale"), "{refused:?}");
    assert!(refused.text.contains("no manifest was received yet"), "{refused:?}");
    // It holds no lock.
    Server::start(&place.dir(), &[]).stop();
    // The server of another directory gives blobs that are not here.
    let other = Place::new();
    let server = Server::start(&other.dir(), &[]);
    let process = query_server(&place, &server.address, &[]);
    until("the refusal", || process.post(QUERY, body("a")).text.contains("is of directory"));
}

#[test]
fn metrics_of_a_query_process_are_those_of_the_page() {
    const PAGE: &str = include_str!("../../../../docs/reference/streams.md");
    let place = Place::new();
    let address = free_address();
    let _server = serve(&place, &address, &[]);
    let process = query_server(&place, &address, &[]);
    until("the manifest", || is_ready(&process));
    let text = process.get("/metrics").text;
    let section = PAGE.split("\n## Metrics of a query process\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let listed: Vec<&str> = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert!(listed.len() >= 9, "{listed:?}");
    let is_of_sql = |name: &&str| !name.starts_with("tidemark_streams_sql_");
    let shown = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next());
    assert_eq!(shown.filter(is_of_sql).collect::<Vec<_>>(), listed);
    for line in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
        let (name, help) = line.split_once(' ').unwrap();
        let is_listed = |row: &str| row.starts_with(&format!("| `{name}` |")) && row.contains(help);
        assert!(name.starts_with("tidemark_streams_sql_") || section.lines().any(is_listed), "{line}");
    }
}

#[test]
fn renamed_and_erased_rows_are_never_counted_twice() {
    let place = Place::new();
    let address = free_address();
    let server = serve(&place, &address, &["--types", "view,click", "--flush-s", "1"]);
    let process = query_server(&place, &address, &[]);
    until("the manifest", || is_ready(&process));
    let by_type = |server: &Server| server.ask("a", json!({ "dimensions": ["type"] }));
    let viewed = event("a", "x", "00:10:00").replace("\"tenant\"", "\"type\":\"view\",\"tenant\"");
    for round in 0..6_u64 {
        server.send(&viewed);
        let (from, to) = if round % 2 == 0 { ("view", "seen") } else { ("seen", "view") };
        let renamed = server.post(&format!("/v1/types/rename?from={from}&to={to}"), "");
        assert_eq!(renamed.status, 200, "{renamed:?}");
        for _ in 0..5 {
            let answer = by_type(&process);
            let rows = answer["rows"].as_array().unwrap();
            assert!(rows.len() == 1 && rows[0]["n"].as_u64().unwrap() <= round + 1, "{answer}");
            if answer["as_of"]["held_rows"] == json!(true) {
                assert_eq!(rows[0]["n"], json!(round + 1), "{answer}");
            }
        }
        until("the name", || by_type(&process)["rows"][0]["type"] == json!(to));
    }
    assert_eq!(server.post("/v1/erase?tenant=a", "").status, 200);
    until("the erasure", || process.total("a") == 0);
}

#[test]
fn tokens_of_the_feed_are_for_nothing_else() {
    let place = Place::new();
    let secret = place.secret();
    let address = free_address();
    let server = serve(&place, &address, &["--secret-file", &secret, "--flush-s", "3600"]);
    let producer = place.bearer(&[]);
    let sent = server.request("POST", "/v1/events", &[&producer], event("a", "x", "00:10:00").as_bytes()).unwrap();
    assert_eq!(sent.status, 200);
    let process = query_server(&place, &address, &["--secret-file", &secret]);
    until("the manifest", || is_ready(&process));
    let ask = |header: &str, tenant: &str| process.request("POST", QUERY, &[header], &body(tenant)).unwrap();
    let of_a = place.bearer(&["--tenant", "a"]);
    assert_eq!(ask(&of_a, "a").json()["total"], json!(1));
    assert_eq!((ask(&of_a, "b").status, ask(&of_a, "b").code().as_str()), (403, "forbidden"));
    assert_eq!((ask("x: y", "a").status, ask("authorization: Bearer x", "a").status), (401, 403));
    assert_eq!(ask(&place.bearer(&["--tenant", "a", "--expires-in", "1h"]), "b").status, 403);
    // No token of another role reads the feed, and none of it is open.
    let others = [producer, of_a, place.bearer(&["--operator"]), "x: y".to_owned()];
    for path in ["/v1/feed/snapshot", "/v1/feed/commands?session=1&after=0", "/v1/feed/rows?tenant=b&first=0&last=9"] {
        for header in &others {
            let answer = server.request("GET", path, &[header], b"").unwrap();
            assert!([401, 403].contains(&answer.status), "{path} {header} {answer:?}");
        }
    }
    let without = query_server(&place, &address, &[]);
    until("the refusal", || without.post(QUERY, body("a")).text.contains("401"));
}

/// A query process that knows a blob whose file is gone, since the line to its server is held up. Tenant `a` has the count 2.
pub struct Gone {
    _server: Server,
    pub process: Server,
    proxy: Proxy,
}

impl Gone {
    pub fn at(place: &Place) -> Gone {
        let address = free_address();
        let server = serve(place, &address, &["--flush-s", "1", "--reader-grace-s", "0"]);
        server.send(event("a", "x", "00:10:00").repeat(2) + &event("b", "x", "00:10:00"));
        until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
        let proxy = Proxy::before(&address);
        let process = query_server(place, &proxy.address, &[]);
        until("the manifest", || is_ready(&process));
        let index = server.metric("tidemark_streams_manifest_index");
        until("the index", || process.metric("tidemark_streams_feed_index") == index);
        proxy.hold(true);
        // The blob is written again without the rows of b, and the old file goes at once.
        assert_eq!(server.post("/v1/erase?tenant=b", "").status, 200);
        until("the erasure", || server.post("/v1/erase?tenant=b", "").json()["is_done"] == json!(true));
        Gone { _server: server, process, proxy }
    }

    /// Has the feed go on while a query waits for it.
    pub fn asked_meanwhile(&self, ask: impl Fn(&Server) -> Answer + Sync) -> Answer {
        std::thread::scope(|scope| {
            let gone = self.process.metric("tidemark_streams_blobs_gone_total");
            let asking = scope.spawn(|| ask(&self.process));
            until("the missing blob", || self.process.metric("tidemark_streams_blobs_gone_total") > gone);
            self.proxy.hold(false);
            asking.join().unwrap()
        })
    }
}

#[test]
fn query_whose_blob_is_gone_is_pinned_at_the_next_index() {
    let place = Place::new();
    let gone = Gone::at(&place);
    let asked = |process: &Server| request(&process.address, "POST", QUERY, &[], &body("a")).unwrap();
    let refused = asked(&gone.process);
    assert_eq!((refused.status, refused.code().as_str()), (503, "blob_gone"), "{refused:?}");
    let answer = gone.asked_meanwhile(asked);
    assert_eq!((answer.status, &answer.json()["total"]), (200, &json!(2)), "{answer:?}");
}

#[test]
fn files_of_replaced_blobs_outlive_a_restart_for_the_grace() {
    let place = Place::new();
    let start = || Server::start(&place.dir(), &["--flush-s", "1", "--reader-grace-s", "6"]);
    let server = start();
    server.send(event("a", "x", "00:10:00") + &event("b", "x", "00:10:00"));
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    let before = server.metric("tidemark_streams_manifest_index");
    assert_eq!(server.post("/v1/erase?tenant=b", "").status, 200);
    until("the new blob", || server.metric("tidemark_streams_erasures_pending") == 0.0);
    assert!(server.metric("tidemark_streams_manifest_index") > before);
    server.kill();
    let began = Instant::now();
    let server = start();
    let files = || std::fs::read_dir(place.dir().join("blobs")).unwrap().count();
    until("the session", || server.metric("tidemark_streams_owner") == 1.0);
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(files(), 2, "a query process may read the replaced blob");
    assert_eq!(server.post("/v1/erase?tenant=b", "").json()["is_done"], json!(false));
    until("the end of the grace", || files() == 1);
    assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
    until("the erasure", || server.post("/v1/erase?tenant=b", "").json()["is_done"] == json!(true));
    // Where nothing is left, a start knows that at once.
    server.stop();
    let server = start();
    until("the look", || server.post("/v1/erase?tenant=b", "").json()["is_done"] == json!(true));
    assert!(began.elapsed() < Duration::from_secs(60));
}
