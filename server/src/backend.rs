//! The questions of HTTP, answered by an aggregator of this process and a client of its data centre's node. It moves questions and answers;
//! every rule is the aggregator's, the node's or the ledger's.

mod health;
pub(crate) mod many;
mod shared;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tidemark_aggregator::{
    Aggregator, CatchUpError, Cluster, GroupStanding, IMAGES_MAX, ImageError, LEDGER_PATIENCE, MemberStanding,
    MilestoneState as State, VoterChange, shown,
};
use tidemark_client::{Builder as ClientBuilder, Client, ConnectError, HitError, HitOutcome};
use tidemark_node::Statuses;
use tidemark_proto::asking::About;
use tidemark_proto::ids::{AggregatorId, CounterName, DcId, GroupId, Half, SessionId};
use tidemark_proto::ledger::{Awarded, Fate, Ledger, MoveError};
use tidemark_proto::limits::LOST_AFTER;
use tidemark_proto::msg::{Award, MilestoneSpec, Reading};
use tidemark_proto::query::{AsOf, Exported, KeyRange, Page, Ranking, SeriesQuery, SeriesRead, TopAsOf, WindowQuery};
use tidemark_proto::series::SeriesPolicy;
use tidemark_proto::shards::{Seats, ShardId, Split};
use tidemark_proto::time::WallMs;
use tidemark_transport::{BindError, Endpoint};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::api::cluster::ClusterBody;
use crate::api::dcs::{DcBody, DcsBody, Member};
use crate::api::groups::{GroupBody, GroupName, GroupState, GroupsBody, StakeBody};
use crate::api::lag::ViewLag;
use crate::api::ledger::{ChangeVotersBody, MemberBody, MembersBody, voters_warning};
use crate::api::namespaces::NamespaceBody;
use crate::api::series::Of;
use crate::api::slots::{MoveSlotBody, SlotBody, SlotsBody, SplitBody};
use crate::api::status::{AggregatorStatusBody, LedgerStatusBody, SilentGroupBody, StatusBody};
use crate::api::{
    Add, Added, AwardFilter, AwardPosition, AwardState, Counted, Failure, HealthCheck, History, MilestoneList,
    MilestoneState, MilestoneStatus, Mode, News, Progress, ReadVersion,
};
use crate::audit::{self, AuditBody};
use crate::backup::serve::{self, ImageStream};
use crate::claims::Claims;
use crate::edges::{AuditBody as EdgesAuditBody, ChangeBody, ChangedBody, Edges, GraphBody};
use crate::gauges;
use crate::hops::Hops;
use crate::idempotency::Idempotency;
use crate::lives::Lives;
use crate::names::counter_text;
use crate::news::{self, NewsLine};
use crate::patience::{DURABLE_PATIENCE, PLACE_PATIENCE, late};
use crate::places::Place;
use crate::process::{AggregatorProcess, Process};
use crate::series::{Series, TermsBody, ToOthers};
use crate::session::SessionKeys;
use crate::standing;
use crate::tally::Tally;
use shared::SharedQuestion;

/// A node of which nothing is heard for so long is lost to the client behind the HTTP interface, in milliseconds.
const GROUP_SILENCE_MS: u64 = 1_000;
/// That client uses the next group after so long: of this data centre, else of the next one.
const SITE_TIMEOUT: Duration = Duration::from_secs(3);

/// Begins the client behind an HTTP interface, on the endpoint of its process. It notices soon that a node is gone.
pub fn client_builder(endpoint: &Endpoint) -> Result<ClientBuilder, ConnectError> {
    let endpoint = endpoint.noticing_within(GROUP_SILENCE_MS).map_err(BindError::from)?;
    Ok(Client::builder().endpoint(endpoint).site_timeout(SITE_TIMEOUT))
}

