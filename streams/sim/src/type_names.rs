//! The names of event types and their dimension, derived from the entries of the log alone.
//!
//! A row has the name that its source gives. When an owner takes the row, the changes that the owner knows decide the type of the name; in
//! the intake's log only those that were made before the log took the row. Later changes rename or delete the row.

use crate::oracle::Row;
use crate::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tidemark_streams_core::blob::{BlobMeta, Epoch, Seq};
use tidemark_streams_core::manifest::{Command, Commit, Committed, Manifest, Outcome, Progress, TypesSet};
use tidemark_streams_core::owner::Content;
use tidemark_streams_core::rollup::{RollupRow, Rollups};
use tidemark_streams_core::schema::TypeChange;
use tidemark_streams_core::source::SourceId;

/// The number of changes that an owner knew.
pub type Known = usize;

/// The fate of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It counts under this name.
    Counts(String),
    /// Its type was deleted before it came.
    Refused,
    /// Its type was deleted since.
    Deleted,
}

#[derive(Debug, Default)]
pub struct TypeNames {
    changes: Vec<TypeChange>,
    /// Of each change: earlier rows of the intake's log keep the names before it.
    log_rows: Vec<u64>,
    in_use: BTreeSet<String>,
    /// The changes that owners knew when they took rows.
    taken: BTreeMap<(Epoch, SourceId, u64), Known>,
    /// The same for rows that were committed.
    counted: BTreeMap<(SourceId, u64), Known>,
    /// The number of changes when commits were applied.
    commits: BTreeMap<Seq, Known>,
    /// The first row of each commit with rows of a source, and the row behind its last row.
    windows: BTreeMap<(SourceId, u64), u64>,
}

impl TypeNames {
    pub fn known(&self) -> Known {
        self.changes.len()
    }

    /// An owner takes rows.
    pub fn on_taken(&mut self, epoch: Epoch, source: SourceId, rows: Range<u64>, known: Known) {
        rows.for_each(|row| {
            self.taken.insert((epoch, source, row), known);
        });
    }

    /// # Errors
    /// A description of the wrong names.
    pub fn on_applied(&mut self, command: &Command, outcome: &Outcome, store: &Store) -> Result<(), String> {
        if let (Command::Types(set), Outcome::Types { result: Ok(true) }) = (command, outcome)
            && let TypesSet::Change(change) = &set.set
        {
            let last = self.log_rows.last().copied().unwrap_or_default();
            self.log_rows.push(set.log_row.max(last));
            return self.follow(change);
        }
        if let (Command::Claim(claim), Outcome::Claim { result: Ok(_), .. }) = (command, outcome) {
            for name in claim.types.iter().flatten() {
                if self.bound(name, self.changes.len()).as_deref() == Some(name) {
                    self.in_use.insert(name.clone());
                }
            }
        }
        if let (Command::Commit(commit), Outcome::Commit { result: Ok(Committed::Now), .. }) = (command, outcome) {
            return self.committed(commit, store);
        }
        if let (Command::Replace(replace), Outcome::Replace { result: Ok(Committed::Now), .. }) = (command, outcome) {
            self.commits.insert(replace.seq, self.changes.len());
            return self.check_names(&replace.add, store);
        }
        Ok(())
    }

    fn follow(&mut self, change: &TypeChange) -> Result<(), String> {
        match change {
            TypeChange::Rename { from, to, merges } => {
                self.in_use.remove(from);
                if !self.in_use.insert(to.clone()) && !merges {
                    return Err(format!("{from} was renamed to {to}, which was in use"));
                }
            }
            TypeChange::Delete { name } => {
                self.in_use.remove(name);
            }
            TypeChange::Add { name } => {
                self.in_use.insert(name.clone());
            }
            TypeChange::AddDimension { .. } => {}
        }
        self.changes.push(change.clone());
        Ok(())
    }

    /// The blobs of a commit have names that are in use.
    fn committed(&mut self, commit: &Commit, store: &Store) -> Result<(), String> {
        self.commits.insert(commit.seq, self.changes.len());
        if let Some(Progress { source, from, to, .. }) = commit.progress {
            self.windows.insert((source, from), to);
            for row in from..to {
                let known = self.taken.get(&(commit.epoch, source, row)).copied().unwrap_or_default();
                self.counted.insert((source, row), known);
            }
        }
        self.check_names(&commit.add, store)
    }

    /// New blobs have names that are in use.
    fn check_names(&self, added: &[BlobMeta], store: &Store) -> Result<(), String> {
        for meta in added {
            let Some(Content::Rows(rows)) = store.truth(&meta.key) else { continue };
            if let Some(row) = rows.iter().find(|row| !self.in_use.contains(row.event_type)) {
                return Err(format!(
                    "blob {} was committed with rows of {}, which is no type",
                    meta.key, row.event_type
                ));
            }
        }
        Ok(())
    }

