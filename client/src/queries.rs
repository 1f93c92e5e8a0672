//! Asks aggregators what is more than values: each question on a channel of its own. If the aggregator is lost, or says nothing for long,
//! the next one is asked, within the caller's time. A repeated question does no harm: it changes nothing, or has a number by which it is
//! known.

use crate::channel_end::ChannelEnd;
use crate::error::{AskError, ChangeError, in_vain};
use crate::reads::{RECONNECT, SILENCE, SILENCE_WITH_OTHERS, reach};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidemark_proto::edge_changes::{EdgesAnswer, EdgesRefusal};
use tidemark_proto::framed::{Framed, Frames, frames};
use tidemark_proto::ledger::EdgesAsked;
use tidemark_proto::queries::{QueryAnswer, QueryRefusal, QueryRequest};
use tidemark_proto::wire::{WireError, channel};
use tidemark_transport::{Channel, Connection, Endpoint, FrameReader, FrameWriter, HostPort, PeerName};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tracing::debug;

#[derive(Debug)]
pub(crate) enum Queries {
    Quic(Aggregators),
    Fake,
    Nowhere,
}

/// Aggregators that can be asked, in order of preference.
#[derive(Debug)]
pub(crate) struct Aggregators {
    endpoint: Endpoint,
    all: Vec<Site>,
    /// The one that answered last.
    present: AtomicUsize,
}

#[derive(Debug)]
struct Site {
    addr: HostPort,
    peer: PeerName,
    /// Made when it is first needed, and kept while it works.
    connection: Mutex<Option<Arc<Connection>>>,
}

/// A question on a channel of its own.
pub(crate) trait Question: Framed {
    type Answer: Framed;

    /// The channel's kind.
    const KIND: u8;

    /// Whether it goes round again where none can say it: what is in the way is over soon.
    const GOES_ROUND: bool;

    /// Why the aggregator that was asked cannot say it, where another one may.
    fn not_here(answer: &Self::Answer) -> Option<NotHere>;
}

/// Why one aggregator does not say it.
pub(crate) struct NotHere {
    why: String,
    /// It may have done what it was asked for, or do it yet.
    may_do_it: bool,
}

/// An answer.
pub(crate) struct Answered<A> {
    pub answer: A,
    /// Another one that was asked may do it, or have done it.
    pub others_may_do_it: bool,
}

/// Why a question has no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// It is beyond a limit.
    Limit(WireError),
    Fake,
    Nowhere,
    /// No reachable aggregator has the answer; the reason of the last one.
    NotServing(String),
    /// Of the last one that was asked in vain, why.
    Timeout {
        millis: u64,
        last: String,
        may_do_it: bool,
    },
}

impl From<Unanswered> for AskError {
    fn from(unanswered: Unanswered) -> AskError {
        match unanswered {
            Unanswered::Limit(error) => AskError::Limit(error),
            Unanswered::Fake => AskError::Fake,
            Unanswered::Nowhere => AskError::NoAggregator,
            Unanswered::NotServing(why) => AskError::NotServing(why),
            Unanswered::Timeout { millis, last, .. } => AskError::Timeout { millis, last },
        }
    }
}

impl From<Unanswered> for ChangeError {
    fn from(unanswered: Unanswered) -> ChangeError {
        match unanswered {
            Unanswered::Limit(error) => ChangeError::Limit(error),
            Unanswered::Fake => ChangeError::Fake,
            Unanswered::Nowhere => ChangeError::NoAggregator,
            Unanswered::NotServing(why) => ChangeError::Unknown(why),
            Unanswered::Timeout { millis, last, may_do_it: false } => ChangeError::Timeout { millis, last },
            Unanswered::Timeout { millis, last, .. } => {
                ChangeError::Unknown(format!("no answer within {millis} ms{}", in_vain(&last)))
            }
        }
    }
}

impl Question for QueryRequest {
    type Answer = QueryAnswer;

    const KIND: u8 = channel::QUERIES;
    const GOES_ROUND: bool = false;

    fn not_here(answer: &QueryAnswer) -> Option<NotHere> {
        match answer {
            QueryAnswer::Refused(QueryRefusal::NotServing(why)) => Some(NotHere { why: why.clone(), may_do_it: false }),
            QueryAnswer::AsOf(_)
            | QueryAnswer::Series(_)
            | QueryAnswer::Top(_)
            | QueryAnswer::Relatives(_)
            | QueryAnswer::Refused(_) => None,
        }
    }
}

impl Question for EdgesAsked {
    type Answer = EdgesAnswer;

    const KIND: u8 = channel::EDGES;
    /// An election.
    const GOES_ROUND: bool = true;

    fn not_here(answer: &EdgesAnswer) -> Option<NotHere> {
        match answer {
            EdgesAnswer::Refused(refusal @ EdgesRefusal::NotServing(_)) => {
                Some(NotHere { why: refusal.to_string(), may_do_it: false })
            }
            EdgesAnswer::Refused(refusal @ EdgesRefusal::InDoubt) => {
                Some(NotHere { why: refusal.to_string(), may_do_it: true })
            }
            EdgesAnswer::Made(_) | EdgesAnswer::Refused(_) => None,
        }
    }
}

/// The results of aggregators that have not answered.
#[derive(Default)]
struct Vain {
    /// The last one, and why.
    last: String,
    /// One of them may do the request, or have done it.
    may_do_it: bool,
}

