//! Groups with a log on several nodes of a data centre: members of a Raft log each, leaders that come and go, disks that are lost. The
//! processes that speak for the group at a time follow from the log, as in the real one: a leader begins when it has applied the entry that
//! it began its term with.

use super::{Event, World};
use crate::checkers::dedupe;
use crate::raft::{Raft, RaftMsg};
use std::rc::Rc;
use tidemark_proto::ids::LogIndex;
use tidemark_proto::msg::{GroupCmd, Proposed};
use tidemark_proto::node::Input;
use tidemark_proto::time::{Span, Time};
use tidemark_proto::wire;

/// A command of a group's log; an empty one is what a leader begins with.
pub type Command = Rc<Vec<u8>>;

/// A leaderless majority waits so long before it elects.
const ELECTION_TIMEOUT: Span = Span::from_millis(400);
/// A leader that hears of no majority for so long gives up.
const QUORUM_PATIENCE: Span = Span::from_millis(1_500);
/// Messages between nodes of one data centre take so long, in microseconds.
const HOP_US: (u64, u64) = (80, 900);
/// A replica this number of entries behind may get the leader's rows instead of them.
const ROWS_WHEN_BEHIND: usize = 40;

/// The log of one group.
pub struct GroupLog {
    pub raft: Raft<Command>,
    alone_since: Option<Time>,
    /// Entries that the oracle has read, and the last start among them.
    read: usize,
    start: Option<u64>,
}

/// The role of a process in its group's log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Membership {
    /// Its number among the group's members; `None` where the log is on one node.
    pub member: Option<usize>,
    /// Entries handed to the core.
    pub applied: usize,
    /// The position of the rows on disk, and of those being written.
    pub rows_at: usize,
    writing: (LogIndex, usize),
    /// The term in which it was told to lead.
    pub led: u64,
    /// Not heard by the others before this.
    pub isolated_until: Time,
    /// Since when it leads without a majority.
    lonely_since: Option<Time>,
    /// Its proposals reach the log not before this, in order.
    held_until: Time,
}

impl Membership {
    pub fn of(member: Option<usize>) -> Membership {
        Membership { member, ..Membership::default() }
    }
}

impl GroupLog {
    pub fn new(members: usize) -> GroupLog {
        let voters: Vec<usize> = (0..members).collect();
        let raft = Raft::new(members, &voters);
        GroupLog { raft, alone_since: None, read: 0, start: None }
    }
}

impl World {
    /// The log that a process is a member of, and its number there. Something may come of what is done with it.
    fn log_of(&mut self, node: usize) -> Option<(&mut GroupLog, usize)> {
        let NodeMember { group, member } = self.member_of(node)?;
        self.stirred.insert(group);
        Some((self.logs[group].as_mut()?, member))
    }

    fn member_of(&self, node: usize) -> Option<NodeMember> {
        let process = &self.nodes[node];
        process.log.member.map(|member| NodeMember { group: process.group, member })
    }

    /// The process that speaks for a group, if any: of several that believe so the one elected last.
    pub(super) fn serving(&self, group: usize) -> Option<usize> {
        let leads = |&node: &usize| self.nodes[node].core().is_some_and(|core| core.leads());
        self.processes_of(group).filter(leads).max_by_key(|&node| self.nodes[node].log.led)
    }

    pub(super) fn processes_of(&self, group: usize) -> std::ops::Range<usize> {
        self.processes[group].clone()
    }

    /// Those that run, or will again.
    pub(super) fn present_of(&self, group: usize) -> Vec<usize> {
        self.processes_of(group).filter(|&node| !self.nodes[node].stand.absent).collect()
    }

    /// The process that a client reaches when it looks for the group: a process that believes to lead, else any.
    pub(super) fn dialled(&mut self, group: usize) -> usize {
        let group = self.lost.in_place_of(group);
        let all = self.present_of(group);
        let leads = |&&node: &&usize| self.nodes[node].core().is_some_and(|core| core.leads());
        let leading: Vec<usize> = all.iter().filter(leads).copied().collect();
        if all.len() == 1 {
            return all[0];
        }
        self.coverage.saw_times("two believe to lead a group", u64::from(leading.len() > 1));
        *self.rng.pick(if leading.is_empty() { &all } else { &leading })
    }

    /// The process that a fault of a group hits: half of the time its leader.
    pub(super) fn victim(&mut self, group: usize) -> usize {
        let all = self.present_of(group);
        match self.serving(group) {
            _ if all.len() == 1 => all[0],
            Some(leader) if self.rng.per_10k(5_000) => leader,
            _ => *self.rng.pick(&all),
        }
    }

    // ---- the log ----

