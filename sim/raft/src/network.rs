//! The network between the machines of a run: messages in memory, or QUIC over datagrams in memory ([`crate::quic`]).

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidemark_consensus::raft::{CallKind, Duplex, RaftService, RaftTransport, Unreachable};
use tidemark_consensus::testing::{Link, MemoryNetwork};
use tidemark_sim::engine::{Lines, Party};
use tidemark_sim::net::LinkFaults;
use tidemark_sim::plan::Plan;
use tidemark_sim::rng::Rng;
use tidemark_sim::rtt::RTT_US;

use crate::ledger;

/// Between machines of one data centre, with up to as much jitter.
pub const HOP: Duration = Duration::from_micros(500);
/// A connection on which nothing comes for so long is given up, and with it the calls that wait: QUIC's idle timeout.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A party's number in its log, if it has one.
pub fn member(party: Party) -> Option<u64> {
    match party {
        Party::Aggregator(dc) => Some(ledger::member(dc)),
        Party::Node(node) => Some(node as u64),
        Party::Client { .. } => None,
    }
}

/// Carries what members of logs say to one another. To be called within the runtime.
pub trait Network {
    /// A process starts: its way to others, which ends with it.
    fn begin(&mut self, party: Party) -> Arc<dyn RaftTransport>;
    /// From now on it is heard.
    fn serve(&mut self, party: Party, service: &Arc<dyn RaftService>);
    /// The process has crashed.
    fn end(&mut self, party: Party);
    /// Whether nothing passes from one data centre to another.
    fn set_cut(&mut self, from: usize, to: usize, cut: bool);
    /// Whether nothing passes between two processes of a group.
    fn set_apart(&mut self, node: usize, other: usize, apart: bool);
    /// Links only delay from here on.
    fn end_faults(&mut self);
    /// Connections that carry more than what logs say, if there are any.
    fn lines(&mut self) -> Option<&mut dyn Lines>;
}

/// Where the processes of a plan stand.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Processes of each group.
    pub groups: Vec<Range<usize>>,
    /// Data centre of each group.
    pub dcs: Vec<usize>,
    /// Of each data centre, in the table of round trips.
    pub sites: Vec<usize>,
    pub links: LinkFaults,
}

impl Layout {
    pub fn of(plan: &Plan) -> Layout {
        let mut end = 0;
        let group = |&replicas: &usize| {
            end += replicas;
            end - replicas..end
        };
        let groups = plan.replicas.iter().map(group).collect();
        Layout { groups, dcs: plan.nodes.clone(), sites: plan.sites.clone(), links: plan.links }
    }

    pub fn nodes(&self) -> usize {
        self.groups.last().map_or(0, |last| last.end)
    }

    pub fn group_of(&self, node: usize) -> usize {
        self.groups.iter().position(|nodes| nodes.contains(&node)).expect("each process is of a group")
    }

    pub fn dc_of(&self, party: Party) -> usize {
        match party {
            Party::Aggregator(dc) | Party::Client { dc, .. } => dc,
            Party::Node(node) => self.dcs[self.group_of(node)],
        }
    }

    /// All but clients.
    pub fn servers(&self) -> impl Iterator<Item = Party> {
        (0..self.sites.len()).map(Party::Aggregator).chain((0..self.nodes()).map(Party::Node))
    }

    /// One way from a data centre to another, and the most that jitter adds to it.
    pub fn delay(&self, from: usize, to: usize) -> (Duration, Duration) {
        if from == to {
            return (HOP, HOP);
        }
        let delay = Duration::from_micros(u64::from(RTT_US[self.sites[from]][self.sites[to]]) / 2);
        (delay, delay * self.links.jitter_percent / 100)
    }
}

// ---- messages in memory ----

/// Messages in memory, in order, with a delay each.
pub struct InMemory {
    layout: Layout,
    ledger: MemoryNetwork,
    groups: MemoryNetwork,
    loss: f64,
    alive: Vec<(Party, Arc<AtomicBool>)>,
}

