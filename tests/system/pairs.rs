//! Data centres with two aggregators, and the voters of the ledger: either of a pair may be killed while counting, readers and groups move
//! to the other; a view that is gone is set aside; a voter is replaced while the cluster counts.

use crate::cluster::{Centre, Cluster, PLAIN, QUERIES, Role, arm, awards, operate, ready};
use crate::http;
use crate::load::{Counted, Load};
use crate::process::{Process, run, until};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidemark_client::{Client, Site};
use tidemark_server::names::parse_counter;
use tokio::task::JoinHandle;

const DCS: [&str; 3] = ["usa-0", "europe-0", "asia-0"];
/// The data centre with two aggregators. Its first one votes; the ledger is led from elsewhere.
const PAIR: usize = 1;
const SECOND: &str = "europe-0/second";
const MILESTONES: [u64; 3] = [800, 1_600, 2_400];
/// The longest time without an answer that a reader may see when one of the pair is killed. On a machine with nothing else to do it is
/// some 1.2 s.
const READ_GAP_MAX: Duration = Duration::from_secs(6);
/// In which what a data centre counts is seen abroad after one of its pair was killed. On such a machine: under 3 s.
const ABROAD_MAX: Duration = Duration::from_secs(10);

/// Reads one counter all the time, at the first of a pair and then at the other.
struct Reader {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Duration>,
}

impl Reader {
    async fn start(cluster: &Cluster) -> Reader {
        let site = Site {
            dc: cluster.name(PAIR).to_owned(),
            nodes: vec![cluster.nodes[PAIR].into()],
            aggregator: Some(cluster.aggregators[PAIR].into()),
        };
        let client = Client::builder().credentials(cluster.client_credentials()).site(site);
        let client = client.aggregator(cluster.name(PAIR), cluster.second(PAIR)).connect().await.unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(read_until(client, stop.clone()));
        Reader { stop, task }
    }

