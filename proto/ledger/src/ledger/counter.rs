//! The ledger of one guarded counter: accounts, window, settlement, awards. See docs/internals/protocol.md, "Settlement".
//!
//! `certain` is the weight that is surely counted, `out` the outstanding rights. While a milestone M is armed,
//! `certain + out <= M - 1`, so M cannot have happened unseen. An offered increment with `ahead` weight before it in the window
//! takes ordinals inside `[certain + ahead + 1, certain + out + ahead + its weight]`. It is decided as soon as no armed milestone
//! lies in that interval, and the interval only shrinks.

use super::account::{AccountState, Reported};
use super::deferred::{Ahead, Deferred};
use super::lost::Losses;
use super::milestones::{Milestones, Pending};
use super::revoke::Terms;
use super::window::{Body, Slot, Window};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::ids::{AggregatorId, CounterName, DcId, GroupId, LogIndex};
use tidemark_types::limits::{
    CERTAIN_MAX, GRANT_MAX, GRANTED_CUMULATIVE_MAX, IDENTITIES_AHEAD_S, OFFER_ITEMS_MAX, SEQUENCED_MAX,
    UNACKNOWLEDGED_RUNS_MAX, UNDECIDED_ITEMS_MAX,
};
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::WallMs;
use tidemark_wire::msg::{Award, AwardSignature, MilestoneSpec, Offer, OfferBody, Place, PlacedRun, Policy, Report};

/// An award with the voters' signatures that have arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awarded {
    pub award: Award,
    pub signatures: Vec<AwardSignature>,
    /// Weight that was written off before ([`Losses`]): so much may be lost that was answered as counted. Kept with the losses.
    #[serde(skip)]
    pub written_off: u64,
}

impl Awarded {
    /// The bytes that voters sign.
    pub fn signed_bytes(&self) -> Vec<u8> {
        self.award.signed_bytes(self.written_off)
    }
}

/// Replicated state of one guarded counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterLedger {
    pub(super) name: CounterName,
    pub(super) epoch: u32,
    pub(super) accounts: BTreeMap<GroupId, AccountState>,
    pub(super) milestones: Milestones,
    pub(super) sequence_from: Option<u64>,
    /// Weight placed and removed from the window.
    sequenced: u64,
    pub(super) window: Window,
    pub(super) awards: BTreeMap<u64, Awarded>,
    /// Σ of the accounts' `certain`, kept with every change.
    accounts_certain: u64,
    /// Σ of the accounts' `out`, kept with every change.
    out: u64,
    /// Accounts without a base.
    bases_missing: usize,
    /// Kept behind everything else in a snapshot, where one from before there were any has nothing.
    #[serde(skip)]
    pub(super) terms: Terms,
    #[serde(skip)]
    pub(super) losses: Losses,
    #[serde(skip)]
    pub(super) deferred: Deferred,
}

/// The changes of an operation, collected for the ledger's `Changes`.
#[derive(Default)]
pub struct Touched {
    pub groups: BTreeSet<GroupId>,
    pub counter: bool,
    pub awards: Vec<u64>,
    /// The group reported an impossible state: fence it.
    pub fence: Option<GroupId>,
}

/// A view's answer to an arming, as in [`LedgerCmd::ViewAck`](tidemark_wire::msg::LedgerCmd::ViewAck).
#[derive(Clone, Copy, Debug)]
pub struct ViewAnswer {
    pub epoch: u32,
    pub at: u64,
    pub arming: u64,
    pub view: AggregatorId,
    pub shown_below: bool,
}

/// The progress at the head of the window.
enum Head {
    Empty,
    /// Waits for the identity of an increment inside a block.
    Stuck,
    Moved,
}

impl CounterLedger {
    pub fn new(name: CounterName, epoch: u32, groups: impl Iterator<Item = GroupId>) -> CounterLedger {
        let accounts: BTreeMap<_, _> = groups.map(|group| (group, AccountState::default())).collect();
        CounterLedger {
            name,
            epoch,
            bases_missing: accounts.len(),
            accounts,
            milestones: Milestones::default(),
            sequence_from: None,
            sequenced: 0,
            window: Window::default(),
            awards: BTreeMap::new(),
            accounts_certain: 0,
            out: 0,
            terms: Terms::default(),
            losses: Losses::default(),
            deferred: Deferred::default(),
        }
    }

