//! Serves what clients ask on channels of their own: one question to a channel. While an answer is made the client hears so, or it would ask
//! somewhere else.

use std::sync::Arc;
use std::time::Duration;
use tidemark_proto::framed::{Framed, Frames, frames};
use tidemark_transport::exchange::ExchangeError;
use tidemark_transport::{Channel, FrameReader, FrameWriter, SendError};
use tokio::sync::{AcquireError, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// A question that is not answered after this, what it waits for others included, is given up.
pub const ASKED_MAX: Duration = Duration::from_secs(60);
/// A client that has not said its question, or not taken its answer, after this is waited for no more: it is in the way of others.
const SAID_WITHIN: Duration = Duration::from_secs(10);
/// So often a client hears that its answer is being made; it waits several times as long.
const BEING_MADE: Duration = Duration::from_millis(200);

/// Why a client's question was not answered.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    #[error("the question is not said within {} s", SAID_WITHIN.as_secs())]
    NotSaid,
    #[error("the answer is not taken within {} s", SAID_WITHIN.as_secs())]
    NotTaken,
    #[error("this aggregator stops: {0}")]
    Stops(#[from] AcquireError),
    #[error("the task of the answer has ended: {0}")]
    Task(#[from] JoinError),
}

impl From<SendError> for Unanswered {
    fn from(error: SendError) -> Unanswered {
        ExchangeError::from(error).into()
    }
}

/// Serves one channel, once there is room for it.
pub async fn serve<Q, A, F>(channel: Channel, room: Arc<Semaphore>, answer: impl FnOnce(Q) -> F + Send + 'static)
where
    Q: Framed + Send,
    A: Framed,
    F: Future<Output = A> + Send,
{
    match timeout(ASKED_MAX, serve_one(channel, room, answer)).await {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => tracing::debug!(%reason, "question not answered"),
        Err(_) => tracing::debug!("question not answered in time"),
    }
}

/// Refuses any request on one channel. The refusal is delivered, since a client without an answer may take that for a lost connection, and
/// not read.
pub async fn refuse<Q: Framed, A: Framed>(channel: Channel, refusal: &A) {
    let Channel { mut reader, mut writer } = channel;
    let hear = async {
        let mut bytes = 0;
        while let Ok(Some(frame)) = reader.next().await {
            bytes += frame.len();
            if bytes > Q::BYTES_MAX {
                return;
            }
        }
    };
    let answered = async {
        hear.await;
        write(&mut writer, frames(refusal)).await
    };
    match timeout(SAID_WITHIN, answered).await {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => tracing::debug!(%reason, "question not refused"),
        Err(_) => tracing::debug!("question not refused in time"),
    }
}

async fn serve_one<Q, A, F>(
    channel: Channel,
    room: Arc<Semaphore>,
    answer: impl FnOnce(Q) -> F + Send + 'static,
) -> Result<(), Unanswered>
where
    Q: Framed + Send,
    A: Framed,
    F: Future<Output = A> + Send,
{
    let Channel { reader, mut writer } = channel;
    let answering = async move {
        let permit = room.acquire_owned().await?;
        let question = timeout(SAID_WITHIN, asked(reader)).await.map_err(|_| Unanswered::NotSaid)??;
        Ok((permit, frames(&answer(question).await)))
    };
    let (_permit, frames) = heard_of(answering, &mut writer).await?;
    timeout(SAID_WITHIN, write(&mut writer, frames)).await.map_err(|_| Unanswered::NotTaken)??;
    Ok(())
}

/// The answer, made in a task of its own that ends with this one: reading many counters takes its time. Meanwhile the client gets signs of
/// life.
async fn heard_of<T: Send + 'static>(
    making: impl Future<Output = Result<T, Unanswered>> + Send + 'static,
    writer: &mut FrameWriter,
) -> Result<T, Unanswered> {
    let mut task = JoinSet::new();
    task.spawn(making);
    let mut heard = interval(BEING_MADE);
    heard.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(made) = task.join_next() => return made?,
            _ = heard.tick() => writer.send(&[]).await?,
        }
    }
}

async fn asked<Q: Framed>(mut reader: FrameReader) -> Result<Q, ExchangeError> {
    let mut frames = Frames::new();
    while let Some(frame) = reader.next().await? {
        frames.take(&frame).map_err(ExchangeError::malformed)?;
    }
    frames.message().map_err(ExchangeError::malformed)
}

async fn write(writer: &mut FrameWriter, frames: Vec<Vec<u8>>) -> Result<(), SendError> {
    for frame in frames {
        writer.feed_bytes(frame.into()).await?;
    }
    writer.finish().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};
    use tidemark_transport::certs::ClusterCa;
    use tidemark_transport::{Endpoint, EndpointOptions, Identity, PeerName, Role};
    use tokio::time::Instant;

    fn endpoint(ca: &ClusterCa, role: Role) -> Endpoint {
        let loopback: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let identity = Identity::new("demo", "usa-0", role, "one").unwrap();
        Endpoint::bind(loopback, ca.issue(&identity, 1).unwrap(), EndpointOptions::default()).unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_asked_hears_of_an_answer_while_it_is_made_and_it_is_made_no_more_once_nobody_listens() {
        let ca = ClusterCa::generate("demo").unwrap();
        let aggregator = endpoint(&ca, Role::Aggregator);
        let client = endpoint(&ca, Role::Client);
        let peer = PeerName::any("usa-0", Role::Aggregator).unwrap();
        let (asked, accepted) = tokio::join!(client.connect(aggregator.local_addr(), &peer), aggregator.accept());
        let asked = asked.unwrap();
        let accepted = accepted.unwrap().unwrap();
        let mut channel = asked.open_channel(7).await.unwrap();
        channel.writer.send(&[1]).await.unwrap();
        let (_, Channel { mut writer, .. }) = accepted.accept_channel().await.unwrap();
        // Held by what is made.
        let (made, mut ended) = tokio::sync::oneshot::channel::<()>();
        let making = tokio::spawn(async move {
            let forever = async move {
                std::future::pending::<()>().await;
                drop(made);
                Ok(())
            };
            heard_of(forever, &mut writer).await
        });
        let start = Instant::now();
        for _ in 0..4 {
            let frame = channel.reader.next().await.unwrap();
            assert_eq!(frame.as_deref(), Some(&[][..]));
        }
        assert!(start.elapsed() >= 2 * BEING_MADE && ended.try_recv().is_err());
        drop(channel);
        assert!(making.await.unwrap().is_err());
        assert!(ended.await.is_err(), "it was dropped");
    }
}
