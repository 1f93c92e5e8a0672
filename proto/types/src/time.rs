//! Time as plain integers: a shell reads clocks, the core is told.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;

/// Characters of a wrong text that an error shows.
const TEXT_SHOWN_MAX: usize = 40;

/// A monotonic instant in microseconds since an arbitrary origin of this process. Never sent to another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A span in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span(pub u64);

/// Wall-clock milliseconds since 1970 (UTC), as stamped by the proposer of a log entry. No apply compares it; the ledger's leader
/// does, with its own clock, to say that the time of a claim is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WallMs(pub u64);

/// As RFC 3339 writes it, in UTC: `2026-11-28T08:00:00.123Z`. A time that is out of range is shown as its number.
impl fmt::Display for WallMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match i64::try_from(self.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()) {
            Some(time) => write!(f, "{time:.3}"),
            None => write!(f, "{} ms since 1970", self.0),
        }
    }
}

/// The text is no time in the form that [`WallMs`] writes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("time {0:?}: a time in UTC with milliseconds is expected, such as 2026-11-28T08:00:00.123Z")]
pub struct WallTextError(String);

impl FromStr for WallMs {
    type Err = WallTextError;

    /// The text that `Display` gives, and no other.
    fn from_str(text: &str) -> Result<WallMs, WallTextError> {
        let wall = text.parse::<jiff::Timestamp>().ok().and_then(|time| u64::try_from(time.as_millisecond()).ok());
        let wall = wall.map(WallMs).filter(|wall| wall.to_string() == text);
        wall.ok_or_else(|| WallTextError(text.chars().take(TEXT_SHOWN_MAX).collect()))
    }
}

impl Span {
    /// A span of whole milliseconds.
    pub const fn from_millis(ms: u64) -> Span {
        Span(ms * 1_000)
    }

    /// A span of whole seconds.
    pub const fn from_secs(s: u64) -> Span {
        Span(s * 1_000_000)
    }

    /// The span in seconds, for rates and reports.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Sub for Time {
    type Output = Span;
    /// Zero when `earlier` is not earlier: a stepped clock yields no span, never a huge one.
    fn sub(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_has_one_spelling() {
        let wall = WallMs(1_795_846_544_120);
        assert_eq!(wall.to_string(), "2026-11-28T06:15:44.120Z");
        assert_eq!("2026-11-28T06:15:44.120Z".parse(), Ok(wall));
        assert_eq!(WallMs(0).to_string(), "1970-01-01T00:00:00.000Z");
        for wrong in
            ["2026-11-28T06:15:44.12Z", "2026-11-28T07:15:44.120+01:00", "1969-12-31T23:59:59.000Z", "soon", ""]
        {
            assert!(wrong.parse::<WallMs>().is_err(), "{wrong}");
        }
        assert_eq!(WallMs(u64::MAX).to_string(), format!("{} ms since 1970", u64::MAX));
    }
}
