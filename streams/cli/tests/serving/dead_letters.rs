//! Dead letters that are listed, replayed and dropped while a server runs.

use crate::serving::{Answer, Place, Server, event, until};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const EARLY_FLUSH: [&str; 4] = ["--flush-s", "1", "--types", "impression,view"];

/// An event of a type.
fn typed(tenant: &str, listing: &str, name: &str) -> String {
    let mut event: Value = serde_json::from_str(&event(tenant, listing, "00:10:00")).unwrap();
    event["type"] = json!(name);
    format!("{event}\n")
}

fn lines(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The numbers of a replay or drop.
fn settled(answer: &Answer) -> (u64, u64, u64) {
    assert_eq!(answer.status, 200, "{answer:?}");
    let said = answer.json();
    assert_eq!((&said["is_complete"], &said["problem"]), (&json!(true), &Value::Null), "{said}");
    let number = |name: &str| said[name].as_u64().unwrap();
    (number("replayed"), number("dropped"), number("kept"))
}

fn letters(server: &Server) -> f64 {
    server.metric("tidemark_streams_dead_letters")
}

#[test]
fn letters_are_listed_by_filter_and_in_parts() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    server.send(typed("a", "x", "no") + &typed("b", "x", "no") + &typed("a", "y", "other"));
    until("the flush", || letters(&server) == 3.0);
    server.send(typed("a", "z", "no"));
    until("the flush", || letters(&server) == 4.0);
    let all = server.get("/v1/dead-letters");
    assert_eq!((lines(&all).len(), all.header("tidemark-next")), (4, None));
    assert_eq!(all.header("tidemark-unwritten").as_deref(), Some("0"));
    let source = lines(&all)[0]["source"].as_str().unwrap()[..6].to_owned();
    let count = |filter: &str| lines(&server.get(&format!("/v1/dead-letters?{filter}"))).len();
    assert_eq!((count("tenant=a"), count("tenant=b"), count("tenant=c")), (3, 1, 0));
    assert_eq!((count("reason=other"), count("row=1"), count(&format!("source={source}"))), (1, 1, 4));
    assert_eq!((count("tenant=a&reason=other"), count("tenant=b&reason=other")), (1, 0));
    // Parts of two letters, the second of which begins in the first blob and goes on in the next.
    let first = server.get("/v1/dead-letters?tenant=a&limit=2");
    let next = first.header("tidemark-next").unwrap();
    let second = server.get(&format!("/v1/dead-letters?tenant=a&limit=2&from={next}"));
    assert_eq!((lines(&first).len(), lines(&second).len(), second.header("tidemark-next")), (2, 1, None));
    assert_eq!(lines(&second)[0]["row"], json!(4));
    server.stop();
    assert_eq!(place.said(&["dead-letters", "list"]), all.text, "the command prints the same");
}

#[test]
fn damaged_blob_of_letters_does_not_hide_the_others() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    for listing in ["x", "y"] {
        let before = letters(&server);
        server.send(typed("a", listing, "no"));
        until("the flush", || letters(&server) == before + 1.0);
    }
    let blobs = || std::fs::read_dir(place.dir().join("blobs")).unwrap().map(|blob| blob.unwrap().path());
    let of_letters = || blobs().filter(|path| path.extension().is_some_and(|kind| kind == "ndjson")).min().unwrap();
    let whole = std::fs::read(of_letters()).unwrap();
    let path = of_letters();
    std::fs::write(&path, [&whole[..whole.len() - 2], b"??"].concat()).unwrap();
    let listed = server.get("/v1/dead-letters");
    assert_eq!(lines(&listed)[0]["row"], json!(2), "{listed:?}");
    let problem = listed.header("tidemark-problem").unwrap();
    assert!(problem.contains(path.file_name().unwrap().to_str().unwrap()), "{problem}");
    // Blobs behind the damaged one are settled, and a request can begin behind a blob.
    let dropped = server.post("/v1/dead-letters/drop?all=true", "").json();
    assert_eq!((&dropped["dropped"], &dropped["is_complete"]), (&json!(1), &json!(false)), "{dropped}");
    let none = server.get("/v1/dead-letters");
    assert_eq!((none.status, none.code().as_str()), (500, "blob_failed"), "{none:?}");
    std::fs::write(&path, whole).unwrap();
    let first = server.get("/v1/dead-letters");
    assert_eq!(lines(&first).len(), 1);
    assert_eq!(settled(&server.post("/v1/dead-letters/drop?all=true&from=9-9-9-9.0", "")), (0, 0, 0));
    assert_eq!(settled(&server.post("/v1/dead-letters/drop?all=true", "")), (0, 1, 0));
}

