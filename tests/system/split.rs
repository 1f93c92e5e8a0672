//! A data centre with a view in parts at four aggregators: any of them answers as the aggregator of another data centre that holds all; one
//! holder of a shard may be killed, and if both are gone only their shards are not read; the awards stay the same.

use crate::asking::answer_alike;
use crate::cluster::{Centre, Cluster, Role, arm, awards, operate, ready, until_views_show};
use crate::http;
use crate::process::{Process, run, until, until_true};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tidemark_client::{Client, Site};
use tidemark_server::names::parse_counter;

pub const DCS: [&str; 2] = ["usa-0", "europe-0"];
pub const SEATS: usize = 4;
pub const SLOTS: [&str; 4] = ["search/b", "search/c", "search/d", "stock/a"];
/// Counters in each of the five slots, and what is counted of each.
const COUNTED: [(&str, i64); 7] = [
    ("search/a", 1),
    ("search/b1", 10),
    ("search/b2", 20),
    ("search/c", 300),
    ("search/d", 4_000),
    ("search/e", 50_000),
    ("stock/x", -7),
];
const QUESTIONS: [&str; 9] = [
    "/v1/range?prefix=search/&last=6h",
    "/v1/range?prefix=search/&limit=2",
    "/v1/range?prefix=search/&of=total",
    "/v1/range?prefix=stock/",
    "/v1/top?prefix=search/&last=6h&k=3",
    "/v1/top?children=search/topic&last=6h&of=total",
    "/v1/counters/search/topic/graph",
    "/v1/counters/search/topic/window?last=2h&of=total",
    "/v1/window?counter=search/a&counter=search/e&counter=search/nobody&last=1h",
];

/// The part of an answer about counters, without times and bases.
fn counts(value: &Value) -> Value {
    const KEPT: [&str; 11] = [
        "counters",
        "counter",
        "key",
        "value",
        "windows",
        "direct",
        "total",
        "parents",
        "children",
        "looked_at",
        "next",
    ];
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(key, _)| KEPT.contains(&key.as_str()));
            Value::Object(kept.map(|(key, value)| (key.clone(), counts(value))).collect())
        }
        Value::Array(all) => all.iter().map(counts).collect(),
        plain => plain.clone(),
    }
}

async fn answers(at: SocketAddr) -> Option<Vec<Value>> {
    let mut all = Vec::new();
    for question in QUESTIONS {
        let (code, body) = http::get(at, question).await?;
        all.push(if code == 200 { counts(&body) } else { json!([code, body]) });
    }
    let (_, series) = http::get(at, "/v1/counters/search/topic/series?last=1h&every=10m&of=total").await?;
    let sum = series["steps"].as_array()?.iter().filter_map(|step| step["value"].as_i64()).sum::<i64>();
    all.push(sum.into());
    // Each counter in steps: of totals, and of a page that no counter is in.
    let (_, range) = http::get(at, "/v1/range?prefix=search/&last=1h&every=10m&of=total").await?;
    let sum =
        |counter: &Value| counter["values"].as_array().into_iter().flatten().filter_map(Value::as_i64).sum::<i64>();
    all.push(
        range["counters"].as_array()?.iter().map(|counter| json!([counter["counter"]["key"], sum(counter)])).collect(),
    );
    let (_, none) = http::get(at, "/v1/range?prefix=search/none&last=1h&every=10m&of=total").await?;
    all.push(json!([none["counters"], none["steps"].as_array()?.is_empty()]));
    Some(all)
}

/// Totals over all slots: of how many instants, after which changes of edges, and as of which of the other data centre's streams.
async fn says_what_it_is_made_of(at: SocketAddr, other_dc: u16) {
    let path = "/v1/window?counter=search/topic&counter=search/e&last=1h&of=total";
    let (_, read) = http::get(at, path).await.expect("it answers");
    let instants = read["instants"].as_u64().unwrap_or(1);
    let basis = &read["basis"];
    assert!(if other_dc == 0 { instants == 1 } else { instants > 1 }, "{read}");
    assert!(basis["graph_index"].as_u64().is_some_and(|index| index > 0) && basis["waiting"] == 0, "{read}");
    let streams = basis["aggregators"].as_array().expect("a version vector");
    let slots: BTreeSet<_> = streams.iter().map(|stream| stream["slot"].as_u64()).collect();
    assert!(slots.len() > 1 && streams.iter().all(|stream| stream["dc"] == other_dc), "{read}");
    assert_eq!(basis["groups"].as_array().map(Vec::len), Some(1), "{read}");
}

