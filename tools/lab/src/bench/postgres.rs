//! PostgreSQL beside us: the same draw of increments into the same flat buckets (a total, a minute, an hour and a day of each), one after
//! the other on this machine, each with its load beside it, every answer durable. The acknowledged increments are summed up in both
//! afterwards.
//!
//! PostgreSQL has it as easy as possible: counters are numbers there and names here, one statement folds and writes thousands of
//! increments, no two connections want the same row, nothing expires and no process reads. Tables, rows of a batch and connections are
//! those that were fastest in short trials. What is not tried is a row per counter with all its buckets in one value: updates write whole
//! rows, so each increment would log its whole day.

mod server;

use tokio::runtime::Runtime;
use tokio_postgres::Client;

use self::server::Server;
use super::child::TaskChild;
use super::line::{Asked, Sample};
use super::load::Pace;
use super::load::postgres::{Layout, PostgresTask, ROWS_PER_COUNTER, connect};
use super::node::{self, Measured};
use super::series::{CLIENTS, FILL, Promise, Series, Shape, TRIAL_S, UnderLoad, WARM_S, WINDOW, not_once};
use super::task::Task;
use super::{BenchError, Plan, with_memory_gib};

const COUNTERS: usize = 1_000_000;
/// Long enough for checkpoints of both to come into it, and new minutes.
const LOAD_S: f64 = 120.0;
/// Checkpoints of both are rare: PostgreSQL's come after 16 GB of its log, ours after a sixteenth of that.
const LOG_MIB: u32 = 1_024;
/// Ours to PostgreSQL's.
const TIMES: f64 = 10.0;
/// Before it is known what is best.
const FIRST: Choice = Choice { layout: Layout::OneTable, batch_rows: 10_000, connections: CLIENTS };
/// What is tried of each besides.
const BATCH_ROWS: [usize; 2] = [2_000, 50_000];
const CONNECTIONS: [usize; 2] = [2, 8];
/// Of a trial, before it is measured.
const TRIAL_WARM_S: f64 = 1.0;

/// How PostgreSQL is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    layout: Layout,
    batch_rows: usize,
    connections: usize,
}

impl Choice {
    fn text(self) -> String {
        let Choice { layout, batch_rows, connections } = self;
        format!("{}, batches of {batch_rows} rows, {connections} connections", layout.name())
    }
}

/// `postgres`.
pub fn run(plan: &Plan) -> Result<Vec<Sample>, BenchError> {
    let (mut samples, theirs_per_s) = theirs(plan)?;
    let (of_ours, ours_per_s) = ours(plan)?;
    samples.extend(of_ours);
    samples.insert(0, Asked::rate("ours to PostgreSQL's", "times").must(TIMES).is(ours_per_s / theirs_per_s));
    Ok(samples)
}

fn ours(plan: &Plan) -> Result<(Vec<Sample>, f64), BenchError> {
    let whose = "ours: ";
    let mut series = Series::start(plan, Shape { log_mib: LOG_MIB, ..Shape::of(plan.size_or(COUNTERS)) })?;
    series.found()?;
    series.catch_up()?;
    let most = series.under_load(plan.seconds_or(LOAD_S), None)?;
    series.catch_up()?;
    let sums = series.sums()?.into_iter().map(|mut sample| {
        sample.figure.name.insert_str(0, whose);
        sample
    });
    let samples = most.samples(whose, &Promise::default()).into_iter().chain(sums).collect();
    Ok((samples, most.measured.report.acknowledged_per_s))
}

fn theirs(plan: &Plan) -> Result<(Vec<Sample>, f64), BenchError> {
    let whose = "PostgreSQL: ";
    let mut postgres = Postgres::start(plan)?;
    let (best, tried) = postgres.best()?;
    let most = postgres.under_load(best)?;
    let mut samples = most.samples(whose, &Promise::default());
    let version = postgres.version()?;
    let with = format!("PostgreSQL {version}; {}; {}; {}", best.text(), tried, postgres.server.settings());
    let first = samples.remove(0);
    samples.insert(0, first.with(with));
    samples.extend(postgres.sums(best.layout)?);
    Ok((samples, most.measured.report.acknowledged_per_s))
}

/// A server with tables of one layout.
struct Postgres<'a> {
    plan: &'a Plan,
    counters: usize,
    client: Client,
    runtime: Runtime,
    server: Server,
    /// Into the tables of each layout.
    counted: [u64; Layout::ALL.len()],
}

impl<'a> Postgres<'a> {
    fn start(plan: &'a Plan) -> Result<Postgres<'a>, BenchError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(BenchError::io("tokio"))?;
        let mut server = Server::start(plan.postgres_bin.as_deref())?;
        let client = server.wait_for(|socket| runtime.block_on(connect(socket)).ok())?;
        let counters = plan.size_or(COUNTERS);
        let counted = [0; Layout::ALL.len()];
        Ok(Postgres { plan, counters, client, runtime, server, counted })
    }

