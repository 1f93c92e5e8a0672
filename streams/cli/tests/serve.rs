//! `serve` as a process: every acknowledged event counts once, whatever process is killed; wrong input is refused by name.

mod serving;

#[path = "serving/bad_input.rs"]
mod bad_input;
#[path = "serving/dead_letters.rs"]
mod dead_letters;
#[path = "serving/dimensions.rs"]
mod dimensions;
#[path = "serving/guide.rs"]
mod guide;
#[path = "serving/listings.rs"]
mod listings;
#[path = "serving/operate.rs"]
mod operate;
#[path = "serving/page.rs"]
mod page;
#[path = "serving/query.rs"]
mod query;
#[path = "serving/query_server.rs"]
mod query_server;
#[path = "serving/raw_events.rs"]
mod raw_events;
#[path = "serving/refused.rs"]
mod refused;
#[path = "serving/signed_tokens.rs"]
mod signed_tokens;
#[cfg(feature = "sql")]
#[path = "serving/sql.rs"]
mod sql;
#[cfg(feature = "sql")]
#[path = "serving/sql_generator.rs"]
mod sql_generator;
#[cfg(feature = "sql")]
#[path = "serving/sql_isolation.rs"]
mod sql_isolation;
#[path = "serving/tls.rs"]
mod tls;
#[path = "serving/types.rs"]
mod types;

use serde_json::json;
use serving::{PROGRAM, Place, Server, event, until};
use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// No flush comes by itself.
const LATE_FLUSH: [&str; 2] = ["--flush-s", "3600"];

#[test]
fn answer_has_rows_of_blobs_and_of_memory_once() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "1"]);
    let said = server.send(event("a", "x", "00:10:00") + &event("a", "y", "00:50:00") + &event("b", "x", "00:10:00"));
    assert_eq!(said, json!({ "accepted": 3, "dead_letters": 0, "duplicates": 0, "known": false, "errors": [] }));
    let answer = server.ask("a", json!({ "zone": "Asia/Kathmandu", "dimensions": ["hour", "listing"] }));
    let rows = json!([
        { "hour": "2026-01-01T05:00:00+05:45", "listing": "x", "n": 1 },
        { "hour": "2026-01-01T06:00:00+05:45", "listing": "y", "n": 1 },
    ]);
    assert_eq!((&answer["rows"], &answer["total"]), (&rows, &json!(2)));
    assert_eq!((&answer["from"], &answer["more"]), (&json!("2026-01-01T00:00:00+05:45"), &json!(false)));
    // Hours of January were settled long before these events came.
    assert_eq!((&answer["settled_at"], &answer["late_total"]), (&json!("2026-01-03T01:45:00+05:45"), &json!(2)));
    assert!(answer["complete_to"].is_string() && answer["last_updated_at"].is_string(), "{answer}");
    // While batches go from memory into blobs, every answer has each of them once.
    for batch in 1..=30 {
        server.send(event("a", "x", "00:10:00"));
        assert_eq!(server.total("a"), 2 + batch);
        std::thread::sleep(Duration::from_millis(100));
    }
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    assert!(server.metric("tidemark_streams_live_blobs") >= 2.0);
    assert_eq!((server.total("a"), server.total("b"), server.total("nobody")), (32, 1, 0));
    let by_day = server.ask("a", json!({ "dimensions": ["day", "type"], "types": ["impression"] }));
    assert_eq!(by_day["rows"], json!([{ "day": "2026-01-01T00:00:00+00:00", "type": "impression", "n": 32 }]));
    assert_eq!(server.ask("a", json!({ "types": ["click"] }))["total"], json!(0));
    let first = server.ask("a", json!({ "dimensions": ["listing"], "limit": 1 }));
    assert_eq!((&first["rows"], &first["more"]), (&json!([{ "listing": "x", "n": 31 }]), &json!(true)));
}

#[test]
fn acknowledged_events_outlive_kill_9_and_a_restart_replays_them() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    for _ in 0..5 {
        server.send(event("a", "x", "00:10:00").repeat(20));
    }
    server.kill();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    until("the replay", || server.metric("tidemark_streams_lag_rows") == 0.0);
    assert_eq!(server.total("a"), 100);
    server.stop();
    assert_eq!(place.said(&["query", "a", "--by", "day"]), "2026-01-01T00:00:00+00:00\t100\n");
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    assert_eq!((server.metric("tidemark_streams_log_entries"), server.total("a")), (0.0, 100));
}

