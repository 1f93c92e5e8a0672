//! Benches as a user runs them, tiny: that they run, that their output has its fields, and that their counts add up (a bench of increments
//! that were not all counted once fails by itself). Never how fast.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemark-lab"));
    command.arg("bench").args(arguments).output().expect("the program was built for this test")
}

/// The line of a bench, after what every line has is checked.
fn line(arguments: &[&str], figures: &[&str]) -> Value {
    let output = bench(&[arguments, &["--json", "--runs", "1"]].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.lines().count(), 1, "one line: {said}");
    let line: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!((&line["bench"], &line["runs"]), (&arguments[0].into(), &1.into()), "{line}");
    for figure in figures {
        let rows = line["figures"].as_array().expect("figures");
        let row = rows.iter().find(|row| row["name"].as_str().is_some_and(|name| name.contains(figure)));
        let row = row.unwrap_or_else(|| panic!("{figure} in {line}"));
        // Of any sign: a tiny run's growth of memory is what the allocator gave back in between.
        assert!(row["median"].is_number(), "{row}");
        assert!(row["worst"].is_number() && row["unit"].is_string() && !row["values"].as_array().unwrap().is_empty());
    }
    line
}

#[test]
fn hits_of_a_real_node_are_all_counted() {
    line(&["node-hits", "--seconds", "0.3", "--rate", "500"], &["at most", "open loop", "p99"]);
}

/// HTTP has counted exactly the answered increments: the bench fails by itself otherwise.
#[test]
fn single_adds_are_all_counted_once() {
    let figures =
        ["HTTP: increments", "HTTP: durable answer, one connection, idle, p99", "Rust client", "peer: Redis: inc"];
    line(&["single-add", "--seconds", "0.3", "--size", "4"], &figures);
}

#[test]
fn ids_over_http_are_all_counted_beside_increments_without() {
    line(&["ids", "--seconds", "0.3", "--size", "20000"], &["memory of one id", "with an id", "share of the rate"]);
}

#[test]
fn deltas_are_all_counted_also_on_a_slow_disk() {
    let arguments = ["node-deltas", "--seconds", "0.3", "--rate", "2000", "--size", "200", "--flush-delay", "5ms"];
    let line = line(&arguments, &["at most", "open loop", "share left with 5 ms per flush"]);
    assert_eq!(line["flush_delay_ms"], 5);
}

#[test]
fn reads_of_a_real_aggregator_are_all_answered() {
    line(&["reads", "--seconds", "0.3", "--rate", "200", "--size", "300"], &["256 concurrent", "get_many", "p99"]);
}

#[test]
fn buckets_at_rest_are_counted_while_they_become_more() {
    let line = line(
        &["buckets", "--size", "2000000"],
        &["100000 of them", "2000000 of them, merged", "buckets per row", "key and value"],
    );
    let value = |name: &str| {
        let rows = line["figures"].as_array().unwrap();
        rows.iter().find(|row| row["name"].as_str().unwrap().contains(name)).unwrap()["median"].as_f64().unwrap()
    };
    assert!(value("key and value") <= value("2000000 of them"), "{line}");
}

#[test]
fn points_of_many_counters_are_read_with_the_days_of_one_and_its_relatives() {
    let figures = ["counters founded", "get_many", "p99", "one counter by day"];
    line(&["point-reads", "--seconds", "0.3", "--rate", "200", "--size", "2000"], &figures);
}

/// The counts that both edges moved are right, and gone afterwards: the bench fails by itself otherwise.
#[test]
fn edges_that_move_much_are_put_in_and_taken_away() {
    let figures = ["300 descendants of one counter", "300 ancestors of one counter", "get meanwhile, p99"];
    let line = line(&["edge-moves", "--seconds", "0.3", "--rate", "200", "--size", "300"], &figures);
    let rows = line["figures"].as_array().unwrap();
    let changes = rows.iter().filter(|row| row["name"].as_str().unwrap().starts_with("such changes"));
    assert!(changes.clone().count() == 2 && changes.clone().all(|row| row["worst"].as_f64() >= Some(2.0)), "{line}");
}

/// Each is in the ledger once: the bench fails by itself otherwise.
#[test]
fn changes_of_edges_that_come_together_from_three_continents_are_all_made() {
    let figures = ["at a time in each of three continents", "of these in asia-0", "in usa-1 until", "given up"];
    let line = line(&["edge-changes", "--seconds", "2"], &figures);
    let rows = line["figures"].as_array().unwrap();
    let rates = rows.iter().filter(|row| row["unit"] == "/s");
    assert!(rates.clone().count() == 4 && rates.clone().all(|row| row["worst"].as_f64() > Some(0.0)), "{line}");
}

#[test]
fn slots_count_the_same_in_turns() {
    let figures = ["aggregator, 1 slots", "aggregator, 16 slots", "4 slots to 1", "16 slots to 1"];
    let line = line(&["slots", "--seconds", "0.3", "--rate", "2000", "--size", "2000"], &figures);
    let rows = line["figures"].as_array().unwrap();
    let wrong = rows.iter().filter(|row| row["must"] == 0.0);
    assert!(wrong.clone().count() == 6 && wrong.clone().all(|row| row["worst"] == 0.0), "{line}");
}

