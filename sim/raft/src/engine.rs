//! All members of all logs on one paused runtime, behind the world's seam.

use crate::disk::Disk;
use crate::group;
use crate::ledger;
use crate::speaker::{Said, Speaker};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidemark_consensus::raft::{CallKind, Duplex, RaftService, RaftTransport, Unreachable, seed_thread};
use tidemark_consensus::testing::{Link, MemoryNetwork};
use tidemark_proto::ids::LogIndex;
use tidemark_proto::msg::LedgerCmd;
use tidemark_proto::time::Time;
use tidemark_proto::wire;
use tidemark_sim::disk::Rows;
use tidemark_sim::engine::{Engine, LedgerNews, Lost, News, Started};
use tidemark_sim::net::LinkFaults;
use tidemark_sim::plan::Plan;
use tidemark_sim::rng::Rng;
use tidemark_sim::rtt::RTT_US;
use tokio::runtime::{Builder, Runtime};

/// tokio's timers know whole milliseconds; the engine's clock stands on them, and the world's is never a whole one ahead.
const TICK_US: u64 = 1_000;
/// Messages between nodes of one data centre, with up to as much jitter.
const HOP: Duration = Duration::from_micros(500);

/// A connection on which nothing comes for so long is given up, and with it the calls that wait: QUIC's idle timeout.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

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

/// A process and its disk.
struct Process<M> {
    member: Option<M>,
    alive: Arc<AtomicBool>,
    disk: Disk,
    /// The last entry of its log when it crashed.
    last_log: Option<u64>,
}

impl<M> Process<M> {
    fn new() -> Process<M> {
        Process { member: None, alive: Arc::default(), disk: Disk::default(), last_log: None }
    }

    fn begin(&mut self, transport: Arc<dyn RaftTransport>) -> Arc<dyn RaftTransport> {
        self.alive = Arc::new(AtomicBool::new(true));
        Arc::new(Mortal { alive: self.alive.clone(), transport })
    }

    /// The member, to be stopped, and what the disk lost.
    fn end(&mut self, rng: &mut Rng) -> (Option<M>, Lost) {
        self.alive.store(false, Ordering::Relaxed);
        let (disk, lost) = self.disk.crash(rng);
        self.disk = disk;
        (self.member.take(), lost)
    }
}

/// See the crate.
struct RealLogs {
    speaker: Speaker,
    ledger: Vec<Process<ledger::Member>>,
    replicas: Vec<Process<group::Member>>,
    /// Group of each process, and the processes of each group.
    group_of: Vec<usize>,
    processes: Vec<Range<usize>>,
    mints: Vec<u32>,
    ledger_net: MemoryNetwork,
    group_net: MemoryNetwork,
    /// By pair of data centres.
    links: Vec<Vec<Link>>,
    apart: Vec<bool>,
    layout: ledger::Layout,
    flush: (u64, u64),
    rng: Rng,
    /// Dropped last: tasks end with it.
    runtime: Runtime,
}

/// Real logs for a plan.
pub fn start(plan: &Plan) -> Option<Box<dyn Engine>> {
    let mut rng = Rng::new(plan.seed).fork(77);
    seed_thread(Some(rng.next()));
    let runtime = runtime(rng.next());
    let speaker = {
        let _context = runtime.enter();
        Speaker::new()
    };
    let (mut group_of, mut processes) = (Vec::new(), Vec::new());
    for (group, &replicas) in plan.replicas.iter().enumerate() {
        processes.push(group_of.len()..group_of.len() + replicas);
        group_of.extend(std::iter::repeat_n(group, replicas));
    }
    let flush = (plan.sync.0.0, plan.sync.1.0);
    let layout = ledger::Layout {
        dcs: plan.sites.len(),
        voters: plan.voters.clone(),
        flush: Duration::from_micros(rng.between(flush.0, flush.1)),
    };
    let hop = Link { delay: HOP, jitter: HOP, loss: loss(&plan.links), cut: false };
    let mut logs = RealLogs {
        ledger_net: MemoryNetwork::new(rng.next(), Link::default()),
        group_net: MemoryNetwork::new(rng.next(), hop),
        links: links(plan),
        ledger: (0..plan.sites.len()).map(|_| Process::new()).collect(),
        replicas: group_of.iter().map(|_| Process::new()).collect(),
        mints: vec![1; group_of.len()],
        apart: vec![false; group_of.len()],
        speaker,
        group_of,
        processes,
        layout,
        flush,
        rng,
        runtime,
    };
    logs.tell_links();
    Some(Box::new(logs))
}

fn runtime(seed: u64) -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
    #[cfg(not(tokio_unstable))]
    let _ = seed;
    builder.build().expect("a runtime without IO needs nothing of the system")
}

fn loss(faults: &LinkFaults) -> f64 {
    f64::from(faults.loss_per_10k) / 10_000.0
}

