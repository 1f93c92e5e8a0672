//! The view of operators: a dead node, a ledger without a majority, idle data centres, and disks that are not mounted.

use crate::cluster::{Centre, Cluster, PLAIN, Role, operate, ready};
use crate::http::{self, TOKEN};
use crate::process::{complaint, run, until, until_true};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const DCS: [&str; 3] = ["usa-0", "europe-0", "asia-0"];
/// An increment of a group that is gone is answered within this.
const GONE_MAX: Duration = Duration::from_secs(2);
/// Once that is known, within this.
const KNOWN_GONE_MAX: Duration = Duration::from_millis(500);
/// A group that is not reached for longer may be declared lost.
const LOST_AFTER: Duration = Duration::from_secs(10);

/// A metric's value; of several with labels, that of the first.
async fn metric(at: SocketAddr, name: &str) -> Option<f64> {
    let request = format!(
        "GET /metrics HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: 0\r\n\r\n"
    );
    let text = http::raw(at, request.as_bytes(), false).await?;
    assert!(text.contains("# HELP tidemark_ready"), "{text}");
    let line = text.lines().find(|line| line.split([' ', '{']).next() == Some(name))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// State and reason of one check.
async fn check(at: SocketAddr, name: &str) -> Option<(String, String)> {
    let (_, body) = http::get(at, "/readyz?verbose").await?;
    let check = body["checks"].as_array()?.iter().find(|check| check["name"] == name)?.clone();
    Some((check["state"].as_str()?.to_owned(), check["reason"].as_str().unwrap_or_default().to_owned()))
}

/// Waits until a check has a state and says `word` of it.
async fn until_check(at: SocketAddr, name: &str, state: &str, word: &str) {
    until(&format!("{name} {state}: {word}"), async || {
        let (found, reason) = check(at, name).await?;
        (found == state && reason.contains(word)).then_some(())
    })
    .await;
}

/// Status, code and time of one increment.
async fn add(at: SocketAddr) -> (u16, String, Duration) {
    let start = Instant::now();
    let (status, body) = http::send(at, "POST", &format!("/v1/counters/{PLAIN}/add"), "").await.expect("an answer");
    (status, body["error"]["code"].as_str().unwrap_or_default().to_owned(), start.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_node_is_seen_and_increments_fail_within_2_s() {
    let cluster = Cluster::new(&DCS[..1]);
    let mut centre = cluster.centres().await.remove(0);
    let at = centre.http;
    let mut counted = 0;
    for _ in 0..20 {
        assert_eq!(add(at).await.0, 200);
        counted += 1;
    }
    centre.node.kill();
    let mut in_doubt = 0;
    let mut refused = 0;
    let first = add(at).await;
    for (status, code, took) in [first, add(at).await, add(at).await] {
        assert!(took <= GONE_MAX, "{status} {code} after {took:?}");
        match (status, code.as_str()) {
            (503, "not_serving") => refused += 1,
            (504, "in_doubt") => in_doubt += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(in_doubt <= 1 && refused >= 2, "{in_doubt} in doubt, {refused} refused");
    let (status, code, took) = add(at).await;
    assert!(
        (status, code.as_str()) == (503, "not_serving") && took <= KNOWN_GONE_MAX,
        "{status} {code} after {took:?}"
    );
    until_check(at, "writes", "fails", "usa-0/0").await;
    let (code, body) = http::get(at, "/readyz").await.unwrap();
    assert!(code == 503 && body.to_string().contains("usa-0/0"), "{code} {body}");
    assert_eq!(check(at, "reads").await.map(|check| check.0), Some("degraded".to_owned()));
    assert_eq!(metric(at, "tidemark_ready").await, Some(0.0));
    assert_eq!(metric(at, "tidemark_feed_connected").await, Some(0.0));
    let behind = async || metric(at, "tidemark_view_behind_seconds").await.filter(|seconds| *seconds > 2.0);
    until("a lag that grows while the feed is away", behind).await;
    until_true("one line about the lost node", || centre.aggregator.said().contains("connection lost")).await;
    centre.node = cluster.node(0).await;
    ready(at).await;
    assert_eq!(centre.aggregator.said().matches("connection lost").count(), 1, "{}", centre.aggregator.said());
    assert!(centre.aggregator.said().contains("connected again"));
    until("an increment", async || (add(at).await.0 == 200).then_some(())).await;
    counted += 1;
    until("all that was counted", async || http::reading(at, PLAIN).await.filter(|(value, _)| *value >= counted)).await;
    let (value, _) = http::reading(at, PLAIN).await.unwrap();
    assert!((counted..=counted + in_doubt).contains(&value), "{value} shown, {counted} counted, {in_doubt} in doubt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_without_a_majority_is_seen_and_counting_goes_on() {
    let cluster = Cluster::new(&DCS);
    let mut centres = cluster.centres().await;
    let at = centres[1].http;
    until_check(at, "ledger", "ok", "").await;
    for dc in [0, 2] {
        centres[dc].aggregator.kill();
    }
    until_check(at, "ledger", "degraded", "1 of 3 voters").await;
    assert_eq!(http::get(at, "/readyz").await.map(|(code, _)| code), Some(200), "counting goes on");
    until("an increment", async || (add(at).await.0 == 200).then_some(())).await;
    let (_, status) = http::get(at, "/v1/status").await.unwrap();
    assert_eq!(
        (&status["ledger"]["leader"], &status["ledger"]["voters_reached"]),
        (&Value::Null, &1.into()),
        "{status}"
    );
    assert_eq!(metric(at, "tidemark_ledger_has_leader").await, Some(0.0));
    assert_eq!(metric(at, "tidemark_ledger_voters_reachable").await, Some(1.0));
    let lost = |dc: &str| format!("connection lost peer=aggregator {dc}");
    let said = centres[1].aggregator.said();
    assert!(said.contains(&lost("usa-0")) && said.contains(&lost("asia-0")), "{said}");
    for dc in [0, 2] {
        (centres[dc].aggregator, centres[dc].http) = cluster.start(dc, Role::Aggregator).await;
    }
    until_check(at, "ledger", "ok", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_groups_are_not_silent_and_a_normal_start_warns_of_nothing() {
    let cluster = Cluster::new(&DCS);
    let mut centres = cluster.centres().await;
    let idle = Instant::now();
    while idle.elapsed() < LOST_AFTER + Duration::from_secs(7) {
        for centre in &centres {
            let (_, status) = http::get(centre.http, "/v1/status").await.unwrap();
            assert_eq!(status["silent_groups"], Value::Array(Vec::new()), "nothing is counted, and all are there");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    for centre in &centres {
        for process in [&centre.node, &centre.aggregator] {
            assert!(!process.said().contains(" WARN ") && !process.said().contains(" ERROR "), "{}", process.said());
        }
    }
    let at = centres[0].http;
    let (done, said) = operate(&cluster, at, &["dc", "forget", DCS[1]]);
    assert!(done && said.contains("--yes would be refused now") && said.contains("connected"), "{said}");
    let (done, said) = operate(&cluster, at, &["declare-lost", "usa-0/0"]);
    assert!(done && said.contains("--yes would be refused now") && said.contains("heard of"), "{said}");
    // A group without its node is silent, here and elsewhere, whatever its aggregator does.
    centres[2].node.kill();
    for dc in [2, 0] {
        let silent = async || {
            let (_, status) = http::get(centres[dc].http, "/v1/status").await?;
            let silent = status["silent_groups"].as_array()?.clone();
            silent
                .first()
                .is_some_and(|group| group["group"].as_str().is_some_and(|name| name.starts_with("asia-0/0#")))
                .then_some(())
        };
        until("the silent group", silent).await;
    }
}

/// Waits until a process ends by itself, because of its empty data directory.
async fn ends_for_its_directory(cluster: &Cluster, dc: usize, role: Role) -> String {
    let mut process = cluster.spawn(dc, role);
    let status = process.until_ended().await;
    let said = process.said();
    assert!(!status.success() && said.contains("--fresh") && said.contains("mounted"), "{status} {said}");
    said
}

/// Takes a data directory away, as a disk that is not mounted.
fn unmount(cluster: &Cluster, dc: usize, role: Role) {
    let data = cluster.data(dc, role);
    std::fs::rename(&data, data.with_extension("unmounted")).unwrap();
}

/// The disk is mounted again.
fn mount(cluster: &Cluster, dc: usize, role: Role) {
    let data = cluster.data(dc, role);
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(data.with_extension("unmounted"), &data).unwrap();
}

async fn count(centre: &Centre, times: u64) {
    for _ in 0..times {
        until("an increment", async || (add(centre.http).await.0 == 200).then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_directory_of_a_known_place_is_refused_until_an_operator_says_fresh() {
    let cluster = Cluster::new(&DCS[..1]);
    let mut centre = cluster.centres().await.remove(0);
    count(&centre, 5).await;
    centre.node.kill();
    unmount(&cluster, 0, Role::Node);
    for _ in 0..2 {
        let said = ends_for_its_directory(&cluster, 0, Role::Node).await;
        assert!(said.contains("is registered as usa-0/0#"), "{said}");
    }
    mount(&cluster, 0, Role::Node);
    centre.node = cluster.node(0).await;
    ready(centre.http).await;
    count(&centre, 1).await;
    until("all of it", async || http::reading(centre.http, PLAIN).await.filter(|shown| *shown == (6, 0))).await;

    // The aggregator's: its node knows that there was a ledger.
    centre.aggregator.kill();
    unmount(&cluster, 0, Role::Aggregator);
    for _ in 0..2 {
        ends_for_its_directory(&cluster, 0, Role::Aggregator).await;
    }
    mount(&cluster, 0, Role::Aggregator);
    (centre.aggregator, centre.http) = cluster.start(0, Role::Aggregator).await;
    ready(centre.http).await;
    assert_eq!(http::reading(centre.http, PLAIN).await, Some((6, 0)), "ready means that it is all there");

    centre.node.kill();
    unmount(&cluster, 0, Role::Node);
    (centre.node, _) = cluster.start_fresh(0, Role::Node).await;
    ready(centre.http).await;
    count(&centre, 1).await;
    centre.node.kill();
    centre.node = cluster.node(0).await;
    ready(centre.http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_data_centres_refuse_an_aggregator_that_comes_back_empty() {
    let cluster = Cluster::new(&DCS);
    let mut centres = cluster.centres().await;
    // So long it must have been registered.
    tokio::time::sleep(LOST_AFTER + Duration::from_secs(2)).await;
    centres[2].aggregator.kill();
    unmount(&cluster, 2, Role::Aggregator);
    ends_for_its_directory(&cluster, 2, Role::Aggregator).await;
    mount(&cluster, 2, Role::Aggregator);
    (centres[2].aggregator, centres[2].http) = cluster.start(2, Role::Aggregator).await;
    ready(centres[2].http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_directory_of_something_else_is_refused() {
    let cluster = Cluster::new(&DCS[..1]);
    for role in [Role::Node, Role::Aggregator] {
        let data = cluster.data(0, role);
        std::fs::create_dir_all(&data).unwrap();
        std::fs::write(data.join("thesis.tex"), b"").unwrap();
        let arguments = cluster.arguments(0, role);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let said = complaint(&run(&arguments));
        assert!(said.contains("thesis.tex") && said.contains("empty directory"), "{said}");
        assert_eq!(std::fs::read_dir(&data).unwrap().count(), 1, "nothing was written");
    }
}