impl Queries {
    pub fn quic(endpoint: Endpoint, aggregators: Vec<(HostPort, PeerName)>) -> Queries {
        if aggregators.is_empty() {
            return Queries::Nowhere;
        }
        let site = |(addr, peer)| Site { addr, peer, connection: Mutex::default() };
        Queries::Quic(Aggregators { endpoint, all: aggregators.into_iter().map(site).collect(), present: 0.into() })
    }

    /// Asks within a time.
    pub async fn ask<Q: Question>(&self, question: &Q, within: Duration) -> Result<Answered<Q::Answer>, Unanswered> {
        question.validate().map_err(Unanswered::Limit)?;
        let aggregators = match self {
            Queries::Quic(aggregators) => aggregators,
            Queries::Fake => return Err(Unanswered::Fake),
            Queries::Nowhere => return Err(Unanswered::Nowhere),
        };
        let mut vain = Vain::default();
        let millis = within.as_millis() as u64;
        let asked = timeout(within, aggregators.ask(question, &mut vain)).await;
        let Vain { last, may_do_it } = vain;
        match asked {
            Ok(Ok(answer)) => Ok(Answered { answer, others_may_do_it: may_do_it }),
            Ok(Err(NotHere { why, .. })) => Err(Unanswered::NotServing(why)),
            Err(_) => Err(Unanswered::Timeout { millis, last, may_do_it }),
        }
    }
}

impl Aggregators {
    /// Until one has answered. Error: of those that can be reached none can; of the last one, why.
    async fn ask<Q: Question>(&self, question: &Q, vain: &mut Vain) -> Result<Q::Answer, NotHere> {
        let frames: Vec<Bytes> = frames(question).into_iter().map(Bytes::from).collect();
        loop {
            let first = self.present.load(Ordering::Relaxed);
            let mut not_here = None;
            for at in (0..self.all.len()).map(|nth| (first + nth) % self.all.len()) {
                match self.ask_one::<Q>(&self.all[at], &frames, vain).await {
                    Ok(answer) => match Q::not_here(&answer) {
                        Some(said) => {
                            vain.may_do_it |= said.may_do_it;
                            vain.last = format!("{}: {}", self.all[at].addr, said.why);
                            not_here = Some(said);
                        }
                        None => {
                            self.present.store(at, Ordering::Relaxed);
                            return Ok(answer);
                        }
                    },
                    Err(error) => {
                        debug!(addr = %self.all[at].addr, %error, "a question goes on at the next aggregator");
                        vain.last = format!("{}: {error}", self.all[at].addr);
                    }
                }
            }
            if let Some(why) = not_here.filter(|_| !Q::GOES_ROUND) {
                return Err(why);
            }
            tokio::time::sleep(RECONNECT).await;
        }
    }

    async fn ask_one<Q: Question>(
        &self,
        site: &Site,
        question: &[Bytes],
        vain: &mut Vain,
    ) -> Result<Q::Answer, ChannelEnd> {
        let others = self.all.len() > 1;
        let connection = site.reach(&self.endpoint, others).await.ok_or(ChannelEnd::NotReached)?;
        let silence = if others { SILENCE_WITH_OTHERS } else { SILENCE };
        let asked = async {
            let channel = open::<Q>(&connection, silence).await?;
            // Until it has answered.
            let before = std::mem::replace(&mut vain.may_do_it, true);
            let answer = ask_on(channel, question, silence).await?;
            vain.may_do_it = before;
            Ok(answer)
        };
        let answer = asked.await;
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
            *connection = reach(endpoint, &self.addr, &self.peer, others).await.map(Arc::new);
        }
        connection.clone()
    }

    /// Unless it is another one by now. Questions that are under way on it go on.
    async fn forget(&self, lost: &Arc<Connection>) {
        self.connection.lock().await.take_if(|present| Arc::ptr_eq(present, lost));
    }
}

async fn open<Q: Question>(connection: &Connection, silence: Duration) -> Result<Channel, ChannelEnd> {
    let busy = |_| ChannelEnd::Busy { within: silence };
    Ok(timeout(silence, connection.open_channel(Q::KIND)).await.map_err(busy)??)
}

async fn ask_on<A: Framed>(channel: Channel, question: &[Bytes], silence: Duration) -> Result<A, ChannelEnd> {
    let Channel { writer, reader } = channel;
    let ((), answer) = tokio::try_join!(send(writer, question), hear(reader, silence))?;
    Ok(answer)
}

async fn send(mut writer: FrameWriter, question: &[Bytes]) -> Result<(), ChannelEnd> {
    for frame in question {
        writer.feed_bytes(frame.clone()).await?;
    }
    Ok(writer.finish().await?)
}

/// An answering aggregator sends a sign of life now and then; an aggregator without one is lost.
async fn hear<A: Framed>(mut reader: FrameReader, silence: Duration) -> Result<A, ChannelEnd> {
    let mut answer = Frames::new();
    let silent = |_| ChannelEnd::Silent { within: silence };
    while let Some(frame) = timeout(silence, reader.next()).await.map_err(silent)?? {
        answer.take(&frame)?;
    }
    match answer.is_empty() {
        true => Err(ChannelEnd::NotAnswered),
        false => Ok(answer.message()?),
    }
}
