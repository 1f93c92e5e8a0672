//! The way into the ledger's log: commands gather for a moment and go to the leader's data centre. If that is this one, they go
//! into the log, together with the leader's own commands.

use crate::aggregator::{AggregatorCore, Output};
use std::collections::BTreeMap;
use tidemark_ledger::ledger::{CounterLedger, Ledger};
use tidemark_types::alloc;
use tidemark_types::ids::{AggregatorId, CounterName, GroupId};
use tidemark_types::limits::MESSAGE_BYTES_MAX;
use tidemark_types::time::{Span, Time};
use tidemark_wire::msg::*;
use tidemark_wire::wire;

/// Commands that wait for the next proposal. More are dropped: their senders repeat them.
pub const PROPOSALS_MAX: usize = 65_536;
/// Bytes of one proposal, or of one message with commands, with room for its frame.
const PROPOSAL_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 2;

/// Commands on their way to the ledger.
#[derive(Clone, Debug, Default)]
pub struct Proposals {
    /// The newest report of each account wins; with it, whether its group still queues late increments.
    reports: BTreeMap<(CounterName, GroupId), (Report, bool)>,
    others: Vec<LedgerCmd>,
    at: Option<Time>,
    last: Time,
}

impl Proposals {
    fn add(&mut self, cmd: LedgerCmd) {
        if let LedgerCmd::Report(report) = cmd {
            self.add_report(report, false);
        } else if let LedgerCmd::Returned(report) = cmd {
            self.add_report(report, true);
        } else if self.others.len() < PROPOSALS_MAX {
            self.others.push(cmd);
        }
    }

    fn add_report(&mut self, report: Report, late: bool) {
        let key = (report.counter.clone(), report.group);
        if self.reports.get(&key).is_none_or(|(old, _)| old.report_no <= report.report_no) {
            self.reports.insert(key, (report, late));
        }
    }

    fn schedule(&mut self, at: Time) {
        self.at = Some(self.at.map_or(at, |earlier| earlier.min(at)));
    }

    pub fn due(&self) -> Option<Time> {
        self.at
    }

    /// Reports stand first: the rights that they report were spent before the offers.
    fn take(&mut self) -> Vec<LedgerCmd> {
        self.at = None;
        let said = |(report, late)| if late { LedgerCmd::Returned(report) } else { LedgerCmd::Report(report) };
        let mut cmds: Vec<LedgerCmd> = std::mem::take(&mut self.reports).into_values().map(said).collect();
        cmds.append(&mut self.others);
        cmds
    }
}

impl AggregatorCore {
    pub(super) fn submit(&mut self, cmds: Vec<LedgerCmd>) {
        cmds.into_iter().for_each(|cmd| self.keep_proposing(cmd));
    }

    /// Says a command to the ledger until its state shows it.
    pub fn keep_proposing(&mut self, cmd: LedgerCmd) {
        self.standing.add(cmd);
    }

    pub(super) fn run_standing(&mut self, now: Time, ledger: &Ledger) {
        let own = self.config.own;
        let heard = self.reaches_leader();
        for cmd in self.standing.take_due(now, self.config.standing_retry, ledger, own, heard) {
            self.propose_soon(now, cmd);
        }
    }

    fn reaches_leader(&self) -> bool {
        self.leader().is_some_and(|leader| leader == self.config.own || self.rtts.contains_key(&leader))
    }

    /// The leader can be reached from now on. Earlier messages were kept nowhere: the groups repeat theirs now and not when their
    /// patience ends, since a whole cluster may wait for the rights of this data centre.
    pub(super) fn on_leader_reached(&mut self, now: Time) {
        self.standing.hurry();
        // Groups that were asked a moment ago have only begun to wait.
        if self.asked_again.is_some_and(|at| now - at < self.config.standing_retry) {
            return;
        }
        self.asked_again = Some(now);
        let groups = self.groups.iter();
        self.outputs.extend(groups.map(|&group| Output::Group { group, msg: ForGroup::Again }));
    }

