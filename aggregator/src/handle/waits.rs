//! Serves waits for awards: each is acknowledged, and answered from the applied ledger as soon as something is known.

use super::Aggregator;
use crate::events::LiveEvent;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tidemark_proto::ids::CounterName;
use tidemark_proto::ledger::Ledger;
use tidemark_proto::wait::{Heard, WAITS_MAX, WaitAnswer, WaitError, WaitOutcome, WaitRequest};
use tidemark_proto::wire::{self, WireError};
use tidemark_transport::{Channel, FrameReader, FrameWriter, ReceiveError, SendError};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::MissedTickBehavior;

/// How often waits are looked at without an award: a milestone may have been removed, or have passed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Looks at which an aggregator may be without a ledger before it redirects waiting clients.
const LOOKS_WITHOUT_LEDGER_MAX: u32 = 5;

/// The waits that a connection may have, on all its channels.
pub struct Room(Arc<Semaphore>);

impl Room {
    pub fn new() -> Room {
        Room(Arc::new(Semaphore::new(WAITS_MAX)))
    }

    /// Serves one channel until it ends.
    pub fn serve(&self, channel: Channel, aggregator: Aggregator) {
        let room = self.0.clone();
        tokio::spawn(async move {
            if let Err(reason) = serve(channel, aggregator, room).await {
                tracing::debug!(%reason, "channel of waits ended");
            }
        });
    }
}

/// A waiting client.
struct Wait {
    counter: CounterName,
    at: u64,
    /// The entries that a ledger must have applied to deny that there is such a milestone.
    after: Heard,
    _room: OwnedSemaphorePermit,
}

/// The waits of one channel.
struct Waits {
    aggregator: Aggregator,
    room: Arc<Semaphore>,
    waiting: BTreeMap<u64, Wait>,
    /// Looks in a row at which there was no ledger to hear from.
    unready: u32,
}

/// Why a channel of waits is ended.
#[derive(Debug, thiserror::Error)]
enum WaitsEnd {
    #[error("malformed wait: {0}")]
    Malformed(#[from] WireError),
    #[error("the wait {id} is there already")]
    Twice { id: u64 },
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(transparent)]
    Send(#[from] SendError),
}

async fn serve(channel: Channel, aggregator: Aggregator, room: Arc<Semaphore>) -> Result<(), WaitsEnd> {
    let Channel { mut reader, mut writer } = channel;
    let mut live = aggregator.subscribe();
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut waits = Waits { aggregator, room, waiting: BTreeMap::new(), unready: 0 };
    loop {
        let answers = tokio::select! {
            frame = reader.next() => match frame? {
                Some(frame) => waits.on_frames(frame, &mut reader)?,
                None => return Ok(()),
            },
            event = live.recv(), if !waits.waiting.is_empty() => match event {
                Ok(LiveEvent::Award(event)) if !event.signature => waits.look(|wait| wait.counter == event.awarded.award.counter),
                Ok(_) => continue,
                Err(RecvError::Lagged(_)) => waits.look(|_| true),
                Err(RecvError::Closed) => return Ok(()),
            },
            _ = look.tick(), if !waits.waiting.is_empty() => waits.look_at_all(),
        };
        send(&mut writer, answers).await?;
    }
}

async fn send(writer: &mut FrameWriter, answers: Vec<WaitAnswer>) -> Result<(), SendError> {
    if answers.is_empty() {
        return Ok(());
    }
    for answer in &answers {
        writer.feed_bytes(wire::encode(answer).into()).await?;
    }
    writer.flush().await
}

impl Waits {
    /// Takes a request and those that have come behind it.
    fn on_frames(&mut self, frame: Bytes, reader: &mut FrameReader) -> Result<Vec<WaitAnswer>, WaitsEnd> {
        let mut next = Some(frame);
        let mut answers = Vec::new();
        while let Some(frame) = next {
            match wire::decode(&frame)? {
                WaitRequest::WaitAward { id, counter, at, after } => {
                    answers.push(self.on_wait(id, counter, at, after)?)
                }
                WaitRequest::Cancel { id } => drop(self.waiting.remove(&id)),
            }
            next = reader.next_ready()?;
        }
        Ok(answers)
    }

    fn on_wait(&mut self, id: u64, counter: CounterName, at: u64, after: Heard) -> Result<WaitAnswer, WaitsEnd> {
        if self.waiting.contains_key(&id) {
            return Err(WaitsEnd::Twice { id });
        }
        let (heard, outcome) = self.aggregator.with_ledger(|ledger| judged(ledger, &counter, at, after));
        let refused = |error| WaitOutcome::Refused(error);
        let outcome = match (outcome, self.aggregator.ready()) {
            (WaitOutcome::Waiting, Err(reason)) => refused(WaitError::NotServing(reason.to_string())),
            (WaitOutcome::Waiting, Ok(())) => match self.room.clone().try_acquire_owned() {
                Ok(room) => {
                    self.waiting.insert(id, Wait { counter, at, after, _room: room });
                    WaitOutcome::Waiting
                }
                Err(_) => refused(WaitError::Overloaded { limit: WAITS_MAX as u64 }),
            },
            (known, _) => known,
        };
        Ok(WaitAnswer { id, heard, outcome })
    }

    /// Answers those of the wanted waits of which something is known.
    fn look(&mut self, is_wanted: impl Fn(&Wait) -> bool) -> Vec<WaitAnswer> {
        let waiting = &self.waiting;
        let answers: Vec<WaitAnswer> = self.aggregator.with_ledger(|ledger| {
            let wanted = waiting.iter().filter(|(_, wait)| is_wanted(wait));
            let judge = |(&id, wait): (&u64, &Wait)| {
                let (heard, outcome) = judged(ledger, &wait.counter, wait.at, wait.after);
                (outcome != WaitOutcome::Waiting).then_some(WaitAnswer { id, heard, outcome })
            };
            wanted.filter_map(judge).collect()
        });
        answers.iter().for_each(|answer| drop(self.waiting.remove(&answer.id)));
        answers
    }

    fn look_at_all(&mut self) -> Vec<WaitAnswer> {
        let mut answers = self.look(|_| true);
        let Err(reason) = self.aggregator.ready() else {
            self.unready = 0;
            return answers;
        };
        self.unready += 1;
        if self.unready > LOOKS_WITHOUT_LEDGER_MAX {
            let heard = self.aggregator.with_ledger(heard_by);
            let refused = |id| {
                let outcome = WaitOutcome::Refused(WaitError::NotServing(reason.to_string()));
                WaitAnswer { id, heard, outcome }
            };
            answers.extend(std::mem::take(&mut self.waiting).into_keys().map(refused));
        }
        answers
    }
}

/// The applied ledger's judgement of a wait, and how far it is applied.
fn judged(ledger: &Ledger, counter: &CounterName, at: u64, after: Heard) -> (Heard, WaitOutcome) {
    (heard_by(ledger), ledger.wait_outcome(counter, at, after))
}

fn heard_by(ledger: &Ledger) -> Heard {
    Heard { index: ledger.applied().0, birth: ledger.births().current() }
}
