//! The members of the ledger's Raft group: founding, learners, and data centres that never return.

use crate::cluster::Cluster;
use crate::ledger::SharedLedger;
use crate::mesh::Mesh;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tidemark_consensus::raft::{ChangeError, Metrics, ProposeError, RaftNode, ReadError};
use tidemark_proto::ids::{AggregatorId, DcId};
use tidemark_proto::msg::LedgerCmd;
use tidemark_proto::wire;
use tokio::sync::Mutex;
use tokio::time::MissedTickBehavior;

/// How often the founding of the ledger is tried.
const FOUNDING_INTERVAL: Duration = Duration::from_millis(100);
/// How often the leader looks after the ledger's membership and its own place.
const MEMBERSHIP_INTERVAL: Duration = Duration::from_secs(1);
/// How often the others look whether they lead.
const FOLLOWER_INTERVAL: Duration = Duration::from_secs(5);

/// A member of the ledger that does not vote makes entries durable in lots of this time: near a milestone there are a hundred a second, and
/// no process waits for its disk.
pub const LEARNER_FLUSH_GATHER: Duration = Duration::from_millis(50);

/// A member that voted before it lost its log votes again when it lacks no more entries than this: under load it always lacks some.
const RETURN_LAG_ENTRIES_MAX: u64 = 64;

/// Time until a majority has confirmed the leader, and committed entries are applied.
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(2);

/// The supervisor of the members.
pub struct Membership {
    pub raft: RaftNode,
    /// Held by a task that changes the members from here: an operator's command, or this supervisor.
    pub changing: Arc<Mutex<()>>,
    pub cluster: Cluster,
    pub own: AggregatorId,
    pub ledger: SharedLedger,
    pub mesh: Mesh,
}

/// Some voters, and the number of them that can be reached from here.
pub struct Voters {
    pub all: usize,
    pub reached: usize,
}