/// Waits until all of them answer alike, and returns what.
pub async fn until_alike(views: &[SocketAddr]) -> Vec<Value> {
    let mut last = Vec::new();
    for _ in 0..600 {
        last.clear();
        for &view in views {
            last.push(answers(view).await);
        }
        if last[0].is_some() && last.iter().all(|answers| *answers == last[0]) {
            return last.swap_remove(0).expect("it is some");
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("they answer differently: {last:#?}")
}

/// Runs the command, and says whether it succeeded and what it complained of.
fn tidemark(arguments: &[&str]) -> (bool, String) {
    let output = run(arguments);
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub async fn send(at: SocketAddr, method: &str, path: &str, body: Value) -> Value {
    let sent = async || http::send(at, method, path, &body.to_string()).await.filter(|(code, _)| *code == 200);
    until(path, sent).await.1
}

/// All of a data centre's aggregators.
pub struct Split {
    processes: Vec<Option<Process>>,
    pub http: Vec<SocketAddr>,
}

impl Split {
    pub async fn start(cluster: &Cluster, first: Centre) -> (Split, Process) {
        let mut processes = vec![Some(first.aggregator)];
        let mut http = vec![first.http];
        for seat in 1..SEATS {
            let (process, at) = cluster.start_further(0, seat).await;
            processes.push(Some(process));
            http.push(at);
        }
        for &at in &http {
            ready(at).await;
        }
        (Split { processes, http }, first.node)
    }

    pub fn kill(&mut self, seat: usize) {
        self.processes[seat].take().expect("it runs").kill();
    }

    pub async fn restart(&mut self, cluster: &Cluster, seat: usize) {
        let (process, at) = match seat {
            0 => cluster.start(0, Role::Aggregator).await,
            _ => cluster.start_further(0, seat).await,
        };
        (self.processes[seat], self.http[seat]) = (Some(process), at);
        ready(at).await;
    }
}

/// The shards, their holders, and the sizes that the asked aggregator tells of its own.
async fn slots(at: SocketAddr) -> Vec<(Vec<String>, Option<u64>)> {
    let (_, body) = http::get(at, "/v1/slots").await.expect("it answers");
    let name = |name: &Value| name.as_str().unwrap().to_owned();
    let of = |slot: &Value| (slot["held_by"].as_array().unwrap().iter().map(name).collect(), slot["counters"].as_u64());
    body["slots"].as_array().unwrap().iter().map(of).collect()
}

/// By the client library, at an aggregator that holds some of them.
async fn read_natively(cluster: &Cluster, aggregator: SocketAddr, http: SocketAddr) {
    let site =
        Site { dc: DCS[0].to_owned(), nodes: vec![cluster.nodes[0].into()], aggregator: Some(aggregator.into()) };
    let client = Client::builder().credentials(cluster.client_credentials()).site(site).connect().await.unwrap();
    let names: Vec<_> = COUNTED.iter().map(|(name, _)| parse_counter(name).unwrap()).collect();
    let readings = client.get_many(&names).await.unwrap();
    let values: Vec<i128> = readings.iter().map(tidemark_proto::msg::Reading::value).collect();
    assert_eq!(values, COUNTED.map(|(_, value)| i128::from(value)));
    let to = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 60 * 60;
    answer_alike(&client, http, to - 3_600, to).await;
    client.close().await.unwrap();
}

/// At whichever: how series are kept, increments, and edges between counters that others hold.
pub async fn count_and_link(usa: &Split) {
    let keep = json!({ "keep": { "1m": "2d", "1h": "30d" } });
    for namespace in ["search", "stock"] {
        send(usa.http[2], "PUT", &format!("/v1/namespaces/{namespace}/series"), keep.clone()).await;
    }
    for (at, (counter, delta)) in COUNTED.iter().enumerate() {
        let path = format!("/v1/counters/{counter}/add");
        send(usa.http[at % SEATS], "POST", &path, json!({ "delta": delta })).await;
    }
    let edges = json!([
        ["search/a", "search/topic"],
        ["search/b1", "search/topic"],
        ["search/d", "search/topic"],
        ["search/e", "search/d"],
        ["search/c", "search/b2"]
    ]);
    let refused = http::send(usa.http[1], "POST", "/v1/edges", &json!({ "insert": edges }).to_string()).await.unwrap();
    assert_eq!((refused.0, &refused.1["error"]["code"]), (409, &"unknown_counter".into()), "{}", refused.1);
    until("what is counted is heard of", async || {
        let body = json!({ "insert": [["search/a", "search/d"], ["search/e", "search/d"]] }).to_string();
        http::send(usa.http[3], "POST", "/v1/edges", &body).await.filter(|(code, _)| *code == 200)
    })
    .await;
    send(usa.http[3], "POST", "/v1/edges", json!({ "remove": [["search/a", "search/d"], ["search/e", "search/d"]] }))
        .await;
    send(usa.http[1], "POST", "/v1/edges", json!({ "insert": edges, "unknown": "allow" })).await;
}

/// The holders of shards, as each aggregator says.
async fn check_slots(usa: &Split) {
    for (seat, &at) in usa.http.iter().enumerate() {
        let held: Vec<bool> = slots(at).await.iter().map(|(_, counters)| counters.is_some()).collect();
        let expected = (0..=SLOTS.len()).map(|slot| [slot % SEATS, (slot + 1) % SEATS].contains(&seat));
        assert_eq!(held, expected.collect::<Vec<_>>(), "seat {seat}");
    }
    assert_eq!(slots(usa.http[0]).await[2].0, ["usa-0/third", "usa-0/fourth"]);
}

/// A milestone on a counter that the one asked does not hold, and a counter that begins again.
async fn award_and_reset(usa: &Split, other: usize, views: &[SocketAddr], counted: u64) {
    let asked = usa.http[other];
    let at = counted + 4;
    let total = counted + 10;
    arm(asked, "search/c", &[at]).await;
    send(usa.http[1], "POST", "/v1/counters/search/c/add", json!({ "delta": 10 })).await;
    for &view in views {
        let award =
            until("the award", async || awards(view, "search/c").await.filter(|awards| awards.len() == 1)).await;
        assert_eq!(award[0]["at"], at, "{award:?}");
    }
    until_views_show(views, "search/c", total).await;
    let begun = send(asked, "POST", "/v1/counters/search/c/reset", json!({ "if_generation": 0 })).await;
    let said = (&begun["generation"], &begun["was"], &begun["waits_for"]);
    assert_eq!(said, (&1.into(), &total.into(), &json!([])), "{begun}");
    until_views_show(views, "search/c", 0).await;
    until_alike(views).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whichever_aggregator_is_asked_answers_for_all_that_hold_a_part() {
    let cluster = Cluster::with_aggregators(&DCS, &DCS[..1], &[SEATS, 1], &SLOTS);
    let first = cluster.centre(0).await;
    let europe = cluster.centre(1).await;
    let (mut usa, _node) = Split::start(&cluster, first).await;
    ready(europe.http).await;
    count_and_link(&usa).await;
    let views: Vec<SocketAddr> = usa.http.iter().copied().chain([europe.http]).collect();
    let all = until_alike(&views).await;
    assert_eq!((&all[6]["direct"], &all[6]["total"]), (&0.into(), &54_011.into()), "{all:#?}");
    assert_eq!(all[9], 54_011, "{all:#?}");
    assert!(all[10].as_array().is_some_and(|range| range.contains(&json!(["topic", 54_011]))), "{all:#?}");
    assert_eq!(all[11], json!([[], false]), "{all:#?}");
    let keys: Vec<&Value> = all[1]["counters"].as_array().unwrap().iter().map(|read| &read["counter"]["key"]).collect();
    assert_eq!(keys, ["a", "b1"], "the first page");
    for &at in &views {
        says_what_it_is_made_of(at, if at == europe.http { 0 } else { 1 }).await;
    }
    check_slots(&usa).await;
    read_natively(&cluster, cluster.aggregators[0], usa.http[0]).await;

    // One holder of a shard is killed, then the other holder of a shard as well.
    usa.kill(2);
    let left = [usa.http[0], usa.http[1], usa.http[3]];
    assert_eq!(until_alike(&left).await, all);
    send(usa.http[3], "POST", "/v1/counters/search/c/add", json!({ "delta": 1 })).await;
    until_views_show(&[usa.http[0], usa.http[1], usa.http[3], europe.http], "search/c", 301).await;
    usa.kill(3);
    let refusal = until("nobody who holds it", async || {
        http::get(usa.http[0], "/v1/counters/search/c").await.filter(|(code, _)| *code == 503)
    });
    let said = refusal.await.1.to_string();
    assert!(said.contains("slot 2 is held by usa-0/third and usa-0/fourth"), "{said}");
    until_views_show(&[usa.http[0], usa.http[1]], "search/b1", 10).await;
    // A total is missed only where something flows to it from there.
    for at in &usa.http[..2] {
        // The values that a lost aggregator had shown may have to be given up first.
        let (_, topic) = until("a total", async || {
            http::get(*at, "/v1/counters/search/topic/graph").await.filter(|(code, _)| *code == 200)
        })
        .await;
        assert_eq!(topic["total"], 54_011, "{topic}");
        let (code, refused) = http::get(*at, "/v1/counters/search/b2/graph").await.expect("it answers");
        assert!(code == 503 && refused.to_string().contains("slot 2 is held by"), "{code}: {refused}");
    }
    usa.restart(&cluster, 2).await;
    usa.restart(&cluster, 3).await;
    let views: Vec<SocketAddr> = usa.http.iter().copied().chain([europe.http]).collect();
    until_views_show(&views, "search/c", 301).await;

    award_and_reset(&usa, 0, &views, 301).await;

    // Its files are of a data centre with that number of aggregators.
    usa.kill(0);
    let layout = std::fs::read_to_string(cluster.path("layout.toml")).unwrap();
    let fewer = layout.lines().filter(|line| !line.starts_with("further_aggregators")).collect::<Vec<_>>().join("\n");
    std::fs::write(cluster.path("fewer.toml"), fewer).unwrap();
    cluster.write_config(0, Role::Aggregator, "fewer.toml");
    let refusal = cluster.refusal(0, Role::Aggregator, &[]);
    assert!(refusal.contains("a data centre with 4 aggregators, and the layout has one or two"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_has_all_parts_of_a_view_or_is_none_and_each_begins_with_its_own() {
    let cluster = Cluster::with_aggregators(&DCS[..1], &DCS[..1], &[SEATS], &SLOTS);
    let first = cluster.centre(0).await;
    let (mut usa, mut node) = Split::start(&cluster, first).await;
    for (counter, delta) in COUNTED {
        send(usa.http[1], "POST", &format!("/v1/counters/{counter}/add"), json!({ "delta": delta })).await;
    }
    for (counter, value) in COUNTED.into_iter().filter(|(_, value)| *value > 0) {
        until_views_show(&usa.http, counter, value as u64).await;
    }
    let backup = cluster.path("backup");
    let token = cluster.path("token");
    let urls = usa.http.iter().map(|at| format!("http://{at}")).collect::<Vec<_>>();
    let take = |asked: &[usize]| {
        let mut arguments = vec!["backup", "take", "--whole", "--out", text(&backup), "--token-file", text(&token)];
        arguments.extend(["--server", &urls[asked[0]]]);
        asked[1..].iter().for_each(|&seat| arguments.extend(["--and", urls[seat].as_str()]));
        tidemark(&arguments)
    };
    let (taken, complaint) = take(&[1, 0]);
    assert!(!taken && complaint.contains("hold all but its slots [2]"), "{complaint}");
    assert!(!backup.exists(), "nothing is left behind");
    // Any two that are not beside each other hold all.
    assert_eq!(take(&[0, 2]), (true, String::new()));
    let (verified, complaint) = tidemark(&["backup", "verify", text(&backup)]);
    assert!(verified, "{complaint}");
    (0..SEATS).for_each(|seat| usa.kill(seat));
    node.kill();
    std::fs::remove_dir_all(cluster.path("data")).unwrap();
    std::fs::create_dir(cluster.path("data")).unwrap();
    let restored = cluster.path("restored");
    let layout = cluster.path("layout.toml");
    let arguments = [
        "restore",
        "cluster",
        "--yes",
        "--withhold",
        "--from",
        text(&backup),
        "--layout",
        text(&layout),
        "--out",
        text(&restored),
    ];
    let (done, complaint) = tidemark(&arguments);
    assert!(done, "{complaint}");
    std::fs::copy(restored.join("cluster.toml"), &layout).unwrap();
    std::fs::rename(restored.join("usa-0"), cluster.data(0, Role::Aggregator)).unwrap();
    for own in ["second", "third", "fourth"] {
        std::fs::rename(restored.join(format!("usa-0.{own}")), cluster.path(&format!("data/usa-0-{own}"))).unwrap();
    }
    let first = cluster.centre(0).await;
    let (usa, _node) = Split::start(&cluster, first).await;
    for (counter, value) in COUNTED.into_iter().filter(|(_, value)| *value > 0) {
        until_views_show(&usa.http, counter, value as u64).await;
    }
    send(usa.http[3], "POST", "/v1/counters/search/c/add", json!({ "delta": 1 })).await;
    until_views_show(&usa.http, "search/c", 301).await;
}

/// Counts of one counter, one after the other, at an aggregator; how many were acknowledged.
pub async fn count_until(at: SocketAddr, counter: &str, is_over: &AtomicBool) -> u64 {
    let path = format!("/v1/counters/{counter}/add");
    let mut counted = 0;
    while !is_over.load(Ordering::Relaxed) {
        let (code, body) = http::send(at, "POST", &path, &json!({ "delta": 1 }).to_string()).await.expect("it answers");
        assert_eq!(code, 200, "{body}");
        counted += 1;
    }
    counted
}

/// Reads what one key of an answer says again and again at an aggregator, and counts that: it never goes back.
pub async fn read_until(at: SocketAddr, path: &str, key: &str, reads: &AtomicU64, is_over: &AtomicBool) {
    let mut last = 0;
    while !is_over.load(Ordering::Relaxed) {
        let Some((code, body)) = http::get(at, path).await else { continue };
        assert_eq!(code, 200, "{path} at {at}: {body}");
        let now = body[key].as_i64().expect("a number");
        assert!(now >= last, "{path} at {at} showed {last}, then {now}");
        last = now;
        reads.fetch_add(1, Ordering::Relaxed);
    }
}

pub async fn held_by(at: SocketAddr, slot: usize, holders: &[&str]) {
    until(&format!("slot {slot} at {at} is held by {holders:?}"), async || {
        let (_, body) = http::get(at, "/v1/slots").await?;
        let slot = body["slots"].as_array()?.iter().find(|listed| listed["slot"] == slot)?;
        (slot["held_by"] == json!(holders) && slot.get("moves").is_none()).then_some(())
    })
    .await;
}

/// Where the files of a data centre's aggregator are.
pub fn data_of(cluster: &Cluster, seat: usize) -> PathBuf {
    let own = ["usa-0", "usa-0-second", "usa-0-third", "usa-0-fourth"][seat];
    if seat == 0 { cluster.data(0, Role::Aggregator) } else { cluster.path(&format!("data/{own}")) }
}

/// Of which slots beside the first an aggregator has files.
fn files_of(cluster: &Cluster, seat: usize) -> Vec<usize> {
    (1..=SLOTS.len()).filter(|slot| data_of(cluster, seat).join(format!("shard-{slot}.redb")).exists()).collect()
}

/// Orders that are refused.
fn refused_moves(cluster: &Cluster, at: SocketAddr) {
    let cases: [(&[&str], &str); 7] = [
        (&["slots", "move", "0", "usa-0", "usa-0/third"], "slot 0 cannot be moved"),
        (&["slots", "move", "99", "usa-0", "usa-0/third"], "slot 99: the last one is slot 4"),
        (&["slots", "move", "2", "usa-0", "usa-0/second"], "does not hold slot 2"),
        (&["slots", "move", "2", "usa-0/third", "usa-0/fourth"], "holds slot 2 already"),
        (&["slots", "move", "2", "usa-0/third", "europe-0"], "europe-0 is in another data centre"),
        (&["slots", "move", "2", "usa-0/third", "nowhere"], "nowhere"),
        (&["slots", "stay", "2"], "slot 2 is not being moved"),
    ];
    for (arguments, reason) in cases {
        let (done, said) = operate(cluster, at, arguments);
        assert!(!done && said.contains(reason), "{arguments:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_while_it_is_counted_and_read_and_is_forgotten_where_it_was() {
    let cluster = Cluster::with_aggregators(&DCS, &DCS[..1], &[SEATS, 1], &SLOTS);
    let first = cluster.centre(0).await;
    let europe = cluster.centre(1).await;
    let (mut usa, _node) = Split::start(&cluster, first).await;
    ready(europe.http).await;
    count_and_link(&usa).await;
    let views: Vec<SocketAddr> = usa.http.iter().copied().chain([europe.http]).collect();
    until_alike(&views).await;
    refused_moves(&cluster, usa.http[1]);

    // From the third to the first, asked of one that has nothing to do with it, while the slot is counted and read everywhere.
    let is_over = Arc::new(AtomicBool::new(false));
    let counts = [usa.http[1], usa.http[3], europe.http].map(|at| {
        let is_over = is_over.clone();
        tokio::spawn(async move { count_until(at, "search/c", &is_over).await })
    });
    let reads = [usa.http[0], usa.http[1], usa.http[2]].map(|at| {
        let is_over = is_over.clone();
        let reads = Arc::new(AtomicU64::new(0));
        let count = reads.clone();
        (tokio::spawn(async move { read_until(at, "/v1/counters/search/c", "value", &count, &is_over).await }), reads)
    });
    let all_read = async |times: u64| {
        for (_, reads) in &reads {
            let before = reads.load(Ordering::Relaxed);
            until_true("it is read", || reads.load(Ordering::Relaxed) >= before + times).await;
        }
    };
    all_read(10).await;
    assert_eq!((files_of(&cluster, 0), files_of(&cluster, 2)), (vec![3, 4], vec![1, 2]));
    let (done, said) = operate(&cluster, usa.http[1], &["slots", "move", "2", "usa-0/third", "usa-0"]);
    assert!(done && said.contains("slot 2: from search/c, before search/d; held by"), "{said}");
    for &at in &usa.http {
        held_by(at, 2, &["usa-0/fourth", "usa-0"]).await;
    }
    all_read(50).await;
    is_over.store(true, Ordering::Relaxed);
    let mut total = 300;
    for counted in counts {
        total += counted.await.unwrap();
    }
    for (read, _) in reads {
        read.await.unwrap();
    }
    until_views_show(&views, "search/c", total).await;
    until_true("the file is deleted", || files_of(&cluster, 2) == [1]).await;
    assert_eq!(files_of(&cluster, 0), [2, 3, 4]);
    until_alike(&views).await;

    // The present and the former holder know that when they come back.
    usa.kill(2);
    usa.kill(3);
    until_views_show(&[usa.http[0], usa.http[1]], "search/c", total).await;
    usa.kill(0);
    for seat in [0, 2, 3] {
        usa.restart(&cluster, seat).await;
    }
    for &at in &usa.http {
        held_by(at, 2, &["usa-0/fourth", "usa-0"]).await;
    }
    let views: Vec<SocketAddr> = usa.http.iter().copied().chain([europe.http]).collect();
    until_views_show(&views, "search/c", total).await;
    award_and_reset(&usa, 2, &views, total).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_outlives_kills_and_one_that_cannot_end_is_taken_back() {
    let cluster = Cluster::with_aggregators(&DCS[..1], &DCS[..1], &[SEATS], &SLOTS);
    let first = cluster.centre(0).await;
    let (mut usa, _node) = Split::start(&cluster, first).await;
    for (counter, delta) in COUNTED {
        send(usa.http[1], "POST", &format!("/v1/counters/{counter}/add"), json!({ "delta": delta })).await;
    }
    until_views_show(&usa.http, "search/c", 300).await;
    let order = ["slots", "move", "2", "usa-0/third", "usa-0/second"];
    let asked = usa.http[0];
    let moving = || operate(&cluster, asked, &order);
    let begins = |(done, said): (bool, String)| {
        assert!(done && said.contains("moves from usa-0/third to usa-0/second"), "{said}");
    };

    // Both holders are gone, so no aggregator can tell it: the move goes on over a kill of the future holder, until it is cancelled.
    usa.kill(2);
    usa.kill(3);
    begins(moving());
    let (done, said) = moving();
    assert!(!done && said.contains("slot 2 is being moved"), "{said}");
    until_true("a file is made", || files_of(&cluster, 1) == [1, 2, 4] || files_of(&cluster, 1) == [1, 2]).await;
    usa.kill(1);
    usa.restart(&cluster, 1).await;
    assert!(files_of(&cluster, 1).contains(&2));
    until("it says what is missing", async || {
        let (_, listed) = http::get(usa.http[1], "/v1/slots").await?;
        (listed["slots"][2]["moves"]["waits_for"] == "an aggregator that holds it: none is connected").then_some(())
    })
    .await;
    let (done, said) = operate(&cluster, usa.http[1], &["slots", "stay", "2"]);
    assert!(done && said.contains("held by usa-0/third and usa-0/fourth") && !said.contains("moves"), "{said}");
    until_true("the file is deleted", || !files_of(&cluster, 1).contains(&2)).await;

    // Ordered again, it ends when one of them is back; the other one learns of it when it comes back.
    begins(moving());
    usa.restart(&cluster, 3).await;
    held_by(usa.http[0], 2, &["usa-0/fourth", "usa-0/second"]).await;
    until_views_show(&[usa.http[0], usa.http[1], usa.http[3]], "search/c", 300).await;
    assert!(files_of(&cluster, 2).contains(&2), "it does not run");
    let back = ["slots", "move", "2", "usa-0/second", "usa-0/third"];
    until("its connection is missed", async || {
        let (done, said) = operate(&cluster, asked, &back);
        if done {
            assert!(operate(&cluster, asked, &["slots", "stay", "2"]).0);
        }
        said.contains("is not connected here").then_some(())
    })
    .await;
    usa.restart(&cluster, 2).await;
    until_true("the file is deleted", || files_of(&cluster, 2) == [1]).await;
    send(usa.http[2], "POST", "/v1/counters/search/c/add", json!({ "delta": 1 })).await;
    until_views_show(&usa.http, "search/c", 301).await;

    // A backup has it from the present holder.
    let backup = cluster.path("backup");
    let token = cluster.path("token");
    let urls: Vec<String> = usa.http.iter().map(|at| format!("http://{at}")).collect();
    let mut take = vec!["backup", "take", "--whole", "--out", text(&backup), "--token-file", text(&token)];
    take.extend(["--server", &urls[0], "--and", &urls[2]]);
    let (taken, complaint) = tidemark(&take);
    assert!(!taken && complaint.contains("slots [2]"), "{complaint}");
    take.extend(["--and", &urls[1]]);
    assert_eq!(tidemark(&take), (true, String::new()));
    let (verified, complaint) = tidemark(&["backup", "verify", text(&backup)]);
    assert!(verified, "{complaint}");
}
