//! The voters of the ledger change while the cluster counts. After a data centre was given up, another one votes, and the ledger goes on
//! when one of the old voters is gone too.

use crate::cluster::{Centre, Cluster, QUERIES, Role, arm, awards, leader, operate};
use crate::http;
use crate::load::{Counted, Load};
use crate::process::until;
use serde_json::Value;
use std::net::SocketAddr;

const DCS: [&str; 4] = ["usa-0", "europe-0", "asia-0", "sa-0"];
/// A data centre with a second aggregator, which does not run.
const PAIR: usize = 1;
const GIVEN_UP: usize = 2;
const SPARE: usize = 3;
const MILESTONE: u64 = 600;
/// The second milestone is so far above what is counted then.
const FURTHER: u64 = 2_000;

/// Runs `tidemark ledger` against a process.
fn ledger(cluster: &Cluster, at: SocketAddr, arguments: &[&str]) -> (bool, String) {
    operate(cluster, at, &[&["ledger"], arguments].concat())
}

/// An order that is not refused for ever is carried out at last.
async fn until_done(cluster: &Cluster, at: SocketAddr, arguments: &[&str]) -> String {
    until("a change of the voters", async || {
        let (done, said) = ledger(cluster, at, arguments);
        done.then_some(said)
    })
    .await
}

/// The voters as one process knows them, and what it warns of; `None` while they change: until that is over, those of before must answer too.
async fn voters(at: SocketAddr) -> Option<(Vec<String>, Option<String>)> {
    let (_, status) = http::get(at, "/v1/status").await?;
    let ledger = &status["ledger"];
    if ledger["changing"].as_bool()? {
        return None;
    }
    let names = ledger["voters"].as_array()?.iter().map(|name| name.as_str().unwrap().to_owned());
    Some((names.collect(), ledger["warning"].as_str().map(str::to_owned)))
}

async fn until_voters(at: SocketAddr, expected: &[&str]) -> Option<String> {
    until("these voters", async || voters(at).await.filter(|(names, _)| names == expected)).await.1
}

