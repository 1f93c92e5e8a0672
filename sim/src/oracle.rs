//! The real fate of every increment, known from outside the cores: from the requests of clients, from the disks of groups, and from the
//! answers that left the nodes.

use crate::plan::GENERATIONS;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_proto::ids::{CellId, ClientId, Half, SessionId};
use tidemark_proto::limits::{IDS_GRACE_AGES, IDS_KEPT_AGES, IDS_LATE_AGES, IDS_MAX};
use tidemark_proto::msg::{Account, Batch, GroupCmd, GroupEntry, IdTerms, Item, ItemId, Keyed, Place, ToGroup};
use tidemark_proto::series::UnixTime;
use tidemark_proto::time::Time;

/// The counts of each minute, in minutes since 1970.
pub type Minutes = BTreeMap<u64, u64>;

/// A hit: its number is its session and its ticket.
#[derive(Clone, Debug)]
pub struct Increment {
    /// Once it is counted, in the generation that it is counted in.
    pub counter: u16,
    pub client: u32,
    pub delta: u64,
    pub invoked: Time,
    /// Times that a committed log entry counted it.
    pub applied: u8,
    /// The group that counted it.
    pub group: Option<u16>,
    /// Position in that group's queue, once it was offered.
    pub pos: Option<u64>,
    /// The first place that a node answered, and when.
    pub place: Option<(Place, Time)>,
    /// The last answer to its client.
    pub told: Told,
    /// It was certified and not reported when its generation was revoked.
    pub late: bool,
    /// Its client was told that its group has forgotten the stream that it was in.
    pub forgotten: bool,
}

/// A client's knowledge of its hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Nothing,
    Durable,
    Placed(Place),
    PlaceUnknown,
    Failed,
    Unknown,
}

/// Added weight (without sessions) of one client process and counter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Added {
    pub invoked: u64,
    pub applied: u64,
    pub failed: u64,
    pub unknown: u64,
    /// Of what is unknown, what was in a stream that its group has forgotten.
    pub forgotten: u64,
}

/// A stream of batches as the committed log has it.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub last: u64,
    pub fenced: bool,
    /// The group's age at its last batch.
    pub used: u32,
    /// And when it was last spoken of, in a fence too.
    pub touched: u32,
    /// Increments of each batch: `items[bounds[seq − 1] .. bounds[seq]]`; `u32::MAX` for an `add`.
    items: Vec<u32>,
    bounds: Vec<u32>,
}

/// The client of increments with ids: they come through several processes.
pub const NOBODY: u32 = u32::MAX;
/// An item without session, or with an id that has counted before.
pub const ADD: u32 = u32::MAX;

/// The committed log of one group, read by dedupe and addition alone.
#[derive(Clone, Debug, Default)]
pub struct GroupTruth {
    /// Counter of each slot (of a down half, the half's number); `u16::MAX` for one that the workload does not know.
    pub slots: Vec<u16>,
    /// Down halves of which a cell has a name in the log, and its generation; and those of each slot.
    named_down: BTreeSet<(u16, u32)>,
    generation_of_slot: Vec<u32>,
    /// How often slots got numbers anew, and what was given back.
    pub compactions: u32,
    pub given_back: BTreeSet<u16>,
    /// The log knows that counters may go down.
    goes_down: bool,
    pub streams: BTreeMap<(ClientId, u8), Stream>,
    /// Ids that count, and the age at which each did; and how they are remembered.
    ids: BTreeMap<[u8; 16], u32>,
    id_terms: Option<IdTerms>,
    /// Component by counter.
    pub components: Vec<u64>,
    /// The last log index read.
    pub seen: u64,
    pub age: u32,
    /// It must not serve any more.
    pub fenced_out: bool,
    /// Counters touched since they were last compared.
    pub touched: Vec<u16>,
    /// The generation of each counter, as far as the log has heard, and up to which number it heard of resets without a gap.
    pub generations: Vec<u32>,
    pub heard: u64,
    /// Counters that the log knows to be guarded.
    guarded: Vec<bool>,
    /// The last process start in the log, whether it was confirmed, and whether any ever was.
    start: u64,
    is_confirmed: bool,
    was_confirmed: bool,
    /// As many valves as any start asked for.
    pub lanes: u8,
    /// The latest stamp in the log, and whether it says that series are kept.
    clock: UnixTime,
    keeps_series: bool,
    /// By half of a counter and minute since 1970: what was counted in it.
    minutes: BTreeMap<(u16, u64), u64>,
}

