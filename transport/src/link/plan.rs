//! The table of links: what is asked of each peer's link, and what has gone over it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use thiserror::Error;

/// Longest delay and jitter, in microseconds: ten seconds, the default idle timeout.
pub const ONE_WAY_US_MAX: u64 = 10_000_000;
/// Peers with an entry or counters of their own. Past it, new peers share one set of counters and have no link.
pub const PEERS_MAX: usize = 4096;
/// How long one draw of jitter holds where order is kept, in microseconds.
///
/// A fresh draw per datagram, with order kept, would pin every delay of a busy link to the longest one drawn.
pub const JITTER_HOLD_US: u64 = 5_000;

const PPM: u32 = 1_000_000;

/// A link that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LinkError {
    /// Delay or jitter is too long.
    #[error("{what} of {value_us} us, the limit is {limit_us}")]
    TooSlow {
        /// Delay or jitter.
        what: &'static str,
        /// The requested value.
        value_us: u64,
        /// The longest that is allowed.
        limit_us: u64,
    },
    /// More is lost than sent.
    #[error("a loss of {value_ppm} ppm, the limit is 1000000")]
    Loss {
        /// The requested value.
        value_ppm: u32,
    },
    /// The table is full.
    #[error("the table has {limit} peers and takes no more")]
    TooManyPeers {
        /// The most peers.
        limit: usize,
    },
}

/// The treatment of datagrams on their way to a peer. The default is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link {
    /// Every datagram leaves this much later, in microseconds; at most [`ONE_WAY_US_MAX`].
    pub one_way_us: u64,
    /// And up to this much later still, evenly drawn, in microseconds; at most [`ONE_WAY_US_MAX`].
    pub jitter_us: u64,
    /// Number of datagrams in a million that are lost, each independently.
    pub loss_ppm: u32,
    /// Nothing goes out, what is under way is lost, and what comes in from the peer is dropped.
    /// (`loss_ppm` of a million cuts one direction only.)
    pub cut: bool,
    /// Jitter is drawn for every datagram and may change their order; otherwise order is kept.
    pub reorder: bool,
}

impl Link {
    /// A link with a constant delay.
    pub fn delay(one_way_us: u64) -> Self {
        Self { one_way_us, ..Self::default() }
    }

    fn check(self) -> Result<Self, LinkError> {
        for (what, value_us) in [("a delay", self.one_way_us), ("a jitter", self.jitter_us)] {
            if value_us > ONE_WAY_US_MAX {
                return Err(LinkError::TooSlow { what, value_us, limit_us: ONE_WAY_US_MAX });
            }
        }
        if self.loss_ppm > PPM { Err(LinkError::Loss { value_ppm: self.loss_ppm }) } else { Ok(self) }
    }
}

/// Counters of datagrams to a peer since the start. Bytes are those in UDP datagrams; on the wire each datagram takes 28 (IPv4) or 48
/// (IPv6) more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkCounters {
    /// Datagrams handed to the link, those lost on it included.
    pub datagrams: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of these datagrams, lost by chance.
    pub lost: u64,
    /// Of these datagrams, lost by a cut; and those from the peer dropped by a cut.
    pub cut: u64,
    /// Of these datagrams, dropped because the queue or the socket was full.
    pub overflowed: u64,
}

/// A table of links by the peer's address, shared by all holders of a clone, changeable at any time.
///
/// Meant for one endpoint. Chance is a function of the seed, the peer's address and the order of datagrams to it.
#[derive(Debug, Clone)]
pub struct LinkPlan {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    seed: u64,
    epoch: Instant,
    peers: RwLock<HashMap<SocketAddr, Arc<Peer>>>,
    /// Counts for all past [`PEERS_MAX`].
    others: Arc<Peer>,
    cuts: AtomicUsize,
}