    pub(super) fn propose_soon(&mut self, now: Time, cmd: LedgerCmd) {
        self.propose_within(now, cmd, self.config.proposal_interval_near);
    }

    /// A report may wait for others, the longer the longer its group's rights last.
    pub(super) fn propose_report(&mut self, now: Time, report: Report, ledger: &Ledger) {
        let patience = ledger.counter(&report.counter).map_or(Span(0), |state| patience(state, &report));
        self.propose_within(now, LedgerCmd::Report(report), self.report_interval(patience));
    }

    fn report_interval(&self, patience: Span) -> Span {
        patience.max(self.config.proposal_interval_near).min(self.config.proposal_interval_far)
    }

    fn propose_within(&mut self, now: Time, cmd: LedgerCmd, interval: Span) {
        self.proposals.add(cmd);
        self.proposals.schedule((self.proposals.last + interval).max(now));
    }

    /// Commands of another aggregator: only those that it may propose.
    pub(super) fn on_proposed_by(&mut self, now: Time, peer: AggregatorId, cmds: Vec<LedgerCmd>) {
        if self.leader() != Some(self.config.own) {
            return;
        }
        let may = |cmd: &LedgerCmd| may_propose(peer, cmd) && self.may_declare(peer.dc, cmd);
        let cmds: Vec<_> = cmds.into_iter().filter(may).collect();
        for cmd in cmds {
            let patience = if matches!(cmd, LedgerCmd::Report(_)) { self.leader_core.patience() } else { Span(0) };
            self.propose_within(now, cmd, self.report_interval(patience));
        }
    }

    /// Without a leader nothing is kept: the senders repeat all that matters.
    pub(super) fn run_proposals(&mut self, now: Time, ledger: &Ledger) {
        if self.proposals.due().is_none_or(|due| due > now) {
            return;
        }
        let mut cmds = self.proposals.take();
        if self.leader() == Some(self.config.own) {
            cmds.retain(|cmd| self.judges_lost(now, cmd, ledger));
        }
        let Some(leader) = self.leader().filter(|_| !cmds.is_empty()) else { return };
        self.proposals.last = now;
        for part in parts(cmds) {
            if leader == self.config.own {
                let part = part.into_iter().map(|cmd| self.leader_core.for_the_log(cmd, ledger)).collect();
                self.propose(now, part);
            } else {
                self.outputs.push_back(Output::Peer { peer: leader, msg: PeerMsg::Propose(part) });
            }
        }
    }

    /// Puts commands into the log, with the grants that take effect if they bring the award.
    pub(super) fn propose(&mut self, now: Time, mut cmds: Vec<LedgerCmd>) {
        let mut counters: Vec<CounterName> = cmds.iter().filter_map(deciding).cloned().collect();
        counters.sort_unstable();
        counters.dedup();
        cmds.extend(counters.iter().flat_map(|counter| self.leader_core.riders(counter)).cloned());
        if let Some(wall) = self.wall(now).filter(|_| cmds.iter().any(may_award)) {
            cmds.insert(0, LedgerCmd::Clock(wall));
        }
        self.leader_core.on_proposed(now, &cmds);
        self.outputs.push_back(Output::Propose(cmds));
    }

    // ---- leading ----

    pub(super) fn leader(&self) -> Option<AggregatorId> {
        self.reign.map(|(leader, _)| leader)
    }

    pub(super) fn on_leader(&mut self, now: Time, reign: Option<(AggregatorId, u64)>) {
        if self.reign != reign {
            self.reign = reign;
            let leader = self.leader();
            self.led_since = (leader == Some(self.config.own)).then_some(now);
            self.shards.iter_mut().for_each(|shard| shard.gossip.on_leader(leader));
            self.leader_core.forget();
            self.leader_wake = Some(now);
            if self.reaches_leader() {
                self.on_leader_reached(now);
            }
        }
    }

