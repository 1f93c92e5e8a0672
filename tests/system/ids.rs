//! Increments with ids over HTTP: sent again and again through every aggregator of the cluster while nodes and aggregators are killed,
//! each counts once; an id of which its owner cannot be asked is in doubt, and the answer says where to ask.

use crate::cluster::{Centre, Cluster, PLAIN, Role, ready, until_views_show};
use crate::http;
use crate::process::{Process, until};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::sleep;

const DCS: [&str; 3] = ["usa-0", "europe-0", "asia-0"];
/// The data centre with two aggregators.
const PAIR: usize = 1;
const IDS: u64 = 120;
/// With one of this number of ids a process is killed.
const DEATH_EVERY: u64 = 12;

/// Where the aggregators answer at present: of the data centres, and the second one of the pair.
type Addresses = Vec<Mutex<SocketAddr>>;

fn path() -> String {
    format!("/v1/counters/{PLAIN}/add")
}

async fn add(at: SocketAddr, body: &Value) -> Option<(u16, Value)> {
    http::send(at, "POST", &path(), &body.to_string()).await
}

fn code_of(answer: &Value) -> &str {
    answer["error"]["code"].as_str().unwrap_or_default()
}

/// Sends it to one aggregator after the other until one says that it counts, and then `again` times more.
async fn send_until_counted(addresses: &Addresses, order: Vec<usize>, body: &Value, again: usize) {
    let told = AtomicUsize::new(0);
    let turn = AtomicUsize::new(0);
    let what = format!("{body} to be counted");
    until(&what, async || {
        let at = *addresses[order[turn.fetch_add(1, Relaxed) % order.len()]].lock().unwrap();
        let (code, answer) = add(at, body).await.unwrap_or_default();
        assert!(matches!(code, 0 | 200 | 202 | 503 | 504), "{code}: {answer}");
        told.fetch_add(usize::from(code == 200 || code == 202), Relaxed);
        (told.load(Relaxed) > again).then_some(())
    })
    .await;
}

/// Kills a node or an aggregator of a data centre, and starts it again.
async fn die(cluster: &Cluster, centre: &mut Centre, dc: usize, addresses: &Addresses, node: bool) {
    if node {
        centre.node.kill();
        centre.node = cluster.node(dc).await;
    } else {
        centre.aggregator.kill();
        (centre.aggregator, centre.http) = cluster.start(dc, Role::Aggregator).await;
        *addresses[dc].lock().unwrap() = centre.http;
    }
}

