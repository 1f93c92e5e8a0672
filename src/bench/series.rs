//! Counters that keep series, as many as a large site has: what one data centre counts durably into minutes, hours and days, with and
//! without totals above them, what that writes and holds, how soon it is read, and how soon it is there again after `kill -9`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::child::{PATIENCE, TaskChild};
use super::cluster::{Cluster, NAMESPACE, Options, Remote};
use super::line::{Asked, Sample};
use super::load::{Content, Draw, LoadReport, LoadTask, Pace, name};
use super::node::{self, Measured};
use super::task::{Said, Task};
use super::{BenchError, Plan, recovery};
use crate::cost;

const COUNTERS: usize = 10_000_000;
const LOAD_S: f64 = 300.0;
const WARM_S: f64 = 5.0;
/// How fast it is before edges change.
const TRIAL_S: f64 = 5.0;
/// Each counts keys of its own, as a name takes memory in every client that counts it.
const CLIENTS: usize = 4;
/// Under way in a closed loop.
const WINDOW: usize = 200_000;
const ROUND_MS: u64 = 20;
const FILL: Duration = Duration::from_secs(1_200);
const SERIES: &str =
    "\n[[series]]\nnamespace = \"bench\"\nkeep = { \"1m\" = \"2h\", \"1h\" = \"7d\", \"1d\" = \"90d\" }\n";
/// Counters of one level that flow to one of the next.
const CHILDREN: usize = 100;
/// Edges of one request.
const EDGES: usize = 1_024;
/// Changes of edges while it is measured.
const INCREMENTS_PER_EDGE_CHANGE: f64 = 1_000.0;
const CHANGE_EVERY: Duration = Duration::from_millis(100);
/// Counters that are moved one after the other lie so far from each other.
const MOVED_APART: usize = 7_919;
/// Of the most, while it is measured how soon something is visible.
const SHARE_OF_THE_MOST: f64 = 0.8;
const VISIBLE_S: f64 = 30.0;
/// Counted by no other process.
const PROBE: &str = "seen";
const PROBE_POLL: Duration = Duration::from_millis(2);
const PROBE_EVERY: Duration = Duration::from_millis(50);
/// Under load before everything is killed, and in all.
const LOADED: Duration = Duration::from_secs(10);
const KILLED_S: f64 = 60.0;
/// Between two looks at a sum.
const SETTLE: Duration = Duration::from_secs(10);
const CAUGHT_UP: Duration = Duration::from_secs(300);
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
const MIB_PER_GIB: f64 = 1_024.0;
/// What names of a load begin with.
const LEAVES: &str = "tenant-";
/// Counters of a page while all are summed up.
const PAGE: usize = 1_000;

/// A scale of promises.
struct Promise {
    must_per_s: f64,
    aim_per_s: f64,
    written: Option<f64>,
    memory_gib: Option<f64>,
}

/// `series`: without anything above the counters.
pub fn flat(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let promise = Promise { must_per_s: 300_000.0, aim_per_s: 600_000.0, written: None, memory_gib: None };
    run(plan, &promise, false)
}

/// `hierarchy`: counters, and two levels above them.
pub fn hierarchy(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let promise = Promise { must_per_s: 100_000.0, aim_per_s: 300_000.0, written: Some(100.0), memory_gib: Some(12.0) };
    run(plan, &promise, true)
}

