//! Dialling a process of the cluster: attempts that overlap until one is answered, and the writer of a connection.

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::time::Duration;
use tidemark_transport::certs::NameError;
use tidemark_transport::{ConnectError, FrameWriter, HostPort};
use tokio::sync::mpsc;

const WRITER_BATCH: usize = 64;
/// While a peer does not answer, another attempt begins so often beside those before it: QUIC sends the first datagram of one again only
/// after 1 s, then after 2 and 4 more. A data centre that is back would have to wait for the next datagram.
const ATTEMPT_EVERY: Duration = Duration::from_millis(250);
/// An attempt without an answer is given up after this, so that eight at most are under way to a peer. A handshake takes two to
/// three round trips: up to 0.6 s are fast enough.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);

/// Why an aggregator was not reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DialError {
    #[error("the layout has no such aggregator")]
    Missing,
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{found} answers at {address}, which is for {expected}")]
    Another { found: String, address: HostPort, expected: String },
}

impl DialError {
    /// Whether no address was dialled, as a host name does not resolve.
    pub fn is_unresolved(&self) -> bool {
        matches!(self, DialError::Connect(error) if error.is_unresolved())
    }
}

/// The result of the first attempt that is answered, of as many attempts as it takes.
pub(crate) async fn until_answered<T, E, F: Future<Output = Result<T, E>>>(attempt: impl Fn() -> F) -> Result<T, E> {
    let mut attempts = FuturesUnordered::new();
    let mut due = tokio::time::interval(ATTEMPT_EVERY);
    loop {
        tokio::select! {
            biased;
            Some(ended) = attempts.next() => {
                if let Ok(answered) = ended {
                    return answered;
                }
            }
            _ = due.tick() => attempts.push(tokio::time::timeout(ATTEMPT_MAX, attempt())),
        }
    }
}

/// Writes what is queued, as many frames per flush as there are.
pub async fn write_all(mut writer: FrameWriter, mut frames: mpsc::Receiver<Bytes>) {
    let mut batch = Vec::with_capacity(WRITER_BATCH);
    while frames.recv_many(&mut batch, WRITER_BATCH).await > 0 {
        for frame in batch.drain(..) {
            if writer.feed_bytes(frame).await.is_err() {
                return;
            }
        }
        if writer.flush().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attempts begun before `back` are never answered.
    async fn reached_after(back: Duration, round_trips: Duration) -> Duration {
        let from = tokio::time::Instant::now();
        let attempt = || async move {
            if from.elapsed() < back {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(round_trips).await;
            Ok::<_, ()>(())
        };
        until_answered(attempt).await.unwrap();
        from.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_is_back_is_reached_at_once_even_if_it_is_far_away() {
        let back = Duration::from_secs(300) + Duration::from_millis(1);
        let round_trips = Duration::from_millis(750);
        assert!(reached_after(back, round_trips).await <= back + ATTEMPT_EVERY + round_trips);
        assert_eq!(reached_after(Duration::ZERO, round_trips).await, round_trips, "the first attempt is made at once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_an_answer() {
        let refused = until_answered(|| async { Err::<(), _>("refused") }).await;
        assert_eq!(refused, Err("refused"));
    }
}
