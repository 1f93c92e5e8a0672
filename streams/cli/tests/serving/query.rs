//! Queries over HTTP: the period before, CSV, what is known of a range, and tokens that open one tenant only.

use crate::serving::{Answer, PROGRAM, Place, Server, event, until};
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};

const QUERY: &str = "/v1/impressions/query";

/// An event at a time.
fn at(tenant: &str, listing: &str, at: &str, n: u32) -> String {
    format!("{}\n", json!({ "tenant": tenant, "listing": listing, "at": at, "n": n }))
}

fn asked(server: &Server, query: &Value) -> Value {
    let answer = server.post(QUERY, query.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn folded(server: &Server) {
    until("the fold", || server.metric("tidemark_streams_lag_rows") == 0.0);
}

#[test]
fn query_compares_the_same_days_of_the_month_before() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "3600"]);
    let a = "a";
    let b = "b";
    server.send(
        at("t", a, "2026-02-10T05:10:00Z", 4)
            + &at("t", a, "2026-02-28T05:10:00Z", 9)
            + &at("t", b, "2026-02-03T05:10:00Z", 1)
            + &at("t", a, "2026-03-10T05:10:00Z", 6)
            + &at("t", a, "2026-03-30T05:10:00Z", 2),
    );
    folded(&server);
    let query = json!({
        "tenant": "t", "from": "2026-03-01", "to": "2026-03-20", "dimensions": ["day", "listing"], "compare": "previous",
    });
    let answer = asked(&server, &query);
    let day = |day: &str, listing: &str, n: u32, previous: u32| {
        let day = format!("2026-03-{day}T00:00:00+00:00");
        json!({ "day": day, "listing": listing, "n": n, "previous": previous })
    };
    assert_eq!(answer["rows"], json!([day("03", b, 0, 1), day("10", a, 6, 4)]));
    let previous = json!({
        "from": "2026-02-01T00:00:00+00:00", "to": "2026-02-20T00:00:00+00:00", "total": 5, "unmatched": 0,
        "not_kept_before": null,
    });
    assert_eq!((&answer["total"], &answer["previous"]), (&json!(6), &previous));
    // The largest come first; a listing that only counted before is named too.
    let mut ranked = query.clone();
    (ranked["dimensions"], ranked["to"]) = (json!(["listing"]), json!("2026-04-01"));
    let answer = asked(&server, &ranked);
    let rows = json!([{ "listing": a, "n": 8, "previous": 13 }, { "listing": b, "n": 0, "previous": 1 }]);
    assert_eq!((&answer["rows"], &answer["previous"]["to"]), (&rows, &json!("2026-03-01T00:00:00+00:00")));
    (ranked["limit"], ranked["listings"]) = (json!(1), json!([b]));
    let answer = asked(&server, &ranked);
    assert_eq!(
        (&answer["rows"][0]["listing"], &answer["more"], &answer["total"]),
        (&json!(b), &json!(false), &json!(0))
    );
    // The first day of a month beside that of the month before, and not beside yesterday.
    let first =
        json!({ "tenant": "t", "from": "2026-03-01", "to": "2026-03-01T12:00", "dimensions": [], "compare": "month" });
    let previous = asked(&server, &first)["previous"].clone();
    let of_february = ["2026-02-01T00:00:00+00:00", "2026-02-01T12:00:00+00:00"];
    assert_eq!((&previous["from"], &previous["to"]), (&json!(of_february[0]), &json!(of_february[1])));
    // The 29th to 31st of January are no days of February.
    server.send(at("t", a, "2026-01-30T05:10:00Z", 7));
    folded(&server);
    let february = json!({ "tenant": "t", "from": "2026-02-01", "to": "2026-03-01", "dimensions": ["day"], "compare": "previous" });
    let answer = asked(&server, &february);
    assert_eq!((&answer["previous"]["total"], &answer["previous"]["unmatched"]), (&json!(7), &json!(7)));
    let week =
        json!({ "tenant": "t", "from": "2026-03-10", "to": "2026-03-11", "dimensions": ["hour"], "compare": "week" });
    assert_eq!(asked(&server, &week)["previous"]["from"], json!("2026-03-03T00:00:00+00:00"));
    server.stop();
    let compare = ["query", "t", "--by", "day", "--from", "2026-03-01", "--to", "2026-03-20", "--compare", "previous"];
    let said = "2026-03-03T00:00:00+00:00\t0\t1\n2026-03-10T00:00:00+00:00\t6\t4\n";
    assert_eq!(place.said(&compare), said);
    let without_range = place.run(&["query", "t", "--compare", "previous"]);
    assert!(String::from_utf8_lossy(&without_range.stderr).contains("--from <TIME>"), "{without_range:?}");
}

