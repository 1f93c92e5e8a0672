//! Which situations a run met: a sweep that never saw one has not tested it.

use serde_json::Value;
use std::collections::BTreeMap;

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

    pub fn count(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}
    pub fn json(&self) -> Value {
        Value::Object(self.counts().map(|(what, times)| (what.to_owned(), times.into())).collect())
    }

    /// Floors that so many seeds had to reach, and did not.
    pub fn unmet(&self, seeds: u64) -> Vec<Unmet> {
        if seeds < FLOORS_FROM_SEEDS {
            return Vec::new();
        }
        let least = |floor: u64| (u128::from(floor) * u128::from(seeds) / u128::from(FLOOR_SEEDS)) as u64;
        let unmet = |&(situation, floor)| Unmet { situation, met: self.count(situation), least: least(floor) };
        FLOORS.iter().map(unmet).filter(|unmet| unmet.met < unmet.least).collect()
    }

