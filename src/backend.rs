//! What HTTP asks, answered by an aggregator of this process and a client of its data centre's node. It moves questions and
//! answers; every rule is the aggregator's, the node's or the ledger's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tidemark_aggregator::{Aggregator, LiveEvent, MilestoneState as State};
use tidemark_client::{Client, HitError, HitOutcome};
use tidemark_proto::client::AddError;
use tidemark_proto::ids::CounterName;
use tidemark_proto::ledger::Awarded;
use tidemark_proto::msg::{Award, MilestoneSpec, Reading};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::http::{
    Add, Added, AwardFilter, AwardPosition, Backend, Failure, MilestoneList, MilestoneState, MilestoneStatus,
};

/// How long an increment's place is waited for; then it is `pending`, as it may be for as long as a data centre is away.
const PLACE_PATIENCE: Duration = Duration::from_secs(2);
/// How long an increment's durability is waited for; then it is in doubt.
const DURABLE_PATIENCE: Duration = Duration::from_secs(20);
/// How long a definition may take until it has been applied here.
const DEFINE_PATIENCE: Duration = Duration::from_secs(20);
const DEFINE_POLL: Duration = Duration::from_millis(10);
/// Awards that a subscriber may be behind before it has to ask.
const AWARDS_BEHIND_MAX: usize = 1_024;

/// An aggregator and a client as one backend.
pub struct LocalBackend {
    aggregator: Aggregator,
    client: Client,
    awarded: Arc<Mutex<AwardLine>>,
    following: JoinHandle<()>,
}

/// Awards in the order of their positions, each once.
struct AwardLine {
    last: AwardPosition,
    sender: broadcast::Sender<Award>,
}

impl LocalBackend {
    /// A backend for both. To be called within a tokio runtime.
    pub fn new(aggregator: Aggregator, client: Client) -> LocalBackend {
        let mut live = aggregator.subscribe();
        let line = AwardLine { last: AwardPosition::default(), sender: broadcast::channel(AWARDS_BEHIND_MAX).0 };
        let awarded = Arc::new(Mutex::new(line));
        catch_up(&awarded, &aggregator);
        let following = tokio::spawn({
            let (awarded, aggregator) = (awarded.clone(), aggregator.clone());
            async move { while follow(&mut live, &awarded, &aggregator).await {} }
        });
        LocalBackend { aggregator, client, awarded, following }
    }

    async fn count(&self, add: &Add) -> Result<Added, Failure> {
        let hit = self.client.hit_weighted(&add.counter, add.session, add.delta).await.map_err(failure)?;
        match tokio::time::timeout(DURABLE_PATIENCE, hit.durable()).await {
            Ok(durable) => durable.map_err(failure)?,
            Err(_) => return Err(Failure::InDoubt("the node did not answer in time".to_owned())),
        }
        match hit.within(PLACE_PATIENCE).await {
            Ok(HitOutcome::Placed(place)) => Ok(Added::Placed(place)),
            Ok(HitOutcome::Pending(_)) | Err(HitError::PlaceUnknown) => Ok(Added::Pending),
            Err(error) => Err(failure(error)),
        }
    }

    fn list(&self, counter: &CounterName) -> MilestoneList {
        let milestones =
            self.aggregator.milestones(counter).into_iter().map(|(at, state)| status_of(at, state)).collect();
        let (every, sequence_from) = self.aggregator.with_ledger(|ledger| {
            let state = ledger.counter(counter);
            (state.and_then(|state| state.milestones().every()), state.and_then(|state| state.sequence_from()))
        });
        MilestoneList { milestones, every, sequence_from }
    }

    /// Waits until the ledger as applied here satisfies `done`, or another change came before the one decided on `revision`.
    async fn applied(
        &self,
        counter: &CounterName,
        revision: u64,
        done: impl Fn(&MilestoneList) -> bool,
    ) -> Result<MilestoneList, Failure> {
        let deadline = Instant::now() + DEFINE_PATIENCE;
        loop {
            let moved = self.aggregator.revision(counter) > revision;
            let list = self.list(counter);
            if done(&list) {
                return Ok(list);
            }
            if moved {
                let message =
                    format!("the milestones of {counter} were changed at the same time: look, and decide again");
                return Err(Failure::Conflict { code: "changed", message });
            }
            if Instant::now() >= deadline {
                return Err(Failure::InDoubt("the ledger did not answer in time".to_owned()));
            }
            sleep(DEFINE_POLL).await;
        }
    }
}

impl Drop for LocalBackend {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl Backend for LocalBackend {
    async fn add(&self, add: Add) -> Result<Added, Failure> {
        self.count(&add).await
    }

    async fn read(&self, counters: &[CounterName]) -> Result<Vec<Reading>, Failure> {
        Ok(self.aggregator.get_many(counters.iter()))
    }

    async fn define(&self, counter: CounterName, spec: MilestoneSpec) -> Result<MilestoneList, Failure> {
        let (at, every) = (spec.at.clone(), spec.every);
        let revision = self.aggregator.define(&counter, spec).await?;
        let has = |list: &MilestoneList, at: &u64| list.milestones.iter().any(|milestone| milestone.at == *at);
        let done = |list: &MilestoneList| at.iter().all(|at| has(list, at)) && (every.is_none() || list.every == every);
        self.applied(&counter, revision, done).await
    }

