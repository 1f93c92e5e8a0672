//! A group: the replicated state of one log inside a data centre. It holds its valves (lanes), their clients' dedupe, its cells,
//! its rights and its queue of increments that await a place.
//!
//! [`Group::apply`] takes committed entries in log order. Everything that leaves a group (answers, reports, offers, feed) is made
//! from state that `apply` produced, never from anything proposed. Apply is deterministic: no clock, no floats, no unordered
//! iteration. A command that does not fit is refused whole and changes nothing; nothing in an entry makes it panic.
//!
//! Positions of queued increments start at 0 for each (counter, epoch). When a counter becomes guarded again under a later epoch,
//! its queued increments are part of the new base, or of the ended generation, and so resolve as counted.

mod audit;
mod blocks;
mod cells;
mod compact;
mod feed;
mod generations;
mod guard;
mod ids;
mod keyed;
mod lease;
mod queue;
mod rows;
mod says;
mod series;
mod shelved;
mod stream;
#[cfg(test)]
mod tests;

pub use guard::Guard;
pub use lease::Leased;
pub use rows::{LoadError, Loading, Row, RowReader, Stored, is_shelved};
pub(crate) use shelved::AGAIN_AFTER;
pub use shelved::{Budget, Shelf};

use cells::Cells;
use generations::{Generations, NOWHERE, SlotSet};
use guard::AccountChange;
use ids::{Ids, NO_ID, Standing};
use queue::Queued;
use series::Series;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stream::{Part, Record, Streams};
use tidemark_types::ids::{CellId, ClientId, CounterName, GroupId, Half, LogIndex, Start};
use tidemark_types::limits::*;
use tidemark_types::ring::ChangeRing;
use tidemark_types::series::UnixTime;
use tidemark_types::table::{CellTable, TableFull};
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::warm;
use tidemark_wire::msg::*;

/// Streams (client, lane) that a group remembers; a batch of a further one is refused as overloaded.
pub const STREAMS_MAX: u32 = 1 << 22;
/// Counters on the spread list: those asked for and those guarded.
const SPREAD_MAX: usize = GUARDED_COUNTERS_MAX + SPREAD_ASKED_MAX;

/// The settings of a group, fixed for the life of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    pub id: GroupId,
    /// Valves that it should have, 1 to [`LANES_MAX`]. Its log says how many it has: as many as any process start asked for.
    pub lanes: u8,
    /// Changed components that the feed remembers; a consumer further behind walks the whole table.
    pub ring_capacity: usize,
    /// Changes of each component that the feed remembers, if that is more. A component with a slow consumer keeps one unread
    /// change. So a consumer is sent to a walk by an absence and never by a load.
    pub ring_per_component: usize,
    /// Seed of the table of names (see [`CellTable::new`]); may differ between replicas.
    pub table_seed: u64,
    /// Ages for which a stream without new batches is remembered; the same on all replicas.
    pub streams_kept: u32,
}

impl GroupConfig {
    pub fn new(id: GroupId, lanes: u8) -> GroupConfig {
        GroupConfig {
            id,
            lanes: lanes.clamp(1, LANES_MAX),
            ring_capacity: 1 << 20,
            ring_per_component: 2,
            table_seed: 0,
            streams_kept: STREAMS_KEPT_AGES,
        }
    }

    fn ring(&self, version: u64) -> ChangeRing {
        ChangeRing::growing(self.ring_capacity, self.ring_per_component, version)
    }

    /// A process with this configuration starts.
    pub fn boot(&self, nonce: u64) -> GroupCmd {
        GroupCmd::Boot { nonce, lanes: self.lanes }
    }
}

/// An effect of an applied entry, for the world outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The batch is durable, now or since earlier (a retry). Items in `pending` (ascending) have no place yet, or the place in
    /// the `Placed` behind this answer. All others are counted. But those in `leased` may be reported as counted only while the
    /// lease runs, by the reporter's clock, or once the ledger has heard of them.
    Acked { client: ClientId, lane: u8, seq: u64, pending: Vec<u32>, leased: Vec<Leased> },
    /// The batch changed nothing.
    Refused { client: ClientId, lane: u8, seq: u64, error: BatchError },
    /// A queued item got its place; said again with the answer to a retry unless the place is plain "counted".
    Placed { client: ClientId, lane: u8, seq: u64, idx: u32, place: Place },
    /// The stream ended; `last_seq` was its last batch.
    Fenced { client: ClientId, lane: u8, last_seq: u64 },
    /// The stream to be ended was forgotten.
    Forgotten { client: ClientId, lane: u8 },
    /// The present process start is confirmed: rights may be used, reports and offers made.
    Confirmed,
    /// This incarnation must never serve again.
    FencedOut,
    /// The counters to be spread over all lanes changed.
    Spread,
    /// A counter is in a later generation: increments of it that were refused may fit now.
    Began { counter: CounterName },
    /// The rules of these namespaces changed: increments that were refused in them may be taken now.
    Settled { namespaces: Vec<String> },
    /// Sent before the answer of a keyed batch: ids, by their place in it, with increments that were not counted now.
    Ids { client: ClientId, lane: u8, seq: u64, answers: Vec<(u32, IdAnswer)> },
    /// A generation of a guard ended. Increments certified under its lease count up to the spending `upto`; the rest is queued.
    Closed { guard: u32, generation: u32, upto: u64 },
    /// Slots have other numbers from here on, and the start that said so is the last one.
    Compacted,
}

