//! The members of the cluster: the settings that all its processes must have in common.

use tidemark_proto::ids::{AggregatorId, DcId};
use tidemark_proto::limits::{AGGREGATORS_MAX, DCS_MAX};
use tidemark_proto::placement::Placement;
use tidemark_transport::HostPort;
use tidemark_transport::certs::FURTHER_AGGREGATORS;

/// Each aggregator that a data centre may have is one that a certificate can name.
const _: () = assert!(FURTHER_AGGREGATORS.len() + 1 == AGGREGATORS_MAX as usize);

/// A data centre of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataCentre {
    pub name: String,
    /// Where its aggregators are reached, in the order of their seats: 1 to [`AGGREGATORS_MAX`].
    pub aggregators: Vec<HostPort>,
    /// Where its nodes are reached.
    pub nodes: Vec<HostPort>,
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
    /// Data centres with an aggregator that votes in the ledger.
    pub voters: Vec<DcId>,
    /// The voter that leads whenever it can.
    pub leader: DcId,
}

/// Why a layout cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    #[error("{dcs} data centres: 1 to {DCS_MAX} allowed")]
    DataCentres { dcs: usize },
    #[error("{aggregators} aggregators in {dc:?}: 1 to {AGGREGATORS_MAX} allowed")]
    Aggregators { dc: String, aggregators: usize },
    #[error("two data centres are named {0:?}")]
    DuplicateName(String),
    #[error("the address {0} is used twice")]
    DuplicateAddress(HostPort),
    #[error("voter {0}: there is no such data centre")]
    UnknownVoter(u16),
    #[error("{voters} voters: an odd number of distinct data centres is needed")]
    Voters { voters: usize },
    #[error("the leader {0:?} is not a voter")]
    Leader(String),
    #[error("no data centre is named {0:?}")]
    UnknownDc(String),
    #[error("there is no aggregator {0:?}: a data centre's name, or one with /second to /eighth, is expected")]
    UnknownAggregator(String),
}

