//! The quarters, hours or days of a zone's clock in which counts lie, each with a number.

use super::range::time;
use crate::time::{QUARTER_S, Quarter};
use std::collections::BTreeMap;
use tidemark_proto::series::calendar::{CalendarError, CalendarUnit, Zone};
use tidemark_proto::series::{UnixTime, Window};

/// Quarters of a piece of the table.
const PIECE: usize = 1 << 10;
/// No unit of this quarter is known yet.
const UNKNOWN: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Quarter,
    Calendar(CalendarUnit),
}

/// A unit of time by the order in which it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitNumber(u32);

/// The units that were found. The zone's rules are asked once for each, and a table has the unit of each quarter.
pub struct Units<'q> {
    zone: &'q Zone,
    unit: Unit,
    found: Vec<Found>,
    numbers: BTreeMap<UnixTime, u32>,
    /// By the numbers of quarters. Only pieces with quarters that were asked for take memory.
    pieces: Vec<Option<Box<[u32; PIECE]>>>,
}

#[derive(Clone, Copy)]
struct Found {
    at: UnixTime,
    end_s: u64,
}

impl UnitNumber {
    pub fn position(self) -> usize {
        self.0 as usize
    }
}

impl<'q> Units<'q> {
    pub fn new(zone: &'q Zone, unit: Unit) -> Units<'q> {
        Units { zone, unit, found: Vec::new(), numbers: BTreeMap::new(), pieces: Vec::new() }
    }

    /// The unit in which a quarter begins.
    ///
    /// # Errors
    /// The calendar ends before.
    pub fn of(&mut self, quarter: Quarter) -> Result<UnitNumber, CalendarError> {
        let at = quarter.number() as usize;
        let piece = self.pieces.get(at / PIECE).and_then(Option::as_ref);
        match piece.map_or(UNKNOWN, |piece| piece[at % PIECE]) {
            UNKNOWN => self.find(quarter),
            known => Ok(UnitNumber(known)),
        }
    }

    /// When a unit begins.
    pub fn start(&self, unit: UnitNumber) -> Option<UnixTime> {
        self.found.get(unit.position()).map(|found| found.at)
    }

    /// When a unit ends, in seconds since 1970.
    pub fn end_s(&self, unit: UnitNumber) -> u64 {
        self.found.get(unit.position()).map_or(0, |found| found.end_s)
    }

    fn find(&mut self, quarter: Quarter) -> Result<UnitNumber, CalendarError> {
        let at = time(quarter.start_s())?;
        let found = match self.unit {
            Unit::Quarter => Found { at, end_s: quarter.start_s() + QUARTER_S },
            Unit::Calendar(unit) => Found::of(self.zone.unit(unit, at, 0)?),
        };
        let next = self.found.len() as u32;
        let number = *self.numbers.entry(found.at).or_insert(next);
        if number == next {
            self.found.push(found);
        }
        let start = found.at.s().div_ceil(QUARTER_S) as usize;
        let end = found.end_s.div_ceil(QUARTER_S) as usize;
        for at in start..end {
            self.set(at, number);
        }
        // Whatever the calendar says of the unit's bounds, this quarter has an entry.
        self.set(quarter.number() as usize, number);
        Ok(UnitNumber(number))
    }

    fn set(&mut self, quarter: usize, number: u32) {
        let piece = quarter / PIECE;
        if self.pieces.len() <= piece {
            self.pieces.resize_with(piece + 1, || None);
        }
        self.pieces[piece].get_or_insert_with(|| Box::new([UNKNOWN; PIECE]))[quarter % PIECE] = number;
    }
}

impl Found {
    fn of(window: Window) -> Found {
        Found { at: window.from(), end_s: window.to().s() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hour_goes_on_where_clocks_go_back_and_is_short_where_they_jump() {
        let hours = [
            // From 03:00 to 03:45, and again from 02:45 to 03:00.
            ("Pacific/Chatham", 1_775_308_500, 60),
            // From 01:00 to 02:00, and again from 01:30 to 02:00.
            ("Australia/Lord_Howe", 1_775_311_200, 90),
            // The clocks jump from 02:45 to 03:45, and from 02:00 to 02:30.
            ("Pacific/Chatham", 1_790_431_200, 15),
            ("Australia/Lord_Howe", 1_791_041_400, 30),
        ];
        for (name, start_s, minutes) in hours {
            let zone = Zone::named(name).unwrap();
            let mut units = Units::new(&zone, Unit::Calendar(CalendarUnit::Hour));
            for quarter_s in (start_s..start_s + minutes * 60).step_by(QUARTER_S as usize) {
                let unit = units.of(Quarter::of_s(quarter_s).unwrap()).unwrap();
                let hour = (units.start(unit).unwrap().s(), units.end_s(unit));
                assert_eq!(hour, (start_s, start_s + minutes * 60), "{name}, {quarter_s}");
            }
        }
    }

    #[test]
    fn quarters_have_the_unit_that_the_zone_names() {
        for name in ["UTC", "Asia/Kathmandu", "Australia/Lord_Howe", "Europe/Berlin", "Africa/Monrovia"] {
            let zone = Zone::named(name).unwrap();
            for unit in [CalendarUnit::Hour, CalendarUnit::Day] {
                let mut units = Units::new(&zone, Unit::Calendar(unit));
                // Two days around changes of clocks, twice, and the first days of 1970.
                for start in [0, 61_000, 1_896_000, 1_912_800, 1_912_800] {
                    for number in start..start + 200 {
                        let quarter = Quarter::of_s(number * QUARTER_S).unwrap();
                        let at = UnixTime::from_s((number * QUARTER_S) as i64).unwrap();
                        // The first hours of 1970 may begin before 1970.
                        let Ok(expected) = zone.unit(unit, at, 0) else {
                            assert!(units.of(quarter).is_err(), "{name}, quarter {number}");
                            continue;
                        };
                        let found = units.of(quarter).unwrap();
                        assert_eq!(units.start(found), Some(expected.from()), "{name}, quarter {number}");
                        assert_eq!(units.end_s(found), expected.to().s());
                    }
                }
            }
        }
    }
}
