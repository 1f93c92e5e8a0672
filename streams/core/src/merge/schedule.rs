//! Which merge is next. Nothing is remembered but slots of time: an owner that was killed plans again from the live blobs.

use super::{Merge, MergePolicy, Target};
use crate::blob::{BlobMeta, Level, PartitionId};
use crate::layout::Layout;
use crate::limits::MERGE_BLOBS_MAX;
use crate::manifest::BlobSet;
use crate::scope::Scope;
use crate::teeth::{Bug, bites};
use crate::time::{DAY_S, Day, HOUR_S, Hour, Now};
use std::collections::BTreeMap;

/// Blobs of one hour are joined if all but the largest have at least the largest one's rows divided by this.
const LEAST_JOINED: u64 = 4;

/// The next step of the schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    Merge(Merge),
    /// Nothing before this time, unless blobs are added.
    At(Now),
    Never,
}

/// Decides for the owner of one partition.
#[derive(Clone, Debug)]
pub struct Scheduler {
    partition: PartitionId,
    policy: MergePolicy,
    /// The last hour in which all closed deltas were merged.
    hour_slot: u64,
    /// The last day in which all closed hours of a virtual partition were merged.
    day_slots: BTreeMap<Scope, u64>,
    /// No merge begins before, unless there are too many deltas.
    paced_until: Now,
}

/// Hours or days that are over, seen with a delay.
#[derive(Clone, Copy)]
struct Clock {
    length_s: u64,
    delay_s: u64,
}

/// Blobs of a scope and period, which become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    scope: Scope,
    period: Day,
}

impl Clock {
    /// How many are over: all with a lower number.
    fn slot(self, now: Now) -> u64 {
        now.seconds().saturating_sub(self.delay_s) / self.length_s
    }

    /// When one of this number is over.
    fn end(self, number: u64) -> Now {
        Now((number.saturating_add(1).saturating_mul(self.length_s).saturating_add(self.delay_s)).saturating_mul(1_000))
    }
}

impl Next {
    /// The earlier of the two.
    fn or(self, other: impl FnOnce() -> Next) -> Next {
        match self {
            Next::Merge(merge) => Next::Merge(merge),
            Next::Never => other(),
            Next::At(at) => match other() {
                Next::Merge(merge) => Next::Merge(merge),
                Next::At(other) => Next::At(at.min(other)),
                Next::Never => Next::At(at),
            },
        }
    }
}

impl Scheduler {
    /// Of an owner that claims its partition now. Deltas that are there wait for the next hour.
    pub fn new(now: Now, partition: PartitionId, policy: MergePolicy) -> Scheduler {
        let day_slots = BTreeMap::new();
        let mut scheduler = Scheduler { partition, policy, hour_slot: 0, day_slots, paced_until: Now(0) };
        scheduler.hour_slot = scheduler.hours().slot(now);
        scheduler
    }

    /// From now on, merges read at most this number of rows.
    pub fn limit_rows(&mut self, rows_max: u64) {
        self.policy.rows_max = self.policy.rows_max.min(rows_max);
    }

    /// The next merge as time goes on.
    pub fn next(&mut self, now: Now, live: &BlobSet, layout: &Layout) -> Next {
        let hours = self.next_hour(now, live);
        let days = hours.or(|| self.next_day(now, live));
        days.or(|| self.next_period(now, live, layout))
    }

