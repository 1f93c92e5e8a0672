//! A world on real logs: what they say reaches its machines, and what befalls processes, disks and links reaches them.
//!
//! Committed entries are kept here once, and every member with another entry at the same place is found out.

use super::replicas::Command;
use super::{Event, World};
use crate::disk::{Disk, Rows};
use crate::engine::{GroupNews, LedgerNews, Lost, News, Started};
use crate::raft::Cmds;
use std::rc::Rc;
use tidemark_proto::group::is_shelved;
use tidemark_proto::ids::LogIndex;
use tidemark_proto::msg::LedgerCmd;
use tidemark_proto::node::{CheckpointPart, Input};
use tidemark_proto::time::{Span, Time};

/// A supervisor starts a process that has ended again after this.
const START_AGAIN: Span = Span::from_millis(300);
/// A disk that is to fail does so within this number of writes: some transactions.
const WRITES_MAX: u64 = 40;

/// The committed entries.
#[derive(Debug, Default)]
pub struct Truth {
    /// Entries of the ledger's log; an entry that no member has told of yet, or that holds no command, is empty.
    ledger: Vec<Cmds>,
    told: Vec<bool>,
    /// Commands of each group.
    pub groups: Vec<Vec<Command>>,
}

impl Truth {
    pub fn new(groups: usize) -> Truth {
        Truth { groups: vec![Vec::new(); groups], ..Truth::default() }
    }

    /// Learns an entry of the ledger's log; false when it is known to be another.
    fn learn_entry(&mut self, index: usize, cmds: Vec<LedgerCmd>) -> bool {
        let len = self.ledger.len().max(index + 1);
        self.ledger.resize(len, Rc::default());
        self.told.resize(len, false);
        if self.told[index] {
            return *self.ledger[index] == cmds;
        }
        (self.told[index], self.ledger[index]) = (true, Rc::new(cmds));
        true
    }

    /// Learns a command of a group's log; false when it is known to be another, or one before it was never told.
    fn learn_command(&mut self, group: usize, index: usize, command: Vec<u8>) -> bool {
        let known = &mut self.groups[group];
        if index == known.len() {
            known.push(Rc::new(command));
            return true;
        }
        known.get(index).is_some_and(|known| **known == command)
    }
}

impl World {
    /// Hands on what real logs say before the next event; false when there is nothing.
    pub(super) fn take_news(&mut self) -> bool {
        let until = self.queue.peek_time();
        let (Some(engine), Some(until)) = (&mut self.engine, until) else { return false };
        let Some((at, news)) = engine.next(until) else { return false };
        self.now = self.now.max(at);
        self.audit.findings.now = self.now;
        self.events += 1;
        match news {
            News::Ledger { dc, boot, news } => {
                self.note(45, [dc as u64, boot.into(), 0], || format!("ledger's member {dc}: {news:?}"));
                self.on_ledger_news(dc, boot, news);
            }
            News::Group { node, boot, news } => {
                self.note(38, [node as u64, boot.into(), 0], || format!("log of node {node}: {news:?}"));
                self.on_group_news(node, boot, news);
            }
            News::Came { line, message } => self.on_came(line, &message),
            News::Broke { line } => self.on_broke(line),
        }
        self.flush_raft();
        true
    }

    // ---- the ledger ----

    fn on_ledger_news(&mut self, dc: usize, boot: u32, news: LedgerNews) {
        let news = match news {
            LedgerNews::Applied { index, cmds } => {
                self.learn_entry(dc, index, cmds);
                LedgerNews::Applied { index, cmds: Vec::new() }
            }
            news => news,
        };
        if self.aggregators[dc].boot == boot && self.aggregators[dc].is_up() {
            self.take_ledger_news(dc, news);
        }
    }

    /// A committed entry stays so, whatever process has told of it.
    fn learn_entry(&mut self, dc: usize, index: usize, cmds: Vec<LedgerCmd>) {
        let agrees = self.truth.learn_entry(index, cmds);
        let what = || format!("data centre {dc} has applied another entry {index} of the ledger's log than others");
        self.audit.findings.check("logs", agrees, what);
    }

