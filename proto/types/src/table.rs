//! Names of cells as dense numbers (slots), compactly: about 43 bytes for a key of 24 bytes, index included.
//!
//! Slots are given in order of first sight and do not go away. A table that frees some slots is another table, and all its users
//! are told (decision 0065). A view gives the slot of an ended cell another name ([`CellTable::rename`], decision 0091). Names lie
//! in one arena, namespaces as numbers; the index is a hash table of slots that is never iterated.

use crate::hash::bytes_hash;
use crate::ids::{Bucket, CellId, CounterName, Half};
use crate::limits::NAMESPACES_MAX;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::borrow::Cow;
use std::ops::Range;

/// Bytes of names that one table holds (offsets are 32 bits). More: [`TableFull`].
pub const NAME_BYTES_MAX: usize = u32::MAX as usize - RECORD_BYTES_MAX;
/// Slots of one table; the upper half of 32 bits is left to the users of slots. More: [`TableFull`].
pub const SLOTS_MAX: usize = 1 << 31;
/// The longest record: head, generation, bucket, key.
const RECORD_BYTES_MAX: usize = HEAD_BYTES + 4 + 12 + 255;
/// Flags, namespace number, length of the key.
const HEAD_BYTES: usize = 4;
const HAS_GENERATION: u8 = 1;
const IS_DOWN: u8 = 2;
const HAS_SPAN: u8 = 4;
/// Names that are looked up together, so that their reads overlap ([`warm`](crate::warm)).
const TOGETHER: usize = 64;
/// Slots that the index of a table that is not empty has room for, at least.
const ROOM_MIN: usize = 8;
/// Records are put in order once more than this part of the arena is unused.
const UNUSED_DIVISOR: usize = 2;
/// In place of the new number of a freed slot.
pub const GONE: u32 = u32::MAX;

/// An interner of cell ids.
#[derive(Clone, Debug, Default)]
pub struct CellTable {
    seed: u64,
    namespaces: Vec<String>,
    /// Records: flags (1), namespace (2), key length (1), generation (4, if any), span (4 + 8, if any), key.
    names: Vec<u8>,
    offsets: Vec<u32>,
    index: HashTable<u32>,
    /// Bytes of `names` that no record uses any more, after renames of slots.
    unused: usize,
    /// Records are not in the order of slots, or have gaps between them.
    is_scattered: bool,
}

/// The table is at one of its limits; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} of a table of cells: at most {max}")]
pub struct TableFull {
    pub what: &'static str,
    pub max: u64,
}

/// Bytes that are not a run of cell records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed cell names in slot {slot}")]
pub struct BadNames {
    pub slot: u32,
}

impl CellTable {
    /// An empty table. The seed, if drawn at random, keeps chosen names from colliding; it shows nowhere else.
    pub fn new(seed: u64) -> CellTable {
        CellTable { seed, ..CellTable::default() }
    }

    /// Number of cells; the next new one gets this slot.
    pub fn len(&self) -> u32 {
        self.offsets.len() as u32
    }

    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The slot of a cell, a new one if it has none.
    pub fn intern(&mut self, cell: &CellId) -> Result<u32, TableFull> {
        let namespace = self.intern_namespace(cell.counter.namespace())?;
        self.intern_record(Record::of(cell, namespace).bytes()).map(|(slot, _)| slot)
    }

    /// The slot of a counter's all-time total in generation 0, a new one if it has none.
    pub fn intern_total(&mut self, counter: &CounterName) -> Result<u32, TableFull> {
        let namespace = self.intern_namespace(counter.namespace())?;
        let record = Record::new(counter, 0, Half::Up, Bucket::Total, namespace);
        self.intern_record(record.bytes()).map(|(slot, _)| slot)
    }

    /// Takes over all cells of another table that are not here, in their order.
    pub fn append(&mut self, other: &CellTable) -> Result<(), TableFull> {
        let numbers = other.namespaces.iter().map(|namespace| self.intern_namespace(namespace));
        let numbers: Vec<u16> = numbers.collect::<Result<_, _>>()?;
        let mut record = Record::empty();
        for slot in 0..other.len() {
            record.renumber(other.record(slot), numbers[other.namespace_of(slot)]);
            self.intern_record(record.bytes())?;
        }
        Ok(())
    }