/// An aggregator and a client as one backend.
pub struct LocalBackend {
    aggregator: Aggregator,
    client: Client,
    news: NewsLine,
    following: JoinHandle<()>,
    tallied: Option<Arc<Tally>>,
    hops: Option<Hops>,
    idempotency: Idempotency,
    claims: Claims,
    lives: Lives,
    series: Series,
    /// How far the ledger's log is applied here.
    catching_up: SharedQuestion<Result<(), CatchUpError>>,
    /// Namespaces that the ledger must know before the process is ready.
    namespaces: Vec<String>,
    /// Of the data centres, by their numbers, where they are known.
    places: Vec<Option<Place>>,
    /// Of the node in the same process, if there is one, for `/metrics`.
    node: Option<(String, Statuses)>,
}

impl LocalBackend {
    /// A backend for both. To be called within a tokio runtime.
    pub fn new(aggregator: Aggregator, client: Client) -> LocalBackend {
        let mut live = aggregator.subscribe();
        let news = NewsLine::new(&aggregator);
        let following = tokio::spawn({
            let news = news.clone();
            let aggregator = aggregator.clone();
            async move { while news.follow(&mut live, &aggregator).await {} }
        });
        let claims = Claims::new(&aggregator);
        let lives = Lives::new(&aggregator);
        let series = Series::new(&aggregator);
        let idempotency = Idempotency::new(&aggregator, &client);
        LocalBackend {
            aggregator,
            client,
            news,
            following,
            tallied: None,
            hops: None,
            idempotency,
            claims,
            lives,
            series,
            catching_up: SharedQuestion::new(),
            namespaces: Vec::new(),
            places: Vec::new(),
            node: None,
        }
    }

    /// Shows the metrics of a node that is in the same process.
    pub fn beside(mut self, dc: &str, statuses: Statuses) -> LocalBackend {
        self.node = Some((dc.to_owned(), statuses));
        self
    }

    /// The newest awards of some counters, oldest first.
    pub fn newest_awards(&self, counters: &[&CounterName], most: usize) -> Vec<Award> {
        let mut awards: Vec<Award> = self.aggregator.with_ledger(|ledger| {
            counters.iter().flat_map(|counter| standing::newest_awards(ledger, counter, most)).cloned().collect()
        });
        awards.sort_by_key(AwardPosition::of);
        awards.split_off(awards.len().saturating_sub(most))
    }

    /// Is ready only once the ledger knows these namespaces.
    pub fn expecting(mut self, namespaces: Vec<String>) -> LocalBackend {
        self.namespaces = namespaces;
        self
    }

    /// Where the data centres stand, by their numbers.
    pub fn standing_at(mut self, places: Vec<Option<Place>>) -> LocalBackend {
        self.places = places;
        self
    }

    /// Answers others of the data centre about what is held here, too.
    pub fn answering_others(self) -> LocalBackend {
        self.aggregator.serve_held(Arc::new(ToOthers::new(&self.aggregator, self.places.clone())));
        self
    }

    /// Notes what is added to a counter here.
    pub fn tallying(mut self, counter: CounterName) -> LocalBackend {
        self.tallied = Some(Arc::new(Tally::new(counter)));
        self
    }

    /// Also counts queries that are sent on from one data centre to another, by tokens that these keys sign.
    pub fn hopping(mut self, keys: SessionKeys) -> LocalBackend {
        self.hops = Some(Hops::start(&self.aggregator, &self.idempotency, keys, self.tallied.clone()));
        self
    }

    /// The durable sum that came here to the tallied counter.
    pub fn tally(&self) -> u64 {
        self.tallied.as_ref().map_or(0, |tally| tally.sum())
    }

    async fn count(&self, add: &Add) -> Result<Added, Failure> {
        if let Some(id) = &add.id {
            return self.idempotency.add(add, id).await;
        }
        let until = Instant::now() + DURABLE_PATIENCE;
        let hit = many::send(&self.client, add, until).await?;
        many::durable(&self.client, &hit, until).await?;
        match hit.within(PLACE_PATIENCE).await {
            Ok(HitOutcome::Placed(place)) => Ok(Added::Placed(place)),
            Ok(HitOutcome::Pending(_)) | Err(HitError::PlaceUnknown) => Ok(Added::Pending),
            Err(error) => Err(error.into()),
        }
    }

