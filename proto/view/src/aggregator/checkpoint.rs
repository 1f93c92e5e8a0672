//! The view on disk: rows of packed cells, cursors of feeds, versions of origins, limits of readings.
//!
//! A checkpoint is given out in parts, one transaction each, while the view goes on. Cursors and versions are those of its
//! beginning and come with its last part: changes beyond them in other rows are told again and have no effect. Parts are spread
//! over the interval between two checkpoints, so that writing millions of rows never takes the processor from reads.

use crate::aggregator::{AggregatorCore, Output};
use crate::view::{Cells, Left, NotedLimit};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use tidemark_types::ids::CounterName;
use tidemark_types::limits::ROW_BUCKETS_MAX;
use tidemark_types::numbers::Numbers;
use tidemark_types::series::Row;
use tidemark_types::teeth::{Bug, bites};
use tidemark_types::time::{Span, Time};
use tidemark_wire::counter_order::CounterOrder;
use tidemark_wire::shards::{Ranges, ShardId};
use tidemark_wire::wire::WireError;

/// Key and value, as persisted; a row with an empty value is to go.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Cells with components in one row: a changed cell is written with its neighbours.
pub(super) const BLOCK_CELLS: u32 = 8;
/// Number of cells with names in one row. A checkpoint rewrites the row when a new cell got the slot of an ended cell.
pub(super) const NAMES_PER_ROW: u32 = 256;
/// The part of the interval between two checkpoints in which all of one is given out if the disk keeps up: four fifths.
const PACE: (u64, u64) = (4, 5);
pub(super) const NAMESPACES: u8 = 0;
pub(super) const VALVES: u8 = 1;
pub(super) const CURSORS: u8 = 2;
pub(super) const VERSIONS: u8 = 3;
pub(super) const LIMIT: u8 = 4;
pub(super) const NAMES: u8 = 5;
pub(super) const CELLS: u8 = 6;
pub(super) const STREAM: u8 = 7;
/// Rows of buckets, each by its number: its slot and valve, and its pieces.
pub(super) const BUCKETS: u8 = 8;
/// The latest time by which buckets were dropped.
pub(super) const TIME: u8 = 9;
/// The cuts of a view, if it is cut.
pub(super) const CUTS: u8 = 10;
/// The order of counters, if it is not the order of their names.
pub(super) const ORDER: u8 = 11;
/// Rows that a shard has one of each, and that mean nothing without its cells.
const STALE_ALONE: [u8; 5] = [NAMESPACES, VALVES, CURSORS, VERSIONS, STREAM];
/// The time until the rows of a part are continued.
const ROWS_AGAIN: Span = Span::from_millis(5);
/// Buckets that are not in memory, each by the number of their row: until when, and pieces.
pub(super) const SHELVED: u8 = 12;
/// The factor by which cursors are written more rarely in a shard without raised cells.
const CURSORS_ALONE: u64 = 10;

/// Rows that are not a view's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    #[error("row {key:02x?}: {reason}")]
    Malformed { key: Vec<u8>, reason: String },
    #[error("row {key:02x?} is of no known kind")]
    Unknown { key: Vec<u8> },
    #[error(
        "the view on disk is cut at {disk}, and is to be at {asked}: its files are made for one way to cut it. Change it back, or take a \
         backup and restore it with the new one"
    )]
    Cut { disk: String, asked: String },
    #[error(
        "counters of the view on disk, which is cut, lie by {disk}, and are to lie by {asked}: its files are made for one order. Change it \
         back, or take a backup and restore it with the new one"
    )]
    Order { disk: String, asked: String },
}