#[test]
fn hour_that_the_clock_leaves_out_is_told_apart() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "3600"]);
    // 02:15 of the 7th, and 03:15 of the 8th, on which New York has no 02:15.
    server.send(at("t", "x", "2026-03-07T07:15:00Z", 5) + &at("t", "x", "2026-03-08T07:15:00Z", 3));
    folded(&server);
    let query = json!({
        "tenant": "t", "from": "2026-03-08", "to": "2026-03-09", "zone": "America/New_York", "compare": "previous",
        "zeros": true,
    });
    let answer = asked(&server, &query);
    let rows = answer["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[2]["hour"]), (23, &json!("2026-03-08T03:00:00-04:00")));
    assert_eq!((&rows[2]["n"], &rows[2]["previous"]), (&json!(3), &json!(0)));
    assert_eq!((&answer["previous"]["total"], &answer["previous"]["unmatched"]), (&json!(5), &json!(5)));
    let lord_howe = json!({
        "tenant": "t", "from": "2026-04-05", "to": "2026-04-06", "zone": "Australia/Lord_Howe", "dimensions": ["quarter"],
        "zeros": true,
    });
    assert_eq!(asked(&server, &lord_howe)["rows"].as_array().unwrap().len(), 98, "a day of 24 hours and a half");
}

#[test]
fn answer_tells_what_is_not_yet_there_from_what_is_empty() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "3600", "--lateness-s", "3600"]);
    server.send(event("t", "x", "00:10:00"));
    folded(&server);
    let state = |from: &str, to: &str| {
        let answer = asked(&server, &json!({ "tenant": "t", "from": from, "to": to }));
        (answer["state"].as_str().unwrap().to_owned(), answer["total"].as_u64().unwrap())
    };
    assert_eq!(state("2026-01-02", "2026-01-03"), ("settled".to_owned(), 0), "empty and complete");
    assert_eq!(state("2400-01-01", "2400-01-02"), ("not_yet".to_owned(), 0), "not yet there");
    assert_eq!(state("2026-01-01", "2400-01-02"), ("partial".to_owned(), 1));
    let now_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() / 900 * 900;
    assert_eq!(state(&(now_s - 900).to_string(), &now_s.to_string()).0, "complete", "late events may still come");
    let answer = asked(&server, &json!({ "tenant": "t", "from": "2026-01-01", "to": "2026-01-02" }));
    let hours = |name: &str| answer[name].as_str().unwrap()[14..].to_owned();
    assert_eq!((hours("settled_to"), hours("settled_at")), ("00:00+00:00".to_owned(), "00:00+00:00".to_owned()));
}

#[test]
fn answer_that_the_client_has_is_not_sent_again() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "3600"]);
    server.send(event("t", "x", "00:10:00") + &event("u", "x", "00:10:00"));
    folded(&server);
    let mut query = json!({ "tenant": "t", "from": "2026-01-01", "to": "2026-01-02" });
    let first = asked(&server, &query);
    query["unless_version"] = first["version"].clone();
    let again = asked(&server, &query);
    assert_eq!((&again["unchanged"], &again["version"]), (&json!(true), &first["version"]));
    assert!(again["rows"].is_null() && again["total"].is_null() && again["complete_to"].is_string(), "{again}");
    // Events of other tenants that are in no blob yet change nothing.
    server.send(event("u", "x", "00:10:00"));
    folded(&server);
    assert_eq!(asked(&server, &query)["unchanged"], json!(true));
    let mut other = query.clone();
    other["zone"] = json!("Asia/Kathmandu");
    assert!(asked(&server, &other)["unchanged"].is_null(), "another query has another version");
    server.send(event("t", "x", "00:10:00"));
    folded(&server);
    let changed = asked(&server, &query);
    assert_eq!((&changed["total"], &changed["unchanged"]), (&json!(2), &Value::Null));
    query["unless_version"] = json!("nonsense");
    assert_eq!(asked(&server, &query)["total"], json!(2));
}

