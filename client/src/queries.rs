//! Asks aggregators what is more than values: each question on a channel of its own. Reading changes nothing, so a question whose aggregator is lost,
//! or says nothing for long, is asked again of the next one, within the caller's time.

use crate::error::AskError;
use crate::reads::{RECONNECT, SILENCE, SILENCE_WITH_OTHERS, reach};
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidemark_proto::queries::{Frames, QueryAnswer, QueryRefusal, QueryRequest, frames};
use tidemark_proto::wire::{Message, channel};
use tidemark_transport::{Channel, Connection, Endpoint, FrameReader, FrameWriter, PeerName};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tracing::debug;

#[derive(Debug)]
pub(crate) enum Queries {
    Quic(Aggregators),
    Fake,
    Nowhere,
}

/// Those that can be asked, in order of preference.
#[derive(Debug)]
pub(crate) struct Aggregators {
    endpoint: Endpoint,
    all: Vec<Site>,
    /// The one that answered last.
    present: AtomicUsize,
}

#[derive(Debug)]
struct Site {
    addr: SocketAddr,
    peer: PeerName,
    /// Made when it is first needed, and kept while it works.
    connection: Mutex<Option<Arc<Connection>>>,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl Queries {
    pub fn quic(endpoint: Endpoint, aggregators: Vec<(SocketAddr, PeerName)>) -> Queries {
        if aggregators.is_empty() {
            return Queries::Nowhere;
        }
        let site = |(addr, peer)| Site { addr, peer, connection: Mutex::default() };
        Queries::Quic(Aggregators { endpoint, all: aggregators.into_iter().map(site).collect(), present: 0.into() })
    }

    /// Asks within a time. What is refused is an error.
    pub async fn ask(&self, request: &QueryRequest, within: Duration) -> Result<QueryAnswer, AskError> {
        request.validate()?;
        let aggregators = match self {
            Queries::Quic(aggregators) => aggregators,
            Queries::Fake => return Err(AskError::Fake),
            Queries::Nowhere => return Err(AskError::NoAggregator),
        };
        let question: Vec<Bytes> = frames(request).into_iter().map(Bytes::from).collect();
        let mut last = String::new();
        let millis = within.as_millis() as u64;
        match timeout(within, aggregators.ask(&question, &mut last)).await {
            Ok(answer) => answer,
            Err(_) => Err(AskError::Timeout { millis, last }),
        }
    }
}

impl Aggregators {
    /// Until one has answered, or all that can be reached do not serve. Says of the last one that has not why.
    async fn ask(&self, question: &[Bytes], last: &mut String) -> Result<QueryAnswer, AskError> {
        loop {
            let (first, mut not_serving) = (self.present.load(Ordering::Relaxed), None);
            for at in (0..self.all.len()).map(|nth| (first + nth) % self.all.len()) {
                match self.ask_one(&self.all[at], question).await {
                    Ok(QueryAnswer::Refused(refusal)) if refusal.is_of_this_aggregator() => {
                        not_serving = Some(refusal);
                    }
                    Ok(QueryAnswer::Refused(refusal)) => return Err(refusal.into()),
                    Ok(answer) => {
                        self.present.store(at, Ordering::Relaxed);
                        return Ok(answer);
                    }
                    Err(error) => {
                        debug!(addr = %self.all[at].addr, %error, "a question goes on at the next aggregator");
                        *last = format!("{}: {error}", self.all[at].addr);
                    }
                }
            }
            if let Some(refusal) = not_serving {
                return Err(refusal.into());
            }
            tokio::time::sleep(RECONNECT).await;
        }
    }

    async fn ask_one(&self, site: &Site, question: &[Bytes]) -> Result<QueryAnswer, Failed> {
        let others = self.all.len() > 1;
        let connection = site.reach(&self.endpoint, others).await.ok_or("it cannot be reached")?;
        let silence = if others { SILENCE_WITH_OTHERS } else { SILENCE };
        let answer = ask_on(&connection, question, silence).await;
        if answer.is_err() {
            site.forget(&connection).await;
        }
        answer
    }
}

impl Site {
    async fn reach(&self, endpoint: &Endpoint, others: bool) -> Option<Arc<Connection>> {
        let mut connection = self.connection.lock().await;
        if connection.is_none() {
            *connection = reach(endpoint, self.addr, &self.peer, others).await.map(Arc::new);
        }
        connection.clone()
    }

    /// Unless it is another one by now. Questions that are under way on it go on.
    async fn forget(&self, lost: &Arc<Connection>) {
        self.connection.lock().await.take_if(|present| Arc::ptr_eq(present, lost));
    }
}

async fn ask_on(connection: &Connection, question: &[Bytes], silence: Duration) -> Result<QueryAnswer, Failed> {
    let channel = timeout(silence, connection.open_channel(channel::QUERIES)).await.map_err(|_| "it is too busy")??;
    let Channel { writer, reader } = channel;
    let ((), answer) = tokio::try_join!(send(writer, question), hear(reader, silence))?;
    Ok(answer)
}

async fn send(mut writer: FrameWriter, question: &[Bytes]) -> Result<(), Failed> {
    for frame in question {
        writer.feed_bytes(frame.clone()).await?;
    }
    Ok(writer.finish().await?)
}

/// Who answers says something now and then; one that does not is lost.
async fn hear(mut reader: FrameReader, silence: Duration) -> Result<QueryAnswer, Failed> {
    let mut answer = Frames::of_answer();
    while let Some(frame) = timeout(silence, reader.next()).await.map_err(|_| "it says nothing")?? {
        answer.take(&frame)?;
    }
    match answer.is_empty() {
        true => Err("it does not answer such questions".into()),
        false => Ok(answer.message()?),
    }
}

impl From<QueryRefusal> for AskError {
    fn from(refusal: QueryRefusal) -> AskError {
        match refusal {
            QueryRefusal::Query(error) => AskError::Query(error),
            QueryRefusal::Zone(zone) => AskError::UnknownZone(zone),
            QueryRefusal::UnknownNamespace(namespace) => AskError::UnknownNamespace(namespace),
            QueryRefusal::NotServing(reason) => AskError::NotServing(reason),
        }
    }
}
