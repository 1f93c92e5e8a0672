//! The majority of a data centre's disks is lost for good while it counts and holds rights. Others go on, and a strict milestone waits and
//! names the group; an operator declares the groups lost, the milestone is awarded once, and the data centre is founded anew.

use crate::cluster::{Cluster, QUERIES, Role, arm, awards, ready};
use crate::http;
use crate::load::Load;
use crate::process::{Process, run, until};
use serde_json::Value;
use std::net::SocketAddr;

const DCS: [(&str, usize); 3] = [("usa-0", 1), ("europe-0", 3), ("asia-0", 1)];
const LOST: usize = 1;
const MILESTONE: u64 = 2_000;

struct Centres {
    cluster: Cluster,
    /// By data centre and node.
    nodes: Vec<Vec<(Process, SocketAddr)>>,
    aggregators: Vec<(Process, SocketAddr)>,
}

impl Centres {
    async fn start() -> Centres {
        let cluster = Cluster::with_nodes_each(&DCS);
        let mut nodes = Vec::new();
        let mut aggregators = Vec::new();
        for (dc, (_, count)) in DCS.iter().enumerate() {
            let mut of_dc = Vec::new();
            for node in 0..*count {
                of_dc.push(cluster.start_node(dc, node).await);
            }
            nodes.push(of_dc);
            aggregators.push(cluster.start(dc, Role::Aggregator).await);
        }
        let centres = Centres { cluster, nodes, aggregators };
        for dc in 0..DCS.len() {
            ready(centres.http(dc)).await;
            centres.until_nodes_serve(dc).await;
        }
        centres
    }

    fn http(&self, dc: usize) -> SocketAddr {
        self.aggregators[dc].1
    }

    async fn until_nodes_serve(&self, dc: usize) {
        for (_, http) in &self.nodes[dc] {
            until("a node that serves", async || http::get(*http, "/readyz").await.filter(|(code, _)| *code == 200))
                .await;
        }
    }

    /// Two of three nodes die, and come back with nothing.
    async fn lose_majority(&mut self) {
        for node in [1, 2] {
            self.nodes[LOST][node].0.kill();
        }
        for node in [1, 2] {
            std::fs::remove_dir_all(self.cluster.node_data(LOST, node)).unwrap();
            self.nodes[LOST][node] = self.cluster.start_node(LOST, node).await;
        }
    }

    /// Runs `declare-lost` on the process of a data centre; whether it succeeded, and what it said.
    fn declare_lost(&self, at: usize, group: &str, more: &[&str]) -> (bool, String) {
        let server = format!("http://{}", self.http(at));
        let token = self.cluster.path("token");
        let mut arguments = vec!["declare-lost", group, "--server", &server, "--token-file", token.to_str().unwrap()];
        arguments.extend(more);
        let output = run(&arguments);
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    }

    /// It is said why the milestone is not awarded, and what may be done; returns the silent groups.
    async fn until_all_say_why(&self) -> Vec<String> {
        let why = until("what it waits for", async || waits_for(self.http(0)).await).await;
        assert!(why.contains("tidemark declare-lost europe-0/"), "{why}");
        for (_, http) in &self.nodes[LOST] {
            let says = async || {
                let (code, status) = http::get(*http, "/v1/status").await?;
                let reason = status["reason"].as_str()?.to_owned();
                (code == 200 && reason.contains("tidemark declare-lost europe-0/")).then_some(())
            };
            until("a node that says that the majority is gone", says).await;
        }
        let silent = async || {
            let (_, status) = http::get(self.http(LOST), "/v1/status").await?;
            status["silent_groups"].as_array().filter(|groups| groups.len() == 3).cloned()
        };
        let silent: Vec<Value> = until("three silent groups", silent).await;
        silent.iter().map(|group| group["group"].as_str().unwrap().to_owned()).collect()
    }

    /// If its own aggregator can be asked, that aggregator decides; nothing is done without --yes, nor to a group that is heard of.
    fn check_refusals(&self) {
        let (done, said) = self.declare_lost(0, "europe-0/0", &["--yes"]);
        assert!(!done && said.contains("europe-0 can be reached"), "{said}");
        let (done, said) = self.declare_lost(LOST, "europe-0/0", &[]);
        assert!(done && said.contains("may be lost") && said.ends_with("repeat it with --yes.\n"), "{said}");
        let (done, said) = self.declare_lost(LOST, "usa-0/0", &["--yes"]);
        assert!(!done && said.contains("usa-0 can be reached"), "{said}");
        let (done, said) = self.declare_lost(0, "usa-0/0", &["--yes"]);
        assert!(!done && said.contains("was heard of 0 s ago"), "{said}");
    }

