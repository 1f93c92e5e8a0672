//! Calendar arithmetic in time zones: "the last 30 days", "yesterday in Kathmandu", "every hour of that day".
//!
//! Zones come from the IANA database that is compiled in (decision 0037): nothing is read from the machine, and the same version of
//! Tidemark gives the same boundaries everywhere. All of it is for queries. No replicated state depends on a zone, so two versions of
//! the database may serve side by side.
//!
//! Days begin with their first second: at 01:00 where the clocks skip midnight. They have 23, 24 or 25 hours, or others still; a
//! day that a zone leaves out has none, and the day before stands for it. Weeks begin on Monday (ISO 8601).

pub use super::timestamp::NoTime;
use super::timestamp::{Written, written};
use super::{UnixTime, Window, WindowEmpty};
use crate::limits::{STEPS_MAX, ZONE_NAME_BYTES_MAX};
use jiff::civil::Date;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Span, Timestamp, Zoned};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The largest count of a period.
const COUNT_MAX: u32 = 1_000_000;

/// A time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

/// A name that the database does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("unknown time zone {0:?}: names are those of the IANA database, such as Asia/Kathmandu")]
pub struct UnknownZone(String);

/// The unit of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, PartialOrd, Ord)]
pub enum CalendarUnit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

/// A number of units. Up to hours it is elapsed time; from days on it is counted by the zone's calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(u32, CalendarUnit)", into = "(u32, CalendarUnit)")]
pub struct Period {
    count: u32,
    unit: CalendarUnit,
}

/// Where steps are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Anchor {
    /// Counted back from the end of the window: the first step may be shorter.
    End,
    /// Where the zone's calendar begins a unit: the first and the last step may be shorter.
    Calendar,
}

/// Why a period or a computed time is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum CalendarError {
    #[error("period {0:?}: a number from 1 to {COUNT_MAX} and one of s, m, h, d, w, mo, y, such as 30d")]
    Period(String),
    #[error("unit {0:?}: one of second, minute, hour, day, week, month and year")]
    Unit(String),
    #[error("calendar steps of {period}: the count must divide {divides}")]
    Uneven { period: Period, divides: u32 },
    #[error("more than {STEPS_MAX} boundaries of steps of {0}")]
    TooManySteps(Period),
    #[error("{period} before {at_s} s: not between 1970 and 3000")]
    OutOfRange { period: Period, at_s: u64 },
    #[error(
        "time {0:?}: seconds since 1970, or a date or time such as 2026-11-24 or 2026-11-24T10:30, between 1970 and 3000"
    )]
    Time(String),
    #[error(transparent)]
    Empty(#[from] WindowEmpty),
}

impl UnknownZone {
    /// The name that no zone has.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl CalendarUnit {
    const ALL: [(CalendarUnit, &'static str); 7] = {
        use CalendarUnit::*;
        [(Second, "s"), (Minute, "m"), (Hour, "h"), (Day, "d"), (Week, "w"), (Month, "mo"), (Year, "y")]
    };

    /// How many of it make the next larger unit of the calendar.
    fn divides(self) -> u32 {
        match self {
            CalendarUnit::Second | CalendarUnit::Minute => 60,
            CalendarUnit::Hour => 24,
            CalendarUnit::Month => 12,
            CalendarUnit::Day | CalendarUnit::Week | CalendarUnit::Year => 1,
        }
    }

    /// Seconds, where it is elapsed time.
    fn elapsed_s(self) -> Option<i64> {
        match self {
            CalendarUnit::Second => Some(1),
            CalendarUnit::Minute => Some(60),
            CalendarUnit::Hour => Some(3_600),
            CalendarUnit::Day | CalendarUnit::Week | CalendarUnit::Month | CalendarUnit::Year => None,
        }
    }
}

impl Period {
    /// Error: a count of 0 or above 1,000,000.
    pub fn new(count: u32, unit: CalendarUnit) -> Result<Period, CalendarError> {
        let period = Period { count, unit };
        if (1..=COUNT_MAX).contains(&count) { Ok(period) } else { Err(CalendarError::Period(period.to_string())) }
    }

    /// Its length where it has one: months and years have none. A day is 24 hours here.
    pub fn fixed_s(self) -> Option<u64> {
        let unit_s = match self.unit {
            CalendarUnit::Day => 86_400,
            CalendarUnit::Week => 7 * 86_400,
            unit @ (CalendarUnit::Second
            | CalendarUnit::Minute
            | CalendarUnit::Hour
            | CalendarUnit::Month
            | CalendarUnit::Year) => unit.elapsed_s()? as u64,
        };
        Some(unit_s * u64::from(self.count))
    }

