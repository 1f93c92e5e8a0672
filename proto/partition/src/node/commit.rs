//! Group commit: commands that wait for the log, entries on their way to the disk, and the slots that they give to new cells.

use crate::group::{Group, generation_of};
use crate::node::{NodeConfig, NodeCore, Output};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidemark_types::ids::{CellId, ClientId, LogIndex};
use tidemark_types::limits::{BATCH_ITEMS_MAX, ENTRY_BATCHES_MAX, NAMESPACE_BYTES_MAX, NEXT_US_MAX};
use tidemark_types::time::{Span, Time, WallMs};
use tidemark_wire::msg::{Account, GroupCmd, GroupEntry, ToGroup};
use tidemark_wire::wire::encode;

/// Most bytes of an item: slot, delta, session, event time.
pub(super) const ITEM_BYTES: usize = 5 + 6 + 17 + 5;
/// Bytes of an id: digest, content, items.
pub(super) const ID_BYTES: usize = 16 + 8 + 1;
/// Most bytes of a batch beside its items: tag, client, lane, sequence number, counts, age.
const BATCH_BYTES: usize = 1 + 19 + 1 + 10 + 5 + 5 + 5;
/// Most bytes of an entry beside its commands and cells, and of its envelope.
const ENTRY_BYTES: usize = 64;
/// Most bytes of a total's name beside its key.
const CELL_BYTES: usize = NAMESPACE_BYTES_MAX + 16;

const _: () = assert!(ENTRY_BATCHES_MAX <= BATCH_ITEMS_MAX);

/// The least time between two commits while waiting gathers more: at most 143 a second. A commit costs some 0.2 ms of CPU,
/// whatever its size.
pub const COMMIT_INTERVAL_LEAST: Span = Span::from_millis(7);
/// And this for each client of the last commit: each sends a batch for each commit, so clients that are many do so less often.
pub const COMMIT_INTERVAL_PER_CLIENT: Span = Span::from_millis(1);
/// A shorter rest is not worth a word.
const REST_SAID_MIN: Span = Span::from_millis(1);
/// The least time between two commits if the second begins while the first is under way: at most 200 a second.
pub const COMMIT_INTERVAL_MIN: Span = Span::from_millis(5);
/// Bytes, about 1,000 hits, that share the cost of a commit: batches of this size do not wait for the commit under way.
pub const COMMIT_BYTES_SHARED: usize = 32 << 10;
/// A commit that takes longer holds the next one no longer.
pub const COMMIT_OVERDUE: Span = Span::from_millis(200);
/// The smoothed time of a commit takes this part of each new one.
const SMOOTHED_PART: u64 = 4;

/// The log as its proposer sees it.
#[derive(Debug)]
pub(super) struct Log {
    open: Building,
    sealed: VecDeque<Building>,
    /// Commands that overtake held batches.
    ahead: VecDeque<Building>,
    /// Commands among batches, or behind them, that are none themselves: those go with them, and are not held.
    pressing: usize,
    /// Batches are held until then, unless something is heard before.
    pub held_until: Option<Time>,
    waiting_bytes: usize,
    /// Cells named by entries that are not applied yet.
    pending: BTreeMap<CellId, u32>,
    next_slot: u32,
    /// Appended and not yet durable, with their sizes.
    flying: VecDeque<(LogIndex, GroupEntry, usize)>,
    /// The durable part of `flying` that is not applied yet ends here.
    durable: LogIndex,
    /// Commits that are not applied in full.
    commits: VecDeque<Commit>,
    last_index: LogIndex,
    pace: Pace,
    /// A compaction was proposed: later proposals would name old slots.
    ended: bool,
    /// The ledger's messages in entries that are not applied yet.
    ledger: VecDeque<ToGroup>,
}

/// A commit that was given out.
#[derive(Debug)]
struct Commit {
    last: LogIndex,
    /// When it began, until all of it is durable.
    begun: Option<Time>,
}

/// When commits begin.
///
/// An idle log commits at once. While a commit is under way, the next one gathers. After it the log rests, so that commits take
/// no more than their share of the time, but only as long as that gathers more. A client with a batch in the last commit that has
/// sent nothing since may be about to send. When no such client is missing, the rest ends at once.
#[derive(Debug, Default)]
struct Pace {
    /// When the last commit began.
    begun: Option<Time>,
    /// The end of the last commit that ended.
    ended: Time,
    /// The duration of a commit, smoothed.
    takes: Span,
    /// Clients of the last commit that have sent no batch since.
    missing: BTreeSet<ClientId>,
    /// The number of clients in that commit.
    clients: u32,
}

