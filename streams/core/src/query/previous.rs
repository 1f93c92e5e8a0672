//! The period before a range, by a zone's calendar: the day before, the same days of the month before, or as many days before.
//!
//! Two periods are compared by the clock. A quarter of an hour of the earlier one stands beside the quarter of the later one whose
//! clock shows the same time. The clock may not show that time, as in the hour that a spring night leaves out, or on the 30th of
//! February. Such a quarter stands beside none, and its counts are told apart.

use super::range::{QuarterRange, time};
use crate::time::{DAY_S, Date, Day, Quarter};
use tidemark_proto::series::calendar::{CalendarError, CalendarUnit, Zone};
use tidemark_proto::series::{UnixTime, Window};

const DAY: i64 = DAY_S as i64;
/// Days of 400 years, and from the 1st of March of the year 0 to the 1st of January 1970.
const ERA_DAYS: i64 = 146_097;
const EPOCH_DAYS: i64 = 719_468;

/// The period before a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviousPeriod {
    pub range: QuarterRange,
    shift: Shift,
}

/// How far the clock of the later period is ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shift {
    Seconds(i64),
    Months(i64),
}

/// Two times by the calendar.
#[derive(Clone, Copy)]
struct Span {
    from: UnixTime,
    to: UnixTime,
}

impl PreviousPeriod {
    /// The period before a range: of a part of a day, the day before; of the first days of a month or of whole months, as many
    /// months before; of any other range, as many days before.
    ///
    /// # Errors
    /// It is not between 1970 and the end of the calendar.
    pub fn of(zone: &Zone, range: QuarterRange) -> Result<PreviousPeriod, CalendarError> {
        let span = Span { from: time(range.start_s())?, to: time(range.end_s())? };
        let day = zone.unit(CalendarUnit::Day, span.from, 0)?;
        if span.to <= day.to() {
            return day_before(zone, span, day);
        }
        let month = zone.unit(CalendarUnit::Month, span.from, 0)?;
        if span.from == month.from()
            && let Some(before) = months_before(zone, span, month)?
        {
            return Ok(before);
        }
        days_before(zone, span)
    }

    /// The same times of the week before.
    ///
    /// # Errors
    /// It is not between 1970 and the end of the calendar.
    pub fn week_before(zone: &Zone, range: QuarterRange) -> Result<PreviousPeriod, CalendarError> {
        let shift_s = 7 * DAY;
        let shifted = |at_s: u64| {
            let at = time(at_s)?;
            let earlier = zone.at_clock(zone.clock(at) - shift_s);
            earlier.ok_or_else(|| CalendarError::Time(at_s.to_string()))
        };
        let from = shifted(range.start_s())?;
        let to = shifted(range.end_s())?;
        Ok(PreviousPeriod { range: quarters(from, to.max(from)), shift: Shift::Seconds(shift_s) })
    }

    /// The same days and times of the month before. A day that it does not have is its end.
    ///
    /// # Errors
    /// It is not between 1970 and the end of the calendar.
    pub fn month_before(zone: &Zone, range: QuarterRange) -> Result<PreviousPeriod, CalendarError> {
        let earlier = |at_s: u64| {
            let at = time(at_s)?;
            let month = zone.unit(CalendarUnit::Month, at, 0)?;
            if at == month.from() {
                return Ok(zone.unit(CalendarUnit::Month, at, 1)?.from());
            }
            let same_day = months_later(zone.clock(at), -1).and_then(|clock| zone.at_clock(clock));
            Ok::<UnixTime, CalendarError>(same_day.map_or(month.from(), |earlier| earlier.min(month.from())))
        };
        let from = earlier(range.start_s())?;
        let to = earlier(range.end_s())?;
        Ok(PreviousPeriod { range: quarters(from, to.max(from)), shift: Shift::Months(1) })
    }

    /// The quarter of the later range that stands beside a quarter of this one.
    pub fn counterpart(&self, zone: &Zone, later: QuarterRange, quarter: Quarter) -> Option<Quarter> {
        let clock = zone.clock(time(quarter.start_s()).ok()?);
        let shifted = match self.shift {
            Shift::Seconds(seconds) => clock + seconds,
            Shift::Months(months) => months_later(clock, months)?,
        };
        let at = zone.at_clock(shifted)?;
        // A time that the clock leaves out.
        if zone.clock(at) != shifted {
            return None;
        }
        Quarter::of_s(at.s()).filter(|quarter| later.contains(*quarter))
    }
}