    /// The highest number of an awarded increment, in any generation: a rule continues above it.
    fn covered(&self) -> u64 {
        let last = |awarded: &Awarded| awarded.award.first + awarded.award.delta - 1;
        // Within one epoch that number is below `certain`.
        if self.epoch == 1 || bites(Bug::AwardedAgain) { 0 } else { self.awards.values().map(last).max().unwrap_or(0) }
    }

    /// Begins again at 0, in the next epoch. Awards stay; milestones that are not awarded are armed anew, where they are kept.
    pub(super) fn begin_again(
        &mut self,
        keeps_milestones: bool,
        groups: impl Iterator<Item = GroupId>,
        lost: &BTreeSet<GroupId>,
        views: &BTreeSet<AggregatorId>,
    ) {
        let next = CounterLedger::new(self.name.clone(), self.epoch + 1, groups);
        let over = std::mem::replace(self, next);
        (self.awards, self.losses) = (over.awards, over.losses.begun_again());
        self.milestones = over.milestones;
        lost.iter().for_each(|&group| self.add_lost_group(group));
        if keeps_milestones {
            self.milestones.begin_again(self.covered(), views);
            (self.sequence_from, self.terms) = (over.sequence_from, over.terms.begun_again());
        } else {
            self.milestones.clear();
        }
        self.open_all();
        self.settle_arming(views);
    }

    // ---- reading ----

    pub fn name(&self) -> &CounterName {
        &self.name
    }

    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Weight that is surely counted.
    pub fn certain(&self) -> u64 {
        self.accounts_certain + self.sequenced
    }

    /// Rights outstanding.
    pub fn out(&self) -> u64 {
        self.out
    }

    /// `certain + out + weight(window)`.
    pub fn upper(&self) -> u64 {
        self.certain() + self.out + self.window.weight()
    }

    pub fn window(&self) -> &Window {
        &self.window
    }

    pub fn sequenced(&self) -> u64 {
        self.sequenced
    }

    pub fn sequence_from(&self) -> Option<u64> {
        self.sequence_from
    }

    pub fn milestones(&self) -> &Milestones {
        &self.milestones
    }

    pub fn accounts(&self) -> &BTreeMap<GroupId, AccountState> {
        &self.accounts
    }

    /// The accounts of one data centre's groups.
    pub fn accounts_of(&self, dc: DcId) -> impl Iterator<Item = (&GroupId, &AccountState)> {
        let first = GroupId { dc, group: 0, incarnation: 0 };
        let last = GroupId { dc, group: u16::MAX, incarnation: u32::MAX };
        self.accounts.range(first..=last)
    }

    /// Rights outstanding in one data centre.
    pub fn out_of(&self, dc: DcId) -> u64 {
        self.accounts_of(dc).map(|(_, account)| account.out()).sum()
    }

    /// Weight of one data centre that has its place; `None` while one of its groups has no base.
    pub fn placed_of(&self, dc: DcId) -> Option<u64> {
        let placed = |account: &AccountState| account.base.map(|_| account.certain() + account.placed);
        self.accounts_of(dc).map(|(_, account)| placed(account)).sum()
    }

    pub fn awards(&self) -> &BTreeMap<u64, Awarded> {
        &self.awards
    }

    /// Groups that have not reported the component at their guard: arming waits for them.
    pub fn bases_missing(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.accounts.iter().filter(|(_, account)| account.base.is_none()).map(|(&group, _)| group)
    }

    /// The least armed milestone that is not awarded.
    pub fn next_armed(&self) -> Option<u64> {
        self.milestones.armed_from(0)
    }

    /// Whether rights must come back: an increment is undecided, or a milestone waits to be armed and rights reach it.
    pub fn recall_wanted(&self) -> bool {
        let arming_over =
            || self.bases_missing == 0 && self.milestones.least_arming().is_some_and(|at| self.upper() >= at);
        self.window.undecided() > 0 || arming_over()
    }