    /// A number of seconds, in the largest unit of fixed length up to days; `None` for 0 and if the count would be too large.
    pub fn of_s(seconds: u64) -> Option<Period> {
        use CalendarUnit::{Day, Hour, Minute, Second};
        let units = [(Day, 86_400), (Hour, 3_600), (Minute, 60), (Second, 1)];
        let (unit, unit_s) = units.into_iter().find(|&(_, unit_s)| seconds.is_multiple_of(unit_s))?;
        Period::new(u32::try_from(seconds / unit_s).ok()?, unit).ok()
    }
}

impl TryFrom<(u32, CalendarUnit)> for Period {
    type Error = CalendarError;

    fn try_from((count, unit): (u32, CalendarUnit)) -> Result<Period, CalendarError> {
        Period::new(count, unit)
    }
}

impl From<Period> for (u32, CalendarUnit) {
    fn from(period: Period) -> (u32, CalendarUnit) {
        (period.count, period.unit)
    }
}

impl FromStr for CalendarUnit {
    type Err = CalendarError;

    /// Its name in English, or as in a [`Period`].
    fn from_str(text: &str) -> Result<CalendarUnit, CalendarError> {
        let names = ["second", "minute", "hour", "day", "week", "month", "year"];
        let mut known = names.iter().zip(CalendarUnit::ALL);
        let found = known.find(|(name, unit)| **name == text || unit.1 == text);
        found.map(|(_, unit)| unit.0).ok_or_else(|| CalendarError::Unit(text.chars().take(16).collect()))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = CalendarUnit::ALL.iter().find(|known| known.0 == self.unit);
        write!(f, "{}{}", self.count, known.map_or("", |known| known.1))
    }
}

impl FromStr for Period {
    type Err = CalendarError;

    /// The text that `Display` gives.
    fn from_str(text: &str) -> Result<Period, CalendarError> {
        let no = || CalendarError::Period(text.chars().take(16).collect());
        let (digits, suffix) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).ok_or_else(no)?);
        let (unit, _) = CalendarUnit::ALL.into_iter().find(|known| known.1 == suffix).ok_or_else(no)?;
        Period::new(digits.parse().map_err(|_| no())?, unit).map_err(|_| no())
    }
}

impl Zone {
    pub const UTC: Zone = Zone(TimeZone::UTC);

    /// A zone of the IANA database, in capitals or not. `Factory` and `Etc/Unknown` are names for an unset clock, and are
    /// refused.
    pub fn named(name: &str) -> Result<Zone, UnknownZone> {
        let unknown = || UnknownZone(name.chars().take(ZONE_NAME_BYTES_MAX).collect());
        let is_unset = ["Factory", "Etc/Unknown"].iter().any(|unset| unset.eq_ignore_ascii_case(name));
        if name.len() > ZONE_NAME_BYTES_MAX || is_unset {
            return Err(unknown());
        }
        TimeZoneDatabase::bundled().get(name).map(Zone).map_err(|_| unknown())
    }

    /// Its name in the database.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// Reads the texts of a [`UnixTime`], or a date or time by this zone's clock: a date is the day's first second.
    pub fn time(&self, text: &str) -> Result<UnixTime, CalendarError> {
        let seconds = match written(text) {
            Some(Written::Day(date)) => Some(self.start_of(date)),
            Some(Written::Local(at)) => at.to_zoned(self.0.clone()).ok().map(|at| at.timestamp().as_second()),
            Some(Written::Instant(_)) | None => text.parse::<UnixTime>().ok().map(|at| at.s() as i64),
        };
        let time = seconds.and_then(|seconds| UnixTime::from_s(seconds).ok());
        time.ok_or_else(|| CalendarError::Time(text.chars().take(40).collect()))
    }

    /// The time at which this zone's clock shows this number of seconds since 1970-01-01T00:00:00; `None` out of range. If the
    /// clock shows a time twice, it is the first. A time that the clock leaves out is later by as much as the clock leaps.
    pub fn at_clock(&self, seconds: i64) -> Option<UnixTime> {
        let clock = Timestamp::from_second(seconds).ok()?.to_zoned(TimeZone::UTC).datetime();
        let at = clock.to_zoned(self.0.clone()).ok()?;
        UnixTime::from_s(at.timestamp().as_second()).ok()
    }

    /// What this zone's clock shows at a time, as seconds since 1970-01-01T00:00:00. [`Zone::at_clock`] is the way back.
    pub fn clock(&self, at: UnixTime) -> i64 {
        let at_s = at.s() as i64;
        at_s + self.offset_s(at_s)
    }

    /// A time by this zone's clock, with its offset: `2026-11-24T10:30:00+05:45`.
    pub fn text(&self, at: UnixTime) -> String {
        let at = timestamp(at.s() as i64);
        at.display_with_offset(self.0.to_offset(at)).to_string()
    }

