//! The components of a view, for audits, and totals behind the graph, counted anew.

use super::View;
use super::cells::Cells;
use super::hierarchy::HeldSums;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_ledger::ledger::Ledger;
use tidemark_types::audit::{Compared, Held, KeptBy, compare};
use tidemark_types::graph::Vertex;
use tidemark_types::ids::{CellId, CounterName, Half, ValveId};
use tidemark_types::series::{BucketId, Horizon, Row};
use tidemark_wire::msg::Audited;

/// The most ancestors of a counter that an audit counts anew at once: everything else waits meanwhile. With more, it reports that
/// it did not.
pub const ANCESTORS_AUDITED_MAX: usize = 20_000;

/// The counts that flow to a counter, as its view has them and counted anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TotalAudit {
    /// Counters from which it is reached, each counted once.
    pub ancestors: usize,
    /// By half: the view's count, and the sum of the ancestors' own counts.
    pub halves: [(u64, u64); 2],
    /// Buckets of either half in which both differ: the view's value, and the sum.
    pub buckets: Vec<(Half, BucketId, u64, u64)>,
}

impl TotalAudit {
    pub fn agrees(&self) -> bool {
        self.buckets.is_empty() && self.halves.iter().all(|(view, counted)| view == counted)
    }
}

/// Why totals cannot be compared now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCounted {
    #[error("changes of edges are being carried out")]
    Changing,
    #[error("more than {ANCESTORS_AUDITED_MAX} counters flow to the counter")]
    TooMany,
}

impl Cells {
    /// A component in this view.
    fn held(&self, slot: u32, valve: ValveId) -> Held {
        let Some(&number) = self.valve_numbers.get(&valve) else { return Held::default() };
        let row = self.row_numbers(slot).find(|&(_, of)| of == number).map(|(row, _)| self.row(row).into_owned());
        Held { value: self.component(slot, number), row: row.unwrap_or_default() }
    }
}

impl View {
    /// Compares a group's components in some lanes of a cell; the view stands at the same entry of the group's log.
    pub fn compare(&self, audited: &Audited) -> Vec<Compared> {
        let cells = self.cells_of(&audited.cell.counter);
        let slot = cells.table().find(&audited.cell);
        let own =
            |lane| slot.map_or_else(Held::default, |slot| cells.held(slot, ValveId { group: audited.group, lane }));
        let everything = Horizon::everything();
        let series = self.series_of(audited.cell.counter.namespace());
        let kept = series.map_or(&everything, |series| &series.horizon);
        let lanes = (audited.from_lane..audited.upto_lane).filter_map(|lane| {
            let view = own(lane);
            let held = held_of(audited, lane);
            let is_any = view != Held::default() || held != Held::default();
            let view = if audited.too_long { Held { row: Row::default(), ..view } } else { view };
            let valve = ValveId { group: audited.group, lane };
            let kept = KeptBy { by_view: kept, by_writer: audited.horizon.as_ref() };
            is_any.then(|| compare(valve, &view, &held, kept))
        });
        lanes.collect()
    }

    /// The buckets of a namespace that both sides keep.
    pub fn kept_by_both(&self, audited: &Audited) -> Option<Horizon> {
        let mut kept = audited.horizon.clone()?;
        if let Some(series) = self.series_of(audited.cell.counter.namespace()) {
            kept.merge(&series.horizon);
        }
        Some(kept)
    }

