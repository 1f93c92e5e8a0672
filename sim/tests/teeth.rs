//! Every deliberate bug is caught by the seed that shows it, or by the script that does. Bugs inside machines need the `teeth` feature:
//! `cargo test -p tidemark-sim --features teeth --test teeth`. If a change of the simulator makes seeds mean other runs, `cargo run
//! --release -p tidemark-sim --features teeth --example quick teeth` looks for new seeds, at most 200 for a bug.

use tidemark_proto::teeth::Bug;
use tidemark_sim::plan::Plan;
use tidemark_sim::runner::{run, run_plan, shrink};
use tidemark_sim::shrink::{Part, only};
use tidemark_sim::teeth::{ALL, INSIDE, Mutation, SMALL};

/// A bug, a seed that shows it soon, and the property that fires first.
const PINNED: [(Mutation, u64, &str); 105] = [
    (Mutation::AnswerBeforeCommit, 2, "dedupe"),
    (Mutation::DedupeSkipped, 3, "dedupe"),
    (Mutation::GrantInflated, 2, "rights"),
    (Mutation::RecallIgnored, 16, "liveness"),
    (Mutation::ArmingSkipsGroup, 2, "rights"),
    (Mutation::AwardWithRightsOut, 2, "fencing"),
    (Mutation::CountedForWinner, 2, "award"),
    (Mutation::ViewNotClamped, 1, "views"),
    (Mutation::ViewAckForged, 13, "views"),
    (Mutation::FenceNotLogged, 4, "dedupe"),
    (Mutation::PlacesLost, 1, "liveness"),
    (Mutation::NumberShifted, 2, "award"),
    (Mutation::NoQuorum, 4, "rights"),
    (Mutation::FeedInflated, 2, "views"),
    (Mutation::RowLost, 4, "recovery"),
    (Mutation::ClaimAnsweredEarly, 6, "claims"),
    (Mutation::Inside(Bug::StaleEpochTaken), 45, "conservation"),
    (Mutation::Inside(Bug::DedupeSkipped), 3, "answers"),
    (Mutation::Inside(Bug::StaleLeaderTaken), 16, "invariants"),
    (Mutation::Inside(Bug::CertifiedFromQueue), 2, "positions"),
    (Mutation::Inside(Bug::GrantUnclamped), 0, "invariants"),
    (Mutation::Inside(Bug::ArmingSkipsBases), 40, "order"),
    (Mutation::Inside(Bug::OfferTakenTwice), 7, "conservation"),
    (Mutation::Inside(Bug::PlacedWhileRightsOut), 0, "invariants"),
    (Mutation::Inside(Bug::DecidedTooEarly), 0, "invariants"),
    (Mutation::Inside(Bug::ReportGoesBack), 0, "views"),
    (Mutation::Inside(Bug::StaleDefinition), 7, "definitions"),
    (Mutation::Inside(Bug::StandForgotten), 33, "views"),
    (Mutation::Inside(Bug::NotHeldKept), 33, "invariants"),
    (Mutation::Inside(Bug::OrderUnsaid), 227, "views"),
    (Mutation::Inside(Bug::ToldGoesBack), 36, "views"),
    (Mutation::Inside(Bug::ServesUnfilled), 66, "slots"),
    (Mutation::Inside(Bug::LeftForgotten), 36, "views"),
    (Mutation::Inside(Bug::OwnerIgnored), 2, "owners"),
    (Mutation::Inside(Bug::OldDiskTrusted), 21, "fencing"),
    (Mutation::Inside(Bug::ClaimTakenTwice), 20, "claims"),
    (Mutation::Inside(Bug::ClaimTakenLate), 55, "claims"),
    (Mutation::Inside(Bug::ClaimOfAnybody), 2, "claims"),
    (Mutation::Inside(Bug::ClaimNameLoose), 14, "claims"),
    (Mutation::Inside(Bug::ClaimPassesTooFar), 20, "claims"),
    (Mutation::Inside(Bug::ClaimOverOfAnother), 195, "claims"),
    (Mutation::Inside(Bug::ClaimTimeMoves), 491, "claims"),
    (Mutation::Inside(Bug::ClaimEndsEarly), 20, "claims"),
    (Mutation::Inside(Bug::RevokedInPlace), 4, "fencing"),
    (Mutation::Inside(Bug::ClosedReportTaken), 4, "fencing"),
    (Mutation::Inside(Bug::LateKept), 34, "rights"),
    (Mutation::Inside(Bug::RevokedEarly), 16, "leases"),
    (Mutation::Inside(Bug::RevokedAtElection), 16, "leases"),
    (Mutation::Inside(Bug::AnsweredWithoutLease), 21, "leases"),
    (Mutation::Inside(Bug::DedupePerClient), 2, "answers"),
    (Mutation::Inside(Bug::FeedBeforeSync), 4, "views"),
    (Mutation::Inside(Bug::RecalledOnce), 163, "liveness"),
    (Mutation::Inside(Bug::StaleRecallHonoured), 7, "rights"),
    (Mutation::Inside(Bug::LeadershipGapTaken), 27, "answers"),
    (Mutation::Inside(Bug::ReturnedStaysUsable), 0, "invariants"),
    (Mutation::Inside(Bug::ResetIgnored), 10, "conservation"),
    (Mutation::Inside(Bug::ResetNotShown), 10, "views"),
    (Mutation::Inside(Bug::StaleReset), 4, "definitions"),
    (Mutation::Inside(Bug::ForgottenTaken), 10, "dedupe"),
    (Mutation::Inside(Bug::ForgottenInUse), 3, "invariants"),
    (Mutation::Inside(Bug::ForgottenEarly), 3, "dedupe"),
    (Mutation::Inside(Bug::AwardedAgain), 57, "award"),
    (Mutation::Inside(Bug::LostStaysOpen), 82, "liveness"),
    (Mutation::Inside(Bug::LostReportTaken), 4, "conservation"),
    (Mutation::Inside(Bug::LanesFromConfig), 12, "answers"),
    (Mutation::Inside(Bug::WrittenOffForgotten), 3, "award"),
    (Mutation::Inside(Bug::IncarnationReused), 4, "conservation"),
    (Mutation::Inside(Bug::EraForgetsAwards), 1, "eras"),
    (Mutation::Inside(Bug::EraForgetsCounts), 1, "eras"),
    (Mutation::Inside(Bug::WithheldIsArmed), 2, "eras"),
    (Mutation::Inside(Bug::PairAnswersAsOne), 82, "views"),
    (Mutation::Inside(Bug::ReturnUnseen), 30, "views"),
    (Mutation::Inside(Bug::SetAsideLate), 68, "views"),
    (Mutation::Inside(Bug::DownReplenishes), 7, "rights"),
    (Mutation::Inside(Bug::DownTwice), 9, "conservation"),
    (Mutation::Inside(Bug::GrowOnlyGoesDown), 7, "dedupe"),
    (Mutation::Inside(Bug::ResetIgnoredByDown), 10, "answers"),
    (Mutation::Inside(Bug::TailRefused), 3, "versions"),
    (Mutation::Inside(Bug::JoinedUnguarded), 17, "order"),
    (Mutation::Inside(Bug::JoinedUnheard), 17, "rights"),
    (Mutation::Inside(Bug::ExpiredKept), 2, "series"),
    (Mutation::Inside(Bug::LastPartOnly), 2, "series"),
    (Mutation::Inside(Bug::ToldForgotten), 2, "series"),
    (Mutation::Inside(Bug::DiamondCountedTwice), 8, "totals"),
    (Mutation::Inside(Bug::RemovedThoughReached), 1, "totals"),
    (Mutation::Inside(Bug::BucketsStay), 25, "totals"),
    (Mutation::Inside(Bug::CountAmidMoveLost), 32, "totals"),
    (Mutation::Inside(Bug::ResetStaysInTotals), 27, "totals"),
    (Mutation::Inside(Bug::EdgesTwice), 1, "edges"),
    (Mutation::Inside(Bug::CycleTaken), 8, "edges"),
    (Mutation::Inside(Bug::ShareOfHome), 54, "totals"),
    (Mutation::Inside(Bug::ShelvedForgotten), 8, "totals"),
    (Mutation::Inside(Bug::LatePartAlone), 283, "series"),
    (Mutation::Inside(Bug::LeftTwice), 1, "invariants"),
    (Mutation::Inside(Bug::TotalLeftTwice), 8, "totals"),
    (Mutation::Inside(Bug::SourceUnnoted), 54, "totals"),
    (Mutation::Inside(Bug::RangeStays), 43, "totals"),
    (Mutation::Inside(Bug::RaisedUncopied), 53, "views"),
    (Mutation::Inside(Bug::ShownForgotten), 128, "views"),
    (Mutation::Inside(Bug::RaisedLate), 8, "totals"),
    (Mutation::Inside(Bug::CountedIdForgotten), 72, "views"),
    (Mutation::Inside(Bug::IdsNotSaved), 80, "conservation"),
    (Mutation::Inside(Bug::OtherContentTaken), 76, "ids"),
    (Mutation::Inside(Bug::LateIdsTaken), 103, "answers"),
    (Mutation::Inside(Bug::OlderViewShown), 70, "reads"),
];

