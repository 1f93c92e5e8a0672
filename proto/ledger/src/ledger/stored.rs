//! The ledger as a snapshot holds it. Later additions stand at the end, so an earlier snapshot is read as one without them.

use super::shards::Splits;
use super::{
    Births, ChangeSets, Claims, CounterLedger, Deferred, Graph, Ledger, Losses, Registered, Resets, ShardMap, Terms,
};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::ids::{AggregatorId, CounterName, DcId, GroupId, LogIndex};
use tidemark_types::time::WallMs;
use tidemark_wire::msg::SeriesTerms;

#[derive(Deserialize)]
pub(super) struct Stored {
    applied: LogIndex,
    namespaces: BTreeSet<String>,
    spread: BTreeSet<CounterName>,
    views: BTreeSet<AggregatorId>,
    groups: BTreeMap<GroupId, Registered>,
    counters: BTreeMap<CounterName, CounterLedger>,
    claims: Claims,
    /// For counters that have any.
    terms: BTreeMap<CounterName, Terms>,
    lost: BTreeSet<GroupId>,
    /// For counters that have any.
    losses: BTreeMap<CounterName, Losses>,
    resets: Resets,
    forgotten: BTreeSet<DcId>,
    view_starts: BTreeMap<AggregatorId, u64>,
    updown: BTreeSet<String>,
    /// For counters that have any.
    deferred: BTreeMap<CounterName, Deferred>,
    returning: BTreeSet<AggregatorId>,
    series: BTreeMap<String, SeriesTerms>,
    graph: Graph,
    shard_map: ShardMap,
    splits: Splits,
    clock: Option<(LogIndex, WallMs)>,
    /// For counters that have awards with times, by milestone.
    award_times: BTreeMap<CounterName, BTreeMap<u64, WallMs>>,
    id_owners: Vec<(DcId, u16)>,
    births: Births,
    /// For counters that began again, in the order of their names: the number of the last reset, and the generations that are
    /// over everywhere.
    reset_numbers: Vec<(u64, u32)>,
    resets_heard: BTreeMap<AggregatorId, u64>,
    resets_passed: u64,
}

/// The same, borrowed.
#[derive(Serialize)]
struct Storing<'l> {
    applied: LogIndex,
    namespaces: &'l BTreeSet<String>,
    spread: &'l BTreeSet<CounterName>,
    views: &'l BTreeSet<AggregatorId>,
    groups: &'l BTreeMap<GroupId, Registered>,
    counters: &'l BTreeMap<CounterName, CounterLedger>,
    claims: &'l Claims,
    terms: BTreeMap<&'l CounterName, &'l Terms>,
    lost: &'l BTreeSet<GroupId>,
    losses: BTreeMap<&'l CounterName, &'l Losses>,
    resets: &'l Resets,
    forgotten: &'l BTreeSet<DcId>,
    view_starts: &'l BTreeMap<AggregatorId, u64>,
    updown: &'l BTreeSet<String>,
    deferred: BTreeMap<&'l CounterName, &'l Deferred>,
    returning: &'l BTreeSet<AggregatorId>,
    series: &'l BTreeMap<String, SeriesTerms>,
    graph: &'l Graph,
    shard_map: &'l ShardMap,
    splits: &'l Splits,
    clock: Option<(LogIndex, WallMs)>,
    award_times: BTreeMap<&'l CounterName, BTreeMap<u64, WallMs>>,
    id_owners: &'l [(DcId, u16)],
    births: &'l Births,
    reset_numbers: Vec<(u64, u32)>,
    resets_heard: &'l BTreeMap<AggregatorId, u64>,
    resets_passed: u64,
}

impl Ledger {
    /// Bytes of a snapshot of it.
    pub fn stored_bytes(&self) -> usize {
        postcard::to_allocvec(self).expect("a ledger can be encoded").len()
    }
}

impl Serialize for Ledger {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Ledger { applied, namespaces, updown, spread, views, view_starts, groups, .. } = self;
        let Ledger {
            counters, claims, lost, resets, forgotten, returning, series, graph, shard_map, id_owners, ..
        } = self;
        let terms = counters.iter().map(|(name, counter)| (name, counter.terms()));
        let terms = terms.filter(|(_, terms)| !terms.is_empty()).collect();
        let losses = counters.iter().map(|(name, counter)| (name, counter.losses()));
        let losses = losses.filter(|(_, losses)| !losses.is_empty()).collect();
        let deferred = counters.iter().map(|(name, counter)| (name, counter.deferred()));
        let deferred = deferred.filter(|(_, deferred)| !deferred.is_empty()).collect();
        let award_times = counters.iter().map(|(name, counter)| (name, counter.award_times()));
        let award_times = award_times.filter(|(_, times)| !times.is_empty()).collect();
        let applied = *applied;
        let clock = self.clock;
        let births = &self.births;
        let storing = Storing {
            applied,
            namespaces,
            spread,
            views,
            groups,
            counters,
            claims,
            terms,
            lost,
            losses,
            resets,
            forgotten,
            view_starts,
            updown,
            deferred,
            returning,
            series,
            graph,
            shard_map,
            splits: &shard_map.splits,
            clock,
            award_times,
            id_owners,
            births,
            reset_numbers: resets.numbers(),
            resets_heard: &self.resets_heard,
            resets_passed: self.resets_passed,
        };
        storing.serialize(serializer)
    }
}

impl From<Stored> for Ledger {
    fn from(stored: Stored) -> Ledger {
        let Stored { applied, namespaces, updown, spread, views, view_starts, groups, .. } = stored;
        let Stored { mut counters, mut claims, terms, lost, losses, resets, forgotten, deferred, .. } = stored;
        let Stored { returning, series, graph, shard_map, splits, clock, award_times, id_owners, births, .. } = stored;
        let resets = resets.with_numbers(stored.reset_numbers);
        let resets_heard = stored.resets_heard;
        let resets_passed = stored.resets_passed.min(resets.last());
        let shard_map = shard_map.with_splits(splits);
        claims.index_passed();
        counters.values_mut().for_each(|counter| counter.window.recount());
        for (name, terms) in terms {
            if let Some(counter) = counters.get_mut(&name) {
                counter.set_terms(terms);
            }
        }
        for (name, losses) in losses {
            if let Some(counter) = counters.get_mut(&name) {
                counter.set_losses(losses);
            }
        }
        for (name, deferred) in deferred {
            if let Some(counter) = counters.get_mut(&name) {
                counter.set_deferred(deferred);
            }
        }
        for (name, times) in award_times {
            if let Some(counter) = counters.get_mut(&name) {
                times.into_iter().for_each(|(at, time)| counter.set_award_time(at, Some(time)));
            }
        }
        let changes = ChangeSets::default();
        Ledger {
            applied,
            namespaces,
            updown,
            spread,
            views,
            view_starts,
            groups,
            counters,
            claims,
            lost,
            resets,
            forgotten,
            returning,
            series,
            graph,
            shard_map,
            clock,
            id_owners,
            births,
            resets_heard,
            resets_passed,
            changes,
        }
    }
}
