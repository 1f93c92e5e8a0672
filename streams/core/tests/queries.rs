//! Counts of a query equal a computation event by event, with another calendar: over any rows, across changes of the clocks.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use tidemark_proto::series::calendar::Zone;
use tidemark_proto::series::{UnixTime, Window};
use tidemark_streams_core::query::View;
use tidemark_streams_core::query::counts::{CountError, CountQuery, CountedGroup, Dimension, Grouping, WantedValue};
use tidemark_streams_core::query::previous::PreviousPeriod;
use tidemark_streams_core::query::range::QuarterRange;
use tidemark_streams_core::rollup::RollupRow;
use tidemark_streams_core::time::{QUARTER_S, Quarter};
use tidemark_streams_core::values::{DimensionNames, DimensionNumber, Values};

/// Zones, and a day near which their clocks change.
const ZONES: [(&str, &str); 9] = [
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Pacific/Apia", "2011-12-31"),
    ("Pacific/Kanton", "1995-01-01"),
    ("Asia/Beirut", "2022-03-27"),
    ("Asia/Kathmandu", "1986-01-01"),
    ("UTC", "2024-02-29"),
];
const LISTINGS: [&str; 3] = ["a", "b", "c"];
const TYPES: [&str; 2] = ["click", "impression"];
const DAY_QUARTERS: i64 = 96;
const SPAN_DAYS: i64 = 70;

/// A quarter of an hour of one listing and type.
#[derive(Clone, Debug)]
struct Cell {
    quarter: u32,
    listing: usize,
    event_type: usize,
    count: u32,
    minute: Option<u32>,
}

/// What is asked for.
#[derive(Clone, Debug)]
struct Case {
    zone: usize,
    shape: Shape,
    dimensions: Vec<Dimension>,
    is_compared: bool,
    has_zeros: bool,
    limit: usize,
    only_listing: Option<usize>,
    only_type: Option<usize>,
    cells: Vec<CellAt>,
}

/// A cell by its distance from the day of the zone.
#[derive(Clone, Debug)]
struct CellAt {
    quarters: i64,
    cell: Cell,
}

/// A range by its distance from the day of the zone.
#[derive(Clone, Debug)]
enum Shape {
    Days { first: i64, days: i64 },
    PartOfDay { day: i64, from: i64, quarters: i64 },
    MonthTo { months: i64, day: i64, quarters: i64 },
    Months { first: i64, months: i64 },
    Any { from: i64, quarters: i64 },
}

/// The other calendar: what the clock shows in each quarter, and the quarters in which hours and days begin.
struct Brute {
    zone: TimeZone,
    near: Date,
    first: u32,
    quarters: Vec<Shown>,
}

struct Shown {
    civil: DateTime,
    hour: u32,
    day: u32,
}

