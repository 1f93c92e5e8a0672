//! The folder of an archive: changes of names that were not synced may be lost by a power cut, and a turn may be cut off at any of them.

use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_streams_intake::archive::file::FileName;

/// The entries of a file.
pub type Entries = Vec<Vec<u8>>;

#[derive(Debug, Default)]
pub struct Disk {
    files: BTreeMap<FileName, Entries>,
    /// What a power cut leaves at least.
    synced: BTreeMap<FileName, Entries>,
    /// Changes since, each of which a power cut takes back or not.
    changes: Vec<Change>,
    damaged: BTreeSet<FileName>,
    pub is_full: bool,
    /// Operations until the process ends.
    pub fuse: Option<u64>,
}

#[derive(Clone, Debug)]
enum Change {
    Put { name: FileName, entries: Entries },
    Rename { from: FileName, to: FileName },
    Remove(FileName),
}

/// Why an operation is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process has ended.
    Ended,
    Full,
}

impl Change {
    fn make(self, files: &mut BTreeMap<FileName, Entries>) {
        match self {
            Change::Put { name, entries } => {
                files.insert(name, entries);
            }
            Change::Rename { from, to } => {
                if let Some(entries) = files.remove(&from) {
                    files.insert(to, entries);
                }
            }
            Change::Remove(name) => {
                files.remove(&name);
            }
        }
    }
}

impl Disk {
    pub fn names(&self) -> Vec<FileName> {
        self.files.keys().copied().collect()
    }

    /// The entries of a file that can be read.
    pub fn read(&self, name: &FileName) -> Option<&Entries> {
        self.files.get(name).filter(|_| !self.damaged.contains(name))
    }

    /// All files, with what they hold or held before they were damaged.
    pub fn files(&self) -> impl Iterator<Item = (&FileName, &Entries)> {
        self.files.iter()
    }

    /// Writes a file under another name, syncs and renames it, and syncs the folder.
    pub fn replace(&mut self, name: FileName, entries: &Entries) -> Result<(), Fault> {
        self.operate()?;
        if self.is_full {
            return Err(Fault::Full);
        }
        self.operate()?;
        self.damaged.remove(&name);
        self.change(Change::Put { name, entries: entries.clone() });
        self.sync()
    }

    pub fn rename(&mut self, from: FileName, to: FileName) -> Result<(), Fault> {
        self.operate()?;
        self.change(Change::Rename { from, to });
        self.sync()
    }

    pub fn remove(&mut self, name: FileName) -> Result<(), Fault> {
        self.operate()?;
        self.change(Change::Remove(name));
        Ok(())
    }

    pub fn sync(&mut self) -> Result<(), Fault> {
        self.operate()?;
        self.synced = self.files.clone();
        self.changes.clear();
        Ok(())
    }

    /// A file becomes unreadable. `false`: there is none.
    pub fn damage(&mut self, rng: &mut Rng) -> Option<FileName> {
        let names = self.names();
        let name = *names.get(rng.below(names.len().max(1) as u64) as usize)?;
        self.damaged.insert(name);
        Some(name)
    }

    pub fn is_damaged(&self, name: &FileName) -> bool {
        self.damaged.contains(name)
    }

    /// An operator deletes the files that cannot be read.
    pub fn delete_damaged(&mut self) {
        for name in std::mem::take(&mut self.damaged) {
            self.change(Change::Remove(name));
        }
    }

    /// Each change since the last sync is there or not.
    pub fn power_cut(&mut self, rng: &mut Rng) {
        let mut left = std::mem::take(&mut self.synced);
        for change in std::mem::take(&mut self.changes) {
            if rng.percent(50) {
                change.make(&mut left);
            }
        }
        self.files = left.clone();
        self.synced = left;
    }

    fn change(&mut self, change: Change) {
        self.changes.push(change.clone());
        change.make(&mut self.files);
    }

    fn operate(&mut self) -> Result<(), Fault> {
        match &mut self.fuse {
            Some(0) => Err(Fault::Ended),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}
