//! Flushes and merges: blobs are written, then a commit that names them is proposed.

use super::letters::{Held, Sorted};
use super::replace::{Replaced, Replacing};
use super::window::{Flushed, Taken};
use super::{After, Content, Origin, Output, Owner, Put, SourceAfter, State, Stop};
use crate::blob::{BlobKey, BlobMeta, Level, LiveDigest, Seq, StoredBlob};
use crate::limits::MERGE_ROWS_MAX;
use crate::manifest::{Command, Commit, Progress, Settled, SourceReading};
use crate::merge::{self, Merge, Next, Scheduler};
use crate::rollup::{Rollups, RowError};
use crate::scope::Scope;
use crate::source::{SourceId, SourceState};
use crate::teeth::{Bug, bites};
use crate::time::{Hour, HourRange, Now};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Blobs that are read to be replaced.
pub(super) struct Load {
    pub purpose: Purpose,
    pub waiting: BTreeSet<BlobKey>,
    pub rows: Rollups,
    /// The sum of the counts of left-out rows, whose types were deleted.
    pub deleted: u64,
    /// The scheduler before it planned this: it plans it again if a blob cannot be read.
    pub planned_by: Option<Scheduler>,
}

/// The purpose of reading blobs.
pub(super) enum Purpose {
    Merge(Merge),
    /// A blob is written again without erased rows and without rows of deleted types.
    Rewrite(BlobMeta),
    /// Rows of past days are replaced.
    Replace(Box<Replacing>),
}

/// Blobs that are written, and the commit that will name them.
pub(super) struct Write {
    pub job: Job,
    seq: Seq,
    blobs: Vec<Pending>,
    phase: Phase,
    /// Blobs that wait for their turn to be written.
    puts: VecDeque<Put>,
    put_at: Now,
}

pub(super) enum Job {
    Flush { progress: Progress, set: Flushed, letters: Vec<Held> },
    Merge { inputs: Vec<BlobMeta>, erased: u64 },
    Settle { input: BlobKey, settled: Settled },
    Replace(Box<Replaced>),
}

pub(super) struct Pending {
    level: Level,
    scope: Scope,
    content: Content,
    meta: Option<BlobMeta>,
}

/// In place of what the store says of a blob that it does not have yet.
const UNSTORED: StoredBlob = StoredBlob { bytes: 0, checksum: 0 };

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Storing,
    /// A blob could not be written: all are written again under another number.
    Failed,
    Proposed,
}

impl Job {
    /// The changed states of sources once it is committed.
    fn sources_after(&self, sources: &BTreeMap<SourceId, SourceState>) -> Vec<SourceAfter> {
        let known = |id: &SourceId| sources.get(id).copied().unwrap_or_default();
        match self {
            Job::Flush { progress, .. } => {
                let known = known(&progress.source);
                let state = SourceState {
                    reading: progress.reading,
                    next_row: progress.to,
                    is_complete: progress.is_end,
                    accepted: known.accepted + (progress.to - progress.from - progress.dead_letters),
                    dead_letters: known.dead_letters + progress.dead_letters,
                    dropped: known.dropped,
                };
                vec![SourceAfter { id: progress.source, state }]
            }
            Job::Settle { settled, .. } => {
                let mut state = known(&settled.source);
                state.dead_letters = state.dead_letters.saturating_sub(settled.letters());
                state.accepted += settled.replayed;
                state.dropped += settled.dropped;
                vec![SourceAfter { id: settled.source, state }]
            }
            Job::Merge { .. } => Vec::new(),
            Job::Replace(replaced) => {
                let after = |of: &SourceReading| {
                    let state = SourceState { reading: of.reading, ..known(&of.source) };
                    SourceAfter { id: of.source, state }
                };
                replaced.readings.iter().map(after).collect()
            }
        }
    }

    fn origin(&self) -> Origin {
        match self {
            Job::Flush { progress, .. } => {
                let Progress { source, from, to, .. } = *progress;
                Origin::Source { source, from, to }
            }
            Job::Merge { .. } if bites(Bug::InputsNotRecorded) => Origin::Blobs([].into()),
            Job::Merge { .. } | Job::Settle { .. } | Job::Replace(_) => Origin::Blobs(self.inputs().into()),
        }
    }

    fn settles(&self, key: &BlobKey) -> bool {
        match self {
            Job::Settle { input, .. } => input == key,
            Job::Flush { .. } | Job::Merge { .. } | Job::Replace(_) => false,
        }
    }

