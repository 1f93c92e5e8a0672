//! Peers with a wrong identity, and meaningless bytes: refused by name, and the cluster goes on.

use crate::cluster::{Cluster, Role, until_views_show};
use crate::http;
use crate::process::{run, until_true};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use tidemark_client::{Client, HitOutcome, Site};
use tidemark_proto::ids::SessionId;
use tidemark_server::names::parse_counter;
use tidemark_transport::Credentials;

/// Credentials for a process, issued by a new CA of a cluster of the same name.
fn foreign_credentials(cluster: &Cluster, dc: &str, role: &str) -> std::path::PathBuf {
    let text = |name: &str| cluster.path(name).to_str().unwrap().to_owned();
    let out = cluster.path(&format!("foreign-{role}"));
    if !cluster.path("other-ca").exists() {
        assert!(run(&["certs", "init", "--cluster", "test", "--out", &text("other-ca")]).status.success());
    }
    let issue =
        ["certs", "issue", "--ca", &text("other-ca"), "--dc", dc, "--role", role, "--out", out.to_str().unwrap()];
    assert!(run(&issue).status.success());
    out
}

#[test]
fn a_certificate_with_another_name_is_refused_before_anything_starts() {
    let cluster = Cluster::new(&["usa-0", "europe-0", "asia-0"]);
    for (role, own) in [(Role::Node, "node-0"), (Role::Aggregator, "aggregator")] {
        let others = cluster.path(&format!("credentials/europe-0/{own}"));
        let said = cluster.refusal(0, role, &[&format!("credentials={}", others.display())]);
        let kind = if role == Role::Node { "node" } else { "aggregator" };
        let found = format!("the certificate is that of tidemark://test/europe-0/{kind}/0");
        assert!(said.contains(&found) && said.ends_with(&format!("expected tidemark://test/usa-0/{kind}/…")), "{said}");
    }
    let web = cluster.path("credentials/web");
    let said = cluster.refusal(0, Role::Node, &[&format!("credentials={}", web.display())]);
    assert!(said.contains("tidemark://test/web/client/0"), "{said}");
    assert!(!cluster.path("data").exists(), "nothing was made");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_clusters_ca_opens_nothing_and_noise_stops_nothing() {
    let cluster = Cluster::new(&["usa-0"]);
    let mut centre = cluster.centres().await.remove(0);

    let foreign = Credentials::load(&foreign_credentials(&cluster, "web", "client")).unwrap();
    let site = Site { dc: "usa-0".to_owned(), nodes: vec![cluster.nodes[0].into()], aggregator: None };
    let stranger = Client::builder().credentials(foreign).site(site).close_timeout(Duration::from_millis(100));
    let stranger = stranger.connect().await.unwrap();
    let counter = parse_counter("search/q").unwrap();
    let hit = stranger.hit(&counter, SessionId([1; 16])).await.unwrap();
    centre.node.until_said("connection refused").await;
    let outcome = hit.within(Duration::from_millis(300)).await;
    assert!(matches!(outcome, Ok(HitOutcome::Pending(_))), "{outcome:?}");
    let _ = stranger.close().await;

    noise(&[cluster.nodes[0], cluster.aggregators[0]]);
    for junk in [&b"\x16\x03\x01\x02\x00 no TLS here"[..], &[0xff; 4_096], b"GET", b""] {
        // It may be answered with an error, or the connection ended.
        let _ = http::raw(centre.http, junk, true).await.map(|answer| assert!(!answer.contains("200 OK"), "{answer}"));
    }

    let client = cluster.client(&[0]).await;
    for session in 0..50 {
        let _place = client.hit(&counter, SessionId([session; 16])).await.unwrap().await.unwrap();
    }
    until_views_show(&[centre.http], "search/q", 50).await;

    // An aggregator of that CA is refused by the node, and the node goes on for its own.
    centre.aggregator.kill();
    let folder = foreign_credentials(&cluster, "usa-0", "aggregator");
    let mut arguments = cluster.arguments(0, Role::Aggregator);
    let data = cluster.path("data/stranger");
    for set in [format!("credentials={}", folder.display()), format!("data_dir={}", data.display())] {
        arguments.extend(["--set".to_owned(), set]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut stranger = crate::process::Process::start(crate::process::command(&arguments), cluster.next_log());
    let before = centre.node.said().matches("connection refused").count();
    let http = stranger.until_serves().await;
    until_true("a refusal", || centre.node.said().matches("connection refused").count() > before).await;
    let (code, body) = http::get(http, "/v1/counters/search/q").await.expect("it answers");
    assert!(code >= 400 || body["value"] == 0, "it is told nothing, not even which namespaces there are: {body}");
    stranger.kill();
    let (_aggregator, http) = cluster.start(0, Role::Aggregator).await;
    until_views_show(&[http], "search/q", 50).await;
}

/// Datagrams of all kinds: short, long, with QUIC's bits set as in first packets and in later ones.
fn noise(targets: &[SocketAddr]) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for round in 0..400_usize {
        let length = [1, 20, 300, 1_200, 1_452][round % 5];
        let mut datagram: Vec<u8> = (0..length).map(|_| rand::random()).collect();
        match round % 4 {
            0 => datagram[0] |= 0xc0,
            1 => datagram[0] = 0x40 | (datagram[0] & 0x3f),
            2 if length > 20 => datagram[..6].copy_from_slice(&[0xc0, 0, 0, 0, 1, 8]),
            _ => {}
        }
        for target in targets {
            let _ = socket.send_to(&datagram, target);
        }
    }
}