/// The same times of the day before.
fn day_before(zone: &Zone, span: Span, day: Window) -> Result<PreviousPeriod, CalendarError> {
    let before = zone.unit_before(CalendarUnit::Day, day.from())?;
    // The calendar may leave days out in between.
    let shift_s = (clock_day(zone, day.from()) - clock_day(zone, before.from())) * DAY;
    let shifted = |at: UnixTime| {
        if at == day.from() {
            return before.from();
        }
        if at == day.to() {
            return before.to();
        }
        let earlier = zone.at_clock(zone.clock(at) - shift_s);
        earlier.map_or(before.from(), |earlier| earlier.clamp(before.from(), before.to()))
    };
    let from = shifted(span.from);
    Ok(PreviousPeriod { range: quarters(from, shifted(span.to).max(from)), shift: Shift::Seconds(shift_s) })
}

/// As many whole months before, or the same days of the month before. `None`: the range ends within a later month.
fn months_before(zone: &Zone, span: Span, month: Window) -> Result<Option<PreviousPeriod>, CalendarError> {
    let is_whole = zone.unit(CalendarUnit::Month, span.to, 0)?.from() == span.to;
    if !is_whole && span.to > month.to() {
        return Ok(None);
    }
    let months = if is_whole { month_of(zone, span.to) - month_of(zone, span.from) } else { 1 };
    let back = u32::try_from(months).unwrap_or(u32::MAX);
    let from = zone.unit(CalendarUnit::Month, span.from, back)?.from();
    let same_day = months_later(zone.clock(span.to), -1).and_then(|clock| zone.at_clock(clock));
    let to = match same_day {
        Some(to) if !is_whole => to.min(span.from),
        _ => span.from,
    };
    Ok(Some(PreviousPeriod { range: quarters(from, to), shift: Shift::Months(months) }))
}

/// As many days, and of what is no whole day as many hours.
fn days_before(zone: &Zone, span: Span) -> Result<PreviousPeriod, CalendarError> {
    let before = zone.as_long_before(Window::new(span.from, span.to)?)?;
    let is_first = |at: UnixTime| zone.unit(CalendarUnit::Day, at, 0).is_ok_and(|day| day.from() == at);
    let shift_s = match is_first(span.from) && is_first(before.from()) {
        true => (clock_day(zone, span.from) - clock_day(zone, before.from())) * DAY,
        false => zone.clock(span.from) - zone.clock(before.from()),
    };
    Ok(PreviousPeriod { range: quarters(before.from(), before.to()), shift: Shift::Seconds(shift_s) })
}

/// Days of the clock since 1970.
fn clock_day(zone: &Zone, at: UnixTime) -> i64 {
    zone.clock(at).div_euclid(DAY)
}

/// Months of the clock since the year 0.
fn month_of(zone: &Zone, at: UnixTime) -> i64 {
    let Date { year, month, .. } = Day(u32::try_from(clock_day(zone, at)).unwrap_or(0)).date();
    i64::from(year) * 12 + i64::from(month) - 1
}

fn quarters(from: UnixTime, to: UnixTime) -> QuarterRange {
    let number = |at: UnixTime| Quarter::of_s(at.s()).map_or(0, Quarter::number);
    QuarterRange { from: number(from), to: number(to) }
}

/// What a clock shows so many months later; `None` if that month has no such day.
fn months_later(clock: i64, months: i64) -> Option<i64> {
    let Date { year, month, day } = Day(u32::try_from(clock.div_euclid(DAY)).ok()?).date();
    let number = i64::from(year) * 12 + i64::from(month) - 1 + months;
    let first = days_to_month(number);
    let begin = first + i64::from(day) - 1;
    (begin < days_to_month(number + 1)).then(|| begin * DAY + clock.rem_euclid(DAY))
}

