//! Whether this aggregator works: what it has caught up with since its start, and what it reaches now.
//!
//! *Reads* are ready once the ledger's log and the feed of each connected group are applied up to what was committed when this process
//! met them. *Writes* are ready while a group of this data centre is connected. The *ledger* is degraded while it has no leader that can
//! decide: counting goes on without it, so that alone takes no traffic away.

use super::Aggregator;
use crate::catch_up::{Caught, Progress};
use crate::cluster::Cluster;
use std::time::Duration;
use tidemark_consensus::raft::ReadError;
use tidemark_proto::ids::{AggregatorId, Birth, GroupId};
use tidemark_proto::ledger::Ledger;
use tidemark_proto::msg::LedgerCmd;
use tokio::time::{Instant, sleep, timeout};

/// A start asks the ledger's leader for so long how far the log is. After that it serves what its disk knew to be committed: a data
/// centre that is cut off goes on.
pub const LEARN_PATIENCE: Duration = Duration::from_secs(5);
/// A start waits for so long until the feed of each connected group has caught up.
pub const FEED_PATIENCE: Duration = Duration::from_secs(10);
/// One question to the leader takes at most this.
const ASK_PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks whether this aggregator is registered.
const SETTLE_INTERVAL: Duration = Duration::from_millis(500);
/// Between two questions.
const ASK_INTERVAL: Duration = Duration::from_millis(50);

/// Why reads and definitions do not work at an aggregator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    #[error("this data centre was given up with `tidemark dc forget`")]
    Forgotten,
    #[error("another aggregator says: {reason}")]
    RefusedByAnother { reason: String },
    #[error("this view is not registered in the ledger yet")]
    ViewNotRegistered,
    #[error("the ledger has no leader")]
    NoLeader,
}

/// Why a strong read is not served at an aggregator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BarrierError {
    #[error("strong reads are served in {aggregator}")]
    Elsewhere { aggregator: String },
    #[error(transparent)]
    Ledger(ReadError),
    #[error("the ledger has stopped")]
    Stopped,
}

/// Why an aggregator has not caught up with the ledger's log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatchUpError {
    #[error("the leader does not answer within {} s", ASK_PATIENCE.as_secs())]
    NoAnswer,
    #[error(transparent)]
    Ledger(#[from] ReadError),
    #[error("the ledger's log is committed up to {upto}, and not applied so far here yet")]
    Behind { upto: u64 },
}

/// How one part of a process works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckState {
    Works,
    /// Something is wrong, and requests are served all the same.
    Degraded,
    /// Requests should go elsewhere.
    Fails,
}

/// One part of a process, and its fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub state: CheckState,
    pub reason: Option<String>,
}

impl Check {
    pub fn works() -> Check {
        Check { state: CheckState::Works, reason: None }
    }

    pub fn degraded(reason: impl Into<String>) -> Check {
        Check { state: CheckState::Degraded, reason: Some(reason.into()) }
    }

    pub fn fails(reason: impl Into<String>) -> Check {
        Check { state: CheckState::Fails, reason: Some(reason.into()) }
    }
}

/// How an aggregator works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub reads: Check,
    pub writes: Check,
    pub ledger: Check,
}

impl Health {
    /// Why requests should go elsewhere, if they should.
    pub fn failure(&self) -> Option<&str> {
        let checks = [&self.ledger, &self.reads, &self.writes];
        let failed = checks.into_iter().find(|check| check.state == CheckState::Fails);
        failed.map(|check| check.reason.as_deref().unwrap_or("it fails"))
    }
}

/// The ledger's voters, as far as this aggregator knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerStanding {
    /// The leader, if it can be reached from here; this aggregator, if it leads and reaches a majority.
    pub leader: Option<AggregatorId>,
    /// The leader as Raft last knew it, though it may be gone.
    pub last_leader: Option<AggregatorId>,
    pub voters: usize,
    pub voters_reached: usize,
}

