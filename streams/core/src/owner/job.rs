//! Flushes and merges: blobs are written, then a commit that names them is proposed.

use super::window::{Flushed, Taken};
use super::{Content, Origin, Output, Owner, Put, State, Stop};
use crate::blob::{BlobKey, BlobMeta, Level, Seq, StoredBlob};
use crate::manifest::{Command, Commit, Progress};
use crate::merge;
use crate::rollup::{Rollups, RowError};
use crate::source::SourceId;
use crate::time::{Hour, HourRange, Now};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Blobs that are read to be merged.
pub(super) struct Load {
    inputs: Vec<BlobMeta>,
    waiting: BTreeSet<BlobKey>,
    rows: Rollups,
}

/// Blobs that are written, and the commit that will name them.
pub(super) struct Write {
    job: Job,
    seq: Seq,
    blobs: Vec<Pending>,
    phase: Phase,
}

enum Job {
    Flush { progress: Progress, set: Flushed },
    Merge { inputs: Vec<BlobMeta> },
}

struct Pending {
    level: Level,
    content: Content,
    meta: Option<BlobMeta>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Storing,
    /// A blob could not be written: all are written again under another number.
    Failed,
    Proposed,
}

impl Job {
    fn origin(&self) -> Origin {
        match self {
            Job::Flush { progress, .. } => {
                let Progress { source, from, to, .. } = *progress;
                Origin::Source { source, from, to }
            }
            Job::Merge { inputs } => Origin::Blobs(inputs.iter().map(|meta| meta.key).collect()),
        }
    }
}

impl Pending {
    fn new(level: Level, content: Content) -> Pending {
        Pending { level, content, meta: None }
    }
}

impl Content {
    fn is_empty(&self) -> bool {
        match self {
            Content::Rows(rows) => rows.is_empty(),
            Content::DeadLetters(letters) => letters.is_empty(),
        }
    }

    fn meta(&self, key: BlobKey, level: Level, stored: StoredBlob) -> BlobMeta {
        match self {
            Content::Rows(rows) => {
                let hours = rows.hours().unwrap_or(HourRange::of(Hour(0)));
                BlobMeta { key, level, hours, rows: rows.len() as u64, total: rows.total(), stored }
            }
            Content::DeadLetters(letters) => {
                let hours = HourRange::of(Hour(0));
                BlobMeta { key, level, hours, rows: letters.len() as u64, total: 0, stored }
            }
        }
    }
}

impl Write {
    pub fn end_of(&self, source: SourceId) -> Option<u64> {
        self.flushing().filter(|set| set.source == source).map(|set| set.to)
    }

    pub fn flushing(&self) -> Option<&Flushed> {
        match &self.job {
            Job::Flush { set, .. } => Some(set),
            Job::Merge { .. } => None,
        }
    }

    pub fn is_proposed_as(&self, seq: Seq) -> bool {
        self.phase == Phase::Proposed && self.seq == seq
    }
}

impl Owner {
    /// Begins what is due, if nothing is under way.
    pub(super) fn begin_job(&mut self, now: Now) {
        if !matches!(self.state, State::Idle) {
            return;
        }
        if self.window.is_due() || self.window.flush_at().is_some_and(|at| at <= now) {
            return self.begin_flush(now);
        }
        let policy = if self.is_sealing { self.config.merge.sealing() } else { self.config.merge };
        let inputs = merge::plan(&self.live, &policy);
        if inputs.is_empty() {
            self.is_sealing &= !self.window.is_empty();
            return;
        }
        let waiting: BTreeSet<BlobKey> = inputs.iter().map(|meta| meta.key).collect();
        self.outputs.extend(waiting.iter().map(|key| Output::Load(*key)));
        self.state = State::Loading(Load { inputs, waiting, rows: Rollups::new() });
        self.retry_at = None;
    }

    fn begin_flush(&mut self, now: Now) {
        let taken = match self.window.take(&self.config) {
            Ok(Some(taken)) => taken,
            Ok(None) => return,
            Err(error) => return self.stop(Stop::Rows(error)),
        };
        let Taken { reading, set, dead_letters, is_end, total } = taken;
        let Flushed { source, from, to, .. } = set;
        let refused = dead_letters.len() as u64;
        let progress = Progress { source, reading, from, to, dead_letters: refused, total, is_end };
        let blobs = vec![
            Pending::new(Level::Delta, Content::Rows(Arc::clone(&set.rows))),
            Pending::new(Level::DeadLetters, Content::DeadLetters(Arc::new(dead_letters))),
        ];
        self.begin_write(now, Job::Flush { progress, set }, blobs);
    }

