//! One client of a load: the core of the client library, one connection, and the results of all increments.

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};

use tidemark_client::GroupSite;
use tidemark_proto::client::{AddError, ClientConfig, ClientCore, CounterRef, Input, LinkId, Outcome, Output, Ticket};
use tidemark_proto::ids::{CounterName, OwnerId, SessionId};
use tidemark_proto::msg::{BatchError, ToClient};
use tidemark_proto::time::{Span, Time};
use tidemark_proto::wire;
use tidemark_transport::{Channel, Endpoint, PeerName, Role};

use super::keys::{self, Keys, name, part};
use super::{Content, DRAIN, Draw, LoadTask, Moments, Pace, Seen};
use crate::bench::cluster::NAMESPACE;
use crate::bench::task::Place;
use tidemark_demo::arrivals::{Arrivals, Pattern};

/// How often hits that are due are sent.
const HITS_TICK_US: u64 = 2_000;
/// Adds of one round of a closed loop.
const ROUND_ADDS: usize = 2_000;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that one client may hold; more is refused as overloaded, and counted so.
const BUFFER_BYTES_MAX: usize = 256 << 20;
/// A request that a client made too early is made again after this.
const BAR_FOR: Span = Span::from_millis(50);

/// A batch that is sent and answered together (a round of adds), or one hit.
#[derive(Clone, Copy, Debug)]
struct Sent {
    due_us: u64,
    items: u64,
    acknowledged: bool,
    done: bool,
}

/// See the module.
pub struct Driver {
    core: ClientCore,
    counters: Vec<CounterRef>,
    keys: Keys,
    hits: bool,
    pacer: Pacer,
    endpoint: Endpoint,
    site: GroupSite,
    link: Option<(LinkId, Channel)>,
    origin: Instant,
    moments: Option<Moments>,
    /// By ticket, from `first_ticket` on; finished hits at the front are forgotten.
    sent: VecDeque<Sent>,
    first_ticket: u64,
    under_way: usize,
    next_session: u128,
    last_ack_us: u64,
    seen: Seen,
}

/// When something is due.
enum Pacer {
    /// Hits of an open loop.
    Arrivals(Arrivals),
    /// Rounds of an open loop: adds and time of each, and when the next is due after the start.
    Rounds {
        items: usize,
        every_us: f64,
        next_us: f64,
    },
    Window {
        items: usize,
    },
    Once {
        left: usize,
        window: usize,
    },
}

