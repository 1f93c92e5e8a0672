//! Counts of a tenant: the rows of pinned blobs and the owner's rows, and what tells two answers apart.

use crate::commit_times::CommitTimes;
use crate::messages::Pinned;
use crate::row_cache::RowCache;
use std::sync::Arc;
use tidemark_proto::hash::bytes_hash;
use tidemark_proto::series::UnixTime;
use tidemark_streams_core::blob::BlobMeta;
use tidemark_streams_core::query::counts::{CountError, CountQuery, Counts, Dimension, Grouping};
use tidemark_streams_core::rollup::Rollups;
use tidemark_streams_core::time::DAY_S;
use tidemark_streams_store::directory::{BlobReader, DirectoryError};
use tidemark_streams_store::parquet_rows::Wanted;

/// Makes versions of answers of nothing else.
const VERSION_SEED: u64 = 0x7665_7273_696f_6e31;
const MINUTE_MS: u64 = 60_000;

/// Where rows come from.
pub struct RowSources<'a> {
    pub reader: &'a BlobReader,
    pub cache: &'a RowCache,
    pub commits: &'a CommitTimes,
}

/// Why a query is not answered.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Count(#[from] CountError),
    #[error("the range is not kept: counts are kept from {kept_from} s since 1970 on")]
    NotKept { kept_from: u64 },
}

impl RowSources<'_> {
    /// Reads what was pinned and counts it.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn count(&self, query: &CountQuery, pinned: &Pinned) -> Result<Counts, QueryError> {
        if pinned.view.is_behind(query.range.hours()) {
            return Err(QueryError::NotKept { kept_from: u64::from(pinned.view.kept_from.0) * DAY_S });
        }
        let mut grouping = Grouping::new(query, &pinned.view);
        grouping.fill()?;
        for meta in &pinned.blobs {
            let counted_at = self.commits.of(&meta.key).and_then(minute);
            grouping.add_blob(&meta.key, &*self.rows(&query.tenant, meta)?, counted_at)?;
        }
        let now = minute(pinned.pinned_at_ms);
        for rows in &pinned.unwritten {
            rows.iter().try_for_each(|row| grouping.add(&row, now))?;
        }
        Ok(grouping.counts())
    }

    /// A tenant's rows of a blob. A blob never changes, so they are read once.
    ///
    /// # Errors
    /// The blob is missing or damaged.
    pub fn rows(&self, tenant: &str, meta: &BlobMeta) -> Result<Arc<Rollups>, DirectoryError> {
        if let Some(rows) = self.cache.get(meta, tenant) {
            return Ok(rows);
        }
        let rows = Arc::new(self.reader.rows(meta, Wanted::Tenant(tenant))?);
        self.cache.put(meta, tenant, &rows);
        Ok(rows)
    }
}

/// The minute that holds a time.
fn minute(at_ms: u64) -> Option<UnixTime> {
    UnixTime::from_s((at_ms / MINUTE_MS * 60) as i64).ok()
}

/// What tells the rows of an answer apart from those of another answer to the same query. `query_text` is the query.
pub fn version(query_text: &str, query: &CountQuery, pinned: &Pinned) -> String {
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
