//! A network in memory: one-way delays, jitter, cut links and lossy calls, all of them settable while it runs.
//!
//! Streams are ordered and reliable: a lost packet costs a stream time, not messages, and a cut link ends it with
//! its next message. Delays need tokio's clock, paused or not; randomness is a function of the seed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::raft::{CallKind, Duplex, RaftService, RaftTransport, Unreachable};

/// Messages under way in one direction of a stream; senders wait past it.
const IN_FLIGHT_MAX: usize = 1024;

/// How one direction between two members behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Link {
    /// One-way delay.
    pub delay: Duration,
    /// Up to this is added to each message's delay.
    pub jitter: Duration,
    /// Share of messages that are lost, 0.0 to 1.0. A lost call is never answered; a stream's message is sent again
    /// after twice the delay.
    pub loss: f64,
    /// Nothing passes.
    pub cut: bool,
}

/// A cloneable handle on the network.
#[derive(Clone)]
pub struct MemoryNetwork(Arc<Mutex<State>>);

struct State {
    services: BTreeMap<u64, Weak<dyn RaftService>>,
    links: BTreeMap<(u64, u64), Link>,
    default: Link,
    random: u64,
    /// By sender and receiver.
    messages: BTreeMap<(u64, u64), u64>,
}

impl MemoryNetwork {
    /// A network on which every link is `default` until told otherwise.
    pub fn new(seed: u64, default: Link) -> Self {
        let services = BTreeMap::new();
        let links = BTreeMap::new();
        Self(Arc::new(Mutex::new(State { services, links, default, random: seed | 1, messages: BTreeMap::new() })))
    }

    /// The transport of member `id`.
    pub fn transport(&self, id: u64) -> Arc<dyn RaftTransport> {
        Arc::new(MemoryTransport { network: self.clone(), id })
    }

    /// Delivers messages for `id` to `service` from now on, as long as it lives.
    pub fn attach(&self, id: u64, service: &Arc<dyn RaftService>) {
        self.state().services.insert(id, Arc::downgrade(service));
    }

    /// `id` cannot be reached any more.
    pub fn detach(&self, id: u64) {
        self.state().services.remove(&id);
    }

    /// Changes the direction from `from` to `to`.
    pub fn set_link(&self, from: u64, to: u64, link: Link) {
        self.state().links.insert((from, to), link);
    }

    /// Cuts or mends both directions between each of `left` and each of `right`.
    pub fn cut(&self, left: &[u64], right: &[u64], cut: bool) {
        let mut state = self.state();
        for (a, b) in left.iter().flat_map(|a| right.iter().map(move |b| (*a, *b))) {
            for pair in [(a, b), (b, a)] {
                let link = state.link(pair);
                state.links.insert(pair, Link { cut, ..link });
            }
        }
    }

    /// Messages sent so far, answers included.
    pub fn messages(&self) -> u64 {
        self.state().messages.values().sum()
    }

    /// Of these, from one member to another.
    pub fn messages_between(&self, from: u64, to: u64) -> u64 {
        self.state().messages.get(&(from, to)).copied().unwrap_or(0)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("a holder panicked")
    }

    fn service(&self, id: u64) -> Option<Arc<dyn RaftService>> {
        self.state().services.get(&id).and_then(Weak::upgrade)
    }

    /// When a message sent now arrives; `None` if the link is cut.
    fn arrival(&self, from: u64, to: u64) -> Option<Fate> {
        let mut state = self.state();
        *state.messages.entry((from, to)).or_default() += 1;
        let link = state.link((from, to));
        if link.cut {
            return None;
        }
        let lost = state.draw() < link.loss;
        let delay = link.delay + link.jitter.mul_f64(state.draw());
        Some(Fate { lost, at: Instant::now() + if lost { delay * 3 } else { delay } })
    }
}

struct Fate {
    lost: bool,
    at: Instant,
}

impl State {
    fn link(&self, pair: (u64, u64)) -> Link {
        self.links.get(&pair).copied().unwrap_or(self.default)
    }

    /// xorshift64*: 0.0 to 1.0.
    fn draw(&mut self) -> f64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }
}

struct MemoryTransport {
    network: MemoryNetwork,
    id: u64,
}

impl MemoryTransport {
    fn unreachable(target: u64, reason: &str) -> Unreachable {
        Unreachable { target, reason: reason.to_owned() }
    }

    /// Waits for a message's journey; a lost one never arrives.
    async fn travel(&self, from: u64, to: u64) {
        match self.network.arrival(from, to) {
            Some(fate) if !fate.lost => sleep_until(fate.at).await,
            _ => std::future::pending().await,
        }
    }

    async fn exchange(&self, target: u64, kind: CallKind, request: Bytes) -> Result<Bytes, Unreachable> {
        self.travel(self.id, target).await;
        let service = self.network.service(target).ok_or_else(|| Self::unreachable(target, "nobody listens"))?;
        let answer = service.on_call(self.id, kind, request).await;
        self.travel(target, self.id).await;
        answer.map_err(|error| Self::unreachable(target, &error.to_string()))
    }
}

impl RaftTransport for MemoryTransport {
    fn call(&self, target: u64, kind: CallKind, request: Bytes) -> BoxFuture<'_, Result<Bytes, Unreachable>> {
        self.exchange(target, kind, request).boxed()
    }

    fn open(&self, target: u64) -> BoxFuture<'_, Result<Duplex, Unreachable>> {
        async move {
            let service = self.network.service(target).ok_or_else(|| Self::unreachable(target, "nobody listens"))?;
            let (near, near_end) = Duplex::pair();
            let (far, far_end) = Duplex::pair();
            tokio::spawn(carry(self.network.clone(), self.id, target, near_end.receiver, far_end.sender));
            tokio::spawn(carry(self.network.clone(), target, self.id, far_end.receiver, near_end.sender));
            let id = self.id;
            tokio::spawn(async move {
                if let Err(error) = service.on_stream(id, far).await {
                    tracing::debug!(from = id, to = target, %error, "stream refused");
                }
            });
            Ok(near)
        }
        .boxed()
    }
}

/// Moves messages of one direction, in order, each not before its time.
async fn carry(
    network: MemoryNetwork,
    from: u64,
    to: u64,
    mut source: mpsc::Receiver<Bytes>,
    sink: mpsc::Sender<Bytes>,
) {
    let (sender, mut under_way) = mpsc::channel::<(Instant, Bytes)>(IN_FLIGHT_MAX);
    tokio::spawn(async move {
        while let Some(message) = source.recv().await {
            let Some(fate) = network.arrival(from, to) else {
                return;
            };
            if sender.send((fate.at, message)).await.is_err() {
                return;
            }
        }
    });
    while let Some((at, message)) = under_way.recv().await {
        sleep_until(at).await;
        if sink.send(message).await.is_err() {
            return;
        }
    }
}
