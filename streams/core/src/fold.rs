//! Folds events in memory: one count for each (tenant, listing, quarter of an hour, type).
//!
//! The layout is compact, as a partition holds millions of listings at a time. A pair (tenant, listing) is one record in an arena: 13 bytes
//! and the listing's id. The record has the count of the pair's newest quarter. Counts of older quarters, and of other types in the same
//! quarter, are in a hash table.
//!
//! The values of dimensions stand behind the name of the tenant: tenants with different values are different tenants here. So events
//! without values need no memory for dimensions, and an event with values is the record of a pair like others.
//!
//! Pairs come in no order, so each event waits for memory several times. [`Fold::add_all`] reads ahead what the next events need, so
//! these waits overlap.

mod arena;
mod bounds;
mod index;

use crate::event::{Event, EventType, EventTypes};
use crate::limits::QUARTER_COUNT_MAX;
use crate::rollup::{RollupRow, Rollups, RowError};
use crate::teeth::{Bug, bites};
use crate::time::Quarter;
use crate::values::Values;
use arena::{Arena, Newest, Place};
use bounds::Bounds;
use hashbrown::HashTable;
use index::Index;
use std::hint::black_box;
use tidemark_proto::hash::bytes_hash;

/// Bits of a slot that hold the quarter; the type is above.
const QUARTER_BITS: u32 = 24;
const QUARTER_MASK: u32 = (1 << QUARTER_BITS) - 1;
/// Events with memory that is read ahead: it stays in the first caches until they are counted.
const AHEAD: usize = 32;

/// Counts of events.
pub struct Fold {
    seed: u64,
    types: EventTypes,
    tenants: Tenants,
    arena: Arena,
    pairs: Index,
    pairs_len: usize,
    /// Counts that are not of the newest slot of their pair.
    older: HashTable<Cell>,
    /// Cells that are full. Another one of the same slot goes on.
    full: Vec<Cell>,
    total: u64,
    bounds: Bounds,
    /// Bytes of the longest texts of a pair.
    longest: usize,
}

/// Names of tenants, and the hash table that finds them.
#[derive(Default)]
struct Tenants {
    text: String,
    /// Where each name ends.
    ends: Vec<usize>,
    index: Index,
    last: u32,
}

#[derive(Clone, Copy)]
struct Cell {
    pair: Place,
    slot: u32,
    count: u32,
}

/// Of the names of an event.
#[derive(Clone, Copy, Default)]
struct Hashes {
    tenant: u64,
    pair: u64,
}

/// The size of a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldSize {
    pub pairs: usize,
    pub cells: usize,
    /// Memory that is allocated.
    pub bytes: usize,
    /// The most bytes of text that its rows can have together.
    pub text_max: usize,
}

impl Fold {
    /// `seed` makes the places of ids in the hash tables unknown to a sender that chooses the ids.
    pub fn new(types: EventTypes, seed: u64) -> Fold {
        Fold {
            seed,
            types,
            tenants: Tenants::default(),
            arena: Arena::default(),
            pairs: Index::default(),
            pairs_len: 0,
            older: HashTable::new(),
            full: Vec::new(),
            total: 0,
            bounds: Bounds::default(),
            longest: 0,
        }
    }

    /// Counts an event.
    pub fn add(&mut self, event: &Event<'_>) {
        if event.values.is_empty() {
            return self.count(event, self.hashes(event), None);
        }
        if event.count == 0 {
            return;
        }
        let tenant = self.tenants.intern(event.tenant, Values::NONE, bytes_hash(self.seed, event.tenant.as_bytes()));
        let Some(bounded) = self.bounds.apply(&self.types, tenant, event) else {
            return self.count(event, self.hashes(event), None);
        };
        if bites(Bug::OtherValuesDropped) {
            return;
        }
        let event = Event { values: Values::trusted(&bounded), ..*event };
        self.count(&event, self.hashes(&event), None);
    }

