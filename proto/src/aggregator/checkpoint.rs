//! The view on disk: rows of packed cells, cursors of feeds, versions of origins, limits of readings.
//!
//! A checkpoint is given out in parts, one transaction each, while the view goes on. Cursors and versions are those of its beginning and
//! come with its last part: what other rows know beyond them is told again and changes nothing. Parts are spread over the interval between
//! two checkpoints, so that what a disk does for millions of rows never takes the processor from what is read meanwhile.

use crate::aggregator::feed::Feed;
use crate::aggregator::{AggregatorConfig, AggregatorCore, Output};
use crate::gossip::{Gossip, StreamState};
use crate::ids::{AggregatorId, CounterName, GroupId, LogIndex, ValveId};
use crate::limits::{ROW_BUCKETS_MAX, VALVES_MAX};
use crate::msg::Version;
use crate::numbers::Numbers;
use crate::series::Row;
use crate::table::CellTable;
use crate::time::{Span, Time};
use crate::view::{NotedLimit, View};
use crate::wire::WireError;
use serde::{Serialize, de::DeserializeOwned};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Key and value, as persisted.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Cells whose components are one row: a changed cell is written with its neighbours.
pub(super) const BLOCK_CELLS: u32 = 8;
/// Cells whose names are one row: names never change.
pub(super) const NAMES_PER_ROW: u32 = 256;
/// Of the interval between two checkpoints, the part in which all of one is given out if the disk keeps up: four fifths.
const PACE: (u64, u64) = (4, 5);
pub(super) const NAMESPACES: u8 = 0;
pub(super) const VALVES: u8 = 1;
pub(super) const CURSORS: u8 = 2;
const VERSIONS: u8 = 3;
const LIMIT: u8 = 4;
pub(super) const NAMES: u8 = 5;
pub(super) const CELLS: u8 = 6;
const STREAM: u8 = 7;
/// Rows of buckets, each by its number: of which slot and valve, and its pieces.
pub(super) const BUCKETS: u8 = 8;
/// The latest time by which buckets were dropped.
const TIME: u8 = 9;

/// Rows that are not a view's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    #[error("row {key:02x?}: {reason}")]
    Malformed { key: Vec<u8>, reason: String },
    #[error("row {key:02x?} is of no known kind")]
    Unknown { key: Vec<u8> },
}

/// What has changed since the last checkpoint, and what is on its way.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    blocks: Numbers,
    due: Option<Time>,
    /// The next part is due then, whatever the pace.
    hurried: Option<Time>,
    making: Option<Making>,
    /// A part is out; counters whose limits are in it.
    out: Option<BTreeSet<CounterName>>,
    /// Valves, names and namespaces already persisted, or on their way.
    valves: usize,
    cells: u32,
    namespaces: usize,
    /// Counters whose limit on disk is the one in memory.
    persisted: BTreeSet<CounterName>,
    begun: Time,
    flushes: Flushes,
}

/// Requests that everything known by then be durable, counted.
#[derive(Clone, Copy, Debug, Default)]
struct Flushes {
    asked: u64,
    /// The checkpoint that was begun last has all that these ask for.
    begun: u64,
    done: u64,
}

/// What is left to be given out of a checkpoint.
#[derive(Clone, Debug)]
struct Making {
    /// Rows without which others mean nothing.
    head: Rows,
    names: Range<u32>,
    blocks: Numbers,
    buckets: Numbers,
    /// Rows that say how far all of it has come.
    closing: Rows,
    /// How much there was to give out at its beginning, as [`Making::left`] says.
    whole: u64,
    /// When the next part is due.
    part_at: Time,
}

impl Making {
    /// What is left to be given out, in rows of components.
    fn left(&self) -> u64 {
        let names = u64::from(self.names.end - self.names.start) * u64::from(NAMES_PER_ROW / BLOCK_CELLS);
        names + (self.blocks.len() + self.buckets.len()) as u64
    }
}

impl Checkpoint {
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