fn run(plan: &Plan, promise: &Promise, with_edges: bool) -> Result<Vec<Sample>, BenchError> {
    let counters = plan.size_or(COUNTERS);
    let settings = |of: &[&str]| of.iter().map(|&setting| setting.to_owned()).collect::<Vec<_>>();
    let mut cluster = Cluster::start_as(Options {
        flush_delay: plan.flush_delay,
        layout: SERIES.to_owned(),
        node: settings(&NODE_SETTINGS),
        aggregator: settings(&AGGREGATOR_SETTINGS),
        ..Options::default()
    })?;
    let content = |draw| Content::Deltas { keys: counters, round_ms: ROUND_MS, draw };
    let (mut samples, mut probe, begun) = (Vec::new(), Probe::default(), Instant::now());
    let mut counted = fill(&mut cluster, plan, content(Draw::InTurn))?.acknowledged;
    samples.push(Asked::rate("counters founded", "/s").is(counted as f64 / begun.elapsed().as_secs_f64()));
    if with_edges {
        let begun = Instant::now();
        let edges = link(&cluster.remote()?, counters)?;
        samples.push(Asked::rate("edges inserted", "/s").is(edges as f64 / begun.elapsed().as_secs_f64()));
    }
    samples.push(probe.catches_up(&mut cluster, "view behind the node then")?);
    let load = task(&cluster, plan, content(Draw::Zipf), Pace::Window { items: WINDOW }, plan.seconds_or(LOAD_S));
    let mut changes = None;
    if with_edges {
        // Edges are to change once for so many increments, and how many those are is not known before.
        let trial = task(&cluster, plan, content(Draw::Zipf), Pace::Window { items: WINDOW }, TRIAL_S);
        let report = node::measure(&mut cluster, trial)?.report;
        counted += report.acknowledged;
        changes = Some((report.acknowledged_per_s / INCREMENTS_PER_EDGE_CHANGE, counters));
    }
    let most = under_load(&mut cluster, load, changes)?;
    samples.extend(most.samples(promise));
    samples.push(probe.catches_up(&mut cluster, "view behind the node after that load")?);
    let per_s = SHARE_OF_THE_MOST * most.measured.report.acknowledged_per_s;
    let steady = |seconds| task(&cluster, plan, content(Draw::Zipf), Pace::Rate { per_s }, seconds);
    let (while_seen, while_killed) = (steady(VISIBLE_S), steady(KILLED_S));
    let (report, more) = visible(&mut cluster, while_seen, &mut probe)?;
    samples.extend(more);
    counted += report.acknowledged;
    let (report, more) = killed(&mut cluster, while_killed)?;
    samples.extend(more);
    counted += report.acknowledged;
    counted += most.measured.report.acknowledged;
    samples.push(probe.catches_up(&mut cluster, "view behind the node after both were killed")?);
    let (read, shown) = settled_sum(&cluster, counted)?;
    samples.push(Asked::rate("counters read", "").is(read as f64));
    samples.push(Asked::cost("increments lost", "").must(0.0).is(counted.saturating_sub(shown) as f64));
    samples.push(Asked::cost("increments counted twice", "").must(0.0).is(shown.saturating_sub(counted) as f64));
    Ok(samples)
}

/// What a load has cost.
struct UnderLoad {
    measured: Measured,
    written: Option<u64>,
    memory_gib: f64,
    edge_changes: usize,
}

fn under_load(cluster: &mut Cluster, load: LoadTask, edges: Option<(f64, usize)>) -> Result<UnderLoad, BenchError> {
    let over = AtomicBool::new(false);
    let place = cluster.remote()?;
    std::thread::scope(|scope| {
        let memory = scope.spawn(|| {
            let mut most = 0.0f64;
            while !over.load(Ordering::Acquire) {
                most = most.max(cost::of_this_tree().map_or(0.0, |cost| cost.rss_mib));
                std::thread::sleep(SAMPLE_EVERY);
            }
            most
        });
        let changer = edges.map(|(per_s, counters)| {
            let (place, over) = (&place, &over);
            scope.spawn(move || move_about(place, per_s, counters, over))
        });
        let before = cost::of_this_tree().map(|cost| cost.written_bytes);
        let measured = node::measure(cluster, load);
        let after = cost::of_this_tree().map(|cost| cost.written_bytes);
        over.store(true, Ordering::Release);
        let edge_changes = changer.map_or(Ok(0), |changer| changer.join().expect("it does not panic"))?;
        Ok(UnderLoad {
            measured: measured?,
            written: after.zip(before).map(|(after, before)| after - before),
            memory_gib: memory.join().expect("it does not panic") / MIB_PER_GIB,
            edge_changes,
        })
    })
}

impl UnderLoad {
    fn samples(&self, promise: &Promise) -> Vec<Sample> {
        let report = &self.measured.report;
        let asked = |asked: Asked, must: Option<f64>| must.map_or(asked.clone(), |must| asked.must(must));
        let most = Asked::rate("increments into minutes, hours and days, durable, at most", "/s");
        let most = most.must(promise.must_per_s).aim(promise.aim_per_s);
        let mut samples = vec![
            node::rate(most, &self.measured),
            Asked::cost("durable answer, p99", "ms").is(report.ack.p99_ms),
            asked(Asked::cost("memory of all processes, the load's included", "GiB"), promise.memory_gib)
                .is(self.memory_gib),
        ];
        if let Some(written) = self.written {
            let per = written as f64 / report.acknowledged as f64;
            samples.push(asked(Asked::cost("written to disk per increment", "B"), promise.written).is(per));
        }
        if self.edge_changes > 0 {
            let per = self.edge_changes as f64 / report.acknowledged as f64 * INCREMENTS_PER_EDGE_CHANGE;
            samples.push(Asked::rate("changes of edges meanwhile, per 1,000 increments", "").is(per));
        }
        samples
    }
}

