//! The consumer's side of one group's feed: its cursor, and the group's slots that are known by name.

use crate::aggregator::moves::Which;
use crate::aggregator::{AggregatorConfig, AggregatorCore, Output};
use crate::gossip::Fed;
use crate::view::{CELLS_MAX, Cells, Merged, Parted};
use std::collections::{BTreeSet, VecDeque};
use tidemark_ledger::ledger::Ledger;
use tidemark_types::ids::{CellId, CounterName, GroupId, LogIndex, ValveId};
use tidemark_types::limits::COMPONENT_MAX;
use tidemark_types::numbers::Numbers;
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::{Span, Time};
use tidemark_types::warm;
use tidemark_wire::msg::{FeedChunk, FeedPull, FeedWalk, ForGroup, ScopedChunk, ScopedPull};
use tidemark_wire::shards::{Ranges, ShardId};

/// Something of any entry may be merged.
const UNKNOWN: LogIndex = LogIndex(u64::MAX);
/// In place of a slot of the view.
const NOT_HELD: u32 = u32::MAX;
/// The time between two pulls without an answer doubles so often at most.
const RETRY_DOUBLINGS_MAX: u32 = 8;

/// A group answers the first pull at once if it has anything.
const NOTHING_AFTER: Span = Span::from_millis(250);
/// The number of remembered times at which more of a log was heard of.
const HEARD_MAX: usize = 256;

/// The lag of a view behind a group of its data centre.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedLag {
    /// Entries of its log.
    pub entries: u64,
    /// Since the first of them was heard of.
    pub time: Span,
}

/// State of following one group.
#[derive(Clone, Debug, Default)]
pub struct Feed {
    pub cursor: LogIndex,
    /// Something of entries behind the cursor may be merged, up to here.
    partly: LogIndex,
    /// The same, by the position that another holder reported.
    of_other: LogIndex,
    /// Some changes before the cursor come with changes after it. The first position is the one up to which all is merged. The
    /// second has to be merged for all before the cursor to be complete.
    lacks: Option<(LogIndex, LogIndex)>,
    walk: Option<FeedWalk>,
    /// The number of known row changes of the entry behind the cursor.
    rows_told: u32,
    /// The group's slots as those of the view's shards; [`NOT_HELD`] where the counter is not held here.
    slots: Vec<u32>,
    /// And in which shard each is, where there are several.
    shards: Vec<ShardId>,
    /// The number of compactions of the group's slots when these were told.
    compactions: u32,
    /// Up to which number of the ledger's the group had heard of resets when it last told something.
    heard_of: u64,
    /// The pull that is out, since when, and how often it was sent again.
    pulled: Option<Time>,
    retries: u32,
    applied: LogIndex,
    /// The ends of the log at some times: those that are not all merged yet, and at most [`HEARD_MAX`].
    heard: VecDeque<(Time, LogIndex)>,
    connected: bool,
    /// While ranges are told beside it: whether it has them, too.
    pub has_all: bool,
}

impl Feed {
    /// A feed that continues at a persisted cursor; names are asked for again.
    pub fn at(cursor: LogIndex) -> Feed {
        // Rows on disk may know more than the cursor says, but not more than the group has when it is heard.
        // They know so much once the group has told all that it has.
        Feed { cursor, partly: UNKNOWN, lacks: Some((LogIndex(0), cursor)), ..Feed::default() }
    }

    /// Entries that were heard of and are not merged, and how long ago the first of them was heard of.
    pub fn lag(&self, now: Time) -> FeedLag {
        let since = self.heard.front().map_or(now, |&(at, _)| at);
        FeedLag { entries: self.applied.0.saturating_sub(self.cursor.0), time: now - since }
    }

