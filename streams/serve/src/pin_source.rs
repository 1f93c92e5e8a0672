//! Where the state comes from that a query is answered from: the owner of this process, or a manifest that is followed.

use crate::following::{Following, StaleFeed};
use crate::messages::{Message, Pin, PinError, Pinned};
use crate::names::{Names, PresentNames};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use tidemark_streams_core::time::HourRange;
use tokio::sync::oneshot;

pub enum PinSource {
    Owner(OwnerPins),
    Follower(Arc<Following>),
}

/// The thread that owns the partition, in this process.
pub struct OwnerPins {
    pub engine: SyncSender<Message>,
    pub names: Arc<PresentNames>,
}

/// Why nothing is pinned.
#[derive(Debug, thiserror::Error)]
pub enum PinFailure {
    #[error("the owner has too many messages")]
    Overloaded,
    #[error("the owner's thread has ended")]
    Ended,
    #[error(transparent)]
    Refused(#[from] PinError),
    #[error(transparent)]
    Stale(#[from] StaleFeed),
}

impl PinSource {
    /// Pins the rows of a tenant in a range of hours.
    ///
    /// # Errors
    /// [`PinFailure`].
    pub async fn pin(&self, tenant: &str, hours: HourRange) -> Result<Pinned, PinFailure> {
        match self {
            PinSource::Owner(owner) => owner.pin(tenant, hours).await,
            PinSource::Follower(following) => Ok(following.pin(tenant, hours).await?),
        }
    }

    /// Whether a state behind a pinned one is there, in a moment: then a query with a missing blob is pinned again.
    pub async fn has_successor_of(&self, pinned: &Pinned) -> bool {
        match self {
            // It has one, unless the file was lost: the owner removes files behind the commits that replace their blobs.
            PinSource::Owner(_) => true,
            PinSource::Follower(following) => following.has_successor_of(pinned).await,
        }
    }

    /// So often a query is pinned again because a blob of it is missing.
    pub fn pins_again_max(&self) -> u32 {
        match self {
            // A second miss is damage: the owner knows of each blob that was replaced.
            PinSource::Owner(_) => 1,
            PinSource::Follower(_) => 3,
        }
    }

    /// Whether a missing blob may come back, in a later state or in a copy of the folder that is behind.
    pub fn is_follower(&self) -> bool {
        match self {
            PinSource::Owner(_) => false,
            PinSource::Follower(_) => true,
        }
    }

    pub fn names(&self) -> Names {
        match self {
            PinSource::Owner(owner) => owner.names.get(),
            PinSource::Follower(following) => following.names(),
        }
    }
}

impl OwnerPins {
    async fn pin(&self, tenant: &str, hours: HourRange) -> Result<Pinned, PinFailure> {
        let (sender, receiver) = oneshot::channel();
        let pin = Pin { tenant: tenant.to_owned(), hours, answer: sender };
        self.engine.try_send(Message::Pin(pin)).map_err(|_| PinFailure::Overloaded)?;
        Ok(receiver.await.map_err(|_| PinFailure::Ended)??)
    }
}
