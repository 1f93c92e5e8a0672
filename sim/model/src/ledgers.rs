//! Every state that the ledger was found in: the machine itself, what it tells the groups in that state, and what an observer may
//! know of it. Computed once, by [`Ledger::apply`].

use super::channel::{Channel, MessageNo, counter};
use super::config::{Config, Decision, GROUPS_MAX};
use super::table::{Memory, Table};
use super::{Violation, without_panic};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tidemark_proto::ids::{GroupId, LogIndex};
use tidemark_proto::ledger::window::{Body, Slot};
use tidemark_proto::ledger::{AccountState, CounterLedger, Ledger};
use tidemark_proto::msg::{Account, Award, LedgerCmd, Opened, Place, Placed, PlacedRun, Policy, ToGroup};
use tidemark_sim::teeth::Mutation;

/// Every entry has this index: it only joins a grant to the award in its own entry, and riders are left out.
const INDEX: LogIndex = LogIndex(1);

/// An entry of the ledger's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A message of a channel, by the channel's number.
    Message { channel: u8, message: MessageNo },
    /// A grant of one that any leader, present or past, has proposed; a larger one is several.
    Grant { group: u8 },
    /// The present generation of a group is revoked.
    Revoke { group: u8 },
}

/// The ledger in one state.
#[derive(Clone, Debug)]
pub struct Part {
    pub ledger: Ledger,
    /// The messages that it sends each group in this state.
    pub now: [u32; GROUPS_MAX],
    /// That, and what may be taken for told: see `tellable`.
    pub tells: [u32; GROUPS_MAX],
    pub facts: Facts,
}

/// The knowledge of an observer.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub certain: u64,
    pub sequenced: u64,
    pub next_armed: Option<u64>,
    /// The least milestone that is not awarded, armed or not.
    pub least: Option<u64>,
    pub undecided: u64,
    pub recall_wanted: bool,
    /// A strict milestone is armed.
    pub strict_armed: bool,
    /// A strict milestone is neither awarded nor passed.
    pub strict_to_come: bool,
    pub accounts: [Known; GROUPS_MAX],
    pub awarded: Vec<u64>,
    pub passed: Vec<u64>,
    pub revision: u64,
}

/// An account as the ledger knows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    pub granted: u64,
    pub spent: u64,
    pub out: u64,
    pub certain: u64,
    pub generation: u32,
    /// Spending of the generation before.
    pub closed_spent: u64,
    pub placed: u64,
    pub next_pos: u64,
    /// Weight in the window.
    pub offered: u64,
    /// What the group counted before its guard is not known yet.
    pub awaits_base: bool,
    /// Its rights end with a lease.
    pub leased: bool,
    /// Something was decided behind a block of it, which then keeps its turn if that was while a strict milestone was to come.
    pub keeps_turn: bool,
}

impl Known {
    /// What the ledger knows to be counted at the group and has a place.
    pub fn counted(&self) -> u64 {
        self.certain + self.placed
    }
}

impl Facts {
    fn of(ledger: &Ledger, groups: &[GroupId]) -> Facts {
        let Some(state) = ledger.counter(&counter()) else { return Facts::default() };
        let mut accounts = [Known::default(); GROUPS_MAX];
        for (known, group) in accounts.iter_mut().zip(groups) {
            let Some(account) = state.accounts().get(group) else { continue };
            *known = Known {
                granted: account.granted,
                spent: account.spent,
                out: account.out(),
                certain: account.certain(),
                generation: account.generation,
                closed_spent: state.terms().generation(*group).closed_spent,
                placed: account.placed,
                next_pos: account.next_pos,
                offered: offered(state, *group),
                awaits_base: account.base.is_none(),
                leased: state.terms().generation(*group).leased,
                keeps_turn: keeps_turn(state, *group),
            };
        }
        Facts {
            certain: state.certain(),
            sequenced: state.sequenced(),
            next_armed: state.next_armed(),
            least: state.milestones().least(),
            undecided: state.window().undecided(),
            recall_wanted: state.recall_wanted(),
            strict_armed: state.has_strict_armed(),
            strict_to_come: state.milestones().pending().any(|(at, _)| state.policy_of(at) == Policy::Strict),
            accounts,
            awarded: state.awards().keys().copied().collect(),
            passed: state.milestones().passed().collect(),
            revision: state.milestones().revision(),
        }
    }
}