    /// All components of a cell, of all data centres, each with those of its buckets that are kept.
    pub fn components_held(&self, cell: &CellId) -> impl Iterator<Item = (ValveId, Held)> + '_ {
        let cells = self.cells_of(&cell.counter);
        let slot = cells.table().find(cell);
        slot.into_iter().flat_map(move |slot| {
            let of_rows = cells.row_numbers(slot).map(|(_, valve)| valve);
            let valves: BTreeSet<u16> = cells.components(slot).map(|(valve, _)| valve).chain(of_rows).collect();
            let horizon = cells.horizon_of(slot);
            let all = valves.into_iter().map(move |number| {
                let valve = cells.valves[usize::from(number)];
                let mut held = cells.held(slot, valve);
                held.row.expire(horizon);
                (valve, held)
            });
            all.filter(|(_, held)| *held != Held::default())
        })
    }

    /// Counts the inflow of a counter along edges anew: its ancestors' own counts in their present generations, each once. `None`
    /// where nothing does.
    pub fn audit_total(&self, counter: &CounterName, ledger: &Ledger) -> Result<Option<TotalAudit>, NotCounted> {
        let Some(vertex) = ledger.graph().vertex(counter) else { return Ok(None) };
        let progress = self.graph_progress();
        let follows = progress.index == ledger.graph().index() && progress.waiting == 0;
        let is_all_taken_in =
            progress.cells >= self.len() && self.shards().all(|(of, _)| self.not_taken_in(of).is_empty());
        if !follows || progress.compares || progress.recounts || !is_all_taken_in {
            return Err(NotCounted::Changing);
        }
        let ancestors = ancestors(vertex, ledger)?;
        let shares = || self.shares(counter, ledger).map(|(_, share)| share);
        if ancestors.is_empty() && shares().all(|share: HeldSums<'_>| share.is_empty()) {
            return Ok(None);
        }
        let mut audit = TotalAudit { ancestors: ancestors.len(), ..TotalAudit::default() };
        for half in [Half::Up, Half::Down] {
            let slots = ancestors.iter().filter_map(|&ancestor| self.present_slot(ancestor, half, ledger));
            let (mut count, mut sums) = (0_u64, BTreeMap::<BucketId, u64>::new());
            for (cells, slot) in slots {
                count = count.wrapping_add(cells.sum(slot));
                for (.., row) in cells.rows_of(slot) {
                    for (bucket, value) in row.buckets() {
                        let sum = sums.entry(bucket).or_default();
                        *sum = sum.wrapping_add(value);
                    }
                }
            }
            audit.halves[half as usize] = (shares().fold(0, |sum, share| sum.wrapping_add(share.count(half))), count);
            let Some(horizon) = self.total_horizon(counter.namespace()) else { continue };
            sums.retain(|bucket, sum| horizon.keeps(*bucket) && *sum > 0);
            let mut eager = BTreeMap::<BucketId, u64>::new();
            for share in shares() {
                for (bucket, value) in
                    share.buckets(half).whole().buckets().filter(|(bucket, _)| horizon.keeps(*bucket))
                {
                    let sum = eager.entry(bucket).or_default();
                    *sum = sum.wrapping_add(value);
                }
            }
            let all: BTreeSet<BucketId> = eager.keys().chain(sums.keys()).copied().collect();
            let value = |of: &BTreeMap<BucketId, u64>, bucket| of.get(bucket).copied().unwrap_or(0);
            let differ = all.iter().map(|bucket| (half, *bucket, value(&eager, bucket), value(&sums, bucket)));
            audit.buckets.extend(differ.filter(|(.., eager, counted)| eager != counted));
        }
        Ok(Some(audit))
    }

    fn present_slot(&self, of: Vertex, half: Half, ledger: &Ledger) -> Option<(&Cells, u32)> {
        let counter = ledger.graph().name(of);
        let cells = self.cells_of(&counter);
        Some((cells, cells.table().find_half(&counter, half, ledger.resets().generation(&counter))?))
    }
}

/// The component of a lane that a group reports.
fn held_of(audited: &Audited, lane: u8) -> Held {
    let value = audited.components.iter().find(|(of, _)| *of == lane).map_or(0, |(_, value)| *value);
    let parts = audited.rows.iter().filter(|(of, _)| *of == lane);
    Held { value, row: Row::from_buckets(parts.flat_map(|(_, part)| part.buckets())) }
}

/// All counters from which one is reached, each once.
fn ancestors(of: Vertex, ledger: &Ledger) -> Result<BTreeSet<Vertex>, NotCounted> {
    let mut found = BTreeSet::new();
    let mut open = vec![of];
    while let Some(vertex) = open.pop() {
        for parent in ledger.graph().dag().parents(vertex) {
            if found.insert(parent) {
                open.push(parent);
            }
            if found.len() > ANCESTORS_AUDITED_MAX {
                return Err(NotCounted::TooMany);
            }
        }
    }
    Ok(found)
}
