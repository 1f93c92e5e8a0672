//! Who votes in the ledger, while it runs: an operator lets one member vote in the place of another, at the one that leads.

use crate::cluster::Cluster;
use crate::handle::Aggregator;
use std::collections::BTreeSet;
use tidemark_consensus::raft::{ChangeError, Metrics};
use tidemark_proto::ids::AggregatorId;

/// A member may vote once it lacks no more entries than this: an election must not wait for its disk.
pub const VOTER_LAG_ENTRIES_MAX: u64 = 1_000;

/// A member of the ledger, as this one knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStanding {
    pub id: AggregatorId,
    pub votes: bool,
    /// Whether it can be reached from here.
    pub connected: bool,
    /// Entries that it is not known to have; only who leads knows.
    pub behind: Option<u64>,
}

/// Why a voter was not replaced. Nothing was changed, unless the text says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VoterError {
    #[error("{} leads the ledger: ask that one", leader.as_deref().unwrap_or("nobody known here"))]
    NotLeader { leader: Option<String> },
    #[error("{0} is no member of the ledger yet")]
    NoMember(String),
    #[error("{0} votes already")]
    Votes(String),
    #[error("{0} does not vote")]
    VotesNot(String),
    #[error("{voter} votes already in that data centre: one of a pair votes")]
    Paired { voter: String },
    #[error("{name} lacks {behind} entries of the log: it may vote when it lacks {limit} or less")]
    Behind { name: String, behind: u64, limit: u64 },
    #[error("{reached} of {voters} voters would be reached from here: a majority is needed")]
    Majority { reached: usize, voters: usize },
    #[error(transparent)]
    Change(#[from] ChangeError),
}

impl Aggregator {
    /// All aggregators of the layout as members of the ledger.
    pub fn members(&self) -> Vec<MemberStanding> {
        let metrics = self.raft();
        let standing = |id: AggregatorId| MemberStanding {
            id,
            votes: metrics.voters.contains(&Cluster::member(id)),
            connected: self.reaches_aggregator(id),
            behind: behind(&metrics, Cluster::member(id)),
        };
        self.cluster().aggregators().map(standing).collect()
    }

    /// Lets `joins` vote in the place of `leaves`, which stays a member without a vote. Returns when both steps of the change are
    /// committed. To be asked where the ledger is led.
    pub async fn replace_voter(&self, leaves: AggregatorId, joins: AggregatorId) -> Result<(), VoterError> {
        let metrics = self.raft();
        let voters = self.voters_with(&metrics, leaves, joins)?;
        let (from, to) = (self.cluster().aggregator_name(leaves), self.cluster().aggregator_name(joins));
        tracing::info!(%from, %to, "the ledger's voters are changed");
        self.change_voters(voters).await?;
        tracing::info!(%from, %to, "the ledger's voters have changed");
        Ok(())
    }

    /// The voters after a replacement, if it may be.
    fn voters_with(
        &self,
        metrics: &Metrics,
        leaves: AggregatorId,
        joins: AggregatorId,
    ) -> Result<BTreeSet<u64>, VoterError> {
        let name = |id| self.cluster().aggregator_name(id);
        if !metrics.is_leader {
            let leader = metrics.leader.and_then(Cluster::of_member).map(name);
            return Err(VoterError::NotLeader { leader });
        }
        let voters = replaced(metrics, leaves, joins, &name)?;
        let reaches = |&&member: &&u64| Cluster::of_member(member).is_some_and(|id| self.reaches_aggregator(id));
        let reached = voters.iter().filter(reaches).count();
        if 2 * reached <= voters.len() {
            return Err(VoterError::Majority { reached, voters: voters.len() });
        }
        Ok(voters)
    }
}

/// The voters after a replacement, as far as the log's state allows it.
fn replaced(
    metrics: &Metrics,
    leaves: AggregatorId,
    joins: AggregatorId,
    name: &impl Fn(AggregatorId) -> String,
) -> Result<BTreeSet<u64>, VoterError> {
    let (out, into) = (Cluster::member(leaves), Cluster::member(joins));
    if !metrics.voters.contains(&out) {
        return Err(VoterError::VotesNot(name(leaves)));
    }
    if metrics.voters.contains(&into) {
        return Err(VoterError::Votes(name(joins)));
    }
    if !metrics.learners.contains(&into) {
        return Err(VoterError::NoMember(name(joins)));
    }
    if metrics.voters.contains(&Cluster::member(joins.partner())) && joins.partner() != leaves {
        return Err(VoterError::Paired { voter: name(joins.partner()) });
    }
    let (behind, limit) = (behind(metrics, into).unwrap_or(u64::MAX), VOTER_LAG_ENTRIES_MAX);
    if behind > limit {
        return Err(VoterError::Behind { name: name(joins), behind, limit });
    }
    let mut voters = metrics.voters.clone();
    voters.remove(&out);
    voters.insert(into);
    Ok(voters)
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
            learners: [member(3, 0), member(0, 1), member(4, 0), member(2, 1)].into(),
            matched: [(member(3, 0), Some(4_990)), (member(0, 1), Some(5_000)), (member(4, 0), Some(17))].into(),
            ..Metrics::default()
        }
    }

    #[test]
    fn one_voter_is_replaced_at_a_time_by_a_member_that_has_the_log() {
        let name = |id: AggregatorId| id.to_string();
        let replace = |leaves, joins| replaced(&metrics(), leaves, joins, &name);
        let members = |all: &[AggregatorId]| all.iter().map(|&id| Cluster::member(id)).collect::<BTreeSet<u64>>();
        assert_eq!(replace(id(1, 0), id(3, 0)), Ok(members(&[id(0, 0), id(2, 0), id(3, 0)])));
        assert_eq!(replace(id(0, 0), id(0, 1)), Ok(members(&[id(1, 0), id(2, 0), id(0, 1)])));
        assert_eq!(replace(id(1, 0), id(0, 1)), Err(VoterError::Paired { voter: "0.0".into() }));
        assert_eq!(replace(id(3, 0), id(0, 1)), Err(VoterError::VotesNot("3.0".into())));
        assert_eq!(replace(id(1, 0), id(2, 0)), Err(VoterError::Votes("2.0".into())));
        assert_eq!(replace(id(1, 0), id(9, 0)), Err(VoterError::NoMember("9.0".into())));
        let (name, limit) = ("4.0".to_owned(), VOTER_LAG_ENTRIES_MAX);
        assert_eq!(replace(id(1, 0), id(4, 0)), Err(VoterError::Behind { name, behind: 4_983, limit }));
        let unknown = replace(id(2, 0), id(2, 1));
        assert!(matches!(unknown, Err(VoterError::Behind { .. })), "nothing was heard of it: {unknown:?}");
    }
}
