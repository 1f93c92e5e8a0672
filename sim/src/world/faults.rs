//! The effects of the plan on a run: faults begin and heal, operators define and disarm.

use super::claims::of_claims;
use super::{Event, World};
use crate::plan::{Admin, Fault};
use crate::raft::Cmds;
use std::rc::Rc;
use tidemark_proto::client;
use tidemark_proto::msg::{LedgerCmd, MilestoneSpec};
use tidemark_proto::time::{Span, WallMs};

/// An operator gives a command again if it is not in the log after this.
const ADMIN_RETRY: Span = Span::from_secs(2);
/// A last milestone that is not awarded by then was passed before it was armed, or is too far: there is another one.
const LAST_RETRY: Span = Span::from_secs(10);
/// Entries of the ledger's log that are proposed again, of 10,000; of those that decide something about milestones.
const COPIES_PER_10K: u32 = 50;
const COPIES_OF_DECISIONS_PER_10K: u32 = 3_000;
/// How often a fault that waits for a situation looks for it.
pub(super) const WAIT_FOR_SITUATION: Span = Span::from_millis(20);

impl World {
    pub(super) fn on_fault(&mut self, index: usize) {
        if self.faults_over {
            return;
        }
        let fault = self.plan.faults[index].1.clone();
        self.note(50, [index as u64, 0, 0], || format!("fault {fault:?}"));
        match fault {
            Fault::CutPair { a, b, span } => {
                self.net.cut_pair(a, b, true);
                self.coverage.saw("pair cut");
                self.after(span, Event::Heal(index));
            }
            Fault::CutDc { dc, span } => self.cut_dc(dc, span, index),
            Fault::CutOneWay { from, to, span } => {
                self.net.cut_one_way(from, to, true);
                self.coverage.saw("link cut one way");
                self.after(span, Event::Heal(index));
            }
            Fault::Flap { a, b, times, span } => self.flap(a, b, times, span, index),
            Fault::CutLeader { span } => {
                let leader = self.raft.leader().unwrap_or(0);
                self.plan.faults[index].1 = Fault::CutDc { dc: leader, span };
                self.cut_dc(leader, span, index);
            }
            Fault::CutAtMilestone { dc, span } => self.cut_at_milestone(dc, span, index),
            Fault::CutAtBlock { .. } => self.lie_in_wait_at_blocks(index),
            Fault::LoseLeader { at, .. } => self.lie_in_wait(at, index),
            Fault::CrashNode { node, .. }
            | Fault::CrashAmidWrite { node, .. }
            | Fault::StallDisk { node, .. }
            | Fault::FullDisk { node, .. } => {
                let node = self.victim(node);
                self.on_victim(node, &fault);
            }
            Fault::AddValves { group, lanes, gap } => self.add_valves(group, lanes, gap),
            Fault::Isolate { node, span } => self.isolate(node, span),
            Fault::Wipe { node } => self.wipe(node),
            Fault::ElectInGroup { node } => self.elect_anew(node),
            Fault::CrashAggregator { dc, outputs, span } => self.doom_aggregator(dc, outputs, span),
            Fault::CrashLeader { outputs, span } => {
                let leader = self.raft.leader().unwrap_or(0);
                self.coverage.saw("ledger leader crash");
                self.doom_aggregator(leader, outputs, span);
            }
            Fault::CrashClient { client } => self.crash_client(self.slots[client], true),
            Fault::VanishClient { client } => self.crash_client(self.slots[client], false),
            Fault::MoveClient { client, .. } => {
                self.block_client(client, Span(self.plan.faults.len() as u64 * 400_000))
            }
            Fault::BreakClients { node } => self.break_clients(node),
            Fault::BreakGroup { node } => self.break_group(node),
            Fault::BreakPeers { a, b } => self.break_peers(a, b),
            Fault::Elect { candidate } => drop(self.elect(candidate)),
            Fault::Flood { client, hits } => self.flood(client, hits),
            Fault::MoveShard { stays, .. } => self.move_shard(stays, index),
            Fault::SplitShard { .. } => self.on_split_shard(index),
            fault @ (Fault::CutAggregator { .. }
            | Fault::CutFromLeader { .. }
            | Fault::WipeView { .. }
            | Fault::BreakFeeds { .. }
            | Fault::SetAside { .. }) => self.on_pair_fault(&fault, index),
            fault @ (Fault::LoseGroup { .. } | Fault::OldDisk { .. } | Fault::OldView { .. } | Fault::Join(_)) => {
                self.on_modelled(fault, index);
            }
        }
        self.tell_links();
    }

