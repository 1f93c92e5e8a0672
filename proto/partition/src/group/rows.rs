//! Checkpoints: a group's state as rows of an ordered store, many cells to a row, and back.
//!
//! Keys: a tag, the number of a block (big endian), a side. The row `META` names the complete checkpoint and its log index; it
//! comes last, but for deletions. Other rows name the checkpoint that wrote them: of a block's two sides the later one not above
//! `META`'s number counts. So rows may reach the disk in any number of steps before `META` does; rows of an unfinished checkpoint
//! are not seen. An empty value deletes the row. Old buckets of a row may have a row of their own ([`shelved`](super::shelved)),
//! and the row of the other buckets names the side of it that counts. Unreferenced rows are deleted behind `META`.

mod load;
mod read;

pub use load::Loading;
pub use read::{RowReader, Stored};

use crate::group::blocks::{Blocks, ChangedBlock};
use crate::group::cells::COMPONENTS_PER_BLOCK;
use crate::group::generations::{Present, SavedGenerations};
use crate::group::guard::Guard;
use crate::group::lease::Tenure;
use crate::group::queue::{POSITIONS_PER_BLOCK, Queued};
use crate::group::series::{SavedRow, Space};
use crate::group::shelved::Place;
use crate::group::stream::STREAMS_PER_BLOCK;
use crate::group::{Group, GroupConfig};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_types::ids::{CounterName, GroupId, LogIndex};
use tidemark_types::limits::NAME_BYTES_MAX;
use tidemark_types::series::UnixTime;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::IdTerms;

/// A key and its value; an empty value deletes.
pub type Row = (Vec<u8>, Vec<u8>);

/// Version of the rows' format.
const FORMAT: u8 = 12;
/// Earlier formats, and the parts that they lack at the end of their closing rows. The first is the number up to which resets
/// were heard of; then the number of compactions; then ids of increments (and places of old buckets in rows); then series; then
/// counters that go down.
const BEFORE: [(u8, &[u8]); 7] =
    [(11, &[0; 1]), (10, &[0; 2]), (9, &[0; 6]), (8, &[0; 6]), (7, &[0; 6]), (6, &[0; 8]), (5, &[0; 9])];
/// From this format on a closing row does not list the counters that began again.
const GENERATIONS_FROM_NAMES: u8 = 9;
const META: u8 = 0;
/// Rows of ids share the tag of the closing row, which is shorter and comes first: a start does not read rows behind old buckets.
const IDS: u8 = META;
const NAMES: u8 = 1;
const COMPONENTS: u8 = 2;
const STREAMS: u8 = 3;
const QUEUE: u8 = 4;
/// Rows of buckets: each that of one component, in pieces that fit an encoding.
const BUCKETS: u8 = 5;
/// Old buckets of a component that left memory. They are read by their keys and not at a start: see [`is_shelved`].
const SHELF: u8 = 6;
/// Bytes that are reckoned for old buckets that are read while a part is made: some 64 rows a part of 4 MiB.
const SHELF_READ_BYTES: usize = 64 << 10;
const NAMES_PER_BLOCK: u32 = 256;
/// Most bytes of a block of names.
const NAMES_BYTES_MAX: usize = NAMES_PER_BLOCK as usize * NAME_BYTES_MAX;

/// Why rows are not a checkpoint of this group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error("checkpoint of format {0}: this program reads {FORMAT}")]
    Format(u8),
    #[error("checkpoint of group {found}: this is group {expected}")]
    Foreign { found: GroupId, expected: GroupId },
    #[error("checkpoint rows are not in the order of their keys")]
    Order,
    #[error("malformed checkpoint row {key:02x?}: {what}")]
    Malformed { key: Vec<u8>, what: &'static str },
    #[error("incomplete checkpoint: {have} {what} of {expected}")]
    Incomplete { what: &'static str, have: u64, expected: u64 },
}

/// The saved parts of a group, and the changes since.
#[derive(Clone, Debug, Default)]
pub(super) struct Saved {
    /// Number of the last checkpoint made.
    number: u64,
    names: Blocks,
    queue_dirty: BTreeSet<(u32, u64)>,
    /// The side of every saved block of a queue.
    queue_sides: BTreeMap<(u32, u64), u8>,
    /// Blocks of queues that the last checkpoint no longer needs, and the side that says so; the next one deletes them, that side
    /// last.
    queue_dead: Vec<((u32, u64), u8)>,
    /// The checkpoint that is being made.
    making: Option<Making>,
    /// Blocks and rows that may be on disk, if there were more of them before a compaction. The next checkpoint deletes those
    /// that do not exist any more.
    extent: Extent,
    /// Such blocks and rows that were found on disk at the start: kind and number.
    left: Vec<(u8, u32)>,
    /// Keys that go once the checkpoint that is being made is complete.
    gone: Vec<Vec<u8>>,
}

/// The numbers of blocks of names, of blocks of components, and of components. Each component may have a row of buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    names: u32,
    components: u32,
    rows: u32,
}

