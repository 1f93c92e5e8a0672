//! A view and a node with buckets that may take less memory than they would, and totals as well: ended buckets are read from disk. Every
//! answer is as by processes with all buckets in memory, also late and after `kill -9`.

use crate::cluster::{Centre, Cluster, Role, operate};
use crate::http;
use crate::process::{now_s, run, until};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;

const DCS: [&str; 3] = ["usa-0", "europe-0", "asia-0"];
const COUNTERS: u64 = 500;
/// Days in which each has counted: together they take some two MiB of memory.
const DAYS: u64 = 250;
const DAY_S: u64 = 86_400;
pub const SERIES: &str =
    "[[series]]\nnamespace = \"search\"\nkeep = { \"1h\" = \"30d\", \"1d\" = \"730d\" }\nlate = \"700d\"\n";
/// For one of the data centres.
const VIEW: &str = "[view]\nbuckets_memory_mib = 1\n";
const NODE: &str = "[group]\nbuckets_memory_mib = 1\n[log]\ncheckpoint_interval_ms = 500\n[rows]\nstore = \"tree\"\n";

/// A row per counter and day, none of them today; and the sum of all.
pub fn history(path: &std::path::Path, counters: u64) -> u64 {
    let mut text = "counter,delta,at\n".to_owned();
    let mut sum = 0;
    let now = now_s();
    for counter in 0..counters {
        for day in 0..DAYS {
            let delta = 1 + (counter + day) % 7;
            sum += delta;
            writeln!(text, "search/answer/{counter},{delta},{}", now - (2 + 2 * day) * DAY_S).unwrap();
        }
    }
    std::fs::write(path, text).unwrap();
    sum
}

async fn get(at: SocketAddr, path: &str) -> Option<Value> {
    let (code, body) = http::get(at, path).await?;
    (code == 200).then_some(body)
}

/// The memory of a view, or of a node's group: bytes, the most, and rows of which some are on disk only.
async fn memory(at: SocketAddr) -> Option<(u64, u64, u64)> {
    let status = get(at, "/v1/status").await?;
    let view = status.get("view").unwrap_or(&status["groups"][0]);
    Some((view["buckets_bytes"].as_u64()?, view["buckets_bytes_max"].as_u64()?, view["rows_shelved"].as_u64()?))
}

/// All buckets of all counters, and a window of totals.
async fn everything(at: SocketAddr) -> Option<(Vec<Value>, Value)> {
    let counters = buckets(at).await?;
    let window = get(at, "/v1/counters/search/topic/window?last=600d&of=total").await?;
    Some((counters, window["counted"]["value"].clone()))
}

/// All buckets of all counters.
pub async fn buckets(at: SocketAddr) -> Option<Vec<Value>> {
    let mut counters = Vec::new();
    let mut after = String::new();
    loop {
        let page = get(at, &format!("/v1/export?prefix=search/answer/&limit=100{after}")).await?;
        counters.extend(page["counters"].as_array()?.iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", next.replace('/', "%2F")),
            None => return Some(counters),
        }
    }
}

/// Both data centres answer alike, and the total is this.
async fn alike(centres: &[Centre], total: u64) {
    until(&format!("a total of {total}"), async || {
        let of_each = [everything(centres[0].http).await?, everything(centres[1].http).await?];
        let [(own, sum), (other, other_sum)] = of_each;
        (own.len() as u64 == COUNTERS && own == other && [&sum, &other_sum].iter().all(|sum| **sum == total))
            .then_some(())
    })
    .await;
}

async fn leaves_memory(at: SocketAddr) {
    until("memory within its budget", async || {
        let (bytes, most, shelved) = memory(at).await?;
        (bytes <= most && most == 1 << 20 && shelved > 0).then_some(())
    })
    .await;
}

/// Ends the node of the first data centre by `kill -9`, and starts it again; where its HTTP interface is.
async fn restart_node(cluster: &Cluster, centres: &mut [Centre]) -> SocketAddr {
    centres[0].node.kill();
    let (node, http) = cluster.start(0, Role::Node).await;
    centres[0].node = node;
    http
}