    async fn disarm(&self, counter: CounterName, at: Option<u64>) -> Result<MilestoneList, Failure> {
        let revision = self.aggregator.disarm(&counter, at).await?;
        let open = |state| matches!(state, MilestoneState::Arming | MilestoneState::Armed);
        let gone = |list: &MilestoneList| match at {
            Some(at) => !list.milestones.iter().any(|milestone| milestone.at == at && open(milestone.state)),
            None => list.every.is_none(),
        };
        self.applied(&counter, revision, gone).await
    }

    async fn milestones(&self, counter: &CounterName) -> Result<MilestoneList, Failure> {
        Ok(self.list(counter))
    }

    async fn awards(&self, filter: AwardFilter) -> Result<Vec<Award>, Failure> {
        let mut awards: Vec<Award> =
            self.aggregator.awards(filter.counter.as_ref()).into_iter().map(|a| a.award).collect();
        awards.retain(|award| filter.matches(award));
        awards.sort_by_key(AwardPosition::of);
        awards.truncate(filter.limit);
        Ok(awards)
    }

    async fn certificate(&self, counter: &CounterName, at: u64) -> Result<Option<Awarded>, Failure> {
        Ok(self.aggregator.awards(Some(counter)).into_iter().find(|awarded| covers(&awarded.award, at)))
    }

    async fn status(&self) -> serde_json::Value {
        let raft = self.aggregator.raft();
        let cluster = self.aggregator.cluster();
        let (groups, applied) = self.aggregator.with_ledger(|ledger| (ledger.groups().len(), ledger.applied().0));
        json!({
            "cluster": cluster.name,
            "dc": cluster.name_of(self.aggregator.dc()),
            "ready": self.ready().is_ok(),
            "reason": self.ready().err(),
            "groups": groups,
            "ledger": {
                "index": applied,
                "is_leader": raft.is_leader,
                "leader": raft.leader.and_then(|member| cluster.name_of(tidemark_aggregator::Cluster::dc_of_member(member)?)),
            },
        })
    }

    fn ready(&self) -> Result<(), String> {
        self.aggregator.ready()
    }

    fn awarded(&self) -> (AwardPosition, broadcast::Receiver<Award>) {
        let line = lock(&self.awarded);
        (line.last, line.sender.subscribe())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes on the next event; false when the aggregator has ended.
async fn follow(live: &mut broadcast::Receiver<LiveEvent>, line: &Mutex<AwardLine>, aggregator: &Aggregator) -> bool {
    match live.recv().await {
        Ok(LiveEvent::Award(event)) if !event.signature => catch_up(line, aggregator),
        Ok(_) => {}
        Err(broadcast::error::RecvError::Lagged(_)) => catch_up(line, aggregator),
        Err(broadcast::error::RecvError::Closed) => return false,
    }
    true
}

/// Sends every award behind the last one, in order: events may be missed, and may come in another order.
fn catch_up(line: &Mutex<AwardLine>, aggregator: &Aggregator) {
    let mut line = lock(line);
    let mut news = awards_after(aggregator, line.last);
    news.sort_by_key(AwardPosition::of);
    for award in news {
        line.last = AwardPosition::of(&award);
        let _ = line.sender.send(award);
    }
}

/// Awards behind a position. A counter's awards are in the order of their milestones, so each is read from its end.
fn awards_after(aggregator: &Aggregator, last: AwardPosition) -> Vec<Award> {
    aggregator.with_ledger(|ledger| {
        let counters = ledger.guarded().filter_map(|name| ledger.counter(name));
        let newer = |awarded: &&Awarded| AwardPosition::of(&awarded.award) > last;
        counters.flat_map(|state| state.awards().values().rev().take_while(newer)).map(|a| a.award.clone()).collect()
    })
}

fn covers(award: &Award, at: u64) -> bool {
    let Some(above) = at.checked_sub(award.at) else { return false };
    match award.step {
        0 => above == 0,
        step => above.is_multiple_of(step) && above / step < award.count,
    }
}

fn status_of(at: u64, state: State) -> MilestoneStatus {
    let (state, waits_for) = match state {
        State::Arming { groups, views } => (MilestoneState::Arming, groups.into_iter().chain(views).collect()),
        State::Armed => (MilestoneState::Armed, Vec::new()),
        State::Passed => (MilestoneState::Passed, Vec::new()),
        State::Awarded => (MilestoneState::Awarded, Vec::new()),
    };
    MilestoneStatus { at, state, waits_for }
}

fn failure(error: HitError) -> Failure {
    let message = error.to_string();
    match error {
        HitError::Overloaded { limit } => {
            Failure::Overloaded { what: "hits of this process".into(), limit: limit as u64 }
        }
        HitError::Failed(AddError::Refused(error)) => error.into(),
        HitError::Failed(AddError::Delta { .. }) => Failure::Invalid { code: "delta", message },
        HitError::Unknown => Failure::InDoubt(message),
        _ => Failure::NotServing(message),
    }
}
