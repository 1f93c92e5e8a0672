//! One process is asked for its part of counters, question by question, until it has sent all: an answer holds as much as fits a
//! message.

use super::gathered::{Counts, GatherError, SHARD_ASK_COUNTERS_MAX, gather};
use super::{Of, Wanted};
use crate::view::View;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tidemark_ledger::ledger::Ledger;
use tidemark_types::ids::{CounterName, Half};
use tidemark_types::series::{Granularity, Horizon};
use tidemark_wire::shards::{ShardId, ShardMask};

/// Asks for the part of some shards in counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountsAsk {
    pub of: Of,
    /// Shards that only this process is asked for.
    pub shards: BTreeSet<ShardId>,
    pub counters: Vec<CounterName>,
    /// The requested buckets; without any, the answer has only readings and shares.
    pub wanted: Wanted,
    /// The shares of the first counter were sent already, and its buckets before this one.
    pub from: Option<Cut>,
    /// For totals, by counter: the shards with shares in the answer. The asking process takes other shards for empty, even if
    /// another process knows better.
    pub masks: Vec<ShardMask>,
}

/// Where the buckets of a counter go on: first those counted up, then those counted down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cut {
    pub half: Half,
    pub granularity: Granularity,
    pub index: u32,
}

/// The part that shards add to counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountsAnswer {
    /// The first requested counters, at least one.
    pub counts: Vec<Counts>,
    /// There is one counter, and its buckets go on with this one.
    pub cut: Option<Cut>,
    /// By namespace with series, if buckets were requested: how far they have expired at the sender.
    pub horizons: BTreeMap<String, Horizon>,
}

/// The data that one process has sent so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// The whole question.
    pub(super) all: CountsAsk,
    /// The counts of its first counters.
    pub(super) counts: Vec<Counts>,
    /// The last of them has more.
    cut: Option<Cut>,
    pub(super) horizons: BTreeMap<String, Horizon>,
}

impl Inquiry {
    pub(super) fn new(all: CountsAsk) -> Inquiry {
        Inquiry { all, counts: Vec::new(), cut: None, horizons: BTreeMap::new() }
    }

    /// The next question; `None`: all data has come.
    pub fn ask(&self) -> Option<CountsAsk> {
        let next = self.next();
        let CountsAsk { of, shards, counters, wanted, masks, .. } = &self.all;
        let shards = shards.clone();
        let wanted = wanted.clone();
        let masks = masks.get(next.clone()).unwrap_or_default();
        let counters = counters[next.clone()].to_vec();
        let masks = masks.to_vec();
        (!next.is_empty()).then_some(CountsAsk { of: *of, shards, counters, wanted, from: self.cut, masks })
    }

    /// The places of the counters that are asked for next.
    fn next(&self) -> Range<usize> {
        let from = self.counts.len() - usize::from(self.cut.is_some());
        from..self.all.counters.len().min(from + SHARD_ASK_COUNTERS_MAX)
    }

    /// Takes the answer to that question. Errors: it is none, as it has none or too many counters, or does not go on where the one before
    /// ended.
    pub fn take(&mut self, answer: CountsAnswer) -> Result<(), GatherError> {
        let asked = self.next().len();
        let counters = answer.counts.len();
        if counters > asked || counters == 0 {
            return Err(GatherError::Length { asked, counters });
        }
        if answer.cut.is_some_and(|cut| counters != 1 || self.cut.is_some_and(|before| cut <= before)) {
            return Err(GatherError::GoesBack);
        }
        let mut counts = answer.counts.into_iter();
        if let (Some(last), Some(_)) = (self.counts.last_mut(), self.cut) {
            let rest = counts.next().expect("there is at least one");
            let generation = |counts: &Counts| counts.reading.map(|reading| reading.generation);
            if generation(last) != generation(&rest) {
                return Err(GatherError::BeganAgain);
            }
            last.go_on_with(&rest);
        }
        self.counts.extend(counts);
        self.cut = answer.cut;
        for (namespace, horizon) in answer.horizons {
            self.horizons.entry(namespace).and_modify(|known| known.merge(&horizon)).or_insert(horizon);
        }
        Ok(())
    }

    /// Answers all that is left from a view that holds the shards.
    pub fn answer(&mut self, view: &View, ledger: &Ledger) {
        while let Some(ask) = self.ask() {
            self.take(gather(view, ledger, &ask)).expect("an answer goes on");
        }
    }

    /// Error: not all is told.
    pub(super) fn check_finished(&self) -> Result<(), GatherError> {
        match self.all.counters.len() - self.counts.len() + usize::from(self.cut.is_some()) {
            0 => Ok(()),
            left => Err(GatherError::Unfinished(left)),
        }
    }
}
