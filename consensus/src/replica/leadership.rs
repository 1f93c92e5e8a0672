//! The events for the owner, in one order: committed entries, and the begin of its leadership.
//!
//! Two tasks speak: applying says what is committed and that this member leads; a watcher says that it no longer does. A leadership is
//! numbered by the index of the blank entry that begins it, and its proposals are behind that entry. Commands that were submitted under one
//! leadership are committed under it or by a successor, never under a later leadership of the same member.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::metrics::RaftMetrics;
use openraft::{Instant, Raft};
use tokio::sync::{mpsc, watch};

use super::identity::node_of;
use super::machine::Machine;
use super::{Event, Failure, Position};
use crate::raft::log_store::LogStore;
use crate::raft::propose::Reign;
use crate::raft::types::{LeaderId, TypeConfig};
use crate::raft::{Batch, MetricsWatch};

type Handle = Raft<TypeConfig, Machine>;

/// Says everything to the owner.
pub(super) struct Voice {
    member: u64,
    events: mpsc::Sender<Event>,
    standing: tokio::sync::Mutex<Standing>,
    /// The leadership under which commands may be submitted, for callers that do not wait.
    current: Mutex<Option<(u64, Arc<Reign>)>>,
    /// The vote when the process started: the leader of that vote leads no more.
    since: Option<LeaderId>,
    /// Nothing more is said once it is true.
    silent: watch::Sender<bool>,
}

#[derive(Default)]
struct Standing {
    leads: Option<Arc<Reign>>,
    /// It said that it no longer leads because a majority was silent, and has not been voted out.
    waits: Option<LeaderId>,
    /// A blank entry to begin anew with is on its way.
    begins: bool,
    said: Option<Option<u32>>,
    has_failed: bool,
}

impl Voice {
    pub fn new(member: u64, events: mpsc::Sender<Event>, since: Option<LeaderId>) -> Self {
        let standing = tokio::sync::Mutex::default();
        let current = Mutex::default();
        Self { member, events, standing, current, since, silent: watch::Sender::new(false) }
    }

    pub fn member(&self) -> u64 {
        self.member
    }

    /// Nothing more is said or served: the owner need not listen any more.
    pub fn silence(&self) {
        self.silent.send_replace(true);
    }

    /// Waits until it is silenced.
    pub async fn silenced(&self) {
        let _ = self.silent.subscribe().wait_for(|silent| *silent).await;
    }

    /// The reign of this leadership, if it lasts.
    pub fn reign(&self, leadership: u64) -> Option<Arc<Reign>> {
        let current = self.current.lock().expect("a holder panicked");
        current.as_ref().filter(|(number, _)| *number == leadership).map(|(_, reign)| reign.clone())
    }

    /// Waits for room. Says nothing to an owner that has gone.
    async fn say(&self, event: Event) {
        tokio::select! {
            biased;
            () = self.silenced() => {}
            _ = self.events.send(event) => {}
        }
    }

    pub fn owner_has_gone(&self) -> bool {
        self.events.is_closed() && !*self.silent.borrow()
    }

    pub async fn committed(&self, by: LeaderId, position: Position, batch: Batch) {
        let mut standing = self.standing.lock().await;
        self.give_way_to(&mut standing, by).await;
        self.say(Event::Committed { position, batch }).await;
    }

    /// A blank entry was applied: if it begins a leadership of this member, say so.
    pub async fn blank(&self, metrics: Option<&MetricsWatch>, by: LeaderId, index: u64) {
        let mut standing = self.standing.lock().await;
        self.give_way_to(&mut standing, by).await;
        let is_own = by.node_id == self.member && self.since.is_none_or(|since| since < by);
        let has_lost = metrics.is_none_or(|metrics| has_lost(&metrics.0.borrow_watched(), by));
        if standing.leads.is_some() || !is_own || has_lost {
            return;
        }
        let reign = Arc::new(Reign::new(by));
        *standing = Standing { leads: Some(reign.clone()), begins: standing.begins, ..Standing::default() };
        *self.current.lock().expect("a holder panicked") = Some((index, reign));
        self.say(Event::Leads { leadership: index }).await;
    }

    pub async fn restored(&self, position: Position) {
        let mut standing = self.standing.lock().await;
        self.follow(&mut standing, None).await;
        self.say(Event::Restored { position }).await;
    }

    /// Where another member's rows have come meanwhile, it may have had no effect, and that they came is said by itself. `generation` is the
    /// valid one, which is another before [`Self::restored`] is called.
    pub async fn checkpointed(&self, position: Position, generation: impl Fn() -> u64) {
        let _standing = self.standing.lock().await;
        if generation() == position.generation {
            self.say(Event::Checkpointed { position }).await;
        }
    }

    pub async fn bereft(&self, nodes: std::collections::BTreeSet<u32>) {
        self.say(Event::Bereft { nodes }).await;
    }

    pub async fn failed(&self, failure: Failure) {
        let mut standing = self.standing.lock().await;
        self.current.lock().expect("a holder panicked").take();
        if !std::mem::replace(&mut standing.has_failed, true) {
            self.say(Event::Failed(failure)).await;
        }
    }

    /// Nothing follows: that the member stops is no failure then.
    pub async fn left(&self) {
        let mut standing = self.standing.lock().await;
        self.current.lock().expect("a holder panicked").take();
        if !std::mem::replace(&mut standing.has_failed, true) {
            self.say(Event::Left).await;
        }
    }

