//! Conservation: a durable increment is counted exactly once, an increment with an unknown fate at most once, and the ledger's sums are
//! weights of distinct increments (I9).

use super::Findings;
use crate::oracle::{Oracle, Told};
use tidemark_proto::ledger::CounterLedger;

const NAME: &str = "conservation";

/// After a group's committed state changed: every component is the sum of the distinct batches in its log.
pub fn component(findings: &mut Findings, oracle: &Oracle, group: u16, counter: u16, shown: u64) {
    let truth = oracle.groups[usize::from(group)].components[usize::from(counter)];
    findings.check(NAME, shown == truth, || {
        format!("group {group} shows {shown} for counter {counter}; its log holds {truth}")
    });
}

/// After an entry of the ledger: it never knows of more than there is.
pub fn ledger(findings: &mut Findings, oracle: &Oracle, counter: u16, state: &CounterLedger) {
    let certain = state.certain();
    let total = oracle.totals[usize::from(counter)];
    findings.check(NAME, certain <= total, || {
        format!("the ledger is certain of {certain} of counter {counter}; {total} happened")
    });
}

/// At rest the ledger knows of everything that is left.
pub fn ledger_at_rest(findings: &mut Findings, total: u64, counter: u16, state: &CounterLedger) {
    let certain = state.certain() + state.losses().surplus();
    findings.check(NAME, certain == total, || {
        format!("at rest the ledger is certain of {certain} of counter {counter}; {total} happened")
    });
}

/// Checks the answers to clients as soon as they come: a durable increment is in a log.
pub fn told(findings: &mut Findings, oracle: &Oracle, number: u32) {
    let increment = &oracle.increments[number as usize];
    let expected = match increment.told {
        Told::Durable | Told::Placed(_) | Told::PlaceUnknown => increment.applied == 1,
        Told::Failed => increment.applied == 0,
        Told::Nothing | Told::Unknown => true,
    };
    findings.check(NAME, expected, || {
        format!("increment {number} is told {:?} and was counted {} times", increment.told, increment.applied)
    });
}

/// At the end: everything that a living client asked for is counted once.
pub fn at_end(findings: &mut Findings, oracle: &Oracle) {
    for (number, increment) in oracle.increments.iter().enumerate() {
        told(findings, oracle, number as u32);
        let alive = !oracle.is_crashed(increment.client);
        // In doubt at a group that was lost, or has said that it forgot the client: no client counts it again without being asked.
        let in_doubt = increment.told == Told::Unknown && (oracle.lost.is_some() || increment.forgotten);
        let expected = !alive || increment.applied == 1 || increment.told == Told::Failed || in_doubt;
        findings.check(NAME, expected, || {
            format!("at the end increment {number} of client {} is not counted", increment.client)
        });
    }
    for (&(client, counter), added) in &oracle.added {
        let alive = oracle.crashed.get(client as usize).is_some_and(|crashed| !crashed);
        let most = added.invoked - added.failed;
        let in_doubt = if oracle.lost.is_some() { added.unknown } else { added.forgotten };
        let least = if alive { most - in_doubt } else { 0 };
        findings.check(NAME, (least..=most).contains(&added.applied), || {
            format!("client {client} added {added:?} to counter {counter}: {least} to {most} should be counted")
        });
    }
}
