//! The ledger across data centres: registry, rights accounts, window, settlement, awards.
//!
//! A replicated state machine: every member applies the same commands in the same order and holds the same state. Apply is
//! integers only, reads no clock, never fails and never panics on a command: a command that does not fit changes nothing. The
//! leader decides which grants and recalls to propose ([`tidemark_types::alloc`]); apply clamps them against its own state.

pub mod account;
pub mod births;
pub mod claims;
pub mod counter;
mod deferred;
pub mod edges;
pub mod era;
mod fate;
mod forgotten;
pub mod lost;
pub mod milestones;
mod passed;
pub mod resets;
pub mod revoke;
mod shards;
mod stored;
mod voters;
pub mod window;

pub use account::AccountState;
pub use births::Births;
use claims::Claimant;
pub use claims::{Claim, ClaimState, Claims, Turn, TurnKind};
pub use counter::{Awarded, CounterLedger};
pub use deferred::Deferred;
pub use edges::{
    AllowError, EdgeAuthor, EdgeBatch, EdgeFault, EdgesAsked, EdgesChanged, EdgesCount, EdgesDecided, EdgesError,
    EdgesFate, Graph,
};
pub use era::{EraError, KnownCounts, OpenMilestones};
pub use fate::Fate;
pub use forgotten::ForgetError;
pub use lost::{Loss, Losses, Stake};
pub use milestones::{Milestones, Pending};
pub use resets::{Life, ResetError, Resets};
pub use revoke::{Generation, Terms};
pub use shards::{MoveError, ShardMap};

use counter::{Touched, ViewAnswer};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidemark_types::ids::{AggregatorId, CounterName, DcId, GroupId, LogIndex, Start};
use tidemark_types::limits::{
    GROUPS_MAX, GUARDED_COUNTERS_MAX, LANES_MAX, MILESTONES_PER_COUNTER_MAX, NAMESPACES_MAX, PLACED_RUNS_MAX,
    SIGNATURES_PER_AWARD_MAX, SPREAD_ASKED_MAX, STARTS_REMEMBERED_MAX,
};
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::WallMs;
use tidemark_wire::msg::{
    Account, AwardSignature, ClaimRule, Hello, LedgerCmd, MilestoneSpec, Offer, Opened, Place, Placed, PlacedRun,
    Policy, Report, SeriesTerms, ToGroup,
};

/// Winners of earlier epochs in one message to a group, beside its account: more than may be on their way.
const WON_BEFORE_MAX: usize = PLACED_RUNS_MAX / 2;

/// Replicated state of the ledger.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "stored::Stored")]
pub struct Ledger {
    applied: LogIndex,
    namespaces: BTreeSet<String>,
    /// The namespaces with counters that may go down.
    updown: BTreeSet<String>,
    /// How namespaces keep series; only namespaces that ever did.
    series: BTreeMap<String, SeriesTerms>,
    spread: BTreeSet<CounterName>,
    views: BTreeSet<AggregatorId>,
    /// The last start of each view of a pair.
    view_starts: BTreeMap<AggregatorId, u64>,
    groups: BTreeMap<GroupId, Registered>,
    counters: BTreeMap<CounterName, CounterLedger>,
    claims: Claims,
    resets: Resets,
    /// Up to which number each view, with the groups of its data centre, has heard of resets; and all of them.
    resets_heard: BTreeMap<AggregatorId, u64>,
    resets_passed: u64,
    /// Groups that were declared lost; they are fenced.
    lost: BTreeSet<GroupId>,
    /// Data centres that never return.
    forgotten: BTreeSet<DcId>,
    /// Voters that lost their logs and are to vote again.
    returning: BTreeSet<AggregatorId>,
    graph: Graph,
    shard_map: ShardMap,
    /// The time on the leader's clock, and the entry that holds it: awards of that entry carry it.
    clock: Option<(LogIndex, WallMs)>,
    /// Data centres that own ids of increments, and their groups; empty while the owners are unknown.
    id_owners: Vec<(DcId, u16)>,
    births: Births,
    changes: ChangeSets,
}

/// A registered group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    pub lanes: u8,
    /// The last process start that greeted; messages of other starts are ignored.
    pub start: Start,
    /// Its greeting was impossible, or came from an old disk: it must never serve again.
    pub fenced: bool,
    /// Starts before the last confirmed one, the newest last: late copies of their messages mean nothing.
    earlier: VecDeque<u64>,
}

impl Registered {
    fn new(hello: &Hello, nonce: u64, fenced: bool, mut earlier: VecDeque<u64>) -> Registered {
        let start = Start { number: hello.number, nonce };
        earlier.extend(hello.nonces.iter().filter(|&&start| start != nonce));
        earlier.drain(..earlier.len().saturating_sub(STARTS_REMEMBERED_MAX));
        Registered { lanes: hello.lanes, start, fenced, earlier }
    }
}

impl Registered {
    /// The last start that greeted is an earlier start of the group that greets now.
    fn is_followed_by(&self, hello: &Hello) -> bool {
        hello.nonces.contains(&self.start.nonce) && hello.number > self.start.number
    }
}