    /// Whether increments are placed one after the other: some wait for their place, rights are wanted back, or the definition
    /// asks for it.
    pub fn is_sequencing(&self) -> bool {
        self.recall_wanted() || self.sequence_from.is_some_and(|from| self.certain() >= from)
    }

    /// The weight that may be granted in all, given every limit: 0 while rights are wanted back.
    pub fn grantable(&self) -> u64 {
        if self.recall_wanted() { 0 } else { self.room() }
    }

    /// Ordinals below the least milestone (and below the point from which everything is sequenced) that no holder may take yet.
    pub fn room(&self) -> u64 {
        let below = |limit: u64| limit.saturating_sub(1).saturating_sub(self.upper());
        let unlimited = CERTAIN_MAX.saturating_sub(self.upper());
        let milestone = self.milestones.least().map_or(unlimited, |at| below(at).min(unlimited));
        milestone.min(self.sequence_from.map_or(u64::MAX, |from| below(from.saturating_add(1))))
    }

    // ---- commands ----

    /// The sum of the groups' rates, weight per second. Informative.
    pub fn rate_per_s(&self) -> u64 {
        self.accounts.values().fold(0u64, |sum, account| sum.saturating_add(account.rate_per_s))
    }

    /// Whether an increment offered within the next seconds may be the next milestone. If none can, a block of increments without
    /// names is placed as well, at a fraction of the cost on every replica. While one milestone waits for rights that are out of
    /// reach, offered increments come after it.
    pub fn identities_wanted(&self) -> bool {
        let reach = self.rate_per_s().saturating_mul(IDENTITIES_AHEAD_S);
        let reach = reach.max((self.accounts.len() * OFFER_ITEMS_MAX) as u64);
        self.milestones.any_within(self.first_beyond_window(), self.upper().saturating_add(reach))
    }

    /// Whether one of the increments of `weight` that are put into the log now may be a milestone, as far as can be foreseen.
    /// `under_way` is about the weight that stands before them in the log and is not applied here.
    pub fn may_award(&self, weight: u64, under_way: u64) -> bool {
        let hi = self.upper().saturating_add(under_way).saturating_add(weight);
        self.milestones.any_within(self.first_beyond_window(), hi)
    }

    /// The least ordinal that an increment behind the window can take.
    fn first_beyond_window(&self) -> u64 {
        let unsure = if self.policy() == Policy::Timely { self.window.nameless_weight() } else { 0 };
        self.certain() + self.window.weight() - unsure + 1
    }

    pub fn define(&mut self, spec: &MilestoneSpec, views: &BTreeSet<AggregatorId>, touched: &mut Touched) {
        let first = self.milestones.revision() == 0;
        let known = (self.milestones.singles().clone(), self.milestones.every());
        let (singles, every) = self.of_one_policy(spec);
        self.milestones.revise();
        for at in singles {
            // A passed milestone that lies ahead may have been awarded.
            let withheld = at > self.certain() && self.milestones.passed().any(|passed| passed == at);
            if at > 0 && !self.is_awarded(at) && !withheld {
                self.milestones.add(at, views);
            }
        }
        if let Some(every) = every {
            self.milestones.set_rule(every, self.certain().max(self.covered()), views);
        }
        self.sequence_from = spec.sequence_from.or(self.sequence_from);
        self.define_policy(spec, (&known.0, known.1), first);
        self.settle_arming(views);
        self.reopen(touched);
    }

    /// Whether every milestone of `spec` stands already, or is settled.
    pub fn holds(&self, spec: &MilestoneSpec) -> bool {
        let stands = |at: u64| self.milestones.singles().contains(&at) && self.single_policy(at) == spec.policy;
        let has = |&at: &u64| self.is_settled(at) || stands(at);
        let sequenced = spec.sequence_from.is_none_or(|from| self.sequence_from == Some(from));
        let rule = |every| self.milestones.every() == Some(every) && self.rule_policy() == spec.policy;
        let ruled = spec.every.is_none_or(rule);
        spec.at.iter().all(has) && ruled && sequenced
    }

