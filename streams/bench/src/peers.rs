//! Other engines on the same Parquet files: DuckDB and chdb, the library of ClickHouse, each on one thread in a Python process of its own.

use crate::BenchError;
use serde_json::{Value, json};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The engines. Each is a package of Python.
pub const ENGINES: [&str; 2] = ["duckdb", "chdb"];

/// The answer of an engine to a query.
pub struct Peer {
    /// Processor time from the text until the result, with reading the files: the median of warm runs.
    pub cpu_s: f64,
    /// As CSV.
    pub answer: String,
}

/// Answers queries over the files, and prints processor time and answer of each.
const SCRIPT: &str = "
import csv, io, json, statistics, sys, time
engine, runs, files = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
asked = json.load(sys.stdin)
if engine == 'duckdb':
    import duckdb
    db = duckdb.connect(config={'threads': 1})
    run = lambda sql: db.execute(sql)
    def rows_of(sql):
        result = db.execute(sql)
        return [column[0] for column in result.description], result.fetchall()
    source = f'''SELECT listing, type, make_timestamp(epoch_us(hour)) AS hour, n FROM read_parquet({files})'''
else:
    from chdb import session
    db = session.Session()
    run = lambda sql: db.query(sql)
    for setting in ['max_threads = 1', 'join_use_nulls = 1', \"date_time_output_format = 'iso'\", 'prefer_column_name_to_alias = 1',
            'output_format_json_quote_64bit_integers = 0']:
        run('SET ' + setting)
    run('CREATE DATABASE IF NOT EXISTS bench')
    run('USE bench')
    def rows_of(sql):
        text = str(db.query(sql.replace(\"date_part('hour', hour)\", 'toHour(hour)'), 'JSONCompactEachRowWithNames'))
        lines = [json.loads(line) for line in text.splitlines() if line]
        return lines[0], lines[1:]
    glob = files[0] if len(files) == 1 else '{' + ','.join(files) + '}'
    source = f'''SELECT listing, type, hour, n FROM file('{glob}', 'Parquet')'''
run(f'CREATE VIEW impressions AS {source}')
for name in asked['types']:
    run(f'''CREATE VIEW {name} AS SELECT listing, hour, n FROM impressions WHERE type = '{name}' ''')
def cell(value):
    if hasattr(value, 'strftime'):
        return value.strftime('%Y-%m-%dT%H:%M:%SZ')
    return value.replace('.000000Z', 'Z') if isinstance(value, str) else value
answers = []
for sql in asked['queries']:
    took = []
    for _ in range(runs + 1):
        begun = time.process_time()
        names, rows = rows_of(sql)
        took.append(time.process_time() - begun)
    text = io.StringIO()
    out = csv.writer(text, lineterminator=chr(10))
    out.writerow(names)
    out.writerows([[cell(value) for value in row] for row in rows])
    answers.append({'cpu_s': statistics.median(took[1:]), 'answer': text.getvalue()})
print(json.dumps(answers))
";

/// Queries for a peer, over `impressions` and a table for each type.
pub struct Asked<'a> {
    pub python: &'a Path,
    pub files: &'a [PathBuf],
    pub types: &'a [&'a str],
    pub queries: &'a [String],
    pub runs: usize,
}

/// Has an engine answer queries.
pub fn answers(engine: &str, asked: &Asked<'_>) -> Result<Vec<Peer>, BenchError> {
    let mut input = tempfile::tempfile()?;
    input.write_all(json!({ "types": asked.types, "queries": asked.queries }).to_string().as_bytes())?;
    input.rewind()?;
    let mut command = Command::new(asked.python);
    command.args(["-c", SCRIPT, engine]).arg(asked.runs.to_string()).args(asked.files);
    let output = command.stdin(input).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        // The cause is at the end.
        let from = said.char_indices().rev().nth(400).map_or(0, |(at, _)| at);
        return Err(BenchError::Program(format!("{engine}: {}", &said[from..])));
    }
    let found: Value = serde_json::from_slice(&output.stdout).map_err(std::io::Error::other)?;
    let peer = |one: &Value| Peer {
        cpu_s: one["cpu_s"].as_f64().unwrap_or_default(),
        answer: one["answer"].as_str().unwrap_or_default().to_owned(),
    };
    Ok(found.as_array().into_iter().flatten().map(peer).collect())
}
