//! Ranges of quarters of an hour, and how far their counts are.

use crate::limits::FUTURE_MAX_S;
use crate::time::{HOUR_S, Hour, HourRange, QUARTER_S, QUARTERS_PER_HOUR, Quarter};
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::CalendarError;

/// Quarters of an hour since 1970, the last not included. It may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuarterRange {
    pub from: u32,
    pub to: u32,
}

/// What an answer knows of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Every event that was accepted before this is in the answer; `None`: no such time is known.
    pub complete_to_s: Option<u64>,
    /// An hour is settled so long after its end.
    pub lateness_s: u64,
    /// A source, such as the load of a file, was stopped before its end.
    pub is_source_incomplete: bool,
}

/// How far the counts of a range are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RangeState {
    /// No event of the range can be in the answer yet.
    NotYet,
    /// A part of the range is in the answer, or of a source.
    Partial,
    /// The range is over, and all is in the answer that was accepted. Late events may still come.
    Complete,
    /// Late events are not expected either.
    Settled,
}

impl QuarterRange {
    pub fn hours(&self) -> HourRange {
        let quarters = QUARTERS_PER_HOUR;
        HourRange { first: Hour(self.from / quarters), last: Hour(self.to.saturating_sub(1).max(self.from) / quarters) }
    }

    pub fn contains(&self, quarter: Quarter) -> bool {
        (self.from..self.to).contains(&quarter.number())
    }

    pub fn start_s(&self) -> u64 {
        u64::from(self.from) * QUARTER_S
    }

    pub fn end_s(&self) -> u64 {
        u64::from(self.to) * QUARTER_S
    }

    /// When its last hour ends.
    pub fn last_hour_end_s(&self) -> u64 {
        self.end_s().div_ceil(HOUR_S) * HOUR_S
    }
}

impl Known {
    /// Hours that ended by then are settled; `None` while nothing is known.
    pub fn settled_to_s(&self) -> Option<u64> {
        let settled_s = self.complete_to_s?.saturating_sub(self.lateness_s);
        Some(settled_s / HOUR_S * HOUR_S)
    }
}

impl RangeState {
    pub const ALL: [(RangeState, &'static str); 4] = [
        (RangeState::NotYet, "not_yet"),
        (RangeState::Partial, "partial"),
        (RangeState::Complete, "complete"),
        (RangeState::Settled, "settled"),
    ];

    pub fn of(range: QuarterRange, known: Known) -> RangeState {
        let Some(complete_to_s) = known.complete_to_s else { return RangeState::NotYet };
        // Events of the near future are accepted, and count.
        if complete_to_s.saturating_add(FUTURE_MAX_S) < range.start_s() {
            return RangeState::NotYet;
        }
        if known.is_source_incomplete || complete_to_s < range.end_s() {
            return RangeState::Partial;
        }
        match known.settled_to_s().is_some_and(|settled_s| range.last_hour_end_s() <= settled_s) {
            true => RangeState::Settled,
            false => RangeState::Complete,
        }
    }

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or("", |(_, name)| name)
    }
}

/// A time in seconds, if a calendar has it.
pub(super) fn time(at_s: u64) -> Result<UnixTime, CalendarError> {
    let known = i64::try_from(at_s).ok().and_then(|at_s| UnixTime::from_s(at_s).ok());
    known.ok_or_else(|| CalendarError::Time(at_s.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_without_data_differs_from_one_not_yet_there() {
        let range = QuarterRange { from: 40, to: 44 };
        let hour_s = 10 * HOUR_S;
        let state = |complete_to_s, is_source_incomplete| {
            RangeState::of(range, Known { complete_to_s, lateness_s: 3_600, is_source_incomplete })
        };
        assert_eq!(state(None, false), RangeState::NotYet);
        // An event may be 300 s ahead of the clock.
        assert_eq!(state(Some(hour_s - 301), false), RangeState::NotYet);
        assert_eq!(state(Some(hour_s - 300), false), RangeState::Partial);
        assert_eq!(state(Some(hour_s), false), RangeState::Partial);
        assert_eq!(state(Some(hour_s + 3_599), false), RangeState::Partial);
        assert_eq!(state(Some(hour_s + 3_600), false), RangeState::Complete);
        assert_eq!(state(Some(hour_s + 7_199), false), RangeState::Complete);
        assert_eq!(state(Some(hour_s + 7_200), false), RangeState::Settled);
        assert_eq!(state(Some(hour_s + 9_000), true), RangeState::Partial);
        // A range that ends within an hour is settled with the hour.
        let part = QuarterRange { from: 40, to: 41 };
        let known =
            |complete_to_s| Known { complete_to_s: Some(complete_to_s), lateness_s: 0, is_source_incomplete: false };
        assert_eq!(RangeState::of(part, known(hour_s + 3_599)), RangeState::Complete);
        assert_eq!(RangeState::of(part, known(hour_s + 3_600)), RangeState::Settled);
        assert_eq!(RangeState::NotYet.name(), "not_yet");
    }
}
