//! Leases: what was certified beyond the end of a revoked generation is answered as counted only while the lease ran, that is before
//! the revocation; such increments are the one exception to I6 and I7, and nothing else is.

use super::{Account, Findings};
use crate::oracle::Oracle;
use std::collections::BTreeSet;
use tidemark_proto::ledger::CounterLedger;

const NAME: &str = "leases";

/// Increments by their numbers, certified in a group's present generation and not known to be reported: (spending with it, number).
pub type Journal = Vec<(u64, u32)>;

/// Whether the ledger has closed the generation in which the group is.
pub fn is_behind(account: &Account, state: &CounterLedger, group: tidemark_proto::ids::GroupId) -> bool {
    let same = state.epoch() == account.epoch;
    same && state.accounts().get(&group).is_some_and(|known| known.generation > account.generation)
}

/// Of those the ones beyond what the ledger had heard of when it closed their generation.
pub fn beyond(journal: &Journal, closed_spent: u64) -> BTreeSet<u32> {
    journal.iter().filter(|(upto, _)| *upto > closed_spent).map(|(_, number)| *number).collect()
}

/// A revocation was applied: these may stand after milestones although they were answered.
pub fn revoked(oracle: &mut Oracle, late: &BTreeSet<u32>) {
    late.iter().for_each(|&number| oracle.increments[number as usize].late = true);
}

/// A node answers these as counted while the ledger has closed the generation in which they were certified.
pub fn answered(findings: &mut Findings, late: &BTreeSet<u32>, counted: impl Iterator<Item = u32>) {
    for number in counted.filter(|number| late.contains(number)) {
        findings.found(NAME, format!("increment {number} is answered as counted after its generation was revoked"));
    }
}
