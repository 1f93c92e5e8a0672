//! Data centres with several aggregators. Each has a place of its own in the network and in the ledger's log: the places of first
//! aggregators are the data centres' numbers, and those of second and further ones follow. Of more than two each holds some shards.

use super::aggregators::SEATS;
use super::{Event, World};
use crate::plan::Fault;
use std::ops::Range;
use std::rc::Rc;
use tidemark_proto::aggregator::Input;
use tidemark_proto::ids::{AggregatorId, DcId};
use tidemark_proto::msg::{FromGroup, LedgerCmd, MilestoneSpec};
use tidemark_proto::shards::Seats;
use tidemark_proto::time::Span;

/// An operator that could not set a view aside tries again.
const SET_ASIDE_AGAIN: Span = Span::from_millis(400);
/// How often it is looked for a milestone that was armed without a view.
const LOOK_FOR_MILESTONE: Span = Span::from_millis(20);

impl World {
    /// All aggregators.
    pub(super) fn members(&self) -> Range<usize> {
        0..self.plan.places().len()
    }

    /// The data centre of an aggregator.
    pub(super) fn home_of(&self, at: usize) -> usize {
        let dcs = self.plan.sites.len();
        if at < dcs { at } else { self.plan.pairs[at - dcs] }
    }

    pub(super) fn id_of(&self, at: usize) -> AggregatorId {
        let dc = self.home_of(at);
        let dcs = self.plan.sites.len();
        let before = self.plan.pairs[..at.saturating_sub(dcs)].iter().filter(|&&other| other == dc).count();
        let seat = if at < dcs { 0 } else { 1 + before as u8 };
        AggregatorId { dc: DcId(dc as u16), seat }
    }

    /// The number of aggregators of each data centre, and the holders of each shard before any move.
    pub(super) fn seats(&self) -> Seats {
        let of = |dc| 1 + self.plan.pairs.iter().filter(|&&other| other == dc).count() as u8;
        Seats::new((0..self.plan.sites.len()).map(of).collect())
    }

    /// The aggregator of a data centre with this seat, if there is one.
    pub(super) fn at_seat(&self, dc: usize, seat: usize) -> Option<usize> {
        let Some(further) = seat.checked_sub(1) else { return Some(dc) };
        let mut others = self.plan.pairs.iter().enumerate().filter(|&(_, &of)| of == dc);
        others.nth(further).map(|(other, _)| self.plan.sites.len() + other)
    }

    pub(super) fn at_of(&self, id: AggregatorId) -> Option<usize> {
        self.at_seat(usize::from(id.dc.0), usize::from(id.seat)).filter(|&at| at < self.aggregators.len())
    }

    /// The aggregators of a data centre.
    pub(super) fn aggregators_of(&self, dc: usize) -> Vec<usize> {
        (0..SEATS).filter_map(|seat| self.at_seat(dc, seat)).collect()
    }

    pub(super) fn is_paired(&self, at: usize) -> bool {
        self.plan.pairs.contains(&self.home_of(at))
    }

    // ---- faults ----

    pub(super) fn on_pair_fault(&mut self, fault: &Fault, index: usize) {
        match *fault {
            Fault::CutAggregator { at, span } => {
                self.net.cut_place(at, true);
                self.coverage.saw("aggregator of a pair cut off alone");
                self.after(span, Event::Heal(index));
                // Arming waits for it.
                self.define_soon();
            }
            Fault::CutFromLeader { at, span } => self.cut_from_leader(at, span, index),
            Fault::WipeView { at, span } if self.aggregators[at].is_up() => {
                self.doom_aggregator(at, 0, span);
                self.crash_aggregator(at);
                self.aggregators[at].lose_rows();
                self.coverage.saw("aggregator of a pair lost its view's disk");
            }
            Fault::BreakFeeds { at } => self.break_feeds(at),
            Fault::SetAside { at, span, after } if self.aggregators[at].is_up() => {
                self.doom_aggregator(at, 0, span);
                self.crash_aggregator(at);
                self.after(after, Event::SetAside(index));
            }
            _ => {}
        }
    }

    /// News of the ledger stops, and news of counts goes on; arming waits for it.
    fn cut_from_leader(&mut self, at: usize, span: Span, index: usize) {
        let Some(leader) = self.raft.leader().filter(|&leader| leader != at) else { return };
        self.net.cut_pair(at, leader, true);
        self.plan.faults[index].1 = Fault::CutPair { a: at, b: leader, span };
        self.coverage.saw("one of a pair hears nothing of the ledger");
        self.after(span, Event::Heal(index));
        self.define_soon();
    }

