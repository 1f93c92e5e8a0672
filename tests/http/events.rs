//! Increments with event times, and many in one request.

use crate::memory::KEPT_FROM_S;
use crate::support::{TOKEN, start};
use serde_json::json;
use std::sync::atomic::Ordering;
use tidemark_server::http::{BODY_BYTES_MAX, BULK_BYTES_MAX, BULK_LINES_MAX};
use tidemark_server::names::parse_counter;

#[tokio::test]
async fn an_increment_counts_at_the_time_that_it_says() {
    let running = start().await;
    let add = async |body: &str| running.send("POST", "/v1/counters/search/q/add", body).await;
    assert_eq!(add(r#"{"delta":5,"at":1700000000}"#).await.body, r#"{"place":"counted"}"#);
    assert_eq!(add(r#"{"at":"2023-11-14T22:13:21+00:00"}"#).await.status, 200);
    assert_eq!(add("{}").await.status, 200);
    let events = [("search/q".to_owned(), 1_700_000_000, 5), ("search/q".to_owned(), 1_700_000_001, 1)];
    assert_eq!(running.memory.events(), events);
    for (body, said) in [
        (r#"{"at":1600000000}"#, "event at 1600000000 s is 100003600 s late: at most 3600 s allowed"),
        (r#"{"at":-1}"#, "time -1 s: 0 (1970) to 32503680000 allowed"),
        (r#"{"at":"yesterday"}"#, "time \"yesterday\": whole seconds since 1970, or as RFC 3339"),
        (r#"{"at":"3001-01-01T00:00:00Z"}"#, "to 32503680000 allowed"),
    ] {
        let (status, code, message) = add(body).await.failure();
        assert_eq!((status, code.as_str()), (400, "event_time"), "{body}: {message}");
        assert!(message.contains(said), "{message}");
    }
    assert_eq!(add(r#"{"at":1.5}"#).await.failure().1, "malformed_body");
    assert_eq!(running.memory.value(&parse_counter("search/q").unwrap()), 7, "what is refused counts nowhere");
}

#[tokio::test]
async fn the_same_key_with_another_time_is_another_increment() {
    let running = start().await;
    let headers = format!("authorization: Bearer {TOKEN}\r\nidempotency-key: k\r\n");
    let add = async |body: &str| running.send_with("POST", "/v1/counters/search/q/add", &headers, body).await;
    assert_eq!(add(r#"{"at":1700000000}"#).await.status, 200);
    assert_eq!(add(r#"{"at":"2023-11-14T22:13:20Z"}"#).await.status, 200, "the same second in other words");
    assert_eq!(add(r#"{"at":1700000001}"#).await.failure().1, "id_reused");
    assert_eq!(running.memory.events().len(), 1);
}

#[tokio::test]
async fn of_many_each_is_counted_or_refused_with_its_line() {
    let running = start().await;
    let lines = [
        r#"{"counter":"search/a","at":1700000000}"#,
        r#"{"counter":"search/a","delta":4,"at":"2023-11-14T22:13:20Z"}"#,
        "",
        r#"{"counter":"search/a","at":1699999999}"#,
        r#"{"counter":"search/b/c","delta":2}"#,
        r#"{"counter":"nowhere/a"}"#,
        r#"{"counter":"search/a","weight":4}"#,
        r#"{"counter":"search","delta":4}"#,
        r#"{"counter":"search/a","delta":0}"#,
        r#"{"counter":"stock/shoes","delta":-3}"#,
        r#"{"counter":"search/a","#,
    ]
    .join("\r\n");
    let answer = running.send("POST", "/v1/add", &lines).await;
    assert_eq!((answer.status, answer.json()["added"].clone()), (200, json!(4)), "{}", answer.body);
    let errors: Vec<_> = answer.json()["errors"].as_array().unwrap().clone();
    let codes: Vec<_> = errors.iter().map(|error| (error["line"].clone(), error["code"].clone())).collect();
    let expected = [
        (4, "event_time"),
        (6, "unknown_namespace"),
        (7, "malformed_body"),
        (8, "counter"),
        (9, "delta"),
        (11, "malformed_body"),
    ];
    assert_eq!(codes, expected.map(|(line, code)| (json!(line), json!(code))));
    assert!(errors[2]["message"].as_str().unwrap().contains("unknown field `weight`"), "{}", errors[2]);
    assert_eq!(running.memory.events(), [("search/a".to_owned(), KEPT_FROM_S, 5)], "one increment for two lines");
    assert_eq!(running.memory.value(&parse_counter("search/b/c").unwrap()), 2);
    let array = running.send("POST", "/v1/add", r#" [{"counter":"search/a"},{"counter":7}]"#).await.json();
    assert_eq!((&array["added"], &array["errors"][0]["line"]), (&json!(1), &json!(2)));
    for nothing in ["", "[]", "\n\n"] {
        assert_eq!(running.send("POST", "/v1/add", nothing).await.failure().1, "nothing_added", "{nothing:?}");
    }
}

#[tokio::test]
async fn where_nothing_was_added_the_status_says_so() {
    let running = start().await;
    let csv = running.send("POST", "/v1/add", "counter,delta\nsearch/a,5\n").await;
    let (status, code, message) = csv.failure();
    assert_eq!((status, code.as_str(), csv.json()["added"].clone()), (400, "malformed_body", json!(0)));
    assert!(message.starts_with("none of 2 increments was added; line 1: expected value"), "{message}");
    assert_eq!(csv.json()["errors"].as_array().map(Vec::len), Some(2));
    let grow = running.send("POST", "/v1/add", r#"{"counter":"search/a","delta":-1}"#).await.failure();
    assert_eq!((grow.0, grow.1.as_str()), (409, "grow_only"));
    let both = running.send("POST", "/v1/add", "{\"counter\":\"search/a\",\"delta\":-1}\n{}").await.failure();
    assert_eq!((both.0, both.1.as_str()), (400, "nothing_added"));
    let pretty = "{\n  \"counter\": \"search/a\",\n  \"delta\": 2\n}\n";
    assert_eq!(running.send("POST", "/v1/add", pretty).await.json(), json!({"added": 1, "errors": []}));
    assert_eq!(running.send("POST", "/v1/add", &pretty.replace("delta", "weight")).await.failure().1, "malformed_body");
    let twice = running.send("POST", "/v1/add", r#"[{"counter":"search/a","delta":1,"delta":50}]"#).await.failure();
    assert!(twice.0 == 400 && twice.2.contains("duplicate field `delta`"), "{twice:?}");
    assert_eq!(running.memory.value(&parse_counter("search/a").unwrap()), 2);
}

#[tokio::test]
async fn lines_with_ids_count_once_however_often_the_request_is_sent() {
    let running = start().await;
    let lines = r#"{"counter":"search/a","id":"x","delta":3}
{"counter":"search/a","id":"x","delta":3}
{"counter":"search/a","id":"x","delta":4}
{"counter":"search/a","id":"y"}"#;
    for _ in 0..3 {
        let answer = running.send("POST", "/v1/add", lines).await.json();
        assert_eq!((&answer["added"], &answer["errors"][0]["line"]), (&json!(3), &json!(3)), "{answer}");
        assert_eq!(answer["errors"][0]["code"], "id_reused");
    }
    assert_eq!(running.memory.value(&parse_counter("search/a").unwrap()), 4);
    let keyed = format!("authorization: Bearer {TOKEN}\r\nidempotency-key: day-1\r\n");
    let lines = "{\"counter\":\"search/b\"}\n".repeat(5);
    for _ in 0..3 {
        assert_eq!(running.send_with("POST", "/v1/add", &keyed, &lines).await.json()["added"], 5);
    }
    assert_eq!(
        running.memory.value(&parse_counter("search/b").unwrap()),
        5,
        "each line has an id of the key and its number"
    );
}

#[tokio::test]
async fn what_is_too_much_or_not_allowed_counts_nothing() {
    let running = start().await;
    let line = "{\"counter\":\"search/a\"}\n";
    assert_eq!(running.send("POST", "/v1/add", &line.repeat(BULK_LINES_MAX)).await.json()["added"], BULK_LINES_MAX);
    assert!(line.len() * BULK_LINES_MAX > BODY_BYTES_MAX, "more than other requests may say");
    let many = running.send("POST", "/v1/add", &line.repeat(BULK_LINES_MAX + 1)).await.failure();
    assert_eq!(many, (400, "too_many_lines".into(), "10001 increments: at most 10000 allowed".into()));
    let long = running.send("POST", "/v1/add", &" ".repeat(BULK_BYTES_MAX + 1)).await.failure();
    assert_eq!((long.0, long.1.as_str()), (413, "too_large"));
    let broken = running.send("POST", "/v1/add", "[{\"counter\":\"search/a\"}").await.failure();
    assert_eq!((broken.0, broken.1.as_str()), (400, "malformed_body"));
    assert_eq!(running.send_with("POST", "/v1/add", "", line).await.status, 401);
    let blank = format!("authorization: Bearer {TOKEN}\r\nidempotency-key: a b\r\n");
    assert_eq!(running.send_with("POST", "/v1/add", &blank, line).await.failure().1, "idempotency_key");
    assert_eq!(running.memory.value(&parse_counter("search/a").unwrap()), BULK_LINES_MAX as u64);
}

#[tokio::test]
async fn requests_with_many_increments_have_their_limit() {
    let running = start().await;
    running.memory.slow.store(true, Ordering::Relaxed);
    let sent = (0..64).map(|_| running.send("POST", "/v1/add", r#"{"counter":"search/a"}"#));
    let answers = futures_util::future::join_all(sent).await;
    let taken = answers.iter().filter(|answer| answer.status == 200).count();
    assert!(taken >= 16, "{taken} were taken");
    let refused =
        answers.iter().find(|answer| answer.status != 200).expect("more than there may be at a time").failure();
    assert_eq!((refused.0, refused.1.as_str()), (503, "overloaded"));
    assert_eq!(
        running.memory.value(&parse_counter("search/a").unwrap()),
        taken as u64,
        "what is refused counts nothing"
    );
}