/// The changes since the last checkpoint, and the rows on their way.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    blocks: Numbers,
    due: Option<Time>,
    /// The next part is due then, at any pace.
    hurried: Option<Time>,
    making: Option<Making>,
    /// A part is out; counters with limits in it.
    out: Option<BTreeSet<CounterName>>,
    /// The buckets that left memory with it.
    left: Vec<Left>,
    /// Valves, names and namespaces already persisted, or on their way.
    valves: usize,
    cells: u32,
    namespaces: usize,
    /// The view's cuts are on disk, too.
    says_cuts: bool,
    /// Counters with the same limit on disk and in memory.
    persisted: BTreeSet<CounterName>,
    begun: Time,
    /// The number of begun checkpoints, and the number of the last checkpoint that is completely on disk.
    begun_count: u64,
    done_count: u64,
    flushes: Flushes,
    /// Rows that are to go.
    stale: Stale,
}

/// Rows of cells that are in others' files now: by kind, those numbered below.
#[derive(Clone, Debug, Default)]
pub(super) struct Stale(BTreeMap<u8, u32>);

impl Stale {
    /// All of some cells.
    pub fn of(cells: &Cells) -> Stale {
        let blocks = [
            (NAMES, cells.len().div_ceil(NAMES_PER_ROW)),
            (CELLS, cells.len().div_ceil(BLOCK_CELLS)),
            (BUCKETS, cells.rows_len()),
            (SHELVED, cells.rows_len()),
        ];
        Stale(blocks.into_iter().chain(STALE_ALONE.map(|kind| (kind, 1))).collect())
    }

