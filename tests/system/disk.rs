//! A disk without room: the node says so and stops in order; with room again, everything acknowledged is there.

use crate::cluster::{Cluster, Role};
use crate::load::Load;
use crate::process::{Process, until_true};
use std::process::Command;

/// The largest file that the node may write, in blocks of 512 bytes: the new data file fits, the load of a second does not.
const FILE_BLOCKS_MAX: u32 = 4 * 1_024;

/// A node with files that cannot grow past the limit: to it that is a full disk. Its rows are in the log's file, as a directory of rows
/// begins with a larger one.
fn node_without_room(cluster: &Cluster) -> Process {
    let mut command = Command::new("sh");
    let limit = format!("trap '' XFSZ; ulimit -f {FILE_BLOCKS_MAX}; exec \"$@\"");
    command.args(["-c", &limit, "sh", env!("CARGO_BIN_EXE_tidemark")]).args(cluster.arguments(0, Role::Node));
    command.args(["--set", "rows.store=file"]);
    Process::start(command, cluster.next_log())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_the_node_and_loses_nothing_acknowledged() {
    let cluster = Cluster::new(&["usa-0"]);
    let mut node = node_without_room(&cluster);
    node.until_serves().await;
    let (_aggregator, http) = cluster.start(0, Role::Aggregator).await;
    crate::cluster::ready(http).await;
    let load = Load::start(cluster.client(&[0]).await, 60);
    let status = node.until_ended().await;
    let said = node.said();
    assert_eq!(status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("tidemark: ") && last.contains("no space is left"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    let acknowledged = load.tally.acknowledged();
    assert!(acknowledged > 0, "it counted until then");
    // Still without room it says the same, and does no harm.
    let mut again = node_without_room(&cluster);
    until_true("an end or service", || again.said().contains(" serves dc=") || again.said().contains("tidemark: "))
        .await;
    again.kill();
    let _node = cluster.node(0).await;
    let counted = load.finish().await;
    assert!(counted.queries >= acknowledged);
    counted.until_shown(&[http]).await;
}
