//! Rights of the group for one guarded counter, and the queue of increments that await a place.
//!
//! PROTOCOL section 1, "Valve apply". The account is cumulative (granted, spent, returned); an increment that does not fit is
//! queued at the next position, and only `Placed` resolves it.

use crate::ids::{CounterName, SessionId};
use crate::limits::{BLOCK_ITEMS_MAX, GRANTED_CUMULATIVE_MAX, OFFER_ITEMS_MAX};
use crate::msg::{Account, HelloAccount};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The account of one guarded counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    pub counter: CounterName,
    /// Slot of its total.
    pub slot: u32,
    pub epoch: u32,
    /// The component (sum over the lanes) when the epoch began.
    pub base: u64,
    /// Under `strict` a generation is closed only when nothing certified in it is unknown to the ledger, so no journal of
    /// certified items is kept: a newer generation starts with an empty account and nothing becomes late.
    pub generation: u32,
    pub granted: u64,
    pub spent: u64,
    pub returned: u64,
    /// Of `spent`, what the ledger is known to have applied.
    pub acked_spent: u64,
    /// Offers below are known to have been applied by the ledger.
    pub acked_pos: u64,
    #[serde(skip)]
    pub(super) queue: Queue,
}

/// What a message about the account does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccountChange {
    Nothing,
    /// Only acknowledgements grew.
    Acks,
    Rights,
    /// A new epoch: what was queued is part of the new base.
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
        }
    }

    /// The account alone.
    pub(super) fn without_queue(&self) -> Guard {
        Guard { counter: self.counter.clone(), queue: Queue::default(), ..*self }
    }

    /// Rights left.
    pub fn available(&self) -> u64 {
        self.granted - self.returned - self.spent
    }

    /// The first position whose place is not known; every position below is placed.
    pub fn placed_upto(&self) -> u64 {
        self.queue.head
    }

    /// The next position to be given.
    pub fn next_pos(&self) -> u64 {
        self.queue.next_pos()
    }

    /// Queued increments without a place.
    pub fn pending(&self) -> u64 {
        self.queue.open
    }

    /// Spends rights on an increment if it fits whole.
    pub(super) fn certify(&mut self, delta: u64) -> bool {
        let fits = self.available() >= delta;
        if fits {
            self.spent += delta;
        }
        fits
    }

    /// What the account would do.
    pub(super) fn judge(&self, account: &Account) -> AccountChange {
        if account.epoch != self.epoch {
            return if account.epoch > self.epoch { AccountChange::Epoch } else { AccountChange::Nothing };
        }
        if account.generation != self.generation {
            return if account.generation > self.generation { AccountChange::Rights } else { AccountChange::Nothing };
        }
        if account.recall && account.granted < self.granted {
            return AccountChange::Nothing;
        }
        if account.granted > self.granted || (account.recall && self.available() > 0) {
            return AccountChange::Rights;
        }
        let acks = account.acked_spent > self.acked_spent || account.next_pos > self.acked_pos;
        if acks { AccountChange::Acks } else { AccountChange::Nothing }
    }

    /// Applies an account of this epoch.
    pub(super) fn on_account(&mut self, account: &Account) {
        if account.generation < self.generation {
            return;
        }
        if account.generation > self.generation {
            self.generation = account.generation;
            (self.granted, self.spent, self.returned, self.acked_spent) = (0, 0, 0, 0);
        }
        if account.recall && account.granted < self.granted {
            return;
        }
        self.granted = self.granted.max(account.granted.min(GRANTED_CUMULATIVE_MAX));
        if account.recall {
            self.returned = self.granted - self.spent;
        }
        self.acked_spent = self.acked_spent.max(account.acked_spent.min(self.spent));
        self.acked_pos = self.acked_pos.max(account.next_pos.min(self.next_pos()));
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

    /// Panics when the account is overdrawn or the queue is not what its numbers say.
    pub fn check_invariants(&self) {
        assert!(self.spent.checked_add(self.returned).is_some_and(|used| used <= self.granted), "overdrawn: {self:?}");
        assert!(
            self.acked_spent <= self.spent && self.acked_pos <= self.next_pos(),
            "acknowledged the unsaid: {self:?}"
        );
        self.queue.check_invariants();
    }
}

/// Queued increments from the first unplaced one on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Queue {
    /// Position of the first item.
    pub head: u64,
    pub items: VecDeque<Queued>,
    /// Items without a place.
    pub open: u64,
}

/// One queued increment (48 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Queued {
    pub delta: u64,
    pub seq: u64,
    pub session: SessionId,
    /// Number of its stream.
    pub stream: u32,
    pub idx: u32,
    pub has_session: bool,
    pub placed: bool,
}

impl Queue {
    pub fn next_pos(&self) -> u64 {
        self.head + self.items.len() as u64
    }

    pub fn push(&mut self, item: Queued) -> u64 {
        self.items.push_back(item);
        self.open += 1;
        self.next_pos() - 1
    }

    /// Whether the item at a position awaits its place.
    pub fn is_open(&self, pos: u64) -> bool {
        self.get(pos).is_some_and(|item| !item.placed)
    }

    pub fn get(&self, pos: u64) -> Option<&Queued> {
        self.items.get(usize::try_from(pos.checked_sub(self.head)?).ok()?)
    }

    /// Marks the item as placed, once; its content, if it was open.
    pub fn place(&mut self, pos: u64) -> Option<Queued> {
        let at = usize::try_from(pos.checked_sub(self.head)?).ok()?;
        let item = self.items.get_mut(at).filter(|item| !item.placed)?;
        item.placed = true;
        self.open -= 1;
        Some(*item)
    }

    /// Drops the placed items at the head.
    pub fn advance(&mut self) {
        while self.items.front().is_some_and(|item| item.placed) {
            self.items.pop_front();
            self.head += 1;
        }
    }

    /// Items of one weight from `pos` on, if there are at least `items_min`: their number and weight.
    pub fn block(&self, pos: u64, items_min: usize) -> Option<(u64, u64)> {
        let from = usize::try_from(pos.checked_sub(self.head)?).ok()?;
        if self.items.len().saturating_sub(from) < items_min {
            return None;
        }
        let delta = self.items[from].delta;
        let same = self.items.range(from..).take(BLOCK_ITEMS_MAX as usize).take_while(|item| item.delta == delta);
        let count = same.count();
        (count >= items_min).then_some((count as u64, delta))
    }

    /// At most [`OFFER_ITEMS_MAX`] items of positions `from .. to`.
    pub fn range(&self, from: u64, to: u64) -> impl Iterator<Item = &Queued> {
        let len = self.items.len() as u64;
        let from = from.saturating_sub(self.head).min(len);
        let to = to.saturating_sub(self.head).clamp(from, len).min(from + OFFER_ITEMS_MAX as u64);
        self.items.range(from as usize..to as usize)
    }

    fn check_invariants(&self) {
        let open = self.items.iter().filter(|item| !item.placed).count() as u64;
        assert_eq!(self.open, open, "open items of a queue");
        assert!(self.items.front().is_none_or(|item| !item.placed), "a placed item heads the queue");
    }
}