/// The standing of a batch in its stream.
#[derive(Clone, Copy, Debug)]
enum Judged {
    /// It was applied before.
    Again { stream: u32 },
    /// It is the next one; `known` is the stream's number, unless it is new, and `stream` its lane.
    Next { known: Option<u32>, stream: u8 },
}

/// Replicated state of one group.
#[derive(Clone, Debug)]
pub struct Group {
    config: GroupConfig,
    applied: LogIndex,
    cells: Cells,
    series: Series,
    streams: Streams,
    ids: Ids,
    /// For how many units of time it was led.
    age: u32,
    guards: Vec<Guard>,
    guard_of_slot: BTreeMap<u32, u32>,
    guarded: SlotSet,
    generations: Generations,
    /// The number of compactions, which give slots new numbers.
    compactions: u32,
    /// The last confirmed process start, if any, and all later ones.
    boots: Vec<u64>,
    /// Process starts ever, in this log.
    starts: u64,
    confirmed: bool,
    ever_confirmed: bool,
    fenced_out: bool,
    namespaces: BTreeSet<String>,
    /// The namespaces with counters that may go down.
    updown: BTreeSet<String>,
    spread: BTreeSet<CounterName>,
    /// Queued increments without a place, over all guards.
    queued: u64,
    /// Guards with an account or a queue that changed since the last [`Group::take_touched`]; not replicated.
    touched: BTreeSet<u32>,
    saved: rows::Saved,
    effects: VecDeque<Effect>,
}

impl Group {
    /// A new group that has never been registered: it refuses batches until its first [`ToGroup::Confirmed`].
    pub fn new(config: GroupConfig) -> Group {
        let table = CellTable::new(config.table_seed);
        let ring = config.ring(0);
        Group {
            config,
            applied: LogIndex(0),
            cells: Cells::new(table, ring),
            series: Series::new(&config, 0),
            streams: Streams::default(),
            ids: Ids::new(config.table_seed),
            age: 0,
            guards: Vec::new(),
            guard_of_slot: BTreeMap::new(),
            guarded: SlotSet::default(),
            generations: Generations::default(),
            compactions: 0,
            boots: Vec::new(),
            starts: 0,
            confirmed: false,
            ever_confirmed: false,
            fenced_out: false,
            namespaces: BTreeSet::new(),
            updown: BTreeSet::new(),
            spread: BTreeSet::new(),
            queued: 0,
            touched: BTreeSet::new(),
            saved: rows::Saved::default(),
            effects: VecDeque::new(),
        }
    }

    /// Sets the incarnation of a new log that several nodes hold; a log that has an incarnation keeps it.
    pub(crate) fn found(&mut self, incarnation: u32) {
        if self.config.id.incarnation == 0 {
            self.config.id.incarnation = incarnation;
        }
    }

    /// Applies the committed entry at `index`, the one after [`Group::applied`]; an earlier one is skipped. Never fails: a
    /// command that does not fit changes nothing, and the effects report it.
    pub fn apply(&mut self, index: LogIndex, entry: &GroupEntry) {
        if index <= self.applied {
            return;
        }
        debug_assert_eq!(index, self.applied.next(), "entries are applied in order");
        self.applied = index;
        self.series.advance(UnixTime::from_wall(entry.now), &self.cells);
        let named = self.name_cells(entry);
        for cmd in &entry.cmds {
            match cmd {
                GroupCmd::Boot { nonce, lanes } => self.on_boot(*nonce, *lanes),
                GroupCmd::Batch(batch) => self.on_batch(batch, named),
                GroupCmd::Fence { client, lane, since } => self.on_fence(*client, *lane, *since),
                GroupCmd::Age(age) => self.on_age(*age),
                GroupCmd::Ledger(message) => self.on_ledger(message),
                GroupCmd::Lease { guard, generation, held } => self.on_lease(*guard, *generation, *held),
                GroupCmd::Keyed(keyed) => self.on_keyed(keyed, named),
                GroupCmd::IdTerms(terms) => self.ids.set_terms(Some(*terms)),
                // Later commands of the entry name old slots.
                GroupCmd::Compact { nonce } => return self.on_compact(*nonce),
            }
        }
    }

