//! Counters that keep series, as many as a large site has. Measured are the increments that one data centre counts durably into minutes,
//! hours and days, with and without totals above them, the writes and the memory, the delay of reads, and the recovery after `kill -9`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidemark::errln;

use serde_json::{Value, json};

use super::child::{PATIENCE, TaskChild};
use super::cluster::{Cluster, NAMESPACE, Options, Remote};
use super::line::{Asked, Sample};
use super::load::{Content, Draw, LoadReport, LoadTask, Pace, TENANTS, name};
use super::node::{self, Measured};
use super::task::{Said, Task};
use super::{BenchError, Plan, recovery, with_memory_gib};

pub const COUNTERS: usize = 10_000_000;
const LOAD_S: f64 = 300.0;
pub const WARM_S: f64 = 5.0;
/// How fast it is before edges change.
pub const TRIAL_S: f64 = 5.0;
/// Each counts keys of its own, as a name takes memory in every client that counts it.
pub const CLIENTS: usize = 4;
/// Under way in a closed loop.
pub const WINDOW: usize = 200_000;
const ROUND_MS: u64 = 20;
pub const FILL: Duration = Duration::from_secs(1_200);
pub const SERIES: &str = r#"
[[series]]
namespace = "bench"
keep = { "1m" = "2h", "1h" = "7d", "1d" = "90d" }
late = "40d"
"#;
/// Counters of one level that flow to one of the next.
const CHILDREN: usize = 100;
/// Edges of one request.
const EDGES: usize = 1_024;
/// Changes of edges while it is measured.
const INCREMENTS_PER_EDGE_CHANGE: f64 = 1_000.0;
const CHANGE_EVERY: Duration = Duration::from_millis(100);
/// Counters that are moved one after the other lie so far from each other.
const MOVED_APART: usize = 7_919;
/// Of a rate, while it is measured how soon something is visible.
const STEADY_SHARE: f64 = 0.8;
/// Longer than from one checkpoint of the view to the next, so that one is made meanwhile.
const VISIBLE_S: f64 = 75.0;
/// Increments that are seen later than this are reported one by one: the moment tells the reason.
const LATE: Duration = Duration::from_secs(1);
/// Counted by no other process.
const PROBE: &str = "seen";
const PROBE_POLL: Duration = Duration::from_millis(2);
const PROBE_EVERY: Duration = Duration::from_millis(50);
/// Under load before everything is killed, and in all.
const LOADED: Duration = Duration::from_secs(10);
const KILLED_S: f64 = 60.0;
/// Kills in one run of `recovery-series`, and the rate that a share of is counted meanwhile.
const KILLS: usize = 2;
const RATE_WHILE_KILLED_PER_S: f64 = 100_000.0;
/// Between two looks at a sum.
const SETTLE: Duration = Duration::from_secs(10);
const CAUGHT_UP: Duration = Duration::from_secs(300);
/// In the line in which a node says what its start has read.
const RECOVERED: &str = "recovered from its disk";
/// The prefix of a load's names.
const LEAVES: &str = "tenant-";
/// Counters of a page while all are summed up.
const PAGE: usize = 1_000;

/// A scale of promises.
#[derive(Default)]
pub struct Promise {
    pub must_per_s: Option<f64>,
    pub aim_per_s: Option<f64>,
    pub written: Option<f64>,
    pub memory_gib: Option<f64>,
}

/// `series`: without anything above the counters.
pub fn flat(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let promise = Promise { must_per_s: Some(300_000.0), aim_per_s: Some(600_000.0), ..Promise::default() };
    run(plan, &promise, false)
}

/// `hierarchy`: counters, and two levels above them.
pub fn hierarchy(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let written = Some(100.0);
    let memory_gib = Some(12.0);
    let promise = Promise { must_per_s: Some(100_000.0), aim_per_s: Some(300_000.0), written, memory_gib };
    run(plan, &promise, true)
}

