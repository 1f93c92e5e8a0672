//! The layout of blobs: how many virtual partitions and buckets there are, how long a period is, and which tenants are split.
//!
//! The layout is part of the manifest. It decides where new rows go. Blobs that are there say by themselves what they hold.

use crate::limits::{BUCKET_CHANGES_MAX, LARGE_TENANTS_MAX, PARTS_MAX, SLICES_MAX};
use crate::scope::{Part, Scope, Slice, TenantHash};
use crate::time::Day;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How long the period of a blob of the highest level is. Periods are of UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PeriodUnit {
    /// From Monday to Sunday.
    Week,
    #[default]
    Month,
    /// January to March, and so on.
    Quarter,
}

/// From a day on, each virtual partition has this number of buckets. The day counts from the period that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketsFrom {
    pub from: Day,
    pub buckets: u32,
}

/// A tenant with rows that are split by listing, from a day on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LargeTenant {
    pub tenant: TenantHash,
    pub from: Day,
    pub parts: u32,
}

/// Where rows go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    pub period: PeriodUnit,
    pub virtual_partitions: u32,
    /// Sorted by day, the first from day 0 on.
    pub buckets: Vec<BucketsFrom>,
    /// Sorted by tenant.
    pub large: Vec<LargeTenant>,
}

/// Why a layout is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    #[error(
        "{virtual_partitions} virtual partitions of {buckets} buckets: at least 1, and at most {SLICES_MAX} together"
    )]
    Slices { virtual_partitions: u32, buckets: u32 },
    #[error("the buckets are not sorted by day, or do not begin at day 0")]
    BucketDays,
    #[error("the number of buckets changes {0} times: at most {BUCKET_CHANGES_MAX}")]
    BucketChanges(usize),
    #[error("large tenants are not sorted, or one stands twice")]
    LargeOrder,
    #[error("{0} large tenants: at most {LARGE_TENANTS_MAX}")]
    LargeTenants(usize),
    #[error("a large tenant has {0} parts: 1 to {PARTS_MAX}")]
    Parts(u32),
}

/// A text that names no period.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no period: week, month or quarter")]
pub struct PeriodUnitError(String);

impl Default for Layout {
    /// One bucket for all tenants, and months.
    fn default() -> Layout {
        let buckets = vec![BucketsFrom { from: Day(0), buckets: 1 }];
        Layout { period: PeriodUnit::Month, virtual_partitions: 1, buckets, large: Vec::new() }
    }
}

impl Layout {
    /// # Errors
    /// [`LayoutError`] names the value and the limit.
    pub fn check(&self) -> Result<(), LayoutError> {
        if self.buckets.len() > BUCKET_CHANGES_MAX {
            return Err(LayoutError::BucketChanges(self.buckets.len()));
        }
        let is_sorted = self.buckets.windows(2).all(|pair| pair[0].from < pair[1].from);
        if self.buckets.first().is_none_or(|first| first.from != Day(0)) || !is_sorted {
            return Err(LayoutError::BucketDays);
        }
        let virtual_partitions = self.virtual_partitions;
        for &BucketsFrom { buckets, .. } in &self.buckets {
            let slices = virtual_partitions.checked_mul(buckets).filter(|slices| (1..=SLICES_MAX).contains(slices));
            if slices.is_none() {
                return Err(LayoutError::Slices { virtual_partitions, buckets });
            }
        }
        if self.large.len() > LARGE_TENANTS_MAX {
            return Err(LayoutError::LargeTenants(self.large.len()));
        }
        if !self.large.windows(2).all(|pair| pair[0].tenant < pair[1].tenant) {
            return Err(LayoutError::LargeOrder);
        }
        match self.large.iter().find(|large| !(1..=PARTS_MAX).contains(&large.parts)) {
            Some(large) => Err(LayoutError::Parts(large.parts)),
            None => Ok(()),
        }
    }

    /// Whether a later layout only adds to this one: the same periods and virtual partitions, buckets of later days, and large
    /// tenants.
    pub fn is_extended_by(&self, later: &Layout) -> bool {
        let has_same_large = self.large.iter().all(|large| later.large.contains(large));
        self.period == later.period
            && self.virtual_partitions == later.virtual_partitions
            && later.buckets.starts_with(&self.buckets)
            && has_same_large
    }

    /// How many slices all buckets of a day are, together.
    pub fn slices(&self, day: Day) -> u32 {
        let period = self.period.start_of(day);
        let is_later = |change: &&BucketsFrom| self.period.start_of(change.from) <= period;
        let buckets = self.buckets.iter().rev().find(is_later).map_or(1, |change| change.buckets);
        self.virtual_partitions.saturating_mul(buckets)
    }

    /// The scope of the day blob or period blob of a row.
    pub fn scope(&self, tenant: TenantHash, listing: &str, day: Day) -> Scope {
        match self.split(tenant).filter(|large| large.from <= day) {
            Some(large) => Scope::Part(Part::of(tenant, listing, large.parts)),
            None => Scope::Slice(Slice::of(tenant, self.slices(day))),
        }
    }

    /// How a tenant is split, if it is.
    pub fn split(&self, tenant: TenantHash) -> Option<&LargeTenant> {
        let at = self.large.binary_search_by_key(&tenant, |large| large.tenant).ok()?;
        self.large.get(at)
    }
}

