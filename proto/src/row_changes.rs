//! What changed in rows of buckets, and when: each change by version, bounded.
//!
//! A row is many numbers, so that its last change alone does not say what of it is new since a version. Here every change is kept, until
//! there are too many: who asks for what came after an earlier version than that walks all rows instead.

use crate::series::{Horizon, Row, UnixTime};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The finest buckets are minutes.
const MINUTE_S: u64 = 60;

/// What of a row changed: the buckets that hold a minute, or any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part(u32);

/// Parts of rows, by row number.
pub type Parts = BTreeMap<u32, BTreeSet<Part>>;

/// Changes of rows, ascending by version. Versions only grow: a log index, or a counter of one's own.
#[derive(Clone, Debug)]
pub struct RowChanges {
    capacity: usize,
    events: VecDeque<(u32, Part)>,
    /// (version, how many events it has).
    runs: VecDeque<(u64, u32)>,
    /// Every change after this version is here.
    reaches: u64,
}

impl Part {
    /// Anything in the row may have changed.
    pub const WHOLE: Part = Part(u32::MAX);

    /// The buckets that hold this time.
    pub fn at(time: UnixTime) -> Part {
        Part((time.s() / MINUTE_S) as u32)
    }

    fn start(self) -> UnixTime {
        UnixTime::default().plus(u64::from(self.0) * MINUTE_S)
    }
}

/// These parts of a row, as far as they are kept.
pub fn part_of(row: &Row, horizon: &Horizon, parts: &BTreeSet<Part>) -> Row {
    if parts.contains(&Part::WHOLE) {
        let mut all = row.clone();
        all.expire(horizon);
        return all;
    }
    row.holding(horizon, parts.iter().map(|part| part.start()))
}

impl RowChanges {
    /// For about `capacity` changes (8 bytes each; those of the newest version are always kept), empty as of `version`.
    pub fn new(capacity: usize, version: u64) -> RowChanges {
        RowChanges { capacity, events: VecDeque::new(), runs: VecDeque::new(), reaches: version }
    }

    /// A part of a row changed at a version.
    pub fn push(&mut self, version: u64, row: u32, part: Part) {
        match self.runs.back_mut() {
            Some(last) if last.0 == version => {
                if self.events.back() == Some(&(row, part)) {
                    return;
                }
                last.1 += 1;
            }
            last => {
                debug_assert!(last.is_none_or(|last| last.0 < version), "versions only grow");
                self.runs.push_back((version, 1));
            }
        }
        self.events.push_back((row, part));
        while self.events.len() > self.capacity && self.runs.len() > 1 {
            if let Some((version, count)) = self.runs.pop_front() {
                self.events.drain(..count as usize);
                self.reaches = version;
            }
        }
    }

    /// Whether every change after `version` is here.
    pub fn reaches(&self, version: u64) -> bool {
        version >= self.reaches
    }

    /// (version, row, part) of the changes after a version, in order.
    pub fn since(&self, version: u64) -> impl Iterator<Item = (u64, u32, Part)> + '_ {
        let first = self.runs.partition_point(|&(at, _)| at <= version);
        // From the end: whoever asks is near it.
        let wanted: usize = self.runs.range(first..).map(|&(_, count)| count as usize).sum();
        let versions = self.runs.range(first..).flat_map(|&(at, count)| (0..count).map(move |_| at));
        let events = self.events.range(self.events.len() - wanted..).copied();
        versions.zip(events).map(|(version, (row, part))| (version, row, part))
    }

    /// Bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        self.events.capacity() * size_of::<(u32, Part)>() + self.runs.capacity() * size_of::<(u64, u32)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_reached_is_all_that_came_after_it(
            steps in proptest::collection::vec((0u64..3, 0u32..4, 0u64..4), 1..120), capacity in 1usize..40,
        ) {
            let (mut changes, mut version, mut all) = (RowChanges::new(capacity, 5), 6, Vec::new());
            for (ahead, row, minute) in steps {
                version += ahead;
                let part = Part::at(UnixTime::default().plus(minute * 60 + 7));
                changes.push(version, row, part);
                all.push((version, row, part));
                for from in (5..=version).filter(|&from| changes.reaches(from)) {
                    let expected: BTreeSet<_> = all.iter().copied().filter(|&(at, ..)| at > from).collect();
                    let got: Vec<_> = changes.since(from).collect();
                    prop_assert!(got.is_sorted_by_key(|&(at, ..)| at));
                    prop_assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), expected);
                }
                prop_assert!(changes.reaches(version));
            }
            prop_assert!(changes.reaches(5) || all.len() > capacity);
        }
    }
}