/// The changes of a run of applied commands, for the shell around the ledger; drained by [`Ledger::take_changes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Accounts with a changed [`Ledger::account`] or [`Ledger::placed`] message.
    pub accounts: Vec<(CounterName, GroupId)>,
    /// Groups with a changed registration (confirmed or fenced out).
    pub groups: Vec<GroupId>,
    /// Counters with changed milestones, limits or `certain`.
    pub counters: Vec<CounterName>,
    /// New awards (counter, milestone).
    pub awards: Vec<(CounterName, u64)>,
    /// Awards that got a further signature.
    pub signatures: Vec<(CounterName, u64)>,
    /// Claims may have taken a turn.
    pub claims: bool,
    /// Namespaces or the spread list changed.
    pub settings: bool,
    /// Counters that began again.
    pub resets: Vec<CounterName>,
    /// Counters with more generations that are over everywhere ([`Life::over`]), and their number before.
    pub over: Vec<(CounterName, u32)>,
    /// Data centres were forgotten.
    pub forgotten: bool,
    /// Edges between counters changed.
    pub edges: EdgesChanged,
    /// Ranges of counters are moved, or stay.
    pub shards: bool,
}

#[derive(Clone, Debug, Default)]
struct ChangeSets {
    accounts: BTreeSet<(CounterName, GroupId)>,
    groups: BTreeSet<GroupId>,
    counters: BTreeSet<CounterName>,
    awards: Vec<(CounterName, u64)>,
    signatures: Vec<(CounterName, u64)>,
    claims: bool,
    settings: bool,
    resets: BTreeSet<CounterName>,
    over: BTreeMap<CounterName, u32>,
    forgotten: bool,
    edges: EdgesChanged,
    shards: bool,
}

/// A milestone that waits for a view's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaiting {
    pub counter: CounterName,
    pub epoch: u32,
    pub at: u64,
    /// The number of the arming of `at`.
    pub arming: u64,
}

impl Awaiting {
    /// The answer of a view.
    pub fn answer(&self, view: AggregatorId, shown_below: bool) -> LedgerCmd {
        let Awaiting { counter, epoch, at, arming } = self.clone();
        LedgerCmd::ViewAck { counter, epoch, at, arming, view, shown_below }
    }
}

/// Why a definition would be refused; checked by its proposer, since apply only ignores it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefineError {
    #[error("unknown namespace {0:?}")]
    UnknownNamespace(String),
    #[error("milestone {at} is not above the count, which is {count}")]
    NotAbove { at: u64, count: u64 },
    #[error("milestone {at} was awarded already")]
    Awarded { at: u64 },
    #[error("{what}: {value} given, 1 to {max} allowed")]
    Range { what: &'static str, value: u64, max: u64 },
    #[error("milestone {at} is {policy} already: remove it first")]
    Policy { at: u64, policy: &'static str },
    #[error("the rule \"every {every}\" is {policy} already: remove it first")]
    RulePolicy { every: u64, policy: &'static str },
    #[error("milestone {at} is one of the rule \"every {every}\", which is {policy}: remove the rule first")]
    OfRulePolicy { at: u64, every: u64, policy: &'static str },
    #[error("a definition needs a milestone or a rule")]
    Nothing,
    #[error("{0} guarded counters, and no more are allowed: this one has no milestone yet")]
    GuardedCounters(usize),
}

/// Why a group would not be declared lost. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclareError {
    #[error("the ledger knows no group {0}")]
    Unknown(GroupId),
    #[error("group {0} was declared lost before")]
    Lost(GroupId),
    #[error("group {group} was heard of {ago_s} s ago: it counts as silent after {limit_s} s, unless this is forced")]
    Heard { group: GroupId, ago_s: u64, limit_s: u64 },
}

/// Why a view would not be set aside; checked by the proposer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetAsideError {
    #[error("it is not a view of a pair that the ledger waits for")]
    Unknown,
    #[error(
        "the other aggregator of its data centre is not registered: one view of each data centre must answer when milestones are armed"
    )]
    Alone,
    #[error("it is connected: end its process first")]
    Connected,
}

/// Why a removal would be refused; checked by its proposer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DisarmError {
    #[error("milestone {at} is a multiple of the rule \"every {every}\": remove the rule")]
    ByRule { at: u64, every: u64 },
}

