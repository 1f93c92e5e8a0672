//! Counts of a tenant: the rows of pinned blobs and the owner's rows, and what tells two answers apart.

use crate::commit_times::CommitTimes;
use crate::fetch::{Fetched, SharedError};
use crate::messages::Pinned;
use tidemark_proto::hash::bytes_hash;
use tidemark_proto::series::UnixTime;
use tidemark_streams_core::query::counts::{CountError, CountQuery, Counts, Dimension, Grouping};
use tidemark_streams_core::rollup::Rollups;
use tidemark_streams_core::time::DAY_S;

/// Makes versions of answers of nothing else.
const VERSION_SEED: u64 = 0x7665_7273_696f_6e31;
const MINUTE_MS: u64 = 60_000;

/// Where rows come from.
pub struct RowSources<'a> {
    /// Of the pinned blobs, in their order.
    pub fetched: &'a Fetched,
    pub counted_at: &'a CountedAt,
}

/// The minute in which each pinned blob was committed, as far as this process knows it. Without the dimension of these minutes it is empty.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CountedAt(Vec<Option<UnixTime>>);

impl CountedAt {
    pub fn of(query: &CountQuery, pinned: &Pinned, commits: &CommitTimes) -> CountedAt {
        match query.has(Dimension::CountedAt) {
            true => CountedAt(pinned.blobs.iter().map(|meta| commits.of(&meta.key).and_then(minute)).collect()),
            false => CountedAt::default(),
        }
    }
}

/// Why a query is not answered.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error(transparent)]
    Directory(#[from] SharedError),
    #[error(transparent)]
    Count(#[from] CountError),
    #[error("the range is not kept: counts are kept from {kept_from} s since 1970 on")]
    NotKept { kept_from: u64 },
}

/// Refuses a range that ends before the kept days.
///
/// # Errors
/// [`QueryError::NotKept`].
pub fn check_kept(query: &CountQuery, pinned: &Pinned) -> Result<(), QueryError> {
    match pinned.view.is_behind(query.range.hours()) {
        true => Err(QueryError::NotKept { kept_from: u64::from(pinned.view.kept_from.0) * DAY_S }),
        false => Ok(()),
    }
}

impl RowSources<'_> {
    /// Counts what was pinned and fetched.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn count(&self, query: &CountQuery, pinned: &Pinned) -> Result<Counts, QueryError> {
        let mut grouping = Grouping::new(query, &pinned.view);
        grouping.fill()?;
        for (at, meta) in pinned.blobs.iter().enumerate() {
            let counted_at = self.counted_at.0.get(at).copied().flatten();
            grouping.add_blob(&meta.key, &*self.fetched.rows(at)?, counted_at)?;
        }
        let now = minute(pinned.pinned_at_ms);
        for rows in &pinned.unwritten {
            rows.iter().try_for_each(|row| grouping.add(&row, now))?;
        }
        Ok(grouping.counts())
    }
}

/// The minute that holds a time.
fn minute(at_ms: u64) -> Option<UnixTime> {
    UnixTime::from_s((at_ms / MINUTE_MS * 60) as i64).ok()
}

/// What tells the rows of an answer apart from those of another answer to the same query. `query_text` is the query.
pub fn version(query_text: &str, query: &CountQuery, pinned: &Pinned, counted_at: &CountedAt) -> String {
    let mut bytes = query_text.as_bytes().to_vec();
    let mut add = |number: u64| bytes.extend(number.to_le_bytes());
    add(pinned.view.kept_from.0.into());
    add(pinned.view.types.positions.len() as u64);
    for (_, erasure) in &pinned.view.erased {
        add(erasure.asked_at_ms);
    }
    for meta in &pinned.blobs {
        add(meta.key.epoch.0);
        add(meta.key.seq.0);
        add(meta.key.part.into());
        // A directory that was restored from a copy may give the same keys again.
        add(meta.stored.checksum);
    }
    for minute in &counted_at.0 {
        add(minute.map_or(0, UnixTime::s));
    }
    let unwritten: Vec<_> = pinned.unwritten.iter().flat_map(Rollups::iter).collect();
    if query.has(Dimension::CountedAt) && !unwritten.is_empty() {
        add(pinned.pinned_at_ms / MINUTE_MS);
    }
    for row in &unwritten {
        bytes.extend(row.listing.as_bytes());
        bytes.push(0);
        bytes.extend(row.event_type.as_bytes());
        bytes.extend(row.values.as_str().as_bytes());
        bytes.extend(row.hour.0.to_le_bytes());
        row.quarters.iter().for_each(|count| bytes.extend(count.to_le_bytes()));
    }
    format!("{:016x}", bytes_hash(VERSION_SEED, &bytes))
}
