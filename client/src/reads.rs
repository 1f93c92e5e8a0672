//! Reads, pipelined: single reads of all callers that wait at one moment go in one request, and answers are taken as they come.
//!
//! Reading changes nothing, so after a lost connection a request is simply asked again, at the next site in order.

use crate::channel_end::ChannelEnd;
use crate::error::GetError;
use crate::fake::FakeCluster;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;
use tidemark_proto::ids::CounterName;
use tidemark_proto::msg::Reading;
use tidemark_proto::read::*;
use tidemark_proto::wire::{self, channel};
use tidemark_transport::{Channel, Connection, Endpoint, FrameReader, FrameWriter, HostPort, PeerName};
use tokio::sync::{Notify, oneshot};
use tracing::debug;

/// Pause between attempts to reach an aggregator.
pub(crate) const RECONNECT: Duration = Duration::from_millis(200);
/// A channel on which requests wait for so long without any answer is given up.
pub(crate) const SILENCE: Duration = Duration::from_secs(2);
/// The same where there is another aggregator to ask, and nothing waits that has to go through the ledger.
pub(crate) const SILENCE_WITH_OTHERS: Duration = Duration::from_millis(750);
/// Where there is another aggregator, one that is not reached after this is not waited for.
pub(crate) const REACH_MAX: Duration = Duration::from_secs(1);

type Answer = Result<Vec<Reading>, GetError>;

/// Some counters that one caller asked for.
#[derive(Debug)]
struct Asked {
    numbers: Numbers,
    strong: bool,
    answer: oneshot::Sender<Answer>,
}

/// Most calls ask for one counter: no allocation for that.
#[derive(Debug)]
enum Numbers {
    One([u32; 1]),
    Many(Vec<u32>),
}

impl Numbers {
    fn as_slice(&self) -> &[u32] {
        match self {
            Numbers::One(one) => one,
            Numbers::Many(many) => many,
        }
    }
}

/// Names read so far and their numbers.
#[derive(Debug, Default)]
struct Names {
    numbers: HashMap<CounterName, u32>,
    names: Vec<CounterName>,
    /// The last shown value of each, so that nothing goes back when another aggregator is asked: generation and both halves.
    shown: Vec<(u32, u64, u64)>,
}

#[derive(Debug)]
pub(crate) struct Waiting {
    names: RwLock<Names>,
    asked: Mutex<Vec<Asked>>,
    notify: Notify,
}

#[derive(Debug)]
pub(crate) enum Reads {
    Quic { waiting: Arc<Waiting>, task: tokio::task::JoinHandle<()> },
    Fake(FakeCluster),
    Nowhere,
}

impl Drop for Reads {
    fn drop(&mut self) {
        if let Reads::Quic { task, .. } = self {
            task.abort();
        }
    }
}

impl Reads {
    pub fn quic(endpoint: Endpoint, aggregators: Vec<(HostPort, PeerName)>) -> Reads {
        if aggregators.is_empty() {
            return Reads::Nowhere;
        }
        let (names, asked, notify) = Default::default();
        let waiting = Arc::new(Waiting { names, asked, notify });
        let task = tokio::spawn(run(endpoint, aggregators, waiting.clone()));
        Reads::Quic { waiting, task }
    }

    /// One counter, within `timeout`.
    pub async fn get(&self, name: &CounterName, strong: bool, timeout: Duration) -> Result<Reading, GetError> {
        match self {
            Reads::Quic { waiting, .. } => {
                let numbers = Numbers::One([waiting.number(name)?]);
                let answer = bounded(timeout, waiting.ask(numbers, strong)).await?;
                answer.first().copied().ok_or(GetError::Closed)
            }
            Reads::Fake(cluster) => Ok(cluster.read(std::slice::from_ref(name))[0]),
            Reads::Nowhere => Err(GetError::NoAggregator),
        }
    }

    /// Many counters, in order, within `timeout`.
    pub async fn get_many(&self, names: &[CounterName], strong: bool, timeout: Duration) -> Answer {
        match self {
            Reads::Quic { waiting, .. } => {
                let numbers: Result<Vec<u32>, GetError> = names.iter().map(|name| waiting.number(name)).collect();
                let mut answers = Vec::new();
                for part in numbers?.chunks(READ_COUNTERS_MAX) {
                    answers.push(waiting.ask(Numbers::Many(part.to_vec()), strong));
                }
                let all = async {
                    let mut readings = Vec::with_capacity(names.len());
                    for answer in answers {
                        readings.append(&mut answer.await.unwrap_or(Err(GetError::Closed))?);
                    }
                    Ok(readings)
                };
                let late = GetError::Timeout { millis: timeout.as_millis() as u64 };
                tokio::time::timeout(timeout, all).await.unwrap_or(Err(late))
            }
            Reads::Fake(cluster) => Ok(cluster.read(names)),
            Reads::Nowhere => Err(GetError::NoAggregator),
        }
    }
}

