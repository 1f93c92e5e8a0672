//! Runs in which increments come with ids through several processes, and in which reads ask for recent counts, hold every property and meet
//! the situations that they are for.

use tidemark_sim::coverage::Coverage;
use tidemark_sim::plan::Plan;
use tidemark_sim::runner::{SweepPlan, run, sweep};
use tidemark_sim::teeth::Mutation;

/// Behind the seeds that `tests/seeds.rs` runs, of which none has ids or such reads.
const FIRST: u64 = 61;
const RUNS: usize = 12;

/// The situations that runs with ids are for.
const OF_IDS: [&str; 12] = [
    "increment with an id",
    "id sent again",
    "id sent again without an answer",
    "id sent again after its process crashed",
    "id sent again at another data centre",
    "id sent again by the other aggregator",
    "id that counts answered again",
    "id answered by a later start of its group",
    "place of an id told again",
    "id not sent in time",
    "id refused for other content",
    "id refused for want of room",
];

/// The situations that runs with reads that wait for their groups are for.
const OF_READS: [&str; 4] = [
    "read that waits for its groups",
    "read that shows what was durable",
    "read of at least a version",
    "read that was told nothing",
];

/// The situations of the first runs of a kind, without a violation.
fn met(is_of_kind: impl Fn(&Plan) -> bool) -> Coverage {
    let mut all = Coverage::default();
    for seed in (FIRST..).filter(|&seed| is_of_kind(&Plan::new(seed))).take(RUNS) {
        let outcome = run(seed, Mutation::None).outcome;
        assert!(outcome.findings.violations.is_empty(), "seed {seed}: {:?}", outcome.findings.violations);
        all.merge(&outcome.coverage);
    }
    all
}

fn is_met(coverage: &Coverage, situations: &[&str]) {
    let missing: Vec<&&str> = situations.iter().filter(|situation| coverage.count(situation) == 0).collect();
    assert!(missing.is_empty(), "no run met {missing:?}");
}

#[test]
fn an_id_counts_once_through_several_processes_that_crash() {
    is_met(&met(|plan| plan.once.is_some()), &OF_IDS);
}

#[test]
fn a_read_shows_what_was_durable_and_what_its_version_stands_for() {
    is_met(&met(|plan| plan.reads.is_some()), &OF_READS);
}

#[test]
fn runs_without_ids_and_such_reads_meet_none_of_their_situations() {
    let sweep = sweep(SweepPlan { first: 0, count: 2, seconds: f64::MAX }, Mutation::None, &|_| {});
    let met = OF_IDS.iter().chain(&OF_READS).filter(|situation| sweep.coverage.count(situation) > 0);
    assert_eq!(met.count(), 0);
    assert!((0..FIRST).all(|seed| Plan::new(seed).once.is_none() && Plan::new(seed).reads.is_none()));
}