impl PeriodUnit {
    /// The first day of the period that holds a day. Days before 1970 do not exist: the first week begins at day 0.
    pub fn start_of(self, day: Day) -> Day {
        match self {
            // Day 0 was a Thursday.
            PeriodUnit::Week => Day(day.0.saturating_add(3) / 7 * 7).minus(3),
            PeriodUnit::Month => day.minus(day.date().day - 1),
            PeriodUnit::Quarter => {
                let months = (day.date().month - 1) % 3;
                (0..months).fold(PeriodUnit::Month.start_of(day), |start, _| PeriodUnit::Month.start_of(start.minus(1)))
            }
        }
    }
}

impl fmt::Display for PeriodUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PeriodUnit::Week => "week",
            PeriodUnit::Month => "month",
            PeriodUnit::Quarter => "quarter",
        })
    }
}

impl FromStr for PeriodUnit {
    type Err = PeriodUnitError;

    fn from_str(text: &str) -> Result<PeriodUnit, PeriodUnitError> {
        let units = [PeriodUnit::Week, PeriodUnit::Month, PeriodUnit::Quarter];
        let found = units.into_iter().find(|unit| unit.to_string() == text);
        found.ok_or_else(|| PeriodUnitError(text.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> Day {
        let numbers: Vec<u32> = text.split('-').map(|number| number.parse().unwrap()).collect();
        let is_same = |day: &Day| {
            let date = day.date();
            [date.year, date.month, date.day] == numbers[..]
        };
        (0..60_000).map(Day).find(is_same).unwrap()
    }

    #[test]
    fn period_of_a_day_begins_where_the_calendar_says() {
        for (date, week, month, quarter) in [
            ("1970-01-01", "1970-01-01", "1970-01-01", "1970-01-01"),
            ("1970-01-05", "1970-01-05", "1970-01-01", "1970-01-01"),
            ("2024-02-29", "2024-02-26", "2024-02-01", "2024-01-01"),
            ("2026-01-01", "2025-12-29", "2026-01-01", "2026-01-01"),
            ("2026-11-28", "2026-11-23", "2026-11-01", "2026-10-01"),
            ("2100-03-01", "2100-03-01", "2100-03-01", "2100-01-01"),
        ] {
            let start = |unit: PeriodUnit| unit.start_of(day(date));
            assert_eq!(start(PeriodUnit::Week), day(week), "{date}");
            assert_eq!(start(PeriodUnit::Month), day(month), "{date}");
            assert_eq!(start(PeriodUnit::Quarter), day(quarter), "{date}");
        }
    }

    #[test]
    fn number_of_buckets_changes_at_a_period() {
        let change = BucketsFrom { from: day("2026-03-15"), buckets: 5 };
        let first = BucketsFrom { from: Day(0), buckets: 2 };
        let layout = Layout { virtual_partitions: 3, buckets: vec![first, change], ..Layout::default() };
        assert_eq!(layout.check(), Ok(()));
        assert_eq!([layout.slices(day("2026-02-28")), layout.slices(day("2026-03-01"))], [6, 15]);
        let weeks = Layout { period: PeriodUnit::Week, ..layout.clone() };
        assert_eq!([weeks.slices(day("2026-03-08")), weeks.slices(day("2026-03-09"))], [6, 15]);
        assert!(Layout { buckets: vec![first], ..layout.clone() }.is_extended_by(&layout));
        assert!(!layout.is_extended_by(&weeks));
    }

    #[test]
    fn large_tenant_is_split_from_its_day_on() {
        let tenant = TenantHash::of("big");
        let large = vec![LargeTenant { tenant, from: Day(100), parts: 4 }];
        let layout = Layout { large, ..Layout::default() };
        assert_eq!(layout.scope(tenant, "a", Day(99)), Scope::ALL);
        assert_eq!(layout.scope(tenant, "a", Day(100)), Scope::Part(Part::of(tenant, "a", 4)));
        assert_eq!(layout.scope(TenantHash::of("small"), "a", Day(100)), Scope::ALL);
    }

    #[test]
    fn layouts_outside_a_limit_are_refused() {
        let buckets = |all: &[(u32, u32)]| Layout {
            buckets: all.iter().map(|&(from, buckets)| BucketsFrom { from: Day(from), buckets }).collect(),
            ..Layout::default()
        };
        assert_eq!(buckets(&[]).check(), Err(LayoutError::BucketDays));
        assert_eq!(buckets(&[(0, 1), (0, 2)]).check(), Err(LayoutError::BucketDays));
        assert_eq!(buckets(&[(0, 0)]).check(), Err(LayoutError::Slices { virtual_partitions: 1, buckets: 0 }));
        let many = Layout { virtual_partitions: 1 << 20, ..buckets(&[(0, 1 << 20)]) };
        assert!(matches!(many.check(), Err(LayoutError::Slices { .. })));
        let large = |parts| LargeTenant { tenant: TenantHash(1), from: Day(0), parts };
        let twice = Layout { large: vec![large(1), large(2)], ..Layout::default() };
        assert_eq!(twice.check(), Err(LayoutError::LargeOrder));
        assert_eq!(Layout { large: vec![large(0)], ..Layout::default() }.check(), Err(LayoutError::Parts(0)));
        assert!("year".parse::<PeriodUnit>().is_err());
        assert_eq!("week".parse(), Ok(PeriodUnit::Week));
    }
}
