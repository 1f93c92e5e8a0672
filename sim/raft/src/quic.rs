//! QUIC between the machines of a run: each process has an endpoint of the transport that ships, on a socket in memory
//! ([`crate::machine`]). The sender is known from certificates.

use crate::machine::{Machine, Speech};
use crate::network::{Layout, Network};
use crate::parties::{CLUSTER, address, identity, is_client, role};
use crate::speaker::Speaker;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tidemark_consensus::raft::{RaftService, RaftTransport};
use tidemark_sim::engine::{Datagrams, Line, Lines, News, Party};
use tidemark_sim::net::LATE_US_MAX;
use tidemark_sim::rng::Rng;
use tidemark_transport::certs::ClusterCa;
use tidemark_transport::memory::{Counts, MemoryNetwork, Way};
use tidemark_transport::{Credentials, Endpoint, EndpointOptions};
use tokio::runtime::Handle;

/// Certificates of a run: their checks are those of the wall clock, which no run outlives.
const CERTIFICATE_DAYS: u32 = 30;
const PPM_PER_10K: u32 = 100;

/// The network, and the machines on it.
pub struct Quic {
    layout: Arc<Layout>,
    network: MemoryNetwork,
    ca: ClusterCa,
    /// The credentials that a process keeps on its disk from start to start.
    credentials: BTreeMap<Party, Credentials>,
    machines: BTreeMap<Party, Arc<Machine>>,
    /// By pair of data centres.
    cut: Vec<Vec<bool>>,
    faulty: bool,
    speaker: Speaker,
    rng: Rng,
    runtime: Handle,
}

impl Quic {
    /// To be called within the runtime.
    pub fn new(layout: Layout, speaker: Speaker, rng: &mut Rng) -> Quic {
        let dcs = layout.sites.len();
        let mut quic = Quic {
            layout: Arc::new(layout),
            network: MemoryNetwork::new(rng.next(), Way::default()),
            ca: ClusterCa::generate(CLUSTER).expect("the name is allowed, and the system has random numbers"),
            credentials: BTreeMap::new(),
            machines: BTreeMap::new(),
            cut: vec![vec![false; dcs]; dcs],
            faulty: true,
            speaker,
            rng: Rng::new(rng.next()),
            runtime: Handle::current(),
        };
        quic.tell_all();
        quic
    }

    /// All ways between data centres as they are now.
    fn tell_all(&mut self) {
        let servers: Vec<Party> = self.layout.servers().collect();
        servers.iter().for_each(|&a| servers.iter().for_each(|&b| self.tell(a, b)));
        let clients: Vec<Party> = self.machines.keys().copied().filter(|&party| is_client(party)).collect();
        clients.into_iter().for_each(|client| self.tell_client(client));
    }

    fn tell_client(&mut self, client: Party) {
        let servers: Vec<Party> = self.layout.servers().collect();
        servers.into_iter().for_each(|server| {
            self.tell(client, server);
            self.tell(server, client);
        });
    }

    fn tell(&mut self, from: Party, to: Party) {
        let [a, b] = [from, to].map(|party| self.layout.dc_of(party));
        let way = self.way(a, b, self.cut[a][b]);
        let [from, to] = [from, to].map(|party| address(&self.layout, party).ip());
        self.network.set_way(from, to, way);
    }

    fn way(&self, from: usize, to: usize, cut: bool) -> Way {
        let (delay, jitter) = self.layout.delay(from, to);
        let ppm = |per_10k: u32| if self.faulty { per_10k * PPM_PER_10K } else { 0 };
        let faults = self.layout.links;
        Way {
            delay,
            jitter,
            loss_ppm: ppm(faults.loss_per_10k),
            duplicate_ppm: ppm(faults.duplicate_per_10k),
            late_ppm: ppm(faults.late_per_10k),
            late_max: Duration::from_micros(LATE_US_MAX),
            cut,
        }
    }

