//! Views: what a reader sees at one aggregator never goes back while its process lives, never exceeds what happened, and stays
//! below every milestone that is armed and not awarded, also after a restart.

use super::Findings;

const NAME: &str = "views";

/// The last value shown, by data centre and counter.
#[derive(Clone, Debug, Default)]
pub struct Views(Vec<Vec<u64>>);

impl Views {
    pub fn new(dcs: usize, counters: usize) -> Views {
        Views(vec![vec![0; counters]; dcs])
    }

    /// The aggregator's process starts anew: its view is what it had persisted.
    pub fn restarted(&mut self, dc: usize) {
        self.0[dc].fill(0);
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
        let last = &mut self.0[dc][usize::from(counter)];
        findings
            .check(NAME, value >= *last, || format!("view {dc} counter {counter} went back from {last} to {value}"));
        findings.check(NAME, value <= total, || format!("view {dc} counter {counter} shows {value}; {total} happened"));
        findings.check(NAME, next.is_none_or(|next| value < next), || {
            format!("view {dc} counter {counter} shows {value}; {next:?} is armed and not awarded")
        });
        *last = value;
    }
}