    /// Whether `at` is a milestone that has its award.
    pub fn is_awarded(&self, at: u64) -> bool {
        self.award_of(at).is_some()
    }

    /// Whether `at` is a milestone that was awarded or had passed.
    pub fn is_settled(&self, at: u64) -> bool {
        self.is_awarded(at) || self.milestones.passed().any(|passed| passed == at)
    }

    /// Removes a milestone that is not awarded; increments that were undecided because of it are decided at once.
    pub fn disarm(&mut self, at: Option<u64>, index: LogIndex, views: &BTreeSet<AggregatorId>, touched: &mut Touched) {
        self.milestones.revise();
        match at {
            Some(at) => self.milestones.disarm(at),
            None => self.milestones.clear_rule(),
        }
        self.settle(index, views, touched);
    }

    pub fn add_new_group(&mut self, group: GroupId) {
        self.accounts.entry(group).or_insert_with(AccountState::of_new_group);
        self.open_for_new_group(group);
    }

    /// Takes a report; `late` from a group that still queues late increments.
    pub fn on_report(
        &mut self,
        report: &Report,
        late: bool,
        index: LogIndex,
        views: &BTreeSet<AggregatorId>,
        touched: &mut Touched,
    ) {
        if report.epoch != self.epoch && !bites(Bug::StaleEpochTaken) {
            return;
        }
        let is_newer = self.accounts.get(&report.group).is_some_and(|account| report.report_no > account.report_no);
        let base_max = CERTAIN_MAX.saturating_sub(self.accounts_certain + self.out);
        let reported = self.change_account(report.group, |account| account.on_report(report, base_max));
        let present = self.accounts.get(&report.group).is_some_and(|account| account.generation == report.generation);
        match reported {
            Some(Reported::Impossible) => touched.fence = Some(report.group),
            Some(reported) => {
                let first = present && !late && self.hear(report.group);
                if first || reported == Reported::Changed {
                    touched.groups.insert(report.group);
                    self.settle(index, views, touched);
                }
                if is_newer {
                    self.resume_heard(report.group, index, views, touched);
                }
            }
            None => {}
        }
    }

    /// Runs `change` on one account and keeps the sums over all.
    pub(super) fn change_account<R>(
        &mut self,
        group: GroupId,
        change: impl FnOnce(&mut AccountState) -> R,
    ) -> Option<R> {
        let account = self.accounts.get_mut(&group)?;
        let before = (account.certain(), account.out(), account.base.is_none());
        let result = change(account);
        self.accounts_certain = self.accounts_certain - before.0 + account.certain();
        self.out = self.out - before.1 + account.out();
        self.bases_missing -= usize::from(before.2 && account.base.is_some());
        Some(result)
    }

    /// Takes the part of an offer that starts at the account's next position.
    pub fn on_offer(&mut self, offer: &Offer, index: LogIndex, views: &BTreeSet<AggregatorId>, touched: &mut Touched) {
        let Some(account) = self.accounts.get_mut(&offer.group) else { return };
        let load = self.window.load();
        if offer.epoch != self.epoch
            || load >= UNDECIDED_ITEMS_MAX
            || load + account.unacknowledged() >= UNACKNOWLEDGED_RUNS_MAX
        {
            return;
        }
        let Some(body) = new_part(offer, account.next_pos) else { return };
        // The increments of a group that were offered first come first.
        if !self.resume(offer.group) || body.weight() > self.room_in_window() {
            return self.settle(index, views, touched);
        }
        let Some(account) = self.accounts.get_mut(&offer.group) else { return };
        let first_pos = account.next_pos;
        account.next_pos += body.count();
        self.window.push(offer.group, first_pos, body);
        touched.groups.insert(offer.group);
        self.settle(index, views, touched);
    }

    /// Identities of increments of a block.
    pub fn on_detail(
        &mut self,
        detail: &Offer,
        index: LogIndex,
        views: &BTreeSet<AggregatorId>,
        touched: &mut Touched,
    ) {
        let OfferBody::Items(items) = &detail.body else { return };
        if detail.epoch != self.epoch {
            return;
        }
        self.resume_heard(detail.group, index, views, touched);
        if self.window.detail(detail.group, detail.first_pos, items) {
            if let Some(account) = self.accounts.get_mut(&detail.group) {
                account.need_items = None;
            }
            touched.groups.insert(detail.group);
            self.settle(index, views, touched);
        }
    }