impl Brute {
    fn of(case: &Case) -> &'static Brute {
        static KNOWN: [OnceLock<Brute>; ZONES.len()] = [const { OnceLock::new() }; ZONES.len()];
        let (name, near) = ZONES[case.zone];
        KNOWN[case.zone].get_or_init(|| Brute::new(name, near))
    }

    /// Looks at each quarter after the one before it.
    fn new(name: &str, near: &str) -> Brute {
        let zone = jiff::tz::TimeZoneDatabase::bundled().get(name).unwrap();
        let near: Date = near.parse().unwrap();
        let mut brute = Brute { zone, near, first: 0, quarters: Vec::new() };
        brute.first = brute.start(near - (4 * SPAN_DAYS).days());
        let mut latest = near - (4 * SPAN_DAYS + 1).days();
        for number in brute.first..brute.start(near + (4 * SPAN_DAYS).days()) {
            let civil = brute.zoned(number).datetime();
            let shown = match brute.quarters.last() {
                Some(last) => {
                    let is_hour =
                        civil.minute() == 0 || civil.date() != last.civil.date() || civil.hour() != last.civil.hour();
                    let is_day = civil.date() > latest;
                    Shown {
                        civil,
                        hour: if is_hour { number } else { last.hour },
                        day: if is_day { number } else { last.day },
                    }
                }
                None => Shown { civil, hour: number, day: number },
            };
            latest = latest.max(civil.date());
            brute.quarters.push(shown);
        }
        brute
    }

    fn shown(&self, quarter: u32) -> &Shown {
        &self.quarters[(quarter - self.first) as usize]
    }

    fn zoned(&self, quarter: u32) -> Zoned {
        Timestamp::from_second(i64::from(quarter) * QUARTER_S as i64).unwrap().to_zoned(self.zone.clone())
    }

    fn civil(&self, quarter: u32) -> DateTime {
        self.shown(quarter).civil
    }

    fn start(&self, date: Date) -> u32 {
        self.quarter(date.to_zoned(self.zone.clone()).unwrap())
    }

    fn at(&self, civil: DateTime) -> u32 {
        self.quarter(civil.to_zoned(self.zone.clone()).unwrap())
    }

    fn quarter(&self, at: Zoned) -> u32 {
        (at.timestamp().as_second() / QUARTER_S as i64) as u32
    }

    fn range(&self, shape: &Shape) -> QuarterRange {
        let near = self.near;
        let range = |from: u32, to: u32| QuarterRange { from, to: to.max(from + 1) };
        match *shape {
            Shape::Days { first, days } => {
                range(self.start(near + first.days()), self.start(near + (first + days).days()))
            }
            Shape::PartOfDay { day, from, quarters } => {
                let first = self.start(near + day.days());
                let end = self.start(near + (day + 1).days());
                let from = (first + from as u32).min(end.saturating_sub(1)).max(first);
                range(from, (from + quarters as u32).min(end))
            }
            Shape::MonthTo { months, day, quarters } => {
                let first = near.first_of_month() + months.months();
                range(self.start(first), self.start(first + day.days()) + quarters as u32)
            }
            Shape::Months { first, months } => {
                let first = near.first_of_month() + first.months();
                range(self.start(first), self.start(first + months.months()))
            }
            Shape::Any { from, quarters } => {
                let from = (i64::from(self.start(near)) + from) as u32;
                range(from, from + quarters as u32)
            }
        }
    }

    /// The first quarter of the hour or day that holds a quarter.
    fn bucket(&self, unit: Dimension, quarter: u32) -> u32 {
        match unit {
            Dimension::Quarter => quarter,
            Dimension::Hour => self.shown(quarter).hour,
            _ => self.shown(quarter).day,
        }
    }

    /// The period before, and what brings a quarter of it to the later period.
    fn previous(&self, name: &str, range: QuarterRange) -> (QuarterRange, Box<dyn Fn(DateTime) -> Option<DateTime>>) {
        let from = self.zoned(range.from);
        let first = self.bucket(Dimension::Day, range.from);
        // The date that this day is called, though a clock that goes back at midnight may show the date before.
        let date = self.civil(first).date();
        let end = (first + 1..first + 300).find(|at| self.bucket(Dimension::Day, *at) == *at).unwrap();
        if range.to <= end {
            let before = (1..4).map(|back| date - back.days()).find(|date| self.start(*date) < first).unwrap();
            let days = i64::from((date - before).get_days());
            let shifted = |at: u32| match at {
                at if at == first => self.start(before),
                at if at == end => first,
                at => self.at(self.civil(at) - days.days()).clamp(self.start(before), first),
            };
            let from = shifted(range.from);
            return (
                QuarterRange { from, to: shifted(range.to).max(from) },
                Box::new(move |at| Some(at + days.days())),
            );
        }
        let month = date.first_of_month();
        let is_month = |at: u32| self.start(self.civil(at).date().first_of_month()) == at;
        if self.start(month) == range.from {
            let whole = (1..40).find(|months: &i64| self.start(month + months.months()) == range.to);
            let is_first = range.to < self.start(month + 1.months());
            if whole.is_some() || is_first {
                assert_eq!(whole.is_some(), is_month(range.to));
                let months = whole.unwrap_or(1);
                let end = self.civil(range.to);
                let earlier = end - months.months();
                let has_day = earlier.day() == end.day();
                let to = if whole.is_some() || !has_day { range.from } else { self.at(earlier).min(range.from) };
                let later = move |at: DateTime| Some(at + months.months()).filter(|later| later.day() == at.day());
                return (QuarterRange { from: self.start(month - months.months()), to }, Box::new(later));
            }
        }
        let time = |quarter: u32| UnixTime::from_s(i64::from(quarter) * QUARTER_S as i64).unwrap();
        let window = Window::new(time(range.from), time(range.to)).unwrap();
        let before = Zone::named(name).unwrap().as_long_before(window).unwrap();
        let before = QuarterRange { from: (before.from().s() / QUARTER_S) as u32, to: range.from };
        let shift = from.datetime() - self.civil(before.from);
        let days = self.civil(range.from).date() - self.civil(before.from).date();
        let are_starts = self.start(self.civil(range.from).date()) == range.from
            && self.start(self.civil(before.from).date()) == before.from;
        (before, Box::new(move |at| Some(if are_starts { at + days } else { at + shift })))
    }

    /// The first quarter of all time whose clock shows this, if the range holds it.
    fn showing(&self, civil: DateTime, range: QuarterRange) -> Option<u32> {
        let near = self.at(civil);
        (near - 200..near + 200).find(|at| self.civil(*at) == civil).filter(|at| (range.from..range.to).contains(at))
    }
}