    pub(super) fn propose_to_group(&mut self, node: usize, command: Vec<u8>) {
        let at = self.nodes[node].log.held_until;
        let boot = self.nodes[node].boot;
        let command = Rc::new(command);
        if at > self.now {
            return self.queue.push(at, Event::GroupProposal { node, boot, command });
        }
        self.append_to_group(node, boot, command);
    }

    /// A proposal arrives at the log, under any leader since it was made.
    pub(super) fn append_to_group(&mut self, node: usize, boot: u32, command: Command) {
        if self.nodes[node].boot != boot {
            return;
        }
        let leadership = self.nodes[node].log.led;
        let taken = match &mut self.engine {
            Some(engine) => engine.submit(node, leadership, command.to_vec()),
            None => {
                let Some((log, member)) = self.log_of(node) else { return };
                log.raft.propose(member, command)
            }
        };
        self.coverage.saw_times("entry of a deposed leader of a group", u64::from(!taken));
    }

    /// Sends what the members of groups want to send, and hands their cores what is committed.
    pub(super) fn flush_logs(&mut self) {
        if self.engine.is_some() {
            return self.stirred.clear();
        }
        while let Some(group) = self.stirred.pop_first() {
            self.processes_of(group).for_each(|node| self.catch_up_replica(node));
            while let Some((from, to, after_sync, msg)) =
                self.logs[group].as_mut().and_then(|log| log.raft.outbox.pop_front())
            {
                let first = self.processes[group].start;
                let from = first + from;
                let to = first + to;
                if after_sync {
                    let at = self.sync_time(from);
                    let boot = self.nodes[from].boot;
                    self.queue.push(at, Event::GroupLeaves { from, boot, to, msg });
                } else {
                    self.send_group_raft(from, to, msg);
                }
            }
        }
    }

    pub(super) fn on_group_leaves(&mut self, from: usize, boot: u32, to: usize, msg: RaftMsg<Command>) {
        if self.nodes[from].boot != boot || !self.nodes[from].is_up() {
            return;
        }
        let Some((log, member)) = self.log_of(from) else { return };
        if let RaftMsg::Ack { matched, term, .. } = &msg
            && log.raft.members[member].term == *term
        {
            log.raft.synced(member, *matched);
        }
        match from == to {
            true => log.raft.handle(member, member, msg),
            false => self.send_group_raft(from, to, msg),
        }
    }

    fn send_group_raft(&mut self, from: usize, to: usize, msg: RaftMsg<Command>) {
        let isolated = [from, to].iter().any(|&node| self.nodes[node].log.isolated_until > self.now);
        if isolated {
            return;
        }
        let dc = self.plan.nodes[self.nodes[from].group];
        let boot = self.nodes[to].boot;
        for delay in self.net.datagram(dc, dc).into_iter().flatten() {
            let hop = self.span(HOP_US.0, HOP_US.1);
            self.after(Span(delay.0 + hop.0), Event::GroupArrives { from, to, boot, msg: msg.clone() });
        }
    }

    pub(super) fn on_group_arrives(&mut self, from: usize, to: usize, boot: u32, msg: RaftMsg<Command>) {
        let Some(sender) = self.member_of(from) else { return };
        if self.nodes[to].boot != boot || !self.nodes[to].is_up() {
            return;
        }
        if let Some((log, member)) = self.log_of(to) {
            log.raft.handle(member, sender.member, msg);
        }
    }

    /// Hands the core what is committed and was not handed in yet; it leads once it has applied the first entry of its own term.
    fn catch_up_replica(&mut self, node: usize) {
        let Some(NodeMember { group, member }) = self.member_of(node) else { return };
        while self.nodes[node].is_up() {
            let log = self.logs[group].as_ref().expect("a member's group has a log");
            let state = &log.raft.members[member];
            let leads = log.raft.is_leader(member);
            let term = state.term;
            let process = &self.nodes[node];
            if process.core().is_some_and(|core| core.leads()) && !(leads && process.log.led == term) {
                self.note(35, [node as u64, 0, 0], || format!("node {node} leads group {group} no longer"));
                self.follow(node);
                continue;
            }
            let applied = process.log.applied;
            if applied >= state.commit {
                return;
            }
            let entry = &state.log[applied];
            let begins = entry.cmds.is_empty() && leads && entry.term == term;
            let command = Rc::clone(&entry.cmds);
            self.nodes[node].log.applied += 1;
            if begins {
                self.lead(node, group, term);
            } else if !command.is_empty() {
                self.node_input(node, Input::Committed { command: command.to_vec() });
                self.audit_node(node);
            }
        }
    }

