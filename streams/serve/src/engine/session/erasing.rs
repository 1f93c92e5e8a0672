//! Erasures over HTTP, and the files that they leave.
//!
//! An erasure is done in the manifest once no live blob holds its rows. Files of replaced blobs and of abandoned writes are removed
//! after that, when no query reads them any more. Only then the answer says that it is done.

use super::{PIN_WAIT_MAX, Session};
use crate::engine::store::Job;
use crate::engine::{EraseRequest, Erased, PARTITION, Problem, ProposalError, SOURCE};
use crate::node::now_ms;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tidemark_streams_core::blob::{BlobKey, Epoch, Seq};
use tidemark_streams_core::collector::{Verdict, judge};
use tidemark_streams_core::erasure::{self, Erasure, ErasureKey};
use tidemark_streams_core::manifest::{Command, Erase, Outcome, SetTypes, TypesSet};
use tidemark_streams_core::owner::Input;
use tidemark_streams_core::schema::TypeChange;
use tidemark_streams_store::directory::damaged_blob;
use tidemark_streams_store::folder::Found;

/// Between two looks for files of erased rows.
const LEFTOVERS_AGAIN: Duration = Duration::from_millis(200);
/// The same while a live blob is damaged: its inputs may be among the files.
const DAMAGED_AGAIN: Duration = Duration::from_secs(60);

/// An erasure that waits until events before it are in blobs.
pub(super) struct Erasing {
    request: EraseRequest,
    /// The row behind these events.
    row: u64,
    by: Instant,
}

/// Files of erased rows may be left: of blobs that were replaced, or of writes that were abandoned.
pub(super) struct Leftovers {
    grace: Duration,
    /// `None`: an erasure is not done.
    clean: Option<Clean>,
    pub is_listing: bool,
    next_at: Option<Instant>,
    /// It is looked at once whether there are files at all. They stay for the grace.
    looks_at_once: bool,
}

/// When all erasures were done. Later writes hold no erased rows.
#[derive(Clone, Copy)]
struct Clean {
    at: Instant,
    at_ms: u64,
    epoch: Epoch,
    seq: Seq,
}

impl Leftovers {
    pub fn new(grace_s: u64) -> Leftovers {
        let grace = Duration::from_secs(grace_s);
        Leftovers { grace, clean: None, is_listing: false, next_at: None, looks_at_once: false }
    }

    /// Of a session that does not know what was replaced before it.
    pub fn at_start(grace_s: u64) -> Leftovers {
        Leftovers { looks_at_once: true, ..Leftovers::new(grace_s) }
    }

    fn until_ms(&self) -> Option<u64> {
        let clean = self.clean?;
        Some(clean.at_ms.saturating_add(self.grace.as_millis() as u64))
    }
}

impl Clean {
    fn covers(&self, key: &BlobKey) -> bool {
        (key.epoch, key.seq) <= (self.epoch, self.seq)
    }
}

