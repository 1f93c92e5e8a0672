//! The faults of a soak: at random times, one after the other, some of them at once in different data centres. Only so few nodes of a data
//! centre suffer at a time that every acknowledged increment must survive.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use tokio::time::{Instant, sleep_until};

use super::cluster::{Kind, SoakCluster};
use tidemark_testkit::relay::Relay;

/// A process that is told to end does so within this.
const TERM_MAX: Duration = Duration::from_secs(10);
/// A node that lost its disk has this long to catch up before another node of its data centre suffers.
const CATCH_UP: Duration = Duration::from_secs(20);
/// How late everything is on a slow link, each way.
const SLOW: Duration = Duration::from_millis(150);
/// How late everything is between a node and the other processes of its data centre when those links are slow, each way.
const NEAR_SLOW: Duration = Duration::from_millis(50);
/// After the faults, all processes are ready within this.
const READY_MAX: Duration = Duration::from_secs(120);

/// A fault, and its later end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undo {
    StartNode { dc: usize, node: usize },
    StartNodeWithRoom { dc: usize, node: usize },
    GoOnNode { dc: usize, node: usize },
    StartAggregator { dc: usize, which: usize },
    GoOnAggregator { dc: usize, which: usize },
    Heal { dc: usize },
    HealNode { dc: usize, node: usize },
}

const LOST_DISK: &str = "node lost its disk";
const CUT_FROM_NODES: &str = "node cut off from the other nodes";
const SLOW_TO_NODES: &str = "node's links to the other nodes slow";

/// Faults that need other nodes.
const NEEDS_OTHERS: [&str; 3] = [LOST_DISK, CUT_FROM_NODES, SLOW_TO_NODES];

/// The possible faults, each as likely as the others; a kill of a node twice.
const KINDS: [&str; 15] = [
    "node killed",
    "node killed ",
    "node stopped for a while",
    "node told to end",
    LOST_DISK,
    "node's disk full",
    CUT_FROM_NODES,
    SLOW_TO_NODES,
    "node cut off from its aggregators",
    "node's links to its aggregators slow",
    "aggregator killed",
    "aggregator stopped for a while",
    "aggregator told to end",
    "data centre cut off",
    "data centre's links slow",
];

/// Faults under way, and those that were.
pub struct Faults {
    rng: ChaCha8Rng,
    every_s: f64,
    counts: BTreeMap<&'static str, u64>,
    undo: Vec<(Instant, Undo)>,
    /// By data centre: none of its nodes, aggregators or links suffers before.
    nodes_free: BTreeMap<usize, Instant>,
    aggregator_free: BTreeMap<usize, Instant>,
    links_free: BTreeMap<usize, Instant>,
}

impl Faults {
    pub fn new(rng: ChaCha8Rng, every_s: f64) -> Faults {
        let (counts, undo) = Default::default();
        let (nodes_free, aggregator_free, links_free) = Default::default();
        Faults { rng, every_s, counts, undo, nodes_free, aggregator_free, links_free }
    }

    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.clone()
    }

    /// Lets things happen for so long.
    pub async fn run(&mut self, cluster: &mut SoakCluster, span: Duration) -> Result<(), Box<dyn Error>> {
        let end = Instant::now() + span;
        let mut next = self.next(end);
        loop {
            let undo = self.undo.iter().map(|(at, _)| *at).min().unwrap_or(end);
            sleep_until(undo.min(next).min(end)).await;
            self.undo_due(cluster, Instant::now())?;
            if Instant::now() >= end {
                return Ok(());
            }
            if Instant::now() >= next {
                self.happen(cluster).await?;
                next = self.next(end);
            }
        }
    }

    fn next(&mut self, end: Instant) -> Instant {
        match self.every_s {
            0.0 => end,
            every_s => Instant::now() + Duration::from_secs_f64(self.rng.random_range(0.2..1.8) * every_s),
        }
    }

    /// Undoes everything, and waits until all processes are ready.
    pub async fn end(&mut self, cluster: &mut SoakCluster) -> Result<(), Box<dyn Error>> {
        while let Some((_, undo)) = self.undo.pop() {
            carry_out(cluster, undo)?;
        }
        cluster.heal_all();
        Ok(cluster.until_ready(READY_MAX).await?)
    }

    fn undo_due(&mut self, cluster: &mut SoakCluster, now: Instant) -> Result<(), Box<dyn Error>> {
        for (_, undo) in self.undo.extract_if(.., |(at, _)| *at <= now) {
            carry_out(cluster, undo)?;
        }
        Ok(())
    }

    async fn happen(&mut self, cluster: &mut SoakCluster) -> Result<(), Box<dyn Error>> {
        let kind = KINDS[self.rng.random_range(0..KINDS.len())].trim_end();
        let dc = self.rng.random_range(0..cluster.dcs());
        let span = self.rng.random_range(1.0..8.0);
        let now = Instant::now();
        let until = now + Duration::from_secs_f64(span);
        let free = match kind {
            kind if kind.starts_with("node") => &mut self.nodes_free,
            kind if kind.starts_with("aggregator") => &mut self.aggregator_free,
            _ => &mut self.links_free,
        };
        let may = free.get(&dc).is_none_or(|at| *at <= now);
        let alone = NEEDS_OTHERS.contains(&kind) && cluster.all[dc].nodes.len() == 1;
        if !may || alone || (kind.starts_with("node") && !nodes_ready(cluster, dc).await) {
            return Ok(());
        }
        free.insert(dc, until + CATCH_UP / if kind == LOST_DISK { 1 } else { 5 });
        *self.counts.entry(kind).or_default() += 1;
        let node = self.rng.random_range(0..cluster.all[dc].nodes.len());
        let which = self.rng.random_range(0..cluster.all[dc].aggregators.len());
        let undo = begin(cluster, kind, dc, node, which).await?;
        self.undo.push((until, undo));
        Ok(())
    }
}

