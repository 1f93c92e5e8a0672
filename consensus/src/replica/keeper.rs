//! The tasks of a member on its own. It makes sure that its disk is the latest of its name, founds the group if there is none, and, as the
//! leader, makes the members those of the placement.
//!
//! A disk is counted: at each start, and at an interval while it runs. The member tells its count to all others. They keep the highest
//! count that they received, durably, before they answer with the previous one. It votes and acknowledges nothing until a majority, itself
//! included, has answered: without a majority it could take no part in a decision anyway. The majority is that of the newest members that
//! it, or any answering member, knows. The members at the end of its own log may all have been replaced meanwhile, and its log tells it so
//! only once it takes part. If a member knows of a count as high as this disk's own, the disk is an old copy, and the member stops. This
//! cannot detect two cases: a copy made after the last count that was told, and a copy with later counts that only members received which
//! do not answer now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, RaftError};
use openraft::{ChangeMembers, EmptyNode, Instant as _, Raft, RaftMetrics};
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio::time::error::Elapsed;

use super::envelope::Envelope;
use super::identity::{Start, node_of};
use super::leadership::Voice;
use super::machine::Machine;
use super::placement::{Known, Step, next_step};
use super::tables::{Disk, Hear, PutDisk, read_founder};
use super::{Failure, member_id};
use crate::raft::log_store::LogStore;
use crate::raft::node::{initialize, is_ready_to_lead};
use crate::raft::serve::stopped;
use crate::raft::types::{LogId, StoredMembership, TypeConfig};
use crate::raft::{CallKind, Metrics, RaftTransport, ServeError, wire};

/// Between rounds of a member that takes part.
const ROUND: Duration = Duration::from_secs(1);
/// Between rounds of one that cannot take part yet.
const ROUND_UNSURE: Duration = Duration::from_millis(100);
/// How long a greeting may take.
const GREETING_PATIENCE: Duration = Duration::from_secs(1);
/// How long a change of members may take; afterwards the next round looks what became of it.
const CHANGE_PATIENCE: Duration = Duration::from_secs(10);
/// So long a majority of other disks answers before the owner is told: a group that is being founded looks like that for a moment.
const BEREFT_PATIENCE: Duration = Duration::from_secs(3);
/// Nodes that were taken away must be silent for this long before a group is founded that they might still hold. A node that was told to go
/// may just be starting again to read the order.
const GONE_PATIENCE: Duration = Duration::from_secs(10);
/// A member that has not answered its leader for this long is asked for its identity.
const SILENCE: Duration = Duration::from_secs(1);
/// A leader on a node that has answered no message from here for this long may be gone: without a majority no other leader is elected in
/// its place.
const LEADER_SILENCE: Duration = Duration::from_secs(3);
/// Of an answer to a greeting: a few hundred members fit.
const GREETED_BYTES_MAX: usize = 8 << 10;

/// A greeting of one member to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Greeting {
    pub start: Start,
}

/// And back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Greeted {
    /// The answering member.
    pub member: u64,
    /// Whether it knows a group.
    pub knows: bool,
    /// The highest start of the greeting member that it had heard of.
    pub known: Option<Start>,
    /// Whether it keeps the one it was told: it does of members of its group, by what it knows of them, committed or not.
    pub keeps: bool,
    /// The members of its group at the end of its log; none if it knows no group.
    pub membership: StoredMembership,
    /// The group that it knows: see [`founder_of`](super::tables::founder_of).
    pub group: Option<u64>,
    /// Where the members that it knows to be committed stand in the log.
    pub members_at: Option<LogId>,
    /// Whether by its own layout the group is placed on its node.
    pub placed: bool,
    /// Whether it has found that a majority of the disks of its group is gone.
    pub bereft: bool,
    /// Which layout its node goes by.
    pub layout: Edition,
}

/// Layouts of a data centre follow one another: nodes are appended and taken away for ever. So two of them differ in these counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Edition {
    /// Nodes that there ever were.
    pub nodes: u32,
    /// Number of those that are gone.
    pub gone: u32,
}

impl Greeted {
    /// The answer of a node that holds no log of the group.
    pub fn by_none(node: u32, layout: Edition) -> Self {
        let knows = false;
        let keeps = false;
        let placed = false;
        let bereft = false;
        let member = member_id(node, 0);
        let known = None;
        let group = None;
        let members_at = None;
        let membership = StoredMembership::default();
        Self { member, knows, known, keeps, membership, group, members_at, placed, bereft, layout }
    }
}

/// The announcements of a member about itself, beside the content of its log.
pub(super) struct Bearing {
    pub placement: watch::Receiver<Vec<u32>>,
    pub layout: Edition,
    pub is_bereft: AtomicBool,
}

