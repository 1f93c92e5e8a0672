//! Data centres that never return: an operator gives all of one up at once, and nothing waits for it any more.
//!
//! The known counts of its groups stay counted, as with each group that is declared lost ([`super::lost`]). Its number is never
//! used again.

use super::{CounterLedger, Ledger};
use tidemark_types::ids::{DcId, GroupId, LogIndex};
use tidemark_types::limits::DCS_MAX;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::LedgerCmd;

/// Why a data centre would not be forgotten. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForgetError {
    #[error("data centre {} was forgotten before", .0.0)]
    Forgotten(DcId),
    #[error("data centre {}: {DCS_MAX} at most are possible", .0.0)]
    Unknown(DcId),
    #[error("data centre {} is the last one with a view", .0.0)]
    Last(DcId),
    #[error("group {group} was heard of {ago_s} s ago: it counts as silent after {limit_s} s, unless this is forced")]
    Heard { group: GroupId, ago_s: u64, limit_s: u64 },
    #[error("an aggregator of data centre {} is connected: stop it first, unless this is forced", .0.0)]
    Connected(DcId),
}

impl Ledger {
    /// Whether an operator has said that a data centre never returns.
    pub fn is_forgotten(&self, dc: DcId) -> bool {
        self.forgotten.contains(&dc)
    }

    /// Data centres that never return, in order.
    pub fn forgotten(&self) -> impl Iterator<Item = DcId> + '_ {
        self.forgotten.iter().copied()
    }

    /// Incarnations of a data centre's groups that are not declared lost, in order.
    pub fn groups_left(&self, dc: DcId) -> impl Iterator<Item = GroupId> + '_ {
        self.groups().keys().copied().filter(move |group| group.dc == dc && !self.is_lost(*group))
    }

    /// A number that changes with everything that the ledger hears of a data centre's groups.
    pub fn heard_of_dc(&self, dc: DcId) -> u64 {
        self.groups_left(dc).map(|group| self.heard_of(group)).fold(0, u64::wrapping_add)
    }

    /// The command that forgets a data centre, decided on this state. Nothing is changed here. The proposer judges whether the
    /// data centre is still heard of: with `forced` that does not matter.
    pub fn forgetting(&self, dc: DcId, forced: bool) -> Result<LedgerCmd, ForgetError> {
        if dc.0 >= DCS_MAX {
            return Err(ForgetError::Unknown(dc));
        }
        match (self.is_forgotten(dc), self.is_last_view(dc)) {
            (true, _) => Err(ForgetError::Forgotten(dc)),
            (_, true) => Err(ForgetError::Last(dc)),
            _ => Ok(LedgerCmd::Forget { dc, forced, heard: self.heard_of_dc(dc) }),
        }
    }

    fn is_last_view(&self, dc: DcId) -> bool {
        self.views.iter().all(|view| view.dc == dc)
    }

    /// Carried out once. Unless it is forced, only if nothing was heard of the data centre's groups since it was decided.
    pub(super) fn on_forget(&mut self, index: LogIndex, dc: DcId, forced: bool, heard: u64) {
        let possible = dc.0 < DCS_MAX && !self.is_forgotten(dc) && !self.is_last_view(dc);
        if !possible || !(forced || self.heard_of_dc(dc) == heard) {
            return;
        }
        self.forgotten.insert(dc);
        self.returning.retain(|voter| voter.dc != dc);
        self.forget_moves(dc);
        self.changes.forgotten = true;
        // First, so that nothing that is armed anew waits for it.
        if !bites(Bug::ForgottenIsAwaited) {
            self.views.retain(|view| view.dc != dc);
            self.view_starts.retain(|view, _| view.dc != dc);
        }
        for group in self.groups_left(dc).collect::<Vec<_>>() {
            self.lose(index, group);
        }
        self.pass_resets();
        for name in self.counters.keys().cloned().collect::<Vec<_>>() {
            self.change(&name, |state: &mut CounterLedger, views, touched| {
                state.forget_views(|view| view.dc == dc, index, views, touched);
            });
        }
    }
}

#[cfg(test)]
mod tests;
