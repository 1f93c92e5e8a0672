//! Changes of event types: the owner renames held rows, and rewrites blobs that may hold rows of deleted types.

use super::job::Load;
use super::window::Window;
use super::{Owner, State, Stop};
use crate::blob::{BlobKey, BlobMeta};
use crate::manifest::Manifest;
use crate::rollup::{RollupRow, Rollups, RowError};
use crate::schema::{Changed, Renaming};
use crate::teeth::{Bug, bites};
use crate::time::Now;
use crate::values::Values;
use std::collections::VecDeque;
use std::sync::Arc;

impl Owner {
    /// Applies new changes of event types. Blobs that are being written have earlier names, and the manifest would refuse their commit.
    /// So the owner writes them again.
    pub(super) fn adopt_types(&mut self, now: Now, manifest: &Manifest) {
        if matches!(self.state, State::Claiming) {
            return;
        }
        let known = self.types.schema.changes().len();
        let types = manifest.types_of(self.config.partition);
        let new: Vec<Changed> = types.schema.changes().get(known..).unwrap_or_default().to_vec();
        if new.is_empty() {
            return;
        }
        let had_deleted_to = self.types.deleted_to();
        self.types = types;
        if self.types.deleted_to() != had_deleted_to {
            self.look_for_deleted();
        }
        self.config.types = self.types.schema.effective(&self.configured);
        let renaming = Renaming::of(new.iter().map(|changed| &changed.change));
        if let Err(error) = self.rename_held(now, &renaming) {
            return self.stop(Stop::Rows(error));
        }
        if self.window.is_empty() {
            self.window = Window::new(&self.config);
        } else {
            new.iter().for_each(|changed| self.window.rename(&changed.change));
            self.window.flush_soon(now);
        }
        // A merge that is still reading may hold rows with earlier names, so it is planned again.
        if let State::Loading(load) = &mut self.state {
            if let Some(scheduler) = load.planned_by.take() {
                self.scheduler = scheduler;
            }
            self.plan_at = now;
            self.state = State::Idle;
        }
    }

    /// Applies the names when the partition is claimed.
    pub(super) fn claim_types(&mut self, manifest: &Manifest) {
        self.types = manifest.types_of(self.config.partition);
        self.config.types = match bites(Bug::TypesForgottenByClaim) {
            true => self.configured.clone(),
            false => self.types.schema.effective(&self.configured),
        };
        self.look_for_deleted();
    }

    fn rename_held(&mut self, now: Now, renaming: &Renaming) -> Result<(), RowError> {
        if let Some(flushed) = &mut self.flushed {
            flushed.rows = renamed(renaming, &flushed.rows)?;
        }
        if !matches!(self.state, State::Writing(_)) {
            return Ok(());
        }
        let State::Writing(mut write) = std::mem::replace(&mut self.state, State::Idle) else { return Ok(()) };
        if let Some(set) = write.flushing_mut().filter(|_| !bites(Bug::OldNamesInFlushes)) {
            set.rows = renamed(renaming, &set.rows)?;
        }
        self.write_anew(now, write)
    }

    /// Lists the blobs that may hold rows of deleted types. Later commits add no such blob.
    fn look_for_deleted(&mut self) {
        let Some(to) = self.types.deleted_to() else { return };
        let is_earlier = |meta: &BlobMeta| meta.level.is_of_rows() && meta.key.seq <= to;
        self.deleting = self.live.values().filter(is_earlier).map(|meta| meta.key).collect();
        if bites(Bug::DeletedRowsStay) {
            self.deleting.clear();
        }
    }

    /// Reads a blob that may hold rows of deleted types, to write it again. `false`: there is none.
    pub(super) fn begin_deletion(&mut self) -> bool {
        let Some(meta) = self.next_deleting() else { return false };
        self.begin_rewrite(meta);
        true
    }

    /// The next blob that may hold rows of deleted types.
    fn next_deleting(&mut self) -> Option<BlobMeta> {
        let mut passed_over: VecDeque<BlobKey> = VecDeque::new();
        let mut found = None;
        while let Some(key) = self.deleting.pop_front() {
            let Some(meta) = self.live.get(&key) else { continue };
            passed_over.push_front(key);
            if !self.unreadable.is_left(&key) {
                found = Some(meta);
                break;
            }
        }
        passed_over.into_iter().for_each(|key| self.deleting.push_front(key));
        found
    }

    /// Live blobs that may hold rows of deleted types, or that did a moment ago.
    pub fn deleting(&self) -> usize {
        self.deleting.len()
    }
}

impl Load {
    /// Adds the rows of a blob under their present names.
    pub fn take(&mut self, renaming: &Renaming, rows: &Rollups) -> Result<(), RowError> {
        let renamed = renaming.rows(rows)?.filter(|_| !bites(Bug::OldNamesInMerges));
        let kept = renamed.as_ref().unwrap_or(rows);
        self.deleted += rows.total() - kept.total();
        let drops_values = bites(Bug::ValuesLostInMerges);
        let row = |row| if drops_values { RollupRow { values: Values::NONE, ..row } } else { row };
        kept.iter().try_for_each(|kept| self.rows.push_checked(row(kept)))
    }
}

/// A set of rows under their present names.
fn renamed(renaming: &Renaming, rows: &Arc<Rollups>) -> Result<Arc<Rollups>, RowError> {
    Ok(renaming.rows(rows)?.map_or_else(|| Arc::clone(rows), Arc::new))
}
