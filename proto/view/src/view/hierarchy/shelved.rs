//! Buckets of totals that ended a while ago and are on disk only, once buckets take more memory than the budget (decision 0051).
//!
//! A total is a sum modulo 2^64, so it is the **sum** of its part in memory and its part on the shelf, whatever is added or
//! subtracted meanwhile. Counting and moving edges read no disk, and a bucket in memory may be less than 0 of its own. Totals are
//! derived: their shelf is of use to this process only, so it is written and read at once. Each value has a number of its own,
//! which is never given again: values that are not read any more may go at leisure.

use super::shares::Share;
use super::{DirectCounts, HALVES, Hierarchy};
use crate::view::Budget;
use std::cell::OnceCell;
use std::ops::Range;
use tidemark_types::ids::Half;
use tidemark_types::series::{BucketId, Granularity, Horizon, Totals, UnixTime};
use tidemark_types::shelf::{Rounds, any_kept, minute_of, parse_totals, start_of, value_of_totals};
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::shards::ShardId;

/// Shares that are looked at once leaving begins, for buckets that may.
const LOOKED_AT: usize = 1 << 17;
/// The bytes that leave at once, about, and the shares that are looked at.
const BYTES_AT_ONCE: usize = 16 << 10;
const LOOKED_AT_ONCE: usize = 256;
/// The cost of a value that is put on the shelf, or taken away, in the budget of a step. A share that is looked at costs one.
const SHELVED_COST: usize = 64;
const REMOVED_COST: usize = 16;

/// The values on the shelf, and the buckets that leave.
#[derive(Clone, Debug, Default)]
pub(super) struct Shelving {
    budget: Option<Budget>,
    rounds: Rounds,
    leaving: Option<Leaving>,
    /// The number that was given to a value last.
    ticket: u32,
    /// Shares with buckets on the shelf.
    shares: usize,
    /// Values that are not read any more.
    unread: Vec<u32>,
    /// The disk took no more when it was tried last.
    is_full: bool,
    /// The number of shares in a row without buckets that ended by this minute (since 1970).
    barren: (usize, u32),
}

/// Some is to leave.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    /// Buckets that ended by this minute (since 1970) leave.
    until: u32,
    /// The bytes that are to leave, about, and the number of shares to look at.
    bytes: usize,
    shares: usize,
}

impl Shelving {
    /// The part of a share on the shelf. Panics if there is no shelf: nothing was put there.
    fn read(&self, share: &Share) -> [Totals; 2] {
        if share.shelved_until == 0 {
            return Default::default();
        }
        let Budget { shelf, .. } = self.budget.as_ref().expect("what left memory is on the shelf");
        match shelf.read_total(share.ticket).as_deref().map(parse_totals) {
            Some(Ok((until, totals))) if until == share.shelved_until => totals,
            Some(Ok((until, _))) => {
                let why = format!("until minute {until}, and not {}", share.shelved_until);
                shelf.is_damaged_total(share.ticket, &why)
            }
            Some(Err(error)) => shelf.is_damaged_total(share.ticket, &error.to_string()),
            None => shelf.is_damaged_total(share.ticket, "it is missing"),
        }
    }

    /// Nothing of a share is on the shelf any more.
    fn remove(&mut self, share: &mut Share) {
        self.forget_all([&*share].into_iter());
        share.shelved_until = 0;
    }