#[test]
fn wrong_requests_about_letters_are_refused_by_name() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &[&EARLY_FLUSH[..], &["--secret-file", &place.secret()]].concat());
    let operator = place.bearer(&["--operator"]);
    let producer = place.bearer(&[]);
    let asked = |method: &str, path: &str, header: &str| server.request(method, path, &[header], b"").unwrap();
    until("the claim", || asked("GET", "/readyz", &operator).status == 200);
    for path in ["", "?limit=0", "?limit=10001", "?limit=x", "?from=1", "?row=0", "?source=xy", "?tenant=", "?all=true"]
    {
        let answer = asked("GET", &format!("/v1/dead-letters{path}"), &operator);
        let refused = if path.is_empty() { 200 } else { 400 };
        assert_eq!(answer.status, refused, "{path}: {answer:?}");
    }
    for path in ["drop", "drop?all=true&tenant=a", "drop?all=yes", "drop?reason=", "replay?all=true", "replay?limit=1"]
    {
        let answer = asked("POST", &format!("/v1/dead-letters/{path}"), &operator);
        assert_eq!((answer.status, answer.code().as_str()), (400, "parameter"), "{path}: {answer:?}");
    }
    for (method, path) in [("GET", ""), ("POST", "/replay"), ("POST", "/drop?all=true")] {
        let path = format!("/v1/dead-letters{path}");
        assert_eq!(asked(method, &path, &producer).code(), "forbidden", "{path}");
        assert_eq!(asked(method, &path, "x-none: 1").code(), "unauthorized", "{path}");
        let other = server.request(method, &path, &[&operator, "sec-fetch-site: cross-site"], b"").unwrap();
        assert_eq!(other.status, if method == "GET" { 200 } else { 403 }, "{path}: {other:?}");
        let wrong = if method == "GET" { "POST" } else { "GET" };
        assert_eq!(asked(wrong, &path, &operator).code(), "method", "{path}");
    }
}

#[test]
fn letters_are_replayed_once_their_cause_is_mended() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    until("the claim", || server.get("/readyz").status == 200);
    server.send(typed("a", "x", "view"));
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    server.post("/v1/types/delete?type=view", "");
    let unknown = r#"{"listing":"y","at":"2026-01-01T00:10:00Z"}"#;
    // Letters that are in no blob yet are flushed first.
    server.send(typed("a", "x", "view").repeat(2) + &typed("b", "x", "no") + unknown);
    assert_eq!(settled(&server.post("/v1/dead-letters/replay", "")), (0, 0, 4));
    assert_eq!(letters(&server), 4.0);
    server.post("/v1/types/add?type=view", "");
    assert_eq!(settled(&server.post("/v1/dead-letters/replay?tenant=b", "")), (0, 0, 1));
    assert_eq!(settled(&server.post("/v1/dead-letters/replay?reason=was%20deleted", "")), (2, 0, 0));
    assert_eq!((letters(&server), server.total("a")), (2.0, 2));
    server.post("/v1/listings", r#"{"listing":"y","tenant":"c"}"#);
    assert_eq!(settled(&server.post("/v1/dead-letters/replay", "")), (1, 0, 1));
    assert_eq!(settled(&server.post("/v1/dead-letters/replay", "")), (0, 0, 1));
    assert_eq!((letters(&server), server.total("a"), server.total("c")), (1.0, 2, 1));
    server.kill();
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    until("the claim", || server.get("/readyz").status == 200);
    assert_eq!((server.total("a"), server.total("c"), letters(&server)), (2, 1, 1.0));
    server.stop();
    assert!(place.said(&["audit"]).contains(" count 3\n"));
}