/// Answers greetings, whether or not this member takes part itself.
pub(super) async fn on_greeting(
    bearing: &Bearing,
    raft: &Raft<TypeConfig, Machine>,
    store: &LogStore,
    from: u64,
    message: &[u8],
) -> Result<Bytes, ServeError> {
    let Greeting { start } = wire::decode(message, size_of::<Greeting>() * 2)?;
    let committed = raft.with_raft_state(|state| StoredMembership::clone(state.membership_state.committed()));
    let committed = committed.await.map_err(stopped)?;
    // After that: before the log's owner has answered once they are those of a blank disk.
    let metrics = raft.metrics().borrow_watched().clone();
    let is_of = |membership: &StoredMembership| membership.membership().nodes().any(|(known, _)| *known == from);
    let membership = StoredMembership::clone(&metrics.membership_config);
    let keeps = is_of(&membership) || is_of(&committed);
    let known = if keeps { hear(store, from, start).await? } else { None };
    Ok(wire::encode(&Greeted {
        member: metrics.id,
        knows: knows_group(&metrics),
        known,
        keeps,
        membership,
        group: read_founder(store).map_err(stopped)?,
        members_at: *committed.log_id(),
        placed: bearing.placement.borrow().contains(&node_of(metrics.id)),
        bereft: bearing.is_bereft.load(Ordering::Acquire),
        layout: bearing.layout,
    }))
}

async fn hear(store: &LogStore, member: u64, start: Start) -> Result<Option<Start>, ServeError> {
    let (answer, heard) = oneshot::channel();
    let before = std::sync::Mutex::default();
    store.put(Hear { member, start, before, answer }).await.map_err(stopped)?;
    heard.await.map_err(stopped)?.map_err(stopped)
}

fn knows_group(metrics: &RaftMetrics<TypeConfig>) -> bool {
    metrics.last_log_index.is_some() || metrics.membership_config.membership().voter_ids().next().is_some()
}

/// See the module.
pub(super) struct Keeper {
    pub member: u64,
    pub raft: Raft<TypeConfig, Machine>,
    pub store: LogStore,
    pub voice: Arc<Voice>,
    pub nodes: Arc<dyn RaftTransport>,
    pub placement: watch::Receiver<Vec<u32>>,
    /// All nodes that the data centre ever had, and those of them that were taken away.
    pub everyone: BTreeSet<u32>,
    pub gone: BTreeSet<u32>,
    pub bearing: Arc<Bearing>,
    /// Whether this member takes part.
    pub is_sure: Arc<AtomicBool>,
    pub disk: Disk,
    pub nonce: u64,
    pub count_every: Duration,
    pub prefer_every: Duration,
}

/// A member's knowledge of its own group.
struct Own {
    knows: bool,
    group: Option<u64>,
    /// Where the members that it knows of stand in the log, committed or not.
    members_at: Option<LogId>,
}

impl Own {
    /// Whether a disk is of this member's group, or of none: one that keeps another group's log would lose it here.
    fn may_have(&self, greeted: &Greeted) -> bool {
        !greeted.knows || self.group.is_some() && greeted.group == self.group
    }

    /// Whether an answer proves that this member was taken out: it is of the same group, and committed members that are no older do not
    /// contain it. A member that is catching up does not know yet of later disks.
    fn is_done_without(&self, greeted: &Greeted) -> bool {
        let is_own = !self.knows || self.group.is_some() && self.group == greeted.group;
        greeted.knows && !greeted.keeps && is_own && greeted.members_at >= self.members_at
    }
}

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    GoesOn,
    /// The group has gone on without this member.
    Left,
}

/// The findings of the membership supervisor.
struct Findings {
    /// Members that keep the present count.
    told: BTreeSet<u64>,
    /// The last answer on each node.
    present: BTreeMap<u32, Greeted>,
    /// When a node last answered.
    heard_at: BTreeMap<u32, Instant>,
    began: Instant,
    /// The last term in which this member led, and since when.
    led: Option<(u64, Instant)>,
    /// Nodes with another group's log.
    strange: BTreeSet<u32>,
    counted_at: Instant,
    preferred_at: Instant,
    /// Since when a majority of the disks is gone, and what the owner was told.
    bereft_since: Option<Instant>,
    bereft: BTreeSet<u32>,
}

impl Findings {
    fn new(now: Instant) -> Self {
        Self {
            told: BTreeSet::new(),
            present: BTreeMap::new(),
            heard_at: BTreeMap::new(),
            began: now,
            led: None,
            strange: BTreeSet::new(),
            counted_at: now,
            preferred_at: now,
            bereft_since: None,
            bereft: BTreeSet::new(),
        }
    }

    /// This member leads in the term; for how long.
    fn leads_for(&mut self, term: u64) -> Duration {
        let same_term = self.led.filter(|(led, _)| *led == term);
        let (_, since) = *self.led.insert(same_term.unwrap_or_else(|| (term, Instant::now())));
        since.elapsed()
    }