/// Rows that are many in a tree. Rare checkpoints write less, and leave more log to be read after a crash.
const NODE_SETTINGS: [&str; 3] = ["rows.store=tree", "log.checkpoint_log_mib=128", "log.checkpoint_interval_ms=600000"];
const AGGREGATOR_SETTINGS: [&str; 3] =
    ["rows.store=tree", "view.checkpoint_interval_ms=60000", "view.feed_bytes_max=524288"];

fn task(cluster: &Cluster, plan: &Plan, content: Content, pace: Pace, seconds: f64) -> LoadTask {
    let task = node::task(cluster, plan, content, pace);
    LoadTask { clients: CLIENTS, warm_s: WARM_S.min(seconds), seconds, ..task }
}

/// Counts each of them once.
fn fill(cluster: &mut Cluster, plan: &Plan, content: Content) -> Result<LoadReport, BenchError> {
    let task = task(cluster, plan, content, Pace::Once { items: WINDOW }, FILL.as_secs_f64());
    let mut child = TaskChild::start("fill", &Task::Load(task), cluster.folder())?;
    child.wait_ready()?;
    child.go()?;
    let report = child.wait_loaded(FILL)?;
    node::check(&report)?;
    Ok(report)
}

// ---- edges ----

/// The counter's name over HTTP.
fn leaf(number: usize) -> String {
    let name = name(number).expect("names of a load are short");
    format!("{NAMESPACE}/{}", String::from_utf8_lossy(name.key()))
}

fn parent(number: usize) -> String {
    format!("{NAMESPACE}/parent/{number}")
}

/// All edges of the three levels.
fn edges(counters: usize) -> impl Iterator<Item = (String, String)> {
    let parents = counters.div_ceil(CHILDREN);
    let of_leaves = (0..counters).map(|number| (leaf(number), parent(number / CHILDREN)));
    let grandparent = |number: usize| format!("{NAMESPACE}/grandparent/{}", number / CHILDREN);
    of_leaves.chain((0..parents).map(move |number| (parent(number), grandparent(number))))
}

/// Inserts them; how many.
fn link(cluster: &Remote, counters: usize) -> Result<usize, BenchError> {
    let (mut edges, mut inserted) = (edges(counters).peekable(), 0);
    while edges.peek().is_some() {
        let some: Vec<_> = edges.by_ref().take(EDGES).collect();
        inserted += some.len();
        change(cluster, &json!({ "insert": some }))?;
    }
    Ok(inserted)
}

fn change(cluster: &Remote, changes: &Value) -> Result<(), BenchError> {
    let mut body = changes.clone();
    body["unknown"] = "allow".into();
    body["by"] = "a bench".into();
    cluster.json("POST", "/v1/edges", &body.to_string()).map(drop)
}

/// Moves counters from one parent to another, and back, at a steady rate, until it is told to end; how many changes that were.
fn move_about(cluster: &Remote, per_s: f64, counters: usize, is_over: &AtomicBool) -> Result<usize, BenchError> {
    let parents = counters.div_ceil(CHILDREN);
    // Each move is two changes.
    let moved = (per_s * CHANGE_EVERY.as_secs_f64() / 2.0).ceil().max(1.0) as usize;
    let (begun, mut rounds) = (Instant::now(), 0);
    while !is_over.load(Ordering::Acquire) {
        let at = |nth: usize| (rounds / 2 * moved + nth) * MOVED_APART % counters;
        let (here, there) = (|leaf: usize| leaf / CHILDREN, |leaf: usize| (leaf / CHILDREN + 1) % parents);
        let (from, to): (&dyn Fn(usize) -> usize, &dyn Fn(usize) -> usize) =
            if rounds % 2 == 0 { (&here, &there) } else { (&there, &here) };
        let edges = |of: &dyn Fn(usize) -> usize| -> Vec<(String, String)> {
            (0..moved).map(|nth| (leaf(at(nth)), parent(of(at(nth))))).collect()
        };
        change(cluster, &json!({ "remove": edges(from), "insert": edges(to) }))?;
        rounds += 1;
        std::thread::sleep((CHANGE_EVERY * rounds as u32).saturating_sub(begun.elapsed()));
    }
    Ok(rounds * moved * 2)
}

