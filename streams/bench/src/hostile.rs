//! `hostile`: queries of good tenants at a rate, first alone, then beside a hundred queries that mean harm. Compares their latencies, and
//! measures the memory of each process for SQL. The hundred are sent again, each time by new tenants, until the good tenants have asked so
//! often that their 99th percentile means something.

use crate::BenchError;
use crate::client::Client;
use crate::hostile_texts::hostile;
use crate::latency::Times;
use crate::process::{Server, children, peak_bytes, program};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidemark_streams_sql::limits::DATA_SLACK_BYTES;

/// Connections of good tenants. So many queries may wait at a time.
const CONNECTIONS: usize = 24;
const GOOD_TENANTS: u64 = 6;
/// Rounds of hostile queries with tenants of their own. A further round has the tenants of the first one.
const ROUNDS: u64 = 8;
/// Hostile queries of one tenant at a time.
const HOSTILE_AT_A_TIME: u64 = 2;
const LISTINGS: u64 = 200;
const HOURS: u64 = 24;
const BATCH: u64 = 2_000;
/// Between two looks at the memory of children.
const LOOK: Duration = Duration::from_millis(20);
/// Before a query that was told to wait is sent again.
const AGAIN: Duration = Duration::from_millis(50);
const MIB: u64 = 1 << 20;
/// Resident memory of a child after its start, at most: its code and what it touches.
const START_BYTES_MAX: u64 = 64 * MIB;
const RANGE: &str = r#""from":"2026-01-01","to":"2026-01-02""#;

/// Queries in SQL of good tenants.
const SQL: [&str; 3] = [
    "SELECT hour, sum(n) AS n FROM impressions WHERE type = 'impression' GROUP BY hour ORDER BY hour",
    "SELECT listing, sum(n) AS n FROM impressions GROUP BY listing ORDER BY n DESC, listing LIMIT 20",
    "SELECT i.listing, i.n AS seen, c.n AS clicked FROM (SELECT listing, sum(n) AS n FROM impression GROUP BY listing) i \
     JOIN (SELECT listing, sum(n) AS n FROM click GROUP BY listing) c USING (listing) ORDER BY 3 DESC, 1 LIMIT 20",
];

#[derive(Clone, Debug, Args)]
pub struct HostileArgs {
    /// The program that is measured, with tidemark-sql beside it [default: tidemark-streams beside this one]
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Queries a second of good tenants; half of them are in SQL
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub rate: u64,
    /// Queries of good tenants alone, and at least as many beside hostile queries, whose rounds are not cut
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub probes: u64,
    /// Tenants that send the hundred hostile queries of a round
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub hostile_tenants: u64,
    /// Seconds that a query may take
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub timeout_s: u64,
    /// MiB of memory that a query may take
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(64..=16_384))]
    pub memory_mib: u64,
    #[arg(long, default_value_t = 3)]
    pub runs: usize,
    /// Folder in which directories are created [default: the folder of temporary files]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The queries of good tenants in a phase.
#[derive(Default)]
struct Phase {
    typed: Vec<f64>,
    sql: Vec<f64>,
    /// Queries without an answer, by code.
    refused: BTreeMap<String, u64>,
    cpu_s: f64,
}

struct Run {
    alone: Shown,
    beside: Shown,
    harm: Harm,
    /// The most memory of each child.
    peaks: Vec<u64>,
}

/// What became of hostile queries.
#[derive(Default)]
struct Harm {
    /// Outcomes, by code.
    outcomes: BTreeMap<String, u64>,
    rounds: u64,
    seconds: f64,
}

/// The latencies of a phase.
struct Shown {
    typed: Times,
    sql: Times,
    all: Times,
    refused: BTreeMap<String, u64>,
    cpu_s: f64,
}

pub fn run(args: &HostileArgs) -> Result<String, BenchError> {
    let program = program(args.program.as_deref(), "tidemark-streams")?;
    let mut runs = (0..args.runs.max(1)).map(|_| once(args, &program)).collect::<Result<Vec<Run>, BenchError>>()?;
    runs.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let median = runs[runs.len() / 2].ratio();
    let worst = runs[runs.len() - 1].ratio();
    let peak = runs.iter().flat_map(|run| &run.peaks).max().copied().unwrap_or_default();
    let limit = args.memory_mib * MIB + START_BYTES_MAX + DATA_SLACK_BYTES;
    if peak > limit {
        return Err(BenchError::Memory { peak_mib: peak / MIB, limit_mib: limit / MIB });
    }
    if !args.json {
        return Ok(format!(
            "p99 of others {median:.2} times that without hostile queries (worst {worst:.2}); a child took {} of {} MiB at most",
            peak / MIB,
            limit / MIB
        ));
    }
    let shown: Vec<Value> = runs.iter().map(Run::json).collect();
    Ok(json!({
        "bench": "hostile", "rate": args.rate, "p99_ratio_median": median, "p99_ratio_worst": worst,
        "memory_mib": args.memory_mib, "peak_mib": peak / MIB, "limit_mib": limit / MIB, "runs": shown,
    })
    .to_string())
}

