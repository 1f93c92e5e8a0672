//! A node's disk: what was appended and not synced is lost at a crash, from some entry on; a checkpoint part is there whole or
//! not at all.

use crate::rng::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use tidemark_proto::group::{Shelf, is_shelved};
use tidemark_proto::ids::LogIndex;

/// Rows of a checkpoint by key; an empty value deletes.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// The old buckets that are safe on a disk, for the process that reads them.
#[derive(Debug, Default)]
pub struct Shelved(Mutex<BTreeMap<Vec<u8>, Vec<u8>>>);

impl Shelf for Shelved {
    fn read(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }
}

#[derive(Clone, Debug, Default)]
pub struct Disk {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Of these, what a process reads while it runs.
    shelved: Arc<Shelved>,
    log: VecDeque<(LogIndex, Vec<u8>)>,
    synced: LogIndex,
    /// A part that is being written.
    writing: Option<Rows>,
    cut: LogIndex,
}

/// How much is on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskBytes {
    pub entries: u64,
    pub log: u64,
    pub rows: u64,
}

impl Disk {
    pub fn bytes(&self) -> DiskBytes {
        let rows = self.rows.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        let log = self.log.iter().map(|(_, entry)| entry.len()).sum::<usize>();
        DiskBytes { entries: self.log.len() as u64, log: log as u64, rows: rows as u64 }
    }

    pub fn append(&mut self, index: LogIndex, entry: Vec<u8>) {
        self.log.push_back((index, entry));
    }

    /// The last appended entry.
    pub fn last(&self) -> LogIndex {
        self.log.back().map_or(self.synced, |(index, _)| *index)
    }

    /// Everything up to `upto` is safe now; entries that were cut are gone.
    pub fn sync(&mut self, upto: LogIndex) {
        self.synced = self.synced.max(upto);
        while self.log.front().is_some_and(|(index, _)| *index < self.cut && *index <= self.synced) {
            self.log.pop_front();
        }
    }

    /// Entries after `after` and up to the last synced one.
    pub fn synced_after(&self, after: u64) -> impl Iterator<Item = &(LogIndex, Vec<u8>)> {
        self.log.iter().filter(move |(index, _)| index.0 > after && *index <= self.synced)
    }

    pub fn write(&mut self, rows: Rows) {
        self.writing = Some(rows);
    }

    /// Rows of the part that is being written; another disk keeps the rest.
    pub fn write_more(&mut self, rows: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) {
        self.writing.get_or_insert_default().extend(rows);
    }

    /// The part that was being written is safe now.
    pub fn written(&mut self) {
        let mut shelved = self.shelved.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in self.writing.take().unwrap_or_default() {
            if is_shelved(&key) {
                match value.is_empty() {
                    true => drop(shelved.remove(&key)),
                    false => drop(shelved.insert(key.clone(), value.clone())),
                }
            }
            if value.is_empty() {
                self.rows.remove(&key);
            } else {
                self.rows.insert(key, value);
            }
        }
    }

    /// Lets the log forget entries before this one, some time later.
    pub fn cut(&mut self, before: LogIndex) {
        self.cut = self.cut.max(before);
    }

    /// The machine stops: some prefix of the unsynced entries survives, the part being written survives or not. How many entries
    /// and parts are lost.
    pub fn crash(&mut self, rng: &mut Rng) -> (usize, usize) {
        let unsynced = self.log.iter().filter(|(index, _)| *index > self.synced).count();
        let lost = rng.below(unsynced as u64 + 1) as usize;
        self.log.truncate(self.log.len() - lost);
        if rng.per_10k(5_000) {
            self.written();
        }
        let parts = usize::from(self.writing.take().is_some());
        self.synced = self.last();
        (lost, parts)
    }

    /// The safe content of the disk, with entries up to `upto`.
    pub fn copy(&self, upto: LogIndex) -> Disk {
        let synced = self.synced.min(upto);
        let log = self.log.iter().filter(|(index, _)| *index <= synced).cloned().collect();
        Disk { log, synced, writing: None, shelved: Arc::default(), ..self.clone() }
    }

    /// A disk with these rows, and nothing else.
    pub fn of_rows(rows: Rows) -> Disk {
        Disk { rows: rows.into_iter().collect(), ..Disk::default() }
    }

    /// A disk with the same rows, and nothing else.
    pub fn copy_of_rows(&self) -> Disk {
        Disk { rows: self.rows.clone(), ..Disk::default() }
    }

    /// A process starts: where it reads old buckets.
    pub fn shelf(&mut self) -> Arc<Shelved> {
        let shelved = self.rows.iter().filter(|(key, _)| is_shelved(key));
        let shelved = shelved.map(|(key, value)| (key.clone(), value.clone())).collect();
        self.shelved = Arc::new(Shelved(Mutex::new(shelved)));
        self.shelved.clone()
    }

    pub fn rows(&self) -> Rows {
        self.rows.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    pub fn entries(&self) -> Vec<(LogIndex, Vec<u8>)> {
        self.log.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_loses_unsynced_entries_from_some_entry_on_and_no_synced_one() {
        let mut lost_all = false;
        for seed in 0..50 {
            let mut disk = Disk::default();
            (1..=5).for_each(|n| disk.append(LogIndex(n), vec![n as u8]));
            disk.sync(LogIndex(2));
            disk.crash(&mut Rng::new(seed));
            let left: Vec<u64> = disk.entries().iter().map(|(index, _)| index.0).collect();
            assert!(left.len() >= 2 && left.iter().copied().eq(1..=left.len() as u64));
            lost_all |= left.len() == 2;
        }
        assert!(lost_all);
    }
}
