//! Positions of awards: good at every data centre and after restarts, and refused by a cluster that was founded anew.

use crate::cluster::{Cluster, QUERIES, Role, ready};
use crate::http::{self, TOKEN};
use crate::process::until;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const DCS: [&str; 3] = ["usa-0", "europe-0", "asia-0"];

/// Each of these increments is awarded.
async fn award(at: SocketAddr, times: usize) {
    let path = format!("/v1/counters/{QUERIES}");
    let define = async || {
        let answer = http::send(at, "PUT", &format!("{path}/milestones"), r#"{"every":1}"#).await;
        answer.filter(|(status, _)| *status == 200)
    };
    until("a rule", define).await;
    for _ in 0..times {
        until("an award", async || {
            let (status, body) = http::send(at, "POST", &format!("{path}/add"), "").await?;
            (status == 200 && body["place"] == "milestone").then_some(())
        })
        .await;
    }
}

/// Positions of the awards behind a position, as soon as there are this many.
async fn listed(at: SocketAddr, after: &str, count: usize) -> Vec<String> {
    until("the awards", async || {
        let (status, body) = http::get(at, &format!("/v1/awards?after={after}")).await?;
        assert!(status == 200 || status == 503, "{after}: {body}");
        let position = |award: &serde_json::Value| award["position"].as_str().unwrap().to_owned();
        let positions: Vec<String> = body["awards"].as_array()?.iter().map(position).collect();
        (positions.len() == count).then_some(positions)
    })
    .await
}

/// The first messages of a subscription with this last event, up to a message of this type.
async fn events(at: SocketAddr, last: &str, until: &str) -> Vec<serde_json::Value> {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let request = format!(
        "GET /v1/events?awards=all HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {TOKEN}\r\nlast-event-id: {last}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    let mut buffer = [0; 4096];
    let reading = async {
        // Events end with an empty line, and chunks of the body with one more.
        while !text.contains(&format!(r#""type":"{until}""#)) || !text.ends_with("\n\n\r\n") {
            let read = stream.read(&mut buffer).await.unwrap();
            assert!(read > 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reading).await.expect("it is said in time");
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_are_good_everywhere_in_one_life_of_a_cluster_and_refused_in_the_next() {
    let cluster = Cluster::new(&DCS);
    let mut centres = cluster.centres().await;
    award(centres[0].http, 3).await;
    let old = listed(centres[0].http, "0.0", 3).await;
    assert_eq!(listed(centres[1].http, "0.0", 3).await, old, "they are the same at each data centre");
    assert_eq!(listed(centres[1].http, &old[0], 2).await, old[1..]);

    // An ordinary restart, and a move to the other data centre.
    for centre in &mut centres {
        centre.aggregator.kill();
    }
    for (dc, centre) in centres.iter_mut().enumerate() {
        (centre.aggregator, centre.http) = cluster.start(dc, Role::Aggregator).await;
    }
    for centre in &centres {
        ready(centre.http).await;
        assert_eq!(listed(centre.http, &old[1], 1).await, old[2..]);
        let said = events(centre.http, &old[1], "award").await;
        assert_eq!((&said[0]["type"], &said[0]["position"]), (&"begin".into(), &old[1].as_str().into()));
        assert_eq!((&said[1]["type"], &said[1]["position"]), (&"award".into(), &old[2].as_str().into()));
    }
    // The last one was told by another data centre a moment ago.
    award(centres[0].http, 1).await;
    let last = listed(centres[0].http, &old[2], 1).await.remove(0);
    assert_eq!(listed(centres[1].http, &last, 0).await, Vec::<String>::new());
    let (birth, behind) = last.split_once('.').unwrap();
    let index: u64 = behind.split('.').next().unwrap().parse().unwrap();
    let ahead = format!("{birth}.{}.1.ffffffffffffffff", index + 1_000_000);
    for centre in &centres {
        let (status, body) = http::get(centre.http, &format!("/v1/awards?after={ahead}")).await.unwrap();
        assert_eq!((status, &body["error"]["code"]), (409, &"position_unknown".into()), "{body}");
        assert!(body["error"]["message"].as_str().unwrap().contains("is ahead of all"), "{body}");
    }

    for centre in &mut centres {
        centre.node.kill();
        centre.aggregator.kill();
    }
    std::fs::remove_dir_all(cluster.path("data")).unwrap();
    std::fs::create_dir(cluster.path("data")).unwrap();
    let centres = cluster.centres().await;
    award(centres[1].http, 5).await;
    let new = listed(centres[1].http, "0.0", 5).await;
    assert!(!new.iter().any(|position| position.starts_with(birth)), "{new:?}");
    for centre in &centres {
        listed(centre.http, "0.0", 5).await;
        for position in [&old[0], &last, &ahead] {
            let (status, body) = http::get(centre.http, &format!("/v1/awards?after={position}")).await.unwrap();
            assert_eq!((status, &body["error"]["code"]), (409, &"position_unknown".into()), "{body}");
            let begin = body["error"]["message"].as_str().unwrap().rsplit_once(' ').unwrap().1.to_owned();
            assert_eq!(listed(centre.http, &begin, 5).await, new);
            let said = events(centre.http, position, "award").await;
            let begun = (&said[0]["type"], &said[0]["position"], &said[1]["type"], &said[1]["given"]);
            let expected = (&"begin".into(), &begin.as_str().into(), &"anew".into(), &position.as_str().into());
            assert_eq!(begun, expected);
            assert_eq!(said[2]["position"], new[0].as_str());
        }
    }
}
