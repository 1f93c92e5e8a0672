//! Groups that may be lost, and lost groups: when each was last heard of, and the counts of lost groups in this view.

use crate::aggregator::AggregatorCore;
use crate::view::View;
use std::collections::BTreeMap;
use tidemark_ledger::ledger::{Changes, DeclareError, ForgetError, Ledger, SetAsideError};
use tidemark_types::ids::{AggregatorId, CounterName, DcId, GroupId};
use tidemark_types::limits::LOST_AFTER;
use tidemark_types::time::{Span, Time};
use tidemark_wire::msg::LedgerCmd;

/// When groups were heard of: by the ledger, by a component that rose, or by their own words to this aggregator.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    since: Time,
    last: BTreeMap<GroupId, Time>,
    /// The ledger's position in an account: (reports, offers).
    said: BTreeMap<(CounterName, GroupId), (u64, u64)>,
}

impl Heard {
    /// Before this nothing is known of anybody.
    pub fn start(&mut self, now: Time) {
        self.since = now;
    }

    pub fn note(&mut self, now: Time, group: GroupId) {
        self.last.insert(group, now);
    }

    pub fn on_raised(&mut self, now: Time, view: &mut View) {
        view.take_raised().into_iter().for_each(|group| self.note(now, group));
    }

    pub fn on_ledger(&mut self, now: Time, changes: &Changes, ledger: &Ledger) {
        changes.groups.iter().for_each(|&group| self.note(now, group));
        for (counter, group) in &changes.accounts {
            let account = ledger.counter(counter).and_then(|state| state.accounts().get(group));
            let said = account.map_or((0, 0), |account| (account.report_no, account.next_pos));
            if self.said.insert((counter.clone(), *group), said) != Some(said) {
                self.note(now, *group);
            }
        }
    }
}

impl AggregatorCore {
    /// For how long nothing was heard of a group, as far as is known here.
    pub fn silent_for(&self, now: Time, group: GroupId) -> Span {
        match self.groups.contains(&group) {
            true => Span(0),
            false => now - self.heard.last.get(&group).copied().unwrap_or(self.heard.since),
        }
    }

    /// The command that declares a group lost. Refused, unless `forced`, if the group was heard of a moment ago.
    pub fn declaration(
        &self,
        now: Time,
        group: GroupId,
        forced: bool,
        ledger: &Ledger,
    ) -> Result<LedgerCmd, DeclareError> {
        let cmd = ledger.declaration(group, forced)?;
        let silent = self.silent_for(now, group);
        match forced || silent >= LOST_AFTER {
            true => Ok(cmd),
            false => {
                let ago_s = silent.0 / 1_000_000;
                let limit_s = LOST_AFTER.0 / 1_000_000;
                Err(DeclareError::Heard { group, ago_s, limit_s })
            }
        }
    }

    /// The command that forgets a data centre. Refused, unless `forced`, if it was heard of a moment ago.
    pub fn forgetting(&self, now: Time, dc: DcId, forced: bool, ledger: &Ledger) -> Result<LedgerCmd, ForgetError> {
        let cmd = ledger.forgetting(dc, forced)?;
        if forced {
            return Ok(cmd);
        }
        if dc == self.config.own.dc || self.peers_of(dc).next().is_some() {
            return Err(ForgetError::Connected(dc));
        }
        let silence = ledger.groups_left(dc).map(|group| (self.silent_for(now, group), group)).min();
        match silence.filter(|(silent, _)| *silent < LOST_AFTER) {
            Some((silent, group)) => {
                let ago_s = silent.0 / 1_000_000;
                let limit_s = LOST_AFTER.0 / 1_000_000;
                Err(ForgetError::Heard { group, ago_s, limit_s })
            }
            None => Ok(cmd),
        }
    }

    /// The command that sets a view of a pair aside. Refused if the view is connected here, and so runs.
    pub fn setting_aside(&self, view: AggregatorId, ledger: &Ledger) -> Result<LedgerCmd, SetAsideError> {
        let cmd = ledger.setting_aside(view)?;
        if self.is_connected(view) { Err(SetAsideError::Connected) } else { Ok(cmd) }
    }

    fn is_connected(&self, view: AggregatorId) -> bool {
        view == self.config.own || self.rtts.contains_key(&view)
    }

    /// Whether another data centre may give a group up: if the group's own data centre can be reached, only that one may.
    pub(super) fn may_declare(&self, dc: DcId, cmd: &LedgerCmd) -> bool {
        let LedgerCmd::DeclareLost { group, forced: false, .. } = cmd else { return true };
        dc == group.dc || self.peers_of(group.dc).next().is_none() && group.dc != self.config.own.dc
    }

    /// Whether the leader puts a command into the log, as far as the command gives something up.
    pub(super) fn judges_lost(&self, now: Time, cmd: &LedgerCmd, ledger: &Ledger) -> bool {
        match cmd {
            LedgerCmd::DeclareLost { group, forced, .. } => *forced || self.silent_for(now, *group) >= LOST_AFTER,
            LedgerCmd::Forget { dc, forced: false, .. } => self.forgetting(now, *dc, false, ledger).is_ok(),
            LedgerCmd::SetAside { view, .. } => !self.is_connected(*view),
            LedgerCmd::Namespace(_)
            | LedgerCmd::Spread(_)
            | LedgerCmd::View(_)
            | LedgerCmd::Hello(_)
            | LedgerCmd::Define { .. }
            | LedgerCmd::Disarm { .. }
            | LedgerCmd::Report(_)
            | LedgerCmd::Offer(_)
            | LedgerCmd::Detail(_)
            | LedgerCmd::Grant { .. }
            | LedgerCmd::ViewAck { .. }
            | LedgerCmd::Signature { .. }
            | LedgerCmd::ClaimRule { .. }
            | LedgerCmd::ClaimUntil { .. }
            | LedgerCmd::Claim { .. }
            | LedgerCmd::ClaimOver { .. }
            | LedgerCmd::Returned(_)
            | LedgerCmd::Revoke { .. }
            | LedgerCmd::Reset { .. }
            | LedgerCmd::Expire { .. }
            | LedgerCmd::Remains { .. }
            | LedgerCmd::Forget { .. }
            | LedgerCmd::ViewStart { .. }
            | LedgerCmd::UpDown(_)
            | LedgerCmd::VoterReturns { .. }
            | LedgerCmd::Series { .. }
            | LedgerCmd::Edges { .. }
            | LedgerCmd::AllowEdges { .. }
            | LedgerCmd::Shard { .. }
            | LedgerCmd::Clock(_)
            | LedgerCmd::IdOwners(_)
            | LedgerCmd::Birth(_)
            | LedgerCmd::ResetsHeard { .. } => true,
        }
    }

    /// Reports the counts of lost groups in this view beyond those that the ledger knows.
    pub(super) fn say_remains(&mut self, ledger: &Ledger) {
        if ledger.lost().next().is_some() {
            for counter in ledger.guarded() {
                self.say_remains_of(counter, ledger);
            }
        }
    }

    /// The same for one counter; returns whether there are any.
    pub(super) fn say_remains_of(&mut self, counter: &CounterName, ledger: &Ledger) -> bool {
        let Some(state) = ledger.counter(counter) else { return false };
        let mut any = false;
        for (group, _) in state.losses().lost() {
            let component = self.view.component_of(counter, state.epoch() - 1, group);
            if component > state.known_of(group) {
                any = true;
                let counter = counter.clone();
                let epoch = state.epoch();
                self.standing.add(LedgerCmd::Remains { counter, epoch, group, component });
            }
        }
        any
    }
}
