//! The rows of past days are replaced by a recount of their sources: the blobs of these days are read, and their other rows carried over.

use super::job::{Job, Load, Pending, Purpose};
use super::{Content, Output, Owner, State};
use crate::blob::{BlobKey, BlobMeta, Level};
use crate::limits::REPLACED_ROWS_MAX;
use crate::manifest::{Commit, Replace, SourceReading};
use crate::rollup::{RollupRow, Rollups, RowError};
use crate::schema::Renaming;
use crate::scope::Scope;
use crate::teeth::{Bug, bites};
use crate::time::{Days, Now};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A recount of past days. `blobs` and `revision` are those of the manifest at its time.
#[derive(Clone, Copy, Debug)]
pub struct Recounted<'a> {
    pub days: Days,
    /// The event type that was recounted, by its present name; `None`: all types.
    pub event_type: Option<&'a str>,
    /// All live blobs with hours of these days.
    pub blobs: &'a [BlobKey],
    /// The number of erasures and changes of event types.
    pub revision: u64,
    pub rows: &'a Rollups,
    /// The sources that were read by other columns or another zone than before.
    pub readings: &'a [SourceReading],
}

/// A replacement that reads the blobs which it removes.
pub(super) struct Replacing {
    days: Days,
    event_type: Option<String>,
    readings: Vec<SourceReading>,
    recounted: Rollups,
    inputs: Vec<BlobMeta>,
    /// Rows of the inputs that are not replaced.
    carried: Vec<Carried>,
    /// Rows of the inputs that are replaced.
    replaced: Rollups,
    /// The sum of the counts of deleted types.
    deleted: u64,
}

struct Carried {
    level: Level,
    scope: Scope,
    rows: Rollups,
}

/// The sums of a replacement.
#[derive(Clone, Debug)]
pub(super) struct Replaced {
    pub inputs: Vec<BlobMeta>,
    pub days: Days,
    pub before: u64,
    pub after: u64,
    pub erased: u64,
    pub readings: Vec<SourceReading>,
}

impl Owner {
    /// Whether rows of past days are being replaced.
    pub fn is_replacing(&self) -> bool {
        match &self.state {
            State::Loading(load) => matches!(load.purpose, Purpose::Replace(_)),
            State::Writing(write) => matches!(write.job, Job::Replace(_)),
            State::Claiming | State::Idle | State::Expiring { .. } | State::Stopped(_) => false,
        }
    }

    /// Reads the blobs of a recount, to write their other rows again beside the recounted ones.
    pub(super) fn begin_replace(&mut self, now: Now, recounted: &Recounted<'_>) {
        let &Recounted { days, event_type, blobs, revision, rows, readings } = recounted;
        let is_asked = |row: RollupRow<'_>| is_replaced(&row, &days, event_type);
        let is_kept = days.first >= self.horizons.kept && days.first <= days.last;
        // Rows that are held were read by the columns before.
        let is_read_alike = readings.is_empty() || self.window.is_empty();
        let is_sound = is_kept && is_read_alike && revision == self.revision() && rows.iter().all(is_asked);
        if !matches!(self.state, State::Idle) || self.is_paused || !is_sound {
            return;
        }
        let inputs = self.live.of_days(&days);
        let known: BTreeSet<&BlobKey> = blobs.iter().collect();
        let is_same = known.len() == inputs.len() && inputs.iter().all(|meta| known.contains(&meta.key));
        if !is_same && !bites(Bug::LateRowsReplaced) {
            return;
        }
        let waiting: BTreeSet<BlobKey> = inputs.iter().map(|meta| meta.key).collect();
        self.outputs.extend(waiting.iter().map(|key| Output::Load(*key)));
        let replacing = Replacing {
            days,
            event_type: event_type.map(str::to_owned),
            readings: readings.to_vec(),
            recounted: rows.clone(),
            inputs,
            carried: Vec::new(),
            replaced: Rollups::new(),
            deleted: 0,
        };
        let is_read = waiting.is_empty();
        let purpose = Purpose::Replace(Box::new(replacing));
        let load = Load { purpose, waiting, rows: Rollups::new(), deleted: 0, planned_by: None };
        self.retry_at = None;
        match is_read {
            true => self.finish_load(now, load),
            false => self.state = State::Loading(load),
        }
    }