    /// What is fastest: of layouts, then of rows of a batch, then of connections; and what was tried.
    fn best(&mut self) -> Result<(Choice, String), BenchError> {
        let mut tried = Vec::new();
        let mut best = (FIRST, 0.0);
        for layout in Layout::ALL {
            self.fill(layout)?;
            self.try_out(Choice { layout, ..FIRST }, &mut best, &mut tried)?;
        }
        let slower = Layout::ALL.into_iter().filter(|&layout| layout != best.0.layout);
        slower.into_iter().try_for_each(|layout| self.empty(layout))?;
        for batch_rows in BATCH_ROWS {
            self.try_out(Choice { batch_rows, ..best.0 }, &mut best, &mut tried)?;
        }
        for connections in CONNECTIONS {
            self.try_out(Choice { connections, ..best.0 }, &mut best, &mut tried)?;
        }
        Ok((best.0, format!("tried: {}", tried.join(", "))))
    }

    fn try_out(&mut self, choice: Choice, best: &mut (Choice, f64), tried: &mut Vec<String>) -> Result<(), BenchError> {
        let seconds = TRIAL_S.min(self.plan.seconds_or(LOAD_S));
        let per_s = self.load(choice, TRIAL_WARM_S.min(seconds), seconds)?.report.acknowledged_per_s;
        tried.push(format!("{:.0}/s with {}", per_s, choice.text()));
        if per_s > best.1 {
            *best = (choice, per_s);
        }
        Ok(())
    }

    /// Makes tables and counts each counter once.
    fn fill(&mut self, layout: Layout) -> Result<(), BenchError> {
        self.execute(layout.create())?;
        let choice = Choice { layout, ..FIRST };
        let task = self.task(choice, Pace::Once { items: WINDOW }, 0.0, FILL.as_secs_f64());
        let mut child = TaskChild::start("fill", &Task::Postgres(task), self.server.folder())?;
        child.wait_ready()?;
        child.go()?;
        let report = child.wait_loaded(FILL)?;
        node::check(&report)?;
        self.counted[layout as usize] += report.acknowledged;
        Ok(())
    }

    /// Sums up what is in tables that are needed no more, and removes them.
    fn empty(&mut self, layout: Layout) -> Result<(), BenchError> {
        let off: Vec<Sample> = self.sums(layout)?.into_iter().filter(|sample| sample.value != 0.0).collect();
        if !off.is_empty() {
            return Err(BenchError::Failed { who: "PostgreSQL".to_owned(), reason: format!("sums are off: {off:?}") });
        }
        self.execute(layout.drop())
    }

    fn task(&self, choice: Choice, pace: Pace, warm_s: f64, seconds: f64) -> PostgresTask {
        let Choice { layout, batch_rows, connections } = choice;
        let socket = self.server.socket().to_owned();
        let seed = u64::from(self.plan.run);
        PostgresTask { socket, layout, connections, batch_rows, counters: self.counters, pace, warm_s, seconds, seed }
    }

    fn load(&mut self, choice: Choice, warm_s: f64, seconds: f64) -> Result<Measured, BenchError> {
        let task = Task::Postgres(self.task(choice, Pace::Window { items: WINDOW }, warm_s, seconds));
        let measured = node::measure_task(&task, warm_s, seconds, self.server.folder());
        self.server.check()?;
        let measured = measured?;
        node::check(&measured.report)?;
        self.counted[choice.layout as usize] += measured.report.acknowledged;
        Ok(measured)
    }

    fn under_load(&mut self, choice: Choice) -> Result<UnderLoad, BenchError> {
        let seconds = self.plan.seconds_or(LOAD_S);
        let (measured, memory_gib) = with_memory_gib(|| self.load(choice, WARM_S.min(seconds), seconds));
        Ok(UnderLoad { measured: measured?, memory_gib, edge_changes: 0 })
    }

    /// What was not counted once: in totals, minutes, hours or days.
    fn sums(&self, layout: Layout) -> Result<Vec<Sample>, BenchError> {
        let rows = self.runtime.block_on(self.client.query(layout.sums(), &[])).map_err(BenchError::setup)?;
        let sums: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        if sums.len() != ROWS_PER_COUNTER {
            return Err(BenchError::Failed { who: "PostgreSQL".to_owned(), reason: format!("sums: {sums:?}") });
        }
        let counted = self.counted[layout as usize];
        let most_off = sums.iter().map(|&sum| sum as u64).max_by_key(|&sum| sum.abs_diff(counted));
        Ok(not_once("PostgreSQL: ", counted, most_off.expect("there are four")).to_vec())
    }

    fn version(&self) -> Result<String, BenchError> {
        let row =
            self.runtime.block_on(self.client.query_one("SHOW server_version", &[])).map_err(BenchError::setup)?;
        Ok(row.get(0))
    }

    fn execute(&self, sql: &str) -> Result<(), BenchError> {
        self.runtime.block_on(self.client.batch_execute(sql)).map_err(BenchError::setup)
    }
}