    /// Says once of a node that it has another group's log.
    fn note_strange(&mut self, own: &Own) {
        let is_strange = |(node, greeted): (&u32, &Greeted)| (!own.may_have(greeted)).then_some(*node);
        let strange: BTreeSet<u32> = self.present.iter().filter_map(is_strange).collect();
        for node in strange.difference(&self.strange) {
            tracing::error!(
                node,
                "has the log of another group of this name: it is not taken in, and one of the two has to be set aside"
            );
        }
        self.strange = strange;
    }

    /// Since a node last answered, or since this process began.
    fn silent_for(&self, node: u32) -> Duration {
        self.heard_at.get(&node).unwrap_or(&self.began).elapsed()
    }
}

impl Keeper {
    pub async fn run(mut self) {
        let mut findings = Findings::new(Instant::now());
        // Before the log's owner has answered once, metrics are those of a blank disk.
        let _ = self.raft.with_raft_state(|_| ()).await;
        loop {
            let round = self.round(&mut findings).await;
            match &round {
                Ok(Round::GoesOn) => {}
                Ok(Round::Left) => self.voice.left().await,
                Err(failure) => self.voice.failed(failure.clone()).await,
            }
            if round != Ok(Round::GoesOn) {
                let _ = self.raft.shutdown().await;
                return;
            }
            let takes_part = self.is_sure.load(Ordering::Acquire) && knows_group(&self.metrics());
            let round = if takes_part { ROUND } else { ROUND_UNSURE };
            tokio::select! {
                biased;
                () = tokio::time::sleep(round) => {}
                Ok(()) = self.placement.changed() => {}
            }
        }
    }

    fn metrics(&self) -> RaftMetrics<TypeConfig> {
        self.raft.metrics().borrow_watched().clone()
    }

    fn start(&self) -> Start {
        Start { count: self.disk.starts, nonce: self.nonce }
    }

    async fn round(&mut self, findings: &mut Findings) -> Result<Round, Failure> {
        let placement = self.placement.borrow_and_update().clone();
        self.count(findings).await;
        let metrics = self.metrics();
        let answers = self.greet(self.whom_to_greet(&metrics, &placement, findings)).await;
        for greeted in answers.values() {
            if self.start().is_behind(greeted.known) {
                let start = self.disk.starts;
                let known = greeted.known.map_or(0, |known| known.count);
                return Err(Failure::OldCopy { member: self.member, start, known, by: node_of(greeted.member) });
            }
            findings.present.insert(node_of(greeted.member), greeted.clone());
            findings.heard_at.insert(node_of(greeted.member), Instant::now());
            if greeted.keeps {
                findings.told.insert(greeted.member);
            }
        }
        // An unreadable founder is taken for no group, and no answer is about that.
        let own = Own {
            knows: knows_group(&metrics),
            group: read_founder(&self.store).ok().flatten(),
            members_at: *metrics.membership_config.log_id(),
        };
        if self.is_let_go(&own, &placement, &answers) {
            return Ok(Round::Left);
        }
        let members = newest(&own, &metrics, &answers);
        self.probe_leader(&metrics, findings).await;
        self.look_for_majority(&metrics, members, &answers, findings).await;
        if !self.is_sure.load(Ordering::Acquire) && is_majority(&metrics, members, &placement, &answers) {
            self.is_sure.store(true, Ordering::Release);
            self.raft.runtime_config().elect(true);
        }
        match knows_group(&metrics) {
            false => self.found(&placement, &answers, findings).await,
            // The reachable members have changed while answers were waited for.
            true if metrics.state.is_leader() => self.lead(&own, &self.metrics(), &placement, findings).await,
            true => {}
        }
        Ok(Round::GoesOn)
    }

    /// Whether this node may drop its log. It must not be placed, and most placed members must have this member's own group without it, as
    /// of no earlier than it knows of members. No placed member may have a group with it. A member is never let go because it is not
    /// reached: its leader has to have taken it out. A member that knows no group has nothing to keep.
    fn is_let_go(&self, own: &Own, placement: &[u32], answers: &BTreeMap<u64, Greeted>) -> bool {
        let is_without = |greeted: &&Greeted| own.is_done_without(greeted);
        let is_placed = |node: u32| placement.contains(&node);
        // A member that is not placed may itself have been taken out, and not know of others that were.
        let mut placed = answers.values().filter(|greeted| is_placed(node_of(greeted.member)));
        let without = placed.clone().filter(is_without).count();
        !is_placed(node_of(self.member)) && without * 2 > placement.len() && placed.all(|greeted| !greeted.keeps)
    }

    /// Counts on, so that a copy of the disk grows old.
    async fn count(&mut self, findings: &mut Findings) {
        if findings.counted_at.elapsed() < self.count_every {
            return;
        }
        findings.counted_at = Instant::now();
        let disk = Disk { starts: self.disk.starts + 1, ..self.disk };
        let (done, outcome) = oneshot::channel();
        let put = self.store.put(PutDisk { disk, done: Some(done) }).await;
        if put.is_ok() && matches!(outcome.await, Ok(Ok(()))) {
            self.disk = disk;
            findings.told.clear();
        }
    }

