//! A run: processes, links and disks of a plan on virtual time, driven by the event queue.

mod aggregators;
mod asked;
mod audit;
mod claims;
mod clients;
mod edges;
mod eras;
mod faults;
mod impostors;
mod joins;
mod leases;
mod lines;
mod links;
mod lives;
mod lost;
mod moments;
mod moves;
mod news;
mod nodes;
mod old_disks;
mod old_views;
mod once;
mod pairs;
mod reads;
mod replicas;
mod series;
mod shards;
mod sizes;
mod valves;
mod versions;

use crate::checkers::Findings;
use crate::checkers::sizes::Day;
use crate::coverage::Coverage;
use crate::engine::Engine;
use crate::net::Net;
use crate::oracle::Oracle;
use crate::plan::{LAST_MILESTONE_MAX, LIVENESS_MAX, Plan};
use crate::queue::Queue;
use crate::raft::{Cmds, Raft, RaftMsg};
use crate::rng::Rng;
use crate::teeth::Mutation;
use crate::trace::Trace;
use aggregators::AggregatorProc;
use audit::Audit;
use claims::Suitor;
use clients::{ClientProc, Conn};
use joins::Joins;
use links::Links;
use lost::LostGroup;
use moments::Moments;
use news::Truth;
use nodes::NodeProc;
use old_disks::OldDisk;
use replicas::{Command, GroupLog};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tidemark_proto::client::LinkId;
use tidemark_proto::ids::{ClientId, CounterName, GroupId};
use tidemark_proto::ledger::Ledger;
use tidemark_proto::msg::{ForGroup, FromClient, FromGroup, LedgerCmd, PeerMsg, ToClient};
use tidemark_proto::shards::ShardId;
use tidemark_proto::time::{Span, Time};
use versions::Versions;

/// The namespace of every counter of a run.
pub const NAMESPACE: &str = "sim";

/// Something that happens at a time.
#[derive(Debug)]
pub enum Event {
    // Clients.
    Arrive {
        slot: usize,
    },
    /// Something with an id is sent.
    Once,
    /// A reader comes, or asks again.
    Read,
    ReadAgain {
        read: u64,
    },
    ClientTick {
        client: usize,
    },
    ConnOpen {
        conn: usize,
    },
    ConnUp {
        conn: usize,
    },
    ConnGoneAtClient {
        conn: usize,
    },
    ConnGoneAtNode {
        conn: usize,
    },
    ToNode {
        conn: usize,
        boot: u32,
        msg: FromClient,
    },
    ToClient {
        conn: usize,
        msg: ToClient,
    },
    // Nodes.
    NodeTick {
        node: usize,
        boot: u32,
    },
    Synced {
        node: usize,
        boot: u32,
        upto: u64,
        lie: bool,
    },
    Persisted {
        node: usize,
        boot: u32,
    },
    NodeRestart {
        node: usize,
    },
    Reconfigure {
        node: usize,
    },
    DiskFreed {
        node: usize,
    },
    /// An operator gives a data centre another layout.
    Layout {
        dc: usize,
    },
    /// A group loses a disk meanwhile.
    DiskLost {
        group: usize,
    },
    /// And restarts one of its machines.
    Turn {
        dc: usize,
        machine: usize,
    },
    // Node ↔ aggregator.
    ToGroup {
        group: usize,
        seat: usize,
        link: u32,
        msg: ForGroup,
    },
    FromGroup {
        group: usize,
        seat: usize,
        link: u32,
        msg: FromGroup,
    },
    // Aggregators.
    AggregatorTick {
        dc: usize,
        boot: u32,
    },
    AggregatorPersisted {
        dc: usize,
        boot: u32,
        shard: ShardId,
    },
    AggregatorRestart {
        dc: usize,
    },
    ToPeer {
        from: usize,
        to: usize,
        link: u32,
        msg: PeerMsg,
    },
    // The ledger's log.
    RaftLeaves {
        from: usize,
        boot: u32,
        to: usize,
        msg: RaftMsg<Cmds>,
    },
    RaftArrives {
        from: usize,
        to: usize,
        boot: u32,
        msg: RaftMsg<Cmds>,
    },
    RaftSnapshot {
        to: usize,
        boot: u32,
        index: usize,
        ledger: Box<Ledger>,
    },
    // The logs of groups.
    GroupLeaves {
        from: usize,
        boot: u32,
        to: usize,
        msg: RaftMsg<Command>,
    },
    GroupArrives {
        from: usize,
        to: usize,
        boot: u32,
        msg: RaftMsg<Command>,
    },
    GroupProposal {
        node: usize,
        boot: u32,
        command: Command,
    },
    GroupElection {
        group: usize,
    },
    // The world.
    Scan,
    /// Sizes are measured.
    Measure,
    Fault(usize),
    Heal(usize),
    OldDisk(usize),
    /// An old copy takes the place of a view's disk.
    OldView(usize),
    /// An operator sets a view aside.
    SetAside(usize),
    /// An operator orders a move of a shard again, or takes it back.
    MoveShard(usize),
    StayShard(usize),
    SplitShard(usize),
    /// A milestone at this count may be armed without that view.
    ArmedWithout(usize, u64),
    /// An operator declares a group lost.
    Declare(usize),
    /// And it is founded anew.
    FoundAnew,
    /// An aggregator reads the layout that knows of a group that joined.
    ReadLayout {
        at: usize,
    },
    /// A client is started anew, with such a group as its home.
    Rehome {
        slot: usize,
        group: usize,
    },
    /// An image of a data centre is taken.
    Image {
        dc: usize,
    },
    Admin(usize),
    /// An entry of the ledger's log is proposed again.
    Copy(Cmds),
    // Claims of awards.
    Ask {
        suitor: usize,
    },
    Look {
        suitor: usize,
    },
    Blurt {
        cmd: LedgerCmd,
    },
    Impostor {
        group: usize,
        of: ClientId,
        lane: u8,
    },
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub trace_hash: u64,
    pub findings: Findings,
    pub events: u64,
    pub increments: u64,
    /// Milestones awarded.
    pub milestones: u64,
    pub virtual_time: Time,
    pub coverage: Coverage,
    /// The memory of processes, in a run of days.
    pub days: Vec<Day>,
}