impl Extent {
    pub fn of(group: &Group) -> Extent {
        Extent {
            names: group.cells.table.len().div_ceil(NAMES_PER_BLOCK),
            components: group.cells.len().div_ceil(COMPONENTS_PER_BLOCK),
            // A component without buckets keeps its empty row: if a row on disk were deleted in part, an old side might be
            // believed.
            rows: group.cells.len(),
        }
    }

    /// The number of blocks or rows of a kind.
    fn of_kind(self, tag: u8) -> u32 {
        match tag {
            NAMES => self.names,
            COMPONENTS => self.components,
            _ => self.rows,
        }
    }

    /// As many as either has.
    fn max(self, other: Extent) -> Extent {
        Extent {
            names: self.names.max(other.names),
            components: self.components.max(other.components),
            rows: self.rows.max(other.rows),
        }
    }

    /// The keys, on both sides, of the blocks in this extent and not in the other.
    fn keys_beyond(self, other: Extent) -> impl Iterator<Item = Vec<u8>> {
        let beyond = move |tag| (other.of_kind(tag)..self.of_kind(tag)).flat_map(move |block| both_sides(tag, block));
        [NAMES, COMPONENTS, BUCKETS].into_iter().flat_map(beyond)
    }
}

/// The rows that a checkpoint has at its beginning already.
#[derive(Clone, Debug)]
struct Making {
    /// Rows that were not given out yet.
    rows: std::vec::IntoIter<Row>,
    meta: Row,
}

impl Saved {
    pub fn name_added(&mut self, slot: u32) {
        self.names.set(slot / NAMES_PER_BLOCK);
    }

    pub fn queue_changed(&mut self, guard: u32, pos: u64) {
        self.queue_dirty.insert((guard, pos / POSITIONS_PER_BLOCK));
    }
}

/// The row that completes a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
struct Meta {
    group: GroupId,
    lanes: u8,
    number: u64,
    applied: LogIndex,
    table_namespaces: Vec<String>,
    slots: u32,
    components: u32,
    /// Numbers of streams, also of forgotten ones.
    streams: u32,
    guards: Vec<Guard>,
    /// For each guard's queue: first position, next position.
    queues: Vec<(u64, u64)>,
    boots: Vec<u64>,
    starts: u64,
    confirmed: bool,
    ever_confirmed: bool,
    fenced_out: bool,
    namespaces: BTreeSet<String>,
    spread: BTreeSet<CounterName>,
    /// For guards that hold, or held, rights under a lease.
    tenures: Vec<(u32, Tenure)>,
    /// Cells that were named before their generation began; before format 9 the present cell of every counter that began again.
    generations: Vec<(CounterName, Present)>,
    age: u32,
    /// Namespaces with counters that may go down.
    updown: BTreeSet<String>,
    series: Vec<Space>,
    /// The latest stamp of the log.
    clock: UnixTime,
    /// Rows of ids, free ones included; the number of the first block; the terms of remembering, if the log has them; and
    /// milestones among their places.
    id_slots: u32,
    first_ids: u32,
    id_terms: Option<IdTerms>,
    ids_won: Vec<(u32, u64, u64)>,
    /// The number of compactions, which give slots new numbers.
    compactions: u32,
    /// All resets up to this number were heard of.
    heard: u64,
}

/// The closing row with the format it was written in.
#[derive(Debug)]
struct Closing {
    format: u8,
    meta: Meta,
}

impl Closing {
    fn take_generations(&mut self) -> SavedGenerations {
        let listed = std::mem::take(&mut self.meta.generations);
        if self.format < GENERATIONS_FROM_NAMES {
            SavedGenerations::All(listed)
        } else {
            SavedGenerations::Ahead(listed)
        }
    }
}