impl Ledger {
    /// Applies one command of the entry at `index`.
    pub fn apply(&mut self, index: LogIndex, cmd: &LedgerCmd) {
        self.applied = self.applied.max(index);
        match cmd {
            LedgerCmd::Namespace(name) => self.on_namespace(name),
            LedgerCmd::UpDown(name) => self.on_updown(name),
            LedgerCmd::Series { namespace, terms } => self.on_series(namespace, terms),
            LedgerCmd::IdOwners(owners) => self.on_id_owners(owners),
            LedgerCmd::Birth(birth) => self.births.begin(*birth),
            LedgerCmd::Spread(counter) => self.on_spread(counter),
            LedgerCmd::View(view) => self.on_view(*view),
            LedgerCmd::ViewStart { view, start } => self.on_view_start(*view, *start),
            LedgerCmd::SetAside { view, start } => self.on_set_aside(index, *view, *start),
            LedgerCmd::Hello(hello) => self.on_hello(hello),
            LedgerCmd::Define { counter, revision, spec } => self.on_define(counter, *revision, spec),
            LedgerCmd::Disarm { counter, revision, at } => self.on_disarm(index, counter, *revision, *at),
            LedgerCmd::Report(report) => self.on_report(index, report, false),
            LedgerCmd::Returned(report) => self.on_report(index, report, true),
            LedgerCmd::Revoke { counter, epoch, group, generation, if_last_report } => {
                if self.epoch(counter) == Some(*epoch) {
                    self.change(counter, |state, views, touched| {
                        state.revoke(*group, *generation, *if_last_report, index, views, touched);
                    });
                }
            }
            LedgerCmd::DeclareLost { group, forced, heard } => self.on_declare_lost(index, *group, *forced, *heard),
            LedgerCmd::Remains { counter, epoch, group, component } => {
                if self.epoch(counter) == Some(*epoch) {
                    self.change(counter, |state, views, touched| {
                        state.on_remains(*group, *component, index, views, touched);
                    });
                }
            }
            LedgerCmd::Forget { dc, forced, heard } => self.on_forget(index, *dc, *forced, *heard),
            LedgerCmd::VoterReturns { voter, returns } => self.on_voter_returns(*voter, *returns),
            LedgerCmd::Offer(offer) => self.on_offer(index, offer),
            LedgerCmd::Detail(detail) => self.on_detail(index, detail),
            LedgerCmd::Grant { counter, epoch, group, amount, if_awarded } => {
                if self.is_live(*group) && self.epoch(counter) == Some(*epoch) {
                    let rider = if_awarded.map(|at| (at, index));
                    self.change(counter, |state, _, touched| state.grant(*group, *amount, rider, touched));
                }
            }
            LedgerCmd::ViewAck { counter, epoch, at, arming, view, shown_below } => {
                let answer =
                    ViewAnswer { epoch: *epoch, at: *at, arming: *arming, view: *view, shown_below: *shown_below };
                self.change(counter, |state, views, touched| state.on_view_ack(&answer, views, touched));
            }
            LedgerCmd::Signature { counter, at, dc, signature, certificate } => {
                let signed = AwardSignature { dc: *dc, signature: signature.clone(), certificate: certificate.clone() };
                self.on_signature(counter, *at, signed);
            }
            LedgerCmd::Clock(wall) => self.clock = Some((index, *wall)),
            LedgerCmd::Edges { .. } => self.on_edges(index, cmd),
            LedgerCmd::AllowEdges { from, to } => self.on_allow_edges(from, to),
            LedgerCmd::Shard { dc, shard, revision, change } => self.on_shard(*dc, *shard, *revision, change),
            LedgerCmd::Reset { counter, revision, keeps_milestones } => {
                self.on_reset(counter, *revision, *keeps_milestones);
            }
            LedgerCmd::Expire { counter, revision, at } => self.on_expire(counter, *revision, *at),
            LedgerCmd::ResetsHeard { view, upto } => self.on_resets_heard(*view, *upto),
            LedgerCmd::ClaimRule { counter, revision, rule } => self.on_claim_rule(counter, *revision, *rule),
            LedgerCmd::ClaimUntil { counter, at, holder, until } => {
                self.claims.set_until(counter, *at, *holder, *until);
            }
            LedgerCmd::Claim { counter, at, holder, session, id } => {
                self.on_claim(index, &Claimant { counter, at: *at, holder: *holder, session: *session, id: *id });
            }
            LedgerCmd::ClaimOver { counter, at, holder } => self.on_claim_over(index, counter, *at, *holder),
        }
    }

    /// Nothing ends in a namespace that is not registered.
    fn on_expire(&mut self, counter: &CounterName, revision: u64, at: Option<WallMs>) {
        if self.namespaces.contains(counter.namespace()) {
            self.resets.expire(counter, revision, at);
        }
    }

    /// A counter that never had milestones has no awards to claim.
    fn on_claim_rule(&mut self, counter: &CounterName, revision: u64, rule: Option<ClaimRule>) {
        if self.counters.contains_key(counter) {
            self.claims.set_rule(counter, revision, rule);
        }
    }

    fn on_claim(&mut self, index: LogIndex, claimant: &Claimant<'_>) {
        if let Some(state) = self.counters.get(claimant.counter) {
            self.claims.claim(claimant, index, state.awards());
            self.changes.claims = true;
        }
    }

    fn on_claim_over(&mut self, index: LogIndex, counter: &CounterName, at: u64, holder: u64) {
        if let Some(state) = self.counters.get(counter) {
            self.claims.on_over(counter, at, holder, index, state);
            self.changes.claims = true;
        }
    }

    /// Takes over another replica's state (a snapshot); everything in it counts as changed.
    pub fn replace(&mut self, snapshot: Ledger) {
        let mut seen = std::mem::take(self);
        *self = snapshot;
        // Changes that were not drained yet are not in the difference of the two states.
        self.changes = std::mem::take(&mut seen.changes);
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for (name, counter) in &self.counters {
            self.changes.accounts.extend(counter.accounts().keys().map(|&group| (name.clone(), group)));
            let old = seen.counters.get(name).map(|old| old.awards());
            let new = counter.awards().keys().filter(|at| old.is_none_or(|old| !old.contains_key(at)));
            self.changes.awards.extend(new.map(|&at| (name.clone(), at)));
        }
        self.changes.counters.extend(self.counters.keys().cloned());
        self.changes.groups.extend(groups);
        for (counter, generation) in self.resets.generations() {
            let before = seen.resets.life(counter);
            let over = self.resets.life(counter).over;
            if before.generation != generation {
                self.changes.resets.insert(counter.clone());
            }
            if before.over != over {
                self.changes.over.entry(counter.clone()).or_insert(before.over);
            }
        }
        self.changes.forgotten |= seen.forgotten != self.forgotten;
        self.changes.shards |= seen.shard_map != self.shard_map;
        (self.changes.claims, self.changes.settings) = (true, true);
        self.changes.edges = EdgesChanged::Replaced { index: self.graph.index() };
    }

    /// Records that the entry at `index` holds no command.
    pub fn skip(&mut self, index: LogIndex) {
        self.applied = self.applied.max(index);
    }

    // ---- registry ----