pub struct World {
    pub plan: Plan,
    now: Time,
    queue: Queue<Event>,
    rng: Rng,
    net: Net,
    links: Links,
    raft: Raft<Cmds>,
    /// Since when no leader reaches a majority.
    raft_alone_since: Option<Time>,
    /// Elections of its leader so far, and since when each data centre leads, or led last.
    elections: u64,
    elected: Vec<Option<Time>>,
    /// The ledger at the newest committed entry, known to any process or not.
    reference: Ledger,
    reference_index: usize,
    /// Of shards that are being moved.
    floors: shards::Floors,
    nodes: Vec<NodeProc>,
    /// The logs of groups on several nodes.
    logs: Vec<Option<GroupLog>>,
    /// Of each group.
    processes: Vec<Range<usize>>,
    /// Groups with logs that were touched.
    stirred: BTreeSet<usize>,
    aggregators: Vec<AggregatorProc>,
    clients: Vec<ClientProc>,
    /// The client process of each place in the plan: a crashed one is followed by another.
    slots: Vec<usize>,
    conns: Vec<Conn>,
    names: Vec<CounterName>,
    groups: Vec<GroupId>,
    audit: Audit,
    pub trace: Trace,
    pub coverage: Coverage,
    mutation: Mutation,
    events: u64,
    impostors: u64,
    faults_over: bool,
    moments: Moments,
    old_disk: OldDisk,
    old_views: old_views::OldViews,
    lost: LostGroup,
    joins: Joins,
    valves: valves::Asked,
    images: Vec<eras::Image>,
    /// The seat of the aggregator by which each group spoke to the ledger last.
    voices: BTreeMap<usize, u8>,
    /// Operators' commands that are in the log, and those that were given.
    admin_done: Vec<bool>,
    /// When the last milestone was asked for, and what the counter stood at.
    last_asked: Option<(Time, u64)>,
    admin_sent: Vec<(usize, Cmds)>,
    said_edges: edges::Said,
    suitors: Vec<Suitor>,
    leases: leases::Leases,
    /// Real logs instead of modelled ones.
    engine: Option<Box<dyn Engine>>,
    /// Committed entries of real logs, by any report: the ledger's entries, and each group's commands.
    truth: Truth,
    versions: Versions,
    /// Of each data centre.
    moves: Vec<moves::Progress>,
    once: once::Once,
    reads: reads::Reads,
}

