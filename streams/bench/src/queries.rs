//! `queries`: many clients ask for months of many tenants by hours of odd zones, while each operation of the store of blobs takes some
//! time. They ask typed queries, then the same in SQL. Each answer's total is compared with the counts that were loaded.

mod month;

use crate::BenchError;
use crate::client::Client;
use crate::process::{Server, program};
use crate::slow::Slow;
use clap::Args;
use month::{Filled, Month, Months, tenant};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::query::range::QuarterRange;
use tidemark_streams_core::time::Quarter;

/// Their hours do not begin with those of UTC, or their clocks change by half an hour.
const ZONES: [&str; 6] =
    ["Asia/Kathmandu", "Australia/Lord_Howe", "America/St_Johns", "Pacific/Chatham", "Asia/Kolkata", "Australia/Eucla"];

#[derive(Clone, Debug, Args)]
pub struct QueriesArgs {
    /// Tenants, each with a row for each listing and hour
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub tenants: u32,
    /// Listings of each tenant
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub listings: u32,
    /// Clients that ask at the same time
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=250))]
    pub clients: u32,
    /// Queries of each phase
    #[arg(long, default_value_t = 1_000)]
    pub queries: u32,
    /// Queries of each phase in SQL; 0: none
    #[arg(long, default_value_t = 500)]
    pub sql_queries: u32,
    /// Queries a second of the phases with a rate
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rate: u32,
    /// Milliseconds that half of the store's operations take at most; 0: no latency
    #[arg(long, default_value_t = 20.0)]
    pub median_ms: f64,
    /// Milliseconds that 99 of 100 operations of the store take at most
    #[arg(long, default_value_t = 50.0)]
    pub p99_ms: f64,
    #[arg(long, default_value_t = 3)]
    pub runs: usize,
    /// Ask a process that answers queries only, beside the server
    #[arg(long)]
    pub query_server: bool,
    /// Processes for SQL
    #[arg(long, default_value_t = 4)]
    pub sql_children: usize,
    /// The program of a child of SQL [default: tidemark-sql beside this program]
    #[arg(long, value_name = "FILE")]
    pub sql_program: Option<PathBuf>,
    /// Folder in which the directory is created [default: the folder of temporary files]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How the clients of a phase ask.
#[derive(Clone, Copy, Debug)]
struct Phase {
    name: &'static str,
    is_sql: bool,
    queries: u32,
    /// Queries a second of all clients. `None`: each asks again at once.
    rate: Option<u32>,
}

/// A question, with the total that its answer must have.
struct Question {
    path: &'static str,
    body: String,
    total: u64,
}

/// What a client saw.
#[derive(Default)]
struct Seen {
    /// Seconds of the answers.
    times: Vec<f64>,
    wrong: Vec<String>,
    /// Queries that were answered by another status than 200.
    refused: Vec<BenchError>,
}

/// A phase that is over.
struct Measured {
    phase: Phase,
    /// Sorted.
    times: Vec<f64>,
    refused: Vec<BenchError>,
    seconds: f64,
    cpu_s: f64,
    reads: f64,
    read_bytes: f64,
}

pub fn run(args: &QueriesArgs) -> Result<String, BenchError> {
    let folder = match &args.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let dir = folder.path().join("streams");
    let months = Months::until_now(args.tenants, args.listings);
    let begun = Instant::now();
    let filled = months.fill(&dir)?;
    let fill_s = begun.elapsed().as_secs_f64();
    let mut runs = Vec::new();
    for _ in 0..args.runs.max(1) {
        runs.push(once(args, months, &dir)?);
    }
    Ok(said(args, filled, fill_s, &runs))
}

/// Starts a server, and passes all phases.
fn once(args: &QueriesArgs, months: Months, dir: &Path) -> Result<Vec<Measured>, BenchError> {
    let bench = std::env::current_exe()?;
    let sql_program = program(args.sql_program.as_deref(), "tidemark-sql")?;
    let QueriesArgs { median_ms, p99_ms, sql_children, .. } = *args;
    let slow = Slow { dir, server: None, median_ms, p99_ms, sql_program: &sql_program, sql_children };
    let start = |slow: &Slow<'_>| {
        let arguments = slow.arguments();
        Server::start(&bench, &arguments.iter().map(String::as_str).collect::<Vec<&str>>())
    };
    let owner = match args.query_server {
        false => None,
        true => Some(start(&Slow { median_ms: 0.0, ..slow.clone() })?),
    };
    let server = start(&Slow { server: owner.as_ref().map(|owner| owner.address.as_str()), ..slow })?;
    ready(&server)?;
    let phases = phases(args);
    let measured = phases.into_iter().map(|phase| Measured::of(args, months, phase, &server)).collect();
    server.stop()?;
    owner.map_or(Ok(()), Server::stop)?;
    measured
}

