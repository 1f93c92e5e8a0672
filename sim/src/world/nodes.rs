//! Nodes: a [`NodeCore`] each, its disk, crashes between any two outputs, and recovery from what the disk kept.

use super::claims::BEGAN_AT;
use super::moves::Stand;
use super::replicas::{GroupLog, Membership};
use super::{Event, Timer, World};
use crate::checkers::limits;
use crate::disk::{Disk, Rows};
use crate::engine::{Line, Party};
use crate::plan::Plan;
use crate::teeth::Mutation;
use tidemark_proto::group::{Budget, Group};
use tidemark_proto::ids::{DcId, GroupId, LogIndex};
use tidemark_proto::msg::{ForGroup, FromGroup, GroupEntry};
use tidemark_proto::node::{Input, NodeConfig, NodeCore, Output, RecoverError};
use tidemark_proto::time::{Span, Time};
use tidemark_proto::wire;

/// A supervisor starts a process that has ended again after this.
const START_AGAIN: Span = Span::from_millis(300);

pub struct NodeProc {
    /// The group that it holds, alone or with others.
    pub group: usize,
    pub log: Membership,
    /// `None` while it is down.
    core: Option<NodeCore>,
    /// Counts process starts.
    pub boot: u32,
    /// Names the present start.
    nonce: u64,
    pub disk: Disk,
    timer: Timer,
    /// Connections that the node believes in.
    pub conns: Vec<usize>,
    /// Dies after this number of further outputs, for this long.
    pub doom: Option<(u64, Span)>,
    /// Dies once it has written: a part of a checkpoint, or else an entry.
    doom_amid_write: Option<(bool, Span)>,
    /// The disk takes no write before this.
    pub full_until: Time,
    /// The disk answers no sync before this.
    stalled_until: Time,
    /// Syncs are answered in order.
    sync_at: Time,
    /// The part of a checkpoint that is being written completes it.
    pub(super) last_part: bool,
    /// Gone for good, with its disk.
    pub buried: bool,
    pub stand: Stand,
}

impl NodeProc {
    pub fn is_up(&self) -> bool {
        self.core.is_some()
    }

    pub fn core(&self) -> Option<&NodeCore> {
        self.core.as_ref()
    }

    /// The group, once the present start is in its log.
    pub fn started(&self) -> Option<&Group> {
        self.core.as_ref().map(NodeCore::group).filter(|group| group.is_last_boot(self.nonce))
    }

    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// It does not die amid a write by the world's hand: its disk sees to that.
    pub fn spare_amid_write(&mut self) {
        self.doom_amid_write = None;
    }
}

/// The group of each node.
pub fn groups(plan: &Plan) -> Vec<GroupId> {
    let id = |(node, &dc): (usize, &usize)| {
        let before = plan.nodes[..node].iter().filter(|&&other| other == dc).count();
        let incarnation = if plan.replicas[node] > 1 { u32::MAX } else { 1 };
        GroupId { dc: DcId(dc as u16), group: before as u16, incarnation }
    };
    plan.nodes.iter().enumerate().map(id).collect()
}

/// Processes have 10 ms by default. The seeds that show situations and bugs were found with 12 ms.
const COMMIT_INTERVAL: Span = Span::from_millis(12);

/// Small limits and short intervals, so that checkpoints, cuts and walks of the feed happen in every run of a minute; in a run of days
/// those that ship, but for the time between commits.
fn node_config(group: GroupId, lanes: u8, plan: &Plan) -> NodeConfig {
    let core = NodeConfig::new(group, lanes);
    let base = NodeConfig { wall_origin: BEGAN_AT, commit_interval: COMMIT_INTERVAL, ..core };
    // The limit that ships waits for more cells than a run has.
    let (min, part) = if plan.forgetting.compacts { (1, 64) } else { (base.compacted_min, base.compacted_part) };
    let base = NodeConfig { compacted_min: min, compacted_part: part, ..base };
    let base = if plan.clocked { base } else { NodeConfig { commit_share_percent: 0, ..base } };
    if plan.days.is_some() {
        return base;
    }
    let mut config = NodeConfig {
        age_unit: plan.forgetting.age_unit,
        checkpoint_log_bytes: 16 << 10,
        checkpoint_interval: Span::from_secs(8),
        checkpoint_part_bytes: 2 << 10,
        ..base
    };
    (config.group.ring_capacity, config.group.ring_per_component) = (16, 0);
    config.group.streams_kept = plan.forgetting.kept;
    if let Some(once) = &plan.once {
        config.id_terms = once.terms;
    }
    config.view_behind_max = Span(0);
    if let Some(holds) = plan.holds {
        (config.view_behind_max, config.group.ring_capacity) = (holds.behind_max, holds.ring_capacity);
    }
    config
}

