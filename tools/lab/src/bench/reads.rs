//! Reads through the client library, in a process of its own, of an aggregator that has counted 10,000 keys.

use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tidemark_client::{Client, CounterName, GetError, Site};
use tidemark_transport::Credentials;
use tokio::task::LocalSet;

use super::child::TaskChild;
use super::cluster::Cluster;
use super::line::{Asked, Sample};
use super::load::{self, Content, Draw, Pace};
use super::task::{Said, Task, say, wait_for_start};
use super::ticks::Ticks;
use super::{BenchError, Meter, Plan, node, task::Place};
use tidemark_demo::arrivals::{Arrivals, Pattern};
use tidemark_demo::messages::Latency;

const KEYS: usize = 10_000;
const CALLERS: usize = 256;
const RATE_PER_S: f64 = 50_000.0;
pub const AT_ONCE: usize = 100;
/// Of many keys this number is read, spread over all: a client reads no more than a million different ones.
const NAMES_MAX: usize = 1_000_000;
/// While all are looked at once.
const LOOKED_AT_ONCE: usize = 10_000;
const WARM_S: f64 = 0.5;
/// How often reads that are due are sent.
const TICK: Duration = Duration::from_micros(200);
/// Every key is readable within this after it was counted.
pub const VISIBLE: Duration = Duration::from_secs(30);
/// After the end, answers may take so long.
const DRAIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// The reads of a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadTask {
    pub place: Place,
    pub keys: usize,
    pub kind: ReadKind,
    pub seconds: f64,
    pub seed: u64,
}

/// How it is read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadKind {
    /// A number of callers, each reading a number of values at a time, over and over.
    Callers { callers: usize, at_once: usize },
    /// An open loop of single reads.
    Rate { per_s: f64 },
}

/// The result of the reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadReport {
    pub values_per_s: f64,
    pub asked: u64,
    pub answered: u64,
    /// From when a read was due (an open loop) or asked until it was answered.
    pub answer: Latency,
    /// From when a read of an open loop was due until it was asked.
    pub lateness: Latency,
}

/// `reads`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let keys = plan.size_or(KEYS).max(2 * AT_ONCE);
    let mut cluster = Cluster::start(plan.flush_delay)?;
    fill(&mut cluster, plan, keys)?;
    let promise = Promise {
        single_per_s: Some(200_000.0),
        aim_per_s: Some(500_000.0),
        many_per_s: Some(1_000_000.0),
        p99_ms: Some(1.0),
    };
    all(&mut cluster, plan, keys, &promise)
}

/// The figures that reads must reach.
#[derive(Default)]
pub struct Promise {
    pub single_per_s: Option<f64>,
    pub aim_per_s: Option<f64>,
    pub many_per_s: Option<f64>,
    pub p99_ms: Option<f64>,
}

/// Every way of reading, of keys that are counted.
///
/// # Errors
/// A read failed.
pub fn all(cluster: &mut Cluster, plan: &Plan, keys: usize, promise: &Promise) -> Result<Vec<Sample>, BenchError> {
    let mut read = |kind| measure(cluster, plan, keys, kind);
    let single = read(ReadKind::Callers { callers: CALLERS, at_once: 1 })?;
    let many = read(ReadKind::Callers { callers: CALLERS, at_once: AT_ONCE })?;
    let open = read(ReadKind::Rate { per_s: plan.rate_or(RATE_PER_S) })?;
    let promised = |asked: Asked, must: Option<f64>| Asked { must: must.filter(|_| plan.rate.is_none()), ..asked };
    let rate = |asked: Asked, (report, cpu_s): &(ReadReport, Option<f64>)| {
        asked.is(report.values_per_s).costing(*cpu_s, plan.seconds_or(node::LOAD_S))
    };
    Ok(vec![
        rate(
            Asked {
                aim: promise.aim_per_s,
                ..promised(Asked::rate("get, 256 concurrent callers", "/s"), promise.single_per_s)
            },
            &single,
        ),
        rate(promised(Asked::rate("get_many of 100, values", "/s"), promise.many_per_s), &many),
        rate(Asked::rate("get of an open loop", "/s"), &open),
        promised(Asked::cost("get at that rate, p99", "ms"), promise.p99_ms).is(open.0.answer.p99_ms),
        Asked::cost("get at that rate, p50", "ms").is(open.0.answer.p50_ms),
        Asked::cost("the generator's lateness, p99", "ms").is(open.0.lateness.p99_ms),
    ])
}

