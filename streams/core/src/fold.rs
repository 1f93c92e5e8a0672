//! Folds events in memory: one count for each (tenant, listing, quarter of an hour, type).
//!
//! The layout is compact, as a partition holds millions of listings at a time. A pair (tenant, listing) is one record in an arena:
//! 9 bytes and the listing's id. A count is a cell of 12 bytes. Two hash tables of 4-byte places find them. An event of the quarter
//! that its pair counted last finds its cell without the second table.

mod arena;

use crate::event::{Event, EventType, EventTypes};
use crate::limits::QUARTER_COUNT_MAX;
use crate::rollup::{RollupRow, Rollups, RowError};
use crate::time::Quarter;
use arena::{Arena, Place};
use hashbrown::HashTable;
use tidemark_proto::hash::bytes_hash;

/// Bits of a slot that hold the quarter; the type is above.
const QUARTER_BITS: u32 = 24;
/// Cells of a chunk. Chunks do not move, so a fold never needs twice its memory in order to grow.
const CHUNK_CELLS: usize = 1 << 14;

/// Counts of events.
pub struct Fold {
    seed: u64,
    types: EventTypes,
    tenants: Tenants,
    arena: Arena,
    pairs: HashTable<Place>,
    cells: Cells,
    cell_index: HashTable<u32>,
    total: u64,
}

/// Names of tenants, and the hash table that finds them.
#[derive(Default)]
struct Tenants {
    names: Vec<Box<str>>,
    index: HashTable<u32>,
    last: u32,
    bytes: usize,
}

/// Cells in chunks.
#[derive(Default)]
struct Cells {
    chunks: Vec<Vec<Cell>>,
    len: usize,
}

#[derive(Clone, Copy)]
struct Cell {
    pair: Place,
    slot: u32,
    count: u32,
}

/// What a fold holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldSize {
    pub pairs: usize,
    pub cells: usize,
    /// Memory that is allocated.
    pub bytes: usize,
}

impl Fold {
    /// `seed` makes the places of ids in the hash tables unknown to whoever chooses the ids.
    pub fn new(types: EventTypes, seed: u64) -> Fold {
        Fold {
            seed,
            types,
            tenants: Tenants::default(),
            arena: Arena::default(),
            pairs: HashTable::new(),
            cells: Cells::default(),
            cell_index: HashTable::new(),
            total: 0,
        }
    }

    /// Counts an event.
    pub fn add(&mut self, event: &Event<'_>) {
        if event.count == 0 {
            return;
        }
        self.total += u64::from(event.count);
        let pair = self.pair(event.tenant, event.listing);
        let slot = slot(event.quarter, event.event_type);
        let last = self.arena.last_cell(pair);
        if self.cells.get(last).is_some_and(|cell| cell.pair == pair && cell.slot == slot) {
            return self.raise(last, event.count);
        }
        let hash = cell_hash(self.seed, pair, slot);
        let cells = &self.cells;
        let is_same = |at: &u32| cells.get(*at).is_some_and(|cell| cell.pair == pair && cell.slot == slot);
        match self.cell_index.find(hash, is_same) {
            Some(&at) => self.raise(at, event.count),
            None => self.open_cell(Cell { pair, slot, count: event.count }),
        }
    }

    /// Adds to a cell; what it cannot hold goes into a further cell of the same slot.
    fn raise(&mut self, at: u32, count: u32) {
        let Some(cell) = self.cells.get_mut(at) else { return };
        let room = QUARTER_COUNT_MAX - cell.count;
        cell.count += count.min(room);
        let pair = cell.pair;
        let slot = cell.slot;
        self.arena.set_last_cell(pair, at);
        if count > room {
            self.open_cell(Cell { pair, slot, count: count - room });
        }
    }

    /// A new cell, which the index finds from now on in place of an older one of the same slot.
    fn open_cell(&mut self, cell: Cell) {
        let at = self.cells.push(cell);
        let seed = self.seed;
        let cells = &self.cells;
        let hash = cell_hash(seed, cell.pair, cell.slot);
        let is_same = |at: &u32| cells.get(*at).is_some_and(|old| old.pair == cell.pair && old.slot == cell.slot);
        let hash_of = |at: &u32| cells.get(*at).map_or(0, |cell| cell_hash(seed, cell.pair, cell.slot));
        match self.cell_index.find_mut(hash, is_same) {
            Some(known) => *known = at,
            None => {
                self.cell_index.insert_unique(hash, at, hash_of);
            }
        }
        self.arena.set_last_cell(cell.pair, at);
    }

