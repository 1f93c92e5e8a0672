//! Waiting for awards. All waits of a client go over one channel to the first aggregator that can be reached; when it is lost, or cannot
//! say, they go on at the next site in order. Without a waiting caller there is no connection.

use crate::channel_end::ChannelEnd;
use crate::error::AwardError;
use crate::fake::FakeCluster;
use crate::reads::reach;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tidemark_proto::ids::CounterName;
use tidemark_proto::limits::MILESTONE_MAX;
use tidemark_proto::msg::Award;
use tidemark_proto::wait::{Heard, WAITS_MAX, WaitAnswer, WaitError, WaitOutcome, WaitRequest};
use tidemark_proto::wire::{self, channel};
use tidemark_transport::{Channel, Endpoint, FrameReader, FrameWriter, HostPort, PeerName};
use tokio::sync::{Notify, oneshot};
use tracing::debug;

/// Pause between attempts to reach an aggregator.
const RECONNECT: Duration = Duration::from_millis(200);
/// A channel on which a new wait is not acknowledged for so long is given up.
const SILENCE: Duration = Duration::from_secs(2);
/// A connection without a waiting caller is kept for this time.
const IDLE: Duration = Duration::from_secs(10);

/// The wait of one caller.
#[derive(Debug)]
struct Wait {
    counter: CounterName,
    at: u64,
    /// The most that an answer has heard of.
    after: Heard,
    answer: oneshot::Sender<Result<Award, AwardError>>,
}

#[derive(Debug, Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    last_id: u64,
    waits: BTreeMap<u64, Wait>,
}

#[derive(Debug)]
pub(crate) enum Waits {
    Quic { shared: Arc<Shared>, task: tokio::task::JoinHandle<()> },
    Fake(FakeCluster),
    Nowhere,
}

impl Drop for Waits {
    fn drop(&mut self) {
        if let Waits::Quic { task, .. } = self {
            task.abort();
        }
    }
}

/// A wait that is there until this is dropped.
struct Registered<'s> {
    shared: &'s Shared,
    id: u64,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if self.shared.state().waits.remove(&self.id).is_some() {
            self.shared.changed.notify_one();
        }
    }
}

impl Waits {
    pub fn quic(endpoint: Endpoint, aggregators: Vec<(HostPort, PeerName)>) -> Waits {
        if aggregators.is_empty() {
            return Waits::Nowhere;
        }
        let shared = Arc::<Shared>::default();
        let task = tokio::spawn(run(endpoint, aggregators, shared.clone()));
        Waits::Quic { shared, task }
    }