/// Waits until queries are answered: a process that follows has no manifest at first.
fn ready(server: &Server) -> Result<(), BenchError> {
    let body = r#"{"tenant":"nobody","from":"2020-01-01","to":"2020-01-02"}"#;
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match Client::connect(&server.address)?.post("/v1/impressions/query", body.as_bytes()) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn phases(args: &QueriesArgs) -> Vec<Phase> {
    let QueriesArgs { queries, sql_queries, rate, .. } = *args;
    let paced = queries.min(rate.saturating_mul(10));
    let typed = Phase { name: "typed, cold", is_sql: false, queries, rate: None };
    let sql = Phase { name: "SQL", is_sql: true, queries: sql_queries, rate: None };
    let phases = [
        typed,
        Phase { name: "typed, warm", ..typed },
        Phase { name: "typed, at a rate", queries: paced, rate: Some(rate), ..typed },
        sql,
        Phase { name: "SQL, at a rate", queries: sql_queries.min(paced), rate: Some(rate), ..sql },
    ];
    phases.into_iter().filter(|phase| phase.queries > 0).collect()
}

impl Question {
    /// The question of a number: each tenant in turn, in one of the zones, about one of the two months.
    fn of(months: &Months, number: u32, is_sql: bool) -> Result<Question, BenchError> {
        let tenant_number = number % months.tenants;
        let zone = ZONES[number as usize % ZONES.len()];
        let asked = months.asked();
        let Month { from, to } = &asked[tenant_number as usize % asked.len()];
        let tenant = tenant(tenant_number);
        let mut body = json!({ "tenant": tenant, "zone": zone, "from": from, "to": to });
        let path = match is_sql {
            false => {
                body["limit"] = json!(1_000);
                "/v1/impressions/query"
            }
            true => {
                let query = "SELECT hour, sum(n) AS n FROM impressions_local() GROUP BY hour ORDER BY hour";
                body["query"] = json!(query);
                "/v1/sql"
            }
        };
        let zone = Zone::named(zone)?;
        let quarter = |text: &str| -> Result<u32, BenchError> {
            Ok(Quarter::of_s(zone.time(text)?.s()).map(Quarter::number).unwrap_or_default())
        };
        let range = QuarterRange { from: quarter(from)?, to: quarter(to)? };
        Ok(Question { path, body: body.to_string(), total: months.total(tenant_number, range) })
    }

    /// The total of the rows of an answer. The rows are not decoded as JSON: the clients share the processors with the server.
    fn found(answer: &str) -> u64 {
        let after = answer.split("\"n\":").skip(1);
        let number = |text: &str| text.split(|sign: char| !sign.is_ascii_digit()).next()?.parse::<u64>().ok();
        after.filter_map(number).sum()
    }
}

impl Measured {
    fn of(args: &QueriesArgs, months: Months, phase: Phase, server: &Server) -> Result<Measured, BenchError> {
        let mut metrics = Client::connect(&server.address)?;
        let before = [READS, READ_BYTES].map(|name| metrics.metric(name));
        let [reads, read_bytes] = before;
        let before = [reads?, read_bytes?];
        let cpu_before_s = server.tree_cpu_s();
        let start = Instant::now() + Duration::from_millis(20);
        let months = Arc::new(months);
        let threads: Vec<_> = (0..args.clients)
            .map(|client| {
                let months = Arc::clone(&months);
                let asking = Asking { clients: args.clients, client, phase, start, address: server.address.clone() };
                std::thread::spawn(move || asking.ask(&months))
            })
            .collect();
        let mut all = Seen::default();
        for thread in threads {
            let Seen { times, wrong, refused } = thread.join().map_err(|_| BenchError::Panicked)??;
            all.times.extend(times);
            all.wrong.extend(wrong);
            all.refused.extend(refused);
        }
        let seconds = start.elapsed().as_secs_f64();
        let Seen { mut times, wrong, refused } = all;
        if let Some(first) = wrong.first() {
            return Err(BenchError::Wrong { wrong: wrong.len(), queries: times.len(), first: first.clone() });
        }
        times.sort_by(f64::total_cmp);
        let cpu_s = server.tree_cpu_s() - cpu_before_s;
        let mut metrics = Client::connect(&server.address)?;
        let reads = metrics.metric(READS)? - before[0];
        let read_bytes = metrics.metric(READ_BYTES)? - before[1];
        Ok(Measured { phase, times, refused, seconds, cpu_s, reads, read_bytes })
    }

    fn at(&self, percent: usize) -> f64 {
        let at = (self.times.len() * percent).div_ceil(100).saturating_sub(1);
        self.times.get(at).copied().unwrap_or_default() * 1e3
    }

    fn mean_ms(&self) -> f64 {
        self.times.iter().sum::<f64>() * 1e3 / self.times.len().max(1) as f64
    }

    fn per_s(&self) -> f64 {
        self.times.len() as f64 / self.seconds
    }

    fn json(&self) -> Value {
        let queries = self.times.len().max(1) as f64;
        json!({
            "phase": self.phase.name, "queries": self.times.len(), "rate": self.phase.rate, "queries_per_s": self.per_s(),
            "mean_ms": self.mean_ms(), "p50_ms": self.at(50), "p99_ms": self.at(99), "worst_ms": self.at(100),
            "cpu_ms_per_query": self.cpu_s * 1e3 / queries, "reads_per_query": self.reads / queries,
            "read_kb_per_query": self.read_bytes / 1e3 / queries,
            "refused": self.refused.len(), "first_refusal": self.refused.first().map(ToString::to_string),
        })
    }
}

const READS: &str = "tidemark_streams_query_reads_total";
const READ_BYTES: &str = "tidemark_streams_query_read_bytes_total";

/// A client of a phase.
struct Asking {
    clients: u32,
    client: u32,
    phase: Phase,
    start: Instant,
    address: String,
}

impl Asking {
    /// Asks the questions of this client, one after the other.
    fn ask(&self, months: &Months) -> Result<Seen, BenchError> {
        let mut client = Client::connect(&self.address)?;
        let mut seen = Seen::default();
        let numbers = (self.client..self.phase.queries).step_by(self.clients as usize);
        let questions = numbers.clone().map(|number| Question::of(months, number, self.phase.is_sql));
        let questions: Vec<Question> = questions.collect::<Result<_, _>>()?;
        for (number, question) in numbers.zip(questions) {
            let after = |rate: u32| Duration::from_secs_f64(f64::from(number) / f64::from(rate));
            let due = self.start + self.phase.rate.map_or(Duration::ZERO, after);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            // A query that is late because the one before was slow has waited since it was due.
            let asked = self.phase.rate.map_or_else(Instant::now, |_| due);
            let answer = match client.post(question.path, question.body.as_bytes()) {
                Err(refused @ BenchError::Refused { .. }) => {
                    seen.refused.push(refused);
                    continue;
                }
                answered => answered?,
            };
            seen.times.push(asked.elapsed().as_secs_f64());
            let found = Question::found(&answer);
            if found != question.total {
                seen.wrong.push(format!("{} counts {found}, and {} is expected", question.body, question.total));
            }
        }
        Ok(seen)
    }
}

/// The median and the worst run of each phase.
fn said(args: &QueriesArgs, filled: Filled, fill_s: f64, runs: &[Vec<Measured>]) -> String {
    let phases = runs.first().map_or(0, Vec::len);
    let by_phase = (0..phases).map(|at| {
        let mut of_phase: Vec<&Measured> = runs.iter().filter_map(|run| run.get(at)).collect();
        of_phase.sort_by(|a, b| a.mean_ms().total_cmp(&b.mean_ms()));
        of_phase
    });
    if !args.json {
        let line = |of_phase: Vec<&Measured>| {
            let one = of_phase[of_phase.len() / 2];
            let queries = one.times.len().max(1) as f64;
            format!(
                "{}: {:.0} queries/s, mean {:.0} ms, p99 {:.0} ms, worst {:.0} ms, {:.1} ms of CPU and {:.1} reads a query, \
                 {} refused",
                one.phase.name,
                one.per_s(),
                one.mean_ms(),
                one.at(99),
                one.at(100),
                one.cpu_s * 1e3 / queries,
                one.reads / queries,
                one.refused.len()
            )
        };
        return by_phase.map(line).collect::<Vec<String>>().join("\n");
    }
    let of_phase = |of_phase: Vec<&Measured>| {
        let worst = of_phase[of_phase.len() - 1].json();
        json!({ "median": of_phase[of_phase.len() / 2].json(), "worst": worst })
    };
    let shown: Vec<Value> = by_phase.map(of_phase).collect();
    json!({
        "bench": "queries", "tenants": args.tenants, "listings": args.listings, "clients": args.clients,
        "median_ms": args.median_ms, "p99_ms": args.p99_ms, "runs": runs.len(), "query_server": args.query_server,
        "blobs": filled.blobs, "blob_mb": filled.bytes as f64 / 1e6, "rows": filled.rows, "fill_s": fill_s,
        "totals_equal": true, "phases": shown,
    })
    .to_string()
}
