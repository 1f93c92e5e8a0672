//! The least state that totals in an answer include: the progress of the graph and of counting in them. Totals are derived, and
//! never gossiped. Two views without messages on their way to them show the same totals, and have the same basis.

use crate::stand::Stands;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tidemark_types::ids::{AggregatorId, GroupId, LogIndex};
use tidemark_wire::msg::Version;
use tidemark_wire::shards::ShardId;

/// The least state that totals include. If several processes have sent the ranges that they hold, the state that each of them
/// has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Basis {
    /// The ledger as applied by the answering aggregator.
    pub ledger: LogIndex,
    /// Changes of edges that it knows.
    pub graph_known: u64,
    /// The changes that totals have followed, and the done pairs of counters of the next one. While the graph is compared with
    /// one that is many changes away, the number of changes before that.
    pub graph: (u64, u64),
    /// For each group of the data centre, the entry of its log up to which all is included; nothing is known of absent groups.
    pub groups: BTreeMap<GroupId, LogIndex>,
    /// For each stream of other data centres, the version up to which all is included.
    pub versions: BTreeMap<(ShardId, AggregatorId), Version>,
}

impl Basis {
    /// Changes of edges that totals have yet to follow.
    pub fn waiting(&self) -> u64 {
        self.graph_known.saturating_sub(self.graph.0)
    }

    /// The same, combined with the stands of others, each about ranges of its own.
    pub fn with<'a>(mut self, stands: impl IntoIterator<Item = &'a Stands>) -> Basis {
        for Stands { of_all, by_shard } in stands {
            (self.ledger, self.graph) = (self.ledger.min(of_all.ledger), self.graph.min(of_all.graph));
            let told: BTreeMap<GroupId, LogIndex> = of_all.groups.iter().map(|&(group, all, _)| (group, all)).collect();
            let both = |(group, all): (GroupId, LogIndex)| Some((group, all.min(*told.get(&group)?)));
            self.groups = std::mem::take(&mut self.groups).into_iter().filter_map(both).collect();
            self.versions.retain(|(shard, _), _| !by_shard.contains_key(shard));
            for (&shard, of_shard) in by_shard {
                self.versions.extend(of_shard.versions.iter().map(|&(origin, all, _)| ((shard, origin), all)));
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand::{OfShard, Stand};
    use tidemark_types::ids::DcId;

    #[test]
    fn of_what_several_tell_the_basis_is_what_each_has_at_least() {
        let group = |group| GroupId { dc: DcId(0), group, incarnation: 1 };
        let origin = AggregatorId { dc: DcId(1), seat: 0 };
        let other = AggregatorId { dc: DcId(2), seat: 0 };
        let at = |version| Version { epoch: 1, version };
        let here = Basis {
            ledger: LogIndex(100),
            graph_known: 9,
            graph: (9, 0),
            groups: [(group(0), LogIndex(50)), (group(1), LogIndex(7)), (group(2), LogIndex(5))].into(),
            versions: [((ShardId(0), origin), at(4)), ((ShardId(1), other), at(9))].into(),
        };
        let of_all = Stand {
            ledger: LogIndex(90),
            graph: (7, 30),
            groups: vec![
                (group(0), LogIndex(60), LogIndex(61)),
                (group(1), LogIndex(3), LogIndex(8)),
                (group(3), LogIndex(1), LogIndex(1)),
            ],
            ..Stand::default()
        };
        let of_shard = OfShard { versions: vec![(origin, at(2), at(5))], ..OfShard::default() };
        let basis = here.clone().with(&[Stands { of_all, by_shard: [(ShardId(1), of_shard)].into() }]);
        assert_eq!((basis.ledger, basis.graph, basis.waiting()), (LogIndex(90), (7, 30), 2));
        assert_eq!(basis.groups, [(group(0), LogIndex(50)), (group(1), LogIndex(3))].into());
        assert_eq!(basis.versions, [((ShardId(0), origin), at(4)), ((ShardId(1), origin), at(2))].into());
        assert_eq!(here.clone().with(&[]), here);
    }
}
