//! Events without tenants: the catalogue gives the tenant of each listing, also behind a restart.

use super::serving::{Place, Server, until};
use super::{LATE_FLUSH, PROGRAM};
use serde_json::{Value, json};
use std::process::Command;

fn entries(entries: &[(&str, &str)]) -> String {
    let line = |(listing, tenant): &(&str, &str)| json!({ "listing": listing, "tenant": tenant }).to_string();
    entries.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn add(server: &Server, listings: &[(&str, &str)]) -> Value {
    let answer = server.post("/v1/listings", entries(listings));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn viewed(listings: &[&str]) -> String {
    json!({ "listings": listings, "at": "2026-01-01T00:10:00Z" }).to_string()
}

#[test]
fn events_without_tenants_count_for_those_of_the_catalogue() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    assert_eq!(add(&server, &[("x", "a"), ("y", "b")]), json!({ "added": 2, "known": 0, "version": 1 }));
    assert_eq!(add(&server, &[("x", "a")]), json!({ "added": 0, "known": 1, "version": 1 }));
    assert_eq!(server.metric("tidemark_streams_listings"), 2.0);
    let said = server.send(r#"{"listing":"x","at":"2026-01-01T00:10:00Z","n":3}"#);
    assert_eq!((&said["accepted"], &said["dead_letters"]), (&json!(1), &json!(0)));
    // A page of two tenants and an unknown listing: an event for each tenant, and a dead letter.
    let said = server.send(viewed(&["y", "x", "z", "y"]));
    assert_eq!((&said["accepted"], &said["dead_letters"]), (&json!(2), &json!(1)));
    assert_eq!((&said["errors"][0]["event"], &said["errors"][0]["code"]), (&json!(1), &json!("listing_unknown")));
    assert_eq!((server.total("a"), server.total("b")), (4, 2));
    server.kill();
    // Acknowledged events have their tenants in the log, and the catalogue is still there.
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    assert_eq!((server.total("a"), server.total("b")), (4, 2));
    server.send(viewed(&["x"]));
    assert_eq!(add(&server, &[("z", "b")]), json!({ "added": 1, "known": 0, "version": 2 }));
    server.send(viewed(&["z"]));
    assert_eq!((server.total("a"), server.total("b")), (5, 3));
    server.stop();
    assert_eq!(place.said(&["listings", "show", "z"]), "b\tversion 2\n");
    let replay = ["dead-letters", "replay", "--reason", "listing_unknown"];
    assert!(place.said(&replay).starts_with("1 dead letters were replayed, 0 of"));
    let counts = |tenant: &str| place.said(&["query", tenant, "--by", "listing"]);
    assert_eq!((counts("a"), counts("b")), ("x\t5\n".to_owned(), "y\t2\nz\t2\n".to_owned()));
    assert!(place.said(&["audit"]).contains("blobs are whole"));
}

#[test]
fn repeated_pages_of_several_tenants_count_once() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    add(&server, &[("x", "a"), ("x2", "a"), ("y", "b")]);
    let numbered = "/v1/events?producer=search&seq=1";
    let page = viewed(&["x", "y", "z"]);
    let first = server.post(numbered, &page).json();
    assert_eq!((&first["accepted"], &first["dead_letters"], &first["known"]), (&json!(2), &json!(1), &json!(false)));
    server.kill();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    // The catalogue has grown meanwhile: the batch is known by its body.
    add(&server, &[("z", "a")]);
    let again = server.post(numbered, &page).json();
    assert_eq!((&again["accepted"], &again["dead_letters"], &again["known"]), (&json!(2), &json!(1), &json!(true)));
    assert_eq!((server.total("a"), server.total("b")), (1, 1));
    // An id names one event of one tenant, with or without its tenant.
    let with_id =
        |listings: &[&str]| json!({ "listings": listings, "at": "2026-01-01T00:10:00Z", "event_id": "e" }).to_string();
    assert_eq!(server.send(with_id(&["x", "x2"]))["accepted"], json!(1));
    assert_eq!(server.send(with_id(&["x", "x2"]))["duplicates"], json!(1));
    let named = json!({ "tenant": "a", "listing": "x", "event_id": "e" }).to_string();
    assert_eq!(server.send(named)["duplicates"], json!(1));
    let several = server.send(with_id(&["x", "y"]));
    assert_eq!(several["errors"][0]["code"], json!("listing_tenants"));
    let unknown = server.send(with_id(&["y", "new"]));
    assert_eq!((&unknown["accepted"], &unknown["errors"][0]["code"]), (&json!(0), &json!("listing_unknown")));
    assert_eq!((server.total("a"), server.total("b")), (3, 1));
    server.stop();
}

#[test]
fn one_of_many_tenants_that_claim_a_listing_at_once_gets_it() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    let claim = &|tenant: usize| {
        let own = format!("own-{tenant}");
        let tenant = format!("tenant-{tenant}");
        let answer = server.post("/v1/listings", entries(&[(&own, &tenant), ("hot", &tenant)]));
        (answer.status, own, tenant)
    };
    let claims: Vec<(u16, String, String)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|tenant| scope.spawn(move || claim(tenant))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let winners: Vec<_> = claims.iter().filter(|(status, ..)| *status == 200).collect();
    let [(_, _, winner)] = &winners[..] else { panic!("{claims:?}") };
    assert!(claims.iter().all(|(status, ..)| [200, 409].contains(status)), "{claims:?}");
    server.stop();
    assert_eq!(place.said(&["listings", "show", "hot"]), format!("{winner}\tversion 1\n"));
    for (status, own, _) in &claims {
        let known = place.run(&["listings", "show", own]).status.success();
        assert_eq!(known, *status == 200, "a refused request adds nothing: {own}");
    }
}