/// An open loop of single reads, which nothing is promised of.
///
/// # Errors
/// A read failed.
pub fn open_loop(cluster: &mut Cluster, plan: &Plan, keys: usize, whose: &str) -> Result<[Sample; 2], BenchError> {
    let (report, _) = measure(cluster, plan, keys, ReadKind::Rate { per_s: plan.rate_or(RATE_PER_S) })?;
    let took = |share: &str, ms: f64| Asked::cost(format!("{whose}, {share}"), "ms").is(ms);
    Ok([took("p99", report.answer.p99_ms), took("p50", report.answer.p50_ms)])
}

/// Counts every key once.
pub fn fill(cluster: &mut Cluster, plan: &Plan, keys: usize) -> Result<(), BenchError> {
    let content = Content::Deltas { keys, round_ms: 20, draw: Draw::InTurn };
    let task = node::task(cluster, plan, content, Pace::Once { items: 200_000 });
    let mut child =
        TaskChild::start("fill", &Task::Load(super::load::LoadTask { seconds: 600.0, ..task }), cluster.folder())?;
    child.wait_ready()?;
    child.go()?;
    let report = child.wait_loaded(Duration::from_secs(600))?;
    if report.acknowledged != keys as u64 {
        let reason = format!("not every key was counted: {report:?}");
        return Err(BenchError::Failed { who: "the fill".to_owned(), reason });
    }
    Ok(())
}

fn measure(
    cluster: &mut Cluster,
    plan: &Plan,
    keys: usize,
    kind: ReadKind,
) -> Result<(ReadReport, Option<f64>), BenchError> {
    let seconds = plan.seconds_or(node::LOAD_S);
    let task = ReadTask { place: cluster.place(), keys, kind, seconds, seed: plan.run.into() };
    let within = Duration::from_secs_f64(WARM_S + seconds);
    let mut child = TaskChild::start("readers", &Task::Read(task), cluster.folder())?;
    child.wait_ready()?;
    child.go()?;
    child.wait_for(within, |said| matches!(said, Said::Measuring).then_some(()))?;
    let meter = Meter::start();
    child.wait_for(within, |said| matches!(said, Said::Measured).then_some(()))?;
    let cpu_s = meter.cpu_s();
    Ok((all_answered(&mut child, cluster, within)?, cpu_s))
}

/// The final report of the readers.
///
/// # Errors
/// A process has failed, or a read was not answered.
pub fn all_answered(child: &mut TaskChild, cluster: &mut Cluster, within: Duration) -> Result<ReadReport, BenchError> {
    let report = child.wait_for(within, |said| match said {
        Said::Read(report) => Some(report),
        _ => None,
    })?;
    cluster.check()?;
    if report.answered != report.asked {
        let reason = format!("not all was answered: {report:?}");
        return Err(BenchError::Failed { who: "the readers".to_owned(), reason });
    }
    Ok(report)
}

// ---- the other process ----

/// The state that readers share, on one thread.
struct Reading {
    client: Client,
    names: Vec<CounterName>,
    measure: Instant,
    end: Instant,
    seen: RefCell<Seen>,
}

struct Seen {
    asked: u64,
    answered: u64,
    measured: u64,
    failed: Option<Box<dyn Error>>,
    answer: Histogram<u64>,
    lateness: Histogram<u64>,
}

/// Reads until the time is over. Says `Ready`, waits for `start`, says `Measuring` and `Measured`.
///
/// # Errors
/// A read that failed; the first of them.
pub async fn read(task: ReadTask) -> Result<ReadReport, Box<dyn Error>> {
    let Place { dc, nodes, aggregator, credentials } = task.place.clone();
    let site = Site { dc, nodes, aggregator: Some(aggregator) };
    let client = Client::builder().site(site).credentials(Credentials::load(&credentials)?).connect().await?;
    let apart = task.keys.div_ceil(NAMES_MAX).max(1);
    let names = (0..task.keys).step_by(apart).map(load::name).collect::<Result<Vec<_>, _>>()?;
    wait_visible(&client, &names).await?;
    if !wait_for_start().await? {
        return Ok(ReadReport::default());
    }
    let measure = Instant::now() + Duration::from_secs_f64(WARM_S.min(task.seconds));
    let end = measure + Duration::from_secs_f64(task.seconds);
    let answer = Histogram::new_with_bounds(1, 60_000_000, 3)?;
    let lateness = answer.clone();
    let seen = RefCell::new(Seen { asked: 0, answered: 0, measured: 0, failed: None, answer, lateness });
    let reading = Rc::new(Reading { client, names, measure, end, seen });
    LocalSet::new().run_until(perform(reading.clone(), task.kind, task.seed)).await?;
    let mut seen = reading.seen.borrow_mut();
    if let Some(error) = seen.failed.take() {
        return Err(error);
    }
    Ok(ReadReport {
        values_per_s: seen.measured as f64 / task.seconds,
        asked: seen.asked,
        answered: seen.answered,
        answer: load::latency(&seen.answer),
        lateness: load::latency(&seen.lateness),
    })
}