impl Membership {
    /// Founds the ledger where nothing is yet, adds and removes members, hands leadership to the preferred voter, and has snapshots taken
    /// so often that a start does not take long.
    pub async fn look_after(self) {
        let preferred = Cluster::member(self.cluster.leader);
        let mut interval = tokio::time::interval(MEMBERSHIP_INTERVAL);
        let mut leaders = self.raft.leaders();
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = interval.tick() => {}
                // The member's other metrics follow a moment later.
                () = leaders.changed() => {
                    interval.reset_after(FOUNDING_INTERVAL);
                    continue;
                }
            }
            let metrics = self.raft.metrics().get();
            let votes = metrics.voters.contains(&Cluster::member(self.own));
            if self.raft.wants_snapshot() {
                log_change("a snapshot", self.raft.trigger_snapshot().await);
            }
            self.raft.set_flush_gather(if votes { Duration::ZERO } else { LEARNER_FLUSH_GATHER });
            let blank = metrics.last_log.is_none() && metrics.leader.is_none() && metrics.voters.is_empty();
            if blank && self.own == self.cluster.leader.into() {
                self.found().await;
                interval.reset_after(FOUNDING_INTERVAL);
            }
            if metrics.is_leader {
                // Else an operator's change is under way.
                if let Ok(_changing) = self.changing.try_lock() {
                    self.lead().await;
                    log_change("handing over the lead", self.raft.prefer_leader(preferred).await.map(drop));
                }
            } else if !blank {
                interval.reset_after(FOLLOWER_INTERVAL);
            }
        }
    }

    async fn lead(&self) {
        let metrics = match self.caught_up().await {
            Ok(metrics) => metrics,
            Err(error) => return tracing::debug!(%error, "looking after the members has to wait"),
        };
        if let Some(voters) = metrics.changes_to {
            // A lost leader had begun it, or an operator's command that got no answer in time.
            return log_change("carrying on a change of voters", self.raft.change_voters(voters, true).await);
        }
        self.remove_forgotten(&metrics).await;
        let emptied = self.mesh.emptied().first().copied();
        if let Some(emptied) = emptied {
            // The present knowledge of the members is outdated then.
            return self.remove_emptied(&metrics, emptied).await;
        }
        self.add_learners(&metrics).await;
        self.bring_back(&metrics).await;
    }

    /// The members, once all entries are applied here that earlier leaders have committed: else their notes about voters would not be
    /// known.
    pub async fn caught_up(&self) -> Result<Metrics, ReadError> {
        tokio::time::timeout(CATCH_UP_PATIENCE, self.raft.read_index())
            .await
            .unwrap_or_else(|_| Err(ReadError::NoQuorum(format!("not within {CATCH_UP_PATIENCE:?}"))))?;
        Ok(self.raft.metrics().get())
    }

    /// The ledger is founded once in a cluster's life, and not by an aggregator that has lost its disk and is not asked by any member yet.
    async fn found(&self) {
        let voters: BTreeSet<u64> = self.cluster.voters.iter().map(|&dc| Cluster::member(dc)).collect();
        match self.raft.found(voters, &self.cluster.aggregators().map(Cluster::member).collect()).await {
            Ok(()) => tracing::info!("the ledger is founded"),
            Err(error) => tracing::debug!(%error, "the ledger is not founded here"),
        }
    }

    async fn add_learners(&self, metrics: &Metrics) {
        for id in self.cluster.aggregators().filter(|id| !self.is_forgotten(id.dc)) {
            let member = Cluster::member(id);
            if !metrics.voters.contains(&member) && !metrics.learners.contains(&member) {
                log_change("adding a learner", self.raft.add_learner(member).await);
            }
        }
    }

    /// A member that has lost its log comes back as one that never was there: what it promised and acknowledged is gone. That a voter is to
    /// vote again is noted first.
    async fn remove_emptied(&self, metrics: &Metrics, emptied: AggregatorId) {
        let (member, Voters { all, reached }) = (Cluster::member(emptied), self.left_without(|id| id == emptied));
        if metrics.voters.contains(&member) && reached * 2 <= all {
            return tracing::warn!(
                member,
                all,
                reached,
                "a member without its log stays until most other voters are there"
            );
        }
        if metrics.voters.contains(&member)
            && let Err(error) = self.note_return(emptied, true).await
        {
            return tracing::debug!(%error, "noting a voter's return has to wait");
        }
        match self.raft.remove_member(member).await {
            Ok(()) => drop(self.mesh.emptied().remove(&emptied)),
            Err(error) => tracing::debug!(%error, "removing a member has to wait"),
        }
    }

    /// An earlier voter votes again when it has nearly everything, unless another aggregator of its data centre votes by then: one of them
    /// votes.
    async fn bring_back(&self, metrics: &Metrics) {
        let returning: Vec<AggregatorId> = self.ledger.lock().returning().collect();
        let step = returning.into_iter().find_map(|voter| next_of_return(metrics, voter));
        let done = match step {
            None => return,
            Some(Return::Over(voter)) => self.note_return(voter, false).await,
            Some(Return::Votes(voter, voters)) if !self.are_reached(&metrics.voters) || !self.are_reached(&voters) => {
                return tracing::debug!(?voter, "a voter's return waits until most voters are there");
            }
            Some(Return::Votes(voter, voters)) => match self.raft.change_voters(voters, true).await {
                Ok(()) => self.note_return(voter, false).await,
                Err(error) => return tracing::debug!(%error, "a voter's return has to wait"),
            },
        };
        if let Err(error) = done {
            tracing::debug!(%error, "noting a voter's return has to wait");
        }
    }

    /// Writes down in the ledger that a voter is to vote again, or that it no longer is; nothing where that is known. Returns once it is
    /// applied here. To be called on the ledger's leader, by a task that holds [`Membership::changing`].
    pub async fn note_return(&self, voter: AggregatorId, returns: bool) -> Result<(), ProposeError> {
        let known = self.ledger.lock().is_returning(voter);
        if known != returns {
            let cmd = wire::encode(&LedgerCmd::VoterReturns { voter, returns });
            self.raft.propose(vec![cmd.into()]).await?;
        }
        Ok(())
    }

    fn is_forgotten(&self, dc: DcId) -> bool {
        self.ledger.lock().is_forgotten(dc)
    }

    /// One at a time, and none while most of the others are away: a change needs a majority of the remaining members.
    async fn remove_forgotten(&self, metrics: &Metrics) {
        let members = || metrics.voters.iter().chain(&metrics.learners).copied();
        let forgotten =
            |member| Cluster::of_member(member).filter(|id| self.is_forgotten(id.dc)).map(|id| (member, id.dc));
        let Some((member, dc)) = members().find_map(forgotten) else { return };
        let Voters { all, reached } = self.left_without(|id| id.dc == dc);
        if reached * 2 <= all {
            return tracing::warn!(member, all, reached, "a forgotten member stays until most other voters are there");
        }
        log_change("removing a member", self.raft.remove_member(member).await);
    }

    /// The voters that are left without those that are to go.
    pub fn left_without(&self, gone: impl Fn(AggregatorId) -> bool) -> Voters {
        let voters = self.raft.metrics().get().voters.into_iter().filter_map(Cluster::of_member);
        let left: Vec<AggregatorId> = voters.filter(|&id| !gone(id)).collect();
        Voters { all: left.len(), reached: left.iter().filter(|id| self.reaches(**id)).count() }
    }

    /// Whether a majority of these can be reached from here.
    fn are_reached(&self, voters: &BTreeSet<u64>) -> bool {
        let reached = voters.iter().filter_map(|voter| Cluster::of_member(*voter)).filter(|id| self.reaches(*id));
        reached.count() * 2 > voters.len()
    }

    fn reaches(&self, id: AggregatorId) -> bool {
        id == self.own || self.mesh.connection(id).is_some()
    }
}

