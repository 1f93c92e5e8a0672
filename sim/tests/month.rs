//! The memory of processes stays bounded over days, with the constants that ship. `sim run --mode month` is the same for a month.

use tidemark_sim::plan::Plan;
use tidemark_sim::runner::run_plan;
use tidemark_sim::teeth::Mutation;
use tidemark_sim::world::Outcome;

/// A day longer than groups remember streams.
const DAYS: u32 = 8;

fn run(mutation: Mutation) -> Outcome {
    run_plan(Plan::of_days(1, DAYS), mutation, None).outcome
}

#[test]
fn what_is_kept_stays_bounded_over_days() {
    let outcome = run(Mutation::None);
    assert_eq!(outcome.findings.violations, []);
    assert_eq!(outcome.days.iter().map(|day| day.day).collect::<Vec<_>>(), (1..=DAYS).collect::<Vec<_>>());
    // It was a run in which something could pile up.
    let last = &outcome.days[DAYS as usize - 1].sizes;
    let kept = ["streams of a group", "awards", "ledger bytes", "log entries on a disk", "checkpoint bytes of a group"];
    assert!(kept.iter().all(|name| last[name].is > 0), "{last:?}");
    assert!(last["streams of a group"].is > 300, "{last:?}");
    let journals = |day: &tidemark_sim::checkers::sizes::Day| day.sizes["journals of a group"].is;
    assert!(outcome.days.iter().map(journals).max() > Some(0), "nothing was certified under a lease");
}

#[test]
#[cfg(feature = "teeth")]
fn what_is_never_forgotten_is_found_by_its_size() {
    let bug = tidemark_proto::teeth::Bug::NothingForgotten;
    let violations = run(Mutation::Inside(bug)).findings.violations;
    Mutation::None.enter();
    assert_eq!(violations.first().map(|violation| violation.property), Some("sizes"), "{violations:?}");
}

#[test]
#[cfg(feature = "teeth")]
fn cells_of_what_is_over_are_found_by_their_number() {
    let violations = run(Mutation::Inside(tidemark_proto::teeth::Bug::NothingGivenBack)).findings.violations;
    Mutation::None.enter();
    let first = violations.first().map(|violation| (violation.property, violation.what.contains("cells of a group")));
    assert_eq!(first, Some(("sizes", true)), "{violations:?}");
}

#[test]
#[cfg(feature = "teeth")]
fn slots_that_no_new_cell_gets_are_found_by_their_number() {
    let violations = run(Mutation::Inside(tidemark_proto::teeth::Bug::SlotsKept)).findings.violations;
    Mutation::None.enter();
    let first = violations.first().map(|violation| (violation.property, violation.what.contains("cells of a view")));
    assert_eq!(first, Some(("sizes", true)), "{violations:?}");
}
