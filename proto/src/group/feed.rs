//! The feed: components of applied state for the aggregator, by what changed since its cursor or, when that is too long ago,
//! by a walk over the whole table.

use crate::group::Group;
use crate::group::cells::Component;
use crate::ids::{CellId, LogIndex};
use crate::limits::MESSAGE_BYTES_MAX;
use crate::msg::{FeedChunk, FeedPull, FeedWalk};

/// Most bytes that one component takes: slot, lane, value.
const COMPONENT_BYTES: usize = 5 + 1 + 9;
/// Bytes of a chunk beside its lists.
const CHUNK_BYTES: usize = 1024;
/// The most a chunk grows to when one entry alone changed more than was asked for.
const CHUNK_BYTES_MAX: usize = MESSAGE_BYTES_MAX - CHUNK_BYTES;

impl Group {
    /// Whether a pull would be answered with something new.
    pub fn has_feed(&self, pull: &FeedPull) -> bool {
        let behind = !self.cells.ring.reaches(pull.cursor.0) || pull.cursor > self.applied;
        pull.group == self.config.id
            && (pull.walk.is_some()
                || behind
                || self.cells.ring.changed_since(pull.cursor.0)
                || pull.slots_known < self.cells.table.len())
    }

    /// What changed after the pull's cursor, cut to its byte limit; an empty chunk if nothing did. Names of slots come before
    /// their components. Entries are never split: `upto` covers whole ones.
    pub fn feed(&self, pull: &FeedPull) -> FeedChunk {
        let ahead = pull.cursor > self.applied;
        if pull.walk.is_some() || ahead || !self.cells.ring.reaches(pull.cursor.0) {
            let start = FeedWalk { started: self.applied, next_slot: 0 };
            return self.walk(pull, pull.walk.filter(|walk| walk.started <= self.applied).unwrap_or(start));
        }
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
                if chunk.is_empty() {
                    return self.walk(pull, FeedWalk { started: self.applied, next_slot: 0 });
                }
                return chunk.finish_partial();
            }
        }
        debug_assert!(chunk.limit == wanted || chunk.bytes <= CHUNK_BYTES_MAX);
        if !chunk.name_upto(self.cells.table.len()) {
            chunk.complete(last);
            return chunk.finish_partial();
        }
        chunk.complete(self.applied.0);
        chunk.finish_partial()
    }

    fn walk(&self, pull: &FeedPull, walk: FeedWalk) -> FeedChunk {
        let mut chunk = Filling::new(self, pull);
        let slots = self.cells.table.len();
        let mut next_slot = walk.next_slot;
        while next_slot < slots && chunk.put_cell(next_slot) {
            next_slot += 1;
        }
        let mut chunk = chunk.finish_walk();
        if next_slot >= slots {
            chunk.upto = walk.started;
        } else {
            chunk.walk = Some(FeedWalk { next_slot, ..walk });
        }
        chunk
    }
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
            components: Vec::new(),
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

/// The most that one cell needs: its name and a component of every lane.
const LARGEST_CELL_BYTES: usize = 512 + COMPONENT_BYTES * crate::limits::LANES_MAX as usize;

const _: () = assert!(2 * LARGEST_CELL_BYTES < CHUNK_BYTES_MAX);