    fn on_victim(&mut self, node: usize, fault: &Fault) {
        match *fault {
            Fault::CrashNode { outputs, span, .. } => self.doom_node(node, outputs, span),
            Fault::CrashAmidWrite { part, span, .. } => self.doom_amid_write(node, part, span),
            Fault::StallDisk { span, .. } => self.stall_disk(node, span),
            Fault::FullDisk { span, .. } => self.fill_disk(node, span),
            _ => {}
        }
    }

    /// Not on real logs, which have no such disks, and have all groups from the start.
    fn on_modelled(&mut self, fault: Fault, index: usize) {
        match fault {
            _ if self.engine.is_some() => {}
            Fault::LoseGroup { node, forced, declare_after, .. } => self.lose_group(node, forced, declare_after, index),
            Fault::OldDisk { node, after } => {
                self.copy_disk(self.processes_of(node).start);
                self.after(after, Event::OldDisk(index));
            }
            Fault::OldView { at, after } => self.copy_view(at, &after, index),
            Fault::Join(join) => self.on_join(join, index),
            _ => {}
        }
    }

    pub(super) fn cut_dc(&mut self, dc: usize, span: Span, index: usize) {
        self.cover_leader_lost(dc);
        self.net.cut_dc(dc, true);
        self.coverage.saw("data centre cut off");
        self.after(span, Event::Heal(index));
    }

    /// The link goes for half of a span; then once less.
    fn flap(&mut self, a: usize, b: usize, times: u64, span: Span, index: usize) {
        self.coverage.saw("link flapped");
        self.net.cut_pair(a, b, true);
        self.after(Span(span.0 / 2), Event::Heal(index));
        if times > 1 {
            self.plan.faults[index].1 = Fault::Flap { a, b, times: times - 1, span };
            self.after(span, Event::Fault(index));
        }
    }

    /// Waits until something is undecided while groups of `dc` hold rights.
    fn cut_at_milestone(&mut self, dc: usize, span: Span, index: usize) {
        let holds = self.reference.guarded().filter_map(|name| self.reference.counter(name)).any(|counter| {
            let mine = counter.accounts().iter().filter(|(group, _)| usize::from(group.dc.0) == dc);
            counter.next_armed().is_some_and(|next| next < counter.upper() + 200)
                && mine.map(|(_, a)| a.out()).sum::<u64>() > 0
        });
        if holds {
            self.coverage.saw("cut off holding rights at the milestone");
            if let Some(stalled) = self.plan.leases.stalls(index) {
                let nodes = (0..self.plan.nodes.len()).filter(|&node| self.plan.nodes[node] == dc);
                nodes.collect::<Vec<_>>().into_iter().for_each(|node| self.stall_disk(node, stalled));
            }
            self.plan.faults[index].1 = Fault::CutDc { dc, span };
            self.cut_dc(dc, span, index);
        } else {
            self.after(WAIT_FOR_SITUATION, Event::Fault(index));
        }
    }

    fn break_clients(&mut self, group: usize) {
        let conns: Vec<usize> = self.processes_of(group).flat_map(|node| self.nodes[node].conns.clone()).collect();
        conns.into_iter().for_each(|conn| self.break_conn(conn));
    }