impl World {
    /// The processes of a group: one, or as many as its log has members.
    pub(super) fn add_group(&mut self, group: usize) {
        let first = self.nodes.len();
        let replicas = self.plan.replicas[group];
        self.processes.push(first..first + replicas);
        self.logs.push((replicas > 1).then(|| GroupLog::new(replicas)));
        for (member, node) in (first..first + replicas).enumerate() {
            self.add_node(group, (replicas > 1).then_some(member));
            if self.joins.is_founded(group) {
                self.start_node(node);
                self.stand_by(node);
            }
        }
    }

    fn add_node(&mut self, group: usize, member: Option<usize>) {
        self.nodes.push(NodeProc {
            group,
            log: Membership::of(member),
            core: None,
            boot: 0,
            nonce: 0,
            disk: Disk::default(),
            timer: Timer::default(),
            conns: Vec::new(),
            doom: None,
            doom_amid_write: None,
            full_until: Time(0),
            stalled_until: Time(0),
            sync_at: Time(0),
            last_part: false,
            buried: false,
            stand: self.first_stand(group, self.nodes.len()),
        });
    }

    /// A process start: recovery from whatever the disk holds.
    pub(super) fn start_node(&mut self, node: usize) {
        if self.nodes[node].is_up() || self.nodes[node].buried || self.nodes[node].stand.absent {
            return;
        }
        if self.engine.is_some() && self.now < self.nodes[node].full_until {
            return self.after(START_AGAIN, Event::NodeRestart { node });
        }
        self.nodes[node].boot += 1;
        let boot = self.nodes[node].boot;
        let version = self.version_of(Party::Node(node));
        self.note(30, [node as u64, boot.into(), 0], || format!("node {node} starts for the {boot}. time{version}"));
        self.cover_version(Party::Node(node));
        self.restart_member(node);
        match self.nodes[node].log.member {
            Some(_) => self.load_replica(node),
            None => self.recover(node),
        }
    }

    fn recover(&mut self, node: usize) {
        let nonce = self.rng.next();
        let group = self.nodes[node].group;
        let config = node_config(self.groups[group], self.valves_asked(group), &self.plan);
        let rows = self.rows_of(node);
        let entries = self.nodes[node].disk.entries();
        self.nodes[node].nonce = nonce;
        let recovered = NodeCore::recover(config, nonce, rows, entries);
        self.started(node, recovered);
        self.read_committed(node);
        self.node_input(node, Input::Tick);
        self.audit_node(node);
    }

    /// Brings a replica to what its rows say.
    pub(super) fn load_replica(&mut self, node: usize) {
        let group = self.nodes[node].group;
        let id = GroupId { incarnation: 0, ..self.groups[group] };
        let mut config = node_config(id, self.valves_asked(group), &self.plan);
        // The first incarnation is known beforehand; a group that is founded anew draws another.
        let first = self.lost.successor != Some(group);
        config.founded_as = first.then_some(self.groups[group].incarnation);
        let loaded = NodeCore::replica(config, self.rows_of(node));
        self.started(node, loaded);
        self.node_input(node, Input::Tick);
    }

    fn rows_of(&mut self, node: usize) -> Rows {
        let mut rows = self.nodes[node].disk.rows();
        if self.mutation == Mutation::RowLost && !rows.is_empty() {
            rows.remove(self.rng.below(rows.len() as u64) as usize);
        }
        rows
    }