    /// A row is on disk.
    pub fn note(&mut self, key: &[u8]) {
        let number = key.get(1..).and_then(|number| number.try_into().ok()).map_or(0, u32::from_be_bytes);
        if let Some(&kind) = key.first() {
            let below = self.0.entry(kind).or_default();
            *below = number.saturating_add(1).max(*below);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rows of either.
    fn with(mut self, other: Stale) -> Stale {
        for (kind, below) in other.0 {
            let known = self.0.entry(kind).or_default();
            *known = below.max(*known);
        }
        self
    }

    /// That counters do not lie in the order of their names.
    fn of_order() -> Stale {
        Stale(BTreeMap::from([(ORDER, 1)]))
    }

    /// The key of the next one.
    fn next(&mut self) -> Option<Vec<u8>> {
        let mut entry = self.0.first_entry()?;
        let kind = *entry.key();
        let below = *entry.get();
        match below {
            0 | 1 => drop(entry.remove()),
            below => *entry.get_mut() = below - 1,
        }
        let is_alone = STALE_ALONE.contains(&kind) || kind == ORDER;
        Some(if is_alone { vec![kind] } else { block_key(kind, below.saturating_sub(1)) })
    }
}

/// Requests that everything known by then be durable, counted.
#[derive(Clone, Copy, Debug, Default)]
struct Flushes {
    asked: u64,
    /// The checkpoint that was begun last has all that these ask for.
    begun: u64,
    done: u64,
}

/// The rest of a checkpoint that is to be given out.
#[derive(Clone, Debug)]
struct Making {
    names: Range<u32>,
    /// Further rows of names, in which new cells got slots of ended cells.
    renamed: Numbers,
    /// The namespaces that are on disk, or on their way.
    namespaces: usize,
    blocks: Numbers,
    buckets: Numbers,
    /// The old buckets on disk of these rows are to be deleted.
    expired: Numbers,
    stale: Stale,
    /// Rows that say how far all of it has come.
    closing: Rows,
    /// The rows of the next part, and their bytes.
    rows: Rows,
    bytes: usize,
    /// The buckets that leave memory with it.
    leaves: Vec<Left>,
    /// The rows that there were to give out at its beginning, as [`Making::left`] counts them.
    whole: u64,
    /// When the next part is due, or is gone on with.
    part_at: Time,
}

impl Making {
    /// The number of rows of components that are to be given out.
    fn left(&self) -> u64 {
        let names = u64::from(self.names.end - self.names.start) + self.renamed.len() as u64;
        names * u64::from(NAMES_PER_ROW / BLOCK_CELLS) + (self.blocks.len() + self.buckets.len()) as u64
    }

    fn put(&mut self, row: (Vec<u8>, Vec<u8>)) {
        self.bytes += row.0.len() + row.1.len();
        self.rows.push(row);
    }
}

impl Checkpoint {
    /// For cells that are on disk, with these counters' limits.
    pub fn of(cells: &Cells, persisted: BTreeSet<CounterName>) -> Checkpoint {
        Checkpoint {
            valves: cells.valves().len(),
            cells: cells.len(),
            namespaces: cells.table().namespaces().len(),
            says_cuts: true,
            persisted,
            ..Checkpoint::default()
        }
    }

    /// For a range that is split, which still has the rows of limits: these are on disk, and so may be the cuts of the view.
    pub fn of_limits(persisted: BTreeSet<CounterName>, says_cuts: bool) -> Checkpoint {
        Checkpoint { says_cuts, persisted, ..Checkpoint::default() }
    }

    /// The same of this one, which may have a part out.
    pub fn of_limits_only(&mut self) -> Checkpoint {
        let out = self.out.take();
        let persisted = std::mem::take(&mut self.persisted);
        let stale = std::mem::take(&mut self.stale);
        // The rest of a checkpoint that is being made is never given out.
        let says_cuts = self.says_cuts && self.making.is_none();
        let stale = self.making.take().map_or(Stale::default(), |making| making.stale).with(stale);
        Checkpoint { out, hurried: self.hurried, due: self.due, stale, ..Checkpoint::of_limits(persisted, says_cuts) }
    }

    /// These rows are to go.
    pub fn drop_rows(&mut self, now: Time, stale: Stale) {
        self.stale = std::mem::take(&mut self.stale).with(stale);
        self.moved(now, Span(0));
    }

    /// Counters lie in another order than is on disk.
    pub fn reorder(&mut self, order: &CounterOrder) {
        self.says_cuts = false;
        let stale = if order.is_by_name() { Stale::of_order() } else { Stale::default() };
        self.drop_rows(Time(0), stale);
    }

    /// All of these cells is yet to be written.
    pub fn touch_all(&mut self, cells: &Cells) {
        (0..cells.len().div_ceil(BLOCK_CELLS)).for_each(|block| self.blocks.insert(block));
    }

    pub fn touch(&mut self, slot: u32) {
        self.blocks.insert(slot / BLOCK_CELLS);
    }

    /// Cursors or versions moved: write them in time.
    pub fn moved(&mut self, now: Time, interval: Span) {
        let at = (self.begun + interval).max(now);
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Limits are to be durable soon: they come with the next part.
    pub fn hurry(&mut self, now: Time) {
        self.hurried = Some(now);
    }

    /// Everything that is known now is to be durable soon. The number of this flush.
    pub fn flush(&mut self, now: Time) -> u64 {
        self.flushes.asked += 1;
        self.hurry(now);
        self.flushes.asked
    }

    /// The number of the next checkpoint to begin.
    pub fn next(&self) -> u64 {
        self.begun_count + 1
    }

    /// Whether a checkpoint or a later checkpoint is completely on disk.
    pub fn has_done(&self, number: u64) -> bool {
        self.done_count >= number
    }

    /// Whether the state at the request of a flush is durable.
    pub fn has_flushed(&self, flush: u64) -> bool {
        self.flushes.done >= flush
    }

    pub fn due(&self) -> Option<Time> {
        if self.out.is_some() {
            return None;
        }
        let unhurried = self.making.as_ref().map_or(self.due, |making| Some(making.part_at));
        self.hurried.into_iter().chain(unhurried).min()
    }

    #[cfg(test)]
    pub fn is_being_made(&self) -> bool {
        self.making.is_some()
    }

    /// Rows of the next part that are encoded.
    #[cfg(test)]
    pub fn encoded(&self) -> usize {
        self.making.as_ref().map_or(0, |making| making.rows.len())
    }

    pub fn is_persisted(&self, counter: &CounterName) -> bool {
        self.persisted.contains(counter)
    }

    /// A part is durable. Returns the buckets that left memory with it.
    pub fn on_persisted(&mut self, now: Time) -> Vec<Left> {
        self.persisted.extend(self.out.take().unwrap_or_default());
        if self.making.is_none() {
            self.flushes.done = self.flushes.begun;
            self.done_count = self.begun_count;
        }
        if self.flushes.done < self.flushes.asked {
            self.hurry(now);
        }
        std::mem::take(&mut self.left)
    }

    /// Puts the next row of the checkpoint, in its present state, or two that go together. False: there is none.
    fn put_next(&self, cells: &Cells, making: &mut Making) -> bool {
        // Names and buckets come before components, so that a whole checkpoint has no bucket that is not in its component.
        if let Some(block) = making.names.next().or_else(|| making.renamed.pop()) {
            // Cells that got their slots since the beginning may be of a later namespace.
            if making.namespaces < cells.table().namespaces().len() && !bites(Bug::NamespaceUnsaved) {
                making.namespaces = cells.table().namespaces().len();
                making.put((vec![NAMESPACES], bytes_of(cells.table().namespaces())));
            }
            making.put(self.names_row(cells, block));
        } else if let Some(number) = making.buckets.pop() {
            self.put_buckets(cells, number, making);
        } else if let Some(block) = making.blocks.pop() {
            making.put(self.components_row(cells, block));
        } else if let Some(key) = making.stale.next() {
            making.put((key, Vec::new()));
        } else {
            return false;
        }
        true
    }

    fn names_row(&self, cells: &Cells, block: u32) -> (Vec<u8>, Vec<u8>) {
        let slots = slots_of(block, NAMES_PER_ROW, self.cells);
        (block_key(NAMES, block), cells.table().records(slots.start, slots.end).into_owned())
    }

    fn components_row(&self, cells: &Cells, block: u32) -> (Vec<u8>, Vec<u8>) {
        // A component that a newer valve has raised is marked as changed, and comes with the next checkpoint. So does a component of
        // a cell whose name is not on disk: there, the slot has the name of an ended cell.
        let is_named = |slot| !cells.is_unsaved(slot) || bites(Bug::CountsUnnamed);
        let is_known = |slot, &(valve, _): &(u16, u64)| usize::from(valve) < self.valves && is_named(slot);
        let of_slot = |slot| cells.components(slot).filter(|of| is_known(slot, of)).collect::<Vec<(u16, u64)>>();
        let components: Vec<Vec<(u16, u64)>> = slots_of(block, BLOCK_CELLS, self.cells).map(of_slot).collect();
        (block_key(CELLS, block), bytes_of(&components))
    }
    /// Writes a row of buckets. If some of its buckets will leave memory, writes these and the rest separately.
    fn put_buckets(&self, cells: &Cells, number: u32, making: &mut Making) {
        let (slot, valve) = cells.row_place(number);
        // The row was dirty when the checkpoint began. No slot with such a row is reused before the row is written.
        debug_assert!(!cells.is_unsaved(slot), "row {number} of slot {slot}, which has a name that is not on disk");
        debug_assert!(usize::from(valve) < self.valves, "row {number} of valve {valve}, which is not on disk");
        match cells.leaving(number) {
            Some(leaving) => {
                making.put((shelf_key(number), leaving.shelf));
                making.put(buckets_at_rest(number, slot, valve, &leaving.rest));
                making.leaves.push(leaving.left);
            }
            None => {
                // In one transaction with the row: the row may have buckets that the old ones lack.
                if making.expired.remove(number) {
                    making.put((shelf_key(number), Vec::new()));
                }
                making.put(buckets_at_rest(number, slot, valve, cells.row_in_memory(number)));
            }
        }
    }
}

/// The key under which buckets of a row are that are not in memory.
pub fn shelf_key(number: u32) -> Vec<u8> {
    block_key(SHELVED, number)
}

/// The prefix of each [`shelf_key`], and of no other key.
pub fn shelf_prefix() -> [u8; 1] {
    [SHELVED]
}

/// The number of a row in a [`shelf_key`]; `None` if it is none.
pub fn shelf_number(key: &[u8]) -> Option<u32> {
    let number = key.strip_prefix(&[SHELVED])?;
    number.try_into().ok().map(u32::from_be_bytes)
}

pub(super) fn bytes_of<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).expect("rows hold only what postcard can encode")
}

pub(super) fn parse<T: DeserializeOwned>(key: &[u8], mut value: &[u8]) -> Result<T, RowError> {
    let row = parse_next(key, &mut value)?;
    parsed(key, value).map(|()| row)
}

/// The first part of a row's value; the other parts are behind it.
pub(super) fn parse_next<T: DeserializeOwned>(key: &[u8], value: &mut &[u8]) -> Result<T, RowError> {
    let (first, rest) = postcard::take_from_bytes(value).map_err(|error| malformed(key, &error))?;
    *value = rest;
    Ok(first)
}

/// Checks that nothing is left of a row's value.
pub(super) fn parsed(key: &[u8], rest: &[u8]) -> Result<(), RowError> {
    if rest.is_empty() { Ok(()) } else { Err(malformed(key, &WireError::Later(rest.len()))) }
}

pub(super) fn malformed(key: &[u8], reason: &dyn std::fmt::Display) -> RowError {
    RowError::Malformed { key: key.to_vec(), reason: reason.to_string() }
}

pub(super) fn limit_row(counter: &CounterName, limit: &NotedLimit) -> (Vec<u8>, Vec<u8>) {
    let mut key = vec![LIMIT];
    key.extend(bytes_of(counter));
    (key, bytes_of(limit))
}

/// The rows for a view's cuts, if it is cut, and for the order of counters, if it is not that of names.
pub(super) fn cuts_rows(ranges: &Ranges) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> + use<> {
    let cuts = (!ranges.began_whole()).then(|| (vec![CUTS], bytes_of(ranges.founding_cuts())));
    let order = (!ranges.order().is_by_name()).then(|| (vec![ORDER], bytes_of(ranges.order())));
    cuts.into_iter().chain(order)
}

/// All buckets of a row, wherever they are.
pub(super) fn buckets_row(cells: &Cells, number: u32) -> (Vec<u8>, Vec<u8>) {
    let (slot, valve) = cells.row_place(number);
    buckets_at_rest(number, slot, valve, &cells.row(number))
}

/// The row of a checkpoint that holds the buckets of one valve in one cell, each by its number in the view.
pub fn buckets_at_rest(number: u32, slot: u32, valve: u16, row: &Row) -> (Vec<u8>, Vec<u8>) {
    let pieces: Vec<Row> = row.pieces(ROW_BUCKETS_MAX).collect();
    (block_key(BUCKETS, number), bytes_of(&(slot, valve, pieces)))
}

pub(super) fn block_key(kind: u8, block: u32) -> Vec<u8> {
    let mut key = vec![kind];
    key.extend_from_slice(&block.to_be_bytes());
    key
}

/// The slots of block `block` of `size` cells, of `cells` in all.
pub(super) fn slots_of(block: u32, size: u32, cells: u32) -> std::ops::Range<u32> {
    block * size..((block + 1) * size).min(cells)
}

/// The flushes of all shards.
#[derive(Clone, Debug, Default)]
pub(super) struct Flushing {
    asked: u64,
    /// Flushes that are not done, in order: for each the flush of each shard that it waits for.
    waits: VecDeque<BTreeMap<ShardId, u64>>,
}

impl AggregatorCore {
    pub(super) fn run_checkpoints(&mut self, now: Time) {
        for at in 0..self.shards.len() {
            let checkpoint = &mut self.shards[at].checkpoint;
            if checkpoint.due().is_none_or(|due| due > now) {
                continue;
            }
            let is_hurried = checkpoint.hurried.take().is_some();
            let mut making = checkpoint.making.take().unwrap_or_else(|| self.begin_checkpoint(now, at));
            let is_last = self.encode_some(at, &mut making);
            if is_last || making.bytes >= self.config.checkpoint_part_bytes {
                self.give_part(at, making, is_last);
                continue;
            }
            making.part_at = now + ROWS_AGAIN;
            let checkpoint = &mut self.shards[at].checkpoint;
            // A part is as large as any while a flush waits: each part is a transaction.
            checkpoint.hurried = is_hurried.then_some(now);
            checkpoint.making = Some(making);
        }
    }

