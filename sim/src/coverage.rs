//! Which situations a run met: a sweep that never saw one has not tested it.

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
