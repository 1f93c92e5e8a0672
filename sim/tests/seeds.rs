//! Seeds that failed once, and a first few others, hold every property; a seed means the same run in every process.

use std::process::Command;
use tidemark_sim::coverage::{Coverage, FLOORS};
use tidemark_sim::engine::{Least, Mode};
use tidemark_sim::plan::{Only, Plan};
use tidemark_sim::runner::{self, KEPT_SEEDS, SweepPlan, sweep_in};
use tidemark_sim::teeth::Mutation;

#[test]
fn seeds_that_failed_once_never_fail_again() {
    for seed in runner::seeds(KEPT_SEEDS) {
        let timed = runner::run(seed, Mutation::None);
        assert!(timed.outcome.findings.violations.is_empty(), "seed {seed}: {:?}", timed.outcome.findings.violations);
    }
}

#[test]
fn the_first_seeds_hold_every_property_and_meet_the_situations_they_are_for() {
    let plan = SweepPlan { first: 0, count: 60, seconds: f64::MAX };
    let mut sweep = runner::sweep(plan, Mutation::None, &|_| {});
    for seed in RARE {
        let rare = runner::run(seed, Mutation::None).outcome;
        assert!(rare.findings.violations.is_empty(), "{:?}", rare.findings.violations);
        sweep.coverage.merge(&rare.coverage);
    }
    assert_eq!((sweep.failures, &sweep.failed), (0, &Vec::new()));
    assert!(sweep.increments_least >= 20_000 && sweep.virtual_s_least >= 60.0, "{sweep:?}");
    assert_eq!(sweep.without_milestone, 0);
    for situation in SITUATIONS {
        assert!(sweep.coverage.count(situation) > 0, "no seed met: {situation}");
    }
}

/// Seeds of rare situations. In the first a claim passes on as often as allowed, in the second a late increment is a later milestone, and
/// in the third a block loses its turn. In the fourth a view finds the graph many changes ahead, and in the last a start asks for fewer
/// valves than there are.
const RARE: [u64; 5] = [143, 907, 562, 82, 93];

/// Situations that a sweep must have met, or it has not tested them.
const SITUATIONS: [&str; 82] = [
    "batches held for a view",
    "award",
    "award of a heavy increment",
    "cut off holding rights at the milestone",
    "recall sent",
    "client crash",
    "node crash",
    "aggregator crash",
    "ledger leader crash",
    "ledger leader elected",
    "ledger leader lost within a round trip of a grant",
    "ledger leader lost within a round trip of a recall",
    "ledger leader lost within a round trip of an award",
    "old disk fenced out",
    "link cut one way",
    "disk full: the node stopped",
    "defined on a running counter",
    "milestone passed before it was armed",
    "stream fenced",
    "two milestones in one zone",
    "checkpoint part",
    "old entry proposed again",
    "impostor refused",
    "definition of an older revision",
    "generation revoked",
    "certified increments revoked",
    "data centre returned with late increments",
    "late increment placed",
    "late increment is a later milestone",
    "block lost its turn",
    "valves added while it counted",
    "start that asked for fewer valves than there are",
    "leader of the ledger changed around a revocation",
    "award to be claimed",
    "claim in time",
    "claim between the time and its end",
    "claim raced by another of its session",
    "claim after its time",
    "claim of another session",
    "copy of a claim that counts",
    "answer to a claim lost",
    "claim asked for again that counts",
    "aggregator lost between claim and answer",
    "ledger leader lost between claim and answer",
    "claim kept open by who has just begun to lead",
    "claim lapsed",
    "claim waits for the next award",
    "claim by whom it passed to",
    "claim passed on as often as may be",
    "majority of a group's disks lost",
    "group declared lost",
    "declared lost while holding rights",
    "remains of a lost group counted",
    "award after a loss",
    "disk of a lost incarnation set aside",
    "new incarnation of a group",
    "message of the next version read",
    "message read by the next version",
    "process came back in another version",
    "group joined while a milestone was arming",
    "group joined while a milestone was armed",
    "group joined while a milestone was about to be reached",
    "group joined cut off from the ledger's leader",
    "ledger leader lost within a round trip of a group's joining",
    "new cell of a view in the slot of an ended one",
    "old copy of a view",
    "old copy of a view from before another life of it",
    "edge inserted beside a path",
    "edge removed beside a path",
    "change of edges refused",
    "edges refused and others not",
    "edges said again",
    "edges carried out on another graph",
    "edges asked for at another data centre",
    "edges asked for that were changed",
    "edges left out as they were there",
    "wrong change of edges in the log",
    "graphs compared",
    "total recounted amid a change",
    "total recounted by shard",
    "total equal in a view at the end",
    "bucket of a total equal in a view at the end",
];

