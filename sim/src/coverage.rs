//! Which situations a run met: a sweep that never saw one has not tested it.

use serde_json::Value;
use std::collections::BTreeMap;

/// Situations that a mode is for, and how often this number of its seeds meets them at least.
#[derive(Debug)]
pub struct Floors {
    /// The seeds that `each` is for. A sweep of fewer has to meet its share.
    pub seeds: u64,
    /// In a sweep of fewer seeds than this, chance decides what is met.
    pub from_seeds: u64,
    pub each: &'static [(&'static str, u64)],
}

/// The floors of runs on modelled logs.
pub const FLOORS: Floors = Floors { seeds: 3_000, from_seeds: 150, each: &SITUATIONS };

const SITUATIONS: [(&str, u64); 74] = [
    ("ledger leader lost within a round trip of a grant", 500),
    ("ledger leader lost within a round trip of a recall", 500),
    ("ledger leader lost within a round trip of an award", 500),
    ("ledger leader lost within a round trip of a step of arming", 500),
    ("ledger leader lost within a round trip of a revocation", 50),
    ("retry after an unknown outcome", 10_000),
    ("cut off holding rights at the milestone", 500),
    ("two milestones in one zone", 200),
    ("old disk fenced out", 200),
    ("unsynced entries lost at a crash", 300),
    ("checkpoint part lost at a crash", 60),
    ("disk full: the node stopped", 500),
    ("link cut one way", 500),
    ("link flapped", 500),
    ("client vanished", 200),
    ("milestone passed before it was armed", 200),
    ("stream fenced", 500),
    ("definition of an older revision", 200),
    ("counted in what is over", 200),
    ("new cell of a view in the slot of an ended one", 500_000),
    ("message of a stale epoch", 200),
    ("report of a closed generation", 200),
    ("majority of a group's disks lost", 100),
    ("declared lost while holding rights", 50),
    ("new incarnation of a group", 200),
    ("forgotten stream asked for", 300),
    ("new era from images older than an award", 500),
    ("new era from copies of which one lacks an award", 500),
    ("the second took over while a milestone was armed", 1_000),
    ("a group turned to the other aggregator of a pair", 10_000),
    ("aggregator of a pair cut off alone", 200),
    ("view of a pair set aside", 300),
    ("a view came back while a milestone stood that was armed without it", 30),
    ("decrement", 1_000_000),
    ("refused: only grows", 1_000),
    ("message of the next version read", 1_000_000),
    ("process came back in another version", 1_000),
    ("group joined while a milestone was arming", 300),
    ("group joined while a milestone was armed", 500),
    ("group joined while a milestone was about to be reached", 150),
    ("group joined cut off from the ledger's leader", 300),
    ("ledger leader lost within a round trip of a group's joining", 300),
    ("valves added while it counted", 600),
    ("start that asked for fewer valves than there are", 30),
    ("old copy of a view", 800),
    ("old copy of a view from before another life of it", 350),
    ("row of buckets counted in", 1_000_000),
    ("bucket equal in a view at the end", 100_000),
    ("edge inserted beside a path", 3_000),
    ("edge removed beside a path", 1_000),
    ("change of edges refused", 5_000),
    ("edges refused and others not", 8_000),
    ("edges said again", 10_000),
    ("edges carried out on another graph", 10_000),
    ("edges asked for at another data centre", 10_000),
    ("edges asked for that were changed", 1_000),
    ("edges left out as they were there", 10_000),
    ("wrong change of edges in the log", 3_000),
    ("graphs compared", 500),
    ("total recounted amid a change", 100_000),
    ("total equal in a view at the end", 20_000),
    ("bucket of a total equal in a view at the end", 30_000),
    ("asked of who holds it", 1_000_000),
    ("answer of a holder that lacks what was shown", 20_000),
    ("told of a counter that another holds", 50_000),
    ("move of a shard ordered", 200),
    ("move of a shard taken back", 5),
    ("shard left an aggregator that had shown it", 150),
    ("shard held elsewhere than founded at the end", 60),
    ("split of a shard ordered", 300),
    ("split is on the disk of one that shows something", 1_500),
    ("asked of one that has split the range", 2_000),
    ("ranges asked for that are not of names", 100_000),
    ("batches held for a view", 20_000),
];

/// A floor that was not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmet {
    pub situation: &'static str,
    pub met: u64,
    pub least: u64,
}

/// Counts of situations by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    pub fn saw(&mut self, what: &'static str) {
        self.saw_times(what, 1);
    }

    pub fn saw_times(&mut self, what: &'static str, times: u64) {
        *self.0.entry(what).or_default() += times;
    }

    pub fn merge(&mut self, other: &Coverage) {
        other.0.iter().for_each(|(what, times)| self.saw_times(what, *times));
    }

    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(what, times)| (*what, *times))
    }

    pub fn json(&self) -> Value {
        Value::Object(self.counts().map(|(what, times)| (what.to_owned(), times.into())).collect())
    }

    /// Floors that this number of seeds had to reach, and did not.
    pub fn unmet(&self, floors: &Floors, seeds: u64) -> Vec<Unmet> {
        if seeds < floors.from_seeds {
            return Vec::new();
        }
        let least = |floor: u64| (u128::from(floor) * u128::from(seeds) / u128::from(floors.seeds)) as u64;
        let unmet = |&(situation, floor)| Unmet { situation, met: self.count(situation), least: least(floor) };
        floors.each.iter().map(unmet).filter(|unmet| unmet.met < unmet.least).collect()
    }

    pub fn count(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_has_to_reach_its_share_of_every_floor() {
        let Floors { seeds, from_seeds, each } = FLOORS;
        let (situation, floor) = each[0];
        let mut coverage = Coverage::default();
        each.iter().for_each(|&(situation, floor)| coverage.saw_times(situation, floor / 2));
        assert_eq!(coverage.unmet(&FLOORS, seeds / 2), []);
        let unmet = coverage.unmet(&FLOORS, seeds);
        assert_eq!((unmet.len(), unmet[0]), (each.len(), Unmet { situation, met: floor / 2, least: floor }));
        coverage.saw_times(situation, floor);
        assert_eq!(coverage.unmet(&FLOORS, seeds).len(), each.len() - 1);
        assert_eq!(Coverage::default().unmet(&FLOORS, from_seeds - 1), [], "too few to say");
    }
}
