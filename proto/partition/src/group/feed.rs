//! The feed: components of applied state for the aggregator, by the changes since its cursor. If the cursor is too old, by a walk
//! over the whole table.

use crate::group::Group;
use crate::group::cells::Component;
use tidemark_types::ids::LogIndex;
use tidemark_types::limits::{FEED_PASSED_BY_MAX, GRANULARITIES_MAX, MESSAGE_BYTES_MAX, ROW_BUCKETS_MAX};
use tidemark_types::row_changes::{PART_MINUTES_MAX, Part, part_of};
use tidemark_types::series::{Row, codec};
use tidemark_types::table::CellTable;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::{FeedChunk, FeedPull, FeedWalk, IS_ROW, ScopedChunk};
use tidemark_wire::scope::Scope;

/// Most bytes that one component takes: slot, lane, value.
const COMPONENT_BYTES: usize = 5 + 1 + 9;
/// Bytes of a chunk beside its lists.
const CHUNK_BYTES: usize = 1024;
/// Most bytes of a row beside its levels, of a level beside its buckets, and of the place of a bucket.
const ROW_HEAD_BYTES: usize = 5 + 1 + 3 + 1;
const LEVEL_BYTES: usize = 3;
const BUCKET_PLACE_BYTES: usize = 5;
const BUCKET_BYTES: usize = BUCKET_PLACE_BYTES + 10;
/// The most bytes of a row beside its buckets, and of the part that one change may stand for.
const ROW_BYTES: usize = ROW_HEAD_BYTES + LEVEL_BYTES * GRANULARITIES_MAX;
const PART_BYTES: usize = ROW_BYTES + PART_MINUTES_MAX as usize * GRANULARITIES_MAX * BUCKET_BYTES;
/// Most bytes of a slot's number.
const SLOT_BYTES: usize = 5;
/// The most a chunk grows to when one entry alone changed more than was asked for. A part of a row fits beside that.
const CHUNK_BYTES_MAX: usize = MESSAGE_BYTES_MAX - CHUNK_BYTES - PART_BYTES;

impl Group {
    /// Whether a pull would be answered with something new.
    pub fn has_feed(&self, pull: &FeedPull) -> bool {
        let behind = !self.cells.ring.reaches(pull.cursor.0) || pull.cursor > self.applied;
        pull.group == self.config.id
            && (pull.walk.is_some()
                || pull.compactions != self.compactions
                || pull.rows_told > 0
                || pull.heard < self.heard()
                || behind
                || self.cells.ring.changed_since(pull.cursor.0)
                || self.series.changes().changed_since(pull.cursor.0)
                || pull.slots_known < self.cells.table.len())
    }

    /// Whether a consumer at this cursor is told of changes, not by a walk.
    pub fn follows_from(&self, cursor: LogIndex) -> bool {
        let reaches = self.cells.ring.reaches(cursor.0) && self.series.changes().reaches(cursor.0);
        reaches && cursor <= self.applied
    }

    /// The number of changes, of components and of rows, that a consumer at this cursor is to be told; of several consumers, some
    /// may be told fewer.
    pub fn changes_since(&self, cursor: LogIndex) -> u64 {
        self.cells.ring.events_since(cursor.0) + self.series.changes().events_since(cursor.0)
    }

    /// Consumers can know of entries behind the present one only from this process from now on: it alone leads the group.
    pub fn tells_from_here(&mut self) {
        self.note_told(Some(self.applied));
    }

    /// Another process leads the group, and may tell consumers of anything.
    pub fn is_told_by_others(&mut self) {
        self.note_told(None);
    }

    /// The chunk that a consumer is told now; from now on it is known that the consumer was told.
    pub fn tell(&mut self, pull: &FeedPull) -> FeedChunk {
        let Telling { chunk, .. } = self.feed(pull, None);
        self.note_told_with(&chunk);
        chunk
    }

