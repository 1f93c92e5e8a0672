//! Measurements of the wide-area layout: when a proposal is applied at the leader and at the farthest learner.
//!
//! `cargo bench -p tidemark-consensus --bench raft_latency`; `FLUSH_MS` adds to every flush.

#[path = "../tests/raft/common.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidemark_consensus::raft::{App, ApplyError, Config, RaftNode, RaftService, RestoreError};
use tidemark_consensus::testing::{Link, MemoryNetwork};

/// One-way delay from the leader to voters 2 to 5: the third of five to have the entry answers after 40 ms.
const VOTERS_MS: [u64; 4] = [12, 20, 45, 70];
/// One-way delay from the leader to learners 6 to 15.
const LEARNERS_MS: [u64; 10] = [5, 15, 25, 35, 50, 65, 80, 90, 100, 115];
const QUORUM_RTT_MS: u64 = 40;

/// When each command, a number, was applied by a member.
#[derive(Clone, Default)]
struct Applied(Arc<Mutex<BTreeMap<u64, Instant>>>);

impl App for Applied {
    fn apply(&mut self, _index: u64, command: &[u8]) -> Result<(), ApplyError> {
        let number = u64::from_be_bytes(command[..8].try_into().unwrap());
        self.0.lock().unwrap().insert(number, Instant::now());
        Ok(())
    }

    fn snapshot(&self) -> Bytes {
        Bytes::new()
    }

    fn restore(&mut self, _snapshot: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }
}

struct Layout {
    nodes: Vec<(RaftNode, Applied, Arc<dyn RaftService>)>,
    network: MemoryNetwork,
    _dir: tempfile::TempDir,
}

