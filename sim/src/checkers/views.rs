//! Views: the values that a reader sees at one aggregator never go back while its process lives, never exceed what happened, and stay below
//! every milestone that is armed and not awarded, also after a restart.

use super::Findings;

const NAME: &str = "views";

/// The values that were shown last, by data centre and counter.
#[derive(Clone, Debug, Default)]
pub struct Views {
    values: Vec<Vec<u64>>,
    generations: Vec<Vec<u32>>,
}

impl Views {
    pub fn new(dcs: usize, counters: usize) -> Views {
        Views { values: vec![vec![0; counters]; dcs], generations: vec![vec![0; counters]; dcs] }
    }

    /// The aggregator's process starts anew: its view is what it had persisted.
    pub fn restarted(&mut self, dc: usize) {
        self.values[dc].fill(0);
        self.generations[dc].fill(0);
    }

    /// A view shows a generation of a counter.
    pub fn generation(&mut self, findings: &mut Findings, dc: usize, counter: u16, generation: u32) {
        let last = &mut self.generations[dc][usize::from(counter)];
        findings.check(NAME, generation >= *last, || {
            format!("view {dc} counter {counter} went back from generation {last} to {generation}")
        });
        *last = generation;
    }

    /// A view shows `value`; `total` happened; `next` is armed in the newest state of the ledger.
    pub fn shown(
        &mut self,
        findings: &mut Findings,
        dc: usize,
        counter: u16,
        value: u64,
        total: u64,
        next: Option<u64>,
    ) {
        let last = &mut self.values[dc][usize::from(counter)];
        findings
            .check(NAME, value >= *last, || format!("view {dc} counter {counter} went back from {last} to {value}"));
        findings.check(NAME, value <= total, || format!("view {dc} counter {counter} shows {value}; {total} happened"));
        findings.check(NAME, next.is_none_or(|next| value < next), || {
            format!("view {dc} counter {counter} shows {value}; {next:?} is armed and not awarded")
        });
        *last = value;
    }

    /// A view shows `value` that does not know what it had promised of milestones; `total` happened.
    pub fn shown_by_one_that_forgot(
        &mut self,
        findings: &mut Findings,
        dc: usize,
        counter: u16,
        value: u64,
        total: u64,
    ) {
        self.values[dc][usize::from(counter)] = 0;
        self.shown(findings, dc, counter, value, total, None);
    }
}