async fn bounded(timeout: Duration, answer: oneshot::Receiver<Answer>) -> Answer {
    match tokio::time::timeout(timeout, answer).await {
        Ok(answer) => answer.unwrap_or(Err(GetError::Closed)),
        Err(_) => Err(GetError::Timeout { millis: timeout.as_millis() as u64 }),
    }
}

impl Names {
    /// An aggregator that knows less than the one that was asked before says so: this reader has seen more.
    fn seen(&mut self, number: u32, reading: Reading) -> Reading {
        let Some(last) = self.shown.get_mut(number as usize) else { return reading };
        if reading.generation < last.0 {
            return reading;
        }
        let seen = if reading.generation == last.0 { *last } else { (reading.generation, 0, 0) };
        let up = reading.up.max(seen.1);
        let down = reading.down.max(seen.2);
        *last = (reading.generation, up, down);
        let pending = reading.pending.saturating_sub(up - reading.up);
        Reading { up, pending, at_most: reading.at_most.map(|most| most.max(up)), down, ..reading }
    }
}

impl Waiting {
    fn number(&self, name: &CounterName) -> Result<u32, GetError> {
        let known = self.names.read().unwrap_or_else(|poisoned| poisoned.into_inner()).numbers.get(name).copied();
        known.map_or_else(|| self.new_number(name), Ok)
    }

    #[cold]
    fn new_number(&self, name: &CounterName) -> Result<u32, GetError> {
        let mut names = self.names.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(number) = names.numbers.get(name) {
            return Ok(*number);
        }
        let number = names.names.len() as u32;
        if number >= READ_NUMBERS_MAX {
            return Err(GetError::TooManyCounters { limit: READ_NUMBERS_MAX });
        }
        names.numbers.insert(name.clone(), number);
        names.names.push(name.clone());
        names.shown.push((0, 0, 0));
        Ok(number)
    }

    fn asked(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.asked.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn ask(&self, numbers: Numbers, strong: bool) -> oneshot::Receiver<Answer> {
        let (answer, receiver) = oneshot::channel();
        let mut asked = self.asked();
        asked.push(Asked { numbers, strong, answer });
        let first = asked.len() == 1;
        drop(asked);
        if first {
            self.notify.notify_one();
        }
        receiver
    }
}

/// Keeps a channel to the first aggregator that can be reached.
async fn run(endpoint: Endpoint, aggregators: Vec<(HostPort, PeerName)>, waiting: Arc<Waiting>) {
    let mut again = VecDeque::new();
    let others = aggregators.len() > 1;
    for (addr, peer) in aggregators.iter().cycle() {
        if let Some(connection) = reach(&endpoint, addr, peer, others).await
            && let Ok(channel) = connection.open_channel(channel::READS).await
        {
            let mut pipe = Pipe::new(&waiting, again, others);
            if let Err(error) = pipe.run(channel).await {
                debug!(%addr, %error, "reads");
            }
            again = pipe.into_unanswered();
        }
        again.retain(|asked: &Asked| !asked.answer.is_closed());
        waiting.asked().retain(|asked| !asked.answer.is_closed());
        tokio::time::sleep(RECONNECT).await;
    }
}

/// A connection to an aggregator. If there are others, an aggregator that does not answer is not waited for.
pub(crate) async fn reach(endpoint: &Endpoint, addr: &HostPort, peer: &PeerName, others: bool) -> Option<Connection> {
    let connecting = endpoint.connect(addr, peer);
    match others {
        true => tokio::time::timeout(REACH_MAX, connecting).await.ok()?.ok(),
        false => connecting.await.ok(),
    }
}

/// One channel.
struct Pipe<'a> {
    /// There are other aggregators.
    others: bool,
    waiting: &'a Waiting,
    next_id: u64,
    /// Whether a number is defined on this channel.
    defined: Vec<bool>,
    to_send: VecDeque<Asked>,
    /// To be sent in a request of its own.
    alone: VecDeque<Asked>,
    outstanding: HashMap<u64, Vec<Asked>>,
}

