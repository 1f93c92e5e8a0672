//! `kill -9` of nodes and aggregators under load, in the middle of recovery too, and SIGTERM: everything acknowledged is counted
//! exactly once.

use crate::cluster::{Cluster, Role, leader, until_views_show};
use crate::http::{self, TOKEN};
use crate::load::Load;
use crate::process::{Process, command, complaint, has_error, run, until};
use std::time::Duration;

/// How far into its recovery a node is killed again.
const RECOVERY_MS: [u64; 4] = [1, 10, 30, 90];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_acknowledged_is_counted_exactly_once() {
    let cluster = Cluster::new(&["usa-0"]);
    let mut centre = cluster.centres().await.remove(0);
    let load = Load::start(cluster.client(&[0]).await, 6);
    load.until_further(300).await;
    for after_ms in RECOVERY_MS {
        centre.node.kill();
        let mut recovering = cluster.spawn(0, Role::Node);
        tokio::time::sleep(Duration::from_millis(after_ms)).await;
        recovering.kill();
        centre.node = cluster.node(0).await;
        load.until_further(100).await;
    }
    // The node goes on without its aggregator, and a new one is told everything, though no counter is guarded.
    centre.aggregator.kill();
    load.until_further(300).await;
    (centre.aggregator, centre.http) = cluster.start(0, Role::Aggregator).await;
    let counted = load.finish().await;
    counted.until_shown(&[centre.http]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_told_to_end_ends_in_order_and_loses_nothing() {
    let cluster = Cluster::new(&["usa-0"]);
    let mut centre = cluster.centres().await.remove(0);
    let load = Load::start(cluster.client(&[0]).await, 6);
    load.until_further(300).await;
    let (status, said) = centre.node.terminate().await;
    assert!(status.success() && said.contains("told to end") && !has_error(&said), "{said}");
    centre.node = cluster.node(0).await;
    load.until_further(100).await;
    let body = r#"{"delta":5}"#;
    let added = http::send(centre.http, "POST", "/v1/counters/search/web/add", body).await.unwrap();
    assert_eq!((added.0, &added.1["place"]), (200, &"counted".into()));
    let (status, said) = centre.aggregator.terminate().await;
    assert!(status.success() && said.contains("told to end") && !has_error(&said), "{said}");
    (centre.aggregator, centre.http) = cluster.start(0, Role::Aggregator).await;
    let counted = load.finish().await;
    counted.until_shown(&[centre.http]).await;
    until_views_show(&[centre.http], "search/web", 5).await;
    let known = until("a leader of the ledger", async || leader(centre.http).await).await;
    assert_eq!(known, "usa-0");
}

/// `tidemark serve`, its HTTP address known by what it prints.
async fn serve(dir: &std::path::Path, log: &str) -> (Process, std::net::SocketAddr) {
    let data = dir.join("data");
    let arguments = ["serve", "--port", "0", "--data-dir", data.to_str().unwrap()];
    let mut process = Process::start(command(&arguments), dir.join(log));
    let address = process.until_said("Tidemark serves at http://").await.parse().unwrap();
    (process, address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_process_keeps_what_it_answered_through_sigterm_and_kill() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    write_token(&dir.path().join("data/token"));
    let mut total = 0;
    for round in 0..3 {
        let (mut process, http) = serve(dir.path(), &format!("log-{round}")).await;
        until_views_show(&[http], "search/q", total).await;
        let data = dir.path().join("data");
        let second = complaint(&run(&["serve", "--port", "0", "--data-dir", data.to_str().unwrap()]));
        assert!(second.contains("is in use by another process"), "{second}");
        for _ in 0..20 {
            let added = async || http::send(http, "POST", "/v1/counters/search/q/add", "").await;
            let (status, _) = added().await.unwrap();
            assert_eq!(status, 200);
            total += 1;
        }
        match round {
            0 => process.kill(),
            _ => {
                let (status, said) = process.terminate().await;
                assert!(status.success(), "{said}");
            }
        }
    }
}

fn write_token(path: &std::path::Path) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    std::io::Write::write_all(&mut file, TOKEN.as_bytes()).unwrap();
}