/// What one step of the ledger made, beside its state.
#[derive(Clone, Debug, Default)]
pub struct News {
    pub awards: Vec<Award>,
    /// New ordinals and their weight: (first, weight).
    pub ordinals: Vec<(u64, u64)>,
}

impl News {
    fn of(before: &Ledger, after: &Ledger) -> News {
        let (Some(before), Some(after)) = (before.counter(&counter()), after.counter(&counter())) else {
            return News::default();
        };
        let awards = after.awards().iter().filter(|(at, _)| !before.awards().contains_key(at));
        let awards: Vec<Award> = awards.map(|(_, awarded)| awarded.award.clone()).collect();
        let mut ordinals: Vec<(u64, u64)> = awards.iter().map(|award| (award.first, award.delta)).collect();
        for (group, account) in after.accounts() {
            let known = before.accounts().get(group).map(AccountState::places).into_iter().flatten();
            let known: BTreeSet<u64> = known.flat_map(|run| positions(&run)).collect();
            let new = account.places().flat_map(|run| run_places(&run)).filter(|(pos, _)| !known.contains(pos));
            ordinals
                .extend(new.filter_map(|(_, place)| if let Place::Number(n) = place { Some((n, 1)) } else { None }));
        }
        ordinals.sort_unstable();
        ordinals.dedup();
        News { awards, ordinals }
    }
}

fn positions(run: &PlacedRun) -> Range<u64> {
    run.first_pos..run.first_pos + run.count
}

fn keeps_turn(state: &CounterLedger, of: GroupId) -> bool {
    let is_block = |slot: &Slot| matches!(slot, Slot::Open { group, body: Body::Block { .. }, .. } if *group == of);
    let behind = state.window().slots.iter().skip_while(|slot| !is_block(slot));
    behind.into_iter().any(|slot| matches!(slot, Slot::Decided { .. }))
}

fn offered(state: &CounterLedger, of: GroupId) -> u64 {
    let weight = |slot: &Slot| match slot {
        Slot::Open { group, body, .. } if *group == of => body.weight(),
        Slot::Open { .. } => 0,
        Slot::Decided { weights } => weights.get(&of).copied().unwrap_or(0),
    };
    state.window().slots.iter().map(weight).sum::<u64>() + state.deferred().weight_of(of)
}

/// The states of the ledger.
#[derive(Debug)]
pub struct Ledgers {
    groups: Vec<GroupId>,
    mutation: Mutation,
    greets: bool,
    states: Table<Vec<u8>>,
    parts: Vec<Part>,
    /// The next state, and the number of what the step made.
    steps: Memory<(u32, Input), (u32, u32)>,
    news: Vec<News>,
    decisions: Memory<(u32, u8), Option<MessageNo>>,
}

impl Ledgers {
    pub fn new(groups: Vec<GroupId>, config: &Config, mutation: Mutation) -> Ledgers {
        Ledgers {
            groups,
            mutation,
            greets: config.crashes > 0 || config.late_groups > 0,
            states: Table::default(),
            parts: Vec::new(),
            steps: Memory::default(),
            news: vec![News::default()],
            decisions: Memory::default(),
        }
    }

    pub fn part(&self, state: u32) -> &Part {
        &self.parts[state as usize]
    }

    /// States that hold an award, a milestone that had passed, something undecided.
    pub fn met(&self) -> [usize; 3] {
        let count = |is: fn(&Facts) -> bool| self.parts.iter().filter(|part| is(&part.facts)).count();
        [
            count(|facts| !facts.awarded.is_empty()),
            count(|facts| !facts.passed.is_empty()),
            count(|facts| facts.undecided > 0),
        ]
    }