    /// The log was applied up to there when this was told.
    fn hear(&mut self, now: Time, applied: LogIndex) {
        // Then a lag is said to be longer than it is, and never shorter.
        let is_full = self.heard.len() >= HEARD_MAX;
        if applied > self.applied {
            match self.heard.back_mut().filter(|_| is_full) {
                Some((_, last)) => *last = applied,
                None => self.heard.push_back((now, applied)),
            }
        }
        self.applied = self.applied.max(applied);
    }

    fn forget_heard(&mut self) {
        while self.heard.front().is_some_and(|&(_, applied)| applied <= self.cursor) {
            self.heard.pop_front();
        }
    }

    /// When the next pull is due. A pull without news is answered when there are some, so it may take long.
    pub fn due(&self, config: &AggregatorConfig) -> Option<Time> {
        let patience = config.feed_retry.0.saturating_mul(1 << self.retries).min(config.feed_retry_max.0);
        self.connected.then(|| self.pulled.map_or(Time(0), |at| at + Span(patience)))
    }

    pub fn on_up(&mut self) {
        (self.connected, self.pulled, self.walk, self.rows_told, self.retries) = (true, None, None, 0, 0);
        self.heard_of = 0;
    }

    pub fn on_gone(&mut self) {
        self.connected = false;
    }

    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Nothing was told yet.
    pub fn is_new(&self) -> bool {
        self.cursor == LogIndex(0) && self.slots.is_empty()
    }

    /// All that the group had counted at some time after this process met it is merged.
    pub fn has_some(&self) -> bool {
        self.applied > LogIndex(0) && self.whole() > LogIndex(0)
    }

    /// Whether all increments that the group had counted when it was first heard of since the start are merged. A group that has
    /// counted nothing answers nothing, so its silence stands for that.
    pub fn has_caught_up(&self, now: Time) -> bool {
        let is_silent = |at: Time| self.retries > 0 || now - at >= NOTHING_AFTER;
        let is_empty = self.connected && self.cursor == LogIndex(0) && self.pulled.is_some_and(is_silent);
        self.has_some() || is_empty
    }

    /// The position in the group's log up to which entries may be merged; `None`: it is not known before the group is heard.
    pub fn shows_no_more_than(&self) -> Option<LogIndex> {
        Some(self.shows_some_of()).filter(|upto| *upto != UNKNOWN)
    }

    /// Another holder told something, which had been told of the group's log up to here.
    pub fn on_other(&mut self, upto: LogIndex) {
        self.of_other = self.of_other.max(upto);
    }

    /// Everything that was counted up to here is merged.
    pub fn whole(&self) -> LogIndex {
        self.lacks.map_or(self.cursor, |(whole, _)| whole)
    }

    /// More was told, of a log that was applied up to there.
    fn advance(&mut self, chunk: &FeedChunk) {
        let (whole, before) = self.lacks.unwrap_or((self.cursor, self.cursor));
        // A walk tells all there is, and changes nothing of that before its end.
        let known = match (self.walk, chunk.walk) {
            (_, Some(_)) => before,
            (Some(_), None) => chunk.upto,
            (None, None) => before.max(chunk.applied),
        };
        (self.cursor, self.walk, self.rows_told) = (chunk.upto, chunk.walk, chunk.rows_told);
        self.lacks = (known > self.cursor).then_some((whole, known));
    }

    /// Asks at once, even if a pull is out: the answer to that pull is not taken.
    pub fn ask_again(&mut self) {
        (self.pulled, self.retries) = (None, 0);
    }

    /// The known slots of a range are void.
    pub fn forget(&mut self, shard: ShardId) {
        let of_shard = |at: usize| self.shards.get(at).copied().unwrap_or(ShardId::FIRST) == shard;
        (0..self.slots.len()).filter(|&at| of_shard(at)).for_each(|at| self.slots[at] = NOT_HELD);
    }