impl<'a> Pipe<'a> {
    fn new(waiting: &'a Waiting, to_send: VecDeque<Asked>, others: bool) -> Pipe<'a> {
        let (defined, alone, outstanding) = Default::default();
        Pipe { others, waiting, next_id: 0, defined, to_send, alone, outstanding }
    }

    fn into_unanswered(self) -> VecDeque<Asked> {
        self.outstanding.into_values().flatten().chain(self.alone).chain(self.to_send).collect()
    }

    async fn run(&mut self, channel: Channel) -> Result<(), ChannelEnd> {
        let Channel { mut writer, mut reader } = channel;
        loop {
            self.send(&mut writer).await?;
            let strong = self.outstanding.values().flatten().any(|asked| asked.strong);
            let within = if self.others && !strong { SILENCE_WITH_OTHERS } else { SILENCE };
            let silence = tokio::time::sleep(within);
            tokio::select! {
                frame = reader.next() => {
                    let frame = frame?.ok_or(ChannelEnd::Ended)?;
                    self.take_answers(frame, &mut reader)?;
                }
                () = self.waiting.notify.notified() => {}
                () = silence, if !self.outstanding.is_empty() => {
                    return Err(ChannelEnd::Silent { within });
                }
            }
        }
    }

    fn take_answers(&mut self, frame: bytes::Bytes, reader: &mut FrameReader) -> Result<(), ChannelEnd> {
        self.on_response(wire::decode(&frame)?);
        while let Some(frame) = reader.next_ready()? {
            self.on_response(wire::decode(&frame)?);
        }
        Ok(())
    }

    /// Sends all that waits, as few requests as will do.
    async fn send(&mut self, writer: &mut FrameWriter) -> Result<(), ChannelEnd> {
        self.to_send.extend(self.waiting.asked().drain(..));
        while self.outstanding.len() < READS_OUTSTANDING_MAX {
            let Some(asked) = self.alone.pop_front().map(|asked| vec![asked]).or_else(|| self.next_asked()) else {
                break;
            };
            let request = self.request(asked);
            writer.feed_bytes(wire::encode(&request).into()).await?;
        }
        Ok(writer.flush().await?)
    }

    /// The content of one request.
    fn next_asked(&mut self) -> Option<Vec<Asked>> {
        let strong = self.to_send.front()?.strong;
        let mut count = 0;
        let mut numbers = 0;
        for next in &self.to_send {
            numbers += next.numbers.as_slice().len();
            if next.strong != strong || numbers > READ_COUNTERS_MAX {
                break;
            }
            count += 1;
        }
        Some(self.to_send.drain(..count).collect())
    }

    fn request(&mut self, asked: Vec<Asked>) -> ReadRequest {
        let numbers: Vec<u32> = asked.iter().flat_map(|asked| asked.numbers.as_slice()).copied().collect();
        let strong = asked.iter().any(|asked| asked.strong);
        let defs = self.define(&numbers);
        self.next_id += 1;
        self.outstanding.insert(self.next_id, asked);
        ReadRequest { id: self.next_id, strong, defs, numbers }
    }

    fn define(&mut self, numbers: &[u32]) -> Vec<(u32, CounterName)> {
        let last = numbers.iter().max().map_or(0, |last| *last as usize);
        if last >= self.defined.len() {
            self.defined.resize(last + 1, false);
        }
        let mut is_new = |number: &u32| !std::mem::replace(&mut self.defined[*number as usize], true);
        let fresh: Vec<u32> = numbers.iter().copied().filter(|number| is_new(number)).collect();
        if fresh.is_empty() {
            return Vec::new();
        }
        let names = self.waiting.names.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        fresh.into_iter().map(|number| (number, names.names[number as usize].clone())).collect()
    }

    fn on_response(&mut self, response: ReadResponse) {
        let Some(asked) = self.outstanding.remove(&response.id) else { return };
        let values = match response.result {
            Ok(values) => values,
            Err(error) => return self.on_refused(asked, &error),
        };
        let mut readings = values.readings();
        let lock = || self.waiting.names.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut names = self.others.then(lock);
        for Asked { numbers, answer, .. } in asked {
            let part = numbers.as_slice().iter().zip(readings.by_ref());
            let seen = |(&number, reading)| names.as_mut().map_or(reading, |names| names.seen(number, reading));
            let part: Vec<Reading> = part.map(seen).collect();
            let _ = answer.send(Ok(part));
        }
    }

    /// A refusal may be about one counter of one caller: then the others are asked again, each by itself.
    fn on_refused(&mut self, asked: Vec<Asked>, error: &ReadError) {
        let about_one = matches!(error, ReadError::UnknownNamespace(_) | ReadError::UnknownNumber(_));
        if asked.len() > 1 && about_one {
            return self.alone.extend(asked);
        }
        for asked in asked {
            let _ = asked.answer.send(Err(error.clone().into()));
        }
    }
}
