//! A channel: frames in both directions on one QUIC stream, in order, with the reader's pace holding the writer back.

use bytes::{BufMut, Bytes, BytesMut};
use quinn::{RecvStream, SendStream, VarInt};
use thiserror::Error;

use crate::frame::{self, FrameDecoder, FrameError, PREFIX_BYTES};
use crate::lost::ConnectionLost;

/// Frames are gathered up to about this many bytes before they are handed to QUIC, unless flushed before.
pub const WRITE_BATCH_BYTES: usize = 32 * 1024;
/// Larger frames are handed on without a copy.
const COPY_BYTES_MAX: usize = 4 * 1024;
/// Chunks taken from QUIC at once.
const READ_CHUNKS: usize = 32;
/// Error code of a stream that was left in the middle of a frame.
const ABANDONED: VarInt = VarInt::from_u32(1);

const _: () = assert!(COPY_BYTES_MAX < WRITE_BATCH_BYTES);

/// A frame was not sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SendError {
    /// The frame is too large. Nothing was sent, the channel is as before.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer does not read this channel any more.
    #[error("the peer does not read this channel any more")]
    Stopped,
    /// The channel was finished here.
    #[error("the channel was finished here")]
    Finished,
    /// The connection is no more.
    #[error(transparent)]
    Lost(#[from] ConnectionLost),
}

/// No frame was received.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReceiveError {
    /// The peer sent something that is no frame. The channel is of no further use.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer gave the channel up in the middle.
    #[error("the peer gave the channel up")]
    Abandoned,
    /// The connection is no more.
    #[error(transparent)]
    Lost(#[from] ConnectionLost),
}

/// Both directions of a channel. Take them apart to use them from two tasks.
#[derive(Debug)]
pub struct Channel {
    /// To the peer.
    pub writer: FrameWriter,
    /// From the peer.
    pub reader: FrameReader,
}

/// Sends frames.
///
/// A frame is *fed*, that is gathered, and goes out with the next flush: [`send`](Self::send) flushes,
/// [`feed`](Self::feed) does so only when [`WRITE_BATCH_BYTES`] have gathered. Both wait while the peer, or the
/// network, takes no more. Cancelled, they may leave the frame gathered: it goes out with the next flush, whole.
///
/// Dropped, the channel ends where it stands; frames that were gathered and not flushed make it [`Abandoned`](ReceiveError::Abandoned) for
/// the peer.
#[derive(Debug)]
pub struct FrameWriter {
    stream: SendStream,
    limit: usize,
    /// Small frames and prefixes, after those in `ready`.
    gathered: BytesMut,
    /// To be written, in order.
    ready: Vec<Bytes>,
    ready_bytes: usize,
}

impl FrameWriter {
    pub(crate) fn new(stream: SendStream, limit: usize) -> Self {
        Self { stream, limit, gathered: BytesMut::new(), ready: Vec::new(), ready_bytes: 0 }
    }

    /// Changes the largest frame that is sent, in bytes.
    pub fn set_frame_bytes_max(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Feeds a frame and flushes.
    pub async fn send(&mut self, frame: &[u8]) -> Result<(), SendError> {
        self.put(frame)?;
        self.flush().await
    }

    /// Feeds a frame and flushes; a large one is not copied.
    pub async fn send_bytes(&mut self, frame: Bytes) -> Result<(), SendError> {
        self.put_bytes(frame)?;
        self.flush().await
    }

    /// Feeds a frame. The cheap way to send many.
    pub async fn feed(&mut self, frame: &[u8]) -> Result<(), SendError> {
        self.put(frame)?;
        self.flush_if_full().await
    }

    /// Feeds a frame; a large one is not copied.
    pub async fn feed_bytes(&mut self, frame: Bytes) -> Result<(), SendError> {
        self.put_bytes(frame)?;
        self.flush_if_full().await
    }

    /// Hands all that has gathered to QUIC, which sends it when it may.
    pub async fn flush(&mut self) -> Result<(), SendError> {
        self.seal();
        while !self.ready.is_empty() {
            let written = self.stream.write_chunks(&mut self.ready).await.map_err(write_error)?;
            self.ready.drain(..written.chunks);
            self.ready_bytes -= written.bytes;
        }
        Ok(())
    }

    /// Flushes and ends this direction: the peer sees `None` after the last frame.
    pub async fn finish(&mut self) -> Result<(), SendError> {
        self.flush().await?;
        self.stream.finish().map_err(|_| SendError::Finished)
    }

    /// Waits until the peer has all there is, or reads no more, after [`finish`](Self::finish).
    pub async fn delivered(&mut self) -> Result<(), SendError> {
        match self.stream.stopped().await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(SendError::Stopped),
            Err(quinn::StoppedError::ConnectionLost(error)) => Err(ConnectionLost::from(error).into()),
            Err(quinn::StoppedError::ZeroRttRejected) => unreachable!("0-RTT is off"),
        }
    }

