//! Calls between the processes around aggregators: one question to another data centre and its answer, each a channel of the connection
//! between the two. The meaning of the question is the affair of those processes.

use crate::mesh::Mesh;
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tidemark_proto::ids::DcId;
use tidemark_proto::wire::channel;
use tidemark_transport::Channel;
use tidemark_transport::exchange::{ExchangeError, next_message, send_only};
use tokio::sync::Semaphore;

/// Bytes of a question or of its answer. More: the call is refused.
pub const CALL_BYTES_MAX: usize = 8 * 1024;
/// Calls of all data centres that are answered at a time. More are refused.
pub const CALLS_MAX: usize = 1_024;
/// Calls of this process to one data centre at a time. The ledger's messages share the connection, and its number of channels.
pub const CALLS_PER_PEER_MAX: usize = 64;
/// A call that is not answered after this is given up by the answering aggregator.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Answers other data centres' calls.
pub trait PeerService: Send + Sync {
    /// The answer, or `None` to refuse.
    fn on_call(&self, from: DcId, question: Bytes) -> Pin<Box<dyn Future<Output = Option<Bytes>> + Send + '_>>;
}

/// Why another data centre's call was not answered.
#[derive(Debug, thiserror::Error)]
enum AnswerError {
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    #[error("refused")]
    Refused,
}

/// Why a call has no answer. It may have been carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It was not.
    #[error("the data centre cannot be reached from here at present")]
    NotConnected,
    /// It was not.
    #[error("{limit} calls to the data centre are under way")]
    Busy { limit: usize },
    /// It was not.
    #[error("a call of {bytes} bytes: at most {CALL_BYTES_MAX} allowed")]
    TooLong { bytes: usize },
    #[error("the data centre refused the call")]
    Refused,
    #[error("the connection to the data centre was lost: {0}")]
    Lost(String),
    #[error("the data centre did not answer in time")]
    Late,
}

/// The service for the calls of others.
#[derive(Clone)]
pub(crate) struct Calls {
    service: Arc<dyn PeerService>,
    permits: Arc<Semaphore>,
}

impl Calls {
    pub fn new(service: Arc<dyn PeerService>) -> Calls {
        Calls { service, permits: Arc::new(Semaphore::new(CALLS_MAX)) }
    }

    /// Answers one call; a refused one ends the channel without an answer.
    pub async fn serve(self, from: DcId, channel: Channel) {
        let Ok(_permit) = self.permits.try_acquire() else {
            return tracing::warn!(from = from.0, limit = CALLS_MAX, "call refused: as many are under way");
        };
        let answered = tokio::time::timeout(ANSWER_MAX, self.answer(from, channel)).await;
        match answered {
            Ok(Ok(())) => {}
            Ok(Err(reason)) => tracing::debug!(from = from.0, %reason, "call not answered"),
            Err(_) => tracing::debug!(from = from.0, "call not answered in time"),
        }
    }

    async fn answer(&self, from: DcId, channel: Channel) -> Result<(), AnswerError> {
        let Channel { mut reader, mut writer } = channel;
        reader.set_frame_bytes_max(CALL_BYTES_MAX);
        let question = next_message(&mut reader).await?;
        let answer = self.service.on_call(from, question).await.ok_or(AnswerError::Refused)?;
        send_only(&mut writer, answer).await.map_err(ExchangeError::from)?;
        Ok(())
    }
}

/// The calls of this process under way, by data centre.
pub(crate) struct Calling(Vec<Semaphore>);

impl Calling {
    pub fn new(dcs: usize) -> Calling {
        Calling((0..dcs).map(|_| Semaphore::new(CALLS_PER_PEER_MAX)).collect())
    }

    /// Asks a data centre.
    pub async fn call(&self, mesh: &Mesh, dc: DcId, question: Bytes, within: Duration) -> Result<Bytes, CallError> {
        let permits = self.0.get(usize::from(dc.0)).ok_or(CallError::NotConnected)?;
        let _permit = permits.try_acquire().map_err(|_| CallError::Busy { limit: CALLS_PER_PEER_MAX })?;
        call(mesh, dc, question, within).await
    }
}

async fn call(mesh: &Mesh, dc: DcId, question: Bytes, within: Duration) -> Result<Bytes, CallError> {
    if question.len() > CALL_BYTES_MAX {
        return Err(CallError::TooLong { bytes: question.len() });
    }
    let connection = mesh.connection_to(dc).ok_or(CallError::NotConnected)?;
    let asked = async {
        let lost = |error: String| CallError::Lost(error);
        let channel = connection.open_channel(channel::CALL).await.map_err(|error| lost(error.to_string()))?;
        let Channel { mut reader, mut writer } = channel;
        reader.set_frame_bytes_max(CALL_BYTES_MAX);
        writer.feed_bytes(question).await.map_err(|error| lost(error.to_string()))?;
        writer.finish().await.map_err(|error| lost(error.to_string()))?;
        let answer = reader.next().await.map_err(|error| lost(error.to_string()))?;
        answer.ok_or(CallError::Refused)
    };
    tokio::time::timeout(within, asked).await.unwrap_or(Err(CallError::Late))
}