    /// The links of a data centre's groups and one of its aggregators break.
    pub(super) fn break_feeds(&mut self, at: usize) {
        let dc = self.home_of(at);
        let seat = usize::from(self.id_of(at).seat);
        for group in 0..self.groups.len() {
            if self.plan.nodes[group] == dc {
                self.break_group_link(group, seat);
            }
        }
    }

    /// An operator sees that an aggregator's process does not run, and says so to its partner.
    pub(super) fn on_set_aside(&mut self, index: usize) {
        let Fault::SetAside { at, .. } = self.plan.faults[index].1 else { return };
        let view = self.id_of(at);
        if self.aggregators[at].is_up() || self.faults_over {
            return;
        }
        if self.reference.view_start(view).is_none() {
            return self.arm_without(index);
        }
        let others = self.aggregators_of(self.home_of(at)).into_iter().filter(|&other| other != at);
        let (up, down): (Vec<usize>, Vec<usize>) = others.partition(|&other| self.aggregators[other].is_up());
        let Some(&partner) = up.first().or(down.first()) else { return };
        let process = &self.aggregators[partner];
        let cmd = process.core().and_then(|core| core.setting_aside(view, &process.ledger).ok());
        if let Some(cmd) = cmd {
            self.note(55, [at as u64, 0, 0], || format!("operator at aggregator {partner}: {cmd:?}"));
            self.aggregator_input(partner, Input::Submit(vec![cmd]));
        }
        self.after(SET_ASIDE_AGAIN, Event::SetAside(index));
    }

    /// The view is waited for no more: a milestone is defined that the count is about to reach.
    fn arm_without(&mut self, index: usize) {
        let at = self.define_soon();
        self.after(LOOK_FOR_MILESTONE, Event::ArmedWithout(index, at));
    }

    /// Defines a milestone that the count is about to reach.
    pub(super) fn define_soon(&mut self) -> u64 {
        let most = *self.rng.pick(&[40, 400]);
        let ahead = self.rng.between(1, most);
        let counter = self.names[0].clone();
        let at = self.total_now(0) + ahead;
        if let Some(leader) = self.raft.leader() {
            let spec = MilestoneSpec { at: vec![at], ..MilestoneSpec::default() };
            let define = LedgerCmd::Define { revision: self.reference.revision(&counter), counter, spec };
            self.propose_entry(leader, &Rc::new(vec![define]));
        }
        at
    }

    /// The view comes back while a milestone stands that was armed without it.
    pub(super) fn on_armed_without(&mut self, index: usize, milestone: u64) {
        let Fault::SetAside { at, .. } = self.plan.faults[index].1 else { return };
        if self.aggregators[at].is_up() || self.faults_over {
            return;
        }
        if self.reference.next_milestone(&self.names[0]) == Some(milestone) {
            self.coverage.saw("a view came back while a milestone stood that was armed without it");
            return self.start_aggregator(at);
        }
        let waits = self.reference.counter(&self.names[0]).is_some_and(|state| state.milestones().least().is_some());
        if waits {
            self.after(LOOK_FOR_MILESTONE, Event::ArmedWithout(index, milestone));
        }
    }

    // ---- what was met ----

    /// The second of a pair begins to tell what the first does not.
    pub(super) fn cover_taking_over(&mut self, at: usize) {
        let process = &mut self.aggregators[at];
        let speaks = process.core().is_some_and(|core| core.speaks_for_its_partner());
        let began = speaks && !std::mem::replace(&mut process.spoke, speaks);
        process.spoke = speaks;
        if began {
            self.coverage.saw("the second of a pair took over gossip");
            let armed = self.reference.guarded().any(|name| self.reference.next_milestone(name).is_some());
            self.coverage.saw_times("the second took over while a milestone was armed", u64::from(armed));
        }
    }

    /// A group speaks to the ledger by one of a pair.
    pub(super) fn cover_voice(&mut self, group: usize, seat: u8, msg: &FromGroup) {
        if !matches!(msg, FromGroup::Report(_) | FromGroup::Offer(_)) {
            return;
        }
        let before = self.voices.insert(group, seat);
        let turned = before.is_some_and(|before| before != seat);
        self.coverage.saw_times("a group turned to the other aggregator of a pair", u64::from(turned));
    }
}
