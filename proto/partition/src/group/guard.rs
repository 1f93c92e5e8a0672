//! Rights of the group for one guarded counter, and the queue of increments that await a place.
//!
//! See docs/internals/protocol.md, "State". The account is cumulative (granted, spent, returned); an increment that does not fit is
//! queued at the next position, and only `Placed` resolves it.

use crate::group::lease::Tenure;
use crate::group::queue::Queue;
use serde::{Deserialize, Serialize};
use tidemark_types::ids::CounterName;
use tidemark_types::limits::GRANTED_CUMULATIVE_MAX;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::{Account, HelloAccount};

/// The account of one guarded counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    pub counter: CounterName,
    /// Slot of its total.
    pub slot: u32,
    pub epoch: u32,
    /// The component (sum over the lanes) when the epoch began.
    pub base: u64,
    /// The next one starts with an empty account; rights that are held for good leave nothing late.
    pub generation: u32,
    pub granted: u64,
    pub spent: u64,
    pub returned: u64,
    /// The part of `spent` that the ledger is known to have applied.
    pub acked_spent: u64,
    /// Offers below are known to have been applied by the ledger.
    pub acked_pos: u64,
    #[serde(skip)]
    pub(super) queue: Queue,
    /// Kept apart in a checkpoint, where one from before there were leases has nothing.
    #[serde(skip)]
    pub(super) tenure: Tenure,
}

/// The effect of a message about the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccountChange {
    Nothing,
    /// Only acknowledgements grew.
    Acks,
    Rights,
    /// A new epoch: the queued increments are part of the new base.
    Epoch,
}

impl Guard {
    /// The guard that the first account of an epoch sets up; `base` is the component at this moment.
    pub(super) fn new(account: &Account, slot: u32, base: u64) -> Guard {
        Guard {
            counter: account.counter.clone(),
            slot,
            epoch: account.epoch,
            base,
            generation: account.generation,
            granted: 0,
            spent: 0,
            returned: 0,
            acked_spent: 0,
            acked_pos: 0,
            queue: Queue::default(),
            tenure: Tenure::default(),
        }
    }

    /// The account alone.
    pub(super) fn without_queue(&self) -> Guard {
        Guard { counter: self.counter.clone(), queue: Queue::default(), tenure: Tenure::default(), ..*self }
    }

    /// Rights left.
    pub fn available(&self) -> u64 {
        self.granted - self.returned - self.spent
    }

    /// The first position without a known place; every position below is placed.
    pub fn placed_upto(&self) -> u64 {
        self.queue.head()
    }

    /// The next position to be given.
    pub fn next_pos(&self) -> u64 {
        self.queue.next_pos()
    }

    /// Queued increments without a place.
    pub fn pending(&self) -> u64 {
        self.queue.open()
    }

    /// Spends rights on an increment if it fits whole.
    pub(super) fn certify(&mut self, delta: u64) -> bool {
        let returned = if bites(Bug::ReturnedStaysUsable) { self.returned } else { 0 };
        let fits = self.available() + returned >= delta && self.tenure.may_spend();
        if fits {
            self.spent += delta;
        }
        fits
    }

    /// The change that the account would make. It opens no generation: that takes its terms.
    pub(super) fn judge(&self, account: &Account) -> AccountChange {
        if account.epoch != self.epoch {
            return if account.epoch > self.epoch { AccountChange::Epoch } else { AccountChange::Nothing };
        }
        if account.generation != self.generation {
            return AccountChange::Nothing;
        }
        if account.recall && account.granted < self.granted {
            return if bites(Bug::StaleRecallHonoured) { AccountChange::Rights } else { AccountChange::Nothing };
        }
        if account.granted > self.granted || (account.recall && self.available() > 0) {
            return AccountChange::Rights;
        }
        let acks = account.acked_spent > self.acked_spent || account.next_pos > self.acked_pos;
        if acks { AccountChange::Acks } else { AccountChange::Nothing }
    }

    /// Applies an account of this epoch.
    pub(super) fn on_account(&mut self, account: &Account) {
        if account.generation != self.generation {
            return;
        }
        if account.recall && account.granted < self.granted {
            if bites(Bug::StaleRecallHonoured) {
                self.returned = account.granted.saturating_sub(self.spent);
            }
            return;
        }
        self.granted = self.granted.max(account.granted.min(GRANTED_CUMULATIVE_MAX));
        if account.recall {
            self.returned = self.granted - self.spent;
        }
        self.acked_spent = self.acked_spent.max(account.acked_spent.min(self.spent));
        self.acked_pos = self.acked_pos.max(account.next_pos.min(self.next_pos()));
        self.tenure.trim(self.acked_spent);
    }

    /// The next generation: nothing is granted in it yet.
    pub(super) fn open(&mut self, generation: u32) {
        self.generation = generation;
        (self.granted, self.spent, self.returned, self.acked_spent) = (0, 0, 0, 0);
    }

    pub(super) fn hello(&self) -> HelloAccount {
        HelloAccount {
            counter: self.counter.clone(),
            epoch: self.epoch,
            generation: self.generation,
            granted: self.granted,
            spent: self.spent,
            returned: self.returned,
            next_pos: self.next_pos(),
        }
    }

    /// Panics when the account is overdrawn or the queue does not match its numbers.
    pub fn check_invariants(&self) {
        assert!(self.spent.checked_add(self.returned).is_some_and(|used| used <= self.granted), "overdrawn: {self:?}");
        assert!(
            self.acked_spent <= self.spent && self.acked_pos <= self.next_pos(),
            "acknowledged the unsaid: {self:?}"
        );
        self.queue.check_invariants();
        self.tenure.check_invariants(self.spent);
    }
}