    /// The effects of applied entries, in order, until `None`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    // ---- cells ----

    /// Gives the entry's new cells their slots. False if the entry names other slots than the next ones.
    fn name_cells(&mut self, entry: &GroupEntry) -> bool {
        if entry.new_cells.is_empty() {
            return true;
        }
        let table = &self.cells.table;
        let fresh =
            entry.first_new_slot == table.len() && entry.new_cells.iter().all(|cell| table.find(cell).is_none());
        let mut cells = entry.new_cells.iter().zip(entry.first_new_slot..);
        fresh
            && cells.all(|(cell, slot)| {
                let named = self.intern(cell) == Ok(slot);
                self.on_named(cell, slot);
                named
            })
    }

    fn intern(&mut self, cell: &CellId) -> Result<u32, TableFull> {
        let before = self.cells.table.len();
        let slot = self.cells.intern(cell)?;
        if slot == before {
            self.saved.name_added(slot);
        }
        Ok(slot)
    }

    // ---- batches ----

    fn on_batch(&mut self, batch: &Batch, named: bool) {
        let client = batch.client;
        let lane = batch.lane;
        let seq = batch.seq;
        if let Err(error) = self.take_batch(batch, named) {
            self.effects.push_back(Effect::Refused { client, lane, seq, error });
        }
    }

    fn take_batch(&mut self, batch: &Batch, named: bool) -> Result<(), BatchError> {
        let (number, stream) = match self.judge(batch)? {
            Judged::Again { stream } => {
                self.answer_again(stream, batch.seq);
                return Ok(());
            }
            Judged::Next { known, stream } => (known, stream),
        };
        self.check_room(batch, named, number.is_none())?;
        self.add_items(batch)?;
        let number = self.streams.find_or_new(batch.client, stream, self.age);
        self.streams.get_mut(number).last = batch.seq;
        let (pending, leased) =
            if self.guards.is_empty() { Default::default() } else { self.place_items(batch, number, None) };
        let client = batch.client;
        let lane = batch.lane;
        let seq = batch.seq;
        self.effects.push_back(Effect::Acked { client, lane, seq, pending, leased });
        Ok(())
    }

    /// Whether a batch is the next one of its stream, or was applied before.
    fn judge(&self, batch: &Batch) -> Result<Judged, BatchError> {
        self.check_serving()?;
        if batch.lane >= self.lanes() {
            return Err(BatchError::UnknownLane { lane: batch.lane, lanes: self.lanes() });
        }
        let stream = if bites(Bug::DedupePerClient) { 0 } else { batch.lane };
        let known = self.streams.find(batch.client, stream);
        let (last, fenced) = known.map_or((0, false), |number| {
            let stream = self.streams.get(number);
            (stream.last, stream.fenced)
        });
        let deduped = !(bites(Bug::DedupeSkipped) || bites(Bug::DownTwice) && self.is_all_down(batch));
        if batch.seq != 0 && batch.seq <= last && deduped {
            return Ok(Judged::Again { stream: known.expect("only known streams have a last batch") });
        }
        if fenced {
            return Err(BatchError::Fenced { last });
        }
        if self.is_expired(batch.since) {
            let since = batch.since;
            let age = self.age;
            let kept = self.config.streams_kept;
            return Err(BatchError::Expired { since, age, kept });
        }
        if batch.seq != last + 1 && deduped {
            return Err(BatchError::Gap { seq: batch.seq, last });
        }
        Ok(Judged::Next { known, stream })
    }

    fn check_serving(&self) -> Result<(), BatchError> {
        if self.fenced_out {
            let id = self.config.id;
            let why = format!(
                "group {id} is fenced out: it was declared lost, its disk is an old one, or another process runs on a copy of it"
            );
            return Err(BatchError::NotServing(why));
        }
        if !self.ever_confirmed && !bites(Bug::JoinedUnheard) {
            return Err(BatchError::NotServing(format!("group {} is not yet registered", self.config.id)));
        }
        Ok(())
    }

    fn check_room(&self, batch: &Batch, named: bool, new_stream: bool) -> Result<(), BatchError> {
        if batch.items.is_empty() {
            return Err(BatchError::Empty);
        }
        self.check_limits(batch, named, new_stream)
    }

