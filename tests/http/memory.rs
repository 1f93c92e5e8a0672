//! A backend in memory: one counter table, milestones that award at once, faults on demand. Nothing
//! flows along its edges, so its totals are direct counts.

use crate::rows::{Counted, NOW, NOW_S, Rows};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tidemark_proto::ids::{Birth, ClientId, CounterName, DcId, GroupId, Half, LogIndex, SessionId};
use tidemark_proto::ledger::{Awarded, Births, DefineError};
use tidemark_proto::limits::DELTA_MAX;
use tidemark_proto::msg::{Award, AwardSignature, BatchError, MilestoneSpec, Place, Policy, Reading};
use tidemark_proto::query::{
    Among, AsOf, Exported, KeyRange, Page, Ranking, SeriesQuery, SeriesRead, TopAsOf, WindowQuery, read_at, read_series,
};
use tidemark_proto::series::{NotAdmitted, SeriesPolicy, UnixTime};
use tidemark_proto::time::WallMs;
use tidemark_proto::wire;
use tidemark_server::api::body::{AwardBody, PolicyBody};
use tidemark_server::api::dcs::{DcBody as DcListedBody, DcsBody};
use tidemark_server::api::groups::{GroupBody, GroupName, GroupsBody};
use tidemark_server::api::ledger::{ChangeVotersBody, MembersBody};
use tidemark_server::api::series::Of;
use tidemark_server::api::slots::{MoveSlotBody, SlotBody, SlotsBody, SplitBody};
use tidemark_server::audit::AuditBody;
use tidemark_server::backup::serve::ImageStream;
use tidemark_server::claims::Claims;
use tidemark_server::edges::{AuditBody as EdgesAuditBody, ChangeBody, ChangedBody, GraphBody};
use tidemark_server::hops::Hops;
use tidemark_server::http::{
    Add, Added, AggregatorProcess, AwardFilter, AwardPosition, AwardState, CLUSTER_AWARDS_MAX, ClaimTurn, ClusterBody,
    Counted as CountedLine, DcBody, Failure, HealthCheck, HealthState, History, LedgerBody, MilestoneList,
    MilestoneState, MilestoneStatus, Mode, NamespaceBody, News, NodeStatusBody, Process, Progress, ReadVersion,
    StatusBody,
};
use tidemark_server::lives::Lives;
use tidemark_server::names::counter_text;
use tidemark_server::series::TermsBody;
use tidemark_transport::Credentials;
use tokio::sync::broadcast;

/// When each award was decided.
pub const AWARD_TIME: WallMs = WallMs(1_795_846_544_120);

/// Few, so that a test can make a receiver miss some.
const EVENTS_MAX: usize = 4;

/// Earlier events are too late.
pub const KEPT_FROM_S: u64 = 1_700_000_000;

/// There are no others. Counters of the last may go down.
const NAMESPACES: [&str; 3] = ["default", "search", "stock"];

/// Every increment of this key is awarded.
const EACH: &[u8] = b"each";

pub struct Memory {
    state: Mutex<State>,
    /// The increments with an id.
    ids: tokio::sync::Mutex<BTreeMap<[u8; 16], (Add, Added)>>,
    events: broadcast::Sender<News>,
    signer: Option<Credentials>,
    pub unready: AtomicBool,
    /// Increments stay pending.
    pub pending: AtomicBool,
    /// An increment takes a while.
    pub slow: AtomicBool,
    /// All awards come of one entry of the ledger.
    pub in_one_entry: AtomicBool,
    /// Of every counter with a milestone.
    pub rate: AtomicU64,
    /// Entries of the ledger that this process has heard of, until it catches up with it.
    pub heard: AtomicU64,
    /// The ledger cannot be asked.
    pub away: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Of the cluster, before the present one.
    restored: Option<Births>,
    /// How often it was founded.
    founded: u64,
    /// The entry behind which the present birth begins.
    base: u64,
    counters: BTreeMap<CounterName, u64>,
    down: BTreeMap<CounterName, u64>,
    milestones: BTreeMap<CounterName, Vec<u64>>,
    /// Milestones that are defined as timely.
    timely: Vec<u64>,
    awards: Vec<Award>,
    /// The increments with a time of their own.
    events: Vec<(CounterName, UnixTime, u64)>,
    turns: Vec<ClaimTurn>,
    rows: Rows,
    /// By counter, those that flow straight to it.
    parents: BTreeMap<CounterName, Vec<CounterName>>,
}