type Key = (Option<u32>, Option<u32>, Option<usize>, Option<usize>);

/// Sums by group, and of the period before.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    groups: BTreeMap<Key, (u64, u64)>,
    total: u64,
    previous: u64,
    unmatched: u64,
}

fn brute(brute: &Brute, case: &Case, range: QuarterRange, cells: &[Cell]) -> Sums {
    let mut sums = Sums::default();
    let unit = case.dimensions.iter().copied().find(|dimension| dimension.is_time());
    let has = |dimension| case.dimensions.contains(&dimension);
    let previous = case.is_compared.then(|| brute.previous(ZONES[case.zone].0, range));
    let wanted = |cell: &&Cell| {
        case.only_listing.is_none_or(|only| only == cell.listing)
            && case.only_type.is_none_or(|only| only == cell.event_type)
            && cell.count > 0
    };
    for quarter in (range.from..range.to).filter(|_| case.has_zeros) {
        sums.groups.entry((unit.map(|unit| brute.bucket(unit, quarter)), None, None, None)).or_default();
    }
    for cell in cells.iter().filter(wanted) {
        let key = |quarter: u32, minute: Option<u32>| -> Key {
            (
                unit.map(|unit| brute.bucket(unit, quarter)),
                minute.filter(|_| has(Dimension::CountedAt)),
                has(Dimension::Listing).then_some(cell.listing),
                has(Dimension::Type).then_some(cell.event_type),
            )
        };
        let count = u64::from(cell.count);
        if (range.from..range.to).contains(&cell.quarter) {
            sums.total += count;
            sums.groups.entry(key(cell.quarter, cell.minute)).or_default().0 += count;
        }
        let Some((before, later)) = &previous else { continue };
        if (before.from..before.to).contains(&cell.quarter) {
            sums.previous += count;
            let beside = later(brute.civil(cell.quarter)).and_then(|civil| brute.showing(civil, range));
            match if unit.is_none() { Some(range.from) } else { beside } {
                Some(quarter) => sums.groups.entry(key(quarter, None)).or_default().1 += count,
                None => sums.unmatched += count,
            }
        }
    }
    sums
}

fn time(quarter: u32) -> UnixTime {
    UnixTime::from_s(i64::from(quarter) * QUARTER_S as i64).unwrap()
}

fn minute(minute: u32) -> UnixTime {
    UnixTime::from_s(i64::from(minute) * 60).unwrap()
}

