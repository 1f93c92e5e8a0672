//! The report of costs: a tiny one adds up and is the same for the same seed, and the documented one is made of the documented
//! numbers.

use std::path::PathBuf;
use tidemark_sim_report::{Extent, RunLine, Section, files, from_json, measure, to_json};

/// A plot is kept in the tree, and shown in a page.
const PLOT_BYTES_MAX: usize = 60_000;

fn tiny(seed: u64) -> Vec<RunLine> {
    measure(Extent::Tiny, seed, &mut |_| {})
}

#[test]
fn a_tiny_report_adds_up_and_a_seed_means_the_same_report() {
    let lines = tiny(1);
    for line in &lines {
        assert_eq!(line.told_bytes, line.carried_bytes, "bytes by kind are those that links carried: {line:?}");
        assert_eq!((line.weighted_queued, line.refused), (0, 0), "{line:?}");
        let within = line.quiet_us > 0 && line.traffic.iter().all(|traffic| traffic.quiet.plus(traffic.near).bytes > 0);
        assert!(within && line.converged_us.is_some_and(|us| us < 2_000_000), "{line:?}");
    }
    let awards: Vec<_> = lines.iter().flat_map(|line| &line.awards).collect();
    assert!(awards.len() >= 2, "{awards:?}");
    for award in awards {
        assert!(award.exact && award.first == award.at && award.delta == 1, "{award:?}");
        assert!(award.sequenced > 0 && award.sequenced >= award.sequenced_before, "{award:?}");
        assert!(award.latency_us >= award.bound_us, "nothing is faster than the network: {award:?}");
    }
    let json = to_json(&lines);
    assert_eq!(json, to_json(&tiny(1)), "the same seed gives the same report");
    assert_ne!(json, to_json(&tiny(2)));
    assert_eq!(from_json(&json).expect("its own lines"), lines);
    let words = files(&lines, &json);
    let names: Vec<&str> = words.iter().map(|file| file.path.as_str()).collect();
    assert!(names.contains(&"costs.md") && names.contains(&"costs/sequenced.svg"), "{names:?}");
}

#[test]
fn a_line_that_is_none_of_a_report_is_named() {
    let (at, _) = from_json("\n{\"section\":\"rates\"}\n").unwrap_err();
    assert_eq!(at, 2);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "documents are files")]
fn the_documented_costs_are_made_of_the_documented_lines() {
    let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let json = std::fs::read_to_string(docs.join("costs.json")).expect("docs/costs.json");
    let lines = from_json(&json).expect("lines of a report");
    for file in files(&lines, &json) {
        let kept = std::fs::read_to_string(docs.join(&file.path)).expect("a document");
        assert!(
            kept == file.text,
            "docs/{}: make it again with `tidemark sim report --from docs/costs.json --out docs`",
            file.path
        );
        let is_small = !file.path.ends_with(".svg") || kept.len() < PLOT_BYTES_MAX;
        assert!(is_small, "docs/{} has {} bytes", file.path, kept.len());
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "documents are files")]
fn the_documented_costs_hold_what_is_claimed() {
    let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let json = std::fs::read_to_string(docs.join("costs.json")).expect("docs/costs.json");
    let lines = from_json(&json).expect("lines of a report");
    assert!(lines.iter().all(|line| line.told_bytes == line.carried_bytes && line.weighted_queued == 0));
    assert!(lines.iter().flat_map(|line| &line.awards).all(|award| award.exact));
    for line in lines.iter().filter(|line| line.section == Section::Rights) {
        assert!(line.sequenced().0 < 2 * line.zone, "{}: {:?} of {}", line.milestone, line.sequenced(), line.zone);
    }
}