    /// What a step made.
    pub fn news(&self, number: u32) -> &News {
        &self.news[number as usize]
    }

    pub fn len(&self) -> usize {
        self.parts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The ledger when these have greeted it.
    pub fn first(&mut self, hellos: &[LedgerCmd], down: &mut [Channel<ToGroup>]) -> Result<u32, Violation> {
        let mut ledger = Ledger::default();
        ledger.apply(INDEX, &LedgerCmd::Namespace(counter().namespace().to_owned()));
        hellos.iter().for_each(|hello| ledger.apply(INDEX, hello));
        self.found(ledger, down)
    }

    /// The state after an input.
    pub fn step(
        &mut self,
        state: u32,
        input: Input,
        up: &[Channel<LedgerCmd>],
        down: &mut [Channel<ToGroup>],
    ) -> Result<(u32, u32), Violation> {
        if let Some(next) = self.steps.recall(&(state, input)) {
            return Ok(next);
        }
        let before = &self.parts[state as usize];
        let cmd = match input {
            Input::Message { channel, message } => up[usize::from(channel)].message(message).clone(),
            Input::Grant { group } => {
                let group = self.groups[usize::from(group)];
                LedgerCmd::Grant { counter: counter(), epoch: 1, group, amount: 1, if_awarded: None }
            }
            Input::Revoke { group } => {
                let generation = before.facts.accounts[usize::from(group)].generation;
                let group = self.groups[usize::from(group)];
                LedgerCmd::Revoke { counter: counter(), epoch: 1, group, generation, if_last_report: 0 }
            }
        };
        let mut ledger = before.ledger.clone();
        without_panic(|| {
            ledger.apply(INDEX, &cmd);
            ledger.check_invariants();
        })?;
        changed_as_it_may(&before.ledger, &ledger)?;
        let news = News::of(&before.ledger, &ledger);
        let next = self.found(ledger, down)?;
        let nothing = news.awards.is_empty() && news.ordinals.is_empty();
        let number = if nothing { 0 } else { self.news.len() as u32 };
        if !nothing {
            self.news.push(news);
        }
        Ok(self.steps.keep((state, input), (next, number)))
    }

    fn found(&mut self, mut ledger: Ledger, down: &mut [Channel<ToGroup>]) -> Result<u32, Violation> {
        ledger.take_changes();
        let (number, new) = self.states.number(key(&ledger));
        if new {
            let mut now = [0; GROUPS_MAX];
            let mut tells = [0; GROUPS_MAX];
            for (at, (&group, down)) in self.groups.iter().zip(down).enumerate() {
                let told = self.tells(&ledger, group);
                let more: Vec<ToGroup> = told.iter().flat_map(tellable).collect();
                let reaches =
                    |messages: Vec<ToGroup>| messages.into_iter().filter_map(|message| self.mutation.to_group(message));
                now[at] = down.set_of(reaches(told));
                tells[at] = down.set_of(reaches(more));
            }
            let facts = Facts::of(&ledger, &self.groups);
            self.parts.push(Part { ledger, now, tells, facts });
        }
        Ok(number)
    }

    /// The messages of a replica in this state to a group, until it is answered.
    fn tells(&self, ledger: &Ledger, group: GroupId) -> Vec<ToGroup> {
        if ledger.is_fenced(group) {
            return vec![ToGroup::FencedOut { group }];
        }
        let granted = ledger.account(&counter(), group).map(|account| account.granted).filter(|&granted| granted > 0);
        let account = ledger.tells(&counter(), group, None).map(bare);
        let recall = granted.and_then(|granted| ledger.tells(&counter(), group, Some(granted))).map(bare);
        let accounts = ledger.accounts_of(group).into_iter().map(stripped).collect();
        let confirmed = ledger.confirmed(group).filter(|_| self.greets);
        let confirmed = confirmed.map(|start| ToGroup::Confirmed { group, start, accounts, resets: 0 });
        let placed = ledger.placed(&counter(), group).map(|placed| ToGroup::Placed(without_numbers(placed)));
        account.into_iter().chain(recall).chain(placed).chain(confirmed).collect()
    }

    /// The operator's command as this state makes it; `None` when it would be refused or there is nothing to do.
    pub fn decide(
        &mut self,
        state: u32,
        number: u8,
        decision: Decision,
        operator: &mut Channel<LedgerCmd>,
    ) -> Option<MessageNo> {
        if let Some(known) = self.decisions.recall(&(state, number)) {
            return known;
        }
        let ledger = &self.parts[state as usize].ledger;
        let cmd = match decision {
            Decision::Remove(at) => ledger.removal(&counter(), Some(at)).ok().flatten(),
            _ => decision.spec().and_then(|spec| ledger.definition(&counter(), spec, 0).ok().flatten()),
        };
        let message = cmd.map(|cmd| operator.number(cmd));
        self.decisions.keep((state, number), message)
    }
}

/// The account without the parts that a group does not need: acknowledgements, which only say what need not be sent again.
fn stripped(account: Account) -> Account {
    Account { acked_spent: 0, next_pos: 0, last_report: 0, identities_wanted: false, ..account }
}

/// A message about an account without these.
fn bare(message: ToGroup) -> ToGroup {
    match message {
        ToGroup::Account(account) => ToGroup::Account(stripped(account)),
        ToGroup::Opened(opened) => ToGroup::Opened(Opened { account: stripped(opened.account), ..opened }),
        other => other,
    }
}

/// Numbers are told to clients alone; they are checked when they are given.
fn without_numbers(placed: Placed) -> Placed {
    let place = |place: Place| if matches!(place, Place::Number(_)) { Place::Counted } else { place };
    let single = |run: &PlacedRun| {
        let place = place(run.place);
        (run.first_pos..run.first_pos + run.count).map(move |first_pos| PlacedRun { first_pos, count: 1, place })
    };
    Placed { runs: placed.runs.iter().flat_map(single).collect(), need_items: None, ..placed }
}

/// The messages that a ledger with this message may have sent before: with fewer rights granted, and fewer of the places. More than it did
/// tell, lest states differ in what was told when.
fn tellable(message: &ToGroup) -> Vec<ToGroup> {
    match message {
        ToGroup::Account(account) => {
            let with = |granted| ToGroup::Account(Account { granted, ..account.clone() });
            (u64::from(account.recall)..=account.granted).map(with).collect()
        }
        ToGroup::Opened(opened) => {
            let with = |granted| Account { granted, ..opened.account.clone() };
            let all = (u64::from(opened.account.recall)..=opened.account.granted).map(with);
            all.map(|account| ToGroup::Opened(Opened { account, ..opened.clone() })).collect()
        }
        ToGroup::Placed(placed) => {
            let first =
                |count: usize| ToGroup::Placed(Placed { runs: placed.runs[..count].to_vec(), ..placed.clone() });
            (1..=placed.runs.len()).map(first).collect()
        }
        other => vec![other.clone()],
    }
}

/// The identity of a state: everything that a step or a message depends on. Not by numbers and by what else an award says, which are
/// checked when they are given.
fn key(ledger: &Ledger) -> Vec<u8> {
    let Some(state) = ledger.counter(&counter()) else { return format!("{:?}", ledger.groups()).into_bytes() };
    let account = |account: &AccountState| {
        let AccountState { base, generation, granted, spent, returned, closed, placed, next_pos, need_items, .. } =
            *account;
        let places: Vec<(u64, Place)> = places(account).collect();
        let account = (base, granted, spent, returned, closed, placed, next_pos, need_items, places);
        format!("{:?}", (generation, account))
    };
    let accounts: Vec<String> = state.accounts().values().map(account).collect();
    let awards: Vec<(u64, u64, u64)> =
        state.awards().iter().map(|(&at, awarded)| (at, awarded.award.step, awarded.award.count)).collect();
    let window = &state.window().slots;
    let milestones = state.milestones();
    let sequenced = state.sequenced();
    let terms = (state.terms(), state.deferred());
    let groups = ledger.groups();
    format!("{accounts:?} {awards:?} {window:?} {milestones:?} {sequenced} {groups:?} {terms:?}").into_bytes()
}

/// Places by position, plain.
fn places(account: &AccountState) -> impl Iterator<Item = (u64, Place)> {
    let plain = |place: Place| if matches!(place, Place::Number(_)) { Place::Counted } else { place };
    let of = move |run: PlacedRun| (run.first_pos..run.first_pos + run.count).map(move |pos| (pos, plain(run.place)));
    account.places().flat_map(of)
}

/// The constraints of the ledger's past on its present: awards stay as they are (I8), a decision never changes, and the possible fates of
/// an open increment only shrink (I5).
fn changed_as_it_may(before: &Ledger, after: &Ledger) -> Result<(), Violation> {
    let (Some(before), Some(after)) = (before.counter(&counter()), after.counter(&counter())) else { return Ok(()) };
    for (at, awarded) in before.awards() {
        let same = after.awards().get(at) == Some(awarded);
        Violation::unless(same, "I8", || format!("the award of {at} was {:?}", awarded.award))?;
    }
    for (at, awarded) in after.awards().iter().filter(|(at, _)| !before.awards().contains_key(at)) {
        let settled = before.is_settled(*at);
        Violation::unless(!settled, "I8", || format!("{at} is awarded again: {:?}", awarded.award))?;
        without_panic(|| after.check_award(*at))?;
    }
    for (group, account) in before.accounts() {
        let now: BTreeMap<u64, Place> = after.accounts()[group].places().flat_map(|run| run_places(&run)).collect();
        for (pos, was) in account.places().flat_map(|run| run_places(&run)) {
            let same = now.get(&pos).is_none_or(|is| *is == was);
            Violation::unless(same, "I5", || format!("position {pos} of {group} was {was:?}, now {:?}", now[&pos]))?;
        }
    }
    // With the last strict milestone it ends that blocks keep their turn for sure.
    let same_terms = before.policy() == after.policy();
    let now = intervals(after);
    for (item, was) in intervals(before).into_iter().filter(|_| same_terms) {
        let shrunk = now.get(&item).is_none_or(|is| is.0 >= was.0 && is.1 <= was.1);
        Violation::unless(shrunk, "I5", || format!("the interval of {item:?} grew from {was:?} to {:?}", now[&item]))?;
    }
    Ok(())
}

fn run_places(run: &PlacedRun) -> Vec<(u64, Place)> {
    (0..run.count).map(|n| (run.first_pos + n, run.place.after(n))).collect()
}

/// The ordinals that each open increment may take, by group and position; of those that keep their turn.
fn intervals(state: &CounterLedger) -> BTreeMap<(GroupId, u64), (u64, u64)> {
    let mut intervals = BTreeMap::new();
    let mut sure = state.certain() + 1;
    let mut all = state.certain() + state.out();
    let mut unsure = BTreeSet::new();
    for slot in &state.window().slots {
        let weight = slot.weight();
        if let Slot::Open { group, first_pos, body } = slot {
            if state.policy() == Policy::Timely && matches!(body, Body::Block { .. }) {
                unsure.insert(*group);
            }
            if unsure.contains(group) {
                all += weight;
                continue;
            }
            let mut lo = sure;
            let mut hi = all;
            for (pos, delta) in (*first_pos..).zip(weights(body)) {
                hi += delta;
                intervals.insert((*group, pos), (lo, hi));
                lo += delta;
            }
        }
        (sure, all) = (sure + weight, all + weight);
    }
    intervals
}

fn weights(body: &Body) -> Vec<u64> {
    match body {
        Body::Items { items, .. } => items.iter().map(|item| item.delta).collect(),
        Body::Block { count, delta } => vec![*delta; *count as usize],
    }
}