/// Rules that their scripts show: their absence costs time and no promise, or needs one message to come at one moment.
const SCRIPTED: [(Bug, &str); 5] = [
    (Bug::RenewalIgnored, include_str!("../scripts/b03_a_report_before_the_revocation.txt")),
    (Bug::GrantUnheard, include_str!("../scripts/a04_a_report_of_a_closed_generation.txt")),
    (Bug::RemainsOverBudget, include_str!("../scripts/c08_remains_of_a_lost_group.txt")),
    (Bug::HeldUnsaid, include_str!("../scripts/c09_behind_a_lost_block.txt")),
    (Bug::ForgottenIsAwaited, include_str!("../scripts/d04_a_data_centre_never_returns.txt")),
];

/// Rules that only the model check shows (`tests/model.rs`), and that only a run of days shows (`tests/month.rs`).
const MODELLED: [Bug; 1] = [Bug::ArmedWhileLate];
const LASTING: [Bug; 3] = [Bug::NothingForgotten, Bug::NothingGivenBack, Bug::SlotsKept];

/// Rules that tests of the core show (`view::limits`, `ledger::revoke`, `ledger::resets`, `group`, `node`, `aggregator::feed`,
/// `aggregator::reuse`, `aggregator::shelved`, `view::reuse`, `gossip`, `late_and_hostile`): one seed in a thousand does not, or no
/// seed is pinned.
const TESTED: [Bug; 19] = [
    Bug::EndedLifeAudited,
    Bug::NoteForgotten,
    Bug::PoliciesMixed,
    Bug::SavedLate,
    Bug::PresentForgotten,
    Bug::NumbersKept,
    Bug::GapHeard,
    Bug::OverKept,
    Bug::FreedUnsaved,
    Bug::ReferencesKept,
    Bug::TagKept,
    Bug::LateTagTaken,
    Bug::CountsUnnamed,
    Bug::RowsKept,
    Bug::NamespaceUnsaved,
    Bug::BegunUnseen,
    Bug::StaleAckTaken,
    Bug::WinnersUntold,
    Bug::LetGoRaised,
];

