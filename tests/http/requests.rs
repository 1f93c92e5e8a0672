//! Requests and answers: counting, reading, milestones, awards; permissions; refusals.

use crate::memory::Memory;
use crate::support::{Running, TOKEN, options, start, start_with};
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidemark_server::http::{Access, BODY_BYTES_MAX, HEAD_BYTES_MAX, Options};
use tidemark_server::names::parse_counter;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn increments_are_counted_and_read_back() {
    let running = start().await;
    let added = running.send("POST", "/v1/counters/search/queries/add", r#"{"delta":5}"#).await;
    assert_eq!((added.status, added.body.as_str()), (200, r#"{"place":"counted"}"#));
    assert_eq!(running.send("POST", "/v1/counters/search/queries/add", "").await.status, 200);
    let read = running.send("GET", "/v1/counters/search/queries", "").await;
    assert_eq!(read.json()["value"], 6);
    assert_eq!(read.json()["counter"], serde_json::json!({"namespace": "search", "key": "queries"}));
    assert!(read.head.contains("content-type: application/json"));
    running.memory.pending.store(true, Ordering::Relaxed);
    let pending = running.send("POST", "/v1/counters/search/queries/add", "{}").await;
    assert_eq!((pending.status, pending.body.as_str()), (202, r#"{"place":"pending"}"#));
}

#[tokio::test]
async fn an_answer_has_the_value_and_a_version_if_asked() {
    let running = start().await;
    let path = "/v1/counters/search/queries";
    let add = async |body: &str| running.send("POST", &format!("{path}/add"), body).await;
    let added = add(r#"{"delta":5,"value":true}"#).await.json();
    assert_eq!(added, serde_json::json!({"place": "counted", "value": 5, "pending": 0, "version": "memory~0~1~5"}));
    let read = async |version: &str| running.send("GET", &format!("{path}?at_least={version}"), "").await;
    assert_eq!(read("memory~0~1~5").await.json()["value"], 5);
    for (version, status, code) in [
        ("memory~0~1~6", 409, "version_unknown"),
        ("memory~0~2~5", 409, "version_unknown"),
        ("europe-0~0~1~5", 409, "version_elsewhere"),
        ("memory", 400, "at_least"),
        ("", 400, "at_least"),
    ] {
        let failure = read(version).await.failure();
        assert_eq!((failure.0, failure.1.as_str()), (status, code), "{version}: {}", failure.2);
    }
    running.memory.slow.store(true, Ordering::Relaxed);
    let unknown = add(r#"{"value":true}"#).await;
    assert_eq!((unknown.status, &unknown.json()["place"]), (200, &"counted".into()), "it is counted all the same");
    assert!(unknown.json()["value_unknown"].as_str().unwrap().contains("has not answered"), "{}", unknown.body);
    assert_eq!(read("memory~0~1~5").await.status, 503);
}

#[tokio::test]
async fn keys_hold_any_byte_and_many_counters_are_read_at_once() {
    let running = start().await;
    for path in ["a/b/add", "a%2Fb/add", "%ff%25/add"] {
        assert_eq!(running.send("POST", &format!("/v1/counters/search/{path}"), "").await.status, 200);
    }
    let many =
        running.send("GET", "/v1/counters?counter=search/a/b&counter=search%2F%25FF%2525&counter=search/x", "").await;
    let values: Vec<_> = many.json()["counters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["counter"]["key"].clone(), c["value"].clone()))
        .collect();
    assert_eq!(values, [("a/b".into(), 2.into()), ("%FF%25".into(), 1.into()), ("x".into(), 0.into())], "as asked");
    let counters: Vec<String> = (0..101).map(|i| format!("counter=search/{i}")).collect();
    let failure = running.send("GET", &format!("/v1/counters?{}", counters.join("&")), "").await.failure();
    assert_eq!(failure, (400, "too_many_counters".into(), "101 counters: at most 100 allowed".into()));
}

#[tokio::test]
async fn what_is_counted_down_is_shown_with_both_halves_where_counters_go_down() {
    let running = start().await;
    let add =
        async |counter: &str, body: &str| running.send("POST", &format!("/v1/counters/{counter}/add"), body).await;
    assert_eq!(add("stock/shoes", r#"{"delta":5}"#).await.body, r#"{"place":"counted"}"#);
    let grown = running.send("GET", "/v1/counters/stock/shoes", "").await.json();
    assert_eq!((&grown["value"], grown.get("up"), grown.get("down")), (&5.into(), None, None));
    assert_eq!(add("stock/shoes", r#"{"delta":-12}"#).await.body, r#"{"place":"counted"}"#);
    let both = running.send("GET", "/v1/counters/stock/shoes", "").await.json();
    assert_eq!((&both["value"], &both["up"], &both["down"]), (&(-7).into(), &5.into(), &12.into()));
    let progress = running.send("GET", "/v1/counters/stock/shoes/progress", "").await.json();
    assert_eq!((&progress["value"], &progress["up"]), (&(-7).into(), &5.into()));
    let grows = add("search/q", r#"{"delta":-1}"#).await.failure();
    assert_eq!((grows.0, grows.1.as_str()), (409, "grow_only"));
    assert!(grows.2.contains("\"search\" only grow"), "{}", grows.2);
    let session = add("stock/shoes", r#"{"delta":-1,"session":"abc"}"#).await.failure();
    assert_eq!((session.0, session.1.as_str()), (400, "session"));
    for wrong in [r#"{"delta":-1.5}"#, r#"{"delta":"-1"}"#, r#"{"delta":-18446744073709551616}"#] {
        assert_eq!(add("stock/shoes", wrong).await.status, 400, "{wrong}");
    }
    let keyed_add =
        async || running.send_with("POST", "/v1/counters/stock/shoes/add", &keyed("down"), r#"{"delta":-1}"#).await;
    assert_eq!((keyed_add().await.status, keyed_add().await.status), (200, 200));
    let other = running.send_with("POST", "/v1/counters/stock/shoes/add", &keyed("down"), r#"{"delta":1}"#).await;
    let other = other.failure();
    assert_eq!((other.0, other.1.as_str()), (422, "id_reused"), "up is something else than down");
    let once = running.send("GET", "/v1/counters/stock/shoes", "").await.json();
    assert_eq!((&once["value"], &once["down"]), (&(-8).into(), &13.into()));
}

fn keyed(key: &str) -> String {
    format!("authorization: Bearer {TOKEN}\r\nidempotency-key: {key}\r\n")
}

#[tokio::test]
async fn a_repeated_idempotency_key_counts_once() {
    let running = start().await;
    let send = async |body: &str| running.send_with("POST", "/v1/counters/search/q/add", &keyed("abc"), body).await;
    assert_eq!(send(r#"{"delta":0}"#).await.status, 400);
    for _ in 0..3 {
        assert_eq!(send("").await.status, 200);
    }
    assert_eq!(running.memory.value(&parse_counter("search/q").unwrap()), 1);
    let other = send(r#"{"delta":2}"#).await.failure();
    assert_eq!((other.0, other.1.as_str()), (422, "id_reused"));
    let by_body = running.send("POST", "/v1/counters/search/q/add", r#"{"id":"abc"}"#).await;
    assert_eq!((by_body.status, by_body.body.as_str()), (200, r#"{"place":"counted"}"#), "the body says the same id");
    assert_eq!(running.memory.value(&parse_counter("search/q").unwrap()), 1);
    let two = send(r#"{"id":"abd"}"#).await.failure();
    assert_eq!((two.0, two.1.as_str()), (400, "id"), "which of the two it is nobody knows");
    let home = running.send("POST", "/v1/counters/search/q/add", r#"{"home":"fra"}"#).await.failure();
    assert_eq!((home.0, home.1.as_str()), (400, "id"));
    for id in ["", "a b", "é"] {
        let body = serde_json::json!({ "id": id }).to_string();
        assert_eq!(running.send("POST", "/v1/counters/search/q/add", &body).await.failure().1, "id", "{id:?}");
    }
    let long = running.send_with("POST", "/v1/counters/search/q/add", &keyed(&"k".repeat(129)), "").await.failure();
    assert_eq!((long.0, long.1.as_str()), (400, "idempotency_key"));
}

#[tokio::test]
async fn a_caller_that_hangs_up_and_tries_again_is_counted_once() {
    let running = start().await;
    running.memory.slow.store(true, Ordering::Relaxed);
    let send = async || running.send_with("POST", "/v1/counters/search/q/add", &keyed("abc"), "").await;
    assert!(tokio::time::timeout(Duration::from_millis(50), send()).await.is_err());
    let (first, second) = tokio::join!(send(), send());
    assert_eq!((first.status, second.status), (200, 200));
    assert_eq!(running.memory.value(&parse_counter("search/q").unwrap()), 1);
}

#[tokio::test]
async fn milestones_are_defined_awarded_listed_and_disarmed() {
    let running = start().await;
    let defined = running.send("PUT", "/v1/counters/search/q/milestones", r#"{"at":[3,9]}"#).await;
    assert_eq!(defined.json()["milestones"][0], serde_json::json!({"at": 3, "state": "armed"}));
    let body = r#"{"delta":4,"session":"abc"}"#;
    let winner = running.send("POST", "/v1/counters/search/q/add", body).await;
    assert_eq!(winner.body, r#"{"place":"milestone","at":3,"first":1}"#);
    let awards = running.send("GET", "/v1/awards?counter=search/q", "").await.json();
    assert_eq!((&awards["awards"][0]["at"], &awards["next"]), (&3.into(), &serde_json::Value::Null));
    // The digest of "abc": the token itself is not kept.
    assert_eq!(awards["awards"][0]["session"], "ba7816bf8f01cfea414140de5dae2223");
    let refused = running.send("PUT", "/v1/counters/search/q/milestones", r#"{"at":[4]}"#).await;
    assert_eq!(refused.failure(), (409, "not_above".into(), "milestone 4 is not above the count, which is 4".into()));
    let disarmed = running.send("DELETE", "/v1/counters/search/q/milestones?at=9", "").await;
    assert_eq!(disarmed.json()["milestones"].as_array().unwrap().len(), 1);
    let certificate = running.send("GET", "/v1/awards/search/q/3/certificate", "").await.json();
    assert_eq!((&certificate["format"], &certificate["award"]["first"]), (&"tidemark-award".into(), &1.into()));
    let none = running.send("GET", "/v1/awards/search/q/4/certificate", "").await.failure();
    assert_eq!(none, (404, "not_found".into(), "milestone 4 of search/q is not awarded".into()));
}

#[tokio::test]
async fn awards_come_in_pages() {
    let running = start().await;
    running.send("PUT", "/v1/counters/search/q/milestones", r#"{"at":[1,2,3,4,5]}"#).await;
    running.memory.count_ones("search/q", 5);
    let first = running.send("GET", "/v1/awards?limit=2", "").await.json();
    assert_eq!((&first["awards"][1]["at"], &first["next"]), (&2.into(), &first["awards"][1]["position"]));
    for next in [first["next"].as_str().unwrap(), "0000000000000001.2.2"] {
        let rest = running.send("GET", &format!("/v1/awards?after={next}"), "").await.json();
        assert_eq!(rest["awards"].as_array().unwrap().len(), 3);
    }
    let (status, code, message) = running.send("GET", "/v1/awards?limit=1001", "").await.failure();
    assert_eq!((status, code.as_str(), message.as_str()), (400, "limit", "limit is \"1001\": 1 to 1000 allowed"));
}

#[tokio::test]
async fn without_the_token_nothing_is_changed_or_read() {
    let running = start().await;
    for (method, path) in [
        ("POST", "/v1/counters/search/q/add"),
        ("PUT", "/v1/counters/search/q/milestones"),
        ("DELETE", "/v1/counters/search/q/milestones?at=1"),
        ("GET", "/v1/counters/search/q"),
        ("GET", "/v1/counters?counter=search/q"),
        ("GET", "/v1/awards"),
        ("GET", "/v1/awards/search/q/1/certificate"),
        ("GET", "/v1/status"),
        ("GET", "/v1/cluster?counter=search/q"),
        ("GET", "/v1/live"),
        ("GET", "/metrics"),
    ] {
        for headers in ["", "authorization: Bearer 0123456789abcdef0123456789abcdee\r\n", "authorization: Basic x\r\n"]
        {
            let body = if method == "GET" { "" } else { "{}" };
            let answer = running.send_with(method, path, headers, body).await;
            assert_eq!((answer.status, answer.failure().1.as_str()), (401, "unauthorized"), "{method} {path}");
            assert!(answer.head.contains("www-authenticate: bearer"));
            let advice = "send Authorization: Bearer TOKEN with the token in http.token_file (default: DATA_DIR/token)";
            assert!(answer.failure().2.ends_with(advice), "{method} {path}");
        }
    }
    assert_eq!(running.memory.value(&parse_counter("search/q").unwrap()), 0);
}

#[tokio::test]
async fn open_reads_need_no_token_but_changes_do() {
    let access = Access { open_reads: true, ..options().access };
    let running = start_with(Memory::new(None), Options { access, ..options() }).await;
    assert_eq!(running.send_with("GET", "/v1/counters/search/q", "", "").await.status, 200);
    assert_eq!(running.send_with("POST", "/v1/counters/search/q/add", "", "").await.status, 401);
}

#[tokio::test]
async fn health_readiness_and_the_page_are_open() {
    let running = start().await;
    let get = async |path: &str| running.send_with("GET", path, "", "").await;
    assert_eq!(get("/healthz").await.body, "ok\n");
    assert_eq!(get("/readyz").await.status, 200);
    let degraded = get("/readyz?verbose").await;
    let ledger = json!({ "name": "ledger", "state": "degraded", "reason": "the ledger has no leader" });
    assert_eq!(degraded.json()["checks"], json!([{ "name": "reads", "state": "ok" }, ledger]));
    assert_eq!((degraded.status, degraded.json()["ready"].as_bool()), (200, Some(true)), "degraded is not unready");
    running.memory.unready.store(true, Ordering::Relaxed);
    let unready = get("/readyz").await.failure();
    assert_eq!(unready, (503, "not_serving".into(), "not serving: the ledger's log is not applied yet".into()));
    let unready = get("/readyz?verbose").await;
    assert_eq!((unready.status, &unready.json()["ready"]), (503, &json!(false)), "{}", unready.body);
    assert_eq!(get("/readyz?verbos").await.failure().1, "parameter");
    let page = get("/").await;
    assert!(page.body.contains("<title>Tidemark</title>") && page.head.contains("content-security-policy"));
}

#[tokio::test]
async fn metrics_are_shown_where_they_are_kept() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let metrics = Some(recorder.handle());
    let running = start_with(Memory::new(None), Options { metrics, ..options() }).await;
    assert_eq!(running.send("GET", "/metrics", "").await.status, 200);
    assert_eq!(start().await.send("GET", "/metrics", "").await.failure().1, "not_found");
}

#[tokio::test]
async fn bad_requests_get_one_clear_error_and_change_nothing() {
    let running = start().await;
    let long_key = format!("/v1/counters/search/{}/add", "k".repeat(256));
    let long_session = format!(r#"{{"session":"{}"}}"#, "s".repeat(257));
    let cases = [
        (
            "POST",
            "/v1/counters/search/q/add",
            r#"{"delta":0}"#,
            400,
            "delta",
            "delta 0 of item 0: 1 to 1099511627776 allowed",
        ),
        ("POST", "/v1/counters/search/q/add", r#"{"delta":-1}"#, 409, "grow_only", "namespace \"search\" only grow"),
        ("POST", "/v1/counters/search/q/add", r#"{"delta":1.5}"#, 400, "malformed_body", "1.5"),
        ("POST", "/v1/counters/search/q/add", r#"{"amount":1}"#, 400, "malformed_body", "unknown field `amount`"),
        ("POST", "/v1/counters/search/q/add", "{", 400, "malformed_body", "EOF"),
        ("POST", "/v1/counters/search/q/add", &long_session, 400, "session", "session token of 257 bytes: 1 to 256"),
        ("POST", &long_key, "{}", 400, "counter", "key of 256 bytes: 1 to 255 allowed"),
        ("POST", "/v1/counters/other/q/add", "{}", 404, "unknown_namespace", "unknown namespace \"other\""),
        ("POST", "/v1/counters/Search/q/add", "{}", 400, "counter", "only a-z, 0-9"),
        ("POST", "/v1/counters/search/q", "{}", 405, "method", "GET, DELETE, HEAD allowed"),
        ("POST", "/v1/counters/search/q/add?delta=5", "", 400, "parameter", "it goes into the JSON body"),
        ("POST", "/v1/counters/search/q/add", "[9]", 400, "malformed_body", "invalid type: sequence"),
        ("GET", "/v1/counters/search/q/add", "", 405, "method", "POST allowed"),
        ("PUT", "/v1/counters/search/q", "{}", 405, "method", "GET, DELETE, HEAD allowed"),
        (
            "PUT",
            "/v1/counters/search/q/milestones",
            r#"{"policy":"soon"}"#,
            400,
            "malformed_body",
            "unknown variant `soon`, expected `strict` or `timely`",
        ),
        ("DELETE", "/v1/counters/search/q/milestones", "", 400, "parameter", "?at=N or ?rule"),
        ("DELETE", "/v1/counters/search/q/milestones?at=1&rule", "", 400, "parameter", "?at=N or ?rule"),
        ("GET", "/v1/awards?colour=1", "", 400, "parameter", "unknown parameter \"colour\""),
        ("GET", "/v1/live", "", 400, "websocket", ""),
        ("GET", "/v2", "", 404, "not_found", "no such path: /v2"),
        ("PATCH", "/v1/counters/search/q/add", "{}", 405, "method", "PATCH is not possible"),
    ];
    for (method, path, body, status, code, message) in cases {
        let failure = running.send(method, path, body).await.failure();
        assert_eq!((failure.0, failure.1.as_str()), (status, code), "{method} {path} {body}: {}", failure.2);
        assert!(failure.2.contains(message), "{method} {path} {body}: {}", failure.2);
    }
    assert_eq!(running.memory.value(&parse_counter("search/q").unwrap()), 0);
}

#[tokio::test]
async fn bodies_and_heads_have_limits() {
    let running = start().await;
    let body = format!(r#"{{"session":"{}"}}"#, "s".repeat(BODY_BYTES_MAX));
    let failure = running.send("POST", "/v1/counters/search/q/add", &body).await.failure();
    assert_eq!((failure.0, failure.1.as_str()), (413, "too_large"));
    assert!(failure.2.ends_with("at most 65536 allowed"), "{}", failure.2);
    let headers = format!("x: {}\r\n", "y".repeat(HEAD_BYTES_MAX));
    assert_eq!(running.send_with("GET", "/healthz", &headers, "").await.status, 431);
    assert_eq!(running.raw(b"nonsense\r\n\r\n").await.status, 400);
}

#[tokio::test]
async fn connections_past_the_limit_are_told_so() {
    let running = start_with(Memory::new(None), Options { connections_max: 1, ..options() }).await;
    let mut first = TcpStream::connect(running.address).await.unwrap();
    first.write_all(b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
    first.read_u8().await.unwrap();
    let refused = running.raw(b"").await.failure();
    assert_eq!(refused, (503, "overloaded".into(), "overloaded: HTTP connections is at its limit of 1".into()));
    drop(first);
    until_served(&running).await;
}

async fn until_served(running: &Running) {
    let served = async { while running.send("GET", "/healthz", "").await.status != 200 {} };
    tokio::time::timeout(Duration::from_secs(10), served).await.unwrap();
}

#[tokio::test]
async fn a_stopping_server_ends_idle_connections_and_takes_no_more() {
    let running = start().await;
    let mut idle = TcpStream::connect(running.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
    idle.read_u8().await.unwrap();
    running.server.stop().await;
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
    assert!(TcpStream::connect(running.address).await.is_err());
}