#[test]
fn producer_that_retries_counts_once_though_the_server_is_killed_20_times() {
    let place = Place::new();
    let mut server = Server::start(&place.dir(), &["--flush-s", "1", "--flush-counts", "50"]);
    let address = Arc::new(std::sync::Mutex::new(server.address.clone()));
    let is_over = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let producers: Vec<_> = (0..3)
        .map(|number| {
            let address = Arc::clone(&address);
            let is_over = Arc::clone(&is_over);
            let acknowledged = Arc::clone(&acknowledged);
            std::thread::spawn(move || produce(number, &address, &is_over, &acknowledged))
        })
        .collect();
    for kill in 0..20_u64 {
        let before = acknowledged.load(Ordering::SeqCst);
        until("a batch", || acknowledged.load(Ordering::SeqCst) > before);
        std::thread::sleep(Duration::from_millis(7 * (kill % 9)));
        server.kill();
        server = Server::start(&place.dir(), &["--flush-s", "1", "--flush-counts", "50"]);
        address.lock().unwrap().clone_from(&server.address);
    }
    is_over.store(true, Ordering::SeqCst);
    let sent: Vec<u64> = producers.into_iter().map(|producer| producer.join().unwrap()).collect();
    assert!(sent.iter().sum::<u64>() >= 20, "{sent:?}");
    until("the replay", || server.metric("tidemark_streams_lag_rows") == 0.0);
    let counted: Vec<u64> = (0..3).map(|number| server.total(&format!("t{number}"))).collect();
    let expected: Vec<u64> = sent.iter().map(|batches| 10 * batches).collect();
    assert_eq!(counted, expected);
    server.stop();
    assert!(place.said(&["audit"]).contains(&format!("count {}", expected.iter().sum::<u64>())));
    let blobs = std::fs::read_dir(place.dir().join("blobs")).unwrap().count();
    let live = place.said(&["blobs"]).lines().count() - 1;
    assert!(blobs >= live);
}

#[test]
fn server_goes_on_with_a_manifest_that_was_built_again() {
    const SERVE: [&str; 4] = ["--flush-s", "1", "--flush-counts", "50"];
    let place = Place::new();
    let mut server = Server::start(&place.dir(), &SERVE);
    let address = Arc::new(std::sync::Mutex::new(server.address.clone()));
    let is_over = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let producer = {
        let address = Arc::clone(&address);
        let is_over = Arc::clone(&is_over);
        let acknowledged = Arc::clone(&acknowledged);
        std::thread::spawn(move || produce(0, &address, &is_over, &acknowledged))
    };
    for kill in 0..10_u64 {
        let before = acknowledged.load(Ordering::SeqCst);
        until("a batch", || acknowledged.load(Ordering::SeqCst) > before);
        std::thread::sleep(Duration::from_millis(150 * (kill % 9)));
        server.kill();
        std::fs::remove_file(place.dir().join("manifest.redb")).unwrap();
        let said = place.said(&["manifest", "rebuild", "--yes"]);
        assert!(!said.contains("given up"), "{said}");
        server = Server::start(&place.dir(), &SERVE);
        address.lock().unwrap().clone_from(&server.address);
    }
    is_over.store(true, Ordering::SeqCst);
    let expected = 10 * producer.join().unwrap();
    until("the replay", || server.metric("tidemark_streams_lag_rows") == 0.0);
    assert_eq!(server.total("t0"), expected);
    server.stop();
    assert!(place.said(&["audit"]).ends_with(&format!(" count {expected}\n")));
}