    fn check_limits(&self, batch: &Batch, named: bool, new_stream: bool) -> Result<(), BatchError> {
        let items = batch.items.len() as u64;
        if new_stream && self.streams.len() >= STREAMS_MAX {
            return Err(BatchError::Overloaded { what: "streams of clients".into(), limit: STREAMS_MAX.into() });
        }
        if !self.guards.is_empty() && self.queued + items > QUEUED_ITEMS_MAX {
            return Err(BatchError::Overloaded { what: "queued increments".into(), limit: QUEUED_ITEMS_MAX });
        }
        if !named {
            return Err(BatchError::NotServing("the entry names cells out of order".into()));
        }
        Ok(())
    }

    /// Adds all items to their components and buckets, or none.
    fn add_items(&mut self, batch: &Batch) -> Result<(), BatchError> {
        if !batch.times.is_empty() && batch.times.len() != batch.items.len() {
            let times = batch.times.len() as u64;
            let items = batch.items.len() as u64;
            return Err(BatchError::Times { times, items });
        }
        let events = self.series.admit(batch, &self.cells.table)?;
        self.add_to_components(batch)?;
        let items = &batch.items;
        let lane = batch.lane;
        let slots = self.cells.table.len();
        for (at, (item, event)) in items.iter().zip(events).enumerate() {
            warm::ahead(items, at, |item| {
                let number = (item.slot < slots).then(|| self.cells.number(item.slot, lane)).flatten();
                number.map_or(0, |number| self.series.warm(number))
            });
            let slot = self.generations.slot_now(item.slot);
            if let Some(number) = self.cells.number(slot, batch.lane) {
                self.series.add(number, event, item.delta, self.applied.0);
            }
        }
        Ok(())
    }

    /// Adds all items to their components, or none.
    fn add_to_components(&mut self, batch: &Batch) -> Result<(), BatchError> {
        let slots = self.cells.table.len();
        for (idx, item) in batch.items.iter().enumerate() {
            warm::ahead(&batch.items, idx, |item| self.cells.warm(item.slot));
            let added = if item.slot >= slots {
                Err(BatchError::UnknownNumber(item.slot))
            } else if item.delta == 0 || item.delta > DELTA_MAX {
                Err(BatchError::Delta { idx: idx as u32, delta: item.delta, max: DELTA_MAX })
            } else {
                match self.generations.slot_now(item.slot) {
                    NOWHERE => {
                        Err(BatchError::NotServing("the counter began again: its present cell has no name yet".into()))
                    }
                    slot => {
                        let added = self.cells.add(slot, batch.lane, item.delta, self.applied.0);
                        added.map_err(|value| self.overflow(item, value))
                    }
                }
            };
            if let Err(error) = added {
                let slot = |item: &Item| self.generations.slot_now(item.slot);
                batch.items[..idx].iter().for_each(|item| self.cells.take_back(slot(item), batch.lane, item.delta));
                return Err(error);
            }
        }
        Ok(())
    }

    fn overflow(&self, item: &Item, value: u64) -> BatchError {
        let counter = self.cells.table.name(item.slot).counter;
        BatchError::Overflow { counter, value, delta: item.delta, max: COMPONENT_MAX }
    }

    /// Certifies or queues the items of guarded counters. For each counter, items are certified in order until the first that
    /// does not fit; from there all are queued. Returns the indices of the queued items, and the items certified under a lease.
    /// Of a keyed batch `ids` has, for each item, its index in the client's batch and the number of its id.
    fn place_items(&mut self, batch: &Batch, stream: u32, ids: Option<&[(u32, u32)]>) -> (Vec<u32>, Vec<Leased>) {
        let usable = self.rights_usable();
        let mut pending = Vec::new();
        let mut leased = Vec::new();
        let mut parts: Vec<Part> = Vec::new();
        let mut part_of: BTreeMap<u32, usize> = BTreeMap::new();
        for (idx, item) in batch.items.iter().enumerate() {
            let slot = self.generations.slot_now(item.slot);
            if !self.guarded.contains(slot) {
                if bites(Bug::DownReplenishes) {
                    self.replenish(slot, item.delta);
                }
                continue;
            }
            let Some(&number) = self.guard_of_slot.get(&slot) else { continue };
            let guard = &mut self.guards[number as usize];
            let at = *part_of.entry(number).or_insert_with(|| {
                self.touched.insert(number);
                parts.push(Part { guard: number, epoch: guard.epoch, certified: 0, first_pos: 0, indices: Vec::new() });
                parts.len() - 1
            });
            let part = &mut parts[at];
            let session = item.session.unwrap_or_default();
            let has_session = item.session.is_some();
            let (idx, id) = ids.and_then(|ids| ids.get(idx)).copied().unwrap_or((idx as u32, NO_ID));
            let seq = batch.seq;
            let queued = Queued { delta: item.delta, seq, session, stream, idx, id, has_session, placed: false };
            if usable && part.indices.is_empty() && guard.certify(item.delta) {
                part.certified += 1;
                let upto = guard.spent;
                if guard.tenure.note(upto, queued) {
                    leased.push(Leased { idx, guard: number, upto });
                    self.ids.set(id, Standing::Leased);
                }
                continue;
            }
            let pos = guard.queue.push(queued);
            self.ids.set(id, Standing::Open);
            if part.indices.is_empty() {
                part.first_pos = pos;
            }
            part.indices.push(idx);
            pending.push(idx);
            self.queued += 1;
            self.saved.queue_changed(number, pos);
        }
        if !pending.is_empty() {
            parts.retain(|part| !part.indices.is_empty());
            self.streams.get_mut(stream).remember(batch.seq, Record::new(parts));
        }
        (pending, leased)
    }