    /// Grants as much of `amount` as fits; the proposer's state may be stale, this one is not. A rider names a milestone and the
    /// entry that it stands in.
    pub fn grant(&mut self, group: GroupId, amount: u64, rider: Option<(u64, LogIndex)>, touched: &mut Touched) {
        if rider.is_some_and(|(at, index)| !self.takes_rider(group, at, index)) {
            return;
        }
        if !self.may_hold(group) {
            return;
        }
        let fits = if bites(Bug::GrantUnclamped) { amount } else { amount.min(GRANT_MAX).min(self.grantable()) };
        let granted = self.change_account(group, |account| {
            let amount = fits.min(GRANTED_CUMULATIVE_MAX - account.granted);
            account.granted += amount;
            amount
        });
        if granted.is_some_and(|amount| amount > 0) {
            touched.groups.insert(group);
            touched.counter = true;
        }
    }

    /// Every entry on its way carries riders, and only those of the entry that awarded count: the others were decided on the same
    /// state. An entry may hold several proposals; when it awarded, no group had rights left.
    fn takes_rider(&self, group: GroupId, at: u64, index: LogIndex) -> bool {
        let awarded_here = self.awards.get(&at).is_some_and(|awarded| awarded.award.index == index);
        awarded_here && self.accounts.get(&group).is_some_and(|account| account.out() == 0)
    }

    pub fn on_view_ack(&mut self, answer: &ViewAnswer, views: &BTreeSet<AggregatorId>, touched: &mut Touched) {
        if answer.epoch == self.epoch {
            self.milestones.on_view_ack(answer.at, answer.arming, answer.view, answer.shown_below);
            self.settle_arming(views);
            self.reopen(touched);
            touched.counter = true;
        }
    }

    pub fn await_view(&mut self, view: AggregatorId) {
        self.milestones.await_view(view);
    }

    /// Views that are gone, or were set aside, are not waited for any more.
    pub(super) fn forget_views(
        &mut self,
        gone: impl Fn(AggregatorId) -> bool,
        index: LogIndex,
        views: &BTreeSet<AggregatorId>,
        touched: &mut Touched,
    ) {
        self.milestones.forget_views(gone);
        self.settle(index, views, touched);
    }

    /// Keeps a signature under an award, one per data centre. True when it is new.
    pub fn sign(&mut self, at: u64, signature: AwardSignature, max: usize) -> bool {
        let Some(awarded) = self.awards.get_mut(&at) else { return false };
        let fresh = awarded.signatures.len() < max && awarded.signatures.iter().all(|s| s.dc != signature.dc);
        if fresh {
            awarded.signatures.push(signature);
        }
        fresh
    }

    // ---- settlement ----

    /// Decides, places and awards all that it can, then sees which milestones can be armed.
    pub(super) fn settle(&mut self, index: LogIndex, views: &BTreeSet<AggregatorId>, touched: &mut Touched) {
        self.settle_window(index, touched);
        while self.resume_rest() {
            self.settle_window(index, touched);
        }
        self.place_remains();
        self.settle_arming(views);
        self.reopen(touched);
        touched.counter = true;
    }

    fn settle_window(&mut self, index: LogIndex, touched: &mut Touched) {
        loop {
            self.remove_decided();
            if self.out == 0 || bites(Bug::PlacedWhileRightsOut) {
                match self.place_head(index, touched) {
                    Head::Moved => continue,
                    Head::Empty | Head::Stuck => break,
                }
            }
            self.decide_all(touched);
            if !matches!(self.window.slots.front(), Some(Slot::Decided { .. })) {
                break;
            }
        }
    }

    fn remove_decided(&mut self) {
        while let Some(weights) = self.window.pop_decided() {
            weights.into_iter().for_each(|(group, weight)| self.leave_decided(group, weight));
        }
    }

