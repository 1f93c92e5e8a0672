//! One counter in all data centres: the shape of its answer, refusals, and its page.

use crate::support::start;
use tidemark_server::http::{CLUSTER_AWARDS_MAX, ClusterBody, Mode};

#[tokio::test]
async fn a_counter_is_told_with_every_data_centre() {
    let running = start().await;
    running.send("PUT", "/v1/counters/search/q/milestones", r#"{"at":[3,9]}"#).await;
    running.memory.count_ones("search/q", 4);
    let answer = running.send("GET", "/v1/cluster?counter=search/q", "").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let body: ClusterBody = serde_json::from_str(&answer.body).unwrap();
    assert_eq!((body.total.0, body.next_milestone, body.awards[0].at), (4, Some(9), 3));
    let own = &body.dcs[0];
    assert_eq!((own.counted.0, own.rights, own.mode, own.pending), (4, Some(4), Mode::Rights, Some(0)));
    let shown = answer.json();
    assert_eq!(shown["ledger"], serde_json::json!({"index": 1, "leader": "usa-0"}));
    assert_eq!((&shown["dcs"][0]["mode"], &shown["dcs"][0]["place"]), (&"rights".into(), &serde_json::Value::Null));
}

#[tokio::test]
async fn a_counter_that_nobody_counted_reads_nothing_and_has_no_rights() {
    let running = start().await;
    let body = running.send("GET", "/v1/cluster?counter=search/never", "").await.json();
    assert_eq!((&body["total"], &body["awards"]), (&0.into(), &serde_json::json!([])));
    for unknown in ["rights", "pending", "round_trip_ms", "heard_ms"] {
        assert!(body["dcs"][0][unknown].is_null(), "{unknown}: {body}");
    }
    assert_eq!((&body["next_milestone"], &body["dcs"][0]["mode"]), (&serde_json::Value::Null, &"free".into()));
}

#[tokio::test]
async fn only_the_newest_awards_are_told() {
    let running = start().await;
    running.memory.count_ones("search/each", CLUSTER_AWARDS_MAX as u64 + 3);
    let body = running.send("GET", "/v1/cluster?counter=search/each", "").await.json();
    let at: Vec<u64> = body["awards"].as_array().unwrap().iter().map(|award| award["at"].as_u64().unwrap()).collect();
    assert_eq!(at, (4..=13).rev().collect::<Vec<u64>>());
}

#[tokio::test]
async fn exactly_one_counter_is_asked_for() {
    let running = start().await;
    for (query, code) in [
        ("", "counter"),
        ("?counter=", "counter"),
        ("?counter=search", "counter"),
        ("?counter=search/a&counter=search/b", "parameter"),
        ("?counter=search/a&colour=1", "parameter"),
    ] {
        let failure = running.send("GET", &format!("/v1/cluster{query}"), "").await.failure();
        assert_eq!((failure.0, failure.1.as_str()), (400, code), "{query}: {}", failure.2);
    }
}

#[tokio::test]
async fn the_page_is_open_and_loads_only_what_is_served_here() {
    let running = start().await;
    let get = async |path: &str| running.send_with("GET", path, "", "").await;
    let page = get("/cluster").await;
    assert!(page.head.contains("default-src 'none'; script-src 'self'") && page.head.contains("text/html"));
    let mut loaded = vec!["/assets/cluster/cluster.css".to_owned(), "/assets/cluster/cluster.js".to_owned()];
    assert!(loaded.iter().all(|asset| page.body.contains(&format!("\"{asset}\""))));
    while let Some(path) = loaded.pop() {
        let asset = get(&path).await;
        assert_eq!(asset.status, 200, "{path}");
        let imported = asset.body.lines().filter_map(|line| line.split_once("from \"./")?.1.split_once('"'));
        loaded.extend(imported.map(|(name, _)| format!("/assets/cluster/{name}")));
    }
    let console = get("/console").await;
    assert!(console.head.contains("default-src 'none'; script-src 'self'") && console.body == get("/").await.body);
    for path in ["/console", "/cluster", "/counter", "/award"] {
        let page = get(path).await.body;
        for link in ["href=\"/console\"", "href=\"/cluster\"", "href=\"/counter\"", "rel=\"icon\""] {
            assert!(page.contains(link), "{path} has no {link}");
        }
    }
    assert!(get("/assets/site/favicon.svg").await.head.contains("image/svg+xml"));
}
