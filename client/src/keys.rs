//! Counting by name: every thread has a table of its own from names to slots, which it alone changes.
//!
//! The flusher shares only the slots and, when a name is new, the list of names. A table that is full, or that belongs to an ended thread,
//! is closed: the flusher takes its content and forgets it.

use crate::error::AddError;
use crate::limits::KEYS_PER_THREAD_MAX;
use hashbrown::HashTable;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use tidemark_proto::ids::CounterName;

const CHUNK: usize = 1 << 10;

type Chunk = Box<[AtomicU64]>;

/// The part of a thread's table that the flusher shares.
#[derive(Debug)]
pub(crate) struct KeySlots {
    chunks: Box<[OnceLock<Chunk>]>,
    names: Mutex<Vec<CounterName>>,
    closed: AtomicBool,
    taken: AtomicBool,
}

impl KeySlots {
    fn new() -> KeySlots {
        let chunks = (0..KEYS_PER_THREAD_MAX / CHUNK).map(|_| OnceLock::new()).collect();
        let (names, closed, taken) = Default::default();
        KeySlots { chunks, names, closed, taken }
    }

    /// Names from number `known` on, in order of their slots.
    pub fn names_from(&self, known: usize) -> Vec<CounterName> {
        self.lock_names()[known..].to_vec()
    }

    /// All that was ever added to a slot, modulo 2^64.
    pub fn sum(&self, slot: usize) -> u64 {
        self.chunks[slot / CHUNK].get().map_or(0, |chunk| chunk[slot % CHUNK].load(Ordering::Relaxed))
    }

    /// Nothing more is added, and all that was is seen from here on.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The flusher has everything of this closed table.
    pub fn set_taken(&self) {
        self.taken.store(true, Ordering::Release);
    }

    fn lock_names(&self) -> MutexGuard<'_, Vec<CounterName>> {
        self.names.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn slot(&self, slot: usize) -> &AtomicU64 {
        let fresh = || (0..CHUNK).map(|_| AtomicU64::new(0)).collect();
        &self.chunks[slot / CHUNK].get_or_init(fresh)[slot % CHUNK]
    }
}

/// Where new tables are announced to the flusher.
#[derive(Debug)]
pub(crate) struct KeyTables {
    seed: u64,
    fresh: Mutex<Vec<Arc<KeySlots>>>,
}

/// A name in a thread's table: its bytes stand in the table's arena, namespace first.
#[derive(Clone, Copy)]
struct Entry {
    hash: u32,
    slot: u32,
    at: u32,
    namespace: u8,
    key: u8,
}

/// One thread's table for one client.
struct ThreadTable {
    of: *const KeyTables,
    seed: u64,
    index: HashTable<Entry>,
    arena: Vec<u8>,
    slots: Arc<KeySlots>,
    /// The table before, full and perhaps not yet taken.
    before: Option<Arc<KeySlots>>,
}

impl Drop for ThreadTable {
    fn drop(&mut self) {
        self.slots.closed.store(true, Ordering::Release);
    }
}

thread_local! {
    static TABLES: RefCell<Vec<ThreadTable>> = const { RefCell::new(Vec::new()) };
}

impl KeyTables {
    pub fn new(seed: u64) -> KeyTables {
        KeyTables { seed, fresh: Mutex::default() }
    }