    /// Counts events. The waits for memory of several events overlap.
    pub fn add_all(&mut self, events: &[Event<'_>]) {
        let mut hashes = [Hashes::default(); AHEAD];
        for events in events.chunks(AHEAD) {
            if events.iter().any(|event| !event.values.is_empty()) {
                events.iter().for_each(|event| self.add(event));
                continue;
            }
            for (hashes, event) in hashes.iter_mut().zip(events) {
                *hashes = self.hashes(event);
            }
            let places = self.read_ahead(&hashes[..events.len()]);
            for ((event, hashes), place) in events.iter().zip(hashes).zip(places) {
                self.count(event, hashes, place);
            }
        }
    }

    /// Reads what counting will need, one kind of memory after the other: no read of a pass waits for another one of it. Returns the first
    /// place of each hash. It mostly is the place of the event's pair.
    fn read_ahead(&self, hashes: &[Hashes]) -> [Option<Place>; AHEAD] {
        let mut places = [None; AHEAD];
        for (place, hashes) in places.iter_mut().zip(hashes) {
            *place = self.pairs.find(hashes.pair, |_| true).map(Place);
        }
        let mut tenants = [0; AHEAD];
        for (tenant, place) in tenants.iter_mut().zip(places) {
            *tenant = place.map_or(0, |place| self.arena.tenant(place));
        }
        let mut starts = [0; AHEAD];
        for (start, tenant) in starts.iter_mut().zip(tenants) {
            *start = self.tenants.start(tenant);
        }
        let text = self.tenants.text.as_bytes();
        black_box(starts.iter().fold(0_u8, |sum, start| sum ^ text.get(*start).copied().unwrap_or(0)));
        places
    }

    fn hashes(&self, event: &Event<'_>) -> Hashes {
        let name = bytes_hash(self.seed, event.tenant.as_bytes());
        let tenant = if event.values.is_empty() { name } else { bytes_hash(name, event.values.as_str().as_bytes()) };
        Hashes { tenant, pair: bytes_hash(tenant, event.listing.as_bytes()) }
    }

    /// Counts an event. `likely` is a place that may be the one of its pair.
    fn count(&mut self, event: &Event<'_>, hashes: Hashes, likely: Option<Place>) {
        if event.count == 0 {
            return;
        }
        self.total += u64::from(event.count);
        let slot = slot(event.quarter, event.event_type);
        let count = event.count;
        let arena = &self.arena;
        let tenants = &self.tenants;
        let is_same = |place: u32| {
            let place = Place(place);
            arena.is_of(place, event.listing) && tenants.is(arena.tenant(place), event.tenant, event.values)
        };
        let likely = likely.filter(|place| is_same(place.0));
        let Some(pair) = likely.or_else(|| self.pairs.find(hashes.pair, is_same).map(Place)) else {
            let tenant = self.tenants.intern(event.tenant, event.values, hashes.tenant);
            let place = self.arena.push(tenant, event.listing, Newest { slot, count });
            let text = event.tenant.len() + event.values.as_str().len() + event.listing.len();
            self.longest = self.longest.max(text);
            self.pairs.insert(hashes.pair, place.0);
            self.pairs_len += 1;
            return;
        };
        let newest = self.arena.newest(pair);
        if newest.slot == slot {
            let count = self.fill(Cell { pair, slot, count: newest.count }, count);
            self.arena.set_newest(pair, Newest { slot, count });
        } else if slot & QUARTER_MASK > newest.slot & QUARTER_MASK {
            // No cell of the newer slot is in the table: all there are as old as the newest at most.
            self.add_older(Cell { pair, slot: newest.slot, count: newest.count });
            self.arena.set_newest(pair, Newest { slot, count });
        } else {
            self.add_older(Cell { pair, slot, count });
        }
    }

    fn add_older(&mut self, cell: Cell) {
        let seed = self.seed;
        let hash_of = |cell: &Cell| cell_hash(seed, cell.pair, cell.slot);
        let is_same = |known: &Cell| known.pair == cell.pair && known.slot == cell.slot;
        let known = self.older.find(hash_of(&cell), is_same).copied();
        let Some(known) = known else {
            self.older.insert_unique(hash_of(&cell), cell, hash_of);
            return;
        };
        let count = self.fill(known, cell.count);
        if let Some(known) = self.older.find_mut(hash_of(&cell), is_same) {
            known.count = count;
        }
    }

    /// The count of a cell after an addition. The part that it cannot hold stays, and the full cell is put aside.
    fn fill(&mut self, cell: Cell, more: u32) -> u32 {
        let room = QUARTER_COUNT_MAX - cell.count;
        if more <= room {
            return cell.count + more;
        }
        self.full.push(Cell { count: QUARTER_COUNT_MAX, ..cell });
        more - room
    }

    pub fn is_empty(&self) -> bool {
        self.pairs_len == 0
    }

    /// The sum of all counts.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The sum of the counts whose value became [`OTHER`](crate::values::OTHER).
    pub fn others(&self) -> u64 {
        self.bounds.others()
    }

    pub fn size(&self) -> FoldSize {
        let older = self.older.capacity() * (size_of::<Cell>() + 1) * 8 / 7;
        let full = self.full.capacity() * size_of::<Cell>();
        let cells = self.pairs_len + self.older.len() + self.full.len();
        FoldSize {
            pairs: self.pairs_len,
            cells,
            text_max: cells * self.longest,
            bytes: self.pairs.bytes() + older + full + self.arena.bytes() + self.tenants.bytes() + self.bounds.bytes(),
        }
    }

    /// All counts as rows, sorted, one for each key unless a quarter's sum needs more.
    ///
    /// # Errors
    /// [`RowError::TooMuchText`]: the owner flushes before.
    pub fn rollups(&self) -> Result<Rollups, RowError> {
        self.rows_of(|_| true, self.size().cells)
    }

    /// The rows of one tenant.
    ///
    /// # Errors
    /// As of [`Fold::rollups`].
    pub fn rollups_of(&self, tenant: &str) -> Result<Rollups, RowError> {
        let plain = self.tenants.find(tenant, Values::NONE, bytes_hash(self.seed, tenant.as_bytes()));
        match (plain, self.bounds.is_empty()) {
            (None, _) => Ok(Rollups::new()),
            (Some(wanted), true) => self.rows_of(|tenant| tenant == wanted, 0),
            (Some(_), false) => {
                let is_wanted: Vec<bool> = self.tenants.all().map(|name| name == tenant).collect();
                self.rows_of(|tenant| is_wanted.get(tenant as usize).copied().unwrap_or(false), 0)
            }
        }
    }

    fn cells(&self) -> impl Iterator<Item = Cell> {
        let newest = self.arena.places().map(|pair| {
            let Newest { slot, count } = self.arena.newest(pair);
            Cell { pair, slot, count }
        });
        newest.chain(self.older.iter().copied()).chain(self.full.iter().copied())
    }

    fn rows_of(&self, is_wanted: impl Fn(u32) -> bool, expected: usize) -> Result<Rollups, RowError> {
        let mut rows = Rollups::with_room(expected);
        for cell in self.cells().filter(|cell| is_wanted(self.arena.tenant(cell.pair))) {
            let quarter = Quarter::from_number(cell.slot & QUARTER_MASK);
            let mut quarters = [0; 4];
            quarters[quarter.index()] = cell.count;
            let (tenant, values) = Values::split(self.tenants.text_of(self.arena.tenant(cell.pair)));
            rows.push_checked(RollupRow {
                tenant,
                values,
                listing: self.arena.listing(cell.pair),
                hour: quarter.hour(),
                event_type: self.types.name(EventType((cell.slot >> QUARTER_BITS) as u8)),
                quarters,
            })?;
        }
        rows.combine();
        Ok(rows)
    }
}

/// Quarter and type in one number.
fn slot(quarter: Quarter, event_type: EventType) -> u32 {
    quarter.number() | u32::from(event_type.0) << QUARTER_BITS
}

fn cell_hash(seed: u64, pair: Place, slot: u32) -> u64 {
    bytes_hash(seed, &(u64::from(pair.0) << 32 | u64::from(slot)).to_le_bytes())
}

impl Tenants {
    fn intern(&mut self, name: &str, values: Values<'_>, hash: u64) -> u32 {
        if !self.ends.is_empty() && self.is(self.last, name, values) {
            return self.last;
        }
        self.last = match self.find(name, values, hash) {
            Some(known) => known,
            None => self.push(name, values, hash),
        };
        self.last
    }

    fn find(&self, name: &str, values: Values<'_>, hash: u64) -> Option<u32> {
        self.index.find(hash, |at| self.is(at, name, values))
    }

    fn push(&mut self, name: &str, values: Values<'_>, hash: u64) -> u32 {
        let at = self.ends.len() as u32;
        self.text.push_str(name);
        self.text.push_str(values.as_str());
        self.ends.push(self.text.len());
        self.index.insert(hash, at);
        at
    }

    fn is(&self, at: u32, name: &str, values: Values<'_>) -> bool {
        let text = self.text_of(at);
        match values.is_empty() {
            true => text == name,
            false => text.strip_prefix(name) == Some(values.as_str()),
        }
    }

    /// The name, and the values behind it.
    fn text_of(&self, at: u32) -> &str {
        &self.text[self.start(at)..self.ends[at as usize]]
    }

    /// All names, without values.
    fn all(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len() as u32).map(|at| Values::split(self.text_of(at)).0)
    }

    fn start(&self, at: u32) -> usize {
        (at as usize).checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0)
    }

    fn bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<usize>() + self.index.bytes()
    }
}

#[cfg(test)]
mod tests;
