//! One node with its aggregator beside it: the increments that it makes durable per second, and their latency.

use std::path::Path;
use std::time::Duration;

use super::child::TaskChild;
use super::cluster::Cluster;
use super::line::{Asked, Sample};
use super::load::{Content, Draw, LoadReport, LoadTask, Pace};
use super::task::{Said, Task};
use super::{BenchError, Meter, Plan, WriteMeter};
use tidemark_demo::cost;

/// Front ends of a data centre in the reference layout.
pub const CLIENTS: usize = 10;
/// Measured, per load.
pub const LOAD_S: f64 = 5.0;
const WARM_S: f64 = 1.0;
/// Under way in a closed loop: enough to keep the node busy, and few enough to say something about its time.
pub const HITS_WINDOW: usize = 20_000;
const DELTAS_WINDOW: usize = 200_000;
const DELTA_KEYS: usize = 10_000;
/// The client library's flush interval.
const ROUND_MS: u64 = 20;
pub const GUARDED: &str = "queries";
/// Never reached.
pub const MILESTONE: u64 = 1 << 50;
/// Of the promised rate, and of the most without a delay, that must be left with slow flushes, per cent.
const SLOW_DISK_SHARE: f64 = 80.0;

/// A load, and what the whole tree of processes spent on it while it was measured.
pub struct Measured {
    pub report: LoadReport,
    pub cpu_s: Option<f64>,
    /// Written to the disk meanwhile.
    pub written_bytes: Option<u64>,
    pub seconds: f64,
}

impl Measured {
    /// Bytes written to the disk for each increment that became durable meanwhile.
    pub fn written_per_increment(&self) -> Option<f64> {
        let increments = self.report.acknowledged_per_s * self.seconds;
        self.written_bytes.map(|bytes| bytes as f64 / increments)
    }
}

/// Brings a load of this plan and waits for its end.
///
/// # Errors
/// The load, or the cluster under it, has failed; or something was refused.
pub fn load(cluster: &mut Cluster, plan: &Plan, content: Content, pace: Pace) -> Result<Measured, BenchError> {
    let task = task(cluster, plan, content, pace);
    measure(cluster, task)
}

/// Brings a load and waits for its end.
///
/// # Errors
/// As [`load`].
pub fn measure(cluster: &mut Cluster, task: LoadTask) -> Result<Measured, BenchError> {
    let warm_s = task.warm_s;
    let seconds = task.seconds;
    let measured = measure_task(&Task::Load(task), warm_s, seconds, cluster.folder())?;
    cluster.check()?;
    check(&measured.report)?;
    Ok(measured)
}

/// Has a child bring a load and waits for its end; refusals are in the report.
///
/// # Errors
/// The load has failed.
pub fn measure_task(task: &Task, warm_s: f64, seconds: f64, folder: &Path) -> Result<Measured, BenchError> {
    let within = Duration::from_secs_f64(warm_s + seconds);
    let mut child = TaskChild::start("load", task, folder)?;
    child.wait_ready()?;
    cost::sync_below(folder);
    child.go()?;
    child.wait_for(within, |said| matches!(said, Said::Measuring).then_some(()))?;
    // With what the first seconds have left to be written.
    let meter = Meter::start();
    let writes = WriteMeter::start(folder);
    child.wait_for(within, |said| matches!(said, Said::Measured).then_some(()))?;
    let cpu_s = meter.cpu_s();
    let written_bytes = writes.bytes();
    let report = child.wait_loaded(within)?;
    Ok(Measured { report, cpu_s, written_bytes, seconds })
}

/// The task of a load of this plan.
pub fn task(cluster: &Cluster, plan: &Plan, content: Content, pace: Pace) -> LoadTask {
    let seconds = plan.seconds_or(LOAD_S);
    let warm_s = WARM_S.min(seconds);
    let seed = u64::from(plan.run);
    LoadTask { place: cluster.place(), clients: CLIENTS, content, pace, warm_s, seconds, seed }
}

