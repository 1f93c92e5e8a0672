//! Who belongs to the cluster: what every process of it must be told alike.

use std::net::SocketAddr;
use tidemark_proto::ids::{AggregatorId, DcId};
use tidemark_proto::limits::DCS_MAX;
use tidemark_proto::placement::Placement;
use tidemark_transport::certs::SECOND_AGGREGATOR;

/// One data centre.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataCentre {
    pub name: String,
    /// Where its aggregator listens.
    pub aggregator: SocketAddr,
    /// Where the second of a pair of aggregators listens.
    pub second: Option<SocketAddr>,
    /// Where its nodes listen.
    pub nodes: Vec<SocketAddr>,
    /// Which of them hold which group's log.
    pub placement: Placement,
}

/// The cluster's layout. A data centre's [`DcId`] is its index here, for ever: append, never reorder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub name: String,
    /// 0 at first; another one each time that the whole cluster is restored from images.
    pub era: u64,
    pub dcs: Vec<DataCentre>,
    /// Data centres whose aggregators vote in the ledger.
    pub voters: Vec<DcId>,
    /// The voter that leads whenever it can.
    pub leader: DcId,
}

/// Why a layout cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    #[error("{dcs} data centres: 1 to {DCS_MAX} allowed")]
    DataCentres { dcs: usize },
    #[error("two data centres are named {0:?}")]
    DuplicateName(String),
    #[error("the address {0} is used twice")]
    DuplicateAddress(SocketAddr),
    #[error("voter {0}: there is no such data centre")]
    UnknownVoter(u16),
    #[error("{voters} voters: an odd number of distinct data centres is needed")]
    Voters { voters: usize },
    #[error("the leader {0:?} is not a voter")]
    Leader(String),
    #[error("no data centre is named {0:?}")]
    UnknownDc(String),
    #[error("there is no aggregator {0:?}: a data centre's name, or one with /second, is expected")]
    UnknownAggregator(String),
}

impl Cluster {
    /// Checks what the types do not express.
    pub fn check(&self) -> Result<(), ClusterError> {
        if self.dcs.is_empty() || self.dcs.len() > usize::from(DCS_MAX) {
            return Err(ClusterError::DataCentres { dcs: self.dcs.len() });
        }
        self.check_names()?;
        self.check_addresses()?;
        self.check_voters()
    }

    fn check_names(&self) -> Result<(), ClusterError> {
        let mut names: Vec<&str> = self.dcs.iter().map(|dc| dc.name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(ClusterError::DuplicateName(pair[0].to_owned())),
            None => Ok(()),
        }
    }

    fn check_addresses(&self) -> Result<(), ClusterError> {
        let all = self.dcs.iter().flat_map(|dc| std::iter::once(&dc.aggregator).chain(&dc.second).chain(&dc.nodes));
        let mut addresses: Vec<&SocketAddr> = all.filter(|address| address.port() != 0).collect();
        addresses.sort_unstable();
        match addresses.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(ClusterError::DuplicateAddress(*pair[0])),
            None => Ok(()),
        }
    }

    fn check_voters(&self) -> Result<(), ClusterError> {
        if let Some(unknown) = self.voters.iter().find(|voter| usize::from(voter.0) >= self.dcs.len()) {
            return Err(ClusterError::UnknownVoter(unknown.0));
        }
        let mut distinct = self.voters.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() != self.voters.len() || distinct.len().is_multiple_of(2) {
            return Err(ClusterError::Voters { voters: self.voters.len() });
        }
        if !self.voters.contains(&self.leader) {
            return Err(ClusterError::Leader(self.name_of(self.leader).unwrap_or("?").to_owned()));
        }
        Ok(())
    }

    /// The name with the era: whose files and peers are of this cluster as it is now.
    pub fn with_era(&self) -> String {
        with_era(&self.name, self.era)
    }

    pub fn dc(&self, name: &str) -> Result<DcId, ClusterError> {
        let index = self.dcs.iter().position(|dc| dc.name == name);
        index.map(|index| DcId(index as u16)).ok_or_else(|| ClusterError::UnknownDc(name.to_owned()))
    }

    pub fn name_of(&self, dc: DcId) -> Option<&str> {
        self.dcs.get(usize::from(dc.0)).map(|dc| dc.name.as_str())
    }

    pub fn ids(&self) -> impl Iterator<Item = DcId> {
        (0..self.dcs.len() as u16).map(DcId)
    }

    /// All aggregators: the first of each data centre, then the second ones.
    pub fn aggregators(&self) -> impl Iterator<Item = AggregatorId> {
        let seconds = self.ids().filter(|&dc| self.is_paired(dc)).map(|dc| AggregatorId::from(dc).partner());
        self.ids().map(AggregatorId::from).chain(seconds)
    }

    /// Whether a data centre has a pair of aggregators.
    pub fn is_paired(&self, dc: DcId) -> bool {
        self.dcs.get(usize::from(dc.0)).is_some_and(|dc| dc.second.is_some())
    }

    /// Where an aggregator listens.
    pub fn address_of(&self, aggregator: AggregatorId) -> Option<SocketAddr> {
        let dc = self.dcs.get(usize::from(aggregator.dc.0))?;
        if aggregator.is_second() { dc.second } else { Some(dc.aggregator) }
    }

    /// An aggregator, for people: its data centre, and `/second`.
    pub fn aggregator_name(&self, aggregator: AggregatorId) -> String {
        let dc = self.name_of(aggregator.dc).unwrap_or("?");
        if aggregator.is_second() { format!("{dc}/{SECOND_AGGREGATOR}") } else { dc.to_owned() }
    }

    /// The aggregator of such a name; also a second one that the layout no longer has.
    pub fn aggregator(&self, name: &str) -> Result<AggregatorId, ClusterError> {
        let (dc, seat) = match name.split_once('/') {
            Some((dc, SECOND_AGGREGATOR)) => (self.dc(dc), 1),
            _ => (self.dc(name), 0),
        };
        let unknown = |_| ClusterError::UnknownAggregator(name.to_owned());
        dc.map(|dc| AggregatorId { dc, seat }).map_err(unknown)
    }

    /// The member number of an aggregator in the ledger's Raft group.
    pub fn member(aggregator: impl Into<AggregatorId>) -> u64 {
        u64::from(u16::from(aggregator.into())) + 1
    }

    /// The aggregator that is a member of the ledger's Raft group.
    pub fn of_member(member: u64) -> Option<AggregatorId> {
        AggregatorId::try_from(u16::try_from(member.checked_sub(1)?).ok()?).ok()
    }
}