    fn note(&self, add: &Add) {
        if let Some(tally) = self.tallied.as_ref().filter(|_| add.half == Half::Up) {
            tally.note(&add.counter, add.delta);
        }
    }

    fn group_body(&self, standing: &GroupStanding) -> GroupBody {
        let GroupStanding { group, fenced, lost, silent, stake } = standing;
        let is_silent = silent.as_micros() >= u128::from(LOST_AFTER.0);
        let state = match (lost, fenced, is_silent) {
            (true, ..) => GroupState::Lost,
            (_, true, _) => GroupState::Fenced,
            (_, _, true) => GroupState::Silent,
            _ => GroupState::Heard,
        };
        let body = |(counter, rights, counted): &(CounterName, u64, u64)| StakeBody {
            counter: counter.into(),
            rights: *rights,
            counted: *counted,
        };
        GroupBody {
            name: self.aggregator.incarnation_name(*group),
            state,
            silent_s: silent.as_secs(),
            refused: self.refusal_of_loss(*group, false).err().map(|failure| failure.to_string()),
            rights: stake.counters.iter().map(|(_, rights, _)| rights).sum(),
            counters: stake.counters.iter().map(body).collect(),
        }
    }

    fn dc_body(&self, dc: DcId) -> DcBody {
        let raft = self.aggregator.raft();
        let of_any = |members: &BTreeSet<u64>| AggregatorId::all(dc).any(|id| members.contains(&Cluster::member(id)));
        let member = match (of_any(&raft.voters), of_any(&raft.learners)) {
            (true, _) => Member::Voter,
            (_, true) => Member::Learner,
            _ => Member::None,
        };
        let (groups, rights, forgotten) = self.aggregator.with_ledger(|ledger| {
            let groups: Vec<GroupId> = ledger.groups_left(dc).collect();
            let stakes = groups.iter().flat_map(|&group| ledger.stake(group).counters);
            let rights = stakes.map(|(_, rights, _)| rights).sum();
            (groups, rights, ledger.is_forgotten(dc))
        });
        DcBody {
            name: self.aggregator.cluster().name_of(dc).unwrap_or("?").to_owned(),
            connected: self.aggregator.reaches(dc),
            forgotten,
            member,
            groups: groups.into_iter().map(|group| self.aggregator.incarnation_name(group)).collect(),
            rights,
            refused: self.refusal_of_forgetting(dc, false).err().map(|failure| failure.to_string()),
        }
    }

    /// Why a group would not be declared lost.
    fn refusal_of_loss(&self, group: GroupId, force: bool) -> Result<(), Failure> {
        let elsewhere = group.dc != self.aggregator.dc() && self.aggregator.reaches(group.dc);
        if elsewhere && !force {
            let dc = self.aggregator.cluster().name_of(group.dc).unwrap_or("?");
            let message = format!("{dc} can be reached, and its own aggregator knows best: ask that aggregator");
            return Err(Failure::Conflict { code: "elsewhere", message });
        }
        Ok(self.aggregator.may_declare_lost(group, force)?)
    }

    /// Why a data centre would not be given up.
    fn refusal_of_forgetting(&self, dc: DcId, force: bool) -> Result<(), Failure> {
        if dc == self.aggregator.dc() {
            let name = self.aggregator.cluster().name_of(dc).unwrap_or("?");
            let message = format!("{name} cannot give itself up: ask another data centre");
            return Err(Failure::Conflict { code: "itself", message });
        }
        Ok(self.aggregator.may_forget(dc, force)?)
    }

    /// Asks an aggregator of the data centre that holds the counter.
    async fn about<T: DeserializeOwned>(&self, what: About, counter: &CounterName) -> Result<T, Failure> {
        let said = self.aggregator.ask_about(what, counter).await?;
        let understood = serde_json::from_slice(&said);
        understood.map_err(|error| {
            Failure::NotServing(format!("the holder of {counter} gave an answer that cannot be read: {error}"))
        })
    }