/// A figure of increments that were not all counted once would be worth nothing.
///
/// # Errors
/// Some increments were not counted.
pub fn check(report: &LoadReport) -> Result<(), BenchError> {
    if report.acknowledged == report.sent {
        return Ok(());
    }
    Err(BenchError::Failed { who: "the load".to_owned(), reason: format!("not all was acknowledged: {report:?}") })
}

pub fn rate(asked: Asked, measured: &Measured) -> Sample {
    asked.is(measured.report.acknowledged_per_s).costing(measured.cpu_s, measured.seconds)
}

/// `node-hits`.
pub fn hits(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let mut cluster = Cluster::start(plan.flush_delay)?;
    cluster.arm(GUARDED, MILESTONE)?;
    let content = || Content::Hits { key: GUARDED.to_owned() };
    let per_s = plan.rate_or(150_000.0);
    let open = load(&mut cluster, plan, content(), Pace::Rate { per_s })?;
    let most = load(&mut cluster, plan, content(), Pace::Window { items: HITS_WINDOW })?;
    let promised = |asked: Asked, must: f64| if plan.rate.is_some() { asked } else { asked.must(must) };
    Ok(vec![
        rate(promised(Asked::rate("hits with sessions, durable, at most", "/s"), 150_000.0).aim(400_000.0), &most),
        rate(Asked::rate("hits of an open loop", "/s"), &open),
        promised(Asked::cost("durable answer at that rate, p99", "ms"), 20.0).is(open.report.ack.p99_ms),
        Asked::cost("durable answer at that rate, p50", "ms").is(open.report.ack.p50_ms),
        Asked::cost("the generator's lateness, p99", "ms").is(open.report.lateness.p99_ms),
    ])
}

/// `node-deltas`.
pub fn deltas(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let keys = plan.size_or(DELTA_KEYS);
    let content = || Content::Deltas { keys, round_ms: ROUND_MS, draw: Draw::InTurn };
    let mut cluster = Cluster::start(Duration::ZERO)?;
    let per_s = plan.rate_or(1_000_000.0);
    let most = load(&mut cluster, plan, content(), Pace::Window { items: DELTAS_WINDOW.min(keys * CLIENTS) })?;
    let open = load(&mut cluster, plan, content(), Pace::Rate { per_s })?;
    drop(cluster);
    let promised = |asked: Asked, must: f64| if plan.rate.is_some() { asked } else { asked.must(must) };
    let mut samples = vec![
        rate(promised(Asked::rate("distinct deltas, durable, at most", "/s"), 1_000_000.0).aim(3_000_000.0), &most),
        rate(Asked::rate("deltas of an open loop", "/s"), &open),
        promised(Asked::cost("durable answer at that rate, p99", "ms"), 20.0).is(open.report.ack.p99_ms),
        Asked::cost("durable answer at that rate, p50", "ms").is(open.report.ack.p50_ms),
        Asked::cost("the generator's lateness, p99", "ms").is(open.report.lateness.p99_ms),
    ];
    if !plan.flush_delay.is_zero() {
        let mut cluster = Cluster::start(plan.flush_delay)?;
        let slow = load(&mut cluster, plan, content(), Pace::Window { items: DELTAS_WINDOW.min(keys * CLIENTS) })?;
        let open = load(&mut cluster, plan, content(), Pace::Rate { per_s })?;
        let delayed = format!("with {} ms per flush", plan.flush_delay.as_millis());
        let at_most = Asked::rate(format!("distinct deltas {delayed}, at most"), "/s");
        samples.push(rate(promised(at_most, SLOW_DISK_SHARE / 100.0 * 1_000_000.0), &slow));
        let share = slow.report.acknowledged_per_s / most.report.acknowledged_per_s * 100.0;
        samples.push(promised(Asked::rate(format!("share left {delayed}"), "%"), SLOW_DISK_SHARE).is(share));
        samples.push(rate(Asked::rate(format!("deltas of an open loop {delayed}"), "/s"), &open));
        samples
            .push(Asked::cost(format!("durable answer at that rate {delayed}, p99"), "ms").is(open.report.ack.p99_ms));
    }
    Ok(samples)
}
