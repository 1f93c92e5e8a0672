//! Groups that are lost for good: an operator has declared that the data on their disks alone will not come back. See
//! docs/internals/protocol.md, A8, C8 and C9.
//!
//! Their rights are written off: increments up to that weight may have been answered as counted and be lost. A view may know more
//! of a lost group than the ledger. This surplus, the group's *remains*, is counted without names: below the next milestone as
//! far as there is room, the rest behind it. So views never go back, and no milestone is reached by an increment without an
//! identity.

use super::account::AccountState;
use super::counter::{CounterLedger, Touched};
use super::{DeclareError, Ledger};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::ids::{AggregatorId, CounterName, GroupId, LogIndex};
use tidemark_types::limits::CERTAIN_MAX;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::LedgerCmd;

/// The parts that losses add to the state of a counter; empty if there was none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Rights outstanding in revoked generations, as long as their late increments may not all have their places.
    revoked: BTreeMap<GroupId, u64>,
    lost: BTreeMap<GroupId, Loss>,
    /// Weight that may have been answered as counted and is not before the award, if any: written off then, or held.
    awards: BTreeMap<u64, u64>,
    /// By group: weight that was answered as counted, because it stood behind increments that a lost group took with it. It
    /// stands behind the next milestone until there is room before it.
    held: BTreeMap<GroupId, u64>,
}

/// The effect of a lost group on one counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Weight that it may have reported to clients as counted, and that no other process may know of.
    pub written_off: u64,
    /// Weight that is known to have been counted, and stands behind the next milestone until there is room before it.
    pub surplus: u64,
}

impl Losses {
    pub fn is_empty(&self) -> bool {
        self.revoked.is_empty() && self.lost.is_empty() && self.awards.is_empty() && self.held.is_empty()
    }

    /// Lost groups with an account, and their effects.
    pub fn lost(&self) -> impl Iterator<Item = (GroupId, Loss)> + '_ {
        self.lost.iter().map(|(&group, &loss)| (group, loss))
    }

    /// All that was written off.
    pub fn written_off(&self) -> u64 {
        self.lost.values().fold(0, |sum, loss| sum.saturating_add(loss.written_off))
    }

    /// The weight that the certificate of the milestone names as written off.
    pub fn written_off_at(&self, at: u64) -> u64 {
        self.awards.get(&at).copied().unwrap_or(0)
    }

    /// Weight that has no place yet.
    pub fn surplus(&self) -> u64 {
        self.lost.values().map(|loss| loss.surplus).fold(self.held(), u64::saturating_add)
    }

    /// Weight that was answered as counted and has no place yet.
    fn held(&self) -> u64 {
        self.held.values().copied().fold(0, u64::saturating_add)
    }

    /// The effect of a lost group; none, if it is not lost.
    pub(super) fn loss_of(&self, group: GroupId) -> Loss {
        self.lost.get(&group).copied().unwrap_or_default()
    }

    pub(super) fn set(&mut self, group: GroupId, loss: Loss) {
        self.lost.insert(group, loss);
    }

    /// Keeps the written-off weights that certificates name.
    pub(super) fn keep_awards_of(&mut self, before: &Losses) {
        self.awards.clone_from(&before.awards);
    }

    /// For a counter that began again: only the weights that certificates name.
    pub(super) fn begun_again(self) -> Losses {
        Losses { awards: self.awards, ..Losses::default() }
    }

    pub(super) fn revoke(&mut self, group: GroupId, out: u64) {
        let revoked = self.revoked.entry(group).or_default();
        *revoked = revoked.saturating_add(out);
    }

    /// All late increments of the group have their places.
    pub(super) fn hear(&mut self, group: GroupId) {
        self.revoked.remove(&group);
    }
}

impl CounterLedger {
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// For a state that was read without them.
    pub(super) fn set_losses(&mut self, losses: Losses) {
        for (at, awarded) in &mut self.awards {
            awarded.written_off = losses.written_off_at(*at);
        }
        self.losses = losses;
    }

    /// The weight that an award's certificate names as possibly answered and not before it, noted with it: lost, or held.
    pub(super) fn note_written_off(&mut self, at: u64) -> u64 {
        let lost = if bites(Bug::WrittenOffForgotten) { 0 } else { self.losses.written_off() };
        let held = if bites(Bug::HeldUnsaid) { 0 } else { self.losses.held() };
        let written_off = lost.saturating_add(held);
        if written_off > 0 {
            self.losses.awards.insert(at, written_off);
        }
        written_off
    }

    /// Everything of a group that is accounted for here, its place given or not.
    pub fn known_of(&self, group: GroupId) -> u64 {
        let Some(account) = self.accounts().get(&group) else { return 0 };
        let surplus = self.losses.lost.get(&group).map_or(0, |loss| loss.surplus);
        let held = self.losses.held.get(&group).copied().unwrap_or(0);
        let waiting = self.deferred().weight_of(group);
        account.certain() + account.placed + self.window().weight_of(group) + waiting + surplus + held
    }

    /// The account of a group that was lost before the counter was guarded: all it ever counted are its remains.
    pub(super) fn add_lost_group(&mut self, group: GroupId) {
        self.accounts.entry(group).or_insert_with(AccountState::of_new_group);
        self.losses.lost.entry(group).or_default();
    }

