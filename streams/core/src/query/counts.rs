//! Rows of one tenant, grouped as a query asks: by time of a zone's clock, listing and type, beside the period before.

use super::View;
use super::groups::{Group, Groups, Kind, KindNumber, Pair};
use super::previous::PreviousPeriod;
use super::range::QuarterRange;
use super::units::{Unit, UnitNumber, Units};
use crate::blob::BlobKey;
use crate::limits::DIMENSIONS_MAX;
use crate::rollup::{RollupRow, Rollups};
use crate::time::{DAY_S, HOUR_S, HourRange, QUARTER_S, Quarter};
use crate::values::{DimensionNames, DimensionNumber, cut};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::calendar::{CalendarError, CalendarUnit, Zone};

/// Distinct groups that a query may have. A query with more is refused.
pub const GROUPS_MAX: usize = 1_000_000;

/// The grouping of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dimension {
    Quarter,
    Hour,
    Day,
    /// The minute in which a server counted the events.
    CountedAt,
    Listing,
    Type,
    /// The value of a dimension of events.
    Value(DimensionNumber),
}

/// A wanted value of a dimension of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedValue {
    pub dimension: DimensionNumber,
    /// Empty: rows without a value.
    pub value: String,
}

/// A query of one tenant.
#[derive(Clone, Debug)]
pub struct CountQuery {
    pub tenant: String,
    pub range: QuarterRange,
    pub zone: Zone,
    pub dimensions: Vec<Dimension>,
    /// Empty: all.
    pub types: Vec<String>,
    /// Empty: all.
    pub listings: Vec<String>,
    /// Of each dimension that is named, any of these values.
    pub values: Vec<WantedValue>,
    /// What is counted beside the range.
    pub previous: Option<PreviousPeriod>,
    /// Each quarter, hour or day of the range has a group, though it counts nothing. It needs one of these as the only dimension.
    pub has_zeros: bool,
    /// Groups of the answer.
    pub limit: usize,
}

/// A group with its counts. A dimension that was not asked for is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedGroup {
    pub at: Option<UnixTime>,
    /// `None` too if the minute is not known.
    pub counted_at: Option<UnixTime>,
    pub listing: Option<String>,
    pub event_type: Option<String>,
    /// By number of dimension. `None` too if the rows have no value.
    pub values: [Option<String>; DIMENSIONS_MAX],
    pub n: u64,
    /// Of the period before; 0 if none is compared.
    pub previous: u64,
}

/// The counts of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// By time if there is one, else the largest counts come first.
    pub groups: Vec<CountedGroup>,
    /// The limit left groups out.
    pub has_more: bool,
    /// Over all groups.
    pub total: u64,
    /// Over the whole period before.
    pub previous: u64,
    /// Of `previous`, counts of times that the clock of the range does not show. They are in no group.
    pub unmatched: u64,
}

/// A query names a dimension that the directory does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("dimension {shown:?} is unknown; known dimensions: {known}")]
pub struct UnknownDimension {
    shown: String,
    known: String,
}

/// Why rows are not counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountError {
    #[error(transparent)]
    Calendar(#[from] CalendarError),
    #[error("the query has more than {GROUPS_MAX} groups: ask for a shorter range, fewer dimensions, or some listings")]
    TooManyGroups,
}

/// The key of a group.
#[derive(Clone, Copy)]
struct Key {
    at: Option<UnixTime>,
    kind: Kind,
}

/// Numbers of texts, in the order in which they came.
#[derive(Default)]
struct Texts {
    numbers: BTreeMap<String, u32>,
    texts: Vec<String>,
    /// The text that was asked for last. Neighbours mostly have the same.
    last: u32,
}

/// Counts rows.
pub struct Grouping<'q> {
    query: &'q CountQuery,
    view: &'q View,
    /// The present names of the requested types.
    types: Vec<&'q str>,
    /// `None`: no group has a time.
    units: Option<Units<'q>>,
    groups: Groups,
    texts: Texts,
    /// Rows of other hours are not looked at.
    hours: HourRange,
    counterparts: BTreeMap<Quarter, Option<Quarter>>,
    previous: u64,
    unmatched: u64,
}

