//! The voters of the ledger, while it runs: at the leader an operator adds a voter, removes a voter, or gives the vote of one member to
//! another.

use crate::cluster::Cluster;
use crate::handle::Aggregator;
use std::collections::BTreeSet;
use std::time::Duration;
use tidemark_consensus::raft::{ChangeError, Metrics, ProposeError, ReadError};
use tidemark_proto::ids::AggregatorId;

/// A member may vote once it lacks no more entries than this: an election must not wait for its disk.
pub const VOTER_LAG_ENTRIES_MAX: u64 = 1_000;
/// Voters that an operator may add up to. Each further pair makes every commit wait for one more disk and stands for one more data centre
/// that may fail; nine stand for four.
pub const VOTERS_MAX: usize = 9;
/// How long a change waits for one that is under way. The leader's own are over in less while a majority answers.
const CHANGE_PATIENCE: Duration = Duration::from_secs(3);

/// A member of the ledger, as this one knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStanding {
    pub id: AggregatorId,
    pub votes: bool,
    /// It voted before it lost its log, and votes again once it has it.
    pub returns: bool,
    /// Whether it can be reached from here.
    pub connected: bool,
    /// Entries that it is not known to have; only the leader knows.
    pub behind: Option<u64>,
}

/// An operator's change of the voters. A member without a vote stays a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoterChange {
    Add(AggregatorId),
    Remove(AggregatorId),
    Replace { leaves: AggregatorId, joins: AggregatorId },
}

fn elsewhere(leader: Option<&str>) -> String {
    match leader {
        Some(leader) => format!("{leader} leads the ledger: ask that aggregator"),
        None => "no leader of the ledger is known here: ask again, or at another aggregator".to_owned(),
    }
}

/// Why the voters were not changed. Nothing was, unless the text says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VoterError {
    #[error("{}", elsewhere(leader.as_deref()))]
    NotLeader { leader: Option<String> },
    #[error("{0} was given up with `tidemark dc forget`: it never votes again")]
    Forgotten(String),
    #[error("{0} is no member of the ledger yet")]
    NoMember(String),
    #[error("{0} votes already")]
    Votes(String),
    #[error("{0} does not vote")]
    VotesNot(String),
    #[error("{0} is the only voter: add another one first")]
    Last(String),
    #[error("{voter} votes already in that data centre: one of its aggregators votes")]
    Paired { voter: String },
    #[error("{voters} members vote already: {VOTERS_MAX} at most")]
    Full { voters: usize },
    #[error("{0} cannot be reached from here: it may vote when it can")]
    Unreached(String),
    #[error("{name} lacks {behind} entries of the log: it may vote when it lacks {limit} or less")]
    Behind { name: String, behind: u64, limit: u64 },
    #[error(
        "{reached} of {voters} voters, before the change or after it, can be reached from here: a majority is needed"
    )]
    Majority { reached: usize, voters: usize },
    #[error("another change of the ledger's members is under way: ask again when it is over")]
    UnderWay,
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Note(#[from] ProposeError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl VoterChange {
    fn joins(self) -> Option<AggregatorId> {
        match self {
            VoterChange::Add(joins) | VoterChange::Replace { joins, .. } => Some(joins),
            VoterChange::Remove(_) => None,
        }
    }

    fn leaves(self) -> Option<AggregatorId> {
        match self {
            VoterChange::Remove(leaves) | VoterChange::Replace { leaves, .. } => Some(leaves),
            VoterChange::Add(_) => None,
        }
    }
}

impl Aggregator {
    /// All aggregators of the layout as members of the ledger. Must not be called by a holder of its lock.
    pub fn members(&self) -> Vec<MemberStanding> {
        let metrics = self.raft();
        let standing = |id: AggregatorId| MemberStanding {
            id,
            votes: metrics.voters.contains(&Cluster::member(id)),
            returns: self.returns(&metrics, id),
            connected: self.reaches_aggregator(id),
            behind: behind(&metrics, Cluster::member(id)),
        };
        self.cluster().aggregators().map(standing).collect()
    }

