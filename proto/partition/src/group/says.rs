//! The messages of a group, from applied state only: its numbers, its greeting, reports and offers.

use crate::group::queue::Queued;
use crate::group::{Group, GroupConfig, Guard};
use std::collections::BTreeSet;
use tidemark_types::ids::{ClientId, CounterName, Half, LogIndex, Start};
use tidemark_types::limits::{BLOCK_ITEMS_MIN, BOOTS_UNCONFIRMED_MAX, OFFER_ITEMS_MAX};
use tidemark_types::table::CellTable;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::*;

impl Group {
    /// Drains the guards with an account or a queue that changed since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.touched)
    }

    pub fn config(&self) -> &GroupConfig {
        &self.config
    }

    /// The last applied entry.
    pub fn applied(&self) -> LogIndex {
        self.applied
    }

    /// Whether the ledger has ever confirmed this incarnation.
    pub fn is_registered(&self) -> bool {
        self.ever_confirmed
    }

    /// Whether batches are taken: registered once, and not fenced out.
    pub fn is_serving(&self) -> bool {
        self.check_serving().is_ok()
    }

    /// Why batches are refused, if they are.
    pub fn not_serving(&self) -> Option<BatchError> {
        self.check_serving().err()
    }

    pub fn is_fenced_out(&self) -> bool {
        self.fenced_out
    }

    /// Whether the present process start is confirmed, so that rights may be used and reports and offers made.
    pub fn rights_usable(&self) -> bool {
        self.confirmed && !self.fenced_out
    }

    /// Whether `nonce` is the latest process start in the log.
    pub fn is_last_boot(&self, nonce: u64) -> bool {
        self.boots.last() == Some(&nonce)
    }

    /// The latest process start in the log.
    pub fn start(&self) -> Start {
        Start { number: self.starts, nonce: self.boots.last().copied().unwrap_or(0) }
    }

    pub fn namespaces(&self) -> &BTreeSet<String> {
        &self.namespaces
    }

    /// Namespaces with counters that may go down.
    pub fn updown(&self) -> &BTreeSet<String> {
        &self.updown
    }

    /// Whether a half of a counter may be counted. The only place of this decision: a counter of a namespace that is not declared
    /// to have up/down counters never goes down.
    ///
    /// # Errors
    /// Its namespace is unknown, or has only counters that grow.
    pub fn takes(&self, counter: &CounterName, half: Half) -> Result<(), BatchError> {
        let namespace = counter.namespace();
        if !self.namespaces.contains(namespace) {
            return Err(BatchError::UnknownNamespace(namespace.to_owned()));
        }
        if half == Half::Down && !self.updown.contains(namespace) && !bites(Bug::GrowOnlyGoesDown) {
            return Err(BatchError::GrowOnly(namespace.to_owned()));
        }
        Ok(())
    }

    /// Counters to be spread over all lanes: asked for, or guarded; in order.
    pub fn spread(&self) -> Vec<CounterName> {
        let guarded = self.guards.iter().map(|guard| &guard.counter);
        self.spread.iter().chain(guarded).collect::<BTreeSet<_>>().into_iter().cloned().collect()
    }

    /// Accounts of guarded counters; their numbers never change.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The number of a counter's guard.
    pub fn guard_of(&self, counter: &CounterName) -> Option<u32> {
        // Guards are few, and a counter without cells is none.
        if self.guards.is_empty() {
            return None;
        }
        let slot = self.cells.table.find_total(counter, self.generations.of(counter))?;
        self.guard_of_slot.get(&slot).copied()
    }

    /// The names of the cells by slot.
    pub fn table(&self) -> &CellTable {
        &self.cells.table
    }

    /// One component; 0 if the lane never touched the cell or there is no such slot.
    pub fn component(&self, slot: u32, lane: u8) -> u64 {
        if slot >= self.cells.table.len() {
            return 0;
        }
        self.cells.of(slot).find(|component| component.lane == lane).map_or(0, |component| component.value)
    }

    /// The sum of a cell's components; 0 if there is no such slot.
    pub fn sum(&self, slot: u32) -> u64 {
        if slot < self.cells.table.len() { self.cells.sum(slot) } else { 0 }
    }

    /// The last batch applied of a stream and whether the stream ended; `None` if it is not known.
    pub fn stream(&self, client: ClientId, lane: u8) -> Option<(u64, bool)> {
        let stream = self.streams.get(self.streams.find(client, lane)?);
        Some((stream.last, stream.fenced))
    }

    /// Queued increments without a place, over all counters.
    pub fn queued(&self) -> u64 {
        self.queued
    }

    /// The greeting after a process start.
    pub fn hello(&self) -> Hello {
        Hello {
            group: self.config.id,
            lanes: self.lanes(),
            nonces: self.boots.clone(),
            number: self.starts,
            accounts: self.guards.iter().map(Guard::hello).collect(),
        }
    }

    /// The report on a guard; the caller fills in `report_no` and `rate_per_s`.
    pub fn report(&self, guard: u32) -> Report {
        let guard = &self.guards[guard as usize];
        Report {
            counter: guard.counter.clone(),
            epoch: guard.epoch,
            group: self.config.id,
            start: self.start().nonce,
            generation: guard.generation,
            spent: guard.spent,
            returned: guard.returned,
            base: guard.base,
            report_no: 0,
            placed_upto: guard.placed_upto(),
            rate_per_s: 0,
        }
    }

    /// The offer of increments that await a place, the first ones from position `from` on. It has their identities, or is a block
    /// if they are alike and many, or no identities are wanted. Increments with a place were offered before. `None` when there
    /// are none.
    pub fn offer(&self, guard: u32, from: u64, identities_wanted: bool) -> Option<Offer> {
        let guard = &self.guards[guard as usize];
        let first_pos = guard.queue.next_open(from)?;
        let block_items_min = if identities_wanted { OFFER_ITEMS_MAX + 1 } else { BLOCK_ITEMS_MIN };
        match guard.queue.block(first_pos, block_items_min) {
            Some((count, delta)) => Some(self.offer_of(guard, first_pos, OfferBody::Block { count, delta })),
            None => self.items(guard, first_pos, guard.next_pos()),
        }
    }

    /// At most [`OFFER_ITEMS_MAX`] of the increments at positions `from .. to` that await a place, with their identities, from the
    /// first one on.
    pub fn detail(&self, guard: u32, from: u64, to: u64) -> Option<Detail> {
        let guard = &self.guards[guard as usize];
        self.items(guard, guard.queue.next_open(from)?, to)
    }

    fn items(&self, guard: &Guard, first_pos: u64, to: u64) -> Option<Offer> {
        let items: Vec<_> = guard.queue.range(first_pos, to).map(|queued| self.offer_item(queued)).collect();
        (!items.is_empty()).then(|| self.offer_of(guard, first_pos, OfferBody::Items(items)))
    }

    fn offer_of(&self, guard: &Guard, first_pos: u64, body: OfferBody) -> Offer {
        let counter = guard.counter.clone();
        let epoch = guard.epoch;
        let start = self.start().nonce;
        Offer { counter, epoch, group: self.config.id, start, first_pos, body }
    }

    fn offer_item(&self, queued: &Queued) -> OfferItem {
        let stream = self.streams.get(queued.stream);
        OfferItem {
            delta: queued.delta,
            session: queued.has_session.then_some(queued.session),
            client: stream.client,
            lane: stream.lane,
            seq: queued.seq,
            idx: queued.idx,
        }
    }

    /// Bytes allocated for cells and their rows.
    pub fn heap_bytes(&self) -> usize {
        self.cells.heap_bytes() + self.series.heap_bytes()
    }

    /// Panics when accounts, queues and records contradict each other.
    pub fn check_invariants(&self) {
        self.guards.iter().for_each(Guard::check_invariants);
        let open: u64 = self.guards.iter().map(Guard::pending).sum();
        assert_eq!(open, self.queued, "queued increments");
        let recorded: u64 = self.streams.iter().map(|(_, stream)| stream.open()).sum();
        assert_eq!(open, recorded, "every queued increment has its record, so that a retry knows of it");
        let queued = self.guards.iter().flat_map(|guard| guard.queue.items()).filter(|item| !item.placed);
        let journal = self.guards.iter().flat_map(|guard| guard.tenure.journal()).map(|(_, item)| item);
        assert!(
            queued.chain(journal).all(|item| self.streams.holds(item.stream)),
            "whose increments wait is forgotten"
        );
        assert!(self.boots.len() <= BOOTS_UNCONFIRMED_MAX + 1);
        self.ids.check_invariants();
        self.check_rows();
    }
}
