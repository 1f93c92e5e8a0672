//! Time as plain integers: hours and their quarters, since 1970 in UTC.

use crate::limits::QUARTERS_MAX;
use serde::{Deserialize, Serialize};

pub const HOUR_S: u64 = 3_600;
pub const QUARTER_S: u64 = 900;
pub const QUARTERS_PER_HOUR: u32 = 4;
pub const HOURS_PER_DAY: u32 = 24;
pub const DAY_S: u64 = 86_400;
/// Days of 400 years, after which the calendar repeats itself.
const ERA_DAYS: u32 = 146_097;
/// Days from the 1st of March of the year 0 to the 1st of January 1970.
const EPOCH_DAYS: u32 = 719_468;

/// Milliseconds since 1970 by the clock of the shell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now(pub u64);

/// An hour since 1970 in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Hour(pub u32);

/// A quarter of an hour since 1970 in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quarter(u32);

/// A day since 1970 in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Day(pub u32);

/// A day of the Gregorian calendar. Months and days count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    pub year: u32,
    pub month: u32,
    pub day: u32,
}

/// Hours from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HourRange {
    pub first: Hour,
    pub last: Hour,
}

/// Days from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Days {
    pub first: Day,
    pub last: Day,
}

impl Days {
    pub fn contains(&self, day: Day) -> bool {
        self.first <= day && day <= self.last
    }

    /// All hours of the days, up to the last that a row may name.
    pub fn hours(&self) -> HourRange {
        let start = |day: u32| Hour(day.saturating_mul(HOURS_PER_DAY));
        let end = start(self.last.0.saturating_add(1));
        HourRange { first: start(self.first.0), last: Hour(end.0.saturating_sub(1)) }
    }
}

impl Now {
    pub fn seconds(self) -> u64 {
        self.0 / 1_000
    }

    pub fn plus_ms(self, ms: u64) -> Now {
        Now(self.0.saturating_add(ms))
    }
}

impl Hour {
    /// The last hour that a row may name.
    pub const MAX: Hour = Hour(QUARTERS_MAX / QUARTERS_PER_HOUR - 1);

    pub fn start_s(self) -> u64 {
        u64::from(self.0) * HOUR_S
    }

    pub fn day(self) -> Day {
        Day(self.0 / HOURS_PER_DAY)
    }

    /// The quarter at an index from 0 to 3.
    pub fn quarter(self, index: usize) -> Quarter {
        Quarter(self.0 * QUARTERS_PER_HOUR + index as u32)
    }
}

impl Day {
    pub fn minus(self, days: u32) -> Day {
        Day(self.0.saturating_sub(days))
    }

    /// Counts in years that begin in March, so that the leap day is the last day of a year.
    pub fn date(self) -> Date {
        let days = self.0.saturating_add(EPOCH_DAYS);
        let of_era = days % ERA_DAYS;
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month_from_march + 2) / 5 + 1;
        let is_next_year = month_from_march >= 10;
        let month = if is_next_year { month_from_march - 9 } else { month_from_march + 3 };
        Date { year: days / ERA_DAYS * 400 + year_of_era + u32::from(is_next_year), month, day }
    }
}

impl Quarter {
    /// The quarter that holds a second; `None` behind the last one.
    pub fn of_s(seconds: u64) -> Option<Quarter> {
        let quarter = u32::try_from(seconds / QUARTER_S).ok()?;
        (quarter < QUARTERS_MAX).then_some(Quarter(quarter))
    }

    /// The quarter of this number, which [`Quarter::number`] gave.
    pub(crate) fn from_number(number: u32) -> Quarter {
        Quarter(number)
    }

    /// Quarters since 1970: below [`QUARTERS_MAX`].
    pub fn number(self) -> u32 {
        self.0
    }

    pub fn start_s(self) -> u64 {
        u64::from(self.0) * QUARTER_S
    }

    pub fn hour(self) -> Hour {
        Hour(self.0 / QUARTERS_PER_HOUR)
    }

    /// Its index within the hour, from 0 to 3.
    pub fn index(self) -> usize {
        (self.0 % QUARTERS_PER_HOUR) as usize
    }
}

impl HourRange {
    pub const ALL: HourRange = HourRange { first: Hour(0), last: Hour::MAX };

    pub fn of(hour: Hour) -> HourRange {
        HourRange { first: hour, last: hour }
    }

    pub fn include(&mut self, hour: Hour) {
        self.first = self.first.min(hour);
        self.last = self.last.max(hour);
    }

    pub fn overlaps(&self, other: &HourRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    pub fn contains(&self, hour: Hour) -> bool {
        self.first <= hour && hour <= self.last
    }

    /// The day that holds all of its hours, if one does.
    pub fn single_day(&self) -> Option<Day> {
        (self.first.day() == self.last.day()).then(|| self.first.day())
    }
}