impl Driver {
    /// A client that is not connected yet.
    pub fn new(task: &LoadTask, at: usize, endpoint: Endpoint, origin: Instant) -> Result<Driver, Box<dyn Error>> {
        let config = ClientConfig {
            owner: OwnerId(endpoint.identity().digest()),
            flush_interval: Span(0),
            // The load says when something is sent.
            gather_max: None,
            buffer_bytes_max: BUFFER_BYTES_MAX,
            bar_for: BAR_FOR,
            ..ClientConfig::default()
        };
        let seed = keys::seed(task.seed, at);
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&u64::from(std::process::id()).to_le_bytes());
        let mut core = ClientCore::new(config, bytes);
        let draw = match task.content {
            Content::Deltas { draw, .. } => draw,
            Content::Hits { .. } => Draw::InTurn,
        };
        let names = names(&task.content, task.clients, at, task.pace)?;
        let counters = names.iter().map(|name| core.counter(name)).collect::<Result<Vec<_>, _>>()?;
        Ok(Driver {
            core,
            keys: Keys::new(draw, counters.len() * at / task.clients, counters.len(), seed)?,
            counters,
            hits: matches!(task.content, Content::Hits { .. }),
            pacer: Pacer::new(task, at, seed),
            endpoint,
            site: site(&task.place, at)?,
            link: None,
            origin,
            moments: None,
            sent: VecDeque::new(),
            first_ticket: 0,
            under_way: 0,
            next_session: u128::from(seed) << 64,
            last_ack_us: 0,
            seen: Seen::default(),
        })
    }

    fn now_us(&self) -> u64 {
        self.origin.elapsed().as_micros() as u64
    }

    /// Until the node has said welcome.
    pub async fn connect(&mut self) -> Result<(), Box<dyn Error>> {
        let connecting = async {
            while self.core.site().is_none_or(|(_, up)| !up) {
                self.step().await;
            }
        };
        let late = |_| format!("no node answers within {} s", CONNECT_TIMEOUT.as_secs());
        tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.map_err(late)?;
        Ok(())
    }

    /// Runs until everything is answered; returns the observations, and when the last answer came.
    pub async fn run(mut self, moments: Moments) -> Result<(Seen, u64), std::io::Error> {
        self.moments = Some(moments);
        let drained_us = moments.end_us + DRAIN.as_micros() as u64;
        loop {
            self.produce(moments);
            self.step().await;
            let now_us = self.now_us();
            let ended = match self.pacer {
                Pacer::Once { left, .. } => left == 0,
                _ => now_us >= moments.end_us,
            };
            if ended && (self.under_way == 0 || now_us > drained_us) {
                self.seen.unknown += self.under_way as u64;
                return Ok((self.seen, self.last_ack_us));
            }
        }
    }

    /// Puts in what is due.
    fn produce(&mut self, moments: Moments) {
        let now_us = self.now_us();
        loop {
            let ended = now_us >= moments.end_us;
            let (items, due_us) = match &mut self.pacer {
                Pacer::Once { left: 0, .. } => return,
                Pacer::Once { left, window } => {
                    let items = (*left).min(ROUND_ADDS);
                    if self.under_way + items > *window {
                        return;
                    }
                    *left -= items;
                    (items, now_us)
                }
                _ if ended => return,
                Pacer::Arrivals(arrivals) => match arrivals.pop_due(now_us.saturating_sub(moments.start_us)) {
                    Some(due_us) => (1, moments.start_us + due_us),
                    None => return,
                },
                Pacer::Rounds { items, every_us, next_us } => {
                    let due_us = moments.start_us + *next_us as u64;
                    if due_us > now_us {
                        return;
                    }
                    *next_us += *every_us;
                    (*items, due_us)
                }
                Pacer::Window { items } => {
                    let one = if self.hits { 1 } else { ROUND_ADDS.min(*items) };
                    if self.under_way + one > *items {
                        return;
                    }
                    (one, now_us)
                }
            };
            self.put_in(now_us, due_us, items, moments);
        }
    }

    fn put_in(&mut self, now_us: u64, due_us: u64, items: usize, moments: Moments) {
        if moments.measures(due_us) {
            self.seen.lateness.saturating_record((now_us - due_us).max(1));
        }
        self.seen.sent += items as u64;
        let ticket = Ticket(self.first_ticket + self.sent.len() as u64);
        let now = Time(now_us);
        let put = match self.hits {
            true => {
                self.next_session += 1;
                let session = Some(SessionId(self.next_session.to_be_bytes()));
                self.core.try_hit(now, self.counters[0], session, 1, ticket)
            }
            false => self.add_round(now, items),
        };
        if let Err(error) = put {
            return count_failure(&error, items as u64, &mut self.seen);
        }
        self.sent.push_back(Sent { due_us, items: items as u64, acknowledged: false, done: false });
        self.under_way += items;
        if !self.hits {
            self.core.handle(now, Input::Flush { ticket });
        }
    }

    fn add_round(&mut self, now: Time, items: usize) -> Result<(), AddError> {
        let Driver { keys, counters, core, .. } = self;
        let drawn: Vec<CounterRef> = (0..items).map(|_| counters[keys.next()]).collect();
        core.try_add_each(now, &drawn, 1).1.map_or(Ok(()), Err)
    }

    /// Moves frames until something may be due again.
    async fn step(&mut self) {
        self.core.handle(Time(self.now_us()), Input::Tick);
        self.drain().await;
        let wake = self.wake();
        let Some((link, channel)) = &mut self.link else {
            return tokio::time::sleep_until(wake).await;
        };
        let link = *link;
        let mut frames = Vec::new();
        let lost = tokio::select! {
            frame = channel.reader.next() => match frame {
                Ok(Some(frame)) => {
                    frames.push(frame);
                    while let Ok(Some(frame)) = channel.reader.next_ready() {
                        frames.push(frame);
                    }
                    false
                }
                Ok(None) | Err(_) => true,
            },
            () = tokio::time::sleep_until(wake) => false,
        };
        let now = Time(self.now_us());
        for frame in frames {
            match wire::decode::<ToClient>(&frame) {
                Ok(message) => self.core.handle(now, Input::FromNode { link, message }),
                Err(error) => tracing::warn!(%error, "malformed message of a node"),
            }
        }
        if lost {
            self.link = None;
            self.core.handle(now, Input::Disconnected { link });
        }
        self.drain().await;
    }

    fn wake(&self) -> tokio::time::Instant {
        let core = self.core.poll_timeout().map(|at| at.0);
        let own = match &self.pacer {
            Pacer::Rounds { next_us, .. } => self.moments.map(|moments| moments.start_us + *next_us as u64),
            _ => Some(self.now_us() + HITS_TICK_US),
        };
        let at_us = core.into_iter().chain(own).min().unwrap_or_else(|| self.now_us() + HITS_TICK_US);
        (self.origin + Duration::from_micros(at_us)).into()
    }

    /// Carries out what the core wants.
    async fn drain(&mut self) {
        let mut wrote = false;
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Connect { link, .. } => self.dial(link).await,
                Output::Disconnect { link } => drop(self.link.take_if(|(own, _)| *own == link)),
                Output::Send { link, message } => {
                    wrote = true;
                    if let Some((_, channel)) = self.link.as_mut().filter(|(own, _)| *own == link) {
                        let _ = channel.writer.feed_bytes(wire::encode(&message).into()).await;
                    }
                }
                Output::Durable { ticket } => self.on_answer(ticket, true, false),
                Output::Resolved { ticket, outcome } => match outcome {
                    Outcome::Placed(_) | Outcome::PlaceUnknown => self.on_answer(ticket, true, true),
                    Outcome::Failed(error) => {
                        count_failure(&error, 1, &mut self.seen);
                        self.on_answer(ticket, false, true);
                    }
                    Outcome::Unknown => {
                        self.seen.unknown += 1;
                        self.on_answer(ticket, false, true);
                    }
                },
                Output::Flushed { ticket, refused, unknown } => {
                    self.seen.failed += refused;
                    self.seen.unknown += unknown;
                    self.on_answer(ticket, refused + unknown == 0, true);
                }
                Output::Known { .. }
                | Output::Failed { .. }
                | Output::Unknown { .. }
                | Output::Writable
                | Output::Closed { .. } => {}
            }
        }
        // An error shows when the link is read from.
        if let (true, Some((_, channel))) = (wrote, &mut self.link) {
            let _ = channel.writer.flush().await;
        }
    }

    async fn dial(&mut self, link: LinkId) {
        let input = match self.site.open(&self.endpoint).await {
            Ok((_, channel)) => {
                self.link = Some((link, channel));
                Input::Connected { link }
            }
            Err(_) => Input::Disconnected { link },
        };
        self.core.handle(Time(self.now_us()), input);
    }

    fn on_answer(&mut self, ticket: Ticket, durable: bool, done: bool) {
        let now_us = self.now_us();
        let at = (ticket.0 - self.first_ticket) as usize;
        let sent = &mut self.sent[at];
        let first = !sent.acknowledged;
        sent.acknowledged |= durable;
        sent.done |= done;
        let Sent { due_us, items, .. } = *sent;
        if durable && first {
            self.last_ack_us = now_us;
            self.seen.acknowledged += items;
            if let Some(moments) = self.moments {
                if moments.measures(now_us) {
                    self.seen.measured += items;
                }
                if moments.measures(due_us) {
                    self.seen.ack.saturating_record_n((now_us - due_us).max(1), items);
                }
            }
        }
        if done {
            self.under_way -= items as usize;
        }
        while self.sent.front().is_some_and(|sent| sent.done) {
            self.sent.pop_front();
            self.first_ticket += 1;
        }
    }
}

