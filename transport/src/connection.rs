//! A connection to a peer with a proven identity, and the channels on it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{ReadExactError, RecvStream, SendStream, VarInt};
use thiserror::Error;
use tokio::sync::Mutex;

use crate::certs::Identity;
use crate::channel::{Channel, FrameReader, FrameWriter};
use crate::lost::ConnectionLost;

/// QUIC's application error code of an ordinary close; the reason is in the text.
pub(crate) const CLOSE_CODE: VarInt = VarInt::from_u32(0);

/// A channel was not opened or accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChannelError {
    /// The connection is no more.
    #[error(transparent)]
    Lost(#[from] ConnectionLost),
    /// The channel was given up before its kind was said.
    #[error("a channel was given up before its kind was said")]
    NoKind,
}

/// An authenticated connection. Clones are the same connection. It ends when it is closed, when its endpoint is, or when the last clone and
/// the last channel on it are dropped (the peer then sees an empty reason).
#[derive(Clone)]
pub struct Connection {
    quic: quinn::Connection,
    peer: Arc<Identity>,
    frame_bytes_max: usize,
    /// A channel of a kind that has not come yet, kept here so that a cancelled accept does not lose it.
    arriving: Arc<Mutex<Option<(SendStream, RecvStream)>>>,
}

impl Connection {
    pub(crate) fn new(quic: quinn::Connection, peer: Identity, frame_bytes_max: usize) -> Self {
        Self { quic, peer: Arc::new(peer), frame_bytes_max, arriving: Arc::default() }
    }

    /// The peer's identity, by its certificate.
    pub fn peer(&self) -> &Identity {
        &self.peer
    }

    /// From where the peer speaks.
    pub fn remote_addr(&self) -> SocketAddr {
        let addr = self.quic.remote_address();
        SocketAddr::new(addr.ip().to_canonical(), addr.port())
    }

    /// The round trip, smoothed (RFC 9002).
    pub fn rtt(&self) -> Duration {
        self.quic.rtt()
    }

    /// Opens a channel. Waits while the peer has as many open as it allows.
    ///
    /// The peer learns of it at once. `kind` says what is spoken on it; this crate gives it no meaning.
    pub async fn open_channel(&self, kind: u8) -> Result<Channel, ChannelError> {
        let (mut send, recv) = self.quic.open_bi().await.map_err(ConnectionLost::from)?;
        match send.write_all(&[kind]).await {
            Ok(()) => Ok(self.channel(send, recv)),
            Err(quinn::WriteError::ConnectionLost(error)) => Err(ConnectionLost::from(error).into()),
            Err(_) => Err(ChannelError::NoKind),
        }
    }

    /// The next channel that the peer opened, and its kind. A channel that it gave up before that is passed over. May be cancelled without
    /// losing one.
    pub async fn accept_channel(&self) -> Result<(u8, Channel), ChannelError> {
        loop {
            match self.accept_next().await {
                Err(ChannelError::NoKind) => {}
                accepted => return accepted,
            }
        }
    }

    async fn accept_next(&self) -> Result<(u8, Channel), ChannelError> {
        let mut arriving = self.arriving.lock().await;
        if arriving.is_none() {
            *arriving = Some(self.quic.accept_bi().await.map_err(ConnectionLost::from)?);
        }
        let (_, recv) = arriving.as_mut().expect("it was put there");
        let mut kind = [0];
        let read = recv.read_exact(&mut kind).await;
        let (send, recv) = arriving.take().expect("it was put there");
        match read {
            Ok(()) => Ok((kind[0], self.channel(send, recv))),
            Err(ReadExactError::ReadError(quinn::ReadError::ConnectionLost(error))) => {
                Err(ConnectionLost::from(error).into())
            }
            Err(_) => Err(ChannelError::NoKind),
        }
    }

    /// Closes the connection with all its channels; the peer is told the reason, cut to a datagram. A connection that was lost before stays
    /// lost for its own reason.
    pub fn close(&self, reason: &str) {
        if self.quic.close_reason().is_some() {
            return;
        }
        self.quic.close(CLOSE_CODE, reason.as_bytes());
    }

    /// Waits until the connection is no more.
    pub async fn closed(&self) -> ConnectionLost {
        self.quic.closed().await.into()
    }

    fn channel(&self, send: SendStream, recv: RecvStream) -> Channel {
        Channel {
            writer: FrameWriter::new(send, self.frame_bytes_max),
            reader: FrameReader::new(recv, self.frame_bytes_max),
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({} at {})", self.peer, self.remote_addr())
    }
}
