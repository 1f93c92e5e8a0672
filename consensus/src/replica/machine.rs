//! openraft's view of the state machine: what is committed goes to its owner, and what the owner persisted is the snapshot.

use std::io;
use std::sync::{Arc, OnceLock};

use futures_util::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, RaftSnapshotBuilder};

use super::Position;
use super::leadership::Voice;
use super::rows::{Image, Rows};
use super::tables::{Checkpoint, founder_of};
use crate::raft::MetricsWatch;
use crate::raft::types::{LogId, SnapshotMeta, SnapshotOf, StoredMembership, TypeConfig};

/// See the module.
pub struct Machine {
    pub(super) rows: Rows,
    pub(super) voice: Arc<Voice>,
    /// Set before anything is applied. A handle on the member would keep it alive.
    pub(super) metrics: Arc<OnceLock<MetricsWatch>>,
    pub(super) applied: Option<LogId>,
    pub(super) membership: Arc<StoredMembership>,
    pub(super) commands: u64,
    /// The group, once its first entry was applied.
    pub(super) founder: Option<u64>,
}

impl Machine {
    async fn take(&mut self, (entry, responder): EntryResponder<TypeConfig>) -> Result<(), io::Error> {
        let log_id = entry.log_id;
        let by = *log_id.committed_leader_id();
        match entry.payload {
            EntryPayload::Blank => self.voice.blank(self.metrics.get(), by, log_id.index()).await,
            EntryPayload::Membership(membership) => {
                self.founder = self.founder.or_else(|| founder_of(membership.voter_ids()));
                self.membership = Arc::new(StoredMembership::new(Some(log_id), membership));
            }
            EntryPayload::Normal(batch) => {
                self.commands += batch.commands().count() as u64;
                self.voice.committed(by, self.position(log_id), batch).await;
            }
        }
        if self.voice.owner_has_gone() {
            return Err(io::Error::other("the owner of the rows has gone"));
        }
        self.applied = Some(log_id);
        if let Some(responder) = responder {
            responder.send(());
        }
        Ok(())
    }

    fn position(&self, log_id: LogId) -> Position {
        let membership = self.membership.clone();
        let generation = self.rows.generation();
        Position { log_id, membership, commands: self.commands, founder: self.founder, generation }
    }
}

fn meta(checkpoint: &Checkpoint) -> SnapshotMeta {
    SnapshotMeta { last_log_id: Some(checkpoint.log_id), last_membership: checkpoint.membership.clone() }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = Image;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.applied, StoredMembership::clone(&self.membership)))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + Send,
    {
        while let Some(entry) = entries.try_next().await? {
            self.take(entry).await?;
        }
        Ok(())
    }

    /// There is none before the first checkpoint.
    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<Builder> {
        matches!(self.rows.image(), Ok(Some(_)) | Err(_)).then(|| Builder(self.rows.clone()))
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder(self.rows.clone())
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, image: Image) -> Result<(), io::Error> {
        let (Image::Staged(staged), Some(log_id)) = (image, meta.last_log_id) else {
            return Err(io::Error::other("a snapshot to install is another member's and not empty"));
        };
        let membership = meta.last_membership.clone();
        let commands = staged.commands;
        let founder = staged.founder;
        let checkpoint = Checkpoint { log_id, membership: membership.clone(), commands, founder };
        self.rows.install(staged, checkpoint).await?;
        (self.applied, self.membership) = (meta.last_log_id, Arc::new(membership));
        (self.commands, self.founder) = (commands, founder);
        self.voice.restored(self.position(log_id)).await;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf<Image>>, io::Error> {
        let found = self.rows.image()?;
        Ok(found.map(|(checkpoint, image)| SnapshotOf { meta: meta(&checkpoint), snapshot: image }))
    }
}

/// Says what the last checkpoint stands for: there is nothing to build.
pub struct Builder(Rows);

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = Image;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<Image>, io::Error> {
        let (checkpoint, image) = self.0.image()?.ok_or_else(|| io::Error::other("no checkpoint is complete"))?;
        Ok(SnapshotOf { meta: meta(&checkpoint), snapshot: image })
    }
}
