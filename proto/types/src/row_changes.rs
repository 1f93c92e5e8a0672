//! Changes of rows of buckets: each change with its version, bounded.
//!
//! A row is many numbers, so its last change alone does not say which of them are new since a version. Here every change is kept,
//! until there are too many; a consumer that asks for changes since an earlier version walks all rows instead. If the log is
//! [told](RowChanges::told) the consumers' versions (see [`ChangeRing`](crate::ring::ChangeRing)), an unread change is not kept
//! twice, and other changes of its row [join](Part::joined) it. So a slow consumer is told once of a row, whatever its changes
//! within some minutes.

use crate::limits::UNIX_TIME_MAX_S;
use crate::ring::{Told, first_behind};
use crate::series::{Horizon, Row, UnixTime};
use crate::teeth::{Bug, bites};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The finest buckets are minutes.
const MINUTE_S: u64 = 60;

/// For how many minutes in succession one part may stand.
const SPANS: [u32; 1 << SPAN_BITS] = [1, 2, 4, 8];
/// The bits of a part's number that say which of [`SPANS`] it is; the other bits are its first minute.
const SPAN_BITS: u32 = 2;
/// The most minutes for which one part may stand.
pub const PART_MINUTES_MAX: u32 = SPANS[SPANS.len() - 1];

/// The changed part of a row: the buckets that hold a minute, or one of some minutes in succession, or any bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part(u32);

// No time is in the minute of `Part::WHOLE`, nor so near to it that one of its part would be.
const _: () = assert!(UNIX_TIME_MAX_S / MINUTE_S + (PART_MINUTES_MAX as u64) < (u32::MAX >> SPAN_BITS) as u64);

/// Parts of rows, by row number.
pub type Parts = BTreeMap<u32, BTreeSet<Part>>;

/// Changes of rows, ascending by version. Versions only grow: a log index, or a counter of one's own.
#[derive(Clone, Debug)]
pub struct RowChanges {
    capacity: usize,
    /// The number of changes per row that there is room for, if that is more.
    per_row: usize,
    events: VecDeque<(u32, Part)>,
    /// (version, number of its first event), ascending in both.
    runs: VecDeque<(u64, u64)>,
    /// Number of the first event in `events`.
    first: u64,
    /// Every change after this version is here.
    reaches: u64,
    told: Told,
    /// By row, if the consumers' versions are known: the number (modulo 2^32) of its last event.
    last: Vec<u32>,
}

impl Part {
    /// Anything in the row may have changed.
    pub const WHOLE: Part = Part(u32::MAX);

    /// The buckets that hold this time.
    pub fn at(time: UnixTime) -> Part {
        Part(((time.s() / MINUTE_S) as u32) << SPAN_BITS)
    }

    /// A part that holds both, if one does.
    pub fn joined(self, other: Part) -> Option<Part> {
        if self == Part::WHOLE || other == Part::WHOLE {
            return Some(Part::WHOLE);
        }
        let first = self.first().min(other.first());
        let minutes = self.last().max(other.last()) - first + 1;
        let span = SPANS.iter().position(|&span| span >= minutes)?;
        Some(Part(first << SPAN_BITS | span as u32))
    }

    /// The number of minutes that it stands for, unless it is the whole row.
    pub fn minutes(self) -> u32 {
        SPANS[(self.0 % SPANS.len() as u32) as usize]
    }

    /// Whether all its kept buckets end behind a minute (since 1970).
    pub fn is_after(self, minute: u32, horizon: &Horizon) -> bool {
        self != Part::WHOLE && horizon.end_of_finest(minute_at(self.first())).s() > u64::from(minute) * MINUTE_S
    }

    /// Whether none of its time is before a minute (since 1970): then all its buckets end behind it.
    pub fn begins_behind(self, minute: u32) -> bool {
        self != Part::WHOLE && self.first() >= minute
    }

    fn first(self) -> u32 {
        self.0 >> SPAN_BITS
    }

    fn last(self) -> u32 {
        self.first() + self.minutes() - 1
    }

    fn times(self) -> impl Iterator<Item = UnixTime> {
        (self.first()..=self.last()).map(minute_at)
    }
}