    pub(super) fn leave_window(&mut self, group: GroupId, weight: u64) {
        let weight = weight.min(SEQUENCED_MAX - self.sequenced);
        self.sequenced += weight;
        if let Some(account) = self.accounts.get_mut(&group) {
            account.placed += weight;
            account.need_items = None;
        }
    }

    /// With nothing outstanding the head of the window has exact ordinals: numbers up to the next milestone, then the award.
    fn place_head(&mut self, index: LogIndex, touched: &mut Touched) -> Head {
        let Some(Slot::Open { body, .. }) = self.window.slots.front() else { return Head::Empty };
        let room = match self.milestones.armed_from(self.certain() + 1) {
            Some(next) => next - 1 - self.certain(),
            None => u64::MAX,
        };
        match (body.fitting(room), body) {
            (0, Body::Block { .. }) => self.need_identity(touched),
            (0, Body::Items { .. }) => self.award_head(index, touched),
            (count, _) => self.number_head(count, touched),
        }
    }

    fn number_head(&mut self, count: u64, touched: &mut Touched) -> Head {
        let first = self.certain() + 1;
        let Some((group, first_pos, body)) = self.window.take_front(count) else { return Head::Empty };
        self.number(group, first_pos, &body, first);
        touched.groups.insert(group);
        self.leave_window(group, body.weight());
        Head::Moved
    }

    /// While a base is missing `certain` lacks it, and the numbers are unknown.
    fn number(&mut self, group: GroupId, first_pos: u64, body: &Body, first: u64) {
        let known = self.bases_missing == 0 || bites(Bug::NumberedWithoutBases);
        let Some(account) = self.accounts.get_mut(&group) else { return };
        if body.is_unit() || !known {
            let place = if known { Place::Number(first) } else { Place::Counted };
            return account.place(PlacedRun { first_pos, count: body.count(), place });
        }
        match body {
            Body::Block { .. } => account.place(PlacedRun { first_pos, count: body.count(), place: Place::Counted }),
            Body::Items { items, .. } => {
                let mut first = first;
                for (pos, item) in (first_pos..).zip(items) {
                    account.place(PlacedRun { first_pos: pos, count: 1, place: Place::Number(first) });
                    first += item.delta;
                }
            }
        }
    }

    /// Asks for the increment at the head, which is a milestone, and for those behind it if there is another milestone among
    /// them. Sent once: groups are reminded of unanswered requests.
    fn need_identity(&mut self, touched: &mut Touched) -> Head {
        let certain = self.certain();
        let Some(Slot::Open { group, first_pos, body }) = self.window.slots.front() else { return Head::Stuck };
        let delta = body.weight() / body.count();
        let another = self.milestones.armed_from(certain + delta + 1).is_some_and(|at| at <= certain + body.weight());
        let count = if another { body.count().min(OFFER_ITEMS_MAX as u64) } else { 1 };
        let needed = Some((*first_pos, first_pos + count));
        if let Some(account) = self.accounts.get_mut(group).filter(|account| account.need_items != needed) {
            account.need_items = needed;
            touched.groups.insert(*group);
        }
        Head::Stuck
    }

    /// When an award was decided, by the leader's clock.
    pub(super) fn set_award_time(&mut self, at: u64, time: Option<WallMs>) {
        if let Some(awarded) = self.awards.get_mut(&at) {
            awarded.award.time = time;
        }
    }

    /// Times of awards, if they have one, by milestone.
    pub(super) fn award_times(&self) -> BTreeMap<u64, WallMs> {
        self.awards.iter().filter_map(|(&at, awarded)| Some((at, awarded.award.time?))).collect()
    }