    /// The blobs that it replaces.
    fn inputs(&self) -> Vec<BlobKey> {
        match self {
            Job::Flush { .. } => Vec::new(),
            Job::Merge { inputs, .. } => inputs.iter().map(|meta| meta.key).collect(),
            Job::Settle { input, .. } => vec![*input],
            Job::Replace(replaced) => replaced.inputs.iter().map(|meta| meta.key).collect(),
        }
    }
}

impl Pending {
    pub fn new(level: Level, scope: Scope, content: Content) -> Pending {
        Pending { level, scope, content, meta: None }
    }

    /// The manifest's entry of it, once it is stored.
    fn stored_as(&self, key: BlobKey, stored: StoredBlob) -> BlobMeta {
        self.content.meta(key, self.level, self.scope, stored)
    }
}

impl Content {
    /// What the manifest keeps of a blob with this content.
    pub fn meta(&self, key: BlobKey, level: Level, scope: Scope, stored: StoredBlob) -> BlobMeta {
        match self {
            Content::Rows(rows) => {
                let hours = rows.hours().unwrap_or(HourRange::of(Hour(0)));
                BlobMeta { key, level, scope, hours, rows: rows.len() as u64, total: rows.total(), stored }
            }
            Content::DeadLetters(letters) => {
                let hours = HourRange::of(Hour(0));
                BlobMeta { key, level, scope, hours, rows: letters.len() as u64, total: 0, stored }
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Content::Rows(rows) => rows.is_empty(),
            Content::DeadLetters(letters) => letters.is_empty(),
        }
    }
}

impl Write {
    pub fn settles(&self, key: &BlobKey) -> bool {
        self.job.settles(key)
    }

    pub fn end_of(&self, source: SourceId) -> Option<u64> {
        self.flushing().filter(|set| set.source == source).map(|set| set.to)
    }

    pub fn flushing(&self) -> Option<&Flushed> {
        match &self.job {
            Job::Flush { set, .. } => Some(set),
            Job::Merge { .. } | Job::Settle { .. } | Job::Replace(_) => None,
        }
    }

    pub fn flushing_mut(&mut self) -> Option<&mut Flushed> {
        match &mut self.job {
            Job::Flush { set, .. } => Some(set),
            Job::Merge { .. } | Job::Settle { .. } | Job::Replace(_) => None,
        }
    }

    /// Whether it counts a source to its end.
    pub fn ends(&self, source: SourceId) -> bool {
        match &self.job {
            Job::Flush { progress, .. } => progress.source == source && progress.is_end,
            Job::Merge { .. } | Job::Settle { .. } | Job::Replace(_) => false,
        }
    }

    /// When the next blob is to be written.
    pub fn put_at(&self) -> Option<Now> {
        (self.phase == Phase::Storing && !self.puts.is_empty()).then_some(self.put_at)
    }

    pub fn is_proposed_as(&self, seq: Seq) -> bool {
        self.phase == Phase::Proposed && self.seq == seq
    }
}

impl Owner {
    /// Begins what is due, if nothing is under way.
    pub(super) fn begin_job(&mut self, now: Now) {
        if self.is_paused || !matches!(self.state, State::Idle) {
            return;
        }
        if self.letters_turn.holds_others(now) {
            return;
        }
        self.begin_other_job(now);
        if !matches!(self.state, State::Idle) {
            self.letters_turn.other_job_has_begun();
        }
    }

    /// Begins what is due, other than to settle letters.
    fn begin_other_job(&mut self, now: Now) {
        if self.window.is_due() || self.window.flush_at().is_some_and(|at| at <= now) {
            return self.begin_flush(now);
        }
        if self.unreadable.forget(now) {
            self.plan_at = now;
        }
        if self.expire_if_due(now) || self.begin_erase() {
            return;
        }
        // A deletion writes all blobs again. Merges that are due take turns with it, so that new rows are merged meanwhile.
        if !self.is_turn_of_merges && self.begin_deletion() {
            self.is_turn_of_merges = true;
            return;
        }
        let planned_by = (!self.is_sealing && now >= self.plan_at).then(|| self.scheduler.clone());
        let merge = match self.is_sealing {
            true => self.scheduler.next_sealing(now, &self.unreadable.left_out_of(&self.live), &self.layout),
            false => self.next_merge(now),
        };
        match merge {
            Some(merge) => {
                self.is_turn_of_merges = false;
                self.begin_merge(merge, planned_by);
            }
            None if self.begin_deletion() => {}
            None => self.is_sealing &= !self.window.is_empty(),
        }
    }

