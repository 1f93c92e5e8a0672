//! A data centre of three nodes, each group's log on all of them: whatever one of them suffers under load, clients carry on, and
//! everything acknowledged is counted exactly once.

use crate::cluster::{Cluster, QUERIES, Role, arm, awards, operate, ready};
use crate::http;
use crate::load::{Counted, Load};
use crate::process::{Process, has_error, until};
use crate::shelved;
use serde_json::Value;
use std::net::SocketAddr;

const NODES: usize = 3;
const MILESTONE: u64 = 1_500;

/// A data centre with its nodes.
struct Centre {
    cluster: Cluster,
    nodes: Vec<(Process, SocketAddr)>,
    aggregator: Process,
    http: SocketAddr,
}

impl Centre {
    async fn start() -> Centre {
        Centre::of(NODES).await
    }

    async fn of(count: usize) -> Centre {
        Centre::on(Cluster::with_nodes(&["usa-0"], count), count).await
    }

    async fn on(cluster: Cluster, count: usize) -> Centre {
        let nodes = futures_util::future::join_all((0..count).map(|node| cluster.start_node(0, node))).await;
        let (aggregator, http) = cluster.start(0, Role::Aggregator).await;
        let centre = Centre { cluster, nodes, aggregator, http };
        ready(http).await;
        for node in 0..count {
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
        self.until_leads(node, node, true).await;
    }

    /// Waits until a node says that it leads a group, or that it does not.
    async fn until_leads(&self, node: usize, group: usize, leads: bool) {
        until("the node leads, or does not", async || {
            let is_so = |status: &Value| status["group"] == group && (status["role"] == "leads") == leads;
            self.groups(node).await.filter(|groups| groups.iter().any(is_so))
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

    /// Waits until a node holds a group no more.
    async fn until_rid_of(&self, node: usize, group: usize) {
        until("the node has left the group", async || {
            let others = |groups: &Vec<Value>| groups.iter().all(|status| status["group"] != group);
            self.groups(node).await.filter(others)
        })
        .await;
    }

    async fn restart_aggregator(&mut self) {
        self.aggregator.terminate().await;
        (self.aggregator, self.http) = self.cluster.start(0, Role::Aggregator).await;
    }

    /// Nodes are told to end and start again, one after the other, under load, as operators do after a change of the layout.
    async fn restart_in_turn(&mut self, nodes: &[usize], load: &Load) {
        for &node in nodes {
            let (status, said) = self.nodes[node].0.terminate().await;
            assert!(status.success() && !has_error(&said), "{said}");
            self.restart(node).await;
            load.until_further(100).await;
        }
    }

    /// Adds a node; the others are told by a restart, one after the other.
    async fn grow(&mut self, load: &Load) {
        let others: Vec<usize> = (0..self.nodes.len()).collect();
        let added = self.cluster.add_node(0);
        self.nodes.push(self.cluster.start_node(0, added).await);
        self.restart_aggregator().await;
        self.restart_in_turn(&others, load).await;
    }

    /// Takes a node away: it is told last, and stays until it holds nothing. Then it is killed, and its disk is thrown away.
    async fn take_away(&mut self, gone: usize, stay: &[usize], load: &Load) {
        self.cluster.take_node_away(0, gone);
        self.restart_aggregator().await;
        self.restart_in_turn(stay, load).await;
        let (status, said) = self.nodes[gone].0.terminate().await;
        assert!(status.success() && !has_error(&said), "{said}");
        self.nodes[gone] = self.cluster.start_node(0, gone).await;
        until("the node holds nothing", async || self.groups(gone).await.filter(Vec::is_empty)).await;
        let (code, body) = http::get(self.nodes[gone].1, "/readyz").await.unwrap();
        assert!(code == 503 && body.to_string().contains("may be stopped for good"), "{code} {body}");
        let rid = |group: &Value| group["holders"].as_array().is_some_and(|all| all.iter().all(|node| *node != gone));
        for &node in stay {
            until("no group is on it", async || self.groups(node).await.filter(|groups| groups.iter().all(rid))).await;
        }
        ready(self.http).await;
        self.nodes[gone].0.kill();
        let said = self.cluster.node_refusal(0, gone);
        let expected = format!("node {gone} of usa-0 was taken away (`gone` in the layout) and holds nothing: ");
        assert!(said.starts_with(&expected), "{said}");
        std::fs::remove_dir_all(self.cluster.node_data(0, gone)).unwrap();
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
    until_one_award(&centre, &counted).await;
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
    // The last node goes on asking for fewer valves: clients carry on, whichever node leads its group meanwhile.
    for node in 0..NODES {
        let (status, said) = centre.nodes[node].0.terminate().await;
        assert!(status.success() && !has_error(&said), "{said}");
        if node < 2 {
            centre.cluster.ask_for_valves(0, node, 13);
        }
        centre.restart(node).await;
    }
    load.until_further(200).await;
    for node in 0..2 {
        centre.until_leads_its_own(node).await;
        // It leads before the entry of its start, which says how many valves there are, is applied.
        until("13 valves", async || (centre.valves(node).await == 13).then_some(())).await;
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
    centre.grow(&load).await;
    ready(centre.http).await;
    for (node, group, holders) in [(0, 0, [0, 1, 2]), (1, 1, [1, 2, 3]), (2, 2, [0, 2, 3]), (3, 3, [0, 1, 3])] {
        centre.until_leads_its_own(node).await;
        centre.until_held_by(node, group, &holders).await;
    }
    // A client that knows of it, with all increments going to the new group and to the group that lost its first holder.
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
    until_one_award(&centre, &counted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_four_is_taken_away_while_counting_and_another_may_then_be_killed() {
    let mut centre = Centre::of(4).await;
    arm(centre.http, QUERIES, &[MILESTONE]).await;
    let load = centre.load().await;
    load.until_further(200).await;
    centre.take_away(1, &[2, 0, 3], &load).await;
    for (node, group, leads) in [(0, 0, true), (2, 1, true), (2, 2, true), (3, 3, true), (0, 1, false)] {
        centre.until_held_by(node, group, &[0, 2, 3]).await;
        centre.until_leads(node, group, leads).await;
    }
    // It leads the group of the node that was taken away, too.
    centre.nodes[2].0.kill();
    load.until_further(300).await;
    let second = centre.load().await;
    second.until_further(300).await;
    centre.restart(2).await;
    let counted = Counted::sum([load.finish().await, second.finish().await]);
    until_one_award(&centre, &counted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_centre_of_three_grows_and_shrinks_to_three_others_while_counting() {
    let mut centre = Centre::start().await;
    arm(centre.http, QUERIES, &[MILESTONE]).await;
    let load = centre.load().await;
    load.until_further(200).await;
    centre.grow(&load).await;
    centre.until_held_by(2, 2, &[0, 2, 3]).await;
    // The next change waits until the last one is done everywhere.
    for (node, group) in [(0, 1), (1, 2), (2, 3)] {
        centre.until_rid_of(node, group).await;
    }
    centre.take_away(0, &[1, 2, 3], &load).await;
    for group in 0..4 {
        centre.until_held_by(3, group, &[1, 2, 3]).await;
    }
    centre.nodes[1].0.kill();
    load.until_further(300).await;
    centre.restart(1).await;
    let counted = load.finish().await;
    until_one_award(&centre, &counted).await;
}

/// Buckets of history take little memory here, and checkpoints are made often.
const LITTLE: &str = "[group]\nbuckets_memory_mib = 1\n[log]\ncheckpoint_interval_ms = 500\n";
/// Their history takes more than that: a client counts all of it at one group.
const COUNTERS: u64 = 1_000;
/// More than are kept behind a checkpoint for members that lack some.
const ENTRIES: u64 = 1_200;

/// Clients choose a group each: with this number there is a client at each.
const CLIENTS: usize = 12;

/// Old buckets have left the memory of a node, which has applied this number of entries of each group.
async fn keeps_within(centre: &Centre, node: usize, entries: u64) {
    until("memory within its budget", async || {
        let groups = centre.groups(node).await.filter(|groups| groups.len() == NODES)?;
        let all = |name: &str| groups.iter().map(|group| group[name].as_u64()).collect::<Option<Vec<_>>>();
        let fit = all("buckets_bytes")?.iter().zip(all("buckets_bytes_max")?).all(|(bytes, most)| *bytes <= most);
        let far = all("applied")?.iter().all(|applied| *applied > entries);
        (fit && far && all("rows_shelved")?.iter().any(|rows| *rows > 0)).then_some(())
    })
    .await;
}

/// Counts late of what has left memory, and waits until it is shown.
async fn late_is_shown(centre: &Centre, value: &mut u64) {
    shelved::late(centre.http).await;
    *value += 1_000;
    until("what came late", async || {
        let (_, window) = http::get(centre.http, "/v1/counters/search/answer/3/window?last=600d").await?;
        (window["counted"]["value"] == *value).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_buckets_leave_the_memory_of_every_node_and_one_that_lost_its_disk_has_them_from_another() {
    let cluster = Cluster::with_nodes(&["usa-0"], NODES);
    std::fs::write(cluster.path("layout.toml"), cluster.layout_text(&cluster.aggregators) + shelved::SERIES).unwrap();
    (0..NODES).for_each(|node| cluster.configure_node(0, node, LITTLE));
    let mut centre = Centre::on(cluster, NODES).await;
    // One of each group at least.
    for number in 0..12 {
        shelved::probe(centre.http, &format!("search/probe/{number}")).await;
    }
    let mut loads = Vec::new();
    for _ in 0..CLIENTS {
        loads.push(Load::start(centre.cluster.client(&[0]).await, 1));
    }
    shelved::history(&centre.cluster.path("history.csv"), COUNTERS);
    shelved::load(&centre.cluster, centre.http, "history.csv");
    for node in 0..NODES {
        keeps_within(&centre, node, ENTRIES).await;
    }
    let mut value = until("all that was loaded", async || {
        let counters = shelved::buckets(centre.http).await?;
        let (_, window) = http::get(centre.http, "/v1/counters/search/answer/3/window?last=600d").await?;
        window["counted"]["value"].as_u64().filter(|_| counters.len() as u64 == COUNTERS)
    })
    .await;
    late_is_shown(&centre, &mut value).await;
    centre.nodes[0].0.kill();
    std::fs::remove_dir_all(centre.cluster.node_data(0, 0)).unwrap();
    for load in &loads {
        load.until_further(10).await;
    }
    centre.restart(0).await;
    centre.until_leads_its_own(0).await;
    late_is_shown(&centre, &mut value).await;
    // Any of them leads what another one led.
    for node in [1, 2, 0] {
        centre.nodes[node].0.kill();
        late_is_shown(&centre, &mut value).await;
        centre.restart(node).await;
        centre.until_leads_its_own(node).await;
        keeps_within(&centre, node, ENTRIES).await;
    }
    let counted = Counted::sum(futures_util::future::join_all(loads.into_iter().map(Load::finish)).await);
    counted.until_shown(&[centre.http]).await;
    for counter in 0..20 {
        let (is_well, said) =
            operate(&centre.cluster, centre.http, &["audit", &format!("search/answer/{counter}"), "--json"]);
        assert!(is_well, "{said}");
    }
}

/// Everything that was acknowledged is shown once, and the milestone was awarded once.
async fn until_one_award(centre: &Centre, counted: &Counted) {
    counted.until_shown(&[centre.http]).await;
    let won = until("the award", async || awards(centre.http, QUERIES).await.filter(|awards| !awards.is_empty())).await;
    assert_eq!((won.len(), &won[0]["at"]), (1, &MILESTONE.into()));
    assert_eq!(counted.milestones.len(), 1, "{:?}", counted.milestones);
}