    /// Gives every armed milestone that the head's weight covers to the head.
    fn award_head(&mut self, index: LogIndex, touched: &mut Touched) -> Head {
        let first = self.certain() + 1;
        let before =
            self.accounts.iter().map(|(&group, account)| (group, account.certain() + account.placed)).collect();
        let Some((group, pos, Body::Items { items, weight })) = self.window.take_front(1) else { return Head::Empty };
        let Some(item) = items.front() else { return Head::Empty };
        let (by_rule, single) = self.milestones.take_armed(first, first + weight - 1);
        let awards = by_rule.into_iter().chain(single.into_iter().map(|at| (at, 0, 1)));
        let award = Award {
            counter: self.name.clone(),
            epoch: self.epoch,
            at: 0,
            step: 0,
            count: 1,
            first,
            delta: item.delta,
            group,
            pos,
            client: item.client,
            lane: item.lane,
            seq: item.seq,
            idx: item.idx,
            session: item.session,
            before,
            index,
            time: None,
        };
        let mut least = u64::MAX;
        for (at, step, count) in awards {
            least = least.min(at);
            touched.awards.push(at);
            let award = Award { at, step, count, ..award.clone() };
            let written_off = self.note_written_off(at);
            self.awards.insert(at, Awarded { award, signatures: Vec::new(), written_off });
        }
        if let Some(account) = self.accounts.get_mut(&group) {
            account.place(PlacedRun { first_pos: pos, count: 1, place: Place::Milestone { at: least, first } });
        }
        touched.groups.insert(group);
        self.leave_window(group, weight);
        Head::Moved
    }

    /// With rights outstanding, or a block at the head: decides every increment with an interval that holds no armed milestone.
    fn decide_all(&mut self, touched: &mut Touched) {
        let mut at = 0;
        let mut ahead = Ahead::of(self);
        while let Some(slot) = self.window.slots.get(at) {
            let weight = slot.weight();
            let decision = match slot {
                Slot::Decided { .. } => None,
                Slot::Open { group, .. } if ahead.may_be_deferred(*group) => Some(Decision::Open { count: u64::MAX }),
                Slot::Open { body, .. } => Some(self.decision(body, &ahead)),
            };
            match decision {
                None => {
                    at += usize::from(!self.window.join_decided(at));
                    ahead.add(weight);
                }
                Some(Decision::Open { count }) => {
                    self.leave_open(at, count, &mut ahead);
                    at += 1;
                }
                Some(Decision::Counted { count }) => {
                    let front_weight = self.front_weight(at, count);
                    self.place_counted(at, count, touched);
                    at = self.window.decide(at, count);
                    ahead.add(front_weight);
                }
            }
        }
    }

    /// The first `count` increments of the slot stay open. Increments that may lose their turn stay in one slot with those behind
    /// them.
    fn leave_open(&mut self, at: usize, count: u64, ahead: &mut Ahead) {
        let keeps_turn = ahead.keeps_turn(&self.window.slots[at]);
        if keeps_turn && count < self.open_count(at) {
            self.window.split(at, count);
        }
        let weight = self.window.slots[at].weight();
        ahead.weight += weight;
        ahead.sure += if keeps_turn { weight } else { 0 };
    }

    fn open_count(&self, at: usize) -> u64 {
        match self.window.slots.get(at) {
            Some(Slot::Open { body, .. }) => body.count(),
            _ => 0,
        }
    }

    fn front_weight(&self, at: usize, count: u64) -> u64 {
        match self.window.slots.get(at) {
            Some(Slot::Open { body, .. }) if body.count() == count => body.weight(),
            Some(Slot::Open { body: Body::Items { items, .. }, .. }) => {
                items.iter().take(count as usize).map(|item| item.delta).sum()
            }
            Some(Slot::Open { body: Body::Block { delta, .. }, .. }) => count * delta,
            _ => 0,
        }
    }

    fn place_counted(&mut self, at: usize, count: u64, touched: &mut Touched) {
        if let Some(Slot::Open { group, first_pos, .. }) = self.window.slots.get(at)
            && let Some(account) = self.accounts.get_mut(group)
        {
            account.place(PlacedRun { first_pos: *first_pos, count, place: Place::Counted });
            touched.groups.insert(*group);
        }
    }

