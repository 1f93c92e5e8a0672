//! Names of cells as dense numbers (slots), compactly: about 43 bytes for a key of 24 bytes, index included.
//!
//! Slots are given in order of first sight and never change or go away. Names lie one after the other in one arena,
//! namespaces as numbers; the index is a hash table of slots that is never iterated.

use crate::hash::bytes_hash;
use crate::ids::{Bucket, CellId, CounterName, Half};
use crate::limits::NAMESPACES_MAX;
use hashbrown::HashTable;

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

/// An interner of cell ids.
#[derive(Clone, Debug, Default)]
pub struct CellTable {
    seed: u64,
    namespaces: Vec<String>,
    /// Records: flags (1), namespace (2), key length (1), generation (4, if any), span (4 + 8, if any), key.
    names: Vec<u8>,
    offsets: Vec<u32>,
    index: HashTable<u32>,
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
        let record = Record::of(cell, namespace);
        match self.find_record(record.bytes()) {
            Some(slot) => Ok(slot),
            None => self.push(record.bytes()),
        }
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

    /// The name of a slot. Panics if the slot was never given.
    pub fn name(&self, slot: u32) -> CellId {
        let record = self.record(slot);
        let namespace = &self.namespaces[usize::from(u16::from_le_bytes([record[1], record[2]]))];
        parse(record, namespace).expect("records are made from valid names")
    }

    /// The number of a slot's namespace among [`CellTable::namespaces`].
    pub fn namespace_of(&self, slot: u32) -> usize {
        let record = self.record(slot);
        usize::from(u16::from_le_bytes([record[1], record[2]]))
    }

    /// Reads of a slot what [`CellTable::namespace_of`] will.
    pub(crate) fn warm(&self, slot: u32) -> u64 {
        let offset = self.offsets.get(slot as usize).copied().unwrap_or_default();
        self.names.get(offset as usize).copied().unwrap_or_default().into()
    }

    /// Whether a slot is of an all-time total, and not of a bucket.
    pub fn is_total(&self, slot: u32) -> bool {
        self.record(slot)[0] & HAS_SPAN == 0
    }

    /// Namespace and key of a slot that is half of an all-time total; `None` of another bucket. Panics if the slot was never given.
    pub fn counter_of_total(&self, slot: u32) -> Option<(&str, &[u8])> {
        let record = self.record(slot);
        let namespace = &self.namespaces[usize::from(u16::from_le_bytes([record[1], record[2]]))];
        let key = &record[record.len() - usize::from(record[3])..];
        (record[0] & HAS_SPAN == 0).then_some((namespace, key))
    }

    /// An upper bound of the encoded size of a slot's name, bytes.
    pub fn name_bytes(&self, slot: u32) -> usize {
        self.record(slot).len() + crate::limits::NAMESPACE_BYTES_MAX
    }

    /// Whether so many cells more, of any names, are sure to fit.
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
    pub fn records(&self, from: u32, to: u32) -> &[u8] {
        &self.names[self.start(from)..self.start(to)]
    }

    /// A table with namespaces but no cells yet: the first step of loading.
    pub fn with_namespaces(seed: u64, namespaces: Vec<String>) -> CellTable {
        CellTable { seed, namespaces, ..CellTable::default() }
    }

    /// Makes room for `slots` cells with names of `bytes` altogether.
    pub fn reserve(&mut self, slots: usize, bytes: usize) {
        self.offsets.reserve_exact(slots);
        self.names.reserve_exact(bytes);
        let (names, offsets, seed) = (&self.names, &self.offsets, self.seed);
        self.index.reserve(slots, |&slot| bytes_hash(seed, record_at(names, offsets, slot)));
    }

    /// Appends records as made by [`CellTable::records`]. Errors leave what was good before the bad one.
    pub fn push_records(&mut self, mut records: &[u8]) -> Result<(), BadNames> {
        while !records.is_empty() {
            let bad = BadNames { slot: self.len() };
            let (record, rest) = split_record(records).ok_or(bad)?;
            let namespace = usize::from(u16::from_le_bytes([record[1], record[2]]));
            let known = self.namespaces.get(namespace).ok_or(bad)?;
            parse(record, known).ok_or(bad)?;
            if self.find_record(record).is_some() {
                return Err(bad);
            }
            self.push(record).map_err(|_| bad)?;
            records = rest;
        }
        Ok(())
    }

    fn push(&mut self, record: &[u8]) -> Result<u32, TableFull> {
        if self.offsets.len() >= SLOTS_MAX {
            return Err(TableFull { what: "slots", max: SLOTS_MAX as u64 });
        }
        if self.names.len() + record.len() > NAME_BYTES_MAX {
            return Err(TableFull { what: "bytes of names", max: NAME_BYTES_MAX as u64 });
        }
        let slot = self.offsets.len() as u32;
        self.offsets.push(self.names.len() as u32);
        self.names.extend_from_slice(record);
        let (names, offsets, seed) = (&self.names, &self.offsets, self.seed);
        let hash = bytes_hash(seed, record);
        self.index.insert_unique(hash, slot, |&slot| bytes_hash(seed, record_at(names, offsets, slot)));
        Ok(slot)
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
    let start = offsets[slot as usize] as usize;
    let end = offsets.get(slot as usize + 1).map_or(names.len(), |&offset| offset as usize);
    &names[start..end]
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
        let mut record = Record { bytes: [0; RECORD_BYTES_MAX], len: 0 };
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

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Where namespaces of a table stand in some list of those that have something; looked up once for each of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamespacePlaces {
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
    let generation = if head[0] & HAS_GENERATION != 0 { 4 } else { 0 };
    let span = if head[0] & HAS_SPAN != 0 { 12 } else { 0 };
    records.split_at_checked(HEAD_BYTES + generation + span + usize::from(head[3]))
}

fn parse(record: &[u8], namespace: &str) -> Option<CellId> {
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
    let half = if flags & IS_DOWN != 0 { Half::Down } else { Half::Up };
    let counter = CounterName::new(namespace, rest).ok()?;
    Some(CellId { counter, generation, half, bucket })
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
            loaded.push_records(table.records(0, half)).unwrap();
            loaded.push_records(table.records(half, table.len())).unwrap();
            for (slot, cell) in model.iter().enumerate() {
                prop_assert_eq!(&table.name(slot as u32), cell);
                prop_assert_eq!(&loaded.name(slot as u32), cell);
                prop_assert_eq!(loaded.find(cell), Some(slot as u32));
                let total = (cell.bucket == Bucket::Total).then_some((cell.counter.namespace(), cell.counter.key()));
                prop_assert_eq!(table.counter_of_total(slot as u32), total);
            }
        }

        #[test]
        fn bytes_that_are_no_names_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut table = CellTable::with_namespaces(0, vec!["a".into()]);
            let _ = table.push_records(&bytes);
            (0..table.len()).for_each(|slot| drop(table.name(slot)));
        }
    }
}
