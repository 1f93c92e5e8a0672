//! Liveness (I10): once faults have ended, without new increments, everything offered is placed and every milestone up to the total is
//! awarded or passed. Every client knows the place of its hits.

use super::{Account, Findings};
use crate::oracle::{Oracle, Told};
use tidemark_proto::ledger::CounterLedger;

const NAME: &str = "liveness";

/// The remaining work for one counter; `None` when nothing is.
pub fn ledger_waits(state: &CounterLedger, total: u64) -> Option<String> {
    // Weight behind a milestone without a name does not reach it: the next increment does.
    let total = if state.losses().surplus() > 0 { total.min(state.certain()) } else { total };
    let due: Vec<u64> = state.milestones().pending().map(|(at, _)| at).filter(|&at| at <= total).collect();
    let waits = state.window().undecided() > 0 || state.window().weight() > 0 || !due.is_empty();
    waits.then(|| {
        let window = state.window();
        format!("undecided {}, window weight {}, due {due:?}, out {}", window.undecided(), window.weight(), state.out())
    })
}

/// A group waits for places.
pub fn group_waits(account: &Account) -> bool {
    account.placed_upto < account.next_pos
}

/// The first hit of a living client without an answer.
pub fn unanswered(oracle: &Oracle) -> Option<usize> {
    let waits = |told| matches!(told, Told::Nothing | Told::Durable);
    oracle.increments.iter().position(|x| waits(x.told) && !oracle.is_crashed(x.client))
}

pub fn found(findings: &mut Findings, what: String) {
    findings.found(NAME, what);
}
