//! What changed in rows of buckets, and when: each change by version, bounded.
//!
//! A row is many numbers, so that its last change alone does not say what of it is new since a version. Here every change is kept, until
//! there are too many: who asks for what came after an earlier version than that walks all rows instead. A change of which nobody was
//! told is not kept twice where it is known what consumers were [told](RowChanges::told) (see [`ChangeRing`](crate::ring::ChangeRing)).

use crate::ring::{Told, first_behind};
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
    /// Room for so many changes of each row, where that is more.
    per_row: usize,
    events: VecDeque<(u32, Part)>,
    /// (version, number of its first event), ascending in both.
    runs: VecDeque<(u64, u64)>,
    /// Number of the first event in `events`.
    first: u64,
    /// Every change after this version is here.
    reaches: u64,
    told: Told,
    /// By row, where it is known what consumers were told: the number (modulo 2^32) of its last event.
    last: Vec<u32>,
}

impl Part {
    /// Anything in the row may have changed.
    pub const WHOLE: Part = Part(u32::MAX);

    /// The buckets that hold this time.
    pub fn at(time: UnixTime) -> Part {
        Part((time.s() / MINUTE_S) as u32)
    }

    /// Whether all its buckets that are kept end behind a minute (since 1970).
    pub(crate) fn is_after(self, minute: u32, horizon: &Horizon) -> bool {
        self != Part::WHOLE && horizon.end_of_finest(self.start()).s() > u64::from(minute) * MINUTE_S
    }

    /// Whether its time is not before a minute (since 1970): then all its buckets end behind it.
    pub(crate) fn begins_behind(self, minute: u32) -> bool {
        self != Part::WHOLE && self.0 >= minute
    }

    fn start(self) -> UnixTime {
        UnixTime::default().plus(u64::from(self.0) * MINUTE_S)
    }
}

