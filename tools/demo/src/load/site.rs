//! The front ends of one data centre: one task that sends due increments every few milliseconds and takes in all answers, and two small
//! tasks per connection that move frames.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidemark_client::GroupSite;
use tidemark_proto::client::{Input, LinkId, SiteId};
use tidemark_proto::ids::CounterName;
use tidemark_proto::msg::ToClient;
use tidemark_proto::wire;
use tidemark_transport::{Channel, Endpoint, FrameWriter};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep_until;

use super::front_end::{FrontEnd, LinkAction};
use super::tally::SiteTally;
use crate::arrivals::Arrivals;

/// Due increments are sent at multiples of this.
const TICK: Duration = Duration::from_millis(5);
/// With nothing due, sums are told so often.
const IDLE_TICK: Duration = Duration::from_millis(500);
/// Events of links that wait for the site's task; past it readers wait, and with them the nodes.
const EVENTS_MAX: usize = 4_096;
const EVENTS_BATCH: usize = 512;
/// Frames that wait for one connection; past it the connection is given up, as a client must not wait for a slow node.
const FRAMES_MAX: usize = 1_024;
const FRAMES_BATCH: usize = 64;

/// How far a load has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Connect, send nothing.
    Connecting,
    /// Send; since when, microseconds of the process's clock.
    Running { since_us: u64 },
    /// Send no more, wait for answers.
    Draining,
}

/// A tally that the site writes and the reporter reads.
pub type SharedTally = Arc<Mutex<SiteTally>>;

/// Locks a tally.
pub fn lock(tally: &SharedTally) -> MutexGuard<'_, SiteTally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Other counters that are incremented in turn.
#[derive(Debug)]
pub struct ColdCells {
    pub names: Vec<CounterName>,
    pub arrivals: Arrivals,
    next: usize,
}

impl ColdCells {
    /// These cells, one after the other.
    pub fn new(names: Vec<CounterName>, arrivals: Arrivals) -> ColdCells {
        ColdCells { names, arrivals, next: 0 }
    }
}

/// Where a front end's sites are.
pub type Targets = Vec<GroupSite>;

/// The parts of a site.
pub struct Site {
    pub front_ends: Vec<FrontEnd>,
    pub arrivals: Arrivals,
    pub cold: Option<ColdCells>,
    pub endpoint: Endpoint,
    pub targets: Arc<Targets>,
    pub tally: SharedTally,
    /// Origin of the process's clock.
    pub origin: Instant,
}

enum Event {
    Up { front_end: usize, link: LinkId, frames: mpsc::Sender<Bytes> },
    Message { front_end: usize, link: LinkId, message: ToClient },
    Down { front_end: usize, link: LinkId },
}

struct Running {
    site: Site,
    links: HashMap<(usize, LinkId), mpsc::Sender<Bytes>>,
    events: mpsc::Sender<Event>,
    next: usize,
}

/// Runs the front ends until the phases' sender is gone.
pub async fn run(site: Site, mut phases: watch::Receiver<Phase>) {
    let (events, mut incoming) = mpsc::channel(EVENTS_MAX);
    let mut running = Running { site, links: HashMap::new(), events, next: 0 };
    let mut batch = Vec::with_capacity(EVENTS_BATCH);
    let mut last_tick_us = running.now_us();
    running.start();
    loop {
        let phase = *phases.borrow_and_update();
        let wakes_us = running.wakes_us(phase, last_tick_us);
        tokio::select! {
            _ = incoming.recv_many(&mut batch, EVENTS_BATCH) => running.on_events(&mut batch),
            () = sleep_until((running.site.origin + Duration::from_micros(wakes_us)).into()) => {
                last_tick_us = running.now_us();
                running.on_tick(phase);
            }
            ended = phases.changed() => if ended.is_err() { return },
        }
    }
}

impl Running {
    fn now_us(&self) -> u64 {
        self.site.origin.elapsed().as_micros() as u64
    }

    /// When the next tick is: the first multiple of [`TICK`] at which something is due.
    fn wakes_us(&self, phase: Phase, last_tick_us: u64) -> u64 {
        let step_us = TICK.as_micros() as u64;
        let earliest_us = last_tick_us + 1;
        let on_grid = |us: u64| us.max(earliest_us).div_ceil(step_us) * step_us;
        let Site { arrivals, cold, front_ends, .. } = &self.site;
        let arrival_us = match phase {
            Phase::Running { since_us } => {
                let cold_us = cold.as_ref().map_or(u64::MAX, |cold| cold.arrivals.next_us());
                since_us.saturating_add(arrivals.next_us().min(cold_us))
            }
            Phase::Connecting | Phase::Draining => u64::MAX,
        };
        if phase == Phase::Draining || arrival_us <= on_grid(earliest_us) {
            return on_grid(earliest_us);
        }
        let timeout = |front_end: &FrontEnd| front_end.due_us().unwrap_or(u64::MAX);
        let due_us = front_ends.iter().map(timeout).fold(arrival_us, u64::min);
        on_grid(due_us.min(last_tick_us + IDLE_TICK.as_micros() as u64))
    }

    fn start(&mut self) {
        let now_us = self.now_us();
        self.site.front_ends.iter_mut().for_each(|front_end| front_end.handle(now_us, Input::Tick));
        (0..self.site.front_ends.len()).for_each(|front_end| self.drain(front_end));
    }