impl Pace {
    fn begin(&mut self, now: Time, clients: BTreeSet<ClientId>) {
        self.begun = Some(now);
        // Messages of the ledger among batches tell nothing about clients.
        if !clients.is_empty() {
            self.clients = clients.len() as u32;
            self.missing = clients;
        }
    }

    fn end(&mut self, now: Time, begun: Time) {
        let took = now - begun;
        self.takes = match self.takes {
            Span(0) => took,
            Span(takes) => Span(takes - takes / SMOOTHED_PART + took.0 / SMOOTHED_PART),
        };
        self.ended = now;
    }

    /// When the next commit may begin, with none under way.
    fn rested(&self, config: &NodeConfig) -> Time {
        let Some(begun) = self.begun.filter(|_| !self.missing.is_empty()) else { return Time(0) };
        let share = u64::from(config.commit_share_percent.clamp(1, 100));
        let rest = Span(self.takes.0.saturating_mul(100 - share) / share);
        let least = Span(COMMIT_INTERVAL_PER_CLIENT.0 * u64::from(self.clients) + COMMIT_INTERVAL_LEAST.0);
        let rested = (self.ended + rest).max(begun + least);
        rested.min(begun + config.commit_interval)
    }

    /// When the next commit may begin though the one under way is not durable. In a log on several nodes, a leader's proposal may
    /// be lost, and only its next proposal shows that.
    fn overdue(&self) -> Time {
        self.begun.map_or(Time(0), |begun| begun + COMMIT_OVERDUE)
    }

    /// When the next commit may begin where they are so far apart as the settings say.
    fn at_intervals(&self, config: &NodeConfig, is_shared: bool) -> Time {
        let least = if is_shared { COMMIT_INTERVAL_MIN } else { config.commit_interval };
        self.begun.map_or(Time(0), |begun| begun + config.commit_interval.min(least))
    }

    /// When the next commit may begin while one is under way.
    fn overlaps(&self, config: &NodeConfig) -> Time {
        self.at_intervals(config, true)
    }
}

/// An entry being filled; `bytes` is an upper bound of its encoded size.
#[derive(Debug, Default)]
struct Building {
    first_new_slot: u32,
    new_cells: Vec<CellId>,
    cmds: Vec<GroupCmd>,
    bytes: usize,
}

impl Building {
    fn is_empty(&self) -> bool {
        self.cmds.is_empty()
    }
}

/// An upper bound of the encoded size of a batch.
pub(super) fn batch_bytes(items: usize, new_cells: usize, key_bytes: usize) -> usize {
    BATCH_BYTES + items * ITEM_BYTES + new_cells * CELL_BYTES + key_bytes
}

/// The most that a batch may take so that it fits an entry.
pub(super) fn batch_bytes_max(config: &NodeConfig) -> usize {
    config.entry_bytes_max.saturating_sub(ENTRY_BYTES)
}

impl Log {
    pub fn new(applied: LogIndex, slots: u32) -> Log {
        Log {
            open: Building::default(),
            sealed: VecDeque::new(),
            ahead: VecDeque::new(),
            pressing: 0,
            held_until: None,
            waiting_bytes: 0,
            pending: BTreeMap::new(),
            next_slot: slots,
            flying: VecDeque::new(),
            durable: applied,
            commits: VecDeque::new(),
            last_index: applied,
            pace: Pace::default(),
            ended: false,
            ledger: VecDeque::new(),
        }
    }

    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// The amount that entries on their way to the disk add to a component.
    pub fn unsynced(&self, slot: u32, lane: u8) -> u64 {
        let cmds = self.flying.iter().flat_map(|(_, entry, _)| &entry.cmds);
        let items = cmds.filter_map(GroupCmd::batch).filter(|batch| batch.lane == lane).map(|batch| &batch.items);
        items.flatten().filter(|item| item.slot == slot).map(|item| item.delta).sum()
    }

    /// Slots given out, those of entries not yet applied included.
    pub fn slots(&self) -> u32 {
        self.next_slot
    }

    /// Cells named and not yet applied.
    pub fn pending_cells(&self) -> usize {
        self.pending.len()
    }