    /// The next merge when all that can be merged is to be, as at the end of a source.
    pub fn next_sealing(&self, now: Now, live: &BlobSet, layout: &Layout) -> Option<Merge> {
        let closed_before = self.closed_before(now, 0);
        let merge = |target, inputs| Merge { target, inputs, closed_before, old_before: closed_before };
        let is_closed = |meta: &BlobMeta| meta.hours.last.day() < closed_before;
        let hours = live.of_level(Level::Hour).filter(is_closed);
        let low = within(live.of_level(Level::Delta).chain(hours).collect(), self.policy.rows_max, 1);
        if !low.is_empty() {
            return Some(merge(Target::Period, low));
        }
        let mut groups: BTreeMap<Group, Vec<BlobMeta>> = BTreeMap::new();
        for meta in live.of_level(Level::Day).filter(is_closed).chain(live.of_level(Level::Period)) {
            groups.entry(Group::of(&meta, layout)).or_default().push(meta);
        }
        if let Some(inputs) = groups.into_values().find_map(|blobs| self.joined(blobs)) {
            return Some(merge(Target::Period, inputs));
        }
        let mut days: BTreeMap<(Scope, Day), Vec<BlobMeta>> = BTreeMap::new();
        for meta in live.of_level(Level::Hour) {
            days.entry((meta.scope, meta.hours.first.day())).or_default().push(meta);
        }
        let inputs = days.into_values().find_map(|blobs| self.joined(blobs))?;
        Some(merge(Target::Hour, inputs))
    }

    fn next_hour(&mut self, now: Now, live: &BlobSet) -> Next {
        let deltas = self.next_deltas(now, live);
        deltas.or(|| self.next_hours_joined(now, live))
    }

    /// Deltas become hours.
    fn next_deltas(&mut self, now: Now, live: &BlobSet) -> Next {
        let deltas: Vec<BlobMeta> = live.of_level(Level::Delta).collect();
        if deltas.is_empty() {
            return Next::Never;
        }
        let clock = self.hours();
        let slot = clock.slot(now);
        let is_pressed = deltas.len() >= self.policy.deltas_max.max(1);
        if !is_pressed && slot <= self.hour_slot {
            return Next::At(clock.end(self.hour_slot));
        }
        let is_closed = |meta: &BlobMeta| is_pressed || u64::from(meta.hours.last.0) < slot;
        let closed: Vec<BlobMeta> = deltas.into_iter().filter(is_closed).collect();
        if closed.is_empty() {
            self.hour_slot = slot;
            return Next::At(clock.end(slot));
        }
        if !is_pressed && now < self.paced_until {
            return Next::At(self.paced_until);
        }
        let count = closed.len();
        let inputs = within(closed, self.policy.rows_max, 1);
        if inputs.len() == count {
            self.hour_slot = slot;
        }
        Next::Merge(match is_pressed {
            // Others do not wait for it.
            true => self.merge(now, Target::Hour, inputs),
            false => self.paced(now, Target::Hour, inputs),
        })
    }

    /// The deltas of one hour may be more than one merge reads. Its blobs repeat most pairs, so they become one before the day is
    /// merged. A few late rows do not have a large blob written again.
    fn next_hours_joined(&mut self, now: Now, live: &BlobSet) -> Next {
        let slot = self.hours().slot(now);
        let mut parts: BTreeMap<(Scope, Hour), Vec<BlobMeta>> = BTreeMap::new();
        for meta in live.of_level(Level::Hour).filter(|meta| u64::from(meta.hours.last.0) < slot) {
            parts.entry((meta.scope, meta.hours.last)).or_default().push(meta);
        }
        let joined = parts.into_values().find_map(|parts| self.joined(parts).filter(|inputs| are_alike(inputs)));
        match joined {
            Some(_) if now < self.paced_until => Next::At(self.paced_until),
            Some(inputs) => Next::Merge(self.paced(now, Target::Hour, inputs)),
            None => Next::Never,
        }
    }