    pub(super) fn loaded(&mut self, now: Now, key: BlobKey, rows: &Rollups) {
        let State::Loading(load) = &mut self.state else { return };
        if !load.waiting.remove(&key) {
            return;
        }
        if let Err(error) = rows.iter().try_for_each(|row| load.rows.push(row)) {
            return self.stop(Stop::Rows(error));
        }
        if !load.waiting.is_empty() {
            return;
        }
        let State::Loading(mut load) = std::mem::replace(&mut self.state, State::Idle) else { return };
        load.rows.combine();
        match day_blobs(&load.rows) {
            Ok(blobs) => self.begin_write(now, Job::Merge { inputs: load.inputs }, blobs),
            Err(error) => self.stop(Stop::Rows(error)),
        }
    }

    fn begin_write(&mut self, now: Now, job: Job, mut blobs: Vec<Pending>) {
        blobs.retain(|blob| !blob.content.is_empty());
        self.put_all(now, Write { job, seq: Seq(0), blobs, phase: Phase::Storing });
    }

    /// Writes all blobs under the next number.
    fn put_all(&mut self, now: Now, mut write: Write) {
        self.last_seq = Seq(self.last_seq.0 + 1);
        (write.seq, write.phase) = (self.last_seq, Phase::Storing);
        let origin = write.job.origin();
        for (part, blob) in (0..).zip(&mut write.blobs) {
            blob.meta = None;
            let key = BlobKey { partition: self.config.partition, epoch: self.epoch, seq: write.seq, part };
            let level = blob.level;
            let content = blob.content.clone();
            self.outputs.push_back(Output::Put(Put { key, level, origin: origin.clone(), content }));
        }
        self.retry_at = None;
        self.state = State::Writing(write);
        self.propose_if_stored(now);
    }

    pub(super) fn stored(&mut self, now: Now, key: BlobKey, stored: StoredBlob) {
        let epoch = self.epoch;
        let State::Writing(write) = &mut self.state else { return };
        let is_awaited = key.epoch == epoch && key.seq == write.seq && write.phase == Phase::Storing;
        if let Some(blob) = write.blobs.get_mut(key.part as usize).filter(|_| is_awaited) {
            blob.meta = Some(blob.content.meta(key, blob.level, stored));
            self.propose_if_stored(now);
        }
    }

    pub(super) fn store_failed(&mut self, now: Now, key: BlobKey) {
        let epoch = self.epoch;
        let is_awaited = match &mut self.state {
            State::Writing(write) if key.epoch == epoch && key.seq == write.seq && write.phase == Phase::Storing => {
                write.phase = Phase::Failed;
                true
            }
            State::Loading(load) => load.waiting.contains(&key),
            State::Writing(_) | State::Claiming | State::Idle | State::Stopped(_) => false,
        };
        if is_awaited {
            self.retry_later(now);
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
        let (progress, remove) = match &write.job {
            Job::Flush { progress, .. } => (Some(*progress), Vec::new()),
            Job::Merge { inputs } => (None, inputs.iter().map(|meta| meta.key).collect()),
        };
        let commit = Commit {
            partition: self.config.partition,
            epoch: self.epoch,
            seq: write.seq,
            progress,
            add: write.blobs.iter().filter_map(|blob| blob.meta).collect(),
            remove,
        };
        self.outputs.push_back(Output::Propose(Command::Commit(commit)));
        self.retry_later(now);
    }

    /// The commit of the job that is under way was applied.
    pub(super) fn committed(&mut self, now: Now) {
        let State::Writing(write) = std::mem::replace(&mut self.state, State::Idle) else { return };
        self.retry_at = None;
        self.live.extend(write.blobs.iter().filter_map(|blob| blob.meta).map(|meta| (meta.key, meta)));
        match write.job {
            Job::Flush { progress, mut set } => {
                let source = self.sources.entry(progress.source).or_default();
                source.reading = progress.reading;
                source.next_row = progress.to;
                source.is_complete = progress.is_end;
                source.dead_letters += progress.dead_letters;
                source.accepted += progress.to - progress.from - progress.dead_letters;
                set.until = now.plus_ms(self.config.keep_flushed_ms);
                self.flushed = Some(set);
            }
            Job::Merge { inputs } => inputs.iter().for_each(|meta| {
                self.live.remove(&meta.key);
            }),
        }
    }

    pub(super) fn retry(&mut self, now: Now) {
        if self.retry_at.is_none_or(|at| now < at) {
            return;
        }
        match &self.state {
            State::Claiming => self.propose_claim(now),
            State::Loading(load) => {
                self.outputs.extend(load.waiting.iter().map(|key| Output::Load(*key)));
                self.retry_at = None;
            }
            State::Writing(write) => match write.phase {
                Phase::Proposed => self.propose_commit(now),
                Phase::Failed => {
                    if let State::Writing(write) = std::mem::replace(&mut self.state, State::Idle) {
                        self.put_all(now, write);
                    }
                }
                Phase::Storing => {}
            },
            State::Idle | State::Stopped(_) => {}
        }
    }
}

fn day_blobs(rows: &Rollups) -> Result<Vec<Pending>, RowError> {
    let sets = merge::cut_by_day(rows)?;
    Ok(sets.into_iter().map(|set| Pending::new(Level::Day, Content::Rows(Arc::new(set)))).collect())
}