    /// The same for a consumer that wants some counters only.
    pub fn tell_in(&mut self, pull: &FeedPull, scope: &mut Scope) -> ScopedChunk {
        let scope_no = scope.number;
        let fills = scope.fills;
        let Telling { chunk, names } = self.feed(pull, Some(scope));
        let slots = names.slots;
        let named = names.upto;
        self.note_told_with(&chunk);
        ScopedChunk { chunk, slots, named, scope: scope_no, fills }
    }

    fn note_told_with(&mut self, chunk: &FeedChunk) {
        // After a part of an entry, or a walk of the present state, more is known than the cursor says.
        let is_partial = chunk.walk.is_some() || chunk.rows_told > 0 || chunk.upto == chunk.base;
        let upto = if is_partial { chunk.applied } else { chunk.upto };
        if self.cells.ring.is_told_less_than(upto.0) && !bites(Bug::ToldForgotten) {
            self.note_told(Some(upto));
        }
    }

    fn note_told(&mut self, upto: Option<LogIndex>) {
        let upto = upto.map(|upto| upto.0);
        self.cells.ring.told(upto);
        self.series.told(upto);
    }

    /// The changes after the pull's cursor, cut to its byte limit; an empty chunk if there are none. Names of slots come before
    /// their components. Entries are never split: `upto` covers whole ones.
    fn feed<'a>(&'a self, pull: &FeedPull, scope: Option<&'a mut Scope>) -> Telling<'a> {
        let pull = &self.with_numbers_of_now(pull);
        if pull.walk.is_some() || !self.follows_from(pull.cursor) {
            let start = FeedWalk { started: self.applied, next_slot: 0 };
            let walk = pull.walk.filter(|walk| walk.started <= self.applied).unwrap_or(start);
            return self.walk(Filling::new(self, pull, scope), walk);
        }
        if pull.rows_told > 0 {
            return self.rest_of_rows(Filling::new(self, pull, scope).telling, pull);
        }
        let mut filling = Filling::new(self, pull, scope);
        if self.fill_changed(&mut filling, pull) {
            return self.with_rows(filling.telling, pull);
        }
        self.walk(filling.anew(pull), FeedWalk { started: self.applied, next_slot: 0 })
    }

    /// A consumer that was told other numbers of slots knows none: names are told again, and a walk, or the rows of one entry,
    /// from the beginning.
    fn with_numbers_of_now(&self, pull: &FeedPull) -> FeedPull {
        if pull.compactions == self.compactions {
            return *pull;
        }
        let walk = pull.walk.map(|_| FeedWalk { started: self.applied, next_slot: 0 });
        FeedPull { walk, slots_known: 0, rows_told: 0, ..*pull }
    }

    /// Fills a chunk with components that changed; false where one entry changed more than goes into one.
    fn fill_changed(&self, chunk: &mut Filling<'_>, pull: &FeedPull) -> bool {
        let wanted = chunk.limit;
        let mut last = pull.cursor.0;
        for (number, version) in self.cells.ring.since(pull.cursor.0) {
            if version != last {
                chunk.complete(last);
                last = version;
            }
            let component = self.cells.component(number);
            if component.value > 0 && !chunk.put(component) && !chunk.put_beyond(component, pull.cursor.0) {
                chunk.drop_incomplete();
                return !chunk.is_empty();
            }
        }
        debug_assert!(chunk.limit == wanted || chunk.bytes <= CHUNK_BYTES_MAX);
        let is_all = chunk.name_upto(self.cells.table.len());
        chunk.complete(if is_all { self.applied.0 } else { last });
        true
    }

    fn walk<'a>(&'a self, mut chunk: Filling<'a>, walk: FeedWalk) -> Telling<'a> {
        let slots = self.cells.table.len();
        let mut next_slot = walk.next_slot;
        while next_slot < slots && chunk.put_cell(next_slot) {
            next_slot += 1;
        }
        if next_slot >= slots {
            next_slot = chunk.put_rows(next_slot.max(IS_ROW));
        }
        let mut telling = chunk.telling;
        if next_slot >= IS_ROW + self.series.len() {
            telling.chunk.upto = walk.started;
        } else {
            telling.chunk.walk = Some(FeedWalk { next_slot, ..walk });
        }
        telling
    }

