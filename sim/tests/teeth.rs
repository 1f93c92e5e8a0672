//! Every deliberate bug is caught by a checker within a few seeds. Needs the `teeth` feature for bugs inside machines:
//! `cargo test -p tidemark-sim --features teeth --test teeth`.

#[cfg(feature = "teeth")]
use tidemark_proto::teeth::Bug;
use tidemark_sim::plan::Plan;
use tidemark_sim::runner::{run, run_plan, shrink};
use tidemark_sim::shrink::{Part, only};
use tidemark_sim::teeth::{ALL, Mutation};

/// Seeds until which a bug must have been caught.
const SEEDS_MAX: u64 = 200;

/// The property that fires first, and at which seed.
fn caught(mutation: Mutation) -> (&'static str, u64) {
    let fires = |seed| run(seed, mutation).outcome.findings.violations.first().map(|v| (v.property, seed));
    (0..SEEDS_MAX).find_map(fires).unwrap_or_else(|| panic!("{mutation:?} was not caught within {SEEDS_MAX} seeds"))
}

#[test]
fn bugs_around_the_machines_are_caught() {
    for mutation in ALL {
        let (property, seed) = caught(mutation);
        println!("{mutation:?}: {property} at seed {seed}");
    }
}

#[test]
#[cfg(feature = "teeth")]
fn bugs_inside_the_machines_are_caught() {
    for bug in tidemark_sim::teeth::INSIDE {
        let (property, seed) = caught(Mutation::Inside(bug));
        println!("{bug:?}: {property} at seed {seed}");
    }
}

/// Rules about claims, and a seed that shows when each is left out.
#[cfg(feature = "teeth")]
const ABOUT_CLAIMS: [(Bug, u64); 8] = [
    (Bug::ClaimTakenTwice, 6),
    (Bug::ClaimTakenLate, 55),
    (Bug::ClaimOfAnybody, 0),
    (Bug::ClaimNameLoose, 14),
    (Bug::ClaimPassesTooFar, 19),
    (Bug::ClaimOverOfAnother, 29),
    (Bug::ClaimTimeMoves, 20),
    (Bug::ClaimEndsEarly, 0),
];

#[test]
#[cfg(feature = "teeth")]
fn bugs_about_claims_are_caught_by_the_seeds_that_show_them() {
    for (bug, seed) in ABOUT_CLAIMS {
        let violations = run(seed, Mutation::Inside(bug)).outcome.findings.violations;
        assert_eq!(violations.first().map(|v| v.property), Some("claims"), "{bug:?} at seed {seed}: {violations:?}");
    }
}

/// A seed that fails by this bug, which needs a crash to show.
const SHRUNK: (u64, Mutation) = (5, Mutation::RowLost);

#[test]
fn a_failing_seed_is_shrunk_to_what_it_needs_and_fails_again_in_the_same_way() {
    let (seed, mutation) = SHRUNK;
    let shrunk = shrink(seed, mutation).expect("a seed that fails");
    assert!(!shrunk.parts.is_empty() && shrunk.parts.len() * 4 < shrunk.of, "{:?} of {}", shrunk.parts, shrunk.of);
    let first = |parts: &[Part]| {
        let plan = Plan { only: only(parts), ..Plan::new(seed) };
        let outcome = run_plan(plan, mutation, None).outcome;
        (outcome.findings.violations.first().map(|violation| violation.property), outcome.trace_hash)
    };
    let again = (Some(shrunk.property), shrunk.timed.outcome.trace_hash);
    assert_eq!(first(&shrunk.parts), again, "the list means the same run");
    for left_out in 0..shrunk.parts.len() {
        let mut fewer = shrunk.parts.clone();
        fewer.remove(left_out);
        assert_ne!(first(&fewer).0, again.0, "{:?} is not needed", shrunk.parts[left_out]);
    }
}

/// Rules about leases and revocations, a seed that shows when each is left out, and what shows it.
#[cfg(feature = "teeth")]
const ABOUT_LEASES: [(Bug, u64, &str); 6] = [
    (Bug::RevokedInPlace, 0, "rights"),
    (Bug::ClosedReportTaken, 0, "fencing"),
    (Bug::LateKept, 0, "rights"),
    (Bug::RevokedEarly, 74, "leases"),
    (Bug::RevokedAtElection, 189, "leases"),
    (Bug::AnsweredWithoutLease, 0, "leases"),
];

#[test]
#[cfg(feature = "teeth")]
fn bugs_about_leases_are_caught_by_the_seeds_that_show_them() {
    for (bug, seed, property) in ABOUT_LEASES {
        let violations = run(seed, Mutation::Inside(bug)).outcome.findings.violations;
        assert_eq!(violations.first().map(|v| v.property), Some(property), "{bug:?} at seed {seed}: {violations:?}");
    }
}

/// Rules whose absence costs time and no promise, so that no run shows it: their scripts do.
#[test]
#[cfg(feature = "teeth")]
fn rules_that_only_scripts_show_are_shown_by_them() {
    let scripts = [
        (Bug::RenewalIgnored, include_str!("../scripts/b03_a_report_before_the_revocation.txt")),
        (Bug::GrantUnheard, include_str!("../scripts/a04_a_report_of_a_closed_generation.txt")),
    ];
    for (bug, script) in scripts {
        Mutation::Inside(bug).enter();
        let now = tidemark_sim::script::rewrite(script);
        Mutation::None.enter();
        assert_ne!(now.as_deref(), Ok(script), "{bug:?} changes nothing");
        assert_eq!(tidemark_sim::script::rewrite(script).as_deref(), Ok(script));
    }
}

/// Rules about groups that are lost, a seed that shows when each is left out, and what shows it.
#[cfg(feature = "teeth")]
const ABOUT_LOST_GROUPS: [(Bug, u64, &str); 5] = [
    (Bug::LostStaysOpen, 3, "liveness"),
    (Bug::LostReportTaken, 3, "conservation"),
    (Bug::WrittenOffForgotten, 3, "award"),
    (Bug::RemainsOverBudget, 3, "invariants"),
    (Bug::IncarnationReused, 3, "conservation"),
];

#[test]
#[cfg(feature = "teeth")]
fn bugs_about_lost_groups_are_caught_by_the_seeds_that_show_them() {
    for (bug, seed, property) in ABOUT_LOST_GROUPS {
        let violations = run(seed, Mutation::Inside(bug)).outcome.findings.violations;
        assert_eq!(violations.first().map(|v| v.property), Some(property), "{bug:?} at seed {seed}: {violations:?}");
    }
}