    fn take_ledger_news(&mut self, dc: usize, news: LedgerNews) {
        match news {
            LedgerNews::Applied { index, .. } => self.raft.told_committed(dc, &self.truth.ledger[..=index]),
            LedgerNews::Restored { index, ledger } => {
                self.note(46, [dc as u64, index as u64, 0], || format!("aggregator {dc} is at {index} by a snapshot"));
                let agrees = self.truth.ledger.len() > index;
                let what = || format!("data centre {dc} has a snapshot at {index}, which nobody has applied");
                self.audit.findings.check("logs", agrees, what);
                if agrees {
                    self.raft.told_committed(dc, &self.truth.ledger[..=index]);
                    self.advance_reference(dc);
                    let process = &mut self.aggregators[dc];
                    process.applied = index + 1;
                    process.ledger.replace(*ledger);
                    self.coverage.saw("ledger snapshot installed");
                    self.audit_replica_claims(dc);
                    self.tell_ledger(dc);
                }
            }
            LedgerNews::Leader { leader, leads, term } => {
                let led = self.raft.is_leader(dc) && self.raft.members[dc].term == term;
                self.raft.told_leader(dc, leader, leads, term);
                if leads && !led {
                    self.on_elected(dc);
                }
            }
            LedgerNews::Failed { reason } => {
                self.note(47, [dc as u64, 0, 0], || format!("the ledger's member {dc} has stopped: {reason}"));
                self.audit.findings.found("logs", format!("the ledger's member {dc} has stopped: {reason}"));
            }
        }
    }

    /// Before an aggregator starts, its log replays what it knows to be committed.
    pub(super) fn replay_ledger(&mut self, dc: usize) {
        let boot = self.aggregators[dc].boot;
        let Some(engine) = &mut self.engine else { return };
        let news = engine.start_ledger(dc, boot).unwrap_or_else(|error| {
            self.audit.findings.found("recovery", format!("the ledger's member {dc}: {error}"));
            Vec::new()
        });
        for news in news {
            if let LedgerNews::Applied { index, cmds } = news {
                self.learn_entry(dc, index, cmds);
                self.raft.told_committed(dc, &self.truth.ledger[..=index]);
            } else {
                self.take_ledger_news(dc, news);
            }
        }
        self.advance_reference(dc);
        self.apply_to_replica(dc, self.raft.members[dc].commit);
    }

    pub(super) fn crash_ledger_member(&mut self, dc: usize) {
        if let Some(engine) = &mut self.engine {
            let lost = engine.crash_ledger(dc);
            self.cover_lost(lost);
        }
    }

    fn cover_lost(&mut self, lost: Lost) {
        self.coverage.saw_times("writes lost at a crash", u64::from(lost.writes > 0));
        self.coverage.saw_times("write torn at a crash", u64::from(lost.torn));
    }

    // ---- groups ----

    fn on_group_news(&mut self, node: usize, boot: u32, news: GroupNews) {
        let group = self.nodes[node].group;
        if let GroupNews::Committed { count, commands } = &news {
            let first = count - commands.len();
            for (at, command) in commands.iter().enumerate() {
                let agrees = self.truth.learn_command(group, first + at, command.clone());
                let what =
                    || format!("node {node} was told another command {} of group {group} than others", first + at);
                self.audit.findings.check("logs", agrees, what);
            }
        }
        if self.nodes[node].boot != boot || !self.nodes[node].is_up() {
            return;
        }
        match news {
            GroupNews::Committed { count, commands } => self.on_commands(node, boot, count, commands),
            GroupNews::Leads { leadership } => self.lead(node, group, leadership),
            GroupNews::Follows => {
                if std::mem::take(&mut self.nodes[node].log.led) > 0 {
                    self.note(35, [node as u64, 0, 0], || format!("node {node} leads group {group} no longer"));
                    self.follow(node);
                }
            }
            GroupNews::Restored { count, rows } => self.on_rows(node, count, rows),
            GroupNews::Checkpointed { count } => {
                self.nodes[node].log.rows_at = count;
                self.nodes[node].disk.written();
                self.node_input(node, Input::Persisted);
            }
            GroupNews::Left => self.on_left(node),
            GroupNews::Failed { reason } => {
                self.note(36, [node as u64, 0, 0], || format!("the log of node {node} has stopped: {reason}"));
                self.coverage.saw("node stopped by its disk");
                self.nodes[node].doom = Some((0, START_AGAIN));
                self.crash_node(node);
            }
        }
    }

    fn on_commands(&mut self, node: usize, boot: u32, count: usize, commands: Vec<Vec<u8>>) {
        let first = count - commands.len();
        for (at, command) in commands.into_iter().enumerate() {
            self.nodes[node].log.applied = first + at + 1;
            self.node_input(node, Input::Committed { command });
            self.audit_node(node);
            if self.nodes[node].boot != boot || !self.nodes[node].is_up() {
                return;
            }
        }
        if let Some(engine) = &mut self.engine {
            engine.taken(node);
        }
    }