    fn started(&mut self, node: usize, core: Result<NodeCore, RecoverError>) {
        self.nodes[node].timer = Timer::default();
        match core {
            Ok(mut core) => {
                // Every second group has no room for what has ended.
                if self.plan.series.is_some() && self.nodes[node].group % 2 == 1 {
                    core.keep_within(Budget { bytes_max: 0, after_s: 0, shelf: self.nodes[node].disk.shelf() });
                }
                self.nodes[node].core = Some(core);
            }
            Err(error) => self.audit.findings.found("recovery", format!("node {node}: {error}")),
        }
    }

    pub(super) fn node_input(&mut self, node: usize, input: Input) {
        let now = self.node_time(node);
        let Some(core) = &mut self.nodes[node].core else { return };
        let committed = matches!(input, Input::Durable { .. } | Input::Committed { .. });
        core.handle(now, input);
        core.check_invariants();
        let holds = core.holds();
        if holds {
            self.coverage.saw("batches held for a view");
        }
        if committed {
            self.read_committed(node);
        }
        self.drain_node(node);
    }

    /// Takes outputs one by one: a crash may fall between any two.
    fn drain_node(&mut self, node: usize) {
        while let Some(output) = self.nodes[node].core.as_mut().and_then(NodeCore::poll_output) {
            if self.dies_now(node) || self.cannot_write(node, &output) {
                return self.crash_node(node);
            }
            let doomed = self.dies_amid(node, &output);
            self.on_node_output(node, output);
            if doomed {
                return self.crash_node(node);
            }
        }
        let wanted = self.node_when(node, self.nodes[node].core.as_ref().and_then(NodeCore::poll_timeout));
        let process = &mut self.nodes[node];
        if let Some(at) = process.timer.arm(self.now, wanted) {
            let boot = process.boot;
            self.queue.push(at, Event::NodeTick { node, boot });
        }
    }

