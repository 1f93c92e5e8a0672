//! Queries: which blobs a range of hours needs, which rows of the owner belong to the same moment, and what is counted of them.
//!
//! * `counts`: rows, grouped by hours of a zone's clock, listings and types. `units`: these hours; `groups`: the groups.
//! * `previous`: the period before, by the zone's calendar.
//! * `range`: quarters of an hour, and how far their counts are.

pub mod counts;
mod groups;
pub mod previous;
pub mod range;
mod units;

use crate::blob::{BlobKey, BlobMeta, Epoch, PartitionId};
use crate::erasure::{Erasure, ErasureKey, ListingHash};
use crate::manifest::{Manifest, Partition};
use crate::rollup::{RollupRow, Rollups};
use crate::schema::{Renaming, TypesOf};
use crate::scope::{Scope, Slice, TenantHash};
use crate::source::{SourceId, SourceState};
use crate::teeth::{Bug, bites};
use crate::time::{Day, HourRange};
use std::collections::BTreeMap;

/// The input of a query: the state of one partition at one index of the manifest's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub index: u64,
    pub partition: PartitionId,
    /// Live blobs of rows with hours that overlap the range.
    pub blobs: Vec<BlobMeta>,
    /// How far each source is in these blobs.
    pub sources: BTreeMap<SourceId, SourceState>,
    pub view: View,
}

/// Which rows of blobs and owners a query shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Rows of earlier days are not kept, and not shown.
    pub kept_from: Day,
    /// Of the tenant that is asked for.
    pub erased: Vec<(ErasureKey, Erasure)>,
    /// The names of event types in blobs.
    pub types: TypesOf,
}

impl View {
    /// The view of a tenant in a partition with these event types.
    pub fn of(partition: &Partition, tenant: TenantHash, types: TypesOf) -> View {
        let kept_from = if bites(Bug::ExpiredRowsShown) { Day(0) } else { partition.horizons.kept };
        let erased = partition.erasures.of_tenant(tenant).collect();
        View { kept_from, erased, types }
    }

    /// The changes to apply to the names of a blob's rows.
    pub fn renaming(&self, blob: &BlobKey) -> Renaming {
        if bites(Bug::OldNamesShown) { Renaming::default() } else { self.types.since(blob.seq) }
    }

    /// Whether a row is shown.
    pub fn shows(&self, row: &RollupRow<'_>) -> bool {
        let is_erased = |(key, erasure): &(ErasureKey, Erasure)| {
            row.hour < erasure.before && key.listing.is_none_or(|listing| listing == ListingHash::of(row.listing))
        };
        row.hour.day() >= self.kept_from && !self.erased.iter().any(is_erased)
    }

    /// Whether nothing of a range of hours is kept.
    pub fn is_behind(&self, hours: HourRange) -> bool {
        hours.last.day() < self.kept_from
    }
}

/// Rows that an owner has read and not committed: rows `from` to `to` of a source, `to` not included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerRows {
    pub epoch: Epoch,
    pub source: SourceId,
    pub from: u64,
    pub to: u64,
    pub rows: Rollups,
}

/// Whether the rows of an owner continue the blobs of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continues {
    /// These rows are not in the blobs, and those before them are: they are added.
    Yes,
    /// The blobs hold these rows already: they are left out.
    InBlobs,
    /// Rows between the blobs and these are missing: the query waits for the manifest's feed and plans again.
    Gap { position: u64 },
}

/// Plans a query of all tenants in a range of hours.
pub fn plan(manifest: &Manifest, id: PartitionId, hours: HourRange) -> Plan {
    let is_needed = |meta: &BlobMeta| meta.level.is_of_rows() && meta.hours.overlaps(&hours);
    let blobs = manifest.partition(id).map_or_else(Vec::new, |known| known.live.values().filter(is_needed).collect());
    Plan { blobs, ..empty_plan(manifest, id) }
}

/// Plans a query of one tenant in a range of hours. A blob says by itself which tenants it may hold.
pub fn plan_of_tenant(manifest: &Manifest, id: PartitionId, tenant: &str, hours: HourRange) -> Plan {
    let tenant = TenantHash::of(tenant);
    let mut blobs = manifest.partition(id).map_or_else(Vec::new, |known| known.live.of_tenant(tenant, hours));
    if bites(Bug::BucketsOfToday) {
        let today = manifest.layout().slices(Day(u32::MAX));
        let is_of_today = |meta: &BlobMeta| match meta.scope {
            Scope::Slice(slice) => slice.remainder == Slice::of(tenant, today).remainder % slice.modulus.max(1),
            Scope::Part(_) => true,
        };
        blobs.retain(is_of_today);
    }
    let view = manifest.partition(id).map(|partition| View::of(partition, tenant, manifest.types_of(id)));
    let view = view.unwrap_or_default();
    Plan { blobs, view, ..empty_plan(manifest, id) }
}

fn empty_plan(manifest: &Manifest, id: PartitionId) -> Plan {
    let sources = manifest.partition(id).map_or_else(BTreeMap::new, |known| known.sources.clone());
    Plan { index: manifest.index(), partition: id, blobs: Vec::new(), sources, view: View::default() }
}

impl Plan {
    /// Judges the owner's sets of rows in their order. A set that continues moves the plan's position of its source.
    pub fn join(&mut self, rows: &OwnerRows) -> Continues {
        let position = self.sources.get(&rows.source).map_or(0, |state| state.next_row);
        if rows.from != position && !bites(Bug::OwnerRowsWithoutFrom) {
            return if rows.to <= position { Continues::InBlobs } else { Continues::Gap { position } };
        }
        self.sources.entry(rows.source).or_default().next_row = rows.to;
        Continues::Yes
    }
}
