//! The thread that writes the archive of raw events, one turn at a time.

use super::store::answer;
use crate::archive::{Archive, Turn};
use crate::log::IntakeLog;
use crate::messages::{Archived, Message};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use tidemark_streams_core::erasure::Erasures;

/// A turn for the thread.
pub struct Job {
    pub committed: u64,
    pub now_ms: u64,
    pub keep_ms: Option<u64>,
    /// The erasures, if all of them are done in blobs.
    pub erasures: Option<Arc<Erasures>>,
}

/// The thread. Dropping it waits for the turn under way.
pub struct ArchiveThread {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl ArchiveThread {
    pub fn start(
        archive: Archive,
        log: Arc<IntakeLog>,
        session: u64,
        engine: SyncSender<Message>,
    ) -> io::Result<ArchiveThread> {
        let (jobs, inbox) = sync_channel(1);
        let run = move || serve(archive, &log, &inbox, session, &engine);
        let thread = std::thread::Builder::new().name("archive".to_owned()).spawn(run)?;
        Ok(ArchiveThread { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Hands a turn in. `false`: the thread has ended.
    pub fn send(&self, job: Job) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.try_send(job).is_ok())
    }
}

impl Drop for ArchiveThread {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut archive: Archive, log: &IntakeLog, jobs: &Receiver<Job>, session: u64, engine: &SyncSender<Message>) {
    while let Ok(Job { committed, now_ms, keep_ms, erasures }) = jobs.recv() {
        let turn = Turn { committed, now_ms, keep_ms, erasures: erasures.as_deref() };
        let done = archive.turn(log, &turn);
        let mut view = archive.view(turn.erasures);
        let has_failed = done.is_err();
        let has_more = match done {
            Ok(has_more) => has_more,
            // Files that are not tidied hold nothing up.
            Err(error) => {
                view.problem = archive.has_rows(log, &turn).then(|| error.to_string());
                false
            }
        };
        let message = Message::Archived(session, Archived { view, has_more, has_failed });
        if !answer(engine, jobs, message) {
            return;
        }
    }
}
