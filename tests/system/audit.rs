//! The values of counters in views, beside those in nodes, while counting goes on and processes are killed: nothing differs, late values
//! are waited for, and unreachable groups are reported.

use crate::cluster::{Centre, Cluster, operate, until_views_show};
use crate::http;
use crate::load::Load;
use crate::process::until;
use serde_json::{Value, json};
use std::net::SocketAddr;

const DCS: [&str; 3] = ["usa-0", "europe-0", "asia-0"];

async fn three_centres() -> (Cluster, Vec<Centre>) {
    let cluster = Cluster::new(&DCS);
    let layout = cluster.layout_text(&cluster.aggregators);
    let series = "[[series]]\nnamespace = \"search\"\nkeep = { \"1m\" = \"2d\", \"1h\" = \"30d\" }\n";
    std::fs::write(cluster.path("layout.toml"), layout + series).unwrap();
    let centres = cluster.centres().await;
    (cluster, centres)
}

/// The lines of an audit; and whether it ended well.
fn audit(cluster: &Cluster, at: SocketAddr, arguments: &[&str]) -> (bool, Vec<Value>) {
    let (is_well, said) = operate(cluster, at, &[&["audit", "--json"], arguments].concat());
    let lines = said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{said}")));
    (is_well, lines.collect())
}

fn states(found: &Value) -> Vec<&str> {
    found["components"].as_array().unwrap().iter().map(|component| component["state"].as_str().unwrap()).collect()
}

async fn add(at: SocketAddr, counter: &str, delta: u64) {
    let body = json!({ "delta": delta }).to_string();
    until("an increment", async || {
        http::send(at, "POST", &format!("/v1/counters/{counter}/add"), &body).await.filter(|(code, _)| *code == 200)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_reads_show_is_what_logs_hold_while_counting_goes_on_and_what_cannot_be_asked_is_said() {
    let (cluster, mut centres) = three_centres().await;
    let first = centres[0].http;
    let second = centres[1].http;
    let loads = [Load::start(cluster.client(&[0]).await, 1), Load::start(cluster.client(&[1]).await, 1)];
    for load in &loads {
        load.until_further(200).await;
    }
    let and = format!("http://{second}");
    for counter in ["search/queries", "search/plain"] {
        let (is_well, found) = audit(&cluster, first, &[counter, "--and", &and]);
        assert!(is_well && found.len() == 1, "{found:?}");
        let states = states(&found[0]);
        assert!(states.len() >= 2 && states.iter().all(|state| *state == "agrees"), "{found:?}");
        let components = found[0]["components"].as_array().unwrap();
        assert!(components.iter().all(|of| of["held"].as_u64() > Some(0) && of["index"].as_u64() > Some(0)));
    }
    for load in loads {
        load.finish().await;
    }
    add(first, "search/a%2Fx", 7).await;
    add(second, "search/a%2Fx", 5).await;
    add(second, "search/a%2Fy", 30).await;
    let edges = [["search/a/x", "search/all"], ["search/a/y", "search/all"]];
    let edge = json!({"insert": edges, "unknown": "allow"}).to_string();
    assert_eq!(http::send(first, "POST", "/v1/edges", &edge).await.unwrap().0, 200);
    until_views_show(&[first, second], "search/a/x", 12).await;
    until_views_show(&[first, second], "search/a/y", 30).await;
    totals(&cluster, first).await;
    by_prefix(&cluster, first, &and);
    // A view recovers from its disk, a node from its log.
    centres[0].node.kill();
    let found = audit(&cluster, first, &["search/a/x"]).1;
    assert!(states(&found[0]).contains(&"not_reached"), "{found:?}");
    centres[0].node = cluster.node(0).await;
    centres[1].aggregator.kill();
    let found = until("a group that answers", async || {
        let (is_well, found) = audit(&cluster, first, &["search/a/x"]);
        assert!(is_well, "{found:?}");
        states(&found[0]).contains(&"agrees").then_some(found)
    })
    .await;
    let held: Vec<_> =
        found[0]["components"].as_array().unwrap().iter().map(|of| (&of["state"], &of["view"])).collect();
    assert_eq!(held, [(&json!("agrees"), &json!(7)), (&json!("elsewhere"), &json!(5))]);
}

/// Counts that flow along edges are counted anew.
async fn totals(cluster: &Cluster, at: SocketAddr) {
    let total = until("totals that have followed", async || {
        let (is_well, found) = audit(cluster, at, &["search/all"]);
        assert!(is_well, "{found:?}");
        found[0].get("total").cloned()
    })
    .await;
    let expected = json!({"state": "agrees", "ancestors": 2, "up": 42, "up_counted": 42, "down": 0, "down_counted": 0});
    assert_eq!(total, expected);
}

/// Several at once, as a table.
fn by_prefix(cluster: &Cluster, at: SocketAddr, and: &str) {
    let (is_well, said) = operate(cluster, at, &["audit", "search/a/", "--prefix", "--and", and]);
    assert!(is_well && said.contains("2 audited, 0 differ; of 0 not everything was compared"), "{said}");
    assert!(said.contains("search/a/x in usa-0: shows 12") && said.contains("search/a/y in usa-0: shows 30"), "{said}");
    assert_eq!(said.matches(" agrees\n").count(), 3, "{said}");
    let refused = operate(cluster, at, &["audit", "nothing"]).1;
    assert!(refused.contains("\"nothing\" names no counter: NAMESPACE/KEY expected"), "{refused}");
}