    /// Envelopes of greetings: to members that do not keep the present count, and to nodes whose disk may be another. A member that cannot
    /// take part yet asks the members on all nodes, each time: it may not know its members, and the answers of one round decide.
    fn whom_to_greet(
        &self,
        metrics: &RaftMetrics<TypeConfig>,
        placement: &[u32],
        findings: &Findings,
    ) -> BTreeSet<(u64, u64)> {
        let is_sure = self.is_sure.load(Ordering::Acquire);
        let members = metrics.membership_config.membership().nodes().map(|(member, _)| *member);
        let untold = members.filter(|member| is_sure && *member != self.member && !findings.told.contains(member));
        let anyone = self.everyone.iter().chain(placement).copied().chain(nodes_of(&metrics.membership_config));
        let nodes = self.nodes_to_greet(metrics, placement, findings).into_iter().chain(anyone.filter(|_| !is_sure));
        let nodes = nodes.filter(|node| *node != node_of(self.member)).map(|node| member_id(node, 0));
        untold.chain(nodes).map(|to| (self.member, to)).collect()
    }

    fn nodes_to_greet(
        &self,
        metrics: &RaftMetrics<TypeConfig>,
        placement: &[u32],
        findings: &Findings,
    ) -> BTreeSet<u32> {
        let placed = placement.iter().copied();
        let is_leader = metrics.state.is_leader();
        match () {
            // Any member that still has the group, wherever an earlier layout placed it.
            () if !knows_group(metrics) => self.everyone.iter().copied().chain(placed).collect(),
            () if !placement.contains(&node_of(self.member)) => {
                placed.chain(self.unplaced(metrics, placement)).collect()
            }
            () if is_leader => {
                let unheard = placed.filter(|node| !is_heard(metrics, *node));
                // These say by which layout they go before they are asked to lead, or are taken out.
                let asked = placement.first().copied().into_iter().chain(self.unplaced(metrics, placement));
                unheard.chain(asked).collect()
            }
            () if is_leaderless(metrics, findings) => placed.chain(self.unplaced(metrics, placement)).collect(),
            () => BTreeSet::new(),
        }
    }

    /// Nodes of members that are not placed.
    fn unplaced(&self, metrics: &RaftMetrics<TypeConfig>, placement: &[u32]) -> BTreeSet<u32> {
        let nodes = metrics.membership_config.membership().nodes().map(|(member, _)| node_of(*member));
        nodes.filter(|node| !placement.contains(node)).collect()
    }

    /// By member that answered.
    async fn greet(&self, whom: BTreeSet<(u64, u64)>) -> BTreeMap<u64, Greeted> {
        let message = wire::encode(&Greeting { start: self.start() });
        let calls = whom.into_iter().map(|(from, to)| {
            let sealed = Envelope { from, to }.seal(&message);
            let call = self.nodes.call(node_of(to).into(), CallKind::Greet, sealed);
            let answer = tokio::time::timeout(GREETING_PATIENCE, call);
            async move { (node_of(to), answer.await) }
        });
        let answers = join_all(calls).await.into_iter().filter_map(|(node, answer)| Some((node, answer.ok()?.ok()?)));
        let greeted = answers.filter_map(|(node, answer)| {
            let greeted: Greeted = wire::decode(&answer, GREETED_BYTES_MAX).ok()?;
            // An answer about a disk of another node is ignored.
            (node_of(greeted.member) == node).then_some((greeted.member, greeted))
        });
        greeted.collect()
    }

    /// A follower asks the node of its leader for its identity: without a majority no message says that the leader is gone. Asked in the
    /// name of no disk, so that nothing is kept of it.
    async fn probe_leader(&self, metrics: &RaftMetrics<TypeConfig>, findings: &mut Findings) {
        let Some(leader) = metrics.current_leader.filter(|leader| *leader != self.member) else { return };
        let whom = [(member_id(node_of(self.member), 0), member_id(node_of(leader), 0))].into();
        for greeted in self.greet(whom).await.values() {
            findings.present.insert(node_of(greeted.member), greeted.clone());
            findings.heard_at.insert(node_of(greeted.member), Instant::now());
        }
    }

