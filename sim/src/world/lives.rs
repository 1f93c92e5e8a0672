//! Counters that began again: nothing of before stays in views once all have passed it.

use super::World;
use crate::checkers::lives::{self, Over};
use tidemark_proto::ids::Half;

impl World {
    /// After a step of an aggregator that has dropped what is over, as far as its replica of the ledger says that all have passed it.
    pub(super) fn audit_over(&mut self, dc: usize, counter: usize) {
        let process = &self.aggregators[dc];
        let name = &self.names[counter];
        let Some(core) = process.core() else { return };
        let life = process.ledger.resets().life(name);
        let passed = process.ledger.resets_passed();
        if core.view().ended() != passed {
            return;
        }
        let cells = core.view().cells_of(name);
        let holds = |(generation, half)| {
            let count = cells.sum_of_half(name, half, generation);
            let buckets = cells.rows(name, half, generation).map(|(_, row)| row.len()).sum();
            Over { counter, generation, count, buckets }
        };
        let halves = (0..life.over).flat_map(|generation| [Half::Up, Half::Down].map(|half| (generation, half)));
        for held in halves.map(holds) {
            lives::of_view(&mut self.audit.findings, dc, held, life.over, passed);
        }
        let is_reused = !cells.reused_slots().is_empty();
        self.coverage.saw_times("view is without what is over", u64::from(life.over > 0));
        self.coverage.saw_times("new cell of a view in the slot of an ended one", u64::from(is_reused));
    }
}