    /// Forgets these slots of a shard, whose cells have ended. Checks at most `most` slots of the group beginning at `from`, and
    /// returns how many it checked.
    pub fn end_slots(&mut self, shard: ShardId, over: &Numbers, from: usize, most: usize) -> usize {
        let until = self.slots.len().min(from.saturating_add(most));
        for at in from..until {
            if self.shards.get(at).copied().unwrap_or(ShardId::FIRST) == shard && over.contains(self.slots[at]) {
                self.slots[at] = NOT_HELD;
            }
        }
        until.saturating_sub(from)
    }

    /// Whether it refers to any of these slots of a shard.
    pub fn refers_to(&self, shard: ShardId, slots: &Numbers) -> bool {
        let is_one = |at: u32| self.place(at).is_some_and(|(of, slot)| of == shard && slots.contains(slot));
        (0..self.slots.len() as u32).any(is_one)
    }

    /// A range is split: its slots are in its parts now.
    pub fn on_split(&mut self, parted: &Parted) {
        self.shards.resize(self.slots.len(), ShardId::FIRST);
        let of = parted.split.shard;
        let parts = parted.split.parts();
        let place = |shard: ShardId, slot: u32| {
            let place = parted.place(slot).filter(|_| shard == of && slot != NOT_HELD)?;
            Some((parts[place.part], place.slot))
        };
        for (shard, slot) in self.shards.iter_mut().zip(&mut self.slots) {
            (*shard, *slot) = place(*shard, *slot).unwrap_or((*shard, *slot));
        }
    }

    /// Whether a feed that fills in other ranges beside this one has all that this one's cursor says.
    pub fn can_take_over(&self, beside: &Feed) -> bool {
        let is_between = |feed: &Feed| feed.walk.is_none() && feed.rows_told == 0;
        let is_named_alike = beside.compactions == self.compactions;
        is_between(beside) && is_between(self) && is_named_alike && beside.cursor >= self.cursor
    }

    /// From now on this feed brings the ranges of that one. Changes that it has told already come again, and so do slots that it
    /// has not named.
    pub fn take_over(&mut self, beside: &Feed) {
        let named = self.slots.len().min(beside.slots.len());
        self.slots.truncate(named);
        self.shards.truncate(named);
        for at in (0..named).filter(|&at| beside.slots[at] != NOT_HELD) {
            (self.slots[at], self.shards[at]) = (beside.slots[at], beside.shards[at]);
        }
        self.partly = self.partly.max(beside.applied);
        let (whole, known) = self.lacks.unwrap_or((self.cursor, self.cursor));
        let (of_beside, to_come) = beside.lacks.unwrap_or((beside.cursor, beside.cursor));
        let known = known.max(to_come);
        self.lacks = (known > self.cursor).then_some((whole.min(of_beside), known));
        self.has_all = true;
        self.ask_again();
    }

    /// The position in the group's log up to which entries may be merged.
    pub fn shows_some_of(&self) -> LogIndex {
        self.cursor.max(self.partly).max(self.of_other)
    }

    /// Whether everything up to here is merged, and nothing behind it.
    pub fn stands_at(&self, cursor: LogIndex) -> bool {
        self.cursor == cursor && self.walk.is_none() && self.rows_told == 0
    }

    /// A slot of the group as one of the view.
    #[inline]
    fn place(&self, of_group: u32) -> Option<(ShardId, u32)> {
        let shard = self.shards.get(of_group as usize).copied().unwrap_or(ShardId::FIRST);
        self.slots.get(of_group as usize).filter(|&&slot| slot != NOT_HELD).map(|&slot| (shard, slot))
    }

    /// All slots of the group below are known by name, or not held here.
    fn known_upto(&mut self, of_group: u32, ranges: &Ranges) {
        if self.slots.len() < of_group as usize {
            self.slots.resize(of_group as usize, NOT_HELD);
            if !ranges.is_whole() {
                self.shards.resize(of_group as usize, ShardId::FIRST);
            }
        }
    }

    /// The next slot of the group that is held here.
    fn learn(&mut self, slot: u32, shard: ShardId, ranges: &Ranges) {
        self.slots.push(slot);
        if !ranges.is_whole() {
            self.shards.push(shard);
        }
    }

