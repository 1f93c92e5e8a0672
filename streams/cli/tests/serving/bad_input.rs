//! Requests and damage that a server outlives: what is refused is named, and what is sound counts.

use crate::LATE_FLUSH;
use crate::serving::{Place, Server, event, until};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const MIB: usize = 1 << 20;
/// Memory that a server may have used at most.
const PEAK_KIB_MAX: u64 = 250 << 10;

/// The codes of the refused events of an answer.
fn codes(said: &Value) -> Vec<&str> {
    said["errors"].as_array().unwrap().iter().map(|error| error["code"].as_str().unwrap()).collect()
}

#[test]
fn page_of_a_million_listings_is_a_dead_letter() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    let page = |listings: usize| {
        let listings = vec!["1"; listings].join(",");
        format!("{{\"tenant\":\"a\",\"at\":\"2026-01-01T00:10:00Z\",\"listings\":[{listings}]}}\n")
    };
    let said = server.send(page(1_000_000) + &page(1_001) + &page(1_000) + &event("a", "1", "00:10:00"));
    assert_eq!(codes(&said), ["event_too_long", "event_listings"]);
    assert_eq!((&said["accepted"], &said["dead_letters"]), (&json!(2), &json!(2)));
    until("the fold", || server.total("a") == 1_001);
    let refused = server.post("/v1/events", page(1_000).repeat(101));
    assert_eq!((refused.status, refused.code().as_str()), (413, "too_many_events"), "{refused:?}");
    let peak_kib = server.peak_kib();
    assert!(peak_kib < PEAK_KIB_MAX, "{peak_kib} KiB");
    server.stop();
    let letters = place.said(&["dead-letters", "list"]);
    let letters: Vec<Value> = letters.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let reasons: Vec<&str> = letters.iter().map(|letter| letter["reason"].as_str().unwrap()).collect();
    let long = "event_too_long: the event has 2000055 bytes: at most 1048576";
    assert_eq!(reasons, [long, "event_listings: 1001 listings: 1 to 1000 in a page"]);
    assert!(letters.iter().all(|letter| letter["text"].as_str().unwrap().len() <= 3_000), "their texts are cut");
}

#[test]
fn ids_of_a_mebibyte_are_refused_by_name() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &LATE_FLUSH);
    let with = |field: &str, bytes: usize| {
        let mut event = json!({ "tenant": "a", "listing": "x", "at": "2026-01-01T00:10:00Z" });
        event[field] = "x".repeat(bytes).into();
        format!("{event}\n")
    };
    // An event has at most a mebibyte, so the longest id of one that is read is a little shorter.
    let longest = MIB - 100;
    for (field, code) in
        [("tenant", "event_tenant"), ("listing", "event_listing"), ("event_id", "event_id"), ("type", "event_type")]
    {
        let said = server.send(with(field, MIB) + &with(field, longest) + &event("a", "x", "00:10:00"));
        assert_eq!(codes(&said), ["event_too_long", code], "{field}");
        assert_eq!(said["accepted"], json!(1), "{field}");
        assert!(said.to_string().len() < 10_000, "reasons show a part of it");
    }
    let long = "x".repeat(MIB);
    for (tenant, status, code) in [(&long[..], 413, "too_large"), (&long[..60_000], 400, "tenant")] {
        let query = json!({ "tenant": tenant, "from": "2026-01-01", "to": "2026-01-03" });
        let refused = server.post("/v1/impressions/query", query.to_string());
        assert_eq!((refused.status, refused.code().as_str()), (status, code), "{refused:?}");
        assert!(refused.text.len() < 1_000, "{refused:?}");
    }
    let path = format!("/v1/events?producer={long}&seq=1");
    let refused = server.request("POST", &path, &[], event("a", "x", "00:10:00").as_bytes()).unwrap();
    assert_eq!(refused.status, 431, "{refused:?}");
    until("the fold", || server.metric("tidemark_streams_lag_rows") == 0.0);
    assert_eq!(server.total("a"), 4);
    let peak_kib = server.peak_kib();
    assert!(peak_kib < PEAK_KIB_MAX, "{peak_kib} KiB");
}