    // ---- rows ----

    /// Adds the row changes of the entries that the chunk covers. If they do not fit, the chunk covers fewer entries; of a single
    /// one, it says how much was told.
    fn with_rows<'a>(&'a self, mut telling: Telling<'a>, pull: &FeedPull) -> Telling<'a> {
        if self.series.len() == 0 {
            return telling;
        }
        let base = pull.cursor.0;
        let limit = (pull.bytes_max as usize).min(CHUNK_BYTES_MAX.saturating_sub(telling.bytes(&self.cells.table)));
        let mut parts = Vec::new();
        let mut bytes = 0;
        let kept = self.series.granularities();
        // The present entry, the one before it, and where in `parts` the present one begins.
        let mut entry = base;
        let mut before = base;
        let mut own = 0;
        let upto = telling.chunk.upto.0;
        for (version, number, part) in self.series.changes().since(base).take_while(|&(at, ..)| at <= upto) {
            if version > entry {
                if bytes >= limit {
                    telling.chunk.upto = LogIndex(entry);
                    break;
                }
                (before, entry) = (entry, version);
                own = parts.len();
            }
            if !telling.names.wants(self.cells.component(number).slot, &self.cells.table) {
                continue;
            }
            parts.push((number, part));
            bytes += self.part_bytes(number, part, kept) + self.series.read_bytes(number, part);
            if bytes > limit && before > base {
                parts.truncate(own);
                telling.chunk.upto = LogIndex(before);
                break;
            }
            if bytes > limit.max(PART_BYTES) {
                return self.begin_rows(telling, pull);
            }
        }
        if !self.put_parts(&mut telling, parts) {
            telling.chunk.upto = pull.cursor;
        }
        telling
    }

    /// The first entry changed more rows than go into the chunk.
    fn begin_rows<'a>(&'a self, mut telling: Telling<'a>, pull: &FeedPull) -> Telling<'a> {
        telling.chunk.upto = pull.cursor;
        let room = CHUNK_BYTES_MAX.saturating_sub(telling.bytes(&self.cells.table));
        telling.chunk.rows_told = self.put_some(&mut telling, 0, room.min(pull.bytes_max as usize));
        telling
    }

    /// The untold row changes of the first entry. Its components were told with the first of them.
    fn rest_of_rows<'a>(&'a self, mut telling: Telling<'a>, pull: &FeedPull) -> Telling<'a> {
        let room = (pull.bytes_max as usize).min(CHUNK_BYTES_MAX);
        let Some((entry, all)) = self.series.changes().first_since(pull.cursor.0) else { return telling };
        let told = self.put_some(&mut telling, pull.rows_told as usize, room);
        if told as usize >= all.len() {
            telling.chunk.upto = LogIndex(entry);
        } else {
            telling.chunk.rows_told = told;
        }
        telling
    }

    /// Adds some row changes of the first entry behind a chunk, within `room` bytes, at least one. Returns the number that is
    /// told then, with changes that the consumer does not want.
    fn put_some(&self, telling: &mut Telling<'_>, told: usize, room: usize) -> u32 {
        let of_entry =
            self.series.changes().first_since(telling.chunk.base.0).into_iter().flat_map(|(_, of)| of.skip(told));
        let mut bytes = 0;
        let mut count = 0;
        let kept = self.series.granularities();
        let mut parts = Vec::new();
        for (number, part) in of_entry {
            if telling.names.wants(self.cells.component(number).slot, &self.cells.table) {
                bytes += self.part_bytes(number, part, kept) + self.series.read_bytes(number, part);
                if bytes > room && !parts.is_empty() {
                    break;
                }
                parts.push((number, part));
            }
            count += 1;
        }
        (told + if self.put_parts(telling, parts) { count } else { 0 }) as u32
    }