    /// Only as a deliberate bug: whether nothing in the batch counts up.
    fn is_all_down(&self, batch: &Batch) -> bool {
        let known = |item: &Item| item.slot < self.cells.table.len();
        batch.items.iter().all(|item| known(item) && self.cells.table.name(item.slot).half == Half::Down)
    }

    /// Only as a deliberate bug: without it spent rights stay spent, even if the counter goes down.
    fn replenish(&mut self, slot: u32, delta: u64) {
        let cell = self.cells.table.name(slot);
        if let Some(number) = self.guard_of(&cell.counter).filter(|_| cell.half == Half::Down) {
            let guard = &mut self.guards[number as usize];
            guard.spent = guard.spent.saturating_sub(delta).max(guard.acked_spent);
        }
    }

    /// The current answer to a batch applied earlier.
    fn answer_again(&mut self, number: u32, seq: u64) {
        let stream = self.streams.get(number);
        let client = stream.client;
        let lane = stream.lane;
        let (pending, placed, leased) = self.standing_of(number, seq);
        self.answer(client, lane, seq, pending, placed, leased);
    }

    /// The items of an applied batch that have no place yet or a place to report; those places; and the items certified under a
    /// lease.
    fn standing_of(&self, number: u32, seq: u64) -> (Vec<u32>, Vec<(u32, Place)>, Vec<Leased>) {
        let stream = self.streams.get(number);
        let leased = self.leased_items(number, seq);
        let Some(record) = stream.record(seq) else { return (Vec::new(), Vec::new(), leased) };
        let told = record.placed().iter().map(|(idx, _)| *idx);
        let mut pending: Vec<u32> = record.parts.iter().flat_map(|part| self.open_items(part)).chain(told).collect();
        pending.sort_unstable();
        (pending, record.placed().to_vec(), leased)
    }

    fn answer(
        &mut self,
        client: ClientId,
        lane: u8,
        seq: u64,
        pending: Vec<u32>,
        placed: Vec<(u32, Place)>,
        leased: Vec<Leased>,
    ) {
        self.effects.push_back(Effect::Acked { client, lane, seq, pending, leased });
        let placed = placed.into_iter();
        self.effects.extend(placed.map(|(idx, place)| Effect::Placed { client, lane, seq, idx, place }));
    }

    fn open_items<'a>(&'a self, part: &'a Part) -> impl Iterator<Item = u32> + 'a {
        let guard = &self.guards[part.guard as usize];
        let here = guard.epoch == part.epoch;
        let items = part.indices.iter().zip(part.first_pos..);
        items.filter(move |&(_, pos)| here && guard.queue.get_open(pos).is_some()).map(|(&idx, _)| idx)
    }

    /// A start that the ledger has not confirmed may stand on an old copy of the disk, which lacks later entries: it answers
    /// nothing, and the client asks again. Streams of missing valves are ended as well: the valves may come later.
    fn on_fence(&mut self, client: ClientId, lane: u8, since: u32) {
        if lane >= LANES_MAX || !self.confirmed || self.fenced_out {
            return;
        }
        if self.streams.find(client, lane).is_none() {
            if self.is_expired(since) {
                return self.effects.push_back(Effect::Forgotten { client, lane });
            }
            if self.streams.len() >= STREAMS_MAX {
                return;
            }
        }
        let number = self.streams.find_or_new(client, lane, self.age);
        if !self.streams.get(number).fenced {
            self.streams.get_mut(number).fenced = true;
        }
        let last_seq = self.streams.get(number).last;
        self.effects.push_back(Effect::Fenced { client, lane, last_seq });
    }

    // ---- ages ----

