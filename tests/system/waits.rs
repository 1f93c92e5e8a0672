//! A back end waits for an award by one call, while the aggregator that it waits at is killed and comes back.

use crate::cluster::{Cluster, Role, arm};
use crate::http;
use std::time::Duration;
use tidemark_client::{AwardError, CounterName};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_an_award_gets_it_though_the_aggregator_is_killed() {
    let cluster = Cluster::new(&["usa-0"]);
    let mut centre = cluster.centres().await.remove(0);
    let client = cluster.client(&[0]).await;
    let queries = CounterName::new("search", b"queries").unwrap();
    assert_eq!(client.award(&queries, 3).await, Err(AwardError::NoMilestone));
    arm(centre.http, "search/queries", &[3, 9]).await;
    let waiting = [3, 9].map(|at| {
        let client = client.clone();
        let queries = queries.clone();
        tokio::spawn(async move { client.award(&queries, at).await })
    });
    let removed = tokio::spawn({
        let client = client.clone();
        let queries = queries.clone();
        async move { client.award(&queries, 9).await }
    });
    let brief = tokio::time::timeout(Duration::from_millis(300), client.award(&queries, 3)).await;
    assert!(brief.is_err(), "nothing has happened yet");
    centre.aggregator.kill();
    (centre.aggregator, centre.http) = cluster.start(0, Role::Aggregator).await;
    crate::cluster::ready(centre.http).await;
    for _ in 0..3 {
        let path = "/v1/counters/search/queries/add";
        crate::process::until("an increment", async || {
            http::send(centre.http, "POST", path, "").await.filter(|(code, _)| *code == 200)
        })
        .await;
    }
    let [third, ninth] = waiting;
    let award = tokio::time::timeout(crate::process::WAIT_MAX, third).await.unwrap().unwrap().unwrap();
    assert_eq!((award.at, award.first, &award.counter), (3, 3, &queries));
    assert_eq!(client.award(&queries, 3).await, Ok(award), "at once, once it is known");
    let (code, _) = http::send(centre.http, "DELETE", "/v1/counters/search/queries/milestones?at=9", "").await.unwrap();
    assert_eq!(code, 200);
    for waiting in [ninth, removed] {
        let ended = tokio::time::timeout(crate::process::WAIT_MAX, waiting).await.unwrap().unwrap();
        assert_eq!(ended, Err(AwardError::NoMilestone), "it was removed");
    }
    client.close().await.unwrap();
    assert_eq!(client.award(&queries, 3).await, Err(AwardError::Closed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_is_estimated_while_it_is_counted_and_ends_with_it() {
    let cluster = Cluster::new(&["usa-0"]);
    let centre = cluster.centres().await.remove(0);
    arm(centre.http, "search/queries", &[1_000_000]).await;
    let progress = async || http::get(centre.http, "/v1/counters/search/queries/progress").await.map(|(_, body)| body);
    let before = progress().await.unwrap();
    assert_eq!(
        (&before["next"], &before["remaining"], &before["mode"]),
        (&1_000_000.into(), &1_000_000.into(), &"rights".into())
    );
    let going = crate::process::until("a rate", async || {
        http::send(centre.http, "POST", "/v1/counters/search/queries/add", r#"{"delta":20}"#).await?;
        progress().await.filter(|progress| progress["eta_s"].as_u64().is_some())
    })
    .await;
    let number = |name: &str| going[name].as_u64().unwrap();
    assert_eq!(number("remaining"), 1_000_000 - number("value"));
    assert_eq!(number("eta_s"), number("remaining").div_ceil(number("rate_per_s")));
    crate::process::until("no rate", async || {
        progress().await.filter(|progress| progress["rate_per_s"] == 0 && progress["eta_s"].is_null())
    })
    .await;
}
