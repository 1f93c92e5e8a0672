//! A node that holds no log of a group says so: the group is not founded anew while a silent node might hold it.

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::envelope::Envelope;
use super::keeper::{Edition, Greeted};
use super::member_id;
use crate::raft::{CallKind, Duplex, RaftService, ServeError, wire};

/// Answers in the place of a member, on a node that has none; greetings only.
#[derive(Clone, Copy, Debug)]
pub struct Absent {
    /// Number of the node in its data centre.
    pub node: u32,
    /// How many nodes there ever were by the layout that it goes by, and how many of them are gone.
    pub nodes: u32,
    pub gone: u32,
}

impl Absent {
    fn answer(self, sender: u64, kind: CallKind, request: &Bytes) -> Result<Bytes, ServeError> {
        let own = member_id(self.node, 0);
        let (envelope, _) = Envelope::open(sender, request)?;
        match kind {
            _ if !envelope.is_for(own, false) => Err(ServeError::NotMe { target: envelope.to, own }),
            CallKind::Greet => {
                let Absent { node, nodes, gone } = self;
                Ok(wire::encode(&Greeted::by_none(node, Edition { nodes, gone })))
            }
            CallKind::Append
            | CallKind::Vote
            | CallKind::PreVote
            | CallKind::SnapshotChunk
            | CallKind::SnapshotInstall
            | CallKind::TransferLeader
            | CallKind::Knows
            | CallKind::ReadIndex => Err(ServeError::NotServed { kind }),
        }
    }
}

impl RaftService for Absent {
    fn on_call(&self, sender: u64, kind: CallKind, request: Bytes) -> BoxFuture<'_, Result<Bytes, ServeError>> {
        async move { self.answer(sender, kind, &request) }.boxed()
    }

    fn on_stream(&self, _sender: u64, _duplex: Duplex) -> BoxFuture<'_, Result<(), ServeError>> {
        async { Err(ServeError::Unsure) }.boxed()
    }
}
