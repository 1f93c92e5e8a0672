//! Rights under a lease: whether it runs, the certified increments that the ledger does not know, and their fate when the
//! generation is closed.
//!
//! Whether the lease runs is set and cleared by entries of the log, which its proposer writes by its own clock; a process start
//! clears it. Accounts do not depend on it: increments that an entry certifies behind the end of a lease come back as late
//! increments if the generation was revoked. Whether they may be *answered* as counted depends on the clock when the answer
//! leaves ([`crate::node`]).

use super::ids::Standing;
use super::queue::Queued;
use super::stream::Part;
use super::{Effect, Group, Guard};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use tidemark_types::limits::JOURNAL_TRIM_MIN;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::Opened;

/// How a guard holds its rights; empty for rights that are held for good, from the first generation on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenure {
    /// Spending of closed generations that counts.
    closed: u64,
    /// Late increments stand in the queue at positions from the first to below the second.
    late: (u64, u64),
    lease: Option<Lease>,
}

/// A leased generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Lease {
    held: bool,
    /// Certified increments that the ledger is not known to have applied: (spent with it, increment).
    journal: VecDeque<(u64, Queued)>,
}

/// An item of a batch that was certified under a lease and that the ledger is not known to have heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leased {
    pub idx: u32,
    pub guard: u32,
    /// Spending of the generation with it.
    pub upto: u64,
}

impl Tenure {
    /// Whether it is worth storing.
    pub fn is_plain(&self) -> bool {
        *self == Tenure::default()
    }

    fn opened(leased: bool) -> Tenure {
        Tenure { lease: leased.then(Lease::default), ..Tenure::default() }
    }

    /// Whether rights may be spent now.
    pub fn may_spend(&self) -> bool {
        self.lease.as_ref().is_none_or(|lease| lease.held)
    }

    /// An increment was certified; `upto` is the spending with it. True if that is so under a lease.
    pub fn note(&mut self, upto: u64, item: Queued) -> bool {
        let Some(lease) = &mut self.lease else { return false };
        lease.journal.push_back((upto, item));
        true
    }

    pub fn journal(&self) -> impl Iterator<Item = &(u64, Queued)> {
        self.lease.iter().flat_map(|lease| &lease.journal)
    }

    /// Entries of the journal that a ledger with so much spending applied makes needless.
    fn heard(&self, spent: u64) -> usize {
        self.lease.as_ref().map_or(0, |lease| lease.journal.partition_point(|(upto, _)| *upto <= spent))
    }

    pub fn trim(&mut self, spent: u64) {
        let heard = self.heard(spent);
        if let Some(lease) = &mut self.lease {
            lease.journal.drain(..heard);
        }
    }

    /// Ends the generation, in which `closed` of `spent` counts; returns the increments to queue.
    fn close(&mut self, closed: u64, spent: u64) -> Vec<Queued> {
        self.trim(closed);
        let lease = self.lease.take();
        let late: Vec<Queued> = lease.into_iter().flat_map(|lease| lease.journal).map(|(_, item)| item).collect();
        let late = if bites(Bug::LateKept) { Vec::new() } else { late };
        let weight: u64 = late.iter().map(|item| item.delta).sum();
        self.closed = self.closed.saturating_add(spent.saturating_sub(weight));
        late
    }

    /// Panics when the journal is not one of `spent`.
    pub fn check_invariants(&self, spent: u64) {
        assert!(self.is_sound(spent, u64::MAX, |_| true), "journal of spending {spent}: {self:?}");
    }

    /// Whether the journal agrees with the spending, and all of it with the other state.
    pub fn is_sound(&self, spent: u64, next_pos: u64, is_stream: impl Fn(u32) -> bool) -> bool {
        let mut last = None;
        let grows = self.journal().all(|(upto, item)| {
            let from = upto.checked_sub(item.delta);
            let follows = from.is_some_and(|from| last.is_none_or(|last| last == from)) && item.delta > 0;
            last = Some(*upto);
            follows && is_stream(item.stream) && !item.placed
        });
        grows && last.is_none_or(|last| last == spent) && self.late.0 <= self.late.1 && self.late.1 <= next_pos
    }
}

impl Guard {
    /// Whether its rights are leased.
    pub fn is_leased(&self) -> bool {
        self.tenure.lease.is_some()
    }

    /// Whether the log says that its lease runs.
    pub fn holds_lease(&self) -> bool {
        self.tenure.lease.as_ref().is_some_and(|lease| lease.held)
    }

    /// Spending of closed generations that counts.
    pub fn closed(&self) -> u64 {
        self.tenure.closed
    }