fn shown(key: Key, counts: (u64, u64)) -> CountedGroup {
    CountedGroup {
        at: key.0.map(time),
        counted_at: key.1.map(minute),
        listing: key.2.map(|listing| LISTINGS[listing].to_owned()),
        event_type: key.3.map(|event_type| TYPES[event_type].to_owned()),
        values: Default::default(),
        n: counts.0,
        previous: counts.1,
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![
        3 => (-3..2_i64, 1..4_i64).prop_map(|(first, days)| Shape::Days { first, days }),
        1 => (-6..6_i64, 1..12_i64).prop_map(|(first, days)| Shape::Days { first, days }),
        3 => (-1..2_i64, 0..96_i64, 1..96_i64).prop_map(|(day, from, quarters)| Shape::PartOfDay { day, from, quarters }),
        2 => (-1..2_i64, 1..31_i64, 0..96_i64).prop_map(|(months, day, quarters)| Shape::MonthTo { months, day, quarters }),
        1 => (-1..2_i64, 1..3_i64).prop_map(|(first, months)| Shape::Months { first, months }),
        2 => (-600..600_i64, 1..900_i64).prop_map(|(from, quarters)| Shape::Any { from, quarters }),
    ]
}

fn cells() -> impl Strategy<Value = CellAt> {
    let near = prop_oneof![
        3 => -DAY_QUARTERS..DAY_QUARTERS,
        3 => -3 * DAY_QUARTERS..3 * DAY_QUARTERS,
        2 => -SPAN_DAYS * DAY_QUARTERS..SPAN_DAYS * DAY_QUARTERS,
    ];
    let minutes = proptest::option::of(29_000_000..29_000_004_u32);
    (near, 0..LISTINGS.len(), 0..TYPES.len(), 0..5_u32, minutes).prop_map(
        |(quarters, listing, event_type, count, minute)| CellAt {
            quarters,
            cell: Cell { quarter: 0, listing, event_type, count, minute },
        },
    )
}

fn cases() -> impl Strategy<Value = Case> {
    use Dimension::{CountedAt, Day, Hour, Listing, Quarter, Type};
    let dimensions = proptest::sample::select(vec![
        vec![],
        vec![Hour],
        vec![Day],
        vec![Quarter],
        vec![Listing],
        vec![Type, Listing],
        vec![Hour, Listing],
        vec![Day, Type],
        vec![CountedAt],
        vec![CountedAt, Listing],
        vec![Hour, CountedAt],
    ]);
    let only = (proptest::option::weighted(0.2, 0..3_usize), proptest::option::weighted(0.2, 0..2_usize));
    let cells = proptest::collection::vec(cells(), 0..200);
    (0..ZONES.len(), shapes(), dimensions, any::<(bool, bool)>(), 1..60_usize, only, cells).prop_map(
        |(zone, shape, dimensions, (is_compared, has_zeros), limit, (only_listing, only_type), cells)| Case {
            zone,
            shape,
            is_compared: is_compared && !dimensions.contains(&CountedAt),
            has_zeros: has_zeros && matches!(dimensions.as_slice(), [time] if time.is_time()),
            dimensions,
            limit,
            only_listing,
            only_type,
            cells,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn counts_equal_those_of_event_by_event(case in cases()) {
        let other = Brute::of(&case);
        let near = i64::from(other.start(other.near));
        let cells: Vec<Cell> = case
            .cells
            .iter()
            .map(|CellAt { quarters, cell }| Cell { quarter: (near + quarters) as u32, ..cell.clone() })
            .collect();
        let range = other.range(&case.shape);
        let zone = Zone::named(ZONES[case.zone].0).unwrap();
        let previous = case.is_compared.then(|| PreviousPeriod::of(&zone, range).unwrap());
        let query = CountQuery {
            tenant: "t".to_owned(),
            range,
            zone,
            dimensions: case.dimensions.clone(),
            types: case.only_type.map(|only| TYPES[only].to_owned()).into_iter().collect(),
            listings: case.only_listing.map(|only| LISTINGS[only].to_owned()).into_iter().collect(),
            values: Vec::new(),
            previous,
            has_zeros: case.has_zeros,
            limit: case.limit,
        };
        let view = View::default();
        let mut grouping = Grouping::new(&query, &view);
        grouping.fill().unwrap();
        for cell in &cells {
            let quarter = Quarter::of_s(u64::from(cell.quarter) * QUARTER_S).unwrap();
            prop_assert!(query.hours().contains(quarter.hour()) || !range.contains(quarter));
            let mut quarters = [0; 4];
            quarters[quarter.index()] = cell.count;
            for tenant in ["t", "other"] {
                let listing = LISTINGS[cell.listing];
                let event_type = TYPES[cell.event_type];
                let row = RollupRow { tenant, values: Values::NONE, listing, hour: quarter.hour(), event_type, quarters };
                grouping.add(&row, cell.minute.map(minute)).unwrap();
            }
        }
        let counts = grouping.counts();
        if let Some(previous) = previous {
            prop_assert_eq!(previous.range, other.previous(ZONES[case.zone].0, range).0);
        }
        let expected = brute(other, &case, range, &cells);
        prop_assert_eq!(
            (counts.total, counts.previous, counts.unmatched),
            (expected.total, expected.previous, expected.unmatched)
        );
        let mut groups: Vec<CountedGroup> = expected.groups.into_iter().map(|(key, pair)| shown(key, pair)).collect();
        let is_by_time = case.dimensions.iter().any(|dimension| dimension.is_time() || *dimension == Dimension::CountedAt);
        if !is_by_time {
            groups.sort_by_key(|group| (Reverse(group.n), Reverse(group.previous)));
        }
        prop_assert_eq!(counts.has_more, groups.len() > case.limit);
        groups.truncate(case.limit);
        prop_assert_eq!(counts.groups, groups);
    }
}

#[test]
fn zeros_of_centuries_are_refused_before_they_are_made() {
    let year_3000 = 36_100_000;
    for dimension in [Dimension::Quarter, Dimension::Hour] {
        let query = CountQuery {
            tenant: "t".to_owned(),
            range: QuarterRange { from: 0, to: year_3000 },
            zone: Zone::UTC,
            dimensions: vec![dimension],
            types: Vec::new(),
            listings: Vec::new(),
            values: Vec::new(),
            previous: None,
            has_zeros: true,
            limit: 10,
        };
        let view = View::default();
        let mut grouping = Grouping::new(&query, &view);
        assert_eq!(grouping.fill(), Err(CountError::TooManyGroups));
        assert_eq!(grouping.counts().groups, [], "no group was made");
    }
}

/// Rows with the values of two dimensions, of the first quarter.
const VALUED: [(&str, u32); 4] = [("", 1), ("\u{1}NP", 2), ("\u{1}NP\u{2}feed", 4), ("\u{1}IN", 8)];

fn counted_values(dimensions: &[Dimension], values: &[(usize, &str)]) -> Vec<(Vec<Option<String>>, u64)> {
    let number = |at: &usize| DimensionNumber::of_position(*at).unwrap();
    let wanted = |(at, value): &(usize, &str)| WantedValue { dimension: number(at), value: (*value).to_owned() };
    let query = CountQuery {
        tenant: "t".to_owned(),
        range: QuarterRange { from: 0, to: 96 },
        zone: Zone::UTC,
        dimensions: dimensions.to_vec(),
        types: Vec::new(),
        listings: Vec::new(),
        values: values.iter().map(wanted).collect(),
        previous: None,
        has_zeros: false,
        limit: 10,
    };
    let view = View::default();
    let mut grouping = Grouping::new(&query, &view);
    for (values, count) in VALUED {
        let values = Values::parse(values).unwrap();
        let hour = Quarter::of_s(0).unwrap().hour();
        let row =
            RollupRow { tenant: "t", values, listing: "l", hour, event_type: "click", quarters: [count, 0, 0, 0] };
        grouping.add(&row, None).unwrap();
    }
    grouping.counts().groups.into_iter().map(|group| (group.values[..2].to_vec(), group.n)).collect()
}

#[test]
fn values_of_dimensions_are_groups_and_conditions() {
    let [country, surface] = [0, 1].map(|at| Dimension::Value(DimensionNumber::of_position(at).unwrap()));
    let text = |text: &str| Some(text.to_owned());
    let all = [(vec![None, None], 15)];
    assert_eq!(counted_values(&[], &[]), all, "a query that names no dimension adds all rows up");
    let by_country = [(vec![text("IN"), None], 8), (vec![text("NP"), None], 6), (vec![None, None], 1)];
    assert_eq!(counted_values(&[country], &[]), by_country);
    let by_both = [
        (vec![text("IN"), None], 8),
        (vec![text("NP"), text("feed")], 4),
        (vec![text("NP"), None], 2),
        (vec![None, None], 1),
    ];
    assert_eq!(counted_values(&[country, surface], &[]), by_both);
    assert_eq!(counted_values(&[], &[(0, "NP")]), [(vec![None, None], 6)]);
    assert_eq!(counted_values(&[], &[(0, "NP"), (0, "IN")]), [(vec![None, None], 14)]);
    assert_eq!(counted_values(&[], &[(0, "NP"), (1, "")]), [(vec![None, None], 2)]);
    assert_eq!(counted_values(&[], &[(0, "")]), [(vec![None, None], 1)]);
    assert_eq!(counted_values(&[], &[(0, "US")]), []);
}

#[test]
fn unknown_dimension_is_refused_with_the_known_ones() {
    let refused = Dimension::named("land", &DimensionNames::default()).unwrap_err().to_string();
    assert_eq!(
        refused,
        "dimension \"land\" is unknown; known dimensions: quarter, hour, day, counted_at, listing, type"
    );
}