    fn dies_now(&mut self, node: usize) -> bool {
        match &mut self.nodes[node].doom {
            Some((0, _)) => true,
            Some((left, _)) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    fn dies_amid(&mut self, node: usize, output: &Output) -> bool {
        let process = &mut self.nodes[node];
        let is_write = |part: bool| match output {
            Output::Append { .. } => !part,
            Output::Persist(_) => part,
            _ => false,
        };
        let doom = process.doom_amid_write.take_if(|(part, _)| is_write(*part));
        process.doom = doom.map(|(_, span)| (0, span)).or(process.doom);
        doom.is_some()
    }

    /// A failed write ends the process.
    fn cannot_write(&mut self, node: usize, output: &Output) -> bool {
        let full = matches!(output, Output::Append { .. }) && self.now < self.nodes[node].full_until;
        if full && self.engine.is_none() {
            self.coverage.saw("disk full: the node stopped");
            self.nodes[node].doom = Some((0, START_AGAIN));
        }
        full && self.engine.is_none()
    }

    fn on_node_output(&mut self, node: usize, output: Output) {
        match output {
            Output::Append { entry, .. } if self.nodes[node].log.member.is_some() => {
                limits::message(&mut self.audit.findings, "log entry", entry.len());
                self.propose_to_group(node, entry);
            }
            Output::Append { index, entry } => self.append(node, index, entry),
            Output::EndClients => self.end_clients(node),
            Output::Abandon => self.abandon(node),
            Output::Stop { error } => self.audit.findings.found("recovery", format!("node {node} stops: {error}")),
            Output::Client { conn, msg } if self.is_to_impostor(conn, &msg) => {}
            Output::Client { conn, msg } => self.node_answers(node, conn.0 as usize, msg),
            Output::Aggregator { seat, msg } => self.group_says(node, seat, msg),
            Output::Persist(part) if self.engine.is_some() => self.persist_to_log(node, part),
            Output::Persist(part) => {
                self.coverage.saw("checkpoint part");
                self.writing_rows(node, part.applied);
                self.nodes[node].last_part = part.last;
                self.nodes[node].disk.write(part.rows);
                let boot = self.nodes[node].boot;
                let span = self.span(self.plan.sync.0.0, 4 * self.plan.sync.1.0);
                self.after(span, Event::Persisted { node, boot });
            }
            Output::CutLog { before } => {
                self.coverage.saw("log cut");
                self.nodes[node].disk.cut(before);
            }
        }
    }

    fn append(&mut self, node: usize, index: LogIndex, entry: Vec<u8>) {
        limits::message(&mut self.audit.findings, "log entry", entry.len());
        self.note(31, [node as u64, index.0, entry.len() as u64], || format!("node {node} appends {}", index.0));
        self.nodes[node].disk.append(index, entry);
        let at = self.sync_time(node);
        let boot = self.nodes[node].boot;
        self.queue.push(at, Event::Synced { node, boot, upto: index.0, lie: false });
        if self.mutation == Mutation::AnswerBeforeCommit {
            self.after(Span(1), Event::Synced { node, boot, upto: index.0, lie: true });
        }
    }

    /// When the disk has done what it is asked now.
    pub(super) fn sync_time(&mut self, node: usize) -> Time {
        let sync = self.span(self.plan.sync.0.0, self.plan.sync.1.0);
        let process = &mut self.nodes[node];
        process.sync_at = (self.now + sync).max(process.stalled_until).max(process.sync_at);
        process.sync_at
    }

    pub(super) fn on_synced(&mut self, node: usize, boot: u32, upto: u64, lie: bool) {
        if self.nodes[node].boot != boot || !self.nodes[node].is_up() {
            return;
        }
        if !lie {
            self.nodes[node].disk.sync(LogIndex(upto));
        }
        self.node_input(node, Input::Durable { upto: LogIndex(upto) });
        self.audit_node(node);
    }

    /// The oracle reads what is committed before the core's answers are looked at.
    fn read_committed(&mut self, node: usize) {
        if self.old_disk.is_of(node) {
            return self.judge_old_disk(node);
        }
        let Some(core) = &self.nodes[node].core else { return };
        let group = self.nodes[node].group;
        let table = core.group().table();
        // Entries that are yet to be read go by the slots that they were proposed with.
        let truth = &self.audit.oracle.groups[group];
        let known =
            if truth.compactions == core.group().compactions() { truth.slots.len() as u32 } else { table.len() };
        for slot in known..table.len() {
            self.audit.oracle.name_slot(group as u16, &table.name(slot));
        }
        if self.nodes[node].log.member.is_some() {
            return self.read_replicated(node);
        }
        let seen = self.audit.oracle.groups[group].seen;
        for (index, bytes) in self.nodes[node].disk.synced_after(seen) {
            match wire::decode::<GroupEntry>(bytes) {
                Ok(entry) => {
                    let read = self.audit.oracle.read(group as u16, index.0, &entry);
                    crate::checkers::dedupe::read(&mut self.audit.findings, read);
                }
                Err(error) => self.audit.findings.found("recovery", format!("entry {index:?} of node {node}: {error}")),
            }
        }
    }

    pub(super) fn on_persisted(&mut self, node: usize, boot: u32) {
        if self.nodes[node].boot == boot && self.nodes[node].is_up() {
            if self.engine.is_some() {
                // Of rows that were replaced since a part may have been taken; the log says itself when the last one is durable.
                if !self.nodes[node].last_part {
                    self.node_input(node, Input::Persisted);
                }
                return;
            }
            self.nodes[node].disk.written();
            if self.nodes[node].last_part {
                self.rows_complete(node);
            }
            self.node_input(node, Input::Persisted);
        }
    }

    pub(super) fn on_node_tick(&mut self, node: usize, boot: u32) {
        if self.nodes[node].boot == boot && self.nodes[node].timer.fired(self.now) {
            self.node_input(node, Input::Tick);
        }
    }

    // ---- the aggregator's side ----

    fn group_says(&mut self, node: usize, seat: u8, msg: FromGroup) {
        let group = self.nodes[node].group;
        self.audit_from_group(group, &msg);
        self.cover_voice(group, seat, &msg);
        let seat = usize::from(seat);
        let link = self.links.groups[group][seat];
        let Some(at) = self.at_seat(self.plan.nodes[group], seat).filter(|_| link.up && link.node == node) else {
            return;
        };
        let msg = self.mutation.from_group(msg);
        let line = Line { from: Party::Node(node), to: Party::Aggregator(at), number: link.number.into() };
        if self.say(line, &msg) {
            return;
        }
        for delay in self.net.datagram(at, at).into_iter().flatten() {
            self.after(delay, Event::FromGroup { group, seat, link: link.number, msg: msg.clone() });
        }
    }

    pub(super) fn on_to_group(&mut self, group: usize, seat: usize, link: u32, msg: ForGroup) {
        let now = self.links.groups[group][seat];
        let Some(at) = self.at_seat(self.plan.nodes[group], seat) else { return };
        if now.up && now.number == link {
            let Some(msg) = self.heard(Party::Aggregator(at), Party::Node(now.node), msg) else { return };
            self.note(32, [group as u64, seat as u64, 0], || format!("aggregator {seat} → group {group}: {msg:?}"));
            self.node_input(now.node, Input::Aggregator { seat: seat as u8, msg });
        }
    }

    // ---- faults ----

    pub(super) fn doom_node(&mut self, node: usize, outputs: u64, span: Span) {
        if self.nodes[node].is_up() {
            self.nodes[node].doom = Some((outputs, span));
        }
        // A follower has few messages.
        if self.nodes[node].core().is_some_and(|core| !core.leads()) {
            self.crash_node(node);
        }
    }

    pub(super) fn doom_amid_write(&mut self, node: usize, part: bool, span: Span) {
        self.nodes[node].doom_amid_write = Some((part, span));
        self.tear_write(node);
    }

    pub(super) fn stall_disk(&mut self, node: usize, span: Span) {
        self.nodes[node].stalled_until = self.now + span;
        self.coverage.saw("disk stall");
    }

    pub(super) fn fill_disk(&mut self, node: usize, span: Span) {
        self.nodes[node].full_until = self.now + span;
        self.fill_real_disk(node, span);
    }

    /// The process ends and starts on another disk.
    pub(super) fn replace_disk(&mut self, node: usize, disk: Disk) {
        self.doom_node(node, 0, START_AGAIN);
        self.crash_node(node);
        self.nodes[node].disk = disk;
    }

    pub(super) fn crash_node(&mut self, node: usize) {
        self.keep_journals(node);
        let process = &mut self.nodes[node];
        let Some((_, span)) = process.doom.take() else { return };
        process.core = None;
        let (entries, parts) = process.disk.crash(&mut self.rng);
        let leads_link = self.links.groups[process.group].iter().any(|link| link.node == node);
        let group = process.group;
        self.coverage.saw_times("unsynced entries lost at a crash", u64::from(entries > 0));
        self.coverage.saw_times("checkpoint part lost at a crash", parts as u64);
        let conns = std::mem::take(&mut process.conns);
        self.note(33, [node as u64, 0, 0], || format!("node {node} crashes"));
        self.coverage.saw("node crash");
        conns.into_iter().for_each(|conn| self.break_conn(conn));
        self.crash_member(node);
        if leads_link {
            self.break_group(group);
        }
        self.after(span, Event::NodeRestart { node });
    }

    /// After the faults: no node is doomed any more.
    pub(super) fn spare_nodes(&mut self) {
        for process in &mut self.nodes {
            (process.doom, process.doom_amid_write) = (None, None);
            (process.stalled_until, process.full_until) = (Time(0), Time(0));
        }
        self.unite();
    }

    /// The process has heard that its incarnation is lost.
    fn abandon(&mut self, node: usize) {
        let id = self.groups[self.nodes[node].group];
        let lost = self.reference.is_lost(id);
        self.audit.findings.check("fencing", lost, || format!("node {node} sets aside {id}, which is not lost"));
        self.coverage.saw("disk of a lost incarnation set aside");
        self.nodes[node].buried = true;
        self.nodes[node].doom = Some((0, START_AGAIN));
    }

    /// The process ends all its clients' connections.
    fn end_clients(&mut self, node: usize) {
        for conn in std::mem::take(&mut self.nodes[node].conns) {
            self.forsake(conn);
        }
    }
}
