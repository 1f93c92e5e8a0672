//! Erasures: rows of a tenant, or of one listing of it, that are taken away and do not come back.
//!
//! An erasure is kept for ever, by hashes of names. A commit behind its entry of the log is refused if the owner did not know it. So the
//! blobs that may hold erased rows are those of earlier commits. Owners write each of them again without these rows; then the erasure is
//! done. A kill at any moment leaves the blobs that are still to be written.

use crate::blob::{BlobKey, BlobMeta, Level, Seq};
use crate::limits::{ERASURES_MAX, FUTURE_MAX_S};
use crate::live::BlobSet;
pub use crate::names::ListingHash;
use crate::names::Names;
use crate::rollup::{RollupRow, Rollups, RowError};
use crate::scope::TenantHash;
use crate::teeth::{Bug, bites};
use crate::time::{HOUR_S, Hour, HourRange, Now};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The tenant or listing that is erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ErasureKey {
    pub tenant: TenantHash,
    /// `None`: all listings.
    pub listing: Option<ListingHash>,
}

/// How far an erasure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erasure {
    /// Rows of earlier hours are erased.
    pub before: Hour,
    /// When it was asked for, in milliseconds since 1970.
    pub asked_at_ms: u64,
    /// Commits up to this one may have added erased rows.
    pub seq: Seq,
    /// Whether no live blob holds erased rows.
    pub is_done: bool,
}

/// All erasures of a partition.
#[derive(Clone, Debug, Default)]
pub struct Erasures {
    known: BTreeMap<ErasureKey, Erasure>,
    /// Erasures that are not done, each with a live blob that was found to hold its rows. While that blob is live no other is looked for.
    pending: BTreeMap<ErasureKey, Option<BlobKey>>,
    /// How many commands erased something.
    count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{ERASURES_MAX} tenants and listings are erased, the most that a partition remembers")]
pub struct TooManyErasures;

/// The hour before which rows are erased that may have come by now. Events may lie ahead of now, within an hour that has begun.
pub fn before(now: Now) -> Hour {
    Hour(u32::try_from((now.seconds() + FUTURE_MAX_S) / HOUR_S + 1).unwrap_or(Hour::MAX.0))
}

impl Erasure {
    /// A live blob that may hold erased rows or letters.
    fn unclean(&self, key: &ErasureKey, live: &BlobSet, is_left: impl Fn(&BlobKey) -> bool) -> Option<BlobMeta> {
        let hours = HourRange { first: Hour(0), last: Hour(self.before.0.checked_sub(1)?) };
        let rows = live.of_tenant(key.tenant, hours).into_iter();
        let letters = live.of_level(Level::DeadLetters);
        rows.chain(letters).find(|meta| meta.key.seq <= self.seq && !is_left(&meta.key))
    }

    /// Whether a live blob may hold erased rows. A witness that is live tells it without a search.
    fn is_open(&mut self, key: &ErasureKey, witness: &mut Option<BlobKey>, live: &BlobSet) -> bool {
        if witness.is_none_or(|witness| !live.contains_key(&witness)) {
            *witness = self.unclean(key, live, |_| false).map(|meta| meta.key);
        }
        self.is_done = witness.is_none();
        !self.is_done
    }
}

/// Witnesses are no part of the state, and what is pending follows from what is known.
impl PartialEq for Erasures {
    fn eq(&self, other: &Erasures) -> bool {
        let Erasures { known, pending: _, count } = self;
        (known, count) == (&other.known, &other.count)
    }
}

impl Eq for Erasures {}

impl ErasureKey {
    pub fn of(tenant: &str, listing: Option<&str>) -> ErasureKey {
        ErasureKey { tenant: TenantHash::of(tenant), listing: listing.map(ListingHash::of) }
    }
}

impl Erasures {
    /// How many commands erased something. A commit names it.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub fn get(&self, key: &ErasureKey) -> Option<Erasure> {
        self.known.get(key).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (ErasureKey, Erasure)> {
        self.known.iter().map(|(key, erasure)| (*key, *erasure))
    }

    /// The erasures that the owner of a commit knew. Of an erasure that came again, only the last time is known.
    pub(crate) fn known_by(&self, commit: Seq) -> Erasures {
        let is_earlier = |(_, erasure): &(&ErasureKey, &Erasure)| erasure.seq < commit;
        let known = self.known.iter().filter(is_earlier).map(|(key, erasure)| (*key, *erasure)).collect();
        Erasures { known, ..Erasures::default() }
    }

    /// Erasures that are not done.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The erasures of a tenant.
    pub fn of_tenant(&self, tenant: TenantHash) -> impl Iterator<Item = (ErasureKey, Erasure)> {
        let first = ErasureKey { tenant, listing: None };
        let last = ErasureKey { tenant, listing: Some(ListingHash(u64::MAX)) };
        self.known.range(first..=last).map(|(key, erasure)| (*key, *erasure))
    }

