//! A network of datagrams in memory, for runs on virtual time: sockets that [`Endpoint::bind_on`](crate::Endpoint::bind_on) takes, and
//! ways between them that delay, lose, double and reorder datagrams, or let none pass.
//!
//! Time is tokio's, so that on a paused clock a run costs no waiting; tokio's timers know whole milliseconds, so that a datagram comes
//! with the first of them at which it is due. Chance is a function of the seed and of the order of datagrams.

use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::future::Future as _;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, Sleep, sleep_until};

/// Datagrams under way to one address; more are lost.
pub const UNDER_WAY_MAX: usize = 16_384;
/// Larger datagrams are lost: what UDP over IPv4 leaves of an Ethernet frame.
pub const DATAGRAM_BYTES_MAX: usize = 1_472;

const PPM: u32 = 1_000_000;
/// FNV-1a, 64 bits.
const DIGEST_START: u64 = 0xcbf2_9ce4_8422_2325;
const DIGEST_PRIME: u64 = 0x0100_0000_01b3;

/// The treatment of datagrams from one host to another. The default is nothing: they come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Way {
    /// Every datagram takes so long.
    pub delay: Duration,
    /// Up to this much additional delay, each independently: by chance they overtake one another.
    pub jitter: Duration,
    /// Number of datagrams in a million that are lost.
    pub loss_ppm: u32,
    /// Number of datagrams in a million that come twice.
    pub duplicate_ppm: u32,
    /// Number of datagrams in a million that are late by up to [`late_max`](Self::late_max) more.
    pub late_ppm: u32,
    /// See [`late_ppm`](Self::late_ppm).
    pub late_max: Duration,
    /// No datagram passes.
    pub cut: bool,
}

/// Datagrams over a network since its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Sent, those that were lost included.
    pub sent: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Sent where nothing passes.
    pub cut: u64,
    /// Come twice.
    pub doubled: u64,
    /// Come after one that was sent later.
    pub overtaken: u64,
    /// Datagrams to an address without a listener.
    pub unheard: u64,
    /// Too large, or too many under way.
    pub refused: u64,
}

/// A cloneable handle on a network.
#[derive(Clone)]
pub struct MemoryNetwork(Arc<Mutex<State>>);

struct State {
    hosts: BTreeMap<SocketAddr, Host>,
    ways: BTreeMap<(IpAddr, IpAddr), Way>,
    default: Way,
    random: ChaCha8Rng,
    sockets: u64,
    counts: Counts,
    digest: u64,
    origin: Instant,
}

/// An address, and what is under way to it.
#[derive(Default)]
struct Host {
    /// The listener: a socket by its number.
    socket: Option<u64>,
    waker: Option<Waker>,
    under_way: BinaryHeap<Datagram>,
    /// Datagrams sent to here, and the latest sent that has come, by sender.
    sent: u64,
    newest: BTreeMap<SocketAddr, u64>,
}

/// The greatest is the first to come.
#[derive(PartialEq, Eq)]
struct Datagram {
    at: Instant,
    number: u64,
    from: SocketAddr,
    content: Arc<[u8]>,
}

impl Ord for Datagram {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Datagram {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl MemoryNetwork {
    /// A network on which every way is `default` until told otherwise. To be called within a tokio runtime with time.
    pub fn new(seed: u64, default: Way) -> Self {
        Self(Arc::new(Mutex::new(State {
            hosts: BTreeMap::new(),
            ways: BTreeMap::new(),
            default,
            random: ChaCha8Rng::seed_from_u64(seed),
            sockets: 0,
            counts: Counts::default(),
            digest: DIGEST_START,
            origin: Instant::now(),
        })))
    }

    /// Opens a socket. Datagrams under way to an earlier socket of this address come to this one, as with real sockets.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`]: another socket has the address.
    pub fn open(&self, addr: SocketAddr) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let now = Instant::now();
        let mut state = self.state();
        let number = state.sockets + 1;
        let State { hosts, counts, sockets, .. } = &mut *state;
        let host = hosts.entry(addr).or_default();
        if host.socket.is_some() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        host.socket = Some(number);
        *sockets = number;
        while host.under_way.peek().is_some_and(|first| first.at <= now) {
            host.under_way.pop();
            counts.unheard += 1;
        }
        drop(state);
        let timer = Mutex::new(Box::pin(sleep_until(now)));
        Ok(Arc::new(MemorySocket { network: self.clone(), addr, number, timer }))
    }

    /// The machine at this address stops: its socket sends and receives nothing from here on, and another may be opened.
    pub fn unplug(&self, addr: SocketAddr) {
        if let Some(host) = self.state().hosts.get_mut(&addr) {
            (host.socket, host.waker) = (None, None);
        }
    }

    /// Changes one direction between two hosts, for datagrams from now on.
    pub fn set_way(&self, from: IpAddr, to: IpAddr, way: Way) {
        self.state().ways.insert((from, to), way);
    }

    /// One direction between two hosts.
    pub fn way(&self, from: IpAddr, to: IpAddr) -> Way {
        self.state().way(from, to)
    }