/// Sends numbered batches of 10 events, each again until it is acknowledged. Returns how many there were.
fn produce(number: u64, address: &std::sync::Mutex<String>, is_over: &AtomicBool, acknowledged: &AtomicU64) -> u64 {
    let tenant = format!("t{number}");
    for seq in 1.. {
        let body: String =
            (0..10).map(|row| event(&tenant, &format!("{}", (seq * 10 + row) % 97), "00:10:00")).collect();
        loop {
            let to = address.lock().unwrap().clone();
            let path = format!("/v1/events?producer=p{number}&seq={seq}");
            match serving::request(&to, "POST", &path, &[], body.as_bytes()) {
                Ok(answer) if answer.status == 200 => break,
                Ok(answer) => assert_eq!(answer.status, 503, "{answer:?}"),
                Err(_) => {}
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        acknowledged.fetch_add(1, Ordering::SeqCst);
        if is_over.load(Ordering::SeqCst) {
            return seq;
        }
    }
    0
}

#[test]
fn repeated_batches_and_ids_count_once_also_behind_a_restart() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    let batch = event("a", "x", "00:10:00").repeat(3);
    let sent = server.post("/v1/events?producer=p%2D1&seq=1", &batch).json();
    let mut again = sent.clone();
    again["known"] = json!(true);
    assert_eq!(server.post("/v1/events?producer=p-1&seq=1", &batch).json(), again);
    let id = r#"{"tenant":"a","listings":["x","y"],"at":"2026-01-01T00:10:00Z","event_id":"page-1"}"#;
    assert_eq!(server.send(format!("{id}\n{id}"))["duplicates"], json!(1));
    server.stop();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    assert_eq!(server.post("/v1/events?producer=p-1&seq=1", &batch).json(), again);
    assert_eq!(server.send(id)["duplicates"], json!(1));
    // Of another type it is another event.
    server.send(id.replace("\"at\"", "\"type\":\"click\",\"at\""));
    server.kill();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    assert_eq!(server.send(id)["duplicates"], json!(1));
    until("the replay", || server.metric("tidemark_streams_lag_rows") == 0.0);
    assert_eq!(server.total("a"), 3 + 2 + 2);
    let refused = |query: &str, body: &str| {
        let answer = server.post(&format!("/v1/events?{query}"), body);
        (answer.status, answer.code())
    };
    let conflict = |code: &str| (409, code.to_owned());
    assert_eq!(refused("producer=p-1&seq=1", &event("a", "z", "00:10:00")), conflict("seq_reused"));
    assert_eq!(refused("producer=p-1&seq=3", &batch), conflict("seq_gap"));
    assert_eq!(server.post("/v1/events?producer=p-1&seq=2", &batch).status, 200);
    assert_eq!(refused("producer=p-1&seq=1", &batch), conflict("seq_old"));
    assert_eq!(refused("producer=p-2&seq=7", &batch), conflict("producer_unknown"));
    assert_eq!(server.total("a"), 3 + 2 + 2 + 3);
}

#[test]
fn event_ids_of_a_type_have_bounds_of_their_own() {
    let place = Place::new();
    let types = ["--flush-s", "1", "--types", "click,purchase"];
    let of_type = ["--event-id-s", "1", "--event-ids-max", "2", "--event-ids-max-of", "purchase=3"];
    let arguments = [&types[..], &of_type[..]].concat();
    let server = Server::start(&place.dir(), &arguments);
    let id = |name: &str, id: u32| {
        let at = "2026-01-01T00:10:00Z";
        format!("{}\n", json!({ "tenant": "a", "listing": "x", "at": at, "type": name, "event_id": id }))
    };
    let sent = |server: &Server, name: &str, numbers: &[u32]| {
        let body: String = numbers.iter().map(|number| id(name, *number)).collect();
        server.send(body)["duplicates"].as_u64().unwrap()
    };
    sent(&server, "purchase", &[1, 2, 3]);
    // Clicks push out clicks only.
    sent(&server, "click", &[1, 2, 3]);
    assert_eq!(sent(&server, "purchase", &[1, 2, 3]), 3);
    let overflow = |server: &Server| {
        let of_type = "tidemark_streams_dedupe_overflow_of_type_total{type=\"purchase\"}";
        (server.metric("tidemark_streams_dedupe_overflow_total"), server.metric(of_type))
    };
    assert_eq!(overflow(&server), (1.0, 0.0));
    sent(&server, "purchase", &[4]);
    assert_eq!(overflow(&server), (2.0, 1.0));
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    std::thread::sleep(Duration::from_millis(1_100));
    // A second is over for clicks, and a day is not over for purchases, also behind a kill. The type keeps its bounds under a new name.
    server.post("/v1/types/rename?from=purchase&to=order", "");
    server.kill();
    let server = Server::start(&place.dir(), &arguments);
    until("the claim", || server.get("/readyz").status == 200);
    assert_eq!((sent(&server, "click", &[3]), sent(&server, "order", &[2, 3, 4])), (0, 3));
    sent(&server, "order", &[5]);
    std::thread::sleep(Duration::from_millis(1_100));
    assert_eq!(sent(&server, "order", &[5]), 1);
    drop(server);
    for wrong in ["view=5", "purchase", "purchase=x", "purchase=86401"] {
        assert!(
            Server::try_start(&place.dir(), &[&types[..], &["--event-id-s-of", wrong]].concat()).is_err(),
            "{wrong}"
        );
    }
}

#[test]
fn event_ids_beyond_their_number_count_again_and_are_shown() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "3600", "--event-ids-max", "2"]);
    let id =
        |id: u32| format!("{{\"tenant\":\"a\",\"listing\":\"x\",\"at\":\"2026-01-01T00:10:00Z\",\"event_id\":{id}}}\n");
    server.send(id(1) + &id(2) + &id(3));
    assert_eq!(server.metric("tidemark_streams_dedupe_overflow_total"), 1.0);
    assert_eq!(server.send(id(3))["duplicates"], json!(1));
    assert_eq!(server.send(id(1))["duplicates"], json!(0));
    until("the fold", || server.metric("tidemark_streams_lag_rows") == 0.0);
    assert_eq!(server.total("a"), 4);
}

