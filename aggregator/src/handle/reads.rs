//! Serves reads: any number of requests per channel, each of many counters, answered from the view under its lock. Requests that have come
//! together are sent together to the holders of their parts; a read that waits for the ledger, or longer than a moment for a holder, is
//! answered later, behind others.

use super::Aggregator;
use super::edges;
use super::health::BarrierError;
use super::queries;
use super::waits;
use crate::held::HeldError;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tidemark_proto::ids::CounterName;
use tidemark_proto::msg::Reading;
use tidemark_proto::number_table::NumberTable;
use tidemark_proto::read::{
    READ_COUNTERS_MAX, READ_NUMBERS_MAX, ReadError, ReadRequest, ReadResponse, ReadValue, ReadValues,
};
use tidemark_proto::wire::{self, channel};
use tidemark_transport::exchange::ExchangeError;
use tidemark_transport::{Channel, Connection, FrameReader, FrameWriter, SendError};

/// Counters of requests of one channel that wait for others, or for the ledger, while further ones are answered. With as many no more are
/// read.
const LATE_COUNTERS_MAX: usize = 4 * READ_COUNTERS_MAX;

/// Serves the channels of reads, of questions, of changes of edges and of waits of a client's connection until it ends.
pub async fn serve(connection: Connection, aggregator: Aggregator) {
    let waits = waits::Room::new();
    while let Ok((kind, channel)) = connection.accept_channel().await {
        if kind == channel::READS {
            tokio::spawn(serve_channel(channel, aggregator.clone()));
        } else if kind == channel::QUERIES {
            tokio::spawn(queries::serve(channel, aggregator.clone()));
        } else if kind == channel::EDGES {
            tokio::spawn(edges::serve(channel, aggregator.clone(), connection.peer().clone()));
        } else if kind == channel::AWARDS {
            waits.serve(channel, aggregator.clone());
        } else {
            tracing::debug!(kind, peer = %connection.peer(), "channel refused");
        }
    }
}

async fn serve_channel(channel: Channel, aggregator: Aggregator) {
    let Channel { mut reader, mut writer } = channel;
    let mut names = Names(NumberTable::new(None));
    let mut late = FuturesUnordered::new();
    let mut has_ended = false;
    let mut waiting = 0;
    while !(has_ended && late.is_empty()) {
        let requests = tokio::select! {
            Some((counters, response)) = late.next(), if !late.is_empty() => {
                waiting -= counters;
                if let Err(reason) = write(vec![response], &mut writer, &aggregator).await {
                    return tracing::debug!(%reason, "read channel ended");
                }
                continue;
            }
            frame = reader.next(), if !has_ended && waiting < LATE_COUNTERS_MAX => match frame {
                Ok(Some(frame)) => take(frame, &mut reader, &mut names, &aggregator),
                _ => {
                    has_ended = true;
                    continue;
                }
            },
        };
        let written = match requests {
            Err(reason) => Err(reason.into()),
            Ok(requests) => {
                let (responses, left) = answer(requests, &aggregator).await;
                waiting += left.iter().map(Request::weight).sum::<usize>();
                left.into_iter().for_each(|request| late.push(request.answer_late(&aggregator)));
                write(responses, &mut writer, &aggregator).await
            }
        };
        if let Err(reason) = written {
            return tracing::debug!(%reason, "read channel ended");
        }
    }
}

/// A request and those that have come behind it, as far as they are answered together.
fn take(
    frame: Bytes,
    reader: &mut FrameReader,
    names: &mut Names,
    aggregator: &Aggregator,
) -> Result<Vec<Request>, ExchangeError> {
    let mut next = Some(frame);
    let mut requests = Vec::new();
    let mut counters = 0;
    while let Some(frame) = next {
        let request: ReadRequest = wire::decode(&frame).map_err(ExchangeError::malformed)?;
        counters += request.numbers.len().max(1);
        requests.push(Request::of(request, names, aggregator));
        next = if counters < READ_COUNTERS_MAX { reader.next_ready()? } else { None };
    }
    Ok(requests)
}