    fn pull(&self, group: GroupId, bytes_max: u32) -> FeedPull {
        let slots_known = self.slots.len() as u32;
        let Feed { cursor, walk, rows_told, compactions, heard_of: heard, .. } = *self;
        FeedPull { group, cursor, walk, slots_known, bytes_max, rows_told, compactions, heard }
    }

    /// The group's slots have other numbers: the known ones are void.
    fn on_compacted(&mut self, compactions: u32) {
        self.compactions = compactions;
        (self.slots, self.shards) = Default::default();
        (self.walk, self.rows_told) = (None, 0);
    }
}

impl AggregatorCore {
    /// Whether a group of this data centre speaks to this aggregator.
    pub fn is_group_connected(&self, group: GroupId) -> bool {
        self.groups.contains(&group)
    }

    /// Whether the view has all increments that a group had counted when this process met it.
    pub fn has_caught_up(&self, now: Time, group: GroupId) -> bool {
        self.feeds.get(&group).is_some_and(|feed| feed.has_caught_up(now))
    }

    /// Groups of this data centre that are not known to have heard of a counter's generation: their increments until then belong
    /// to an earlier one.
    pub fn unheard(&self, counter: &CounterName, generation: u32, ledger: &Ledger) -> Vec<GroupId> {
        let here =
            ledger.groups().iter().filter(|(group, registered)| group.dc == self.config.own.dc && !registered.fenced);
        here.map(|(&group, _)| group).filter(|&group| !self.has_heard(group, counter, generation, ledger)).collect()
    }

    /// Whether a group is known to have heard of a counter's generation. A counter with a guard begins again by its account, which
    /// may come later than the reset's number. The group then reports the account's base to the ledger.
    fn has_heard(&self, group: GroupId, counter: &CounterName, generation: u32, ledger: &Ledger) -> bool {
        let life = ledger.resets().life(counter);
        let account = ledger.counter(counter).and_then(|guarded| guarded.accounts().get(&group));
        let has_begun = account.is_none_or(|account| account.base.is_some() || bites(Bug::BegunUnseen));
        let has_number = generation <= life.generation && self.resets_heard.of(group) >= life.number;
        generation == 0 || has_number && has_begun
    }

    /// Asks every connected group for new changes, one pull at a time.
    pub(super) fn run_feeds(&mut self, now: Time) {
        let is_due = |feed: &Feed| feed.due(&self.config).is_some_and(|due| due <= now);
        let due = self.all_feeds().filter(|(_, _, feed)| is_due(feed)).map(|(group, which, _)| (group, which));
        for (group, which) in due.collect::<Vec<_>>() {
            let Some(feed) = self.feed_mut(group, which) else { continue };
            feed.retries = if feed.pulled.is_some() { (feed.retries + 1).min(RETRY_DOUBLINGS_MAX) } else { 0 };
            feed.pulled = Some(now);
            let Some(feed) = self.feed(group, which) else { continue };
            let pull = feed.pull(group, self.config.feed_bytes_max);
            let msg = match self.scope_of(feed, which) {
                Some((ranges, scope)) if !bites(Bug::NotHeldKept) => {
                    let fills = which == Which::Filling;
                    let pull = ScopedPull { pull, ranges: ranges.to_vec(), scope, fills };
                    let order = self.config.ranges.order();
                    match order.is_by_name() || bites(Bug::OrderUnsaid) {
                        true => ForGroup::FeedIn(pull),
                        false => ForGroup::FeedOrdered(pull, order.clone()),
                    }
                }
                _ => ForGroup::Feed(pull),
            };
            self.outputs.push_back(Output::Group { group, msg });
        }
    }