#[test]
fn bad_events_become_dead_letters_with_code_and_reason() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    let body = [
        r#"{"tenant":"a","listing":"x","at":"2026-01-01T00:10:00Z"}"#,
        r#"{"tenant":"a","listing":"x","price":3}"#,
        r#"{"tenant":"a","listing":"x","n":-1}"#,
        r#"{"tenant":"a","listing":"x","at":"9999-01-01T00:00:00Z"}"#,
        r#"{"tenant":"a","listing":"x","at":1767225600000}"#,
        "not json",
    ];
    let said = server.send(body.join("\n"));
    let codes: Vec<&str> =
        said["errors"].as_array().unwrap().iter().map(|error| error["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["event_field", "event_count", "event_time", "event_time", "event_json"]);
    assert_eq!((&said["accepted"], &said["dead_letters"]), (&json!(1), &json!(5)));
    assert_eq!(said["errors"][0]["event"], json!(2));
    assert_eq!(server.metric("tidemark_streams_events_dead_letter_total"), 5.0);
    server.stop();
    let letters = place.said(&["dead-letters", "list", "--raw"]);
    let letters: Vec<serde_json::Value> = letters.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(letters.len(), 5);
    let reason = json!("event_count: count -1 is negative: at least 0");
    assert_eq!((&letters[1]["row"], &letters[1]["reason"]), (&json!(3), &reason));
    assert!(letters[3]["reason"].as_str().unwrap().ends_with("are these milliseconds?"));
    assert_eq!(letters[4]["text"], json!("not json"));
    assert!(place.said(&["audit"]).contains("\n2 blobs are whole"));
}

#[test]
fn dead_letters_of_the_intake_are_bounded_and_replayed() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "1", "--dead-letters-max", "2"]);
    let view = |listing: &str| {
        let listings = [listing, "z"];
        json!({ "tenant": "a", "listings": listings, "at": "2026-01-01T00:10:00Z", "type": "view" }).to_string() + "\n"
    };
    let late = json!({ "tenant": "a", "listing": "x", "type": "view" }).to_string();
    assert_eq!(server.send(view("x") + &view("y") + &late)["dead_letters"], json!(3));
    until("the flush", || server.metric("tidemark_streams_dead_letters") == 3.0);
    let refused = server.post("/v1/events", event("a", "x", "00:10:00") + &view("x"));
    assert_eq!((refused.status, refused.code().as_str()), (503, "dead_letters_full"), "{refused:?}");
    server.send(event("a", "x", "00:10:00"));
    server.stop();
    let replayed = place.said(&["dead-letters", "replay", "--types", "impression,view"]);
    assert_eq!(replayed, "2 dead letters were replayed, 1 of those that were tried stay\n");
    assert!(place.said(&["dead-letters", "list"]).contains("at is missing"));
    assert_eq!(place.said(&["query", "a", "--by", "listing", "--type", "view"]), "z\t2\nx\t1\ny\t1\n");
    let server = Server::start(&place.dir(), &["--flush-s", "1", "--dead-letters-max", "2"]);
    assert_eq!((server.total("a"), server.send(view("x"))["dead_letters"].clone()), (5, json!(1)));
}

#[test]
fn paused_partition_takes_events_durably_and_counts_them_once_resumed() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "1"]);
    server.send(event("a", "x", "00:10:00"));
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    let paused = server.post("/v1/pause", "").json();
    assert!(paused["partition"].is_string() && paused["types"] == json!({}), "{paused}");
    server.send(event("a", "x", "00:10:00").repeat(10));
    let answer = server.ask("a", json!({ "dimensions": [] }));
    assert_eq!((&answer["total"], answer["paused_since"].is_string()), (&json!(1), true), "{answer}");
    assert_eq!(server.metric("tidemark_streams_paused"), 1.0);
    server.kill();
    let server = Server::start(&place.dir(), &["--flush-s", "1"]);
    server.send(event("a", "x", "00:10:00").repeat(10));
    until("the claim", || server.get("/readyz").status == 200);
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!((server.total("a"), server.metric("tidemark_streams_lag_rows") as u64), (1, 20));
    server.stop();
    assert!(place.said(&["pause"]).starts_with("the partition is paused since "));
    let server = Server::start(&place.dir(), &["--flush-s", "1"]);
    assert_eq!(server.post("/v1/resume", "").json(), json!({ "partition": null, "types": {} }));
    until("the fold", || server.total("a") == 21);
}

#[test]
fn batch_with_a_paused_type_is_refused_and_counts_when_it_is_sent_again() {
    let place = Place::new();
    let secret = &place.secret();
    let token = |arguments: &[&str]| place.bearer(arguments);
    let server = Server::start(&place.dir(), &["--flush-s", "1", "--secret-file", secret]);
    let operator = token(&["--operator"]);
    let producer = token(&[]);
    let post = |token: &str, path: &str, body: &str| server.request("POST", path, &[token], body.as_bytes()).unwrap();
    assert_eq!(post(&producer, "/v1/pause?type=click", "").status, 403);
    assert_eq!(post("a: b", "/v1/pause?type=click", "").status, 401);
    assert_eq!(post(&operator, "/v1/pause?type=A%20B", "").code(), "parameter");
    assert!(post(&operator, "/v1/pause?type=click", "").json()["types"]["click"].is_string());
    let batch =
        event("a", "x", "00:10:00") + &event("a", "x", "00:10:00").replace("\"at\"", "\"type\":\"click\",\"at\"");
    let refused = post(&producer, "/v1/events?producer=p&seq=1", &batch);
    assert_eq!((refused.status, refused.code().as_str()), (503, "type_paused"), "{refused:?}");
    assert_eq!(post(&producer, "/v1/events?producer=q&seq=1", &event("a", "x", "00:10:00")).status, 200);
    assert_eq!(post(&operator, "/v1/resume?type=click", "").json()["types"], json!({}));
    assert_eq!(post(&producer, "/v1/events?producer=p&seq=1", &batch).json()["accepted"], json!(2));
}