    /// A merge that is due. The live blobs are looked through once they changed, and when the next merge is due.
    fn next_merge(&mut self, now: Now) -> Option<Merge> {
        if now < self.plan_at {
            return None;
        }
        match self.scheduler.next(now, &self.unreadable.left_out_of(&self.live), &self.layout) {
            Next::Merge(merge) => Some(merge),
            Next::At(at) => {
                self.plan_at = at;
                None
            }
            Next::Never => {
                self.plan_at = Now(u64::MAX);
                None
            }
        }
    }

    fn begin_merge(&mut self, merge: Merge, planned_by: Option<Scheduler>) {
        let waiting: BTreeSet<BlobKey> = merge.inputs.iter().map(|meta| meta.key).collect();
        self.outputs.extend(waiting.iter().map(|key| Output::Load(*key)));
        let count: u64 = merge.inputs.iter().map(|meta| meta.rows).sum();
        let rows = Rollups::with_room(count.min(MERGE_ROWS_MAX) as usize);
        self.state = State::Loading(Load { purpose: Purpose::Merge(merge), waiting, rows, deleted: 0, planned_by });
        self.retry_at = None;
    }

    fn begin_flush(&mut self, now: Now) {
        self.others += self.window.others();
        let taken = match self.window.take(&self.config) {
            Ok(Some(taken)) => taken,
            Ok(None) => return,
            Err(error) => return self.stop(Stop::Rows(error)),
        };
        let Taken { reading, mut set, dead_letters, is_end } = taken;
        set.rows = match self.without_erased(&set.rows) {
            Ok(rows) => rows,
            Err(error) => return self.stop(Stop::Rows(error)),
        };
        let total = set.rows.total();
        let Flushed { source, from, to, .. } = set;
        let progress = Progress { source, reading, from, to, dead_letters: 0, total, is_end };
        self.write_flush(now, progress, set, dead_letters);
    }

    /// Writes rows, and the letters that are not erased.
    pub(super) fn write_flush(&mut self, now: Now, progress: Progress, set: Flushed, letters: Vec<Held>) {
        let letters = self.without_erased_letters(letters);
        let progress = Progress { dead_letters: letters.len() as u64, ..progress };
        let kept = letters.iter().map(|held| held.letter.clone()).collect();
        let blobs = vec![
            Pending::new(Level::Delta, Scope::ALL, Content::Rows(Arc::clone(&set.rows))),
            Pending::new(Level::DeadLetters, Scope::ALL, Content::DeadLetters(Arc::new(kept))),
        ];
        self.begin_write(now, Job::Flush { progress, set, letters }, blobs);
    }

    /// Writes what is left of a blob of dead letters, and what its replayed letters count.
    pub(super) fn begin_settle(&mut self, now: Now, input: BlobKey, sorted: Sorted) {
        let Sorted { settled, rows, kept, others } = sorted;
        self.others += others;
        let blobs = vec![
            Pending::new(Level::Delta, Scope::ALL, Content::Rows(Arc::new(rows))),
            Pending::new(Level::DeadLetters, Scope::ALL, Content::DeadLetters(Arc::new(kept))),
        ];
        self.begin_write(now, Job::Settle { input, settled }, blobs);
    }

    pub(super) fn loaded(&mut self, now: Now, key: BlobKey, rows: &Rollups) {
        let State::Loading(load) = &mut self.state else { return };
        if !load.waiting.remove(&key) {
            return;
        }
        let renaming = self.types.since(key.seq);
        let taken = match &mut load.purpose {
            Purpose::Replace(replacing) => replacing.take(&key, &renaming, rows),
            Purpose::Merge(_) | Purpose::Rewrite(_) => load.take(&renaming, rows),
        };
        if let Err(error) = taken {
            return self.merge_less(now, error);
        }
        if !load.waiting.is_empty() {
            return;
        }
        let State::Loading(load) = std::mem::replace(&mut self.state, State::Idle) else { return };
        self.finish_load(now, load);
    }

    /// All rows were read.
    pub(super) fn finish_load(&mut self, now: Now, mut load: Load) {
        load.rows.combine();
        if let Err(error) = self.replace(now, load) {
            self.stop(Stop::Rows(error));
        }
    }