/// Counts once of a counter nine days ago: the policy is known where it is shown.
pub async fn probe(at: SocketAddr, counter: &str) {
    until("the policy at the group", async || {
        let late = json!({"counter": counter, "delta": 1, "at": now_s() - 9 * DAY_S}).to_string();
        http::send(at, "POST", "/v1/add", &late).await?;
        let window = get(at, &format!("/v1/counters/{counter}/window?last=20d")).await?;
        (window["counted"]["value"].as_i64()? > 0).then_some(())
    })
    .await;
}

/// Counts some of the counters once more, long ago; by how much in all.
pub async fn late(at: SocketAddr) -> u64 {
    let line =
        |counter| json!({"counter": format!("search/answer/{counter}"), "delta": 1_000, "at": now_s() - 300 * DAY_S});
    let lines = (0..20).map(|counter| line(counter).to_string() + "\n").collect::<String>();
    let (code, said) = http::send(at, "POST", "/v1/add", &lines).await.unwrap();
    assert_eq!(code, 200, "{said}");
    20 * 1_000
}

pub fn load(cluster: &Cluster, at: SocketAddr, file: &str) {
    let path = |name: &str| cluster.path(name).to_str().unwrap().to_owned();
    let layout = path("layout.toml");
    let web = path("credentials/web");
    let token = path("token");
    let server = format!("http://{at}");
    let journal = path("journals");
    let file = path(file);
    let usual = ["load", &file, "--cluster", &layout, "--dc", "usa-0", "--credentials", &web, "--journal", &journal];
    let loaded = run(&[&usual[..], &["--server", &server, "--token-file", &token]].concat());
    assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buckets_that_do_not_fit_memory_are_read_from_disk_also_late_and_after_kill_9() {
    let cluster = Cluster::new(&DCS);
    std::fs::write(cluster.path("layout.toml"), cluster.layout_text(&cluster.aggregators) + SERIES).unwrap();
    for (role, more) in [(Role::Aggregator, VIEW), (Role::Node, NODE)] {
        let mut config = std::fs::OpenOptions::new().append(true).open(cluster.config(0, role)).unwrap();
        config.write_all(more.as_bytes()).unwrap();
    }
    let mut centres = cluster.centres().await;
    let at = centres[0].http;
    let node = restart_node(&cluster, &mut centres).await;
    probe(at, "search/probe").await;
    // Half of the counters flow to the topic before anything is counted of them, the others when their buckets have left memory.
    let edges = |from: u64| {
        let half = (0..COUNTERS).filter(|counter| counter % 2 == from);
        half.map(|counter| json!([format!("search/answer/{counter}"), "search/topic"])).collect::<Vec<_>>()
    };
    let insert = async |from| {
        let body = json!({"insert": edges(from), "unknown": "allow"}).to_string();
        let (code, done) = http::send(at, "POST", "/v1/edges", &body).await.unwrap();
        assert_eq!((code, done["inserted"].as_u64()), (200, Some(COUNTERS / 2)), "{done}");
    };
    insert(0).await;
    let mut sum = history(&cluster.path("history.csv"), COUNTERS);
    load(&cluster, at, "history.csv");
    leaves_memory(at).await;
    leaves_memory(node).await;
    let status = get(at, "/v1/status").await.unwrap();
    assert!(status["view"]["totals_shelved"].as_u64() > Some(0), "of a total as well: {}", status["view"]);
    insert(1).await;
    alike(&centres, sum).await;
    let (bytes, _, shelved) = memory(centres[1].http).await.unwrap();
    assert!(bytes >= COUNTERS * DAYS * 16 && shelved == 0, "the other has all in memory: {bytes} bytes");
    // Late events raise buckets that are on disk.
    sum += late(at).await;
    alike(&centres, sum).await;
    leaves_memory(node).await;
    centres[0].aggregator.kill();
    let node = restart_node(&cluster, &mut centres).await;
    let (aggregator, http) = cluster.start(0, Role::Aggregator).await;
    (centres[0].aggregator, centres[0].http) = (aggregator, http);
    alike(&centres, sum).await;
    sum += late(http).await;
    alike(&centres, sum).await;
    leaves_memory(http).await;
    leaves_memory(node).await;
    for counter in ["search/answer/3", "search/topic"] {
        let (is_well, said) = operate(&cluster, http, &["audit", counter, "--json"]);
        assert!(is_well, "{said}");
    }
}