    /// Says it when a majority of the disks is gone, and when it is back.
    async fn look_for_majority(
        &self,
        metrics: &RaftMetrics<TypeConfig>,
        members: &StoredMembership,
        answers: &BTreeMap<u64, Greeted>,
        findings: &mut Findings,
    ) {
        let present = answers.values().map(|greeted| (node_of(greeted.member), greeted.clone()));
        let strangers = match is_leaderless(metrics, findings) || metrics.state.is_leader() {
            true => strangers(metrics, members, &present.collect()),
            false => BTreeSet::new(),
        };
        let since = findings.bereft_since.unwrap_or_else(Instant::now);
        findings.bereft_since = (!strangers.is_empty()).then_some(since);
        let told = strangers.is_empty() || since.elapsed() >= BEREFT_PATIENCE;
        if told && findings.bereft != strangers {
            findings.bereft = strangers.clone();
            self.bearing.is_bereft.store(!strangers.is_empty(), Ordering::Release);
            self.voice.bereft(strangers).await;
        }
    }

    /// Whether every node that might still hold the group's log reports that it does not, and uses this member's layout. With two
    /// layouts, two members might found the group at once. A node that was taken away may be silent: the operator has said that
    /// it holds nothing.
    fn is_held_nowhere(&self, placement: &[u32], answers: &BTreeMap<u64, Greeted>, findings: &Findings) -> bool {
        let answered: BTreeSet<u32> = answers.values().map(|greeted| node_of(greeted.member)).collect();
        let may_be_silent = |node: &u32| self.gone.contains(node) && findings.silent_for(*node) >= GONE_PATIENCE;
        let has_said = |node: &u32| placement.contains(node) || answered.contains(node) || may_be_silent(node);
        let own = node_of(self.member);
        let is_blank = |greeted: &Greeted| !greeted.knows && greeted.layout == self.bearing.layout;
        answers.values().all(is_blank) && self.everyone.iter().all(|node| *node == own || has_said(node))
    }

    /// Founds the group if this node is the first of the placement and all others have said that they know none.
    async fn found(&self, placement: &[u32], answers: &BTreeMap<u64, Greeted>, findings: &Findings) {
        if !self.is_held_nowhere(placement, answers, findings) {
            return;
        }
        let own = node_of(self.member);
        let blank = |node: &u32| {
            let greeted = answers.values().find(|greeted| node_of(greeted.member) == *node && greeted.placed);
            if *node == own { Some(self.member) } else { greeted.map(|greeted| greeted.member) }
        };
        let voters: Option<BTreeSet<u64>> = placement.iter().map(blank).collect();
        let founds = placement.iter().min() == Some(&own) && self.is_sure.load(Ordering::Acquire);
        if let Some(voters) = voters.filter(|_| founds) {
            match initialize(&self.raft, voters.clone()).await {
                Ok(()) => tracing::info!(?voters, "the group was founded"),
                Err(error) => tracing::warn!(%error, "the group was not founded"),
            }
        }
    }

    async fn lead(&self, own: &Own, metrics: &RaftMetrics<TypeConfig>, placement: &[u32], findings: &mut Findings) {
        // No member can be missed before.
        if findings.leads_for(metrics.current_term) < SILENCE {
            return;
        }
        findings.note_strange(own);
        let ours = findings.present.values().filter(|greeted| own.may_have(greeted));
        let (placed, leaving): (Vec<&Greeted>, Vec<&Greeted>) = ours.partition(|greeted| greeted.placed);
        let present = placed.into_iter().map(|greeted| (node_of(greeted.member), greeted.member)).collect();
        let leaving = leaving.into_iter().map(|greeted| node_of(greeted.member)).collect();
        let known = Metrics::new(metrics);
        let changes_to = known.changes_to.clone();
        let nodes = known.voters.iter().map(|voter| node_of(*voter));
        let heard = nodes.filter(|node| is_heard(metrics, *node)).collect();
        let own = self.member;
        let present = &present;
        let leaving = &leaving;
        let heard = &heard;
        let step = next_step(&Known { own, placement, metrics: &known, changes_to, present, leaving, heard });
        match step {
            Some(step) => self.take(step).await,
            None => self.prefer(&known, metrics, placement, findings).await,
        }
    }