    /// Nothing of these shares is asked for any more.
    pub fn forget_all<'a>(&mut self, shares: impl Iterator<Item = &'a Share>) {
        let before = self.unread.len();
        self.unread.extend(shares.filter(|share| share.shelved_until > 0).map(|share| share.ticket));
        self.shares -= self.unread.len() - before;
    }

    /// Where nothing that is on the shelf of a share is kept any more, it goes from there.
    pub fn expire(&mut self, share: &mut Share, horizon: Option<&Horizon>) {
        let is_kept = horizon.is_some_and(|horizon| any_kept(share.shelved_until, horizon));
        if share.shelved_until > 0 && !is_kept {
            self.remove(share);
        }
    }

    /// Puts buckets that ended by a minute on the shelf, with the buckets there. False: the disk takes no more, and all stays as
    /// it was.
    fn shelve(&mut self, share: &mut Share, until: u32, horizon: Option<&Horizon>) -> bool {
        let ended = start_of(until);
        let mut memory = share.sums.buckets.clone();
        let mut shelved = self.read(share);
        for (memory, shelved) in memory.iter_mut().zip(&mut shelved) {
            shelved.add_totals(&memory.take_closed(ended), horizon);
            horizon.map(|horizon| shelved.expire(horizon));
        }
        if shelved.iter().all(Totals::is_empty) {
            self.remove(share);
        } else if !self.write(share, until.max(share.shelved_until), &shelved) {
            self.is_full = true;
            return false;
        }
        if !bites(Bug::TotalLeftTwice) {
            share.sums.buckets = memory;
        }
        true
    }

    fn write(&mut self, share: &mut Share, until: u32, shelved: &[Totals; 2]) -> bool {
        let is_new = share.shelved_until == 0;
        let ticket = if is_new { self.ticket.checked_add(1) } else { Some(share.ticket) };
        let (Some(Budget { shelf, .. }), Some(ticket)) = (&self.budget, ticket) else { return false };
        if !shelf.write_total(ticket, Some(&value_of_totals(until, shelved))) {
            return false;
        }
        if is_new {
            (self.ticket, self.shares) = (ticket, self.shares + 1);
        }
        (share.ticket, share.shelved_until) = (ticket, until);
        true
    }

    /// Deletes values that are not read any more.
    fn clear(&mut self, budget: &mut usize) {
        while let Some(&ticket) = self.unread.last().filter(|_| *budget > 0 && !self.is_full) {
            self.is_full = self.budget.as_ref().is_some_and(|budget| !budget.shelf.write_total(ticket, None));
            if !self.is_full {
                self.unread.pop();
            }
            *budget = budget.saturating_sub(REMOVED_COST);
        }
    }

    /// Some of the shares, for about this number of bytes, and the number of shares that were looked at.
    fn take(&mut self, shares: &[Share], Leaving { until, bytes, shares: most }: Leaving) -> (Vec<u32>, usize) {
        let ended = start_of(until);
        let count = |at: usize| shares[at].sums.buckets.iter().map(|buckets| buckets.count_closed(ended)).sum();
        let taken = self.rounds.take(shares.len(), most.min(LOOKED_AT_ONCE), bytes.min(BYTES_AT_ONCE), count);
        self.barren = (if taken.is_empty() { self.barren.0 + self.rounds.looked } else { 0 }, until);
        (taken, self.rounds.looked)
    }
}

/// The part of the counters of a range in a total.
#[derive(Clone, Copy, Debug)]
pub struct HeldSums<'a> {
    share: &'a Share,
    shelving: &'a Shelving,
    horizon: Option<&'a Horizon>,
}

impl<'a> HeldSums<'a> {
    /// All-time.
    pub fn count(&self, half: Half) -> u64 {
        self.share.sums.count(half)
    }

    pub fn buckets(&self, half: Half) -> HeldTotals<'a> {
        HeldTotals { of: *self, half: half as usize, whole: OnceCell::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.share.sums.is_empty() && HALVES.into_iter().all(|half| self.buckets(half).whole().is_empty())
    }
}

/// Buckets of a share for a reader: the shelf is read if the requested buckets may be there, once.
#[derive(Clone, Debug)]
pub struct HeldTotals<'a> {
    of: HeldSums<'a>,
    half: usize,
    whole: OnceCell<Totals>,
}

impl HeldTotals<'_> {
    /// All of them.
    pub fn whole(&self) -> &Totals {
        let HeldSums { share, shelving, horizon } = self.of;
        let memory = &share.sums.buckets[self.half];
        let Some(horizon) = horizon.filter(|_| share.shelved_until > 0) else { return memory };
        self.whole.get_or_init(|| {
            let mut whole = memory.clone();
            whole.add_totals(&shelving.read(share)[self.half], Some(horizon));
            whole
        })
    }

    /// The sum over buckets of one granularity, saturating.
    pub fn sum(&self, granularity: Granularity, indexes: Range<u32>) -> u64 {
        self.behind(granularity, indexes.start).sum(granularity, indexes)
    }

    /// The buckets of one granularity in a range, ascending.
    pub fn within(&self, granularity: Granularity, indexes: Range<u32>) -> impl Iterator<Item = (BucketId, u64)> + '_ {
        self.behind(granularity, indexes.start).within(granularity, indexes)
    }

    /// The sums with all buckets of a granularity from an index on.
    fn behind(&self, granularity: Granularity, index: u32) -> &Totals {
        let share = self.of.share;
        let is_in_memory = minute_of(BucketId { granularity, index }.end()) > share.shelved_until;
        if is_in_memory { &share.sums.buckets[self.half] } else { self.whole() }
    }
}