/// A seed with processes of two versions.
const MIXED: u64 = 3;

#[test]
fn processes_of_two_versions_do_what_those_of_one_would() {
    let plan = Plan::new(MIXED);
    assert!(plan.versions.is_mixed());
    let of_one = Plan { only: Only { one_version: true, ..Only::default() }, ..plan.clone() };
    let [mixed, of_one] = [plan, of_one].map(|plan| runner::run_plan(plan, Mutation::None, None).outcome);
    assert_eq!((mixed.findings.violations.len(), mixed.trace_hash), (0, of_one.trace_hash));
    let read = |coverage: &Coverage| coverage.count("message of the next version read");
    assert!(read(&mixed.coverage) > 1_000 && read(&of_one.coverage) == 0, "{:?}", mixed.coverage);
}

#[test]
fn a_sweep_of_runs_that_are_less_than_evidence_says_so() {
    let sweep = |least| {
        let plan = SweepPlan { first: 3, count: 1, seconds: f64::MAX };
        sweep_in(Mode { least, ..Mode::FAST }, plan, Mutation::None, &|_| {})
    };
    assert_eq!(sweep(Mode::FAST.least).thin(), Vec::<String>::new());
    let thin = sweep(Least { virtual_s: 1_000.0, increments: 1_000_000, milestones: 1 }).thin();
    assert_eq!(thin.len(), 2, "{thin:?}");
    assert!(thin[0].ends_with("virtual seconds; 1000 are the least"), "{thin:?}");
    assert!(thin[1].ends_with("increments; 1000000 are the least"), "{thin:?}");
}

#[test]
fn a_replay_names_what_its_seed_means_whatever_is_left_out_of_it() {
    let some = Only { clients: Some([0].into()), ..Only::default() };
    let plan = Plan { only: some.clone(), ..Plan::new(7) };
    let meaning = Plan::new(7).meaning();
    assert!(plan.meaning() == meaning && Plan::new(8).meaning() != meaning && Plan::real(7).meaning() != meaning);
    let timed = runner::run_plan(plan, Mutation::None, None);
    let replay = runner::replay_command("fast", &timed, &some);
    assert_eq!(replay, format!("tidemark sim replay --seed 7 --meaning {meaning:08x} --only-clients 0"));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "documents are files")]
fn the_documented_floors_are_those_that_sweeps_must_reach() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/simulator.md");
    let page = std::fs::read_to_string(page).expect("docs/simulator.md");
    let (_, table) = page.split_once("| situation | in 3,000 seeds at least |").expect("the table of this mode");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    let rows: Vec<(String, u64)> = rows
        .filter_map(|(situation, floor)| Some((situation.to_owned(), floor.replace(',', "").parse().ok()?)))
        .collect();
    let floors: Vec<(String, u64)> =
        FLOORS.each.iter().map(|&(situation, floor)| (situation.to_owned(), floor)).collect();
    assert_eq!(rows, floors);
}

/// Prints the trace hash of one seed; run in fresh processes by the test below.
#[test]
fn print_a_trace_hash() {
    let outcome = runner::run(7, Mutation::None).outcome;
    println!("trace {:016x} events {}", outcome.trace_hash, outcome.events);
}

#[test]
fn a_seed_means_the_same_run_in_two_fresh_processes() {
    let exe = std::env::current_exe().expect("this test");
    let run = || {
        let args = ["--exact", "print_a_trace_hash", "--nocapture"];
        let output = Command::new(&exe).args(args).output().expect("starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().find(|line| line.contains("trace ")).map(str::to_owned).expect("a trace hash")
    };
    assert_eq!(run(), run());
}