impl State {
    fn births(&self) -> Births {
        let mut births = self.restored.clone().unwrap_or_default();
        births.begin(Birth(NonZeroU64::MIN.saturating_add(self.founded)));
        births
    }

    fn counted(&self) -> Counted<'_> {
        Counted { rows: &self.rows, up: &self.counters, down: &self.down }
    }
}

impl Memory {
    pub fn new(signer: Option<Credentials>) -> Memory {
        let (events, _) = broadcast::channel(EVENTS_MAX);
        Memory {
            state: Mutex::default(),
            ids: Default::default(),
            events,
            signer,
            unready: AtomicBool::new(false),
            pending: AtomicBool::new(false),
            slow: AtomicBool::new(false),
            in_one_entry: AtomicBool::new(false),
            rate: AtomicU64::new(0),
            heard: AtomicU64::new(u64::MAX),
            away: AtomicBool::new(false),
        }
    }

    /// Counts what happened so long ago.
    pub fn count_ago(&self, counter: &str, ago_s: u64, delta: u64) {
        let counter = crate::support::add(counter, delta).counter;
        let mut state = self.state.lock().unwrap();
        *state.counters.entry(counter.clone()).or_default() += delta;
        state.rows.count(&counter, Half::Up, NOW_S - ago_s, delta);
    }

    /// Lets counts of one counter flow to another, as far as a reader of its parents can see.
    pub fn flow(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| crate::support::add(name, 1).counter);
        self.state.lock().unwrap().parents.entry(to).or_default().push(from);
    }

    /// Counts and awards, as a cluster would.
    pub fn count(&self, add: &Add) -> Added {
        let mut state = self.state.lock().unwrap();
        state.rows.count(&add.counter, Half::Up, NOW_S, add.delta);
        let value = state.counters.entry(add.counter.clone()).or_default();
        let first = *value + 1;
        *value += add.delta;
        let range = first..=*value;
        let reached = state.milestones.get(&add.counter).into_iter().flatten().copied().find(|at| range.contains(at));
        let reached = reached.or((add.counter.key() == EACH).then_some(first));
        let Some(at) = reached else { return Added::Placed(Place::Counted) };
        let one = self.in_one_entry.load(Ordering::Relaxed);
        let award = award(add, at, first, if one { 1 } else { state.base + state.awards.len() as u64 + 1 });
        state.milestones.entry(add.counter.clone()).or_default().retain(|&other| other != at);
        state.awards.push(award.clone());
        let _ = self.events.send(News::Award(award));
        Added::Placed(Place::Milestone { at, first })
    }

    /// All is gone, and another cluster begins.
    pub fn found_anew(&self) {
        let mut state = self.state.lock().unwrap();
        let founded = state.founded + 1;
        *state = State { founded, ..State::default() };
    }

    /// All is gone but the first awards: a cluster goes on from an image of them.
    pub fn restore(&self, awards: usize) {
        let mut state = self.state.lock().unwrap();
        state.awards.truncate(awards);
        let until = LogIndex(state.base + awards as u64);
        state.restored = Some(state.births().ended(until));
        state.founded += 1;
        state.base += 1_000_000;
    }

    /// A claim takes a turn, behind all awards.
    pub fn turn(&self, turn: ClaimTurn) {
        self.state.lock().unwrap().turns.push(turn.clone());
        let _ = self.events.send(News::Claim(turn));
    }

    pub fn count_ones(&self, counter: &str, times: u64) {
        for _ in 0..times {
            self.count(&crate::support::add(counter, 1));
        }
    }

    /// All that requests can change.
    pub fn fingerprint(&self) -> String {
        let state = self.state.lock().unwrap();
        let State { counters, down, milestones, timely, awards, events, turns, parents, .. } = &*state;
        let series = NAMESPACES.map(|name| state.rows.terms(name).map(|terms| terms.revision));
        format!("{:?}", (counters, down, milestones, timely, awards, events, turns, parents, series))
    }

    /// Number of followers of awards, with the callers that wait for an award.
    pub fn followers(&self) -> usize {
        self.events.receiver_count()
    }

    /// The increments with a time of their own, in order.
    pub fn events(&self) -> Vec<(String, u64, u64)> {
        let of = |(name, event, delta): &(CounterName, UnixTime, u64)| (counter_text(name), event.s(), *delta);
        self.state.lock().unwrap().events.iter().map(of).collect()
    }

    pub fn value(&self, counter: &CounterName) -> u64 {
        self.state.lock().unwrap().counters.get(counter).copied().unwrap_or(0)
    }

    fn reading(&self, counter: &CounterName) -> Reading {
        let down = self.state.lock().unwrap().down.get(counter).copied().unwrap_or(0);
        Reading { up: self.value(counter), down, ..Reading::default() }
    }

    fn list(&self, counter: &CounterName) -> MilestoneList {
        let state = self.state.lock().unwrap();
        let awarded = state.awards.iter().filter(|award| award.counter == *counter).map(|award| award.at);
        let policy = |at| state.timely.contains(&at).then_some(PolicyBody::Timely);
        let status = |at, state| MilestoneStatus { at, state, policy: policy(at), waits_for: Vec::new() };
        let awarded = awarded.map(|at| status(at, MilestoneState::Awarded));
        let armed = state.milestones.get(counter).into_iter().flatten().map(|&at| status(at, MilestoneState::Armed));
        MilestoneList { milestones: awarded.chain(armed).collect(), every: None, sequence_from: None }
    }
}