impl Cluster {
    /// Checks what the types do not express.
    pub fn check(&self) -> Result<(), ClusterError> {
        if self.dcs.is_empty() || self.dcs.len() > usize::from(DCS_MAX) {
            return Err(ClusterError::DataCentres { dcs: self.dcs.len() });
        }
        self.check_names()?;
        self.check_aggregators()?;
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

    fn check_aggregators(&self) -> Result<(), ClusterError> {
        let is_wrong = |dc: &&DataCentre| !(1..=usize::from(AGGREGATORS_MAX)).contains(&dc.aggregators.len());
        let error =
            |dc: &DataCentre| ClusterError::Aggregators { dc: dc.name.clone(), aggregators: dc.aggregators.len() };
        self.dcs.iter().find(is_wrong).map_or(Ok(()), |dc| Err(error(dc)))
    }

    fn check_addresses(&self) -> Result<(), ClusterError> {
        let all = self.dcs.iter().flat_map(|dc| dc.aggregators.iter().chain(&dc.nodes));
        let mut addresses: Vec<&HostPort> = all.filter(|address| address.port() != 0).collect();
        addresses.sort_unstable();
        match addresses.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(ClusterError::DuplicateAddress(pair[0].clone())),
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

    /// The name with the era, which the files and peers of the present cluster have.
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

    /// All aggregators by their numbers: the first of each data centre, then the second ones, and so on.
    pub fn aggregators(&self) -> impl Iterator<Item = AggregatorId> {
        let of_seat = |seat| self.ids().map(move |dc| AggregatorId { dc, seat });
        (0..AGGREGATORS_MAX).flat_map(of_seat).filter(|&id| self.address_of(id).is_some())
    }

    /// How many aggregators a data centre has, 0 where there is no such data centre. Their seats are those below.
    pub fn seats(&self, dc: DcId) -> u8 {
        AggregatorId::all(dc).filter(|&id| self.address_of(id).is_some()).count() as u8
    }

    /// The same of every data centre.
    pub fn seats_by_dc(&self) -> Vec<u8> {
        self.ids().map(|dc| self.seats(dc)).collect()
    }

    /// Whether a data centre has more than one aggregator.
    pub fn is_paired(&self, dc: DcId) -> bool {
        self.seats(dc) > 1
    }

    /// Where an aggregator is reached.
    pub fn address_of(&self, aggregator: AggregatorId) -> Option<&HostPort> {
        self.dcs.get(usize::from(aggregator.dc.0))?.aggregators.get(usize::from(aggregator.seat))
    }

    /// An aggregator, for people: its data centre, and of those but the first `/second`, `/third` and so on.
    pub fn aggregator_name(&self, aggregator: AggregatorId) -> String {
        let dc = self.name_of(aggregator.dc).unwrap_or("?");
        let further = usize::from(aggregator.seat).checked_sub(1).and_then(|further| FURTHER_AGGREGATORS.get(further));
        further.map_or_else(|| dc.to_owned(), |further| format!("{dc}/{further}"))
    }

    /// The aggregator of such a name; also one that the layout no longer has.
    pub fn aggregator(&self, name: &str) -> Result<AggregatorId, ClusterError> {
        let (dc, seat) = seat_of_name(name);
        let unknown = |_| ClusterError::UnknownAggregator(name.to_owned());
        self.dc(dc).map(|dc| AggregatorId { dc, seat }).map_err(unknown)
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

/// The data centre and the seat that an aggregator's name says. No data centre has a name with a slash in it.
fn seat_of_name(name: &str) -> (&str, u8) {
    let further = |(dc, own): (_, &str)| {
        let further = FURTHER_AGGREGATORS.iter().position(|further| *further == own)?;
        Some((dc, further as u8 + 1))
    };
    name.split_once('/').and_then(further).unwrap_or((name, 0))
}

/// A cluster's name with its era, of which the first is not said.
pub fn with_era(name: &str, era: u64) -> String {
    if era == 0 { name.to_owned() } else { format!("{name}, era {era}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn at(port: u16) -> HostPort {
        SocketAddr::from(([127, 0, 0, 1], port)).into()
    }

    fn cluster(dcs: u16) -> Cluster {
        let dc = |i: u16| DataCentre {
            name: format!("dc-{i}"),
            aggregators: vec![at(7000 + i)],
            nodes: vec![at(8000 + i)],
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
        address.dcs[1].aggregators = vec![address.dcs[0].nodes[0].clone()];
        assert_eq!(address.check(), Err(ClusterError::DuplicateAddress(address.dcs[0].nodes[0].clone())));
        address.dcs[1].aggregators = vec![at(7009), address.dcs[0].aggregators[0].clone()];
        assert_eq!(address.check(), Err(ClusterError::DuplicateAddress(address.dcs[0].aggregators[0].clone())));
    }

    #[test]
    fn a_data_centre_has_one_aggregator_to_as_many_as_are_allowed() {
        let with = |aggregators: u16| {
            let mut cluster = cluster(2);
            cluster.dcs[1].aggregators = (0..aggregators).map(|seat| at(7100 + seat)).collect();
            cluster.check()
        };
        let most = u16::from(AGGREGATORS_MAX);
        assert_eq!((with(1), with(2), with(most)), (Ok(()), Ok(()), Ok(())));
        for wrong in [0, most + 1] {
            let dc = "dc-1".into();
            let aggregators = usize::from(wrong);
            assert_eq!(with(wrong), Err(ClusterError::Aggregators { dc, aggregators }));
        }
    }

    #[test]
    fn each_aggregator_is_a_member_of_its_own_whose_number_a_pair_elsewhere_does_not_change() {
        let mut pair = cluster(3);
        pair.dcs[1].aggregators.push(at(7100));
        let all: Vec<AggregatorId> = pair.aggregators().collect();
        let names: Vec<String> = all.iter().map(|&aggregator| pair.aggregator_name(aggregator)).collect();
        assert_eq!(names, ["dc-0", "dc-1", "dc-2", "dc-1/second"]);
        for (&aggregator, name) in all.iter().zip(&names) {
            assert_eq!(Cluster::of_member(Cluster::member(aggregator)), Some(aggregator));
            assert_eq!(pair.aggregator(name), Ok(aggregator));
        }
        assert_eq!(Cluster::member(DcId(2)), 3);
        for wrong in ["dc-9/second", "dc-0/first", "second", "dc-0/ninth", "dc-0/second/third"] {
            assert_eq!(pair.aggregator(wrong), Err(ClusterError::UnknownAggregator(wrong.into())));
        }
    }

    #[test]
    fn aggregators_come_by_their_numbers_however_many_each_data_centre_has() {
        let mut several = cluster(3);
        several.dcs[0].aggregators.push(at(7100));
        several.dcs[2].aggregators.extend((1..u16::from(AGGREGATORS_MAX)).map(|seat| at(7200 + seat)));
        assert_eq!(several.check(), Ok(()));
        assert_eq!(several.seats_by_dc(), [2, 1, AGGREGATORS_MAX]);
        assert_eq!((several.seats(DcId(2)), several.seats(DcId(3))), (AGGREGATORS_MAX, 0));
        assert_eq!([0, 1, 2].map(|dc| several.is_paired(DcId(dc))), [true, false, true]);
        let all: Vec<AggregatorId> = several.aggregators().collect();
        assert!(all.is_sorted_by_key(|&id| u16::from(id)), "{all:?}");
        let names: Vec<String> = all.iter().map(|&id| several.aggregator_name(id)).collect();
        let further = ["third", "fourth", "fifth", "sixth", "seventh", "eighth"].map(|name| format!("dc-2/{name}"));
        let first = ["dc-0", "dc-1", "dc-2", "dc-0/second", "dc-2/second"].map(str::to_owned);
        assert_eq!(names, [&first[..], &further[..]].concat());
        for (&id, name) in all.iter().zip(&names) {
            assert_eq!(several.aggregator(name), Ok(id));
        }
        let eighth = AggregatorId { dc: DcId(2), seat: 7 };
        assert_eq!(several.address_of(eighth), Some(&at(7207)));
        let gone = AggregatorId { dc: DcId(1), seat: 2 };
        assert_eq!((several.aggregator("dc-1/third"), several.address_of(gone)), (Ok(gone), None));
    }
}