async fn nodes_ready(cluster: &SoakCluster, dc: usize) -> bool {
    for node in &cluster.all[dc].nodes {
        if node.is_ready().await.is_none() {
            return false;
        }
    }
    true
}

/// Begins a fault; how it ends.
async fn begin(
    cluster: &mut SoakCluster,
    kind: &str,
    dc: usize,
    node: usize,
    which: usize,
) -> Result<Undo, Box<dyn Error>> {
    let centre = &mut cluster.all[dc];
    Ok(match kind {
        "node killed" => {
            centre.nodes[node].kill();
            Undo::StartNode { dc, node }
        }
        "node stopped for a while" => {
            centre.nodes[node].signal("STOP");
            Undo::GoOnNode { dc, node }
        }
        "node told to end" => {
            centre.nodes[node].terminate(TERM_MAX).await;
            Undo::StartNode { dc, node }
        }
        LOST_DISK => {
            centre.nodes[node].kill();
            std::fs::remove_dir_all(&centre.nodes[node].data)?;
            Undo::StartNode { dc, node }
        }
        "node's disk full" => {
            centre.nodes[node].kill();
            centre.nodes[node].start_without_room()?;
            Undo::StartNodeWithRoom { dc, node }
        }
        CUT_FROM_NODES => {
            cluster.links_of_node(dc, node, Kind::Node, |relay| relay.cut());
            Undo::HealNode { dc, node }
        }
        SLOW_TO_NODES => {
            cluster.links_of_node(dc, node, Kind::Node, |relay| relay.delay(NEAR_SLOW));
            Undo::HealNode { dc, node }
        }
        "node cut off from its aggregators" => {
            cluster.links_of_node(dc, node, Kind::Aggregator, |relay| relay.cut());
            Undo::HealNode { dc, node }
        }
        "node's links to its aggregators slow" => {
            cluster.links_of_node(dc, node, Kind::Aggregator, |relay| relay.delay(NEAR_SLOW));
            Undo::HealNode { dc, node }
        }
        "aggregator killed" => {
            centre.aggregators[which].kill();
            Undo::StartAggregator { dc, which }
        }
        "aggregator stopped for a while" => {
            centre.aggregators[which].signal("STOP");
            Undo::GoOnAggregator { dc, which }
        }
        "aggregator told to end" => {
            centre.aggregators[which].terminate(TERM_MAX).await;
            Undo::StartAggregator { dc, which }
        }
        "data centre cut off" => {
            cluster.links_of(dc, |relay| relay.cut());
            Undo::Heal { dc }
        }
        _ => {
            cluster.links_of(dc, |relay| relay.delay(SLOW));
            Undo::Heal { dc }
        }
    })
}

fn carry_out(cluster: &mut SoakCluster, undo: Undo) -> Result<(), Box<dyn Error>> {
    match undo {
        Undo::StartNode { dc, node } => cluster.all[dc].nodes[node].start()?,
        Undo::StartNodeWithRoom { dc, node } => {
            cluster.all[dc].nodes[node].kill();
            cluster.all[dc].nodes[node].start()?;
        }
        Undo::GoOnNode { dc, node } => cluster.all[dc].nodes[node].signal("CONT"),
        Undo::StartAggregator { dc, which } => cluster.all[dc].aggregators[which].start()?,
        Undo::GoOnAggregator { dc, which } => cluster.all[dc].aggregators[which].signal("CONT"),
        Undo::Heal { dc } => cluster.links_of(dc, heal),
        Undo::HealNode { dc, node } => {
            let all = [Kind::Node, Kind::Aggregator].into_iter();
            all.for_each(|with| cluster.links_of_node(dc, node, with, heal));
        }
    }
    Ok(())
}

fn heal(relay: &Relay) {
    relay.heal();
    relay.delay(Duration::ZERO);
}
