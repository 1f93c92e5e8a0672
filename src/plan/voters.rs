//! Which data centres vote in the ledger, and which leads: an exhaustive search.
//!
//! The objective is the zone, `L = Σ r_i · (RTT_i + q)`: the increments that arrive while the decisive exchange with the leader is under
//! way. Here q is the leader's quorum round trip, that of the slowest of the nearest voters that make a majority with it. The least L wins
//! among all sets of voters and all leaders in them. The voters must stand in enough regions, and the loss of one region must not end the
//! majority. Voters that the leader's quorum does not need leave L unchanged. Equal sets are told apart by the zone without the leader's
//! own data centre: the spare voters then stand where a good second leader wants them. If sets are still equal, the data centres named
//! first win.

/// Zones closer than this many increments are the same.
const ZONE_TOLERANCE: f64 = 1e-6;

/// The data centres as the choice sees them; all vectors run over the same order.
#[derive(Clone, Debug)]
pub struct Electorate {
    /// Increments a second.
    pub rate_per_s: Vec<f64>,
    /// Which region each stands in.
    pub region: Vec<usize>,
    /// `[from][to]`, milliseconds.
    pub rtt_ms: Vec<Vec<f64>>,
}

/// The conditions on a set of voters.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub voters: usize,
    pub regions_min: usize,
    pub survive_region_loss: bool,
}

/// A set of voters with its best leader.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Indices of the data centres, ascending.
    pub voters: Vec<usize>,
    pub leader: usize,
    /// Until the leader and the nearest voters that make a majority with it have an entry, milliseconds.
    pub quorum_ms: f64,
    /// `Σ r_i · (RTT_i + q)`, increments.
    pub zone: f64,
    /// The zone when the leader's data centre is gone and the best of the others leads; infinite with one voter.
    pub zone_without_leader: f64,
}

/// The best set of voters under `rule`, or `None` where no set satisfies it.
pub fn choose_voters(electorate: &Electorate, rule: Rule) -> Option<Choice> {
    let mut best: Option<Choice> = None;
    for_each_set(electorate.region.len(), rule.voters, |voters| {
        if satisfies(electorate, rule, voters) {
            keep_better(&mut best, electorate, voters);
        }
    });
    best
}

/// The best leader of a given, ascending, non-empty set of voters.
pub fn best_leader(electorate: &Electorate, voters: &[usize]) -> Choice {
    let (leader, zone) = least_zone(electorate, voters, voters.len());
    let others: Vec<usize> = voters.iter().copied().filter(|&voter| voter != leader).collect();
    let survives = others.len() > voters.len() / 2;
    let zone_without_leader = if survives { least_zone(electorate, &others, voters.len()).1 } else { f64::INFINITY };
    let quorum_ms = quorum_ms(electorate, leader, voters, voters.len());
    Choice { voters: voters.to_vec(), leader, quorum_ms, zone, zone_without_leader }
}

/// The quorum round trip of `leader`: the slowest of the nearest `alive` voters that make a majority of `of` with it.
pub fn quorum_ms(electorate: &Electorate, leader: usize, alive: &[usize], of: usize) -> f64 {
    let to = |&voter: &usize| electorate.rtt_ms[leader][voter];
    let mut trips: Vec<f64> = alive.iter().filter(|&&voter| voter != leader).map(to).collect();
    trips.sort_by(f64::total_cmp);
    match of / 2 {
        0 => 0.0,
        acks => trips[acks - 1],
    }
}

/// Increments that arrive during the round trips to `leader` alone: `Σ r_i · RTT_i`.
pub fn increments_in_flight(electorate: &Electorate, leader: usize) -> f64 {
    let rates = electorate.rate_per_s.iter().enumerate();
    rates.map(|(dc, rate)| rate * electorate.rtt_ms[dc][leader] / 1000.0).sum()
}

/// `Σ r_i · (RTT_i + q)`.
pub fn zone(electorate: &Electorate, leader: usize, quorum_ms: f64) -> f64 {
    let total: f64 = electorate.rate_per_s.iter().sum();
    increments_in_flight(electorate, leader) + total * quorum_ms / 1000.0
}

fn least_zone(electorate: &Electorate, candidates: &[usize], of: usize) -> (usize, f64) {
    let zone_of = |&leader: &usize| {
        let quorum_ms = quorum_ms(electorate, leader, candidates, of);
        (leader, zone(electorate, leader, quorum_ms))
    };
    candidates.iter().map(zone_of).min_by(|a, b| a.1.total_cmp(&b.1)).expect("a set of voters is not empty")
}

