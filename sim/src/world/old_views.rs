//! An old copy of the file of an aggregator's view takes its place while the run goes on. Readers there may see less than before; nobody
//! sees a milestone before its award, as the ledger's file is as it was, and in the end every view shows everything.

use super::{Event, World};
use crate::plan::Fault;
use std::collections::BTreeMap;
use tidemark_proto::time::Span;

/// The process on the copy starts so long after the other has ended, in microseconds.
const START_US: (u64, u64) = (20_000, 600_000);

/// Copies that are kept, by the number of their fault, and in which life of the process each was made.
pub type Copies = BTreeMap<usize, (u32, BTreeMap<Vec<u8>, Vec<u8>>)>;

impl World {
    /// Somebody copies a view's disk.
    pub(super) fn copy_view(&mut self, at: usize, after: &[Span], index: usize) {
        let process = &self.aggregators[at];
        self.old_views.insert(index, (process.boot, process.copy_rows()));
        for &after in after {
            self.after(after, Event::OldView(index));
        }
    }

    /// The copy takes the place of the disk.
    pub(super) fn on_old_view(&mut self, index: usize) {
        let Fault::OldView { at, .. } = self.plan.faults[index].1 else { return };
        let Some((life, copy)) = self.old_views.get(&index).cloned() else { return };
        if self.faults_over || !self.aggregators[at].is_up() {
            return;
        }
        // Lives since, of which the copy knows nothing, have told others.
        let lives = self.aggregators[at].boot > life;
        let span = self.span(START_US.0, START_US.1);
        self.doom_aggregator(at, 0, span);
        self.crash_aggregator(at);
        self.aggregators[at].replace_rows(copy);
        self.note(57, [at as u64, 0, 0], || format!("an old copy takes the place of the view's disk of {at}"));
        self.coverage.saw("old copy of a view");
        self.coverage.saw_times("old copy of a view from before another life of it", u64::from(lives));
    }
}