    fn next_day(&mut self, now: Now, live: &BlobSet) -> Next {
        let mut next = Next::Never;
        let mut by_scope: BTreeMap<Scope, Vec<BlobMeta>> = BTreeMap::new();
        for meta in live.of_level(Level::Hour) {
            by_scope.entry(meta.scope).or_default().push(meta);
        }
        self.day_slots.retain(|scope, _| by_scope.contains_key(scope));
        for (scope, hours) in by_scope {
            let clock = self.days(DAY, scope);
            let slot = clock.slot(now);
            let is_done = self.day_slots.get(&scope).is_some_and(|done| slot <= *done);
            let closed: Vec<BlobMeta> =
                hours.into_iter().filter(|meta| u64::from(meta.hours.last.day().0) < slot).collect();
            if closed.is_empty() || is_done {
                next = next.or(|| Next::At(clock.end(slot)));
                continue;
            }
            if now < self.paced_until {
                next = next.or(|| Next::At(self.paced_until));
                continue;
            }
            let count = closed.len();
            let inputs = within(closed, self.policy.rows_max, 1);
            if inputs.len() == count {
                self.day_slots.insert(scope, slot);
            }
            return Next::Merge(self.paced(now, Target::Day, inputs));
        }
        next
    }

    /// Days become part of their period. Two blobs of one day and bucket become one, if their period is not due yet.
    fn next_period(&mut self, now: Now, live: &BlobSet, layout: &Layout) -> Next {
        let mut next = Next::Never;
        let mut groups: BTreeMap<Group, Vec<BlobMeta>> = BTreeMap::new();
        for meta in live.of_level(Level::Day) {
            groups.entry(Group::of(&meta, layout)).or_default().push(meta);
        }
        for (group, days) in groups {
            let clock = self.days(PERIOD, group.scope);
            let slot = clock.slot(now);
            let (mut due, waiting): (Vec<BlobMeta>, Vec<BlobMeta>) =
                days.into_iter().partition(|meta| u64::from(meta.hours.last.day().0) < slot);
            if due.is_empty() {
                next = next.or(|| Next::At(clock.end(slot)));
            } else {
                let of_period = |meta: &BlobMeta| Group::of(meta, layout) == group;
                let replaced: Vec<BlobMeta> = live.of_scope(Level::Period, group.scope).filter(of_period).collect();
                if bites(Bug::LateRowsLeftOut) && !replaced.is_empty() {
                    continue;
                }
                due.extend(replaced);
            }
            let period = self.joined(due).map(|inputs| (Target::Period, inputs));
            let day = || self.joined(same_day(waiting)).filter(|inputs| inputs.len() > 1);
            let Some((target, inputs)) = period.or_else(|| Some((Target::Day, day()?))) else { continue };
            if now < self.paced_until {
                next = next.or(|| Next::At(self.paced_until));
                continue;
            }
            return Next::Merge(self.paced(now, target, inputs));
        }
        next
    }

    fn paced(&mut self, now: Now, target: Target, inputs: Vec<BlobMeta>) -> Merge {
        self.paced_until = now.plus_ms(self.policy.merge_every_ms);
        self.merge(now, target, inputs)
    }

    fn merge(&self, now: Now, target: Target, inputs: Vec<BlobMeta>) -> Merge {
        let spread_s = self.policy.day_spread_s.saturating_add(self.policy.period_spread_s);
        let closed_before = self.closed_before(now, 0);
        Merge { target, inputs, closed_before, old_before: self.closed_before(now, spread_s) }
    }

    /// As many blobs as one merge may read, if that makes fewer blobs of them or lifts one.
    fn joined(&self, blobs: Vec<BlobMeta>) -> Option<Vec<BlobMeta>> {
        let fitting = within(blobs, self.policy.rows_max, 0);
        let is_lifted = fitting.iter().any(|meta| meta.level == Level::Day) && fitting.len() == 1;
        (fitting.len() > 1 || is_lifted).then_some(fitting)
    }

    fn closed_before(&self, now: Now, spread_s: u64) -> Day {
        let delay_s = self.policy.lateness_s.saturating_add(spread_s);
        let slot = Clock { length_s: DAY_S, delay_s }.slot(now);
        Day(u32::try_from(slot).unwrap_or(u32::MAX))
    }

    fn hours(&self) -> Clock {
        let phase_s = Phase::Hour.of(u64::from(self.partition.0), self.policy.hour_spread_s);
        Clock { length_s: HOUR_S, delay_s: self.policy.lateness_s.saturating_add(phase_s) }
    }

