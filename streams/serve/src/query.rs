//! Counts of a tenant: the rows of pinned blobs and the owner's rows, grouped as a query asks.

use crate::engine::Pinned;
use crate::settings::GROUPS_MAX;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tidemark_proto::series::UnixTime;
use tidemark_proto::series::Window;
use tidemark_proto::series::calendar::{CalendarError, CalendarUnit, Zone};
use tidemark_streams_core::query::View;
use tidemark_streams_core::rollup::RollupRow;
use tidemark_streams_core::time::{DAY_S, Hour, HourRange, Quarter};
use tidemark_streams_store::directory::{BlobReader, DirectoryError};
use tidemark_streams_store::parquet_rows::Wanted;

/// The grouping of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dimension {
    Hour,
    Day,
    Listing,
    Type,
}

/// Quarters of an hour, the last not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub from: u32,
    pub to: u32,
}

/// A query.
#[derive(Clone, Debug)]
pub struct Query {
    pub tenant: String,
    pub range: Range,
    pub zone: Zone,
    pub dimensions: Vec<Dimension>,
    /// Empty: all.
    pub types: Vec<String>,
    pub limit: usize,
}

/// A group of counts: what a dimension does not ask for is `None`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    pub from: Option<UnixTime>,
    pub listing: Option<String>,
    pub event_type: Option<String>,
}

/// Groups with their counts.
pub struct Counts {
    pub groups: Vec<(Group, u64)>,
    pub has_more: bool,
    pub total: u64,
}

/// Why a query is not answered.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Calendar(#[from] CalendarError),
    #[error("the query has more than {GROUPS_MAX} groups: ask for a shorter range or fewer dimensions")]
    TooManyGroups,
    #[error("the range is not kept: counts are kept from {kept_from} s since 1970 on")]
    NotKept { kept_from: u64 },
}

impl Dimension {
    pub const ALL: [(Dimension, &'static str); 4] = [
        (Dimension::Hour, "hour"),
        (Dimension::Day, "day"),
        (Dimension::Listing, "listing"),
        (Dimension::Type, "type"),
    ];
}

impl Range {
    pub fn hours(&self) -> HourRange {
        HourRange { first: Hour(self.from / 4), last: Hour(self.to.saturating_sub(1) / 4) }
    }

    fn contains(&self, quarter: Quarter) -> bool {
        (self.from..self.to).contains(&quarter.number())
    }
}

/// Reads what was pinned and counts it.
///
/// # Errors
/// [`QueryError`].
pub fn count(query: &Query, pinned: &Pinned, reader: &BlobReader) -> Result<Counts, QueryError> {
    if pinned.view.is_behind(query.range.hours()) {
        let kept_from_s = u64::from(pinned.view.kept_from.0) * DAY_S;
        return Err(QueryError::NotKept { kept_from: kept_from_s });
    }
    let mut grouping = Grouping { query, view: &pinned.view, last: None, counts: BTreeMap::new() };
    for meta in &pinned.blobs {
        let rows = reader.rows(meta, Wanted::Tenant(&query.tenant))?;
        rows.iter().try_for_each(|row| grouping.add(&row))?;
    }
    for rows in &pinned.unwritten {
        rows.iter().try_for_each(|row| grouping.add(&row))?;
    }
    Ok(grouping.counts())
}

struct Grouping<'q> {
    query: &'q Query,
    view: &'q View,
    last: Option<Window>,
    counts: BTreeMap<Group, u64>,
}

impl Grouping<'_> {
    fn add(&mut self, row: &RollupRow<'_>) -> Result<(), QueryError> {
        let query = self.query;
        let is_wanted = query.types.is_empty() || query.types.iter().any(|wanted| wanted == row.event_type);
        if row.tenant != query.tenant || !is_wanted || !self.view.shows(row) {
            return Ok(());
        }
        for (at, &count) in row.quarters.iter().enumerate().filter(|(_, count)| **count > 0) {
            let quarter = row.hour.quarter(at);
            if !query.range.contains(quarter) {
                continue;
            }
            let group = self.group(row, quarter)?;
            *self.counts.entry(group).or_default() += u64::from(count);
            if self.counts.len() > GROUPS_MAX {
                return Err(QueryError::TooManyGroups);
            }
        }
        Ok(())
    }

    fn group(&mut self, row: &RollupRow<'_>, quarter: Quarter) -> Result<Group, QueryError> {
        let has = |dimension| self.query.dimensions.contains(&dimension);
        let listing = has(Dimension::Listing).then(|| row.listing.to_owned());
        let event_type = has(Dimension::Type).then(|| row.event_type.to_owned());
        let unit = match (has(Dimension::Hour), has(Dimension::Day)) {
            (true, _) => Some(CalendarUnit::Hour),
            (false, true) => Some(CalendarUnit::Day),
            (false, false) => None,
        };
        let from = unit.map(|unit| self.start_of(unit, quarter)).transpose()?;
        Ok(Group { from, listing, event_type })
    }

    /// The hour or day of the zone in which a quarter begins.
    fn start_of(&mut self, unit: CalendarUnit, quarter: Quarter) -> Result<UnixTime, CalendarError> {
        let out = || CalendarError::Time(quarter.start_s().to_string());
        let at = UnixTime::from_s(quarter.start_s() as i64).map_err(|_| out())?;
        if let Some(last) = self.last.filter(|last| last.from() <= at && at < last.to()) {
            return Ok(last.from());
        }
        let window = self.query.zone.unit(unit, at, 0)?;
        self.last = Some(window);
        Ok(window.from())
    }

    /// By time if there is one, else the largest counts first.
    fn counts(self) -> Counts {
        let total = self.counts.values().sum();
        let mut groups: Vec<(Group, u64)> = self.counts.into_iter().collect();
        let is_by_time = groups.first().is_some_and(|(group, _)| group.from.is_some());
        if !is_by_time {
            groups.sort_by(|a, b| (Reverse(a.1), &a.0).cmp(&(Reverse(b.1), &b.0)));
        }
        let has_more = groups.len() > self.query.limit;
        groups.truncate(self.query.limit);
        Counts { groups, has_more, total }
    }
}
