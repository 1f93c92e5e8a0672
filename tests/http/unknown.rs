//! Reading what is not there: namespaces that do not exist, and counters that never counted.

use crate::support::{TOKEN, start};
use serde_json::json;
use std::sync::atomic::Ordering;

#[tokio::test]
async fn a_namespace_that_does_not_exist_is_told_with_near_and_known_ones() {
    let running = start().await;
    for path in [
        "/v1/counters/serach/q",
        "/v1/counters?counter=search/q&counter=serach/q",
        "/v1/cluster?counter=serach/q",
        "/v1/counters/serach/q/window?last=7d",
        "/v1/range?prefix=serach/",
        "/v1/events?counter=serach/q",
        "/v1/awards?namespace=serach",
    ] {
        let (status, code, message) = running.send("GET", path, "").await.failure();
        assert_eq!((status, code.as_str()), (404, "unknown_namespace"), "{path}");
        assert!(
            message
                .starts_with("unknown namespace \"serach\", did you mean \"search\"? Known: default, search, stock."),
            "{message}"
        );
        assert!(message.contains("tidemark serve --namespace serach"), "{message}");
    }
    let written = running.send("POST", "/v1/counters/serach/q/add", "").await.failure();
    assert!(written.0 == 404 && written.2.contains("did you mean \"search\"?"), "{written:?}");
    for (path, body) in [
        ("/v1/sessions", r#"{"namespace":"serach"}"#),
        ("/v1/hops", r#"{"home":"usa-0","id":"a","counters":["serach/q"]}"#),
        ("/v1/read", r#"{"counters":["search/q","serach/q"]}"#),
    ] {
        assert_eq!(running.send("POST", path, body).await.failure().1, "unknown_namespace", "{path}");
    }
    let list = running.send("GET", "/v1/namespaces", "").await.json();
    assert_eq!(list["namespaces"][2], json!({"name": "stock", "updown": true, "series": false}));
}

#[tokio::test]
async fn a_process_that_is_not_ready_says_so_of_a_namespace_that_it_has_not_heard_of() {
    let running = start().await;
    running.memory.unready.store(true, Ordering::Relaxed);
    assert_eq!(running.send("GET", "/v1/counters/serach/q", "").await.failure().1, "not_serving");
    assert_eq!(running.send("GET", "/v1/counters/search/q", "").await.status, 200);
}

#[tokio::test]
async fn a_counter_that_never_counted_says_so() {
    let running = start().await;
    running.memory.count_ones("search/b", 1);
    let read = running.send("GET", "/v1/counters?counter=search/b&counter=search/a&counter=search/b", "").await.json();
    let told: Vec<_> = read["counters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|counter| {
            (counter["counter"]["key"].as_str().unwrap(), counter["value"].clone(), counter["known"].clone())
        })
        .collect();
    let b = ("b", json!(1), json!(true));
    let a = ("a", json!(0), json!(false));
    assert_eq!(told, [b.clone(), a, b], "in the order asked");
    for path in ["/v1/counters/search/a", "/v1/cluster?counter=search/a"] {
        assert_eq!(running.send("GET", path, "").await.json()["known"], false, "{path}");
    }
    let headers = format!("authorization: Bearer {TOKEN}\r\n");
    let none = running.send_with("GET", "/v1/counters", &headers, "").await.failure();
    assert_eq!((none.0, none.1.as_str()), (400, "counter"));
}
