//! Granularities, the buckets that they cut time into, and event times. All buckets are those of UTC.

use crate::ids::Bucket;
use crate::limits::UNIX_TIME_MAX_S;
use crate::time::WallMs;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 3_600;
const DAY_S: u64 = 86_400;

/// Whole seconds since 1970-01-01T00:00:00Z, up to [`UNIX_TIME_MAX_S`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct UnixTime(u64);

/// A time before 1970, or far beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("time {0} s: 0 (1970) to {UNIX_TIME_MAX_S} allowed")]
pub struct TimeOutOfRange(pub i128);

/// The unit of a granularity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    Minute,
    Hour,
    Day,
    Month,
}

/// The length of a kind of bucket: a number of units that divides the next unit evenly. In order of length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Granularity {
    unit: Unit,
    count: u8,
}

/// Why a granularity is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoGranularity {
    #[error("{count} × {unit:?}: the count must divide {divides}")]
    Count { count: u32, unit: Unit, divides: u8 },
    #[error("granularity {0:?}: a number and one of m, h, d, mo, such as 15m or 1mo")]
    Text(String),
    #[error("granularity number {0}: below {count} allowed", count = Granularity::ALL.len())]
    Code(u8),
}

/// One bucket: the `index`-th of its granularity since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketId {
    pub granularity: Granularity,
    pub index: u32,
}

/// The bucket of a cell's id that is none of any granularity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is a bucket of no granularity")]
pub struct NoBucket(pub Bucket);

impl UnixTime {
    pub const MAX: UnixTime = UnixTime(UNIX_TIME_MAX_S);

    /// Error: before 1970 or after [`UnixTime::MAX`].
    pub fn from_s(seconds: i64) -> Result<UnixTime, TimeOutOfRange> {
        let out = TimeOutOfRange(seconds.into());
        u64::try_from(seconds).map_err(|_| out).and_then(UnixTime::try_from)
    }

    /// The second of a proposer's stamp. A stamp beyond the range is cut to it, since apply cannot refuse a stamp.
    pub fn from_wall(wall: WallMs) -> UnixTime {
        UnixTime((wall.0 / 1_000).min(UNIX_TIME_MAX_S))
    }

    pub fn s(self) -> u64 {
        self.0
    }

    /// This number of seconds earlier, not before 1970.
    pub fn minus(self, seconds: u64) -> UnixTime {
        UnixTime(self.0.saturating_sub(seconds))
    }

    /// This number of seconds later, not after [`UnixTime::MAX`].
    pub fn plus(self, seconds: u64) -> UnixTime {
        UnixTime(self.0.saturating_add(seconds).min(UNIX_TIME_MAX_S))
    }
}

impl TryFrom<u64> for UnixTime {
    type Error = TimeOutOfRange;

    fn try_from(seconds: u64) -> Result<UnixTime, TimeOutOfRange> {
        if seconds > UNIX_TIME_MAX_S { Err(TimeOutOfRange(seconds.into())) } else { Ok(UnixTime(seconds)) }
    }
}

impl From<UnixTime> for u64 {
    fn from(time: UnixTime) -> u64 {
        time.0
    }
}

impl Unit {
    /// How many of this unit make the next unit; 1 if no granularity has several of it.
    const fn divides(self) -> u8 {
        match self {
            Unit::Minute => 60,
            Unit::Hour => 24,
            Unit::Day => 1,
            Unit::Month => 12,
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Unit::Minute => "m",
            Unit::Hour => "h",
            Unit::Day => "d",
            Unit::Month => "mo",
        }
    }
}

/// By unit and count: the number in [`Granularity::ALL`]. It is asked for with each bucket that is looked at.
const CODES: [[u8; Unit::Minute.divides() as usize / 2 + 1]; 4] = {
    let mut codes = [[0; Unit::Minute.divides() as usize / 2 + 1]; 4];
    let mut at = 0;
    while at < Granularity::ALL.len() {
        let Granularity { unit, count } = Granularity::ALL[at];
        codes[unit as usize][count as usize] = at as u8;
        at += 1;
    }
    codes
};

