//! A UDP socket for quinn that obeys a [`LinkPlan`] and counts.
//!
//! Delayed datagrams wait in one queue per endpoint, and one thread sends each when it is due. It is a thread, because the runtime's timers
//! tick in milliseconds and its workers have other work. A burst that quinn hands over as one segmented send (GSO) stays one entry and is
//! sent as one, without the segments that were lost.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;

use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

use super::plan::{LinkPlan, Peer, Shaper};
use super::queue::{DelayQueue, QUEUE_BYTES_MAX};

/// The sending thread sleeps at least so long when nothing is due, in microseconds: bounds its wake-ups to 10,000 a
/// second, and adds at most this to a delay.
pub const RELEASE_PAUSE_US: u64 = 100;
/// Bursts sent in one round, between two looks at the queue.
const ROUND_BURSTS_MAX: usize = 256;
/// A socket that is full is tried again so often, with a pause of [`RELEASE_PAUSE_US`], before the burst is dropped.
const SEND_TRIES_MAX: u32 = 20;

/// A socket under another one's name, with links.
pub struct LinkSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    plan: LinkPlan,
    waiting: Arc<Waiting>,
}

impl LinkSocket {
    /// Puts the links of `plan` before `inner`. Starts the sending thread, which ends when the socket is dropped and
    /// everything under way has been sent.
    pub fn wrap(inner: Arc<dyn AsyncUdpSocket>, plan: LinkPlan) -> io::Result<Arc<Self>> {
        let waiting = Arc::new(Waiting::new());
        let sender = Sender { inner: inner.clone(), plan: plan.clone(), waiting: waiting.clone() };
        thread::Builder::new().name("tidemark-link".into()).spawn(move || sender.run())?;
        Ok(Arc::new(Self { inner, plan, waiting }))
    }

    fn pass(&self, peer: &Peer, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)?;
        peer.counts.sent(segments(transmit), transmit.contents.len());
        Ok(())
    }

    /// Counts the datagrams, takes the lost ones away and puts off the rest.
    fn shape(&self, peer: &Arc<Peer>, shaper: &mut Shaper, transmit: &Transmit<'_>, now_us: u64) {
        peer.counts.sent(segments(transmit), transmit.contents.len());
        let rest = without_lost(peer, shaper, transmit);
        let stride = transmit.segment_size.unwrap_or(rest.len()).max(1);
        let piece_bytes = if shaper.link.reorder { stride } else { rest.len() };
        if rest.is_empty() {
            return;
        }
        for piece in rest.chunks(piece_bytes) {
            let burst = Burst::new(peer, transmit, piece);
            let due_us = shaper.due_us(now_us);
            match due_us <= now_us {
                true => self.send_now(&burst),
                false => self.waiting.push(due_us, burst),
            }
        }
    }

    /// For links that only lose. A full socket drops, as the chance was drawn already.
    fn send_now(&self, burst: &Burst) {
        if self.inner.try_send(&burst.transmit()).is_err() {
            burst.peer.counts.overflowed.fetch_add(burst.datagrams(), Relaxed);
        }
    }
}

impl AsyncUdpSocket for LinkSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.inner.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let peer = self.plan.peer(transmit.destination);
        let now_us = self.plan.now_us();
        let mut shaper = peer.lock();
        if shaper.link.cut {
            peer.counts.sent(segments(transmit), transmit.contents.len());
            peer.counts.cut.fetch_add(segments(transmit), Relaxed);
        } else if shaper.passes(now_us) {
            drop(shaper);
            return self.pass(&peer, transmit);
        } else {
            self.shape(&peer, &mut shaper, transmit, now_us);
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = ready!(self.inner.poll_recv(cx, bufs, meta))?;
        if self.plan.has_cuts() {
            meta[..received].iter_mut().for_each(|meta| drop_if_cut(&self.plan, meta));
        }
        Poll::Ready(Ok(received))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

impl Drop for LinkSocket {
    fn drop(&mut self) {
        self.waiting.close();
    }
}

impl fmt::Debug for LinkSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkSocket").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// Datagrams of one size (the last may be shorter) to one peer, sent together.
struct Burst {
    peer: Arc<Peer>,
    destination: SocketAddr,
    ecn: Option<EcnCodepoint>,
    src_ip: Option<IpAddr>,
    segment_size: Option<usize>,
    contents: Box<[u8]>,
}

impl Burst {
    fn new(peer: &Arc<Peer>, transmit: &Transmit<'_>, contents: &[u8]) -> Self {
        Self {
            peer: peer.clone(),
            destination: transmit.destination,
            ecn: transmit.ecn,
            src_ip: transmit.src_ip,
            segment_size: transmit.segment_size.filter(|size| *size < contents.len()),
            contents: contents.into(),
        }
    }

    fn transmit(&self) -> Transmit<'_> {
        Transmit {
            destination: self.destination,
            ecn: self.ecn,
            contents: &self.contents,
            segment_size: self.segment_size,
            src_ip: self.src_ip,
        }
    }

    fn datagrams(&self) -> u64 {
        segments(&self.transmit())
    }
}