/// Learns how far the ledger's log is committed, and waits until that is applied here.
pub(crate) async fn catch_up(aggregator: Aggregator) {
    let progress = aggregator.catching_up();
    let on_disk = aggregator.raft().committed;
    let (mut answered, mut upto) = (progress.lock().since, None);
    loop {
        match ask(&aggregator).await {
            Ok(index) => {
                answered = Instant::now();
                let upto = *upto.get_or_insert(index);
                if progress.lock().ledger == Caught::Asking {
                    progress.lock().ledger = Caught::Applying { upto };
                }
                if applies(&aggregator, upto).await {
                    progress.lock().ledger = Caught::All;
                    return settle(&aggregator).await;
                }
            }
            Err(reason) if answered.elapsed() >= LEARN_PATIENCE && aggregator.raft().applied >= on_disk => {
                if !progress.has_ledger() {
                    let waited_s = LEARN_PATIENCE.as_secs();
                    tracing::warn!(%reason, waited_s, "no leader of the ledger answers: serving its state on this disk");
                    progress.lock().ledger = Caught::Own;
                }
            }
            Err(_) => {}
        }
        sleep(ASK_INTERVAL).await;
    }
}

/// Says a number for the cluster's present birth until the ledger has one: a ledger that was founded or restored just now has none.
pub(crate) async fn say_birth(aggregator: Aggregator) {
    aggregator.catching_up().until_ledger().await;
    let birth = Birth(rand::random());
    while aggregator.with_ledger(|ledger| ledger.births().current().is_none()) {
        aggregator.submit(vec![LedgerCmd::Birth(birth)]).await;
        sleep(SETTLE_INTERVAL).await;
    }
}

/// Waits until this aggregator's directory can no longer be refused: it is registered, and another process of the cluster has met it.
async fn settle(aggregator: &Aggregator) {
    let alone = aggregator.cluster().aggregators().count() == 1;
    let is_settled = |ledger: &Ledger| {
        aggregator.with_core(|core| {
            let is_met =
                !alone || own_groups(ledger, aggregator.id()).iter().any(|&group| core.is_group_connected(group));
            core.view().is_registered(ledger) && is_met
        })
    };
    while !aggregator.with_ledger(is_settled) {
        sleep(SETTLE_INTERVAL).await;
    }
    aggregator.directory().is_registered();
}

/// Up to where the ledger's log is committed, as its leader says.
async fn ask(aggregator: &Aggregator) -> Result<u64, CatchUpError> {
    let asked = timeout(ASK_PATIENCE, aggregator.raft_node().committed_index()).await;
    Ok(asked.map_err(|_| CatchUpError::NoAnswer)??)
}

/// Whether the log is applied here up to this entry soon.
async fn applies(aggregator: &Aggregator, upto: u64) -> bool {
    let mut metrics = aggregator.raft_node().metrics();
    let applied = timeout(ASK_PATIENCE, metrics.until(|metrics| metrics.applied >= Some(upto))).await;
    matches!(applied, Ok(Some(_)))
}

impl Aggregator {
    /// The healthy and the faulty parts, with reasons.
    pub fn health(&self) -> Health {
        Health { reads: self.reads_health(), writes: self.writes_health(), ledger: self.ledger_health() }
    }

    /// Whether the ledger's log was applied here since the start, as far as its leader had committed it.
    pub fn has_caught_up_with_ledger(&self) -> bool {
        self.catching_up().lock().ledger == Caught::All
    }

    /// Waits until all that the ledger's leader had committed before the call is applied here.
    ///
    /// # Errors
    /// No leader answers in time, or it is not applied in time.
    pub async fn catch_up_with_ledger(&self) -> Result<(), CatchUpError> {
        let upto = ask(self).await?;
        if applies(self, upto).await { Ok(()) } else { Err(CatchUpError::Behind { upto }) }
    }

    /// Groups of this data centre that may count, and whether each is connected.
    pub fn own_groups(&self) -> Vec<(GroupId, bool)> {
        self.with_ledger(|ledger| {
            self.with_core(|core| {
                let groups = own_groups(ledger, self.id()).into_iter();
                groups.map(|group| (group, core.is_group_connected(group))).collect()
            })
        })
    }

    /// The leader of the ledger, and the number of its voters that can be reached from here.
    pub fn ledger_standing(&self) -> LedgerStanding {
        let metrics = self.raft();
        let voters: Vec<AggregatorId> = metrics.voters.iter().copied().filter_map(Cluster::of_member).collect();
        let voters_reached = voters.iter().filter(|&&id| self.reaches_aggregator(id)).count();
        let last_leader = metrics.leader.and_then(Cluster::of_member);
        let leads = |id: &AggregatorId| match *id == self.id() {
            true => voters_reached * 2 > voters.len(),
            false => self.reaches_aggregator(*id),
        };
        LedgerStanding { leader: last_leader.filter(leads), last_leader, voters: voters.len(), voters_reached }
    }

