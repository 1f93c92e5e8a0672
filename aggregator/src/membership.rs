//! Who is a member of the ledger's Raft group: founding, learners, and data centres that never return.

use crate::cluster::Cluster;
use crate::ledger::SharedLedger;
use crate::mesh::Mesh;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tidemark_consensus::raft::{ChangeError, Metrics, RaftNode};
use tidemark_proto::ids::{AggregatorId, DcId};
use tokio::sync::Mutex;

/// How often the founding of the ledger is tried.
const FOUNDING_INTERVAL: Duration = Duration::from_millis(100);
/// How often the leader looks after the ledger's membership and its own place.
const MEMBERSHIP_INTERVAL: Duration = Duration::from_secs(1);
/// How often the others look whether they lead.
const FOLLOWER_INTERVAL: Duration = Duration::from_secs(5);

/// A member of the ledger that does not vote makes entries durable in lots of this time: near a milestone there are a hundred
/// a second, and nobody waits for its disk.
pub const LEARNER_FLUSH_GATHER: Duration = Duration::from_millis(50);

/// A member that voted before it lost its log votes again when it lacks no more entries than this: under load it always lacks some.
const RETURN_LAG_ENTRIES_MAX: u64 = 64;

/// What looks after the members.
pub struct Membership {
    pub raft: RaftNode,
    /// Held by who changes the members from here: an operator's command, or this.
    pub changing: Arc<Mutex<()>>,
    pub cluster: Cluster,
    pub own: AggregatorId,
    pub ledger: SharedLedger,
    pub mesh: Mesh,
}

/// Some voters, and how many of them can be reached from here.
pub struct Voters {
    pub all: usize,
    pub reached: usize,
}

impl Membership {
    /// Founds the ledger where nothing is yet, adds and removes members, and hands leadership to the preferred voter.
    pub async fn look_after(self) {
        let preferred = Cluster::member(self.cluster.leader);
        // Voters that left because they had lost their logs, and vote again when they have them.
        let mut returning = BTreeSet::new();
        let (mut interval, mut leaders) = (tokio::time::interval(MEMBERSHIP_INTERVAL), self.raft.leaders());
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
            self.raft.set_flush_gather(if votes { Duration::ZERO } else { LEARNER_FLUSH_GATHER });
            let blank = metrics.last_log.is_none() && metrics.leader.is_none() && metrics.voters.is_empty();
            if blank && self.own == self.cluster.leader.into() {
                self.found().await;
                interval.reset_after(FOUNDING_INTERVAL);
            }
            if metrics.is_leader {
                // Else an operator's change is under way.
                if let Ok(_changing) = self.changing.try_lock() {
                    self.lead(&mut returning).await;
                    log_change("handing over the lead", self.raft.prefer_leader(preferred).await.map(drop));
                }
            } else if !blank {
                interval.reset_after(FOLLOWER_INTERVAL);
            }
        }
    }

    async fn lead(&self, returning: &mut BTreeSet<u64>) {
        let metrics = self.raft.metrics().get();
        if let Some(voters) = metrics.changes_to {
            // A leader that was lost had begun it, or an operator who was not answered in time.
            return log_change("carrying on a change of voters", self.raft.change_voters(voters, true).await);
        }
        self.remove_forgotten(&metrics).await;
        self.remove_emptied(&metrics, returning).await;
        self.add_learners(&metrics).await;
        self.bring_back(&metrics, returning).await;
    }

    /// The ledger is founded once in a cluster's life: not by one that has lost its disk and is asked by nobody yet.
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

    /// A member that has lost its log comes back as one that never was there: what it promised and acknowledged is gone.
    async fn remove_emptied(&self, metrics: &Metrics, returning: &mut BTreeSet<u64>) {
        let emptied = self.mesh.emptied().first().copied();
        let Some(emptied) = emptied else { return };
        let (member, Voters { all, reached }) = (Cluster::member(emptied), self.left_without(|id| id == emptied));
        if metrics.voters.contains(&member) && reached * 2 <= all {
            return tracing::warn!(
                member,
                all,
                reached,
                "a member without its log stays until most other voters are there"
            );
        }
        match self.raft.remove_member(member).await {
            Ok(()) => {
                self.mesh.emptied().remove(&emptied);
                returning.extend(metrics.voters.contains(&member).then_some(member));
            }
            Err(error) => tracing::debug!(%error, "removing a member has to wait"),
        }
    }

    /// Who voted before votes again when it has nearly everything, unless the other one of its pair votes by then: one does.
    async fn bring_back(&self, metrics: &Metrics, returning: &mut BTreeSet<u64>) {
        let partner_votes = |&member: &u64| {
            let partner = Cluster::of_member(member).map(AggregatorId::partner).map(Cluster::member);
            partner.is_some_and(|partner| metrics.voters.contains(&partner))
        };
        returning.retain(|member| !partner_votes(member));
        let has = |member: &u64| metrics.matched.get(member).copied().flatten();
        let lag = |has: u64| metrics.last_log.unwrap_or(0).saturating_sub(has);
        let ready = |member: &&u64| has(member).is_some_and(|has| lag(has) <= RETURN_LAG_ENTRIES_MAX);
        let Some(member) = returning.iter().find(ready).copied() else { return };
        let voters = metrics.voters.iter().copied().chain([member]).collect();
        match self.raft.change_voters(voters, true).await {
            Ok(()) => drop(returning.remove(&member)),
            Err(error) => tracing::debug!(%error, "a voter's return has to wait"),
        }
    }

    fn is_forgotten(&self, dc: DcId) -> bool {
        self.ledger.lock().is_forgotten(dc)
    }

    /// One at a time, and none while most of the others are not there: a change needs a majority of those that are left.
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
        let reached = |id: &&AggregatorId| **id == self.own || self.mesh.connection(**id).is_some();
        Voters { all: left.len(), reached: left.iter().filter(reached).count() }
    }
}

fn log_change(what: &str, result: Result<(), ChangeError>) {
    if let Err(error) = result {
        tracing::debug!(%error, "{what} has to wait");
    }
}