fn award(add: &Add, at: u64, first: u64, index: u64) -> Award {
    let group = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
    Award {
        counter: add.counter.clone(),
        epoch: 1,
        at,
        step: 0,
        count: 1,
        first,
        delta: add.delta,
        group,
        pos: 0,
        client: ClientId(1),
        lane: 0,
        seq: 1,
        idx: 0,
        session: add.session,
        before: vec![(group, first - 1)],
        index: LogIndex(index),
        time: Some(AWARD_TIME),
    }
}

impl Memory {
    /// Counts, whatever was counted before.
    async fn add_anew(&self, add: Add) -> Result<Added, Failure> {
        if !NAMESPACES.contains(&add.counter.namespace()) {
            return Err(BatchError::UnknownNamespace(add.counter.namespace().to_owned()).into());
        }
        if add.delta == 0 || add.delta > DELTA_MAX {
            return Err(BatchError::Delta { idx: 0, delta: add.delta, max: DELTA_MAX }.into());
        }
        if let Some(event) = add.event {
            let event_s = event.s();
            if event_s < KEPT_FROM_S {
                let why = NotAdmitted::TooLate { event_s, late_s: KEPT_FROM_S + 3_600 - event_s, late_max_s: 3_600 };
                return Err(BatchError::Event { idx: 0, why }.into());
            }
            self.state.lock().unwrap().events.push((add.counter.clone(), event, add.delta));
        }
        if add.half == Half::Down {
            if add.counter.namespace() != "stock" {
                return Err(BatchError::GrowOnly(add.counter.namespace().to_owned()).into());
            }
            let mut state = self.state.lock().unwrap();
            state.rows.count(&add.counter, Half::Down, NOW_S, add.delta);
            *state.down.entry(add.counter).or_default() += add.delta;
            return Ok(Added::Placed(Place::Counted));
        }
        if self.slow.load(Ordering::Relaxed) {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        let added = self.count(&add);
        Ok(if self.pending.load(Ordering::Relaxed) { Added::Pending } else { added })
    }
}

impl Process for Memory {
    async fn status(&self) -> StatusBody {
        let dc = "usa-0".to_owned();
        let ready = self.ready();
        let reason = ready.as_ref().err().map(ToString::to_string);
        StatusBody::Node(NodeStatusBody { dc, node: 0, ready: ready.is_ok(), reason, groups: Vec::new() })
    }

    fn health(&self) -> Vec<HealthCheck> {
        let reads = match self.unready.load(Ordering::Relaxed) {
            true => (HealthState::Fails, Some("the ledger's log is not applied yet".to_owned())),
            false => (HealthState::Ok, None),
        };
        let ledger = (HealthState::Degraded, Some("the ledger has no leader".to_owned()));
        let check = |name, (state, reason)| HealthCheck { name, state, reason };
        vec![check("reads", reads), check("ledger", ledger)]
    }