impl Unit {
    /// How many of them a range has, but for changes of the clock.
    fn steps(self, range: QuarterRange) -> u64 {
        let quarters = u64::from(range.to.saturating_sub(range.from));
        let quarters_each = match self {
            Unit::Quarter => 1,
            Unit::Calendar(CalendarUnit::Hour) => HOUR_S / QUARTER_S,
            Unit::Calendar(_) => DAY_S / QUARTER_S,
        };
        quarters / quarters_each
    }
}

impl Dimension {
    /// Those that each directory has.
    pub const ALL: [(Dimension, &'static str); 6] = [
        (Dimension::Quarter, "quarter"),
        (Dimension::Hour, "hour"),
        (Dimension::Day, "day"),
        (Dimension::CountedAt, "counted_at"),
        (Dimension::Listing, "listing"),
        (Dimension::Type, "type"),
    ];

    /// The name, where those of the dimensions of events are `names`.
    pub fn name(self, names: &DimensionNames) -> &str {
        match self {
            Dimension::Value(number) => names.name(number),
            Dimension::Quarter | Dimension::Hour | Dimension::Day => self.fixed_name(),
            Dimension::CountedAt | Dimension::Listing | Dimension::Type => self.fixed_name(),
        }
    }

    fn fixed_name(self) -> &'static str {
        Self::ALL.iter().find(|(dimension, _)| *dimension == self).map_or("", |(_, name)| name)
    }

    /// The dimension of a name.
    ///
    /// # Errors
    /// The name is unknown.
    pub fn named(name: &str, names: &DimensionNames) -> Result<Dimension, UnknownDimension> {
        let fixed = Self::ALL.iter().find(|(_, known)| *known == name).map(|(dimension, _)| *dimension);
        let found = fixed.or_else(|| names.find(name).map(Dimension::Value));
        found.ok_or_else(|| {
            let fixed = Self::ALL.iter().map(|(_, known)| *known);
            let known: Vec<&str> = fixed.chain(names.all().iter().map(String::as_str)).collect();
            UnknownDimension { shown: cut(name), known: known.join(", ") }
        })
    }

    /// Whether it is the time of events. A query has one of these at most.
    pub fn is_time(self) -> bool {
        match self {
            Dimension::Quarter | Dimension::Hour | Dimension::Day => true,
            Dimension::CountedAt | Dimension::Listing | Dimension::Type | Dimension::Value(_) => false,
        }
    }
}

impl CountQuery {
    pub fn has(&self, dimension: Dimension) -> bool {
        self.dimensions.contains(&dimension)
    }

    /// The hours that are read, with those of the period before.
    pub fn hours(&self) -> HourRange {
        let mut hours = self.range.hours();
        if let Some(previous) = &self.previous {
            hours.include(previous.range.hours().first);
        }
        hours
    }

    fn unit(&self) -> Option<Unit> {
        let time = self.dimensions.iter().find(|dimension| dimension.is_time())?;
        match time {
            Dimension::Quarter => Some(Unit::Quarter),
            Dimension::Hour => Some(Unit::Calendar(CalendarUnit::Hour)),
            Dimension::Day => Some(Unit::Calendar(CalendarUnit::Day)),
            Dimension::CountedAt | Dimension::Listing | Dimension::Type | Dimension::Value(_) => None,
        }
    }

    fn wants(&self, row: &RollupRow<'_>) -> bool {
        let is_listing = |wanted: &String| wanted == row.listing;
        let is_wanted = row.tenant == self.tenant && (self.listings.is_empty() || self.listings.iter().any(is_listing));
        is_wanted && (self.values.is_empty() || self.wants_values(row))
    }