impl World {
    /// A run of `seed`; with `print` the trace keeps its words.
    pub fn new(seed: u64, mutation: Mutation, print: bool) -> World {
        World::of(Plan::new(seed), mutation, print)
    }

    /// A run of a plan.
    pub fn of(plan: Plan, mutation: Mutation, print: bool) -> World {
        World::on(None, plan, mutation, print)
    }

    /// A run of a plan, on real logs if there are any.
    pub fn on(engine: Option<Box<dyn Engine>>, plan: Plan, mutation: Mutation, print: bool) -> World {
        mutation.enter();
        let root = Rng::new(plan.seed);
        let places = plan.places();
        let names: Vec<CounterName> = plan
            .workload
            .counters
            .iter()
            .map(|c| CounterName::new(NAMESPACE, c.key.as_bytes()).expect("valid"))
            .collect();
        let keys: Vec<String> = plan.workload.counters.iter().map(|c| c.key.clone()).collect();
        let oracle =
            Oracle::new(&keys, plan.updown.is_some(), plan.nodes.len(), plan.clients.len(), plan.forgetting.kept);
        let mut world = World {
            now: Time(1),
            queue: Queue::default(),
            rng: root.fork(10),
            net: Net::new(&places, plan.links, root.fork(11)).with_pairs(&plan.pairs),
            links: Links::new(places.len(), plan.nodes.len()),
            raft: Raft::new(places.len(), &plan.voters),
            raft_alone_since: None,
            elections: 0,
            elected: vec![None; places.len()],
            reference: Ledger::default(),
            reference_index: 0,
            floors: Default::default(),
            nodes: Vec::new(),
            logs: Vec::new(),
            processes: Vec::new(),
            stirred: BTreeSet::new(),
            aggregators: Vec::new(),
            clients: Vec::new(),
            slots: Vec::new(),
            conns: Vec::new(),
            groups: nodes::groups(&plan),
            audit: Audit::new(oracle, &plan),
            names,
            trace: Trace::new(print),
            coverage: Coverage::default(),
            mutation,
            events: 0,
            impostors: 0,
            faults_over: false,
            moments: Moments::default(),
            old_disk: OldDisk::default(),
            old_views: Default::default(),
            lost: LostGroup::default(),
            joins: Joins::new(&plan),
            valves: valves::Asked::new(),
            images: Vec::new(),
            voices: BTreeMap::new(),
            admin_done: vec![false; plan.admin.len()],
            last_asked: None,
            admin_sent: Vec::new(),
            said_edges: Default::default(),
            suitors: Vec::new(),
            leases: leases::Leases::default(),
            truth: Truth::new(plan.nodes.len()),
            engine,
            versions: Versions::new(&plan),
            moves: Vec::new(),
            once: once::Once::new(root.fork(crate::plan::ONCE_SENT_FORK), plan.once.as_ref()),
            reads: reads::Reads::new(root.fork(crate::plan::READS_BEGUN_FORK)),
            plan,
        };
        world.raft.broken_quorum = mutation == Mutation::NoQuorum;
        world.begin();
        world
    }

    fn begin(&mut self) {
        (0..self.plan.nodes.len()).for_each(|group| self.add_group(group));
        self.members().for_each(|at| self.add_aggregator(at));
        (0..self.plan.clients.len()).for_each(|slot| self.add_client(slot));
        for (index, (at, _)) in self.plan.faults.iter().enumerate() {
            if self.plan.only.fault(index) {
                self.queue.push(*at, Event::Fault(index));
            }
        }
        for (index, (at, cmd)) in self.plan.admin.iter().enumerate() {
            if cmd.is_needed() || self.plan.only.admin(index) {
                self.queue.push(*at, Event::Admin(index));
            }
        }
        let times_set = self.plan.claims.clocks.iter().map(|clock| clock.times_set()).sum();
        self.coverage.saw_times("wall clock set while it runs", times_set);
        self.queue.push(Time(2), Event::Scan);
        self.begin_once();
        self.begin_reads();
        self.plan_moves();
        self.plan_images();
        self.plan_measuring();
    }

