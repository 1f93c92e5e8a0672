//! Which nodes of a data centre hold which group's log. A data centre has as many groups as nodes.

/// Replicas of a log in a data centre that has enough nodes and does not say otherwise: one may be lost.
pub const REPLICAS_DEFAULT: u16 = 3;
/// Most replicas of a log: each further one costs every commit and protects little more.
pub const REPLICAS_MAX: u16 = 5;

/// Replicas of the logs of a data centre that does not say how many.
pub fn replicas_default(nodes: u16) -> u16 {
    if nodes < REPLICAS_DEFAULT { 1 } else { REPLICAS_DEFAULT }
}

/// The nodes that hold a group's log; the first leads whenever it can.
pub fn holders(group: u16, nodes: u16, replicas: u16) -> impl Iterator<Item = u16> {
    (0..replicas.min(nodes)).map(move |n| (group + n) % nodes)
}

/// The groups whose log a node holds; the first it leads whenever it can.
pub fn groups_of(node: u16, nodes: u16, replicas: u16) -> impl Iterator<Item = u16> {
    (0..replicas.min(nodes)).map(move |n| (node + nodes - n) % nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaders_are_spread_and_every_group_is_on_as_many_nodes_as_wanted() {
        for (nodes, replicas) in [(1, 1), (2, 1), (3, 3), (4, 3), (7, 5), (5, 1)] {
            let leaders: Vec<u16> = (0..nodes).filter_map(|group| holders(group, nodes, replicas).next()).collect();
            assert_eq!(leaders, (0..nodes).collect::<Vec<_>>());
            for node in 0..nodes {
                for group in 0..nodes {
                    let holds = holders(group, nodes, replicas).any(|holder| holder == node);
                    assert_eq!(holds, groups_of(node, nodes, replicas).any(|held| held == group));
                }
                assert_eq!(groups_of(node, nodes, replicas).count(), usize::from(replicas));
            }
        }
    }
}