    /// Positions of the late increments of the generation that was revoked last: from the first to below the second.
    pub fn late(&self) -> (u64, u64) {
        self.tenure.late
    }

    /// Whether late increments may still be without a place.
    pub fn awaits_late(&self) -> bool {
        self.tenure.late.1 > self.placed_upto()
    }

    /// Increments certified under the present lease that the ledger may not know: spending with it, weight, session.
    pub fn journal(&self) -> impl Iterator<Item = (u64, u64, Option<tidemark_types::ids::SessionId>)> + '_ {
        self.tenure.journal().map(|(upto, item)| (*upto, item.delta, item.has_session.then_some(item.session)))
    }

    /// Whether the account changes more than acknowledgements.
    pub(super) fn is_opened_by(&self, opened: &Opened) -> bool {
        let account = &opened.account;
        let next = account.epoch == self.epoch && account.generation > self.generation;
        let present = account.epoch == self.epoch && account.generation == self.generation;
        let terms = present && opened.leased && !self.is_leased();
        let trims = present && self.tenure.heard(account.acked_spent) >= JOURNAL_TRIM_MIN;
        next || terms || trims
    }
}

impl Group {
    pub(super) fn on_opened(&mut self, opened: &Opened) {
        let account = &opened.account;
        if account.group != self.config.id {
            return;
        }
        let known = self.guard_of(&account.counter);
        if let Some(number) = known
            && self.guards[number as usize].epoch == account.epoch
            && self.guards[number as usize].generation < account.generation
        {
            self.close(number, opened);
        }
        self.on_account(account);
        let Some(number) = self.guard_of(&account.counter) else { return };
        let guard = &mut self.guards[number as usize];
        if opened.leased && !guard.is_leased() && (guard.epoch, guard.generation) == (account.epoch, account.generation)
        {
            guard.tenure.lease = Tenure::opened(true).lease;
            self.touched.insert(number);
        }
    }

    /// The ledger has opened the next generation: the part of the present one that the ledger had heard of counts, and the rest
    /// is queued.
    fn close(&mut self, number: u32, opened: &Opened) {
        let guard = &mut self.guards[number as usize];
        let generation = guard.generation;
        let spent = guard.spent;
        let late = guard.tenure.close(opened.closed_spent, spent);
        let upto = opened.closed_spent;
        guard.open(opened.account.generation);
        self.effects.push_back(Effect::Closed { guard: number, generation, upto });
        let first = guard.next_pos();
        for item in late {
            self.queue_late(number, item);
        }
        let guard = &mut self.guards[number as usize];
        if guard.next_pos() > first {
            guard.tenure.late = (first, guard.next_pos());
        }
        self.touched.insert(number);
    }

    fn queue_late(&mut self, number: u32, item: Queued) {
        let guard = &mut self.guards[number as usize];
        let epoch = guard.epoch;
        let pos = guard.queue.push(item);
        self.ids.set(item.id, Standing::Open);
        self.queued += 1;
        self.saved.queue_changed(number, pos);
        let part = Part { guard: number, epoch, certified: 0, first_pos: pos, indices: vec![item.idx] };
        self.streams.get_mut(item.stream).requeue(item.seq, part);
    }

    /// The proposer's clock says how the lease stands.
    pub(super) fn on_lease(&mut self, number: u32, generation: u32, held: bool) {
        let usable = self.rights_usable();
        let Some(guard) = self.guards.get_mut(number as usize) else { return };
        if guard.generation == generation
            && let Some(lease) = &mut guard.tenure.lease
        {
            lease.held = held && usable;
            self.touched.insert(number);
        }
    }

    /// A process has started, which knows of no lease.
    pub(super) fn end_leases(&mut self) {
        self.guards.iter_mut().filter_map(|guard| guard.tenure.lease.as_mut()).for_each(|lease| lease.held = false);
    }

    /// Whether the journals hold the increment of an id: the ledger may not have heard of it.
    pub(super) fn is_leased_id(&self, id: u32) -> bool {
        self.guards.iter().flat_map(|guard| guard.tenure.journal()).any(|(_, item)| item.id == id)
    }

    /// Items of a batch that the journals hold.
    pub(super) fn leased_items(&self, stream: u32, seq: u64) -> Vec<Leased> {
        let of = |(number, guard): (u32, &'_ Guard)| {
            let mine = guard.tenure.journal().filter(|(_, item)| (item.stream, item.seq) == (stream, seq));
            mine.map(|(upto, item)| Leased { idx: item.idx, guard: number, upto: *upto }).collect::<Vec<_>>()
        };
        (0..).zip(&self.guards).flat_map(of).collect()
    }
}