fn links(plan: &Plan) -> Vec<Vec<Link>> {
    let link = |a: usize, b: usize| {
        let delay = Duration::from_micros(u64::from(RTT_US[a][b]) / 2);
        Link { delay, jitter: delay * plan.links.jitter_percent / 100, loss: loss(&plan.links), cut: false }
    };
    plan.sites.iter().map(|&a| plan.sites.iter().map(|&b| link(a, b)).collect()).collect()
}

impl RealLogs {
    fn tell_links(&mut self) {
        for (from, row) in self.links.iter().enumerate() {
            for (to, link) in row.iter().enumerate() {
                self.ledger_net.set_link(ledger::member(from), ledger::member(to), *link);
            }
        }
    }

    fn flush(&mut self) -> Duration {
        Duration::from_micros(self.rng.between(self.flush.0, self.flush.1))
    }

    /// Runs until somebody says something or it is `until`.
    fn run(&mut self, until: Time) {
        let (heard, deadline) = (self.speaker.heard.clone(), self.speaker.when(until));
        self.runtime.block_on(async move {
            tokio::select! {
                biased;
                () = heard.notified() => {}
                () = tokio::time::sleep_until(deadline) => {}
            }
        });
    }

    fn now(&self) -> Time {
        let _context = self.runtime.enter();
        self.speaker.now()
    }

    fn hand_out(&mut self, said: Said) -> (Time, News) {
        if let (News::Group { node, .. }, Some(position)) = (&said.news, said.position)
            && let Some(member) = &mut self.replicas[*node].member
        {
            member.telling = Some(position);
        }
        (said.at, said.news)
    }

    /// The member that leads, of these processes.
    fn leader(&self, nodes: Range<usize>) -> Option<&group::Member> {
        let members = nodes.filter_map(|node| self.replicas[node].member.as_ref());
        members.filter(|member| member.replica.metrics().get().is_leader).max_by_key(|m| m.replica.metrics().get().term)
    }
}

impl Engine for RealLogs {
    fn next(&mut self, until: Time) -> Option<(Time, News)> {
        let until = Time(until.0 / TICK_US * TICK_US);
        loop {
            if let Some(said) = self.speaker.take(until) {
                return Some(self.hand_out(said));
            }
            if self.now() >= until {
                return None;
            }
            self.run(until);
        }
    }

    fn start_ledger(&mut self, dc: usize, boot: u32) -> Result<Vec<LedgerNews>, String> {
        let transport = self.ledger[dc].begin(self.ledger_net.transport(ledger::member(dc)));
        let (disk, layout, speaker) = (self.ledger[dc].disk.clone(), self.layout.clone(), self.speaker.clone());
        let started = ledger::Member::start((dc, boot), disk, layout, transport, speaker);
        let member = self.runtime.block_on(started).map_err(|error| error.to_string())?;
        self.ledger_net.attach(ledger::member(dc), &member.service);
        self.ledger[dc].member = Some(member);
        let of = |news: &News| matches!(news, News::Ledger { dc: d, boot: b, .. } if (*d, *b) == (dc, boot));
        let said = self.speaker.extract(of).into_iter();
        Ok(said.filter_map(|news| if let News::Ledger { news, .. } = news { Some(news) } else { None }).collect())
    }

    fn crash_ledger(&mut self, dc: usize) -> Lost {
        self.ledger_net.detach(ledger::member(dc));
        let (member, lost) = self.ledger[dc].end(&mut self.rng);
        let _context = self.runtime.enter();
        member.into_iter().for_each(ledger::Member::stop);
        lost
    }

    fn propose(&mut self, dc: usize, cmds: &[LedgerCmd]) {
        let Some(member) = &self.ledger[dc].member else { return };
        // What is lost is said again from state.
        let _ = member.raft.submit(cmds.iter().map(|cmd| wire::encode(cmd).into()).collect());
    }

    fn elect(&mut self, candidate: usize) {
        let leads = self.ledger.iter().filter_map(|process| process.member.as_ref()).find(|m| m.raft.is_leader());
        if let Some(raft) = leads.map(|member| member.raft.clone()).filter(|_| self.layout.voters.contains(&candidate))
        {
            self.runtime.spawn(async move {
                let _ = raft.transfer_leader(ledger::member(candidate)).await;
            });
        }
    }

    fn start_replica(&mut self, node: usize, boot: u32, nonce: u64) -> Result<Started, String> {
        let (group, flush) = (self.group_of[node], self.flush());
        let placement = self.processes[group].clone().map(|node| node as u32).collect();
        let place = group::Place { node, boot, group, placement, mint: self.mints[node], nonce, flush };
        let transport = self.replicas[node].begin(self.group_net.transport(node as u64));
        let disk = self.replicas[node].disk.clone();
        let started = group::Member::start(place, disk, transport, self.speaker.clone());
        let (member, count, rows) = self.runtime.block_on(started).map_err(|error| error.to_string())?;
        let service: Arc<dyn RaftService> = member.replica.service();
        self.group_net.attach(node as u64, &service);
        let had = self.replicas[node].last_log.take().map_or(0, |last| last + 1);
        let has = member.replica.metrics().get().last_log.map_or(0, |last| last + 1);
        self.replicas[node].member = Some(member);
        Ok(Started { rows, count, entries_lost: had.saturating_sub(has) })
    }