    /// Whether a row is erased.
    pub fn erases(&self, tenant: TenantHash, listing: &str, hour: Hour) -> bool {
        let is_listing = |hash: Option<ListingHash>| hash.is_none_or(|hash| hash == ListingHash::of(listing));
        self.of_tenant(tenant).any(|(key, erasure)| hour < erasure.before && is_listing(key.listing))
    }

    /// Whether an erasure removes a dead letter of a blob. It does if the commit of the blob was applied before it.
    pub fn erases_stored_letter(&self, names: &Names, seq: Seq) -> bool {
        self.of_letter(names).any(|erasure| seq <= erasure.seq)
    }

    /// Whether an erasure removes a dead letter on its way to a blob. It goes by the hour of the record, as for rows. A record without
    /// a usable time is removed: it may be older than the erasure.
    pub fn erases_held_letter(&self, names: &Names) -> bool {
        let is_before = |erasure: &Erasure| names.hour.is_none_or(|hour| hour < erasure.before);
        !bites(Bug::ErasedLettersInFlushes) && self.of_letter(names).any(|erasure| is_before(&erasure))
    }

    /// Whether an erasure removes a refused row of the archive. Rows that came before the erasure go whatever hour they name, as
    /// stored letters do.
    pub fn erases_raw_letter(&self, names: &Names, accepted_at_ms: u64) -> bool {
        let is_before = |erasure: &Erasure| names.hour.is_none_or(|hour| hour < erasure.before);
        self.of_letter(names).any(|erasure| is_before(&erasure) || accepted_at_ms <= erasure.asked_at_ms)
    }

    /// Erasures of the tenant of a letter, or of a listing that it names.
    fn of_letter(&self, names: &Names) -> impl Iterator<Item = Erasure> {
        let of_tenant = names.tenant.into_iter().flat_map(|tenant| self.of_tenant(tenant));
        let is_named = |key: &ErasureKey| key.listing.is_none_or(|listing| names.listings.contains(&listing));
        of_tenant.filter(move |(key, _)| is_named(key)).map(|(_, erasure)| erasure)
    }

    /// Rows without those that are erased; `None`: none of them is.
    ///
    /// # Errors
    /// Never for rows that came from one set.
    pub fn kept(&self, rows: &Rollups) -> Result<Option<Rollups>, RowError> {
        if self.is_empty() {
            return Ok(None);
        }
        let is_erased = |row: &RollupRow<'_>| self.erases(TenantHash::of(row.tenant), row.listing, row.hour);
        if !rows.iter().any(|row| is_erased(&row)) {
            return Ok(None);
        }
        let mut kept = Rollups::new();
        rows.iter().filter(|row| !is_erased(row)).try_for_each(|row| kept.push_checked(row))?;
        Ok(Some(kept))
    }

    /// A live blob that may hold erased rows. Blobs that are left until later are passed over.
    pub fn unclean(&self, live: &BlobSet, is_left: impl Fn(&BlobKey) -> bool) -> Option<BlobMeta> {
        self.pending.keys().find_map(|key| self.known.get(key)?.unclean(key, live, &is_left))
    }

    /// Notes which erasures are done.
    pub(crate) fn settle(&mut self, live: &BlobSet) {
        let known = &mut self.known;
        self.pending.retain(|key, witness| known.get_mut(key).is_some_and(|known| known.is_open(key, witness, live)));
    }

    /// Notes whether one erasure is done.
    pub(crate) fn settle_key(&mut self, key: &ErasureKey, live: &BlobSet) {
        let Some((known, witness)) = self.known.get_mut(key).zip(self.pending.get_mut(key)) else { return };
        if !known.is_open(key, witness, live) {
            self.pending.remove(key);
        }
    }

    /// Adds an erasure. An earlier one of the same key reaches as far as it did at least.
    ///
    /// # Errors
    /// [`TooManyErasures`].
    pub fn add(&mut self, key: ErasureKey, erasure: Erasure) -> Result<(), TooManyErasures> {
        let known = self.known.get(&key).map(|known| known.before);
        if known.is_none() && self.known.len() >= ERASURES_MAX {
            return Err(TooManyErasures);
        }
        let before = known.map_or(erasure.before, |before| before.max(erasure.before));
        self.known.insert(key, Erasure { before, is_done: false, ..erasure });
        self.pending.insert(key, None);
        self.count += 1;
        Ok(())
    }

