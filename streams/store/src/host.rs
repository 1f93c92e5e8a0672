//! The manifest machine on a local log: a command is durable before its outcome is known.
//!
//! The log keeps commands; every [`SNAPSHOT_EVERY`] of them what changed of the state goes into rows beside the log, which is then
//! cut, but for its last [`COMMANDS_KEPT`]. All rows of a snapshot are written in one transaction.

use crate::head::{self, HeadError, Written};
use std::cmp::Ordering;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tidemark_consensus::local::{
    CheckpointError, CheckpointPart, Execution, Identity, LocalLog, LocalLogOptions, LogEvent, OpenError, PersistError,
    Row, SubmitError, TruncateError,
};
use tidemark_streams_core::blob::{BlobKey, Epoch, PartitionId};
use tidemark_streams_core::codec::{CommandTooLong, DecodeError};
use tidemark_streams_core::limits::PARTITIONS_MAX;
use tidemark_streams_core::manifest::{Command, Fence, Gone, Manifest, Outcome, Restore, SnapshotError, replaces_head};
use tidemark_streams_core::rebuild::Lineages;

/// Commands between two snapshots.
pub const SNAPSHOT_EVERY: u64 = 256;
/// Commands that the log keeps behind its snapshot. They say where the rows of blobs come from.
pub const COMMANDS_KEPT: u64 = 4_096;
const TABLE: &str = "manifest";
/// The one row that says which manifest it is, if it was built again.
const TABLE_OF_GENERATION: &str = "generation";
const KEY_OF_GENERATION: &[u8] = b"generation";
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
    #[error("manifest.redb: a command was not written: {0}")]
    Write(PersistError),
    #[error("the manifest's snapshot was not taken: {0}")]
    Checkpoint(#[from] CheckpointError),
    #[error("the manifest's log was not cut: {0}")]
    Truncate(#[from] TruncateError),
    #[error("the command was not written, because it could not be read again: {0}")]
    Command(DecodeError),
    #[error("entry {index} of the manifest's log: {error}")]
    Entry { index: u64, error: DecodeError },
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("the manifest's log begins at entry {first}, and its snapshot stands for {applied}")]
    Missing { first: u64, applied: u64 },
    #[error(transparent)]
    TooLong(#[from] CommandTooLong),
    #[error(transparent)]
    Head(#[from] HeadError),
    #[error(
        "the manifest has {index} entries, and manifest.head was written at entry {head}: the manifest was emptied, or replaced by an old \
         copy; restore the manifest that belongs to manifest.head, or run `tidemark-streams manifest rebuild`"
    )]
    BehindHead { index: u64, head: u64 },
    #[error(
        "manifest.head is of the manifest that was built again ({head:016x}), and this manifest is not it ({found:016x}): it is older, or the \
         rebuild was killed; restore the manifest that belongs to manifest.head, or run `tidemark-streams manifest rebuild`"
    )]
    OtherGeneration { found: u64, head: u64 },
    #[error("the manifest's generation has {bytes} bytes: 8 are expected")]
    Generation { bytes: usize },
}

/// The manifest of one directory.
pub struct ManifestHost {
    log: LocalLog,
    events: Arc<Mutex<Vec<LogEvent>>>,
    manifest: Manifest,
    snapshot_at: u64,
    has_row_of_version_1: bool,
    /// Where its head lies, and the id of its directory.
    folder: PathBuf,
    directory: String,
    /// Which manifest it is: 0, or the random number that a rebuild has given it.
    generation: u64,
    gone: Gone,
    /// Held as long as the directory is open.
    lock: Option<File>,
}

