//! Reads times from text. One rule holds in files, JSON, URLs and on the command line:
//!
//! * A whole number is seconds since 1970. A number of eight digits that reads as a date, such as 20261128, is refused: as
//!   seconds it would be a day in 1970, and its writer means the date.
//! * A time with its offset has a form that RFC 3339 allows, and no other. A fraction of a second has any number of digits, which
//!   are cut off. A second of 60 stands only where leap seconds are put, in the last UTC minute of June and December, and is
//!   taken for the 59th.
//! * Where a zone is known, a date, or a date and time without an offset, is read by its clock.

use super::{TimeOutOfRange, UnixTime};
use jiff::Timestamp;
use jiff::civil::{Date, DateTime, date, time};
use jiff::tz::TimeZone;
use std::str::FromStr;

/// Characters of an invalid time that its error shows.
const TIME_SHOWN_MAX: usize = 40;
const DAY_S: i64 = 86_400;

/// A text that is no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTime {
    #[error("time {0:?}: whole seconds since 1970, or as RFC 3339 writes it, such as 2026-11-24T08:00:00Z")]
    Text(String),
    #[error("time {number} is ambiguous: write {date}T00:00:00Z for the date, or {second} for the second since 1970")]
    Ambiguous { number: i128, date: Date, second: Timestamp },
    #[error(transparent)]
    Range(#[from] TimeOutOfRange),
}

/// A time as a text says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Seconds since 1970, perhaps before.
    Instant(i64),
    /// By the clock of some zone.
    Local(DateTime),
    Day(Date),
}

impl UnixTime {
    /// Whole seconds since 1970, written as a number. Errors: before 1970 or far beyond, or a date without its dashes.
    pub fn of_number(number: i128) -> Result<UnixTime, NoTime> {
        let seconds = u64::try_from(number).map_err(|_| TimeOutOfRange(number))?;
        let time = UnixTime::try_from(seconds)?;
        match date_of_digits(number).zip(Timestamp::from_second(seconds as i64).ok()) {
            Some((date, second)) => Err(NoTime::Ambiguous { number, date, second }),
            None => Ok(time),
        }
    }
}

impl FromStr for UnixTime {
    type Err = NoTime;

    /// Whole seconds since 1970, or a time with its offset from UTC as RFC 3339 writes it; fractions of a second are cut off.
    fn from_str(text: &str) -> Result<UnixTime, NoTime> {
        let no = || NoTime::Text(text.chars().take(TIME_SHOWN_MAX).collect());
        let digits = text.strip_prefix('-').unwrap_or(text);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return UnixTime::of_number(text.parse::<i64>().map_err(|_| no())?.into());
        }
        match written(text) {
            Some(Written::Instant(seconds)) => Ok(UnixTime::from_s(seconds)?),
            Some(Written::Local(_) | Written::Day(_)) | None => Err(no()),
        }
    }
}

/// The date that a number of eight digits reads as.
fn date_of_digits(number: i128) -> Option<Date> {
    let number = i32::try_from(number).ok().filter(|number| (19_700_101..=29_991_231).contains(number))?;
    Date::new((number / 10_000) as i16, (number / 100 % 100) as i8, (number % 100) as i8).ok()
}

/// Reads a date, a date and time, or a time with its offset.
pub(super) fn written(text: &str) -> Option<Written> {
    let mut rest = Rest(text.as_bytes());
    let year = rest.number(4)?;
    let month = rest.behind(b'-')?.number(2)?;
    let day = rest.behind(b'-')?.number(2)?;
    let date = Date::new(year, month as i8, day as i8).ok()?;
    if rest.0.is_empty() {
        return Some(Written::Day(date));
    }
    if !rest.skip(b'T') && !rest.skip(b't') && !rest.skip(b' ') {
        return None;
    }
    let hour = rest.number(2)?;
    let minute = rest.behind(b':')?.number(2)?;
    let second = if rest.skip(b':') { Some(rest.number(2)?) } else { None };
    if second.is_some() && rest.skip(b'.') {
        rest.digits()?;
    }
    let is_local = rest.0.is_empty();
    let is_leap = !is_local && second == Some(60);
    let second_read = if is_leap { 59 } else { second.unwrap_or(0) };
    let at = DateTime::new(year, month as i8, day as i8, hour as i8, minute as i8, second_read as i8, 0).ok()?;
    if is_local {
        return Some(Written::Local(at));
    }
    // A time with an offset has seconds.
    second?;
    let of_clock = at.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second();
    let seconds = of_clock - rest.offset_s()?;
    (rest.0.is_empty() && (!is_leap || may_be_leap(seconds))).then_some(Written::Instant(seconds))
}

