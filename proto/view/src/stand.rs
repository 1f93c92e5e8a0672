//! The progress of a view: it stands beside the counts in an answer about shards, so that a reader is never shown less than
//! before.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tidemark_types::ids::{AggregatorId, GroupId, LogIndex};
use tidemark_wire::msg::Version;
use tidemark_wire::shards::ShardId;

/// The progress of a view in some shards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stands {
    /// The part that is the same for all of them.
    pub of_all: Stand,
    /// By shard the rest.
    pub by_shard: BTreeMap<ShardId, OfShard>,
}

/// The part of a [`Stand`] that belongs to one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfShard {
    pub versions: Vec<(AggregatorId, Version, Version)>,
    pub is_settled: bool,
    pub limits: Vec<(u64, u64)>,
}

impl Stands {
    /// Combines stands of one view at one moment.
    pub fn of(stands: impl IntoIterator<Item = (ShardId, Stand)>) -> Stands {
        let mut all = Stands::default();
        for (shard, Stand { versions, is_settled, limits, ledger, graph, groups }) in stands {
            all.by_shard.insert(shard, OfShard { versions, is_settled, limits });
            all.of_all = Stand { ledger, graph, groups, ..Stand::default() };
        }
        all
    }

    pub(crate) fn into_each(self) -> impl Iterator<Item = (ShardId, Stand)> {
        let Stands { of_all, by_shard } = self;
        by_shard.into_iter().map(move |(shard, OfShard { versions, is_settled, limits })| {
            (shard, Stand { versions, is_settled, limits, ..of_all.clone() })
        })
    }
}

/// The progress of a view in one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stand {
    /// The ledger as applied beside it.
    pub ledger: LogIndex,
    /// The graph that totals have followed, by its index, and how many pairs of the next change.
    pub graph: (u64, u64),
    /// By group of its data centre, ascending: the position up to which all of its log is merged, and the position up to which
    /// entries may be shown.
    pub groups: Vec<(GroupId, LogIndex, LogIndex)>,
    /// By stream of other data centres, ascending: the version up to which all of it is merged, and the version up to which
    /// changes may be shown.
    pub versions: Vec<(AggregatorId, Version, Version)>,
    /// Whether these versions cover all data of other data centres that it shows: it is not being told all anew.
    pub is_settled: bool,
    /// Hashes of counters, ascending, that it shows less of than the ledger's state allows, and the limit of each. It has
    /// promised the limit while a milestone is being armed.
    pub limits: Vec<(u64, u64)>,
}

impl Stand {
    /// Whether a view at this stand has all that a view at the other may have shown.
    pub fn covers(&self, shown: &Stand) -> bool {
        let groups: BTreeMap<GroupId, LogIndex> = self.groups.iter().map(|&(group, all, _)| (group, all)).collect();
        let versions: BTreeMap<AggregatorId, Version> = self.versions.iter().map(|&(of, all, _)| (of, all)).collect();
        let has_group =
            |&(group, _, some): &(GroupId, LogIndex, LogIndex)| groups.get(&group).copied().unwrap_or_default() >= some;
        let has_version =
            |&(of, _, some): &(AggregatorId, Version, Version)| versions.get(&of).copied().unwrap_or_default() >= some;
        // A view without the promise may have shown more.
        let had_limit =
            |&(of, limit): &(u64, u64)| shown.limits.iter().any(|&(counter, less)| counter == of && less <= limit);
        self.limits.iter().all(had_limit)
            && self.ledger >= shown.ledger
            && self.graph >= shown.graph
            && shown.is_settled
            && shown.groups.iter().all(has_group)
            && shown.versions.iter().all(has_version)
    }

    /// The state that one process has shown at both stands. Either may be the later one: answers may overtake each other, and its
    /// shown state never goes back.
    pub(crate) fn joined(self, other: &Stand) -> Stand {
        fn greatest<K: Ord + Copy, V: Ord + Copy>(one: &[(K, V, V)], other: &[(K, V, V)]) -> Vec<(K, V, V)> {
            let mut both: BTreeMap<K, (V, V)> = one.iter().map(|&(of, all, some)| (of, (all, some))).collect();
            for &(of, all, some) in other {
                both.entry(of)
                    .and_modify(|known| *known = (all.max(known.0), some.max(known.1)))
                    .or_insert((all, some));
            }
            both.into_iter().map(|(of, (all, some))| (of, all, some)).collect()
        }
        let groups = greatest(&self.groups, &other.groups);
        let versions = greatest(&self.versions, &other.versions);
        let ledger = self.ledger.max(other.ledger);
        let graph = self.graph.max(other.graph);
        let is_latest = |stand: &Stand| {
            let all = stand.groups.iter().map(|of| of.1).eq(groups.iter().map(|of| of.1));
            let versions = stand.versions.iter().map(|of| of.1).eq(versions.iter().map(|of| of.1));
            stand.ledger == ledger && stand.graph == graph && all && versions
        };
        let (is_settled, limits) = match (is_latest(other), is_latest(&self)) {
            (true, _) => (other.is_settled, other.limits.clone()),
            (_, true) => (self.is_settled, self.limits),
            // This cannot happen with one process.
            _ => (false, Vec::new()),
        };
        Stand { ledger, graph, groups, versions, is_settled, limits }
    }
}