fn keep_better(best: &mut Option<Choice>, electorate: &Electorate, voters: &[usize]) {
    let limit = best.as_ref().map_or(f64::INFINITY, |choice| choice.zone + ZONE_TOLERANCE);
    if least_zone(electorate, voters, voters.len()).1 > limit {
        return;
    }
    let candidate = best_leader(electorate, voters);
    if best.as_ref().is_none_or(|choice| is_better(&candidate, choice)) {
        *best = Some(candidate);
    }
}

fn is_better(candidate: &Choice, best: &Choice) -> bool {
    if (candidate.zone - best.zone).abs() > ZONE_TOLERANCE {
        return candidate.zone < best.zone;
    }
    candidate.zone_without_leader < best.zone_without_leader - ZONE_TOLERANCE
}

/// Whether a set stands in enough regions, and no region holds more than the minority that may be lost.
pub fn satisfies(electorate: &Electorate, rule: Rule, voters: &[usize]) -> bool {
    let region = |&voter: &usize| electorate.region[voter];
    let in_region = |wanted: usize| voters.iter().map(region).filter(|&found| found == wanted).count();
    let first_of_region = |at: &usize| !voters[..*at].iter().map(region).any(|found| found == region(&voters[*at]));
    let regions = (0..voters.len()).filter(first_of_region).count();
    let minority = (voters.len() - 1) / 2;
    let survives = !rule.survive_region_loss || voters.iter().all(|voter| in_region(region(voter)) <= minority);
    regions >= rule.regions_min && survives
}