    /// The checkpoint of the shard that has the limits.
    pub(super) fn first_checkpoint(&mut self) -> &mut Checkpoint {
        &mut self.shards[0].checkpoint
    }

    /// Cursors of feeds moved, and cells of these shards were raised. The changes behind the cursors on disk of other shards are
    /// told again after a start, so their cursors are written more rarely.
    pub(super) fn cursors_moved(&mut self, now: Time, raised: impl Fn(ShardId) -> bool) {
        let interval = self.config.checkpoint_interval;
        for (at, own) in self.shards.iter_mut().enumerate() {
            let shard = ShardId(at as u16);
            if !(self.config.keeps(shard) && self.config.ranges.has(shard)) {
                continue;
            }
            let at_once = at == 0 || raised(shard);
            let interval = if at_once { interval } else { Span(interval.0.saturating_mul(CURSORS_ALONE)) };
            own.checkpoint.moved(now, interval);
        }
    }

    pub(super) fn flush(&mut self, now: Time) {
        let kept = self.shards.iter_mut().enumerate().filter(|(at, _)| self.config.keeps(ShardId(*at as u16)));
        let waits = kept.map(|(at, shard)| (ShardId(at as u16), shard.checkpoint.flush(now))).collect();
        self.flushing.asked += 1;
        self.flushing.waits.push_back(waits);
    }

