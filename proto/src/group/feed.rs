//! The feed: components of applied state for the aggregator, by what changed since its cursor or, when that is too long ago,
//! by a walk over the whole table.

use crate::group::Group;
use crate::group::cells::Component;
use crate::ids::{CellId, LogIndex};
use crate::limits::{GRANULARITIES_MAX, MESSAGE_BYTES_MAX, ROW_BUCKETS_MAX};
use crate::msg::{FeedChunk, FeedPull, FeedWalk, IS_ROW};
use crate::row_changes::{Part, part_of};
use crate::series::{Row, codec};
use crate::table::CellTable;
use crate::teeth::{Bug, bites};

/// Most bytes that one component takes: slot, lane, value.
const COMPONENT_BYTES: usize = 5 + 1 + 9;
/// Bytes of a chunk beside its lists.
const CHUNK_BYTES: usize = 1024;
/// Most bytes of a row beside its levels, of a level beside its buckets, and of the place of a bucket.
const ROW_HEAD_BYTES: usize = 5 + 1 + 3 + 1;
const LEVEL_BYTES: usize = 3;
const BUCKET_PLACE_BYTES: usize = 5;
const BUCKET_BYTES: usize = BUCKET_PLACE_BYTES + 10;
/// Of a row beside its buckets, and of the part of a row that one time is in.
const ROW_BYTES: usize = ROW_HEAD_BYTES + LEVEL_BYTES * GRANULARITIES_MAX;
const PART_BYTES: usize = ROW_BYTES + GRANULARITIES_MAX * BUCKET_BYTES;
/// The most a chunk grows to when one entry alone changed more than was asked for. A part of a row fits beside that.
const CHUNK_BYTES_MAX: usize = MESSAGE_BYTES_MAX - CHUNK_BYTES - PART_BYTES;

impl Group {
    /// Whether a pull would be answered with something new.
    pub fn has_feed(&self, pull: &FeedPull) -> bool {
        let behind = !self.cells.ring.reaches(pull.cursor.0) || pull.cursor > self.applied;
        pull.group == self.config.id
            && (pull.walk.is_some()
                || pull.rows_told > 0
                || behind
                || self.cells.ring.changed_since(pull.cursor.0)
                || self.series.changes().changed_since(pull.cursor.0)
                || pull.slots_known < self.cells.table.len())
    }

    /// What this process tells consumers from here on is all that they may know behind what is applied now: it alone speaks for the group.
    pub fn tells_from_here(&mut self) {
        self.note_told(Some(self.applied));
    }

    /// Somebody else speaks for the group, and may tell consumers of anything.
    pub fn is_told_by_others(&mut self) {
        self.note_told(None);
    }

    /// What a consumer is told now, and from here on it is known that it was.
    pub fn tell(&mut self, pull: &FeedPull) -> FeedChunk {
        let chunk = self.feed(pull);
        // Of a part of an entry, or of all as it is now, more is known than the cursor says.
        let is_partial = chunk.walk.is_some() || chunk.rows_told > 0 || chunk.upto == chunk.base;
        let upto = if is_partial { chunk.applied } else { chunk.upto };
        if self.cells.ring.is_told_less_than(upto.0) && !bites(Bug::ToldForgotten) {
            self.note_told(Some(upto));
        }
        chunk
    }

    fn note_told(&mut self, upto: Option<LogIndex>) {
        let upto = upto.map(|upto| upto.0);
        self.cells.ring.told(upto);
        self.series.told(upto);
    }

    /// What changed after the pull's cursor, cut to its byte limit; an empty chunk if nothing did. Names of slots come before
    /// their components. Entries are never split: `upto` covers whole ones.
    fn feed(&self, pull: &FeedPull) -> FeedChunk {
        let ahead = pull.cursor > self.applied;
        let reaches = self.cells.ring.reaches(pull.cursor.0) && self.series.changes().reaches(pull.cursor.0);
        if pull.walk.is_some() || ahead || !reaches {
            let start = FeedWalk { started: self.applied, next_slot: 0 };
            return self.walk(pull, pull.walk.filter(|walk| walk.started <= self.applied).unwrap_or(start));
        }
        if pull.rows_told > 0 {
            return self.rest_of_rows(pull);
        }
        match self.changed_components(pull) {
            Some(chunk) => self.with_rows(chunk, pull),
            None => self.walk(pull, FeedWalk { started: self.applied, next_slot: 0 }),
        }
    }

