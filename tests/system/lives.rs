//! Counters begin again: everywhere, whatever comes late, with their awards; and expire.

use crate::cluster::{Cluster, PLAIN, QUERIES, Role, arm, awards, until_views_show};
use crate::http;
use crate::process::{run, until};
use serde_json::{Value, json};
use std::net::SocketAddr;

const DCS: [&str; 3] = ["usa-0", "europe-0", "asia-0"];

async fn count(at: SocketAddr, counter: &str, delta: u64) {
    let path = format!("/v1/counters/{counter}/add");
    let body = json!({ "delta": delta }).to_string();
    until("an increment", async || http::send(at, "POST", &path, &body).await.filter(|(code, _)| *code < 300)).await;
}

async fn reset(at: SocketAddr, counter: &str, if_generation: u64) -> Value {
    let body = json!({ "if_generation": if_generation }).to_string();
    let path = format!("/v1/counters/{counter}/reset");
    until("a reset", async || http::send(at, "POST", &path, &body).await.filter(|(code, _)| *code == 200)).await.1
}

async fn life(at: SocketAddr, counter: &str) -> Value {
    until("a life", async || http::get(at, &format!("/v1/counters/{counter}/life")).await).await.1
}

/// Until every group of the data centre has heard of the generation.
async fn until_heard(at: SocketAddr, counter: &str, generation: u64) {
    until("groups that have heard", async || {
        let (_, life) = http::get(at, &format!("/v1/counters/{counter}/life")).await?;
        (life["generation"] == generation && life["waits_for"] == json!([])).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_that_was_reset_begins_at_nothing_everywhere_and_nothing_late_revives_it() {
    let cluster = Cluster::new(&DCS);
    let mut centres = cluster.centres().await;
    let http: Vec<SocketAddr> = centres.iter().map(|centre| centre.http).collect();
    for (dc, &at) in http.iter().enumerate() {
        count(at, PLAIN, 10 + dc as u64).await;
    }
    until_views_show(&http, PLAIN, 33).await;
    // Its counts from now on may reach the others only after the reset, and its node hears of that last.
    count(http[2], PLAIN, 1_000).await;
    centres[2].aggregator.kill();
    let begun = reset(http[0], PLAIN, 0).await;
    assert_eq!((&begun["generation"], &begun["waits_for"]), (&1.into(), &json!([])));
    assert!(begun["was"] == 33 || begun["was"] == 1_033, "{begun}");
    count(http[0], PLAIN, 1).await;
    // Said again it is the same reset; of another generation it is none.
    assert_eq!(reset(http[1], PLAIN, 0).await["was"], Value::Null);
    let (code, body) =
        http::send(http[0], "POST", &format!("/v1/counters/{PLAIN}/reset"), r#"{"if_generation":7}"#).await.unwrap();
    assert_eq!((code, &body["error"]["code"]), (409, &"generation".into()));
    until_heard(http[1], PLAIN, 1).await;
    count(http[1], PLAIN, 2).await;

    (centres[2].aggregator, centres[2].http) = cluster.start(2, Role::Aggregator).await;
    let http: Vec<SocketAddr> = centres.iter().map(|centre| centre.http).collect();
    until_heard(http[2], PLAIN, 1).await;
    count(http[2], PLAIN, 4).await;
    until_views_show(&http, PLAIN, 7).await;
    // It stays so, also when nodes come back from their disks.
    for dc in [0, 2] {
        centres[dc].node.kill();
        centres[dc].node = cluster.node(dc).await;
    }
    count(http[2], PLAIN, 8).await;
    until_views_show(&http, PLAIN, 15).await;
}

fn shell(at: SocketAddr, arguments: &[&str]) -> (bool, String) {
    let server = format!("http://{at}");
    let token = http::TOKEN;
    let output = run(&[&["counter"], arguments, &["--server", &server, "--token", token]].concat());
    let text = if output.status.success() { &output.stdout } else { &output.stderr };
    (output.status.success(), String::from_utf8_lossy(text).trim().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn milestones_that_are_not_awarded_are_armed_anew_and_a_removed_counter_has_none() {
    let cluster = Cluster::new(&DCS[..1]);
    let centre = cluster.centres().await.remove(0);
    let at = centre.http;
    arm(at, QUERIES, &[5, 20]).await;
    for _ in 0..6 {
        count(at, QUERIES, 1).await;
    }
    until("an award", async || awards(at, QUERIES).await.filter(|awards| awards.len() == 1)).await;
    until_views_show(&[at], QUERIES, 6).await;
    assert_eq!(
        shell(at, &["reset", QUERIES, "--yes"]),
        (true, "generation 1 begins at 0: it stood at 6 here".to_owned())
    );
    assert_eq!(shell(at, &["show", QUERIES]), (true, "generation 1, never expires".to_owned()));
    for _ in 0..22 {
        count(at, QUERIES, 1).await;
    }
    let all = until("another award", async || awards(at, QUERIES).await.filter(|awards| awards.len() == 2)).await;
    assert_eq!((&all[0]["at"], &all[1]["at"], &all[1]["first"]), (&5.into(), &20.into(), &20.into()));
    until_views_show(&[at], QUERIES, 22).await;

    let refused = shell(at, &["remove", QUERIES, "--if-generation", "5", "--yes"]);
    assert!(!refused.0 && refused.1.contains("is in generation 1, not 5"), "{refused:?}");
    let define = async || http::send(at, "PUT", &format!("/v1/counters/{QUERIES}/milestones"), r#"{"at":[30]}"#).await;
    until("a definition", async || define().await.filter(|(code, _)| *code == 200)).await;
    let removed = shell(at, &["remove", QUERIES, "--if-generation", "1", "--yes"]);
    assert_eq!(removed, (true, "generation 2 begins at 0: it stood at 22 here".to_owned()));
    let again = shell(at, &["remove", QUERIES, "--if-generation", "1", "--yes"]);
    assert_eq!(again, (true, "generation 2 begins at 0: it was carried out before".to_owned()));
    let (_, milestones) = http::get(at, &format!("/v1/counters/{QUERIES}/milestones")).await.unwrap();
    let states: Vec<&str> = milestones["milestones"]
        .as_array()
        .unwrap()
        .iter()
        .map(|milestone| milestone["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["awarded", "awarded"]);
    count(at, QUERIES, 40).await;
    until_views_show(&[at], QUERIES, 40).await;
    assert_eq!(awards(at, QUERIES).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_expires_once_its_time_has_come() {
    let cluster = Cluster::new(&DCS[..1]);
    let centre = cluster.centres().await.remove(0);
    let at = centre.http;
    count(at, PLAIN, 5).await;
    until_views_show(&[at], PLAIN, 5).await;
    let told = shell(at, &["expire", PLAIN, "--in", "1h"]);
    assert!(told.0 && told.1.starts_with("generation 0, expires at "), "{told:?}");
    assert_eq!(shell(at, &["expire", PLAIN, "--never"]), (true, "generation 0, never expires".to_owned()));
    assert!(shell(at, &["expire", PLAIN, "--in", "1s"]).0);
    until("nothing", async || http::reading(at, PLAIN).await.filter(|reading| *reading == (0, 0))).await;
    assert_eq!(
        (&life(at, PLAIN).await["generation"], &life(at, PLAIN).await["expires_unix_ms"]),
        (&1.into(), &Value::Null)
    );
    count(at, PLAIN, 2).await;
    until_views_show(&[at], PLAIN, 2).await;
    for (wrong, says) in [
        (&["expire", PLAIN, "--in", "0s"][..], "a number from 1 to"),
        (&["reset", "nobody/x"], "unknown namespace \"nobody\""),
        (&["expire", PLAIN], "--in <PERIOD>"),
    ] {
        let (good, text) = shell(at, wrong);
        assert!(!good && text.contains(says), "{wrong:?}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_begun_again_by_a_slip() {
    let cluster = Cluster::new(&DCS[..1]);
    let centre = cluster.centres().await.remove(0);
    let at = centre.http;
    let send = async |method: &str, path: &str, body: &str| {
        until("an answer", async || http::send(at, method, path, body).await.filter(|(code, _)| *code < 500)).await
    };
    for (method, verb, body) in [("DELETE", "", ""), ("POST", "/reset", "{}"), ("PUT", "/life", r#"{"expires_s":60}"#)]
    {
        let (code, answer) = send(method, &format!("/v1/counters/search/ghost{verb}"), body).await;
        assert_eq!((code, &answer["error"]["code"]), (404, &"unknown_counter".into()), "{method} {verb}");
    }
    assert_eq!(life(at, "search/ghost").await["generation"], 0);
    // A counter of a moment ago is known, also before the view shows it; said again it is the same request, wherever it says so.
    count(at, "search/young", 7).await;
    let (code, begun) = send("DELETE", "/v1/counters/search/young?if_generation=0", "").await;
    assert_eq!((code, &begun["generation"]), (200, &1.into()), "{begun}");
    count(at, "search/young", 2).await;
    let (code, again) = send("DELETE", "/v1/counters/search/young", r#"{"if_generation":0}"#).await;
    assert_eq!((code, &again["was"]), (200, &Value::Null), "{again}");
    let (_, both) = send("POST", "/v1/counters/search/young/reset?if_generation=0", r#"{"if_generation":1}"#).await;
    assert_eq!(both["error"]["code"], "if_generation");
    let (_, other) = send("PUT", "/v1/counters/search/young/life?if_generation=0", r#"{"expires_s":60}"#).await;
    assert_eq!(other["error"]["code"], "generation");
    until_views_show(&[at], "search/young", 2).await;
    // The shell shows what would be lost, and does nothing without a word.
    let shown = shell(at, &["remove", "search/young"]);
    assert!(shown.0 && shown.1.contains("stands at 2 here, in generation 1"), "{shown:?}");
    assert!(shown.1.ends_with("Nothing was done: repeat it with --yes."), "{shown:?}");
    assert_eq!(life(at, "search/young").await["generation"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_never_counted_is_refused_and_one_that_did_can_be_removed_at_once() {
    let cluster = Cluster::new(&DCS[..1]);
    let centre = cluster.centres().await.remove(0);
    let at = centre.http;
    let ghost = "search/ghost";
    let path = format!("/v1/counters/{ghost}");
    let reset = format!("{path}/reset");
    let life = format!("{path}/life");
    count(at, PLAIN, 1).await;
    for (method, path, body) in [("DELETE", &path, ""), ("POST", &reset, "{}"), ("PUT", &life, r#"{"expires_s": 60}"#)]
    {
        let refused = async || http::send(at, method, path, body).await.filter(|(code, _)| *code != 503);
        let (code, said) = until("an answer", refused).await;
        assert_eq!((code, &said["error"]["code"]), (404, &"unknown_counter".into()), "{method} {path}: {said}");
    }
    let used = async || http::get(at, "/v1/status").await.unwrap().1["view"]["lives"]["used"].clone();
    assert_eq!(used().await, 0);
    // No view has heard of the increment yet when its counter is removed: it is all the same.
    for generation in 1..=10 {
        count(at, ghost, 6).await;
        let (code, begun) = http::send(at, "DELETE", &path, "").await.unwrap();
        assert_eq!((code, &begun["generation"], &begun["waits_for"]), (200, &generation.into(), &json!([])), "{begun}");
    }
    let (code, said) = http::send(at, "DELETE", &path, "").await.unwrap();
    assert_eq!((code, &said["error"]["code"]), (404, &"unknown_counter".into()), "{said}");
    let (code, begun) = http::send(at, "DELETE", &format!("{path}?if_generation=9"), "").await.unwrap();
    assert_eq!((code, &begun["generation"]), (200, &10.into()), "it was carried out before: {begun}");
    assert_eq!(used().await, 1);
    count(at, ghost, 4).await;
    until_views_show(&[at], ghost, 4).await;
}
