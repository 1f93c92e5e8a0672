//! A connection that fails once its client has read too little for a time, so that unread answers do not stay in memory.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Bytes that a client reads in the time at least, if so many are left. Fewer do not begin the time anew.
const READ_BYTES_MIN: usize = 256 << 10;

pub struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    timer: Pin<Box<Sleep>>,
    /// A write was pending, and the timer runs.
    is_waiting: bool,
    /// Bytes that were written since.
    written: usize,
}

impl<S> WriteTimeout<S> {
    pub fn new(stream: S, timeout: Duration) -> WriteTimeout<S> {
        WriteTimeout { stream, timeout, timer: Box::pin(tokio::time::sleep(timeout)), is_waiting: false, written: 0 }
    }

    /// Counts what was written.
    fn wrote(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.written += bytes;
            self.is_waiting &= self.written < READ_BYTES_MIN;
            return written;
        }
        self.waited(written, cx)
    }

    /// All is written.
    fn done(&mut self, done: Poll<io::Result<()>>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_waiting &= done.is_pending();
        self.waited(done, cx)
    }

    /// Fails a write that has been pending for too long.
    fn waited<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            return written;
        }
        if !self.is_waiting {
            self.timer.as_mut().reset(Instant::now() + self.timeout);
            self.is_waiting = true;
            self.written = 0;
        }
        ready!(self.timer.as_mut().poll(cx));
        let message = format!("the client read less than {READ_BYTES_MIN} bytes in {} s", self.timeout.as_secs());
        Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, message)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.done(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.done(shut, cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const BYTES: [u8; 64] = [7; 64];
    const TIMEOUT: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn write_to_a_client_that_does_not_read_fails() {
        let (ours, theirs) = tokio::io::duplex(16);
        let mut ours = WriteTimeout::new(ours, TIMEOUT);
        let written = tokio::time::timeout(Duration::from_secs(60), ours.write_all(&BYTES)).await;
        assert_eq!(written.expect("it waits for ever").unwrap_err().kind(), ErrorKind::TimedOut);
        drop(theirs);
    }

    #[tokio::test]
    async fn write_to_a_client_that_reads_slowly_fails() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut ours = WriteTimeout::new(ours, TIMEOUT);
        let reading = tokio::spawn(async move {
            let mut byte = [0];
            while theirs.read_exact(&mut byte).await.is_ok() {
                tokio::time::sleep(TIMEOUT / 4).await;
            }
        });
        let written = tokio::time::timeout(Duration::from_secs(60), ours.write_all(&BYTES)).await;
        assert_eq!(written.expect("it waits for ever").unwrap_err().kind(), ErrorKind::TimedOut);
        drop(ours);
        reading.await.unwrap();
    }

    #[tokio::test]
    async fn answer_to_a_client_that_reads_is_written() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut ours = WriteTimeout::new(ours, Duration::from_secs(60));
        let reading = tokio::spawn(async move {
            let mut read = [0; BYTES.len()];
            theirs.read_exact(&mut read).await.map(|_| read)
        });
        ours.write_all(&BYTES).await.unwrap();
        assert_eq!(reading.await.unwrap().unwrap(), BYTES);
    }
}