/// Why a channel of reads has ended.
#[derive(Debug, thiserror::Error)]
enum ReadsEnd {
    #[error("the ledger does not know yet that this view has started: ask again")]
    NotShown,
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    #[error(transparent)]
    Send(#[from] SendError),
}

/// Writes with one flush.
async fn write(
    responses: Vec<ReadResponse>,
    writer: &mut FrameWriter,
    aggregator: &Aggregator,
) -> Result<(), ReadsEnd> {
    // Readers go on at the other one of the pair.
    if !aggregator.shows() {
        return Err(ReadsEnd::NotShown);
    }
    for response in responses {
        writer.feed_bytes(wire::encode(&response).into()).await?;
    }
    Ok(writer.flush().await?)
}

struct Request {
    id: u64,
    asked: Asked,
}

enum Asked {
    Answered(Result<ReadValues, ReadError>),
    /// Others may hold some of it.
    Parts(Vec<CounterName>),
    Strong(Vec<CounterName>),
}

impl Request {
    /// Learns the names that come with it. Where all is held here it is answered at once.
    fn of(request: ReadRequest, names: &mut Names, aggregator: &Aggregator) -> Request {
        let ReadRequest { id, strong, defs, numbers } = request;
        defs.into_iter().for_each(|(number, counter)| names.define(number, counter));
        let counters: Result<Vec<&CounterName>, ReadError> = numbers.iter().map(|&number| names.get(number)).collect();
        let all = |counters: Vec<&CounterName>| counters.into_iter().cloned().collect();
        let asked = match counters {
            Err(error) => Asked::Answered(Err(error)),
            Ok(counters) if strong => Asked::Strong(all(counters)),
            Ok(counters) if aggregator.is_split() => Asked::Parts(all(counters)),
            Ok(counters) => Asked::Answered(Ok(values(aggregator.get_many(counters.into_iter())))),
        };
        Request { id, asked }
    }

    /// The counters that it asks for together with others.
    fn parts(&self) -> &[CounterName] {
        match &self.asked {
            Asked::Parts(counters) => counters,
            Asked::Answered(_) | Asked::Strong(_) => &[],
        }
    }

    /// The weight of a request while it waits.
    fn weight(&self) -> usize {
        match &self.asked {
            Asked::Parts(counters) | Asked::Strong(counters) => counters.len().max(1),
            Asked::Answered(_) => 1,
        }
    }

    /// With the readings of its parts, unless some are missing.
    fn answer(self, readings: Option<Vec<Reading>>) -> Result<ReadResponse, Request> {
        match (self.asked, readings) {
            (Asked::Answered(result), _) => Ok(ReadResponse { id: self.id, result }),
            (Asked::Parts(_), Some(readings)) => Ok(ReadResponse { id: self.id, result: Ok(values(readings)) }),
            (asked, _) => Err(Request { asked, ..self }),
        }
    }

    /// By itself, however long that takes; with what it counted for.
    async fn answer_late(self, aggregator: &Aggregator) -> (usize, ReadResponse) {
        let weight = self.weight();
        let read = match self.asked {
            Asked::Answered(result) => return (weight, ReadResponse { id: self.id, result }),
            Asked::Parts(counters) => aggregator.read_many(&counters).await.map_err(Unread::from),
            Asked::Strong(counters) => read_strong(&counters, aggregator).await,
        };
        (weight, ReadResponse { id: self.id, result: read.map(values).map_err(Unread::refusal) })
    }
}

/// Why counters are not read.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error(transparent)]
    Barrier(#[from] BarrierError),
    #[error(transparent)]
    Held(#[from] HeldError),
}

impl Unread {
    fn refusal(self) -> ReadError {
        ReadError::NotServing(self.to_string())
    }
}

async fn read_strong(counters: &[CounterName], aggregator: &Aggregator) -> Result<Vec<Reading>, Unread> {
    let not_before = aggregator.read_barrier().await?;
    Ok(aggregator.read_not_before(counters, not_before).await?)
}

/// Counters by the numbers that this channel gave them.
struct Names(NumberTable<Option<CounterName>>);

impl Names {
    fn define(&mut self, number: u32, counter: CounterName) {
        debug_assert!(number < READ_NUMBERS_MAX, "checked when decoded");
        self.0.set(number, Some(counter));
    }

    fn get(&self, number: u32) -> Result<&CounterName, ReadError> {
        self.0.get(number).as_ref().ok_or(ReadError::UnknownNumber(number))
    }
}

/// Answers the requests that can be answered now, and gives back the rest. For all requests, each other holder is asked once.
async fn answer(requests: Vec<Request>, aggregator: &Aggregator) -> (Vec<ReadResponse>, Vec<Request>) {
    let counters: Vec<CounterName> = requests.iter().flat_map(Request::parts).cloned().collect();
    let readings = if counters.is_empty() { Vec::new() } else { aggregator.read_at_once(&counters).await };
    let mut readings = readings.into_iter();
    let mut responses = Vec::new();
    let mut left = Vec::new();
    for request in requests {
        let own: Vec<Option<Reading>> = readings.by_ref().take(request.parts().len()).collect();
        match request.answer(own.into_iter().collect()) {
            Ok(response) => responses.push(response),
            Err(request) => left.push(request),
        }
    }
    (responses, left)
}

fn values(readings: Vec<Reading>) -> ReadValues {
    let ledger_index = readings.iter().map(|reading| reading.ledger_index).min().unwrap_or(0);
    ReadValues { ledger_index, values: readings.into_iter().map(ReadValue::from).collect() }
}
