//! Three data centres: the ledger's leader dies around milestones, one data centre is cut off and healed, one is gone and its
//! front end moves. Each n-th is one increment, the same everywhere, and totals equal what was acknowledged.

use crate::cluster::{
    Centre, Cluster, PLAIN, QUERIES, Role, arm, arm_under, awards, free_address, leader, until_views_show,
};
use crate::http;
use crate::load::{Counted, Load};
use crate::process::until;
use serde_json::Value;
use std::net::SocketAddr;
use tidemark_testkit::relay::Relay;

const DCS: [&str; 3] = ["usa-0", "europe-0", "asia-0"];
const MILESTONES: [u64; 3] = [1_000, 2_000, 3_000];

fn views(centres: &[Centre]) -> Vec<SocketAddr> {
    centres.iter().map(|centre| centre.http).collect()
}

/// Kills the aggregator that leads the ledger, waits until another one leads, and starts it again.
async fn replace_leader(cluster: &Cluster, centres: &mut [Centre]) {
    let first = centres[0].http;
    let name = until("a leader of the ledger", async || leader(first).await).await;
    let leading = DCS.iter().position(|&dc| dc == name).unwrap();
    let other = centres[(leading + 1) % DCS.len()].http;
    centres[leading].aggregator.kill();
    until("another leader", async || leader(other).await.filter(|now| *now != name)).await;
    (centres[leading].aggregator, centres[leading].http) = cluster.start(leading, Role::Aggregator).await;
}

async fn until_awarded(http: SocketAddr, count: usize) -> Vec<Value> {
    until("awards", async || awards(http, QUERIES).await.filter(|awards| awards.len() >= count)).await
}

