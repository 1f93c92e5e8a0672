//! `sql`: a child of SQL queries rows of one tenant. Measures its processor time for the query alone and with its rows, and its memory.
//! With `--python`, DuckDB answers the same queries over the same rows on one thread, from a table in memory.

use crate::BenchError;
use bytes::Bytes;
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tidemark_streams_sql::budget::TenantLimits;
use tidemark_streams_sql::frames::{Format, ListingRun, Query, Rows};
use tidemark_streams_sql::limits::FRAME_ROWS_MAX;
use tidemark_streams_sql::pool::{Pool, PoolSettings};

const TYPES: [&str; 7] = ["impression", "click", "favorite", "cart", "buy", "share", "report"];
const HOURS: u32 = 744;
const FIRST_HOUR: u32 = 490_920;
/// A scan with a filter and groups. The time of further scans of the same rows is the cost of a scan, without planning and transfer.
const SCAN: &str = "SELECT hour, sum(n) AS n FROM impressions WHERE type = 'impression' GROUP BY hour";
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
            format!("SELECT count(*) AS c, sum(n) AS n FROM ({scans}) y")
        }
        "ranking" => {
            "SELECT listing, sum(n) AS n FROM impressions GROUP BY listing ORDER BY n DESC, listing LIMIT 20".to_owned()
        }
        "rows only" => "SELECT count(*) AS n FROM impressions".to_owned(),
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
    /// The program of a child [default: tidemark-sql beside this one]
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// A Python that has the package duckdb: it answers the same queries
    #[arg(long, value_name = "FILE")]
    pub python: Option<PathBuf>,
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
    duckdb_s: Option<f64>,
}

pub fn run(args: &SqlArgs) -> Result<String, BenchError> {
    let program = match &args.program {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name("tidemark-sql"),
    };
    let rows = rows(args.rows);
    let count: usize = rows.iter().map(Rows::len).sum();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let duckdb = args.python.as_deref().map(|python| duckdb(python, &rows, args.runs)).transpose()?;
    let mut measured = Vec::new();
    for (at, name) in QUERIES.into_iter().enumerate() {
        let sql = text(name);
        let mut one = runtime.block_on(measure(&program, name, &sql, &rows, args.runs))?;
        if let Some(duckdb) = &duckdb {
            one.duckdb_s = duckdb["seconds"][at].as_f64();
            let other = duckdb["answers"][at].as_str().unwrap_or_default().to_owned();
            let found = runtime.block_on(answer(&program, &sql, &rows))?;
            if found != other {
                return Err(BenchError::Answers { query: name, found, other });
            }
        }
        measured.push(one);
    }
    Ok(said(args, count, &measured))
}