#[test]
fn range_that_is_not_kept_is_answered_410_and_late_events_are_dead_letters() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    server.send(event("a", "x", "00:10:00"));
    server.stop();
    // A row of today is live, so January is older than three days. The clock alone does not say so.
    assert!(place.said(&["retention", "--kept-days", "3"]).contains("expired\t0 counts\n"));
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    server.send(json!({ "tenant": "b", "listing": "x" }).to_string());
    server.stop();
    assert!(place.said(&["retention", "--kept-days", "3"]).contains("expired\t1 counts\n"));
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    let query = json!({ "tenant": "a", "from": "2026-01-01", "to": "2026-01-03" }).to_string();
    let answer = server.post("/v1/impressions/query", &query);
    assert_eq!((answer.status, answer.code().as_str()), (410, "not_kept"), "{answer:?}");
    let said = server.send(event("a", "x", "00:10:00"));
    assert_eq!((&said["dead_letters"], &said["errors"][0]["code"]), (&json!(1), &json!("event_not_kept")));
    server.send(json!({ "tenant": "a", "listing": "x" }).to_string());
    let query = query.replace("2026-01-03", "2400-01-01");
    until("the fold", || server.post("/v1/impressions/query", &query).json()["total"] == json!(1));
    assert!(server.post("/v1/impressions/query", &query).json()["not_kept_before"].is_string());
}

/// Files of blobs.
fn files(place: &Place) -> usize {
    let entries = std::fs::read_dir(place.dir().join("blobs")).unwrap();
    entries.filter(|entry| entry.as_ref().unwrap().path().is_file()).count()
}

#[test]
fn pages_of_other_sites_may_not_operate_a_server() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    let own = format!("origin: http://{}", server.address);
    for path in ["/v1/pause?type=click", "/v1/resume?type=click", "/v1/erase?tenant=a"] {
        let post = |header: &str| server.request("POST", path, &[header], b"").unwrap();
        for header in ["origin: https://example.com", "origin: null", "sec-fetch-site: cross-site"] {
            let refused = post(header);
            assert_eq!((refused.status, refused.code().as_str()), (403, "other_site"), "{path} {header}");
        }
        assert_eq!((post(&own).status, post("sec-fetch-site: none").status), (200, 200), "{path}");
    }
}

#[test]
fn erased_tenant_is_gone_from_memory_log_and_blobs_of_a_running_server() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "1", "--reader-grace-s", "2"]);
    server.send(event("a", "x", "00:10:00").repeat(3) + &event("b", "x", "00:10:00"));
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    server.send(event("a", "x", "00:20:00") + &event("b", "x", "00:10:00"));
    assert_eq!(server.total("a"), 4);
    assert_eq!(server.post("/v1/erase", "").code(), "parameter");
    assert_eq!(server.post("/v1/erase?tenant=a&listing=", "").code(), "parameter");
    assert_eq!(server.post("/v1/erase?tenant=a&again=1", "").code(), "parameter");
    // A write that was abandoned left a file.
    std::fs::write(place.dir().join("blobs/0-1-1-9.parquet"), "rows of a").unwrap();
    let said = server.post("/v1/erase?tenant=a", "").json();
    assert!(said["erased_before"].is_string() && said["is_done"] == json!(false), "{said}");
    assert_eq!((server.total("a"), server.total("b")), (0, 2));
    until("the erasure", || server.post("/v1/erase?tenant=a", "").json()["is_done"] == json!(true));
    assert_eq!(server.metric("tidemark_streams_erasures_pending"), 0.0);
    let live_blobs = server.metric("tidemark_streams_live_blobs");
    assert_eq!(files(&place) as f64, live_blobs, "it is done once the files of replaced blobs are removed");
    // Asked again it is the same erasure, until another one is asked for.
    let again = server.post("/v1/erase?tenant=a", "").json();
    assert_eq!((&again["asked_at"], &again["is_done"]), (&said["asked_at"], &json!(true)));
    server.send(event("b", "x", "00:10:00").replace("2026-01-01", "2026-03-01"));
    let again = server.post("/v1/erase?tenant=a&again=true", "").json();
    assert_eq!((&again["erased_before"], &again["is_done"]), (&json!("2026-03-03T00:00:00+00:00"), &json!(false)));
    // Events of these hours do not come back, those of others count.
    server.send(event("a", "x", "00:10:00") + &event("b", "x", "00:10:00"));
    until("the fold", || server.total("b") == 3);
    assert_eq!(server.total("a"), 0);
    server.stop();
    assert!(place.said(&["audit"]).contains(" count 4\n"));
    assert!(place.said(&["erase", "a"]).contains("\nnot reached\tintake.redb: "));
}