#[test]
fn repaired_texts_are_replayed_in_place_of_their_letters() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    server.send(typed("a", "x", "no") + &typed("a", "y", "no") + &typed("b", "z", "no"));
    until("the flush", || letters(&server) == 3.0);
    let listed = server.get("/v1/dead-letters").text;
    let line = |row: usize| listed.lines().nth(row - 1).unwrap();
    let fixed = line(1).replace("\"no", "\"view") + "\n" + &line(2).replace("\"no", "\"other") + "\n";
    let replay = |path: &str, body: &str| server.post(&format!("/v1/dead-letters/replay{path}"), body);
    for (path, body) in
        [("", fixed.as_str()), ("?fixed=true", ""), ("?fixed=true", "{"), ("?fixed=true", &fixed.repeat(2))]
    {
        assert_eq!(replay(path, body).code(), "malformed_body", "{path} {body}");
    }
    let packed = server.request("POST", "/v1/dead-letters/replay?fixed=true", &["content-encoding: br"], b"x").unwrap();
    assert_eq!(packed.status, 415);
    let answer = replay("?fixed=true", &fixed);
    assert_eq!((settled(&answer), &answer.json()["missing"]), ((1, 0, 1), &json!(0)));
    let error = &answer.json()["errors"][0];
    assert_eq!(
        (&error["row"], error["reason"].as_str().unwrap().starts_with("event_type:")),
        (&json!(2), true),
        "{error}"
    );
    // The letter whose repaired text is refused stays as it was.
    assert_eq!(server.get("/v1/dead-letters").text, format!("{}\n{}\n", line(2), line(3)));
    let again = replay("?fixed=true&tenant=a", &(fixed.clone() + &line(3).replace("\"no", "\"view")));
    assert_eq!((settled(&again), &again.json()["missing"]), ((0, 0, 1), &json!(1)));
    assert_eq!(settled(&replay("?fixed=true", &line(2).replace("\"no", "\"view"))), (1, 0, 0));
    assert_eq!((letters(&server), server.total("a"), server.total("b")), (1.0, 2, 0));
}

