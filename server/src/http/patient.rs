//! A connection to a peer that must take some bytes within [`SEND_TIMEOUT`] whenever bytes are sent. A peer that reads nothing holds
//! buffers and a place among the connections.

use super::SEND_TIMEOUT;
use std::io::{Error, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream that ends when its peer takes nothing.
pub(super) struct Patient<S> {
    stream: S,
    /// Since the peer took nothing.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub fn new(stream: S) -> Patient<S> {
        Patient { stream, stuck: None }
    }

    fn watch<T>(&mut self, context: &mut Context<'_>, written: Poll<Result<T, Error>>) -> Poll<Result<T, Error>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(SEND_TIMEOUT)));
        ready!(stuck.as_mut().poll(context));
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, format!("nothing was taken for {} s", SEND_TIMEOUT.as_secs()))))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.watch(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        this.watch(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_given_up_and_who_is_slow_is_not() {
        let (near, mut far) = duplex(10);
        let mut patient = Patient::new(near);
        let reading = tokio::spawn(async move {
            for _ in 0..5 {
                sleep(SEND_TIMEOUT / 2).await;
                far.read_exact(&mut [0; 10]).await.unwrap();
            }
            far
        });
        patient.write_all(&[7; 60]).await.unwrap();
        let far = reading.await.unwrap();
        assert_eq!(patient.write_all(&[7; 60]).await.unwrap_err().kind(), ErrorKind::TimedOut);
        drop(far);
    }
}