    /// The number of units of time in which the group was led.
    pub fn age(&self) -> u32 {
        self.age
    }

    /// Streams remembered.
    pub fn streams(&self) -> u32 {
        self.streams.len()
    }

    /// Whether a client that was first welcomed at an age may have streams that are forgotten by now. A stream that was used
    /// since then is remembered for as long as this is false, and takes no new batch once it is true.
    fn is_expired(&self, since: u32) -> bool {
        since.saturating_add(self.streams_kept()) < self.age && !bites(Bug::ForgottenTaken)
    }

    fn streams_kept(&self) -> u32 {
        let early = if bites(Bug::ForgottenEarly) { 2 } else { 1 };
        self.config.streams_kept / early
    }

    /// The group is one age older, and forgets streams that had no new batches for long, so that identities do not pile up.
    /// Streams with increments that still wait are kept.
    fn on_age(&mut self, age: u32) {
        if age != self.age.saturating_add(1) {
            return;
        }
        self.age = age;
        if bites(Bug::NothingForgotten) {
            return;
        }
        self.ids.forget(age);
        let Some(before) = age.checked_sub(self.streams_kept()) else { return };
        let journals = self.guards.iter().flat_map(|guard| guard.tenure.journal());
        let in_use: BTreeSet<u32> = journals.map(|(_, item)| item.stream).collect();
        self.streams.forget(before, &in_use);
    }

    // ---- process starts ----

    /// Valves.
    pub fn lanes(&self) -> u8 {
        self.cells.lanes()
    }

    /// With the list of unconfirmed starts full, the newest takes the place of the one before. If the ledger has answered that
    /// one after all, it will fence this incarnation, which is safe.
    fn on_boot(&mut self, nonce: u64, lanes: u8) {
        self.cells.widen(if bites(Bug::LanesFromConfig) { self.config.lanes } else { lanes });
        if self.boots.last() == Some(&nonce) {
            return;
        }
        if self.boots.len() > BOOTS_UNCONFIRMED_MAX {
            self.boots.pop();
        }
        self.boots.push(nonce);
        self.starts += 1;
        self.confirmed = false;
        self.end_leases();
    }

    fn on_confirmed(&mut self, start: Start, accounts: &[Account], resets: u64) {
        if self.is_other(start) {
            return self.on_fenced_out();
        }
        if self.boots.last() != Some(&start.nonce) || self.fenced_out || self.is_too_new(resets) {
            return;
        }
        accounts.iter().for_each(|account| self.on_account(account));
        self.boots = vec![start.nonce];
        if !self.confirmed {
            (self.confirmed, self.ever_confirmed) = (true, true);
            self.effects.push_back(Effect::Confirmed);
        }
    }

    /// Whether this log does not hold the start: then it belongs to a process on a copy of the disk.
    fn is_other(&self, start: Start) -> bool {
        start.number >= self.starts && self.boots.last() != Some(&start.nonce)
    }

    /// Whether the group has to hear of resets before it may count anything.
    fn is_too_new(&self, resets: u64) -> bool {
        !self.ever_confirmed && self.generations.heard() < resets
    }

    fn on_fenced_out(&mut self) {
        if !std::mem::replace(&mut self.fenced_out, true) {
            self.effects.push_back(Effect::FencedOut);
        }
    }

    // ---- the ledger's messages ----

    fn on_ledger(&mut self, message: &ToGroup) {
        match message {
            ToGroup::Confirmed { group, start, accounts, resets } if *group == self.config.id => {
                self.on_confirmed(*start, accounts, *resets)
            }
            ToGroup::FencedOut { group } if *group == self.config.id => self.on_fenced_out(),
            ToGroup::Confirmed { .. } | ToGroup::FencedOut { .. } => {}
            ToGroup::Account(account) => self.on_account(account),
            ToGroup::Opened(opened) => self.on_opened(opened),
            ToGroup::Begun { opened, won } => self.on_begun(opened, won),
            ToGroup::Placed(placed) => self.on_placed(placed),
            // Settings only grow: a message that lacks some comes from a replica that is behind.
            ToGroup::Namespaces(names) => {
                let new = insert_bounded(&mut self.namespaces, names, NAMESPACES_MAX);
                self.settled(new);
            }
            ToGroup::UpDown(names) => {
                let new = insert_bounded(&mut self.updown, names, NAMESPACES_MAX);
                self.settled(new);
            }
            ToGroup::Spread(counters) => {
                drop(insert_bounded(&mut self.spread, counters, SPREAD_MAX));
                self.effects.push_back(Effect::Spread);
            }
            ToGroup::Series(all) => {
                let is_new = |(name, terms): &&(String, SeriesTerms)| self.series.is_behind(name, terms);
                let new = all.iter().filter(is_new).map(|(name, _)| name.clone()).collect();
                all.iter().for_each(|(name, terms)| self.series.take_terms(name, terms));
                self.settled(new);
            }
            ToGroup::Generations(begun) => self.on_generations(0, 0, begun),
            ToGroup::Resets { after, upto, begun } => self.on_generations(*after, *upto, begun),
        }
    }

