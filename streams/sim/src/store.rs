//! A store with files that are lost unless they were synced.

use crate::rng::Rng;
use std::collections::BTreeMap;
use tidemark_streams_core::blob::{BlobKey, StoredBlob};
use tidemark_streams_core::owner::{Content, Put};
use tidemark_streams_core::recover::{Files, Found};

#[derive(Debug, Default)]
pub struct Store {
    files: BTreeMap<BlobKey, File>,
}

#[derive(Debug)]
struct File {
    content: Content,
    /// What it says of itself.
    found: Option<Found>,
    state: FileState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileState {
    /// Written by a process that has not yet been told that it is synced.
    Unsynced,
    Synced,
    /// Its tail is missing.
    Torn,
    /// It was synced, and cannot be read any more.
    Damaged,
}

/// The effect of a power cut.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lost {
    pub files: u64,
}

impl Store {
    /// Writes a file that says nothing of itself. `false`: there is one of this name.
    pub fn write(&mut self, key: BlobKey, content: Content) -> bool {
        self.add(key, File { content, found: None, state: FileState::Unsynced })
    }

    /// Writes a blob. `false`: there is a file of its name.
    pub fn put(&mut self, put: Put) -> bool {
        let Put { key, level, scope, origin, after, dimensions: _, content } = put;
        let meta = content.meta(key, level, scope, StoredBlob { bytes: 1, checksum: checksum(key) });
        let found = Some(Found { meta, origin, after: Some(after) });
        self.add(key, File { content, found, state: FileState::Unsynced })
    }

    fn add(&mut self, key: BlobKey, file: File) -> bool {
        let is_new = !self.files.contains_key(&key);
        if is_new {
            self.files.insert(key, file);
        }
        is_new
    }

    /// All files, as they lie there.
    pub fn files(&self) -> Files {
        let mut files = Files::default();
        for (key, file) in &self.files {
            match file.state {
                FileState::Unsynced | FileState::Synced => files.whole.extend(file.found.clone()),
                FileState::Torn | FileState::Damaged => files.damaged.push(*key),
            }
        }
        files
    }

    /// Syncs a file; `None` where it was lost meanwhile.
    pub fn sync(&mut self, key: BlobKey) -> Option<StoredBlob> {
        let file = self.files.get_mut(&key).filter(|file| file.state != FileState::Torn)?;
        file.state = FileState::Synced;
        Some(StoredBlob { bytes: 1, checksum: checksum(key) })
    }

    /// A write fails half way.
    pub fn tear(&mut self, key: BlobKey) {
        if let Some(file) = self.files.get_mut(&key) {
            file.state = FileState::Torn;
        }
    }

    /// The content of a whole file.
    pub fn read(&self, key: &BlobKey) -> Option<&Content> {
        self.truth(key).filter(|_| !self.is_damaged(key))
    }

    /// What a file holds or held before it was damaged. Checkers look at it.
    pub fn truth(&self, key: &BlobKey) -> Option<&Content> {
        self.files.get(key).filter(|file| file.state != FileState::Torn).map(|file| &file.content)
    }

    /// A file that was stored becomes unreadable. `false`: there is none.
    pub fn damage(&mut self, key: &BlobKey) -> bool {
        let file = self.files.get_mut(key).filter(|file| file.state == FileState::Synced);
        file.map(|file| file.state = FileState::Damaged).is_some()
    }

    /// A damaged file is restored from a copy.
    pub fn restore(&mut self, key: &BlobKey) {
        if let Some(file) = self.files.get_mut(key).filter(|file| file.state == FileState::Damaged) {
            file.state = FileState::Synced;
        }
    }

    pub fn has_damaged(&self) -> bool {
        self.files.values().any(|file| file.state == FileState::Damaged)
    }

    pub fn is_damaged(&self, key: &BlobKey) -> bool {
        self.files.get(key).is_some_and(|file| file.state == FileState::Damaged)
    }

    /// Whether a file was stored, so that a power cut does not take it.
    pub fn is_durable(&self, key: &BlobKey) -> bool {
        self.files.get(key).is_some_and(|file| matches!(file.state, FileState::Synced | FileState::Damaged))
    }

    pub fn list(&self) -> Vec<BlobKey> {
        self.files.keys().copied().collect()
    }

    pub fn delete(&mut self, key: &BlobKey) -> bool {
        self.files.remove(key).is_some()
    }

    /// Files that were not synced are lost, torn, or kept by luck.
    pub fn power_cut(&mut self, rng: &mut Rng) -> Lost {
        let mut lost = Lost::default();
        self.files.retain(|_, file| {
            if file.state != FileState::Unsynced {
                return true;
            }
            lost.files += 1;
            file.state = if rng.percent(50) { FileState::Torn } else { FileState::Synced };
            rng.percent(60)
        });
        lost
    }
}

pub fn checksum(key: BlobKey) -> u64 {
    key.epoch.0 << 32 | key.seq.0 << 8 | u64::from(key.part)
}