/// Days from 1970 to the first of a month, which is counted from January of the year 0 on.
fn days_to_month(number: i64) -> i64 {
    // Years begin in March, so that the leap day is the last day of a year.
    let from_march = number - 2;
    let year = from_march.div_euclid(12);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * from_march.rem_euclid(12) + 2) / 5;
    year.div_euclid(400) * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - EPOCH_DAYS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> Zone {
        Zone::named(name).unwrap()
    }

    fn range(zone: &Zone, from: &str, to: &str) -> QuarterRange {
        quarters(zone.time(from).unwrap(), zone.time(to).unwrap())
    }

    /// The period before, as the zone's clock shows it without its offset.
    fn before(name: &str, from: &str, to: &str) -> String {
        let zone = zone(name);
        let PreviousPeriod { range, .. } = PreviousPeriod::of(&zone, range(&zone, from, to)).unwrap();
        let text = |at_s: u64| zone.text(time(at_s).unwrap())[..16].to_owned();
        format!("{} {}", text(range.start_s()), text(range.end_s()))
    }

    #[test]
    fn part_of_a_day_is_compared_with_the_day_before() {
        assert_eq!(before("UTC", "2026-03-01", "2026-03-01T14:30"), "2026-02-28T00:00 2026-02-28T14:30");
        assert_eq!(before("Asia/Kathmandu", "2026-03-01", "2026-03-02"), "2026-02-28T00:00 2026-03-01T00:00");
        // A day of 23 hours before one of 24, and the other way round.
        let new_york = "America/New_York";
        assert_eq!(before(new_york, "2026-03-09", "2026-03-10"), "2026-03-08T00:00 2026-03-09T00:00");
        assert_eq!(before(new_york, "2026-03-08T04:00", "2026-03-08T05:00"), "2026-03-07T04:00 2026-03-07T05:00");
        assert_eq!(before(new_york, "2026-03-09T02:00", "2026-03-09T03:00"), "2026-03-08T03:00 2026-03-08T03:00");
        // The 30th of December 2011 was left out.
        assert_eq!(before("Pacific/Apia", "2011-12-31", "2011-12-31T12:00"), "2011-12-29T00:00 2011-12-29T12:00");
    }

    #[test]
    fn days_of_a_month_are_compared_with_those_of_the_month_before() {
        let utc = |from, to| before("UTC", from, to);
        assert_eq!(utc("2026-03-01", "2026-03-16T10:00"), "2026-02-01T00:00 2026-02-16T10:00");
        assert_eq!(utc("2026-03-01", "2026-03-30"), "2026-02-01T00:00 2026-03-01T00:00");
        assert_eq!(utc("2026-02-01", "2026-03-01"), "2026-01-01T00:00 2026-02-01T00:00");
        assert_eq!(utc("2026-01-01", "2027-01-01"), "2025-01-01T00:00 2026-01-01T00:00");
        let apia = before("Pacific/Apia", "2012-01-01", "2012-02-01");
        assert_eq!(apia, "2011-12-01T00:00 2012-01-01T00:00");
        // The 31st of December 1994 was left out.
        let kanton = before("Pacific/Kanton", "1995-01-01", "1995-01-31T12:00");
        assert_eq!(kanton, "1994-12-01T00:00 1995-01-01T00:00");
    }

    #[test]
    fn other_ranges_are_compared_with_as_many_days_before() {
        assert_eq!(before("Europe/Paris", "2026-03-23", "2026-03-30"), "2026-03-16T00:00 2026-03-23T00:00");
        assert_eq!(before("Europe/Paris", "2026-03-30", "2026-04-06"), "2026-03-23T00:00 2026-03-30T00:00");
        assert_eq!(before("UTC", "2026-01-01", "2026-03-15"), "2025-10-20T00:00 2026-01-01T00:00");
        let early = PreviousPeriod::of(&Zone::UTC, QuarterRange { from: 0, to: 4 });
        assert!(matches!(early, Err(CalendarError::OutOfRange { .. })), "{early:?}");
    }

    #[test]
    fn week_before_has_the_same_clock() {
        let zone = zone("America/New_York");
        let later = range(&zone, "2026-03-09", "2026-03-11T14:30");
        let previous = PreviousPeriod::week_before(&zone, later).unwrap();
        assert_eq!(previous.range, range(&zone, "2026-03-02", "2026-03-04T14:30"));
        let quarter = Quarter::of_s(zone.time("2026-03-03T09:15").unwrap().s()).unwrap();
        let beside = previous.counterpart(&zone, later, quarter).unwrap();
        assert_eq!(zone.text(time(beside.start_s()).unwrap()), "2026-03-10T09:15:00-04:00");
        assert!(PreviousPeriod::week_before(&Zone::UTC, QuarterRange { from: 0, to: 4 }).is_err());
    }

    #[test]
    fn month_before_has_the_same_days_and_times() {
        let before = |name: &str, from: &str, to: &str| {
            let zone = zone(name);
            let PreviousPeriod { range, .. } = PreviousPeriod::month_before(&zone, range(&zone, from, to)).unwrap();
            let text = |at_s: u64| zone.text(time(at_s).unwrap())[..16].to_owned();
            format!("{} {}", text(range.start_s()), text(range.end_s()))
        };
        let utc = |from, to| before("UTC", from, to);
        // The first day of a month: within it, and as a whole.
        assert_eq!(utc("2026-03-01", "2026-03-01T12:00"), "2026-02-01T00:00 2026-02-01T12:00");
        assert_eq!(utc("2026-03-01", "2026-03-02"), "2026-02-01T00:00 2026-02-02T00:00");
        assert_eq!(utc("2026-03-01", "2026-03-16T10:00"), "2026-02-01T00:00 2026-02-16T10:00");
        assert_eq!(utc("2026-03-01", "2026-03-30"), "2026-02-01T00:00 2026-03-01T00:00");
        assert_eq!(utc("2026-03-01", "2026-04-01"), "2026-02-01T00:00 2026-03-01T00:00");
        assert_eq!(utc("2026-03-31", "2026-03-31T12:00"), "2026-03-01T00:00 2026-03-01T00:00");
        let new_york = before("America/New_York", "2026-04-01", "2026-04-08T02:30");
        assert_eq!(new_york, "2026-03-01T00:00 2026-03-08T03:30");
        let zone = zone("UTC");
        let later = range(&zone, "2026-03-01", "2026-03-01T12:00");
        let previous = PreviousPeriod::month_before(&zone, later).unwrap();
        let quarter = Quarter::of_s(zone.time("2026-02-01T09:15").unwrap().s()).unwrap();
        let beside = previous.counterpart(&zone, later, quarter).unwrap();
        assert_eq!(beside.start_s(), zone.time("2026-03-01T09:15").unwrap().s());
        assert!(PreviousPeriod::month_before(&zone, QuarterRange { from: 0, to: 4 }).is_err());
    }

    #[test]
    fn quarters_stand_beside_those_of_the_same_clock() {
        let zone = zone("America/New_York");
        let beside = |from: &str, to: &str, at: &str| {
            let later = range(&zone, from, to);
            let previous = PreviousPeriod::of(&zone, later).unwrap();
            let quarter = Quarter::of_s(zone.time(at).unwrap().s()).unwrap();
            let beside = previous.counterpart(&zone, later, quarter)?;
            Some(zone.text(time(beside.start_s()).unwrap()))
        };
        let shown = |text: &str| Some(text.to_owned());
        assert_eq!(beside("2026-03-08", "2026-03-09", "2026-03-07T01:45"), shown("2026-03-08T01:45:00-05:00"));
        assert_eq!(beside("2026-03-08", "2026-03-09", "2026-03-07T02:15"), None, "the clock leaves it out");
        assert_eq!(beside("2026-03-08", "2026-03-09", "2026-03-07T03:00"), shown("2026-03-08T03:00:00-04:00"));
        assert_eq!(beside("2026-11-02", "2026-11-03", "2026-11-01T06:15:00Z"), shown("2026-11-02T01:15:00-05:00"));
        assert_eq!(beside("2026-02-01", "2026-03-01", "2026-01-28T23:45"), shown("2026-02-28T23:45:00-05:00"));
        assert_eq!(beside("2026-02-01", "2026-03-01", "2026-01-29T00:00"), None, "February has no 29th");
    }

    #[test]
    fn months_begin_where_the_calendar_says() {
        for number in 1_970 * 12..2_448 * 12 {
            let Date { year, month, day } = Day(u32::try_from(days_to_month(number)).unwrap()).date();
            assert_eq!((i64::from(year) * 12 + i64::from(month) - 1, day), (number, 1));
        }
    }
}
