//! A data centre of three nodes, each group's log on all of them: whatever one of them suffers under load, clients carry on, and
//! everything acknowledged is counted exactly once.

use crate::cluster::{Cluster, QUERIES, Role, arm, awards, ready};
use crate::http;
use crate::load::{Counted, Load};
use crate::process::{Process, until};
use serde_json::Value;
use std::net::SocketAddr;

const NODES: usize = 3;
const MILESTONE: u64 = 1_500;

/// One data centre with its nodes.
struct Centre {
    cluster: Cluster,
    nodes: Vec<(Process, SocketAddr)>,
    aggregator: Process,
    http: SocketAddr,
}

impl Centre {
    async fn start() -> Centre {
        let cluster = Cluster::with_nodes(&["usa-0"], NODES);
        let (first, second, third) =
            tokio::join!(cluster.start_node(0, 0), cluster.start_node(0, 1), cluster.start_node(0, 2));
        let (aggregator, http) = cluster.start(0, Role::Aggregator).await;
        let centre = Centre { cluster, nodes: vec![first, second, third], aggregator, http };
        ready(http).await;
        for node in 0..NODES {
            centre.until_ready(node).await;
        }
        centre
    }

    async fn until_ready(&self, node: usize) {
        let http = self.nodes[node].1;
        until("a node that serves", async || http::get(http, "/readyz").await.filter(|(code, _)| *code == 200)).await;
    }

    async fn load(&self) -> Load {
        Load::start(self.cluster.client(&[0]).await, 6)
    }

    /// The groups as a node sees them.
    async fn groups(&self, node: usize) -> Option<Vec<Value>> {
        let (_, status) = http::get(self.nodes[node].1, "/v1/status").await?;
        status["groups"].as_array().cloned()
    }

    /// Waits until a node leads the groups that it leads whenever it can: its own.
    async fn until_leads_its_own(&self, node: usize) {
        until("the node leads its own group", async || {
            let leads = |group: &Value| group["group"] == node && group["role"] == "leads";
            self.groups(node).await.filter(|groups| groups.iter().any(leads))
        })
        .await;
    }

    /// Waits until a node says of a group of which it is a member that these nodes hold its log.
    async fn until_held_by(&self, node: usize, group: usize, holders: &[u64]) {
        until("the group is where it belongs", async || {
            let groups = self.groups(node).await?;
            let status = groups.into_iter().find(|status| status["group"] == group)?;
            let held: Vec<u64> = status["holders"].as_array()?.iter().filter_map(Value::as_u64).collect();
            (held == holders).then_some(())
        })
        .await;
    }

    /// The valves of its own group, as a node sees them.
    async fn valves(&self, node: usize) -> u64 {
        let own = |groups: Vec<Value>| groups.into_iter().find(|group| group["group"] == node)?["valves"].as_u64();
        self.groups(node).await.and_then(own).unwrap_or(0)
    }

    async fn restart(&mut self, node: usize) {
        self.nodes[node] = self.cluster.start_node(0, node).await;
        self.until_ready(node).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_of_three_may_be_killed_and_come_back_while_counting() {
    let mut centre = Centre::start().await;
    arm(centre.http, QUERIES, &[MILESTONE]).await;
    let load = centre.load().await;
    load.until_further(200).await;
    for node in 0..NODES {
        centre.nodes[node].0.kill();
        load.until_further(300).await;
        centre.restart(node).await;
        load.until_further(100).await;
    }
    let counted = load.finish().await;
    counted.until_shown(&[centre.http]).await;
    let won = until("the award", async || awards(centre.http, QUERIES).await.filter(|awards| !awards.is_empty())).await;
    assert_eq!((won.len(), &won[0]["at"]), (1, &MILESTONE.into()));
    assert_eq!(counted.milestones.len(), 1, "{:?}", counted.milestones);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_disk_is_replaced_and_two_others_may_then_go_in_turn() {
    let mut centre = Centre::start().await;
    let load = centre.load().await;
    load.until_further(200).await;
    centre.nodes[1].0.kill();
    std::fs::remove_dir_all(centre.cluster.node_data(0, 1)).unwrap();
    load.until_further(200).await;
    centre.restart(1).await;
    centre.until_leads_its_own(1).await;
    for node in [0, 2] {
        centre.nodes[node].0.kill();
        load.until_further(200).await;
        centre.restart(node).await;
        centre.until_leads_its_own(node).await;
    }
    let counted = load.finish().await;
    counted.until_shown(&[centre.http]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_may_be_restarted_one_after_the_other_and_all_at_once() {
    let mut centre = Centre::start().await;
    let load = centre.load().await;
    load.until_further(200).await;
    // The last one goes on asking for fewer valves: another one has led its group by then, and they stay.
    for node in 0..NODES {
        let (status, said) = centre.nodes[node].0.terminate().await;
        assert!(status.success() && !said.contains("ERROR"), "{said}");
        if node < 2 {
            centre.cluster.ask_for_valves(0, node, 13);
        }
        centre.restart(node).await;
    }
    load.until_further(200).await;
    for node in 0..NODES {
        centre.until_leads_its_own(node).await;
        assert_eq!(centre.valves(node).await, 13, "of node {node}");
    }
    centre.nodes.iter_mut().for_each(|(process, _)| process.kill());
    let (first, second, third) =
        tokio::join!(centre.cluster.start_node(0, 0), centre.cluster.start_node(0, 1), centre.cluster.start_node(0, 2));
    centre.nodes = vec![first, second, third];
    load.until_further(200).await;
    let counted = load.finish().await;
    counted.until_shown(&[centre.http]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_added_while_counting_and_groups_move_to_it() {
    let mut centre = Centre::start().await;
    arm(centre.http, QUERIES, &[MILESTONE]).await;
    let load = centre.load().await;
    load.until_further(200).await;
    let added = centre.cluster.add_node(0);
    let node = centre.cluster.start_node(0, added).await;
    centre.nodes.push(node);
    centre.aggregator.terminate().await;
    (centre.aggregator, centre.http) = centre.cluster.start(0, Role::Aggregator).await;
    for node in 0..NODES {
        let (status, said) = centre.nodes[node].0.terminate().await;
        assert!(status.success() && !said.contains("ERROR"), "{said}");
        centre.restart(node).await;
        load.until_further(100).await;
    }
    ready(centre.http).await;
    for (node, group, holders) in [(0, 0, [0, 1, 2]), (1, 1, [1, 2, 3]), (2, 2, [0, 2, 3]), (3, 3, [0, 1, 3])] {
        centre.until_leads_its_own(node).await;
        centre.until_held_by(node, group, &holders).await;
    }
    // A client that knows of it, all of whose increments go to the new group and to the one that lost its first holder.
    let second = centre.load().await;
    centre.nodes[0].0.kill();
    second.until_further(300).await;
    load.until_further(300).await;
    centre.restart(0).await;
    centre.nodes[2].0.kill();
    second.until_further(300).await;
    load.until_further(300).await;
    centre.restart(2).await;
    let counted = Counted::sum([load.finish().await, second.finish().await]);
    counted.until_shown(&[centre.http]).await;
    let won = until("the award", async || awards(centre.http, QUERIES).await.filter(|awards| !awards.is_empty())).await;
    assert_eq!((won.len(), &won[0]["at"]), (1, &MILESTONE.into()));
    assert_eq!(counted.milestones.len(), 1, "{:?}", counted.milestones);
}