/// These parts of a row, ascending, as far as they are kept.
pub fn part_of(row: &Row, horizon: &Horizon, parts: &[Part]) -> Row {
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
        RowChanges::growing(capacity, 0, version)
    }

    /// The same, or for as many of each row, if that is more.
    pub fn growing(capacity: usize, per_row: usize, version: u64) -> RowChanges {
        let (events, runs, last) = Default::default();
        RowChanges { capacity, per_row, events, runs, first: 0, reaches: version, told: Told::default(), last }
    }

    /// Consumers may know of what changed up to this version, and of nothing behind it. `None`: they may know of anything.
    pub fn told(&mut self, upto: Option<u64>) {
        self.told = Told::of(upto, &self.runs, self.end());
    }

    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// A part of a row changed at a version.
    pub fn push(&mut self, version: u64, row: u32, part: Part) {
        let run = self.runs.back().copied();
        debug_assert!(run.is_none_or(|(last, _)| last <= version), "versions only grow");
        let is_new_run = run.is_none_or(|(last, _)| last < version);
        let last = self.last_event(row).filter(|&(_, last)| last == part);
        if !is_new_run && self.events.back() == Some(&(row, part))
            || last.is_some_and(|last| self.told.is_untold(last.0))
        {
            return;
        }
        if self.told.is_known() {
            let len = self.last.len().max(row as usize + 1);
            self.last.resize(len, 0);
            self.last[row as usize] = self.end() as u32;
        }
        if is_new_run {
            self.runs.push_back((version, self.end()));
        }
        self.events.push_back((row, part));
        let most = self.capacity.max(self.per_row.saturating_mul(self.last.len()));
        while self.events.len() > most && self.runs.len() > 1 {
            let (version, next) = (self.runs[0].0, self.runs[1].1);
            self.events.drain(..(next - self.first) as usize);
            self.runs.pop_front();
            (self.first, self.reaches) = (next, version);
        }
    }

    /// The number of the row's last event and its part, where it is still here and was noted.
    fn last_event(&self, row: u32) -> Option<(u64, Part)> {
        let ago = u64::from((self.end() as u32).wrapping_sub(*self.last.get(row as usize)?));
        let at = (self.events.len() as u64).checked_sub(ago)?;
        let &(of, part) = self.events.get(at as usize)?;
        (of == row).then_some((self.first + at, part))
    }

    /// Reads of a row what [`RowChanges::push`] will.
    pub(crate) fn warm(&self, row: u32) -> u64 {
        self.last_event(row).map_or(0, |(number, _)| number)
    }

    /// Whether every change after `version` is here.
    pub fn reaches(&self, version: u64) -> bool {
        version >= self.reaches
    }

    /// Whether anything changed after `version`.
    pub fn changed_since(&self, version: u64) -> bool {
        self.runs.back().is_some_and(|&(last, _)| last > version)
    }

    /// How many changes came after a version.
    pub fn events_since(&self, version: u64) -> u64 {
        self.end() - first_behind(version, &self.runs, self.end())
    }

    /// (version, row, part) of the changes after a version, in order.
    pub fn since(&self, version: u64) -> impl Iterator<Item = (u64, u32, Part)> + '_ {
        let run = self.runs.partition_point(|&(at, _)| at <= version);
        (run..self.runs.len()).flat_map(|run| {
            let (version, from) = self.runs[run];
            let to = self.runs.get(run + 1).map_or(self.end(), |&(_, next)| next);
            let events = self.events.range((from - self.first) as usize..(to - self.first) as usize);
            events.map(move |&(row, part)| (version, row, part))
        })
    }

    /// The same record of rows that have other numbers now, for about `capacity` changes; those without a number are left out.
    pub fn renumbered(&self, capacity: usize, number: impl Fn(u32) -> Option<u32>) -> RowChanges {
        let mut next = RowChanges::growing(capacity, self.per_row, self.reaches);
        for (version, row, part) in self.since(self.reaches) {
            number(row).into_iter().for_each(|row| next.push(version, row, part));
        }
        next
    }

    /// Bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        self.events.capacity() * size_of::<(u32, Part)>()
            + self.runs.capacity() * size_of::<(u64, u64)>()
            + 4 * self.last.capacity()
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
                    prop_assert_eq!(changes.events_since(from), got.len() as u64);
                    prop_assert!(got.is_sorted_by_key(|&(at, ..)| at));
                    prop_assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), expected);
                }
                prop_assert!(changes.reaches(version));
            }
            prop_assert!(changes.reaches(5) || all.len() > capacity);
        }

        /// Whatever consumers were told, each of them knows of every change up to its cursor, and of what nobody was told of there is one.
        #[test]
        fn who_asks_from_where_it_was_told_misses_nothing(
            steps in proptest::collection::vec((0u32..4, 0u64..3, 0u64..2, 0usize..6, 1usize..9), 1..200),
        ) {
            let mut changes = RowChanges::growing(20, 2, 0);
            let mut consumers = vec![(0u64, BTreeMap::<(u32, Part), usize>::new()); 2];
            let (mut version, mut told, mut changed) = (1, 0, BTreeMap::<(u32, Part), (usize, u64)>::new());
            changes.told(Some(0));
            for (step, &(row, minute, ahead, asks, most)) in steps.iter().enumerate() {
                version += ahead;
                let part = Part::at(UnixTime::default().plus(minute * 60));
                changes.push(version, row, part);
                changed.insert((row, part), (step, version));
                if let Some((cursor, known)) = consumers.get_mut(asks) && changes.reaches(*cursor) {
                    let events: Vec<_> = changes.since(*cursor).collect();
                    let mut upto = *cursor;
                    for run in events.chunk_by(|a, b| a.0 == b.0).take(most) {
                        run.iter().for_each(|&(_, row, part)| _ = known.insert((row, part), step));
                        upto = run[0].0;
                    }
                    *cursor = upto.min(version - 1);
                    told = told.max(upto);
                    changes.told(Some(told));
                    let missed = changed.iter().find(|&(of, &(at, last))| last <= *cursor && known.get(of) < Some(&at));
                    prop_assert_eq!(missed, None, "up to {}", cursor);
                }
            }
            // Who lags does not make one that changes all the time many.
            changes.told(Some(version));
            let again = |version| changes.push(version, 0, Part::WHOLE);
            (version + 1..version + 9).for_each(again);
            prop_assert_eq!(changes.since(version).count(), 1);
        }
    }
}
