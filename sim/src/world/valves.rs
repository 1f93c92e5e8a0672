//! Valves that are added while it counts: the processes of a group start again, one after the other, with a configuration that asks for
//! more. The setting of the leader holds for all, also for those that still ask for fewer, or do so again.

use super::{Event, World};
use std::collections::BTreeMap;
use tidemark_proto::time::Span;

/// A restart by an operator takes so long, in microseconds.
const RESTART_US: (u64, u64) = (20_000, 400_000);

/// Valves that the configurations of groups ask for, where they were changed.
pub type Asked = BTreeMap<usize, u8>;

impl World {
    /// Valves that a process of the group is to ask for when it starts.
    pub(super) fn valves_asked(&self, group: usize) -> u8 {
        self.valves.get(&group).copied().unwrap_or(self.plan.lanes)
    }

    pub(super) fn add_valves(&mut self, group: usize, lanes: u8, gap: Span) {
        self.valves.insert(group, lanes);
        for (turn, node) in self.processes_of(group).enumerate() {
            self.after(Span(gap.0 * turn as u64), Event::Reconfigure { node });
        }
    }

    /// The process is restarted for its new configuration; a process that is down reads it when it comes back.
    pub(super) fn on_reconfigure(&mut self, node: usize) {
        if self.faults_over || !self.nodes[node].is_up() {
            return;
        }
        let span = self.span(RESTART_US.0, RESTART_US.1);
        self.nodes[node].doom = Some((0, span));
        self.crash_node(node);
    }

    /// At the end: every group has as many valves as any start in its log asked for.
    pub(super) fn audit_valves(&mut self) {
        let serving: Vec<usize> = (0..self.groups.len()).filter_map(|group| self.serving(group)).collect();
        for node in serving {
            let group = self.nodes[node].group;
            let oracle = &self.audit.oracle;
            let Some(core) = self.nodes[node].core() else { continue };
            let has = core.group().lanes();
            let asked = oracle.groups[group].lanes;
            self.audit.findings.check("recovery", has == asked, || {
                format!("node {node} has {has} valves of group {group}, whose log asks for {asked}")
            });
        }
        let added = self.audit.oracle.valves_added;
        let fewer = self.audit.oracle.fewer_valves_asked;
        self.coverage.saw_times("valves added while it counted", added);
        self.coverage.saw_times("start that asked for fewer valves than there are", fewer);
    }
}