#[test]
fn missing_blob_is_named_after_a_further_look() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "1"]);
    server.send(event("a", "x", "00:10:00").repeat(3));
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    let blob = std::fs::read_dir(place.dir().join("blobs")).unwrap().next().unwrap().unwrap().path();
    let kept = place.path().join("kept");
    std::fs::rename(&blob, &kept).unwrap();
    let query = json!({ "tenant": "a", "from": "2026-01-01", "to": "2026-01-03" }).to_string();
    let failed = server.post("/v1/impressions/query", &query);
    assert_eq!((failed.status, failed.code().as_str()), (500, "blob_failed"), "{failed:?}");
    assert!(failed.text.contains("is missing"), "{failed:?}");
    // A merge may have replaced the blob since the query was pinned.
    assert_eq!(server.metric("tidemark_streams_blobs_gone_total"), 1.0);
    std::fs::rename(&kept, &blob).unwrap();
    assert_eq!(server.total("a"), 3);
}

#[test]
fn heads_of_requests_are_read_as_the_standard_says() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "3600", "--secret-file", &place.secret()]);
    let token = place.token(&["--tenant", "a"]);
    let query = json!({ "tenant": "a", "from": "2026-01-01", "to": "2026-01-03" }).to_string();
    let ask = |headers: &[&str]| server.request("POST", "/v1/impressions/query", headers, query.as_bytes()).unwrap();
    for scheme in ["Bearer", "bearer", "BEARER"] {
        assert_eq!(ask(&[&format!("authorization: {scheme} {token}")]).status, 200, "{scheme}");
    }
    let header = format!("authorization: Bearer {token}");
    let twice = ask(&[&header, "authorization: Bearer other"]);
    assert_eq!((twice.status, twice.code().as_str()), (400, "malformed_request"), "{twice:?}");
    assert_eq!(ask(&["authorization: Basic abc"]).status, 401);
    for (head, status) in [
        ("HTTP/1.1\r\n", "400"),
        ("HTTP/1.1\r\nhost: a\r\nhost: b\r\n", "400"),
        ("HTTP/1.1\r\nhost: a b\r\n", "400"),
        ("HTTP/1.1\r\nhost: a\r\n", "200"),
        ("HTTP/1.0\r\n", "200"),
    ] {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(stream, "GET /healthz {head}connection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer.split(' ').nth(1), Some(status), "{head:?}: {answer}");
    }
}

#[test]
fn damaged_blob_is_named_while_the_intake_goes_on() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "1"]);
    server.send(event("a", "x", "00:10:00").repeat(3));
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    let mut blobs = std::fs::read_dir(place.dir().join("blobs")).unwrap();
    let path = blobs.next().unwrap().unwrap().path();
    assert!(blobs.next().is_none());
    let whole = std::fs::read(&path).unwrap();
    let mut bytes = whole.clone();
    bytes[whole.len() / 2] ^= 0x55;
    std::fs::write(&path, bytes).unwrap();
    let query = json!({ "tenant": "a", "from": "2026-01-01", "to": "2026-01-03" }).to_string();
    let failed = server.post("/v1/impressions/query", &query);
    assert_eq!((failed.status, failed.code().as_str()), (500, "blob_failed"), "{failed:?}");
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(failed.text.contains(&format!("blob {name} is damaged: its checksum is ")), "{failed:?}");
    server.send(event("b", "x", "00:10:00").replace("2026-01-01", "2026-03-01"));
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    let march = json!({ "tenant": "b", "from": "2026-03-01", "to": "2026-03-02" });
    assert_eq!(server.post("/v1/impressions/query", march.to_string()).json()["total"], json!(1));
    // An erasure has to read the blob.
    assert_eq!(server.post("/v1/erase?tenant=a", "").json()["is_done"], json!(false));
    until("the failed read", || server.metric("tidemark_streams_unreadable_blobs") > 0.0);
    server.send(event("b", "x", "00:10:00").replace("2026-01-01", "2026-03-01"));
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
    assert_eq!(server.post("/v1/impressions/query", march.to_string()).json()["total"], json!(2));
    std::fs::write(&path, &whole).unwrap();
    until("the blob to be read", || server.metric("tidemark_streams_unreadable_blobs") == 0.0);
    assert_eq!(server.total("a"), 0);
    server.stop();
    assert!(place.said(&["audit"]).ends_with(" count 2\n"));
}