    /// Runs to the end, or to the first violation.
    pub fn run(mut self) -> Outcome {
        while self.step() {}
        self.outcome()
    }

    /// Handles one event. False when the run is over.
    pub fn step(&mut self) -> bool {
        if !self.audit.findings.violations.is_empty() {
            return false;
        }
        if self.now >= self.plan.safety_end && !self.faults_over {
            self.end_faults();
        }
        if self.take_news() {
            return true;
        }
        let Some((at, event)) = self.queue.pop() else { return false };
        self.now = self.now.max(at);
        self.audit.findings.now = self.now;
        self.events += 1;
        let scanned = matches!(event, Event::Scan);
        self.dispatch(event);
        self.flush_raft();
        self.flush_logs();
        !(self.old_disk.is_over(self.now) || (scanned && self.arrivals_over() && self.is_over()))
    }

    /// Whether no more increments come: the faults are over, and there were enough of them and a last milestone, or it took too long.
    fn arrivals_over(&self) -> bool {
        let enough = || self.is_last_awarded() && self.increments() >= self.plan.increments_least;
        self.faults_over && (enough() || self.now >= self.plan.safety_end + LAST_MILESTONE_MAX)
    }

    /// Whether a milestone was awarded after the faults.
    fn is_last_awarded(&self) -> bool {
        self.audit.awards.last > self.plan.safety_end
    }

    fn increments(&self) -> u64 {
        self.audit.oracle.increments.len() as u64 + self.audit.adds
    }