/// A cluster's name with its era, of which the first is not said.
pub fn with_era(name: &str, era: u64) -> String {
    if era == 0 { name.to_owned() } else { format!("{name}, era {era}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(dcs: u16) -> Cluster {
        let dc = |i: u16| DataCentre {
            name: format!("dc-{i}"),
            aggregator: SocketAddr::from(([127, 0, 0, 1], 7000 + i)),
            second: None,
            nodes: vec![SocketAddr::from(([127, 0, 0, 1], 8000 + i))],
            placement: Placement::new(1, &[], 1).unwrap(),
        };
        Cluster { name: "t".into(), era: 0, dcs: (0..dcs).map(dc).collect(), voters: vec![DcId(0)], leader: DcId(0) }
    }

    #[test]
    fn impossible_layouts_are_refused_with_the_value() {
        assert_eq!(cluster(3).check(), Ok(()));
        assert_eq!(cluster(0).check(), Err(ClusterError::DataCentres { dcs: 0 }));
        let twice = Cluster { dcs: [cluster(1).dcs, cluster(1).dcs].concat(), ..cluster(1) };
        assert_eq!(twice.check(), Err(ClusterError::DuplicateName("dc-0".into())));
        let even = Cluster { voters: vec![DcId(0), DcId(1)], ..cluster(3) };
        assert_eq!(even.check(), Err(ClusterError::Voters { voters: 2 }));
        let unknown = Cluster { voters: vec![DcId(9)], ..cluster(3) };
        assert_eq!(unknown.check(), Err(ClusterError::UnknownVoter(9)));
        let leader = Cluster { leader: DcId(2), ..cluster(3) };
        assert_eq!(leader.check(), Err(ClusterError::Leader("dc-2".into())));
        let mut address = cluster(2);
        address.dcs[1].aggregator = address.dcs[0].nodes[0];
        assert_eq!(address.check(), Err(ClusterError::DuplicateAddress(address.dcs[0].nodes[0])));
        address.dcs[1].second = Some(address.dcs[0].aggregator);
        address.dcs[1].aggregator = SocketAddr::from(([127, 0, 0, 1], 7009));
        assert_eq!(address.check(), Err(ClusterError::DuplicateAddress(address.dcs[0].aggregator)));
    }

    #[test]
    fn each_aggregator_is_a_member_of_its_own_whose_number_a_pair_elsewhere_does_not_change() {
        let mut pair = cluster(3);
        pair.dcs[1].second = Some(SocketAddr::from(([127, 0, 0, 1], 7100)));
        let all: Vec<AggregatorId> = pair.aggregators().collect();
        let names: Vec<String> = all.iter().map(|&aggregator| pair.aggregator_name(aggregator)).collect();
        assert_eq!(names, ["dc-0", "dc-1", "dc-2", "dc-1/second"]);
        for (&aggregator, name) in all.iter().zip(&names) {
            assert_eq!(Cluster::of_member(Cluster::member(aggregator)), Some(aggregator));
            assert_eq!(pair.aggregator(name), Ok(aggregator));
        }
        assert_eq!(Cluster::member(DcId(2)), 3);
        for wrong in ["dc-9/second", "dc-0/first", "second"] {
            assert_eq!(pair.aggregator(wrong), Err(ClusterError::UnknownAggregator(wrong.into())));
        }
    }
}