    fn on_namespace(&mut self, name: &str) {
        if self.namespaces.len() < NAMESPACES_MAX && self.namespaces.insert(name.to_owned()) {
            self.changes.settings = true;
        }
    }

    /// Ids that were counted are remembered at their owners: the owner of an id must never change by itself.
    fn on_id_owners(&mut self, owners: &[(DcId, u16)]) {
        if self.id_owners.is_empty() {
            self.id_owners = owners.iter().copied().filter(|(_, groups)| *groups > 0).collect();
        }
    }

    /// A namespace that may go down may for ever: clients that have seen a value go back cannot be promised that none did.
    fn on_updown(&mut self, name: &str) {
        self.on_namespace(name);
        if self.namespaces.contains(name) && self.updown.insert(name.to_owned()) {
            self.changes.settings = true;
        }
    }

    /// Terms that were decided on others than the present ones mean nothing.
    fn on_series(&mut self, name: &str, terms: &SeriesTerms) {
        self.on_namespace(name);
        if self.namespaces.contains(name) && terms.revision == self.series_revision(name).saturating_add(1) {
            self.series.insert(name.to_owned(), terms.clone());
            self.changes.settings = true;
        }
    }

    fn on_spread(&mut self, counter: &CounterName) {
        if self.spread.len() < SPREAD_ASKED_MAX && self.spread.insert(counter.clone()) {
            self.changes.settings = true;
        }
    }

    fn on_view(&mut self, view: AggregatorId) {
        if !self.is_forgotten(view.dc) && self.views.insert(view) {
            self.counters.values_mut().for_each(|counter| counter.await_view(view));
            self.changes.counters.extend(self.counters.keys().cloned());
        }
    }

    fn on_view_start(&mut self, view: AggregatorId, start: u64) {
        if self.is_forgotten(view.dc) {
            return;
        }
        let known = self.view_starts.entry(view).or_default();
        // A late copy of a message of an earlier start changes nothing.
        if start > *known {
            *known = start;
            self.on_view(view);
        }
    }

    /// Another view of the data centre is registered.
    fn has_other_view(&self, view: AggregatorId) -> bool {
        AggregatorId::all(view.dc).any(|other| other != view && self.views.contains(&other))
    }

    /// Another view of the data centre still shows less than the milestones that are being armed, so one has to be registered.
    fn on_set_aside(&mut self, index: LogIndex, view: AggregatorId, start: u64) {
        let is_it = self.view_starts.get(&view) == Some(&start) || bites(Bug::SetAsideLate);
        let stands = is_it && self.has_other_view(view);
        if stands && self.views.remove(&view) {
            self.pass_resets();
            let names: Vec<CounterName> = self.counters.keys().cloned().collect();
            for name in names {
                self.change(&name, |state, views, touched| {
                    state.forget_views(|of| of == view, index, views, touched);
                });
            }
        }
    }

    fn on_hello(&mut self, hello: &Hello) {
        let Some(&nonce) = hello.nonces.last() else { return };
        match self.groups.get(&hello.group) {
            None if self.groups.len() < GROUPS_MAX && !self.is_forgotten(hello.group.dc) => self.register(hello, nonce),
            None => return,
            Some(known) if known.fenced || known.start.nonce == nonce || known.earlier.contains(&nonce) => {}
            Some(known) if known.is_followed_by(hello) && self.agrees(hello) => {
                let registered = Registered::new(hello, nonce, false, known.earlier.clone());
                self.groups.insert(hello.group, registered);
            }
            Some(_) => self.fence(hello.group),
        }
        self.changes.groups.insert(hello.group);
    }

    /// A group that the ledger has never heard of has counted no guarded counter. A group that claims otherwise comes from
    /// another ledger or a lost one.
    fn register(&mut self, hello: &Hello, nonce: u64) {
        let fenced = !hello.accounts.is_empty() || hello.lanes == 0 || hello.lanes > LANES_MAX;
        self.groups.insert(hello.group, Registered::new(hello, nonce, fenced, VecDeque::new()));
        if !fenced && !bites(Bug::JoinedUnguarded) {
            self.counters.values_mut().for_each(|counter| counter.add_new_group(hello.group));
        }
    }

    fn agrees(&self, hello: &Hello) -> bool {
        bites(Bug::OldDiskTrusted)
            || self.counters.iter().all(|(name, counter)| {
                let terms = counter.terms().generation(hello.group);
                let known = counter.accounts().get(&hello.group);
                known.is_none_or(|account| account.agrees_with(hello, name, counter.epoch(), terms))
            })
    }

    fn fence(&mut self, group: GroupId) {
        if let Some(registered) = self.groups.get_mut(&group) {
            registered.fenced = true;
            self.changes.groups.insert(group);
        }
    }

    /// Whether the ledger accepts messages of a process start of the group.
    fn hears(&self, group: GroupId, start: u64) -> bool {
        let taken = bites(Bug::LostReportTaken) && self.is_lost(group);
        let last = self.groups.get(&group).filter(|registered| !registered.fenced || taken);
        last.is_some_and(|registered| registered.start.nonce == start)
    }