    /// The type of a name after a number of changes; `None`: it was deleted.
    fn bound(&self, name: &str, known: Known) -> Option<String> {
        let binding = (0..known).rev().find_map(|at| match &self.changes[at] {
            TypeChange::Rename { from, to, .. } if from == name => Some((at, Some(to.clone()))),
            TypeChange::Rename { to, .. } if to == name => Some((at, Some(to.clone()))),
            TypeChange::Delete { name: deleted } if deleted == name => Some((at, None)),
            TypeChange::Add { name: added } if added == name => Some((at, Some(added.clone()))),
            TypeChange::Rename { .. } | TypeChange::Delete { .. } | TypeChange::Add { .. } => None,
            TypeChange::AddDimension { .. } => None,
        });
        match binding {
            None => Some(name.to_owned()),
            Some((at, now)) => now.and_then(|now| self.moved(&now, at + 1..known)),
        }
    }

    /// The present name for a stored name after a range of changes; `None`: it was deleted.
    fn moved(&self, name: &str, changes: Range<usize>) -> Option<String> {
        let mut now = name.to_owned();
        for change in &self.changes[changes] {
            match change {
                TypeChange::Rename { from, to, .. } if *from == now => now.clone_from(to),
                TypeChange::Delete { name } if *name == now => return None,
                TypeChange::Rename { .. } | TypeChange::Delete { .. } | TypeChange::Add { .. } => {}
                TypeChange::AddDimension { .. } => {}
            }
        }
        Some(now)
    }

    /// The changes that decide what the name of a row means, of those that its owner knew.
    pub fn judged(&self, row: &Row, taken: Known) -> Known {
        match row.log_row() {
            Some(log_row) => self.log_rows.iter().take(taken).take_while(|first| **first <= log_row).count(),
            None => taken,
        }
    }

    /// The type as which an owner with some knowledge takes a row; `None`: it refuses the row.
    pub fn taken_as(&self, row: &Row, taken: Known) -> Option<String> {
        let judged = self.judged(row, taken);
        let meant = self.bound(row.event_type(), judged)?;
        let name = self.moved(&meant, judged..taken)?;
        (row.values().is_empty() || self.has_dimension(&name, taken)).then_some(name)
    }

    /// The fate, up to a later time, of a row that an owner took with some knowledge.
    pub fn fate(&self, row: &Row, taken: Known, now: Known) -> Fate {
        match self.taken_as(row, taken) {
            None => Fate::Refused,
            Some(name) => self.moved(&name, taken..now).map_or(Fate::Deleted, Fate::Counts),
        }
    }

    /// Whether a type has the dimension after a number of changes.
    fn has_dimension(&self, name: &str, known: Known) -> bool {
        let mut having: BTreeSet<&str> = BTreeSet::new();
        for change in &self.changes[..known] {
            match change {
                TypeChange::Rename { from, to, .. } => {
                    if having.remove(from.as_str()) {
                        having.insert(to);
                    }
                }
                TypeChange::Delete { name } | TypeChange::Add { name } => {
                    having.remove(name.as_str());
                }
                TypeChange::AddDimension { name, .. } => {
                    having.insert(name);
                }
            }
        }
        having.contains(name)
    }

    /// The first row of the commit that counted a row.
    pub fn window(&self, source: SourceId, row: u64) -> Option<u64> {
        let (&(of, from), &to) = self.windows.range(..=(source, row)).next_back()?;
        (of == source && row < to).then_some(from)
    }

    /// The changes that the owner of an epoch knew when it took a row.
    pub fn taken_by(&self, epoch: Epoch, source: SourceId, row: u64) -> Known {
        self.taken.get(&(epoch, source, row)).copied().unwrap_or_default()
    }

    /// The changes that the owner of a counted row knew when it took the row.
    pub fn taken(&self, source: SourceId, row: u64) -> Known {
        self.counted.get(&(source, row)).copied().unwrap_or_default()
    }

    /// The rows of a blob under their names now. A commit that is not applied knows all changes.
    pub fn of_blob(&self, seq: Seq, rows: &Rollups) -> Rollups {
        self.rows_of(self.known_by(seq), rows)
    }

    /// The number of changes when a commit was applied.
    pub fn known_by(&self, seq: Seq) -> Known {
        self.commits.get(&seq).copied().unwrap_or(self.changes.len())
    }

    /// Rows that were stored at a time under their names now.
    pub fn rows_of(&self, known: Known, rows: &Rollups) -> Rollups {
        let mut moved = Rollups::new();
        for row in rows.iter() {
            if let Some(name) = self.moved(row.event_type, known..self.changes.len()) {
                // Names of types are valid, and few.
                let _ = moved.push(RollupRow { event_type: &name, ..row });
            }
        }
        moved
    }

    /// Whether no live blob holds rows of deleted types.
    pub fn is_clean(&self, manifest: &Manifest, store: &Store) -> bool {
        let is_clean = |meta: &BlobMeta| match store.truth(&meta.key) {
            Some(Content::Rows(rows)) => self.of_blob(meta.key.seq, rows).len() == rows.len(),
            Some(Content::DeadLetters(_)) | None => true,
        };
        manifest.live().all(|meta| is_clean(&meta))
    }
}
