//! A data centre of three nodes with each group's log on all of them: the increments that it makes durable per second, their latency, and
//! the pause of answers when one of the nodes is killed.

use std::error::Error;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidemark_client::{Client, HitError, Site};
use tidemark_proto::ids::{CounterName, SessionId};
use tidemark_transport::Credentials;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::child::TaskChild;
use super::cluster::{Cluster, NAMESPACE, Options};
use super::line::{Asked, Sample};
use super::load::{Content, Pace};
use super::node::{GUARDED, HITS_WINDOW, MILESTONE, load, rate};
use super::task::{Place, Said, Task, say, wait_for_start};
use super::{BenchError, Plan};

const NODES: usize = 3;
/// While a node is killed.
const COUNT_PER_S: u64 = 1_000;
const TICK: Duration = Duration::from_millis(5);
/// From a kill until the node is started again, and from there to the next.
const APART: Duration = Duration::from_secs(5);

/// Counts by the client library; ends when its standard input does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CountTask {
    pub place: Place,
    pub per_s: u64,
    pub seconds: f64,
}

/// The result of a count.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CountReport {
    pub sent: u64,
    pub durable: u64,
    pub unknown: u64,
    pub failed: u64,
    /// From when a hit was handed to the client until it was durable: the longest.
    pub longest_ms: f64,
}

/// `replicas`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let mut cluster = Cluster::start_as(Options { nodes: NODES, flush_delay: plan.flush_delay, ..Options::default() })?;
    cluster.arm(GUARDED, MILESTONE)?;
    let content = || Content::Hits { key: GUARDED.to_owned() };
    let promised = |asked: Asked, must: f64| if plan.rate.is_some() { asked } else { asked.must(must) };
    let open = load(&mut cluster, plan, content(), Pace::Rate { per_s: plan.rate_or(50_000.0) })?;
    let most = load(&mut cluster, plan, content(), Pace::Window { items: HITS_WINDOW })?;
    let stopped_ms = kill_in_turn(&mut cluster)?;
    Ok(vec![
        rate(
            promised(Asked::rate("hits with sessions, durable on two of three, at most", "/s"), 50_000.0)
                .aim(100_000.0),
            &most,
        ),
        rate(Asked::rate("hits of an open loop", "/s"), &open),
        promised(Asked::cost("durable answer at that rate, p99", "ms"), 50.0).is(open.report.ack.p99_ms),
        Asked::cost("durable answer at that rate, p50", "ms").is(open.report.ack.p50_ms),
        Asked::cost("the generator's lateness, p99", "ms").is(open.report.lateness.p99_ms),
        Asked::cost("each node killed in turn: longest time to a durable answer", "ms")
            .must(2_000.0)
            .aim(1_000.0)
            .is(stopped_ms),
    ])
}

/// Kills each node once while a front end counts: one of them leads the group that it uses. The longest answer, milliseconds.
fn kill_in_turn(cluster: &mut Cluster) -> Result<f64, BenchError> {
    let seconds = (2 * NODES as u32 + 1) as f64 * APART.as_secs_f64();
    let task = CountTask { place: cluster.place(), per_s: COUNT_PER_S, seconds };
    let mut counting = TaskChild::start("count", &Task::Count(task), cluster.folder())?;
    counting.wait_ready()?;
    counting.go()?;
    for number in 0..NODES {
        std::thread::sleep(APART);
        cluster.kill_node(number);
        std::thread::sleep(APART);
        cluster.start_node(number)?;
        cluster.wait_ready()?;
    }
    let within = Duration::from_secs_f64(seconds) + APART;
    let report = counting.wait_for(within, |said| match said {
        Said::Counted(report) => Some(report),
        _ => None,
    })?;
    if report.sent == 0 || report.durable != report.sent {
        return Err(BenchError::Failed {
            who: "the front end".to_owned(),
            reason: format!("not all is durable: {report:?}"),
        });
    }
    Ok(report.longest_ms)
}

// ---- the other process ----

/// Counts at a steady rate, whatever becomes of the answers.
///
/// # Errors
/// No credentials, or options that cannot be.
pub async fn count(task: CountTask) -> Result<CountReport, Box<dyn Error>> {
    let CountTask { place, per_s, seconds } = task;
    let site = Site { dc: place.dc, nodes: place.nodes, aggregator: None };
    let client = Client::builder().credentials(Credentials::load(&place.credentials)?).site(site).connect().await?;
    let counter = CounterName::new(NAMESPACE, GUARDED.as_bytes())?;
    if !wait_for_start().await? {
        return Ok(CountReport::default());
    }
    say(&Said::Measuring)?;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let per_tick = per_s * TICK.as_millis() as u64 / 1_000;
    let start = Instant::now();
    let mut answers = JoinSet::new();
    let mut report = CountReport::default();
    while start.elapsed().as_secs_f64() < seconds {
        ticks.tick().await;
        for _ in 0..per_tick {
            let begun = Instant::now();
            let hit = client.hit(&counter, SessionId(rand::random())).await?;
            report.sent += 1;
            answers.spawn(async move { (hit.durable().await.map(drop), begun.elapsed()) });
        }
        while let Some(joined) = answers.try_join_next() {
            let (answer, after) = joined?;
            report.note(answer, after);
        }
    }
    while let Some(joined) = answers.join_next().await {
        let (answer, after) = joined?;
        report.note(answer, after);
    }
    client.close().await?;
    Ok(report)
}

impl CountReport {
    fn note(&mut self, answer: Result<(), HitError>, after: Duration) {
        match answer {
            Ok(()) => self.durable += 1,
            Err(HitError::Unknown | HitError::PlaceUnknown) => self.unknown += 1,
            Err(_) => self.failed += 1,
        }
        self.longest_ms = self.longest_ms.max(after.as_secs_f64() * 1_000.0);
    }
}