    fn on_rows(&mut self, node: usize, count: usize, rows: Rows) {
        self.coverage.saw("rows of a group installed");
        self.note(37, [node as u64, count as u64, 0], || format!("node {node} is at command {count} by rows"));
        if self.nodes[node].log.led > 0 {
            self.nodes[node].log.led = 0;
            self.follow(node);
        }
        let log = &mut self.nodes[node].log;
        (log.applied, log.rows_at) = (count, count);
        self.nodes[node].disk = Disk::of_rows(rows);
        if let Some(engine) = &mut self.engine {
            engine.taken(node);
        }
        self.load_replica(node);
    }

    /// A process starts on its disk.
    pub(super) fn start_on_log(&mut self, node: usize) {
        let boot = self.nodes[node].boot;
        let nonce = self.rng.next();
        let Some(engine) = &mut self.engine else { return };
        match engine.start_replica(node, boot, nonce, &self.nodes[node].stand.reads) {
            Ok(Started { count, rows, entries_lost }) => {
                self.coverage.saw_times("unsynced entries lost at a crash", u64::from(entries_lost > 0));
                let log = &mut self.nodes[node].log;
                (log.applied, log.rows_at) = (count, count);
                self.nodes[node].disk = Disk::of_rows(rows);
            }
            Err(error) => self.audit.findings.found("recovery", format!("node {node}: {error}")),
        }
    }

    pub(super) fn crash_on_log(&mut self, node: usize) {
        if let Some(engine) = &mut self.engine {
            let lost = engine.crash_replica(node);
            self.nodes[node].log.led = 0;
            self.cover_lost(lost);
        }
    }

    /// Parts but the last count as taken at once: the log keeps their order.
    pub(super) fn persist_to_log(&mut self, node: usize, part: CheckpointPart) {
        self.coverage.saw("checkpoint part");
        let CheckpointPart { applied, last, rows, .. } = part;
        self.nodes[node].last_part = last;
        self.nodes[node].disk.write_more(rows.iter().filter(|(key, _)| is_shelved(key)).cloned());
        if let Some(engine) = &mut self.engine {
            engine.checkpoint(node, LogIndex(applied.0), last, rows);
        }
        if !last {
            let boot = self.nodes[node].boot;
            self.after(Span(1), Event::Persisted { node, boot });
        }
    }

    // ---- faults ----

    pub(super) fn wipe_on_log(&mut self, group: usize, node: usize) {
        let processes = self.processes_of(group);
        let all_up = self.present_of(group).into_iter().all(|other| self.nodes[other].is_up());
        let whole = all_up && self.engine.as_ref().is_some_and(|engine| engine.is_whole(processes));
        let moving = !self.is_settled(self.plan.nodes[group]);
        if !whole || moving && !self.is_heard(group) {
            return;
        }
        self.coverage.saw_times("disk lost while nodes come and go", u64::from(moving));
        let only_who_goes = moving && self.is_held_only_by_who_goes(group, node);
        self.coverage.saw_times("log left on machines only that are to go", u64::from(only_who_goes));
        self.nodes[node].doom = Some((0, Span::from_millis(200)));
        self.crash_node(node);
        if let Some(engine) = &mut self.engine {
            engine.wipe(node);
        }
        self.coverage.saw("disk of a group's node lost");
    }

    /// The disk dies within a transaction of a process that runs: one that cannot open its disk would only end, and be started again.
    pub(super) fn tear_write(&mut self, node: usize) {
        let writes = if self.engine.is_some() { self.rng.below(WRITES_MAX) } else { 0 };
        let is_up = self.nodes[node].is_up();
        if let Some(engine) = &mut self.engine {
            self.nodes[node].spare_amid_write();
            if is_up {
                engine.fail_disk_after(node, writes);
            }
        }
    }

    pub(super) fn fill_real_disk(&mut self, node: usize, span: Span) {
        if let Some(engine) = &mut self.engine {
            engine.fill_disk(node, true);
            self.coverage.saw("disk full");
            self.after(span, Event::DiskFreed { node });
        }
    }

    pub(super) fn on_disk_freed(&mut self, node: usize) {
        if let Some(engine) = &mut self.engine {
            engine.fill_disk(node, false);
        }
    }

    /// Which links are cut now.
    pub(super) fn tell_links(&mut self) {
        let Some(engine) = &mut self.engine else { return };
        let dcs = self.plan.sites.len();
        for (from, to) in (0..dcs).flat_map(|from| (0..dcs).map(move |to| (from, to))) {
            engine.set_cut(from, to, self.net.is_cut(from, to));
        }
        self.tell_apart();
    }

    /// Which processes are not heard by their groups.
    pub(super) fn tell_apart(&mut self) {
        let Some(engine) = &mut self.engine else { return };
        for (node, process) in self.nodes.iter().enumerate() {
            engine.set_apart(node, process.log.isolated_until > self.now.max(Time(1)));
        }
    }
}
