//! `sql`: a child of SQL queries rows of one tenant. Measures its processor time for the query alone and with its rows, and its memory.
//! With `--python`, a server writes the rows to a Parquet file. DuckDB and chdb answer the same queries from this file on one thread, and
//! the server answers them over HTTP: that row is a whole request, which reads the file too.

use crate::BenchError;
use crate::client::Client;
use crate::peers::{self, ENGINES, Peer};
use crate::process::{Server, peak_bytes, program};
use bytes::Bytes;
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemark_streams_sql::budget::TenantLimits;
use tidemark_streams_sql::frames::{Format, ListingRun, Query, ReadColumns, Rows};
use tidemark_streams_sql::limits::{FRAME_ROWS_MAX, QUICK_CPU_MS};
use tidemark_streams_sql::pool::{Pool, PoolSettings};

const TYPES: [&str; 7] = ["impression", "click", "favorite", "cart", "buy", "share", "report"];
const TENANT: &str = "tenant";
const HOURS: u32 = 744;
const FIRST_HOUR: u32 = 490_920;
/// A scan with a filter and groups. The time of further scans of the same rows is the cost of a scan, without planning and transfer.
const SCAN: &str = "SELECT hour, sum(n) AS total FROM impressions WHERE type = 'impression' GROUP BY hour";
const SCANS: usize = 11;
const ONE_SCAN: &str = "scan, filter, group by hour";
const SCANS_NAME: &str = "eleven such scans";
/// The queries by name.
const QUERIES: [&str; 5] = [ONE_SCAN, SCANS_NAME, "ranking", "rows only", "large"];

fn text(query: &str) -> String {
    match query {
        ONE_SCAN => format!("{SCAN} ORDER BY hour"),
        SCANS_NAME => {
            let scans = vec![format!("SELECT * FROM ({SCAN}) x"); SCANS].join(" UNION ALL ");
            format!("SELECT count(*) AS c, sum(total) AS s FROM ({scans}) y")
        }
        "ranking" => {
            "SELECT listing, sum(n) AS total FROM impressions GROUP BY listing ORDER BY total DESC, listing LIMIT 20"
                .to_owned()
        }
        "rows only" => "SELECT count(*) AS c FROM impressions".to_owned(),
        _ => large(),
    }
}