#[test]
fn bad_requests_are_refused_by_code_and_count_nothing() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    let valid = event("a", "x", "00:10:00");
    let many = valid.repeat(10_001);
    let large = "x".repeat((8 << 20) + 1);
    let query = |body: &str| ("POST", "/v1/impressions/query", "a: b", body.to_owned());
    let events = |path: &'static str| ("POST", path, "a: b", valid.clone());
    let coded = |coding: &'static str, body: &str| ("POST", "/v1/events", coding, body.to_owned());
    let cases = [
        (("GET", "/v1/events", "a: b", String::new()), 405, "method"),
        (("PUT", "/v1/impressions/query", "a: b", String::new()), 405, "method"),
        (("DELETE", "/metrics", "a: b", String::new()), 405, "method"),
        (("POST", "/v1/event", "a: b", valid.clone()), 404, "not_found"),
        (events("/v1/events?produced=1"), 400, "parameter"),
        (events("/v1/events?producer=a"), 400, "parameter"),
        (events("/v1/events?seq=1"), 400, "parameter"),
        (events("/v1/events?producer=a&seq=0"), 400, "parameter"),
        (events("/v1/events?producer=a&seq=-1"), 400, "parameter"),
        (events("/v1/events?producer=a&seq=1&seq=2"), 400, "parameter"),
        (events("/v1/events?producer=%zz&seq=1"), 400, "parameter"),
        (events("/v1/events?producer=a%20b&seq=1"), 400, "parameter"),
        (coded("a: b", ""), 400, "malformed_body"),
        (coded("a: b", "tenant,listing\na,x\n"), 400, "malformed_body"),
        (coded("a: b", "[{}"), 400, "malformed_body"),
        (coded("a: b", &many), 413, "too_many_events"),
        (coded("a: b", &large), 413, "too_large"),
        (coded("content-encoding: br", &valid), 415, "content_encoding"),
        (coded("content-encoding: gzip", &valid), 400, "malformed_body"),
        (coded("content-encoding: zstd", &valid), 400, "malformed_body"),
        (coded("content-range: bytes 0-1/9", &valid), 400, "content_range"),
        (query("{}"), 400, "malformed_body"),
        (query(r#"{"tenant":"a","from":"2026-01-01","to":"2026-01-02","sql":"x"}"#), 400, "malformed_body"),
        (query(r#"{"tenant":"","from":"2026-01-01","to":"2026-01-02"}"#), 400, "tenant"),
        (query(r#"{"tenant":"a","from":"2026-01-02","to":"2026-01-01"}"#), 400, "range"),
        (query(r#"{"tenant":"a","from":"0001-01-01","to":"2026-01-01"}"#), 400, "range"),
        (query(r#"{"tenant":"a","from":"2026-01-01","to":"9999-01-01"}"#), 400, "range"),
        (query(r#"{"tenant":"a","from":"2026-01-01","to":"2026-01-02","zone":"Mars/Base"}"#), 400, "zone"),
        (query(r#"{"tenant":"a","from":"2026-01-01","to":"2026-01-02","dimensions":["week"]}"#), 400, "dimensions"),
        (
            query(r#"{"tenant":"a","from":"2026-01-01","to":"2026-01-02","dimensions":["hour","day"]}"#),
            400,
            "dimensions",
        ),
        (query(r#"{"tenant":"a","from":"2026-01-01","to":"2026-01-02","types":["A B"]}"#), 400, "types"),
        (query(r#"{"tenant":"a","from":"2026-01-01","to":"2026-01-02","limit":0}"#), 400, "limit"),
        (query(r#"{"tenant":"a","from":"2026-01-01","to":"2026-01-02","limit":100001}"#), 400, "limit"),
    ];
    for ((method, path, header, body), status, code) in &cases {
        let answer = server.request(method, path, &[header], body.as_bytes()).unwrap();
        let shown = &body[..body.len().min(100)];
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (*status, *code),
            "{method} {path} {header} {shown}: {answer:?}"
        );
        if *status == 405 {
            assert!(answer.header("allow").is_some(), "{answer:?}");
        }
    }
    assert_eq!((server.total("a"), server.metric("tidemark_streams_log_entries")), (0, 0.0));
    assert_eq!(server.metric("tidemark_streams_requests_refused_total"), cases.len() as f64);
    assert_eq!(server.get("/readyz").status, 200);
}

#[test]
fn packed_bodies_are_read_and_bombs_are_refused() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    let packed = |program: &str, bytes: &[u8]| {
        let mut command = Command::new(program);
        command.arg("-c").stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let bytes = bytes.to_vec();
        let writer = std::thread::spawn(move || input.write_all(&bytes).unwrap());
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output.stdout
    };
    let batch = event("a", "x", "00:10:00").repeat(100);
    let gzip = ["content-encoding: gzip"];
    let answer = server.request("POST", "/v1/events", &gzip, &packed("gzip", batch.as_bytes())).unwrap();
    assert_eq!(answer.json()["accepted"], json!(100), "{answer:?}");
    let bomb = packed("gzip", &vec![b' '; 200 << 20]);
    assert!(bomb.len() < 1 << 20, "{}", bomb.len());
    let answer = server.request("POST", "/v1/events", &gzip, &bomb).unwrap();
    assert_eq!((answer.status, answer.code()), (413, "too_large".to_owned()));
    let peak_kib = server.peak_kib();
    assert!(peak_kib < 250 << 10, "{peak_kib} KiB");
    assert_eq!(server.total("a"), 100);
}

#[test]
fn second_process_on_the_directory_is_refused() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    server.send(event("a", "x", "00:10:00"));
    let refused = Server::try_start(&place.dir(), &[]).err().unwrap();
    assert!(refused.contains("another process has it open"), "{refused}");
    let query = place.run(&["query", "a"]);
    assert!(String::from_utf8_lossy(&query.stderr).contains("another process has it open"), "{query:?}");
    server.send(event("a", "x", "00:10:00"));
    until("the fold", || server.total("a") == 2);
}

#[test]
fn lost_or_foreign_log_of_the_intake_is_refused() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    server.send(event("a", "x", "00:10:00"));
    server.stop();
    let log = place.dir().join("intake.redb");
    let saved = std::fs::read(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    let refused = Server::try_start(&place.dir(), &[]).err().unwrap();
    assert!(refused.contains("has rows 0 to 0, and the manifest has counted up to row 1"), "{refused}");
    let other = Place::new();
    Server::start(&other.dir(), &LATE_FLUSH).stop();
    std::fs::copy(other.dir().join("intake.redb"), &log).unwrap();
    let refused = Server::try_start(&place.dir(), &[]).err().unwrap();
    assert!(refused.contains("error: "), "{refused}");
    std::fs::write(&log, saved).unwrap();
    assert_eq!(Server::start(&place.dir(), &LATE_FLUSH).total("a"), 1);
}

#[test]
fn tokens_open_what_they_are_for() {
    let place = Place::new();
    let secret = &place.secret();
    let token = |arguments: &[&str]| place.bearer(arguments);
    let server = Server::start(&place.dir(), &["--secret-file", secret]);
    let producer = token(&[]);
    let tenant = token(&["--tenant", "a"]);
    let status =
        |header: &str, path: &str, body: &str| server.request("POST", path, &[header], body.as_bytes()).unwrap().status;
    let events = event("a", "x", "00:10:00");
    assert_eq!(status("a: b", "/v1/events", &events), 401);
    assert_eq!(status(&tenant, "/v1/events", &events), 403);
    assert_eq!(status(&producer, "/v1/events", &events), 200);
    let query = |tenant: &str| format!(r#"{{"tenant":"{tenant}","from":"2026-01-01","to":"2026-01-02"}}"#);
    assert_eq!(status("a: b", "/v1/impressions/query", &query("a")), 401);
    assert_eq!(status(&tenant, "/v1/impressions/query", &query("a")), 200);
    assert_eq!(status(&tenant, "/v1/impressions/query", &query("b")), 403);
    assert_eq!(status(&producer, "/v1/impressions/query", &query("b")), 200);
    assert_eq!((server.get("/metrics").status, server.get("/healthz").status), (401, 200));
    assert_eq!(server.get("/metrics").header("www-authenticate").as_deref(), Some("Bearer"));
    let open = Server::of({
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--listen", "0.0.0.0:0", "--dir"]).arg(place.path().join("other"));
        command
    });
    assert!(open.err().unwrap().contains("requests need no token: name --secret-file"));
}

#[test]
fn tenant_over_its_quota_is_told_when_to_come_again() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--tenant-events-per-s", "10"]);
    server.send(event("a", "x", "00:10:00").repeat(100));
    let answer = server.post("/v1/events", event("a", "x", "00:10:00").repeat(50) + &event("b", "x", "00:10:00"));
    assert_eq!((answer.status, answer.code()), (429, "over_quota".to_owned()));
    let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=5).contains(&seconds), "{answer:?}");
    server.send(event("b", "x", "00:10:00").repeat(100));
    until("the fold", || server.total("b") == 100);
    assert_eq!(server.total("a"), 100);
}

#[test]
fn full_disk_is_answered_503_and_intake_goes_on_when_there_is_space() {
    let place = Place::new();
    let mut command = Command::new("sh");
    let script = "trap '' XFSZ; ulimit -S -f 16384; exec \"$0\" serve --listen 127.0.0.1:0 --flush-s 3600 --dir \"$1\"";
    command.args(["-c", script, PROGRAM]).arg(place.dir());
    let server = Server::of(command).unwrap();
    let mut accepted = 0;
    let batch: String = (0..1_000).map(|row| event("a", &format!("{:0>200}", row), "00:10:00")).collect();
    let refused = loop {
        let answer = server.post("/v1/events", &batch);
        if answer.status != 200 {
            break answer;
        }
        accepted += 1_000;
        assert!(accepted < 1_000_000, "the limit was never met");
    };
    assert_eq!((refused.status, refused.code().as_str()), (503, "disk_full"), "{refused:?}");
    assert_eq!(refused.header("retry-after").as_deref(), Some("1"));
    until("the reason", || server.get("/readyz").status == 503);
    let process = server.id().to_string();
    let done = Command::new("prlimit").args(["--fsize=unlimited", "--pid", &process]).status().unwrap();
    assert!(done.success());
    until("the log to open again", || server.post("/v1/events", &batch).status == 200);
    until("the fold", || server.metric("tidemark_streams_lag_rows") == 0.0);
    assert_eq!(server.total("a"), accepted + 1_000);
}

#[test]
fn log_that_is_full_is_answered_503_until_blobs_are_written() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "2", "--log-bytes-max", "1048576"]);
    let batch: String = (0..5_000).map(|row| event("a", &format!("{row:0>200}"), "00:10:00")).collect();
    let mut accepted = 0;
    let refused = loop {
        let answer = server.post("/v1/events", &batch);
        if answer.status != 200 {
            break answer;
        }
        accepted += 5_000;
    };
    assert_eq!((refused.status, refused.code().as_str()), (503, "log_full"), "{refused:?}");
    until("room in the log", || server.post("/v1/events", &batch).status == 200);
    until("the fold", || server.total("a") == accepted + 5_000);
}

#[test]
fn sql_without_its_program_is_answered_501() {
    let place = Place::new();
    let program = place.path().join("tidemark-sql");
    std::fs::copy("/bin/true", &program).unwrap();
    let server = Server::start(&place.dir(), &["--sql-program", program.to_str().unwrap()]);
    std::fs::remove_file(&program).unwrap();
    let query = json!({ "tenant": "a", "from": "2026-01-01", "to": "2026-01-02", "query": "SELECT 1" });
    let answer = server.post("/v1/sql", query.to_string());
    assert_eq!((answer.status, answer.code().as_str()), (501, "sql_not_installed"), "{answer:?}");
    assert!(answer.text.contains("--features sql") && !answer.text.contains(program.to_str().unwrap()), "{answer:?}");
}

#[test]
fn files_for_sql_that_cannot_be_used_are_refused_at_start() {
    let place = Place::new();
    let log = place.path().join("log");
    std::fs::write(&log, "").unwrap();
    let log = log.to_str().unwrap();
    for (option, path, why) in [
        ("--sql-program", "/nowhere/tidemark-sql", "No such file"),
        ("--sql-program", log, "it is not an executable file"),
        ("--sql-program", "/", "it is not an executable file"),
        ("--sql-log", "/nowhere/log", "No such file"),
        ("--sql-log", "/dev/null", "it is not a file"),
    ] {
        let refused = Server::try_start(&place.dir(), &[option, path]).err().unwrap();
        assert!(refused.contains(&format!("{option} {path}: ")) && refused.contains(why), "{refused}");
    }
}

#[test]
fn tenant_may_not_take_all_processes_for_sql() {
    let place = Place::new();
    for (queries, children) in [("2", "2"), ("7", "4")] {
        let limits = ["--sql-tenant-queries", queries, "--sql-children", children];
        let refused = Server::try_start(&place.dir(), &limits).err().unwrap();
        let named = format!("--sql-tenant-queries {queries} with --sql-children {children}");
        assert!(refused.contains(&named), "{refused}");
    }
}

#[test]
fn health_and_metrics_say_what_they_mean() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    assert_eq!(server.get("/healthz").json(), json!({ "status": "ok" }));
    until("ready", || server.get("/readyz").status == 200);
    let ready = server.get("/readyz?verbose").json();
    assert_eq!((&ready["ready"], ready["checks"].as_array().unwrap().len()), (&json!(true), 4));
    let text = server.get("/metrics").text;
    let names: Vec<&str> =
        text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split([' ', '{']).next().unwrap()).collect();
    assert!(names.len() >= 25, "{names:?}");
    let page =
        concat!(include_str!("../../../docs/reference/streams.md"), include_str!("../../../docs/reference/sql.md"));
    for name in names {
        for kind in ["HELP", "TYPE", "UNIT"] {
            assert!(text.contains(&format!("# {kind} {name} ")), "{kind} of {name}");
        }
        assert!(page.contains(&format!("`{name}`")), "no page of the reference names {name}");
    }
}

/// The log of the intake has only events behind the newest blob, so an earlier manifest would leave a gap.
#[test]
fn manifest_that_ends_before_the_intake_log_is_not_built() {
    let place = Place::new();
    for time in ["00:10:00", "00:20:00"] {
        let server = Server::start(&place.dir(), &LATE_FLUSH);
        server.send(event("a", "x", time));
        server.stop();
    }
    // No command opens the directory before, because it would write the head of the newest state.
    let files = std::fs::read_dir(place.dir().join("blobs")).unwrap();
    let path = files.map(|entry| entry.unwrap().path()).max().unwrap();
    let whole = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let manifest = place.dir().join("manifest.redb");
    std::fs::remove_file(&manifest).unwrap();
    for arguments in [&["manifest", "rebuild"][..], &["manifest", "rebuild", "--yes"]] {
        let output = place.run(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("no server would start on it") && said.contains("up to row 1"), "{said}");
        assert!(!output.status.success() && !manifest.exists());
    }
    std::fs::write(&path, whole).unwrap();
    place.said(&["manifest", "rebuild", "--yes"]);
    assert_eq!(Server::start(&place.dir(), &LATE_FLUSH).total("a"), 2);
}
