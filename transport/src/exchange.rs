//! Channels as calls, and as two queues of messages: what logs that are replicated need of a network.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::channel::{Channel, FrameReader, FrameWriter, ReceiveError, SendError};
use crate::connection::ChannelError;

/// Why a question on a channel has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// The channel was not opened.
    #[error(transparent)]
    Open(#[from] ChannelError),
    /// A frame was not sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// A frame was not received.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// The frames are no message, or a message beyond a limit.
    #[error("malformed message: {reason}")]
    Malformed {
        /// The fault.
        reason: String,
    },
    /// The peer has ended the channel without a message.
    #[error("the channel has ended without a message")]
    Ended,
}

impl ExchangeError {
    /// What the frames are not, in the words of their decoder: this crate never looks into a frame.
    pub fn malformed(error: impl ToString) -> ExchangeError {
        ExchangeError::Malformed { reason: error.to_string() }
    }
}

/// Sends the one frame of its direction, with the end of that: one datagram, not two.
pub async fn send_only(writer: &mut FrameWriter, frame: Bytes) -> Result<(), SendError> {
    writer.feed_bytes(frame).await?;
    writer.finish().await
}

/// The one frame of its direction. Its end, which came with it, is taken as well: a reader that has not seen the end asks the peer
/// to send no more.
pub async fn next_only(reader: &mut FrameReader) -> Result<Option<Bytes>, ReceiveError> {
    let frame = reader.next().await?;
    let mut end = pin!(reader.next());
    poll_fn(|context| {
        let _ = end.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
    Ok(frame)
}

/// The next frame, where a message must come.
pub async fn next_message(reader: &mut FrameReader) -> Result<Bytes, ExchangeError> {
    reader.next().await?.ok_or(ExchangeError::Ended)
}

/// Carries messages between two queues and a channel until either ends.
pub fn carry(
    sender: mpsc::Sender<Bytes>,
    receiver: mpsc::Receiver<Bytes>,
    channel: Channel,
) -> impl Future<Output = ()> {
    let Channel { reader, writer } = channel;
    async move {
        tokio::select! {
            () = carry_out(receiver, writer) => {}
            () = carry_in(sender, reader) => {}
        }
    }
}

async fn carry_out(mut receiver: mpsc::Receiver<Bytes>, mut writer: FrameWriter) {
    while let Some(message) = receiver.recv().await {
        if writer.send_bytes(message).await.is_err() {
            return;
        }
    }
}

async fn carry_in(sender: mpsc::Sender<Bytes>, mut reader: FrameReader) {
    while let Ok(Some(message)) = reader.next().await {
        if sender.send(message).await.is_err() {
            return;
        }
    }
}