impl GroupTruth {
    /// The truth of a log without entries, with this number of counters and numbers of them.
    pub fn new(counters: usize, numbers: usize) -> GroupTruth {
        GroupTruth {
            components: vec![0; numbers],
            generations: vec![0; counters],
            guarded: vec![false; counters],
            ..GroupTruth::default()
        }
    }

    /// The counts of a half of a counter in each minute, since the log says that series are kept.
    pub fn buckets(&self, number: u16) -> Minutes {
        self.minutes.range((number, 0)..=(number, u64::MAX)).map(|(&(_, minute), &weight)| (minute, weight)).collect()
    }

    fn terms(&self) -> IdTerms {
        self.id_terms.unwrap_or(IdTerms { kept: IDS_KEPT_AGES, max: IDS_MAX })
    }

    fn forget_ids(&mut self) {
        let age = self.age;
        let kept = self.terms().kept + IDS_GRACE_AGES;
        self.ids.retain(|_, at| *at + kept >= age);
    }

    /// Whether an id counts now, and is remembered from now on.
    fn counts(&mut self, id: &ItemId) -> bool {
        let has_room = self.ids.len() < self.terms().max as usize;
        let is_new = !self.ids.contains_key(&id.digest);
        if is_new && has_room {
            self.ids.insert(id.digest, self.age);
        }
        is_new && has_room
    }

    /// The streams that a group of this age may remember; it keeps them for `kept`.
    pub fn remembered(&self, kept: u32) -> u64 {
        self.streams.values().filter(|stream| stream.touched.saturating_add(kept) >= self.age).count() as u64
    }
}

#[derive(Clone, Debug, Default)]
pub struct Oracle {
    pub increments: Vec<Increment>,
    pub added: BTreeMap<(u32, u16), Added>,
    pub groups: Vec<GroupTruth>,
    /// True total of each counter: durable and applied.
    pub totals: Vec<u64>,
    /// Client process of each client id ever used.
    pub processes: BTreeMap<ClientId, u32>,
    /// Clients that crashed: what they had not been told may have been counted or not.
    pub crashed: Vec<bool>,
    /// The group that was declared lost, if any.
    pub lost: Option<u16>,
    /// Starts that gave a group more valves while it counted, and that asked for fewer than it had.
    pub valves_added: u64,
    pub fewer_valves_asked: u64,
    /// The client process that is just being told that its group has forgotten it.
    pub told_forgotten: Option<u32>,
    /// Ages of its group after which a client's id is over.
    pub streams_kept: u32,
    keys: BTreeMap<Vec<u8>, u16>,
    counters: usize,
    /// Halves of all counters: as many as counters, or twice as many where counters go down. The down half of a counter has a number
    /// of its own, so that checkers take it for another counter: one of which nothing waits for a milestone.
    halves: usize,
}

impl Oracle {
    pub fn new(keys: &[String], updown: bool, groups: usize, clients: usize, streams_kept: u32) -> Oracle {
        let counters = keys.len();
        let halves = if updown { 2 * counters } else { counters };
        let truth = GroupTruth::new(counters, halves * GENERATIONS);
        Oracle {
            groups: vec![truth; groups],
            totals: vec![0; halves * GENERATIONS],
            halves,
            crashed: vec![false; clients],
            keys: keys.iter().enumerate().map(|(n, key)| (key.as_bytes().to_vec(), n as u16)).collect(),
            counters,
            streams_kept,
            ..Oracle::default()
        }
    }

    /// A client was told of a hit of its.
    pub fn tell(&mut self, number: u32, told: Told) {
        let increment = &mut self.increments[number as usize];
        increment.told = told;
        increment.forgotten = told == Told::Unknown && self.told_forgotten == Some(increment.client);
    }

    /// A client was told that it is unknown whether some of what it added was counted.
    pub fn tell_unknown(&mut self, client: u32, counter: u16, delta: u64) {
        let added = self.added.entry((client, counter)).or_default();
        added.unknown += delta;
        added.forgotten += if self.told_forgotten == Some(client) { delta } else { 0 };
    }

    /// The counts of a half of a counter in each minute, by all groups.
    pub fn buckets(&self, number: u16) -> Minutes {
        let mut all = Minutes::new();
        for (minute, weight) in self.groups.iter().flat_map(|group| group.buckets(number)) {
            *all.entry(minute).or_default() += weight;
        }
        all
    }