    /// The number of [`Input::Flush`](crate::aggregator::Input::Flush) that are done: the state at each of them is durable.
    pub fn flushes_done(&mut self) -> u64 {
        let AggregatorCore { flushing, shards, .. } = self;
        let is_durable = |(shard, flush): (&ShardId, &u64)| shards[usize::from(shard.0)].checkpoint.has_flushed(*flush);
        while flushing.waits.front().is_some_and(|waits| waits.iter().all(is_durable)) {
            flushing.waits.pop_front();
        }
        flushing.asked - flushing.waits.len() as u64
    }

    /// Flushes that wait for a shard now wait for its parts.
    pub(super) fn hand_flushes(&mut self, shard: ShardId, parts: &BTreeMap<ShardId, u64>) {
        for waits in self.flushing.waits.iter_mut().filter(|waits| waits.contains_key(&shard)) {
            waits.extend(parts);
        }
        // Limits are written with the first, and are those of the parts.
        self.forget_flushes(shard);
    }

    /// Nothing of a shard that leaves is waited for.
    pub(super) fn forget_flushes(&mut self, shard: ShardId) {
        self.flushing.waits.iter_mut().for_each(|waits| waits.retain(|of, _| *of != shard));
    }

    fn begin_checkpoint(&mut self, now: Time, at: usize) -> Making {
        let cursors = self.cursors_in(ShardId(at as u16));
        let own = &mut self.shards[at];
        let cells = self.view.cells(ShardId(at as u16));
        // First rows without which others mean nothing.
        let checkpoint = &mut own.checkpoint;
        let mut rows = Rows::new();
        (checkpoint.due, checkpoint.begun) = (None, now);
        checkpoint.begun_count += 1;
        checkpoint.flushes.begun = checkpoint.flushes.asked;
        let names = checkpoint.cells / NAMES_PER_ROW..cells.len().div_ceil(NAMES_PER_ROW);
        let names = if checkpoint.cells < cells.len() { names } else { 0..0 };
        checkpoint.cells = cells.len();
        if !std::mem::replace(&mut checkpoint.says_cuts, true) {
            rows.extend(cuts_rows(&self.config.ranges));
        }
        if checkpoint.valves < cells.valves().len() {
            checkpoint.valves = cells.valves().len();
            rows.push((vec![VALVES], bytes_of(cells.valves())));
        }
        if checkpoint.namespaces < cells.table().namespaces().len() {
            checkpoint.namespaces = cells.table().namespaces().len();
            rows.push((vec![NAMESPACES], bytes_of(cells.table().namespaces())));
        }
        let closing = vec![
            (vec![CURSORS], bytes_of(&cursors)),
            (vec![VERSIONS], bytes_of(&own.gossip.foreign_state())),
            (vec![STREAM], bytes_of(&own.gossip.stream_state())),
        ];
        // The rows on disk of a range that is split stay as they are, until they are deleted.
        let closing = if self.config.ranges.has(ShardId(at as u16)) { closing } else { Rows::new() };
        let stale = std::mem::take(&mut checkpoint.stale);
        let blocks = checkpoint.blocks.take();
        let too_much = self.view.too_much_of_rows(ShardId(at as u16));
        if self.view.begin_leaving_totals() {
            self.graph_at = self.graph_at.or(Some(now));
        }
        let mut making = self.view.change(|cells| {
            cells[at].begin_leaving(too_much);
            let mut renamed = Numbers::default();
            cells[at].take_unsaved().iter().for_each(|slot| renamed.insert(slot / NAMES_PER_ROW));
            Making {
                names,
                renamed,
                namespaces: cells[at].table().namespaces().len(),
                blocks,
                buckets: cells[at].take_dirty_rows(),
                expired: cells[at].take_expired_shelved(),
                stale,
                closing,
                rows,
                bytes: 0,
                leaves: Vec::new(),
                whole: 0,
                part_at: now,
            }
        });
        making.whole = making.left();
        making
    }

