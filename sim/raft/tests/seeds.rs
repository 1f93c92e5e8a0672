//! On real logs, and over QUIC, the first seeds hold every property and meet what they are for; and properties fire there too.

use tidemark_sim::engine::Mode;
use tidemark_sim::runner::{SweepPlan, run_plan_in, sweep_in};
use tidemark_sim::teeth::Mutation;
use tidemark_sim_raft::{FLOORS, QUIC, RAFT, is_repeatable};

/// Seeds of every test run; `tidemark sim sweep --mode raft` tries more.
const SEEDS: u64 = 8;

/// Situations that they must have met, or they have tested little.
const SITUATIONS: [&str; 20] = [
    "award",
    "grant",
    "recall sent",
    "retry after an unknown outcome",
    "stream fenced",
    "node crash",
    "aggregator crash",
    "ledger leader elected",
    "ledger leader lost within a round trip of a grant",
    "ledger snapshot installed",
    "leader of a group begins",
    "entry of a deposed leader of a group",
    "rows of a group installed",
    "disk of a group's node lost",
    "node apart from its group",
    "node stopped by its disk",
    "node added while counting",
    "node taken away while counting",
    "group moved away from a node",
    "data centre cut off",
];

#[test]
fn on_real_logs_the_first_seeds_hold_every_property_and_meet_the_situations_they_are_for() {
    assert!(is_repeatable(), "build with `--config sim/repeatable.toml`");
    let plan = SweepPlan { first: 0, count: SEEDS, seconds: f64::MAX };
    let sweep = sweep_in(RAFT, plan, Mutation::None, &|_| {});
    assert_eq!((sweep.failures, &sweep.failed), (0, &Vec::new()));
    assert!(sweep.virtual_s_least >= 30.0 && sweep.without_milestone == 0, "{sweep:?}");
    for situation in SITUATIONS {
        assert!(sweep.coverage.count(situation) > 0, "no seed met: {situation}");
    }
}

#[test]
fn the_documented_floors_are_those_that_sweeps_must_reach() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/simulator.md");
    let page = std::fs::read_to_string(page).expect("docs/simulator.md");
    let (_, table) = page.split_once("| situation on real logs | in 200 seeds at least |").expect("the table");
    let (table, _) = table.split_once("\n\n").expect("the page goes on");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    let rows: Vec<(&str, u64)> =
        rows.map(|(situation, floor)| (situation, floor.replace(',', "").parse().expect("a floor"))).collect();
    assert_eq!(rows, FLOORS.each);
}

/// Two with a fast clock on the ledger's leader, one with a disk that died while it was opened, and one with a replica that had begun with
/// a snapshot. One with a snapshot that was cut by its sender's crash, one with a disk that was full while nothing was written to it, one
/// with a leader that lost its lease for a moment while something was proposed, and one with a new disk that stopped before it knew all
/// members.
const KEPT: [u64; 8] = [770_046, 770_188, 770_074, 770_077, 991_234, 991_253, 991_139, 997_698];

#[test]
fn seeds_that_failed_once_never_fail_again_on_real_logs() {
    for seed in KEPT {
        let outcome = run_plan_in(RAFT, (RAFT.plan)(seed), Mutation::None, None).outcome;
        assert!(outcome.findings.violations.is_empty(), "seed {seed}: {:?}", outcome.findings.violations);
    }
}

/// Of these, the few that run over QUIC.
const SEEDS_OVER_QUIC: u64 = 2;

/// Further situations that they must have met.
const OVER_QUIC: [&str; 10] = [
    "award",
    "grant",
    "retry after an unknown outcome",
    "node crash",
    "aggregator crash",
    "data centre cut off",
    "datagram lost",
    "datagram doubled",
    "datagram overtaken",
    "connection lost under a link",
];

#[test]
fn over_quic_the_first_seeds_hold_every_property_and_meet_the_situations_they_are_for() {
    let plan = SweepPlan { first: 0, count: SEEDS_OVER_QUIC, seconds: f64::MAX };
    let sweep = sweep_in(QUIC, plan, Mutation::None, &|_| {});
    assert_eq!((sweep.failures, &sweep.failed), (0, &Vec::new()));
    assert!(sweep.virtual_s_least >= 30.0 && sweep.without_milestone == 0, "{sweep:?}");
    for situation in OVER_QUIC {
        assert!(sweep.coverage.count(situation) > 0, "no seed met: {situation}");
    }
}

/// Deliberate bugs, a seed that shows each on real logs, and the property that fires.
const TEETH: [(Mutation, u64, &str); 6] = [
    (Mutation::DedupeSkipped, 0, "dedupe"),
    (Mutation::GrantInflated, 0, "rights"),
    (Mutation::RecallIgnored, 3, "liveness"),
    (Mutation::CountedForWinner, 0, "award"),
    (Mutation::ViewNotClamped, 0, "views"),
    (Mutation::RowLost, 0, "series"),
];

/// The same over QUIC.
const TEETH_OVER_QUIC: [(Mutation, u64, &str); 3] = [
    (Mutation::DedupeSkipped, 0, "dedupe"),
    (Mutation::GrantInflated, 0, "rights"),
    (Mutation::RowLost, 0, "recovery"),
];

fn first(mode: Mode, bug: Mutation, seed: u64) -> (Mutation, u64, &'static str) {
    let outcome = run_plan_in(mode, (mode.plan)(seed), bug, None).outcome;
    (bug, seed, outcome.findings.violations.first().map_or("nothing", |violation| violation.property))
}

#[test]
fn bugs_are_caught_on_real_logs_by_the_seeds_that_show_them() {
    assert_eq!(TEETH.map(|(bug, seed, _)| first(RAFT, bug, seed)), TEETH);
}

#[test]
fn bugs_are_caught_over_quic_by_the_seeds_that_show_them() {
    assert_eq!(TEETH_OVER_QUIC.map(|(bug, seed, _)| first(QUIC, bug, seed)), TEETH_OVER_QUIC);
}