    /// Plans a merge again with half of its rows if their texts are too long together. The rows of one blob fit.
    pub(super) fn merge_less(&mut self, now: Now, error: RowError) {
        let State::Loading(load) = std::mem::replace(&mut self.state, State::Idle) else { return };
        let Load { purpose: Purpose::Merge(merge), planned_by, .. } = load else {
            return self.stop(Stop::Rows(error));
        };
        if error != RowError::TooMuchText || merge.inputs.len() < 2 {
            return self.stop(Stop::Rows(error));
        }
        if let Some(scheduler) = planned_by {
            self.scheduler = scheduler;
        }
        let rows: u64 = merge.inputs.iter().map(|meta| meta.rows).sum();
        self.scheduler.limit_rows(rows / 2);
        self.plan_at = now;
    }

    /// Writes the rows that were loaded, without those that are erased.
    pub(super) fn replace(&mut self, now: Now, load: Load) -> Result<(), RowError> {
        let Load { purpose, rows, deleted, .. } = load;
        let kept = self.erasures.kept(&rows)?.filter(|_| !bites(Bug::ErasedRowsInMerges));
        let erased = deleted + kept.as_ref().map_or(0, |kept| rows.total() - kept.total());
        let rows = kept.unwrap_or(rows);
        let pending = |level, scope, rows| Pending::new(level, scope, Content::Rows(Arc::new(rows)));
        let (inputs, blobs) = match purpose {
            Purpose::Merge(merge) => {
                let sets = merge::cut(&rows, &merge, &self.layout, &self.test_tenants)?;
                (merge.inputs, sets.into_iter().map(|set| pending(set.level, set.scope, set.rows)).collect())
            }
            Purpose::Rewrite(meta) => (vec![meta], vec![pending(meta.level, meta.scope, rows)]),
            Purpose::Replace(replacing) => return self.write_replaced(now, *replacing),
        };
        self.begin_write(now, Job::Merge { inputs, erased }, blobs);
        Ok(())
    }

    pub(super) fn begin_write(&mut self, now: Now, job: Job, mut blobs: Vec<Pending>) {
        blobs.retain(|blob| !blob.content.is_empty());
        let puts = VecDeque::new();
        self.put_all(now, Write { job, seq: Seq(0), blobs, phase: Phase::Storing, puts, put_at: now });
    }

    /// Writes all blobs under the next number.
    fn put_all(&mut self, now: Now, mut write: Write) {
        self.last_seq = Seq(self.last_seq.0 + 1);
        (write.seq, write.phase) = (self.last_seq, Phase::Storing);
        write.puts.clear();
        write.put_at = now;
        let origin = write.job.origin();
        let key = |part| BlobKey { partition: self.config.partition, epoch: self.epoch, seq: write.seq, part };
        let after =
            self.after(&write.job, (0..).zip(&write.blobs).map(|(part, blob)| blob.stored_as(key(part), UNSTORED)));
        for (part, blob) in (0..).zip(&mut write.blobs) {
            blob.meta = None;
            let Pending { level, scope, .. } = *blob;
            write.puts.push_back(Put {
                key: key(part),
                level,
                scope,
                origin: origin.clone(),
                after: after.clone(),
                dimensions: self.config.types.dimensions().clone(),
                content: blob.content.clone(),
            });
        }
        self.retry_at = None;
        self.state = State::Writing(write);
        self.release_puts(now);
        self.propose_if_stored(now);
    }

    /// The number of erasures and changes of event types that it knows.
    pub(super) fn revision(&self) -> u64 {
        self.erasures.count() + self.types.positions.len() as u64
    }

    /// What the manifest holds once a job is committed that adds these blobs.
    fn after(&self, job: &Job, added: impl Iterator<Item = BlobMeta>) -> After {
        let removed = job.inputs();
        let live = removed
            .iter()
            .filter_map(|key| self.live.get(key))
            .fold(self.live.digest(), |live, meta| live.without(&meta));
        let count = |(parts, live): (u32, LiveDigest), meta: BlobMeta| (parts + 1, live.with(&meta));
        let (parts, live) = added.fold((0, live), count);
        let these = job.sources_after(&self.sources);
        let is_other = |id: &&SourceId| !these.iter().any(|this| this.id == **id);
        let others = self.touched.iter().filter(is_other);
        let others = others.filter_map(|id| Some(SourceAfter { id: *id, state: *self.sources.get(id)? }));
        After { parts, live, revision: self.revision(), sources: others.chain(these.iter().copied()).collect() }
    }

