//! The manifest machine on a local log: a command is durable before its outcome is known.
//!
//! The log keeps commands; every [`SNAPSHOT_EVERY`] of them what changed of the state goes into rows beside the log, which is then
//! cut. All rows of a snapshot are written in one transaction.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tidemark_consensus::local::{
    CheckpointError, CheckpointPart, Execution, Identity, LocalLog, LocalLogOptions, LogEvent, OpenError, PersistError,
    Row, SubmitError, TruncateError,
};
use tidemark_streams_core::codec::{CommandTooLong, DecodeError};
use tidemark_streams_core::manifest::{Command, Manifest, Outcome, Restore, SnapshotError};

/// Commands between two snapshots.
pub const SNAPSHOT_EVERY: u64 = 256;
const TABLE: &str = "manifest";
/// The one row of a snapshot of version 1, which the next snapshot deletes.
const KEY_OF_VERSION_1: &[u8] = b"snapshot";

/// Why the manifest cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the manifest cannot be read: {0}")]
    Read(#[from] PersistError),
    #[error("the manifest does not take commands: {0}")]
    Submit(#[from] SubmitError),
    #[error("a command was not written: {0}")]
    Write(PersistError),
    #[error("the manifest's snapshot was not taken: {0}")]
    Checkpoint(#[from] CheckpointError),
    #[error("the manifest's log was not cut: {0}")]
    Truncate(#[from] TruncateError),
    #[error("entry {index} of the manifest's log: {error}")]
    Entry { index: u64, error: DecodeError },
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("the manifest's log begins at entry {first}, and its snapshot stands for {applied}")]
    Missing { first: u64, applied: u64 },
    #[error(transparent)]
    TooLong(#[from] CommandTooLong),
}

/// The manifest of one directory.
pub struct ManifestHost {
    log: LocalLog,
    events: Arc<Mutex<Vec<LogEvent>>>,
    manifest: Manifest,
    snapshot_at: u64,
    has_row_of_version_1: bool,
}

impl ManifestHost {
    /// Opens or creates the log. A log of another directory is refused.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn open(path: &Path, directory: &str) -> Result<ManifestHost, ManifestError> {
        let identity = Identity { cluster: format!("streams {directory}"), owner: "manifest".to_owned() };
        let options = LocalLogOptions { execution: Execution::Inline, ..LocalLogOptions::new(identity) };
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let on_event = move |event| sink.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        let (log, recovered) = LocalLog::open(path, options, on_event)?;
        let Snapshot { mut manifest, has_row_of_version_1 } = read_snapshot(&log)?;
        let applied = manifest.index();
        if recovered.first > applied + 1 || recovered.applied != applied {
            return Err(ManifestError::Missing { first: recovered.first, applied });
        }
        for entry in recovered.entries_after(applied)? {
            let (index, bytes) = entry?;
            let command = Command::decode(&bytes).map_err(|error| ManifestError::Entry { index, error })?;
            manifest.apply(&command);
        }
        Ok(ManifestHost { log, events, manifest, snapshot_at: applied, has_row_of_version_1 })
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Writes a command and applies it.
    ///
    /// # Errors
    /// [`ManifestError`]: whether the command is in the log is known after the next start.
    pub fn propose(&mut self, command: &Command) -> Result<Outcome, ManifestError> {
        let bytes = command.encode()?;
        self.log.append(vec![bytes.into()])?;
        self.check_written()?;
        let outcome = self.manifest.apply(command);
        if self.manifest.index() >= self.snapshot_at + SNAPSHOT_EVERY {
            self.snapshot()?;
        }
        Ok(outcome)
    }

    /// The log runs its transactions before `append` returns, and reports what became of them.
    fn check_written(&self) -> Result<(), ManifestError> {
        let events = std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner));
        for event in events {
            match event {
                LogEvent::Failed(error) => return Err(ManifestError::Write(error)),
                LogEvent::Durable { .. } | LogEvent::Checkpointed { .. } | LogEvent::Kept => {}
            }
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<(), ManifestError> {
        let applied = self.manifest.index();
        let changes = self.manifest.take_changes().into_iter();
        let row =
            |key: Vec<u8>, value: Option<Vec<u8>>| Row { table: TABLE, key: key.into(), value: value.map(Into::into) };
        let mut rows: Vec<Row> = changes.map(|change| row(change.key, change.value)).collect();
        if std::mem::take(&mut self.has_row_of_version_1) {
            rows.push(row(KEY_OF_VERSION_1.to_vec(), None));
        }
        self.log.checkpoint(CheckpointPart { applied, last: true, rows })?;
        self.check_written()?;
        self.log.truncate_before(applied + 1)?;
        self.snapshot_at = applied;
        Ok(())
    }
}

struct Snapshot {
    manifest: Manifest,
    has_row_of_version_1: bool,
}

fn read_snapshot(log: &LocalLog) -> Result<Snapshot, ManifestError> {
    let stored = log.rows()?;
    if let Some(bytes) = stored.get(TABLE, KEY_OF_VERSION_1)? {
        return Ok(Snapshot { manifest: Manifest::from_version_1(&bytes)?, has_row_of_version_1: true });
    }
    let mut restore = Restore::new();
    let mut added = Ok(());
    stored.scan(TABLE, |key, value| {
        added = restore.add(key, value);
        added.is_ok()
    })?;
    added?;
    Ok(Snapshot { manifest: restore.finish()?, has_row_of_version_1: false })
}