    /// `None` where one entry changed more than goes into a chunk.
    fn changed_components(&self, pull: &FeedPull) -> Option<FeedChunk> {
        let mut chunk = Filling::new(self, pull);
        let wanted = chunk.limit;
        let mut last = pull.cursor.0;
        for (number, version) in self.cells.ring.since(pull.cursor.0) {
            if version != last {
                chunk.complete(last);
                last = version;
            }
            let component = self.cells.component(number);
            if component.value > 0 && !chunk.put(component) && !chunk.put_beyond(component, pull.cursor.0) {
                return (!chunk.is_empty()).then(|| chunk.finish_partial());
            }
        }
        debug_assert!(chunk.limit == wanted || chunk.bytes <= CHUNK_BYTES_MAX);
        if !chunk.name_upto(self.cells.table.len()) {
            chunk.complete(last);
            return Some(chunk.finish_partial());
        }
        chunk.complete(self.applied.0);
        Some(chunk.finish_partial())
    }

    fn walk(&self, pull: &FeedPull, walk: FeedWalk) -> FeedChunk {
        let mut chunk = Filling::new(self, pull);
        let slots = self.cells.table.len();
        let mut next_slot = walk.next_slot;
        while next_slot < slots && chunk.put_cell(next_slot) {
            next_slot += 1;
        }
        if next_slot >= slots {
            next_slot = chunk.put_rows(next_slot.max(IS_ROW));
        }
        let mut chunk = chunk.finish_walk();
        if next_slot >= IS_ROW + self.series.len() {
            chunk.upto = walk.started;
        } else {
            chunk.walk = Some(FeedWalk { next_slot, ..walk });
        }
        chunk
    }

    // ---- rows ----

    /// Adds what changed in rows in the entries that the chunk covers. Where that is more than goes into it, it covers fewer entries;
    /// of a single one, it says how much was told.
    fn with_rows(&self, mut chunk: FeedChunk, pull: &FeedPull) -> FeedChunk {
        if self.series.len() == 0 {
            return chunk;
        }
        let base = pull.cursor.0;
        let limit = (pull.bytes_max as usize).min(CHUNK_BYTES_MAX.saturating_sub(bytes_of(&chunk, &self.cells.table)));
        let (mut parts, mut bytes, kept) = (Vec::new(), 0, self.series.granularities());
        // The present entry, the one before it, and where in `parts` the present one begins.
        let (mut entry, mut before, mut own) = (base, base, 0);
        for (version, number, part) in self.series.changes().since(base).take_while(|&(at, ..)| at <= chunk.upto.0) {
            if version > entry {
                if bytes >= limit {
                    chunk.upto = LogIndex(entry);
                    break;
                }
                (before, entry) = (entry, version);
                own = parts.len();
            }
            parts.push((number, part));
            bytes += self.part_bytes(number, kept);
            if bytes > limit && before > base {
                parts.truncate(own);
                chunk.upto = LogIndex(before);
                break;
            }
            if bytes > limit.max(PART_BYTES) {
                return self.begin_rows(chunk, pull);
            }
        }
        match self.put_parts(&mut chunk, parts) {
            true => chunk,
            false => FeedChunk { upto: pull.cursor, ..chunk },
        }
    }

    /// The first entry changed more rows than go into the chunk.
    fn begin_rows(&self, mut chunk: FeedChunk, pull: &FeedPull) -> FeedChunk {
        chunk.upto = pull.cursor;
        let room = CHUNK_BYTES_MAX.saturating_sub(bytes_of(&chunk, &self.cells.table));
        chunk.rows_told = self.put_some(&mut chunk, 0, room.min(pull.bytes_max as usize));
        chunk
    }

    /// Of the first entry the changes of rows that are not told yet. Its components were told with the first of them.
    fn rest_of_rows(&self, pull: &FeedPull) -> FeedChunk {
        let mut chunk = Filling::new(self, pull).finish_partial();
        let room = (pull.bytes_max as usize).min(CHUNK_BYTES_MAX);
        let changes = self.series.changes();
        let Some(entry) = changes.since(pull.cursor.0).map(|(version, ..)| version).next() else { return chunk };
        let all = changes.since(pull.cursor.0).take_while(|&(version, ..)| version == entry).count();
        let told = self.put_some(&mut chunk, pull.rows_told as usize, room);
        if told as usize >= all {
            chunk.upto = LogIndex(entry);
        } else {
            chunk.rows_told = told;
        }
        chunk
    }