    /// A chunk of some ranges; of others than are asked for now it is the answer to an older pull.
    pub(super) fn on_fed_in(&mut self, now: Time, group: GroupId, told: &ScopedChunk, ledger: &Ledger) {
        let ScopedChunk { chunk, slots, named, scope, fills } = told;
        let which = if *fills { Which::Filling } else { Which::Usual };
        let asked = self.feed(group, which).and_then(|feed| self.scope_of(feed, which));
        if asked.is_some_and(|(_, number)| number == *scope) {
            self.on_feed(now, group, which, chunk, Names::Some(slots, *named), ledger);
        }
    }

    /// Merges a chunk that continues the cursor; another one is the answer to an older pull.
    pub(super) fn on_feed(
        &mut self,
        now: Time,
        group: GroupId,
        which: Which,
        chunk: &FeedChunk,
        names: Names<'_>,
        ledger: &Ledger,
    ) {
        let Some(feed) = self.feed_mut(group, which) else { return };
        // A leader of an earlier term that is behind knows of fewer compactions.
        if chunk.group != group || chunk.base != feed.cursor || chunk.compactions < feed.compactions {
            return;
        }
        if chunk.compactions > feed.compactions && !bites(Bug::NumbersKept) {
            feed.on_compacted(chunk.compactions);
        }
        if !names_its_slots(feed, chunk, names) {
            return;
        }
        feed.pulled = None;
        feed.heard_of = chunk.heard;
        feed.hear(now, chunk.applied);
        // The last part of a walk, or of an entry, holds the entries applied by then as well.
        let was_partial = feed.walk.is_some() || feed.rows_told > 0 || feed.partly > feed.applied;
        let is_partial = was_partial || chunk.walk.is_some() || chunk.rows_told > 0;
        feed.partly = if is_partial { feed.applied } else { feed.partly };
        // A chunk that does not fit the view is not skipped: the cursor stays, and the feed's lag grows for all to see.
        self.note_heard(now, group, chunk.heard, ledger);
        let Some(mut feed) = self.feed_mut(group, which).map(std::mem::take) else { return };
        let is_learnt = self.learn_slots(&mut feed, which, chunk, names, ledger) && self.learn_valves(&feed, chunk);
        let raised = if is_learnt { self.merge_chunk(now, &feed, which, chunk) } else { BTreeSet::new() };
        if is_learnt {
            feed.advance(chunk);
            feed.forget_heard();
        }
        if let Some(place) = self.feed_mut(group, which) {
            *place = feed;
        }
        if !is_learnt {
            return;
        }
        // The counts in cells that are new here are to flow on.
        if !chunk.cells.is_empty() {
            self.graph_at.get_or_insert(now);
        }
        self.join_feeds(group);
        self.cursors_moved(now, |shard| raised.contains(&shard));
        self.want_notifications(now);
    }

    /// Learns names of the group's slots; false when the view's table is full. An ended cell gets no slot, and the feed does not map to
    /// its slot, because a new cell may get that slot.
    fn learn_slots(
        &mut self,
        feed: &mut Feed,
        which: Which,
        chunk: &FeedChunk,
        names: Names<'_>,
        ledger: &Ledger,
    ) -> bool {
        let numbers = (0..self.config.ranges.numbers() as u16).map(ShardId);
        let brought: Vec<bool> = numbers.map(|shard| self.brings(feed.has_all, which, shard)).collect();
        let AggregatorCore { view, config, .. } = self;
        view.change(|shards| {
            let known = feed.slots.len() as u32;
            for (of_group, cell) in names.of(chunk).skip_while(|&(of_group, _)| of_group < known) {
                let shard = config.ranges.find(&cell.counter);
                if !brought[usize::from(shard.0)] && !bites(Bug::NotHeldKept) {
                    continue;
                }
                let cells = &mut shards[usize::from(shard.0)];
                if ledger.resets().is_over(cell) {
                    continue;
                }
                let Ok(slot) = cells.slot(cell) else { return false };
                if cells.is_over(slot) {
                    continue;
                }
                feed.known_upto(of_group, &config.ranges);
                feed.learn(slot, shard, &config.ranges);
            }
            feed.known_upto(names.upto(chunk), &config.ranges);
            true
        })
    }

