//! Cutting: the rows of a merge go into blobs by level, scope and time.

use super::{Merge, Target};
use crate::blob::Level;
use crate::layout::Layout;
use crate::limits::MERGE_BLOBS_MAX;
use crate::rollup::{RollupRow, Rollups, RowError};
use crate::scope::{Part, Scope, Slice, TenantHash};
use crate::teeth::{Bug, bites};
use crate::time::Day;
use std::collections::{BTreeMap, BTreeSet};

/// The rows of one blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutSet {
    pub level: Level,
    pub scope: Scope,
    pub rows: Rollups,
}

/// Which blob a row goes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Bin {
    level: Level,
    scope: Scope,
    start: Day,
}

/// The rest when there are too many bins: the next merge takes it.
const LEFT_OVER: Bin = Bin { level: Level::Delta, scope: Scope::ALL, start: Day(0) };

/// The layout of a day.
#[derive(Clone, Copy)]
struct OfDay {
    slices: u32,
    period: Day,
}

struct Cutter<'a> {
    merge: &'a Merge,
    layout: &'a Layout,
    test_tenants: &'a BTreeSet<TenantHash>,
    days: BTreeMap<Day, OfDay>,
}

/// Cuts sorted rows into at most [`MERGE_BLOBS_MAX`] sets. The rows beyond them are one set of the level delta. Rows of test tenants come
/// last, so that many test tenants hold up no other rows.
///
/// # Errors
/// [`RowError::TooMuchText`] cannot happen for rows that came from one set.
pub fn cut(
    rows: &Rollups,
    merge: &Merge,
    layout: &Layout,
    test_tenants: &BTreeSet<TenantHash>,
) -> Result<Vec<CutSet>, RowError> {
    let mut cutter = Cutter { merge, layout, test_tenants, days: BTreeMap::new() };
    let mut sets = Sets::default();
    let mut known = KnownPlaces::of(rows);
    let turns: &[bool] = if test_tenants.is_empty() { &[false] } else { &[false, true] };
    for of_tests in turns {
        let mut tenant = "";
        let mut hash = TenantHash(0);
        for row in rows.iter() {
            if row.tenant != tenant {
                hash = TenantHash::of(if bites(Bug::BucketOfTenantBefore) { tenant } else { row.tenant });
                tenant = row.tenant;
                known.begin_tenant(layout.split(hash).is_some());
            }
            if test_tenants.contains(&hash) != *of_tests {
                continue;
            }
            let day = row.hour.day();
            let place = known.get(day).unwrap_or_else(|| sets.place(cutter.bin(hash, &row)));
            known.set(day, place);
            sets.rows[place].push_checked(row)?;
        }
    }
    Ok(sets.cut())
}

/// Rows, grouped by the blob into which they go.
#[derive(Default)]
struct Sets {
    places: BTreeMap<Bin, usize>,
    rows: Vec<Rollups>,
}

/// The places of the rows of a tenant by day. The rows of a day have one place, unless the tenant is split by listing.
struct KnownPlaces {
    first: Day,
    days: Vec<KnownPlace>,
    /// Counts tenants, so that the places of earlier tenants are not taken for those of this one.
    tenant: u64,
    is_split: bool,
}

#[derive(Clone, Copy, Default)]
struct KnownPlace {
    tenant: u64,
    place: usize,
}

impl KnownPlaces {
    fn of(rows: &Rollups) -> KnownPlaces {
        let hours = rows.hours();
        let first = hours.map_or(Day(0), |hours| hours.first.day());
        let count = hours.map_or(0, |hours| hours.last.day().0 - first.0 + 1);
        KnownPlaces { first, days: vec![KnownPlace::default(); count as usize], tenant: 0, is_split: false }
    }

    fn begin_tenant(&mut self, is_split: bool) {
        self.tenant += 1;
        self.is_split = is_split;
    }