#[test]
fn rows_come_in_the_format_that_the_client_accepts() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "3600"]);
    server.send(at("t", "a \"lamp\", red", "2026-01-01T00:10:00Z", 2) + &at("t", "=1+1", "2026-01-01T00:10:00Z", 1));
    folded(&server);
    let query = json!({ "tenant": "t", "from": "2026-01-01", "to": "2026-01-02", "dimensions": ["hour", "listing"] });
    let csv =
        |query: &Value| server.request("POST", QUERY, &["accept: text/csv"], query.to_string().as_bytes()).unwrap();
    let answer = csv(&query);
    let rows =
        "hour,listing,n\r\n2026-01-01T00:00:00+00:00,=1+1,1\r\n2026-01-01T00:00:00+00:00,\"a \"\"lamp\"\", red\",2\r\n";
    assert_eq!((answer.status, answer.text.as_str()), (200, rows));
    let header = |name: &str| answer.header(name).unwrap_or_default();
    assert!(header("content-type").starts_with("text/csv"), "{answer:?}");
    assert_eq!((header("tidemark-total"), header("tidemark-more")), ("3".to_owned(), "false".to_owned()));
    assert_eq!((header("tidemark-state"), header("cache-control")), ("settled".to_owned(), "no-store".to_owned()));
    let mut compared = query.clone();
    (compared["compare"], compared["limit"]) = (json!("previous"), json!(1));
    (compared["from"], compared["to"]) = (json!("2026-01-02"), json!("2026-01-03"));
    let answer = csv(&compared);
    assert_eq!(answer.text, "hour,listing,n,previous\r\n2026-01-02T00:00:00+00:00,=1+1,0,1\r\n");
    assert_eq!(answer.header("tidemark-more").as_deref(), Some("true"));
    let total = csv(&json!({ "tenant": "t", "from": "2026-01-01", "to": "2026-01-02", "dimensions": [] }));
    assert_eq!(total.text, "n\r\n3\r\n");
    let arrow = |format: &str| {
        let answer = server.request("POST", QUERY, &[&format!("accept: {format}")], query.to_string().as_bytes());
        let answer = answer.unwrap();
        let header = |name: &str| answer.header(name).unwrap_or_default();
        assert_eq!((answer.status, header("content-type")), (200, format.to_owned()));
        assert_eq!((header("tidemark-total"), header("tidemark-state")), ("3".to_owned(), "settled".to_owned()));
        assert!(answer.text.contains("a \"lamp\", red") && answer.text.contains("=1+1"), "{answer:?}");
        answer.text
    };
    assert!(!arrow("application/vnd.apache.arrow.stream").contains("ARROW1"));
    assert!(arrow("application/vnd.apache.arrow.file").starts_with("ARROW1"));
    let other = server.request("POST", QUERY, &["accept: image/png"], query.to_string().as_bytes()).unwrap();
    assert_eq!((other.status, other.code().as_str()), (406, "not_acceptable"));
}

