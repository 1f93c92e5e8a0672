//! Moments at which the leader of the ledger matters: it has just sent a grant, a recall or an award, and until a round trip has passed
//! some members do not know.

use super::{Event, World};
use crate::plan::{Fault, Moment};
use tidemark_proto::ids::GroupId;
use tidemark_proto::msg::{LedgerCmd, Offer, PeerMsg, Policy, Report};
use tidemark_proto::time::{Span, Time};

/// Moments of one run.
#[derive(Debug, Default)]
pub struct Moments {
    /// The leader at the last moment of each kind, and its time.
    last: [Option<(usize, Time)>; MOMENTS.len()],
    /// Faults that wait for one, by number.
    ambushes: Vec<(Moment, usize)>,
    /// Faults that wait for a block at a milestone, by number.
    at_blocks: Vec<usize>,
}

const MOMENTS: [Moment; 6] =
    [Moment::Grant, Moment::Recall, Moment::Award, Moment::Join, Moment::Arming, Moment::Revocation];

/// The situation that a sweep counts.
fn situation(moment: Moment) -> &'static str {
    match moment {
        Moment::Grant => "ledger leader lost within a round trip of a grant",
        Moment::Recall => "ledger leader lost within a round trip of a recall",
        Moment::Award => "ledger leader lost within a round trip of an award",
        Moment::Join => "ledger leader lost within a round trip of a group's joining",
        Moment::Arming => "ledger leader lost within a round trip of a step of arming",
        Moment::Revocation => "ledger leader lost within a round trip of a revocation",
    }
}

impl World {
    /// A fault waits for its moment.
    pub(super) fn lie_in_wait(&mut self, moment: Moment, fault: usize) {
        self.moments.ambushes.push((moment, fault));
    }

    /// A fault waits for a block with a milestone at which its group alone can give a name.
    pub(super) fn lie_in_wait_at_blocks(&mut self, fault: usize) {
        self.moments.at_blocks.push(fault);
    }

    /// A command about a counter was applied.
    pub(super) fn block_moment(&mut self, cmd: &LedgerCmd) {
        if self.moments.at_blocks.is_empty() || self.faults_over {
            return;
        }
        let (LedgerCmd::Offer(Offer { counter, .. }) | LedgerCmd::Report(Report { counter, .. })) = cmd else { return };
        let Some(state) = self.reference.counter(counter).filter(|state| state.policy() == Policy::Timely) else {
            return;
        };
        let Some(group) = state.waits_for_identity_of() else { return };
        let Some(index) = self.moments.at_blocks.pop() else { return };
        if let Fault::CutAtBlock { span } = self.plan.faults[index].1 {
            self.coverage.saw("cut off while it alone could name who stands at a milestone");
            self.plan.faults[index].1 = Fault::CutDc { dc: usize::from(group.dc.0), span };
            self.after(Span(0), Event::Fault(index));
        }
    }

    /// An aggregator that leads hands commands to the log.
    pub(super) fn propose_moment(&mut self, dc: usize, cmds: &[LedgerCmd]) {
        if cmds.iter().any(|cmd| matches!(cmd, LedgerCmd::Grant { .. })) {
            self.moment(Moment::Grant, dc);
        }
        if cmds.iter().any(|cmd| self.is_joining(cmd)) {
            self.moment(Moment::Join, dc);
        }
        if cmds.iter().any(|cmd| matches!(cmd, LedgerCmd::Define { .. } | LedgerCmd::ViewAck { .. })) {
            self.moment(Moment::Arming, dc);
        }
        if cmds.iter().any(|cmd| matches!(cmd, LedgerCmd::Revoke { .. })) {
            self.moment(Moment::Revocation, dc);
        }
    }

    /// An aggregator speaks to another.
    pub(super) fn peer_moment(&mut self, dc: usize, msg: &PeerMsg) {
        if matches!(msg, PeerMsg::Recall(_)) {
            self.coverage.saw("recall sent");
            self.moment(Moment::Recall, dc);
        }
    }

    /// An award stands in the log; `winner` has counted it.
    pub(super) fn award_moment(&mut self, winner: GroupId) {
        let leader = self.raft.leader().unwrap_or(usize::from(winner.dc.0));
        self.moment(Moment::Award, leader);
    }

    fn moment(&mut self, moment: Moment, dc: usize) {
        if !self.raft.is_leader(dc) || self.faults_over {
            return;
        }
        self.moments.last[moment as usize] = Some((dc, self.now));
        let waiting = self.moments.ambushes.iter().position(|(other, _)| *other == moment);
        if let Some(at) = waiting {
            let (_, index) = self.moments.ambushes.swap_remove(at);
            let span = self.round_trip(dc);
            let soon = Span(self.rng.below(span.0));
            if let Fault::LoseLeader { cut, span, .. } = self.plan.faults[index].1 {
                let fault = if cut { Fault::CutLeader { span } } else { Fault::CrashLeader { outputs: 0, span } };
                self.plan.faults[index].1 = fault;
                self.after(soon, Event::Fault(index));
            }
        }
    }

    /// A member of the ledger is lost: it crashes, or no process reaches it.
    pub(super) fn cover_leader_lost(&mut self, dc: usize) {
        if !self.raft.is_leader(dc) {
            return;
        }
        let round_trip = self.round_trip(dc);
        for moment in MOMENTS {
            let last = self.moments.last[moment as usize];
            let just = last.is_some_and(|(leader, at)| leader == dc && self.now - at <= round_trip);
            self.coverage.saw_times(situation(moment), u64::from(just));
        }
    }

    /// To the farthest data centre and back.
    fn round_trip(&self, dc: usize) -> Span {
        let farthest = self.members().map(|other| self.net.rtt(dc, other)).max();
        farthest.unwrap_or_default().max(Span::from_millis(1))
    }
}
