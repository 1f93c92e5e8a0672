//! A data centre never returns. A strict milestone waits for its rights until an operator gives all of it up at once; from then on
//! nothing waits for it, and when it comes back after all it is refused and told why. It has two aggregators: both go.

use crate::cluster::{Centre, Cluster, QUERIES, Role, arm, awards, operate, ready};
use crate::http;
use crate::load::Load;
use crate::process::{Process, until};
use serde_json::Value;
use std::net::SocketAddr;

const DCS: [&str; 3] = ["usa-0", "europe-0", "asia-0"];
const GONE: usize = 2;
const MILESTONE: u64 = 2_000;

/// Runs `dc forget` on the process of a data centre; whether it succeeded, and what it said.
fn forget(cluster: &Cluster, at: SocketAddr, more: &[&str]) -> (bool, String) {
    operate(cluster, at, &[&["dc", "forget"], more].concat())
}

/// A data centre as another knows it.
async fn known(at: SocketAddr, name: &str) -> Option<Value> {
    let (_, body) = http::get(at, "/v1/dcs").await?;
    body["dcs"].as_array()?.iter().find(|dc| dc["name"] == name).cloned()
}

/// The members of the ledger that are known to be reached.
async fn connected(at: SocketAddr) -> Option<Vec<String>> {
    let (_, body) = http::get(at, "/v1/ledger").await?;
    let members = body["members"].as_array()?.iter().filter(|member| member["connected"] == true);
    Some(members.map(|member| member["aggregator"].as_str().unwrap().to_owned()).collect())
}

/// Defines a further milestone a little above what is shown and waits until it is awarded.
async fn another_award(at: SocketAddr) {
    let path = "/v1/counters/search/queries/milestones";
    let (shown, pending) = until("a reading", async || http::reading(at, QUERIES).await).await;
    let milestone = shown + pending + 2_000;
    let body = format!(r#"{{"at":[{milestone}]}}"#);
    until("a definition", async || http::send(at, "PUT", path, &body).await.filter(|(code, _)| *code == 200)).await;
    until("the next award", async || {
        awards(at, QUERIES).await.filter(|list| list.iter().any(|award| award["at"] == milestone))
    })
    .await;
}

async fn check_refusals(cluster: &Cluster, centres: &[Centre]) {
    let at = centres[0].http;
    let (done, said) = forget(cluster, at, &[DCS[GONE]]);
    assert!(done && said.contains("asia-0/0#") && said.ends_with("repeat it with --yes.\n"), "{said}");
    let (done, said) = forget(cluster, at, &[DCS[1], "--yes"]);
    assert!(!done && said.contains("is connected: stop it first"), "{said}");
    let (done, said) = forget(cluster, at, &[DCS[0], "--yes"]);
    assert!(!done && said.contains("usa-0 cannot give itself up"), "{said}");
    let (done, said) = forget(cluster, at, &["nowhere", "--yes"]);
    assert!(!done && said.contains("no data centre \"nowhere\""), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_centre_that_never_returns_is_given_up_at_once_and_refused_when_it_does() {
    let cluster = Cluster::with_pair(&DCS, &DCS, GONE);
    let (mut second, second_http) = cluster.start_second(GONE).await;
    let mut centres = cluster.centres().await;
    ready(second_http).await;
    let at = centres[0].http;
    arm(at, QUERIES, &[MILESTONE]).await;
    let mut loads = Vec::new();
    for dc in 0..DCS.len() {
        loads.push(Load::start(cluster.client(&[dc]).await, 2));
    }
    for load in &loads {
        load.until_further(100).await;
    }
    centres[GONE].node.kill();
    centres[GONE].aggregator.kill();
    let others = async || connected(at).await.filter(|known| known.len() == DCS.len());
    let known_then = until("that its first aggregator is gone", others).await;
    assert_eq!(known_then, ["usa-0", "europe-0", "asia-0/second"]);
    let (done, said) = forget(&cluster, at, &[DCS[GONE], "--yes"]);
    assert!(!done && said.contains("is connected: stop it first"), "the second one runs: {said}");
    second.kill();
    until("that it is gone", async || known(at, DCS[GONE]).await.filter(|dc| dc["connected"] == false)).await;
    check_refusals(&cluster, &centres).await;

    // Not before it was silent for long enough.
    let done = async || {
        let (done, said) = forget(&cluster, at, &[DCS[GONE], "--yes"]);
        assert!(done || said.contains("was heard of"), "{said}");
        done.then_some(said)
    };
    let said = until("that it is given up", done).await;
    assert!(said.contains("rights outstanding") && said.ends_with("asia-0 is given up\n"), "{said}");
    let dc = known(at, DCS[GONE]).await.unwrap();
    assert_eq!((&dc["forgotten"], &dc["member"], &dc["rights"]), (&true.into(), &"none".into(), &0.into()));
    let (done, said) = forget(&cluster, at, &[DCS[GONE], "--yes"]);
    assert!(!done && said.contains("was forgotten before"), "{said}");
    let won = until("the award", async || awards(at, QUERIES).await.filter(|awards| !awards.is_empty())).await;
    assert_eq!((won.len(), &won[0]["at"]), (1, &MILESTONE.into()));
    // Nothing waits for its view, nor for a base of its groups.
    another_award(at).await;

    let _second = comes_back(&cluster, &mut centres[GONE]).await;
    another_award(at).await;

    // Without a majority of the voters that are left nothing more can be given up.
    centres[1].node.kill();
    centres[1].aggregator.kill();
    until("that it is gone", async || known(at, DCS[1]).await.filter(|dc| dc["connected"] == false)).await;
    let (done, said) = forget(&cluster, at, &[DCS[1], "--force", "--yes"]);
    assert!(!done && said.contains("1 of 2 voters"), "{said}");
}

/// It comes back with all its disks: no process speaks to it, it says so, and its groups are not heard.
async fn comes_back(cluster: &Cluster, gone: &mut Centre) -> Process {
    (gone.node, _) = cluster.start(GONE, Role::Node).await;
    (gone.aggregator, gone.http) = cluster.start(GONE, Role::Aggregator).await;
    let (second, second_http) = cluster.start_second(GONE).await;
    for (process, http) in [(&gone.aggregator, gone.http), (&second, second_http)] {
        until("that it is told why", async || {
            process.said().contains("this data centre was given up with `tidemark dc forget`").then_some(())
        })
        .await;
        let (code, body) = until("an answer", async || http::get(http, "/readyz").await).await;
        assert!(code == 503 && body.to_string().contains("dc forget"), "{code} {body}");
    }
    second
}
