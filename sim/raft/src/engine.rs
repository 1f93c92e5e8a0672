//! All members of all logs on one paused runtime, behind the world's seam.

use crate::disk::Disk;
use crate::group;
use crate::ledger;
use crate::network::{InMemory, Layout, Network};
use crate::quic::Quic;
use crate::speaker::{Said, Speaker};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tidemark_consensus::raft::{RaftService, RaftTransport, seed_thread};
use tidemark_consensus::replica::{Absent, member_id, node_of};
use tidemark_proto::ids::LogIndex;
use tidemark_proto::msg::LedgerCmd;
use tidemark_proto::time::Time;
use tidemark_proto::wire;
use tidemark_sim::disk::Rows;
use tidemark_sim::engine::{Engine, LedgerNews, Lines, Lost, News, Party, Reads, Started};
use tidemark_sim::plan::Plan;
use tidemark_sim::rng::Rng;
use tokio::runtime::{Builder, Runtime};

/// tokio's timers know whole milliseconds; the engine's clock stands on them, and the world's is never a whole one ahead.
const TICK_US: u64 = 1_000;
/// A process and its disk.
struct Process<M> {
    member: Option<M>,
    disk: Disk,
    /// The last entry of its log when it crashed.
    last_log: Option<u64>,
}

impl<M> Process<M> {
    fn new() -> Process<M> {
        Process { member: None, disk: Disk::default(), last_log: None }
    }