    /// Gives a slot the name of another cell, which has no slot yet. Panics if the slot was never given.
    pub fn rename(&mut self, slot: u32, cell: &CellId) -> Result<(), TableFull> {
        let namespace = self.intern_namespace(cell.counter.namespace())?;
        let record = Record::of(cell, namespace);
        let record = record.bytes();
        debug_assert!(self.find_record(record).is_none(), "a cell has one slot");
        let start = self.start(slot);
        let held = self.record(slot).len();
        let fits = record.len() <= held;
        if !fits && room(0, self.names.len() + record.len()).is_err() {
            self.tidy();
        }
        room(0, self.names.len() + if fits { 0 } else { record.len() })?;
        if self.index.len() == self.index.capacity() {
            // Removed entries have used up the room.
            let room = self.index.len() + self.index.len() / 4;
            self.index_all(room.max(ROOM_MIN)).expect("each name is there once");
        }
        let before = bytes_hash(self.seed, self.record(slot));
        let entry = self.index.find_entry(before, |&held| held == slot);
        entry.expect("the index has each slot under its name").remove();
        match fits {
            true => self.names[start..start + record.len()].copy_from_slice(record),
            false => {
                self.offsets[slot as usize] = self.names.len() as u32;
                self.names.extend_from_slice(record);
            }
        }
        self.unused += if fits { held - record.len() } else { held };
        self.is_scattered |= record.len() != held;
        let names = &self.names;
        let offsets = &self.offsets;
        let seed = self.seed;
        let hash_of = |&slot: &u32| bytes_hash(seed, record_at(names, offsets, slot));
        self.index.insert_unique(bytes_hash(seed, record), slot, hash_of);
        if self.unused > self.names.len() / UNUSED_DIVISOR {
            self.tidy();
        }
        Ok(())
    }

    /// Puts all records into the order of their slots, without gaps.
    fn tidy(&mut self) {
        let mut names = Vec::with_capacity(self.names.len() - self.unused);
        for slot in 0..self.len() {
            let start = names.len() as u32;
            names.extend_from_slice(self.record(slot));
            self.offsets[slot as usize] = start;
        }
        (self.names, self.unused, self.is_scattered) = (names, 0, false);
    }

    /// A table of the cells with slots that are to stay, in their order; and by slot the new one, or [`GONE`].
    pub fn compacted(&self, stays: impl Fn(u32) -> bool) -> (CellTable, Vec<u32>) {
        let kept: Vec<u32> = (0..self.len()).filter(|&slot| stays(slot)).collect();
        let bytes = kept.iter().map(|&slot| self.record(slot).len()).sum();
        let mut table = CellTable::with_namespaces(self.seed, self.namespaces.clone());
        table.reserve_records(kept.len(), bytes);
        let mut places = vec![GONE; self.len() as usize];
        for slot in kept {
            places[slot as usize] = table.len();
            table.offsets.push(table.names.len() as u32);
            table.names.extend_from_slice(self.record(slot));
        }
        table.index_all(table.offsets.len()).expect("each name is there once");
        (table, places)
    }

    /// The slot of a cell, if it has one.
    pub fn find(&self, cell: &CellId) -> Option<u32> {
        let namespace = self.namespace_number(cell.counter.namespace())?;
        self.find_record(Record::of(cell, namespace).bytes())
    }

    /// The slot of a counter's all-time total in a generation ([`CounterName::total_of`]), if it has one.
    pub fn find_total(&self, counter: &CounterName, generation: u32) -> Option<u32> {
        self.find_half(counter, Half::Up, generation)
    }

    /// The slot of one half of it ([`CounterName::half_of`]), if it has one.
    pub fn find_half(&self, counter: &CounterName, half: Half, generation: u32) -> Option<u32> {
        let namespace = self.namespace_number(counter.namespace())?;
        self.find_record(Record::new(counter, generation, half, Bucket::Total, namespace).bytes())
    }

    /// Prefetches the memory that [`CellTable::find_total`] will read for a counter in generation 0.
    pub fn warm_total(&self, counter: &CounterName) -> u64 {
        let Some(namespace) = self.namespace_number(counter.namespace()) else { return 0 };
        let record = Record::new(counter, 0, Half::Up, Bucket::Total, namespace);
        self.warm_hash(bytes_hash(self.seed, record.bytes()))
    }