    /// The log of a group that begins now.
    pub fn new_group(&self) -> GroupTruth {
        GroupTruth::new(self.counters, self.numbers())
    }

    /// Numbers of generations of halves of counters.
    pub fn numbers(&self) -> usize {
        self.halves * GENERATIONS
    }

    /// The number of a half of a counter, in its first generation.
    pub fn half(&self, counter: u16, half: Half) -> u16 {
        debug_assert!(half == Half::Up || self.halves > self.counters, "nothing goes down in this run");
        if half == Half::Up { counter } else { counter + self.counters as u16 }
    }

    /// Whether no client waits for the result any more.
    pub fn is_crashed(&self, client: u32) -> bool {
        client == NOBODY || self.crashed[client as usize]
    }

    /// A hit is about to be handed to its client; returns its number.
    pub fn invoke(&mut self, client: u32, counter: u16, delta: u64, now: Time) -> u32 {
        let told = Told::Nothing;
        let applied = 0;
        let group = None;
        let pos = None;
        let place = None;
        let late = false;
        let forgotten = false;
        self.increments.push(Increment {
            counter,
            client,
            delta,
            invoked: now,
            applied,
            group,
            pos,
            place,
            told,
            late,
            forgotten,
        });
        self.increments.len() as u32 - 1
    }

    /// The number of a counter's generation; of its down half, given that.
    pub fn number(&self, counter: u16, generation: u32) -> u16 {
        debug_assert!((generation as usize) < GENERATIONS, "more resets than planned");
        counter + (self.halves * generation as usize) as u16
    }

    /// The counter of a number, which half of it, and in which generation.
    pub fn cell_of(&self, number: u16) -> (usize, Half, u32) {
        let at = usize::from(number) % self.halves;
        let half = if at < self.counters { Half::Up } else { Half::Down };
        (at % self.counters, half, (usize::from(number) / self.halves) as u32)
    }

    /// Halves of all counters.
    pub fn halves(&self) -> usize {
        self.halves
    }

    /// The number of the same half of a counter in its first generation.
    pub fn first_of(&self, number: u16) -> usize {
        usize::from(number) % self.halves
    }

    pub fn counter_of(&self, key: &[u8]) -> Option<u16> {
        self.keys.get(key).copied()
    }

    /// Learns which counter a new slot of a group's table means.
    pub fn name_slot(&mut self, group: u16, cell: &CellId) {
        let counter = self.counter_of(cell.counter.key()).map_or(u16::MAX, |counter| self.half(counter, cell.half));
        let truth = &mut self.groups[usize::from(group)];
        truth.slots.push(counter);
        truth.generation_of_slot.push(cell.generation);
    }

    /// Reads one committed entry. Errors say which increment was counted twice.
    pub fn read(&mut self, group: u16, index: u64, entry: &GroupEntry) -> Result<(), String> {
        let truth = &mut self.groups[usize::from(group)];
        if index <= truth.seen {
            return Ok(());
        }
        truth.seen = index;
        truth.clock = truth.clock.max(UnixTime::from_wall(entry.now));
        // A compaction may have come at once with the entry that named the slots.
        if entry.first_new_slot as usize == truth.slots.len() {
            entry.new_cells.iter().for_each(|cell| self.name_slot(group, cell));
        }
        for cell in entry.new_cells.iter().filter(|cell| cell.half == Half::Down) {
            self.read_down_cell(group, cell)?;
        }
        for cmd in &entry.cmds {
            match cmd {
                GroupCmd::Batch(batch) => self.read_batch(group, batch, None)?,
                GroupCmd::Keyed(keyed) => self.read_batch(group, &keyed.batch, Some(keyed))?,
                GroupCmd::IdTerms(terms) => self.groups[usize::from(group)].id_terms = Some(*terms),
                GroupCmd::Fence { client, lane, .. } => {
                    let truth = &mut self.groups[usize::from(group)];
                    // Else it changes nothing, and no client is told that it did.
                    if truth.is_confirmed && !truth.fenced_out {
                        let stream = truth.streams.entry((*client, *lane)).or_default();
                        stream.fenced = true;
                        stream.touched = truth.age;
                    }
                }
                GroupCmd::Age(age) => {
                    let truth = &mut self.groups[usize::from(group)];
                    truth.age += u32::from(*age == truth.age + 1);
                    truth.forget_ids();
                }
                GroupCmd::Boot { nonce, lanes } => self.read_start(group, *nonce, *lanes),
                GroupCmd::Ledger(message) => self.read_message(group, message),
                GroupCmd::Lease { .. } => {}
                GroupCmd::Compact { nonce } => self.read_compaction(group, *nonce),
            }
        }
        Ok(())
    }