    /// The slot that an entry not yet applied gave to a cell.
    pub fn pending_slot(&self, cell: &CellId) -> Option<u32> {
        self.pending.get(cell).copied()
    }

    /// Makes room in the entry being filled.
    pub fn reserve(&mut self, config: &NodeConfig, bytes: usize) {
        let full = self.open.cmds.len() >= ENTRY_BATCHES_MAX;
        if !self.open.is_empty() && (full || self.open.bytes + bytes + ENTRY_BYTES > config.entry_bytes_max) {
            self.sealed.push_back(std::mem::take(&mut self.open));
        }
        self.open.bytes += bytes;
        self.waiting_bytes += bytes;
    }

    /// Gives a cell the next slot, in the entry being filled.
    pub fn name(&mut self, cell: CellId) -> u32 {
        let slot = self.next_slot;
        self.next_slot += 1;
        if self.open.new_cells.is_empty() {
            self.open.first_new_slot = slot;
        }
        self.open.new_cells.push(cell.clone());
        self.pending.insert(cell, slot);
        slot
    }

    /// Adds a batch to the entry being filled; room was reserved.
    pub fn push_batch(&mut self, batch: GroupCmd) {
        if let Some(batch) = batch.batch() {
            self.pace.missing.remove(&batch.client);
        }
        self.open.cmds.push(batch);
    }

    /// Adds a small command.
    pub fn push_cmd(&mut self, config: &NodeConfig, cmd: GroupCmd) {
        if self.may_pass() {
            return self.push_ahead(config, BATCH_BYTES, cmd);
        }
        self.reserve(config, BATCH_BYTES);
        self.open.cmds.push(cmd);
        self.pressing += 1;
    }

    /// Adds the entry that gives slots other numbers, as the last one of this log: waiting commands behind it are never proposed.
    pub fn push_compact(&mut self, nonce: u64) {
        if !self.open.is_empty() {
            self.sealed.push_back(std::mem::take(&mut self.open));
        }
        self.sealed.push_back(Building {
            cmds: vec![GroupCmd::Compact { nonce }],
            bytes: BATCH_BYTES,
            ..Building::default()
        });
        (self.pressing, self.waiting_bytes) = (self.pressing + 1, self.waiting_bytes + BATCH_BYTES);
    }

    /// Adds a command that overtakes held batches, as if it had come before them.
    fn push_ahead(&mut self, config: &NodeConfig, bytes: usize, cmd: GroupCmd) {
        let is_full = |last: &Building| last.bytes + bytes + ENTRY_BYTES > config.entry_bytes_max;
        if self.ahead.back().is_none_or(is_full) {
            self.ahead.push_back(Building::default());
        }
        if let Some(last) = self.ahead.back_mut() {
            last.cmds.push(cmd);
            last.bytes += bytes;
            self.waiting_bytes += bytes;
        }
    }

    /// A command behind one that goes with its batches stays behind it.
    fn may_pass(&self) -> bool {
        self.held_until.is_some() && self.pressing == 0
    }

    /// Adds a message of the ledger, unless the same is on its way.
    pub fn push_ledger(&mut self, config: &NodeConfig, group: &Group, message: ToGroup) {
        if self.ledger.contains(&message) {
            return;
        }
        let mut cells = unknown_cells(&message, group, |cell| group.table().find(cell).is_none());
        if cells.is_empty() && self.may_pass() {
            self.ledger.push_back(message.clone());
            let size = encode(&tidemark_wire::msg::ForGroup::Ledger(message.clone())).len();
            return self.push_ahead(config, size, GroupCmd::Ledger(message));
        }
        // Slots are given in the order of the log: a command that needs a slot of an unapplied entry waits for that entry.
        cells.retain(|cell| !self.pending.contains_key(cell));
        let keys: usize = cells.iter().map(|cell| cell.counter.key().len()).sum();
        let size = encode(&tidemark_wire::msg::ForGroup::Ledger(message.clone())).len();
        self.reserve(config, size + cells.len() * CELL_BYTES + keys);
        for cell in cells {
            self.name(cell);
        }
        self.ledger.push_back(message.clone());
        self.open.cmds.push(GroupCmd::Ledger(message));
        self.pressing += 1;
    }

    fn is_waiting(&self) -> bool {
        !self.open.is_empty() || !self.sealed.is_empty() || !self.ahead.is_empty()
    }