    /// The member, to be stopped, and what the disk lost.
    fn end(&mut self, rng: &mut Rng) -> (Option<M>, Lost) {
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
    layout: Layout,
    mints: Vec<u32>,
    /// Members that were let go by their groups.
    aside: BTreeSet<u64>,
    /// By process: the service that answers where its machine runs and holds nothing of the group.
    standing_by: Vec<Option<Arc<dyn RaftService>>>,
    network: Box<dyn Network>,
    /// By pair of data centres.
    cut: Vec<Vec<bool>>,
    apart: Vec<bool>,
    members: ledger::Layout,
    flush: (u64, u64),
    rng: Rng,
    /// Dropped last: tasks end with it.
    runtime: Runtime,
}

/// Real logs for a plan, with messages in memory between them.
pub fn start(plan: &Plan) -> Option<Box<dyn Engine>> {
    begin(plan, |layout, _, rng| Box::new(InMemory::new(layout, rng)))
}

/// Real logs for a plan, with QUIC between them.
pub fn start_on_quic(plan: &Plan) -> Option<Box<dyn Engine>> {
    begin(plan, |layout, speaker, rng| Box::new(Quic::new(layout, speaker.clone(), rng)))
}

fn begin(plan: &Plan, network: fn(Layout, &Speaker, &mut Rng) -> Box<dyn Network>) -> Option<Box<dyn Engine>> {
    let mut rng = Rng::new(plan.seed).fork(77);
    seed_thread(Some(rng.next()));
    let runtime = runtime(rng.next());
    let layout = Layout::of(plan);
    let flush = (plan.sync.0.0, plan.sync.1.0);
    let members = ledger::Layout {
        dcs: plan.sites.len(),
        voters: plan.voters.clone(),
        flush: Duration::from_micros(rng.between(flush.0, flush.1)),
    };
    let (speaker, network) = {
        let _context = runtime.enter();
        let speaker = Speaker::new();
        let network = network(layout.clone(), &speaker, &mut rng);
        (speaker, network)
    };
    let dcs = plan.sites.len();
    let nodes = layout.nodes();
    Some(Box::new(RealLogs {
        ledger: (0..dcs).map(|_| Process::new()).collect(),
        replicas: (0..nodes).map(|_| Process::new()).collect(),
        mints: vec![1; nodes],
        aside: BTreeSet::new(),
        standing_by: vec![None; nodes],
        cut: vec![vec![false; dcs]; dcs],
        apart: vec![false; nodes],
        speaker,
        network,
        layout,
        members,
        flush,
        rng,
        runtime,
    }))
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

impl RealLogs {
    fn flush(&mut self) -> Duration {
        Duration::from_micros(self.rng.between(self.flush.0, self.flush.1))
    }

    /// Runs until a member has news or it is `until`.
    fn run(&mut self, until: Time) {
        let heard = self.speaker.heard.clone();
        let deadline = self.speaker.when(until);
        self.runtime.block_on(async move {
            tokio::select! {
                biased;
                () = heard.notified() => {}
                () = tokio::time::sleep_until(deadline) => {}
            }
        });
    }

    /// A process's way to others.
    fn start(&mut self, party: Party) -> Arc<dyn RaftTransport> {
        let _context = self.runtime.enter();
        self.network.begin(party)
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
        let transport = self.start(Party::Aggregator(dc));
        let disk = self.ledger[dc].disk.clone();
        let members = self.members.clone();
        let speaker = self.speaker.clone();
        let started = ledger::Member::start(dc, boot, disk, members, transport, speaker);
        let member = self.runtime.block_on(started).map_err(|error| error.to_string())?;
        self.network.serve(Party::Aggregator(dc), &member.service);
        self.ledger[dc].member = Some(member);
        let of = |news: &News| matches!(news, News::Ledger { dc: d, boot: b, .. } if (*d, *b) == (dc, boot));
        let said = self.speaker.extract(of).into_iter();
        Ok(said.filter_map(|news| if let News::Ledger { news, .. } = news { Some(news) } else { None }).collect())
    }

    fn crash_ledger(&mut self, dc: usize) -> Lost {
        let (member, lost) = self.ledger[dc].end(&mut self.rng);
        let _context = self.runtime.enter();
        self.network.end(Party::Aggregator(dc));
        member.into_iter().for_each(ledger::Member::stop);
        lost
    }

    fn propose(&mut self, dc: usize, cmds: &[LedgerCmd]) {
        let Some(member) = &self.ledger[dc].member else { return };
        // A lost command is sent again from state.
        let _ = member.raft.submit(cmds.iter().map(|cmd| wire::encode(cmd).into()).collect());
    }

    fn elect(&mut self, candidate: usize) {
        let leads = self.ledger.iter().filter_map(|process| process.member.as_ref()).find(|m| m.raft.is_leader());
        if let Some(raft) = leads.map(|member| member.raft.clone()).filter(|_| self.members.voters.contains(&candidate))
        {
            self.runtime.spawn(async move {
                let _ = raft.transfer_leader(ledger::member(candidate)).await;
            });
        }
    }

    fn start_replica(&mut self, node: usize, boot: u32, nonce: u64, reads: &Reads) -> Result<Started, String> {
        self.stand_by(node, false, reads);
        let group = self.layout.group_of(node);
        let flush = self.flush();
        let place = group::Place { node, boot, group, reads: reads.clone(), mint: self.mints[node], nonce, flush };
        let transport = self.start(Party::Node(node));
        let disk = self.replicas[node].disk.clone();
        let started = group::Member::start(place, disk, transport, self.speaker.clone());
        let (member, count, rows) = self.runtime.block_on(started).map_err(|error| error.to_string())?;
        let service: Arc<dyn RaftService> = member.replica.service();
        self.network.serve(Party::Node(node), &service);
        let had = self.replicas[node].last_log.take().map_or(0, |last| last + 1);
        let has = member.replica.metrics().get().last_log.map_or(0, |last| last + 1);
        self.replicas[node].member = Some(member);
        Ok(Started { rows, count, entries_lost: had.saturating_sub(has) })
    }

    fn stand_by(&mut self, node: usize, runs: bool, reads: &Reads) {
        debug_assert!(self.replicas[node].member.is_none(), "it holds the group's log");
        let party = Party::Node(node);
        if self.standing_by[node].take().is_some() {
            let _context = self.runtime.enter();
            self.network.end(party);
        }
        if runs {
            drop(self.start(party));
            let [nodes, gone] = [&reads.nodes, &reads.gone].map(|some| some.len() as u32);
            let service: Arc<dyn RaftService> = Arc::new(Absent { node: node as u32, nodes, gone });
            self.network.serve(party, &service);
            self.standing_by[node] = Some(service);
        }
    }

    fn crash_replica(&mut self, node: usize) -> Lost {
        let metrics = self.replicas[node].member.as_ref().map(|member| member.replica.metrics().get());
        self.replicas[node].last_log = metrics.and_then(|metrics| metrics.last_log);
        let (member, lost) = self.replicas[node].end(&mut self.rng);
        let _context = self.runtime.enter();
        self.network.end(Party::Node(node));
        member.into_iter().for_each(group::Member::stop);
        lost
    }

    fn wipe(&mut self, node: usize) {
        debug_assert!(self.replicas[node].member.is_none(), "a disk is lost while its process is down");
        (self.replicas[node].disk, self.replicas[node].last_log) = Default::default();
        self.mints[node] += 1;
    }

    fn set_aside(&mut self, node: usize) {
        self.aside.insert(member_id(node as u32, self.mints[node]));
        self.wipe(node);
    }

    fn is_whole(&self, nodes: Range<usize>) -> bool {
        let Some(metrics) = self.leader(nodes.clone()).map(|leader| leader.replica.metrics().get()) else {
            return false;
        };
        let members = nodes.clone().filter_map(|node| self.replicas[node].member.as_ref());
        let members: BTreeSet<u64> = members.map(|member| member.replica.member()).collect();
        let has_all = |member: &u64| metrics.matched.get(member).copied().flatten() >= metrics.committed;
        let is_there = |voter: &u64| self.aside.contains(voter) || members.contains(voter) && has_all(voter);
        metrics.learners.is_empty() && metrics.voters.iter().all(is_there)
    }

    fn is_settled(&self, nodes: Range<usize>, placed: &[usize]) -> bool {
        let Some(metrics) = self.leader(nodes).map(|leader| leader.replica.metrics().get()) else {
            return false;
        };
        let voters: BTreeSet<usize> = metrics.voters.iter().map(|voter| node_of(*voter) as usize).collect();
        metrics.learners.is_empty()
            && metrics.voters.len() == placed.len()
            && placed.iter().all(|node| voters.contains(node))
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
        if std::mem::replace(&mut self.cut[from][to], cut) != cut {
            self.network.set_cut(from, to, cut);
        }
    }

    fn set_apart(&mut self, node: usize, apart: bool) {
        if std::mem::replace(&mut self.apart[node], apart) == apart {
            return;
        }
        let nodes = self.layout.groups[self.layout.group_of(node)].clone();
        for other in nodes.filter(|&other| other != node) {
            self.network.set_apart(node, other, apart || self.apart[other]);
        }
    }

    fn end_faults(&mut self) {
        self.network.end_faults();
        self.replicas.iter().for_each(|process| process.disk.spare());
        self.cut.iter_mut().for_each(|row| row.fill(false));
        self.apart.fill(false);
    }

    fn lines(&mut self) -> Option<&mut dyn Lines> {
        self.network.lines()
    }
}

impl Drop for RealLogs {
    fn drop(&mut self) {
        let _context = self.runtime.enter();
        self.layout.servers().for_each(|party| self.network.end(party));
        self.ledger.iter_mut().filter_map(|process| process.member.take()).for_each(ledger::Member::stop);
        self.replicas.iter_mut().filter_map(|process| process.member.take()).for_each(group::Member::stop);
        seed_thread(None);
    }
}