impl ManifestHost {
    /// Creates the log of a manifest that was built again. Its first entry changes nothing: a snapshot stands for an entry. Its generation
    /// is a number that no earlier manifest has.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn create(
        path: &Path,
        directory: &str,
        manifest: &mut Manifest,
        gone: Gone,
    ) -> Result<ManifestHost, ManifestError> {
        let mut host = ManifestHost::open_log(path, directory)?;
        host.gone = gone;
        host.generation = rand::random_range(1..=u64::MAX);
        let row = Row {
            table: TABLE_OF_GENERATION,
            key: KEY_OF_GENERATION.into(),
            value: Some(host.generation.to_le_bytes().to_vec().into()),
        };
        let nothing = Command::Fence(Fence { partition: PartitionId(PARTITIONS_MAX - 1), epoch: Epoch(u64::MAX) });
        host.log.append(vec![nothing.encode()?.into()])?;
        host.check_written()?;
        manifest.apply(&nothing);
        host.manifest = manifest.clone();
        let applied = host.manifest.index();
        host.log.checkpoint(CheckpointPart { applied, last: false, rows: vec![row] })?;
        host.snapshot()?;
        Ok(host)
    }

    /// Opens or creates the log. A log of another directory is refused.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn open(path: &Path, directory: &str) -> Result<ManifestHost, ManifestError> {
        let mut host = ManifestHost::open_log(path, directory)?;
        let index = host.manifest.index();
        let head = match head::read(&host.folder, directory) {
            // A damaged head is written again: the manifest is the truth.
            Err(HeadError::Damaged(_) | HeadError::Snapshot(_)) => None,
            read => read?,
        };
        let Some(head::HeadOf { head, generation }) = head else {
            host.write_head()?;
            return Ok(host);
        };
        if generation != host.generation {
            return Err(ManifestError::OtherGeneration { found: host.generation, head: generation });
        }
        host.gone = head.gone().clone();
        match head.manifest().index().cmp(&index) {
            Ordering::Equal => {}
            Ordering::Less => host.write_head()?,
            Ordering::Greater => return Err(ManifestError::BehindHead { index, head: head.manifest().index() }),
        }
        Ok(host)
    }

    /// Keeps the lock of the directory.
    pub(crate) fn hold(&mut self, lock: File) {
        self.lock = Some(lock);
    }

    /// Writes the head.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write_head(&self) -> Result<(), HeadError> {
        let ManifestHost { directory, generation, manifest, gone, .. } = self;
        head::write(&self.folder, &Written { directory, generation: *generation, manifest, gone })
    }

    /// The collector has deleted files: only these are there.
    pub fn forget_gone(&mut self, is_there: impl Fn(&BlobKey) -> bool) {
        self.gone.retain(is_there);
    }

    fn open_log(path: &Path, directory: &str) -> Result<ManifestHost, ManifestError> {
        let identity = Identity { cluster: format!("streams {directory}"), owner: "manifest".to_owned() };
        let options = LocalLogOptions { execution: Execution::Inline, ..LocalLogOptions::new(identity) };
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let on_event = move |event| sink.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        let (log, recovered) = LocalLog::open(path, options, on_event)?;
        let Snapshot { mut manifest, has_row_of_version_1 } = read_snapshot(&log)?;
        let generation = match log.rows()?.get(TABLE_OF_GENERATION, KEY_OF_GENERATION)? {
            None => 0,
            Some(bytes) => <[u8; 8]>::try_from(bytes.as_slice())
                .map(u64::from_le_bytes)
                .map_err(|_| ManifestError::Generation { bytes: bytes.len() })?,
        };
        let applied = manifest.index();
        if recovered.first > applied + 1 || recovered.applied != applied {
            return Err(ManifestError::Missing { first: recovered.first, applied });
        }
        for entry in recovered.entries_after(applied)? {
            let (index, bytes) = entry?;
            let command = Command::decode(&bytes).map_err(|error| ManifestError::Entry { index, error })?;
            manifest.apply(&command);
        }
        Ok(ManifestHost {
            log,
            events,
            manifest,
            snapshot_at: applied,
            has_row_of_version_1,
            folder: path.parent().unwrap_or(Path::new(".")).to_owned(),
            directory: directory.to_owned(),
            generation,
            gone: Gone::default(),
            lock: None,
        })
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Where the rows of blobs come from, as far as the log reaches back.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn lineages(&self) -> Result<Lineages, ManifestError> {
        let mut lineages = Lineages::default();
        for entry in self.log.entries(1, self.log.last_index())? {
            let (index, bytes) = entry?;
            let command = Command::decode(&bytes).map_err(|error| ManifestError::Entry { index, error })?;
            match &command {
                Command::Commit(commit) => lineages.add(commit),
                Command::Replace(replace) => lineages.add_replaced(replace),
                Command::Claim(_)
                | Command::Fence(_)
                | Command::Layout(_)
                | Command::Pause(_)
                | Command::Retention(_)
                | Command::Expire(_)
                | Command::ExpireUnnumbered(_)
                | Command::Erase(_)
                | Command::TestTenant(_)
                | Command::Types(_) => {}
            }
        }
        Ok(lineages)
    }

    /// Writes a command and applies it.
    ///
    /// # Errors
    /// [`ManifestError`]: whether the command is in the log is known after the next start.
    pub fn propose(&mut self, command: &Command) -> Result<Outcome, ManifestError> {
        let bytes = command.encode()?;
        // An entry that cannot be read would close the directory.
        Command::decode(&bytes).map_err(ManifestError::Command)?;
        self.log.append(vec![bytes.into()])?;
        self.check_written()?;
        let outcome = self.manifest.apply(command);
        self.gone.follow(command, &outcome);
        if replaces_head(command, &outcome) {
            self.write_head()?;
        }
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
        self.log.truncate_before((applied + 1).saturating_sub(COMMANDS_KEPT))?;
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
