//! The application's state machine behind openraft: in memory, with a durable snapshot.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, RaftSnapshotBuilder};

use super::log_store::LogStore;
use super::types::{LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig};

/// The application's replicated state machine. It lives in memory: after a restart it starts empty, is given the
/// last snapshot and then every later committed command, each exactly once and in order.
pub trait App: Send + 'static {
    /// Applies a committed command. `index` is its log entry's; commands of one entry share it, in order. It must
    /// depend on nothing but the state and the command; a command that is understood and cannot be carried out does nothing.
    ///
    /// # Errors
    /// [`ApplyError`]: the command is not understood. The member stops before it.
    fn apply(&mut self, index: u64, command: &[u8]) -> Result<(), ApplyError>;

    /// Applies all commands of one entry, for an application that others look at meanwhile.
    ///
    /// # Errors
    /// As [`App::apply`].
    fn apply_entry(&mut self, index: u64, commands: &mut dyn Iterator<Item = &[u8]>) -> Result<(), ApplyError> {
        for command in commands {
            self.apply(index, command)?;
        }
        Ok(())
    }

    /// The whole state as bytes. Called between two commands; applying waits for it.
    fn snapshot(&self) -> Bytes;

    /// Replaces the whole state by that of a snapshot.
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError>;
}

/// A command that the application does not understand: a later version wrote it. To leave it out would make members differ, so the
/// member stops, and stops there again until it is upgraded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {index} of the log cannot be applied: {reason}")]
pub struct ApplyError {
    /// The entry's index.
    pub index: u64,
    /// The fault in it.
    pub reason: String,
}

/// A snapshot that the application cannot read. The member stops.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the snapshot cannot be restored: {0}")]
pub struct RestoreError(pub String);

/// Called with the last applied index after each run of applied commands and after each restored snapshot. It runs
/// on Raft's own task and must not block.
pub type OnApplied = Box<dyn FnMut(u64) + Send>;

/// Bytes of the last snapshot, and of the entries that were applied behind it.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    snapshot: AtomicU64,
    behind: AtomicU64,
}

impl Sizes {
    fn snapshot_is(&self, bytes: usize) {
        self.snapshot.store(bytes as u64, Ordering::Relaxed);
        self.behind.store(0, Ordering::Relaxed);
    }

    fn applied(&self, bytes: usize) {
        self.behind.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Whether the commands applied since then have at least this size, and half of the snapshot's.
    pub fn wants_snapshot(&self, every_bytes: u64) -> bool {
        let least = (self.snapshot.load(Ordering::Relaxed) / 2).max(every_bytes);
        self.behind.load(Ordering::Relaxed) >= least
    }
}

/// openraft's view of the application.
pub struct StateMachine {
    parts: Mutex<Parts>,
    store: LogStore,
}

struct Parts {
    app: Box<dyn App>,
    on_applied: OnApplied,
    applied: Option<LogId>,
    membership: StoredMembership,
    sizes: Arc<Sizes>,
}

impl StateMachine {
    /// An empty state machine with snapshots that live in `store`.
    pub fn new(app: Box<dyn App>, on_applied: OnApplied, store: LogStore) -> Self {
        let membership = StoredMembership::default();
        let sizes = Arc::default();
        let parts = Parts { app, on_applied, applied: None, membership, sizes };
        Self { parts: Mutex::new(parts), store }
    }

    pub(super) fn sizes(&mut self) -> Arc<Sizes> {
        self.parts().sizes.clone()
    }

    fn parts(&mut self) -> &mut Parts {
        self.parts.get_mut().expect("the application panicked")
    }
}

impl Parts {
    fn apply(&mut self, (entry, responder): EntryResponder<TypeConfig>) -> Result<(), io::Error> {
        let index = entry.log_id.index();
        match entry.payload {
            EntryPayload::Blank => {}
            EntryPayload::Normal(batch) => {
                let applied = self.app.apply_entry(index, &mut batch.commands());
                applied.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                self.sizes.applied(batch.bytes());
            }
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(entry.log_id), membership);
            }
        }
        self.applied = Some(entry.log_id);
        if let Some(responder) = responder {
            responder.send(());
        }
        Ok(())
    }

    fn notify(&mut self) {
        if let Some(applied) = self.applied {
            (self.on_applied)(applied.index());
        }
    }

    fn restore(&mut self, meta: &SnapshotMeta, data: &[u8]) -> Result<(), io::Error> {
        self.app.restore(data).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.sizes.snapshot_is(data.len());
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.notify();
        Ok(())
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = Bytes;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let parts = self.parts();
        Ok((parts.applied, parts.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + Send,
    {
        while let Some(entry) = entries.try_next().await? {
            self.parts().apply(entry)?;
        }
        self.parts().notify();
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let parts = self.parts();
        let meta = SnapshotMeta { last_log_id: parts.applied, last_membership: parts.membership.clone() };
        let data = parts.app.snapshot();
        parts.sizes.snapshot_is(data.len());
        Builder { snapshot: Snapshot { meta, snapshot: data }, store: self.store.clone() }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, data: Bytes) -> Result<(), io::Error> {
        // At a start it comes from there.
        if self.store.read_snapshot_meta()?.as_ref() != Some(meta) {
            self.store.save_snapshot(meta, data.clone()).await?;
        }
        self.parts().restore(meta, &data)
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        let found = self.store.read_snapshot()?;
        Ok(found.map(|(meta, snapshot)| Snapshot { meta, snapshot }))
    }
}

/// Makes a captured state durable.
pub struct Builder {
    snapshot: Snapshot,
    store: LogStore,
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        self.store.save_snapshot(&self.snapshot.meta, self.snapshot.snapshot.clone()).await?;
        Ok(self.snapshot.clone())
    }
}