    /// Everything that is known now is to be durable soon.
    pub fn flush(&mut self, now: Time) {
        self.flushes.asked += 1;
        self.hurry(now);
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

    pub fn is_persisted(&self, counter: &CounterName) -> bool {
        self.persisted.contains(counter)
    }

    /// A part is durable.
    pub fn on_persisted(&mut self, now: Time) {
        self.persisted.extend(self.out.take().unwrap_or_default());
        if self.making.is_none() {
            self.flushes.done = self.flushes.begun;
        }
        if self.flushes.done < self.flushes.asked {
            self.hurry(now);
        }
    }
}

pub(super) fn bytes_of<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).expect("rows hold only what postcard can encode")
}

pub(super) fn parse<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, RowError> {
    match postcard::take_from_bytes(value).map_err(|error| malformed(key, &error))? {
        (row, []) => Ok(row),
        (_, rest) => Err(malformed(key, &WireError::Later(rest.len()))),
    }
}

pub(super) fn malformed(key: &[u8], reason: &dyn std::fmt::Display) -> RowError {
    RowError::Malformed { key: key.to_vec(), reason: reason.to_string() }
}

pub(super) fn limit_row(counter: &CounterName, limit: &NotedLimit) -> (Vec<u8>, Vec<u8>) {
    let mut key = vec![LIMIT];
    key.extend(bytes_of(counter));
    (key, bytes_of(limit))
}

