//! The thread that writes, reads and removes blobs, one job at a time.

use crate::messages::{Done, Message};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use tidemark_streams_core::blob::{BlobMeta, Level};
use tidemark_streams_core::owner::Put;
use tidemark_streams_store::directory::Blobs;
use tidemark_streams_store::folder::Found;
use tidemark_streams_store::parquet_rows::Wanted;

pub enum Job {
    Put(Put),
    Load(BlobMeta),
    Remove(Vec<Found>),
    List,
}

/// The thread. Dropping it waits for the job under way.
pub struct StoreThread {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl StoreThread {
    pub fn start(blobs: Blobs, session: u64, engine: SyncSender<Message>) -> std::io::Result<StoreThread> {
        let (jobs, inbox) = sync_channel(1);
        let run = move || serve(blobs, &inbox, session, &engine);
        let thread = std::thread::Builder::new().name("blobs".to_owned()).spawn(run)?;
        Ok(StoreThread { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Hands a job in. `false`: the thread has ended.
    pub fn send(&self, job: Job) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.try_send(job).is_ok())
    }
}

impl Drop for StoreThread {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut blobs: Blobs, jobs: &Receiver<Job>, session: u64, engine: &SyncSender<Message>) {
    while let Ok(job) = jobs.recv() {
        let done = Message::Done(session, carry_out(&mut blobs, job));
        if !answer(engine, jobs, done) {
            return;
        }
    }
}

/// Sends what was done. The owner's thread drains its queue, or waits for this thread to end: then the answer is not needed, and this
/// is `false`.
pub(super) fn answer<J>(engine: &SyncSender<Message>, jobs: &Receiver<J>, message: Message) -> bool {
    let mut left = Some(message);
    while let Some(message) = left.take() {
        match engine.try_send(message) {
            Ok(()) => {}
            Err(TrySendError::Full(message)) if !is_closed(jobs) => {
                std::thread::sleep(std::time::Duration::from_millis(1));
                left = Some(message);
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return false,
        }
    }
    true
}

fn is_closed<J>(jobs: &Receiver<J>) -> bool {
    matches!(jobs.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected))
}

fn carry_out(blobs: &mut Blobs, job: Job) -> Done {
    match job {
        Job::Put(put) => Done::Stored { key: put.key, result: blobs.put(&put) },
        Job::Load(meta) if meta.level == Level::DeadLetters => {
            Done::LoadedLetters { key: meta.key, result: blobs.letters(&meta) }
        }
        Job::Load(meta) => Done::Loaded { key: meta.key, result: blobs.rows(&meta, Wanted::All) },
        Job::Remove(found) => Done::Removed { result: blobs.remove(&found) },
        Job::List => Done::Listed { result: blobs.list().map(|listing| listing.blobs) },
    }
}
