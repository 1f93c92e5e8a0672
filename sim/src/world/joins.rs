//! Nodes that are added while it counts. The processes of a new group start; the aggregators of its data centre read the layout when they
//! start again, and dial it then, as the real ones do; it greets the ledger, and serves when that has answered with an account of
//! every counter that is guarded.

use super::{Event, World};
use crate::plan::joins::{Greeted, Join};
use crate::plan::{Fault, Plan};
use std::collections::{BTreeMap, BTreeSet};
use tidemark_proto::ids::{GroupId, LogIndex};
use tidemark_proto::ledger::Pending;
use tidemark_proto::msg::LedgerCmd;

/// A restart by an operator takes so long, in microseconds.
const RESTART_US: (u64, u64) = (50_000, 800_000);
/// A milestone this near is about to be reached.
const NEAR: u64 = 200;

/// Groups that join in a run.
#[derive(Debug, Default)]
pub struct Joins {
    /// Groups that are not founded yet.
    waiting: BTreeSet<usize>,
    /// Groups that an aggregator does not know of, with it.
    unknown: BTreeSet<(usize, usize)>,
    /// The event when a group greets for the first time, by the number of its fault.
    greeted: BTreeMap<usize, (Greeted, usize)>,
    /// Homes that clients had before.
    homes: BTreeMap<usize, usize>,
}

impl Joins {
    pub fn new(plan: &Plan) -> Joins {
        let joins = || plan.joins.iter().copied();
        let places = 0..plan.places().len();
        let unknown = joins().flat_map(|group| places.clone().map(move |at| (group, at))).collect();
        Joins { waiting: joins().collect(), unknown, ..Joins::default() }
    }

    pub fn is_founded(&self, group: usize) -> bool {
        !self.waiting.contains(&group)
    }

    /// Whether an aggregator knows of a group of its data centre.
    pub fn is_known(&self, group: usize, at: usize) -> bool {
        !self.unknown.contains(&(group, at))
    }

    /// An aggregator starts: it knows of all groups that its data centre has by then.
    pub fn read_layout(&mut self, at: usize, dc: usize, plan: &Plan) {
        let waiting = &self.waiting;
        self.unknown.retain(|&(group, of)| of != at || plan.nodes[group] != dc || waiting.contains(&group));
    }

    pub fn former_home(&self, slot: usize) -> Option<usize> {
        self.homes.get(&slot).copied()
    }
}

impl World {
    /// The new node starts; only clients that are told know of it yet.
    pub(super) fn on_join(&mut self, join: Join, index: usize) {
        let Join { group, read_after, greeted, movers } = join;
        if !self.joins.waiting.remove(&group) {
            return;
        }
        self.note(56, [group as u64, 0, 0], || format!("group {group} is founded"));
        self.joins.greeted.insert(group, (greeted, index));
        self.processes_of(group).for_each(|node| self.start_node(node));
        for (seat, after) in read_after.into_iter().enumerate() {
            if let Some(at) = self.at_seat(self.plan.nodes[group], seat) {
                self.after(after, Event::ReadLayout { at });
            }
        }
        for (slot, after) in movers {
            self.after(after, Event::Rehome { slot, group });
        }
    }

    /// The process is restarted for the new layout; a process that is down reads it when it comes back.
    pub(super) fn on_read_layout(&mut self, at: usize) {
        let span = self.span(RESTART_US.0, RESTART_US.1);
        self.doom_aggregator(at, 0, span);
        self.crash_aggregator(at);
    }

    /// A front end is started anew with a list of sites that begins with the new one.
    pub(super) fn on_rehome(&mut self, slot: usize, group: usize) {
        if self.faults_over || self.plan.clients[slot] == group {
            return;
        }
        self.joins.homes.insert(slot, self.plan.clients[slot]);
        self.plan.clients[slot] = group;
        self.crash_client(self.slots[slot], true);
        self.coverage.saw("client moved to a group that joined");
    }

    /// A group is linked to an aggregator: one that joined greets.
    pub(super) fn on_linked(&mut self, group: usize, at: usize) {
        let Some((greeted, index)) = self.joins.greeted.remove(&group) else { return };
        match greeted {
            Greeted::Quietly => {}
            Greeted::WhileArming if !self.faults_over => drop(self.define_soon()),
            Greeted::CutOff(span) if !self.faults_over => {
                let dc = self.home_of(at);
                self.plan.faults[index].1 = Fault::CutDc { dc, span };
                self.cut_dc(dc, span, index);
                self.tell_links();
            }
            Greeted::WhileArming | Greeted::CutOff(_) => {}
        }
        let apart = self.raft.leader().is_none_or(|leader| leader != at && !self.net.connected(leader, at));
        self.coverage.saw_times("group joined cut off from the ledger's leader", u64::from(apart));
    }

    /// Whether it is the first greeting of a group that joined.
    pub(super) fn is_joining(&self, cmd: &LedgerCmd) -> bool {
        let LedgerCmd::Hello(hello) = cmd else { return false };
        self.joined(hello.group) && !self.reference.groups().contains_key(&hello.group)
    }

    fn joined(&self, id: GroupId) -> bool {
        self.plan.joins.iter().any(|&group| self.groups[group] == id)
    }

    /// Applies a greeting to the reference.
    pub(super) fn apply_greeting(&mut self, index: LogIndex, cmd: &LedgerCmd, id: GroupId) {
        let joins = self.is_joining(cmd);
        self.reference.apply(index, cmd);
        if !joins || self.reference.confirmed(id).is_none() {
            return;
        }
        self.coverage.saw("group joined");
        let counters = || self.reference.guarded().filter_map(|name| self.reference.counter(name));
        let arming = counters().any(|state| state.milestones().pending().any(|(_, of)| *of != Pending::Armed));
        let armed = counters().any(|state| state.next_armed().is_some());
        let near = counters().any(|state| state.next_armed().is_some_and(|next| next < state.upper() + NEAR));
        let undecided = counters().any(|state| state.window().undecided() > 0);
        self.coverage.saw_times("group joined while a milestone was arming", u64::from(arming));
        self.coverage.saw_times("group joined while a milestone was armed", u64::from(armed));
        self.coverage.saw_times("group joined while a milestone was about to be reached", u64::from(near));
        self.coverage.saw_times("group joined while a place was undecided", u64::from(undecided));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aggregator_knows_of_a_group_that_joined_once_it_has_started_again() {
        let plan = (0..).map(Plan::new).find(|plan| !plan.joins.is_empty()).expect("a quarter of them");
        let mut joins = Joins::new(&plan);
        let group = plan.joins[0];
        let dc = plan.nodes[group];
        assert!(!joins.is_founded(group) && joins.is_founded(0));
        joins.read_layout(dc, dc, &plan);
        assert!(!joins.is_known(group, dc), "nothing is there yet");
        joins.waiting.remove(&group);
        assert!(!joins.is_known(group, dc), "it has not read the layout");
        joins.read_layout(dc, dc, &plan);
        assert!(joins.is_known(group, dc) && joins.is_known(0, dc));
    }
}
