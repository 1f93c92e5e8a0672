//! Counters that go down, in real processes: every acknowledged increment is counted exactly once, up and down, whatever process is killed,
//! and a milestone is awarded once although the value passes it again and again.

use crate::cluster::{Cluster, SHOES, arm, awards};
use crate::http;
use crate::process::{complaint, run, until};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tidemark_client::{Client, HitError, Place};
use tidemark_proto::ids::{CounterName, SessionId};
use tidemark_server::names::parse_counter;

const MILESTONE: u64 = 400;
const ROUNDS: u64 = 60;
/// Up in a round, one by one, and down in one piece.
const UP: u64 = 10;
const DOWN: u64 = 9;

/// The acknowledged increments.
#[derive(Debug, Default, PartialEq)]
struct Counted {
    up: u64,
    down: u64,
    won: Vec<Place>,
}

/// Counts up and down until both are acknowledged; every hit resolves, as the client asks again until it is answered.
async fn count(client: Client, name: CounterName, rounds: u64) -> Counted {
    let mut counted = Counted::default();
    for round in 0..rounds {
        let mut hits = Vec::new();
        for n in 0..UP {
            let session = SessionId(u128::from(round * UP + n).to_be_bytes());
            hits.push(client.hit(&name, session).await.unwrap());
        }
        let back = client.take_back(&name, DOWN).await.unwrap();
        for hit in hits {
            match hit.await {
                Ok(place @ Place::Milestone { .. }) => counted.won.push(place),
                Ok(_) | Err(HitError::PlaceUnknown) => {}
                Err(error) => panic!("{error}"),
            }
            counted.up += 1;
        }
        assert_eq!(back.await, Ok(Place::Counted));
        counted.down += DOWN;
    }
    counted
}

async fn halves(http: SocketAddr) -> Option<(i64, u64, u64)> {
    let (_, reading) = http::get(http, &format!("/v1/counters/{SHOES}")).await?;
    let number = |what: &str| reading[what].as_u64();
    (number("pending") == Some(0)).then_some(())?;
    Some((reading["value"].as_i64()?, number("up")?, number("down")?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hits_and_decrements_are_exact_though_nodes_are_killed_and_a_milestone_is_awarded_once() {
    let cluster = Cluster::new(&["usa-0", "europe-0", "asia-0"]);
    let mut centres = cluster.centres().await;
    let name = parse_counter(SHOES).unwrap();
    arm(centres[0].http, SHOES, &[MILESTONE]).await;
    let client = cluster.client(&[0]).await;
    // Clients of a group that has not heard yet are refused: the namespace is new.
    until("a decrement", async || client.take_back(&name, 1).await.ok()?.await.ok()).await;
    let both: Vec<_> = [client, cluster.client(&[1]).await]
        .into_iter()
        .map(|client| tokio::spawn(count(client, name.clone(), ROUNDS)))
        .collect();
    for dc in [0, 1, 0] {
        tokio::time::sleep(Duration::from_millis(300)).await;
        centres[dc].node.kill();
        centres[dc].node = cluster.node(dc).await;
    }
    let mut all = Counted { down: 1, ..Counted::default() };
    for counted in both {
        let counted = counted.await.unwrap();
        (all.up, all.down) = (all.up + counted.up, all.down + counted.down);
        all.won.extend(counted.won);
    }
    assert_eq!((all.up, all.down), (2 * ROUNDS * UP, 2 * ROUNDS * DOWN + 1));
    let exact = (all.up as i64 - all.down as i64, all.up, all.down);
    for centre in &centres {
        until("the exact value", async || halves(centre.http).await.filter(|shown| *shown == exact)).await;
    }
    // The value never came near the milestone; the upward part passed it once.
    assert!(exact.0 < MILESTONE as i64 && all.up > MILESTONE);
    for centre in &centres {
        let told = until("the award", async || awards(centre.http, SHOES).await.filter(|all| !all.is_empty())).await;
        assert_eq!((told.len(), &told[0]["at"], &told[0]["first"]), (1, &MILESTONE.into(), &MILESTONE.into()));
    }
    assert!(
        all.won.len() <= 1 && all.won.iter().all(|won| *won == Place::Milestone { at: MILESTONE, first: MILESTONE })
    );
    // Down below it and up across it again: it stays awarded, once, and what is counted has no further place.
    let add = async |delta: i64| {
        let body = format!("{{\"delta\":{delta}}}");
        http::send(centres[0].http, "POST", &format!("/v1/counters/{SHOES}/add"), &body).await
    };
    for delta in [-500, 500, -500, 900] {
        let (status, added) = add(delta).await.unwrap();
        assert_eq!((status, &added["place"]), (200, &Value::from("counted")), "{delta}");
    }
    let exact = (exact.0 + 400, exact.1 + 1_400, exact.2 + 1_000);
    for centre in &centres {
        until("the exact value", async || halves(centre.http).await.filter(|shown| *shown == exact)).await;
        assert_eq!(awards(centre.http, SHOES).await.map(|all| all.len()), Some(1));
    }
    let url = format!("http://{}", centres[0].http);
    let token = cluster.path("token");
    let remote = ["--server", &url, "--token-file", token.to_str().unwrap()];
    let said = run(&[&["get", SHOES], &remote[..]].concat());
    let text = format!("{SHOES} {} ({} up, {} down)\n", exact.0, exact.1, exact.2);
    assert_eq!(String::from_utf8_lossy(&said.stdout), text);
    let down = run(&[&["add", SHOES, "-3"], &remote[..]].concat());
    let text = format!("counted; {SHOES} is {}\n", exact.0 - 3);
    assert_eq!(String::from_utf8_lossy(&down.stdout), text, "{}", String::from_utf8_lossy(&down.stderr));
    let refused = complaint(&run(&[&["add", "search/q", "-3"], &remote[..]].concat()));
    assert!(refused.contains("only grow"), "{refused}");
}