#[test]
fn values_of_letters_are_masked_and_replayed_all_the_same() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    let text = |id: &str, more: &str| {
        format!(r#"{{"tenant":"a","listing":"x","at":"2026-01-01T00:10:00Z","event_id":"{id}"{more}}}"#)
    };
    let body =
        [text("order-7", r#","email":"p@example.com""#), text("order-8", r#","type":"no""#), "p@example.com".into()];
    server.send(body.join("\n"));
    until("the flush", || letters(&server) == 3.0);
    let listed = server.get("/v1/dead-letters").text;
    for hidden in ["example.com", "order-7", "order-8"] {
        assert!(!listed.contains(hidden), "{listed}");
    }
    assert!(listed.contains("[masked] 13 bytes") && listed.contains("2026-01-01T00:10:00Z"), "{listed}");
    assert_eq!(server.metric("tidemark_streams_letters_raw_total"), 0.0);
    let raw = server.get("/v1/dead-letters?raw=true").text;
    assert!(raw.contains("p@example.com") && raw.contains("order-8"), "{raw}");
    assert_eq!(server.metric("tidemark_streams_letters_raw_total"), 3.0);
    // The stored id takes the place of its mask. A mask of a field that the letter does not have is no value.
    let line = |row: usize| listed.lines().nth(row - 1).unwrap();
    let second = line(2).replace("\"no", "\"view");
    let first = line(1).replace("email", "type");
    let answer = server.post("/v1/dead-letters/replay?fixed=true", format!("{first}\n{second}\n"));
    assert_eq!(settled(&answer), (1, 0, 1));
    let error = &answer.json()["errors"][0];
    assert!(error["reason"].as_str().unwrap().contains("type is [masked]"), "{error}");
    assert_eq!(server.total("a"), 1);
    server.stop();
    let said = |more: &[&str]| place.said(&[&["dead-letters", "list"], more].concat());
    assert!(!said(&[]).contains("order-7") && !said(&["--mask-fields", ""]).contains("example.com"));
    assert!(said(&["--mask-fields", ""]).contains("order-7") && said(&["--raw"]).contains("example.com"));
    assert!(!said(&["--mask-fields", "at"]).contains("00:10:00"));
}

#[test]
fn letters_are_not_settled_while_the_partition_is_paused() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    server.send(typed("a", "x", "no"));
    until("the flush", || letters(&server) == 1.0);
    server.post("/v1/pause?type=view", "");
    assert_eq!(server.post("/v1/dead-letters/replay", "").code(), "type_paused");
    server.post("/v1/pause", "");
    for path in ["/v1/dead-letters/replay", "/v1/dead-letters/drop?all=true"] {
        assert_eq!(server.post(path, "").code(), "partition_paused");
    }
    assert_eq!(lines(&server.get("/v1/dead-letters")).len(), 1);
    server.post("/v1/resume", "");
    assert_eq!(settled(&server.post("/v1/dead-letters/drop?all=true", "")), (0, 1, 0));
}

#[test]
fn full_bound_is_drained_while_the_intake_goes_on() {
    let place = Place::new();
    let bounded = [&EARLY_FLUSH[..], &["--dead-letters-max", "20"]].concat();
    let server = Server::start(&place.dir(), &bounded);
    for listing in 0..4 {
        let text = typed("a", &format!("l{listing}"), "no").repeat(5);
        server.send(text);
        until("the flush", || letters(&server) == f64::from(5 * (listing + 1)));
    }
    let refused = server.post("/v1/events", typed("a", "x", "no"));
    assert_eq!((refused.status, refused.code().as_str()), (503, "dead_letters_full"));
    let ends = Arc::new(AtomicBool::new(false));
    let sent = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                server.send(event("b", "x", "00:10:00"));
                sent.fetch_add(1, Ordering::Relaxed);
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        let dropped = server.post("/v1/dead-letters/drop?reason=no", "");
        ends.store(true, Ordering::Relaxed);
        assert_eq!(settled(&dropped), (0, 20, 0));
    });
    // The bound knows it before the answer comes.
    assert_eq!(server.send(typed("a", "x", "no"))["dead_letters"], json!(1));
    until("the fold", || server.total("b") == sent.load(Ordering::Relaxed));
    assert_eq!(settled(&server.post("/v1/dead-letters/drop?tenant=a", "")), (0, 1, 0));
    server.stop();
    assert!(place.said(&["audit"]).contains("blobs are whole"));
    assert_eq!(place.said(&["dead-letters", "list"]), "");
}

#[test]
fn killed_replays_count_each_letter_once() {
    let place = Place::new();
    let late = ["--flush-s", "1", "--types", "impression"];
    let server = Server::start(&place.dir(), &late);
    const BLOBS: u64 = 8;
    for blob in 1..=BLOBS {
        server.send(typed("a", "x", "view").repeat(10));
        until("the flush", || letters(&server) == (10 * blob) as f64);
    }
    server.stop();
    let mut settled_now = 0;
    for round in 0..12 {
        let server = Server::start(&place.dir(), &EARLY_FLUSH);
        until("the claim", || server.get("/readyz").status == 200);
        // What earlier rounds counted is exactly what is no letter any more.
        let left = letters(&server) as u64;
        assert_eq!(server.total("a") + left, 10 * BLOBS, "round {round}");
        settled_now = 10 * BLOBS - left;
        let address = server.address.clone();
        let replay = std::thread::spawn(move || {
            let _ = crate::serving::request(&address, "POST", "/v1/dead-letters/replay", &[], b"");
        });
        std::thread::sleep(Duration::from_millis(5 * round));
        server.kill();
        replay.join().unwrap();
    }
    let server = Server::start(&place.dir(), &EARLY_FLUSH);
    until("the claim", || server.get("/readyz").status == 200);
    let rest = server.post("/v1/dead-letters/replay", "");
    assert!(settled(&rest).0 <= 10 * BLOBS - settled_now, "{rest:?}");
    assert_eq!((server.total("a"), letters(&server)), (10 * BLOBS, 0.0));
    server.stop();
    assert!(place.said(&["audit"]).contains(&format!(" count {}\n", 10 * BLOBS)));
}