    fn read_start(&mut self, group: u16, nonce: u64, lanes: u8) {
        let truth = &mut self.groups[usize::from(group)];
        truth.is_confirmed &= truth.start == nonce;
        truth.start = nonce;
        if (1..lanes).contains(&truth.lanes) {
            self.valves_added += 1;
        }
        self.fewer_valves_asked += u64::from(lanes < truth.lanes);
        truth.lanes = truth.lanes.max(lanes);
    }

    /// Slots of generations that are over are given back; the others close up. It is a start as well.
    fn read_compaction(&mut self, group: u16, nonce: u64) {
        let counters = self.counters;
        let halves = self.halves;
        let truth = &mut self.groups[usize::from(group)];
        let of_slots = std::mem::take(&mut truth.slots).into_iter().zip(std::mem::take(&mut truth.generation_of_slot));
        for (half, generation) in of_slots {
            let is_known = half != u16::MAX;
            if is_known && generation < truth.generations[usize::from(half) % counters] {
                truth.given_back.insert(half + (halves * generation as usize) as u16);
            } else {
                truth.slots.push(half);
                truth.generation_of_slot.push(generation);
            }
        }
        truth.compactions += 1;
        self.read_start(group, nonce, self.groups[usize::from(group)].lanes);
    }

    /// Nothing names a down half before the log knows that counters may go down.
    fn read_down_cell(&mut self, group: u16, cell: &CellId) -> Result<(), String> {
        let Some(counter) = self.counter_of(cell.counter.key()) else { return Ok(()) };
        let truth = &mut self.groups[usize::from(group)];
        if !truth.goes_down {
            return Err(format!("group {group} counts down {}, which only grows", cell.counter));
        }
        truth.named_down.insert((counter, cell.generation));
        Ok(())
    }

    /// Of the ledger's messages only what they say of generations, and of what may go down.
    fn read_message(&mut self, group: u16, message: &ToGroup) {
        match message {
            ToGroup::Account(account) => self.read_account(group, account),
            // Given up while it ran: what comes behind it in the log is refused.
            ToGroup::FencedOut { .. } => self.groups[usize::from(group)].fenced_out = true,
            ToGroup::Opened(opened) => self.read_account(group, &opened.account),
            // Only this ends an epoch.
            ToGroup::Begun { opened, .. } => {
                self.read_account(group, &opened.account);
                let account = &opened.account;
                if let Some(counter) = self.counter_of(account.counter.key()).map(usize::from) {
                    let truth = &mut self.groups[usize::from(group)];
                    truth.generations[counter] = truth.generations[counter].max(account.epoch - 1);
                }
            }
            ToGroup::Confirmed { start, accounts, resets, .. }
                if start.nonce == self.groups[usize::from(group)].start =>
            {
                let truth = &mut self.groups[usize::from(group)];
                let is_confirmed = truth.was_confirmed || truth.heard >= *resets;
                truth.was_confirmed |= is_confirmed;
                truth.is_confirmed |= is_confirmed;
                accounts.iter().for_each(|account| self.read_account(group, account));
            }
            ToGroup::Series(_) => self.groups[usize::from(group)].keeps_series = true,
            ToGroup::UpDown(names) => self.groups[usize::from(group)].goes_down |= !names.is_empty(),
            ToGroup::Resets { after, upto, begun } => {
                let truth = &mut self.groups[usize::from(group)];
                if *after <= truth.heard {
                    truth.heard = truth.heard.max(*upto);
                }
                for (name, generation) in begun {
                    let Some(counter) = self.counter_of(name.key()).map(usize::from) else { continue };
                    let truth = &mut self.groups[usize::from(group)];
                    if !truth.guarded[counter] {
                        truth.generations[counter] = truth.generations[counter].max(*generation);
                    }
                }
            }
            _ => {}
        }
    }

    fn read_account(&mut self, group: u16, account: &Account) {
        let Some(counter) = self.counter_of(account.counter.key()).map(usize::from) else { return };
        let truth = &mut self.groups[usize::from(group)];
        let generation = account.epoch - 1;
        if !truth.guarded[counter] && generation >= truth.generations[counter] {
            (truth.guarded[counter], truth.generations[counter]) = (true, generation);
        }
    }

