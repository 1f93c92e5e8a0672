//! Shards in real processes: a layout divides the view, `/v1/slots` shows the content of each shard, and totals are the same as without,
//! also after a restart and out of a backup that another layout divides; with wrong boundaries, or others than on disk, nothing starts.

use crate::cluster::{Cluster, Role};
use crate::http;
use crate::process::{run, until};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;

/// Runs the command, which succeeds.
fn tidemark(arguments: &[&str]) {
    let output = run(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

async fn add(at: SocketAddr, counter: &str, delta: u64) {
    let path = format!("/v1/counters/{counter}/add");
    let body = json!({ "delta": delta }).to_string();
    until("an increment", async || http::send(at, "POST", &path, &body).await.filter(|(code, _)| *code == 200)).await;
}

async fn total(at: SocketAddr, key: &str) -> Option<u64> {
    http::get(at, &format!("/v1/counters/search/{key}/graph")).await?.1["total"].as_u64()
}

/// Of each slot where it begins, and counters, weight and totals.
async fn slots(at: SocketAddr) -> Vec<(Value, [u64; 3])> {
    let (code, body) = http::get(at, "/v1/slots").await.expect("the aggregator answers");
    assert_eq!(code, 200, "{body}");
    let of = |slot: &Value| {
        let [counters, weight, totals, bytes] =
            ["counters", "weight", "totals", "totals_bytes"].map(|key| slot[key].as_u64().unwrap());
        assert!((bytes >= 64 * totals) && (bytes > 0) == (totals > 0), "{slot}");
        (slot["from"].clone(), [counters, weight, totals])
    };
    body["slots"].as_array().unwrap().iter().map(of).collect()
}

/// Begins with a backup instead of all that is on disk, by the layout as it is now.
pub fn restore(cluster: &Cluster, backup: &Path, data: &Path) {
    std::fs::remove_dir_all(cluster.path("data")).unwrap();
    std::fs::create_dir(cluster.path("data")).unwrap();
    let restored = cluster.path("restored");
    let layout = cluster.path("layout.toml");
    tidemark(
        &[
            &["restore", "cluster", "--yes", "--from", text(backup)][..],
            &["--layout", text(&layout), "--out", text(&restored)],
        ]
        .concat(),
    );
    std::fs::copy(restored.join("cluster.toml"), layout).unwrap();
    std::fs::rename(restored.join("usa-0"), data).unwrap();
}

/// No other file has the first file's rows of counters with milestones.
fn refused_without_its_first_file(cluster: &Cluster, data: &Path) {
    let first = data.join("view.redb");
    let aside = cluster.path("aside.redb");
    std::fs::rename(&first, &aside).unwrap();
    let refusal = cluster.refusal(0, Role::Aggregator, &[]);
    assert!(refusal.contains("has shard-1.redb and no view.redb") && !first.exists(), "{refusal}");
    std::fs::rename(&aside, &first).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_say_where_counters_weight_and_totals_lie_and_change_no_total() {
    let cluster = Cluster::new(&["usa-0"]);
    let layout = std::fs::read_to_string(cluster.path("layout.toml")).unwrap();
    let cut = |cuts: &str| {
        let text = layout.replacen("spread = ", &format!("slots = [{cuts}]\nspread = "), 1);
        std::fs::write(cluster.path("layout.toml"), text).unwrap();
    };
    cut("\"search/b\",\n\"search/a\"");
    let refusal = cluster.refusal(0, Role::Aggregator, &[]);
    assert!(refusal.contains("line 5: slots is search/a; search/a stands behind search/b"), "{refusal}");
    cut("\"search/b\", \"search/c\", \"stock/a\"");
    let mut centre = cluster.centres().await.remove(0);
    for (counter, delta) in [("search/a", 1), ("search/a2", 2), ("search/b", 10), ("search/c", 100), ("stock/z", 5)] {
        add(centre.http, counter, delta).await;
    }
    let zero = 0;
    let names = ["search/b", "search/c", "stock/a"].map(Value::from);
    let expected = |totals: [u64; 3]| {
        let [first, second, third] = totals;
        let [b, c, stock] = names.clone();
        vec![(Value::Null, [2, 3, first]), (b, [1, 10, second]), (c, [1, 100, third]), (stock, [1, 5, zero])]
    };
    until("all is heard of", async || (slots(centre.http).await == expected([0, 0, 0])).then_some(())).await;
    let insert = json!([["search/a", "search/b"], ["search/a2", "search/b"], ["search/b", "search/c"]]);
    let (code, done) =
        http::send(centre.http, "POST", "/v1/edges", &json!({ "insert": insert }).to_string()).await.unwrap();
    assert_eq!(code, 200, "{done}");
    let settled = async |at| (total(at, "b").await? == 13 && total(at, "c").await? == 113).then_some(());
    until("totals", async || settled(centre.http).await).await;
    // The first slot adds to both, the second to one of them.
    assert_eq!(slots(centre.http).await, expected([2, 1, 0]));
    let (code, refused) = http::get(centre.http, "/v1/slots?of=total").await.unwrap();
    assert_eq!(code, 400, "{refused}");
    let [data, backup] = [cluster.data(0, Role::Aggregator), cluster.path("backup")];
    for shard in 1..4 {
        assert!(data.join(format!("shard-{shard}.redb")).is_file(), "each has a file of its own");
    }
    let url = format!("http://{}", centre.http);
    let token = cluster.path("token");
    tidemark(&["backup", "take", "--whole", "--out", text(&backup), "--token-file", text(&token), "--server", &url]);

    // It is cut as it was, or not at all: its files are made for that.
    centre.aggregator.kill();
    for (cuts, asked) in [("\"search/a2\"", "search/a2"), ("", "no counter")] {
        cut(cuts);
        let refusal = cluster.refusal(0, Role::Aggregator, &[]);
        let reason = format!("the view on disk is cut at search/b, search/c, stock/a, and is to be at {asked}:");
        assert!(refusal.contains(&reason), "{refusal}");
    }
    cut("\"search/b\", \"search/c\", \"stock/a\"");
    refused_without_its_first_file(&cluster, &data);
    (centre.aggregator, centre.http) = cluster.start(0, Role::Aggregator).await;
    until("totals again", async || settled(centre.http).await).await;
    let lies = async |at| {
        let lies = slots(at).await.into_iter().map(|(from, [counters, _, totals])| (from, counters, totals));
        lies.collect::<Vec<_>>()
    };
    let [b, c, stock] = names;
    assert_eq!(lies(centre.http).await, [(Value::Null, 2, 2), (b, 1, 1), (c, 1, 0), (stock, 1, 0)]);

    // A backup is restored however the layout cuts.
    centre.aggregator.kill();
    centre.node.kill();
    cut("\"search/a2\"");
    restore(&cluster, &backup, &data);
    let centre = cluster.centres().await.remove(0);
    until("totals of the backup", async || settled(centre.http).await).await;
    assert_eq!(lies(centre.http).await, [(Value::Null, 1, 2), ("search/a2".into(), 4, 2)]);
}
