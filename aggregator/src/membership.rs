//! Who is a member of the ledger's Raft group: founding, learners, and data centres that never return.

use crate::cluster::Cluster;
use crate::ledger::SharedLedger;
use crate::mesh::Mesh;
use std::collections::BTreeSet;
use std::time::Duration;
use tidemark_consensus::raft::{ChangeError, Metrics, RaftNode};
use tidemark_proto::ids::DcId;

/// How often the founding of the ledger is tried.
const FOUNDING_INTERVAL: Duration = Duration::from_millis(100);
/// How often the leader looks after the ledger's membership and its own place.
const MEMBERSHIP_INTERVAL: Duration = Duration::from_secs(1);
/// How often the others look whether they lead.
const FOLLOWER_INTERVAL: Duration = Duration::from_secs(5);

/// A member that voted before it lost its log votes again when it lacks no more entries than this: under load it always lacks some.
const RETURN_LAG_ENTRIES_MAX: u64 = 64;

/// What looks after the members.
pub struct Membership {
    pub raft: RaftNode,
    pub cluster: Cluster,
    pub own: DcId,
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
            let blank = metrics.last_log.is_none() && metrics.leader.is_none() && metrics.voters.is_empty();
            if blank && self.own == self.cluster.leader {
                self.found().await;
                interval.reset_after(FOUNDING_INTERVAL);
            }
            if metrics.is_leader {
                self.remove_forgotten(&metrics).await;
                self.remove_emptied(&metrics, &mut returning).await;
                self.add_learners(&metrics).await;
                self.bring_back(&metrics, &mut returning).await;
                log_change("handing over the lead", self.raft.prefer_leader(preferred).await.map(drop));
            } else if !blank {
                interval.reset_after(FOLLOWER_INTERVAL);
            }
        }
    }

    /// The ledger is founded once in a cluster's life: not by one that has lost its disk and is asked by nobody yet.
    async fn found(&self) {
        let voters: BTreeSet<u64> = self.cluster.voters.iter().map(|&dc| Cluster::member(dc)).collect();
        match self.raft.found(voters, &self.cluster.ids().map(Cluster::member).collect()).await {
            Ok(()) => tracing::info!("the ledger is founded"),
            Err(error) => tracing::debug!(%error, "the ledger is not founded here"),
        }
    }

    async fn add_learners(&self, metrics: &Metrics) {
        for dc in self.cluster.ids().filter(|&dc| !self.is_forgotten(dc)) {
            let member = Cluster::member(dc);
            if !metrics.voters.contains(&member) && !metrics.learners.contains(&member) {
                log_change("adding a learner", self.raft.add_learner(member).await);
            }
        }
    }

    /// A member that has lost its log comes back as one that never was there: what it promised and acknowledged is gone.
    async fn remove_emptied(&self, metrics: &Metrics, returning: &mut BTreeSet<u64>) {
        let emptied = self.mesh.emptied().first().copied();
        let Some(dc) = emptied else { return };
        let (member, Voters { all, reached }) = (Cluster::member(dc), self.left_without(Some(dc)));
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
                self.mesh.emptied().remove(&dc);
                returning.extend(metrics.voters.contains(&member).then_some(member));
            }
            Err(error) => tracing::debug!(%error, "removing a member has to wait"),
        }
    }

    /// Who voted before votes again when it has nearly everything.
    async fn bring_back(&self, metrics: &Metrics, returning: &mut BTreeSet<u64>) {
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
        let Some(member) =
            members().find(|&member| Cluster::dc_of_member(member).is_some_and(|dc| self.is_forgotten(dc)))
        else {
            return;
        };
        let Some(dc) = Cluster::dc_of_member(member) else { return };
        let Voters { all, reached } = self.left_without(Some(dc));
        if reached * 2 <= all {
            return tracing::warn!(member, all, reached, "a forgotten member stays until most other voters are there");
        }
        log_change("removing a member", self.raft.remove_member(member).await);
    }

    /// The voters that are left without a data centre's, if one is to go.
    pub fn left_without(&self, dc: Option<DcId>) -> Voters {
        let voters = self.raft.metrics().get().voters.into_iter().filter_map(Cluster::dc_of_member);
        let left: Vec<DcId> = voters.filter(|&of| Some(of) != dc).collect();
        let reached = |of: &&DcId| **of == self.own || self.mesh.connection(**of).is_some();
        Voters { all: left.len(), reached: left.iter().filter(reached).count() }
    }
}

fn log_change(what: &str, result: Result<(), ChangeError>) {
    if let Err(error) = result {
        tracing::debug!(%error, "{what} has to wait");
    }
}
