//! The files of the archive by their ranges, and the next work on them.
//!
//! A change writes the new file before it removes the old ones. So a kill leaves two files with the same rows, and a start drops the
//! one that the other holds.

use super::file::FileName;
use crate::limits::{RAW_MERGED_BYTES_MAX, RAW_MERGED_FILES_MAX, RAW_REMOVED_FILES_MAX};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_streams_core::teeth::{Bug, bites};

const HOUR_MS: u64 = 3_600_000;

/// The files, with their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    files: BTreeMap<FileName, u64>,
    bytes: u64,
}

/// The files of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub index: Index,
    /// Another file holds all their rows.
    pub superseded: Vec<FileName>,
}

/// What decides about the next work.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    pub now_ms: u64,
    /// Files are removed so long after their last entry was accepted.
    pub keep_ms: u64,
    /// The number of erasures. `None`: one of them is not done in blobs, and a rebuild may need erased rows.
    pub erasures: Option<u64>,
    /// Files that cannot be read. They are removed at their time, and nothing else is done with them.
    pub damaged: &'a BTreeSet<FileName>,
}

/// The next work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Remove files that are too old.
    Remove(Vec<FileName>),
    /// Look for erased rows in a file.
    Clean(FileName),
    /// Make one file of neighbours.
    Merge(Vec<FileName>),
}

impl Index {
    /// The files of a folder.
    pub fn of(found: impl IntoIterator<Item = (FileName, u64)>) -> Found {
        let mut all: Vec<(FileName, u64)> = found.into_iter().collect();
        all.sort_by_key(|(name, _)| (name.from, Reverse(name.to), Reverse(name.erasures), *name));
        let mut found = Found::default();
        let mut end = None;
        for (name, bytes) in all {
            // The file that ends there begins at or before this one.
            match end.is_some_and(|end| name.to <= end) {
                true => found.superseded.push(name),
                false => {
                    end = Some(name.to);
                    found.index.add(name, bytes);
                }
            }
        }
        found
    }

    pub fn add(&mut self, name: FileName, bytes: u64) {
        self.bytes += bytes - self.files.insert(name, bytes).unwrap_or_default();
    }

    /// Removes a file, and returns its bytes.
    pub fn remove(&mut self, name: &FileName) -> u64 {
        let bytes = self.files.remove(name).unwrap_or_default();
        self.bytes -= bytes;
        bytes
    }

