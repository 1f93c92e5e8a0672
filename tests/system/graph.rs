//! Edges between counters in real processes: totals along a chain and a diamond, an edge that is taken away, a cycle that is refused with
//! its path, and totals that are there again after kill -9.

use crate::cluster::{Cluster, Role, operate};
use crate::http;
use crate::process::until;
use serde_json::{Value, json};
use std::net::SocketAddr;

async fn edges(at: SocketAddr, body: Value) -> (u16, Value) {
    http::send(at, "POST", "/v1/edges", &body.to_string()).await.expect("the aggregator answers")
}

async fn add(at: SocketAddr, key: &str, delta: u64) {
    let path = format!("/v1/counters/search/{key}/add");
    let body = json!({ "delta": delta }).to_string();
    until("an increment", async || http::send(at, "POST", &path, &body).await.filter(|(code, _)| *code == 200)).await;
}

async fn totals(at: SocketAddr) -> Option<Vec<(i64, i64)>> {
    let mut all = Vec::new();
    for key in ["answer", "question", "author", "topic"] {
        let (_, graph) = http::get(at, &format!("/v1/counters/search/{key}/graph")).await?;
        all.push((graph["direct"].as_i64()?, graph["total"].as_i64()?));
    }
    Some(all)
}

/// Values of a read of many counters.
async fn read(at: SocketAddr, of: &str) -> Option<Vec<i64>> {
    let names = ["answer", "question", "author", "topic"].map(|key| format!("search/{key}"));
    let body = json!({ "counters": names, "of": of }).to_string();
    let (code, read) = http::send(at, "POST", "/v1/read", &body).await?;
    assert_eq!(code, 200, "{read}");
    read["counters"].as_array()?.iter().map(|read| read["value"].as_i64()).collect()
}

async fn totals_are(at: SocketAddr, expected: [(i64, i64); 4]) {
    until(&format!("{expected:?}"), async || (totals(at).await? == expected).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_flow_along_edges_each_once_and_totals_outlive_kill_9() {
    let cluster = Cluster::new(&["usa-0"]);
    let mut centre = cluster.centres().await.remove(0);
    for (key, delta) in [("answer", 1), ("question", 10), ("author", 100), ("topic", 1_000)] {
        add(centre.http, key, delta).await;
    }
    totals_are(centre.http, [(1, 1), (10, 10), (100, 100), (1_000, 1_000)]).await;
    let pair = |from: &str, to: &str| json!([format!("search/{from}"), format!("search/{to}")]);
    // A diamond: the answer reaches the topic twice.
    let insert = json!([
        pair("answer", "question"),
        pair("answer", "author"),
        pair("question", "topic"),
        pair("author", "topic")
    ]);
    let (code, done) = edges(centre.http, json!({ "insert": insert, "by": "an editor" })).await;
    assert_eq!((code, &done["inserted"], &done["index"]), (200, &4.into(), &4.into()), "{done}");
    totals_are(centre.http, [(1, 1), (10, 11), (100, 101), (1_000, 1_111)]).await;
    add(centre.http, "answer", 5).await;
    totals_are(centre.http, [(6, 6), (10, 16), (100, 106), (1_000, 1_116)]).await;
    assert_eq!(read(centre.http, "total").await, Some(vec![6, 16, 106, 1_116]));
    assert_eq!(read(centre.http, "direct").await, Some(vec![6, 10, 100, 1_000]));
    for (body, code, what) in [
        (json!({"insert": [pair("topic", "answer")]}), "cycle", "search:answer → search:question → search:topic"),
        (json!({"insert": [pair("answer", "author")]}), "duplicate", "there already"),
        (json!({"insert": [pair("answer", "answer")]}), "to_itself", "itself"),
        (json!({"remove": [pair("answer", "topic")]}), "absent", "no such edge"),
        (json!({"insert": [pair("answer", "anwser")]}), "unknown_counter", "search/anwser"),
    ] {
        let (status, refused) = edges(centre.http, body.clone()).await;
        assert_eq!((status, refused["error"]["code"].as_str()), (409, Some(code)), "{body}: {refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(what), "{body}: {refused}");
    }
    let (is_ok, said) = operate(&cluster, centre.http, &["graph", "remove", "search/answer", "search/author"]);
    assert!(is_ok, "{said}");
    // Another path is left.
    totals_are(centre.http, [(6, 6), (10, 16), (100, 100), (1_000, 1_116)]).await;
    centre.aggregator.kill();
    (centre.aggregator, centre.http) = cluster.start(0, Role::Aggregator).await;
    totals_are(centre.http, [(6, 6), (10, 16), (100, 100), (1_000, 1_116)]).await;
    add(centre.http, "question", 4).await;
    totals_are(centre.http, [(6, 6), (14, 20), (100, 100), (1_000, 1_120)]).await;
    let (_, audit) = http::get(centre.http, "/v1/edges/audit").await.unwrap();
    assert_eq!((&audit["edges"], &audit["batches"][1]["by"]), (&3.into(), &"an editor".into()), "{audit}");
    let load = cluster.path("edges.csv");
    let lines = [
        "# a tree",
        "search/c1,search/p",
        "search/c2\tsearch/p",
        "search/c3 search/p",
        "search/topic,search/answer",
        "search/p,search/topic",
    ];
    std::fs::write(&load, lines.join("\n")).unwrap();
    let load = load.to_str().unwrap();
    let (is_ok, said) = operate(&cluster, centre.http, &["graph", "load", load]);
    assert!(!is_ok && said.contains("5 lines were refused; 0 edges were added"), "{said}");
    assert!(said.contains("line 6: nothing was counted of search/p"), "{said}");
    let (is_ok, said) = operate(&cluster, centre.http, &["graph", "load", load, "--unknown", "--by", "an importer"]);
    assert!(!is_ok && said.contains("2 lines were refused; 3 edges were added"), "{said}");
    assert!(said.contains("line 4: \"search/c3 search/p\": a tab or a comma"), "{said}");
    let cycle = "line 5: it would close a cycle: search:answer → search:question → search:topic";
    assert!(said.contains(cycle), "{said}");
    let insert = json!([pair("c4", "p"), pair("author", "answer"), pair("answer", "author")]);
    let (code, done) = edges(centre.http, json!({ "insert": insert, "each": true, "by": "an editor" })).await;
    assert_eq!((code, &done["inserted"]), (200, &1.into()), "{done}");
    assert_eq!(done["refused"][0]["code"], "unknown_counter", "{done}");
    assert_eq!((&done["refused"][1]["change"], &done["refused"][1]["code"]), (&2.into(), &"cycle".into()), "{done}");
    let (is_ok, said) = operate(&cluster, centre.http, &["graph", "show", "search/topic"]);
    assert!(is_ok && said.contains("total     1120") && said.contains("search/p"), "{said}");
}