    /// Whether only batches wait, and some do.
    pub fn may_be_held(&self) -> bool {
        self.pressing == 0 && !(self.open.is_empty() && self.sealed.is_empty())
    }

    fn next_building(&mut self) -> Option<Building> {
        if self.ended {
            return None;
        }
        if let Some(ahead) = self.ahead.pop_front() {
            return Some(ahead);
        }
        if self.held_until.is_some() {
            return None;
        }
        let open = || (!self.open.is_empty()).then(|| std::mem::take(&mut self.open));
        let next = self.sealed.pop_front().or_else(open)?;
        self.pressing -= next.cmds.iter().filter(|cmd| cmd.batch().is_none()).count();
        self.ended = matches!(next.cmds[..], [GroupCmd::Compact { .. }]);
        Some(next)
    }

    /// The next entry of a commit.
    fn next_entry(&mut self, now: WallMs) -> Option<(LogIndex, GroupEntry)> {
        let building = self.next_building()?;
        self.waiting_bytes -= building.bytes;
        self.last_index = self.last_index.next();
        let Building { first_new_slot, new_cells, cmds, .. } = building;
        Some((self.last_index, GroupEntry { now, first_new_slot, new_cells, cmds }))
    }

    /// All entries up to this one are durable.
    pub fn on_durable(&mut self, now: Time, upto: LogIndex) {
        self.durable = self.durable.max(upto);
        for commit in self.commits.iter_mut().filter(|commit| commit.last <= upto) {
            commit.begun.take().into_iter().for_each(|begun| self.pace.end(now, begun));
        }
    }

    /// When the next commit is expected to end, as clients are told; 0 where the log does not rest before it, or another is under way.
    pub fn next_us(&self, now: Time, config: &NodeConfig) -> u32 {
        let is_under_way = self.commits.iter().any(|commit| commit.begun.is_some());
        if is_under_way || config.commit_share_percent == 0 {
            return 0;
        }
        let rest = Span(self.pace.rested(config).0.saturating_sub(now.0));
        if rest < REST_SAID_MIN { 0 } else { (rest.0 + self.pace.takes.0).min(NEXT_US_MAX.into()) as u32 }
    }

    pub fn is_durable_next(&self) -> bool {
        self.flying.front().is_some_and(|(index, _, _)| *index <= self.durable)
    }

    /// The next entry that is durable, to be applied, with its size.
    pub fn next_durable(&mut self) -> Option<(LogIndex, GroupEntry, usize)> {
        let (index, entry, bytes) = self.is_durable_next().then(|| self.flying.pop_front()).flatten()?;
        for cell in &entry.new_cells {
            self.pending.remove(cell);
        }
        let ledger = entry.cmds.iter().filter(|cmd| matches!(cmd, GroupCmd::Ledger(_))).count();
        self.ledger.drain(..ledger);
        while self.commits.front().is_some_and(|commit| commit.last <= index) {
            self.commits.pop_front();
        }
        Some((index, entry, bytes))
    }

    /// Panics when the slots or indices of waiting entries do not continue the applied state.
    pub fn check_invariants(&self, applied: LogIndex, slots: u32) {
        assert_eq!(self.next_slot, slots + self.pending.len() as u32, "slots of cells not yet applied");
        assert_eq!(self.last_index.0, applied.0 + self.flying.len() as u64, "entries in flight");
        let waiting = || self.ahead.iter().chain(&self.sealed).chain([&self.open]);
        let bytes: usize = waiting().map(|entry| entry.bytes).sum();
        assert_eq!(bytes, self.waiting_bytes, "bytes waiting for a commit");
        let others = waiting().flat_map(|entry| &entry.cmds).filter(|cmd| cmd.batch().is_none()).count();
        let ahead: usize = self.ahead.iter().map(|entry| entry.cmds.len()).sum();
        assert_eq!(others, self.pressing + ahead, "commands that are not batches");
    }
}