pub(super) fn buckets_row(view: &View, number: u32) -> (Vec<u8>, Vec<u8>) {
    let (slot, valve, row) = view.row(number);
    buckets_at_rest(number, slot, valve, row)
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

impl AggregatorCore {
    pub(super) fn run_checkpoint(&mut self, now: Time) {
        if self.checkpoint.due().is_none_or(|due| due > now) {
            return;
        }
        self.checkpoint.hurried = None;
        let making = self.checkpoint.making.take().unwrap_or_else(|| self.begin_checkpoint(now));
        self.give_part(making);
    }

    /// How many [`Input::Flush`](crate::aggregator::Input::Flush) are done: what was known at each of them is durable.
    pub fn flushes_done(&self) -> u64 {
        self.checkpoint.flushes.done
    }

    fn begin_checkpoint(&mut self, now: Time) -> Making {
        (self.checkpoint.due, self.checkpoint.begun) = (None, now);
        self.checkpoint.flushes.begun = self.checkpoint.flushes.asked;
        let (cells, mut head) = (self.view.cells(), Rows::new());
        let names = self.checkpoint.cells / NAMES_PER_ROW..cells.div_ceil(NAMES_PER_ROW);
        let names = if self.checkpoint.cells < cells { names } else { 0..0 };
        self.checkpoint.cells = cells;
        if self.checkpoint.valves < self.view.valves().len() {
            self.checkpoint.valves = self.view.valves().len();
            head.push((vec![VALVES], bytes_of(self.view.valves())));
        }
        if self.checkpoint.namespaces < self.view.table().namespaces().len() {
            self.checkpoint.namespaces = self.view.table().namespaces().len();
            head.push((vec![NAMESPACES], bytes_of(self.view.table().namespaces())));
        }
        let cursors: Vec<(GroupId, LogIndex)> = self.feeds.iter().map(|(&group, feed)| (group, feed.cursor)).collect();
        let closing = vec![
            (vec![CURSORS], bytes_of(&cursors)),
            (vec![VERSIONS], bytes_of(&self.gossip.foreign_state())),
            (vec![STREAM], bytes_of(&self.gossip.stream_state())),
        ];
        let (blocks, buckets) = (self.checkpoint.blocks.take(), self.view.take_dirty_rows());
        let mut making = Making { head, names, blocks, buckets, closing, whole: 0, part_at: now };
        making.whole = making.left();
        making
    }

    /// The next part of the checkpoint that is being made.
    fn give_part(&mut self, mut making: Making) {
        let mut rows = std::mem::take(&mut making.head);
        // Rows of buckets lack what was dropped by then.
        rows.push((vec![TIME], bytes_of(&self.view.time())));
        let limits = self.view.limits_mut().take_dirty();
        for (counter, limit) in &limits {
            rows.push(limit_row(counter, limit));
            self.checkpoint.persisted.remove(counter);
        }
        self.checkpoint.out = Some(limits.into_iter().map(|(counter, _)| counter).collect());
        let mut size = 0;
        while size < self.config.checkpoint_part_bytes {
            let Some(row) = self.next_row(&mut making) else { break };
            size += row.0.len() + row.1.len();
            rows.push(row);
        }
        match size < self.config.checkpoint_part_bytes {
            true => rows.append(&mut making.closing),
            false => {
                let given = making.whole - making.left();
                let span = self.config.checkpoint_interval.0 as u128 * u128::from(PACE.0 * given);
                let span = span / u128::from(PACE.1 * making.whole.max(1));
                making.part_at = self.checkpoint.begun + Span(span as u64);
                self.checkpoint.making = Some(making);
            }
        }
        self.outputs.push_back(Output::Persist(rows));
    }

    /// Of what was there when the checkpoint began, as it is now.
    fn next_row(&self, making: &mut Making) -> Option<(Vec<u8>, Vec<u8>)> {
        let (view, cells) = (&self.view, self.checkpoint.cells);
        if let Some(block) = making.names.next() {
            let slots = slots_of(block, NAMES_PER_ROW, cells);
            return Some((block_key(NAMES, block), view.table().records(slots.start, slots.end).to_vec()));
        }
        // Before components, so that a whole checkpoint has no bucket that is not in its component.
        if let Some(number) = making.buckets.pop() {
            return Some(buckets_row(view, number));
        }
        let block = making.blocks.pop()?;
        // What a valve that is new since then has raised is touched, and comes with the next checkpoint.
        let is_known = |&(valve, _): &(u16, u64)| usize::from(valve) < self.checkpoint.valves;
        let of_slot = |slot| view.components(slot).filter(is_known).collect::<Vec<(u16, u64)>>();
        let components: Vec<Vec<(u16, u64)>> = slots_of(block, BLOCK_CELLS, cells).map(of_slot).collect();
        Some((block_key(CELLS, block), bytes_of(&components)))
    }

    /// An aggregator from the rows of its checkpoints, in any order. Errors: [`RowError`]; never panics.
    pub fn recover(
        config: AggregatorConfig,
        rows: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<AggregatorCore, RowError> {
        let sorted: BTreeMap<Vec<u8>, Vec<u8>> = rows.into_iter().collect();
        let mut recovery = Recovery::new(config);
        sorted.iter().try_for_each(|(key, value)| recovery.take(key, value))?;
        recovery.finish()
    }
}

/// Reads an aggregator back from the rows of its checkpoints, in the order of their keys.
pub struct Recovery {
    config: AggregatorConfig,
    head: BTreeMap<Vec<u8>, Vec<u8>>,
    loaded: Option<Loaded>,
}

impl Recovery {
    pub fn new(config: AggregatorConfig) -> Recovery {
        Recovery { config, head: BTreeMap::new(), loaded: None }
    }

    /// Takes the next row. Errors: [`RowError`]; never panics.
    pub fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), RowError> {
        if self.loaded.is_none() && matches!(key, [NAMESPACES | VALVES]) {
            self.head.insert(key.to_vec(), value.to_vec());
            return Ok(());
        }
        if self.loaded.is_none() {
            self.loaded = Some(Loaded::new(&self.config, &mut self.head)?);
        }
        self.loaded.iter_mut().try_for_each(|loaded| loaded.take(key, value))
    }

    /// The aggregator; one with nothing on disk if there was no row.
    pub fn finish(mut self) -> Result<AggregatorCore, RowError> {
        let loaded = match self.loaded {
            None if self.head.is_empty() => return Ok(AggregatorCore::new(self.config)),
            None => Loaded::new(&self.config, &mut self.head)?,
            Some(loaded) => loaded,
        };
        loaded.build(self.config)
    }
}

/// A view being read back.
pub(super) struct Loaded {
    pub(super) view: View,
    pub(super) cursors: Vec<(GroupId, LogIndex)>,
    versions: Vec<(AggregatorId, Version)>,
    stream: Option<StreamState>,
    limits: BTreeSet<CounterName>,
}

impl Loaded {
    pub(super) fn new(config: &AggregatorConfig, rows: &mut BTreeMap<Vec<u8>, Vec<u8>>) -> Result<Loaded, RowError> {
        let namespaces: Vec<String> = match rows.remove(&vec![NAMESPACES]) {
            Some(value) => parse(&[NAMESPACES], &value)?,
            None => Vec::new(),
        };
        let valves: Vec<ValveId> = match rows.remove(&vec![VALVES]) {
            Some(value) => parse(&[VALVES], &value)?,
            None => Vec::new(),
        };
        if valves.iter().collect::<BTreeSet<_>>().len() < valves.len() || valves.len() > VALVES_MAX {
            return Err(malformed(&[VALVES], &"a valve twice, or more than allowed"));
        }
        let view = View::load(config.own, CellTable::with_namespaces(config.seed, namespaces), &valves);
        Ok(Loaded { view, cursors: Vec::new(), versions: Vec::new(), stream: None, limits: BTreeSet::new() })
    }

    /// Takes the rows in the order of their keys: names before components.
    pub(super) fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), RowError> {
        match key {
            [CURSORS] => self.cursors = parse(key, value)?,
            [STREAM] => {
                let stream: StreamState = parse(key, value)?;
                if !stream.has_room() {
                    return Err(malformed(key, &"no versions are left above those that were given out"));
                }
                self.stream = Some(stream);
            }
            [VERSIONS] => self.versions = parse(key, value)?,
            [TIME] => self.view.on_time(parse(key, value)?),
            [LIMIT, counter @ ..] => {
                let (counter, limit): (CounterName, NotedLimit) = (parse(key, counter)?, parse(key, value)?);
                self.view.limits_mut().restore(counter.clone(), limit);
                self.limits.insert(counter);
            }
            [NAMES, ..] => self.view.load_names(value).map_err(|error| malformed(key, &error))?,
            [CELLS, block @ ..] => self.take_cells(key, block, value)?,
            [BUCKETS, number @ ..] => self.take_buckets(key, number, value)?,
            _ => return Err(RowError::Unknown { key: key.to_vec() }),
        }
        Ok(())
    }

    fn take_cells(&mut self, key: &[u8], block: &[u8], value: &[u8]) -> Result<(), RowError> {
        let block = block.try_into().map(u32::from_be_bytes);
        let block = block.map_err(|_| malformed(key, &"a block's number has four bytes"))?;
        let cells: Vec<Vec<(u16, u64)>> = parse(key, value)?;
        for (slot, components) in (u64::from(block) * u64::from(BLOCK_CELLS)..).zip(cells) {
            if slot >= u64::from(self.view.cells()) {
                return Err(malformed(key, &"components of a cell without a name"));
            }
            for (valve, value) in components {
                if usize::from(valve) >= self.view.valves().len() {
                    return Err(malformed(key, &"component of an unknown valve"));
                }
                self.view.merge(slot as u32, valve, value);
            }
        }
        Ok(())
    }

    fn take_buckets(&mut self, key: &[u8], number: &[u8], value: &[u8]) -> Result<(), RowError> {
        let number = number.try_into().map(u32::from_be_bytes);
        let number = number.map_err(|_| malformed(key, &"a row's number has four bytes"))?;
        let (slot, valve, pieces): (u32, u16, Vec<Row>) = parse(key, value)?;
        if slot >= self.view.cells() || usize::from(valve) >= self.view.valves().len() {
            return Err(malformed(key, &"buckets of an unknown cell or valve"));
        }
        let row = Row::of_pieces(pieces);
        let loaded = self.view.load_row(number, slot, valve, row);
        loaded.then_some(()).ok_or(malformed(key, &"rows before it are missing, or it is there twice"))
    }

    /// There are no more rows: names are found from here on.
    pub(super) fn end(&mut self) -> Result<(), RowError> {
        self.view.names_loaded().map_err(|error| malformed(&[NAMES], &error))
    }

    fn build(mut self, config: AggregatorConfig) -> Result<AggregatorCore, RowError> {
        self.end()?;
        let mut gossip = Gossip::new(config.own, config.epoch, config.gossip.clone(), config.seed);
        match self.stream {
            Some(stream) => gossip.resume(stream, self.versions, &self.view),
            None => gossip.begin_with_walk(),
        }
        let feeds = self.cursors.into_iter().map(|(group, cursor)| (group, Feed::at(cursor))).collect();
        let mut core = AggregatorCore::with_state(config, self.view, gossip, feeds);
        core.checkpoint.valves = core.view.valves().len();
        core.checkpoint.cells = core.view.cells();
        core.checkpoint.namespaces = core.view.table().namespaces().len();
        core.checkpoint.persisted = self.limits;
        Ok(core)
    }
}