    fn wants_values(&self, row: &RollupRow<'_>) -> bool {
        let is_value = |wanted: &WantedValue| row.values.get(wanted.dimension).unwrap_or_default() == wanted.value;
        DimensionNumber::ALL.into_iter().all(|dimension| {
            let mut of_dimension = self.values.iter().filter(|wanted| wanted.dimension == dimension).peekable();
            of_dimension.peek().is_none() || of_dimension.any(is_value)
        })
    }
}

impl<'q> Grouping<'q> {
    pub fn new(query: &'q CountQuery, view: &'q View) -> Grouping<'q> {
        Grouping {
            query,
            view,
            types: query.types.iter().filter_map(|name| view.types.schema.present(name)).collect(),
            units: query.unit().map(|unit| Units::new(&query.zone, unit)),
            groups: Groups::default(),
            texts: Texts::default(),
            hours: query.hours(),
            counterparts: BTreeMap::new(),
            previous: 0,
            unmatched: 0,
        }
    }

    /// Adds a group without counts for each time of the range, if the query asks for that.
    ///
    /// # Errors
    /// [`CountError`].
    pub fn fill(&mut self) -> Result<(), CountError> {
        let Some(unit) = self.query.unit().filter(|_| self.query.has_zeros) else { return Ok(()) };
        let Some(units) = &mut self.units else { return Ok(()) };
        if unit.steps(self.query.range) > GROUPS_MAX as u64 {
            return Err(CountError::TooManyGroups);
        }
        let mut quarter = Quarter::of_s(self.query.range.start_s());
        while let Some(next) = quarter.filter(|quarter| self.query.range.contains(*quarter)) {
            let number = units.of(next)?;
            let kind = self.groups.kind(Kind::default());
            self.groups.counts(kind, Some(number))?;
            let end_s = units.end_s(number);
            // A unit may end within a quarter, which belongs to the unit in which it begins.
            quarter = Quarter::of_s(end_s.next_multiple_of(QUARTER_S));
        }
        Ok(())
    }

    /// Counts the rows of a blob under their present names.
    ///
    /// # Errors
    /// [`CountError`].
    pub fn add_blob(&mut self, blob: &BlobKey, rows: &Rollups, counted_at: Option<UnixTime>) -> Result<(), CountError> {
        let renaming = self.view.renaming(blob);
        let rows = rows.iter_within(self.hours);
        rows.filter_map(|row| renaming.row(&row).map(|row| self.add(&row, counted_at))).collect()
    }

    /// Counts a row. `counted_at` is when a server counted its events, if that is known.
    ///
    /// # Errors
    /// [`CountError`].
    pub fn add(&mut self, row: &RollupRow<'_>, counted_at: Option<UnixTime>) -> Result<(), CountError> {
        // A requested type that was deleted has no rows.
        let is_type = self.query.types.is_empty() || self.types.contains(&row.event_type);
        if !self.hours.contains(row.hour) || !is_type || !self.query.wants(row) || !self.view.shows(row) {
            return Ok(());
        }
        let mut kind = None;
        for (at, &count) in row.quarters.iter().enumerate().filter(|(_, count)| **count > 0) {
            let quarter = row.hour.quarter(at);
            let count = u64::from(count);
            if self.query.range.contains(quarter) {
                let kind = *kind.get_or_insert_with(|| self.kind(row, counted_at));
                self.pair(kind, quarter)?.n += count;
            }
            if self.query.previous.is_some_and(|previous| previous.range.contains(quarter)) {
                self.add_previous(row, quarter, count)?;
            }
        }
        Ok(())
    }

    fn add_previous(&mut self, row: &RollupRow<'_>, quarter: Quarter, count: u64) -> Result<(), CountError> {
        self.previous += count;
        // Without a time all counts stand beside each other.
        let beside = match self.units {
            Some(_) => self.counterpart(quarter),
            None => Some(quarter),
        };
        match beside {
            Some(beside) => {
                let kind = self.kind(row, None);
                self.pair(kind, beside)?.previous += count;
            }
            None => self.unmatched += count,
        }
        Ok(())
    }

    fn counterpart(&mut self, quarter: Quarter) -> Option<Quarter> {
        let previous = self.query.previous?;
        let query = self.query;
        *self.counterparts.entry(quarter).or_insert_with(|| previous.counterpart(&query.zone, query.range, quarter))
    }

    /// The kind of the groups of a row.
    fn kind(&mut self, row: &RollupRow<'_>, counted_at: Option<UnixTime>) -> KindNumber {
        let query = self.query;
        let listing = query.has(Dimension::Listing).then(|| self.texts.number(row.listing));
        let event_type = query.has(Dimension::Type).then(|| self.texts.number(row.event_type));
        let counted_at = counted_at.filter(|_| query.has(Dimension::CountedAt));
        let mut values = [None; DIMENSIONS_MAX];
        for (dimension, value) in row.values.iter().filter(|(number, _)| query.has(Dimension::Value(*number))) {
            values[dimension.position()] = Some(self.texts.number(value));
        }
        self.groups.kind(Kind { counted_at, listing, event_type, values })
    }

    /// The counts of the group of a quarter.
    fn pair(&mut self, kind: KindNumber, quarter: Quarter) -> Result<&mut Pair, CountError> {
        let unit = self.units.as_mut().map(|units| units.of(quarter)).transpose()?;
        self.groups.counts(kind, unit)
    }

    /// The groups in their order.
    pub fn counts(self) -> Counts {
        let Grouping { query, units, groups, texts, previous, unmatched, .. } = self;
        let key = |group: &Group| {
            let start = |unit: UnitNumber| units.as_ref().and_then(|units| units.start(unit));
            (Key { at: group.unit.and_then(start), kind: groups.kind_of(group) }, group.counts)
        };
        let mut counted: Vec<(Key, Pair)> = groups.all().iter().map(key).collect();
        let total = counted.iter().map(|(_, pair)| pair.n).sum();
        let is_by_time =
            query.dimensions.iter().any(|dimension| dimension.is_time() || *dimension == Dimension::CountedAt);
        counted.sort_unstable_by(|(a, in_a), (b, in_b)| {
            let by_count = match is_by_time {
                true => Ordering::Equal,
                false => (Reverse(in_a.n), Reverse(in_a.previous)).cmp(&(Reverse(in_b.n), Reverse(in_b.previous))),
            };
            by_count.then_with(|| texts.compare(a, b))
        });
        let has_more = counted.len() > query.limit;
        counted.truncate(query.limit);
        let groups = counted.iter().map(|(key, pair)| texts.group(key, *pair)).collect();
        Counts { groups, has_more, total, previous, unmatched }
    }
}

