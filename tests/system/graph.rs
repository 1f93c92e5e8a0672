//! Edges between counters in real processes: totals along a chain and a diamond, an edge that is taken away, a cycle that is refused with
//! its path, and totals that are there again after kill -9.

use crate::cluster::{Cluster, Role, operate};
use crate::http;
use crate::process::until;
use serde_json::{Value, json};
use std::collections::BTreeSet;
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

/// The basis of totals: after this number of changes of edges, none of which waits, and of a log of the group.
async fn are_made_of(at: SocketAddr, changes: u64) {
    let path = "/v1/window?counter=search/topic&counter=search/answer&last=1h&of=";
    let (code, none) = http::get(at, &format!("{path}total")).await.unwrap();
    assert_eq!((code, &none["error"]["code"]), (409, &"no_series".into()), "{none}");
    let body = |of| json!({ "counters": ["search/topic", "search/answer"], "of": of }).to_string();
    let (_, read) = http::send(at, "POST", "/v1/read", &body("total")).await.unwrap();
    let basis = &read["basis"];
    assert_eq!((&basis["graph_index"], &basis["waiting"]), (&changes.into(), &0.into()), "{read}");
    assert!(basis["groups"][0]["entry"].as_u64().is_some_and(|entry| entry > 0), "{read}");
    let (_, direct) = http::send(at, "POST", "/v1/read", &body("direct")).await.unwrap();
    assert!(direct["basis"].is_null() && direct["instants"].is_null(), "{direct}");
    let (_, status) = http::get(at, "/v1/status").await.unwrap();
    let view = &status["view"];
    assert_eq!((&view["graph_index"], &view["waiting"]), (&changes.into(), &0.into()), "{status}");
    assert!(view["groups"][0]["entries"].is_u64() && view["groups"][0]["ms"].is_number(), "{status}");
}