/// `recovery-series`: kills the node and the aggregator under load, again and again.
pub fn recovery(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let mut series = Series::start(plan, Shape::of(plan.size_or(COUNTERS)))?;
    let mut so_far = SoFar::default();
    so_far.add([series.found()?]);
    series.catch_up()?;
    // A store that was only filled is in better order than one in use.
    let most = series.under_load(plan.seconds_or(LOAD_S), None)?;
    so_far.add(most.samples("", &Promise::default()));
    series.catch_up()?;
    for _ in 0..KILLS {
        let task = series.task(steady(plan.rate_or(RATE_WHILE_KILLED_PER_S)), KILLED_S);
        let (report, more) = killed(&mut series.cluster, task)?;
        so_far.add(more);
        series.counted += report.acknowledged;
        series.catch_up()?;
    }
    so_far.add(series.sums()?);
    Ok(so_far.0)
}

fn run(plan: &Plan, promise: &Promise, with_edges: bool) -> Result<Vec<Sample>, BenchError> {
    let mut series = Series::start(plan, Shape::of(plan.size_or(COUNTERS)))?;
    let mut so_far = SoFar::default();
    so_far.add([series.found()?]);
    if with_edges {
        let begun = Instant::now();
        let edges = series.link()?;
        so_far.add([Asked::rate("edges inserted", "/s").is(edges as f64 / begun.elapsed().as_secs_f64())]);
    }
    so_far.add([series.catches_up("view behind the node then")?]);
    let mut changes_per_s = None;
    if with_edges {
        // Edges change once per number of increments, and the rate of increments is not known before.
        let trial = series.task(Pace::Window { items: WINDOW }, TRIAL_S);
        let report = node::measure(&mut series.cluster, trial)?.report;
        series.counted += report.acknowledged;
        changes_per_s = Some(report.acknowledged_per_s / INCREMENTS_PER_EDGE_CHANGE);
    }
    let most = series.under_load(plan.seconds_or(LOAD_S), changes_per_s)?;
    so_far.add(most.samples("", promise));
    so_far.add([series.catches_up("view behind the node after that load")?]);
    let most_per_s = most.measured.report.acknowledged_per_s;
    let must_per_s = promise.must_per_s.map_or(most_per_s, |must| must.min(most_per_s));
    for (of, per_s, is_promised) in [
        ("the rate that must be reached", promise.must_per_s, true),
        ("the rate that is aimed at", promise.aim_per_s, false),
    ] {
        // A rate above the most is not tried.
        let Some(per_s) = per_s.filter(|&per_s| per_s <= most_per_s) else { continue };
        so_far.add(series.visible(of, per_s, is_promised)?);
        series.catch_up()?;
    }
    // The increments that wait meanwhile have to be caught up in time, which a load near the most could not be.
    let while_killed = series.task(steady(must_per_s), KILLED_S);
    let (report, more) = killed(&mut series.cluster, while_killed)?;
    so_far.add(more);
    series.counted += report.acknowledged;
    so_far.add([series.catches_up("view behind the node after both were killed")?]);
    so_far.add(series.sums()?);
    Ok(so_far.0)
}

/// The samples, printed as they come: all of it takes minutes.
#[derive(Default)]
struct SoFar(Vec<Sample>);

impl SoFar {
    fn add(&mut self, samples: impl IntoIterator<Item = Sample>) {
        for sample in samples {
            errln!("{sample}");
            self.0.push(sample);
        }
    }
}

/// A steady load of a share of this rate.
fn steady(per_s: f64) -> Pace {
    Pace::Rate { per_s: STEADY_SHARE * per_s }
}

/// The shape of a data centre.
pub struct Shape {
    pub counters: usize,
    /// Where its view is cut.
    pub slots: Vec<String>,
    /// Aggregators beside the first.
    pub further: usize,
    /// A node makes a checkpoint after this much of its log.
    pub log_mib: u32,
}

impl Shape {
    pub fn of(counters: usize) -> Shape {
        Shape { counters, slots: Vec::new(), further: 0, log_mib: LOG_MIB }
    }
}

