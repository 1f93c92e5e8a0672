//! `plan` as a command: files are read, and what is wrong with them is named.

use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidemark-streams");

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("plan").args(arguments).output().unwrap()
}

fn said(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn plan_without_a_file_is_the_article() {
    let said = said(&[]);
    for figure in ["11,574,074 writes/s", "1,666,667 writes/s", "1,667 writes/s", "1,157 writes/s", "2,824 writes/s"] {
        assert!(said.contains(figure), "{figure} in {said}");
    }
    assert!(said.contains("deltas + hours + days + months"), "{said}");
}

#[test]
fn files_in_toml_and_json_change_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let toml = file("site.toml", include_str!("plan/site.toml"));
    let json: serde_json::Value = serde_json::from_str(&said(&[&toml, "--json"])).unwrap();
    assert_eq!(json["inputs"]["users"], 2_000_000.0);
    let figures = json["figures"].as_array().unwrap();
    let naive = figures.iter().find(|figure| figure["key"] == "naive_writes_per_s").unwrap();
    assert!((naive["value"].as_f64().unwrap() - 57_870.37).abs() < 0.01, "{naive}");
    assert!(figures.iter().all(|figure| figure["formula"].as_str().is_some_and(|formula| formula.len() > 5)));
    let same = file("site.json", r#"{"users": 2000000, "events_per_day": 5000000000}"#);
    assert!(said(&[&same]).contains("57,870 writes/s"));
    let bad = file("bad.toml", "users = 0\n");
    let refused = run(&[&bad]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && error.ends_with("bad.toml: users 0: at least 1\n"), "{error}");
    assert!(!run(&["missing.toml"]).status.success());
}
