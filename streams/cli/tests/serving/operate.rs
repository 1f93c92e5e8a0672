//! Retention and test tenants of a running server.

use crate::serving::{Place, Server, event, until};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

const EARLY: [&str; 4] = ["--flush-s", "1", "--reader-grace-s", "0"];

fn flushed(server: &Server) {
    until("the flush", || server.metric("tidemark_streams_log_entries") == 0.0);
}

#[test]
fn retention_of_a_running_server_deletes_old_rows() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &EARLY);
    until("the claim", || server.get("/readyz").status == 200);
    let for_ever = json!({
        "kept_days": 0, "late_days": 0, "not_kept_before": null, "late_rows_from": null, "expired": 0,
    });
    assert_eq!(server.get("/v1/retention").json(), for_ever);
    // A blob leaves as a whole, so each has a blob of its own.
    for row in [event("a", "x", "00:10:00"), r#"{"tenant":"a","listing":"x"}"#.to_owned()] {
        server.send(row);
        flushed(&server);
    }
    for wrong in ["", "?kept_days=2", "?kept_days=40000", "?late_days=x", "?kept_days=-1"] {
        let refused = server.post(&format!("/v1/retention/set{wrong}"), "");
        assert_eq!((refused.status, refused.code().as_str()), (400, "parameter"), "{wrong}: {refused:?}");
    }
    assert_eq!((server.get("/v1/retention").json(), server.total("a")), (for_ever, 1));
    assert_eq!(server.post("/v1/retention/set?late_days=7", "").json()["late_days"], json!(7));
    let set = server.post("/v1/retention/set?kept_days=30", "").json();
    assert_eq!((&set["kept_days"], &set["late_days"]), (&json!(30), &json!(7)));
    until("the expiry", || server.get("/v1/retention").json()["expired"] == json!(1));
    assert_eq!(server.metric("tidemark_streams_expired_total"), 1.0);
    let query = json!({ "tenant": "a", "from": "2026-01-01", "to": "2026-01-03" }).to_string();
    assert_eq!(server.post("/v1/impressions/query", query).code(), "not_kept");
    // Rows that come later are refused.
    assert_eq!(server.send(event("a", "x", "00:10:00"))["errors"][0]["code"], json!("event_not_kept"));
    let before = server.get("/v1/retention").json();
    server.kill();
    let server = Server::start(&place.dir(), &EARLY);
    until("the claim", || server.get("/readyz").status == 200);
    assert_eq!(server.get("/v1/retention").json(), before, "it outlives a kill");
    server.stop();
    assert!(place.said(&["retention"]).starts_with("kept\t30 days\nlate\t7 days\n"));
    assert!(place.said(&["audit"]).contains(" count 1\n"));
}

fn marked(server: &Server) -> Vec<Value> {
    server.get("/v1/test-tenants").json()["test_tenants"].as_array().unwrap().clone()
}

#[test]
fn rows_of_test_tenants_are_deleted_while_the_server_runs() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &EARLY);
    until("the claim", || server.get("/readyz").status == 200);
    let delete = || server.post("/v1/test-tenants/delete-rows", "");
    assert_eq!((delete().status, delete().code().as_str()), (409, "no_test_tenants"));
    for wrong in ["", "?tenant=", "?name=a"] {
        assert_eq!(server.post(&format!("/v1/test-tenants/add{wrong}"), "").code(), "parameter", "{wrong}");
    }
    for tenant in ["demo", "load", "kept"] {
        server.post(&format!("/v1/test-tenants/add?tenant={tenant}"), "");
    }
    server.post("/v1/test-tenants/remove?tenant=kept", "");
    assert_eq!(marked(&server).len(), 2);
    let rows = ["demo", "load", "kept"].map(|tenant| event(tenant, "x", "00:10:00")).concat();
    server.send(&rows);
    let deleted = delete();
    assert_eq!(deleted.status, 200, "{deleted:?}");
    let totals = || ["demo", "load", "kept"].map(|tenant| server.total(tenant));
    assert_eq!(totals(), [0, 0, 1]);
    until("the deletion", || marked(&server).iter().all(|tenant| tenant["is_done"] == json!(true)));
    // The rows of these hours that come later do not count. The same again changes nothing.
    server.send(&rows);
    flushed(&server);
    assert_eq!((totals(), delete().status), ([0, 0, 2], 200));
    let hashes: Vec<String> =
        marked(&server).iter().map(|tenant| tenant["tenant_hash"].as_str().unwrap().to_owned()).collect();
    server.stop();
    let listed = place.said(&["test-tenants", "list"]);
    assert!(hashes.iter().all(|hash| listed.contains(hash)), "{listed}");
}

