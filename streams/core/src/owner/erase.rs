//! Erasures: what is under way is done again without the erased rows, and blobs that may hold some are written again.

use super::job::{Job, Load, Purpose, Write};
use super::letters::{Held, Sorted};
use super::{DeadLetter, Output, Owner, State, Stop};
use crate::blob::{BlobKey, BlobMeta};
use crate::manifest::{Manifest, Settled};
use crate::names::Names;
use crate::rollup::{Rollups, RowError};
use crate::teeth::{Bug, bites};
use crate::time::Now;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Owner {
    /// Reads a blob that may hold erased rows, to write it again. `false`: there is none.
    pub(super) fn begin_erase(&mut self) -> bool {
        let Some(meta) = self.erasures.unclean(&self.live, |key| self.unreadable.is_left(key)) else { return false };
        self.begin_rewrite(meta);
        true
    }

    /// Reads a blob to write it again without erased rows and rows of deleted types.
    pub(super) fn begin_rewrite(&mut self, meta: BlobMeta) {
        self.outputs.push_back(Output::Load(meta.key));
        self.state = State::Loading(Load {
            purpose: Purpose::Rewrite(meta),
            waiting: BTreeSet::from([meta.key]),
            rows: Rollups::new(),
            deleted: 0,
            planned_by: None,
        });
        self.retry_at = None;
    }

    /// Takes an erasure over. Blobs that are on their way may hold erased rows, and their commit is refused: they are written anew.
    pub(super) fn adopt_erasures(&mut self, now: Now, manifest: &Manifest) {
        if matches!(self.state, State::Claiming) {
            return;
        }
        let Some(partition) = manifest.partition(self.config.partition) else { return };
        if self.erasures.count() == partition.erasures.count() {
            return;
        }
        self.erasures = partition.erasures.clone();
        if !matches!(self.state, State::Writing(_)) {
            return;
        }
        let State::Writing(write) = std::mem::replace(&mut self.state, State::Idle) else { return };
        if let Err(error) = self.write_anew(now, write) {
            self.stop(Stop::Rows(error));
        }
    }

    pub(super) fn write_anew(&mut self, now: Now, write: Write) -> Result<(), RowError> {
        match write.job {
            Job::Flush { mut progress, mut set, letters } => {
                set.rows = self.without_erased(&set.rows)?;
                progress.total = set.rows.total();
                self.write_flush(now, progress, set, letters);
            }
            // A merge is planned again, and dead letters are settled again. The operator has rows recounted again.
            Job::Merge { .. } | Job::Settle { .. } | Job::Replace(_) => self.plan_at = now,
        }
        Ok(())
    }

    pub(super) fn without_erased(&self, rows: &Arc<Rollups>) -> Result<Arc<Rollups>, RowError> {
        if bites(Bug::ErasedRowsInFlushes) {
            return Ok(Arc::clone(rows));
        }
        Ok(self.erasures.kept(rows)?.map_or_else(|| Arc::clone(rows), Arc::new))
    }

    /// Letters without those that are erased.
    pub(super) fn without_erased_letters(&self, mut letters: Vec<Held>) -> Vec<Held> {
        letters.retain(|held| !self.erasures.erases_held_letter(&held.names));
        letters
    }

    /// Whether an erasure removes a letter of a blob.
    pub(super) fn is_erased_letter(&self, now: Now, key: BlobKey, letter: &DeadLetter) -> bool {
        self.erasures.erases_stored_letter(&Names::of_text(&letter.text, now), key.seq)
    }

    /// Writes a blob of dead letters again without those that are erased.
    pub(super) fn loaded_letters(&mut self, now: Now, key: BlobKey, letters: &[DeadLetter]) {
        let State::Loading(load) = &self.state else { return };
        if !load.waiting.contains(&key) {
            return;
        }
        self.state = State::Idle;
        self.rewrite_letters(now, key, letters);
    }

    /// Writes a blob of dead letters again, with these letters.
    pub(super) fn rewrite_letters(&mut self, now: Now, key: BlobKey, letters: &[DeadLetter]) {
        let count = letters.len() as u64;
        let source = letters.first().map(|first| first.source);
        let Some(source) = source.filter(|_| self.live.contains_key(&key)) else { return };
        let is_kept = |letter: &&DeadLetter| !self.is_erased_letter(now, key, letter);
        let kept: Vec<DeadLetter> = letters.iter().filter(is_kept).cloned().collect();
        let dropped = count - kept.len() as u64;
        let settled = Settled { source, replayed: 0, dropped, total: 0 };
        self.begin_settle(now, key, Sorted { settled, rows: Rollups::new(), kept, others: 0 });
    }
}