    /// Adds these parts of rows, with the names that they need; none where there is no room for the names.
    fn put_parts(&self, telling: &mut Telling<'_>, mut parts: Vec<(u32, Part)>) -> bool {
        parts.sort_unstable();
        parts.dedup();
        let rows = || parts.chunk_by(|a, b| a.0 == b.0);
        let last = parts.iter().map(|&(number, _)| self.cells.component(number).slot).max();
        let kept = self.series.granularities();
        let all = parts.iter().map(|&(number, part)| self.part_bytes(number, part, kept));
        let following = all.sum::<usize>() + rows().count() * ROW_BYTES;
        if !self.name_rows(telling, last.map_or(0, |slot| slot + 1), following) {
            return false;
        }
        let mut of_row = Vec::new();
        for parts in rows() {
            let component = self.cells.component(parts[0].0);
            let Some(horizon) = self.series.horizon_of(component.slot, &self.cells.table) else { continue };
            of_row.clear();
            let told = if bites(Bug::LastPartOnly) { &parts[parts.len() - 1..] } else { parts };
            of_row.extend(told.iter().map(|&(_, part)| part));
            let part = self.series.holding(parts[0].0, horizon, &of_row);
            let pieces = part.pieces(ROW_BUCKETS_MAX).map(|piece| (component.slot, component.lane, piece));
            telling.chunk.rows.extend(pieces);
        }
        true
    }

    /// The most bytes that a part of a component's row takes, with this number of kept granularities: no bucket of it exceeds the
    /// component.
    fn part_bytes(&self, number: u32, part: Part, kept: usize) -> usize {
        let bucket = BUCKET_PLACE_BYTES + difference_bytes(self.cells.component(number).value);
        ROW_HEAD_BYTES + kept * (LEVEL_BYTES + part.minutes() as usize * bucket)
    }

    /// Adds the missing names below a slot to a chunk. Rows may have changed of components that are told later, together with
    /// later changes. If there is no room for all names beside the following parts, the chunk becomes one of names alone, and
    /// this returns false.
    fn name_rows(&self, telling: &mut Telling<'_>, slot: u32, following: usize) -> bool {
        let table = &self.cells.table;
        if telling.names.upto >= slot {
            return true;
        }
        let mut wanted = Vec::new();
        let mut all = 0;
        let mut end = telling.names.upto;
        while end < slot && all <= CHUNK_BYTES_MAX {
            if telling.names.wants(end, table) {
                all += telling.names.bytes_of(end, table);
                wanted.push(end);
            } else if !telling.names.passes_by() {
                break;
            }
            end += 1;
        }
        let fits = end == slot && telling.bytes(table) + all + following <= CHUNK_BYTES_MAX;
        if !fits {
            telling.chunk.components.clear();
        }
        let mut left = CHUNK_BYTES_MAX.saturating_sub(telling.bytes(table));
        for slot in wanted {
            let bytes = telling.names.bytes_of(slot, table);
            if bytes > left {
                return fits;
            }
            left -= bytes;
            telling.put_name(slot, table);
        }
        telling.names.upto = end;
        fits
    }
}

/// The chunk for a consumer, while it is made.
struct Telling<'a> {
    chunk: FeedChunk,
    names: Names<'a>,
}

/// The names in a chunk.
struct Names<'a> {
    /// The counters that the consumer wants, if not all.
    scope: Option<&'a mut Scope>,
    /// The slots named, ascending.
    slots: Vec<u32>,
    /// Slots below are known to the consumer then, or not wanted.
    upto: u32,
    /// The number of unwanted slots that were passed by.
    passed_by: u32,
}