    /// Writes the rows that are carried over, and the recounted ones.
    pub(super) fn write_replaced(&mut self, now: Now, replacing: Replacing) -> Result<(), RowError> {
        let Replacing { days, readings, recounted, inputs, carried, replaced, deleted, .. } = replacing;
        let kept = |rows: Rollups| -> Result<Rollups, RowError> { Ok(self.erasures.kept(&rows)?.unwrap_or(rows)) };
        let pending = |level, scope, rows| Pending::new(level, scope, Content::Rows(Arc::new(rows)));
        let removed: u64 = replaced.total() + deleted + carried.iter().map(|of| of.rows.total()).sum::<u64>();
        let before = kept(replaced)?.total();
        let mut left = 0;
        let mut blobs = Vec::new();
        for Carried { level, scope, rows } in carried {
            let rows = kept(rows)?;
            left += rows.total();
            blobs.push(pending(level, scope, rows));
        }
        let erased = removed - before - left;
        let is_dropped = bites(Bug::EdgeRowsDropped);
        let before = if is_dropped { before + left } else { before };
        blobs.retain(|_| !is_dropped);
        let mut recounted = kept(recounted)?;
        recounted.combine();
        let after = recounted.total();
        for rows in parts(&recounted)? {
            blobs.push(pending(Level::Delta, Scope::ALL, rows));
        }
        let replaced = Replaced { inputs, days, before, after, erased, readings };
        if replaced.inputs.is_empty() && after == 0 && replaced.readings.is_empty() {
            return Ok(());
        }
        self.begin_write(now, Job::Replace(Box::new(replaced)), blobs);
        Ok(())
    }
}

impl Replaced {
    /// The command of a commit with these blobs.
    pub fn command(&self, commit: Commit) -> Replace {
        let Commit { partition, epoch, seq, add, remove, revision, .. } = commit;
        let &Replaced { days, before, after, erased, ref readings, .. } = self;
        let readings = readings.clone();
        Replace { partition, epoch, seq, days, add, remove, revision, erased, before, after, readings }
    }
}

impl Replacing {
    /// Takes the rows of a blob under their present names.
    pub fn take(&mut self, key: &BlobKey, renaming: &Renaming, rows: &Rollups) -> Result<(), RowError> {
        let Some(BlobMeta { level, scope, .. }) = self.inputs.iter().find(|meta| meta.key == *key).copied() else {
            return Ok(());
        };
        let renamed = renaming.rows(rows)?;
        let kept = renamed.as_ref().unwrap_or(rows);
        self.deleted += rows.total() - kept.total();
        let mut carried = Rollups::new();
        for row in kept.iter() {
            match is_replaced(&row, &self.days, self.event_type.as_deref()) {
                true => self.replaced.push_checked(row)?,
                false => carried.push_checked(row)?,
            }
        }
        // A merge of types may have given rows equal keys.
        carried.combine();
        self.carried.push(Carried { level, scope, rows: carried });
        Ok(())
    }
}

fn is_replaced(row: &RollupRow<'_>, days: &Days, event_type: Option<&str>) -> bool {
    days.contains(row.hour.day()) && event_type.is_none_or(|name| name == row.event_type)
}

/// Rows in sets of a bounded size.
fn parts(rows: &Rollups) -> Result<Vec<Rollups>, RowError> {
    let mut parts = Vec::new();
    for begin in (0..rows.len()).step_by(REPLACED_ROWS_MAX) {
        let mut part = Rollups::new();
        let end = rows.len().min(begin + REPLACED_ROWS_MAX);
        (begin..end).try_for_each(|at| part.push_checked(rows.get(at)))?;
        parts.push(part);
    }
    Ok(parts)
}