#[derive(Clone, Debug, Args)]
pub struct SqlArgs {
    /// Rows of the tenant: one for each listing, hour of a month and type
    #[arg(long, default_value_t = 1_000_000)]
    pub rows: u64,
    #[arg(long, default_value_t = 5)]
    pub runs: usize,
    /// Run one query only, such as for a profile
    #[arg(long, value_parser = QUERIES)]
    pub query: Option<String>,
    /// The program of a child [default: tidemark-sql beside this one]
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// A Python with the packages duckdb and chdb, which answer the same queries from a Parquet file. Needs tidemark-streams beside the
    /// child's program
    #[arg(long, value_name = "FILE")]
    pub python: Option<PathBuf>,
    /// Folder in which the directory is created [default: the folder of temporary files]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The median of several runs of a query.
struct Measured {
    query: &'static str,
    /// Processor time of the child from the text until the result, with all rows.
    cpu_s: f64,
    /// Without rows: of the same query over an empty table.
    plan_s: f64,
    peak_mib: f64,
    beside: Option<Beside>,
}

/// The same query elsewhere.
#[derive(Clone, Copy)]
struct Beside {
    /// Processor time of the other engines, in their order.
    engines_s: [f64; ENGINES.len()],
    /// A whole request to a server: processor time of server and child, and time until the answer.
    request_cpu_s: f64,
    request_s: f64,
}

impl Beside {
    fn faster_s(&self) -> f64 {
        self.engines_s.into_iter().fold(f64::INFINITY, f64::min)
    }
}

pub fn run(args: &SqlArgs) -> Result<String, BenchError> {
    let program = program(args.program.as_deref(), "tidemark-sql")?;
    let rows = rows(args.rows);
    let count: usize = rows.iter().map(Rows::len).sum();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let beside = args.python.as_deref().map(|python| beside(args, python, &program, &rows)).transpose()?;
    let mut measured = Vec::new();
    let is_asked = |name: &str| args.query.as_deref().is_none_or(|asked| asked == name);
    for (at, name) in QUERIES.into_iter().enumerate().filter(|(_, name)| is_asked(name)) {
        let sql = text(name);
        let mut one = runtime.block_on(measure(&program, name, &sql, &rows, args.runs))?;
        if let Some(beside) = beside.as_ref().and_then(|beside| beside.get(at)) {
            let found = runtime.block_on(answer(&program, &sql, &rows))?;
            if let Some(other) = beside.answers.iter().find(|other| **other != found) {
                return Err(BenchError::Answers { query: name, found, other: other.clone() });
            }
            one.beside = Some(beside.costs);
        }
        measured.push(one);
    }
    Ok(said(args, count, &measured))
}

/// The costs of a query elsewhere, and all answers to it.
struct Elsewhere {
    costs: Beside,
    answers: Vec<String>,
}

/// Has a server keep the rows in a Parquet file, and asks other engines and the server.
fn beside(args: &SqlArgs, python: &Path, program: &Path, rows: &[Rows]) -> Result<Vec<Elsewhere>, BenchError> {
    let folder = match &args.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let dir = folder.path().join("streams");
    let path = dir.to_string_lossy();
    let server = program.with_file_name("tidemark-streams");
    let types = TYPES.join(",");
    let serve = [
        &["serve", "--dir", &path, "--listen", "127.0.0.1:0", "--flush-s", "3600", "--keep-raw-days", "0"][..],
        &["--flush-counts", "16777216", "--types", &types, "--sql-tenant-s", "480", "--sql-memory-mib", "4096"],
        &["--sql-rows-max", "100000000", "--sql-tenant-rows", "1000000000000", "--sql-timeout-s", "600"],
    ]
    .concat();
    let filling = Server::start(&server, &serve)?;
    fill(&filling.address, rows)?;
    filling.stop()?;
    let files = parquet_files(&dir)?;
    let queries = QUERIES.map(text);
    let asked = peers::Asked { python, files: &files, types: &TYPES, queries: &queries, runs: args.runs.max(1) };
    let others = ENGINES.iter().map(|engine| peers::answers(engine, &asked)).collect::<Result<Vec<Vec<Peer>>, _>>()?;
    let asking = Server::start(&server, &serve)?;
    let mut all = Vec::new();
    for (at, sql) in queries.iter().enumerate() {
        let of = |engine: &Vec<Peer>| engine.get(at).map_or(f64::NAN, |peer| peer.cpu_s);
        let engines_s = std::array::from_fn(|engine| others.get(engine).map_or(f64::NAN, of));
        let Request { cpu_s: request_cpu_s, seconds: request_s } = request(&asking, sql, args.runs)?;
        let answers = others.iter().filter_map(|engine| Some(engine.get(at)?.answer.clone())).collect();
        all.push(Elsewhere { costs: Beside { engines_s, request_cpu_s, request_s }, answers });
    }
    asking.stop()?;
    Ok(all)
}

/// The cost of a request: the median of warm runs.
struct Request {
    cpu_s: f64,
    seconds: f64,
}

fn request(server: &Server, sql: &str, runs: usize) -> Result<Request, BenchError> {
    let mut client = Client::connect(&server.address)?;
    let body = json!({ "tenant": TENANT, "from": "2026-01-01", "to": "2026-03-01", "query": sql }).to_string();
    let mut cpu_s = Vec::new();
    let mut seconds = Vec::new();
    for run in 0..=runs.max(1) {
        let before_s = server.tree_cpu_s();
        let begun = Instant::now();
        client.post("/v1/sql", body.as_bytes())?;
        if run > 0 {
            seconds.push(begun.elapsed().as_secs_f64());
            cpu_s.push(server.tree_cpu_s() - before_s);
        }
    }
    Ok(Request { cpu_s: median(cpu_s), seconds: median(seconds) })
}

/// Sends an event for each row.
fn fill(address: &str, rows: &[Rows]) -> Result<(), BenchError> {
    let mut client = Client::connect(address)?;
    for rows in rows {
        let mut body = String::new();
        let listings = rows.listings.iter().flat_map(|run| std::iter::repeat_n(&run.listing, run.rows as usize));
        for (at, listing) in listings.enumerate() {
            let n: u32 = rows.quarters[at].iter().sum();
            let [kind, time_s] =
                [&rows.types[usize::from(rows.type_of[at])], &(u64::from(rows.hours[at]) * 3_600).to_string()];
            body += &format!(
                "{{\"tenant\":\"{TENANT}\",\"listing\":\"{listing}\",\"type\":\"{kind}\",\"n\":{n},\"at\":{time_s}}}\n"
            );
        }
        client.post("/v1/events", body.as_bytes())?;
    }
    while client.metric("tidemark_streams_lag_rows")? > 0.0 {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The files of Parquet below a folder, in the order of their names.
fn parquet_files(folder: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => files.extend(parquet_files(&path)?),
            false if path.extension().is_some_and(|end| end == "parquet") => files.push(path),
            false => {}
        }
    }
    files.sort();
    Ok(files)
}

fn said(args: &SqlArgs, count: usize, measured: &[Measured]) -> String {
    let find = |name: &str| measured.iter().find(|one| one.query == name).map(|one| one.cpu_s);
    let scan_s = find(SCANS_NAME).zip(find(ONE_SCAN)).map(|(eleven_s, one_s)| (eleven_s - one_s) / (SCANS - 1) as f64);
    let rows_per_s = scan_s.map(|scan_s| count as f64 / scan_s.max(1e-9));
    if args.json {
        let queries: Vec<Value> = measured.iter().map(Measured::json).collect();
        return json!({ "bench": "sql", "rows": count, "runs": args.runs, "rows_per_s": rows_per_s, "queries": queries })
            .to_string();
    }
    let mut text = format!("{count} rows");
    if let Some(rows_per_s) = rows_per_s {
        text += &format!("; {rows_per_s:.0} rows/s on one core: a scan with a filter and groups");
    }
    for one in measured {
        text += &one.said();
    }
    text
}

impl Measured {
    fn json(&self) -> Value {
        let mut json = json!({
            "query": self.query, "cpu_s": self.cpu_s, "plan_cpu_s": self.plan_s, "peak_mib": self.peak_mib,
        });
        if let Some(beside) = &self.beside {
            for (engine, seconds) in ENGINES.iter().zip(beside.engines_s) {
                json[format!("{engine}_cpu_s")] = json!(seconds);
            }
            json["ratio_to_faster"] = json!(self.cpu_s / beside.faster_s());
            json["request_cpu_s"] = json!(beside.request_cpu_s);
            json["request_s"] = json!(beside.request_s);
            json["request_cpu_ratio_to_faster"] = json!(beside.request_cpu_s / beside.faster_s());
        }
        json
    }