fn said(args: &SqlArgs, count: usize, measured: &[Measured]) -> String {
    let find = |name: &str| measured.iter().find(|one| one.query == name).map_or(0.0, |one| one.cpu_s);
    let scan_s = ((find(SCANS_NAME) - find(ONE_SCAN)) / (SCANS - 1) as f64).max(1e-9);
    let rows_per_s = count as f64 / scan_s;
    if args.json {
        let of = |one: &Measured| {
            json!({
                "query": one.query, "cpu_s": one.cpu_s, "plan_cpu_s": one.plan_s, "peak_mib": one.peak_mib,
                "duckdb_cpu_s": one.duckdb_s,
            })
        };
        let queries: Vec<Value> = measured.iter().map(of).collect();
        return json!({ "bench": "sql", "rows": count, "runs": args.runs, "rows_per_s": rows_per_s, "queries": queries })
            .to_string();
    }
    let mut text = format!("{count} rows; {rows_per_s:.0} rows/s on one core: a scan with a filter and groups");
    for Measured { query, cpu_s, plan_s, peak_mib, duckdb_s } in measured {
        let duckdb = duckdb_s.map_or(String::new(), |seconds| format!("; DuckDB {:.1} ms", seconds * 1e3));
        let [ms, plan_ms] = [cpu_s * 1e3, plan_s * 1e3];
        text += &format!(
            "\n{query}: {ms:.1} ms of CPU with rows, {plan_ms:.1} ms without, {peak_mib:.0} MiB at most{duckdb}"
        );
    }
    text
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
        tenant: TenantLimits { queries: 2, time: Duration::from_secs(1 << 30), rows: u64::MAX },
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
    Ok(Measured { query: name, cpu_s: median(with_rows), plan_s: median(without), peak_mib, duckdb_s: None })
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
    let mut session = pool.begin("tenant").await?;
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
    session.plan(query).await?;
    for rows in rows {
        session.rows(rows.clone()).await?;
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

/// The most resident memory that a process has had.
fn peak_bytes(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.unwrap_or_default() << 10
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
            SELECT i.listing, i.total, rank() OVER (ORDER BY i.total DESC, i.listing) AS place";
    for name in &TYPES[1..] {
        sql += &format!(", {name}_by_listing.total AS {name}");
    }
    sql += ", (SELECT max(total) FROM days) AS best_day FROM impression_by_listing i";
    for name in &TYPES[1..] {
        sql += &format!(" LEFT JOIN {name}_by_listing ON {name}_by_listing.listing = i.listing");
    }
    sql + " ORDER BY place LIMIT 20"
}

/// Answers the queries on one thread, and prints the median time and the answer of each.
const SCRIPT: &str = "
import csv, io, json, statistics, sys, time, duckdb
path, runs = sys.argv[1], int(sys.argv[2])
db = duckdb.connect(config={'threads': 1})
db.execute(f'''CREATE TABLE impressions AS SELECT listing, type, make_timestamp(hour * 3600000000) AS hour, n
    FROM read_csv('{path}', columns={{'listing': 'VARCHAR', 'type': 'VARCHAR', 'hour': 'BIGINT', 'n': 'BIGINT'}})''')
for (name,) in db.execute('SELECT DISTINCT type FROM impressions').fetchall():
    db.execute(f'''CREATE VIEW {name} AS SELECT listing, hour, n FROM impressions WHERE type = '{name}' ''')
seconds, answers = [], []
for sql in json.load(sys.stdin):
    took = []
    for _ in range(runs):
        begun = time.process_time()
        relation = db.execute(sql)
        rows = relation.fetchall()
        took.append(time.process_time() - begun)
    text = io.StringIO()
    out = csv.writer(text, lineterminator=chr(10))
    out.writerow([column[0] for column in relation.description])
    for row in rows:
        out.writerow([v.strftime('%Y-%m-%dT%H:%M:%SZ') if hasattr(v, 'strftime') else v for v in row])
    seconds.append(statistics.median(took))
    answers.append(text.getvalue())
print(json.dumps({'seconds': seconds, 'answers': answers}))
";

fn duckdb(python: &Path, rows: &[Rows], runs: usize) -> Result<Value, BenchError> {
    let mut file = tempfile::NamedTempFile::new()?;
    for rows in rows {
        let mut text = String::new();
        let mut at = 0;
        for run in &rows.listings {
            for _ in 0..run.rows {
                let n: u32 = rows.quarters[at].iter().sum();
                let name = &rows.types[usize::from(rows.type_of[at])];
                text += &format!("{},{name},{},{n}\n", run.listing, rows.hours[at]);
                at += 1;
            }
        }
        file.write_all(text.as_bytes())?;
    }
    let queries: Vec<String> = QUERIES.into_iter().map(text).collect();
    let mut input = tempfile::tempfile()?;
    input.write_all(json!(queries).to_string().as_bytes())?;
    std::io::Seek::rewind(&mut input)?;
    let mut command = Command::new(python);
    let output = command.args(["-c", SCRIPT]).arg(file.path()).arg(runs.to_string()).stdin(input).output()?;
    if !output.status.success() {
        return Err(BenchError::Program(String::from_utf8_lossy(&output.stderr).chars().take(400).collect()));
    }
    Ok(serde_json::from_slice(&output.stdout).map_err(std::io::Error::other)?)
}
