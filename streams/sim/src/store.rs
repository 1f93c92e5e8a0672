//! A store with files that are lost unless they were synced.

use crate::rng::Rng;
use std::collections::BTreeMap;
use tidemark_streams_core::blob::{BlobKey, StoredBlob};
use tidemark_streams_core::owner::Content;

#[derive(Debug, Default)]
pub struct Store {
    files: BTreeMap<BlobKey, File>,
}

#[derive(Debug)]
struct File {
    content: Content,
    state: FileState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileState {
    /// Written by a process that has not yet been told that it is synced.
    Unsynced,
    Synced,
    /// Its tail is missing.
    Torn,
}

/// The effect of a power cut.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lost {
    pub files: u64,
}

impl Store {
    /// Writes a file. `false`: there is one of this name.
    pub fn write(&mut self, key: BlobKey, content: Content) -> bool {
        let is_new = !self.files.contains_key(&key);
        if is_new {
            self.files.insert(key, File { content, state: FileState::Unsynced });
        }
        is_new
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
        self.files.get(key).filter(|file| file.state != FileState::Torn).map(|file| &file.content)
    }

    /// Whether a file is there, whole, and would outlive a power cut.
    pub fn is_durable(&self, key: &BlobKey) -> bool {
        self.files.get(key).is_some_and(|file| file.state == FileState::Synced)
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
