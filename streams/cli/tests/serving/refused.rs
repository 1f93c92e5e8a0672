//! How many events of a tenant were refused, and why.

use crate::serving::{Place, Server, event, until};
use serde_json::{Value, json};

const QUOTA: [&str; 4] = ["--flush-s", "1", "--tenant-events-per-s", "2"];

fn codes(answer: &Value) -> Vec<(String, u64)> {
    let listed = answer["codes"].as_array().unwrap_or_else(|| panic!("{answer}")).iter();
    listed.map(|code| (code["code"].as_str().unwrap().to_owned(), code["events"].as_u64().unwrap())).collect()
}

#[test]
fn refused_events_are_counted_by_tenant_across_a_kill() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &QUOTA);
    let future = r#"{"tenant":"a","listing":"x","at":"2999-01-01T00:00:00Z"}"#;
    let negative = r#"{"tenant":"a","listing":"x","n":-1}"#;
    let unknown = r#"{"listing":"nobody"}"#;
    server.send([future, negative, future, unknown, "{"].join("\n"));
    server.send(event("b", "x", "00:10:00"));
    let over = server.post("/v1/events", event("b", "x", "00:10:00").repeat(20));
    assert_eq!((over.status, over.code().as_str()), (429, "over_quota"));
    let of = |server: &Server, tenant: &str| server.get(&format!("/v1/refused?tenant={tenant}")).json();
    let expected = [("event_time".to_owned(), 2), ("event_count".to_owned(), 1)];
    assert_eq!(codes(&of(&server, "a")), expected);
    assert_eq!((&of(&server, "b")["events"], &of(&server, "b")["requests_over_quota"]), (&json!(0), &json!(1)));
    until("the flush", || server.metric("tidemark_streams_dead_letters") == 5.0);
    // Some are in a checkpoint of the log, some in the log alone.
    server.send(negative);
    server.kill();
    let server = Server::start(&place.dir(), &QUOTA);
    until("the claim", || server.get("/readyz").status == 200);
    let both = [("event_count".to_owned(), 2), ("event_time".to_owned(), 2)];
    assert_eq!((codes(&of(&server, "a")), &of(&server, "a")["events"]), (both.to_vec(), &json!(4)));
    assert_eq!(server.metric("tidemark_streams_events_refused_total{code=\"event_time\"}"), 2.0);
    // Letters that are dropped were refused all the same; the reason of a letter begins with the code.
    let dropped = server.post("/v1/dead-letters/drop?reason=event_count:", "").json();
    assert_eq!((&dropped["dropped"], &of(&server, "a")["events"]), (&json!(2), &json!(4)));
    let all = server.get("/v1/refused").json();
    assert_eq!((&all["events"], &all["more"]), (&json!(6), &json!(false)));
    let tenants: Vec<&Value> = all["tenants"].as_array().unwrap().iter().map(|tenant| &tenant["tenant"]).collect();
    assert_eq!(tenants, [&json!("a"), &Value::Null]);
    let first = server.get("/v1/refused?limit=1").json();
    assert_eq!((first["tenants"].as_array().unwrap().len(), &first["more"]), (1, &json!(true)));
}

#[test]
fn refused_events_of_a_tenant_do_not_fill_the_letters_of_all() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--flush-s", "1", "--tenant-refused-per-day", "5"]);
    let bad = |tenant: &str| format!("{{\"tenant\":\"{tenant}\",\"listing\":\"x\",\"n\":-1}}\n");
    server.send(bad("a").repeat(5));
    let over = server.post("/v1/events", bad("a") + &event("b", "x", "00:10:00"));
    assert_eq!((over.status, over.code().as_str()), (429, "over_quota"));
    assert!(over.text.contains("5 refused events a day") && over.header("retry-after").is_some(), "{over:?}");
    // Events that count, and other tenants, are not held back.
    server.send(event("a", "x", "00:10:00").repeat(50) + &bad("b"));
    server.send("{\n".repeat(50) + &event("b", "x", "00:10:00"));
    until("the fold", || server.total("a") == 50 && server.total("b") == 1);
    assert_eq!(server.get("/v1/refused?tenant=a").json()["events"], json!(5));
}

#[test]
fn refused_events_are_charged_to_the_quota_of_events() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--tenant-events-per-s", "1"]);
    let bad = "{\"tenant\":\"a\",\"listing\":\"x\",\"n\":-1}\n";
    server.send(bad.repeat(9));
    let over = server.post("/v1/events", bad.repeat(4) + &event("a", "x", "00:10:00"));
    assert_eq!((over.status, over.code().as_str()), (429, "over_quota"));
    assert!(over.text.contains("1 events a second"), "{over:?}");
}

#[test]
fn tenant_sees_its_own_refused_events_only() {
    let place = Place::new();
    let server = Server::start(&place.dir(), &["--secret-file", &place.secret()]);
    let producer = place.bearer(&[]);
    let bad = r#"{"tenant":"a","listing":"x","n":-1}"#;
    let sent = server.request("POST", "/v1/events", &[&producer], bad.as_bytes()).unwrap();
    assert_eq!(sent.status, 200, "{sent:?}");
    let asked = |path: &str, header: &str| server.request("GET", path, &[header], b"").unwrap();
    let named = place.bearer(&["--tenant", "a", "--expires-in", "1h"]);
    let plain = place.bearer(&["--tenant", "a"]);
    let operator = place.bearer(&["--operator"]);
    for (path, header) in [
        ("/v1/refused", &named),
        ("/v1/refused?tenant=a", &named),
        ("/v1/refused?tenant=a", &plain),
        ("/v1/refused?tenant=a", &producer),
        ("/v1/refused?tenant=a", &operator),
    ] {
        assert_eq!(asked(path, header).json()["events"], json!(1), "{path}");
    }
    assert_eq!(asked("/v1/refused", &operator).json()["events"], json!(1));
    for (path, header, status) in [
        ("/v1/refused?tenant=b", &named, 403),
        ("/v1/refused?tenant=b", &plain, 403),
        ("/v1/refused", &plain, 400),
        ("/v1/refused", &producer, 400),
        ("/v1/refused?tenant=a&limit=1", &operator, 400),
        ("/v1/refused?limit=0", &operator, 400),
        ("/v1/refused?limit=1001", &operator, 400),
    ] {
        assert_eq!(asked(path, header).status, status, "{path}");
    }
    assert_eq!(asked("/v1/refused", "x-none: 1").code(), "unauthorized");
}