    /// Closes a group's account for good. Increments that wait for identities that only the group has are counted without them.
    pub(super) fn lose(
        &mut self,
        group: GroupId,
        index: LogIndex,
        views: &BTreeSet<AggregatorId>,
        touched: &mut Touched,
    ) {
        // A group that was fenced out before the counter was guarded has no account yet.
        self.add_lost_group(group);
        let out = self.accounts().get(&group).map_or(0, AccountState::out);
        if !bites(Bug::LostStaysOpen) {
            self.close(group, false);
            self.terms.lose(group);
        }
        self.change_account(group, |account| {
            account.base.get_or_insert(0);
            account.forget_places();
        });
        let written_off = out.saturating_add(self.losses.revoked.remove(&group).unwrap_or(0));
        let surplus = self.window.drop_blocks(group) + self.drop_deferred(group);
        self.losses.lost.insert(group, Loss { written_off, surplus });
        // Its counts in views have to be heard before any milestone is armed.
        self.milestones.await_anew(views);
        touched.groups.insert(group);
        self.settle(index, views, touched);
    }

    /// A view shows this much of a lost group; the part unknown here is counted from now on.
    pub(super) fn on_remains(
        &mut self,
        group: GroupId,
        component: u64,
        index: LogIndex,
        views: &BTreeSet<AggregatorId>,
        touched: &mut Touched,
    ) {
        let room = CERTAIN_MAX.saturating_sub(self.certain() + self.out() + self.losses.surplus());
        let new = component.saturating_sub(self.known_of(group)).min(room);
        let Some(loss) = self.losses.lost.get_mut(&group).filter(|_| new > 0) else { return };
        loss.surplus += new;
        self.settle(index, views, touched);
    }

    /// Increments that left the window, or wait for room: the weight that reaches no milestone counts. With nothing lost that is
    /// all of it. But increments behind one that a lost group took with it were decided to be behind the milestone.
    pub(super) fn leave_decided(&mut self, group: GroupId, weight: u64) {
        let armed = self.next_armed().filter(|_| !self.losses.is_empty());
        let room = armed.map_or(u64::MAX, |at| (at - 1).saturating_sub(self.certain() + self.out()));
        let placed = weight.min(room);
        self.leave_window(group, placed);
        self.hold(group, weight - placed);
    }

    fn hold(&mut self, group: GroupId, weight: u64) {
        if weight > 0 {
            *self.losses.held.entry(group).or_default() += weight;
        }
    }

    /// Counts remains as far as no milestone is reached by them, nor by anything in the window that was decided to stand before one.
    pub(super) fn place_remains(&mut self) {
        if self.losses.surplus() == 0 {
            return;
        }
        let armed = self.next_armed().filter(|_| !bites(Bug::RemainsOverBudget));
        let unlimited = CERTAIN_MAX.saturating_sub(self.certain() + self.out());
        let mut room = armed.map_or(unlimited, |at| (at - 1).saturating_sub(self.upper()));
        for (group, weight) in std::mem::take(&mut self.losses.held) {
            let placed = weight.min(room);
            room -= placed;
            self.leave_window(group, placed);
            self.hold(group, weight - placed);
        }
        for group in self.losses.lost.keys().copied().collect::<Vec<_>>() {
            let Some(loss) = self.losses.lost.get_mut(&group) else { continue };
            let placed = loss.surplus.min(room);
            (loss.surplus, room) = (loss.surplus - placed, room - placed);
            self.change_account(group, |account| account.closed += placed);
        }
    }
}

/// The weight that a declaration of loss gives up, as far as is known here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stake {
    /// By counter: rights outstanding, and the weight surely counted under the account.
    pub counters: Vec<(CounterName, u64, u64)>,
}

impl Ledger {
    /// Whether an operator has declared the group lost for good.
    pub fn is_lost(&self, group: GroupId) -> bool {
        self.lost.contains(&group)
    }

    /// Groups that were declared lost, in order.
    pub fn lost(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.lost.iter().copied()
    }

    /// A number that changes with everything that the ledger hears of a group.
    pub fn heard_of(&self, group: GroupId) -> u64 {
        let start = self.groups().get(&group).map_or(0, |registered| registered.start.number);
        let said =
            |state: &CounterLedger| state.accounts().get(&group).map(|of| of.report_no.wrapping_add(of.next_pos));
        self.counters.values().filter_map(said).fold(start, u64::wrapping_add)
    }

    /// The weight that would be given up with a group.
    pub fn stake(&self, group: GroupId) -> Stake {
        let of = |(name, state): (&CounterName, &CounterLedger)| {
            let account = state.accounts().get(&group)?;
            Some((name.clone(), account.out(), account.certain() + account.placed))
        };
        Stake { counters: self.counters.iter().filter_map(of).collect() }
    }

    /// The command that declares a group lost, decided on this state. Nothing is changed here. The proposer judges whether the
    /// group is still heard of: with `forced` that does not matter.
    pub fn declaration(&self, group: GroupId, forced: bool) -> Result<LedgerCmd, DeclareError> {
        match self.groups().get(&group) {
            None => Err(DeclareError::Unknown(group)),
            Some(_) if self.is_lost(group) => Err(DeclareError::Lost(group)),
            Some(_) => Ok(LedgerCmd::DeclareLost { group, forced, heard: self.heard_of(group) }),
        }
    }

    /// Carried out once. Unless it is forced, only if nothing was heard of the group since it was decided.
    pub(super) fn on_declare_lost(&mut self, index: LogIndex, group: GroupId, forced: bool, heard: u64) {
        let known = self.groups().contains_key(&group) && !self.is_lost(group);
        if !known || !(forced || self.heard_of(group) == heard) {
            return;
        }
        self.lose(index, group);
    }

    /// A registered group is lost.
    pub(super) fn lose(&mut self, index: LogIndex, group: GroupId) {
        self.lost.insert(group);
        self.fence(group);
        for name in self.counters.keys().cloned().collect::<Vec<_>>() {
            self.change(&name, |state, views, touched| state.lose(group, index, views, touched));
        }
    }
}

#[cfg(test)]
mod tests;