impl Hierarchy {
    /// From now on, buckets beyond a budget leave memory when [`Hierarchy::begin_leaving`] says so.
    pub fn keep_within(&mut self, budget: &Budget) {
        self.shelving.budget = Some(budget.clone());
    }

    /// Bytes that buckets take of memory.
    pub fn bucket_bytes(&self) -> usize {
        self.shares.bucket_bytes()
    }

    /// Totals with buckets on disk only, each as often as ranges add to it.
    pub fn shelved(&self) -> usize {
        self.shelving.shares
    }

    /// This number of bytes is to leave, of buckets that ended a while ago: the next steps evict them. Returns whether they have
    /// anything to do.
    pub fn begin_leaving(&mut self, bytes: usize, now: UnixTime) -> bool {
        self.shelving.is_full = false;
        let (shares, Shelving { budget, barren, leaving, .. }) = (self.shares.all().len(), &mut self.shelving);
        if let Some(Budget { after_s, .. }) = budget.as_ref().filter(|_| bytes > 0 && leaving.is_none()) {
            let until = minute_of(now.minus(*after_s));
            if barren.1 != until {
                *barren = (0, until);
            }
            // All were looked at, including those from which little can leave.
            if barren.0 < 2 * shares {
                *leaving = Some(Leaving { until, bytes, shares: LOOKED_AT.min(shares) });
            }
        }
        self.is_shelving()
    }

    /// During a recount: buckets beyond the budget leave at once. That is not tried again before there is an eighth more than
    /// `tried`, the bytes after the last time.
    pub(super) fn leave_beyond(&mut self, tried: &mut usize, view: &impl DirectCounts) {
        let held = self.bucket_bytes();
        let Some(budget) = self.shelving.budget.as_ref().filter(|_| held > *tried + *tried / 8) else { return };
        let (now, rows) = view.now_and_bytes();
        let bytes = budget.too_much(held + rows).min(held);
        if bytes > 0 {
            let until = minute_of(now.minus(budget.after_s));
            self.shelving.is_full = false;
            self.shelving.leaving = Some(Leaving { until, bytes, shares: 2 * self.shares.all().len() });
            self.leave(&mut { usize::MAX });
            *tried = self.bucket_bytes();
        }
    }

    pub(super) fn held_sums<'a>(&'a self, share: &'a Share) -> HeldSums<'a> {
        HeldSums { share, shelving: &self.shelving, horizon: self.horizons.of_totals(share.namespace) }
    }

    /// Whether a step has work for the shelf.
    pub(super) fn is_shelving(&self) -> bool {
        let Shelving { leaving, unread, is_full, .. } = &self.shelving;
        leaving.is_some() || !unread.is_empty() && !is_full
    }

    /// Evicts buckets of some of the shares to the shelf, and deletes values there that are not read any more.
    pub(super) fn leave(&mut self, budget: &mut usize) {
        self.shelving.clear(budget);
        while let Some(leaving) = self.shelving.leaving.filter(|_| *budget > 0) {
            let (taken, looked) = self.shelving.take(self.shares.all(), leaving);
            let before = self.shares.bucket_bytes();
            let shelving = &mut self.shelving;
            let horizons = &self.horizons;
            let mut shelve =
                |share: &mut Share| shelving.shelve(share, leaving.until, horizons.of_totals(share.namespace));
            let _ = taken.iter().all(|&at| self.shares.change_at(at as usize, &mut shelve));
            let bytes = leaving.bytes.saturating_sub(before - self.shares.bucket_bytes());
            let shares = if looked > 0 { leaving.shares - looked } else { 0 };
            let goes_on = bytes > 0 && shares > 0 && !self.shelving.is_full;
            self.shelving.leaving = goes_on.then_some(Leaving { bytes, shares, ..leaving });
            *budget = budget.saturating_sub(looked.max(1) + SHELVED_COST * taken.len());
        }
    }

    /// Nothing flows from the counters of a shard any more.
    pub(super) fn forget_shares(&mut self, shard: ShardId) {
        self.shelving.forget_all(self.shares.of_shard(shard));
        self.shares.forget(shard);
    }
}