    /// The datagrams so far.
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    /// A hash of the times, sizes, senders and receivers of datagrams: equal in two runs that send the same datagrams. Their content is
    /// encrypted by keys that no two runs share.
    pub fn digest(&self) -> u64 {
        self.state().digest
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryNetwork({:?})", self.counts())
    }
}

impl State {
    fn way(&self, from: IpAddr, to: IpAddr) -> Way {
        self.ways.get(&(from, to)).copied().unwrap_or(self.default)
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, content: &[u8]) {
        let now = Instant::now();
        self.counts.sent += 1;
        self.digest_sent(now, from, to, content.len());
        let way = self.way(from.ip(), to.ip());
        if way.cut {
            self.counts.cut += 1;
        } else if self.chance(way.loss_ppm) {
            self.counts.lost += 1;
        } else if content.len() > DATAGRAM_BYTES_MAX {
            self.counts.refused += 1;
        } else {
            let content: Arc<[u8]> = content.into();
            let at = now + self.travel(&way);
            let again = self.chance(way.duplicate_ppm).then(|| now + self.travel(&way));
            self.counts.doubled += u64::from(again.is_some());
            self.put(from, to, at, &content);
            again.into_iter().for_each(|at| self.put(from, to, at, &content));
        }
    }

    fn put(&mut self, from: SocketAddr, to: SocketAddr, at: Instant, content: &Arc<[u8]>) {
        let host = self.hosts.entry(to).or_default();
        if host.under_way.len() >= UNDER_WAY_MAX {
            self.counts.refused += 1;
            return;
        }
        host.sent += 1;
        let first = host.under_way.peek().is_none_or(|first| at < first.at);
        host.under_way.push(Datagram { at, number: host.sent, from, content: content.clone() });
        // A listener waits for the first datagram.
        host.waker.take_if(|_| first).into_iter().for_each(Waker::wake);
    }

    fn travel(&mut self, way: &Way) -> Duration {
        let late = if self.chance(way.late_ppm) { self.part(way.late_max) } else { Duration::ZERO };
        way.delay + self.part(way.jitter) + late
    }

    fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.random.random_range(0..PPM) < ppm
    }

    fn part(&mut self, of: Duration) -> Duration {
        let us = u64::try_from(of.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(if us == 0 { 0 } else { self.random.random_range(0..=us) })
    }

    fn digest_sent(&mut self, now: Instant, from: SocketAddr, to: SocketAddr, bytes: usize) {
        let since = (now - self.origin).as_micros().to_le_bytes();
        let mut take = |bytes: &[u8]| {
            for &byte in bytes {
                self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(DIGEST_PRIME);
            }
        };
        take(&since);
        for addr in [from, to] {
            match addr.ip() {
                IpAddr::V4(ip) => take(&ip.octets()),
                IpAddr::V6(ip) => take(&ip.octets()),
            }
            take(&addr.port().to_le_bytes());
        }
        take(&bytes.to_le_bytes());
    }
}

/// A socket of the network.
struct MemorySocket {
    network: MemoryNetwork,
    addr: SocketAddr,
    number: u64,
    /// Until the next datagram is due.
    timer: Mutex<Pin<Box<Sleep>>>,
}

impl MemorySocket {
    /// Takes what has come; when to look again if that is nothing, and if it is known.
    fn receive(
        &self,
        waker: &Waker,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Result<usize, Option<Instant>> {
        let now = Instant::now();
        let mut state = self.network.state();
        let State { hosts, counts, .. } = &mut *state;
        let host = hosts.get_mut(&self.addr).filter(|host| host.socket == Some(self.number)).ok_or(None)?;
        let mut taken = 0;
        while taken < bufs.len().min(meta.len()) && host.under_way.peek().is_some_and(|first| first.at <= now) {
            let Some(Datagram { number, from, content, .. }) = host.under_way.pop() else { break };
            let newest = host.newest.entry(from).or_default();
            counts.overtaken += u64::from(number < *newest);
            *newest = number.max(*newest);
            let len = content.len().min(bufs[taken].len());
            bufs[taken][..len].copy_from_slice(&content[..len]);
            meta[taken] = RecvMeta { addr: from, len, stride: len, ecn: None, dst_ip: None };
            taken += 1;
        }
        if taken > 0 {
            return Ok(taken);
        }
        host.waker = Some(waker.clone());
        Err(host.under_way.peek().map(|first| first.at))
    }
}

impl AsyncUdpSocket for MemorySocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let mut state = self.network.state();
        let listens = state.hosts.get(&self.addr).and_then(|host| host.socket);
        if listens == Some(self.number) {
            let stride = transmit.segment_size.unwrap_or(transmit.contents.len()).max(1);
            transmit.contents.chunks(stride).for_each(|piece| state.send(self.addr, transmit.destination, piece));
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.receive(cx.waker(), bufs, meta) {
                Ok(taken) => return Poll::Ready(Ok(taken)),
                Err(None) => return Poll::Pending,
                Err(Some(next)) => {
                    let mut timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner);
                    timer.as_mut().reset(next);
                    ready!(timer.as_mut().poll(cx));
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

impl Drop for MemorySocket {
    fn drop(&mut self) {
        let mut state = self.network.state();
        if let Some(host) = state.hosts.get_mut(&self.addr).filter(|host| host.socket == Some(self.number)) {
            (host.socket, host.waker) = (None, None);
        }
    }
}

impl fmt::Debug for MemorySocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemorySocket({})", self.addr)
    }
}

#[derive(Debug)]
struct AlwaysWritable;

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