/// A row of a queue: items from `first_pos` on. Without any, nothing in the block awaits a place any more; so it is without a row.
#[derive(Serialize, Deserialize)]
struct QueueRow {
    epoch: u32,
    first_pos: u64,
    items: Vec<Queued>,
}

impl Group {
    /// The rows that bring the store from the last checkpoint to the present state, in order; the last one completes it. Every
    /// call counts as persisted in the end: if that fails, the store is not used any further in this process.
    pub fn checkpoint(&mut self) -> Vec<Row> {
        self.begin_checkpoint();
        self.next_rows(usize::MAX)
    }

    /// Begins a checkpoint of the present state. [`Group::next_rows`] gives out its rows while counting continues. Panics while
    /// another is being made.
    pub fn begin_checkpoint(&mut self) {
        assert!(self.saved.making.is_none(), "one checkpoint at a time");
        self.saved.number += 1;
        let extent = std::mem::take(&mut self.saved.extent);
        let now = Extent::of(self);
        let left = std::mem::take(&mut self.saved.left).into_iter().filter(|&(tag, block)| block >= now.of_kind(tag));
        let left = left.flat_map(|(tag, block)| both_sides(tag, block));
        self.saved.gone.extend(extent.keys_beyond(now).chain(left));
        let mut rows = Vec::new();
        self.save_queues(&mut rows);
        for of in self.saved.names.take(self.cells.table.len().div_ceil(NAMES_PER_BLOCK)) {
            rows.push(self.block_row(NAMES, of, |block, value| {
                let from = block * NAMES_PER_BLOCK;
                let to = self.cells.table.len().min(from + NAMES_PER_BLOCK);
                value.extend_from_slice(&self.cells.table.records(from, to));
            }));
        }
        for of in self.cells.dirty.take(self.cells.len().div_ceil(COMPONENTS_PER_BLOCK)) {
            rows.push(self.block_row(COMPONENTS, of, |block, value| self.put_components(block, value)));
        }
        for of in self.streams.dirty.take(self.streams.numbers().div_ceil(STREAMS_PER_BLOCK)) {
            rows.push(self.block_row(STREAMS, of, |block, value| put(self.streams.block(block), value)));
        }
        self.save_ids(&mut rows);
        self.series.begin_saving();
        self.saved.making = Some(Making { rows: rows.into_iter(), meta: (vec![META], self.meta()) });
    }

    /// About `bytes` bytes of the rows of the checkpoint that has begun, in order; the last one completes it, and then
    /// [`Group::is_making_checkpoint`] is false.
    pub fn next_rows(&mut self, bytes: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut size = 0;
        while size < bytes
            && let Some(row) = self.next_row()
        {
            size += row.0.len() + row.1.len() + if is_shelved(&row.0) { SHELF_READ_BYTES } else { 0 };
            rows.push(row);
        }
        if !self.is_making_checkpoint() {
            let gone = std::mem::take(&mut self.saved.gone);
            gone.iter().for_each(|key| self.begin_sides_anew(key));
            rows.extend(gone.into_iter().chain(self.series.take_gone()).map(|key| (key, Vec::new())));
        }
        rows
    }

    /// Nothing is on disk under either key of a block. The next checkpoint that writes the block takes the side that a process
    /// would take after reading the disk. So of two attempts at one checkpoint the second overwrites the rows of the first.
    fn begin_sides_anew(&mut self, key: &[u8]) {
        let block = block_of(key);
        match key[0] {
            NAMES => self.saved.names.loaded(block, 0),
            COMPONENTS => self.cells.dirty.loaded(block, 0),
            BUCKETS => self.series.loaded_side(block, 0),
            _ => {}
        }
    }

    /// Puts the rest of a checkpoint together that is being made: it is of the state as it was.
    pub(super) fn finish_rows(&mut self) {
        if !self.is_making_checkpoint() {
            return;
        }
        let mut rows: Vec<Row> = std::iter::from_fn(|| self.next_row()).collect();
        self.saved.gone.extend(self.series.take_gone());
        let meta = rows.pop().expect("a closing row completes it");
        self.saved.making = Some(Making { rows: rows.into_iter(), meta });
    }

    /// The next checkpoint writes all names, components and rows. `before` has the former numbers of blocks.
    pub(super) fn write_all(&mut self, before: Extent) {
        let now = Extent::of(self);
        self.saved.extent = self.saved.extent.max(before);
        (0..now.names).for_each(|block| self.saved.names.set(block));
        (0..now.components).for_each(|block| self.cells.dirty.set(block));
    }