#[test]
fn events_of_an_hour_are_told_by_the_minute_of_counting() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "1"]);
    server.send(event("t", "x", "00:10:00").repeat(3));
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    server.send(event("t", "y", "00:20:00"));
    folded(&server);
    let query = json!({
        "tenant": "t", "from": "2026-01-01T00:00", "to": "2026-01-01T01:00", "dimensions": ["counted_at", "listing"],
    });
    let sum = |answer: &Value, listing: &str, is_known: bool| -> u64 {
        let rows = answer["rows"].as_array().unwrap().iter();
        rows.filter(|row| row["listing"] == json!(listing) && row["counted_at"].is_string() == is_known)
            .map(|row| row["n"].as_u64().unwrap())
            .sum()
    };
    let answer = asked(&server, &query);
    assert_eq!((sum(&answer, "x", true), sum(&answer, "y", true), &answer["total"]), (3, 1, &json!(4)));
    let minute = answer["rows"][0]["counted_at"].as_str().unwrap();
    assert!(minute.ends_with(":00+00:00"), "{minute}");
    until("the second flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    let again = || {
        let mut again = query.clone();
        again["unless_version"] = asked(&server, &query)["version"].clone();
        again
    };
    until("an answer without news", || asked(&server, &again())["unchanged"] == json!(true));
    let again = again();
    server.stop();
    let server = Server::start(&place.dir(), &["--flush-s", "1"]);
    until("ready", || server.get("/readyz").status == 200);
    assert!(asked(&server, &again)["rows"].is_array(), "the same blobs have other rows where no minute is known");
    let answer = asked(&server, &query);
    assert_eq!((sum(&answer, "x", false), sum(&answer, "y", false)), (3, 1), "a restart forgets the minutes: {answer}");
}

#[test]
fn bad_queries_are_refused_with_value_and_limit() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "3600"]);
    let refused = |more: Value| {
        let mut query = json!({ "tenant": "t", "from": "2026-01-01", "to": "2026-01-02" });
        more.as_object().unwrap().iter().for_each(|(key, value)| query[key] = value.clone());
        let answer = server.post(QUERY, query.to_string());
        assert_eq!(answer.status, 400, "{answer:?}");
        (answer.code(), answer.json()["error"]["message"].as_str().unwrap().to_owned())
    };
    // A server that begins has not read the names of types yet.
    let other = json!({ "tenant": "t", "from": "2026-01-01", "to": "2026-01-02", "types": ["impresion"] }).to_string();
    until("the names of types", || server.post(QUERY, other.as_str()).status == 400);
    let many: Vec<String> = (0..101).map(|listing| listing.to_string()).collect();
    let cases = [
        (json!({ "compare": "next" }), "compare", "compare \"next\": \"previous\", \"week\" or \"month\""),
        (
            json!({ "compare": "previous", "from": "1970-01-01", "to": "1970-01-02" }),
            "compare",
            "between 1970 and 3000",
        ),
        (json!({ "compare": "week", "dimensions": ["counted_at"] }), "compare", "counted_at is not compared"),
        (json!({ "dimensions": ["quarter", "day"] }), "dimensions", "quarter and day are both given"),
        (json!({ "dimensions": ["listing", "listing"] }), "dimensions", "\"listing\" is given twice"),
        (json!({ "dimensions": ["sku"] }), "dimensions", "\"sku\" is unknown; known dimensions: quarter, hour, day"),
        (json!({ "types": ["impresion"] }), "types", "type \"impresion\" is unknown; known types: click, impression"),
        (json!({ "listings": many }), "listings", "101 listings: at most 100"),
        (json!({ "listings": [""] }), "listings", "listing"),
        (json!({ "zeros": true, "dimensions": ["hour", "listing"] }), "zeros", "the only dimension"),
        (json!({ "limit": 100_001 }), "limit", "limit 100001: 1 to 100000"),
        (json!({ "zone": "Mars/Base" }), "zone", "unknown time zone \"Mars/Base\""),
        (json!({ "to": "2026-01-01" }), "range", "is not before"),
        (json!({ "from": "2026-13-01" }), "range", "\"2026-13-01\""),
        (
            json!({ "zeros": true, "dimensions": ["quarter"], "from": "1970-01-01", "to": "2400-01-01" }),
            "too_many_groups",
            "more than 1000000 groups",
        ),
        (json!({ "tenant": null }), "tenant", "tenant is missing"),
        (json!({ "tenant": "a\nb" }), "tenant", "tenant \"a\\nb\" has a control character"),
        (json!({ "tenant": "t".repeat(129) }), "tenant", "tenant has 129 bytes: at most 128"),
        (json!({ "to": "2999-01-01" }), "range", "\"2999-01-01\" is after the last hour"),
    ];
    for (more, code, text) in cases {
        let (found, message) = refused(more);
        assert!(found == code && message.contains(text), "{found}: {message}");
    }
}