    pub(super) fn on_heal(&mut self, index: usize) {
        if self.faults_over {
            return;
        }
        match self.plan.faults[index].1 {
            Fault::CutPair { a, b, .. } | Fault::Flap { a, b, .. } => self.net.cut_pair(a, b, false),
            Fault::CutOneWay { from, to, .. } => self.net.cut_one_way(from, to, false),
            Fault::CutDc { dc, .. } => self.net.cut_dc(dc, false),
            Fault::CutAggregator { at, .. } => self.net.cut_place(at, false),
            _ => {}
        }
        self.tell_links();
    }

    /// The safety phase is over: from now on everything works, and no new increment comes.
    pub(super) fn end_faults(&mut self) {
        self.faults_over = true;
        self.note(51, [0; 3], || "faults end".to_owned());
        self.net.end_faults();
        self.tell_links();
        if let Some(engine) = &mut self.engine {
            engine.end_faults();
        }
        self.spare_nodes();
        self.spare_aggregators();
        self.unblock_clients();
        for client in 0..self.clients.len() {
            self.client_input(client, client::Input::Tick);
        }
    }

    // ---- operators ----

    pub(super) fn on_admin(&mut self, index: usize) {
        if let Admin::Edges(asked) = self.plan.admin[index].1.clone() {
            return self.on_edges(index, &asked);
        }
        let last = matches!(self.plan.admin[index].1, Admin::Last);
        let done =
            if last { self.is_last_awarded() } else { self.admin_done[index] || (self.faults_over && index > 0) };
        if done || self.arrivals_over() {
            return;
        }
        if last && self.admin_done[index] {
            if self.last_asked.is_some_and(|(at, _)| self.now - at < LAST_RETRY) {
                self.after(ADMIN_RETRY, Event::Admin(index));
                return;
            }
            self.admin_done[index] = false;
        }
        let cmds = self.admin_commands(index);
        if let (Some(leader), false) = (self.raft.leader(), cmds.is_empty()) {
            self.note(52, [index as u64, 0, 0], || format!("operator: {cmds:?}"));
            let cmds = Rc::new(cmds);
            self.propose_entry(leader, &cmds);
            self.copy_later(&cmds);
            self.admin_sent.push((index, cmds));
            if last {
                self.last_asked = Some((self.now, self.total_now(0)));
            }
        }
        let retry = if index == 0 { Span::from_millis(100) } else { ADMIN_RETRY };
        self.after(retry, Event::Admin(index));
    }