    pub(super) fn run_leader(&mut self, now: Time, ledger: &Ledger) {
        if self.leader() != Some(self.config.own) {
            self.leader_wake = None;
            return;
        }
        if self.leader_wake.is_none_or(|wake| wake > now) {
            return;
        }
        let own = self.config.own.dc;
        let plan = self.leader_core.plan(now, ledger, &self.rtts(), own);
        self.leader_wake = plan.wake;
        for cmd in plan.propose {
            self.propose_soon(now, cmd);
        }
        for (dc, recall) in plan.recalls {
            if dc == own {
                self.forward_recall(&recall, ledger);
            }
            for peer in self.peers_of(dc) {
                self.outputs.push_back(Output::Peer { peer, msg: PeerMsg::Recall(recall.clone()) });
            }
        }
    }
}

/// How long a report may wait: not at all when anything waits for it.
fn patience(state: &CounterLedger, report: &Report) -> Span {
    if state.window().weight() > 0 {
        return Span(0);
    }
    let granted = state.accounts().get(&report.group).map_or(0, |account| account.granted);
    let left = granted.saturating_sub(report.spent.saturating_add(report.returned));
    Span(alloc::patience_us(left.saturating_mul(1_000_000) / report.rate_per_s.max(1)))
}

/// Whether an entry with this command may award a milestone: then the entry carries the time.
fn may_award(cmd: &LedgerCmd) -> bool {
    match cmd {
        LedgerCmd::Report(_)
        | LedgerCmd::Returned(_)
        | LedgerCmd::Offer(_)
        | LedgerCmd::Detail(_)
        | LedgerCmd::Revoke { .. }
        | LedgerCmd::Remains { .. }
        | LedgerCmd::Disarm { .. }
        | LedgerCmd::ViewAck { .. }
        | LedgerCmd::SetAside { .. }
        | LedgerCmd::DeclareLost { .. }
        | LedgerCmd::Forget { .. } => true,
        LedgerCmd::Namespace(_)
        | LedgerCmd::UpDown(_)
        | LedgerCmd::Series { .. }
        | LedgerCmd::Spread(_)
        | LedgerCmd::View(_)
        | LedgerCmd::ViewStart { .. }
        | LedgerCmd::Hello(_)
        | LedgerCmd::Define { .. }
        | LedgerCmd::Grant { .. }
        | LedgerCmd::Signature { .. }
        | LedgerCmd::ClaimRule { .. }
        | LedgerCmd::ClaimUntil { .. }
        | LedgerCmd::Claim { .. }
        | LedgerCmd::ClaimOver { .. }
        | LedgerCmd::Reset { .. }
        | LedgerCmd::Expire { .. }
        | LedgerCmd::VoterReturns { .. }
        | LedgerCmd::Edges { .. }
        | LedgerCmd::AllowEdges { .. }
        | LedgerCmd::Shard { .. }
        | LedgerCmd::IdOwners(_)
        | LedgerCmd::Birth(_)
        | LedgerCmd::ResetsHeard { .. }
        | LedgerCmd::Clock(_) => false,
    }
}

/// The counter that a command may decide.
fn deciding(cmd: &LedgerCmd) -> Option<&CounterName> {
    match cmd {
        LedgerCmd::Report(report) => Some(&report.counter),
        LedgerCmd::Revoke { counter, .. } => Some(counter),
        LedgerCmd::Offer(offer) | LedgerCmd::Detail(offer) => Some(&offer.counter),
        LedgerCmd::Remains { counter, .. } => Some(counter),
        LedgerCmd::Namespace(_)
        | LedgerCmd::Spread(_)
        | LedgerCmd::View(_)
        | LedgerCmd::Hello(_)
        | LedgerCmd::Define { .. }
        | LedgerCmd::Disarm { .. }
        | LedgerCmd::Grant { .. }
        | LedgerCmd::ViewAck { .. }
        | LedgerCmd::Signature { .. }
        | LedgerCmd::ClaimRule { .. }
        | LedgerCmd::ClaimUntil { .. }
        | LedgerCmd::Claim { .. }
        | LedgerCmd::ClaimOver { .. }
        | LedgerCmd::Returned(_)
        | LedgerCmd::Reset { .. }
        | LedgerCmd::Expire { .. }
        | LedgerCmd::DeclareLost { .. }
        | LedgerCmd::Forget { .. }
        | LedgerCmd::ViewStart { .. }
        | LedgerCmd::SetAside { .. }
        | LedgerCmd::UpDown(_)
        | LedgerCmd::VoterReturns { .. }
        | LedgerCmd::Series { .. }
        | LedgerCmd::Edges { .. }
        | LedgerCmd::AllowEdges { .. }
        | LedgerCmd::Shard { .. }
        | LedgerCmd::Clock(_)
        | LedgerCmd::IdOwners(_)
        | LedgerCmd::Birth(_)
        | LedgerCmd::ResetsHeard { .. } => None,
    }
}

