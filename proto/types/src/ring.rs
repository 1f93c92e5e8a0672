//! A bounded change log: changed components, by version.
//!
//! A component that changes again moves to the end, so a consumer that asks `since(version)` gets each once, ascending by the
//! version of its last change. A component that no consumer was told of since its last change need not move: consumers ask for
//! its present value, never for the values in between. If the ring is [told](ChangeRing::told) the consumers' versions, such a
//! component keeps its place. So a hot component does not stay out of reach of slow consumers. And there are at most as many
//! unread events as components.
//!
//! When more distinct components changed than the ring holds, the oldest fall out and the ring no
//! longer reaches back behind them: such a consumer walks the whole table instead.

use std::collections::VecDeque;

/// A bounded record of changes. Components are dense numbers given by the user; versions only grow (a log index, or a
/// counter of one's own).
#[derive(Clone, Debug)]
pub struct ChangeRing {
    capacity: usize,
    /// The number of events per component that the ring has room for, if that is more.
    per_component: usize,
    /// For each component the number (modulo 2^32) of its last event; stale events are skipped by comparing with it.
    last: Vec<u32>,
    events: VecDeque<u32>,
    /// Runs of events of one version: (version, number of its first event), ascending in both.
    runs: VecDeque<(u64, u64)>,
    /// Number of the first event in `events`.
    first: u64,
    /// Events that are the last of their component.
    live: usize,
    /// Every change after this version is here.
    reaches: u64,
    told: Told,
}

/// The version up to which consumers of a change log may have been told of it.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Consumers may know of changes up to this version, and of no later one; `None`: of any change.
    upto: Option<u64>,
    /// Number of the first event that none knows of.
    untold: u64,
}

impl Default for Told {
    fn default() -> Told {
        Told { upto: None, untold: u64::MAX }
    }
}

impl Told {
    /// `runs` are (version, number of its first event), ascending in both; `end` is the next event's number.
    pub fn of(upto: Option<u64>, runs: &VecDeque<(u64, u64)>, end: u64) -> Told {
        Told { upto, untold: upto.map_or(u64::MAX, |upto| first_behind(upto, runs, end)) }
    }

    /// Whether the version is known at all.
    pub fn is_known(self) -> bool {
        self.upto.is_some()
    }

    /// Whether no consumer knows of an event.
    pub fn is_untold(self, number: u64) -> bool {
        number >= self.untold
    }
}

/// Number of the first event behind a version, of runs as [`Told::of`] takes them.
pub fn first_behind(version: u64, runs: &VecDeque<(u64, u64)>, end: u64) -> u64 {
    runs.get(runs.partition_point(|&(at, _)| at <= version)).map_or(end, |&(_, first)| first)
}

impl ChangeRing {
    /// A ring for at most `capacity` events (4 bytes each, up to 2^31), empty as of `version`.
    pub fn new(capacity: usize, version: u64) -> ChangeRing {
        ChangeRing::growing(capacity, 0, version)
    }

    /// The same, or for as many of each component, if that is more.
    pub fn growing(capacity: usize, per_component: usize, version: u64) -> ChangeRing {
        assert!((1..=1 << 31).contains(&capacity), "capacity of a change ring");
        let last = Vec::new();
        let events = VecDeque::new();
        let runs = VecDeque::new();
        let first = 0;
        let live = 0;
        let reaches = version;
        let told = Told::default();
        ChangeRing { capacity, per_component, last, events, runs, first, live, reaches, told }
    }

    fn capacity(&self) -> usize {
        self.capacity.max(self.per_component.saturating_mul(self.last.len())).min(1 << 31)
    }

    /// Consumers may know of changes up to this version, and of no later one. `None`: they may know of any change.
    pub fn told(&mut self, upto: Option<u64>) {
        self.told = Told::of(upto, &self.runs, self.end());
    }

    /// Whether consumers are known to have been told of fewer changes than those up to this version.
    pub fn is_told_less_than(&self, version: u64) -> bool {
        self.told.upto.is_some_and(|told| told < version)
    }

    /// Prefetches the memory of a component that [`ChangeRing::touch`] will read.
    pub fn warm(&self, component: u32) -> u64 {
        let is_known = (component as usize) < self.last.len();
        is_known.then(|| self.last_event(component, self.end())).flatten().unwrap_or_default()
    }