    /// Encodes some more rows of the next part; true if there are no more in the checkpoint.
    fn encode_some(&self, at: usize, making: &mut Making) -> bool {
        let cells = self.view.cells(ShardId(at as u16));
        let checkpoint = &self.shards[at].checkpoint;
        for _ in 0..self.config.checkpoint_rows_at_once.max(1) {
            if making.bytes >= self.config.checkpoint_part_bytes {
                return false;
            }
            if !checkpoint.put_next(cells, making) {
                return true;
            }
        }
        false
    }

    /// The next part of the checkpoint that is being made of a shard. Limits go with the first one's.
    fn give_part(&mut self, at: usize, mut making: Making, is_last: bool) {
        let shard = ShardId(at as u16);
        let mut rows = std::mem::take(&mut making.rows);
        making.bytes = 0;
        // Rows of buckets lack the buckets that were dropped by then.
        rows.push((vec![TIME], bytes_of(&self.view.cells(shard).time())));
        let limits = if at == 0 { self.view.limits_mut().take_dirty() } else { Vec::new() };
        let checkpoint = &mut self.shards[at].checkpoint;
        for (counter, limit) in &limits {
            rows.push(limit_row(counter, limit));
            checkpoint.persisted.remove(counter);
        }
        checkpoint.out = Some(limits.into_iter().map(|(counter, _)| counter).collect());
        checkpoint.left = std::mem::take(&mut making.leaves);
        match is_last {
            true => rows.append(&mut making.closing),
            false => {
                let given = making.whole - making.left();
                let span = self.config.checkpoint_interval.0 as u128 * u128::from(PACE.0 * given);
                let span = span / u128::from(PACE.1 * making.whole.max(1));
                making.part_at = checkpoint.begun + Span(span as u64);
                checkpoint.making = Some(making);
            }
        }
        self.outputs.push_back(Output::Persist { shard, rows });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn making() -> Making {
        Making {
            names: 0..0,
            renamed: Numbers::default(),
            namespaces: 0,
            blocks: Numbers::default(),
            buckets: Numbers::default(),
            expired: Numbers::default(),
            stale: Stale::default(),
            closing: Rows::new(),
            rows: Rows::new(),
            bytes: 0,
            leaves: Vec::new(),
            whole: 0,
            part_at: Time(0),
        }
    }

    /// A cell of a new namespace gets a slot between two rows of names: those of new cells, or those in which slots were given away.
    fn name_a_cell_amid_a_checkpoint() {
        let cell = |namespace: &str, number: u32| CounterName::new(namespace, &number.to_be_bytes()).unwrap().total();
        for is_new in [true, false] {
            let mut cells = Cells::new(1);
            (0..2 * NAMES_PER_ROW).for_each(|number| assert_eq!(cells.slot(&cell("t", number)), Ok(number)));
            let last = cells.len() - 1;
            cells.end(last);
            let over = cells.to_free();
            cells.free(&over);
            let mut making = Making { namespaces: 1, ..making() };
            match is_new {
                true => making.names = 0..2,
                false => [0, 1].into_iter().for_each(|block| making.renamed.insert(block)),
            }
            let checkpoint = Checkpoint { cells: cells.len(), namespaces: 1, ..Checkpoint::default() };
            assert!(checkpoint.put_next(&cells, &mut making));
            assert_eq!(cells.slot(&cell("u", 7)), Ok(last));
            while checkpoint.put_next(&cells, &mut making) {}
            let namespaces = making.rows.iter().find(|(key, _)| *key == [NAMESPACES]);
            let namespaces = namespaces.map_or(vec!["t".to_owned()], |(key, value)| parse(key, value).unwrap());
            let mut loaded = Cells::load(tidemark_types::table::CellTable::with_namespaces(2, namespaces), &[]);
            let names = making.rows.iter().filter(|(key, _)| key[0] == NAMES);
            names.for_each(|(_, value)| loaded.load_names(value).unwrap());
            assert_eq!(loaded.name(last), cell("u", 7));
        }
    }

    #[test]
    fn a_new_namespace_is_on_disk_before_the_name_of_its_cell() {
        name_a_cell_amid_a_checkpoint();
    }

    #[cfg(feature = "teeth")]
    #[test]
    fn a_name_that_is_written_before_its_namespace_is_noticed() {
        assert!(tidemark_types::teeth::is_shown_by(Bug::NamespaceUnsaved, name_a_cell_amid_a_checkpoint));
    }

    /// Where a range is split while its checkpoint is being made, rows that were not given out are written by the one of limits.
    #[test]
    fn what_a_checkpoint_had_yet_to_say_is_said_by_that_of_limits() {
        let order = CounterOrder::by_name();
        let mut begun = Checkpoint { says_cuts: true, ..Checkpoint::default() };
        assert!(begun.clone().of_limits_only().says_cuts);
        let rows = vec![(vec![CUTS], vec![1])];
        begun.making = Some(Making { stale: Stale::of_order(), rows, bytes: 2, ..making() });
        let mut next = begun.of_limits_only();
        assert!(!next.says_cuts && next.stale.next() == Some(vec![ORDER]) && next.stale.is_empty());
        next.reorder(&order);
        next.drop_rows(Time(1), Stale(BTreeMap::from([(CURSORS, 1)])));
        let rows: Vec<Vec<u8>> = std::iter::from_fn(|| next.stale.next()).collect();
        assert_eq!(rows, [vec![CURSORS], vec![ORDER]], "neither is forgotten for the other");
        assert!(next.due().is_some());
    }
}