    fn measure(&self) {}
}

/// What the memory has nothing of.
fn absent() -> Failure {
    Failure::NotFound("the memory has nothing of the kind".to_owned())
}

impl AggregatorProcess for Memory {
    async fn add(&self, add: Add) -> Result<Added, Failure> {
        let Some(id) = add.id.as_ref().map(|id| id.digest) else { return self.add_anew(add).await };
        let mut ids = self.ids.lock().await;
        match ids.get(&id) {
            Some((first, added)) if *first == add => Ok(*added),
            Some(_) => {
                Err(Failure::Mismatch { code: "id_reused", message: "another increment has this id".to_owned() })
            }
            None => {
                let added = self.add_anew(add.clone()).await?;
                ids.insert(id, (add, added));
                Ok(added)
            }
        }
    }

    async fn add_all(&self, adds: Vec<Add>) -> Vec<Result<CountedLine, Failure>> {
        let mut outcomes = Vec::with_capacity(adds.len());
        for add in adds {
            outcomes.push(self.add(add).await.map(|_| CountedLine::Now));
        }
        outcomes
    }

    fn has_namespace(&self, name: &str) -> bool {
        NAMESPACES.contains(&name)
    }

    fn namespaces(&self) -> Result<Vec<NamespaceBody>, Failure> {
        let body = |name: &str| {
            let series = self.state.lock().unwrap().rows.terms(name).is_ok_and(|terms| terms.policy.is_some());
            NamespaceBody { name: name.to_owned(), updown: name == "stock", series }
        };
        Ok(NAMESPACES.map(body).into())
    }

    async fn read(&self, counters: &[CounterName]) -> Result<Vec<Reading>, Failure> {
        Ok(counters.iter().map(|counter| self.reading(counter)).collect())
    }

    async fn read_fresh(&self, counter: &CounterName) -> Result<(Reading, ReadVersion), Failure> {
        if self.slow.load(Ordering::Relaxed) {
            return Err(Failure::NotServing("group memory/0 has not answered within 5 s".to_owned()));
        }
        let reading = self.reading(counter);
        Ok((reading, ReadVersion::new("memory", [((0, 1), reading.up + reading.down)])))
    }

    async fn read_at(&self, _: Of, counters: &[CounterName], windows: &[WindowQuery]) -> Result<AsOf, Failure> {
        Ok(read_at(&self.state.lock().unwrap().counted(), NOW, counters, windows)?)
    }

    async fn read_series(
        &self,
        _: Of,
        namespace: &str,
        counters: &[CounterName],
        query: &SeriesQuery,
    ) -> Result<SeriesRead, Failure> {
        Ok(read_series(&self.state.lock().unwrap().counted(), NOW, namespace, counters, query)?)
    }

    async fn scan(&self, _: Of, keys: &KeyRange, most: usize) -> Result<Page, Failure> {
        Ok(self.state.lock().unwrap().rows.scan(keys, most))
    }

    async fn top(&self, _: Of, mut ranking: Ranking) -> Result<TopAsOf, Failure> {
        let mut state = self.state.lock().unwrap();
        while let Some((among, most)) = ranking.next() {
            let page = match among {
                Among::Keys(keys) => state.rows.scan(keys, most),
                Among::FlowingTo { counter, behind } => {
                    let all = state.parents.get(counter).map(Vec::as_slice).unwrap_or_default();
                    let from =
                        behind.as_ref().map_or(0, |behind| all.iter().position(|parent| parent == behind).unwrap() + 1);
                    Page { counters: all[from..].iter().take(most).cloned().collect(), next: None }
                }
            };
            let read = read_at(&state.counted(), NOW, &page.counters, std::slice::from_ref(ranking.window()))?;
            ranking.take(page, &read)?;
        }
        let places = ranking.places();
        let read = read_at(&state.counted(), NOW, places.counters(), places.windows())?;
        Ok(places.answered(read))
    }

    async fn series_terms(&self, namespace: &str) -> Result<TermsBody, Failure> {
        self.state.lock().unwrap().rows.terms(namespace)
    }

    async fn set_series_terms(&self, namespace: &str, policy: SeriesPolicy) -> Result<TermsBody, Failure> {
        self.state.lock().unwrap().rows.set_terms(namespace, policy)
    }

