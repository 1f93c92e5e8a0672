//! The measurement of queries on a slow store, with few queries: the program starts itself as the server.

use std::process::Command;

#[test]
fn queries_on_a_slow_store_count_what_was_loaded() {
    let small = ["--tenants", "7", "--listings", "2", "--clients", "5", "--queries", "14", "--sql-queries", "0"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemark-streams-bench"));
    let ran = command.arg("queries").args(small).args(["--median-ms", "2", "--p99-ms", "5", "--runs", "1", "--json"]);
    let output = ran.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["totals_equal"], true);
    let phases: Vec<(&str, u64)> = said["phases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|phase| {
            let median = &phase["median"];
            (median["phase"].as_str().unwrap(), median["queries"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(phases, [("typed, cold", 14), ("typed, warm", 14), ("typed, at a rate", 14)]);
}