    /// Reads the memory that a look-up of this hash will read, the likely name included.
    fn warm_hash(&self, hash: u64) -> u64 {
        self.index.find(hash, |_| true).map_or(0, |&slot| self.warm(slot))
    }

    /// Finds the other table's slots that are half of an all-time total, in the order of the other table. Calls `found` with the
    /// slot there, its half and generation, and the slot here of the same counter's up half in generation 0.
    pub fn find_totals_of(&self, other: &CellTable, slots: Range<u32>, mut found: impl FnMut(u32, Half, u32, u32)) {
        let numbers: Vec<_> = other.namespaces.iter().map(|namespace| self.namespace_number(namespace)).collect();
        let mut record = Record::empty();
        let mut wanted: Vec<(u32, u16, u64)> = Vec::with_capacity(TOGETHER);
        let mut rest = slots;
        while !rest.is_empty() {
            let end = rest.end.min(rest.start + TOGETHER as u32);
            wanted.clear();
            for slot in rest.start..end {
                let there = other.record(slot);
                let Some(number) = numbers[other.namespace_of(slot)].filter(|_| there[0] & HAS_SPAN == 0) else {
                    continue;
                };
                record.begin(0, number, key_of(there));
                wanted.push((slot, number, bytes_hash(self.seed, record.bytes())));
            }
            let read = wanted.iter().fold(0u64, |sum, &(.., hash)| sum.wrapping_add(self.warm_hash(hash)));
            std::hint::black_box(read);
            for &(slot, number, hash) in &wanted {
                let there = other.record(slot);
                let is_it = |&here: &u32| is_plain(self.record(here), number, key_of(there));
                if let Some(&here) = self.index.find(hash, is_it) {
                    found(slot, half_of(there), generation_of(there), here);
                }
            }
            rest.start = end;
        }
    }

    /// The name of a slot. Panics if the slot was never given.
    pub fn name(&self, slot: u32) -> CellId {
        let (namespace, key, generation, half, bucket) = self.parts(slot);
        let counter = CounterName::new(namespace, key).expect("records are made from valid names");
        CellId { counter, generation, half, bucket }
    }

    /// The value of [`CellTable::name`] for a slot, borrowed.
    pub fn parts(&self, slot: u32) -> (&str, &[u8], u32, Half, Bucket) {
        let record = self.record(slot);
        let (key, generation, half, bucket) = parse(record).expect("records are made from valid names");
        (&self.namespaces[self.namespace_of(slot)], key, generation, half, bucket)
    }

    /// The number of a slot's namespace among [`CellTable::namespaces`].
    pub fn namespace_of(&self, slot: u32) -> usize {
        let record = self.record(slot);
        usize::from(u16::from_le_bytes([record[1], record[2]]))
    }

    /// Prefetches the memory of a slot that [`CellTable::namespace_of`] will read.
    pub fn warm(&self, slot: u32) -> u64 {
        let offset = self.offsets.get(slot as usize).copied().unwrap_or_default();
        self.names.get(offset as usize).copied().unwrap_or_default().into()
    }

    /// Whether a slot is of an all-time total, and not of a bucket.
    pub fn is_total(&self, slot: u32) -> bool {
        self.record(slot)[0] & HAS_SPAN == 0
    }

