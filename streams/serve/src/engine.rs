//! The thread that owns the partition: it folds the entries of the log, commits blobs, and answers which rows are in none yet.
//!
//! A session claims the partition and goes on behind the committed position. Any failure ends the session; the next session begins a second
//! later, from the state on disk. Requests go on meanwhile: what they bring is in the log.

mod archiving;
mod session;
mod store;

use crate::archive::{Archive, ArchiveError};
use crate::log::{IntakeLog, LOG_FILE, LogConfig, LogError};
pub use crate::messages::{
    EraseRequest, Erased, HeldRequest, LetterAction, LetterBlobs, LettersRequest, Message, PARTITION, Pin, PinError,
    Pinned, Proposal, ProposalError, SOURCE, SettleError, SettleRequest, SettledBlob, SnapshotRequest,
};
use crate::node::{Node, OwnerView};
use crate::settings::{PURCHASE, PURCHASE_IDS_S, Settings};
use session::{End, Session};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};
use tidemark_consensus::local::PersistError;
use tidemark_streams_core::owner::Stop;
use tidemark_streams_core::schema::{FormerName, Schema};
use tidemark_streams_intake::entry::DecodeError;
use tidemark_streams_intake::event_ids::{IdBounds, IdSettings};
use tidemark_streams_intake::state::StateConfig;
use tidemark_streams_store::directory::{Directory, DirectoryError, IfMissing};
use tidemark_streams_store::host::ManifestError;

/// Messages that wait for the owner's thread.
pub const MESSAGES_MAX: usize = 1_024;
/// Between two sessions.
const AGAIN: Duration = Duration::from_secs(1);