    /// Bytes gathered and not yet handed to QUIC.
    pub fn buffered(&self) -> usize {
        self.ready_bytes + self.gathered.len()
    }

    async fn flush_if_full(&mut self) -> Result<(), SendError> {
        if self.buffered() >= WRITE_BATCH_BYTES { self.flush().await } else { Ok(()) }
    }

    fn put(&mut self, frame: &[u8]) -> Result<(), SendError> {
        let prefix = frame::prefix(frame.len(), self.limit)?;
        self.gathered.reserve(PREFIX_BYTES + frame.len());
        self.gathered.put_slice(&prefix);
        self.gathered.put_slice(frame);
        Ok(())
    }

    fn put_bytes(&mut self, frame: Bytes) -> Result<(), SendError> {
        if frame.len() <= COPY_BYTES_MAX {
            return self.put(&frame);
        }
        self.gathered.put_slice(&frame::prefix(frame.len(), self.limit)?);
        self.seal();
        self.ready_bytes += frame.len();
        self.ready.push(frame);
        Ok(())
    }

    fn seal(&mut self) {
        if !self.gathered.is_empty() {
            self.ready_bytes += self.gathered.len();
            self.ready.push(self.gathered.split().freeze());
        }
    }
}

impl Drop for FrameWriter {
    fn drop(&mut self) {
        if self.buffered() > 0 {
            // Fails if the stream is over already, which is as well.
            let _ = self.stream.reset(ABANDONED);
        }
    }
}

/// Receives frames. Dropped, it tells the peer to send no more.
#[derive(Debug)]
pub struct FrameReader {
    stream: RecvStream,
    decoder: FrameDecoder,
    chunks: [Bytes; READ_CHUNKS],
    ended: bool,
}

impl FrameReader {
    pub(crate) fn new(stream: RecvStream, limit: usize) -> Self {
        Self { stream, decoder: FrameDecoder::new(limit), chunks: std::array::from_fn(|_| Bytes::new()), ended: false }
    }

    /// Changes the largest frame that is taken, in bytes, from the next frame on.
    pub fn set_frame_bytes_max(&mut self, limit: usize) {
        self.decoder.set_limit(limit);
    }

    /// The next frame, or `None` when the peer has finished. May be cancelled without losing one.
    ///
    /// The frame may be a slice of a received datagram, which it keeps in memory: copy what is small and kept long.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ReceiveError> {
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok(Some(frame));
            }
            if self.ended {
                self.decoder.finish()?;
                return Ok(None);
            }
            self.fill().await?;
        }
    }

    /// The next frame if it has been received already, without waiting: to take many at once.
    pub fn next_ready(&mut self) -> Result<Option<Bytes>, ReceiveError> {
        Ok(self.decoder.next_frame()?)
    }

    async fn fill(&mut self) -> Result<(), ReceiveError> {
        let read = self.stream.read_chunks(&mut self.chunks).await.map_err(read_error)?;
        self.ended = read.is_none();
        for chunk in &mut self.chunks[..read.unwrap_or(0)] {
            self.decoder.push(std::mem::take(chunk));
        }
        Ok(())
    }
}

fn write_error(error: quinn::WriteError) -> SendError {
    match error {
        quinn::WriteError::Stopped(_) => SendError::Stopped,
        quinn::WriteError::ClosedStream => SendError::Finished,
        quinn::WriteError::ConnectionLost(error) => SendError::Lost(error.into()),
        quinn::WriteError::ZeroRttRejected => unreachable!("0-RTT is off"),
    }
}

fn read_error(error: quinn::ReadError) -> ReceiveError {
    match error {
        quinn::ReadError::Reset(_) | quinn::ReadError::ClosedStream => ReceiveError::Abandoned,
        quinn::ReadError::ConnectionLost(error) => ReceiveError::Lost(error.into()),
        quinn::ReadError::IllegalOrderedRead => unreachable!("all reads are ordered"),
        quinn::ReadError::ZeroRttRejected => unreachable!("0-RTT is off"),
    }
}