/// Whether a leap second may follow this second: leap seconds end June or December.
fn may_be_leap(seconds: i64) -> bool {
    let Ok(at) = Timestamp::from_second(seconds) else { return false };
    let at = at.to_zoned(TimeZone::UTC).datetime();
    let ends_half_a_year = (at.month(), at.day()) == (6, 30) || (at.month(), at.day()) == (12, 31);
    at.date() >= date(1972, 1, 1) && ends_half_a_year && at.time() == time(23, 59, 59, 0)
}

/// The rest of a text that is left to read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    /// A number of exactly this many digits.
    fn number(&mut self, digits: usize) -> Option<i16> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        let value = number
            .iter()
            .try_fold(0_i16, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i16::from(byte - b'0')));
        self.0 = rest;
        value
    }

    /// Digits, at least one.
    fn digits(&mut self) -> Option<()> {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.0 = &self.0[count..];
        (count > 0).then_some(())
    }

    fn skip(&mut self, byte: u8) -> bool {
        let is_next = self.0.first() == Some(&byte);
        self.0 = &self.0[usize::from(is_next)..];
        is_next
    }

    fn behind(&mut self, byte: u8) -> Option<&mut Self> {
        self.skip(byte).then_some(self)
    }

    /// `Z`, or hours and minutes.
    fn offset_s(&mut self) -> Option<i64> {
        if self.skip(b'Z') || self.skip(b'z') {
            return Some(0);
        }
        let sign = if self.skip(b'+') { 1 } else { self.behind(b'-').map(|_| -1)? };
        let hours = self.number(2)?;
        let minutes = self.behind(b':')?.number(2)?;
        let is_valid = hours <= 23 && minutes <= 59;
        let offset_s = i64::from(hours) * 3_600 + i64::from(minutes) * 60;
        debug_assert!(!is_valid || offset_s < DAY_S);
        is_valid.then_some(sign * offset_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Option<u64> {
        text.parse::<UnixTime>().ok().map(UnixTime::s)
    }

    #[test]
    fn times_of_rfc_3339_are_read() {
        for (text, seconds) in [
            ("2025-11-24T16:00:00Z", 1_764_000_000),
            ("2025-11-24t16:00:00z", 1_764_000_000),
            ("2025-11-24 16:00:00Z", 1_764_000_000),
            ("2025-11-24T17:00:00.999+01:00", 1_764_000_000),
            ("2025-11-24T16:00:00-00:00", 1_764_000_000),
            ("2025-11-25T15:59:00+23:59", 1_764_000_000),
            ("1970-01-01T00:00:00Z", 0),
            ("1985-04-12T23:20:50.52Z", 482_196_050),
            ("1996-12-19T16:39:57-08:00", 851_042_397),
            ("2024-02-29T00:00:00Z", 1_709_164_800),
        ] {
            assert_eq!(read(text), Some(seconds), "{text}");
        }
        let long = format!("2025-11-24T16:00:00.{}Z", "123456789012".repeat(500));
        assert_eq!(read(&long), Some(1_764_000_000), "fractions have any number of digits");
    }

    #[test]
    fn times_outside_rfc_3339_are_refused() {
        for text in [
            "2025-11-24T16:00:00",
            "2025-11-24T16:00Z",
            "2025-11-24T24:00:00Z",
            "2025-11-24T16:60:00Z",
            "2025-11-24T16:00:00.Z",
            "2025-11-24T16:00:00,5Z",
            "2025-11-24T16:00:00+25:00",
            "2025-11-24T16:00:00+24:00",
            "2025-11-24T16:00:00+01:60",
            "2025-11-24T16:00:00+0100",
            "2025-11-24T16:00:00+01",
            "2025-11-24T16:00:00+01:00:00",
            "2025-11-24T16:00:00Z[Asia/Tokyo]",
            "2025-11-24T16:00:00+09:00[Asia/Tokyo]",
            "2025-11-24T16:00:00 Z",
            "2025-11-24T16:00:00Z ",
            "+002025-11-24T16:00:00Z",
            "-2025-11-24T16:00:00Z",
            "20251124T160000Z",
            "2025-11-24T160000Z",
            "2025-W48-1T16:00:00Z",
            "2025-328T16:00:00Z",
            "2025-02-29T00:00:00Z",
            "2025-13-01T00:00:00Z",
            "2025-00-10T00:00:00Z",
            "2025-11-24",
            "2025-11-24T16:00:00\u{2212}01:00",
        ] {
            assert!(matches!(text.parse::<UnixTime>(), Err(NoTime::Text(_))), "{text}");
        }
    }

    #[test]
    fn leap_seconds_stand_where_leap_seconds_are_put() {
        for text in ["1990-12-31T23:59:60Z", "1990-12-31T15:59:60-08:00", "1991-01-01T05:29:60.5+05:30"] {
            assert_eq!(read(text), read("1990-12-31T23:59:59Z"), "{text}");
        }
        assert_eq!(read("2012-06-30T23:59:60Z"), read("2012-06-30T23:59:59Z"));
        for text in [
            "2026-06-15T23:59:60Z",
            "2026-06-29T23:59:60Z",
            "2026-03-31T23:59:60Z",
            "2026-12-31T23:58:60Z",
            "2026-12-31T22:59:60Z",
            "2026-12-31T23:59:60+01:00",
            "2026-12-31T23:59:61Z",
            "1971-12-31T23:59:60Z",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_number_that_reads_as_a_date_is_refused() {
        let refused = "20261128".parse::<UnixTime>().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "time 20261128 is ambiguous: write 2026-11-28T00:00:00Z for the date, or 1970-08-23T12:05:28Z for the second \
             since 1970"
        );
        assert_eq!(UnixTime::of_number(20_261_128), Err(refused));
        for text in ["20261328", "20260230", "19691231", "30000101", "2026112", "202611280", "-0", "0", "32503680000"] {
            assert!(text.parse::<UnixTime>().is_ok(), "{text}");
        }
        assert_eq!(read("1970-08-23T12:05:28Z"), Some(20_261_128));
    }

    proptest! {
        /// Against an independent reader, for the texts that both allow.
        #[test]
        fn times_with_an_offset_are_read_as_others_read_them(
            seconds in 100_000_i64..32_503_000_000, offset_min in -1_439_i32..1_440, fraction in "(\\.[0-9]{1,30})?"
        ) {
            let offset = jiff::tz::Offset::from_seconds(offset_min * 60).unwrap();
            let clock = offset.to_datetime(Timestamp::from_second(seconds).unwrap());
            let sign = if offset_min < 0 { '-' } else { '+' };
            let hours = offset_min.abs() / 60;
            let minutes = offset_min.abs() % 60;
            let text = format!("{}{fraction}{sign}{hours:02}:{minutes:02}", clock.strftime("%Y-%m-%dT%H:%M:%S"));
            prop_assert_eq!(read(&text), Some(seconds as u64), "{}", text);
        }

        #[test]
        fn no_text_panics(text in "[0-9TtZz:+. -]{0,40}") {
            let _ = (text.parse::<UnixTime>(), written(&text));
        }
    }
}
