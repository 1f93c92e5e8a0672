//! One group's account for one counter, as the ledger knows it, and the places it has given to the group's queued increments.

use super::revoke::Generation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tidemark_types::ids::{CounterName, GroupId};
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::{Account, Hello, HelloAccount, Place, PlacedRun, Report};

/// Cumulative rights, component and places of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountState {
    /// The group's component when its guard began; unknown until it reports.
    pub base: Option<u64>,
    pub generation: u32,
    pub granted: u64,
    pub spent: u64,
    pub returned: u64,
    /// Spending of closed generations.
    pub closed: u64,
    /// Weight of its queued increments that left the window.
    pub placed: u64,
    /// The next position to be offered.
    pub next_pos: u64,
    /// Positions of a block with identities that the settlement needs.
    pub need_items: Option<(u64, u64)>,
    /// Places not yet acknowledged, by first position; neighbours of one kind are joined.
    outcomes: BTreeMap<u64, PlacedRun>,
    pub report_no: u64,
    pub rate_per_s: u64,
}

/// The effect of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    Nothing,
    Changed,
    /// It claims more than was granted: the group must be fenced.
    Impossible,
}

impl AccountState {
    /// The account of a group that is registered while the counter is already guarded: it has counted nothing.
    pub fn of_new_group() -> AccountState {
        AccountState { base: Some(0), ..AccountState::default() }
    }

    /// Rights outstanding as the ledger knows them.
    pub fn out(&self) -> u64 {
        self.granted - self.returned - self.spent
    }

    /// Weight that is surely counted under this account, queued increments aside.
    pub fn certain(&self) -> u64 {
        self.base.unwrap_or(0) + self.closed + self.spent
    }

    /// Takes a report; a report that claims more than was granted changes nothing. At most `base_max` of a base not known before
    /// counts.
    pub fn on_report(&mut self, report: &Report, base_max: u64) -> Reported {
        let taken = bites(Bug::ClosedReportTaken) || bites(Bug::LostReportTaken);
        if report.generation != self.generation && !taken {
            return Reported::Nothing;
        }
        let spent = self.spent.max(report.spent);
        let returned = self.returned.max(report.returned);
        if bites(Bug::LostReportTaken) {
            self.granted = self.granted.max(spent + returned);
        }
        if spent.checked_add(returned).is_none_or(|used| used > self.granted) {
            return Reported::Impossible;
        }
        let before = (self.base, self.spent, self.returned, self.report_no);
        self.base = self.base.or(Some(report.base.min(base_max)));
        self.spent = if bites(Bug::ReportGoesBack) { report.spent } else { spent };
        self.returned = returned;
        self.report_no = self.report_no.max(report.report_no);
        self.rate_per_s = report.rate_per_s;
        self.forget_places_below(report.placed_upto);
        let after = (self.base, self.spent, self.returned, self.report_no);
        if before == after { Reported::Nothing } else { Reported::Changed }
    }

    /// Closes the generation: its spending counts, and its outstanding rights do not return. Returns the spending.
    pub(super) fn close(&mut self) -> u64 {
        let spent = self.spent;
        self.closed += if bites(Bug::RevokedInPlace) { 0 } else { spent };
        self.generation = self.generation.saturating_add(u32::from(!bites(Bug::RevokedInPlace)));
        self.spent = if bites(Bug::RevokedInPlace) { spent } else { 0 };
        (self.granted, self.returned) = (self.spent, 0);
        spent
    }

    /// Whether a group that says `hello` may be the group of this account: the ledger never knows more than the group.
    pub fn agrees_with(&self, hello: &Hello, counter: &CounterName, epoch: u32, terms: Generation) -> bool {
        match hello.accounts.iter().find(|account| account.counter == *counter && account.epoch == epoch) {
            Some(account) => self.knows_no_more_than(account, terms),
            None => {
                let spent = self.closed + self.spent;
                spent == 0 && self.returned == 0 && self.next_pos == 0 && self.base.unwrap_or(0) == 0
            }
        }
    }

    fn knows_no_more_than(&self, hello: &HelloAccount, terms: Generation) -> bool {
        let of_this = hello.generation == self.generation
            && hello.granted <= self.granted
            && self.spent <= hello.spent
            && self.returned <= hello.returned;
        // It was revoked, or otherwise closed, and the group has not heard.
        let of_the_last = hello.generation.checked_add(1) == Some(self.generation)
            && terms.unheard
            && terms.closed_spent <= hello.spent;
        (of_this || of_the_last) && self.next_pos <= hello.next_pos
    }

    /// Records the place of positions `first_pos .. first_pos + count`.
    pub fn place(&mut self, run: PlacedRun) {
        if bites(Bug::PlacesForgotten) {
            self.outcomes.clear();
        }
        let run = self.join_before(run);
        let run = self.join_after(run);
        self.outcomes.insert(run.first_pos, run);
    }

    fn join_before(&mut self, run: PlacedRun) -> PlacedRun {
        match self.outcomes.range(..run.first_pos).next_back() {
            Some((&first, before)) if continues(before, &run) => {
                let joined = PlacedRun { count: before.count + run.count, ..*before };
                self.outcomes.remove(&first);
                joined
            }
            _ => run,
        }
    }

    fn join_after(&mut self, run: PlacedRun) -> PlacedRun {
        match self.outcomes.get(&(run.first_pos + run.count)) {
            Some(after) if continues(&run, after) => {
                let joined = PlacedRun { count: run.count + after.count, ..run };
                self.outcomes.remove(&(run.first_pos + run.count));
                joined
            }
            _ => run,
        }
    }

    fn forget_places_below(&mut self, placed_upto: u64) {
        while let Some(first) = self.outcomes.first_entry() {
            if first.get().first_pos + first.get().count > placed_upto {
                break;
            }
            first.remove();
        }
    }

    /// No group will ask for them any more.
    pub(super) fn forget_places(&mut self) {
        self.outcomes.clear();
        self.need_items = None;
    }

    /// Runs of places that the group has not acknowledged.
    pub fn unacknowledged(&self) -> u64 {
        self.outcomes.len() as u64
    }

    pub fn places(&self) -> impl Iterator<Item = PlacedRun> + '_ {
        self.outcomes.values().copied()
    }

    pub fn message(&self, counter: &CounterName, epoch: u32, group: GroupId, identities_wanted: bool) -> Account {
        Account {
            counter: counter.clone(),
            epoch,
            group,
            generation: self.generation,
            granted: self.granted,
            acked_spent: self.spent,
            recall: false,
            next_pos: self.next_pos,
            last_report: self.report_no,
            identities_wanted,
        }
    }

    /// Panics when the account is overdrawn or places overlap.
    pub fn check_invariants(&self) {
        assert!(self.spent + self.returned <= self.granted, "account overdrawn: {self:?}");
        let mut upto = 0;
        for (first, run) in &self.outcomes {
            assert!(*first == run.first_pos && *first >= upto && run.count > 0, "places overlap: {self:?}");
            upto = run.first_pos + run.count;
            assert!(upto <= self.next_pos, "a place was given to a position that was not offered: {self:?}");
        }
    }
}

/// Whether `next` stands right behind `run` and has the same kind of place.
fn continues(run: &PlacedRun, next: &PlacedRun) -> bool {
    let adjacent = run.first_pos + run.count == next.first_pos;
    adjacent
        && match (run.place, next.place) {
            (Place::Counted, Place::Counted) => true,
            (Place::Number(a), Place::Number(b)) => b.checked_sub(a) == Some(run.count),
            _ => false,
        }
}