#[test]
fn subscribers_are_all_told() {
    let figures = ["memory of the aggregator", "all have its award", "cores of the aggregator", "for the slowest"];
    line(&["live", "--seconds", "1", "--size", "40"], &figures);
}

/// Every row is found again: the bench fails by itself otherwise.
#[test]
fn rows_are_updated_in_a_directory_and_in_a_file() {
    let figures = ["rows in a directory", "rows in the log's file", "directory to file", "memory that"];
    let line = line(&["rows", "--size", "5000"], &figures);
    let rows = line["figures"].as_array().unwrap();
    let updated = rows.iter().filter(|row| row["name"].as_str().unwrap().starts_with("random updates"));
    assert!(updated.clone().count() == 4 && updated.clone().all(|row| row["worst"].as_f64() > Some(0.0)), "{line}");
}

#[test]
fn counting_allocates_nothing() {
    let line = line(&["hot-path", "--size", "100000"], &["on a handle", "10,000 keys", "fetch_add"]);
    let rows = line["figures"].as_array().unwrap();
    let row = rows.iter().find(|row| row["unit"] == "").expect("a number without a unit");
    assert_eq!((&row["name"], &row["worst"]), (&"allocations while counting".into(), &0.0.into()));
}

#[test]
fn cells_are_all_held() {
    line(&["memory", "--size", "2000"], &["node, per cell", "1 data centre", "15 data centres"]);
}

#[test]
fn what_is_told_arrives() {
    line(&["gossip", "--size", "300"], &["per changed cell and peer", "first time"]);
}

#[test]
fn figures_of_the_demo_are_taken_over() {
    line(&["sequence-all", "--seconds", "1", "--rate", "100"], &["acknowledged and counted", "numbered", "overloaded"]);
}

#[test]
fn killed_processes_answer_again() {
    let line = line(&["recovery", "--seconds", "0.2", "--rate", "2000", "--size", "1000"], &["durable", "first read"]);
    assert_eq!(line["figures"][0]["values"].as_array().unwrap().len(), 4, "{line}");
}

/// Both sums are right: the figures say so.
#[cfg(feature = "postgres")]
#[test]
fn postgresql_counts_the_same_beside_us() {
    let missing = bench(&["postgres", "--postgres-bin", "no-such-folder"]);
    let complaint = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(!missing.status.success() && complaint.contains("postgresql-15"), "{complaint}");
    let arguments = ["postgres", "--seconds", "0.3", "--size", "2000"];
    if !Path::new("/usr/lib/postgresql/15/bin/postgres").exists() {
        eprintln!("not run: Debian's postgresql-15 is not installed");
        return;
    }
    let line = line(&arguments, &["ours to PostgreSQL's", "PostgreSQL: increments into", "ours: written"]);
    let rows = line["figures"].as_array().unwrap();
    let off = rows.iter().filter(|row| row["must"] == 0.0);
    assert!(off.clone().count() == 4 && off.clone().all(|row| row["worst"] == 0.0), "{line}");
    let with = rows.iter().find_map(|row| row["with"][0].as_str()).expect("what it was measured with");
    assert!(with.contains("fsync=on") && with.contains("synchronous_commit=on"), "{with}");
}

/// Without its client it says how to be built.
#[cfg(not(feature = "postgres"))]
#[test]
fn postgresql_needs_a_build_that_has_its_client() {
    let refused = bench(&["postgres"]);
    let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && complaint.contains("--features postgres"), "{complaint}");
}

#[test]
fn benches_are_listed_and_unknown_ones_are_refused_with_the_list() {
    let listed = bench(&[]);
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.status.success() && text.lines().all(|line| line.split_whitespace().count() > 1), "{text}");
    let refused = bench(&["no-such"]);
    let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && complaint.contains("node-hits"), "{complaint}");
}

#[test]
fn lines_become_a_table_and_other_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("good");
    let bad = folder.path().join("bad");
    let line = r#"{"bench":"b","command":"c","runs":1,"flush_delay_ms":0,"machine_cores":2,"figures":[{"name":"n","unit":"ms","rate":false,"must":2.0,"aim":null,"median":1.0,"worst":1.5,"values":[1.0],"cpu_s":null,"cores":null,"reached":true}]}"#;
    std::fs::write(&good, line).unwrap();
    std::fs::write(&bad, "{}").unwrap();
    let table = bench(&["report", &good.display().to_string()]);
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.status.success() && text.contains("| n | 2 ms |  | 1 ms | 1.50 ms |  | yes |"), "{text}");
    let refused = bench(&["report", &bad.display().to_string()]);
    assert!(!refused.status.success() && refused.stdout.is_empty());
}

#[test]
fn the_documented_table_is_made_of_the_documented_lines() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let table = bench(&["report", &docs.join("figures.json").display().to_string()]);
    let page = std::fs::read_to_string(docs.join("figures.md")).expect("docs/figures.md");
    assert!(table.status.success() && page.ends_with(&*String::from_utf8_lossy(&table.stdout)), "make it again");
}