    /// The decision about the front of an open run with `ahead` weight before it: how many of its first increments are counted.
    /// If the first cannot be counted, how many stay open.
    fn decision(&self, body: &Body, ahead: &Ahead) -> Decision {
        let below = self.certain() + ahead.sure;
        let Some(milestone) = self.milestones.armed_from(below + 1) else {
            return Decision::Counted { count: body.count() };
        };
        // Increments that end below the milestone even if every right outstanding is spent before them.
        let out = if bites(Bug::DecidedTooEarly) { 0 } else { self.out };
        let room = (milestone - 1).saturating_sub(self.certain() + ahead.weight + out);
        let surely_before = body.fitting(room);
        if surely_before > 0 {
            return Decision::Counted { count: surely_before };
        }
        // Increments with a first ordinal that may still be the milestone or less: all before them weighs at most `reach`.
        let reach = milestone - 1 - below;
        Decision::Open { count: (body.fitting(reach) + 1).min(body.count()) }
    }

    /// Arms the milestones that can be armed; those that happened before are passed. A strict milestone waits for late
    /// increments, which have happened but are not in any account here.
    pub(super) fn settle_arming(&mut self, views: &BTreeSet<AggregatorId>) {
        if self.bases_missing == 0 || bites(Bug::ArmingSkipsBases) {
            self.arm_and_pass(views);
        }
        self.tidy_policies();
    }

    fn arm_and_pass(&mut self, views: &BTreeSet<AggregatorId>) {
        let late = self.terms.any_late() && !bites(Bug::ArmedWhileLate);
        loop {
            let certain = self.certain();
            let upper = self.upper();
            let ready = self.milestones.pending().find_map(|(at, state)| match state {
                Pending::Arming { refused, .. } if *refused || certain >= at => Some((at, false)),
                Pending::Arming { .. } if late && self.policy_of(at) == Policy::Strict => None,
                Pending::Arming { awaits, .. } if awaits.is_empty() && (upper < at || bites(Bug::ArmedOverBudget)) => {
                    Some((at, true))
                }
                Pending::Arming { .. } | Pending::Armed => None,
            });
            match ready {
                Some((at, true)) => self.milestones.arm(at),
                Some((at, false)) => self.milestones.pass(at, certain, views),
                None => break,
            }
        }
    }

    /// Panics when a rule of the protocol is broken (I1, I6, I9 as far as the ledger sees them).
    pub fn check_invariants(&self) {
        self.accounts.values().for_each(AccountState::check_invariants);
        self.window.check_invariants();
        self.deferred.check_invariants();
        let certain: u64 = self.accounts.values().map(AccountState::certain).sum();
        let out: u64 = self.accounts.values().map(AccountState::out).sum();
        assert_eq!((certain, out), (self.accounts_certain, self.out), "sums over accounts");
        let placed: u64 = self.accounts.values().map(|account| account.placed).sum();
        assert_eq!(placed, self.sequenced, "what left the window is placed under some account");
        if let Some(next) = self.next_armed() {
            assert!(
                self.certain() + self.out < next,
                "I1: certain {} + out {} reach the armed milestone {next}",
                self.certain(),
                self.out
            );
        }
    }

    /// Panics when an award does not add up (I6). Awards never change, so checking each once is enough.
    pub fn check_award(&self, at: u64) {
        let award = &self.awards[&at].award;
        let before: u64 = award.before.iter().map(|(_, weight)| weight).sum();
        assert_eq!(before, award.first - 1, "I6: weight before the award {award:?}");
        let last = award.at + award.step * (award.count - 1);
        assert!(
            award.first <= award.at && last < award.first + award.delta,
            "I6: the award covers its milestones {award:?}"
        );
    }
}

enum Decision {
    Counted { count: u64 },
    Open { count: u64 },
}

/// The part of an offer that begins at `next_pos`, if the offer reaches it and holds nothing impossible.
fn new_part(offer: &Offer, next_pos: u64) -> Option<Body> {
    let known = match next_pos.checked_sub(offer.first_pos) {
        _ if bites(Bug::OfferTakenTwice) => 0,
        None if bites(Bug::OfferGapTaken) => 0,
        known => known?,
    };
    match &offer.body {
        OfferBody::Items(items) => {
            let new = items.get(usize::try_from(known).ok()?..).filter(|new| !new.is_empty())?;
            let sound = new.iter().all(|item| item.delta > 0);
            sound.then(|| Body::items(new.iter().copied()))
        }
        &OfferBody::Block { count, delta } => {
            (known < count && delta > 0).then(|| Body::Block { count: count - known, delta })
        }
    }
}