/// Whether an aggregator may propose a command: commands of its data centre's groups, of its own view, and settings; never the
/// leader's own.
fn may_propose(peer: AggregatorId, cmd: &LedgerCmd) -> bool {
    let dc = peer.dc;
    match cmd {
        LedgerCmd::Namespace(_)
        | LedgerCmd::UpDown(_)
        | LedgerCmd::Series { .. }
        | LedgerCmd::Edges { .. }
        | LedgerCmd::AllowEdges { .. }
        | LedgerCmd::Spread(_)
        | LedgerCmd::IdOwners(_)
        | LedgerCmd::Birth(_)
        | LedgerCmd::Define { .. }
        | LedgerCmd::Disarm { .. } => true,
        LedgerCmd::Reset { .. } | LedgerCmd::Expire { .. } => true,
        LedgerCmd::ClaimRule { .. } | LedgerCmd::Claim { .. } => true,
        LedgerCmd::DeclareLost { .. } | LedgerCmd::Forget { .. } => true,
        // Any view may have heard of any group.
        LedgerCmd::Remains { .. } => true,
        LedgerCmd::SetAside { .. } => true,
        LedgerCmd::View(of)
        | LedgerCmd::ViewStart { view: of, .. }
        | LedgerCmd::ViewAck { view: of, .. }
        | LedgerCmd::ResetsHeard { view: of, .. } => *of == peer,
        LedgerCmd::Shard { dc: of, .. } => *of == dc,
        LedgerCmd::Hello(hello) => hello.group.dc == dc,
        LedgerCmd::Report(report) | LedgerCmd::Returned(report) => report.group.dc == dc,
        LedgerCmd::Offer(offer) | LedgerCmd::Detail(offer) => offer.group.dc == dc,
        LedgerCmd::Signature { dc: of, .. } => *of == dc,
        LedgerCmd::Grant { .. } | LedgerCmd::Revoke { .. } => false,
        LedgerCmd::ClaimUntil { .. } | LedgerCmd::ClaimOver { .. } | LedgerCmd::VoterReturns { .. } => false,
        LedgerCmd::Clock(_) => false,
    }
}

/// Cuts commands into parts that fit a message.
fn parts(cmds: Vec<LedgerCmd>) -> Vec<Vec<LedgerCmd>> {
    let mut parts = Vec::new();
    let mut part = Vec::new();
    let mut bytes = 0;
    for cmd in cmds {
        let size = size_of_cmd(&cmd);
        if bytes + size > PROPOSAL_BYTES_MAX && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
        bytes += size;
        part.push(cmd);
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

/// An upper bound of a command's encoded size, cheap for the frequent ones.
fn size_of_cmd(cmd: &LedgerCmd) -> usize {
    if matches!(cmd, LedgerCmd::Report(_) | LedgerCmd::Returned(_)) {
        return 512;
    }
    if let LedgerCmd::Offer(Offer { body: OfferBody::Items(items), .. }) = cmd {
        return 512 + 64 * items.len();
    }
    wire::encode(cmd).len()
}
