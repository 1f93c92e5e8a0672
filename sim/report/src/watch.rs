//! The observations of a run: awards, the sequenced increments of each, and when every view had all.

use super::line::AwardLine;
use std::collections::BTreeMap;
use tidemark_proto::ids::CounterName;
use tidemark_proto::ledger::Ledger;
use tidemark_proto::msg::Award;
use tidemark_proto::time::Time;

/// Observations of one run.
#[derive(Debug, Default)]
pub struct Watch {
    /// Awards by milestone, as known in the data centre of the one that won.
    pub awards: BTreeMap<u64, AwardLine>,
    /// Sequenced since the milestone before, when the ledger's leader applied the award.
    at_award: BTreeMap<u64, u64>,
    /// The last one became known.
    pub awarded_at: Option<Time>,
    /// Sequenced before what is counted now.
    closed: u64,
    /// Most increments of the ledger's window that waited for a decision.
    pub undecided_max: u64,
    /// Most increments queued at one group.
    pub queued_max: u64,
    /// Weighted increments that had to wait: they stand for increments of one, so none may.
    pub weighted_queued: u64,
    /// Batches that a node refused.
    pub refused: u64,
    /// When the last increment was applied.
    pub last_applied: Time,
    /// When each view had all increments, after the last.
    pub complete_at: Vec<Option<Time>>,
}

impl Watch {
    pub fn new(centres: usize) -> Watch {
        Watch { complete_at: vec![None; centres], ..Watch::default() }
    }

    /// An award is known in the data centre that it names.
    pub fn award(&mut self, now: Time, award: &Award, at: u64, applied: Time, bound_us: u64) {
        let before: u64 = award.before.iter().map(|(_, weight)| weight).sum();
        let exact = before + 1 == award.first && award.covers(at) && award.first + award.delta > at;
        let line = AwardLine {
            at,
            first: award.first,
            delta: award.delta,
            exact: exact && award.first <= at,
            centre: award.group.dc.0,
            sequenced: 0,
            sequenced_before: self.at_award.get(&at).copied().unwrap_or(0),
            latency_us: (now - applied).0,
            bound_us,
        };
        self.awards.entry(at).or_insert(line);
        self.awarded_at = Some(now);
    }

    /// The leader has applied something.
    pub fn ledger(&mut self, counter: &CounterName, ledger: &Ledger) {
        let Some(state) = ledger.counter(counter) else { return };
        self.undecided_max = self.undecided_max.max(state.window().undecided());
        if let Some(&at) = state.awards().keys().next_back() {
            self.at_award.entry(at).or_insert(state.sequenced() - self.closed);
        }
    }

    /// A milestone is near: what is sequenced from now on is for it.
    pub fn open(&mut self, counter: &CounterName, ledger: &Ledger) {
        self.closed = ledger.counter(counter).map_or(0, |state| state.sequenced());
    }

    /// Nothing is near any more: what was sequenced since the last time was for the newest milestone.
    pub fn close(&mut self, counter: &CounterName, ledger: &Ledger) {
        let sequenced = ledger.counter(counter).map_or(0, |state| state.sequenced());
        if let Some(newest) = self.awards.values_mut().next_back() {
            newest.sequenced += sequenced - self.closed;
        }
        self.closed = sequenced;
    }
}
