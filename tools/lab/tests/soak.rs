//! A short soak of real processes under faults, as the command's users run it: everything is accounted for.

use serde_json::Value;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidemark-lab")).args(arguments).output().unwrap()
}

#[test]
fn what_was_acknowledged_under_faults_is_counted_once_and_every_milestone_awarded_once() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    let arguments =
        ["soak", "--minutes", "0.5", "--rate", "1500", "--dcs", "2", "--fault-every", "2", "--json", "--logs"];
    let output = run(&[&arguments[..], &[logs.to_str().unwrap()]].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_str(said.trim()).unwrap_or_else(|error| panic!("{error}: {said}{log}"));
    assert!(output.status.success(), "{log}{report:#}");
    let number = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name}: {report:#}"));
    assert_eq!((number("lost"), number("doubled"), number("awarded_twice")), (0, 0, 0), "{log}{report:#}");
    assert!(number("increments") > 30_000 && number("milestones") >= 1, "{report:#}");
    assert_eq!(number("awards"), number("milestones"), "{report:#}");
    assert_eq!(number("certificates"), number("awards"), "{report:#}");
    assert_eq!((number("unknown"), number("awards_untold")), (0, 0), "{report:#}");
    let faults = report["faults"].as_object().map_or(0, serde_json::Map::len);
    assert!(faults >= 3, "{report:#}");
    let bytes = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().metadata().unwrap().len();
    let sizes: Vec<u64> = std::fs::read_dir(&logs).unwrap().map(bytes).collect();
    assert_eq!(report["logs"].as_str(), logs.to_str(), "{report:#}");
    assert_eq!((sizes.len(), sizes.iter().sum()), (2, number("logs_bytes")), "{report:#}");
}

#[test]
fn a_soak_writes_over_no_logs() {
    let dir = tempfile::tempdir().unwrap();
    for option in ["--dir", "--logs"] {
        let said = String::from_utf8_lossy(&run(&["soak", option, dir.path().to_str().unwrap()]).stderr).into_owned();
        assert!(said.contains(option) && said.contains("exists"), "{said}");
    }
}

#[test]
fn a_soak_that_cannot_be_is_refused_with_the_limit() {
    for (arguments, expected) in [
        (["soak", "--minutes", "0"], "0.1 to 10080 allowed"),
        (["soak", "--nodes", "2"], "1, 3 or 5 allowed"),
        (["soak", "--aggregators", "3"], "1 or 2 allowed"),
        (["soak", "--fault-every", "0.1"], "0, or 0.5 to 3600 allowed"),
    ] {
        let said = String::from_utf8_lossy(&run(&arguments).stderr).into_owned();
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}