    fn said(&self) -> String {
        let Measured { query, cpu_s, plan_s, peak_mib, beside } = self;
        let [ms, plan_ms] = [cpu_s * 1e3, plan_s * 1e3];
        let mut text =
            format!("\n{query}: {ms:.1} ms of CPU with rows, {plan_ms:.1} ms without, {peak_mib:.0} MiB at most");
        if let Some(beside) = beside {
            for (engine, seconds) in ENGINES.iter().zip(beside.engines_s) {
                text += &format!("; {engine} {:.1} ms", seconds * 1e3);
            }
            let [ratio, request_ms] = [cpu_s / beside.faster_s(), beside.request_s * 1e3];
            text += &format!("; {ratio:.2} times the faster");
            let cpu_ms = beside.request_cpu_s * 1e3;
            text +=
                &format!("\n{query}, the whole request: {request_ms:.1} ms, {cpu_ms:.0} ms of CPU of server and child");
        }
        text
    }
}

fn pool(program: &Path) -> Arc<Pool> {
    Pool::new(PoolSettings {
        program: program.to_owned(),
        children: 2,
        memory_bytes: 4 << 30,
        timeout: Duration::from_secs(600),
        wait: Duration::from_secs(600),
        scan_rows_max: u64::MAX,
        rows_max: 100_000,
        bytes_max: 16 << 20,
        tenant: TenantLimits { queries: 2, time: Duration::from_secs(1 << 30), rows: u64::MAX, quick_ms: QUICK_CPU_MS },
    })
}

async fn measure(
    program: &Path,
    name: &'static str,
    sql: &str,
    rows: &[Rows],
    runs: usize,
) -> Result<Measured, BenchError> {
    let pool = pool(program);
    let mut with_rows = Vec::new();
    let mut without = Vec::new();
    let mut peak_bytes = 0;
    for _ in 0..runs.max(1) {
        without.push(once(&pool, sql, &[]).await?.cpu_s);
        let run = once(&pool, sql, rows).await?;
        with_rows.push(run.cpu_s);
        peak_bytes = peak_bytes.max(run.peak_bytes);
    }
    let peak_mib = peak_bytes as f64 / f64::from(1 << 20);
    Ok(Measured { query: name, cpu_s: median(with_rows), plan_s: median(without), peak_mib, beside: None })
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or_default()
}

struct Run {
    cpu_s: f64,
    peak_bytes: u64,
    output: Vec<u8>,
}

async fn answer(program: &Path, sql: &str, rows: &[Rows]) -> Result<String, BenchError> {
    let run = once(&pool(program), sql, rows).await?;
    Ok(String::from_utf8_lossy(&run.output).replace("\r\n", "\n"))
}

async fn once(pool: &Arc<Pool>, sql: &str, rows: &[Rows]) -> Result<Run, BenchError> {
    let mut session = pool.begin(TENANT).await?;
    let id = session.id();
    let before_s = id.map_or(0.0, cpu_s);
    let settings = pool.settings();
    let query = Query {
        sql: sql.to_owned(),
        params: Vec::new(),
        zone: "UTC".to_owned(),
        types: TYPES.map(str::to_owned).to_vec(),
        dimensions: Vec::new(),
        uploads: Vec::new(),
        format: Format::Csv,
        rows_max: settings.rows_max,
        bytes_max: settings.bytes_max,
        memory_bytes: settings.memory_bytes,
    };
    if let Some(columns) = session.plan(query).await?.reads {
        // A server has gathered the rows before it sends them. A child that waits for each message would work longer for waking up.
        let messages: Vec<Rows> = match columns == ReadColumns::default() {
            true => vec![Rows::counted(rows.iter().map(|rows| rows.len() as u32).sum())],
            false => rows.iter().map(|rows| rows.only(&columns)).collect(),
        };
        for rows in messages {
            session.rows(rows).await?;
        }
    }
    let result = session.finish().await?;
    let cpu_s = id.map_or(0.0, cpu_s) - before_s;
    Ok(Run { cpu_s, peak_bytes: id.map_or(0, peak_bytes), output: result.output })
}

/// Processor time of all threads of a process.
fn cpu_s(id: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let of_task = |path: PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or_default()
    };
    tasks.map(|task| of_task(task.path())).sum::<f64>() / 1e9
}