    /// False when the view can take no further valve.
    fn learn_valves(&mut self, feed: &Feed, chunk: &FeedChunk) -> bool {
        let view = &mut self.view;
        let group = chunk.group;
        let places = chunk.components.iter().map(|&(slot, lane, _)| (slot, lane));
        let places = places.chain(chunk.rows.iter().map(|&(slot, lane, _)| (slot, lane)));
        let mut known = BTreeSet::new();
        view.change(|shards| {
            places.into_iter().all(|(slot, lane)| {
                let Some((shard, _)) = feed.place(slot) else { return true };
                !known.insert((shard, lane)) || shards[usize::from(shard.0)].valve(ValveId { group, lane }).is_ok()
            })
        })
    }

    /// Merges a chunk; returns the shards with raised components.
    fn merge_chunk(&mut self, now: Time, feed: &Feed, which: Which, chunk: &FeedChunk) -> BTreeSet<ShardId> {
        let AggregatorCore { view, shards, .. } = self;
        let raised = view.change(|cells| {
            let mut raised = vec![Vec::new(); cells.len()];
            merge_components(cells, feed, chunk, &mut raised);
            for (own, fed) in shards.iter_mut().zip(&raised) {
                fed.iter().for_each(|fed: &Fed| own.checkpoint.touch(fed.slot));
            }
            if !chunk.rows.is_empty() {
                merge_rows(cells, feed, chunk, &mut raised);
            }
            raised
        });
        let is_raised = |(at, fed): (usize, &Vec<Fed>)| (!fed.is_empty()).then_some(ShardId(at as u16));
        let some: BTreeSet<ShardId> = raised.iter().enumerate().filter_map(is_raised).collect();
        // A feed that fills in ranges tells all of a range, which its holders have gossiped already.
        for (own, fed) in shards.iter_mut().zip(raised).filter(|_| which == Which::Usual) {
            own.gossip.on_fed(now, fed);
        }
        self.heard.on_raised(now, &mut self.view);
        some
    }
}

/// Raised components are added to the others, by shard.
fn merge_components(cells: &mut [Cells], feed: &Feed, chunk: &FeedChunk, raised: &mut [Vec<Fed>]) {
    for (at, &(slot, lane, value)) in chunk.components.iter().enumerate() {
        warm::ahead(&chunk.components, at, |&(slot, ..)| warm_with(cells, feed, slot, Cells::warm));
        let valve = ValveId { group: chunk.group, lane };
        let Some((shard, slot, valve)) = place_of(cells, feed, valve, slot) else { continue };
        if value <= COMPONENT_MAX && cells[shard].merge(slot, valve, value) == Merged::Raised {
            raised[shard].push(Fed { slot, valve, rows: Vec::new() });
        }
    }
}

/// Changes in rows go with the component, as both have changed in one entry.
fn merge_rows(cells: &mut [Cells], feed: &Feed, chunk: &FeedChunk, raised: &mut [Vec<Fed>]) {
    let mut places: Vec<((usize, u32, u16), usize)> = Vec::new();
    for (shard, fed) in raised.iter().enumerate() {
        places.extend(fed.iter().enumerate().map(|(at, fed)| ((shard, fed.slot, fed.valve), at)));
    }
    places.sort_unstable();
    for (at, &(slot, lane, ref row)) in chunk.rows.iter().enumerate() {
        warm::ahead(&chunk.rows, at, |&(slot, ..)| warm_with(cells, feed, slot, Cells::warm_row));
        let valve = ValveId { group: chunk.group, lane };
        let Some((shard, slot, valve)) = place_of(cells, feed, valve, slot) else { continue };
        let Some(by) = cells[shard].merge_row(slot, valve, row) else { continue };
        let parts = by.parts.iter().map(|&part| (by.number, part));
        match places.binary_search_by_key(&(shard, slot, valve), |&(of, _)| of) {
            Ok(found) => raised[shard][places[found].1].rows.extend(parts),
            Err(_) => raised[shard].push(Fed { slot, valve, rows: parts.collect() }),
        }
    }
}

