//! Buckets of totals that ended a while ago and are on disk only, once buckets take more memory than they may (decision 0051).
//!
//! A total is a sum modulo 2^64, so what it holds is what is in memory and what is on the shelf, **added up**, whatever is added or taken off
//! meanwhile: counting and moving edges read no disk, and a bucket in memory may be less than 0 of its own. Totals are derived: what is on
//! their shelf is of use to this process only, so it is written and read at once, and no disk is waited for.

use super::shares::Share;
use super::{HALVES, Hierarchy};
use crate::ids::Half;
use crate::series::{BucketId, Granularity, Horizon, Totals, UnixTime};
use crate::shards::ShardId;
use crate::shelf::{Rounds, any_kept, minute_of, parse_totals, start_of, value_of_totals};
use crate::teeth::{Bug, bites};
use crate::view::Budget;
use std::cell::OnceCell;
use std::ops::Range;

/// Shares that are looked at for buckets that may leave, at once and when leaving begins.
const LOOKED_AT_ONCE: usize = 256;
const LOOKED_AT: usize = 1 << 17;
/// Of the budget of a step: what it costs to look at a share, and to put one on the shelf.
const LOOKED_PER_COST: usize = 16;
const SHELVED_COST: usize = 64;

/// What is on the shelf, and what leaves.
#[derive(Clone, Debug, Default)]
pub(super) struct Shelving {
    budget: Option<Budget>,
    rounds: Rounds,
    leaving: Option<Leaving>,
    /// Halves of shares of which something is on the shelf.
    halves: usize,
}

/// Some is to leave.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    /// What ended by this minute (since 1970).
    until: u32,
    /// For about so many bytes, by looking at so many shares.
    bytes: usize,
    shares: usize,
}

impl Shelving {
    /// The same of no shares.
    pub fn emptied(&self) -> Shelving {
        Shelving { budget: self.budget.clone(), ..Shelving::default() }
    }

    /// What is on the shelf of half a share. Panics where there is no shelf: nothing was put there.
    fn read(&self, share: &Share, half: usize) -> Totals {
        let until = share.shelved_until[half];
        if until == 0 {
            return Totals::default();
        }
        let Budget { shelf, .. } = self.budget.as_ref().expect("what left memory is on the shelf");
        let key = share.shelf_key(half);
        match shelf.read_total(key).as_deref().map(parse_totals) {
            Some(Ok((found, totals))) if found == until => totals,
            Some(Ok((found, _))) => shelf.is_damaged_total(key, &format!("until minute {found}, and not {until}")),
            Some(Err(error)) => shelf.is_damaged_total(key, &error.to_string()),
            None => shelf.is_damaged_total(key, "it is missing"),
        }
    }

    /// Takes what is there of half a share from the shelf.
    fn remove(&mut self, share: &mut Share, half: usize) {
        if std::mem::take(&mut share.shelved_until[half]) > 0 {
            self.halves -= 1;
            self.forget(share.shelf_key(half));
        }
    }

    fn forget(&self, key: u64) {
        // What is not removed is looked at by nobody, and goes with the next value under its key.
        let _ = self.budget.as_ref().map(|budget| budget.shelf.write_total(key, None));
    }

    /// Nothing of these shares is asked for any more.
    pub fn forget_all<'a>(&mut self, shares: impl Iterator<Item = &'a Share>) {
        for share in shares {
            for half in (0..2).filter(|&half| share.shelved_until[half] > 0) {
                self.halves -= 1;
                self.forget(share.shelf_key(half));
            }
        }
    }

    /// Where nothing that is on the shelf of a share is kept any more, it goes from there.
    pub fn expire(&mut self, share: &mut Share, horizon: Option<&Horizon>) {
        for half in 0..2 {
            let until = share.shelved_until[half];
            if until > 0 && horizon.is_none_or(|horizon| !any_kept(until, horizon)) {
                self.remove(share, half);
            }
        }
    }

    /// Puts what ended by a minute on the shelf, with what is there. False: the disk takes no more, and all stays as it was.
    fn shelve(&mut self, share: &mut Share, half: usize, until: u32, horizon: Option<&Horizon>) -> bool {
        let ended = start_of(until);
        if share.sums.buckets[half].count_closed(ended) == 0 {
            return true;
        }
        let mut memory = share.sums.buckets[half].clone();
        let mut shelved = self.read(share, half);
        shelved.add_totals(&memory.take_closed(ended), horizon);
        horizon.map(|horizon| shelved.expire(horizon));
        let until = until.max(share.shelved_until[half]);
        let Some(Budget { shelf, .. }) = &self.budget else { return false };
        if !shelf.write_total(share.shelf_key(half), Some(&value_of_totals(until, &shelved))) {
            return false;
        }
        self.halves += usize::from(share.shelved_until[half] == 0);
        share.shelved_until[half] = until;
        if !bites(Bug::TotalLeftTwice) {
            share.sums.buckets[half] = memory;
        }
        true
    }
}