    /// Adds some of the changes of rows of the first entry behind a chunk, within so many bytes, at least one; how many are told then.
    fn put_some(&self, chunk: &mut FeedChunk, told: usize, room: usize) -> u32 {
        let mut changes = self.series.changes().since(chunk.base.0).peekable();
        let entry = changes.peek().map(|&(version, ..)| version);
        let of_entry = changes.take_while(|&(version, ..)| Some(version) == entry);
        let (mut bytes, kept) = (0, self.series.granularities());
        let fits = |&(_, number, _): &(u64, u32, Part)| {
            let is_first = bytes == 0;
            bytes += self.part_bytes(number, kept);
            is_first || bytes <= room
        };
        let parts: Vec<_> = of_entry.skip(told).take_while(fits).map(|(_, number, part)| (number, part)).collect();
        let count = parts.len();
        (told + if self.put_parts(chunk, parts) { count } else { 0 }) as u32
    }

    /// Adds these parts of rows, with the names that they need; none where there is no room for the names.
    fn put_parts(&self, chunk: &mut FeedChunk, mut parts: Vec<(u32, Part)>) -> bool {
        parts.sort_unstable();
        parts.dedup();
        let rows = || parts.chunk_by(|a, b| a.0 == b.0);
        let last = parts.iter().map(|&(number, _)| self.cells.component(number).slot).max();
        let kept = self.series.granularities();
        let following = rows().map(|of| ROW_BYTES + of.len() * self.part_bytes(of[0].0, kept)).sum();
        if !self.name_rows(chunk, last.map_or(0, |slot| slot + 1), following) {
            return false;
        }
        let mut of_row = Vec::new();
        for parts in rows() {
            let component = self.cells.component(parts[0].0);
            let Some(row) = self.series.row(parts[0].0) else { continue };
            let Some(horizon) = self.series.horizon_of(component.slot, &self.cells.table) else { continue };
            of_row.clear();
            let told = if bites(Bug::LastPartOnly) { &parts[parts.len() - 1..] } else { parts };
            of_row.extend(told.iter().map(|&(_, part)| part));
            let part = part_of(row, horizon, &of_row);
            if !part.is_empty() {
                chunk.rows.push((component.slot, component.lane, part));
            }
        }
        true
    }

    /// The most that a part of a component's row takes, where so many granularities are kept: no bucket of it holds more than the component.
    fn part_bytes(&self, number: u32, kept: usize) -> usize {
        let value = self.cells.component(number).value;
        ROW_HEAD_BYTES + kept * (LEVEL_BYTES + BUCKET_PLACE_BYTES + difference_bytes(value))
    }

    /// Adds the names below a slot that a chunk lacks: rows may have changed of components that are told later, with what changed of
    /// them since. Where there is no room for all of them beside what is to follow, the chunk becomes one of names alone, and this is
    /// false.
    fn name_rows(&self, chunk: &mut FeedChunk, slot: u32, following: usize) -> bool {
        let table = &self.cells.table;
        let first = chunk.first_slot + chunk.cells.len() as u32;
        if first >= slot {
            return true;
        }
        let all = (first..slot).map(|slot| table.name_bytes(slot)).sum::<usize>();
        let fits = bytes_of(chunk, table) + all + following <= CHUNK_BYTES_MAX;
        if !fits {
            chunk.components.clear();
        }
        let mut left = CHUNK_BYTES_MAX.saturating_sub(bytes_of(chunk, table));
        for slot in first..slot {
            let bytes = table.name_bytes(slot);
            if bytes > left {
                break;
            }
            left -= bytes;
            chunk.cells.push(table.name(slot));
        }
        fits
    }
}

/// The most that the names and components in a chunk so far take.
fn bytes_of(chunk: &FeedChunk, table: &CellTable) -> usize {
    let named = chunk.first_slot..chunk.first_slot + chunk.cells.len() as u32;
    named.map(|slot| table.name_bytes(slot)).sum::<usize>() + chunk.components.len() * COMPONENT_BYTES
}

/// A chunk being filled.
struct Filling<'a> {
    group: &'a Group,
    chunk: FeedChunk,
    /// Components of entries that are in the chunk as a whole.
    complete: usize,
    bytes: usize,
    limit: usize,
}