    fn crash_replica(&mut self, node: usize) -> Lost {
        self.group_net.detach(node as u64);
        let metrics = self.replicas[node].member.as_ref().map(|member| member.replica.metrics().get());
        self.replicas[node].last_log = metrics.and_then(|metrics| metrics.last_log);
        let (member, lost) = self.replicas[node].end(&mut self.rng);
        let _context = self.runtime.enter();
        member.into_iter().for_each(group::Member::stop);
        lost
    }

    fn wipe(&mut self, node: usize) {
        debug_assert!(self.replicas[node].member.is_none(), "a disk is lost while its process is down");
        (self.replicas[node].disk, self.replicas[node].last_log) = Default::default();
        self.mints[node] += 1;
    }

    fn is_whole(&self, nodes: Range<usize>) -> bool {
        let Some(metrics) = self.leader(nodes.clone()).map(|leader| leader.replica.metrics().get()) else {
            return false;
        };
        let members = nodes.clone().filter_map(|node| self.replicas[node].member.as_ref());
        let mut members = members.map(|member| member.replica.member());
        let has_all = |member: &u64| metrics.matched.get(member).copied().flatten() >= metrics.committed;
        metrics.voters.len() == nodes.len()
            && metrics.learners.is_empty()
            && members.all(|member| metrics.voters.contains(&member) && has_all(&member))
    }

    fn submit(&mut self, node: usize, leadership: u64, entry: Vec<u8>) -> bool {
        let Some(member) = &self.replicas[node].member else { return false };
        member.replica.submit(leadership, vec![entry.into()]).is_ok()
    }

    fn taken(&mut self, node: usize) {
        if let Some(member) = &mut self.replicas[node].member {
            member.position = member.telling.take().or(member.position.take());
        }
    }

    fn checkpoint(&mut self, node: usize, applied: LogIndex, last: bool, rows: Rows) {
        let _context = self.runtime.enter();
        if let Some(member) = &mut self.replicas[node].member {
            member.checkpoint(applied, last, rows);
        }
    }

    fn hand_over(&mut self, nodes: Range<usize>) {
        let Some(leader) = self.leader(nodes.clone()).map(|leader| leader.replica.clone()) else { return };
        let members = nodes.filter_map(|node| self.replicas[node].member.as_ref());
        let others: Vec<u64> = members.map(|m| m.replica.member()).filter(|&other| other != leader.member()).collect();
        if others.is_empty() {
            return;
        }
        let to = *self.rng.pick(&others);
        self.runtime.spawn(async move {
            let _ = leader.transfer_leader(to).await;
        });
    }

    fn fail_disk_after(&mut self, node: usize, writes: u64) {
        self.replicas[node].disk.fail_after(writes);
    }

    fn fill_disk(&mut self, node: usize, full: bool) {
        self.replicas[node].disk.fill(full);
    }

    fn set_cut(&mut self, from: usize, to: usize, cut: bool) {
        if self.links[from][to].cut != cut {
            self.links[from][to].cut = cut;
            let link = self.links[from][to];
            self.ledger_net.set_link(ledger::member(from), ledger::member(to), link);
        }
    }

    fn set_apart(&mut self, node: usize, apart: bool) {
        if std::mem::replace(&mut self.apart[node], apart) == apart {
            return;
        }
        for other in self.processes[self.group_of[node]].clone().filter(|&other| other != node) {
            let cut = apart || self.apart[other];
            self.group_net.cut(&[node as u64], &[other as u64], cut);
        }
    }

    fn end_faults(&mut self) {
        self.links.iter_mut().flatten().for_each(|link| (link.loss, link.cut) = (0.0, false));
        self.tell_links();
        self.replicas.iter().for_each(|process| process.disk.spare());
        let hop = Link { delay: HOP, jitter: HOP, loss: 0.0, cut: false };
        for nodes in &self.processes {
            let pairs = nodes.clone().flat_map(|a| nodes.clone().map(move |b| (a, b)));
            pairs.for_each(|(a, b)| self.group_net.set_link(a as u64, b as u64, hop));
        }
        self.apart.fill(false);
    }
}

impl Drop for RealLogs {
    fn drop(&mut self) {
        let _context = self.runtime.enter();
        self.ledger.iter_mut().filter_map(|process| process.member.take()).for_each(ledger::Member::stop);
        self.replicas.iter_mut().filter_map(|process| process.member.take()).for_each(group::Member::stop);
        seed_thread(None);
    }
}