    /// Entries of another leader come out: this member leads no more.
    async fn give_way_to(&self, standing: &mut Standing, by: LeaderId) {
        if standing.leads.as_ref().is_some_and(|reign| reign.leader != by) {
            let leader = (by.node_id != self.member).then(|| node_of(by.node_id));
            self.follow(standing, leader).await;
        }
    }

    /// Reports the leader, if it has changed.
    async fn follow(&self, standing: &mut Standing, leader: Option<u32>) {
        let led = standing.leads.take().is_some();
        self.current.lock().expect("a holder panicked").take();
        if led || standing.said != Some(leader) {
            standing.said = Some(leader);
            self.say(Event::Follows { leader }).await;
        }
    }

    /// Looks whether this member still leads, and has been answered by a majority.
    async fn look(&self, raft: &Handle, patience: Duration) -> Look {
        let metrics = raft.metrics().borrow_watched().clone();
        let leads = self.standing.lock().await.leads.clone();
        match leads {
            Some(reign) if has_lost(&metrics, reign.leader) => self.step_down(&reign, self.other(&metrics), None).await,
            Some(reign) if reign.is_over().await || silence(&metrics).is_some_and(|silence| silence > patience) => {
                reign.end().await;
                self.step_down(&reign, None, Some(reign.leader)).await;
            }
            Some(_) => {}
            None => return self.look_for_leader(&metrics, patience).await,
        }
        Look::Leads
    }

    async fn step_down(&self, reign: &Arc<Reign>, leader: Option<u32>, waits: Option<LeaderId>) {
        let mut standing = self.standing.lock().await;
        if standing.leads.as_ref().is_some_and(|leads| Arc::ptr_eq(leads, reign)) {
            standing.waits = waits;
            self.follow(&mut standing, leader).await;
        }
    }

    async fn look_for_leader(&self, metrics: &RaftMetrics<TypeConfig>, patience: Duration) -> Look {
        let mut standing = self.standing.lock().await;
        standing.waits = standing.waits.filter(|leader| !has_lost(metrics, *leader));
        if standing.waits.is_some() {
            let is_answered = silence(metrics).is_none_or(|silence| silence < patience / 2);
            if is_answered && !standing.begins {
                standing.begins = true;
                return Look::MayBegin;
            }
            return Look::Leads;
        }
        if standing.leads.is_none() && metrics.current_leader != Some(self.member) {
            self.follow(&mut standing, self.other(metrics)).await;
        }
        Look::Follows
    }

    fn other(&self, metrics: &RaftMetrics<TypeConfig>) -> Option<u32> {
        metrics.current_leader.filter(|leader| *leader != self.member).map(node_of)
    }
}

enum Look {
    Leads,
    /// A majority answers again: a blank entry would begin another leadership.
    MayBegin,
    Follows,
}

/// Whether a later vote is known than the one `leader` leads with, or it was removed. Metrics may be older than what was
/// applied, so that a vote not seen yet means nothing.
fn has_lost(metrics: &RaftMetrics<TypeConfig>, leader: LeaderId) -> bool {
    let has_stepped_down = metrics.vote.leader_id == leader && metrics.vote.committed && !metrics.state.is_leader();
    metrics.running_state.is_err() || metrics.vote.leader_id > leader || has_stepped_down
}

/// For how long no majority has answered; `None` if this member is one alone.
fn silence(metrics: &RaftMetrics<TypeConfig>) -> Option<Duration> {
    let membership = metrics.membership_config.membership();
    let is_alone = membership.voter_ids().all(|voter| voter == metrics.id);
    metrics.last_quorum_acked.filter(|_| !is_alone).map(|acked| acked.elapsed())
}

/// A watcher looks at least so often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Watches for the end of a leadership, and of the member.
pub(super) async fn watch(voice: Arc<Voice>, raft: Handle, store: LogStore, patience: Duration) {
    let mut server = raft.server_metrics();
    loop {
        server.borrow_and_update();
        let look = voice.look(&raft, patience).await;
        // A member that writes nothing for Raft does not notice that its disk takes nothing more: it would stay behind for ever.
        let stopped = raft.metrics().borrow_watched().running_state.as_ref().err().map(ToString::to_string);
        if let Some(failure) = store.failure().map(Failure::Persist).or(stopped.map(Failure::Stopped)) {
            return voice.failed(failure).await;
        }
        if matches!(look, Look::MayBegin) {
            let voice = voice.clone();
            let raft = raft.clone();
            tokio::spawn(async move {
                let _ = raft.write_blank().await;
                voice.standing.lock().await.begins = false;
            });
        }
        let again = if matches!(look, Look::Follows) { patience * 4 } else { patience / 4 };
        tokio::select! {
            biased;
            Ok(()) = server.changed() => {}
            () = tokio::time::sleep(again.min(LOOK_AGAIN)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openraft::testing::log_id;

    #[tokio::test]
    async fn nothing_is_said_of_a_checkpoint_whose_rows_another_members_have_replaced() {
        let (sender, mut events) = mpsc::channel(4);
        let voice = Voice::new(1, sender, None);
        let position = Position {
            log_id: log_id::<crate::raft::types::TypeConfig>(1, 1, 7),
            membership: Arc::default(),
            commands: 7,
            founder: None,
            generation: 3,
        };
        voice.checkpointed(position.clone(), || 4).await;
        voice.checkpointed(position.clone(), || 3).await;
        assert_eq!(events.recv().await, Some(Event::Checkpointed { position }));
        assert!(events.try_recv().is_err());
    }
}
