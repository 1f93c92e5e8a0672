//! Which nodes of a data centre hold which group's log.
//!
//! A data centre has as many groups as it ever had nodes, and their numbers are for ever. A node that was taken away leaves an
//! empty place, which is passed over: the groups that began there are led by the next node that is present.

use std::collections::BTreeSet;

/// Replicas of a log in a data centre that has enough nodes and does not say otherwise: one may be lost.
pub const REPLICAS_DEFAULT: u16 = 3;
/// Most replicas of a log: each further one costs every commit and protects little more.
pub const REPLICAS_MAX: u16 = 5;

/// The default number of replicas of each log, for a data centre that has had this number of nodes.
pub fn replicas_default(nodes: u16) -> u16 {
    if nodes < REPLICAS_DEFAULT { 1 } else { REPLICAS_DEFAULT }
}

/// Where the logs of a data centre's groups are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    nodes: u16,
    gone: BTreeSet<u16>,
    replicas: u16,
}

/// Why nodes cannot be taken away like that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    #[error("there are {nodes} nodes, numbered from 0")]
    NoNode { node: u16, nodes: u16 },
    #[error("it is listed twice")]
    Twice { node: u16 },
    #[error("no node can be taken away while each group's log is on one node: its log would be lost")]
    Alone { node: u16 },
    #[error("{present} nodes would be left, and each group's log is on {replicas}")]
    TooFew { present: u16, replicas: u16 },
}

impl Placement {
    /// Places logs of `replicas` nodes each on the nodes below `nodes` that are not gone.
    ///
    /// # Errors
    /// [`PlacementError`], only if a node is gone. There are at most as many replicas as nodes.
    pub fn new(nodes: u16, gone: &[u16], replicas: u16) -> Result<Placement, PlacementError> {
        let mut all = BTreeSet::new();
        for &node in gone {
            match () {
                () if node >= nodes => return Err(PlacementError::NoNode { node, nodes }),
                () if !all.insert(node) => return Err(PlacementError::Twice { node }),
                () if replicas == 1 => return Err(PlacementError::Alone { node }),
                () => {}
            }
        }
        let present = nodes - all.len() as u16;
        if !all.is_empty() && present < replicas {
            return Err(PlacementError::TooFew { present, replicas });
        }
        Ok(Placement { nodes, gone: all, replicas: replicas.min(nodes) })
    }

    /// Nodes that the data centre ever had, and so its groups.
    pub fn nodes(&self) -> u16 {
        self.nodes
    }

    /// Nodes that hold each group's log.
    pub fn replicas(&self) -> u16 {
        self.replicas
    }

    /// Whether a node was taken away.
    pub fn is_gone(&self, node: u16) -> bool {
        self.gone.contains(&node)
    }

    /// The nodes that are there.
    pub fn present(&self) -> impl Iterator<Item = u16> + '_ {
        (0..self.nodes).filter(|node| !self.is_gone(*node))
    }

    /// The nodes that hold a group's log; the first leads whenever it can.
    pub fn holders(&self, group: u16) -> impl Iterator<Item = u16> + '_ {
        let walk = (0..self.nodes).map(move |n| (group + n) % self.nodes);
        walk.filter(|node| !self.is_gone(*node)).take(self.replicas.into())
    }

    /// The groups with logs on a node: none if the node is gone, else its own first, which it leads whenever it can.
    pub fn groups_of(&self, node: u16) -> impl Iterator<Item = u16> + '_ {
        let walk = (0..self.nodes).map(move |n| (node + self.nodes - n) % self.nodes);
        let mut before = 0;
        walk.take_while(move |group| {
            // Present nodes that a walk from the group's number meets before this one.
            before += u16::from(*group != node && !self.is_gone(*group));
            before < self.replicas && !self.is_gone(node)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn placement(nodes: u16, gone: &[u16], replicas: u16) -> Placement {
        Placement::new(nodes, gone, replicas).unwrap()
    }

    #[test]
    fn leaders_are_spread_and_every_group_is_on_as_many_nodes_as_wanted() {
        for (nodes, replicas) in [(1, 1), (2, 1), (3, 3), (4, 3), (7, 5), (5, 1)] {
            let placement = placement(nodes, &[], replicas);
            let leaders: Vec<u16> = (0..nodes).filter_map(|group| placement.holders(group).next()).collect();
            assert_eq!(leaders, (0..nodes).collect::<Vec<_>>());
            for node in 0..nodes {
                assert_eq!(placement.groups_of(node).count(), usize::from(replicas));
                assert_eq!(placement.groups_of(node).next(), Some(node));
            }
        }
    }

    #[test]
    fn the_groups_of_a_node_that_is_gone_are_led_by_the_next_one() {
        let placement = placement(5, &[1, 2], 3);
        let holders = |group| placement.holders(group).collect::<Vec<_>>();
        assert_eq!([0, 1, 2, 3, 4].map(holders), [[0, 3, 4], [3, 4, 0], [3, 4, 0], [3, 4, 0], [4, 0, 3]]);
        assert_eq!(placement.groups_of(1).count(), 0);
        assert_eq!(placement.groups_of(3).collect::<Vec<_>>(), [3, 2, 1, 0, 4]);
    }

    #[test]
    fn who_takes_away_what_cannot_be_is_told_why() {
        let refused = |nodes, gone: &[u16], replicas| Placement::new(nodes, gone, replicas).unwrap_err();
        assert_eq!(refused(4, &[4], 3), PlacementError::NoNode { node: 4, nodes: 4 });
        assert_eq!(refused(5, &[2, 2], 3), PlacementError::Twice { node: 2 });
        assert_eq!(refused(4, &[1], 1), PlacementError::Alone { node: 1 });
        assert_eq!(refused(4, &[1, 0], 3), PlacementError::TooFew { present: 2, replicas: 3 });
        assert_eq!(refused(3, &[1, 0, 2], 3), PlacementError::TooFew { present: 0, replicas: 3 });
    }

    proptest! {
        #[test]
        fn every_group_is_on_as_many_present_nodes_as_wanted_and_both_ways_say_the_same(
            nodes in 3_u16..40, gone in prop::collection::btree_set(0_u16..40, 0..10), five in any::<bool>(),
        ) {
            let gone: Vec<u16> = gone.into_iter().filter(|node| *node < nodes).collect();
            let replicas = if five { 5 } else { 3 };
            let Ok(placement) = Placement::new(nodes, &gone, replicas) else { return Ok(()) };
            for group in 0..nodes {
                let holders: BTreeSet<u16> = placement.holders(group).collect();
                prop_assert_eq!(holders.len(), usize::from(replicas.min(nodes)));
                prop_assert!(holders.iter().all(|node| *node < nodes && !gone.contains(node)));
                for node in 0..nodes {
                    let held = placement.groups_of(node).filter(|held| *held == group).count();
                    prop_assert_eq!(held, usize::from(holders.contains(&node)), "node {} of group {}", node, group);
                }
            }
        }
    }
}