fn minute_at(minute: u32) -> UnixTime {
    UnixTime::default().plus(u64::from(minute) * MINUTE_S)
}

/// These parts of a row, ascending, as far as they are kept.
pub fn part_of(row: &Row, horizon: &Horizon, parts: &[Part]) -> Row {
    if parts.contains(&Part::WHOLE) {
        let mut all = row.clone();
        all.expire(horizon);
        return all;
    }
    row.holding(horizon, parts.iter().flat_map(|part| part.times()))
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

    /// Consumers may know of changes up to this version, and of no later one. `None`: they may know of any change.
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
        if !is_new_run && self.events.back() == Some(&(row, part)) || self.joins(row, part) {
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
            let version = self.runs[0].0;
            let next = self.runs[1].1;
            self.events.drain(..(next - self.first) as usize);
            self.runs.pop_front();
            (self.first, self.reaches) = (next, version);
        }
    }

    /// Lets the row's last event stand for a part as well, if no consumer was told of it and one part holds both.
    fn joins(&mut self, row: u32, part: Part) -> bool {
        let last = self.last_event(row).filter(|&(number, _)| self.told.is_untold(number));
        let Some((number, joined)) = last.and_then(|(number, last)| Some((number, last.joined(part)?))) else {
            return false;
        };
        self.events[(number - self.first) as usize].1 = if bites(Bug::LastPartOnly) { part } else { joined };
        true
    }

    /// The number of the row's last event and its part, where it is still here and was noted.
    fn last_event(&self, row: u32) -> Option<(u64, Part)> {
        let ago = u64::from((self.end() as u32).wrapping_sub(*self.last.get(row as usize)?));
        let at = (self.events.len() as u64).checked_sub(ago)?;
        let &(of, part) = self.events.get(at as usize)?;
        (of == row).then_some((self.first + at, part))
    }

    /// Prefetches the memory of a row that [`RowChanges::push`] will read.
    pub fn warm(&self, row: u32) -> u64 {
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

    /// The number of changes after a version.
    pub fn events_since(&self, version: u64) -> u64 {
        self.end() - first_behind(version, &self.runs, self.end())
    }

    /// (version, row, part) of the changes after a version, in order.
    pub fn since(&self, version: u64) -> impl Iterator<Item = (u64, u32, Part)> + '_ {
        let run = self.runs.partition_point(|&(at, _)| at <= version);
        (run..self.runs.len()).flat_map(|run| {
            let (version, events) = self.run(run);
            events.map(move |(row, part)| (version, row, part))
        })
    }

    /// The first version after a version that changed any, and the (row, part) of its changes, in order.
    pub fn first_since(&self, version: u64) -> Option<(u64, impl ExactSizeIterator<Item = (u32, Part)> + '_)> {
        let run = self.runs.partition_point(|&(at, _)| at <= version);
        (run < self.runs.len()).then(|| self.run(run))
    }

    fn run(&self, run: usize) -> (u64, impl ExactSizeIterator<Item = (u32, Part)> + '_) {
        let (version, from) = self.runs[run];
        let to = self.runs.get(run + 1).map_or(self.end(), |&(_, next)| next);
        (version, self.events.range((from - self.first) as usize..(to - self.first) as usize).copied())
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
    use crate::series::{Granularity, Kept, OutOfRange, Retention, SeriesPolicy, SeriesState};
    use proptest::prelude::*;

    fn minute_of(minute: u64) -> Part {
        Part::at(UnixTime::default().plus(minute * MINUTE_S))
    }

    #[test]
    fn a_joined_part_is_in_memory_where_its_first_minute_is() {
        let kept = Kept { granularity: Granularity::MINUTE, ttl_s: 1_000 * MINUTE_S };
        let retention = Retention::new(vec![kept]).unwrap();
        let policy = SeriesPolicy::new(retention, 500 * MINUTE_S, 60, OutOfRange::Refused).unwrap();
        let state = SeriesState::new(policy, UnixTime::default().plus(100 * MINUTE_S));
        let joined = minute_of(50).joined(minute_of(57)).unwrap();
        for part in [joined, minute_of(50)] {
            assert!(part.is_after(50, state.horizon()) && !part.is_after(51, state.horizon()), "{part:?}");
        }
        assert!(!Part::WHOLE.is_after(0, state.horizon()) && !Part::WHOLE.begins_behind(0));
    }

    proptest! {
        #[test]
        fn what_is_reached_is_all_that_came_after_it(
            steps in proptest::collection::vec((0u64..3, 0u32..4, 0u64..4), 1..120), capacity in 1usize..40,
        ) {
            let mut changes = RowChanges::new(capacity, 5);
            let mut version = 6;
            let mut all = Vec::new();
            for (ahead, row, minute) in steps {
                version += ahead;
                let part = Part::at(UnixTime::default().plus(minute * 60 + 7));
                changes.push(version, row, part);
                all.push((version, row, part));
                for from in (5..=version).filter(|&from| changes.reaches(from)) {
                    let expected: BTreeSet<_> = all.iter().copied().filter(|&(at, ..)| at > from).collect();
                    let got: Vec<_> = changes.since(from).collect();
                    prop_assert_eq!(changes.events_since(from), got.len() as u64);
                    let first = changes.first_since(from).map(|(at, of)| (at, of.len(), of.collect::<Vec<_>>()));
                    let run = got.chunk_by(|a, b| a.0 == b.0).next();
                    let expected_first = run.map(|run| (run[0].0, run.len(), run.iter().map(|of| (of.1, of.2)).collect()));
                    prop_assert_eq!(first, expected_first);
                    prop_assert!(got.is_sorted_by_key(|&(at, ..)| at));
                    prop_assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), expected);
                }
                prop_assert!(changes.reaches(version));
            }
            prop_assert!(changes.reaches(5) || all.len() > capacity);
        }

        /// Each consumer knows of every change up to its cursor, and there is one change for all that no consumer was told of.
        #[test]
        fn who_asks_from_where_it_was_told_misses_nothing(
            steps in proptest::collection::vec((0u32..4, 0u64..70, 0u64..2, 0usize..6, 1usize..9), 1..200),
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
                        let all = run.iter().flat_map(|&(_, row, part)| part.times().map(move |at| (row, Part::at(at))));
                        all.for_each(|of| _ = known.insert(of, step));
                        upto = run[0].0;
                    }
                    *cursor = upto.min(version - 1);
                    told = told.max(upto);
                    changes.told(Some(told));
                    let missed = changed.iter().find(|&(of, &(at, last))| last <= *cursor && known.get(of) < Some(&at));
                    prop_assert_eq!(missed, None, "up to {}", cursor);
                }
            }
            // For a slow consumer, a row that changes all the time makes one change, and passing minutes make only some.
            changes.told(Some(version));
            let minutes = u64::from(3 * PART_MINUTES_MAX);
            (0..minutes).for_each(|minute| changes.push(version + 1 + minute, 0, minute_of(minute)));
            prop_assert_eq!(changes.since(version).count(), 3);
            (0..9).for_each(|ahead| changes.push(version + 1 + minutes + ahead, 0, Part::WHOLE));
            prop_assert_eq!(changes.since(version).count(), 3);
        }

        #[test]
        fn a_joined_part_holds_both_and_no_more_minutes_than_it_may(of in proptest::collection::vec(0u64..20, 2..5)) {
            let first = of.iter().min().copied().unwrap();
            let last = of.iter().max().copied().unwrap();
            let joined = of.iter().map(|&minute| Some(minute_of(minute))).reduce(|all, part| all?.joined(part?)).unwrap();
            prop_assert!(joined.is_some() || last - first >= u64::from(PART_MINUTES_MAX / 2));
            let Some(joined) = joined else { return Ok(()) };
            let times: Vec<_> = joined.times().map(|time| time.s() / MINUTE_S).collect();
            prop_assert_eq!(&times, &(first..first + u64::from(joined.minutes())).collect::<Vec<_>>());
            prop_assert!(times.contains(&last) && joined.minutes() <= PART_MINUTES_MAX);
            prop_assert_eq!(joined.joined(Part::WHOLE), Some(Part::WHOLE));
            prop_assert!(joined.begins_behind(first as u32) && !joined.begins_behind(first as u32 + 1));
        }
    }
}