    fn settled(&mut self, namespaces: Vec<String>) {
        if !namespaces.is_empty() {
            self.effects.push_back(Effect::Settled { namespaces });
        }
    }

    fn on_account(&mut self, account: &Account) {
        if account.group != self.config.id {
            return;
        }
        match self.guard_of(&account.counter) {
            None if self.is_over(account) => {}
            None => self.guard_first(account),
            Some(number) => match self.guards[number as usize].judge(account) {
                AccountChange::Nothing | AccountChange::Epoch => {}
                AccountChange::Acks | AccountChange::Rights => {
                    self.guards[number as usize].on_account(account);
                    self.touched.insert(number);
                }
            },
        }
        if bites(Bug::CertifiedFromQueue) {
            self.certify_queued(account);
        }
    }

    /// Only as a deliberate bug: the only way out of the queue is a place.
    fn certify_queued(&mut self, account: &Account) {
        let Some(number) = self.guard_of(&account.counter) else { return };
        let guard = &mut self.guards[number as usize];
        let pos = guard.placed_upto();
        let queued = guard.queue.get_open(guard.placed_upto()).copied();
        if queued.is_some_and(|queued| guard.certify(queued.delta)) {
            self.place(number, pos, Place::Counted);
            self.guards[number as usize].queue.advance();
        }
    }

    fn on_begun(&mut self, opened: &Opened, won: &[Placed]) {
        let account = &opened.account;
        if account.group != self.config.id {
            return;
        }
        won.iter().for_each(|placed| self.on_placed(placed));
        if let Some(number) = self.guard_of(&account.counter)
            && self.guards[number as usize].judge(account) == AccountChange::Epoch
        {
            self.guard_again(number, account);
        }
        self.on_opened(opened);
    }

    fn guard_first(&mut self, account: &Account) {
        if self.guards.len() >= GUARDED_COUNTERS_MAX {
            return;
        }
        let Some(slot) = self.begin(&account.counter, generation_of(account)) else { return };
        let base = if bites(Bug::BaseForgotten) { 0 } else { self.cells.sum(slot) };
        let mut guard = Guard::new(account, slot, base);
        guard.on_account(account);
        let number = self.guards.len() as u32;
        self.index_guard(slot, number);
        self.guards.push(guard);
        self.touched.insert(number);
        self.effects.push_back(Effect::Spread);
    }

    fn guard_again(&mut self, number: u32, account: &Account) {
        let Some(slot) = self.begin(&account.counter, generation_of(account)) else { return };
        let guard = &self.guards[number as usize];
        let over = guard.slot;
        let generation = guard.generation;
        let next_pos = guard.next_pos();
        let leased = guard.is_leased();
        self.effects.extend(leased.then_some(Effect::Closed { guard: number, generation, upto: u64::MAX }));
        self.place_open(number, 0, next_pos, |_| Place::Counted);
        let mut guard = Guard::new(account, slot, self.cells.sum(slot));
        guard.on_account(account);
        self.guards[number as usize] = guard;
        self.guard_of_slot.remove(&over);
        self.index_guard(slot, number);
        self.touched.insert(number);
    }

    fn index_guard(&mut self, slot: u32, number: u32) {
        self.guarded.insert(slot);
        self.guard_of_slot.insert(slot, number);
    }

    /// Whether a counter without a guard began again since the account was made.
    fn is_over(&self, account: &Account) -> bool {
        generation_of(account) < self.generations.of(&account.counter)
    }

    fn on_placed(&mut self, placed: &Placed) {
        if placed.group != self.config.id {
            return;
        }
        let Some(number) = self.guard_of(&placed.counter) else { return };
        if self.guards[number as usize].epoch != placed.epoch {
            return;
        }
        for run in &placed.runs {
            let to = run.first_pos.saturating_add(run.count);
            self.place_open(number, run.first_pos, to, |pos| run.place.after(pos - run.first_pos));
        }
        self.guards[number as usize].queue.advance();
        self.touched.insert(number);
    }

    /// Gives those of the positions `from .. to` a place that have none.
    fn place_open(&mut self, number: u32, from: u64, to: u64, place: impl Fn(u64) -> Place) {
        let mut from = from;
        while let Some(pos) = self.guards[number as usize].queue.next_open(from).filter(|&pos| pos < to) {
            self.place(number, pos, place(pos));
            from = pos + 1;
        }
    }