    /// The longest time without an answer.
    async fn finish(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// A shown value never goes back, also when another aggregator shows it.
async fn read_until(client: Client, stop: Arc<AtomicBool>) -> Duration {
    let name = parse_counter(PLAIN).unwrap();
    let mut shown = 0;
    let mut answered = None;
    let mut gap = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        if let Ok(reading) = client.get(&name).await {
            assert!(reading.up >= shown, "{} was shown after {shown}", reading.up);
            shown = reading.up;
            gap = answered.map_or(gap, |at: Instant| gap.max(at.elapsed()));
            answered = Some(Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    client.close().await.unwrap();
    gap
}

/// How much of a counter a data centre has counted, as another one knows.
async fn counted_there(http: SocketAddr) -> Option<u64> {
    let (_, body) = http::get(http, &format!("/v1/cluster?counter={QUERIES}")).await?;
    body["dcs"][PAIR]["counted"].as_u64()
}

/// How long it takes until more of what the pair's data centre counts is seen abroad than before it could have been told by the one that
/// was killed.
async fn until_heard_abroad(http: SocketAddr) -> Duration {
    let killed = Instant::now();
    let before = until("a cluster", async || counted_there(http).await).await;
    // Increments that were under way when it was killed come at once.
    until("more counted", async || counted_there(http).await.filter(|&counted| counted > before + 20)).await;
    killed.elapsed()
}

async fn until_awarded(http: SocketAddr, count: usize) -> Vec<Value> {
    until("awards", async || awards(http, QUERIES).await.filter(|awards| awards.len() >= count)).await
}

async fn until_total(http: SocketAddr, total: u64) {
    until("a total", async || http::reading(http, QUERIES).await.filter(|(value, pending)| value + pending >= total))
        .await;
}

/// Runs `tidemark ledger` against a process.
fn ledger(cluster: &Cluster, http: SocketAddr, arguments: &[&str]) -> (bool, String) {
    operate(cluster, http, &[&["ledger", "--json"], arguments].concat())
}

async fn loads(cluster: &Cluster, dcs: &[usize]) -> Vec<Load> {
    let mut loads = Vec::new();
    for &dc in dcs {
        loads.push(Load::start(cluster.client(&[dc]).await, 1));
    }
    loads
}

async fn finish(loads: Vec<Load>) -> Counted {
    let mut counted = Vec::new();
    for load in loads {
        counted.push(load.finish().await);
    }
    Counted::sum(counted)
}

/// Each n-th was told that it is, once, and every aggregator knows the same awards.
async fn check_awards(counted: &Counted, views: &[SocketAddr], milestones: &[u64]) {
    let exact: Vec<_> = milestones.iter().map(|&at| (at, at)).collect();
    assert_eq!(counted.milestones, exact);
    assert!(counted.numbers.values().all(|times| *times == 1), "{:?}", counted.numbers);
    let known = until_awarded(views[0], milestones.len()).await;
    assert_eq!(known.len(), milestones.len());
    for &view in &views[1..] {
        assert_eq!(until_awarded(view, milestones.len()).await, known, "the same at every aggregator");
    }
}

/// The cluster with its pair, all ready.
async fn start_all(cluster: &Cluster) -> (Vec<Centre>, Process, SocketAddr) {
    let (second, http) = cluster.start_second(PAIR).await;
    let centres = cluster.centres().await;
    ready(http).await;
    (centres, second, http)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_aggregator_of_a_pair_may_be_killed_while_counting_and_around_a_milestone() {
    let cluster = Cluster::with_pair(&DCS, &DCS, PAIR);
    let (mut centres, mut second, mut second_http) = start_all(&cluster).await;
    arm(centres[0].http, QUERIES, &MILESTONES).await;
    let loads = loads(&cluster, &[0, 1, 2]).await;
    let reader = Reader::start(&cluster).await;
    until_total(centres[0].http, MILESTONES[0] / 2).await;
    centres[PAIR].aggregator.kill();
    let abroad = until_heard_abroad(centres[0].http).await;
    until_awarded(second_http, 1).await;
    (centres[PAIR].aggregator, centres[PAIR].http) = cluster.start(PAIR, Role::Aggregator).await;
    ready(centres[PAIR].http).await;
    until_total(centres[0].http, MILESTONES[1] - 100).await;
    second.kill();
    until_awarded(centres[PAIR].http, 2).await;
    (second, second_http) = cluster.start_second(PAIR).await;
    ready(second_http).await;
    // The first again, just before the last milestone.
    until_total(centres[0].http, MILESTONES[2] - 60).await;
    centres[PAIR].aggregator.kill();
    until_awarded(second_http, 3).await;
    (centres[PAIR].aggregator, centres[PAIR].http) = cluster.start(PAIR, Role::Aggregator).await;
    ready(centres[PAIR].http).await;
    let counted = finish(loads).await;
    let gap = reader.finish().await;
    let views: Vec<SocketAddr> = centres.iter().map(|centre| centre.http).chain([second_http]).collect();
    counted.until_shown(&views).await;
    check_awards(&counted, &views, &MILESTONES).await;
    println!(
        "a reader waited {gap:?} at most; what was counted was heard of abroad {abroad:?} after the first was killed"
    );
    assert!(gap < READ_GAP_MAX, "a reader waited {gap:?}");
    assert!(abroad < ABROAD_MAX, "what was counted was not heard of abroad for {abroad:?}");
    drop(second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arming_waits_for_both_of_a_pair_until_one_that_is_gone_is_set_aside() {
    let cluster = Cluster::with_pair(&DCS, &DCS, PAIR);
    let (centres, mut second, _) = start_all(&cluster).await;
    let http = centres[0].http;
    let (done, said) = ledger(&cluster, http, &["set-aside", SECOND]);
    assert!(!done && said.contains("it is connected: end its process first"), "{said}");
    let (done, said) = ledger(&cluster, http, &["set-aside", "usa-0"]);
    assert!(!done && said.contains("not a view of a pair"), "{said}");
    let load = Load::start(cluster.client(&[PAIR]).await, 1);
    load.until_further(50).await;
    second.kill();
    let path = format!("/v1/counters/{QUERIES}/milestones");
    let defined = http::send(http, "PUT", &path, r#"{"at":[5000]}"#).await.unwrap();
    assert_eq!(defined.0, 200, "{}", defined.1);
    let waits = async || {
        let (_, list) = http::get(http, &path).await?;
        let milestone = list["milestones"][0].clone();
        let only = milestone["state"] == "arming" && milestone["waits_for"] == serde_json::json!([SECOND]);
        only.then_some(())
    };
    until("only the second's view is waited for", waits).await;
    until("the second is set aside", async || ledger(&cluster, http, &["set-aside", SECOND]).0.then_some(())).await;
    until("an armed milestone", async || {
        let (_, list) = http::get(http, &path).await?;
        (list["milestones"][0]["state"] == "armed").then_some(())
    })
    .await;
    let (second, second_http) = cluster.start_second(PAIR).await;
    ready(second_http).await;
    until("arming waits for it again", async || {
        let (_, said) = ledger(&cluster, http, &["members"]);
        let members: Value = serde_json::from_str(&said).ok()?;
        let is_second = |member: &&Value| member["aggregator"] == SECOND;
        members["members"].as_array()?.iter().find(is_second)?["view"].as_bool().filter(|view| *view)
    })
    .await;
    let counted = Counted::sum([load.finish().await]);
    let views: Vec<SocketAddr> = centres.iter().map(|centre| centre.http).chain([second_http]).collect();
    counted.until_shown(&views).await;
    drop(second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_is_replaced_while_counting_and_the_old_one_is_then_gone_for_good() {
    let all = ["usa-0", "europe-0", "asia-0", "sa-0"];
    let cluster = Cluster::with_pair(&all, &all[..3], PAIR);
    let (mut centres, second, second_http) = start_all(&cluster).await;
    let http = centres[0].http;
    arm(http, QUERIES, &MILESTONES[..2]).await;
    let loads = loads(&cluster, &[0, 1, 2, 3]).await;
    until_total(http, MILESTONES[0] / 2).await;
    let (done, said) = ledger(&cluster, centres[2].http, &["replace-voter", "europe-0", "sa-0"]);
    assert!(!done && said.contains("usa-0 leads the ledger"), "{said}");
    let (done, said) = ledger(&cluster, http, &["replace-voter", "sa-0", "asia-0"]);
    assert!(!done && said.contains("sa-0 does not vote"), "{said}");
    let (done, said) = ledger(&cluster, http, &["replace-voter", "asia-0", SECOND]);
    assert!(!done && said.contains("one of its aggregators votes"), "{said}");
    until("a voter is replaced", async || {
        ledger(&cluster, http, &["replace-voter", "europe-0", "sa-0"]).0.then_some(())
    })
    .await;
    let (_, said) = ledger(&cluster, http, &["members"]);
    let members: Value = serde_json::from_str(&said).unwrap();
    let votes = |member: &Value| member["votes"].as_bool().unwrap().then(|| member["aggregator"].clone());
    let voters: Vec<Value> = members["members"].as_array().unwrap().iter().filter_map(votes).collect();
    assert_eq!(voters, ["usa-0", "asia-0", "sa-0"]);
    centres[PAIR].aggregator.kill();
    until_awarded(http, 1).await;
    // Another voter away: the new one makes the majority.
    centres[2].aggregator.kill();
    let path = format!("/v1/counters/{PLAIN}/milestones");
    let defined = http::send(http, "PUT", &path, r#"{"at":[4000000000]}"#).await.unwrap();
    assert_eq!(defined.0, 200, "{}", defined.1);
    (centres[2].aggregator, centres[2].http) = cluster.start(2, Role::Aggregator).await;
    until_awarded(http, 2).await;
    let counted = finish(loads).await;
    let views = [http, second_http, centres[2].http, centres[3].http];
    counted.until_shown(&views).await;
    check_awards(&counted, &views, &MILESTONES[..2]).await;
    drop(second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_are_read_by_their_version_at_either_aggregator() {
    let cluster = Cluster::with_pair(&DCS, &DCS, PAIR);
    let (centres, second, second_http) = start_all(&cluster).await;
    let path = format!("/v1/counters/{PLAIN}");
    let first_http = centres[PAIR].http;
    let mut version = String::new();
    for n in 1..=10 {
        let add = async || http::send(first_http, "POST", &format!("{path}/add"), r#"{"value":true}"#).await.unwrap();
        let (status, added) = add().await;
        assert_eq!((status, &added["value"], &added["pending"]), (200, &n.into(), &0.into()), "{added}");
        version = added["version"].as_str().expect("a version").to_owned();
        let (status, read) = http::get(second_http, &format!("{path}?at_least={version}")).await.unwrap();
        assert_eq!((status, &read["value"]), (200, &n.into()), "{read}");
    }
    let (status, elsewhere) = http::get(centres[0].http, &format!("{path}?at_least={version}")).await.unwrap();
    assert_eq!((status, &elsewhere["error"]["code"]), (409, &"version_elsewhere".into()), "{elsewhere}");
    // The command line reads what it added.
    let url = format!("http://{first_http}");
    let token = cluster.path("token");
    let remote = ["--server", &url, "--token-file", token.to_str().unwrap()];
    for n in 11..=16 {
        let added = run(&[&["add", PLAIN], &remote[..]].concat());
        assert_eq!(String::from_utf8_lossy(&added.stdout), format!("counted; {PLAIN} is {n}\n"));
        let read = run(&[&["get", PLAIN], &remote[..]].concat());
        assert_eq!(String::from_utf8_lossy(&read.stdout), format!("{PLAIN} {n}\n"));
    }
    drop(second);
}
