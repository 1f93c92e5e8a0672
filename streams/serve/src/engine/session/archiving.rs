//! The archive of raw events beside the owner: what is counted goes there before the log forgets it.

use super::Session;
use crate::archive::ArchiveView;
use crate::engine::archiving::{ArchiveThread, Job};
use crate::engine::{PARTITION, Problem};
use crate::messages::Archived;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemark_streams_core::erasure::Erasures;
use tidemark_streams_intake::archive::keeper::cut_to;

/// Files are looked through for old and small ones so often.
const TIDY_EVERY: Duration = Duration::from_secs(10);
/// An archive that could not be written is written again after this.
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(super) struct Archiving {
    thread: ArchiveThread,
    /// How long an event is kept. `None`: none is.
    keep_ms: Option<u64>,
    view: ArchiveView,
    is_busy: bool,
    next_at: Instant,
    /// The latest erasures that were handed in.
    erasures: Arc<Erasures>,
    /// No file holds rows of erasures that were asked for up to then.
    cleaned_ms: u64,
}

impl Archiving {
    pub fn new(view: ArchiveView, thread: ArchiveThread, keep_ms: Option<u64>) -> Archiving {
        Archiving {
            thread,
            keep_ms,
            view,
            is_busy: false,
            next_at: Instant::now(),
            erasures: Arc::default(),
            cleaned_ms: 0,
        }
    }

    /// The row behind all that are archived. `None`: no archive is kept.
    fn end(&self) -> Option<u64> {
        self.keep_ms.map(|_| self.view.end)
    }

    /// Files that may hold rows of an erasure.
    pub fn unclean(&self, asked_at_ms: u64) -> u64 {
        if asked_at_ms <= self.cleaned_ms { 0 } else { self.view.unclean }
    }

    /// No file holds rows of erasures that were asked for up to then.
    pub fn cleaned_ms(&self) -> u64 {
        self.cleaned_ms
    }

    /// Whether no file holds rows of an erasure.
    pub fn is_clean(&self, asked_at_ms: u64) -> bool {
        asked_at_ms <= self.cleaned_ms
    }
}

impl Session<'_> {
    /// Has the archive written, or its files tidied.
    pub(super) fn work_on_archive(&mut self) -> Result<(), Problem> {
        if self.archiving.is_busy {
            return Ok(());
        }
        let erasures = self.done_erasures();
        let count = erasures.as_deref().map(Erasures::count);
        let is_failing = self.archiving.view.problem.is_some();
        let has_news = !self.is_archived() || count != self.archiving.view.erasures;
        if !(has_news && !is_failing || Instant::now() >= self.archiving.next_at) {
            return Ok(());
        }
        let committed = self.committed();
        let keep_ms = self.archiving.keep_ms;
        let job = Job { committed, now_ms: crate::node::now_ms(), keep_ms, erasures };
        if !self.archiving.thread.send(job) {
            return Err(Problem::StoreEnded);
        }
        self.archiving.is_busy = true;
        Ok(())
    }

    /// Notes what the thread has done.
    pub(super) fn archived(&mut self, done: Archived) {
        let Archived { view, has_more, has_failed } = done;
        let erasures = self.done_erasures();
        let archiving = &mut self.archiving;
        archiving.is_busy = false;
        archiving.next_at = Instant::now();
        self.node.counters().archive_errors.add(has_failed.into());
        if view.problem.is_some() {
            archiving.next_at += RETRY_AFTER;
        } else if !has_more {
            archiving.next_at += TIDY_EVERY;
        }
        if let Some(erasures) = erasures.filter(|known| Some(known.count()) == view.erasures && view.unclean == 0) {
            archiving.cleaned_ms = erasures.iter().map(|(_, erasure)| erasure.asked_at_ms).max().unwrap_or_default();
        }
        self.node.set_archive(view.clone());
        archiving.view = view;
    }

    /// Whether all counted entries of the log are archived.
    pub(super) fn is_archived(&self) -> bool {
        let end = self.archiving.end();
        self.log.counted(self.committed()).is_none_or(|counted| end.is_none_or(|end| counted <= end))
    }

    /// Whether a stop waits for the archive.
    pub(super) fn waits_for_archive(&self) -> bool {
        !self.is_archived() && self.archiving.view.problem.is_none()
    }

    /// The row up to which the log may forget.
    pub(super) fn forgettable(&self) -> u64 {
        cut_to(self.committed(), self.archiving.end())
    }

    /// The erasures, if all of them are done in blobs.
    fn done_erasures(&mut self) -> Option<Arc<Erasures>> {
        let Some(known) = self.host.manifest().partition(PARTITION) else { return Some(Arc::default()) };
        if known.erasures.pending() > 0 {
            return None;
        }
        if self.archiving.erasures.count() != known.erasures.count() {
            self.archiving.erasures = Arc::new(known.erasures.clone());
        }
        Some(Arc::clone(&self.archiving.erasures))
    }
}