    /// Gives a position its place, once.
    fn place(&mut self, number: u32, pos: u64, place: Place) {
        let Some(item) = self.guards[number as usize].queue.place(pos) else { return };
        self.queued -= 1;
        self.saved.queue_changed(number, pos);
        let stream = self.streams.get_mut(item.stream);
        stream.used = self.age;
        stream.on_placed(item.seq, item.idx, place);
        self.ids.set(item.id, Standing::Placed(place));
        let client = stream.client;
        let lane = stream.lane;
        self.effects.push_back(Effect::Placed { client, lane, seq: item.seq, idx: item.idx, place });
    }

    /// Whether the message would change rights, places or settings. Acknowledgements alone do not count: they are repeated
    /// whenever they matter, so they need no log entry of their own.
    pub fn would_change(&self, message: &ToGroup) -> bool {
        match message {
            ToGroup::Confirmed { group, start, accounts, resets } => {
                let mine = self.boots.last() == Some(&start.nonce) && !self.is_too_new(*resets);
                let news = || !self.confirmed || accounts.iter().any(|account| self.account_changes(account));
                *group == self.config.id && !self.fenced_out && (self.is_other(*start) || mine && news())
            }
            ToGroup::FencedOut { group } => *group == self.config.id && !self.fenced_out,
            ToGroup::Account(account) => self.account_changes(account),
            ToGroup::Opened(opened) => self.opened_changes(opened),
            ToGroup::Begun { opened, won } => {
                let account = &opened.account;
                let guard = self.guard_of(&account.counter).map(|number| &self.guards[number as usize]);
                let ends = guard.is_some_and(|guard| guard.judge(account) == AccountChange::Epoch);
                let mine = account.group == self.config.id;
                mine && (ends || won.iter().any(|placed| self.placed_changes(placed))) || self.opened_changes(opened)
            }
            ToGroup::Placed(placed) => self.placed_changes(placed),
            ToGroup::Namespaces(names) => {
                self.namespaces.len() < NAMESPACES_MAX && names.iter().any(|name| !self.namespaces.contains(name))
            }
            ToGroup::UpDown(names) => {
                self.updown.len() < NAMESPACES_MAX && names.iter().any(|name| !self.updown.contains(name))
            }
            ToGroup::Spread(counters) => {
                self.spread.len() < SPREAD_MAX && counters.iter().any(|counter| !self.spread.contains(counter))
            }
            ToGroup::Generations(begun) => self.is_behind(begun),
            ToGroup::Resets { after, upto, begun } => self.is_behind(begun) || self.generations.is_next(*after, *upto),
            ToGroup::Series(all) => all.iter().any(|(name, terms)| self.series.is_behind(name, terms)),
        }
    }

    fn opened_changes(&self, opened: &Opened) -> bool {
        let guard = self.guard_of(&opened.account.counter).map(|number| &self.guards[number as usize]);
        let opens = guard.is_some_and(|guard| guard.is_opened_by(opened));
        opened.account.group == self.config.id && (opens || self.account_changes(&opened.account))
    }

    fn account_changes(&self, account: &Account) -> bool {
        let judge = |number: u32| self.guards[number as usize].judge(account);
        let first = if self.is_over(account) { AccountChange::Nothing } else { AccountChange::Epoch };
        let known = self.guard_of(&account.counter);
        let change = known.map_or(first, judge);
        let begins = known.is_none() && change == AccountChange::Epoch;
        account.group == self.config.id && (begins || change == AccountChange::Rights)
    }

    fn placed_changes(&self, placed: &Placed) -> bool {
        let guard = self.guard_of(&placed.counter).map(|number| &self.guards[number as usize]);
        let Some(guard) = guard.filter(|guard| guard.epoch == placed.epoch) else { return false };
        let open = |run: &PlacedRun| {
            let to = run.first_pos.saturating_add(run.count);
            guard.queue.next_open(run.first_pos).is_some_and(|pos| pos < to)
        };
        placed.group == self.config.id && placed.runs.iter().any(open)
    }
}

/// The generation of its counter that an account is about.
pub(crate) fn generation_of(account: &Account) -> u32 {
    account.epoch.saturating_sub(1)
}

/// Inserts items up to the limit; returns the new ones.
fn insert_bounded<T: Ord + Clone>(into: &mut BTreeSet<T>, from: &[T], max: usize) -> Vec<T> {
    let mut new = Vec::new();
    for value in from {
        if into.len() < max && into.insert(value.clone()) {
            new.push(value.clone());
        }
    }
    new
}