/// The effect of a bug at its seed that it is not pinned for.
fn escapes(bug: Mutation, seed: u64, property: &str) -> Option<String> {
    let violations = run(seed, bug).outcome.findings.violations;
    let first = violations.first().map(|violation| (violation.property, &violation.what));
    (first.map(|(property, _)| property) != Some(property)).then(|| format!("({bug:?}, {seed}): {first:?}"))
}

fn all_are_caught(which: impl Fn(&Mutation) -> bool) {
    let pinned = PINNED.into_iter().filter(|(bug, ..)| which(bug));
    let wrong: Vec<String> = pinned.filter_map(|(bug, seed, property)| escapes(bug, seed, property)).collect();
    assert!(wrong.is_empty(), "{} of {} are not as pinned:\n{}", wrong.len(), PINNED.len(), wrong.join("\n"));
}

#[test]
fn bugs_around_the_machines_are_caught_by_the_seeds_that_show_them() {
    all_are_caught(|bug| !matches!(bug, Mutation::Inside(_)));
}

#[test]
#[cfg(feature = "teeth")]
fn every_bug_is_caught_by_the_seed_that_shows_it() {
    all_are_caught(|bug| matches!(bug, Mutation::Inside(_)));
}

/// Names of the bugs that machines can have, from where they stand.
fn named() -> Vec<String> {
    let source = include_str!("../../proto/types/src/teeth.rs");
    let body =
        source.split("pub enum Bug {").nth(1).and_then(|rest| rest.split("\n}").next()).expect("the list of bugs");
    let lines = body.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("///"));
    lines.map(|line| line.trim_end_matches(',').to_owned()).collect()
}

#[test]
fn every_bug_has_something_that_shows_it() {
    let pinned: Vec<Mutation> = PINNED.iter().map(|(bug, ..)| *bug).collect();
    assert_eq!(pinned, ALL.into_iter().chain(INSIDE.map(Mutation::Inside)).collect::<Vec<_>>());
    let others = SCRIPTED
        .iter()
        .map(|(bug, _)| *bug)
        .chain(MODELLED)
        .chain(LASTING)
        .chain(TESTED)
        .map(Mutation::Inside)
        .chain(SMALL);
    let shown: Vec<String> = pinned.into_iter().chain(others).map(|bug| format!("{bug:?}")).collect();
    let missing: Vec<String> = named().into_iter().filter(|bug| !shown.contains(&format!("Inside({bug})"))).collect();
    assert_eq!(missing, Vec::<String>::new(), "nothing shows these");
    assert!(named().len() > 40 && shown.len() > 50, "{shown:?}");
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

#[test]
#[cfg(feature = "teeth")]
fn rules_that_only_scripts_show_are_shown_by_them() {
    for (bug, script) in SCRIPTED {
        Mutation::Inside(bug).enter();
        // It does something else, or breaks an invariant.
        let now = std::panic::catch_unwind(|| tidemark_sim::script::rewrite(script));
        Mutation::None.enter();
        assert!(!now.is_ok_and(|now| now.as_deref() == Ok(script)), "{bug:?} changes nothing");
        assert_eq!(tidemark_sim::script::rewrite(script).as_deref(), Ok(script));
    }
}