    async fn take(&self, step: Step) {
        tracing::info!(?step, "members change");
        let changed = match step.clone() {
            Step::AddLearner(member) => {
                let adding = self.raft.add_learner(member, EmptyNode {}, false);
                tokio::time::timeout(CHANGE_PATIENCE, adding).await.map(|added| added.map(drop))
            }
            Step::ChangeVoters(voters) => self.change(ChangeMembers::ReplaceAllVoters(voters)).await,
            Step::RemoveLearners(learners) => self.change(ChangeMembers::RemoveNodes(learners)).await,
            Step::Transfer(to) => {
                let _ = self.raft.trigger().transfer_leader(to).await;
                return;
            }
        };
        match changed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, ?step, "members did not change"),
            Err(_) => tracing::warn!(?step, "members did not change in time"),
        }
    }

    async fn change(
        &self,
        change: ChangeMembers<u64, EmptyNode>,
    ) -> Result<Result<(), RaftError<TypeConfig, ClientWriteError<TypeConfig>>>, Elapsed> {
        let changing = self.raft.change_membership(change, false);
        tokio::time::timeout(CHANGE_PATIENCE, changing).await.map(|changed| changed.map(drop))
    }

    /// Hands leadership to the preferred node, not more often than every few election timeouts.
    async fn prefer(
        &self,
        known: &Metrics,
        metrics: &RaftMetrics<TypeConfig>,
        placement: &[u32],
        findings: &mut Findings,
    ) {
        let ready = self.preferred(known, metrics, placement, findings);
        if let Some(preferred) = ready.filter(|_| findings.preferred_at.elapsed() >= self.prefer_every) {
            findings.preferred_at = Instant::now();
            let _ = self.raft.trigger().transfer_leader(preferred).await;
        }
    }

    /// A voter that should lead instead of this member and can: that of the first node of the placement, or, where this node is not
    /// placed, of any that is. It has to have the same layout, or it would hand back.
    fn preferred(
        &self,
        known: &Metrics,
        metrics: &RaftMetrics<TypeConfig>,
        placement: &[u32],
        findings: &Findings,
    ) -> Option<u64> {
        let acceptable = if placement.contains(&node_of(self.member)) { 1 } else { placement.len() };
        placement.iter().take(acceptable).find_map(|node| {
            let voter = known.voters.iter().copied().find(|voter| node_of(*voter) == *node)?;
            let is_willing = findings.present.get(node).is_some_and(|said| said.placed && said.member == voter);
            (is_willing && is_heard(metrics, *node) && is_ready_to_lead(known, self.member, voter)).then_some(voter)
        })
    }
}

/// No member leads, as far as is known. A leader does not lead if its node answers with another disk, or not at all. Nor does a
/// leader that has lost the majority. Such a leader still sends its log, even to a disk that it cannot make a voter any more.
fn is_leaderless(metrics: &RaftMetrics<TypeConfig>, findings: &Findings) -> bool {
    let is_gone = |leader: u64| {
        let said = findings.present.get(&node_of(leader));
        said.is_some_and(|said| said.member != leader || said.bereft)
            || leader != metrics.id && findings.silent_for(node_of(leader)) >= LEADER_SILENCE
    };
    metrics.current_leader.is_none_or(is_gone)
}

/// Whether this member and those that answered could decide something.
fn is_majority(
    metrics: &RaftMetrics<TypeConfig>,
    members: &StoredMembership,
    placement: &[u32],
    answers: &BTreeMap<u64, Greeted>,
) -> bool {
    if !knows_group(metrics) {
        let nodes: BTreeSet<u32> = answers.keys().map(|member| node_of(*member)).collect();
        let answered = placement.iter().filter(|node| **node == node_of(metrics.id) || nodes.contains(*node));
        return answered.count() * 2 > placement.len();
    }
    members.membership().get_joint_config().iter().all(|voters| {
        let answered = voters.iter().filter(|voter| **voter == metrics.id || answers.contains_key(*voter));
        answered.count() * 2 > voters.len()
    })
}

/// The members in the newest entry that this member, or an answering member of its group, knows.
fn newest<'a>(
    own: &Own,
    metrics: &'a RaftMetrics<TypeConfig>,
    answers: &'a BTreeMap<u64, Greeted>,
) -> &'a StoredMembership {
    let of_group = answers.values().filter(|greeted| own.group.is_some() && greeted.group == own.group);
    let has_voters = |membership: &&StoredMembership| membership.membership().voter_ids().next().is_some();
    let named = of_group.map(|greeted| &greeted.membership).filter(has_voters);
    named.fold(
        &*metrics.membership_config,
        |newest, named| if named.log_id() > newest.log_id() { named } else { newest },
    )
}

fn nodes_of(membership: &StoredMembership) -> impl Iterator<Item = u32> {
    membership.membership().nodes().map(|(member, _)| node_of(*member))
}

/// Nodes with other disks than those of the group, as of the newest members that are known here, if without them nothing can be decided;
/// else none. A blank member takes the word of a member that knows the group and has found that: it cannot tell itself from a member that
/// is about to be added. It takes no word if there are two groups of the name: one may go on.
fn strangers(
    metrics: &RaftMetrics<TypeConfig>,
    members: &StoredMembership,
    present: &BTreeMap<u32, Greeted>,
) -> BTreeSet<u32> {
    let members = match knows_group(metrics) {
        true => Some(members),
        false
            if present.values().filter(|said| said.knows).map(|said| said.group).collect::<BTreeSet<_>>().len() > 1 =>
        {
            None
        }
        false => present
            .values()
            .filter(|said| said.knows && said.bereft)
            .map(|said| &said.membership)
            .max_by_key(|known| *known.log_id()),
    };
    let is_another = |voter: &u64| match node_of(*voter) {
        own if own == node_of(metrics.id) => *voter != metrics.id,
        node => present.get(&node).is_some_and(|said| said.member != *voter),
    };
    let of_config = |voters: &BTreeSet<u64>| -> BTreeSet<u32> {
        let gone: BTreeSet<u32> =
            voters.iter().filter(|voter| is_another(voter)).map(|voter| node_of(*voter)).collect();
        if gone.len() * 2 >= voters.len() { gone } else { BTreeSet::new() }
    };
    members.into_iter().flat_map(|known| known.membership().get_joint_config()).flat_map(of_config).collect()
}