    /// Whether a checkpoint has begun and some of its rows are not given out yet.
    pub fn is_making_checkpoint(&self) -> bool {
        self.saved.making.is_some()
    }

    fn next_row(&mut self) -> Option<Row> {
        if let Some(row) = self.saved.making.as_mut()?.rows.next() {
            return Some(row);
        }
        if let Some(row) = self.series.next_shelved(&self.cells) {
            return Some(row);
        }
        match self.series.next_saved(&self.cells) {
            Some(SavedRow { number, side, pieces, shelved }) => Some(self.row(BUCKETS, number, side, |value| {
                put(&pieces, value);
                if let Some(place) = shelved {
                    put_place(place, value);
                }
            })),
            None => self.saved.making.take().map(|making| making.meta),
        }
    }

    /// The row of a block. An empty row, which deletes the content under its key, if the block does not exist.
    fn block_row(&self, tag: u8, block: ChangedBlock, fill: impl FnOnce(u32, &mut Vec<u8>)) -> Row {
        let ChangedBlock { number, side, is_there } = block;
        match is_there {
            true => self.row(tag, number, side, |value| fill(number, value)),
            false => (key_of(tag, number, side), Vec::new()),
        }
    }

    fn row(&self, tag: u8, block: u32, side: u8, fill: impl FnOnce(&mut Vec<u8>)) -> Row {
        let mut value = Vec::new();
        put_varint(self.saved.number, &mut value);
        fill(&mut value);
        (key_of(tag, block, side), value)
    }

    fn put_components(&self, block: u32, value: &mut Vec<u8>) {
        let from = block * COMPONENTS_PER_BLOCK;
        for number in from..self.cells.len().min(from + COMPONENTS_PER_BLOCK) {
            let component = self.cells.component(number);
            put_varint(component.slot.into(), value);
            value.push(component.lane);
            put_varint(component.value, value);
        }
    }

    fn save_queues(&mut self, rows: &mut Vec<Row>) {
        for ((guard, block), side) in std::mem::take(&mut self.saved.queue_dead) {
            rows.extend([1 - side, side].map(|side| (queue_key(guard, block, side), Vec::new())));
        }
        for (guard, block) in std::mem::take(&mut self.saved.queue_dirty) {
            let saved = self.saved.queue_sides.get(&(guard, block)).copied();
            let Some(known) = self.guards.get(guard as usize) else { continue };
            let epoch = known.epoch;
            let row = known.queue.block_row(block);
            // Before the first checkpoint is complete, there may be parts of an earlier attempt, which were never read.
            if row.is_none() && saved.is_none() && self.saved.number > 1 {
                continue;
            }
            let side = saved.map_or(0, |side| 1 - side);
            self.saved.queue_sides.insert((guard, block), side);
            let (first_pos, items) = row.unwrap_or_default();
            let mut value = Vec::new();
            put_varint(self.saved.number, &mut value);
            put(&QueueRow { epoch, first_pos, items }, &mut value);
            rows.push((queue_key(guard, block, side), value));
        }
        let guards = &self.guards;
        let dead = |&(guard, block): &(u32, u64), _: &mut u8| {
            guards.get(guard as usize).is_none_or(|guard| !guard.queue.has_block(block))
        };
        self.saved.queue_dead = self.saved.queue_sides.extract_if(.., dead).collect();
    }

    fn save_ids(&mut self, rows: &mut Vec<Row>) {
        if bites(Bug::IdsNotSaved) {
            return;
        }
        let by_slot = self.ids.by_slot();
        for of in self.ids.dirty.take(self.ids.slots()) {
            rows.push(self.block_row(IDS, of, |slot, value| self.ids.put_block(by_slot.get(&slot).copied(), value)));
        }
    }