async fn wait_visible(client: &Client, names: &[CounterName]) -> Result<(), Box<dyn Error>> {
    let deadline = Instant::now() + VISIBLE;
    for names in names.chunks(LOOKED_AT_ONCE) {
        while client.get_many(names).await?.iter().any(|reading| reading.up == 0) {
            if Instant::now() > deadline {
                return Err(format!("not all keys were visible after {} s", VISIBLE.as_secs()).into());
            }
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(())
}

async fn perform(reading: Rc<Reading>, kind: ReadKind, seed: u64) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    match kind {
        ReadKind::Callers { callers, at_once } => (0..callers).for_each(|caller| {
            tokio::task::spawn_local(reading.clone().call_on(caller, at_once));
        }),
        ReadKind::Rate { per_s } => {
            let arrivals = Arrivals::new(per_s, Pattern::Poisson, None, seed);
            tokio::task::spawn_local(reading.clone().ask_by_time(start, arrivals, Ticks::every(TICK)?));
        }
    }
    tokio::time::sleep_until(reading.measure.into()).await;
    say(&Said::Measuring)?;
    tokio::time::sleep_until(reading.end.into()).await;
    say(&Said::Measured)?;
    let deadline = Instant::now() + DRAIN;
    while !reading.is_done() && Instant::now() < deadline {
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

impl Reading {
    /// A caller: reads, waits, reads again.
    async fn call_on(self: Rc<Self>, caller: usize, at_once: usize) {
        for round in 0.. {
            let asked = Instant::now();
            if asked > self.end {
                return;
            }
            let at = (caller * 7_919 + round * 131) % (self.names.len() - at_once);
            self.seen.borrow_mut().asked += 1;
            let result = match at_once {
                1 => self.client.get(&self.names[at]).await.map(|_| 1),
                _ => self.client.get_many(&self.names[at..at + at_once]).await.map(|readings| readings.len()),
            };
            if !self.note(asked, result) {
                return;
            }
        }
    }

    /// An open loop.
    async fn ask_by_time(self: Rc<Self>, start: Instant, mut arrivals: Arrivals, ticks: Ticks) {
        let mut at = 0;
        while Instant::now() < self.end {
            while let Some(due_us) = arrivals.pop_due(start.elapsed().as_micros() as u64) {
                at = (at + 7_919) % self.names.len();
                self.seen.borrow_mut().asked += 1;
                tokio::task::spawn_local(self.clone().ask(start + Duration::from_micros(due_us), at));
            }
            if let Err(error) = ticks.next().await {
                return self.fail(error);
            }
        }
    }

    async fn ask(self: Rc<Self>, due: Instant, at: usize) {
        if (self.measure..self.end).contains(&due) {
            self.seen.borrow_mut().lateness.saturating_record((due.elapsed().as_micros() as u64).max(1));
        }
        let result = self.client.get(&self.names[at]).await.map(|_| 1);
        self.note(due, result);
    }

    /// Whether it was answered.
    fn note(&self, since: Instant, result: Result<usize, GetError>) -> bool {
        let now = Instant::now();
        let mut seen = self.seen.borrow_mut();
        match result {
            Ok(values) => {
                seen.answered += 1;
                if (self.measure..self.end).contains(&now) {
                    seen.measured += values as u64;
                }
                if (self.measure..self.end).contains(&since) {
                    seen.answer.saturating_record(((now - since).as_micros() as u64).max(1));
                }
                true
            }
            Err(error) => {
                drop(seen);
                self.fail(error);
                false
            }
        }
    }

    /// The first that fails is told.
    fn fail(&self, error: impl Error + 'static) {
        self.seen.borrow_mut().failed.get_or_insert_with(|| error.into());
    }

    fn is_done(&self) -> bool {
        let seen = self.seen.borrow();
        seen.asked == seen.answered || seen.failed.is_some()
    }
}