    fn get(&self, day: Day) -> Option<usize> {
        let known = self.days[(day.0 - self.first.0) as usize];
        (known.tenant == self.tenant && !self.is_split).then_some(known.place)
    }

    fn set(&mut self, day: Day, place: usize) {
        self.days[(day.0 - self.first.0) as usize] = KnownPlace { tenant: self.tenant, place };
    }
}

impl Sets {
    /// The place of the rows of a bin. Without room for a further bin, it is that of the left-over rows.
    fn place(&mut self, bin: Bin) -> usize {
        let has_room = self.places.len() + 1 < MERGE_BLOBS_MAX || self.places.contains_key(&bin);
        let bin = if has_room { bin } else { LEFT_OVER };
        if let Some(place) = self.places.get(&bin) {
            return *place;
        }
        self.rows.push(Rollups::new());
        self.places.insert(bin, self.rows.len() - 1);
        self.rows.len() - 1
    }

    fn cut(mut self) -> Vec<CutSet> {
        if let Some(place) = self.places.get(&LEFT_OVER) {
            self.rows[*place].combine();
        }
        let of = |(Bin { level, scope, .. }, place): (Bin, usize)| {
            let rows = std::mem::take(&mut self.rows[place]);
            CutSet { level, scope, rows }
        };
        std::mem::take(&mut self.places).into_iter().map(of).collect()
    }
}

/// The scope of the blob of a level that a row goes into.
pub fn scope_of(
    level: Level,
    layout: &Layout,
    test_tenants: &BTreeSet<TenantHash>,
    tenant: TenantHash,
    row: &RollupRow<'_>,
) -> Scope {
    match level {
        Level::Delta | Level::DeadLetters => Scope::ALL,
        Level::Hour | Level::Day | Level::Period if test_tenants.contains(&tenant) => own(tenant),
        Level::Hour => Scope::Slice(Slice::of(tenant, layout.virtual_partitions)),
        Level::Day | Level::Period => layout.scope(tenant, row.listing, row.hour.day()),
    }
}

/// The scope of a tenant that has blobs of its own.
fn own(tenant: TenantHash) -> Scope {
    Scope::Part(Part { tenant, parts: 1, part: 0 })
}

impl Cutter<'_> {
    fn bin(&mut self, tenant: TenantHash, row: &RollupRow<'_>) -> Bin {
        let day = row.hour.day();
        let layout = self.layout;
        let of_day = *self
            .days
            .entry(day)
            .or_insert_with(|| OfDay { slices: layout.slices(day), period: layout.period.start_of(day) });
        let is_closed = day < self.merge.closed_before;
        let start = if day < self.merge.old_before { of_day.period } else { day };
        match self.merge.target {
            Target::Day if is_closed => Bin { level: Level::Day, scope: self.scope(tenant, row, of_day), start },
            Target::Period if is_closed => {
                Bin { level: Level::Period, scope: self.scope(tenant, row, of_day), start: of_day.period }
            }
            Target::Hour | Target::Day | Target::Period => {
                let slice = Scope::Slice(Slice::of(tenant, layout.virtual_partitions));
                Bin { level: Level::Hour, scope: self.own_scope(tenant).unwrap_or(slice), start: day }
            }
        }
    }

    /// Rows of a test tenant have blobs of their own.
    fn own_scope(&self, tenant: TenantHash) -> Option<Scope> {
        let is_test = self.test_tenants.contains(&tenant) && !bites(Bug::TestRowsShared);
        is_test.then_some(own(tenant))
    }

    /// As [`Layout::scope`], with the day's slices known.
    fn scope(&self, tenant: TenantHash, row: &RollupRow<'_>, of_day: OfDay) -> Scope {
        if let Some(scope) = self.own_scope(tenant) {
            return scope;
        }
        match self.layout.split(tenant) {
            Some(_) => self.layout.scope(tenant, row.listing, row.hour.day()),
            None => Scope::Slice(Slice::of(tenant, of_day.slices)),
        }
    }
}
