//! The hours of a zone's clock that hold quarters of an hour.

use datafusion::error::{DataFusionError, Result};
use std::fmt;
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::{CalendarUnit, Zone};

const DAY_S: i64 = 86_400;
const QUARTER_S: i64 = 900;
/// Quarters of a piece of the table.
const PIECE: usize = 1 << 10;

/// The hour of a zone that holds a quarter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// When it begins, since 1970 in UTC.
    pub hour_s: i64,
    /// The zone's clock at that time.
    pub clock_s: i64,
    /// The day of the zone's clock at the begin of the quarter.
    pub day: i32,
}

/// The hours that were found. The rules of the zone are asked once for each.
pub struct LocalTimes {
    zone: Zone,
    /// By the numbers of quarters. Only pieces with quarters that were asked for take memory.
    pieces: Vec<Option<Vec<Option<LocalTime>>>>,
}

impl LocalTimes {
    pub fn new(zone: Zone) -> LocalTimes {
        LocalTimes { zone, pieces: Vec::new() }
    }

    /// The hour of a quarter, by its first second.
    ///
    /// # Errors
    /// The calendar ends before.
    pub fn of(&mut self, quarter_s: i64) -> Result<LocalTime> {
        let at = (quarter_s / QUARTER_S) as usize;
        let known = self.pieces.get(at / PIECE).and_then(Option::as_ref).and_then(|piece| piece[at % PIECE]);
        known.map_or_else(|| self.find(quarter_s), Ok)
    }

    fn find(&mut self, quarter_s: i64) -> Result<LocalTime> {
        let error = |error: &dyn fmt::Display| DataFusionError::Execution(error.to_string());
        let time = |at_s: i64| UnixTime::from_s(at_s).map_err(|outside| error(&outside));
        let at = time(quarter_s)?;
        let window = self.zone.unit(CalendarUnit::Hour, at, 0).map_err(|outside| error(&outside))?;
        let [from_s, to_s] = [window.from(), window.to()].map(|at| at.s() as i64);
        let clock_s = self.zone.clock(window.from());
        let local = |day_s: i64| LocalTime { hour_s: from_s, clock_s, day: day_s.div_euclid(DAY_S) as i32 };
        let found = local(self.zone.clock(at));
        // The clock goes on evenly within nearly all hours.
        if self.zone.clock(time(to_s - 1)?) - clock_s == to_s - 1 - from_s {
            let first_s = from_s + (QUARTER_S - from_s % QUARTER_S) % QUARTER_S;
            for within_s in (first_s..to_s).step_by(QUARTER_S as usize) {
                self.set(within_s, local(clock_s + within_s - from_s));
            }
        }
        self.set(quarter_s, found);
        Ok(found)
    }

    fn set(&mut self, quarter_s: i64, local: LocalTime) {
        let at = (quarter_s / QUARTER_S) as usize;
        if self.pieces.len() <= at / PIECE {
            self.pieces.resize(at / PIECE + 1, None);
        }
        self.pieces[at / PIECE].get_or_insert_with(|| vec![None; PIECE])[at % PIECE] = Some(local);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarters_have_the_hour_and_day_that_the_zone_names() {
        for name in ["UTC", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Monrovia"] {
            let zone = Zone::named(name).unwrap();
            let mut times = LocalTimes::new(zone.clone());
            // Two days each: the first of 1970, a day that Apia left out, and a change of the clock of Lord Howe.
            for start_s in [0, 1_325_160_000, 1_743_200_000] {
                for quarter_s in (start_s / QUARTER_S * QUARTER_S..start_s + 2 * DAY_S).step_by(QUARTER_S as usize) {
                    let at = UnixTime::from_s(quarter_s).unwrap();
                    // The first hours of 1970 may begin before 1970.
                    let Ok(window) = zone.unit(CalendarUnit::Hour, at, 0) else {
                        assert!(times.of(quarter_s).is_err(), "{name}, {quarter_s}");
                        continue;
                    };
                    let hour = window.from();
                    let day = zone.clock(at).div_euclid(DAY_S) as i32;
                    let expected = LocalTime { hour_s: hour.s() as i64, clock_s: zone.clock(hour), day };
                    assert_eq!(times.of(quarter_s).unwrap(), expected, "{name}, {quarter_s}");
                    assert_eq!(times.of(quarter_s).unwrap(), expected);
                }
            }
        }
    }
}