    fn read_batch(&mut self, group: u16, batch: &Batch, keyed: Option<&Keyed>) -> Result<(), String> {
        let truth = &mut self.groups[usize::from(group)];
        // An earlier start asked for more valves, told clients so, and was gone before the log had it.
        if batch.lane >= truth.lanes {
            return Ok(());
        }
        let stream = truth.streams.entry((batch.client, batch.lane)).or_default();
        let is_over = batch.since.saturating_add(self.streams_kept) < truth.age;
        let is_late = keyed.is_some_and(|keyed| keyed.asked.saturating_add(IDS_LATE_AGES) < truth.age);
        if truth.fenced_out || stream.fenced || batch.seq != stream.last + 1 || is_over || is_late {
            return Ok(());
        }
        // An entry that names the down half of a counter that began again is refused until its present cell has a name.
        let unnamed = |item: &Item| {
            let half = truth.slots.get(item.slot as usize).filter(|half| usize::from(**half) >= self.counters)?;
            let counter = half.checked_sub(self.counters as u16).filter(|_| *half != u16::MAX)?;
            let now = truth.generations[usize::from(counter)];
            let over = truth.generation_of_slot[item.slot as usize] < now;
            Some(over && !truth.named_down.contains(&(counter, now)))
        };
        if batch.items.iter().any(|item| unnamed(item) == Some(true)) {
            return Ok(());
        }
        stream.last += 1;
        (stream.used, stream.touched) = (truth.age, truth.age);
        let mut items = Vec::new();
        for (at, item) in batch.items.iter().enumerate() {
            if keyed.is_some_and(|keyed| !truth.counts(&keyed.ids[at])) {
                items.push(ADD);
                continue;
            }
            let counter = truth.slots.get(item.slot as usize).copied().unwrap_or(u16::MAX);
            if counter == u16::MAX {
                return Err(format!("slot {} of group {group} has no known counter", item.slot));
            }
            let of = counter;
            let generation = truth.generations[usize::from(counter) % self.counters];
            let counter = counter + (self.halves * generation as usize) as u16;
            truth.components[usize::from(counter)] += item.delta;
            if truth.keeps_series {
                *truth.minutes.entry((counter, truth.clock.s() / 60)).or_default() += item.delta;
            }
            self.totals[usize::from(counter)] += item.delta;
            if !truth.touched.contains(&counter) {
                truth.touched.push(counter);
            }
            items.push(item.session.map_or(ADD, number_of));
            match item.session {
                Some(session) => count(&mut self.increments, number_of(session), group, of, counter, item.delta)?,
                None => {
                    let process = self.processes.get(&batch.client).copied().unwrap_or(u32::MAX);
                    self.added.entry((process, of)).or_default().applied += item.delta;
                }
            }
        }
        let stream = truth.streams.entry((batch.client, batch.lane)).or_default();
        stream.items.extend(items);
        stream.bounds.push(stream.items.len() as u32);
        Ok(())
    }
}

/// `counter` is what was asked for, and its generation that counted.
fn count(all: &mut [Increment], number: u32, group: u16, counter: u16, counted: u16, delta: u64) -> Result<(), String> {
    let Some(increment) = all.get_mut(number as usize) else {
        return Err(format!("increment {number} was never asked for"));
    };
    increment.applied += 1;
    if increment.applied > 1 || (increment.counter, increment.delta) != (counter, delta) {
        let before = increment.group;
        return Err(format!(
            "increment {number} was counted {} times: by group {before:?}, then by {group} with counter {counter} delta {delta}",
            increment.applied
        ));
    }
    (increment.group, increment.counter) = (Some(group), counted);
    Ok(())
}

impl Stream {
    /// Increments of a committed batch, in order.
    pub fn batch(&self, seq: u64) -> Option<&[u32]> {
        let until = *self.bounds.get(seq.checked_sub(1)? as usize)?;
        let from = if seq == 1 { 0 } else { self.bounds[seq as usize - 2] };
        Some(&self.items[from as usize..until as usize])
    }
}

/// The session that names an increment.
pub fn session_of(number: u32) -> SessionId {
    let mut bytes = [0; 16];
    bytes[12..].copy_from_slice(&number.to_be_bytes());
    SessionId(bytes)
}

/// The increment that a session names.
pub fn number_of(session: SessionId) -> u32 {
    let [.., a, b, c, d] = session.0;
    u32::from_be_bytes([a, b, c, d])
}