async fn check_refusals(cluster: &Cluster, centres: &[Centre]) {
    let at = centres[0].http;
    for (arguments, says) in [
        (&["add-voter", "europe-0"][..], "europe-0 votes already"),
        (&["add-voter", "europe-0/second"], "europe-0 votes already in that data centre"),
        (&["add-voter", "nowhere"], "no aggregator \"nowhere\""),
        (&["add-voter", "sa-0/second"], "sa-0/second is no member of the ledger"),
        (&["replace-voter", "europe-0", "europe-0/second"], "europe-0/second cannot be reached"),
        (&["remove-voter", "sa-0"], "sa-0 does not vote"),
        (&["add-voter"], "<JOINS>"),
    ] {
        let (done, said) = ledger(cluster, at, arguments);
        assert!(!done && said.contains(says), "{arguments:?}: {said}");
    }
    let (done, said) = ledger(cluster, centres[GIVEN_UP].http, &["add-voter", "sa-0"]);
    assert!(!done && said.contains("usa-0 leads the ledger: ask that aggregator"), "{said}");
    for (body, status, code) in [(r#"{}"#, 400, "voters"), (r#"{"joins":"sa-0","why":1}"#, 400, "malformed_body")] {
        let (found, answer) = http::send(at, "POST", "/v1/ledger/voters", body).await.unwrap();
        assert_eq!((found, &answer["error"]["code"]), (status, &code.into()), "{answer}");
    }
    let unsigned = "POST /v1/ledger/voters HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: 16\r\n\r\n{\"joins\":\"sa-0\"}";
    let answer = http::raw(at, unsigned.as_bytes(), false).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert_eq!(until_voters(at, &DCS[..3]).await, None);
}

async fn until_gone(at: SocketAddr, dc: usize) {
    until("that it is gone", async || {
        let (_, body) = http::get(at, "/v1/dcs").await?;
        (body["dcs"][dc]["connected"] == false).then_some(())
    })
    .await;
}

async fn until_awarded(at: SocketAddr, count: usize) -> Vec<Value> {
    until("awards", async || awards(at, QUERIES).await.filter(|awards| awards.len() >= count)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_votes_after_a_voter_was_given_up_and_the_ledger_goes_on_without_a_further_one() {
    let cluster = Cluster::with_pair(&DCS, &DCS[..3], PAIR);
    let mut centres = cluster.centres().await;
    let at = centres[0].http;
    until("the leader", async || leader(at).await.filter(|name| name == DCS[0])).await;
    check_refusals(&cluster, &centres).await;
    let said = until_done(&cluster, at, &["add-voter", "sa-0"]).await;
    assert!(said.contains("sa-0: votes") && said.contains("warning: 4 voters: 1 may fail"), "{said}");
    let said = until_done(&cluster, at, &["remove-voter", "sa-0"]).await;
    assert!(said.contains("sa-0: learns") && !said.contains("warning"), "{said}");

    arm(at, QUERIES, &[MILESTONE]).await;
    let mut loads = Vec::new();
    for dc in [0, PAIR, SPARE] {
        loads.push(Load::start(cluster.client(&[dc]).await, 1));
    }
    centres[GIVEN_UP].node.kill();
    centres[GIVEN_UP].aggregator.kill();
    until_gone(at, GIVEN_UP).await;
    let (done, said) = operate(&cluster, at, &["dc", "forget", DCS[GIVEN_UP], "--force", "--yes"]);
    assert!(done, "{said}");
    let warning = until_voters(at, &["usa-0", "europe-0"]).await.unwrap();
    assert!(warning.starts_with("2 voters: 0 may fail"), "{warning}");
    let (done, said) = ledger(&cluster, at, &["add-voter", "asia-0"]);
    assert!(!done && said.contains("asia-0 was given up"), "{said}");
    let said = until_done(&cluster, at, &["add-voter", "sa-0"]).await;
    assert!(said.contains("sa-0: votes") && !said.contains("warning"), "{said}");
    until_voters(at, &["usa-0", "europe-0", "sa-0"]).await;

    // One of the old voters away: the new one makes the majority.
    centres[PAIR].aggregator.kill();
    until_gone(at, PAIR).await;
    until_awarded(at, 1).await;
    let second = define_another(at).await;
    let (done, said) = ledger(&cluster, at, &["remove-voter", "sa-0"]);
    assert!(!done && said.contains("1 of 2 voters"), "{said}");
    let (done, said) = operate(&cluster, at, &["dc", "list"]);
    assert!(done && said.lines().any(|line| line.starts_with("sa-0") && line.contains("voter")), "{said}");
    (centres[PAIR].aggregator, centres[PAIR].http) = cluster.start(PAIR, Role::Aggregator).await;
    until_awarded(at, 2).await;
    let mut counted = Vec::new();
    for load in loads {
        counted.push(load.finish().await);
    }
    let counted = Counted::sum(counted);
    counted.until_shown(&[at, centres[PAIR].http, centres[SPARE].http]).await;
    assert_eq!(counted.milestones, [MILESTONE, second].map(|at| (at, at)));
}

/// Only a majority of the voters can define a milestone.
async fn define_another(at: SocketAddr) -> u64 {
    let (value, pending) = until("a reading", async || http::reading(at, QUERIES).await).await;
    let path = format!("/v1/counters/{QUERIES}/milestones");
    let milestone = value + pending + FURTHER;
    let body = format!(r#"{{"at":[{milestone}]}}"#);
    // On a busy machine an election may take longer than a request waits; asking again changes nothing.
    until("a milestone that is defined", async || {
        let (status, answer) = http::send(at, "PUT", &path, &body).await?;
        assert!([200, 504].contains(&status), "{status}: {answer}");
        (status == 200).then_some(())
    })
    .await;
    milestone
}

/// A member of the ledger as a process knows it.
async fn member(at: SocketAddr, name: &str) -> Option<Value> {
    let (_, body) = http::get(at, "/v1/ledger").await?;
    body["members"].as_array()?.iter().find(|member| member["aggregator"] == name).cloned()
}

/// Its disk is gone. It comes back without, and is killed again before it has the log: it is to vote again, and does not yet.
async fn lose_disk(cluster: &Cluster, centres: &mut [Centre], dc: usize) {
    centres[dc].aggregator.kill();
    std::fs::remove_dir_all(cluster.data(dc, Role::Aggregator)).unwrap();
    (centres[dc].aggregator, _) = cluster.start_fresh(dc, Role::Aggregator).await;
    let at = centres[0].http;
    let returns = async || member(at, DCS[dc]).await.filter(|member| member["returns"] == true);
    let member = until("that it is to vote again", returns).await;
    centres[dc].aggregator.kill();
    assert_eq!(member["votes"], false);
    until_voters(at, &["usa-0", "europe-0"]).await;
}

async fn restart(cluster: &Cluster, centres: &mut [Centre], dc: usize) {
    centres[dc].aggregator.kill();
    (centres[dc].aggregator, centres[dc].http) = cluster.start(dc, Role::Aggregator).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_lost_its_disk_votes_again_under_the_next_leader_unless_an_operator_removed_it() {
    let cluster = Cluster::new(&DCS[..3]);
    let mut centres = cluster.centres().await;
    let lost = 2;
    until("the leader", async || leader(centres[0].http).await.filter(|name| name == DCS[0])).await;
    arm(centres[0].http, QUERIES, &[1_000_000]).await;
    lose_disk(&cluster, &mut centres, lost).await;
    restart(&cluster, &mut centres, 0).await;
    let at = centres[0].http;
    until("a leader that knows", async || {
        leader(at).await?;
        member(at, DCS[lost]).await.filter(|member| member["returns"] == true && member["votes"] == false)
    })
    .await;
    restart(&cluster, &mut centres, lost).await;
    until_voters(at, &DCS[..3]).await;
    until("that this is noted", async || member(at, DCS[lost]).await.filter(|member| member["returns"] == false)).await;
    // It makes the majority.
    centres[1].aggregator.kill();
    until_gone(at, 1).await;
    define_another(at).await;
    restart(&cluster, &mut centres, 1).await;

    until("the leader", async || leader(at).await.filter(|name| name == DCS[0])).await;
    lose_disk(&cluster, &mut centres, lost).await;
    until_gone(at, lost).await;
    let said = until_done(&cluster, at, &["remove-voter", DCS[lost]]).await;
    assert!(said.contains("asia-0: learns, not reached") && !said.contains("again"), "{said}");
    restart(&cluster, &mut centres, 0).await;
    restart(&cluster, &mut centres, lost).await;
    let at = centres[0].http;
    let has_all = async || member(at, DCS[lost]).await.filter(|member| member["behind"] == 0);
    let member = until("a learner that has the log", has_all).await;
    assert_eq!((&member["votes"], &member["returns"]), (&false.into(), &false.into()));
    until("that it votes", async || {
        let (done, said) = ledger(&cluster, at, &["add-voter", DCS[lost]]);
        assert!(!said.contains("votes already"), "nobody else has done it: {said}");
        done.then_some(())
    })
    .await;
    until_voters(at, &DCS[..3]).await;
}