    /// The next event's number.
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Records that `component` changed at `version`. Panics in debug builds if versions go back.
    #[inline]
    pub fn touch(&mut self, component: u32, version: u64) {
        let next = self.end();
        let run = self.runs.back().copied();
        debug_assert!(run.map_or(self.reaches + 1, |(last, _)| last) <= version);
        let current = run.filter(|&(last, _)| last == version).map_or(next, |(_, first)| first);
        let at = component as usize;
        if at >= self.last.len() {
            self.last.resize(at + 1, 0);
        }
        match self.last_event(component, next) {
            Some(number) if number >= current || self.told.is_untold(number) => return,
            Some(_) => {}
            None => self.live += 1,
        }
        if run.is_none_or(|(last, _)| last < version) {
            self.runs.push_back((version, next));
        }
        self.last[at] = next as u32;
        self.events.push_back(component);
        if self.events.len() > self.capacity() {
            self.shrink();
        }
    }

    /// The number of the component's last event, if it is still here.
    #[inline]
    fn last_event(&self, component: u32, next: u64) -> Option<u64> {
        let ago = u64::from((next as u32).wrapping_sub(self.last[component as usize]));
        let here = ago != 0 && ago <= self.events.len() as u64 && self.event(next - ago) == component;
        here.then(|| next - ago)
    }

    /// Drops stale events when they are many (amortized constant time), else the oldest event.
    fn shrink(&mut self) {
        if self.live > self.capacity() / 2 {
            return self.drop_first();
        }
        let old = std::mem::take(&mut self.runs);
        let events = std::mem::replace(&mut self.events, VecDeque::with_capacity(2 * self.live));
        let old_first = self.first;
        self.first += events.len() as u64;
        for (run, &(version, from)) in old.iter().enumerate() {
            let to = old.get(run + 1).map_or(self.first, |&(_, next)| next);
            let start = self.first + self.events.len() as u64;
            for number in from.max(old_first)..to {
                let component = events[(number - old_first) as usize];
                if self.last[component as usize] == number as u32 {
                    self.last[component as usize] = (self.first + self.events.len() as u64) as u32;
                    self.events.push_back(component);
                }
            }
            if self.first + self.events.len() as u64 > start {
                self.runs.push_back((version, start));
            }
        }
        self.told(self.told.upto);
    }

    /// Whether every change after `version` is here; else walk the table.
    pub fn reaches(&self, version: u64) -> bool {
        version >= self.reaches
    }