impl Names<'_> {
    fn wants(&mut self, slot: u32, table: &CellTable) -> bool {
        self.scope.as_mut().is_none_or(|scope| scope.has(slot, table))
    }

    /// Passes an unwanted slot by, unless the chunk has done so too often.
    fn passes_by(&mut self) -> bool {
        let may = self.passed_by < FEED_PASSED_BY_MAX;
        self.passed_by += u32::from(may);
        may
    }

    /// An upper bound of a name's bytes; with its slot if not all are named.
    fn bytes_of(&self, slot: u32, table: &CellTable) -> usize {
        table.name_bytes(slot) + if self.scope.is_some() { SLOT_BYTES } else { 0 }
    }
}

impl Telling<'_> {
    /// The most that names and components so far take.
    fn bytes(&self, table: &CellTable) -> usize {
        let names = self.names.slots.iter().map(|&slot| self.names.bytes_of(slot, table)).sum::<usize>();
        names + self.chunk.components.len() * COMPONENT_BYTES
    }

    fn put_name(&mut self, slot: u32, table: &CellTable) {
        self.chunk.cells.push(table.name(slot));
        self.names.slots.push(slot);
        self.names.upto = slot + 1;
    }
}

/// A chunk being filled.
struct Filling<'a> {
    group: &'a Group,
    telling: Telling<'a>,
    /// Components of entries that are in the chunk as a whole.
    complete: usize,
    bytes: usize,
    limit: usize,
}