impl LinkPlan {
    /// An empty table.
    pub fn new(seed: u64) -> Self {
        let inner = Inner {
            seed,
            epoch: Instant::now(),
            peers: RwLock::default(),
            others: Arc::new(Peer::new(seed)),
            cuts: AtomicUsize::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Sets the link to a peer, for datagrams from now on.
    pub fn set(&self, peer: SocketAddr, link: Link) -> Result<(), LinkError> {
        let link = link.check()?;
        self.change(peer, |old| *old = link)
    }

    /// Cuts the link to a peer, in both directions.
    pub fn cut(&self, peer: SocketAddr) -> Result<(), LinkError> {
        self.change(peer, |link| link.cut = true)
    }

    /// Ends a cut; delay, jitter and loss are as before.
    pub fn heal(&self, peer: SocketAddr) -> Result<(), LinkError> {
        self.change(peer, |link| link.cut = false)
    }

    /// The link to a peer.
    pub fn get(&self, peer: SocketAddr) -> Link {
        self.find(peer).map_or_else(Link::default, |peer| peer.lock().link)
    }

    /// The counters of a peer.
    pub fn counters(&self, peer: SocketAddr) -> LinkCounters {
        self.find(peer).map_or_else(LinkCounters::default, |peer| peer.counts.read())
    }

    /// The counters of each peer, by address; then, if there are any, those of peers past [`PEERS_MAX`].
    pub fn all_counters(&self) -> (Vec<(SocketAddr, LinkCounters)>, LinkCounters) {
        let peers = self.inner.peers.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = peers.iter().map(|(addr, peer)| (*addr, peer.counts.read())).collect();
        all.sort_unstable_by_key(|(addr, _)| *addr);
        (all, self.inner.others.counts.read())
    }

    /// Microseconds since the table was made: the clock of its links.
    pub(super) fn now_us(&self) -> u64 {
        u64::try_from(self.inner.epoch.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The entry of the receiver of a datagram.
    pub(super) fn peer(&self, addr: SocketAddr) -> Arc<Peer> {
        match self.find(addr) {
            Some(peer) => peer,
            None => self.enter(addr).unwrap_or_else(|_| self.inner.others.clone()),
        }
    }

    /// The entry of the sender of a datagram, if its link is cut.
    pub(super) fn cut_peer(&self, addr: SocketAddr) -> Option<Arc<Peer>> {
        self.find(addr).filter(|peer| peer.lock().link.cut)
    }

    /// Whether any link is cut.
    pub(super) fn has_cuts(&self) -> bool {
        self.inner.cuts.load(Relaxed) > 0
    }

    fn find(&self, addr: SocketAddr) -> Option<Arc<Peer>> {
        let peers = self.inner.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers.get(&canonical(addr)).cloned()
    }

    fn enter(&self, addr: SocketAddr) -> Result<Arc<Peer>, LinkError> {
        let addr = canonical(addr);
        let mut peers = self.inner.peers.write().unwrap_or_else(PoisonError::into_inner);
        if peers.len() >= PEERS_MAX && !peers.contains_key(&addr) {
            return Err(LinkError::TooManyPeers { limit: PEERS_MAX });
        }
        let new = || Arc::new(Peer::new(peer_seed(self.inner.seed, addr)));
        Ok(peers.entry(addr).or_insert_with(new).clone())
    }

    fn change(&self, addr: SocketAddr, change: impl FnOnce(&mut Link)) -> Result<(), LinkError> {
        let peer = self.enter(addr)?;
        let mut state = peer.lock();
        let was_cut = state.link.cut;
        change(&mut state.link);
        match (was_cut, state.link.cut) {
            (false, true) => self.inner.cuts.fetch_add(1, Relaxed),
            (true, false) => self.inner.cuts.fetch_sub(1, Relaxed),
            _ => 0,
        };
        Ok(())
    }
}

/// A peer: its link, and what went there.
#[derive(Debug)]
pub(super) struct Peer {
    state: Mutex<Shaper>,
    pub(super) counts: Counts,
}

impl Peer {
    fn new(seed: u64) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let shaper = Shaper { link: Link::default(), rng, busy_until_us: 0, jitter_us: 0, jitter_until_us: 0 };
        Self { state: Mutex::new(shaper), counts: Counts::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Shaper> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The rules of one link. Knows the time only from its caller.
#[derive(Debug)]
pub(super) struct Shaper {
    pub(super) link: Link,
    rng: ChaCha8Rng,
    /// When the latest datagram leaves; where order is kept, none leaves before it.
    busy_until_us: u64,
    jitter_us: u64,
    jitter_until_us: u64,
}

impl Shaper {
    /// Whether datagrams need no treatment at all.
    pub(super) fn passes(&self, now_us: u64) -> bool {
        let Link { one_way_us, jitter_us, loss_ppm, .. } = self.link;
        one_way_us == 0 && jitter_us == 0 && loss_ppm == 0 && self.busy_until_us <= now_us
    }

    /// Draws whether the next datagram is lost.
    pub(super) fn loses(&mut self) -> bool {
        self.link.loss_ppm > 0 && self.rng.random_range(0..PPM) < self.link.loss_ppm
    }

    /// When the next datagrams leave, in microseconds of the plan's clock.
    pub(super) fn due_us(&mut self, now_us: u64) -> u64 {
        let due = now_us + self.link.one_way_us + self.draw_jitter(now_us);
        if self.link.reorder {
            return due;
        }
        self.busy_until_us = due.max(self.busy_until_us);
        self.busy_until_us
    }

    fn draw_jitter(&mut self, now_us: u64) -> u64 {
        if self.link.jitter_us == 0 {
            return 0;
        }
        if self.link.reorder || now_us >= self.jitter_until_us {
            self.jitter_us = self.rng.random_range(0..=self.link.jitter_us);
            self.jitter_until_us = now_us + JITTER_HOLD_US;
        }
        self.jitter_us
    }
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    datagrams: AtomicU64,
    bytes: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) cut: AtomicU64,
    pub(super) overflowed: AtomicU64,
}

impl Counts {
    pub(super) fn sent(&self, datagrams: u64, bytes: usize) {
        self.datagrams.fetch_add(datagrams, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn read(&self) -> LinkCounters {
        LinkCounters {
            datagrams: self.datagrams.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            lost: self.lost.load(Relaxed),
            cut: self.cut.load(Relaxed),
            overflowed: self.overflowed.load(Relaxed),
        }
    }
}

/// One address, one key: an IPv4 address seen through an IPv6 socket is the IPv4 address.
fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// FNV-1a over the address, from the plan's seed.
fn peer_seed(seed: u64, addr: SocketAddr) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    addr.to_string().bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn shaper(link: Link) -> Shaper {
        let plan = LinkPlan::new(7);
        plan.set(addr(1), link).unwrap();
        let peer = plan.find(addr(1)).unwrap();
        drop(plan);
        Arc::into_inner(peer).unwrap().state.into_inner().unwrap()
    }

    #[test]
    fn jitter_keeps_order_unless_asked() {
        let link = Link { one_way_us: 1000, jitter_us: 900, ..Link::default() };
        let mut kept = shaper(link);
        let due: Vec<u64> = (0..10_000).map(|n| kept.due_us(n * 10)).collect();
        assert!(due.is_sorted());
        let mut free = shaper(Link { reorder: true, ..link });
        let due: Vec<u64> = (0..10_000).map(|n| free.due_us(n * 10)).collect();
        assert!(!due.is_sorted());
    }

    #[test]
    fn jitter_stays_within_its_limits_and_is_not_pinned_to_the_longest() {
        let mut shaper = shaper(Link { one_way_us: 1000, jitter_us: 1000, ..Link::default() });
        let delays: Vec<u64> = (0..100_000).map(|n| shaper.due_us(n * 10) - n * 10).collect();
        assert!(delays.iter().all(|delay| (1000..=2000).contains(delay)));
        let mean = delays.iter().sum::<u64>() / 100_000;
        assert!((1400..1700).contains(&mean), "{mean}");
    }

    #[test]
    fn loss_is_as_frequent_as_asked_and_repeats_with_its_seed() {
        let link = Link { loss_ppm: 20_000, ..Link::default() };
        let draw = |mut shaper: Shaper| (0..100_000).map(|_| shaper.loses()).collect::<Vec<bool>>();
        let losses = draw(shaper(link));
        let lost = losses.iter().filter(|lost| **lost).count();
        assert!((1800..2200).contains(&lost), "{lost}");
        assert_eq!(losses, draw(shaper(link)));
    }

    #[test]
    fn a_link_that_cannot_be_is_refused() {
        let plan = LinkPlan::new(0);
        let slow = plan.set(addr(1), Link::delay(ONE_WAY_US_MAX + 1));
        assert!(matches!(slow, Err(LinkError::TooSlow { .. })));
        let lossy = plan.set(addr(1), Link { loss_ppm: 1_000_001, ..Link::default() });
        assert_eq!(lossy, Err(LinkError::Loss { value_ppm: 1_000_001 }));
        assert_eq!(plan.get(addr(1)), Link::default());
    }

    #[test]
    fn past_the_limit_peers_share_their_counters() {
        let plan = LinkPlan::new(0);
        for port in 0..=PEERS_MAX as u16 {
            plan.peer(addr(port)).counts.sent(1, 10);
        }
        let (all, others) = plan.all_counters();
        assert_eq!((all.len(), others.datagrams, others.bytes), (PEERS_MAX, 1, 10));
        let refused = plan.set(addr(60_000), Link::delay(1));
        assert_eq!(refused, Err(LinkError::TooManyPeers { limit: PEERS_MAX }));
        assert!(plan.set(addr(0), Link::delay(1)).is_ok());
    }

    #[test]
    fn a_mapped_address_is_the_same_peer() {
        let plan = LinkPlan::new(0);
        plan.set("[::ffff:127.0.0.1]:9".parse().unwrap(), Link::delay(5)).unwrap();
        assert_eq!(plan.get(addr(9)), Link::delay(5));
    }

    #[test]
    fn cuts_are_counted() {
        let plan = LinkPlan::new(0);
        plan.cut(addr(1)).unwrap();
        plan.cut(addr(1)).unwrap();
        assert!(plan.has_cuts() && plan.cut_peer(addr(1)).is_some() && plan.cut_peer(addr(2)).is_none());
        plan.heal(addr(1)).unwrap();
        assert!(!plan.has_cuts());
    }
}
