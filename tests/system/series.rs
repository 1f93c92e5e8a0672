//! How namespaces keep series, in real processes: said by the layout at first, changed while they run, and kept over restarts; and
//! counters in the order of their keys.

use crate::cluster::{Cluster, Role};
use crate::http;
use crate::process::until;
use serde_json::{Value, json};
use std::net::SocketAddr;

const LAYOUT: &str = "[[series]]\nnamespace = \"stock\"\nkeep = { \"1h\" = \"30d\" }\n";

async fn terms(at: SocketAddr, namespace: &str) -> Option<(u64, Value)> {
    let (_, terms) = http::get(at, &format!("/v1/namespaces/{namespace}/series")).await?;
    Some((terms["revision"].as_u64()?, terms["policy"]["keep"].clone()))
}

async fn set(at: SocketAddr, namespace: &str, keep: Value) -> (u16, Value) {
    let body = json!({ "keep": keep }).to_string();
    let path = format!("/v1/namespaces/{namespace}/series");
    http::send(at, "PUT", &path, &body).await.expect("the aggregator answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_is_said_once_by_the_layout_and_changed_while_processes_run() {
    let cluster = Cluster::new(&["usa-0"]);
    let layout = cluster.layout_text(&cluster.aggregators);
    std::fs::write(cluster.path("layout.toml"), layout + LAYOUT).unwrap();
    let mut centre = cluster.centres().await.remove(0);
    let first =
        until("the layout's policy", async || terms(centre.http, "stock").await.filter(|(at, _)| *at > 0)).await;
    assert_eq!(first, (1, json!({"1h": "30d"})));
    assert_eq!(terms(centre.http, "search").await, Some((0, Value::Null)));
    let (code, body) = set(centre.http, "stock", json!({"1m": "2d", "1h": "30d"})).await;
    assert_eq!((code, &body["revision"]), (200, &2.into()), "{body}");
    assert_eq!(set(centre.http, "search", json!({"1d": "730d"})).await.0, 200);
    assert_eq!(set(centre.http, "nowhere", json!({"1d": "730d"})).await.0, 404);
    assert_eq!(set(centre.http, "search", json!({"7m": "2d"})).await.0, 400);
    centre.aggregator.kill();
    (centre.aggregator, centre.http) = cluster.start(0, Role::Aggregator).await;
    crate::cluster::ready(centre.http).await;
    // The layout does not take back what was changed since.
    assert_eq!(terms(centre.http, "stock").await, Some((2, json!({"1m": "2d", "1h": "30d"}))));
    assert_eq!(terms(centre.http, "search").await, Some((1, json!({"1d": "730d"}))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_come_in_the_order_of_their_keys_and_removed_ones_no_more() {
    let cluster = Cluster::new(&["usa-0"]);
    let centre = cluster.centres().await.remove(0);
    for key in ["b", "a%2F10", "a%2F2", "a%2F1", "c"] {
        let path = format!("/v1/counters/search/{key}/add");
        until("an increment", async || {
            http::send(centre.http, "POST", &path, "").await.filter(|(code, _)| *code == 200)
        })
        .await;
    }
    let keys = async |query: &str| {
        let (code, page) = http::get(centre.http, &format!("/v1/range?{query}")).await?;
        assert_eq!(code, 200, "{page}");
        let read = |read: &Value| Some((read["counter"]["key"].as_str()?.to_owned(), read["value"].as_u64()?));
        page["counters"].as_array()?.iter().map(read).collect::<Option<Vec<_>>>()
    };
    let named = |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), 1)).collect::<Vec<_>>();
    let all = named(&["a/1", "a/10", "a/2", "b", "c"]);
    until("all counters", async || keys("prefix=search/").await.filter(|found| *found == all)).await;
    assert_eq!(keys("prefix=search/a/&limit=2").await, Some(named(&["a/1", "a/10"])));
    assert_eq!(keys("prefix=search/a/&limit=2&after=a/10").await, Some(named(&["a/2"])));
    let (code, _) = http::send(centre.http, "DELETE", "/v1/counters/search/a%2F10", "").await.unwrap();
    assert_eq!(code, 200);
    assert_eq!(keys("prefix=search/a/").await, Some(named(&["a/1", "a/2"])));
}