impl<'a> Filling<'a> {
    fn new(group: &'a Group, pull: &FeedPull, scope: Option<&'a mut Scope>) -> Filling<'a> {
        let first_slot = pull.slots_known.min(group.cells.table.len());
        let chunk = FeedChunk {
            start: group.start(),
            group: group.config.id,
            base: pull.cursor,
            upto: pull.cursor,
            walk: None,
            applied: group.applied,
            compactions: group.compactions,
            heard: group.heard(),
            first_slot,
            cells: Vec::new(),
            ..FeedChunk::default()
        };
        let limit = (pull.bytes_max as usize).min(CHUNK_BYTES_MAX);
        let names = Names { scope, slots: Vec::new(), upto: first_slot, passed_by: 0 };
        Filling { group, telling: Telling { chunk, names }, complete: 0, bytes: 0, limit }
    }

    /// For the same pull, with nothing in it.
    fn anew(self, pull: &FeedPull) -> Filling<'a> {
        Filling::new(self.group, pull, self.telling.names.scope)
    }

    /// Adds a component, if it is wanted, and the names it needs; false if there is no room.
    fn put(&mut self, component: Component) -> bool {
        if !self.telling.names.wants(component.slot, &self.group.cells.table) {
            return true;
        }
        let fits = self.name_upto(component.slot + 1) && self.bytes + COMPONENT_BYTES <= self.limit;
        if fits {
            self.bytes += COMPONENT_BYTES;
            self.telling.chunk.components.push((component.slot, component.lane, component.value));
        }
        fits
    }

    /// Tries again with the largest limit if no entry is in the chunk yet, so that an entry larger than the limit gets through.
    fn put_beyond(&mut self, component: Component, base: u64) -> bool {
        let stuck = self.telling.chunk.upto.0 == base && self.complete == 0 && self.limit < CHUNK_BYTES_MAX;
        if stuck {
            self.limit = CHUNK_BYTES_MAX;
        }
        stuck && self.put(component)
    }

    /// Adds a cell with all its components, even beyond the limit if it is the first.
    fn put_cell(&mut self, slot: u32) -> bool {
        if !self.telling.names.wants(slot, &self.group.cells.table) {
            let names = &mut self.telling.names;
            return if names.upto > slot { names.passes_by() } else { self.name_upto(slot + 1) };
        }
        let components: Vec<_> = self.group.cells.of(slot).filter(|component| component.value > 0).collect();
        let first = self.telling.chunk.components.is_empty() && self.telling.chunk.cells.is_empty();
        if first {
            self.limit = self.limit.max(2 * LARGEST_CELL_BYTES);
        }
        let fits = self.bytes + components.len() * COMPONENT_BYTES <= self.limit && self.name_upto(slot + 1);
        if fits {
            self.bytes += components.len() * COMPONENT_BYTES;
            self.telling.chunk.components.extend(components.iter().map(|c| (c.slot, c.lane, c.value)));
        }
        fits
    }

    /// Adds whole rows, from a position of a walk on, at least one where there is any left; the position behind them.
    fn put_rows(&mut self, from: u32) -> u32 {
        let group = self.group;
        let mut number = from - IS_ROW;
        while number < group.series.len() {
            let component = group.cells.component(number);
            if !self.telling.names.wants(component.slot, &group.cells.table) {
                if !self.telling.names.passes_by() {
                    break;
                }
                number += 1;
                continue;
            }
            let horizon = group.series.horizon_of(component.slot, &group.cells.table);
            if let Some((row, horizon)) = group.series.whole(number).zip(horizon) {
                let whole = part_of(&row, horizon, &[Part::WHOLE]);
                let bytes = ROW_BYTES + row_bytes(&whole) + group.series.read_bytes(number, Part::WHOLE);
                let first = self.telling.chunk.rows.is_empty() && self.telling.chunk.components.is_empty();
                if !first && self.bytes + bytes > self.limit || !self.name_upto(component.slot + 1) {
                    break;
                }
                self.bytes += bytes;
                let pieces = whole.pieces(ROW_BUCKETS_MAX).map(|piece| (component.slot, component.lane, piece));
                self.telling.chunk.rows.extend(pieces);
            }
            number += 1;
        }
        IS_ROW + number
    }

    /// Adds the names that the consumer misses below `slot`; false if there is no room, or many were passed by.
    fn name_upto(&mut self, slot: u32) -> bool {
        let table = &self.group.cells.table;
        while self.telling.names.upto < slot {
            let next = self.telling.names.upto;
            if !self.telling.names.wants(next, table) {
                if !self.telling.names.passes_by() {
                    return false;
                }
                self.telling.names.upto += 1;
                continue;
            }
            let bytes = self.telling.names.bytes_of(next, table);
            if self.bytes + bytes > self.limit && !self.telling.chunk.cells.is_empty() {
                return false;
            }
            self.bytes += bytes;
            self.telling.put_name(next, table);
        }
        true
    }

    /// All of the entries up to `index` is in the chunk.
    fn complete(&mut self, index: u64) {
        self.complete = self.telling.chunk.components.len();
        self.telling.chunk.upto = self.telling.chunk.upto.max(LogIndex(index));
    }

    /// Whether it would bring its consumer no further.
    fn is_empty(&self) -> bool {
        let Telling { chunk, names } = &self.telling;
        self.complete == 0 && chunk.upto == chunk.base && names.upto == chunk.first_slot
    }

    /// Takes the components of an entry out that did not fit as a whole.
    fn drop_incomplete(&mut self) {
        self.telling.chunk.components.truncate(self.complete);
    }
}

/// The encoded size of a row, in pieces.
fn row_bytes(row: &Row) -> usize {
    row.pieces(ROW_BUCKETS_MAX).map(|piece| codec::encode(&piece).map_or(0, |bytes| bytes.len() + ROW_BYTES)).sum()
}

/// Most bytes of a bucket's difference from its expected value, with neither above `value`: a varint with two further bits.
fn difference_bytes(value: u64) -> usize {
    (u64::BITS - value.leading_zeros() + 2).div_ceil(7) as usize
}

/// The most that one cell needs: its name and a component of every lane.
const LARGEST_CELL_BYTES: usize = 512 + COMPONENT_BYTES * tidemark_types::limits::LANES_MAX as usize;

const _: () = assert!(2 * LARGEST_CELL_BYTES < CHUNK_BYTES_MAX);