/// What the counters of a range add to a total.
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

/// Buckets of a share as whoever reads them needs them: what is on the shelf is read where the buckets asked for may be there, once.
#[derive(Clone, Debug)]
pub struct HeldTotals<'a> {
    of: HeldSums<'a>,
    half: usize,
    whole: OnceCell<Totals>,
}

impl HeldTotals<'_> {
    /// All of them.
    pub fn whole(&self) -> &Totals {
        let (HeldSums { share, shelving, horizon }, half) = (self.of, self.half);
        let memory = &share.sums.buckets[half];
        let Some(horizon) = horizon.filter(|_| share.shelved_until[half] > 0) else { return memory };
        self.whole.get_or_init(|| {
            let mut whole = memory.clone();
            whole.add_totals(&shelving.read(share, half), Some(horizon));
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

    /// What has all buckets of a granularity from an index on.
    fn behind(&self, granularity: Granularity, index: u32) -> &Totals {
        let is_in_memory = minute_of(BucketId { granularity, index }.end()) > self.of.share.shelved_until[self.half];
        if is_in_memory { &self.of.share.sums.buckets[self.half] } else { self.whole() }
    }
}

impl Hierarchy {
    /// From here on, what buckets take beyond a budget leaves memory when [`Hierarchy::begin_leaving`] says so.
    pub fn keep_within(&mut self, budget: &Budget) {
        self.shelving.budget = Some(budget.clone());
    }

    /// Bytes that buckets take of memory.
    pub fn bucket_bytes(&self) -> usize {
        self.shares.bucket_bytes()
    }

    /// Halves of totals, one for each range that adds to them, of which something is on disk only.
    pub fn shelved(&self) -> usize {
        self.shelving.halves
    }

    /// So many bytes are to leave, of what ended a while ago: the next steps see to it.
    pub fn begin_leaving(&mut self, bytes: usize, now: UnixTime) {
        let Some(Budget { after_s, .. }) = self.shelving.budget.as_ref().filter(|_| bytes > 0) else { return };
        let until = minute_of(now.minus(*after_s));
        self.shelving.leaving = Some(Leaving { until, bytes, shares: LOOKED_AT.min(self.shares.all().len()) });
    }

    /// While all is counted anew: what is too much leaves at once. `bytes`: that it did not at so many is known; it is not tried again before
    /// there is an eighth more.
    pub(super) fn leave_beyond(&mut self, bytes: &mut usize, now: UnixTime) {
        let Some(budget) = self.shelving.budget.as_ref().filter(|_| self.bucket_bytes() > *bytes) else { return };
        let too_much = budget.too_much(self.bucket_bytes());
        if too_much > 0 {
            self.begin_leaving(too_much, now);
            self.leave(&mut { usize::MAX });
            *bytes = self.bucket_bytes() + self.bucket_bytes() / 8;
        }
    }

    pub(super) fn held_sums<'a>(&'a self, share: &'a Share) -> HeldSums<'a> {
        HeldSums { share, shelving: &self.shelving, horizon: self.horizons.of_totals(share.namespace) }
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.shelving.leaving.is_some()
    }

    /// Puts on the shelf what is to leave, of some of the shares.
    pub(super) fn leave(&mut self, budget: &mut usize) {
        while let Some(Leaving { until, bytes, shares }) = self.shelving.leaving.filter(|_| *budget > 0) {
            let looked = shares.min(LOOKED_AT_ONCE);
            let (all, ended) = (self.shares.all(), start_of(until));
            let count = |at: usize| all[at].sums.buckets.iter().map(|buckets| buckets.count_closed(ended)).sum();
            let taken = self.shelving.rounds.take(all.len(), looked, bytes, count);
            let before = self.shares.bucket_bytes();
            let has_room = taken.iter().all(|&at| {
                let (shelving, horizons) = (&mut self.shelving, &self.horizons);
                self.shares.change_at(at as usize, |share| {
                    let horizon = horizons.of_totals(share.namespace);
                    (0..2).all(|half| shelving.shelve(share, half, until, horizon))
                })
            });
            let left = Leaving {
                bytes: bytes.saturating_sub(before - self.shares.bucket_bytes()),
                ..Leaving { until, bytes, shares: shares - looked }
            };
            self.shelving.leaving = Some(left).filter(|left| left.bytes > 0 && left.shares > 0 && has_room);
            *budget = budget.saturating_sub(1 + looked / LOOKED_PER_COST + SHELVED_COST * taken.len());
        }
    }

    /// Nothing flows from the counters of a shard any more.
    pub(super) fn forget_shares(&mut self, shard: ShardId) {
        self.shelving.forget_all(self.shares.of_shard(shard));
        self.shares.forget(shard);
    }
}
