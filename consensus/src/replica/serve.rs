//! What arrives for a member, once it is clear that it is for this one.

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use openraft::Raft;

use super::envelope::Envelope;
use super::machine::Machine;
use super::rows::{Rows, RowsInbox};
use crate::raft::serve::Server;
use crate::raft::snapshot::malformed;
use crate::raft::types::TypeConfig;
use crate::raft::{CallKind, Config, Duplex, RaftService, ServeError};

pub(super) struct Service {
    member: u64,
    server: Server<Machine, RowsInbox>,
}

impl Service {
    pub fn new(member: u64, raft: Raft<TypeConfig, Machine>, rows: Rows, config: &Config) -> Self {
        let inbox = RowsInbox::new(rows, config.message_bytes_max, config.snapshot_bytes_max);
        Self { member, server: Server::new(raft, config.message_bytes_max, inbox) }
    }

    fn admit(&self, sender: u64, sealed: &Bytes) -> Result<(u64, Bytes), ServeError> {
        let (Envelope { from, to }, message) = Envelope::open(sender, sealed)?;
        match to == self.member {
            true => Ok((from, message)),
            false => Err(ServeError::NotMe { target: to, own: self.member }),
        }
    }
}

impl RaftService for Service {
    fn on_call(&self, sender: u64, kind: CallKind, request: Bytes) -> BoxFuture<'_, Result<Bytes, ServeError>> {
        async move {
            let (from, message) = self.admit(sender, &request)?;
            self.server.on_call(from, kind, message).await
        }
        .boxed()
    }

    fn on_stream(&self, sender: u64, mut duplex: Duplex) -> BoxFuture<'_, Result<(), ServeError>> {
        async move {
            let header = duplex.receiver.recv().await.ok_or_else(|| malformed("a stream without envelope"))?;
            let (from, _) = self.admit(sender, &header)?;
            self.server.on_stream(from, duplex).await
        }
        .boxed()
    }
}
