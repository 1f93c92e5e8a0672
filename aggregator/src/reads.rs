//! Serves reads: any number of requests per channel, each of many counters, answered from the view under its lock.

use crate::handle::Aggregator;
use crate::waits;
use bytes::Bytes;
use tidemark_proto::ids::{CounterName, LogIndex};
use tidemark_proto::msg::Reading;
use tidemark_proto::read::{READ_NUMBERS_MAX, ReadError, ReadRequest, ReadResponse, ReadValue, ReadValues};
use tidemark_proto::wire::{self, channel};
use tidemark_transport::{Channel, Connection, FrameReader, FrameWriter};

/// Serves the channels of reads and of waits of a client's connection until it ends.
pub async fn serve(connection: Connection, aggregator: Aggregator) {
    let waits = waits::Room::new();
    while let Ok((kind, channel)) = connection.accept_channel().await {
        if kind == channel::READS {
            tokio::spawn(serve_channel(channel, aggregator.clone()));
        } else if kind == channel::AWARDS {
            waits.serve(channel, aggregator.clone());
        } else {
            tracing::debug!(kind, peer = %connection.peer(), "channel refused");
        }
    }
}

async fn serve_channel(channel: Channel, aggregator: Aggregator) {
    let Channel { mut reader, mut writer } = channel;
    let mut names = Names::default();
    while let Ok(Some(frame)) = reader.next().await {
        if let Err(reason) = answer_all(frame, &mut reader, &mut writer, &mut names, &aggregator).await {
            return tracing::debug!(%reason, "read channel ended");
        }
    }
}

/// Answers a request and those that have come behind it, with one flush.
async fn answer_all(
    frame: Bytes,
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
    names: &mut Names,
    aggregator: &Aggregator,
) -> Result<(), String> {
    let mut next = Some(frame);
    while let Some(frame) = next {
        let request: ReadRequest = wire::decode(&frame).map_err(|error| error.to_string())?;
        let response = answer(request, names, aggregator).await;
        // Readers go on at the other one of the pair.
        if !aggregator.shows() {
            return Err("this view has not been heard of by the ledger since it started".to_owned());
        }
        writer.feed_bytes(wire::encode(&response).into()).await.map_err(|error| error.to_string())?;
        next = reader.next_ready().map_err(|error| error.to_string())?;
    }
    writer.flush().await.map_err(|error| error.to_string())
}

/// Counters by the numbers that this channel gave them.
#[derive(Default)]
struct Names(Vec<Option<CounterName>>);

impl Names {
    fn define(&mut self, number: u32, counter: CounterName) {
        debug_assert!(number < READ_NUMBERS_MAX, "checked when decoded");
        let at = number as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        self.0[at] = Some(counter);
    }

    fn get(&self, number: u32) -> Result<&CounterName, ReadError> {
        self.0.get(number as usize).and_then(Option::as_ref).ok_or(ReadError::UnknownNumber(number))
    }
}

async fn answer(request: ReadRequest, names: &mut Names, aggregator: &Aggregator) -> ReadResponse {
    let ReadRequest { id, strong, defs, numbers } = request;
    defs.into_iter().for_each(|(number, counter)| names.define(number, counter));
    let not_before = match strong {
        true => aggregator.read_barrier().await,
        false => Ok(LogIndex(0)),
    };
    let not_before = match not_before {
        Ok(index) => index,
        Err(reason) => return ReadResponse { id, result: Err(ReadError::NotServing(reason)) },
    };
    let counters: Result<Vec<&CounterName>, ReadError> = numbers.iter().map(|&number| names.get(number)).collect();
    let result = match counters {
        Ok(counters) if !aggregator.is_split() => Ok(values(aggregator.get_many(counters.into_iter()))),
        Ok(counters) => {
            let counters: Vec<CounterName> = counters.into_iter().cloned().collect();
            let read = aggregator.read_not_before(&counters, not_before).await;
            read.map(values).map_err(|error| ReadError::NotServing(error.to_string()))
        }
        Err(error) => Err(error),
    };
    ReadResponse { id, result }
}

fn values(readings: Vec<Reading>) -> ReadValues {
    let ledger_index = readings.iter().map(|reading| reading.ledger_index).min().unwrap_or(0);
    ReadValues { ledger_index, values: readings.into_iter().map(ReadValue::from).collect() }
}
