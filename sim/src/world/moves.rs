//! Machines that come and go: an operator gives a data centre another layout, and restarts its machines one after the other, which
//! read it as they start. Each holds the groups that are placed on it, and those that were until others have its place. The next
//! layout waits until all groups are where the last one wants them, where operators are in no hurry.

use super::{Event, World};
use crate::engine::Reads;
use crate::plan::moves::{Change, Moving};
use tidemark_proto::time::Span;

/// An operator looks so often whether all groups are where they belong.
const LOOK_AGAIN: Span = Span::from_secs(1);
/// A process that was told to end starts again after this.
const START_AGAIN: Span = Span::from_millis(200);

/// A process's reading of its data centre's layouts.
#[derive(Clone, Debug, Default)]
pub struct Stand {
    pub reads: Reads,
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
    /// The first layouts of the processes of a group.
    pub(super) fn first_stand(&self, group: usize, node: usize) -> Stand {
        let dc = self.plan.nodes[group];
        let reads = match self.plan.moves.of(dc) {
            None => Reads { placed: self.processes_of(group).collect(), ..Reads::default() },
            Some(moving) => self.reads(group, moving, &moving.layouts[0]),
        };
        Stand { absent: !reads.placed.contains(&node), reads }
    }

    /// The machine of a process that is not started there runs all the same, if it is one of the layout.
    pub(super) fn stand_by(&mut self, node: usize) {
        let stand = &self.nodes[node].stand;
        let runs = stand.reads.nodes.contains(&node) && !stand.reads.gone.contains(&node);
        if let Some(engine) = self.engine.as_mut().filter(|_| stand.absent) {
            engine.stand_by(node, runs, &stand.reads);
        }
    }

    /// A layout's words about a group.
    fn reads(&self, group: usize, moving: &Moving, layout: &Change) -> Reads {
        let first = self.processes_of(group).start;
        let number = moving.first_group + self.groups[group].group;
        let process = |machine: u16| first + usize::from(machine);
        let placement = &layout.placement;
        let nodes = layout.placement.nodes();
        Reads {
            placed: placement.holders(number).map(process).collect(),
            nodes: (0..nodes).map(process).collect(),
            gone: (0..nodes).filter(|&machine| placement.is_gone(machine)).map(process).collect(),
        }
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
        if !self.plan.only.moves(dc) {
            return;
        }
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
        let hurries = self.plan.moves.of(dc).is_some_and(|moving| moving.hurries(self.moves[dc].layout + 1));
        let is_settled = self.is_settled(dc);
        let may_change = is_settled || hurries && self.moves[dc].left == 0;
        if !may_change {
            return self.after(LOOK_AGAIN, Event::Layout { dc });
        }
        self.coverage
            .saw_times("layout changed before groups were where the last one wants them", u64::from(!is_settled));
        self.moves[dc].layout += 1;
        let Some(change) = self.layout_of(dc).map(|(_, change)| change) else { return };
        self.moves[dc].left = change.turns.len();
        self.note(61, [dc as u64, self.moves[dc].layout as u64, 0], || {
            format!("layout of {dc}: {:?}", change.placement)
        });
        if let Some(after) = change.disk_after {
            self.groups_in(dc).into_iter().for_each(|group| self.after(after, Event::DiskLost { group }));
        }
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

    /// The present layout's words about a group of a data centre.
    fn reads_now(&self, dc: usize, group: usize) -> Reads {
        let of_layout = self.layout_of(dc).map(|(moving, change)| self.reads(group, moving, &change));
        of_layout.unwrap_or_default()
    }

    /// A disk is lost while the layout changes.
    pub(super) fn on_disk_lost(&mut self, group: usize) {
        if !self.faults_over {
            self.wipe(group);
        }
    }

    /// A machine is told to end, if it runs, and reads the layout as it starts.
    pub(super) fn on_turn(&mut self, dc: usize, machine: usize) {
        let Some(change) = self.layout_of(dc).map(|(_, change)| change) else { return };
        self.note(62, [dc as u64, machine as u64, 0], || format!("machine {machine} of {dc} reads another layout"));
        self.moves[dc].left -= 1;
        for group in self.groups_in(dc) {
            let node = self.processes_of(group).start + machine;
            let reads = self.reads_now(dc, group);
            let was_absent = self.nodes[node].stand.absent;
            let absent = was_absent && !reads.placed.contains(&node);
            self.nodes[node].stand = Stand { reads, absent };
            match (was_absent, absent) {
                (true, true) => self.stand_by(node),
                (true, false) => self.start_node(node),
                // A process that is down starts again by itself.
                (false, _) => {
                    self.nodes[node].doom = self.nodes[node].is_up().then_some((0, START_AGAIN));
                    self.crash_node(node);
                }
            }
        }
        if change.machines.contains(&(machine as u16)) {
            let goes = change.placement.is_gone(machine as u16);
            self.coverage.saw(if goes { "node taken away while counting" } else { "node added while counting" });
        }
        if self.moves[dc].left == 0 {
            self.await_layout(dc);
        }
    }

    /// The group has gone on without a process, and the disk of that process is set aside.
    pub(super) fn on_left(&mut self, node: usize) {
        let group = self.nodes[node].group;
        self.note(63, [node as u64, group as u64, 0], || format!("node {node} has left group {group}"));
        let placed = self.nodes[node].stand.reads.placed.contains(&node);
        self.audit.findings.check("logs", !placed, || format!("node {node} has left group {group}, of which it is"));
        self.coverage.saw("group moved away from a node");
        self.nodes[node].stand.absent = true;
        self.nodes[node].doom = Some((0, START_AGAIN));
        self.crash_node(node);
        if let Some(engine) = &mut self.engine {
            engine.set_aside(node);
        }
        self.stand_by(node);
    }

    /// Whether every process of a group is reached, so that a disk may be lost while nodes come and go. If the only processes that hold the
    /// group's log are gone by the layout, and silent for long, the group is founded anew, as decision 0033 says.
    pub(super) fn is_heard(&self, group: usize) -> bool {
        let is_heard = |node: usize| {
            let process = &self.nodes[node];
            process.log.isolated_until <= self.now && process.full_until <= self.now
        };
        self.present_of(group).into_iter().all(is_heard)
    }

    /// Whether, without a process, no process that is to have the group's log has any part of it.
    pub(super) fn is_held_only_by_who_goes(&self, group: usize, without: usize) -> bool {
        let placed = self.reads_now(self.plan.nodes[group], group).placed;
        !placed.into_iter().any(|node| node != without && self.nodes[node].log.applied > 0)
    }

    /// Whether all groups of a data centre are where its layout wants them.
    pub(super) fn is_settled(&self, dc: usize) -> bool {
        let (Some(_), Some(engine)) = (self.plan.moves.of(dc), &self.engine) else { return true };
        let stands = |group: usize| {
            let processes = self.processes_of(group);
            let rest =
                |node: usize| self.nodes[node].stand.absent || self.nodes[node].stand.reads.placed.contains(&node);
            processes.clone().all(rest) && engine.is_settled(processes, &self.reads_now(dc, group).placed)
        };
        self.moves[dc].left == 0 && self.groups_in(dc).into_iter().all(stands)
    }

    /// Whether nothing moves any more.
    pub(super) fn moves_at_rest(&self) -> bool {
        (0..self.moves.len()).all(|dc| self.is_settled(dc))
    }
}