    fn admin_commands(&self, index: usize) -> Vec<LedgerCmd> {
        let policy = self.plan.admin[index]
            .1
            .defines()
            .map_or_else(Default::default, |counter| self.plan.leases.policy(index, counter));
        let define = |counter: usize, spec: MilestoneSpec| {
            let spec = MilestoneSpec { policy, ..spec };
            let counter = self.names[counter].clone();
            vec![LedgerCmd::Define { revision: self.reference.revision(&counter), counter, spec }]
        };
        let disarm = |counter: usize, at: Option<u64>| {
            let counter = self.names[counter].clone();
            vec![LedgerCmd::Disarm { revision: self.reference.revision(&counter), counter, at }]
        };
        match &self.plan.admin[index].1 {
            Admin::Namespace => vec![LedgerCmd::Namespace(super::NAMESPACE.to_owned())],
            Admin::UpDown => vec![LedgerCmd::UpDown(super::NAMESPACE.to_owned())],
            Admin::Series => self.series_command().into_iter().collect(),
            // Not said at the leader.
            Admin::Edges(_) => Vec::new(),
            Admin::At { counter, at, every, sequence_from } => {
                let at = at.clone();
                let every = *every;
                let sequence_from = *sequence_from;
                define(*counter, MilestoneSpec { at, every, sequence_from, ..MilestoneSpec::default() })
            }
            Admin::Ahead { counter, ahead, every } => {
                let total = self.total_now(*counter);
                let at = ahead.iter().map(|n| total + n).collect();
                let every = every.then(|| ahead.iter().sum::<u64>().max(500));
                define(*counter, MilestoneSpec { at, every, ..MilestoneSpec::default() })
            }
            Admin::Last => {
                let total = self.total_now(0);
                // Of what came since the one before, half.
                let ahead = self.last_asked.map_or(total / 15, |(_, before)| total.saturating_sub(before) / 2);
                define(0, MilestoneSpec { at: vec![total + ahead.max(300)], ..MilestoneSpec::default() })
            }
            Admin::Disarm { counter } => {
                let next = self.reference.counter(&self.names[*counter]).and_then(|c| c.milestones().least());
                next.map(|at| disarm(*counter, Some(at))).unwrap_or_default()
            }
            Admin::DisarmRule { counter } => disarm(*counter, None),
            Admin::Reset { counter, keeps_milestones } => {
                self.reference.reset(&self.names[*counter], *keeps_milestones, true).into_iter().collect()
            }
            Admin::Expire { counter, after } => {
                let at = WallMs(self.true_wall().0 + after.0 / 1_000);
                self.reference.expiry(&self.names[*counter], Some(at), true).into_iter().flatten().collect()
            }
            Admin::Claims { counter, rule } => {
                let counter = self.names[*counter].clone();
                let rule = *rule;
                vec![LedgerCmd::ClaimRule { revision: self.reference.claims().revision(&counter), counter, rule }]
            }
            Admin::Again { counter } => {
                let counter = &self.names[*counter];
                let Some(state) = self.reference.counter(counter) else { return Vec::new() };
                let (Some(at), revision) = (state.milestones().least(), state.milestones().revision()) else {
                    return Vec::new();
                };
                let spec = MilestoneSpec { at: vec![at], policy, ..MilestoneSpec::default() };
                let define = LedgerCmd::Define { counter: counter.clone(), revision: revision + 1, spec };
                vec![LedgerCmd::Disarm { counter: counter.clone(), revision, at: Some(at) }, define]
            }
        }
    }

    /// A proposal may be made again much later, by the leader of that time: a retry, or an old leader's last words.
    pub(super) fn copy_later(&mut self, cmds: &Cmds) {
        let decides = |cmd: &LedgerCmd| {
            let of_milestones =
                matches!(cmd, LedgerCmd::Define { .. } | LedgerCmd::Disarm { .. } | LedgerCmd::ViewAck { .. });
            let of_views = matches!(cmd, LedgerCmd::SetAside { .. });
            let of_lives = matches!(cmd, LedgerCmd::Reset { .. } | LedgerCmd::Expire { .. });
            let of_edges = matches!(cmd, LedgerCmd::Edges { .. });
            of_milestones || of_views || of_lives || of_edges || of_claims(cmd).is_some()
        };
        let per_10k = if cmds.iter().any(decides) { COPIES_OF_DECISIONS_PER_10K } else { COPIES_PER_10K };
        if !self.faults_over && self.rng.per_10k(per_10k) {
            let span = self.span(1_000, 20_000_000);
            self.after(span, Event::Copy(Rc::clone(cmds)));
        }
    }

    pub(super) fn on_copy(&mut self, cmds: &Cmds) {
        if let (Some(leader), false) = (self.raft.leader(), self.faults_over) {
            self.coverage.saw("old entry proposed again");
            self.propose_entry(leader, &Rc::new(cmds.to_vec()));
        }
    }

    /// An entry was applied: an operator's command may be done with it, unless it came too late and is given again.
    pub(super) fn admin_applied(&mut self, cmds: &Cmds, stale: bool) {
        // A real log carries bytes, and may put what was proposed apart into one entry.
        let within =
            |sent: &Cmds| self.engine.is_some() && cmds.windows(sent.len()).any(|part| part == sent.as_slice());
        if let Some(at) = self.admin_sent.iter().position(|(_, sent)| Rc::ptr_eq(sent, cmds) || within(sent)) {
            let (index, _) = self.admin_sent.swap_remove(at);
            self.admin_done[index] |= !stale;
        }
    }
}