    /// The time one period earlier: 7 days before Sunday noon is the last Sunday's noon, though that may be 167 hours.
    pub fn before(&self, at: UnixTime, period: Period) -> Result<UnixTime, CalendarError> {
        self.times_before(at, period, 1)
    }

    /// The window of that length that ends at a time.
    pub fn last(&self, period: Period, to: UnixTime) -> Result<Window, CalendarError> {
        Ok(Window::new(self.before(to, period)?, to)?)
    }

    /// The calendar's unit that holds a time (`back` 0: today, this month) or one before it (1: yesterday, last month).
    pub fn unit(&self, unit: CalendarUnit, at: UnixTime, back: u32) -> Result<Window, CalendarError> {
        let period = Period { count: 1, unit };
        let out = CalendarError::OutOfRange { period, at_s: at.s() };
        if let Some(length_s) = unit.elapsed_s() {
            let from = self.elapsed_floor(at.s() as i64 - i64::from(back) * length_s, length_s);
            let to = self.elapsed_next(from, length_s);
            return Ok(Window::new(self.cut(from, &out)?, self.cut(to, &out)?)?);
        }
        let mut first = first_date(unit, self.zoned(at).date()).ok_or(out.clone())?;
        // Where clocks go back over midnight, a time after the first second of a day may still carry the date before.
        while let Some(next) = add_units(first, unit, 1).filter(|&next| self.start_of(next) <= at.s() as i64) {
            first = next;
        }
        let mut from = add_units(first, unit, -i64::from(back)).ok_or(out.clone())?;
        let to = add_units(from, unit, 1).ok_or(out.clone())?;
        // A day that the zone leaves out begins where the next one does.
        while self.start_of(from) >= self.start_of(to) {
            from = add_units(from, unit, -1).ok_or(out.clone())?;
        }
        Ok(Window::new(self.cut(self.start_of(from), &out)?, self.cut(self.start_of(to), &out)?)?)
    }

    /// The calendar's unit before the one that begins at this time.
    pub fn unit_before(&self, unit: CalendarUnit, begin: UnixTime) -> Result<Window, CalendarError> {
        let out = CalendarError::OutOfRange { period: Period { count: 1, unit }, at_s: begin.s() };
        self.unit(unit, self.cut(begin.s() as i64 - 1, &out)?, 0)
    }

    /// The window that ends where another begins and is as long by the calendar: as many days, and as many seconds for the rest
    /// that is no whole day. Whole days begin and end with their first seconds, however many hours they have.
    pub fn as_long_before(&self, window: Window) -> Result<Window, CalendarError> {
        let from = self.zoned(window.from());
        let to = self.zoned(window.to());
        let is_first = |at: &Zoned| self.start_of(at.date()) == at.timestamp().as_second();
        let mut days = i64::from((to.date() - from.date()).get_days());
        if is_first(&from) && is_first(&to) {
            return self.days_before(window.from(), from.date(), days);
        }
        let behind = |days| from.checked_add(span(CalendarUnit::Day, days)?).ok();
        if behind(days).is_none_or(|behind| behind > to) {
            days -= 1;
        }
        let days = days.max(0);
        let rest_s = match behind(days) {
            Some(behind) if days > 0 => to.timestamp().as_second() - behind.timestamp().as_second(),
            _ => window.length_s() as i64,
        };
        let (begin, out) = match Period::new(days as u32, CalendarUnit::Day) {
            Ok(period) => {
                (self.before(window.from(), period)?, CalendarError::OutOfRange { period, at_s: window.from().s() })
            }
            Err(_) => {
                let period = Period { count: rest_s as u32, unit: CalendarUnit::Second };
                (window.from(), CalendarError::OutOfRange { period, at_s: window.from().s() })
            }
        };
        Ok(Window::new(self.cut(begin.s() as i64 - rest_s, &out)?, window.from())?)
    }

    /// The window of this number of calendar days up to the beginning of a day.
    fn days_before(&self, begin: UnixTime, date: Date, days: i64) -> Result<Window, CalendarError> {
        let period = Period { count: days as u32, unit: CalendarUnit::Day };
        let out = CalendarError::OutOfRange { period, at_s: begin.s() };
        let mut first = add_units(date, CalendarUnit::Day, -days).ok_or(out.clone())?;
        while self.start_of(first) >= begin.s() as i64 {
            first = add_units(first, CalendarUnit::Day, -1).ok_or(out.clone())?;
        }
        Ok(Window::new(self.cut(self.start_of(first), &out)?, begin)?)
    }