    fn is_over(&mut self) -> bool {
        let late = self.now >= self.plan.safety_end + LIVENESS_MAX;
        if self.old_disk.is_used() {
            let judged = self.old_disk.is_judged();
            self.audit.findings.check("fencing", judged || !late, || "an old disk was never judged".to_owned());
            return late;
        }
        let over = late || self.is_at_rest();
        if over {
            self.audit_end();
        }
        over
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Arrive { slot } => self.on_arrive(slot),
            Event::Once => self.on_once(),
            Event::Read => self.on_read(),
            Event::ReadAgain { read } => self.on_read_again(read),
            Event::ClientTick { client } => self.on_client_tick(client),
            Event::ConnOpen { conn } => self.on_conn_open(conn),
            Event::ConnUp { conn } => self.on_conn_up(conn),
            Event::ConnGoneAtClient { conn } => self.on_conn_gone_at_client(conn),
            Event::ConnGoneAtNode { conn } => self.on_conn_gone_at_node(conn),
            Event::ToNode { conn, boot, msg } => self.on_to_node(conn, boot, msg),
            Event::ToClient { conn, msg } => self.on_to_client(conn, msg),
            Event::NodeTick { node, boot } => self.on_node_tick(node, boot),
            Event::Synced { node, boot, upto, lie } => self.on_synced(node, boot, upto, lie),
            Event::Persisted { node, boot } => self.on_persisted(node, boot),
            Event::NodeRestart { node } => self.start_node(node),
            Event::Reconfigure { node } => self.on_reconfigure(node),
            Event::DiskFreed { node } => self.on_disk_freed(node),
            Event::Layout { dc } => self.on_layout(dc),
            Event::DiskLost { group } => self.on_disk_lost(group),
            Event::Turn { dc, machine } => self.on_turn(dc, machine),
            Event::ToGroup { group, seat, link, msg } => self.on_to_group(group, seat, link, msg),
            Event::FromGroup { group, seat, link, msg } => self.on_from_group(group, seat, link, msg),
            Event::AggregatorTick { dc, boot } => self.on_aggregator_tick(dc, boot),
            Event::AggregatorPersisted { dc, boot, shard } => self.on_aggregator_persisted(dc, boot, shard),
            Event::AggregatorRestart { dc } => self.start_aggregator(dc),
            Event::ToPeer { from, to, link, msg } => self.on_to_peer(from, to, link, msg),
            Event::RaftLeaves { from, boot, to, msg } => self.on_raft_leaves(from, boot, to, msg),
            Event::RaftArrives { from, to, boot, msg } => self.on_raft_arrives(from, to, boot, msg),
            Event::RaftSnapshot { to, boot, index, ledger } => self.on_raft_snapshot(to, boot, index, *ledger),
            Event::GroupLeaves { from, boot, to, msg } => self.on_group_leaves(from, boot, to, msg),
            Event::GroupArrives { from, to, boot, msg } => self.on_group_arrives(from, to, boot, msg),
            Event::GroupProposal { node, boot, command } => self.append_to_group(node, boot, command),
            Event::GroupElection { group } => self.on_group_election(group),
            Event::Scan => self.on_scan(),
            Event::Measure => self.on_measure(),
            Event::Fault(index) => self.on_fault(index),
            Event::Heal(index) => self.on_heal(index),
            Event::OldDisk(index) => self.on_old_disk(index),
            Event::OldView(index) => self.on_old_view(index),
            Event::SetAside(index) => self.on_set_aside(index),
            Event::MoveShard(index) => self.on_move_shard(index),
            Event::StayShard(index) => self.on_stay_shard(index),
            Event::SplitShard(index) => self.on_split_shard(index),
            Event::ArmedWithout(index, at) => self.on_armed_without(index, at),
            Event::Declare(index) => self.on_declare(index),
            Event::FoundAnew => self.on_found_anew(),
            Event::ReadLayout { at } => self.on_read_layout(at),
            Event::Rehome { slot, group } => self.on_rehome(slot, group),
            Event::Image { dc } => self.on_image(dc),
            Event::Admin(index) => self.on_admin(index),
            Event::Impostor { group, of, lane } => self.on_impostor(group, of, lane),
            Event::Copy(cmds) => self.on_copy(&cmds),
            Event::Ask { suitor } => self.on_ask(suitor),
            Event::Look { suitor } => self.on_look(suitor),
            Event::Blurt { cmd } => self.on_blurt(cmd),
        }
    }

    /// Pushes an event after a span.
    fn after(&mut self, span: Span, event: Event) {
        self.queue.push(self.now + span, event);
    }

    /// A random span in microseconds, both ends included.
    fn span(&mut self, low: u64, high: u64) -> Span {
        Span(self.rng.between(low, high))
    }

    fn note(&mut self, kind: u8, numbers: [u64; 3], words: impl FnOnce() -> String) {
        self.trace.note(self.now, kind, numbers, words);
    }

    fn outcome(mut self) -> Outcome {
        let totals: Vec<u64> = self.audit.oracle.totals.clone();
        totals.iter().for_each(|&total| self.note(255, [total, 0, 0], String::new));
        self.cover_datagrams();
        Outcome {
            seed: self.plan.seed,
            trace_hash: self.trace.hash(),
            events: self.events,
            increments: self.increments(),
            milestones: self.audit.awards.known.len() as u64,
            virtual_time: self.now,
            coverage: self.coverage,
            findings: self.audit.findings,
            days: self.audit.sizes.days,
        }
    }
}

/// Deadline of a machine: a tick is pending at `armed`, or none is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer {
    armed: Option<Time>,
}

impl Timer {
    /// Whether a new tick has to be queued for `wanted`.
    fn arm(&mut self, now: Time, wanted: Option<Time>) -> Option<Time> {
        let at = wanted?.max(now + Span(1));
        if self.armed.is_some_and(|armed| armed <= at && armed > now) {
            return None;
        }
        self.armed = Some(at);
        Some(at)
    }

    /// A tick arrived: whether it is the one that was armed last.
    fn fired(&mut self, now: Time) -> bool {
        let fired = self.armed.is_some_and(|armed| armed <= now);
        if fired {
            self.armed = None;
        }
        fired
    }
}

/// A link of a client core, as the world's connection.
type ConnOf = std::collections::BTreeMap<LinkId, usize>;