fn once(args: &HostileArgs, program: &Path) -> Result<Run, BenchError> {
    let folder = match &args.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let dir = folder.path().join("streams");
    let path = dir.to_string_lossy();
    let [timeout_s, memory_mib] = [args.timeout_s.to_string(), args.memory_mib.to_string()];
    let mut serve = vec!["serve", "--dir", &path, "--listen", "127.0.0.1:0", "--flush-s", "1"];
    serve.extend(["--sql-timeout-s", &timeout_s, "--sql-memory-mib", &memory_mib]);
    let server = Server::start(program, &serve)?;
    fill(&server.address, args.hostile_tenants)?;
    // Children start, and files are read once.
    good(&server, args.rate, || std::thread::sleep(Duration::from_secs(3)))?;
    let phase = Duration::from_secs_f64(args.probes as f64 / args.rate as f64);
    let alone = good(&server, args.rate, || std::thread::sleep(phase))?;
    let is_over = AtomicBool::new(false);
    let mut harmed = Ok(Harm::default());
    let watched = std::thread::scope(|scope| {
        let memory = scope.spawn(|| watch(server.id(), &is_over));
        let beside = good(&server, args.rate, || harmed = harm(&server.address, args.hostile_tenants, phase));
        is_over.store(true, Ordering::Relaxed);
        let peaks = memory.join().map_err(|_| BenchError::Panicked)?;
        Ok::<_, BenchError>((beside?, peaks))
    });
    let (beside, peaks) = watched?;
    server.stop()?;
    Ok(Run { alone: Shown::of(alone), beside: Shown::of(beside), harm: harmed?, peaks })
}

/// Rows of all tenants, in blobs.
fn fill(address: &str, hostile_tenants: u64) -> Result<(), BenchError> {
    let mut client = Client::connect(address)?;
    let good = (0..GOOD_TENANTS).map(|number| format!("good-{number}"));
    let tenants = good.chain((0..ROUNDS * hostile_tenants).map(|number| format!("hostile-{number}")));
    for tenant in tenants {
        let rows = LISTINGS * HOURS * 2;
        for from in (0..rows).step_by(BATCH as usize) {
            let event = |number: u64| {
                let kind = ["impression", "click"][(number % 2) as usize];
                let [listing, hour] = [number / 2 / HOURS, number / 2 % HOURS];
                format!(
                    "{{\"tenant\":\"{tenant}\",\"listing\":\"listing-{listing:05}\",\"type\":\"{kind}\",\"n\":{},\
                     \"at\":\"2026-01-01T{hour:02}:10:00Z\"}}\n",
                    number * 7_919 % 1_000 + 1
                )
            };
            let body: String = (from..rows.min(from + BATCH)).map(event).collect();
            client.post("/v1/events", body.as_bytes())?;
        }
    }
    while client.metric("tidemark_streams_lag_rows")? + client.metric("tidemark_streams_counts_held")? > 0.0 {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Queries of good tenants at a rate, while other work is done. A latency begins when its query is due.
fn good(server: &Server, rate: u64, work: impl FnOnce()) -> Result<Phase, BenchError> {
    let is_over = AtomicBool::new(false);
    let next = AtomicU64::new(0);
    let start = Instant::now();
    let before_s = server.tree_cpu_s();
    let asked = std::thread::scope(|scope| {
        let asks = || -> Result<Phase, BenchError> {
            let mut phase = Phase::default();
            let mut client = Client::connect(&server.address)?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let due = start + Duration::from_secs_f64(number as f64 / rate as f64);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                if is_over.load(Ordering::Relaxed) {
                    return Ok(phase);
                }
                phase.ask(&mut client, number, due)?;
            }
        };
        let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(asks)).collect();
        work();
        is_over.store(true, Ordering::Relaxed);
        let ended = threads.into_iter().map(|thread| thread.join().map_err(|_| BenchError::Panicked)?);
        ended.collect::<Result<Vec<Phase>, BenchError>>()
    })?;
    let mut all = Phase { cpu_s: server.tree_cpu_s() - before_s, ..Phase::default() };
    for phase in asked {
        all.typed.extend(phase.typed);
        all.sql.extend(phase.sql);
        phase.refused.into_iter().for_each(|(code, count)| *all.refused.entry(code).or_default() += count);
    }
    Ok(all)
}