    fn on_tick(&mut self, phase: Phase) {
        let now_us = self.now_us();
        if let Phase::Running { since_us } = phase {
            self.send_due(now_us, since_us);
        }
        for front_end in 0..self.site.front_ends.len() {
            self.site.front_ends[front_end].tick(now_us);
            self.drain(front_end);
        }
        self.tell(now_us);
    }

    fn send_due(&mut self, now_us: u64, since_us: u64) {
        let Site { front_ends, arrivals, cold, tally, .. } = &mut self.site;
        let mut tally = lock(tally);
        let elapsed_us = now_us.saturating_sub(since_us);
        while let Some(due_us) = arrivals.pop_due(elapsed_us) {
            self.next = (self.next + 1) % front_ends.len();
            front_ends[self.next].hit(now_us, since_us + due_us, &mut tally);
        }
        let Some(cold) = cold else { return };
        while cold.arrivals.pop_due(elapsed_us).is_some() {
            let name = &cold.names[cold.next % cold.names.len()];
            let front_end = cold.next % front_ends.len();
            cold.next += 1;
            match front_ends[front_end].add(now_us, name, 1) {
                Ok(()) => tally.counts.cold_sent += 1,
                Err(_) => tally.counts.failed += 1,
            }
        }
    }

    /// Brings the sums that only the front ends know into the tally.
    fn tell(&mut self, now_us: u64) {
        let front_ends = &self.site.front_ends;
        let mut tally = lock(&self.site.tally);
        tally.connected = front_ends.iter().filter(|front_end| front_end.is_connected()).count();
        tally.unacknowledged = front_ends.iter().map(FrontEnd::unacknowledged).sum();
        tally.unanswered = front_ends.iter().map(FrontEnd::unanswered).sum();
        let durable: u64 = front_ends.iter().map(FrontEnd::durable).sum();
        tally.counts.cold_acknowledged = durable.saturating_sub(tally.counts.acknowledged);
        debug_assert!(tally.last_ack_us <= now_us);
    }

    fn on_events(&mut self, batch: &mut Vec<Event>) {
        let now_us = self.now_us();
        for event in batch.drain(..) {
            let (front_end, input) = match event {
                Event::Up { front_end, link, frames } => {
                    self.links.insert((front_end, link), frames);
                    (front_end, Input::Connected { link })
                }
                Event::Message { front_end, link, message } => (front_end, Input::FromNode { link, message }),
                Event::Down { front_end, link } => {
                    self.links.remove(&(front_end, link));
                    (front_end, Input::Disconnected { link })
                }
            };
            self.site.front_ends[front_end].handle(now_us, input);
            self.drain(front_end);
        }
    }

    fn drain(&mut self, at: usize) {
        let now_us = self.now_us();
        let mut lost = Vec::new();
        let Running { site, links, events, .. } = self;
        let Site { front_ends, tally, endpoint, targets, .. } = site;
        let mut tally = lock(tally);
        front_ends[at].drain(now_us, &mut tally, |action| match action {
            LinkAction::Connect { link, site } => {
                tokio::spawn(run_link(endpoint.clone(), targets.clone(), site, at, link, events.clone()));
            }
            LinkAction::Disconnect { link } => drop(links.remove(&(at, link))),
            LinkAction::Send { link, message } => {
                let frames = links.get(&(at, link));
                if frames.is_some_and(|frames| frames.try_send(wire::encode(&message).into()).is_err()) {
                    lost.push(link);
                }
            }
        });
        drop(tally);
        for link in lost {
            if links.remove(&(at, link)).is_some() {
                front_ends[at].handle(now_us, Input::Disconnected { link });
            }
        }
    }
}

/// Connects, says so, and moves frames until either side ends.
async fn run_link(
    endpoint: Endpoint,
    targets: Arc<Targets>,
    site: SiteId,
    front_end: usize,
    link: LinkId,
    events: mpsc::Sender<Event>,
) {
    match targets[usize::from(site.0)].open(&endpoint).await {
        Ok((_, channel)) => move_frames(channel, front_end, link, &events).await,
        Err(error) => tracing::debug!(%error, "node not reached"),
    }
    let _ = events.send(Event::Down { front_end, link }).await;
}

async fn move_frames(channel: Channel, front_end: usize, link: LinkId, events: &mpsc::Sender<Event>) {
    let Channel { mut reader, writer } = channel;
    let (frames, outgoing) = mpsc::channel(FRAMES_MAX);
    let mut writing = tokio::spawn(write_all(writer, outgoing));
    if events.send(Event::Up { front_end, link, frames }).await.is_err() {
        return;
    }
    loop {
        let frame = tokio::select! {
            frame = reader.next() => frame,
            _ = &mut writing => return,
        };
        let Ok(Some(frame)) = frame else { break };
        let message = match wire::decode::<ToClient>(&frame) {
            Ok(message) => message,
            Err(error) => {
                tracing::warn!(%error, "malformed message of a node");
                break;
            }
        };
        if events.send(Event::Message { front_end, link, message }).await.is_err() {
            break;
        }
    }
    writing.abort();
}

async fn write_all(mut writer: FrameWriter, mut outgoing: mpsc::Receiver<Bytes>) {
    let mut batch = Vec::with_capacity(FRAMES_BATCH);
    while outgoing.recv_many(&mut batch, FRAMES_BATCH).await > 0 {
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