    /// Cuts a window into steps: boundaries ascending, the first is the window's beginning and the last its end.
    pub fn steps(&self, window: Window, every: Period, anchor: Anchor) -> Result<Vec<UnixTime>, CalendarError> {
        let mut inner = match anchor {
            Anchor::End => self.steps_from_end(window, every)?,
            Anchor::Calendar => self.steps_of_calendar(window, every)?,
        };
        inner.sort_unstable();
        inner.dedup();
        inner.retain(|&at| window.from() < at && at < window.to());
        Ok([&[window.from()][..], &inner, &[window.to()]].concat())
    }

    fn steps_from_end(&self, window: Window, every: Period) -> Result<Vec<UnixTime>, CalendarError> {
        let mut inner = Vec::new();
        for times in 1.. {
            match self.times_before(window.to(), every, times) {
                Ok(at) if at > window.from() => push_step(&mut inner, at, every)?,
                Ok(_) | Err(CalendarError::OutOfRange { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(inner)
    }

    fn steps_of_calendar(&self, window: Window, every: Period) -> Result<Vec<UnixTime>, CalendarError> {
        let divides = every.unit.divides();
        if !divides.is_multiple_of(every.count) {
            return Err(CalendarError::Uneven { period: every, divides });
        }
        let mut inner = Vec::new();
        let from = window.from().s() as i64;
        let to = window.to().s() as i64;
        let out = CalendarError::OutOfRange { period: every, at_s: window.from().s() };
        if let Some(unit_s) = every.unit.elapsed_s() {
            let step_s = unit_s * i64::from(every.count);
            let mut at = self.elapsed_next(from, step_s);
            while at < to {
                push_step(&mut inner, self.cut(at, &out)?, every)?;
                at = self.elapsed_next(at, step_s);
            }
            return Ok(inner);
        }
        let mut date = first_date(every.unit, self.zoned(window.from()).date()).ok_or(out.clone())?;
        if every.unit == CalendarUnit::Month {
            let into = (i64::from(date.month()) - 1) % i64::from(every.count);
            date = add_units(date, CalendarUnit::Month, -into).ok_or(out.clone())?;
        }
        while let Some(next) = add_units(date, every.unit, i64::from(every.count)) {
            let at = self.start_of(next);
            if at >= to {
                break;
            }
            if at > from {
                push_step(&mut inner, self.cut(at, &out)?, every)?;
            }
            date = next;
        }
        Ok(inner)
    }

    fn times_before(&self, at: UnixTime, period: Period, times: u64) -> Result<UnixTime, CalendarError> {
        let out = CalendarError::OutOfRange { period, at_s: at.s() };
        let count = i64::try_from(times.saturating_mul(period.count.into())).map_err(|_| out.clone())?;
        if let Some(unit_s) = period.unit.elapsed_s() {
            let earlier = count.checked_mul(unit_s).and_then(|elapsed_s| (at.s() as i64).checked_sub(elapsed_s));
            return self.cut(earlier.ok_or(out.clone())?, &out);
        }
        let at_s = at.s() as i64;
        // Where the zone leaves a day out, the time so much before may be no earlier: then it is that of the day before.
        for count in count.. {
            let span = span(period.unit, count).ok_or(out.clone())?;
            let earlier = self.zoned(at).checked_sub(span).map_err(|_| out.clone())?.timestamp().as_second();
            if earlier < at_s {
                return self.cut(earlier, &out);
            }
        }
        Err(out)
    }

    fn zoned(&self, at: UnixTime) -> Zoned {
        timestamp(at.s() as i64).to_zoned(self.0.clone())
    }

    /// Seconds of the first second of a day.
    fn start_of(&self, date: Date) -> i64 {
        let start = date.to_zoned(self.0.clone()).map(|start| start.timestamp().as_second());
        start.unwrap_or(i64::MAX)
    }

    fn cut(&self, at: i64, out: &CalendarError) -> Result<UnixTime, CalendarError> {
        UnixTime::from_s(at).map_err(|_| out.clone())
    }

    fn offset_s(&self, at: i64) -> i64 {
        self.0.to_offset(timestamp(at)).seconds().into()
    }

    /// The last boundary of steps of elapsed time that is not after a time.
    fn elapsed_floor(&self, at: i64, step_s: i64) -> i64 {
        let mut at = at;
        loop {
            let floor = at - (at + self.offset_s(at)).rem_euclid(step_s);
            let Some(change) = self.0.preceding(timestamp(at + 1)).next() else { return floor };
            let change = change.timestamp().as_second();
            if floor >= change {
                return floor;
            }
            if self.is_boundary(change, step_s) {
                return change;
            }
            at = change - 1;
        }
    }

    /// Whether a change of the offset is a boundary: the clock then shows a multiple of the step, or has jumped forward over one.
    fn is_boundary(&self, change: i64, step_s: i64) -> bool {
        let before = change - 1 + self.offset_s(change - 1);
        let after = change + self.offset_s(change);
        after.rem_euclid(step_s) == 0 || after.div_euclid(step_s) > before.div_euclid(step_s)
    }

    /// The first boundary after a time.
    fn elapsed_next(&self, at: i64, step_s: i64) -> i64 {
        let mut at = at;
        loop {
            let next = at + step_s - (at + self.offset_s(at)).rem_euclid(step_s);
            let Some(change) = self.0.following(timestamp(at)).next() else { return next };
            let change = change.timestamp().as_second();
            if next < change {
                return next;
            }
            if self.is_boundary(change, step_s) {
                return change;
            }
            at = change;
        }
    }
}

fn push_step(inner: &mut Vec<UnixTime>, at: UnixTime, every: Period) -> Result<(), CalendarError> {
    inner.push(at);
    if inner.len() > STEPS_MAX - 2 { Err(CalendarError::TooManySteps(every)) } else { Ok(()) }
}

/// Between 1970 and 3000, give or take some days; jiff's range is wider by far.
fn timestamp(at: i64) -> Timestamp {
    Timestamp::from_second(at).unwrap_or(Timestamp::MAX)
}

/// The first day of the unit that holds a date.
fn first_date(unit: CalendarUnit, date: Date) -> Option<Date> {
    match unit {
        CalendarUnit::Week => add_units(date, CalendarUnit::Day, -i64::from(date.weekday().to_monday_zero_offset())),
        CalendarUnit::Month => Some(date.first_of_month()),
        CalendarUnit::Year => Some(date.first_of_year()),
        CalendarUnit::Second | CalendarUnit::Minute | CalendarUnit::Hour | CalendarUnit::Day => Some(date),
    }
}

fn add_units(date: Date, unit: CalendarUnit, count: i64) -> Option<Date> {
    date.checked_add(span(unit, count)?).ok()
}

fn span(unit: CalendarUnit, count: i64) -> Option<Span> {
    let span = Span::new();
    let span = match unit {
        CalendarUnit::Second => span.try_seconds(count),
        CalendarUnit::Minute => span.try_minutes(count),
        CalendarUnit::Hour => span.try_hours(count),
        CalendarUnit::Day => span.try_days(count),
        CalendarUnit::Week => span.try_weeks(count),
        CalendarUnit::Month => span.try_months(count),
        CalendarUnit::Year => span.try_years(count),
    };
    span.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn utc(text: &str) -> UnixTime {
        UnixTime::from_s(text.parse::<Timestamp>().unwrap().as_second()).unwrap()
    }

    fn zone(name: &str) -> Zone {
        Zone::named(name).unwrap()
    }

    fn period(text: &str) -> Period {
        text.parse().unwrap()
    }

    /// Lengths of the steps, in units of `unit_s` seconds.
    fn lengths(zone: &Zone, window: Window, every: &str, unit_s: u64) -> Vec<u64> {
        let steps = zone.steps(window, period(every), Anchor::Calendar).unwrap();
        steps.windows(2).map(|pair| (pair[1].s() - pair[0].s()) / unit_s).collect()
    }

    #[test]
    fn unknown_zones_and_bad_periods_are_refused_with_what_they_are() {
        for name in [
            "",
            "Mars/Olympus",
            "../etc/passwd",
            "Factory",
            "factory",
            "Etc/Unknown",
            "ETC/UNKNOWN",
            &"x".repeat(10_000),
        ] {
            let refused = Zone::named(name).unwrap_err().to_string();
            assert!(refused.starts_with("unknown time zone") && refused.len() < 160, "{refused}");
        }
        assert_eq!(zone("asia/kathmandu").name(), "Asia/Kathmandu");
        for text in ["", "d", "0d", "-1d", "1000001d", "7x", "9999999999s"] {
            assert!(matches!(text.parse::<Period>(), Err(CalendarError::Period(_))), "{text}");
        }
        let window = Window::new(utc("2026-01-01T00:00:00Z"), utc("2026-02-01T00:00:00Z")).unwrap();
        let uneven = Zone::UTC.steps(window, period("7h"), Anchor::Calendar).unwrap_err();
        assert_eq!(uneven.to_string(), "calendar steps of 7h: the count must divide 24");
        let many = Zone::UTC.steps(window, period("1s"), Anchor::Calendar).unwrap_err();
        assert_eq!(many.to_string(), "more than 8192 boundaries of steps of 1s");
        let early = Zone::UTC.before(UnixTime::from_s(86_399).unwrap(), period("1d")).unwrap_err();
        assert_eq!(early.to_string(), "1d before 86399 s: not between 1970 and 3000");
    }

    #[test]
    fn times_are_seconds_or_as_rfc_3339_writes_them() {
        for text in ["1764000000", "2025-11-24T16:00:00Z", "2025-11-24T17:00:00.999+01:00", "2025-11-24t16:00:00z"] {
            assert_eq!(text.parse(), UnixTime::from_s(1_764_000_000).map_err(NoTime::Range), "{text}");
        }
        let refused = |text: &str| text.parse::<UnixTime>().unwrap_err().to_string();
        for text in
            ["", "-", "yesterday", "2025-11-24", "2025-11-24T16:00:00", "99999999999999999999", &"1".repeat(999)]
        {
            let refused = refused(text);
            assert!(refused.ends_with("such as 2026-11-24T08:00:00Z") && refused.len() < 160, "{refused}");
        }
        for (text, s) in [("-1", "-1"), ("1969-12-31T23:59:59.5Z", "-1"), ("3000-01-01T00:00:01Z", "32503680001")] {
            assert_eq!(refused(text), format!("time {s} s: 0 (1970) to 32503680000 allowed"));
        }
    }

    #[test]
    fn times_are_read_by_the_clock_of_the_zone_and_written_with_its_offset() {
        let kathmandu = zone("Asia/Kathmandu");
        let noon = utc("2026-05-05T06:15:00Z");
        for text in ["2026-05-05T12:00", "2026-05-05 12:00:00", "2026-05-05T06:15:00Z", "1777961700"] {
            assert_eq!(kathmandu.time(text), Ok(noon), "{text}");
        }
        assert_eq!(kathmandu.text(noon), "2026-05-05T12:00:00+05:45");
        assert_eq!(kathmandu.time("2026-05-05"), Ok(utc("2026-05-04T18:15:00Z")));
        assert_eq!(kathmandu.time("2026-05-05t06:15:00.1234567890123z"), Ok(noon));
        for text in [
            "",
            "-1",
            "noon",
            "1969-12-31",
            "3001-01-01",
            "2026-13-01",
            "99999999999999999999",
            "20260505",
            "2026-05-05T12",
            "2026-05-05T24:00",
            "2026-05-05T12:00:60",
            "2026-05-05T12:00:00+25:00",
            "2026-05-05T12:00+05:45",
            "2026-05-05T12:00:00[Asia/Tokyo]",
            "2026-05-05T12:00:00,5",
        ] {
            let refused = kathmandu.time(text).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("time {text:?}: seconds since 1970")), "{refused}");
        }
        assert_eq!("week".parse(), Ok(CalendarUnit::Week));
        assert_eq!("mo".parse(), Ok(CalendarUnit::Month));
        assert!("fortnight".parse::<CalendarUnit>().unwrap_err().to_string().contains("\"fortnight\""));
    }

    #[test]
    fn clock_shows_a_time_once_a_day_unless_it_is_changed() {
        let new_york = zone("America/New_York");
        let twice = ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"].map(|text| new_york.clock(utc(text)));
        assert_eq!(twice[0], twice[1], "half past one comes twice");
        assert_eq!(new_york.at_clock(twice[0]), Some(utc("2026-11-01T05:30:00Z")), "the first of them");
        let skipped = new_york.clock(utc("2026-03-08T06:30:00Z")) + 3_600;
        let later = new_york.at_clock(skipped).unwrap();
        assert_eq!((later, new_york.clock(later)), (utc("2026-03-08T07:30:00Z"), skipped + 3_600));
        assert_eq!(zone("Asia/Kathmandu").clock(utc("2026-05-05T06:15:00Z")), utc("2026-05-05T12:00:00Z").s() as i64);
    }

    #[test]
    fn periods_of_fixed_length_are_seconds() {
        for (text, seconds) in [("90s", 90), ("5m", 300), ("36h", 129_600), ("730d", 63_072_000)] {
            assert_eq!(period(text).fixed_s(), Some(seconds));
            assert_eq!(Period::of_s(seconds).map(|period| period.to_string()).as_deref(), Some(text));
        }
        assert_eq!(
            (period("2w").fixed_s(), period("1mo").fixed_s(), period("1y").fixed_s()),
            (Some(1_209_600), None, None)
        );
        assert_eq!(Period::of_s(0), None);
    }

    #[test]
    fn days_have_23_and_25_hours_where_the_clocks_change() {
        let new_york = zone("America/New_York");
        let spring = new_york.unit(CalendarUnit::Day, utc("2026-03-08T12:00:00Z"), 0).unwrap();
        assert_eq!(spring.length_s(), 23 * 3_600);
        assert_eq!(lengths(&new_york, spring, "1h", 3_600), [1; 23]);
        assert_eq!(lengths(&new_york, spring, "6h", 3_600), [5, 6, 6, 6]);
        let autumn = new_york.unit(CalendarUnit::Day, utc("2026-11-01T12:00:00Z"), 0).unwrap();
        assert_eq!(autumn.length_s(), 25 * 3_600);
        assert_eq!(lengths(&new_york, autumn, "1h", 3_600), [1; 25]);
        assert_eq!(lengths(&new_york, autumn, "2h", 3_600), [3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
        let week = new_york.unit(CalendarUnit::Week, utc("2026-03-08T12:00:00Z"), 0).unwrap();
        assert_eq!(lengths(&new_york, week, "1d", 3_600), [24, 24, 24, 24, 24, 24, 23]);
    }

    #[test]
    fn zones_at_half_and_three_quarters_of_an_hour_have_their_own_days() {
        for (name, start) in [
            ("Asia/Kolkata", "2026-05-04T18:30:00Z"),
            ("Asia/Kathmandu", "2026-05-04T18:15:00Z"),
            ("Australia/Eucla", "2026-05-04T15:15:00Z"),
            ("America/St_Johns", "2026-05-05T02:30:00Z"),
        ] {
            let day = zone(name).unit(CalendarUnit::Day, utc("2026-05-05T10:00:00Z"), 0).unwrap();
            assert_eq!((day.from(), day.length_s()), (utc(start), 86_400), "{name}");
            assert_eq!(lengths(&zone(name), day, "1h", 3_600), [1; 24], "{name}");
        }
        let lord_howe = zone("Australia/Lord_Howe");
        let day = lord_howe.unit(CalendarUnit::Day, utc("2026-04-04T23:00:00Z"), 0).unwrap();
        assert_eq!(day.length_s(), 24 * 3_600 + 1_800, "half an hour back");
        assert_eq!(lengths(&lord_howe, day, "1h", 60)[..3], [60, 90, 60]);
    }

    /// Beirut's clocks skip midnight, Samoa left out a day, and Newfoundland went back over midnight.
    #[test]
    fn days_begin_with_their_first_second_wherever_that_is() {
        let beirut = zone("Asia/Beirut").unit(CalendarUnit::Day, utc("2022-03-27T12:00:00Z"), 0).unwrap();
        assert_eq!((beirut.from(), beirut.length_s()), (utc("2022-03-26T22:00:00Z"), 23 * 3_600));
        assert_eq!(lengths(&zone("Asia/Beirut"), beirut, "6h", 3_600), [5, 6, 6, 6]);
        let apia = zone("Pacific/Apia");
        let month = apia.unit(CalendarUnit::Month, utc("2011-12-05T00:00:00Z"), 0).unwrap();
        assert_eq!(lengths(&apia, month, "1d", 86_400), [1; 30]);
        let johns = zone("America/St_Johns");
        let twice = utc("2006-10-29T02:45:00Z");
        let day = johns.unit(CalendarUnit::Day, twice, 0).unwrap();
        assert!(day.from() <= twice && twice < day.to());
    }

    #[test]
    fn units_before_are_those_of_the_calendar() {
        let paris = zone("Europe/Paris");
        let now = utc("2026-03-30T10:00:00Z");
        let month = paris.unit(CalendarUnit::Month, now, 1).unwrap();
        assert_eq!((month.from(), month.to()), (utc("2026-01-31T23:00:00Z"), utc("2026-02-28T23:00:00Z")));
        let year = paris.unit(CalendarUnit::Year, now, 0).unwrap();
        assert_eq!(
            lengths(&paris, year, "3mo", 86_400),
            [89, 91, 92, 92],
            "an hour less in the first, more in the last"
        );
        assert_eq!(paris.before(now, period("1d")).unwrap(), utc("2026-03-29T10:00:00Z"));
        assert_eq!(paris.before(utc("2026-03-29T10:00:00Z"), period("1d")).unwrap(), utc("2026-03-28T11:00:00Z"));
        assert_eq!(
            paris.before(now, period("1mo")).unwrap(),
            utc("2026-02-28T11:00:00Z"),
            "there is no 30th of February"
        );
        assert_eq!(paris.unit(CalendarUnit::Hour, now, 13).unwrap().from(), utc("2026-03-29T21:00:00Z"));
    }

    #[test]
    fn steps_from_the_end_are_whole_but_for_the_first() {
        let to = utc("2026-03-31T10:20:30Z");
        let window = Zone::UTC.last(period("1mo"), to).unwrap();
        let steps = Zone::UTC.steps(window, period("2w"), Anchor::End).unwrap();
        let days: Vec<u64> = steps.windows(2).map(|pair| (pair[1].s() - pair[0].s()) / 86_400).collect();
        assert_eq!(days, [3, 14, 14]);
    }

    fn any_zone() -> impl Strategy<Value = Zone> {
        let zones: Vec<Zone> =
            TimeZoneDatabase::bundled().available().filter_map(|name| Zone::named(name.as_str()).ok()).collect();
        proptest::sample::select(zones)
    }

    fn any_every() -> impl Strategy<Value = Period> {
        proptest::sample::select(vec!["15m", "30m", "1h", "2h", "6h", "1d", "1w", "1mo", "3mo", "1y"]).prop_map(period)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        /// In every zone of the database, at any time from 1970 to 2100.
        #[test]
        fn steps_partition_the_window_and_begin_where_the_clock_says(
            zone in any_zone(), every in any_every(), from_s in 0i64..4_102_444_800, length_s in 1i64..20_000_000
        ) {
            let at = |s: i64| UnixTime::from_s(s).unwrap();
            let window = Window::new(at(from_s), at(from_s + length_s)).unwrap();
            for anchor in [Anchor::Calendar, Anchor::End] {
                let Ok(steps) = zone.steps(window, every, anchor) else { continue };
                prop_assert!(steps.is_sorted_by(|a, b| a < b));
                prop_assert_eq!((steps[0], steps[steps.len() - 1]), (window.from(), window.to()));
            }
            let Ok(steps) = zone.steps(window, every, Anchor::Calendar) else { return Ok(()) };
            for &boundary in &steps[1..steps.len() - 1] {
                let unit = zone.unit(every.unit, boundary, 0);
                let starts = every.unit.elapsed_s().is_some_and(|_| every.count > 1) || unit.map(Window::from) == Ok(boundary);
                prop_assert!(starts, "{} begins no {} in {}", boundary.s(), every, zone.name());
            }
        }

        /// The dates of the clock, minute by minute.
        #[test]
        fn days_weeks_and_months_begin_where_the_date_first_changes(
            zone in any_zone(), every in proptest::sample::select(vec!["1d", "1w", "1mo"]), from_min in 1_100_000u64..68_000_000,
            length_min in 1u64..30_000
        ) {
            let at = |minute: u64| UnixTime::try_from(minute * 60).unwrap();
            let key = |minute: u64| {
                let date = zone.zoned(at(minute)).date();
                let monday = date.checked_sub(Span::new().days(date.weekday().to_monday_zero_offset())).unwrap();
                match every { "1d" => date, "1w" => monday, _ => date.first_of_month() }
            };
            let mut latest = (from_min - 2_880..=from_min).map(key).max().unwrap();
            let mut expected = vec![at(from_min)];
            for minute in from_min + 1..from_min + length_min {
                let key = key(minute);
                if key > latest {
                    (latest, expected) = (key, [&expected[..], &[at(minute)]].concat());
                }
            }
            expected.push(at(from_min + length_min));
            let window = Window::new(at(from_min), at(from_min + length_min)).unwrap();
            prop_assert_eq!(zone.steps(window, period(every), Anchor::Calendar).unwrap(), expected);
        }

        #[test]
        fn the_window_before_ends_where_the_other_begins(
            zone in any_zone(), unit in proptest::sample::select(vec!["1h", "1d", "1w", "1mo", "1y"]),
            from_s in 200_000_000u64..4_102_444_800, length_s in 1u64..90_000_000
        ) {
            let from = UnixTime::try_from(from_s).unwrap();
            let window = Window::new(from, from.plus(length_s)).unwrap();
            let before = zone.as_long_before(window).unwrap();
            prop_assert_eq!(before.to(), window.from());
            // By the hours that clocks were changed in between, or a day that was left out.
            prop_assert!(before.length_s().abs_diff(length_s) <= 2 * 86_400, "{} s before {length_s} s", before.length_s());
            let unit = period(unit).unit;
            let own = zone.unit(unit, from, 0).unwrap();
            let before = zone.unit_before(unit, own.from()).unwrap();
            prop_assert_eq!(before.to(), own.from());
            let earlier = zone.before(from, Period { count: 1, unit }).unwrap();
            prop_assert!(earlier < from);
        }

        #[test]
        fn the_unit_that_holds_a_time_holds_it(zone in any_zone(), every in any_every(), at_s in 100_000_000i64..4_102_444_800) {
            let at = UnixTime::from_s(at_s).unwrap();
            let unit = zone.unit(every.unit, at, 0).unwrap();
            prop_assert!(unit.from() <= at && at < unit.to());
            let before = zone.unit(every.unit, at, 1).unwrap();
            prop_assert!(before.to() <= at && before.from() < unit.from());
        }
    }
}
