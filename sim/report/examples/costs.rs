//! The report while developing, without building the whole command: `costs whole|quick|tiny FOLDER [SECTION [CENTRES]]`, or
//! `costs LINES FOLDER` from lines that were printed before.
#![expect(clippy::disallowed_methods, reason = "an example reads and writes files")]
use tidemark_sim_report::{Extent, RunLine, files, from_json, plans, run, to_json};

fn main() {
    let a: Vec<String> = std::env::args().skip(1).collect();
    let lines = match a[0].as_str() {
        "whole" => measure(Extent::Whole, &a),
        "quick" => measure(Extent::Quick, &a),
        "tiny" => measure(Extent::Tiny, &a),
        path => from_json(&std::fs::read_to_string(path).expect("a file")).expect("lines of a report"),
    };
    for file in files(&lines, &to_json(&lines)) {
        let path = std::path::Path::new(&a[1]).join(&file.path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
        std::fs::write(path, file.text).expect("writable");
    }
}

fn measure(extent: Extent, a: &[String]) -> Vec<RunLine> {
    let mut lines = Vec::new();
    for (section, plan) in plans(extent, 1) {
        let other = a.get(2).is_some_and(|only| !format!("{section:?}").eq_ignore_ascii_case(only));
        if other || a.get(3).is_some_and(|only| *only != plan.centres.to_string()) {
            continue;
        }
        let line = run(section, plan);
        eprintln!(
            "{section:?}: {} centres, {}/s, milestone {}: sequenced {:?} of {}, award {:?}, converged {:?}",
            line.centres,
            line.rate_per_s,
            line.milestone,
            line.sequenced(),
            line.zone,
            line.latencies_us(),
            line.converged_us,
        );
        lines.push(line);
    }
    lines
}
