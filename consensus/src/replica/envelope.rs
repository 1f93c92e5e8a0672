//! From member to member over a transport that knows nodes: each message says for which member it is, and from which.
//!
//! A node whose disk was lost comes back as another member. Messages for the earlier member, and messages from it, are refused.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::identity::node_of;
use crate::raft::snapshot::malformed;
use crate::raft::{CallKind, Duplex, RaftTransport, ServeError, Unreachable};

const HEADER_BYTES: usize = 16;

/// The sender and the addressee of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    pub from: u64,
    pub to: u64,
}

impl Envelope {
    /// Whether it reached its addressee; `any_disk`: a greeting may be for any member on the node, which it says by naming the node with no
    /// disk.
    pub fn is_for(self, member: u64, any_disk: bool) -> bool {
        self.to == member || any_disk && self.to == super::member_id(node_of(member), 0)
    }

    pub fn seal(self, message: &[u8]) -> Bytes {
        let mut sealed = BytesMut::with_capacity(HEADER_BYTES + message.len());
        sealed.put_u64_le(self.from);
        sealed.put_u64_le(self.to);
        sealed.put_slice(message);
        sealed.freeze()
    }

    /// Splits a message from node `sender`, as the transport has authenticated it.
    pub fn open(sender: u64, sealed: &Bytes) -> Result<(Self, Bytes), ServeError> {
        let Some((header, _)) = sealed.split_first_chunk::<HEADER_BYTES>() else {
            return Err(malformed("a message without envelope"));
        };
        let (from, to) = header.split_at(size_of::<u64>());
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("half of the header"));
        let envelope = Self { from: number(from), to: number(to) };
        if u64::from(node_of(envelope.from)) != sender {
            return Err(ServeError::Impostor { from: sender, claimed: envelope.from });
        }
        Ok((envelope, sealed.slice(HEADER_BYTES..)))
    }
}

/// Carries messages of `member` to others; see the module.
pub(super) struct Post {
    pub member: u64,
    pub nodes: Arc<dyn RaftTransport>,
}

impl RaftTransport for Post {
    fn call(&self, target: u64, kind: CallKind, request: Bytes) -> BoxFuture<'_, Result<Bytes, Unreachable>> {
        let sealed = Envelope { from: self.member, to: target }.seal(&request);
        self.nodes.call(node_of(target).into(), kind, sealed)
    }

    fn open(&self, target: u64) -> BoxFuture<'_, Result<Duplex, Unreachable>> {
        async move {
            let duplex = self.nodes.open(node_of(target).into()).await?;
            let header = Envelope { from: self.member, to: target }.seal(&[]);
            let sent = duplex.sender.send(header).await;
            sent.map_err(|_| Unreachable { target, reason: "the stream ended at once".into() })?;
            Ok(duplex)
        }
        .boxed()
    }
}