    async fn define(&self, counter: CounterName, spec: MilestoneSpec) -> Result<MilestoneList, Failure> {
        let count = self.value(&counter);
        if let Some(&at) = spec.at.iter().find(|&&at| at <= count) {
            return Err(DefineError::NotAbove { at, count }.into());
        }
        let mut state = self.state.lock().unwrap();
        state.timely.extend(spec.at.iter().filter(|_| spec.policy == Policy::Timely));
        state.milestones.entry(counter.clone()).or_default().extend(spec.at);
        drop(state);
        Ok(self.list(&counter))
    }

    async fn disarm(&self, counter: CounterName, at: Option<u64>) -> Result<MilestoneList, Failure> {
        let mut state = self.state.lock().unwrap();
        state.milestones.entry(counter.clone()).or_default().retain(|&other| Some(other) != at);
        drop(state);
        Ok(self.list(&counter))
    }

    async fn milestones(&self, counter: &CounterName) -> Result<MilestoneList, Failure> {
        Ok(self.list(counter))
    }

    async fn awards(&self, filter: AwardFilter) -> Result<Vec<Award>, Failure> {
        let state = self.state.lock().unwrap();
        let after = state.awards.partition_point(|award| award.index.0 < filter.after.index);
        let behind = state.awards[after..].iter().filter(|award| AwardPosition::of(award) > filter.after);
        Ok(behind.filter(|award| filter.wants(&award.counter)).take(filter.limit).cloned().collect())
    }

    async fn news(&self, filter: AwardFilter) -> Result<Vec<News>, Failure> {
        let after = filter.after;
        let limit = filter.limit;
        let awards = self.awards(filter).await?.into_iter().map(News::Award);
        let turns = self.state.lock().unwrap().turns.clone().into_iter().map(News::Claim);
        Ok(awards.chain(turns.filter(|turn| turn.position() > after)).take(limit).collect())
    }

    async fn news_of(&self, session: SessionId, after: AwardPosition, limit: usize) -> Result<Vec<News>, Failure> {
        let filter = AwardFilter { namespace: None, counter: None, after, limit: usize::MAX };
        let own = self.news(filter).await?.into_iter().filter(|news| news.session() == Some(session));
        Ok(own.take(limit).collect())
    }

    async fn certificate(&self, counter: &CounterName, at: u64) -> Result<Option<Awarded>, Failure> {
        let state = self.state.lock().unwrap();
        let award = state.awards.iter().find(|award| award.counter == *counter && award.at == at).cloned();
        let sign = |award: &Award| {
            let certificate = |signer: &Credentials| AwardSignature {
                dc: DcId(0),
                signature: signer.sign(&wire::encode(award)).to_vec(),
                certificate: signer.certificate_der().to_vec(),
            };
            self.signer.iter().map(certificate).collect()
        };
        Ok(award.map(|award| Awarded { signatures: sign(&award), award, written_off: 0 }))
    }

    async fn cluster(&self, counter: &CounterName) -> Result<ClusterBody, Failure> {
        let (total, state) = (self.value(counter), self.state.lock().unwrap());
        let next_milestone = state.milestones.get(counter).and_then(|all| all.iter().min().copied());
        let rights = next_milestone.map(|at| at - 1 - total);
        let own = DcBody {
            name: "usa-0".to_owned(),
            place: None,
            voter: true,
            reachable: true,
            round_trip_ms: None,
            heard_ms: None,
            counted: total.into(),
            rights,
            mode: Mode::of(true, rights),
            pending: rights.map(|_| 0),
        };
        let births = state.births();
        let awards = state.awards.iter().rev().filter(|award| award.counter == *counter);
        Ok(ClusterBody {
            dc: own.name.clone(),
            ledger: LedgerBody { index: state.awards.len() as u64, leader: Some(own.name.clone()) },
            counter: counter.into(),
            total: total.into(),
            known: total > 0,
            halves: None,
            pending: 0,
            next_milestone,
            awards: awards.take(CLUSTER_AWARDS_MAX).map(|award| AwardBody::new(award, &births)).collect(),
            dcs: vec![own],
        })
    }