    /// The days of a scope, for merges into days or periods.
    fn days(&self, merges: Merges, scope: Scope) -> Clock {
        let MergePolicy { lateness_s, day_spread_s, period_spread_s, .. } = self.policy;
        let number = match scope {
            Scope::Slice(slice) => u64::from(slice.remainder),
            Scope::Part(part) => part.tenant.0.wrapping_add(u64::from(part.part)),
        };
        let phase_s = |spread_s| merges.phase.of(number, spread_s);
        let behind_s = match merges.is_behind_days {
            true => day_spread_s.saturating_add(phase_s(period_spread_s)),
            false => phase_s(day_spread_s),
        };
        Clock { length_s: DAY_S, delay_s: lateness_s.saturating_add(behind_s) }
    }
}

/// Merges of days, and when they are due.
#[derive(Clone, Copy)]
struct Merges {
    phase: Phase,
    is_behind_days: bool,
}

const DAY: Merges = Merges { phase: Phase::Day, is_behind_days: false };
const PERIOD: Merges = Merges { phase: Phase::Period, is_behind_days: true };

impl Group {
    fn of(meta: &BlobMeta, layout: &Layout) -> Group {
        Group { scope: meta.scope, period: layout.period.start_of(meta.hours.first.day()) }
    }
}

/// Work that each partition, virtual partition or bucket does at a time of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Flush,
    Hour,
    Day,
    Period,
    Expire,
}

impl Phase {
    /// The part behind the point, of 2^64: of the golden ratio, and of the square roots of 2, 3, 7 and 13.
    fn step(self) -> u64 {
        match self {
            Phase::Flush => 0x9E37_79B9_7F4A_7C15,
            Phase::Hour => 0x6A09_E667_F3BC_C908,
            Phase::Day => 0xBB67_AE85_84CA_A73B,
            Phase::Period => 0xA54F_F53A_5F1D_36F1,
            Phase::Expire => 0x9B05_688C_2B3E_6C1F,
        }
    }

    /// When, within a time, the work of this number is due. It is the same in every process.
    ///
    /// Multiples of an irrational number lie evenly, however many there are. Each kind of work has its own number, so partitions that
    /// flush together do not merge together. Phases by a hash would meet by chance.
    pub fn of(self, number: u64, spread: u64) -> u64 {
        if bites(Bug::MergesAtMidnight) {
            return 0;
        }
        let part = number.wrapping_mul(self.step());
        ((u128::from(part) * u128::from(spread)) >> 64) as u64
    }
}

/// Whether the largest blob does not have most of the rows.
fn are_alike(blobs: &[BlobMeta]) -> bool {
    let all: u64 = blobs.iter().map(|meta| meta.rows).sum();
    let largest = blobs.iter().map(|meta| meta.rows).max().unwrap_or(0);
    all - largest >= largest / LEAST_JOINED
}

/// The blobs of the first day that has several.
fn same_day(days: Vec<BlobMeta>) -> Vec<BlobMeta> {
    let mut by_day: BTreeMap<Day, Vec<BlobMeta>> = BTreeMap::new();
    for meta in days {
        if let Some(day) = meta.hours.single_day() {
            by_day.entry(day).or_default().push(meta);
        }
    }
    by_day.into_values().find(|blobs| blobs.len() > 1).unwrap_or_default()
}

/// The smallest blobs, as many as their rows allow, and at least `least`.
fn within(mut blobs: Vec<BlobMeta>, rows_max: u64, least: usize) -> Vec<BlobMeta> {
    blobs.sort_by_key(|meta| (meta.rows, meta.key));
    let mut rows = 0_u64;
    let mut fits = |meta: &BlobMeta| {
        rows = rows.saturating_add(meta.rows);
        rows <= rows_max
    };
    let count = blobs.iter().position(|meta| !fits(meta)).unwrap_or(blobs.len());
    blobs.truncate(count.max(least).min(MERGE_BLOBS_MAX));
    blobs
}