    /// In the order of their rows.
    pub fn files(&self) -> impl DoubleEndedIterator<Item = &FileName> {
        self.files.keys()
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn first(&self) -> Option<&FileName> {
        self.files.keys().next()
    }

    /// The row behind all rows of files.
    pub fn end(&self) -> u64 {
        self.files.keys().next_back().map_or(0, |name| name.to)
    }

    /// Files that were not looked through for all erasures.
    pub fn unclean(&self, erasures: u64) -> impl Iterator<Item = &FileName> {
        let is_unclean = move |name: &&FileName| name.erasures != erasures && !bites(Bug::ErasedRawRowsStay);
        self.files.keys().filter(is_unclean)
    }

    /// The next work. Once it is done, another one may follow; that ends after a number of steps.
    pub fn work(&self, rules: &Rules<'_>) -> Option<Work> {
        let keep_ms = if bites(Bug::OldRawFilesStay) { u64::MAX } else { rules.keep_ms };
        let is_old = |name: &&FileName| name.last_ms.saturating_add(keep_ms) <= rules.now_ms;
        let old: Vec<FileName> = self.files().take_while(is_old).take(RAW_REMOVED_FILES_MAX).copied().collect();
        if !old.is_empty() {
            return Some(Work::Remove(old));
        }
        let erasures = rules.erasures?;
        match self.unclean(erasures).find(|name| !rules.damaged.contains(name)) {
            Some(name) => Some(Work::Clean(*name)),
            None => self.neighbours(rules).map(Work::Merge),
        }
    }

    /// Small files that follow each other and end in one hour, which is over.
    fn neighbours(&self, rules: &Rules<'_>) -> Option<Vec<FileName>> {
        let hour = |name: &FileName| name.last_ms / HOUR_MS;
        let mut group: Vec<FileName> = Vec::new();
        let mut group_bytes = 0;
        for (name, bytes) in &self.files {
            let is_small = *bytes <= RAW_MERGED_BYTES_MAX / 2 && !rules.damaged.contains(name);
            let is_over = hour(name) < rules.now_ms / HOUR_MS;
            let follows = group.last().is_some_and(|last| last.to == name.from && hour(last) == hour(name));
            let fits = group.len() < RAW_MERGED_FILES_MAX && group_bytes + bytes <= RAW_MERGED_BYTES_MAX;
            if !(is_small && is_over && follows && fits) {
                if group.len() > 1 {
                    break;
                }
                group.clear();
                group_bytes = 0;
            }
            if is_small && is_over {
                group.push(*name);
                group_bytes += bytes;
            }
        }
        (group.len() > 1).then_some(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(from: u64, to: u64, at_ms: u64) -> FileName {
        FileName { from, to, first_ms: at_ms, last_ms: at_ms, erasures: 0 }
    }

    fn work(index: &Index, now_ms: u64, keep_ms: u64, erasures: Option<u64>) -> Option<Work> {
        index.work(&Rules { now_ms, keep_ms, erasures, damaged: &BTreeSet::new() })
    }

    #[test]
    fn files_whose_rows_another_holds_are_superseded() {
        let merged = name(0, 30, 1);
        let cleaned = FileName { erasures: 2, ..name(30, 40, 1) };
        let old = [name(0, 10, 1), name(10, 30, 1), name(30, 40, 1)];
        let found = Index::of(old.iter().chain([&merged, &cleaned]).map(|name| (*name, 5)));
        assert_eq!(found.superseded, old);
        assert_eq!(found.index.files().copied().collect::<Vec<_>>(), [merged, cleaned]);
        assert_eq!((found.index.bytes(), found.index.end()), (10, 40));
    }

    #[test]
    fn old_files_are_removed_by_the_age_of_their_last_entry() {
        let files = (0..100).map(|file| (name(file, file + 1, file), 1));
        let index = Index::of(files).index;
        let Some(Work::Remove(old)) = work(&index, 1_000 + 79, 1_000, None) else { panic!("files are old") };
        assert_eq!((old.len(), old[0].from), (RAW_REMOVED_FILES_MAX, 0), "a turn is bounded");
        assert_eq!(work(&index, 999, 1_000, None), None);
    }

    #[test]
    fn files_are_cleaned_before_they_are_merged() {
        let mut index = Index::of([(name(0, 10, 1), 5), (name(10, 20, 2), 5)]).index;
        assert_eq!(work(&index, HOUR_MS, HOUR_MS, None), None, "an erasure is under way");
        for _ in 0..2 {
            let Some(Work::Clean(unclean)) = work(&index, HOUR_MS, HOUR_MS, Some(3)) else { panic!("no file") };
            index.remove(&unclean);
            index.add(FileName { erasures: 3, ..unclean }, 5);
        }
        let both: Vec<FileName> = index.files().copied().collect();
        assert_eq!(work(&index, HOUR_MS, HOUR_MS, Some(3)), Some(Work::Merge(both)));
    }

    #[test]
    fn files_of_other_hours_gaps_and_damage_are_not_merged() {
        let other_hour = Index::of([(name(0, 10, 1), 5), (name(10, 20, HOUR_MS), 5)]).index;
        let gap = Index::of([(name(0, 10, 1), 5), (name(11, 20, 1), 5)]).index;
        let large = Index::of([(name(0, 10, 1), RAW_MERGED_BYTES_MAX), (name(10, 20, 1), 5)]).index;
        for index in [&other_hour, &gap, &large] {
            assert_eq!(work(index, 9 * HOUR_MS, u64::MAX, Some(0)), None);
        }
        let index = Index::of([(name(0, 10, 1), 5), (name(10, 20, 1), 5)]).index;
        let damaged = BTreeSet::from([name(10, 20, 1)]);
        let rules = Rules { now_ms: 9 * HOUR_MS, keep_ms: u64::MAX, erasures: Some(0), damaged: &damaged };
        assert_eq!(index.work(&rules), None);
        assert_eq!(work(&index, HOUR_MS - 1, u64::MAX, Some(0)), None, "the hour is not over");
    }

    /// Files on a disk. A kill may come between any two changes.
    #[derive(Default)]
    struct Disk(BTreeMap<FileName, u64>);

    impl Disk {
        /// Carries work out, up to a number of changes. `None`: all of them.
        fn carry_out(&mut self, work: &Work, erasures: u64, changes: Option<usize>) {
            let (put, removed) = match work {
                Work::Remove(old) => (None, old.clone()),
                Work::Clean(name) => (Some((FileName { erasures, ..*name }, self.0[name])), vec![*name]),
                Work::Merge(group) => {
                    let bytes = group.iter().map(|name| self.0[name]).sum();
                    (FileName::joined(group, erasures).map(|name| (name, bytes)), group.clone())
                }
            };
            let mut left = changes.unwrap_or(usize::MAX);
            if let Some((name, bytes)) = put.filter(|_| left > 0) {
                self.0.insert(name, bytes);
                left -= 1;
            }
            for name in removed.iter().take(left) {
                self.0.remove(name);
            }
        }
    }

    proptest! {
        /// Whatever is killed, each archived row is in the files until its time, and work comes to an end.
        #[test]
        fn no_row_is_lost_by_work_that_is_killed(
            files in prop::collection::vec((1_u64..9, 0_u64..HOUR_MS, 1_u64..RAW_MERGED_BYTES_MAX), 1..40),
            kills in prop::collection::vec(prop::option::of(0_usize..4), 0..20),
            keep_ms in 0_u64..20 * HOUR_MS,
        ) {
            let mut disk = Disk::default();
            let mut now_ms = 0;
            let mut end = 0;
            for (rows, after_ms, bytes) in files {
                now_ms += after_ms;
                disk.0.insert(name(end, end + rows, now_ms), bytes);
                end += rows;
            }
            let all = disk.0.clone();
            now_ms += HOUR_MS;
            let mut kills = kills.into_iter();
            let mut steps = 0;
            loop {
                let found = Index::of(disk.0.clone());
                for name in &found.superseded {
                    disk.0.remove(name);
                }
                let Some(work) = work(&found.index, now_ms, keep_ms, Some(7)) else { break };
                disk.carry_out(&work, 7, kills.next().flatten());
                steps += 1;
                prop_assert!(steps < 400, "{work:?}");
            }
            for row in 0..end {
                let original = all.keys().find(|name| (name.from..name.to).contains(&row)).unwrap();
                let holding = disk.0.keys().filter(|name| (name.from..name.to).contains(&row)).count();
                prop_assert!(holding <= 1, "row {row} is in {holding} files");
                if original.last_ms + keep_ms > now_ms {
                    prop_assert_eq!(holding, 1, "row {} is lost", row);
                }
            }
            prop_assert!(disk.0.keys().all(|name| name.erasures == 7 && name.last_ms + keep_ms > now_ms));
        }
    }
}
