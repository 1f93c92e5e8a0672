//! The demo as a user runs it, small: three data centres on two continents and a half, real processes, real sockets. Every acknowledged
//! increment is counted in every view, and exactly one increment is the n-th.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const DCS: &str = "usa-1,europe-1,asia-0";

fn demo(data_dir: Option<&Path>, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemark-demo"));
    command.args(["--json", "--dcs", DCS]).args(options);
    if let Some(data_dir) = data_dir {
        command.arg("--data-dir").arg(data_dir);
    }
    command.output().expect("the program was built for this test")
}

fn closing_line(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{complained}", output.status);
    assert_eq!(said.lines().count(), 1, "one line: {said}");
    serde_json::from_str(said.trim()).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn number(line: &Value, name: &str) -> u64 {
    line[name].as_u64().unwrap_or_else(|| panic!("{name} in {line}"))
}

/// The checks of every run.
fn check_conservation(line: &Value) {
    assert_eq!(number(line, "acknowledged"), number(line, "sent"), "{line}");
    assert_eq!(number(line, "acknowledged"), number(line, "counted"), "{line}");
    for name in ["overloaded", "failed", "unknown", "unanswered", "pending"] {
        assert_eq!(number(line, name), 0, "{name} in {line}");
    }
    assert_eq!(line["views_equal"], true, "{line}");
}

#[test]
fn one_increment_is_the_n_th_and_none_is_lost() {
    let line = closing_line(&demo(None, &["--rate", "2000", "--milestone", "6000", "--for", "6"]));
    check_conservation(&line);
    assert_eq!((number(&line, "awards"), number(&line, "milestone"), number(&line, "ordinal")), (1, 6_000, 6_000));
    assert!(line["award_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{line}");
    assert!(number(&line, "acknowledged") > 8_000, "{line}");
}

#[test]
fn a_second_run_goes_on_where_the_first_ended() {
    let folder = tempfile::tempdir().unwrap();
    let first = ["--rate", "500", "--start-at", "999000", "--milestone", "1000000", "--exit-after-award"];
    let line = closing_line(&demo(Some(folder.path()), &first));
    check_conservation(&line);
    assert_eq!((number(&line, "awards"), number(&line, "ordinal")), (1, 1_000_000));
    let second = ["--rate", "500", "--start-at", "999000", "--milestone", "1000000", "--for", "1"];
    let line = closing_line(&demo(Some(folder.path()), &second));
    check_conservation(&line);
    assert_eq!(number(&line, "awards"), 0, "awarded once for ever: {line}");
}

#[test]
fn a_cut_at_a_whole_second_takes_place_and_the_award_comes_after() {
    let cuts = ["--cut", "asia-0:2:4", "--cut", "asia-0:7:60"];
    let arguments = [&["--rate", "2000", "--milestone", "5000", "--for", "8"][..], &cuts].concat();
    let line = closing_line(&demo(None, &arguments));
    let cut = &line["cuts"][0];
    let lasting = &line["cuts"][1];
    assert!(
        lasting["to_s"].as_f64().is_some_and(|to_s| (8.0..9.0).contains(&to_s)),
        "the end of the load ends it: {line}"
    );
    assert_eq!((&cut["dc"], &cut["pending_over"]), (&"asia-0".into(), &0.into()), "{line}");
    assert!(cut["to_s"].as_f64().is_some_and(|to_s| to_s >= 4.0) && line["awards"] == 1, "{line}");
}

#[test]
fn options_that_cannot_be_are_refused_before_anything_starts() {
    let output = demo(None, &["--rate=-1"]);
    assert!(!output.status.success() && output.stdout.is_empty());
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(complaint, "tidemark-demo: --rate is -1: 0 to 10000000 allowed\n");
}