const fn of(unit: Unit, count: u8) -> Granularity {
    Granularity { unit, count }
}

impl Granularity {
    pub const MINUTE: Granularity = of(Unit::Minute, 1);
    pub const HOUR: Granularity = of(Unit::Hour, 1);
    pub const DAY: Granularity = of(Unit::Day, 1);
    pub const MONTH: Granularity = of(Unit::Month, 1);

    /// All there are, by length. The position of one is its number in logs and rows, so the list only grows at its end.
    pub const ALL: [Granularity; 25] = {
        use Unit::*;
        let minutes = [1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30];
        let hours = [1, 2, 3, 4, 6, 8, 12];
        let months = [1, 2, 3, 4, 6, 12];
        let mut all = [of(Day, 1); 25];
        let mut at = 0;
        while at < 25 {
            all[at] = match at {
                0..11 => of(Minute, minutes[at]),
                11..18 => of(Hour, hours[at - 11]),
                18 => of(Day, 1),
                _ => of(Month, months[at - 19]),
            };
            at += 1;
        }
        all
    };

    /// Error: a count that does not divide the next unit; days stand alone.
    pub fn new(count: u32, unit: Unit) -> Result<Granularity, NoGranularity> {
        let known = Granularity::ALL.into_iter().find(|known| known.unit == unit && u32::from(known.count) == count);
        known.ok_or(NoGranularity::Count { count, unit, divides: unit.divides() })
    }

    /// Its number in [`Granularity::ALL`].
    pub fn code(self) -> u8 {
        CODES[self.unit as usize][usize::from(self.count)]
    }

    /// The bucket that holds a time; [`UnixTime::MAX`] is taken for the second before it, where the last bucket ends.
    pub fn index_at(self, at: UnixTime) -> u32 {
        let at_s = at.0.min(UNIX_TIME_MAX_S - 1);
        let index = match self.fixed_length_s() {
            Some(length_s) => at_s / length_s,
            None => u64::from(month_at(at_s / DAY_S)) / u64::from(self.count),
        };
        index as u32
    }

    /// The first bucket that begins no earlier than a time.
    pub fn index_from(self, at: UnixTime) -> u32 {
        let index = self.index_at(at);
        if self.boundary(index) == at { index } else { index + 1 }
    }

    /// The first second of a bucket. Indexes beyond [`Granularity::index_max`] are taken for that one.
    pub fn start(self, index: u32) -> UnixTime {
        self.boundary(index.min(self.index_max()))
    }

    /// The first second after a bucket.
    pub fn end(self, index: u32) -> UnixTime {
        self.boundary(index.min(self.index_max()) + 1)
    }

    /// The last bucket.
    pub fn index_max(self) -> u32 {
        self.index_at(UnixTime::MAX)
    }

    /// Whether each bucket of `coarser` is a number of whole buckets of this one.
    pub fn nests_in(self, coarser: Granularity) -> bool {
        match (self.fixed_length_s(), coarser.fixed_length_s()) {
            (Some(own), Some(other)) => other.is_multiple_of(own),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => coarser.count.is_multiple_of(self.count),
        }
    }

    /// The length of its longest bucket, seconds.
    pub fn longest_s(self) -> u64 {
        let months = u64::from(self.count);
        self.fixed_length_s().unwrap_or((months * 31).min(366) * DAY_S)
    }

    /// The length of its shortest bucket, seconds.
    pub fn shortest_s(self) -> u64 {
        self.fixed_length_s().unwrap_or(u64::from(self.count) * 28 * DAY_S)
    }

    fn fixed_length_s(self) -> Option<u64> {
        let unit_s = match self.unit {
            Unit::Minute => MINUTE_S,
            Unit::Hour => HOUR_S,
            Unit::Day => DAY_S,
            Unit::Month => return None,
        };
        Some(unit_s * u64::from(self.count))
    }