    fn list(&self, counter: &CounterName) -> MilestoneList {
        let all = self.aggregator.milestones(counter).into_iter();
        let mut milestones: Vec<_> = all.map(|(at, state)| status_of(at, state)).collect();
        let (every, sequence_from) = self.aggregator.with_ledger(|ledger| {
            let Some(state) = ledger.counter(counter) else { return (None, None) };
            let to_come = milestones.iter_mut().filter(|status| state.milestones().get(status.at).is_some());
            to_come.for_each(|status| status.policy = Some(state.policy_of(status.at).into()));
            (state.milestones().every(), state.sequence_from())
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
        let look = || {
            // Before the list: a change that comes between the two is looked at next time.
            let moved = self.aggregator.revision(counter) > revision;
            let list = self.list(counter);
            let is_done = done(&list);
            (is_done || moved).then_some((is_done, list))
        };
        match shown(LEDGER_PATIENCE, look).await {
            Some((true, list)) => Ok(list),
            Some((false, _)) => {
                let message = format!(
                    "the milestones of {counter} were changed at the same time: read the present state, and decide again"
                );
                Err(Failure::Conflict { code: "changed", message })
            }
            None => Err(late()),
        }
    }

    /// The holders of a shard, once the ledger has applied a change of them.
    async fn slot_changed(&self, shard: ShardId, is_so: impl Fn(&Seats) -> bool) -> Result<SlotBody, Failure> {
        let applied =
            || self.aggregator.with_core(|core| is_so(core.seats())).then(|| self.series.slot(shard)).flatten();
        shown(LEDGER_PATIENCE, applied).await.ok_or_else(late)
    }

    /// Orders a split, and waits until the ledger has applied it; `None` where another change of the map came first, so that the order means
    /// nothing any more.
    async fn ordered_split(&self, shard: ShardId, at: &CounterName) -> Result<Option<Split>, Failure> {
        let revision = self.aggregator.split_slot(shard, at).await?;
        let applied = |ledger: &Ledger| {
            let map = ledger.shard_map();
            let split = map.splits().iter().find(|split| split.shard == shard).cloned();
            (split.is_some() || map.revision() > revision).then_some(split)
        };
        shown(LEDGER_PATIENCE, || self.aggregator.with_ledger(applied)).await.ok_or_else(late)
    }

    fn split_body(&self, split: &Split) -> SplitBody {
        let cluster = self.aggregator.cluster();
        let dc = self.aggregator.dc();
        let holders: Vec<AggregatorId> =
            self.aggregator.with_core(|core| core.seats().holders(split.shard, dc).collect());
        SplitBody {
            slot: split.shard.0,
            at: counter_text(&split.at),
            parts: split.parts().map(|part| part.0),
            held_by: holders.into_iter().map(|holder| cluster.aggregator_name(holder)).collect(),
        }
    }
}

impl Drop for LocalBackend {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl Process for LocalBackend {
    async fn status(&self) -> StatusBody {
        let silent = self.groups().await.map_or_else(|_| Vec::new(), |body| body.groups);
        let silent = silent.into_iter().filter(|group| group.state == GroupState::Silent);
        let silent = silent.map(|GroupBody { name, silent_s, rights, .. }| {
            let if_its_disks_are_gone = format!("tidemark declare-lost {name}");
            SilentGroupBody { group: name, silent_s, rights, if_its_disks_are_gone }
        });
        let cluster = self.aggregator.cluster();
        let metrics = self.aggregator.raft();
        let standing = self.aggregator.ledger_standing();
        let (groups, index) = self.aggregator.with_ledger(|ledger| (ledger.groups().len(), ledger.applied().0));
        StatusBody::Aggregator(Box::new(AggregatorStatusBody {
            cluster: cluster.name.clone(),
            dc: cluster.name_of(self.aggregator.dc()).map(str::to_owned),
            ready: self.ready().is_ok(),
            reason: self.ready().err().map(|unready| unready.to_string()),
            checks: self.health(),
            groups,
            silent_groups: silent.collect(),
            view: ViewLag::of(&self.aggregator),
            ledger: LedgerStatusBody {
                index,
                is_leader: metrics.is_leader,
                leader: standing::leader(&self.aggregator),
                voters_reached: standing.voters_reached,
                changing: metrics.changes_to.is_some(),
                warning: voters_warning(&metrics),
                voters: self.aggregator.voter_names(),
            },
        }))
    }

    fn measure(&self) {
        ViewLag::of(&self.aggregator).measure();
        gauges::measure(&self.aggregator);
        if let Some((dc, statuses)) = &self.node {
            gauges::groups(dc, statuses);
        }
        gauges::ready(self.ready().is_ok());
    }

    fn health(&self) -> Vec<HealthCheck> {
        health::of(&self.aggregator, &self.client, &self.namespaces)
    }
}

impl AggregatorProcess for LocalBackend {
    async fn add(&self, add: Add) -> Result<Added, Failure> {
        let added = self.count(&add).await?;
        self.note(&add);
        Ok(added)
    }

    async fn add_all(&self, adds: Vec<Add>) -> Vec<Result<Counted, Failure>> {
        let outcomes = many::count_all(&self.client, Some(&self.idempotency), &adds).await;
        adds.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok()).for_each(|(add, _)| self.note(add));
        outcomes
    }

    fn has_namespace(&self, name: &str) -> bool {
        self.aggregator.with_ledger(|ledger| ledger.has_namespace(name))
    }

    fn namespaces(&self) -> Result<Vec<NamespaceBody>, Failure> {
        self.aggregator.ready()?;
        Ok(self.aggregator.with_ledger(|ledger| {
            let goes_down: BTreeSet<&str> = ledger.updown().collect();
            let body = |name: &str| NamespaceBody {
                name: name.to_owned(),
                updown: goes_down.contains(name),
                series: ledger.series_of(name).is_some(),
            };
            ledger.namespaces().map(body).collect()
        }))
    }

    async fn read(&self, counters: &[CounterName]) -> Result<Vec<Reading>, Failure> {
        Ok(self.aggregator.read_many(counters).await?)
    }

    async fn read_fresh(&self, counter: &CounterName) -> Result<(Reading, ReadVersion), Failure> {
        let caught_up = self.aggregator.catch_up_with_groups(counter);
        let caught_up = self.aggregator.if_held(counter, caught_up).await.transpose()?;
        // Another holder that the counter moved to meanwhile has not caught up.
        let reading = match caught_up {
            Some(_) => self.aggregator.read_here(counter)?,
            None => None,
        };
        let Some((entries, reading)) = caught_up.zip(reading) else {
            let audited: AuditBody = self.about(About::Audit { with_rows: false }, counter).await?;
            return audited.fresh();
        };
        let entries = entries.into_iter().map(|(group, entry)| ((group.group, group.incarnation), entry.0));
        let dc = self.aggregator.cluster().name_of(self.aggregator.dc()).unwrap_or("?");
        Ok((reading, ReadVersion::new(dc, entries)))
    }

    async fn read_at(&self, of: Of, counters: &[CounterName], windows: &[WindowQuery]) -> Result<AsOf, Failure> {
        Ok(self.aggregator.read_at(of.into(), counters, windows).await?)
    }

    async fn read_series(
        &self,
        of: Of,
        namespace: &str,
        counters: &[CounterName],
        query: &SeriesQuery,
    ) -> Result<SeriesRead, Failure> {
        Ok(self.aggregator.read_series(of.into(), namespace, counters, query).await?)
    }

    async fn export(&self, counters: &[CounterName]) -> Result<(WallMs, Vec<Exported>), Failure> {
        Ok(self.aggregator.export(counters).await?)
    }

    async fn audit(&self, counter: &CounterName, with_rows: bool) -> Result<AuditBody, Failure> {
        let audit = audit::audit(&self.aggregator, counter, with_rows);
        match self.aggregator.if_held(counter, audit).await {
            Some(audited) => audited,
            None => self.about(About::Audit { with_rows }, counter).await,
        }
    }

    async fn scan(&self, of: Of, keys: &KeyRange, most: usize) -> Result<Page, Failure> {
        Ok(self.aggregator.scan(of.into(), keys, most).await?)
    }

    async fn series_terms(&self, namespace: &str) -> Result<TermsBody, Failure> {
        self.series.terms(namespace)
    }

    async fn set_series_terms(&self, namespace: &str, policy: SeriesPolicy) -> Result<TermsBody, Failure> {
        self.series.set_terms(namespace, policy).await
    }

    async fn change_edges(&self, body: ChangeBody) -> Result<ChangedBody, Failure> {
        let made = self.aggregator.change_edges(&body.asked()?, body.author()?).await?;
        Ok(made.into())
    }

    async fn allow_edges(&self, from: &str, to: &str) -> Result<(), Failure> {
        Edges::new(&self.aggregator).allow(from, to).await
    }

    async fn graph_of(&self, counter: &CounterName) -> Result<GraphBody, Failure> {
        let total = self.aggregator.total(counter).await?;
        Ok(Edges::new(&self.aggregator).of(counter, total.direct.value(), total.value()))
    }

    async fn top(&self, of: Of, ranking: Ranking) -> Result<TopAsOf, Failure> {
        Ok(self.aggregator.top(of.into(), ranking).await?)
    }

    async fn move_slot(&self, asked: MoveSlotBody) -> Result<SlotBody, Failure> {
        let shard = ShardId(asked.slot);
        let dc = self.aggregator.dc();
        let named = |what: &'static str, name: &str| {
            let named = self.aggregator.cluster().aggregator(name).map_err(|error| Failure::invalid(what, error))?;
            let elsewhere = || format!("{name} is in another data centre, and a slot moves only within this one");
            if named.dc == dc { Ok(named) } else { Err(Failure::invalid(what, elsewhere())) }
        };
        let leaves = named("from", &asked.from)?;
        let to = named("to", &asked.to)?;
        self.aggregator.move_slot(shard, leaves, to).await?;
        self.slot_changed(shard, |seats| seats.gathers(to, shard)).await
    }

    async fn split_slot(&self, slot: u16, at: Option<CounterName>) -> Result<SplitBody, Failure> {
        let shard = ShardId(slot);
        let at = match at {
            Some(at) => at,
            None => self.series.middle(shard).await?,
        };
        let split = loop {
            if let Some(split) = self.ordered_split(shard, &at).await? {
                break split;
            }
        };
        if split.at == at {
            return Ok(self.split_body(&split));
        }
        // Another operator split the shard at the same time.
        Err(MoveError::Split { shard: slot, parts: split.parts().map(|part| part.0) }.into())
    }

    async fn stay_slot(&self, slot: u16) -> Result<SlotBody, Failure> {
        let shard = ShardId(slot);
        let dc = self.aggregator.dc();
        self.aggregator.let_stay(shard).await?;
        self.slot_changed(shard, |seats| seats.joining(shard, dc).is_none()).await
    }

    async fn slots(&self) -> Result<SlotsBody, Failure> {
        Ok(self.series.slots().await)
    }

    async fn edges_audit(&self, entry: Option<u64>) -> Result<EdgesAuditBody, Failure> {
        Edges::new(&self.aggregator).audit(entry)
    }

    async fn define(&self, counter: CounterName, spec: MilestoneSpec) -> Result<MilestoneList, Failure> {
        let at = spec.at.clone();
        let every = spec.every;
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
        Ok(self.aggregator.with_ledger(|ledger| news::awards_behind(ledger, &filter)))
    }

    async fn news(&self, filter: AwardFilter) -> Result<Vec<News>, Failure> {
        Ok(self.aggregator.with_ledger(|ledger| news::behind(ledger, &filter)))
    }

    fn history(&self) -> History {
        self.aggregator.with_ledger(|ledger| History { births: ledger.births().clone(), applied: ledger.applied() })
    }

    async fn catch_up_with_ledger(&self) -> Result<(), Failure> {
        let caught_up = self.catching_up.ask(|| self.aggregator.catch_up_with_ledger()).await;
        Ok(caught_up?)
    }

    async fn news_of(&self, session: SessionId, after: AwardPosition, limit: usize) -> Result<Vec<News>, Failure> {
        Ok(self.news.of(session, after, limit, &self.aggregator))
    }

    async fn certificate(&self, counter: &CounterName, at: u64) -> Result<Option<Awarded>, Failure> {
        Ok(self.aggregator.awards(Some(counter)).into_iter().find(|awarded| awarded.award.covers(at)))
    }

    async fn award_state(&self, counter: &CounterName, at: u64) -> Result<AwardState, Failure> {
        Ok(self.aggregator.with_ledger(|ledger| match ledger.fate(counter, at) {
            Fate::Awarded(awarded) => AwardState::Awarded(Box::new(awarded.award.clone())),
            Fate::Armed => AwardState::Coming(MilestoneState::Armed),
            Fate::Arming => AwardState::Coming(MilestoneState::Arming),
            Fate::Passed => AwardState::Passed,
            Fate::Unknown => AwardState::Unknown,
        }))
    }

    async fn progress(&self, counter: &CounterName) -> Result<Progress, Failure> {
        let reading = match self.aggregator.is_split() {
            false => self.aggregator.get(counter),
            true => self.read(std::slice::from_ref(counter)).await?.into_iter().next().unwrap_or_default(),
        };
        Ok(self.aggregator.with_ledger(|ledger| {
            let Some(state) = ledger.counter(counter) else {
                return Progress { reading, next: None, rate_per_s: None, mode: Mode::Free };
            };
            let armed = state.next_armed().map(|at| (at, MilestoneState::Armed));
            let next = armed.or_else(|| state.milestones().least().map(|at| (at, MilestoneState::Arming)));
            let mode = match next {
                None => Mode::Free,
                Some(_) if state.is_sequencing() => Mode::Sequenced,
                Some(_) => Mode::Rights,
            };
            Progress { reading, next, rate_per_s: Some(state.rate_per_s()), mode }
        }))
    }

    async fn cluster(&self, counter: &CounterName) -> Result<ClusterBody, Failure> {
        let standing = async { standing::of_all(&self.aggregator, counter, &self.places) };
        match self.aggregator.if_held(counter, standing).await {
            Some(standing) => Ok(standing),
            None => self.about(About::DataCentres, counter).await,
        }
    }

    async fn groups(&self) -> Result<GroupsBody, Failure> {
        let groups = self.aggregator.groups();
        Ok(GroupsBody { groups: groups.iter().map(|standing| self.group_body(standing)).collect() })
    }

    async fn declare_lost(&self, name: GroupName, force: bool) -> Result<GroupBody, Failure> {
        let cluster = self.aggregator.cluster();
        let dc = cluster.dc(&name.dc).map_err(|error| Failure::invalid("group", error))?;
        let group = GroupId { dc, group: name.group, incarnation: name.incarnation.unwrap_or_default() };
        self.refusal_of_loss(group, force)?;
        self.aggregator.declare_lost(group, force).await?;
        if shown(LEDGER_PATIENCE, || self.aggregator.is_lost(group).then_some(())).await.is_none() {
            let message =
                "the ledger did not carry it out in time, and still may: its leader may be connected to the group";
            return Err(Failure::InDoubt(message.to_owned()));
        }
        let standing = self.aggregator.groups().into_iter().find(|standing| standing.group == group);
        standing.map(|standing| self.group_body(&standing)).ok_or_else(|| Failure::NotFound(name.to_string()))
    }

    async fn dcs(&self) -> Result<DcsBody, Failure> {
        Ok(DcsBody { dcs: self.aggregator.cluster().ids().map(|dc| self.dc_body(dc)).collect() })
    }

    async fn forget(&self, name: &str, force: bool) -> Result<DcBody, Failure> {
        let dc = self.aggregator.cluster().dc(name).map_err(|error| Failure::NotFound(error.to_string()))?;
        self.refusal_of_forgetting(dc, force)?;
        self.aggregator.forget(dc, force).await?;
        let forgotten = || self.aggregator.is_forgotten(dc).then(|| self.dc_body(dc));
        let late =
            "it was not carried out in time, and still may be: the ledger's leader may be connected to the data centre";
        shown(LEDGER_PATIENCE, forgotten).await.ok_or_else(|| Failure::InDoubt(late.to_owned()))
    }

    async fn image(&self) -> Result<ImageStream, Failure> {
        serve::stream(&self.aggregator).await.map_err(|error| match error {
            ImageError::Busy => {
                Failure::Overloaded { what: "images that are read".to_owned(), limit: IMAGES_MAX as u64 }
            }
            error @ (ImageError::View(_) | ImageError::Stopped) => Failure::NotServing(error.to_string()),
        })
    }

    async fn members(&self) -> Result<MembersBody, Failure> {
        let cluster = self.aggregator.cluster();
        let metrics = self.aggregator.raft();
        let leader = self.aggregator.ledger_standing().leader;
        let body = |standing: MemberStanding| MemberBody {
            aggregator: cluster.aggregator_name(standing.id),
            votes: standing.votes,
            returns: standing.returns,
            connected: standing.connected,
            behind: standing.behind,
            view: !self.aggregator.is_set_aside(standing.id),
        };
        let members = self.aggregator.members().into_iter().map(body).collect();
        let changing = metrics.changes_to.is_some();
        let warning = voters_warning(&metrics);
        Ok(MembersBody { leader: leader.map(|id| cluster.aggregator_name(id)), members, changing, warning })
    }

    async fn change_voters(&self, body: ChangeVotersBody) -> Result<MembersBody, Failure> {
        let cluster = self.aggregator.cluster();
        let id = |key, name: &str| cluster.aggregator(name).map_err(|error| Failure::invalid(key, error));
        let joins = body.joins.as_deref().map(|name| id("joins", name)).transpose()?;
        let leaves = body.leaves.as_deref().map(|name| id("leaves", name)).transpose()?;
        let change = match (joins, leaves) {
            (Some(joins), Some(leaves)) => VoterChange::Replace { leaves, joins },
            (Some(joins), None) => VoterChange::Add(joins),
            (None, Some(leaves)) => VoterChange::Remove(leaves),
            (None, None) => return Err(Failure::invalid("voters", "joins, leaves or both are needed")),
        };
        self.aggregator.change_voters(change).await?;
        self.members().await
    }

    async fn set_aside(&self, name: String) -> Result<MembersBody, Failure> {
        let named = self.aggregator.cluster().aggregator(&name);
        let view = named.map_err(|error| Failure::invalid("aggregator", error))?;
        self.aggregator.set_aside(view).await?;
        if shown(LEDGER_PATIENCE, || self.aggregator.is_set_aside(view).then_some(())).await.is_none() {
            let message =
                "the ledger did not carry it out in time, and still may: its leader may be connected to the aggregator";
            return Err(Failure::InDoubt(message.to_owned()));
        }
        self.members().await
    }

    fn hops(&self) -> Option<&Hops> {
        self.hops.as_ref()
    }

    fn claims(&self) -> Option<&Claims> {
        Some(&self.claims)
    }

    fn lives(&self) -> Option<&Lives> {
        Some(&self.lives)
    }

    fn subscribe(&self) -> (AwardPosition, broadcast::Receiver<News>) {
        self.news.subscribe()
    }
}

fn status_of(at: u64, state: State) -> MilestoneStatus {
    let (state, waits_for) = match state {
        State::Arming { groups, views } => (MilestoneState::Arming, groups.into_iter().chain(views).collect()),
        State::Armed { rights } => (MilestoneState::Armed, rights),
        State::Passed => (MilestoneState::Passed, Vec::new()),
        State::Awarded => (MilestoneState::Awarded, Vec::new()),
    };
    MilestoneStatus { at, state, policy: None, waits_for }
}

fn late_node() -> Failure {
    let message = "the node did not answer in time: whether it counted is not known. A request with an id (Idempotency-Key) may be \
                   repeated with the same id";
    Failure::InDoubt(message.to_owned())
}
