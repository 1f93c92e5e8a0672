//! Rows that the owner holds in memory, and whether they continue the blobs that a follower knows.

use super::{Mark, SessionId, VERSION};
use crate::blob::Epoch;
use crate::codec::{DecodeError, decode_versioned, encode_versioned};
use crate::query::{Continues, OwnerRows, Plan};
use crate::rollup::{RollupRow, Rollups, RowError};
use crate::source::SourceId;
use crate::teeth::{Bug, bites};
use crate::time::{Hour, HourRange};
use crate::values::Values;
use serde::{Deserialize, Serialize};

/// What an owner holds of a tenant in a range of hours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub session: SessionId,
    /// The state of the manifest by which it holds them.
    pub mark: Mark,
    pub source: SourceId,
    /// The row of the source behind all that it has read.
    pub folded: u64,
    /// The sets, in the order of their rows.
    pub sets: Vec<HeldSet>,
    pub at_ms: u64,
    /// Each event that was accepted before this is in the blobs or in the sets.
    pub complete_to_ms: u64,
    pub last_updated_at_ms: u64,
    /// Counts of the tenant that came late, if they are known.
    pub late: Option<u64>,
}

/// Rows `from` to `to` of a source, `to` not included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSet {
    pub epoch: Epoch,
    pub source: SourceId,
    pub from: u64,
    pub to: u64,
    pub rows: Vec<HeldRow>,
}

/// A row of the tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldRow {
    values: String,
    listing: String,
    hour: Hour,
    event_type: String,
    quarters: [u32; 4],
}

/// The rows of a tenant beside its blobs, or why they are left out.
#[derive(Clone, Debug)]
pub enum Joined {
    /// The blobs of the plan and these rows are all that the owner had read.
    Whole(Vec<Rollups>),
    Apart(Apart),
}

/// Why the rows of an owner do not continue the blobs of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Apart {
    #[error("the rows are of session {:016x}, and the feed is of {:016x}", named.0, known.0)]
    OtherSession { named: SessionId, known: SessionId },
    #[error("the owner has epoch {}, and the feed {}", named.0, known.0)]
    OtherEpoch { named: Epoch, known: Epoch },
    #[error("the owner knows {named} erasures and changes of event types, and the feed {known}")]
    OtherRevision { named: u64, known: u64 },
    #[error("the rows begin at {from}, and the blobs end at {position}")]
    Gap { from: u64, position: u64 },
    #[error("the owner has read up to row {folded}, and blobs and rows end at {position}")]
    Short { folded: u64, position: u64 },
}

impl HeldSet {
    /// The rows of an owner in a range of hours.
    pub fn of(rows: &OwnerRows, hours: HourRange) -> HeldSet {
        let is_of_range = |row: &RollupRow<'_>| (hours.first..=hours.last).contains(&row.hour);
        let held = |row: RollupRow<'_>| HeldRow {
            values: row.values.as_str().to_owned(),
            listing: row.listing.to_owned(),
            hour: row.hour,
            event_type: row.event_type.to_owned(),
            quarters: row.quarters,
        };
        let OwnerRows { epoch, source, from, to, ref rows } = *rows;
        HeldSet { epoch, source, from, to, rows: rows.iter().filter(is_of_range).map(held).collect() }
    }

    fn owner_rows(&self, tenant: &str) -> Result<OwnerRows, RowError> {
        let HeldSet { epoch, source, from, to, .. } = *self;
        let mut rows = Rollups::new();
        for HeldRow { values, listing, hour, event_type, quarters } in &self.rows {
            let values = Values::parse(values)?;
            rows.push(RollupRow { tenant, values, listing, hour: *hour, event_type, quarters: *quarters })?;
        }
        Ok(OwnerRows { epoch, source, from, to, rows })
    }
}

impl Held {
    pub fn encode(&self) -> Vec<u8> {
        encode_versioned(VERSION, self)
    }

    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Held, DecodeError> {
        decode_versioned(VERSION, bytes)
    }

    /// Joins the rows to the blobs of a plan, which is of the state `mark` of a session.
    ///
    /// Commits move rows from the owner to blobs, and the position says how far. Erasures and changes of event types alter both sides, so
    /// both must know the same ones. Another epoch may have read the same rows by other rules.
    ///
    /// # Errors
    /// A row is invalid.
    pub fn join(&self, tenant: &str, plan: &mut Plan, mark: Mark, known: SessionId) -> Result<Joined, RowError> {
        if let Some(apart) = self.differs(mark, known) {
            return Ok(Joined::Apart(apart));
        }
        let mut joined = Vec::new();
        for set in &self.sets {
            let rows = set.owner_rows(tenant)?;
            match plan.join(&rows) {
                Continues::Yes => joined.push(rows.rows),
                Continues::InBlobs => {}
                Continues::Gap { position } => return Ok(Joined::Apart(Apart::Gap { from: set.from, position })),
            }
        }
        let folded = self.folded;
        let position = plan.sources.get(&self.source).map_or(0, |state| state.next_row);
        match position < folded && !bites(Bug::HeldRowsWithoutEnd) {
            true => Ok(Joined::Apart(Apart::Short { folded, position })),
            false => Ok(Joined::Whole(joined)),
        }
    }

    fn differs(&self, mark: Mark, known: SessionId) -> Option<Apart> {
        let named = self.session;
        if named != known {
            return Some(Apart::OtherSession { named, known });
        }
        if self.mark.epoch != mark.epoch && !bites(Bug::HeldRowsOfOtherEpoch) {
            return Some(Apart::OtherEpoch { named: self.mark.epoch, known: mark.epoch });
        }
        let is_other = self.mark.revision != mark.revision && !bites(Bug::HeldRowsOfOtherRevision);
        is_other.then_some(Apart::OtherRevision { named: self.mark.revision, known: mark.revision })
    }
}