    /// Writes the blobs that are due. Those of a flush do not wait, and none while the partition is sealed or letters wait.
    pub(super) fn release_puts(&mut self, now: Now) {
        let State::Writing(write) = &mut self.state else { return };
        let every_ms = match &write.job {
            Job::Merge { .. } if !self.is_sealing && !self.letters_turn.is_asked() => self.config.merge.put_every_ms,
            Job::Merge { .. } | Job::Flush { .. } | Job::Settle { .. } | Job::Replace(_) => 0,
        };
        while write.phase == Phase::Storing && (every_ms == 0 || write.put_at <= now) {
            let Some(put) = write.puts.pop_front() else { return };
            self.outputs.push_back(Output::Put(put));
            write.put_at = now.plus_ms(every_ms);
        }
    }

    pub(super) fn stored(&mut self, now: Now, key: BlobKey, stored: StoredBlob) {
        let epoch = self.epoch;
        let State::Writing(write) = &mut self.state else { return };
        let is_awaited = key.epoch == epoch && key.seq == write.seq && write.phase == Phase::Storing;
        if let Some(blob) = write.blobs.get_mut(key.part as usize).filter(|_| is_awaited) {
            blob.meta = Some(blob.stored_as(key, stored));
            self.propose_if_stored(now);
        }
    }

    pub(super) fn store_failed(&mut self, now: Now, key: BlobKey) {
        let epoch = self.epoch;
        match &mut self.state {
            State::Writing(write) if key.epoch == epoch && key.seq == write.seq && write.phase == Phase::Storing => {
                write.phase = Phase::Failed;
                self.retry_later(now);
            }
            State::Loading(load) if load.waiting.contains(&key) => {
                if let Some(scheduler) = load.planned_by.take() {
                    self.scheduler = scheduler;
                }
                self.unreadable.add(now, key, self.config.retry_after_ms);
                self.plan_at = now;
                self.state = State::Idle;
            }
            State::Loading(_) | State::Writing(_) | State::Claiming => {}
            State::Idle | State::Expiring { .. } | State::Stopped(_) => {}
        }
    }

    fn propose_if_stored(&mut self, now: Now) {
        let State::Writing(write) = &mut self.state else { return };
        if write.blobs.iter().any(|blob| blob.meta.is_none()) {
            return;
        }
        write.phase = Phase::Proposed;
        self.propose_commit(now);
    }

    fn propose_commit(&mut self, now: Now) {
        let State::Writing(write) = &self.state else { return };
        let commit = Commit {
            partition: self.config.partition,
            epoch: self.epoch,
            seq: write.seq,
            add: write.blobs.iter().filter_map(|blob| blob.meta).collect(),
            remove: write.job.inputs(),
            revision: self.revision(),
            ..Commit::default()
        };
        let command = match &write.job {
            Job::Flush { progress, .. } => Command::Commit(Commit { progress: Some(*progress), ..commit }),
            Job::Merge { erased, .. } => Command::Commit(Commit { erased: *erased, ..commit }),
            Job::Settle { settled, .. } => Command::Commit(Commit { settled: Some(*settled), ..commit }),
            Job::Replace(replaced) => Command::Replace(replaced.command(commit)),
        };
        self.outputs.push_back(Output::Propose(command));
        self.retry_later(now);
    }

    /// The commit of the job that is under way was applied.
    pub(super) fn committed(&mut self, now: Now) {
        let State::Writing(write) = std::mem::replace(&mut self.state, State::Idle) else { return };
        self.retry_at = None;
        self.plan_at = now;
        self.unreadable.read(write.job.inputs());
        self.live.extend(write.blobs.iter().filter_map(|blob| blob.meta));
        for SourceAfter { id, state } in write.job.sources_after(&self.sources) {
            self.sources.insert(id, state);
            self.touched.insert(id);
        }
        write.job.inputs().iter().for_each(|key| {
            self.live.remove(key);
        });
        if let Job::Flush { mut set, .. } = write.job {
            set.until = now.plus_ms(self.config.keep_flushed_ms);
            self.flushed = Some(set);
        }
        self.erasures.settle(&self.live);
    }

    pub(super) fn retry(&mut self, now: Now) {
        if self.retry_at.is_none_or(|at| now < at) {
            return;
        }
        match &self.state {
            State::Claiming => self.propose_claim(now),
            State::Expiring { seq, today } => self.propose_expire(now, *seq, *today),
            State::Writing(write) => match write.phase {
                Phase::Proposed => self.propose_commit(now),
                Phase::Failed => {
                    if let State::Writing(write) = std::mem::replace(&mut self.state, State::Idle) {
                        self.put_all(now, write);
                    }
                }
                Phase::Storing => {}
            },
            State::Loading(_) | State::Idle | State::Stopped(_) => {}
        }
    }
}