    fn pair(&mut self, tenant: &str, listing: &str) -> Place {
        let seed = self.seed;
        let arena = &self.arena;
        let tenant = self.tenants.intern(tenant, seed);
        let hash = pair_hash(seed, tenant, listing);
        let is_same = |place: &Place| arena.tenant(*place) == tenant && arena.listing(*place) == listing;
        if let Some(place) = self.pairs.find(hash, is_same) {
            return *place;
        }
        let place = self.arena.push(tenant, listing);
        let arena = &self.arena;
        self.pairs.insert_unique(hash, place, |place| pair_hash(seed, arena.tenant(*place), arena.listing(*place)));
        place
    }

    pub fn is_empty(&self) -> bool {
        self.cells.len == 0
    }

    /// The sum of all counts.
    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn size(&self) -> FoldSize {
        let tables = (self.pairs.capacity() + self.cell_index.capacity()) * (size_of::<u32>() + 1) * 8 / 7;
        FoldSize {
            pairs: self.pairs.len(),
            cells: self.cells.len,
            bytes: tables + self.arena.bytes() + self.cells.bytes() + self.tenants.bytes,
        }
    }

    /// All counts as rows, sorted, one for each key unless a quarter's sum needs more.
    ///
    /// # Errors
    /// [`RowError::TooMuchText`]: the owner flushes before.
    pub fn rollups(&self) -> Result<Rollups, RowError> {
        self.rows_of(|_| true)
    }

    /// The rows of one tenant.
    ///
    /// # Errors
    /// As of [`Fold::rollups`].
    pub fn rollups_of(&self, tenant: &str) -> Result<Rollups, RowError> {
        match self.tenants.find(tenant, self.seed) {
            Some(wanted) => self.rows_of(|tenant| tenant == wanted),
            None => Ok(Rollups::new()),
        }
    }

    fn rows_of(&self, is_wanted: impl Fn(u32) -> bool) -> Result<Rollups, RowError> {
        let mut rows = Rollups::new();
        for cell in self.cells.chunks.iter().flatten().filter(|cell| is_wanted(self.arena.tenant(cell.pair))) {
            let quarter = Quarter::from_number(cell.slot & ((1 << QUARTER_BITS) - 1));
            let mut quarters = [0; 4];
            quarters[quarter.index()] = cell.count;
            rows.push(RollupRow {
                tenant: self.tenants.name(self.arena.tenant(cell.pair)),
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

fn pair_hash(seed: u64, tenant: u32, listing: &str) -> u64 {
    bytes_hash(seed ^ u64::from(tenant).wrapping_mul(0x9e37_79b9_7f4a_7c15), listing.as_bytes())
}

fn cell_hash(seed: u64, pair: Place, slot: u32) -> u64 {
    bytes_hash(seed, &(u64::from(pair.0) << 32 | u64::from(slot)).to_le_bytes())
}

impl Tenants {
    fn intern(&mut self, name: &str, seed: u64) -> u32 {
        if self.names.get(self.last as usize).is_some_and(|last| **last == *name) {
            return self.last;
        }
        self.last = match self.find(name, seed) {
            Some(known) => known,
            None => self.push(name, seed),
        };
        self.last
    }

    fn find(&self, name: &str, seed: u64) -> Option<u32> {
        self.index.find(bytes_hash(seed, name.as_bytes()), |at| *self.names[*at as usize] == *name).copied()
    }

    fn push(&mut self, name: &str, seed: u64) -> u32 {
        let at = self.names.len() as u32;
        self.names.push(name.into());
        self.bytes += name.len() + size_of::<Box<str>>() + 2 * size_of::<u32>();
        let names = &self.names;
        let hash_of = |at: &u32| bytes_hash(seed, names[*at as usize].as_bytes());
        self.index.insert_unique(bytes_hash(seed, name.as_bytes()), at, hash_of);
        at
    }

    fn name(&self, at: u32) -> &str {
        &self.names[at as usize]
    }
}

impl Cells {
    fn get(&self, at: u32) -> Option<&Cell> {
        self.chunks.get(at as usize / CHUNK_CELLS)?.get(at as usize % CHUNK_CELLS)
    }

    fn get_mut(&mut self, at: u32) -> Option<&mut Cell> {
        self.chunks.get_mut(at as usize / CHUNK_CELLS)?.get_mut(at as usize % CHUNK_CELLS)
    }

    fn push(&mut self, cell: Cell) -> u32 {
        let at = self.len;
        if at / CHUNK_CELLS == self.chunks.len() {
            self.chunks.push(Vec::with_capacity(CHUNK_CELLS));
        }
        self.chunks[at / CHUNK_CELLS].push(cell);
        self.len += 1;
        at as u32
    }

    fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK_CELLS * size_of::<Cell>()
    }
}

#[cfg(test)]
mod tests;