async fn until_shown_total(http: SocketAddr, total: u64) {
    until("a total", async || http::reading(http, QUERIES).await.filter(|(value, pending)| value + pending >= total))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_lost_while_counting_and_around_a_milestone_costs_time_and_no_award() {
    let cluster = Cluster::new(&DCS);
    let mut centres = cluster.centres().await;
    arm(centres[1].http, QUERIES, &MILESTONES).await;
    let mut loads = Vec::new();
    for dc in 0..DCS.len() {
        loads.push(Load::start(cluster.client(&[dc]).await, 1));
    }
    until_shown_total(centres[1].http, MILESTONES[0] / 3).await;
    replace_leader(&cluster, &mut centres).await;
    until_shown_total(centres[1].http, MILESTONES[0] - 30).await;
    replace_leader(&cluster, &mut centres).await;
    until_shown_total(centres[1].http, MILESTONES[1] - 30).await;
    centres[2].node.kill();
    centres[2].node = cluster.node(2).await;
    until_shown_total(centres[1].http, MILESTONES[2] - 30).await;
    centres[0].node.kill();
    replace_leader(&cluster, &mut centres).await;
    centres[0].node = cluster.node(0).await;
    until_awarded(centres[1].http, MILESTONES.len()).await;
    let mut counted = Vec::new();
    for load in loads {
        counted.push(load.finish().await);
    }
    let counted = Counted::sum(counted);
    counted.until_shown(&views(&centres)).await;
    check_awards(&counted, &centres, &MILESTONES).await;
    let below = counted.queries - 1;
    let body = format!(r#"{{"at":[{below}]}}"#);
    let refused = http::send(centres[2].http, "PUT", "/v1/counters/search/queries/milestones", &body).await.unwrap();
    let message = format!("milestone {below} is not above the count, which is {}", counted.queries);
    assert_eq!((refused.0, &refused.1["error"]["message"]), (409, &message.into()));
}

/// Each n-th was told that it is, and no other; every data centre knows the same awards.
async fn check_awards(counted: &Counted, centres: &[Centre], milestones: &[u64]) {
    let exact: Vec<_> = milestones.iter().map(|&at| (at, at)).collect();
    assert_eq!(counted.milestones, exact);
    assert!(counted.numbers.values().all(|times| *times == 1), "{:?}", counted.numbers);
    let known = until_awarded(centres[0].http, milestones.len()).await;
    let number = |award: &Value, name: &str| award[name].as_u64().unwrap();
    let told: Vec<_> = known.iter().map(|award| (number(award, "at"), number(award, "first"))).collect();
    assert_eq!(told, exact, "{known:?}");
    for centre in &centres[1..] {
        assert_eq!(until_awarded(centre.http, milestones.len()).await, known, "the same in every data centre");
    }
}

/// A cluster with a last data centre that the others reach only through a relay.
async fn behind_a_relay() -> (Cluster, Relay, Vec<Centre>) {
    let cluster = Cluster::new(&DCS);
    let last = DCS.len() - 1;
    let relay = Relay::start(free_address(), cluster.aggregators[last]).await.unwrap();
    let mut addresses = cluster.aggregators.clone();
    addresses[last] = relay.address;
    std::fs::write(cluster.path("relayed.toml"), cluster.layout_text(&addresses)).unwrap();
    // Of two data centres the one that stands first dials.
    (0..last).for_each(|dc| cluster.write_config(dc, Role::Aggregator, "relayed.toml"));
    let centres = cluster.centres().await;
    (cluster, relay, centres)
}

/// The milestone lies in the time in which the last data centre, which holds rights, is cut off.
const MILESTONE_WHILE_CUT: u64 = 1_200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_centre_that_is_cut_off_or_gone_is_missed_by_nobody_and_totals_are_equal_afterwards() {
    let (cluster, relay, mut centres) = behind_a_relay().await;
    arm(centres[0].http, QUERIES, &[MILESTONE_WHILE_CUT]).await;
    let mut loads = Vec::new();
    for sites in [[0, 1, 2], [1, 0, 2], [2, 0, 1]] {
        loads.push(Load::start(cluster.client(&sites).await, 1));
    }
    loads[2].until_further(100).await;
    relay.cut();
    for load in &loads {
        load.until_further(300).await;
    }
    // It admits clients, its readers see its own counts go on, and its node may even start again.
    loads.push(Load::start(cluster.client(&[2]).await, 1));
    loads[3].until_further(50).await;
    centres[2].node.kill();
    centres[2].node = cluster.node(2).await;
    let own = async || http::reading(centres[2].http, PLAIN).await.map(|(value, _)| value);
    let before = until("a reading", own).await;
    until("own counts", async || own().await.filter(|value| *value >= before + 200)).await;
    let all = || loads.iter().map(|load| load.tally.acknowledged()).sum::<u64>();
    until("the milestone's time", async || (all() > MILESTONE_WHILE_CUT + 100).then_some(())).await;
    relay.heal();
    until_awarded(centres[2].http, 1).await;

    centres[1].node.kill();
    centres[1].aggregator.kill();
    loads[1].until_further(200).await;
    centres[1] = cluster.centre(1).await;
    let mut counted = Vec::new();
    for load in loads {
        counted.push(load.finish().await);
    }
    let counted = Counted::sum(counted);
    counted.until_shown(&views(&centres)).await;
    check_awards(&counted, &centres, &[MILESTONE_WHILE_CUT]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_timely_a_winner_is_named_while_a_data_centre_is_cut_off_and_nothing_is_lost() {
    let (cluster, relay, centres) = behind_a_relay().await;
    arm_under(centres[0].http, QUERIES, &[MILESTONE_WHILE_CUT], "timely").await;
    let body = format!(r#"{{"at":[{MILESTONE_WHILE_CUT}],"policy":"strict"}}"#);
    let refused = http::send(centres[1].http, "PUT", "/v1/counters/search/queries/milestones", &body).await.unwrap();
    assert_eq!((refused.0, &refused.1["error"]["code"]), (409, &"policy".into()), "{}", refused.1);
    let mut loads = Vec::new();
    for dc in 0..DCS.len() {
        loads.push(Load::start(cluster.client(&[dc]).await, 1));
    }
    loads[2].until_further(100).await;
    relay.cut();
    // It is not healed before: the award does not wait for what the data centre holds.
    let named = until_awarded(centres[0].http, 1).await;
    assert_eq!(until_awarded(centres[1].http, 1).await, named);
    loads[2].until_further(100).await;
    relay.heal();
    assert_eq!(until_awarded(centres[2].http, 1).await, named);
    let mut counted = Vec::new();
    for load in loads {
        counted.push(load.finish().await);
    }
    let counted = Counted::sum(counted);
    counted.until_shown(&views(&centres)).await;
    check_awards(&counted, &centres, &[MILESTONE_WHILE_CUT]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_over_http_are_counted_where_they_are_made_and_seen_everywhere() {
    let cluster = Cluster::new(&DCS[..1]);
    let centres = cluster.centres().await;
    let added = http::send(centres[0].http, "POST", "/v1/counters/search/a%2Fb/add", "").await.unwrap();
    assert_eq!((added.0, &added.1["place"]), (200, &"counted".into()), "in {}", cluster.name(0));
    until_views_show(&views(&centres), "search/a/b", 1).await;
}