/// Whether a voter of a node has answered the leader lately.
fn is_heard(metrics: &RaftMetrics<TypeConfig>, node: u32) -> bool {
    let mut voters = metrics.membership_config.membership().voter_ids().filter(|voter| node_of(*voter) == node);
    let heard =
        |member: u64| metrics.heartbeat.as_ref().and_then(|heartbeat| heartbeat.get(&member).copied().flatten());
    voters.any(|voter| voter == metrics.id || heard(voter).is_some_and(|at| at.elapsed() < SILENCE))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use openraft::Membership;
    use openraft::testing::log_id;
    use proptest::prelude::*;

    use super::*;

    const LAYOUT: Edition = Edition { nodes: 3, gone: 0 };
    const GROUP: u64 = 7;

    /// Entry `index` makes these the voters, and the rest learners.
    fn members(index: u64, voters: &[u64], learners: &[u64]) -> StoredMembership {
        let nodes = voters.iter().chain(learners).map(|member| (*member, EmptyNode {})).collect::<BTreeMap<_, _>>();
        let membership = Membership::new(vec![voters.iter().copied().collect()], nodes).expect("each has a node");
        StoredMembership::new(Some(log_id::<TypeConfig>(1, 1, index)), membership)
    }

    fn knowing(own: u64, membership: &StoredMembership) -> RaftMetrics<TypeConfig> {
        let mut metrics = RaftMetrics::new_initial(own);
        metrics.last_log_index = membership.log_id().map(|log_id| log_id.index);
        metrics.membership_config = Arc::new(membership.clone());
        metrics
    }

    fn answers(members: &[u64], membership: &StoredMembership) -> BTreeMap<u64, Greeted> {
        let knows = membership.log_id().is_some();
        let blank = Greeted::by_none(0, LAYOUT);
        let greeted = |member| Greeted {
            member,
            knows,
            keeps: knows,
            membership: membership.clone(),
            group: knows.then_some(GROUP),
            ..blank.clone()
        };
        members.iter().map(|member| (*member, greeted(*member))).collect()
    }

    /// The first and the second disk of a node.
    fn a(node: u32) -> u64 {
        member_id(node, 10)
    }

    fn b(node: u32) -> u64 {
        member_id(node, 20)
    }

    #[test]
    fn a_majority_is_one_of_the_newest_members_that_are_known() {
        let placement = [1, 2, 3];
        let founded = members(0, &[a(1), a(2), a(3)], &[]);
        let is_sure_of = |group, own, known: &StoredMembership, answers| {
            let own_group = Own { knows: true, group: Some(group), members_at: *known.log_id() };
            let metrics = knowing(own, known);
            is_majority(&metrics, newest(&own_group, &metrics, &answers), &placement, &answers)
        };
        let is_sure = |own, known, answers| is_sure_of(GROUP, own, known, answers);
        assert!(!is_sure(a(3), &founded, answers(&[], &founded)));
        assert!(is_sure(a(3), &founded, answers(&[a(2)], &founded)));
        let now = members(80, &[a(1), b(2), a(3)], &[b(3)]);
        assert!(is_sure(b(3), &founded, answers(&[a(1), b(2)], &now)), "its log ends where it was no member yet");
        assert!(!is_sure(b(3), &founded, answers(&[a(1)], &now)), "it does not vote itself");
        let moved = members(90, &[a(3), a(4), a(5)], &[]);
        assert!(is_sure(a(3), &founded, answers(&[a(5)], &moved)), "all others it knew were replaced");
        assert!(!is_sure_of(GROUP + 1, a(3), &founded, answers(&[a(5)], &moved)), "they are of another group");
        assert!(!is_sure(a(3), &moved, answers(&[a(1), a(2)], &founded)), "what it knows is newer");
        assert!(
            !is_sure(a(3), &founded, answers(&[b(1), b(2)], &StoredMembership::default())),
            "blank ones know nothing"
        );
    }

    #[test]
    fn whose_node_has_another_disk_is_gone_whoever_leads() {
        let founded = members(0, &[a(1), a(2), a(3)], &[]);
        let learning = members(90, &[a(1), a(2), a(3)], &[b(2)]);
        let said = |answers: BTreeMap<u64, Greeted>, bereft| -> BTreeMap<u32, Greeted> {
            answers.into_values().map(|said| (node_of(said.member), Greeted { bereft, ..said })).collect()
        };
        let blank = |node| said(answers(&[b(node)], &StoredMembership::default()), false);
        let old = |bereft| said(answers(&[a(1)], &learning), bereft);
        let of = |own, known: &StoredMembership, present: [BTreeMap<u32, Greeted>; 2]| {
            strangers(&knowing(own, known), known, &present.into_iter().flatten().collect())
        };
        let none = BTreeSet::new();
        assert_eq!(of(a(1), &founded, [blank(2), blank(3)]), [2, 3].into());
        assert_eq!(of(a(1), &founded, [blank(2), BTreeMap::new()]), none, "the third is silent, it may come back");
        assert_eq!(
            of(b(2), &learning, [old(false), blank(3)]),
            [2, 3].into(),
            "it has the log from a leader that cannot decide"
        );
        assert_eq!(of(b(2), &learning, [old(false), BTreeMap::new()]), none, "it is a new disk itself");
        let nothing = StoredMembership::default();
        assert_eq!(of(b(3), &nothing, [old(false), blank(2)]), none, "a group that it may be about to join");
        let learner = said(answers(&[b(2)], &learning), true);
        assert_eq!(of(b(3), &nothing, [old(true), learner.clone()]), [2, 3].into(), "whoever knows says so");
        let other =
            learner.into_iter().map(|(node, said)| (node, Greeted { group: Some(GROUP + 1), ..said })).collect();
        assert_eq!(of(b(3), &nothing, [old(true), other]), none, "of two groups one may go on");
    }

    proptest! {
        #[test]
        fn garbage_is_refused_and_never_a_panic(message in prop::collection::vec(prop_oneof![Just(0), Just(1), any::<u8>()], 0..60)) {
            let decoded = wire::decode::<Greeted>(&message, 50);
            prop_assert!(message.len() <= 50 || decoded.is_err());
            if let Ok(greeted) = decoded {
                prop_assert_eq!(wire::decode::<Greeted>(&wire::encode(&greeted), GREETED_BYTES_MAX), Ok(greeted));
            }
        }

        #[test]
        fn an_answer_comes_out_as_it_went_in(index in any::<u64>(), nodes in prop::collection::btree_set(any::<u32>(), 1..40)) {
            let voters: Vec<u64> = nodes.into_iter().map(a).collect();
            let greeted = answers(&[b(1)], &members(index, &voters, &[b(1)])).remove(&b(1)).expect("just made");
            prop_assert_eq!(wire::decode::<Greeted>(&wire::encode(&greeted), GREETED_BYTES_MAX), Ok(greeted));
        }
    }

    #[test]
    fn a_leader_takes_in_disks_of_its_own_group_and_blank_ones_alone() {
        let own = Own { knows: true, group: Some(GROUP), members_at: None };
        let blank = Greeted::by_none(2, LAYOUT);
        let of = |group| Greeted { knows: true, group, ..blank.clone() };
        assert!(own.may_have(&blank) && own.may_have(&of(Some(GROUP))));
        assert!(!own.may_have(&of(Some(GROUP + 1))), "what it has acknowledged would be lost");
        assert!(
            !own.may_have(&of(None)) && !Own { group: None, ..own }.may_have(&of(None)),
            "which it is nobody knows"
        );
    }

    #[test]
    fn only_its_own_group_as_of_no_earlier_than_itself_lets_a_member_go() {
        let at = |term, index| Some(openraft::testing::log_id::<TypeConfig>(term, 1, index));
        let own = Own { knows: true, group: Some(7), members_at: at(2, 20) };
        let none = Greeted::by_none(2, LAYOUT);
        let later = Greeted { knows: true, group: Some(7), members_at: at(2, 21), ..none.clone() };
        assert!(own.is_done_without(&later));
        assert!(own.is_done_without(&Greeted { members_at: at(3, 20), ..later.clone() }));
        for (no, why) in [
            (Greeted { members_at: at(2, 19), ..later.clone() }, "it is catching up"),
            (Greeted { members_at: at(1, 30), ..later.clone() }, "what it has may be overwritten"),
            (Greeted { members_at: None, ..later.clone() }, "it knows of nothing committed"),
            (Greeted { group: Some(8), ..later.clone() }, "another group"),
            (Greeted { group: None, ..later.clone() }, "no group that it could name"),
            (Greeted { keeps: true, ..later.clone() }, "a member"),
            (Greeted { knows: false, ..later.clone() }, "blank"),
        ] {
            assert!(!own.is_done_without(&no), "{why}");
        }
        let nameless = Own { group: None, ..own };
        assert!(
            !nameless.is_done_without(&Greeted { group: None, ..later.clone() }),
            "two that cannot be read are not the same"
        );
        let blank = Own { knows: false, group: None, members_at: None };
        assert!(blank.is_done_without(&later), "it has nothing to keep");
        assert!(!blank.is_done_without(&none));
    }
}