    async fn award_state(&self, counter: &CounterName, at: u64) -> Result<AwardState, Failure> {
        if let Some(awarded) = self.certificate(counter, at).await? {
            return Ok(AwardState::Awarded(Box::new(awarded.award)));
        }
        let armed = self.list(counter).milestones.iter().any(|milestone| milestone.at == at);
        Ok(match armed {
            true if at <= self.value(counter) => AwardState::Passed,
            true => AwardState::Coming(MilestoneState::Armed),
            false => AwardState::Unknown,
        })
    }

    async fn progress(&self, counter: &CounterName) -> Result<Progress, Failure> {
        let reading = Reading { pending: 2, ..self.reading(counter) };
        let milestones = self.list(counter).milestones;
        let next = milestones
            .iter()
            .filter(|milestone| milestone.state == MilestoneState::Armed)
            .map(|milestone| milestone.at);
        let next = next.min().map(|at| (at, MilestoneState::Armed));
        let mode = if next.is_some() { Mode::Rights } else { Mode::Free };
        Ok(Progress { reading, next, rate_per_s: next.map(|_| self.rate.load(Ordering::Relaxed)), mode })
    }

    async fn export(&self, _: &[CounterName]) -> Result<(WallMs, Vec<Exported>), Failure> {
        Err(absent())
    }

    async fn audit(&self, _: &CounterName, _: bool) -> Result<AuditBody, Failure> {
        Err(absent())
    }

    async fn change_edges(&self, _: ChangeBody) -> Result<ChangedBody, Failure> {
        Err(absent())
    }

    async fn allow_edges(&self, _: &str, _: &str) -> Result<(), Failure> {
        Err(absent())
    }

    async fn graph_of(&self, _: &CounterName) -> Result<GraphBody, Failure> {
        Err(absent())
    }

    async fn edges_audit(&self, _: Option<u64>) -> Result<EdgesAuditBody, Failure> {
        Err(absent())
    }

    async fn slots(&self) -> Result<SlotsBody, Failure> {
        Err(absent())
    }

    async fn move_slot(&self, _: MoveSlotBody) -> Result<SlotBody, Failure> {
        Err(absent())
    }

    async fn stay_slot(&self, _: u16) -> Result<SlotBody, Failure> {
        Err(absent())
    }

    async fn split_slot(&self, _: u16, _: Option<CounterName>) -> Result<SplitBody, Failure> {
        Err(absent())
    }

    async fn groups(&self) -> Result<GroupsBody, Failure> {
        Err(absent())
    }

    async fn declare_lost(&self, _: GroupName, _: bool) -> Result<GroupBody, Failure> {
        Err(absent())
    }

    async fn dcs(&self) -> Result<DcsBody, Failure> {
        Err(absent())
    }

    async fn forget(&self, _: &str, _: bool) -> Result<DcListedBody, Failure> {
        Err(absent())
    }

    async fn image(&self) -> Result<ImageStream, Failure> {
        Err(absent())
    }

    async fn members(&self) -> Result<MembersBody, Failure> {
        Err(absent())
    }

    async fn change_voters(&self, _: ChangeVotersBody) -> Result<MembersBody, Failure> {
        Err(absent())
    }

    async fn set_aside(&self, _: String) -> Result<MembersBody, Failure> {
        Err(absent())
    }

    fn hops(&self) -> Option<&Hops> {
        None
    }

    fn claims(&self) -> Option<&Claims> {
        None
    }

    fn lives(&self) -> Option<&Lives> {
        None
    }

    fn history(&self) -> History {
        let state = self.state.lock().unwrap();
        let known =
            state.awards.last().map(|award| award.index.0).into_iter().chain(state.turns.iter().map(|turn| turn.index));
        let applied = known.max().unwrap_or(0).min(self.heard.load(Ordering::Relaxed));
        History { births: state.births(), applied: LogIndex(applied) }
    }

    async fn catch_up_with_ledger(&self) -> Result<(), Failure> {
        if self.away.load(Ordering::Relaxed) {
            return Err(Failure::NotServing("the leader does not answer".to_owned()));
        }
        self.heard.store(u64::MAX, Ordering::Relaxed);
        Ok(())
    }

    fn subscribe(&self) -> (AwardPosition, broadcast::Receiver<News>) {
        let state = self.state.lock().unwrap();
        (state.awards.last().map(AwardPosition::of).unwrap_or_default(), self.events.subscribe())
    }
}