/// A fault that ends a session.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("the intake's log: {0}")]
    LogFailed(#[from] PersistError),
    #[error("entry {index} of the intake's log: {error}")]
    Entry { index: u64, error: DecodeError },
    #[error("the owner has stopped: {0}")]
    Stopped(#[from] Stop),
    #[error("the thread that writes blobs has ended")]
    StoreEnded,
}

/// The state with which a session begins.
pub struct Opened {
    pub directory: Directory,
    pub log: Arc<IntakeLog>,
    pub archive: Archive,
}

/// The thread.
pub struct Engine {
    pub node: Arc<Node>,
    pub inbox: Receiver<Message>,
    pub sessions: u64,
}

/// Opens the log of a directory.
///
/// # Errors
/// [`Problem`]: it cannot be read, or is not that of the directory's manifest.
pub fn open_log(
    directory: &Directory,
    settings: &Settings,
    engine: &SyncSender<Message>,
) -> Result<Arc<IntakeLog>, Problem> {
    let config = LogConfig {
        directory: directory.id().to_owned(),
        state: StateConfig {
            ids: under_all_names(&settings.event_ids, directory.manifest().schema()),
            lateness_s: settings.lateness_s,
        },
        bytes_max: settings.log_bytes_max,
        quotas: settings.quotas,
    };
    let engine = engine.clone();
    // A full queue has other messages, after which the thread looks at the log as well.
    let on_progress = move || drop(engine.try_send(Message::Wake));
    let path = settings.dir.join(LOG_FILE);
    let position = position(directory);
    if position > 0 && !path.exists() {
        return Err(LogError::OtherPosition { first: 0, next: 0, position }.into());
    }
    let log = IntakeLog::open(&path, &config, on_progress)?;
    log.check_position(position)?;
    Ok(Arc::new(log))
}

/// Bounds of a type hold for all of its names.
fn under_all_names(settings: &IdSettings, schema: &Schema) -> IdSettings {
    let former = schema.former();
    let present = |name: &String| match former.get(name) {
        Some(FormerName::Alias(now)) => now.clone(),
        Some(FormerName::Deleted) | None => name.clone(),
    };
    let mut given = settings.of_types.clone();
    // Purchases keep their bounds when they have another name, unless a setting names that one.
    if let Some(FormerName::Alias(now)) = former.get(PURCHASE)
        && !given.contains_key(now)
    {
        let bounds = IdBounds { kept_ms: PURCHASE_IDS_S * 1_000, ids_max: settings.others.ids_max };
        given.entry(PURCHASE.to_owned()).or_insert(bounds);
    }
    let mut all = IdSettings { others: settings.others, of_types: given.clone() };
    for (name, bounds) in given {
        let present = present(&name);
        let is_same = |former: &FormerName| matches!(former, FormerName::Alias(now) if *now == present);
        let earlier = former.iter().filter(|(_, former)| is_same(former)).map(|(name, _)| name.clone());
        let names: Vec<String> = earlier.chain([present.clone()]).collect();
        for name in names {
            all.of_types.entry(name).or_insert(bounds);
        }
    }
    all
}

/// Opens the archive of raw events of a directory.
///
/// # Errors
/// [`Problem`]: it cannot be read, or does not belong to the log.
pub fn open_archive(directory: &Directory, settings: &Settings, log: &IntakeLog) -> Result<Archive, Problem> {
    let archive = Archive::open(&settings.dir, directory.id())?;
    archive.check(log.next_row())?;
    Ok(archive)
}

fn position(directory: &Directory) -> u64 {
    let partition = directory.manifest().partition(PARTITION);
    partition.map_or(0, |partition| partition.source(SOURCE).next_row)
}

impl Engine {
    /// Runs until it is told to stop.
    pub fn run(mut self, opened: Opened) {
        let mut opened = Some(opened);
        loop {
            match self.session(opened.take()) {
                Ok(End::Stopped) => return,
                Err(problem) => {
                    self.node.counters().sessions_failed.add(1);
                    self.node.set_owner(OwnerView { is_owner: false, ..self.node.owner() });
                    self.node.set_problem(Some(problem.to_string()));
                }
            }
            if self.node.log().is_some_and(|log| log.progress().failed.is_some()) {
                self.node.set_log(None);
            }
            if self.wait() {
                return;
            }
        }
    }

    fn session(&mut self, opened: Option<Opened>) -> Result<End, Problem> {
        self.sessions += 1;
        let opened = match opened {
            Some(opened) => opened,
            None => self.open()?,
        };
        self.node.set_log(Some(Arc::clone(&opened.log)));
        let ended = Session::begin(self, opened).and_then(Session::run);
        self.node.feed.end();
        ended
    }

    /// Opens the directory again, and the log if it had failed.
    fn open(&self) -> Result<Opened, Problem> {
        let settings = &self.node.settings;
        let directory = Directory::open_through(&settings.dir, IfMissing::Refuse, settings.store_layer.clone())?;
        let log = match self.node.log() {
            Some(log) => log,
            None => open_log(&directory, settings, &self.node.engine)?,
        };
        let archive = open_archive(&directory, settings, &log)?;
        Ok(Opened { directory, log, archive })
    }

    /// Waits between two sessions, and answers meanwhile. `true`: it was told to stop.
    fn wait(&self) -> bool {
        let end = Instant::now() + AGAIN;
        let why = || self.node.problem().unwrap_or_default();
        loop {
            match self.inbox.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return true,
                Ok(Message::Pin(pin)) => drop(pin.answer.send(Err(PinError::NotServing(why())))),
                Ok(Message::Held(held)) => drop(held.answer.send(Err(PinError::NotServing(why())))),
                Ok(Message::Snapshot(request)) => drop(request.answer.send(Err(PinError::NotServing(why())))),
                Ok(Message::Propose(proposal)) => drop(proposal.answer.send(Err(ProposalError::NotServing(why())))),
                Ok(Message::Erase(request)) => drop(request.answer.send(Err(ProposalError::NotServing(why())))),
                Ok(Message::Letters(request)) => drop(request.answer.send(Err(SettleError::NotServing(why())))),
                Ok(Message::Settle(request)) => drop(request.answer.send(Err(SettleError::NotServing(why())))),
                Ok(Message::Wake | Message::Done(..) | Message::Archived(..)) => {}
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests;