/// A data centre with counters that keep minutes, hours and days.
pub struct Series<'a> {
    plan: &'a Plan,
    counters: usize,
    pub cluster: Cluster,
    probe: Probe,
    /// In all counters, by loads.
    counted: u64,
}

impl<'a> Series<'a> {
    /// Starts it, without a counter yet.
    ///
    /// # Errors
    /// As [`Cluster::start_as`].
    pub fn start(plan: &'a Plan, shape: Shape) -> Result<Series<'a>, BenchError> {
        let Shape { counters, slots, further, log_mib } = shape;
        let settings = |of: &[&str]| of.iter().map(|&setting| setting.to_owned()).collect::<Vec<_>>();
        let mut node = settings(&NODE_SETTINGS);
        node.push(format!("log.checkpoint_log_mib={log_mib}"));
        let mut aggregator = settings(&AGGREGATOR_SETTINGS);
        aggregator.push(format!("view.checkpoint_interval_ms={}", VIEW_CHECKPOINTS_APART.as_millis()));
        let cluster = Cluster::start_as(Options {
            flush_delay: plan.flush_delay,
            slots,
            further,
            layout: SERIES.to_owned(),
            node,
            aggregator,
            ..Options::default()
        })?;
        Ok(Series { plan, counters, cluster, probe: Probe::default(), counted: 0 })
    }

    /// Waits until view and node have written and merged what was counted. How long that was; `None` where there is no `/proc`.
    ///
    /// # Errors
    /// As of [`Cluster::rest`].
    pub fn rest(&mut self) -> Result<Option<Duration>, BenchError> {
        const { assert!(REST.as_secs() > VIEW_CHECKPOINTS_APART.as_secs()) };
        self.cluster.rest(if self.counters < FEW { REST_OF_FEW } else { REST })
    }

    /// Counts each counter once.
    ///
    /// # Errors
    /// Some increments were not counted.
    pub fn found(&mut self) -> Result<Sample, BenchError> {
        let begun = Instant::now();
        let task = LoadTask {
            content: self.content(Draw::InTurn),
            ..self.task(Pace::Once { items: WINDOW }, FILL.as_secs_f64())
        };
        let founded = fill(&mut self.cluster, task)?.acknowledged;
        self.counted += founded;
        Ok(Asked::rate("counters founded", "/s").is(founded as f64 / begun.elapsed().as_secs_f64()))
    }

    /// Puts two levels above the counters; how many edges that are.
    ///
    /// # Errors
    /// They were refused.
    pub fn link(&self) -> Result<usize, BenchError> {
        link(&self.cluster.remote()?, self.counters)
    }

    /// Increments at a rate, and edges that change once for a thousand of them, until the view shows all; and what the nodes and the
    /// aggregators have spent on each.
    ///
    /// # Errors
    /// Some increments were not counted, or a change of edges was refused.
    pub fn spends(&mut self, per_s: f64, seconds: f64) -> Result<Spent, BenchError> {
        let task = self.task(Pace::Rate { per_s }, seconds);
        let mut child = TaskChild::start("spends", &Task::Load(task), self.cluster.folder())?;
        child.wait_ready()?;
        let before = self.cluster.cpu_s();
        let place = self.cluster.remote()?;
        let over = AtomicBool::new(false);
        let changes_per_s = per_s / INCREMENTS_PER_EDGE_CHANGE;
        let counters = self.counters;
        let (report, edge_changes) = std::thread::scope(|scope| {
            let changer = scope.spawn(|| move_about(&place, changes_per_s, counters, &over));
            let report = child.go().and_then(|()| child.wait_loaded(CAUGHT_UP));
            over.store(true, Ordering::Release);
            let edge_changes = changer.join().expect("it does not panic")?;
            Ok((report?, edge_changes))
        })?;
        node::check(&report)?;
        self.counted += report.acknowledged;
        self.catch_up()?;
        let after = self.cluster.cpu_s();
        let ((nodes, aggregator), (nodes_then, aggregator_then)) = before.zip(after).ok_or_else(super::no_proc)?;
        let per_increment = |seconds: f64| seconds * 1_000_000.0 / report.acknowledged.max(1) as f64;
        let per_thousand = edge_changes as f64 * INCREMENTS_PER_EDGE_CHANGE / report.acknowledged.max(1) as f64;
        Ok(Spent {
            nodes_us: per_increment(nodes_then - nodes),
            aggregator_us: per_increment(aggregator_then - aggregator),
            edge_changes: per_thousand,
        })
    }

    /// Increments at a rate while something is done, until the view shows all.
    ///
    /// # Errors
    /// Some increments were not counted, or the action failed.
    pub fn meanwhile<R>(
        &mut self,
        per_s: f64,
        seconds: f64,
        work: impl FnOnce(&Remote) -> Result<R, BenchError>,
    ) -> Result<R, BenchError> {
        let task = self.task(Pace::Rate { per_s }, seconds);
        let mut child = TaskChild::start("meanwhile", &Task::Load(task), self.cluster.folder())?;
        child.wait_ready()?;
        child.go()?;
        let done = work(&self.cluster.remote()?)?;
        let report = child.wait_loaded(CAUGHT_UP)?;
        node::check(&report)?;
        self.counted += report.acknowledged;
        self.catch_up()?;
        Ok(done)
    }

    /// How long the view takes to show all that was counted.
    ///
    /// # Errors
    /// It takes too long.
    pub fn catches_up(&mut self, what: &str) -> Result<Sample, BenchError> {
        Ok(Asked::cost(what, "s").is(self.catch_up()?.as_secs_f64()))
    }

    /// Waits until the view shows all that was counted.
    ///
    /// # Errors
    /// It takes too long.
    pub fn catch_up(&mut self) -> Result<Duration, BenchError> {
        self.probe.seen_after(&mut self.cluster)
    }

    /// As many increments as it takes, while edges change at a rate.
    ///
    /// # Errors
    /// Some increments were not counted, or a change of edges was refused.
    pub fn under_load(&mut self, seconds: f64, changes_per_s: Option<f64>) -> Result<UnderLoad, BenchError> {
        let load = self.task(Pace::Window { items: WINDOW }, seconds);
        let edges = changes_per_s.map(|per_s| (per_s, self.counters));
        let most = under_load(&mut self.cluster, load, edges)?;
        self.counted += most.measured.report.acknowledged;
        Ok(most)
    }

    /// How soon an increment is read at a steady share of a rate.
    ///
    /// # Errors
    /// Some increments were not counted, or a read was refused.
    fn visible(&mut self, of: &str, per_s: f64, is_promised: bool) -> Result<[Sample; 2], BenchError> {
        let task = self.task(steady(per_s), VISIBLE_S);
        let mut child = TaskChild::start("steady", &Task::Load(task), self.cluster.folder())?;
        child.wait_ready()?;
        child.go()?;
        child.wait_for(PATIENCE, |said| matches!(said, Said::Measuring).then_some(()))?;
        let begun = Instant::now();
        let mut times = Vec::new();
        while begun.elapsed().as_secs_f64() < VISIBLE_S - 1.0 {
            let at = begun.elapsed();
            let seen = self.probe.seen_after(&mut self.cluster)?;
            if seen > LATE {
                errln!("counted at {:.1} s of {per_s:.0}/s, seen {seen:.1?} later", at.as_secs_f64());
            }
            times.push(seen.as_secs_f64() * 1_000.0);
            std::thread::sleep(PROBE_EVERY);
        }
        let report = child.wait_loaded(CAUGHT_UP)?;
        node::check(&report)?;
        self.counted += report.acknowledged;
        times.sort_by(f64::total_cmp);
        let mark = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        let asked = |share| Asked::cost(format!("write to visible at 80 % of {of}, {share}"), "ms");
        let p99 = if is_promised { asked("p99").must(1_000.0).aim(200.0) } else { asked("p99") };
        Ok([p99.is(mark(0.99)), asked("p50").is(mark(0.5))])
    }

    /// Whether reads show what was counted, each once.
    ///
    /// # Errors
    /// A read was refused.
    pub fn sums(&self) -> Result<Vec<Sample>, BenchError> {
        let (read, shown) = settled_sum(&self.cluster, self.counted)?;
        let not_once = not_once("", self.counted, shown);
        Ok(std::iter::once(Asked::rate("counters read", "").is(read as f64)).chain(not_once).collect())
    }

    fn content(&self, draw: Draw) -> Content {
        Content::Deltas { keys: self.counters, round_ms: ROUND_MS, draw }
    }

    fn task(&self, pace: Pace, seconds: f64) -> LoadTask {
        let task = node::task(&self.cluster, self.plan, self.content(Draw::Zipf), pace);
        LoadTask { clients: CLIENTS, warm_s: WARM_S.min(seconds), seconds, ..task }
    }
}

/// CPU of each increment, µs, and how often an edge changed for a thousand of them.
pub struct Spent {
    pub nodes_us: f64,
    pub aggregator_us: f64,
    pub edge_changes: f64,
}

/// The increments that were not counted once.
pub fn not_once(whose: &str, counted: u64, shown: u64) -> [Sample; 2] {
    let none = |what: &str, many: u64| Asked::cost(format!("{whose}{what}"), "").must(0.0).is(many as f64);
    [
        none("increments lost", counted.saturating_sub(shown)),
        none("increments counted twice", shown.saturating_sub(counted)),
    ]
}

/// The cost of a load.
pub struct UnderLoad {
    pub measured: Measured,
    pub memory_gib: f64,
    pub edge_changes: usize,
}

fn under_load(cluster: &mut Cluster, load: LoadTask, edges: Option<(f64, usize)>) -> Result<UnderLoad, BenchError> {
    let over = AtomicBool::new(false);
    let place = cluster.remote()?;
    std::thread::scope(|scope| {
        let changer = edges.map(|(per_s, counters)| {
            let place = &place;
            let over = &over;
            scope.spawn(move || move_about(place, per_s, counters, over))
        });
        let (measured, memory_gib) = with_memory_gib(|| node::measure(cluster, load));
        over.store(true, Ordering::Release);
        let edge_changes = changer.map_or(Ok(0), |changer| changer.join().expect("it does not panic"))?;
        Ok(UnderLoad { measured: measured?, memory_gib, edge_changes })
    })
}

impl UnderLoad {
    /// The samples of the load; `whose` begins each figure's name.
    pub fn samples(&self, whose: &str, promise: &Promise) -> Vec<Sample> {
        let report = &self.measured.report;
        let named = |what: &str| format!("{whose}{what}");
        let most = Asked::rate(named("increments into minutes, hours and days, durable, at most"), "/s");
        let most = Asked { must: promise.must_per_s, aim: promise.aim_per_s, ..most };
        let memory = Asked::cost(named("memory of all processes, the load's included"), "GiB");
        let mut samples = vec![
            node::rate(most, &self.measured),
            Asked::cost(named("durable answer, p99"), "ms").is(report.ack.p99_ms),
            Asked { must: promise.memory_gib, ..memory }.is(self.memory_gib),
        ];
        if let Some(per) = self.measured.written_per_increment() {
            let written = Asked::cost(named("written to disk per increment"), "B");
            samples.push(Asked { must: promise.written, ..written }.is(per));
        }
        if self.edge_changes > 0 {
            let per = self.edge_changes as f64 / report.acknowledged as f64 * INCREMENTS_PER_EDGE_CHANGE;
            samples.push(Asked::rate(named("changes of edges meanwhile, per 1,000 increments"), "").is(per));
        }
        samples
    }
}

/// Rows that are many in a tree.
const NODE_SETTINGS: [&str; 2] = ["rows.store=tree", "log.checkpoint_interval_ms=600000"];
/// Rarer checkpoints write less, and leave more log to be read after a crash.
const LOG_MIB: u32 = 96;
const AGGREGATOR_SETTINGS: [&str; 2] = ["rows.store=tree", "view.feed_bytes_max=524288"];
/// From one checkpoint of the view to the next.
const VIEW_CHECKPOINTS_APART: Duration = Duration::from_secs(60);
/// A view may have nothing to do for most of that, and then make a checkpoint: a view rests that had nothing to do for longer. A view of
/// few counters makes it in no time.
const REST: Duration = Duration::from_secs(65);
const REST_OF_FEW: Duration = Duration::from_secs(2);
const FEW: usize = 100_000;

/// Counts each of them once.
fn fill(cluster: &mut Cluster, task: LoadTask) -> Result<LoadReport, BenchError> {
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

/// Among the names of all counters, wherever a view of them is cut.
fn above(level: &str, number: usize) -> String {
    format!("{NAMESPACE}/{LEAVES}{:05}/{level}/{number}", number % TENANTS)
}

fn parent(number: usize) -> String {
    above("parent", number)
}

/// All edges of the three levels.
fn edges(counters: usize) -> impl Iterator<Item = (String, String)> {
    let parents = counters.div_ceil(CHILDREN);
    let of_leaves = (0..counters).map(|number| (leaf(number), parent(number / CHILDREN)));
    let grandparent = |number: usize| above("grandparent", number / CHILDREN);
    of_leaves.chain((0..parents).map(move |number| (parent(number), grandparent(number))))
}

/// Inserts them; how many.
fn link(cluster: &Remote, counters: usize) -> Result<usize, BenchError> {
    let mut edges = edges(counters).peekable();
    let mut inserted = 0;
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

/// Moves counters from one parent to another, and back, at a steady rate, until it is told to end; returns the number of changes.
/// Everything that it has moved is back in the end.
fn move_about(cluster: &Remote, per_s: f64, counters: usize, is_over: &AtomicBool) -> Result<usize, BenchError> {
    let parents = counters.div_ceil(CHILDREN);
    // Each move is two changes.
    let moved = (per_s * CHANGE_EVERY.as_secs_f64() / 2.0).ceil().max(1.0) as usize;
    let begun = Instant::now();
    let mut rounds = 0;
    while !is_over.load(Ordering::Acquire) || rounds % 2 == 1 {
        let at = |nth: usize| (rounds / 2 * moved + nth) * MOVED_APART % counters;
        let here = |leaf: usize| leaf / CHILDREN;
        let there = |leaf: usize| (leaf / CHILDREN + 1) % parents;
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
}

// ---- kill -9 ----

/// Kills everything under load and starts it again; returns the counts, and the time until it was there again.
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
    let mut samples = vec![
        promised("both killed under load: start to the node's first durable answer").is(node),
        promised("both killed under load: start to the aggregator's first read").is(aggregator),
    ];
    samples.extend(phases(cluster)?);
    Ok((report, samples))
}

/// The node's report of its last start: the parts that it read, and their duration.
fn phases(cluster: &Cluster) -> Result<Vec<Sample>, BenchError> {
    let log = cluster.node_log(0)?;
    let last = log.lines().rfind(|line| line.contains(RECOVERED)).unwrap_or_default();
    let said =
        |key: &str| last.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok());
    let sample = |(key, name, unit): (&str, &str, &str)| {
        said(key).map(|value: f64| Asked::cost(format!("the node's start: {name}"), unit).is(value))
    };
    let phases = [
        ("opened_ms", "until its log was open", "ms"),
        ("rows_ms", "its checkpoint", "ms"),
        ("entries_ms", "its log behind it", "ms"),
        ("rows", "rows read", ""),
        ("entry_bytes", "bytes of the log read", "B"),
    ];
    Ok(phases.into_iter().filter_map(sample).collect())
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
    let mut counters = 0;
    let mut sum = 0;
    let mut after = String::new();
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