    fn meta(&self) -> Vec<u8> {
        let with_ids = !bites(Bug::IdsNotSaved);
        let meta = Meta {
            group: self.config.id,
            lanes: self.lanes(),
            number: self.saved.number,
            applied: self.applied,
            table_namespaces: self.cells.table.namespaces().to_vec(),
            slots: self.cells.table.len(),
            components: self.cells.len(),
            streams: self.streams.numbers(),
            guards: self.guards.iter().map(Guard::without_queue).collect(),
            queues: self.guards.iter().map(|guard| (guard.queue.head(), guard.queue.next_pos())).collect(),
            boots: self.boots.clone(),
            starts: self.starts,
            confirmed: self.confirmed,
            ever_confirmed: self.ever_confirmed,
            fenced_out: self.fenced_out,
            namespaces: self.namespaces.clone(),
            spread: self.spread.clone(),
            tenures: self.tenures(),
            generations: self.generations.save_ahead(),
            age: self.age,
            updown: self.updown.clone(),
            series: self.series.spaces().to_vec(),
            clock: self.series.clock(),
            id_slots: if with_ids { self.ids.slots() } else { 0 },
            first_ids: self.ids.first(),
            id_terms: self.ids.said_terms(),
            ids_won: if with_ids { self.ids.won() } else { Vec::new() },
            compactions: self.compactions,
            heard: self.generations.heard(),
        };
        let mut value = vec![FORMAT];
        put(&meta, &mut value);
        value
    }

    fn tenures(&self) -> Vec<(u32, Tenure)> {
        let tenures = (0..).zip(&self.guards).filter(|(_, guard)| !guard.tenure.is_plain());
        tenures.map(|(number, guard)| (number, guard.tenure.clone())).collect()
    }

    /// The group of a checkpoint's rows, given in the order of their keys; `None` if no checkpoint was ever completed. The feed
    /// reaches back to the checkpoint. Errors: [`LoadError`]; never panics.
    pub fn load(config: GroupConfig, rows: impl IntoIterator<Item = Row>) -> Result<Option<Group>, LoadError> {
        let mut reader = RowReader::default();
        let mut loading = Loading::new(config);
        let mut counts = Vec::new();
        for (key, value) in rows {
            reader.row(&key, &value, &mut counts)?;
            counts.drain(..).try_for_each(|stored| loading.take(stored))?;
        }
        reader.end(&mut counts)?;
        counts.drain(..).try_for_each(|stored| loading.take(stored))?;
        loading.finish()
    }
}

fn both_sides(tag: u8, block: u32) -> [Vec<u8>; 2] {
    [0, 1].map(|side| key_of(tag, block, side))
}

/// Whether a row has old buckets, which a start does not need. No other rows come behind the first of them.
pub fn is_shelved(key: &[u8]) -> bool {
    key.first() == Some(&SHELF)
}

pub(super) fn shelf_key(number: u32, side: u8) -> Vec<u8> {
    key_of(SHELF, number, side)
}

fn put_place(Place { key, side, until }: Place, into: &mut Vec<u8>) {
    into.push(side);
    into.extend(until.to_be_bytes());
    into.extend(key.to_be_bytes());
}

/// Where old buckets of a component are, as it stands behind the pieces of its row, or nothing does. Before format 11 they stood under the
/// component's number.
fn get_place(number: u32, bytes: &[u8]) -> Option<Option<Place>> {
    let (&side, rest) = match bytes.split_first() {
        None => return Some(None),
        Some(split) => split,
    };
    let (until, rest) = rest.split_first_chunk().filter(|_| side <= 1)?;
    let key = if rest.is_empty() { number } else { u32::from_be_bytes(rest.try_into().ok()?) };
    Some(Some(Place { key, side, until: u32::from_be_bytes(*until) }))
}

fn key_of(tag: u8, block: u32, side: u8) -> Vec<u8> {
    let mut key = vec![tag];
    key.extend(block.to_be_bytes());
    key.push(side);
    key
}

fn queue_key(guard: u32, block: u64, side: u8) -> Vec<u8> {
    let mut key = vec![QUEUE];
    key.extend(guard.to_be_bytes());
    key.extend(block.to_be_bytes());
    key.push(side);
    key
}

fn put<T: Serialize + ?Sized>(value: &T, into: &mut Vec<u8>) {
    *into = postcard::to_extend(value, std::mem::take(into)).expect("rows hold only what postcard can encode");
}

fn put_varint(mut value: u64, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

fn get<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::take_from_bytes(bytes).ok().filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

fn get_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn malformed(key: &[u8], what: &'static str) -> LoadError {
    LoadError::Malformed { key: key.to_vec(), what }
}

/// The block (or, for a queue, the guard) of a key of at least 5 bytes.
fn block_of(key: &[u8]) -> u32 {
    u32::from_be_bytes([key[1], key[2], key[3], key[4]])
}

fn queue_block_of(key: &[u8]) -> Result<u64, LoadError> {
    let number = key.get(5..13).and_then(|number| number.try_into().ok());
    number.map(u64::from_be_bytes).ok_or(malformed(key, "unknown key"))
}