// ---- what is visible ----

/// Counts a counter of its own by ones and waits until reads show them: all of them, as a view that is behind shows earlier ones late.
#[derive(Default)]
struct Probe {
    counted: u64,
}

impl Probe {
    /// How long the next one takes to be read, behind all that came before it.
    fn seen_after(&mut self, cluster: &mut Cluster) -> Result<Duration, BenchError> {
        let asked = json!({ "counters": [format!("{NAMESPACE}/{PROBE}")] }).to_string();
        let begun = Instant::now();
        cluster.add(PROBE)?;
        self.counted += 1;
        while cluster.json("POST", "/v1/read", &asked)?["counters"][0]["value"].as_u64() < Some(self.counted) {
            if begun.elapsed() > CAUGHT_UP {
                let what = "an increment being visible".to_owned();
                return Err(BenchError::Patience { what, waited_s: CAUGHT_UP.as_secs() });
            }
            std::thread::sleep(PROBE_POLL);
        }
        Ok(begun.elapsed())
    }

    fn catches_up(&mut self, cluster: &mut Cluster, what: &str) -> Result<Sample, BenchError> {
        Ok(Asked::cost(what, "s").is(self.seen_after(cluster)?.as_secs_f64()))
    }
}

/// How soon an increment is read at a steady rate.
fn visible(cluster: &mut Cluster, task: LoadTask, probe: &mut Probe) -> Result<(LoadReport, Vec<Sample>), BenchError> {
    let mut child = TaskChild::start("steady", &Task::Load(task), cluster.folder())?;
    child.wait_ready()?;
    child.go()?;
    child.wait_for(PATIENCE, |said| matches!(said, Said::Measuring).then_some(()))?;
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed().as_secs_f64() < VISIBLE_S - 1.0 {
        times.push(probe.seen_after(cluster)?.as_secs_f64() * 1_000.0);
        std::thread::sleep(PROBE_EVERY);
    }
    let report = child.wait_loaded(CAUGHT_UP)?;
    node::check(&report)?;
    times.sort_by(f64::total_cmp);
    let mark = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    let samples = vec![
        Asked::cost("write to visible at 80 % of that load, p99", "ms").must(1_000.0).aim(200.0).is(mark(0.99)),
        Asked::cost("write to visible at 80 % of that load, p50", "ms").is(mark(0.5)),
    ];
    Ok((report, samples))
}

// ---- kill -9 ----

/// Kills everything under load and starts it again; what was counted, and how soon it was there again.
fn killed(cluster: &mut Cluster, task: LoadTask) -> Result<(LoadReport, Vec<Sample>), BenchError> {
    let mut child = TaskChild::start("killed", &Task::Load(task), cluster.folder())?;
    child.wait_ready()?;
    child.go()?;
    child.wait_for(PATIENCE, |said| matches!(said, Said::Measuring).then_some(()))?;
    std::thread::sleep(LOADED);
    let (node, aggregator) = recovery::kill_all(cluster)?;
    let report = child.wait_loaded(PATIENCE)?;
    node::check(&report)?;
    let promised = |name: &str| Asked::cost(name, "s").must(30.0).aim(10.0);
    let samples = vec![
        promised("both killed under load: start to the node's first durable answer").is(node),
        promised("both killed under load: start to the aggregator's first read").is(aggregator),
    ];
    Ok((report, samples))
}

/// The sum once it is `wanted`, or else does not change any more: behind a walk of the feed a view is not there in the order of the log.
fn settled_sum(cluster: &Cluster, wanted: u64) -> Result<(u64, u64), BenchError> {
    let mut last = sum(cluster)?;
    while last.1 != wanted {
        std::thread::sleep(SETTLE);
        let now = sum(cluster)?;
        if now == last {
            break;
        }
        last = now;
    }
    Ok(last)
}

/// All that loads have counted, read counter by counter, and how many those are.
fn sum(cluster: &Cluster) -> Result<(u64, u64), BenchError> {
    let (mut counters, mut sum, mut after) = (0, 0, String::new());
    loop {
        let page = cluster.json("GET", &format!("/v1/range?prefix={NAMESPACE}/{LEAVES}&limit={PAGE}{after}"), "")?;
        let values = page["counters"].as_array().map(Vec::as_slice).unwrap_or_default();
        counters += values.len() as u64;
        sum += values.iter().filter_map(|read| read["value"].as_u64()).sum::<u64>();
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return Ok((counters, sum)),
        }
    }
}
