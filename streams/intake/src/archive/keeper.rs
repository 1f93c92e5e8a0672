//! The work on an archive, one step after the other: which rows are archived, when files go, and how far the log may be cut.
//!
//! The shell carries a step out, and says how it ended. A kill may come at any moment: the next start has the files that are there.

use super::file::FileName;
use super::index::{Found, Index, Rules, Work};
use crate::entry::Head;
use std::collections::BTreeSet;
use tidemark_streams_core::teeth::{Bug, bites};

/// The archive apart from its disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keeper {
    index: Index,
    /// Files that are still there although others hold their rows.
    replaced: Vec<FileName>,
    /// Files that could not be read.
    damaged: BTreeSet<FileName>,
    /// Rows before this one are archived, or were never to be.
    end: u64,
    /// Files could not be removed in this turn.
    cannot_remove: bool,
    /// A power cut may take files back that were there at the start.
    is_unsynced: bool,
}

/// What a turn goes by.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The row behind the last entry of the log that has counted rows only.
    pub counted: Option<u64>,
    pub now_ms: u64,
    /// How long an event is kept. `None`: none is.
    pub keep_ms: Option<u64>,
    /// The number of erasures, if all of them are done in blobs.
    pub erasures: Option<u64>,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sync the folder.
    Sync,
    /// Remove files.
    Remove(Vec<FileName>),
    /// Write a file of counted entries of the log from a row on.
    Append { from: u64 },
    /// Write the rows of files that are not erased to a new file. A file without erased rows is renamed instead.
    Rewrite { old: Vec<FileName>, new: FileName },
}

/// Entries of the log that become a file.
#[derive(Clone, Copy, Debug)]
pub struct Append {
    name: Option<FileName>,
    end: u64,
    erasures: u64,
}

/// The row up to which the log may be cut. `archived`: the row up to which rows are archived; `None`: no archive is kept.
pub fn cut_to(committed: u64, archived: Option<u64>) -> u64 {
    match archived {
        Some(archived) if !bites(Bug::LogCutBeforeArchive) => committed.min(archived),
        Some(_) | None => committed,
    }
}

impl Keeper {
    /// The archive as its folder has it. A kill may have come between the name of a file and its sync.
    pub fn new(found: Found) -> Keeper {
        let Found { index, superseded } = found;
        let is_unsynced = !index.is_empty() && !bites(Bug::UnsyncedRawFilesTrusted);
        Keeper { end: index.end(), index, replaced: superseded, is_unsynced, ..Keeper::default() }
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    pub fn damaged(&self) -> &BTreeSet<FileName> {
        &self.damaged
    }

    /// Rows before this one are archived, or were never to be, whatever is cut off now.
    pub fn end(&self) -> u64 {
        if self.is_unsynced { 0 } else { self.end }
    }

    /// Files that may hold rows of these erasures.
    pub fn unclean(&self, erasures: Option<u64>) -> u64 {
        let files = erasures.map_or(self.index.len(), |count| self.index.unclean(count).count());
        (files + self.replaced.len()) as u64
    }

    /// Whether counted rows wait to be archived.
    pub fn has_rows(&self, turn: &Turn) -> bool {
        turn.keep_ms.is_some() && turn.counted.is_some_and(|end| end > self.end)
    }

    /// A turn begins.
    pub fn begin(&mut self) {
        self.cannot_remove = false;
    }

    /// The next step. Files go first: on a full disk they give back the space that the next rows need. Rows come before work on files.
    pub fn next(&self, turn: &Turn) -> Option<Step> {
        if self.is_unsynced {
            return Some(Step::Sync);
        }
        let Turn { now_ms, erasures, .. } = *turn;
        let rules = Rules { now_ms, keep_ms: turn.keep_ms.unwrap_or(0), erasures, damaged: &self.damaged };
        let work = self.index.work(&rules);
        match &work {
            Some(Work::Remove(old)) if !self.cannot_remove => return Some(Step::Remove(old.clone())),
            Some(Work::Remove(_) | Work::Clean(_) | Work::Merge(_)) | None => {}
        }
        if !self.replaced.is_empty() && !self.cannot_remove {
            return Some(Step::Remove(self.replaced.clone()));
        }
        if self.has_rows(turn) {
            return Some(Step::Append { from: self.end });
        }
        if self.cannot_remove {
            return None;
        }
        let old = match work? {
            Work::Remove(_) => return None,
            Work::Clean(name) => vec![name],
            Work::Merge(group) => group,
        };
        let new = FileName::joined(&old, erasures?)?;
        Some(Step::Rewrite { old, new })
    }

    /// The folder is synced.
    pub fn synced(&mut self) {
        self.is_unsynced = false;
    }

    /// Files cannot be removed. `true`: the turn goes on, as rows wait.
    pub fn removal_failed(&mut self, turn: &Turn) -> bool {
        self.cannot_remove = true;
        self.has_rows(turn)
    }

    pub fn removed(&mut self, name: &FileName) {
        self.index.remove(name);
        self.damaged.remove(name);
        self.replaced.retain(|replaced| replaced != name);
    }

    /// A file of entries is written and durable, with its bytes.
    pub fn appended(&mut self, append: &Append, bytes: u64) {
        if let Some(name) = append.name {
            self.index.add(name, bytes);
        }
        self.end = append.end;
    }

    /// The new file is written and durable, beside the old ones.
    pub fn rewritten(&mut self, old: &[FileName], new: FileName, bytes: u64) {
        for name in old.iter().filter(|name| **name != new) {
            self.index.remove(name);
            self.replaced.push(*name);
        }
        self.index.add(new, bytes);
    }

    pub fn renamed(&mut self, old: &FileName, new: FileName) {
        let bytes = self.index.remove(old);
        self.index.add(new, bytes);
    }

    /// A file cannot be read. A start reads it again.
    pub fn cannot_read(&mut self, name: &FileName) {
        self.damaged.insert(*name);
    }
}

impl Append {
    /// Entries from a row on. Rows of this number of erasures are left out.
    pub fn new(from: u64, erasures: u64) -> Append {
        Append { name: None, end: from, erasures }
    }

