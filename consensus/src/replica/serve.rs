//! The messages for a member, once it is clear that they are for this member.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use openraft::Raft;

use super::envelope::Envelope;
use super::keeper::{Bearing, on_greeting};
use super::leadership::Voice;
use super::machine::Machine;
use super::rows::{Rows, RowsInbox};
use crate::raft::log_store::LogStore;
use crate::raft::serve::{Server, stopped};
use crate::raft::snapshot::malformed;
use crate::raft::types::TypeConfig;
use crate::raft::{CallKind, Config, Duplex, RaftService, ServeError};

pub(super) struct Service {
    member: u64,
    voice: Arc<Voice>,
    raft: Raft<TypeConfig, Machine>,
    store: LogStore,
    /// Whether this member takes part; before, it answers greetings only.
    is_sure: Arc<AtomicBool>,
    bearing: Arc<Bearing>,
    server: Server<Machine, RowsInbox>,
}

impl Service {
    pub fn new(
        voice: Arc<Voice>,
        raft: Raft<TypeConfig, Machine>,
        rows: Rows,
        is_sure: Arc<AtomicBool>,
        bearing: Arc<Bearing>,
        config: &Config,
    ) -> Self {
        let store = rows.store().clone();
        let inbox = RowsInbox::new(rows, config.message_bytes_max, config.snapshot_bytes_max);
        let server = Server::new(raft.clone(), config.message_bytes_max, inbox);
        Self { member: voice.member(), voice, raft, store, is_sure, bearing, server }
    }

    fn admit(&self, sender: u64, kind: Option<CallKind>, sealed: &Bytes) -> Result<(u64, Bytes), ServeError> {
        let (envelope, message) = Envelope::open(sender, sealed)?;
        let is_greeting = kind == Some(CallKind::Greet);
        match () {
            () if !envelope.is_for(self.member, is_greeting) => {
                Err(ServeError::NotMe { target: envelope.to, own: self.member })
            }
            () if !is_greeting && !self.is_sure.load(Ordering::Acquire) => Err(ServeError::Unsure),
            () => Ok((envelope.from, message)),
        }
    }

    async fn answer(&self, from: u64, kind: CallKind, message: Bytes) -> Result<Bytes, ServeError> {
        match kind {
            CallKind::Greet => on_greeting(&self.bearing, &self.raft, &self.store, from, &message).await,
            CallKind::Knows => Err(ServeError::NotServed { kind }),
            CallKind::Append
            | CallKind::Vote
            | CallKind::PreVote
            | CallKind::SnapshotChunk
            | CallKind::SnapshotInstall
            | CallKind::TransferLeader
            | CallKind::ReadIndex => self.server.on_call(from, kind, message).await,
        }
    }
}

impl Service {
    /// A task that serves a message holds the file: that ends with the member.
    async fn while_it_runs<T>(&self, serving: BoxFuture<'_, Result<T, ServeError>>) -> Result<T, ServeError> {
        tokio::select! {
            biased;
            () = self.voice.silenced() => Err(stopped("it was told to")),
            served = serving => served,
        }
    }
}

impl RaftService for Service {
    fn on_call(&self, sender: u64, kind: CallKind, request: Bytes) -> BoxFuture<'_, Result<Bytes, ServeError>> {
        async move {
            let (from, message) = self.admit(sender, Some(kind), &request)?;
            self.while_it_runs(self.answer(from, kind, message).boxed()).await
        }
        .boxed()
    }

    fn on_stream(&self, sender: u64, mut duplex: Duplex) -> BoxFuture<'_, Result<(), ServeError>> {
        async move {
            let header = duplex.receiver.recv().await.ok_or_else(|| malformed("a stream without envelope"))?;
            let (from, _) = self.admit(sender, None, &header)?;
            self.while_it_runs(self.server.on_stream(from, duplex)).await
        }
        .boxed()
    }
}
