//! Every deliberate bug is caught by a checker within a few seeds. Needs the `teeth` feature for bugs inside machines:
//! `cargo test -p tidemark-sim --features teeth --test teeth`.

use tidemark_sim::runner::run;
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
