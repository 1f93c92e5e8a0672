//! The ledger's Raft over the mesh: each call and each stream is a channel of the connection between two aggregators.

use crate::cluster::Cluster;
use crate::mesh::Mesh;
use bytes::{BufMut, Bytes, BytesMut};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tidemark_consensus::raft::{CallKind, Duplex, RaftService, RaftTransport, Unreachable};
use tidemark_proto::wire::channel;
use tidemark_transport::Channel;
use tidemark_transport::exchange::{carry, next_only, send_only};

/// Largest frame of Raft: an append request with its entries, or a piece of a snapshot.
pub const RAFT_FRAME_BYTES_MAX: usize = 5 << 20;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Raft's network.
pub struct MeshTransport(pub Mesh);

impl MeshTransport {
    async fn open(&self, target: u64, kind: u8) -> Result<Channel, Unreachable> {
        let unreachable = |reason: String| Unreachable { target, reason };
        let peer = Cluster::of_member(target).ok_or_else(|| unreachable("no such member".into()))?;
        let connection = self.0.connection(peer).ok_or_else(|| unreachable("not connected".into()))?;
        let channel = connection.open_channel(kind).await.map_err(|error| unreachable(error.to_string()))?;
        Ok(with_large_frames(channel))
    }
}

impl RaftTransport for MeshTransport {
    fn call(&self, target: u64, kind: CallKind, request: Bytes) -> BoxFuture<'_, Result<Bytes, Unreachable>> {
        Box::pin(async move {
            let unreachable = |reason: String| Unreachable { target, reason };
            let Channel { mut reader, mut writer } = self.open(target, channel::RAFT_CALL).await?;
            let mut frame = BytesMut::with_capacity(request.len() + 1);
            frame.put_u8(kind as u8);
            frame.put(request);
            send_only(&mut writer, frame.freeze()).await.map_err(|error| unreachable(error.to_string()))?;
            match next_only(&mut reader).await {
                Ok(Some(answer)) => Ok(answer),
                Ok(None) => Err(unreachable("the call was refused".into())),
                Err(error) => Err(unreachable(error.to_string())),
            }
        })
    }

    fn open(&self, target: u64) -> BoxFuture<'_, Result<Duplex, Unreachable>> {
        Box::pin(async move {
            let channel = self.open(target, channel::RAFT_STREAM).await?;
            let (ours, theirs) = Duplex::pair();
            tokio::spawn(carry(theirs.sender, theirs.receiver, channel));
            Ok(ours)
        })
    }
}

fn with_large_frames(mut channel: Channel) -> Channel {
    channel.reader.set_frame_bytes_max(RAFT_FRAME_BYTES_MAX);
    channel.writer.set_frame_bytes_max(RAFT_FRAME_BYTES_MAX);
    channel
}

/// Answers one call; a refused one ends the channel without an answer.
pub async fn serve_raft_call(raft: Arc<dyn RaftService>, from: u64, channel: Channel) {
    let Channel { mut reader, mut writer } = with_large_frames(channel);
    let Ok(Some(mut request)) = next_only(&mut reader).await else { return };
    if request.is_empty() {
        return tracing::warn!(from, "empty call of Raft");
    }
    let kind = request.split_to(1)[0];
    let answer = match CallKind::try_from(kind) {
        Ok(kind) => raft.on_call(from, kind, request).await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(answer) => {
            let _ = send_only(&mut writer, answer).await;
        }
        Err(error) => tracing::debug!(from, %error, "call of Raft refused"),
    }
}

/// Serves one stream until it ends.
pub async fn serve_raft_stream(raft: Arc<dyn RaftService>, from: u64, channel: Channel) {
    let (ours, theirs) = Duplex::pair();
    let carrying = tokio::spawn(carry(theirs.sender, theirs.receiver, with_large_frames(channel)));
    if let Err(error) = raft.on_stream(from, ours).await {
        tracing::debug!(from, %error, "stream of Raft ended");
    }
    carrying.abort();
}