#[test]
fn retention_and_test_tenants_are_for_operators() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--secret-file", &place.secret()]);
    let operator = place.bearer(&["--operator"]);
    let producer = place.bearer(&[]);
    let asked = |method: &str, path: &str, header: &str| server.request(method, path, &[header], b"").unwrap();
    until("the claim", || asked("GET", "/readyz", &operator).status == 200);
    for (method, path) in [
        ("GET", "/v1/retention"),
        ("GET", "/v1/test-tenants"),
        ("POST", "/v1/retention/set?kept_days=0"),
        ("POST", "/v1/test-tenants/add?tenant=a"),
        ("POST", "/v1/test-tenants/delete-rows"),
        ("POST", "/v1/test-tenants/remove?tenant=a"),
    ] {
        assert_eq!(asked(method, path, &producer).code(), "forbidden", "{path}");
        assert_eq!(asked(method, path, "x-none: 1").code(), "unauthorized", "{path}");
        let other = server.request(method, path, &[&operator, "origin: http://other"], b"").unwrap();
        assert_eq!(other.status, if method == "GET" { 200 } else { 403 }, "{path}");
        assert_eq!(asked(method, path, &operator).status, 200, "{path}");
    }
    let refused = place.run(&["retention", "--kept-days", "30"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("has it open"), "{said}");
}

#[test]
fn body_that_no_one_reads_is_refused_and_nothing_is_done() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &EARLY);
    until("the claim", || server.get("/readyz").status == 200);
    server.send(event("a", "x", "00:10:00"));
    for path in [
        "pause",
        "resume",
        "erase?tenant=a",
        "types/add?type=cart",
        "retention/set?kept_days=3",
        "dead-letters/drop?all=true",
    ] {
        let refused = server.post(&format!("/v1/{path}"), "type=click");
        assert_eq!((refused.status, refused.code().as_str()), (400, "malformed_body"), "{path}: {refused:?}");
        assert!(refused.text.contains("takes no body: name parameters behind `?`"), "{refused:?}");
    }
    let refused = server.request("GET", "/v1/retention", &[], b"kept_days=3").unwrap();
    assert_eq!((refused.status, refused.code().as_str()), (400, "malformed_body"));
    let unknown = server.post("/v1/pause?type=nope", "");
    assert_eq!((unknown.status, unknown.code().as_str()), (400, "types"));
    assert!(unknown.text.contains("nope") && unknown.text.contains("known types: "), "{unknown:?}");
    assert_eq!(server.post("/v1/resume", "").json(), json!({ "partition": null, "types": {} }));
    assert_eq!(server.total("a"), 1);
}

#[test]
fn body_that_was_cut_off_is_a_body() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &EARLY);
    until("the claim", || server.get("/readyz").status == 200);
    let mut connection = TcpStream::connect(&server.address).unwrap();
    let head = format!("POST /v1/pause HTTP/1.1\r\nhost: {}\r\ncontent-length: 10\r\n\r\n", server.address);
    connection.write_all(head.as_bytes()).unwrap();
    connection.shutdown(Shutdown::Write).unwrap();
    // The answer, if there is one, ends with the connection.
    let _ = connection.read_to_string(&mut String::new());
    assert_eq!(server.post("/v1/resume?type=impression", "").json(), json!({ "partition": null, "types": {} }));
}

#[test]
fn server_with_an_emptied_folder_stops_and_says_so() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &EARLY);
    until("the claim", || server.get("/readyz").status == 200);
    server.send(event("a", "x", "00:10:00"));
    std::fs::remove_dir_all(place.dir()).unwrap();
    let said = server.ended();
    assert!(said.contains("manifest.redb is no longer the file that was opened"), "{said}");
}