/// Calls `visit` with every ascending set of `size` out of `0..of`.
fn for_each_set(of: usize, size: usize, mut visit: impl FnMut(&[usize])) {
    if size > of {
        return;
    }
    let mut set: Vec<usize> = (0..size).collect();
    loop {
        visit(&set);
        let Some(at) = (0..size).rev().find(|&at| set[at] < of - size + at) else {
            return;
        };
        set[at] += 1;
        for later in at + 1..size {
            set[later] = set[later - 1] + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::input::{PlanFile, tests::SAMPLE};
    use super::super::round_trips::{RoundTrips, tests::REFERENCE};
    use super::*;

    const REFERENCE_RULE: Rule = Rule { voters: 5, regions_min: 3, survive_region_loss: true };

    fn reference() -> (PlanFile, Electorate) {
        let plan = PlanFile::parse(SAMPLE).unwrap();
        let trips = RoundTrips::parse(REFERENCE).unwrap();
        let rtt_ms = trips.between(plan.dcs.iter().map(|dc| (dc.name.as_str(), dc.site.as_str()))).unwrap();
        let electorate = Electorate { rate_per_s: plan.rate_of_dc(), region: plan.region_of_dc(), rtt_ms };
        (plan, electorate)
    }

    fn sites(plan: &PlanFile, names: &[&str]) -> Vec<usize> {
        let mut found: Vec<usize> =
            names.iter().map(|name| plan.dcs.iter().position(|dc| dc.site == *name).unwrap()).collect();
        found.sort_unstable();
        found
    }

    fn names(plan: &PlanFile, voters: &[usize]) -> Vec<String> {
        voters.iter().map(|&voter| plan.dcs[voter].site.clone()).collect()
    }

    #[test]
    fn reference_voters_have_the_known_quorum_round_trip() {
        let (plan, electorate) = reference();
        let leader = sites(&plan, &["us-ia"])[0];
        let near = sites(&plan, &["us-ia", "us-tn", "us-or", "eu-nl", "as-tw"]);
        let wide = sites(&plan, &["us-ia", "eu-ie", "as-tw", "sa-cl", "us-or"]);
        assert_eq!(quorum_ms(&electorate, leader, &near, 5), 40.1);
        assert_eq!(quorum_ms(&electorate, leader, &wide, 5), 101.9);
        assert!((increments_in_flight(&electorate, leader) - 7_135.0).abs() < 1.0);
        assert!((zone(&electorate, leader, 40.0) - 9_935.0).abs() < 1.0);
    }

    #[test]
    fn the_reference_voters_are_led_from_where_the_zone_is_least() {
        let (plan, electorate) = reference();
        let choice = best_leader(&electorate, &sites(&plan, &["us-ia", "us-tn", "us-or", "eu-nl", "as-tw"]));
        assert_eq!(plan.dcs[choice.leader].site, "us-ia");
        assert!((choice.zone - 9_942.1).abs() < 0.1);
        let narrow = Rule { survive_region_loss: false, ..REFERENCE_RULE };
        assert!(satisfies(&electorate, narrow, &choice.voters));
        assert!(!satisfies(&electorate, REFERENCE_RULE, &choice.voters), "three of five stand in one region");
    }

    #[test]
    fn the_reference_layout_has_one_best_choice_under_each_rule() {
        let (plan, electorate) = reference();
        let wide = choose_voters(&electorate, REFERENCE_RULE).unwrap();
        assert_eq!(names(&plan, &wide.voters), ["us-sc", "us-ga", "eu-ie", "eu-be", "as-tw"]);
        assert_eq!((plan.dcs[wide.leader].site.as_str(), wide.quorum_ms), ("us-ga", 94.9));
        let rule = Rule { survive_region_loss: false, ..REFERENCE_RULE };
        let narrow = choose_voters(&electorate, rule).unwrap();
        assert_eq!(names(&plan, &narrow.voters), ["us-sc", "us-ga", "us-nc", "eu-ie", "as-tw"]);
        assert_eq!((plan.dcs[narrow.leader].site.as_str(), narrow.quorum_ms), ("us-ga", 16.0));
    }

    #[test]
    fn every_set_is_visited_once() {
        let mut seen = Vec::new();
        for_each_set(5, 3, |set| seen.push(set.to_vec()));
        assert_eq!(seen.len(), 10);
        assert!(seen.is_sorted() && seen.iter().all(|set| set.is_sorted()));
        seen.dedup();
        assert_eq!(seen.len(), 10);
        for_each_set(2, 3, |_| panic!("there is no such set"));
    }

    #[test]
    fn one_voter_needs_no_other() {
        let electorate = Electorate { rate_per_s: vec![10.0], region: vec![0], rtt_ms: vec![vec![0.3]] };
        let rule = Rule { voters: 1, regions_min: 1, survive_region_loss: false };
        let choice = choose_voters(&electorate, rule).unwrap();
        assert_eq!((choice.quorum_ms, choice.zone_without_leader), (0.0, f64::INFINITY));
        assert_eq!(choose_voters(&electorate, Rule { survive_region_loss: true, ..rule }), None);
    }

    fn electorates() -> impl Strategy<Value = Electorate> {
        (5_usize..9).prop_flat_map(|dcs| {
            let row = prop::collection::vec(0.1_f64..300.0, dcs);
            let rates = prop::collection::vec(0.0_f64..10_000.0, dcs);
            let regions = prop::collection::vec(0_usize..4, dcs);
            (rates, regions, prop::collection::vec(row, dcs)).prop_map(|(rate_per_s, region, rtt_ms)| Electorate {
                rate_per_s,
                region,
                rtt_ms,
            })
        })
    }

    proptest! {
        #[test]
        fn no_allowed_set_beats_the_choice(electorate in electorates(), survive_region_loss: bool, voters in 1_usize..3) {
            let rule = Rule { voters: 2 * voters + 1, regions_min: 2, survive_region_loss };
            let choice = choose_voters(&electorate, rule);
            let least = choice.as_ref().map_or(f64::INFINITY, |choice| choice.zone);
            for_each_set(electorate.region.len(), rule.voters, |set| {
                if !satisfies(&electorate, rule, set) {
                    return;
                }
                assert!(set.iter().all(|&leader| {
                    zone(&electorate, leader, quorum_ms(&electorate, leader, set, set.len())) >= least - 1e-3
                }));
            });
            if let Some(choice) = choice {
                prop_assert!(satisfies(&electorate, rule, &choice.voters));
                prop_assert!(choice.voters.contains(&choice.leader));
            }
        }

        #[test]
        fn a_majority_survives_the_loss_of_any_region(electorate in electorates()) {
            let rule = Rule { voters: 5, regions_min: 3, survive_region_loss: true };
            if let Some(choice) = choose_voters(&electorate, rule) {
                for region in 0..4 {
                    let left = choice.voters.iter().filter(|&&voter| electorate.region[voter] != region).count();
                    prop_assert!(left >= 3, "losing region {region} leaves {left} of {choice:?}");
                }
            }
        }
    }
}