/// The queue between the connections and the sending thread.
struct Waiting {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    queue: DelayQueue<Burst>,
    /// When the sending thread looks next, unless it is woken.
    wakes_us: u64,
    closed: bool,
}

impl Waiting {
    fn new() -> Self {
        let state = State { queue: DelayQueue::new(QUEUE_BYTES_MAX), wakes_us: 0, closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn push(&self, due_us: u64, burst: Burst) {
        let mut state = self.lock();
        if let Err(burst) = state.queue.push(due_us, burst.contents.len(), burst) {
            burst.peer.counts.overflowed.fetch_add(burst.datagrams(), Relaxed);
            return;
        }
        if due_us < state.wakes_us {
            state.wakes_us = due_us;
            self.changed.notify_one();
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending thread.
struct Sender {
    inner: Arc<dyn AsyncUdpSocket>,
    plan: LinkPlan,
    waiting: Arc<Waiting>,
}

impl Sender {
    fn run(self) {
        let mut round = Vec::with_capacity(ROUND_BURSTS_MAX);
        while self.wait_for_due(&mut round) {
            round.drain(..).for_each(|burst| self.release(&burst));
        }
    }

    /// Waits until something is due and takes it; false when the socket is gone and nothing is left.
    fn wait_for_due(&self, round: &mut Vec<Burst>) -> bool {
        let mut state = self.waiting.lock();
        loop {
            let now_us = self.plan.now_us();
            let due = std::iter::from_fn(|| state.queue.pop_due(now_us));
            round.extend(due.take(ROUND_BURSTS_MAX));
            if !round.is_empty() {
                state.wakes_us = 0;
                return true;
            }
            if state.closed && state.queue.is_empty() {
                return false;
            }
            state = self.sleep(state, now_us);
        }
    }

    fn sleep<'s>(&self, mut state: MutexGuard<'s, State>, now_us: u64) -> MutexGuard<'s, State> {
        state.wakes_us = state.queue.next_due().unwrap_or(u64::MAX);
        if state.wakes_us == u64::MAX {
            return self.waiting.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let rest = Duration::from_micros(state.wakes_us.saturating_sub(now_us).max(RELEASE_PAUSE_US));
        self.waiting.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0
    }

    fn release(&self, burst: &Burst) {
        if burst.peer.lock().link.cut {
            burst.peer.counts.cut.fetch_add(burst.datagrams(), Relaxed);
        } else if !self.send(burst) {
            burst.peer.counts.overflowed.fetch_add(burst.datagrams(), Relaxed);
        }
    }

    /// Other errors than a full socket are the network's, and datagrams may be lost: QUIC sends them again.
    fn send(&self, burst: &Burst) -> bool {
        for _ in 0..SEND_TRIES_MAX {
            match self.inner.try_send(&burst.transmit()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => pause(),
                _ => return true,
            }
        }
        false
    }
}

fn pause() {
    thread::sleep(Duration::from_micros(RELEASE_PAUSE_US));
}

fn segments(transmit: &Transmit<'_>) -> u64 {
    match transmit.segment_size {
        Some(size) => transmit.contents.len().div_ceil(size.max(1)) as u64,
        None => 1,
    }
}

/// The contents without those segments that chance takes. All but the last have one size, and stay so.
fn without_lost<'t>(peer: &Peer, shaper: &mut Shaper, transmit: &Transmit<'t>) -> std::borrow::Cow<'t, [u8]> {
    if shaper.link.loss_ppm == 0 {
        return transmit.contents.into();
    }
    let stride = transmit.segment_size.unwrap_or(transmit.contents.len()).max(1);
    let mut kept = Vec::with_capacity(transmit.contents.len());
    for segment in transmit.contents.chunks(stride) {
        match shaper.loses() {
            true => _ = peer.counts.lost.fetch_add(1, Relaxed),
            false => kept.extend_from_slice(segment),
        }
    }
    kept.into()
}

/// An empty datagram is ignored by quinn.
fn drop_if_cut(plan: &LinkPlan, meta: &mut RecvMeta) {
    if let Some(peer) = plan.cut_peer(meta.addr) {
        peer.counts.cut.fetch_add(meta.len.div_ceil(meta.stride.max(1)) as u64, Relaxed);
        meta.len = 0;
    }
}