#[test]
fn bad_requests_for_listings_add_nothing() {
    let place = Place::new();
    let secret = place.secret();
    let server = Server::start(&place.dir(), &["--secret-file", &secret]);
    let producer = place.bearer(&[]);
    let post = |header: &str, body: &str| {
        let headers: &[&str] = if header.is_empty() { &[] } else { &[header] };
        server.request("POST", "/v1/listings", headers, body.as_bytes()).unwrap()
    };
    let good = entries(&[("x", "a")]);
    assert_eq!(post("", &good).code(), "unauthorized");
    assert_eq!(post(&place.bearer(&["--tenant", "a"]), &good).code(), "forbidden");
    let other_site = [producer.as_str(), "sec-fetch-site: cross-site"];
    assert_eq!(server.request("POST", "/v1/listings", &other_site, good.as_bytes()).unwrap().code(), "other_site");
    assert_eq!(post(&producer, &good).status, 200);
    let refused = |body: &str| {
        let answer = post(&producer, body);
        (answer.status, answer.code(), answer.json()["error"]["message"].as_str().unwrap().to_owned())
    };
    let (status, code, message) = refused(&entries(&[("new", "b"), ("x", "b")]));
    assert_eq!((status, code.as_str()), (409, "listing_conflict"));
    let expected = "nothing was added: listing \"x\" belongs to tenant \"a\", and tenant \"b\" is named";
    assert!(message.starts_with(expected), "{message}");
    for (body, expected) in [
        (String::new(), (400, "malformed_body")),
        ("[{}".to_owned(), (400, "malformed_body")),
        (entries(&[("new", "b"), ("", "b")]), (400, "listing_entry")),
        (entries(&[("new", "b"), (&"x".repeat(256), "b")]), (400, "listing_entry")),
        (r#"{"listing":"new","tenant":"b","n":1}"#.to_owned(), (400, "listing_entry")),
        (format!("{}\n", entries(&[("new", "b")])).repeat(10_001), (413, "too_many_listings")),
    ] {
        let (status, code, message) = refused(&body);
        assert_eq!((status, code.as_str()), expected, "{message}");
    }
    let headers = [producer.as_str()];
    let unknown = json!({ "listing": "new" }).to_string();
    let said = server.request("POST", "/v1/events", &headers, unknown.as_bytes()).unwrap().json();
    assert_eq!(said["errors"][0]["code"], json!("listing_unknown"), "nothing of the refused requests was added");
    server.kill();
    std::fs::write(place.dir().join("catalogue.redb"), "no catalogue").unwrap();
    let refused = Server::try_start(&place.dir(), &["--secret-file", &secret]).err().unwrap();
    assert!(refused.contains("catalogue.redb is corrupt or not a database"), "{refused}");
}

#[test]
fn full_disk_refuses_listings_until_there_is_space() {
    let place = Place::new();
    let mut command = Command::new("sh");
    let script = "trap '' XFSZ; exec \"$0\" serve --listen 127.0.0.1:0 --flush-s 3600 --dir \"$1\"";
    command.args(["-c", script, PROGRAM]).arg(place.dir());
    let server = Server::of(command).unwrap();
    add(&server, &[("x", "a")]);
    let limit = |bytes: &str| {
        let process = server.id().to_string();
        let limited = Command::new("prlimit").args([&format!("--fsize={bytes}"), "--pid", &process]).status().unwrap();
        assert!(limited.success());
    };
    limit("4096:");
    let refused = server.post("/v1/listings", entries(&[("y", "b")]));
    assert_eq!((refused.status, refused.code().as_str()), (503, "disk_full"), "{refused:?}");
    limit("unlimited:");
    until("listings to be added again", || server.post("/v1/listings", entries(&[("y", "b")])).status == 200);
    server.send(viewed(&["x", "y"]));
    assert_eq!((server.total("a"), server.total("b")), (1, 1));
}