    /// Where a bucket begins that is at most the one behind the last.
    pub(super) fn boundary(self, index: u32) -> UnixTime {
        let seconds = match self.fixed_length_s() {
            Some(length_s) => u64::from(index) * length_s,
            None => month_start_day(index * u32::from(self.count)) * DAY_S,
        };
        UnixTime(seconds)
    }
}

impl fmt::Display for Granularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.count, self.unit.suffix())
    }
}

impl FromStr for Granularity {
    type Err = NoGranularity;

    /// The text that `Display` gives.
    fn from_str(text: &str) -> Result<Granularity, NoGranularity> {
        let no = || NoGranularity::Text(text.chars().take(16).collect());
        let (digits, suffix) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).ok_or_else(no)?);
        let units = [Unit::Minute, Unit::Hour, Unit::Day, Unit::Month];
        let unit = units.into_iter().find(|unit| unit.suffix() == suffix).ok_or_else(no)?;
        Granularity::new(digits.parse().map_err(|_| no())?, unit)
    }
}

impl TryFrom<u8> for Granularity {
    type Error = NoGranularity;

    fn try_from(code: u8) -> Result<Granularity, NoGranularity> {
        Granularity::ALL.get(usize::from(code)).copied().ok_or(NoGranularity::Code(code))
    }
}

impl From<Granularity> for u8 {
    fn from(granularity: Granularity) -> u8 {
        granularity.code()
    }
}

impl BucketId {
    pub fn start(self) -> UnixTime {
        self.granularity.start(self.index)
    }

    /// The first second that is no more in it.
    pub fn end(self) -> UnixTime {
        self.granularity.end(self.index)
    }
}

/// The name of the bucket in a cell's id.
impl From<BucketId> for Bucket {
    fn from(bucket: BucketId) -> Bucket {
        let start_s = bucket.start().s();
        let end_s = bucket.end().s();
        Bucket::Span { length_s: (end_s - start_s) as u32, start_s }
    }
}

impl TryFrom<Bucket> for BucketId {
    type Error = NoBucket;

    fn try_from(bucket: Bucket) -> Result<BucketId, NoBucket> {
        let Bucket::Span { start_s, .. } = bucket else { return Err(NoBucket(bucket)) };
        let start = UnixTime::try_from(start_s).map_err(|_| NoBucket(bucket))?;
        let at_start = |granularity: Granularity| BucketId { granularity, index: granularity.index_at(start) };
        let found = Granularity::ALL.into_iter().map(at_start).find(|&id| Bucket::from(id) == bucket);
        found.ok_or(NoBucket(bucket))
    }
}

/// Days of 400 years, after which the calendar repeats.
const ERA_DAYS: u64 = 146_097;
/// From 0000-03-01, where the eras of the computation begin, to 1970-01-01.
const EPOCH_DAYS: u64 = 719_468;

/// Months since January 1970 of a day since 1970. Years are taken to begin in March, so that the leap day is their last
/// (Hinnant, "chrono-compatible low-level date algorithms").
fn month_at(day: u64) -> u32 {
    let shifted = day + EPOCH_DAYS;
    let day_of_era = shifted % ERA_DAYS;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let year = shifted / ERA_DAYS * 400 + year_of_era;
    (year * 12 + month_from_march + 2 - 1_970 * 12) as u32
}

