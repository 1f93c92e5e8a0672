//! Convergence: once faults and increments have ended, every view shows the true total of every counter.

use super::Findings;

const NAME: &str = "convergence";

pub fn at_end(findings: &mut Findings, dc: usize, counter: u16, value: u64, pending: u64, total: u64) {
    findings.check(NAME, (value, pending) == (total, 0), || {
        format!("at the end view {dc} shows {value} (and {pending} pending) of counter {counter}; {total} happened")
    });
}