impl Phase {
    fn ask(&mut self, client: &mut Client, number: u64, due: Instant) -> Result<(), BenchError> {
        let tenant = number / 2 % GOOD_TENANTS;
        let is_sql = !number.is_multiple_of(2);
        let answered = match is_sql {
            true => {
                let sql = SQL[(number / 2 / GOOD_TENANTS) as usize % SQL.len()];
                client.post(
                    "/v1/sql",
                    format!("{{\"tenant\":\"good-{tenant}\",{RANGE},\"query\":{}}}", json!(sql)).as_bytes(),
                )
            }
            false => {
                let dimension = ["hour", "listing"][(number / 2 / GOOD_TENANTS % 2) as usize];
                let body = format!("{{\"tenant\":\"good-{tenant}\",{RANGE},\"dimensions\":[\"{dimension}\"]}}");
                client.post("/v1/impressions/query", body.as_bytes())
            }
        };
        let seconds = due.elapsed().as_secs_f64();
        match answered {
            Ok(_) => {}
            Err(BenchError::Refused { body, .. }) => *self.refused.entry(code(&body)).or_default() += 1,
            Err(error) => return Err(error),
        }
        // A refused one counts with the time until its refusal, and beside in `refused`.
        if is_sql {
            self.sql.push(seconds)
        } else {
            self.typed.push(seconds)
        }
        Ok(())
    }
}

fn code(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    body["error"]["code"].as_str().unwrap_or("unknown").to_owned()
}

/// Sends the hostile queries in rounds, until a time has passed.
fn harm(address: &str, tenants: u64, at_least: Duration) -> Result<Harm, BenchError> {
    let begun = Instant::now();
    let mut all = Harm::default();
    while begun.elapsed() < at_least {
        let first = all.rounds % ROUNDS * tenants;
        for (code, count) in round(address, first..first + tenants)? {
            *all.outcomes.entry(code).or_default() += count;
        }
        all.rounds += 1;
    }
    Ok(Harm { seconds: begun.elapsed().as_secs_f64(), ..all })
}

/// Sends each hostile query until it has an outcome other than to be sent again later.
fn round(address: &str, tenants: Range<u64>) -> Result<BTreeMap<String, u64>, BenchError> {
    let queries = hostile();
    let next = AtomicU64::new(0);
    let ended = std::thread::scope(|scope| {
        let send = |tenant: u64| -> Result<BTreeMap<String, u64>, BenchError> {
            let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
            let mut client = Client::connect(address)?;
            while let Some(sql) = queries.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                let body = format!("{{\"tenant\":\"hostile-{tenant}\",{RANGE},\"query\":{}}}", json!(sql));
                let outcome = loop {
                    match client.post("/v1/sql", body.as_bytes()) {
                        Ok(_) => break "ok".to_owned(),
                        Err(BenchError::Refused { status: 429 | 503, body }) => {
                            *outcomes.entry(format!("{}, sent again", code(&body))).or_default() += 1;
                            std::thread::sleep(AGAIN);
                        }
                        Err(BenchError::Refused { body, .. }) => break code(&body),
                        Err(error) => return Err(error),
                    }
                };
                *outcomes.entry(outcome).or_default() += 1;
            }
            Ok(outcomes)
        };
        let clients = tenants.flat_map(|tenant| (0..HOSTILE_AT_A_TIME).map(move |_| tenant));
        let threads: Vec<_> = clients.map(|tenant| scope.spawn(move || send(tenant))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().map_err(|_| BenchError::Panicked)?);
        ended.collect::<Result<Vec<_>, BenchError>>()
    })?;
    let mut all = BTreeMap::new();
    ended.into_iter().flatten().for_each(|(code, count)| *all.entry(code).or_default() += count);
    Ok(all)
}

/// The most memory of each child that ran.
fn watch(server: u32, is_over: &AtomicBool) -> Vec<u64> {
    let mut peaks: BTreeMap<u32, u64> = BTreeMap::new();
    while !is_over.load(Ordering::Relaxed) {
        for child in children(server) {
            let peak = peaks.entry(child).or_default();
            *peak = peak_bytes(child).max(*peak);
        }
        std::thread::sleep(LOOK);
    }
    let mut peaks: Vec<u64> = peaks.into_values().collect();
    peaks.sort_unstable_by(|a, b| b.cmp(a));
    peaks
}

impl Shown {
    fn of(phase: Phase) -> Shown {
        let all = [&phase.typed[..], &phase.sql].concat();
        let Phase { typed, sql, refused, cpu_s } = phase;
        Shown { typed: Times::new(typed), sql: Times::new(sql), all: Times::new(all), refused, cpu_s }
    }

    fn json(&self) -> Value {
        json!({
            "typed_s": self.typed.json(), "sql_s": self.sql.json(), "all_s": self.all.json(), "refused": self.refused,
            "cpu_s": self.cpu_s,
        })
    }
}

impl Run {
    fn ratio(&self) -> f64 {
        self.beside.all.at(99) / self.alone.all.at(99)
    }

    fn json(&self) -> Value {
        let peaks: Vec<u64> = self.peaks.iter().map(|bytes| bytes / MIB).collect();
        json!({
            "p99_ratio": self.ratio(),
            "p99_ratio_typed": self.beside.typed.at(99) / self.alone.typed.at(99),
            "p99_ratio_sql": self.beside.sql.at(99) / self.alone.sql.at(99),
            "alone": self.alone.json(), "beside": self.beside.json(),
            "hostile": self.harm.outcomes, "hostile_rounds": self.harm.rounds, "hostile_seconds": self.harm.seconds,
            "children_peak_mib": peaks,
        })
    }
}