/// The first day, since 1970, of a month since January 1970.
fn month_start_day(month: u32) -> u64 {
    let months_from_march = u64::from(month) + 1_970 * 12 - 2;
    let year = months_from_march / 12;
    let month_from_march = months_from_march % 12;
    let day_of_year = (153 * month_from_march + 2) / 5;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - EPOCH_DAYS
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use jiff::tz::TimeZone;
    use proptest::prelude::*;

    fn time() -> impl Strategy<Value = UnixTime> {
        (0..UNIX_TIME_MAX_S).prop_map(UnixTime)
    }

    fn granularity() -> impl Strategy<Value = Granularity> {
        (0..Granularity::ALL.len()).prop_map(|code| Granularity::ALL[code])
    }

    #[test]
    fn all_are_in_order_of_length_and_numbered_by_it() {
        assert!(Granularity::ALL.is_sorted_by(|a, b| a < b && a.longest_s() < b.shortest_s().max(a.longest_s() + 1)));
        for (code, granularity) in (0..).zip(Granularity::ALL) {
            assert_eq!(granularity.code(), code);
            assert_eq!(Granularity::try_from(code), Ok(granularity));
            assert_eq!(granularity.to_string().parse(), Ok(granularity));
        }
        assert_eq!(Granularity::try_from(25), Err(NoGranularity::Code(25)));
    }

    #[test]
    fn what_does_not_divide_the_next_unit_is_refused_with_value_and_limit() {
        let refused = Granularity::new(7, Unit::Minute).unwrap_err();
        assert_eq!(refused.to_string(), "7 × Minute: the count must divide 60");
        for text in ["", "m", "15", "15s", "-5m", "99999999999m", "1é"] {
            assert!(matches!(text.parse::<Granularity>(), Err(NoGranularity::Text(_))), "{text}");
        }
        for text in ["60m", "24h", "2d", "0m", "5mo"] {
            assert!(matches!(text.parse::<Granularity>(), Err(NoGranularity::Count { .. })), "{text}");
        }
    }

    #[test]
    fn times_before_1970_and_far_beyond_are_refused() {
        assert_eq!(UnixTime::from_s(-1).unwrap_err().to_string(), "time -1 s: 0 (1970) to 32503680000 allowed");
        assert!(UnixTime::from_s(UNIX_TIME_MAX_S as i64 + 1).is_err() && UnixTime::from_s(i64::MAX).is_err());
        assert_eq!(UnixTime::from_wall(WallMs(u64::MAX)), UnixTime::MAX);
    }

    proptest! {
        /// A bucket holds exactly the times that have its index, and its name in a cell's id is its own alone.
        #[test]
        fn a_time_is_in_one_bucket_and_a_bucket_has_one_name(at in time(), granularity in granularity()) {
            let bucket = BucketId { granularity, index: granularity.index_at(at) };
            prop_assert!(bucket.start() <= at && at < bucket.end());
            prop_assert_eq!(granularity.index_at(bucket.start()), bucket.index);
            prop_assert_eq!(granularity.index_at(bucket.end().minus(1)), bucket.index);
            let length_s = bucket.end().s() - bucket.start().s();
            prop_assert!((granularity.shortest_s()..=granularity.longest_s()).contains(&length_s));
            prop_assert_eq!(BucketId::try_from(Bucket::from(bucket)), Ok(bucket));
        }

        #[test]
        fn months_are_those_of_the_calendar(at in time()) {
            let date = Timestamp::from_second(at.0 as i64).unwrap().to_zoned(TimeZone::UTC).date();
            let months = (i32::from(date.year()) - 1_970) * 12 + i32::from(date.month()) - 1;
            prop_assert_eq!(Granularity::MONTH.index_at(at) as i32, months);
            let first = date.first_of_month().to_zoned(TimeZone::UTC).unwrap().timestamp();
            prop_assert_eq!(Granularity::MONTH.start(months as u32).s() as i64, first.as_second());
        }

        #[test]
        fn nested_buckets_lie_in_one_coarser_bucket(at in time(), a in granularity(), b in granularity()) {
            let bucket = BucketId { granularity: a, index: a.index_at(at) };
            let inside = b.index_at(bucket.start()) == b.index_at(bucket.end().minus(1));
            prop_assert!(inside || !a.nests_in(b), "{a} is said to nest in {b}");
        }

        #[test]
        fn cells_buckets_that_are_none_are_refused(length_s: u32, start_s in 0..2 * UNIX_TIME_MAX_S) {
            let bucket = Bucket::Span { length_s, start_s };
            let known = BucketId::try_from(bucket);
            prop_assert!(known.is_err() || known.map(Bucket::from) == Ok(bucket));
        }
    }
}