/// Only its own increments reach the milestones of a counter, whatever flows to it.
async fn a_milestone_is_of_its_own_count(at: SocketAddr) {
    let path = "/v1/counters/search/question/milestones";
    let (code, refused) = http::send(at, "PUT", path, r#"{"at": [16], "of": "total"}"#).await.unwrap();
    assert_eq!((code, &refused["error"]["code"]), (400, &"milestone_of_total".into()), "{refused}");
    let (code, list) = http::send(at, "PUT", path, r#"{"at": [16]}"#).await.unwrap();
    assert_eq!(code, 200, "{list}");
    let state = async || Some(http::get(at, "/v1/awards/search/question/16").await?.1["state"].as_str()?.to_owned());
    until("an armed milestone", async || (state().await? == "armed").then_some(())).await;
    // Its own count is 14, its total beyond 16 already.
    add(at, "answer", 100).await;
    assert_eq!(state().await.as_deref(), Some("armed"));
    add(at, "question", 2).await;
    until("an award", async || (state().await? == "awarded").then_some(())).await;
}

/// Counts flow from another namespace once that is allowed.
async fn across_namespaces_where_allowed(cluster: &Cluster, at: SocketAddr) {
    let edge = || json!({ "insert": [["stock/sold", "search/topic"]], "unknown": "allow" });
    let (code, refused) = edges(at, edge()).await;
    assert_eq!((code, &refused["error"]["code"]), (409, &"not_allowed".into()), "{refused}");
    let (is_ok, said) = operate(cluster, at, &["graph", "allow", "stock", "search"]);
    assert!(is_ok && said.contains("counts of stock may flow to search"), "{said}");
    let (code, none) = http::send(at, "PUT", "/v1/edges/allowed/stock/nowhere", "").await.unwrap();
    assert_eq!(code, 404, "{none}");
    let (code, done) = edges(at, edge()).await;
    assert_eq!((code, &done["inserted"]), (200, &1.into()), "{done}");
}

/// Of a file with bad lines the good ones are loaded, and taken away again.
fn load_names_bad_lines(cluster: &Cluster, at: SocketAddr) {
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
    let (is_ok, said) = operate(cluster, at, &["graph", "load", load]);
    assert!(!is_ok && said.contains("5 lines were refused; 0 edges were added"), "{said}");
    assert!(said.contains("line 6: counter search/p has no increments"), "{said}");
    let (is_ok, said) = operate(cluster, at, &["graph", "load", load, "--unknown", "--by", "an importer"]);
    assert!(!is_ok && said.contains("2 lines were refused; 3 edges were added"), "{said}");
    assert!(said.contains("line 4: \"search/c3 search/p\": a tab or a comma"), "{said}");
    let cycle = "line 5: the edge would close a cycle: search/answer → search/question → search/topic";
    assert!(said.contains(cycle), "{said}");
    for removed in [3, 0] {
        let (is_ok, said) = operate(cluster, at, &["graph", "unload", load, "--by", "an importer"]);
        assert!(!is_ok && said.contains(&format!("1 lines were refused; {removed} edges were removed")), "{said}");
        assert!(said.contains("line 4: \"search/c3 search/p\": a tab or a comma"), "{said}");
    }
    let (_, said) = operate(cluster, at, &["graph", "load", load, "--unknown"]);
    assert!(said.contains("2 lines were refused; 3 edges were added"), "{said}");
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
        (json!({"insert": [pair("topic", "answer")]}), "cycle", "search/answer → search/question → search/topic"),
        (json!({"insert": [pair("answer", "author")]}), "duplicate", "exists already"),
        (json!({"insert": [pair("answer", "answer")]}), "to_itself", "itself"),
        (json!({"remove": [pair("answer", "topic")]}), "absent", "the edge does not exist"),
        (json!({"insert": [pair("answer", "anwser")]}), "unknown_counter", "search/anwser"),
    ] {
        let (status, refused) = edges(centre.http, body.clone()).await;
        assert_eq!((status, refused["error"]["code"].as_str()), (409, Some(code)), "{body}: {refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(what), "{body}: {refused}");
    }
    for by in ["tidemark://test/web/client/0", "an editor\nremoved by nobody"] {
        let body = json!({ "insert": [pair("answer", "topic")], "by": by });
        let (status, refused) = edges(centre.http, body).await;
        assert_eq!((status, &refused["error"]["code"]), (400, &"edges".into()), "{refused}");
    }
    are_made_of(centre.http, 4).await;
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
    let entry = audit["batches"][0]["entry"].to_string();
    let (is_ok, said) = operate(&cluster, centre.http, &["graph", "audit", "--entry", &entry]);
    assert!(is_ok && said.contains("- search/answer > search/author") && !said.contains('+'), "{said}");
    let (code, none) = http::get(centre.http, "/v1/edges/audit?entry=1").await.unwrap();
    assert_eq!(code, 404, "{none}");
    load_names_bad_lines(&cluster, centre.http);
    let insert = json!([pair("c4", "p"), pair("author", "answer"), pair("answer", "author")]);
    let (code, done) = edges(centre.http, json!({ "insert": insert, "each": true, "by": "an editor" })).await;
    assert_eq!((code, &done["inserted"]), (200, &1.into()), "{done}");
    assert_eq!(done["refused"][0]["code"], "unknown_counter", "{done}");
    assert_eq!((&done["refused"][1]["change"], &done["refused"][1]["code"]), (&2.into(), &"cycle".into()), "{done}");
    let (is_ok, said) = operate(&cluster, centre.http, &["graph", "show", "search/topic"]);
    assert!(is_ok && said.contains("total     1120") && said.contains("search/p"), "{said}");
    a_milestone_is_of_its_own_count(centre.http).await;
    across_namespaces_where_allowed(&cluster, centre.http).await;
}

/// Values of the last so long, of two answers, their question and its topic.
async fn windows(at: SocketAddr, of: &str, last: &str) -> Option<Vec<i64>> {
    let names = ["a1", "a2", "question", "topic"].map(|key| format!("counter=search/{key}")).join("&");
    let (code, read) = http::get(at, &format!("/v1/window?{names}&last={last}&of={of}")).await?;
    assert_eq!(code, 200, "{read}");
    let value = |read: &Value| read["windows"][0]["counted"]["value"].as_i64();
    read["counters"].as_array()?.iter().map(value).collect()
}

/// Keys and values of a ranking, and how many were looked at.
async fn ranking(at: SocketAddr, asked: &str) -> (u64, Vec<(String, i64)>) {
    let (code, top) = http::get(at, &format!("/v1/top?{asked}")).await.expect("the aggregator answers");
    assert_eq!(code, 200, "{top}");
    let place = |read: &Value| {
        let value = read["windows"][0]["counted"]["value"].as_i64().unwrap();
        (read["counter"]["key"].as_str().unwrap().to_owned(), value)
    };
    (top["looked_at"].as_u64().unwrap(), top["ranked"]["counters"].as_array().unwrap().iter().map(place).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_and_rankings_of_totals_have_what_flowed_in_their_time_each_once() {
    let cluster = Cluster::new(&["usa-0"]);
    let mut centre = cluster.centres().await.remove(0);
    let keep = r#"{"keep": {"1m": "2d", "1h": "30d"}, "late": "1d"}"#;
    let (code, body) = http::send(centre.http, "PUT", "/v1/namespaces/search/series", keep).await.unwrap();
    assert_eq!(code, 200, "{body}");
    until("a refused event", async || {
        let (_, body) = http::send(centre.http, "POST", "/v1/add", r#"{"counter": "search/probe", "at": 9}"#).await?;
        (body["errors"][0]["code"] == "event_time").then_some(())
    })
    .await;
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let lines = [("a1", 600, 10), ("a1", 14_400, 100), ("a2", 600, 5), ("a2", 14_400, 50), ("question", 600, 1)];
    let line = |(key, ago_s, delta): (&str, u64, u64)| {
        json!({ "counter": format!("search/{key}"), "delta": delta, "at": now_s - ago_s }).to_string() + "\n"
    };
    let (code, body) = http::send(centre.http, "POST", "/v1/add", &lines.map(line).concat()).await.unwrap();
    assert_eq!((code, &body["added"]), (200, &5.into()), "{body}");
    let edge = |from: &str, to: &str| json!([format!("search/{from}"), format!("search/{to}")]);
    let insert =
        json!([edge("a1", "question"), edge("a2", "question"), edge("question", "topic"), edge("a1", "topic")]);
    let (code, body) = edges(centre.http, json!({ "insert": insert, "unknown": "allow" })).await;
    assert_eq!(code, 200, "{body}");
    let are = async |at: SocketAddr, of: &str, last: &str, expected: [i64; 4]| {
        let what = format!("{expected:?} of the last {last}, {of}");
        until(&what, async || (windows(at, of, last).await? == expected).then_some(())).await;
    };
    are(centre.http, "direct", "1h", [10, 5, 1, 0]).await;
    are(centre.http, "total", "1h", [10, 5, 16, 16]).await;
    are(centre.http, "total", "6h", [110, 55, 166, 166]).await;
    let places =
        |places: &[(&str, i64)]| places.iter().map(|&(key, value)| (key.to_owned(), value)).collect::<Vec<_>>();
    let all = places(&[("question", 16), ("topic", 16), ("a1", 10), ("a2", 5)]);
    assert_eq!(ranking(centre.http, "prefix=search/&last=1h&of=total").await, (4, all));
    assert_eq!(
        ranking(centre.http, "prefix=search/&last=1h").await,
        (3, places(&[("a1", 10), ("a2", 5), ("question", 1)]))
    );
    let children = ranking(centre.http, "children=search/topic&last=1h&of=total").await;
    assert_eq!(children, (2, places(&[("question", 16), ("a1", 10)])));
    let (is_ok, said) =
        operate(&cluster, centre.http, &["top", "--children", "search/question", "--last", "6h", "-k", "1"]);
    assert!(is_ok && said.contains("the first 1 of 2 counters") && said.contains("search/a1  110 of 110"), "{said}");
    let (code, body) = edges(centre.http, json!({ "remove": [edge("a1", "question")] })).await;
    assert_eq!(code, 200, "{body}");
    // Another path to the topic is left.
    are(centre.http, "total", "6h", [110, 55, 56, 166]).await;
    assert_eq!(ranking(centre.http, "children=search/question&last=6h").await, (1, places(&[("a2", 55)])));
    centre.aggregator.kill();
    (centre.aggregator, centre.http) = cluster.start(0, Role::Aggregator).await;
    are(centre.http, "total", "6h", [110, 55, 56, 166]).await;
    are(centre.http, "total", "1h", [10, 5, 6, 16]).await;
    assert_eq!(
        ranking(centre.http, "children=search/topic&last=1h&of=total").await,
        (2, places(&[("a1", 10), ("question", 6)]))
    );
}

/// Counters that flow to one: with it as many as one read may ask for.
const LEAVES: usize = 9_999;
/// Edges of one request.
const EDGES: usize = 1_000;
/// Reads while all of them count.
const READS: usize = 30;

fn leaf(number: usize) -> String {
    format!("search/leaf/{number}")
}

/// Counts once of each of these.
async fn count(at: SocketAddr, leaves: impl Iterator<Item = usize>) {
    let lines: String = leaves.map(|number| json!({"counter": leaf(number)}).to_string() + "\n").collect();
    until("increments", async || http::send(at, "POST", "/v1/add", &lines).await.filter(|(code, _)| *code == 200))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_counters_are_of_one_instant_while_they_count() {
    let cluster = Cluster::new(&["usa-0"]);
    let centre = cluster.centres().await.remove(0);
    let at = centre.http;
    count(at, 0..LEAVES).await;
    let all: Vec<_> = (0..LEAVES).map(|number| json!([leaf(number), "search/all"])).collect();
    for some in all.chunks(EDGES) {
        let (code, said) = edges(at, json!({"insert": some, "unknown": "allow"})).await;
        assert_eq!(code, 200, "{said}");
    }
    let names: Vec<String> = ["search/all".to_owned()].into_iter().chain((0..LEAVES).map(leaf)).collect();
    let body = json!({"counters": names, "of": "total"}).to_string();
    let values = async || {
        let (code, read) = http::send(at, "POST", "/v1/read", &body).await?;
        let all = read["counters"].as_array().filter(|_| code == 200)?;
        all.iter().map(|read| read["value"].as_u64()).collect::<Option<Vec<u64>>>()
    };
    let all_flow = async || values().await.filter(|values| values[0] == LEAVES as u64);
    until("a total of all", all_flow).await;
    let counting = tokio::spawn(async move {
        for round in 0.. {
            count(at, (0..500).map(|nth| (round * 500 + nth * 7) % LEAVES)).await;
        }
    });
    let mut seen = BTreeSet::new();
    for _ in 0..READS {
        let values = until("a read", &values).await;
        assert_eq!(values[0], values[1..].iter().sum::<u64>(), "what flows to it, and what of it is shown");
        seen.insert(values[0]);
    }
    counting.abort();
    assert!(seen.len() > 3, "it counted meanwhile: {seen:?}");
}
