//! The simulator as a stranger runs it: a seed and a sweep say the same runs, and of a run some parts can be left out.

use serde_json::Value;
use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidemark-lab")).arg("sim").args(arguments).output().expect("the command starts")
}

fn line(arguments: &[&str]) -> Value {
    let output = sim(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one line of JSON")
}

fn hash(line: &Value) -> u64 {
    u64::from_str_radix(line["trace_hash"].as_str().expect("a hash"), 16).expect("hexadecimal")
}

#[test]
fn a_sweep_is_made_of_the_runs_of_its_seeds() {
    let runs = ["3", "4"].map(|seed| line(&["run", "--seed", seed]));
    let sweep = line(&["sweep", "--seeds", "3..5"]);
    for run in &runs {
        assert_eq!((&run["seeds"], &run["failures"]), (&1.into(), &0.into()));
        assert!(run["events_per_s"].as_u64() > Some(0) && run["coverage"]["grant"].as_u64() > Some(0), "{run}");
    }
    assert_eq!((&sweep["seed"], &sweep["seeds"], &sweep["failures"]), (&3.into(), &2.into(), &0.into()));
    assert_eq!(hash(&sweep), runs.iter().map(hash).fold(0, u64::wrapping_add));
    let grants = |line: &Value| line["coverage"]["grant"].as_u64().expect("a count");
    assert_eq!(grants(&sweep), runs.iter().map(grants).sum::<u64>());
}

#[test]
fn parts_of_a_run_are_left_out_by_number() {
    let quiet =
        line(&["run", "--seed", "3", "--only-clients", "none", "--only-faults", "none", "--only-admin", "none"]);
    assert_eq!((&quiet["increments"], &quiet["milestones"]), (&0.into(), &0.into()));
    let one = line(&["run", "--seed", "3", "--only-clients", "0"]);
    let all = line(&["run", "--seed", "3"]);
    let increments = |line: &Value| line["increments"].as_u64().expect("a count");
    assert!(0 < increments(&one) && increments(&one) < increments(&all), "{one} {all}");
    let refused = |arguments: &[&str]| {
        let output = sim(arguments);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(&["run", "--seed", "3", "--only-faults", "1,99"]).contains("--only-faults 99: seed 3 has "));
    assert!(refused(&["run", "--seed", "3", "--only-faults", "x"]).contains("invalid digit"));
    let of_another_build = refused(&["replay", "--seed", "3", "--meaning", "1"]);
    assert!(
        of_another_build.contains("--meaning 00000001: to this build seed 3 means another run ("),
        "{of_another_build}"
    );
    assert!(refused(&["replay", "--seed", "3", "--meaning", "xyz"]).contains("hexadecimal"));
    assert!(refused(&["replay", "--seed", "3", "--meaning", "123456789"]).contains("hexadecimal"));
    assert!(refused(&["shrink", "--seed", "3"]).contains("seed 3 does not fail: there is nothing to shrink"));
}

/// The program is started anew each time, so that nothing of the first run is left.
#[test]
fn a_seed_means_the_same_run_in_two_fresh_processes_in_all_modes() {
    // Over QUIC one in which datagrams come late to handshakes that are over.
    for (mode, seed) in [("fast", "7"), ("raft", "7"), ("quic", "10")] {
        let run = |seed| line(&["run", "--mode", mode, "--seed", seed]);
        let first = run(seed);
        let again = run(seed);
        let other = run("8");
        for key in ["trace_hash", "events", "increments", "milestones", "coverage"] {
            assert_eq!(first[key], again[key], "{mode}: {key}");
        }
        assert_ne!(first["trace_hash"], other["trace_hash"], "{mode}");
        assert_eq!((&first["failures"], &other["failures"]), (&0.into(), &0.into()), "{mode}: {first} {other}");
    }
}

#[test]
fn a_sweep_on_real_logs_is_made_of_the_runs_of_its_seeds() {
    let run = line(&["run", "--mode", "raft", "--seed", "3"]);
    let sweep = line(&["sweep", "--mode", "raft", "--seeds", "3..4"]);
    assert_eq!((&sweep["mode"], &sweep["seeds"], &sweep["failures"]), (&"raft".into(), &1.into(), &0.into()));
    assert_eq!(sweep["trace_hash"], run["trace_hash"]);
    assert!(run["virtual_s"].as_f64() >= Some(30.0) && run["milestones"].as_u64() >= Some(1), "{run}");
}