    /// Tables that the flusher has not yet seen.
    pub fn take_fresh(&self) -> Vec<Arc<KeySlots>> {
        std::mem::take(&mut self.fresh.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    fn announce(&self) -> Arc<KeySlots> {
        let slots = Arc::new(KeySlots::new());
        self.fresh.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(slots.clone());
        slots
    }

    /// Adds to a counter by name. Allocates only when this thread sees the name for the first time.
    #[inline]
    pub fn add(&self, namespace: &str, key: &[u8], n: u64) -> Result<(), AddError> {
        TABLES
            .try_with(|tables| {
                let mut tables = tables.try_borrow_mut().map_err(|_| AddError::ThreadEnding)?;
                let of: *const KeyTables = self;
                // Nearly always the first: a process has one client. Seeds are random: an address may be used again.
                let at = tables.iter().position(|table| table.of == of && table.seed == self.seed);
                let at = at.unwrap_or_else(|| self.begin(&mut tables));
                tables[at].add(self, namespace, key, n)
            })
            .unwrap_or(Err(AddError::ThreadEnding))
    }

    #[cold]
    fn begin(&self, tables: &mut Vec<ThreadTable>) -> usize {
        tables.retain(|table| Arc::strong_count(&table.slots) > 1);
        let index = HashTable::new();
        let arena = Vec::new();
        let before = None;
        tables.push(ThreadTable { of: self, seed: self.seed, index, arena, slots: self.announce(), before });
        tables.len() - 1
    }
}

impl ThreadTable {
    #[inline]
    fn add(&mut self, tables: &KeyTables, namespace: &str, key: &[u8], n: u64) -> Result<(), AddError> {
        let hash = hash(hash(self.seed, namespace.as_bytes()), key);
        let found = self.index.find(hash, |entry| {
            entry.hash == hash as u32
                && usize::from(entry.namespace) == namespace.len()
                && usize::from(entry.key) == key.len()
                && {
                    let start = entry.at as usize;
                    let middle = entry.at as usize + namespace.len();
                    self.arena[middle..middle + key.len()] == *key && self.arena[start..middle] == *namespace.as_bytes()
                }
        });
        let slot = match found {
            Some(entry) => entry.slot as usize,
            None => self.insert(tables, hash, namespace, key)?,
        };
        let slot = self.slots.slot(slot);
        slot.store(slot.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        Ok(())
    }

    #[cold]
    fn insert(&mut self, tables: &KeyTables, hash: u64, namespace: &str, key: &[u8]) -> Result<usize, AddError> {
        let name = CounterName::new(namespace, key)?;
        if self.index.len() >= KEYS_PER_THREAD_MAX {
            self.begin_again(tables)?;
        }
        let slot = self.index.len();
        let at = self.arena.len() as u32;
        self.arena.extend_from_slice(namespace.as_bytes());
        self.arena.extend_from_slice(key);
        let namespace = namespace.len() as u8;
        let key = key.len() as u8;
        let entry = Entry { hash: hash as u32, slot: slot as u32, at, namespace, key };
        let arena = &self.arena;
        let seed = self.seed;
        self.index.insert_unique(hash, entry, |entry| entry.hash_in(seed, arena));
        self.slots.lock_names().push(name);
        Ok(slot)
    }

    fn begin_again(&mut self, tables: &KeyTables) -> Result<(), AddError> {
        if self.before.as_ref().is_some_and(|before| !before.taken.load(Ordering::Acquire)) {
            return Err(AddError::TooManyKeys);
        }
        let full = std::mem::replace(&mut self.slots, tables.announce());
        full.closed.store(true, Ordering::Release);
        self.before = Some(full);
        self.index.clear();
        self.arena.clear();
        Ok(())
    }
}

impl Entry {
    fn hash_in(&self, seed: u64, arena: &[u8]) -> u64 {
        let start = self.at as usize;
        let middle = self.at as usize + usize::from(self.namespace);
        hash(hash(seed, &arena[start..middle]), &arena[middle..middle + usize::from(self.key)])
    }
}

/// A seeded hash of bytes, eight at a time, by folded multiplication. The seed is random: keys come from outside.
#[inline]
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = fold(hash ^ u64::from_le_bytes(*word), 0xe703_7ed1_a0b4_28db);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(hash ^ u64::from_le_bytes(last), 0x8ebc_6af0_9c88_c6e3)
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn totals(tables: &[Arc<KeySlots>]) -> BTreeMap<String, u64> {
        let mut totals = BTreeMap::new();
        for table in tables {
            for (slot, name) in table.names_from(0).iter().enumerate() {
                *totals.entry(name.to_string()).or_default() += table.sum(slot);
            }
        }
        totals
    }

    #[test]
    fn threads_that_end_leave_what_they_counted_and_close_their_tables() {
        let tables = KeyTables::new(7);
        let count = || {
            for round in 0..10u64 {
                for key in 0..2_000u32 {
                    tables.add("search", format!("key-{key}").as_bytes(), round).unwrap();
                }
            }
        };
        // A scope ends with its closures; only `join` waits for what threads destroy after them.
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(count)).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        let fresh = tables.take_fresh();
        assert!(fresh.len() == 3 && fresh.iter().all(|slots| slots.is_closed()));
        let totals = totals(&fresh);
        assert_eq!(totals.len(), 2_000);
        assert!(totals.values().all(|total| *total == 3 * 45));
    }

    #[test]
    fn names_outside_the_limits_are_refused_and_namespaces_are_kept_apart() {
        let tables = KeyTables::new(7);
        assert!(matches!(tables.add("Search", b"k", 1), Err(AddError::Name(_))));
        assert!(matches!(tables.add("search", b"", 1), Err(AddError::Name(_))));
        tables.add("ab", b"c", 1).unwrap();
        tables.add("a", b"bc", 2).unwrap();
        let totals = totals(&tables.take_fresh());
        assert_eq!(totals.into_iter().collect::<Vec<_>>(), [("a/bc".into(), 2), ("ab/c".into(), 1)]);
    }

    #[test]
    fn a_full_table_is_followed_by_another_once_the_one_before_was_taken() {
        let tables = KeyTables::new(7);
        let add = |key: usize| tables.add("search", &key.to_le_bytes(), 1);
        (0..2 * KEYS_PER_THREAD_MAX).for_each(|key| add(key).unwrap());
        assert!(matches!(add(usize::MAX), Err(AddError::TooManyKeys)));
        let fresh = tables.take_fresh();
        assert_eq!(fresh.iter().map(|slots| slots.is_closed()).collect::<Vec<_>>(), [true, false]);
        fresh[0].set_taken();
        add(usize::MAX).unwrap();
    }
}
