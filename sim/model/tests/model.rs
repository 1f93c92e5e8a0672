//! The rights protocol in its smallest forms, explored whole: every invariant holds in every state, and every state can come to
//! rest. And of rules left out, each is caught, with a shortest way to it
//! (`cargo test -p tidemark-sim-model --features teeth`).

use tidemark_sim_model::check::{Checked, check_models};
use tidemark_sim_model::config::{self, Config};

/// States, transitions and depth of the small configurations. They change when the protocol or the model does.
const EXPLORED: &[(&str, u32, u64, u32)] = &[
    ("one", 158_334, 767_316, 22),
    ("neighbours", 145_150, 612_922, 22),
    ("every", 118_246, 455_998, 21),
    ("below", 182_630, 803_105, 20),
    ("removed", 112_502, 552_432, 20),
    ("weights", 146_407, 700_946, 22),
    ("late", 139_047, 544_889, 22),
    ("forgets", 82_528, 295_466, 22),
    ("three", 77_347, 280_409, 20),
    ("timely", 1_854_752, 7_587_890, 33),
];

/// Sets of machine states from which the others were seen to come to rest without one group, over all groups.
const WITHOUT_A_GROUP: &[(&str, u32)] = &[("timely", 890_254)];

#[test]
fn every_state_of_the_smallest_forms_holds_every_invariant_and_can_come_to_rest() {
    let quick: Vec<&'static Config> = config::all().filter(|config| config.quick).collect();
    let checked = check_models(&quick, &|_| {});
    for checked in &checked {
        let explored = &checked.explored;
        assert_eq!(explored.violation, None, "{}:\n{}", checked.config.name, explored.trace.join("\n"));
        assert!(
            !explored.met.contains(&0),
            "{} meets no award, nothing passed or nothing undecided",
            checked.config.name
        );
    }
    let counts = |checked: &Checked| {
        let explored = &checked.explored;
        (checked.config.name, explored.states, explored.transitions, explored.depth)
    };
    assert_eq!(checked.iter().map(counts).collect::<Vec<_>>(), EXPLORED);
    let without = checked.iter().map(|checked| (checked.config.name, checked.explored.machine_states_without));
    assert_eq!(without.filter(|(_, sets)| *sets > 0).collect::<Vec<_>>(), WITHOUT_A_GROUP);
}

#[cfg(feature = "teeth")]
mod left_out {
    use super::config;
    use tidemark_proto::teeth::Bug;
    use tidemark_sim::teeth::Mutation;
    use tidemark_sim_model::search::explore;

    /// A rule left out, where, the property that shows it, and the steps that it takes.
    const CAUGHT: &[(Mutation, &str, &str, usize)] = &[
        (Mutation::Inside(Bug::DedupeSkipped), "one", "I9", 2),
        (Mutation::Inside(Bug::BaseForgotten), "one", "I9", 4),
        (Mutation::Inside(Bug::CertifiedFromQueue), "one", "I9", 6),
        (Mutation::Inside(Bug::ReturnedStaysUsable), "one", "invariants", 5),
        (Mutation::Inside(Bug::GrantUnclamped), "one", "invariants", 9),
        (Mutation::Inside(Bug::ArmingSkipsBases), "one", "I3", 5),
        (Mutation::Inside(Bug::ArmedOverBudget), "below", "invariants", 9),
        (Mutation::Inside(Bug::OfferTakenTwice), "one", "I9", 6),
        (Mutation::Inside(Bug::OfferGapTaken), "one", "I6", 11),
        (Mutation::Inside(Bug::PlacedWhileRightsOut), "one", "invariants", 10),
        (Mutation::Inside(Bug::DecidedTooEarly), "one", "invariants", 10),
        (Mutation::Inside(Bug::ReportGoesBack), "one", "I5", 12),
        (Mutation::Inside(Bug::NumberedWithoutBases), "one", "I6", 6),
        (Mutation::Inside(Bug::PlacesForgotten), "one", "I10", 7),
        (Mutation::Inside(Bug::StaleDefinition), "removed", "definitions", 3),
        (Mutation::Inside(Bug::RevokedInPlace), "timely", "I2", 5),
        (Mutation::Inside(Bug::NeverRevoked), "timely", "I10", 8),
        (Mutation::Inside(Bug::NeverDeferred), "timely-blocks", "I10", 9),
        (Mutation::Inside(Bug::DecidedBehindBlock), "timely-blocks", "I10", 11),
        (Mutation::Inside(Bug::ClosedReportTaken), "timely", "fence", 6),
        (Mutation::Inside(Bug::LateKept), "timely", "I3", 12),
        (Mutation::Inside(Bug::ArmedWhileLate), "timely-strict", "I3", 12),
        (Mutation::AnswerBeforeCommit, "crash", "I9", 5),
        (Mutation::LedgerSpeaksBeforeCommit, "one", "I2", 4),
        (Mutation::GrantInflated, "one", "I2", 4),
        (Mutation::RecallIgnored, "one", "I10", 9),
        (Mutation::PlacesLost, "one", "I10", 4),
    ];

    #[test]
    fn every_rule_left_out_is_caught_by_a_shortest_way() {
        let mut found = Vec::new();
        for &(mutation, name, ..) in CAUGHT {
            let explored = explore(config::named(name).expect("a configuration"), mutation);
            println!("{mutation:?} in {name}: {:?} after {} states", explored.violation, explored.states);
            explored.trace.iter().for_each(|step| println!("    {step}"));
            let property = explored.violation.map_or("nothing", |violation| violation.property);
            found.push((mutation, name, property, explored.trace.len()));
        }
        assert_eq!(found, CAUGHT);
    }
}
