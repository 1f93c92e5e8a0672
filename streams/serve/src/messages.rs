//! Messages to the thread that owns the partition, and its answers.

use crate::archive::ArchiveView;
use crate::dead_letters::Tried;
use std::time::Instant;
use tidemark_streams_core::blob::{BlobKey, BlobMeta, PartitionId, StoredBlob};
use tidemark_streams_core::erasure::{Erasure, ErasureKey};
use tidemark_streams_core::feed::{Held, SessionId, Snapshot, Subject};
use tidemark_streams_core::manifest::{Command, EraseRefused, Outcome};
use tidemark_streams_core::owner::DeadLetter;
use tidemark_streams_core::query::{Plan, View};
use tidemark_streams_core::rollup::{Rollups, RowError};
use tidemark_streams_core::source::SourceId;
use tidemark_streams_core::time::HourRange;
use tidemark_streams_store::directory::DirectoryError;
use tidemark_streams_store::folder::Found;
use tokio::sync::oneshot;

/// A directory has one partition.
pub const PARTITION: PartitionId = PartitionId(0);
/// The log of the intake as a source. Each directory has one.
pub const SOURCE: SourceId = SourceId(*b"tidemark-streams intake log 0001");
/// What a feed is about.
pub const SUBJECT: Subject = Subject { partition: PARTITION, source: SOURCE };

/// A message to the owner's thread.
pub enum Message {
    /// More of the log is durable, or the log has failed.
    Wake,
    /// The thread that writes blobs of a session has done what it was asked.
    Done(u64, Done),
    /// The thread of the archive of a session has had its turn.
    Archived(u64, Archived),
    Pin(Pin),
    Held(HeldRequest),
    Snapshot(SnapshotRequest),
    Propose(Proposal),
    Erase(EraseRequest),
    Letters(LettersRequest),
    Settle(SettleRequest),
    /// Write what is held, and end.
    Stop,
}

/// A turn of the archive.
pub struct Archived {
    pub view: ArchiveView,
    /// More is to be done.
    pub has_more: bool,
    /// Something could not be written or removed.
    pub has_failed: bool,
}

/// Asks which blobs and which rows answer a query.
pub struct Pin {
    pub tenant: String,
    pub hours: HourRange,
    pub answer: oneshot::Sender<Result<Pinned, PinError>>,
}

/// Asks for the rows of a tenant that are in no blob, for a query process.
pub struct HeldRequest {
    pub tenant: String,
    pub hours: HourRange,
    pub answer: oneshot::Sender<Result<Held, PinError>>,
}

/// Asks for the manifest.
pub struct SnapshotRequest {
    pub answer: oneshot::Sender<Result<Snapshot, PinError>>,
}

/// A command of an operator.
pub struct Proposal {
    pub command: Command,
    pub answer: oneshot::Sender<Result<Outcome, ProposalError>>,
}

/// Erases a tenant or listing, or asks how far that is.
pub struct EraseRequest {
    pub key: ErasureKey,
    /// Begin a new erasure if the known one is done.
    pub again: bool,
    pub answer: oneshot::Sender<Result<Erased, ProposalError>>,
}

/// How far an erasure is.
pub struct Erased {
    pub erasure: Erasure,
    /// Whether no file of the directory holds erased rows.
    pub is_done: bool,
    /// No live blob holds erased rows. Files that queries may still read are removed then, at the earliest.
    pub files_until_ms: Option<u64>,
    /// Files of raw events that may hold erased rows.
    pub raw_files: u64,
}

/// Asks for the blobs of dead letters.
pub struct LettersRequest {
    /// Flush the events first that are durable now.
    pub flushes: bool,
    /// The answer comes then at the latest.
    pub by: Instant,
    pub answer: oneshot::Sender<Result<LetterBlobs, SettleError>>,
}

/// The blobs of dead letters, in the order of their keys.
pub struct LetterBlobs {
    pub metas: Vec<BlobMeta>,
    /// Events that were accepted and are not in blobs. They may be dead letters.
    pub unwritten: u64,
}

/// Replays or drops letters of one blob.
pub struct SettleRequest {
    pub key: BlobKey,
    pub letters: Vec<DeadLetter>,
    /// What is to become of each letter. Texts are read before, so that the owner's thread does not read them.
    pub tried: Vec<Tried>,
    pub action: LetterAction,
    /// It begins before this, or not at all.
    pub by: Instant,
    pub answer: oneshot::Sender<Result<SettledBlob, SettleError>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterAction {
    Replay,
    Drop,
}

/// What became of the letters of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettledBlob {
    Done {
        replayed: u64,
        dropped: u64,
    },
    /// The blob was replaced meanwhile.
    Replaced,
    /// Other work took all the time.
    TimeIsOver,
}

/// Why no letters are settled.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SettleError {
    #[error("the owner's thread does not run: {0}")]
    NotServing(String),
    #[error("the partition is paused: resume it, and send the request again")]
    Paused,
    #[error("event type {0} is paused: resume it, and send the request again")]
    TypePaused(String),
}

/// Why a command of an operator has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum ProposalError {
    #[error("the manifest did not take it: {0}")]
    Manifest(String),
    #[error("the owner's thread does not run: {0}")]
    NotServing(String),
    #[error("nothing was erased: {0}")]
    Erase(#[from] EraseRefused),
}

/// All rows of a tenant at one moment.
pub struct Pinned {
    pub as_of: AsOf,
    pub blobs: Vec<BlobMeta>,
    pub view: View,
    /// Rows that are in none of the blobs.
    pub unwritten: Vec<Rollups>,
    /// When that moment was.
    pub pinned_at_ms: u64,
    pub complete_to_ms: u64,
    pub last_updated_at_ms: u64,
    /// Files with a load that was stopped before its end.
    pub incomplete: Vec<String>,
    /// Since when the partition is paused.
    pub paused_at_ms: Option<u64>,
    /// An hour is settled so long after its end.
    pub lateness_s: u64,
    /// Counts of the tenant that came late; `None`: unknown.
    pub late_total: Option<u64>,
}

/// Which state of the manifest an answer is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsOf {
    pub index: u64,
    /// Of the feed that the state came by; `None`: it is of the owner in this process.
    pub session: Option<SessionId>,
    /// Whether rows are counted that the owner holds in memory. Without them an answer is of blobs only.
    pub has_held_rows: bool,
    /// How long ago the manifest was heard of.
    pub feed_age_ms: Option<u64>,
}

/// The sources of files with a load that was stopped before its end.
pub fn incomplete(plan: &Plan) -> Vec<String> {
    let stopped = plan.sources.iter().filter(|(source, state)| **source != SOURCE && !state.is_complete);
    let text = |source: &SourceId, next_row: u64| {
        format!("source {source} is counted up to row {next_row} only: its load was stopped")
    };
    stopped.map(|(source, state)| text(source, state.next_row)).collect()
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    #[error(transparent)]
    Rows(#[from] RowError),
    #[error("the owner's rows begin behind row {position}, which the blobs end at: ask again")]
    Gap { position: u64 },
    #[error("the owner's thread does not run: {0}")]
    NotServing(String),
}

/// The result of a job.
pub enum Done {
    Stored { key: BlobKey, result: Result<StoredBlob, DirectoryError> },
    Loaded { key: BlobKey, result: Result<Rollups, DirectoryError> },
    LoadedLetters { key: BlobKey, result: Result<Vec<DeadLetter>, DirectoryError> },
    Removed { result: Result<(), DirectoryError> },
    Listed { result: Result<Vec<Found>, DirectoryError> },
}