    /// The slots of all-time totals of generations after the first, of both halves.
    pub fn later_totals(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len()).filter(|&slot| self.record(slot)[0] & (HAS_GENERATION | HAS_SPAN) == HAS_GENERATION)
    }

    /// Namespace and key of a slot that is half of an all-time total; `None` of another bucket. Panics if the slot was never given.
    pub fn counter_of_total(&self, slot: u32) -> Option<(&str, &[u8])> {
        let record = self.record(slot);
        let namespace = &self.namespaces[usize::from(u16::from_le_bytes([record[1], record[2]]))];
        (record[0] & HAS_SPAN == 0).then_some((namespace, key_of(record)))
    }

    /// An upper bound of the encoded size of a slot's name, bytes.
    pub fn name_bytes(&self, slot: u32) -> usize {
        self.record(slot).len() + crate::limits::NAMESPACE_BYTES_MAX
    }

    /// Whether this number of further cells, of any names, is sure to fit.
    pub fn has_room(&self, cells: usize) -> bool {
        self.offsets.len() + cells <= SLOTS_MAX && self.names.len() + cells * RECORD_BYTES_MAX <= NAME_BYTES_MAX
    }

    /// Bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        self.names.capacity() + 4 * self.offsets.capacity() + self.index.allocation_size()
    }

    /// The namespaces by number, for a checkpoint.
    pub fn namespaces(&self) -> &[String] {
        &self.namespaces
    }

    /// The records of slots `from .. to`, for a checkpoint.
    pub fn records(&self, from: u32, to: u32) -> Cow<'_, [u8]> {
        match self.is_scattered {
            false => Cow::Borrowed(&self.names[self.start(from)..self.start(to)]),
            true => (from..to).flat_map(|slot| self.record(slot).iter().copied()).collect(),
        }
    }

    /// A table with namespaces but no cells yet: the first step of loading.
    pub fn with_namespaces(seed: u64, namespaces: Vec<String>) -> CellTable {
        CellTable { seed, namespaces, ..CellTable::default() }
    }

    /// Makes room for `slots` cells with names of `bytes` altogether.
    pub fn reserve(&mut self, slots: usize, bytes: usize) {
        self.reserve_records(slots, bytes);
        if self.index.capacity() - self.index.len() < slots {
            self.index_all(self.index.len() + slots).expect("each name is there once");
        }
    }

    /// Reserves memory for the records that [`CellTable::load_records`] appends.
    pub fn reserve_records(&mut self, slots: usize, bytes: usize) {
        self.offsets.reserve_exact(slots);
        self.names.reserve_exact(bytes);
    }

    /// Appends records as made by [`CellTable::records`]. They are not found before [`CellTable::index_loaded`], because an index
    /// that is made at once is never rebuilt while it grows. Errors leave the good records before the bad one.
    pub fn load_records(&mut self, mut records: &[u8]) -> Result<(), BadNames> {
        while !records.is_empty() {
            let bad = BadNames { slot: self.len() };
            let (record, rest) = split_record(records).ok_or(bad)?;
            check(record, &self.namespaces).ok_or(bad)?;
            room(self.offsets.len(), self.names.len() + record.len()).map_err(|_| bad)?;
            self.offsets.push(self.names.len() as u32);
            self.names.extend_from_slice(record);
            records = rest;
        }
        Ok(())
    }

    /// Makes the index of the loaded records. Error: a name is there twice.
    pub fn index_loaded(&mut self) -> Result<(), BadNames> {
        self.index_all(self.offsets.len())
    }

    /// A table of all records of another, as made by [`CellTable::records`]: nothing is copied, and the index is made at once.
    pub fn from_records(seed: u64, namespaces: Vec<String>, names: Vec<u8>) -> Result<CellTable, BadNames> {
        let mut offsets = Vec::new();
        let mut rest = &names[..];
        while !rest.is_empty() {
            let bad = BadNames { slot: offsets.len() as u32 };
            let (record, behind) = split_record(rest).ok_or(bad)?;
            check(record, &namespaces).ok_or(bad)?;
            room(offsets.len(), names.len() - behind.len()).map_err(|_| bad)?;
            offsets.push((names.len() - rest.len()) as u32);
            rest = behind;
        }
        offsets.shrink_to_fit();
        let mut table = CellTable { seed, namespaces, names, offsets, ..CellTable::default() };
        table.index_all(table.offsets.len()).map(|()| table)
    }

    /// Makes the index anew, with room for this number of slots, in their order. A table that grows by itself goes through its
    /// old index, and waits for each name. Error: a name is there twice.
    fn index_all(&mut self, room: usize) -> Result<(), BadNames> {
        self.index = HashTable::new();
        let names = &self.names;
        let offsets = &self.offsets;
        let seed = self.seed;
        let record = |slot: u32| record_at(names, offsets, slot);
        let hash_of = |slot: &u32| bytes_hash(seed, record(*slot));
        let mut index = HashTable::with_capacity(room);
        let mut hashes: Vec<(u32, u64)> = Vec::with_capacity(TOGETHER);
        for first in (0..offsets.len() as u32).step_by(TOGETHER) {
            let slots = first..(first + TOGETHER as u32).min(offsets.len() as u32);
            hashes.clear();
            hashes.extend(slots.map(|slot| (slot, hash_of(&slot))));
            std::hint::black_box(hashes.iter().filter(|&&(_, hash)| index.find(hash, |_| true).is_some()).count());
            for &(slot, hash) in &hashes {
                match index.entry(hash, |&held| record(held) == record(slot), hash_of) {
                    Entry::Occupied(_) => return Err(BadNames { slot }),
                    Entry::Vacant(free) => _ = free.insert(slot),
                }
            }
        }
        self.index = index;
        Ok(())
    }

    /// The slot of a record, and whether it is new.
    fn intern_record(&mut self, record: &[u8]) -> Result<(u32, bool), TableFull> {
        self.intern_hashed(record, bytes_hash(self.seed, record))
    }

    fn intern_hashed(&mut self, record: &[u8], hash: u64) -> Result<(u32, bool), TableFull> {
        if self.index.len() == self.index.capacity() {
            self.index_all((2 * self.index.len()).max(ROOM_MIN)).expect("each name is there once");
        }
        let names = &self.names;
        let offsets = &self.offsets;
        let seed = self.seed;
        let is_it = |&slot: &u32| record_at(names, offsets, slot) == record;
        let hash_of = |&slot: &u32| bytes_hash(seed, record_at(names, offsets, slot));
        let slot = offsets.len() as u32;
        match self.index.entry(hash, is_it, hash_of) {
            Entry::Occupied(held) => return Ok((*held.get(), false)),
            Entry::Vacant(free) => {
                room(offsets.len(), names.len() + record.len())?;
                free.insert(slot);
            }
        }
        self.offsets.push(self.names.len() as u32);
        self.names.extend_from_slice(record);
        Ok((slot, true))
    }

    fn find_record(&self, record: &[u8]) -> Option<u32> {
        let hash = bytes_hash(self.seed, record);
        self.index.find(hash, |&slot| record_at(&self.names, &self.offsets, slot) == record).copied()
    }

    fn namespace_number(&self, namespace: &str) -> Option<u16> {
        self.namespaces.iter().position(|known| known == namespace).map(|number| number as u16)
    }

    fn intern_namespace(&mut self, namespace: &str) -> Result<u16, TableFull> {
        if let Some(number) = self.namespace_number(namespace) {
            return Ok(number);
        }
        if self.namespaces.len() >= NAMESPACES_MAX {
            return Err(TableFull { what: "namespaces", max: NAMESPACES_MAX as u64 });
        }
        self.namespaces.push(namespace.to_owned());
        Ok(self.namespaces.len() as u16 - 1)
    }

    fn record(&self, slot: u32) -> &[u8] {
        record_at(&self.names, &self.offsets, slot)
    }

    fn start(&self, slot: u32) -> usize {
        self.offsets.get(slot as usize).map_or(self.names.len(), |&offset| offset as usize)
    }
}

