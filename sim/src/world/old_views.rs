//! An old copy of the file of an aggregator's view takes its place while the run goes on. Readers there may see less than before; if it is
//! the only view of its data centre, they may even see a milestone before its award, and less again, until its replica of the ledger, which
//! is another file, is as far as it ever was. In the end every view shows everything.

use super::aggregators::ViewCopy;
use super::{Event, World};
use crate::plan::Fault;
use std::collections::BTreeMap;
use tidemark_proto::ids::LogIndex;
use tidemark_proto::time::Span;

/// The process on the copy starts so long after the other has ended, in microseconds.
const START_US: (u64, u64) = (20_000, 600_000);

/// Old copies of views' disks in a run.
#[derive(Debug, Default)]
pub struct OldViews {
    /// By the number of their fault, and in which life of the process each was made.
    copies: BTreeMap<usize, (u32, ViewCopy)>,
    /// Up to where each aggregator's replica of the ledger has ever come, and whether an old copy took the place of its view's disk.
    replicas: BTreeMap<usize, (LogIndex, bool)>,
}

impl OldViews {
    /// Notes how far the replica beside a view is. Returns whether the view is on an old copy, and its replica has not come as far again as
    /// it was: until then the view does not know its promises about milestones.
    pub fn forgets(&mut self, at: usize, applied: LogIndex) -> bool {
        let (furthest, is_old) = self.replicas.entry(at).or_default();
        *is_old &= applied < *furthest;
        *furthest = applied.max(*furthest);
        *is_old
    }
}

impl OldViews {
    /// Whether there is a copy in the run.
    pub fn are_any(&self) -> bool {
        !self.copies.is_empty()
    }
}

impl World {
    /// An operator copies a view's disk.
    pub(super) fn copy_view(&mut self, at: usize, after: &[Span], index: usize) {
        let process = &self.aggregators[at];
        self.old_views.copies.insert(index, (process.boot, process.copy_rows()));
        for &after in after {
            self.after(after, Event::OldView(index));
        }
    }

    /// The copy takes the place of the disk.
    pub(super) fn on_old_view(&mut self, index: usize) {
        let Fault::OldView { at, .. } = self.plan.faults[index].1 else { return };
        let Some((life, copy)) = self.old_views.copies.get(&index).cloned() else { return };
        if self.faults_over || !self.aggregators[at].is_up() {
            return;
        }
        // Lives since, of which the copy knows nothing, have told others.
        let lives = self.aggregators[at].boot > life;
        let span = self.span(START_US.0, START_US.1);
        self.doom_aggregator(at, 0, span);
        self.crash_aggregator(at);
        self.aggregators[at].replace_rows(copy);
        // The second of a pair, and the first beside it, show nothing before the ledger knows of their start.
        self.old_views.replicas.entry(at).or_default().1 = !self.is_paired(at);
        self.note(57, [at as u64, 0, 0], || format!("an old copy takes the place of the view's disk of {at}"));
        self.coverage.saw("old copy of a view");
        self.coverage.saw_times("old copy of a view from before another life of it", u64::from(lives));
    }
}