    fn is_live(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|registered| !registered.fenced)
    }

    // ---- milestones ----

    /// Decided on an outdated state, or a copy of a command that was carried out already.
    fn is_stale(&self, counter: &CounterName, revision: u64) -> bool {
        self.revision(counter) != revision && !bites(Bug::StaleDefinition)
    }

    fn on_define(&mut self, counter: &CounterName, revision: u64, spec: &MilestoneSpec) {
        let known = self.counters.contains_key(counter);
        let too_many =
            spec.at.len() > MILESTONES_PER_COUNTER_MAX || (!known && self.counters.len() >= GUARDED_COUNTERS_MAX);
        if too_many || self.is_stale(counter, revision) {
            return;
        }
        let live = self.groups.iter().filter(|(_, registered)| !registered.fenced).map(|(&group, _)| group);
        let entry = self.counters.entry(counter.clone());
        let epoch = self.resets.generation(counter) + 1;
        let state = entry.or_insert_with(|| CounterLedger::new(counter.clone(), epoch, live));
        if !known {
            self.lost.iter().for_each(|&group| state.add_lost_group(group));
        }
        // All accounts count as changed.
        state.define(spec, &self.views, &mut Touched::default());
        let accounts = state.accounts().keys().map(|&group| (counter.clone(), group));
        self.changes.accounts.extend(accounts);
        self.changes.counters.insert(counter.clone());
        self.changes.settings = true;
    }

    fn on_disarm(&mut self, index: LogIndex, counter: &CounterName, revision: u64, at: Option<u64>) {
        if !self.is_stale(counter, revision) {
            self.change(counter, |state, views, touched| state.disarm(at, index, views, touched));
        }
    }

    /// All that the ledger knows of the counter's groups belonged to the ended generation.
    fn on_reset(&mut self, counter: &CounterName, revision: u64, keeps_milestones: bool) {
        if !self.namespaces.contains(counter.namespace()) || !self.resets.reset(counter, revision, keeps_milestones) {
            return;
        }
        if let Some(state) = self.counters.get_mut(counter) {
            let live = self.groups.iter().filter(|(_, registered)| !registered.fenced).map(|(&group, _)| group);
            state.begin_again(keeps_milestones, live, &self.lost, &self.views);
            let accounts = state.accounts().keys().map(|&group| (counter.clone(), group));
            self.changes.accounts.extend(accounts);
            self.changes.counters.insert(counter.clone());
            if !keeps_milestones {
                self.claims.set_rule(counter, self.claims.revision(counter), None);
            }
        }
        self.changes.resets.insert(counter.clone());
    }

    fn on_signature(&mut self, counter: &CounterName, at: u64, signature: AwardSignature) {
        let state = self.counters.get_mut(counter);
        if state.is_some_and(|state| state.sign(at, signature, SIGNATURES_PER_AWARD_MAX)) {
            self.changes.signatures.push((counter.clone(), at));
        }
    }

    // ---- rights ----

    fn on_report(&mut self, index: LogIndex, report: &Report, late: bool) {
        if self.hears(report.group, report.start) {
            self.change(&report.counter, |state, views, touched| state.on_report(report, late, index, views, touched));
        }
    }

    fn on_offer(&mut self, index: LogIndex, offer: &Offer) {
        if self.hears(offer.group, offer.start) {
            self.change(&offer.counter, |state, views, touched| state.on_offer(offer, index, views, touched));
        }
    }

    fn on_detail(&mut self, index: LogIndex, detail: &Offer) {
        if self.hears(detail.group, detail.start) {
            self.change(&detail.counter, |state, views, touched| state.on_detail(detail, index, views, touched));
        }
    }

    /// Runs `change` on one counter and notes what the change touched.
    fn change(
        &mut self,
        name: &CounterName,
        change: impl FnOnce(&mut CounterLedger, &BTreeSet<AggregatorId>, &mut Touched),
    ) {
        let Some(state) = self.counters.get_mut(name) else { return };
        let mut touched = Touched::default();
        change(state, &self.views, &mut touched);
        if cfg!(debug_assertions) {
            touched.awards.iter().for_each(|&at| state.check_award(at));
        }
        self.changes.accounts.extend(touched.groups.into_iter().map(|group| (name.clone(), group)));
        let index = self.applied;
        let time = self.clock.filter(|(entry, _)| *entry == index).map(|(_, wall)| wall);
        touched.awards.iter().for_each(|&at| state.set_award_time(at, time));
        touched.awards.iter().for_each(|&at| self.claims.on_award(name, at, index));
        self.changes.claims |= !touched.awards.is_empty();
        self.changes.awards.extend(touched.awards.into_iter().map(|at| (name.clone(), at)));
        if touched.counter {
            self.changes.counters.insert(name.clone());
        }
        if let Some(group) = touched.fence {
            self.fence(group);
        }
    }

    // ---- reading ----

    /// Drains the changes since the last call. Local bookkeeping, not replicated state.
    pub fn take_changes(&mut self) -> Changes {
        let changes = std::mem::take(&mut self.changes);
        Changes {
            accounts: changes.accounts.into_iter().collect(),
            groups: changes.groups.into_iter().collect(),
            counters: changes.counters.into_iter().collect(),
            awards: changes.awards,
            signatures: changes.signatures,
            claims: changes.claims,
            settings: changes.settings,
            resets: changes.resets.into_iter().collect(),
            over: changes.over.into_iter().collect(),
            forgotten: changes.forgotten,
            edges: changes.edges,
            shards: changes.shards,
        }
    }

    /// The account message for a group, if it has an account.
    pub fn account(&self, counter: &CounterName, group: GroupId) -> Option<Account> {
        let state = self.counters.get(counter)?;
        Some(state.accounts().get(&group)?.message(counter, state.epoch(), group, state.identities_wanted()))
    }

    /// The message to a group about its account, if it has one; with `recall`, the rights granted up to there are wanted back.
    pub fn tells(&self, counter: &CounterName, group: GroupId, recall: Option<u64>) -> Option<ToGroup> {
        let account = self.account(counter, group)?;
        let granted = recall.unwrap_or(account.granted);
        let account = Account { granted, recall: recall.is_some(), ..account };
        let state = self.counters.get(counter)?;
        let unheard = state.accounts().get(&group).is_some_and(|account| account.base.is_none());
        if state.epoch() == 1 || !unheard {
            return Some(state.terms().message(account));
        }
        let Generation { leased, closed_spent, .. } = state.terms().generation(group);
        let opened = Opened { account, leased, closed_spent };
        Some(ToGroup::Begun { opened, won: self.won_before(state, group) })
    }

    /// A group's accounts for every guarded counter, as the answer to its greeting lists them.
    pub fn accounts_of(&self, group: GroupId) -> Vec<Account> {
        let of = |(counter, state): (&CounterName, &CounterLedger)| {
            Some(state.terms().listed(self.account(counter, group)?))
        };
        self.counters.iter().filter_map(of).collect()
    }

    /// Places the group has not acknowledged, and the identities that the ledger needs of it; `None` when there are none.
    pub fn placed(&self, counter: &CounterName, group: GroupId) -> Option<Placed> {
        let state = self.counters.get(counter)?;
        let account = state.accounts().get(&group)?;
        let runs: Vec<_> = account.places().take(PLACED_RUNS_MAX).collect();
        let need_items = account.need_items;
        let something = !runs.is_empty() || need_items.is_some();
        something.then(|| Placed { counter: counter.clone(), epoch: state.epoch(), group, runs, need_items })
    }

    /// Winners of a group before the counter began again that the group may not have heard of: the newest, a message for each
    /// epoch.
    fn won_before(&self, state: &CounterLedger, group: GroupId) -> Vec<Placed> {
        let mut won: BTreeMap<u32, BTreeMap<u64, Place>> = BTreeMap::new();
        // Ascending by milestone, so that of several of one increment the least stays.
        for award in state.awards().values().map(|awarded| &awarded.award).filter(|award| award.group == group) {
            let place = Place::Milestone { at: award.at, first: award.first };
            won.entry(award.epoch).or_default().entry(award.pos).or_insert(place);
        }
        won.remove(&state.epoch());
        let mut room = if bites(Bug::WinnersUntold) { 0 } else { WON_BEFORE_MAX };
        let mut all = Vec::new();
        for (epoch, places) in won.into_iter().rev() {
            let newest = places.into_iter().rev().take(room);
            let runs: Vec<_> = newest.map(|(first_pos, place)| PlacedRun { first_pos, count: 1, place }).collect();
            room -= runs.len();
            let counter = state.name().clone();
            all.push(Placed { counter, epoch, group, runs, need_items: None });
        }
        all
    }

    /// The last start of a registered group that greeted.
    pub fn confirmed(&self, group: GroupId) -> Option<Start> {
        self.groups.get(&group).filter(|registered| !registered.fenced).map(|registered| registered.start)
    }

    /// The message to a registered group about its registration.
    pub fn confirmation(&self, group: GroupId) -> Option<ToGroup> {
        let start = self.confirmed(group)?;
        let accounts = self.accounts_of(group);
        Some(ToGroup::Confirmed { group, start, accounts, resets: self.resets.last() })
    }

    /// Whether a start of the group was followed by another, as far as is known here: it must send nothing any more.
    pub fn is_superseded(&self, group: GroupId, start: Start) -> bool {
        let later = |known: &Registered| start.number <= known.start.number && start != known.start;
        self.groups.get(&group).is_some_and(later)
    }

    /// Whether the group must never serve again.
    pub fn is_fenced(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|registered| registered.fenced)
    }

    /// Registered groups, fenced ones included.
    pub fn groups(&self) -> &BTreeMap<GroupId, Registered> {
        &self.groups
    }

    /// The last start of a view of a pair that was not set aside since.
    pub fn view_start(&self, view: AggregatorId) -> Option<u64> {
        self.view_starts.get(&view).copied().filter(|_| self.views.contains(&view))
    }

    /// The command that sets a view of a pair aside.
    ///
    /// # Errors
    /// The view cannot be set aside.
    pub fn setting_aside(&self, view: AggregatorId) -> Result<LedgerCmd, SetAsideError> {
        let start = self.view_start(view).ok_or(SetAsideError::Unknown)?;
        if !self.has_other_view(view) {
            return Err(SetAsideError::Alone);
        }
        Ok(LedgerCmd::SetAside { view, start })
    }

    /// Registered views.
    pub fn views(&self) -> &BTreeSet<AggregatorId> {
        &self.views
    }

    /// Guarded counters, in order.
    pub fn guarded(&self) -> impl Iterator<Item = &CounterName> {
        self.counters.keys()
    }

    /// All of one guarded counter.
    pub fn counter(&self, counter: &CounterName) -> Option<&CounterLedger> {
        self.counters.get(counter)
    }

    fn epoch(&self, counter: &CounterName) -> Option<u32> {
        self.counters.get(counter).map(CounterLedger::epoch)
    }

    /// Weight that is surely counted (a lower bound of the true count); 0 when not guarded.
    pub fn certain(&self, counter: &CounterName) -> u64 {
        self.counters.get(counter).map_or(0, CounterLedger::certain)
    }

    /// `certain + out + weight(window)`: upper bound of the counted or queued weight as far as this state knows.
    pub fn upper(&self, counter: &CounterName) -> u64 {
        self.counters.get(counter).map_or(0, CounterLedger::upper)
    }

    /// The least armed milestone that is not awarded: views show less.
    pub fn next_milestone(&self, counter: &CounterName) -> Option<u64> {
        self.counters.get(counter)?.next_armed()
    }

    /// The number of definitions and removals of the counter's milestones; 0 when it has had none.
    pub fn revision(&self, counter: &CounterName) -> u64 {
        self.counters.get(counter).map_or(0, |state| state.milestones().revision())
    }

    /// Milestones waiting to be armed for which a view has not answered.
    pub fn awaiting_view(&self, view: AggregatorId) -> Vec<Awaiting> {
        let of = |(name, state): (&CounterName, &CounterLedger)| {
            let waits = |(at, pending): (u64, &Pending)| match pending {
                Pending::Arming { arming, awaits, .. } => awaits.contains(&view).then_some((at, *arming)),
                Pending::Armed => None,
            };
            let counter = name.clone();
            let epoch = state.epoch();
            let awaiting = move |(at, arming)| Awaiting { counter: counter.clone(), epoch, at, arming };
            state.milestones().pending().filter_map(waits).map(awaiting).collect::<Vec<_>>()
        };
        self.counters.iter().flat_map(of).collect()
    }

    /// Namespaces of the cluster, in order.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.namespaces.iter().map(String::as_str)
    }

    /// Whether a namespace exists.
    pub fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.contains(name)
    }

    /// Data centres that own ids of increments, with their numbers of groups; none, while the owners are unknown.
    pub fn id_owners(&self) -> &[(DcId, u16)] {
        &self.id_owners
    }

    /// Whether a group of the same number was registered under another incarnation: the memory of that incarnation is gone.
    pub fn has_predecessor(&self, group: GroupId) -> bool {
        let same = |id: &GroupId| (id.dc, id.group) == (group.dc, group.group) && id.incarnation != group.incarnation;
        self.groups.keys().any(same)
    }

    /// Namespaces with counters that may go down, in order.
    pub fn updown(&self) -> impl Iterator<Item = &str> {
        self.updown.iter().map(String::as_str)
    }

    /// How namespaces keep series; only namespaces that ever did.
    pub fn series(&self) -> impl ExactSizeIterator<Item = (&str, &SeriesTerms)> {
        self.series.iter().map(|(name, terms)| (name.as_str(), terms))
    }

    /// How a namespace keeps series, if it ever did.
    pub fn series_of(&self, namespace: &str) -> Option<&SeriesTerms> {
        self.series.get(namespace)
    }

    /// The number of changes of a namespace's way of keeping series.
    pub fn series_revision(&self, namespace: &str) -> u64 {
        self.series_of(namespace).map_or(0, |terms| terms.revision)
    }

    /// Whether a counter may go down.
    #[inline]
    pub fn goes_down(&self, counter: &CounterName) -> bool {
        !self.updown.is_empty() && self.updown.contains(counter.namespace())
    }

    /// Counters spread over all lanes: asked for, or guarded; in order.
    pub fn spread(&self) -> Vec<CounterName> {
        self.spread.iter().chain(self.counters.keys()).cloned().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The counters that began again, and those that expire.
    pub fn resets(&self) -> &Resets {
        &self.resets
    }

    /// The command that resets a counter, decided on this state; with its milestones, or as if it had never been counted. `is_counted`: a
    /// view shows that something was counted in the present generation. Names that never counted take no place here.
    pub fn reset(
        &self,
        counter: &CounterName,
        keeps_milestones: bool,
        is_counted: bool,
    ) -> Result<LedgerCmd, ResetError> {
        self.check_life(counter, true)?;
        self.check_there(counter, is_counted)?;
        let revision = self.resets.life(counter).revision;
        Ok(LedgerCmd::Reset { counter: counter.clone(), revision, keeps_milestones })
    }

    /// The command that says when a counter is removed, if ever; `None` when that stands already. `is_counted` as in [`Ledger::reset`].
    pub fn expiry(
        &self,
        counter: &CounterName,
        at: Option<WallMs>,
        is_counted: bool,
    ) -> Result<Option<LedgerCmd>, ResetError> {
        self.check_life(counter, false)?;
        let life = self.resets.life(counter);
        if life.expires == at {
            return Ok(None);
        }
        self.check_there(counter, is_counted)?;
        Ok(Some(LedgerCmd::Expire { counter: counter.clone(), revision: life.revision, at }))
    }

    fn check_life(&self, counter: &CounterName, resets: bool) -> Result<(), ResetError> {
        if !self.namespaces.contains(counter.namespace()) {
            return Err(ResetError::UnknownNamespace(counter.namespace().to_owned()));
        }
        self.resets.check(counter, resets)
    }

    fn check_there(&self, counter: &CounterName, is_counted: bool) -> Result<(), ResetError> {
        if is_counted || self.knows_of(counter) {
            return Ok(());
        }
        Err(ResetError::NothingThere { counter: counter.clone(), generation: self.resets.generation(counter) })
    }

    /// The ledger itself knows something that a removal would take away: a count, an open milestone, a rule, or an expiry.
    pub fn knows_of(&self, counter: &CounterName) -> bool {
        let has_open = |milestones: &Milestones| milestones.every().is_some() || milestones.pending().next().is_some();
        let guarded = self.counters.get(counter);
        self.resets.life(counter).expires.is_some()
            || self.claims.rule(counter).is_some()
            || guarded.is_some_and(|state| state.certain() > 0 || has_open(state.milestones()))
    }

    /// The claims of awards.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    pub fn applied(&self) -> LogIndex {
        self.applied
    }

    /// The command that defines milestones, decided on this state, given the count that the proposer's view shows. `None` if they
    /// stand already, so a repeated request does nothing. Nothing is changed here.
    pub fn definition(
        &self,
        counter: &CounterName,
        spec: MilestoneSpec,
        shown: u64,
    ) -> Result<Option<LedgerCmd>, DefineError> {
        self.check_define(counter, &spec, shown)?;
        let stands = self.counters.get(counter).is_some_and(|state| state.holds(&spec));
        let (counter, revision) = (counter.clone(), self.revision(counter));
        Ok((!stands).then_some(LedgerCmd::Define { counter, revision, spec }))
    }

    /// The command that removes a milestone that is not awarded, or the rule; `None` when it is not there.
    pub fn removal(&self, counter: &CounterName, at: Option<u64>) -> Result<Option<LedgerCmd>, DisarmError> {
        let Some(milestones) = self.counters.get(counter).map(CounterLedger::milestones) else { return Ok(None) };
        let there = match (at, milestones.every()) {
            (Some(at), Some(every)) if milestones.is_of_rule(at) => return Err(DisarmError::ByRule { at, every }),
            (Some(at), _) => milestones.get(at).is_some(),
            (None, every) => every.is_some(),
        };
        let counter = counter.clone();
        let revision = milestones.revision();
        Ok(there.then_some(LedgerCmd::Disarm { counter, revision, at }))
    }

    fn check_define(&self, counter: &CounterName, spec: &MilestoneSpec, shown: u64) -> Result<(), DefineError> {
        if !self.namespaces.contains(counter.namespace()) {
            return Err(DefineError::UnknownNamespace(counter.namespace().to_owned()));
        }
        if spec.at.is_empty() && spec.every.is_none() && spec.sequence_from.is_none() {
            return Err(DefineError::Nothing);
        }
        let state = self.counters.get(counter);
        if state.is_none() && self.counters.len() >= GUARDED_COUNTERS_MAX {
            return Err(DefineError::GuardedCounters(GUARDED_COUNTERS_MAX));
        }
        self.check_number(state, spec)?;
        state.map_or(Ok(()), |state| check_policy(state, spec))?;
        for &at in spec.at.iter().chain(&spec.every) {
            self.check_milestone(at)?;
        }
        let count = shown.max(self.certain(counter));
        for &at in &spec.at {
            if state.is_some_and(|state| state.is_awarded(at)) {
                return Err(DefineError::Awarded { at });
            }
            let stands = state.is_some_and(|state| state.milestones().get(at).is_some());
            if at <= count && !stands {
                return Err(DefineError::NotAbove { at, count });
            }
        }
        Ok(())
    }

    /// Checks the limit of single milestones, the present ones included.
    fn check_number(&self, state: Option<&CounterLedger>, spec: &MilestoneSpec) -> Result<(), DefineError> {
        let stands = |at: &u64| state.is_some_and(|state| state.milestones().singles().contains(at));
        let new: BTreeSet<u64> = spec.at.iter().copied().filter(|at| !stands(at)).collect();
        let value = new.len() as u64 + state.map_or(0, |state| state.milestones().singles().len() as u64);
        let max = MILESTONES_PER_COUNTER_MAX as u64;
        let what = "milestones of a counter";
        let value = value.max(spec.at.len() as u64);
        if value > max { Err(DefineError::Range { what, value, max }) } else { Ok(()) }
    }

    fn check_milestone(&self, at: u64) -> Result<(), DefineError> {
        let max = tidemark_types::limits::MILESTONE_MAX;
        if at == 0 || at > max { Err(DefineError::Range { what: "milestone", value: at, max }) } else { Ok(()) }
    }

    /// Panics when a rule of the protocol is broken. Called after every step in debug and simulation builds.
    pub fn check_invariants(&self) {
        self.counters.values().for_each(CounterLedger::check_invariants);
        self.claims.check_invariants();
        self.resets.check_invariants();
        assert!(self.resets_passed <= self.resets.last(), "what is passed came before");
        self.graph.check_invariants();
        self.check_shard_map();
        let begun = |(name, state): (&CounterName, &CounterLedger)| state.epoch() == self.resets.generation(name) + 1;
        assert!(self.counters.iter().all(begun), "an epoch is a generation's");
        assert!(!self.returning.iter().any(|voter| self.is_forgotten(voter.dc)), "who is forgotten never votes again");
    }
}

/// The policy of a present milestone does not change, and a milestone has one policy.
fn check_policy(state: &CounterLedger, spec: &MilestoneSpec) -> Result<(), DefineError> {
    let policy = match spec.policy {
        Policy::Strict => Policy::Timely.name(),
        Policy::Timely => Policy::Strict.name(),
    };
    if let Some(every) = spec.every.filter(|&every| state.milestones().every() == Some(every))
        && state.rule_policy() != spec.policy
    {
        return Err(DefineError::RulePolicy { every, policy });
    }
    let singles = state.milestones().singles();
    let of_spec = spec.at.iter().copied().filter(|at| singles.contains(at));
    let of_rule = singles.iter().copied().filter(|at| spec.every.is_some_and(|every| at.is_multiple_of(every)));
    if let Some(at) = of_spec.chain(of_rule).find(|&at| state.single_policy(at) != spec.policy) {
        return Err(DefineError::Policy { at, policy });
    }
    let rule = state.milestones().every().filter(|_| state.rule_policy() != spec.policy);
    match rule.and_then(|every| Some((every, *spec.at.iter().find(|at| at.is_multiple_of(every))?))) {
        Some((every, at)) => Err(DefineError::OfRulePolicy { at, every, policy }),
        None => Ok(()),
    }
}