    /// Takes over what a snapshot has.
    pub(crate) fn restored(known: BTreeMap<ErasureKey, Erasure>, count: u64) -> Result<Erasures, TooManyErasures> {
        if known.len() > ERASURES_MAX {
            return Err(TooManyErasures);
        }
        let pending = known.iter().filter(|(_, erasure)| !erasure.is_done).map(|(key, _)| (*key, None)).collect();
        Ok(Erasures { known, pending, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn erasures(listing: Option<&str>) -> Erasures {
        let erasure = Erasure { before: Hour(10), asked_at_ms: 0, seq: Seq(1), is_done: false };
        let mut erasures = Erasures::default();
        erasures.add(ErasureKey::of("a", listing), erasure).unwrap();
        erasures
    }

    #[test]
    fn rows_of_a_tenant_or_listing_before_an_hour_are_erased() {
        let tenant = TenantHash::of("a");
        let all = erasures(None);
        assert!(all.erases(tenant, "x", Hour(9)) && all.erases(tenant, "y", Hour(0)));
        assert!(!all.erases(tenant, "x", Hour(10)) && !all.erases(TenantHash::of("b"), "x", Hour(9)));
        let one = erasures(Some("x"));
        assert!(one.erases(tenant, "x", Hour(9)) && !one.erases(tenant, "y", Hour(9)));
    }

    #[test]
    fn letters_that_name_the_listing_are_erased_up_to_the_commit() {
        let one = erasures(Some("x"));
        let names = |listings: &[&str], hour: Option<u32>| Names {
            tenant: Some(TenantHash::of("a")),
            listings: listings.iter().map(|listing| ListingHash::of(listing)).collect(),
            hour: hour.map(Hour),
        };
        let stored = |listings: &[&str], seq| one.erases_stored_letter(&names(listings, Some(12)), Seq(seq));
        assert_eq!(
            [stored(&["x"], 1), stored(&["y", "x"], 1), stored(&["y"], 1), stored(&[], 1)],
            [true, true, false, false]
        );
        assert!(!stored(&["x"], 2), "the letter of a later commit stays");
        let held = |listings: &[&str], hour| one.erases_held_letter(&names(listings, hour));
        assert_eq!([held(&["x"], Some(9)), held(&["x"], Some(10)), held(&["x"], None)], [true, false, true]);
        assert_eq!([held(&["y"], None), one.erases_held_letter(&Names::default())], [false, false]);
    }

    #[test]
    fn rows_that_stay_are_given_where_others_are_erased() {
        let mut rows = Rollups::new();
        for (tenant, hour) in [("a", 9), ("a", 10), ("b", 9)] {
            let values = crate::values::Values::NONE;
            let quarters = [1, 0, 0, 0];
            let row = RollupRow { tenant, values, listing: "x", hour: Hour(hour), event_type: "click", quarters };
            rows.push(row).unwrap();
        }
        let kept = erasures(None).kept(&rows).unwrap().unwrap();
        assert_eq!(kept.iter().map(|row| (row.tenant, row.hour.0)).collect::<Vec<_>>(), [("a", 10), ("b", 9)]);
        assert_eq!((erasures(None).kept(&kept), Erasures::default().kept(&rows)), (Ok(None), Ok(None)));
    }

    #[test]
    fn witness_is_looked_for_again_once_it_is_not_live() {
        let mut erasures = erasures(None);
        let key = ErasureKey::of("a", None);
        let blob = |part| {
            let key = BlobKey { part, seq: Seq(1), ..BlobKey::FIRST };
            let stored = crate::blob::StoredBlob { bytes: 1, checksum: 1 };
            let hours = HourRange::of(Hour(3));
            let scope = crate::scope::Scope::ALL;
            BlobMeta { key, level: Level::Delta, scope, hours, rows: 1, total: 1, stored }
        };
        let mut live: BlobSet = [blob(1), blob(2)].into_iter().collect();
        for part in [1, 2] {
            erasures.settle(&live);
            assert_eq!(erasures.pending.get(&key), Some(&Some(blob(part).key)));
            live.remove(&blob(part).key);
        }
        erasures.settle_key(&key, &live);
        assert_eq!((erasures.pending(), erasures.get(&key).unwrap().is_done), (0, true));
    }

    #[test]
    fn erasure_that_comes_again_reaches_as_far_as_before() {
        let mut erasures = erasures(None);
        let key = ErasureKey::of("a", None);
        let earlier = Erasure { before: Hour(5), asked_at_ms: 7, seq: Seq(4), is_done: false };
        erasures.add(key, earlier).unwrap();
        assert_eq!(erasures.get(&key), Some(Erasure { before: Hour(10), ..earlier }));
        assert_eq!((erasures.count(), erasures.pending()), (2, 1));
        erasures.settle(&BlobSet::new());
        assert_eq!((erasures.pending(), erasures.get(&key).unwrap().is_done), (0, true));
    }
}