    fn ledger_health(&self) -> Check {
        if self.with_ledger(|ledger| ledger.is_forgotten(self.dc())) {
            return Check::fails(NotReady::Forgotten.to_string());
        }
        if let Some(reason) = self.mesh().refused() {
            return Check::fails(NotReady::RefusedByAnother { reason }.to_string());
        }
        let LedgerStanding { leader, last_leader, voters, voters_reached } = self.ledger_standing();
        let name = |id: AggregatorId| self.cluster().aggregator_name(id);
        match (leader, last_leader) {
            (Some(_), _) => Check::works(),
            (None, Some(last)) if last == self.id() => Check::degraded(format!(
                "the ledger has no majority: {voters_reached} of {voters} voters can be reached from here, which leads"
            )),
            (None, Some(last)) => Check::degraded(format!(
                "the ledger's leader {} cannot be reached: {voters_reached} of {voters} voters can be reached from here",
                name(last)
            )),
            (None, None) => Check::degraded(format!(
                "the ledger has no leader: {voters_reached} of {voters} voters can be reached from here"
            )),
        }
    }

    fn reads_health(&self) -> Check {
        let ledger = self.catching_up().lock().ledger;
        if !self.with_ledger(|ledger| self.with_core(|core| core.view().is_registered(ledger))) {
            return Check::fails(NotReady::ViewNotRegistered.to_string());
        }
        match ledger {
            Caught::Asking => Check::fails("it is not known yet how far the ledger's log is"),
            Caught::Applying { upto } => {
                let applied = self.raft().applied.unwrap_or(0);
                Check::fails(format!("the ledger's log is applied up to {applied} of {upto}"))
            }
            Caught::All | Caught::Own => self.feeds_health(),
        }
    }

    /// Whether the view has all that each group of this data centre had counted when this process met it.
    fn feeds_health(&self) -> Check {
        let progress = self.catching_up();
        let Progress { since, feeds: caught_up, .. } = *progress.lock();
        let (away, behind) = self.groups_away_and_behind();
        let late = since.elapsed() >= FEED_PATIENCE;
        match (behind.first(), away.first()) {
            (Some(group), _) if !caught_up && !late => {
                Check::fails(format!("the view has not caught up with group {} yet", self.incarnation_name(*group)))
            }
            (Some(group), _) if !caught_up => {
                Check::degraded(format!("the view has not caught up with group {}", self.incarnation_name(*group)))
            }
            (_, Some(group)) => Check::degraded(format!(
                "group {} is not connected: the view may lack its last counts",
                self.incarnation_name(*group)
            )),
            (_, None) => {
                progress.lock().feeds = true;
                Check::works()
            }
        }
    }

    /// Groups of this data centre that are not connected, and connected ones with which the view has not caught up since the start.
    fn groups_away_and_behind(&self) -> (Vec<GroupId>, Vec<GroupId>) {
        let now = self.now();
        let look = |ledger: &Ledger| {
            self.with_core(|core| {
                let groups = own_groups(ledger, self.id());
                let (connected, away): (Vec<_>, Vec<_>) =
                    groups.into_iter().partition(|&group| core.is_group_connected(group));
                let behind = connected.into_iter().filter(|&group| !core.has_caught_up(now, group)).collect();
                (away, behind)
            })
        };
        self.with_ledger(look)
    }

    fn writes_health(&self) -> Check {
        let look = |ledger: &Ledger| {
            self.with_core(|core| {
                let groups = own_groups(ledger, self.id());
                let (connected, away): (Vec<_>, Vec<_>) =
                    groups.into_iter().partition(|&group| core.is_group_connected(group));
                (connected.len(), away)
            })
        };
        let (connected, away) = self.with_ledger(look);
        let names = || away.iter().map(|&group| self.incarnation_name(group)).collect::<Vec<_>>().join(", ");
        match (connected, away.is_empty()) {
            (0, true) => Check::fails("no group of this data centre has registered yet: start its nodes"),
            (0, false) => Check::fails(format!("no group of this data centre is connected: {}", names())),
            (_, true) => Check::works(),
            (_, false) => Check::degraded(format!("not connected: {}", names())),
        }
    }
}

/// Groups of an aggregator's data centre that may count.
fn own_groups(ledger: &Ledger, own: AggregatorId) -> Vec<GroupId> {
    let counts = ledger.groups().iter().filter(|(group, registered)| group.dc == own.dc && !registered.fenced);
    counts.map(|(&group, _)| group).collect()
}