/// Cells of guarded counters, and of counters that began again, that the message would be the first to name.
fn unknown_cells(message: &ToGroup, group: &Group, unknown: impl Fn(&CellId) -> bool) -> Vec<CellId> {
    if let ToGroup::Resets { begun, .. } | ToGroup::Generations(begun) = message {
        // A guarded one begins with its account.
        let begun = begun.iter().filter(|(counter, _)| group.guard_of(counter).is_none());
        let cells = begun.map(|(counter, generation)| counter.total_of(*generation));
        return cells.filter(unknown).collect::<BTreeSet<_>>().into_iter().collect();
    }
    let accounts = match message {
        ToGroup::Account(account) => std::slice::from_ref(account),
        ToGroup::Opened(opened) | ToGroup::Begun { opened, .. } => std::slice::from_ref(&opened.account),
        ToGroup::Confirmed { accounts, .. } => accounts,
        // They name no counter, or none that has an account.
        ToGroup::FencedOut { .. }
        | ToGroup::Placed(_)
        | ToGroup::Namespaces(_)
        | ToGroup::Spread(_)
        | ToGroup::Generations(_)
        | ToGroup::Resets { .. }
        | ToGroup::UpDown(_)
        | ToGroup::Series(_) => &[],
    };
    let cell = |account: &Account| account.counter.total_of(generation_of(account));
    let mut cells: Vec<_> = accounts.iter().map(cell).filter(unknown).collect();
    cells.sort();
    cells.dedup();
    cells
}

impl NodeCore {
    pub(super) fn commit_due(&self) -> Option<Time> {
        if !self.log.is_waiting() || self.log.ended || self.log.commits.len() >= self.config.commits_in_flight_max {
            return None;
        }
        let is_shared = self.log.waiting_bytes >= COMMIT_BYTES_SHARED;
        let due = match self.log.commits.is_empty() {
            _ if self.config.commit_share_percent == 0 => self.log.pace.at_intervals(&self.config, is_shared),
            true if is_shared => self.log.pace.rested(&self.config).min(self.log.pace.overlaps(&self.config)),
            true => self.log.pace.rested(&self.config),
            false if is_shared => self.log.pace.overlaps(&self.config),
            false => self.log.pace.overdue(),
        };
        let held = self.log.held_until.filter(|_| self.log.ahead.is_empty());
        Some(held.map_or(due, |until| due.max(until)))
    }

    /// Gives out the waiting commands, if a commit is due.
    pub(super) fn commit(&mut self, now: Time) {
        self.hold(now);
        if self.commit_due().is_none_or(|due| due > now) {
            return;
        }
        let wall = self.wall(now);
        let mut bytes = 0;
        let bytes_max = self.commit_bytes_max();
        let mut clients = BTreeSet::new();
        while bytes < bytes_max
            && let Some((index, entry)) = self.log.next_entry(wall)
        {
            clients.extend(entry.cmds.iter().filter_map(|cmd| match cmd {
                GroupCmd::Batch(batch) => Some(batch.client),
                GroupCmd::Keyed(keyed) => Some(keyed.batch.client),
                GroupCmd::IdTerms(_)
                | GroupCmd::Compact { .. }
                | GroupCmd::Boot { .. }
                | GroupCmd::Fence { .. }
                | GroupCmd::Age(_)
                | GroupCmd::Ledger(_)
                | GroupCmd::Lease { .. } => None,
            }));
            let (entry, encoded) = self.encode_entry(index, entry);
            debug_assert!(encoded.len() <= self.config.entry_bytes_max, "an entry of {} bytes", encoded.len());
            bytes += encoded.len();
            self.log.flying.push_back((index, entry, encoded.len()));
            self.outputs.push_back(Output::Append { index, entry: encoded });
        }
        self.log.commits.push_back(Commit { last: self.log.last_index, begun: Some(now) });
        self.log.pace.begin(now, clients);
    }

    pub(super) fn wall(&self, now: Time) -> WallMs {
        WallMs(self.config.wall_origin.0 + now.0 / 1_000)
    }

    fn encode_entry(&self, index: LogIndex, entry: GroupEntry) -> (GroupEntry, Vec<u8>) {
        match self.is_replica() {
            true => self.envelop(index, entry),
            false => {
                let encoded = encode(&entry);
                (entry, encoded)
            }
        }
    }

    /// The slot of a cell, named by the entry being filled if it has none.
    pub(super) fn slot_of(&mut self, cell: CellId) -> u32 {
        let known = self.group.table().find(&cell).or_else(|| self.log.pending_slot(&cell));
        known.unwrap_or_else(|| self.log.name(cell))
    }

    /// Queues an admitted batch for the log.
    pub(super) fn propose(&mut self, batch: GroupCmd) {
        debug_assert!(batch.batch().is_some_and(|batch| batch.items.iter().all(|item| item.slot < self.log.slots())));
        self.log.push_batch(batch);
    }
}