    /// Changes the voters. Removing a member that is to vote again takes that back. Returns when both steps of the change are committed. To
    /// be asked where the ledger is led.
    pub async fn change_voters(&self, change: VoterChange) -> Result<(), VoterError> {
        // The state that is checked below must not be changed meanwhile by the supervisor of the members.
        let changing = tokio::time::timeout(CHANGE_PATIENCE, self.changing().lock()).await;
        let _changing = changing.map_err(|_| VoterError::UnderWay)?;
        let membership = self.membership();
        // A member that does not lead names the leader.
        let metrics = membership.caught_up().await.map_err(|error| match error {
            ReadError::NotLeader { leader } => self.not_leader(leader),
            other @ (ReadError::NoQuorum(_) | ReadError::Stopped) => VoterError::Read(other),
        })?;
        if let VoterChange::Remove(leaves) = change
            && metrics.is_leader
            && self.returns(&metrics, leaves)
        {
            return Ok(membership.note_return(leaves, false).await?);
        }
        let voters = self.voters_after(&metrics, change)?;
        if let Some(leaves) = change.leaves() {
            // First, so that the next leader does not bring it back.
            membership.note_return(leaves, false).await?;
        }
        let names = self.names_of(&voters);
        tracing::info!(?change, ?names, "the ledger's voters are changed");
        self.raft_node().change_voters(voters, true).await?;
        tracing::info!(?names, "the ledger's voters have changed");
        Ok(())
    }

    fn returns(&self, metrics: &Metrics, id: AggregatorId) -> bool {
        !metrics.voters.contains(&Cluster::member(id)) && self.with_ledger(|ledger| ledger.is_returning(id))
    }

    /// The voters of the ledger, as far as they are known here. Asks no lock.
    pub fn voters(&self) -> BTreeSet<AggregatorId> {
        self.raft().voters.iter().copied().filter_map(Cluster::of_member).collect()
    }

    /// The same by name.
    pub fn voter_names(&self) -> Vec<String> {
        self.names_of(&self.raft().voters)
    }

    fn names_of(&self, members: &BTreeSet<u64>) -> Vec<String> {
        let ids = members.iter().copied().filter_map(Cluster::of_member);
        ids.map(|id| self.cluster().aggregator_name(id)).collect()
    }

    fn not_leader(&self, leader: Option<u64>) -> VoterError {
        let leader = leader.and_then(Cluster::of_member).map(|id| self.cluster().aggregator_name(id));
        VoterError::NotLeader { leader }
    }

    /// The voters after a change, if it may be.
    fn voters_after(&self, metrics: &Metrics, change: VoterChange) -> Result<BTreeSet<u64>, VoterError> {
        let name = |id| self.cluster().aggregator_name(id);
        if !metrics.is_leader {
            return Err(self.not_leader(metrics.leader));
        }
        if metrics.changes_to.is_some() {
            return Err(VoterError::UnderWay);
        }
        if let Some(gone) = change.joins().filter(|joins| self.with_ledger(|ledger| ledger.is_forgotten(joins.dc))) {
            return Err(VoterError::Forgotten(name(gone)));
        }
        let reaches = |id| self.reaches_aggregator(id);
        Known { metrics, name: &name, reaches: &reaches }.voters_after(change)
    }
}

/// The state by which a change is judged, on the ledger's leader.
struct Known<'a> {
    metrics: &'a Metrics,
    name: &'a dyn Fn(AggregatorId) -> String,
    reaches: &'a dyn Fn(AggregatorId) -> bool,
}