    /// The components changed after `version` with the version of their last change, ascending; each once. Meaningful only if
    /// the ring [`reaches`](Self::reaches) the version.
    pub fn since(&self, version: u64) -> impl Iterator<Item = (u32, u64)> + '_ {
        let run = self.runs.partition_point(|&(at, _)| at <= version);
        (run..self.runs.len()).flat_map(move |run| self.run(run))
    }

    /// Whether anything changed after `version`.
    pub fn changed_since(&self, version: u64) -> bool {
        self.runs.back().is_some_and(|&(last, _)| last > version)
    }

    /// The number of events after `version`, skipped ones included.
    pub fn events_since(&self, version: u64) -> u64 {
        self.end() - first_behind(version, &self.runs, self.end()).max(self.first)
    }

    /// Forgets everything at or before `version`, which every consumer has.
    pub fn forget(&mut self, version: u64) {
        while self.runs.front().is_some_and(|&(first, _)| first <= version) {
            self.drop_first();
        }
        self.reaches = self.reaches.max(version);
    }

    /// The same record of components that have other numbers now, for at most `capacity` events; those without a number are left out.
    pub fn renumbered(&self, capacity: usize, number: impl Fn(u32) -> Option<u32>) -> ChangeRing {
        let mut next = ChangeRing::growing(capacity, self.per_component, self.reaches);
        for (component, version) in self.since(self.reaches) {
            number(component).into_iter().for_each(|number| next.touch(number, version));
        }
        next
    }

    /// Bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        4 * (self.last.capacity() + self.events.capacity()) + 16 * self.runs.capacity()
    }

    fn run(&self, run: usize) -> impl Iterator<Item = (u32, u64)> + '_ {
        let (version, from) = self.runs[run];
        let end = self.first + self.events.len() as u64;
        let to = self.runs.get(run + 1).map_or(end, |&(_, next)| next);
        (from.max(self.first)..to).filter(|&number| self.is_last(number)).map(move |n| (self.event(n), version))
    }

    fn event(&self, number: u64) -> u32 {
        self.events[(number - self.first) as usize]
    }

    fn is_last(&self, number: u64) -> bool {
        self.last[self.event(number) as usize] == number as u32
    }

    fn drop_first(&mut self) {
        let end = self.first + self.events.len() as u64;
        let (version, _) = self.runs[0];
        if self.first < end && self.is_last(self.first) {
            self.live -= 1;
            self.reaches = self.reaches.max(version);
        }
        if self.events.pop_front().is_some() {
            self.first += 1;
        }
        let run_end = self.runs.get(1).map_or(self.first + self.events.len() as u64, |&(_, next)| next);
        if run_end <= self.first {
            self.runs.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn equals_a_map_of_last_changes(
            steps in proptest::collection::vec((0u32..20, 0u64..3), 1..300),
            capacity in 1usize..44,
            forget in proptest::option::of(0usize..300),
        ) {
            let mut ring = ChangeRing::new(capacity, 0);
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            let mut version = 1;
            for (step, &(component, ahead)) in steps.iter().enumerate() {
                version += ahead;
                ring.touch(component, version);
                model.insert(component, version);
                if forget == Some(step) {
                    ring.forget(version - 1);
                }
                for from in (0..=version).filter(|&from| ring.reaches(from)) {
                    let mut expected: Vec<_> = model.iter().map(|(&c, &v)| (c, v)).filter(|&(_, v)| v > from).collect();
                    let mut got: Vec<_> = ring.since(from).collect();
                    prop_assert!(got.windows(2).all(|pair| pair[0].1 <= pair[1].1));
                    got.sort();
                    expected.sort();
                    prop_assert_eq!(got, expected);
                    prop_assert_eq!(ring.changed_since(from), version > from);
                    prop_assert!(ring.events_since(from) >= ring.since(from).count() as u64);
                }
                prop_assert!(ring.reaches(version));
                prop_assert!(forget.is_some() || capacity < 40 || ring.reaches(0), "room for all, and all are here");
            }
        }
    }

    proptest! {
        /// Each consumer knows the latest value of every component up to its cursor. A component that no consumer was told of is
        /// in the ring once.
        #[test]
        fn who_asks_from_where_it_was_told_misses_nothing(
            steps in proptest::collection::vec((0u32..6, 0u64..2, 0usize..6, 1usize..9), 1..200), capacity in 1usize..20,
        ) {
            let mut ring = ChangeRing::growing(capacity, 2, 0);
            // By consumer: its cursor, and by component the time at which it was told of it last.
            let mut consumers = vec![(0u64, BTreeMap::<u32, usize>::new()); 2];
            let (mut version, mut told, mut changed) = (1, 0, BTreeMap::<u32, (usize, u64)>::new());
            ring.told(Some(0));
            for (step, &(component, ahead, asks, most)) in steps.iter().enumerate() {
                version += ahead;
                ring.touch(component, version);
                changed.insert(component, (step, version));
                if let Some((cursor, known)) = consumers.get_mut(asks) && ring.reaches(*cursor) {
                    let events: Vec<_> = ring.since(*cursor).collect();
                    prop_assert!(events.windows(2).all(|pair| pair[0].1 <= pair[1].1));
                    let mut upto = *cursor;
                    // Whole versions only.
                    for run in events.chunk_by(|a, b| a.1 == b.1).take(most) {
                        run.iter().for_each(|&(component, _)| _ = known.insert(component, step));
                        upto = run[0].1;
                    }
                    // A version that is not over may get more changes.
                    *cursor = upto.min(version - 1);
                    told = told.max(upto);
                    ring.told(Some(told));
                    let missed = changed.iter().find(|&(of, &(at, last))| last <= *cursor && known.get(of) < Some(&at));
                    prop_assert_eq!(missed, None, "up to {}", cursor);
                }
                let untold: Vec<_> = ring.since(told).map(|(component, _)| component).collect();
                prop_assert!(untold.len() <= 6 && untold.iter().all(|of| changed.contains_key(of)));
                prop_assert_eq!(ring.events_since(told), untold.len() as u64, "of what nobody knows none is skipped");
                prop_assert!(ring.events.len() <= capacity.max(12));
            }
        }
    }

    #[test]
    fn what_changes_all_the_time_is_not_always_behind_who_lags() {
        let mut ring = ChangeRing::new(100, 0);
        ring.told(Some(0));
        (1..50).for_each(|version| ring.touch(0, version));
        (1..9).for_each(|component| ring.touch(component, 50));
        assert_eq!(ring.since(0).next(), Some((0, 1)), "nobody was told of it");
        ring.told(Some(1));
        ring.touch(0, 51);
        assert_eq!((ring.since(1).count(), ring.since(50).next()), (9, Some((0, 51))));
    }

    #[test]
    fn a_hot_component_does_not_push_out_the_others() {
        let mut ring = ChangeRing::new(8, 0);
        ring.touch(1, 1);
        (2..100).for_each(|version| ring.touch(0, version));
        assert_eq!(ring.since(0).collect::<Vec<_>>(), [(1, 1), (0, 99)]);
        (1..20).for_each(|component| ring.touch(component, 100));
        assert!(!ring.reaches(99) && ring.reaches(100));
    }
}