impl<'a> Filling<'a> {
    fn new(group: &'a Group, pull: &FeedPull) -> Filling<'a> {
        let chunk = FeedChunk {
            start: group.start(),
            group: group.config.id,
            base: pull.cursor,
            upto: pull.cursor,
            walk: None,
            applied: group.applied,
            first_slot: pull.slots_known.min(group.cells.table.len()),
            cells: Vec::new(),
            ..FeedChunk::default()
        };
        let limit = (pull.bytes_max as usize).min(CHUNK_BYTES_MAX);
        Filling { group, chunk, complete: 0, bytes: 0, limit }
    }

    /// Adds a component and the names it needs; false if there is no room.
    fn put(&mut self, component: Component) -> bool {
        let fits = self.name_upto(component.slot + 1) && self.bytes + COMPONENT_BYTES <= self.limit;
        if fits {
            self.bytes += COMPONENT_BYTES;
            self.chunk.components.push((component.slot, component.lane, component.value));
        }
        fits
    }

    /// Tries again with the largest limit if no entry is in the chunk yet, so that an entry larger than the limit gets through.
    fn put_beyond(&mut self, component: Component, base: u64) -> bool {
        let stuck = self.chunk.upto.0 == base && self.complete == 0 && self.limit < CHUNK_BYTES_MAX;
        if stuck {
            self.limit = CHUNK_BYTES_MAX;
        }
        stuck && self.put(component)
    }

    /// Adds a cell with all its components, even beyond the limit if it is the first.
    fn put_cell(&mut self, slot: u32) -> bool {
        let components: Vec<_> = self.group.cells.of(slot).filter(|component| component.value > 0).collect();
        let first = self.chunk.components.is_empty() && self.chunk.cells.is_empty();
        if first {
            self.limit = self.limit.max(2 * LARGEST_CELL_BYTES);
        }
        let fits = self.bytes + components.len() * COMPONENT_BYTES <= self.limit && self.name_upto(slot + 1);
        if fits {
            self.bytes += components.len() * COMPONENT_BYTES;
            self.chunk.components.extend(components.iter().map(|c| (c.slot, c.lane, c.value)));
        }
        fits
    }

    /// Adds whole rows, from a position of a walk on, at least one where there is any left; the position behind them.
    fn put_rows(&mut self, from: u32) -> u32 {
        let (group, mut number) = (self.group, from - IS_ROW);
        while number < group.series.len() {
            let component = group.cells.component(number);
            let horizon = group.series.horizon_of(component.slot, &group.cells.table);
            if let Some((row, horizon)) = group.series.row(number).zip(horizon) {
                let whole = part_of(row, horizon, &[Part::WHOLE]);
                let bytes = ROW_BYTES + row_bytes(&whole);
                let first = self.chunk.rows.is_empty() && self.chunk.components.is_empty();
                if !first && self.bytes + bytes > self.limit || !self.name_upto(component.slot + 1) {
                    break;
                }
                self.bytes += bytes;
                let pieces = whole.pieces(ROW_BUCKETS_MAX).map(|piece| (component.slot, component.lane, piece));
                self.chunk.rows.extend(pieces);
            }
            number += 1;
        }
        IS_ROW + number
    }

    /// Adds the names that the consumer misses below `slot`; false if there is no room.
    fn name_upto(&mut self, slot: u32) -> bool {
        let table = &self.group.cells.table;
        let mut next = self.chunk.first_slot + self.chunk.cells.len() as u32;
        while next < slot {
            let bytes = table.name_bytes(next);
            if self.bytes + bytes > self.limit && !self.chunk.cells.is_empty() {
                return false;
            }
            self.bytes += bytes;
            self.chunk.cells.push(self.name(next));
            next += 1;
        }
        true
    }

    fn name(&self, slot: u32) -> CellId {
        self.group.cells.table.name(slot)
    }

    /// All of the entries up to `index` is in the chunk.
    fn complete(&mut self, index: u64) {
        self.complete = self.chunk.components.len();
        self.chunk.upto = self.chunk.upto.max(LogIndex(index));
    }

    fn is_empty(&self) -> bool {
        self.complete == 0 && self.chunk.cells.is_empty()
    }

    /// The chunk without the components of an entry that did not fit as a whole.
    fn finish_partial(mut self) -> FeedChunk {
        self.chunk.components.truncate(self.complete);
        self.chunk
    }

    fn finish_walk(self) -> FeedChunk {
        self.chunk
    }
}

/// The encoded size of a row, in pieces.
fn row_bytes(row: &Row) -> usize {
    row.pieces(ROW_BUCKETS_MAX).map(|piece| codec::encode(&piece).map_or(0, |bytes| bytes.len() + ROW_BYTES)).sum()
}

/// Most bytes by which a bucket differs from what is expected of it, where neither is above `value`: a varint with two further bits.
fn difference_bytes(value: u64) -> usize {
    (u64::BITS - value.leading_zeros() + 2).div_ceil(7) as usize
}

/// The most that one cell needs: its name and a component of every lane.
const LARGEST_CELL_BYTES: usize = 512 + COMPONENT_BYTES * crate::limits::LANES_MAX as usize;

const _: () = assert!(2 * LARGEST_CELL_BYTES < CHUNK_BYTES_MAX);
