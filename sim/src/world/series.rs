//! Series of a run: the namespace is told to keep them, and rows are looked at after each step.

use super::{NAMESPACE, World};
use crate::checkers::{Findings, series};
use std::borrow::Cow;
use tidemark_proto::ids::Half;
use tidemark_proto::msg::{LedgerCmd, SeriesTerms};
use tidemark_proto::series::{Row, UnixTime};

/// No clock is so far ahead of another, whatever it is looked at.
const AHEAD_S: u64 = 10;

impl World {
    pub(super) fn series_command(&self) -> Option<LedgerCmd> {
        let policy = self.plan.series.as_ref()?.policy.clone();
        let terms = SeriesTerms { revision: 1, policy, since: UnixTime::from_wall(self.true_wall()) };
        Some(LedgerCmd::Series { namespace: NAMESPACE.to_owned(), terms })
    }

    /// After a group's committed state may have changed in a half of a counter: its buckets are what its log says.
    pub(super) fn audit_rows(&mut self, node: usize, at: usize, number: u16) {
        if self.plan.series.is_none() {
            return;
        }
        let Some(group) = self.nodes[node].core().map(|core| core.group()) else { return };
        let Some(state) = group.series_of(NAMESPACE) else { return };
        let (counter, half, generation) = self.audit.oracle.cell_of(number);
        let slot = group.table().find_half(&self.names[counter], half, generation);
        if slot.is_none() && self.audit.oracle.groups[at].given_back.contains(&number) {
            return;
        }
        let lanes = slot.into_iter().flat_map(|slot| (0..group.lanes()).map(move |lane| (slot, lane)));
        let held: Vec<Cow<'_, Row>> = lanes.filter_map(|(slot, lane)| group.buckets(slot, lane)).collect();
        let rows: Vec<&Row> = held.iter().map(|row| &**row).collect();
        let truth = self.audit.oracle.groups[at].buckets(number);
        series::of_group(&mut self.audit.findings, at, number, &rows, &truth, state.horizon());
        self.coverage.saw_times("row of buckets counted in", u64::from(!rows.is_empty()));
    }

    /// The count of a counter in a view's buckets is at most the true one.
    pub(super) fn audit_view_rows(&mut self, dc: usize, counter: usize) {
        if self.plan.series.is_none() {
            return;
        }
        for (number, half, generation) in self.halves_of(counter) {
            let Some(core) = self.aggregators[dc].core() else { return };
            let Some(series) = core.view().series_of(NAMESPACE) else { return };
            let held = core.view().rows(&self.names[counter], half, generation);
            let held: Vec<Cow<'_, Row>> = held.map(|(_, row)| row).collect();
            let rows: Vec<&Row> = held.iter().map(|row| &**row).collect();
            let truth = self.audit.oracle.buckets(number);
            series::of_view(&mut self.audit.findings, dc, number, &rows, &truth, &series.horizon);
        }
    }

    /// Whether each view holds every bucket that no process had to drop.
    pub(super) fn rows_at_rest(&self, counter: usize) -> bool {
        let mut findings = Findings::default();
        (0..self.aggregators.len()).filter(|&at| self.holds(at, counter)).all(|dc| {
            self.compare_rows(&mut findings, dc, counter);
            findings.violations.is_empty()
        })
    }

    /// At the end it does.
    pub(super) fn audit_rows_end(&mut self, dc: usize, counter: usize) {
        let mut findings = std::mem::take(&mut self.audit.findings);
        let buckets = self.compare_rows(&mut findings, dc, counter);
        let true_time = UnixTime::from_wall(self.true_wall());
        if let Some(series) = self.aggregators[dc].core().and_then(|core| core.view().series_of(NAMESPACE)) {
            series::in_time(&mut findings, dc, &series.horizon, true_time, AHEAD_S);
        }
        self.audit.findings = findings;
        self.coverage.saw_times("bucket equal in a view at the end", buckets);
    }

    /// How many buckets were compared.
    fn compare_rows(&self, findings: &mut Findings, dc: usize, counter: usize) -> u64 {
        let mut compared = 0;
        if self.plan.series.is_none() || self.audit.oracle.lost.is_some() || !self.holds(dc, counter) {
            return compared;
        }
        for (number, half, generation) in self.halves_of(counter) {
            let Some(core) = self.aggregators[dc].core() else { return compared };
            let Some(series) = core.view().series_of(NAMESPACE) else { return compared };
            let held = core.view().rows(&self.names[counter], half, generation);
            let held: Vec<Cow<'_, Row>> = held.map(|(_, row)| row).collect();
            let rows: Vec<&Row> = held.iter().map(|row| &**row).collect();
            // Buckets that have expired by the clock that is furthest ahead may have been dropped on their way.
            let mut horizon = series.horizon.clone();
            horizon.advance(&series.policy, UnixTime::from_wall(self.true_wall()).plus(AHEAD_S));
            let truth = self.audit.oracle.buckets(number);
            compared += series::at_end(findings, dc, number, &rows, &truth, &horizon);
        }
        compared
    }

    /// The number of each half of a counter, in its present generation.
    pub(super) fn halves_of(&self, counter: usize) -> Vec<(u16, Half, u32)> {
        let generation = self.reference.resets().generation(&self.names[counter]);
        let oracle = &self.audit.oracle;
        let counter = counter as u16;
        let halves = [Some(Half::Up), self.plan.updown.map(|_| Half::Down)].into_iter().flatten();
        halves.map(|half| (oracle.number(oracle.half(counter, half), generation), half, generation)).collect()
    }
}
