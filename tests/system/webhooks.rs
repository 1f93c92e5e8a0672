//! An aggregator that sends awards to a receiver is killed again and again, and the receiver is slow: every award is delivered, with one
//! id, signed, and the secret stays in its place.

use crate::cluster::{Cluster, Role};
use crate::http;
use crate::receiver::{Behaviour, Receiver, SECRET, Seen};
use std::collections::BTreeSet;
use std::os::unix::fs::OpenOptionsExt;

const AWARDS: usize = 12;

/// The aggregator of one data centre sends to a receiver.
pub fn configure(cluster: &Cluster, dc: usize, receiver: &Receiver) {
    let mut options = std::fs::OpenOptions::new();
    let mut file =
        options.write(true).create(true).truncate(true).mode(0o600).open(cluster.path("webhook-secret")).unwrap();
    std::io::Write::write_all(&mut file, SECRET.as_bytes()).unwrap();
    let block = format!(
        "[[webhooks]]\nname = \"billing\"\nurl = \"{}\"\nsecret_file = \"webhook-secret\"\nallow_private = true\n\
         since = \"beginning\"\ntimeout_ms = 1000\nfirst_retry_ms = 50\nretry_max_ms = 200\n",
        receiver.url()
    );
    let path = cluster.config(dc, Role::Aggregator);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, text + &block).unwrap();
}

async fn awards(address: std::net::SocketAddr) -> Option<Vec<(String, u64)>> {
    let (status, body) = http::get(address, "/v1/awards").await?;
    let award = |award: &serde_json::Value| Some((award["position"].as_str()?.to_owned(), award["at"].as_u64()?));
    (status == 200).then(|| body["awards"].as_array()?.iter().map(award).collect()).flatten()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_award_is_told_once_though_the_aggregator_is_killed_and_the_receiver_fails() {
    let cluster = Cluster::new(&["usa-0"]);
    let receiver = Receiver::start([]).await;
    configure(&cluster, 0, &receiver);
    let mut centre = cluster.centres().await.remove(0);
    let defined = http::send(centre.http, "PUT", "/v1/counters/search/queries/milestones", r#"{"every":1}"#).await;
    assert_eq!(defined.unwrap().0, 200);
    for round in 0..AWARDS {
        let wrong = [Behaviour::Hang, Behaviour::Status(503), Behaviour::Close, Behaviour::Status(200)];
        receiver.answer(wrong.into_iter().cycle().skip(round).take(8));
        let path = "/v1/counters/search/queries/add";
        crate::process::until("the increment is placed", async || {
            let (status, body) = http::send(centre.http, "POST", path, "").await?;
            (status == 200 && body["place"] == "milestone").then_some(())
        })
        .await;
        if round % 4 == 3 {
            centre.aggregator.kill();
            assert!(!centre.aggregator.said().contains("MDEyMzQ1"), "the secret is in no log");
            (centre.aggregator, centre.http) = cluster.start(0, Role::Aggregator).await;
        }
    }
    receiver.answer([]);
    let known =
        crate::process::until("all awards", async || awards(centre.http).await.filter(|awards| awards.len() >= AWARDS))
            .await;
    let ids = receiver.until_different(known.len()).await;
    assert_eq!(ids.len(), known.len(), "one id for each award");
    let seen = receiver.seen();
    let position =
        |seen: &Seen| (seen.json()["position"].as_str().unwrap().to_owned(), seen.json()["at"].as_u64().unwrap());
    let positions: BTreeSet<(String, u64)> = seen.iter().map(position).collect();
    assert_eq!(positions, known.into_iter().collect());
    assert!(seen.iter().all(Seen::is_signed));
    crate::process::until("nothing is open", async || {
        let (_, body) = http::get(centre.http, "/v1/webhooks").await?;
        let webhook = &body["webhooks"][0];
        (webhook["open"] == 0 && webhook["dead"] == 0 && webhook["failed"].is_null()).then_some(())
    })
    .await;
}