    pub(super) fn lead(&mut self, node: usize, group: usize, term: u64) {
        self.nodes[node].log.led = term;
        self.coverage.saw("leader of a group begins");
        self.note(34, [node as u64, term, 0], || format!("node {node} leads group {group}"));
        // The earlier speaker for the group is heard no longer, once the new speaker is.
        self.break_group(group);
        let nonce = self.rng.next();
        self.node_input(node, Input::Lead { nonce });
    }

    pub(super) fn follow(&mut self, node: usize) {
        self.keep_journals(node);
        if self.links.groups[self.nodes[node].group].iter().any(|link| link.node == node) {
            self.break_group(self.nodes[node].group);
        }
        self.node_input(node, Input::Follow);
    }

    /// The oracle reads what counts of the entries that a replica has applied.
    pub(super) fn read_replicated(&mut self, node: usize) {
        let Some(NodeMember { group, member }) = self.member_of(node) else { return };
        let applied = self.nodes[node].log.applied;
        let Some(log) = &mut self.logs[group] else { return };
        while log.read < applied {
            let command = match self.engine {
                Some(_) => Rc::clone(&self.truth.groups[group][log.read]),
                None => Rc::clone(&log.raft.members[member].log[log.read].cmds),
            };
            log.read += 1;
            let Ok(Proposed::Entry { start, index, entry }) = wire::decode::<Proposed>(&command) else { continue };
            let begins = matches!(entry.cmds.first(), Some(GroupCmd::Boot { nonce, .. }) if *nonce == start);
            let next = self.audit.oracle.groups[group].seen + 1;
            if index != LogIndex(next) || !(begins || log.start == Some(start)) {
                self.coverage.saw("entry of a group that counts for nothing");
                continue;
            }
            log.start = Some(start);
            if let Some(GroupCmd::Compact { nonce }) = entry.cmds.last() {
                log.start = Some(*nonce);
                self.coverage.saw("a group gave back what is over");
            }
            let read = self.audit.oracle.read(group as u16, index.0, &entry);
            dedupe::read(&mut self.audit.findings, read);
        }
    }

    // ---- rows ----

    /// The position of a checkpoint's rows: all that was handed in when the checkpoint was begun.
    pub(super) fn writing_rows(&mut self, node: usize, applied: LogIndex) {
        let log = &mut self.nodes[node].log;
        if log.writing.0 != applied || log.writing.1 == 0 {
            log.writing = (applied, log.applied);
        }
    }

    pub(super) fn rows_complete(&mut self, node: usize) {
        let log = &mut self.nodes[node].log;
        log.rows_at = log.writing.1.max(log.rows_at);
    }

    /// A process starts: what it has on disk it knows.
    pub(super) fn restart_member(&mut self, node: usize) {
        let rows_at = self.nodes[node].log.rows_at;
        let member = self.nodes[node].log.member;
        let isolated_until = self.nodes[node].log.isolated_until;
        self.nodes[node].log =
            Membership { member, applied: rows_at, rows_at, isolated_until, ..Membership::default() };
        if self.engine.is_some() {
            return self.start_on_log(node);
        }
        if let Some((log, member)) = self.log_of(node) {
            log.raft.restart(member, rows_at);
        }
    }

    pub(super) fn crash_member(&mut self, node: usize) {
        if self.engine.is_some() {
            return self.crash_on_log(node);
        }
        if let Some((log, member)) = self.log_of(node) {
            log.raft.crash(member);
        }
    }

    /// A replica far behind takes the leader's rows.
    fn send_rows(&mut self, group: usize, node: usize) {
        let Some(leader) = self.serving(group).filter(|&leader| leader != node) else { return };
        let at = self.nodes[leader].log.rows_at;
        if at <= self.nodes[node].log.applied {
            return;
        }
        let Some(from) = self.member_of(leader) else { return };
        let Some((log, member)) = self.log_of(node) else { return };
        let prefix = log.raft.members[from.member].log[..at].to_vec();
        log.raft.install(member, prefix);
        let disk = self.nodes[leader].disk.copy_of_rows();
        self.coverage.saw("rows of a group installed");
        let log = &mut self.nodes[node].log;
        (log.applied, log.rows_at, log.writing) = (at, at, (LogIndex(0), 0));
        self.nodes[node].disk = disk;
        self.load_replica(node);
    }

    // ---- connectivity ----

    pub(super) fn scan_logs(&mut self) {
        if self.engine.is_some() {
            return self.tell_apart();
        }
        for group in 0..self.logs.len() {
            if self.logs[group].is_some() {
                self.stirred.insert(group);
                self.scan_log(group);
            }
        }
    }