impl Session<'_> {
    /// Answers how far a known erasure is, or has a new one begin.
    pub(super) fn ask_erasure(&mut self, request: EraseRequest) {
        let begins = self.erasure(&request.key).is_none_or(|known| known.is_done && request.again);
        if begins {
            let row = self.log.next_row();
            return self.erasing.push(Erasing { request, row, by: Instant::now() + PIN_WAIT_MAX });
        }
        let erased = self.erased(&request.key);
        let _ = request.answer.send(erased);
    }

    /// Proposes the erasures after all earlier events are in blobs: the newest blob bounds how far an erasure reaches.
    pub(super) fn begin_erasures(&mut self) -> Result<(), Problem> {
        if self.erasing.is_empty() {
            return Ok(());
        }
        let committed = self.committed();
        let is_paused = self.owner.is_paused();
        let is_ready = |erasing: &mut Erasing| is_paused || committed >= erasing.row || Instant::now() >= erasing.by;
        let ready: Vec<Erasing> = self.erasing.extract_if(.., is_ready).collect();
        for Erasing { request, .. } in ready {
            self.erase(request)?;
        }
        if !self.erasing.is_empty() && self.next_index > self.log.progress().durable {
            let now = self.now();
            self.owner.handle(now, Input::Flush);
        }
        Ok(())
    }

    fn erase(&mut self, request: EraseRequest) -> Result<(), Problem> {
        let EraseRequest { key, answer, .. } = request;
        let now = self.now();
        let erase = Erase { partition: PARTITION, key, before: erasure::before(now), asked_at_ms: now.0 };
        let outcome = match self.propose(&Command::Erase(erase)) {
            Ok(outcome) => outcome,
            Err(problem) => {
                let _ = answer.send(Err(ProposalError::Manifest(problem.to_string())));
                return Err(problem);
            }
        };
        if let Outcome::Erase { result: Err(refused), .. } = outcome {
            let _ = answer.send(Err(refused.into()));
            return Ok(());
        }
        self.leftovers = Some(Leftovers::new(self.node.settings.reader_grace_s));
        let _ = answer.send(self.erased(&key));
        Ok(())
    }

    fn erased(&self, key: &ErasureKey) -> Result<Erased, ProposalError> {
        let missing = || ProposalError::NotServing("the partition is not claimed yet".to_owned());
        let erasure = self.erasure(key).ok_or_else(missing)?;
        let asked_at_ms = erasure.asked_at_ms;
        let is_clean = erasure.is_done && asked_at_ms <= self.cleaned_ms;
        let leftovers = self.leftovers.as_ref().filter(|_| erasure.is_done && !is_clean);
        let files_until_ms = leftovers.and_then(Leftovers::until_ms);
        let is_done = is_clean && self.archiving.is_clean(asked_at_ms);
        let raw_files = self.archiving.unclean(asked_at_ms);
        Ok(Erased { erasure, is_done, files_until_ms, raw_files })
    }

    /// Starts to delete files of a deleted type, as after an erasure.
    pub(super) fn begin_cleaning_after_deletion(&mut self, command: &Command, outcome: &Outcome) {
        let Command::Types(SetTypes { set: TypesSet::Change(TypeChange::Delete { name }), .. }) = command else {
            return;
        };
        let Outcome::Types { result: Ok(true) } = outcome else { return };
        self.leftovers = Some(Leftovers::new(self.node.settings.reader_grace_s));
        let deleted_at_ms = self.host.manifest().schema().deleted_at_ms(name).unwrap_or_default();
        self.cleaned_ms = self.cleaned_ms.min(deleted_at_ms.saturating_sub(1));
        // The answer to the operator reads what is published, and must not call the deletion done.
        self.publish();
    }

    /// Looks for files of erased rows once all erasures are done in live blobs, and no query reads older ones.
    pub(super) fn look_for_leftovers(&mut self) {
        let is_pending = self.host.manifest().partition(PARTITION).is_none_or(|known| known.erasures.pending() > 0)
            || self.owner.deleting() > 0;
        let epoch = self.owner.epoch();
        let seq = self.owner.last_seq();
        let Some(leftovers) = &mut self.leftovers else { return };
        if is_pending || self.owner.position(SOURCE).is_none() {
            leftovers.clean = None;
            return;
        }
        let clean = *leftovers.clean.get_or_insert_with(|| Clean { at: Instant::now(), at_ms: now_ms(), epoch, seq });
        let is_time = clean.at.elapsed() >= leftovers.grace || leftovers.looks_at_once;
        let is_due = is_time && leftovers.next_at.is_none_or(|at| at <= Instant::now());
        if is_due && !leftovers.is_listing && self.owner.unreadable_blobs() == 0 {
            leftovers.is_listing = true;
            leftovers.next_at = Some(Instant::now() + LEFTOVERS_AGAIN);
            self.jobs.push_back(Job::List);
        }
    }

    /// Removes the files that were begun before all erasures were done, and are not live. An abandoned write is among them.
    pub(super) fn listed(&mut self, found: Vec<Found>) {
        let Some(leftovers) = &mut self.leftovers else { return };
        leftovers.is_listing = false;
        let Some(clean) = leftovers.clean else { return };
        let manifest = self.host.manifest();
        if self.owner.unreadable_blobs() > 0 || damaged_blob(manifest, &found).is_some() {
            leftovers.next_at = Some(Instant::now() + DAMAGED_AGAIN);
            return;
        }
        // Queries may still read what was replaced a moment ago. It is removed in its turn.
        let replaced: BTreeSet<&str> =
            self.replaced.iter().flat_map(|replaced| &replaced.files).map(|found| found.name.as_str()).collect();
        let mut is_pending = false;
        let mut unreachable = Vec::new();
        for found in found.into_iter().filter(|found| clean.covers(&found.key)) {
            if replaced.contains(found.name.as_str()) {
                is_pending = true;
                continue;
            }
            match judge(manifest, &found.key) {
                Verdict::Unreachable => unreachable.push(found),
                Verdict::Pending => is_pending = true,
                Verdict::Live | Verdict::Foreign => {}
            }
        }
        if !unreachable.is_empty() && clean.at.elapsed() < leftovers.grace {
            leftovers.next_at = Some(clean.at + leftovers.grace);
            return;
        }
        if !unreachable.is_empty() {
            return self.jobs.push_back(Job::Remove(unreachable));
        }
        if !is_pending {
            self.leftovers = None;
            let known = manifest.partition(PARTITION).map(|known| known.erasures.iter());
            let asked = known.into_iter().flatten().map(|(_, erasure)| erasure.asked_at_ms);
            let changed = manifest.schema().changes().last().map(|changed| changed.at_ms);
            self.cleaned_ms = asked.chain(changed).max().unwrap_or_default();
        }
    }

    fn erasure(&self, key: &ErasureKey) -> Option<Erasure> {
        self.host.manifest().partition(PARTITION)?.erasures.get(key)
    }
}
