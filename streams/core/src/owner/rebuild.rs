//! Blobs whose files are damaged or missing are replaced by what was rebuilt from their inputs, and rows are counted again for that.

use super::job::{Load, Purpose};
use super::window::{Rules, Window};
use super::{DeadLetter, Owner, OwnerConfig, RowBatch, State, Stop};
use crate::blob::{BlobKey, BlobMeta, PartitionId};
use crate::event::EventTypes;
use crate::manifest::{Generation, MemberId};
use crate::merge::MergePolicy;
use crate::rollup::{Rollups, RowError};
use crate::time::{Day, Now};
use std::collections::BTreeSet;

impl Owner {
    /// Replaces a blob of rows.
    pub(super) fn rebuild(&mut self, now: Now, key: BlobKey, rows: &Rollups) {
        let is_same = |meta: &BlobMeta| meta.level.is_of_rows() && meta.holds(rows);
        let Some(meta) = self.live.get(&key).filter(is_same).filter(|_| self.may_rebuild()) else { return };
        let waiting = BTreeSet::new();
        let none = Rollups::new();
        let mut load = Load { purpose: Purpose::Rewrite(meta), waiting, rows: none, deleted: 0, planned_by: None };
        if let Err(error) = load.take(&self.types.since(key.seq), rows) {
            return self.stop(Stop::Rows(error));
        }
        if let Err(error) = self.replace(now, load) {
            self.stop(Stop::Rows(error));
        }
    }

    /// Replaces a blob of dead letters.
    pub(super) fn rebuild_letters(&mut self, now: Now, key: BlobKey, letters: &[DeadLetter]) {
        let is_same = |meta: &BlobMeta| !meta.level.is_of_rows() && meta.rows == letters.len() as u64;
        if self.live.get(&key).filter(is_same).is_some() && self.may_rebuild() {
            self.rewrite_letters(now, key, letters);
        }
    }

    fn may_rebuild(&self) -> bool {
        matches!(self.state, State::Idle) && !self.is_paused
    }
}

/// Rows of a source that were counted once more.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    pub rows: Rollups,
    pub letters: Vec<DeadLetter>,
}

/// Nothing is flushed.
const FLUSH_AFTER_MS: u64 = 60_000;

/// Counts rows of a source once more, as an owner does, and commits nothing.
pub struct Recount {
    config: OwnerConfig,
    window: Window,
    refused: Option<BTreeSet<u64>>,
}

impl Recount {
    /// Rows that are known to be `refused` are passed over. All others were judged before, also their times.
    pub fn new(types: EventTypes, refused: Option<&BTreeSet<u64>>) -> Recount {
        let config = OwnerConfig {
            partition: PartitionId(0),
            member: MemberId(0),
            generation: Generation(0),
            types,
            seed: 0,
            flush_after_ms: FLUSH_AFTER_MS,
            cells_max: usize::MAX,
            fold_bytes_max: usize::MAX,
            dead_letters_max: usize::MAX,
            merge: MergePolicy::default(),
            retry_after_ms: 0,
            keep_flushed_ms: 0,
        };
        Recount { window: Window::new(&config), config, refused: refused.cloned() }
    }

    /// Counts rows, which follow those before them.
    pub fn add(&mut self, now: Now, batch: &RowBatch<'_>) {
        let now = if self.refused.is_some() { Now(u64::MAX) } else { now };
        let rules = Rules { types: &self.config.types, kept_from: Day(0) };
        for (row, record) in (batch.from..).zip(batch.records) {
            let is_refused = self.refused.as_ref().is_some_and(|refused| refused.contains(&row));
            if !is_refused {
                let one = RowBatch { from: row, records: std::slice::from_ref(record), ..*batch };
                self.window.fold(now, rules, &one);
            }
        }
    }

    /// # Errors
    /// The rows have too much text.
    pub fn finish(mut self) -> Result<Counted, RowError> {
        let Some(taken) = self.window.take(&self.config)? else { return Ok(Counted::default()) };
        let letters = taken.dead_letters.into_iter().map(|held| held.letter).collect();
        Ok(Counted { rows: Rollups::clone(&taken.set.rows), letters })
    }
}