#[test]
fn queries_of_many_shops_at_once_wait_for_each_other() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "3600"]);
    let events: String = (0..60).map(|tenant| event(&format!("t{tenant}"), "x", "00:10:00")).collect();
    server.send(events);
    folded(&server);
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..60)
            .map(|tenant| {
                let server = &server;
                scope.spawn(move || server.total(&format!("t{tenant}")))
            })
            .collect();
        asking.into_iter().for_each(|asking| assert_eq!(asking.join().unwrap(), 1));
    });
}

/// A server with a secret, and what `token` prints.
struct Guarded {
    place: Place,
    server: Server,
}

impl Guarded {
    fn start() -> Guarded {
        let place = Place::new();
        let server = Server::start(&place.dir(), &["--flush-s", "3600", "--secret-file", &place.secret()]);
        Guarded { place, server }
    }

    fn token(&self, arguments: &[&str]) -> String {
        self.place.token(arguments)
    }

    fn ask(&self, token: &str, tenant: Option<&str>) -> Answer {
        let mut query = json!({ "from": "2026-01-01", "to": "2026-01-02", "dimensions": [] });
        if let Some(tenant) = tenant {
            query["tenant"] = json!(tenant);
        }
        let header = format!("authorization: Bearer {token}");
        self.server.request("POST", QUERY, &[&header], query.to_string().as_bytes()).unwrap()
    }
}

#[test]
fn token_opens_one_tenant_and_says_nothing_of_others() {
    let guarded = Guarded::start();
    let producer = guarded.token(&[]);
    let header = format!("authorization: Bearer {producer}");
    let events = event("a", "x", "00:10:00") + &event("b", "x", "00:10:00").repeat(2);
    assert_eq!(guarded.server.request("POST", "/v1/events", &[&header], events.as_bytes()).unwrap().status, 200);
    let total = |answer: Answer| (answer.status, answer.json()["total"].clone());
    let plain = guarded.token(&["--tenant", "a"]);
    let ending = guarded.token(&["--tenant", "a", "--expires-in", "1h"]);
    until("the fold", || total(guarded.ask(&plain, Some("a"))) == (200, json!(1)));
    assert_eq!(total(guarded.ask(&ending, Some("a"))), (200, json!(1)));
    let named = guarded.ask(&ending, None);
    assert_eq!((named.status, &named.json()["tenant"]), (200, &json!("a")), "such a token names its tenant");
    assert_eq!(guarded.ask(&plain, None).code(), "tenant");
    let without = guarded.server.post(QUERY, "no JSON");
    assert_eq!((without.status, without.code().as_str()), (401, "unauthorized"), "before anything is read");
    let changed = |token: &str| {
        let last = if token.ends_with('0') { '1' } else { '0' };
        format!("{}{last}", &token[..token.len() - 1])
    };
    let other_name = ending.replacen("61.", "62.", 1);
    let wrong =
        [plain.clone(), ending.clone(), changed(&plain), changed(&ending), other_name, guarded.token(&["--operator"])];
    // Tenant b exists, and nobody does not: no answer tells.
    let refusal = guarded.ask(&plain, Some("b"));
    assert_eq!((refusal.status, refusal.code().as_str()), (403, "forbidden"));
    for token in &wrong {
        for tenant in ["b", "nobody", "B", "a\u{0}", ""] {
            let answer = guarded.ask(token, Some(tenant));
            assert_eq!((answer.status, &answer.text), (403, &refusal.text), "{tenant:?}");
        }
    }
    assert_eq!(guarded.ask(&changed(&ending), Some("a")).text, refusal.text);
    let erase =
        guarded.server.request("POST", "/v1/erase?tenant=a", &[&format!("authorization: Bearer {ending}")], b"");
    assert_eq!(erase.unwrap().status, 403);
    let events = guarded.server.request("POST", "/v1/events", &[&format!("authorization: Bearer {ending}")], b"{}");
    assert_eq!(events.unwrap().status, 403);
}