impl Known<'_> {
    fn voters_after(&self, change: VoterChange) -> Result<BTreeSet<u64>, VoterError> {
        let mut voters = self.metrics.voters.clone();
        if let Some(leaves) = change.leaves()
            && !voters.remove(&Cluster::member(leaves))
        {
            return Err(VoterError::VotesNot((self.name)(leaves)));
        }
        if let Some(joins) = change.joins() {
            self.check_joins(joins, change.leaves())?;
            voters.insert(Cluster::member(joins));
        }
        match change {
            VoterChange::Remove(leaves) if voters.is_empty() => return Err(VoterError::Last((self.name)(leaves))),
            VoterChange::Add(_) if voters.len() > VOTERS_MAX => {
                return Err(VoterError::Full { voters: self.metrics.voters.len() });
            }
            VoterChange::Add(_) | VoterChange::Remove(_) | VoterChange::Replace { .. } => {}
        }
        self.check_majority(&self.metrics.voters)?;
        self.check_majority(&voters)?;
        Ok(voters)
    }

    /// Whether a member may vote, if another one no longer does.
    fn check_joins(&self, joins: AggregatorId, leaves: Option<AggregatorId>) -> Result<(), VoterError> {
        let Known { metrics, name, reaches } = self;
        let member = Cluster::member(joins);
        if metrics.voters.contains(&member) {
            return Err(VoterError::Votes(name(joins)));
        }
        if !metrics.learners.contains(&member) {
            return Err(VoterError::NoMember(name(joins)));
        }
        let stays = |id: &AggregatorId| metrics.voters.contains(&Cluster::member(*id)) && leaves != Some(*id);
        if let Some(voter) = AggregatorId::all(joins.dc).find(stays) {
            return Err(VoterError::Paired { voter: name(voter) });
        }
        if !reaches(joins) {
            return Err(VoterError::Unreached(name(joins)));
        }
        let all = || metrics.last_log.map_or(0, |last| last + 1);
        let behind = behind(metrics, member).unwrap_or_else(all);
        let limit = VOTER_LAG_ENTRIES_MAX;
        if behind > limit {
            return Err(VoterError::Behind { name: name(joins), behind, limit });
        }
        Ok(())
    }

    fn check_majority(&self, voters: &BTreeSet<u64>) -> Result<(), VoterError> {
        let reaches = |&&member: &&u64| Cluster::of_member(member).is_some_and(|id| (self.reaches)(id));
        let reached = voters.iter().filter(reaches).count();
        if 2 * reached <= voters.len() {
            return Err(VoterError::Majority { reached, voters: voters.len() });
        }
        Ok(())
    }
}

