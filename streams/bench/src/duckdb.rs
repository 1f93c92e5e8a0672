//! `duckdb`: loads a Parquet file, and has DuckDB add up the same file by tenant, listing and hour: processor time of each, one run.
//!
//! Without a file DuckDB writes one: a day of tenants with ten listings and 10,000 events each, in the order of their times.

use crate::BenchError;
use crate::process::{children_cpu_s, program};
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Prints events, groups and the sum.
const SCRIPT: &str = "
import json, sys, duckdb
path, tenant, listing, at, n = sys.argv[1:]
name = lambda column: '\"' + column.replace('\"', '\"\"') + '\"'
rows = duckdb.sql(f'''SELECT count(*), sum(n), sum(events) FROM (SELECT sum({name(n) if n else 1}) AS n, count(*) AS events
    FROM read_parquet('{path.replace(chr(39), chr(39) * 2)}')
    GROUP BY {name(tenant)}, {name(listing)}, date_trunc('hour', {name(at)}))''').fetchall()[0]
print(json.dumps({'groups': rows[0], 'total': int(rows[1]), 'events': rows[2]}))
";

/// Writes a file of events.
const GENERATE: &str = "
import sys, duckdb
path, events = sys.argv[1], int(sys.argv[2])
tenants = max(events // 10000, 1)
duckdb.sql(f'''COPY (SELECT 'seller-' || lpad((hash(i) % {tenants})::VARCHAR, 8, '0') AS tenant,
    'listing-' || lpad((hash(i) % {tenants} * 10 + hash(i + {events}) % 10)::VARCHAR, 8, '0') AS listing,
    TIMESTAMP '2026-10-14' + to_seconds(i * 86400 // {events}) AS \"at\", 1 AS n
    FROM range({events}) events(i)) TO '{path.replace(chr(39), chr(39) * 2)}' (FORMAT parquet)''')
";
const GENERATED_MAP: &str = "tenant=tenant,listing=listing,at=at,n=n";

#[derive(Clone, Debug, Args)]
pub struct DuckdbArgs {
    /// The Parquet file [default: one that DuckDB writes]
    #[arg(requires = "map")]
    pub file: Option<PathBuf>,
    /// Which column of the file is what, as of `tidemark-streams load`
    #[arg(long, value_name = "FIELD=COLUMN,...", requires = "file")]
    pub map: Option<String>,
    /// Number of events in the file that DuckDB writes
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub events: u64,
    /// A Python that has the package duckdb
    #[arg(long, value_name = "FILE", default_value = "python3")]
    pub python: PathBuf,
    /// The program that is measured [default: tidemark-streams beside this one]
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    #[arg(long, default_value_t = 3)]
    pub runs: usize,
    /// Folder in which directories are created [default: the folder of temporary files]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

struct Run {
    events: u64,
    load: Cost,
    duckdb: Cost,
}

#[derive(Clone, Copy)]
struct Cost {
    cpu_s: f64,
    seconds: f64,
}

pub fn run(args: &DuckdbArgs) -> Result<String, BenchError> {
    let program = program(args.program.as_deref(), "tidemark-streams")?;
    let generated = tempdir(args)?;
    let input = match (&args.file, &args.map) {
        (Some(file), Some(map)) => Input { file: file.clone(), map: map.clone() },
        (Some(_), None) | (None, Some(_)) | (None, None) => generate(args, generated.path().join("events.parquet"))?,
    };
    let mut runs =
        (0..args.runs.max(1)).map(|_| once(args, &input, &program)).collect::<Result<Vec<Run>, BenchError>>()?;
    runs.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let median = runs[runs.len() / 2].ratio();
    let worst = runs[runs.len() - 1].ratio();
    if !args.json {
        return Ok(format!("{median:.2} times the processor time of DuckDB (worst {worst:.2}); the sums are equal"));
    }
    let shown: Vec<Value> = runs.iter().map(Run::json).collect();
    Ok(json!({
        "bench": "duckdb", "file": input.file.file_name().map(|name| name.to_string_lossy()),
        "cpu_ratio_median": median, "cpu_ratio_worst": worst, "total_equals_duckdb": true, "runs": shown,
    })
    .to_string())
}

impl Run {
    fn ratio(&self) -> f64 {
        self.load.cpu_s / self.duckdb.cpu_s
    }

    fn json(&self) -> Value {
        let cost = |cost: Cost| {
            let us = cost.cpu_s * 1e6 / self.events.max(1) as f64;
            json!({ "cpu_s": cost.cpu_s, "cpu_us_per_event": us, "seconds": cost.seconds })
        };
        json!({ "events": self.events, "load": cost(self.load), "duckdb": cost(self.duckdb) })
    }
}

/// The file that is loaded, and which column of it is what.
struct Input {
    file: PathBuf,
    map: String,
}

fn generate(args: &DuckdbArgs, file: PathBuf) -> Result<Input, BenchError> {
    let mut command = Command::new(&args.python);
    command.args(["-c", GENERATE]).arg(&file).arg(args.events.to_string());
    output(&mut command)?;
    Ok(Input { file, map: GENERATED_MAP.to_owned() })
}

fn tempdir(args: &DuckdbArgs) -> Result<tempfile::TempDir, BenchError> {
    Ok(match &args.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    })
}

fn once(args: &DuckdbArgs, input: &Input, program: &Path) -> Result<Run, BenchError> {
    let folder = tempdir(args)?;
    let dir = folder.path().join("streams");
    let mut command = Command::new(program);
    command.arg("load").arg(&input.file).args(["--map", &input.map, "--dir"]).arg(&dir);
    let (_, load) = output(&mut command)?;
    let column = |field: &str| {
        let pairs = input.map.split(',').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(name, _)| *name == field).map_or(String::new(), |(_, column)| column.to_owned())
    };
    let mut command = Command::new(&args.python);
    command.args(["-c", SCRIPT]).arg(&input.file).args(["tenant", "listing", "at", "n"].map(column));
    let (said, duckdb) = output(&mut command)?;
    let said: Value = serde_json::from_str(said.trim()).map_err(std::io::Error::other)?;
    let total = said["total"].as_u64().unwrap_or_default();
    crate::recount::compare_total(&dir, total)?;
    Ok(Run { events: said["events"].as_u64().unwrap_or_default(), load, duckdb })
}

/// Runs a program to its end, and says what it printed and took.
fn output(command: &mut Command) -> Result<(String, Cost), BenchError> {
    let before_s = children_cpu_s();
    let begun = Instant::now();
    let output = command.output()?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu_s = children_cpu_s() - before_s;
    match output.status.success() {
        true => Ok((String::from_utf8_lossy(&output.stdout).into_owned(), Cost { cpu_s, seconds })),
        false => Err(BenchError::Program(String::from_utf8_lossy(&output.stderr).chars().take(400).collect())),
    }
}