async fn layout() -> Layout {
    let dir = tempfile::tempdir().unwrap();
    let network = MemoryNetwork::new(1, Link { delay: Duration::from_millis(40), ..Link::default() });
    for (id, delay) in (2..).zip(VOTERS_MS.iter().chain(&LEARNERS_MS)) {
        let link = Link { delay: Duration::from_millis(*delay), ..Link::default() };
        network.set_link(1, id, link);
        network.set_link(id, 1, link);
    }
    let mut nodes = Vec::new();
    for id in 1..=15u64 {
        let applied = Applied::default();
        let path = dir.path().join(format!("{id}.redb"));
        let config = Config { flush_delay: flush_delay(), ..Config::new("demo", "ledger") };
        let transport = network.transport(id);
        let node = RaftNode::start(id, path.into(), config, transport, Box::new(applied.clone()), Box::new(|_| ()))
            .await
            .unwrap();
        let service = node.service();
        network.attach(id, &service);
        nodes.push((node, applied, service));
    }
    let leader = nodes[0].0.clone();
    leader.initialize((1..=5).collect()).await.unwrap();
    leader.metrics().until(|metrics| metrics.leader.is_some()).await.unwrap();
    while !leader.is_leader() {
        let holder = leader.leader().unwrap_or(1) as usize;
        let _ = nodes[holder - 1].0.prefer_leader(1).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    while leader.read_index().await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for id in 6..=15 {
        leader.add_learner(id).await.unwrap();
    }
    let caught_up = |last: Option<u64>| last.is_some_and(|last| last >= 10);
    leader.metrics().until(|m| m.matched.len() == 15 && m.matched.values().all(|m| caught_up(*m))).await.unwrap();
    Layout { nodes, network, _dir: dir }
}

fn flush_delay() -> Duration {
    let millis = std::env::var("FLUSH_MS").ok().and_then(|text| text.parse().ok());
    Duration::from_millis(millis.unwrap_or(0))
}

fn show(what: &str, mut millis: Vec<f64>) {
    millis.sort_by(f64::total_cmp);
    let at = |share: f64| millis[((millis.len() - 1) as f64 * share) as usize];
    println!("{what}: p50 {:.1} p99 {:.1} max {:.1} ms of {}", at(0.5), at(0.99), at(1.0), millis.len());
}

/// CPU time of this process so far, in seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

async fn load(layout: &Layout, first: u64, per_second: u64, seconds: u64) {
    let leader = &layout.nodes[0].0;
    let count = per_second * seconds;
    let mut interval = tokio::time::interval(Duration::from_micros(1_000_000 / per_second));
    let mut sent = BTreeMap::new();
    let mut proposals = Vec::new();
    let cpu = cpu_seconds();
    let messages = layout.network.messages();
    for number in first..first + count {
        interval.tick().await;
        sent.insert(number, Instant::now());
        let node = leader.clone();
        let command = Bytes::copy_from_slice(&[&number.to_be_bytes()[..], &[0; 92]].concat());
        proposals.push(tokio::spawn(async move { node.propose(vec![command]).await.unwrap() }));
    }
    for proposal in proposals {
        proposal.await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let cpu = cpu_seconds() - cpu;
    let messages = layout.network.messages() - messages;
    println!(
        "-- {per_second}/s: CPU of all 15 {:.1} %, {} messages/s",
        cpu * 100.0 / seconds as f64,
        messages / seconds
    );
    report(layout, &sent);
}

fn report(layout: &Layout, sent: &BTreeMap<u64, Instant>) {
    let late = |id: usize, minus_ms: u64| -> Vec<f64> {
        let applied = layout.nodes[id - 1].1.0.lock().unwrap();
        let millis = |(number, at): (&u64, &Instant)| (applied[number] - *at).as_secs_f64() * 1e3 - minus_ms as f64;
        sent.iter().map(millis).collect()
    };
    show("   applied at the leader", late(1, 0));
    for (id, delay) in [(6, 5), (10, 50), (15, 115)] {
        show(
            &format!("   applied at the learner {delay} ms away, beyond quorum + one way"),
            late(id, QUORUM_RTT_MS + delay),
        );
    }
}

async fn wide_area_latency_and_idle_cost() {
    let layout = layout().await;
    println!("flush delay {:?}", flush_delay());
    load(&layout, 0, 20, 10).await;
    load(&layout, 1_000_000, 200, 10).await;
    load(&layout, 2_000_000, 2000, 5).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let cpu = cpu_seconds();
    let messages = layout.network.messages();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let cpu = cpu_seconds() - cpu;
    let messages = layout.network.messages() - messages;
    println!("-- idle: CPU of all 15 {:.2} %, {} messages/s", cpu * 10.0, messages / 10);
}

/// Proposals per second of 1,024 writers, each waiting for its own, in a group of three.
async fn throughput(delay_ms: u64, flush_ms: u64) -> f64 {
    const WRITERS: u64 = 1024;
    let seconds = Duration::from_secs(4);
    let config = Config { flush_delay: Duration::from_millis(flush_ms), ..common::config() };
    let group = common::Group::of_voters(3, config).await;
    let link = Link { delay: Duration::from_millis(delay_ms), ..Link::default() };
    for (from, to) in (1..=3).flat_map(|from| (1..=3).map(move |to| (from, to))) {
        group.network.set_link(from, to, link);
    }
    let leader = group.node(group.leader().await).clone();
    let started = Instant::now();
    let writers = (0..WRITERS).map(|_| {
        let leader = leader.clone();
        tokio::spawn(async move {
            let mut done = 0u64;
            while started.elapsed() < seconds {
                leader.propose(vec![Bytes::from_static(&[b'x'; 100])]).await.unwrap();
                done += 1;
            }
            done
        })
    });
    let mut done = 0;
    for writer in writers.collect::<Vec<_>>() {
        done += writer.await.unwrap();
    }
    done as f64 / started.elapsed().as_secs_f64()
}

async fn throughput_of_three_members() {
    for (delay_ms, flush_ms) in [(0, 0), (0, 2), (20, 2)] {
        let rate = throughput(delay_ms, flush_ms).await;
        println!("{delay_ms} ms one way, {flush_ms} ms flush, 1,024 writers: {rate:.0} proposals/s");
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    wide_area_latency_and_idle_cost().await;
    throughput_of_three_members().await;
}
