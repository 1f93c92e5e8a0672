//! How a snapshot travels: in pieces, each a message of its own, put together at the other end.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::Mutex;

use bytes::Bytes;

use super::transport::ServeError;
use super::wire::{self, SnapshotChunk};

/// A snapshot as the sender holds it.
pub trait SnapshotBody: Send + 'static {
    /// Messages that carry it, made when they are asked for, each with about `piece_bytes` of it.
    fn pieces(self, transfer: u64, piece_bytes: usize) -> impl Iterator<Item = io::Result<Bytes>> + Send;
}

/// Where pieces of snapshots arrive. They may come in any order and from several members.
pub trait SnapshotInbox: Send + Sync + 'static {
    /// The result of putting them together.
    type Body;

    /// Keeps a piece. The first of another transfer replaces what the same member has not finished.
    fn take(&self, from: u64, piece: &[u8]) -> impl Future<Output = Result<(), ServeError>> + Send;

    /// The snapshot, if all of its pieces have come.
    fn finish(&self, from: u64, transfer: u64) -> Result<Self::Body, ServeError>;
}

impl SnapshotBody for Bytes {
    fn pieces(self, transfer: u64, piece_bytes: usize) -> impl Iterator<Item = io::Result<Bytes>> + Send {
        let pieces = self.len().div_ceil(piece_bytes).max(1);
        (0..pieces).map(move |n| {
            let start = n * piece_bytes;
            let end = self.len().min((n + 1) * piece_bytes);
            let total_bytes = self.len() as u64;
            let offset = start as u64;
            Ok(wire::encode(&SnapshotChunk { transfer, total_bytes, offset, data: self.slice(start..end) }))
        })
    }
}

/// Puts snapshots together in memory.
pub(super) struct MemoryInbox {
    message_bytes_max: usize,
    snapshot_bytes_max: usize,
    incoming: Mutex<Incoming>,
}

/// Unfinished snapshot transfers, at most one per sender.
type Incoming = BTreeMap<u64, Transfer>;

struct Transfer {
    id: u64,
    data: Vec<u8>,
    received: BTreeMap<u64, u64>,
}

impl MemoryInbox {
    pub fn new(message_bytes_max: usize, snapshot_bytes_max: usize) -> Self {
        Self { message_bytes_max, snapshot_bytes_max, incoming: Mutex::default() }
    }
}

impl SnapshotInbox for MemoryInbox {
    type Body = Bytes;

    async fn take(&self, from: u64, piece: &[u8]) -> Result<(), ServeError> {
        let chunk: SnapshotChunk = wire::decode(piece, self.message_bytes_max)?;
        let limit = self.snapshot_bytes_max;
        if chunk.total_bytes > limit as u64 {
            return Err(ServeError::TooLong { bytes: chunk.total_bytes as usize, limit });
        }
        let mut incoming = self.incoming.lock().expect("a handler panicked");
        let transfer = incoming.entry(from).or_insert_with(|| Transfer::new(&chunk));
        if transfer.id != chunk.transfer {
            *transfer = Transfer::new(&chunk);
        }
        transfer.take(&chunk)
    }

    fn finish(&self, from: u64, transfer: u64) -> Result<Bytes, ServeError> {
        let found = self.incoming.lock().expect("a handler panicked").remove(&from);
        let data = found.filter(|found| found.id == transfer).and_then(Transfer::finish);
        data.ok_or_else(|| malformed("the snapshot is incomplete"))
    }
}

impl Transfer {
    fn new(chunk: &SnapshotChunk) -> Self {
        Self { id: chunk.transfer, data: vec![0; chunk.total_bytes as usize], received: BTreeMap::new() }
    }

    fn take(&mut self, chunk: &SnapshotChunk) -> Result<(), ServeError> {
        let end = chunk.offset.checked_add(chunk.data.len() as u64).filter(|end| *end <= self.data.len() as u64);
        let end = end.ok_or_else(|| malformed("a piece lies outside of its snapshot"))?;
        self.data[chunk.offset as usize..end as usize].copy_from_slice(&chunk.data);
        self.received.insert(chunk.offset, end);
        Ok(())
    }

    /// The snapshot, if its pieces cover it without a gap.
    fn finish(self) -> Option<Bytes> {
        let covered = self.received.iter().try_fold(
            0,
            |covered, (start, end)| {
                if *start <= covered { Some(covered.max(*end)) } else { None }
            },
        );
        (covered? == self.data.len() as u64).then(|| self.data.into())
    }
}

pub(crate) fn malformed(reason: &str) -> ServeError {
    ServeError::Malformed { reason: reason.to_owned() }
}
