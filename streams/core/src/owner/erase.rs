//! Erasures: what is under way is done again without the erased rows, and blobs that may hold some are written again.

use super::job::{Job, Load, Pending, Purpose, Write};
use super::letters::Sorted;
use super::{Content, DeadLetter, NamedLetter, Output, Owner, State, Stop};
use crate::blob::{BlobKey, Level};
use crate::manifest::{Manifest, Settled};
use crate::rollup::{Rollups, RowError};
use crate::scope::Scope;
use crate::teeth::{Bug, bites};
use crate::time::Now;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Owner {
    /// Reads a blob that may hold erased rows, to write it again. `false`: there is none.
    pub(super) fn begin_erase(&mut self) -> bool {
        let Some(meta) = self.erasures.unclean(&self.live) else { return false };
        self.outputs.push_back(Output::Load(meta.key));
        self.state = State::Loading(Load {
            purpose: Purpose::Rewrite(meta),
            waiting: BTreeSet::from([meta.key]),
            rows: Rollups::new(),
        });
        self.retry_at = None;
        true
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

    fn write_anew(&mut self, now: Now, write: Write) -> Result<(), RowError> {
        let Write { job, blobs, .. } = write;
        match job {
            Job::Flush { mut progress, mut set } => {
                set.rows = self.without_erased(&set.rows)?;
                progress.total = set.rows.total();
                let rows = Pending::new(Level::Delta, Scope::ALL, Content::Rows(Arc::clone(&set.rows)));
                self.begin_write(now, Job::Flush { progress, set }, with_letters(rows, blobs));
            }
            // A merge is planned again, and dead letters are settled again.
            Job::Merge { .. } | Job::Settle { .. } => self.plan_at = now,
        }
        Ok(())
    }

    pub(super) fn without_erased(&self, rows: &Arc<Rollups>) -> Result<Arc<Rollups>, RowError> {
        if bites(Bug::ErasedRowsInFlushes) {
            return Ok(Arc::clone(rows));
        }
        Ok(self.erasures.kept(rows)?.map_or_else(|| Arc::clone(rows), Arc::new))
    }

    /// Writes a blob of dead letters again without those that go with an erasure.
    pub(super) fn loaded_letters(&mut self, now: Now, key: BlobKey, letters: Vec<NamedLetter>) {
        let State::Loading(load) = &self.state else { return };
        if !load.waiting.contains(&key) {
            return;
        }
        self.state = State::Idle;
        let count = letters.len() as u64;
        let source = letters.first().map(|first| first.letter.source);
        let Some(source) = source.filter(|_| self.live.contains_key(&key)) else { return };
        let is_kept =
            |named: &NamedLetter| named.tenant.is_none_or(|tenant| !self.erasures.erases_letter(tenant, named.listing));
        let kept: Vec<DeadLetter> = letters.into_iter().filter(is_kept).map(|named| named.letter).collect();
        let dropped = count - kept.len() as u64;
        let settled = Settled { source, replayed: 0, dropped, total: 0 };
        self.begin_settle(now, key, Sorted { settled, rows: Rollups::new(), kept });
    }
}

/// Rows, and the dead letters among blobs.
fn with_letters(rows: Pending, blobs: Vec<Pending>) -> Vec<Pending> {
    let letters = blobs.into_iter().filter(|blob| blob.level == Level::DeadLetters);
    [rows].into_iter().chain(letters).collect()
}