const _: () = assert!(NAMESPACES_MAX <= u16::MAX as usize);

fn record_at<'a>(names: &'a [u8], offsets: &[u32], slot: u32) -> &'a [u8] {
    let behind = &names[offsets[slot as usize] as usize..];
    &behind[..record_len(behind)]
}

/// The length of the record that begins here, by its head.
fn record_len(record: &[u8]) -> usize {
    let generation = if record[0] & HAS_GENERATION != 0 { 4 } else { 0 };
    let span = if record[0] & HAS_SPAN != 0 { 12 } else { 0 };
    HEAD_BYTES + generation + span + usize::from(record[3])
}

/// Whether one more slot fits, and with it this number of bytes of names.
fn room(slots: usize, bytes: usize) -> Result<(), TableFull> {
    if slots >= SLOTS_MAX {
        return Err(TableFull { what: "slots", max: SLOTS_MAX as u64 });
    }
    if bytes > NAME_BYTES_MAX {
        return Err(TableFull { what: "bytes of names", max: NAME_BYTES_MAX as u64 });
    }
    Ok(())
}

fn key_of(record: &[u8]) -> &[u8] {
    &record[record.len() - usize::from(record[3])..]
}

fn half_of(record: &[u8]) -> Half {
    if record[0] & IS_DOWN != 0 { Half::Down } else { Half::Up }
}