/// Rows with counts that the number of a row decides.
fn rows(count: u64) -> Vec<Rows> {
    let each = u64::from(HOURS) * TYPES.len() as u64;
    let listing = |at: u64| format!("listing-{:06}", at / each);
    let frame = |first: u64| {
        let numbers = first..count.min(first + FRAME_ROWS_MAX as u64);
        let mut rows = Rows { types: TYPES.map(str::to_owned).to_vec(), ..Rows::default() };
        let mut type_of = Vec::new();
        for at in numbers {
            match rows.listings.last_mut().filter(|run| run.listing == listing(at)) {
                Some(run) => run.rows += 1,
                None => rows.listings.push(ListingRun { listing: listing(at), rows: 1 }),
            }
            type_of.push((at % TYPES.len() as u64) as u8);
            rows.hours.push(FIRST_HOUR + (at % each / TYPES.len() as u64) as u32);
            rows.quarters.push([1, (at % 5) as u32, 0, (at / each % 7) as u32]);
        }
        rows.type_of = Bytes::from(type_of);
        rows
    };
    (0..count).step_by(FRAME_ROWS_MAX).map(frame).collect()
}

/// 17 SELECTs with 15 GROUP BYs over seven views, in more than 10,000 characters.
fn large() -> String {
    let shares = |name: &str, count: usize| {
        let share = |at: usize| {
            format!("sum(CASE WHEN date_part('hour', hour) = {at} THEN n ELSE 0 END) AS {name}_in_hour_{at}")
        };
        (0..count).map(share).collect::<Vec<_>>().join(", ")
    };
    let mut sql = String::from("WITH ");
    for name in TYPES {
        sql += &format!(
            "{name}_by_listing AS (SELECT listing, {}, sum(n) AS total FROM \"{name}\" GROUP BY listing),\n\
             {name}_by_day AS (SELECT date_trunc('day', hour) AS day, {}, sum(n) AS total FROM \"{name}\" GROUP BY 1),\n",
            shares(name, 14),
            shares("day", 4),
        );
    }
    sql += "days AS (SELECT date_trunc('day', hour) AS day, sum(n) AS total FROM impressions GROUP BY 1)\n\
            SELECT i.listing AS listing, i.total AS total, rank() OVER (ORDER BY i.total DESC, i.listing) AS place";
    for name in &TYPES[1..] {
        sql += &format!(", {name}_by_listing.total AS {name}");
    }
    sql += ", (SELECT max(total) FROM days) AS best_day FROM impression_by_listing i";
    for name in &TYPES[1..] {
        sql += &format!(" LEFT JOIN {name}_by_listing ON {name}_by_listing.listing = i.listing");
    }
    sql + " ORDER BY place LIMIT 20"
}