    fn endpoint(&mut self, party: Party) -> Endpoint {
        let mut seed = [0; 32];
        seed.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&self.rng.next().to_le_bytes()));
        let options = EndpointOptions { rng_seed: Some(seed), ..EndpointOptions::of(role(party)) };
        let socket = self.network.open(address(&self.layout, party)).expect("a place has one process at a time");
        let credentials = self.credentials.entry(party).or_insert_with(|| {
            let issued = self.ca.issue(&identity(&self.layout, party), CERTIFICATE_DAYS);
            issued.expect("the CA is of this cluster")
        });
        Endpoint::bind_on(socket, credentials.clone(), options).expect("the options are in their ranges")
    }

    fn start(&mut self, party: Party) -> Arc<Machine> {
        let endpoint = self.endpoint(party);
        let machine = Machine::start(party, endpoint, self.layout.clone(), self.speaker.clone());
        self.machines.insert(party, machine.clone());
        machine
    }

    /// A running process; a client's begins when something is to be said.
    fn machine(&mut self, party: Party) -> Option<Arc<Machine>> {
        match self.machines.get(&party) {
            None if is_client(party) => {
                self.tell_client(party);
                Some(self.start(party))
            }
            known => known.cloned(),
        }
    }
}

impl Network for Quic {
    fn begin(&mut self, party: Party) -> Arc<dyn RaftTransport> {
        Arc::new(Speech::of(self.start(party)))
    }

    fn serve(&mut self, party: Party, service: &Arc<dyn RaftService>) {
        if let Some(machine) = self.machines.get(&party) {
            machine.serve_logs(service);
        }
    }

    fn end(&mut self, party: Party) {
        self.network.unplug(address(&self.layout, party));
        if let Some(machine) = self.machines.remove(&party) {
            machine.stop();
        }
    }

    fn set_cut(&mut self, from: usize, to: usize, cut: bool) {
        self.cut[from][to] = cut;
        let parties: Vec<Party> = self.layout.servers().chain(self.machines.keys().copied()).collect();
        let of = |dc: usize| parties.iter().filter(|&&party| self.layout.dc_of(party) == dc).copied().collect();
        let senders: BTreeSet<Party> = of(from);
        let receivers: BTreeSet<Party> = of(to);
        senders.iter().for_each(|&a| receivers.iter().for_each(|&b| self.tell(a, b)));
    }

    fn set_apart(&mut self, node: usize, other: usize, apart: bool) {
        let [a, b] = [node, other].map(|node| address(&self.layout, Party::Node(node)).ip());
        for (from, to) in [(a, b), (b, a)] {
            self.network.set_way(from, to, Way { cut: apart, ..self.network.way(from, to) });
        }
    }

    fn end_faults(&mut self) {
        self.faulty = false;
        self.cut.iter_mut().for_each(|row| row.fill(false));
        self.tell_all();
    }

    fn lines(&mut self) -> Option<&mut dyn Lines> {
        Some(self)
    }
}

impl Lines for Quic {
    fn say(&mut self, line: Line, message: Vec<u8>) {
        let runtime = self.runtime.clone();
        let _context = runtime.enter();
        match self.machine(line.from) {
            Some(machine) => machine.say(line, message),
            // Its end is told of by other means.
            None => self.speaker.say(News::Broke { line }, None),
        }
    }

    fn hang_up(&mut self, line: Line) {
        for line in [line, line.back()] {
            self.machines.get(&line.from).into_iter().for_each(|machine| machine.hang_up(line));
        }
    }

    fn end_client(&mut self, client: usize, dc: usize) {
        let runtime = self.runtime.clone();
        let _context = runtime.enter();
        self.end(Party::Client { client, dc });
    }

    fn datagrams(&self) -> Datagrams {
        let Counts { sent, lost, cut, doubled, overtaken, .. } = self.network.counts();
        Datagrams { sent, lost, cut, doubled, overtaken, digest: self.network.digest() }
    }
}
