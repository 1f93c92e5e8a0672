//! What totals in an answer are made of at least: how far the graph and counting had come in them. Totals are derived, and never gossiped; two
//! views that nothing is on its way to show the same totals, and have the same basis.

use crate::stand::Stands;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tidemark_types::ids::{AggregatorId, GroupId, LogIndex};
use tidemark_wire::msg::Version;
use tidemark_wire::shards::ShardId;

/// What totals are made of at least. Where several processes have told of the ranges that they hold, what each of them has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Basis {
    /// The ledger as applied by who answers.
    pub ledger: LogIndex,
    /// Changes of edges that it knows.
    pub graph_known: u64,
    /// So many of them totals have followed, and so many pairs of counters of the next one. Where the graph is on its way to one that is many
    /// changes away, as many as before that.
    pub graph: (u64, u64),
    /// Of each group of the data centre, up to which entry of its log all of it is in; of one that is not there nothing is known.
    pub groups: BTreeMap<GroupId, LogIndex>,
    /// Of each stream of other data centres, up to which version all of it is in.
    pub versions: BTreeMap<(ShardId, AggregatorId), Version>,
}

impl Basis {
    /// Changes of edges that totals have yet to follow.
    pub fn waiting(&self) -> u64 {
        self.graph_known.saturating_sub(self.graph.0)
    }

    /// The same beside what others have told at these stands, each of ranges of its own.
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