/// Prefetches the memory that a slot of the group will be merged into.
fn warm_with(cells: &[Cells], feed: &Feed, slot: u32, read: impl Fn(&Cells, u32) -> u64) -> u64 {
    feed.place(slot).map_or(0, |(shard, slot)| read(&cells[usize::from(shard.0)], slot))
}

/// A slot and a valve of a group, as shard, slot and valve of the view.
fn place_of(cells: &mut [Cells], feed: &Feed, valve: ValveId, slot: u32) -> Option<(usize, u32, u16)> {
    let (ShardId(shard), slot) = feed.place(slot)?;
    let shard = usize::from(shard);
    Some((shard, slot, cells[shard].valve(valve).ok()?))
}

/// The slots that the names in a chunk belong to.
#[derive(Clone, Copy)]
pub(super) enum Names<'a> {
    /// Slots from the first one on.
    All,
    /// These, of all below the number.
    Some(&'a [u32], u32),
}

impl<'a> Names<'a> {
    fn upto(self, chunk: &FeedChunk) -> u32 {
        match self {
            Names::All => chunk.first_slot.saturating_add(chunk.cells.len() as u32),
            Names::Some(_, upto) => upto,
        }
    }

    fn of(self, chunk: &'a FeedChunk) -> impl Iterator<Item = (u32, &'a CellId)> {
        let slot = move |at: usize| match self {
            Names::All => chunk.first_slot.saturating_add(at as u32),
            Names::Some(slots, _) => slots.get(at).copied().unwrap_or(NOT_HELD),
        };
        chunk.cells.iter().enumerate().map(move |(at, cell)| (slot(at), cell))
    }
}

/// Whether every slot in the chunk is known, or named in it.
fn names_its_slots(feed: &Feed, chunk: &FeedChunk, names: Names<'_>) -> bool {
    let known = (names.upto(chunk) as usize).max(feed.slots.len());
    let continues = chunk.first_slot as usize <= feed.slots.len();
    let slots = chunk.components.iter().map(|&(slot, ..)| slot).chain(chunk.rows.iter().map(|row| row.0));
    continues && known <= CELLS_MAX as usize && slots.into_iter().all(|slot| (slot as usize) < known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_lasts_since_the_first_entry_was_heard_of_that_is_not_merged_and_is_never_said_to_be_shorter() {
        let mut feed = Feed::default();
        let lag = |feed: &Feed, now| (feed.lag(Time(now)).entries, feed.lag(Time(now)).time.0);
        let merged = |feed: &mut Feed, upto| {
            feed.cursor = LogIndex(upto);
            feed.forget_heard();
        };
        feed.hear(Time(10), LogIndex(5));
        feed.hear(Time(15), LogIndex(5));
        feed.hear(Time(20), LogIndex(9));
        assert_eq!(lag(&feed, 30), (9, 20));
        merged(&mut feed, 4);
        assert_eq!(lag(&feed, 30), (5, 20));
        merged(&mut feed, 5);
        assert_eq!(lag(&feed, 30), (4, 10));
        merged(&mut feed, 9);
        assert_eq!(lag(&feed, 30), (0, 0));
        let many = 3 * HEARD_MAX as u64;
        (1..=many).for_each(|more| feed.hear(Time(30 + more), LogIndex(9 + more)));
        assert_eq!((feed.heard.len(), lag(&feed, 1_000)), (HEARD_MAX, (many, 1_000 - 31)));
        merged(&mut feed, 9 + many - 1);
        let (entries, time) = lag(&feed, 1_000);
        assert!(entries == 1 && time >= 1_000 - (30 + many), "{time}");
        merged(&mut feed, 9 + many);
        assert_eq!(lag(&feed, 1_000), (0, 0));
    }
}