    /// Adds an entry of the log. `false`: it has no rows, and is left out.
    pub fn add(&mut self, head: &Head) -> bool {
        self.end = self.end.max(head.end_row());
        if head.rows == 0 {
            return false;
        }
        let Head { first_row: from, accepted_at_ms: first_ms, .. } = *head;
        let first = FileName { from, to: from, first_ms, last_ms: first_ms, erasures: self.erasures };
        let name = self.name.get_or_insert(first);
        name.to = head.end_row();
        name.last_ms = first_ms.max(name.last_ms);
        true
    }

    /// The name of the file. `None`: it would have no rows.
    pub fn name(&self) -> Option<FileName> {
        self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    fn name(from: u64, to: u64, at_ms: u64) -> FileName {
        FileName { from, to, first_ms: at_ms, last_ms: at_ms, erasures: 0 }
    }

    fn turn(counted: u64) -> Turn {
        Turn { counted: Some(counted), now_ms: HOUR_MS, keep_ms: Some(9 * HOUR_MS), erasures: Some(0) }
    }

    fn keeper(files: &[FileName]) -> Keeper {
        let mut keeper = Keeper::new(Index::of(files.iter().map(|name| (*name, 5))));
        assert_eq!((keeper.next(&turn(0)), keeper.end()), (Some(Step::Sync), 0), "a power cut may take files back");
        keeper.synced();
        keeper
    }

    #[test]
    fn log_is_cut_up_to_rows_that_are_counted_and_archived() {
        assert_eq!((cut_to(9, Some(4)), cut_to(9, Some(20)), cut_to(9, None)), (4, 9, 9));
    }

    #[test]
    fn rows_wait_for_removals_only_while_files_can_be_removed() {
        let mut keeper = keeper(&[name(0, 10, 1), name(10, 20, 2)]);
        let turn = Turn { now_ms: 9 * HOUR_MS + 2, ..turn(30) };
        let removal = Some(Step::Remove(vec![name(0, 10, 1), name(10, 20, 2)]));
        assert_eq!(keeper.next(&turn), removal);
        assert!(keeper.removal_failed(&turn), "rows wait");
        assert_eq!(keeper.next(&turn), Some(Step::Append { from: 20 }));
        let idle = Turn { counted: Some(20), ..turn };
        assert_eq!((keeper.removal_failed(&idle), keeper.next(&idle)), (false, None));
        keeper.begin();
        assert_eq!(keeper.next(&idle), removal);
    }

    #[test]
    fn replaced_files_are_unclean_until_they_are_removed() {
        let mut keeper = keeper(&[name(0, 10, 1), name(10, 20, 2)]);
        let turn = turn(20);
        let Some(Step::Rewrite { old, new }) = keeper.next(&turn) else { panic!("files of an hour are merged") };
        keeper.rewritten(&old, new, 9);
        assert_eq!((keeper.unclean(Some(0)), keeper.index().bytes()), (2, 9));
        assert_eq!(keeper.next(&turn), Some(Step::Remove(old.clone())));
        old.iter().for_each(|name| keeper.removed(name));
        assert_eq!((keeper.unclean(Some(0)), keeper.next(&turn)), (0, None));
    }

    #[test]
    fn entries_without_rows_are_passed_over() {
        let mut append = Append::new(7, 3);
        let head = |first_row, rows, accepted_at_ms| Head { first_row, rows, accepted_at_ms };
        assert!(!append.add(&head(7, 0, 50)) && append.name().is_none());
        assert!(append.add(&head(7, 2, 60)) && append.add(&head(9, 1, 70)));
        let expected = FileName { from: 7, to: 10, first_ms: 60, last_ms: 70, erasures: 3 };
        assert_eq!(append.name(), Some(expected));
        let mut keeper = keeper(&[name(0, 7, 1)]);
        keeper.appended(&append, 4);
        assert_eq!((keeper.end(), keeper.index().bytes()), (10, 9));
    }
}