    fn scan_log(&mut self, group: usize) {
        let processes: Vec<usize> = self.processes_of(group).collect();
        let reachable: Vec<bool> = processes
            .iter()
            .map(|&node| self.nodes[node].is_up() && self.nodes[node].log.isolated_until <= self.now)
            .collect();
        let connected = |a: usize, b: usize| reachable[a] && reachable[b];
        let now = self.now;
        let log = self.logs[group].as_mut().expect("looked up by the caller");
        let commit = log.raft.members.iter().map(|member| member.commit).max().unwrap_or(0);
        for (member, &node) in processes.iter().enumerate() {
            log.raft.enfranchise(member, commit);
            if log.raft.is_leader(member) {
                log.raft.heartbeat(member);
                let lonely = &mut self.nodes[node].log.lonely_since;
                let since = *lonely.get_or_insert(now);
                if log.raft.reaches_majority(member, connected) {
                    *lonely = None;
                } else if now - since >= QUORUM_PATIENCE {
                    log.raft.step_down(member);
                }
            }
        }
        let works = log.raft.leader().is_some_and(|leader| log.raft.reaches_majority(leader, connected));
        let since = *log.alone_since.get_or_insert(now);
        if works {
            log.alone_since = None;
        } else if now - since >= ELECTION_TIMEOUT || commit == 0 {
            self.elect_in_group(group, &reachable);
        }
        self.catch_up_by_rows(group, &processes, commit);
    }

    fn elect_in_group(&mut self, group: usize, reachable: &[bool]) {
        let start = self.rng.below(reachable.len() as u64) as usize;
        let Some(log) = &mut self.logs[group] else { return };
        for n in 0..reachable.len() {
            let candidate = (start + n) % reachable.len();
            if reachable[candidate] && log.raft.elect(candidate, |a, b| reachable[a] && reachable[b]) {
                return log.alone_since = None;
            }
        }
    }

    fn catch_up_by_rows(&mut self, group: usize, processes: &[usize], commit: usize) {
        for &node in processes {
            let behind = commit.saturating_sub(self.nodes[node].log.applied) > ROWS_WHEN_BEHIND;
            let apart = self.nodes[node].log.isolated_until > self.now;
            if behind && !apart && self.nodes[node].is_up() && self.rng.per_10k(3_000) {
                self.send_rows(group, node);
            }
        }
    }

    // ---- faults ----

    pub(super) fn isolate(&mut self, group: usize, span: Span) {
        let node = self.victim(group);
        self.nodes[node].log.isolated_until = self.now + span;
        self.coverage.saw("node apart from its group");
    }

    /// An election without need, while the leader's proposals are on their way to its log.
    pub(super) fn elect_anew(&mut self, group: usize) {
        if let Some(leader) = self.serving(group) {
            let held = self.span(10_000, 300_000);
            self.nodes[leader].log.held_until = self.now + held;
            let soon = self.span(1_000, 50_000);
            self.after(soon, Event::GroupElection { group });
        }
    }

    pub(super) fn on_group_election(&mut self, group: usize) {
        let processes = self.processes_of(group);
        if let Some(engine) = &mut self.engine {
            return engine.hand_over(processes);
        }
        let reachable: Vec<bool> = self
            .processes_of(group)
            .map(|node| self.nodes[node].is_up() && self.nodes[node].log.isolated_until <= self.now)
            .collect();
        if self.logs[group].is_some() {
            self.stirred.insert(group);
            self.elect_in_group(group, &reachable);
        }
    }

    /// A node loses its disk, while all others of the group have theirs and their votes.
    pub(super) fn wipe(&mut self, group: usize) {
        let node = self.victim(group);
        let others = self.processes_of(group).filter(|&other| other != node).collect::<Vec<_>>();
        let Some(NodeMember { member, .. }) = self.member_of(node) else { return };
        if self.engine.is_some() {
            return self.wipe_on_log(group, node);
        }
        let Some(log) = &mut self.logs[group] else { return };
        if log.raft.members.iter().any(|m| !m.voter) || others.iter().any(|&other| !self.nodes[other].is_up()) {
            return;
        }
        self.nodes[node].doom = Some((0, Span::from_millis(200)));
        self.crash_node(node);
        if let Some(log) = &mut self.logs[group] {
            log.raft.wipe(member);
        }
        self.nodes[node].disk = Default::default();
        let log = &mut self.nodes[node].log;
        (log.applied, log.rows_at, log.writing) = (0, 0, (LogIndex(0), 0));
        self.coverage.saw("disk of a group's node lost");
    }

    pub(super) fn unite(&mut self) {
        self.nodes.iter_mut().for_each(|process| process.log.isolated_until = Time(0));
    }
}

/// A member of a group's log.
struct NodeMember {
    group: usize,
    member: usize,
}
