//! Convergence: once faults and increments have ended, every view shows the true total of every counter.

use super::Findings;

const NAME: &str = "convergence";

/// The downward half.
pub fn down_at_end(findings: &mut Findings, dc: usize, counter: u16, shown: u64, total: u64) {
    findings.check(NAME, shown == total, || {
        format!("at the end view {dc} shows {shown} down of counter {counter}; {total} happened")
    });
}

/// The part of a lost group that stands behind a milestone still to come, its `surplus`, is pending.
pub fn at_end(findings: &mut Findings, dc: usize, counter: u16, value: u64, pending: u64, total: u64, surplus: u64) {
    findings.check(NAME, value + pending == total && pending <= surplus, || {
        format!("at the end view {dc} shows {value} (and {pending} pending) of counter {counter}; {total} happened")
    });
}
