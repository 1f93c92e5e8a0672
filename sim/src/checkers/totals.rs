//! Totals: the total of a counter in a view, beside its own count, is the sum over its ancestors, each once, of their counts in that view.
//! The graph is that which the view says it has carried out, and as far as it has carried out the next change; all-time and in every
//! bucket. In the end that is what was logged.

use super::Findings;
use super::edges::{Edges, Set};
use super::series::MINUTE_S;
use crate::oracle::Minutes;
use crate::plan::edges::COUNTERS_MAX;
use std::collections::BTreeMap;
use tidemark_proto::series::{BucketId, Horizon, UnixTime};
use tidemark_proto::shards::{ShardId, ShardMask};
use tidemark_proto::view::hierarchy::HierarchyProgress;

const NAME: &str = "totals";

/// The sums that flow to a counter, or are counted of it: up and down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub counts: [u64; 2],
    pub buckets: [BTreeMap<BucketId, u64>; 2],
}

impl Sums {
    /// Adds what was counted in these minutes to all buckets that are kept.
    pub fn add_minutes(&mut self, half: usize, minutes: &Minutes, horizon: &Horizon) {
        for (minute, weight) in minutes {
            let at = UnixTime::default().plus(minute * MINUTE_S);
            let of = |granularity| BucketId { granularity, index: granularity.index_at(at) };
            for bucket in horizon.first().iter().map(|first| of(first.0)).filter(|&bucket| horizon.keeps(bucket)) {
                *self.buckets[half].entry(bucket).or_default() += weight;
            }
        }
    }

    pub fn add_bucket(&mut self, half: usize, bucket: BucketId, value: u64) {
        *self.buckets[half].entry(bucket).or_default() += value;
    }

    /// Without what is not kept.
    pub fn kept(mut self, horizon: &Horizon) -> Sums {
        self.buckets.iter_mut().for_each(|buckets| buckets.retain(|&bucket, _| horizon.keeps(bucket)));
        self
    }

    pub fn buckets_len(&self) -> usize {
        self.buckets.iter().map(BTreeMap::len).sum()
    }
}

/// The counters of a set.
pub fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..COUNTERS_MAX).filter(move |&counter| set >> counter & 1 == 1)
}

/// From which counters a view says that counts flow to one. `None`: it compares graphs. `vertex` is the order of the pairs of a change.
pub fn sources(
    findings: &mut Findings,
    edges: &Edges,
    progress: &HierarchyProgress,
    counter: usize,
    vertex: impl Fn(usize) -> Option<u32>,
) -> Option<Set> {
    if progress.compares {
        return None;
    }
    let Some(before) = edges.graph(progress.index) else {
        findings.found(NAME, format!("a view is {} changes of the graph far: there were fewer", progress.index));
        return None;
    };
    let mut sources = before.ancestors(counter);
    let Some(after) = edges.graph(progress.index + 1).filter(|_| progress.waiting > 0 && progress.pairs > 0) else {
        return Some(sources);
    };
    let changed = |to: usize| members(before.ancestors(to) ^ after.ancestors(to)).map(move |from| (from, to));
    let mut pairs: Vec<(usize, usize)> = (0..COUNTERS_MAX).flat_map(changed).collect();
    pairs.sort_by_key(|&(from, to)| (vertex(from), vertex(to)));
    let done = pairs.iter().take(progress.pairs as usize).filter(|&&(_, to)| to == counter);
    done.for_each(|&(from, _)| sources ^= 1 << from);
    Some(sources)
}

/// After a step of an aggregator.
pub fn shown(
    findings: &mut Findings,
    dc: usize,
    counter: usize,
    progress: &HierarchyProgress,
    shown: &Sums,
    recount: &Sums,
) {
    findings.check(NAME, shown == recount, || {
        format!("to counter {counter} of view {dc}, {progress:?}, flows {shown:?}; a recount gives {recount:?}")
    });
}

/// The same of what flows from the counters of one shard.
pub fn share_shown(
    findings: &mut Findings,
    dc: usize,
    counter: usize,
    shard: ShardId,
    progress: &HierarchyProgress,
    shown: &Sums,
    recount: &Sums,
) {
    findings.check(NAME, shown == recount, || {
        let ShardId(shard) = shard;
        format!(
            "to counter {counter} of view {dc} flows {shown:?} from shard {shard}, {progress:?}; a recount gives {recount:?}"
        )
    });
}

/// A reader of a total asks only those shards from which, by a view, something may flow to it.
pub fn sources_known(findings: &mut Findings, dc: usize, counter: usize, known: ShardMask, sources: &[ShardId]) {
    for shard in sources.iter().filter(|shard| !known.has(**shard)) {
        findings.found(
            NAME,
            format!("to counter {counter} flows something of shard {}, of which view {dc} does not know", shard.0),
        );
    }
}

/// At the end: all changes are carried out.
pub fn carried_out(findings: &mut Findings, dc: usize, progress: &HierarchyProgress, index: u64, cells: u64) {
    let same = (index, 0, false, cells, false);
    let is_done = (progress.index, progress.waiting, progress.compares, progress.cells, progress.recounts) == same;
    findings.check(NAME, is_done, || format!("at the end view {dc} is at {progress:?}; there were {index} changes"));
}

/// At the end: what flows was logged.
pub fn at_end(findings: &mut Findings, dc: usize, counter: usize, shown: &Sums, logged: &Sums) {
    findings.check(NAME, shown == logged, || {
        format!("at the end {shown:?} flows to counter {counter} of view {dc}; logged was {logged:?}")
    });
}