/// The next step for a voter that is to vote again.
#[derive(Debug, PartialEq, Eq)]
enum Return {
    /// It votes, or another of its data centre does.
    Over(AggregatorId),
    /// It has the log: these vote from then on.
    Votes(AggregatorId, BTreeSet<u64>),
}

fn next_of_return(metrics: &Metrics, voter: AggregatorId) -> Option<Return> {
    let member = Cluster::member(voter);
    if AggregatorId::all(voter.dc).any(|any| metrics.voters.contains(&Cluster::member(any))) {
        return Some(Return::Over(voter));
    }
    let has = metrics.matched.get(&member).copied().flatten()?;
    let lacks = metrics.last_log.unwrap_or(0).saturating_sub(has);
    let ready = metrics.learners.contains(&member) && lacks <= RETURN_LAG_ENTRIES_MAX;
    ready.then(|| Return::Votes(voter, metrics.voters.iter().copied().chain([member]).collect()))
}

fn log_change(what: &str, result: Result<(), ChangeError>) {
    if let Err(error) = result {
        tracing::debug!(%error, "{what} has to wait");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lost_its_log_votes_again_when_it_has_it_unless_another_of_its_data_centre_votes() {
        let member = |dc| Cluster::member(DcId(dc));
        let back = AggregatorId::from(DcId(2));
        let has = |has: Option<u64>| Metrics {
            last_log: Some(1_000),
            voters: [member(0), member(1)].into(),
            learners: [member(2)].into(),
            matched: [(member(2), has)].into(),
            ..Metrics::default()
        };
        let all = [member(0), member(1), member(2)].into();
        assert_eq!(next_of_return(&has(None), back), None);
        assert_eq!(next_of_return(&has(Some(1_000 - RETURN_LAG_ENTRIES_MAX - 1)), back), None);
        let caught_up = has(Some(1_000 - RETURN_LAG_ENTRIES_MAX));
        assert_eq!(next_of_return(&caught_up, back), Some(Return::Votes(back, all)));
        let no_member = Metrics { learners: BTreeSet::new(), ..caught_up.clone() };
        assert_eq!(next_of_return(&no_member, back), None);
        for votes in AggregatorId::all(back.dc) {
            let voters = [member(0), member(1), Cluster::member(votes)].into();
            let over = Metrics { voters, ..caught_up.clone() };
            assert_eq!(next_of_return(&over, back), Some(Return::Over(back)), "{votes} votes");
        }
    }
}