    /// Until the milestone is awarded, or it is known that it will not be.
    pub async fn award(&self, counter: &CounterName, at: u64) -> Result<Award, AwardError> {
        if at == 0 || at > MILESTONE_MAX {
            return Err(AwardError::Range { at, max: MILESTONE_MAX });
        }
        match self {
            Waits::Quic { shared, .. } => shared.wait(counter, at).await,
            Waits::Fake(cluster) => cluster.award(counter, at).await,
            Waits::Nowhere => Err(AwardError::NoAggregator),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    async fn wait(&self, counter: &CounterName, at: u64) -> Result<Award, AwardError> {
        let (answer, answered) = oneshot::channel();
        let registered = {
            let mut state = self.state();
            if state.waits.len() >= WAITS_MAX {
                return Err(AwardError::TooManyWaits { limit: WAITS_MAX });
            }
            state.last_id += 1;
            let id = state.last_id;
            state.waits.insert(id, Wait { counter: counter.clone(), at, after: Heard::default(), answer });
            Registered { shared: self, id }
        };
        self.changed.notify_one();
        let award = answered.await.unwrap_or(Err(AwardError::Closed));
        drop(registered);
        award
    }

    /// Returns when a caller waits.
    async fn wanted(&self) {
        while self.state().waits.is_empty() {
            self.changed.notified().await;
        }
    }
}

/// While a caller waits, keeps a channel to the first aggregator that can be reached and can answer.
async fn run(endpoint: Endpoint, aggregators: Vec<(HostPort, PeerName)>, shared: Arc<Shared>) {
    loop {
        for (addr, peer) in aggregators.iter().cycle() {
            shared.wanted().await;
            if let Some(connection) = reach(&endpoint, addr, peer, aggregators.len() > 1).await
                && let Ok(channel) = connection.open_channel(channel::AWARDS).await
            {
                match Pipe::new(&shared).run(channel).await {
                    Ok(()) => break,
                    Err(error) => debug!(%addr, %error, "waits go on at the next site"),
                }
            }
            tokio::time::sleep(RECONNECT).await;
        }
    }
}

/// One channel.
struct Pipe<'s> {
    shared: &'s Shared,
    /// Waits that the aggregator has been told of, and of them those that it has not acknowledged.
    told: BTreeSet<u64>,
    unacknowledged: BTreeSet<u64>,
}

impl<'s> Pipe<'s> {
    fn new(shared: &'s Shared) -> Pipe<'s> {
        Pipe { shared, told: BTreeSet::new(), unacknowledged: BTreeSet::new() }
    }

    /// Ends well when no caller has waited for long.
    async fn run(&mut self, channel: Channel) -> Result<(), ChannelEnd> {
        let Channel { mut writer, mut reader } = channel;
        loop {
            self.send(&mut writer).await?;
            tokio::select! {
                frame = reader.next() => {
                    let frame = frame?.ok_or(ChannelEnd::Ended)?;
                    self.take_answers(frame, &mut reader)?;
                }
                () = self.shared.changed.notified() => {}
                () = tokio::time::sleep(SILENCE), if !self.unacknowledged.is_empty() => {
                    return Err(ChannelEnd::Silent { within: SILENCE });
                }
                () = tokio::time::sleep(IDLE), if self.told.is_empty() => return Ok(()),
            }
        }
    }

    /// Sends new waits, and those that were cancelled.
    async fn send(&mut self, writer: &mut FrameWriter) -> Result<(), ChannelEnd> {
        let requests = self.requests();
        if requests.is_empty() {
            return Ok(());
        }
        for request in requests {
            writer.feed_bytes(wire::encode(&request).into()).await?;
        }
        Ok(writer.flush().await?)
    }

    fn requests(&mut self) -> Vec<WaitRequest> {
        let state = self.shared.state();
        let gone: Vec<u64> = self.told.iter().filter(|id| !state.waits.contains_key(id)).copied().collect();
        let new = state.waits.iter().filter(|(id, _)| !self.told.contains(id));
        let request = |(&id, wait): (&u64, &Wait)| {
            let counter = wait.counter.clone();
            let at = wait.at;
            let after = wait.after;
            WaitRequest::WaitAward { id, counter, at, after }
        };
        let cancelled = gone.iter().map(|&id| WaitRequest::Cancel { id });
        // Cancelled waits first: they make room.
        let requests: Vec<WaitRequest> = cancelled.chain(new.map(request)).collect();
        self.unacknowledged.extend(state.waits.keys().filter(|id| !self.told.contains(id)));
        self.told = state.waits.keys().copied().collect();
        self.unacknowledged.retain(|id| self.told.contains(id));
        requests
    }

    fn take_answers(&mut self, frame: bytes::Bytes, reader: &mut FrameReader) -> Result<(), ChannelEnd> {
        self.on_answer(wire::decode(&frame)?)?;
        while let Some(frame) = reader.next_ready()? {
            self.on_answer(wire::decode(&frame)?)?;
        }
        Ok(())
    }

    fn on_answer(&mut self, answer: WaitAnswer) -> Result<(), ChannelEnd> {
        let WaitAnswer { id, heard, outcome } = answer;
        self.unacknowledged.remove(&id);
        let mut state = self.shared.state();
        let Some(wait) = state.waits.get_mut(&id) else { return Ok(()) };
        let result = match outcome {
            WaitOutcome::Waiting => {
                wait.after = wait.after.and_then(heard);
                return Ok(());
            }
            WaitOutcome::Awarded(award) if award.counter == wait.counter && award.covers(wait.at) => Ok(*award),
            WaitOutcome::Awarded(award) => {
                return Err(ChannelEnd::OtherAward { counter: award.counter, at: award.at });
            }
            WaitOutcome::Refused(error) if error.is_of_this_aggregator() => return Err(error.into()),
            WaitOutcome::Refused(WaitError::Passed) => Err(AwardError::Passed),
            WaitOutcome::Refused(_) => Err(AwardError::NoMilestone),
        };
        self.told.remove(&id);
        if let Some(wait) = state.waits.remove(&id) {
            let _ = wait.answer.send(result);
        }
        Ok(())
    }
}
