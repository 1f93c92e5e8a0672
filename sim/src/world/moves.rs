//! Machines that come and go: an operator gives a data centre another layout, and restarts its machines one after the other, which
//! read it as they start. Each holds the groups that are placed on it, and those that were until others have its place. The next
//! layout waits until all groups are where the last one wants them.

use super::{Event, World};
use crate::plan::moves::{Change, Moving};
use tidemark_proto::time::Span;

/// An operator looks so often whether all groups are where they belong.
const LOOK_AGAIN: Span = Span::from_secs(1);
/// A process that was told to end starts again after this.
const START_AGAIN: Span = Span::from_millis(200);

/// What a process has read of its data centre's layouts.
#[derive(Clone, Debug, Default)]
pub struct Stand {
    /// Processes that hold the group by the layout that it read last; all where there is one layout.
    pub placed: Vec<usize>,
    /// It is not started: its machine is not there yet, or holds nothing of the group any more.
    pub absent: bool,
}

/// How far a data centre is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// The layout that its machines read now.
    layout: usize,
    /// Machines that have not been restarted for it.
    left: usize,
}

impl World {
    /// What the processes of a group stand on at first.
    pub(super) fn first_stand(&self, group: usize, node: usize) -> Stand {
        let dc = self.plan.nodes[group];
        match self.plan.moves.of(dc) {
            None => Stand { placed: self.processes_of(group).collect(), absent: false },
            Some(moving) => {
                let placed = self.holders(group, moving, &moving.layouts[0]);
                Stand { absent: !placed.contains(&node), placed }
            }
        }
    }

    /// Processes that hold a group by a layout.
    fn holders(&self, group: usize, moving: &Moving, layout: &Change) -> Vec<usize> {
        let (first, number) = (self.processes_of(group).start, moving.first_group + self.groups[group].group);
        layout.placement.holders(number).map(|machine| first + usize::from(machine)).collect()
    }

    fn groups_in(&self, dc: usize) -> Vec<usize> {
        (0..self.plan.nodes.len()).filter(|&group| self.plan.nodes[group] == dc).collect()
    }

    pub(super) fn plan_moves(&mut self) {
        for dc in 0..self.plan.sites.len() {
            self.moves.push(Progress::default());
            self.await_layout(dc);
        }
    }

    fn await_layout(&mut self, dc: usize) {
        let next = self.moves[dc].layout + 1;
        if let Some(change) = self.plan.moves.of(dc).and_then(|moving| moving.layouts.get(next)) {
            let at = change.from.max(self.now + Span(1));
            self.queue.push(at, Event::Layout { dc });
        }
    }

    /// The operator looks whether all is as the layout wants it, and goes on to the next.
    pub(super) fn on_layout(&mut self, dc: usize) {
        if self.faults_over {
            return;
        }
        if !self.is_settled(dc) {
            return self.after(LOOK_AGAIN, Event::Layout { dc });
        }
        self.moves[dc].layout += 1;
        let Some(change) = self.layout_of(dc).map(|(_, change)| change) else { return };
        self.moves[dc].left = change.turns.len();
        self.note(56, [dc as u64, self.moves[dc].layout as u64, 0], || {
            format!("layout of {dc}: {:?}", change.placement)
        });
        let mut at = self.now;
        for (machine, pause) in change.turns {
            at = at + pause;
            self.queue.push(at, Event::Turn { dc, machine: machine.into() });
        }
    }

    /// The plan of a data centre, and the layout that its machines read now.
    fn layout_of(&self, dc: usize) -> Option<(&Moving, Change)> {
        self.plan.moves.of(dc).map(|moving| (moving, moving.layouts[self.moves[dc].layout].clone()))
    }

    /// Processes that hold a group of a data centre by its present layout.
    fn placed_now(&self, dc: usize, group: usize) -> Vec<usize> {
        let of_layout = self.layout_of(dc).map(|(moving, change)| self.holders(group, moving, &change));
        of_layout.unwrap_or_default()
    }

    /// A machine is told to end, if it runs, and reads the layout as it starts.
    pub(super) fn on_turn(&mut self, dc: usize, machine: usize) {
        let Some(change) = self.layout_of(dc).map(|(_, change)| change) else { return };
        self.note(57, [dc as u64, machine as u64, 0], || format!("machine {machine} of {dc} reads another layout"));
        self.moves[dc].left -= 1;
        for group in self.groups_in(dc) {
            let node = self.processes_of(group).start + machine;
            let placed = self.placed_now(dc, group);
            let was_absent = self.nodes[node].stand.absent;
            let absent = was_absent && !placed.contains(&node);
            self.nodes[node].stand = Stand { placed, absent };
            match (was_absent, absent) {
                (true, true) => {}
                (true, false) => self.start_node(node),
                // One that is down starts again by itself.
                (false, _) => {
                    self.nodes[node].doom = self.nodes[node].is_up().then_some((0, START_AGAIN));
                    self.crash_node(node);
                }
            }
        }
        let (comes, goes) = (!change.placement.is_gone(machine as u16), change.placement.is_gone(machine as u16));
        let concerned = usize::from(change.machine) == machine;
        self.coverage.saw_times("node added while counting", u64::from(concerned && comes));
        self.coverage.saw_times("node taken away while counting", u64::from(concerned && goes));
        if self.moves[dc].left == 0 {
            self.await_layout(dc);
        }
    }

    /// The group has gone on without a process, whose disk is set aside.
    pub(super) fn on_left(&mut self, node: usize) {
        let group = self.nodes[node].group;
        self.note(58, [node as u64, group as u64, 0], || format!("node {node} has left group {group}"));
        let placed = self.nodes[node].stand.placed.contains(&node);
        self.audit.findings.check("logs", !placed, || format!("node {node} has left group {group}, of which it is"));
        self.coverage.saw("group moved away from a node");
        self.nodes[node].stand.absent = true;
        self.nodes[node].doom = Some((0, START_AGAIN));
        self.crash_node(node);
        if let Some(engine) = &mut self.engine {
            engine.set_aside(node);
        }
    }

    /// Whether all groups of a data centre are where its layout wants them.
    fn is_settled(&self, dc: usize) -> bool {
        let (Some(_), Some(engine)) = (self.plan.moves.of(dc), &self.engine) else { return true };
        let stands = |group: usize| {
            let processes = self.processes_of(group);
            let rest = |node: usize| self.nodes[node].stand.absent || self.nodes[node].stand.placed.contains(&node);
            processes.clone().all(rest) && engine.is_settled(processes, &self.placed_now(dc, group))
        };
        self.moves[dc].left == 0 && self.groups_in(dc).into_iter().all(stands)
    }

    /// Whether nothing moves any more.
    pub(super) fn moves_at_rest(&self) -> bool {
        (0..self.moves.len()).all(|dc| self.is_settled(dc))
    }
}
