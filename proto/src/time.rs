//! Time as plain integers: a shell reads clocks, the core is told.

use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};

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