    fn declare(&self, group: &str) {
        let (done, said) = self.declare_lost(LOST, group, &["--yes"]);
        assert!(done && said.contains(&format!("{group} is declared lost")), "{said}");
        let (done, said) = self.declare_lost(LOST, group, &["--yes"]);
        assert!(!done && said.contains("was declared lost before"), "{said}");
    }
}

/// The groups that a milestone waits for, as a data centre says it.
async fn waits_for(http: SocketAddr) -> Option<String> {
    let (_, list) = http::get(http, "/v1/counters/search/queries/milestones").await?;
    let next = list["milestones"].as_array()?.iter().find(|status| status["at"] == MILESTONE)?.clone();
    next["waits_for"].as_array()?.first()?.as_str().map(str::to_owned)
}

async fn value(http: SocketAddr) -> Option<u64> {
    http::reading(http, QUERIES).await.filter(|(_, pending)| *pending == 0).map(|(value, _)| value)
}

async fn written_off(http: SocketAddr) -> u64 {
    let path = format!("/v1/awards/search/queries/{MILESTONE}/certificate");
    let (_, certificate) = until("a certificate", async || http::get(http, &path).await).await;
    certificate["written_off"].as_u64().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_majority_of_a_data_centres_disks_is_lost_it_says_so_is_declared_lost_and_founded_anew() {
    let mut centres = Centres::start().await;
    let views: Vec<SocketAddr> = (0..DCS.len()).map(|dc| centres.http(dc)).collect();
    arm(views[0], QUERIES, &[MILESTONE]).await;
    let mut loads = Vec::new();
    for dc in 0..DCS.len() {
        loads.push(Load::start(centres.cluster.client(&[dc]).await, 2));
    }
    for load in &loads {
        load.until_further(100).await;
    }
    centres.lose_majority().await;

    // The others count on; the milestone's time comes and goes.
    let others = || loads[0].tally.acknowledged() + loads[2].tally.acknowledged();
    until("the milestone's time", async || (others() > MILESTONE).then_some(())).await;
    let silent = centres.until_all_say_why().await;
    centres.check_refusals();
    assert_eq!(awards(views[0], QUERIES).await, Some(Vec::new()));
    silent.iter().for_each(|group| centres.declare(group));

    // One award, everywhere the same, and the data centre counts again.
    let won = until("the award", async || awards(views[0], QUERIES).await.filter(|awards| !awards.is_empty())).await;
    assert_eq!((won.len(), &won[0]["at"]), (1, &MILESTONE.into()));
    centres.until_nodes_serve(LOST).await;
    loads[LOST].until_further(200).await;
    let second = value(views[0]).await.unwrap_or(MILESTONE) + 3_000;
    arm_another(views[0], second).await;
    let both =
        until("the next award", async || awards(views[LOST], QUERIES).await.filter(|list| list.len() == 2)).await;
    assert_eq!(both[0], won[0]);

    // The answers to clients are shown, but for the increments that were declared lost.
    let given_up = written_off(views[2]).await;
    let in_doubt = loads.remove(LOST).finish_in_doubt().await;
    let mut acknowledged = in_doubt.0;
    for load in loads {
        acknowledged += load.finish().await.queries;
    }
    let total = until("equal views", async || {
        let first = value(views[0]).await?;
        for &view in &views[1..] {
            value(view).await.filter(|other| *other == first)?;
        }
        (first + given_up >= acknowledged).then_some(first)
    })
    .await;
    assert!(given_up > 0 && total <= acknowledged + in_doubt.1, "{total} shown of {acknowledged}, {in_doubt:?}");
    assert_eq!(awards(views[0], QUERIES).await.map(|list| list.len()), Some(2));
}

/// Defines a further milestone and waits until it is armed.
async fn arm_another(http: SocketAddr, at: u64) {
    let path = "/v1/counters/search/queries/milestones";
    let body = format!(r#"{{"at":[{at}]}}"#);
    until("a definition", async || http::send(http, "PUT", path, &body).await.filter(|(code, _)| *code == 200)).await;
    until("an armed milestone", async || {
        let (_, list) = http::get(http, path).await?;
        let armed = |status: &Value| status["at"] == at && status["state"] == "armed";
        list["milestones"].as_array()?.iter().any(armed).then_some(())
    })
    .await;
}