#[test]
fn token_that_ends_is_refused_from_its_end_on() {
    let guarded = Guarded::start();
    let token = guarded.token(&["--tenant", "a", "--expires-in", "2s"]);
    let begun = Instant::now();
    let first = guarded.ask(&token, None);
    // A slow machine may take longer than the token lives.
    assert!(first.status == 200 || begun.elapsed() > Duration::from_secs(1), "{first:?}");
    until("the end", || guarded.ask(&token, None).status == 401);
    for tenant in ["a", "b", "nobody"] {
        let answer = guarded.ask(&token, Some(tenant));
        assert_eq!((answer.status, answer.code().as_str()), (401, "token_expired"), "{answer:?}");
    }
    // An end that the holder moved makes it another token.
    let mut parts: Vec<&str> = token.split('.').collect();
    parts[1] = "99999999999";
    assert_eq!(guarded.ask(&parts.join("."), None).code(), "forbidden");
    let secret = guarded.place.path().join("secret");
    for wrong in [
        &["--expires-in", "1mo", "--tenant", "a"][..],
        &["--expires-in", "1h"],
        &["--expires-in", "soon", "--tenant", "a"],
    ] {
        let output = Command::new(PROGRAM).args(["token", "--secret-file"]).arg(&secret).args(wrong).output().unwrap();
        assert!(!output.status.success(), "{wrong:?}");
    }
}

/// A blob of more than 256 KiB is read as a whole once. Then each tenant costs one part of it.
#[test]
fn parts_of_a_large_blob_are_read_and_compared() {
    const BEGIN_S: u64 = 1_767_225_600;
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "3600"]);
    let mut totals = [0; 40];
    for (tenant, total) in totals.iter_mut().enumerate() {
        let mut body = String::new();
        for hour in 0..1_000 {
            let n = (tenant as u64 + 1).wrapping_mul(hour + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            *total += n + 1;
            let at = BEGIN_S + hour * 3_600;
            body += &json!({ "tenant": format!("t{tenant}"), "listing": "x", "at": at, "n": n + 1 }).to_string();
            body.push('\n');
        }
        server.send(body);
    }
    server.stop();
    let server = Server::start(&place.dir(), &["--flush-s", "3600"]);
    let query = |tenant: usize| {
        let query =
            json!({ "tenant": format!("t{tenant}"), "from": "2026-01-01", "to": "2026-03-01", "dimensions": [] });
        server.post(QUERY, query.to_string())
    };
    let reads = || server.metric("tidemark_streams_query_reads_total");
    for (tenant, expected) in [(0, 2.0), (39, 3.0), (0, 3.0), (20, 4.0)] {
        assert_eq!(query(tenant).json()["total"], totals[tenant]);
        assert_eq!(reads(), expected, "reads after the query of tenant {tenant}");
    }
    let blobs: Vec<_> =
        std::fs::read_dir(place.dir().join("blobs")).unwrap().map(|file| file.unwrap().path()).collect();
    let [blob] = blobs.as_slice() else { panic!("{blobs:?}") };
    let flip = || {
        let mut bytes = std::fs::read(blob).unwrap();
        assert!(bytes.len() > 256 << 10, "{}", bytes.len());
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(blob, bytes).unwrap();
    };
    flip();
    // The part is compared with what was read before, and then the whole with the manifest.
    for what in ["differ from those that were read before", "and the manifest says"] {
        let damaged = query(5);
        assert_eq!((damaged.status, damaged.code()), (500, "blob_failed".to_owned()), "{damaged:?}");
        assert!(damaged.text.contains(what), "{damaged:?}");
    }
    assert_eq!(query(39).json()["total"], totals[39], "rows in memory");
    flip();
    assert_eq!(query(5).json()["total"], totals[5]);
    server.stop();
}