impl Pacer {
    fn new(task: &LoadTask, at: usize, seed: u64) -> Pacer {
        let share = |items: usize| items.div_ceil(task.clients);
        match (task.pace, &task.content) {
            (Pace::Rate { per_s }, Content::Hits { .. }) => {
                Pacer::Arrivals(Arrivals::new(per_s / task.clients as f64, Pattern::Poisson, None, seed))
            }
            (Pace::Rate { per_s }, Content::Deltas { round_ms, .. }) => {
                let every_us = *round_ms as f64 * 1_000.0;
                let items = (per_s / task.clients as f64 * every_us / 1e6).round().max(1.0) as usize;
                Pacer::Rounds { items, every_us, next_us: every_us * at as f64 / task.clients as f64 }
            }
            (Pace::Window { items }, _) => Pacer::Window { items: share(items) },
            (Pace::Once { items }, content) => {
                let keys = match content {
                    Content::Hits { .. } => items,
                    Content::Deltas { keys, .. } => *keys,
                };
                Pacer::Once { left: part(keys, task.clients, at).len(), window: share(items).max(ROUND_ADDS) }
            }
        }
    }
}

/// The names that a client counts. With `Once` every key is one client's alone.
fn names(content: &Content, clients: usize, at: usize, pace: Pace) -> Result<Vec<CounterName>, Box<dyn Error>> {
    match content {
        Content::Hits { key } => Ok(vec![CounterName::new(NAMESPACE, key.as_bytes())?]),
        Content::Deltas { keys, draw, .. } => {
            let apart = matches!(pace, Pace::Once { .. }) || *draw == Draw::Zipf;
            let own = if apart { part(*keys, clients, at) } else { 0..*keys };
            own.map(|key| name(key).map_err(Into::into)).collect()
        }
    }
}

/// Clients are spread over the groups of the data centre.
fn site(place: &Place, at: usize) -> Result<GroupSite, Box<dyn Error>> {
    let peer = PeerName::any(&place.dc, Role::Node)?;
    Ok(GroupSite::new(place.nodes.clone().into(), peer, at % place.nodes.len()))
}

fn count_failure(error: &AddError, items: u64, seen: &mut Seen) {
    match error {
        AddError::Overloaded { .. } | AddError::Refused(BatchError::Overloaded { .. }) => seen.overloaded += items,
        _ => seen.failed += items,
    }
}