/// Entries that a member is not known to have, where that is known.
fn behind(metrics: &Metrics, member: u64) -> Option<u64> {
    let last = metrics.last_log.filter(|_| metrics.is_leader)?;
    let has = metrics.matched.get(&member)?;
    Some(has.map_or(last + 1, |has| last.saturating_sub(has)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_proto::ids::DcId;

    fn id(dc: u16, seat: u8) -> AggregatorId {
        AggregatorId { dc: DcId(dc), seat }
    }

    fn metrics() -> Metrics {
        let member = |dc, seat| Cluster::member(id(dc, seat));
        Metrics {
            is_leader: true,
            last_log: Some(5_000),
            voters: [member(0, 0), member(1, 0), member(2, 0)].into(),
            learners: [member(3, 0), member(0, 1), member(0, 7), member(4, 0), member(2, 1)].into(),
            matched: [
                (member(3, 0), Some(4_990)),
                (member(0, 1), Some(5_000)),
                (member(0, 7), Some(5_000)),
                (member(4, 0), Some(17)),
            ]
            .into(),
            ..Metrics::default()
        }
    }

    fn members(all: &[AggregatorId]) -> BTreeSet<u64> {
        all.iter().map(|&id| Cluster::member(id)).collect()
    }

    fn after(change: VoterChange) -> Result<BTreeSet<u64>, VoterError> {
        judged(&metrics(), change, &[])
    }

    /// Where all but `away` are reached.
    fn judged(metrics: &Metrics, change: VoterChange, away: &[AggregatorId]) -> Result<BTreeSet<u64>, VoterError> {
        let name = |id: AggregatorId| id.to_string();
        let reaches = |id| !away.contains(&id);
        Known { metrics, name: &name, reaches: &reaches }.voters_after(change)
    }

    #[test]
    fn one_voter_is_replaced_at_a_time_by_a_member_that_has_the_log() {
        let replace = |leaves, joins| after(VoterChange::Replace { leaves, joins });
        assert_eq!(replace(id(1, 0), id(3, 0)), Ok(members(&[id(0, 0), id(2, 0), id(3, 0)])));
        assert_eq!(replace(id(0, 0), id(0, 1)), Ok(members(&[id(1, 0), id(2, 0), id(0, 1)])));
        assert_eq!(replace(id(1, 0), id(0, 1)), Err(VoterError::Paired { voter: "0.0".into() }));
        assert_eq!(replace(id(0, 0), id(0, 7)), Ok(members(&[id(1, 0), id(2, 0), id(0, 7)])));
        assert_eq!(replace(id(1, 0), id(0, 7)), Err(VoterError::Paired { voter: "0.0".into() }));
        assert_eq!(replace(id(3, 0), id(0, 1)), Err(VoterError::VotesNot("3.0".into())));
        assert_eq!(replace(id(1, 0), id(2, 0)), Err(VoterError::Votes("2.0".into())));
        assert_eq!(replace(id(1, 0), id(1, 0)), Err(VoterError::Votes("1.0".into())));
        assert_eq!(replace(id(1, 0), id(9, 0)), Err(VoterError::NoMember("9.0".into())));
        let name = "4.0".to_owned();
        let limit = VOTER_LAG_ENTRIES_MAX;
        assert_eq!(replace(id(1, 0), id(4, 0)), Err(VoterError::Behind { name, behind: 4_983, limit }));
        let unknown = replace(id(2, 0), id(2, 1));
        assert!(matches!(unknown, Err(VoterError::Behind { .. })), "nothing was heard of it: {unknown:?}");
    }

    #[test]
    fn a_voter_is_added_or_removed_and_two_of_a_data_centre_never_vote() {
        let all = [id(0, 0), id(1, 0), id(2, 0)];
        assert_eq!(after(VoterChange::Add(id(3, 0))), Ok(members(&[&all[..], &[id(3, 0)]].concat())));
        assert_eq!(after(VoterChange::Add(id(0, 1))), Err(VoterError::Paired { voter: "0.0".into() }));
        let eighth = Metrics { voters: members(&[id(0, 7), id(1, 0), id(2, 0)]), ..metrics() };
        let paired = judged(&eighth, VoterChange::Add(id(0, 1)), &[]);
        assert_eq!(paired, Err(VoterError::Paired { voter: "0.7".into() }));
        assert_eq!(after(VoterChange::Add(id(2, 0))), Err(VoterError::Votes("2.0".into())));
        assert_eq!(after(VoterChange::Add(id(9, 1))), Err(VoterError::NoMember("9.1".into())));
        assert!(matches!(after(VoterChange::Add(id(4, 0))), Err(VoterError::Behind { behind: 4_983, .. })));
        assert_eq!(after(VoterChange::Remove(id(1, 0))), Ok(members(&[id(0, 0), id(2, 0)])));
        assert_eq!(after(VoterChange::Remove(id(3, 0))), Err(VoterError::VotesNot("3.0".into())));
    }

    #[test]
    fn a_ledger_keeps_a_voter_and_gets_no_more_than_so_many() {
        let alone = Metrics { voters: members(&[id(0, 0)]), ..metrics() };
        assert_eq!(judged(&alone, VoterChange::Remove(id(0, 0)), &[]), Err(VoterError::Last("0.0".into())));
        let voters = (10..).take(VOTERS_MAX).map(|dc| Cluster::member(id(dc, 0))).collect();
        let full = Metrics { voters, ..metrics() };
        let voters = VOTERS_MAX;
        assert_eq!(judged(&full, VoterChange::Add(id(3, 0)), &[]), Err(VoterError::Full { voters }));
        let replaced = judged(&full, VoterChange::Replace { leaves: id(10, 0), joins: id(3, 0) }, &[]);
        assert_eq!(replaced.map(|voters| voters.len()), Ok(VOTERS_MAX));
    }

    #[test]
    fn before_a_change_and_after_it_a_majority_is_reached_and_who_joins_too() {
        let majority = |reached, voters| Err(VoterError::Majority { reached, voters });
        let metrics = metrics();
        let all = [id(0, 0), id(1, 0), id(2, 0)];
        let judged = |change, away: &[AggregatorId]| judged(&metrics, change, away);
        assert_eq!(judged(VoterChange::Add(id(3, 0)), &[id(3, 0)]), Err(VoterError::Unreached("3.0".into())));
        assert_eq!(judged(VoterChange::Remove(all[0]), &all[1..2]), majority(1, 2));
        assert_eq!(judged(VoterChange::Remove(all[1]), &all[1..2]).map(|voters| voters.len()), Ok(2));
        let replace = VoterChange::Replace { leaves: all[1], joins: id(3, 0) };
        assert_eq!(judged(replace, &all[1..]), majority(1, 3));
        let two = Metrics { voters: members(&all[..2]), ..metrics.clone() };
        assert_eq!(super::tests::judged(&two, VoterChange::Add(id(3, 0)), &all[1..2]), majority(1, 2));
    }
}