impl InMemory {
    pub fn new(layout: Layout, rng: &mut Rng) -> InMemory {
        let loss = f64::from(layout.links.loss_per_10k) / 10_000.0;
        let hop = Link { delay: HOP, jitter: HOP, loss, cut: false };
        let ledger = MemoryNetwork::new(rng.next(), Link::default());
        let groups = MemoryNetwork::new(rng.next(), hop);
        let mut network = InMemory { layout, ledger, groups, loss, alive: Vec::new() };
        network.for_each_pair(|network, from, to| network.set_cut(from, to, false));
        network
    }

    fn for_each_pair(&mut self, mut what: impl FnMut(&mut InMemory, usize, usize)) {
        let dcs = self.layout.sites.len();
        (0..dcs).for_each(|from| (0..dcs).for_each(|to| what(self, from, to)));
    }

    fn net(&self, party: Party) -> &MemoryNetwork {
        if matches!(party, Party::Aggregator(_)) { &self.ledger } else { &self.groups }
    }
}

impl Network for InMemory {
    fn begin(&mut self, party: Party) -> Arc<dyn RaftTransport> {
        let alive = Arc::new(AtomicBool::new(true));
        self.alive.push((party, alive.clone()));
        Arc::new(Mortal { alive, transport: self.net(party).transport(number(party)) })
    }

    fn serve(&mut self, party: Party, service: &Arc<dyn RaftService>) {
        self.net(party).attach(number(party), service);
    }

    fn end(&mut self, party: Party) {
        self.net(party).detach(number(party));
        self.alive.extract_if(.., |(of, _)| *of == party).for_each(|(_, alive)| alive.store(false, Ordering::Relaxed));
    }

    fn set_cut(&mut self, from: usize, to: usize, cut: bool) {
        let (delay, jitter) = match from == to {
            true => (Duration::ZERO, Duration::ZERO),
            false => self.layout.delay(from, to),
        };
        self.ledger.set_link(ledger::member(from), ledger::member(to), Link { delay, jitter, loss: self.loss, cut });
    }

    fn set_apart(&mut self, node: usize, other: usize, apart: bool) {
        self.groups.cut(&[node as u64], &[other as u64], apart);
    }

    fn end_faults(&mut self) {
        self.loss = 0.0;
        self.for_each_pair(|network, from, to| network.set_cut(from, to, false));
        let hop = Link { delay: HOP, jitter: HOP, loss: 0.0, cut: false };
        for nodes in &self.layout.groups {
            let pairs = nodes.clone().flat_map(|a| nodes.clone().map(move |b| (a, b)));
            pairs.for_each(|(a, b)| self.groups.set_link(a as u64, b as u64, hop));
        }
    }

    fn lines(&mut self) -> Option<&mut dyn Lines> {
        None
    }
}

fn number(party: Party) -> u64 {
    member(party).expect("clients have no log")
}

/// A process's way to others, which ends with the process.
struct Mortal {
    alive: Arc<AtomicBool>,
    transport: Arc<dyn RaftTransport>,
}

impl RaftTransport for Mortal {
    fn call(&self, target: u64, kind: CallKind, request: Bytes) -> BoxFuture<'_, Result<Bytes, Unreachable>> {
        async move {
            if !self.alive.load(Ordering::Relaxed) {
                return Err(dead(target));
            }
            let lost = |_| Unreachable { target, reason: "the connection was lost".to_owned() };
            tokio::time::timeout(IDLE_TIMEOUT, self.transport.call(target, kind, request)).await.map_err(lost)?
        }
        .boxed()
    }

    fn open(&self, target: u64) -> BoxFuture<'_, Result<Duplex, Unreachable>> {
        match self.alive.load(Ordering::Relaxed) {
            true => self.transport.open(target),
            false => async move { Err(dead(target)) }.boxed(),
        }
    }
}

fn dead(target: u64) -> Unreachable {
    Unreachable { target, reason: "this process has ended".to_owned() }
}