impl Texts {
    fn number(&mut self, text: &str) -> u32 {
        if self.text(Some(self.last)) != Some(text) {
            self.last = self.find(text);
        }
        self.last
    }

    fn find(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    fn text(&self, number: Option<u32>) -> Option<&str> {
        self.texts.get(number? as usize).map(String::as_str)
    }

    fn compare(&self, a: &Key, b: &Key) -> Ordering {
        let by_time = (a.at, a.kind.counted_at).cmp(&(b.at, b.kind.counted_at));
        let by_listing = || self.text(a.kind.listing).cmp(&self.text(b.kind.listing));
        let by_type = || self.text(a.kind.event_type).cmp(&self.text(b.kind.event_type));
        let by_values =
            || a.kind.values.map(|value| self.text(value)).cmp(&b.kind.values.map(|value| self.text(value)));
        by_time.then_with(by_listing).then_with(by_type).then_with(by_values)
    }

    fn group(&self, key: &Key, pair: Pair) -> CountedGroup {
        let Kind { counted_at, listing, event_type, values } = key.kind;
        CountedGroup {
            at: key.at,
            counted_at,
            listing: self.text(listing).map(str::to_owned),
            event_type: self.text(event_type).map(str::to_owned),
            values: values.map(|value| self.text(value).map(str::to_owned)),
            n: pair.n,
            previous: pair.previous,
        }
    }
}