fn generation_of(record: &[u8]) -> u32 {
    let generation = record[HEAD_BYTES..].first_chunk().filter(|_| record[0] & HAS_GENERATION != 0);
    generation.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Whether it is the record of a counter's up half in generation 0.
fn is_plain(record: &[u8], namespace: u16, key: &[u8]) -> bool {
    record[0] == 0 && record[1..3] == namespace.to_le_bytes() && &record[HEAD_BYTES..] == key
}

/// A record in the making, on the stack.
struct Record {
    bytes: [u8; RECORD_BYTES_MAX],
    len: usize,
}

impl Record {
    fn of(cell: &CellId, namespace: u16) -> Record {
        Record::new(&cell.counter, cell.generation, cell.half, cell.bucket, namespace)
    }

    fn new(counter: &CounterName, generation: u32, half: Half, bucket: Bucket, namespace: u16) -> Record {
        let key = counter.key();
        let mut record = Record::empty();
        let mut flags = if half == Half::Down { IS_DOWN } else { 0 };
        flags |= if generation != 0 { HAS_GENERATION } else { 0 };
        flags |= if bucket != Bucket::Total { HAS_SPAN } else { 0 };
        record.put(&[flags]);
        record.put(&namespace.to_le_bytes());
        record.put(&[key.len() as u8]);
        if generation != 0 {
            record.put(&generation.to_le_bytes());
        }
        if let Bucket::Span { length_s, start_s } = bucket {
            record.put(&length_s.to_le_bytes());
            record.put(&start_s.to_le_bytes());
        }
        record.put(key);
        record
    }

    fn empty() -> Record {
        Record { bytes: [0; RECORD_BYTES_MAX], len: 0 }
    }

    /// Makes it that of a cell without a generation or a span.
    fn begin(&mut self, flags: u8, namespace: u16, key: &[u8]) {
        self.len = 0;
        self.put(&[flags]);
        self.put(&namespace.to_le_bytes());
        self.put(&[key.len() as u8]);
        self.put(key);
    }

    /// Makes it another table's, with the number that the namespace has here.
    fn renumber(&mut self, record: &[u8], namespace: u16) {
        self.len = 0;
        self.put(record);
        self.bytes[1..3].copy_from_slice(&namespace.to_le_bytes());
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The positions of a table's namespaces in another list; looked up once for each namespace.
#[derive(Clone, Debug, Default)]
pub struct NamespacePlaces {
    /// By the number of a namespace in the table.
    places: Vec<Option<u16>>,
}

impl NamespacePlaces {
    /// The place in `list` of the namespace of a slot.
    pub fn of<T>(&mut self, slot: u32, table: &CellTable, list: &[T], name: impl Fn(&T) -> &str) -> Option<u16> {
        let number = table.namespace_of(slot);
        if number >= self.places.len() {
            let place = |namespace: &String| list.iter().position(|item| name(item) == namespace).map(|at| at as u16);
            self.places = table.namespaces().iter().map(place).collect();
        }
        self.places[number]
    }

    /// The list has become another.
    pub fn forget(&mut self) {
        self.places.clear();
    }
}

/// Splits the first record off, by its own account of its length.
fn split_record(records: &[u8]) -> Option<(&[u8], &[u8])> {
    let head = records.first_chunk::<HEAD_BYTES>()?;
    records.split_at_checked(record_len(head))
}

/// Checks a record of a table with these namespaces.
fn check(record: &[u8], namespaces: &[String]) -> Option<()> {
    let namespace = namespaces.get(usize::from(u16::from_le_bytes([record[1], record[2]])))?;
    CounterName::check(namespace, key_of(record)).ok()
}

/// Key, generation, half and bucket.
fn parse(record: &[u8]) -> Option<(&[u8], u32, Half, Bucket)> {
    let (head, mut rest) = record.split_first_chunk::<HEAD_BYTES>()?;
    let flags = head[0];
    let mut generation = 0;
    if flags & HAS_GENERATION != 0 {
        generation = u32::from_le_bytes(*take(&mut rest)?);
    }
    let mut bucket = Bucket::Total;
    if flags & HAS_SPAN != 0 {
        let length_s = u32::from_le_bytes(*take(&mut rest)?);
        bucket = Bucket::Span { length_s, start_s: u64::from_le_bytes(*take(&mut rest)?) };
    }
    Some((rest, generation, half_of(record), bucket))
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, left) = rest.split_first_chunk::<N>()?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cell() -> impl Strategy<Value = CellId> {
        let bucket = prop_oneof![
            Just(Bucket::Total),
            (any::<u32>(), 0u64..3).prop_map(|(length_s, start_s)| Bucket::Span { length_s, start_s })
        ];
        let half = prop_oneof![Just(Half::Up), Just(Half::Down)];
        let key = proptest::collection::vec(0u8..3, 1..4);
        ("[ab]{1,2}", key, 0u32..3, half, bucket).prop_map(|(namespace, key, generation, half, bucket)| CellId {
            counter: CounterName::new(&namespace, &key).unwrap(),
            generation,
            half,
            bucket,
        })
    }

    proptest! {
        #[test]
        fn a_cell_has_one_slot_and_a_slot_one_name(cells in proptest::collection::vec(cell(), 0..200), seed: u64) {
            let mut table = CellTable::new(seed);
            let mut model: Vec<CellId> = Vec::new();
            for cell in &cells {
                let known = model.iter().position(|other| other == cell);
                prop_assert_eq!(table.find(cell), known.map(|slot| slot as u32));
                let slot = table.intern(cell).unwrap();
                prop_assert_eq!(slot as usize, known.unwrap_or(model.len()));
                if known.is_none() {
                    model.push(cell.clone());
                }
            }
            let mut loaded = CellTable::with_namespaces(!seed, table.namespaces().to_vec());
            let half = table.len() / 2;
            loaded.load_records(&table.records(0, half)).unwrap();
            loaded.load_records(&table.records(half, table.len())).unwrap();
            loaded.index_loaded().unwrap();
            let at_once = CellTable::from_records(seed, table.namespaces().to_vec(), table.records(0, table.len()).to_vec());
            let at_once = at_once.unwrap();
            let mut appended = CellTable::new(!seed);
            appended.intern_namespace("b").unwrap();
            appended.append(&table).unwrap();
            for (slot, cell) in model.iter().enumerate() {
                for other in [&at_once, &appended] {
                    prop_assert_eq!((&other.name(slot as u32), other.find(cell)), (cell, Some(slot as u32)));
                }
                prop_assert_eq!(&table.name(slot as u32), cell);
                prop_assert_eq!(&loaded.name(slot as u32), cell);
                prop_assert_eq!(loaded.find(cell), Some(slot as u32));
                let total = (cell.bucket == Bucket::Total).then_some((cell.counter.namespace(), cell.counter.key()));
                prop_assert_eq!(table.counter_of_total(slot as u32), total);
            }
        }

        #[test]
        fn a_renamed_slot_is_found_by_its_new_name_only(
            cells in proptest::collection::vec(cell(), 1..60),
            names in proptest::collection::vec((any::<proptest::sample::Index>(), cell()), 0..200),
            seed: u64,
        ) {
            let mut table = CellTable::new(seed);
            cells.iter().for_each(|cell| _ = table.intern(cell).unwrap());
            let mut model: Vec<CellId> = (0..table.len()).map(|slot| table.name(slot)).collect();
            for (at, cell) in names {
                if model.contains(&cell) {
                    continue;
                }
                let slot = at.index(model.len());
                let before = std::mem::replace(&mut model[slot], cell.clone());
                table.rename(slot as u32, &cell).unwrap();
                prop_assert_eq!((table.find(&before), table.find(&cell)), (None, Some(slot as u32)));
                prop_assert!(table.unused <= table.names.len() / UNUSED_DIVISOR);
            }
            let used: usize = (0..table.len()).map(|slot| table.record(slot).len()).sum();
            prop_assert_eq!(used + table.unused, table.names.len());
            let half = table.len() / 2;
            let mut loaded = CellTable::with_namespaces(!seed, table.namespaces().to_vec());
            loaded.load_records(&table.records(0, half)).unwrap();
            loaded.load_records(&table.records(half, table.len())).unwrap();
            loaded.index_loaded().unwrap();
            let further = CounterName::new("c", b"further").unwrap().total();
            prop_assert_eq!(table.intern(&further).unwrap(), model.len() as u32);
            for (slot, cell) in (0..).zip(&model) {
                prop_assert_eq!((&table.name(slot), table.find(cell)), (cell, Some(slot)));
                prop_assert_eq!((&loaded.name(slot), loaded.find(cell)), (cell, Some(slot)));
            }
        }

        /// Some cells have counters that another table knows, as far as it was told their totals.
        #[test]
        fn all_totals_of_another_table_are_found(
            cells in proptest::collection::vec(cell(), 0..200),
            known in proptest::collection::vec(cell(), 0..200),
            seed: u64,
        ) {
            let mut there = CellTable::new(seed);
            let mut here = CellTable::new(!seed);
            known.iter().for_each(|cell| _ = here.intern(cell).unwrap());
            known.iter().for_each(|cell| _ = here.intern_total(&cell.counter).unwrap());
            cells.iter().for_each(|cell| _ = there.intern(cell).unwrap());
            let mut found = Vec::new();
            here.find_totals_of(&there, 0..there.len(), |slot, half, generation, total| {
                found.push((slot, half, generation, total));
            });
            let expected = (0..there.len()).filter_map(|slot| {
                let CellId { counter, generation, half, bucket } = there.name(slot);
                let total = here.find_total(&counter, 0).filter(|_| bucket == Bucket::Total)?;
                Some((slot, half, generation, total))
            });
            prop_assert_eq!(found, expected.collect::<Vec<_>>());
        }

        #[test]
        fn bytes_that_are_no_names_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut table = CellTable::with_namespaces(0, vec!["a".into()]);
            let pushed = table.load_records(&bytes).and_then(|()| table.index_loaded());
            (0..table.len()).for_each(|slot| drop(table.name(slot)));
            let at_once = CellTable::from_records(0, vec!["a".into()], bytes);
            prop_assert_eq!(at_once.map(|at_once| at_once.len()), pushed.map(|()| table.len()));
        }

        #[test]
        fn what_is_changed_in_names_is_refused_by_both_ways_of_loading_or_neither(
            cells in proptest::collection::vec(cell(), 1..150), at: proptest::sample::Index, value: u8,
        ) {
            let mut table = CellTable::new(0);
            cells.iter().for_each(|cell| _ = table.intern(cell).unwrap());
            let mut bytes = table.records(0, table.len()).to_vec();
            let at = at.index(bytes.len());
            bytes[at] = value;
            let mut pushed = CellTable::with_namespaces(0, table.namespaces().to_vec());
            let result = pushed.load_records(&bytes).and_then(|()| pushed.index_loaded());
            (0..pushed.len()).for_each(|slot| drop(pushed.name(slot)));
            let at_once = CellTable::from_records(0, table.namespaces().to_vec(), bytes);
            prop_assert_eq!(at_once.is_ok(), result.is_ok());
        }
    }

    fn numbered(number: u32) -> CellId {
        CounterName::new("a", &number.to_be_bytes()).unwrap().total()
    }

    #[test]
    fn an_index_keeps_its_size_however_often_slots_are_renamed() {
        let mut table = CellTable::new(1);
        (0..100).for_each(|number| _ = table.intern(&numbered(number)).unwrap());
        for number in 100..20_000 {
            table.rename(number % 100, &numbered(number)).unwrap();
        }
        assert!(table.index.len() == 100 && table.index.capacity() < 256, "{}", table.index.capacity());
        assert!((19_900..20_000).all(|number| table.find(&numbered(number)) == Some(number % 100)));
    }

    #[test]
    #[should_panic(expected = "the index has each slot under its name")]
    fn a_renamed_slot_that_is_not_in_the_index_panics() {
        let mut table = CellTable::new(1);
        (0..5).for_each(|number| _ = table.intern(&numbered(number)).unwrap());
        table.index.clear();
        let _ = table.rename(3, &numbered(7));
    }
}