async fn start_all(cluster: &Cluster) -> (Vec<Centre>, Process, Addresses) {
    let (second, http) = cluster.start_second(PAIR).await;
    let centres = cluster.centres().await;
    ready(http).await;
    let addresses = centres.iter().map(|centre| centre.http).chain([http]).map(Mutex::new).collect();
    (centres, second, addresses)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_counts_once_through_any_aggregator_while_processes_are_killed() {
    let cluster = Cluster::with_pair(&DCS, &DCS, PAIR);
    let (mut centres, _second, addresses) = start_all(&cluster).await;
    let seed = rand::random();
    println!("seed {seed}");
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    let mut sum = 0;
    for n in 0..IDS {
        let delta = dice.random_range(1..100_u64);
        sum += delta;
        let body = json!({"delta": delta, "id": format!("pay-{n}")});
        let mut order = || (0..6).map(|_| dice.random_range(0..addresses.len())).collect::<Vec<_>>();
        let one = order();
        let other = order();
        let again = dice.random_range(0..4);
        let victim = dice.random_range(0..DCS.len());
        let node = dice.random_ratio(1, 2);
        let wait = Duration::from_millis(dice.random_range(0..20));
        let death = async {
            if n % DEATH_EVERY == DEATH_EVERY - 1 {
                sleep(wait).await;
                die(&cluster, &mut centres[victim], victim, &addresses, node).await;
            }
        };
        let sent = async {
            tokio::join!(
                send_until_counted(&addresses, one, &body, again),
                send_until_counted(&addresses, other, &body, 0)
            )
        };
        tokio::join!(sent, death);
    }
    let views: Vec<SocketAddr> = addresses.iter().map(|at| *at.lock().unwrap()).collect();
    until_views_show(&views, PLAIN, sum).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_stands_for_one_increment_and_its_owner_is_named_where_it_is_away() {
    let cluster = Cluster::with_pair(&DCS, &DCS, PAIR);
    let (mut centres, _second, addresses) = start_all(&cluster).await;
    let at: Vec<SocketAddr> = addresses.iter().map(|at| *at.lock().unwrap()).collect();
    // Any aggregator says what the first said, and refuses what is something else.
    let body = json!({"delta": 3, "id": "a", "home": DCS[PAIR]});
    until("the first", async || add(at[0], &body).await.filter(|(code, _)| *code == 200)).await;
    for &at in &at {
        assert_eq!(add(at, &body).await.unwrap(), (200, json!({"place": "counted"})));
        for other in [json!({"delta": 4}), json!({"delta": 3, "session": "x"})] {
            let mut other = other;
            (other["id"], other["home"]) = (json!("a"), json!(DCS[PAIR]));
            let (code, answer) = add(at, &other).await.unwrap();
            assert_eq!((code, code_of(&answer)), (422, "id_reused"), "{answer}");
        }
    }
    let (code, answer) = add(at[0], &json!({"id": "b", "home": "mars-0"})).await.unwrap();
    assert_eq!((code, code_of(&answer)), (400, "home"), "{answer}");
    let (code, answer) = add(at[0], &json!({"id": "b", "first_sent": 1_700_000_000})).await.unwrap();
    assert_eq!((code, code_of(&answer)), (400, "id_too_old"), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("86400 s"), "{answer}");
    // Many lines in one request, sent through all of them.
    let lines: Vec<Value> = (0..50).map(|n| json!({"counter": PLAIN, "id": format!("line-{n}")})).collect();
    for (turn, &at) in at.iter().enumerate() {
        let (_, answer) = http::send(at, "POST", "/v1/add", &json!(lines).to_string()).await.unwrap();
        let known = answer["known"].as_u64().unwrap_or(0);
        assert_eq!((&answer["added"], &answer["errors"], known > 0), (&json!(50), &json!([]), turn > 0), "{answer}");
        assert!(turn == 0 || known == 50, "each line counted before: {answer}");
    }
    until_views_show(&at, PLAIN, 53).await;
    // The owner is away: no other group counts it, and the error names the owner.
    centres[PAIR].node.kill();
    let away = json!({"id": "c", "home": DCS[PAIR]});
    let (code, answer) = add(at[0], &away).await.unwrap();
    assert_eq!((code, code_of(&answer)), (504, "in_doubt"), "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains(DCS[PAIR]) && message.contains("same id"), "{message}");
    centres[PAIR].node = cluster.node(PAIR).await;
    until("the id to be counted", async || add(at[2], &away).await.filter(|(code, _)| *code == 200)).await;
    until_views_show(&at, PLAIN, 54).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_is_one_whatever_is_said_of_its_counters() {
    let cluster = Cluster::new(&DCS[..1]);
    let centres = cluster.centres().await;
    let at = centres[0].http;
    let hop = async |counters: Value| {
        let body = json!({"home": DCS[0], "id": "visit-1", "counters": counters}).to_string();
        let issued = until("a token", async || http::send(at, "POST", "/v1/hops", &body).await.filter(|a| a.0 == 200));
        let token = issued.await.1["hop"].as_str().unwrap().to_owned();
        let body = json!({ "hop": token }).to_string();
        // 503 says that nothing was counted: a busy machine answers it, and the same request may be sent again.
        let count = async || http::send(at, "POST", "/v1/hops/count", &body).await.filter(|(code, _)| *code != 503);
        let (code, answer) = until("an answer", count).await;
        (code, code_of(&answer).to_owned())
    };
    let ok = (200, String::new());
    assert_eq!(hop(json!(["search/a", "search/b"])).await, ok);
    assert_eq!(hop(json!(["search/b", "search/a"])).await, ok, "in another order they are the same");
    assert_eq!(hop(json!(["search/a"])).await, (422, "id_reused".to_owned()));
    assert_eq!(hop(json!(["search/a", "search/b", "search/c"])).await, (422, "id_reused".to_owned()));
    for (counter, total) in [("search/a", 1), ("search/b", 1)] {
        until_views_show(&[at], counter, total).await;
    }
}
